"""One .ra file (RawArray): a header of little-endian 64-bit words, the items, and a trailer of any bytes.

The first dimension varies fastest.

    magic, flags, eltype, elbyte, size, ndims, dims[ndims], data[size], trailer
"""

from __future__ import annotations

import functools
import math
import struct
import sys
from dataclasses import dataclass
from typing import IO, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from ..arrays import Array, LazyArray, Pieces
from ..errors import ArrayError, ContainerError, FormatError, OptionError, Problem
from ..formats.dtypes import of_ml_dtypes
from ..limits import INT32_MAX, INT64_MAX, Limits, as_integer
from .base import wrap_errors
from .direct import parts_of, read_into
from .ra_codecs import Bytes, expand_leb128, expand_lz4, lz4_can_expand, most_leb128

Order: TypeAlias = Literal["F", "C"]

MAGIC, REVERSED_MAGIC = b"rawarray", b"yarrawar"  # the latter in a big-endian header
FIXED = 48  # bytes of a header before the dimensions
BIG, ENCODED, BITS = 1, 2, 4
USER, SIGNED, UNSIGNED, FLOAT, COMPLEX, BOOL_OR_BFLOAT16 = range(6)
_INTEGERS = (SIGNED, UNSIGNED, BOOL_OR_BFLOAT16)  # which LEB128 encodes

# numpy's type by eltype and elbyte; raw bytes for types that numpy does not have: 128-bit integers, complex halves,
# long doubles.
ELEMENTS = {
    (SIGNED, 1): "i1", (SIGNED, 2): "i2", (SIGNED, 4): "i4", (SIGNED, 8): "i8", (SIGNED, 16): "V16",
    (UNSIGNED, 1): "u1", (UNSIGNED, 2): "u2", (UNSIGNED, 4): "u4", (UNSIGNED, 8): "u8", (UNSIGNED, 16): "V16",
    (FLOAT, 2): "f2", (FLOAT, 4): "f4", (FLOAT, 8): "f8", (FLOAT, 16): "V16",
    (COMPLEX, 4): "V4", (COMPLEX, 8): "c8", (COMPLEX, 16): "c16", (COMPLEX, 32): "V32",
    (BOOL_OR_BFLOAT16, 1): "b1", (BOOL_OR_BFLOAT16, 2): "bfloat16",
}  # fmt: skip
_CODES = {name: codes for codes, name in ELEMENTS.items() if name[0] != "V"}


