"""Groups of HDF5 and Zarr as sources of lazy arrays, texts and attributes of checked types."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import h5py
import numpy as np

from ...arrays import Array, LazyArray, lazy
from ...containers import hdf5
from ...containers.base import wrap_errors
from ...errors import ArrayError, ContainerError, PathMissingError, Problem
from ...limits import Limits
from ...tensors.labels import Column
from .names import column


def open_group(file: Any, group: str | None, limits: Limits, closing: contextlib.ExitStack) -> Group:
    """A group of an open file of HDF5, or of an open place in a store of Zarr."""
    if isinstance(file, h5py.Group):
        return Group(closing.enter_context(hdf5.reading(file, group, limits)), limits)
    from ...containers import zarr  # not needed for HDF5

    return Group(closing.enter_context(zarr.FUNCTIONS.reading(file, group, limits)), limits)


def matrix_shape(shape: Any, name: str) -> tuple[int, int]:
    """The shape of a matrix in an attribute or an array of this name. Raises ContainerError."""
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(size) is int and size >= 0 for size in shape):
        raise ContainerError(Problem(name, f"expected 2 integers of at least 0, got {shape!r:.60}"))
    return shape[0], shape[1]


class Group:
    """A group of HDF5 or Zarr. reader: of its container."""

    def __init__(self, reader: Any, limits: Limits) -> None:
        self.reader = reader
        self.limits = limits
        self.of_hdf5 = isinstance(getattr(reader, "group", None), h5py.HLObject)

    # Attributes

    def attribute(self, name: str) -> Any:
        """An attribute as a text, a number or a list of them; None if it is missing. Raises ContainerError."""
        attributes = self.reader.group.attrs
        with wrap_errors(name):
            if not self.of_hdf5:
                return attributes.asdict().get(name)
            if not hdf5.has_attribute(self.reader.group, name):
                return None
            size = attributes.get_id(name).get_storage_size()
            self.limits.hold("header_bytes", size, name, "the length of the attribute")
            value = attributes[name]
            value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        return as_text(value, name) if isinstance(value, str | bytes) else value

    def attribute_text(self, name: str) -> str:
        """A text attribute, or a list of one text. Raises ContainerError."""
        text = self.attribute(name)
        text = text[0] if isinstance(text, list) and len(text) == 1 else text
        if not isinstance(text, str | bytes):
            what = "this attribute is missing" if text is None else f"expected a string, got {text!r:.60}"
            raise ContainerError(Problem(name, what))
        return as_text(text, name)

    # Arrays

    def has(self, name: str) -> bool:
        """Return True if the group has a member of this name, of any kind."""
        group = self.reader.group
        with wrap_errors(str(group.name)):
            if not self.of_hdf5 and not group.store.supports_listing:  # a request to a web server for this member
                return name in group
            return name in set(group.keys())

    def is_array(self, name: str) -> bool:
        """Return True if a member is an array, and not a group or a link."""
        with wrap_errors(name):
            if not self.has(name):
                return False
            linked = self.of_hdf5 and not isinstance(self.reader.group.get(name, getlink=True), h5py.HardLink)
            return not linked and hasattr(self.reader.group[name], "shape")

    def array(self, name: str) -> LazyArray:
        """An array of any rank. Raises PathMissingError, UnsafeError."""
        array: LazyArray | None = self.reader.array(name)
        if array is None:
            place = getattr(getattr(self.reader, "group", None), "name", "the file")
            raise PathMissingError(Problem(name, f"{place} has no such array"))
        return array

    def one_dimension(self, name: str) -> LazyArray:
        array = self.array(name)
        if len(array.shape) != 1:
            raise ArrayError(Problem(name, f"expected one dimension, got shape {array.shape}"))
        return array

    def numbers(self, name: str, kinds: str = "biuf", expected: str = "numbers") -> LazyArray:
        """A one-dimensional array of numbers, in its stored type. Raises ArrayError for another type."""
        array = self.one_dimension(name)
        if array.dtype.kind not in kinds:
            raise ArrayError(Problem(name, f"expected {expected}, got {array.dtype}"))
        native = array.dtype.newbyteorder("=")
        return array if array.dtype == native else array.mapped(lambda x: x.astype(native), native)

    def integers(self, name: str) -> LazyArray:
        return self.numbers(name, "iu", "integers")

    def compressed(self, kinds: str = "biuf") -> dict[str, LazyArray]:
        """The arrays of a compressed matrix in the names of scipy. kinds: of the values."""
        return {x: self.integers(x) for x in ("indptr", "indices")} | {"data": self.numbers("data", kinds)}

    def cells(self, name: str) -> tuple[LazyArray, tuple[int, ...]]:
        """The numbers of an array of any rank as one dimension in C order, and its shape. Raises ArrayError."""
        checked = self.array(name)
        if checked.dtype.kind not in "biufc" or not checked.shape:
            there = f"{checked.dtype} of shape {checked.shape}"
            raise ArrayError(Problem(name, f"expected an array of numbers, got {there}"))
        stored, shape, dtype = self.reader.group[name], checked.shape, checked.dtype.newbyteorder("=")
        row = math.prod(shape[1:])

        def read(start: int, stop: int) -> Array:
            first, last = start // row, -(-stop // row)
            self.limits.hold("array_bytes", (last - first) * row * dtype.itemsize, name, "the size in bytes")
            with wrap_errors(name):
                rows = np.asarray(stored[first:last]).reshape(-1)
            return rows[start - first * row : stop - first * row].astype(dtype, copy=False)

        array = lazy(math.prod(shape), dtype, read, nbytes=lambda: checked.nbytes)
        if not self.of_hdf5:  # which has a cache of its own
            rows = max(stored.chunks[0] * row, 1)
            array.chunk = rows if rows * dtype.itemsize <= self.limits.cache_bytes else 1
            array = self.reader.cached(name, array)
        return array, shape

    # Texts

    def strings(self, name: str) -> LazyArray:
        """An array of texts. Raises ArrayError for another array."""
        array = self.one_dimension(name)
        if h5py.check_string_dtype(array.dtype) is None and array.dtype.kind not in "TU":
            raise ArrayError(Problem(name, f"expected texts, got {array.dtype}"))
        return array

    def texts(self, name: str) -> list[str]:
        return [as_text(text, f"{name}[{k}]") for k, text in enumerate(self.strings(name)[:].tolist())]

    def labels(self, name: str, size: int) -> Column | None:
        """An array of texts as names along a dimension of that size; None for an empty array.

        Raises ArrayError for another number of texts.
        """
        stored = self.strings(name)
        if len(stored) not in (0, size):
            raise ArrayError(Problem(name, f"expected none or {size} names, got {len(stored)}"))
        return _named(stored, name, self.limits) if len(stored) else None

    def names(self, name: str) -> Column:
        """An array of texts or numbers as names."""
        return _named(self.one_dimension(name), name, self.limits)


def _named(stored: LazyArray, name: str, limits: Limits) -> Column:
    return column(len(stored), lambda key: stored[key].tolist(), name, limits)


def as_text(text: Any, path: str) -> str:
    """A text that may be bytes. Raises ArrayError for one that is not UTF-8."""
    try:
        return text.decode() if isinstance(text, bytes) else str(text).encode().decode()
    except UnicodeError as error:
        raise ArrayError(Problem(path, f"not UTF-8: {error}; write it as UTF-8")) from None
