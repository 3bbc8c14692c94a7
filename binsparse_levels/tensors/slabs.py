"""Slabs of a tensor along a dimension, each in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from ..engine.blocks import read_slab, slab_ranges
from ..errors import LimitError, OptionError, Problem
from ..limits import as_integer
from .backing import packed
from .changing import expanded, without_map
from .contents import Contents, Dimension, dimension_of, remade
from .selecting import view

Self = TypeVar("Self", bound=Contents)


def slabs(self: Self, dimension: Dimension, *, max_bytes: int) -> Iterator[tuple[range, Self]]:
    """Iterate over parts along a dimension: the coordinates of each part, and a tensor in memory.

    Along the outermost stored dimension of dense and sparse levels, each entry is read once. Along another, it is
    read once to count, and once for each part. With other kinds, a part that is too large is halved. A structure is
    expanded first, and a map is removed.

    Parameters
    ----------
    dimension : int or str
        Counted from 0, or from -1 backwards; or a name.
    max_bytes : int
        The largest size of the arrays of a part, in bytes.

    Yields
    ------
    coordinates : range
        Coordinates along `dimension`.
    slab : Tensor
        Tensor of `len(coordinates)` coordinates there.

    Raises
    ------
    LimitError
        A single coordinate takes more.
    IndexError
        There is no such dimension.

    See Also
    --------
    Tensor.to_dense : Return a dense array.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> [(part, slab.shape) for part, slab in bl.pack_dense([[0, 2], [3, 0]], "CSR").slabs(0, max_bytes=100)]
    [(range(0, 2), (2, 2))]
    """
    most = as_integer(max_bytes)
    if most is None:
        raise OptionError(Problem("max_bytes", f"expected a number of bytes, got {max_bytes!r:.40}; give an integer"))
    whole, number = expanded(without_map(self)), dimension_of(self, dimension)
    read = [range(1 if k == number else size) for k, size in enumerate(whole.shape)]
    backing, pad = whole._inside.backing.best_order(read), whole._inside.pad
    order, size, start = backing.format.order, whole.shape[number], 0
    k, planned = order.index(number), False
    if backing.viewed and backing.lazy and backing.map is None and not k:  # each part of a view is read alone
        nbytes = backing.positions() * (8 * whole.ndim + whole.dtype.itemsize)
    else:
        tree, nbytes = backing.perhaps_lazy(pad), whole.nbytes
        planned = all(level.specified for level in tree.levels)  # then entries bound the bytes of a part
    plan = slab_ranges(tree, k, most) if planned else iter(())
    width = max(size * most // max(nbytes, 1), 1)
    key: list[Any] = [slice(None)] * whole.ndim
    while start < size:
        part = next(plan, range(start, min(start + width, size)))
        key[number] = slice(part.start, part.stop)
        slab = view(whole, key)
        if planned and tree.lazy and k:
            columns, values = read_slab(tree, k, part, max(most // (8 * whole.ndim + whole.dtype.itemsize), 1))
            coords = [columns[order.index(d)] for d in range(whole.ndim)]
            listed = packed(backing.format, slab.shape, coords, values, tree.iso, pad, whole.limits)
            slab = remade(slab, listed)
        width = max(min(2 * len(part), 3 * len(part) * most // (4 * max(slab.nbytes, 1))), 1)  # of the next part
        if slab.nbytes <= most:
            yield part, slab
            start = part.stop
        elif len(part) == 1 or planned:  # the size of some kinds is known only when they are built
            what = f"coordinate {start} of dimension {number} takes more than {most} bytes; increase max_bytes"
            raise LimitError(Problem("max_bytes", what))
