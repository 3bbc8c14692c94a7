"""Parts of objects, and the errors that all stores of objects share.

Arrays are in an ArrayStore: a folder (`folder`) or any Zarr store (`requests`). Builds work in a WorkStore: a folder or
a bucket (`bucket`). A key is a path. A write of an object is atomic, and replaces an existing one. Every method raises
ContainerError if the disk or the server fails.
"""

from __future__ import annotations

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


class ArrayStore(Protocol):
    """The objects of arrays."""

    def each(self, parts: Sequence[Part], use: Use) -> None:
        """Read parts of objects."""

    def put_all(self, objects: Sequence[Object]) -> None:
        """Write whole objects."""

    def create(self, key: str, data: bytes) -> bool:
        """Write a new object. Returns False, without any change, if it exists."""


class WorkStore(Protocol):
    """The objects of a build."""

    def put(self, key: str, pieces: Iterable[Any], flush: bool = True) -> object:
        """Write an object. flush: to the disk, before it gets its name."""

    def get(self, key: str) -> bytes: ...
    def ranges(self, places: Sequence[Range]) -> Iterator[Bytes]: ...
    def size(self, key: str) -> int: ...
    def names(self, prefix: str) -> set[str]: ...
    def delete(self, prefix: str) -> None: ...


class wrap_object_errors(wrap_errors):
    """`wrap_errors` for an object; PathMissingError if it is missing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        cause = error.__cause__ if isinstance(error, ContainerError) else error
        if isinstance(cause, FileNotFoundError):
            raise PathMissingError(Problem(self._name, "is missing; repeat the call that writes it")) from None
        if error is not None:
            super().__exit__(kind, error, trace)


def shorter(place: str) -> ContainerError:
    """The error for an object that ends before the requested bytes."""
    return ContainerError(Problem(place, "is shorter than it was; repeat the call that writes it"))
