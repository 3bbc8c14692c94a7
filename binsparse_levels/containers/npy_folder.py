"""A folder (NAME.bspnpy) with one .npy file for each array, and the header in binsparse.json."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Iterator, Mapping
from typing import IO, Any

from ..arrays import Array, LazyArray, Pieces, lazy
from ..errors import ContainerError, PathExistsError, PathMissingError, Problem
from ..formats.json import load_json
from ..limits import DEFAULT_LIMITS, Limits
from .base import Storage, named_by
from .direct import open_file, parts_of
from .npz import check_size, read_npy_header, write_npy
from .replacing import Overwrite, keeps, remove, replacing_folder

HEADER = "binsparse.json"


class DirectoryReader:
    """A folder that is open for reading. Symbolic links are not followed."""

    suffix = ".npy"  # of the arrays

    def __init__(self, folder: str, limits: Limits) -> None:
        self._folder = folder
        self._limits = limits

    def read_header(self) -> Any:
        with open_file(os.path.join(self._folder, HEADER)) as file:
            self._limits.hold("header_bytes", os.fstat(file.fileno()).st_size, HEADER, "the length of the JSON header")
            return load_json(file.read(), self._limits)

    def array(self, name: str) -> LazyArray | None:
        path = os.path.join(self._folder, name + self.suffix)
        if not os.path.lexists(path):
            return None

        def read(start: int, stop: int) -> Array:  # a file that stays open cannot be replaced on Windows
            with open_file(path) as file:
                return self._in_file(file, name)[start:stop]

        with open_file(path) as file:
            stored = self._in_file(file, name)
        return lazy(stored.shape, stored.dtype, read, nbytes=stored.nbytes)

    def _in_file(self, file: IO[bytes], name: str) -> LazyArray:
        """The array in an open file."""
        shape, _, dtype = read_npy_header(file, name)
        size = os.fstat(file.fileno()).st_size
        check_size(name, size, file.tell(), shape, dtype)
        return lazy(shape, dtype, parts_of(file.fileno(), file.tell(), dtype, name, self._limits), nbytes=size)


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
    yield by(os.path.abspath(path), limits)  # the working folder may change


@contextlib.contextmanager
def writing(
    path: str,
    group: str | None,
    overwrite: Overwrite,
    limits: Limits,
    storage: Storage,
    *,
    by: type[DirectoryWriter] = DirectoryWriter,
) -> Iterator[DirectoryWriter]:
    """A new folder, which replaces the old folder when the block ends well.

    The root as the group keeps the files that are not the tensor's. Raises PathExistsError, ContainerError.
    """
    storage.refuse(f"a folder of {by.suffix} files", but=("checksum",))
    if group:
        raise ContainerError(Problem(f"{path}:{group}", f"a folder of {by.suffix} files has no groups"))
    others_here = functools.partial(others, suffix=by.suffix)
    keep = keeps(path, group, overwrite, others_here)
    with replacing_folder(path, overwrite, keep=keep, others=others_here) as part:
        ours = _members(part, by.suffix)
        if ours and not overwrite:
            raise PathExistsError(Problem(path, "has a tensor; pass overwrite=True"))
        if ours:
            DirectoryReader(part, limits).read_header()  # a damaged one does not say which files are its own
        for name in ours:
            remove(os.path.join(part, name))
        yield by(part)


def others(path: str, suffix: str = ".npy") -> set[str]:
    """The names of the files in a folder, but for those of a tensor. Raises ContainerError."""
    return set(os.listdir(path)) - _members(path, suffix)


def _members(folder: str, suffix: str) -> set[str]:
    """The names of the files of a tensor in a folder; none without a header."""
    files = os.listdir(folder)
    arrays = [name.removesuffix(suffix) for name in files if name.endswith(suffix)]
    ours = named_by(DirectoryReader(folder, DEFAULT_LIMITS).read_header, arrays) if HEADER in files else set()
    return {*(f"{name}{suffix}" for name in ours), HEADER} & {*files}
