"""A tree piece by piece: its entries a block at a time, and trees of consecutive entries joined into one.

A block is a run of positions of the last level. From there the levels are walked upwards, so that it does not matter
how the entries are spread over the fibers: also one fiber of all entries is read in parts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..containers.base import Pieces
from ..errors import ArrayError, FormatError, LimitError, Problem
from ..levels import Level, Place, places
from ..levels.base import cells
from . import packing
from .tree import Tree, at_name, index_dtype

Array: TypeAlias = npt.NDArray[Any]
Coords: TypeAlias = tuple[int, ...]

_AT_ONCE = 2**20  # items of an array that are joined at once


def read_block(tree: Tree, positions: range, dtype: Any = np.int64) -> tuple[list[Array], Array]:
    """The coordinates by stored dimension, and the values, at positions of the last level, in stored order, checked.

    Raises FormatError for a kind that is not read in parts, ArrayError for what does not hold.
    """
    levels: list[tuple[Sequence[Array], Array]] = []
    children = positions
    for place, arrays, n in reversed(list(tree.walk())):
        try:
            found = place.level.above(arrays, place.dims, n, children) if len(children) else (range(0), 0, [])
        except ArrayError as error:
            raise ArrayError([at_name(problem, place.names, ()) for problem in error.problems]) from None
        if found is None:
            raise FormatError(Problem("format", f"a {place.level.kind} level is not read in parts"))
        fibers, counts, coords = found
        ends = np.arange(1, len(fibers) + 1) * counts if isinstance(counts, int) else np.cumsum(counts)
        levels.insert(0, (coords or [np.empty(0, np.int64)] * place.level.rank, ends))
        children = fibers
    columns = packing.columns_of(levels, len(positions), dtype)
    return columns, np.asarray(tree.values[positions.start : positions.stop])


def read_blocks(tree: Tree, size: int, dtype: Any = np.int64) -> Iterator[tuple[list[Array], Array]]:
    """All entries of a tree, so many positions at a time, in one block at least; see `read_block`."""
    for start in range(0, max(len(tree.values), 1), size):
        yield read_block(tree, range(start, min(start + size, len(tree.values))), dtype)


def slab_ranges(tree: Tree, dimension: int, max_bytes: int) -> Iterator[range]:
    """The coordinates of a stored dimension in ranges, of which the arrays of each take at most so many bytes.

    Along the outermost one a few entries tell where to cut; along another all are read once, a block at a time. Raises
    LimitError where one coordinate alone takes more.
    """
    size, count = tree.dims[dimension], len(tree.values)
    number = max(dtype.itemsize for dtype in [index_dtype(tree.dims, count), *(x.dtype for x in tree.arrays.values())])

    def most_bytes(entries: int, width: int) -> int:
        """What so many entries that have so many coordinates may take."""
        dims = [*tree.dims[:dimension], width, *tree.dims[dimension + 1 :]]
        fibers, numbers = 1, 0
        for place in places(tree.levels, dims):
            numbers += fibers + 1 if "ptr" in place.names else 0
            fibers *= cells(place.dims)
            if place.names:
                fibers = min(fibers, entries)
                numbers += place.level.rank * fibers
        return numbers * number + (1 if tree.iso else max(entries, 1)) * tree.values.dtype.itemsize

    at_most = bisect_right(range(1, count + 1), max_bytes, key=lambda entries: most_bytes(entries, 1))
    widest = bisect_right(range(1, size + 1), max_bytes, key=lambda width: most_bytes(min(count, 1), width))
    before = _CountsBefore(tree, dimension, max(at_most, 1))
    start = 0
    while start < size:
        stop = size if count - before(start) <= at_most else before.last_below(before(start) + at_most)
        stop = max(min(stop, start + widest), start + 1)
        while most_bytes(before(stop) - before(start), stop - start) > max_bytes:
            if stop == start + 1:
                what = f"coordinate {start} of stored dimension {dimension} takes more than {max_bytes} bytes"
                raise LimitError(Problem("max_bytes", what))
            stop = start + (stop - start) // 2
        yield range(start, stop)
        start = stop


class _CountsBefore:
    """How many entries have a coordinate below x in a stored dimension."""

    def __init__(self, tree: Tree, dimension: int, size: int) -> None:
        self._tree = tree
        self._known: dict[int, int] = {0: 0, tree.dims[dimension]: len(tree.values)}
        self._counted: tuple[Array, Array] | None = None  # the coordinates that are there, and how many lie below each
        if dimension:
            there, counts = np.empty(0, np.int64), np.empty(0, np.int64)
            for columns, _ in read_blocks(tree, size):
                more, their = np.unique(columns[dimension], return_counts=True)
                there, places = np.unique(np.concatenate((there, more)), return_inverse=True)
                both, counts = np.concatenate((counts, their)), np.zeros(len(there), np.int64)
                np.add.at(counts, places, both)
            self._counted = there, np.concatenate(([0], np.cumsum(counts)))

    def __call__(self, x: int) -> int:
        if self._counted is not None:
            there, below = self._counted
            return int(below[np.searchsorted(there, x)])
        if x not in self._known:
            self._known[x] = bisect_left(range(len(self._tree.values)), x, key=self._outermost)
        return self._known[x]

    def last_below(self, count: int) -> int:
        """The last x below which there are at most so many entries. Precondition: there are more in all."""
        if self._counted is not None:
            there, below = self._counted
            return int(there[np.searchsorted(below, count, side="right") - 1])
        return self._outermost(count)

    def _outermost(self, position: int) -> int:
        return int(read_block(self._tree, range(position, position + 1))[0][0][0])


def read_slab(tree: Tree, dimension: int, wanted: range, size: int) -> tuple[list[Array], Array]:
    """The entries with these coordinates in a stored dimension, counted from the first of them; of the others never
    more than `size` are in memory.
    """
    kept: list[list[Array]] = []
    for columns, values in read_blocks(tree, size):
        x = columns[dimension]
        (there,) = np.nonzero((x >= wanted.start) & (x < wanted.stop))
        columns[dimension] = x - wanted.start
        kept.append([c[there] for c in (*columns, values)])
    *columns, values = (np.concatenate(x) for x in zip(*kept, strict=True))
    return columns, values


@dataclass(frozen=True)
class Part:
    """A tree of consecutive entries, at least one, of a larger one. origin: where its coordinates begin, in the larger
    one: it is smaller than that only in dimensions of which those before are of size 1. first, last: the coordinates of
    its first and its last entry, in the larger one.
    """

    tree: Tree
    origin: Coords
    first: Coords
    last: Coords


def joined(
    levels: Sequence[Level], dims: Sequence[int], parts: Sequence[Part], pad: Any, dtype: Any, values: Any
) -> dict[str, Pieces]:
    """The arrays of the whole tree by stored name, and its values, exact in length and given in pieces.

    dtype, values: the type of indices and pointers, and of the values; pad: the value of what no entry reaches.
    Precondition: the parts are in order, and have no entry in common. Raises FormatError for kinds that are not joined.
    """
    found: dict[str, Pieces] = {}
    at = [_At(part, 0, 0, 0) for part in parts]
    n = 1
    for place in places(levels, dims):
        codes = place.level.fused()
        if codes is None:
            raise FormatError(Problem("format", f"a {place.level.kind} level is not written in parts"))
        if codes[0] == 0:
            at = [a.through_dense(place) for a in at]
            n *= cells(place.dims)
            continue
        below = list(_through_sparse(place, parts))
        total = below[-1].base + below[-1].last + 1 if below else 0
        for role, name in place.names.items():
            if role == "ptr":
                found[name] = Pieces(n + 1, dtype, partial(_pointers, name, at, below, n, total, dtype))
            else:
                k = place.depth + int(role.removeprefix("idx"))
                found[name] = Pieces(total, dtype, partial(_indices, name, k, below, dtype))
        at, n = below, total
    found["values"] = Pieces(n, values, partial(_values, at, n, pad, values))
    return found


@dataclass(frozen=True)
class _At:
    """Where the positions of a part are among those of the whole: `base` is that of its position 0. first, last: its
    positions of its first and its last entry. shared: how many first positions are of the part before as well.
    """

    part: Part
    base: int
    first: int
    last: int
    shared: int = 0

    def through_dense(self, place: Place) -> _At:
        part, here = self.part, slice(place.depth, place.depth + place.level.rank)
        sizes, origin = part.tree.dims[here], part.origin[here]
        first, last = (
            position * cells(sizes) + _ravel([x - o for x, o in zip(coords[here], origin, strict=True)], sizes)
            for position, coords in ((self.first, part.first), (self.last, part.last))
        )
        return _At(part, self.base * cells(place.dims) + _ravel(origin, place.dims), first, last)


def _ravel(coords: Sequence[int], sizes: Sequence[int]) -> int:
    total = 0
    for x, size in zip(coords, sizes, strict=True):
        total = total * size + x
    return total


def _through_sparse(place: Place, parts: Sequence[Part]) -> Iterator[_At]:
    """The children of a sparse level: that of the last entry of a part and that of the first of the next may be one."""
    depth, total = place.depth + place.level.rank, 0
    before: Coords | None = None
    for part in parts:
        shared = int(part.first[:depth] == before)
        children = len(part.tree.arrays[f"indices_{place.depth}"])
        yield _At(part, total - shared, 0, children - 1, shared)
        total += children - shared
        before = part.last[:depth]


Planned: TypeAlias = Iterator[tuple[int, Callable[[], Array]]]  # how long a piece is, and what makes it


def _indices(name: str, dimension: int, below: Sequence[_At], dtype: Any) -> Planned:
    for at in below:
        array, origin = at.part.tree.arrays[name], at.part.origin[dimension]
        yield from _cut(at.shared, len(array), partial(_shifted, array, origin, dtype))


def _pointers(name: str, above: Sequence[_At], below: Sequence[_At], n: int, total: int, dtype: Any) -> Planned:
    """Where the children of each fiber begin, and behind the last where they end. A fiber that parts share begins in
    the first of them; fibers between those of two parts are empty.
    """
    done = 0
    for fibers, children in zip(above, below, strict=True):
        first = fibers.base + fibers.first
        yield from _cut(done, first, partial(_filled, children.base, dtype))
        pointers, begin = fibers.part.tree.arrays[name], fibers.first + max(done - first, 0)
        yield from _cut(begin, fibers.last + 1, partial(_shifted, pointers, children.base, dtype))
        done = fibers.base + fibers.last + 1
    yield from _cut(done, n + 1, partial(_filled, total, dtype))


def _values(leaves: Sequence[_At], n: int, pad: Any, dtype: Any) -> Planned:
    done = 0
    for at in leaves:
        yield from _cut(done, at.base + at.first, partial(_filled, pad, dtype))
        yield from _cut(at.first, at.last + 1, partial(_shifted, at.part.tree.values, 0, dtype))
        done = at.base + at.last + 1
    yield from _cut(done, n, partial(_filled, pad, dtype))


def _cut(begin: int, end: int, make: Callable[[int, int], Array]) -> Planned:
    """Items begin … end in pieces."""
    for start in range(begin, end, _AT_ONCE):
        stop = min(start + _AT_ONCE, end)
        yield stop - start, partial(make, start, stop)


def _shifted(array: Array, by: int, dtype: Any, begin: int, end: int) -> Array:
    piece = array[begin:end].astype(dtype, copy=False)
    return piece + np.asarray(by, dtype) if by else piece


def _filled(item: Any, dtype: Any, begin: int, end: int) -> Array:
    return np.full(end - begin, item, dtype)
