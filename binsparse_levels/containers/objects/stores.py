"""The protocols of stores: parts of objects, from which arrays are read, and whole objects by key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ...errors import ContainerError, PathMissingError, Problem
from ..base import wrap_errors
from .codecs import Bytes

Range: TypeAlias = tuple[str, int, int]  # a key, the first byte, and the number of bytes
Object: TypeAlias = tuple[str, Callable[[], Iterable[Any]]]  # a key, and a function that returns buffers of bytes


class Part(NamedTuple):
    """Bytes of an object.

    start: a negative number counts from the end. length: None is the whole object. most: more bytes are an error,
    before memory is allocated.
    """

    key: str
    start: int
    length: int | None
    most: int

    @property
    def bound(self) -> int:
        """The maximum size in bytes."""
        return self.most if self.length is None else self.length


# Called with the number of a part and its bytes, or None if the object is missing; in any order and thread.
Use: TypeAlias = Callable[[int, "Bytes | None"], None]


class PartStore(Protocol):
    """A store whose objects are read by parts."""

    def each(self, parts: Sequence[Part], use: Use) -> None:
        """Call `use` for each part. Raises what `use` raises, and any error of reading a part."""

    def put_all(self, objects: Sequence[Object]) -> None:
        """Write objects, each whole."""


class Store(Protocol):
    """Whole objects by key. A write is atomic, and replaces an existing object.

    Every method raises ContainerError if the disk or the server fails.
    """

    def put(self, key: str, pieces: Iterable[Any], flush: bool = True) -> None:
        """Write an object whole, from buffers of bytes. flush: to the disk, before the object gets its name."""

    def get(self, key: str) -> bytes:
        """An object. Raises PathMissingError."""

    def ranges(self, places: Sequence[Range]) -> Iterator[Bytes]:
        """Ranges of objects, in order. Raises ContainerError for a missing range."""

    def size(self, key: str) -> int:
        """The size of an object in bytes. Raises PathMissingError."""

    def names(self, prefix: str) -> set[str]:
        """The keys below `prefix/`, without it."""

    def delete(self, prefix: str) -> None:
        """Remove all objects below `prefix/`."""


@contextlib.contextmanager
def wrap_object_errors(place: str) -> Iterator[None]:
    """`wrap_errors` for an object; PathMissingError if it is missing."""
    try:
        with wrap_errors(place):
            yield
    except ContainerError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise PathMissingError(Problem(place, "is missing; repeat the call that writes it")) from None
        raise


def shorter(place: str) -> ContainerError:
    """The error for an object that ends before the requested bytes."""
    return ContainerError(Problem(place, "is shorter than it was; repeat the call that writes it"))
