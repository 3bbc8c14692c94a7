"""The data types of a descriptor: type strings, and the conversion between stored and numpy arrays.

base | complex[float32 | float64] | iso[base | complex[…]]          Binsparse 0.1, sections 3.6 and 3.7
bitpacked[integer] | bitpacked_delta[integer] | bitpacked_zigzag[integer]      only in this package, see bitpacked.py
dictionary[base | complex[…] | binsparse_levels:…]                    only in this package, see dictionary.py
binsparse_levels:(float16 | bfloat16 | float8_e4m3fn | float8_e5m2)            only in this package, and for values
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeGuard

import numpy as np

from ..arrays import Array
from ..errors import ArrayError, DescriptorError, Problem
from .bitpacked import CODECS, BitPacked, bitpack
from .json import RESERVED

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_VALUES: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in (*INTEGERS, "float32", "float64")} | {
    "bint8": np.dtype(bool)
}
_COMPLEX: dict[str, np.dtype[Any]] = {"float32": np.dtype("complex64"), "float64": np.dtype("complex128")}
_OF_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
_SMALL_FLOATS = ("float16", *_OF_ML_DTYPES)  # under names that other programs refuse
_GRAMMAR = re.compile(
    rf"(?:(iso|dictionary)\[)?(?:(complex|{'|'.join(CODECS)})\[)?((?:{RESERVED})?[a-z0-9_]+)\]{{0,2}}"
)


@dataclass(frozen=True)
class DataType:
    """A parsed type string.

    dtype: the numpy dtype of the values. iso: True if one value is stored for all. wrapper: the name of the
    bit-packing, or None. dictionary: True if the array is a table of values.
    """

    dtype: np.dtype[Any]
    iso: bool = False
    wrapper: str | None = None
    dictionary: bool = False

    @cached_property
    def integer(self) -> bool:
        """True if index and pointer arrays can have the type."""
        return self.dtype.kind in "iu" and not (self.iso or self.dictionary)

    @cached_property
    def stored(self) -> np.dtype[Any]:
        """The type of the array in the container."""
        if self.wrapper:
            return np.dtype("uint32")
        if self.dtype.kind == "c":
            return np.dtype(f"float{self.dtype.itemsize * 4}")
        if is_of_ml_dtypes(self.dtype):
            return np.dtype(f"uint{8 * self.dtype.itemsize}")
        return np.dtype("uint8") if self.dtype.kind == "b" else self.dtype

    @cached_property
    def parts(self) -> int:
        """The number of stored numbers per value."""
        return 2 if self.dtype.kind == "c" else 1

    def __str__(self) -> str:
        if self.wrapper:
            return f"{self.wrapper}[{self.dtype.name}]"
        name = "bint8" if self.dtype.kind == "b" else self.stored.name
        if self.dtype.kind == "c":
            name = f"complex[{name}]"
        if self.dtype.name in _SMALL_FLOATS:
            name = f"{RESERVED}{self.dtype.name}"
        return f"iso[{name}]" if self.iso else f"dictionary[{name}]" if self.dictionary else name


def parse_dtype(text: Any, path: str) -> DataType:
    """The data type of a type string. Raises DescriptorError for other strings.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> from binsparse_levels.formats.dtypes import parse_dtype
    >>> str(parse_dtype("complex[float32]", "values").dtype)
    'complex64'
    """
    data_type = _parsed(text) if isinstance(text, str) else None
    if data_type is None:
        names = ", ".join([*_VALUES, *(f"{RESERVED}{name}" for name in _SMALL_FLOATS)])
        known = (
            f"{names}, complex[float32 or float64], iso[…], dictionary[…], and {', '.join(CODECS)} of an integer type"
        )
        raise DescriptorError(Problem(path, f"unknown data type {text!r:.80}; known are {known}"))
    return data_type


@lru_cache(256)  # called for every array of a file
def _parsed(text: str) -> DataType | None:
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        return None
    outer, wrapper, base = match.groups()
    stores = outer == "iso", None, outer == "dictionary"
    if base.startswith(RESERVED):
        name = base.removeprefix(RESERVED)
        dtype = of_ml_dtypes(name) if name in _OF_ML_DTYPES else np.dtype(name) if name in _SMALL_FLOATS else None
        return None if dtype is None or wrapper or text.count("]") != bool(outer) else DataType(dtype, *stores)
    table = _COMPLEX if wrapper == "complex" else _VALUES
    if base not in table or text.count("]") != bool(outer) + bool(wrapper):
        return None
    if wrapper not in CODECS:
        return DataType(table[base], *stores)
    return DataType(table[base], wrapper=wrapper) if base in INTEGERS and not outer else None


def is_of_ml_dtypes(dtype: np.dtype[Any]) -> bool:
    """Return True for a float of the package ml_dtypes. Others cost little: the name of a dtype takes a microsecond."""
    return (dtype.kind == "V" or (dtype.kind == "f" and dtype.itemsize == 1)) and dtype.name in _OF_ML_DTYPES


def of_ml_dtypes(name: str) -> np.dtype[Any] | None:
    """A float of the package ml_dtypes; None if it is not installed."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return made


def data_type_of(dtype: np.dtype[Any], path: str, iso: bool = False) -> DataType:
    """The data type that stores values of a numpy dtype. Raises ArrayError if there is none."""
    native = dtype.newbyteorder("=")
    if native in _VALUES.values() or native in _COMPLEX.values() or native.name in _SMALL_FLOATS:
        return DataType(native, iso)
    raise ArrayError(Problem(path, f"Binsparse has no data type for the numpy dtype {dtype}; convert with astype()"))


def is_masked_array(items: object) -> TypeGuard[np.ma.MaskedArray[Any, Any]]:
    """Return True for a numpy masked array. Other types are decided without importing numpy.ma, which takes 15 ms."""
    return type(items) is not np.ndarray and isinstance(items, np.ndarray) and isinstance(items, np.ma.MaskedArray)


def sound_booleans(array: Array) -> Array:
    """The array with a byte of 1 for every true boolean. It is not copied if all bytes are 0 or 1.

    A boolean array that is a view of bytes may contain any byte.
    """
    if array.dtype.kind != "b":
        return array
    as_bytes = array.view(np.uint8)
    return as_bytes != 0 if as_bytes.max(initial=0) > 1 else array


def decode(stored: Array, data_type: DataType, path: str) -> Array:
    """The numpy array of a stored array: complex numbers, booleans, unpacked integers.

    An iso array has one value, 0 if none is stored. Raises ArrayError if the array contradicts its type.
    """
    if data_type.wrapper:
        return BitPacked(stored, data_type.wrapper, data_type.dtype, path)[:]
    if data_type.dtype.kind == "b" and stored.size and stored.max() > 1:
        at = int(np.argmax(stored > 1))
        raise ArrayError(Problem(f"{path}[{at}]", f"a bint8 is 0 or 1, got {stored[at]}"))
    native = np.ascontiguousarray(stored, data_type.stored)
    values = native.view(data_type.dtype)
    return np.zeros(1, data_type.dtype) if data_type.iso and not values.size else values


def encode(values: Array, data_type: DataType) -> Array:
    """The stored form of an array; the inverse of `decode`."""
    if data_type.wrapper:
        return bitpack(values.astype(data_type.dtype, copy=False), data_type.wrapper)
    items = values[:1] if data_type.iso else values
    return np.ascontiguousarray(items).astype(data_type.dtype, copy=False).view(data_type.stored)
