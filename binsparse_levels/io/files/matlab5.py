"""Sparse matrices in MATLAB files of version 5, in the layout that MathWorks publishes.

A file is a head of 128 bytes and elements, each a type, a size and as many bytes. A matrix is an element of elements,
often in a zlib stream: flags, shape, name, then rows (`ir`), pointers of the columns (`jc`) and values. All is read in
whole elements, whose sizes are compared with the limits and with the bytes that are there. The reader of scipy does
not: it ends the process on some damaged files.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np

from ...arrays import Array
from ...containers.base import touching
from ...engine.emission import Duplicates
from ...errors import ArrayError, ContainerError, Problem
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.packing import sorted_tensor
from ...tensors.tensor import Tensor

__all__ = ["list_groups", "read"]

_HEAD = 128
_LOOK = 2**16  # bytes of an element that are read for its name
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_SPARSE, _LOGICAL, _COMPLEX = 5, 0x200, 0x800  # a class, and flags


class _Place(NamedTuple):
    """Where a sparse matrix lies: the byte and the size of its element, and whether that is a zlib stream."""

    at: int
    size: int
    packed: bool


def list_groups(path: str, limits: Limits) -> list[str]:
    """The names of the sparse matrices in a file."""
    return list(_matrices(path))


def read(
    path: str, *, group: str | None = None, duplicates: Duplicates = "error", limits: Limits = DEFAULT_LIMITS
) -> Tensor:
    """The sparse matrix of a name, by default the only one, as CSC. Raises ContainerError, ArrayError, LimitError."""
    matrices = _matrices(path)
    if group is None and len(matrices) == 1:
        (group,) = matrices
    if group is None or group not in matrices:
        there = f"{', '.join(matrices):.200}; open PATH:NAME" if matrices else "none; save one"
        raise ContainerError(Problem("sparse matrices", f"expected {group or 'one'}, got {there}"))
    with touching(path), open(path, "rb") as file:
        order = _order(file, path)
        data = _content(file, matrices[group], order, path, limits)
    parts = _parts(data, order, path)
    flags, shape, _, indices, pointers, values = itertools.islice(parts, 6)
    imaginary = next(parts) if flags[0] & _COMPLEX else values
    for name, array in {"dimensions": shape, "ir": indices, "jc": pointers}.items():
        if array.dtype.kind not in "iu":
            raise ArrayError(Problem(name, f"expected integers, got {array.dtype}; fetch the file again"))
    if len(shape) != 2 or min(shape) < 0 or len(pointers) != int(shape[1]) + 1:
        raise ArrayError(Problem("jc", f"expected a pointer for each column and one more, got {len(pointers)}"))
    count = int(pointers[-1])
    if not 0 <= count <= min(len(indices), len(values), len(imaginary)):
        raise ArrayError(Problem("jc", f"ends with {count}, of {len(indices)} rows and {len(values)} values"))
    values = values[:count]
    if flags[0] & _COMPLEX:
        real, values = values, np.empty(count, np.complex128)
        values.real, values.imag = real, imaginary[:count]
    elif flags[0] & _LOGICAL:
        values = values.astype(bool)
    arrays = {"pointers_to_1": pointers, "indices_1": indices[:count]}
    return sorted_tensor("CSC", (int(shape[0]), int(shape[1])), arrays, values, duplicates=duplicates, limits=limits)


def _matrices(path: str) -> dict[str, _Place]:
    """The sparse matrices in a file by name. Raises ContainerError for a file that is cut."""
    found = {}
    with touching(path), open(path, "rb") as file:
        order = _order(file, path)
        end, at = file.seek(0, 2), _HEAD
        while at < end:
            file.seek(at)
            kind, size = struct.unpack(f"{order}2I", file.read(8).ljust(8, b"\0"))
            at += 8
            if size > end - at:
                raise ContainerError(Problem(path, f"is cut within an element of {size} bytes; fetch it again"))
            if kind in (_MATRIX, _COMPRESSED) and size:
                place = _Place(at, size, kind == _COMPRESSED)
                parts = _parts(_content(file, place, order, path, most=_LOOK), order, path)
                if next(parts)[0] & 0xFF == _SPARSE:
                    next(parts)
                    found[next(parts).tobytes().decode("latin1")] = place
            at += size
    return found


def _order(file: IO[bytes], path: str) -> str:
    """The order of the bytes, as `struct` has it."""
    mark = file.read(_HEAD)[-2:]
    if mark not in (b"IM", b"MI"):
        raise ContainerError(
            Problem(path, f"expected the mark of MATLAB 5 in its header, got {mark!r}; fetch it again")
        )
    return "<" if mark == b"IM" else ">"


def _content(
    file: IO[bytes], place: _Place, order: str, path: str, limits: Limits = DEFAULT_LIMITS, most: int | None = None
) -> memoryview:
    """The elements of a matrix, by default all. most: so many bytes of them."""
    what = "the size in bytes of a matrix"
    file.seek(place.at)
    if most is None:
        limits.hold("array_bytes", place.size, path, what)
    data = file.read(place.size if most is None else min(place.size, most))
    if not place.packed:
        return memoryview(data)
    stream = zlib.decompressobj()
    kind, size = struct.unpack(f"{order}2I", stream.decompress(data, 8).ljust(8, b"\0"))
    if kind != _MATRIX:
        raise ContainerError(Problem(path, f"byte {place.at}: expected a matrix, got an element of type {kind}"))
    if most is None:
        limits.hold("array_bytes", size, path, what)
    return memoryview(stream.decompress(stream.unconsumed_tail, max(min(size, most or size), 1)))


def _parts(data: memoryview, order: str, path: str) -> Iterator[Array]:
    """The arrays of a matrix, one behind the other. Raises ContainerError."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack(f"{order}2I", bytes(data[at : at + 8]).ljust(8, b"\0"))
        begin, after = at + 8, at + 8 + size + -size % 8
        if kind >> 16:  # a small element: its size and its bytes lie within the eight
            size, kind, begin, after = kind >> 16, kind & 0xFFFF, at + 4, at + 8
        if kind not in _TYPES:
            raise ContainerError(Problem(path, f"expected numbers, got an element of type {kind}; fetch it again"))
        dtype = np.dtype(f"{order}{_TYPES[kind]}")
        if begin + size > min(len(data), after) or size % dtype.itemsize:
            raise ContainerError(Problem(path, f"an element of {size} bytes does not fit its matrix; fetch it again"))
        yield np.frombuffer(data[begin : begin + size], dtype)
        at = after
    raise ContainerError(Problem(path, "lacks arrays of a matrix; fetch it again"))
