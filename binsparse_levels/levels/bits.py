"""bits: a bitmap with eight cells in a byte.

    . 5 . 7     dense   rows 0, 1, 2
    . . . .     `- bits   bits_1 [10, 7]
    1 2 3 .        `- element   values [0, 5, 0, 7, 0, 0, 0, 0, 1, 2, 3, 0]

Cell (i, j) has the number 4 * i + j; the first byte, 10, contains the bits of cells 1 and 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from ..errors import Problem
from .base import Arrays, ArraySpec, Built, Counted, moved, wrong_lengths
from .bitmap import Bitmap
from .cells import loop_cells
from .positions import Array, Positions, as_array, cells, items_at
from .registry import register


@register
class Bits(Bitmap):
    """Each cell has a bit and a value. Cells whose bit is 0 are no entries.

    Cell q is bit q % 8 of byte q // 8, the lowest first. Bits after the last cell are 0.

    Parameters
    ----------
    rank : int
        The number of dimensions, 0 or more.

    See Also
    --------
    Bitmap : Store a boolean for each cell.
    Mask : Store a bit for each cell, and the number of entries before.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> bl.pack_dense(np.eye(2), "bits(2)").arrays["bits_0"].tolist()
    [9]
    """

    kind: ClassVar[str] = "bits"

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        return {"bits": ArraySpec(f"bits_{depth}", "byte")}

    def lengths(self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None) -> Counted:
        children = None if n is None else n * cells(dims)
        return children, wrong_lengths(lengths, {"bits": None if children is None else _bytes(children)}, "8 cells")

    def build(self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int) -> Built:
        made, child = super().build(dims, parents, coords, n)
        return _packed(made["bitmap"]), child

    def loop(self, root: bool) -> str:
        return loop_cells(self.rank, "bits[q >> 3] >> (q & 7) & 1")

    def count(self, arrays: Arrays, dims: Sequence[int], n: int, below: int | Array) -> int | Array:
        if n == 1 and isinstance(below, int):  # takes an eighth of the memory of unpacked bits
            return int(np.bitwise_count(arrays["bits"]).sum(dtype=np.int64)) * below
        return super().count(arrays, dims, n, below)

    def is_set(self, arrays: Arrays, numbers: Positions) -> Array:
        if isinstance(numbers, range) and numbers.step == 1:
            first, stop = numbers.start, max(numbers.stop, numbers.start)
            raw = arrays["bits"][first // 8 : _bytes(stop)]
            return np.unpackbits(raw, bitorder="little")[first % 8 :][: stop - first].view(bool)
        each = as_array(numbers)
        raw = items_at(arrays["bits"], each // 8)
        return (raw >> (each % 8).astype(np.uint8) & 1).view(bool)

    def of_cells(self, arrays: Arrays, numbers: Positions) -> dict[str, Array]:
        return _packed(self.is_set(arrays, numbers))

    def check_in_parts(self, arrays: Arrays, dims: Sequence[int], n: int, size: int) -> Iterator[Problem]:
        last = {"bits": arrays["bits"][-1:]}
        return (moved(problem, len(arrays["bits"]) - 1) for problem in self.check(last, dims, n))

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        count = n * cells(dims)
        if count % 8 and arrays["bits"][-1] >> count % 8:
            yield Problem(f"bits[{len(arrays['bits']) - 1}]", f"bits after the {count} cells are set")

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return _bytes(n * cells(dims))


def _packed(flags: Array) -> dict[str, Array]:
    return {"bits": np.packbits(flags, bitorder="little")}


def _bytes(count: int) -> int:
    """The number of bytes for this number of bits."""
    return -(-count // 8)
