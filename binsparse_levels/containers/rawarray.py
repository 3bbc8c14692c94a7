"""A folder (NAME.bspra) with one .ra file for each array, and the header in binsparse.json."""

from __future__ import annotations

import functools
from typing import IO, Any

import numpy.typing as npt

from . import directory
from .base import ArrayInfo
from .ra import ArrayFile, write_array


class RawArrayReader(directory.DirectoryReader):
    """As of .npy files; the arrays may be in every encoding and byte order that an .ra file has."""

    suffix = ".ra"

    def _info(self, file: IO[bytes], name: str) -> ArrayInfo:
        array = ArrayFile(file, name, self._limits)
        return ArrayInfo(array.header.dims, array.dtype, array.header.size)

    def _read(self, file: IO[bytes], name: str) -> npt.NDArray[Any]:
        return ArrayFile(file, name, self._limits).read()


class RawArrayWriter(directory.DirectoryWriter):
    """As of .npy files; what is written is little-endian, without encoding and trailer: all programs read it."""

    suffix = ".ra"

    def _write(self, file: IO[bytes], name: str, array: npt.NDArray[Any]) -> None:
        write_array(file, array, name)


reading = functools.partial(directory.reading, by=RawArrayReader)
writing = functools.partial(directory.writing, by=RawArrayWriter)
