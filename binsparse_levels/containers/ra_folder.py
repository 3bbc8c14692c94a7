"""A folder (NAME.bspra) with one .ra file for each array, and the header in binsparse.json."""

from __future__ import annotations

import functools
from typing import IO

import numpy as np

from ..arrays import LazyArray, Pieces
from . import npy_folder
from .ra_file import ArrayFile, Header, codes_of


class RawArrayReader(npy_folder.DirectoryReader):
    """A folder of .ra files that is open for reading. Any encoding and byte order is read."""

    suffix = ".ra"

    def _in_file(self, file: IO[bytes], name: str) -> LazyArray:
        array = ArrayFile(file, name, self._limits)
        array.shape = array.header.dims
        return array


class RawArrayWriter(npy_folder.DirectoryWriter):
    """A folder of .ra files that is being filled: little-endian, without encoding and trailer, for all programs."""

    suffix = ".ra"

    def _write(self, file: IO[bytes], name: str, pieces: Pieces) -> None:
        kind, width = codes_of(pieces.dtype, None, name)
        file.write(bytes(Header(0, kind, width, pieces.nbytes, (pieces.length,))))
        for piece in pieces.each():
            file.write(np.ascontiguousarray(piece, pieces.dtype.newbyteorder("<")).data)


others = functools.partial(npy_folder.others, suffix=".ra")
reading = functools.partial(npy_folder.reading, by=RawArrayReader)
writing = functools.partial(npy_folder.writing, by=RawArrayWriter)
