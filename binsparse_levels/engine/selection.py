"""Load the entries of a view as a tree, and find entries by their coordinates.

If arrays are in a file, `engine.parts` reads and checks only the required fibers.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from ..arrays import repeat_one
from ..errors import ArrayError, FormatError, raise_if
from ..formats.format import Format, in_order
from ..formats.structure import STRUCTURES, in_triangle, read_problems
from ..levels import Level, Place, listing, places
from ..levels.positions import (
    Array,
    Positions,
    Window,
    as_array,
    fitted,
    inside,
    is_everything,
    items_at,
    places_in,
)
from ..limits import Limits
from ..thresholds import THRESHOLDS
from . import packing
from .blocks import outermost, read_blocks
from .packing import Entries
from .parts import listed, part_of, through
from .tree import Tree
from .views import Item, Selection

# Entries at coordinates


def locate_in(tree: Tree, coords: Sequence[Array]) -> Array:
    """The positions of the entries at stored coordinates, -1 if there is no entry. Precondition: in range.

    For arrays in a file, the fibers of all entries are read together, level by level.
    """
    count = len(coords[0]) if coords else 1
    positions = np.zeros(count, np.int64)
    left: Array | None = None  # the coordinates that may have an entry; None for all
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
    """`locate` for a level in a file: its fibers at these positions are read and checked."""
    fibers, number = np.unique(positions, return_inverse=True)
    among: Positions = fibers
    if not len(fibers):
        return positions
    if fibers[-1] - fibers[0] == len(fibers) - 1:
        among = range(int(fibers[0]), int(fibers[-1]) + 1)
    local, children, local_fibers = part_of(tree, place, arrays, n, among, [np.unique(x) for x in coords])
    reached = place.level.locate(local, place.dims, as_array(local_fibers)[number], coords)
    there = reached >= 0
    reached[there] = as_array(through(children, reached[there]))
    return reached


# A view → a tree


class View:
    """The plan for loading any selection of a tree that cuts and keeps the same dimensions.

    Slices are often taken in loops, so one plan is made for all of them.

    format: of the view. order: the dimension of the whole tensor at each stored dimension; moved: True if they differ.
    structure: of the tree; a view expands it. kept: the stored dimensions without those whose index is an integer.
    restricted: the number of stored dimensions down to the last that is cut. whole: True if the view has all entries in
    their stored form. ordered: the stored dimensions whose selected coordinates must ascend, so that fibers can be
    copied. Below a level in memory without arrays, fibers are copied in any order, and repeatedly.
    """

    def __init__(self, tree: Tree, stored: Format, structure: str | None, selection: Selection) -> None:
        self.tree, self.order, self.structure = tree, stored.order, structure
        dimensions = [self.order.index(k) for k in selection.dimensions]
        self.kept = sorted(dimensions)
        self.format = self._format(stored, dimensions)
        if structure is not None and self.format.padded and tree.arrays:  # mirrored entries would be padded
            last = self.format.levels[-1]
            self.format = replace(self.format, levels=(*self.format.levels[:-1], _unpadded(last)))
        cut = [self.order.index(k) for k in selection.cut]
        self.restricted = max(cut, default=-1) + 1
        free = [
            range(place.depth, place.depth + place.level.rank)
            for place in tree.places
            if not (place.arrays or tree.lazy)
        ]
        self.ordered = [k for k in cut if not any(k in depths for depths in free)]
        self.moved = self.order != tuple(range(len(self.order)))
        self.whole = not cut and structure is None and self.format.levels == tree.levels

    def _format(self, stored: Format, dimensions: Sequence[int]) -> Format:
        """The format of the tree without the removed dimensions.

        A removed level may have fibers without an entry at the index. Then the level above it, or else the one below,
        becomes sparse, so that a view never stores more entries than the tree.
        """
        order = [dimensions.index(k) for k in self.kept]
        if len(order) == stored.rank and not any(level.refuses for level in stored.levels):
            return stored if order == list(self.order) else in_order(stored.levels, order)
        levels: list[Level] = []
        removed = False
        for place in self.tree.places:
            level, rank = place.level, _kept_rank(place, self.kept)
            if rank:
                remaining = _remaining(level, rank)
                levels += listing(rank) if remaining is None else (remaining,)
                if removed and len(levels) == 1:
                    levels[0] = _unpadded(levels[0])
            elif place.arrays or not level.padded:
                removed = True
                levels[-1:] = map(_unpadded, levels[-1:])
        return in_order(tuple(levels), order)

    @functools.cached_property
    def of_codes(self) -> View:
        """The view of the codes of a dictionary, as if they were the values."""
        made = copy.copy(self)
        made.tree = self.tree.of_codes
        return made

    @functools.cached_property
    def steps(self) -> list[_Step] | None:
        """The steps that load the view fiber by fiber, one for each level; None if entries are selected one by one.

        They are selected one by one if a fiber could become empty, if positions have gaps, or if a kind has no `part`.
        """
        made = self.format.levels
        if self.structure is not None or any(level.gaps or not level.ascending for level in (*self.tree.levels, *made)):
            return None
        steps = []
        targets = list(places(made, [0] * len(self.kept)))  # names of arrays do not depend on sizes
        for place, arrays, n in self.tree.walk():
            level = place.level
            below, rank = place.depth + level.rank, _kept_rank(place, self.kept)
            target = targets.pop(0) if rank else None
            if target is not None and target.level.padded != level.padded:
                return None
            empty = not place.arrays and not (target and target.arrays)
            same = empty or (target is not None and level == target.level)
            whole = same and place.depth >= self.restricted
            if not (whole or level.padded or below >= self.restricted):
                return None
            shares = target is not None and (level.shares or target.level.shares)
            how: Literal["cells", "part", "cut", "listed"] = "listed"
            if empty:
                how = "cells"
            elif whole or shares or (same and type(level).cut is not Level.cut):
                if not same or type(level).part is Level.part:
                    return None
                how = "part" if whole else "cut"
            window = list(map(range, place.dims)) if whole else None
            names = [(role, spec.name) for role, spec in target.arrays.items()] if target else []
            steps.append(_Step(place, arrays, n, slice(place.depth, below), window, target, names, how))
        return steps


def _unpadded(level: Level) -> Level:
    return listing(level.rank)[0] if level.padded else level


def _kept_rank(place: Place, kept: Sequence[int]) -> int:
    """The number of dimensions of the level that are among the stored dimensions `kept`."""
    return sum(place.depth <= k < place.depth + place.level.rank for k in kept)


class _Step(NamedTuple):
    """One level of a view that is loaded fiber by fiber.

    place, arrays, n: from `Tree.walk`. at: the slice of its dimensions. window: all coordinates, if fibers are kept
    whole, else None. target: the resulting level; None for a removed level. names: of its arrays, by role. how:
    "cells": nothing is stored; "part": the arrays are copied; "cut": also cut in each dimension; "listed": fibers are
    expanded and built again.
    """

    place: Place
    arrays: dict[str, Array]
    n: int
    at: slice
    window: Window | None
    target: Place | None
    names: list[tuple[str, str]]
    how: Literal["cells", "part", "cut", "listed"]


def load(view: View, selected: Sequence[Item], pad: Any, limits: Limits) -> Tree:
    """The entries of a view at these indices, one for each dimension of the tensor, as a tree of the view's format.

    Raises ArrayError for damaged arrays in a file, FormatError for entries that a kind cannot store, LimitError.
    """
    if view.tree.dictionary is not None and view.structure is None:
        known = view.tree.dictionary.with_entry(pad, not view.kept or view.format.padded)
        if known is not None:
            coded = load(view.of_codes, selected, known[1], limits)
            return coded.with_values(known[0].with_codes(coded.values), False)
    items = [selected[k] for k in view.order] if view.moved else selected
    dims = tuple(map(len, items if len(view.kept) == len(items) else [items[k] for k in view.kept]))  # type: ignore[arg-type]
    if view.whole:
        return _whole(view)
    if view.steps is not None and not _reads_much(view.tree, items):
        for k in view.ordered:
            if not _ascends(items[k]):
                break
        else:
            if (cut := _load_fibers(view, view.steps, items, dims)) is not None:
                return cut
    tree, format = view.tree, view.format
    columns, values, ordered = _selected(view, items)
    iso = tree.iso and (view.structure is None or not len(values) or bool((values == values[0]).all()))
    first = values[:1] if len(values) else np.zeros(1, values.dtype)
    entries = Entries(dims, tuple(columns), first if iso else values, iso, format.order)
    if ordered and columns:
        return packing.build(format.levels, entries, pad, limits)
    return packing.pack_entries(format.levels, entries, pad, "error", limits)


def _whole(view: View) -> Tree:
    """The tree of a view, in memory and checked."""
    if not view.tree.lazy:
        return view.tree
    whole = view.tree.loaded()
    raise_if(ArrayError, whole.check(view.order))
    return whole


def _selected(view: View, items: Sequence[Item]) -> tuple[list[Array], Array, bool]:
    """The selected entries of a view by its stored dimensions, and True if they are in order."""
    columns, values, ordered = _in_window(view.tree, items)
    if view.structure is not None:
        (columns, values), ordered = _with_mirrored(view, items, columns, values), False
    coords: list[Array] = []
    for k, item in enumerate(items):
        if isinstance(item, int):
            continue
        x, repeats = places_in(item, columns[k])
        if repeats is not None:
            columns, values = [c[repeats] for c in columns], values[repeats]
            coords = [c[repeats] for c in coords]
        ordered &= _ascends(item)
        coords.append(x)
    return coords, values, ordered


def _with_mirrored(view: View, items: Sequence[Item], columns: list[Array], values: Array) -> tuple[list[Array], Array]:
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
    others, more = stored(*_in_window(view.tree, items[::-1])[:2])
    off = others[0] != others[1]
    mirrored = STRUCTURES[name].mirrored(more[off])
    columns = [np.concatenate((a, b[off])) for a, b in zip(columns, others[::-1], strict=True)]
    return columns, np.concatenate((values, mirrored))


def _coordinates(item: Item) -> Positions:
    """The coordinates of an item."""
    if isinstance(item, range):
        return item if item.step > 0 else as_array(item) if item else range(0)
    return range(item, item + 1) if isinstance(item, int) else item


def ascending(item: Item) -> Positions:
    """The distinct coordinates of an item, ascending."""
    if isinstance(item, range):
        return item if item.step > 0 else item[::-1] if item else range(0)
    return _coordinates(item) if _ascends(item) else np.unique(np.asarray(item))


def _ascends(item: Item) -> bool:
    if isinstance(item, range):
        return item.step > 0
    return isinstance(item, int) or bool((item[1:] > item[:-1]).all())


def _in_window(tree: Tree, items: Sequence[Item]) -> tuple[list[Array], Array, bool]:
    """The coordinates by stored dimension, and the values, of all entries at the coordinates of these items.

    Also returns True if they are in lexicographic order.
    """
    window = list(map(ascending, items))
    if not _reads_much(tree, items):
        columns, positions = packing.unpack_tree(tree, window=window)
        return columns, np.asarray(items_at(tree.values, positions)), all(level.ordered for level in tree.levels)
    kept: list[list[Array]] = []
    for columns, values in read_blocks(tree, THRESHOLDS.block_entries, positions_within(tree, window[0])):
        there = inside(window, columns)
        kept.append([x[there] for x in (*columns, values)])
    *columns, values = (np.concatenate(x) for x in zip(*kept, strict=True))
    return columns, values, tree.regular


def positions_within(tree: Tree, selected: Positions) -> range:
    """The positions in a file between which the outermost coordinate is selected; all, if that is not known."""
    everything = range(len(tree.values))
    if not tree.regular or not len(selected) or is_everything([selected], tree.dims[:1]):
        return everything
    coordinate = outermost(tree)
    first = bisect_left(everything, int(selected[0]), key=coordinate)
    return range(first, bisect_right(everything, int(selected[-1]), lo=first, key=coordinate))


def _reads_much(tree: Tree, items: Sequence[Item]) -> bool:
    """Return True if the fibers of a file that a selection crosses have many more children than it contains.

    Then entries are read in blocks. The numbers assume that entries are spread evenly.
    """
    if not tree.lazy or len(tree.values) <= THRESHOLDS.block_entries:
        return False
    window = list(map(ascending, items))
    if not all(map(len, window)):
        return False
    steps = list(tree.walk())
    crossed = selected = 1.0  # the share of the positions whose fibers are read, and of those in the window
    for (place, arrays, n), below in itertools.zip_longest(steps, steps[1:]):
        children = len(tree.values) if below is None else below[2]
        within = window[place.depth : place.depth + place.level.rank]
        crossed = selected
        if within and n * crossed <= THRESHOLDS.searched_fibers:  # those between the ends of the window are read
            crossed *= (int(within[0][-1]) - int(within[0][0]) + 1) / place.dims[0]
        selected *= math.prod(len(x) / size for x, size in zip(within, place.dims, strict=True))
        computed = not arrays or place.level.padded  # children that are not listed are not read
        if not computed and children * (crossed - selected) > THRESHOLDS.block_entries:
            return True
    return False


def _remaining(level: Level, rank: int) -> Level | None:
    """A level with only `rank` dimensions, at least one; None for a list of coordinates.

    None is returned for a rank that the kind cannot have, and for a kind that may refuse a part of its entries.
    """
    try:
        return None if level.refuses else replace(level, rank=rank)
    except FormatError:
        return None


def _load_fibers(view: View, steps: Sequence[_Step], items: Sequence[Item], dims: tuple[int, ...]) -> Tree | None:
    """The tree of a view, loaded fiber by fiber; None if the fibers of a level cannot be copied."""
    tree = view.tree
    positions: Positions = range(1)
    made: dict[str, Array] = {}
    for place, arrays, n, at, window, target, names, how in steps:
        level = place.level
        if window is None:
            window = list(map(_coordinates if how == "cells" else ascending, items[at]))
        if how == "cells":
            positions = level.reached(arrays, place.dims, positions, window)
            continue
        if how == "listed":
            pointers, coords, positions = listed(tree, place, arrays, n, positions, window)
            if target is not None:
                columns = [
                    places_in(item, x)[0].astype(x.dtype, copy=False)
                    for item, x in zip(items[at], coords, strict=True)
                    if not isinstance(item, int)
                ]
                sizes = dims[target.depth : target.depth + target.level.rank]
                stored = columns[0] if place.pointer is None else arrays[place.pointer]
                dtype = stored.dtype  # computed coordinates are int64
                split, _ = target.level.split(sizes, fitted(pointers, dtype), columns, distinct=True)
                local = packing.narrowed(target, split, dtype)
            elif not (np.diff(pointers) == 1).all():
                return None
        else:
            local, children, fibers = part_of(tree, place, arrays, n, positions, window)
            if children is None:  # in memory, or read whole
                if (part := level.part(local, place.dims, fibers, window)) is None:
                    return None
                local, children = part
            positions = children
            if how == "cut":
                if (cut := level.cut(local, place.dims, window)) is None:
                    return None
                local, positions = cut[0], through(positions, cut[1])
        for role, name in names:
            made[name] = array = local[role]
            array.setflags(write=False)
    if tree.iso:
        values = repeat_one(np.asarray(tree.values[:1]), len(positions))
    else:
        values = np.asarray(items_at(tree.values, positions))
        values.setflags(write=False)
    return Tree(view.format.levels, dims, made, values, tree.iso)
