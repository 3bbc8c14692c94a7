"""Arrays that are somewhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

# The items from … up to … of an array of one dimension, copied. Precondition: in range.
Parts: TypeAlias = Callable[[int, int], npt.NDArray[Any]]


class Pieces(NamedTuple):
    """An array that is written: how long it is, of what type, and a function that gives its pieces, from the beginning,
    each time that it is called: of each its length, and a function that makes it.
    """

    length: int
    dtype: np.dtype[Any]
    plan: Callable[[], Iterable[tuple[int, Callable[[], npt.NDArray[Any]]]]]

    @property
    def nbytes(self) -> int:
        return self.length * self.dtype.itemsize

    def each(self, start: int = 0) -> Iterator[npt.NDArray[Any]]:
        """The items from `start` on, piece by piece; what lies before is not made."""
        for length, make in self.plan():
            if length > start:
                yield make()[start:]
            start = max(start - length, 0)

    def regrouped(self, size: int, start: int = 0) -> Iterator[npt.NDArray[Any]]:
        """The same in pieces of multiples of `size` items, but for the last; what fits is passed on as it is."""
        held: list[npt.NDArray[Any]] = []
        count = 0
        for piece in self.each(start):
            if count:
                held.append(piece[: -count % size])
                count += len(held[-1])
                piece = piece[len(held[-1]) :]
                if count % size:
                    continue
                yield np.concatenate(held)
                held, count = [], 0
            whole = len(piece) // size * size
            if whole:
                yield piece[:whole]
            if whole < len(piece):
                held, count = [piece[whole:]], len(piece) - whole
        if held:
            yield np.concatenate(held)

    def whole(self) -> npt.NDArray[Any]:
        """The array; without a copy where it is one piece."""
        pieces = list(self.each())
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, self.dtype), *pieces])

    def mapped(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], parts: int, dtype: Any) -> Pieces:
        """The same with every piece changed, to `parts` items of that type for each."""
        return Pieces(
            self.length * parts,
            dtype,
            lambda: ((length * parts, lambda make=make: change(make())) for length, make in self.plan()),  # type: ignore[misc]
        )


def one_piece(array: npt.NDArray[Any]) -> Pieces:
    """An array that is there."""
    return Pieces(len(array), array.dtype, lambda: ((len(array), lambda: array),))
