"""Trees → other trees, entries, dense arrays; checks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np

from binsparse_levels import Tensor, pack, pack_dense

from . import peers
from .data import Data, csf, draw, packed
from .peers import SORTING, directly, graphblas_csr, listed, on, pydata_csr, scipy_csr, torch_csr, using
from .row import BEST, Maker, Row, Targets

_CSF, _COO = csf(3), "sparse(3)"
_DENSITIES = (0.001, 0.01, 0.1, 0.5)

_ROWS: dict[str, Maker] = {"numpy": directly(peers.numpy_rows), "GraphBLAS": on(graphblas_csr, lambda m: m.to_coo())}
_LISTED: dict[str, Maker] = {"numpy": directly(peers.numpy_list)}
_CHECKED: dict[str, Maker] = {"scipy": directly(peers.scipy_check), "numpy": directly(peers.numpy_check)}
TURNED: dict[str, Maker] = {
    "scipy": on(scipy_csr, lambda m: m.tocsc()),
    "GraphBLAS": on(graphblas_csr, lambda m: m.T.new()),
    "torch": on(torch_csr, lambda m: m.to_sparse_csc()),
    "pydata": on(pydata_csr, lambda m: m.change_compressed_axes((1,))),
}
_PERMUTED: dict[str, Maker] = {name: SORTING[name] for name in ("numpy", "torch", "pydata")}
_TO_COO: dict[str, Maker] = {
    "scipy": on(scipy_csr, lambda m: m.tocoo(copy=False)),
    "torch": on(torch_csr, lambda m: m.to_sparse_coo()),
    **_ROWS,
}
_TO_DCSR: dict[str, Maker] = {
    "numpy": directly(peers.numpy_dcsr),
    "GraphBLAS": on(graphblas_csr, lambda m: m.ss.export("hypercsr")),
}
_FROM_COO: dict[str, Maker] = {
    "scipy": on(peers.scipy_sorted, lambda m: m.tocsr()),
    "GraphBLAS": lambda tensor: peers.graphblas_build(listed(tensor)),
    "torch": on(lambda tensor: peers.torch_coo(listed(tensor)).coalesce(), lambda m: m.to_sparse_csr()),
}
_FROM_DENSE: dict[str, Maker] = {
    "scipy": using("scipy.sparse", lambda sparse, x: sparse.csr_array(x)),
    "torch": using("torch", lambda torch, x: torch.from_numpy(x).to_sparse_csr()),
    "GraphBLAS": using("graphblas", peers.graphblas_from_dense),
    "pydata": using("sparse", lambda sparse, x: sparse.COO.from_numpy(x)),
}
_TO_DENSE: dict[str, Maker] = {
    "scipy": on(scipy_csr, lambda m: m.toarray()),
    "torch": on(torch_csr, lambda m: m.to_dense()),
    "GraphBLAS": on(graphblas_csr, lambda m: m.to_dense(fill_value=0.0)),
    "pydata": on(pydata_csr, lambda m: m.todense()),
}
_WHOLE: dict[str, Maker] = {
    "scipy": using("scipy.sparse", lambda sp, m: m + sp.tril(m, -1).T, lambda half: scipy_csr(_bare(half))),
    "GraphBLAS": using(
        "graphblas", lambda gb, m: gb.binary.first(m | m.T).new(), lambda half: graphblas_csr(_bare(half))
    ),
}


def rows(n: int, others: list[int]) -> list[Row]:
    kept: Targets = {BEST: (2, 3)}
    turned: Targets = {"GraphBLAS": (1.5, 2.2), "scipy": (2.4, 3.5)}
    permuted: Targets = {"torch": (15, 30)}
    even: Targets = {BEST: (1, None)}
    return [
        *(_convert("uniform", m, "CSR", "CSC", TURNED, turned) for m in [n, *others]),
        _convert("skewed", n, "CSR", "CSC", TURNED, turned),
        _convert("uniform", n, "CSR", "COO", _TO_COO, kept),
        _convert("uniform", n, "CSR", "DCSR", _TO_DCSR, kept),
        _convert("uniform", n, "DCSR", "CSR", {"numpy": directly(peers.numpy_csr)}, kept),
        _convert("uniform", n, "COO", "CSR", _FROM_COO, {BEST: (2, 5)}),
        _convert("uniform", n, _COO, _CSF, {"numpy": directly(peers.numpy_tree)}, even),
        _convert("uniform", n, _CSF, _COO, _LISTED, even),
        *(_permute(n, order, permuted) for order in permutations(range(3)) if order != (0, 1, 2)),
        *(_from_dense(n, density) for density in _DENSITIES),
        *(_to_dense(n, density) for density in _DENSITIES),
        _unpack(n, "CSR", {"scipy": on(scipy_csr, peers.scipy_unpack), **_ROWS}, even),
        _unpack(n, _CSF, _LISTED, even),
        _check("uniform", n, "CSR", _CHECKED),
        _check("skewed", n, "CSR", _CHECKED),
        _check("uniform", n, _COO, {"numpy": directly(peers.numpy_check_list)}),
        _check("uniform", n, _CSF, {"numpy": _CHECKED["numpy"]}),
        Row(
            "expand structure, symmetric, CSR",
            n,
            lambda _: _lower(n // 2),
            lambda half: half.expand_structure(),
            _WHOLE,
            {BEST: (2, 3)},
        ),
    ]


def _short(format: str) -> str:
    return {_CSF: "CSF", _COO: "COO of rank 3"}.get(format, format)


def _tensor(kind: str, n: int, format: str) -> Tensor:
    return packed(draw(kind, 3 if format in (_CSF, _COO) else 2, n), format)


def _convert(kind: str, n: int, source: str, target: str, makers: Mapping[str, Maker], targets: Targets) -> Row:
    name = f"convert, {kind}, {_short(source)} → {_short(target)}"
    return Row(name, n, lambda _: _tensor(kind, n, source), lambda t: t.convert(target), makers, targets)


def _permute(n: int, order: tuple[int, ...], targets: Targets) -> Row:
    target = f"{_CSF} @ {', '.join(map(str, order))}"

    def turned(tensor: Tensor) -> Data:
        coords, values, shape = listed(tensor)
        return Data([coords[k] for k in order], values, tuple(shape[k] for k in order))

    makers: dict[str, Maker] = {name: lambda t, make=make: make(turned(t)) for name, make in _PERMUTED.items()}
    name = f"convert, uniform, CSF (0, 1, 2) → {order}"
    return Row(name, n, lambda _: _tensor("uniform", n, _CSF), lambda t: t.convert(target), makers, targets)


def _matrix(n: int, density: float) -> Any:
    """A dense matrix of four cells for each of n entries."""
    generator = np.random.default_rng(0)
    shape = max(n // 2500, 4), 10_000
    return np.where(generator.random(shape, np.float32) < density, generator.integers(1, 100, shape), 0.0)


def _from_dense(n: int, density: float) -> Row:
    targets: Targets = {"torch": (1.7, 3), "scipy": (4, 10)}
    limits: dict[str, Maker] = {"sum": lambda dense: dense.sum}
    name = f"convert, dense → CSR, density {density:g}"
    return Row(name, 4 * n, lambda _: _matrix(n, density), lambda x: pack_dense(x, "CSR"), _FROM_DENSE, targets, limits)


def _to_dense(n: int, density: float) -> Row:
    name = f"convert, CSR → dense, density {density:g}"
    targets: Targets = {BEST: (0.95, 1.2)}
    return Row(name, 4 * n, lambda _: pack_dense(_matrix(n, density), "CSR"), Tensor.to_dense, _TO_DENSE, targets)


def _unpack(n: int, format: str, makers: Mapping[str, Maker], targets: Targets) -> Row:
    name = f"unpack, uniform, {_short(format)}"
    return Row(name, n, lambda _: _tensor("uniform", n, format), Tensor.unpack, makers, targets)


def _check(kind: str, n: int, format: str, makers: Mapping[str, Maker]) -> Row:
    name, targets = f"check, {kind}, {_short(format)}", {BEST: (2, None), "sum": (0.5, 0.8)}
    limits: dict[str, Maker] = {"sum": directly(lambda t: [x.sum(dtype=x.dtype) for x in t.arrays.values()])}
    return Row(name, n, lambda _: _tensor(kind, n, format), Tensor.check, makers, targets, limits)


def _lower(n: int) -> Tensor:
    (i, j), values, shape = draw("uniform", 2, n)
    coords = [np.maximum(i, j), np.minimum(i, j)]
    return pack(coords, values, shape, "CSR", duplicates="sum", structure="symmetric_lower")


def _bare(half: Tensor) -> Tensor:
    """The stored triangle alone."""
    return Tensor("CSR", half.shape, half.arrays, half.values, check="none")
