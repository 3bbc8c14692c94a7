"""Views: a selection of the entries of a tree, the parts that are read for it, and the tree that it becomes.

A view stores one index for each stored dimension (an integer, a range or an array), so creating it is O(ndim). Arrays
may lie in a file: then only the fibers that are needed are read. They are checked, as a level of their own, before
anything is indexed with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..arrays import repeat_one
from ..errors import ArrayError, Problem, raise_if
from ..formats.dtypes import sound_booleans
from ..formats.format import Format, in_order
from ..formats.structure import STRUCTURES, in_triangle, read_problems
from ..levels import Level, Place, listing
from ..levels.base import Array, Positions, as_array, items_at
from ..limits import Limits, as_integer
from . import packing
from .packing import Entries
from .tree import Tree, at_name

Item: TypeAlias = "int | range | Array"  # of a dimension: one coordinate, some of any step, any in any order


class View(NamedTuple):
    """Some entries of a tree.

    items: the index of each stored dimension. dimensions: the stored dimension at each dimension of the view; a stored
    dimension whose index is an integer is not among them. order: the dimension of the whole tensor at each stored
    dimension. structure: of the tree; a view expands it.
    """

    tree: Tree
    items: tuple[Item, ...]
    dimensions: tuple[int, ...]
    order: tuple[int, ...]
    structure: str | None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(self.items[k]) for k in self.dimensions)  # type: ignore[arg-type]

    def permuted(self, axes: Sequence[int]) -> View:
        """The same entries with dimensions in another order."""
        return self._replace(dimensions=tuple(self.dimensions[k] for k in axes))

    def format(self) -> Format:
        """The format of the tree without the dimensions that are gone.

        Where a level that was not padded is gone, the level above it, or else below it, becomes sparse. So a view never
        stores more entries than the tree.
        """
        kept = sorted(self.dimensions)
        levels: list[Level] = []
        gone = False
        for level, rank in _ranks(self.tree.levels, kept):
            if rank and level.refuses:  # it may refuse some of its entries, though it holds all
                levels.append(listing(rank))
            elif rank:
                levels.append(level if rank == level.rank else replace(level, rank=rank))
                if gone and len(levels) == 1:
                    levels[0] = _unpadded(levels[0])
            elif not level.padded:
                gone = True
                levels[-1:] = map(_unpadded, levels[-1:])
        return in_order(tuple(levels), [self.dimensions.index(k) for k in kept])


def _unpadded(level: Level) -> Level:
    return listing(level.rank) if level.padded else level


def view_of(tree: Tree, order: tuple[int, ...], structure: str | None) -> View:
    """All entries of a tree, where stored dimension k is dimension order[k]."""
    dimensions = tuple(order.index(k) for k in range(len(order)))
    return View(tree, tuple(range(size) for size in tree.dims), dimensions, order, structure)


def _ranks(levels: Sequence[Level], kept: Sequence[int]) -> list[tuple[Level, int]]:
    """Each level with the number of its dimensions that are kept."""
    found, depth = [], 0
    for level in levels:
        found.append((level, sum(depth <= k < depth + level.rank for k in kept)))
        depth += level.rank
    return found


# An index → a view

_ALL = slice(None)


def parse_key(key: Any, shape: Sequence[int]) -> tuple[list[Any], bool]:
    """An index for each dimension (an int, a slice, or an array of integers in range), as numpy reads the key.

    A mask of several dimensions becomes an array for each. The second answer tells whether a slice or an ellipsis
    stands between integers and arrays, which numpy treats differently. Raises IndexError where numpy would, and for
    keys that would add dimensions.
    """
    if type(key) is slice and shape:
        return [key, *[_ALL] * (len(shape) - 1)], False
    given = [_parse_item(item) for item in (key if isinstance(key, tuple) else (key,))]
    gaps = [k for k, item in enumerate(given) if item is Ellipsis]
    if len(gaps) > 1:
        raise IndexError("an index has one ellipsis at most")
    together = [k for k, item in enumerate(given) if item is not Ellipsis and not isinstance(item, slice)]
    apart = bool(together) and together[-1] - together[0] >= len(together)
    missing = len(shape) - sum((_is_mask(item) and item.ndim) or 1 for item in given) + len(gaps)
    if missing < 0:
        raise IndexError(f"too many indices: the tensor has {len(shape)} dimensions, {len(shape) - missing} are given")
    at = gaps[0] if gaps else len(given)
    given[at : at + len(gaps)] = [_ALL] * missing
    indices: list[Any] = []
    for item in given:
        sizes = shape[len(indices) :]
        if _is_mask(item):
            if item.shape != tuple(sizes[: item.ndim]):
                raise IndexError(f"a mask of shape {item.shape} for dimensions of sizes {tuple(sizes[: item.ndim])}")
            indices += item.nonzero()
        else:
            indices.append(_in_range(item, len(indices), sizes[0]) if isinstance(item, np.ndarray) else item)
    return indices, apart


def _is_mask(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype.kind == "b"


def _parse_item(item: Any) -> Any:
    """An int, a slice, an ellipsis, or an array of integers or booleans. Raises IndexError for anything else."""
    if type(item) is int or type(item) is slice or item is Ellipsis:
        return item
    if (number := as_integer(item)) is not None:
        return number
    if isinstance(item, np.ma.MaskedArray) and np.ma.is_masked(item):
        raise IndexError("an index array has masked items; leave them out")
    try:
        array = sound_booleans(np.asarray(item))
    except ValueError as error:
        raise IndexError(f"an index that is no array: {error}") from None
    if item is None or (array.ndim == 0 and array.dtype.kind == "b"):
        raise IndexError(f"{item!r} would add a dimension, which a view cannot")
    if not array.size and not isinstance(item, np.ndarray):  # a list of nothing tells no type
        return array.astype(np.int64)
    if array.dtype.kind not in "biu" or not array.ndim:
        raise IndexError(f"expected integers, slices, arrays of integers or a mask, got {array.dtype}")
    return array


def _in_range(array: Array, dimension: int, size: int) -> Array:
    """Coordinates of a dimension, none of them negative. Raises IndexError."""
    if not array.size or (array.min() >= 0 and array.max() < size):
        return array.astype(np.int64, copy=False)
    outside = array[(array >= size) | (array < -size)]
    if len(outside):
        raise _out_of_bounds(outside[0], dimension, size)
    array = array.astype(np.int64)
    array[array < 0] += size
    return array


def _out_of_bounds(index: Any, dimension: int, size: int) -> IndexError:
    return IndexError(f"index {index} is out of bounds for dimension {dimension} of size {size}")


def pick(item: Item, index: Any, dimension: int) -> Any:
    """The item of a dimension, indexed once more."""
    try:
        found = item[index]  # type: ignore[index]
    except IndexError:
        raise _out_of_bounds(index, dimension, len(item)) from None  # type: ignore[arg-type]
    if isinstance(found, range) and len(found) < 2:  # whose step may be larger than numpy's numbers
        return range(found[0], found[0] + 1) if found else range(0)
    return int(found) if isinstance(found, np.integer) else found


def narrowed(view: View, indices: Sequence[Any], *, apart: bool = False) -> View:
    """The view of a view. Precondition: `indices` and `apart` are of `parse_key`, with one array at most."""
    items, left = list(view.items), []
    for dimension, (k, index) in enumerate(zip(view.dimensions, indices, strict=True)):
        item = items[k]
        if index is _ALL:
            left.append(k)
            continue
        if isinstance(index, np.ndarray):
            assert not isinstance(item, int)
            items[k] = item.start + item.step * index if isinstance(item, range) else item[index]
        else:
            items[k] = pick(item, index, dimension)
        if not isinstance(items[k], int):
            left.append(k)
    # As numpy has it: integers beside an array are arrays too, and where something stands between them the dimension
    # that they make together comes first.
    arrays = [d for d, index in enumerate(indices) if isinstance(index, np.ndarray)]
    if arrays and apart:
        k = view.dimensions[arrays[0]]
        left = [k, *(other for other in left if other != k)]
    return View(view.tree, tuple(items), tuple(left), view.order, view.structure)


def broadcast(indices: Sequence[Any], shape: Sequence[int]) -> list[Array]:
    """Arrays and integers broadcast against each other, as int64 arrays of one shape. Raises IndexError."""
    placed = [
        index if isinstance(index, np.ndarray) else pick(range(size), index, k)
        for k, (index, size) in enumerate(zip(indices, shape, strict=True))
    ]
    try:
        return list(np.broadcast_arrays(*placed))
    except ValueError as error:
        raise IndexError(f"index arrays do not fit together: {error}") from None


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
            _, _, found = _expand(tree, place, arrays, n, range(position, position + 1), window)
            position = int(found[0]) if len(found) else -1
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
    for place, arrays, n in tree.walk():
        here = coords[place.depth : place.depth + place.level.rank]
        here = here if left is None else [x[left] for x in here]
        if tree.lazy and arrays:
            positions = _locate_in_file(place, arrays, n, positions, here)
        else:
            positions = place.level.locate(arrays, place.dims, positions, here)
        there = positions >= 0
        if not there.all():
            left = np.flatnonzero(there) if left is None else left[there]
            positions = positions[there]
            if not len(left):
                break
    if left is None:
        return positions
    found = np.full(count, -1, np.int64)
    found[left] = positions
    return found


def _locate_in_file(place: Place, arrays: dict[str, Array], n: int, positions: Array, coords: Sequence[Array]) -> Array:
    """`locate` of a level in a file: its fibers at these positions are read and checked."""
    fibers, number = np.unique(positions, return_inverse=True)
    among: Positions = fibers
    if not len(fibers):
        return positions
    if fibers[-1] - fibers[0] == len(fibers) - 1:
        among = range(int(fibers[0]), int(fibers[-1]) + 1)
    local, children, held = part_of(place, arrays, n, among, [np.unique(x) for x in coords])
    found = place.level.locate(local, place.dims, as_array(held)[number], coords)
    there = found >= 0
    found[there] = as_array(_through(children, found[there]))
    return found


# A view → a tree


def load(view: View, format: Format, pad: Any, limits: Limits) -> Tree:
    """The entries of a view as a tree of this format.

    Raises ArrayError for damaged arrays in a file, FormatError for entries that a kind cannot hold, LimitError.
    """
    tree = view.tree
    everything = all(isinstance(x, range) and x == range(n) for x, n in zip(view.items, tree.dims, strict=True))
    if everything and view.structure is None and format.levels == tree.levels:
        whole = tree.loaded() if tree.lazy else tree
        raise_if(ArrayError, whole.check(view.order) if tree.lazy else ())
        return whole
    kept = sorted(view.dimensions)
    dims = tuple(len(view.items[k]) for k in kept)  # type: ignore[arg-type]
    if view.structure is None and (cut := _load_fibers(view, format.levels, dims, kept)) is not None:
        return cut
    columns, values, ordered = _selected(view)
    iso = view.tree.iso and (view.structure is None or not len(values) or bool((values == values[0]).all()))
    one = values[:1] if len(values) else np.zeros(1, values.dtype)
    entries = Entries(dims, tuple(columns), one if iso else values, iso, format.order)
    if ordered and columns:
        return packing.build(format.levels, entries, pad, limits)
    return packing.pack_entries(format.levels, entries, pad, "error", limits)


def _selected(view: View) -> tuple[list[Array], Array, bool]:
    """The entries of a view by its stored dimensions, and whether they are in order."""
    columns, values = _in_window(view.tree, [_window(item) for item in view.items])
    if view.structure is not None:
        columns, values = _with_mirrored(view, columns, values)
    ordered = view.structure is None and all(level.ordered for level in view.tree.levels)
    found: list[Array] = []
    for k, item in enumerate(view.items):
        if isinstance(item, int):
            continue
        x, repeats = _own_coordinates(item, columns[k])
        if repeats is not None:
            columns, values = [c[repeats] for c in columns], values[repeats]
            found = [c[repeats] for c in found]
        ordered &= _ascends(item)
        found.append(x)
    return found, values, ordered


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


def _window(item: Item) -> Positions:
    """The coordinates of an item, ascending."""
    if isinstance(item, int):
        return range(item, item + 1)
    if isinstance(item, range):
        return range(0) if not item else item if item.step > 0 else item[::-1]
    return np.unique(item)


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
    order = np.argsort(item, kind="stable")
    first = np.searchsorted(item, x, sorter=order)
    counts = np.searchsorted(item, x, side="right", sorter=order) - first
    if (counts == 1).all():
        return order[first], None
    repeats = np.repeat(np.arange(len(x)), counts)
    place = np.arange(len(repeats)) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[first[repeats] + place], repeats


def _in_window(tree: Tree, window: Sequence[Positions]) -> tuple[list[Array], Array]:
    """The coordinates by stored dimension, and the values, of all entries in a window, in stored order."""
    positions: Positions = range(1)
    levels = []
    for place, arrays, n in tree.walk():
        here = window[place.depth : place.depth + place.level.rank]
        fibers = len(positions)
        counts, coords, positions = _expand(tree, place, arrays, n, positions, here)
        ends = np.arange(1, fibers + 1) * counts if isinstance(counts, int) else np.cumsum(counts, dtype=np.int64)
        levels.append((coords, ends))
    return packing.columns_of(levels, len(positions)), np.asarray(items_at(tree.values, positions))


def _expand(
    tree: Tree, place: Place, arrays: dict[str, Array], n: int, positions: Positions, window: Sequence[Positions]
) -> tuple[int | Array, list[Array], Positions]:
    """`expand`. Arrays in a file are read and checked first."""
    if not tree.lazy or not arrays:
        return place.level.expand(arrays, place.dims, positions, window)
    local, children, fibers = part_of(place, arrays, n, positions, window)
    counts, coords, below = place.level.expand(local, place.dims, fibers, window)
    return counts, coords, _through(children, below)


def part_of(
    place: Place, arrays: dict[str, Array], n: int, positions: Positions, window: Sequence[Positions]
) -> tuple[dict[str, Array], Positions | None, Positions]:
    """The part of a level in a file that these fibers need, read and checked.

    Returns its arrays; its children, as positions of the whole level (None: the level was read whole); and the
    positions of the fibers in the part.
    """
    level, dims = place.level, place.dims
    try:
        found = level.part(arrays, dims, positions, window)
        if found is not None:
            local, children = found
            raise_if(ArrayError, level.check(local, dims, len(positions)))
            return local, children, range(len(positions))
    except ArrayError as error:
        raise ArrayError([_in_part(problem, place, positions) for problem in error.problems]) from None
    whole = {role: x[:] for role, x in arrays.items()}
    raise_if(ArrayError, [at_name(problem, place) for problem in level.check(whole, dims, n)])
    return whole, None, positions


def _in_part(problem: Problem, place: Place, positions: Positions) -> Problem:
    """A problem of a part, with the fibers in place of the number of the item, which counts from the part's start."""
    named = at_name(problem, place)
    path, bracket, _ = named.path.partition("[")
    if not bracket or not len(positions):
        return Problem(path, named.message)
    fibers = f"fibers {positions[0]} … {positions[-1]}" if len(positions) > 1 else f"fiber {positions[0]}"
    return Problem(path, f"{named.message} in {fibers}")


