"""A tensor as a dense array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..engine.dense import scatter_tree
from ..errors import LimitError, Problem
from ..formats.format import coordinates
from ..levels.base import Array
from ..limits import Limits
from .changing import convert, expand_structure, without_map
from .contents import Contents
from .validation import checked_fill


def to_dense(self: Contents, fill: Any = None, *, limits: Limits | None = None) -> Array:
    """Return a numpy array of the tensor's shape and type. A structure is expanded.

    Parameters
    ----------
    fill : scalar, optional
        The value of cells that are not stored; by default the fill value, or zero.
    limits : Limits, optional
        `dense_bytes` is the largest size of the array.

    Returns
    -------
    ndarray
        Array of shape `shape` and type `dtype`.

    Raises
    ------
    LimitError
        The array is larger.

    See Also
    --------
    Tensor.unpack : Return the stored entries.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.pack([[0, 2]], [1, 2], 3, "CVEC").to_dense(fill=7).tolist()
    [1, 7, 2]
    """
    backing, limits = self._inside.backing, self.limits if limits is None else limits
    rest = self._inside.pad if fill is None else checked_fill(fill, self.dtype)
    shape, dtype, size = backing.shape, backing.dtype, math.prod(backing.shape)
    if len(shape) > 64:
        raise LimitError(Problem("shape", f"numpy does not support arrays of {len(shape)} dimensions; slice it"))
    limits.hold("dense_bytes", size * dtype.itemsize, "shape", "the size in bytes of the dense array")
    if backing.map is not None:
        self = without_map(self, limits=limits)
    if backing.structure is not None:
        self = expand_structure(convert(self, coordinates(2)))
    stored = self._inside.own.stored
    tree, order = stored.tree.plain, stored.format.order
    if not tree.arrays and len(tree.values) == size:
        cells = tree.values.reshape(tree.dims)
        return np.array(cells.transpose(np.argsort(order)) if order else cells, order="C")
    blank = np.zeros((), dtype)
    blank[...] = rest
    return scatter_tree(tree, [math.prod(shape[k + 1 :]) for k in order], shape, blank)
