"""Sparse matrices in MATLAB files of version 7.3, which are HDF5; read only.

A matrix is a group with the attribute MATLAB_sparse, the number of rows: `jc` are the pointers of the columns, `ir` the
rows, `data` the values. A matrix without entries lacks `ir` and `data`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from ...arrays import Sliceable
from ...containers import hdf5
from ...containers.base import touching
from ...containers.hdf5 import opened, reading
from ...errors import ArrayError, BinsparseError, ContainerError, Problem
from ...limits import DEFAULT_LIMITS, INT64_MAX, Limits
from ..decoding import FileTensor
from .compressed_matrix import compressed, read_matrix
from .sources import Group

__all__ = ["claims", "list_groups", "looking", "opened", "read"]

MARK = "MATLAB_sparse"
_ARRAYS = ("jc", "ir", "data")


def claims(group: h5py.Group) -> bool:
    """Whether a group is marked as such a matrix."""
    return MARK in group.attrs


def list_groups(path: Any, limits: Limits) -> list[str]:
    """The names of the sparse matrices in a file."""
    return hdf5.list_groups(path, limits, [claims])


@contextlib.contextmanager
def looking(path: Any, group: str | None = None, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[FileTensor]:
    """The matrix in a group, by default the only one, with lazy arrays, which can be read within the block.

    Raises ContainerError for another group, ArrayError for arrays that do not fit each other.
    """
    if group is None:
        names = list_groups(path, limits)
        if len(names) != 1:
            there = f"{', '.join(names):.200}; open PATH:NAME" if names else "none; save one with -v7.3"
            raise ContainerError(Problem("sparse matrices", f"expected one, got {there}"))
        (group,) = names
    with reading(path, group, limits) as reader:
        source = Group(reader, limits)
        rows = _rows(source)
        pointers = source.integers("jc")

        def entries(count: int) -> tuple[Sliceable, Sliceable]:
            if not count and "ir" not in source.names():
                return np.empty(0, np.uint64), np.empty(0, np.float64)
            return source.integers("ir"), _values(source)

        yield compressed("CSC", (rows, max(len(pointers) - 1, 0)), pointers, _ARRAYS, None, entries)


read = functools.partial(read_matrix, looking)


def _rows(source: Group) -> int:
    with touching(MARK):
        rows = source.attributes.get(MARK)
    if not isinstance(rows, np.integer) or not 0 <= rows <= INT64_MAX:
        raise ContainerError(Problem(MARK, f"expected the number of rows, got {rows!r:.40}; choose a sparse matrix"))
    return int(rows)


def _values(source: Group) -> Sliceable:
    """The values: numbers, pairs of a real and an imaginary part, or for a logical matrix bytes of 0 and 1."""
    info = source.one_dimension("data")
    if info.dtype.names == ("real", "imag"):
        part = info.dtype["real"]
        if info.dtype != np.dtype([("real", part), ("imag", part)]) or part.newbyteorder("=") not in ("f4", "f8"):
            raise ArrayError(Problem("data", f"expected pairs of floating-point numbers, got {info.dtype}"))
        return source.items("data", len(info), np.dtype(f"c{2 * part.itemsize}"), view=True)
    with contextlib.suppress(BinsparseError):
        if source.attribute_text("MATLAB_class") == "logical" and info.dtype.kind in "iu":
            return source.items("data", len(info), np.dtype(bool))
    return source.numbers("data")
