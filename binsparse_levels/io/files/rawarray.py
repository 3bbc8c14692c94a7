"""RawArray (.ra): one array of any number of dimensions, as a tensor whose levels are all dense.

The values are the items in the order of the file. The first dimension of a file varies fastest. There are two
conventions for the shape:

    order="F"   the shape is that of the file's dimensions; indices are those of Julia, C and Matlab
    order="C"   the shape is reversed, as in the specification of the format; a numpy array is not copied
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...arrays import one_piece
from ...containers.direct import open_file
from ...containers.ra_file import ArrayFile, Order, check_order, write_array
from ...containers.replacing import replacing
from ...errors import FormatError, LimitError, PathMissingError, Problem
from ...formats.format import Format
from ...levels import full
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.foreign import check_representable
from ...tensors.tensor import Tensor
from ..file_tensors import FileTensor
from ..interface import Foreign


@contextlib.contextmanager
def open_array(
    path: str, *, dtype: npt.DTypeLike | None = None, limits: Limits = DEFAULT_LIMITS
) -> Iterator[ArrayFile]:
    """An open .ra file: its header, and its flat items as a lazy array.

    dtype: another type of the same width, in the byte order of the file; required if numpy lacks the file's type.
    Raises ContainerError for a file that is no .ra file or truncated, OptionError.
    """
    with open_file(path, PathMissingError) as file:
        yield ArrayFile(file, path, limits, dtype)


def look(
    path: str,
    closing: contextlib.ExitStack,
    *,
    order: Order = "F",
    dtype: npt.DTypeLike | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> FileTensor:
    """The array in a .ra file as a dense tensor; a scalar if it has no dimensions.

    Types that numpy does not have (128-bit integers, user types, bfloat16 without the package ml_dtypes) become raw
    bytes, in native byte order if the type has one; dtype: as for `open_array`. Bytes appended to the file are ignored.
    Raises ContainerError, ArrayError for invalid booleans, LimitError, OptionError.
    """
    check_order(order)
    array = closing.enter_context(open_array(path, dtype=dtype, limits=limits))
    ndim, dims = len(array.header.dims), array.header.dims
    if order == "C":
        return FileTensor(Format(full(ndim)), dims[::-1], {}, array, ordered=True)
    format = Format(full(ndim), tuple(range(ndim))[::-1] if ndim > 1 else None)
    return FileTensor(format, dims, {}, array, ordered=True)


def write(
    path: str,
    tensor: Tensor,
    *,
    overwrite: bool = False,
    order: Order = "F",
    eltype: int | None = None,
) -> None:
    """Write a tensor whose levels are all dense; convert any other tensor first. `read` with the same order inverts it.

    eltype: the number of the type in the file. For raw bytes it is 0, or 1 and 2 for 128-bit integers; for booleans 5
    as in Julia, or 0 or 2. With 0, the bytes of any type are written without their type.

    Raises FormatError for a tensor that the file cannot represent, OptionError.
    """
    check_order(order)
    check_representable(tensor, "an .ra file", path)
    if tensor.arrays or len(tensor.values) != tensor.size:
        every = ", ".join(["dense"] * tensor.ndim)
        what = f"an .ra file stores dense arrays, not {tensor.format}; convert it to '{every}'"
        raise FormatError(Problem(path, what))
    cells = _cells(tensor, path)
    with replacing(path, overwrite) as temporary, open(temporary, "wb") as file:
        cells = cells.T if order == "F" else cells
        write_array(file, path, one_piece(cells.reshape(-1)), cells.shape[::-1], eltype)


def _cells(tensor: Tensor, path: str) -> npt.NDArray[Any]:
    """The values as an array of the tensor's shape, a view."""
    order = tensor.format.order
    try:
        cells = tensor.values.reshape([tensor.shape[k] for k in order])
    except ValueError as error:
        raise LimitError(Problem(path, f"numpy has no such array: {error}")) from None
    return cells.transpose(np.argsort(order)) if order else cells


FUNCTIONS = Foreign(look=look, write=write)
