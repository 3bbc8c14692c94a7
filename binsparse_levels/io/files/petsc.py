"""Sparse matrices in PETSc's binary format, read only.

Numbers are big-endian: the number of the class, rows, columns and entries; the length of each row; the columns; the
values. Indices have 32 bits, or 64 where PETSc was built so. Other objects, such as right sides, may follow the matrix.
The values are of the type with which they end where the class number of another object stands, or else where the file
ends. Complex values of single precision take as many bytes as real ones of double precision. They are taken where the
imaginary parts are numbers of a usual size: of a real value, these bits are its last digits.
"""

from __future__ import annotations

import contextlib
import os

import numpy as np

from ...arrays import Array, LazyArray, lazy
from ...containers.direct import open_file, parts_of
from ...errors import ArrayError, ContainerError, PathMissingError, Problem
from ...limits import Limits
from ..file_tensors import FileTensor
from .compressed_matrix import compressed

__all__ = ["look"]

_MATRIX = 1211216
_CLASSES = range(1211211, 1211231)  # of all objects
_VALUES = (">f8", ">c16", ">f4")
_SAMPLE = 4096  # values of which the type is told
_DISTINCT = 8  # imaginary parts that tell it


def look(path: str, closing: contextlib.ExitStack, *, limits: Limits) -> FileTensor:
    """The first matrix in a file, with lazy columns and values. Raises ContainerError, ArrayError."""
    file = closing.enter_context(open_file(path, PathMissingError, buffering=0))
    size = os.fstat(file.fileno()).st_size
    index = np.dtype(">i4" if file.read(4) == _MATRIX.to_bytes(4, "big") else ">i8")

    def array(at: int, count: int, dtype: np.dtype[np.generic], name: str) -> LazyArray:
        native = dtype.newbyteorder("=")
        parts = parts_of(file.fileno(), at, dtype, name, limits)
        return lazy(count, native, lambda a, b: parts(a, b).astype(native))

    def is_followed(at: int) -> bool:
        return at + index.itemsize <= size and int(array(at, 1, index, "class")[0]) in _CLASSES

    if size < 4 * index.itemsize:
        raise ContainerError(Problem(path, "is cut within its header; fetch it again"))
    rows, columns, entries = array(index.itemsize, 3, index, "header")[:].tolist()
    if min(rows, columns, entries) < 0:
        what = f"{rows} × {columns}, {entries} entries" + ": a dense matrix" * (entries == -1)
        raise ContainerError(Problem(path, f"expected a sparse matrix, got {what}"))
    lengths_at, columns_at, values_at = (np.cumsum([4, rows, entries]) * index.itemsize).tolist()
    ends = {dtype: values_at + entries * dtype.itemsize for dtype in map(np.dtype, _VALUES)}
    fitting = [dtype for dtype, end in sorted(ends.items(), key=lambda x: x[1]) if is_followed(end)]
    fitting += [dtype for dtype, end in ends.items() if end == size]
    if not fitting:
        what = f"expected {entries} real or complex values behind byte {values_at}, got {size} bytes in all"
        raise ArrayError(Problem(path, what))
    lengths = array(lengths_at, rows, index, "lengths")[:].astype(np.int64)
    if lengths.min(initial=0) < 0 or lengths.sum() != entries:
        raise ArrayError(Problem("lengths", f"the rows have {lengths.sum()} entries, expected {entries}"))
    pointers = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    dtype, words = fitting[0], array(values_at, 2 * min(entries, _SAMPLE), np.dtype(">u4"), "values")
    if dtype.itemsize == 8 and _are_single(words[:][1::2]):
        dtype = np.dtype(">c8")
    arrays = array(columns_at, entries, index, "columns"), array(values_at, entries, dtype, "values")
    return compressed("CSR", (rows, columns), pointers, ("lengths", "columns", "values"), None, lambda _: arrays)


def _are_single(words: Array) -> bool:
    """Whether words of 32 bits are numbers of single precision: of a usual size, and many or with few digits.

    The last bits of real values that were once of single precision look like 2 and -2.
    """
    words = np.unique(words[words << 1 != 0])
    usual = abs((words >> 23 & 255).astype(np.int64) - 127) < 40
    told = len(words) >= _DISTINCT or bool((words << 16 == 0).all())
    return told and bool(usual.all()) and bool((words << 1 != 2**31).any())
