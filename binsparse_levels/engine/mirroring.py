"""A matrix of which one triangle is stored → the whole matrix, fiber by fiber."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import kernels
from ..levels.base import DENSE, SPARSE, Array
from ..levels.positions import slots, words
from ..limits import Limits
from .packing import convert_tree
from .tree import Tree, index_dtype


def mirror_tree(tree: Tree, mirrored: Callable[[Array], Array], *, above: bool, limits: Limits) -> Tree | None:
    """The tree with the mirror images of its entries off the diagonal; None where entries are better sorted.

    The transposed tree has the mirror images in order. They stand before or behind the entries of each fiber. above:
    the stored triangle is that of the greater coordinates in the last dimension.
    Precondition: the tree is a square matrix, and all its entries lie in the triangle.
    """
    codes = [level.fused() for level in tree.levels]
    size = tree.values.dtype.itemsize
    if codes != [(DENSE,), (SPARSE,)] or tree.iso or size not in (1, 2, 4, 8) or not kernels.worth(len(tree.values)):
        return None
    turned = convert_tree(tree, tree.levels, (1, 0), 0, limits)
    count = 2 * len(tree.values)
    dtype = index_dtype(tree.dims, count)
    specs = tree.places[1].arrays.values()
    names = [next(spec.name for spec in specs if spec.dimension == dimension) for dimension in (None, 0)]

    def as_words(half: Tree, values: Array) -> tuple[Array, ...]:
        pointers, indices = (words(half.arrays[name].astype(dtype, copy=False)) for name in names)
        return pointers, indices, kernels.readable(values).view(f"u{size}")

    halves = as_words(tree, tree.values), as_words(turned, mirrored(turned.values))
    pointers, indices = np.empty(tree.dims[0] + 1, dtype), np.empty(count, dtype)
    values = np.empty(count, tree.values.dtype)
    out = slots(pointers), slots(indices), slots(values)
    entries = int(kernels.fibers.join_halves(*halves[:: -1 if above else 1], above, *out))
    del out  # so that the arrays may change their size
    for x in (indices, values):
        x.resize(entries, refcheck=False)
    return Tree(tree.levels, tree.dims, dict(zip(names, (pointers, indices), strict=True)), values)
