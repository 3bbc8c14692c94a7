"""Functions of numpy that move, select, repeat and join the cells of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from ..errors import ArrayError, FormatError, OptionError, Problem
from ..formats.format import coordinates
from ..tensors.changing import expanded, with_entries
from ..tensors.contents import dimension_of
from ..tensors.foreign import as_tensor
from ..tensors.late_imports import late_import
from ..tensors.names import dense_call
from ..tensors.tensor import Tensor, inside, remade
from .arithmetic import broadcast, of_cells

# Selections


def transpose(a: Tensor, axes: Any = None) -> Tensor:
    """`numpy.transpose`."""
    return a.permute(range(a.ndim)[::-1] if axes is None else list(axes))


def swapaxes(a: Tensor, axis1: int, axis2: int) -> Tensor:
    """`numpy.swapaxes`."""
    order = list(range(a.ndim))
    k, other = dimension_of(a, axis1), dimension_of(a, axis2)
    order[k], order[other] = other, k
    return a.permute(order)


def moveaxis(a: Tensor, source: Any, destination: Any) -> Tensor:
    """`numpy.moveaxis`."""
    moved, places = ([dimension_of(a, x) for x in np.atleast_1d(given).tolist()] for given in (source, destination))
    order = [k for k in range(a.ndim) if k not in moved]
    for place, k in sorted(zip(places, moved, strict=True)):
        order.insert(place, k)
    return a.permute(order)


def along(a: Tensor, k: int, index: Any) -> Tensor:
    part: Tensor = a[(slice(None),) * k + (index,)]
    return part


def squeeze(a: Tensor, axis: Any = None) -> Any:
    """`numpy.squeeze`."""
    given = [k for k, n in enumerate(a.shape) if n == 1] if axis is None else np.atleast_1d(axis).tolist()
    axes = {dimension_of(a, k) for k in given}
    for k in axes:
        if a.shape[k] != 1:
            raise ArrayError(Problem("axis", f"dimension {k} has the size {a.shape[k]}, not 1; leave it out"))
    return a[tuple(0 if k in axes else slice(None) for k in range(a.ndim))] if axes else a


def flip(m: Tensor, axis: Any = None) -> Tensor:
    """`numpy.flip`."""
    axes = {dimension_of(m, k) for k in (range(m.ndim) if axis is None else np.atleast_1d(axis).tolist())}
    return m[tuple(slice(None, None, -1 if k in axes else 1) for k in range(m.ndim))] if axes else m


def roll(a: Tensor, shift: int, axis: int) -> Tensor:
    """`numpy.roll` along one dimension. Labels move with their cells."""
    k = dimension_of(a, axis)
    return along(a, k, (np.arange(a.shape[k]) - shift) % max(a.shape[k], 1))


def take(a: Tensor, indices: Any, axis: int) -> Any:
    """`numpy.take` along a dimension."""
    return along(a, dimension_of(a, axis), indices)


def diff(a: Tensor, n: int = 1, axis: int = -1) -> Tensor:
    """`numpy.diff`. The dimension has no labels afterwards."""
    k = dimension_of(a, axis)
    made = a if a.dims is None else a.with_labels({k: None})
    for _ in range(n):
        made = of_cells(np.subtract, along(made, k, slice(1, None)), along(made, k, slice(None, -1)))
    return made


def _triangle(below: bool) -> Callable[..., Tensor]:
    """`numpy.tril` or `numpy.triu`. Cells of the other triangle are not stored."""

    def kept(m: Tensor, k: int = 0) -> Tensor:
        if inside(m).pad or m.ndim < 2:
            name = f"numpy.{'tril' if below else 'triu'}"
            what = "needs two dimensions at least, and 0 in the cells that are not stored"
            raise FormatError(Problem("m", f"{name} {what}; use {dense_call(name, (m, k), {})}"))
        whole = expanded(m.load())
        coords, values = whole.unpack()
        offsets = coords[-1] - coords[-2]
        there = offsets <= k if below else offsets >= k
        format = coordinates(m.ndim) if m.map is not None or whole.format.padded else whole.format
        return with_entries(whole, [x[there] for x in coords], values[there], format)

    return kept


def delete(arr: Tensor, obj: Any, axis: int) -> Tensor:
    """`numpy.delete` along a dimension."""
    k = dimension_of(arr, axis)
    return along(arr, k, np.delete(np.arange(arr.shape[k]), obj))


def split(ary: Tensor, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """`numpy.split`, as views."""
    k = dimension_of(ary, axis)
    return [along(ary, k, part) for part in np.split(np.arange(ary.shape[k]), indices_or_sections)]


# New and repeated dimensions


def expand_dims(a: Tensor, axis: Any) -> Tensor:
    """`numpy.expand_dims`, in memory."""
    ndim = a.ndim + np.size(axis)
    new = normalize_axis_tuple(axis, ndim)
    made: Tensor = a[tuple(None if k in new else slice(None) for k in range(ndim))]
    return made


def repeat(a: Tensor, repeats: Any, axis: int) -> Tensor:
    """`numpy.repeat` along a dimension."""
    k = dimension_of(a, axis)
    return along(a, k, np.repeat(np.arange(a.shape[k]), repeats))


def tile(A: Tensor, reps: Any) -> Tensor:
    """`numpy.tile`."""
    times = np.atleast_1d(reps).tolist()
    made: Tensor = A[(None,) * max(len(times) - A.ndim, 0) + (...,)]
    for k, n in enumerate(times, made.ndim - len(times)):
        made = along(made, k, np.tile(np.arange(made.shape[k]), n))
    return made


def broadcast_to(array: Tensor, shape: Any) -> Tensor:
    """`numpy.broadcast_to`, in memory."""
    sizes = tuple(np.atleast_1d(shape).tolist())
    missing = len(sizes) - array.ndim
    if missing < 0 or any(n not in (1, size) for n, size in zip(array.shape, sizes[missing:], strict=True)):
        raise ArrayError(Problem("shape", f"{array.shape} does not broadcast to {sizes}; reduce it first"))
    return broadcast(array, sizes)


# Joins


def concatenate(arrays: Sequence[Any], axis: int | None = 0, *, dtype: Any = None) -> Tensor:
    """`numpy.concatenate` in memory. Labels along the axis are concatenated if all have some; others must be equal."""
    tensors = [as_tensor(x, copy=False) for x in arrays]
    if not tensors or axis is None:
        raise OptionError(Problem("axis", "expected tensors and a dimension along which they are concatenated"))
    common = np.result_type(*[x.dtype for x in tensors]) if dtype is None else np.dtype(dtype)
    k = dimension_of(tensors[0], axis)
    known = [x for x in tensors if x.dims is not None]
    if 0 < len(known) < len(tensors) and len({x.ndim for x in tensors}) == 1:  # others get their names and labels
        labels = inside(known[0]).metadata.labels
        tensors = [(remade(x, labels=labels) if x.dims is None else x).with_labels({k: None}) for x in tensors]
    stores: list[dict[str, Any]] = [{} for _ in tensors]
    for store, tensor in zip(stores, tensors, strict=True):
        whole = expanded(tensor if tensor.dtype == common else tensor.astype(common))
        if common.kind in "fc" and whole.fill_value == 0:  # or -0.0
            whole = remade(whole, fill_value=common.type(0))
        late_import("write")(store, whole)
    made: Tensor = late_import("open")(stores, axis=k).load()
    return made


def stack(arrays: Sequence[Any], axis: int = 0, *, dtype: Any = None) -> Tensor:
    """`numpy.stack` in memory."""
    tensors = [as_tensor(x, copy=False) for x in arrays]
    if len({x.shape for x in tensors}) != 1:
        raise ArrayError(Problem("arrays", "expected tensors of one shape; call numpy.concatenate for others"))
    k = axis % (tensors[0].ndim + 1)
    return concatenate([expand_dims(x, axis) for x in tensors], k, dtype=dtype)


def vstack(tup: Sequence[Any], *, dtype: Any = None) -> Tensor:
    """`numpy.vstack`."""
    return concatenate([x if np.ndim(x) > 1 else as_tensor(x, copy=False)[None] for x in tup], 0, dtype=dtype)


def hstack(tup: Sequence[Any], *, dtype: Any = None) -> Tensor:
    """`numpy.hstack`."""
    tensors = list(tup)
    return concatenate(tensors, 0 if all(np.ndim(x) == 1 for x in tensors) else 1, dtype=dtype)


def column_stack(tup: Sequence[Any]) -> Tensor:
    """`numpy.column_stack`."""
    return concatenate([x if np.ndim(x) > 1 else as_tensor(x, copy=False)[:, None] for x in tup], 1)


SHAPES: dict[str, Callable[..., Any]] = {
    **{made.__name__: made for made in (transpose, swapaxes, moveaxis, squeeze, flip, roll, take, delete, diff, split)},
    **{made.__name__: made for made in (expand_dims, repeat, tile, broadcast_to)},
    **{made.__name__: made for made in (concatenate, stack, vstack, hstack, column_stack)},
    "tril": _triangle(True),
    "triu": _triangle(False),
}
