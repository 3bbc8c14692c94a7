"""Index maps by name: groupings, blocks, and orders of the bits of coordinates."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ..errors import FormatError, Problem, raise_if, within_memory
from ..limits import as_integer, as_integers
from . import digits
from .digits import Digit
from .map_digits import Digits
from .shapes import checked_shape, permutation_problems


@within_memory
@dataclass(frozen=True)
class ByName(Digits):
    """Maps that have a name."""

    @classmethod
    def transpose(cls, shape: Sequence[int], axes: Sequence[int] | None = None) -> Self:
        """Stored dimension k is dimension axes[k]; without axes this is the identity.

        Parameters
        ----------
        shape : int or sequence of int
            Sizes of the dimensions.
        axes : sequence of int, optional
            A permutation of the dimensions.

        Returns
        -------
        IndexMap
            Map for a tensor of that shape.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> str(bl.IndexMap.transpose((2, 3)))
        '0, 1'
        """
        sizes = checked_shape(shape)
        return cls.grouping(sizes, range(len(sizes)) if axes is None else axes, range(1, len(sizes)))

    @classmethod
    def grouping(cls, shape: Sequence[int], dimensions: Sequence[int], partitioning: Sequence[int]) -> Self:
        """Groups of dimensions, each merged into one stored dimension: the DM format, and with one cut that of GCXS.

        Parameters
        ----------
        shape : int or sequence of int
            Sizes of the dimensions.
        dimensions : sequence of int
            A permutation of the dimensions.
        partitioning : sequence of int
            The places in `dimensions` where a new group starts, ascending and without 0.

        Returns
        -------
        IndexMap
            Map for a tensor of that shape.

        Raises
        ------
        FormatError
            The arguments are none of these.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> str(bl.IndexMap.grouping((2, 3, 5), (2, 0, 1), (1,)))
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
    def blocks(cls, shape: Sequence[int], *sizes: int | Sequence[int]) -> Self:
        """Blocks: first the number of the block in each dimension, then the coordinates within the block.

        `dense, sparse, dense(2)` over blocks of a matrix is BSR. `sparse(3), sparse(3)` lists blocks of rank 3.

        Parameters
        ----------
        shape : int or sequence of int
            Sizes of the dimensions.
        *sizes
            Sizes of the outermost blocks, then of the blocks within them. A number stands for all dimensions.

        Returns
        -------
        IndexMap
            Map for a tensor of that shape.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> str(bl.IndexMap.blocks((16, 16), 8, 2))
        '0/8, 1/8, 0/2%4, 1/2%4, 0%2, 1%2'
        """
        whole = checked_shape(shape)
        strides = [*digits.block_sizes(whole, sizes), (1,) * len(whole)]
        nested = [[Digit(k, s, -(-n // s)) for k, (n, s) in enumerate(zip(whole, strides[0], strict=True))]]
        for outer, inner in itertools.pairwise(strides):
            nested.append([Digit(k, b, a // b) for k, (a, b) in enumerate(zip(outer, inner, strict=True))])
        return cls(whole, tuple((digit,) for digits in nested for digit in digits))

    @classmethod
    def morton(cls, shape: Sequence[int]) -> Self:
        """The Morton or Z order: all bits of all coordinates interleaved into one stored dimension.

        Parameters
        ----------
        shape : int or sequence of int
            Sizes of the dimensions.

        Returns
        -------
        IndexMap
            Map for a tensor of that shape.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> str(bl.IndexMap.morton((4, 4)))
        '(0/2 1/2 0%2 1%2)'
        """
        sizes = checked_shape(shape)
        return cls(sizes, digits.interleaved(sizes, (1,) * len(sizes)))

    @classmethod
    def alto(cls, shape: Sequence[int]) -> Self:
        """The order of ALTO [ALTO]_: `morton` where bits of short dimensions come last among those of one significance.

        Parameters
        ----------
        shape : int or sequence of int
            Sizes of the dimensions.

        Returns
        -------
        IndexMap
            Map for a tensor of that shape.

        References
        ----------
        .. [ALTO] A. E. Helal et al., "ALTO: Adaptive linearized storage of sparse tensors", ICS, 2021.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> str(bl.IndexMap.alto((2, 8)))
        '(1/4 1/2%2 1%2 0)'
        """
        sizes = checked_shape(shape)
        order = sorted(range(len(sizes)), key=lambda k: (sizes[k] - 1).bit_length())[::-1]
        return cls(sizes, digits.interleaved(sizes, (1,) * len(sizes), order))

    @classmethod
    def blco(cls, shape: Sequence[int], bits: int) -> Self:
        """Blocks in the order of ALTO, then the coordinates within a block, of `bits` bits, as one stored dimension.

        With `sparse, sparse` this is BLCO [BLCO]_. The entries of a block are ordered by their coordinates.

        Parameters
        ----------
        shape : int or sequence of int
            Sizes of the dimensions.
        bits : int
            Bits of the coordinates within a block.

        Returns
        -------
        IndexMap
            Map for a tensor of that shape.

        References
        ----------
        .. [BLCO] A. Nguyen et al., "Efficient, out-of-memory sparse MTTKRP on massively parallel architectures",
           ICS, 2022.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> str(bl.IndexMap.blco((4, 8), 3))
        '(1/4 1/2%2), (0/2 0%2 1%2)'
        """
        if (number := as_integer(bits)) is None or number < 1:
            raise FormatError(Problem("bits", f"expected an integer >= 1, got {bits!s:.60}"))
        order = tuple(itertools.chain(*cls.alto(shape).groups))
        block = sorted(order[-number:], key=lambda digit: digit.dimension)
        return cls(tuple(shape), tuple(group for group in (order[:-number], tuple(block)) if group))

    @classmethod
    def hicoo(cls, shape: Sequence[int], size: int | Sequence[int]) -> Self:
        """Blocks in Morton order, then the coordinates within a block. With `sparse, sparse(n)` this is HiCOO [HiCOO]_.

        Parameters
        ----------
        shape : int or sequence of int
            Sizes of the dimensions.
        size : int or sequence of int
            Size of the blocks, for all dimensions or for each.

        Returns
        -------
        IndexMap
            Map for a tensor of that shape.

        References
        ----------
        .. [HiCOO] J. Li, J. Sun, and R. Vuduc, "HiCOO: Hierarchical storage of sparse tensors", SC, 2018.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> str(bl.IndexMap.hicoo((8, 16), 4))
        '(1/8 0/4 1/4%2), 0%4, 1%4'
        """
        sizes = checked_shape(shape)
        (block,) = digits.block_sizes(sizes, [size])
        return cls(sizes, (*digits.interleaved(sizes, block), *((Digit(k, 1, s),) for k, s in enumerate(block))))
