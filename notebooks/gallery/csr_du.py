"""csr_du: differences of coordinates, in units of one width.

Kourtis, Goumas and Koziris, Optimizing sparse matrix-vector multiplication using index and value compression, CF 2008.
A unit is a byte for the width of its differences (0 to 3: 1, 2, 4 or 8 bytes), one for their number, and them.

    . 5 . 7     ptr   [0, 2, 2, 5]                     which children a row has
    . . . .     start [0, 4, 4, 9]                     which bytes it has
    1 2 3 .     ctl   [0, 2, 1, 2, 0, 3, 0, 1, 1]      width, count, differences; width, count, differences
"""

from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np

from binsparse_levels import Problem
from binsparse_levels.levels import ArraySpec, register
from binsparse_levels.levels.base import wrong_lengths
from binsparse_levels.levels.pointers import Pointed, pointer_problems
from binsparse_levels.levels.positions import as_array, children_of, in_window


@numba.njit
def read(ctl, at, width):
    x = np.uint64(ctl[at])
    for k in range(1, 1 << width):
        x |= np.uint64(ctl[at + k]) << np.uint64(8 * k)
    return x


@numba.njit
def decode(ctl, size):
    """The differences of all units, so many; 0 where the units are too few or broken."""
    steps, at, q = np.zeros(size, np.int64), 0, 0
    while at + 2 <= len(ctl):
        width, count, at = np.int64(ctl[at]), ctl[at + 1], at + 2
        for _ in range(count):
            if q == size or width > 3 or at + (1 << width) > len(ctl):
                return steps
            steps[q] = np.int64(read(ctl, at, width))
            at, q = at + (1 << width), q + 1
    return steps


@register
@dataclass(frozen=True)
class CsrDu(Pointed):
    """Fiber p has the children ptr[p] … ptr[p+1], and the bytes from start[p] on. The paper has no start."""

    kind: ClassVar[str] = "csr_du"
    max_rank: ClassVar[int] = 1

    def arrays(self, depth, root):
        more = {"start": ArraySpec(f"csr_du_start_{depth}", "integer"), "ctl": ArraySpec(f"csr_du_{depth}", "byte")}
        return {"ptr": ArraySpec.pointers(depth)} | more

    def lengths(self, lengths, dims, n):
        return None, wrong_lengths(lengths, dict.fromkeys(("ptr", "start"), None if n is None else n + 1))

    def build(self, dims, parents, coords, n):
        p, x = as_array(parents), coords[0].astype(np.int64)
        new = np.append(True, (p[1:] != p[:-1]) | (x[1:] != x[:-1]))[: len(p)]
        child, p, x = np.cumsum(new) - 1, p[new], x[new]
        first, here = np.append(True, p[1:] != p[:-1])[: len(p)], np.arange(len(p))
        step = np.where(first, x, np.diff(x, prepend=0))
        width = np.searchsorted([2**8, 2**16, 2**32], step, side="right")
        first |= np.diff(width, prepend=0) != 0
        first |= (here - np.maximum.accumulate(here * first)) % 255 == 0
        end = np.cumsum((1 << width) + 2 * first)  # of the bytes of each child
        begin, ctl = end - (1 << width), np.zeros(end[-1] if len(p) else 0, np.uint8)
        ctl[begin[first] - 2], ctl[begin[first] - 1] = width[first], np.diff(here[first], append=len(p))
        for k in range(8):
            wide = k < 1 << width
            ctl[begin[wide] + k] = step[wide] >> 8 * k & 255
        ptr = np.searchsorted(p, np.arange(n + 1))
        return {"ptr": ptr, "start": np.append(0, end)[ptr], "ctl": ctl}, child

    def expand(self, arrays, dims, positions, window):
        (counts, child), (_, at) = (children_of(arrays[role], as_array(positions)) for role in ("ptr", "start"))
        total = np.append(0, np.cumsum(decode(arrays["ctl"][at], len(child))))
        return in_window(counts, [total[1:] - np.repeat(total[np.cumsum(counts) - counts], counts)], child, window)

    def check(self, arrays, dims, n, *, order=True):
        ptr, start, ctl = *(arrays[role].astype(np.int64) for role in ("ptr", "start")), arrays["ctl"]
        if problems := [*pointer_problems(ptr, min(ptr[-1], len(ctl))), *pointer_problems(start, len(ctl))]:
            yield from problems
            return
        _, (x,), _ = self.expand(arrays, dims, range(n), [range(2**63 - 1)])
        again, _ = self.build(dims, np.repeat(np.arange(n), np.diff(ptr))[: len(x)], [x], n)
        if len(x) < ptr[-1] or (x >= dims[0]).any():
            yield Problem("ctl", f"a difference leads outside the dimension of size {dims[0]}")
        elif any(not np.array_equal(arrays[role], again[role]) for role in again):
            yield Problem("ctl", "the units are not those of the coordinates: their lengths or widths differ")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return None  # counts do not tell how wide the differences are

    def helpers(self):
        return {"read": read}

    def loop(self, root):
        return """
at = start[p] + 2
first = ptr[p]
x = 0
while at < start[p + 1]:
    width = ctl[at - 2]
    count = ctl[at - 1]
    for q in range(first, first + (count if width == 0 else 0)):
        x = x + ctl[at + q - first]
        i0 = x
        yield
    for q in range(first, first + (count if width > 0 else 0)):
        x = x + read(ctl, at + ((q - first) << width), width)
        i0 = x
        yield
    first = first + count
    at = at + (count << width) + 2
"""
