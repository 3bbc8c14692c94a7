"""Checks of shapes, axes, and coordinates within a shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import FormatError, OptionError, Problem, raise_if
from ..levels.base import Array
from ..limits import INT64_MAX, as_integers


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Sizes as Python integers. Raises FormatError for sizes out of range, TypeError for other types."""
    try:
        sizes = as_integers(shape)
    except TypeError:
        sizes = (None,)
    if not set(map(type, sizes)) <= {int}:
        raise OptionError(f"a shape is a sequence of integers, got {shape!r:.60}; pass an integer for each dimension")
    if sizes and not 0 <= min(sizes) <= max(sizes) <= INT64_MAX:
        bad = [(k, size) for k, size in enumerate(sizes) if not 0 <= size <= INT64_MAX]
        raise FormatError([Problem(f"shape[{k}]", f"{size} is not in 0 … 2**63 - 1") for k, size in bad])
    return sizes


def checked_axes(axes: Sequence[int], rank: int) -> list[int]:
    """A permutation of the dimensions. Negative numbers count from the end, as in numpy.

    Raises OptionError for items that are not integers, FormatError if the axes are not a permutation.
    """
    order = list(as_integers(axes))
    if not all(type(k) is int for k in order):
        raise OptionError(f"axes are integers, got {order!s:.60}; pass a permutation of the {rank} dimensions")
    order = [k + rank if k < 0 else k for k in order]
    raise_if(FormatError, permutation_problems(order, rank))
    return order


def permutation_problems(transpose: Any, rank: int | None) -> list[Problem]:
    """Problems of a transpose that is not a permutation of 0 … rank - 1. rank: None if it is unknown."""
    if not isinstance(transpose, (list, tuple)) or not all(type(k) is int for k in transpose):
        return [Problem("transpose", f"expected a list of integers, got {transpose!r:.60}")]
    length = len(transpose) if rank is None else rank
    if len(transpose) != length or sorted(transpose) != list(range(length)):
        expected = f"a permutation of 0 … {length - 1}" if length else "an empty list"
        return [Problem("transpose", f"expected {expected}, got {list(transpose)!s:.60}")]
    return []


def range_problems(coords: Array, dimension: int, size: int) -> Iterator[Problem]:
    """A problem for the first coordinate outside its dimension, with the number of all such coordinates."""
    outside = (coords < 0) | (coords >= size)
    if outside.any():
        bad = np.flatnonzero(outside)
        more = f" ({len(bad)} such in all)" if len(bad) > 1 else ""
        what = f"{coords.reshape(-1)[bad[0]]} is outside dimension {dimension} of size {size}{more}"
        yield Problem(f"coords[{dimension}][{bad[0]}]", what)
