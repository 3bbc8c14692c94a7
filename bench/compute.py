"""Reductions and products over trees, in memory and from a file, and what a call and a compilation cost."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import binsparse_levels as bl
from binsparse_levels import Tensor, pack, pack_dense, write

from . import peers
from .data import REGIMES, tree
from .row import BEST, TIME, Call, Maker, Row, Targets

_WIDTH = 32  # columns of dense operands
_CALLS = 1000
_BLOCK = 2**17  # entries at a time, of peers whose way takes a row of columns for each entry


class Held(NamedTuple):
    """A tensor, dense operands of small integers, so that sums are the same in any order, and a file."""

    tensor: Tensor
    dense: list[Any]
    path: Path | None = None


def _tensor(shape: tuple[int, ...], n: int, format: str) -> Tensor:
    generator = np.random.default_rng(len(shape))
    coords = [generator.integers(0, size, n) for size in shape]
    values = generator.integers(1, 9, n).astype(np.float64)
    return pack(coords, values, shape, format, duplicates="sum", fill_value=0)


def _dense(*shape: int) -> Any:
    return np.random.default_rng(0).integers(0, 4, shape).astype(np.float64)


def _matrix(kind: str, n: int, width: int, folder: Path) -> Held:
    tensor = tree(kind, n, "CSR")
    return Held(tensor, [_dense(tensor.shape[1], width) if width else _dense(tensor.shape[1])])


def _square(n: int, side: int, width: int, folder: Path) -> Held:
    return Held(_tensor((side, side), n, "CSR"), [_dense(side, width) if width else _dense(side)])


def _cube(n: int, suffix: str, folder: Path) -> Held:
    side = max(int((100 * n) ** (1 / 3)), 2)
    shape = (2 * side, side, side // 2 + 1)
    tensor = _tensor(shape, n, "sparse, sparse, sparse")
    path = folder / f"a{suffix}"
    if suffix:
        write(path, tensor)
    return Held(tensor, [_dense(shape[1], _WIDTH), _dense(shape[2], _WIDTH)], path)


def _filled(n: int, format: str, folder: Path) -> Held:
    """A square of which `format` stores a third."""
    side = int((3 * n) ** 0.5)
    array = _dense(side, side)
    there = np.random.default_rng(1).random((side, side)) < 1 / 3
    if format != "dense, bitmap":  # intervals
        starts = np.random.default_rng(1).integers(0, 2 * side // 3 + 1, (side, 1))
        there = (np.arange(side) >= starts) & (np.arange(side) < starts + side // 3)
    array = np.where(there, array + 1 if format == "dense, band" else 5.0, 0)
    return Held(pack_dense(array, format, fill_value=0), [_dense(side)])


# What a user would pick instead


def _of(make: Callable[[Tensor], Any], operation: Callable[..., Any]) -> Maker:
    """The operation on what a library holds, and the dense operands."""

    def made(held: Held) -> Call:
        other = make(held.tensor)
        return lambda: operation(other, *held.dense)

    return made


def _scipy(tensor: Tensor) -> Any:
    return peers.scipy_csr(tensor.convert("CSR"))


def _numpy(tensor: Tensor) -> Any:
    return tensor.to_dense()


def _pydata(tensor: Tensor) -> Any:
    return bl.to_sparse(tensor)


def _torch_coo(tensor: Tensor) -> Any:
    import torch

    coords, values = tensor.unpack()
    return torch.sparse_coo_tensor(np.stack(coords), torch.from_numpy(values.copy()), tensor.shape).coalesce()


def _torch_product(matrix: Any, dense: Any) -> Any:
    import torch

    return matrix @ torch.from_numpy(dense)


def _graphblas_product(matrix: Any, dense: Any) -> Any:
    import graphblas

    return matrix.mxv(graphblas.Vector.from_dense(dense)).new().to_dense(fill_value=0)


def _graphblas_sum(matrix: Any, *_: Any) -> Any:
    return matrix.reduce_rowwise("plus").new().to_dense(fill_value=0)


def _reduceat(held: Held) -> Call:
    """The sums of rows from pointers; an empty row would get the value of the next, so these are left out."""
    pointers, values = held.tensor.arrays["pointers_to_1"], held.tensor.values

    def call() -> Any:
        rows = np.flatnonzero(pointers[1:] > pointers[:-1])
        out = np.zeros(held.tensor.shape[0])
        out[rows] = np.add.reduceat(values, pointers[rows])
        return out

    return call


def _in_blocks(held: Held) -> tuple[Any, list[slice]]:
    coords, values = held.tensor.unpack()
    return (*coords, values), [slice(x, x + _BLOCK) for x in range(0, len(values), _BLOCK)]


def _scipy_mttkrp(held: Held) -> Call:
    """The rows of the Khatri-Rao product that entries have, summed by a product with their first coordinates."""
    import scipy.sparse

    (i, j, k, values), blocks = _in_blocks(held)
    b, c = held.dense

    def call() -> Any:
        out = np.zeros((held.tensor.shape[0], _WIDTH))
        for part in blocks:
            rows = b[j[part]] * c[k[part]]
            pointers = np.arange(len(rows) + 1)
            out += scipy.sparse.csc_array((values[part], i[part], pointers), (len(out), len(rows))) @ rows
        return out

    return call


def _torch_mttkrp(held: Held) -> Call:
    import torch

    (i, j, k, values), blocks = _in_blocks(held)
    b, c = map(torch.from_numpy, held.dense)
    i, j, k, values = (torch.from_numpy(np.array(x)) for x in (i, j, k, values))

    def call() -> Any:
        out = torch.zeros(held.tensor.shape[0], _WIDTH, dtype=torch.float64)
        for part in blocks:
            out.index_add_(0, i[part], b[j[part]] * c[k[part]] * values[part][:, None])
        return out

    return call


def _numba_mttkrp(held: Held) -> Call:
    """A loop over a list of entries, as one writes it."""
    from numba import njit

    @njit
    def loop(i: Any, j: Any, k: Any, values: Any, b: Any, c: Any, out: Any) -> Any:
        for q in range(len(values)):
            for r in range(b.shape[1]):
                out[i[q], r] += values[q] * b[j[q], r] * c[k[q], r]
        return out

    entries, _ = _in_blocks(held)
    return lambda: loop(*entries, *held.dense, np.zeros((held.tensor.shape[0], _WIDTH)))


def _by_hand(held: Held) -> Call:
    """The last dimension's sums from blocks of a file of coordinates: half of its arrays are read, and none checked."""
    import h5py

    path = str(held.path) + ".coo.h5"
    write(path, held.tensor.convert("sparse(3)"))

    def call() -> Any:
        out = np.zeros(held.tensor.shape[2])
        with h5py.File(path) as file:
            for start in range(0, file["values"].shape[0], 2**20):
                part = slice(start, start + 2**20)
                out += np.bincount(file["indices_2"][part], file["values"][part], len(out))
        return out

    return call


