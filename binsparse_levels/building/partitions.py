"""From the source to partitions: the steps sample, split and partition."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from .. import kernels, parallel
from ..arrays import Array
from ..containers.objects.bucket import side_by_side
from ..containers.objects.stores import Range
from .entries import columns_in, follow, grouped, keys_of
from .plan import Plan
from .work import Work

Piece: TypeAlias = tuple[Range, int]  # the bytes of a piece of an object, and their checksum

_SAMPLED = 64  # chunks
_KEYS = 4096  # of each
_LOOKED = 2**16  # entries of a partition that is too large


def sampled(work: Work) -> list[int]:
    """The numbers of the chunks that are sampled."""
    chunks = len(work.source)
    return np.unique(np.linspace(0, chunks - 1, min(chunks, _SAMPLED)).astype(np.int64)).tolist() if chunks else []


def _cuts(keys: Array, weights: Array, pieces: int) -> Array:
    """Keys at which pieces of about equal weight begin. A key that fills a piece has a piece of its own."""
    if not len(keys) or pieces < 2:
        return np.empty(0, np.int64)
    order = np.argsort(keys, kind="stable")
    keys, ends = keys[order], np.cumsum(weights[order])
    at = np.searchsorted(ends, ends[-1] * np.arange(1, pieces) / pieces)
    wanted = keys[np.minimum(at, len(keys) - 1)]
    heavy = wanted[1:][wanted[1:] == wanted[:-1]]
    return np.unique(np.concatenate([wanted, heavy + 1]))


def sample(work: Work, number: int) -> None:
    *coords, values = work.source.columns(work.plan, sampled(work)[number])
    at = np.random.default_rng(number).choice(len(values), min(_KEYS, len(values)), replace=False)
    work.save(f"sample/{number}", keys=keys_of([x[at] for x in coords], work.plan.dims), rows=len(values))


def split(work: Work, number: int) -> None:
    plan, samples = work.plan, [work.load(f"sample/{k}") for k in range(len(sampled(work)))]
    total = sum(int(x["rows"]) for x in samples) * len(work.source) // max(len(samples), 1)
    keys = np.concatenate([np.empty(0, np.int64), *(x["keys"] for x in samples)])
    weights = [np.full(len(x["keys"]), int(x["rows"]) / max(len(x["keys"]), 1)) for x in samples]
    cuts = _cuts(keys, np.concatenate([np.empty(0), *weights]), _pieces(plan, total))
    work.save(f"split/{number}", cuts=cuts)


def _pieces(plan: Plan, rows: int) -> int:
    """How many partitions of so many entries: one that is twice as large still fits."""
    return -(-2 * rows // plan.rows) if rows > plan.rows else 1


def partition(work: Work, number: int) -> None:
    columns = work.source.columns(work.plan, number)
    keys = keys_of(columns[:-1], work.plan.dims)
    work.put(f"partition/{number}", _scattered(columns, keys, work.load("split/0")["cuts"]))


def _scattered(columns: Sequence[Array], keys: Array, cuts: Array) -> Iterator[list[Any]]:
    """A run: a piece for each partition, which has its columns concatenated."""
    numbers = np.empty(len(keys), np.uint16 if len(cuts) < 2**16 else np.uint32)
    counts = np.zeros(len(cuts) + 1, np.uint64)
    kernels.sorting.number_partitions(kernels.readable(keys), kernels.readable(cuts), numbers, counts)
    del keys
    ends = np.cumsum(counts, dtype=np.uint64)
    shared = kernels.readable(numbers)

    def moved(x: Array) -> Array:
        if x.dtype.itemsize not in (1, 2, 4, 8):
            return x[np.argsort(numbers, kind="stable")]
        out, word = np.empty_like(x), f"u{x.dtype.itemsize}"
        kernels.sorting.scatter_to_partitions(shared, kernels.readable(x).view(word), ends - counts, out.view(word))
        return out

    scattered = parallel.each(moved, columns)
    for begin, end in itertools.pairwise([0, *ends.tolist()]):
        yield [x[begin:end].view(np.uint8).data for x in scattered if end > begin]


def groups_of(work: Work, number: int) -> list[list[Piece]]:
    """Where the entries of a partition are: its pieces of the runs, in one group where it fits into memory, else in
    groups of half as much.
    """
    runs, fits = [f"partition/{k}" for k in range(len(work.source))], work.plan.rows * work.plan.row_bytes
    wanted = [piece for piece in side_by_side(lambda key: work.piece(key, number), runs) if piece[0][2]]
    most = fits if sum(place[2] for place, _ in wanted) <= fits else fits // 2
    return grouped(wanted, lambda piece: piece[0][2], most) or [[]]


def points_in(work: Work, groups: Sequence[Sequence[Piece]]) -> Array:
    """Points that cut a partition into parts that fit, from a sample; none where it fits, or is one cell."""
    plan = work.plan
    total = sum(place[2] for group in groups for place, _ in group) // plan.row_bytes
    pieces, random, found = _pieces(plan, total), np.random.default_rng(total), []
    if pieces > 1:
        for group in groups:
            *coords, values = gathered(work, group)
            at = random.integers(0, len(values), len(values) * _LOOKED // total + 1)
            found.append(np.stack([x[at] for x in coords], 1))
    points = np.concatenate([np.empty((0, len(plan.dims)), np.int64), *found])
    if (points == points[:1]).all():
        return points[:0]
    order = np.lexsort(points.T[::-1])
    points, counts = np.unique(points[order[len(order) * np.arange(1, pieces) // pieces]], axis=0, return_counts=True)
    heavy = points[counts > 1]  # a cell that fills a part has a part of its own
    heavy[:, -1] += 1
    return np.unique(np.concatenate([points, heavy]), axis=0)


def between(columns: list[Array], begin: Array | None, end: Array | None) -> list[Array]:
    """The entries from one point on, and before another one; None is the beginning or the end of the partition."""
    for point, wanted in ((begin, False), (end, True)):
        if point is not None:
            coords = columns[:-1]
            is_before = follow([np.broadcast_to(p, x.shape) for p, x in zip(point, coords, strict=True)], coords)
            columns = [x[is_before == wanted] for x in columns]
    return columns


def gathered(work: Work, wanted: Sequence[Piece]) -> list[Array]:
    """The columns of pieces of runs. A piece has its columns concatenated."""
    plan, row = work.plan, work.plan.row_bytes
    made = [np.empty(sum(place[2] for place, _ in wanted) // row, dtype) for dtype in plan.column_types]
    at = 0
    for block in work.ranges(wanted):
        count = len(block) // row
        for x, column in zip(made, columns_in(plan, block), strict=True):
            x[at : at + count] = column
        at += count
    for x, size in zip(made, plan.dims, strict=False):  # before a kernel uses them
        if len(x) and (x.min() < 0 or x.max() >= size):
            raise work.damaged(wanted[0][0][0])
    return made
