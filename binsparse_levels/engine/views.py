"""Selections of the entries of a tensor, and the parsing of keys that narrow a selection.

A selection has an index for each dimension (an integer, a range or an array), so creating it is O(ndim).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..formats.dtypes import is_masked_array, sound_booleans
from ..levels.base import Array
from ..limits import as_integer

Item: TypeAlias = "int | range | Array"  # an integer, a range with any step, or an array of coordinates


class Selection(NamedTuple):
    """Some cells of a tensor.

    items: the index of each dimension of the tensor. dimensions: the dimension of the tensor at each dimension of the
    selection, without those whose index is an integer. cut: the dimensions of the tensor that are not selected whole,
    in the order in which they were cut.
    """

    items: tuple[Item, ...]
    dimensions: tuple[int, ...]
    cut: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(self.items[k]) for k in self.dimensions)  # type: ignore[arg-type]

    def permuted(self, axes: Sequence[int]) -> Selection:
        """The same cells with dimensions in another order."""
        return self._replace(dimensions=tuple(self.dimensions[k] for k in axes))

    def distinct(self) -> tuple[Selection, dict[int, Array]]:
        """The distinct cells; for each dimension of the selection with repetitions, the count of each coordinate."""
        items, times = list(self.items), {}
        for dimension, k in enumerate(self.dimensions):
            if isinstance(item := items[k], np.ndarray):
                items[k], counts = np.unique(item, return_counts=True)
                if len(counts) < len(item):
                    times[dimension] = counts
        return self._replace(items=tuple(items)), times

    def places(self, coords: Sequence[Any]) -> list[Any]:
        """Convert coordinates in the selection to those in the tensor. coords: integers, or arrays of one shape."""
        whole: list[Any] = list(self.items)
        for k, x in zip(self.dimensions, coords, strict=True):
            item = self.items[k]
            whole[k] = item.start + item.step * x if isinstance(item, range) else item[x]  # type: ignore[index]
        return whole


@functools.lru_cache(256)  # called by each slice
def all_of(shape: tuple[int, ...]) -> Selection:
    """All cells of a tensor."""
    return Selection(tuple(map(range, shape)), tuple(range(len(shape))), ())


# An index → a view

_ALL = slice(None)


def parse_key(key: Any, shape: Sequence[int]) -> tuple[list[Any], bool]:
    """An index for each dimension (an int, a slice, or an array of integers in range), with numpy's rules.

    A mask of several dimensions becomes an array for each. The second result is True if a slice or an ellipsis
    separates integers and arrays, which numpy treats differently. Raises IndexError where numpy does, and for keys that
    would add dimensions.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> parse_key((..., -1), (2, 3))
    ([slice(None, None, None), -1], False)
    """
    if type(key) is slice and shape:
        return [key, *[_ALL] * (len(shape) - 1)], False
    items = [_parse_item(item) for item in (key if isinstance(key, tuple) else (key,))]
    gaps = [k for k, item in enumerate(items) if item is Ellipsis]
    if len(gaps) > 1:
        raise IndexError("an index has one ellipsis at most")
    together = [k for k, item in enumerate(items) if item is not Ellipsis and not isinstance(item, slice)]
    separated = bool(together) and together[-1] - together[0] >= len(together)
    missing = len(shape) - sum((_is_mask(item) and item.ndim) or 1 for item in items) + len(gaps)
    if missing < 0:
        raise IndexError(f"too many indices: the tensor has {len(shape)} dimensions, {len(shape) - missing} are given")
    at = gaps[0] if gaps else len(items)
    items[at : at + len(gaps)] = [_ALL] * missing
    indices: list[Any] = []
    for item in items:
        sizes = shape[len(indices) :]
        if _is_mask(item):
            if item.shape != tuple(sizes[: item.ndim]):
                raise IndexError(f"a mask of shape {item.shape} for dimensions of sizes {tuple(sizes[: item.ndim])}")
            indices += item.nonzero()
        else:
            indices.append(_in_range(item, len(indices), sizes[0]) if isinstance(item, np.ndarray) else item)
    return indices, separated


def _is_mask(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype.kind == "b"


def _parse_item(item: Any) -> Any:
    """An int, a slice, an ellipsis, or an array of integers or booleans. Raises IndexError for anything else."""
    if type(item) is int or type(item) is slice or item is Ellipsis:
        return item
    if not (isinstance(item, np.ndarray) and item.ndim) and (number := as_integer(item)) is not None:
        return number
    if is_masked_array(item) and np.ma.is_masked(item):
        raise IndexError("an index array has masked items; leave them out")
    try:
        array = sound_booleans(np.asarray(item))
    except ValueError as error:
        raise IndexError(f"an index that is no array: {error}") from None
    if item is None or (array.ndim == 0 and array.dtype.kind == "b"):
        raise IndexError(f"{item!r} would add a dimension; pass an array for a mask")
    if not array.size and not isinstance(item, np.ndarray):  # an empty list has no type
        return array.astype(np.int64)
    if array.dtype.kind not in "biu" or not array.ndim:
        what = f"expected integers, slices, arrays of integers or a mask, got {array.dtype}"
        use = "tensor.isel(key)" if isinstance(item, dict) else "tensor.sel({axis: label})"
        raise IndexError(f"{what}; use {use}")
    return array


def _in_range(array: Array, dimension: int, size: int) -> Array:
    """The coordinates of an index array, without negative ones. Raises IndexError."""
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
        picked = item[index]  # type: ignore[index]
    except IndexError:
        raise _out_of_bounds(index, dimension, len(item)) from None  # type: ignore[arg-type]
    if isinstance(picked, range):
        if len(picked) < 2:  # its step may exceed numpy's integers
            return range(picked[0], picked[0] + 1) if picked else range(0)
        return picked
    return int(picked) if isinstance(picked, np.integer) else picked


def narrowed(selection: Selection, indices: Sequence[Any], *, separated: bool = False) -> Selection:
    """A selection of a selection. Precondition: the arguments are results of `parse_key`, with at most one array."""
    items, (_, dimensions, cut) = list(selection.items), selection
    for dimension, index in enumerate(indices):
        if index is _ALL:
            continue
        k = selection.dimensions[dimension]
        item = items[k]
        if isinstance(index, np.ndarray):
            assert not isinstance(item, int)
            places = item.step * index if isinstance(item, range) and item.step != 1 else index
            items[k] = item.start + places if isinstance(item, range) else item[index]
        else:
            items[k] = picked = pick(item, index, dimension)
            if isinstance(picked, range):
                if picked == item:
                    continue
            elif isinstance(picked, int):
                dimensions = tuple([other for other in dimensions if other != k])
        if k not in cut:
            cut = (*cut, k)
    # As in numpy, integers next to an array count as arrays, and the common dimension of separated ones comes first.
    arrays = [d for d, index in enumerate(indices) if isinstance(index, np.ndarray)] if separated else None
    if arrays:
        k = selection.dimensions[arrays[0]]
        dimensions = (k, *[other for other in dimensions if other != k])
    return Selection(tuple(items), dimensions, cut)


def broadcast(indices: Sequence[Any], shape: Sequence[int]) -> list[Array]:
    """Broadcast arrays and integers to int64 arrays of one shape. Raises IndexError.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> [x.tolist() for x in broadcast([np.array([0, 1]), -1], (2, 3))]
    [[0, 1], [2, 2]]
    """
    placed = [
        index if isinstance(index, np.ndarray) else pick(range(size), index, k)
        for k, (index, size) in enumerate(zip(indices, shape, strict=True))
    ]
    try:
        return list(np.broadcast_arrays(*placed))
    except ValueError as error:
        raise IndexError(f"index arrays do not fit together: {error}") from None
