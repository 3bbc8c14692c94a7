"""Limits on what a file may ask for; each can be raised by whoever trusts the file. And what counts as an integer."""

import operator
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from .errors import LimitError, OptionError, Problem

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def as_integer(given: Any) -> int | None:
    """What a caller gives, as a Python integer: all that has `__index__`, numpy's integers above all. None for a
    boolean, whosever it is, and for everything else.
    """
    if type(given) is int:
        return given
    if isinstance(given, bool) or str(getattr(given, "dtype", "")).endswith("bool"):
        return None
    try:
        return operator.index(given)
    except TypeError:
        return None


def as_integers(given: Iterable[Any]) -> tuple[Any, ...]:
    """The items with Python's integers for those that are some, and the others as they are, to be complained of."""
    return tuple(item if (number := as_integer(item)) is None else number for item in given)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one call. Passing one raises LimitError, which names it.

    rank: dimensions of a tensor (numpy's own limit is 64). nesting: levels of a tree, and of brackets in JSON.
    header_bytes: length of the JSON header. array_bytes: any one array that is read. dense_bytes: what a dense level
    makes without an entry asking for it: pointers, padding, `to_dense`. Raises OptionError for what is no integer.
    """

    rank: int = 64
    nesting: int = 256
    header_bytes: int = 2**20
    array_bytes: int = 2**36
    dense_bytes: int = 2**34

    def __post_init__(self) -> None:
        for field in fields(self):
            given = getattr(self, field.name)
            if (number := as_integer(given)) is None:
                raise OptionError(Problem(field.name, f"expected an integer, got {given!r:.40}; give one"))
            object.__setattr__(self, field.name, number)

    def hold(self, limit: str, asked: int, path: str, what: str) -> None:
        """Raise LimitError where `asked` passes the limit of that name."""
        allowed = getattr(self, limit)
        if asked > allowed:
            raise LimitError(Problem(path, f"{what} is {asked}, more than the limit {limit}={allowed}"))


DEFAULT_LIMITS = Limits()
