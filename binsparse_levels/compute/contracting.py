"""Products of two stored tensors with sums over shared indices, by Gustavson's row-by-row algorithm.

One operand is walked in its own format: each of its entries adds a multiple of a row of the other operand. The other
operand is converted to a CSR matrix: the shared indices number its rows, and its remaining indices number its columns.
Each row of the result is summed in a workspace of all columns, with a bit for each column that has an entry.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial, reduce
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np

from .. import kernels, parallel
from ..engine.tree import Tree, index_dtype
from ..errors import LimitError, Problem
from ..formats.format import Format, in_order
from ..levels import Dense, Level, Sparse
from ..levels.positions import Array
from ..limits import INT64_MAX, Limits
from ..tensors.backing import TreeBacking, packed
from ..tensors.changing import expanded
from ..tensors.inside import Metadata
from ..tensors.packing import pack
from ..tensors.tensor import Tensor, inside, tensor_of
from ..thresholds import THRESHOLDS
from .arithmetic import combined
from .cursors import indented
from .nest import Leaf
from .operands import blocks_of, in_parts, is_large, parts_of, plain
from .parts import of_loop
from .seeing import walk_of
from .store import compiled
from .walk import arguments

NONE = "_"  # the only index, of size 1, of a sum over all: a sum of nothing has no entry, and so stays 0 in a product


def summed(tensor: Tensor, letters: str, needed: set[str], work: np.dtype[Any], memory: int) -> tuple[Tensor, str]:
    """The tensor summed over the indices that are not needed, with each letter once, and its letters.

    A large tensor in a file is read in blocks.
    """
    left = "".join(dict.fromkeys(x for x in letters if x in needed))
    if left == letters:
        return tensor, letters
    left = left or NONE
    listed = in_order((Sparse(1),) * len(left), tuple(range(len(left))))
    shape = [tensor.shape[letters.index(x)] if x != NONE else 1 for x in left]

    def part_of(coords: Sequence[Array], values: Array) -> Tensor:
        kept = np.ones(len(values), bool)
        for k, letter in enumerate(letters):
            kept &= coords[k] == coords[letters.index(letter)]
        columns = [coords[letters.index(x)][kept] if x != NONE else np.zeros(np.count_nonzero(kept), int) for x in left]
        return pack(columns, values[kept].astype(work), shape, listed, duplicates="sum", limits=tensor.limits)

    return _added(starmap(part_of, blocks_of(tensor, memory))), left


def _added(parts: Iterable[Tensor]) -> Tensor:
    return reduce(partial(combined, np.add), parts)


def contracted(
    a: Tensor, mine: str, b: Tensor, others: str, kept: set[str], work: np.dtype[Any], memory: int
) -> tuple[Tensor, str]:
    """The product of two tensors, summed over the indices that are not kept, and its letters.

    A large walked operand in a file is read in parts. Precondition: an operand has no letter twice, and each letter is
    kept or belongs to both operands. Raises LimitError.
    """
    swapped = _cost(b, others, a, mine, kept, memory) < _cost(a, mine, b, others, kept, memory)
    rows, letters, other, theirs = (b, others, a, mine) if swapped else (a, mine, b, others)
    first = [x for x in _stored(rows, letters) if x in kept]
    if is_large(other, memory):
        what = f"one operand is read whole, but its {other.nbytes} bytes do not fit {memory}; pass a larger memory="
        raise LimitError(Problem("memory", what))
    if is_large(rows, memory):
        order, loaded = first + [x for x in theirs if x not in letters] or [NONE], other.load()
        k = letters.index((first or _stored(rows, letters))[0])

        def part_of(part: range, slab: Tensor) -> Tensor:
            here = loaded[tuple(slice(part.start, part.stop) if x == letters[k] else slice(None) for x in theirs)]
            made, left = contracted(slab, letters, here, theirs, kept, work, memory)
            return made.permute([left.index(x) for x in order])

        if first:
            whole = in_parts(rows, k, 0, memory, part_of)
        else:
            whole = _added(starmap(part_of, parts_of(rows, k, memory)))
        return whole, "".join(order)
    if not _fits(rows, letters, kept):
        rows = plain(rows, [letters.index(x) for x in first + [x for x in letters if x not in first]])
    if any(level.shares for level in rows.format.levels):
        rows = rows.convert(in_order((Sparse(1),) * rows.ndim, rows.format.order))
    shared = [x for x in letters if x in theirs]
    own = [x for x in theirs if x not in letters]
    matrix = _matrix(other, theirs, shared, own, work)
    made = _rows(rows, [letters.index(x) for x in first], [letters.index(x) for x in shared], matrix, work)
    if matrix.columns is not None:
        made = made._replace(columns=matrix.columns[made.columns])
    left = "".join(first + own) or NONE
    sizes = [other.shape[theirs.index(x)] for x in own]
    shape = [*(rows.shape[letters.index(x)] for x in first), *sizes] or [1]
    root: Level = Dense(1) if len(left) > 1 and first and rows.format.levels[0] == Dense(1) else Sparse(1)
    format = in_order((root, *[Sparse(1)] * (len(left) - 1)), tuple(range(len(left))))
    if first and len(own) == 1:
        backing = TreeBacking(format, _tree(made, format, shape, a.limits), a.limits)
    else:
        columns = np.unravel_index(made.columns.astype(np.int64), sizes) if own else () if first else (made.columns,)
        coords = [*(np.repeat(x, made.counts) for x in made.places), *columns]
        backing = packed(format, shape, coords, made.values, False, work.type(0), a.limits)
    return tensor_of(backing, Metadata()), left


class _Rows(NamedTuple):
    """The rows of a product that have entries, in ascending order.

    columns, values: of all entries. counts: the number of entries of each row. places: the coordinates of the rows, an
    array for each of their dimensions.
    """

    columns: Array
    values: Array
    counts: Array
    places: Array


def _tree(rows: _Rows, format: Format, shape: Sequence[int], limits: Limits) -> Tree:
    """The tree of rows with one dimension of columns."""
    n, count = len(shape) - 1, len(rows.values)
    dtype = index_dtype(shape, count)
    if n == 1 and format.levels[0] == Dense(1):
        ends = np.zeros(shape[0] + 1, dtype)
        ends[rows.places[0] + 1] = rows.counts
        arrays = {"pointers_to_1": np.cumsum(ends, dtype=dtype)}
    else:
        above = in_order(format.levels[:-1], tuple(range(n)))
        numbers = np.arange(len(rows.counts))
        arrays = dict(packed(above, shape[:-1], list(rows.places), numbers, False, 0, limits).tree.arrays)
        arrays[f"pointers_to_{n}"] = np.concatenate([np.zeros(1, dtype), np.cumsum(rows.counts, dtype=dtype)])
    arrays[f"indices_{n}"] = rows.columns.astype(dtype, copy=False)
    return Tree(format.levels, tuple(shape), arrays, rows.values)


def _stored(tensor: Tensor, letters: str) -> list[str]:
    """The letters of the dimensions in the order in which they are stored."""
    return list(letters) if tensor.map is not None else [letters[k] for k in tensor.format.order]


def _fits(rows: Tensor, letters: str, kept: set[str]) -> bool:
    """Return True if a walk over the tensor reaches each row of the result once, in ascending order."""
    if rows.map is not None or rows.structure is not None or inside(rows).backing.viewed:
        return False
    levels, first = rows.format.levels, [x in kept for x in _stored(rows, letters)]
    ends = {sum(level.rank for level in levels[:d]) for d in range(len(levels) + 1)}
    together = sorted(first, reverse=True) == first and sum(first) in ends
    return together and all(level.ordered and level.loop(not d) is not None for d, level in enumerate(levels))


def _cost(rows: Tensor, letters: str, other: Tensor, theirs: str, kept: set[str], memory: int) -> tuple[bool, int]:
    """The cost of walking `rows`: True if the other operand is too large to read whole; the values to convert."""
    converted = 0 if _fits(rows, letters, kept) else inside(rows).backing.positions()
    shared = [x for x in theirs if x in letters]
    is_matrix = len(theirs) == 2 and other.format.alias in ("CSR", "CSC") and _stored(other, theirs)[:1] == shared
    converted += 0 if is_matrix and other.map is None else inside(other).backing.positions()
    return is_large(other, memory), converted


class _Matrix(NamedTuple):
    """An operand as a CSR matrix. strides: the factors of the shared indices in the number of a row.

    rows, columns: the ascending numbers of those that have entries, if the matrix has only those; else None.
    """

    pointers: Array
    indices: Array
    values: Array
    width: int
    strides: Array
    rows: Array | None = None
    columns: Array | None = None


def _matrix(tensor: Tensor, letters: str, shared: Sequence[str], own: Sequence[str], work: np.dtype[Any]) -> _Matrix:
    """An operand as a matrix: `shared` indices number its rows, its `own` number its columns. Raises LimitError."""
    sizes = dict(zip(letters, tensor.shape, strict=True))
    height, width = (math.prod(sizes[x] for x in part) for part in (shared, own))
    if max(height, width) > INT64_MAX:
        what = f"a product over {max(height, width)} combinations of indices exceeds the range of int64; split it"
        raise LimitError(Problem("operands", what))
    strides = np.array([math.prod(sizes[x] for x in shared[k + 1 :]) for k in range(len(shared))], np.uint64)
    whole = expanded(tensor.load())
    most = THRESHOLDS.sizes_per_entry * inside(whole).backing.positions() + THRESHOLDS.extra_sizes
    rows = columns = None
    if len(shared) == len(own) == 1 and max(height, width) <= most:
        order = [letters.index(x) for x in (*shared, *own)]
        csr = whole.without_map(in_order((Dense(1), Sparse(1)), tuple(order)))
    else:
        coords, values = whole.unpack()
        numbers = [
            np.ravel_multi_index([coords[letters.index(x)] for x in part], [sizes[x] for x in part])
            if part
            else np.zeros(len(values), np.int64)
            for part in (shared, own)
        ]
        if height > most:
            rows, numbers[0] = np.unique(numbers[0], return_inverse=True)
        if width > most:
            columns, numbers[1] = np.unique(numbers[1], return_inverse=True)
        height = height if rows is None else len(rows)
        width = width if columns is None else len(columns)
        csr = pack(numbers, values, (height, width), "CSR", limits=tensor.limits)
    arrays, values = csr.arrays, csr.values.astype(work, copy=False)
    pointers, indices = kernels.readable(arrays["pointers_to_1"]), kernels.readable(arrays["indices_1"])
    return _Matrix(pointers, indices, kernels.readable(np.ascontiguousarray(values)), width, strides, rows, columns)


# Bitmaps give the columns of a row in ascending order, without a sort. A bit of `bits0` is a column that has an entry.
# A bit of the next bitmap is a word of this one that is not 0. The last has few words; each row visits all of them.
_BITMAPS = tuple(f"bits{k}" for k in range(4))
_ARGUMENTS = (
    "pointers", "indices", "items", "strides", "numbered",
    *_BITMAPS, "sums", "columns", "out", "counts", "places", "ends",
)  # fmt: skip
_MARK = "; ".join(f"bits{k}[column >> u8({6 * k + 6})] |= u8(1) << (column >> u8({6 * k}) & u8(63))" for k in range(4))
_ADD = f"""
factor = np.{{work}}(value)
for t in range(u8(pointers[row]), u8(pointers[row + u8(1)])):
    column = u8(indices[t])
    if bits0[column >> u8(6)] & u8(1) << (column & u8(63)):
        sums[column] += factor * items[t]
    else:
        sums[column] = factor * items[t]
        {_MARK}
