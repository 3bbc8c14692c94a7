"""Selection of parts of a tensor: by index, by name and label, and slabs along a dimension."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ..engine.blocks import read_slab, slab_ranges
from ..engine.views import broadcast, parse_key, pick
from ..errors import BinsparseError, LabelError, LimitError, OptionError, Problem
from ..formats.format import coordinates
from ..levels.positions import Array, match
from ..limits import as_integer
from .backing import packed
from .changing import with_entries
from .contents import Contents, dimension_of, labels_of
from .lookup import FAILURES, plain
from .views import selected

T = TypeVar("T", bound=Contents)

_MAX_COMPARED = 2**14  # labels whose spelling is compared with an unknown label
_MAX_SUGGESTED = 3  # labels in an error
_OPTIONS = {  # of xarray's sel
    "method": "find the nearest label in tensor.labels(dimension), such as by numpy.searchsorted, and pass it",
    "tolerance": "find the nearest label in tensor.labels(dimension), and pass it",
    "drop": "omit it, as the result has no label of a dimension that is selected by one label",
}


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
    tensor = _each(tensor, {k: x.ravel() if isinstance(x, np.ndarray) else x for k, x in enumerate(indices)})
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
    for option in _OPTIONS.keys() & labels.keys() - {*(tensor.dims or ())}:
        raise OptionError(Problem(option, f"sel has no such option; {_OPTIONS[option]}"))

    def index(k: int, key: Any, name: str) -> int | slice | Array:
        column = labels_of(tensor, k)
        lookup = None if column is None else column.lookup
        try:
            return _index(key if lookup is None else lookup.find(key), tensor.shape[k])
        except BinsparseError:
            raise
        except FAILURES as error:
            known = range(tensor.shape[k]) if lookup is None else lookup.labels
            raise LabelError(Problem(name, _failure(known, key, error))) from error

    return _along(tensor, labels, index)


def isel(tensor: Contents, indices: Mapping[Any, Any]) -> Any:
    """`Tensor.isel`."""

    def index(k: int, key: Any, name: str) -> int | slice | Array:
        try:
            return _index(key, tensor.shape[k])
        except (TypeError, ValueError) as error:
            raise IndexError(f"{name}: {error}") from error

    return _along(tensor, indices, index)


def _along(tensor: Contents, keys: Mapping[Any, Any], index: Callable[[int, Any, str], Any]) -> Any:
    """`_each` for keys by dimension. index: the index of a dimension, from its number, its key and its name."""
    at = {dimension_of(tensor, name): (key, str(name)) for name, key in keys.items()}
    if len(at) < len(keys):
        raise OptionError(Problem("sel", f"{list(keys)!r:.60} has a dimension twice; name each once"))
    if not at:
        return select(tensor, ...)
    for key, name in at.values():
        if getattr(key, "dims", ()) not in ((), (name,)):
            raise OptionError(Problem(name, f"does not take the dimensions {key.dims} of a DataArray; pass its values"))
    return _each(tensor, {k: index(k, key, name) for k, (key, name) in at.items()})


def _each(tensor: Any, indices: Mapping[int, Any]) -> Any:
    """The cells at an index for some dimensions, each of which selects alone."""
    for k in sorted(indices, reverse=True):  # from the last, as an integer removes its dimension
        whole = [slice(None)] * (tensor.ndim - 1)
        alone = isinstance(indices[k], int) and not whole
        tensor = select(tensor, indices[k]) if alone else view(tensor, [*whole[:k], indices[k], *whole[k:]])
    return tensor


def _index(key: Any, size: int) -> int | slice | Array:
    """The coordinates at an index along a dimension. Raises IndexError, TypeError, ValueError."""
    if not isinstance(key, slice):
        key = plain(key)
        if isinstance(key, np.ndarray):
            empty = not key.size and key.dtype.kind == "f"  # an empty list has no type
            (coords,), _ = parse_key((key.astype(np.int64) if empty else key,), (size,))
            return coords  # type: ignore[no-any-return]
        if (key := as_integer(key)) is None:
            raise TypeError("expected an integer, a slice, a list of integers or a mask")
    chosen = range(size)[key]
    if isinstance(chosen, int):
        return chosen
    return slice(chosen.start, chosen.stop if chosen.stop >= 0 else None, chosen.step) if chosen else slice(0, 0)


def _failure(known: Any, key: Any, error: Exception) -> str:
    if isinstance(key, slice):
        what = f"no range from {_shown(key.start)} to {_shown(key.stop)}"
        remedy = "unless labels ascend or descend, each end must be a label of one coordinate, or of adjacent ones"
        return f"{what}: {remedy}" if isinstance(error, KeyError) else f"{what}: {error}"
    if isinstance(error, KeyError) and not isinstance(key, str) and np.ndim(key):
        key = error.args[0]
    return f"no label {_shown(key)}" + (_suggestion(known, key) if isinstance(error, KeyError) else f": {error}")


def _suggestion(known: Any, label: Any) -> str:
    """The labels that are spelled similarly, or the first and the last label."""
    if not len(known):
        return "; there are none"
    texts = isinstance(known, np.ndarray) and known.dtype.kind == "T" and isinstance(label, str)
    if texts and label.encode(errors="ignore").decode() == label:  # a typo changes one half only
        folded, half = np.strings.lower(known), len(label) // 2
        first, last = label[: len(label) - half].lower(), label[len(label) - half :].lower()
        alike = known[np.strings.startswith(folded, first) | np.strings.endswith(folded, last or first)]
        if near := difflib.get_close_matches(label, alike[:_MAX_COMPARED].tolist(), _MAX_SUGGESTED):
            return f"; did you mean {' or '.join(map(_shown, near))}?"
    return f"; there are {len(known):,}, from {_shown(known[0])} to {_shown(known[-1])}"


def _shown(label: Any) -> str:
    text = isinstance(label, np.datetime64)  # the item of which may be a number
    return f"{(str(label) if text else label.item() if isinstance(label, np.generic) else label)!r:.60}"
