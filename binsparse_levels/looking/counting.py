"""What a pass over the entries tells: where they lie, and how the values are spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from ..levels.positions import Array

BINS, SIDE = 128, 64  # the most bins of a dimension, and along a side of a pair
DIMENSIONS, PAIRS = 8, 6  # the most that are counted
_LOWEST = 1074  # the exponent of the least float64 is -1073


# Where the entries lie


class Places:
    """The number of entries in bins of each dimension, and in bins of pairs of dimensions.

    steps: how many coordinates a bin has. pairs: by two dimensions.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        sizes = shape[:DIMENSIONS]
        self.steps = [max(-(-size // BINS), 1) for size in sizes]
        self.bins = [np.zeros(-(-size // step), np.int64) for size, step in zip(sizes, self.steps, strict=True)]
        # Two bins of a dimension become one where there are too many.
        self.joined = [1 if len(bins) <= SIDE else 2 for bins in self.bins]
        sides = [-(-len(bins) // joined) for bins, joined in zip(self.bins, self.joined, strict=True)]
        chosen = list(combinations(range(len(sizes)), 2))[:PAIRS]
        self.pairs = {(a, b): np.zeros((sides[a], sides[b]), np.int64) for a, b in chosen}

    def add(self, coords: Sequence[Array]) -> None:
        at = [x // step for x, step in zip(coords, self.steps, strict=False)]
        for bins, x in zip(self.bins, at, strict=True):
            bins += np.bincount(x, minlength=len(bins))
        at = [x // joined for x, joined in zip(at, self.joined, strict=True)]
        for (a, b), counts in self.pairs.items():
            counts += np.bincount(at[a] * counts.shape[1] + at[b], minlength=counts.size).reshape(counts.shape)


# How the values are spread


@dataclass
class Spread:
    """The values: the least and the greatest, how many are zero, negative, NaN and infinite, and their magnitudes.

    Of complex values, these are absolute values. magnitudes: how many values have each binary exponent. Values that are
    no numbers are only counted.
    """

    count: int = 0
    zeros: int = 0
    negative: int = 0
    nans: int = 0
    infinite: int = 0
    least: Any = None
    greatest: Any = None
    total: float = 0.0
    magnitudes: Array = field(default_factory=lambda: np.zeros(2 * _LOWEST, np.int64))

    def add(self, values: Array) -> None:
        self.count += len(values)
        if values.dtype.kind not in "biufc" or not len(values):
            return
        real = np.abs(values) if values.dtype.kind == "c" else values
        with np.errstate(all="ignore"):
            numbers = real.astype(np.float64)
        there = ~np.isnan(numbers)
        self.nans += len(values) - int(np.count_nonzero(there))
        if not there.all():
            real, numbers = real[there], numbers[there]
        if not len(real):
            return
        self.least = real.min() if self.least is None else min(self.least, real.min())
        self.greatest = real.max() if self.greatest is None else max(self.greatest, real.max())
        finite = numbers[np.isfinite(numbers)]
        self.infinite += len(numbers) - len(finite)
        self.negative += int(np.count_nonzero(numbers < 0))
        self.zeros += int(np.count_nonzero(numbers == 0))
        self.total += float(finite.sum())
        exponents = np.frexp(finite[finite != 0])[1] + _LOWEST
        self.magnitudes += np.bincount(exponents, minlength=len(self.magnitudes))

    @property
    def mean(self) -> float:
        """The mean of the finite values; NaN where there is none."""
        finite = self.count - self.nans - self.infinite
        return self.total / finite if finite else float("nan")

    def exponents(self) -> range:
        """The binary exponents that occur, from the least: magnitudes of 2**(k - 1) up to 2**k."""
        (there,) = self.magnitudes.nonzero()
        return range(int(there[0]) - _LOWEST, int(there[-1]) + 1 - _LOWEST) if len(there) else range(0)

    def of(self, exponent: int) -> int:
        return int(self.magnitudes[exponent + _LOWEST])
