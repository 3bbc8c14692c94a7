"""What a store of objects answers: parts of objects, which arrays are read by, and whole objects by key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ...errors import ContainerError, PathMissingError, Problem
from ..base import touching
from .codecs import Bytes

Range: TypeAlias = tuple[str, int, int]  # a key, the first byte, and how many
Object: TypeAlias = tuple[str, Callable[[], Iterable[Any]]]  # a key, and a function that makes buffers of bytes


class Part(NamedTuple):
    """Bytes of an object.

    start: where they begin; a negative number counts from the end. length: None is the whole object. most: more bytes
    are an error, before memory is allocated.
    """

    key: str
    start: int
    length: int | None
    most: int

    @property
    def bound(self) -> int:
        """Bytes that it takes at most."""
        return self.most if self.length is None else self.length


# What is called with the number of a part and its bytes, or None where the object is missing; in any order and thread.
Use: TypeAlias = Callable[[int, "Bytes | None"], None]


class PartStore(Protocol):
    """A store whose objects are read by parts."""

    def each(self, parts: Sequence[Part], use: Use) -> None:
        """Call `use` for each part. Raises what `use` raises, and any error of reading a part."""

    def put_all(self, objects: Sequence[Object]) -> None:
        """Write objects, each whole."""


class Store(Protocol):
    """Whole objects by key: an object is there whole or not at all, and to put it again replaces it.

    Every method raises ContainerError where the disk or the server fails.
    """

    def put(self, key: str, pieces: Iterable[Any], flush: bool = True) -> None:
        """Write an object whole, from buffers of bytes. flush: to the disk, before the object gets its name."""

    def get(self, key: str) -> bytes:
        """An object. Raises PathMissingError."""

    def ranges(self, wanted: Sequence[Range]) -> Iterator[Bytes]:
        """Ranges of objects, in order. Raises ContainerError for a range that is not there."""

    def size(self, key: str) -> int:
        """The bytes of an object. Raises PathMissingError."""

    def names(self, prefix: str) -> set[str]:
        """The keys below `prefix/`, without it."""

    def delete(self, prefix: str) -> None:
        """Remove all objects below `prefix/`."""


@contextlib.contextmanager
def touching_object(place: str) -> Iterator[None]:
    """`touching` of an object; PathMissingError where it is not there."""
    try:
        with touching(place):
            yield
    except ContainerError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise PathMissingError(Problem(place, "is not there; run again what writes it")) from None
        raise


def shorter(place: str) -> ContainerError:
    """The error for an object that ends before the bytes that are wanted."""
    return ContainerError(Problem(place, "is shorter than it was; run again what writes it"))
