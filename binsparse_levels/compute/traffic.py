"""The memory traffic of a product in a model of a cache: `einsum` interpreted over arrays that count accesses.

The cache keeps the lines that were used last; every other line is fetched. The result does not depend on the machine.
The model has one cache, no prefetching, and no registers except the variables of the nest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import OptionError, Problem, within_memory
from ..levels.positions import Array
from ..limits import as_integer
from ..tensors.tensor import Tensor
from .listing import made_again
from .nest import helpers_of, nest_text
from .products import planned
from .seeing import walk_of, without_unused_levels
from .store import function_of
from .walk import arguments


class Reads(NamedTuple):
    """The number of accesses to items of an array, the number of lines fetched for them, and their bytes.

    >>> traffic(pack_dense(np.eye(2), "CSR"), "ij->i")["values"].items
    2
    """

    items: int
    lines: int
    bytes: int


class _Counted:
    """An array that counts accesses to its items. It begins at the start of a line.

    cache: the lines that were used last, the latest at the end. most: the number of lines that it keeps.
    """

    def __init__(self, array: Array, cache: dict[tuple[int, int], None], most: int, line: int) -> None:
        self.array, self.cache, self.most, self.line = array, cache, most, line
        self.items = self.lines = 0

    def _used(self, key: Any) -> Any:
        key = key if isinstance(key, tuple) else (key,)
        offset = sum(int(k) * step for k, step in zip(key, self.array.strides, strict=True))
        place = id(self), offset // self.line
        self.items += 1
        if place in self.cache:
            del self.cache[place]
        else:
            self.lines += 1
            if len(self.cache) == self.most:
                del self.cache[next(iter(self.cache))]
        self.cache[place] = None
        return key

    def __getitem__(self, key: Any) -> Any:
        return self.array[self._used(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.array[self._used(key)] = value

    def __len__(self) -> int:
        return len(self.array)


@within_memory
def traffic(tensor: Tensor, spec: str, *operands: Any, cache: int = 2**15, line: int = 64) -> dict[str, Reads]:
    """Count the accesses of `einsum(spec, tensor, *operands)` to each array, in one thread.

    The loops run in Python, at some microseconds for each access, so tensors should be small.

    Parameters
    ----------
    tensor : the stored tensor.
    spec, operands : as for `einsum`; the operands are dense arrays.
    cache : size of the cache in bytes. The cache keeps the lines that were used last.
    line : size of a line in bytes.

    Returns
    -------
    dict of `Reads` by array: the names in a file of the arrays of the levels and of the values, then "operands[1]" and
    so on, and "result".

    Raises
    ------
    OptionError, FormatError, ArrayError : the arguments are invalid; see `einsum`.

    >>> counted = traffic(pack_dense(np.eye(100), "CSR"), "ij,j->i", np.ones(100))
    >>> counted["indices_1"]
    Reads(items=100, lines=7, bytes=448)
    >>> sum(reads.bytes for reads in counted.values()) / 100
    33.92
    """
    sizes = as_integer(cache), as_integer(line)
    if sizes[0] is None or sizes[1] is None or not 0 < sizes[1] <= sizes[0]:
        what = f"expected a cache of at least one line, got {cache!r:.40} bytes and lines of {line!r:.40}"
        raise OptionError(Problem("cache", what))
    plan, inputs = planned(spec, tensor, operands)
    whole = walk_of(tensor.load())
    leaf = plan.leaf_for(whole)
    walk = without_unused_levels(whole, leaf)
    tree, names = walk.tree, {id(array): name for name, array in whole.tree.arrays.items()}
    (numbers, *arrays, values), _ = arguments(tree)
    out = np.zeros(len(tree.values) if plan.is_tensor else plan.shape or 1, plan.work)
    labels = [names[id(array)] for _, here, _ in tree.walk() for array in here.values()]
    labels += ["values", *(f"operands[{k}]" for k in range(1, 1 + len(operands))), "result"]
    kept: dict[tuple[int, int], None] = {}
    read = [_Counted(x, kept, sizes[0] // sizes[1], sizes[1]) for x in (*arrays, values, *inputs[: len(operands)], out)]
    text, split = nest_text(tree.levels, walk.seen, leaf, tree.iso), 1 + len(arrays)
    helpers = tuple([(name, made_again(x, compiled=False)) for name, x in helpers_of(tree.levels).items()])
    nest, extent = (function_of(name, text, helpers, compiled=False) for name in ("nest", "extent"))
    more = (*walk.arguments, *read[split:-1], *inputs[len(operands) :], read[-1])
    nest(*extent(numbers, *arrays), numbers, *read[:split], *more)
    return {name: Reads(x.items, x.lines, x.lines * x.line) for name, x in zip(labels, read, strict=True)}
