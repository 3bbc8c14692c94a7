"""Names of rows and columns in files of other systems: labels of the tensor, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...arrays import Array, LazyArray
from ...errors import ArrayError, FormatError, Problem
from ...limits import Limits
from ...tensors.labels import TEXT, Column, Labels
from ...tensors.tensor import Tensor

_AT_ONCE = 2**16  # texts that are Python objects at the same time
_ATTRIBUTES = ("row_names", "column_names")  # of tensors without labels

Texts = tuple[Array, Array]  # the UTF-8 of all texts, and where each begins and the last ends


class _Reading:
    """Texts that are read once."""

    def __init__(self, read: Callable[[], Texts]) -> None:
        self.read: Callable[[], Texts] | None = read

    def texts(self) -> Texts:
        if (read := self.read) is not None:
            self._held = read()
            self.read = None
        return self._held


class _Part(LazyArray):
    """The bytes of texts, or their offsets, of which the number is known before they are read."""

    def __init__(self, reading: _Reading, part: int, dtype: type[np.generic], length: int | None = None) -> None:
        self._reading, self._part, self._length = reading, part, length
        super().__init__(0, np.dtype(dtype), lambda: len(self) * self.dtype.itemsize)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._reading.texts()[self._part]) if self._length is None else self._length,)

    @shape.setter
    def shape(self, shape: tuple[int, ...]) -> None:
        """The length may be known only when the texts are read."""

    def part(self, start: int, stop: int) -> Array:
        return self._reading.texts()[self._part][start:stop]

    def close(self) -> None:
        if self._reading.read is not None:
            super().close()


def column(count: int, read: Callable[[], Texts]) -> Column:
    """A column of so many texts, which `read` gives when the first of them is asked for."""
    reading = _Reading(read)
    return Column(TEXT, _Part(reading, 0, np.uint8), _Part(reading, 1, np.int64, count + 1))


def labelled(dims: Sequence[str], columns: Sequence[Column | None]) -> Labels | None:
    """The labels of a tensor, or None where no dimension has names. Of equal dimensions, the later get a number."""
    if all(column is None for column in columns):
        return None
    dims = tuple(f"{dim}_{k + 1}" if dim in dims[:k] else dim for k, dim in enumerate(dims))
    return Labels(dims, {dim: column for dim, column in zip(dims, columns, strict=False) if column is not None})


def in_bytes(pieces: Iterable[Sequence[bytes | str]], path: str, limits: Limits) -> Texts:
    """Texts as bytes and offsets. Raises ArrayError for a text that is not UTF-8, LimitError."""
    octets, lengths, size = [], [np.zeros(1, np.int64)], 0
    for piece in pieces:
        try:
            items = [item.encode() if isinstance(item, str) else item for item in piece]
            b"\n".join(items).decode()
        except UnicodeError as error:
            raise ArrayError(Problem(path, f"not UTF-8: {error}; write it as UTF-8")) from None
        octets.append(b"".join(items))
        lengths.append(np.fromiter(map(len, items), np.int64, len(items)))
        size += len(octets[-1])
        limits.hold("array_bytes", size, path, "the size in bytes of the names")
    return np.frombuffer(b"".join(octets), np.uint8), np.cumsum(np.concatenate(lengths))


def of_array(stored: LazyArray, path: str, limits: Limits) -> Column:
    """The texts in an array of strings."""
    count = len(stored)
    pieces = (stored[k : k + _AT_ONCE].tolist() for k in range(0, count, _AT_ONCE))
    return column(count, lambda: in_bytes(pieces, path, limits))


def of_lines(data: Callable[[], bytes], count: int, path: str, limits: Limits) -> Column:
    """The lines of a text, of which there are `count`. Raises ArrayError for another number, when they are read."""

    def read() -> Texts:
        octets, offsets = in_bytes([lines_of(data())], path, limits)
        if len(offsets) - 1 != count:
            raise ArrayError(Problem(path, f"expected none or {count} names, got {len(offsets) - 1}"))
        return octets, offsets

    return column(count, read)


def lines_of(data: bytes) -> list[bytes]:
    """The lines of a text, with or without an end of the last."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines] if b"\r" in data else lines


def to_write(tensor: Tensor, dimension: int) -> list[str]:
    """The names of a dimension for another system's file: its labels, else an attribute. They may be none.

    Raises FormatError for labels that are no texts, and for another number of them.
    """
    name: Any = _ATTRIBUTES[dimension]
    path, texts = f"attributes.{name}", tensor.attributes.get(name, [])
    if tensor.dims is not None and (labels := tensor.labels(tensor.dims[dimension])) is not None:
        path, texts = f"labels of {tensor.dims[dimension]}", labels.tolist() if labels.dtype.kind == "T" else labels
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise FormatError(Problem(path, f"expected a list of texts, got {texts!r:.60}"))
    if len(texts) not in (0, tensor.shape[dimension]):
        what = f"expected none or {tensor.shape[dimension]} texts for dimension {dimension}, got {len(texts)}"
        raise FormatError(Problem(path, what))
    return texts
