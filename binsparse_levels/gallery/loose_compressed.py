"""loose_compressed: a compressed level with room at the end of each fiber.

The name is MLIR's. A fiber has a begin and an end instead of one pointer, so entries are added without moving those of
other fibers. Free places are children that no entry reaches (`gaps`).

    . 5 . 7     lo  [0, 3, 4]
    . . . .     hi  [2, 3, 7]
    1 2 3 .     idx [1, 3, -, -, 0, 1, 2, -]     with `slack` = 1 free place, here -, in each fiber
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import Problem
from ..levels import ArraySpec, Level, register
from ..levels.base import wrong_lengths
from ..levels.positions import as_array, in_window, items_at, ranges


@register
@dataclass(frozen=True)
class LooseCompressed(Level):
    """Fiber p has the children lo[p] … hi[p] - 1, whose coordinates are idx; `slack` free places follow.

    References
    ----------
    Bik et al., Compiler support for sparse tensor computations in MLIR, ACM TACO 19, 2022.
    """

    slack: int = 1
    kind: ClassVar[str] = "loose_compressed"
    package: ClassVar[str] = "binsparse_levels.gallery"
    formerly: ClassVar[tuple[str, ...]] = ("gallery",)
    max_rank: ClassVar[int] = 1
    gaps: ClassVar[bool] = True

    def arrays(self, depth, root):
        names = {role: ArraySpec(f"loose_{role}_{depth}", "integer") for role in ("lo", "hi")}
        return names | {"idx": ArraySpec(f"loose_idx_{depth}", "index", 0)}

    def lengths(self, lengths, dims, n):
        return lengths["idx"], wrong_lengths(lengths, {"lo": n, "hi": n})

    def build(self, dims, parents, coords, n):
        p, x = as_array(parents), coords[0]
        new = np.append(True, (p[1:] != p[:-1]) | (x[1:] != x[:-1]))[: len(p)]
        counts = np.bincount(p[new], minlength=n)
        hi = np.cumsum(counts + self.slack) - self.slack
        child = np.cumsum(new) - 1 + p * self.slack
        idx = np.zeros(counts.sum() + n * self.slack, np.int64)
        idx[child] = x
        return {"lo": hi - counts, "hi": hi, "idx": idx}, child

    def expand(self, arrays, dims, positions, window):
        lo, hi = (items_at(arrays[role], positions).astype(np.int64) for role in ("lo", "hi"))
        child = ranges(lo, hi - lo)
        x = items_at(arrays["idx"], child)
        return in_window(hi - lo, [x], child, window)

    def check(self, arrays, dims, n, *, order=True):
        lo, hi, idx = (arrays[role].astype(np.int64) for role in ("lo", "hi", "idx"))
        bounds = np.concatenate(([0], np.stack([lo, hi], axis=1).ravel(), [len(idx)]))
        if (np.diff(bounds) < 0).any():
            yield Problem("lo", "fibers do not follow each other")
            return
        x, fiber = idx[ranges(lo, hi - lo)], np.repeat(np.arange(n), hi - lo)
        if ((x < 0) | (x >= dims[0])).any():
            yield Problem("idx", f"a coordinate is outside its dimension of size {dims[0]}")
        elif order and ((np.diff(x) <= 0) & (np.diff(fiber) == 0)).any():
            yield Problem("idx", "coordinates do not ascend in a fiber")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return (2 * n + children) * itemsize

    def children(self, dims, n, distinct):
        return distinct + n * self.slack

    def loop(self, root):
        return "for q in range(lo[p], hi[p]):\n    i0 = idx[q]\n    yield"
