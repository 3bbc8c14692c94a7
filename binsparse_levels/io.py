"""Open, read and write: the one place that joins formats, data types and containers.

What a path holds is told by its content first and by its suffix second; where there is no content yet, by the suffix.
"""

from __future__ import annotations

import importlib
import json
import os
import warnings
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .containers.base import ArrayInfo, Reader, load_json, split_path
from .descriptor import Descriptor, parse_descriptor
from .dtypes import DataType, data_type_of, decode, encode
from .errors import ArrayError, ContainerError, DialectWarning, OptionError, PathMissingError, Problem, raise_if
from .fused import Duplicates
from .limits import DEFAULT_LIMITS, Limits
from .tensor import Check, Tensor, pack
from .tree import length_problems

# The module of each kind of file, by suffix. Those in `files` read and write a tensor, those in `containers` a header
# and arrays.
SUFFIXES = {
    ".h5": "containers.hdf5",
    ".hdf5": "containers.hdf5",
    ".mtx": "files.matrix_market",
    ".mtx.gz": "files.matrix_market",
    ".tns": "files.frostt",
    ".tns.gz": "files.frostt",
}
_SIGNATURES = {b"\x89HDF\r\n\x1a\n": "containers.hdf5", b"%%MatrixMarket": "files.matrix_market"}
# Formats whose text forbids fibers without an entry, which a tree of the same levels may have (Binsparse 0.1, 3.5.1).
_NO_EMPTY_FIBERS = ("DCSR", "DCSC")


