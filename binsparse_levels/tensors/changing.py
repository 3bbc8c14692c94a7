"""Conversions of tensors: formats, maps, structures and types; sorted entries and dense arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..arrays import repeat_one
from ..engine import packing
from ..engine.dense import scatter_tree
from ..engine.tree import Tree, index_dtype, same
from ..errors import ArrayError, FormatError, LimitError, OptionError, Problem, raise_if
from ..formats.format import Format, FormatLike, coordinates, with_map
from ..formats.index_map import IndexMap, MapLike, parse_map
from ..formats.structure import STRUCTURES, expand, in_triangle, structure_problems, symmetry_problems
from ..levels.base import Array
from ..limits import Limits
from .backing import Listed, TreeBacking, entries_of, one_value, packed
from .blocks import block_of, blocked, converts, listed
from .contents import Contents, labels_of
from .validation import (
    check_value_type,
    checked_fill,
    checked_format,
    checked_values,
    differ,
    fitting_format,
    mirror_problems,
)
from .views import Mapped, around

T = TypeVar("T", bound=Contents)


def with_tree(tensor: T, format: Format, tree: Tree, **changes: Any) -> T:
    """The tensor with another stored tree and the same map. changes: new metadata or a new structure."""
    own = tensor._backing.own(tensor._pad())
    stored = own.stored
    structure = changes.pop("structure", stored.structure)
    made = around(own, TreeBacking(format, tree, stored.limits, structure, shared=stored.shared))
    return tensor._of(made, replace(tensor._metadata, **changes) if changes else tensor._metadata)


def with_entries(
    tensor: T,
    coords: Sequence[Array],
    values: Array,
    format: FormatLike,
    limits: Limits | None = None,
    *,
    shape: Sequence[int] | None = None,
    map: IndexMap | None = None,
    **changes: Any,
) -> T:
    """A tensor of these stored entries through a map. All else is that of `tensor`, except for `changes`."""
    limits = tensor.limits if limits is None else limits
    parsed, sizes = checked_format(format, tensor.shape if shape is None else shape, limits)
    stored = packed(parsed, sizes, coords, values, tensor.iso, tensor._pad(), limits, tensor.structure)
    return tensor._of(stored if map is None else Mapped(stored, map), replace(tensor._metadata, **changes))


def entries(tensor: Contents, dtype: str | None = None, own: npt.DTypeLike = np.int64) -> Listed:
    """`Tensor.unpack`. own: the type of the coordinates if `dtype` is None. Raises OptionError."""
    if dtype not in (None, "stored"):
        raise OptionError(Problem("dtype", f"{dtype!r:.40} is not a type of coordinates; pass 'stored' or None"))
    return tensor._backing.entries(tensor._pad(), own if dtype is None else None)


def permuted(tensor: T, order: Sequence[int]) -> T:
    """`Tensor.permute`."""
    labels = tensor._metadata.labels
    kept = None if labels is None else labels.permuted(order)
    return tensor._of(tensor._backing.permuted(order), replace(tensor._metadata, labels=kept))


def seen_through(tensor: T, map: IndexMap) -> T:
    """`Tensor.with_map`."""
    stored, own = tensor.stored, tensor.map
    whole = map if own is None else map.then(own)
    made = Mapped(stored._backing, whole)
    if whole.stored_shape != stored.shape:
        what = f"stores a tensor of shape {whole.stored_shape}, and this one has {stored.shape}"
        raise FormatError(Problem("map", what))
    return tensor._of(made, replace(stored._metadata, labels=None))


def without_map(tensor: T, format: FormatLike | None, limits: Limits | None) -> T:
    """`Tensor.without_map`."""
    limits = tensor.limits if limits is None else limits
    if tensor.map is None:
        return tensor if format is None else _of_stored(tensor, format, limits)
    if format is None:  # a list of coordinates of rank 0 always has one entry
        format = tensor.format if tensor.ndim == tensor.format.rank == 0 else coordinates(tensor.ndim)
    stored, (rows, _) = tensor.stored, checked_format(format, tensor.shape, limits)
    plain = not tensor._backing.viewed and stored.structure is None
    if plain and block_of(stored.format, tensor.map) and converts(rows, stored._tree):
        return tensor._of(TreeBacking(rows, listed(stored._tree, rows), limits), tensor._metadata)
    return with_entries(tensor, *entries(tensor), format, limits)


def reformatted(tensor: T, format: FormatLike) -> T:
    """The same entries in a format, whose notation may include a map."""
    levels, map = with_map(format, None)
    return without_map(tensor, levels, None) if map is None else converted(tensor, levels, map, tensor.limits)


def converted(tensor: T, format: FormatLike, map: MapLike | None, limits: Limits) -> T:
    """`Tensor.convert`."""
    if map is None:
        return _of_stored(tensor, format, limits)
    target, whole = parse_map(map, tensor.shape), expanded(tensor)
    parsed = fitting_format(format, target.stored_shape, limits)
    if whole.map is None and (block := block_of(parsed, target)) and converts(whole.format, whole._tree):
        stored = TreeBacking(parsed, blocked(whole._tree, parsed, block, tensor._pad(), limits), limits)
        return tensor._of(Mapped(stored, target), whole._metadata)
    coords, values = entries(whole)
    return with_entries(whole, target.forward(coords), values, format, limits, shape=target.stored_shape, map=target)


def _of_stored(tensor: T, format: FormatLike, limits: Limits) -> T:
    """Convert the stored tensor to another format and keep the map."""
    pad = tensor._pad()
    own = tensor._backing.own(pad)
    stored = own.stored
    parsed = fitting_format(format, stored.shape, limits, mapped=own.map is not None)
    order = _order_between(stored.format, parsed)
    if order is None:
        return with_tree(tensor, parsed, stored.tree)
    if stored.structure is not None:
        raise_if(FormatError, mirror_problems(stored.structure, parsed, pad))
        if stored.format.padded:
            return with_entries(tensor, *entries(tensor), parsed, limits)
    made = packing.convert_tree(stored.tree, parsed.levels, order, pad, limits)
    return with_tree(tensor, parsed, made)


@lru_cache(256)
def _order_between(old: Format, new: Format) -> tuple[int, ...] | None:
    """The permutation of stored dimensions from one format to another; None if both store the same bytes."""
    return None if new.canonical() == old.canonical() else tuple(map(old.order.index, new.order))


def astype(tensor: T, dtype: np.dtype[Any]) -> T:
    """`Tensor.astype`."""
    stored = tensor._backing.own(tensor._pad()).stored
    tree = stored.tree.blanked()
    check_value_type(dtype)
    raise_if(FormatError, structure_problems(stored.structure, stored.shape, dtype) if stored.structure else ())
    cast = tree.values.astype(dtype) if not tree.iso else one_value(tree.values).reshape(1).astype(dtype)
    if stored.structure is not None:
        mirrored = STRUCTURES[stored.structure].mirrored
        both = mirrored(tree.values[: len(cast)]).astype(dtype), mirrored(cast)[: len(tree.values)]
        if not np.array_equal(*both, equal_nan=dtype.kind in "fc"):
            what = f"{stored.structure} does not survive a cast to {dtype}; call expand_structure() first"
            raise FormatError(Problem("structure", what))
    values = repeat_one(cast, len(tree.values)) if tree.iso else cast
    fill = None if tensor.fill_value is None else tensor.fill_value.astype(dtype)
    return with_tree(tensor, stored.format, tree.with_values(values, tree.iso), fill_value=fill)


def with_values(tensor: T, values: Any, fill_value: Any) -> T:
    """`Tensor.with_values`."""
    tree, stored = tensor._tree, tensor._backing.own(tensor._pad()).stored
    given = checked_values(values)
    if given.ndim and len(given) != len(tree.values):
        raise ArrayError(Problem("values", f"expected a scalar or {len(tree.values)} values, got {len(given)}"))
    raise_if(FormatError, structure_problems(stored.structure, stored.shape, given.dtype) if stored.structure else ())
    whole = given if given.ndim else repeat_one(given.reshape(1), len(tree.values))
    fill = checked_fill(tensor.fill_value if fill_value is None else fill_value, given.dtype)
    made = with_tree(tensor, stored.format, tree.with_values(whole, not given.ndim), fill_value=fill)
    raise_if(ArrayError, made._backing.stored.diagonal_problems())
    return made


def is_dense(tensor: Contents) -> bool:
    """Return True if all cells are stored, as in a numpy array."""
    return tensor.ndim > 0 and not tensor._source.arrays


def drop_fill(tensor: T) -> T:
    """`Tensor.drop_fill`."""
    pad = tensor._pad()
    stored = tensor._backing.own(pad).stored
    coords, values = stored.entries(pad)
    left = differ(values, pad)
    if left.all():
        return tensor
    kept = [x[left] for x in coords]
    made = packed(stored.format, stored.shape, kept, values[left], tensor.iso, pad, stored.limits)
    return with_tree(tensor, stored.format, made.tree)


# Structures


def without_structure(tensor: T) -> T:
    """`Tensor.expand_structure`."""
    name, format = tensor.structure, tensor.format
    if name is None:
        return tensor
    tree = tensor._tree
    # All mirror images come before or after the entries, in order within each fiber. Only the first stored
    # dimension has to be sorted.
    mirrored_first = STRUCTURES[name].lower != (format.order == (0, 1))
    limits = tensor.limits
    listed = tensor._backing.entries(tensor._pad(), index_dtype(tensor.shape, 2 * len(tree.values)))
    coords, values = expand(name, *listed, mirrored_first=mirrored_first)
    iso = tree.iso and bool(len(values) == 0 or (values == values[0]).all())
    whole = entries_of(format, tensor.shape, coords, values, iso)
    if all(level.ordered for level in format.levels):
        whole = replace(whole, ordered_dims=1, trusted=True)
    made = packing.pack_entries(format.levels, whole, tensor._pad(), "error", limits)
    return with_tree(tensor, format, made, structure=None)


def expanded(tensor: T) -> T:
    """The same matrix without a structure, as a list of coordinates if its format may refuse the mirrored entries."""
    refuses = tensor.structure is not None and any(level.refuses for level in tensor.format.levels)
    return without_structure(_of_stored(tensor, coordinates(tensor.ndim), tensor.limits) if refuses else tensor)


def with_structure(tensor: T, structure: str) -> T:
    """`Tensor.with_structure`."""
    if tensor.map is not None:
        raise FormatError(Problem("map", "a tensor with a map has no structure; call without_map() first"))
    whole = without_structure(tensor)
    raise_if(FormatError, structure_problems(structure, whole.shape, whole.dtype))
    raise_if(FormatError, mirror_problems(structure, whole.format, whole._pad()))
    coords, values = in_order(whole)
    if whole.format.padded:
        coords, values = _without_padding(coords, values, whole._pad())
    raise_if(ArrayError, symmetry_problems(structure, coords, values))
    kept = in_triangle(structure, coords)
    half = with_entries(whole, [x[kept] for x in coords], values[kept], whole.format)
    return with_tree(half, half.format, half._tree, structure=structure)


def _without_padding(coords: tuple[Array, ...], values: Array, pad: object) -> tuple[tuple[Array, ...], Array]:
    """The entries without those that a level stored as padding: they equal it and have no mirror image."""
    i, j = coords
    cells = np.stack([i, j], 1)
    _, number = np.unique(np.concatenate([cells, cells[:, ::-1]]), axis=0, return_inverse=True)
    number = number.reshape(-1)
    alone = ~np.isin(number[len(i) :], number[: len(i)])
    padding = values == pad if pad == pad else values != values
    kept = ~(alone & padding)
    return (i[kept], j[kept]), values[kept]


# Order


def in_order(tensor: Contents) -> Listed:
    """All entries in lexicographic order, the structure expanded."""
    if not tensor.ndim:  # a list of coordinates of rank 0 always has one entry
        return entries(tensor)
    listed = coordinates(tensor.ndim)
    if tensor.structure is None:
        return entries(without_map(tensor, listed, None))
    coords, values = expand(tensor.structure, *entries(tensor))
    unsorted = entries_of(listed, tensor.shape, coords, values, False)
    tree = packing.pack_entries(listed.levels, unsorted, tensor._pad(), "error", tensor.limits)
    return tuple(packing.unpack_tree(tree)[0]), tree.values


def _alike(a: Array, b: Array) -> bool:
    """Return True if all items are equal. NaN equals NaN."""
    return len(a) == len(b) and bool(np.all((a == b) | ((a != a) & (b != b))))


def equal(a: Contents, b: Contents) -> bool:
    """`Tensor.equals`."""
    if a.shape != b.shape:
        return False
    try:
        with np.errstate(invalid="ignore"):  # a NaN may be signaling
            if not same(a._pad(), b._pad()):
                return False
            (mine, values), (others, other_values) = in_order(a), in_order(b)
            columns = zip(*([labels_of(tensor, k) for k in range(tensor.ndim)] for tensor in (a, b)), strict=True)
            return (
                all(map(np.array_equal, mine, others))
                and _alike(values, other_values)
                and all(x is None or y is None or _alike(x.array(), y.array()) for x, y in columns)
            )
    except TypeError:  # numpy does not compare some types
        return False


def to_dense(tensor: Contents, rest: Any, limits: Limits) -> Array:
    """`Tensor.to_dense`. rest: the value of cells that are not stored."""
    backing = tensor._backing
    shape, dtype, size = backing.shape, backing.dtype, math.prod(backing.shape)
    if len(shape) > 64:
        raise LimitError(Problem("shape", f"numpy does not support arrays of {len(shape)} dimensions; slice it"))
    limits.hold("dense_bytes", size * dtype.itemsize, "shape", "the size in bytes of the dense array")
    if backing.map is not None:
        tensor = without_map(tensor, None, limits)
    if backing.structure is not None:
        tensor = without_structure(converted(tensor, coordinates(2), None, tensor.limits))
    stored = tensor._backing.own(tensor._pad()).stored
    tree, order = stored.tree, stored.format.order
    if not tree.arrays and len(tree.values) == size:
        cells = tree.values.reshape(tree.dims)
        return np.array(cells.transpose(np.argsort(order)) if order else cells, order="C")
    blank = np.zeros((), dtype)
    blank[...] = rest
    return scatter_tree(tree, [math.prod(shape[k + 1 :]) for k in order], shape, blank)
