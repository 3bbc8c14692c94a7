"""csr_du: rows of a matrix as differences of columns, in units of one width.

A unit is a byte for the width of its differences (0 to 3: 1, 2, 4 or 8 bytes) plus four times the step to its row, one
for their number, and them. The columns of a row begin again at 0. A fiber is a matrix, so the loop keeps the next child
and byte from row to row; threads begin at a block.

    . 5 . 7     ptr   [0, 5]                            which children a block of 64 rows has
    . . . .     start [0, 9]                            which bytes it has
    1 2 3 .     ctl   [0, 2, 1, 2, 8, 3, 0, 1, 1]       head, number, differences; head, number, differences
"""

from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np

from ..errors import Problem
from ..levels import ArraySpec, Level, register
from ..levels.base import wrong_lengths
from ..levels.pointers import pointer_problems
from ..levels.positions import as_array, in_window, items_at, ranges


@numba.njit
def read(ctl, at, width):
    x = np.uint64(ctl[at])
    for k in range(1, 1 << width):
        x |= np.uint64(ctl[at + k]) << np.uint64(8 * k)
    return x


@numba.njit
def decode(ctl, at, end, row, counts):
    """The coordinates of blocks that have the bytes at … end and begin at a row; -1 where units are broken."""
    out, total = np.full((2, counts.sum()), -1), 0
    for b in range(len(at)):
        a, i, j, q, total = at[b], row[b], 0, total, total + counts[b]
        while a + 2 <= end[b] and q < total:
            width, count, a, i, j = ctl[a] & 3, ctl[a + 1], a + 2, i + (ctl[a] >> 2), j if ctl[a] < 4 else 0
            for _ in range(min(count, total - q, (end[b] - a) >> width)):
                j += np.int64(read(ctl, a, width))
                out[0, q], out[1, q], a, q = i, j, a + (1 << width), q + 1
    return out


@register
@dataclass(frozen=True)
class CsrDu(Level):
    """Block b of a fiber, of 64 rows, has the children ptr[b] … ptr[b+1], and the bytes from start[b] on.

    References
    ----------
    Kourtis, Goumas and Koziris, Optimizing sparse matrix-vector multiplication using index and value compression,
    CF 2008.
    """

    rank: int = 2
    kind: ClassVar[str] = "csr_du"
    package: ClassVar[str] = "binsparse_levels.gallery"
    formerly: ClassVar[tuple[str, ...]] = ("gallery",)
    min_rank: ClassVar[int] = 2
    max_rank: ClassVar[int] = 2

    def arrays(self, depth, root):
        holds = {"ptr": "integer", "start": "integer", "ctl": "byte"}
        return {x: ArraySpec(f"csr_du_{x}_{depth}", holds[x]) for x in holds}

    def lengths(self, lengths, dims, n):
        expected = None if n is None else n * -(-dims[0] // 64) + 1
        return None, wrong_lengths(lengths, {"ptr": expected, "start": expected})

    def size(self, arrays, dims, n):
        return int(arrays["ptr"][n * -(-dims[0] // 64) :][0])

    def build(self, dims, parents, coords, n):
        p, (i, j) = as_array(parents), (x.astype(np.int64) for x in coords)
        first = np.append(True, (p[1:] != p[:-1]) | (i[1:] != i[:-1]))[: len(p)]
        new = first | np.append(True, j[1:] != j[:-1])[: len(p)]
        child, p, i, j, first = np.cumsum(new) - 1, p[new], i[new], j[new], first[new]
        block, here = p * -(-dims[0] // 64) + i // 64, np.arange(len(p))
        step = np.where(first, j, np.diff(j, prepend=0))
        width = np.searchsorted([2**8, 2**16, 2**32], step, side="right")
        down = np.where(np.diff(block, prepend=-1) == 0, np.diff(i, prepend=0), i % 64)
        first |= np.diff(width, prepend=0) != 0
        first |= (here - np.maximum.accumulate(here * first)) % 255 == 0  # a byte holds the number
        end = np.cumsum((1 << width) + 2 * first)  # of the bytes of each child
        begin, ctl = end - (1 << width), np.zeros(end[-1] if len(p) else 0, np.uint8)
        ctl[begin[first] - 2], ctl[begin[first] - 1] = (width + 4 * down)[first], np.diff(here[first], append=len(p))
        wanted = np.arange(8) < (1 << width)[:, np.newaxis]
        ctl[as_array(ranges(begin, 1 << width))] = step.astype("<i8").view(np.uint8).reshape(-1, 8)[wanted]
        ptr = np.searchsorted(block, np.arange(n * -(-dims[0] // 64) + 1))
        return {"ptr": ptr, "start": np.append(0, end)[ptr], "ctl": ctl}, child

    def expand(self, arrays, dims, positions, window):
        block = np.arange(-(-dims[0] // 64))
        at = (as_array(positions)[:, np.newaxis] * len(block) + block).ravel()
        first, last, at, end = (items_at(arrays[x], at + k).astype(np.int64) for x in ("ptr", "start") for k in (0, 1))
        coords = decode(arrays["ctl"], at, end, np.tile(64 * block, len(positions)), last - first)
        counts = (last - first).reshape(len(positions), len(block)).sum(axis=1)
        return in_window(counts, list(coords), ranges(first, last - first), window)

    def check(self, arrays, dims, n, *, order=True):
        ptr, start, ctl = *(arrays[role].astype(np.int64) for role in ("ptr", "start")), arrays["ctl"]
        yield from (problems := [*pointer_problems(ptr, min(ptr[-1], len(ctl))), *pointer_problems(start, len(ctl))])
        if not problems:
            pointers, coords, _ = self.expand(arrays, dims, range(n), [range(size) for size in dims])
            again, _ = self.build(dims, np.repeat(np.arange(n), np.diff(pointers)), coords, n)
            if any(not np.array_equal(arrays[role], again[role]) for role in again):
                yield Problem("ctl", "the units are not those of coordinates in this shape")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return None  # counts do not show how wide differences are

    def loop(self, root):
        return """
for b in range(p * ((size0 + 63) // 64), (p + 1) * ((size0 + 63) // 64)):
    i0 = (b - p * ((size0 + 63) // 64)) * 64
    at, first, i1 = start[b], ptr[b], 0
    while at < start[b + 1]:
        width, count, i0, i1, at = ctl[at] & 3, ctl[at + 1], i0 + (ctl[at] >> 2), i1 if ctl[at] < 4 else 0, at + 2
        for q in range(first, first + count):
            for k in range(1 << width):
                i1 = i1 + (ctl[at + ((q - first) << width) + k] << (8 * k))
            yield
        first, at = first + count, at + (count << width)
"""
