"""Kinds with pointers to the children of each fiber, in memory and in a file."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArrayError, Problem, raise_if
from ..thresholds import THRESHOLDS
from .base import Arrays, Counted, Level, Owners, moved, wrong_lengths
from .positions import Array, Positions, as_array, below_fibers, fitted, items_at

# It contains a semicolon, by which errors recognise that a message has a remedy.
REMEDY = "not sorted; read and convert sort files of other systems, repair those of Binsparse, pack sorts entries"
SHOWN = 5
_IN_FIBER = ", in fiber "  # before the number of a fiber at the end of a message


class Pointed(Level):
    """Fiber p owns the children ptr[p] … ptr[p+1], each with an entry, or items from which the kind finds them."""

    def size(self, arrays: Arrays, dims: Sequence[int], n: int) -> int:
        return int(arrays["ptr"][n : n + 1][0])

    def count(self, arrays: Arrays, dims: Sequence[int], n: int, below: int | Array) -> Array:
        return below_fibers(self.pointers(arrays), below)

    @staticmethod
    def pointers(arrays: Arrays) -> Array:
        """The pointers of the whole level."""
        return arrays["ptr"]

    def bounds(self, arrays: Arrays, positions: Positions, children: int | None = None) -> tuple[Array, Array]:
        """The first child and the end of the children of each fiber, as int64. Arrays in a file are sliced.

        children: their number in the level. If given, pointers that decrease, exceed it, or leave out the first or the
        last child raise ArrayError.
        """
        pointers = self.pointers(arrays)
        if isinstance(positions, range) and positions.step == 1:
            both = pointers[positions.start : positions.stop + 1].astype(np.int64, copy=False)
            if len(both) <= len(positions) > 0:  # in a file whose lengths depend on its data
                what = f"expected a length of {positions.stop + 1} at least, got {len(pointers)}"
                raise ArrayError(Problem("ptr", what))
            starts, ends = both[:-1], both[1:]
        else:
            at = as_array(positions)
            starts, ends = (items_at(pointers, x).astype(np.int64, copy=False) for x in (at, at + 1))
        if children is not None:
            refuse_outside(positions, len(pointers) - 1, starts, ends, children)
        return starts, ends

    def above(self, arrays: Arrays, dims: Sequence[int], n: int, children: range) -> Owners:
        fibers, bounds, counts = self._fibers_above(arrays, dims, n, children)
        coords = self._coords_of(arrays, dims, fibers, bounds)
        kept = slice(children.start - int(bounds[0]), children.stop - int(bounds[0]))
        return Owners(fibers, counts, [x[kept] for x in coords])

    def _fibers_above(self, arrays: Arrays, dims: Sequence[int], n: int, children: range) -> tuple[range, Array, Array]:
        """The fibers of these children, their pointers, and the number of these children in each."""
        fibers, bounds = fibers_of(arrays["ptr"], n, children, self.size(arrays, dims, n))
        return fibers, bounds, np.diff(np.minimum(bounds[1:], children.stop), prepend=children.start)

    def _coords_of(self, arrays: Arrays, dims: Sequence[int], fibers: range, bounds: Array) -> Sequence[Array]:
        """The coordinates of all children of the fibers with pointers `bounds`, checked."""
        everything = [range(size) for size in dims]
        if (part := self.part(arrays, dims, fibers, everything)) is None:  # the kind is read whole
            whole = {role: array[:] for role, array in arrays.items()}
            raise_if(ArrayError, self.check(whole, dims, len(whole["ptr"]) - 1))
            return self.expand(whole, dims, fibers, everything)[1]
        raise_if(ArrayError, self.check(part[0], dims, len(fibers)))
        return self.expand(part[0], dims, range(len(fibers)), everything)[1]


class Lists(Pointed):
    """Kinds whose arrays, except the pointers, have an item for each child. The root is one fiber without pointers."""

    def lengths(self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None) -> Counted:
        children = next(size for role, size in lengths.items() if role != "ptr")
        return children, wrong_lengths(
            lengths, dict.fromkeys(lengths, children) | {"ptr": None if n is None else n + 1}
        )

    def size(self, arrays: Arrays, dims: Sequence[int], n: int) -> int:
        return Level.size(self, arrays, dims, n)

    @staticmethod
    def pointers(arrays: Arrays) -> Array:
        return arrays["ptr"] if "ptr" in arrays else np.array([0, len(next(iter(arrays.values())))])

    def _items_above(
        self, arrays: Arrays, dims: Sequence[int], n: int, children: range
    ) -> tuple[range, Array, list[Array]]:
        """The fibers of these children, the number of these children in each, and their items, checked."""
        columns = {role: array for role, array in arrays.items() if role != "ptr"}
        column = next(iter(columns.values()))
        fibers, bounds = range(1), np.array([0, children.stop])
        if "ptr" in arrays:
            fibers, bounds = fibers_of(arrays["ptr"], n, children, len(column))
        in_memory = isinstance(column, np.ndarray)
        if in_memory:
            items = [x[children.start : children.stop] for x in columns.values()]
        else:
            items = self._read(arrays, dims, fibers.start, bounds, children)
        return fibers, np.diff(np.minimum(bounds[1:], children.stop), prepend=children.start), items

    def _read(self, arrays: Arrays, dims: Sequence[int], first: int, bounds: Array, children: range) -> list[Array]:
        """The items of these children, checked, also against the child before them in their fiber.

        first, bounds: the number of a fiber, and the pointers of fibers from there on, which own these children.
        """
        start = max(int(bounds[0]), children.start - 1)
        items = {role: x[start : children.stop] for role, x in arrays.items() if role != "ptr"}
        pointers = np.clip(bounds, start, children.stop) - start
        problems = self.check({"ptr": pointers} | items, dims, len(pointers) - 1)
        raise_if(ArrayError, [_in_level(problem, start, first) for problem in problems])
        return [x[children.start - start :] for x in items.values()]

    def check_in_parts(self, arrays: Arrays, dims: Sequence[int], n: int, size: int) -> Iterator[Problem]:
        children = len(next(x for role, x in arrays.items() if role != "ptr"))
        try:
            if "ptr" in arrays:
                raise_if(ArrayError, pointers_in_parts(arrays["ptr"], children, n, size))
            for first in range(0, max(n, 1), size):
                bounds = np.array([0, children])
                if "ptr" in arrays:
                    bounds = arrays["ptr"][first : min(first + size, n) + 1].astype(np.int64)
                for start in range(int(bounds[0]), int(bounds[-1]), size):
                    self._read(arrays, dims, first, bounds, range(start, min(start + size, int(bounds[-1]))))
        except ArrayError as error:
            yield from error.problems


def pointers_to(counts: Array, dtype: np.dtype[Any]) -> Array:
    """Pointers for fibers with these numbers of children; int64 if the total does not fit `dtype`."""
    pointers = np.zeros(len(counts) + 1, np.int64)
    counts.cumsum(dtype=np.int64, out=pointers[1:])
    return fitted(pointers, dtype)


def fibers_of(pointers: Array, n: int, children: range, total: int) -> tuple[range, Array]:
    """The fibers of some of `total` children, and the pointers of these fibers, as int64.

    Only few pointers of a file are read. Raises ArrayError for pointers that do not ascend.
    """
    falls = Problem("ptr", "the pointers decrease")
    first = bisect(pointers, children.start + 1, 0, n + 1, falls) - 1
    last = bisect(pointers, children.stop, 0, n + 1, falls)
    bounds = pointers[max(first, 0) : last + 1].astype(np.int64)
    outer = ([0] if children.start == 0 else []) + ([n] if children.stop == total else [])
    run = np.concatenate((bounds[:1], [children.start], bounds[1:-1], [children.stop], bounds[-1:]))
    if (
        first < 0
        or last > n
        or (np.diff(run) < 0).any()
        or any(pointers[k : k + 1][0] != (total if k else 0) for k in outer)
    ):
        raise ArrayError(Problem("ptr", f"does not ascend to its children {children.start} … {children.stop}"))
    return range(first, last), bounds


def bisect(column: Any, target: int, low: int, high: int, disorder: Problem) -> int:
    """The first offset in low … high whose item is not below `target`.

    The items of a file are read once to check that they ascend. Raises ArrayError with `disorder` otherwise.
    """
    if not isinstance(column, np.ndarray):
        if not column.ascends(low, high):
            raise ArrayError(disorder)
        while high - low > THRESHOLDS.search_items:
            middle = (low + high) >> 1
            if column[middle : middle + 1][0] < target:
                low = middle + 1
            else:
                high = middle
    return low + bisect_left(column[low:high], target)  # numpy would convert all items to the type of the target


def is_short(low: int, high: int) -> bool:
    """Return True if a fiber of a file is read whole, because a search would not read less."""
    return high - low <= THRESHOLDS.short_items


def _in_level(problem: Problem, start: int, first: int) -> Problem:
    """A problem of a part, with offsets relative to the level. start, first: the part's first child and fiber."""
    message, named, fiber = problem.message.rpartition(_IN_FIBER)
    message = f"{message}{named}{first + int(fiber)}" if named else problem.message
    return moved(Problem(problem.path, message), start)


