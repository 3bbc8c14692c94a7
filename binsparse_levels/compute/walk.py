"""Walking the entries of any tensor: in memory by the nest of its tree, from a file in blocks of entries.

Results do not depend on the number of threads: a tree is cut into parts by its size alone, and what the parts found is
added in their order.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from .. import kernels, parallel
from ..engine.blocks import Block, blocks_of, read_block
from ..engine.tree import Tree, index_dtype
from ..errors import LimitError, OptionError, Problem, within_memory
from ..formats.format import coordinates, in_order
from ..formats.structure import expand
from ..levels import listing
from ..levels.positions import Array
from ..limits import as_integer
from ..tensors.foreign import as_tensor
from ..tensors.held import Mapped
from ..tensors.tensor import Tensor
from .nest import Leaf, is_told
from .store import Nest, compiled

Merge: TypeAlias = Callable[[Any, Any], Any]  # what two parts found, as one

MEMORY = 2**28  # bytes, where a caller names none
_BLOCK = 2**20  # entries of a file at a time: more of them are no faster
_GRAIN = 2**20  # entries of a part: half a millisecond at least, a hundred times the call
_PARTS, _OWN = 64, 8  # the most parts that share a result, and that have one of their own

_arguments: WeakKeyDictionary[Tree, tuple[Any, ...]] = WeakKeyDictionary()


def walkable(tensor: Tensor) -> Tensor:
    """The same entries in memory, without map and structure, in levels that say their loops."""
    whole = tensor.without_map().expand_structure()
    if is_told(whole._tree.levels):
        return whole
    return whole.convert(in_order(coordinates(whole.ndim).levels, whole.format.order))


def blocks(tensor: Tensor, memory: int, used: int) -> Iterator[Tree] | None:
    """The entries of a tensor in a file, as trees that are read one after the other; None where it is read whole.

    The dimensions of a block are those of the tensor. memory: bytes, of which the result takes `used`.
    """
    held = tensor._source
    if tensor._held.viewed or not held.lazy or not tensor.ndim:
        return None
    each = 16 * (len(held.dims) + tensor.ndim) + 4 * held.values.dtype.itemsize
    size = min(_BLOCK, (memory - used) // each)
    if size < 1:
        what = f"{memory} bytes are too few for a result of {used} and one entry; pass a larger memory="
        raise LimitError(Problem("memory", what))
    return (_read(tensor, held, block) for block in blocks_of(held, size))


def _read(tensor: Tensor, tree: Tree, block: Block) -> Tree:
    narrow = index_dtype(tree.dims, 0) if tensor.map is None else np.int64
    columns, values = read_block(tree, block, narrow)
    order = tensor.stored.format.order
    coords: Sequence[Array] = [columns[order.index(k)] for k in range(len(order))]
    if isinstance(tensor._held, Mapped):
        coords, values = tensor._held.seen(coords, values)
    elif tensor.structure is not None:
        coords, values = expand(tensor.structure, coords, values)
    arrays = {f"indices_{k}": x for k, x in enumerate(coords)}
    return Tree((listing(tensor.ndim),), tensor.shape, arrays, values)


def arguments(tree: Tree) -> tuple[Any, ...]:
    """What a nest takes for a tree: sizes, arrays, values. They are kept as long as the tree."""
    found = _arguments.get(tree)
    if found is None:
        walked = list(tree.walk())
        below = [*(n for *_, n in walked[1:]), len(tree.values)][: len(walked)]
        arrays = [_unsigned(x) for _, here, _ in walked for x in here.values()]
        values = tree.values[:1] if tree.iso and len(tree.values) else tree.values
        found = (np.array([*tree.dims, *below], np.uint64), *arrays, kernels.readable(native(values)))
        _arguments[tree] = found
    return found


def _unsigned(array: Array) -> Array:
    view = kernels.readable(array)
    return view.view(f"u{view.dtype.itemsize}")


def native(values: Array) -> Array:
    """Values of a type that kernels know: halves as singles."""
    return values.astype(np.float32) if values.dtype == np.float16 else values


def run(tree: Tree, nest: Nest, given: Sequence[Any]) -> None:
    """Run a nest over a whole tree. given: the leaf's arguments."""
    stored = arguments(tree)
    nest.function(*nest.extent(*stored[:-1]), *stored, *given)


