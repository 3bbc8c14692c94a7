"""The interface of containers, options of storage, and paths."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..arrays import LazyArray, Pieces
from ..errors import (
    BinsparseError,
    ContainerError,
    LimitError,
    OptionError,
    Problem,
    TensorMissingError,
    did_you_mean,
    refuse_memory,
)
from ..formats.extensions import PARTS
from ..formats.json import RESERVED
from ..limits import Limits, as_integers
from ..parallel import Lock


@dataclass(frozen=True)
class ArrayInfo:
    """The metadata of an array. nbytes: its stored size in the container."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


class Reader(Protocol):
    """A container that is open for reading."""

    def read_header(self) -> Any:
        """The parsed JSON. Raises ContainerError for a container without a header, DescriptorError for invalid JSON."""

    def array(self, name: str) -> LazyArray | None:
        """A stored array, read on demand while the container is open; None for an unknown name.

        An array that is not one-dimensional has a shape, but must not be sliced. Raises ContainerError
        for an object that is not an array, UnsafeError for an array that must not be read.
        """


class Writer(Protocol):
    """A container that is open for writing. The header is written last: it marks the container as complete."""

    def write(self, name: str, pieces: Pieces) -> None:
        """Write an array, from its beginning to its end."""

    def write_header(self, header: Mapping[str, Any]) -> None: ...


@runtime_checkable
class GroupWriter(Writer, Protocol):
    """A group that is open for writing, in a container with groups."""

    def within(self, name: str) -> Writer:
        """A new group in this one. Raises PathExistsError for a member of that name."""


@dataclass(frozen=True)
class Storage:
    """The options with which a container stores arrays: each for all arrays, or a mapping by name of the array.

    Parameters
    ----------
    compression : str or mapping of str to str, optional
        `blosc`, `small`, `zstd`, `gzip` or `none`.
    chunks, shards : int or mapping of str to int, optional
        Lengths in items.
    checksum : bool, optional
        True seals the header and every array with a checksum.
    chunk_checksum : bool, optional
        False stores chunks without their own checksums.
    settings : mapping, optional
        Those of the codec and the filter of an array that grows, by name; of other arrays, chunks decide.
    convention : bool, optional
        True declares the Zarr convention in the group.

    Notes
    -----
    None is the default of the container.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> Storage(chunks={"values": 1024}).of("chunks", "values")
    1024
    """

    compression: str | Mapping[str, str] | None = None
    chunks: int | Mapping[str, int] | None = None
    shards: int | Mapping[str, int] | None = None
    checksum: bool | None = None
    chunk_checksum: bool | None = None
    settings: Mapping[str, Mapping[str, Any]] | None = None
    convention: bool | None = None

    def __post_init__(self) -> None:
        expected: dict[str, Any] = {"compression": str, "chunks": int, "shards": int}
        for field, kind in expected.items():
            option = getattr(self, field)
            if kind is int and option is not None:
                by_name = isinstance(option, Mapping)
                numbers = as_integers(option.values() if by_name else [option])
                option = dict(zip(option, numbers, strict=True)) if by_name else numbers[0]
                object.__setattr__(self, field, option)
            for value in option.values() if isinstance(option, Mapping) else [option]:
                if value is not None and (type(value) is not kind or (kind is int and value < 1)):
                    raise OptionError(
                        Problem(field, f"expected {kind.__name__}{' >= 1' * (kind is int)}, got {value!r:.40}")
                    )
        for field, flag in (("checksum", self.checksum), ("convention", self.convention)):
            if flag is not None and type(flag) is not bool:
                raise OptionError(Problem(field, f"expected True or False, got {flag!r:.40}"))

    def check_names(self, names: Collection[str]) -> None:
        """Raise OptionError for a mapping with an unknown array name."""
        for field in fields(self):
            option = getattr(self, field.name)
            unknown = set(option) - set(names) if isinstance(option, Mapping) else set()
            if unknown:
                raise OptionError(Problem(field.name, f"no array of the name {min(map(str, unknown))!r:.40}"))

    def of(self, option: str, name: str) -> Any:
        """The option for the array of that name."""
        value = getattr(self, option)
        return value.get(name) if isinstance(value, Mapping) else value

    def refuse(self, container: str, *, but: Collection[str] = (), compressions: Collection[str] = ()) -> None:
        """Raise OptionError for an option that the container does not support."""
        for field in fields(self):
            if getattr(self, field.name) is not None and field.name not in but:
                raise OptionError(Problem(field.name, f"does not apply to {container}; leave it out"))
        given = self.compression.values() if isinstance(self.compression, Mapping) else [self.compression]
        for compression in given:
            if compression is not None and compression not in compressions:
                meant, known = did_you_mean(compression, compressions), ", ".join(compressions)
                what = f"{container} does not support {compression!r:.40}; {meant}choose {known}"
                raise OptionError(Problem("compression", what))


CHUNKED = ("compression", "chunks", "checksum", "chunk_checksum", "settings")  # the options of containers with chunks
DEFAULT_STORAGE = Storage()
in_turn = Lock()  # to change an open object: the second of two threads finds what the first has written
ORDERS = f"{RESERVED}orders"  # the key of a header that lists the groups with other orders of the tensor


def names_in(header: Any) -> set[str]:
    """The names of the arrays, orders and parts of a tensor, from its parsed header, which may be faulty."""
    inner, dims = _known(header)
    types, orders = inner.get("data_types"), header.get(ORDERS) if isinstance(header, dict) else None
    names = set(types) if isinstance(types, dict) else set()
    for k in range(len(dims)):
        names |= {f"labels_{k}", f"labels_{k}_offsets"}
    names |= {name for name in orders if isinstance(name, str)} if isinstance(orders, list) else set()
    return {name for name in names | parts_in(header) if "/" not in name}


