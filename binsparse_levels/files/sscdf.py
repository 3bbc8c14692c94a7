"""sscdf (.sscdf): matrices, vectors and scalars of GraphBLAS in NetCDF-4 files, several in one by name.

There are two dialects, which both call themselves 1.0: in the *native* one attributes name the format and the type of
an object, in the *JSON* one a text describes it. The primary object lies in the root, every other one in a group of its
name. Files are read as HDF5, and written so that the NetCDF library opens and extends them.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import unicodedata
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import h5py
import numpy as np
import numpy.typing as npt

from ..arguments import checked_fill
from ..containers.base import DEFAULT_STORAGE, ArrayInfo, Storage, load_json, one_piece, refuse_existing, touching
from ..containers.hdf5 import HDF5Reader, HDF5Writer, changing, opened, read_text
from ..descriptor import Descriptor, array_classes
from ..dtypes import INTEGERS, data_type_of
from ..errors import (
    ArrayError,
    BinsparseError,
    ContainerError,
    DialectWarning,
    FormatError,
    PathExistsError,
    PathMissingError,
    Problem,
    UnsafeError,
    raise_if,
)
from ..formats import Format, parse_format
from ..levels import places
from ..limits import DEFAULT_LIMITS, INT64_MAX, Limits
from ..stored import has_empty_fibers
from ..tensor import Check, Tensor
from ..tree import length_problems

Array: TypeAlias = npt.NDArray[Any]


class Layout(NamedTuple):
    """A format of a file: the levels that it is, and the names there of the arrays of the levels, by stored name."""

    format: Format
    arrays: Mapping[str, str]


def _layouts(table: dict[str, tuple[str, dict[str, str]]]) -> dict[str, Layout]:
    return {name: Layout(parse_format(format), arrays) for name, (format, arrays) in table.items()}


# The names are those of GraphBLAS too, but for `scalar` and `scalar_empty`.
NATIVE = _layouts(
    {
        "csr": ("CSR", {"pointers_to_1": "indptr", "indices_1": "col_indices"}),
        "csc": ("CSC", {"pointers_to_1": "indptr", "indices_1": "row_indices"}),
        "hypercsr": ("DCSR", {"pointers_to_1": "indptr", "indices_0": "rows", "indices_1": "col_indices"}),
        "hypercsc": ("DCSC", {"pointers_to_1": "indptr", "indices_0": "cols", "indices_1": "row_indices"}),
        "bitmapr": ("bitmap(2)", {"bitmap_0": "bitmap"}),
        "bitmapc": ("bitmap(2) @ 1, 0", {"bitmap_0": "bitmap"}),
        "fullr": ("DMATR", {}),
        "fullc": ("DMATC", {}),
        "coor": ("COOR", {"indices_0": "rows", "indices_1": "cols"}),
        "cooc": ("COOC", {"indices_1": "rows", "indices_0": "cols"}),
        "sparse": ("CVEC", {"indices_0": "indices"}),
        "bitmap": ("bitmap", {"bitmap_0": "bitmap"}),
        "full": ("DVEC", {}),
        "scalar": ("element", {}),
        "scalar_empty": ("bitmap(0)", {}),
    }
)
JSON = _layouts(
    {
        "CSR": ("CSR", {"pointers_to_1": "pointers_0", "indices_1": "indices_1"}),
        "CSC": ("CSC", {"pointers_to_1": "pointers_0", "indices_1": "indices_1"}),
        "DCSR": ("DCSR", {"indices_0": "indices_0", "pointers_to_1": "pointers_0", "indices_1": "indices_1"}),
        "DCSC": ("DCSC", {"indices_0": "indices_0", "pointers_to_1": "pointers_0", "indices_1": "indices_1"}),
        "COOR": ("COOR", {"indices_0": "indices_0", "indices_1": "indices_1"}),
        "COOC": ("COOC", {"indices_0": "indices_0", "indices_1": "indices_1"}),
        "VEC": ("CVEC", {"indices_0": "indices_0"}),
    }
)
_DIALECTS = {"native": NATIVE, "json": JSON}
_SIZES: tuple[tuple[str, ...], ...] = ((), ("size",), ("nrows", "ncols"))
_INTEGERS = {name: np.dtype(name) for name in INTEGERS}
_NATIVE_TYPES = {"bool": np.dtype(bool), **_INTEGERS, "fp32": np.dtype("f4"), "fp64": np.dtype("f8")}
_JSON_TYPES = {"bool": np.dtype(bool), **_INTEGERS, "float32": np.dtype("f4"), "float64": np.dtype("f8")}
_VERSION = "1.0"
_DEFAULT_FILLS = {
    "i2": -(2**15) + 1, "i4": -(2**31) + 1, "i8": -(2**63) + 2, "u2": 2**16 - 1, "u4": 2**32 - 1, "u8": 2**64 - 2,
    "f4": np.float32(9.969209968386869e36), "f8": 9.969209968386869e36,
}  # fmt: skip
_RESERVED = {"values", "value", *_SIZES[1], *_SIZES[2]}.union(
    *(layout.arrays.values() for known in _DIALECTS.values() for layout in known.values())
)


# What is in a file


class Part:
    """The first items of a dataset, as numpy's native type; each slice is read when it is asked for. nbytes: what the
    dataset takes in the file.

    Of booleans any byte but 0 is true, as in C, since cells that are not set may hold anything; but those of a bitmap
    are kept as they are, to be checked. Precondition: the file stays open.
    """

    def __init__(self, reader: HDF5Reader, name: str, length: int, dtype: np.dtype[Any], nbytes: int) -> None:
        self.shape = (length,)
        self.dtype = dtype
        self.nbytes = nbytes
        self._reader = reader
        self._name = name

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, items: slice) -> Array:
        begin, end, _ = items.indices(len(self))
        if (begin, end) == (0, len(self)):
            array = self._reader.read(self._name)[:end]
        else:
            array = self._reader.parts(self._name)(begin, end)
        if self.dtype.kind == "b":
            return array.view(bool) if self._name == "bitmap" else array != 0
        return array.astype(self.dtype, copy=False)


class Object(NamedTuple):
    """What a file says of one object, all of it compared with the metadata of its arrays, of which none has been read.

    arrays: by stored name. values: those at the positions of the last level; of an iso object a scalar, without a
    dimension. names: what the arrays are called in the file, by stored name.
    """

    format: Format
    shape: tuple[int, ...]
    arrays: Mapping[str, Any]
    values: Any
    comment: str
    names: Mapping[str, str]

    @property
    def attributes(self) -> dict[str, Any]:
        """The user's JSON of a tensor."""
        return {"comment": self.comment} if self.comment else {}


