"""The fused pass in numpy, with the same result, for what is not worth a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..limits import Limits
from .emission import Chain, hold_dense
from .tree import index_dtype

Array: TypeAlias = npt.NDArray[Any]


def chain(
    codes: tuple[int, ...],
    dims: tuple[int, ...],
    coords: Sequence[Array],
    values: Array | None,
    pad: Any,
    limits: Limits,
) -> Chain:
    """As `fused.emit`, of entries that are sorted, unique and in range."""
    count = len(coords[0])
    new = np.zeros(count, bool)  # whether an entry differs from the one before, in the dimensions so far
    new[0] = True
    parent = np.zeros(count, np.int64)
    pointers: list[Array] = [np.empty(0, np.int64)] * len(dims)
    indices = list(pointers)
    n = 1
    for d, (code, size, x) in enumerate(zip(codes, dims, coords, strict=True)):
        new[1:] |= x[1:] != x[:-1]
        if code == 0:
            n *= size
            hold_dense(n, count, limits)
            parent = parent * np.int64(size) + x.astype(np.int64, copy=False)
            continue
        if code == 1:
            first = d
        if d + 1 < len(codes) and codes[d + 1] == 2:  # the level goes on
            continue
        (starts,) = new.nonzero()
        pointers[first] = np.searchsorted(parent[starts], np.arange(n + 1))
        for k in range(first, d + 1):
            indices[k] = coords[k][starts]
        parent = new.cumsum() - 1
        n = len(starts)
    dtype = index_dtype(dims, max(count, *(len(x) for x in indices)))
    found = Chain([x.astype(dtype) for x in pointers], [x.astype(dtype, copy=False) for x in indices], n, count)
    if values is not None and n == count and codes[-1] != 0:
        found.values = values.copy()
    elif values is not None:
        found.values = np.full(n, pad, values.dtype)
        found.values[parent] = values
    return found


def count_prefixes(coords: Sequence[Array]) -> list[int]:
    """As `fused.count_prefixes`, of entries in any order, for any number of dimensions of any size."""
    order = np.lexsort(coords[::-1])
    new = np.zeros(len(order), bool)
    new[0] = True
    counts = []
    for x in coords:
        column = x[order]
        new[1:] |= column[1:] != column[:-1]
        counts.append(int(np.count_nonzero(new)))
    return counts
