"""Columns of Arrow's tables as numpy arrays."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import ArrayError, BinsparseError, OptionError, Problem, needing


def within(place: str, error: ArrayError | BinsparseError) -> BinsparseError:
    """The same error with its place in front."""
    return type(error)([Problem(f"{place}: {x.path}" if x.path else place, x.message) for x in error.problems])


def arrow() -> Any:
    """The module pyarrow. Raises PackageMissingError where it is not installed."""
    with needing("tables"):
        import pyarrow
    return pyarrow


def check_names(there: Sequence[str], names: Sequence[str]) -> None:
    """Raise OptionError for a column that a table does not have."""
    for name in names:
        if name not in there:
            near = difflib.get_close_matches(name, [str(other) for other in there], 1)
            meant = f"did you mean {near[0]}? " if near else ""
            known = ", ".join(map(str, there))
            raise OptionError(Problem(f"columns.{name}", f"no such column; {meant}the table has {known:.200}"))


def columns_of(table: Any, names: Sequence[str]) -> list[Array]:
    """The columns of a table or batch of Arrow's. Raises ArrayError for nulls, and for columns without numbers."""
    return [numbers_of(table.column(name), name) for name in names]


def numbers_of(column: Any, name: str) -> Array:
    """A column of Arrow's as an array. Raises ArrayError for nulls, and for a column without numbers."""
    dtype = type_of(column.type, name)
    refuse_nulls(column, f"columns.{name}")
    if hasattr(column, "combine_chunks"):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if dtype.kind == "b":
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return np.from_dlpack(column)  # without pandas, which to_numpy imports


def type_of(kind: Any, name: str) -> np.dtype[Any]:
    """The numpy type of a column of this type of Arrow's. Raises ArrayError for columns without numbers."""
    try:
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    except NotImplementedError:
        found = np.dtype(object)
    if found.kind not in "biuf":
        raise ArrayError(Problem(f"columns.{name}", f"holds {kind}; give numbers, and coordinates for labels"))
    return found


def refuse_nulls(column: Any, path: str) -> None:
    """Raise ArrayError for a column of Arrow's with nulls."""
    if column.null_count:
        raise ArrayError(Problem(path, f"{column.null_count} nulls; fill or drop them first"))
