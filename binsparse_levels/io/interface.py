"""The functions of another system's kind of file, as a record that type checkers compare with its module.

A reader returns a FileTensor of lazy arrays, a Stream of entries, or a Tensor.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Concatenate, NamedTuple

import numpy as np

from ..arrays import Array, LazyArray
from ..containers.interface import Claims, claim_itself
from ..engine.tree import Duplicates
from ..errors import OptionError, Problem, did_you_mean
from ..formats.format import FormatLike
from ..formats.index_map import IndexMap
from ..limits import Limits
from ..tensors.labels import Labels
from ..tensors.packing import pack
from ..tensors.tensor import Tensor, remade


def refuse(path: Any, known: Callable[..., Any] | Sequence[str], /, **options: Any) -> None:
    """Raise OptionError for an option that is not None. known: the names of options, or the function that has them."""
    for name, value in options.items():
        if value is not None:
            others = {*(inspect.signature(known).parameters if callable(known) else known)} - {name}
            remedy = did_you_mean(name, others) or "leave it out"
            remedy = f"use tensor.convert({value!r:.40})" if name == "format" else remedy
            raise OptionError(Problem(str(path), f"{name} does not apply to this kind of file; {remedy.strip()}"))


class FileTensor(NamedTuple):
    """A tensor in an open file, with lazy arrays by stored name.

    Values without a dimension are one value for all entries. names: of the arrays in the file, for errors. labels:
    read on demand. map: from the tensor to the stored one; `shape` is that of the stored one. label: of the tensor, for
    errors. ordered: True if the file promises the order of the entries. positions: their number in the last level, if
    known. repairs: receives the repairs of loading.
    """

    format: FormatLike
    shape: tuple[int, ...]
    arrays: Mapping[str, Any]
    values: Any
    attributes: Mapping[str, Any] = {}
    names: Mapping[str, str] = {}
    labels: Labels | None = None
    fill_value: Any = None
    structure: str | None = None
    map: IndexMap | None = None
    label: str = ""
    ordered: bool = False
    descriptor_attributes: Mapping[str, Any] = {}
    positions: int | None = None
    repairs: list[str] | None = None

    @property
    def lazy(self) -> bool:
        """True if some array is not in memory."""
        return any(isinstance(x, LazyArray) for x in (*self.arrays.values(), self.values))


@dataclass
class Stream:
    """The entries of a tensor in a text that may be larger than memory.

    chunks: the coordinates and the values in each block of the text. one: the value that all entries share.
    """

    format: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: Iterator[tuple[Sequence[Array], Array]]
    labels: Labels | None = None
    one: Array | None = None
    structure: str | None = None

    def tensor(self, limits: Limits, duplicates: Duplicates = "error") -> Tensor:
        """All entries in memory."""
        none = [np.empty(0, np.int64)] * len(self.shape), np.empty(0, self.dtype)
        coords, values = zip(none, *self.chunks, strict=True)
        listed = np.concatenate(values) if self.one is None else self.one[0]
        options: dict[str, Any] = {"duplicates": duplicates, "structure": self.structure, "limits": limits}
        made = pack([np.concatenate(x) for x in zip(*coords, strict=True)], listed, self.shape, self.format, **options)
        return remade(made, labels=self.labels)


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """The functions of another system's kind of file. One is a reader: `look`, `streaming` or `read`.

    Readers have the keywords `limits` and those of `Kind.reads`; writers `overwrite` and those of `Kind.writes`.

    Parameters
    ----------
    look : callable, optional
        Look(file, closing, …): a FileTensor. Objects to close are entered into the ExitStack `closing`.
    streaming : callable, optional
        Streaming(file, …, whole=…): a context manager of a Stream. whole: its chunks become one tensor.
    read : callable, optional
        Read(file, …): a Tensor.
    write : callable, optional
        Write(path, tensor, …).
    write_all : callable, optional
        Write_all(path, tensors, …) writes tensors by name, for a `named` kind.
    opened : callable, optional
        Opened(file): a context manager of the open file, which is passed to the other functions but `write`.
    list_groups : callable, optional
        List_groups(file, limits): the groups with tensors. The root is an empty string.
    in_pieces : tuple of str, default ()
        Formats of tensors in files whose arrays `write` reads piece by piece.
    claims : callable, default claim_itself
        Claims(group): the paths of tensors of this kind in a group that has a mark of the kind; "", the default, is
        the group itself.
    """

    look: Callable[Concatenate[Any, ExitStack, ...], FileTensor] | None = None
    streaming: Callable[Concatenate[Any, ...], AbstractContextManager[Stream]] | None = None
    read: Callable[Concatenate[Any, ...], Tensor] | None = None
    write: Callable[Concatenate[str, Tensor, ...], None] | None = None
    write_all: Callable[Concatenate[str, Mapping[str | None, Tensor], ...], None] | None = None
    opened: Callable[[Any], AbstractContextManager[Any]] | None = None
    list_groups: Callable[[Any, Limits], Sequence[str]] | None = None
    in_pieces: tuple[str, ...] = ()
    claims: Claims = claim_itself
