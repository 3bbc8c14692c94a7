"""Cost as work grows: time and memory of one operation by entries and rank, without peers."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from binsparse_levels import Tensor

from .data import Data, csf, packed
from .measure import available
from .row import Row

RANKS = (2, 3, 4, 5, 6, 8)
SIZES = (*(k * 10**e for e in range(3, 8) for k in (1, 3)), 4 * 10**7, 10**8, 2 * 10**8)
MOST = 4 * 10**7
OPERATIONS = ("pack", "unpack", "convert, dimensions reversed")
_SPARSE = 1000  # cells for each entry
_TAKEN, _COLUMN = 160, 24  # bytes for each entry, and for each entry and dimension: data, result and scratch
_FEW, _LARGE = 10**5, 10**7  # entries: small sizes are timed many times in a call, large ones in few rounds


def rows(most: int) -> list[Row]:
    """Of all sizes up to `most`, and of `most`. What exceeds the memory is left out."""
    room = available()
    sizes = sorted({most, *(n for n in SIZES if n < most)})
    fitting = [(n, rank) for n in sizes for rank in RANKS if n * (_TAKEN + rank * _COLUMN) < room]
    return [row for n, rank in fitting for row in _rows(n, rank)]


def _rows(n: int, rank: int) -> list[Row]:
    reverse = f"{csf(rank)} @ {', '.join(map(str, reversed(range(rank))))}"
    made = (_drawn, _packed, _packed)
    operations = (lambda data: packed(data, csf(rank)), Tensor.unpack, lambda tensor: tensor.convert(reverse))
    calls, rounds = max(_FEW // n, 1), 2 if n >= _LARGE else 100
    found = []
    for name, make, operation in zip(OPERATIONS, made, operations, strict=True):
        making = partial(lambda make, _: make(n, rank), make)
        found.append(Row(f"{name}, rank {rank}", n, making, operation, {}, {}, calls=calls, rounds=rounds))
    return found


@lru_cache(1)
def _drawn(n: int, rank: int) -> Data:
    """Entries anywhere in a tensor whose side grows with them, so that no size differs from the next but in size."""
    generator = np.random.default_rng(rank)
    side = max(round((_SPARSE * n) ** (1 / rank)), 2)
    coords: list[Any] = [generator.integers(0, side, n) for _ in range(rank)]
    return Data(coords, generator.integers(1, 100, n).astype(np.float64), (side,) * rank)


@lru_cache(1)
def _packed(n: int, rank: int) -> Tensor:
    return packed(_drawn(n, rank), csf(rank))
