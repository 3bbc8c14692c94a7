"""Chunks that come once: they are cut into blocks, which the work keeps as a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array
from ..errors import ArrayError, PathMissingError, Problem
from ..io.writing import Progress
from .entries import Chunk, checked_columns, columns_in, concatenated, follow, keys_of
from .plan import Plan, check_joined
from .sources import Source
from .work import Work, open_work, pieces_of


def blocks(plan: Plan, chunks: Iterable[Chunk]) -> Iterator[list[Array]]:
    """The columns of entries, in blocks of half as many as fit: the next one is made while one is written."""
    held: list[list[Array]] = []
    most = room = max(plan.rows // 2, 1)
    for number, chunk in enumerate(chunks):
        try:
            columns = checked_columns(plan, chunk)
        except ArrayError as error:
            raise ArrayError([Problem(f"chunk {number}: {x.path}", x.message) for x in error.problems]) from None
        while len(columns[-1]):
            held.append([x[:room] for x in columns])
            columns = [x[room:] for x in columns]
            room -= len(held[-1][-1])
            if not room:
                yield concatenated(held)
                room = most
    if held:
        yield concatenated(held)


class Blocks(Source):
    """Blocks of entries that a work keeps, in their order.

    in_order: whether each block ascends, and begins after the one before, so that each is a partition.
    """

    def __init__(self, address: str, counts: Sequence[int] = ()) -> None:
        self._address = address
        self.counts = list(counts)
        self.in_order = True
        self._last: list[int] = []  # the coordinates after which the next block has to begin

    def keep(self, work: Work, columns: list[Array]) -> None:
        """The next block."""
        plan = work.plan
        self.in_order = self.in_order and self._follows(plan, columns[:-1])
        if self.in_order:
            self._last = [int(x[-1]) for x in columns[:-1]]
        work.put(f"rows/{len(self.counts)}", [list(pieces_of(x)) for x in columns])
        self.counts.append(len(columns[-1]))

    def _follows(self, plan: Plan, columns: list[Array]) -> bool:
        if [int(x[0]) for x in columns] <= self._last:
            return False
        keys = keys_of(columns, plan.dims)
        (alike,) = np.nonzero(keys[1:] <= keys[:-1])
        if len(alike) > len(keys) // 2:
            return False
        return bool(follow(*(np.stack([x[alike + k] for x in columns], 1) for k in (1, 0))).all())

    def __len__(self) -> int:
        return len(self.counts)

    def name(self, number: int) -> str:
        return f"block {number} of the chunks"

    def columns(self, plan: Plan, number: int) -> list[Array]:
        return columns_in(plan, np.frombuffer(Work(self._address).get(f"rows/{number}"), np.uint8))


def spilled(
    folder: str,
    plan: Plan,
    found: Iterable[list[Array]],
    progress: Progress | None,
    *,
    sent: bool = False,
) -> Work:
    """The work whose source are these blocks, which it keeps. sent: other processes run steps."""
    kept = Blocks(folder)
    work, entries = open_work(folder, plan, kept, sent=False), 0
    for columns in found:
        kept.keep(work, columns)
        entries += len(columns[-1])
        if plan.duplicates == "error":  # else they may become fewer
            check_joined(plan, entries)
        if progress is not None:
            progress("rows", entries, entries)
    plan = replace(plan, sorted=kept.in_order)
    work = open_work(folder, plan, kept, sent=sent)
    types = [x or "" for x in plan.labels]
    told = {"counts": np.array(kept.counts, np.int64), "dtype": np.array(plan.column_types[-1].str)}
    work.save("rows/all", shape=np.array(plan.shape, np.int64), labels=np.array(types), in_order=kept.in_order, **told)
    return work


class Left(NamedTuple):
    """What a call that was stopped has left: the rows of a table, and what is known from it."""

    shape: list[int]
    counts: list[int]
    dtype: np.dtype[Any]
    labels: tuple[str | None, ...]
    in_order: bool


def left_by(folder: str) -> Left | None:
    """The rows in the folder of a work, if all are there."""
    try:
        there = Work(folder).load("rows/all")
    except PathMissingError:
        return None
    labels = tuple(x or None for x in there["labels"].tolist())
    dtype = np.dtype(str(there["dtype"]))
    return Left(there["shape"].tolist(), there["counts"].tolist(), dtype, labels, bool(there["in_order"]))
