"""A folder with one file for each array, .npy (NAME.bspnpy) or .ra (NAME.bspra), and the header in binsparse.json.

.ra files of any encoding and byte order are read. They are written little-endian and without encoding.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import IO, Any

from ..arrays import Array, LazyArray, Pieces, lazy
from ..errors import ContainerError, PathMissingError, Problem
from ..formats.json import load_json
from ..limits import DEFAULT_LIMITS, Limits
from ..log import LOG
from .base import Storage, named_by
from .direct import open_file, parts_of
from .interface import Container, in_folder
from .npz import check_size, read_npy_header, write_npy
from .ra_file import ArrayFile, write_array
from .replacing import Overwrite, replacing_folder

HEADER = "binsparse.json"


class FolderReader:
    """A folder that is open for reading. Symbolic links are not followed."""

    def __init__(self, folder: str, limits: Limits) -> None:
        self._folder = folder
        self._limits = limits

    def read_header(self) -> Any:
        with open_file(os.path.join(self._folder, HEADER)) as file:
            self._limits.hold("header_bytes", os.fstat(file.fileno()).st_size, HEADER, "the length of the JSON header")
            return load_json(file.read(), self._limits)

    def array(self, name: str) -> LazyArray | None:
        places = ((os.path.join(self._folder, name + suffix), open_array) for suffix, open_array in _OPENERS.items())
        path, open_array = next((place for place in places if os.path.lexists(place[0])), ("", _in_npy))
        if not path:
            return None

        def read(start: int, stop: int) -> Array:  # a file that stays open cannot be replaced on Windows
            with open_file(path) as file:
                return open_array(file, name, self._limits)[start:stop]

        with open_file(path) as file:
            stored = open_array(file, name, self._limits)
        LOG.debug("%s: read from its file %s, which is opened for each read", name, path)
        return lazy(stored.shape, stored.dtype, read, nbytes=stored.nbytes)


def _in_npy(file: IO[bytes], name: str, limits: Limits) -> LazyArray:
    shape, _, dtype = read_npy_header(file, name)
    size = os.fstat(file.fileno()).st_size
    check_size(name, size, file.tell(), shape, dtype)
    return lazy(shape, dtype, parts_of(file.fileno(), file.tell(), dtype, name, limits), nbytes=size)


def _in_ra(file: IO[bytes], name: str, limits: Limits) -> LazyArray:
    array = ArrayFile(file, name, limits)
    array.shape = array.header.dims
    return array


_OPENERS = {".ra": _in_ra, ".npy": _in_npy}


class FolderWriter:
    """A folder to be filled."""

    def __init__(self, folder: str, suffix: str) -> None:
        self._folder = folder
        self._suffix = suffix

    def write(self, name: str, pieces: Pieces) -> None:
        with open(os.path.join(self._folder, name + self._suffix), "wb") as file:
            write_array(file, name, pieces) if self._suffix == ".ra" else write_npy(file, pieces)

    def write_header(self, header: Mapping[str, Any]) -> None:
        with open(os.path.join(self._folder, HEADER), "w", encoding="utf-8") as file:
            json.dump(header, file, indent=1)


@contextlib.contextmanager
def reading(path: str, group: str | None, limits: Limits) -> Iterator[FolderReader]:
    """Open a folder. Raises PathMissingError."""
    if group:
        raise PathMissingError(Problem(f"{path}:{group}", "a folder of arrays has no groups; leave it out"))
    yield FolderReader(os.path.abspath(path), limits)  # the working folder may change


@contextlib.contextmanager
def writing(
    path: str, group: str | None, overwrite: Overwrite, limits: Limits, storage: Storage, *, suffix: str = ".npy"
) -> Iterator[FolderWriter]:
    """A new folder, which replaces the old folder if the block succeeds. Raises PathExistsError, ContainerError."""
    storage.refuse(f"a folder of {suffix} files", but=("checksum",))
    if group:
        raise ContainerError(Problem(f"{path}:{group}", f"a folder of {suffix} files has no groups; leave it out"))
    with replacing_folder(path, overwrite, others=others) as part:
        yield FolderWriter(part, suffix)


def others(path: str) -> set[str]:
    """The names of the files in a folder, without those of a tensor. Raises ContainerError."""
    files = set(os.listdir(path))
    if HEADER not in files:
        return files
    arrays = {file: name for file in files for name, suffix in [os.path.splitext(file)] if suffix in _OPENERS}
    ours = named_by(FolderReader(path, DEFAULT_LIMITS).read_header, arrays.values())
    return files - {HEADER, *(file for file, name in arrays.items() if name in ours)}


FUNCTIONS = Container(reading=in_folder(reading), writing=writing, others=others)
