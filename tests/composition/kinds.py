"""Level kinds that others might register: those of the notebooks, and layouts of the literature in their plainest form.

Each has the six members that a kind must have. Loose, Dia and Sell were written from the documentation; they say their
loops.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import numpy as np

from binsparse_levels import FormatError, Level, Problem
from binsparse_levels.levels import LEVELS, ArraySpec
from binsparse_levels.levels.base import wrong_lengths
from binsparse_levels.levels.pointers import pointer_problems
from binsparse_levels.levels.positions import as_array, inside, items_at, ranges

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def distinct(parents, coords):
    """Which entries have other coordinates than the one before."""
    rows = np.stack([as_array(parents), *coords])
    return np.append(True, (rows[:, 1:] != rows[:, :-1]).any(axis=0))[: rows.shape[1]]


@dataclass(frozen=True)
class EllColumns(Level):
    """ELLPACK by columns, as on GPUs: child slot · n + p. Children do not ascend with their fibers."""

    width: int = 3
    kind: ClassVar[str] = "ell_columns"
    max_rank: ClassVar[int] = 1
    ordered: ClassVar[bool] = False
    monotone: ClassVar[bool] = False
    gaps: ClassVar[bool] = True
    refuses: ClassVar[bool] = True

    def arrays(self, depth, root):
        return {"col": ArraySpec(f"ell_{depth}", "integer")}

    def lengths(self, lengths, dims, n):
        return lengths["col"], wrong_lengths(lengths, {"col": None if n is None else n * self.width})

    def build(self, dims, parents, coords, n):
        p, x = as_array(parents).astype(np.int64), np.asarray(coords[0], np.int64)
        number = np.cumsum(distinct(p, [x])) - 1
        slot = number - number[np.searchsorted(p, p)] if len(p) else number
        if (slot >= self.width).any():
            raise FormatError(Problem("ell_columns", f"a fiber has more than {self.width} entries"))
        col = np.full(n * self.width, dims[0], np.int64)
        col[slot * n + p] = x
        return {"col": col}, slot * n + p

    def expand(self, arrays, dims, positions, window):
        at, n = as_array(positions), len(arrays["col"]) // self.width
        q = (np.arange(self.width)[None, :] * n + at[:, None]).ravel()
        x = arrays["col"][q].astype(np.int64)
        kept = (x < dims[0]) & inside(window, [x])
        return kept.reshape(len(at), self.width).sum(axis=1, dtype=np.int64), [x[kept]], q[kept]

    def check(self, arrays, dims, n, *, order=True):
        x = arrays["col"].astype(np.int64).reshape(self.width, n)
        if ((x < 0) | (x > dims[0])).any():
            yield Problem("col[0]", "is outside its dimension")
        elif ((x[1:] <= x[:-1]) & (x[1:] < dims[0])).any():
            yield Problem("col[0]", "coordinates do not ascend")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return n * self.width * itemsize


@dataclass(frozen=True)
class Loose(Level):
    """loose_compressed of MLIR: fiber p has the children lo[p] … hi[p] - 1, and `slack` free ones behind."""

    slack: int = 1
    kind: ClassVar[str] = "loose"
    max_rank: ClassVar[int] = 1
    gaps: ClassVar[bool] = True

    def arrays(self, depth, root):
        names = {role: ArraySpec(f"loose_{role}_{depth}", "integer") for role in ("lo", "hi")}
        return names | {"idx": ArraySpec(f"loose_idx_{depth}", "index", 0)}

    def lengths(self, lengths, dims, n):
        return lengths["idx"], wrong_lengths(lengths, {"lo": n, "hi": n})

    def build(self, dims, parents, coords, n):
        p, x = as_array(parents), coords[0]
        new = distinct(p, coords)
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
        kept = inside(window, [x])
        fibers = np.repeat(np.arange(len(lo)), hi - lo)[kept]
        return np.bincount(fibers, minlength=len(lo)), [x[kept]], child[kept]

    def check(self, arrays, dims, n, *, order=True):
        lo, hi, idx = (arrays[role].astype(np.int64) for role in ("lo", "hi", "idx"))
        bounds = np.concatenate(([0], np.stack([lo, hi], axis=1).ravel(), [len(idx)]))
        if (np.diff(bounds) < 0).any():
            yield Problem("lo", "fibers do not follow each other")
            return
        x, fibers = idx[ranges(lo, hi - lo)], np.repeat(np.arange(n), hi - lo)
        if ((x < 0) | (x >= dims[0])).any():
            yield Problem("idx", "is outside its dimension")
        elif order and ((np.diff(x) <= 0) & (np.diff(fibers) == 0)).any():
            yield Problem("idx", "does not ascend in a fiber")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return (2 * n + children) * itemsize

    def children(self, dims, n, distinct):
        return distinct + n * self.slack

    def loop(self, root):
        return "for q in range(lo[p], hi[p]):\n    i0 = idx[q]\n    yield"


@dataclass(frozen=True)
class Dia(Level):
    """Diagonals of a matrix: child d * rows + i is the cell (i, i + off[d] - rows + 1), if the matrix has it."""

    rank: int = 2
    kind: ClassVar[str] = "dia"
    min_rank: ClassVar[int] = 2
    max_rank: ClassVar[int] = 2
    ordered: ClassVar[bool] = False
    padded: ClassVar[bool] = True
    gaps: ClassVar[bool] = True

    def arrays(self, depth, root):
        return {"ptr": ArraySpec.pointers(depth), "off": ArraySpec(f"dia_offsets_{depth}", "integer")}

    def lengths(self, lengths, dims, n):
        return lengths["off"] * dims[0], wrong_lengths(lengths, {"ptr": None if n is None else n + 1})

    def build(self, dims, parents, coords, n):
        rows, (i, j) = dims[0], coords
        each = dims[0] + dims[1] - 1
        keys, place = np.unique(as_array(parents) * max(each, 1) + j - i + rows - 1, return_inverse=True)
        ptr = np.searchsorted(keys, np.arange(n + 1) * max(each, 1))
        return {"ptr": ptr, "off": keys % max(each, 1)}, place * rows + i

    def expand(self, arrays, dims, positions, window):
        rows, at = dims[0], as_array(positions)
        first = items_at(arrays["ptr"], at).astype(np.int64)
        counts = items_at(arrays["ptr"], at + 1).astype(np.int64) - first
        d = np.repeat(ranges(first, counts), rows)
        i = np.tile(np.arange(rows), int(counts.sum()))
        j = i + items_at(arrays["off"], d).astype(np.int64) - rows + 1
        kept = (j >= 0) & (j < dims[1]) & inside(window, [i, j])
        fibers = np.repeat(np.arange(len(at)), counts * rows)[kept]
        return np.bincount(fibers, minlength=len(at)), [i[kept], j[kept]], (d * rows + i)[kept]

    def check(self, arrays, dims, n, *, order=True):
        ptr, off = (arrays[role].astype(np.int64) for role in ("ptr", "off"))
        problems = list(pointer_problems(ptr, len(off)))
        yield from problems
        if problems:
            return
        fibers = np.repeat(np.arange(n), np.diff(ptr))
        if ((off < 0) | (off >= dims[0] + dims[1] - 1)).any():
            yield Problem("off", "is outside the matrix")
        elif ((np.diff(off) <= 0) & (np.diff(fibers) == 0)).any():
            yield Problem("off", "does not ascend in a fiber")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return (n + 1 + children // dims[0]) * itemsize if dims[0] else None

    def loop(self, root):
        return (
            "for d in range(ptr[p], ptr[p + 1]):\n"
            "    for i0 in range(size0):\n"
            "        if size0 <= i0 + off[d] + 1 < size0 + size1:\n"
            "            i1 = i0 + off[d] + 1 - size0\n"
            "            q = d * size0 + i0\n"
            "            yield\n"
        )


@dataclass(frozen=True)
class Sell(Level):
    """SELL-C-sigma: fibers sorted by length among sigma, c of them side by side; `place` tells where each lies.

    Entry s of a fiber at place k is child start[k // c] + s * c + k % c. A child of no entry has the size.
    """

    c: int = 4
    sigma: int = 8
    kind: ClassVar[str] = "sell"
    max_rank: ClassVar[int] = 1
    monotone: ClassVar[bool] = False
    gaps: ClassVar[bool] = True

    def arrays(self, depth, root):
        names = {role: ArraySpec(f"sell_{role}_{depth}", "integer") for role in ("start", "place")}
        return names | {"col": ArraySpec(f"sell_col_{depth}", "integer")}

    def _chunks(self, n):
        return -(-n // self.c)

    def lengths(self, lengths, dims, n):
        wanted = {} if n is None else {"start": self._chunks(n) + 1, "place": n}
        return lengths["col"], wrong_lengths(lengths, wanted)

    def build(self, dims, parents, coords, n):
        p, x = as_array(parents), coords[0]
        new = distinct(p, coords)
        counts = np.bincount(p[new], minlength=n)
        sorted_ = np.lexsort((-counts, np.arange(n) // self.sigma))
        place = np.empty(n, np.int64)
        place[sorted_] = np.arange(n)
        lengths = np.zeros(self._chunks(n) * self.c, np.int64)
        lengths[place] = counts
        start = np.append(0, np.cumsum(lengths.reshape(-1, self.c).max(axis=1) * self.c if n else []))
        start = start.astype(np.int64)
        slot = np.cumsum(new) - 1 - (np.cumsum(counts) - counts)[p]
        child = start[place[p] // self.c] + slot * self.c + place[p] % self.c
        col = np.full(start[-1], dims[0], np.int64)
        col[child] = x
        return {"start": start, "place": place, "col": col}, child

    def expand(self, arrays, dims, positions, window):
        place = items_at(arrays["place"], positions).astype(np.int64)
        first = items_at(arrays["start"], place // self.c).astype(np.int64)
        slots = (items_at(arrays["start"], place // self.c + 1).astype(np.int64) - first) // self.c
        fibers = np.repeat(np.arange(len(place)), slots)
        child = ranges(np.zeros_like(slots), slots) * self.c + (first + place % self.c)[fibers]
        x = items_at(arrays["col"], child).astype(np.int64)
        kept = (x < dims[0]) & inside(window, [x])
        return np.bincount(fibers[kept], minlength=len(place)), [x[kept]], child[kept]

    def check(self, arrays, dims, n, *, order=True):
        start, place, col = (arrays[role].astype(np.int64) for role in ("start", "place", "col"))
        if (np.sort(place) != np.arange(n)).any():
            yield Problem("place", "is no permutation of the fibers")
        elif start[0] or start[-1] != len(col) or (np.diff(start) < 0).any() or (start % self.c).any():
            yield Problem("start", "chunks do not follow each other")
        elif ((col < 0) | (col > dims[0])).any():
            yield Problem("col", "is outside its dimension")
        else:
            for k in range(len(start) - 1):
                x = col[start[k] : start[k + 1]].reshape(-1, self.c)
                if order and ((x[1:] <= x[:-1]) & (x[1:] < dims[0])).any():
                    yield Problem("col", f"does not ascend in chunk {k}")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return (self._chunks(n) + 1 + n + children) * itemsize

    def loop(self, root):
        chunk = f"place[p] // {self.c}"
        return (
            f"for q in range(start[{chunk}] + place[p] % {self.c}, start[{chunk} + 1], {self.c}):\n"
            "    i0 = col[q]\n"
            "    if i0 < size0:\n"
            "        yield\n"
        )


def of_notebooks():
    """The kinds that the notebooks register, of their own source."""
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text())["cells"]:
            text = "".join(cell["source"])
            if cell["cell_type"] == "code" and "(Level)" in text:
                module = sys.modules[f"notebook_{path.stem}"] = ModuleType(f"notebook_{path.stem}")
                exec(compile(text.replace("@register\n", ""), str(path), "exec"), vars(module))
                yield from (x for x in vars(module).values() if getattr(x, "__module__", "") == module.__name__)


PLUGINS = (*of_notebooks(), EllColumns, Loose, Dia, Sell)


@contextlib.contextmanager
def registered():
    """The kinds are known within the block."""
    before = dict(LEVELS)
    LEVELS.update({kind.kind: kind for kind in PLUGINS})
    try:
        yield
    finally:
        LEVELS.clear()
        LEVELS.update(before)
