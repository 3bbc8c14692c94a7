"""NPZ: a zip file with one .npy member for each array; the header is the text in the member `binsparse`."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from ..arrays import Array, LazyArray, Pieces, lazy
from ..errors import ContainerError, DescriptorError, PathMissingError, Problem, UnsafeError
from ..formats.json import load_json
from ..limits import DEFAULT_LIMITS, Limits
from ..log import LOG
from .base import Storage, named_by, no_tensor, wrap_errors
from .direct import DIRECT, handle_of, open_zip, parts_of, read_into
from .interface import Container
from .replacing import Overwrite, replacing

KEY = "binsparse"


def read_npy_header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of a .npy file. Raises ContainerError, UnsafeError for pickled objects."""
    with wrap_errors(name):
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"version {version} of the .npy format is unknown")
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file, max_header_size=10_000)
    if dtype.hasobject:
        raise UnsafeError(Problem(name, "pickled objects are not read"))
    return shape, fortran, dtype


def check_size(name: str, size: int, begin: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise ContainerError for a .npy file whose size does not match its header."""
    declared = begin + dtype.itemsize * math.prod(shape)
    if declared != size:
        raise ContainerError(Problem(name, f"has {size} bytes, its header says {declared}"))


def header_text(array: Array, limits: Limits) -> Any:
    """The JSON in an array: a zero-dimensional text, or bytes as uint8."""
    if array.ndim == 1 and array.dtype == np.uint8:
        return load_json(array.tobytes(), limits)
    if array.size != 1 or array.dtype.kind not in "US":
        raise ContainerError(Problem(KEY, f"expected a text, got {array.dtype} of shape {array.shape}"))
    return load_json(text_in(array), limits)


def text_in(array: Array) -> str | bytes:
    """The text in an array of one item. Raises DescriptorError for invalid characters."""
    try:
        text: str | bytes = array.reshape(()).item()
    except SystemError as error:
        raise DescriptorError(Problem(KEY, f"no text: {error}; write the file again")) from None
    return text


def write_npy(file: IO[bytes], pieces: Pieces) -> None:
    """Write a .npy file through a Python stream: `np.save` does not notice a full disk."""
    shape = {"descr": npy.dtype_to_descr(pieces.dtype), "fortran_order": False, "shape": (pieces.length,)}
    npy.write_array_header_1_0(file, shape)
    for piece in pieces.each():
        file.write(np.ascontiguousarray(piece, pieces.dtype).data)


class NPZReader:
    """A zip file that is open for reading. The size of a member is compared with its header before it is expanded."""

    def __init__(self, archive: zipfile.ZipFile, limits: Limits) -> None:
        self._archive = archive
        self._limits = limits
        names = [member.filename for member in archive.infolist()]
        if len(set(names)) != len(names):
            raise ContainerError(Problem(archive.filename or "", "two members have the same name"))

    def read_header(self) -> Any:
        header = self.array(KEY)
        if header is None:
            raise no_tensor("", f"member {KEY!r}", self._archive.namelist())
        member = self._archive.getinfo(f"{KEY}.npy")
        self._limits.hold("header_bytes", member.file_size // 4, KEY, "the length of the JSON header")
        return header_text(self._whole(member, KEY, header.shape), self._limits)

    def array(self, name: str, *, flat: bool = False) -> LazyArray | None:
        """An array. The first slice of a deflated array reads all of it. flat: as one dimension, in C order."""
        member = self._archive.NameToInfo.get(f"{name}.npy")
        if member is None:
            return None
        with wrap_errors(name), self._archive.open(member) as file:
            shape, fortran, dtype = read_npy_header(file, name)
            begin = file.tell()
        check_size(name, member.file_size, begin, shape, dtype)
        sizes = (math.prod(shape),) if flat else shape
        stored = member.compress_type == zipfile.ZIP_STORED and not (fortran and flat)
        handle = handle_of(self._archive.fp) if stored and DIRECT and self._archive.fp is not None else None
        whole = functools.partial(self._whole, member, name, sizes)
        if handle is None:
            LOG.debug("%s: read whole by zipfile, because it is deflated, or in Fortran order", name)
            once = functools.cache(whole)
            return lazy(sizes, dtype, lambda start, stop: once()[start:stop], nbytes=member.compress_size)

        LOG.debug("%s: read at its place in the zip file, because it is stored there as it is", name)

        def read(start: int, stop: int) -> Array:
            if stop - start == sizes[0]:  # only the whole array can be compared with its checksum
                return whole()
            with wrap_errors(name):
                header = np.empty(30, np.uint8)  # of the member: it ends with the lengths of its name and extra field
                read_into(handle, header, member.header_offset)
                at = member.header_offset + 30 + int(header[26:30].view("<u2").sum()) + begin
            return parts_of(handle, at, dtype, name, self._limits)(start, stop)

        return lazy(sizes, dtype, read, nbytes=member.compress_size)

    def _whole(self, member: zipfile.ZipInfo, name: str, sizes: tuple[int, ...]) -> Array:
        self._limits.hold("array_bytes", member.file_size, name, "the size in bytes")
        LOG.debug("%s: %d bytes in the zip file, whole", name, member.compress_size)
        with wrap_errors(name), self._archive.open(member) as file:
            return npy.read_array(file, allow_pickle=False, max_header_size=10_000).reshape(sizes)

    def storage(self, name: str) -> Storage:
        """The storage options of an array, for a writer. Precondition: `array` was called."""
        plain = self._archive.getinfo(f"{name}.npy").compress_type == zipfile.ZIP_STORED
        return Storage(None if plain else "gzip")


class NPZWriter:
    """A zip file that is open for writing. Members have no times, so equal tensors give equal bytes."""

    def __init__(self, archive: zipfile.ZipFile, storage: Storage) -> None:
        self._archive = archive
        self._storage = storage

    def write(self, name: str, pieces: Pieces) -> None:
        kind = self._storage.of("compression", name)
        member = zipfile.ZipInfo(f"{name}.npy")
        member.compress_type = zipfile.ZIP_DEFLATED if kind == "gzip" else zipfile.ZIP_STORED
        with self._archive.open(member, "w", force_zip64=pieces.nbytes > 2**31 - 2**16) as file:
            write_npy(file, pieces)

    def write_header(self, header: Mapping[str, Any]) -> None:
        member = zipfile.ZipInfo(f"{KEY}.npy")
        file = io.BytesIO()
        npy.write_array(file, np.array(json.dumps(header)), allow_pickle=False)
        self._archive.writestr(member, file.getvalue())


def opened(path: str | zipfile.ZipFile) -> contextlib.AbstractContextManager[zipfile.ZipFile]:
    """An open zip file, which the block closes; or the given file, which stays open.

    Raises ContainerError.
    """
    return contextlib.nullcontext(path) if isinstance(path, zipfile.ZipFile) else open_zip(path)


@contextlib.contextmanager
def reading(path: str | zipfile.ZipFile, group: str | None, limits: Limits) -> Iterator[NPZReader]:
    """Open a zip file. Raises ContainerError, PathMissingError."""
    with opened(path) as archive:
        if group:
            raise PathMissingError(Problem(f"{archive.filename}:{group}", "an NPZ file has no groups; leave it out"))
        yield NPZReader(archive, limits)


@contextlib.contextmanager
def writing(
    path: str, group: str | None, overwrite: Overwrite, limits: Limits, storage: Storage
) -> Iterator[NPZWriter]:
    """A new zip file, which replaces the old file if the block succeeds. Raises PathExistsError, OptionError."""
    storage.refuse("NPZ", but=("compression", "checksum"), compressions=("gzip", "none"))
    if group:
        raise ContainerError(Problem(f"{path}:{group}", "an NPZ file has no groups; leave it out"))
    with replacing(path, overwrite, others=others) as part, zipfile.ZipFile(part, "w") as archive:
        yield NPZWriter(archive, storage)


def others(path: str) -> set[str]:
    """The names of the members of a zip file, without those of a tensor. Raises ContainerError."""
    with open_zip(path) as archive:
        arrays = {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
        ours = named_by(NPZReader(archive, DEFAULT_LIMITS).read_header, arrays) | {KEY} if KEY in arrays else set()
        return set(archive.namelist()) - {f"{name}.npy" for name in ours}


FUNCTIONS = Container(reading=reading, writing=writing, opened=opened, others=others)