def read(
    path: str | os.PathLike[str],
    *,
    lenient: bool = False,
    check: Check = "full",
    shape: Sequence[int] | None = None,
    duplicates: Duplicates | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Tensor:
    """The tensor in PATH[:GROUP], copied into memory and checked in full.

    lenient: mend a fixed list of dialects that other programs write; each repair is told by a DialectWarning. check:
    as for Tensor. shape: of a .tns file, which names none; else its largest coordinates tell. duplicates: as for
    `pack`, for text files, "error" where it is not given.

    Raises FileNotFoundError, and BinsparseError of every kind with all that is wrong.
    """
    place, group = split_path(path)
    kind = _kind_of(place)
    module = _module(kind)
    if kind.startswith("files."):
        _refuse(path, group=group, lenient=lenient or None)
        options = {"shape": shape} if kind == "files.frostt" else _refuse(path, shape=shape)
        tensor: Tensor = module.read(place, duplicates=duplicates or "error", limits=limits, **options)
        return tensor
    _refuse(path, shape=shape, duplicates=duplicates)
    with module.reading(place, group, limits) as reader:
        loaded = _Loading(reader, limits, lenient)
        tensor = loaded.tensor(check)
    for repair in loaded.repairs:
        warnings.warn(f"{os.fspath(path)}: {repair}", DialectWarning, stacklevel=2)
    return tensor


def write(
    path: str | os.PathLike[str], tensor: Tensor, *, overwrite: bool = False, limits: Limits = DEFAULT_LIMITS
) -> None:
    """Write a tensor to PATH[:GROUP], as the suffix of the path says: .h5, .mtx, .tns, the last two also with .gz.

    The file appears whole, in one step, or not at all. A group is written into the file that is there, the rest of
    which is kept. Raises FileExistsError for what is there, unless `overwrite`; BinsparseError for a tensor that the
    kind of file cannot hold, before anything is touched; LimitError for a header that `read` would refuse.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"expected a Tensor, got {type(tensor).__name__}")
    place, group = split_path(path)
    kind = next((kind for suffix, kind in SUFFIXES.items() if place.lower().endswith(suffix)), None)
    if kind is None:
        raise ContainerError(Problem(place, f"unknown suffix; known are {', '.join(SUFFIXES)}"))
    folder = os.path.dirname(os.path.realpath(place))
    if not os.path.isdir(folder):
        raise PathMissingError(Problem(folder, "no such folder"))
    if kind.startswith("files."):
        _refuse(path, group=group)
        _module(kind).write(place, tensor, overwrite=overwrite)
        return
    descriptor, arrays = _stored(tensor)
    header = descriptor.header(alias=tensor.format.alias not in _NO_EMPTY_FIBERS or not has_empty_fibers(tensor))
    load_json(json.dumps(header), limits)
    with _module(kind).writing(place, group, overwrite, limits) as writer:
        for name, array in arrays.items():
            writer.write(name, array)
        writer.write_header(header)  # last, for it tells that all arrays are there


class Description(NamedTuple):
    """What a file says of a tensor: the descriptor, metadata of the arrays, and what lenient reading had to mend."""

    descriptor: Descriptor
    arrays: Mapping[str, ArrayInfo]
    repairs: Sequence[str] = ()


def describe(path: str | os.PathLike[str], *, lenient: bool = False, limits: Limits = DEFAULT_LIMITS) -> Description:
    """The descriptor in PATH[:GROUP], compared with the metadata of its arrays. No array is read, where there is a
    header to say what they are; a text file has none, and is read. Raises what `read` raises.
    """
    place, group = split_path(path)
    kind = _kind_of(place)
    if kind.startswith("files."):
        descriptor, arrays = _stored(read(path, lenient=lenient, limits=limits))
        return Description(descriptor, {name: ArrayInfo(x.shape, x.dtype, x.nbytes) for name, x in arrays.items()})
    with _module(kind).reading(place, group, limits) as reader:
        loading = _Loading(reader, limits, lenient)
        return Description(loading.descriptor, loading.infos, loading.repairs)


class _Loading:
    """A descriptor and the metadata of its arrays, compared with each other before any array is read."""

    def __init__(self, reader: Reader, limits: Limits, lenient: bool) -> None:
        self._reader = reader
        self._limits = limits
        self._lenient = lenient
        self.header = reader.read_header()
        self.descriptor = parse_descriptor(self.header, limits, lenient=lenient)
        self.repairs = list(self.descriptor.repairs)
        self.infos: dict[str, ArrayInfo] = {}
        self._compare()

    def _compare(self) -> None:
        """Raise ArrayError for arrays that are missing, or of another rank, type or length than the descriptor says."""
        descriptor = self.descriptor
        problems = []
        for name, data_type in descriptor.data_types.items():
            info = self._reader.info(name)
            if info is None and self._lenient:  # some programs leave out arrays of length 0; the lengths will tell
                info = ArrayInfo((0,), data_type.stored, 0)
                self.repairs.append(f"{name}: missing, taken as empty")
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
        raise_if(ArrayError, problems)
        count = descriptor.number_of_stored_values
        raise_if(ArrayError, length_problems(descriptor.format.levels, descriptor.dims, self.infos, count))
        raise_if(ArrayError, self._value_length_problems(count))

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

    def tensor(self, check: Check) -> Tensor:
        """Read and decode every array. Raises ArrayError for what they hold."""
        descriptor = self.descriptor
        arrays = {name: self._read(name) for name in descriptor.data_types if name not in ("values", "fill_value")}
        values, data_type = self._read("values"), descriptor.data_types["values"]
        if data_type.iso and len(values) > data_type.parts:
            self.repairs.append("values: declared iso, with a value for each entry")
            data_type = DataType(data_type.dtype)
        logical = self._decode("values", values, data_type, 1)
        fill = None
        if descriptor.fill:
            fill = self._decode("fill_value", self._read("fill_value"), descriptor.data_types["fill_value"], 1)[0]
        options: dict[str, Any] = {
            "fill_value": fill, "structure": descriptor.structure, "attributes": descriptor.user, "limits": self._limits
        }  # fmt: skip
        whole = (descriptor.format, descriptor.shape, arrays, logical[0] if data_type.iso else logical)
        try:
            tensor = Tensor(*whole, check=check, **options)
        except ArrayError:
            if not self._lenient:
                raise
            loose = Tensor(*whole, check="trusted", **options)
            coords, unsorted = loose.unpack()
            value = unsorted[0] if loose.iso and len(unsorted) else unsorted
            tensor = pack(coords, value, loose.shape, loose.format, **options)
            if any(len(tensor.arrays[name]) != len(array) for name, array in loose.arrays.items()):
                raise  # a fiber was stored twice
            self.repairs.append("entries: not in order, sorted")
        if descriptor.name in _NO_EMPTY_FIBERS and has_empty_fibers(tensor):
            problem = Problem("pointers_to_1", f"{descriptor.name} has no fibers without an entry")
            if not self._lenient:
                raise ArrayError(problem)
            self.repairs.append(str(problem))
        return tensor

    def _read(self, name: str) -> npt.NDArray[Any]:
        if self._reader.info(name) is None:
            return np.empty(0, self.infos[name].dtype)
        array = self._reader.read(name)
        wanted = self.descriptor.data_types[name].stored
        if array.dtype.newbyteorder("=") != wanted:
            with np.errstate(all="ignore"):
                lossless = bool(np.all((array.astype(wanted) == array) | (array != array)))
            if not lossless:
                raise ArrayError(Problem(name, f"{array.dtype} holds what the declared {wanted} cannot"))
            self.repairs.append(f"{name}: declared {wanted}, stored as {array.dtype}")
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def _decode(self, name: str, stored: npt.NDArray[Any], data_type: DataType, length: int) -> npt.NDArray[Any]:
        if data_type.dtype.kind == "b" and self._lenient and stored.dtype.kind != "b" and (stored > 1).any():
            self.repairs.append(f"{name}: bint8 other than 0 and 1, taken as true")
            stored = (stored != 0).astype(np.uint8)
        if data_type.dtype.kind not in "bc" and stored.dtype != data_type.dtype:
            data_type = DataType(stored.dtype, data_type.iso)
        return decode(stored, data_type, length, name)


def _may_stand_for(stored: np.dtype[Any], declared: DataType) -> bool:
    """Whether lenient reading looks at the values of another type than the declared one."""
    if declared.dtype.kind == "b":
        return stored.kind == "b" or stored.name in ("int8", "uint8")
    return stored.kind in "iuf" and declared.dtype.kind != "c"


def has_empty_fibers(tensor: Tensor) -> bool:
    """Whether a fiber of the second level is there without an entry."""
    pointers = tensor.arrays["pointers_to_1"]
    return bool((pointers[1:] == pointers[:-1]).any())


def _stored(tensor: Tensor) -> tuple[Descriptor, dict[str, npt.NDArray[Any]]]:
    """The descriptor, and the arrays as they are stored; raises ArrayError for types that Binsparse does not have."""
    iso = tensor.iso and len(tensor.values) > 0
    data_types = {name: data_type_of(array.dtype, name) for name, array in tensor.arrays.items()}
    data_types["values"] = data_type_of(tensor.dtype, "values", iso)
    arrays: dict[str, npt.NDArray[Any]] = {**tensor.arrays, "values": tensor.values}
    if tensor.fill_value is not None:
        data_types["fill_value"] = data_type_of(tensor.dtype, "fill_value")
        arrays["fill_value"] = np.full(1, tensor.fill_value, tensor.dtype)
    descriptor = Descriptor(
        tensor.format,
        tensor.shape,
        len(tensor.values),
        data_types,
        structure=tensor.structure,
        user=dict(tensor.attributes),
    )
    return descriptor, {name: encode(array, data_types[name]) for name, array in arrays.items()}


def _kind_of(path: str) -> str:
    """The kind of a file that is there, by its content, then its suffix."""
    if os.path.isdir(path):
        raise ContainerError(Problem(path, "is a directory"))
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
    except FileNotFoundError:
        raise PathMissingError(Problem(path, "no such file")) from None
    except OSError as error:
        raise ContainerError(Problem(path, f"cannot be read: {error.strerror}")) from error
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, 64)
        except zlib.error as error:
            raise ContainerError(Problem(path, f"not a gzip file: {error}")) from None
    for signature, kind in _SIGNATURES.items():
        if head.startswith(signature):
            return kind
    kind = next((kind for suffix, kind in SUFFIXES.items() if path.lower().endswith(suffix)), "")
    if not kind:
        raise ContainerError(Problem(path, "neither its content nor its suffix is known"))
    return kind


def _module(kind: str) -> Any:
    return importlib.import_module(f"{__package__}.{kind}")


def _refuse(path: Any, **options: Any) -> dict[str, Any]:
    for name, value in options.items():
        if value is not None:
            raise OptionError(Problem(os.fspath(path), f"{name} does not apply to this kind of file"))
    return {}
