"""Write a level kind with at most one coordinate per fiber, and store a tensor in it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import binsparse_levels as bl
from binsparse_levels.levels import ArraySpec, register
from binsparse_levels.levels.positions import as_array, inside


@register
@dataclass(frozen=True)
class Single(bl.Level):
    """One coordinate at most in each fiber: at[p], or the size of the dimension where there is none."""

    kind: ClassVar[str] = "single"
    max_rank: ClassVar[int] = 1
    gaps: ClassVar[bool] = True

    def arrays(self, depth, root):
        return {"at": ArraySpec(f"single_{depth}", "index", dimension=0)}

    def lengths(self, lengths, dims, n):
        wrong = n is not None and lengths["at"] != n
        return n, [bl.Problem("at", f"expected a length of {n}, got {lengths['at']}")] if wrong else []

    def build(self, dims, parents, coords, n):
        at = np.full(n, dims[0], np.int64)
        at[as_array(parents)] = coords[0]
        return {"at": at}, as_array(parents)

    def expand(self, arrays, dims, positions, window):
        p = as_array(positions)
        x = arrays["at"][p].astype(np.int64)
        kept = (x < dims[0]) & inside(window, [x])
        return kept.astype(np.int64), [x[kept]], p[kept]

    def check(self, arrays, dims, n, *, order=True):
        for p in np.flatnonzero((arrays["at"] < 0) | (arrays["at"] > dims[0]))[:1]:
            yield bl.Problem(f"at[{p}]", f"{arrays['at'][p]} is outside its dimension of size {dims[0]}")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return n * itemsize


labels = np.array([2, 0, 3, 3, 1, 0])
bl.write("a.h5", bl.pack([np.arange(6), labels], 1.0, (6, 4), "dense, single"))
assert np.array_equal(bl.read("a.h5").convert("CSC").to_dense().argmax(axis=1), labels)
