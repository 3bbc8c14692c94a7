"""Long tables with labels: from rows to a tensor, beside the grouping of polars; and back."""

from __future__ import annotations

from typing import Any

import numpy as np

import binsparse_levels as bl

from .data import zipf
from .row import Call, Row, Targets

_DIMS = ["user", "country", "item"]


def rows(n: int) -> list[Row]:
    there: Targets = {"polars": (0.5, 1)}
    name = f"{len(_DIMS)} columns, 2 of text"
    return [
        Row(f"from_table, {name}, summed as CSF", n, lambda _: _table(n), _packed, {"polars": _grouped}, there),
        Row(f"to_table, {name}", n, lambda _: _packed(_table(n)), bl.to_table, {}, {}),
    ]


def _table(n: int) -> Any:
    """A table of Arrow with zipfian users, countries and items."""
    import pyarrow

    generator = np.random.default_rng(0)
    texts = {"country": [f"country {k}" for k in range(200)], "item": [f"item number {k}" for k in range(50_000)]}
    columns = {"user": zipf(generator, 100_000, n)}
    for name, labels in texts.items():
        columns[name] = pyarrow.array(labels).take(pyarrow.array(zipf(generator, len(labels), n)))
    return pyarrow.table({**columns, "value": generator.random(n)})


def _packed(table: Any) -> bl.Tensor:
    return bl.from_table(table, _DIMS, "value", "CSF", duplicates="sum")


def _grouped(table: Any) -> Call:
    import polars

    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)
    return lambda: frame.group_by(_DIMS).agg(polars.col("value").sum())
