"""Entries, rows and blocks of a CSR matrix, in memory and in a file. Views are loaded if the peer copies."""

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

_CALLS_IN_MEMORY, _CALLS_IN_FILE = 1000, 100  # in each timing
_SLICE_ROWS = 10


class Queries(NamedTuple):
    """A matrix, coordinates of stored and other cells, and the first rows of slices."""

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
    starts = generator.integers(0, max(tensor.shape[0] - _SLICE_ROWS, 1), _CALLS_IN_MEMORY).tolist()
    path = folder / f"a{suffix}"
    if suffix:
        write(path, tensor)
    return Queries(tensor, np.concatenate([rows, i[some]]), np.concatenate([columns, j[some]]), starts, path)


def _load(tensor: Any) -> Any:
    """Load a view, because the peer copies."""
    return tensor.load() if isinstance(tensor, Tensor) else tensor


def _one_by_one(matrix: Any, queries: Queries) -> list[Any]:
    cells = zip(queries.rows[-_CALLS_IN_MEMORY:].tolist(), queries.columns[-_CALLS_IN_MEMORY:].tolist(), strict=True)
    return [matrix[cell] for cell in cells]


def _many(matrix: Any, queries: Queries) -> Any:
    return matrix[queries.rows, queries.columns]


def _single_rows(matrix: Any, queries: Queries) -> list[Any]:
    return [_load(matrix[start : start + 1]) for start in queries.starts]


def _scattered(matrix: Any, queries: Queries) -> Any:
    return _load(matrix[np.arange(3, matrix.shape[0], 10)])


def _column(matrix: Any, queries: Queries) -> Any:
    return _load(matrix[:, matrix.shape[1] // 2])


_SELECTIONS: dict[str, Callable[[Any, Queries], Any]] = {
    "one entry, 1,000 times": _one_by_one,
    "a tenth as many entries": _many,
    "one row, 1,000 times": _single_rows,
    "a tenth of the rows, scattered": _scattered,
    "a column": _column,
}


def _from_file(path: Path, queries: Queries) -> float:
    """Open a file and sum the values of a hundred slices of ten rows."""
    tensor = binsparse_levels.open(path)
    return float(
        sum(tensor[start : start + _SLICE_ROWS].load().values.sum() for start in queries.starts[:_CALLS_IN_FILE])
    )


def _with_arrays(opened: Callable[[Path], Any], queries: Queries) -> Callable[[], float]:
    """The same with the three arrays of a group."""

    def read() -> float:
        group, total = opened(queries.path), 0.0
        pointers, indices, values = (group[name] for name in ("pointers_to_1", "indices_1", "values"))
        for start in queries.starts[:_CALLS_IN_FILE]:
            bounds = pointers[start : start + _SLICE_ROWS + 1]
            indices[int(bounds[0]) : int(bounds[-1])]
            total += values[int(bounds[0]) : int(bounds[-1])].sum()
        return total

    return read


def _tensorstore(queries: Queries) -> Callable[[], float]:
    """The same with tensorstore, which reads both arrays of a slice together."""
    import tensorstore

    def read() -> float:
        pointers, *arrays = peers.tensorstore_arrays(queries.path, ["pointers_to_1", "indices_1", "values"])
        total = 0.0
        for start in queries.starts[:_CALLS_IN_FILE]:
            first, *_, last = pointers[start : start + _SLICE_ROWS + 1].read().result().tolist()
            with tensorstore.Batch() as batch:
                reading = [x[first:last].read(batch=batch) for x in arrays]
            _, values = [future.result() for future in reading]
            total += values.sum()
        return total

    return read


def _sporadik(queries: Queries) -> Callable[[], float]:
    """The same with sporadik, from its own file."""
    import sporadik

    path = queries.path.with_name("sporadik.zarr")
    sporadik.write_store(path, [peers.scipy_csr(queries.tensor)])

    def read() -> float:
        with sporadik.open_store(path, 0) as store:
            slices = [store.slices_over(start, start + _SLICE_ROWS) for start in queries.starts[:_CALLS_IN_FILE]]
        return float(sum(one.data.sum() for one in slices))

    return read


def rows(n: int) -> list[Row]:
    zarr_group = partial(zarr.open_group, mode="r")
    openers: dict[str, dict[str, Maker]] = {
        "HDF5": {"h5py": partial(_with_arrays, h5py.File)},
        "Zarr": {"zarr": partial(_with_arrays, zarr_group), "tensorstore": _tensorstore, "sporadik": _sporadik},
    }
    opened = [
        Row(
            f"open {name}, {_SLICE_ROWS} rows, {_CALLS_IN_FILE} times",
            partial(_made, n, {"HDF5": ".h5", "Zarr": ".zarr"}[name]),
            lambda queries: _from_file(queries.path, queries),
            found,
            headline=True,
        )
        for name, found in openers.items()
    ]
    return [*(_in_memory(f"select {name}", n, select) for name, select in _SELECTIONS.items()), *opened]


def _in_memory(name: str, n: int, select: Callable[[Any, Queries], Any]) -> Row:
    scipy: Maker = lambda queries: partial(select, peers.scipy_csr(queries.tensor), queries)  # noqa: E731
    return Row(name, partial(_made, n, ""), lambda queries: select(queries.tensor, queries), {"scipy": scipy})
