"""From partitions to trees: the step pack, and the arrays that all trees make together."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Array, LazyArray
from ..engine.joining import Parts, joined
from ..engine.packing import Entries, RepeatedError, pack_entries, repeated
from ..engine.tree import Tree, index_dtype
from ..errors import ArrayError, Problem
from ..formats.format import coordinates
from ..levels import Level, places
from .partitions import bounds, columns_of, cut_table, cuts_of, gathered, ranges_of, row_bytes, starts_of
from .planning import Plan, Work
from .store import Range


def pack(work: Work, number: int) -> None:
    plan = work.plan
    if plan.sorted:
        pack_columns(work, f"pack/{number}", columns_of(plan, work.source.read(number)))
        return
    found = cut_table(work)
    b, piece = found["packs"][number].tolist()
    if piece < 0:
        begin, end = bounds(work, found, b)
        names = [f"partition/{k}" for k in range(len(begin))]
    else:
        tasks = np.flatnonzero(found["tasks"][:, 0] == b)
        _, pieces = cuts_of(found, b)
        names = [f"again/{k}" for k in tasks]
        begin, end = np.array([starts_of(work, name, pieces)[piece : piece + 2] for name in names]).T
    pack_columns(work, f"pack/{number}", _within_memory(work, ranges_of(plan, names, begin, end)))


def _within_memory(work: Work, wanted: Sequence[Range]) -> list[Array]:
    """The columns of these ranges of runs. Where they are more than fit, repeated entries are merged as they come, in
    the order of the source.
    """
    plan, columns = work.plan, [np.empty(0, dtype) for dtype in work.plan.column_types]
    size, fits = sum(count for *_, count in wanted), plan.rows * row_bytes(plan)
    most, room = fits if size <= fits else fits // 2, 0
    groups: list[list[Range]] = [[]]
    for one in wanted:
        if groups[-1] and one[2] > room:
            groups.append([])
        room = most if not groups[-1] else room
        groups[-1].append(one)
        room -= one[2]
    for group in groups:
        more = gathered(work, group)
        columns = more if group is groups[0] else [np.concatenate(x) for x in zip(columns, more, strict=True)]
        if len(groups) > 1:
            listed = coordinates(len(plan.dims)).levels
            tree = packed(plan, listed, columns, plan.dims, [0] * len(plan.dims))
            found = [tree.arrays[spec.name] for place in places(listed, plan.dims) for spec in place.arrays.values()]
            columns = [x.astype(t, copy=False) for x, t in zip([*found, tree.values], plan.column_types, strict=True)]
    return columns


def packed(plan: Plan, levels: tuple[Level, ...], columns: list[Array], dims: Sequence[int], origin: Any) -> Tree:
    """A tree of entries whose coordinates count from `origin`."""
    order = plan.parsed.order
    entries = Entries(tuple(dims), tuple(columns[:-1]), columns[-1], False, order)
    try:
        return pack_entries(levels, entries, plan.pad, plan.duplicates, plan.bounds)
    except RepeatedError as error:
        coords = [error.coords[k] + origin[order.index(k)] for k in range(len(order))]
        if plan.through is not None:
            coords = [int(x[0]) for x in plan.through.backward([[x] for x in coords])]
        raise repeated(coords) from None


def pack_columns(work: Work, key: str, columns: list[Array]) -> None:
    """Pack these entries, and leave the tree at `key`: its head, as in `join_heads`, and the arrays behind each other.

    Only leading dimensions are cropped, to the range of the coordinates.
    """
    plan = work.plan
    if not len(columns[-1]):
        work.store.put(key, [_sealed(np.zeros(_head_length(plan) - 1, np.int64)).data])
        return
    dims, origin = list(plan.dims), [0] * len(plan.dims)
    for k, x in enumerate(columns[:-1]):
        low, high = int(x.min()), int(x.max())
        origin[k], dims[k] = low, high - low + 1
        if low:
            columns[k] = x - np.asarray(low, x.dtype)
        if low != high:
            break
    ends = _ends(columns[:-1], origin)
    tree = packed(plan, plan.part_levels, columns, dims, origin)
    arrays = [*(tree.arrays[name] for name in plan.names[:-1]), tree.values]
    item = arrays[0].dtype.itemsize if tree.arrays else 8
    head = _sealed(np.array([len(columns[-1]), item, *dims, *origin, *ends[0], *ends[1], *map(len, arrays)], np.int64))
    work.store.put(key, [head.data, *(np.ascontiguousarray(x).view(np.uint8).data for x in arrays)])


def _ends(columns: Sequence[Array], origin: Sequence[int]) -> list[list[int]]:
    """The least and the greatest coordinates, in lexicographic order."""
    found = []
    for extreme in (np.min, np.max):
        at: Any = slice(None)
        coords = []
        for x, o in zip(columns, origin, strict=True):
            here = x[at]
            value = extreme(here)
            (same,) = np.nonzero(here == value)
            at = same if isinstance(at, slice) else at[same]
            coords.append(int(value) + o)
        found.append(coords)
    return found


def _sealed(head: Array) -> Array:
    """A head with its checksum behind it."""
    return np.append(head, zlib.crc32(head.data))


def _head_length(plan: Plan) -> int:
    return 3 + 4 * len(plan.dims) + len(plan.names)


def join_heads(work: Work, stage: str = "pack", numbers: Sequence[int] | None = None) -> Array:
    """The heads of the trees of a stage that have entries, a row for each: its number, how many entries it was made of,
    the bytes of an index, then by dimension the sizes, the origin, the first and the last coordinates, then the lengths
    of the arrays, and a checksum.

    Raises ArrayError for trees that do not follow each other, ContainerError for a head that is damaged.
    """
    size, ndim = 8 * _head_length(work.plan), len(work.plan.dims)
    numbers = sorted(work.done(stage)) if numbers is None else numbers
    heads = [x.view(np.int64) for x in work.store.ranges([(f"{stage}/{k}", 0, size) for k in numbers])]
    table = np.array([[k, *head] for k, head in zip(numbers, heads, strict=True)], np.int64)
    table = table.reshape(len(numbers), 1 + _head_length(work.plan))
    for k, head in zip(numbers, heads, strict=True):
        if zlib.crc32(head[:-1].data) != head[-1]:
            raise work.damaged(f"{stage}/{k}")
    table = table[table[:, 1] > 0]
    first, last = (table[:, 3 + k * ndim :][:, :ndim] for k in (2, 3))
    late = behind(first[1:], last[:-1])
    if late.any():
        at = tuple(first[1:][np.argmax(late)].tolist())
        raise ArrayError(Problem("coordinates", f"{at} is given more than once, or out of order; pack the entries"))
    return table


def behind(first: Array, last: Array, *, strictly: bool = False) -> Array:
    """Whether each row of `first` comes before that of `last` in lexicographic order, or (not `strictly`) equals it."""
    late = np.full(len(first), not strictly)
    for k in range(first.shape[1])[::-1]:
        late = (first[:, k] < last[:, k]) | ((first[:, k] == last[:, k]) & late)
    return late


def joint(
    work: Work, heads: Array, stage: str = "pack", levels: tuple[Level, ...] | None = None
) -> dict[str, LazyArray]:
    """The arrays of the whole tree, by default of the plan's levels, read from the trees where they are sliced."""
    plan, ndim, names = work.plan, len(work.plan.dims), work.plan.names
    tables = [heads[:, 3 + k * ndim :][:, :ndim] for k in range(4)]
    lengths = heads[:, 3 + 4 * ndim : -1]
    values = np.dtype(plan.dtype)
    items = np.repeat(heads[:, 2:3], len(names), axis=1)
    items[:, -1] = values.itemsize
    begins = np.cumsum(lengths * items, axis=1) - lengths * items + 8 * _head_length(plan)

    def read(k: int, name: str, start: int, stop: int) -> Array:
        which = names.index(name)
        item, begin = int(items[k, which]), int(begins[k, which])
        (found,) = work.store.ranges([(f"{stage}/{heads[k, 0]}", begin + start * item, (stop - start) * item)])
        return found.view(values if name == "values" else f"i{item}")

    sizes, origin, first, last = tables
    by_name = {name: lengths[:, k] for k, name in enumerate(names)}
    parts = Parts(plan.part_levels, sizes, origin, first, last, by_name, read)
    total = int(lengths[:, -1].sum())
    wanted = plan.parsed.levels if levels is None else levels
    return joined(wanted, plan.dims, parts, plan.pad, index_dtype(plan.dims, total), values, plan.bounds)
