"""Limits on the resources that a file may claim, and the parsing of integer arguments."""

import operator
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from .errors import LimitError, OptionError, Problem, within_memory
from .system import available

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_SMALL_BYTES = 2**27  # which are not compared with the free memory


def as_integer(value: Any) -> int | None:
    """An argument as a Python integer, or None. Objects with `__index__` are integers, except booleans."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def checked_integer(name: str, value: Any, least: int = 1) -> int:
    """An argument as a Python integer. Raises OptionError."""
    number = as_integer(value)
    if number is None or number < least:
        raise OptionError(Problem(name, f"expected an integer >= {least}, got {value!r:.40}"))
    return number


def as_integers(values: Iterable[Any]) -> tuple[Any, ...]:
    """The items, with integers as Python integers. Other items are unchanged, so that the caller can report them.

    Raises TypeError for objects that are not iterable, and for bytes, whose items look like integers.
    """
    if isinstance(values, bytes | bytearray | memoryview):
        raise TypeError(f"expected integers, got {type(values).__name__}")
    items = tuple(values)
    if set(map(type, items)) <= {int}:
        return items
    return tuple(item if (number := as_integer(item)) is None else number for item in items)


@within_memory
@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a call. A call that exceeds a limit raises LimitError, which names it.

    Parameters
    ----------
    rank : int, default 64
        Dimensions of a tensor; numpy's own limit is 64.
    nesting : int, default 256
        Levels of a tree, and of brackets in JSON.
    header_bytes : int, default 2 ** 20
        Bytes of the JSON header.
    array_bytes : int, default 2 ** 36
        Bytes of any array that is read. Items of HDF5 and Zarr must fit the free memory, too.
    dense_bytes : int, default 2 ** 34
        Bytes of everything that dense levels make for empty cells: pointers, padding, `to_dense`; and of index arrays
        that select cell by cell. In memory, the bytes that are free are a limit too.
    cache_bytes : int, default 2 ** 26
        Bytes of the cached chunks of a tensor opened in an object store. No call exceeds it.

    Raises
    ------
    OptionError
        A limit is not an integer.

    See Also
    --------
    LimitError : A limit was exceeded.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> try:
    ...     bl.pack([[0], [0]], [1.0], (10**9, 10**9), "dense(2)", limits=bl.Limits(dense_bytes=10**6))
    ... except bl.LimitError as error:
    ...     print("dense_bytes" in str(error))
    True
    """

    rank: int = 64
    nesting: int = 256
    header_bytes: int = 2**20
    array_bytes: int = 2**36
    dense_bytes: int = 2**34
    cache_bytes: int = 2**26

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if (number := as_integer(value)) is None:
                raise OptionError(Problem(field.name, f"expected an integer, got {value!r:.40}"))
            object.__setattr__(self, field.name, number)

    def __repr__(self) -> str:
        """The limits that differ from the defaults."""
        changed = (f"{x.name}={value}" for x in fields(self) if (value := getattr(self, x.name)) != x.default)
        return f"Limits({', '.join(changed)})"

    def hold(self, limit: str, size: int, path: str, what: str, *, memory: bool | None = None) -> None:
        """Raise LimitError if a size exceeds a limit, or the bytes of free memory.

        Parameters
        ----------
        limit : str
            Name of the limit.
        size : int
            Size to compare.
        path : str
            Place in the file, for the error.
        what : str
            What has the size, for the error.
        memory : bool, optional
            True if the size becomes memory. By default, `dense_bytes` do, and other sizes are of files.

        Raises
        ------
        LimitError
            The size exceeds the limit.
        """
        allowed = getattr(self, limit)
        if size > allowed:
            what = f"{what} is {size}, more than the limit {limit}={allowed}; pass limits=Limits({limit}=…)"
            raise LimitError(Problem(path, what))
        compared = limit == "dense_bytes" if memory is None else memory
        free = available() if compared and size > _SMALL_BYTES else None
        if free is not None and size > free:
            what = f"{what} is {size}, more than the {free} bytes of memory that are free"
            instead = "choose a sparse format such as DCSR or COO, or a smaller part"
            instead = instead if limit == "dense_bytes" else "open the tensor, and read a part of it"
            raise LimitError(Problem(path, f"{what}; {instead}"))


DEFAULT_LIMITS = Limits()
