"""sell: SELL-C-σ, rows of similar lengths side by side.

Of every `sigma` fibers, the longest come first. Chunks of `c` fibers are padded to their longest one, and stored by
columns, so that `c` lanes load neighbours.

    . 5 . 7     place [1, 2, 0]              row 2 comes first, then row 0, then row 1
    . . . .     start [0, 6, 6]              c = 2: rows 2 and 0 take three columns, row 1 none
    1 2 3 .     col   [0, 1, 1, 3, 2, 4]     4, the size, stands for no entry

Children do not ascend with their fibers (`monotone` is False), and padding has no entry (`gaps`).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import Problem
from ..levels import ArraySpec, Level, register
from ..levels.base import wrong_lengths
from ..levels.positions import as_array, inside, items_at, ranges


@register
@dataclass(frozen=True)
class Sell(Level):
    """Entry s of the fiber at place k is child start[k // c] + s * c + k % c, with coordinate col.

    References
    ----------
    Kreutzer et al., A unified sparse matrix data format for efficient general sparse matrix-vector multiplication on
    modern processors with wide SIMD units, SIAM J. Sci. Comput. 36, 2014.
    """

    c: int = 4
    sigma: int = 8
    kind: ClassVar[str] = "sell"
    package: ClassVar[str] = "binsparse_levels.gallery"
    formerly: ClassVar[tuple[str, ...]] = ("gallery",)
    max_rank: ClassVar[int] = 1
    monotone: ClassVar[bool] = False
    gaps: ClassVar[bool] = True

    def arrays(self, depth, root):
        return {role: ArraySpec(f"sell_{role}_{depth}", "integer") for role in ("start", "place", "col")}

    def _chunks(self, n):
        return -(-n // self.c)

    def lengths(self, lengths, dims, n):
        wanted = {} if n is None else {"start": self._chunks(n) + 1, "place": n}
        return lengths["col"], wrong_lengths(lengths, wanted)

    def build(self, dims, parents, coords, n):
        p, x = as_array(parents), coords[0]
        new = np.append(True, (p[1:] != p[:-1]) | (x[1:] != x[:-1]))[: len(p)]
        counts = np.bincount(p[new], minlength=n)
        place = np.empty(n, np.int64)
        place[np.lexsort((-counts, np.arange(n) // self.sigma))] = np.arange(n)
        widths = np.zeros(self._chunks(n) * self.c, np.int64)
        widths[place] = counts
        start = np.append(0, np.cumsum(widths.reshape(-1, self.c).max(axis=1, initial=0) * self.c))
        slot = np.cumsum(new) - 1 - (np.cumsum(counts) - counts)[p]
        child = start[place[p] // self.c] + slot * self.c + place[p] % self.c
        col = np.full(start[-1], dims[0], np.int64)
        col[child] = x
        return {"start": start, "place": place, "col": col}, child

    def expand(self, arrays, dims, positions, window):
        place = items_at(arrays["place"], positions).astype(np.int64)
        first, end = (items_at(arrays["start"], place // self.c + k).astype(np.int64) for k in (0, 1))
        slots = (end - first) // self.c
        fiber = np.repeat(np.arange(len(place)), slots)
        child = ranges(np.zeros_like(slots), slots) * self.c + (first + place % self.c)[fiber]
        x = items_at(arrays["col"], child).astype(np.int64)
        kept = (x < dims[0]) & inside(window, [x])
        return np.bincount(fiber[kept], minlength=len(place)), [x[kept]], child[kept]

    def check(self, arrays, dims, n, *, order=True):
        start, place, col = (arrays[role].astype(np.int64) for role in ("start", "place", "col"))
        if (np.sort(place) != np.arange(n)).any():
            yield Problem("place", "is no permutation of the fibers")
        elif start[0] or start[-1] != len(col) or (np.diff(start) < 0).any() or (start % self.c).any():
            yield Problem("start", "chunks do not follow each other")
        elif ((col < 0) | (col > dims[0])).any():
            yield Problem("col", f"a coordinate is outside its dimension of size {dims[0]}")
        else:
            chunk = np.repeat(np.arange(len(start) - 1), np.diff(start))
            falls = (col[self.c :] <= col[: -self.c]) & (col[self.c :] < dims[0])
            if order and (falls & (chunk[self.c :] == chunk[: -self.c])).any():
                yield Problem("col", "coordinates do not ascend in a fiber")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return (self._chunks(n) + 1 + n + children) * itemsize

    def loop(self, root):
        chunk = f"place[p] // {self.c}"
        return f"""
for q in range(start[{chunk}] + place[p] % {self.c}, start[{chunk} + 1], {self.c}):
    i0 = col[q]
    if i0 < size0:
        yield
"""
