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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import BinsparseError, FormatError, OptionError, Problem, within_memory
from ..levels.base import Array
from . import digits
from .digits import Digit as Digit
from .digits import Item
from .digits import Part as Part
from .maps_by_name import ByName
from .shapes import checked_shape
from .strides import DimensionMap as DimensionMap
from .strides import strides_of


@within_memory
@dataclass(frozen=True)
class IndexMap(ByName):
    """A map from the coordinates of a tensor to those of the stored tensor.

    `str` gives the notation, and parse_map(str(m), m.shape) == m. Stored cells outside of the tensor are *padding*.
    There are some if the lower digits of a dimension do not divide its size.

    Parameters
    ----------
    shape : tuple of int
        The sizes of the tensor's dimensions.
    groups : tuple of tuple of Digit
        The digits of each stored dimension, the most significant first. Every digit of a dimension stands in one
        group. The leading digit has the smallest radix that covers the size.

    Raises
    ------
    FormatError
        The digits do not make up the coordinates, or a size is beyond 2**63 - 1.

    See Also
    --------
    parse_map : Parse the notation of a map.
    Format : A storage format, as levels and a transpose.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> blocks = bl.IndexMap.blocks((6, 8), (2, 4))
    >>> str(blocks), blocks.stored_shape
    ('0/2, 1/4, 0%2, 1%4', (3, 2, 2, 4))
    """

    def __str__(self) -> str:
        texts = []
        for group in self._marked:
            each = [digit.text(leads) for digit, leads in group]
            texts.append(each[0] if len(each) == 1 else f"({' '.join(each)})")
        return ", ".join(texts)

    # Maps from maps

    def permuted(self, axes: Sequence[int]) -> IndexMap:
        """The map to the same stored cells from the tensor whose dimension k is dimension axes[k] of this tensor.

        Parameters
        ----------
        axes : sequence of int
            A permutation of the dimensions.

        Returns
        -------
        IndexMap
            Map for the shape `shape[axes[0]], shape[axes[1]], …`.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> str(bl.IndexMap.blocks((4, 6), 2).permuted((1, 0)))
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

        Stored dimensions without a digit of `dimensions` disappear. Without its other dimension, a difference becomes
        the coordinate.

        Parameters
        ----------
        dimensions : sequence of int
            Dimensions of this map that are kept.
        shape : sequence of int
            Sizes of the dimensions of the result.

        Returns
        -------
        map : IndexMap
            Map for `shape`.
        left : list of int
            Stored dimensions that remain.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> [str(x) for x in bl.IndexMap.blocks((4, 6), 2).restricted((1,), (9,))]
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

        Parameters
        ----------
        second : IndexMap
            Map for the shape `stored_shape`.

        Returns
        -------
        IndexMap
            Map for the shape of this map.

        Raises
        ------
        FormatError
            The second map is for another shape, or splits a digit of this map unevenly.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> str(bl.IndexMap.grouping((4, 6), (0, 1), ()).then(bl.IndexMap.blocks((24,), 6)))
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
        """The stored coordinates of cells.

        Parameters
        ----------
        coords : sequence of array_like
            An array of integers for each dimension.

        Returns
        -------
        tuple of ndarray
            An int64 array for each stored dimension.

        Raises
        ------
        ArrayError
            Coordinates are out of range.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> [x.tolist() for x in bl.IndexMap.grouping((2, 3), (0, 1), ()).forward([[0, 1], [2, 1]])]
        [[2, 4]]
        """
        columns = digits.in_range(coords, self.shape)
        for k, less in self.differences:
            columns[k] = columns[k] - columns[less] + (self.shape[less] - 1)
        return digits.taken(self._forward_steps, columns, len(self.groups))

    def backward(self, coords: Sequence[npt.ArrayLike]) -> tuple[Array, ...]:
        """The coordinates of stored cells, the inverse of `forward`.

        Padding gives coordinates at or beyond the size of a dimension.

        Parameters
        ----------
        coords : sequence of array_like
            An array of integers for each stored dimension.

        Returns
        -------
        tuple of ndarray
            An int64 array for each dimension.

        Raises
        ------
        ArrayError
            Coordinates are out of range.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> [x.tolist() for x in bl.IndexMap.grouping((2, 3), (0, 1), ()).backward([[2, 4]])]
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

    def dm(self, items: Sequence[Item] | None = None, dimensions: Sequence[int] | None = None) -> DimensionMap:
        """A grouping as strides and offsets.

        Parameters
        ----------
        items : sequence of int, range or ndarray, optional
            Coordinates of a view: dimension k is what `items` has of dimension dimensions[k].
        dimensions : sequence of int, optional
            Dimensions of this map in the order of the view.

        Returns
        -------
        DimensionMap
            Groups, strides and offset of the stored dimensions.

        Raises
        ------
        FormatError
            The map divides or subtracts a dimension, or an item has no step.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.IndexMap.grouping((2, 3), (0, 1), ()).dm()
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
    map : str or IndexMap
        A notation, "alto" or "morton" for the map of that name, or an IndexMap.
    shape : sequence of int
        The sizes of the tensor's dimensions.

    Returns
    -------
    IndexMap
        Map for a tensor of that shape.

    Raises
    ------
    FormatError
        The notation is no map of a tensor of that shape.

    See Also
    --------
    parse_format : Parse the notation of a format.
    IndexMap : A map from the coordinates of a tensor to those of the stored tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.parse_map("0/2, 0%2", (5,)).stored_shape
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
