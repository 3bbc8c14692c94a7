"""Reductions and products over trees, in memory and from a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import binsparse_levels as bl
from binsparse_levels import Tensor, pack, write

from . import peers
from .data import CSF, integers, tree
from .row import Call, Maker, Row

_COLUMNS = 32  # columns of dense operands
_BLOCK_ENTRIES = 2**17  # for peers that require a dense row for each entry


class Operands(NamedTuple):
    """A tensor, dense operands, and a file."""

    tensor: Tensor
    dense: list[Any]
    path: Path


def _matrix(n: int, width: int, folder: Path) -> Operands:
    tensor = tree("CSR", n)
    shape = (tensor.shape[1], width) if width else (tensor.shape[1],)
    return Operands(tensor, [integers(*shape)], folder)


def _cube(n: int, folder: Path) -> Operands:
    """A tensor of rank 3 with a density of 1 %."""
    generator, side = np.random.default_rng(3), max(int((100 * n) ** (1 / 3)), 2)
    shape = 2 * side, side, side // 2 + 1
    coords = [generator.integers(0, size, n) for size in shape]
    values = generator.integers(1, 9, n).astype(np.float64)
    tensor = pack(coords, values, shape, CSF, duplicates="sum", fill_value=0)
    return Operands(tensor, [integers(size, _COLUMNS) for size in shape[1:]], folder / "a.h5")


def _in_file(n: int, folder: Path) -> Operands:
    operands = _cube(n, folder)
    write(operands.path, operands.tensor)
    return operands


# Peers


def _of(make: Callable[[Tensor], Any], operation: Callable[..., Any]) -> Maker:
    """The operation on the tensor of a library and the dense operands."""

    def made(operands: Operands) -> Call:
        other = make(operands.tensor)
        return lambda: operation(other, *operands.dense)

    return made


def _torch_product(matrix: Any, dense: Any) -> Any:
    import torch

    return matrix @ torch.from_numpy(dense)


def _mkl_product(operands: Operands) -> Call:
    return partial(peers.mkl().dot_product_mkl, peers.scipy_csr(operands.tensor), *operands.dense)


def _tensora(expression: str, format: str, output: str) -> Maker:
    """The expression of A, the tensor in this format, and of the dense operands B and C."""

    def made(operands: Operands) -> Call:
        import tensora

        coords, values = operands.tensor.unpack()
        lists, shape = tuple(x.tolist() for x in coords), operands.tensor.shape
        a = tensora.Tensor.from_soa(lists, values.tolist(), dimensions=shape, format=format)
        named = dict(zip("ABC", [a, *map(tensora.Tensor.from_numpy, operands.dense)], strict=False))
        return lambda: tensora.evaluate(expression, output, **named)

    return made


def _finch_product(operands: Operands) -> Call:
    """Compiled by numba, for which all indices must have 64 bits."""
    import finch

    finch.set_default_scheduler(finch.COMPILE_NUMBA)
    matrix = peers.scipy_csr(operands.tensor)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return partial(finch.matmul, finch.asarray(matrix), finch.asarray(*operands.dense))


def _graphblas_product(matrix: Any, dense: Any) -> Any:
    import graphblas

    return matrix.mxv(graphblas.Vector.from_dense(dense)).new().to_dense(fill_value=0)


def _graphblas_sum(matrix: Any, *_: Any) -> Any:
    return matrix.reduce_rowwise("plus").new().to_dense(fill_value=0)


def _in_blocks(tensor: Tensor) -> tuple[Any, list[slice]]:
    coords, values = tensor.unpack()
    return (*coords, values), [slice(x, x + _BLOCK_ENTRIES) for x in range(0, len(values), _BLOCK_ENTRIES)]


def _scipy_mttkrp(operands: Operands) -> Call:
    """The rows of the Khatri-Rao product, summed by a product with a matrix of first coordinates."""
    import scipy.sparse

    (i, j, k, values), blocks = _in_blocks(operands.tensor)
    b, c = operands.dense

    def call() -> Any:
        out = np.zeros((operands.tensor.shape[0], _COLUMNS))
        for part in blocks:
            rows = b[j[part]] * c[k[part]]
            pointers = np.arange(len(rows) + 1)
            out += scipy.sparse.csc_array((values[part], i[part], pointers), (len(out), len(rows))) @ rows
        return out

    return call


def _pyttb_mttkrp(operands: Operands) -> Call:
    import pyttb

    coords, values = operands.tensor.unpack()
    tensor = pyttb.sptensor(np.stack(coords, 1), values[:, None], operands.tensor.shape)
    factors = [np.zeros((operands.tensor.shape[0], _COLUMNS)), *operands.dense]
    return lambda: tensor.mttkrp(factors, 0)


def _numba_mttkrp(operands: Operands) -> Call:
    """A straightforward loop over a list of entries."""
    from numba import njit

    @njit
    def loop(i: Any, j: Any, k: Any, values: Any, b: Any, c: Any, out: Any) -> Any:
        for q in range(len(values)):
            for r in range(b.shape[1]):
                out[i[q], r] += values[q] * b[j[q], r] * c[k[q], r]
        return out

    entries, _ = _in_blocks(operands.tensor)
    return lambda: loop(*entries, *operands.dense, np.zeros((operands.tensor.shape[0], _COLUMNS)))


def _h5py_sums(operands: Operands) -> Call:
    """The sums of the last dimension from blocks of a file. Half of its arrays are read, without checks."""
    import h5py

    path = operands.path.with_name("coo.h5")
    write(path, operands.tensor.convert("sparse(3)"))

    def call() -> Any:
        out = np.zeros(operands.tensor.shape[2])
        with h5py.File(path) as file:
            for start in range(0, file["values"].shape[0], 2**20):
                part = slice(start, start + 2**20)
                out += np.bincount(file["indices_2"][part], file["values"][part], len(out))
        return out

    return call


@cache
def _body() -> Any:
    from numba import njit

    @njit
    def body(state: Any, i: int, j: int, value: float) -> None:
        state[j, 0] += 1
        state[j, 1] += value
        state[j, 2] += value * value
        if value > state[j, 3]:
            state[j, 3] = value

    return body


def _bincounts(operands: Operands) -> Call:
    j, values, size = operands.tensor.arrays["indices_1"], operands.tensor.values, operands.tensor.shape[1]

    def call() -> Any:
        largest = np.zeros(size)
        np.maximum.at(largest, j, values)
        return np.stack([*(np.bincount(j, x, size) for x in (None, values, values * values)), largest], 1)

    return call


def rows(n: int) -> list[Row]:
    scipy, graphblas = peers.scipy_csr, peers.graphblas_csr
    product: dict[str, Maker] = {
        "scipy": _of(scipy, lambda m, x: m @ x),
        "torch": _of(peers.torch_csr, _torch_product),
        "MKL": _mkl_product,
    }
    vectors: dict[str, Maker] = {
        "GraphBLAS": _of(graphblas, _graphblas_product),
        "tensora": _tensora("y(i)=A(i,j)*B(j)", "ds", "d"),
        "finch": _finch_product,
    }
    mttkrp: dict[str, Maker] = {
        "scipy": _scipy_mttkrp,
        "numba": _numba_mttkrp,
        "pyttb": _pyttb_mttkrp,
        "tensora": _tensora("y(i,r)=A(i,j,k)*B(j,r)*C(k,r)", "sss", "dd"),
    }
    pydata: Maker = _of(bl.to_sparse, lambda t, *_: t.sum(axis=(1, 2)).todense())
    vector, columns, cube = partial(_matrix, n, 0), partial(_matrix, n, _COLUMNS), partial(_cube, n)
    return [
        Row("SpMV, CSR", vector, lambda h: h.tensor @ h.dense[0], product | vectors, headline=True),
        Row("SpMM, CSR, 32 columns", columns, lambda h: h.tensor @ h.dense[0], product),
        Row("MTTKRP, 32 columns", cube, lambda h: bl.einsum("ijk,jr,kr->ir", h.tensor, *h.dense), mttkrp),
        Row("sums of rows, CSR", vector, lambda h: bl.reduce(h.tensor, 1),
            {"scipy": _of(scipy, lambda m, _: m.sum(1)), "GraphBLAS": _of(graphblas, _graphblas_sum)}),
        Row("sums of columns, CSR", vector, lambda h: bl.reduce(h.tensor, 0),
            {"scipy": _of(scipy, lambda m, _: m.sum(0))}),
        Row("sum of axes 1 and 2, CSF", cube, lambda h: bl.reduce(h.tensor, (1, 2)), {"pydata": pydata}),
        Row("a custom function by column, CSR", vector,
            lambda h: bl.foreach(h.tensor, _body(), np.zeros((h.tensor.shape[1], 4))), {"numpy": _bincounts}),
        Row("sum of axes 0 and 1 from HDF5, CSF", partial(_in_file, n), lambda h: bl.reduce(bl.open(h.path), (0, 1)),
            {"h5py": _h5py_sums}),
    ]  # fmt: skip
