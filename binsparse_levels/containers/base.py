"""What a container is, its JSON, its paths, and how a file is replaced in one step."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import secrets
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import IO, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import (
    BinsparseError,
    ContainerError,
    DescriptorError,
    LimitError,
    OptionError,
    PathExistsError,
    Problem,
    refuse_memory,
)
from ..limits import Limits, as_integers
from ..system import drop_lock, exchange, is_running, lock_file, to_disk


@dataclass(frozen=True)
class ArrayInfo:
    """What a container knows of an array without reading it. nbytes: the bytes that it takes in the container."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


# The items from … up to … of an array of one dimension, copied. Precondition: in range.
Parts: TypeAlias = Callable[[int, int], npt.NDArray[Any]]


class Reader(Protocol):
    """A container that is open for reading."""

    def read_header(self) -> Any:
        """The parsed JSON; raises ContainerError where there is none, DescriptorError for what is not JSON."""

    def info(self, name: str) -> ArrayInfo | None:
        """What is known of an array without reading it, or None where there is none of that name.

        Raises ContainerError or UnsafeError for what is no array, or none that may be read.
        """

    def read(self, name: str) -> npt.NDArray[Any]:
        """An array, as it is stored. Precondition: `info` has been asked."""

    def parts(self, name: str) -> Parts:
        """How to read parts of an array, for as long as the container is open. Precondition: `info` has been asked."""


class Pieces(NamedTuple):
    """An array that is written: how long it is, of what type, and a function that gives its pieces, from the beginning,
    each time that it is called: of each its length, and a function that makes it.
    """

    length: int
    dtype: np.dtype[Any]
    plan: Callable[[], Iterable[tuple[int, Callable[[], npt.NDArray[Any]]]]]

    @property
    def nbytes(self) -> int:
        return self.length * self.dtype.itemsize

    def each(self, start: int = 0) -> Iterator[npt.NDArray[Any]]:
        """The items from `start` on, piece by piece; what lies before is not made."""
        for length, make in self.plan():
            if length > start:
                yield make()[start:]
            start = max(start - length, 0)

    def regrouped(self, size: int, start: int = 0) -> Iterator[npt.NDArray[Any]]:
        """The same in pieces of multiples of `size` items, but for the last; what fits is passed on as it is."""
        held: list[npt.NDArray[Any]] = []
        count = 0
        for piece in self.each(start):
            if count:
                held.append(piece[: -count % size])
                count += len(held[-1])
                piece = piece[len(held[-1]) :]
                if count % size:
                    continue
                yield np.concatenate(held)
                held, count = [], 0
            whole = len(piece) // size * size
            if whole:
                yield piece[:whole]
            if whole < len(piece):
                held, count = [piece[whole:]], len(piece) - whole
        if held:
            yield np.concatenate(held)

    def whole(self) -> npt.NDArray[Any]:
        """The array; without a copy where it is one piece."""
        pieces = list(self.each())
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, self.dtype), *pieces])

    def mapped(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], parts: int, dtype: Any) -> Pieces:
        """The same with every piece changed, to `parts` items of that type for each."""
        return Pieces(
            self.length * parts,
            dtype,
            lambda: ((length * parts, lambda make=make: change(make())) for length, make in self.plan()),  # type: ignore[misc]
        )


def one_piece(array: npt.NDArray[Any]) -> Pieces:
    """An array that is there."""
    return Pieces(len(array), array.dtype, lambda: ((len(array), lambda: array),))


