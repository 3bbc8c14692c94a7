"""Columns of Arrow's tables as numpy arrays."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import Array
from ..errors import ArrayError, BinsparseError, OptionError, Problem, needing
from .bad_rows import NOT_WHOLE, NULL, int64_of

_POSITIVE = r"^\s*\+?[0-9]{1,19}(\.0*)?\s*$"  # whole numbers in texts
_NEGATIVE, _LARGE = r"^\s*-[0-9]+(\.0*)?\s*$", r"^\s*\+?[0-9]{20,}(\.0*)?\s*$"
_MOST = 2**63 - 1


def within(place: str, error: ArrayError | BinsparseError) -> BinsparseError:
    """The same error with its place in front."""
    return type(error)([Problem(f"{place}: {x.path}" if x.path else place, x.message) for x in error.problems])


def arrow() -> Any:
    """The module pyarrow. Raises PackageMissingError where it is not installed."""
    with needing("tables"):
        import pyarrow
    return pyarrow


def check_names(there: Sequence[str], names: Sequence[str]) -> None:
    """Raise OptionError for a column that a table does not have, or has twice."""
    for name in names:
        if list(there).count(name) > 1:
            raise OptionError(Problem(f"columns.{name}", "several columns have this name; rename them"))
        if name not in there:
            near = difflib.get_close_matches(name, [str(other) for other in there], 1)
            meant = f"did you mean {near[0]}? " if near else ""
            known = ", ".join(map(str, there))
            raise OptionError(Problem(f"columns.{name}", f"no such column; {meant}the table has {known:.200}"))


def entries_of(table: Any, names: Sequence[str]) -> tuple[list[Array], Array]:
    """Coordinates, flags and values in columns of a table of Arrow's. Raises ArrayError for columns without numbers."""
    *coords, values = (table.column(name) for name in names)
    found = [coordinates_of(x, name) for x, name in zip(coords, names, strict=False)]
    return [*found, flags_of(values)], numbers_of(without_nulls(values), names[-1])


def without_nulls(column: Any) -> Any:
    """A column of Arrow's with zeros for nulls."""
    return column.fill_null(0) if column.null_count else column


def flags_of(column: Any) -> Array:
    """-1 where a column of Arrow's is null, else 0: the flags of `bad_rows`."""
    if not column.null_count:
        return np.zeros(len(column), np.int8)
    null: Array = column.is_null().to_numpy(zero_copy_only=False)
    return -null.astype(np.int8)


def coordinates_of(column: Any, name: str, *, cast: bool = False) -> Array:
    """A column of Arrow's as coordinates. What is none is a number below zero that says why, as in `bad_rows`.

    cast: the column may hold floats, decimals or texts, of whole numbers. Raises ArrayError for other columns.
    """
    pa = arrow()
    types, kind = pa.types, column.type
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if not types.is_integer(kind) and not cast:
        what = f"holds {kind}; coordinates are integers; cast it, or pass dtype={{{name!r}: 'int64'}} for whole numbers"
        raise ArrayError(Problem(f"columns.{name}", what))
    if types.is_integer(kind) and not column.null_count and kind != pa.uint64():
        return numbers_of(column, name)
    null = column.is_null().to_numpy(zero_copy_only=False)
    if types.is_integer(kind):
        found = numbers_of(without_nulls(column), name)
        whole = np.ones(len(found), bool)
    elif types.is_floating(kind):
        found = numbers_of(without_nulls(column), name).astype(float, copy=False)
        whole = (np.floor(found) == found) & np.isfinite(found)
        large = whole & (found >= 2.0**63)
        found = np.maximum(np.where(whole & ~large, found, 0), -1).astype(np.int64)
        found[large] = _MOST
    else:
        found, whole = _numbers_in(column.cast(pa.large_string()), name)
    made = int64_of(found)
    made[~whole] = NOT_WHOLE
    made[null] = NULL
    return made


def _numbers_in(texts: Any, name: str) -> tuple[Array, Array]:
    """Numbers in texts, -1 for all that are negative, the greatest for those that are larger; which texts have one."""
    from pyarrow import compute

    negative, positive, large = (
        compute.match_substring_regex(texts, x).fill_null(False) for x in (_NEGATIVE, _POSITIVE, _LARGE)
    )
    digits = compute.if_else(positive, compute.replace_substring_regex(texts, r"\.0*\s*$|[\s+]", ""), "0")
    found = int64_of(numbers_of(digits.cast(arrow().uint64()), name))
    below, whole, above = (x.to_numpy(zero_copy_only=False) for x in (negative, positive, large))
    found[below], found[above] = -1, _MOST
    return found, whole | below | above


def cast_types(given: Any, columns: Sequence[str | None] | None) -> tuple[npt.DTypeLike | None, dict[str, str]]:
    """What `dtype` says: the type of the values, and the types that columns are cast to. Raises OptionError."""
    if not isinstance(given, Mapping):
        return given, {}
    found = {}
    for name, wanted in given.items():
        if columns is None or name not in columns:
            what = f"{name!r:.40} is none of the columns {columns!s:.200}; leave it out"
            raise OptionError(Problem("dtype", what))
        try:
            found[str(name)] = str(np.dtype(wanted).str)
        except TypeError:
            raise OptionError(Problem(f"dtype.{name}", f"expected a type of numpy's, got {wanted!r:.40}")) from None
        arrow_type(found[name])
    return (found.get(str(columns[-1])) if columns else None), found


def arrow_type(wanted: str) -> Any:
    """The type of Arrow's for a type of numpy's by its name. Raises OptionError."""
    pa = arrow()
    try:
        return pa.large_string() if np.dtype(wanted).kind == "U" else pa.from_numpy_dtype(np.dtype(wanted))
    except (TypeError, NotImplementedError, pa.ArrowException) as error:
        raise OptionError(Problem("dtype", f"a column is not cast to {wanted!r:.40}: {error}; pass another")) from None


def cast_to(column: Any, wanted: str | None, name: str) -> Any:
    """A column of Arrow's in a type of numpy's by its name, without becoming other numbers. Raises ArrayError."""
    if wanted is None:
        return column
    try:
        return column.cast(arrow_type(wanted))
    except arrow().ArrowException as error:
        what = f"is not cast to {wanted}: {error!s:.200}; pass another type, or mend the rows"
        raise ArrayError(Problem(f"columns.{name}", what)) from None


def numbers_of(column: Any, name: str) -> Array:
    """A column of Arrow's as an array. Raises ArrayError for nulls, and for a column without numbers."""
    if arrow().types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
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
    except (NotImplementedError, TypeError):  # a time with a zone is a type of pandas
        found = np.dtype(object)
    if found.kind not in "biuf":
        what = f"holds {kind}; give numbers, or cast it, which write_from and build do by dtype={{{name!r}: 'float64'}}"
        raise ArrayError(Problem(f"columns.{name}", what))
    return found


def refuse_nulls(column: Any, path: str) -> None:
    """Raise ArrayError for a column of Arrow's with nulls."""
    if column.null_count:
        raise ArrayError(Problem(path, f"{column.null_count} nulls; fill or drop them first"))
