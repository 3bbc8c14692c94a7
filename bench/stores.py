"""Two data sets in files: what it takes to write them, their size, and what is read of them, beside other formats.

Cells: a matrix of 20,000 columns with 200 entries in a row. Events: rank 4, by Zipf's law. The other programs write in
their own ways; Parquet and TileDB compress by zstd, AnnData as we do, by LZ4 in Blosc. What is asked is in the page
cache. Of writing, the time of the processor counts: the disk takes as long as the size says.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import binsparse_levels as bl
from binsparse_levels import Tensor

from .data import Data, csf, draw, packed
from .peers import listed, scipy_csr
from .row import Call, Maker, Row, Targets

_COLUMNS, _IN_A_ROW, _ROWS = 20_000, 200, 1000

CELLS, EVENTS = "cells", "events"


@lru_cache(2)
def tensor_of(name: str, n: int) -> Tensor:
    """Cells have twice as many entries."""
    if name == EVENTS:
        return packed(draw("skewed", 4, n), csf(4))
    generator = np.random.default_rng(0)
    shape = max(2 * n // _IN_A_ROW, 2 * _ROWS), _COLUMNS
    coords = [generator.integers(0, shape[0], 2 * n), zipf_columns(generator, 2 * n)]
    return packed(Data(coords, generator.integers(1, 100, 2 * n).astype(np.float64), shape), "CSR")


def zipf_columns(generator: np.random.Generator, n: int) -> Any:
    """Half anywhere, half among a tenth of the columns: as genes are."""
    return np.where(
        generator.random(n) < 0.5, generator.integers(0, _COLUMNS, n), generator.integers(0, _COLUMNS // 10, n)
    )


class Key(NamedTuple):
    """What is selected: coordinates along one dimension. A slice, an integer, a sorted array; None: everything."""

    dim: int = 0
    coords: Any = None

    def index(self, ndim: int) -> tuple[Any, ...]:
        return (*(slice(None),) * self.dim, self.coords, *(slice(None),) * (ndim - self.dim - 1))

    def bounds(self) -> tuple[int, int]:
        """First and last coordinate of a slice or an integer."""
        if isinstance(self.coords, slice):
            return self.coords.start, self.coords.stop - 1
        return self.coords, self.coords


class Format(NamedTuple):
    """A way to store a tensor. prepare: makes what `write` takes, in memory; select: what `opened` gives and a key give
    ([], values), once all coordinates are in memory too.
    """

    suffix: str
    prepare: Callable[[Tensor], Any]
    write: Callable[[Path, Any], Any]
    opened: Callable[[Path], Any]
    select: Callable[[Any, Key], Any]


# Ours


def _select(tensor: Tensor, key: Key) -> Any:
    part = (tensor if key.coords is None else tensor[key.index(tensor.ndim)]).load()
    return [], part.values


def _ours(suffix: str, **options: Any) -> Format:
    write = lambda path, tensor: bl.write(path, tensor, overwrite=True, **options)  # noqa: E731
    return Format(suffix, lambda tensor: tensor, write, bl.open, _select)


# The others


def _frame(tensor: Tensor) -> Any:
    """A table of coordinates as narrow as they are stored, in order, and values."""
    import polars

    coords, values = tensor.unpack("stored")
    return polars.DataFrame({**{f"i{k}": x for k, x in enumerate(coords)}, "value": values})


def _polars_select(frame: Any, key: Key) -> Any:
    import polars

    column = polars.col(f"i{key.dim}")
    if isinstance(key.coords, np.ndarray):
        frame = frame.filter(column.is_in(key.coords.tolist()))
    elif key.coords is not None:
        frame = frame.filter(column.is_between(*key.bounds()))
    return [], frame.collect()["value"].to_numpy()


def _connection() -> Any:
    import duckdb

    return duckdb.connect(config={"threads": 1})


def _duckdb_write(path: Path, table: Any) -> None:
    connection = _connection()
    connection.register("entries", table)
    connection.execute(f"COPY entries TO '{path}' (FORMAT parquet, COMPRESSION zstd)")


def _duckdb_opened(path: Path) -> Any:
    connection = _connection()
    connection.execute("SET parquet_metadata_cache = true")
    return connection, path


def _duckdb_select(opened: Any, key: Key) -> Any:
    connection, path = opened
    where = ""
    if isinstance(key.coords, np.ndarray):
        where = f"WHERE i{key.dim} IN ({', '.join(map(str, key.coords.tolist()))})"
    elif key.coords is not None:
        where = f"WHERE i{key.dim} BETWEEN {key.bounds()[0]} AND {key.bounds()[1]}"
    return [], connection.sql(f"SELECT * FROM '{path}' {where}").to_arrow_table()["value"].to_numpy()


def _tiledb_context() -> Any:
    import tiledb

    return tiledb.Ctx({"sm.compute_concurrency_level": "1", "sm.io_concurrency_level": "1"})


def _tiledb_write(path: Path, data: Data) -> None:
    """As TileDB-SOMA does: tiles of 2,048, a capacity of 100,000, zstd."""
    import tiledb

    context, zstd = _tiledb_context(), tiledb.FilterList([tiledb.ZstdFilter(level=3)])
    dims = [
        tiledb.Dim(f"i{k}", domain=(0, size - 1), tile=min(size, 2048), dtype=np.int64, filters=zstd, ctx=context)
        for k, size in enumerate(data.shape)
    ]
    schema = tiledb.ArraySchema(
        domain=tiledb.Domain(*dims, ctx=context),
        attrs=[tiledb.Attr("value", dtype=np.float64, filters=zstd, ctx=context)],
        sparse=True,
        allows_duplicates=True,
        capacity=100_000,
        ctx=context,
    )
    if path.exists():
        tiledb.remove(str(path), ctx=context)
    tiledb.Array.create(str(path), schema, ctx=context)
    with tiledb.open(str(path), "w", ctx=context) as array:
        array[tuple(data.coords)] = data.values


def _tiledb_opened(path: Path) -> Any:
    import tiledb

    return tiledb.open(str(path), ctx=_tiledb_context())


def _tiledb_select(array: Any, key: Key) -> Any:
    ndim = array.schema.domain.ndim
    if key.coords is None:
        return [], array[:]["value"]
    coords = key.coords if isinstance(key.coords, np.ndarray) else slice(*key.bounds())
    return [], array.multi_index[Key(key.dim, coords).index(ndim)]["value"]


def _anndata(tensor: Tensor) -> Any:
    import anndata

    return anndata.AnnData(scipy_csr(tensor))


def _h5ad_opened(path: Path) -> Any:
    import anndata
    import h5py

    return anndata.io.sparse_dataset(h5py.File(path)["X"])


def _anndata_zarr_opened(path: Path) -> Any:
    import anndata
    import zarr

    return anndata.io.sparse_dataset(zarr.open_group(path, mode="r")["X"])


def _anndata_select(dataset: Any, key: Key) -> Any:
    if key.coords is None:
        return [], dataset.to_memory().data
    coords = slice(key.coords, key.coords + 1) if isinstance(key.coords, int) else key.coords
    return [], dataset[Key(key.dim, coords).index(2)].data


def _npz_write(path: Path, matrix: Any) -> None:
    import scipy.sparse

    scipy.sparse.save_npz(path, matrix)


def _npz_select(path: Path, key: Key) -> Any:
    """The whole file is read for any part of it."""
    import scipy.sparse

    matrix = scipy.sparse.load_npz(path)
    coords = slice(key.coords, key.coords + 1) if isinstance(key.coords, int) else key.coords
    return [], (matrix if key.coords is None else matrix[Key(key.dim, coords).index(2)]).data


def _polars() -> Any:
    import polars

    return polars


_PACKED = _ours(".zarr", bitpacked=True)
_PLAIN = _ours(".zarr", compression="none", checksum=False)
_HDF5 = _ours(".h5")

_PARQUET: Mapping[str, Format] = {
    "Parquet, polars": Format(
        ".parquet",
        _frame,
        lambda path, frame: frame.write_parquet(path),
        lambda path: _polars().scan_parquet(path),
        _polars_select,
    ),
    "Parquet, DuckDB": Format(
        ".parquet", lambda tensor: _frame(tensor).to_arrow(), _duckdb_write, _duckdb_opened, _duckdb_select
    ),
    "TileDB": Format(".tiledb", listed, _tiledb_write, _tiledb_opened, _tiledb_select),
}
_H5AD = {
    "AnnData, HDF5": Format(".h5ad", _anndata, lambda path, made: made.write_h5ad(path), _h5ad_opened, _anndata_select)
}
_ANNDATA: Mapping[str, Format] = {
    "AnnData, Zarr": Format(
        ".ad.zarr", _anndata, lambda path, made: made.write_zarr(path), _anndata_zarr_opened, _anndata_select
    ),
    "scipy .npz": Format(".npz", scipy_csr, _npz_write, lambda path: path, _npz_select),
}

# Which data, the name of our format, ours, the others, and the same data in others of our formats.
_BESIDE: tuple[tuple[str, str, Format, Mapping[str, Format], Mapping[str, Format]], ...] = (
    (CELLS, "bit-packed Zarr", _PACKED, {**_PARQUET, **_ANNDATA}, {"plain Zarr": _PLAIN}),
    (CELLS, "HDF5", _HDF5, _H5AD, {}),
    (EVENTS, "bit-packed Zarr", _PACKED, _PARQUET, {"plain Zarr": _PLAIN}),
)
_PEERS = ("TileDB", "AnnData, Zarr", "AnnData, HDF5")
_AHEAD: Targets = dict.fromkeys(_PEERS, (1, None))
_SLICES: Targets = {**_AHEAD, "plain Zarr": (0.5, None)}
_OUTER: Targets = {**_SLICES, "Parquet, polars": (1, None), "Parquet, DuckDB": (1, None)}
_WRITES: Targets = {**_AHEAD, "Parquet, polars": (0.5, None), "Parquet, DuckDB": (0.5, None)}
_SIZES: Targets = {"Parquet, polars": (1 / 1.3, None), "Parquet, DuckDB": (1 / 1.3, None)}

# Name, whether the file is opened in each call, the key, gates.
_QUESTIONS: Mapping[str, tuple[tuple[str, bool, Callable[[int], Key], Targets], ...]] = {
    CELLS: (
        ("read", True, lambda _: Key(), _AHEAD),
        ("first 1,000 rows", True, lambda _: Key(0, slice(0, _ROWS)), _OUTER),
        (
            "1,000 rows, opened",
            False,
            lambda rows: Key(0, slice(rows // 2, rows // 2 + _ROWS)),
            _OUTER,
        ),
        ("1,000 scattered rows", False, lambda rows: Key(0, np.arange(_ROWS) * (rows // _ROWS)), _OUTER),
        ("a column", False, lambda _: Key(1, _COLUMNS // 2), _SLICES),
    ),
    EVENTS: (
        ("read", True, lambda _: Key(), _AHEAD),
        ("dimension 0", False, lambda side: Key(0, side // 100), _OUTER),
        ("dimension 1", False, lambda side: Key(1, side // 100), _SLICES),
        ("dimension 2", False, lambda side: Key(2, side // 100), {**_SLICES, "Parquet, polars": (1, None)}),
        ("dimension 3", False, lambda side: Key(3, side // 100), _SLICES),
    ),
}


def rows(n: int) -> list[Row]:
    return [row for beside in _BESIDE for row in _rows(n, *beside)]


def _rows(
    n: int, data: str, name: str, ours: Format, others: Mapping[str, Format], more: Mapping[str, Format]
) -> list[Row]:
    entries = n if data == EVENTS else 2 * n

    def row(what: str, call: Callable[[Format, Path], Call], gates: Targets, **settings: Any) -> Row:
        def maker(format: Format) -> Maker:
            return partial(call, format)

        return Row(
            f"{data} as {name}, {what}",
            entries,
            partial(call, ours),
            lambda made: made(),
            {peer: _of(maker(format)) for peer, format in others.items()},
            gates,
            {peer: _of(maker(format)) for peer, format in more.items()},
            **settings,
        )

    found = [
        row("write", partial(_writing, data, n), _WRITES, threaded=False, rounds=2),
        row("size", lambda format, _: partial(_size, _written(data, n, format)), _SIZES, threaded=False, bytes=True),
    ]
    for what, anew, key, gates in _QUESTIONS[data]:
        found.append(row(what, partial(_asking, data, n, anew, key), gates, rounds=3))
    return found


def _of(make: Callable[[Path], Call]) -> Maker:
    return lambda _: make(Path(_folder().name))


def _writing(data: str, n: int, format: Format, folder: Path) -> Call:
    _written(data, n, format)  # a library that is missing is told here
    made, path = format.prepare(tensor_of(data, n)), folder / f"written{format.suffix}"

    def call() -> None:
        format.write(path, made)
        synced(path)

    return call


def _asking(data: str, n: int, anew: bool, key: Callable[[int], Key], format: Format, _: Path) -> Call:
    path, asked = _written(data, n, format), key(tensor_of(data, n).shape[0])
    if anew:
        return lambda: format.select(format.opened(path), asked)
    return partial(format.select, format.opened(path), asked)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Lasts as long as the process: many rows ask the same files."""
    return tempfile.TemporaryDirectory()


@lru_cache(len(_PARQUET) + len(_ANNDATA) + len(_H5AD) + 3)
def _written(data: str, n: int, format: Format) -> Path:
    path = Path(tempfile.mkdtemp(dir=_folder().name), f"a{format.suffix}")
    format.write(path, format.prepare(tensor_of(data, n)))
    return path


def synced(path: Path) -> None:
    """Writes what the system holds through to the disk."""
    for place in [path, *path.rglob("*")]:
        handle = os.open(place, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def _size(path: Path) -> int:
    return sum(place.stat().st_size for place in [path, *path.rglob("*")] if place.is_file())
