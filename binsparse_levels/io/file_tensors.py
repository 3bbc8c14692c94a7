"""The content of files as tensors, opened or in memory: strictly, or leniently with a list of repairs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

from ..arrays import Array, LazyArray, Sliceable, cut, lazy, repeat_one
from ..containers import checksums
from ..containers.base import ArrayInfo, Reader
from ..engine.tree import Duplicates, Tree, count_positions, length_problems, value_problems
from ..errors import ArrayError, BinsparseError, FormatError, Problem, raise_if, warn
from ..formats.bitpacked import BitPacked
from ..formats.descriptor import parse_descriptor
from ..formats.dictionary import CODES, MOST_ENTRIES, Dictionary, checked_table, in_memory
from ..formats.dtypes import INTEGERS, DataType, decode, sound_booleans
from ..formats.extensions import PARTS
from ..formats.format import NO_EMPTY_FIBERS
from ..formats.structure import structure_problems
from ..levels.pointers import has_empty_fibers
from ..limits import INT64_MAX, Limits
from ..tensors.backing import Check, TreeBacking
from ..tensors.inside import Metadata
from ..tensors.labels import KEY, Labels, parse_labels
from ..tensors.packing import in_order
from ..tensors.tensor import Tensor, inside, remade, tensor_of
from ..tensors.validation import checked_fill, checked_format
from ..tensors.views import Mapped
from ..thresholds import THRESHOLDS
from .interface import FileTensor as FileTensor

Compression: TypeAlias = Literal["CSR", "CSC"]


def compressed(
    format: Compression,
    shape: tuple[int, int],
    arrays: Mapping[str, Sliceable],
    labels: Labels | None = None,
    *,
    cells: int = 1,
    **more: Any,
) -> FileTensor:
    """A matrix in a file. Only the number and the ends of its pointers are checked.

    arrays: its pointers, indices and values by their names in the file. Those that are too long are cut. labels: the
    names of its rows and columns. cells: the number of values for each index. more: fields of FileTensor. Raises
    ArrayError.
    """
    names = dict(zip(("pointers_to_1", "indices_1", "values"), arrays, strict=True))
    pointers, indices, values = arrays.values()
    fibers = shape[format == "CSC"]
    if fibers == 0 and len(pointers) == 2 and not pointers[:].any():  # BPCells writes two pointers for zero fibers
        pointers = cut(pointers, 0, 1)
    if len(pointers) != fibers + 1:
        what = f"expected a length of {fibers + 1} for shape {shape[0]} × {shape[1]}, got {len(pointers)}"
        raise ArrayError(Problem(names["pointers_to_1"], what))
    first, last = (int(pointers[at : at + 1][0]) for at in (0, fibers))
    if first != 0 or not 0 <= last <= INT64_MAX:
        raise ArrayError(Problem(names["pointers_to_1"], f"goes from {first} to {last}, expected 0 and more"))

    def beginning(array: Sliceable, name: str, count: int) -> Sliceable:
        if len(array) < count:
            raise ArrayError(Problem(name, f"expected a length of {count}, got {len(array)}"))
        return array if len(array) == count else cut(array, 0, count)

    stored = {"pointers_to_1": pointers, "indices_1": beginning(indices, names["indices_1"], last)}
    values = beginning(values, names["values"], last * cells)
    return FileTensor(format, shape, stored, values, {}, names, labels, **more)


@contextlib.contextmanager
def named(names: Mapping[str, str], label: str = "") -> Iterator[None]:
    """Prefix errors with the label, and use the names of arrays in the file."""
    try:
        yield
    except BinsparseError as error:
        problems = []
        for problem in error.problems:
            name, bracket, rest = problem.path.partition("[")
            path = ": ".join(filter(None, [label, names.get(name, name) + bracket + rest]))
            problems.append(Problem(path, problem.message))
        raise type(error)(problems) from None


def opened_tensor(source: FileTensor, limits: Limits) -> Tensor:
    """The tensor, with arrays that are read on demand. Raises ArrayError for lengths that do not fit, FormatError."""
    format, shape = checked_format(source.format, source.shape, limits)
    values, iso = source.values, not source.values.shape
    values = np.asarray(values).reshape(1) if iso else values
    if source.structure is not None:
        raise_if(FormatError, structure_problems(source.structure, shape, values.dtype))
    fill = checked_fill(source.fill_value, values.dtype)
    dims = tuple(shape[k] for k in format.order)
    count = source.positions
    if count is None:
        count = count_positions(format.levels, dims, source.arrays, None if iso else len(values))
    every: Any = lazy(count, values.dtype, lambda start, stop: repeat_one(values[:1], stop - start)) if iso else values
    if values.dtype.kind == "b" and not iso:
        every = values.mapped(sound_booleans) if isinstance(values, LazyArray) else sound_booleans(values)
    tree = Tree(format.levels, dims, dict(source.arrays), every, iso, True)
    stored = TreeBacking(format, tree, limits, source.structure)
    metadata = Metadata(fill, dict(source.attributes), dict(source.descriptor_attributes), source.labels)
    return tensor_of(stored if source.map is None else Mapped(stored, source.map), metadata)


def loaded_tensor(
    source: FileTensor, limits: Limits, duplicates: Duplicates = "error", check: Check = "full"
) -> Tensor:
    """The tensor in memory, in its stored format, decoded and checked.

    Unordered entries of a fiber are sorted, unless the file promises their order. Raises ContainerError, ArrayError,
    LimitError.
    """
    with named(source.names, source.label):
        arrays: dict[str, Any] = {}
        for name, array in {**source.arrays, "values": source.values}.items():
            if array.shape and (size := array.shape[0] * array.dtype.itemsize) > limits.array_bytes:
                limits.hold("array_bytes", size, name, "the size in bytes")
            arrays[name] = in_memory(array) if array.shape else array  # one value for all entries has no dimension
        whole = source._replace(values=arrays.pop("values"), arrays=arrays)
        tensor = opened_tensor(whole, limits)
        try:
            inside(tensor).backing.stored.load(check)
        except ArrayError as fault:
            if source.ordered:
                raise
            tensor = opened_tensor(whole, limits)
            inside(tensor).backing.stored.load("trusted")
            # If the tree is sound, a diagonal is at fault, which `write` refuses.
            is_sorted = not any(inside(tensor).backing.stored.tree.check())
            if not is_sorted:
                tensor = in_order(tensor, fault, duplicates, limits)
            if source.repairs is not None and not is_sorted:
                how = "sorted" if duplicates == "error" else f"sorted, of duplicates the {duplicates}"
                source.repairs.append(f"entries: not in order, {how}")
    if source.label and {"indices_0", "pointers_to_1"} <= arrays.keys() and has_empty_fibers(arrays["pointers_to_1"]):
        what = f"{source.label}: {source.names['pointers_to_1']}: a row or column without an entry is stored"
        warn(what)
    return tensor if source.labels is None else remade(tensor, labels=source.labels.loaded())


class Loading:
    """A descriptor and the metadata of its arrays, compared with each other before any array is read.

    check: "none" compares no checksums.
    """

    def __init__(self, reader: Reader, limits: Limits, lenient: bool = False, check: Check = "full") -> None:
        self.reader = reader
        self._limits = limits
        self._lenient = lenient
        stored = reader.read_header()
        header, self._sums = checksums.unsealed(stored)
        self.sealed = header is not stored
        if check == "none":
            self._sums = {}
        self.descriptor = parse_descriptor(header, limits, lenient=lenient)
        self.labels: Labels | None = None
        if KEY in self.descriptor.extra and PARTS not in self.descriptor.extra:
            shape = (self.descriptor.map or self.descriptor).shape
            self.labels = parse_labels(self.descriptor.extra[KEY], shape, self._label_array)
        self.repairs = list(self.descriptor.repairs)
        self._types = dict(self.descriptor.data_types)  # of the arrays, by name
        self.infos: dict[str, Sliceable] = {}  # used for their metadata only
        self._stored_arrays: dict[str, LazyArray] = {}  # of the container
        self._count: int | None = None  # of positions of the last level, if metadata determine it
        if PARTS not in self.descriptor.extra:  # arrays are in groups
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
            yield Problem(name, f"missing, but the format {self.descriptor.format} needs it")
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
        self._types[name] = replace(data_type, dtype=dtype, iso=iso)

    def _unpack_metadata(self, name: str) -> None:
        """Replace the metadata of a bit-packed array by those of its numbers."""
        data_type = self.descriptor.data_types[name]
        words = self._stored(name, self._stored_arrays[name], data_type.stored)
        packed = BitPacked(words, str(data_type.wrapper), data_type.dtype, name)
        self._limits.hold("array_bytes", len(packed) * packed.dtype.itemsize, name, "the size in bytes, unpacked,")
        self.infos[name] = packed

    def _value_length_problems(self, count: int | None) -> Iterator[Problem]:
        coded = self.descriptor.data_types["values"].dictionary
        for name in ("values", *([CODES] if coded else []), "fill_value"):
            if name not in self.infos:
                continue
            data_type, (stored,) = self._types[name], self.infos[name].shape
            parts, iso = data_type.parts, data_type.iso and name == "values"
            if stored % parts:
                yield Problem(name, f"expected {parts} numbers a value of {data_type}, got {stored}")
                continue
            if data_type.dictionary:
                if stored > MOST_ENTRIES * parts:
                    yield Problem(name, f"a dictionary has at most {MOST_ENTRIES} entries, got {stored // parts}")
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

    def source(self) -> FileTensor:
        """The content of the file: arrays read on demand. One value for all entries is read immediately.

        Raises ArrayError.
        """
        known, count = self.descriptor, self._count
        arrays: dict[str, Any] = {x: self._array(x) for x in known.data_types if x != "fill_value"}
        values, iso = arrays.pop("values"), self._types["values"].iso
        if known.data_types["values"].dictionary:
            values = Dictionary(checked_table(values[:]), arrays.pop(CODES))
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
        step = THRESHOLDS.verified_items
        pieces = (array[start : start + step] for start in range(0, max(length, 1), step))
        checksums.check_array(name, pieces, sums)

    return lazy(length, array.dtype, part, at=array.at, verify=verify, chunk=array.chunk)


def _is_convertible(stored: np.dtype[Any], declared: DataType) -> bool:
    """Return True if lenient reading converts arrays of a stored type to the declared one."""
    if declared.wrapper:
        return False
    if declared.dtype.kind == "b":
        return stored.kind == "b" or stored.name in ("int8", "uint8")
    return stored.name in (*INTEGERS, "float32", "float64") and declared.dtype.kind != "c"
