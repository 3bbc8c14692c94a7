"""Runs a leaf over the entries of any tensor.

Results do not depend on the number of threads: only the size of a tree determines its parts, and the results of parts
are merged in order.
"""

from __future__ import annotations

import copy
import inspect
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from .. import kernels, parallel
from ..engine.tree import Tree
from ..errors import OptionError, Problem, within_memory
from ..formats.dtypes import is_bfloat16
from ..levels.positions import Array
from ..limits import as_integer
from ..tensors.foreign import as_tensor
from ..tensors.tensor import Tensor
from .nest import Leaf
from .seeing import Walk, walks, without_unused_levels
from .store import Nest, compiled
from .types import number_type

Merge: TypeAlias = Callable[[Any, Any], Any]  # joins the outs of two parts

MEMORY = 2**28  # bytes, by default
_MIN_PART_ENTRIES = 2**20  # such a part runs for at least 0.5 ms, a hundred times longer than its call
_MIN_LONG_FIBER = 64  # entries; for longer fibers, vectorized and unrolled loops are faster
_FIBER_COST, _ENTRY_COST = 8, 4  # the time of a fiber, and of an entry that is not only summed, in sums of an entry
_PARTS_PER_THREAD = 4  # if parts share a result; they are uneven, because fibers differ
_MAX_PARTS, _MAX_COPIES = 64, 8  # parts of a tree, and of a tree whose parts have separate copies of the result

_arguments: WeakKeyDictionary[Tree, tuple[tuple[Any, ...], int]] = WeakKeyDictionary()


def arguments(tree: Tree) -> tuple[tuple[Any, ...], int]:
    """The arguments of a nest for a tree: sizes, arrays, values; the number of entries. Cached as long as the tree."""
    known = _arguments.get(tree)
    if known is None:
        walked = list(tree.walk())
        below = [*(n for *_, n in walked[1:]), len(tree.values)][: len(walked)]
        arrays = [_unsigned(x) for _, here, _ in walked for x in here.values()]
        values = tree.values[:1] if tree.iso and len(tree.values) else tree.values
        stored = (np.array([*tree.dims, *below], np.uint64), *arrays, kernels.readable(native(values)))
        known = _arguments[tree] = stored, tree.count() if tree.shares else len(tree.values)
    return known


def _unsigned(array: Array) -> Array:
    view = kernels.readable(array)
    return view.view(f"u{view.dtype.itemsize}")


def native(values: Array) -> Array:
    """Values in a type that kernels support: floats of 16 bits as float32."""
    return values.astype(np.float32) if values.dtype == np.float16 or is_bfloat16(values.dtype) else values


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

    merge: joins the outs of two parts. It requires neutral outs for a whole tree, because each part begins with a copy.
    Without it, a tree is cut only if parts can share the outs. kept: as for `compiled`.
    """
    if not len(walk.tree.values):
        return outs
    walk = without_unused_levels(walk, leaf)
    tree = walk.tree
    stored, entries = arguments(tree)
    shares = bool(tree.levels) and tree.levels[-1].shares
    fibers = len(tree.values) if shares else int(stored[0][-2]) if len(tree.levels) > 1 else 1  # of the last level
    each = (entries if shares else len(tree.values)) / fibers
    nest = compiled(tree.levels, walk.seen, leaf, tree.iso, each >= _MIN_LONG_FIBER, kept)
    begin, end = nest.extent(*stored[:-1])
    work, parts = entries * (1 if leaf.totals else _ENTRY_COST), min(_MAX_PARTS, entries // _MIN_PART_ENTRIES)
    shared = walk.seen.first is not None and walk.seen.first <= leaf.kept  # no two parts have the same first coordinate
    if shared and merge is not None and parts > 1 and nest.first is not None:  # one coordinate may have most entries
        ends = cuts_of(nest, stored[:-1], _MAX_COPIES)
        shared = 2 * max(map(int, np.diff(ends))) <= int(end) - int(begin)
    if shared:
        workers = parallel.get_threads() if threads is None else threads
        enough = work + _FIBER_COST * fibers >= _MIN_PART_ENTRIES
        parts = _PARTS_PER_THREAD * workers if workers > 1 and enough else 1
    elif work >= 2 * _MIN_PART_ENTRIES:
        items = (x for out in outs for x in (out if isinstance(out, tuple) else (out,)))
        size = sum(x.size for x in items if isinstance(x, np.ndarray))
        most = min(work // _MIN_PART_ENTRIES, entries // (8 * max(size, 1)))
        parts = min(_MAX_COPIES, most) if merge is not None and walk.whole else 1
    if parts < 2:
        nest.function(begin, end, *stored, *walk.arguments, *inputs, *outs)
        return outs
    cuts = cuts_of(nest, stored[:-1], parts, whole=shared)
    own = [outs, *(outs if shared else copy.deepcopy(outs) for _ in cuts[2:])]

    def call(k: int) -> None:
        nest.function(cuts[k], cuts[k + 1], *stored, *walk.arguments, *inputs, *own[k])

    parallel.each(call, range(len(cuts) - 1), threads)
    for other in own[1:] if not shared else ():
        outs = merge(outs, other)  # type: ignore[misc]
    return outs


def cuts_of(nest: Nest, stored: Sequence[Any], parts: int, *, whole: bool = True) -> list[np.uint64]:
    """The ends of parts of the outermost loop. whole: no two parts have the same first coordinate."""
    begin, end = map(int, nest.extent(*stored))
    extent = range(begin, end)
    ends = [begin + len(extent) * k // parts for k in range(1, parts)]
    first = nest.first
    if whole and first is not None:
        ends = [begin + bisect_left(extent, first(x, *stored), key=lambda at: first(at, *stored)) for x in ends]
    return [np.uint64(x) for x in sorted({begin, *ends, end})]


def _checked_threads(threads: Any) -> int | None:
    number = None if threads is None else as_integer(threads)
    if threads is not None and (number is None or number < 1):
        raise OptionError(Problem("threads", f"expected an integer >= 1, got {threads!r:.40}; or leave it out"))
    return number


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
    tensor : Tensor, or any object that `as_tensor` accepts.
    body : a function compiled by `numba.njit`. It changes `state` and returns nothing.
    state : an array, or a tuple of arrays.
    merge : a function of two states that returns the joined state. With it, threads share a large tensor: each part
        begins with a copy of `state`, which must be neutral for `merge`. Only the size of the tensor determines parts.
    threads : number of threads; by default that of `get_threads`.
    memory : bytes for blocks that are read from a file; by default 2**28.

    Returns
    -------
    `state`, or what `merge` returned.

    Raises
    ------
    OptionError, LimitError : an argument is invalid, or a block does not fit `memory`.
    ArrayError : arithmetic does not support the type of the values.

    >>> import numba
    >>> @numba.njit
    ... def trace(state, i, j, value):
    ...     if i == j:
    ...         state[0] += value
    >>> foreach(pack_dense(np.eye(3), "CSR"), trace, np.zeros(1)).tolist()
    [3.0]
    """
    tensor, number, allowed = as_tensor(tensor, copy=False), _checked_threads(threads), checked_memory(memory)
    number_type(tensor.dtype, "values")
    _check_body(body, tensor.ndim)
    coords = "".join(f"np.int64(c{k}), " for k in range(tensor.ndim))
    leaf = Leaf(("body", "state"), f"body(state, {coords}value)", frozenset())
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
