"""Single entries, rows and blocks of a CSR matrix, in memory and in a file. What a peer copies, ours is loaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import zarr

import binsparse_levels
from binsparse_levels import Tensor, write

from . import peers
from .data import draw, packed
from .row import BEST, Maker, Row, Targets

_CALLS = 1000  # in each timing of what takes microseconds


class Queries(NamedTuple):
    """A matrix, and what is asked of it: coordinates of entries and others, and where ranges of rows begin."""

    tensor: Tensor
    rows: Any
    columns: Any
    starts: list[int]
    path: Path


def _made(n: int, suffix: str, folder: Path) -> Queries:
    tensor = packed(draw("uniform", 2, n), "CSR")
    generator = np.random.default_rng(1)
    (i, j), _ = tensor.unpack()
    some = generator.integers(0, len(i), n // 20)
    rows, columns = (generator.integers(0, size, n // 20) for size in tensor.shape)
    starts = generator.integers(0, max(tensor.shape[0] - 1000, 1), _CALLS).tolist()
    path = folder / f"a{suffix}"
    if suffix:
        write(path, tensor)
    return Queries(tensor, np.concatenate([rows, i[some]]), np.concatenate([columns, j[some]]), starts, path)


def _peers(ask: Callable[[Any, Queries], Any]) -> dict[str, Maker]:
    """What is asked of scipy's matrix, and of GraphBLAS'."""
    return {"scipy": lambda queries: partial(ask, peers.scipy_csr(queries.tensor), queries)}


def _one_by_one(matrix: Any, queries: Queries) -> list[Any]:
    return [
        matrix[place] for place in zip(queries.rows[-_CALLS:].tolist(), queries.columns[-_CALLS:].tolist(), strict=True)
    ]


def _many(matrix: Any, queries: Queries) -> Any:
    return matrix[queries.rows, queries.columns]


def _block(tensor: Any) -> Any:
    """A fifth of the rows, and a quarter of the columns."""
    rows, columns = tensor.shape
    return tensor[rows // 10 : 3 * rows // 10, columns // 4 : columns // 2]


def _loaded(tensor: Tensor, queries: Queries) -> list[Any]:
    return [tensor[start : start + 1000].load() for start in queries.starts]


def _graphblas(ask: Callable[[Any], Any]) -> Maker:
    def make(queries: Queries) -> Callable[[], Any]:
        import graphblas  # noqa: F401 (tells whether it is there)

        matrix = peers.graphblas_csr(queries.tensor)
        return lambda: ask(matrix)

    return make


def _from_file(path: Path, queries: Queries) -> float:
    """Ten rows from a thousand places, and the sum of their values."""
    tensor = binsparse_levels.open(path)
    return float(sum(tensor[start : start + 10].load().values.sum() for start in queries.starts))


def _by_hand(opened: Callable[[Path], Any], queries: Queries) -> Callable[[], float]:
    """The same with three arrays of a library."""

    def read() -> float:
        group, total = opened(queries.path), 0.0
        pointers, indices, values = (group[name] for name in ("pointers_to_1", "indices_1", "values"))
        for start in queries.starts:
            bounds = pointers[start : start + 11]
            indices[int(bounds[0]) : int(bounds[-1])]
            total += values[int(bounds[0]) : int(bounds[-1])].sum()
        return total

    return read


def rows(n: int) -> list[Row]:
    one: Targets = {"scipy": (8, 15)}
    many: Targets = {"scipy": (1.5, 3)}
    slices: Targets = {"scipy": (4, 8)}
    block: Targets = {"scipy": (1.8, 3)}
    hand: Targets = {BEST: (0.5, 1)}
    made = partial(_made, n, "")
    return [
        Row("look up one entry, 1,000 times", n, made, lambda q: _one_by_one(q.tensor, q), _peers(_one_by_one), one),
        Row("look up a tenth as many entries", n, made, lambda q: _many(q.tensor, q), _peers(_many), many),
        Row(
            "slice of 1,000 rows, 1,000 times",
            n,
            made,
            lambda q: _loaded(q.tensor, q),
            _peers(lambda matrix, q: [matrix[start : start + 1000] for start in q.starts])
            | {"GraphBLAS": lambda q: _graphblas(lambda m: [m[s : s + 1000, :].new() for s in q.starts])(q)},
            slices,
        ),
        Row(
            "block, a fifth of rows, a quarter of columns",
            n,
            made,
            lambda q: _block(q.tensor).load(),
            _peers(lambda matrix, _: _block(matrix)) | {"GraphBLAS": _graphblas(lambda m: _block(m).new())},
            block,
        ),
        Row(
            "open HDF5, 1,000 slices of 10 rows",
            n,
            partial(_made, n, ".h5"),
            lambda q: _from_file(q.path, q),
            {"h5py": partial(_by_hand, h5py.File)},
            hand,
        ),
        Row(
            "open Zarr, 1,000 slices of 10 rows",
            n,
            partial(_made, n, ".zarr"),
            lambda q: _from_file(q.path, q),
            {"zarr": partial(_by_hand, partial(zarr.open_group, mode="r"))},
            hand,
        ),
    ]
