"""Two sparse operands: functions of cells, and products."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import binsparse_levels as bl
from binsparse_levels import Tensor, pack

from . import peers
from .data import CSF, draw, packed
from .row import Call, Maker, Row


class Pair(NamedTuple):
    """Two tensors of one format and shape."""

    a: Tensor
    b: Tensor


def _pair(format: str, n: int, _: Path) -> Pair:
    """Two tensors with the same rows in another order, so that few cells are stored in both."""
    data = draw("cube" if format == CSF else "plain", n)
    data = data._replace(shape=(max(data.shape),) * len(data.shape))
    coords = [data.coords[0][::-1], *data.coords[1:]]
    return Pair(packed(data, format), packed(data._replace(coords=coords), format))


def _stencil(n: int, _: Path) -> Pair:
    """Two matrices of ten diagonals, seven of them in common."""
    rows = max(n // 10, 20)
    made = []
    for first in (-5, -2):
        i = np.repeat(np.arange(rows), 10)
        j = i + np.tile(np.arange(first, first + 10), rows)
        kept = (j >= 0) & (j < rows)
        made.append(pack([i[kept], j[kept]], 1.0 + i[kept] % 7, (rows, rows), "CSR", fill_value=0))
    return Pair(*made)


def _bitmaps(n: int, folder: Path) -> Pair:
    """Two bitmaps with a density of 20 %."""
    side, generator = max(int((5 * n) ** 0.5), 4), np.random.default_rng(0)
    cells = (generator.integers(1, 9, (side, side)) * (generator.random((side, side)) < 0.2) for _ in range(2))
    return Pair(*(bl.pack_dense(x.astype(np.float64), "dense, bitmap") for x in cells))


def _both(make: Callable[[Tensor], Any], operation: Callable[[Any, Any], Any]) -> Maker:
    """The operation on two tensors of a library."""

    def made(pair: Pair) -> Call:
        a, b = map(make, pair)
        return partial(operation, a, b)

    return made


def _scipy_of_any(tensor: Tensor) -> Any:
    return peers.scipy_csr(tensor.convert("CSR"))


def _sorted_product(a: Any, b: Any) -> Any:
    made = a @ b
    made.sort_indices()
    return made


def _graphblas_product(a: Any, b: Any) -> Any:
    made = a.mxm(b).new()
    made.wait()
    return made


def _mkl_product(pair: Pair) -> Call:
    library, (a, b) = peers.mkl(), map(peers.scipy_csr, pair)
    return lambda: library.dot_product_mkl(a, b, reorder_output=True)


def _added(pair: Pair) -> Any:
    return pair.a + pair.b


def _multiplied(pair: Pair) -> Any:
    return pair.a * pair.b


def _product(pair: Pair) -> Any:
    return pair.a @ pair.b


def rows(n: int) -> list[Row]:
    scipy, pydata = peers.scipy_csr, bl.to_sparse
    plus, times = {"scipy": _both(scipy, lambda a, b: a + b)}, {"scipy": _both(scipy, lambda a, b: a * b)}
    more = {"pydata": _both(pydata, lambda a, b: a * b)}
    product = {
        "scipy": _both(scipy, _sorted_product),
        "GraphBLAS": _both(peers.graphblas_csr, _graphblas_product),
        "MKL": _mkl_product,
    }
    return [
        Row("A * B, CSR", partial(_pair, "CSR", n), _multiplied, times | more),
        Row("A + B, CSR", partial(_pair, "CSR", n), _added, plus),
        Row("A + B, stencils", partial(_stencil, n), _added, plus),
        Row("A * B, bitmaps", partial(_bitmaps, n), _multiplied,
            {"scipy": _both(_scipy_of_any, lambda a, b: a * b)}),
        Row("A @ B, CSR, sorted", partial(_pair, "CSR", n // 5), _product, product),
        Row("log1p(A), CSR", partial(_pair, "CSR", n), lambda pair: np.log1p(pair.a),
            {"numpy": _both(lambda tensor: tensor.values, lambda a, _: np.log1p(a))}),
    ]  # fmt: skip
