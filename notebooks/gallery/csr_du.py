"""csr_du: rows of a matrix as differences of columns, in units of one width.

Kourtis, Goumas and Koziris, Optimizing sparse matrix-vector multiplication using index and value compression, CF 2008.
A unit is a byte for the width of its differences (0 to 3: 1, 2, 4 or 8 bytes) plus four times the step to its row, one
for their number, and them. The columns of a row begin again at 0.

    . 5 . 7     ptr   [0, 5]                            which children a block of 64 rows has
    . . . .     start [0, 9]                            which bytes it has
    1 2 3 .     ctl   [0, 2, 1, 2, 8, 3, 0, 1, 1]       head, number, differences; head, number, differences

A fiber of a level of rank 2 is a matrix, so the loop keeps the next child and byte from row to row, and rows have no
pointers. Threads and slices begin at a block.
"""

from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np

from binsparse_levels import ArrayError, Level, Problem
from binsparse_levels.levels import ArraySpec, register
from binsparse_levels.levels.base import wrong_lengths
from binsparse_levels.levels.pointers import pointer_problems, refuse_outside
from binsparse_levels.levels.positions import as_array, in_window, items_at, ranges


@numba.njit
def read(ctl, at, width):
    x = np.uint64(ctl[at])
    for k in range(1, 1 << width):
        x |= np.uint64(ctl[at + k]) << np.uint64(8 * k)
    return x


@numba.njit
def decode(ctl, at, end, row, counts):
    """The coordinates of blocks that have the bytes at … end and begin at a row; -1 where units are broken."""
    out, q, behind = np.full((2, counts.sum()), -1), 0, 0
    for b in range(len(at)):
        a, i, j, behind = at[b], row[b], 0, behind + counts[b]
        while a + 2 <= end[b] and q < behind:
            width, count, a, i, j = ctl[a] & 3, ctl[a + 1], a + 2, i + (ctl[a] >> 2), j if ctl[a] < 4 else 0
            for _ in range(min(count, behind - q, (end[b] - a) >> width)):
                j += np.int64(read(ctl, a, width))
                out[0, q], out[1, q] = i, j
                a, q = a + (1 << width), q + 1
        q = behind
    return out


