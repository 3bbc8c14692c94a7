"""Which rows of Parquet files count: conditions as `pyarrow.parquet.read_table` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import OptionError, Problem
from .columns import arrow

_COMPARED = ("=", "==", "!=", "<", ">", "<=", ">=", "in", "not in")
_REMEDY = 'pass conditions such as [("year", ">=", 2024)], or several such lists of which one has to hold'


def checked_filters(filters: Any) -> list[Any] | None:
    """Conditions as lists, which JSON keeps. Raises OptionError for what are none."""
    if filters is None:
        return None
    some = list(filters) if isinstance(filters, list | tuple) else []
    if some and all(isinstance(x, list) and x and not isinstance(x[0], str) for x in some):
        return [[_checked(term) for term in group] for group in some]
    if not some:
        raise OptionError(Problem("filters", f"expected conditions, got {filters!r:.60}; {_REMEDY}"))
    return [_checked(term) for term in some]


def _checked(term: Any) -> list[Any]:
    told = list(term) if isinstance(term, list | tuple) else []
    if len(told) != 3 or not isinstance(told[0], str) or told[1] not in _COMPARED:
        raise OptionError(Problem("filters", f"{term!r:.60} is no condition; {_REMEDY}"))
    return told


def terms(filters: Sequence[Any] | None) -> list[Any]:
    """The conditions, whatever has to hold together."""
    return [term for group in _groups(filters) for term in group] if filters else []


def _groups(filters: Sequence[Any]) -> Sequence[Any]:
    """The lists of conditions of which one has to hold."""
    return filters if isinstance(filters[0][0], list) else [filters]


def kept(table: Any, filters: Sequence[Any]) -> Any:
    """The rows of a table of Arrow's that count. Raises OptionError for what cannot be compared."""
    from pyarrow.parquet import filters_to_expression

    wanted = [[tuple(term) for term in group] for group in _groups(filters)]
    try:
        return table.filter(filters_to_expression(wanted))
    except (arrow().ArrowException, TypeError, ValueError) as error:
        told = str(error).partition("\n")[0]
        raise OptionError(
            Problem("filters", f"cannot be compared: {told:.100}; pass values of the columns' types")
        ) from None
