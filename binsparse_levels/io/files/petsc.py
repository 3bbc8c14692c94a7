"""Sparse matrices in PETSc's binary format, read only.

Numbers are big-endian: the number of the class, rows, columns and entries; the length of each row; the columns; the
values. Indices have 32 bits, or 64 if PETSc was built so. Other objects, such as right sides, may follow the matrix.
The file does not store the type of the values. It is the one with which they end at the class number of another object,
or else at the end of the file. Complex values of 32 bits and real values of 64 have the same size; the lower halves of
the latter do not look like numbers.
"""

from __future__ import annotations

import contextlib
import math
import os

import numpy as np

from ...arrays import Array, LazyArray, lazy
from ...containers.direct import open_file, parts_of
from ...errors import ArrayError, ContainerError, PathMissingError, Problem
from ...limits import Limits
from ..file_tensors import FileTensor, compressed
from ..interface import Foreign

_MATRIX = 1211216
_CLASSES = range(1211211, 1211231)  # of all objects
_VALUES = (">f8", ">c16", ">f4")
_SAMPLED_VALUES = 4096  # from which the type is inferred
_PROOF_BITS = 24  # of evidence: random words look like pairs with probability 2**-24
_MAX_EXPONENT = 40  # the largest binary exponent of usual numbers


def look(path: str, closing: contextlib.ExitStack, *, limits: Limits) -> FileTensor:
    """The first matrix in a file, with lazy columns and values. Raises ContainerError, ArrayError."""
    file = closing.enter_context(open_file(path, PathMissingError, buffering=0))
    size = os.fstat(file.fileno()).st_size
    index = np.dtype(">i4" if file.read(4) == _MATRIX.to_bytes(4, "big") else ">i8")

    def array(at: int, count: int, dtype: np.dtype[np.generic], name: str) -> LazyArray:
        stored = lazy(count, dtype, parts_of(file.fileno(), at, dtype, name, limits))
        return stored.mapped(lambda x: x.astype(dtype.newbyteorder("=")), dtype.newbyteorder("="))

    def is_followed(at: int) -> bool:
        return at + index.itemsize <= size and int(array(at, 1, index, "class")[0]) in _CLASSES

    if size < 4 * index.itemsize:
        raise ContainerError(Problem(path, "is truncated within its header; fetch it again"))
    rows, columns, entries = array(index.itemsize, 3, index, "header")[:].tolist()
    if min(rows, columns, entries) < 0:
        what = f"{rows} × {columns}, {entries} entries" + ": a dense matrix" * (entries == -1)
        raise ContainerError(Problem(path, f"expected a sparse matrix, got {what}"))
    lengths_at, columns_at, values_at = (np.cumsum([4, rows, entries]) * index.itemsize).tolist()
    ends = {dtype: values_at + entries * dtype.itemsize for dtype in map(np.dtype, _VALUES)}
    fitting = [dtype for dtype, end in sorted(ends.items(), key=lambda x: x[1]) if is_followed(end)]
    fitting += [dtype for dtype, end in ends.items() if end == size]
    if not fitting:
        what = f"expected {entries} real or complex values after byte {values_at}, got {size} bytes in all"
        raise ArrayError(Problem(path, what))
    lengths = array(lengths_at, rows, index, "lengths")[:].astype(np.int64)
    if lengths.min(initial=0) < 0 or lengths.sum() != entries:
        raise ArrayError(Problem("lengths", f"the rows have {lengths.sum()} entries, expected {entries}"))
    pointers = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    dtype, halves = fitting[0], array(values_at, 2 * min(entries, _SAMPLED_VALUES), np.dtype(">f4"), "values")
    if dtype == ">f8" and (is_complex := _are_pairs(halves[:].reshape(-1, 2))) is not False:
        if is_complex is None:
            what = "may be real of 64 bits or complex of 32; write them in another precision, or as a MATLAB file"
            raise ArrayError(Problem("values", what))
        dtype = np.dtype(">c8")
    listed, values = array(columns_at, entries, index, "columns"), array(values_at, entries, dtype, "values")
    return compressed("CSR", (rows, columns), {"lengths": pointers, "columns": listed, "values": values})


def _are_pairs(halves: Array) -> bool | None:
    """Return True if words of 64 bits are pairs of 32-bit numbers; None if there is too little evidence.

    The lower halves of real numbers are zeros, or have any exponent and any last bits. Those of converted 32-bit
    numbers have only three bits set, and look like numbers of at most 2.
    """
    words = halves[:, 1].view(np.uint32)[halves[:, 1] != 0]
    exponents, fractions = (words >> 23 & 255).astype(int), words & 0x7FFFFF
    if not len(words) or np.abs(exponents - 127).max() > _MAX_EXPONENT:
        return False
    lowest = np.where(fractions == 0, 23, np.log2(np.maximum(fractions & -fractions, 1)))
    proof = len(words) * math.log2(256 / (2 * _MAX_EXPONENT + 1)) + lowest[words << 1 != 0x80000000].sum()
    return True if proof >= _PROOF_BITS else None


FUNCTIONS = Foreign(look=look)
