"""Entries, rows and blocks of a CSR matrix, in memory and in an opened file. What a peer copies, ours is loaded."""

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
from .data import tree
from .row import Maker, Row

_CALLS, _OPENED = 1000, 100  # in each timing of what takes microseconds, in memory and in a file
_FEW = 10  # rows of a slice


class Queries(NamedTuple):
    """A matrix, and what is asked of it: coordinates of entries and others, and where ranges of rows begin."""

    tensor: Tensor
    rows: Any
    columns: Any
    starts: list[int]
    path: Path


def _made(n: int, suffix: str, folder: Path) -> Queries:
    tensor = tree("CSR", n)
    generator = np.random.default_rng(1)
    (i, j), _ = tensor.unpack()
    some = generator.integers(0, len(i), n // 20)
    rows, columns = (generator.integers(0, size, n // 20) for size in tensor.shape)
    starts = generator.integers(0, max(tensor.shape[0] - _FEW, 1), _CALLS).tolist()
    path = folder / f"a{suffix}"
    if suffix:
        write(path, tensor)
    return Queries(tensor, np.concatenate([rows, i[some]]), np.concatenate([columns, j[some]]), starts, path)


def _load(tensor: Any) -> Any:
    """What a peer copies at once."""
    return tensor.load() if isinstance(tensor, Tensor) else tensor


def _one_by_one(matrix: Any, queries: Queries) -> list[Any]:
    places = zip(queries.rows[-_CALLS:].tolist(), queries.columns[-_CALLS:].tolist(), strict=True)
    return [matrix[place] for place in places]


def _many(matrix: Any, queries: Queries) -> Any:
    return matrix[queries.rows, queries.columns]


def _single_rows(matrix: Any, queries: Queries) -> list[Any]:
    return [_load(matrix[start : start + 1]) for start in queries.starts]


def _scattered(matrix: Any, queries: Queries) -> Any:
    return _load(matrix[np.arange(3, matrix.shape[0], 10)])


def _column(matrix: Any, queries: Queries) -> Any:
    return _load(matrix[:, matrix.shape[1] // 2])


_QUESTIONS: dict[str, Callable[[Any, Queries], Any]] = {
    "one entry, 1,000 times": _one_by_one,
    "a tenth as many entries": _many,
    "one row, 1,000 times": _single_rows,
    "a tenth of the rows, scattered": _scattered,
    "a column": _column,
}


def _from_file(path: Path, queries: Queries) -> float:
    """Open a file, and sum the values of ten rows from each of a hundred places."""
    tensor = binsparse_levels.open(path)
    return float(sum(tensor[start : start + _FEW].load().values.sum() for start in queries.starts[:_OPENED]))


def _by_hand(opened: Callable[[Path], Any], queries: Queries) -> Callable[[], float]:
    """The same with three arrays of a library."""

    def read() -> float:
        group, total = opened(queries.path), 0.0
        pointers, indices, values = (group[name] for name in ("pointers_to_1", "indices_1", "values"))
        for start in queries.starts[:_OPENED]:
            bounds = pointers[start : start + _FEW + 1]
            indices[int(bounds[0]) : int(bounds[-1])]
            total += values[int(bounds[0]) : int(bounds[-1])].sum()
        return total

    return read


def rows(n: int) -> list[Row]:
    openers: dict[str, tuple[str, Callable[[Path], Any]]] = {
        "HDF5": ("h5py", h5py.File),
        "Zarr": ("zarr", partial(zarr.open_group, mode="r")),
    }
    opened = [
        Row(
            f"open {name}, {_FEW} rows, {_OPENED} times",
            partial(_made, n, {"HDF5": ".h5", "Zarr": ".zarr"}[name]),
            lambda queries: _from_file(queries.path, queries),
            {peer: partial(_by_hand, opener)},
            headline=True,
        )
        for name, (peer, opener) in openers.items()
    ]
    return [*(_in_memory(f"select {name}", n, ask) for name, ask in _QUESTIONS.items()), *opened]


def _in_memory(name: str, n: int, ask: Callable[[Any, Queries], Any]) -> Row:
    scipy: Maker = lambda queries: partial(ask, peers.scipy_csr(queries.tensor), queries)  # noqa: E731
    return Row(name, partial(_made, n, ""), lambda queries: ask(queries.tensor, queries), {"scipy": scipy})