def _through(children: Positions | None, below: Positions) -> Positions:
    """Positions of a part as positions of the whole level."""
    if children is None:
        return below
    if isinstance(children, range) and isinstance(below, range):
        return children[below.start : below.stop : below.step]
    return as_array(below) + children.start if isinstance(children, range) else items_at(children, below)


def _load_fibers(view: View, levels: Sequence[Level], dims: Sequence[int], kept: Sequence[int]) -> Tree | None:
    """A tree whose lower levels are copied fiber by fiber. None where entries have to be selected one by one.

    That is where an item does not ascend, where a fiber could become empty, and where positions have gaps.
    """
    tree = view.tree
    restricted = 0  # the dimensions down to the last one of which not everything is wanted
    for k, (item, size) in enumerate(zip(view.items, tree.dims, strict=True)):
        if not (isinstance(item, range) and len(item) == size and item.step == 1):
            if not _ascends(item):
                return None
            restricted = k + 1
    if not all(level.ordered and not level.gaps for level in tree.levels):
        return None
    positions: Positions = range(1)
    made: dict[str, Array] = {}
    fibers, depth, rest = 1, 0, list(levels)  # of the view's tree: positions, dimensions above, levels to come
    for place, arrays, n in tree.walk():
        level, below = place.level, place.depth + place.level.rank
        rank = level.rank if len(kept) == len(tree.dims) else sum(place.depth <= k < below for k in kept)
        if rank and rest[0].padded != level.padded:
            return None
        if place.depth >= restricted:
            found = _whole_fibers(tree, place, arrays, n, positions)
            if found is None:
                return None
            local, positions = found
        elif not arrays:
            positions = level.reach(place.dims, positions, [_window(item) for item in view.items[place.depth : below]])
            local = {}
            if not rank:
                continue
        else:
            if not level.padded and below < restricted:
                return None
            items = view.items[place.depth : below]
            window = [_window(item) for item in items]
            whole = part_of(place, arrays, n, positions, window) if tree.lazy else (arrays, None, positions)
            if rank and (cut := level.cut(whole[0], place.dims, whole[2], window)) is not None:
                local, positions = cut[0], _through(whole[1], cut[1])
            elif rank and level.shares:
                return None
            else:
                counts, coords, positions = level.expand(whole[0], place.dims, whole[2], window)
                positions = _through(whole[1], positions)
                if not rank:  # the level goes
                    if np.any(np.asarray(counts) != 1):
                        return None
                    continue
                own = [
                    _own_coordinates(item, x)[0].astype(x.dtype, copy=False)
                    for item, x in zip(items, coords, strict=True)
                    if not isinstance(item, int)
                ]
                local = rest[0].from_counts(dims[depth : depth + rank], counts, own, fibers)
        made |= {spec.name: local[role] for role, spec in rest[0].arrays(depth, depth == 0).items()}
        fibers = rest[0].size(local, dims[depth : depth + rank], fibers)
        rest, depth = rest[1:], depth + rank
    values = np.asarray(items_at(tree.values, positions[:1] if tree.iso else positions))
    return Tree(tuple(levels), tuple(dims), made, repeat_one(values, fibers) if tree.iso else values, tree.iso)


def _whole_fibers(
    tree: Tree, place: Place, arrays: dict[str, Array], n: int, positions: Positions
) -> tuple[dict[str, Array], Positions] | None:
    """A level of these fibers alone, and the children that they had; None for a kind that cannot be cut."""
    window = [range(size) for size in place.dims]
    if tree.lazy:
        local, children, fibers = part_of(place, arrays, n, positions, window)
        if children is not None:
            return local, children
        arrays, positions = local, fibers
    found = place.level.part(arrays, place.dims, positions, window)
    return found if found is not None else place.level.cut(arrays, place.dims, positions, window)
