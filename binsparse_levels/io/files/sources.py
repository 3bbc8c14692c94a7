"""Folders, and groups of HDF5 files, as sources of lazy arrays and texts.

Other programs store other types of numbers. Arrays are converted to the requested type, or refused.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from typing import IO, Any

import h5py
import numpy as np

from ...arrays import Array, LazyArray, Sliceable, lazy
from ...containers import hdf5
from ...containers.base import ArrayInfo, touching
from ...containers.direct import open_file, parts_of
from ...errors import ArrayError, BinsparseError, ContainerError, PathMissingError, Problem
from ...limits import Limits
from ...tensors.labels import Column
from .names import lines_of, of_array, of_lines


@contextlib.contextmanager
def named(names: Mapping[str, str], label: str = "") -> Iterator[None]:
    """Prefix errors with the label, and name arrays as in the file."""
    try:
        yield
    except BinsparseError as error:
        problems = []
        for problem in error.problems:
            name, bracket, rest = problem.path.partition("[")
            path = ": ".join(filter(None, [label, names.get(name, name) + bracket + rest]))
            problems.append(Problem(path, problem.message))
        raise type(error)(problems) from None


class Folder:
    """A folder with a file for each array: 8 bytes that name the type, then its numbers; or lines of text.

    types: those bytes by numpy's name of the type. Symbolic links are not followed. Files stay open until `closing`
    ends.
    """

    def __init__(self, path: str, types: Mapping[str, bytes], limits: Limits, closing: contextlib.ExitStack) -> None:
        self._path = path
        self._types = types
        self._limits = limits
        self._closing = closing

    def numbers(self, name: str, dtype: str, *, unsigned: bool = False) -> Sliceable:
        """An array of that type. Raises ArrayError for another array, PathMissingError."""
        file = self._open(name)
        head, wanted = file.read(8), self._types[dtype]
        if head != wanted:
            raise ArrayError(Problem(name, f"expected a file that begins with {wanted!r}, got {head!r}"))
        stored = np.dtype(dtype).newbyteorder("<")
        count = (os.fstat(file.fileno()).st_size - 8) // stored.itemsize
        parts = parts_of(file.fileno(), 8, stored, name, self._limits)
        return lazy(count, np.dtype(dtype), lambda start, stop: parts(start, stop).astype(dtype, copy=False))

    def texts(self, name: str) -> list[str]:
        """The lines of a file. Raises as `numbers` does."""
        data = self._bytes(self._open(name), name)
        try:
            return [line.decode() for line in lines_of(data)]
        except UnicodeDecodeError as error:
            raise ArrayError(Problem(name, f"not UTF-8: {error}; write it as UTF-8")) from None

    def labels(self, name: str, size: int) -> Column | None:
        """The lines of a file as names along a dimension of that size; None for an empty file."""
        file = self._open(name)
        if not os.fstat(file.fileno()).st_size:
            return None
        return of_lines(lambda: self._bytes(file, name), size, name, self._limits)

    def _bytes(self, file: IO[bytes], name: str) -> bytes:
        self._limits.hold("array_bytes", os.fstat(file.fileno()).st_size, name, "the size in bytes")
        with touching(name):
            return file.read()

    def version(self) -> str:
        """The text by which the folder names its format."""
        lines = self.texts("version")
        if len(lines) != 1:
            raise ContainerError(Problem(f"{self._path}/version", f"expected one line, got {len(lines)}"))
        return lines[0]

    def _open(self, name: str) -> IO[bytes]:
        file = open_file(os.path.join(self._path, name), PathMissingError, buffering=0)
        return self._closing.enter_context(file)


class Group:
    """A group of an HDF5 file, with a dataset for each array."""

    def __init__(self, reader: hdf5.HDF5Reader, limits: Limits) -> None:
        self.reader = reader
        self.limits = limits

    @property
    def attributes(self) -> h5py.AttributeManager:
        return self.reader.group.attrs

    def has(self, name: str) -> bool:
        """Whether the group has a member of this name. Nothing else of it is known."""
        with touching(self.reader.group.name):
            return name in set(self.reader.group.keys())

    def numbers(self, name: str, dtype: str | None = None, *, unsigned: bool = False) -> Sliceable:
        """An array of that type, by default of the stored one. unsigned: refuse an array that is stored with signs.

        Raises ArrayError for another array, ContainerError for a missing one.
        """
        if dtype is None:
            return self._numbers(name, "biuf", "numbers")
        wanted = np.dtype(dtype)
        kinds = "u" if unsigned else "iu" if wanted.kind in "iu" else wanted.kind
        array = self._numbers(name, kinds, f"{'unsigned ' * unsigned}{wanted}")
        if array.dtype == wanted:
            return array
        if wanted.kind == "f":
            raise ArrayError(Problem(name, f"expected {wanted}, got {array.dtype}"))
        return _converted(name, array, wanted)

    def integers(self, name: str) -> Sliceable:
        """Integers of the type that is stored. Raises as `numbers` does."""
        return self._numbers(name, "iu", "integers")

    def _numbers(self, name: str, kinds: str, expected: str) -> LazyArray:
        info = self.one_dimension(name)
        if info.dtype.kind not in kinds:
            raise ArrayError(Problem(name, f"expected {expected}, got {info.dtype}"))
        return self.items(name, info.shape[0], info.dtype.newbyteorder("="))

    def texts(self, name: str) -> list[str]:
        return [_as_text(text, f"{name}[{k}]") for k, text in enumerate(self._strings(name)[:])]

    def labels(self, name: str, size: int) -> Column | None:
        """An array of texts as names along a dimension of that size; None for an empty array.

        Raises ArrayError for another number of them.
        """
        stored = self._strings(name)
        if len(stored) not in (0, size):
            raise ArrayError(Problem(name, f"expected none or {size} names, got {len(stored)}"))
        return of_array(stored, name, self.limits) if len(stored) else None

    def _strings(self, name: str) -> LazyArray:
        """An array of texts. Raises ArrayError for another array."""
        info = self.one_dimension(name)
        if h5py.check_string_dtype(info.dtype) is None:
            raise ArrayError(Problem(name, f"expected texts, got {info.dtype}"))
        return info

    def version(self) -> str:
        return self.attribute_text("version")

    def attribute_text(self, name: str) -> str:
        """A text attribute. Raises ContainerError."""
        return attribute_text(self.reader.group, name, self.limits)

    def attribute_numbers(self, name: str) -> list[int]:
        """An attribute that is a list of integers. Raises ContainerError."""
        with touching(name):
            size = self.attributes.get_id(name).get_storage_size()
            self.limits.hold("header_bytes", size, name, "the length of the attribute")
            numbers = np.asarray(self.attributes[name])
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise ContainerError(Problem(name, f"expected integers, got {numbers.dtype} of shape {numbers.shape}"))
        numbers_read: list[int] = numbers.tolist()
        return numbers_read

    def is_array(self, name: str) -> bool:
        """Whether a member is an array, and no group and no link."""
        if not self.has(name):
            return False
        with touching(name):
            return not self._is_link(name) and hasattr(self.reader.group[name], "shape")

    def _is_link(self, name: str) -> bool:
        return not isinstance(self.reader.group.get(name, getlink=True), h5py.HardLink)

    def cells(self, name: str) -> tuple[LazyArray, tuple[int, ...]]:
        """The numbers of an array of any rank as one dimension in order of rows, and its shape. Raises ArrayError."""
        checked = self._array(name)
        if checked.dtype.kind not in "biufc" or not checked.shape:
            raise ArrayError(
                Problem(name, f"expected an array of numbers, got {checked.dtype} of shape {checked.shape}")
            )
        stored, shape, dtype = self.reader.group[name], checked.shape, checked.dtype.newbyteorder("=")
        row = math.prod(shape[1:])

        def read(start: int, stop: int) -> Array:
            first, last = start // row, -(-stop // row)
            self.limits.hold("array_bytes", (last - first) * row * dtype.itemsize, name, "the size in bytes")
            with touching(name):
                rows = np.asarray(stored[first:last]).reshape(-1)
            return rows[start - first * row : stop - first * row].astype(dtype, copy=False)

        return lazy(math.prod(shape), dtype, read, nbytes=lambda: checked.nbytes), shape

    def info(self, name: str) -> ArrayInfo:
        """The metadata of a dataset."""
        array = self._array(name)
        return ArrayInfo(array.shape, array.dtype, array.nbytes)

    def _array(self, name: str) -> LazyArray:
        array = self.reader.array(name)
        if array is None:
            raise self._missing(name)
        return array

    def one_dimension(self, name: str) -> LazyArray:
        """A dataset of one dimension."""
        array = self._array(name)
        if len(array.shape) != 1:
            raise ArrayError(Problem(name, f"expected one dimension, got shape {array.shape}"))
        return array

    def items(self, name: str, length: int, dtype: np.dtype[Any], *, view: bool = False) -> LazyArray:
        """The first items of a dataset, as `dtype`; view: their bytes, taken for items of `dtype`."""
        stored = self._array(name)

        def read(start: int, stop: int) -> Array:
            return stored[start:stop].view(dtype) if view else stored[start:stop].astype(dtype, copy=False)

        return lazy(length, dtype, read, nbytes=lambda: stored.nbytes)

    def _missing(self, name: str) -> BinsparseError:
        return PathMissingError(Problem(name, f"{self.reader.group.name} has no such dataset"))


def _converted(name: str, stored: LazyArray, dtype: np.dtype[Any]) -> LazyArray:
    """Integers as integers of another type."""
    limits = np.iinfo(dtype)

    def read(begin: int, end: int) -> Array:
        items = stored[begin:end]
        wrong = (items < limits.min) | (items > limits.max)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ArrayError(Problem(f"{name}[{begin + at}]", f"{items[at]} is out of the range of {dtype}"))
        return items.astype(dtype)

    return lazy(len(stored), dtype, read)


def attribute_text(group: h5py.Group, name: str, limits: Limits) -> str:
    """An attribute as text. Raises ContainerError for a missing attribute, or one that is not text."""
    text = hdf5.read_text(group, name, limits)
    if text is None:
        raise ContainerError(Problem(name, "this attribute is missing"))
    return _as_text(text, name)


def _as_text(text: Any, path: str) -> str:
    try:
        return text.decode() if isinstance(text, bytes) else str(text).encode().decode()
    except UnicodeError as error:
        raise ArrayError(Problem(path, f"not UTF-8: {error}; write it as UTF-8")) from None


def encodes(text: str) -> bool:
    """Whether a file can hold a text."""
    try:
        return "\0" not in text and text.encode() is not None
    except UnicodeEncodeError:
        return False
