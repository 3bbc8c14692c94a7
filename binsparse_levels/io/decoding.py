"""From the header and the arrays of a container to a tensor: strictly, or leniently with a list of repairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array, LazyArray, Parts, Sliceable, lazy, repeated
from ..containers import checksums
from ..containers.base import ArrayInfo, Reader
from ..engine.emission import Duplicates
from ..engine.tree import Tree, count_positions, length_problems, value_problems
from ..errors import ArrayError, FormatError, Problem, raise_if
from ..formats.bitpacked import BitPacked
from ..formats.descriptor import Descriptor, parse_descriptor
from ..formats.dtypes import INTEGERS, DataType, decode, sound_booleans
from ..formats.format import NO_EMPTY_FIBERS, Format, FormatLike, has_empty_fibers
from ..formats.index_map import IndexMap
from ..formats.structure import structure_problems
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors import labels
from ..tensors.encoding import Metadata
from ..tensors.held import Check, Stored
from ..tensors.labels import Labels, parse_labels
from ..tensors.packing import sorted_tensor
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_fill, checked_format
from ..tensors.views import Mapped

_AT_ONCE = 2**20  # items of which the checksum is computed at once


class FileTensor(NamedTuple):
    """A tensor in an open file of another system, with lazy arrays by stored name.

    Values without a dimension are one value for all entries. names: of the arrays in the file, for errors. labels:
    read when they are asked for. map: from the tensor to the stored one, which has the shape.
    """

    format: FormatLike
    shape: tuple[int, ...]
    arrays: Mapping[str, Any]
    values: Any
    attributes: Mapping[str, Any] = {}
    names: Mapping[str, str] = {}
    labels: Labels | None = None
    fill_value: Any = None
    structure: str | None = None
    map: IndexMap | None = None


def lazy_tensor(source: FileTensor, keep: object = None, limits: Limits = DEFAULT_LIMITS) -> Tensor:
    """The tensor, whose arrays are read where they are sliced. keep: an object that lives as long as its arrays.

    Raises ArrayError for lengths that do not fit, FormatError.
    """
    format, shape = checked_format(source.format, source.shape, limits)
    arrays: dict[str, Any] = {
        name: lazy(len(x), x.dtype, partial(_items, x), keep=keep) for name, x in source.arrays.items()
    }
    values, iso = source.values, not source.values.shape
    if iso:
        values = np.asarray(values).reshape(1)
    values = lazy(len(values), values.dtype, partial(_values, values), keep=keep)
    labels = None if source.labels is None else source.labels.around(partial(_Kept, keep=keep))
    fill = checked_fill(source.fill_value, values.dtype)
    if source.structure is not None:
        raise_if(FormatError, structure_problems(source.structure, shape, values.dtype))
    metadata = Metadata(fill, attributes=dict(source.attributes), labels=labels)
    dims = tuple(shape[k] for k in format.order)
    count = count_positions(format.levels, dims, arrays, None if iso else len(values))
    place = (limits, source.structure, source.map)
    return _lazy_tensor(format, dims, count, arrays, values, iso, metadata, *place)


def _lazy_tensor(
    format: Format,
    dims: tuple[int, ...],
    count: int,
    arrays: Mapping[str, Any],
    values: LazyArray,
    iso: bool,
    metadata: Metadata,
    limits: Limits,
    structure: str | None = None,
    map: IndexMap | None = None,
) -> Tensor:
    """A tensor around lazy arrays. count: of positions of the last level. values: as they are stored, of an iso tensor
    one value.
    """
    held: Any = repeated(values, count) if iso else values
    tree = Tree(format.levels, dims, dict(arrays), held, iso, True)
    stored = Stored(format, tree, limits, structure)
    return Tensor._of(stored if map is None else Mapped(stored, map), metadata)


class _Kept(LazyArray):
    """An array in an open file, and an object that lives as long as this.

    The array itself must not refer to the object, or the file would keep itself open.
    """

    def __init__(self, array: Any, keep: object) -> None:
        self._array, self._keep = array, keep
        super().__init__(0, array.dtype, lambda: int(array.nbytes))

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._array.shape
        return shape

    @shape.setter
    def shape(self, shape: tuple[int, ...]) -> None:
        """It is that of the array, which may be known only when the array is read."""

    def part(self, start: int, stop: int) -> Array:
        items: Array = self._array[start:stop]
        return items

    def close(self) -> None:
        self._array.close()  # which what was read outlives
        self._closed = self._array._closed


def described(source: FileTensor) -> tuple[Descriptor, dict[str, ArrayInfo]]:
    """The descriptor that Binsparse would have for the tensor, and the metadata of its arrays. No array is read."""
    tensor, beside = lazy_tensor(source), {} if source.labels is None else {labels.KEY: source.labels.header()}
    stored = {**source.arrays, "values": source.values}
    types = {name: DataType(x.dtype) for name, x in stored.items()}
    types["values"] = DataType(source.values.dtype, not source.values.shape)
    infos = {
        name: ArrayInfo((math.prod(x.shape) * types[name].parts,), types[name].stored, x.nbytes)
        for name, x in stored.items()
    }
    if source.fill_value is not None:
        types["fill_value"] = DataType(source.values.dtype)
    metadata = Descriptor(tensor.format, source.shape, len(tensor._source.values), types, user=dict(source.attributes))
    return replace(metadata, structure=source.structure, map=source.map, beside=beside), infos


def _items(stored: Sliceable, start: int, stop: int) -> Array:
    return stored[start:stop]


def _values(stored: Sliceable, start: int, stop: int) -> Array:
    return sound_booleans(stored[start:stop])


class Keep:
    """What all arrays of a file refer to, so that the file is closed after the last of them.

    known: what metadata tell of the tensor.
    """

    def __init__(self, known: object) -> None:
        self.known = known


class Loading:
    """A descriptor and the metadata of its arrays, compared with each other before any array is read.

    unreplaced: raises an error if another folder has replaced that of the arrays.
    """

    def __init__(
        self, reader: Reader, limits: Limits, lenient: bool, unreplaced: Callable[[], None] | None = None
    ) -> None:
        self._reader = reader
        self._limits = limits
        self._lenient = lenient
        self._unreplaced = unreplaced
        header, self._sums = checksums.unsealed(reader.read_header())
        self.sealed = bool(self._sums)
        self.descriptor = parse_descriptor(header, limits, lenient=lenient)
        self.keep = Keep(self.descriptor)
        self.labels = self._parse_labels() if labels.KEY in self.descriptor.beside else None
        self.repairs = list(self.descriptor.repairs)
        self.infos: dict[str, Sliceable] = {}  # only the metadata counts
        self._held: dict[str, LazyArray] = {}  # by the container
        self._packed: dict[str, tuple[LazyArray, BitPacked]] = {}  # the words, and the numbers in them
        self._count: int | None = None  # of positions of the last level, as far as metadata tells it
        self._compare()

    def _parse_labels(self) -> Labels:
        """The labels beside the tensor, which are read when they are asked for. Raises DescriptorError, ArrayError."""
        shape = (self.descriptor.map or self.descriptor).shape
        return parse_labels(self.descriptor.beside[labels.KEY], shape, self._beside)

    def _beside(self, name: str, dtype: np.dtype[Any]) -> LazyArray:
        """An array beside those of the tensor. Raises ArrayError where it is missing, or of another type."""
        held = self._reader.array(name)
        if held is None or len(held.shape) != 1 or held.dtype.newbyteorder("=") != dtype:
            there = "nothing" if held is None else f"{held.dtype} of shape {held.shape}"
            raise ArrayError(Problem(name, f"expected {dtype} of one dimension, got {there}"))
        return self._as_stored(name, held, dtype)

    def _compare(self) -> None:
        """Raise ArrayError for missing arrays, and for ranks, types and lengths that differ from the descriptor."""
        descriptor = self.descriptor
        problems = []
        for name, data_type in descriptor.data_types.items():
            info = self._reader.array(name)
            if info is None and self._lenient:  # some programs leave out arrays of length 0; the lengths will tell
                self.infos[name] = np.empty(0, data_type.stored)
                self.repairs.append(f"{name}: missing, taken as empty")
                continue
            if info is None:
                problems.append(Problem(name, "missing"))
                continue
            self.infos[name] = self._held[name] = info
            if len(info.shape) != 1:
                problems.append(Problem(name, f"expected one dimension, got shape {info.shape}"))
            elif info.dtype.newbyteorder("=") != data_type.stored and not (
                self._lenient and _may_stand_for(info.dtype, data_type)
            ):
                problems.append(Problem(name, f"declared {data_type}, stored as {info.dtype}"))
        fill, values = descriptor.data_types.get("fill_value"), descriptor.data_types["values"]
        if fill and fill.dtype != values.dtype:
            what = f"expected {DataType(values.dtype)} like the values, got {fill}"
            if self._lenient:
                self.repairs.append(f"fill_value: {what}")
            else:
                problems.append(Problem("fill_value", what))
        if problems:
            raise ArrayError(problems)
        for name in self._held:
            if descriptor.data_types[name].wrapper:
                self._look_into(name)
        count = descriptor.number_of_stored_values
        wrong, self._count = length_problems(descriptor.format.levels, descriptor.dims, self.infos, count)
        if problems := wrong or self._value_length_problems(count):
            raise ArrayError(problems)

    def _look_into(self, name: str) -> None:
        """Replace the metadata of a bit-packed array by those of the numbers in it."""
        data_type = self.descriptor.data_types[name]
        words = self._as_stored(name, self._held[name], data_type.stored)
        packed = BitPacked(words, str(data_type.wrapper), data_type.dtype, name)
        self._packed[name] = words, packed
        self._limits.hold("array_bytes", len(packed) * packed.dtype.itemsize, name, "the size in bytes, unpacked,")
        self.infos[name] = packed

    def described(self) -> dict[str, ArrayInfo]:
        """The metadata of the arrays, with the bytes that they take in the container."""
        sizes = {name: array.nbytes for name, array in self._held.items()}
        return {name: ArrayInfo(x.shape, x.dtype, sizes.get(name, 0)) for name, x in self.infos.items()}

    def _value_length_problems(self, count: int | None) -> list[Problem]:
        problems = []
        for name in ("values", "fill_value"):
            if name not in self.infos:
                continue
            data_type, (stored,) = self.descriptor.data_types[name], self.infos[name].shape
            parts, iso = data_type.parts, data_type.iso and name == "values"
            if stored % parts:
                problems.append(Problem(name, f"expected {parts} numbers a value of {data_type}, got {stored}"))
                continue
            wanted = 1 if iso or name == "fill_value" else count
            empty = iso and count == 0 and not stored
            spelled_out = iso and self._lenient and count is not None and stored == count * parts
            if wanted is not None and stored != wanted * parts and not empty and not spelled_out:
                what = f"expected a length of {wanted * parts} for {data_type}, got {stored}"
                problems.append(Problem(name, what))
        return problems

    def tensor(self, check: Check, duplicates: Duplicates = "error") -> Tensor:
        """Read, decode and check every array.

        duplicates: what lenient reading does with duplicate entries. Raises ArrayError for invalid arrays.
        """
        if check == "none":
            self._sums = {}
        if self._lenient:
            return self._repaired(check, duplicates)
        tensor = self.lazy_tensor()
        tensor._held.stored.load(check)
        return tensor if self.labels is None else tensor._labelled(self.labels.loaded())

    def lazy_tensor(self) -> Tensor:
        """As `tensor`, of arrays that are read where they are sliced."""
        descriptor = self.descriptor
        arrays: dict[str, Any] = {name: self._array(name) for name in descriptor.data_types if name != "fill_value"}
        values, iso = arrays.pop("values"), descriptor.data_types["values"].iso
        if descriptor.structure is not None:
            problems = structure_problems(descriptor.structure, descriptor.shape, values.dtype)
            raise_if(FormatError, list(problems))
        metadata = Metadata(self.fill_value(), descriptor.user, self._attributes(), self.labels)
        format, dims, told = descriptor.format, descriptor.dims, descriptor.number_of_stored_values
        count = self._count
        if count is None:
            count = count_positions(format.levels, dims, arrays, None if iso else len(values))
        for number in (told, None if iso else len(values)):
            if number not in (None, count):
                raise ArrayError(value_problems(count, number))
        place = (self._limits, descriptor.structure, descriptor.map)
        return _lazy_tensor(format, dims, count, arrays, values, iso, metadata, *place)

    def _repaired(self, check: Check, duplicates: Duplicates) -> Tensor:
        """`tensor`, with the deviations that lenient reading repairs."""
        descriptor = self.descriptor
        arrays = {
            name: self._decode(name, self._read(name), data_type)
            for name, data_type in descriptor.data_types.items()
            if name not in ("values", "fill_value")
        }
        raw, data_type = self._read("values"), descriptor.data_types["values"]
        if data_type.iso and len(raw) > data_type.parts:
            self.repairs.append("values: declared iso, with a value for each entry")
            data_type = DataType(data_type.dtype)
        values = self._decode("values", raw, data_type)
        values = values[0] if data_type.iso else values
        options: dict[str, Any] = {
            "fill_value": self.fill_value(),
            "structure": descriptor.structure,
            "attributes": descriptor.user,
            "descriptor_attributes": self._attributes(),
            "limits": self._limits,
        }
        place = (descriptor.format, descriptor.shape)
        try:
            tensor = Tensor._owning(*place, arrays, values, check=check, **options)
        except ArrayError:
            tensor = sorted_tensor(*place, arrays, values, duplicates=duplicates, **options)
            how = "sorted" if duplicates == "error" else f"sorted, of duplicates the {duplicates}"
            self.repairs.append(f"entries: not in order, {how}")
        if descriptor.name in NO_EMPTY_FIBERS:
            self.repairs += map(str, self._empty_fiber_problems(tensor.arrays["pointers_to_1"]))
        seen = descriptor.map
        mapped = tensor if seen is None else Tensor._of(Mapped(tensor._held, seen), tensor._metadata)
        return mapped if self.labels is None else mapped._labelled(self.labels.loaded())

    def _attributes(self) -> dict[str, Any]:
        """Those inside the descriptor, but for what is counted anew when the tensor is written."""
        attributes = dict(self.descriptor.attributes)
        attributes.pop("number_of_diagonal_elements", None)
        return attributes

    def _empty_fiber_problems(self, pointers: Array) -> Iterator[Problem]:
        if self.descriptor.name in NO_EMPTY_FIBERS and has_empty_fibers(pointers):
            yield Problem("pointers_to_1", f"{self.descriptor.name} has no fibers without an entry")

    def _as_stored(self, name: str, held: LazyArray, dtype: np.dtype[Any]) -> LazyArray:
        """An array in this machine's byte order. A whole array is compared with its checksum.

        Where nothing is to be changed or compared, it is the array of the container.
        """
        held.keep = self.keep
        if self._unreplaced is None and held.dtype == dtype and not self._sums:
            return held
        length, sums, verify = len(held), self._sums, None
        part, at = held.part, held.at
        if self._unreplaced is not None:
            part, at = (_before(self._unreplaced, read) for read in (part, at))
        if held.dtype != dtype:
            part, at = (_cast(dtype, read) for read in (part, at))
        if sums:
            changed, limits = lazy(length, dtype, part, fill=held.fill if part is held.part else None), self._limits

            def part(start: int, stop: int) -> Array:
                if stop - start < length:
                    return changed.part(start, stop)
                limits.hold("array_bytes", length * dtype.itemsize, name, "the size in bytes")
                return changed.whole(lambda pieces: checksums.check_array(name, pieces, sums))

            def verify() -> None:
                pieces = (held[start : start + _AT_ONCE] for start in range(0, max(length, 1), _AT_ONCE))
                checksums.check_array(name, pieces, sums)

        return lazy(length, dtype, part, at=at, verify=verify, chunk=held.chunk, keep=self.keep)

    def _array(self, name: str) -> LazyArray:
        """An array, decoded, under the checks of a predefined format where it has its own."""
        data_type = self.descriptor.data_types[name]
        first = name == "pointers_to_1" and self.descriptor.name in NO_EMPTY_FIBERS
        dtype, stored_dtype = data_type.dtype, data_type.stored
        stored, packed = self._packed.get(name) or (self._as_stored(name, self._held[name], stored_dtype), None)
        if stored_dtype == dtype and not first and packed is None:
            return stored
        parts = data_type.parts
        length = self.infos[name].shape[0] // parts
        part: Parts = stored.part
        at: Callable[[Array], Array] | None = stored.at
        if packed is not None:
            part, at = packed.part, packed.at
            if self._sums:  # only a whole array can be compared with its checksum

                def part(start: int, stop: int) -> Array:
                    whole = stop - start == length
                    return decode(stored[:], data_type, name) if whole else packed.part(start, stop)

        elif stored_dtype != dtype:

            def part(start: int, stop: int) -> Array:
                return decode(stored.part(start * parts, stop * parts), data_type, name)

            def at(positions: Array) -> Array:
                places = np.stack([positions * parts + k for k in range(parts)], 1).reshape(-1)
                return decode(stored.at(places), data_type, name)

        if first:
            part, at = self._without_empty_fibers(part, length), None
        chunk = max(stored.chunk // parts, 1)
        return lazy(length, dtype, part, at=at, verify=stored.verify, chunk=chunk, keep=self.keep)

    def _without_empty_fibers(self, part: Parts, length: int) -> Parts:
        """Parts of pointers of which each is read with the next, which is larger."""

        def read(start: int, stop: int) -> Array:
            pointers = part(start, min(stop + 1, length))
            raise_if(ArrayError, self._empty_fiber_problems(pointers))
            return pointers[: stop - start]

        return read

    def fill_value(self) -> Any:
        """The fill value in its stored type, or None."""
        data_type = self.descriptor.data_types["fill_value"] if self.descriptor.fill else None
        if data_type is None:
            return None
        if not self._lenient:
            return self._array("fill_value")[:][0]
        return self._decode("fill_value", self._read("fill_value"), data_type)[0]

    def _read(self, name: str) -> Array:
        if name not in self._held:
            return np.empty(0, self.infos[name].dtype)
        array = self._held[name][:]
        checksums.check_array(name, [array], self._sums)
        wanted = self.descriptor.data_types[name].stored
        if array.dtype.newbyteorder("=") != wanted:
            with np.errstate(all="ignore"):
                there = array.astype(wanted)
                nan = (array != array) & (there != there)
                lossless = bool(np.all((there.astype(array.dtype) == array) | nan))
            if not lossless:
                raise ArrayError(Problem(name, f"{array.dtype} holds what the declared {wanted} cannot"))
            self.repairs.append(f"{name}: declared {wanted}, stored as {array.dtype}")
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def _decode(self, name: str, stored: Array, data_type: DataType) -> Array:
        if data_type.dtype.kind == "b" and self._lenient and stored.dtype.kind != "b" and (stored > 1).any():
            self.repairs.append(f"{name}: bint8 other than 0 and 1, taken as true")
            stored = (stored != 0).astype(np.uint8)
        if data_type.dtype.kind not in "bc" and not data_type.wrapper and stored.dtype != data_type.dtype:
            data_type = DataType(stored.dtype, data_type.iso)
        return decode(stored, data_type, name)


def _before(check: Callable[[], None], read: Callable[..., Array]) -> Callable[..., Array]:
    """What reads an array, followed by a check of the place that it was read from."""

    def checked(*where: Any) -> Array:
        try:
            return read(*where)
        finally:
            check()

    return checked


def _cast(dtype: np.dtype[Any], read: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *where: read(*where).astype(dtype, copy=False)


def _may_stand_for(stored: np.dtype[Any], declared: DataType) -> bool:
    """Whether lenient reading converts arrays of a stored type to the declared one."""
    if declared.wrapper:
        return False
    if declared.dtype.kind == "b":
        return stored.kind == "b" or stored.name in ("int8", "uint8")
    return stored.name in (*INTEGERS, "float32", "float64") and declared.dtype.kind != "c"