def claims(path: str) -> bool:
    """Whether an HDF5 file is of this kind, by the attributes of its root or of the first group that has an object; a
    file of the suffix also where it has no Binsparse tensor.
    """
    with contextlib.suppress(BinsparseError), opened(path) as file, touching(path):
        if "binsparse" in file.attrs:
            return False
        if path.lower().endswith(".sscdf"):
            return True
        for group in (file, *_groups(file).values()):
            if "binsparse" in group.attrs:
                return False
            if _is_object(group):
                native = read_text(file, "version", DEFAULT_LIMITS) in (_VERSION, _VERSION.encode())
                return "metadata" in group.attrs or ("datatype" in group.attrs and native)
    return False


def list_groups(path: str, limits: Limits) -> list[str]:
    """The names of the objects, in the order of the file; the primary one as an empty string."""
    with opened(path) as file:
        return [name or "" for name in _objects(file)]


def read(path: str, *, name: str | None = None, check: Check = "full", limits: Limits = DEFAULT_LIMITS) -> Tensor:
    """The primary object, or the one of that name. A comment becomes the attribute `comment`.

    Raises ContainerError, UnsafeError, ArrayError, FormatError, LimitError for what is no sound object.
    """
    with opened(path) as file:
        return _load(_look(file, name, path, limits), _place(path, name), check, limits)


def read_all(path: str, *, check: Check = "full", limits: Limits = DEFAULT_LIMITS) -> dict[str | None, Tensor]:
    """All objects by name, the primary one under None. Raises what `read` raises."""
    with opened(path) as file:
        if not _objects(file):
            raise ContainerError(Problem(path, "holds no sscdf object"))
        return {
            name: _load(_look(file, name, path, limits), _place(path, name), check, limits) for name in _objects(file)
        }


