"""Entries → trees → other trees, entries, dense arrays; checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from binsparse_levels import Tensor, pack_dense

from . import peers
from .data import CSF, Data, draw, packed, tree
from .peers import directly, graphblas_csr, listed, on, scipy_csr, torch_csr, using
from .row import Maker, Row

_DENSITY = 0.1
_ORDER = 2, 0, 1

_TURNED: dict[str, Maker] = {
    "scipy": on(scipy_csr, lambda m: m.tocsc()),
    "GraphBLAS": on(graphblas_csr, lambda m: m.T.new()),
    "torch": on(torch_csr, lambda m: m.to_sparse_csc()),
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
}


def rows(n: int) -> list[Row]:
    csr, csf = (lambda _: tree("CSR", n)), (lambda _: tree(CSF, n))
    turned = f"{CSF} @ {', '.join(map(str, _ORDER))}"
    return [
        _pack("pack CSR", "plain", n, "CSR", peers.SORTING_MATRICES, headline=True),
        _pack("pack CSF", "cube", n, CSF, peers.SORTING_TENSORS, headline=True),
        _pack("pack CSR, sorted", "sorted", n, "CSR", peers.SORTING_MATRICES),
        _pack("pack CSR, skewed", "skewed", n, "CSR", peers.SORTING_MATRICES),
        Row("dense → CSR", lambda _: _dense(n), lambda x: pack_dense(x, "CSR"), _FROM_DENSE),
        Row("CSR → CSC", csr, lambda t: t.convert("CSC"), _TURNED, headline=True),
        Row("CSR → CSC, five times the entries", lambda _: tree("CSR", 5 * n), lambda t: t.convert("CSC"), _TURNED),
        Row("CSF → CSF of dimensions 2, 0, 1", csf, lambda t: t.convert(turned),
            {"numpy": on(_turned, peers.numpy_argsort)}),
        Row("CSR → dense", lambda _: pack_dense(_dense(n), "CSR"), Tensor.to_dense, _TO_DENSE),
        Row("unpack CSR", csr, Tensor.unpack,
            {"scipy": on(scipy_csr, peers.scipy_entries), "numpy": directly(peers.numpy_rows)}),
        Row("unpack CSF", csf, Tensor.unpack, {"numpy": directly(peers.numpy_list)}),
        Row("check CSR", csr, Tensor.check,
            {"scipy": directly(peers.scipy_check), "numpy": directly(peers.numpy_check)}),
    ]  # fmt: skip


def _pack(name: str, kind: str, n: int, format: str, peers: Mapping[str, Maker], *, headline: bool = False) -> Row:
    return Row(name, lambda _: draw(kind, n), lambda data: packed(data, format), peers, headline)


def _turned(tensor: Tensor) -> Data:
    coords, values, shape = listed(tensor)
    return Data([coords[k] for k in _ORDER], values, tuple(shape[k] for k in _ORDER))


def _dense(n: int) -> Any:
    """A dense matrix of 4 n cells. One cell in ten is not zero."""
    generator = np.random.default_rng(0)
    shape = max(n // 2500, 4), 10_000
    return np.where(generator.random(shape, np.float32) < _DENSITY, generator.integers(1, 100, shape), 0.0)
