"""Selection of parts of a tensor: by index, by name and label, and slabs along a dimension."""

from __future__ import annotations

import datetime
import difflib
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ..engine.blocks import read_slab, slab_ranges
from ..engine.views import broadcast, parse_key, pick
from ..errors import LabelError, LimitError, OptionError, Problem
from ..formats.format import coordinates
from ..levels.positions import Array, match
from ..limits import as_integer
from .backing import packed
from .changing import with_entries
from .contents import Contents, dimension_of, labels_of
from .labels import Column
from .views import selected

T = TypeVar("T", bound=Contents)

_MAX_COMPARED = 2**14  # labels whose spelling is compared with an unknown label
_MAX_SUGGESTED = 3  # labels in an error
_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)


def select(tensor: Contents, key: Any) -> Any:
    """`tensor[key]`."""
    shape = tensor._backing.shape
    if type(key) is tuple and len(key) == len(shape) and list(map(type, key)) == [int] * len(key):
        return _cell(tensor, key)
    indices, array_first = parse_key(key, shape)
    kinds = list(map(type, indices))
    arrays = [index for index in indices if isinstance(index, np.ndarray)]
    if arrays and slice not in kinds and max(x.ndim for x in arrays) == 1:
        points = broadcast(indices, shape)
        _hold(tensor, points[0].size * tensor.dtype.itemsize)
        return values_at(tensor, points)
    if len(arrays) > 1 or (arrays and arrays[0].ndim > 1):
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


def _hold(tensor: Contents, size: int) -> None:
    """Raise LimitError if a selection by index arrays takes more than the limit `dense_bytes`."""
    if size > (most := tensor.limits.dense_bytes):
        what = f"index arrays of {size} bytes for all cells, more than the limit dense_bytes={most}"
        raise LimitError(Problem("key", f"{what}; select in parts, or one dimension after the other: t[rows][:, cols]"))


def _gather(tensor: T, indices: Sequence[Any], array_first: bool) -> T:
    """The entries at index arrays and slices: a view for an open mesh, else a list of coordinates."""
    named = [k for k, index in enumerate(indices) if not isinstance(index, slice)]
    points = broadcast([indices[k] for k in named], [tensor.shape[k] for k in named])
    shape, first = points[0].shape, 0 if array_first else named[0]
    if (axes := _mesh(indices, len(shape))) is not None:
        return _outer(tensor, indices, axes, first)
    _hold(tensor, points[0].size * 8 * len(named))
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
    columns[first:first] = np.unravel_index(at, shape) if at.size else [at] * len(shape)
    sizes[first:first] = shape
    return with_entries(part, columns, values[entries], coordinates(len(sizes)), shape=sizes, labels=None)


def _mesh(indices: Sequence[Any], rank: int) -> list[int] | None:
    """The dimension that is selected by each axis of an open mesh of this rank, such as that of `numpy.ix_`.

    None if arrays share an axis, or if there are more axes than arrays: then the arrays list cells.
    """
    axes: list[int | None] = [None] * rank
    single = []
    for k, index in enumerate(indices):
        if isinstance(index, np.ndarray):
            varying = [rank - index.ndim + axis for axis, size in enumerate(index.shape) if size != 1]
            if len(varying) > 1 or (varying and axes[varying[0]] is not None):
                return None
            if varying:
                axes[varying[0]] = k
            else:
                single.append(k)
    if len(single) != axes.count(None):
        return None
    return [single.pop(0) if k is None else k for k in axes]


def _outer(tensor: T, indices: Sequence[Any], axes: Sequence[int], first: int) -> T:
    """A view of the cells at the coordinates of each dimension, with the axes of a mesh from dimension `first` on."""
    left = [k for k, index in enumerate(indices) if not isinstance(index, int)]
    for k in reversed(range(len(indices))):  # one array at a time; an integer removes its dimension
        index = indices[k].ravel() if isinstance(indices[k], np.ndarray) else indices[k]
        tensor = view(tensor, [*[slice(None)] * k, index, *[slice(None)] * (tensor.ndim - k - 1)])
    rest = [k for k in left if k not in axes]
    return permuted(tensor, [left.index(k) for k in (*rest[:first], *axes, *rest[first:])])


