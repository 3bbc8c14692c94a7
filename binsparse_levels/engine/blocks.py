"""A tree piece by piece: its entries a block at a time, and trees of consecutive entries joined into one.

A block is a run of positions of the last level. From there the levels are walked upwards, so that it does not matter
how the entries are spread over the fibers: also one fiber of all entries is read in parts.
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
    """Some entries of a tree: those at positions of the last level. Where positions are shared, some of those entries:
    they are numbered by position, then in stored order.
    """

    positions: range
    entries: range | None = None

    @property
    def size(self) -> int:
        """The number of entries, or of positions, some of which may have none."""
        return len(self.positions if self.entries is None else self.entries)


def blocks_of(tree: Tree, size: int, most: int | None = None) -> Iterator[Block]:
    """All entries of a tree in blocks of at most `size`. Of levels that share positions, the arrays are read.

    most: of a tree with more entries than that, only blocks of about so many together, at equal distances.
    """
    each = max(-(-_count(tree, size) // most), 1) if most is not None else 1
    starts = range(0, len(tree.values), size)
    for start in starts if tree.shares else starts[::each]:
        positions = range(start, min(start + size, len(tree.values)))
        if not tree.shares:
            yield Block(positions)
            continue
        count = int(_multiplicity(_owners(tree, positions)).sum())
        yield from (Block(positions, range(k, min(k + size, count))) for k in range(0, count, size)[::each])


def _count(tree: Tree, size: int) -> int:
    """The number of entries, or of positions where these are not shared."""
    if not tree.shares:
        return len(tree.values)
    starts = range(0, len(tree.values), size)
    blocks = (range(start, min(start + size, len(tree.values))) for start in starts)
    return sum(int(_multiplicity(_owners(tree, block)).sum()) for block in blocks)


def read_block(tree: Tree, block: Block, dtype: Any = np.int64) -> tuple[list[Array], Array]:
    """The coordinates by stored dimension, and the values, of the entries in a block; checked.

    Raises ArrayError for damaged arrays, LimitError for more entries than an integer counts.
    """
    levels, positions = _owners(tree, block.positions), block.positions
    values = np.asarray(tree.values[positions.start : positions.stop])
    if any(level.numbers is not None or np.any(np.not_equal(level.spans, 1)) for level in levels):
        _check_reached(tree, levels)
        columns, at = _listed(levels, block.entries)
        return [x.astype(dtype, copy=False) for x in columns], values[at]
    parts = []
    for level in levels:
        pointers = np.append(0, np.cumsum(np.broadcast_to(level.counts, len(level.fibers))))
        parts.append((level.coords, pointers))
    return packing.coords_of_entries(parts, len(positions), dtype), values


def read_blocks(tree: Tree, size: int) -> Iterator[tuple[list[Array], Array]]:
    """All entries of a tree, at most `size` at a time, in at least one block; see `read_block`."""
    for block in blocks_of(tree, size) if len(tree.values) else [Block(range(0))]:
        yield read_block(tree, block)


def outermost(tree: Tree) -> Callable[[int], int]:
    """A function that reads the outermost coordinate of the entry at a position. These ascend, as a search needs it.

    Raises ArrayError where they do not: the first level is read once, and checked.
    """
    raise_if(ArrayError, tree.outermost_problems)
    return lambda position: int(read_block(tree, Block(range(position, position + 1)))[0][0][0])


def _owners(tree: Tree, positions: range) -> list[Owners]:
    """For each level, from the root down, the fibers of these positions of the last level."""
    owners: list[Owners] = []
    children = positions
    for place, arrays, n in reversed(list(tree.walk())):
        try:
            none = Owners(range(0), 0, [np.empty(0, np.int64)] * place.level.rank)
            owners.insert(0, place.level.above(arrays, place.dims, n, children) if len(children) else none)
        except ArrayError as error:
            raise ArrayError([at_name(problem, place) for problem in error.problems]) from None
        children = owners[0].fibers
    return owners


def _check_reached(tree: Tree, levels: Sequence[Owners]) -> None:
    """Raise ArrayError where a fiber has entries, and no entry of the levels above reaches it."""
    reached = np.ones(len(levels[0].fibers), bool)
    for place, level in zip(tree.places, levels, strict=True):
        owners = level.parents
        stored = np.broadcast_to(level.spans, len(owners)).astype(bool)
        if not place.level.padded and (lost := stored & ~reached[owners]).any():
            fiber = level.fibers[int(owners[lost.argmax()])]
            what = f"fiber {fiber} has entries, but belongs to none in the level above"
            raise ArrayError(at_name(Problem(next(iter(place.arrays)), what), place))
        reached = stored & reached[owners]


def _multiplicity(levels: Sequence[Owners]) -> Array:
    """How many entries each position has."""
    many = np.ones(len(levels[0].fibers), np.int64)
    for level in levels:
        many = times(many[level.parents], level.spans)
        if many.dtype == object and many.sum() > INT64_MAX:
            what = "runs that hold more entries than an integer of 64 bits counts; store the tensor in another format"
            raise LimitError(Problem("format", what))
        many = many.astype(np.int64, copy=False)
    return many


def _listed(levels: Sequence[Owners], entries: range | None) -> tuple[list[Array], Array]:
    """The coordinates of entries, and the places of their values, where positions have none, one or several."""
    many = _multiplicity(levels)
    ends = np.cumsum(many)
    numbers = as_array(range(int(ends[-1])) if entries is None else entries)
    at = np.searchsorted(ends, numbers, side="right")
    rest, child = numbers - (ends - many)[at], at
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
    """Ranges of a stored dimension such that the arrays of each slab take at most `max_bytes`.

    Along the outermost dimension a few entries tell where to cut. Along any other all entries are read once, a block at
    a time. Raises LimitError where one coordinate alone takes more.
    """
    size, count = tree.dims[dimension], len(tree.values)
    number = max(dtype.itemsize for dtype in [index_dtype(tree.dims, count), *(x.dtype for x in tree.arrays.values())])

    def most_bytes(entries: int, width: int) -> int:
        """The bytes that a slab of this width with this many entries takes at most."""
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
    """A function of x: the number of entries with a coordinate below x in a stored dimension."""

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


def read_slab(tree: Tree, dimension: int, wanted: range, size: int) -> tuple[list[Array], Array]:
    """The entries in a range of a stored dimension, with coordinates that count from its start.

    At most `size` other entries are in memory at a time.
    """
    kept: list[list[Array]] = []
    for columns, values in read_blocks(tree, size):
        x = columns[dimension]
        (there,) = np.nonzero((x >= wanted.start) & (x < wanted.stop))
        columns[dimension] = x - wanted.start
        kept.append([c[there] for c in (*columns, values)])
    *columns, values = (np.concatenate(x) for x in zip(*kept, strict=True))
    return columns, values
