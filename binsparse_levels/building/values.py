"""The type of the values that several chunks have in common, and values cast to it without becoming other numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import ArrayError, Problem


def holds(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Whether a type has every value of another exactly.

    >>> holds(np.dtype(float), np.dtype("int32")), holds(np.dtype(float), np.dtype("int64"))
    (True, False)
    """
    if not np.can_cast(narrow, wide, "safe"):
        return False
    if narrow.kind not in "iu" or wide.kind not in "fc":
        return True
    return 8 * narrow.itemsize - (narrow.kind == "i") <= np.finfo(wide).nmant + 1


def common_type(types: Sequence[np.dtype[Any]]) -> np.dtype[Any] | None:
    """The smallest type that has every value of these types; None where there is none, as for int64 and float64."""
    try:
        found: np.dtype[Any] = np.result_type(*types)
    except TypeError:
        return None
    return found if all(holds(found, x) for x in types) else None


def cast(values: Array, dtype: np.dtype[Any], *, exact: bool) -> Array:
    """Values in the type of the tensor. Raises ArrayError where one of them would be another number.

    exact: nobody has asked for the type, so floats are not rounded either.
    """
    if not values.size or holds(dtype, values.dtype):
        return values.astype(dtype, copy=False)
    if not np.can_cast(values.dtype, dtype, "same_kind"):
        what = f"values of type {values.dtype}, where the first were {dtype}; pass dtype="
        raise ArrayError(Problem("values", what))
    with np.errstate(over="ignore", invalid="ignore"):
        made = values.astype(dtype)
        back = (made if values.dtype.kind == "c" else made.real).astype(values.dtype)
    if dtype.kind in "iu":
        fits = values.min() >= np.iinfo(dtype).min and values.max() <= np.iinfo(dtype).max
    elif exact:
        fits = np.array_equal(back, values, equal_nan=values.dtype.kind in "fc")
    else:
        fits = bool((np.isfinite(made) | ~np.isfinite(values)).all())
    if not fits:
        raise ArrayError(Problem("values", f"exceed the type {dtype}; pass dtype={values.dtype.name!r}"))
    return made
