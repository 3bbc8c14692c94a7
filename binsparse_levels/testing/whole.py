"""The laws of a level kind within tensors: loops, walks with another tensor, indices, files."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compute.cursors import is_walked
from ..compute.merging import merged
from ..compute.reductions import reduce
from ..errors import FormatError, needing
from ..formats.format import Format
from ..io import append, concatenate, open, read, write
from ..levels import Dense, Level, Sparse
from ..tensors.packing import pack
from ..tensors.tensor import Tensor
from .files import check_stored, damaged

with needing("test"):
    from hypothesis import assume
    from hypothesis import strategies as st


@st.composite
def tensors_with(draw: st.DrawFn, level: Level, *, below: bool = True) -> Tensor:
    """Tensors of small shapes with this level only, or above or below others."""
    chains = [(level,), (Dense(), level), (Sparse(), level)]
    chains += [(level, Sparse()), (Dense(), level, Sparse()), (level, level), (level, Dense())] if below else []
    format = Format(draw(st.sampled_from(chains)))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=format.rank, max_size=format.rank)))
    chosen = draw(st.lists(st.sampled_from(list(np.ndindex(*shape))), unique=True, max_size=9))
    table = np.array(chosen, np.int64).reshape(len(chosen), len(shape))
    values = draw(st.lists(st.integers(1, 3), min_size=len(chosen), max_size=len(chosen)))
    try:
        return pack(table.T, np.array(values, float), shape, format)
    except FormatError:  # a kind may refuse a tensor
        assume(False)
        raise


def check_compiled(tensor: Tensor) -> None:
    """Compiled loops over the tensor give the sums of numpy, in memory and from a file."""
    stored: dict[str, Any] = {}
    write(stored, tensor)
    dense = tensor.to_dense()
    for axis in (None, 0) if tensor.ndim else (None,):
        for source in (tensor, open(stored)):
            assert np.array_equal(reduce(source, axis, "sum"), dense.sum(axis)), "a compiled sum is wrong; see loop"


def check_merged(tensor: Tensor) -> None:
    """Sums and products with another tensor, and with one without entries, equal those of numpy, in both orders.

    Walks are interpreted. Formats without a walk are converted first.
    """
    if not tensor.ndim:  # a scalar has no levels to walk
        return
    every = np.indices(tensor.shape).reshape(tensor.ndim, -1)
    some = every[:, every.sum(0) % 2 == 0]
    listed = Format((Dense(), *[Sparse()] * (tensor.ndim - 1)) if tensor.ndim > 1 else (Sparse(),))
    for coords in (some, some[:, :0]):
        other = pack(coords, np.full(coords.shape[1], 2.0), tensor.shape, listed)
        for a, b in ((tensor, other), (other, tensor)):
            for function in (np.multiply, np.add):
                cells, name = function(a.to_dense(), b.to_dense()), function.__name__
                if all(is_walked(level, not d) for x in (a, b) for d, level in enumerate(x.format.levels)):
                    zeros = np.zeros(()), np.zeros(())
                    tree, _ = merged(a._tree, b._tree, name, function is np.add, zeros, compiled=False)
                    found: Any = Tensor(Format(tree.levels), tensor.shape, tree.arrays, tree.values)
                else:
                    found = function(a, b)
                assert np.array_equal(found.to_dense(), cells), f"numpy.{name} of two tensors is wrong; see loop"


def check_indexed(tensor: Tensor) -> None:
    """An integer, a slice or an array as an index selects the same cells as in numpy, in memory and from a file."""
    stored: dict[str, Any] = {}
    write(stored, tensor)
    dense = tensor.to_dense()
    for k, size in enumerate(tensor.shape):
        for item in (0, size - 1, slice(1, None), slice(None, None, -2), np.arange(size)[::-1]):
            key = (*[slice(None)] * k, item)
            for source in (tensor, open(stored)):
                cells = source[key]
                cells = cells.to_dense() if isinstance(cells, Tensor) else cells
                assert np.array_equal(cells, dense[key]), f"[{', '.join(map(str, key))}] is wrong; see expand and part"


def check_damage(tensor: Tensor) -> None:
    """A file, and copies with a changed item or array length, are refused or read equally by every reader."""
    stored: dict[str, Any] = {}
    write(stored, tensor)
    assert check_stored(stored), "read refuses the result of write"
    for changed in damaged(stored, most=2):
        check_stored(changed)


def check_joined(tensor: Tensor) -> None:
    """Two halves, appended or concatenated, equal the whole."""
    if not tensor.ndim:  # a scalar has no halves
        return
    middle, halves = tensor.shape[0] // 2, list[dict[str, Any]]()
    for piece in (slice(0, middle), slice(middle, None)):
        try:
            halves.append({})
            write(halves[-1], tensor[piece].convert(tensor.format))
        except FormatError:  # a kind may refuse a part of a tensor that it accepts
            assume(False)
    whole: dict[str, Any] = {}
    concatenate(halves, whole)
    append(halves[0], read(halves[1]))
    for joined in map(read, (whole, halves[0])):
        assert np.array_equal(joined.to_dense(), tensor.to_dense()), "the halves are not the whole"
