"""All cells of a tensor, and its entries in stored order and in that of its coordinates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engine.dense import scatter_tree
from ..engine.tree import same
from ..errors import LimitError, OptionError, Problem
from ..formats.format import coordinates
from ..levels.base import Array
from ..limits import Limits
from .changing import converted, in_order, without_map, without_structure
from .contents import Contents
from .held import Listed


def to_dense(tensor: Contents, rest: Any, limits: Limits) -> Array:
    """`Tensor.to_dense`. rest: the value of cells that are not stored."""
    held = tensor._held
    shape, dtype, size = held.shape, held.dtype, math.prod(held.shape)
    if len(shape) > 64:
        raise LimitError(Problem("shape", f"numpy has no arrays of {len(shape)} dimensions; slice it"))
    limits.hold("dense_bytes", size * dtype.itemsize, "shape", "the size in bytes of the dense array")
    if held.map is not None:
        tensor = without_map(tensor, None, limits)
    if held.structure is not None:
        tensor = without_structure(converted(tensor, coordinates(2), None, tensor.limits))
    stored = tensor._held.own(tensor._pad()).stored
    tree, order = stored.tree, stored.format.order
    if not tree.arrays and len(tree.values) == size:
        cells = tree.values.reshape(tree.dims)
        return np.array(cells.transpose(np.argsort(order)) if order else cells, order="C")
    blank = np.zeros((), dtype)
    blank[...] = rest
    return scatter_tree(tree, [math.prod(shape[k + 1 :]) for k in order], shape, blank)


def entries(tensor: Contents, dtype: str | None, own: npt.DTypeLike = np.int64) -> Listed:
    """`Tensor.unpack`. own: the type of coordinates that are not asked for as they are stored. Raises OptionError."""
    if dtype not in (None, "stored"):
        raise OptionError(Problem("dtype", f"{dtype!r:.40} is no type of coordinates; pass 'stored', or leave it out"))
    return tensor._held.entries(tensor._pad(), own if dtype is None else None)


def equal(a: Contents, b: Contents) -> bool:
    """`Tensor.equals`."""
    if a.shape != b.shape:
        return False
    try:
        with np.errstate(invalid="ignore"):  # NaN may be of the kind that signals
            if not same(a._pad(), b._pad()):
                return False
            (mine, values), (others, other_values) = in_order(a), in_order(b)
            if len(values) != len(other_values) or not all(map(np.array_equal, mine, others)):
                return False
            return bool(np.all((values == other_values) | ((values != values) & (other_values != other_values))))
    except TypeError:  # types that numpy does not compare
        return False
