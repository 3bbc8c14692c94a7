"""Entries in any order → a tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .data import FIBERS, REGIMES, Data, csf, draw, packed
from .peers import SORTING, SORTING_MATRICES, directly, graphblas_build, numpy_lexsort, polars_sort
from .row import BEST, Call, Maker, Row, Targets

# Ranks, data, gates.
_TABLE: tuple[tuple[tuple[int, ...], tuple[str, ...], Targets], ...] = (
    ((2,), REGIMES, {"scipy": (3, 5)}),
    ((2,), tuple(f"sorted, {kind}" for kind in FIBERS), {"GraphBLAS": (1.3, None)}),
    ((3,), tuple(FIBERS), {BEST: (5, 10)}),
    ((4,), ("1 a fiber",), {BEST: (5, 10)}),
    ((3, 4), ("skewed",), {BEST: (4, 8)}),
    ((3, 4), ("sorted, 1 a fiber",), {BEST: (1, None)}),
    ((2, 3, 4), ("hypersparse",), {BEST: (4, 6)}),
)


def rows(n: int) -> list[Row]:
    return [_row(kind, rank, n, gates) for ranks, kinds, gates in _TABLE for rank in ranks for kind in kinds]


def _row(kind: str, rank: int, n: int, gates: Targets) -> Row:
    format = "COO" if (kind, rank) == ("hypersparse", 2) else "CSR" if rank == 2 else csf(rank)
    return Row(
        f"pack, rank {rank}, {kind} → {format if rank == 2 else 'CSF'}",
        n,
        lambda _: draw(kind, rank, n),
        lambda data: packed(data, format),
        _peers(kind, rank),
        gates,
        {"copy": copying},
    )


def _peers(kind: str, rank: int) -> Mapping[str, Maker]:
    if kind == "hypersparse":  # the others want a linear key of 63 bits
        more = {"GraphBLAS": graphblas_build} if rank == 2 else {}
        return {"numpy": directly(numpy_lexsort), "polars": polars_sort, **more}
    return SORTING_MATRICES if rank == 2 else SORTING


def copying(data: Data) -> Call:
    """A plain copy of the input into memory that is there."""
    copies = [np.empty_like(x) for x in data.arrays]

    def copy() -> Any:
        for target, source in zip(copies, data.arrays, strict=True):
            np.copyto(target, source)

    return copy
