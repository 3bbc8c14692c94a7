"""The levels of a tensor in numbers: fibers, their lengths, gaps between coordinates, and the information limit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..engine import packing
from ..engine.tree import Tree
from ..errors import within_memory
from ..levels import Level, Place
from ..levels.positions import Array, cells
from ..limits import INT64_MAX
from ..tensors.tensor import Tensor
from .tables import clipped

_AT_ONCE = 2**20  # children in memory at a time
_CLASSES = 64  # of lengths and gaps, by their bits
_EXACT = 4096  # lengths below this are counted one by one
_FEW = 256  # factors of a binomial coefficient that are summed one by one


@within_memory
@dataclass
class LevelStatistics:
    """One level of a tensor.

    Parameters
    ----------
    level : the kind with its parameters.
    dimensions, sizes : the tensor's dimensions that the level covers, and their sizes.
    positions : the number of fibers.
    children : the number of positions of the level below.
    listed : the number of coordinates that are stored, padding among them.
    nbytes : the bytes of the level's arrays in memory.
    longest : the length of the longest fiber.
    lengths : how many fibers have a length of 0, of 1, of 2 or 3, of 4 to 7, and so on.
    gaps : how many coordinates are 1 behind the previous in their fiber, 2 or 3 behind, and so on, from index 1. The
        first of a fiber is counted from -1. None where a fiber has more than 2**63 cells.

    >>> from binsparse_levels import levels_of, pack
    >>> dense, sparse = levels_of(pack([[0, 0, 2], [0, 3, 1]], 1.0, (3, 4), "CSR"))
    >>> sparse.positions, sparse.children, sparse.longest, sparse.quantile(0.5), round(sparse.limit, 2)
    (3, 3, 2, 1, 7.78)
    >>> "lengths" in repr(dense), repr(dense).endswith("longest=3)")
    (False, True)
    """

    level: Level
    dimensions: tuple[int, ...]
    sizes: tuple[int, ...]
    positions: int
    children: int
    listed: int = 0
    nbytes: int = 0
    longest: int = 0
    lengths: Array = field(default_factory=lambda: np.zeros(_CLASSES, np.int64), repr=False)
    gaps: Array | None = field(default_factory=lambda: np.zeros(_CLASSES + 1, np.int64), repr=False)
    _tally: Array = field(default_factory=lambda: np.zeros(_EXACT, np.int64), repr=False)

    @property
    def computed(self) -> bool:
        """Whether the level has no arrays."""
        return not self.nbytes and self.listed == self.positions * cells(self.sizes)

    @property
    def fill(self) -> float:
        """The share of the cells of all fibers that is listed; NaN without cells."""
        count = self.positions * cells(self.sizes)
        return self.listed / count if count else math.nan

    @property
    def limit(self) -> float:
        """The information limit in bits: log2 of the number of ways to choose the listed cells among all cells."""
        return limit(self.positions * cells(self.sizes), self.listed)

    @property
    def to_win(self) -> float:
        """The bits that the arrays take above the limit. Kinds that hold few patterns, such as bands, are below it."""
        return 8 * self.nbytes - self.limit

    def quantile(self, share: float) -> int:
        """The length that this share of the fibers does not exceed: exact up to 4095, then the power of two above."""
        at = share * self.positions
        reached = np.cumsum(self._tally)
        if len(reached) and reached[-1] >= at:
            return int(np.searchsorted(reached, max(at, 1)))
        above = int(np.searchsorted(np.cumsum(self.lengths), at))
        return min((1 << above) - 1, self.longest)

    def _add_lengths(self, lengths: Array) -> None:
        if len(lengths):
            self.longest = max(self.longest, int(lengths.max()))
            self.lengths += np.bincount(_bits(lengths), minlength=_CLASSES)
            self._tally += np.bincount(lengths[lengths < _EXACT].astype(np.int64), minlength=_EXACT)

    def _add_gaps(self, coords: Sequence[Array], starts: Array, before: int | None = None) -> None:
        """Add the gaps of coordinates. starts: where fibers begin. before: the coordinate that came last."""
        if self.gaps is None or not coords or not len(coords[0]):
            return
        if cells(self.sizes) > INT64_MAX:
            self.gaps = None
            return
        at = _ravelled(coords, self.sizes)
        gaps = np.diff(at, prepend=-1 if before is None else before)
        gaps[starts] = at[starts] + 1
        self.gaps += np.bincount(_bits(np.abs(gaps)), minlength=_CLASSES + 1)  # a kind may list fibers in any order


@within_memory
def levels_of(tensor: Tensor) -> list[LevelStatistics]:
    """The levels of the stored tensor in numbers, from the outermost in. A tensor in a file is read in parts.

    Parameters
    ----------
    tensor : with a map, the dimensions are those of the stored tensor.

    Raises
    ------
    ArrayError, LimitError : the arrays are damaged, or memory does not suffice.

    >>> from binsparse_levels import levels_of, pack
    >>> for level in levels_of(pack([[0, 0, 2], [0, 3, 1]], 1.0, (3, 4), "CSR")):
    ...     print(level.level, level.positions, level.children, level.nbytes, round(level.to_win, 1))
    dense 1 3 0 0.0
    sparse 3 3 28 216.2
    """
    tree, order = tensor._source if tensor._source.regular else tensor.stored._tree, tensor.stored.format.order
    return list(_statistics(tree, order))


def facts_of(level: LevelStatistics) -> dict[str, Any]:
    """The numbers of a level in a table. The information limit is in whole bytes."""
    return {
        "level": str(level.level), "fibers": level.positions, "positions": level.children,
        "median": level.quantile(0.5), "longest": level.longest, "fill": None if math.isnan(level.fill) else level.fill,
        "bytes": level.nbytes, "limit": math.ceil(level.limit / 8),
    }  # fmt: skip


def table(levels: Sequence[LevelStatistics], names: Sequence[str] | None = None) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table of levels. names: of the dimensions."""
    rows: list[list[str]] = []
    for level in levels:
        name, *numbers = facts_of(level).values()
        covered = zip(level.dimensions, level.sizes, strict=True)
        sizes = ", ".join(f"{k if names is None else names[k]} ({size:,})" for k, size in covered)
        told = ("" if x is None else f"{x:.3g}" if isinstance(x, float) else f"{x:,}" for x in numbers)
        rows.append([clipped(name, 60), clipped(sizes, 120), *told])
    return ["level", "dimension (size)", "fibers", "positions", "median", "longest", "fill", "bytes", "limit"], rows


