"""Chunks that come once: they are cut into blocks, which the work keeps as a source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from ..arrays import Array
from ..io.writing import Progress
from ..tensors.labels import TEXT, Column, Labels, stored_type
from .entries import columns_in, follow, renumbered
from .plan import Plan
from .sources import Source
from .work import Work, open_work, pages_of


class Blocks(Source):
    """Blocks of entries that a work keeps, in their order, as a plan has them. count: of the blocks. known: labels,
    where these are not kept there. ranks: new numbers of coordinates, by dimension.
    """

    def __init__(self, address: str, written: Plan, count: int = 0) -> None:
        self._address, self._written, self.count = address, written, count
        self.known: Labels | None = None
        self.ranks: Mapping[int, Array] = {}

    def __len__(self) -> int:
        return self.count

    def name(self, number: int) -> str:
        return f"block {number} of the chunks"

    def columns(self, plan: Plan, number: int) -> list[Array]:
        columns = columns_in(self._written, Work(self._address).get(f"rows/{number}"))
        return renumbered(self._written, plan, columns, self.ranks)

    def labels(self, plan: Plan) -> Labels | None:
        if self.known is not None or plan.names is None:
            return self.known
        (*dims, values), work, columns = plan.names, Work(self._address, plan.id), {}
        for k, type in enumerate(plan.labels):
            if type is not None:
                offsets = work.array(f"labels/{k}-offsets", np.dtype(np.int64)) if type == TEXT else None
                columns[dims[k]] = Column(type, work.array(f"labels/{k}", stored_type(type)), offsets)
        return Labels(tuple(dims), columns, values) if columns else None


def spilled(folder: str, plan: Plan, blocks: Iterable[list[Array]], progress: Progress | None) -> tuple[Plan, Blocks]:
    """A source of these blocks, which the work in the folder keeps; in the plan, whether they ascend throughout."""
    kept, entries = Blocks(folder, plan), 0
    in_order = True
    last: list[Array] = []  # the coordinates after which the next block has to begin
    work = open_work(folder, plan, kept, sent=False)
    for columns in blocks:
        if in_order:
            coords = [np.append(*x) for x in zip(last, columns, strict=False)] if last else columns[:-1]
            in_order = bool(follow([x[1:] for x in coords], [x[:-1] for x in coords]).all())
            last = [x[-1:] for x in coords]
        work.put(f"rows/{kept.count}", [list(pages_of(x)) for x in columns])
        kept.count += 1
        entries += len(columns[-1])
        if progress is not None:
            progress("rows", entries, entries)
    return replace(plan, sorted=in_order), kept
