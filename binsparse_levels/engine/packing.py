"""Pack entries into trees, unpack trees into entries, and convert trees to other levels.

`Level.build` makes the arrays of one level after the other from sorted entries. For a chain of dense and sparse levels,
the fused pass (`engine.emission`) makes all arrays at once, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from typing import Any

import numpy as np

from .. import kernels
from ..arrays import repeat_one
from ..errors import ArrayError, FormatError, Problem
from ..formats.shapes import range_problems
from ..levels import Level, Place, filled, full, listing, places
from ..levels.base import CONTINUED, INTEGERS, SPARSE, ArraySpec
from ..levels.positions import (
    Array,
    Positions,
    Window,
    as_array,
    cells,
    count_owners,
    firsts,
    items_at,
    narrowest,
    repeat_to,
    signed,
    words,
)
from ..limits import INT64_MAX, Limits
from . import emission, sorting
from .parts import listed
from .sorting import Entries as Entries
from .tree import Duplicates, Tree, check_dense, index_dtype, same, shared_dtype

_NUMBERS = np.dtype(np.int32), np.dtype(np.int64)
_MAX_RAVEL_RANK = 64  # np.ravel_multi_index accepts fewer dimensions


class RepeatedError(ArrayError):
    """Several entries have the same coordinates, and `duplicates` is "error". coords: the coordinates of the entry."""

    coords: tuple[int, ...]


# Entries → tree


def pack_entries(levels: tuple[Level, ...], entries: Entries, pad: Any, duplicates: Duplicates, limits: Limits) -> Tree:
    """A tree of entries in any order. pad: the value of positions that a level stores without an entry.

    Raises ArrayError for coordinates out of range or repeated, FormatError for entries that a kind cannot store,
    LimitError, OptionError for a sum that the type of the values cannot hold.
    """
    if entries.iso and duplicates == "last":
        duplicates = "first"  # the same for equal values
    if entries.iso and duplicates == "sum":
        try:
            return pack_entries(levels, entries, pad, "error", limits)
        except RepeatedError:
            entries = entries.expanded()
    # Sums have 64 bits, as those of numpy.
    if duplicates == "sum" and (wide := emission.wider(entries.values.dtype)) is not None:
        summands = replace(entries, values=entries.values.astype(wide))
        made = pack_entries(levels, summands, np.asarray(pad).astype(wide)[()], duplicates, limits)
        return made.with_values(emission.narrowed(made.values, entries.values.dtype), False)
    by_kernels = entries.count and kernels.pays_off(entries.count) and sorting.layout(entries.dims)
    if not by_kernels or (duplicates == "sum" and not emission.sums(entries.values)):
        return build(levels, _sort_in_numpy(entries, duplicates), pad, limits)
    try:
        return _pack_by_kernels(levels, entries, pad, duplicates, limits)
    except sorting.OutOfRange:
        raise ArrayError(list(_range_problems(entries))) from None
    except sorting.Repeated as error:
        raise _repeated(entries, *error.args) from None


def _pack_by_kernels(
    levels: tuple[Level, ...], entries: Entries, pad: Any, duplicates: Duplicates, limits: Limits
) -> Tree:
    """`pack_entries` for many entries. Raises OutOfRange, Repeated, LimitError, FormatError."""
    if not entries.ordered_dims and sorting.in_order(entries):
        return _with_own_arrays(build(levels, entries, pad, limits), entries)
    codes = [level.fused() for level in levels]
    if None in codes:  # the indices of a sparse level over all dimensions are the sorted coordinates
        one_level = (SPARSE,) + (CONTINUED,) * (len(entries.dims) - 1)
        chain = emission.emit(one_level, entries, pad, duplicates, limits)
        values = entries.values if chain.values is None else chain.values
        return build(levels, replace(entries, coords=tuple(chain.indices), values=values), pad, limits)
    pad_differs = entries.iso and levels[-1].padded and not alike(pad, entries.values[0])
    emitted = entries.expanded() if pad_differs else entries
    chain = emission.emit(tuple(code for fused in codes for code in fused or ()), emitted, pad, duplicates, limits)
    arrays = {}
    for place in places(levels, entries.dims):
        for spec in place.arrays.values():
            depth = place.depth + (spec.dimension or 0)
            arrays[spec.name] = (chain.pointers if spec.dimension is None else chain.indices)[depth]
    if entries.iso and (chain.values is None or chain.positions == chain.entries):
        return Tree(levels, entries.dims, arrays, repeat_one(entries.values, chain.positions), True)
    assert chain.values is not None
    return Tree(levels, entries.dims, arrays, chain.values)


def _with_own_arrays(tree: Tree, entries: Entries) -> Tree:
    """The tree, with a copy of each array that it shares with the entries."""
    given = (*entries.coords, entries.values)

    def own(array: Array) -> Array:
        return array.copy() if any(np.may_share_memory(array, x) for x in given) else array

    arrays = {name: own(x) for name, x in tree.arrays.items()}
    return replace(tree, arrays=arrays, values=tree.values if tree.iso else own(tree.values))


def build(levels: tuple[Level, ...], entries: Entries, pad: Any, limits: Limits, dtype: Any = None) -> Tree:
    """A tree of sorted and unique entries, built level by level. Coordinates of type `dtype` are not copied.

    Raises FormatError for entries that a kind cannot store, LimitError.
    """
    dtype = index_dtype(entries.dims, entries.count) if dtype is None else dtype
    codes = [level.fused() for level in levels]
    if all(codes) and codes and codes[-1] and codes[-1][0] == SPARSE:
        arrays, _ = _split(places(levels, entries.dims), entries.coords, dtype, limits, entries.count)
        values = repeat_one(entries.values, entries.count) if entries.iso else entries.values
        return Tree(levels, entries.dims, arrays, values, entries.iso)
    coords: Sequence[Array] = entries.coords
    parents: Positions = np.broadcast_to(np.int64(0), entries.count)
    order: Array | None = None  # the entry of each child; None: the entries in their original order
    arrays = {}
    n = 1
    for place in places(levels, entries.dims):
        level, below = place.level, place.depth + place.level.rank
        children = level.children(place.dims, n, 0)
        least = level.nbytes(place.dims, n, 0, root=not place.depth, itemsize=1)  # without entries
        check_dense(max(n, children or 0, (least or 0) // 8), entries.count, limits)
        here, more = _as_stored(place, coords[place.depth : below], dtype), {}
        if level.shares:
            values = entries.values if entries.iso or order is None else entries.values[order]
            starts, more["same"] = _equal_subtrees([as_array(parents), *here], coords[below:], values)
        if not level.specified:  # a kind may subtract coordinates, so they must be signed
            here = [x.view(f"i{x.dtype.itemsize}") for x in here]
        made, parents = level.build(place.dims, parents, here, n, **more)
        arrays |= {place.arrays[role].name: x for role, x in narrowed(place, made, dtype).items()}
        n = level.size(made, place.dims, n)
        if level.shares:  # keep the entries of the first of equal subtrees
            child = as_array(parents)
            new = np.ones(len(starts), bool)
            new[1:] = child[starts[1:]] != child[starts[:-1]]
            kept = np.repeat(new, np.diff(starts, append=len(child)))
            coords, parents = [x[kept] for x in coords], child[kept]
            order = np.flatnonzero(kept) if order is None else order[kept]
        if not level.ascending:
            again = np.argsort(as_array(parents), kind="stable")
            coords, parents = [x[again] for x in coords], as_array(parents)[again]
            order = again if order is None else order[again]
    check_dense(n, entries.count, limits)
    count = len(parents)
    # Values without an entry are padding, or in a gap. A scalar without an entry has the fill value.
    padded = any(level.padded for level in levels) or not any(level.gaps for level in levels)
    if entries.iso and (n == count or not padded or alike(pad, entries.values[0])):
        return Tree(levels, entries.dims, arrays, repeat_one(entries.values, n), True)
    values = entries.expanded().values
    values = values if order is None else values[order]
    if n != count:
        whole = np.full(n, pad, values.dtype) if padded else np.zeros(n, values.dtype)
        whole[as_array(parents)] = values
        values = whole
    tree = Tree(levels, entries.dims, arrays, values)
    return tree.blanked() if padded and any(np.array(pad, values.dtype).tobytes()) else tree


def narrowed(place: Place, made: Mapping[str, Array], dtype: np.dtype[Any]) -> dict[str, Array]:
    """The arrays of a level by role; integer arrays in the type that the level declares, else `dtype` if they fit.

    Raises FormatError for integers that do not fit the declared type.
    """

    def narrow(array: Array, spec: ArraySpec) -> Array:
        target = np.dtype(spec.dtype or dtype)
        if array.dtype == target or spec.holds not in INTEGERS:
            return array
        limits, least, most = np.iinfo(target), array.min(initial=0), array.max(initial=0)
        if spec.dtype and not limits.min <= least <= most <= limits.max:
            what = f"{spec.name} has {most if most > limits.max else least}, which {target} cannot store"
            raise FormatError(Problem(str(place.level), f"{what}; choose another kind, or smaller blocks"))
        return array.astype(target) if most <= limits.max else array

    return {role: narrow(made[role], spec) for role, spec in place.arrays.items()}


def _split(
    levels: Sequence[Place], coords: Sequence[Array], dtype: np.dtype[Any], limits: Limits, stored: int
) -> tuple[dict[str, Array], Array | None]:
    """The arrays of levels by name, of type `dtype`, and pointers to the entries of each position of the last level.

    The pointers are None if each position has one entry. stored: the number of entries of the whole tree.

    Precondition: the entries are sorted and unique, and there is at least one level; each has a fused pass.
    """
    count = len(coords[0])
    arrays: dict[str, Array] = {}
    entries: Array | None = np.array([0, count], dtype)
    for place in levels:
        assert entries is not None
        below, n = place.depth + place.level.rank, len(entries) - 1
        check_dense(place.level.children(place.dims, n, count) or n, stored, limits)
        here = _as_stored(place, coords[place.depth : below], dtype)
        made, entries = place.level.split(place.dims, entries, here, distinct=below == len(coords))
        arrays |= {spec.name: made[role] for role, spec in place.arrays.items()}
    return arrays, entries


def _as_stored(place: Place, coords: Sequence[Array], dtype: np.dtype[Any]) -> Sequence[Array]:
    """The coordinates of a level. They are cast to `dtype` only if it stores them: a cast may double the time."""
    if not place.arrays and all(x.dtype in _NUMBERS for x in coords):
        return coords
    return [x.astype(dtype, copy=False) for x in coords]


def _equal_subtrees(above: Sequence[Array], below: Sequence[Array], values: Array) -> tuple[Array, Array]:
    """Group entries by the columns `above`. Returns the start of each group, and a number for each entry.

    Neighbouring groups get the same number if their subtrees are equal: all columns `below`, and the bits of values.
    """
    count, new = len(above[0]), firsts(above)
    (starts,) = new.nonzero()
    sizes = np.diff(starts, append=count)
    group = np.cumsum(new) - 1
    differs = np.zeros(len(starts), bool)
    differs[:1] = True
    differs[1:] = sizes[1:] != sizes[:-1]
    before = np.arange(count) - sizes[group]  # the entry with the same index in the group before
    (comparable,) = (~differs[group]).nonzero()
    bits = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.dtype.itemsize)
    columns = [*below, *(bits.T if len(values) == count else ())]
    for x in columns:
        wrong = x[comparable] != x[before[comparable]]
        differs[group[comparable[wrong]]] = True
    return starts, np.cumsum(differs)[group]


def alike(a: Any, b: Any) -> bool:
    """Return True if two scalars are equal, including the sign of zero."""
    return same(a, b) and repr(a) == repr(b)


def _sort_in_numpy(entries: Entries, duplicates: Duplicates) -> Entries:
    """The entries, sorted and unique. Used for few entries, and for keys of more than two words."""
    coords, count = entries.coords, entries.count
    if not count:
        return entries
    bits, size = count.bit_length(), cells(entries.dims)
    if 0 < len(coords) < _MAX_RAVEL_RANK and size <= INT64_MAX:
        try:
            number = np.ravel_multi_index(coords, entries.dims)
        except ValueError:  # a coordinate is out of range
            raise ArrayError(list(_range_problems(entries))) from None
        if size <= INT64_MAX >> bits:
            number <<= bits
            number |= np.arange(count)  # so the sort is stable, and takes half the time of argsort
            number.sort()
            order = number & (1 << bits) - 1
            number >>= bits
        else:
            order = number.argsort(kind=None if entries.trusted else "stable")
            number = number[order]
        new = None if entries.trusted else firsts([number])
    else:
        if not entries.trusted and any(map(_any_outside, coords, entries.dims)):
            raise ArrayError(list(_range_problems(entries)))
        keys = coords or (np.zeros(count, np.int8),)
        order = np.lexsort(keys[::-1])
        new = None if entries.trusted else firsts([x[order] for x in keys])
    values = entries.values if entries.iso else entries.values[order]
    if new is not None and np.count_nonzero(new) < count:  # `all` takes a microsecond more
        if duplicates == "error":
            raise _repeated(entries, [int(x[order[new.argmin()]]) for x in coords])
        order = order[new]
        if not entries.iso and duplicates == "sum":
            values = emission.add_groups(values, new)
        elif not entries.iso:
            values = values[new if duplicates == "first" else np.append(new[1:], True)]
    coords = tuple([x[order] for x in coords])
    return Entries(entries.dims, coords, values, entries.iso, entries.order)


def _any_outside(x: Array, size: int) -> bool:
    """Return True if a coordinate is negative or not below `size`. Precondition: at least one."""
    unsigned = words(x)  # negative numbers become large
    return bool(unsigned.max() >= (size if x.dtype.kind == "u" else min(size, 2 ** (8 * unsigned.itemsize - 1))))


def _range_problems(entries: Entries) -> Iterator[Problem]:
    columns = zip(entries.order, entries.dims, entries.coords, strict=True)
    for dimension, size, x in sorted(columns, key=lambda column: column[0]):
        yield from range_problems(x, dimension, size)


def _repeated(entries: Entries, coords: Sequence[int]) -> RepeatedError:
    return repeated([coords[k] for k in np.argsort(entries.order)])


def repeated(coords: Sequence[int]) -> RepeatedError:
    """The error for several entries with the same coordinates."""
    advice = "pass duplicates='sum', or 'first' or 'last', to merge them"
    error = RepeatedError(Problem("coords", f"{tuple(coords)} is given more than once; {advice}"))
    error.coords = tuple(coords)
    return error


# Tree → entries


def unpack_tree(tree: Tree, dtype: Any = np.int64, window: Window | None = None) -> tuple[list[Array], Positions]:
    """The coordinates of the entries by stored dimension, in stored order, and the positions of their values.

    dtype: of the coordinates. None keeps the stored types, or the narrowest type if a level stores none. window: of the
    stored dimensions; by default all of them. Index arrays of type `dtype` with an item for each entry are not copied.
    """
    levels = list(expand_levels(tree, window))
    positions = levels[-1][3] if levels else range(1)
    parts = [(coords if dtype else narrowest(coords, place.dims), pointers) for place, coords, pointers, _ in levels]
    return coords_of_entries(parts, len(positions), dtype), positions


def coords_of_entries(
    levels: Sequence[tuple[Sequence[Array], Array]], count: int, dtype: Any = np.int64
) -> list[Array]:
    """The coordinates of `count` entries, from the coordinates that each level lists and its pointers to them."""
    columns: list[Array] = []
    below: Array | None = None  # the first entry of each child of the level
    for coords, pointers in reversed(levels):
        here = [x.astype(dtype, copy=False) if dtype else x for x in coords]
        one_each = below is None or (len(below) == count + 1 and bool((below[1:] > below[:-1]).all()))
        columns[:0] = here if one_each or below is None else [repeat_to(x, below, count) for x in here]
        below = pointers if below is None else below[pointers]
    return columns


def expand_levels(tree: Tree, window: Window | None = None) -> Iterator[tuple[Place, list[Array], Array, Positions]]:
    """Yield for each level its coordinates, pointers to those of each fiber, and the positions of its children."""
    whole = list(map(range, tree.dims)) if window is None else window
    positions: Positions = range(1)
    for place, arrays, n in tree.walk():
        here = whole[place.depth : place.depth + place.level.rank]
        pointers, coords, positions = listed(tree, place, arrays, n, positions, here)
        yield place, coords, pointers, positions


# Tree → tree


def convert_tree(tree: Tree, levels: tuple[Level, ...], order: Sequence[int], pad: Any, limits: Limits) -> Tree:
    """The same entries in other levels, where stored dimension k is dimension order[k] of `tree`.

    Sorts only the dimensions whose order changes, and shares the arrays that do not change. Raises LimitError,
    FormatError.
    """
    dtype = shared_dtype(tree.arrays, tree.dims, len(tree.values))
    ordered = ordered_dims(tuple(order)) if all(level.ordered for level in tree.levels) else 0
    if ordered == len(tree.dims) and (last := _unchanged_levels(tree.levels, levels)):
        return _change_upper_levels(tree, levels, last, limits, dtype)
    coords, positions = unpack_tree(tree, dtype)
    iso = tree.iso and bool(coords or len(positions))  # a scalar without an entry has no value
    if iso:
        values = tree.values[:1] if len(tree.values) else np.zeros(1, tree.values.dtype)
    else:
        values = items_at(tree.values, positions)
    dims = tuple(tree.dims[k] for k in order)
    entries = Entries(dims, tuple(coords[k] for k in order), values, iso, tuple(order), ordered, True)
    return pack_ordered(levels, entries, pad, limits, dtype)


@lru_cache(256)
def _unchanged_levels(old: tuple[Level, ...], new: tuple[Level, ...]) -> int:
    """The number of last levels, all sparse, that two chains of dense and sparse levels share below other levels."""
    if not all(level.fused() for level in (*old, *new)):
        return 0
    pairs = zip(old[:0:-1], new[:0:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1] and not pair[0].padded, pairs))


def _change_upper_levels(tree: Tree, levels: tuple[Level, ...], last: int, limits: Limits, dtype: Any) -> Tree:
    """`convert_tree` if the `last` last levels do not change. Their arrays and the values are shared.

    The fibers of the first of these levels are the entries of the levels above it.
    """
    old, new, first, count = tree.levels[:-last], levels[:-last], tree.places[-last], len(tree.values)
    specs = [spec for place in tree.places[-last:] for spec in place.arrays.values()]
    arrays = {spec.name: tree.arrays[spec.name].astype(dtype, copy=False) for spec in specs}
    dims, name = tree.dims[: first.depth], first.arrays[first.pointer or ""].name
    above = Tree(old, dims, tree.arrays, arrays[name][1:])
    if all(level.padded for level in new):
        coords, _ = unpack_tree(above, dtype)
        check_dense(n := cells(dims), count, limits)
        numbers = coords[0] if len(dims) == 1 else np.ravel_multi_index(coords, dims)
        arrays[name] = count_owners(numbers, n, dtype, arrays[name])
        return Tree(levels, tree.dims, arrays, tree.values, tree.iso)
    fibers, pointers = filled(arrays[name])  # sparse levels store no empty fibers
    if old == full(1):
        coords = [fibers]
    else:
        coords, _ = unpack_tree(above, dtype)
        coords = coords if len(fibers) == len(coords[0]) else [x[fibers] for x in coords]
    made, begins = _split(places(new, dims), coords, dtype, limits, count)
    arrays = made | arrays | {name: pointers if begins is None else pointers[signed(begins)]}
    return Tree(levels, tree.dims, arrays, tree.values, tree.iso)


def pack_ordered(levels: tuple[Level, ...], entries: Entries, pad: Any, limits: Limits, dtype: Any = None) -> Tree:
    """`pack_entries` for unique entries that are in order in their last `ordered_dims` dimensions."""
    if entries.ordered_dims == len(entries.dims):
        return build(levels, entries, pad, limits, dtype)
    return pack_entries(levels, entries, pad, "error", limits)


def count_prefixes(dims: Sequence[int], coords: Sequence[Array]) -> list[int]:
    """The number of distinct coordinates in the first dimension, in the first two dimensions, and so on.

    Precondition: entries are in range.
    """
    if not coords or not len(coords[0]):
        return [0] * len(dims)
    entries = Entries(tuple(dims), tuple(coords), np.zeros(1, bool), True, tuple(range(len(dims))))
    tree = pack_entries(listing(1) * len(dims), entries, False, "first", Limits())
    return [*(n for *_, n in tree.walk()), len(tree.values)][1:]


@lru_cache
def ordered_dims(order: tuple[int, ...]) -> int:
    """The number of trailing dimensions of a new order that need no sorting: its longest ascending tail.

    The entries ascend in these dimensions already, and a stable sort by the others keeps that.

    >>> ordered_dims((1, 0, 2))
    2
    """
    for sorted_dims in range(len(order) + 1):
        rest = list(order[sorted_dims:])
        if rest == sorted(rest):
            return len(rest)
    return 0
