"""Partition the entries of a source: the steps `sample`, `split` and `partition`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from .. import parallel
from ..arrays import Array
from ..containers.objects.bucket import map_concurrently
from ..thresholds import THRESHOLDS
from .plan import Plan
from .sources import columns_in, columns_of, follow, grouped, keys_of
from .work import Work

_SAMPLED_CHUNKS = 64
_KEYS_PER_CHUNK = 4096


def sampled(work: Work) -> list[int]:
    """The numbers of the chunks that are sampled."""
    chunks = len(work.source)
    found: list[int] = np.unique(np.linspace(0, chunks - 1, min(chunks, _SAMPLED_CHUNKS)).astype(np.int64)).tolist()
    return found


def _cuts(points: Array, weights: Array, pieces: int) -> Array:
    """Points at which pieces of about equal weight begin: rows of keys, or of the coordinates of a cell.

    A point that fills a piece gets a separate piece.
    """
    if pieces < 2 or (points == points[:1]).all():
        return points[:0]
    order = np.lexsort(points.T[::-1])
    ends = np.cumsum(weights[order])
    at = order[np.searchsorted(ends[:-1], ends[-1] * np.arange(1, pieces) / pieces)]
    cuts, counts = np.unique(points[at], axis=0, return_counts=True)
    heavy = cuts[counts > 1]
    heavy[:, -1] += 1
    return np.unique(np.concatenate([cuts, heavy]), axis=0)


def sample(work: Work, number: int) -> None:
    plan = work.plan
    *coords, values = columns_of(work.source, plan, sampled(work)[number])
    at = np.random.default_rng(number).choice(len(values), min(_KEYS_PER_CHUNK, len(values)), replace=False)
    work.save(f"sample/{number}", keys=keys_of([x[at] for x in coords], plan.dims), rows=len(values))


def split(work: Work, number: int) -> None:
    plan, samples = work.plan, [work.load(f"sample/{k}") for k in range(len(sampled(work)))]
    total = sum(int(x["rows"]) for x in samples) * len(work.source) // max(len(samples), 1)
    keys = np.concatenate([np.empty(0, np.int64), *(x["keys"] for x in samples)])
    weights = [np.full(len(x["keys"]), int(x["rows"]) / max(len(x["keys"]), 1)) for x in samples]
    cuts = _cuts(keys[:, np.newaxis], np.concatenate([np.empty(0), *weights]), _pieces(plan, total))
    work.save(f"split/{number}", cuts=cuts[:, 0])


def _pieces(plan: Plan, rows: int) -> int:
    """The number of partitions of these entries, such that one of twice the mean size still fits."""
    return -(-2 * rows // plan.rows) if rows > plan.rows else 1


def partition(work: Work, number: int) -> None:
    plan = work.plan
    columns = columns_of(work.source, plan, number)
    keys, cuts = keys_of(columns[:-1], plan.dims), work.load("split/0")["cuts"]
    numbers = np.searchsorted(cuts, keys, side="right").astype(np.min_scalar_type(len(cuts)))
    del keys
    ends = np.cumsum(np.bincount(numbers, minlength=len(cuts) + 1)).tolist()
    order = np.argsort(numbers, kind="stable")  # a radix sort if there are fewer than 2**16 partitions
    ordered = parallel.each(lambda x: x[order], columns)
    pieces = ([x[begin:end].view(np.uint8).data for x in ordered] for begin, end in itertools.pairwise([0, *ends]))
    work.put(f"partition/{number}", pieces)


def groups_of(work: Work, number: int) -> list[list[str]]:
    """The objects with entries of a partition: one group if they fit into memory, else groups of half that size."""
    plan, keys = work.plan, [f"partition/{k}" for k in range(len(work.source))]
    sizes = dict(zip(keys, map_concurrently(lambda key: work.size(key, number), keys), strict=True))
    fits = plan.rows * plan.row_bytes
    most = fits if sum(sizes.values()) <= fits else fits // 2
    return grouped([key for key in keys if sizes[key]], sizes.__getitem__, most) or [[]]


def points_in(work: Work, number: int, groups: Sequence[Sequence[str]]) -> Array:
    """The coordinates of sampled cells at which to cut a partition into parts that fit into memory, if it does not."""
    plan = work.plan
    total = sum(work.size(key, number) for group in groups for key in group) // plan.row_bytes
    pieces, random, found = _pieces(plan, total), np.random.default_rng(total), []
    if pieces > 1:
        for group in groups:
            *coords, values = gathered(work, number, group)
            at = random.integers(0, len(values), len(values) * THRESHOLDS.sampled_entries // total + 1)
            found.append(np.stack([x[at] for x in coords], 1))
    points = np.concatenate([np.empty((0, len(plan.dims)), np.int64), *found])
    return _cuts(points, np.ones(len(points)), pieces)


def between(columns: list[Array], begin: Array | None, end: Array | None) -> list[Array]:
    """The entries at and after the cell `begin`, and before the cell `end`. None does not limit the entries."""
    for point, kept in ((begin, False), (end, True)):
        if point is not None:
            coords = columns[:-1]
            is_before = follow([np.broadcast_to(p, x.shape) for p, x in zip(point, coords, strict=True)], coords)
            columns = [x[is_before == kept] for x in columns]
    return columns


def gathered(work: Work, number: int, keys: Sequence[str]) -> list[Array]:
    """The columns of the entries of a partition in some objects. A piece has its columns concatenated."""
    plan, row = work.plan, work.plan.row_bytes
    made = [np.empty(sum(work.size(key, number) for key in keys) // row, dtype) for dtype in plan.column_types]
    at = 0
    for block in work.pieces([(key, number, number + 1) for key in keys]):
        count = len(block) // row
        for x, column in zip(made, columns_in(plan.column_types, block), strict=True):
            x[at : at + count] = column
        at += count
    return made
