"""The file that the HDF5 library writes to, where the disk may be full."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from ..arrays import Array

_METADATA = 2**20  # bytes: a larger write is of data, which nothing reads again


class Disk(io.FileIO):
    """A file whose failed writes are hidden from the library, and reported by `raise_failure` afterwards.

    The library crashes the process when it closes a file that it could not write, or reads what it could not write.
    So small writes are kept from the first failure on.
    """

    _failure: OSError | None = None

    def __init__(self, path: str) -> None:
        super().__init__(path, "r+b")
        self._kept: list[tuple[int, Array]] = []  # places in the file, and the bytes that stand there

    def write(self, data: Any) -> int:
        left, begin = memoryview(data).cast("B"), self.tell()
        whole, size = left, len(left)
        try:
            while left and self._failure is None:
                left = left[super().write(left) or 0 :]
        except OSError as error:
            self._failure = error
        if left and size <= _METADATA:
            self._kept.append((begin, np.frombuffer(whole, np.uint8).copy()))
        return size

    def readinto(self, buffer: Any) -> int:
        begin, into = self.tell(), np.frombuffer(buffer, np.uint8)
        count = super().readinto(buffer) or 0
        for at, kept in self._kept:
            first, stop = max(at, begin), min(at + len(kept), begin + len(into))
            if first < stop:
                into[first - begin : stop - begin] = kept[first - at : stop - at]
        return len(into) if self._kept else count

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self._failure = self._failure or error
            return size or 0

    def raise_failure(self) -> None:
        """Raise the OSError of the first write that failed."""
        if self._failure is not None:
            raise self._failure
