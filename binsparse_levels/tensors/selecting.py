"""Selection of parts of a tensor: indexing, and slabs along a dimension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ..engine.blocks import read_slab, slab_ranges
from ..engine.views import broadcast, parse_key, pick
from ..errors import LimitError, OptionError, Problem
from ..formats.format import coordinates
from ..levels.positions import Array, match
from ..limits import as_integer
from .backing import packed
from .changing import with_entries
from .contents import Contents
from .views import selected

T = TypeVar("T", bound=Contents)


def select(tensor: Contents, key: Any) -> Any:
    """`tensor[key]`."""
    shape = tensor._backing.shape
    if type(key) is tuple and len(key) == len(shape) and list(map(type, key)) == [int] * len(key):
        return _cell(tensor, key)
    indices, array_first = parse_key(key, shape)
    kinds = list(map(type, indices))
    arrays = kinds.count(np.ndarray)
    if arrays and slice not in kinds:
        return values_at(tensor, broadcast(indices, shape))
    if arrays > 1 or (arrays and indices[kinds.index(np.ndarray)].ndim > 1):
        return _gather(tensor, indices, array_first)
    if slice in kinds or (not indices and key != ()):
        return view(tensor, indices, array_first)
    return _cell(tensor, indices)


def _cell(tensor: Contents, indices: Sequence[int]) -> Any:
    """The value at integers, which may count from the end."""
    backing = tensor._backing
    cell = [pick(range(size), x, k) for k, (x, size) in enumerate(zip(indices, backing.shape, strict=True))]
    return backing.value_at(cell, tensor._pad())


def view(tensor: T, indices: Sequence[Any], array_first: bool = False) -> T:
    """A view of the cells at an index for each dimension.

    Precondition: the arguments are results of `parse_key`, with one array at most.
    """
    metadata = tensor._metadata
    if metadata.labels is not None:
        metadata = replace(metadata, labels=metadata.labels.selected(indices, array_first, tensor.shape))
    return tensor._of(selected(tensor._backing, indices, array_first), metadata)


def values_at(tensor: Contents, coords: Sequence[Array]) -> Array:
    """The values at coordinates in range, in an array of their shape."""
    flat = [x.ravel() for x in coords]
    return tensor._backing.values_at(flat, tensor._pad()).reshape(coords[0].shape)


def _gather(tensor: T, indices: Sequence[Any], array_first: bool) -> T:
    """The entries at several index arrays and slices, as a list of coordinates."""
    named = [k for k, index in enumerate(indices) if not isinstance(index, slice)]
    points = broadcast([indices[k] for k in named], [tensor.shape[k] for k in named])
    shape = points[0].shape
    part = view(tensor, [index if isinstance(index, slice) else slice(None) for index in indices])
    there, whole = [], [slice(None)] * part.ndim
    for k, point in zip(named, points, strict=True):  # each dimension alone first, which reads less
        coordinates_there, number = np.unique(point.ravel(), return_inverse=True)
        there.append(number)
        part = view(part, [*whole[:k], coordinates_there, *whole[k + 1 :]])
    coords, values = part._backing.entries(part._pad())
    entries, at = match([coords[k] for k in named], there)
    columns = [coords[k][entries] for k in range(len(indices)) if k not in named]
    sizes = [part.shape[k] for k in range(len(indices)) if k not in named]
    first = 0 if array_first else named[0]
    columns[first:first] = np.unravel_index(at, shape) if at.size else [at] * len(shape)
    sizes[first:first] = shape
    return with_entries(part, columns, values[entries], coordinates(len(sizes)), shape=sizes, labels=None)


def slabs(tensor: T, dimension: int, max_bytes: Any) -> Iterator[tuple[range, T]]:
    """`Tensor.slabs` of a tensor without a map and a structure."""
    most = as_integer(max_bytes)
    if most is None:
        raise OptionError(Problem("max_bytes", f"expected a number of bytes, got {max_bytes!r:.40}; give an integer"))
    backing = tensor._backing.best_order([range(1 if k == dimension else size) for k, size in enumerate(tensor.shape)])
    tree, order, pad = backing.perhaps_lazy(tensor._pad()), backing.format.order, tensor._pad()
    k = order.index(dimension)
    planned = all(level.specified for level in tree.levels)  # then the number of entries bounds the bytes of a part
    size, start = tensor.shape[dimension], 0
    plan = slab_ranges(tree, k, most) if planned else iter(())
    width = max(size * most // max(tensor.nbytes, 1), 1)
    key: list[Any] = [slice(None)] * tensor.ndim
    while start < size:
        part = next(plan, range(start, min(start + width, size)))
        key[dimension] = slice(part.start, part.stop)
        slab = view(tensor, key)
        if planned and tree.lazy and k:
            columns, values = read_slab(tree, k, part, max(most // (8 * tensor.ndim + tensor.dtype.itemsize), 1))
            coords = [columns[order.index(d)] for d in range(tensor.ndim)]
            listed = packed(backing.format, slab.shape, coords, values, tree.iso, pad, tensor.limits)
            slab = tensor._of(listed, slab._metadata)
        if slab.nbytes <= most:
            yield part, slab
            start, width = part.stop, 2 * len(part)
        elif len(part) > 1 and not planned:  # the size of some kinds is known only when they are built
            width = len(part) // 2
        else:
            what = f"coordinate {start} of dimension {dimension} takes more than {most} bytes; increase max_bytes"
            raise LimitError(Problem("max_bytes", what))
