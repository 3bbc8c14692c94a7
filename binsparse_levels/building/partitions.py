"""From the source to partitions: the steps sample, split, partition, table and again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from .. import kernels, parallel
from ..arrays import Array
from ..containers.objects.bucket import side_by_side
from ..containers.objects.stores import Range
from .entries import columns_in, keys_of
from .plan import Plan
from .work import Work

Piece: TypeAlias = tuple[Range, int]  # the bytes of a piece of an object, and their checksum

_SAMPLED = 64  # chunks
_KEYS = 4096  # of each
_LOOKED = 64, 4, 256  # runs in which a large partition is sampled, places in each, entries at each place


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
    rows, columns = work.source.sample(work.plan, sampled(work)[number], _KEYS)
    work.save(f"sample/{number}", keys=keys_of(columns, work.plan.dims), rows=rows)


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


def pieces_of(work: Work, keys: Sequence[str], number: int) -> list[Piece]:
    """Where the piece of this number is in each of these runs that has entries for it."""
    return [piece for piece in side_by_side(lambda key: work.piece(key, number), keys) if piece[0][2]]


def table(work: Work, number: int) -> None:
    plan, keys = work.plan, runs(work)
    partitions = len(work.load("split/0")["cuts"]) + 1
    sizes = np.zeros((len(keys), partitions), np.int64)
    for k, seal in enumerate(side_by_side(work.seal, keys)):
        sizes[k] = np.diff(seal.ends, prepend=0) // plan.row_bytes
    packs: list[tuple[int, int]] = []  # a partition, and one of the pieces that it is cut into, or -1
    tasks: list[tuple[int, int, int]] = []  # a partition, and a range of runs
    cuts = [np.empty((0, len(plan.dims) + 2), np.int64)]  # a partition, coordinates, 1 for a piece of entries there
    for b, size in enumerate(sizes.sum(axis=0).tolist()):
        points = _cut_again(work, b, size) if size > plan.rows else None
        if points is None:
            packs += [(b, -1)] if size else []
            continue
        packs += [(b, piece) for piece in range(len(points) + int(points[:, -1].sum()) + 1)]
        cuts.append(np.insert(points, 0, b, axis=1))
        ends, first = np.cumsum(sizes[:, b]), 0
        while first < len(keys):
            before = int(ends[first - 1]) if first else 0
            stop = max(int(np.searchsorted(ends, before + plan.rows, side="right")), first + 1)
            tasks.append((b, first, stop))
            first = stop
    made = {"packs": np.array(packs, np.int64).reshape(-1, 2), "tasks": np.array(tasks, np.int64).reshape(-1, 3)}
    work.save(f"table/{number}", cuts=np.concatenate(cuts), **made)


def runs(work: Work) -> list[str]:
    """The objects that the step `partition` leaves."""
    return [f"partition/{k}" for k in range(len(work.source))]


def _cut_again(work: Work, b: int, size: int) -> Array | None:
    """The coordinates at which to cut a partition that is too large, and whether the entries there are a piece of their
    own; None if the partition is one cell.
    """
    plan, random = work.plan, np.random.default_rng(b)
    count, spots, width = _LOOKED
    there = pieces_of(work, runs(work), b)
    wanted: list[Range] = []
    for at in np.sort(random.choice(len(there), min(count, len(there)), replace=False)).tolist():
        (key, begin, length), _ = there[at]
        rows = length // plan.row_bytes
        for start in random.integers(0, max(rows - width, 0) + 1, spots).tolist():
            column = begin
            for dtype in plan.column_types[:-1]:
                wanted.append((key, column + start * dtype.itemsize, min(width, rows) * dtype.itemsize))
                column += rows * dtype.itemsize
    found = [x.view(dtype) for x, dtype in zip(work.store.ranges(wanted), itertools.cycle(plan.column_types[:-1]))]
    columns = [np.concatenate(found[k :: len(plan.dims)]) for k in range(len(plan.dims))]
    if all((x == x[0]).all() for x in columns):
        return None
    pieces = _pieces(plan, size)
    places = np.lexsort(columns[::-1])[len(columns[0]) * np.arange(1, pieces) // pieces]
    points, counts = np.unique(np.stack([x[places] for x in columns], 1), axis=0, return_counts=True)
    return np.column_stack([points, counts > 1]).astype(np.int64)


@lru_cache(2)
def cut_table(work: Work) -> dict[str, Array]:
    """What the step `table` has left, read once in every process: of many partitions it is large."""
    return work.load("table/0")


def again(work: Work, number: int) -> None:
    found = cut_table(work)
    b, first, stop = found["tasks"][number].tolist()
    columns = gathered(work, pieces_of(work, runs(work)[first:stop], b))
    order = np.lexsort(columns[-2::-1])
    columns = [x[order] for x in columns]
    starts = [0]
    for *point, own in found["cuts"][found["cuts"][:, 0] == b, 1:].tolist():
        low, high = 0, len(order)
        for x, c in zip(columns, point, strict=False):
            low, high = (low + int(np.searchsorted(x[low:high], c, side)) for side in ("left", "right"))
        starts += [low, high] if own else [low]
    ranges = itertools.pairwise([*starts, len(order)])
    work.put(
        f"again/{number}", ([x[begin:end].view(np.uint8).data for x in columns if end > begin] for begin, end in ranges)
    )


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