"""


def _list_columns(k: int) -> list[str]:
    """Statements that list the columns in a word of bitmap k, and clear it. bit{k}: the number of a bit of bitmap k."""
    if k < 0:
        return ["columns[to] = bit0", "out[to] = sums[bit0]", "to += u8(1)"]
    bit, left, word = f"bit{k}", f"left{k}", f"bits{k}[bit{k + 1}]"
    each = [f"{bit} = u8(bit{k + 1}) << u8(6) | u8(lowest_bit({left}))", f"{left} &= {left} - u8(1)"]
    return [f"{left}, {word} = {word}, u8(0)", f"while {left} != u8(0):", *indented([*each, *_list_columns(k - 1)])]


_ADD_ROW = ["at = ends[1]", "counts[at] = to - ends[0]", "{places}", "ends[0], ends[1] = to, at + u8(1)"]
_COLUMNS = ["to = ends[0]", "for bit4 in range(u8(len(bits3))):", *indented(_list_columns(3))]
_ROW = "\n".join(["yield", *_COLUMNS, "if to > ends[0]:", *indented(_ADD_ROW)])


def _leaf(first: Sequence[int], shared: Sequence[int], work: str, *, numbered: bool, counts: bool) -> Leaf:
    """The leaf for the entries of the walked operand. counts: it only counts products and rows, as upper bounds."""
    number = " + ".join(f"c{k} * strides[{i}]" for i, k in enumerate(shared)) or "u8(0)"
    lines = [f"row = {number}"]
    each = "ends[0] += u8(pointers[row + u8(1)]) - u8(pointers[row])" if counts else _ADD.format(work=work).strip()
    if numbered:
        lines = [f"number = {number}", "row = u8(np.searchsorted(numbered, number))"]
        lines += ["if row < u8(len(numbered)) and numbered[row] == number:", *indented(each.splitlines())]
    else:
        lines.append(each)
    places = "; ".join(f"places[{i}, at] = c{k}" for i, k in enumerate(first)) or "pass"
    around = "yield\nends[1] += u8(1)" if counts else _ROW.format(places=places)
    return Leaf(_ARGUMENTS, "\n".join(lines), frozenset(first), frozenset((*first, *shared)), around)


def _rows(rows: Tensor, first: Sequence[int], shared: Sequence[int], matrix: _Matrix, work: np.dtype[Any]) -> _Rows:
    """The rows of a product. first, shared: the dimensions of `rows` for a row of the result, and of the matrix."""
    walk, numbered = walk_of(rows), matrix.rows is not None
    tree = walk.tree
    stored, entries = arguments(tree)
    leaves = (_leaf(first, shared, work.name, numbered=numbered, counts=counts) for counts in (True, False))
    count, add = (compiled(tree.levels, walk.seen, leaf, tree.iso, False) for leaf in leaves)
    workers = parallel.get_threads() if first else 1
    parts = max(1, min(THRESHOLDS.parts_per_thread * workers, entries // THRESHOLDS.row_entries)) if workers > 1 else 1
    cuts = [(np.uint64(x.begin), np.uint64(x.end)) for x in of_loop(count, stored[:-1], parts)] if entries else []
    dtype = index_dtype((*rows.shape, matrix.width), 0)
    known = np.empty(0, np.uint64) if matrix.rows is None else matrix.rows.astype(np.uint64)
    given = matrix.pointers, matrix.indices, matrix.values, matrix.strides, known
    none, sizes = np.empty(0, np.uint64), [(matrix.width >> 6 * k + 6) + 1 for k in range(len(_BITMAPS))]

    def results(products: int, most: int) -> _Rows:
        columns, values = np.empty(products, dtype), np.empty(products, work)
        return _Rows(columns, values, np.empty(most, np.int64), np.empty((len(first), most), dtype))

    def run(k: int) -> _Rows:
        ends, bound = np.zeros(2, np.uint64), (*cuts[k], *stored, *walk.arguments, *given)
        count.function(*bound, *[none] * len(_BITMAPS), np.empty(0, work), *results(0, 0), ends)
        products, most = map(int, ends)
        found = results(products if first else min(products, matrix.width), most)
        room = [np.zeros(size, np.uint64) for size in sizes]
        ends[:] = 0
        add.function(*bound, *room, np.empty(matrix.width, work), *found, ends)
        end, met = map(int, ends)
        return _Rows(found.columns[:end], found.values[:end], found.counts[:met], found.places[:, :met])

    made = parallel.each(run, range(len(cuts))) or [results(0, 0)]
    return made[0] if len(made) == 1 else _concatenated(made)


def _concatenated(parts: Sequence[_Rows]) -> _Rows:
    """The rows of all parts, whose entries threads copy."""
    ends = np.cumsum([0, *(len(x.values) for x in parts)]).tolist()
    columns, values = (np.empty(ends[-1], x.dtype) for x in parts[0][:2])

    def copy(k: int) -> None:
        columns[ends[k] : ends[k + 1]], values[ends[k] : ends[k + 1]] = parts[k][:2]

    parallel.each(copy, range(len(parts)))
    counts, places = (np.concatenate(x, axis=-1) for x in list(zip(*parts, strict=True))[2:])
    return _Rows(columns, values, counts, places)
