"""Computations of the kinds with positions and coordinates in numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import kernels
from ..kernels import Array as Array
from ..limits import INT64_MAX
from ..thresholds import THRESHOLDS

# Positions or coordinates: a range if they are contiguous, else an array.
Positions: TypeAlias = range | Array
# For each dimension of a level a range of positive step, or a sorted array of coordinates.
Window: TypeAlias = Sequence[Positions]


def is_everything(window: Window, dims: Sequence[int]) -> bool:
    """Return True if the window covers the dimensions whole.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> is_everything([range(3)], [3]), is_everything([range(1, 3)], [3])
    (True, False)
    """
    for selected, size in zip(window, dims, strict=True):
        if not isinstance(selected, range) or selected != range(size):
            return False
    return True


def inside(window: Window, coords: Sequence[Array]) -> npt.NDArray[np.bool_]:
    """A mask of the coordinates in the window.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> inside([range(1, 9, 2)], [np.array([0, 1, 2, 3])]).tolist()
    [False, True, False, True]
    """
    mask = np.ones(len(coords[0]), bool)
    for selected, x in zip(window, coords, strict=True):
        if isinstance(selected, range) and len(selected) == 1:
            mask &= x == selected.start
        elif isinstance(selected, range):
            mask &= (x >= selected.start) & (x < selected.stop)
            if selected.step != 1:
                mask &= (x.astype(np.int64, copy=False) - selected.start) % selected.step == 0
        else:
            mask &= np.isin(x.astype(np.int64, copy=False), selected)
    return mask


def in_window(
    counts: Array, coords: Sequence[Array], children: Positions, window: Window
) -> tuple[Array, list[Array], Array]:
    """The children of fibers inside the window: pointers, coordinates, positions. counts: of all children by fiber."""
    kept = inside(window, coords)
    pointers = np.append(0, np.cumsum(kept))[np.append(0, np.cumsum(counts))]
    return pointers, [x[kept] for x in coords], as_array(children)[kept]


def as_array(positions: Positions) -> Array:
    """Positions as an int64 array.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> as_array(range(1, 4)).tolist()
    [1, 2, 3]
    """
    if isinstance(positions, range):
        return np.arange(positions.start, positions.stop, positions.step, dtype=np.int64)
    return np.asarray(positions)


def items_at(array: Array, positions: Positions) -> Array:
    """The items at these positions, without a copy if the positions are contiguous.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> items_at(np.array([5, 6, 7]), range(1, 3)).tolist()
    [6, 7]
    """
    if isinstance(positions, range):
        return array[positions.start : positions.stop : positions.step]
    lazy: Any = array
    if isinstance(lazy, np.ndarray):
        if lazy.strides == (0,):  # a broadcast item, which numpy would first repeat
            return np.broadcast_to(lazy[0], len(positions)) if len(positions) else lazy[:0]
        at = as_array(positions)
        return lazy.take(at, mode="clip")  # a third faster than another check of the range
    items: Array = lazy[as_array(positions)]
    return items


def ranges(starts: Array, counts: Array) -> Array:
    """starts[k], starts[k] + 1 …, counts[k] of them, for every k. Precondition: int64.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> ranges(np.array([7, 2]), np.array([2, 3])).tolist()
    [7, 8, 2, 3, 4]
    """
    if counts.sum(dtype=np.float64) >= 2**62:  # an integer would overflow
        raise MemoryError(f"{counts.sum(dtype=object)} coordinates")
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Array = np.arange(total) + np.repeat(starts - ends + counts, counts)
    return numbers


def children_of(pointers: Array, at: Array) -> tuple[Array, Array]:
    """The number of children of each of these fibers, and the children.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> [x.tolist() for x in children_of(np.array([0, 2, 5]), np.array([1]))]
    [[3], [2, 3, 4]]
    """
    first = pointers[at].astype(np.int64)
    counts = pointers[at + 1].astype(np.int64) - first
    return counts, ranges(first, counts)


def as_pointers(counts: int | Array, n: int) -> Array:
    """Pointers to the entries of each of n fibers: from pointers, from counts, or from one count for all.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> [as_pointers(x, 2).tolist() for x in (3, np.array([3, 1]), np.array([0, 3, 4]))]
    [[0, 3, 6], [0, 3, 4], [0, 3, 4]]
    """
    if isinstance(counts, int):
        return np.arange(0, n * counts + 1, counts) if counts else np.zeros(n + 1, np.int64)
    return counts if len(counts) == n + 1 else np.append(0, np.cumsum(counts, dtype=np.int64))


def fitted(pointers: Array, dtype: np.dtype[Any]) -> Array:
    """Pointers in a type, or unchanged if they do not fit."""
    return pointers.astype(dtype, copy=False) if pointers[-1] <= np.iinfo(dtype).max else pointers


def count_owners(owners: Array, n: int, dtype: np.dtype[Any], below: Array | None = None) -> Array:
    """Pointers to the items of each of n owners. Precondition: the items are sorted by owner.

    below: pointers to the children of each item. The result then points to the children of all items of an owner.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> count_owners(np.array([0, 2, 2]), 3, np.dtype(int)).tolist()
    [0, 1, 1, 3]
    >>> count_owners(np.array([0, 2, 2]), 3, np.dtype(int), np.array([0, 5, 6, 9])).tolist()
    [0, 5, 5, 9]
    """
    pointers = np.zeros(n + 1, dtype)
    if len(owners) > THRESHOLDS.counted_entries * n:
        pointers[1:] = owners.searchsorted(np.arange(n, dtype=owners.dtype), "right")
    elif kernels.pays_off(len(owners)):
        ends = None if below is None else words(below[1:])
        kernels.fibers.count_into_pointers(words(owners), ends, slots(pointers))
        return pointers
    else:
        pointers[1:] = np.bincount(signed(owners), minlength=n).cumsum()  # faster than with out=
    return pointers if below is None else below[signed(pointers)]


def firsts(columns: Sequence[Array]) -> Array:
    """A mask of the entries that differ from the one before in any column."""
    first, *others = columns
    new = np.empty(len(first), bool)
    new[:1] = True
    np.not_equal(first[1:], first[:-1], out=new[1:])
    for x in others:
        new[1:] |= x[1:] != x[:-1]
    return new


def repeat_to(items: Array, pointers: Array, count: int) -> Array:
    """Repeat items: items[k] from offset pointers[k] to pointers[k + 1]. Precondition: integers of 32 or 64 bits.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> repeat_to(np.array([7, 8]), np.array([0, 2, 3]), 3).tolist()
    [7, 7, 8]
    """
    if not kernels.pays_off(count):
        offsets = signed(pointers)
        return items.repeat(offsets[1:] - offsets[:-1])
    out = np.empty(count, items.dtype)
    kernels.fibers.fan_out(words(items), words(pointers), slots(out))
    return out


def places_in(items: range | Array, x: Array) -> tuple[Array, Array | None]:
    """The index of each coordinate in `items`. If `items` repeats coordinates, also the numbers of the coordinates to
    repeat, else None.
    """
    if isinstance(items, range):
        if items.step != 1:
            return (x.astype(np.int64) - items.start) // items.step, None
        return (x - np.asarray(items.start, x.dtype) if items.start and len(x) else x), None
    x = x.astype(np.int64, copy=False)
    if (items[1:] > items[:-1]).all():
        few = len(x) <= items.max(initial=0)  # else, a table of all coordinates takes less time than a search for each
        return np.searchsorted(items, x) if few else np.searchsorted(items, np.arange(items[-1:].sum() + 1))[x], None
    order = np.argsort(items, kind="stable")
    first = np.searchsorted(items, x, sorter=order)
    counts = np.searchsorted(items, x, side="right", sorter=order) - first
    if (counts == 1).all():
        return order[first], None
    repeats = np.repeat(np.arange(len(x)), counts)
    place = np.arange(len(repeats)) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[first[repeats] + place], repeats


def match(columns: Sequence[Array], points: Sequence[Array]) -> tuple[Array, Array]:
    """All pairs of an entry and a point with the same coordinates: the numbers of the entries and of the points.

    columns: the coordinates of the entries by dimension; entries are unique. points: those of the points.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> [x.tolist() for x in match([np.array([1, 1, 4]), np.array([0, 2, 0])], [np.array([4, 1]), np.array([0, 1])])]
    [[2], [0]]
    """
    entries, point_ranks = np.arange(len(columns[0]) if len(points[0]) else 0), np.zeros(len(points[0]), np.int64)
    ranks = np.zeros(len(entries), np.int64)  # of each entry's coordinates so far, among those of the points
    for x, point in zip(columns, points, strict=True):
        there, coordinate = np.unique(point, return_inverse=True)
        known, point_ranks = np.unique(point_ranks * len(there) + coordinate, return_inverse=True)
        entries, ranks, place = _found(there, x[entries].astype(np.int64, copy=False), entries, ranks)
        entries, _, ranks = _found(known, ranks * len(there) + place, entries, ranks)
    place, repeats = places_in(point_ranks, ranks)
    return (entries if repeats is None else entries[repeats]), place


def _found(ascending: Array, x: Array, *columns: Array) -> tuple[Array, ...]:
    """The items of the columns at which x is among some ascending numbers, and its index there."""
    at = np.minimum(np.searchsorted(ascending, x), len(ascending) - 1)
    kept = ascending[at] == x
    return *(column[kept] for column in columns), at[kept]


def narrowest(columns: Sequence[Array], sizes: Sequence[int]) -> list[Array]:
    """Coordinates of 64 bits in the narrowest type for each dimension; others unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> [x.dtype.name for x in narrowest([np.array([4]), np.array([4], np.int32)], (5, 5))]
    ['uint8', 'int32']
    """
    types = [
        np.min_scalar_type(max(size - 1, 0)) if x.itemsize == 8 else x.dtype
        for x, size in zip(columns, sizes, strict=True)
    ]
    return [x.astype(dtype, copy=False) for x, dtype in zip(columns, types, strict=True)]


def words(array: Array) -> Array:
    """Integers for kernels that are compiled for few types: unsigned, of 32 or 64 bits, read-only.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> words(np.array([1, 2], np.int8)).dtype
    dtype('uint64')
    """
    wide = array if array.itemsize in (4, 8) and array.dtype.isnative else array.astype(np.int64)
    view = np.ascontiguousarray(wide).view(f"u{wide.itemsize}")
    view.flags.writeable = False
    return view


def signed(array: Array) -> Array:
    """Integers for arithmetic and indexing, not uint64, which numpy and int64 combine to floats."""
    return array.view(np.int64) if array.dtype == np.uint64 else array


def slots(array: Array) -> Array:
    """An array for writing by kernels: unsigned integers of the same size."""
    return array.view(f"u{array.itemsize}")


def times(counts: Array, below: int | Array) -> Array:
    """The product, as Python integers if the sum would overflow int64."""
    most = below if isinstance(below, int) else int(below.max(initial=0))
    if len(counts) * int(counts.max(initial=0)) * most > INT64_MAX:
        counts = counts.astype(object)
    product: Array = counts * below
    return product


def below_fibers(bounds: Array, below: int | Array) -> Array:
    """The sum of `below` over the children bounds[p] … bounds[p + 1] of every fiber.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> below_fibers(np.array([0, 2, 3]), np.array([5, 1, 4])).tolist()
    [6, 4]
    """
    if isinstance(below, int):
        return times(np.diff(bounds.astype(np.int64, copy=False)), below)
    sums: Array = np.diff(np.append(0, np.cumsum(below))[bounds.astype(np.int64, copy=False)])
    return sums


def covered(window: Positions, starts: Array, ends: Array) -> tuple[Array, Array]:
    """The index in the window at which each interval of coordinates (int64) begins, and its number of items there."""
    first, stop = (
        np.clip(-((window.start - x) // window.step), 0, len(window))
        if isinstance(window, range)
        else np.searchsorted(window, x)
        for x in (starts, ends)
    )
    return first, stop - first


def coordinates_at(window: Positions, places: Array) -> Array:
    """The coordinates at these indices of a window."""
    return window.start + places * window.step if isinstance(window, range) else window[places]


def number_cells(dims: Sequence[int], parents: Positions, coords: Sequence[Array]) -> Array:
    """The number p·∏dims + ravel(i) of each entry's cell, as int64. Precondition: that of the last cell fits.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> number_cells([2, 3], range(2), [np.array([0, 1]), np.array([2, 0])]).tolist()
    [2, 9]
    """
    number = as_array(parents).astype(np.int64, copy=False)
    for size, x in zip(dims, coords, strict=True):
        number = number * np.int64(size) + x.astype(np.int64, copy=False)
    return number


def split_cells(dims: Sequence[int], numbers: Array) -> tuple[Array, list[Array]]:
    """The inverse of `number_cells`: the fibers and the coordinates of cells.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> fibers, coords = split_cells([2, 3], np.array([2, 9]))
    >>> fibers.tolist(), [x.tolist() for x in coords]
    ([0, 1], [[0, 1], [2, 0]])
    """
    coords: list[Array] = []
    for size in reversed(dims):
        above = numbers // size
        coords.insert(0, numbers - above * size)
        numbers = above
    return numbers, coords


def in_ranges(starts: Array, counts: Array) -> Positions:
    """`ranges`, as a range if each begins at the end of the one before.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> in_ranges(np.array([2, 4]), np.array([2, 3]))
    range(2, 7)
    """
    size = int(counts.sum())
    if len(starts) and starts[-1] + counts[-1] - starts[0] == size and (starts[1:] == starts[:-1] + counts[:-1]).all():
        return range(int(starts[0]), int(starts[0]) + size)
    if not kernels.pays_off(size):
        return ranges(starts, counts)
    out = np.empty(size, np.int64)
    kernels.fibers.fan_ranges(kernels.readable(starts), kernels.readable(counts), out)
    return out


def cells(dims: Sequence[int]) -> int:
    """The number of coordinates, as a Python integer, which cannot overflow."""
    return math.prod(dims)
