"""Elementwise operators and functions of numpy, for one tensor with numbers and dense arrays, or for two tensors."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ..arrays import repeat_one
from ..errors import ArrayError, OptionError, Problem, within_memory
from ..formats.dictionary import applied
from ..formats.format import coordinates
from ..formats.structure import structure_problems
from ..levels.positions import Array
from ..tensors.changing import expanded, with_tree
from ..tensors.contents import labels_of
from ..tensors.foreign import as_tensor
from ..tensors.names import dense_call, instead_of_name
from ..tensors.packing import pack
from ..tensors.tensor import Tensor, inside, remade, tensor_of
from ..tensors.validation import check_value_type, checked_array, with_memory
from .merging import INLINE, merged
from .nest import Leaf
from .operands import aligned, fill_or_none, in_parts, is_large, of_tree, outermost, shared_metadata
from .seeing import in_memory, walk_of
from .types import DENSE, as_words, number_type
from .walk import MEMORY, run

_Function: TypeAlias = Callable[..., Any]  # a ufunc, or a function of numpy with the attribute __name__

# Functions of two operands. True for an operand: where it is 0 and not stored, the result is 0 for any other operand.
_ZERO: dict[_Function, tuple[bool, bool]] = {
    np.multiply: (True, True), np.logical_and: (True, True), np.bitwise_and: (True, True),
    np.true_divide: (True, False), np.floor_divide: (True, False),
}  # fmt: skip
_REDUCTIONS = {
    np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min",
    np.logical_or: "any", np.logical_and: "all",
}  # fmt: skip
_LINEAR = np.multiply, np.true_divide, np.negative, np.positive  # with real numbers, they preserve every structure


@within_memory
def calculate(function: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """`Tensor.__array_ufunc__`. The fill value of the result is the function of the fill values.

    Cells that are not stored count as 0 if there is no fill value; the result has no fill value either if that gives 0.
    A product with a cell that is not stored is 0 if this cell is 0, and so is such a cell divided by anything: also if
    the other operand is infinite, NaN or zero; a number, an array or a tensor.

    Raises
    ------
    ArrayError
        The shapes do not match, or a tensor cannot have the type of the result.
    OptionError
        Cells that are not stored would have several values, or the function is not elementwise.
    LabelError
        The operands have different labels.
    """
    if options.get("out") is not None:
        raise OptionError(Problem("out", "a tensor is immutable; assign the result, such as a = a + b"))
    if method == "reduce" and function in _REDUCTIONS and options.keys() <= {"axis", "keepdims", "dtype", "out"}:
        return getattr(np, _REDUCTIONS[function])(*inputs, **{"axis": 0, **options})
    unknown = sorted(options.keys() - {"dtype", "casting", "out"})
    name = function.__name__ if method == "__call__" else f"{function.__name__}.{method}"
    if method != "__call__" or function.signature or unknown:
        given = f" with {', '.join(unknown)}" if unknown else ""
        what = f"numpy.{name}{given} does not support a Tensor; use {dense_call(f'numpy.{name}', inputs, options)}"
        raise OptionError(Problem("operands", what))
    if function.nout > 1:
        return tuple(of_cells(_output(function, k), *inputs, **options) for k in range(function.nout))
    return of_cells(function, *inputs, **options)


def of_cells(function: _Function, *inputs: Any, **options: Any) -> Tensor:
    """A function of numpy of each cell of one tensor, numbers and dense arrays, or of two tensors; see `calculate`."""
    operands = [_operand(x, k) for k, x in enumerate(inputs)]
    stored = [k for k, x in enumerate(operands) if isinstance(x, Tensor)]
    if len(stored) == 1:
        return _of_one(function, operands, stored[0], options)
    if len(operands) != 2:
        what = f"numpy.{function.__name__} supports one Tensor only; call to_dense() on the others"
        raise OptionError(Problem("operands", what))
    return combined(function, operands[0], operands[1], options)


def _output(function: np.ufunc, k: int) -> _Function:
    """One result of a function that has several, such as `numpy.modf`."""

    def called(*arrays: Any, **options: Any) -> Any:
        return function(*arrays, **options)[k]

    called.__name__ = function.__name__
    return called


def _operand(thing: Any, k: int) -> Any:
    """An operand as a tensor, an unchanged scalar, or a dense array."""
    if isinstance(thing, Tensor):
        return thing
    thing = with_memory(thing)
    if not isinstance(thing, DENSE):
        return as_tensor(thing, copy=False)
    if np.ndim(thing) == 0:
        return thing[()] if isinstance(thing, np.ndarray) else thing
    return checked_array(thing, f"operands[{k}]")


def _of_fills(function: _Function, operands: Sequence[Any], options: Mapping[str, Any]) -> Array:
    """The function of cells that no operand stores. Its type is that of the result."""
    with np.errstate(all="ignore"):
        pads = [np.full(1, inside(x).pad) if isinstance(x, Tensor) else x for x in operands]
        made: Array = function(*pads, **options)
    check_value_type(made.dtype)
    return np.zeros(made.shape, made.dtype) if True in _stays_zero(function, operands) else made


def _stays_zero(function: _Function, operands: Sequence[Any]) -> list[bool]:
    """For each operand, True if it makes the result 0 where it does not store a cell."""
    zero = zip(operands, _ZERO.get(function, ()), strict=False)
    return [isinstance(x, Tensor) and stays and not inside(x).pad for x, stays in zero]


def _applied(
    function: _Function,
    arrays: Sequence[Any],
    options: Mapping[str, Any],
    dtype: np.dtype[Any],
    *,
    quiet: bool = False,
) -> Array:
    """The function of values. quiet: no warnings, because some values belong to no cell."""
    with np.errstate(all="ignore") if quiet else contextlib.nullcontext():
        return np.asarray(function(*arrays, **options), dtype)


# One tensor


def _of_one(function: _Function, operands: list[Any], at: int, options: Mapping[str, Any]) -> Tensor:
    tensor: Tensor = operands[at]
    dense = [k for k, x in enumerate(operands) if k != at and np.ndim(x)]
    made = _of_fills(function, operands, options)
    dtype = made.dtype
    fill = _fill_with(function, operands, made)
    if dense:
        tensor = in_memory(tensor)
        operands = [_at_entries(x, tensor, k) if k in dense else x for k, x in enumerate(operands)]
    elif tensor.structure is not None and not _keeps(function, operands, tensor.structure, dtype):
        tensor = expanded(tensor.load())
    tree, iso = inside(tensor).in_memory if not dense else inside(tensor).tree, tensor.iso and not dense
    quiet = tensor.map is not None or tree.gaps

    def of(values: Array) -> Array:
        return _applied(function, [*operands[:at], values, *operands[at + 1 :]], options, dtype, quiet=quiet)

    values = repeat_one(of(tree.values[:1]), len(tree.values)) if iso else applied(of, tree.values)
    return with_tree(tensor, tensor.format, tree.with_values(values, iso), fill_value=fill_or_none([tensor], fill))


def _keeps(function: _Function, operands: Sequence[Any], structure: str, dtype: np.dtype[Any]) -> bool:
    """Return True if the function of a matrix and scalars has the structure of the matrix."""
    if [*structure_problems(structure, (1, 1), dtype)]:
        return False
    real = not any(np.iscomplexobj(x) for x in operands if not isinstance(x, Tensor))
    first = isinstance(operands[0], Tensor) or function is np.multiply
    return structure.startswith("symmetric") or (function in _LINEAR and real and first)


def _fill_with(function: _Function, operands: Sequence[Any], made: Array) -> Any:
    """The fill value of a result. made: the function of the fill value, and of the numbers or arrays."""
    if not made.size:
        return np.zeros((), made.dtype)[()]
    first = made.reshape(-1)[0]
    if made.size > 1 and not ((made == first) | ((made != made) & (first != first))).all():
        what = f"cells that are not stored would have several values after numpy.{function.__name__}"
        is_ufunc = isinstance(function, np.ufunc)
        use = f"use {dense_call(f'numpy.{function.__name__}', operands, {})}" if is_ufunc else "call to_dense() first"
        raise OptionError(Problem("operands", f"{what}; {use}"))
    return first


def _at_entries(array: Array, tensor: Tensor, k: int) -> Array:
    """The items of a dense array at the entries of a tensor, after broadcasting."""
    missing = tensor.ndim - array.ndim
    if missing < 0 or any(n not in (1, size) for n, size in zip(array.shape, tensor.shape[missing:], strict=True)):
        what = f"an array of shape {array.shape} does not broadcast to the shape {tensor.shape} of the tensor"
        raise ArrayError(Problem(f"operands[{k}]", f"{what}; reshape it"))
    number_type(tensor.dtype, "values")
    number_type(array.dtype, f"operands[{k}]")
    at = ", ".join("u8(0)" if n == 1 else f"c{missing + d}" for d, n in enumerate(array.shape))
    used = frozenset(missing + d for d, n in enumerate(array.shape) if n != 1)
    leaf = Leaf(("items", "out"), f"out[q] = items[{at}]", frozenset(range(tensor.ndim)), used)
    items = as_words(np.ascontiguousarray(array))
    out = np.zeros(len(inside(tensor).in_memory.values), items.dtype)
    run(walk_of(tensor), leaf, (items,), (out,))
    return out.view(array.dtype)


# Two tensors


def combined(
    function: _Function, a: Tensor, b: Tensor, options: Mapping[str, Any] = {}, memory: int = MEMORY
) -> Tensor:
    """A function of two tensors of the same shape. Large files are read in parts. Raises ArrayError, LabelError."""
    if a.shape != b.shape:
        try:
            shape = np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            labelled = a.dims == b.dims and any(labels_of(a, k) and labels_of(b, k) for k in range(a.ndim))
            remedy = f"use {instead_of_name('align')}" if labelled else "call einsum"
            what = f"tensors of the shapes {a.shape} and {b.shape} do not broadcast to one shape; {remedy}"
            square = ", or pass the same labels for both dimensions to from_table" if b.shape[::-1] == a.shape else ""
            raise ArrayError(Problem("operands", what + square)) from None
        a, b = broadcast(a, shape), broadcast(b, shape)
    made = _of_fills(function, (a, b), options)
    dtype = made.dtype
    metadata = shared_metadata([(x, range(x.ndim)) for x in (a, b)], range(a.ndim), made[0])
    if not a.ndim:
        scalar = function(a.to_dense(), b.to_dense(), **options)
        return tensor_of(inside(pack((), np.asarray([scalar], dtype), (), "element")).backing, metadata)
    large = next((x for x in (a, b) if is_large(x, memory)), None)
    if large is not None:
        k = outermost(large)

        def part_of(part: range, slab: Tensor) -> Tensor:
            key = (*[slice(None)] * k, slice(part.start, part.stop))
            one, two = (slab if x is large else x[key].load() for x in (a, b))
            return combined(function, remade(one, labels=None), remade(two, labels=None), options)

        return tensor_of(inside(in_parts(large, k, k, memory, part_of)).backing, metadata)
    if (same := _same_places(function, a, b, dtype, options)) is not None:
        return tensor_of(inside(same).backing, metadata)
    for k, x in enumerate((a, b)):
        if x.dtype.itemsize > 8:  # smaller values of any type are copied
            number_type(x.dtype, f"operands[{k}].values")
    (one, two), needed = aligned(a, b), _stays_zero(function, (a, b)) or [False, False]
    inline = function.__name__ in INLINE and dtype.kind in "iufc" and dtype.itemsize > 2 and options.keys() <= {"dtype"}
    if inline:
        one, two = (x if x.dtype == dtype else x.astype(dtype) for x in (one, two))
    trees = inside(one).in_memory, inside(two).in_memory
    fills = np.asarray(inside(one).pad), np.asarray(inside(two).pad)
    of_one = any(needed) and not all(needed)
    tree, others = merged(*trees, function.__name__ if inline else "", not all(needed), fills)
    if others is not None:
        tree = tree.with_values(_applied(function, (tree.values, others), options, dtype, quiet=of_one), False)
    if of_one:  # the result has only the cells of this operand
        tree, _ = merged(tree, trees[needed.index(True)], "", False, fills)
    return of_tree(tree, one.format.order, metadata, (a, b))


def broadcast(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The entries of a tensor, repeated along new dimensions and along those of size 1. Raises LimitError."""
    if tensor.shape == shape:
        return tensor
    whole, missing = expanded(tensor.load()), len(shape) - tensor.ndim
    coords, values = whole.unpack()
    grown = [d for d, n in enumerate(shape) if d < missing or n != tensor.shape[d - missing]]
    copies = math.prod(shape[d] for d in grown)
    what = "the size in bytes of an operand after broadcasting"
    tensor.limits.hold("dense_bytes", copies * len(values) * (8 * len(shape) + tensor.dtype.itemsize), "operands", what)
    numbers = dict(zip(grown, np.indices([shape[d] for d in grown]).reshape(len(grown), -1), strict=True))
    columns = [
        np.repeat(numbers[d], len(values)) if d in numbers else np.tile(coords[d - missing], copies)
        for d in range(len(shape))
    ]
    made = pack(columns, np.tile(values, copies), shape, coordinates(len(shape)), fill_value=tensor.fill_value)
    labels = inside(tensor).metadata.labels
    if labels is not None:
        labels = labels.placed(range(missing, len(shape)), len(shape))
        lost = {labels.dims[d] for d in grown}
        labels = replace(labels, columns={name: x for name, x in labels.columns.items() if name not in lost})
    return remade(tensor, inside(made).backing, labels=labels)


def _same_places(function: _Function, a: Tensor, b: Tensor, dtype: np.dtype[Any], options: Mapping[str, Any]) -> Any:
    """The result for tensors that share index arrays, such as `a / a.astype(float)`; None for others."""
    if a.map is not None or b.map is not None or a.structure is not None or b.structure is not None:
        return None
    if a.format.canonical() != b.format.canonical():
        return None
    one, two = inside(a).tree, inside(b).tree
    if any(x is not two.arrays[name] for name, x in one.arrays.items()):
        return None
    values = _applied(function, (one.values, two.values), options, dtype, quiet=one.gaps)
    return with_tree(a, a.format, one.with_values(values, False))
