"""Local files, read without the libraries of their formats.

Symbolic links are not followed. Bytes are read directly into their array. Callers turn the exceptions raised here into
ContainerError by `wrap_errors`.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import zipfile
from collections.abc import Iterator
from typing import IO, Any, NoReturn

import numpy as np
import numpy.typing as npt

from ..arrays import Parts
from ..errors import ContainerError, Problem, UnsafeError
from ..limits import Limits
from ..log import DEBUG, LOG
from ..parallel import Lock
from ..system import MAX_READ_BYTES, is_link, read_at
from .base import wrap_errors

DIRECT = hasattr(os, "preadv")  # without preadv, the libraries read the files
_BYTE = np.dtype(np.uint8)


def refuse_links(root: str, key: str) -> None:
    """Raise UnsafeError for a symbolic link between the root and the key, ValueError for a pipe or a device.

    Opening a pipe would wait for a writer. A missing file is no error here.
    """
    path = root
    for part in filter(None, key.split("/")):
        path = os.path.join(path, part)
        try:
            status = os.lstat(path)
        except OSError:
            return
        if is_link(status):
            raise UnsafeError(Problem(path, "a symbolic link is not followed"))
        if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a file")


def folders_below(path: str, *, links: bool = False) -> Iterator[tuple[str, list[str]]]:
    """A folder and all folders in it, with the names of the files of each. links: follow links to folders.

    Unlike `os.walk`, it raises the OSError of a folder that cannot be listed, or of a link that cannot be followed: it
    would seem to be empty.
    """

    def fail(error: OSError) -> NoReturn:
        raise error

    for place, _, names in os.walk(path, onerror=fail, followlinks=links):
        for link in (x for x in (os.path.join(place, name) for name in names if links) if os.path.islink(x)):
            os.stat(link)
        yield place, names


class File(io.RawIOBase):
    """A local file that is open for reading. It keeps its own offset: forked processes share that of a descriptor."""

    def __init__(self, path: str) -> None:
        self._file = io.FileIO(path)
        self.name, self._at = path, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def readinto(self, buffer: Any) -> int:
        count = read_at(self.fileno(), memoryview(buffer).cast("B")[:MAX_READ_BYTES], self._at)
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = (0, self._at, os.fstat(self.fileno()).st_size)[whence] + offset
        if start < 0:
            raise OSError(errno.EINVAL, "an offset before the beginning of the file")
        self._at = start
        return start

    def close(self) -> None:
        self._file.close()
        super().close()


def open_file(path: str, missing: type[ContainerError] = ContainerError, buffering: int = -1) -> IO[bytes]:
    """A file that is open for reading.

    Raises UnsafeError for a symbolic link, `missing` for a missing file, ContainerError if opening fails.
    """
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        raise missing(Problem(path, "no such file")) from None
    if is_link(status):
        raise UnsafeError(Problem(path, "a symbolic link is not followed"))
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for a writer
        raise missing(Problem(path, "no such file"))
    try:
        file: Any = File(path)
        return file if buffering == 0 else io.BufferedReader(file)
    except OSError as error:
        raise ContainerError(Problem(path, f"cannot be read: {error.strerror}")) from None


class _Zip(zipfile.ZipFile):
    """A zip file that is open for reading, also in a forked process."""

    def __init__(self, path: str | IO[bytes]) -> None:
        self._opened = File(path) if isinstance(path, str) else None
        try:
            super().__init__(self._opened or path)
        except BaseException:
            self.close()
            raise
        self._lock = Lock()  # of ZipFile, which holds it while it reads

    def close(self) -> None:
        super().close()
        if self._opened is not None:
            self._opened.close()


def open_zip(path: str | IO[bytes]) -> zipfile.ZipFile:
    """A zip file that is open for reading. Raises ContainerError."""
    try:
        return _Zip(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ContainerError(Problem(str(path), f"cannot be opened as a zip file: {error}")) from None


def handle_of(stream: IO[bytes]) -> int | IO[bytes]:
    """The descriptor of an open file; the stream itself if it has none, such as that of a remote file."""
    try:
        return stream.fileno()
    except OSError:
        return stream


def read_into(handle: int | IO[bytes], array: npt.NDArray[Any], at: int) -> None:
    """Fill an array with the bytes at an offset of a file. Raises EOFError if the file is too short."""
    left = array.view(_BYTE).data
    while left:
        if isinstance(handle, int):
            count = read_at(handle, left[:MAX_READ_BYTES], at)
            if count == len(left):
                return
        else:
            handle.seek(at)
            raw = handle.read(len(left))
            count = len(raw)
            left[:count] = raw
        if not count:
            raise EOFError("the file ends before the array does")
        left, at = left[count:], at + count


def parts_of(handle: int | IO[bytes], at: int, dtype: np.dtype[Any], name: str, limits: Limits) -> Parts:
    """A function that reads parts of an array whose items begin at an offset of a file."""

    item = dtype.itemsize

    def read(start: int, stop: int) -> npt.NDArray[Any]:
        size = (stop - start) * item
        if size > limits.array_bytes:
            limits.hold("array_bytes", size, name, "the size in bytes")
        if LOG.isEnabledFor(DEBUG):
            LOG.debug("%s: %d bytes at byte %d", name, size, at + start * item)
        try:
            array = np.empty(stop - start, dtype)
            read_into(handle, array, at + start * item)
            return array
        except Exception:  # entering a block takes too long for small arrays
            with wrap_errors(name):
                raise

    return read
