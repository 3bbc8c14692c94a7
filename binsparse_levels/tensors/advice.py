"""Which format: the size of every one to the byte, without packing any.

How many different coordinates the entries have in each subset of the dimensions tells how many children each level of
any chain has, in any order: a level's position count starts from such a number and grows by what dense levels above
make of it. So 2^N numbers stand for all of the sizes. The best formats are found subset by subset, from the leaves up,
because what a level costs depends on the dimensions above it and on its positions, not on how they came about.
"""

from __future__ import annotations

import contextlib
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import kernels
from ..engine import emission, packing, sorting
from ..engine.tree import index_dtype
from ..errors import FormatError, LimitError, OptionError, Problem, raise_if, within_memory
from ..formats.format import Format, FormatLike, coordinates, in_order, parse_format, permutation_problems
from ..levels import LEVELS, Level, full, listing, places
from ..limits import DEFAULT_LIMITS, INT64_MAX, Limits, as_integer, as_integers
from . import drawing
from .mapped import AnyTensor, MappedTensor, without_map
from .tensor import Tensor, pack
from .validation import checked_dimension, mirror_problems

Blocks: TypeAlias = Callable[[int], Iterable[tuple[int, ...]]]  # below these dimensions, those a level may cover
Cost: TypeAlias = tuple[int, int, int]  # what is ranked by, bytes, levels

MAX_RANK = sorting.MAX_FUSED_RANK  # of a tensor for which every order is looked at: 2^8 counts from 70 sorts


@dataclass(frozen=True)
class Candidate:
    """A format and what it takes: bytes of all arrays, those of the values among them, and the bytes that one slice
    reads on average (None where no dimension was named).
    """

    format: Format
    nbytes: int
    values_nbytes: int
    slice_nbytes: float | None


class _Chain(NamedTuple):
    """The cheapest ways down from a level, as a list that shares its tails."""

    cost: Cost
    level: Level | None = None
    covered: tuple[int, ...] = ()
    below: Any = None

    def format(self) -> Format:
        levels: list[Level] = []
        order: list[int] = []
        at = self
        while at.level is not None:
            levels.append(at.level)
            order += at.covered
            at = at.below
        return in_order(tuple(levels), order).canonical()


@dataclass(frozen=True, eq=False)
class _Sizes:
    """What all sizes follow from. counts: by the subset of dimensions, a bit for each. one: the bytes of the values of
    an iso tensor, whose padding is `alike`, or not.
    """

    shape: tuple[int, ...]
    entries: int
    counts: Mapping[int, int]
    value_size: int
    iso: bool
    alike: bool
    may_pad: bool
    limits: Limits

    @property
    def itemsize(self) -> int:
        return index_dtype(self.shape, self.entries).itemsize

    def fits(self, n: int) -> bool:
        """Whether so many positions are made; packing has the same rule."""
        return n <= self.entries + 1 or 8 * n <= min(self.limits.dense_bytes, INT64_MAX)

    def dims(self, covered: Sequence[int]) -> list[int]:
        return [self.shape[k] for k in covered]

    def level(self, level: Level, covered: tuple[int, ...], above: int, n: int) -> tuple[int, int] | None:
        """The bytes of a level of `n` positions, and its children; None where the kind does not tell."""
        dims = self.dims(covered)
        distinct = self.counts.get(above | _bits(covered))
        children = None if distinct is None else level.children(dims, n, distinct)
        if children is None:
            return None
        size = level.nbytes(dims, n, children, root=not above, itemsize=self.itemsize)
        return None if size is None else (size, children)

    def values(self, n: int, padded: bool) -> int:
        """The bytes of the values of so many positions, some of which are perhaps padding."""
        stays_iso = self.iso and (n == self.entries or self.alike or not padded)
        return self.value_size * (1 if stays_iso else n)

    def read(
        self, level: Level, covered: tuple[int, ...], above: int, n: int, size: int, children: int, by: int
    ) -> int | None:
        """What all slices along dimension `by` read of a level, together."""
        if above >> by & 1:
            return size
        if by not in covered:
            return self.shape[by] * size
        at, root = covered.index(by), not above
        return level.sliced(self.dims(covered), n, children, at, root=root, itemsize=self.itemsize)

    def read_values(self, size: int, by: int) -> int:
        return self.shape[by] * size if self.iso and size == self.value_size else size


