"""Preparation of two stored operands: levels for a common walk, parts of large files, and shared metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..engine.tree import Tree
from ..errors import LabelError, Problem
from ..formats.format import Format, in_order
from ..levels import Sparse
from ..levels.positions import Array
from ..tensors.backing import TreeBacking, packed
from ..tensors.changing import expanded
from ..tensors.contents import Metadata
from ..tensors.labels import Column, Labels
from ..tensors.tensor import Tensor
from .cursors import is_walked

_COPIES = 3  # copies of a tensor in memory while it is read, checked and converted


def plain(tensor: Tensor, order: Sequence[int] | None = None) -> Tensor:
    """The same entries in memory, without a map or a structure, in levels of rank 1 that cursors walk.

    order: the order of the stored dimensions; by default unchanged. A tensor in this form is not copied.
    """
    whole = expanded(tensor.load())
    if whole.map is None and (order is None or tuple(order) == whole.format.order):
        split = whole.format.canonical()  # dense levels of one dimension each
        if all(is_walked(level, not d) for d, level in enumerate(split.levels)):
            return whole if split.levels == whole.format.levels else whole.convert(split)
    order = order if order is not None else whole.format.order if whole.map is None else range(whole.ndim)
    return whole.without_map(in_order((Sparse(1),) * whole.ndim, tuple(order)))


def aligned(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both as `plain`, stored in the same order: the tensor with fewer values takes the order of the other."""
    a, b = plain(a), plain(b)
    if a.format.order == b.format.order:
        return a, b
    if len(a._tree.values) < len(b._tree.values):
        return plain(a, b.format.order), b
    return a, plain(b, a.format.order)


def is_large(tensor: Tensor, memory: int) -> bool:
    """Return True if the tensor is in a file and is read in parts."""
    return tensor._source.lazy and 0 not in tensor.shape and _COPIES * tensor.nbytes > memory


def parts_of(tensor: Tensor, k: int, memory: int) -> Iterator[tuple[range, Tensor]]:
    """Parts of a tensor in a file along dimension k, each in memory."""
    return tensor.slabs(k, max_bytes=max(memory // (2 * _COPIES), 1))


def in_parts(tensor: Tensor, k: int, at: int, memory: int, call: Callable[[range, Tensor], Tensor]) -> Tensor:
    """The results for the parts of a tensor along dimension k, concatenated along their dimension `at`."""
    coords: list[Sequence[Array]] = []
    values: list[Array] = []
    size = 0
    for part, slab in parts_of(tensor, k, memory):
        made = call(part, slab)
        listed, items = made.unpack()
        coords.append([x + part.start if d == at else x for d, x in enumerate(listed)])
        values.append(items)
        size += made.shape[at]
    shape = [size if d == at else n for d, n in enumerate(made.shape)]
    whole = [np.concatenate(x) for x in zip(*coords, strict=True)]
    backing = packed(made.format, shape, whole, np.concatenate(values), False, made._pad(), tensor.limits)
    return Tensor._of(backing, Metadata(made.fill_value))


def of_tree(tree: Tree, order: Sequence[int], metadata: Metadata, like: Sequence[Tensor]) -> Tensor:
    """The tensor of a tree whose dimensions are in this order.

    like: the operands. The result has their format if it is the same, of specified levels without a map.
    """
    format = in_order(tree.levels, tuple(order))
    made = Tensor._of(TreeBacking(format, tree, like[0].limits), metadata)
    formats: set[Format | None] = {None if x.map is not None else x.format for x in like}
    shared = formats.pop()
    if formats or shared is None or not all(level.specified for level in shared.levels):
        return made
    return made.convert(shared)


def shared_metadata(a: Tensor, b: Tensor, fill: Any) -> Metadata:
    """The labels of both tensors, and the attributes that are equal in both. Raises LabelError."""
    return Metadata(
        fill,
        _agreed(a.attributes, b.attributes),
        _agreed(a.descriptor_attributes, b.descriptor_attributes),
        shared_labels([(a, range(a.ndim)), (b, range(b.ndim))], a.ndim),
    )


def _agreed(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in a.items() if key in b and b[key] == value}


def shared_labels(operands: Sequence[tuple[Tensor, Sequence[int]]], ndim: int) -> Labels | None:
    """The names and labels of a result of ndim dimensions; None if no operand has any.

    operands: tensors, with the dimension of the result for each of their dimensions, or -1 for a summed one. Raises
    LabelError if labels differ.
    """
    names: list[str | None] = [None] * ndim
    columns: dict[int, Column] = {}
    value = None
    for tensor, dimensions in operands:
        if (labels := tensor._metadata.labels) is None:
            continue
        value = value or labels.values
        for name, k in zip(labels.dims, dimensions, strict=True):
            if k < 0:
                continue
            names[k] = name if names[k] in (None, name) else f"dim_{k}"
            column = labels.columns.get(name)
            if column is not None and not _same(columns.setdefault(k, column), column):
                what = "the operands have different labels here; select the same labels, or remove them by with_labels"
                raise LabelError(Problem(name, what))
    if value is None:
        return None
    dims = [name if name is not None and names.count(name) == 1 else f"dim_{k}" for k, name in enumerate(names)]
    return Labels(tuple(dims), {dims[k]: column for k, column in columns.items()}, value)


def _same(a: Column, b: Column) -> bool:
    if a is b:
        return True
    mine, other = a.array(), b.array()
    return mine.dtype.kind == other.dtype.kind and np.array_equal(mine, other)
