"""byte_code: the gaps between coordinates as numbers of 7 bits a byte, and runs of four or more by their length.

A token is twice the number of cells that are skipped, plus 1 if a run follows: then the next number is its length
less 4. The lowest 7 bits of a number come first; all its bytes but the last have their highest bit set.

    . 5 . 7     ptr   [0, 2, 2, 5]     which children a row has
    . . . .     start [0, 2, 2, 5]     which bytes it has
    1 2 3 .     ctl   [2, 2, 0, 0, 0]
"""

from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np

from ..errors import Problem
from ..levels import ArraySpec, register
from ..levels.base import wrong_lengths
from ..levels.pointers import Pointed, pointer_problems
from ..levels.positions import as_array, as_pointers, firsts, in_window, items_at, ranges


@numba.njit
def encode(x, ptr, ctl, start):
    """Write the bytes of all fibers, if `ctl` has room for them, and where they begin."""
    at, numbers = 0, np.empty(2, np.int64)
    for p in range(len(ptr) - 1):
        q, previous, start[p] = ptr[p], 0, at
        while q < ptr[p + 1]:
            stop = q + 1
            while stop < ptr[p + 1] and x[stop] == x[stop - 1] + 1:
                stop += 1
            run = stop - q >= 4
            stop = stop if run else q + 1
            numbers[0], numbers[1] = 2 * (x[q] - previous) + run, stop - q - 4
            for number in numbers[: 1 + run]:
                while True:
                    if at < len(ctl):
                        ctl[at] = (number & 127) | (128 if number > 127 else 0)
                    at, number = at + 1, number >> 7
                    if number == 0:
                        break
            q, previous = stop, x[stop - 1] + 1
    start[len(ptr) - 1] = at


@numba.njit
def number_at(ctl, at, end):
    """The number at a byte, and the next byte; a broken number ends with the bytes."""
    number, shift = np.int64(0), 0
    while at < end and shift < 63:
        byte = np.int64(ctl[at])
        number, at, shift = number | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            break
    return number, at


@numba.njit
def decode(ctl, at, end, counts, out):
    """The coordinates of fibers that have the bytes at … end; -1 where these do not suffice."""
    q = 0
    for p in range(len(at)):
        a, x, stop = at[p], 0, q + counts[p]
        while q < stop and a < end[p]:
            token, a = number_at(ctl, a, end[p])
            length, x = 1, x + (token >> 1)
            if token & 1:
                length, a = number_at(ctl, a, end[p])
                length += 4
            for _ in range(min(length, stop - q)):
                out[q], q, x = x, q + 1, x + 1
        out[q:stop] = -1
        q = stop
    return out


@register
@dataclass(frozen=True)
class ByteCode(Pointed):
    """Fiber p has the children ptr[p] … ptr[p+1], and the bytes start[p] … start[p+1].

    References
    ----------
    Shun, Dhulipala and Blelloch, Smaller and faster: parallel processing of compressed graphs with Ligra+, DCC 2015.
    Boldi and Vigna, The WebGraph framework I: compression techniques, WWW 2004 (runs).
    """

    kind: ClassVar[str] = "byte_code"
    package: ClassVar[str] = "binsparse_levels.gallery"
    max_rank: ClassVar[int] = 1

    def arrays(self, depth, root):
        own = {
            "start": ArraySpec(f"byte_code_start_{depth}", "integer"),
            "ctl": ArraySpec(f"byte_code_{depth}", "byte"),
        }
        return {"ptr": ArraySpec.pointers(depth)} | own

    def lengths(self, lengths, dims, n):
        expected = None if n is None else n + 1
        return None, wrong_lengths(lengths, {"ptr": expected, "start": expected})

    def build(self, dims, parents, coords, n):
        p, x = as_array(parents), coords[0].astype(np.int64)
        new = firsts([p, x])
        ptr, start = np.searchsorted(p[new], np.arange(n + 1)), np.empty(n + 1, np.int64)
        encode(x[new], ptr, np.empty(0, np.uint8), start)
        encode(x[new], ptr, ctl := np.empty(start[-1], np.uint8), start)
        return {"ptr": ptr, "start": start, "ctl": ctl}, np.cumsum(new) - 1

    def expand(self, arrays, dims, positions, window):
        p = as_array(positions)
        first, last, at, end = (items_at(arrays[x], p + k).astype(np.int64) for x in ("ptr", "start") for k in (0, 1))
        x = decode(arrays["ctl"], at, end, last - first, np.empty(int((last - first).sum()), np.int64))
        return in_window(last - first, [x], ranges(first, last - first), window)

    def check(self, arrays, dims, n, *, order=True):
        ptr, start, ctl = *(arrays[role].astype(np.int64) for role in ("ptr", "start")), arrays["ctl"]
        yield from (problems := [*pointer_problems(ptr, min(ptr[-1], n * dims[0])), *pointer_problems(start, len(ctl))])
        if not problems:
            counts, coords, _ = self.expand(arrays, dims, range(n), [range(dims[0])])
            again, _ = self.build(dims, np.repeat(np.arange(n), np.diff(as_pointers(counts, n))), coords, n)
            if any(not np.array_equal(arrays[role], again[role]) for role in again):
                yield Problem("ctl", "the bytes are not those of coordinates in this shape")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return None  # counts do not show how long numbers are

    def loop(self, root):
        number = """
token, shift, byte = 0, 0, 128
while byte >= 128:
    byte = ctl[at]
    token, at, shift = token | ((byte & 127) << shift), at + 1, shift + 7"""
        return f"""
q, at, x = ptr[p], start[p], 0
while q < ptr[p + 1]:{number.replace(chr(10), chr(10) + 4 * " ")}
    x, run, length = x + (token >> 1), token & 1, 1
    if run != 0:{number.replace(chr(10), chr(10) + 8 * " ")}
        length = token + 4
    for k in range(length):
        i0 = x
        yield
        q, x = q + 1, x + 1
"""
