"""roaring: the coordinates of a fiber in containers of 2**16, each a list, a bitmap or a list of runs.

The smallest form is taken: 16 bits for each coordinate, a bit for each cell, or 32 bits for each run. In memory, `data`
has the type of the other arrays; `write(…, narrow=True)` stores 16 bits.

    . 5 . 7     ptr   [0, 1, 1, 2]        which containers a row has
    . . . .     key   [0, 0]              the coordinates of a container are 2**16 · key and above
    1 2 3 .     place [1, 5]              four times its offset in `data`, plus 0 (list), 1 (bitmap) or 2 (runs)
                first [0, 2, 5]           the children of each container
                data  [10, 7]             bits of columns 1 and 3; bits of columns 0, 1 and 2
"""

from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np

from ..errors import Problem
from ..kernels.words import trailing_zeros
from ..levels import ArraySpec, Level, register
from ..levels.base import wrong_lengths
from ..levels.pointers import pointer_problems
from ..levels.positions import as_array, as_pointers, firsts, in_window, items_at, ranges

LIST, BITS, RUNS = range(3)


@numba.njit
def decode(containers, key, place, first, data, out):
    """The coordinates of containers; -1 where `data` ends before them."""
    k = 0
    for c in containers:
        base, at, kind, end = key[c] << 16, place[c] >> 2, place[c] & 3, k + first[c + 1] - first[c]
        low = 0
        while k < end and at < len(data):
            word = np.int64(data[at])
            if kind == LIST:
                out[k] = base + word
                k += 1
            elif kind == BITS:
                for b in range(16):
                    if word >> b & 1 and k < end:
                        out[k] = base + low + b
                        k += 1
                low += 16
            elif at + 1 < len(data):
                for x in range(word, min(word + data[at + 1] + 1, word + end - k)):
                    out[k] = base + x
                    k += 1
                at += 1
            at += 1
        out[k:end] = -1
        k = end
    return out


@register
@dataclass(frozen=True)
class Roaring(Level):
    """Fiber p has the containers ptr[p] … ptr[p+1]; container c has the children first[c] … first[c+1].

    References
    ----------
    Lemire et al., Roaring bitmaps: implementation of an optimized software library, Softw. Pract. Exp. 48, 2018.
    """

    kind: ClassVar[str] = "roaring"
    package: ClassVar[str] = "binsparse_levels.gallery"
    max_rank: ClassVar[int] = 1

    def arrays(self, depth, root):
        roles = ("ptr", "key", "place", "first", "data")
        return {role: ArraySpec(f"roaring_{role}_{depth}", "integer") for role in roles}

    def lengths(self, lengths, dims, n):
        count = lengths["key"]
        return None, wrong_lengths(lengths, {"ptr": None if n is None else n + 1, "place": count, "first": count + 1})

    def size(self, arrays, dims, n):
        return int(arrays["first"][-1:][0])

    def build(self, dims, parents, coords, n):
        p, x = as_array(parents), coords[0].astype(np.int64)
        new = firsts([p, x])
        child, p, x = np.cumsum(new) - 1, p[new], x[new]
        begins = firsts([p, x >> 16])
        starts, of, low = np.flatnonzero(begins), np.cumsum(begins) - 1, x & 65535
        run = begins | (np.diff(x, prepend=-2) != 1)
        heads, runs = np.flatnonzero(run), np.bincount(of[run], minlength=len(starts))
        count, wide = np.diff(starts, append=len(x)), -(-min(dims[0], 65536) // 16)
        sizes = np.stack([count, np.full(len(starts), wide), 2 * runs])
        kind = np.argmin(sizes, axis=0)
        ends = np.cumsum(sizes[kind, np.arange(len(starts))])
        at = np.append(0, ends)[:-1]
        data = np.zeros(ends[-1] if len(ends) else 0, np.uint16)
        here = kind[of] == LIST
        data[(at[of] + np.arange(len(x)) - starts[of])[here]] = low[here]
        here = kind[of] == BITS
        np.bitwise_or.at(data, (at[of] + (low >> 4))[here], (1 << (low[here] & 15)).astype(np.uint16))
        of, length, here = of[heads], np.diff(heads, append=len(x)), kind[of[heads]] == RUNS
        to = (at[of] + 2 * (np.arange(len(heads)) - np.append(0, np.cumsum(runs))[of]))[here]
        data[to], data[to + 1] = low[heads[here]], length[here] - 1
        arrays = {"ptr": np.searchsorted(p[starts], np.arange(n + 1)), "key": x[starts] >> 16, "place": 4 * at + kind}
        return arrays | {"first": np.append(starts, len(x)), "data": data}, child

    def expand(self, arrays, dims, positions, window):
        begin, end = (items_at(arrays["ptr"], as_array(positions) + k).astype(np.int64) for k in (0, 1))
        key, place, first = (arrays[role].astype(np.int64) for role in ("key", "place", "first"))
        containers, counts = as_array(ranges(begin, end - begin)), first[end] - first[begin]
        x = decode(containers, key, place, first, arrays["data"], np.empty(int(counts.sum()), np.int64))
        return in_window(counts, [x], ranges(first[begin], counts), window)

    def check(self, arrays, dims, n, *, order=True):
        ptr, key, place, first = (arrays[role].astype(np.int64) for role in ("ptr", "key", "place", "first"))
        yield from (problems := [*pointer_problems(ptr, len(key)), *pointer_problems(first, first[-1])])
        if problems:
            return
        if (place < 0).any() or (key < 0).any() or first[-1] > min(n * dims[0], 2**16 * len(key)):
            yield Problem("place", "containers are not those of coordinates in this shape")
            return
        counts, coords, _ = self.expand(arrays, dims, range(n), [range(dims[0])])
        again, _ = self.build(dims, np.repeat(np.arange(n), np.diff(as_pointers(counts, n))), coords, n)
        for role in again:
            if not np.array_equal(arrays[role], again[role]):
                yield Problem(role, "is not that of these coordinates")
                return

    def nbytes(self, dims, n, children, *, root, itemsize):
        return None  # counts do not show the form of containers

    def helpers(self):
        return {"trailing_zeros": trailing_zeros}

    def loop(self, root):
        return """
for c in range(ptr[p], ptr[p + 1]):
    base, at, kind = key[c] << 16, place[c] >> 2, place[c] & 3
    if kind == 0:
        for q in range(first[c], first[c + 1]):
            i0 = base + data[at + (q - first[c])]
            yield
    elif kind == 1:
        q, low = first[c], base
        while q < first[c + 1]:
            word = data[at]
            while word != 0:
                i0 = low + trailing_zeros(word)
                word = word & (word - 1)
                yield
                q = q + 1
            at, low = at + 1, low + 16
    else:
        q = first[c]
        while q < first[c + 1]:
            for k in range(data[at + 1] + 1):
                i0 = base + data[at] + k
                yield
                q = q + 1
            at = at + 2
"""
