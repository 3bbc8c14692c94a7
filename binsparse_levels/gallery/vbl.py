"""vbl: one-dimensional blocks of any lengths.

1D-VBL, and SparseBlockList of Finch. A fiber lists blocks of neighbouring coordinates. A block stores its first one
alone.

    . 5 7 .     ptr   [0, 1, 1, 3]     which blocks a row has
    . . . .     start [1, 0, 3]        the first coordinate of each block
    1 2 . 3     ofs   [0, 2, 4, 5]     which children each block has

The pointers lead to blocks, not to children, so the kind derives from `Level`, not from `Pointed`.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import Problem
from ..levels import ArraySpec, Level, register
from ..levels.base import wrong_lengths
from ..levels.pointers import pointer_problems
from ..levels.positions import as_array, children_of, in_window, ranges


@register
@dataclass(frozen=True)
class Vbl(Level):
    """Fiber p has the blocks ptr[p] … ptr[p+1]; child q of block b has the coordinate start[b] + q - ofs[b].

    References
    ----------
    Pinar and Heath, Improving performance of sparse matrix-vector multiplication, SC 1999.
    """

    kind: ClassVar[str] = "vbl"
    package: ClassVar[str] = "binsparse_levels.gallery"
    formerly: ClassVar[tuple[str, ...]] = ("gallery",)
    max_rank: ClassVar[int] = 1

    def arrays(self, depth, root):
        names = {role: ArraySpec(f"vbl_{role}_{depth}", "integer") for role in ("start", "ofs")}
        return {"ptr": ArraySpec.pointers(depth)} | names

    def lengths(self, lengths, dims, n):
        wanted = {"ptr": None if n is None else n + 1, "ofs": lengths["start"] + 1}
        return None, wrong_lengths(lengths, wanted)

    def size(self, arrays, dims, n):
        return int(arrays["ofs"][-1:][0])

    def build(self, dims, parents, coords, n):
        p, x = as_array(parents), coords[0].astype(np.int64)
        new = np.append(True, (p[1:] != p[:-1]) | (x[1:] != x[:-1]))[: len(p)]
        child, p, x = np.cumsum(new) - 1, p[new], x[new]
        first = np.append(True, (p[1:] != p[:-1]) | (x[1:] != x[:-1] + 1))[: len(p)].nonzero()[0]
        ptr, ofs = np.searchsorted(p[first], np.arange(n + 1)), np.append(first, len(x))
        return {"ptr": ptr, "start": x[first], "ofs": ofs}, child

    def expand(self, arrays, dims, positions, window):
        at, ofs = as_array(positions), arrays["ofs"].astype(np.int64)
        _, b = children_of(arrays["ptr"], at)
        lengths, child = children_of(ofs, b)
        x = ranges(arrays["start"][b].astype(np.int64), lengths)
        return in_window(ofs[arrays["ptr"][at + 1]] - ofs[arrays["ptr"][at]], [x], child, window)

    def check(self, arrays, dims, n, *, order=True):
        ptr, start, ofs = (arrays[role].astype(np.int64) for role in ("ptr", "start", "ofs"))
        if problems := list(pointer_problems(arrays["ptr"], len(start))):
            yield from problems
            return
        end, fiber = start + np.diff(ofs), np.repeat(np.arange(n), np.diff(ptr))
        if ofs[0] or (np.diff(ofs) <= 0).any():
            yield Problem("ofs", "blocks do not follow each other, or are empty")
        elif ((start < 0) | (end > dims[0])).any():
            yield Problem("start", f"a block is outside its dimension of size {dims[0]}")
        elif order and ((start[1:] < end[:-1]) & (np.diff(fiber) == 0)).any():
            yield Problem("start", "blocks do not ascend in a fiber")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return None  # counts do not show how many blocks there are

    def loop(self, root):
        return """
for b in range(ptr[p], ptr[p + 1]):
    for q in range(ofs[b], ofs[b + 1]):
        i0 = start[b] + (q - ofs[b])
        yield
"""
