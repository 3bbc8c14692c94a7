"""dense: every coordinate has a child, so nothing is stored; positions of children are computed.

    . 5 . 7     dense   rows 0, 1, 2
    . . . .     `- dense
    1 2 3 .        `- element   values [0, 5, 0, 7, 0, 0, 0, 0, 1, 2, 3, 0]

Cell (i, j) has the number 4 * i + j.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from ..errors import Problem
from .base import DENSE, Arrays, ArraySpec, Built, Counted, Expanded, Level
from .cells import Cells, cell_range, list_cells, loop_cells
from .positions import Array, Positions, Window, cells, number_cells
from .registry import register


@register
class Dense(Cells):
    """Every cell has a value, in row-major order. Positions are computed, and no array is stored.

    q = p·∏dims + ravel(i). Binsparse 0.1, section 3.5.2.2.

    Parameters
    ----------
    rank : int
        The number of dimensions, 1 or more.

    See Also
    --------
    Sparse : Store the coordinates of each fiber.
    Bitmap : Store a boolean for each cell.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> bl.pack_dense(np.eye(2), "dense(2)").values.tolist()
    [1.0, 0.0, 0.0, 1.0]
    """

    kind: ClassVar[str] = "dense"
    specified: ClassVar[bool] = True
    padded: ClassVar[bool] = True

    def fused(self) -> tuple[int, ...]:
        return (DENSE,) * self.rank

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        return {}

    def lengths(self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None) -> Counted:
        return (None if n is None else n * cells(dims)), []

    def build(self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int) -> Built:
        if n == self.rank == 1:
            return {}, coords[0] if coords[0].dtype.kind == "i" else coords[0].astype(np.int64)
        return {}, number_cells(dims, parents, coords)

    def expand(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Expanded:
        return list_cells(dims, positions, window)

    def reached(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Positions:
        run = cell_range(dims, positions, window)
        return list_cells(dims, positions, window)[2] if run is None else run

    def loop(self, root: bool) -> str:
        return loop_cells(self.rank)

    def count(self, arrays: Arrays, dims: Sequence[int], n: int, below: int | Array) -> int | Array:
        return below * cells(dims) if isinstance(below, int) else below.reshape(n, cells(dims)).sum(axis=1)

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        return iter(())

    def locate(self, arrays: Arrays, dims: Sequence[int], positions: Array, coords: Sequence[Array]) -> Array:
        return number_cells(dims, positions, coords)

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return 0


def canonical(levels: Iterable[Level]) -> tuple[Level, ...]:
    """Levels that store the same bytes, in their simplest form: one for each dimension that is stored in full."""
    each = (full(level.rank) if isinstance(level, Dense) else (level,) for level in levels)
    return tuple(itertools.chain.from_iterable(each))


def full(rank: int) -> tuple[Level, ...]:
    """Levels that store `rank` dimensions in full."""
    return (Dense(),) * rank
