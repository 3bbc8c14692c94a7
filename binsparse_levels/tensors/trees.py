"""Trees and entries as tensors hold and make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..arrays import repeat_one
from ..engine.packing import Entries
from ..engine.tree import Tree, count_positions
from ..errors import ArrayError, Problem, raise_if
from ..formats.descriptor import array_classes
from ..formats.format import Format
from ..levels.base import wrong_type
from ..levels.positions import Array
from .validation import checked_array, checked_values


def tree_of(format: Format, shape: Sequence[int], arrays: Mapping[str, npt.ArrayLike], values: npt.ArrayLike) -> Tree:
    """The tree of one's own arrays; a scalar as values stands for all.

    Only lengths and types are checked. Raises ArrayError.
    """
    dims = tuple(shape[k] for k in format.order)
    classes = array_classes(format)
    raise_if(
        ArrayError,
        [Problem(str(name), f"the format {format} has no such array") for name in arrays if name not in classes],
    )
    named = {name: checked_array(arrays[name], name) for name in classes if name in arrays}
    for name, x in named.items():
        if classes[name] == "bool" and wrong_type("bool", x.dtype) is None:
            named[name] = x.view(bool)
    checked = checked_values(values)
    iso = checked.ndim == 0
    count = count_positions(format.levels, dims, named, None if iso else len(checked))
    return Tree(format.levels, dims, named, repeat_one(checked.reshape(1), count) if iso else checked, iso)


def writable(array: Array) -> bool:
    """Whether somebody can write to the memory of an array."""
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    return base is not None and not isinstance(base, bytes)


def entries_of(format: Format, shape: Sequence[int], coords: Sequence[Array], values: Array, iso: bool) -> Entries:
    """Entries by stored dimension, for the engine."""
    order = format.order
    return Entries(tuple([shape[k] for k in order]), tuple([coords[k] for k in order]), values, iso, order)


def one_value(values: Array) -> Array:
    """The value of an iso tensor, as an array without dimensions."""
    return values[0:1].reshape(()) if len(values) else np.zeros((), values.dtype)


def frozen(format: Format, tree: Tree) -> Tree:
    """The tree with read-only arrays, and the levels as they were spelled."""
    if tree.levels is format.levels and True not in [x.flags.writeable for x in (*tree.arrays.values(), tree.values)]:
        return tree
    arrays = {name: _read_only(x) for name, x in tree.arrays.items()}
    return Tree(format.levels, tree.dims, arrays, _read_only(tree.values), tree.iso)


def _read_only(array: Array) -> Array:
    if array.flags.writeable:
        array = array.view()
        array.setflags(write=False)
    return array
