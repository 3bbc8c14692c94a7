"""The data of the benchmarks: int64 coordinates in random order, and trees of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from binsparse_levels import Tensor, pack

CSF = "sparse, sparse, sparse"


class Data(NamedTuple):
    """Entries of a tensor. The values are small integers, so that their sums are the same in any order."""

    coords: list[Any]
    values: Any
    shape: tuple[int, ...]

    @property
    def arrays(self) -> list[Any]:
        return [*self.coords, self.values]


@lru_cache(2)
def draw(kind: str, n: int) -> Data:
    """n entries. plain: a matrix with ten entries in a row; cube: rank 3, one entry in most fibers; skewed: a matrix by
    Zipf's law, with many duplicates; sorted: the unique plain entries in order.
    """
    if kind == "sorted":
        columns, values = tree("CSR", n).unpack()
        return Data(list(columns), values, tree("CSR", n).shape)
    generator = np.random.default_rng(3 if kind == "cube" else 2)
    rows = max(n // 10, 1)
    side = {"cube": 10**5, "skewed": 10**6}.get(kind, 0)
    shape = {"plain": (rows, max(rows, 200)), "cube": (min(side, n),) * 3}.get(kind, (side, side))
    values = generator.integers(1, 100, n).astype(np.float64)
    coords = [zipf(generator, s, n) if kind == "skewed" else generator.integers(0, s, n) for s in shape]
    return Data(coords, values, shape)


def zipf(generator: np.random.Generator, side: int, n: int, exponent: float = 1.1) -> Any:
    power = 1 - exponent
    places = (1 - generator.random(n) * (1 - float(side) ** power)) ** (1 / power)
    return np.minimum(places.astype(np.int64), side) - 1


@lru_cache(3)
def tree(format: str, n: int) -> Tensor:
    """The packed entries: those of the cube for CSF, otherwise the plain ones."""
    return packed(draw("cube" if format == CSF else "plain", n), format)


def packed(data: Data, format: str) -> Tensor:
    return pack(data.coords, data.values, data.shape, format, duplicates="sum", fill_value=0)


def integers(*shape: int) -> Any:
    """A dense array of small integers."""
    return np.random.default_rng(0).integers(0, 4, shape).astype(np.float64)
