"""Folders of BPCells and its groups in HDF5 files, as sources of arrays of a type that is asked for, and of texts."""

from __future__ import annotations

import contextlib
import os
from typing import IO

import numpy as np

from ...arrays import Array, LazyArray, Sliceable, lazy
from ...containers.base import touching
from ...containers.direct import open_file, parts_of
from ...errors import ArrayError, ContainerError, PathMissingError, Problem
from ...limits import Limits
from ...tensors.labels import Column
from .names import Texts, column, in_bytes, lines_of
from .sources import Group, as_text

TYPES = {"uint32": b"UINT32v1", "uint64": b"UINT64v1", "float32": b"FLOATSv1", "float64": b"DOUBLEv1"}


class Folder:
    """A folder with a file for each array: 8 bytes that name the type, then its numbers; or lines of text.

    Symbolic links are not followed. Files stay open until `closing` ends.
    """

    def __init__(self, path: str, limits: Limits, closing: contextlib.ExitStack) -> None:
        self._path = path
        self._limits = limits
        self._closing = closing

    def typed(self, name: str, dtype: str, *, unsigned: bool = False) -> Sliceable:
        """An array of that type. Raises ArrayError for another array, PathMissingError."""
        file = self._open(name)
        head, wanted = file.read(8), TYPES[dtype]
        if head != wanted:
            raise ArrayError(Problem(name, f"expected a file that begins with {wanted!r}, got {head!r}"))
        stored = np.dtype(dtype).newbyteorder("<")
        count = (os.fstat(file.fileno()).st_size - 8) // stored.itemsize
        parts = parts_of(file.fileno(), 8, stored, name, self._limits)
        return lazy(count, np.dtype(dtype), lambda start, stop: parts(start, stop).astype(dtype, copy=False))

    def texts(self, name: str) -> list[str]:
        """The lines of a file. Raises as `typed` does."""
        return [as_text(line, name) for line in lines_of(self._bytes(self._open(name), name))]

    def labels(self, name: str, size: int) -> Column | None:
        """The lines of a file as names along a dimension of that size; None for an empty file.

        Raises ArrayError for another number of them, when they are read.
        """
        file = self._open(name)
        if not os.fstat(file.fileno()).st_size:
            return None

        def read() -> Texts:
            data, offsets = in_bytes([lines_of(self._bytes(file, name))], name, self._limits)
            if len(offsets) - 1 != size:
                raise ArrayError(Problem(name, f"expected none or {size} names, got {len(offsets) - 1}"))
            return data, offsets

        return column(size, read)

    def version(self) -> str:
        """The text by which the folder names its format."""
        lines = self.texts("version")
        if len(lines) != 1:
            raise ContainerError(Problem(f"{self._path}/version", f"expected one line, got {len(lines)}"))
        return lines[0]

    def _bytes(self, file: IO[bytes], name: str) -> bytes:
        self._limits.hold("array_bytes", os.fstat(file.fileno()).st_size, name, "the size in bytes")
        with touching(name):
            return file.read()

    def _open(self, name: str) -> IO[bytes]:
        file = open_file(os.path.join(self._path, name), PathMissingError, buffering=0)
        return self._closing.enter_context(file)


class TypedGroup(Group):
    """A group of an HDF5 file. Other programs store other types of numbers, which are converted or refused."""

    def typed(self, name: str, dtype: str, *, unsigned: bool = False) -> Sliceable:
        """An array of that type. unsigned: refuse an array that is stored with signs.

        Raises ArrayError for another array, PathMissingError.
        """
        wanted = np.dtype(dtype)
        kinds = "u" if unsigned else "iu" if wanted.kind in "iu" else wanted.kind
        array = self.numbers(name, kinds, f"{'unsigned ' * unsigned}{wanted}")
        if array.dtype == wanted:
            return array
        if wanted.kind == "f":
            raise ArrayError(Problem(name, f"expected {wanted}, got {array.dtype}"))
        return _converted(name, array, wanted)

    def version(self) -> str:
        return self.attribute_text("version")


def _converted(name: str, stored: LazyArray, dtype: np.dtype[np.generic]) -> LazyArray:
    """Integers as integers of another type."""
    limits = np.iinfo(dtype)  # type: ignore[type-var]

    def read(begin: int, end: int) -> Array:
        items = stored[begin:end]
        wrong = (items < limits.min) | (items > limits.max)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ArrayError(Problem(f"{name}[{begin + at}]", f"{items[at]} is out of the range of {dtype}"))
        return items.astype(dtype)

    return lazy(len(stored), dtype, read)