@contextlib.contextmanager
def looking(path: str, *, name: str | None = None, limits: Limits = DEFAULT_LIMITS) -> Iterator[Object]:
    """One object of a file that is open: what it says of itself, and arrays that are read where they are sliced.

    Nothing that an array holds has been checked. Raises what `read` raises for the rest.
    """
    with opened(path) as file:
        yield _look(file, name, path, limits)


def describe(
    path: str, *, name: str | None = None, limits: Limits = DEFAULT_LIMITS
) -> tuple[Descriptor, dict[str, ArrayInfo]]:
    """One object as a descriptor of Binsparse would say it, with the metadata of its arrays, of which none is read."""
    with looking(path, name=name, limits=limits) as found:
        dims = tuple(found.shape[k] for k in found.format.order)
        n: int | None = 1
        for place in places(found.format.levels, dims):
            lengths = {role: len(found.arrays[held]) for role, held in place.names.items()}
            n, _ = place.level.lengths(lengths, place.dims, n)
        iso = not found.values.shape
        types = {held: data_type_of(part.dtype, held) for held, part in found.arrays.items()}
        types["values"] = data_type_of(found.values.dtype, "values", iso)
        parts = {**found.arrays, "values": found.values.reshape(1) if iso else found.values}
        infos = {held: ArrayInfo(part.shape, part.dtype, part.nbytes) for held, part in parts.items()}
        return Descriptor(found.format, found.shape, n, types, user=found.attributes), infos


def _load(found: Object, place: str, check: Check, limits: Limits) -> Tensor:
    with _telling(place, found.names):
        arrays = {name: part[:] for name, part in found.arrays.items()}
        values = found.values[:] if found.values.shape else found.values
        tensor = Tensor(
            found.format, found.shape, arrays, values, attributes=found.attributes, check=check, limits=limits
        )
    if "indices_0" in arrays and "pointers_to_1" in arrays and has_empty_fibers(arrays):
        what = f"{place}: {found.names['pointers_to_1']}: a row or column without an entry is stored"
        warnings.warn(what, DialectWarning, stacklevel=4)
    return tensor


def _place(path: str, name: str | None) -> str:
    return path if name is None else f"{path}:{name}"


def _groups(file: h5py.File) -> dict[str, h5py.Group]:
    """The groups in the root. Raises UnsafeError for a link that leads out of it, or back to it."""
    found = {}
    root = h5py.h5o.get_info(file.id).addr
    for name in file.keys():  # noqa: SIM118 (items would follow links)
        link = file.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise UnsafeError(Problem(name, f"a {type(link).__name__} is not followed"))
        child = file[name]
        if isinstance(child, h5py.Group):
            if h5py.h5o.get_info(child.id).addr == root:
                raise UnsafeError(Problem(name, "is the root of the file once more"))
            found[name] = child
    return found


def _is_object(group: h5py.Group) -> bool:
    return any(key in group.attrs for key in ("metadata", "format", "datatype"))


def _objects(file: h5py.File) -> list[str | None]:
    with touching(file.filename):
        named = [name for name, group in _groups(file).items() if _is_object(group)]
        return [None, *named] if _is_object(file) else [*named]


def _look(file: h5py.File, name: str | None, path: str, limits: Limits) -> Object:
    with _telling(_place(path, name), {}), touching("attributes"):
        groups = _groups(file)
        if name is not None and name not in groups:
            raise PathMissingError(Problem("", "no object of this name"))
        group = file if name is None else groups[name]
        if not _is_object(group):
            others = ", ".join(repr(other) for other in _objects(file)) or "none"
            raise ContainerError(Problem("", f"is no sscdf object; those of the file: {others:.200}"))
        look = _look_json if "metadata" in group.attrs else _look_native
        return look(_Source(file, group, limits))