class Writer(Protocol):
    """A container that is open for writing. The header is written last: it tells that all arrays are there."""

    def write(self, name: str, pieces: Pieces) -> None:
        """Write an array, from its beginning to its end."""

    def write_header(self, header: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class Storage:
    """How arrays are stored, where the container has a choice: each for all arrays, or by name in a mapping.

    compression: `gzip` or `zstd` or `none`. chunks, shards: their lengths in items. checksum: of every chunk. None is
    the container's own default.
    """

    compression: str | Mapping[str, str] | None = None
    chunks: int | Mapping[str, int] | None = None
    shards: int | Mapping[str, int] | None = None
    checksum: bool | None = None

    def __post_init__(self) -> None:
        wanted: dict[str, Any] = {"compression": str, "chunks": int, "shards": int}
        for field, kind in wanted.items():
            given = getattr(self, field)
            if kind is int and given is not None:
                by_name = isinstance(given, Mapping)
                numbers = as_integers(given.values() if by_name else [given])
                given = dict(zip(given, numbers, strict=True)) if by_name else numbers[0]
                object.__setattr__(self, field, given)
            for value in given.values() if isinstance(given, Mapping) else [given]:
                if value is not None and (type(value) is not kind or (kind is int and value < 1)):
                    raise OptionError(
                        Problem(field, f"expected {kind.__name__}{' >= 1' * (kind is int)}, got {value!r:.40}")
                    )
        if self.checksum is not None and type(self.checksum) is not bool:
            raise OptionError(Problem("checksum", f"expected True or False, got {self.checksum!r:.40}"))

    def check_names(self, names: Collection[str]) -> None:
        """Raise OptionError for a mapping that speaks of arrays that are not there."""
        for field in fields(self):
            given = getattr(self, field.name)
            unknown = set(given) - set(names) if isinstance(given, Mapping) else set()
            if unknown:
                raise OptionError(Problem(field.name, f"no array of the name {min(map(str, unknown))!r:.40}"))

    def of(self, option: str, name: str) -> Any:
        """The option for the array of that name."""
        value = getattr(self, option)
        return value.get(name) if isinstance(value, Mapping) else value

    def refuse(self, container: str, *, but: Collection[str] = (), compressions: Collection[str] = ()) -> None:
        """Raise OptionError for what was asked for and the container does not have."""
        for field in fields(self):
            if getattr(self, field.name) is not None and field.name not in but:
                raise OptionError(Problem(field.name, f"{container} has no such option"))
        asked = self.compression.values() if isinstance(self.compression, Mapping) else [self.compression]
        for compression in asked:
            if compression is not None and compression not in compressions:
                what = f"expected one of {', '.join(compressions)}, got {compression!r:.40}"
                raise OptionError(Problem("compression", what))


DEFAULT_STORAGE = Storage()


def asked_for(size: int, length: int, usual: int) -> int:
    """The size of chunks that was asked for, as far as it can be told. One chunk of a whole array may have been cut to
    it; as the array grows, it may be as long as is usual.
    """
    return size if size < length else max(size, usual)


def load_json(text: str | bytes, limits: Limits, *, constants: bool = False) -> Any:
    """Strict JSON: UTF-8, no key twice, no NaN or infinity (unless `constants` lets the bare words pass), limited in
    length and depth before it is parsed. Raises DescriptorError or LimitError.
    """
    limits.hold("header_bytes", len(text), "binsparse", "the length of the JSON header")
    try:
        text = text.decode() if isinstance(text, bytes) else text
        text.encode()  # what a library could not decode it gives as lone surrogates
    except UnicodeError as error:
        raise DescriptorError(Problem("binsparse", f"not UTF-8: {error}")) from None
    limits.hold("nesting", _depth(text), "binsparse", "the depth of the JSON header")
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=float if constants else _no_constant,
            parse_int=_integer,
            parse_float=_float,
        )
    except json.JSONDecodeError as error:
        raise DescriptorError(Problem("binsparse", f"not JSON: {error}")) from None
    except RecursionError:
        raise LimitError(Problem("binsparse", "nested deeper than this Python can parse")) from None


def _depth(text: str) -> int:
    """The deepest nesting of brackets outside of strings."""
    depth = deepest = 0
    quoted = escaped = False
    for c in text:
        if quoted:
            if escaped:
                escaped = False
            elif c == "\\":
                escaped = True
            elif c == '"':
                quoted = False
        elif c == '"':
            quoted = True
        elif c in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif c in "]}":
            depth -= 1
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise DescriptorError(Problem(name[:60], "this key is there twice"))
    return found


def _no_constant(name: str) -> Any:
    raise DescriptorError(Problem("binsparse", f"{name} is not JSON"))


def _integer(digits: str) -> int:
    if len(digits) > 40:
        raise DescriptorError(Problem("binsparse", f"an integer of {len(digits)} digits"))
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise DescriptorError(Problem("binsparse", f"{digits[:40]} is out of range"))
    return number


