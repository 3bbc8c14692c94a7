"""Trees → other trees, entries, dense arrays; checks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np

from binsparse_levels import Tensor, pack, pack_dense

from . import peers
from .data import COO_3, CSF, FIBERS, REGIMES, Data, draw, short, tree
from .peers import SORTING, directly, graphblas_csr, listed, on, pydata_csr, scipy_csr, torch_csr, using, widened
from .row import BEST, Maker, Row, Targets

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
_PERMUTED: dict[str, Maker] = {name: SORTING[name] for name in ("numpy", "torch")}
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
    "numpy": directly(peers.numpy_counts),
    "numpy, searching": directly(peers.numpy_searches),
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


# Source, target, peers, gates, data.
_CONVERSIONS: tuple[tuple[str, str, Mapping[str, Maker], Targets, tuple[str, ...]], ...] = (
    ("CSR", "CSC", TURNED, {BEST: (2, 3.5)}, tuple(FIBERS)),
    ("CSR", "CSC", TURNED, {BEST: (1.3, 2)}, ("skewed",)),
    ("CSR", "COO", _TO_COO, {"numpy": (2, 3)}, REGIMES),
    ("CSR", "DCSR", _TO_DCSR, {"numpy": (2, 3)}, REGIMES),
    ("DCSR", "CSR", {"numpy": directly(peers.numpy_csr)}, {"numpy": (2, 3)}, REGIMES),
    ("COO", "CSR", _FROM_COO, {"numpy": (2, 5)}, REGIMES),
    (COO_3, CSF, {"numpy": directly(peers.numpy_tree)}, {"numpy": (2, 3)}, REGIMES),
    (CSF, COO_3, _LISTED, {"numpy": (2, 3)}, REGIMES),
)
_EVEN: Targets = {BEST: (1, None)}


def _scipy_entries(matrix: Any) -> Any:
    coo = matrix.tocoo(copy=False)
    return widened((coo.coords, coo.data))


_UNPACKED: tuple[tuple[str, str | None, Mapping[str, Maker]], ...] = (
    (
        "CSR",
        None,
        {
            "scipy": on(scipy_csr, _scipy_entries),
            "numpy": directly(lambda tensor: widened(peers.numpy_rows(tensor))),
        },
    ),
    (CSF, None, {"numpy": directly(lambda tensor: widened(peers.numpy_list(tensor)))}),
    ("CSR", "stored", {"scipy": _TO_COO["scipy"], "numpy": _ROWS["numpy"]}),
    (CSF, "stored", _LISTED),
)
_CHECKS: tuple[tuple[str, Mapping[str, Maker], float, tuple[str, ...]], ...] = (
    ("CSR", _CHECKED, 0.5, REGIMES),
    (COO_3, {"numpy": directly(peers.numpy_check_list)}, 0.5, ("1 a fiber", "skewed")),
    (CSF, {"numpy": directly(peers.numpy_check)}, 0.3, REGIMES),
)


def rows(n: int) -> list[Row]:
    orders = [order for order in permutations(range(3)) if order != (0, 1, 2)]
    found = []
    for kind in REGIMES:  # outermost, for the trees are kept from row to row
        found += [_convert(kind, n, *what) for *what, kinds in _CONVERSIONS if kind in kinds]
        found += [_permute(kind, n, order, {"torch": (10, 20)}) for order in orders]
        found += [_unpack(kind, n, *how) for how in _UNPACKED]
        found += [_check(kind, n, *what) for *what, kinds in _CHECKS if kind in kinds]
    return [
        *found,
        *(_from_dense(n, density) for density in _DENSITIES),
        *(_to_dense(n, density) for density in _DENSITIES),
        Row(
            "expand structure, symmetric, CSR",
            n,
            lambda _: _lower(n // 2),
            lambda half: half.expand_structure(),
            _WHOLE,
            {BEST: (2, 3)},
        ),
    ]


def _convert(kind: str, n: int, source: str, target: str, makers: Mapping[str, Maker], targets: Targets) -> Row:
    name = f"convert, {kind}, {short(source)} → {short(target)}"
    return Row(name, n, lambda _: tree(kind, n, source), lambda t: t.convert(target), makers, targets)


def _permute(kind: str, n: int, order: tuple[int, ...], targets: Targets) -> Row:
    target = f"{CSF} @ {', '.join(map(str, order))}"

    def turned(tensor: Tensor) -> Data:
        coords, values, shape = listed(tensor)
        return Data([coords[k] for k in order], values, tuple(shape[k] for k in order))

    makers: dict[str, Maker] = {name: lambda t, make=make: make(turned(t)) for name, make in _PERMUTED.items()}
    name = f"convert, {kind}, CSF (0, 1, 2) → {order}"
    return Row(name, n, lambda _: tree(kind, n, CSF), lambda t: t.convert(target), makers, targets)


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


def _unpack(kind: str, n: int, format: str, dtype: Any, makers: Mapping[str, Maker]) -> Row:
    name = f"unpack, {kind}, {short(format)}" + (", as stored" if dtype else "")
    ours = (lambda t: t.unpack(dtype)) if dtype else Tensor.unpack  # which an earlier package has too
    return Row(name, n, lambda _: tree(kind, n, format), ours, makers, _EVEN)


def _check(kind: str, n: int, format: str, makers: Mapping[str, Maker], gate: float) -> Row:
    name, targets = f"check, {kind}, {short(format)}", {BEST: (2, None), "sum": (gate, 0.8)}
    limits: dict[str, Maker] = {"sum": directly(lambda t: [x.sum(dtype=x.dtype) for x in t.arrays.values()])}
    return Row(name, n, lambda _: tree(kind, n, format), Tensor.check, makers, targets, limits)


def _lower(n: int) -> Tensor:
    (i, j), values, shape = draw("10 a fiber", 2, n)
    coords = [np.maximum(i, j), np.minimum(i, j)]
    return pack(coords, values, (max(shape),) * 2, "CSR", duplicates="sum", structure="symmetric_lower")


def _bare(half: Tensor) -> Tensor:
    """The stored triangle alone."""
    return Tensor("CSR", half.shape, half.arrays, half.values, check="none")
