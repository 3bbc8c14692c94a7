"""bitmap: every coordinate has a child, and a boolean that is set if it has an entry.

    . 5 . 7     dense   rows 0, 1, 2
    . . . .     `- bitmap   bitmap_1 [0, 1, 0, 1, 0, 0, 0, 0, 1, 1, 1, 0]
    1 2 3 .        `- element   values [0, 5, 0, 7, 0, 0, 0, 0, 1, 2, 3, 0]

Cell (i, j) has the number 4 * i + j; the values of unset cells have no meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from ..errors import Problem
from .base import Arrays, ArraySpec, Built, Counted, Expanded, Owners, moved, wrong_lengths
from .cells import Marked, list_cells, loop_cells, owners_of_cells
from .positions import Array, Positions, Window, as_array, cells, is_everything, items_at, number_cells, split_cells
from .registry import register


@register
class Bitmap(Marked):
    """Each cell has a boolean and a value. Cells whose boolean is False are no entries.

    q = p·∏dims + ravel(i), if cell i is set. Rank 0 is one cell. Not in Binsparse 0.1: stored under an extension
    name. The levels below an unset cell are unspecified.

    Parameters
    ----------
    rank : int
        The number of dimensions, 0 or more.

    See Also
    --------
    Bits : Store a bit for each cell.
    Mask : Store a bit for each cell, and the number of entries before.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> bl.pack_dense(np.eye(2), "bitmap(2)").arrays["bitmap_0"].tolist()
    [True, False, False, True]
    """

    kind: ClassVar[str] = "bitmap"
    min_rank: ClassVar[int] = 0

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        return {"bitmap": ArraySpec(f"bitmap_{depth}", "bool")}

    def lengths(self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None) -> Counted:
        return lengths["bitmap"], wrong_lengths(lengths, {"bitmap": None if n is None else n * cells(dims)}, "cell")

    def build(self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int) -> Built:
        child = number_cells(dims, parents, coords)
        bits = np.zeros(n * cells(dims), bool)
        bits[child] = True
        return {"bitmap": bits}, child

    def expand(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Expanded:
        if isinstance(positions, range) and positions.step == 1 and is_everything(window, dims) and cells(dims) > 1:
            run = range(positions.start * cells(dims), positions.stop * cells(dims))
            (marked,) = self.is_set(arrays, run).nonzero()
            fibers, coords = split_cells(dims, marked)
            return np.bincount(fibers, minlength=len(positions)), coords, marked + run.start
        count, coords, child = list_cells(dims, positions, window)
        kept = self.is_set(arrays, child)
        counts = kept.reshape(len(positions), count).sum(axis=1, dtype=np.int64)
        return counts, [x[kept] for x in coords], as_array(child)[kept]

    def loop(self, root: bool) -> str:
        return loop_cells(self.rank, "bitmap[q]")

    def is_set(self, arrays: Arrays, numbers: Positions) -> Array:
        return items_at(arrays["bitmap"], numbers)

    def above(self, arrays: Arrays, dims: Sequence[int], n: int, children: range) -> Owners:
        flags = self.is_set(arrays, children)
        return Owners(*owners_of_cells(dims, children), (flags != 0).astype(np.int64))

    def check_in_parts(self, arrays: Arrays, dims: Sequence[int], n: int, size: int) -> Iterator[Problem]:
        for start in range(0, len(arrays["bitmap"]), size):
            part = {"bitmap": arrays["bitmap"][start : start + size]}
            yield from (moved(problem, start) for problem in self.check(part, dims, n))

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        raw = arrays["bitmap"].view(np.uint8)
        if raw.max(initial=0) > 1:
            (bad,) = (raw > 1).nonzero()
            more = f" ({len(bad)} such in all)" if len(bad) > 1 else ""
            yield Problem(f"bitmap[{bad[0]}]", f"expected 0 or 1, got {raw[bad[0]]}{more}")

    def locate(self, arrays: Arrays, dims: Sequence[int], positions: Array, coords: Sequence[Array]) -> Array:
        child = number_cells(dims, positions, coords)
        return np.where(self.is_set(arrays, child), child, -1)

    def sliced(self, dims: Sequence[int], n: int, children: int, k: int, *, root: bool, itemsize: int) -> int:
        """Each slice reads only its own cells; one byte for each, if they are not contiguous."""
        whole = self.nbytes(dims, n, children, root=root, itemsize=itemsize)
        return whole if cells(dims[k + 1 :]) >= 8 else min(n * cells(dims), dims[k] * whole)