def split_path(path: str | os.PathLike[str]) -> tuple[str, str | None]:
    """PATH[:GROUP] → (path, group or None). A path that exists as it stands wins, else the last colon splits.

    `:/` is the root group. No colon splits that belongs to a drive, or in a URL to its scheme, user, host, port, query
    or to `::`, which chains URLs. The group stands before a query: `http://host:80/a.zarr:group?key=x`. A URL of `file://`
    becomes its path.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"expected a path of type str, got {path!r}")
    if not text:
        raise ContainerError(Problem("''", "an empty path names nothing"))
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ContainerError(Problem(ascii(text), "no path can be written so")) from None
    if "\0" in text:
        raise ContainerError(Problem(ascii(text), "a path has no NUL character"))
    text = _FILE.sub("", text)
    if os.path.exists(text):
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
    """Whether a path is a URL, for zarr to open."""
    return isinstance(path, str) and "://" in path


_FILE = re.compile(r"^file://(?:/(?=[A-Za-z]:[/\\]))?")
# What a path begins with, in which no colon splits: a drive; or of the last URL of a chain all up to the port, and the
# drive behind it.
_ADDRESS = re.compile(
    r"(?s:.*://(?:[^/@]*@)?(?:\[[^\]/]*\])?[^/:]*(?::[0-9]+(?=/|$))?(?:/[A-Za-z]:(?=[/\\]))?|(?:[/\\]{2}[?.][/\\])?.:|)"
)


@contextlib.contextmanager
def touching(name: str) -> Iterator[None]:
    """What a library raises over a damaged file, as one error of ours: each raises what its parts raise."""
    try:
        yield
    except (BinsparseError, KeyboardInterrupt):
        raise
    except Exception as error:
        refuse_memory(error, name)
        raise ContainerError(Problem(name, f"cannot be read or written: {error}")) from error


def bounded_chunk(name: str, chunk: int, length: int, itemsize: int, limits: Limits) -> None:
    """Raise LimitError for a chunk that is too large, or is expanded for far more than the array has; both in items."""
    limits.hold("array_bytes", chunk * itemsize, name, "the size in bytes of a chunk")
    if chunk * itemsize > max(length * itemsize, _LARGE_CHUNK):
        raise LimitError(Problem(name, f"an array of {length} items is stored in a chunk of {chunk}"))


_LARGE_CHUNK = 2**26  # bytes


def refuse_existing(path: str, overwrite: bool) -> None:
    """Raise PathExistsError for what is there, however the path is spelled, unless `overwrite`."""
    if not overwrite and (os.path.lexists(path) or os.path.lexists(os.path.realpath(path))):
        raise PathExistsError(Problem(path, "exists; nobody asked to overwrite it"))


def remove(path: str) -> None:
    """Remove a file or a folder, as far as it can be. An interrupt is raised when that is done."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)
    except KeyboardInterrupt:
        remove(path)
        raise


@contextlib.contextmanager
def replacing(target: str, *, keep: bool = False) -> Iterator[str]:
    """A path beside `target` to write to; when the block ends well it takes the place of the target, in one step.

    keep: the file begins as a copy of the target, which nobody else may change meanwhile. Where the block fails nothing
    has changed. The recipe of a whole write: everything, the file to the disk, the rename, the folder to the disk.
    """
    if target.endswith(("/", os.sep)):
        raise ContainerError(Problem(target, "is the path of a folder"))
    target = os.path.realpath(target)
    if os.path.exists(target) and not os.path.isfile(target):
        raise ContainerError(Problem(target, "is a directory, a pipe or a device, and is not replaced"))
    folder, part = os.path.dirname(target), part_of(target)
    with hold_lock(target) if keep else contextlib.nullcontext():
        exists = _is_there(target)
        try:
            try:
                os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            except OSError as error:
                raise ContainerError(Problem(target, f"cannot be written: {error.strerror}")) from error
            if keep and exists:
                shutil.copyfile(target, part)
            yield part
            to_disk(part)
            if exists:
                shutil.copymode(target, part)
            os.replace(part, target)
        except BaseException:
            remove(part)
            raise
        to_disk(folder)


@contextlib.contextmanager
def replacing_folder(
    target: str, *, keep: bool = False, copy: Callable[[str, str], Any] = shutil.copy2
) -> Iterator[str]:
    """A folder beside `target` to fill; when the block ends well it takes the place of the target, in one step where
    the system can exchange two folders.

    keep: the folder begins as a copy of the target, file by file by `copy`; nobody else may change it meanwhile. Where
    the block fails nothing has changed.
    """
    target = os.path.realpath(target)
    parent, part = os.path.dirname(target), part_of(target)
    with hold_lock(target) if keep else contextlib.nullcontext():
        exists = _is_there(target)
        if exists and not os.path.isdir(target):
            raise PathExistsError(Problem(target, "is there, and is no folder"))
        try:
            try:
                if keep and exists:
                    shutil.copytree(target, part, symlinks=True, copy_function=copy)
                else:
                    os.mkdir(part)
            except OSError as error:
                raise ContainerError(Problem(target, f"cannot be written: {error.strerror}")) from error
            yield part
            for folder, _, files in os.walk(part):
                for file in (folder, *(os.path.join(folder, file) for file in files)):
                    to_disk(file)
            if exists:
                _exchange(part, target)
            else:
                os.rename(part, target)
            to_disk(parent)
        finally:
            remove(part)


_PATIENCE = 60.0  # seconds that one waits for another
_locked: set[tuple[int, str]] = set()  # by thread


