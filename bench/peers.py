"""The same operations with other libraries. A maker returns the timed call for the data, or raises ImportError."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from binsparse_levels import Tensor

from .data import Data
from .row import Call, Maker


def on(make: Callable[[Any], Any], operation: Callable[[Any], Any]) -> Maker:
    """The operation on an object that `make` makes before the timing."""
    return lambda data: partial(operation, make(data))


def directly(operation: Callable[[Any], Any]) -> Maker:
    """The operation on the data."""
    return lambda data: partial(operation, data)


def using(library: str, operation: Callable[[Any, Any], Any], make: Callable[[Any], Any] = lambda data: data) -> Maker:
    """The operation with a library, on an object that `make` makes before the timing."""
    return lambda data: partial(operation, importlib.import_module(library), make(data))


# Entries in any order, sorted and summed


def numpy_argsort(data: Data) -> list[Any]:
    """Entries sorted by a linear key. Duplicates are not summed, which favours the peer."""
    order = np.argsort(np.ravel_multi_index(data.coords, data.shape))
    return [x[order] for x in data.arrays]


def polars_sort(data: Data) -> Call:
    """Sorted entries. Duplicates are not summed."""
    import polars

    names = [f"i{k}" for k in range(len(data.shape))]
    frame = polars.DataFrame(dict(zip([*names, "values"], data.arrays, strict=True)))
    return lambda: frame.sort(names)


def scipy_coo(data: Data) -> Any:
    import scipy.sparse

    narrow = tuple(x.astype(np.int32) for x in data.coords)
    return scipy.sparse.coo_array((data.values, narrow), data.shape)


def graphblas_build(data: Data) -> Call:
    import graphblas

    i, j = (x.view(np.uint64) for x in data.coords)
    options = {"nrows": data.shape[0], "ncols": data.shape[1], "dup_op": graphblas.binary.plus}
    return lambda: graphblas.Matrix.from_coo(i, j, data.values, **options)


def stacked(data: Data) -> tuple[Any, Any, tuple[int, ...]]:
    return np.stack(data.coords), data.values, data.shape


def pyttb_sptensor(pyttb: Any, stacked: tuple[Any, Any, tuple[int, ...]]) -> Any:
    """Entries sorted and summed."""
    coords, values, shape = stacked
    return pyttb.sptensor.from_aggregator(coords.T, values[:, None], shape)


def torch_coo(data: Data) -> Any:
    import torch

    return torch.sparse_coo_tensor(*map(torch.from_numpy, stacked(data)[:2]), data.shape)


SORTING: dict[str, Maker] = {
    "numpy": directly(numpy_argsort),
    "polars": polars_sort,
    "torch": on(torch_coo, lambda t: t.coalesce()),
    "pydata": using("sparse", lambda sparse, d: sparse.COO(d[0], d[1], shape=d[2]), stacked),
}
SORTING_TENSORS = SORTING | {"pyttb": using("pyttb", pyttb_sptensor, stacked)}
SORTING_MATRICES = SORTING | {"scipy": on(scipy_coo, lambda m: m.tocsr()), "GraphBLAS": graphblas_build}


# Matrices that share the arrays of a CSR tensor


def parts(tensor: Tensor) -> tuple[Any, Any, Any]:
    return tensor.values, tensor.arrays["indices_1"], tensor.arrays["pointers_to_1"]


def scipy_csr(tensor: Tensor) -> Any:
    import scipy.sparse

    return scipy.sparse.csr_array(parts(tensor), tensor.shape)


def mkl() -> Any:
    """The module sparse_dot_mkl. It does not look for the library in the folder of pip's package mkl."""
    for path in Path(sys.prefix, "lib").glob("libmkl_rt.so*"):
        os.environ.setdefault("MKL_RT", str(path))
    return importlib.import_module("sparse_dot_mkl")


def graphblas_csr(tensor: Tensor) -> Any:
    import graphblas

    values, indices, pointers = parts(tensor)
    return graphblas.Matrix.from_csr(pointers, indices, values, ncols=tensor.shape[1])


def graphblas_from_dense(graphblas: Any, dense: Any) -> Any:
    matrix = graphblas.Matrix.from_dense(dense, missing_value=0)
    matrix.ss.config["sparsity_control"] = "sparse"  # otherwise it stays dense if that is smaller
    return matrix


def torch_csr(tensor: Tensor) -> Any:
    import torch

    values, indices, pointers = (torch.from_numpy(x.copy()) for x in parts(tensor))
    return torch.sparse_csr_tensor(pointers.long(), indices.long(), values, tensor.shape)


def scipy_check(tensor: Tensor) -> None:
    matrix = scipy_csr(tensor)  # a new one each time, because scipy caches the result
    matrix.check_format(full_check=True)
    assert matrix.has_canonical_format


def scipy_entries(matrix: Any) -> Any:
    coo = matrix.tocoo(copy=False)
    return widened(coo.coords), coo.data


def tensorstore_arrays(folder: Path, names: Iterable[str], like: Path | None = None) -> list[Any]:
    """Arrays in a Zarr folder, opened with one thread and an empty cache, or made with the layout of others."""
    import tensorstore

    one = {"limit": 1}
    limits = {"cache_pool": {"total_bytes_limit": 2**30}, "data_copy_concurrency": one, "file_io_concurrency": one}
    context, opening = tensorstore.Context(limits), []
    for name in names:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder / name)}}
        if like is not None:
            layout = json.loads((like / name / "zarr.json").read_text(encoding="utf-8"))
            spec |= {"metadata": layout, "create": True, "delete_existing": True}
        opening.append(tensorstore.open(spec, context=context))
    return [future.result() for future in opening]


def listed(tensor: Tensor) -> Data:
    coords, values = tensor.unpack()
    return Data(list(coords), values, tensor.shape)


# The same in numpy


def widened(coords: Any) -> list[Any]:
    """Coordinates as int64, like those of `unpack`."""
    return [x.astype(np.int64) for x in coords]


def numpy_rows(tensor: Tensor) -> Any:
    values, columns, pointers = parts(tensor)
    return widened([np.repeat(np.arange(len(pointers) - 1), np.diff(pointers)), columns]), values


def numpy_list(tensor: Tensor) -> Any:
    arrays = tensor.arrays
    lengths = np.diff(arrays["pointers_to_2"])
    i = np.repeat(np.repeat(arrays["indices_0"], np.diff(arrays["pointers_to_1"])), lengths)
    return widened([i, np.repeat(arrays["indices_1"], lengths), arrays["indices_2"]]), tensor.values


def numpy_check(tensor: Tensor) -> None:
    """Check a tree whose levels have one dimension each."""
    for level, size in enumerate(tensor.shape):
        indices, pointers = (tensor.arrays.get(f"{name}_{level}") for name in ("indices", "pointers_to"))
        if indices is None:
            continue
        rises = indices[1:] > indices[:-1]
        if pointers is not None:
            assert pointers[0] == 0
            assert pointers[-1] == len(indices)
            assert (pointers[1:] >= pointers[:-1]).all()
            rises[pointers[(pointers > 0) & (pointers < len(indices))] - 1] = True
        assert rises.all()
        assert indices.min() >= 0
        assert indices.max() < size
