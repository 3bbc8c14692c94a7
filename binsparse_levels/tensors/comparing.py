"""Comparison of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.tree import alike, same
from ..levels.base import Array
from .changing import in_order
from .contents import Contents, labels_of
from .labels import same_labels


def equals(self: Contents, other: Contents, *, rtol: float = 0, atol: float = 0) -> bool:
    """Return True if both have the same shape, entries and fill value. Formats and maps may differ.

    NaN equals NaN. Types may differ, as in numpy. No fill value is treated as zero. A stored fill value counts as
    an entry. Labels are compared for dimensions that have labels in both tensors.

    Parameters
    ----------
    other : Tensor
        A tensor; any other object is not equal.
    rtol, atol : float, default 0
        The tolerances of `numpy.allclose`, relative to `other` and absolute. The fill values may differ by as
        much.

    Returns
    -------
    bool
        Bool.

    See Also
    --------
    Tensor.check : Check every invariant.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> tensor = bl.pack_dense([[0, 2], [3, 0]], "CSR")
    >>> tensor.equals(tensor.convert("COO")), tensor.equals(tensor.T)
    (True, False)
    """
    if not isinstance(other, Contents) or self.shape != other.shape:
        return False
    try:
        both: tuple[Any, Any] = self, other
        with np.errstate(invalid="ignore"):  # a NaN may be signaling
            if rtol or atol:
                return _labelled_alike(self, other) and bool(np.allclose(*both, rtol, atol, equal_nan=True))
            if not same(self._inside.pad, other._inside.pad):
                return False
            (mine, values), (others, other_values) = in_order(self), in_order(other)
            cells = all(map(np.array_equal, mine, others)) and _alike(values, other_values)
            return cells and _labelled_alike(self, other)
    except TypeError:  # numpy does not compare some types
        return False


def _alike(a: Array, b: Array) -> bool:
    """Return True if all items are equal. NaN equals NaN."""
    return len(a) == len(b) and bool(np.all(alike(a, b)))


def _labelled_alike(a: Contents, b: Contents) -> bool:
    labels = ((labels_of(a, k), labels_of(b, k)) for k in range(a.ndim))
    return all(x is None or y is None or same_labels(x, y) for x, y in labels)
