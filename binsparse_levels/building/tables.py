"""Columns of tables as numpy arrays, by Arrow's C stream: of pandas, polars, pyarrow, duckdb and others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import ArrayError, OptionError, Problem


def arrow() -> Any:
    """The module pyarrow. Raises OptionError where it is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise OptionError(Problem("pyarrow", "tables need pyarrow; install binsparse_levels[tables]")) from None
    return pyarrow


def is_table(given: Any) -> bool:
    """Whether an object gives its columns by Arrow's C stream."""
    return hasattr(given, "__arrow_c_stream__")


def batches(table: Any, names: Sequence[str]) -> Iterator[list[Array]]:
    """The columns of these names, a batch of rows at a time. Raises ArrayError, OptionError."""
    with arrow().RecordBatchReader.from_stream(table) as reader:
        check_names(reader.schema.names, names)
        for batch in reader:
            yield columns_of(batch, names)


def check_names(there: Sequence[str], names: Sequence[str]) -> None:
    """Raise OptionError for a column that a table does not have."""
    for name in names:
        if name not in there:
            known = ", ".join(map(str, there))
            raise OptionError(Problem(f"columns.{name}", f"no such column; the table has {known:.200}"))


def columns_of(table: Any, names: Sequence[str]) -> list[Array]:
    """The columns of a table or batch of Arrow's. Raises ArrayError for nulls, and for columns without numbers."""
    found = []
    for name in names:
        column = table.column(name)
        if column.null_count:
            raise ArrayError(Problem(f"columns.{name}", f"{column.null_count} nulls; fill or drop them first"))
        if hasattr(column, "combine_chunks"):
            column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        made = column.to_numpy(zero_copy_only=False)
        if made.dtype.kind not in "biufc":
            what = f"holds {column.type}; give numbers, and coordinates for labels"
            raise ArrayError(Problem(f"columns.{name}", what))
        found.append(np.asarray(made))
    return found
