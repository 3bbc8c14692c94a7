"""The functions of a container, as a record that type checkers compare with its module and with its callers."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Concatenate, TypeAlias

from ..arrays import LazyArray, lazy
from ..limits import Limits
from .base import Reader, Storage, Writer
from .replacing import Others, Overwrite, same_folder

Reading: TypeAlias = Callable[[Any, str | None, Limits], AbstractContextManager[Reader]]
Mark: TypeAlias = Callable[[Any, str | None, Iterable[str]], str | None]
Grow: TypeAlias = Callable[[Any, str | None, str, Callable[[Any, str], Mapping[str, Any]], Limits], None]
# The paths of tensors of a kind of file in a group with its mark; "" is the group itself.
Claims: TypeAlias = Callable[[Any], Sequence[str]]


LONGEST_SECONDS = 7 * 24 * 60 * 60.0  # that the write of a part may take; after twice that, it is removed
_PART = re.compile("part_([0-9a-f]{8})[0-9a-f]{8}")


def part_name() -> str:
    """A new name for the group of a part. It contains the time, so that parts of killed writers can be removed."""
    return f"part_{int(time.time()):08x}{secrets.token_hex(4)}"


def is_part(group: str | None) -> bool:
    """Return True for the path of a group with a part, which one program writes, and no other changes."""
    return begun_at((group or "").rpartition("/")[2]) is not None


def begun_at(name: str) -> float | None:
    """The time when the write of a part began, from its name; None for another name."""
    found = _PART.fullmatch(name)
    return float(int(found[1], 16)) if found else None


@dataclass(frozen=True, kw_only=True)
class Container:
    """The functions of a container. None: it has no such function.

    Parameters
    ----------
    reading : callable
        Reading(file, group, limits), a context manager of a Reader.
    writing : callable
        Writing(path, group, overwrite, limits, storage, **options), a context manager of a Writer.
    opened : callable, optional
        Opened(file), a context manager of the open file, which is passed to all other functions but `writing`.
    list_groups : callable, optional
        List_groups(file, limits, claims): the groups with a header, and the paths that other kinds claim in groups
        with their marks. claims: by mark.
    mark : callable, optional
        Mark(file, group, among): the first of these names that is an attribute or a member of the group. It raises
        ContainerError for an array, and returns None for a missing group.
    others : callable, optional
        Others(path): the rest of the file, which a new tensor at its root would replace.
    neighbours : callable, optional
        Neighbours(path, group): sizes of dimensions, by name, of each further variable of a Dataset with this tensor.
    grow : callable, optional
        Grow(path, group, new, change, limits) replaces the header of a tensor by change(header, first), atomically.
        new: the group of a part of the tensor in its group, which is removed if `change` fails. first: a group with
        the arrays of the tensor, if its header lists no parts. Parts that the new header no longer lists are removed.
    """

    reading: Reading
    writing: Callable[Concatenate[Any, str | None, Overwrite, Limits, Storage, ...], AbstractContextManager[Writer]]
    opened: Callable[[Any], AbstractContextManager[Any]] | None = None
    list_groups: Callable[[Any, Limits, Mapping[str, Claims]], list[str]] | None = None
    mark: Mark | None = None
    others: Others | None = None
    neighbours: Callable[[Any, str | None], Mapping[str, Mapping[str, int]]] | None = None
    grow: Grow | None = None


def claim_itself(group: Any) -> list[str]:
    """The claim of a kind whose mark suffices."""
    return [""]


def claimed(group: Any, name: str, claims: Iterable[Claims]) -> set[str]:
    """The paths that these functions claim in a group, from the root. name: of the group."""
    return {f"{name}/{path}".strip("/") for claim in claims for path in claim(group)}


class _InFolder:
    """A container in a folder. Reads of its arrays raise ContainerError after another folder has replaced it."""

    def __init__(self, reader: Any, unreplaced: Callable[[], None]) -> None:
        self._reader, self._unreplaced = reader, unreplaced

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def array(self, name: str) -> LazyArray | None:
        array = self._checked(self._reader.array)(name)
        if array is None:
            return None
        part, at = self._checked(array.part), self._checked(array.at)
        return lazy(array.shape, array.dtype, part, at=at, nbytes=lambda: array.nbytes, chunk=array.chunk)

    def _checked(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*where: Any) -> Any:
            try:
                return read(*where)
            finally:
                self._unreplaced()

        return reading


def in_folder(reading: Reading) -> Callable[[Any, str | None, Limits], AbstractContextManager[Any]]:
    """`reading` of a container that may be a folder, or a group of one, which another folder may replace."""

    @contextlib.contextmanager
    def guarded(path: Any, group: str | None, limits: Limits) -> Iterator[Any]:
        folder = getattr(getattr(path, "store", path), "root", path)
        if isinstance(folder, str | os.PathLike):
            folder = os.path.join(folder, getattr(path, "path", ""), group or "")
        with same_folder(folder) as unreplaced, reading(path, group, limits) as reader:
            yield reader if unreplaced is None else _InFolder(reader, unreplaced)

    return guarded