class _Source:
    """A group while it is looked at."""

    def __init__(self, file: h5py.File, group: h5py.Group, limits: Limits) -> None:
        self.file = file
        self.group = group
        self.limits = limits
        self.reader = HDF5Reader(group, limits)

    def text(self, name: str, *, root: bool = False) -> str:
        """An attribute as text. Raises ContainerError where it is missing or no text."""
        text = read_text(self.file if root else self.group, name, self.limits)
        if text is None:
            raise ContainerError(Problem(name, "this attribute is missing"))
        try:
            return text.decode() if isinstance(text, bytes) else text
        except UnicodeDecodeError as error:
            raise ContainerError(Problem(name, f"not UTF-8: {error}")) from None

    def info(self, name: str) -> ArrayInfo:
        info = self.reader.info(name)
        if info is None:
            raise ArrayError(Problem(name, "missing"))
        return info

    def scalar(self, name: str) -> Array:
        """A dataset without a dimension."""
        if self.info(name).shape != ():
            raise ArrayError(Problem(name, f"expected a scalar, got shape {self.info(name).shape}"))
        return self.reader.read(name)

    def size(self, name: str) -> int:
        """The size of a dimension."""
        if self.info(name).dtype.kind not in "iu":
            raise ArrayError(Problem(name, f"expected an integer type, got {self.info(name).dtype}"))
        size = int(self.scalar(name))
        if not 0 <= size <= INT64_MAX:
            raise ArrayError(Problem(name, f"{size} is not in 0 … 2**63 - 1"))
        return size

    def array(self, name: str, most: int | None, dtype: np.dtype[Any] | None = None) -> Part:
        """A dataset of one dimension, of which only the first `most` items count; dtype: what it stands for."""
        info = self.info(name)
        if len(info.shape) != 1:
            raise ArrayError(Problem(name, f"expected one dimension, got shape {info.shape}"))
        length = info.shape[0] if most is None else min(info.shape[0], most)
        return Part(self.reader, name, length, dtype or info.dtype.newbyteorder("="), info.nbytes)

    def expect(self, name: str, dtype: np.dtype[Any], said: str) -> None:
        """Raise ArrayError for a dataset of another type than is said."""
        held = self.info(name).dtype.newbyteorder("=")
        if held != dtype and not (dtype.kind == "b" and held.kind in "iu" and held.itemsize == 1):
            raise ArrayError(Problem(name, f"declared {said}, stored as {held}"))


def _known(table: Mapping[str, Any], word: Any, path: str) -> Any:
    if not isinstance(word, str) or word not in table:
        raise ContainerError(Problem(path, f"unknown {word!r:.60}; known are {', '.join(table)}"))
    return table[word]


def _look_native(source: _Source) -> Object:
    version = source.text("version", root=True)
    if version != _VERSION:
        raise ContainerError(Problem("version", f"expected {_VERSION}, got {version!r:.60}"))
    layout: Layout = _known(NATIVE, source.text("format"), "format")
    dtype = _known(_NATIVE_TYPES, said := source.text("datatype"), "datatype")
    comment = source.text("comment") if "comment" in source.group.attrs else ""
    if not layout.format.rank:
        if layout.format.levels:
            arrays, value = {"bitmap_0": np.zeros(1, bool)}, np.zeros(1, dtype)
        else:
            source.expect("value", dtype, said)
            arrays, value = {}, source.scalar("value").astype(dtype).reshape(1)
        return Object(layout.format, (), arrays, value, comment, {"values": "value"})
    shape = tuple(source.size(name) for name in _SIZES[layout.format.rank])
    return _compared(source, layout, shape, dtype, said, None, comment)