@within_memory
class Advice:
    """The sizes of formats for the entries of one tensor. `candidates` are the best, `compared` the usual ones.

    counts: how many different coordinates the entries have, by subset of the dimensions. slices_by: the dimension of
    which slices were asked for, or None.
    """

    def __init__(self, sizes: _Sizes, dtype: np.dtype[Any], slices_by: int | None) -> None:
        self._sizes = sizes
        self.shape = sizes.shape
        self.entries = sizes.entries
        self.dtype = dtype
        self.slices_by = slices_by
        self.candidates: tuple[Candidate, ...] = ()
        self.compared: tuple[Candidate, ...] = ()

    @property
    def counts(self) -> Mapping[tuple[int, ...], int]:
        """The number of different coordinates by subset of the dimensions, ascending."""
        found = sorted(
            (tuple(k for k in range(len(self.shape)) if m >> k & 1), c) for m, c in self._sizes.counts.items()
        )
        return MappingProxyType(dict(sorted(found, key=lambda item: len(item[0]))))

    @property
    def best(self) -> Format:
        """The format at the top. Raises LimitError where none fits."""
        if not self.candidates:
            raise LimitError(Problem("format", "none fits within the limits"))
        return self.candidates[0].format

    def nbytes(self, format: FormatLike) -> int:
        """The bytes of all arrays in that format, as `pack` makes them.

        Raises FormatError for a kind that counts do not tell the size of, or an order that was not counted; LimitError.
        """
        return self.candidate(format).nbytes

    def candidate(self, format: FormatLike) -> Candidate:
        """The same, with what a slice reads. Raises what `nbytes` raises."""
        parsed, sizes, by = parse_format(format), self._sizes, self.slices_by
        if parsed.rank != len(self.shape):
            raise FormatError(Problem("format", f"{parsed} has {parsed.rank} dimensions, not {len(self.shape)}"))
        total = read = above = 0
        n = 1
        for place in places(parsed.levels, sizes.dims(parsed.order)):
            covered = parsed.order[place.depth : place.depth + place.level.rank]
            found = sizes.level(place.level, covered, above, n)
            if found is None:
                counted = above | _bits(covered) in sizes.counts
                what = place.level if counted else "an order that was not counted"
                raise FormatError(Problem("format", f"counts do not tell the size of {what}"))
            size, children = found
            if by is not None:
                part = sizes.read(place.level, covered, above, n, size, children, by)
                assert part is not None  # a kind that tells its size tells this as well
                read += part
            total, n, above = total + size, children, above | _bits(covered)
            if not sizes.fits(n):
                sizes.limits.hold("dense_bytes", 8 * n, "format", "the size in bytes of what the dense levels make")
        if parsed.padded and not sizes.may_pad:
            raise FormatError(Problem("format", f"the fill value of the structure does not fit {parsed}"))
        values = sizes.values(n, any(level.padded for level in parsed.levels))
        mean = None
        if by is not None:
            mean = (read + sizes.read_values(values, by)) / max(self.shape[by], 1)
        return Candidate(parsed, total + values, values, mean)

    def rows(self) -> Iterator[tuple[str, Candidate, float]]:
        """The candidates with their places, then the others, each with its size as a multiple of the smallest."""
        smallest = min((c.nbytes for c in (*self.candidates, *self.compared)), default=0)
        for k, candidate in enumerate(self.candidates):
            yield str(k + 1), candidate, _ratio(candidate.nbytes, smallest)
        listed = {c.format.canonical() for c in self.candidates}
        for candidate in self.compared:
            if candidate.format.canonical() not in listed:
                yield "", candidate, _ratio(candidate.nbytes, smallest)

    def __str__(self) -> str:
        shape = " × ".join(map(str, self.shape)) or "scalar"
        table = [["", "format", "bytes", "ratio"]]
        if self.slices_by is not None:
            table[0].append(f"a slice of dimension {self.slices_by}")
        for place, candidate, ratio in self.rows():
            table.append([place, str(candidate.format), f"{candidate.nbytes:,}", f"{ratio:.3f}"])
            if candidate.slice_nbytes is not None:
                table[-1].append(f"{candidate.slice_nbytes:,.0f}")
        widths = [max(len(row[k]) for row in table) for k in range(len(table[0]))]
        iso = ", iso" if self._sizes.iso else ""
        lines = [f"{shape} {self.dtype}{iso}, {self.entries:,} entries"]
        for row in table:
            cells = [
                cell.ljust(w) if k < 2 else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def draw(self) -> str:
        """The table as a picture: an SVG with a bar for each format, its indices and its values apart."""
        bars = []
        for _, candidate, ratio in self.rows():
            text = f"{candidate.nbytes:,} bytes, {ratio:.3f} ×"
            if candidate.slice_nbytes is not None:
                text += f"; a slice {candidate.slice_nbytes:,.0f}"
            parts = (candidate.nbytes - candidate.values_nbytes, candidate.values_nbytes)
            bars.append(drawing.Bar(str(candidate.format), parts, text))
        return drawing.bars(("indices and pointers", "values"), bars)

    _repr_html_ = draw


@within_memory
def advise(
    source: AnyTensor | Sequence[npt.ArrayLike],
    shape: int | Sequence[int] | None = None,
    dtype: npt.DTypeLike = np.float64,
    *,
    slices_by: int | None = None,
    count: int = 10,
    orders: Iterable[Sequence[int]] | None = None,
    kinds: Iterable[str] | None = None,
    formats: Iterable[FormatLike] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Advice:
    """The best formats for a tensor, or for coordinates in a shape (then with values of `dtype`), and their sizes. Of a
    tensor with a map they are those of its entries without it.

    Sizes are to the byte what `pack` makes of the entries, and `convert` too, unless it keeps wider integers that were
    given. Of formats with the same size that differ in the order of the dimensions inside one level, or between dense
    levels that follow each other, one is listed; ties go to fewer levels. Every entry counts, stored zeros and what a
    dense format is filled up with included: `drop_fill` first. The coordinates are in memory, and two or three words an
    entry beside them.

    slices_by: rank by what a slice along this dimension reads, then by size. The model: of levels above the one that
    covers the dimension everything is read, for each slice; of that level what `Level.sliced` says (sparse: all of its
    pointers, a binary search in each fiber, the indices that are found, and everything where the dimension is not its
    first; dense: nothing); of what lies below, values included, each byte for one of the slices. The mean over all
    coordinates of the dimension is given.

    count: how many candidates. orders: look at these orders of the dimensions alone, which is the way beyond 8
    dimensions. kinds: look at these level kinds alone, such as ("dense", "sparse"), those that other programs read.
    formats: to be compared, where not the usual ones. limits: formats whose packing would pass them are left out.

    Raises LimitError for more than 8 dimensions without orders, IndexError, FormatError, and what `pack` raises.
    """
    has_values = isinstance(source, Tensor | MappedTensor)
    if isinstance(source, Tensor | MappedTensor):
        tensor = without_map(source)
        if shape is not None:
            raise OptionError(Problem("shape", "a tensor has its own"))
    elif shape is None:
        raise OptionError(Problem("shape", "coordinates need one"))
    else:
        rank = len(shape) if as_integer(shape) is None and isinstance(shape, Sequence | np.ndarray) else 1
        tensor = pack(source, np.zeros((), dtype), shape, coordinates(rank), duplicates="first", limits=limits)
    if slices_by is not None:
        slices_by = checked_dimension(slices_by, tensor.ndim)
    most = as_integer(count)
    if most is None:
        raise OptionError(Problem("count", f"expected an integer, got {count!r:.40}; say how many formats to list"))
    wanted = None if orders is None else [as_integers(order) for order in orders]
    for order in wanted or ():
        raise_if(FormatError, permutation_problems(order, tensor.ndim))
    if wanted is None and tensor.ndim > MAX_RANK:
        raise LimitError(
            Problem(
                "shape", f"{tensor.ndim} dimensions have too many orders, more than {MAX_RANK}: name some as orders"
            )
        )
    sizes = _sizes(tensor, has_values, wanted, limits)
    advice = Advice(sizes, tensor.dtype, slices_by)
    choices = _choices(tensor.ndim, kinds)
    if wanted is None:
        chains = _ranked(sizes, choices, _subsets(tensor.ndim, slices_by), slices_by, most)
    else:
        found = [chain for order in wanted for chain in _ranked(sizes, choices, _prefixes(order), slices_by, most)]
        chains = heapq.nsmallest(most, found, key=lambda chain: chain.cost)
    advice.candidates = tuple(advice.candidate(format) for format in dict.fromkeys(chain.format() for chain in chains))
    if formats is not None:
        advice.compared = tuple(map(advice.candidate, formats))
    else:
        for format in _usual(tensor):
            with contextlib.suppress(FormatError, LimitError):
                advice.compared += (advice.candidate(format),)
    return advice


def _usual(tensor: Tensor) -> list[Format]:
    """What most would take: the tensor's own format, coordinates, all sparse, dense above sparse, all dense."""
    rank = tensor.ndim
    usual = [tensor.format, coordinates(rank)]
    (dense,), sparse = full(1), listing(1)
    for outer, inner in ((sparse, sparse), (dense, sparse), (dense, dense)):
        usual.append(Format((outer,) * (rank - 1) + (inner,) * min(rank, 1)))
    return list(dict.fromkeys(usual))


# Counting


def _sizes(tensor: Tensor, has_values: bool, orders: Sequence[tuple[int, ...]] | None, limits: Limits) -> _Sizes:
    listed, own = tensor, tensor.format.order
    if tensor.ndim:
        listed = tensor.convert(in_order((listing(tensor.ndim),), own), limits=limits)
    tree = listed._tree
    columns, positions = packing.unpack_tree(tree, index_dtype(tree.dims, len(tree.values)))
    entries = len(positions)
    counts = {0: min(entries, 1)}
    for order in orders if orders is not None else [tuple(own[k] for k in part) for part in _orders(tensor.ndim)]:
        relative = [own.index(k) for k in order]
        found = _count_prefixes([tree.dims[k] for k in relative], [columns[k] for k in relative], relative)
        for depth in range(tensor.ndim):
            counts[_bits(order[: depth + 1])] = found[depth]
    pad = tensor._pad()
    dense = Format(full(tensor.ndim))
    held = tensor._tree.values  # where no entry is left, an iso tensor may know its value all the same
    one = held[0] if len(held) else np.zeros((), tensor.dtype)[()]
    return _Sizes(
        shape=tensor.shape,
        entries=entries,
        counts=counts,
        value_size=tensor.dtype.itemsize,
        iso=has_values and tensor.iso,
        alike=packing.alike(pad, one),
        may_pad=tensor.structure is None or not mirror_problems(tensor.structure, dense, pad),
        limits=limits,
    )


def _count_prefixes(dims: Sequence[int], coords: Sequence[Any], order: Sequence[int]) -> list[int]:
    """Different coordinates in the first dimension, the first two, … of entries that ascend in the identity order."""
    if not coords or not len(coords[0]):
        return [0] * len(dims)
    if sorting.layout(tuple(dims)) is None or not kernels.worth(len(coords[0])):
        return emission.count_prefixes_in_numpy(coords)
    return emission.count_prefixes(tuple(dims), coords, packing.ordered_dims(order))


def _orders(rank: int) -> Iterator[tuple[int, ...]]:
    """As few orders as can be, C(rank, rank // 2), in which every subset of the dimensions is the beginning of one.

    A symmetric chain for each: dimensions left out and taken in are matched like opening and closing brackets; what is
    matched stays, and the others are taken in from left to right.
    """
    for taken in product((False, True), repeat=rank):
        opening: list[int] = []
        first: list[int] = []
        last: list[int] = []
        for k, is_taken in enumerate(taken):
            if not is_taken:
                opening.append(k)
            elif opening:
                first.append(k)
                last.append(opening.pop())
            else:  # not the smallest subset of its chain
                break
        else:
            yield (*first, *opening, *sorted(last))


def _bits(dimensions: Iterable[int]) -> int:
    return sum(1 << k for k in dimensions)


# Searching


class _Choice(NamedTuple):
    """A level of some rank. whole: its kind splits into its dimensions, so that none is put right behind another."""

    level: Level
    whole: bool


def _choices(rank: int, kinds: Iterable[str] | None) -> dict[int, list[_Choice]]:
    """The levels of each rank, of every kind that needs no further parameters."""
    names = list(LEVELS) if kinds is None else list(kinds)
    raise_if(FormatError, [Problem("kinds", f"{name!r} is no level kind") for name in names if name not in LEVELS])
    found: dict[int, list[_Choice]] = {r: [] for r in range(1, rank + 1)}
    for name in names:
        made = []
        for r in found:
            with contextlib.suppress(FormatError, TypeError):
                made.append(LEVELS[name](r))
        whole = any(len(level.canonical()) > 1 for level in made)
        for level in made:
            found[level.rank].append(_Choice(level, whole))
    return found


def _subsets(rank: int, first: int | None) -> Blocks:
    """Whatever is left; the named dimension stands first in its level, where a level is told by it fastest."""

    @cache
    def blocks(above: int) -> list[tuple[int, ...]]:
        left = [k for k in range(rank) if not above >> k & 1]
        found = [part for r in range(1, len(left) + 1) for part in combinations(left, r)]
        return [tuple(sorted(part, key=lambda k: (k != first, k))) for part in found]

    return blocks


def _prefixes(order: tuple[int, ...]) -> Blocks:
    def blocks(above: int) -> list[tuple[int, ...]]:
        depth = above.bit_count()
        return [order[depth:end] for end in range(depth + 1, len(order) + 1)]

    return blocks


def _ranked(
    sizes: _Sizes, choices: Mapping[int, list[_Choice]], blocks: Blocks, by: int | None, count: int
) -> list[_Chain]:
    """The cheapest chains: by bytes, or by what slices along a dimension read."""
    everything = (1 << len(sizes.shape)) - 1

    @cache
    def below(above: int, n: int, behind: str | None, padded: bool) -> list[_Chain]:
        if above == everything:
            size = sizes.values(n, padded)
            return [_Chain((size if by is None else sizes.read_values(size, by), size, 0))]
        found = []
        for covered in blocks(above):
            reached = above | _bits(covered)
            for level, whole in choices[len(covered)]:
                if (whole and level.kind == behind) or (reached == everything and level.padded and not sizes.may_pad):
                    continue
                told = sizes.level(level, covered, above, n)
                if told is None or not sizes.fits(told[1]):
                    continue
                size, children = told
                read = size if by is None else sizes.read(level, covered, above, n, size, children, by)
                if read is None:
                    continue
                pads = sizes.iso and (padded or level.padded)  # which is all the same to other values
                for chain in below(reached, children, level.kind if whole else None, pads):
                    first, second, depth = chain.cost
                    found.append(_Chain((first + read, second + size, depth + 1), level, covered, chain))
        return heapq.nsmallest(count, found, key=lambda chain: chain.cost)

    return below(0, 1, None, False)


def _ratio(size: int, smallest: int) -> float:
    return size / smallest if smallest else (math.inf if size else 1.0)
