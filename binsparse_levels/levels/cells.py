"""Kinds whose children are the cells of their fibers: every cell has a child, with or without an entry."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..limits import INT32_MAX
from .base import Arrays, Built, Level, Owners
from .positions import (
    Array,
    Positions,
    Window,
    as_array,
    cells,
    is_everything,
    items_at,
    number_cells,
    split_cells,
    times,
)


class Cells(Level):
    """The children of fiber p are its cells: q = p · cells + the number of the cell."""

    def width(self, dims: Sequence[int]) -> int:
        """The number of cells of a fiber."""
        return cells(dims)

    def above(self, arrays: Arrays, dims: Sequence[int], n: int, children: range) -> Owners:
        return Owners(*owners_of_cells(dims, children))

    def children(self, dims: Sequence[int], n: int, distinct: int) -> int | None:
        return None if self.refuses else n * self.width(dims)  # counts alone do not show if it can store the entries


class Marked(Cells):
    """Kinds whose arrays mark the cells with an entry."""

    gaps: ClassVar[bool] = True

    @abstractmethod
    def is_set(self, arrays: Arrays, numbers: Positions) -> Array:
        """A mask of the cells with an entry, from the numbers of cells."""

    def of_cells(self, arrays: Arrays, numbers: Positions) -> dict[str, Array]:
        """The arrays of a level of these cells. By default every array has an item for each cell."""
        return {role: items_at(array, numbers) for role, array in arrays.items()}

    def count(self, arrays: Arrays, dims: Sequence[int], n: int, below: int | Array) -> int | Array:
        flags = self.is_set(arrays, range(n * self.width(dims))).reshape(n, self.width(dims))
        if isinstance(below, int):
            return times(flags.sum(axis=1), below)
        child: Array = np.where(flags, below.reshape(flags.shape), 0).sum(axis=1)
        return child

    def part(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Built:
        numbers = cells_of(self.width(dims), positions)
        return self.of_cells(arrays, numbers), numbers

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return n * self.width(dims)


def cells_of(width: int, positions: Positions) -> Positions:
    """The numbers of all cells of fibers with `width` cells each.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> cells_of(3, range(1, 3)), cells_of(3, np.array([0, 2])).tolist()
    (range(3, 9), [0, 1, 2, 6, 7, 8])
    """
    if isinstance(positions, range) and positions.step == 1:
        return range(positions.start * width, positions.stop * width)
    numbers: Array = (as_array(positions)[:, np.newaxis] * np.int64(width) + np.arange(width)).ravel()
    return numbers


def list_cells(dims: Sequence[int], positions: Positions, window: Window) -> tuple[int, list[Array], Positions]:
    """The cells of the fibers at `positions` inside `window`: their count in each fiber, coordinates, and numbers."""
    shape = [len(w) for w in window]
    count = cells(shape) if len(positions) else 0
    if not count:
        return 0, [np.empty(0, np.int64) for _ in dims], range(0)
    coords = []
    for k, w in enumerate(window):
        x = np.arange(w.start, w.stop, w.step, dtype=_smallest(w.stop)) if isinstance(w, range) else w
        if len(window) > 1:
            x = np.tile(np.repeat(x, cells(shape[k + 1 :])), cells(shape[:k]))
        coords.append(x)
    numbers: Positions | None = cell_range(dims, positions, window)
    if numbers is None:
        offsets = number_cells(dims, range(1), coords)
        numbers = (as_array(positions)[:, np.newaxis] * np.int64(cells(dims)) + offsets).ravel()
    return count, [np.tile(x, len(positions)) if len(positions) > 1 else x for x in coords], numbers


def cell_range(dims: Sequence[int], positions: Positions, window: Window) -> range | None:
    """The numbers of the cells of the fibers inside the window as a range, or None if they are no range.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> cell_range([2, 3], range(1), [range(1, 2), range(3)])
    range(3, 6)
    """
    if not dims:
        return positions if isinstance(positions, range) and positions.step == 1 else None
    outer, inner = window[0], 1
    if not isinstance(outer, range):
        return None
    if len(dims) > 1:
        if not is_everything(window[1:], dims[1:]):
            return None
        inner = cells(dims[1:])
    if isinstance(positions, range) and positions.step == 1 and outer == range(dims[0]):
        return range(positions.start * dims[0] * inner, positions.stop * dims[0] * inner)
    if len(positions) == 1 and (outer.step == 1 or inner == 1):
        first = int(positions[0]) * dims[0]
        return range((first + outer.start) * inner, (first + outer.stop) * inner, outer.step)
    return None


def _smallest(size: int) -> npt.DTypeLike:
    """The integer type of coordinates in a dimension of this size."""
    return np.int32 if size <= INT32_MAX else np.int64


def owners_of_cells(dims: Sequence[int], numbers: range) -> tuple[range, Array, list[Array]]:
    """The fibers of cells, the count of these cells in each, their coordinates. Precondition: at least one cell.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> fibers, counts, coords = owners_of_cells([2, 3], range(5, 8))
    >>> fibers, counts.tolist(), [x.tolist() for x in coords]
    (range(0, 2), [1, 2], [[1, 0, 0], [2, 0, 1]])
    """
    inside = cells(dims)
    fibers = range(numbers.start // inside, -(-numbers.stop // inside))
    ends = np.arange(fibers.start + 1, fibers.stop + 1) * inside
    ends[-1] = numbers.stop
    return fibers, np.diff(ends, prepend=numbers.start), split_cells(dims, as_array(numbers))[1]


def loop_cells(rank: int, condition: str = "") -> str:
    """`Level.loop` over all cells of a fiber, or over those whose number `q` meets a condition.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> print(loop_cells(1))
    for i0 in range(size0):
        q = p * size0 + i0
        yield
    """
    lines, number = [], "p"
    for k in range(rank):
        lines.append("    " * k + f"for i{k} in range(size{k}):")
        number = f"({number}) * size{k} + i{k}" if k else f"p * size{k} + i{k}"
    statements = [f"q = {number}", *([f"if {condition}:", "    yield"] if condition else ["yield"])]
    return "\n".join(lines + ["    " * rank + line for line in statements])
