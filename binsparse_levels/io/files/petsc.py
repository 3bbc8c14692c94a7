"""Sparse matrices in PETSc's binary format, read only.

Numbers are big-endian: the number of the class, rows, columns and entries; the length of each row; the columns; the
values. Indices have 32 bits, or 64 where PETSc was built so. The size of the file tells real from complex values.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator

import numpy as np

from ...arrays import LazyArray, lazy
from ...containers.direct import open_file, parts_of
from ...errors import ArrayError, ContainerError, PathMissingError, Problem
from ...limits import DEFAULT_LIMITS, Limits
from ..decoding import FileTensor
from .compressed_matrix import compressed, read_matrix

__all__ = ["looking", "read"]

_CLASS = 1211216


@contextlib.contextmanager
def looking(path: str, group: str | None = None, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[FileTensor]:
    """The matrix, whose columns and values can be read within the block. Raises ContainerError, ArrayError."""
    with open_file(path, PathMissingError, buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        index = np.dtype(">i4" if file.read(4) == _CLASS.to_bytes(4, "big") else ">i8")

        def array(at: int, count: int, dtype: np.dtype[np.generic], name: str) -> LazyArray:
            parts = parts_of(file.fileno(), at, dtype, name, limits)
            return lazy(count, dtype.newbyteorder("="), lambda a, b: parts(a, b).astype(dtype.newbyteorder("=")))

        if size < 4 * index.itemsize:
            raise ContainerError(Problem(path, "is cut within its header; fetch it again"))
        rows, columns, entries = array(index.itemsize, 3, index, "header")[:].tolist()
        if min(rows, columns, entries) < 0:
            what = f"{rows} × {columns}, {entries} entries" + ": a dense matrix" * (entries == -1)
            raise ContainerError(Problem(path, f"expected a sparse matrix, got {what}"))
        ends = np.cumsum([4, rows, entries]) * index.itemsize
        parts = (size - int(ends[-1])) // 8 if not entries else (size - int(ends[-1])) // (8 * entries)
        if parts not in (1, 2) and entries:
            what = f"expected {entries} real or complex values behind byte {ends[-1]}, got {size} bytes in all"
            raise ArrayError(Problem(path, what))
        lengths = array(int(ends[0]), rows, index, "lengths")[:].astype(np.int64)
        if lengths.min(initial=0) < 0 or lengths.sum() != entries:
            raise ArrayError(Problem("lengths", f"the rows have {lengths.sum()} entries, expected {entries}"))
        pointers = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        indices = array(int(ends[1]), entries, index, "columns")
        values = array(int(ends[2]), entries, np.dtype(">c16" if entries and parts == 2 else ">f8"), "values")
        names = ("lengths", "columns", "values")
        yield compressed("CSR", (rows, columns), pointers, names, None, lambda _: (indices, values))


read = functools.partial(read_matrix, looking)