def parts_in(header: Any) -> set[str]:
    """The names of the groups of the parts of a tensor, and of those that were removed, from its parsed header."""
    parts = header.get(PARTS) if isinstance(header, dict) else None
    lists = [parts.get("parts"), parts.get("removed")] if isinstance(parts, dict) else []
    return {str(x.get("group")) for some in lists if isinstance(some, list) for x in some if isinstance(x, dict)}


def sizes_in(header: Any) -> dict[str, int]:
    """The sizes of the named dimensions of a tensor, from its parsed header, which may be faulty."""
    inner, dims = _known(header)
    shape = inner.get("shape")
    return dict(zip(dims, shape, strict=False)) if isinstance(shape, list) else {}


def _known(header: Any) -> tuple[dict[str, Any], list[Any]]:
    """The descriptor in a parsed header, and the names of the dimensions; empty where they are faulty."""
    whole = header if isinstance(header, dict) else {}
    inner, labels = whole.get("binsparse", whole), whole.get(f"{RESERVED}labels")
    dims = labels.get("dims") if isinstance(labels, dict) else None
    return inner if isinstance(inner, dict) else {}, dims if isinstance(dims, list) else []


def no_tensor(place: str, mark: str, members: Iterable[str]) -> TensorMissingError:
    """The error about a place without a header. mark: what is missing there. members: what is there."""
    there = ", ".join(sorted(members))
    found = f"it contains {there:.200}" if there else "it is empty"
    return TensorMissingError(Problem(place, f"no {mark}, so no tensor here; {found}"))


def named_by(read_header: Callable[[], Any], members: Iterable[str]) -> set[str]:
    """The given names of arrays and orders that a header contains; all of them if the header is damaged."""
    try:
        return names_in(read_header()).intersection(members)
    except BinsparseError:
        return set(members)


def grown_chunk(size: int, length: int, usual: int) -> int:
    """The chunk size of an array that grows. The only chunk of a short array may grow to the usual size."""
    return size if size < length else max(size, usual)


def split_path(path: str | os.PathLike[str]) -> tuple[str, str | None]:
    """PATH[:GROUP] → (path, group or None). The last colon splits, unless the whole text is an existing path.

    `:/` is the root group. The colon of a drive never splits, nor that of the scheme, user, host, port or query of a
    URL, nor `::`, which chains URLs. The group comes before a query: `http://host:80/a.zarr:group?key=x`. A URL of
    `file://` becomes its path.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise OptionError(f"expected a path of type str, got {path!r}")
    if not text:
        raise ContainerError(Problem("''", "an empty path names nothing; pass the path of a file"))
    try:
        possible = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise ContainerError(Problem(ascii(text), "cannot be a path of this file system; choose another"))
    text = _FILE.sub("", text)
    if os.path.exists(text) or os.path.exists(text := os.path.expanduser(text)):
        return text, None
    path, query = text, ""
    if is_url(text):
        path, mark, rest = text.partition("?")
        query = mark + rest
    address = _ADDRESS.match(path)
    assert address is not None  # it may be empty
    head, colon, group = path[address.end() :].rpartition(":")
    if not colon or not address.end() + len(head) or (is_url(text) and head.endswith(":")):
        return text, None
    return path[: address.end()] + head + query, group.strip("/")


def is_url(path: Any) -> bool:
    """Return True if a path is a URL."""
    return isinstance(path, str) and "://" in path


_FILE = re.compile(r"^file://(?:/(?=[A-Za-z]:[/\\]))?")


# The beginning of a path in which no colon splits: a drive; or the last URL of a chain up to the port, and the drive
# after it.
_ADDRESS = re.compile(
    r"(?s:.*://(?:[^/@]*@)?(?:\[[^\]/]*\])?[^/:]*(?::[0-9]+(?=/|$))?(?:/[A-Za-z]:(?=[/\\]))?|(?:[/\\]{2}[?.][/\\])?.:|)"
)


_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
UNWRITABLE = _DISK_FULL | {errno.EIO, errno.EROFS}


def write_error(place: str, error: OSError) -> ContainerError:
    """The ContainerError for a failed write."""
    remedy = "make room" if error.errno in UNWRITABLE else "check the rights"
    remedy = "make the folder" if isinstance(error, FileNotFoundError) else remedy
    return ContainerError(Problem(place, f"cannot be written: {error.strerror}; {remedy} or choose another path"))


class wrap_errors:
    """A block that raises any exception of a library as ContainerError or LimitError.

    A generator as context manager takes too long for small arrays.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, BinsparseError):
            return
        refuse_memory(error, self._name)
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            raise write_error(self._name, error) from error
        said = str(error).partition("\n\n")[0]  # after it, a library may print its own objects
        remedy = "; check the address, the rights and the connection" if "://" in self._name else ""
        raise ContainerError(Problem(self._name, f"cannot be read or written: {said:.600}{remedy}")) from error


def bounded_chunk(name: str, chunk: int, length: int, itemsize: int, limits: Limits) -> None:
    """Raise LimitError for a chunk that is too large, or much larger than its array. chunk, length: in items."""
    limits.hold("array_bytes", chunk * itemsize, name, "the size in bytes of a chunk")
    if chunk * itemsize > max(length * itemsize, _MAX_SMALL_CHUNK_BYTES):
        raise LimitError(Problem(name, f"an array of {length} items is stored in a chunk of {chunk}"))


def check_items(name: str, items: int, itemsize: int, limits: Limits) -> None:
    """Raise LimitError for items that take too much memory when they are read."""
    limits.hold("array_bytes", items * itemsize, name, "the size in bytes", memory=True)


_MAX_SMALL_CHUNK_BYTES = 2**26  # of a chunk that is larger than its array
