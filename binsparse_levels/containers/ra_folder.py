"""A folder (NAME.bspra) with one .ra file for each array, and the header in binsparse.json."""

from __future__ import annotations

import functools
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ..arrays import Parts, Pieces
from . import npy_folder
from .base import ArrayInfo, touching
from .ra_file import ArrayFile, Header, codes_of


class RawArrayReader(npy_folder.DirectoryReader):
    """A folder of .ra files that is open for reading. Any encoding and byte order is read."""

    suffix = ".ra"

    def _info(self, file: IO[bytes], name: str) -> ArrayInfo:
        array = ArrayFile(file, name, self._limits)
        return ArrayInfo(array.header.dims, array.dtype, array.header.size)

    def _read(self, file: IO[bytes], name: str) -> npt.NDArray[Any]:
        return ArrayFile(file, name, self._limits).read()

    def parts(self, name: str) -> Parts:
        def read(start: int, stop: int) -> npt.NDArray[Any]:
            with touching(name), self._open(name + self.suffix) as file:
                return ArrayFile(file, name, self._limits)[start:stop]

        return read


class RawArrayWriter(npy_folder.DirectoryWriter):
    """A folder of .ra files that is being filled: little-endian, without encoding and trailer, for all programs."""

    suffix = ".ra"

    def _write(self, file: IO[bytes], name: str, pieces: Pieces) -> None:
        kind, width = codes_of(pieces.dtype, None, name)
        file.write(bytes(Header(0, kind, width, pieces.nbytes, (pieces.length,))))
        for piece in pieces.each():
            file.write(np.ascontiguousarray(piece, pieces.dtype.newbyteorder("<")).data)


reading = functools.partial(npy_folder.reading, by=RawArrayReader)
writing = functools.partial(npy_folder.writing, by=RawArrayWriter)
