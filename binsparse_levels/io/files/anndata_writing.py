"""Matrices into AnnData, in HDF5 and Zarr: as a new file, or beside everything else in a file that is there."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from ...arrays import Array, one_piece
from ...containers import hdf5
from ...containers.base import DEFAULT_STORAGE, Storage, Writer, is_url, touching
from ...containers.replacing import Overwrite
from ...errors import ArrayError, ContainerError, FormatError, PathExistsError, Problem
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.foreign import check_representable
from ...tensors.tensor import Tensor
from .anndata_tables import Axes, axes_of, index_of
from .names import to_write
from .sources import open_group

_FOLDERS = ("layers", "obsp", "varp", "obsm", "varm", "uns")
_DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}
_ROOT = {"encoding-type": "anndata", "encoding-version": "0.1.0"}
_TEXTS = {"encoding-type": "string-array", "encoding-version": "0.2.0"}
_TABLE = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index", "column-order": []}


def write(
    path: str,
    tensor: Tensor,
    *,
    overwrite: Overwrite = False,
    group: str | None = None,
    storage: Storage = DEFAULT_STORAGE,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Write a matrix into a file of AnnData.

    A folder, a URL, and a path that ends with .zarr or .zarr.zip are Zarr. Other paths are HDF5. Without a group, the
    matrix becomes the X of a new file. The groups X, layers/NAME, obsp/NAME, varp/NAME, obsm/NAME, varm/NAME and
    uns/NAME are written into the file that is there, which keeps everything else, or into a new file.

    A format that is stored by columns (CSC, DCSC …) becomes a csc_matrix, every other format a csr_matrix. All stored
    entries are kept. The names of rows and columns of a new file are labels of the dimensions, else the attributes
    `row_names` and `column_names`, else numbers. In a file that is there, the shape and the names have to be its own.

    Raises FormatError for a tensor that AnnData cannot represent, or that does not fit the file; ContainerError,
    PathExistsError.
    """
    place = f"{path}:{group or 'X'}"
    *folders, name = parts = (group or "X").split("/")
    odd = any(not part or part.startswith(".") or part == "zarr.json" for part in parts)
    if parts != ["X"] and (odd or parts[0] not in _FOLDERS or len(parts) < 2 or (len(parts) > 2 and parts[0] != "uns")):
        places = ", ".join(["X", *(f"{folder}/NAME" for folder in _FOLDERS)])
        raise ContainerError(Problem(place, f"AnnData holds matrices in {places}; write to one of these"))
    axes = axes_of(parts)
    kind, matrix = _matrix(tensor, place)
    if axes[0] == axes[1] is not None and matrix.shape[0] != matrix.shape[1]:
        raise FormatError(Problem("shape", f"expected as many rows as columns, got {matrix.shape}"))
    names: dict[str, list[str]] = {}
    for k, axis in enumerate(axes):
        if axis is not None:
            names[axis] = to_write(matrix, k) or names.get(axis, [])
    small = max(*matrix.shape, len(matrix.values)) <= np.iinfo(np.int32).max
    dtype = np.int32 if small else np.int64  # of both index arrays, as scipy would choose
    arrays: dict[str, Array] = {
        "data": matrix.values,
        "indices": matrix.arrays["indices_1"].astype(dtype, copy=False),
        "indptr": matrix.arrays["pointers_to_1"].astype(dtype, copy=False),
    }
    storage.check_names(arrays)
    with touching(path), _root(path, group is not None, overwrite, limits, storage) as (root, writer_of):
        if len(root) or len(root.attrs):
            _check_file(root, place, matrix.shape, axes, names, limits)
        else:
            _make_file(root, matrix.shape, axes, names)
        parent = root
        for folder in folders:
            parent = _folder(parent, folder)
        if name in parent.keys():  # noqa: SIM118 (`in parent` follows links)
            if not overwrite:
                raise PathExistsError(Problem(place, "already exists; pass overwrite=True"))
            del parent[name]
        made = parent.create_group(name)
        for key, array in arrays.items():
            writer_of(made).write(key, one_piece(array))
        made.attrs.update({"encoding-type": kind, "encoding-version": "0.1.0", "shape": list(matrix.shape)})


def _matrix(tensor: Tensor, place: str) -> tuple[str, Tensor]:
    """What AnnData calls the matrix, and the tensor as CSR or CSC. Raises FormatError for one that AnnData has not."""
    if tensor.ndim != 2:
        what = f"AnnData holds sparse matrices, got {tensor.ndim} dimensions; see register_anndata for tensors in uns"
        raise FormatError(Problem(place, what))
    type_fits = tensor.dtype.kind in "biu" or tensor.dtype in (np.float32, np.float64)  # those of scipy
    check_representable(tensor, "AnnData", place, type_fits=type_fits)
    by_columns = tensor.format.order == (1, 0)
    return ("csc_matrix", tensor.convert("CSC")) if by_columns else ("csr_matrix", tensor.convert("CSR"))


