"""Statistics of the levels of a tensor: fibers, their lengths, and the information limit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..engine.parts import listed
from ..engine.tree import Tree
from ..errors import within_memory
from ..levels import Level, Place
from ..levels.positions import Array, Positions, cells
from ..tensors.tensor import Tensor, inside
from ..thresholds import THRESHOLDS
from .tables import clipped

_FEW = 256  # factors of a binomial coefficient that are summed one by one


@within_memory
@dataclass
class LevelStatistics:
    """Statistics of one level of a tensor.

    Parameters
    ----------
    level : Level
        The kind with its parameters.
    dimensions, sizes : tuple of int
        The tensor's dimensions that the level covers, and their sizes.
    positions : int
        The number of fibers.
    children : int
        The number of positions of the level below.
    listed : int, default 0
        The number of coordinates that are stored, padding among them.
    nbytes : int, default 0
        The bytes of the level's arrays in memory.
    counts : mapping of int to int, optional
        The number of fibers by their length.

    See Also
    --------
    levels_of : Compute statistics of the levels of the stored tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> dense, sparse = bl.levels_of(bl.pack([[0, 0, 2], [0, 3, 1]], 1.0, (3, 4), "CSR"))
    >>> sparse.positions, sparse.children, sparse.longest, sparse.quantile(0.5), round(sparse.limit, 2)
    (3, 3, 2, 1, 7.78)
    """

    level: Level
    dimensions: tuple[int, ...]
    sizes: tuple[int, ...]
    positions: int
    children: int
    listed: int = 0
    nbytes: int = 0
    counts: Mapping[int, int] = field(default_factory=Counter, repr=False)

    @property
    def longest(self) -> int:
        """The length of the longest fiber."""
        return max(self.counts, default=0)

    @property
    def fill(self) -> float:
        """The share of listed cells among the cells of all fibers; NaN if there are no cells."""
        count = self.positions * cells(self.sizes)
        return self.listed / count if count else math.nan

    @property
    def limit(self) -> float:
        """The information limit in bits: the smallest number that can encode which cells are listed.

        It is log2 of the number of ways to choose the listed cells among all cells.
        """
        return limit(self.positions * cells(self.sizes), self.listed)

    def quantile(self, share: float) -> int:
        """Compute the length that a share of the fibers does not exceed.

        Parameters
        ----------
        share : float
            From 0 to 1; 0.5 is the median.

        Returns
        -------
        int
            The length.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.levels_of(bl.pack([[0, 0, 2], [0, 3, 1]], 1.0, (3, 4), "CSR"))[1].quantile(1.0)
        2
        """
        reached = 0
        for length in sorted(self.counts):
            reached += self.counts[length]
            if reached >= share * self.positions:
                return length
        return self.longest


@within_memory
def levels_of(tensor: Tensor) -> list[LevelStatistics]:
    """Compute statistics of the levels of the stored tensor. A tensor in a file is read in parts.

    Parameters
    ----------
    tensor : Tensor
        The dimensions of a tensor with a map are those of its stored tensor. A view counts its own entries alone.

    Returns
    -------
    list of LevelStatistics
        The levels, the outermost first.

    Raises
    ------
    ArrayError
        The arrays are damaged.
    LimitError
        Memory does not suffice.

    See Also
    --------
    statistics : Compute sums, means, variances and extremes along dimensions.
    advise : Rank formats by size.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> for level in bl.levels_of(bl.pack([[0, 0, 2], [0, 3, 1]], 1.0, (3, 4), "CSR")):
    ...     print(level.level, level.positions, level.children, level.nbytes, round(level.limit, 1))
    dense 1 3 0 0.0
    sparse 3 3 28 7.8
    """
    source, stored = inside(tensor).source, tensor.stored
    tree = source if source.regular and not inside(tensor).backing.viewed else inside(stored).tree
    return list(_statistics(tree, stored.format.order))


def table(levels: Sequence[LevelStatistics], names: Sequence[str] | None = None) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table of levels. names: of the dimensions. The limit is in bytes, rounded up."""
    rows: list[list[str]] = []
    for x in levels:
        covered = zip(x.dimensions, x.sizes, strict=True)
        sizes = ", ".join(f"{k if names is None else names[k]} ({size:,})" for k, size in covered)
        counts = [x.positions, x.children, x.quantile(0.5), x.longest]
        fill = "" if math.isnan(x.fill) else f"{x.fill:.3g}"
        nbytes = [x.nbytes, math.ceil(x.limit / 8)]
        numbers = [*(f"{n:,}" for n in counts), fill, *(f"{n:,}" for n in nbytes)]
        rows.append([clipped(x.level, 60), clipped(sizes, 120), *numbers])
    return ["level", "dimension (size)", "fibers", "positions", "median", "longest", "fill", "bytes", "limit"], rows


def _statistics(tree: Tree, order: Sequence[int]) -> Iterator[LevelStatistics]:
    """Statistics of each level. order: stored dimension k is the tensor's order[k]. Precondition: the tree is sound."""
    walked = list(tree.walk())
    children = [*(n for _, _, n in walked), len(tree.values)][1:]
    positions: Positions = range(1)
    for (place, arrays, n), count in zip(walked, children, strict=True):
        covered = order[place.depth : place.depth + place.level.rank]
        nbytes = sum(len(x) * x.dtype.itemsize for x in arrays.values())
        window = list(map(range, place.dims))
        if not tree.regular:
            counts = _lengths(tree, place, arrays, n, positions, count)
            positions = place.level.reached(arrays, place.dims, positions, window)
        elif n > 1 and arrays:
            counts = _lengths(tree, place, arrays, n, range(n), count)
        else:  # the fibers are alike
            counts = Counter({count // n: n} if n else {})
        coordinates = sum(length * times for length, times in counts.items())
        yield LevelStatistics(place.level, tuple(covered), tuple(place.dims), n, count, coordinates, nbytes, counts)


def _lengths(
    tree: Tree, place: Place, arrays: dict[str, Array], n: int, positions: Positions, children: int
) -> Counter[int]:
    """The number of fibers by their length. Fibers in a file are read in parts."""
    counts: Counter[int] = Counter()
    step = max(THRESHOLDS.looked_items * n // max(children, 1), 1)
    for start in range(0, len(positions), step):
        pointers, *_ = listed(tree, place, arrays, n, positions[start : start + step], list(map(range, place.dims)))
        lengths, times = np.unique(np.diff(pointers), return_counts=True)
        counts.update(dict(zip(lengths.tolist(), times.tolist(), strict=True)))
    return counts


def limit(places: int, chosen: int) -> float:
    """log2 of the number of ways to choose that many of the places. No code needs fewer bits on average.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> round(limit(10**10, 10**7) / 10**7, 2)
    11.41
    """
    few = min(chosen, places - chosen)
    if few <= 0:
        return 0.0
    if few < _FEW:
        return sum(math.log2(places - k) - math.log2(k + 1) for k in range(few))
    rest = places - few
    nats = few * math.log(places / few) + rest * math.log1p(few / rest)
    nats += 0.5 * (math.log(places / rest) - math.log(2 * math.pi * few)) + (1 / places - 1 / few - 1 / rest) / 12
    return nats / math.log(2)