def _statistics(tree: Tree, order: Sequence[int]) -> Iterator[LevelStatistics]:
    """`levels_of`. order: stored dimension k is the tensor's order[k]. Precondition: the tree is sound."""
    walked = list(tree.walk())
    children = [*(n for _, _, n in walked), len(tree.values)][1:]
    steps = packing.expand_levels(tree) if not tree.regular else iter(())
    for (place, arrays, n), count in zip(walked, children, strict=True):
        covered = order[place.depth : place.depth + place.level.rank]
        facts = LevelStatistics(place.level, tuple(covered), tuple(place.dims), n, count, count, _nbytes(arrays))
        if not tree.regular:
            _, coords, pointers, positions = next(steps)
            facts.listed = len(positions)
            facts._add_lengths(np.diff(pointers))
            facts._add_gaps(coords, pointers[:-1][np.diff(pointers) > 0])
        elif place.arrays:
            _add_in_parts(facts, place, arrays)
        elif n:
            facts.longest = count // n
            facts.lengths[facts.longest.bit_length()] += n
            facts._tally[min(facts.longest, _EXACT - 1)] += n * (facts.longest < _EXACT)
            if facts.gaps is not None:
                facts.gaps[1] += count
        yield facts


def _add_in_parts(facts: LevelStatistics, place: Place, arrays: Mapping[str, Any]) -> None:
    """Add lengths and gaps from the children in parts. The last fiber of a part may go on in the next."""
    last, carried, before = -1, 0, None
    for start in range(0, facts.children, _AT_ONCE):
        part = range(start, min(start + _AT_ONCE, facts.children))
        owners = place.level.above(arrays, place.dims, facts.positions, part)
        fibers, counts = owners.fibers, owners.counts
        lengths = np.full(len(fibers), counts) if isinstance(counts, int) else counts.copy()
        starts = (np.cumsum(lengths) - lengths)[lengths > 0]
        goes_on = fibers[0] == last
        facts._add_gaps(owners.coords, starts[1:] if goes_on else starts, before)
        if owners.coords and cells(place.dims) <= INT64_MAX:
            before = int(_ravelled([x[-1:] for x in owners.coords], place.dims)[0])
        if goes_on:
            lengths[0] += carried
        else:
            facts._add_lengths(np.array([carried] if carried else [], np.int64))
        facts._add_lengths(lengths[:-1])
        last, carried = fibers[-1], int(lengths[-1])
    facts._add_lengths(np.array([carried] if carried else [], np.int64))
    empty = facts.positions - int(facts.lengths.sum())  # at both ends, and between parts
    facts.lengths[0] += empty
    facts._tally[0] += empty


def limit(places: int, chosen: int) -> float:
    """log2 of the number of ways to choose so many of these places: what any code needs on average, at least.

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


def _bits(numbers: Array) -> Array:
    """The number of binary digits of each."""
    bits: Array = np.frexp(numbers.astype(np.float64))[1]
    return bits


def _ravelled(coords: Sequence[Array], sizes: Sequence[int]) -> Array:
    at = np.zeros(len(coords[0]), np.int64)
    for x, size in zip(coords, sizes, strict=True):
        at = at * size + x
    return at


def _nbytes(arrays: Mapping[str, Any]) -> int:
    return sum(len(x) * x.dtype.itemsize for x in arrays.values())
