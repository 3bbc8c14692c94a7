"""The entries of a tree, a block at a time.

A block is a range of positions of the last level. The coordinates of its entries are found level by level, from the
last to the first. A block can therefore be a part of a single fiber.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArrayError, LimitError, Problem, raise_if
from ..levels import places
from ..levels.base import Owners
from ..levels.positions import Array, as_array, cells, times
from ..limits import INT64_MAX
from . import packing
from .tree import Tree, at_name, index_dtype


class Block(NamedTuple):
    """Some entries of a tree: those at a range of positions of the last level. If entries share positions, `entries`
    selects some of them, numbered by position, then in stored order.
    """

    positions: range
    entries: range | None = None

    @property
    def size(self) -> int:
        """The number of entries, or of positions, some of which may be empty."""
        return len(self.positions if self.entries is None else self.entries)


def blocks_of(tree: Tree, size: int, within: range | None = None) -> Iterator[Block]:
    """The entries of a tree in blocks of at most `size`. The arrays of levels that share positions are read.

    within: the positions of the entries; by default all of them.
    """
    within = range(len(tree.values)) if within is None else within
    for start in range(within.start, within.stop, size):
        positions = range(start, min(start + size, within.stop))
        if not tree.shares:
            yield Block(positions)
            continue
        count = int(_entry_counts(_owners(tree, positions)).sum())
        yield from (Block(positions, range(k, min(k + size, count))) for k in range(0, count, size))


def read_block(tree: Tree, block: Block, dtype: Any = np.int64) -> tuple[list[Array], Array]:
    """The coordinates by stored dimension, and the values, of the entries in a block; checked.

    Raises ArrayError for damaged arrays, LimitError for more entries than fit an integer.
    """
    levels, positions = _owners(tree, block.positions), block.positions
    values = np.asarray(tree.values[positions.start : positions.stop])
    if any(level.numbers is not None or np.any(np.not_equal(level.spans, 1)) for level in levels):
        _check_reached(tree, levels)
        columns, at = _entries_at(levels, block.entries)
        return [x.astype(dtype, copy=False) for x in columns], values[at]
    parts = []
    for level in levels:
        pointers = np.append(0, np.cumsum(np.broadcast_to(level.counts, len(level.fibers))))
        parts.append((level.coords, pointers))
    return packing.coords_of_entries(parts, len(positions), dtype), values


def read_blocks(tree: Tree, size: int, within: range | None = None) -> Iterator[tuple[list[Array], Array]]:
    """The entries of a tree, at most `size` at a time, in at least one block; see `blocks_of` and `read_block`."""
    within = range(len(tree.values)) if within is None else within
    for block in blocks_of(tree, size, within) if within else [Block(range(0))]:
        yield read_block(tree, block)


def outermost(tree: Tree) -> Callable[[int], int]:
    """A function that reads the outermost coordinate of the entry at a position, for a binary search.

    Raises ArrayError if these coordinates do not ascend: the first level is read once, and checked.
    """
    raise_if(ArrayError, tree.outermost_problems)
    return lambda position: int(read_block(tree, Block(range(position, position + 1)))[0][0][0])


def _owners(tree: Tree, positions: range) -> list[Owners]:
    """For each level, from the root down, the fibers of these positions of the last level."""
    owners: list[Owners] = []
    children = positions
    for place, arrays, n in reversed(list(tree.walk())):
        try:
            empty = Owners(range(0), 0, [np.empty(0, np.int64)] * place.level.rank)
            owners.insert(0, place.level.above(arrays, place.dims, n, children) if len(children) else empty)
        except ArrayError as error:
            raise ArrayError([at_name(problem, place) for problem in error.problems]) from None
        children = owners[0].fibers
    return owners


def _check_reached(tree: Tree, levels: Sequence[Owners]) -> None:
    """Raise ArrayError if a fiber has entries, but no entry of the levels above reaches it."""
    reached = np.ones(len(levels[0].fibers), bool)
    for place, level in zip(tree.places, levels, strict=True):
        owners = level.parents
        stored = np.broadcast_to(level.spans, len(owners)).astype(bool)
        if not place.level.padded and (lost := stored & ~reached[owners]).any():
            fiber = level.fibers[int(owners[lost.argmax()])]
            what = f"fiber {fiber} has entries, but belongs to none in the level above"
            raise ArrayError(at_name(Problem(next(iter(place.arrays)), what), place))
        reached = stored & reached[owners]


def _entry_counts(levels: Sequence[Owners]) -> Array:
    """The number of entries at each position."""
    counts = np.ones(len(levels[0].fibers), np.int64)
    for level in levels:
        counts = times(counts[level.parents], level.spans)
        if counts.dtype == object and counts.sum() > INT64_MAX:
            what = "runs with more entries than a 64-bit integer can count; store the tensor in another format"
            raise LimitError(Problem("format", what))
        counts = counts.astype(np.int64, copy=False)
    return counts


def _entries_at(levels: Sequence[Owners], entries: range | None) -> tuple[list[Array], Array]:
    """The coordinates of entries, and the indices of their values, for positions with any number of entries."""
    counts = _entry_counts(levels)
    ends = np.cumsum(counts)
    numbers = as_array(range(int(ends[-1])) if entries is None else entries)
    at = np.searchsorted(ends, numbers, side="right")
    rest, child = numbers - (ends - counts)[at], at
    columns: list[Array] = []
    for level in reversed(levels):
        here = [x[child] for x in level.coords]
        if here:
            rest, step = np.divmod(rest, np.broadcast_to(level.spans, len(level.parents))[child])
            here[-1] = here[-1] + step
        columns[:0] = here
        child = level.parents[child]
    return columns, at


def slab_ranges(tree: Tree, dimension: int, max_bytes: int) -> Iterator[range]:
    """Yield ranges of a stored dimension. A slab is the tree of a range's entries, and takes at most `max_bytes`.

    Along the outermost dimension, a binary search reads only a few entries. Along any other, all entries are read once,
    a block at a time. Raises LimitError if a single coordinate takes more.
    """
    size, count = tree.dims[dimension], len(tree.values)
    number = max(dtype.itemsize for dtype in [index_dtype(tree.dims, count), *(x.dtype for x in tree.arrays.values())])

    def most_bytes(entries: int, width: int) -> int:
        """The maximum size in bytes of a slab, from its width and its number of entries."""
        dims = [*tree.dims[:dimension], width, *tree.dims[dimension + 1 :]]
        fibers, numbers = 1, 0
        for place in places(tree.levels, dims):
            numbers += fibers + 1 if place.pointer else 0
            fibers *= cells(place.dims)
            if place.arrays:
                fibers = min(fibers, entries)
                numbers += place.level.rank * fibers
        return numbers * number + (1 if tree.iso else max(entries, 1)) * tree.values.dtype.itemsize

    at_most = bisect_right(range(1, count + 1), max_bytes, key=lambda entries: most_bytes(entries, 1))
    widest = bisect_right(range(1, size + 1), max_bytes, key=lambda width: most_bytes(min(count, 1), width))
    before = _EntriesBelow(tree, dimension, max(at_most, 1))
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


class _EntriesBelow:
    """A function of x that returns the number of entries with a coordinate below x in a stored dimension."""

    def __init__(self, tree: Tree, dimension: int, size: int) -> None:
        self._tree = tree
        self._known: dict[int, int] = {0: 0, tree.dims[dimension]: len(tree.values)}
        self._counted: tuple[Array, Array] | None = None  # the distinct coordinates, and the number of entries below
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
            self._known[x] = bisect_left(range(len(self._tree.values)), x, key=self._coordinate)
        return self._known[x]

    def last_below(self, count: int) -> int:
        """The largest x with at most `count` entries below it. Precondition: the tree has more entries."""
        if self._counted is not None:
            there, below = self._counted
            return int(there[np.searchsorted(below, count, side="right") - 1])
        return self._coordinate(count)

    @functools.cached_property
    def _coordinate(self) -> Callable[[int], int]:
        return outermost(self._tree)


def read_slab(tree: Tree, dimension: int, selected: range, size: int) -> tuple[list[Array], Array]:
    """The entries in a range of a stored dimension, with coordinates relative to its start.

    At most `size` other entries are in memory at a time.
    """
    kept: list[list[Array]] = []
    for columns, values in read_blocks(tree, size):
        x = columns[dimension]
        (there,) = np.nonzero((x >= selected.start) & (x < selected.stop))
        columns[dimension] = x - selected.start
        kept.append([c[there] for c in (*columns, values)])
    *columns, values = (np.concatenate(x) for x in zip(*kept, strict=True))
    return columns, values
