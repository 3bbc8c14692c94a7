"""Join trees of consecutive entries into one tree: lazily, array by array, or by packing all entries again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..arrays import LazyArray, lazy
from ..errors import LimitError, Problem
from ..levels import Level, listing, places
from ..levels.positions import Array, cells, items_at
from ..limits import INT64_MAX, Limits
from .blocks import Block, read_block
from .packing import Entries, build, unpack_tree
from .tree import Tree

Reading: TypeAlias = Callable[[int, str, int, int], Array]


class Parts(NamedTuple):
    """Trees of consecutive entries of a larger tree, in order, none without entries. Arrays have a row for each tree.

    levels: of each tree. sizes: of its stored dimensions. origin: its offset in the larger tree. A dimension is cropped
    only if all dimensions before it have size 1. first, last: the coordinates of the first and the last entry, in the
    larger tree. lengths: of the arrays by stored name, including `values`. read(k, name, a, b): returns items a … b - 1
    of an array of part k.
    """

    levels: tuple[Level, ...]
    sizes: Array
    origin: Array
    first: Array
    last: Array
    lengths: Mapping[str, Array]
    read: Reading


def by_arrays(levels: Sequence[Level]) -> bool:
    """Return True if trees of these levels are joined array by array.

    The arrays of such trees are indices, pointers, and one value for each position, all in the order of the entries.
    """
    return all(level.fused() is not None for level in levels)


def levels_of_parts(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    """The levels of parts to be joined: these levels, or a list of coordinates if joining needs the entries."""
    return levels if by_arrays(levels) else listing(sum(level.rank for level in levels))


def joined(
    levels: tuple[Level, ...], dims: Sequence[int], parts: Parts, pad: Any, dtype: Any, values: Any, limits: Limits
) -> dict[str, LazyArray]:
    """The arrays of the whole tree by stored name, and its `values`.

    dtype: the type of indices and pointers. values: the type of the values. pad: the value of positions without an
    entry. Precondition: the parts are in order, and have no entry in common. Raises FormatError for entries that a kind
    cannot store, LimitError for positions beyond 2**63.
    """
    if parts.levels == levels and by_arrays(levels):
        return _joined_arrays(levels, dims, parts, pad, dtype, values)
    tree = _joined_entries(levels, dims, parts, pad, dtype, values, limits)
    made = {**tree.arrays, "values": tree.values}
    return {name: lazy(len(x), x.dtype, lambda a, b, x=x: x[a:b]) for name, x in made.items()}  # type: ignore[misc]


def joined_trees(
    levels: tuple[Level, ...],
    dims: Sequence[int],
    trees: Sequence[Tree],
    starts: Sequence[int],
    pad: Any,
    dtype: Any,
    values: Any,
    limits: Limits,
) -> dict[str, LazyArray]:
    """`joined` for valid trees, concatenated along the outermost dimension. starts: the offset of each along it."""
    filled = [(tree, start) for tree, start in zip(trees, starts, strict=True) if len(tree.values)]
    stored = [{**tree.arrays, "values": tree.values} for tree, _ in filled]
    tables = np.zeros((4, len(filled), len(dims)), np.int64)
    for (tree, start), *rows in zip(filled, *tables, strict=True):
        ends = (0, len(tree.values) - 1) if by_arrays(levels) else ()
        rows[0][:], rows[1][0] = tree.dims, start
        for row, k in zip(rows[2:], ends, strict=False):
            row[:] = [x[0] for x in read_block(tree, Block(range(k, k + 1)))[0]] + rows[1]
    names = [spec.name for place in places(levels, dims) for spec in place.arrays.values()] + ["values"]
    lengths = {name: np.array([len(arrays[name]) for arrays in stored], np.int64) for name in names}
    sizes, origin, first, last = tables
    parts = Parts(levels, sizes, origin, first, last, lengths, lambda k, name, a, b: stored[k][name][a:b])
    return joined(levels, dims, parts, pad, dtype, values, limits)


def _joined_entries(
    levels: tuple[Level, ...], dims: Sequence[int], parts: Parts, pad: Any, dtype: Any, values: Any, limits: Limits
) -> Tree:
    """The whole tree, in memory, built from the entries."""
    pieces: list[list[Array]] = [[np.empty(0, t) for t in (*[dtype] * len(dims), values)]]
    for k, (sizes, origin) in enumerate(zip(parts.sizes.tolist(), parts.origin, strict=True)):
        arrays = {name: parts.read(k, name, 0, int(lengths[k])) for name, lengths in parts.lengths.items()}
        part = Tree(parts.levels, tuple(sizes), arrays, arrays.pop("values"))
        columns, positions = unpack_tree(part, dtype)
        at = [x + np.asarray(o, dtype) if o else x for x, o in zip(columns, origin, strict=True)]
        pieces.append([*at, items_at(part.values, positions)])
    *coords, items = (np.concatenate(x) for x in zip(*pieces, strict=True))
    pieces.clear()
    if not all(level.ordered for level in parts.levels):
        order = np.lexsort(coords[::-1])
        coords, items = [x[order] for x in coords], items[order]
    entries = Entries(tuple(dims), tuple(coords), items, False, tuple(range(len(dims))), len(dims), True)
    return build(levels, entries, pad, limits, dtype)


def _joined_arrays(
    levels: Sequence[Level], dims: Sequence[int], parts: Parts, pad: Any, dtype: Any, values: Any
) -> dict[str, LazyArray]:
    arrays: dict[str, LazyArray] = {}
    at, n = _Positions(*np.zeros((3, len(parts.first)), np.int64)), 1
    for place in places(levels, dims):
        here = slice(place.depth, place.depth + place.level.rank)
        if not place.arrays:
            n *= cells(place.dims)
            if n > INT64_MAX:
                raise LimitError(Problem("format", f"numpy cannot count {n} positions; use a sparse level"))
            at = at.through_dense(parts, here, place.dims)
            continue
        counts = next(parts.lengths[spec.name] for spec in place.arrays.values() if spec.dimension == 0)
        shared = np.zeros(len(counts), np.int64)  # the last child of a part may be the first of the next
        shared[1:] = (parts.first[1:, : here.stop] == parts.last[:-1, : here.stop]).all(axis=1)
        ends = np.cumsum(counts - shared)
        total = int(ends[-1]) if len(ends) else 0
        below = _Positions(ends - counts, np.zeros_like(counts), counts - 1)
        for name, _, dimension, _ in place.arrays.values():
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

    base: the position of each part's position 0 in the whole tree. first, last: the positions in each part of its first
    and its last entry.
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
    """The items of each part from `begin` on, plus a number for each part, concatenated."""

    def segment(k: int, start: int, stop: int) -> Array:
        piece = read(k, name, int(begin[k]) + start, int(begin[k]) + stop).astype(dtype, copy=False)
        return piece + np.asarray(add[k], dtype) if add[k] else piece

    return of_segments(lengths, segment, dtype)


def _with_gaps(read: Reading, name: str, at: _Positions, length: int, fill: Array, add: Array, dtype: Any) -> LazyArray:
    """The items of each part k, plus add[k], at its position in an array of `length`. The gap before part k is filled
    with fill[k], or the only item of `fill`. The last gap is after the last part. Two parts may share a position: the
    item of the first is read. For pointers, a shared fiber begins in the first part, and fibers in a gap are empty.
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

    return of_segments(lengths, segment, dtype)


def of_segments(lengths: Array, segment: Callable[[int, int, int], Array], dtype: Any) -> LazyArray:
    """A concatenation of segments. segment(k, a, b): returns items a … b - 1 of segment k."""
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
