"""Join trees of consecutive entries into one tree, whose arrays are lazy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..arrays import LazyArray, lazy
from ..errors import FormatError, LimitError, Problem
from ..levels import Level, places
from ..levels.base import DENSE
from ..levels.positions import Array, cells
from ..limits import INT64_MAX

AT_ONCE = 2**20  # items of an array that are joined at once

Reading: TypeAlias = Callable[[int, str, int, int], Array]


class Parts(NamedTuple):
    """Trees of consecutive entries of a larger tree, in order. Each has at least one entry, and a row in every table.

    sizes: the sizes of the tree's stored dimensions. origin: its offset in the larger tree. A dimension is cropped only
    where all dimensions before have size 1. first, last: the coordinates of the first and the last entry, in the larger
    tree. lengths: of the arrays by stored name, among them `values`. read: items a … b - 1 of the array of that name of
    part k, by (k, name, a, b).
    """

    sizes: Array
    origin: Array
    first: Array
    last: Array
    lengths: Mapping[str, Array]
    read: Reading


def check_kinds(levels: Sequence[Level]) -> None:
    """Raise FormatError for kinds that are neither dense nor sparse: their trees are not joined."""
    for level in levels:
        if level.fused() is None:
            raise FormatError(Problem("format", f"a {level.kind} level is not written in parts; convert it"))


def joined(
    levels: Sequence[Level], dims: Sequence[int], parts: Parts, pad: Any, dtype: Any, values: Any
) -> dict[str, LazyArray]:
    """The arrays of the whole tree by stored name, and its `values`.

    dtype: the type of indices and pointers. values: the type of the values. pad: the value of positions without an
    entry. Precondition: the parts are in order, and have no entry in common. Raises FormatError for kinds that are
    neither dense nor sparse, LimitError for positions beyond 2**63.
    """
    check_kinds(levels)
    arrays: dict[str, LazyArray] = {}
    at, n = _Positions(*np.zeros((3, len(parts.first)), np.int64)), 1
    for place in places(levels, dims):
        here = slice(place.depth, place.depth + place.level.rank)
        if (place.level.fused() or (DENSE,))[0] == DENSE:
            n *= cells(place.dims)
            if n > INT64_MAX:
                raise LimitError(Problem("format", f"numpy cannot count {n} positions; take a sparse level"))
            at = at.through_dense(parts, here, place.dims)
            continue
        counts = next(parts.lengths[spec.name] for spec in place.arrays.values() if spec.dimension == 0)
        shared = np.zeros(len(counts), np.int64)  # the last child of a part and the first of the next may be one
        shared[1:] = (parts.first[1:, : here.stop] == parts.last[:-1, : here.stop]).all(axis=1)
        ends = np.cumsum(counts - shared)
        total = int(ends[-1]) if len(ends) else 0
        below = _Positions(ends - counts, np.zeros_like(counts), counts - 1)
        for name, _, dimension in place.arrays.values():
            if dimension is None:
                starts = np.append(below.base, total)
                arrays[name] = _with_gaps(parts.read, name, at, n + 1, starts, starts, dtype)
            else:
                origin = parts.origin[:, place.depth + dimension]
                arrays[name] = _concatenated(parts.read, name, shared, counts - shared, origin, dtype)
        at, n = below, total
    nothing = np.zeros(len(at.base) + 1, np.int64)
    arrays["values"] = _with_gaps(parts.read, "values", at, n, np.full(1, pad, values), nothing, values)
    return arrays


class _Positions(NamedTuple):
    """The positions of parts at one level.

    base: the position in the whole tree of each part's position 0. first, last: the part's positions of its first and
    its last entry.
    """

    base: Array
    first: Array
    last: Array

    def through_dense(self, parts: Parts, here: slice, dims: Sequence[int]) -> _Positions:
        sizes, origin = parts.sizes[:, here].T, parts.origin[:, here].T
        inside = np.prod(sizes, axis=0, dtype=np.int64)
        return _Positions(
            _ravel(self.base, origin, dims),
            self.first * inside + _ravel(0, parts.first[:, here].T - origin, sizes),
            self.last * inside + _ravel(0, parts.last[:, here].T - origin, sizes),
        )


def _ravel(total: Any, coords: Iterable[Array], sizes: Iterable[Any]) -> Array:
    for x, size in zip(coords, sizes, strict=True):
        total = total * size + x
    return np.asarray(total)


def _concatenated(read: Reading, name: str, begin: Array, lengths: Array, add: Array, dtype: Any) -> LazyArray:
    """Items of each part from `begin` on, behind each other, with a number added."""

    def segment(k: int, start: int, stop: int) -> Array:
        piece = read(k, name, int(begin[k]) + start, int(begin[k]) + stop).astype(dtype, copy=False)
        return piece + np.asarray(add[k], dtype) if add[k] else piece

    return _of_segments(lengths, segment, dtype)


def _with_gaps(read: Reading, name: str, at: _Positions, length: int, fill: Array, add: Array, dtype: Any) -> LazyArray:
    """The items of each part at its place in an array of `length`. The gap before part k is filled with fill[k], or
    with the only item of `fill`; the last gap follows the last part. A position of two parts is read from the first.

    In an array of pointers, a fiber that parts share begins in the first, and fibers in a gap are empty.
    """
    start, stop = at.base + at.first, at.base + at.last + 1
    done = np.concatenate(([0], stop[:-1]))[: len(stop)]
    begin = at.first + np.maximum(done - start, 0)
    lengths = np.empty(2 * len(stop) + 1, np.int64)
    lengths[:-1:2], lengths[1::2] = np.maximum(start - done, 0), at.last + 1 - begin
    lengths[-1] = length - (int(stop[-1]) if len(stop) else 0)

    def segment(number: int, a: int, b: int) -> Array:
        k, of_part = divmod(number, 2)
        if not of_part:
            return np.full(b - a, fill[min(k, len(fill) - 1)], dtype)
        piece = read(k, name, int(begin[k]) + a, int(begin[k]) + b).astype(dtype, copy=False)
        return piece + np.asarray(add[k], dtype) if add[k] else piece

    return _of_segments(lengths, segment, dtype)


def _of_segments(lengths: Array, segment: Callable[[int, int, int], Array], dtype: Any) -> LazyArray:
    """An array of segments behind each other. segment: items a … b - 1 of segment k, by (k, a, b)."""
    ends = np.cumsum(lengths)

    def read(start: int, stop: int) -> Array:
        pieces, k = [], int(np.searchsorted(ends, start, side="right"))
        while start < stop:
            begin = int(ends[k] - lengths[k])
            end = min(stop, int(ends[k]))
            if end > start:
                pieces.append(segment(k, start - begin, end - begin))
            start, k = max(start, end), k + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, dtype), *pieces])

    return lazy(int(ends[-1]) if len(ends) else 0, np.dtype(dtype), read)
