"""The entries of views: what is read for them, and the tree that they become.

Arrays may lie in a file: then only the fibers that are needed are read. They are checked, as a level of their own,
before anything is indexed with them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ..arrays import repeat_one
from ..errors import ArrayError, raise_if
from ..formats.format import Format
from ..formats.structure import STRUCTURES, in_triangle, read_problems
from ..levels import Level, Place, places
from ..levels.base import Built
from ..levels.positions import Array, Children, Positions, Window, as_array, as_positions, distinct, fitted, items_at
from ..limits import Limits
from . import packing
from .packing import Entries
from .parts import listed, part_of, through
from .tree import Tree
from .views import Item, View, kept_rank


def match(columns: Sequence[Array], points: Sequence[Array]) -> tuple[Array, Array]:
    """All pairs of an entry and a point with the same coordinates: the numbers of the entries and of the points.

    columns: the coordinates of the entries by dimension; no two entries have the same. points: those of the points.
    """
    entries, wanted = np.arange(len(columns[0])), np.zeros(len(points[0]), np.int64)
    ranks = np.zeros(len(entries), np.int64)  # of what the dimensions so far say, among the points
    for x, point in zip(columns, points, strict=True):
        there, coordinate = np.unique(point, return_inverse=True)
        place = np.searchsorted(there, x[entries])
        known, wanted = np.unique(wanted * len(there) + coordinate, return_inverse=True)
        ranks = ranks * len(there) + place
        at = np.minimum(np.searchsorted(known, ranks), max(len(known) - 1, 0))
        kept = np.isin(x[entries], there) & (known[at] == ranks) if len(known) else np.zeros(len(entries), bool)
        entries, ranks = entries[kept], at[kept]
    place, repeats = _own_coordinates(wanted, ranks)
    return (entries if repeats is None else entries[repeats]), place


# Single entries


def find_in(tree: Tree, coords: Sequence[int]) -> int:
    """The position of the entry at these stored coordinates, or -1. Reads only the fibers on the way from a file.

    Precondition: in range.
    """
    position, n = 0, 1
    for place in tree.places:
        level = place.level
        arrays = {role: tree.arrays[spec.name] for role, spec in place.arrays.items()}
        here = coords[place.depth : place.depth + level.rank]
        if tree.lazy:
            window = [range(x, x + 1) for x in here]
            _, _, children = listed(tree, place, arrays, n, range(position, position + 1), window)
            position = int(as_positions(children)[0]) if len(children) else -1
            n = level.size(arrays, place.dims, n)
        else:
            position = level.finder(arrays, place.dims)(position, *here)
        if position < 0:
            return -1
    return position


def value_reader(tree: Tree, order: Sequence[int], shape: Sequence[int], pad: Any) -> Callable[[Any], Any]:
    """A function from a tuple of coordinates to the value there, or `pad` where nothing is stored.

    The function returns None for any other key than a tuple of integers in range. Precondition: the tree is in memory.
    """
    steps = []
    for place, arrays, _ in tree.walk():
        covered = order[place.depth : place.depth + place.level.rank]
        steps.append((place.level.finder(arrays, place.dims), covered[0] if len(covered) == 1 else -1, covered))
    values, count = tree.values, len(shape)

    def read(key: Any) -> Any:
        if type(key) is not tuple or len(key) != count:
            return None
        for x, size in zip(key, shape):  # noqa: B905 (strict takes a tenth of the time of all)
            if type(x) is not int or not 0 <= x < size:
                return None
        position = 0
        for find, k, covered in steps:
            position = find(position, key[k]) if k >= 0 else find(position, *[key[k] for k in covered])
            if position < 0:
                return pad
        return values[position]

    return read


def locate_in(tree: Tree, coords: Sequence[Array]) -> Array:
    """`find_in` for many entries. Of arrays in a file, the fibers of all entries are read at once, level by level."""
    count = len(coords[0]) if coords else 1
    positions = np.zeros(count, np.int64)
    left: Array | None = None  # the numbers of the entries that may be there; None for all
    for place, arrays, n in tree.walk() if count else ():
        here = coords[place.depth : place.depth + place.level.rank]
        here = here if left is None else [x[left] for x in here]
        if tree.lazy and arrays:
            positions = _locate_in_file(tree, place, arrays, n, positions, here)
        else:
            positions = place.level.locate(arrays, place.dims, positions, here)
        if left is None and place is tree.places[-1]:
            return positions
        there = positions >= 0
        if not there.all():
            left = np.flatnonzero(there) if left is None else left[there]
            positions = positions[there]
            if not len(left):
                break
    if left is None:
        return positions
    out = np.full(count, -1, np.int64)
    out[left] = positions
    return out


def _locate_in_file(
    tree: Tree, place: Place, arrays: dict[str, Array], n: int, positions: Array, coords: Sequence[Array]
) -> Array:
    """`locate` of a level in a file: its fibers at these positions are read and checked."""
    fibers, number = np.unique(positions, return_inverse=True)
    among: Positions = fibers
    if not len(fibers):
        return positions
    if fibers[-1] - fibers[0] == len(fibers) - 1:
        among = range(int(fibers[0]), int(fibers[-1]) + 1)
    local, children, held = part_of(tree, place, arrays, n, among, [np.unique(x) for x in coords])
    reached = place.level.locate(local, place.dims, as_array(held)[number], coords)
    there = reached >= 0
    reached[there] = as_array(through(children, reached[there]))
    return reached


# A view → a tree


def load(view: View, format: Format, pad: Any, limits: Limits) -> Tree:
    """The entries of a view as a tree of this format.

    Raises ArrayError for damaged arrays in a file, FormatError for entries that a kind cannot hold, LimitError.
    """
    tree = view.tree
    kept = sorted(view.dimensions)
    dims = tuple([len(view.items[k]) for k in kept])  # type: ignore[arg-type]
    restricted = _restricted(view) if view.structure is None else None
    if restricted == 0 and format.levels == tree.levels:
        whole = tree.loaded() if tree.lazy else tree
        raise_if(ArrayError, whole.check(view.order) if tree.lazy else ())
        return whole
    if restricted is not None and (cut := _load_fibers(view, restricted, format.levels, dims, kept)) is not None:
        return cut
    columns, values, ordered = _selected(view)
    iso = view.tree.iso and (view.structure is None or not len(values) or bool((values == values[0]).all()))
    first = values[:1] if len(values) else np.zeros(1, values.dtype)
    entries = Entries(dims, tuple(columns), first if iso else values, iso, format.order)
    if ordered and columns:
        return packing.build(format.levels, entries, pad, limits)
    return packing.pack_entries(format.levels, entries, pad, "error", limits)


def _selected(view: View) -> tuple[list[Array], Array, bool]:
    """The entries of a view by its stored dimensions, and whether they are in order."""
    columns, values = _in_window(view.tree, [_window(item) for item in view.items])
    if view.structure is not None:
        columns, values = _with_mirrored(view, columns, values)
    ordered = view.structure is None and all(level.ordered for level in view.tree.levels)
    coords: list[Array] = []
    for k, item in enumerate(view.items):
        if isinstance(item, int):
            continue
        x, repeats = _own_coordinates(item, columns[k])
        if repeats is not None:
            columns, values = [c[repeats] for c in columns], values[repeats]
            coords = [c[repeats] for c in coords]
        ordered &= _ascends(item)
        coords.append(x)
    return coords, values, ordered


def _with_mirrored(view: View, columns: list[Array], values: Array) -> tuple[list[Array], Array]:
    """Add the entries that the structure implies: the mirror images of the entries in the mirrored window."""
    name = view.structure
    assert name is not None

    def stored(columns: list[Array], values: Array) -> tuple[list[Array], Array]:
        coords = [columns[view.order.index(k)] for k in range(2)]
        if view.tree.lazy:
            raise_if(ArrayError, read_problems(name, coords, values, padded=view.tree.padded))
        kept = in_triangle(name, coords)
        return [c[kept] for c in columns], values[kept]

    columns, values = stored(columns, values)
    others, more = stored(*_in_window(view.tree, [_window(item) for item in view.items[::-1]]))
    off = others[0] != others[1]
    mirrored = STRUCTURES[name].mirrored(more[off])
    columns = [np.concatenate((a, b[off])) for a, b in zip(columns, others[::-1], strict=True)]
    return columns, np.concatenate((values, mirrored))


def _window(item: Item, *, in_order: bool = True) -> Positions:
    """The coordinates of an item, ascending and each once, or as they stand there."""
    if isinstance(item, int):
        return range(item, item + 1)
    if isinstance(item, range):
        if item.step > 0:
            return item
        return range(0) if not item else item[::-1] if in_order else as_array(item)
    return distinct(item) if in_order and not _ascends(item) else item


def _ascends(item: Item) -> bool:
    if isinstance(item, range):
        return item.step > 0
    return isinstance(item, int) or bool((item[1:] > item[:-1]).all())


def _own_coordinates(item: range | Array, x: Array) -> tuple[Array, Array | None]:
    """The place of each coordinate in `item`. Where `item` repeats coordinates, also the numbers of the entries to
    repeat, else None.
    """
    if isinstance(item, range):
        if item.step != 1:
            return (x.astype(np.int64) - item.start) // item.step, None
        return (x - np.asarray(item.start, x.dtype) if item.start and len(x) else x), None
    x = x.astype(np.int64, copy=False)
    if _ascends(item):
        return np.searchsorted(item, x), None
    order = np.argsort(item, kind="stable")
    first = np.searchsorted(item, x, sorter=order)
    counts = np.searchsorted(item, x, side="right", sorter=order) - first
    if (counts == 1).all():
        return order[first], None
    repeats = np.repeat(np.arange(len(x)), counts)
    place = np.arange(len(repeats)) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[first[repeats] + place], repeats


def _in_window(tree: Tree, window: Window) -> tuple[list[Array], Array]:
    """The coordinates by stored dimension, and the values, of all entries in a window, in stored order."""
    columns, positions = packing.unpack_tree(tree, window=window)
    return columns, np.asarray(items_at(tree.values, positions))


def _restricted(view: View) -> int | None:
    """The number of dimensions down to the last that is restricted; None where the order of entries changes.

    Fibers in memory are copied in any order, and as often as asked, where the level above them stores nothing.
    """
    restricted = 0
    for place in view.tree.places:
        for k in range(place.depth, place.depth + place.level.rank):
            item = view.items[k]
            if not (isinstance(item, range) and len(item) == view.tree.dims[k] and item.step == 1):
                if not _ascends(item) and (place.arrays or view.tree.lazy):
                    return None
                restricted = k + 1
    return restricted


class _Copied(NamedTuple):
    """What is done with the fibers of a level of which a tree is loaded.

    target: the level that they become, with its arrays; None for a level that goes. how: "cells": nothing is stored;
    "part": the arrays are copied, "cut" in each dimension, too; "listed": fibers are listed and built again. whole:
    nothing is left out of a fiber.
    """

    target: Place | None
    how: Literal["cells", "part", "cut", "listed"]
    whole: bool


@functools.lru_cache(256)  # each slice asks, and slices are taken in loops
def _copied(
    levels: tuple[Level, ...], made: tuple[Level, ...], kept: tuple[int, ...], restricted: int
) -> tuple[_Copied, ...] | None:
    """What is done with each level; None where entries have to be selected one by one.

    That is where a fiber could become empty, and where positions have gaps. made: the levels of the loaded tree. kept:
    the stored dimensions that it has. restricted: as `_restricted` tells.
    """
    if any(level.gaps or not level.ascending for level in (*levels, *made)):
        return None
    steps = []
    targets = list(places(made, [0] * len(kept)))  # no name of an array depends on a size
    for place in places(levels, [0] * sum(level.rank for level in levels)):
        level = place.level
        below, rank = place.depth + level.rank, kept_rank(place, kept)
        target = targets.pop(0) if rank else None
        if target is not None and target.level.padded != level.padded:
            return None
        empty = not place.arrays and not (target and target.arrays)
        same = empty or (target is not None and level == target.level)
        whole = same and place.depth >= restricted
        if not (whole or level.padded or below >= restricted):
            return None
        shares = target is not None and (level.shares or target.level.shares)
        if empty:
            steps.append(_Copied(target, "cells", whole))
        elif whole or shares or (same and type(level).cut is not Level.cut):
            if not same:
                return None
            steps.append(_Copied(target, "part" if whole else "cut", whole))
        else:
            steps.append(_Copied(target, "listed", whole))
    return tuple(steps)


def _load_fibers(
    view: View, restricted: int, levels: tuple[Level, ...], dims: tuple[int, ...], kept: Sequence[int]
) -> Tree | None:
    """A tree whose lower levels are copied fiber by fiber; None where `_copied` or a level refuses."""
    tree = view.tree
    steps = _copied(tree.levels, levels, tuple(kept), restricted)
    if steps is None:
        return None
    positions: Children = range(1)
    made: dict[str, Array] = {}
    for (target, how, whole), (place, arrays, n) in zip(steps, tree.walk(), strict=True):
        level = place.level
        items, positions = view.items[place.depth : place.depth + level.rank], as_positions(positions)
        window: Window = list(map(range, place.dims)) if whole else [_window(x, in_order=how != "cells") for x in items]
        if how == "cells":
            positions = level.reached(arrays, place.dims, positions, window)
            continue
        if how == "listed":
            pointers, coords, positions = listed(tree, place, arrays, n, positions, window)
            if target is not None:
                own = [
                    _own_coordinates(item, x)[0].astype(x.dtype, copy=False)
                    for item, x in zip(items, coords, strict=True)
                    if not isinstance(item, int)
                ]
                sizes = dims[target.depth : target.depth + target.level.rank]
                local, _ = target.level.split(sizes, fitted(pointers, own[0].dtype), own, distinct=True)
            elif not (np.diff(pointers) == 1).all():
                return None
        else:
            if (part := _alone(tree, place, arrays, n, positions, window)) is None:
                return None
            local, positions = part
            if how == "cut":
                if (cut := level.cut(local, place.dims, window)) is None:
                    return None
                local, positions = cut[0], through(positions, cut[1])
        if target is not None:
            for role, spec in target.arrays.items():
                made[spec.name] = local[role]
    return _around(tree, levels, dims, made, positions)


def rows_reader(tree: Tree) -> Callable[[range], Tree | None]:
    """A function that loads consecutive outermost coordinates of a lazy tree: 68 µs, as a selection of any kind 84.

    What does not depend on the coordinates is asked for once. None comes where the outermost level stores
    anything, or a level cannot be copied as it is.
    """
    levels, inner = tree.levels, tree.dims[1:]
    steps = None if any(level.refuses for level in levels) else _copied(levels, levels, tuple(range(len(tree.dims))), 1)
    if not steps or steps[0].how != "cells" or any(how not in ("cells", "part") for _, how, _ in steps):
        return lambda rows: None
    (outer, _, _, (_, *outer_rest)), *below = [(*step, list(map(range, step[0].dims))) for step in tree.walk()]
    if any(arrays and type(place.level).part is Level.part for place, arrays, _, _ in below):  # these are read whole
        return lambda rows: None

    def read(rows: range) -> Tree | None:
        positions = as_positions(outer.level.reached({}, outer.dims, range(1), [rows, *outer_rest]))
        made: dict[str, Array] = {}
        for place, arrays, n, everything in below:
            level, dims = place.level, place.dims
            if not arrays:
                positions = as_positions(level.reached(arrays, dims, positions, everything))
                continue
            local, children, _ = part_of(tree, place, arrays, n, positions, everything)
            if children is None:
                return None
            positions = as_positions(children)
            for role, spec in place.arrays.items():
                made[spec.name] = local[role]
        return _around(tree, levels, (len(rows), *inner), made, positions)

    return read


def _around(
    tree: Tree, levels: tuple[Level, ...], dims: tuple[int, ...], made: dict[str, Array], positions: Children
) -> Tree:
    """A tree of arrays of its own, which become read-only, around the values at positions of another."""
    values = np.asarray(items_at(tree.values, range(min(len(positions), 1)) if tree.iso else positions))
    for array in (*made.values(), values):
        array.setflags(write=False)
    return Tree(levels, dims, made, repeat_one(values, len(positions)) if tree.iso else values, tree.iso)


def _alone(
    tree: Tree, place: Place, arrays: dict[str, Array], n: int, positions: Positions, window: Window
) -> Built | None:
    """`Level.part`, of arrays in memory or in a file."""
    local, children, fibers = part_of(tree, place, arrays, n, positions, window)
    return place.level.part(local, place.dims, fibers, window) if children is None else (local, children)
