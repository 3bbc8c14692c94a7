"""Trees and entries as tensors hold and make them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..engine.packing import Entries
from ..engine.tree import Tree
from ..formats.format import Format
from ..levels.positions import Array


def entries_of(format: Format, shape: Sequence[int], coords: Sequence[Array], values: Array, iso: bool) -> Entries:
    """Entries by stored dimension, for the engine."""
    order = format.order
    return Entries(tuple(shape[k] for k in order), tuple(coords[k] for k in order), values, iso, order)


def one_value(values: Array) -> Array:
    """The value of an iso tensor, as an array without dimensions."""
    return values[0:1].reshape(()) if len(values) else np.zeros((), values.dtype)


def frozen(format: Format, tree: Tree) -> Tree:
    """The tree with read-only arrays, and the levels as they were spelled."""
    arrays = {name: _read_only(array) for name, array in tree.arrays.items()}
    return Tree(format.levels, tree.dims, arrays, _read_only(tree.values), tree.iso)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
