"""The parts of a tree that threads run: ranges of the outermost loop, or ranges of entries."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ..engine.tree import Tree
from .nest import counters
from .store import Nest


class Part(NamedTuple):
    """Iterations begin … end of the outermost loop.

    own: iterations before it have the first coordinate `row` of the part before, and change a copy of the outs. last:
    iterations from there on have entries of the next part. path: the counters of the loops at the first and at the last
    entry, where the part begins or ends inside of an iteration.
    """

    begin: int
    own: int
    last: int
    end: int
    path: tuple[int, ...] = ()
    row: int = 0


def of_loop(nest: Nest, stored: Sequence[Any], parts: int, *, whole: bool = True) -> list[Part]:
    """Parts of the outermost loop. whole: no two parts have the same first coordinate."""
    extent, first = range(*map(int, nest.extent(*stored))), nest.first
    ends = [extent[len(extent) * k // parts] for k in range(1, parts)] if extent else []
    if whole and first is not None:
        ends = [extent.start + bisect_left(extent, first(x, *stored), key=lambda x: first(x, *stored)) for x in ends]
    return [Part(a, a, b, b) for a, b in pairwise(sorted({extent.start, *ends, extent.stop}))]


_known: WeakKeyDictionary[Tree, dict[tuple[int, bool], list[Part]]] = WeakKeyDictionary()
_NONE = 2**64 - 1  # no counter


def of_entries(tree: Tree, nest: Nest, stored: Sequence[Any], parts: int, *, whole: bool) -> list[Part]:
    """Parts with about the same number of entries, or of fibers of the first level whose loop has no `counters`.

    whole: parts end between first coordinates, except in a coordinate with all entries of a part. Otherwise these may
    be in any order. Cached as long as the tree.
    """
    known = _known.setdefault(tree, {})
    if (parts, whole) in known:
        return known[parts, whole]
    names, first = counters(tree.levels), nest.first if whole else None
    extent = range(*map(int, nest.extent(*stored)))

    def find(search: Callable[..., int], row: int, counter: int) -> int:
        return counter if first is None else extent.start + search(extent, row, key=lambda x: first(x, *stored))

    total = [*(n for *_, n in tree.walk()), len(tree.values)][len(names)] if names else 0
    cuts = sorted({total * k // parts for k in range(1, parts)} - {0})
    paths = [_path(tree, names, x) for x in cuts]
    rows = [row for row, _ in paths]
    none = [_NONE] * sum(map(len, names))
    starts, ends = [(extent.start, extent.start, none, 0)], []
    for x, (row, path) in zip(cuts, paths, strict=True):
        before, upto = _path(tree, names, x - 1) if rows.count(row) > 1 else (-1, none)
        if before == row:
            starts.append((path[0], find(bisect_right, row, path[0] + 1), path, row))
            ends.append((upto[0] + (len(upto) == 1), upto[0] + 1, upto))
        else:
            begin = find(bisect_left, row, path[0])
            starts.append((begin, begin, none, row))
            ends.append((begin, begin, none))
    ends.append((extent.stop, extent.stop, none))
    made = []
    for (begin, own, path, row), (last, end, upto) in zip(starts, ends, strict=True):
        own = min(own, end)
        made.append(Part(begin, own, max(last, own), end, (*path, *upto), row))
    known[parts, whole] = made
    return made


def _path(tree: Tree, names: Sequence[Sequence[str]], position: int) -> tuple[int, list[int]]:
    """The first coordinate at a position of the last level of `names`, and the counters there."""
    found: dict[str, int] = {}
    for d, (place, arrays, n) in reversed(list(enumerate(tree.walk()))[: len(names)]):
        owners = place.level.above(arrays, place.dims, n, range(position, position + 1))
        found |= {f"q{d}": position} | {f"x{place.depth + k}": int(x[0]) for k, x in enumerate(owners.coords)}
        position = owners.fibers.start
    return found["x0"], [found[name] for own in names for name in own]


def are_uneven(tree: Tree, nest: Nest, stored: Sequence[Any], *, whole: bool) -> bool:
    """Return True if ranges of the outermost loop have very different numbers of entries: a quarter of the entries does
    not begin near a quarter of the iterations, or, if parts are `whole`, two quarters share a coordinate.
    """
    begin, end = map(int, nest.extent(*stored))
    quarters = of_entries(tree, nest, stored, 4, whole=whole)[1:]
    far = (abs(8 * (x.begin - begin) + 4 - 2 * k * (end - begin)) for k, x in enumerate(quarters, 1))
    return max(far, default=0) > end - begin or (whole and any(x.own > x.begin for x in quarters))
