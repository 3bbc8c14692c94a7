"""The header and the arrays of a container → a tensor, strictly, or leniently with a list of repairs."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from ..arrays import Parts
from ..containers import checksums
from ..containers.base import ArrayInfo, Reader
from ..engine.emission import Duplicates
from ..engine.tree import Tree, count_positions, length_problems, repeat_one, value_problems
from ..errors import ArrayError, DescriptorError, FormatError, Problem, raise_if
from ..formats.bitpacked import BitPacked, Sliceable
from ..formats.descriptor import Descriptor, parse_descriptor
from ..formats.dtypes import INTEGERS, DataType, decode, sound_booleans
from ..formats.format import NO_EMPTY_FIBERS, FormatLike, has_empty_fibers
from ..formats.index_map import KEY, IndexMap, parse_header
from ..formats.structure import structure_problems
from ..levels import places
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.mapped import labelled
from ..tensors.tensor import Check, Tensor, pack
from ..tensors.validation import checked_format

_AT_ONCE = 2**20  # items that are compared with a seal at once
_GAP = 2**12  # bytes between two items that are read rather than left out


class Lazy:
    """An array that stays where it is: items at a slice, or at positions, are read when they are asked for, and none
    is kept. read(a, b): the items a … b, as numpy's native type. keep: what has to live as long as this. verify: what
    compares all of it with a seal, piece by piece, and raises ContainerError. stored: the bytes that it takes there,
    where they are known.
    """

    def __init__(
        self,
        length: int,
        dtype: np.dtype[Any],
        read: Parts,
        keep: object = None,
        verify: Callable[[], None] = lambda: None,
        *,
        stored: int | None = None,
    ) -> None:
        self.shape = (length,)
        self.dtype = dtype
        self.nbytes = length * dtype.itemsize if stored is None else stored
        self.verify = verify
        self._read = read
        self._keep = keep

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: slice | npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not isinstance(key, slice):
            return self._gather(key)
        start, stop, step = key.indices(len(self))
        return self._read(start, stop)[::step] if start < stop else np.empty(0, self.dtype)

    def _gather(self, positions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The items at positions; those that are close to each other are read at once, with what lies between them."""
        apart = np.diff(positions)
        if (apart < 0).any():
            ascending, places = np.unique(positions, return_inverse=True)
            return self._gather(ascending)[places]
        cuts = [0, *(np.flatnonzero(apart > _GAP // self.dtype.itemsize) + 1).tolist(), len(positions)]
        found = np.empty(len(positions), self.dtype)
        for begin, end in itertools.pairwise(cuts) if len(positions) else ():
            first = int(positions[begin])
            found[begin:end] = self._read(first, int(positions[end - 1]) + 1)[positions[begin:end] - first]
        return found


def repeated(one: Parts) -> Parts:
    """How to read an array of one value, which `one(0, 1)` reads, as often as it is asked for."""
    return lambda start, stop: repeat_one(one(0, 1), stop - start)


class Found(Protocol):
    """A tensor in another system's file, which is open: its arrays by stored name, and its user's JSON. Values without
    a dimension are one for all.
    """

    @property
    def format(self) -> FormatLike: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def arrays(self) -> Mapping[str, Sliceable]: ...
    @property
    def values(self) -> Any: ...
    @property
    def attributes(self) -> Mapping[str, Any]: ...


def lazy_tensor(found: Found, keep: object = None) -> Tensor:
    """The tensor, whose arrays are read where they are asked for. Raises ArrayError for lengths that do not fit,
    FormatError.
    """
    format, shape = checked_format(found.format, found.shape, DEFAULT_LIMITS)
    dims = tuple(shape[k] for k in format.order)
    held: Any = {name: Lazy(len(x), x.dtype, partial(_items, x), keep) for name, x in found.arrays.items()}
    values = found.values
    iso = not values.shape
    raise_if(ArrayError, length_problems(format.levels, dims, held, None if iso else len(values)))
    count = count_positions(places(format.levels, dims), held)
    if iso:
        stored = Lazy(count, values.dtype, repeated(lambda start, stop: np.asarray(values).reshape(1)))
    else:
        raise_if(ArrayError, value_problems(count, len(values)))
        stored = Lazy(count, values.dtype, partial(_values, values), keep)
    tree = Tree(format.levels, dims, held, cast(Any, stored), iso, True)
    return Tensor._trusted(format, shape, tree, None, None, dict(found.attributes), {})


def described(found: Found) -> tuple[Descriptor, dict[str, ArrayInfo]]:
    """The tensor as a descriptor of Binsparse would say it, with the metadata of its arrays, of which none is read."""
    tensor = lazy_tensor(found)
    stored = {**found.arrays, "values": found.values}
    types = {name: DataType(x.dtype) for name, x in stored.items()}
    types["values"] = DataType(found.values.dtype, not found.values.shape)
    infos = {}
    for name, x in stored.items():
        count = math.prod(x.shape) * types[name].parts
        infos[name] = ArrayInfo((count,), types[name].stored, getattr(x, "nbytes", count * types[name].stored.itemsize))
    count = len(tensor._source.values)
    return Descriptor(tensor.format, tensor.shape, count, types, user=dict(found.attributes)), infos


def _items(stored: Sliceable, start: int, stop: int) -> npt.NDArray[Any]:
    return stored[start:stop]


def _values(stored: Sliceable, start: int, stop: int) -> npt.NDArray[Any]:
    return sound_booleans(stored[start:stop])


class Loading:
    """A descriptor and the metadata of its arrays, compared with each other before any array is read."""

    def __init__(
        self, reader: Reader, limits: Limits, lenient: bool, unreplaced: Callable[[], None] = lambda: None
    ) -> None:
        self._reader = reader
        self._limits = limits
        self._lenient = lenient
        self._unreplaced = unreplaced
        header, self._sums = checksums.opened(reader.read_header())
        self.sealed = bool(self._sums)
        self.descriptor = parse_descriptor(header, limits, lenient=lenient)
        self.map = self._parse_map()
        self.repairs = list(self.descriptor.repairs)
        self.infos: dict[str, ArrayInfo] = {}
        self._left_out: set[str] = set()
        self.packed: dict[str, BitPacked] = {}
        self._words: dict[str, Lazy] = {}
        self._parts: dict[str, Parts] = {}
        self._compare()

    def _parse_map(self) -> IndexMap | None:
        """The map that stands beside the descriptor. Raises DescriptorError where it is not one of what is stored."""
        if KEY not in self.descriptor.user:
            return None
        if self.descriptor.structure is not None:
            raise DescriptorError(Problem(KEY, f"a matrix that is {self.descriptor.structure} has no map"))
        return parse_header(self.descriptor.user[KEY], self.descriptor.shape)

    def _compare(self) -> None:
        """Raise ArrayError for arrays that are missing, or of another rank, type or length than the descriptor says."""
        descriptor = self.descriptor
        problems = []
        for name, data_type in descriptor.data_types.items():
            info = self._reader.info(name)
            if info is None and self._lenient:  # some programs leave out arrays of length 0; the lengths will tell
                info = ArrayInfo((0,), data_type.stored, 0)
                self.repairs.append(f"{name}: missing, taken as empty")
                self._left_out.add(name)
            if info is None:
                problems.append(Problem(name, "missing"))
                continue
            self.infos[name] = info
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
        raise_if(ArrayError, problems)
        for name in self.infos:
            self._look_into(name)
        count = descriptor.number_of_stored_values
        raise_if(ArrayError, length_problems(descriptor.format.levels, descriptor.dims, self.infos, count))
        raise_if(ArrayError, self._value_length_problems(count))

    def _look_into(self, name: str) -> None:
        """Of a bit-packed array, take the metadata of what it holds in place of those of what is stored."""
        data_type, info = self.descriptor.data_types[name], self.infos[name]
        if not data_type.wrapper or name in self._left_out:
            return
        self._words[name] = words = Lazy(
            info.shape[0], data_type.stored, self._reading(name, DataType(data_type.stored))
        )
        self.packed[name] = packed = BitPacked(words, data_type.wrapper, data_type.dtype, name)
        self._limits.hold("array_bytes", len(packed) * packed.dtype.itemsize, name, "the size in bytes, unpacked,")
        self.infos[name] = ArrayInfo(packed.shape, packed.dtype, info.nbytes)

    def _value_length_problems(self, count: int | None) -> list[Problem]:
        problems = []
        for name in ("values", "fill_value"):
            if name not in self.infos:
                continue
            data_type, (stored,) = self.descriptor.data_types[name], self.infos[name].shape
            if stored % data_type.parts:
                problems.append(
                    Problem(name, f"expected {data_type.parts} numbers a value of {data_type}, got {stored}")
                )
                continue
            allowed = [1] if name == "fill_value" or data_type.iso else [count]
            if name == "values" and data_type.iso and count == 0:
                allowed = [0, 1]
            if name == "values" and data_type.iso and self._lenient and count is not None:
                allowed.append(count)
            if None not in allowed and stored not in [n * data_type.parts for n in allowed if n is not None]:
                wanted = (allowed[0] or 0) * data_type.parts
                problems.append(Problem(name, f"expected a length of {wanted} for {data_type}, got {stored}"))
        return problems

    def tensor(self, check: Check, duplicates: Duplicates = "error") -> Tensor:
        """Read and decode every array. duplicates: what lenient reading makes of entries that are there more than once.
        Where there is a map, it stands among the attributes. Raises ArrayError for what they hold.
        """
        descriptor = self.descriptor
        if check == "none":
            self._sums = {}
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
        fill = self.fill_value()
        attributes = dict(descriptor.attributes)
        attributes.pop("number_of_diagonal_elements", None)  # it is counted anew when the tensor is written
        options: dict[str, Any] = {
            "fill_value": fill,
            "structure": descriptor.structure,
            "attributes": {key: value for key, value in descriptor.user.items() if key != KEY},
            "descriptor_attributes": attributes,
            "limits": self._limits,
        }
        place = (descriptor.format, descriptor.shape)
        try:
            tensor = Tensor(*place, arrays, values, check=check, **options)
        except ArrayError:
            if not self._lenient:
                raise
            loose = Tensor(*place, arrays, values, check="trusted", **options)
            coords, unsorted = loose.unpack()
            packed = values if data_type.iso else unsorted
            ordered = pack(coords, packed, *place[::-1], duplicates=duplicates, limits=self._limits)
            if duplicates == "error" and any(
                len(ordered.arrays[name]) != len(array) for name, array in loose.arrays.items()
            ):
                raise  # a fiber was stored twice
            tensor = Tensor(*place, ordered.arrays, values if data_type.iso else ordered.values, **options)
            how = "sorted" if duplicates == "error" else f"sorted, of duplicates the {duplicates}"
            self.repairs.append(f"entries: not in order, {how}")
        if not self._lenient:
            self._hold_count(len(tensor.values))
        if descriptor.name in NO_EMPTY_FIBERS:
            problems = list(self._empty_fiber_problems(tensor.arrays["pointers_to_1"]))
            if not self._lenient:
                raise_if(ArrayError, problems)
            self.repairs += map(str, problems)
        if not self._lenient and check == "full":
            raise_if(ArrayError, tensor._diagonal_problems())
        return tensor if self.map is None else labelled(tensor, self.map)

    def lazy_tensor(self) -> Tensor:
        """As `tensor`, of arrays that stay where they are until they are asked for."""
        descriptor = self.descriptor
        types = descriptor.data_types
        data_type = types["values"]
        arrays: dict[str, Any] = {
            name: Lazy(
                self.infos[name].shape[0], of.dtype, self._level_reading(name, of), self, partial(self.verify, name)
            )
            for name, of in types.items()
            if name not in ("values", "fill_value")
        }
        count = count_positions(places(descriptor.format.levels, descriptor.dims), arrays)
        self._hold_count(count)
        read = self._reading("values", data_type)
        read = repeated(read) if data_type.iso else read
        values: Any = Lazy(count, data_type.dtype, read, self, partial(self.verify, "values"))
        tree = Tree(descriptor.format.levels, descriptor.dims, arrays, values, data_type.iso, True)
        fill = self.fill_value()
        raise_if(FormatError, list(self._structure_problems()))
        attributes = dict(descriptor.attributes)
        attributes.pop("number_of_diagonal_elements", None)  # it is counted anew when the tensor is written
        kept = fill, descriptor.structure, descriptor.user, attributes
        return Tensor._trusted(descriptor.format, descriptor.shape, tree, *kept)

    def _level_reading(self, name: str, data_type: DataType) -> Parts:
        """How to read parts of an array of a level, under the checks of a predefined format where it has its own."""
        read = self._reading(name, data_type)
        if name != "pointers_to_1" or self.descriptor.name not in NO_EMPTY_FIBERS:
            return read

        def read_ascending(start: int, stop: int) -> npt.NDArray[Any]:
            """A pointer is read with the next one, which is larger."""
            found = read(start, min(stop + 1, self.infos[name].shape[0]))
            raise_if(ArrayError, self._empty_fiber_problems(found))
            return found[: stop - start]

        return read_ascending

    def _empty_fiber_problems(self, pointers: npt.NDArray[Any]) -> Iterator[Problem]:
        if self.descriptor.name in NO_EMPTY_FIBERS and has_empty_fibers(pointers):
            yield Problem("pointers_to_1", f"{self.descriptor.name} has no fibers without an entry")

    def _hold_count(self, count: int) -> None:
        """Raise ArrayError for another number of values than the levels, or the descriptor, ask for."""
        values = self.descriptor.data_types["values"]
        if not values.iso:
            raise_if(ArrayError, value_problems(count, self.infos["values"].shape[0] // values.parts))
        if self.descriptor.number_of_stored_values is not None:
            raise_if(ArrayError, value_problems(count, self.descriptor.number_of_stored_values))

    def _structure_problems(self) -> Iterator[Problem]:
        descriptor = self.descriptor
        if descriptor.structure is not None:
            dtype = descriptor.data_types["values"].dtype
            yield from structure_problems(descriptor.structure, descriptor.shape, dtype)

    def _reading(self, name: str, data_type: DataType) -> Parts:
        """How to read and decode parts of an array, which is looked for when it is first asked for."""
        stored = self._stored_length(name)

        def read(start: int, stop: int) -> npt.NDArray[Any]:
            if data_type.wrapper and self._sums and stop - start == len(self.packed[name]):
                return decode(self._words[name][:], data_type, name)
            if data_type.wrapper:
                return self.packed[name][start:stop]
            with self._in_place():
                raw = self.parts(name)(start * data_type.parts, stop * data_type.parts)
            if len(raw) == stored:
                checksums.check_array(name, raw, self._sums)  # what can be compared, which is a whole array
            return decode(raw.astype(raw.dtype.newbyteorder("="), copy=False), data_type, name)

        return read

    def _stored_length(self, name: str) -> int:
        """The length of an array as it is stored: of one that is bit-packed, that of its words."""
        return len(self._words[name]) if name in self._words else self.infos[name].shape[0]

    def parts(self, name: str) -> Parts:
        """How the container reads parts of an array."""
        if name not in self._parts:
            self._parts[name] = self._reader.parts(name)
        return self._parts[name]

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        """What is read in the block is of the container that was opened, or else that is the fault."""
        try:
            yield
        finally:
            self._unreplaced()

    def verify(self, name: str) -> None:
        """Compare an array with the seal, where there is one, a piece at a time."""
        if self._sums:
            read, length = self.parts(name), self._stored_length(name)
            starts = range(0, max(length, 1), _AT_ONCE)
            checksums.check_pieces(name, (read(start, min(start + _AT_ONCE, length)) for start in starts), self._sums)

    def fill_value(self) -> Any:
        """The fill value, in the type that it is stored in, or None."""
        if not self.descriptor.fill:
            return None
        data_type = self.descriptor.data_types["fill_value"]
        return self._decode("fill_value", self._read("fill_value"), data_type)[0]

    def _read(self, name: str) -> npt.NDArray[Any]:
        if name in self._left_out:
            return np.empty(0, self.infos[name].dtype)
        array = self._reader.read(name)
        checksums.check_array(name, array, self._sums)
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

    def _decode(self, name: str, stored: npt.NDArray[Any], data_type: DataType) -> npt.NDArray[Any]:
        if data_type.dtype.kind == "b" and self._lenient and stored.dtype.kind != "b" and (stored > 1).any():
            self.repairs.append(f"{name}: bint8 other than 0 and 1, taken as true")
            stored = (stored != 0).astype(np.uint8)
        if data_type.dtype.kind not in "bc" and not data_type.wrapper and stored.dtype != data_type.dtype:
            data_type = DataType(stored.dtype, data_type.iso)
        return decode(stored, data_type, name)


def _may_stand_for(stored: np.dtype[Any], declared: DataType) -> bool:
    """Whether lenient reading looks at the values of another type than the declared one."""
    if declared.wrapper:
        return False
    if declared.dtype.kind == "b":
        return stored.kind == "b" or stored.name in ("int8", "uint8")
    return stored.name in (*INTEGERS, "float32", "float64") and declared.dtype.kind != "c"