def permuted(tensor: T, order: Sequence[int]) -> T:
    """The same entries, where dimension k is dimension order[k] of these."""
    labels = tensor._metadata.labels
    kept = None if labels is None else labels.permuted(order)
    return tensor._of(tensor._backing.permuted(order), replace(tensor._metadata, labels=kept))


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


# Dimensions by name, and coordinates by label


def sel(tensor: Contents, labels: Mapping[Any, Any]) -> Any:
    """`Tensor.sel`."""
    at = {dimension_of(tensor, key): (key, label) for key, label in labels.items()}
    if len(at) < len(labels):
        raise OptionError(Problem("sel", f"{list(labels)!r:.60} has a dimension twice; name each once"))
    if not at:
        return select(tensor, ...)
    for k in sorted(at, reverse=True):  # from the last, as an integer removes its dimension
        name, label = at[k]
        index = _index(labels_of(tensor, k), tensor.shape[k], label, str(name))
        whole = [slice(None)] * (tensor.ndim - 1)
        alone = isinstance(index, int) and not whole
        tensor = select(tensor, index) if alone else view(tensor, [*whole[:k], index, *whole[k:]])
    return tensor


def _index(column: Column | None, size: int, label: Any, name: str) -> int | slice | Array:
    """The coordinates of a label, of several labels, or of a slice with both its ends."""
    known = None if column is None else column.array()
    if isinstance(label, slice):
        return _range(known, size, label, name)
    label = np.asarray(label)[()] if getattr(label, "ndim", 1) == 0 else label  # an array of one label
    several = hasattr(label, "__iter__") and not isinstance(label, str | bytes)
    labels = (label.to_pylist() if hasattr(label, "to_pylist") else list(label)) if several else [label]
    coords = _coordinates(known, size, labels)
    for one, found in zip(labels, coords, strict=True):
        if not len(found):
            raise LabelError(Problem(name, f"no label {_shown(one)}{_suggestion(known, size, one)}"))
    if several:
        return np.concatenate([np.empty(0, np.int64), *coords])
    return int(coords[0][0]) if len(coords[0]) == 1 else coords[0]


def _coordinates(known: Array | None, size: int, labels: Sequence[Any]) -> list[Array]:
    """The coordinates that have each label."""
    if known is None:
        numbers = map(as_integer, labels)
        return [np.array([] if x is None or not 0 <= x < size else [x], np.int64) for x in numbers]
    ascending = bool((known[:-1] <= known[1:]).all())
    order = np.arange(len(known)) if ascending else np.argsort(known, kind="stable")
    order = order[: np.count_nonzero(known == known)]  # NaN and NaT are last, and equal no label
    coords = []
    for label in labels:
        nearest = _nearest(label, known.dtype)
        if nearest is None or nearest[1]:
            coords.append(order[:0])
        else:  # numpy's searchsorted does not find long strings
            ends = [side(order, nearest[0], key=known.__getitem__) for side in (bisect_left, bisect_right)]
            coords.append(order[slice(*ends)])
    return coords


def _range(known: Array | None, size: int, labels: slice, name: str) -> slice | Array:
    """The coordinates with labels from one label to another, inclusive."""
    if labels.step is not None:
        raise OptionError(Problem(name, "a slice of labels has no step; slice the result"))
    dtype = np.dtype(np.int64) if known is None else known.dtype
    first, last = _end(labels.start, dtype, name), _end(labels.stop, dtype, name, upper=True)
    if known is None:  # coordinates are their own labels
        begin = 0 if first is None else first[0] + (first[1] < 0)
        end = size if last is None else last[0] + (last[1] <= 0)
        return slice(max(int(begin), 0), max(int(end), 0))
    inside = np.ones(len(known), bool)
    if first is not None:
        inside &= known > first[0] if first[1] < 0 else known >= first[0]
    if last is not None:
        inside &= known < last[0] if last[1] > 0 else known <= last[0]
    coords = np.flatnonzero(inside)
    if not len(coords):
        return slice(0, 0)
    contiguous = coords[-1] - coords[0] < len(coords)
    return slice(int(coords[0]), int(coords[-1]) + 1) if contiguous else coords


