"""Single entries, rows and blocks of a CSR matrix, in memory and in a file. What a peer copies, ours is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import zarr

import binsparse_levels
from binsparse_levels import Tensor, write

from . import peers
from .data import FIBERS, tree
from .row import Maker, Row, Targets

_CALLS, _OPENED = 1000, 100  # in each timing of what takes microseconds, in memory and in a file
_FEW, _MANY = 100, 10_000  # entries of a slice


class Queries(NamedTuple):
    """A matrix, and what is asked of it: coordinates of entries and others, and where ranges of rows begin."""

    tensor: Tensor
    rows: Any
    columns: Any
    starts: list[int]
    path: Path


def _made(kind: str, n: int, suffix: str, folder: Path) -> Queries:
    tensor = tree(kind, n, "CSR")
    generator = np.random.default_rng(1)
    (i, j), _ = tensor.unpack()
    some = generator.integers(0, len(i), n // 20)
    rows, columns = (generator.integers(0, size, n // 20) for size in tensor.shape)
    starts = generator.integers(0, max(tensor.shape[0] - _rows_for(tensor, _MANY), 1), _CALLS).tolist()
    path = folder / f"a{suffix}"
    if suffix:
        write(path, tensor)
    return Queries(tensor, np.concatenate([rows, i[some]]), np.concatenate([columns, j[some]]), starts, path)


def _rows_for(tensor: Tensor, entries: int) -> int:
    """How many rows have so many entries, about."""
    return max(round(entries * tensor.shape[0] / max(len(tensor.values), 1)), 1)


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


def _load(tensor: Any) -> Any:
    """What a peer copies at once."""
    return tensor.load() if isinstance(tensor, Tensor) else tensor


def _slices(matrix: Any, queries: Queries) -> list[Any]:
    many = _rows_for(queries.tensor, _MANY)
    return [_load(matrix[start : start + many]) for start in queries.starts]


def _single_rows(matrix: Any, queries: Queries) -> list[Any]:
    return [_load(matrix[start : start + 1]) for start in queries.starts]


def _scattered(matrix: Any, queries: Queries) -> Any:
    """A tenth of the rows, in order."""
    return _load(matrix[np.arange(3, matrix.shape[0], 10)])


def _column(matrix: Any, _: Queries) -> Any:
    return _load(matrix[:, matrix.shape[1] // 2])


def _blocks(matrix: Any, _: Queries) -> Any:
    return _load(_block(matrix))


def _graphblas(ask: Callable[[Any, Queries], Any]) -> Maker:
    def make(queries: Queries) -> Callable[[], Any]:
        import graphblas  # noqa: F401 (tells whether it is there)

        return partial(ask, peers.graphblas_csr(queries.tensor), queries)

    return make


def _from_file(path: Path, queries: Queries) -> float:
    """Rows of a hundred entries from a hundred places, and the sum of their values."""
    tensor, few = binsparse_levels.open(path), _rows_for(queries.tensor, _FEW)
    return float(sum(tensor[start : start + few].load().values.sum() for start in queries.starts[:_OPENED]))


def _by_hand(opened: Callable[[Path], Any], queries: Queries) -> Callable[[], float]:
    """The same with three arrays of a library."""

    def read() -> float:
        group, few, total = opened(queries.path), _rows_for(queries.tensor, _FEW), 0.0
        pointers, indices, values = (group[name] for name in ("pointers_to_1", "indices_1", "values"))
        for start in queries.starts[:_OPENED]:
            bounds = pointers[start : start + few + 1]
            indices[int(bounds[0]) : int(bounds[-1])]
            total += values[int(bounds[0]) : int(bounds[-1])].sum()
        return total

    return read


# Name, the question, its peers besides scipy, gates.
_QUESTIONS: tuple[tuple[str, Callable[[Any, Queries], Any], Mapping[str, Maker], Targets], ...] = (
    ("look up one entry, 1,000 times", _one_by_one, {}, {"scipy": (8, 15)}),
    ("look up a tenth as many entries", _many, {}, {"scipy": (1.5, 3)}),
    ("one row, 1,000 times", _single_rows, {}, {"scipy": (2, 4)}),
    (
        f"rows of {_MANY:,} entries, 1,000 times",
        _slices,
        {"GraphBLAS": _graphblas(lambda m, q: [m[s : s + _rows_for(q.tensor, _MANY), :].new() for s in q.starts])},
        {"scipy": (2, 4)},
    ),
    ("a tenth of the rows, scattered", _scattered, {}, {"scipy": (2, 4)}),
    (
        "a column",
        _column,
        {"GraphBLAS": _graphblas(lambda m, _: m[:, m.shape[1] // 2].new())},
        {"scipy": (2, 4)},
    ),
    (
        "block, a fifth of rows, a quarter of columns",
        _blocks,
        {"GraphBLAS": _graphblas(lambda m, _: _block(m).new())},
        {"scipy": (2, 3)},
    ),
)


def rows(n: int) -> list[Row]:
    in_memory = [
        Row(
            f"{name}, {kind}",
            n,
            partial(_made, kind, n, ""),
            lambda q, ask=ask: ask(q.tensor, q),
            _peers(ask) | more,
            gates,
        )
        for kind in FIBERS
        for name, ask, more, gates in _QUESTIONS
    ]
    opened: tuple[tuple[str, str, Callable[[Path], Any], float], ...] = (
        (".h5", "h5py", h5py.File, 0.6),
        (".zarr", "zarr", partial(zarr.open_group, mode="r"), 1),
    )
    return in_memory + [
        Row(
            f"open {suffix[1:]}, {_OPENED} slices of {_FEW} entries, {kind}",
            n,
            partial(_made, kind, n, suffix),
            lambda q: _from_file(q.path, q),
            {peer: partial(_by_hand, opener)},
            {peer: (gate, 1)},
        )
        for suffix, peer, opener, gate in opened
        for kind in FIBERS
    ]
