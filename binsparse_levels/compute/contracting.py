"""Products of two stored tensors with sums over shared indices, by Gustavson's row-by-row algorithm.

One operand is walked in its own format: each of its entries adds a multiple of a row of the other operand. The other
operand is converted to a CSR matrix: the shared indices number its rows, and its remaining indices number its columns.
Each row of the result is summed in a workspace of all columns, with a bit for each column that has an entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
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
from .semirings import NAMES, PLUS_TIMES, Semiring, cast
from .store import compiled
from .walk import arguments

NONE = "_"  # the only index, of size 1, of a sum over all: a sum of nothing has no entry, and so stays 0 in a product


def summed(tensor: Tensor, letters: str, needed: set[str], work: np.dtype[Any], memory: int) -> tuple[Tensor, str]:
    """The tensor summed over the indices that are not needed, with each letter once, and its letters.

    A large tensor in a file is read in blocks.
    """
    left = "".join(dict.fromkeys(x for x in letters if x in needed)) or (NONE if letters else "")
    if left == letters:
        return tensor, letters
    listed = in_order((Sparse(1),) * len(left), tuple(range(len(left))))
    shape = [tensor.shape[letters.index(x)] if x != NONE else 1 for x in left]

    def part_of(coords: Sequence[Array], values: Array) -> Tensor:
        kept = np.ones(len(values), bool)
        for k, letter in enumerate(letters):
            kept &= coords[k] == coords[letters.index(letter)]
        columns = [coords[letters.index(x)][kept] if x != NONE else np.zeros(np.count_nonzero(kept), int) for x in left]
        return pack(columns, values[kept].astype(work), shape, listed, duplicates="sum", limits=tensor.limits)

    return _joined(np.add, starmap(part_of, blocks_of(tensor, memory))), left


def _joined(join: Any, parts: Iterable[Tensor]) -> Tensor:
    return reduce(partial(combined, join), parts)


class Mask(NamedTuple):
    """The cells of a result that are computed: those of a tensor, or all others. letters: of its dimensions."""

    cells: Tensor
    letters: str
    others: bool


class Rules(NamedTuple):
    """The rules of a product. kept: the indices of the result. work: its type. memory: for parts of files."""

    kept: set[str]
    work: np.dtype[Any]
    memory: int
    semiring: Semiring = PLUS_TIMES
    mask: Mask | None = None


def contracted(a: Tensor, mine: str, b: Tensor, others: str, rules: Rules) -> tuple[Tensor, str]:
    """The product of two tensors, summed over the indices that are not kept, and its letters.

    A large walked operand in a file is read in parts. Precondition: an operand has no letter twice; a mask has the
    letters that are kept. Raises LimitError.
    """
    kept, work, memory, semiring, mask = rules
    swapped = _cost(b, others, a, mine, kept, memory) < _cost(a, mine, b, others, kept, memory)
    rows, letters, other, theirs = (b, others, a, mine) if swapped else (a, mine, b, others)
    first = [x for x in _stored(rows, letters) if x in kept]
    if is_large(other, memory):
        what = f"one operand is read whole, but its {other.nbytes} bytes do not fit {memory}; pass a larger memory="
        raise LimitError(Problem("memory", what))
    if is_large(rows, memory):
        order, loaded = first + [x for x in theirs if x in kept and x not in letters] or [NONE], other.load()
        k = letters.index((first or _stored(rows, letters))[0])

        def part_of(part: range, slab: Tensor) -> Tensor:
            window = {letters[k]: slice(part.start, part.stop)}
            here = _windowed(loaded, theirs, window)
            cells = mask and mask._replace(cells=_windowed(mask.cells, mask.letters, window))
            pair = (here, theirs, slab, letters) if swapped else (slab, letters, here, theirs)
            made, left = contracted(*pair, rules._replace(mask=cells))
            return made.permute([left.index(x) for x in order])

        if first:
            whole = in_parts(rows, k, 0, memory, part_of)
        else:
            whole = _joined(semiring.join, starmap(part_of, parts_of(rows, k, memory)))
        return whole, "".join(order)
    if not _fits(rows, letters, kept):
        rows = plain(rows, [letters.index(x) for x in first + [x for x in letters if x not in first]])
    if any(level.shares for level in rows.format.levels):
        rows = rows.convert(in_order((Sparse(1),) * rows.ndim, rows.format.order))
    shared = [x for x in letters if x in theirs]
    own = [x for x in theirs if x in kept and x not in letters]
    matrix = _matrix(other, theirs, shared, own, work)
    cells = None if mask is None else _matrix(mask.cells, mask.letters, first, own, np.dtype(bool))
    numbered = [x is not None and x.rows is not None for x in (matrix, cells)]
    dimensions = [letters.index(x) for x in first], [letters.index(x) for x in shared]
    leaves = partial(_leaf, *dimensions, rules, swapped, numbered)
    made = _rows(rows, leaves, len(first), matrix, cells, rules)
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
    return tensor_of(backing, Metadata(semiring.identity(work) or None)), left


def _windowed(tensor: Tensor, letters: str, window: dict[str, slice]) -> Tensor:
    part: Tensor = tensor[tuple(window.get(x, slice(None)) for x in letters)]
    return part


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

    @property
    def numbers(self) -> Array:
        return np.empty(0, np.uint64) if self.rows is None else self.rows.astype(np.uint64)


def _matrix(tensor: Tensor, letters: str, shared: Sequence[str], own: Sequence[str], work: np.dtype[Any]) -> _Matrix:
    """An operand as a matrix: `shared` indices number its rows, its `own` number its columns. Raises LimitError.

    Cells that differ in other indices alone are items of the same column.
    """
    sizes = dict(zip(letters, tensor.shape, strict=True))
    height, width = (math.prod(sizes[x] for x in part) for part in (shared, own))
    if max(height, width) > INT64_MAX:
        what = f"a product over {max(height, width)} combinations of indices exceeds the range of int64; split it"
        raise LimitError(Problem("operands", what))
    strides = np.array([math.prod(sizes[x] for x in shared[k + 1 :]) for k in range(len(shared))], np.uint64)
    whole = expanded(tensor.load())
    most = THRESHOLDS.sizes_per_entry * inside(whole).backing.positions() + THRESHOLDS.extra_sizes
    rows = columns = listed = None
    if len(shared) == len(own) == 1 and len(letters) == 2 and max(height, width) <= most:
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
        listed = numbers[1]
        if height > most:
            rows, numbers[0] = np.unique(numbers[0], return_inverse=True)
        if width > most:
            columns, listed = np.unique(numbers[1], return_inverse=True)
        height = height if rows is None else len(rows)
        width = width if columns is None else len(columns)
        each = np.arange(len(values))  # several items may have the same column
        csr = pack([numbers[0], each], values, (height, len(each)), "CSR", limits=tensor.limits)
    indices = csr.arrays["indices_1"] if listed is None else listed[csr.arrays["indices_1"]]
    pointers, indices = kernels.readable(csr.arrays["pointers_to_1"]), kernels.readable(indices)
    values = csr.values.astype(work, copy=False)
    return _Matrix(pointers, indices, kernels.readable(np.ascontiguousarray(values)), width, strides, rows, columns)


# Bitmaps give the columns of a row in ascending order, without a sort. A bit of `bits0` is a column that has an entry.
# A bit of the next bitmap is a word of this one that is not 0. The last has few words; each row visits all of them.
_BITMAPS = tuple(f"bits{k}" for k in range(4))
_ARGUMENTS = (
    "pointers", "indices", "items", "strides", "numbered",
    *_BITMAPS, "sums", "columns", "out", "counts", "places", "ends",
)  # fmt: skip
_MASK = "mask_pointers", "mask_indices", "mask_strides", "mask_numbered", "allowed"
_MARK = "; ".join(f"bits{k}[column >> u8({6 * k + 6})] |= u8(1) << (column >> u8({6 * k}) & u8(63))" for k in range(4))


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


_MASKED = """if {test}:
    for t in range(mask_lower, mask_upper):
        allowed[mask_indices[t]] = True
    {row}
    for t in range(mask_lower, mask_upper):
        allowed[mask_indices[t]] = False"""


def _find_row(name: str, dimensions: Sequence[int], numbered: bool) -> list[str]:
    """Statements that find the items of a row of a matrix. dimensions: those that number it."""
    row, known = f"{name}row", f"{name}numbered"
    number = " + ".join(f"c{k} * {name}strides[{i}]" for i, k in enumerate(dimensions)) or "u8(0)"
    ends = f"{name}lower, {name}upper = u8({name}pointers[{row}]), u8({name}pointers[{row} + u8(1)])"
    if not numbered:
        return [f"{row} = {number}", ends]
    lines = [f"{name}number = {number}", f"{row} = u8(np.searchsorted({known}, {name}number))"]
    found = f"{row} < u8(len({known})) and {known}[{row}] == {name}number"
    return [*lines, f"{name}lower, {name}upper = u8(0), u8(0)", f"if {found}:", f"    {ends}"]


def _leaf(
    first: Sequence[int], shared: Sequence[int], rules: Rules, swapped: bool, numbered: Sequence[bool], counts: bool
) -> Leaf:
    """The leaf for the entries of the walked operand. counts: it only counts products and rows, as upper bounds.

    first, shared: the dimensions for a row of the result, and of the matrix. swapped: the walked operand is the second
    factor. numbered: True for the matrix and for the mask if they have only the rows with entries.
    """
    semiring, mask = rules.semiring, rules.mask
    lines, around = _find_row("", shared, numbered[0]), "yield\nends[1] += u8(1)"
    if counts:
        lines.append("ends[0] += upper - lower")
    else:
        product = semiring.multiply.format(*("factor", "items[t]")[:: -1 if swapped else 1])
        each = ["if bits0[column >> u8(6)] & u8(1) << (column & u8(63)):"]
        each += [f"    sums[column] = {semiring.add.format('sums[column]', product)}", "else:"]
        each += [f"    sums[column] = {product}", f"    {_MARK}"]
        around = _ROW.format(places="; ".join(f"places[{i}, at] = c{k}" for i, k in enumerate(first)) or "pass")
        if mask is not None:
            each = [f"if {'not ' if mask.others else ''}allowed[column]:", *indented(each)]
            around = _MASKED.format(
                row="\n    ".join(around.splitlines()), test="True" if mask.others else "mask_lower < mask_upper"
            )
            around = "\n".join([*_find_row("mask_", first, numbered[1]), around])
        lines.append(f"factor = {cast('value', rules.work.name)}")
        lines += ["for t in range(lower, upper):", *indented(["column = u8(indices[t])", *each])]
    names = (*_ARGUMENTS[:5], *(() if mask is None else _MASK), *NAMES[: len(semiring.functions)], *_ARGUMENTS[5:])
    return Leaf(names, "\n".join(lines), frozenset(first), frozenset((*first, *shared)), around)


def _rows(
    rows: Tensor, leaf: Callable[[bool], Leaf], first: int, matrix: _Matrix, mask: _Matrix | None, rules: Rules
) -> _Rows:
    """The rows of a product. leaf: see `_leaf`. first: the number of dimensions of a row of the result."""
    walk, functions = walk_of(rows), rules.semiring.functions
    tree = walk.tree
    stored, entries = arguments(tree)
    count, add = (compiled(tree.levels, walk.seen, leaf(x), tree.form, False, not functions) for x in (True, False))
    workers = parallel.get_threads() if first else 1
    parts = max(1, min(THRESHOLDS.parts_per_thread * workers, entries // THRESHOLDS.row_entries)) if workers > 1 else 1
    cuts = [(np.uint64(x.begin), np.uint64(x.end)) for x in of_loop(count, stored[:-1], parts)] if entries else []
    dtype, work = index_dtype((*rows.shape, matrix.width), 0), matrix.values.dtype
    given = [matrix.pointers, matrix.indices, matrix.values, matrix.strides, matrix.numbers]
    most_cells = INT64_MAX
    if mask is not None and rules.mask is not None:
        most_cells = INT64_MAX if rules.mask.others else len(mask.indices)
        given += [mask.pointers, _columns_in(matrix, mask), mask.strides, mask.numbers]
    none, sizes = np.empty(0, np.uint64), [(matrix.width >> 6 * k + 6) + 1 for k in range(len(_BITMAPS))]

    def results(products: int, most: int) -> _Rows:
        columns, values = np.empty(products, dtype), np.empty(products, work)
        return _Rows(columns, values, np.empty(most, np.int64), np.empty((first, most), dtype))

    def run(k: int) -> _Rows:
        allowed = [] if mask is None else [np.zeros(matrix.width + 1, bool)]
        ends, bound = np.zeros(2, np.uint64), (*cuts[k], *stored, *walk.arguments, *given, *allowed, *functions)
        count.function(*bound, *[none] * len(_BITMAPS), np.empty(0, work), *results(0, 0), ends)
        products, most = map(int, ends)
        found = results(min(products, most_cells, INT64_MAX if first else matrix.width), most)
        room = [np.zeros(size, np.uint64) for size in sizes]
        ends[:] = 0
        add.function(*bound, *room, np.empty(matrix.width, work), *found, ends)
        end, met = map(int, ends)
        return _Rows(found.columns[:end], found.values[:end], found.counts[:met], found.places[:, :met])

    made = parallel.each(run, range(len(cuts))) or [results(0, 0)]
    return made[0] if len(made) == 1 else _concatenated(made)


def _columns_in(matrix: _Matrix, mask: _Matrix) -> Array:
    """The columns of the items of a mask among those of a matrix; the width of the matrix if it does not have them."""
    columns = mask.indices if mask.columns is None else mask.columns[mask.indices]
    if matrix.columns is not None:
        at = np.searchsorted(matrix.columns, columns)
        columns = np.where(np.append(matrix.columns, -1)[at] == columns, at, matrix.width)
    return kernels.readable(columns)


def _concatenated(parts: Sequence[_Rows]) -> _Rows:
    """The rows of all parts, whose entries threads copy."""
    ends = np.cumsum([0, *(len(x.values) for x in parts)]).tolist()
    columns, values = (np.empty(ends[-1], x.dtype) for x in parts[0][:2])

    def copy(k: int) -> None:
        columns[ends[k] : ends[k + 1]], values[ends[k] : ends[k + 1]] = parts[k][:2]

    parallel.each(copy, range(len(parts)))
    counts, places = (np.concatenate(x, axis=-1) for x in list(zip(*parts, strict=True))[2:])
    return _Rows(columns, values, counts, places)