def _end(label: Any, dtype: np.dtype[Any], name: str, *, upper: bool = False) -> tuple[Any, int] | None:
    """The end of a slice as `_nearest` returns it; None if the slice has none. A string for times is a period."""
    if label is None:
        return None
    if dtype.kind == "M" and upper and isinstance(label, str) and (begin := _as_time(label)) is not None:
        unit: Any = np.datetime_data(begin.dtype)[0]
        item, order = _nearest_time(begin + np.timedelta64(1, unit), dtype)
        return item, order or 1  # the period has ended there
    if (nearest := _nearest(label, dtype)) is None:
        raise LabelError(Problem(name, f"{_shown(label)} is not of the type of its labels, {dtype}"))
    return nearest


def _nearest(label: Any, dtype: np.dtype[Any]) -> tuple[Any, int] | None:
    """The item of a type that is nearest to a label; None for a label of another type.

    The number is -1 if the item is less than the label, 0 if they are equal, and 1 if the item is greater.
    """
    if dtype.kind == "T":
        return (label, 0) if isinstance(label, str) and label.encode(errors="ignore").decode() == label else None
    if dtype.kind == "M":
        return None if (time := _as_time(label)) is None else _nearest_time(time, dtype)
    if not isinstance(label, _NUMBERS) or label != label:
        return None
    number: Any = label.item() if isinstance(label, np.generic) else label
    if dtype.kind == "f":
        most = float(np.finfo(dtype).max)
        item = dtype.type(number if abs(number) == math.inf else min(max(number, -most), most))
    else:
        least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        item = dtype.type(min(max(number, least), most))
    return item, (item.item() > number) - (item.item() < number)


def _nearest_time(time: Any, dtype: np.dtype[Any]) -> tuple[Any, int]:
    item = time.astype(dtype)
    if item.astype(time.dtype) == time:
        return item, 0
    if np.promote_types(time.dtype, dtype) != dtype:
        return item, -1  # the beginning of its day, of its second …
    later = time.astype(np.int64) > 0  # later than all times of the type
    return np.int64(2**63 - 1 if later else 1 - 2**63).view(dtype), -1 if later else 1


def _as_time(label: Any) -> Any:
    """A string, a date or a time as a numpy.datetime64, in UTC if it has a zone; None for anything else."""
    try:
        if hasattr(label, "to_datetime64"):  # pandas has nanoseconds
            label = label.to_datetime64()
        elif isinstance(label, datetime.datetime) and label.tzinfo is not None:
            label = label.astimezone(datetime.UTC).replace(tzinfo=None)
        time = np.datetime64(label)
    except (TypeError, ValueError, OverflowError):
        return None
    return time if time == time else None


def _suggestion(known: Array | None, size: int, label: Any) -> str:
    """The labels that are spelled similarly, or the first and the last label."""
    labels: Any = range(size) if known is None else known
    if not len(labels):
        return "; there are none"
    if known is not None and known.dtype.kind == "T" and _nearest(label, known.dtype):  # a typo changes one half only
        folded, half = np.strings.lower(known), len(label) // 2
        first, last = label[: len(label) - half].lower(), label[len(label) - half :].lower()
        alike = known[np.strings.startswith(folded, first) | np.strings.endswith(folded, last or first)]
        if near := difflib.get_close_matches(label, alike[:_MAX_COMPARED].tolist(), _MAX_SUGGESTED):
            return f"; did you mean {' or '.join(map(_shown, near))}?"
    return f"; there are {len(labels):,}, from {_shown(labels[0])} to {_shown(labels[-1])}"


def _shown(label: Any) -> str:
    text = isinstance(label, np.datetime64)  # the item of which may be a number
    return f"{(str(label) if text else label.item() if isinstance(label, np.generic) else label)!r:.60}"
