"""Rows that are no entries, as a coordinate is null, no whole number or out of range: told, or counted and left out.

A coordinate below zero says what is wrong with a row. A source may give one more array than there are dimensions, which
is -1 where the value is null.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ..arrays import Array
from ..containers.objects.asking import side_by_side
from ..errors import ArrayError, OptionError, Problem

if TYPE_CHECKING:
    from .planning import Plan
    from .work import Work

Bad: TypeAlias = Literal["raise", "skip"]

NULL = -(2**63)
NOT_WHOLE = NULL + 1
ELSEWHERE = NULL + 2  # the label of a row that another column makes bad
LISTED = 100  # places of bad rows
_REASONS = "null", "no whole number", "negative", "out of range"


class BadRows(NamedTuple):
    """The rows that were left out.

    counts: how many for each reason, such as `{"user is null": 3}`. A row counts once. places: of the first hundred
    rows, and the reason of each.
    """

    counts: dict[str, int]
    places: list[str]


class Found(NamedTuple):
    """Bad rows of a chunk. rows: their numbers. dims: the first array that is wrong in each. numbers: what it has, as
    int64. first: what the first row has.
    """

    rows: Array
    dims: Array
    numbers: Array
    first: int

    @property
    def reasons(self) -> Array:
        """A number for each row: four times its array, and which of the reasons."""
        x = self.numbers
        which: Array = np.select([x == NULL, x == NOT_WHOLE, x < 0], [0, 1, 2], 3)
        return 4 * self.dims + which


def check_bad(bad: Any) -> None:
    """Raise OptionError for what is no way to treat bad rows."""
    if bad not in ("raise", "skip"):
        raise OptionError(Problem("bad", f"expected 'raise' or 'skip', got {bad!r:.40}"))


def find(coords: Sequence[Array | None], sizes: Sequence[int]) -> Found | None:
    """The bad rows of a chunk, if any. None in place of an array: nothing is known of that dimension."""
    dims: Array | None = None
    for k, x in reversed(list(enumerate(coords))):
        size = sizes[k] if k < len(sizes) else 1
        if x is not None and len(x) and (int(x.min()) < 0 or int(x.max()) >= size):
            dims = np.full(len(x), -1, np.int64) if dims is None else dims
            dims[((x < 0) | (x >= size)) & ((x != ELSEWHERE) | (dims < 0))] = k
    if dims is None:
        return None
    rows = np.flatnonzero(dims >= 0)
    dims, numbers = dims[rows], np.empty(len(rows), np.int64)
    for k in np.unique(dims).tolist():
        x = coords[k]
        assert x is not None
        numbers[dims == k] = int64_of(x[rows[dims == k]]) if k < len(sizes) else NULL
    first = coords[dims[0]]
    assert first is not None
    return Found(rows, dims, numbers, int(first[rows[0]]))


def as_nulls(codes: Array) -> Array:
    """Coordinates for codes of labels: NULL for those below zero, else 0."""
    return np.where(codes < 0, NULL, 0)


def int64_of(numbers: Array) -> Array:
    """Integers as int64, in which those that are too large are the greatest, which is no coordinate."""
    if numbers.dtype == np.uint64:
        numbers = np.minimum(numbers, np.uint64(2**63 - 1))
    return numbers.astype(np.int64)


def listed(found: Found, names: Sequence[str], places: Callable[[Array], list[str]]) -> BadRows:
    """How many bad rows there are, and the first of them. names: of the arrays. places: of rows."""
    which, counts = np.unique(found.reasons, return_counts=True)
    told = {_reason(code, names): n for code, n in zip(which.tolist(), counts.tolist(), strict=True)}
    first = found.reasons[:LISTED].tolist()
    lines = [f"{x}: {_reason(code, names)}" for x, code in zip(places(found.rows[:LISTED]), first, strict=True)]
    return BadRows(told, lines)


def _reason(code: int, names: Sequence[str]) -> str:
    which, reason = divmod(code, 4)
    return f"{names[which]} is {_REASONS[reason]}"


def refuse(found: Found, plan: Plan, places: Callable[[Array], list[str]]) -> None:
    """Raise ArrayError for the first bad row."""
    k, name = int(found.dims[0]), plan.column_names[int(found.dims[0])]
    reason = _REASONS[int(found.reasons[0]) % 4]
    what = (
        f"is {reason}" if reason in _REASONS[:2] else f"{found.first} is outside dimension {k} of size {plan.shape[k]}"
    )
    more = f" ({len(found.rows)} such rows here)" if len(found.rows) > 1 else ""
    column = name if name.startswith("coords[") else f"columns.{name}"
    raise ArrayError(
        Problem(f"{places(found.rows[:1])[0]}: {column}", f"{what}{more}; mend or drop such rows, or pass bad='skip'")
    )


class Told:
    """What is told of the bad rows of several chunks. places: of rows of a chunk; by default, their numbers behind
    those `before`.
    """

    def __init__(self, plan: Plan, places: Callable[[Array], list[str]] | None = None) -> None:
        self._plan, self._places = plan, places or self._numbered
        self.all = BadRows({}, [])
        self.before = 0

    def _numbered(self, rows: Array) -> list[str]:
        return [f"row {row}" for row in (rows + self.before).tolist()]

    def tell(self, found: Found) -> None:
        """Add the bad rows of a chunk. Raises ArrayError where they are an error."""
        if self._plan.bad == "raise":
            refuse(found, self._plan, self._places)
        self.all = together([self.all, listed(found, self._plan.column_names, self._places)])


def together(parts: Iterable[BadRows]) -> BadRows:
    """The bad rows of several chunks, in their order."""
    counts: Counter[str] = Counter()
    places: list[str] = []
    for part in parts:
        counts.update(part.counts)
        places += part.places[: LISTED - len(places)]
    return BadRows(dict(counts), places)


# In the folder of a work


def keep(work: Work, number: int, found: Found) -> None:
    """Leave what is told of the bad rows of a chunk. Raises ArrayError where they are an error."""
    told = Told(work.begun, partial(work.source.places, number))
    told.tell(found)
    work.put(f"bad/{number}", [json.dumps(told.all).encode()])


def kept(work: Work) -> BadRows:
    """The bad rows of all chunks that have been read, also of a build that is done."""
    if work.done("skipped"):
        return _loaded(work, "skipped/0")
    return together(side_by_side(lambda k: _loaded(work, f"bad/{k}"), sorted(work.done("bad"))))


def _loaded(work: Work, key: str) -> BadRows:
    try:
        counts, places = json.loads(bytes(work.get(key)))
        return BadRows(dict(counts), list(places))
    except (ValueError, TypeError) as error:
        raise work.damaged(key) from error


def keep_all(work: Work) -> BadRows:
    """Put what is told of all chunks in one object, which stays."""
    found = kept(work)
    if work.done("bad"):
        work.put("skipped/0", [json.dumps(found).encode()])
        work.store.delete("bad")
    return found
