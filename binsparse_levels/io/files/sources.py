"""Groups of HDF5 and Zarr as sources of lazy arrays, texts and attributes, of which the types are checked."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from ...arrays import Array, LazyArray, lazy
from ...containers import hdf5
from ...containers.base import touching
from ...containers.replacing import same_folder
from ...errors import ArrayError, BinsparseError, ContainerError, PathMissingError, Problem
from ...limits import Limits
from ...tensors.labels import Column
from .names import of_array


def open_group(path: Any, group: str | None, limits: Limits, closing: contextlib.ExitStack) -> Group:
    """A group of a file or of a group that is open; of Zarr where that is a folder, a URL or a store."""
    if isinstance(path, h5py.Group) or (isinstance(path, str) and not os.path.isdir(path)) or hasattr(path, "readinto"):
        return Group(closing.enter_context(hdf5.reading(path, group, limits)), limits)
    from ...containers import zarr  # HDF5 does without

    unreplaced = closing.enter_context(same_folder(str(getattr(getattr(path, "store", path), "root", path))))
    return ZarrGroup(closing.enter_context(zarr.reading(path, group, limits)), limits, unreplaced)


class Group:
    """A group of an HDF5 file, with a dataset for each array."""

    def __init__(self, reader: Any, limits: Limits) -> None:
        self.reader = reader
        self.limits = limits

    # Attributes

    @property
    def attributes(self) -> Any:
        return self.reader.group.attrs

    def attribute_text(self, name: str) -> str:
        """A text attribute. Raises ContainerError."""
        return attribute_text(self.reader.group, name, self.limits)

    def attribute_numbers(self, name: str) -> list[int]:
        """An attribute that is a list of integers. Raises ContainerError."""
        with touching(name):
            size = self.attributes.get_id(name).get_storage_size()
            self.limits.hold("header_bytes", size, name, "the length of the attribute")
            numbers = np.asarray(self.attributes[name])
        return _integers(numbers.tolist() if numbers.dtype.kind in "iu" else numbers, name)

    # Arrays

    def has(self, name: str) -> bool:
        """Whether the group has a member of this name. Nothing else of it is known."""
        with touching(self.reader.group.name):
            return name in set(self.reader.group.keys())

    def array(self, name: str) -> LazyArray:
        """An array of any rank. Raises PathMissingError, UnsafeError."""
        array: LazyArray | None = self.reader.array(name)
        if array is None:
            raise self._missing(name)
        return array

    def _missing(self, name: str) -> BinsparseError:
        return PathMissingError(Problem(name, f"{self.reader.group.name} has no such array"))

    def one_dimension(self, name: str) -> LazyArray:
        array = self.array(name)
        if len(array.shape) != 1:
            raise ArrayError(Problem(name, f"expected one dimension, got shape {array.shape}"))
        return array

    def numbers(self, name: str, kinds: str = "biuf", expected: str = "numbers") -> LazyArray:
        """Numbers in one dimension, of the type that is stored. Raises ArrayError for another type."""
        array = self.one_dimension(name)
        if array.dtype.kind not in kinds:
            raise ArrayError(Problem(name, f"expected {expected}, got {array.dtype}"))
        return items(array, len(array), array.dtype.newbyteorder("="))

    def integers(self, name: str) -> LazyArray:
        return self.numbers(name, "iu", "integers")

    def is_array(self, name: str) -> bool:
        """Whether a member is an array, and no group and no link."""
        if not self.has(name):
            return False
        with touching(name):
            link = self.reader.group.get(name, getlink=True)
            return isinstance(link, h5py.HardLink) and hasattr(self.reader.group[name], "shape")

    def cells(self, name: str) -> tuple[LazyArray, tuple[int, ...]]:
        """The numbers of an array of any rank as one dimension in order of rows, and its shape. Raises ArrayError."""
        checked = self.array(name)
        if checked.dtype.kind not in "biufc" or not checked.shape:
            there = f"{checked.dtype} of shape {checked.shape}"
            raise ArrayError(Problem(name, f"expected an array of numbers, got {there}"))
        stored, shape, dtype = self.reader.group[name], checked.shape, checked.dtype.newbyteorder("=")
        row = math.prod(shape[1:])

        def read(start: int, stop: int) -> Array:
            first, last = start // row, -(-stop // row)
            self.limits.hold("array_bytes", (last - first) * row * dtype.itemsize, name, "the size in bytes")
            with touching(name):
                rows = np.asarray(stored[first:last]).reshape(-1)
            return rows[start - first * row : stop - first * row].astype(dtype, copy=False)

        return lazy(math.prod(shape), dtype, read, nbytes=lambda: checked.nbytes), shape

    # Texts

    def _strings(self, name: str) -> LazyArray:
        """An array of texts. Raises ArrayError for another array."""
        array = self.one_dimension(name)
        if h5py.check_string_dtype(array.dtype) is None and array.dtype.kind not in "TU":
            raise ArrayError(Problem(name, f"expected texts, got {array.dtype}"))
        return array

    def texts(self, name: str) -> list[str]:
        return [as_text(text, f"{name}[{k}]") for k, text in enumerate(self._strings(name)[:].tolist())]

    def labels(self, name: str, size: int) -> Column | None:
        """An array of texts as names along a dimension of that size; None for an empty array.

        Raises ArrayError for another number of them.
        """
        stored = self._strings(name)
        if len(stored) not in (0, size):
            raise ArrayError(Problem(name, f"expected none or {size} names, got {len(stored)}"))
        return of_array(stored, name, self.limits) if len(stored) else None


class ZarrGroup(Group):
    """A group of Zarr, versions 2 and 3, whose attributes are JSON.

    unreplaced: raises an error if another folder has replaced the store.
    """

    def __init__(self, reader: Any, limits: Limits, unreplaced: Callable[[], None] | None) -> None:
        super().__init__(reader, limits)
        self._unreplaced = unreplaced

    @property
    def attributes(self) -> Any:
        with touching(self.reader.group.name):
            return self.reader.group.attrs.asdict()

    def attribute_text(self, name: str) -> str:
        text = self.attributes.get(name)
        if not isinstance(text, str):
            raise ContainerError(Problem(name, f"expected a string, got {text!r:.60}"))
        return text

    def attribute_numbers(self, name: str) -> list[int]:
        return _integers(self.attributes.get(name), name)

    def has(self, name: str) -> bool:
        group = self.reader.group
        with touching(group.name):  # a web server lists nothing, and is asked for this member
            return name in (set(group.keys()) if group.store.supports_listing else group)

    def is_array(self, name: str) -> bool:
        with touching(name):
            return self.has(name) and hasattr(self.reader.group[name], "shape")

    def array(self, name: str) -> LazyArray:
        stored, unreplaced = super().array(name), self._unreplaced
        if unreplaced is None:
            return stored

        def read(start: int, stop: int) -> Array:
            try:
                return stored[start:stop]
            finally:
                unreplaced()

        return lazy(stored.shape, stored.dtype, read, nbytes=lambda: stored.nbytes)


def items(stored: LazyArray, length: int, dtype: np.dtype[Any], *, view: bool = False) -> LazyArray:
    """The first items of an array, as `dtype`; view: their bytes, taken for items of `dtype`."""
    if length == len(stored) and dtype == stored.dtype:
        return stored

    def read(start: int, stop: int) -> Array:
        return stored[start:stop].view(dtype) if view else stored[start:stop].astype(dtype, copy=False)

    return lazy(length, dtype, read, nbytes=lambda: stored.nbytes)


def attribute_text(group: h5py.Group, name: str, limits: Limits) -> str:
    """An attribute of HDF5 as text. Raises ContainerError for a missing attribute, or one that is not text."""
    text = hdf5.read_text(group, name, limits)
    if text is None:
        raise ContainerError(Problem(name, "this attribute is missing"))
    return as_text(text, name)


def as_text(text: Any, path: str) -> str:
    """A text that may be bytes. Raises ArrayError for one that is not UTF-8."""
    try:
        return text.decode() if isinstance(text, bytes) else str(text).encode().decode()
    except UnicodeError as error:
        raise ArrayError(Problem(path, f"not UTF-8: {error}; write it as UTF-8")) from None


def _integers(numbers: Any, name: str) -> list[int]:
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise ContainerError(Problem(name, f"expected integers, got {numbers!r:.60}"))
    return numbers
