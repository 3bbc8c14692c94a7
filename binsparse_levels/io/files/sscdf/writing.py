"""Write tensors as objects of sscdf files, which the NetCDF library can open and extend."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import h5py
import numpy as np

from ....arrays import Array, one_piece
from ....containers.base import DEFAULT_STORAGE, Storage, wrap_errors
from ....containers.hdf5 import HDF5Writer, changing
from ....containers.netcdf import DEFAULT_FILLS, OPTIONS, next_dimension
from ....errors import ContainerError, FormatError, PathExistsError, Problem, raise_if
from ....formats.format import NO_EMPTY_FIBERS, has_empty_fibers
from ....limits import DEFAULT_LIMITS, Limits
from ....tensors.foreign import check_representable
from ....tensors.tensor import Tensor
from ..names import encodes
from . import dialects


class _Written(NamedTuple):
    """An object in a file: its attributes, its arrays, and its datasets without a dimension."""

    attributes: dict[str, str]
    arrays: dict[str, Array]
    scalars: dict[str, Array]


def write(
    path: str,
    tensor: Tensor,
    *,
    group: str | None = None,
    overwrite: bool = False,
    storage: Storage = DEFAULT_STORAGE,
    dialect: str = "native",
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Write the primary object of a new file, or an object with a name into a file, the rest of which is kept.

    If the attribute `comment` is a text, it becomes the comment; other attributes are not kept. Raises FormatError for
    a format, type, structure or fill value that sscdf does not have, PathExistsError, OptionError, LimitError for a
    comment that `read` would refuse.
    """
    options: dict[str, Any] = {"storage": storage, "dialect": dialect, "limits": limits}
    write_all(path, {group: tensor}, overwrite=overwrite, keep=group is not None, **options)


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
    storage.refuse("sscdf", but=("compression", "chunks"), compressions=("gzip", "none"))
    if storage.compression is None and dialect == "native":
        storage = replace(storage, compression="gzip")
    raise_if(FormatError, [problem for name in tensors if name is not None for problem in _name_problems(name)])
    objects = {}
    for name in sorted(tensors, key=lambda name: name is not None):  # the primary one first
        label = dialects.label_of(path, name)
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
                    if not overwrite or name not in dialects.groups_of(file):
                        label = dialects.label_of(path, name)
                        raise PathExistsError(Problem(label, "already exists; pass overwrite=True"))
                    del file[name]
                group = file.create_group(name, track_order=True)
            dimension = _put(group, made, storage, dimension)


def _prepare(file: h5py.File, path: str, dialect: str) -> int:
    """Check that a file has this dialect. Returns the number of its next dimension."""
    if not len(file) and not len(file.attrs):
        if dialect == "native":
            file.attrs["version"] = np.bytes_(dialects.VERSION)
        return 0
    groups = [file, *dialects.groups_of(file).values()]
    found = "native" if "version" in file.attrs else "json" if any(map(dialects.is_object, groups)) else None
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


def _name_problems(name: str) -> Iterator[Problem]:
    """The problems of a name of an object."""
    if not isinstance(name, str) or not name:
        yield Problem("name", f"expected a text, got {name!r:.40}")
    elif name in dialects.RESERVED:
        yield Problem("name", f"{name!r} is the name of an array; choose another")
    elif _FORBIDDEN.search(name) or not unicodedata.is_normalized("NFC", name) or not encodes(name):
        yield Problem("name", f"{name!r:.60} is no name that NetCDF allows; choose another")
    elif len(name.encode()) > 256:
        yield Problem("name", "NetCDF allows no name of more than 256 bytes; shorten it")


def _encoded(tensor: Tensor, label: str, dialect: str) -> _Written:
    """The object in a dialect. Raises FormatError for a tensor that a file cannot represent."""
    known = dialects.DIALECTS[dialect]
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
        names = dialects.SIZES[tensor.ndim]
        sizes = {name: np.array(size, np.uint64) for name, size in zip(names, tensor.shape, strict=True)}
        declared = _type_name(dialects.NATIVE_TYPES, tensor, label)
        return _Written({"format": word, "datatype": declared, **texts}, arrays, {**single, **sizes})
    types = {name: array.dtype.name for name, array in arrays.items()}
    types["values"] = _type_name(dialects.JSON_TYPES, tensor, label)
    described: dict[str, Any] = {"version": dialects.VERSION, "format": word, "shape": list(tensor.shape)}
    described["data_types"] = types
    if single:
        described["iso_value"] = values.astype(tensor.dtype).item()
    else:
        arrays["values"] = values
    return _Written({"metadata": json.dumps(described | texts)}, arrays, {})


def _type_name(table: Mapping[str, np.dtype[Any]], tensor: Tensor, label: str) -> str:
    for name, dtype in table.items():
        if dtype == tensor.dtype:
            return name
    raise FormatError(Problem(label, f"an sscdf file has no {tensor.dtype} values; it has {', '.join(table)}"))


def _values(tensor: Tensor) -> Array:
    """The stored values; for an iso tensor a single value, without a dimension."""
    values = tensor._tree.blanked().values
    if tensor.iso and len(values):
        values = values[0:1].reshape(())
    return values.view(np.int8) if values.dtype.kind == "b" else values


def _stored(array: Array) -> Array:
    """Booleans as bytes, integers as uint64, the type of all indices and pointers."""
    if array.dtype.kind == "b":
        return array.view(np.int8)
    return array.view(np.uint64) if array.dtype == np.int64 else array.astype(np.uint64, copy=False)
