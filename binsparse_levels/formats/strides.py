"""Groups of whole dimensions as strides and offsets, as the DM proposal has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..errors import FormatError, Problem
from .digits import Digit, Item


class DimensionMap(NamedTuple):
    """A grouping as strides and offsets: stored coordinate k is offset[k] + the sum of strides[k][i] * x[groups[k][i]].

    The DM proposal calls them `roffset`, `rstrides` and `rdimensions`.
    """

    groups: tuple[tuple[int, ...], ...]
    strides: tuple[tuple[int, ...], ...]
    offset: tuple[int, ...]


def strides_of(groups: Sequence[Sequence[Digit]], wanted: Sequence[Item], at: Mapping[int, int]) -> DimensionMap:
    """The groups of a map that divides no dimension, of what is wanted of each dimension.

    at: the number of a dimension in the view. Raises FormatError for what is wanted without a step.
    """
    rows = []
    for group in groups:
        weight, offset = 1, 0
        kept: list[int] = []
        strides: list[int] = []
        for digit in reversed(group):
            item = wanted[digit.dimension]
            if isinstance(item, np.ndarray):
                what = f"an index array in dimension {digit.dimension} has no stride; index with a slice"
                raise FormatError(Problem("map", what))
            offset += weight * (item if isinstance(item, int) else item.start)
            if not isinstance(item, int):
                kept.insert(0, at[digit.dimension])
                strides.insert(0, weight * item.step)
            weight *= digit.radix
        rows.append((tuple(kept), tuple(strides), offset))
    return DimensionMap(*zip(*rows, strict=True)) if rows else DimensionMap((), (), ())
