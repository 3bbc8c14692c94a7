"""The types in which sums run, and which values take part in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArrayError, Problem
from ..tensors.validation import checked_type

# The types of dense operands.
DENSE = np.ndarray, np.generic, list, tuple, int, float, complex

_SUMS = {"b": np.int64, "i": np.int64, "u": np.uint64, "f": np.float64, "c": np.complex128}


def sum_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which values of a type are summed.

    >>> str(sum_type(np.dtype("int8"))), str(sum_type(np.dtype("float32")))
    ('int64', 'float64')
    """
    return np.dtype(_SUMS[dtype.kind])


def common_type(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """The type for sums in both types. Signed and unsigned integers have the same sums of 64 bits: they stay integers.

    >>> str(common_type(np.dtype("int64"), np.dtype("uint64")))
    'uint64'
    """
    return b if {a.kind, b.kind} == {"i", "u"} else np.result_type(a, b)


def number_type(dtype: np.dtype[Any], path: str) -> np.dtype[Any]:
    """The type that values are computed with: float32 for bfloat16, else their own. Raises ArrayError for others."""
    if dtype.name == "bfloat16":
        return np.dtype(np.float32)
    if dtype.kind not in _SUMS or (dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16)):
        raise ArrayError(Problem(path, f"{dtype} is not computed with; convert by astype, such as astype('float64')"))
    return dtype


def checked_result(dtype: Any) -> np.dtype[Any]:
    """The type of a result that a caller asks for."""
    return number_type(checked_type(dtype), "dtype")
