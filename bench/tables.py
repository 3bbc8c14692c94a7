"""Tables with labels: conversion to a tensor, compared with grouping in polars, and builds from Parquet files."""

from __future__ import annotations

import shutil
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import binsparse_levels as bl

from .data import zipf
from .row import Call, Row

_DIMS = ["user", "country", "item"]


def rows(n: int) -> list[Row]:
    return [
        Row("table of 3 columns, 2 of text → CSF", lambda _: _table(n), _packed, {"polars": _grouped}),
        Row("Parquet → Zarr, CSF, numbers", partial(_parquet, n, False), _built, {"polars": _sorted}, waits=True),
        Row("Parquet → Zarr, CSF, 2 columns of text", partial(_parquet, n, True), _built, {"polars": _sorted},
            waits=True),
    ]  # fmt: skip


@lru_cache(1)
def _table(n: int) -> Any:
    """An Arrow table with Zipf-distributed users, countries and items."""
    import pyarrow

    generator = np.random.default_rng(0)
    texts = {"country": [f"country {k}" for k in range(200)], "item": [f"item number {k}" for k in range(50_000)]}
    columns = {"user": zipf(generator, 100_000, n)}
    for name, labels in texts.items():
        columns[name] = pyarrow.array(labels).take(pyarrow.array(zipf(generator, len(labels), n)))
    return pyarrow.table({**columns, "value": generator.integers(1, 9, n).astype(np.float64)})


def _packed(table: Any) -> bl.Tensor:
    return bl.from_table(table, _DIMS, "value", "CSF", duplicates="sum")


def _grouped(table: Any) -> Call:
    import polars

    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)
    return lambda: frame.group_by(_DIMS).agg(polars.col("value").sum())


def _parquet(n: int, labelled: bool, folder: Path) -> Path:
    import pyarrow.parquet

    table = _table(n)
    if not labelled:
        numbers = [table[name].combine_chunks().dictionary_encode().indices for name in _DIMS[1:]]
        table = pyarrow.table(dict(zip(table.column_names, [table["user"], *numbers, table["value"]], strict=True)))
    pyarrow.parquet.write_table(table, folder / "a.parquet")
    return folder / "a.parquet"


def _built(path: Path) -> None:
    target = path.with_suffix(".zarr")
    shutil.rmtree(target, ignore_errors=True)
    bl.build(str(path), str(target), None, "CSF", columns=[*_DIMS, "value"], duplicates="sum")


def _sorted(path: Path) -> Call:
    """Group, sort and write as Parquet."""
    import polars

    grouped = polars.scan_parquet(path).group_by(_DIMS).agg(polars.col("value").sum()).sort(_DIMS)
    return lambda: grouped.sink_parquet(path.with_stem("sorted"))
