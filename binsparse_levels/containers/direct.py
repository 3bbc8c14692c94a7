"""Local files, read past the libraries: nothing through a symbolic link, bytes straight to where they belong, no more
of a compressed chunk than there can be. What is wrong with a file is an exception that `touching` makes one of ours.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import zlib
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ..arrays import Parts
from ..errors import ContainerError, Problem, UnsafeError
from ..limits import Limits
from ..parallel import each
from ..system import is_link, read_at
from .base import touching

DIRECT = hasattr(os, "preadv")  # where there is none, the libraries read the files that they have open
STEP = 2**22  # bytes that a thread reads at once


def refuse_links(root: str, key: str) -> None:
    """Raise UnsafeError for a symbolic link on the way from the root to the key, ValueError for a pipe or a device,
    which would be waited for. What is missing is left to whoever opens it.
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
            raise ValueError(f"{path} is no file")


@contextlib.contextmanager
def opened(path: str) -> Iterator[tuple[int, int]]:
    """A file, open for reading, and its size. Raises as `refuse_links` does, of the file itself."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafeError(Problem(path, "a symbolic link is not followed")) from None
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is no file")
        yield handle, status.st_size
    finally:
        os.close(handle)


def open_file(path: str, missing: type[ContainerError] = ContainerError, buffering: int = -1) -> IO[bytes]:
    """A file, open for reading. Raises UnsafeError for a symbolic link, the error of `missing` where there is no file,
    ContainerError where it cannot be opened.
    """
    if os.path.islink(path):
        raise UnsafeError(Problem(path, "a symbolic link is not followed"))
    if not os.path.isfile(path):  # a pipe would wait for somebody to write
        raise missing(Problem(path, "no such file"))
    try:
        return open(path, "rb", buffering)
    except OSError as error:
        raise ContainerError(Problem(path, f"cannot be read: {error.strerror}")) from None


def read_into(handle: int, array: npt.NDArray[Any], at: int) -> None:
    """Fill an array with the bytes at that place of a file. Raises EOFError where the file ends before."""
    left = array.view(np.uint8).data
    while left:
        count = read_at(handle, left, at)
        if not count:
            raise EOFError("the file ends before the array does")
        left, at = left[count:], at + count


def parts_of(handle: int, at: int, dtype: np.dtype[Any], name: str, limits: Limits) -> Parts:
    """How to read parts of an array whose items lie from that place of a file on."""

    def read(start: int, stop: int) -> npt.NDArray[Any]:
        limits.hold("array_bytes", (stop - start) * dtype.itemsize, name, "the size in bytes")
        with touching(name):
            array = np.empty(stop - start, dtype)
            read_in_steps(handle, array, at + start * dtype.itemsize)
            return array

    return read


def read_in_steps(handle: int, array: npt.NDArray[Any], at: int) -> None:
    """`read_into` in threads: of 168 MB in the page cache 12.3 ms with two, 14.5 with one; 14.7 and 22 into memory that
    was never touched.
    """
    raw = array.view(np.uint8)
    each(lambda begin: read_into(handle, raw[begin : begin + STEP], at + begin), range(0, raw.size, STEP))


def most_stored(size: int) -> int:
    """More bytes than any compressor makes of that many: what is larger is not read."""
    return 2 * size + 2**16


def inflate(stored: npt.NDArray[np.uint8], size: int, wbits: int) -> npt.NDArray[np.uint8]:
    """The bytes of a deflated chunk: by zlib (wbits 15), or by gzip (31), of which several may follow each other.

    Raises ValueError where they are not `size`; no more are expanded.
    """
    data = b""
    rest: bytes | memoryview = stored.data
    while len(rest):
        stream = zlib.decompressobj(wbits)
        data += stream.decompress(rest, size + 1 - len(data))
        if len(data) > size or not stream.eof:
            break
        rest = stream.unused_data.lstrip(b"\0") if wbits > zlib.MAX_WBITS else b""
    if len(data) != size or len(rest):
        raise ValueError(f"a chunk does not expand to its {size} bytes")
    return np.frombuffer(data, np.uint8)
