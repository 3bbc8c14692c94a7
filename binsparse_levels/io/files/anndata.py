"""Matrices of AnnData in HDF5 (.h5ad, .h5mu) and Zarr, read and written; of 10x Genomics in HDF5, read only.

AnnData: a group with `data`, `indices`, `indptr`, whose attributes say csr or csc and the shape; or one dense array.
Names of its rows and columns are the indices of the tables `obs` and `var`. 10x: a group `matrix`, or of a genome,
compressed by columns, the shape among its datasets; its rows are features, or in older files genes, its columns
barcodes. TENxMatrix of HDF5Array may lack these names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, TypeAlias

from ...containers.hdf5 import HDF5Reader
from ...errors import ArrayError, BinsparseError, ContainerError, Problem
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.labels import Column, Labels
from ..file_tensors import FileTensor
from .anndata_tables import Opener, axes_of, index_of
from .anndata_writing import write
from .compressed_matrix import Compression, compressed
from .names import labelled
from .sources import Group, open_group

__all__ = ["claims", "look", "write"]

_Matrix: TypeAlias = tuple[Compression, tuple[int, int], Labels | None]  # its format, shape and names

_FORMATS: dict[str, Compression] = {"csr_matrix": "CSR", "csc_matrix": "CSC", "csr": "CSR", "csc": "CSC"}
_ARRAYS = ("indptr", "indices", "data")


def look(path: Any, closing: contextlib.ExitStack, *, group: str | None = None, limits: Limits) -> FileTensor:
    """The matrix in a group, or the array of any rank, with lazy arrays.

    path: a file or an open group of HDF5, or any place of Zarr. Without a group it is the `X` of AnnData, or the
    `matrix` of 10x. Raises ContainerError for a file of neither, ArrayError for arrays that do not fit each other.
    """

    def at(name: str | None) -> Group:
        return open_group(path, name, limits, closing)

    parts = (group or "").split("/") if group else []
    above = at("/".join(parts[:-1]) or None)
    if not parts:
        parts = [name for name in ("matrix", "X") if above.has(name)][:1]
    if parts and above.is_array(parts[-1]):
        values, shape = above.cells(parts[-1])
        names = {"values": parts[-1]}
        return FileTensor(", ".join(["dense"] * len(shape)), shape, {}, values, {}, names, _names(at, parts, shape))
    source = at("/".join(parts) or None)
    tenx = source.has("shape")
    format, shape, labels = _tenx(source, at, parts) if tenx else _anndata(source, at, parts)
    pointers, indices, data = _ARRAYS
    entries = source.integers(indices), source.numbers(data)
    return compressed(format, shape, source.integers(pointers), _ARRAYS, labels, lambda _: entries)


def claims(group: Any) -> bool:
    """Whether a group of HDF5 or Zarr is marked as such a matrix."""
    if hasattr(group, "attrs") and not hasattr(group, "id"):  # of Zarr
        said = group.attrs.get("encoding-type")
        return isinstance(said, str) and said in _FORMATS
    if {"indptr", "shape"} <= {*group.keys()}:
        return True
    with contextlib.suppress(BinsparseError):
        return _said(Group(HDF5Reader(group, DEFAULT_LIMITS), DEFAULT_LIMITS)) in _FORMATS
    return False


def _said(source: Group) -> str:
    """What a group says of its compression."""
    older = source.attribute("h5sparse_format")
    return source.attribute_text("encoding-type" if older is None else "h5sparse_format")


def _anndata(source: Group, at: Opener, parts: Sequence[str]) -> _Matrix:
    if (word := _said(source)) not in _FORMATS:
        what = f"expected csr_matrix or csc_matrix, got {word!r:.60}; list_tensors names them"
        raise ContainerError(Problem("encoding-type", what))
    name = "shape" if source.attribute("h5sparse_shape") is None else "h5sparse_shape"
    shape = _sizes(source.attribute_numbers(name), name)
    return _FORMATS[word], shape, _names(at, parts, shape)


def _names(at: Opener, parts: Sequence[str], shape: Sequence[int]) -> Labels | None:
    """The names of rows and columns, or of the rows alone. Tables of another size are those of another matrix."""
    axes = axes_of(parts)
    dims = [(axis or other).rpartition("/")[2] for axis, other in zip(axes, ("row", "column"), strict=True)]
    columns: list[Column | None] = []
    for axis, size in zip(axes, shape, strict=False):
        columns.append(None)
        with contextlib.suppress(ContainerError, ArrayError):
            if axis is not None and len(names := index_of(at, axis)) == size:
                columns[-1] = names
    return labelled([*dims, *(f"dim_{k}" for k in range(2, len(shape)))][: len(shape)], columns)


def _tenx(source: Group, at: Opener, parts: Sequence[str]) -> _Matrix:
    rows, columns = shape = _sizes(source.integers("shape")[:].tolist(), "shape")
    newer = source.has("features")
    features = at("/".join([*parts, "features"])).labels("id", rows) if newer else None
    genes = source.labels("genes", rows) if source.has("genes") else features
    barcodes = source.labels("barcodes", columns) if source.has("barcodes") else None
    format: Compression = "CSC"
    if genes is None and barcodes is None:  # HiCExplorer compresses rows
        if rows == columns:
            what = "is ambiguous: nothing says whether rows or columns are compressed; read its arrays by h5py"
            raise ContainerError(Problem(str(source.reader.group.name), f"{what}, and pass them to Tensor"))
        format = "CSR" if len(source.integers("indptr")) == rows + 1 else "CSC"
    return format, shape, labelled(("feature" if newer else "gene", "barcode"), [genes, barcodes])


def _sizes(shape: Sequence[int], name: str) -> tuple[int, int]:
    if len(shape) != 2 or min(shape) < 0:
        raise ContainerError(Problem(name, f"expected 2 sizes, got {shape!r:.60}"))
    return shape[0], shape[1]
