"""Index maps: from the coordinates of a tensor to those of the tensor that is stored for it.

A map writes each coordinate as digits of a mixed radix. A stored dimension is a list of digits, the most significant
first; they form the stored coordinate. This covers transposes, groups of dimensions, blocks of any depth, and
interleaved bits. The notation lists the stored dimensions. `k/s%r` is the digit (x // s) % r of the coordinate x in
dimension k; the most significant digit has no `%r`:

    1, 0        2, (0 1)        0/2, 1/4, 0%2, 1%4        (0/2 1/2 0%2 1%2)

These are a transpose, two dimensions merged behind a third, blocks of 2 × 4, and the Morton order of 4 × 4.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import BinsparseError, FormatError, LimitError, OptionError, Problem, raise_if, within_memory
from ..levels.base import Array
from ..limits import INT64_MAX, as_integers
from . import digits
from .digits import Digit as Digit
from .digits import Item
from .shapes import checked_shape, permutation_problems

MAX_DIGITS = 2**12


class Part(NamedTuple):
    """A summand of a coordinate: a digit of a stored coordinate, times `factor`.

    The digit is (x // the product of `below`) % `radix` of the stored coordinate x; without `radix`, it is the most
    significant one. A radix is a number, or the Digit that leads its dimension and so depends on the dimension's size.
    """

    below: tuple[int | Digit, ...]
    radix: int | Digit | None
    factor: int


class DimensionMap(NamedTuple):
    """A grouping as strides and offsets: stored coordinate k is offset[k] + the sum of strides[k][i] * x[groups[k][i]].

    The DM proposal calls them `roffset`, `rstrides` and `rdimensions`.
    """

    groups: tuple[tuple[int, ...], ...]
    strides: tuple[tuple[int, ...], ...]
    offset: tuple[int, ...]


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
            if not all(type(x) is int and x >= 0 for x in digit) or digit.dimension >= len(self.shape):
                yield Problem("map", f"no digit of {len(self.shape)} dimensions: {tuple(digit)!s:.60}")
                return
        for k, group in enumerate(self.groups):
            if not group:
                yield Problem("map", f"stored dimension {k} has no digit")
        for dimension, (size, chain) in enumerate(zip(self.shape, self._chains, strict=True)):
            at = 1
            sound = bool(chain)
            for digit in chain[:-1]:
                sound &= digit.stride == at and digit.radix > 0
                at *= digit.radix
            sound = sound and chain[-1].stride == at and chain[-1].radix == -(-size // at)
            if not sound:
                text = ", ".join(digit.text(False) for digit in chain[::-1]) or "none"
                what = f"the digits of dimension {dimension} of size {size} do not make up its coordinate: {text:.80}"
                yield Problem("map", what)
                return
            if at * chain[-1].radix > INT64_MAX:
                yield Problem("map", f"dimension {dimension} of size {size} is padded beyond 2**63 - 1")
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
        """Whether some stored cells are outside of the tensor."""
        return any(map(self.pads, range(len(self.shape))))

    def __str__(self) -> str:
        texts = []
        for group in self._marked:
            each = [digit.text(leads) for digit, leads in group]
            texts.append(each[0] if len(each) == 1 else f"({' '.join(each)})")
        return ", ".join(texts)

    def header(self) -> dict[str, Any]:
        """The map as JSON.

        >>> IndexMap.blocks((4,), 2).header()
        {'shape': [4], 'digits': '0/2, 0%2'}
        """
        return {"shape": list(self.shape), "digits": str(self)}

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
        groups = tuple(tuple(digit._replace(dimension=at[digit.dimension]) for digit in group) for group in self.groups)
        return IndexMap(tuple(self.shape[k] for k in axes), groups)

    def restricted(self, dimensions: Sequence[int], shape: Sequence[int]) -> tuple[IndexMap, list[int]]:
        """The map for a tensor of another shape, which cuts dimension k as this map cuts dimension dimensions[k].

        Also gives the stored dimensions that are left; those without a digit of `dimensions` disappear.

        >>> [str(x) for x in IndexMap.blocks((4, 6), 2).restricted((1,), (9,))]
        ['0/2, 0%2', '[1, 3]']
        """
        at = {k: new for new, k in enumerate(dimensions)}

        def cut(digit: Digit, leads: bool) -> Digit:
            new = at[digit.dimension]
            return Digit(new, digit.stride, -(-shape[new] // digit.stride) if leads else digit.radix)

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
        cut = digits.cut
        groups = (
            tuple(own for digit, leads in group for own in cut(digit, leads, self._marked[digit.dimension]))
            for group in second._marked
        )
        return IndexMap(self.shape, tuple(groups))

    # Coordinates

    def forward(self, coords: Sequence[npt.ArrayLike]) -> tuple[Array, ...]:
        """The stored coordinates of cells, as int64 arrays.

        coords: an array of integers for each dimension. Raises ArrayError if they are out of range.

        >>> [x.tolist() for x in IndexMap.grouping((2, 3), (0, 1), ()).forward([[0, 1], [2, 1]])]
        [[2, 4]]
        """
        return digits.taken(self._forward_steps, digits.in_range(coords, self.shape), len(self.groups))

    def backward(self, coords: Sequence[npt.ArrayLike]) -> tuple[Array, ...]:
        """The inverse of `forward`. Padding gives coordinates at or beyond the size of a dimension.

        >>> [x.tolist() for x in IndexMap.grouping((2, 3), (0, 1), ()).backward([[2, 4]])]
        [[0, 1], [2, 1]]
        """
        return digits.taken(self._backward_steps, digits.in_range(coords, self.stored_shape), len(self.shape))

    @cached_property
    def _forward_steps(self) -> list[digits.Step]:
        chains: list[list[tuple[Digit, digits.Term]]] = [[] for _ in self.shape]
        for k, group in enumerate(self.groups):
            weight = 1
            for digit in group[::-1]:
                chains[digit.dimension].append((digit, digits.Term(digit.radix, k, weight)))
                weight *= digit.radix
        ordered = ([term for _, term in sorted(chain, key=lambda item: item[0].significance)] for chain in chains)
        return [step for k, terms in enumerate(ordered) for step in digits.steps(k, terms)]

    @cached_property
    def _backward_steps(self) -> list[digits.Step]:
        chains = ([digits.Term(d.radix, d.dimension, d.stride) for d in group[::-1]] for group in self.groups)
        return [step for k, terms in enumerate(chains) for step in digits.steps(k, terms)]

    def parts(self) -> list[dict[int, list[Part]]]:
        """`backward` as formulas: for each dimension, the summands of its coordinate by stored dimension.

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
        """Whether some stored cells lie behind the end of a dimension."""
        leading = self._chains[dimension][-1]
        return leading.stride * leading.radix > self.shape[dimension]

    def told(self, stored: int) -> int | None:
        """The size of a stored dimension where the notation tells it, whatever the shape is."""
        return None if any(leads for _, leads in self._marked[stored]) else self.stored_shape[stored]

    def windows(self, items: Sequence[Item]) -> list[range | Array]:
        """For each stored dimension, ascending coordinates that include those of all wanted cells.

        items: the coordinates that are wanted of each dimension.

        >>> IndexMap.blocks((4, 6), 2).windows((1, range(2, 6)))
        [range(0, 1), range(1, 3), range(1, 2), range(0, 2)]
        """
        ranges = []
        for group in self._marked:
            each = [digits.window(items[digit.dimension], digit, leads) for digit, leads in group]
            ranges.append(each[0] if len(each) == 1 else digits.merged(each, [digit.radix for digit, _ in group]))
        return ranges

    def dm(self, items: Sequence[Item] | None = None, dimensions: Sequence[int] | None = None) -> DimensionMap:
        """A grouping as strides and offsets.

        For a view, dimension k is what `items` wants of dimension dimensions[k]. Raises FormatError for a map that
        divides a dimension, and for items without a step.

        >>> IndexMap.grouping((2, 3), (0, 1), ()).dm()
        DimensionMap(groups=((0, 1),), strides=((3, 1),), offset=(0,))
        """
        if any(len(chain) > 1 for chain in self._chains):
            what = f"{self} divides a dimension, which strides cannot represent; use a grouping"
            raise FormatError(Problem("map", what))
        wanted = [range(size) for size in self.shape] if items is None else items
        at = {k: new for new, k in enumerate(range(len(self.shape)) if dimensions is None else dimensions)}
        rows = []
        for group in self.groups:
            weight, offset = 1, 0
            kept: list[int] = []
            strides: list[int] = []
            for digit in reversed(group):
                item = wanted[digit.dimension]
                if isinstance(item, np.ndarray):
                    what = f"an index array in dimension {digit.dimension} has no stride; index with a slice"
                    raise FormatError(Problem("map", what))
                offset += weight * (item if isinstance(item, int) else item.start)
                if not isinstance(item, int):
                    kept.insert(0, at[digit.dimension])
                    strides.insert(0, weight * item.step)
                weight *= digit.radix
            rows.append((tuple(kept), tuple(strides), offset))
        return DimensionMap(*zip(*rows, strict=True)) if rows else DimensionMap((), (), ())


MapLike: TypeAlias = IndexMap | str
_DIGIT = re.compile(r"([0-9]{1,5})(?:/([0-9]{1,19}))?(?:%([0-9]{1,19}))?")
_GROUP = re.compile(r"\s*(?:\(([^(),]*)\)|([^(),\s]+))\s*")


@within_memory
def parse_map(map: MapLike, shape: Sequence[int]) -> IndexMap:
    """Parse the notation of a map, or check the shape of a map.

    Parameters
    ----------
    map : a notation, or an IndexMap.
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
    try:
        groups = [_parse_group(item, sizes) for item in map.split(",")] if map.strip() else []
        return IndexMap(sizes, tuple(groups))
    except BinsparseError as error:
        raise type(error)([Problem(f"{map!r:.80}", problem.message) for problem in error.problems]) from None


def _parse_group(text: str, shape: Sequence[int]) -> tuple[Digit, ...]:
    match = _GROUP.fullmatch(text)
    if match is None:
        raise FormatError(f"expected digits such as 0/4%2 or (0 1), got {text.strip()!r:.40}")
    return tuple(_parse_digit(digit, shape) for digit in (match[1] or match[2] or "").split())


def _parse_digit(text: str, shape: Sequence[int]) -> Digit:
    match = _DIGIT.fullmatch(text)
    if match is None:
        raise FormatError(f"expected a digit such as 0, 0/4 or 0/4%2, got {text!r:.40}")
    dimension, stride = int(match[1]), int(match[2] or 1)
    if dimension >= len(shape) or not stride:
        raise FormatError(f"{text} is no digit of a tensor of {len(shape)} dimensions")
    return Digit(dimension, stride, int(match[3]) if match[3] else -(-shape[dimension] // stride))
