"""Chunks of HDF5 that gzip has compressed, which threads read and inflate without the library."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..arrays import Array
from ..limits import Limits
from ..log import LOG
from ..parallel import each
from .base import wrap_errors
from .direct import read_into
from .hdf5_arrays import Dataset
from .objects.codecs import most_packed
from .objects.reading import ChunkedArray, Owner, UseItems

zlib: Any
try:  # twice as fast as that of Python and of the HDF5 library
    zlib = importlib.import_module("zlib_ng.zlib_ng")
except ImportError:
    zlib = importlib.import_module("zlib")


class DeflatedArray(ChunkedArray):
    """A dataset whose chunks are compressed by gzip. The chunks of a small read are cached."""

    def __init__(self, name: str, dataset: Dataset, handle: int, limits: Limits) -> None:
        """handle: of the open file."""
        super().__init__(dataset.shape, dataset.dtype, lambda: dataset.nbytes)
        self.chunk, self._name, self._owner = dataset.chunk, name, Owner(limits)
        self._dataset, self._handle = dataset, handle

    def _read(self, numbers: list[int], use: UseItems) -> None:
        with wrap_errors(self._name):
            places = self._dataset.places()

        def read(number: int) -> None:
            first = number * self.chunk
            if first in places:
                with wrap_errors(self._name):
                    use(number, self._inflated(*places[first]))
            else:  # the chunk was never written, or a filter skipped it
                use(number, self._dataset.part(first, min(first + self.chunk, len(self))))

        each(read, numbers)
        LOG.debug("%s: %d chunks, inflated by %s", self._name, len(numbers), zlib.__name__)

    def _inflated(self, at: int, size: int) -> Array:
        """The items of the chunk with these bytes of the file. Raises any error for damaged bytes."""
        expected = self.chunk * self.dtype.itemsize
        if size > most_packed(expected):
            raise ValueError(f"a chunk of {expected} bytes is stored in {size}")
        raw = np.empty(size, np.uint8)
        read_into(self._handle, raw, at)
        inflater = zlib.decompressobj()
        data = inflater.decompress(raw, expected + 1)  # one byte more, so that the checksum at the end is compared
        if not inflater.eof or len(data) != expected:
            raise ValueError(f"a chunk does not expand to its {expected} bytes")
        if not self._dataset.shuffled:
            return np.frombuffer(data, self.dtype)
        # The first bytes of all items, then the second ones, and so on.
        planes = np.frombuffer(data, np.uint8).reshape(self.dtype.itemsize, self.chunk)
        words = planes[-1].astype(f"<u{self.dtype.itemsize}")
        for plane in planes[-2::-1]:  # by shifts: 13 µs for 2**13 items of 4 bytes, and 32 µs by a transpose
            words <<= 8
            words |= plane
        items: Array = words.view(self.dtype)
        return items
