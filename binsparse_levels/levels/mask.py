"""mask: each fiber has a bit for each cell, and children for the set cells.

    . 5 . 7     dense   rows 0, 1, 2
    . . . .     `- mask   pointers_to_1 [0, 2, 2, 5]
    1 2 3 .        |      mask_1 [10, 0, 7]
                   `- element   values [5, 7, 1, 2, 3]

Row 0 has the byte 10, with the bits of columns 1 and 3; row 2 has the children 2, 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from .. import kernels
from ..errors import Problem
from ..thresholds import THRESHOLDS
from .base import Arrays, ArraySpec, Built, Counted, Expanded, wrong_lengths
from .cells import cells_of
from .pointers import Pointed, pointers_in_parts, pointers_to
from .positions import (
    Array,
    Positions,
    Window,
    as_array,
    cells,
    count_owners,
    firsts,
    in_ranges,
    in_window,
    is_everything,
    items_at,
    number_cells,
    split_cells,
)
from .registry import register


@register
class Mask(Pointed):
    """Each cell has a bit, and each fiber a pointer. Only cells whose bit is 1 have values.

    Fiber p has ⌈cells / 8⌉ bytes; cell c is bit c % 8 of byte c // 8, the lowest first. Bits after the cells are 0.
    q = ptr[p] + the number of set bits of the fiber before that of the cell. For blocks, and for fibers that are
    neither full nor nearly empty: a bit for each cell, and values for the set cells only.

    Parameters
    ----------
    rank : int
        The number of dimensions, 1 or more.

    See Also
    --------
    Bitmap : Store a boolean for each cell.
    Bits : Store a bit for each cell.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> bl.pack_dense(np.eye(2), "dense, mask").arrays["mask_1"].tolist()
    [1, 2]
    """

    kind: ClassVar[str] = "mask"

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        return {"ptr": ArraySpec.pointers(depth), "bits": ArraySpec(f"mask_{depth}", "byte")}

    def lengths(self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None) -> Counted:
        expected = {} if n is None else {"ptr": n + 1, "bits": n * _width(dims)}
        return None, wrong_lengths(lengths, expected)

    def build(self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int) -> Built:
        parent = as_array(parents).astype(np.int64, copy=False)
        cell = number_cells(dims, np.zeros(len(parent), np.int64), coords)
        new = firsts([parent, cell])
        raw = np.zeros(n * _width(dims), np.uint8)
        np.bitwise_or.at(raw, parent * _width(dims) + cell // 8, np.uint8(1) << (cell % 8).astype(np.uint8))
        pointers = count_owners(parent[new], n, np.dtype(np.int64))
        return {"ptr": pointers, "bits": raw}, np.cumsum(new) - 1

    def expand(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Expanded:
        first, stop = self.bounds(arrays, positions)
        counts = stop - first
        number = np.empty(int(counts.sum()), np.int64)
        kernels.words.list_bits(kernels.readable(self._bytes_of(arrays, dims, positions)[0]), _width(dims), number)
        coords = split_cells(dims, number)[1]
        child = in_ranges(first, counts)
        return (counts, coords, child) if is_everything(window, dims) else in_window(counts, coords, child, window)

    @staticmethod
    def _bytes_of(arrays: Arrays, dims: Sequence[int], positions: Positions) -> tuple[Array, Positions]:
        """The bytes of fibers, and their numbers."""
        numbers = cells_of(_width(dims), positions)
        return items_at(arrays["bits"], numbers), numbers

    def loop(self, root: bool) -> str:
        last, coords = "cell", ""
        for k in range(self.rank - 1, 0, -1):
            coords += f"        i{k} = {last} % size{k}\n        cell{k} = {last} // size{k}\n"
            last = f"cell{k}"
        sizes = " * ".join(f"size{k}" for k in range(self.rank))
        return (
            f"width = ({sizes} + 7) >> 3\n"
            "q = ptr[p]\n"
            "for part in range((width + 7) >> 3):\n"
            "    word = bytes_at(bits, p * width + (part << 3), width - (part << 3))\n"
            "    while word != 0:\n"
            "        cell = (part << 6) + trailing_zeros(word)\n"
            "        word = word & (word - 1)\n"
            f"{coords}        i0 = {last}\n"
            "        yield\n"
            "        q = q + 1\n"
        )

    def helpers(self) -> Mapping[str, Callable[..., Any]]:
        return {"trailing_zeros": kernels.words.trailing_zeros, "bytes_at": kernels.words.bytes_at}

    def part(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Built:
        pointers = arrays["ptr"]
        first, stop = self.bounds(arrays, positions, int(pointers[-1:][0]))
        local = {"ptr": pointers_to(stop - first, pointers.dtype), "bits": self._bytes_of(arrays, dims, positions)[0]}
        return local, in_ranges(first, stop - first)

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        return self.check_in_parts(arrays, dims, n, THRESHOLDS.checked_bytes)

    def check_in_parts(self, arrays: Arrays, dims: Sequence[int], n: int, size: int) -> Iterator[Problem]:
        pointers, width, rest = arrays["ptr"], _width(dims), cells(dims) % 8
        count, before = self.size(arrays, dims, n), 0  # bits
        yield from pointers_in_parts(pointers, count, n, size)
        for start in range(0, n * width, size):
            raw = arrays["bits"][start : min(start + size, n * width)]
            bits = np.append(0, np.cumsum(np.bitwise_count(raw), dtype=np.int64)) + before
            fibers = range(start // width, (start + len(raw)) // width)  # the fibers that end here
            ends, before = as_array(fibers) * width + width - start, int(bits[-1])
            stored = pointers[fibers.start + 1 : fibers.stop + 1]
            for p in np.flatnonzero(stored.astype(np.int64) != bits[ends])[:1].tolist():
                what = f"expected {bits[ends[p]]}, the number of bits up to fiber {fibers[p]}, got {stored[p]}"
                yield Problem(f"ptr[{fibers[p] + 1}]", what)
                return
            for p in np.flatnonzero(raw[ends - 1] >> rest)[:1].tolist() if rest else ():
                yield Problem(f"bits[{start + ends[p] - 1}]", f"bits after the {cells(dims)} cells are set")
                return
        if not width and count:
            yield Problem(f"ptr[{n}]", f"expected 0, since fibers have no cells, got {count}")

    def locate(self, arrays: Arrays, dims: Sequence[int], positions: Array, coords: Sequence[Array]) -> Array:
        child = np.empty(len(positions), np.int64)
        cell = number_cells(dims, np.zeros(len(positions), np.int64), coords)
        at, pointers = kernels.readable(positions, np.int64), kernels.readable(arrays["ptr"])
        raw = kernels.readable(arrays["bits"])
        kernels.words.rank_bits(raw, _width(dims), pointers, at, kernels.readable(cell), child)
        return child

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return (n + 1) * itemsize + n * _width(dims)


def _width(dims: Sequence[int]) -> int:
    """The number of bytes of a fiber."""
    return -(-cells(dims) // 8)
