"""The types of sums, and the types of values that arithmetic supports."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.emission import sum_type as sum_type
from ..errors import ArrayError, OptionError, Problem
from ..formats.dtypes import is_of_ml_dtypes
from ..levels.positions import Array
from ..tensors.validation import checked_type

# The types of dense operands.
DENSE = np.ndarray, np.generic, list, tuple, int, float, complex


def common_type(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """The type for sums in both types. Integers stay integers: signed and unsigned sums are equal modulo 2**64.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> str(common_type(np.dtype("int64"), np.dtype("uint64")))
    'uint64'
    """
    return b if {a.kind, b.kind} == {"i", "u"} else np.result_type(a, b)


def product_types(
    operands: tuple[np.dtype[Any], ...], dtype: np.dtype[Any] | None, *, sums: bool
) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """The types of the computation, to which operands are cast, and of the result of products. dtype: as requested.

    Raises OptionError for a type to which `numpy.einsum` does not cast the operands.
    """
    natural = np.result_type(*operands)
    if dtype is None:
        return sum_type(natural), sum_type(natural) if sums else natural
    integers = natural.kind in "iu" and dtype.kind in "iu"  # their sums are equal modulo 2**64
    if not integers and not np.can_cast(natural, number_type(dtype, "dtype"), "same_kind"):
        what = f"the products are {natural}, which is not cast to {dtype}; leave it out, and cast the result"
        raise OptionError(Problem("dtype", what))
    return sum_type(dtype), dtype


def number_type(dtype: np.dtype[Any], path: str) -> np.dtype[Any]:
    """The type for arithmetic with values: float32 for floats of ml_dtypes, else unchanged. Raises ArrayError."""
    if is_of_ml_dtypes(dtype):
        return np.dtype(np.float32)
    if dtype.kind not in "biufc" or (dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16)):
        raise ArrayError(Problem(path, f"arithmetic does not support {dtype}; convert it by astype('float64')"))
    return dtype


def as_words(values: Array) -> Array:
    """Values that loops only copy, as unsigned integers of their size: numba does not have all types."""
    size = values.dtype.itemsize
    return values if size > 8 or values.dtype.kind == "b" else values.view(f"u{size}")


def checked_result(dtype: Any) -> np.dtype[Any]:
    """The validated type of a result that the caller requests."""
    checked = checked_type(dtype)
    number_type(checked, "dtype")
    return checked
