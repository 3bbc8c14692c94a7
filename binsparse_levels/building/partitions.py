"""From the source to partitions: the steps sample, split, partition, table and again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import google_crc32c
import numpy as np

from .. import kernels, parallel
from ..arrays import Array
from ..containers.objects.bucket import side_by_side
from ..containers.objects.stores import Range
from .entries import columns_in, keys_of, numbers_among
from .plan import Plan, check_joined
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


def _places_of(work: Work, key: str, partitions: int) -> Array:
    """Where the pieces of a run begin and end, in entries, and their checksums: a row for each of the three."""
    ends, sums = work.seal(key)
    rows, rest = np.divmod(ends, work.plan.row_bytes)
    if len(ends) != partitions or rest.any():
        raise work.damaged(key)
    return np.stack([np.append(0, rows[:-1]), rows, sums])


def table(work: Work, number: int) -> None:
    plan, runs = work.plan, len(work.source)
    partitions = len(work.load("split/0")["cuts"]) + 1
    index = np.empty((partitions, 3, runs), np.int64)
    found = side_by_side(lambda k: _places_of(work, f"partition/{k}", partitions), range(runs))
    for k, places in enumerate(found):
        index[:, :, k] = places.T
    work.put("index", [x.data for x in index])
    sizes = (index[:, 1] - index[:, 0]).sum(axis=1)
    if plan.duplicates == "error":  # else they may become fewer
        check_joined(plan, int(sizes.sum()))
    packs: list[tuple[int, int]] = []  # a partition, and one of its cuts or -1
    tasks: list[tuple[int, int, int]] = []  # a partition, and a range of runs
    cuts = [np.empty((0, len(plan.dims) + 1), np.int64)]
    cut_of: list[int] = []  # the partitions that are cut
    for b in range(partitions):
        points = _cut_again(work, index, b, int(sizes[b])) if sizes[b] > plan.rows else None
        if points is None:
            packs += [(b, -1)] if sizes[b] else []
            continue
        packs += [(b, piece) for piece in range(_pieces_at(points))]
        cut_of.append(b)
        cuts.append(points)
        ends = np.cumsum(index[b, 1] - index[b, 0])
        first = 0
        while first < runs:
            before = int(ends[first - 1]) if first else 0
            stop = max(int(np.searchsorted(ends, before + plan.rows, side="right")), first + 1)
            tasks.append((b, first, stop))
            first = stop
    made = {
        "checksums": np.array([google_crc32c.value(x.view(np.uint8).reshape(-1)) for x in index], np.int64),
        "packs": np.array(packs, np.int64).reshape(-1, 2),
        "tasks": np.array(tasks, np.int64).reshape(-1, 3),
        "cut_of": np.array(cut_of, np.int64),
        "cuts": np.concatenate(cuts),
        "cut_ends": np.cumsum(list(map(len, cuts)), dtype=np.int64),
    }
    work.save(f"table/{number}", **made)


def _cut_again(work: Work, index: Array, b: int, size: int) -> Array | None:
    """The coordinates at which to cut a partition that is too large, and whether the entries there are a piece of their
    own; None if the partition is one cell.
    """
    plan, random = work.plan, np.random.default_rng(b)
    runs, spots, width = _LOOKED
    there = np.flatnonzero(index[b, 1] > index[b, 0])
    there = np.sort(random.choice(there, min(runs, len(there)), replace=False))
    wanted: list[Range] = []
    for k in there.tolist():
        begin, end = index[b, :2, k].tolist()
        for start in random.integers(0, max(end - begin - width, 0) + 1, spots).tolist():
            at = begin * plan.row_bytes
            for dtype in plan.column_types[:-1]:
                item = dtype.itemsize
                wanted.append((f"partition/{k}", at + start * item, min(width, end - begin) * item))
                at += (end - begin) * item
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


def cuts_of(table: Mapping[str, Array], b: int) -> tuple[Array, int]:
    """The cuts of a partition, as in `_cut_again`, and the number of pieces that they make."""
    which = int(np.flatnonzero(table["cut_of"] == b)[0])
    cuts = table["cuts"][table["cut_ends"][which] : table["cut_ends"][which + 1]]
    return cuts, _pieces_at(cuts)


def _pieces_at(cuts: Array) -> int:
    """The number of pieces that cuts make: the entries at some of them are a piece of their own."""
    return len(cuts) + int(cuts[:, -1].sum()) + 1


def bounds(work: Work, table: Mapping[str, Array], b: int) -> Array:
    """Where a partition begins and ends in each run, and the checksums of these pieces: a row for each of the three."""
    size = 24 * len(work.source)
    (found,) = work.ranges([(("index", b * size, size), int(table["checksums"][b]))])
    return found.view(np.int64).reshape(3, -1)


def runs_of(work: Work, names: Sequence[str], count: int, piece: int) -> tuple[Sequence[str], Array, Array, Array]:
    """The runs of a partition that is cut again, and where a piece of `count` lies in each, as for `pieces_of`."""
    found = np.array([_places_of(work, name, count)[:, piece] for name in names])
    return names, *found.T


def again(work: Work, number: int) -> None:
    plan, found = work.plan, cut_table(work)
    b, first, stop = found["tasks"][number].tolist()
    names = [f"partition/{k}" for k in range(first, stop)]
    columns = gathered(work, pieces_of(plan, names, *bounds(work, found, b)[:, first:stop]))
    numbers, cuts = numbers_among(columns[:-1], plan.dims, cuts_of(found, b)[0])
    work.put(f"again/{number}", _scattered(columns, numbers, cuts))


def pieces_of(plan: Plan, runs: Sequence[str], begin: Array, end: Array, sums: Array) -> list[Piece]:
    """The bytes of entries begin … end - 1 of each of these runs that has any, with their checksums."""
    row = plan.row_bytes
    found = zip(runs, begin.tolist(), end.tolist(), sums.tolist(), strict=True)
    return [((key, a * row, (z - a) * row), known) for key, a, z, known in found if z > a]


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