@contextlib.contextmanager
def _root(
    path: str, keep: bool, overwrite: Overwrite, limits: Limits, storage: Storage
) -> Iterator[tuple[Any, Callable[[Any], Writer]]]:
    """The root of a new file, or with `keep` of a copy of the file, and a function that gives the writer of a group.

    The new file replaces the old one when the block ends well.
    """
    group = "" if keep else None
    if not _is_zarr(path):
        with hdf5.writing(path, group, overwrite, limits, storage, beside=_others) as file:
            yield file.group, lambda place: hdf5.HDF5Writer(place, storage)
        return
    import zarr

    from ...containers.zarr import ZarrWriter, writing  # HDF5 does without

    with writing(path, group, overwrite, limits, storage, beside=_others) as store:
        root = store.group
        yield root, lambda place: ZarrWriter(place, storage, ours=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr warns that the specification of version 3 does not know it
            zarr.consolidate_metadata(root.store, path=root.path)


def _is_zarr(path: str) -> bool:
    return is_url(path) or os.path.isdir(path) or path.lower().rstrip("/").endswith((".zarr", ".zarr.zip"))


def _check_file(
    root: Any, place: str, shape: Sequence[int], axes: Axes, names: Mapping[str, list[str]], limits: Limits
) -> None:
    """Raise ContainerError for another file than AnnData's, FormatError for a matrix that does not fit it."""
    with contextlib.ExitStack() as closing:
        try:
            there = {x: index_of(lambda name: open_group(root, name, limits, closing), x) for x in ("obs", "var")}
        except (ContainerError, ArrayError) as error:
            what = (
                f"the file has no tables obs and var with an index ({error}); write to a file of AnnData, or a new one"
            )
            raise ContainerError(Problem(place, what)) from None
        for dimension, axis in enumerate(axes):
            if axis is None:
                continue
            if len(there[axis]) != shape[dimension]:
                what = f"{axis} has {len(there[axis])} names, and dimension {dimension} size {shape[dimension]}"
                raise FormatError(Problem(place, f"{what}; write a matrix that fits"))
            pairs = zip(names[axis], there[axis].array(), strict=False)
            at = next((k for k, (name, other) in enumerate(pairs) if name != other), None)
            if at is not None:
                what = f"the names of {axis} in the file differ at {at}; bring the matrix into the order of the file"
                raise FormatError(Problem(place, what))


def _others(path: str) -> list[str]:
    """What a file of AnnData holds beside X and the names of rows and columns."""
    with contextlib.ExitStack() as closing, touching(path):
        root = open_group(path, None, DEFAULT_LIMITS, closing).reader.group
        there = {name: root[name] for name in root.keys()}  # noqa: SIM118 (zarr's groups are no mappings)
        inner = {name: set(x.keys()) if hasattr(x, "keys") else {""} for name, x in there.items()}
        tables = {name: inner[name] - {there[name].attrs.get("_index")} for name in ("obs", "var") if name in inner}
        others = [name for name, members in inner.items() if members and name not in ("X", *tables)]
        return others + [f"{table}/{name}" for table, names in tables.items() for name in names]


def _make_file(root: Any, shape: Sequence[int], axes: Axes, names: Mapping[str, list[str]]) -> None:
    """Make an AnnData without matrices."""
    root.attrs.update(_ROOT)
    for name in (*_FOLDERS, "obs", "var"):
        root.create_group(name).attrs.update(_DICT)
    sizes = {axis: size for axis, size in zip(axes, shape, strict=True) if axis is not None}
    for axis in ("obs", "var"):
        texts = names.get(axis) or [str(k) for k in range(sizes.get(axis, 0))]
        root[axis].attrs.update(_TABLE)
        if isinstance(root, h5py.Group):
            array = root[axis].create_dataset("_index", (len(texts),), h5py.string_dtype())
        else:
            array = root[axis].create_array("_index", shape=(len(texts),), dtype=str, chunks=(max(len(texts), 1),))
        if texts:
            array[...] = np.array(texts, object)
        array.attrs.update(_TEXTS)


def _folder(parent: Any, name: str) -> Any:
    """The group of that name, which is made where it is missing."""
    there = name in parent.keys()  # noqa: SIM118 (`in parent` follows links)
    with touching(f"{parent.name}/{name}"):
        place = hdf5.walk(parent, name, make=True) if isinstance(parent, h5py.Group) else parent.require_group(name)
    said = place.attrs.get("encoding-type", "dict")
    if not there:
        place.attrs.update(_DICT)
    elif said != "dict":
        raise ContainerError(Problem(place.name, f"is a {said!s:.40}, which holds no matrices; choose another name"))
    return place
