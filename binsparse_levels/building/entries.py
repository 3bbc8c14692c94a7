"""Entries as columns: their coordinates by stored dimension, and their values, checked and in the types of the plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ..arrays import Array
from ..errors import ArrayError, BinsparseError, Problem
from ..tensors.labels import Labels
from .plan import Plan

Chunk: TypeAlias = tuple[Sequence[Array], Array]  # a coordinate array for each dimension, and the values

Item = TypeVar("Item")

_KEY_BITS = 63


class Source(ABC):
    """Entries in numbered chunks."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def name(self, number: int) -> str:
        """The name of a chunk, for messages."""

    @abstractmethod
    def read(self, number: int) -> Chunk:
        """The coordinates and the values of a chunk."""

    @abstractmethod
    def value_type(self) -> np.dtype[Any]:
        """The type of all values, from metadata or a few values. Raises ArrayError, OptionError."""

    def labels(self, plan: Plan) -> Labels | None:
        """The labels of all coordinates, read on demand."""
        return None

    def columns(self, plan: Plan, number: int) -> list[Array]:
        """The columns of a chunk, checked."""
        name = self.name(number)
        try:
            return checked_columns(plan, self.read(number))
        except ArrayError as error:
            raise named(error, name) from None
        except Exception as error:
            if not isinstance(error, BinsparseError):
                error.add_note(name)
            raise


def checked_columns(plan: Plan, chunk: Chunk) -> list[Array]:
    """The columns of a chunk. Raises ArrayError for coordinates out of range, and values that do not fit."""
    coords, values = list(chunk[0]), np.asarray(chunk[1])
    *types, value_type = plan.column_types
    if len(coords) != len(plan.shape):
        what = f"{len(coords)} arrays of coordinates for {len(plan.shape)} dimensions"
        raise ArrayError(Problem("coords", what))
    if values.ndim == 0:
        values = np.broadcast_to(values, (len(coords[0]) if coords else values.size,))
    for k, x in enumerate(coords):
        name = f"coords[{k}]" if plan.names is None else f"columns.{plan.names[k]}"
        if x.dtype.kind not in "iu" or x.shape != values.shape:
            what = f"expected integers of shape {values.shape}, got {x.dtype} of shape {x.shape}"
            raise ArrayError(Problem(name, what))
        if len(x) and (int(x.min()) < 0 or int(x.max()) >= plan.shape[k]):
            row = int(np.argmax((x < 0) | (x >= plan.shape[k])))
            what = f"{x[row]} is outside dimension {k} of size {plan.shape[k]}, in row {row}"
            raise ArrayError(Problem(name, f"{what}; pass a larger shape, or leave such rows out"))
    values = _cast(values, value_type, exact=plan.exact)
    if plan.through is not None:
        coords = list(plan.through.forward(coords))
    stored = [np.ascontiguousarray(coords[k], dtype) for k, dtype in zip(plan.parsed.order, types, strict=True)]
    return [*stored, np.ascontiguousarray(values)]


def represents(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Return True if a type represents every value of another exactly.

    >>> represents(np.dtype(float), np.dtype("int32")), represents(np.dtype(float), np.dtype("int64"))
    (True, False)
    """
    if not np.can_cast(narrow, wide, "safe"):
        return False
    if narrow.kind not in "iu" or wide.kind not in "fc":
        return True
    return 8 * narrow.itemsize - (narrow.kind == "i") <= np.finfo(wide).nmant + 1


def _cast(values: Array, dtype: np.dtype[Any], *, exact: bool) -> Array:
    """Cast values to the type of the tensor. Raises ArrayError if one of them does not fit.

    exact: True if the caller has not chosen the type. Floats that would be rounded are then an error too.
    """
    if not values.size or represents(dtype, values.dtype):
        return values.astype(dtype, copy=False)
    if not np.can_cast(values.dtype, dtype, "same_kind"):
        what = f"values of type {values.dtype}, but the first were {dtype}; pass dtype="
        raise ArrayError(Problem("values", what))
    with np.errstate(over="ignore", invalid="ignore"):
        made = values.astype(dtype)
    if dtype.kind in "iu":
        fits = values.min() >= np.iinfo(dtype).min and values.max() <= np.iinfo(dtype).max
    elif exact:
        back = (made if values.dtype.kind == "c" else made.real).astype(values.dtype)
        fits = np.array_equal(back, values, equal_nan=values.dtype.kind in "fc")
    else:
        fits = bool((np.isfinite(made) | ~np.isfinite(values)).all())
    if not fits:
        raise ArrayError(Problem("values", f"exceed the type {dtype}; pass dtype={values.dtype.name!r}"))
    return made


def keys_of(columns: Sequence[Array], dims: Sequence[int]) -> Array:
    """A sort key for each entry: the first 63 bits of its coordinates. Entries in order have ascending keys."""
    keys, left = np.zeros(len(columns[0]) if columns else 0, np.int64), _KEY_BITS
    for x, size in zip(columns, dims, strict=True):
        width = max(size - 1, 0).bit_length()
        bits = min(width, left)
        left -= bits
        if bits:
            keys <<= bits
            keys |= x >> (width - bits)
    return keys


def follow(first: Sequence[Array], last: Sequence[Array]) -> Array:
    """A mask of the entries of `first` that come after those of `last` in lexicographic order."""
    later = np.zeros(len(first[0]), bool)
    for a, b in zip(first[::-1], last[::-1], strict=True):
        later = (a > b) | ((a == b) & later)
    return later


def columns_in(types: Sequence[np.dtype[Any]], block: Array) -> list[Array]:
    """The columns of entries, as views of the bytes in which they are concatenated. types: of the columns."""
    count, begin, found = len(block) // sum(dtype.itemsize for dtype in types), 0, []
    for dtype in types:
        end = begin + count * dtype.itemsize
        found.append(block[begin:end].view(dtype))
        begin = end
    return found


def grouped(items: Iterable[Item], size: Callable[[Item], int], most: int) -> list[list[Item]]:
    """Consecutive items in groups of at most `most` in total size, unless an item alone is larger."""
    groups: list[list[Item]] = []
    room = 0
    for item in items:
        if not groups or size(item) > room:
            groups.append([])
            room = most
        groups[-1].append(item)
        room -= size(item)
    return groups


def concatenated(blocks: list[list[Array]]) -> list[Array]:
    """The concatenated columns of blocks. The list of blocks is emptied."""
    columns = blocks[0] if len(blocks) == 1 else [np.concatenate(x) for x in zip(*blocks, strict=True)]
    blocks.clear()
    return columns


def blocks(plan: Plan, chunks: Iterable[Chunk]) -> Iterator[list[Array]]:
    """The columns of entries, in blocks of half the entries that fit: a block is made while another is written."""
    pending: list[list[Array]] = []
    most = room = max(plan.rows // 2, 1)
    for number, chunk in enumerate(chunks):
        try:
            columns = checked_columns(plan, chunk)
        except ArrayError as error:
            raise named(error, f"chunk {number}") from None
        while len(columns[-1]):
            pending.append([x[:room] for x in columns])
            columns = [x[room:] for x in columns]
            room -= len(pending[-1][-1])
            if not room:
                yield concatenated(pending)
                room = most
    if pending:
        yield concatenated(pending)


def named(error: ArrayError, chunk: str) -> ArrayError:
    """The same problems, prefixed by the name of the chunk."""
    return ArrayError([Problem(f"{chunk}: {x.path}", x.message) for x in error.problems])
