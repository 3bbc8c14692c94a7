"""Entries in any order → a tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .data import KINDS, Data, csf, draw, packed
from .peers import SORTING, SORTING_MATRICES, directly, graphblas_build, numpy_lexsort, polars_sort
from .row import BEST, Call, Maker, Row, Targets


def rows(n: int, others: list[int]) -> list[Row]:
    """Of every kind with n entries; of uniform ones also with others."""
    found = [_row(kind, rank, n) for rank in (2, 3, 4) for kind in KINDS]
    return found + [_row("uniform", rank, m) for m in others for rank in (2, 3, 4)]


def _row(kind: str, rank: int, n: int) -> Row:
    format = "COO" if (kind, rank) == ("hypersparse", 2) else "CSR" if rank == 2 else csf(rank)
    return Row(
        f"pack, rank {rank}, {kind} → {format if rank == 2 else 'CSF'}",
        n,
        lambda _: draw(kind, rank, n),
        lambda data: packed(data, format),
        _peers(kind, rank, n),
        _targets(kind, rank, n),
        {"copy": copying},
    )


def _targets(kind: str, rank: int, n: int) -> Targets:
    if kind == "sorted":
        return {BEST: (1.3, None) if rank == 2 else (1, None)}
    if kind == "hypersparse":
        return {BEST: (4, 6)}
    if kind == "skewed":
        return {BEST: (3.5, 5) if rank == 2 else (6, 10)}
    if n < 10**7:
        return {BEST: (3, 4)}
    if rank == 2:
        return {BEST: (3.5, 5) if n < 4 * 10**7 else (4, 6)}
    return {BEST: (10, 16) if rank == 3 else (8, 13)}


def _peers(kind: str, rank: int, n: int) -> Mapping[str, Maker]:
    if kind == "hypersparse":  # the others want a linear key of 63 bits
        more = {"GraphBLAS": graphblas_build} if rank == 2 else {}
        return {"numpy": directly(numpy_lexsort), "polars": polars_sort, **more}
    found = SORTING_MATRICES if rank == 2 else SORTING
    slow = {"torch", "pydata"} if n > 10**7 else {}
    return {name: make for name, make in found.items() if name not in slow}


def copying(data: Data) -> Call:
    """A plain copy of the input into memory that is there."""
    copies = [np.empty_like(x) for x in data.arrays]

    def copy() -> Any:
        for target, source in zip(copies, data.arrays, strict=True):
            np.copyto(target, source)

    return copy
