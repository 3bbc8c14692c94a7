"""The digits of an index map: checks, sizes, and what a selection reads of the stored dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..errors import FormatError, LimitError, Problem, raise_if, within_memory
from ..levels.base import Array
from ..limits import INT64_MAX, as_integers
from . import digits
from .digits import Digit, Item, Part
from .shapes import checked_shape

MAX_DIGITS = 2**12


@within_memory
@dataclass(frozen=True)
class Digits:
    """The digits of each stored dimension of an IndexMap, which has the fields."""

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

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.parse_map("1-0, 0", (2, 3)).differences
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

    def parts(self) -> list[dict[int, list[Part]]]:
        """`backward` as formulas: for each dimension, the summands of its coordinate by stored dimension.

        Returns
        -------
        list of dict of int to list of Part
            For each dimension, the summands by stored dimension. For one of `differences`, they give the difference.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.IndexMap.blocks((4, 6), 2).parts()[1]
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
        """Return True if some stored cells are beyond the end of a dimension.

        Parameters
        ----------
        dimension : int
            Dimension of the tensor.

        Returns
        -------
        bool
            True if some stored cells are beyond its end.
        """
        leading = self._chains[dimension][-1]
        return leading.less >= 0 or leading.stride * leading.radix > self.shape[dimension]

    def fixed_size(self, stored: int) -> int | None:
        """The size of a stored dimension if it follows from the notation for any shape, else None.

        Parameters
        ----------
        stored : int
            Stored dimension.

        Returns
        -------
        int or None
            Its size, or None if it depends on the shape of the tensor.
        """
        return None if any(leads for _, leads in self._marked[stored]) else self.stored_shape[stored]

    def leads(self, stored: int) -> Digit | None:
        """The first digit of a stored dimension if it leads its dimension, in a map without differences, else None.

        Parameters
        ----------
        stored : int
            Stored dimension.

        Returns
        -------
        Digit or None
            Its first digit, or None.
        """
        digit, leading = self._marked[stored][0]
        return digit if leading and not self.differences else None

    def windows(self, items: Sequence[Item]) -> list[range | Array]:
        """For each stored dimension, ascending coordinates that include those of all wanted cells.

        Parameters
        ----------
        items : sequence of int, range or ndarray
            Coordinates that are wanted of each dimension.

        Returns
        -------
        list of range or ndarray
            Ascending coordinates for each stored dimension.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.IndexMap.blocks((4, 6), 2).windows((1, range(2, 6)))
        [range(0, 1), range(1, 3), range(1, 2), range(0, 2)]
        """
        ranges, items = [], list(items)
        for k, less in self.differences:
            items[k] = digits.differences(items[k], items[less], self.shape[less])
        for group in self._marked:
            each = [digits.window(items[digit.dimension], digit, leads) for digit, leads in group]
            ranges.append(each[0] if len(each) == 1 else digits.merged(each, [digit.radix for digit, _ in group]))
        return ranges
