"""Join trees of consecutive entries into one tree, whose arrays are made in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..arrays import Pieces
from ..errors import FormatError, Problem
from ..levels import Level, Place, places
from ..levels.base import DENSE
from ..levels.positions import Array, cells
from .tree import Tree

Coords: TypeAlias = tuple[int, ...]


_AT_ONCE = 2**20  # items of an array that are joined at once


@dataclass(frozen=True)
class Part:
    """A tree of consecutive entries of a larger tree; it has at least one entry.

    origin: the offset of the part in the larger tree. A dimension is cropped only where all dimensions before have size
    1. first, last: the coordinates of the first and the last entry, in the larger tree.
    """

    tree: Tree
    origin: Coords
    first: Coords
    last: Coords


def joined(
    levels: Sequence[Level], dims: Sequence[int], parts: Sequence[Part], pad: Any, dtype: Any, values: Any
) -> dict[str, Pieces]:
    """The arrays of the whole tree by stored name, and its values, in pieces whose lengths are known.

    dtype: the type of indices and pointers. values: the type of the values. pad: the value of positions without an
    entry. Precondition: the parts are in order, and have no entry in common. Raises FormatError for kinds that are
    neither dense nor sparse.
    """
    found: dict[str, Pieces] = {}
    at = [_At(part, 0, 0, 0) for part in parts]
    n = 1
    for place in places(levels, dims):
        codes = place.level.fused()
        if codes is None:
            raise FormatError(Problem("format", f"a {place.level.kind} level is not written in parts"))
        if codes[0] == DENSE:
            at = [a.through_dense(place) for a in at]
            n *= cells(place.dims)
            continue
        below = list(_through_sparse(place, parts))
        total = below[-1].base + below[-1].last + 1 if below else 0
        for name, _, dimension in place.arrays.values():
            if dimension is None:
                found[name] = Pieces(n + 1, dtype, partial(_pointers, name, at, below, n, total, dtype))
            else:
                k = place.depth + dimension
                found[name] = Pieces(total, dtype, partial(_indices, name, k, below, dtype))
        at, n = below, total
    found["values"] = Pieces(n, values, partial(_values, at, n, pad, values))
    return found


@dataclass(frozen=True)
class _At:
    """The positions of a part among the positions of the whole tree, at one level.

    base: the position in the whole tree of the part's position 0. first, last: the part's positions of its first and
    last entry. shared: how many first positions belong to the part before as well.
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
    first = next(spec for spec in place.arrays.values() if spec.dimension == 0)
    before: Coords | None = None
    for part in parts:
        shared = int(part.first[:depth] == before)
        children = part.tree.arrays[first.name].shape[0]
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
