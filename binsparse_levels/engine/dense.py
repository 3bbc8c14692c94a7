"""Dense arrays and trees: gather marked cells into a tree, scatter the entries of a tree into an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import kernels, parallel
from ..levels import Level, full, listing, places
from ..levels.base import DENSE, SPARSE
from ..levels.positions import Array, items_at, repeat_to
from ..limits import Limits
from . import packing
from .tree import Tree, index_dtype

_CELL_BYTES = 4  # moved for each cell


def gather_tree(
    array: Array, mask: Array, levels: tuple[Level, ...], order: tuple[int, ...], pad: Any, limits: Limits
) -> Tree:
    """A tree of the marked cells, where stored dimension k is dimension order[k] of the array.

    The array is read once, in memory order, into a tree with a sparse level below dense levels. This tree is then
    converted to `levels`. Precondition: at least one dimension and one cell. Raises LimitError, FormatError.
    """
    here = order if array.transpose(order).flags.c_contiguous else tuple(range(array.ndim))
    array, mask = (np.ascontiguousarray(x.transpose(here)) for x in (array, mask))
    width = array.shape[-1]
    rows = mask.view(np.uint8).reshape(-1, width)
    parts = [(begin // width, end // width) for begin, end in parallel.shares(mask.size, _CELL_BYTES)]
    counts = np.zeros(len(rows), np.uint64)
    parallel.each(lambda share: kernels.dense.count_in_rows(rows, *share, counts), parts)
    count = int(counts.sum())
    dtype = index_dtype(array.shape, count)
    pointers = np.zeros(len(rows) + 1, dtype)
    np.cumsum(counts, out=pointers[1:], dtype=dtype)
    columns, numbers = np.empty(count, dtype), np.empty(count, np.int64)
    values = np.empty(count, array.dtype)

    def fill(share: tuple[int, int]) -> None:
        kernels.dense.place_in_rows(rows, *share, pointers, columns, numbers)
        begin, end = pointers[share[0]], pointers[share[1]]
        np.take(array.reshape(-1), numbers[begin:end], out=values[begin:end], mode="clip")  # without a buffer

    parallel.each(fill, parts)
    codes = [code for level in levels for code in level.fused() or (None,)]
    direct = here == order and codes == [DENSE] * (array.ndim - 1) + [SPARSE]
    own = levels if direct else full(array.ndim - 1) + listing(1)
    *_, last = places(own, array.shape)
    arrays = {name: pointers if dimension is None else columns for name, _, dimension, _ in last.arrays.values()}
    tree = Tree(own, array.shape, arrays, values)
    turned = [here.index(k) for k in order]
    return tree if direct else packing.convert_tree(tree, levels, turned, pad, limits)


def scatter_tree(tree: Tree, strides: Sequence[int], shape: Sequence[int], blank: Array) -> Array:
    """An array with the value of every entry at the sum of coordinate * stride, and `blank` elsewhere.

    strides: by stored dimension, in items of the flat array. blank: an array without dimensions, of the values' type.
    """
    dense = np.full(shape, blank, tree.values.dtype) if any(blank.tobytes()) else np.zeros(shape, tree.values.dtype)
    *above, (last, coords, pointers, positions) = packing.expand_levels(tree)
    starts = np.zeros(1, np.int64)  # of each fiber of the last level: the sum so far
    for place, upper, fibers, reached in above:
        starts = repeat_to(starts, fibers, len(reached)) + _linear(upper, strides[place.depth :], len(reached))
    steps, values, flat = strides[last.depth :], items_at(tree.values, positions), dense.reshape(-1)
    columns, step = (coords[0], steps[0]) if len(coords) == 1 else (_linear(coords, steps, len(values)), 1)
    if not kernels.pays_off(len(values)) or values.itemsize not in (1, 2, 4, 8):
        flat[repeat_to(starts, pointers, len(values)) + _linear([columns], [step], len(values))] = values
        return dense
    word = f"u{values.itemsize}"
    entries = kernels.readable(pointers), kernels.readable(columns), step, kernels.readable(values).view(word)
    kernels.dense.scatter(starts, *entries, flat.view(word))
    return dense


def _linear(coords: Sequence[Array], steps: Sequence[int], count: int) -> Array:
    """The sum of coordinate * step for each of `count` entries."""
    total = np.zeros(count, np.int64)
    for x, step in zip(coords, steps, strict=False):
        total += x.astype(np.int64, copy=False) * step
    return total