@contextlib.contextmanager
def hold_lock(target: str, patience: float | None = None) -> Iterator[None]:
    """Nobody else holds the lock of a target within the block: whoever reads it and writes it again waits for others
    that do, in this process and in others.

    The lock is that of the system on a file beside the target, so a process that is killed holds none. Where a file
    system has no locks nobody waits. patience: seconds. Raises ContainerError where another holds it for longer.
    """
    target = os.path.realpath(target)
    me = threading.get_ident(), target
    if me in _locked:
        yield
        return
    file: IO[bytes] | None = None
    try:
        file = _take_lock(target, _PATIENCE if patience is None else patience)
        _locked.add(me)
        yield
    finally:
        _locked.discard(me)
        if file is not None:
            drop_lock(file)


def _take_lock(target: str, patience: float) -> IO[bytes] | None:
    """The file of a lock, open and locked; None where there is no folder for it."""
    folder, name = os.path.split(target)
    path, end = os.path.join(folder, f".{_short(name)}{_LOCK}"), time.monotonic() + patience
    while True:
        try:
            file = open(path, "r+b", 0, opener=_create)  # noqa: SIM115 (it is closed by whoever holds it)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ContainerError(Problem(target, f"cannot be locked: {error.strerror}")) from error
        if lock_file(file.fileno()):
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    return file
            file.close()  # its owner has removed it
            continue
        file.close()
        if time.monotonic() > end:
            what = f"another process or thread has been writing it for {patience:.0f} seconds; try again later"
            raise ContainerError(Problem(target, what))
        time.sleep(0.01)


def _create(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)


def part_of(target: str) -> str:
    """A name beside the target that tells which process writes it."""
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{_short(name)}.{os.getpid()}-{secrets.token_hex(4)}.part")


# What is written or filled (.d: to be zipped), and a folder that stood aside for a new one (.old).
_LEFTOVER = re.compile(r"\.(.+)\.([0-9]+)-[0-9a-f]{8}\.part(\.d|\.old)?", re.DOTALL)
_LOCK = ".binsparse_levels.lock"  # how the name of a lock ends


def clean_folder(folder: str) -> list[tuple[str, str]]:
    """Remove what writing processes that are no more have left in a folder; each path, and what became of it.

    What a living process of this machine writes is kept. A tensor that stood aside, and whose place is empty, is put
    back. Raises ContainerError for what is no folder.
    """
    found = []
    try:
        names = sorted(os.listdir(folder))
    except (OSError, ValueError) as error:
        raise ContainerError(Problem(ascii(folder), f"cannot be cleaned: {error}")) from None
    for name in names:
        if name.startswith(".") and name.endswith(_LOCK):
            found.append((os.path.join(folder, name), _clean_lock(os.path.join(folder, name[1 : -len(_LOCK)]))))
            continue
        match = _LEFTOVER.fullmatch(name)
        if match is None:
            continue
        path, target = os.path.join(folder, name), os.path.join(folder, match[1])
        if is_running(int(match[2])):
            found.append((path, f"kept, process {match[2]} is writing it"))
        elif match[3] == ".old" and len(os.fsencode(match[1])) > _LONGEST - 4:
            found.append((path, "kept, its own name was cut short"))
        else:
            try:
                found.append((path, _clean_up(path, target if match[3] == ".old" else None)))
            except OSError as error:
                found.append((path, f"kept: {error}"))
    return found


def _clean_lock(target: str) -> str:
    """Remove a lock that nobody holds; what became of it."""
    try:
        with hold_lock(target, 0):
            return "removed"
    except ContainerError:
        return "kept, a process holds it"


def _clean_up(path: str, target: str | None) -> str:
    """Remove a leftover, or put it back where nothing took its place; what became of it."""
    if target is not None and not os.path.lexists(target):
        os.rename(path, target)
        return f"put back as {target}"
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
    return "removed"


def _is_there(path: str) -> bool:
    """Whether something is there; raises ContainerError for a path that nothing can have."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ContainerError(Problem(path, f"cannot be written: {error.strerror}")) from error
    return True


def _exchange(a: str, b: str) -> None:
    """Let two folders change places: in one step on Linux, elsewhere with a moment between two."""
    if exchange(a, b):
        return
    aside = f"{a}.old"
    try:
        os.rename(b, aside)
        os.rename(a, b)
    except BaseException:
        if not os.path.lexists(b):
            os.rename(aside, b)
        raise
    remove(aside)


_LONGEST = 200  # bytes


def _short(name: str) -> str:
    """A part of a file name that leaves room for more: a name has at most 255 bytes. No character is cut in two."""
    while len(os.fsencode(name)) > _LONGEST:
        name = name[:-1]
    return name
