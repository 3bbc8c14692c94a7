"""Level kinds that others might register: those of the notebooks and their gallery, and one without a loop."""

from __future__ import annotations

import contextlib
import importlib
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
from binsparse_levels.levels.positions import as_array, inside

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
GALLERY = sorted((Path(__file__).parents[2] / "notebooks/gallery").glob("*.py"))


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


def of_notebooks():
    """The kinds that the notebooks register, of their own source."""
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text())["cells"]:
            text = "".join(cell["source"])
            if cell["cell_type"] == "code" and "(Level)" in text:
                module = sys.modules[f"notebook_{path.stem}"] = ModuleType(f"notebook_{path.stem}")
                exec(compile(text.replace("@register\n", ""), str(path), "exec"), vars(module))
                yield from (x for x in vars(module).values() if getattr(x, "__module__", "") == module.__name__)


def of_gallery():
    """The kinds of the files of the gallery; none stays registered."""
    before = dict(LEVELS)
    sys.path.insert(0, str(GALLERY[0].parents[1]))
    for path in GALLERY:
        module = importlib.import_module(f"gallery.{path.stem}")
        own = [x for x in vars(module).values() if isinstance(x, type) and x.__module__ == module.__name__]
        yield from (x for x in own if issubclass(x, Level))
    sys.path.pop(0)
    LEVELS.clear()
    LEVELS.update(before)


OF_GALLERY = tuple(of_gallery())
PLUGINS = (*of_notebooks(), EllColumns, *OF_GALLERY)


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
