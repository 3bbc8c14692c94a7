"""Values as a table of distinct entries, and a code for each value: values[q] is table[codes[q]].

In a file, the type `dictionary[…]` makes the array `values` the table, and the array `codes` stores the codes. In
memory, a `Dictionary` takes the place of the array of values, as long as it is smaller than that array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import Array, LazyArray, Pieces, Sliceable
from ..errors import ArrayError, OptionError, Problem

CODES = "codes"  # the name of the array
CODE_TYPES = ("uint8", "uint16")
MOST_ENTRIES = 2**16
_SORTED_TOGETHER = 2**18  # values; more than the entries, so that random values are recognised by the first ones


class Dictionary(LazyArray):
    """Values that are looked up in a table when they are sliced.

    table: distinct entries, in memory. codes: unsigned integers, in memory or lazy; those of a file are checked when
    they are read, which raises ArrayError. `nbytes` is the size in memory.
    """

    def __init__(self, table: Array, codes: Sliceable) -> None:
        super().__init__(len(codes), table.dtype, table.nbytes + len(codes) * codes.dtype.itemsize)
        self.table, self.chunk = table, getattr(codes, "chunk", 1)
        self.codes: Any = codes

    def __reduce__(self) -> tuple[Any, ...]:
        return Dictionary, (self.table, self.codes)

    def part(self, start: int, stop: int) -> Array:
        return self._values(self.codes[start:stop])

    def at(self, positions: Array) -> Array:
        return self._values(self.codes[positions])

    def _values(self, codes: Array) -> Array:
        return self.table.take(self._checked(codes), mode="clip")  # a third faster than another check

    def _checked(self, codes: Array) -> Array:
        if len(codes) and codes.max() >= len(self.table):
            what = f"expected less than {len(self.table)}, the number of entries of the table, got {codes.max()}"
            raise ArrayError(Problem(CODES, what))
        return codes

    def verify(self) -> None:
        if isinstance(self.codes, LazyArray):
            self.codes.verify()

    def loaded(self) -> Array:
        """The values in memory: a dictionary, or an array if that is not larger."""
        return self.with_codes(self.codes[:])

    def with_codes(self, codes: Array) -> Array:
        """The values of other codes in memory, checked, as `loaded` returns them."""
        if not _is_smaller(self.table, len(codes), codes.dtype):
            return self._values(codes)
        made: Any = Dictionary(self.table, self._checked(codes))
        codes.setflags(write=False)
        return made  # type: ignore[no-any-return]

    def with_entry(self, value: Any, needed: bool) -> tuple[Dictionary, Any] | None:
        """A dictionary that has a value in its table, and the code of the value. None if no code is free.

        needed: False if no value will have the code.
        """
        new = np.full(1, value, self.dtype)
        found = np.flatnonzero(as_bits(self.table) == as_bits(new)) if needed else [0]
        if len(found):
            return self, self.codes.dtype.type(found[0])
        if len(self.table) > np.iinfo(self.codes.dtype).max:
            return None
        return Dictionary(np.concatenate([self.table, new]), self.codes), self.codes.dtype.type(len(self.table))

    def applied(self, function: Callable[[Array], Array]) -> Array:
        """A function of every value, computed once for each entry. Precondition: codes in memory."""
        codes: Array = self.codes
        try:
            with np.errstate(all="raise"):
                made = function(self.table)
        except (FloatingPointError, ValueError):  # entries without a code warn of nothing
            used = np.zeros(len(self.table), bool)
            used[codes] = True
            made, codes = function(self.table[used]), (np.cumsum(used) - 1)[codes]
        if not _has_bits(made.dtype):
            return made[codes]
        _, first, inverse = np.unique(as_bits(made), return_index=True, return_inverse=True)
        if len(first) < len(made) or codes is not self.codes:
            made, codes = made[first], inverse.astype(_code_type(len(first)))[codes]
        return Dictionary(made, codes).loaded()


def checked_table(table: Array) -> Array:
    """The table of a file. Raises ArrayError if two entries are the same."""
    known, first = np.unique(as_bits(table), return_index=True)
    if len(known) < len(table):
        at = np.setdiff1d(np.arange(len(table)), first)[0]
        raise ArrayError(Problem(f"values[{at}]", f"the entries of a dictionary differ, and {table[at]} occurs twice"))
    return table


def in_memory(values: Sliceable) -> Array:
    """Values that may be lazy, read into memory; a dictionary stays one."""
    return values.loaded() if isinstance(values, Dictionary) else values[:]


def applied(function: Callable[[Array], Array], values: Any) -> Array:
    """A function of every value of an array or a dictionary."""
    made: Array = values.applied(function) if isinstance(values, Dictionary) else function(values)
    return made


def encode(values: Pieces) -> tuple[Array, Pieces]:
    """The table and the codes of values: the most frequent entry first, equally frequent ones in the order of bits.

    The table of values that are all the same has one entry. Raises OptionError if a table of several entries and the
    codes are not smaller than the values.
    """
    native = values.dtype.newbyteorder("=")
    known, counts = as_bits(np.empty(0, native)), np.empty(0, np.int64)
    for part in (x[k : k + _SORTED_TOGETHER] for x in values.each() for k in range(0, len(x), _SORTED_TOGETHER)):
        bits, more = np.unique(as_bits(part), return_counts=True)
        known, inverse = np.unique(np.concatenate([known, bits]), return_inverse=True)
        counts = np.bincount(inverse, np.concatenate([counts, more])).astype(np.int64)
        if len(known) > MOST_ENTRIES:
            raise OptionError(
                Problem("dictionary", f"there are more than {MOST_ENTRIES} distinct values; leave it out")
            )
    order = np.argsort(-counts, kind="stable")
    table, dtype = known[order].view(native), _code_type(len(known))
    if len(table) > 1 and not _is_smaller(table, values.length, dtype):
        what = f"{len(table)} entries and {values.length} codes are not smaller than the values; leave it out"
        raise OptionError(Problem("dictionary", what))
    code = np.empty(len(table), dtype)
    code[order] = np.arange(len(table), dtype=dtype)
    return table, values.mapped(lambda x: code[np.searchsorted(known, as_bits(x))], 1, dtype)


def as_bits(values: Array) -> Array:
    """The bits of values as unsigned integers; those of 16 bytes as two of them."""
    native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    size = native.dtype.itemsize
    return native.view(f"u{size}" if size <= 8 else [("real", "u8"), ("imaginary", "u8")])


def _has_bits(dtype: np.dtype[Any]) -> bool:
    """Return True if equal values have equal bits, and `as_bits` returns them."""
    return dtype.itemsize in (1, 2, 4, 8) or dtype == np.complex128


def _code_type(entries: int) -> np.dtype[Any]:
    return np.dtype(CODE_TYPES[entries > 2**8])


def _is_smaller(table: Array, count: int, codes: np.dtype[Any]) -> bool:
    """Return True if the table and the codes take less memory than the values."""
    return table.nbytes + count * codes.itemsize < count * table.dtype.itemsize
