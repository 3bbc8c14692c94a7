"""Hypothesis strategies for the entries of a level, few or many, and for selections from it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import needing
from ..levels import Level
from ..levels.base import Built
from ..levels.positions import Array, Positions, cells, firsts

with needing("test"):
    from hypothesis import strategies as st

FEW = 16  # up to this size of a dimension, cells are drawn one by one
MOST = 2**17  # children of a case with many entries, and bytes of a kind that stores something for each cell
_COUNTS = (1, 3, 17, 40, 130, 300, 2_000, 20_000, 70_000)  # of cells
_JUMPS = (0, 1, 1, 2, 9, 70, 20_000)  # after some cells
_BITS = (6, 7, 8, 14, 16, 31, 32)  # of coordinates at which something often ends: a word, a byte, a chunk


@dataclass(frozen=True)
class LevelCase:
    """Entries for a level, sorted by parent, then coordinates. Some repeat, as if there were levels below."""

    level: Level
    dims: tuple[int, ...]
    n: int
    parents: Array
    coords: tuple[Array, ...]
    same: Array

    def __str__(self) -> str:
        first = np.array([self.parents, *self.coords])[:, :6].T.tolist()
        return f"dims={self.dims}, n={self.n}, {len(self.parents)} entries: {first}"

    def build(self) -> Built:
        """The arrays and child positions that the level makes. Raises FormatError for entries that it refuses."""
        more = {"same": self.same} if self.level.shares else {}
        return self.level.build(self.dims, self.parents, self.coords, self.n, **more)


@st.composite
def level_cases(draw: st.DrawFn, level: Level, *, max_size: int = 4) -> LevelCase:
    """Entries for this level. max_size: of its dimensions, and the largest number of its fibers.

    Up to a size of 16, there are at most twelve entries anywhere, and sizes may be 0. Above, there are up to five
    patterns of up to 70,000 entries: runs, cells at equal distances, scattered cells, in one fiber or in many. A kind
    that stores something for each cell gets fewer cells.
    """
    if max_size > FEW:
        return _many(draw, level, max_size)
    dims = tuple(draw(st.lists(st.integers(0, max_size), min_size=level.rank, max_size=level.rank)))
    n = draw(st.integers(0, max_size))
    every = list(itertools.product(range(n), *(range(size) for size in dims)))
    chosen = sorted(draw(st.lists(st.sampled_from(every), max_size=12))) if every else []
    parents, *coords = np.array(chosen, np.int64).reshape(len(chosen), level.rank + 1).T.copy()
    classes = {cell: draw(st.integers(0, 1)) for cell in set(chosen)} if level.shares else {}
    same = np.array([classes.get(cell, 0) for cell in chosen], np.int64)
    return LevelCase(level, dims, n, parents, tuple(coords), same)


def _many(draw: st.DrawFn, level: Level, max_size: int) -> LevelCase:
    longest = draw(st.integers(0, level.rank - 1)) if level.rank else 0  # the others are short in a very large shape
    short = max_size if max_size <= 2**20 else 300
    dims = [draw(_near(max_size if k == longest else short)) + 1 for k in range(level.rank)]
    n = draw(st.sampled_from([x for x in (1, 2, 3, 9, 70, 300, 70_000) if x <= short]))
    while not _fit(level, dims, n) and max(n, *dims) > 1:
        largest = max(dims, default=0)
        n, dims = (n // 2, dims) if n > largest else (n, [x // 2 if x == largest else x for x in dims])
    patterns = [_pattern(draw, (n, *dims), short) for _ in range(draw(st.integers(1, 2 if level.refuses else 5)))]
    table = distinct(in_order(np.concatenate(patterns, axis=1)))
    number = np.arange(table.shape[1])
    same = number // draw(st.sampled_from(_COUNTS)) % 2
    twice = np.repeat(number, 1 + (number % draw(st.sampled_from(_COUNTS)) == 0) * draw(st.integers(0, 1)))
    parents, *coords = table[:, twice]
    return LevelCase(level, tuple(dims), n, parents, tuple(coords), same[twice])


def in_order(table: Array) -> Array:
    """The columns of a table in lexicographic order."""
    return table[:, np.lexsort(table[::-1])]


def distinct(table: Array) -> Array:
    """A table without repetitions. Precondition: equal columns are neighbours."""
    return table[:, firsts(list(table))]


def _near(size: int) -> st.SearchStrategy[int]:
    """Numbers below `size`, often the last, or near a power of two."""
    ends = {min(max(2**b + d, 0), size - 1) for b in _BITS for d in (-1, 0, 1)}
    return st.just(size - 1) | st.sampled_from(sorted(ends)) | st.integers(0, size - 1)


def _pattern(draw: st.DrawFn, sizes: Sequence[int], short: int) -> Array:
    """Cells, a column each, some equal: a run or equal distances along the last dimension, with jumps in all."""
    count = draw(st.sampled_from([x for x in _COUNTS if x <= max(short, 2_000)]))
    width = draw(st.just(count) | st.sampled_from(_COUNTS))  # cells from jump to jump
    step = draw(st.just(1) | st.sampled_from((2, 3)) | st.sampled_from((9, 70, 200)) | st.integers(1, sizes[-1]))
    number, rows = np.arange(count), []
    for k, size in enumerate(sizes):
        jump = draw(st.sampled_from(_JUMPS) | st.integers(1, size))
        rows.append((draw(_near(size)) + number // width * jump + number * step * (k == len(sizes) - 1)) % size)
    return np.array(rows)


def _fit(level: Level, dims: Sequence[int], n: int) -> bool:
    """Return False if cells have no number, or if the kind stores too much for them, as far as counts show this."""
    children = level.children(dims, n, 1)
    size = level.nbytes(dims, n, 1 if children is None else children, root=False, itemsize=1)
    return n * cells(dims) < 2**62 and max(children or 0, size or 0) <= max(MOST, 4 * n)


@st.composite
def selections(draw: st.DrawFn, case: LevelCase) -> tuple[Positions, list[Positions]]:
    """Positions of the level and a window over its dimensions, ranges and sorted arrays."""
    window = [draw(_some_of(size, steps=True)) for size in case.dims]
    return draw(_some_of(case.n, steps=False)), window


@st.composite
def _some_of(draw: st.DrawFn, size: int, *, steps: bool) -> Positions:
    if draw(st.booleans()):
        start = draw(st.integers(0, size))
        return range(start, draw(st.integers(start, size)), draw(st.integers(1, 3)) if steps else 1)
    if size > FEW and draw(st.booleans()):
        return np.unique(_pattern(draw, (size,), FEW))
    chosen = draw(st.sets(st.integers(0, size - 1))) if size else set()
    return np.array(sorted(chosen), np.int64)
