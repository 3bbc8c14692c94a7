"""Dense arrays and trees: marked cells become a tree, the entries of a tree are scattered over an array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import kernels, parallel
from ..levels import Level, full, listing, places
from ..levels.base import DENSE, SPARSE
from ..levels.positions import Array, items_at
from ..limits import Limits
from . import packing
from .tree import Tree, index_dtype

_GATHERED = 4  # bytes that the listing of a cell moves
_SCATTERED = 64  # bytes that an entry moves: a line of the array
_FILLED = 256  # bytes of the array for each entry, up to which a kernel fills it


def gather_tree(
    array: Array, mask: Array, levels: tuple[Level, ...], order: tuple[int, ...], pad: Any, limits: Limits
) -> Tree:
    """A tree of the marked cells, where stored dimension k is dimension order[k] of the array.

    The array is read once, in the order of its memory. The first tree has a sparse level below dense levels; it is
    converted where other levels are wanted. Precondition: at least one dimension and one cell. Raises LimitError,
    FormatError.
    """
    here = order if array.transpose(order).flags.c_contiguous else tuple(range(array.ndim))
    array, mask = (np.ascontiguousarray(x.transpose(here)) for x in (array, mask))
    width = array.shape[-1]
    rows = mask.view(np.uint8).reshape(-1, width)
    parts = [(begin // width, end // width) for begin, end in parallel.shares(mask.size, _GATHERED)]
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
    arrays = {name: pointers if dimension is None else columns for name, _, dimension in last.arrays.values()}
    tree = Tree(own, array.shape, arrays, values)
    turned = [here.index(k) for k in order]
    return tree if direct else packing.convert_tree(tree, levels, turned, pad, limits)


def scatter_tree(tree: Tree, strides: Sequence[int], shape: Sequence[int], blank: Array) -> Array:
    """An array of this shape with the value of every entry at the sum of coordinate * stride, and `blank` elsewhere.

    strides: by stored dimension, in items of the flat array. blank: an array without dimensions, of the values' type.
    """
    # Zeros of the system cost nothing, or one pass of memset. Each line of them that an entry changes is read again,
    # so a kernel fills the cells of many entries itself, while they are in the cache (a tenth: 3.5 ms → 2.8).
    zero = not any(blank.tobytes())
    fits = tree.values.itemsize in (1, 2, 4, 8)
    few = zero and _FILLED * len(tree.values) < math.prod(shape) * tree.values.itemsize
    ascend = all(level.ordered for level in tree.levels) and list(strides) == sorted(strides, reverse=True)
    ahead = fits and ascend and not few
    dense = (np.zeros if zero and not ahead else np.empty)(shape, tree.values.dtype)
    if not (ahead or zero):
        dense[...] = blank
    starts: Array | None = None  # of each position of the level: the sum so far
    *above, (last, coords, pointers, positions) = packing.expand_levels(tree)
    for place, upper, fibers, reached in above:
        sums = _linear(upper, strides[place.depth : place.depth + place.level.rank], len(reached))
        starts = sums if starts is None else np.repeat(starts, np.diff(fibers)) + sums
    starts = np.zeros(1, np.int64) if starts is None else starts
    steps = strides[last.depth :]
    if len(coords) == 1:
        columns, step = coords[0], steps[0]
    else:
        columns, step = _linear(coords, steps, len(positions)), 1
    values = items_at(tree.values, positions)
    if not fits:
        dense.reshape(-1)[np.repeat(starts, np.diff(pointers)) + _linear([columns], [step], len(columns))] = values
        return dense
    word = f"u{values.itemsize}"
    shared = (starts, kernels.readable(pointers), kernels.readable(columns), step, kernels.readable(values).view(word))
    behind = [end for _, end in parallel.shares(len(columns), _SCATTERED)][:-1]
    cuts = [0, *(int(pointers[1:].searchsorted(end)) for end in behind), len(starts)]
    out = dense.reshape(-1).view(word)
    filled = [0, *(int(starts[cut]) for cut in cuts[1:-1]), len(out)] if ahead else [0] * len(cuts)

    def fill(k: int) -> None:
        kernels.dense.scatter(*shared, *cuts[k : k + 2], blank.view(word)[()], *filled[k : k + 2], out)

    parallel.each(fill, range(len(cuts) - 1))
    return dense


def _linear(coords: Sequence[Array], steps: Sequence[int], count: int) -> Array:
    if not coords:
        return np.zeros(count, np.int64)
    total: Array = coords[0].astype(np.int64) * steps[0]
    for x, step in zip(coords[1:], steps[1:], strict=True):
        total += x.astype(np.int64, copy=False) * step
    return total
