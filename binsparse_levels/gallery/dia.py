"""dia: the diagonals of a matrix that have an entry, each stored whole.

The format of scipy's `dia_array`. A level of rank 2: one fiber is a matrix.

    5 7 . .     ptr [0, 2]
    . 6 8 .     off [2, 3]     j - i + rows - 1 of each diagonal, which ascend
    . . 1 9

Row i of diagonal d is child d * rows + i, so a diagonal is a vector of values, whose product needs no index. Children
of rows where the diagonal has left the matrix have no entry (`gaps`). Cells that were no entries are stored (`padded`).
"""

from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np

from ..errors import Problem
from ..levels import ArraySpec, Level, register
from ..levels.base import wrong_lengths
from ..levels.pointers import pointer_problems
from ..levels.positions import as_array, children_of, inside, items_at


@numba.njit
def first_row(off, rows):
    """The first row of a diagonal."""
    return rows - np.uint64(1) - off if off + np.uint64(1) < rows else np.uint64(0)


@numba.njit
def row_behind(off, rows, columns):
    """The row after the last row of a diagonal."""
    return min(rows, rows + columns - np.uint64(1) - off)


@register
@dataclass(frozen=True)
class Dia(Level):
    """Fiber p has the diagonals ptr[p] … ptr[p+1]; cell (i, i + off[d] - rows + 1) is child d * rows + i.

    References
    ----------
    Saad, SPARSKIT: a basic tool kit for sparse matrix computations, RIACS technical report 90-20, 1990.
    """

    rank: int = 2
    kind: ClassVar[str] = "dia"
    package: ClassVar[str] = "binsparse_levels.gallery"
    formerly: ClassVar[tuple[str, ...]] = ("gallery",)
    min_rank: ClassVar[int] = 2
    max_rank: ClassVar[int] = 2
    ordered: ClassVar[bool] = False
    padded: ClassVar[bool] = True
    gaps: ClassVar[bool] = True

    def arrays(self, depth, root):
        return {"ptr": ArraySpec.pointers(depth), "off": ArraySpec(f"dia_offsets_{depth}", "integer")}

    def lengths(self, lengths, dims, n):
        return lengths["off"] * dims[0], wrong_lengths(lengths, {"ptr": None if n is None else n + 1})

    def build(self, dims, parents, coords, n):
        (rows, columns), (i, j) = dims, coords
        each = max(rows + columns - 1, 1)
        keys, place = np.unique(as_array(parents) * each + j - i + rows - 1, return_inverse=True)
        return {"ptr": np.searchsorted(keys, np.arange(n + 1) * each), "off": keys % each}, place * rows + i

    def expand(self, arrays, dims, positions, window):
        rows, columns = dims
        counts, diagonals = children_of(arrays["ptr"], as_array(positions))
        d, i = np.repeat(diagonals, rows), np.tile(np.arange(rows), len(diagonals))
        j = i + items_at(arrays["off"], d).astype(np.int64) - rows + 1
        kept = (j >= 0) & (j < columns) & inside(window, [i, j])
        fiber = np.repeat(np.arange(len(counts)), counts * rows)[kept]
        return np.bincount(fiber, minlength=len(counts)), [i[kept], j[kept]], (d * rows + i)[kept]

    def check(self, arrays, dims, n, *, order=True):
        ptr, off = (arrays[role].astype(np.int64) for role in ("ptr", "off"))
        if problems := list(pointer_problems(arrays["ptr"], len(off))):
            yield from problems
            return
        fiber = np.repeat(np.arange(n), np.diff(ptr))
        if ((off < 0) | (off >= sum(dims) - 1)).any():
            yield Problem("off", "a diagonal is outside the matrix")
        elif ((np.diff(off) <= 0) & (np.diff(fiber) == 0)).any():
            yield Problem("off", "diagonals do not ascend")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return (n + 1 + children // dims[0]) * itemsize if dims[0] else None

    def helpers(self):
        return {"first_row": first_row, "row_behind": row_behind}

    def loop(self, root):
        return """
for d in range(ptr[p], ptr[p + 1]):
    for i0 in range(first_row(off[d], size0), row_behind(off[d], size0, size1)):
        i1 = i0 + off[d] + 1 - size0
        q = d * size0 + i0
        yield
"""
