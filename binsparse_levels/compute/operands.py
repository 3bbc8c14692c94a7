"""Preparation of two stored operands: levels for a common walk, parts of large files, and shared metadata."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..engine.tree import Tree
from ..errors import LabelError, LimitError, Problem
from ..formats.format import Format, in_order
from ..formats.structure import expand
from ..levels import Sparse
from ..levels.positions import Array
from ..log import LOG
from ..tensors.backing import TreeBacking, packed
from ..tensors.changing import expanded
from ..tensors.inside import Metadata
from ..tensors.labels import DEFAULT_NAME, Column, Labels, same_labels
from ..tensors.tensor import Tensor, inside, tensor_of
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
    if len(inside(a).in_memory.values) < len(inside(b).in_memory.values):
        return plain(a, b.format.order), b
    return a, plain(b, a.format.order)


def is_large(tensor: Tensor, memory: int) -> bool:
    """Return True if the tensor is in a file and is read in parts."""
    return inside(tensor).backing.lazy and 0 not in tensor.shape and _COPIES * tensor.nbytes > memory


def outermost(tensor: Tensor) -> int:
    """The dimension along which a tensor is read in parts."""
    return tensor.format.order[0] if tensor.map is None else 0


def parts_of(tensor: Tensor, k: int, memory: int) -> Iterator[tuple[range, Tensor]]:
    """Parts of a tensor in a file along dimension k, each in memory. Raises LimitError."""
    try:
        yield from tensor.slabs(k, max_bytes=max(memory // (2 * _COPIES), 1))
    except LimitError as error:
        what = f"{memory} bytes are too few for a part of an operand: {error}; pass a larger memory="
        raise LimitError(Problem("memory", what)) from None


def blocks_of(tensor: Tensor, memory: int) -> Iterator[tuple[Sequence[Array], Array]]:
    """The entries of a tensor, of both triangles. A large tensor in a file is read in blocks."""
    if not is_large(tensor, memory):
        yield expanded(tensor.load()).unpack()
    elif inside(tensor).backing.viewed:
        k = outermost(tensor)
        for part, slab in parts_of(tensor, k, memory):
            coords, values = slab.unpack()
            yield [x + part.start if d == k else x for d, x in enumerate(coords)], values
    else:
        size = max(memory // (2 * _COPIES * (8 * tensor.ndim + tensor.dtype.itemsize)), 1)
        for coords, values in inside(tensor).backing.blocks(inside(tensor).pad, size):
            yield (coords, values) if tensor.structure is None else expand(tensor.structure, coords, values)


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
    backing = packed(made.format, shape, whole, np.concatenate(values), False, inside(made).pad, tensor.limits)
    return tensor_of(backing, Metadata(made.fill_value))


def of_tree(tree: Tree, order: Sequence[int], metadata: Metadata, like: Sequence[Tensor]) -> Tensor:
    """The tensor of a tree whose dimensions are in this order.

    like: the operands. The result has their format if it is the same, of specified levels without a map.
    """
    format = in_order(tree.levels, tuple(order))
    made = tensor_of(TreeBacking(format, tree, like[0].limits), metadata)
    formats: set[Format | None] = {None if x.map is not None else x.format for x in like}
    shared = formats.pop()
    if formats or shared is None or not all(level.specified for level in shared.levels):
        return made
    return made.convert(shared)


def shared_metadata(operands: Sequence[tuple[Tensor, Sequence[Any]]], kept: Sequence[Any], fill: Any) -> Metadata:
    """The metadata of a result of any operands: the fill value, and all on which the tensors agree.

    operands: tensors, with the index of each of their dimensions, such as a letter. kept: the indices of the result.
    fill: the value of cells that no tensor stores. Raises LabelError if the labels of an index differ.
    """
    tensors = [tensor for tensor, _ in operands]
    attributes = functools.reduce(_agreed, [inside(x).metadata.attributes for x in tensors])
    of_descriptor = functools.reduce(_agreed, [inside(x).metadata.descriptor_attributes for x in tensors])
    return Metadata(fill_or_none(tensors, fill), attributes, of_descriptor, _shared_labels(operands, kept))


def fill_or_none(tensors: Sequence[Tensor], fill: Any) -> Any:
    """The fill value of a result; None if no tensor has one, and it is 0."""
    return None if not fill and all(inside(x).metadata.fill_value is None for x in tensors) else fill


def _agreed(a: Mapping[str, Any], b: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in a.items() if key in b and b[key] == value}


def _shared_labels(operands: Sequence[tuple[Tensor, Sequence[Any]]], kept: Sequence[Any]) -> Labels | None:
    """The names and labels of a result; None if no tensor has any. Raises LabelError.

    A dimension has the name that the first tensor has for it. If it is that of an earlier dimension, it is `dim_1` etc.
    """
    labelled = [(own, indices) for x, indices in operands if (own := inside(x).metadata.labels) is not None]
    if not labelled:
        return None
    names: dict[Any, list[str]] = {}
    columns: dict[Any, Column] = {}
    for labels, indices in labelled:
        for name, index in zip(labels.dims, indices, strict=True):
            if not DEFAULT_NAME.fullmatch(name):
                names.setdefault(index, []).append(name)
            column = labels.columns.get(name)
            if column is not None and not same_labels(columns.setdefault(index, column), column):
                what = "the operands have different labels here; select the same ones, pass one list for both"
                what = (
                    f"{what} to from_table(labels=), or remove those of an operand by with_labels({{{name!r}: None}})"
                )
                raise LabelError(Problem(name, what))
    dims: list[str] = []
    for k, index in enumerate(kept):
        found = names.get(index, [])
        dims.append(found[0] if found and found[0] not in dims else f"dim_{k}")
        if lost := sorted({*found} - {dims[k]}):
            LOG.debug("names: dimension %d of the result is %s, not %s as in an operand", k, dims[k], ", ".join(lost))
    values = {labels.values for labels, _ in labelled}
    value = values.pop() if len(values) == 1 else "value"
    there = {name: columns[index] for name, index in zip(dims, kept, strict=True) if index in columns}
    return Labels(tuple(dims), there, value if value not in dims else "value")