def refuse_outside(positions: Positions, n: int, starts: Array, ends: Array, children: int) -> None:
    """Raise ArrayError for pointers of some of n fibers that decrease or exceed the number of children.

    The first fiber must begin at child 0, and the last fiber must end with the last child.
    """
    bad = np.flatnonzero((starts < 0) | (starts > ends) | (ends > children))
    if len(bad):
        what = f"a fiber from {starts[bad[0]]} to {ends[bad[0]]}, but there are {children} children"
        raise ArrayError(Problem("ptr", what))
    for where, fiber, bounds, expected in (("beginning", 0, starts, 0), ("end", n - 1, ends, children)):
        if isinstance(positions, range):
            found = bounds[[positions.index(fiber)]] if fiber in positions else bounds[:0]
        else:
            found = bounds[positions == fiber]
        if (found != expected).any():
            raise ArrayError(Problem("ptr", f"expected {expected} at the {where}, got {found[0]}"))


def pointers_in_parts(pointers: Array, children: int, n: int, size: int) -> Iterator[Problem]:
    """The first problem of the pointers of n fibers, of which `size` are in memory at a time."""
    firsts = range(0, max(n, 1), size)
    parts = (pointer_problems(pointers[x : min(x + size, n) + 1], children, x, n) for x in firsts)
    return itertools.islice(itertools.chain.from_iterable(parts), 1)