def each(dims):
    """The number of blocks of a fiber."""
    return -(-dims[0] // 64)


@register
@dataclass(frozen=True)
class CsrDu(Level):
    """Block b of a fiber, of 64 rows, has the children ptr[b] … ptr[b+1], and the bytes from start[b] on."""

    rank: int = 2
    kind: ClassVar[str] = "csr_du"
    min_rank: ClassVar[int] = 2
    max_rank: ClassVar[int] = 2

    def arrays(self, depth, root):
        roles = {"ptr": "integer", "start": "integer", "ctl": "byte"}
        return {role: ArraySpec(f"csr_du_{role}_{depth}", holds) for role, holds in roles.items()}

    def lengths(self, lengths, dims, n):
        return None, wrong_lengths(lengths, dict.fromkeys(("ptr", "start"), None if n is None else n * each(dims) + 1))

    def size(self, arrays, dims, n):
        return int(arrays["ptr"][n * each(dims) :][0])

    def build(self, dims, parents, coords, n):
        p, (i, j) = as_array(parents), (x.astype(np.int64) for x in coords)
        first = np.append(True, (p[1:] != p[:-1]) | (i[1:] != i[:-1]))[: len(p)]
        new = first | np.append(True, j[1:] != j[:-1])[: len(p)]
        child, p, i, j, first = np.cumsum(new) - 1, p[new], i[new], j[new], first[new]
        block, here = p * each(dims) + i // 64, np.arange(len(p))
        step = np.where(first, j, np.diff(j, prepend=0))
        width = np.searchsorted([2**8, 2**16, 2**32], step, side="right")
        down = np.where(np.diff(block, prepend=-1) == 0, np.diff(i, prepend=0), i % 64)
        first |= np.diff(width, prepend=0) != 0
        first |= (here - np.maximum.accumulate(here * first)) % 255 == 0
        end = np.cumsum((1 << width) + 2 * first)  # of the bytes of each child
        begin, ctl = end - (1 << width), np.zeros(end[-1] if len(p) else 0, np.uint8)
        ctl[begin[first] - 2], ctl[begin[first] - 1] = (width + 4 * down)[first], np.diff(here[first], append=len(p))
        for k in range(8):
            wide = k < 1 << width
            ctl[begin[wide] + k] = step[wide] >> 8 * k & 255
        ptr = np.searchsorted(block, np.arange(n * each(dims) + 1))
        return {"ptr": ptr, "start": np.append(0, end)[ptr], "ctl": ctl}, child

    def _blocks(self, arrays, dims, positions, window):
        """The blocks in each fiber that have rows of the window; the bounds of their children and of their bytes."""
        rows, whole = window[0], isinstance(window[0], range) and len(window[0]) > 0
        inside = np.arange(rows[0] // 64, rows[-1] // 64 + 1) if whole else np.unique(as_array(rows) // 64)
        at = (as_array(positions)[:, np.newaxis] * each(dims) + inside).ravel()
        return inside, *(items_at(arrays[x], at + k).astype(np.int64) for x in ("ptr", "start") for k in (0, 1))

    def expand(self, arrays, dims, positions, window):
        inside, first, last, at, end = self._blocks(arrays, dims, positions, window)
        coords = decode(arrays["ctl"], at, end, np.tile(64 * inside, len(positions)), last - first)
        counts = (last - first).reshape(len(positions), len(inside)).sum(axis=1)
        return in_window(counts, list(coords), ranges(first, last - first), window)

    def part(self, arrays, dims, positions, window):
        inside, first, last, at, end = self._blocks(arrays, dims, positions, window)
        refuse_outside(at, end, len(arrays["ctl"]))
        if ((first < 0) | (first > last) | (last - first > end - at)).any():
            raise ArrayError(Problem("ptr", "a block has more children than bytes, or less than none"))
        made = {"ctl": items_at(arrays["ctl"], ranges(at, end - at))}
        for role, counts in (("ptr", last - first), ("start", end - at)):
            whole = np.zeros((len(positions), each(dims)), np.int64)
            whole[:, inside] = counts.reshape(len(positions), len(inside))
            made[role] = np.append(0, np.cumsum(whole))
        return made, ranges(first, last - first)

    def check(self, arrays, dims, n, *, order=True):
        ptr, start, ctl = *(arrays[role].astype(np.int64) for role in ("ptr", "start")), arrays["ctl"]
        if problems := [*pointer_problems(ptr, min(ptr[-1], len(ctl))), *pointer_problems(start, len(ctl))]:
            yield from problems
            return
        pointers, coords, _ = self.expand(arrays, dims, range(n), [range(size) for size in dims])
        again, _ = self.build(dims, np.repeat(np.arange(n), np.diff(pointers)), coords, n)
        if any(not np.array_equal(arrays[role], again[role]) for role in again):
            yield Problem("ctl", "the units are not those of coordinates in this shape")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return None if children else 2 * (n * each(dims) + 1) * itemsize  # counts do not tell how wide differences are

    def helpers(self):
        return {"read": read}

    def loop(self, root):
        return """
for b in range(p * ((size0 + 63) // 64), (p + 1) * ((size0 + 63) // 64)):
    i0 = (b - p * ((size0 + 63) // 64)) * 64
    at = start[b]
    first = ptr[b]
    x = 0
    while at < start[b + 1]:
        width = ctl[at] & 3
        count = ctl[at + 1]
        i0 = i0 + (ctl[at] >> 2)
        x = x if ctl[at] < 4 else 0
        at = at + 2
        for q in range(first, first + count):
            x = x + (ctl[at + q - first] if width == 0 else read(ctl, at + ((q - first) << width), width))
            i1 = x
            yield
        first = first + count
        at = at + (count << width)
"""
