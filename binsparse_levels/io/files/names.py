"""Names of rows and columns in files of other systems: labels of the tensor, read on demand."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from ...arrays import Array, cut
from ...errors import ArrayError, ContainerError, FormatError, Problem
from ...limits import Limits
from ...tensors.labels import TEXT, Column, Labels
from ...tensors.tensor import Tensor

MAX_TEXTS = 2**16  # that are Python objects at the same time
_ATTRIBUTES = ("row_names", "column_names")  # of tensors without labels

Names: TypeAlias = Literal["symbol", None]  # of genes; by default, identifiers
Texts: TypeAlias = tuple[Array, Array]  # the UTF-8 of all texts, and the offsets of each and of the end
Read: TypeAlias = Callable[[Any], Sequence[Any]]  # the texts at a slice or at positions


@dataclass(frozen=True, eq=False)
class _Names(Column):
    """Texts in a file. read: returns those at some coordinates, so that a selection reads no others.

    `items` and `offsets` only notice that the file is closed. `at` is never None.
    """

    read: Callable[[Any], Column] = field(kw_only=True)

    def part(self, start: int, stop: int) -> Column:
        return self.read(range(start, min(stop, len(self))))

    def loaded(self) -> Column:
        self.items[:0]  # refuses if the file is closed
        return self.read(self.at)


def _key(at: range | Array) -> slice | Array:
    """Positions as a slice if they ascend evenly, which is faster to read."""
    if isinstance(at, range) and at.step > 0:
        return slice(at.start, at.stop, at.step)
    return np.asarray(at, np.int64)


def column(count: int, read: Read, path: str, limits: Limits) -> Column:
    """A column of `count` texts, which `read` returns on demand. path: for errors."""

    every = range(count)

    def load(at: Any) -> Column:
        return whole() if isinstance(at, range) and at == every else some(at)

    def some(at: Any) -> Column:
        texts = (read(_key(at[k : k + MAX_TEXTS])) for k in range(0, len(at), MAX_TEXTS))
        return Column(TEXT, *in_bytes(texts, path, limits))

    whole = functools.cache(lambda: some(every))  # for each slice along another dimension
    items, offsets = cut(np.empty(0, np.uint8), 0, 0), cut(np.empty(0, np.int64), 0, count + 1)
    return _Names(TEXT, items, offsets, every, read=load)


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


def chosen(names: Sequence[str], group: str | None = None) -> str:
    """The name of the matrix to read: `group`, or the only one. Raises ContainerError."""
    if group in names or (group is None and len(names) == 1):
        return names[0] if group is None else group
    there = f"{', '.join(name or '/' for name in names):.200}; open PATH:NAME" if names else "none; save one as sparse"
    raise ContainerError(Problem("sparse matrices", f"expected {group or 'one'}, got {there}"))


def encodes(text: str) -> bool:
    """Return True if a file can store a text."""
    try:
        return "\0" not in text and text.encode() is not None
    except UnicodeEncodeError:
        return False
