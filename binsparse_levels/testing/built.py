"""The results of a level for a case: tables, with rows of fibers, of coordinates by dimension, and of children."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..engine.packing import narrowed
from ..errors import FormatError, needing
from ..levels import Place
from ..levels.base import Expanded
from ..levels.positions import Array, Positions, as_array, as_pointers, cells, firsts
from .cases import MOST, LevelCase, distinct

with needing("test"):
    from hypothesis import assume


class BuiltCase:
    """A built level of a case: its arrays below other levels, its children, and the table of `expand`."""

    def __init__(self, case: LevelCase) -> None:
        self.case, self.level, self.dims, self.n = case, case.level, case.dims, case.n
        many = case.n * cells(case.dims) > MOST
        self.specs = self.level.arrays(1, root=False)
        try:
            whole, child = case.build()
            if missing := set(self.specs) - set(whole):
                raise AssertionError(f"build makes no array for the role {min(missing)!r}, which arrays() names")
            self.arrays = narrowed(Place(self.level, tuple(self.dims), 1, self.specs), whole, np.dtype(np.int64))
        except (FormatError, MemoryError) as error:  # a kind may refuse entries, or store something for each cell
            if many or isinstance(error, FormatError):
                assume(False)
            raise
        self.whole, self.children = {**whole, **self.arrays}, as_array(child)
        if many and max(self.size, sum(x.nbytes for x in self.arrays.values()) // 8) > 2 * MOST:
            assume(False)

    @cached_property
    def size(self) -> int:
        return self.level.size(self.arrays, self.dims, self.n)

    @cached_property
    def listing(self) -> Array:
        window = [range(size) for size in self.dims]
        return listing(self.level.expand(self.arrays, self.dims, range(self.n), window), range(self.n))

    @cached_property
    def entries(self) -> Array:
        """The table of the entries that were built, and their children, without repetitions."""
        return distinct(np.array([self.case.parents, *self.case.coords, self.children], np.int64))


def listing(expanded: Expanded, positions: Positions) -> Array:
    """The table of a result of `expand` for the fibers at some positions."""
    counts, coords, child = expanded
    fibers = as_array(positions)
    pointers = as_pointers(counts, len(fibers)).astype(np.int64)
    return np.array([np.repeat(fibers, pointers[1:] - pointers[:-1]), *coords, as_array(child)], np.int64)


def places_of(table: Array, among: Array) -> Array:
    """The place of each column of a table among those of another, which are distinct, or -1."""
    both = np.concatenate([table, among], axis=1)
    order = np.lexsort(both[::-1])
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(firsts(list(both[:, order])))
    places = np.full(len(order) + 1, -1)
    places[number[table.shape[1] :]] = np.arange(among.shape[1])
    return places[number[: table.shape[1]]]


def check_rows(found: Array, expected: Array, what: str) -> None:
    """Assert that two tables are equal; the message has the first entry that differs."""
    both = min(found.shape[1], expected.shape[1])
    same = np.append((found[:, :both] == expected[:, :both]).all(axis=0), found.shape == expected.shape)
    rows = [shown(x[:, same.argmin() :]) for x in (found, expected)]
    assert same.all(), f"{what}: {rows[0]}, not {rows[1]}"


def shown(table: Array) -> str:
    """The first entry of a table, for messages."""
    return "".join(f"fiber {p} has {x[:-1]} at child {x[-1]}" for p, *x in table[:, :1].T.tolist()) or "nothing"
