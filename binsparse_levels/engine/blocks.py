"""A tree piece by piece: its entries a block at a time, and trees of consecutive entries joined into one.

A block is a run of positions of the last level. From there the levels are walked upwards, so that it does not matter
how the entries are spread over the fibers: also one fiber of all entries is read in parts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import ArrayError, FormatError, LimitError, Problem
from ..levels import places
from ..levels.positions import Array, cells
from . import packing
from .tree import Tree, at_name, index_dtype


def read_block(tree: Tree, positions: range, dtype: Any = np.int64) -> tuple[list[Array], Array]:
    """The coordinates by stored dimension, and the values, at these positions of the last level; checked.

    Raises FormatError for a kind that cannot be read in parts, ArrayError for damaged arrays.
    """
    levels: list[tuple[Sequence[Array], Array]] = []
    children = positions
    for place, arrays, n in reversed(list(tree.walk())):
        try:
            found = place.level.above(arrays, place.dims, n, children) if len(children) else (range(0), 0, [])
        except ArrayError as error:
            raise ArrayError([at_name(problem, place) for problem in error.problems]) from None
        if found is None:
            raise FormatError(Problem("format", f"a {place.level.kind} level is not read in parts"))
        fibers, counts, coords = found
        pointers = np.append(0, np.cumsum(np.broadcast_to(counts, len(fibers))))
        levels.insert(0, (coords or [np.empty(0, np.int64)] * place.level.rank, pointers))
        children = fibers
    columns = packing.columns_of(levels, len(positions), dtype)
    return columns, np.asarray(tree.values[positions.start : positions.stop])


def read_blocks(tree: Tree, size: int, dtype: Any = np.int64) -> Iterator[tuple[list[Array], Array]]:
    """All entries of a tree, `size` positions at a time, in at least one block; see `read_block`."""
    for start in range(0, max(len(tree.values), 1), size):
        yield read_block(tree, range(start, min(start + size, len(tree.values))), dtype)


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
            self._known[x] = bisect_left(range(len(self._tree.values)), x, key=self._outermost)
        return self._known[x]

    def last_below(self, count: int) -> int:
        """The largest x with at most `count` entries below it. Precondition: the tree has more entries."""
        if self._counted is not None:
            there, below = self._counted
            return int(there[np.searchsorted(below, count, side="right") - 1])
        return self._outermost(count)

    def _outermost(self, position: int) -> int:
        return int(read_block(self._tree, range(position, position + 1))[0][0][0])


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
