"""A matrix by rows as dense blocks (BSR), and back, without the sort that other maps need."""

from __future__ import annotations

import numpy as np

from .. import kernels
from ..engine.tree import Tree, check_dense, index_dtype
from ..formats.format import Format, parse_format
from ..formats.index_map import IndexMap
from ..levels.positions import Array
from ..limits import Limits

BLOCKS = parse_format("dense, sparse, dense(2)")  # through a map
_ROWS = parse_format("CSR")


def block_of(format: Format, map: IndexMap | None) -> tuple[int, int] | None:
    """The height and width of the blocks of a format and map that are BSR; None for others."""
    if map is None or len(map.shape) != 2 or map.padded or format.canonical() != BLOCKS.canonical():
        return None
    height, width = map.stored_shape[2:]
    return (height, width) if height and width and map == IndexMap.blocks(map.shape, (height, width)) else None


def converts(rows: Format, tree: Tree) -> bool:
    """Return True if the format is CSR, and kernels move the values of the tree as words."""
    plain = not tree.iso and tree.values.dtype.itemsize in (1, 2, 4, 8)
    return plain and rows.canonical() == _ROWS.canonical() and kernels.pays_off(len(tree.values))


def blocked(tree: Tree, format: Format, block: tuple[int, int], pad: Array, limits: Limits) -> Tree:
    """The blocks of a tree CSR that have entries. pad: the value of their other cells. Raises LimitError."""
    (rows, columns), (height, width) = tree.dims, map(np.uint64, block)
    dims = rows // block[0], columns // block[1], *block
    entries = [kernels.readable(tree.arrays[name]) for name in ("pointers_to_1", "indices_1")]
    dtype = index_dtype(dims, len(tree.values))
    slots, pointers = np.full(dims[1], -1, np.int64), np.zeros(dims[0] + 1, dtype)
    blocks = np.empty(len(tree.values), dtype)
    kernels.blocks.list_blocks(*entries, height, width, slots.view(np.uint64), pointers, blocks)
    blocks = blocks[: pointers[-1]].copy()
    size = len(blocks) * block[0] * block[1]
    check_dense(size, len(tree.values), limits)
    cells = np.full(size, pad, tree.values.dtype)
    kernels.blocks.fill_blocks(*entries, _words(tree.values), height, width, pointers, blocks, slots, _words(cells))
    return Tree(format.levels, dims, {"pointers_to_1": pointers, "indices_1": blocks}, cells)


def listed(tree: Tree, format: Format) -> Tree:
    """All cells of the blocks of a tree BSR as a tree CSR."""
    rows, columns, height, width = tree.dims
    dims, count = (rows * height, columns * width), len(tree.values)
    dtype = index_dtype(dims, count)
    pointers, indices = np.zeros(dims[0] + 1, dtype), np.empty(count, dtype)
    cells = np.empty(count, tree.values.dtype)
    blocks = [kernels.readable(tree.arrays[name]) for name in ("pointers_to_1", "indices_1")]
    sizes = np.uint64(height), np.uint64(width)
    kernels.blocks.list_cells(*blocks, _words(tree.values), *sizes, pointers, indices, _words(cells))
    return Tree(format.levels, dims, {"pointers_to_1": pointers, "indices_1": indices}, cells)


def _words(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
