"""Matrices of AnnData in HDF5 (.h5ad) and Zarr, read and written; of 10x Genomics in HDF5, read only.

AnnData: a group with `data`, `indices`, `indptr`, whose attributes say csr or csc and the shape; or one dense array.
Names of its rows and columns are the indices of the tables `obs` and `var` at the root. 10x: a group `matrix`, or of a
genome, compressed by columns, the shape among its datasets; its rows are features, or in older files genes, its columns
barcodes. TENxMatrix of HDF5Array may lack these names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import h5py

from ...errors import ArrayError, BinsparseError, ContainerError, Problem
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.labels import Column, Labels
from ..file_tensors import FileTensor
from .anndata_tables import AXES, Axes, Opener, index_of
from .anndata_writing import write
from .compressed_matrix import Compression, compressed
from .names import labelled
from .sources import Group, attribute_text, open_group

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

    folder, _, name = (group or "").rpartition("/")
    above = at(folder or None)
    inner = next((name for name in ("matrix", "X") if not group and above.has(name)), None)
    axes = AXES.get((group or "").partition("/")[0], ("obs", "var"))
    if (dense := name or inner) and above.is_array(dense):
        values, shape = above.cells(dense)
        labels = _names(at, axes, shape)
        return FileTensor(", ".join(["dense"] * len(shape)), shape, {}, values, {}, {"values": dense}, labels)
    group = group or inner
    source = at(group)
    format, shape, labels = _tenx(source, at, group) if source.has("shape") else _anndata(source, at, axes)
    pointers, indices, data = _ARRAYS
    entries = source.integers(indices), source.numbers(data)
    return compressed(format, shape, source.integers(pointers), _ARRAYS, labels, lambda _: entries)


def claims(group: Any) -> bool:
    """Whether a group of HDF5 or Zarr is marked as such a matrix."""
    if not isinstance(group, h5py.Group):
        said = group.attrs.get("encoding-type")
        return isinstance(said, str) and said in _FORMATS
    if {"indptr", "shape"} <= {*group.keys()}:
        return True
    with contextlib.suppress(BinsparseError):
        return attribute_text(group, _said(group.attrs), DEFAULT_LIMITS) in _FORMATS
    return False


def _said(attributes: Mapping[str, Any]) -> str:
    """The name of the attribute with the compression of a matrix."""
    return "h5sparse_format" if "h5sparse_format" in attributes else "encoding-type"


def _anndata(source: Group, at: Opener, axes: Axes) -> _Matrix:
    said = _said(source.attributes)
    word = source.attribute_text(said)
    if word not in _FORMATS:
        raise ContainerError(
            Problem(said, f"expected csr_matrix or csc_matrix, got {word!r:.60}; list_tensors names them")
        )
    name = "shape" if "shape" in source.attributes else "h5sparse_shape"
    shape = _sizes(source.attribute_numbers(name), name)
    return _FORMATS[word], shape, _names(at, axes, shape)


def _names(at: Opener, axes: Axes, shape: Sequence[int]) -> Labels | None:
    """The names of rows and columns, or of the rows alone. Tables of another size are those of another matrix."""
    dims = [(axis or "column").rpartition("/")[2] for axis in axes]
    columns: list[Column | None] = []
    for axis, size in zip(axes, shape, strict=False):
        columns.append(None)
        with contextlib.suppress(ContainerError, ArrayError):
            if axis is not None:
                table, index = index_of(at, axis)
                columns[-1] = table.labels(index, size)
    return labelled([*dims, *(f"dim_{k}" for k in range(2, len(shape)))][: len(shape)], columns)


def _tenx(source: Group, at: Opener, group: str | None) -> _Matrix:
    rows, columns = shape = _sizes(source.integers("shape")[:].tolist(), "shape")
    newer = source.has("features")
    features = at(f"{group or ''}/features").labels("id", rows) if newer else None
    genes = source.labels("genes", rows) if source.has("genes") else features
    barcodes = source.labels("barcodes", columns) if source.has("barcodes") else None
    return "CSC", shape, labelled(("feature" if newer else "gene", "barcode"), [genes, barcodes])


def _sizes(shape: Sequence[int], name: str) -> tuple[int, int]:
    if len(shape) != 2 or min(shape) < 0:
        raise ContainerError(Problem(name, f"expected 2 sizes, got {shape!r:.60}"))
    return shape[0], shape[1]
