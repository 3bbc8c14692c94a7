"""One .ra file (RawArray): a header of little-endian 64-bit words, the items, and a trailer of any bytes.

The first dimension varies fastest.

    magic, flags, eltype, elbyte, size, ndims, dims[ndims], data[size], trailer
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from ..arrays import Array, LazyArray
from ..errors import ArrayError, ContainerError, FormatError, LimitError, OptionError, Problem
from ..limits import INT32_MAX, INT64_MAX, Limits, as_integer
from . import direct, ra_codecs
from .base import touching

Bytes: TypeAlias = npt.NDArray[np.uint8]
Order: TypeAlias = Literal["F", "C"]
Encoding: TypeAlias = Literal["bits", "leb128", "lz4"]

MAGIC, REVERSED_MAGIC = b"rawarray", b"yarrawar"  # the latter where a big-endian host wrote the header as well
FIXED = 48  # bytes of a header before the dimensions
BIG, ENCODED, BITS = 1, 2, 4
USER, SIGNED, UNSIGNED, FLOAT, COMPLEX, BOOL_OR_BRAIN = range(6)
_INTEGERS = (SIGNED, UNSIGNED, BOOL_OR_BRAIN)  # which LEB128 encodes

# numpy's type by eltype and elbyte; raw bytes where numpy has none: 128-bit integers, halves in pairs, what a long
# double takes in memory.
ELEMENTS = {
    (SIGNED, 1): "i1", (SIGNED, 2): "i2", (SIGNED, 4): "i4", (SIGNED, 8): "i8", (SIGNED, 16): "V16",
    (UNSIGNED, 1): "u1", (UNSIGNED, 2): "u2", (UNSIGNED, 4): "u4", (UNSIGNED, 8): "u8", (UNSIGNED, 16): "V16",
    (FLOAT, 2): "f2", (FLOAT, 4): "f4", (FLOAT, 8): "f8", (FLOAT, 16): "V16",
    (COMPLEX, 4): "V4", (COMPLEX, 8): "c8", (COMPLEX, 16): "c16", (COMPLEX, 32): "V32",
    (BOOL_OR_BRAIN, 1): "b1", (BOOL_OR_BRAIN, 2): "bfloat16",
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
        """The number of items; without dimensions 1."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """Bytes of the items in memory."""
        return self.count * (1 if self.flags & BITS else self.elbyte)

    @property
    def unit(self) -> int:
        """The bytes that a change of byte order reverses."""
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
    if eltype > BOOL_OR_BRAIN:
        raise _fault(name, f"unknown eltype {eltype}")
    if not 1 <= elbyte <= INT32_MAX:
        raise _fault(name, f"no array has items of elbyte {elbyte}")
    if ndims > (length - FIXED) // 8:
        raise _fault(name, f"has {length} bytes, fewer than a header of {ndims} dimensions")
    limits.hold("rank", ndims, name, "the number of dimensions")
    dims = struct.unpack(f"{order}{ndims}Q", file.read(8 * ndims))
    if max(dims, default=0) > INT64_MAX:  # beside a dimension of size 0 it would be no more data
        raise _fault(name, f"no array has a dimension of size {max(dims)}")
    header = Header(flags, eltype, elbyte, size, dims)
    _check_size(header, length - header.offset, name)
    return header


def _check_size(header: Header, there: int, name: str) -> None:
    """Raise ContainerError where the items do not fit the `there` bytes behind the header."""
    size, count, nbytes = header.size, header.count, header.nbytes
    dims = " × ".join(map(str, header.dims)) or "1"
    if header.flags & BITS:
        if (header.eltype, header.elbyte) != (BOOL_OR_BRAIN, 8):
            raise _fault(name, f"bits are of eltype 5 and elbyte 8, not {header.eltype} and {header.elbyte}")
        if size != 8 * -(-count // 64):
            raise _fault(name, f"size is {size}, but {dims} bits take {8 * -(-count // 64)} bytes")
    elif header.flags & ENCODED and size == nbytes and header.eltype in _INTEGERS:
        if count > there:
            raise _fault(name, f"{there} bytes of data cannot encode {dims} integers")
        return
    elif header.flags & ENCODED and size != nbytes:
        if not ra_codecs.lz4_may_hold(size, nbytes):
            raise _fault(name, f"{size} bytes of LZ4 cannot expand to {dims} items of {header.elbyte} bytes")
    elif size != nbytes:
        raise _fault(name, f"size is {size}, but {dims} items of {header.elbyte} bytes take {nbytes}")
    if size > there:
        raise _fault(name, f"size is {size}, but there are {there} bytes of data")


def element_type(header: Header, name: str, dtype: npt.DTypeLike | None = None) -> np.dtype[Any]:
    """numpy's type of the items, or `dtype`, which has the same width.

    Raises ContainerError for a width that the file's type does not have, OptionError for another width than the file's.
    """
    own: np.dtype[Any] | None
    if header.flags & BITS:
        own = np.dtype(bool)
    elif header.eltype == USER:
        own = np.dtype(f"V{header.elbyte}")
    else:
        known = ELEMENTS.get((header.eltype, header.elbyte))
        own = _bfloat16() if known == "bfloat16" else np.dtype(known) if known else None
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


def _bfloat16() -> np.dtype[Any]:
    """bfloat16 of the package ml_dtypes, or raw bytes without the package."""
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype("V2")
    brain: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return brain


class ArrayFile(LazyArray):
    """The items of an open .ra file, in the order of the file. A slice is read and checked.

    dtype: as for `element_type`. Whoever opened the file closes it.
    """

    def __init__(self, file: IO[bytes], name: str, limits: Limits, dtype: npt.DTypeLike | None = None) -> None:
        self._file = file
        self._name = name
        self._limits = limits
        self._length = file.seek(0, 2)
        file.seek(0)
        with touching(name):
            self.header = read_header(file, self._length, name, limits)
        super().__init__(self.header.count, element_type(self.header, name, dtype), self.header.size)
        self._used = self.header.size  # bytes of data; of LEB128 only the data tells

    def part(self, start: int, stop: int) -> Array:
        count = stop - start
        self._limits.hold("array_bytes", count * self.dtype.itemsize, self._name, "the size in bytes")
        with touching(self._name):
            if self.header.flags & BITS:
                return self._bits(start, count)
            width = self.header.elbyte
            if self._expanded is None:
                raw = self._bytes(self.header.offset + start * width, count * width)
            else:
                raw = self._expanded[start * width : stop * width].copy()
            array = self._native(raw)
        _check_bool(array, start, self._name)
        return array

    def read(self) -> Array:
        """All items."""
        return self.part(0, len(self))

    def trailer(self) -> bytes:
        """The bytes behind the items. Raises LimitError for more than an array may have."""
        begin = self.header.offset + (self.header.size if self._expanded is None else self._used)
        self._limits.hold("array_bytes", self._length - begin, self._name, "the size in bytes of the trailer")
        with touching(self._name):
            return self._bytes(begin, self._length - begin).tobytes()

    def map(self, order: Order = "F") -> Array:
        """A read-only view of the file's memory map, in the byte order of the file.

        order: "F" for the shape of the file's dimensions, with indices as in Julia and C; "C" for the reversed shape,
        contiguous. Raises ContainerError for encoded items, LimitError for shapes that numpy does not support.
        """
        check_order(order)
        items = self._mapped
        try:
            if order == "F":
                return items.reshape(self.header.dims, order="F")
            return items.reshape(self.header.dims[::-1])
        except ValueError as error:
            what = f"numpy has no array of these {len(self.header.dims)} dimensions: {error}"
            raise LimitError(Problem(self._name, what)) from None

    @functools.cached_property
    def _mapped(self) -> Array:
        """All items, flat, in the memory map of the file."""
        if self.header.flags & BITS or self._expanded is not None:
            raise _fault(self._name, "is encoded, and cannot be mapped")
        dtype = self.dtype if self._is_native else self.dtype.newbyteorder()
        if not len(self):  # nothing can be mapped
            items: Array = np.empty(0, dtype)
            items.flags.writeable = False
            return items
        with touching(self._name):
            items = np.memmap(self._file, dtype, "r", self.header.offset, self.shape).view(np.ndarray)
        _check_bool(items, 0, self._name)
        return items

    @functools.cached_property
    def _expanded(self) -> Bytes | None:
        """The decoded bytes of all items; None for plain items."""
        if not self.header.flags & ENCODED or self.header.flags & BITS:
            return None
        with touching(self._name):
            return self._expand(self.header)

    def _expand(self, header: Header) -> Bytes | None:
        self._limits.hold("array_bytes", max(header.nbytes, header.size), self._name, "the size in bytes")
        there = self._length - header.offset
        if header.size != header.nbytes or header.size <= there:
            expanded = ra_codecs.expand_lz4(self._bytes(header.offset, header.size), header.nbytes)
            if expanded is not None:
                return expanded
        if header.size != header.nbytes:
            raise _fault(self._name, f"is no LZ4 block of {header.nbytes} bytes")
        if header.eltype not in _INTEGERS:
            return None  # the flag is set for nothing
        if (header.eltype, header.elbyte) not in ELEMENTS:
            raise _fault(self._name, f"integers of {header.elbyte} bytes are not encoded")
        most = min(there, header.count * ra_codecs.most_leb128(header.elbyte))
        payload = self._bytes(header.offset, most)
        signed = header.eltype == SIGNED
        expanded, self._used = ra_codecs.expand_leb128(payload, header.count, header.elbyte, signed)
        if header.flags & BIG:  # the encoding has an order of its own
            expanded = _reversed(expanded, header.unit)
        return expanded

    @property
    def _is_native(self) -> bool:
        return bool(self.header.flags & BIG) == (sys.byteorder == "big")

    def _bits(self, begin: int, count: int) -> Array:
        first = begin // 64
        raw = self._bytes(self.header.offset + 8 * first, 8 * (-(-(begin + count) // 64) - first))
        if self.header.flags & BIG:
            raw = _reversed(raw, 8)
        at = begin - 64 * first
        return np.unpackbits(raw, count=at + count, bitorder="little")[at:].view(self.dtype)

    def _bytes(self, at: int, count: int) -> Bytes:
        """Bytes of the file. Raises EOFError for a file that was truncated."""
        raw = np.empty(count, np.uint8)
        direct.read_in_steps(self._file.fileno(), raw, at)
        return raw

    def _native(self, raw: Bytes) -> Array:
        """The items in the order of this machine, in the same memory."""
        if self._is_native:
            return raw.view(self.dtype)
        if self.header.eltype == USER:  # only the type that the caller gave tells what is to be reversed
            return raw.view(self.dtype).byteswap(inplace=True)
        return _reversed(raw, self.header.unit).view(self.dtype)


def check_order(order: Order) -> None:
    """Raise OptionError for an invalid order."""
    if order not in get_args(Order):
        raise OptionError(Problem("order", f"expected F or C, got {order!r:.40}"))


def write_array(
    file: IO[bytes],
    cells: Array,
    name: str,
    *,
    eltype: int | None = None,
    big_endian: bool = False,
    encoding: Encoding | None = None,
    trailer: bytes = b"",
) -> None:
    """Write an array in C order, so that the dimensions of the file are its own reversed.

    eltype: where the type does not tell it, of bool (0 and 2 besides 5) and of raw bytes. Raises FormatError for a type
    that would not be read back, OptionError.
    """
    kind, width = codes_of(cells.dtype, eltype, name)
    flags = BIG * big_endian
    header = Header(flags, kind, width, cells.size * width, cells.shape[::-1])
    pieces: Iterable[Any] = _in_order(cells, header)
    if encoding is not None:
        header, pieces = _encoded(cells, header, encoding, name)
    file.write(bytes(header))
    for piece in pieces:
        file.write(piece)
    file.write(trailer)


def codes_of(dtype: np.dtype[Any], eltype: int | None, name: str) -> tuple[int, int]:
    """eltype and elbyte of items of that type. Raises FormatError for a type that would change."""
    native = dtype.newbyteorder("=")
    known = _CODES.get("bfloat16" if native.name == "bfloat16" else native.str[1:])
    raw = native.type is np.void and native.names is None
    if eltype is None:
        if known is None and not raw:
            raise FormatError(
                Problem(name, f"an .ra file has no type for {dtype}; with eltype=0 its bytes are written")
            )
        return known or (USER, native.itemsize)
    if (number := as_integer(eltype)) is not None:
        codes = (number, native.itemsize)
        as_raw = raw and ELEMENTS.get(codes, "b1") != "b1"
        if number == USER or codes == known or as_raw or (native.kind == "b" and number == UNSIGNED):
            return codes
    raise FormatError(Problem(name, f"{dtype} items are not of eltype {eltype!r:.40}"))


def _encoded(cells: Array, header: Header, encoding: Encoding, name: str) -> tuple[Header, list[Any]]:
    """The header and the data of an encoded array."""
    if encoding not in get_args(Encoding):
        raise OptionError(Problem("encoding", f"expected bits, leb128 or lz4, got {encoding!r:.40}"))
    if header.flags and encoding != "lz4":
        raise OptionError(Problem("big_endian", f"{encoding} has an order of its own"))
    if encoding == "bits":
        if cells.dtype.kind != "b" or header.eltype != BOOL_OR_BRAIN:
            raise FormatError(Problem(name, f"bits hold booleans, not {cells.dtype}"))
        bits = np.packbits(cells.reshape(-1), bitorder="little").tobytes()
        bits = bits.ljust(8 * -(-cells.size // 64), b"\0")
        return Header(ENCODED | BITS, BOOL_OR_BRAIN, 8, len(bits), header.dims), [bits]
    if not cells.size:
        return header, []
    raw = np.concatenate([piece.reshape(-1).view(np.uint8) for piece in _in_order(cells, header)])
    flags = header.flags | ENCODED
    if encoding == "lz4":
        try:
            block = ra_codecs.compress_lz4(raw)
        except ValueError as error:
            raise FormatError(Problem(name, str(error))) from None
        return Header(flags, header.eltype, header.elbyte, len(block), header.dims), [block]
    if header.eltype not in _INTEGERS:
        raise FormatError(Problem(name, f"LEB128 encodes integers and booleans, not {cells.dtype}"))
    payload = ra_codecs.compress_leb128(raw, header.elbyte, header.eltype == SIGNED)
    start = np.frombuffer(payload, np.uint8, min(raw.size, len(payload)))
    if ra_codecs.expand_lz4(start, raw.size) is not None and len(start) == raw.size:
        raise FormatError(Problem(name, "its LEB128 integers would be read as LZ4; write them without encoding"))
    return Header(flags, header.eltype, header.elbyte, raw.size, header.dims), [payload]


_PIECE = 2**24  # bytes that are brought into order at once


def _in_order(cells: Array, header: Header) -> Iterator[Array]:
    """The items as bytes of the file, in contiguous pieces."""
    swap = bool(header.flags & BIG) != (sys.byteorder == "big")
    if not cells.size:
        return
    if cells.flags.c_contiguous:
        flat = cells.reshape(-1)
        step = max(_PIECE // cells.itemsize, 1)
        pieces: Iterator[Array] = (flat[k : k + step] for k in range(0, flat.size, step))
    else:
        pieces = _slabs(cells)
    for piece in pieces:
        raw = np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
        yield _reversed(raw.copy(), header.unit) if swap and header.unit > 1 else raw


def _slabs(cells: Array) -> Iterator[Array]:
    """Parts of the first dimension, copied tile by tile: of 512 MB transposed in 80 ms, at once in 360."""
    inner = min(range(cells.ndim), key=lambda k: (cells.shape[k] == 1, abs(cells.strides[k]), -k))
    tile = {inner: 64, cells.ndim - 1: 256} if inner != cells.ndim - 1 else {}
    step = max(_PIECE // cells[:1].nbytes, 8)
    for begin in range(0, len(cells), step):
        part = cells[begin : begin + step]
        slab = np.empty(part.shape, part.dtype)
        cuts = [range(0, size, tile.get(k, size)) for k, size in enumerate(part.shape)]
        for corner in itertools.product(*cuts):
            place = tuple(slice(at, at + cut.step) for at, cut in zip(corner, cuts, strict=True))
            slab[place] = part[place]
        yield slab


def _reversed(raw: Bytes, unit: int) -> Bytes:
    """The bytes, reversed in every unit; in the same memory where numpy can."""
    if unit in (2, 4, 8):
        raw.view(f"u{unit}").byteswap(inplace=True)
        return raw
    return np.ascontiguousarray(raw.reshape(-1, unit)[:, ::-1]).reshape(-1)


def _check_bool(array: Array, begin: int, name: str) -> None:
    """Raise ArrayError for a boolean that is neither 0 nor 1."""
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        at = int(np.argmax(array.view(np.uint8) > 1))
        raise ArrayError(Problem(f"{name}[{begin + at}]", f"a boolean is 0 or 1, got {array.view(np.uint8)[at]}"))


def _fault(name: str, message: str) -> ContainerError:
    return ContainerError(Problem(name, message))
