"""Random tensors with patterns used in papers. A seed gives the same tensor on every machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import within_memory
from ..tensors.packing import pack
from ..tensors.tensor import Tensor


@within_memory
def uniform(shape: Sequence[int], entries: int, seed: int = 0) -> Tensor:
    """A COO of about `entries` entries at independent coordinates.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> from binsparse_levels.testing import uniform
    >>> uniform((50, 60), 100).shape
    (50, 60)
    """
    random = np.random.default_rng(seed)
    coords = [random.integers(0, size, entries) for size in shape]
    return pack(coords, random.random(entries), shape, "COO", duplicates="sum", fill_value=0)


@within_memory
def rmat(scale: int, entries: int, seed: int = 0, shares: Sequence[float] = (0.57, 0.19, 0.19, 0.05)) -> Tensor:
    """A graph of 2**scale nodes, as CSR: few nodes have most edges. shares: probabilities of the quarters of a matrix.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> from binsparse_levels.testing import rmat
    >>> rmat(5, 100).shape
    (32, 32)
    """
    random = np.random.default_rng(seed)
    rows, columns = np.zeros((2, entries), np.int64)
    for _ in range(scale):
        quarter = np.searchsorted(np.cumsum(shares)[:3], random.random(entries), side="right")
        rows, columns = 2 * rows + quarter // 2, 2 * columns + quarter % 2
    shape = (2**scale, 2**scale)
    return pack([rows, columns], random.random(entries), shape, "CSR", duplicates="sum", fill_value=0)


@within_memory
def stencil(side: int, dimensions: int = 3, seed: int = 0) -> Tensor:
    """The matrix of a stencil on a grid, as CSR: each of side**dimensions points has entries for its neighbours.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> from binsparse_levels.testing import stencil
    >>> stencil(4, 2).shape
    (16, 16)
    """
    grid = np.indices((side,) * dimensions).reshape(dimensions, -1)
    rows, columns = [], []
    for step in np.ndindex((3,) * dimensions):
        neighbours = grid + np.array(step)[:, None] - 1
        inside = ((neighbours >= 0) & (neighbours < side)).all(axis=0)
        rows.append(np.ravel_multi_index(tuple(grid[:, inside]), (side,) * dimensions))
        columns.append(np.ravel_multi_index(tuple(neighbours[:, inside]), (side,) * dimensions))
    coords = np.concatenate(rows), np.concatenate(columns)
    values = np.random.default_rng(seed).random(len(coords[0]))
    return pack(coords, values, (side**dimensions,) * 2, "CSR", fill_value=0)


@within_memory
def n_of_m(rows: int, columns: int, n: int = 2, m: int = 4, seed: int = 0) -> Tensor:
    """Pruned weights, as CSR: n entries in each group of m cells of a row. columns: a multiple of m.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> from binsparse_levels.testing import n_of_m
    >>> n_of_m(3, 8).number_of_stored_values
    12
    """
    random = np.random.default_rng(seed)
    kept = np.argsort(random.random((rows, columns // m, m)), axis=2) < n
    i, block, k = np.nonzero(kept)
    return pack([i, m * block + k], random.random(len(i)), (rows, columns), "CSR", fill_value=0)


@within_memory
def power_law(shape: Sequence[int], entries: int, seed: int = 0, power: float = 3) -> Tensor:
    """A CSF of any rank, denser towards the origin: a coordinate is size · u**power for a uniform u.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> from binsparse_levels.testing import power_law
    >>> power_law((9, 8, 7), 50).ndim
    3
    """
    random = np.random.default_rng(seed)
    coords = [np.minimum((size * random.random(entries) ** power).astype(np.int64), size - 1) for size in shape]
    return pack(coords, random.random(entries), shape, "CSF", duplicates="sum", fill_value=0)
