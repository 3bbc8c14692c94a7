"""What the board works on: coordinates of int64, as numpy makes them, in random order; and trees of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from binsparse_levels import Tensor, pack

# The regimes: how many entries a fiber of the last dimension has, and Zipf's law. What is fast in one may be slow in
# another: short fibers cost by the fiber, long ones by the entry, skewed ones miss the caches less.
FIBERS = {"1 a fiber": 1, "10 a fiber": 10, "1,000 a fiber": 1000}
REGIMES = (*FIBERS, "skewed")
CSF, COO_3 = "sparse, sparse, sparse", "sparse(3)"


class Data(NamedTuple):
    """Entries of a tensor. The values are small integers, so that their sums are the same in any order."""

    coords: list[Any]
    values: Any
    shape: tuple[int, ...]

    @property
    def arrays(self) -> list[Any]:
        return [*self.coords, self.values]


@lru_cache(2)
def draw(kind: str, rank: int, n: int) -> Data:
    """n entries. A regime: so many in a fiber of the last dimension; skewed: by Zipf's law with exponent 1.1, so that
    many repeat; hypersparse: keys of 80 bits in rank 2, of 120 above; sorted: in order and once each.
    """
    if kind.startswith("sorted, "):
        data = draw(kind.removeprefix("sorted, "), rank, n)
        columns, values = packed(data, f"sparse({rank})").unpack()
        return Data(list(columns), values, data.shape)
    generator = np.random.default_rng(rank)
    shape = _shape(kind, rank, n)
    values = generator.integers(1, 100, n).astype(np.float64)
    coords = [zipf(generator, s, n) if kind == "skewed" else generator.integers(0, s, n) for s in shape]
    return Data(coords, values, shape)


def _shape(kind: str, rank: int, n: int) -> tuple[int, ...]:
    if kind == "hypersparse":
        return (2 ** (40 if rank == 2 else 120 // rank),) * rank
    if kind == "skewed" or (rank > 2 and FIBERS[kind] == 1):
        return (min(10 ** (8 - rank), max(n, 10)),) * rank
    outer = max(round((n / FIBERS[kind]) ** (1 / (rank - 1))), 1)
    return (*(outer,) * (rank - 1), max(outer, 20 * FIBERS[kind]))


def zipf(generator: np.random.Generator, side: int, n: int, exponent: float = 1.1) -> Any:
    power = 1 - exponent
    places = (1 - generator.random(n) * (1 - float(side) ** power)) ** (1 / power)
    return np.minimum(places.astype(np.int64), side) - 1


@lru_cache(4)
def tree(kind: str, n: int, format: str) -> Tensor:
    """The entries packed, of rank 3 in the formats of that rank."""
    return packed(draw(kind, 3 if format in (CSF, COO_3) else 2, n), format)


def packed(data: Data, format: str) -> Tensor:
    return pack(data.coords, data.values, data.shape, format, duplicates="sum", fill_value=0)


def short(format: str) -> str:
    return {CSF: "CSF", COO_3: "COO of rank 3"}.get(format, format)


def csf(rank: int) -> str:
    return ", ".join(["sparse"] * rank)
