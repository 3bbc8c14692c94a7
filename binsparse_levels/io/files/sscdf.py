"""sscdf (.sscdf): matrices, vectors and scalars of GraphBLAS in NetCDF-4 files, several in one by name.

There are two dialects, both of version 1.0: in the *native* one, attributes name the format and the type of an object;
in the *JSON* one, a text describes it. The primary object is in the root, every other one in a group with its name.
Files are read as HDF5, and written so that the NetCDF library can open and extend them.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import h5py
import numpy as np

from ...arrays import Array, LazyArray, cut, one_piece
from ...containers.base import DEFAULT_STORAGE, Storage, wrap_errors
from ...containers.hdf5 import COMPRESSIONS, HDF5Reader, HDF5Writer, has_attribute, opened, read_text
from ...containers.hdf5_files import changing
from ...containers.netcdf import DEFAULT_FILLS, OPTIONS, next_dimension
from ...errors import ArrayError, ContainerError, FormatError, PathExistsError, PathMissingError, Problem, UnsafeError
from ...formats.descriptor import array_classes
from ...formats.dtypes import INTEGERS
from ...formats.format import ALIASES, NO_EMPTY_FIBERS, Format, parse_format
from ...formats.json import load_json
from ...levels.pointers import has_empty_fibers
from ...limits import DEFAULT_LIMITS, INT64_MAX, Limits
from ...tensors.foreign import check_representable
from ...tensors.tensor import Tensor, inside
from ...tensors.validation import checked_fill
from ..file_tensors import FileTensor, named
from ..interface import Foreign
from .names import encodes
from .sources import Group


class Spelling(NamedTuple):
    """A format, and the names of its arrays in the file by stored name."""

    format: Format
    arrays: Mapping[str, str]


# The names are those of GraphBLAS, except `scalar` and `scalar_empty`.
_NATIVE: dict[str, tuple[str, dict[str, str]]] = {
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
NATIVE = {name: Spelling(parse_format(format), arrays) for name, (format, arrays) in _NATIVE.items()}
JSON = {
    # The array names are those of Binsparse, except the pointers.
    alias.replace("CV", "V"): Spelling(format, {name: name.replace("to_1", "0") for name in array_classes(format)})
    for alias, format in ALIASES.items()
    if alias in ("CSR", "CSC", "DCSR", "DCSC", "COOR", "COOC", "CVEC")
}
DIALECTS = {"native": NATIVE, "json": JSON}
SIZES: tuple[tuple[str, ...], ...] = ((), ("size",), ("nrows", "ncols"))
INTEGER_TYPES = {name: np.dtype(name) for name in INTEGERS}
NATIVE_TYPES = {"bool": np.dtype(bool), **INTEGER_TYPES, "fp32": np.dtype("f4"), "fp64": np.dtype("f8")}
JSON_TYPES = {"bool": np.dtype(bool), **INTEGER_TYPES, "float32": np.dtype("f4"), "float64": np.dtype("f8")}
VERSION = "1.0"
RESERVED = {"values", "value", *SIZES[1], *SIZES[2]}.union(
    *(spelling.arrays.values() for known in DIALECTS.values() for spelling in known.values())
)


def groups_of(file: h5py.File) -> dict[str, h5py.Group]:
    """The groups in the root. Raises UnsafeError for a link that leads out of it, or back to it."""
    children = {}
    root = h5py.h5o.get_info(file.id).addr
    for name in file.keys():  # noqa: SIM118 (items would follow links)
        link = file.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise UnsafeError(Problem(name, f"a {type(link).__name__} is not followed; copy its target into the file"))
        child = file[name]
        if isinstance(child, h5py.Group):
            if h5py.h5o.get_info(child.id).addr == root:
                raise UnsafeError(Problem(name, "is a link to the root of the file; delete it"))
            children[name] = child
    return children


def is_object(group: h5py.Group) -> bool:
    """Return True if a group is marked as an object."""
    return any(key in group.attrs for key in ("metadata", "format", "datatype"))


def names_of(file: h5py.File) -> list[str | None]:
    """The names of the objects, in the order of the file; None for the primary one."""
    with wrap_errors(file.file.filename):
        objects = [name for name, group in groups_of(file).items() if is_object(group)]
        return [None, *objects] if is_object(file) else [*objects]


# Reading


def claims(path: str | h5py.Group) -> list[str]:
    """The file itself, if it is of this kind by its suffix, or by the attributes of its root or first object.

    A file with a Binsparse tensor is not.
    """
    with contextlib.suppress(Exception), opened(path) as file:  # faults are reported when the file is read
        if has_attribute(file, "binsparse") or file.name != "/":
            return []
        if file.file.filename.lower().endswith(".sscdf"):
            return [""]
        for group in (file, *groups_of(file).values()):
            if "binsparse" in group.attrs:
                return []
            if is_object(group):
                native = read_text(file, "version", DEFAULT_LIMITS) == VERSION.encode()
                described = "data_types" in str(read_text(group, "metadata", DEFAULT_LIMITS))  # as in no other file
                return [""] * (described or ("datatype" in group.attrs and native))
    return []


def list_groups(path: str, limits: Limits) -> list[str]:
    """The names of the objects, in the order of the file; the primary one as an empty string."""
    with opened(path) as file:
        return [name or "" for name in names_of(file)]


def look(
    path: str | h5py.Group, closing: contextlib.ExitStack, *, group: str | None = None, limits: Limits
) -> FileTensor:
    """The primary object, or the one with a name, with lazy arrays. A comment becomes the attribute `comment`.

    Raises ContainerError, UnsafeError, ArrayError, FormatError, LimitError for an invalid object.
    """
    file = closing.enter_context(opened(path))
    label = file.file.filename + (f":{group}" if group else "")
    with named({}, label), wrap_errors("attributes"):
        groups = groups_of(file)
        if group is not None and group not in groups:
            raise PathMissingError(Problem("", "no object of this name"))
        place = file if group is None else groups[group]
        if not is_object(place):
            others = ", ".join(repr(other) for other in names_of(file)) or "none"
            raise ContainerError(Problem("", f"is no sscdf object; those of the file: {others:.200}"))
        look_in = _look_json if "metadata" in place.attrs else _look_native
        found, comment = look_in(_Source(HDF5Reader(place, limits), limits))
        return found._replace(label=label, ordered=True, attributes={"comment": comment} if comment else {})


class _Source(Group):
    """The group of an object."""

    def scalar(self, name: str) -> Array:
        """A dataset without a dimension."""
        if self.array(name).shape != ():
            raise ArrayError(Problem(name, f"expected a scalar, got shape {self.array(name).shape}"))
        with wrap_errors(name):
            scalar: Array = self.reader.group[name][()]
            return scalar

    def size(self, name: str) -> int:
        """The size of a dimension."""
        if (dtype := self.array(name).dtype).kind not in "iu":
            raise ArrayError(Problem(name, f"expected an integer type, got {dtype}"))
        size = int(self.scalar(name))
        if not 0 <= size <= INT64_MAX:
            raise ArrayError(Problem(name, f"{size} is not in 0 … 2**63 - 1"))
        return size

    def first(self, name: str, most: int | None, dtype: np.dtype[Any] | None = None, declared: str = "") -> LazyArray:
        """The first `most` items of a one-dimensional dataset. dtype, declared: their type, and its name in the file.

        For booleans, any byte other than 0 is true, as in C, because unset cells may contain anything. The bytes of a
        bitmap are kept, to be checked.
        """
        if dtype is not None:
            self.expect(name, dtype, declared)
        stored = self.one_dimension(name)
        if most is not None and most < len(stored):
            stored = cut(stored, 0, most)
        meant = dtype or stored.dtype.newbyteorder("=")
        if meant == stored.dtype:
            return stored
        return stored.mapped(lambda x: x.view(meant) if name == "bitmap" else x.astype(meant), meant)

    def expect(self, name: str, dtype: np.dtype[Any], declared: str) -> None:
        """Raise ArrayError for a dataset of another type than the declared one."""
        stored = self.array(name).dtype.newbyteorder("=")
        if stored != dtype and not (dtype.kind == "b" and stored.kind in "iu" and stored.itemsize == 1):
            raise ArrayError(Problem(name, f"declared {declared}, stored as {stored}"))


def _known(table: Mapping[str, Any], word: Any, path: str) -> Any:
    if not isinstance(word, str) or word not in table:
        raise ContainerError(Problem(path, f"unknown {word!r:.60}; known are {', '.join(table)}"))
    return table[word]


def _look_native(source: _Source) -> tuple[FileTensor, str]:
    """The object and its comment."""
    version = Group(HDF5Reader(source.reader.group.file, source.limits), source.limits).attribute_text("version")
    if version != VERSION:
        raise ContainerError(Problem("version", f"expected {VERSION}, got {version!r:.60}"))
    spelling: Spelling = _known(NATIVE, source.attribute_text("format"), "format")
    dtype = _known(NATIVE_TYPES, declared := source.attribute_text("datatype"), "datatype")
    comment = "" if source.attribute("comment") is None else source.attribute_text("comment")
    if not spelling.format.rank:
        if spelling.format.levels:
            arrays, value = {"bitmap_0": np.zeros(1, bool)}, np.zeros(1, dtype)
        else:
            source.expect("value", dtype, declared)
            arrays, value = {}, source.scalar("value").astype(dtype).reshape(1)
        return FileTensor(spelling.format, (), arrays, value, {}, {"values": "value"}), comment
    shape = tuple(source.size(name) for name in SIZES[spelling.format.rank])
    return _arrays(source, spelling, shape, dtype, declared), comment


def _look_json(source: _Source) -> tuple[FileTensor, str]:
    described = load_json(source.attribute_text("metadata"), source.limits, constants=True)
    if not isinstance(described, dict):
        raise ContainerError(Problem("metadata", f"expected an object, got {described!r:.60}"))
    if (version := described.get("version")) != VERSION:
        raise ContainerError(Problem("metadata.version", f"expected {VERSION}, got {version!r:.60}"))
    spelling: Spelling = _known({**JSON, "COO": JSON["COOR"]}, described.get("format"), "metadata.format")
    shape: Any = described.get("shape")
    valid = isinstance(shape, list) and all(type(size) is int and 0 <= size <= INT64_MAX for size in shape)
    if not valid or len(shape) != spelling.format.rank:
        what = f"expected {spelling.format.rank} integers in 0 … 2**63 - 1, got {shape!r:.60}"
        raise ContainerError(Problem("metadata.shape", what))
    types = described.get("data_types")
    if not isinstance(types, dict):
        raise ContainerError(Problem("metadata.data_types", f"expected an object, got {types!r:.60}"))
    dtype = _known(JSON_TYPES, types.get("values"), "metadata.data_types.values")
    comment = described.get("comment", "")
    if not isinstance(comment, str):
        raise ContainerError(Problem("metadata.comment", f"expected a string, got {comment!r:.60}"))
    if spelling.format.alias in ("COOR", "COOC") and source.reader.array("indices_0") is None:
        spelling = NATIVE[spelling.format.alias.lower()]  # as in the specification, not in its program
    for name in spelling.arrays.values():
        if name in types:
            path = f"metadata.data_types.{name}"
            source.expect(name, _known(INTEGER_TYPES, types[name], path), types[name])
    iso = None
    if "iso_value" in described:
        value = described["iso_value"]
        if type(value) not in ((bool,) if dtype.kind == "b" else (int, float)):
            raise ContainerError(Problem("metadata.iso_value", f"expected a value of {dtype}, got {value!r:.60}"))
        try:
            iso = np.asarray(checked_fill(value, dtype))
        except (ArrayError, OverflowError):
            raise ContainerError(Problem("metadata.iso_value", f"{value!r:.60} is no {dtype}")) from None
    return _arrays(source, spelling, tuple(shape), dtype, types["values"], iso), comment


def _arrays(
    source: _Source, spelling: Spelling, shape: tuple[int, ...], dtype: np.dtype[Any], declared: str, iso: Any = None
) -> FileTensor:
    """The object. dtype, declared: as for `first`. iso: the only value, if an attribute contains it."""
    format, types = spelling.format, {"bool": (np.dtype(bool), "booleans")}
    # Programs write all that they have allocated: items after the last cell are ignored.
    most = math.prod(shape) if all(level.gaps or level.padded for level in format.levels) else None
    of_levels = array_classes(format).items()
    arrays = {name: source.first(spelling.arrays[name], most, *types.get(holds, ())) for name, holds in of_levels}
    if iso is None and source.array("values").shape == ():
        source.expect("values", dtype, declared)
        iso = source.scalar("values").astype(dtype)
    values = source.first("values", most, dtype, declared) if iso is None else iso
    return FileTensor(format, shape, arrays, values, {}, spelling.arrays)


# Writing


class _Written(NamedTuple):
    """An object in a file: its attributes, its arrays, and its datasets without a dimension."""

    attributes: dict[str, str]
    arrays: dict[str, Array]
    scalars: dict[str, Array]


def write(path: str, tensor: Tensor, *, group: str | None = None, **options: Any) -> None:
    """Write the primary object of a new file, or an object with a name into a file, the rest of which is kept.

    If the attribute `comment` is a text, it becomes the comment; other attributes are not kept. Raises FormatError for
    a format, type, structure or fill value that sscdf does not have, PathExistsError, OptionError, LimitError for a
    comment that `read` would refuse.
    """
    write_all(path, {group: tensor}, keep=group is not None, **options)


def write_all(
    path: str,
    tensors: Mapping[str | None, Tensor],
    *,
    overwrite: bool = False,
    storage: Storage = DEFAULT_STORAGE,
    dialect: str = "native",
    limits: Limits = DEFAULT_LIMITS,
    keep: bool = False,
) -> None:
    """Write a file of objects by name, the primary one under None, atomically. Raises the errors of `write`.

    keep: keep the other objects of an existing file.
    """
    if not tensors:
        raise FormatError(Problem(path, "no tensors were given; pass one or more"))
    storage.refuse("sscdf", but=("compression", "chunks"), compressions=COMPRESSIONS)
    if storage.compression is None and dialect == "native":
        storage = replace(storage, compression="gzip")
    for name in tensors:
        if name is not None and not _is_name(name):
            what = f"{name!r:.60} is no name that NetCDF allows, or that of an array; choose another"
            raise FormatError(Problem("name", what))
    objects = {}
    for name in sorted(tensors, key=lambda name: name is not None):  # the primary one first
        label = path + (f":{name}" if name else "")
        objects[name] = _encoded(tensors[name], label, dialect)
        for key, text in objects[name].attributes.items():
            limits.hold("header_bytes", len(text.encode()), f"{label}: {key}", "the length of the attribute")
    storage.check_names({name for made in objects.values() for name in made.arrays})
    with changing(path, overwrite, None, keep=keep, **OPTIONS) as file, wrap_errors(path):
        dimension = _prepare(file, path, dialect)
        for name, made in objects.items():
            group = file
            if name is not None:
                if name in file.keys():  # noqa: SIM118 (`in file` follows links)
                    if not overwrite or name not in groups_of(file):
                        raise PathExistsError(Problem(f"{path}:{name}", "already exists; pass overwrite=True"))
                    del file[name]
                group = file.create_group(name, track_order=True)
            dimension = _put(group, made, storage, dimension)


def _prepare(file: h5py.File, path: str, dialect: str) -> int:
    """Check that a file has this dialect. Returns the number of its next dimension."""
    if not len(file) and not len(file.attrs):
        if dialect == "native":
            file.attrs["version"] = np.bytes_(VERSION)
        return 0
    groups = [file, *groups_of(file).values()]
    found = "native" if "version" in file.attrs else "json" if any(map(is_object, groups)) else None
    if found != dialect:
        what = f"is no sscdf file of the {dialect} dialect, and nothing is added to it; choose another path"
        raise ContainerError(Problem(path, what))
    return next_dimension(file)


def _put(group: h5py.Group, made: _Written, storage: Storage, dimension: int) -> int:
    """Write one object. Returns the number of the next dimension."""
    for key, text in made.attributes.items():
        group.attrs[key] = np.bytes_(text) if text.isascii() else text
    writer = HDF5Writer(group, storage)
    for name, array in made.arrays.items():
        writer.write(name, one_piece(array))
        group[name].make_scale(name)  # each array is its own dimension
        group[name].attrs["_Netcdf4Dimid"] = np.int32(dimension)
        group[name].attrs["_Netcdf4Coordinates"] = np.array([dimension], np.int32)
        dimension += 1
    for name, value in made.scalars.items():
        dataset = group.create_dataset(name, data=value)
        if value == DEFAULT_FILLS.get(value.dtype.str[1:]):  # else the scalar would be read as missing
            dataset.attrs["_FillValue"] = np.zeros(1, value.dtype)
    return dimension


_FORBIDDEN = re.compile(r"[\x00-\x1f/\x7f]|^[^A-Za-z0-9\u0080-\U0010ffff]|[ ]$")


def _is_name(name: str) -> bool:
    """Return True if an object can have this name."""
    fits = isinstance(name, str) and name not in RESERVED and not _FORBIDDEN.search(name) and encodes(name)
    return fits and unicodedata.is_normalized("NFC", name) and 0 < len(name.encode()) <= 256


def _encoded(tensor: Tensor, label: str, dialect: str) -> _Written:
    """The object in a dialect. Raises FormatError for a tensor that a file cannot represent."""
    known = DIALECTS[dialect]
    words = {spelling.format.canonical(): word for word, spelling in known.items()}
    word = words.get(tensor.format.canonical())
    if word is None:
        spelled = "; ".join(str(format) for format in words)
        what = f"the {dialect} dialect has no {tensor.format!s:.80}; convert it to one of {spelled}"
        raise FormatError(Problem(label, what))
    check_representable(tensor, "an sscdf file", label)
    if tensor.format.alias in NO_EMPTY_FIBERS and has_empty_fibers(tensor.arrays["pointers_to_1"]):
        tensor = tensor.convert("COOR" if tensor.format.alias == "DCSR" else "COOC").convert(tensor.format)
    comment = tensor.attributes.get("comment")
    texts = {"comment": comment} if comment and isinstance(comment, str) else {}
    arrays = {theirs: _stored(tensor.arrays[name]) for name, theirs in known[word].arrays.items()}
    values = _values(tensor)
    single = {} if values.ndim else {"values": values}
    if dialect == "native":
        if not encodes(texts.get("comment", "")):
            raise FormatError(Problem(f"{label}: comment", "NetCDF cannot store this text; remove NUL characters"))
        if not tensor.ndim:
            word, arrays = "scalar" if tensor.number_of_stored_values else word, {}
            single = {"value": values.reshape(())} if word == "scalar" else {}
        elif values.ndim:
            arrays["values"] = values
        sizes = dict(zip(SIZES[tensor.ndim], np.array(tensor.shape, np.uint64), strict=True))
        declared = _type_name(NATIVE_TYPES, tensor, label)
        return _Written({"format": word, "datatype": declared, **texts}, arrays, {**single, **sizes})
    types = {name: array.dtype.name for name, array in arrays.items()}
    types["values"] = _type_name(JSON_TYPES, tensor, label)
    described = {"version": VERSION, "format": word, "shape": list(tensor.shape), "data_types": types}
    if single:
        described["iso_value"] = values.astype(tensor.dtype).item()
    else:
        arrays["values"] = values
    return _Written({"metadata": json.dumps(described | texts)}, arrays, {})


def _type_name(table: Mapping[str, np.dtype[Any]], tensor: Tensor, label: str) -> str:
    names = [name for name, dtype in table.items() if dtype == tensor.dtype]
    if not names:
        raise FormatError(Problem(label, f"an sscdf file has no {tensor.dtype} values; it has {', '.join(table)}"))
    return names[0]


def _values(tensor: Tensor) -> Array:
    """The stored values; for an iso tensor a single value, without a dimension."""
    values = inside(tensor).tree.blanked().values
    values = values[0:1].reshape(()) if tensor.iso and len(values) else values
    return values.view(np.int8) if values.dtype.kind == "b" else values


def _stored(array: Array) -> Array:
    """Booleans as bytes, integers as uint64, the type of all indices and pointers."""
    if array.dtype.kind == "b":
        return array.view(np.int8)
    return array.view(np.uint64) if array.dtype == np.int64 else array.astype(np.uint64, copy=False)


FUNCTIONS = Foreign(look=look, claims=claims, list_groups=list_groups, write=write, write_all=write_all)
