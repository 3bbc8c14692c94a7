"""pcsr: the coordinates of all fibers in one packed memory array, with gaps among them.

The number of slots is a power of two, of which `fill` per cent at most are taken, spread evenly. A new entry moves only
those up to the next gap.

    . 5 . 7     ptr  [0, 3, 3, 8]                 where the slots of each row begin
    . . . .     slot [1, 3, 4, 0, 1, 4, 2, 4]     4, the size, stands for a gap
    1 2 3 .

Gaps are children that no entry reaches (`gaps`); `children` says how many slots there are.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import Problem
from ..levels import ArraySpec, Level, register
from ..levels.base import wrong_lengths
from ..levels.pointers import pointer_problems
from ..levels.positions import as_array, children_of, inside, items_at


@register
@dataclass(frozen=True)
class Pcsr(Level):
    """Fiber p has the slots ptr[p] … ptr[p+1]. A slot is a child, with a coordinate or the size of the dimension.

    References
    ----------
    Wheatman and Xu, Packed compressed sparse row: a dynamic graph representation, HPEC 2018.
    """

    fill: int = 70
    kind: ClassVar[str] = "pcsr"
    package: ClassVar[str] = "binsparse_levels.gallery"
    formerly: ClassVar[tuple[str, ...]] = ("gallery",)
    max_rank: ClassVar[int] = 1
    gaps: ClassVar[bool] = True

    def arrays(self, depth, root):
        return {"ptr": ArraySpec.pointers(depth), "slot": ArraySpec(f"pcsr_slots_{depth}", "integer")}

    def lengths(self, lengths, dims, n):
        return lengths["slot"], wrong_lengths(lengths, {"ptr": None if n is None else n + 1})

    def children(self, dims, n, distinct):
        return 1 << (100 * distinct // self.fill).bit_length() if distinct else 0

    def build(self, dims, parents, coords, n):
        p, x = as_array(parents), coords[0]
        new = np.append(True, (p[1:] != p[:-1]) | (x[1:] != x[:-1]))[: len(p)]
        count = int(new.sum())
        slots = self.children(dims, n, count)
        at = np.arange(count) * slots // max(count, 1)
        slot = np.full(slots, dims[0], np.int64)
        slot[at] = x[new]
        first = np.searchsorted(p[new], np.arange(n + 1))
        return {"ptr": np.append(at, slots)[first], "slot": slot}, at[np.cumsum(new) - 1]

    def expand(self, arrays, dims, positions, window):
        counts, child = children_of(arrays["ptr"], as_array(positions))
        x = items_at(arrays["slot"], child).astype(np.int64)
        kept = (x < dims[0]) & inside(window, [x])
        fiber = np.repeat(np.arange(len(counts)), counts)[kept]
        return np.bincount(fiber, minlength=len(counts)), [x[kept]], child[kept]

    def check(self, arrays, dims, n, *, order=True):
        ptr, slot = (arrays[role].astype(np.int64) for role in ("ptr", "slot"))
        if problems := list(pointer_problems(arrays["ptr"], len(slot))):
            yield from problems
            return
        taken = slot < dims[0]
        x, fiber = slot[taken], np.repeat(np.arange(n), np.diff(ptr))[taken]
        if ((slot < 0) | (slot > dims[0])).any():
            yield Problem("slot", f"a coordinate is outside its dimension of size {dims[0]}")
        elif order and ((np.diff(x) <= 0) & (np.diff(fiber) == 0)).any():
            yield Problem("slot", "coordinates do not ascend in a fiber")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return (n + 1 + children) * itemsize

    def loop(self, root):
        return """
for q in range(ptr[p], ptr[p + 1]):
    i0 = slot[q]
    if i0 < size0:
        yield
"""