def _numpy_sampled(held: Held) -> Call:
    (i, j), values = held.tensor.unpack()
    a, b = held.dense[0][: held.tensor.shape[0]], held.dense[0]
    blocks = [slice(x, x + _BLOCK) for x in range(0, len(values), _BLOCK)]
    return lambda: np.concatenate([(a[i[x]] * b[j[x]]).sum(1) * values[x] for x in blocks])


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


def _bincounts(held: Held) -> Call:
    j, values = held.tensor.arrays["indices_1"], held.tensor.values
    size = held.tensor.shape[1]

    def call() -> Any:
        largest = np.zeros(size)
        np.maximum.at(largest, j, values)
        return np.stack([*(np.bincount(j, x, size) for x in (None, values, values * values)), largest], 1)

    return call


def _cold() -> None:
    """A nest that was never compiled."""
    from binsparse_levels.compute import store

    with tempfile.TemporaryDirectory() as folder:
        before, store._folders = store._folders, lambda: [Path(folder) / "nests"]
        store.compiled.cache_clear()
        try:
            bl.einsum("ij,j->i", pack_dense(np.eye(3), "CSR"), np.ones(3))
        finally:
            store._folders = before
            store.compiled.cache_clear()


def rows(n: int) -> list[Row]:
    small = max(n * 3 // 10, 1000)
    side = max(small // 10, 10)
    once: Targets = {BEST: (1, 1.5)}
    many: Targets = {"scipy": (5, 15), "torch": (5, 15)}
    deep: Targets = {BEST: (5, 15)}
    products = {
        "scipy": _of(_scipy, lambda m, x: m @ x),
        "torch": _of(peers.torch_csr, _torch_product),
    }
    by_row: dict[str, Maker] = {
        "scipy": _of(_scipy, lambda m, _: m.sum(1)),
        "GraphBLAS": _of(peers.graphblas_csr, _graphblas_sum),
        "numpy": _reduceat,
    }
    # Name, columns of the dense operand, ours, peers.
    regimes: tuple[tuple[str, int, Callable[[Held], Any], dict[str, Maker]], ...] = (
        (
            "SpMV, CSR",
            0,
            lambda h: h.tensor @ h.dense[0],
            products | {"GraphBLAS": _of(peers.graphblas_csr, _graphblas_product)},
        ),
        ("row sums, CSR", 0, lambda h: bl.reduce(h.tensor, 1), by_row),
        ("column sums, CSR", 0, lambda h: bl.reduce(h.tensor, 0), {"scipy": _of(_scipy, lambda m, _: m.sum(0))}),
        (
            "count, sum, squares, maximum by column",
            0,
            lambda h: bl.foreach(h.tensor, _body(), np.zeros((h.tensor.shape[1], 4))),
            {"numpy": _bincounts},
        ),
    )

    def along(axes: Any) -> dict[str, Maker]:
        def torch_sum(t: Any, *_: Any) -> Any:
            import torch

            found = torch.sparse.sum(t, axes)
            return found.to_dense() if found.is_sparse else found

        return {
            "pydata": _of(_pydata, lambda t, *_: t.sum(axis=axes).todense()),
            "torch": _of(_torch_coo, torch_sum),
        }

    return [
        *(Row(f"{name}, {kind}", n, partial(_matrix, kind, n, width), ours, others, once)
          for kind in REGIMES for name, width, ours, others in regimes),
        Row("SpMM, CSR, 32 columns", n, partial(_matrix, "10 a fiber", n, _WIDTH), lambda h: h.tensor @ h.dense[0],
            products, once),
        Row("sampled product (SDDMM), 32 columns", small, partial(_square, small, side, _WIDTH),
            lambda h: bl.einsum("ij,ir,jr->ij", h.tensor, h.dense[0], h.dense[0]).values,
            {"numpy": _numpy_sampled}, once),
        *(Row(f"sum of {name}, three dimensions", small, partial(_cube, small, ""),
              lambda h, x=axes: bl.reduce(h.tensor, x), along(axes), deep)
          for name, axes in (("axis 0", 0), ("axis 2", 2), ("axes 1 and 2", (1, 2)))),
        Row("MTTKRP, 32 columns", n, partial(_cube, n, ""), lambda h: bl.einsum("ijk,jr,kr->ir", h.tensor, *h.dense),
            {"scipy": _scipy_mttkrp, "torch": _torch_mttkrp, "numba": _numba_mttkrp}, many),
        *(Row(f"SpMV, {format}", small, partial(_filled, small, format), lambda h: h.tensor @ h.dense[0],
              {"numpy": _of(_numpy, lambda m, x: m @ x), "scipy": _of(_scipy, lambda m, x: m @ x)}, targets)
          for format, targets in (
              ("dense, band", once), ("dense, run", once), ("dense, bitmap", {"numpy": (1.0, 1.5)}))),
        Row("sum of axes 0 and 1 from HDF5, in blocks", n, partial(_cube, n, ".h5"),
            lambda h: bl.reduce(bl.open(h.path), (0, 1)), {"h5py": _by_hand}, {"h5py": (0.4, 1)}),
        Row("MTTKRP from HDF5, in blocks", n, partial(_cube, n, ".h5"),
            lambda h: bl.einsum("ijk,jr,kr->ir", bl.open(h.path), *h.dense), {}, {}),
        Row("a product of 3 entries, 1,000 times", _CALLS, partial(_square, 3, 3, 0),
            lambda h: [bl.einsum("ij,j->i", h.tensor, h.dense[0]) for _ in range(_CALLS)], {}, {TIME: (0.05, 0.03)}),
        Row("a nest that is compiled for the first time", 3, lambda _: None, lambda _: _cold(), {}, {TIME: (0.6, 0.3)},
            threaded=False),
    ]  # fmt: skip
