"""Sparse matrices of AnnData in HDF5 (.h5ad) and Zarr, read and written; of 10x Genomics in HDF5, read only.

AnnData: a group with `data`, `indices`, `indptr`, whose attributes say csr or csc and the shape. Names of its rows and
columns are the indices of the tables `obs` and `var` at the root. 10x: a group `matrix`, compressed by columns, the
shape among its datasets; its rows are features, or in older files genes, its columns barcodes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import h5py

from ...errors import ArrayError, BinsparseError, ContainerError, Problem
from ...limits import DEFAULT_LIMITS, Limits
from .anndata_tables import AXES, NAMES, Axes, Opener, names_of, opened
from .anndata_writing import write
from .compressed_matrix import Compression, compressed, read_matrix
from .sources import FileTensor, Group, attribute_text

__all__ = ["claims", "looking", "read", "write"]

_Matrix: TypeAlias = tuple[Compression, tuple[int, int], dict[str, list[str]]]  # its format, shape and names

_FORMATS: dict[str, Compression] = {"csr_matrix": "CSR", "csc_matrix": "CSC", "csr": "CSR", "csc": "CSC"}
_ARRAYS = ("indptr", "indices", "data")


@contextlib.contextmanager
def looking(path: Any, group: str | None = None, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[FileTensor]:
    """The matrix in a group, with lazy arrays, which can be read within the block.

    path: a file or an open group of HDF5, or any place of Zarr. Without a group it is the `X` of AnnData, or the
    `matrix` of 10x. Raises ContainerError for a file of neither, ArrayError for arrays that do not fit each other.
    """
    with contextlib.ExitStack() as closing:

        def at(name: str | None) -> Group:
            return closing.enter_context(opened(path, name, limits))

        source = at(group)
        inner = next((name for name in ("matrix", "X") if not group and name in source.names()), None)
        if inner:
            group, source = inner, at(inner)
        if "barcodes" in source.names():
            matrix = _tenx(source, at, group)
        else:
            matrix = _anndata(source, at, AXES.get((group or "").partition("/")[0], ("obs", "var")))
        pointers, indices, data = _ARRAYS
        format, shape, names = matrix
        yield compressed(
            format,
            shape,
            source.integers(pointers),
            _ARRAYS,
            names,
            lambda _: (source.integers(indices), source.numbers(data)),
        )


read = functools.partial(read_matrix, looking)


def claims(group: Any) -> bool:
    """Whether a group of HDF5 or Zarr is marked as such a matrix."""
    if not isinstance(group, h5py.Group):
        said = group.attrs.get("encoding-type")
        return isinstance(said, str) and said in _FORMATS
    if "barcodes" in group.keys():  # noqa: SIM118 (`in group` follows links)
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
        raise ContainerError(Problem(said, f"expected csr_matrix or csc_matrix, got {word!r:.60}"))
    name = "shape" if "shape" in source.attributes else "h5sparse_shape"
    shape = _sizes(source.attribute_numbers(name), name)
    names = {name: _names_or_none(at, axis) for name, axis in zip(NAMES, axes, strict=True) if axis}
    # Names that are not as many as the matrix has rows or columns are those of another matrix.
    sizes = dict(zip(NAMES, shape, strict=True))
    fitting = {name: texts for name, texts in names.items() if len(texts) == sizes[name]}
    return _FORMATS[word], shape, fitting


def _names_or_none(at: Opener, axis: str) -> list[str]:
    """The names along an axis; none if they are not stored as texts."""
    try:
        return names_of(at, axis)
    except (ContainerError, ArrayError):
        return []


def _tenx(source: Group, at: Opener, group: str | None) -> _Matrix:
    features = (at(f"{group or ''}/features"), "id") if "features" in source.names() else (source, "genes")
    names = {"row_names": features[0].texts(features[1]), "column_names": source.texts("barcodes")}
    return "CSC", _sizes(source.integers("shape")[:].tolist(), "shape"), names


def _sizes(shape: Sequence[int], name: str) -> tuple[int, int]:
    if len(shape) != 2 or min(shape) < 0:
        raise ContainerError(Problem(name, f"expected 2 sizes, got {shape!r:.60}"))
    return shape[0], shape[1]
