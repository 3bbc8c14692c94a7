"""The memory traffic of a product in a model of caches: the loops of `einsum` over arrays that count accesses.

A cache keeps the lines that were used last; every other line is fetched. The result does not depend on the machine.
Caches are independent, and there is no prefetching, and no registers except the variables of the nest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np

from ..errors import OptionError, Problem, within_memory
from ..limits import as_integers
from ..tensors.tensor import Tensor
from ..thresholds import THRESHOLDS
from .nest import helpers_of, nest_text
from .products import planned
from .seeing import walk_of, without_unused_levels
from .store import function_of
from .walk import arguments


class Reads(NamedTuple):
    """Accesses to the items of an array.

    Parameters
    ----------
    items : int
        Number of accesses to items.
    lines : int
        Number of lines that are fetched for them.
    bytes : int
        Bytes of these lines.

    See Also
    --------
    traffic : Count the accesses of a product to each array.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> bl.traffic(bl.pack_dense(np.eye(2), "CSR"), "ij->i")["values"].items
    2
    """

    items: int
    lines: int
    bytes: int


_Traffic: TypeAlias = dict[str, Reads]


@overload
def traffic(tensor: Tensor, spec: str, *operands: Any, cache: int = ..., line: int = ...) -> _Traffic: ...
@overload
def traffic(tensor: Tensor, spec: str, *operands: Any, cache: Sequence[int], line: int = ...) -> list[_Traffic]: ...
@within_memory
def traffic(
    tensor: Tensor, spec: str, *operands: Any, cache: int | Sequence[int] = 2**15, line: int = 64
) -> _Traffic | list[_Traffic]:
    """Count the accesses of `einsum(spec, tensor, *operands)` to each array, in one thread.

    Traffic says little about the time of a product whose arrays the last cache of a processor holds.

    Parameters
    ----------
    tensor : Tensor
        The stored tensor.
    spec : str
        Letters for the dimensions of each operand, and of the result after `->`; see `einsum`.
    *operands
        Dense arrays, in the order of `spec`.
    cache : int or sequence of int, default 2 ** 15
        Size of the cache in bytes, or sizes of several caches, each of which sees all accesses. A cache keeps the
        lines that were used last.
    line : int, default 64
        Size of a line in bytes.

    Returns
    -------
    dict or list of dict
        Dict of `Reads` by array: the names in a file of the arrays of the levels and of the values, then "operands[1]"
        and so on, and "result". For several caches, a list of these.

    Raises
    ------
    OptionError, FormatError, ArrayError
        The arguments are invalid; see `einsum`.

    See Also
    --------
    explain : Show the loops that compute a sum or product.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> counted = bl.traffic(bl.pack_dense(np.eye(100), "CSR"), "ij,j->i", np.ones(100))
    >>> counted["indices_1"]
    Reads(items=100, lines=7, bytes=448)
    >>> sum(reads.bytes for reads in counted.values()) / 100
    33.92
    >>> tall = bl.pack_dense(np.tile(np.eye(100), (3, 1)), "CSR")
    >>> [reads["operands[1]"].lines for reads in bl.traffic(tall, "ij,j->i", np.ones(100), cache=(2**9, 2**15))]
    [39, 13]
    """
    from ..kernels.caches import Counted, use

    size, *caches = as_integers([line, *(cache if isinstance(cache, Sequence) else [cache])])
    if type(size) is not int or size < 1 or not caches or any(type(x) is not int or x < size for x in caches):
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
    labels += ["codes"] * (len(arrays) - len(labels))
    labels += ["values", *(f"operands[{k}]" for k in range(1, 1 + len(operands))), "result"]
    every = [*arrays, values, *map(np.atleast_1d, inputs[: len(operands)]), out]
    *firsts, lines = np.cumsum([0, *(-(-x.nbytes // size) for x in every)]).tolist()
    links = np.full((len(caches), lines + 1, 2), -1)
    links[:, lines] = lines
    counts = np.zeros((len(every), 1 + len(caches)), np.int64)
    state = links, np.array(caches) // size, counts
    own = [np.array([row, first, size]) for row, first in enumerate(firsts)]
    read = [Counted(x, mine, *state) for x, mine in zip(every, own, strict=True)]  # type: ignore[no-untyped-call]
    text, helpers = nest_text(tree.levels, walk.seen, leaf, tree.form), helpers_of(tree.levels)
    text = text.replace("[()]", "[0]")  # an operand without dimensions
    extent = function_of("extent", text, tuple(helpers.items()), compiled=False)
    compiled = len(tree.values) > THRESHOLDS.counted_values
    nest = function_of("nest", text, (*helpers.items(), ("use", use)), compiled)
    split = 1 + len(arrays)
    more = (*walk.arguments, *read[split:-1], *inputs[len(operands) :], read[-1])
    nest(*extent(numbers, *arrays), numbers, *read[:split], *more)
    made = [
        {name: Reads(items, n, n * size) for name, items, n in zip(labels, *counts[:, [0, k]].T.tolist(), strict=True)}
        for k in range(1, 1 + len(caches))
    ]
    return made if isinstance(cache, Sequence) else made[0]
