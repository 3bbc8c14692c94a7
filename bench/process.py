"""What is paid once in each process, and in each call."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .convert import TURNED
from .data import draw, packed, tree
from .measure import environment
from .peers import SORTING_MATRICES
from .row import BEST, TIME, Call, Maker, Row, Targets

_IMPORT = "from binsparse_levels import Tensor, pack, read, write"
_DRAW = """
import numpy
generator = numpy.random.default_rng(0)
i, j = (generator.integers(0, 1000, 1000, numpy.int32) for _ in range(2))
"""
_PACK = _DRAW + "from binsparse_levels import pack; pack([i, j], i, (1000, 1000), 'CSR', duplicates='sum')"
# With numba there, kernels pack what is more than four thousand entries.
_PACK_COMPILED = "import numba; " + _PACK.replace("0, 1000, 1000", "0, 1000, 5000")
_SCIPY = _DRAW + "from scipy.sparse import coo_array; coo_array((i, (i, j)), (1000, 1000)).tocsr()"
_PYDATA = _DRAW + "from sparse import COO; COO(numpy.stack((i, j)), i, shape=(1000, 1000))"

_SMALL = (100, 200), (2_000, 100), (20_000, 20)  # entries, and calls in a timing


def rows() -> list[Row]:
    few = {name: make for name, make in SORTING_MATRICES.items() if name not in ("numpy", "polars")}
    imported = {"scipy": _peer("scipy", "import scipy.sparse"), "pydata": _peer("sparse", "import sparse")}
    packing = {"scipy": _peer("scipy", _SCIPY), "pydata": _peer("sparse", _PYDATA)}
    return [
        _process("start-up, import", 0, _run(_IMPORT), imported, {BEST: (1, None)}),
        _process("start-up, import and pack", 1000, _run(_PACK), packing, {TIME: (0.2, 0.13)}),
        _process("start-up, first compile and pack", 5000, _compile, {}, {TIME: (2, 1.2)}),
        *(_packing(n, calls, few, {TIME: (40e-6, 20e-6)} if n == 100 else {BEST: (1, 2)}) for n, calls in _SMALL),
        *(_turning(n, calls) for n, calls in _SMALL),
    ]


def _packing(n: int, calls: int, peers: Mapping[str, Maker], targets: Targets) -> Row:
    made, ours = (lambda _: draw("10 a fiber", 2, n)), (lambda data: packed(data, "CSR"))
    return Row("overhead, pack → CSR", n, made, ours, peers, targets, calls=calls)


def _turning(n: int, calls: int) -> Row:
    made, ours = (lambda _: tree("10 a fiber", n, "CSR")), (lambda tensor: tensor.convert("CSC"))
    return Row("overhead, convert, CSR → CSC", n, made, ours, TURNED, {BEST: (1, None)}, calls=calls)


def _process(name: str, n: int, ours: Call, peers: Mapping[str, Maker], targets: Targets) -> Row:
    limits = {"numpy": lambda _: _run("import numpy")}
    return Row(name, n, lambda folder: folder, lambda _: ours(), peers, targets, limits, threaded=False)


def _run(code: str, **variables: str) -> Call:
    # The first run leaves compiled modules, as an installer does for the peers, also where the shell forbids that.
    settings = environment() | {"PYTHONDONTWRITEBYTECODE": ""} | variables
    return lambda: subprocess.run([sys.executable, "-c", code], check=True, env=settings)


def _peer(module: str, code: str) -> Maker:
    def make(_: Path) -> Call:
        importlib.import_module(module)
        return _run(code)

    return make


def _compile() -> None:
    """With a new cache of compiled kernels."""
    with tempfile.TemporaryDirectory() as folder:
        _run(_PACK_COMPILED, NUMBA_CACHE_DIR=folder)()