def run_in_parts(
    tree: Tree, nest: Nest, inputs: Sequence[Any], outs: Any, size: int, merge: Merge | None, threads: int | None = None
) -> Any:
    """Run a nest over a tree in parts, and return `outs`, which it changes. The leaf's arguments are inputs and outs.

    size: items of the outs. merge: makes one of two outs; None where all parts may share them, since each has first
    coordinates of its own. With it, `outs` is neutral: each part begins with a copy.
    """
    entries = len(tree.values)
    if merge is None:
        parts = min(_PARTS, entries // _GRAIN)
    else:
        parts = min(_OWN, entries // _GRAIN, entries // (8 * max(size, 1)))
    if parts < 2:
        run(tree, nest, (*inputs, *outs))
        return outs
    stored = arguments(tree)
    begin, end = map(int, nest.extent(*stored[:-1]))
    cuts = [np.uint64(x) for x in _cuts(nest, stored[:-1], range(begin, end), parts)]
    own = [outs, *(outs if merge is None else copy.deepcopy(outs) for _ in cuts[2:])]

    def call(k: int) -> None:
        nest.function(cuts[k], cuts[k + 1], *stored, *inputs, *own[k])

    parallel.each(call, range(len(cuts) - 1), threads)
    for other in own[1:] if merge is not None else ():
        outs = merge(outs, other)  # type: ignore[misc]
    return outs


def _cuts(nest: Nest, stored: Sequence[Any], extent: range, parts: int) -> list[int]:
    """Ends of parts of the outermost loop, such that no two parts have the same first coordinate."""
    ends = [extent.start + len(extent) * k // parts for k in range(1, parts)]
    first = nest.first
    if first is not None:
        ends = [extent.start + bisect_left(extent, first(x, *stored), key=lambda at: first(at, *stored)) for x in ends]
    return sorted({extent.start, *ends, extent.stop})


def _checked_threads(threads: Any) -> int | None:
    number = None if threads is None else as_integer(threads)
    if threads is not None and (number is None or number < 1):
        raise OptionError(Problem("threads", f"expected an integer >= 1, got {threads!r:.40}; or leave it out"))
    return number


def checked_memory(memory: Any) -> int:
    """The bytes that a caller allows."""
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

    The body is compiled into one loop nest over the levels of the tensor. Coordinates are int64. Both triangles of a
    structure are visited; what is not stored is not. The entries of a tensor in a file are read in blocks.

    Parameters
    ----------
    body : a function compiled by `numba.njit`. It changes `state` and returns nothing.
    state : an array, or a tuple of arrays.
    merge : a function of two states that returns one for both. With it, threads share a large tensor: each part begins
        with a copy of `state`, which must be neutral for `merge`. Parts depend on the size of the tensor alone.
    threads : by default as many as `get_threads` returns.
    memory : bytes for blocks that are read from a file.

    Raises
    ------
    OptionError, LimitError : the arguments do not fit.

    >>> import numba
    >>> @numba.njit
    ... def trace(state, i, j, value):
    ...     if i == j:
    ...         state[0] += value
    >>> foreach(pack_dense(np.eye(3), "CSR"), trace, np.zeros(1)).tolist()
    [3.0]
    """
    if not kernels.jit.is_compiled(body):  # type: ignore[no-untyped-call]
        what = f"expected a function compiled by numba, got {type(body).__name__}; decorate it with @numba.njit"
        raise OptionError(Problem("body", what))
    tensor, number, allowed = as_tensor(tensor, copy=False), _checked_threads(threads), checked_memory(memory)
    read = blocks(tensor, allowed, 0)
    whole = walkable(tensor) if read is None else tensor
    order = whole.format.order if read is None else tuple(range(tensor.ndim))
    coords = "".join(f"np.int64(x{order.index(k)}), " for k in range(tensor.ndim))
    leaf = Leaf(("body", "state"), f"body(state, {coords}value)")
    if read is not None:
        for tree in read:
            run(tree, compiled(tree.levels, leaf, tree.iso, kept=False), (body, state))
        return state
    tree = whole._tree
    nest = compiled(tree.levels, leaf, tree.iso, kept=False)
    if merge is None:
        run(tree, nest, (body, state))
        return state
    size = sum(x.size for x in (state if isinstance(state, tuple) else (state,)) if isinstance(x, np.ndarray))
    return run_in_parts(tree, nest, (body,), (state,), size, lambda a, b: (merge(a[0], b[0]),), number)[0]
