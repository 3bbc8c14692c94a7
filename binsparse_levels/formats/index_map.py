"""Index maps: from the coordinates of a tensor to those of the tensor that is stored for it.

A map writes each coordinate as digits of a mixed radix. A stored dimension is a list of digits, the most significant
first; they form the stored coordinate. This covers transposes, groups of dimensions, blocks of any depth, and
interleaved bits. The notation lists the stored dimensions. `k/s%r` is the digit (x // s) % r of the coordinate x in
dimension k; the most significant digit has no `%r`:

    1, 0        2, (0 1)        0/2, 1/4, 0%2, 1%4        (0/2 1/2 0%2 1%2)

These are a transpose, two dimensions merged after a third, blocks of 2 × 4, and the Morton order of 4 × 4. `1-0` is
the coordinate of dimension 1 less that of dimension 0, so that `1-0, 0` stores diagonals.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import BinsparseError, FormatError, LimitError, OptionError, Problem, raise_if, within_memory
from ..levels.base import Array
from ..limits import INT64_MAX, as_integer, as_integers
from . import digits
from .digits import Digit as Digit
from .digits import Item
from .digits import Part as Part
from .shapes import checked_shape, permutation_problems
from .strides import DimensionMap as DimensionMap
from .strides import strides_of

MAX_DIGITS = 2**12


@within_memory
@dataclass(frozen=True)
class IndexMap:
    """A map from the coordinates of a tensor to those of the stored tensor.

    `str` gives the notation, and parse_map(str(m), m.shape) == m. Stored cells outside of the tensor are *padding*.
    There are some if the lower digits of a dimension do not divide its size.

    Parameters
    ----------
    shape : the sizes of the tensor's dimensions.
    groups : the digits of each stored dimension, the most significant first. Every digit of a dimension stands in one
        group. The leading digit has the smallest radix that covers the size.

    Raises
    ------
    FormatError : the digits do not make up the coordinates, or a size is beyond 2**63 - 1.

    >>> blocks = IndexMap.blocks((6, 8), (2, 4))
    >>> str(blocks), blocks.stored_shape
    ('0/2, 1/4, 0%2, 1%4', (3, 2, 2, 4))
    """

    shape: tuple[int, ...]
    groups: tuple[tuple[Digit, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", checked_shape(self.shape))
        object.__setattr__(
            self, "groups", tuple(tuple(Digit(*as_integers(digit)) for digit in group) for group in self.groups)
        )
        if sum(map(len, self.groups)) > MAX_DIGITS:
            raise LimitError(Problem("map", f"no map has more than {MAX_DIGITS} digits"))
        raise_if(FormatError, self._problems())

    def _problems(self) -> Iterator[Problem]:
        for digit in itertools.chain(*self.groups):
            sound = all(type(x) is int for x in digit) and min(digit[:3]) >= 0 and digit.less >= -1
            if not sound or max(digit.dimension, digit.less) >= len(self.shape):
                yield Problem("map", f"no digit of {len(self.shape)} dimensions: {tuple(digit)!s:.60}")
                return
        for k, group in enumerate(self.groups):
            if not group:
                yield Problem("map", f"stored dimension {k} has no digit")
        for dimension, chain in enumerate(self._chains):
            less = chain[-1].less if chain else -1
            if any(digit.less != less for digit in chain) or (less >= 0 and self._less(less) >= 0):
                what = f"the digits of dimension {dimension} are not all of one difference to a dimension that is none"
                yield Problem("map", what)
                return
            if what := digits.fault(chain, dimension, digits.extent(self.shape, dimension, less)):
                yield Problem("map", what)
                return
        for k, size in enumerate(self.stored_shape):
            if size > INT64_MAX:
                yield Problem("map", f"stored dimension {k} would have the size {size}, beyond 2**63 - 1")

    @cached_property
    def _chains(self) -> list[list[Digit]]:
        """The digits of each dimension, the leading digit last."""
        chains: list[list[Digit]] = [[] for _ in self.shape]
        for digit in itertools.chain(*self.groups):
            chains[digit.dimension].append(digit)
        for chain in chains:
            chain.sort(key=lambda digit: digit.significance)
        return chains

    def _less(self, dimension: int) -> int:
        """The dimension to which the digits of this one are a difference, or -1."""
        return next((digit.less for digit in self._chains[dimension]), -1)

    @cached_property
    def differences(self) -> tuple[tuple[int, int], ...]:
        """The dimensions whose digits are a difference, each with that to which it is.

        >>> parse_map("1-0, 0", (2, 3)).differences
        ((1, 0),)
        """
        return tuple((k, less) for k in range(len(self.shape)) if (less := self._less(k)) >= 0)

    @cached_property
    def _marked(self) -> list[list[tuple[Digit, bool]]]:
        """The digits of each group, and whether each leads its dimension. Of equal digits the last leads."""
        last = {digit: (k, i) for k, group in enumerate(self.groups) for i, digit in enumerate(group)}
        leading = {last[chain[-1]] for chain in self._chains}
        return [[(digit, (k, i) in leading) for i, digit in enumerate(group)] for k, group in enumerate(self.groups)]

    @cached_property
    def stored_shape(self) -> tuple[int, ...]:
        """The sizes of the stored dimensions."""
        return tuple(math.prod(digit.radix for digit in group) for group in self.groups)

    @property
    def padded(self) -> bool:
        """True if some stored cells are outside of the tensor."""
        return any(map(self.pads, range(len(self.shape))))

    def __str__(self) -> str:
        texts = []
        for group in self._marked:
            each = [digit.text(leads) for digit, leads in group]
            texts.append(each[0] if len(each) == 1 else f"({' '.join(each)})")
        return ", ".join(texts)

    # Maps by name

    @classmethod
    def transpose(cls, shape: Sequence[int], axes: Sequence[int] | None = None) -> IndexMap:
        """Stored dimension k is dimension axes[k]; without axes this is the identity.

        >>> str(IndexMap.transpose((2, 3)))
        '0, 1'
        """
        sizes = checked_shape(shape)
        return cls.grouping(sizes, range(len(sizes)) if axes is None else axes, range(1, len(sizes)))

    @classmethod
    def grouping(cls, shape: Sequence[int], dimensions: Sequence[int], partitioning: Sequence[int]) -> IndexMap:
        """Groups of dimensions, each merged into one stored dimension: the DM format, and with one cut that of GCXS.

        Parameters
        ----------
        dimensions : a permutation of the dimensions.
        partitioning : the places in `dimensions` where a new group starts, ascending and without 0.

        Raises
        ------
        FormatError : the arguments are none of these.

        >>> str(IndexMap.grouping((2, 3, 5), (2, 0, 1), (1,)))
        '2, (0 1)'
        """
        sizes = checked_shape(shape)
        order, cuts = list(as_integers(dimensions)), list(as_integers(partitioning))
        raise_if(FormatError, [Problem("dimensions", p.message) for p in permutation_problems(order, len(sizes))])
        ends = [0, *cuts, len(order)]
        if not all(type(cut) is int for cut in cuts) or (
            (order or cuts) and any(b <= a for a, b in itertools.pairwise(ends))
        ):
            what = f"expected ascending integers in 1 … {len(order) - 1}, got {cuts!s:.60}"
            raise FormatError(Problem("partitioning", what))
        groups = [order[a:b] for a, b in itertools.pairwise(ends)] if order else []
        return cls(sizes, tuple(tuple(Digit(k, 1, sizes[k]) for k in group) for group in groups))

    @classmethod
    def blocks(cls, shape: Sequence[int], *sizes: int | Sequence[int]) -> IndexMap:
        """Blocks: first the number of the block in each dimension, then the coordinates within the block.

        `dense, sparse, dense(2)` over blocks of a matrix is BSR. `sparse(3), sparse(3)` lists blocks of rank 3.

        Parameters
        ----------
        sizes : of the outermost blocks, then of the blocks within them. A number stands for all dimensions.

        >>> str(IndexMap.blocks((16, 16), 8, 2))
        '0/8, 1/8, 0/2%4, 1/2%4, 0%2, 1%2'
        """
        whole = checked_shape(shape)
        strides = [*digits.block_sizes(whole, sizes), (1,) * len(whole)]
        nested = [[Digit(k, s, -(-n // s)) for k, (n, s) in enumerate(zip(whole, strides[0], strict=True))]]
        for outer, inner in itertools.pairwise(strides):
            nested.append([Digit(k, b, a // b) for k, (a, b) in enumerate(zip(outer, inner, strict=True))])
        return cls(whole, tuple((digit,) for digits in nested for digit in digits))

    @classmethod
    def morton(cls, shape: Sequence[int]) -> IndexMap:
        """The Morton or Z order: all bits of all coordinates interleaved into one stored dimension.

        >>> str(IndexMap.morton((4, 4)))
        '(0/2 1/2 0%2 1%2)'
        """
        sizes = checked_shape(shape)
        return cls(sizes, digits.interleaved(sizes, (1,) * len(sizes)))

    @classmethod
    def alto(cls, shape: Sequence[int]) -> IndexMap:
        """The order of ALTO: as `morton`, and among bits of one significance those of short dimensions come last.

        >>> str(IndexMap.alto((2, 8)))
        '(1/4 1/2%2 1%2 0)'
        """
        sizes = checked_shape(shape)
        order = sorted(range(len(sizes)), key=lambda k: (sizes[k] - 1).bit_length())[::-1]
        return cls(sizes, digits.interleaved(sizes, (1,) * len(sizes), order))

    @classmethod
    def blco(cls, shape: Sequence[int], bits: int) -> IndexMap:
        """Blocks in the order of ALTO, then the coordinates within a block, of `bits` bits, as one stored dimension.

        With `sparse, sparse` this is BLCO. The entries of a block are ordered by their coordinates.

        >>> str(IndexMap.blco((4, 8), 3))
        '(1/4 1/2%2), (0/2 0%2 1%2)'
        """
        if (number := as_integer(bits)) is None or number < 1:
            raise FormatError(Problem("bits", f"expected an integer >= 1, got {bits!s:.60}"))
        order = tuple(itertools.chain(*cls.alto(shape).groups))
        block = sorted(order[-number:], key=lambda digit: digit.dimension)
        return cls(tuple(shape), tuple(group for group in (order[:-number], tuple(block)) if group))

    @classmethod
    def hicoo(cls, shape: Sequence[int], size: int | Sequence[int]) -> IndexMap:
        """Blocks in Morton order, then the coordinates within a block. With `sparse, sparse(n)` this is HiCOO.

        >>> str(IndexMap.hicoo((8, 16), 4))
        '(1/8 0/4 1/4%2), 0%4, 1%4'
        """
        sizes = checked_shape(shape)
        (block,) = digits.block_sizes(sizes, [size])
        return cls(sizes, (*digits.interleaved(sizes, block), *((Digit(k, 1, s),) for k, s in enumerate(block))))

    # Maps from maps

    def permuted(self, axes: Sequence[int]) -> IndexMap:
        """The map to the same stored cells from the tensor whose dimension k is dimension axes[k] of this tensor.

        >>> str(IndexMap.blocks((4, 6), 2).permuted((1, 0)))
        '1/2, 0/2, 1%2, 0%2'
        """
        at = {k: new for new, k in enumerate(axes)}
        groups = tuple(
            tuple(digit._replace(dimension=at[digit.dimension], less=at.get(digit.less, -1)) for digit in group)
            for group in self.groups
        )
        return IndexMap(tuple(self.shape[k] for k in axes), groups)

    def restricted(self, dimensions: Sequence[int], shape: Sequence[int]) -> tuple[IndexMap, list[int]]:
        """The map for a tensor of another shape, which cuts dimension k as this map cuts dimension dimensions[k].

        Also gives the stored dimensions that are left; those without a digit of `dimensions` disappear. Without its
        other dimension, a difference becomes the coordinate.

        >>> [str(x) for x in IndexMap.blocks((4, 6), 2).restricted((1,), (9,))]
        ['0/2, 0%2', '[1, 3]']
        """
        at = {k: new for new, k in enumerate(dimensions)}

        def cut(digit: Digit, leads: bool) -> Digit:
            new, less = at[digit.dimension], at.get(digit.less, -1)
            size = digits.extent(shape, new, less)
            return Digit(new, digit.stride, -(-size // digit.stride) if leads else digit.radix, less)

        groups = [tuple(cut(*digit) for digit in group if digit[0].dimension in at) for group in self._marked]
        left = [k for k, group in enumerate(groups) if group]
        return IndexMap(tuple(shape), tuple(groups[k] for k in left)), left

    def then(self, second: IndexMap) -> IndexMap:
        """A map that applies this map and then the second.

        Raises FormatError if the second map is for another shape, or splits a digit of this map unevenly.

        >>> str(IndexMap.grouping((4, 6), (0, 1), ()).then(IndexMap.blocks((24,), 6)))
        '0, 1'
        """
        if second.shape != self.stored_shape:
            what = f"expected one for the shape {self.stored_shape}, got one for {second.shape}"
            raise FormatError(Problem("map", what))
        groups = ([own for digit, leads in group for own in self._own(digit, leads)] for group in second._marked)
        return IndexMap(self.shape, tuple(map(tuple, groups)))

    def _own(self, wanted: Digit, leading: bool) -> list[Digit]:
        """A digit of a second map, as digits of this one."""
        if wanted.less < 0:
            return digits.cut(wanted, leading, self._marked[wanted.dimension])
        pair = self.groups[wanted.dimension] + self.groups[wanted.less]
        if len(pair) > 2 or any(digit != Digit(digit.dimension, 1, self.shape[digit.dimension]) for digit in pair):
            what = f"{wanted.text(True)} of the second map is a difference of what the first divides or merges"
            raise FormatError(Problem("map", what))
        return [wanted._replace(dimension=pair[0].dimension, less=pair[1].dimension)]

    # Coordinates

    def forward(self, coords: Sequence[npt.ArrayLike]) -> tuple[Array, ...]:
        """The stored coordinates of cells, as int64 arrays.

        coords: an array of integers for each dimension. Raises ArrayError if they are out of range.

        >>> [x.tolist() for x in IndexMap.grouping((2, 3), (0, 1), ()).forward([[0, 1], [2, 1]])]
        [[2, 4]]
        """
        columns = digits.in_range(coords, self.shape)
        for k, less in self.differences:
            columns[k] = columns[k] - columns[less] + (self.shape[less] - 1)
        return digits.taken(self._forward_steps, columns, len(self.groups))

    def backward(self, coords: Sequence[npt.ArrayLike]) -> tuple[Array, ...]:
        """The inverse of `forward`. Padding gives coordinates at or beyond the size of a dimension.

        >>> [x.tolist() for x in IndexMap.grouping((2, 3), (0, 1), ()).backward([[2, 4]])]
        [[0, 1], [2, 1]]
        """
        stored = digits.in_range(coords, self.stored_shape)
        columns = list(digits.taken(self._backward_steps, stored, len(self.shape)))
        for k, less in self.differences:
            x = columns[k] + (columns[less] - (self.shape[less] - 1))
            columns[k] = np.where(x < 0, self.shape[k], x)
        return tuple(columns)

    @cached_property
    def _forward_steps(self) -> list[digits.Step]:
        return list(digits.steps_forward(self.groups, len(self.shape)))

    @cached_property
    def _backward_steps(self) -> list[digits.Step]:
        chains = ([digits.Term(d.radix, d.dimension, d.stride) for d in group[::-1]] for group in self.groups)
        return [step for k, terms in enumerate(chains) for step in digits.steps(k, terms)]

    def parts(self) -> list[dict[int, list[Part]]]:
        """`backward` as formulas: for each dimension, the summands of its coordinate by stored dimension.

        For one of `differences`, they give the difference.

        >>> IndexMap.blocks((4, 6), 2).parts()[1]
        {1: [Part(below=(), radix=None, factor=2)], 3: [Part(below=(), radix=None, factor=1)]}
        """
        summands: list[dict[int, list[Part]]] = [{} for _ in self.shape]
        for k, group in enumerate(self._marked):
            radices = [digit if leads else digit.radix for digit, leads in group]
            for i, (digit, _) in enumerate(group):
                part = Part(tuple(radices[:i:-1]), radices[i] if i else None, digit.stride)
                summands[digit.dimension].setdefault(k, []).append(part)
        return summands

    def pads(self, dimension: int) -> bool:
        """Return True if some stored cells are beyond the end of a dimension."""
        leading = self._chains[dimension][-1]
        return leading.less >= 0 or leading.stride * leading.radix > self.shape[dimension]

    def fixed_size(self, stored: int) -> int | None:
        """The size of a stored dimension if it follows from the notation for any shape, else None."""
        return None if any(leads for _, leads in self._marked[stored]) else self.stored_shape[stored]

    def leads(self, stored: int) -> Digit | None:
        """The first digit of a stored dimension if it leads its dimension, in a map without differences, else None."""
        digit, leading = self._marked[stored][0]
        return digit if leading and not self.differences else None

    def windows(self, items: Sequence[Item]) -> list[range | Array]:
        """For each stored dimension, ascending coordinates that include those of all wanted cells.

        items: the coordinates that are wanted of each dimension.

        >>> IndexMap.blocks((4, 6), 2).windows((1, range(2, 6)))
        [range(0, 1), range(1, 3), range(1, 2), range(0, 2)]
        """
        ranges, items = [], list(items)
        for k, less in self.differences:
            items[k] = digits.differences(items[k], items[less], self.shape[less])
        for group in self._marked:
            each = [digits.window(items[digit.dimension], digit, leads) for digit, leads in group]
            ranges.append(each[0] if len(each) == 1 else digits.merged(each, [digit.radix for digit, _ in group]))
        return ranges

    def dm(self, items: Sequence[Item] | None = None, dimensions: Sequence[int] | None = None) -> DimensionMap:
        """A grouping as strides and offsets.

        For a view, dimension k is what `items` wants of dimension dimensions[k]. Raises FormatError for a map that
        divides or subtracts a dimension, and for items without a step.

        >>> IndexMap.grouping((2, 3), (0, 1), ()).dm()
        DimensionMap(groups=((0, 1),), strides=((3, 1),), offset=(0,))
        """
        if self.differences or any(len(chain) > 1 for chain in self._chains):
            what = f"{self} divides a dimension or subtracts one, which strides cannot represent; use a grouping"
            raise FormatError(Problem("map", what))
        wanted = [range(size) for size in self.shape] if items is None else items
        at = {k: new for new, k in enumerate(range(len(self.shape)) if dimensions is None else dimensions)}
        return strides_of(self.groups, wanted, at)


MapLike: TypeAlias = IndexMap | str


@within_memory
def parse_map(map: MapLike, shape: Sequence[int]) -> IndexMap:
    """Parse the notation of a map, or check the shape of a map.

    Parameters
    ----------
    map : a notation, "alto" or "morton" for the map of that name, or an IndexMap.
    shape : the sizes of the tensor's dimensions.

    Raises
    ------
    FormatError : the notation is no map of a tensor of that shape.

    >>> parse_map("0/2, 0%2", (5,)).stored_shape
    (3, 2)
    """
    sizes = checked_shape(shape)
    if isinstance(map, IndexMap):
        if map.shape != sizes:
            raise FormatError(Problem("map", f"expected one for the shape {sizes}, got one for {map.shape}"))
        return map
    if not isinstance(map, str):
        raise OptionError(f"a map is an IndexMap or its notation, got {type(map).__name__}; write '0/2, 0%2'")
    if (name := map.strip()) in ("alto", "morton"):
        return IndexMap.alto(sizes) if name == "alto" else IndexMap.morton(sizes)
    try:
        groups = [digits.parse_group(item, sizes) for item in map.split(",")] if name else []
        return IndexMap(sizes, tuple(groups))
    except BinsparseError as error:
        raise type(error)([Problem(f"{map!r:.80}", problem.message) for problem in error.problems]) from None
