"""Level kinds that others might register: those of the notebooks, and layouts of the literature in their plainest form.

Each has the six members that a kind must have, and nothing that makes it faster; one says its loop.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import numpy as np

from binsparse_levels import FormatError, Level, Problem
from binsparse_levels.levels import LEVELS, ArraySpec
from binsparse_levels.levels.positions import as_array, inside

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def distinct(parents, coords):
    """Which entries have other coordinates than the one before."""
    rows = np.stack([as_array(parents), *coords])
    return np.append(True, (rows[:, 1:] != rows[:, :-1]).any(axis=0))[: rows.shape[1]]


def wrong(lengths, wanted):
    return [
        Problem(role, f"expected a length of {size}, got {lengths[role]}")
        for role, size in wanted.items()
        if lengths[role] != size
    ]


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
        return lengths["col"], [] if n is None else wrong(lengths, {"col": n * self.width})

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
    """Fiber p owns lo[p] … hi[p], with a free child behind every fiber (MLIR's loose_compressed)."""

    kind: ClassVar[str] = "loose"
    max_rank: ClassVar[int] = 1
    gaps: ClassVar[bool] = True

    def arrays(self, depth, root):
        names = {role: ArraySpec(f"loose_{role}_{depth}", "integer") for role in ("lo", "hi")}
        return names | {"idx": ArraySpec(f"loose_idx_{depth}", "index", 0)}

    def lengths(self, lengths, dims, n):
        return lengths["idx"], [] if n is None else wrong(lengths, {"lo": n, "hi": n})

    def build(self, dims, parents, coords, n):
        p, new = as_array(parents), distinct(parents, coords)
        counts = np.bincount(p[new], minlength=n)
        ends = np.cumsum(counts + 1)
        number = np.cumsum(new) - 1 + p  # a free child for each fiber before
        idx = np.zeros(int(ends[-1]) if n else 0, np.int64)
        idx[number] = coords[0]
        return {"lo": ends - counts - 1, "hi": ends - 1, "idx": idx}, number

    def expand(self, arrays, dims, positions, window):
        lo, hi = (arrays[role][as_array(positions)].astype(np.int64) for role in ("lo", "hi"))
        q = np.concatenate([np.empty(0, np.int64), *map(np.arange, lo, hi)])
        x = arrays["idx"][q].astype(np.int64)
        kept = inside(window, [x])
        fiber = np.repeat(np.arange(len(lo)), hi - lo)
        return np.bincount(fiber[kept], minlength=len(lo)), [x[kept]], q[kept]

    def check(self, arrays, dims, n, *, order=True):
        lo, hi, idx = (arrays[role].astype(np.int64) for role in ("lo", "hi", "idx"))
        ends = np.append(hi + 1, len(idx))  # exactly one free child behind each fiber
        if (lo != np.append(0, ends[:-1])[:n]).any() or (hi < lo).any() or (n and ends[n - 1] != len(idx)):
            yield Problem("lo[0]", "fibers do not follow each other")
            return
        for a, b in zip(lo, hi, strict=True):
            fiber = idx[a:b]
            if ((fiber < 0) | (fiber >= dims[0])).any() or (np.diff(fiber) <= 0).any():
                yield Problem(f"idx[{a}]", "coordinates do not ascend in their dimension")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return (2 * n + children) * itemsize


@dataclass(frozen=True)
class Diagonals(Level):
    """Diagonals j - i of a matrix, ascending: child d · rows + i. The rank is 2, and whole diagonals are stored."""

    rank: int = 2
    kind: ClassVar[str] = "diagonals"
    min_rank: ClassVar[int] = 2
    max_rank: ClassVar[int] = 2
    ordered: ClassVar[bool] = False
    gaps: ClassVar[bool] = True
    padded: ClassVar[bool] = True

    def arrays(self, depth, root):
        return {"ends": ArraySpec(f"dia_ends_{depth}", "integer"), "off": ArraySpec(f"dia_{depth}", "integer")}

    def lengths(self, lengths, dims, n):
        return lengths["off"] * dims[0], [] if n is None else wrong(lengths, {"ends": n})

    def build(self, dims, parents, coords, n):
        p, i, j = (np.asarray(x, np.int64) for x in (as_array(parents), *coords))
        span = dims[0] + dims[1]
        keys, inverse = np.unique(p * span + j - i + dims[0], return_inverse=True)
        ends = np.searchsorted(keys, np.arange(1, n + 1) * span)
        return {"ends": ends, "off": keys % max(span, 1)}, inverse * dims[0] + i

    def expand(self, arrays, dims, positions, window):
        at, ends = as_array(positions), np.append(0, arrays["ends"].astype(np.int64))
        d = np.concatenate([np.empty(0, np.int64), *(np.arange(ends[p], ends[p + 1]) for p in at)])
        fiber = np.repeat(np.arange(len(at)), (ends[at + 1] - ends[at]) * dims[0])
        i = np.tile(np.arange(dims[0]), len(d))
        d = np.repeat(d, dims[0])
        j = i + arrays["off"][d].astype(np.int64) - dims[0]
        kept = (j >= 0) & (j < dims[1])
        kept[kept] = inside(window, [i[kept], j[kept]])
        return np.bincount(fiber[kept], minlength=len(at)), [i[kept], j[kept]], (d * dims[0] + i)[kept]

    def check(self, arrays, dims, n, *, order=True):
        ends, off = (arrays[role].astype(np.int64) for role in ("ends", "off"))
        if (np.diff(ends, prepend=0) < 0).any() or (ends[-1] if n else 0) != len(off):
            yield Problem("ends[0]", "do not ascend to the number of diagonals")
        elif ((off <= 0) | (off >= dims[0] + dims[1])).any():
            yield Problem("off[0]", "a diagonal is outside of the matrix")
        else:
            starts = np.append(0, ends)[:-1]
            still = np.flatnonzero(np.diff(off) <= 0) + 1
            if np.setdiff1d(still, starts).size:
                yield Problem("off[0]", "diagonals do not ascend")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return (n + children // dims[0]) * itemsize if dims[0] else None


@dataclass(frozen=True)
class Sell(Level):
    """SELL-C-sigma: c fibers side by side, as wide as the longest, sorted by length within windows of sigma fibers.

    Child number s of fiber p is start[lane[p] // c] + s * c + lane[p] % c. A cell without an entry holds the size.
    """

    c: int = 2
    sigma: int = 4
    kind: ClassVar[str] = "sell"
    max_rank: ClassVar[int] = 1
    monotone: ClassVar[bool] = False
    gaps: ClassVar[bool] = True

    def chunks(self, n):
        return -(-n // self.c)

    def arrays(self, depth, root):
        names = {"start": "starts", "lane": "lanes", "col": "columns"}
        return {role: ArraySpec(f"sell_{name}_{depth}", "integer") for role, name in names.items()}

    def lengths(self, lengths, dims, n):
        return lengths["col"], [] if n is None else wrong(lengths, {"start": self.chunks(n) + 1, "lane": n})

    def build(self, dims, parents, coords, n):
        p, x = as_array(parents).astype(np.int64), np.asarray(coords[0], np.int64)
        new = distinct(p, [x])
        counts = np.bincount(p[new], minlength=n)
        order = np.lexsort((-counts, np.arange(n) // self.sigma))  # the fiber at each place
        lane = np.empty(n, np.int64)
        lane[order] = np.arange(n)
        widths = np.zeros(self.chunks(n) * self.c, np.int64)
        widths[:n] = counts[order]
        start = np.append(0, np.cumsum(widths.reshape(-1, self.c).max(axis=1, initial=0) * self.c))
        number = np.cumsum(new) - 1
        slot = number - (np.cumsum(counts) - counts)[p]
        child = start[lane[p] // self.c] + slot * self.c + lane[p] % self.c
        col = np.full(int(start[-1]), dims[0], np.int64)
        col[child] = x
        return {"start": start, "lane": lane, "col": col}, child

    def expand(self, arrays, dims, positions, window):
        at = as_array(positions)
        lane = arrays["lane"][at].astype(np.int64)
        start = arrays["start"].astype(np.int64)
        chunk = lane // self.c
        widths = (start[chunk + 1] - start[chunk]) // self.c
        fiber = np.repeat(np.arange(len(at)), widths)
        slot = np.arange(len(fiber)) - np.repeat(np.cumsum(widths) - widths, widths)
        q = start[chunk[fiber]] + slot * self.c + lane[fiber] % self.c
        x = arrays["col"][q].astype(np.int64)
        kept = (x < dims[0]) & inside(window, [x])
        return np.bincount(fiber[kept], minlength=len(at)), [x[kept]], q[kept]

    def check(self, arrays, dims, n, *, order=True):
        start, lane, col = (arrays[role].astype(np.int64) for role in ("start", "lane", "col"))
        if start[0] != 0 or (np.diff(start) < 0).any() or (start % self.c).any() or start[-1] != len(col):
            yield Problem("start[0]", "chunks do not follow each other")
        elif (np.sort(lane) != np.arange(n)).any():
            yield Problem("lane[0]", "is no permutation of the fibers")
        elif ((col < 0) | (col > dims[0])).any():
            yield Problem("col[0]", "is outside its dimension")
        else:
            for a, b in itertools.pairwise(start):
                x = col[a:b].reshape(-1, self.c)
                if ((x[1:] <= x[:-1]) & (x[1:] < dims[0])).any():
                    yield Problem(f"col[{a}]", "coordinates do not ascend")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return (self.chunks(n) + 1 + n + children) * itemsize

    def loop(self, root):
        return f"""
for q in range(start[lane[p] // {self.c}] + lane[p] % {self.c}, start[lane[p] // {self.c} + 1], {self.c}):
    i0 = col[q]
    if i0 < size0:
        yield
"""


def of_notebooks():
    """The kinds that the notebooks register, of their own source."""
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text())["cells"]:
            text = "".join(cell["source"])
            if cell["cell_type"] == "code" and "(Level)" in text:
                module = sys.modules[f"notebook_{path.stem}"] = ModuleType(f"notebook_{path.stem}")
                exec(compile(text.replace("@register\n", ""), str(path), "exec"), vars(module))
                yield from (x for x in vars(module).values() if getattr(x, "__module__", "") == module.__name__)


PLUGINS = (*of_notebooks(), EllColumns, Loose, Diagonals, Sell)


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
