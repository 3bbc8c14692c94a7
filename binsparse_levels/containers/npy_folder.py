"""A folder (NAME.bspnpy) with one .npy file for each array, and the header in binsparse.json."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ..arrays import Parts, Pieces
from ..errors import ContainerError, PathExistsError, PathMissingError, Problem
from ..formats.json import load_json
from ..limits import Limits
from .base import ArrayInfo, Storage, touching
from .direct import open_file, parts_of
from .npz import read_npy_header, write_npy
from .replacing import refuse_existing, replacing_folder

HEADER = "binsparse.json"


class DirectoryReader:
    """A folder that is open for reading. Symbolic links are not followed."""

    suffix = ".npy"  # of the arrays

    def __init__(self, folder: str, limits: Limits) -> None:
        self._folder = folder
        self._limits = limits

    def read_header(self) -> Any:
        with self._open(HEADER) as file:
            self._limits.hold("header_bytes", os.fstat(file.fileno()).st_size, HEADER, "the length of the JSON header")
            return load_json(file.read(), self._limits)

    def info(self, name: str) -> ArrayInfo | None:
        if not os.path.lexists(os.path.join(self._folder, name + self.suffix)):
            return None
        with self._open(name + self.suffix) as file:
            return self._info(file, name)

    def read(self, name: str) -> npt.NDArray[Any]:
        with touching(name), self._open(name + self.suffix) as file:
            return self._read(file, name)

    def _info(self, file: IO[bytes], name: str) -> ArrayInfo:
        """The metadata of the array in a file."""
        shape, _, dtype = read_npy_header(file, name)
        size = os.fstat(file.fileno()).st_size
        declared = file.tell() + dtype.itemsize * int(np.prod(shape, dtype=object))
        if declared != size:
            raise ContainerError(Problem(name, f"has {size} bytes, its header says {declared}"))
        return ArrayInfo(shape, dtype, size)

    def _read(self, file: IO[bytes], name: str) -> npt.NDArray[Any]:
        """The array in the file."""
        self._limits.hold("array_bytes", os.fstat(file.fileno()).st_size, name, "the size in bytes")
        array: npt.NDArray[Any] = np.load(file, allow_pickle=False, max_header_size=10_000)
        return array

    def parts(self, name: str) -> Parts:
        with self._open(f"{name}.npy") as file:
            _, _, dtype = read_npy_header(file, name)
            at = file.tell()

        def read(start: int, stop: int) -> npt.NDArray[Any]:
            with self._open(f"{name}.npy") as file:
                return parts_of(file.fileno(), at, dtype, name, self._limits)(start, stop)

        return read

    def _open(self, name: str) -> IO[bytes]:
        return open_file(os.path.join(self._folder, name))


class DirectoryWriter:
    """A folder that is being filled."""

    suffix = ".npy"

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, name: str, pieces: Pieces) -> None:
        with open(os.path.join(self._folder, name + self.suffix), "wb") as file:
            self._write(file, name, pieces)

    def write_header(self, header: Mapping[str, Any]) -> None:
        with open(os.path.join(self._folder, HEADER), "w", encoding="utf-8") as file:
            json.dump(header, file, indent=1)

    def _write(self, file: IO[bytes], name: str, pieces: Pieces) -> None:
        """Fill the file of an array."""
        write_npy(file, pieces)


@contextlib.contextmanager
def reading(
    path: str, group: str | None, limits: Limits, *, by: type[DirectoryReader] = DirectoryReader
) -> Iterator[DirectoryReader]:
    """Open a folder. Raises PathMissingError."""
    if group:
        raise PathMissingError(Problem(f"{path}:{group}", f"a folder of {by.suffix} files has no groups"))
    yield by(path, limits)


@contextlib.contextmanager
def writing(
    path: str,
    group: str | None,
    overwrite: bool,
    limits: Limits,
    storage: Storage,
    *,
    by: type[DirectoryWriter] = DirectoryWriter,
) -> Iterator[DirectoryWriter]:
    """A new folder, which replaces the old one when the block ends well. Only a folder with a header is overwritten."""
    storage.refuse(f"a folder of {by.suffix} files", but=("checksum",))
    if group:
        raise ContainerError(Problem(f"{path}:{group}", f"a folder of {by.suffix} files has no groups"))
    refuse_existing(path, overwrite)
    real = os.path.realpath(path)
    if os.path.isdir(real) and os.listdir(real) and not os.path.exists(os.path.join(real, HEADER)):
        raise PathExistsError(Problem(path, f"is a folder without {HEADER}, and is not overwritten"))
    with replacing_folder(path) as part:
        yield by(part)
