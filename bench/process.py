"""What is paid once in each process, and in each call."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from .data import draw, packed
from .measure import environment
from .peers import SORTING_MATRICES
from .row import Maker, Row

_IMPORT = "from binsparse_levels import Tensor, pack, read, write"
_DRAW = """
import numpy
generator = numpy.random.default_rng(0)
i, j = (generator.integers(0, 1000, 1000, numpy.int32) for _ in range(2))
"""
_PACK = _DRAW + "from binsparse_levels import pack; pack([i, j], i, (1000, 1000), 'CSR', duplicates='sum')"
_SCIPY = _DRAW + "from scipy.sparse import coo_array; coo_array((i, (i, j)), (1000, 1000)).tocsr()"

_SMALL, _CALLS = 100, 200  # entries, and calls in a timing


def rows() -> list[Row]:
    few = {name: make for name, make in SORTING_MATRICES.items() if name not in ("numpy", "polars")}
    return [
        _process("start-up, import", _IMPORT, "import scipy.sparse"),
        _process("start-up, import and pack", _PACK, _SCIPY),
        Row("pack CSR, 100 entries", lambda _: draw("plain", _SMALL), lambda data: packed(data, "CSR"), few,
            calls=_CALLS),
    ]  # fmt: skip


def _process(name: str, ours: str, scipy: str) -> Row:
    """New processes that run this code."""

    def peer(_: Path) -> Callable[[], None]:
        importlib.import_module("scipy")
        return lambda: _run(scipy)

    peers: dict[str, Maker] = {"scipy": peer}
    return Row(name, lambda folder: folder, lambda _: _run(ours), peers, waits=True)


def _run(code: str) -> None:
    # The first run leaves compiled modules, as an installer does for the peers, also where the shell forbids that.
    settings = environment() | {"PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, "-c", code], check=True, env=settings)