def _look_json(source: _Source) -> Object:
    described = load_json(source.text("metadata"), source.limits, constants=True)
    if not isinstance(described, dict):
        raise ContainerError(Problem("metadata", f"expected an object, got {described!r:.60}"))
    if described.get("version") != _VERSION:
        raise ContainerError(Problem("metadata.version", f"expected {_VERSION}, got {described.get('version')!r:.60}"))
    layout: Layout = _known({**JSON, "COO": JSON["COOR"]}, described.get("format"), "metadata.format")
    shape: Any = described.get("shape")
    sound = isinstance(shape, list) and all(type(size) is int and 0 <= size <= INT64_MAX for size in shape)
    if not sound or len(shape) != layout.format.rank:
        what = f"expected {layout.format.rank} integers in 0 … 2**63 - 1, got {shape!r:.60}"
        raise ContainerError(Problem("metadata.shape", what))
    types = described.get("data_types")
    if not isinstance(types, dict):
        raise ContainerError(Problem("metadata.data_types", f"expected an object, got {types!r:.60}"))
    dtype = _known(_JSON_TYPES, types.get("values"), "metadata.data_types.values")
    comment = described.get("comment", "")
    if not isinstance(comment, str):
        raise ContainerError(Problem("metadata.comment", f"expected a string, got {comment!r:.60}"))
    if layout.format.alias in ("COOR", "COOC") and source.reader.info("indices_0") is None:
        layout = NATIVE[layout.format.alias.lower()]  # as the text of that state has it, not its program
    for name in layout.arrays.values():
        if name in types:
            path = f"metadata.data_types.{name}"
            source.expect(name, _known(_INTEGERS, types[name], path), types[name])
    iso = None
    if "iso_value" in described:
        given = described["iso_value"]
        if type(given) not in ((bool,) if dtype.kind == "b" else (int, float)):
            raise ContainerError(Problem("metadata.iso_value", f"expected a value of {dtype}, got {given!r:.60}"))
        try:
            iso = np.asarray(checked_fill(given, dtype))
        except (ArrayError, OverflowError):
            raise ContainerError(Problem("metadata.iso_value", f"{given!r:.60} is no {dtype}")) from None
    return _compared(source, layout, tuple(shape), dtype, types["values"], iso, comment)


def _compared(
    source: _Source,
    layout: Layout,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    said: str,
    iso: Array | None,
    comment: str,
) -> Object:
    """The object, where the metadata of all arrays fits. iso: its one value, where a file says it elsewhere."""
    format = layout.format
    dims = tuple(shape[k] for k in format.order)
    # Programs write what they have allocated: of arrays with an item for each cell those behind the last one are none.
    cells = math.prod(shape)
    by_cell = all(level.gaps or level.padded for level in format.levels)
    most = cells if by_cell else None
    arrays = {}
    for name, role_class in array_classes(format).items():
        dtype_of = np.dtype(bool) if role_class == "bool" else None
        if dtype_of:
            source.expect(layout.arrays[name], dtype_of, "booleans")
        arrays[name] = source.array(layout.arrays[name], most, dtype_of)
    values: Any = iso
    if iso is None:
        source.expect("values", dtype, said)
        if source.info("values").shape == ():
            values = source.scalar("values").astype(dtype)
        else:
            values = source.array("values", most, dtype)
    count = len(values) if isinstance(values, Part) else None
    with _telling("", layout.arrays):
        raise_if(ArrayError, length_problems(format.levels, dims, arrays, count))
    return Object(format, shape, arrays, values, comment, layout.arrays)


@contextlib.contextmanager
def _telling(place: str, names: Mapping[str, str]) -> Iterator[None]:
    """Let faults be told with the place of the object, and of arrays with the names that they have in the file."""
    try:
        yield
    except BinsparseError as error:
        problems = []
        for problem in error.problems:
            name, bracket, rest = problem.path.partition("[")
            path = ": ".join(filter(None, [place, names.get(name, name) + bracket + rest]))
            problems.append(Problem(path, problem.message))
        raise type(error)(problems) from None


# What is written


class _Written(NamedTuple):
    """An object as a file holds it: its attributes, arrays, and datasets without a dimension."""

    attributes: dict[str, str]
    arrays: dict[str, Array]
    scalars: dict[str, Array]


