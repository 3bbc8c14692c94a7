"""Cost as work grows: time and memory of one operation by entries and rank, without peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from binsparse_levels import Tensor

from .data import csf, draw, packed
from .row import Row

RANKS = (2, 3, 4, 5, 6)
SIZES = (10**3, 10**4, 10**5, 10**6, 10**7, 4 * 10**7)
OPERATIONS = ("pack", "unpack", "convert, dimensions reversed")


def rows(sizes: tuple[int, ...] = SIZES) -> list[Row]:
    return [row for n in sizes for rank in RANKS for row in _rows(n, rank)]


def _rows(n: int, rank: int) -> list[Row]:
    reverse = f"{csf(rank)} @ {', '.join(map(str, reversed(range(rank))))}"
    operations: list[Callable[[Any], Any]] = [
        lambda data: packed(data, csf(rank)),
        Tensor.unpack,
        lambda tensor: tensor.convert(reverse),
    ]
    return [
        Row(
            f"{name}, rank {rank}",
            n,
            (lambda _: draw("uniform", rank, n))
            if name == "pack"
            else lambda _: packed(draw("uniform", rank, n), csf(rank)),
            operation,
            {},
            {},
        )
        for name, operation in zip(OPERATIONS, operations, strict=True)
    ]