def pointer_problems(pointers: Array, children: int, first: int = 0, n: int | None = None) -> Iterator[Problem]:
    """The problems of the pointers of n fibers, or of some of these fibers, from fiber `first` on."""
    last = first + len(pointers) - 1
    if first == 0 and pointers[0] != 0:
        yield Problem("ptr[0]", f"expected 0, got {pointers[0]}")
    (falls,) = (pointers[1:] < pointers[:-1]).nonzero()
    for p in falls[:SHOWN].tolist() if len(falls) else ():
        what = f"{pointers[p + 1]} is less than the pointer before it, {pointers[p]}, in fiber {first + p}"
        yield Problem(f"ptr[{first + p + 1}]", what)
    if len(falls) > SHOWN:
        yield Problem("ptr", f"{len(falls)} in all decrease")
    if pointers[-1] > children or (n in (None, last) and pointers[-1] != children):
        yield Problem(f"ptr[{last}]", f"expected {children}, the length of the indices, got {pointers[-1]}")


def in_fiber(pointers: Array, q: int) -> str:
    """The end of a message with the fiber of child q. Empty if there is one fiber, or the pointers are damaged."""
    if len(pointers) < 3 or (pointers[1:] < pointers[:-1]).any():
        return ""
    fiber = int(np.searchsorted(pointers.astype(np.int64), q, side="right")) - 1
    return f"{_IN_FIBER}{fiber}" if fiber < len(pointers) - 1 else ""


def has_empty_fibers(pointers: Array) -> bool:
    """Return True if two neighbouring pointers are equal: a stored fiber has no entry."""
    return bool((pointers[1:] == pointers[:-1]).any())
