"""Columns of tables as numpy arrays, by Arrow's C stream: of pandas, polars, pyarrow, duckdb and others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..arrays import Array
from ..containers.base import touching
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
        dtype = type_of(column.type, name)
        if column.null_count:
            raise ArrayError(Problem(f"columns.{name}", f"{column.null_count} nulls; fill or drop them first"))
        if hasattr(column, "combine_chunks"):
            column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if dtype.kind == "b":
            found.append(np.asarray(column.to_numpy(zero_copy_only=False)))
        else:
            found.append(np.from_dlpack(column))  # without pandas, which to_numpy imports
    return found


def type_of(kind: Any, name: str) -> np.dtype[Any]:
    """The numpy type of a column of this type of Arrow's. Raises ArrayError for columns without numbers."""
    try:
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    except NotImplementedError:
        found = np.dtype(object)
    if found.kind not in "biuf":
        raise ArrayError(Problem(f"columns.{name}", f"holds {kind}; give numbers, and coordinates for labels"))
    return found


FILES = (".parquet", ".arrow", ".feather", ".csv")  # suffixes of tables in files


def file_batches(path: str, names: Sequence[str]) -> Iterator[list[Array]]:
    """The columns of these names of a table in a file, a batch of rows at a time, in bounded memory.

    Raises ContainerError, ArrayError, OptionError.
    """
    arrow()
    with touching(path):
        yield from _batches_of(path, names)


def _batches_of(path: str, names: Sequence[str]) -> Iterator[list[Array]]:
    from pyarrow import csv, ipc, parquet

    suffix = os.path.splitext(path)[1].lower()
    with contextlib.ExitStack() as stack:
        if suffix == ".parquet":
            file = stack.enter_context(parquet.ParquetFile(path))
            schema, made = file.schema_arrow, partial(file.iter_batches, columns=list(names))
        elif suffix == ".csv":
            file = stack.enter_context(csv.open_csv(path))
            schema, made = file.schema, partial(iter, file)
        elif suffix in FILES:
            with open(path, "rb") as raw:
                whole = raw.read(6) == b"ARROW1"
            file = stack.enter_context((ipc.open_file if whole else ipc.open_stream)(path))
            schema = file.schema
            made = partial(map, file.get_batch, range(file.num_record_batches)) if whole else partial(iter, file)
        else:
            raise OptionError(Problem(path, f"is no table; tables end with {', '.join(FILES)}"))
        check_names(schema.names, names)
        for batch in made():
            yield columns_of(batch, names)