def write(
    path: str,
    tensor: Tensor,
    *,
    name: str | None = None,
    overwrite: bool = False,
    storage: Storage = DEFAULT_STORAGE,
    dialect: str = "native",
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Write the primary object of a new file, or an object of that name into a file, the rest of which is kept.

    The attribute `comment`, where it is a text, becomes the comment; others are not kept. Raises FormatError for a
    tensor of a format, type, structure or fill value that sscdf does not have, PathExistsError, OptionError, LimitError
    for a comment that `read` would refuse.
    """
    _write(path, {name: tensor}, overwrite, storage, dialect, limits, keep=name is not None)


def write_all(
    path: str,
    tensors: Mapping[str | None, Tensor],
    *,
    overwrite: bool = False,
    storage: Storage = DEFAULT_STORAGE,
    dialect: str = "native",
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Write a file of these objects by name, the primary one under None, in one step. Raises what `write` raises."""
    primary_first = {None: tensors[None], **tensors} if None in tensors else tensors
    _write(path, primary_first, overwrite, storage, dialect, limits)


def _write(
    path: str,
    tensors: Mapping[str | None, Tensor],
    overwrite: bool,
    storage: Storage,
    dialect: str,
    limits: Limits,
    *,
    keep: bool = False,
) -> None:
    if not tensors:
        raise FormatError(Problem(path, "no tensors were given"))
    storage.refuse("sscdf", but=("compression", "chunks"), compressions=("gzip", "none"))
    if storage.compression is None and dialect == "native":
        storage = replace(storage, compression="gzip")
    raise_if(FormatError, [problem for name in tensors if name is not None for problem in _name_problems(name)])
    encode = {"native": _native, "json": _json}[dialect]
    objects = {name: encode(tensor, _place(path, name)) for name, tensor in tensors.items()}
    for name, made in objects.items():
        for key, text in made.attributes.items():
            limits.hold(
                "header_bytes", len(text.encode()), f"{_place(path, name)}: {key}", "the length of the attribute"
            )
    storage.check_names({name for made in objects.values() for name in made.arrays})
    refuse_existing(path, overwrite or keep)
    # Only where what was made first is kept in mind does the NetCDF library extend the file.
    with changing(path, keep=keep, track_order=True, libver=("v108", "v108")) as file, touching(path):
        dimension = _prepare(file, path, dialect)
        for name, made in objects.items():
            group = file
            if name is not None:
                if name in file.keys():  # noqa: SIM118 (`in file` follows links)
                    if not overwrite or name not in _groups(file):
                        raise PathExistsError(Problem(_place(path, name), "is there; nobody asked to overwrite it"))
                    del file[name]
                group = file.create_group(name, track_order=True)
            dimension = _put(group, made, storage, dimension)


def _prepare(file: h5py.File, path: str, dialect: str) -> int:
    """See to it that a file is one of this dialect; the number of its next dimension."""
    if not len(file) and not len(file.attrs):
        if dialect == "native":
            file.attrs["version"] = np.bytes_(_VERSION)
        return 0
    groups = [file, *_groups(file).values()]
    held = "native" if "version" in file.attrs else "json" if any(map(_is_object, groups)) else None
    if held != dialect:
        raise ContainerError(Problem(path, f"is no sscdf file of the {dialect} dialect, and nothing is added to it"))
    number = 0
    for group in groups:
        for name in group.keys():  # noqa: SIM118 (values would follow links)
            if isinstance(group.get(name, getlink=True), h5py.HardLink):
                number = max(number, int(group[name].attrs.get("_Netcdf4Dimid", -1)) + 1)
    return number


def _put(group: h5py.Group, made: _Written, storage: Storage, dimension: int) -> int:
    """Write one object; the number of the next dimension."""
    for key, text in made.attributes.items():
        group.attrs[key] = np.bytes_(text) if text.isascii() else text
    writer = HDF5Writer(group, storage)
    for name, array in made.arrays.items():
        writer.write(name, one_piece(array))
        group[name].make_scale(name)  # a dimension of its own, as each array has
        group[name].attrs["_Netcdf4Dimid"] = np.int32(dimension)
        group[name].attrs["_Netcdf4Coordinates"] = np.array([dimension], np.int32)
        dimension += 1
    for name, value in made.scalars.items():
        dataset = group.create_dataset(name, data=value)
        if value == _DEFAULT_FILLS.get(value.dtype.str[1:]):  # a scalar that is the fill value shows as missing
            dataset.attrs["_FillValue"] = np.zeros(1, value.dtype)
    return dimension


_FORBIDDEN = re.compile(r"[\x00-\x1f/\x7f]|^[^A-Za-z0-9\u0080-\U0010ffff]|[ ]$")


def _name_problems(name: str) -> Iterator[Problem]:
    """What keeps an object from having this name."""
    if not isinstance(name, str) or not name:
        yield Problem("name", f"expected a text, got {name!r:.40}")
    elif name in _RESERVED:
        yield Problem("name", f"{name!r} is the name of an array")
    elif _FORBIDDEN.search(name) or not unicodedata.is_normalized("NFC", name) or not _encodes(name):
        yield Problem("name", f"{name!r:.60} is no name that NetCDF allows")
    elif len(name.encode()) > 256:
        yield Problem("name", "NetCDF allows no name of more than 256 bytes")


def _encodes(text: str) -> bool:
    try:
        return "\0" not in text and text.encode() is not None
    except UnicodeEncodeError:
        return False


def _native(tensor: Tensor, place: str) -> _Written:
    word, layout, tensor, comment = _sayable(tensor, place, "native")
    attributes = {"format": word, "datatype": _type_name(_NATIVE_TYPES, tensor, place)}
    if comment:
        attributes["comment"] = comment
    if not _encodes(comment):
        raise FormatError(Problem(f"{place}: comment", "this text is none that NetCDF holds"))
    values = _values(tensor)
    if not tensor.ndim:
        return _Written(attributes, {}, {"value": values.reshape(())} if word == "scalar" else {})
    sizes = {name: np.array(size, np.uint64) for name, size in zip(_SIZES[tensor.ndim], tensor.shape, strict=True)}
    arrays = {held: _stored(tensor.arrays[name]) for name, held in layout.arrays.items()}
    if values.ndim:
        return _Written(attributes, {**arrays, "values": values}, sizes)
    return _Written(attributes, arrays, {"values": values, **sizes})


def _json(tensor: Tensor, place: str) -> _Written:
    word, layout, tensor, comment = _sayable(tensor, place, "json")
    arrays = {held: _stored(tensor.arrays[name]) for name, held in layout.arrays.items()}
    said: dict[str, Any] = {"version": _VERSION, "format": word, "shape": list(tensor.shape)}
    types = {name: array.dtype.name for name, array in arrays.items()}
    said["data_types"] = {**types, "values": _type_name(_JSON_TYPES, tensor, place)}
    values = _values(tensor)
    if values.ndim:
        arrays["values"] = values
    else:
        said["iso_value"] = values.astype(tensor.dtype).item()
    if comment:
        said["comment"] = comment
    return _Written({"metadata": json.dumps(said)}, arrays, {})


def _sayable(tensor: Tensor, place: str, dialect: str) -> tuple[str, Layout, Tensor, str]:
    """The name of the tensor's format in the dialect, its layout, and the tensor without what a file does not have.

    Raises FormatError for what it would lose.
    """
    known = _DIALECTS[dialect]
    words = {layout.format.canonical(): word for word, layout in known.items()}
    word = words.get(tensor.format.canonical())
    if word is None:
        spelled = "; ".join(str(format) for format in words)
        what = f"the {dialect} dialect has no {tensor.format!s:.80}; convert it to one of {spelled}"
        raise FormatError(Problem(place, what))
    if tensor.structure is not None:
        raise FormatError(Problem(place, f"an sscdf file cannot say {tensor.structure}; expand_structure() first"))
    if tensor.fill_value is not None and tensor.fill_value != 0:
        raise FormatError(Problem(place, f"an sscdf file cannot say the fill value {tensor.fill_value}"))
    if word == "scalar_empty" and tensor.number_of_stored_values:
        word = "scalar"
    if tensor.format.alias in ("DCSR", "DCSC") and has_empty_fibers(tensor.arrays):
        tensor = tensor.convert("COOR" if tensor.format.alias == "DCSR" else "COOC").convert(tensor.format)
    comment = tensor.attributes.get("comment")
    return word, known[word], tensor, comment if isinstance(comment, str) else ""


def _type_name(table: Mapping[str, np.dtype[Any]], tensor: Tensor, place: str) -> str:
    for name, dtype in table.items():
        if dtype == tensor.dtype:
            return name
    raise FormatError(Problem(place, f"an sscdf file has no {tensor.dtype} values; it has {', '.join(table)}"))


def _values(tensor: Tensor) -> Array:
    """The values as they are stored, of an iso tensor the one, without a dimension."""
    values = tensor._tree.blanked().values
    if tensor.iso and len(values):
        values = values[0:1].reshape(())
    return values.view(np.int8) if values.dtype.kind == "b" else values


def _stored(array: Array) -> Array:
    """Booleans as bytes, integers as the one type that indices and pointers have."""
    if array.dtype.kind == "b":
        return array.view(np.int8)
    return array.view(np.uint64) if array.dtype == np.int64 else array.astype(np.uint64, copy=False)