@dataclass(frozen=True)
class Header:
    """A parsed header."""

    flags: int
    eltype: int
    elbyte: int
    size: int
    dims: tuple[int, ...]

    @property
    def offset(self) -> int:
        """The offset of the data."""
        return FIXED + 8 * len(self.dims)

    @property
    def count(self) -> int:
        """The number of items; 1 without dimensions."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """The size of the items in memory, in bytes."""
        return self.count * (1 if self.flags & BITS else self.elbyte)

    @property
    def unit(self) -> int:
        """The number of bytes that a change of byte order reverses."""
        if self.eltype == COMPLEX and self.elbyte % 2 == 0:
            return self.elbyte // 2
        return 1 if self.eltype == USER else self.elbyte

    def __bytes__(self) -> bytes:
        words = (self.flags, self.eltype, self.elbyte, self.size, len(self.dims), *self.dims)
        return MAGIC + struct.pack(f"<{len(words)}Q", *words)


def read_header(file: IO[bytes], length: int, name: str, limits: Limits) -> Header:
    """The header of a file of `length` bytes, compared with the length. Raises ContainerError, LimitError."""
    head = file.read(FIXED)
    if len(head) < FIXED:
        raise _fault(name, f"has {length} bytes, fewer than the header of an .ra file")
    if head[:8] not in (MAGIC, REVERSED_MAGIC):
        raise _fault(name, "is no .ra file: it does not begin with 'rawarray'")
    order = "<" if head[:8] == MAGIC else ">"
    flags, eltype, elbyte, size, ndims = struct.unpack(f"{order}5Q", head[8:])
    if flags & ~(BIG | ENCODED | BITS):
        raise _fault(name, f"unknown flags {flags:#x}")
    if eltype > BOOL_OR_BFLOAT16:
        raise _fault(name, f"unknown eltype {eltype}")
    if not 1 <= elbyte <= INT32_MAX:
        raise _fault(name, f"no array has items of elbyte {elbyte}")
    if ndims > (length - FIXED) // 8:
        raise _fault(name, f"has {length} bytes, fewer than a header of {ndims} dimensions")
    limits.hold("rank", ndims, name, "the number of dimensions")
    dims = struct.unpack(f"{order}{ndims}Q", file.read(8 * ndims))
    if max(dims, default=0) > INT64_MAX:  # together with a dimension of size 0, the sizes would still agree
        raise _fault(name, f"no array has a dimension of size {max(dims)}")
    header = Header(flags, eltype, elbyte, size, dims)
    _check_size(header, length - header.offset, name)
    return header


def _check_size(header: Header, there: int, name: str) -> None:
    """Raise ContainerError if the items do not fit the `there` bytes after the header."""
    size, count, nbytes = header.size, header.count, header.nbytes
    dims = " × ".join(map(str, header.dims)) or "1"
    if header.flags & BITS:
        if (header.eltype, header.elbyte) != (BOOL_OR_BFLOAT16, 8):
            raise _fault(name, f"bits have eltype 5 and elbyte 8, not {header.eltype} and {header.elbyte}")
        if size != 8 * -(-count // 64):
            raise _fault(name, f"size is {size}, but {dims} bits take {8 * -(-count // 64)} bytes")
    elif header.flags & ENCODED and size == nbytes and header.eltype in _INTEGERS:
        if count > there:
            raise _fault(name, f"{there} bytes of data cannot encode {dims} integers")
        return
    elif header.flags & ENCODED and size != nbytes:
        if not lz4_can_expand(size, nbytes):
            raise _fault(name, f"{size} bytes of LZ4 cannot expand to {dims} items of {header.elbyte} bytes")
    elif size != nbytes:
        raise _fault(name, f"size is {size}, but {dims} items of {header.elbyte} bytes take {nbytes}")
    if size > there:
        raise _fault(name, f"size is {size}, but there are {there} bytes of data")


def element_type(header: Header, name: str, dtype: npt.DTypeLike | None = None) -> np.dtype[Any]:
    """numpy's type of the items, or `dtype`, which has the same width.

    Raises ContainerError for a width that the file's type cannot have, OptionError for a `dtype` of another width.
    """
    own: np.dtype[Any] | None
    if header.flags & BITS:
        own = np.dtype(bool)
    elif header.eltype == USER:
        own = np.dtype(f"V{header.elbyte}")
    elif (known := ELEMENTS.get((header.eltype, header.elbyte))) == "bfloat16":
        own = of_ml_dtypes(known) or np.dtype("V2")
    else:
        own = np.dtype(known) if known else None
    if dtype is None:
        if own is None:
            raise _fault(
                name, f"eltype {header.eltype} has no elbyte {header.elbyte}; dtype='V{header.elbyte}' reads it"
            )
        return own
    element = np.dtype(dtype).newbyteorder("=")
    width = 1 if header.flags & BITS else header.elbyte
    if element.hasobject or element.itemsize != width or element.subdtype:
        raise OptionError(Problem(name, f"the items have {width} bytes, which are no {element}"))
    return element


class ArrayFile(LazyArray):
    """The items of an open .ra file, in the order of the file.

    Plain items are read on demand; the first slice of others reads all of them. dtype: as for `element_type`. The
    caller closes the file.
    """

    def __init__(self, file: IO[bytes], name: str, limits: Limits, dtype: npt.DTypeLike | None = None) -> None:
        self._file, self._name, self._limits = file, name, limits
        self._length = file.seek(0, 2)
        file.seek(0)
        with wrap_errors(name):
            self.header = read_header(file, self._length, name, limits)
        super().__init__(self.header.count, element_type(self.header, name, dtype), self.header.size)
        self._plain = parts_of(file.fileno(), self.header.offset, self.dtype, name, limits)

    def part(self, start: int, stop: int) -> Array:
        items = self._plain(start, stop) if self._decoded is None else self._decoded[start:stop].copy()
        if items.dtype.kind == "b" and items.view(np.uint8).max(initial=0) > 1:
            at = int(np.argmax(items.view(np.uint8) > 1))
            what = f"a boolean is 0 or 1, got {items.view(np.uint8)[at]}"
            raise ArrayError(Problem(f"{self._name}[{start + at}]", what))
        return items

    @functools.cached_property
    def _decoded(self) -> Array | None:
        """All items, if they are encoded or in the other byte order; None for plain items."""
        header = self.header
        native = bool(header.flags & BIG) == (sys.byteorder == "big")
        if native and not header.flags & (ENCODED | BITS):
            return None
        self._limits.hold("array_bytes", max(header.nbytes, header.size), self._name, "the size in bytes")
        with wrap_errors(self._name):
            if header.flags & BITS:
                words = self._bytes(header.size)
                words = words if native else _reversed(words, 8)
                return np.unpackbits(words, count=len(self), bitorder="little").view(self.dtype)
            raw = self._expanded() if header.flags & ENCODED else self._bytes(header.size)
            if native:
                return raw.view(self.dtype)
            if header.eltype == USER:  # only the type that the caller gave determines the bytes to reverse
                return raw.view(self.dtype).byteswap()
            return _reversed(raw, header.unit).view(self.dtype)

    def _expanded(self) -> Bytes:
        """The bytes of encoded items in the byte order of the file."""
        header, there = self.header, self._length - self.header.offset
        if header.size <= there:
            raw = self._bytes(header.size)
            expanded = expand_lz4(raw, header.nbytes)
            if expanded is not None:
                return expanded
        if header.size != header.nbytes:
            raise _fault(self._name, f"is no LZ4 block of {header.nbytes} bytes")
        if header.eltype not in _INTEGERS:
            return raw  # plain in spite of the flag
        if (header.eltype, header.elbyte) not in ELEMENTS:
            raise _fault(self._name, f"integers of {header.elbyte} bytes are not encoded")
        payload = self._bytes(min(there, header.count * most_leb128(header.elbyte)))
        expanded = expand_leb128(payload, header.count, header.elbyte, header.eltype == SIGNED)
        return _reversed(expanded, header.unit) if header.flags & BIG else expanded  # the encoding has its own order

    def _bytes(self, count: int) -> Bytes:
        """The first bytes after the header. Raises EOFError for a truncated file."""
        raw = np.empty(count, np.uint8)
        read_into(self._file.fileno(), raw, self.header.offset)
        return raw


def check_order(order: Order) -> None:
    """Raise OptionError for an invalid order."""
    if order not in get_args(Order):
        raise OptionError(Problem("order", f"expected F or C, got {order!r:.40}"))


def write_array(
    file: IO[bytes], name: str, pieces: Pieces, dims: tuple[int, ...] | None = None, eltype: int | None = None
) -> None:
    """Write an array, little-endian and plain.

    dims: of the file, the first of which varies fastest; one by default. eltype: for types with several, bool (0 and 2
    besides 5) and raw bytes. Raises FormatError for a type that would not be read back.
    """
    kind, width = codes_of(pieces.dtype, eltype, name)
    file.write(bytes(Header(0, kind, width, pieces.nbytes, (pieces.length,) if dims is None else dims)))
    for piece in pieces.each():
        file.write(np.ascontiguousarray(piece, pieces.dtype.newbyteorder("<")).view(np.uint8).data)


def codes_of(dtype: np.dtype[Any], eltype: int | None, name: str) -> tuple[int, int]:
    """The eltype and the elbyte of a type. Raises FormatError for a type that would change."""
    native = dtype.newbyteorder("=")
    known = _CODES.get("bfloat16" if native.name == "bfloat16" else native.str[1:])
    raw = native.type is np.void and native.names is None
    if eltype is None:
        if known is None and not raw:
            what = f"an .ra file has no type for {dtype}; with eltype=0 its bytes are written"
            raise FormatError(Problem(name, what))
        return known or (USER, native.itemsize)
    if (number := as_integer(eltype)) is not None:
        codes = (number, native.itemsize)
        as_raw = raw and ELEMENTS.get(codes, "b1") != "b1"
        if number == USER or codes == known or as_raw or (native.kind == "b" and number == UNSIGNED):
            return codes
    raise FormatError(Problem(name, f"{dtype} items are not of eltype {eltype!r:.40}"))


def _reversed(raw: Bytes, unit: int) -> Bytes:
    """Reverse the bytes of each unit."""
    return np.ascontiguousarray(raw.reshape(-1, unit)[:, ::-1]).reshape(-1)


def _fault(name: str, message: str) -> ContainerError:
    return ContainerError(Problem(name, message))
