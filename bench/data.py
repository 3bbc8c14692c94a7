"""What the board packs: coordinates of int64, as numpy makes them, in random order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from binsparse_levels import Tensor, pack

KINDS = ("uniform", "skewed", "hypersparse", "sorted")


class Data(NamedTuple):
    """Entries of a tensor. The values are small integers, so that their sums are the same in any order."""

    coords: list[Any]
    values: Any
    shape: tuple[int, ...]

    @property
    def arrays(self) -> list[Any]:
        return [*self.coords, self.values]


def draw(kind: str, rank: int, n: int) -> Data:
    """n entries. uniform: anywhere; skewed: by Zipf's law with exponent 1.1, so that many repeat; hypersparse: keys of
    80 bits in rank 2, of 120 above; sorted: those of uniform, in order and once each.
    """
    generator = np.random.default_rng(rank)
    side = 2 ** (40 if rank == 2 else 120 // rank) if kind == "hypersparse" else min(10 ** (8 - rank), max(n, 10))
    values = generator.integers(1, 100, n).astype(np.float64)
    if kind == "skewed":
        coords = [zipf(generator, side, n) for _ in range(rank)]
    else:
        coords = [generator.integers(0, side, n) for _ in range(rank)]
    data = Data(coords, values, (side,) * rank)
    if kind == "sorted":
        columns, values = packed(data, f"sparse({rank})").unpack()
        return Data(list(columns), values, data.shape)
    return data


def zipf(generator: np.random.Generator, side: int, n: int, exponent: float = 1.1) -> Any:
    power = 1 - exponent
    places = (1 - generator.random(n) * (1 - float(side) ** power)) ** (1 / power)
    return np.minimum(places.astype(np.int64), side) - 1


def packed(data: Data, format: str) -> Tensor:
    return pack(data.coords, data.values, data.shape, format, duplicates="sum", fill_value=0)


def csf(rank: int) -> str:
    return ", ".join(["sparse"] * rank)
