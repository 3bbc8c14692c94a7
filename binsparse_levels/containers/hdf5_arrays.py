"""Datasets of HDF5 as arrays, read at their offset in the file, or by the HDF5 library."""

from __future__ import annotations

import contextlib
import math
import os
from typing import Any

import h5py
import numpy as np

from ..arrays import Array, LazyArray
from ..errors import ContainerError, Problem, UnsafeError
from ..limits import Limits
from ..log import LOG
from .base import bounded_chunk, check_items, wrap_errors
from .direct import parts_of, read_into

# The HDF5 filters that may run: deflate, shuffle, fletcher32, szip, nbit, scaleoffset, and those of plug-ins.
_PLUG_INS = {32000: "lzf", 32001: "blosc", 32004: "lz4", 32008: "bitshuffle", 32015: "zstd", 32026: "blosc2"}
_FILTERS = {1, 2, 3, 4, 5, 6, *_PLUG_INS}
_DEFLATE, _SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE


class Dataset(LazyArray):
    """A one-dimensional dataset. Creating h5py's own object takes longer than reading a small array."""

    def __init__(self, dataset: h5py.h5d.DatasetID, name: str, limits: Limits, remote: bool) -> None:
        properties = dataset.get_create_plist()
        filters = [properties.get_filter(k) for k in range(properties.get_nfilters())]
        self.filters: dict[int, str] = {number: label.decode(errors="replace") for number, *_, label in filters}
        self.chunked = properties.get_layout() == h5py.h5d.CHUNKED
        if properties.get_external_count():
            raise UnsafeError(Problem(name, "its data is in another file"))
        if properties.get_layout() == h5py.h5d.VIRTUAL:
            raise UnsafeError(Problem(name, "a virtual dataset is not followed"))
        if unknown := {*self.filters} - _FILTERS:
            raise UnsafeError(Problem(name, f"the HDF5 filter {min(unknown)} is not allowed; write it with gzip"))
        if missing := [number for number in self.filters.keys() & _PLUG_INS if not h5py.h5z.filter_avail(number)]:
            what = f"the HDF5 filter {_PLUG_INS[missing[0]]} ({missing[0]}) is not installed; import hdf5plugin first"
            raise ContainerError(Problem(name, what))
        # In a remote file, counting the bytes of chunks would read most of the file.
        size = None if self.chunked and remote else dataset.get_storage_size()
        super().__init__(dataset.shape or (), dataset.dtype, size)  # a null dataspace has no shape
        self.chunk = math.prod(properties.get_chunk()) if self.chunked else 1
        self._id, self._name, self._limits, self._remote = dataset, name, limits, remote
        self._checked = not self.chunked
        self._handle: int | None = None  # of the open file, if chunks are read without the library
        self._places: dict[int, tuple[int, int]] = {}  # offset and stored size of chunks in the file, by first item
        self.shuffled = filters[0][::2] == (_SHUFFLE, (self.dtype.itemsize,)) if filters else False
        #: True if gzip has compressed the items, perhaps after their bytes were shuffled, and did nothing else.
        self.deflated = [number for number, *_ in filters[self.shuffled :]] == [_DEFLATE] and self._is_plain()

    def part(self, start: int, stop: int) -> Array:
        check_items(self._name, stop - start, self.dtype.itemsize, self._limits)
        with wrap_errors(self._name):
            self._check(start, stop)
            if self.dtype.kind not in "iufb":  # h5py converts texts, enumerations and records
                converted: Array = h5py.Dataset(self._id)[start:stop]
                return converted
            items: Array = np.empty(stop - start, self.dtype)
            if self._handle is not None and self._read_chunks(self._handle, items, start):
                return items
            LOG.debug("%s: %d bytes by the HDF5 library", self._name, items.nbytes)
            there = self._id.get_space()
            there.select_hyperslab((start,), (len(items),))
            self._id.read(h5py.h5s.create_simple(items.shape), there, items)
            return items

    def _read_chunks(self, handle: int, items: Array, start: int) -> bool:
        """Read items from `start` on. Return False if the file does not contain one of their chunks."""
        stop = start + len(items)
        for first in range(start // self.chunk * self.chunk, stop, self.chunk):
            if first not in self._places:
                return False
            begin, end = max(first, start), min(first + self.chunk, stop)
            at = self._places[first][0] + (begin - first) * self.dtype.itemsize
            read_into(handle, items[begin - start : end - start], at)
            LOG.debug("%s: %d bytes at byte %d", self._name, (end - begin) * self.dtype.itemsize, at)
        return True

    def read_at_offset(self, handle: int) -> str:
        """Read the items from the open file without the library. Returns the reason if that is impossible, else ""."""
        whole = math.prod(self.shape) * self.dtype.itemsize
        if len(self.shape) != 1 or not whole:
            return f"the shape {self.shape}"
        if self.filters:
            return f"the filters {', '.join(self.filters.values())}"
        if not self._is_plain():
            return f"the type {self.dtype}"
        if self.chunked:
            self._handle = handle
            return ""
        at = self._id.get_offset() if self._nbytes == whole else None
        if at is None:
            return "items that were never written"
        if at + whole > os.fstat(handle).st_size:
            raise EOFError("the file ends before the array does")
        part = parts_of(handle, at, self.dtype, self._name, self._limits)
        self.part = part  # type: ignore[assignment, method-assign]
        return ""

    def _is_plain(self) -> bool:
        """Return True for numbers of numpy along one dimension: numpy has no integers of 12 bits."""
        numbers = len(self.shape) == 1 and self.dtype.kind in "iuf"
        return numbers and bool(self._id.get_type().equal(h5py.h5t.py_create(self.dtype)))

    def places(self) -> dict[int, tuple[int, int]]:
        """The offset and the stored size of each chunk in the file that no filter skipped, by its first item."""
        self._check(0, 0)
        return self._places

    def _check(self, start: int, stop: int) -> None:
        """List the chunks once. Raises LimitError for a large chunk.

        Raises ValueError for a chunk of no bytes: the library crashes when it filters an empty chunk.
        """
        if self._checked:
            return
        bounded_chunk(self._name, self.chunk, len(self), self.dtype.itemsize, self._limits)
        sizes: list[int] = []
        if not self._remote:
            stored: list[Any] = []
            self._id.chunk_iter(stored.append)
            sizes = [chunk.size for chunk in stored]
            self._places = {x.chunk_offset[0]: (x.byte_offset, x.size) for x in stored if not x.filter_mask}
        for at in range(start // self.chunk * self.chunk, stop, self.chunk) if self._remote else ():
            with contextlib.suppress(OSError, RuntimeError):  # the chunk was never written
                sizes.append(len(self._id.read_direct_chunk((at,))[1]))
        if 0 in sizes:
            raise ValueError("a chunk is stored in no bytes")
        self._checked = not self._remote
