"""Pack each partition into trees (the step `pack`), and join the arrays of all trees."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import Array, LazyArray, Pieces, in_pieces, repeat_one
from ..engine.emission import narrowed, wider
from ..engine.joining import Parts, joined
from ..engine.packing import Entries, RepeatedError, build, pack_entries, repeated
from ..engine.tree import Tree, index_dtype
from ..errors import ArrayError, Problem
from ..levels import Level, listing, places
from ..tensors.backing import TreeBacking
from ..tensors.encoding import encode_pieces
from ..tensors.tensor import Tensor, tensor_of
from ..tensors.views import Mapped
from ..thresholds import THRESHOLDS
from .partitions import between, gathered, groups_of, points_in
from .plan import Plan, check_joined
from .sources import columns_of, concatenated, follow
from .work import Work, pages_of


def count(work: Work) -> int:
    """The number of partitions."""
    return len(work.source) if work.plan.sorted else len(work.load("split/0")["cuts"]) + 1


def pack(work: Work, number: int) -> None:
    """Write an object: the arrays of the trees of a partition. Its last piece has their heads (see `join_heads`)."""

    def pages() -> Iterator[Any]:
        plan, heads, begin = work.plan, [], 0
        for columns in _columns(work, number):
            for piece in _pieces(plan, columns):
                head, arrays = _tree_of(plan, piece)
                heads.append([number, begin, *head])
                for x in arrays:
                    yield from pages_of(x)
                    begin += x.nbytes
        yield np.array(heads, np.int64).data

    work.put(f"pack/{number}", pages())


def _columns(work: Work, number: int) -> Iterator[list[Array]]:
    """Yield the entries of a partition, in parts if it is too large. Each part reads the whole partition again."""
    if work.plan.sorted:
        yield columns_of(work.source, work.plan, number)
        return
    groups = groups_of(work, number)
    for begin, end in itertools.pairwise([None, *points_in(work, number, groups), None]):
        yield _within_memory(work, number, groups, begin, end)


def _within_memory(
    work: Work, number: int, groups: Sequence[Sequence[str]], begin: Array | None, end: Array | None
) -> list[Array]:
    """The columns of the entries between two points of a partition. If they exceed the memory, repeated entries are
    merged group by group, in the order of the source.
    """
    plan = work.plan
    most = plan.rows if len(groups) == 1 else plan.rows // 2
    columns = [np.empty(0, dtype) for dtype in plan.column_types]
    for group in groups:
        more = between(gathered(work, number, group), begin, end)
        columns = concatenated([columns, more]) if len(columns[-1]) else more
        if len(columns[-1]) > most:
            columns = _merged(plan, columns)
    return columns


def _packed(plan: Plan, levels: tuple[Level, ...], columns: Sequence[Array]) -> Tree:
    """A tree of entries in any order."""
    entries = Entries(plan.dims, tuple(columns[:-1]), columns[-1], False, plan.parsed.order)
    try:
        return pack_entries(levels, entries, plan.pad, plan.duplicates, plan.limits)
    except RepeatedError as error:
        if plan.through is None:
            raise
        raise repeated([int(x[0]) for x in plan.through.backward([[x] for x in error.coords])]) from None


def _merged(plan: Plan, columns: list[Array]) -> list[Array]:
    """The columns of entries, sorted, with repeated entries merged. Sums stay in the type in which they are added."""
    wide = wider(columns[-1].dtype) if plan.duplicates == "sum" else None
    columns = columns if wide is None else [*columns[:-1], columns[-1].astype(wide)]
    tree = _packed(plan, listing(len(plan.dims)), columns)
    found = zip(tree.arrays.values(), plan.column_types[:-1], strict=True)
    return [*[x.astype(dtype, copy=False) for x, dtype in found], tree.values]


def _pieces(plan: Plan, columns: list[Array]) -> Iterator[list[Array]]:
    """The sorted entries in pieces whose trees have a bounded number of positions, empty ones included."""
    if len(columns[-1]):
        columns = _merged(plan, columns)
        marks = _positions(plan, columns)
        cuts = np.flatnonzero(np.diff((marks - marks[0]) // plan.positions)) + 1
        for begin, end in itertools.pairwise([0, *cuts.tolist(), len(marks)]):
            yield [x[begin:end] for x in columns]


def _positions(plan: Plan, columns: Sequence[Array]) -> Array:
    """The approximate number of positions before each sorted entry, in all levels that can have empty positions."""
    count = len(columns[-1])
    numbers, total = np.zeros(count), np.zeros(count)
    for place in places(plan.part_levels, plan.dims):
        stop = place.depth + place.level.rank
        if place.pointer is not None:
            total += numbers
        if place.level.children(place.dims, 1, 0):  # has positions without entries
            for x, size in zip(columns[place.depth : stop], place.dims, strict=True):
                numbers = numbers * size + x
        else:
            new = np.zeros(count, bool)
            for x in columns[:stop]:
                new[1:] |= x[1:] != x[:-1]
            numbers = np.cumsum(new, dtype=float)
    return np.asarray(total + numbers)


def whole(plan: Plan, columns: Sequence[Array]) -> Tensor:
    """The tensor of these columns. Precondition: it fits into memory."""
    tree = _packed(plan, plan.parsed.levels, columns)
    if plan.one is not None:
        tree = Tree(tree.levels, tree.dims, tree.arrays, repeat_one(plan.one, len(tree.values)), True)
    stored = TreeBacking(plan.parsed, tree, plan.limits, plan.structure)
    return tensor_of(stored if plan.through is None else Mapped(stored, plan.through), plan.metadata)


def _tree_of(plan: Plan, columns: list[Array]) -> tuple[list[int], list[Array]]:
    """The head and the arrays of the tree of sorted entries. Leading dimensions are cropped to their coordinates."""
    dims, origin = list(plan.dims), [0] * len(plan.dims)
    first, last = zip(*[(int(x[0]), int(x[-1])) for x in columns[:-1]], strict=True)
    for k, x in enumerate(columns[:-1]):
        origin[k], dims[k] = first[k], last[k] - first[k] + 1
        columns[k] = x - np.asarray(first[k], x.dtype)
        if first[k] != last[k]:
            break
    entries = Entries(tuple(dims), tuple(columns[:-1]), columns[-1], False, plan.parsed.order, len(dims), True)
    tree = build(plan.part_levels, entries, plan.pad, plan.limits)
    values = narrowed(tree.values, plan.column_types[-1])
    found = [*(tree.arrays[name] for name in plan.array_names[:-1]), values]
    arrays = [x.astype(t, copy=False) for x, t in zip(found, plan.array_types, strict=True)]
    return [*dims, *origin, *first, *last, *map(len, arrays)], arrays


def join_heads(work: Work) -> Array:
    """The heads of all trees, a row for each: the number of its step, the offset of its arrays, then by dimension the
    sizes, the origin, the first and the last coordinates, then by array the lengths.

    Raises ArrayError for trees that are not in order, ContainerError for a damaged head.
    """
    ndim, width = len(work.plan.dims), 2 + 4 * len(work.plan.dims) + len(work.plan.array_names)
    found = [x.view(np.int64) for x in work.last_pieces([f"pack/{k}" for k in sorted(work.done("pack"))])]
    table = np.concatenate([np.empty(0, np.int64), *found]).reshape(-1, width)
    first, last = (table[:, 2 + k * ndim :][:, :ndim] for k in (2, 3))
    later = follow(list(first[1:].T), list(last[:-1].T))
    if not later.all():
        at = tuple(first[1:][np.argmin(later)].tolist())
        raise ArrayError(Problem("coordinates", f"{at} is given more than once, or out of order; pack the entries"))
    return table


def encoded(work: Work, heads: Array) -> tuple[dict[str, Any], dict[str, Pieces]]:
    """The header of the whole tensor, and its encoded arrays in pieces."""
    plan = work.plan
    pieces = {name: in_pieces(array, THRESHOLDS.piece_items) for name, array in joint(work, heads).items()}
    metadata = replace(plan.metadata, labels=work.source.labels(plan))
    rest: dict[str, Any] = {"structure": plan.structure, "map": plan.through, "iso_value": plan.one}
    return encode_pieces(pieces, plan.parsed, plan.stored_shape, metadata, packed=True, **rest)


def lazily(work: Work, heads: Array) -> Tensor:
    """The whole tensor, whose arrays are read from the trees on demand."""
    plan = work.plan
    arrays: dict[str, Any] = joint(work, heads)
    values = arrays.pop("values") if plan.one is None else repeat_one(plan.one, len(arrays.pop("values")))
    tree = Tree(plan.parsed.levels, plan.dims, arrays, values, plan.one is not None, lazy=True)
    stored = TreeBacking(plan.parsed, tree, plan.limits, plan.structure)
    return tensor_of(stored, replace(plan.metadata, labels=work.source.labels(plan)))


def joint(work: Work, heads: Array) -> dict[str, LazyArray]:
    """The arrays of the whole tree, read from the trees on demand."""
    plan, ndim, names, types = work.plan, len(work.plan.dims), work.plan.array_names, work.plan.array_types
    sizes, origin, first, last = (heads[:, 2 + k * ndim :][:, :ndim] for k in range(4))
    lengths = heads[:, 2 + 4 * ndim :]
    bytes_of = lengths * [dtype.itemsize for dtype in types]
    begins = np.cumsum(bytes_of, axis=1) - bytes_of + heads[:, 1:2]

    def read(k: int, name: str, start: int, stop: int) -> Array:
        which = names.index(name)
        size = types[which].itemsize
        a, z = (int(begins[k, which]) + x * size for x in (start, max(start, stop)))
        return work.slice(f"pack/{heads[k, 0]}", a, z).view(types[which])

    parts = Parts(plan.part_levels, sizes, origin, first, last, dict(zip(names, lengths.T, strict=True)), read)
    entries = int(lengths[:, -1].sum())
    check_joined(plan, entries)
    dtype = index_dtype(plan.dims, entries)
    return joined(plan.parsed.levels, plan.dims, parts, plan.pad, dtype, types[-1], plan.limits)
