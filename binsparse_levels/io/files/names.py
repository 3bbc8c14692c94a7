"""Names of rows and columns in files of other systems: labels of the tensor, read on demand."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ...arrays import Array, LazyArray, lazy
from ...errors import ArrayError, FormatError, Problem
from ...limits import Limits
from ...tensors.labels import TEXT, Column, Labels
from ...tensors.tensor import Tensor

_MAX_TEXTS = 2**16  # that are Python objects at the same time
_ATTRIBUTES = ("row_names", "column_names")  # of tensors without labels

Texts: TypeAlias = tuple[Array, Array]  # the UTF-8 of all texts, and the offsets of each and of the end
Read: TypeAlias = Callable[[Any], Sequence[Any]]  # the texts at a slice or at positions


@dataclass(frozen=True, eq=False)
class _Names(Column):
    """Texts in a file. load: returns those at some coordinates, so that a selection reads no others."""

    load: Callable[[Any], Column] = field(kw_only=True)

    def loaded(self) -> Column:
        if self.offsets is not None:
            self.offsets[:0]  # refuses if the file is closed
        return self.load(range(len(self)) if self.at is None else self.at)

    def __reduce__(self) -> Any:  # for another process: items are loaded unless that process opens the file
        plain = super().loaded() if isinstance(self.items, LazyArray) else self
        return Column, (plain.type, plain.items, plain.offsets, plain.at)


def _key(at: range | Array) -> slice | Array:
    """Positions as a slice if they ascend evenly, which is faster to read."""
    if isinstance(at, range) and at.step > 0:
        return slice(at.start, at.stop, at.step)
    return np.asarray(at, np.int64)


class _Bytes(LazyArray):
    """The bytes of texts. Their number is known only after the texts are read."""

    shape = property(lambda self: (len(self._texts()[0]),), lambda *_: None)

    def __init__(self, texts: Callable[[], Texts]) -> None:
        self._texts = texts
        super().__init__(0, np.dtype(np.uint8), lambda: len(texts()[0]))

    def part(self, start: int, stop: int) -> Array:
        return self._texts()[0][start:stop]


def column(count: int, read: Read, path: str, limits: Limits, keep: Callable[[Any], Column] | None = None) -> Column:
    """A column of `count` texts, which `read` returns on demand. path: for errors.

    keep: loads the data from which the texts at positions, or at a slice, are made on demand.
    """

    @functools.cache
    def all_texts() -> Texts:
        return some_texts(range(count))

    def some_texts(at: Any) -> Texts:
        return in_bytes((read(_key(at[k : k + _MAX_TEXTS])) for k in range(0, len(at), _MAX_TEXTS)), path, limits)

    def load(at: Any) -> Column:
        return Column(TEXT, *some_texts(at)) if keep is None else keep(_key(at))

    offsets = lazy(count + 1, np.dtype(np.int64), lambda start, stop: all_texts()[1][start:stop])
    return _Names(TEXT, _Bytes(all_texts), offsets, load=load)


def labelled(dims: Sequence[str], columns: Sequence[Column | None]) -> Labels | None:
    """The labels of a tensor, or None if no dimension has names. Repeated names of dimensions get a number."""
    if all(column is None for column in columns):
        return None
    dims = tuple(f"{dim}_{k + 1}" if dim in dims[:k] else dim for k, dim in enumerate(dims))
    return Labels(dims, {dim: column for dim, column in zip(dims, columns, strict=False) if column is not None})


def in_bytes(pieces: Iterable[Sequence[Any]], path: str, limits: Limits) -> Texts:
    """Texts or numbers as bytes and offsets. Raises ArrayError for bytes that are not UTF-8, LimitError."""
    data, lengths, size = [], [np.zeros(1, np.int64)], 0
    for piece in pieces:
        try:
            items = [item if isinstance(item, bytes) else str(item).encode() for item in piece]
            b"\n".join(items).decode()
        except UnicodeError as error:
            raise ArrayError(Problem(path, f"not UTF-8: {error}; write it as UTF-8")) from None
        data.append(b"".join(items))
        lengths.append(np.fromiter(map(len, items), np.int64, len(items)))
        size += len(data[-1])
        limits.hold("array_bytes", size, path, "the size in bytes of the names")
    return np.frombuffer(b"".join(data), np.uint8), np.cumsum(np.concatenate(lengths))


def lines_of(data: bytes) -> list[bytes]:
    """The lines of a text. The last one may lack its end."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines] if b"\r" in data else lines


def to_write(tensor: Tensor, dimension: int) -> list[str]:
    """The names of a dimension for another system's file: its labels, else an attribute, else an empty list.

    Raises FormatError for labels that are no texts, or of another number than the size.
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


def encodes(text: str) -> bool:
    """Return True if a file can store a text."""
    try:
        return "\0" not in text and text.encode() is not None
    except UnicodeEncodeError:
        return False
