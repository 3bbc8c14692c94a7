"""Runs a leaf over the entries of any tensor.

Results do not depend on the number of threads. If parts change the same item of a result, they depend only on the tree,
and are merged in order.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from .. import kernels, parallel
from ..engine.tree import Tree
from ..errors import OptionError, Problem, within_memory
from ..formats.dtypes import is_of_ml_dtypes
from ..levels.positions import Array
from ..limits import as_integer, checked_integer
from ..tensors.foreign import as_tensor
from ..tensors.tensor import Tensor
from ..thresholds import THRESHOLDS
from .nest import Leaf
from .parts import Part, are_uneven, of_entries, of_loop
from .seeing import Walk, walks, without_unused_levels
from .store import Nest, compiled
from .types import number_type

Merge: TypeAlias = Callable[[Any, Any], Any]  # joins the outs of two parts

MEMORY = 2**28  # bytes, by default
_FIBER_COST, _ENTRY_COST = 8, 4  # the time of a fiber, and of an entry that is not only summed, in sums of an entry

NESTS: ContextVar[dict[Any, Any] | None] = ContextVar("NESTS", default=None)  # notes nests and arguments

_arguments: WeakKeyDictionary[Tree, tuple[tuple[Any, ...], int]] = WeakKeyDictionary()


def arguments(tree: Tree) -> tuple[tuple[Any, ...], int]:
    """The arguments of a nest for a tree: sizes, arrays, codes, values; the number of entries. Cached like the tree."""
    known = _arguments.get(tree)
    if known is None:
        walked = list(tree.walk())
        below = [*(n for *_, n in walked[1:]), len(tree.values)][: len(walked)]
        arrays = [_unsigned(x) for _, here, _ in walked for x in here.values()]
        values = tree.values[:1] if tree.iso and len(tree.values) else tree.values
        if tree.dictionary is not None:
            arrays, values = [*arrays, _unsigned(tree.of_codes.values)], tree.dictionary.table
        stored = (np.array([*tree.dims, *below], np.uint64), *arrays, kernels.readable(native(values)))
        known = _arguments[tree] = stored, tree.count() if tree.shares else len(tree.values)
    return known


def _unsigned(array: Array) -> Array:
    view = kernels.readable(array)
    return view.view(f"u{view.dtype.itemsize}")


def native(values: Array) -> Array:
    """Values in a type that kernels support: floats of 8 and 16 bits as float32."""
    return values.astype(np.float32) if values.dtype == np.float16 or is_of_ml_dtypes(values.dtype) else values


def run(
    walk: Walk,
    leaf: Leaf,
    inputs: Sequence[Any],
    outs: tuple[Any, ...],
    merge: Merge | None = None,
    *,
    threads: int | None = None,
    kept: bool = True,
) -> tuple[Any, ...]:
    """Run a leaf over a tree, and return `outs`, which it changes. The arguments of the leaf are inputs and outs.

    merge: joins the outs of two parts, or a row of each. It requires neutral outs for a whole tree, because each part
    begins with a copy. Without it, a tree is cut only if parts can share the outs. kept: as for `compiled`.
    """
    if not len(walk.tree.values):
        return outs
    walk = without_unused_levels(walk, leaf)
    tree = walk.tree
    stored, entries = arguments(tree)
    fibers, each = _last_fibers(tree)
    given = tree.levels, walk.seen, leaf, tree.form, each >= THRESHOLDS.long_fiber, kept
    nest = compiled(*given)
    begin, end = nest.extent(*stored[:-1])
    if (found := NESTS.get()) is not None:
        found[given[:-1]] = begin, end, *stored, *walk.arguments, *inputs, *outs
    cut = _cut(walk, leaf, nest, outs, merge is not None and walk.whole, (entries, fibers), threads)
    if len(cut.parts) < 2:
        nest.function(begin, end, *stored, *walk.arguments, *inputs, *outs)
        return outs
    ends = compiled(*given, split=True) if len(cut.parts[0].path) > 2 else nest
    rows = [part.row if cut.by_row else None for part in cut.parts]
    copies = [_copied(outs, row) if cut.needs_copy(k) else None for k, row in enumerate(rows)]

    def call(k: int) -> None:
        part, mine = cut.parts[k], copies[k] or outs
        rest = outs if cut.shared else mine
        numbers = np.array([*stored[0], *part.path], np.uint64)
        first, middle = (part.begin, part.own, ends, mine), (part.own, part.last, nest, rest)
        for begin, end, piece, changed in first, middle, (part.last, part.end, ends, rest):
            if begin < end:
                given = numbers, *stored[1:], *walk.arguments, *inputs, *changed
                piece.function(np.uint64(begin), np.uint64(end), *given)

    parallel.each(call, range(len(cut.parts)), threads)
    for row, other in zip(rows, copies, strict=True):
        if other is not None and merge is not None:
            outs = _merged(merge, outs, other, row)
    return outs


def _last_fibers(tree: Tree) -> tuple[int, float]:
    """The number of fibers of the last level, and of values in each on average."""
    stored, entries = arguments(tree)
    shares = bool(tree.levels) and tree.levels[-1].shares
    fibers = len(tree.values) if shares else int(stored[0][-2]) if len(tree.levels) > 1 else 1
    return fibers, (entries if shares else len(tree.values)) / max(fibers, 1)


def innermost(walk: Walk) -> frozenset[int]:
    """The dimensions of the tensor that change within a fiber of the last level; none if most fibers are short."""
    if _last_fibers(walk.tree)[1] < THRESHOLDS.long_fiber:
        return frozenset()
    outside = len(walk.tree.dims) - walk.tree.levels[-1].rank if walk.tree.levels else 0
    return frozenset([k for k, known in enumerate(walk.seen.known) if known > outside])


class _Cut(NamedTuple):
    """The parts of a walk, and how they change the outs.

    shared: parts with different first coordinates change the same outs. alone: no two entries change the same item.
    by_row: the outs of two parts with a coordinate in common overlap in the row of this coordinate.
    """

    parts: list[Part]
    shared: bool = False
    alone: bool = False
    by_row: bool = False

    def needs_copy(self, k: int) -> bool:
        """Return True if a part changes items of the outs that another part changes, too."""
        part = self.parts[k]
        return not self.alone and (part.own > part.begin if self.shared else k > 0)


def _cut(
    walk: Walk, leaf: Leaf, nest: Nest, outs: tuple[Any, ...], merges: bool, size: tuple[int, int], threads: int | None
) -> _Cut:
    """The parts of a walk, which depend on the number of threads only if they change different items.

    merges: outs of parts can be merged. size: the numbers of entries and of fibers of the last level.
    """
    entries, fibers = size
    work = entries * (1 if leaf.totals else _ENTRY_COST) + _FIBER_COST * fibers
    if work < THRESHOLDS.part_entries:
        return _Cut([])
    tree, (*stored, _) = walk.tree, arguments(walk.tree)[0]
    shared = tree.ascends is not False and walk.seen.first is not None and walk.seen.first <= leaf.kept
    alone = len(leaf.kept) == len(walk.seen.known)
    uneven = (alone or merges) and are_uneven(tree, nest, stored, whole=shared)
    by_row = uneven and shared and walk.seen.stored is not None and walk.seen.stored.index(0) == leaf.rows
    copies = _most_copies(outs, entries, by_row) if merges else 1
    number = min(THRESHOLDS.parts if alone else copies, 2 * work // THRESHOLDS.part_entries) if uneven else 1
    if number > 1:
        return _Cut(of_entries(tree, nest, stored, number, whole=shared), shared, alone, by_row)
    if not shared:
        return _Cut(of_loop(nest, stored, min(copies, work // THRESHOLDS.part_entries), whole=False), shared, alone)
    workers = parallel.get_threads() if threads is None else threads
    return _Cut(of_loop(nest, stored, THRESHOLDS.parts_per_thread * workers) if workers > 1 else [], shared, alone)


def _most_copies(outs: tuple[Any, ...], entries: int, by_row: bool) -> int:
    """The most parts with copies of the outs, or of a row of them, so that copies take less time than entries."""
    items = [x for out in outs for x in (out if isinstance(out, tuple) else (out,)) if isinstance(x, np.ndarray)]
    size = sum(x[0].size if by_row else x.size for x in items)
    most = THRESHOLDS.copies
    if by_row:
        most = min(THRESHOLDS.parts, THRESHOLDS.reserved_bytes // max(sum(x.nbytes for x in items), 1))
    return min(most, entries // max(THRESHOLDS.copy_cost * size, 1))


def _copied(outs: tuple[Any, ...], row: int | None) -> tuple[Any, ...]:
    """A copy of outs, or of one row of each: memory for the other rows is reserved, but not used."""
    if row is None:
        return copy.deepcopy(outs)
    made = tuple(map(np.empty_like, outs))
    for x, y in zip(made, outs, strict=True):
        x[row] = y[row]
    return made


def _merged(merge: Merge, outs: tuple[Any, ...], other: tuple[Any, ...], row: int | None) -> tuple[Any, ...]:
    """The merged outs of two parts, or outs with one row merged."""
    if row is None:
        made: tuple[Any, ...] = merge(outs, other)
        return made
    at = slice(row, row + 1)
    for x, y in zip(outs, merge(tuple(x[at] for x in outs), tuple(x[at] for x in other)), strict=True):
        x[at] = y
    return outs


def checked_memory(memory: Any) -> int:
    """The bytes that the caller allows, or the default. Raises OptionError."""
    number = MEMORY if memory is None else as_integer(memory)
    if number is None:
        raise OptionError(Problem("memory", f"expected a number of bytes, got {memory!r:.40}; give an integer"))
    return number


@within_memory
def foreach(
    tensor: Tensor,
    body: Callable[..., Any],
    state: Any,
    merge: Merge | None = None,
    *,
    threads: int | None = None,
    memory: int | None = None,
) -> Any:
    """Call `body(state, i, j, …, value)` for every stored entry, and return the state.

    The body is compiled into one loop nest over the levels of the tensor. Coordinates are int64. Entries in both
    triangles of a structure are visited. A tensor in a file is read in blocks.

    Parameters
    ----------
    tensor : Tensor
        Tensor, or any object that `as_tensor` accepts.
    body : callable
        A function compiled by `numba.njit`. It changes `state` and returns nothing.
    state : ndarray or tuple of ndarray
        An array, or a tuple of arrays.
    merge : callable, optional
        A function of two states that returns the joined state. With it, threads share a large tensor: each part begins
        with a copy of `state`, which must be neutral for `merge`. Only the size of the tensor determines parts.
    threads : int, optional
        Number of threads; by default that of `get_threads`.
    memory : int, optional
        Bytes for blocks that are read from a file; by default 2**28.

    Returns
    -------
    scalar, ndarray or Tensor
        `state`, or what `merge` returned.

    Raises
    ------
    OptionError, LimitError
        An argument is invalid, or a block does not fit `memory`.
    ArrayError
        Arithmetic does not support the type of the values.

    See Also
    --------
    reduce : Reduce dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> import numba
    >>> @numba.njit
    ... def trace(state, i, j, value):
    ...     if i == j:
    ...         state[0] += value
    >>> bl.foreach(bl.pack_dense(np.eye(3), "CSR"), trace, np.zeros(1)).tolist()
    [3.0]
    """
    tensor, allowed = as_tensor(tensor, copy=False), checked_memory(memory)
    number = None if threads is None else checked_integer("threads", threads)
    number_type(tensor.dtype, "values")
    _check_body(body, tensor.ndim)
    coords = "".join(f"np.int64(c{k}), " for k in range(tensor.ndim))
    leaf = Leaf(("body", "state"), f"body(state, {coords}value)", frozenset(), frozenset(range(tensor.ndim)))
    both = None if merge is None else lambda a, b: (merge(a[0], b[0]),)
    try:
        for walk in walks(tensor, allowed, 0):
            (state,) = run(walk, leaf, (body,), (state,), both, threads=number, kept=False)
    except kernels.jit.FAULTS as error:
        what = next((line for line in str(error).splitlines()[1:] if line.strip()), str(error))
        raise OptionError(Problem("body", f"numba cannot compile it: {what:.200}; call it directly once")) from None
    return state


def _check_body(body: Any, ndim: int) -> None:
    if not kernels.jit.is_compiled(body):  # type: ignore[no-untyped-call]
        what = f"expected a function compiled by numba, got {type(body).__name__}; decorate it with @numba.njit"
        raise OptionError(Problem("body", what))
    try:
        inspect.signature(getattr(body, "py_func", body)).bind(*range(ndim + 2))
    except TypeError as error:
        what = f"{error}; define it as body(state, …, value) with {ndim} coordinates in between"
        raise OptionError(Problem("body", what)) from None
