"""Level kinds that others might register: those of the notebooks and of the gallery, and one without a loop."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from helpers.kinds import Columns, Short

from binsparse_levels import Level
from binsparse_levels.levels import LEVELS

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@dataclass(frozen=True)
class EllColumns(Columns):
    """A kind without a loop, whose fibers are not in order."""

    width: int = 3
    kind: ClassVar[str] = "ell_columns"
    ordered: ClassVar[bool] = False

    def loop(self, root):
        return None


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
    """The kinds of the gallery; none stays registered."""
    before = dict(LEVELS)
    gallery = importlib.import_module("binsparse_levels.gallery")
    LEVELS.clear()
    LEVELS.update(before)
    return [x for x in vars(gallery).values() if isinstance(x, type) and issubclass(x, Level)]


OF_GALLERY = tuple(of_gallery())
PLUGINS = (*of_notebooks(), EllColumns, Short, *OF_GALLERY)


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
