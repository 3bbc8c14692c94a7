"""Sparse matrices in HDF5 files of AnnData (.h5ad) and of 10x Genomics, which are read only.

AnnData: a group with `data`, `indices`, `indptr`, whose attributes say csr or csc and the shape; names of its rows and
columns are the index of `obs` and `var` at the root. 10x: a group `matrix`, compressed by columns, the shape among its
datasets; its rows are features, or in older files genes, its columns barcodes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import h5py

from ...containers import hdf5
from ...errors import ArrayError, BinsparseError, ContainerError, Problem
from ...limits import DEFAULT_LIMITS, Limits
from .compressed_matrix import Compression, compressed, read_matrix
from .sources import FileTensor, Group, attribute_text

_Opener: TypeAlias = Callable[[str], Group]
_Matrix: TypeAlias = tuple[Compression, tuple[int, int], dict[str, list[str]]]  # its format, shape and names

_FORMATS: dict[str, Compression] = {"csr_matrix": "CSR", "csc_matrix": "CSC", "csr": "CSR", "csc": "CSC"}
_ARRAYS = ("indptr", "indices", "data")


@contextlib.contextmanager
def looking(path: str, group: str | None = None, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[FileTensor]:
    """The matrix in a group, with lazy arrays, which can be read within the block.

    Without a group it is the `X` of AnnData, or the `matrix` of 10x. Raises ContainerError for a file of neither,
    ArrayError for arrays that do not fit each other.
    """
    with contextlib.ExitStack() as closing:

        def at(name: str | None) -> Group:
            return Group(closing.enter_context(hdf5.reading(path, name, limits)), limits)

        source = at(group)
        inner = next((name for name in ("matrix", "X") if not group and name in source.names()), None)
        if inner:
            group, source = inner, at(inner)
        matrix = _tenx(source, at, group) if "barcodes" in source.names() else _anndata(source, at)
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


def claims(group: h5py.Group) -> bool:
    """Whether a group is marked as such a matrix."""
    if "barcodes" in group.keys():  # noqa: SIM118 (`in group` follows links)
        return True
    with contextlib.suppress(BinsparseError):
        return attribute_text(group, _said(group.attrs), DEFAULT_LIMITS) in _FORMATS
    return False


def _said(attributes: h5py.AttributeManager) -> str:
    """The name of the attribute with the compression of a matrix."""
    return "h5sparse_format" if "h5sparse_format" in attributes else "encoding-type"


def _anndata(source: Group, at: _Opener) -> _Matrix:
    said = _said(source.attributes)
    word = source.attribute_text(said)
    if word not in _FORMATS:
        raise ContainerError(Problem(said, f"expected csr_matrix or csc_matrix, got {word!r:.60}"))
    name = "shape" if "shape" in source.attributes else "h5sparse_shape"
    shape = _sizes(source.attribute_numbers(name), name)
    names = {"row_names": _index(at, "obs"), "column_names": _index(at, "var")}
    # Names that are not as many as the matrix has rows or columns are those of another one.
    fitting = {ours: texts for (ours, texts), size in zip(names.items(), shape, strict=True) if len(texts) == size}
    return _FORMATS[word], shape, fitting


def _index(at: _Opener, axis: str) -> list[str]:
    """The names along an axis of AnnData; none if they are not stored as texts."""
    try:
        table = at(axis)
        return table.texts(table.attribute_text("_index"))
    except (ContainerError, ArrayError):
        return []


def _tenx(source: Group, at: _Opener, group: str | None) -> _Matrix:
    features = (at(f"{group or ''}/features"), "id") if "features" in source.names() else (source, "genes")
    names = {"row_names": features[0].texts(features[1]), "column_names": source.texts("barcodes")}
    return "CSC", _sizes(source.integers("shape")[:].tolist(), "shape"), names


def _sizes(shape: Sequence[int], name: str) -> tuple[int, int]:
    if len(shape) != 2 or min(shape) < 0:
        raise ContainerError(Problem(name, f"expected 2 sizes, got {shape!r:.60}"))
    return shape[0], shape[1]
