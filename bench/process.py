"""Fixed costs of a process and of a call."""

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

_FEW_ENTRIES, _CALLS_PER_TIMING = 100, 200


def rows() -> list[Row]:
    few = {name: make for name, make in SORTING_MATRICES.items() if name not in ("numpy", "polars")}
    return [
        _process("start-up, import", _IMPORT, "import scipy.sparse"),
        _process("start-up, import and pack", _PACK, _SCIPY),
        Row("pack CSR, 100 entries", lambda _: draw("plain", _FEW_ENTRIES), lambda data: packed(data, "CSR"), few,
            calls=_CALLS_PER_TIMING),
    ]  # fmt: skip


def _process(name: str, ours: str, scipy: str) -> Row:
    """A row that runs code in new processes."""

    def peer(_: Path) -> Callable[[], None]:
        importlib.import_module("scipy")
        return lambda: _run(scipy)

    peers: dict[str, Maker] = {"scipy": peer}
    return Row(name, lambda folder: folder, lambda _: _run(ours), peers, waits=True)


def _run(code: str) -> None:
    # The first run writes compiled modules, as installers do for the peers, even if the shell disables that.
    settings = environment() | {"PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, "-c", code], check=True, env=settings)
