"""From the header and the arrays of a container to a tensor: strictly, or leniently with a list of repairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..arrays import Array, LazyArray, Sliceable, cut, lazy
from ..containers import checksums
from ..containers.base import ArrayInfo, Reader
from ..engine.emission import Duplicates
from ..engine.tree import count_positions, length_problems, value_problems
from ..errors import ArrayError, Problem, raise_if
from ..formats.bitpacked import BitPacked
from ..formats.descriptor import parse_descriptor
from ..formats.dtypes import INTEGERS, DataType, decode
from ..formats.format import NO_EMPTY_FIBERS, has_empty_fibers
from ..limits import Limits
from ..tensors import labels
from ..tensors.backing import Check
from ..tensors.labels import Labels, parse_labels
from ..tensors.tensor import Tensor
from .file_tensors import FileTensor, loaded_tensor

_CHECKED_ITEMS = 2**20  # that are read together for a checksum


class Loading:
    """A descriptor and the metadata of its arrays, compared with each other before any array is read."""

    def __init__(self, reader: Reader, limits: Limits, lenient: bool) -> None:
        self.reader = reader
        self._limits = limits
        self._lenient = lenient
        header, self._sums = checksums.unsealed(reader.read_header())
        self.sealed = bool(self._sums)
        self.descriptor = parse_descriptor(header, limits, lenient=lenient)
        self.labels: Labels | None = None
        if labels.KEY in self.descriptor.extra:
            shape = (self.descriptor.map or self.descriptor).shape
            self.labels = parse_labels(self.descriptor.extra[labels.KEY], shape, self._label_array)
        self.repairs = list(self.descriptor.repairs)
        self._types = dict(self.descriptor.data_types)  # of the arrays, by name
        self.infos: dict[str, Sliceable] = {}  # used for their metadata only
        self._stored_arrays: dict[str, LazyArray] = {}  # of the container
        self._count: int | None = None  # of positions of the last level, if metadata determine it
        self._compare()

    # Metadata

    def _label_array(self, name: str, dtype: np.dtype[Any]) -> LazyArray:
        """An array of labels. Raises ArrayError if it is missing, or of another type."""
        array = self.reader.array(name)
        if array is None or len(array.shape) != 1 or array.dtype.newbyteorder("=") != dtype:
            there = "nothing" if array is None else f"{array.dtype} of shape {array.shape}"
            raise ArrayError(Problem(name, f"expected {dtype} of one dimension, got {there}"))
        return self._stored(name, array, dtype)

    def _compare(self) -> None:
        """Raise ArrayError for missing arrays, and for ranks, types and lengths that differ from the descriptor."""
        descriptor, problems = self.descriptor, list[Problem]()
        for name, data_type in descriptor.data_types.items():
            array = self.reader.array(name)
            if array is None and self._lenient:  # some programs omit empty arrays; the lengths are checked later
                array = cut(np.empty(0, data_type.stored), 0, 0)
                self.repairs.append(f"{name}: missing, taken as empty")
            if array is None or len(array.shape) != 1 or array.dtype.newbyteorder("=") != data_type.stored:
                problems += self._problems(name, data_type, array)
            if array is not None:
                self.infos[name] = self._stored_arrays[name] = array
                if self._lenient and not problems:
                    self._repair(name, array)
        fill, values = descriptor.data_types.get("fill_value"), descriptor.data_types["values"]
        if fill is not None and fill.dtype != values.dtype:
            what = f"expected {DataType(values.dtype)} like the values, got {fill}"
            if self._lenient:
                self.repairs.append(f"fill_value: {what}")
            else:
                problems.append(Problem("fill_value", what))
        raise_if(ArrayError, problems)
        for name in self._stored_arrays:
            if descriptor.data_types[name].wrapper:
                self._unpack_metadata(name)
        count = descriptor.number_of_stored_values
        wrong, self._count = length_problems(descriptor.format.levels, descriptor.dims, self.infos, count)
        raise_if(ArrayError, wrong or list(self._value_length_problems(count)))

    def _problems(self, name: str, data_type: DataType, array: LazyArray | None) -> Iterator[Problem]:
        """The problems of an array that differs from its declaration. Lenient reading repairs some of them."""
        if array is None:
            yield Problem(name, "missing")
        elif len(array.shape) != 1:
            yield Problem(name, f"expected one dimension, got shape {array.shape}")
        elif not _is_convertible(array.dtype, data_type):
            yield Problem(name, f"declared {data_type}, stored as {array.dtype}")
        elif not self._lenient:
            what = f"declared {data_type}, stored as {array.dtype}; read(…, lenient=True) converts it"
            yield Problem(name, what)

    def _repair(self, name: str, array: LazyArray) -> None:
        """Take an array as it is stored. A read raises ArrayError if the declared type does not represent its items."""
        data_type, stored = self._types[name], array.dtype.newbyteorder("=")
        declared, dtype = data_type.stored, data_type.dtype

        def check(items: Array) -> Array:
            with np.errstate(all="ignore"):
                there = items.astype(declared)
                nan = (items != items) & (there != there)
                lossless = bool(np.all((there.astype(items.dtype) == items) | nan))
            if not lossless:
                raise ArrayError(Problem(name, f"{stored} values do not fit the declared {declared}"))
            return items

        if stored != declared:
            self.repairs.append(f"{name}: declared {declared}, stored as {stored}")
            if dtype.kind != "b":
                self._stored_arrays[name], dtype = array.mapped(check), stored
        iso = data_type.iso and array.shape[0] <= data_type.parts
        if iso != data_type.iso:
            self.repairs.append("values: declared iso, with a value for each entry")
        self._types[name] = DataType(dtype, iso, data_type.wrapper)

    def _unpack_metadata(self, name: str) -> None:
        """Replace the metadata of a bit-packed array by those of its numbers."""
        data_type = self.descriptor.data_types[name]
        words = self._stored(name, self._stored_arrays[name], data_type.stored)
        packed = BitPacked(words, str(data_type.wrapper), data_type.dtype, name)
        self._limits.hold("array_bytes", len(packed) * packed.dtype.itemsize, name, "the size in bytes, unpacked,")
        self.infos[name] = packed

    def _value_length_problems(self, count: int | None) -> Iterator[Problem]:
        for name in ("values", "fill_value"):
            if name not in self.infos:
                continue
            data_type, (stored,) = self._types[name], self.infos[name].shape
            parts, iso = data_type.parts, data_type.iso and name == "values"
            if stored % parts:
                yield Problem(name, f"expected {parts} numbers a value of {data_type}, got {stored}")
                continue
            expected = 1 if iso or name == "fill_value" else count
            empty = iso and count == 0 and not stored
            if expected is not None and stored != expected * parts and not empty:
                yield Problem(name, f"expected a length of {expected * parts} for {data_type}, got {stored}")

    def described(self) -> dict[str, ArrayInfo]:
        """The metadata of the arrays, with their stored sizes in the container."""
        sizes = {name: array.nbytes for name, array in self._stored_arrays.items()}
        return {name: ArrayInfo(x.shape, x.dtype, sizes.get(name, 0)) for name, x in self.infos.items()}

    # The tensor

    def tensor(self, check: Check, duplicates: Duplicates = "error") -> Tensor:
        """Read, decode and check every array.

        duplicates: the treatment of duplicate entries by lenient reading. Raises ArrayError for invalid arrays.
        """
        if check == "none":
            self._sums.clear()
        return loaded_tensor(self.source(), self._limits, duplicates, check)

    def source(self) -> FileTensor:
        """The content of the file: arrays read on demand. One value for all entries is read immediately.

        Raises ArrayError.
        """
        known, count = self.descriptor, self._count
        arrays: dict[str, Any] = {x: self._array(x) for x in known.data_types if x != "fill_value"}
        values, iso = arrays.pop("values"), self._types["values"].iso
        if count is None:
            count = count_positions(known.format.levels, known.dims, arrays, None)
        for number in (None if self._lenient else known.number_of_stored_values, None if iso else len(values)):
            if number not in (None, count):
                raise ArrayError(value_problems(count, number))
        if iso:
            values = (values[:1] if len(values) else np.zeros(1, values.dtype)).reshape(())
        own = dict(known.attributes)
        own.pop("number_of_diagonal_elements", None)  # counted again when the tensor is written
        return FileTensor(
            known.format, known.shape, arrays, values, known.user, {}, self.labels, self.fill_value(), known.structure,
            known.map, "", not self._lenient, own, count, self.repairs,
        )  # fmt: skip

    def fill_value(self) -> Any:
        """The fill value in its stored type, or None."""
        if not self.descriptor.fill:
            return None
        return self._array("fill_value")[:][0]

    # Arrays

    def _stored(self, name: str, array: LazyArray, dtype: np.dtype[Any]) -> LazyArray:
        """An array in native byte order. A read of the whole array is compared with its checksum."""
        if array.dtype != dtype:
            array = array.mapped(lambda x: x.astype(dtype), dtype)
        return _sealed(name, array, self._sums) if self._sums else array

    def _array(self, name: str) -> LazyArray:
        """A decoded array, with the additional checks of its predefined format."""
        data_type, decoded = self._types[name], self.infos[name]
        if not isinstance(decoded, BitPacked):
            decoded = self._stored(name, self._stored_arrays[name], data_type.stored)
            if data_type.stored != data_type.dtype:
                decoded = decoded.mapped(lambda x: self._decoded(name, x), data_type.dtype, data_type.parts)
        if name == "pointers_to_1" and self.descriptor.name in NO_EMPTY_FIBERS:
            return self._without_empty_fibers(decoded)
        return decoded

    def _decoded(self, name: str, items: Array) -> Array:
        """The items in the type of the tensor."""
        if self._lenient and self._types[name].dtype.kind == "b" and items.max(initial=0) > 1:
            self.repairs.append(f"{name}: bint8 other than 0 and 1, taken as true")
            items = (items != 0).astype(np.uint8)
        return decode(items, self._types[name], name)

    def _without_empty_fibers(self, pointers: LazyArray) -> LazyArray:
        """Pointers, each read and compared with the next, which must be larger."""

        def read(start: int, stop: int) -> Array:
            part = pointers.part(start, min(stop + 1, len(pointers)))
            if has_empty_fibers(part):
                problem = Problem("pointers_to_1", f"{self.descriptor.name} has no fibers without an entry")
                if not self._lenient:
                    raise ArrayError(problem)
                self.repairs.append(str(problem))
            return part[: stop - start]

        return lazy(len(pointers), pointers.dtype, read, verify=pointers.verify, chunk=pointers.chunk)


def _sealed(name: str, array: LazyArray, sums: dict[str, int]) -> LazyArray:
    """The same array. A read of the whole array is compared with its checksum."""
    length = len(array)

    def part(start: int, stop: int) -> Array:
        items = array.part(start, stop)
        if stop - start == length:
            checksums.check_array(name, [items], sums)
        return items

    def verify() -> None:
        pieces = (array[start : start + _CHECKED_ITEMS] for start in range(0, max(length, 1), _CHECKED_ITEMS))
        checksums.check_array(name, pieces, sums)

    return lazy(length, array.dtype, part, at=array.at, verify=verify, chunk=array.chunk)


def _is_convertible(stored: np.dtype[Any], declared: DataType) -> bool:
    """Return True if lenient reading converts arrays of a stored type to the declared one."""
    if declared.wrapper:
        return False
    if declared.dtype.kind == "b":
        return stored.kind == "b" or stored.name in ("int8", "uint8")
    return stored.name in (*INTEGERS, "float32", "float64") and declared.dtype.kind != "c"
