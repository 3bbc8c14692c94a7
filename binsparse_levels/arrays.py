"""One-dimensional arrays that are not in memory.

A `LazyArray` is read, decoded or made when it is sliced; `lazy` and `cut` make one. A `Pieces` is an array
that is to be written, from its beginning to its end.
"""

from __future__ import annotations

import bisect
import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, overload

import numpy as np

from .errors import ContainerError, LimitError, Problem
from .kernels import Array as Array
from .limits import INT64_MAX
from .thresholds import THRESHOLDS

# Reads the items start … stop - 1 of an array, as a copy. Precondition: 0 <= start <= stop <= length.
Parts: TypeAlias = Callable[[int, int], Array]

# The number of stored bytes of an array, or a function that counts them.
Size: TypeAlias = int | Callable[[], int]

_MAX_ITEMS_CHECKED = 2**16  # in memory while an order is checked


class Sliceable(Protocol):
    """An array of one dimension, in memory or lazy: a slice of it is a numpy array."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, window: slice, /) -> Array: ...


class File:
    """An open file, which all of its arrays refer to. close: a function that closes it before."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.close = weakref.finalize(self, close)


class LazyArray:
    """An array whose items are read when it is indexed with a slice, an integer or positions. No item is cached.

    shape: its length, or all sizes of an array of several dimensions, which cannot be sliced. nbytes: the number of
    stored bytes. chunk: the number of items that are read together, starting at multiples of it. part: reads the items
    start … stop - 1, for 0 <= start < stop <= length. file: the open file.
    """

    chunk = 1
    part: Parts
    file: File | None = None

    def __init__(self, shape: int | tuple[int, ...], dtype: np.dtype[Any], nbytes: Size | None = None) -> None:
        self.shape = (shape,) if isinstance(shape, int) else shape
        self.dtype = dtype
        self._nbytes = math.prod(self.shape) * dtype.itemsize if nbytes is None else nbytes
        self._at: Callable[[Array], Array] | None = None
        self._verify: Callable[[], None] | None = None
        self._ascending: set[tuple[int, int]] = set()

    @property
    def nbytes(self) -> int:
        return self._nbytes if isinstance(self._nbytes, int) else self._nbytes()

    def at(self, positions: Array) -> Array:
        """The items at positions in range. Items that are close to each other are read together, with those between."""
        if self._at is not None:
            return self._at(positions)
        gaps = np.diff(positions)
        if (gaps < 0).any():
            ascending, inverse = np.unique(positions, return_inverse=True)
            return self.at(ascending)[inverse]
        most = THRESHOLDS.read_gap_bytes // self.dtype.itemsize
        wide = np.diff(positions // self.chunk) > 0 if self.chunk > 1 else gaps > most
        cuts = [0, *(np.flatnonzero(wide) + 1).tolist(), len(positions)]
        items, distinct = np.empty(len(positions), self.dtype), bool(gaps.all())
        for begin, end in itertools.pairwise(cuts) if len(positions) else ():
            first, stop = int(positions[begin]), int(positions[end - 1]) + 1
            part = self.part(first, stop)
            items[begin:end] = part if distinct and stop - first == end - begin else part[positions[begin:end] - first]
        return items

    def ascends(self, start: int, stop: int) -> bool:
        """Return True if the items start … stop - 1 ascend. They are read once, and the result is cached."""
        if (start, stop) not in self._ascending:
            step = max(_MAX_ITEMS_CHECKED, self.chunk)
            for first in range(start // step * step, stop, step):
                items = self[max(first - 1, start) : min(first + step, stop)]
                if (items[1:] < items[:-1]).any():
                    return False
            self._ascending.add((start, stop))
        return True

    def verify(self) -> None:
        """Compare the whole array with its checksum, if there is one. Raises ContainerError."""
        if self._verify is not None:
            self._verify()

    def mapped(self, change: Callable[[Array], Array], dtype: np.dtype[Any] | None = None, parts: int = 1) -> LazyArray:
        """The array with `change` applied to its items. It maps `parts` items to one of `dtype`.

        Examples
        --------
        >>> import numpy as np
        >>> import binsparse_levels as bl
        >>> lazy(6, np.dtype(int), np.arange).mapped(lambda x: x.reshape(-1, 2).sum(1), parts=2)[1:].tolist()
        [5, 9]
        """

        def at(positions: Array) -> Array:
            return change(self.at(positions if parts == 1 else (positions[:, None] * parts + range(parts)).reshape(-1)))

        def part(start: int, stop: int) -> Array:
            return change(self.part(start * parts, stop * parts))

        kept: dict[str, Any] = {"at": at, "verify": self.verify, "nbytes": lambda: self.nbytes}
        return lazy(len(self) // parts, dtype or self.dtype, part, chunk=max(self.chunk // parts, 1), **kept)

    def __len__(self) -> int:
        return self.shape[0]

    @overload
    def __getitem__(self, key: slice | Array) -> Array: ...
    @overload
    def __getitem__(self, key: int) -> np.generic: ...
    def __getitem__(self, key: slice | Array | int) -> Array | np.generic:
        if self.file is not None and not self.file.close.alive:
            raise ContainerError("the file is closed; open it again, or load() the tensor before")
        if isinstance(key, np.ndarray):
            return self.at(key)
        if not isinstance(key, slice):
            item = range(self.shape[0])[key]
            return self.part(item, item + 1)[0]  # type: ignore[no-any-return]
        selected = range(self.shape[0])[key]
        if not selected:
            return np.empty(0, self.dtype)
        if selected.step == 1:
            return self.part(selected.start, selected.stop)
        start, stop = sorted((selected[0], selected[-1]))
        return self.part(start, stop + 1)[:: selected.step]


def lazy(
    shape: int | tuple[int, ...],
    dtype: np.dtype[Any],
    part: Parts,
    *,
    at: Callable[[Array], Array] | None = None,
    verify: Callable[[], None] | None = None,
    nbytes: Size | None = None,
    chunk: int = 1,
) -> LazyArray:
    """An array that a function reads.

    at: reads the items at positions, if that is faster than reading ranges. nbytes, chunk: as for LazyArray.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> squares = lazy(10, np.dtype(int), lambda start, stop: np.arange(start, stop) ** 2)
    >>> squares[2:5].tolist(), squares[np.array([7, 3])].tolist(), int(squares[-1])
    ([4, 9, 16], [49, 9], 81)
    """
    array = LazyArray(shape, dtype, nbytes)
    array.part, array._at, array._verify, array.chunk = part, at, verify, chunk
    return array


def copy_if_writable(array: Array, copy: bool = True) -> Array:
    """The array, or a copy if it is writable. Kernels index memory with the items of index arrays.

    copy: False returns the array itself; for values only.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> array = np.arange(3)
    >>> np.shares_memory(array, copy_if_writable(array))
    False
    """
    return np.array(array) if copy and array.flags.writeable else array


def cut(array: Sliceable, start: int, length: int) -> LazyArray:
    """A section of an array.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> cut(np.arange(10), 4, 3)[1:].tolist()
    [5, 6]
    """
    return lazy(length, array.dtype, lambda a, b: array[start + a : start + b])


def chained(pieces: Sequence[tuple[int, Callable[[], Sliceable]]], dtype: np.dtype[Any]) -> LazyArray:
    """Arrays one after the other: the length of each, and a function that returns it when its items are read.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> chained([(2, lambda: np.arange(2)), (3, lambda: np.arange(5, 8))], np.dtype(int))[1:4].tolist()
    [1, 5, 6]
    """
    ends = list(itertools.accumulate((length for length, _ in pieces), initial=0))

    def part(start: int, stop: int) -> Array:
        touched = range(bisect.bisect_right(ends, start) - 1, bisect.bisect_left(ends, stop))
        return np.concatenate([pieces[k][1]()[max(start - ends[k], 0) : stop - ends[k]] for k in touched])

    return lazy(ends[-1], dtype, part)


def repeat_one(values: Array, count: int) -> Array:
    """The first value `count` times, with memory for one; zeros if the array is empty.

    Raises LimitError for more than numpy can count.
    """
    first = values[:1] if len(values) else np.zeros(1, values.dtype)
    if count * values.itemsize > INT64_MAX:
        raise LimitError(Problem("values", f"numpy cannot count {count} values"))
    return np.broadcast_to(first.reshape(()), (count,))


class Pieces(NamedTuple):
    """An array that is to be written.

    plan: each call returns the pieces in order: the length of a piece, and a function that makes it.
    """

    length: int
    dtype: np.dtype[Any]
    plan: Callable[[], Iterable[tuple[int, Callable[[], Array]]]]

    @property
    def nbytes(self) -> int:
        return self.length * self.dtype.itemsize

    def each(self, start: int = 0) -> Iterator[Array]:
        """The items from `start` on, piece by piece. Pieces before `start` are not made."""
        for length, make in self.plan():
            if length > start:
                yield make()[start:]
            start = max(start - length, 0)

    def regrouped(self, size: int) -> Iterator[Array]:
        """The items in pieces of multiples of `size` items; the last piece may be shorter.

        Pieces that fit are not copied.
        """
        pending: list[Array] = []
        for piece in self.each():
            pending.append(piece)
            count = sum(map(len, pending))
            if whole := count // size * size:
                joined = pending[0] if len(pending) == 1 else np.concatenate(pending)
                yield joined[:whole]
                pending = [joined[whole:]] if whole < count else []
        if pending:
            yield np.concatenate(pending)

    def whole(self) -> Array:
        """The array in memory. A single piece is not copied."""
        pieces = list(self.each())
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, self.dtype), *pieces])

    def mapped(self, change: Callable[[Array], Array], parts: int, dtype: Any) -> Pieces:
        """The array with `change` applied to each piece. It maps each item to `parts` items of `dtype`."""
        return Pieces(
            self.length * parts,
            dtype,
            lambda: ((length * parts, lambda make=make: change(make())) for length, make in self.plan()),  # type: ignore[misc]
        )


def in_pieces(array: Sliceable, size: int) -> Pieces:
    """A lazy array, to be written in pieces of `size` items.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> [piece.tolist() for piece in in_pieces(np.arange(5), 2).each(2)]
    [[2, 3], [4]]
    """

    def plan() -> Iterator[tuple[int, Callable[[], Array]]]:
        for start in range(0, len(array), size):
            stop = min(start + size, len(array))
            yield stop - start, partial(array.__getitem__, slice(start, stop))

    return Pieces(len(array), array.dtype, plan)


def one_piece(array: Array) -> Pieces:
    """An array in memory as one piece."""
    return Pieces(len(array), array.dtype, lambda: ((len(array), lambda: array),))
