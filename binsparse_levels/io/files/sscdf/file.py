"""sscdf (.sscdf): matrices, vectors and scalars of GraphBLAS in NetCDF-4 files, several in one by name.

There are two dialects, both of version 1.0: in the *native* one, attributes name the format and the type of an object;
in the *JSON* one, a text describes it. The primary object is in the root, every other one in a group with its name.
Files are read as HDF5, and written so that the NetCDF library can open and extend them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from ....arrays import Array, LazyArray, cut
from ....containers.base import wrap_errors
from ....containers.hdf5 import HDF5Reader, has_attribute, opened, read_text
from ....engine.tree import length_problems
from ....errors import ArrayError, ContainerError, PathMissingError, Problem, raise_if
from ....formats.descriptor import array_classes
from ....formats.json import load_json
from ....limits import DEFAULT_LIMITS, INT64_MAX, Limits
from ....tensors.validation import checked_fill
from ...file_tensors import FileTensor, named
from ..sources import Group
from . import dialects
from .dialects import VERSION, Spelling, groups_of, is_object, names_of
from .writing import write, write_all

__all__ = ["claims", "list_groups", "look", "write", "write_all"]


def claims(path: str | h5py.Group) -> bool:
    """Return True if an HDF5 file is of this kind, by its suffix, or the attributes of its root or first object.

    A file with a Binsparse tensor is not.
    """
    with contextlib.suppress(Exception), opened(path) as file:  # faults are reported when the file is read
        if has_attribute(file, "binsparse") or file.name != "/":
            return False
        if file.file.filename.lower().endswith(".sscdf"):
            return True
        for group in (file, *groups_of(file).values()):
            if "binsparse" in group.attrs:
                return False
            if is_object(group):
                native = read_text(file, "version", DEFAULT_LIMITS) == VERSION.encode()
                json = "data_types" in str(read_text(group, "metadata", DEFAULT_LIMITS))  # other files have metadata
                return json or ("datatype" in group.attrs and native)
    return False


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
    label = dialects.label_of(file.file.filename, group)
    with named({}, label), wrap_errors("attributes"):
        groups = groups_of(file)
        if group is not None and group not in groups:
            raise PathMissingError(Problem("", "no object of this name; see list_tensors"))
        place = file if group is None else groups[group]
        if not is_object(place):
            others = ", ".join(repr(other) for other in names_of(file)) or "none"
            raise ContainerError(Problem("", f"is no sscdf object; those of the file: {others:.200}"))
        look_in = _look_json if "metadata" in place.attrs else _look_native
        return look_in(_Source(HDF5Reader(place, limits), limits))._replace(label=label, ordered=True)


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

    def first(self, name: str, most: int | None, dtype: np.dtype[Any] | None = None) -> LazyArray:
        """The first `most` items of a one-dimensional dataset. dtype: the type to which they are converted.

        For booleans, any byte other than 0 is true, as in C, because unset cells may contain anything. The bytes of a
        bitmap are kept, to be checked.
        """
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


def _look_native(source: _Source) -> FileTensor:
    version = Group(HDF5Reader(source.reader.group.file, source.limits), source.limits).attribute_text("version")
    if version != dialects.VERSION:
        raise ContainerError(Problem("version", f"expected {dialects.VERSION}, got {version!r:.60}"))
    spelling: Spelling = _known(dialects.NATIVE, source.attribute_text("format"), "format")
    dtype = _known(dialects.NATIVE_TYPES, declared := source.attribute_text("datatype"), "datatype")
    comment = "" if source.attribute("comment") is None else source.attribute_text("comment")
    if not spelling.format.rank:
        if spelling.format.levels:
            arrays, value = {"bitmap_0": np.zeros(1, bool)}, np.zeros(1, dtype)
        else:
            source.expect("value", dtype, declared)
            arrays, value = {}, source.scalar("value").astype(dtype).reshape(1)
        return FileTensor(spelling.format, (), arrays, value, _attributes(comment), {"values": "value"})
    shape = tuple(source.size(name) for name in dialects.SIZES[spelling.format.rank])
    return _compared(source, spelling, shape, dtype, declared, None, comment)


def _look_json(source: _Source) -> FileTensor:
    described = load_json(source.attribute_text("metadata"), source.limits, constants=True)
    if not isinstance(described, dict):
        raise ContainerError(Problem("metadata", f"expected an object, got {described!r:.60}"))
    if (version := described.get("version")) != dialects.VERSION:
        raise ContainerError(Problem("metadata.version", f"expected {dialects.VERSION}, got {version!r:.60}"))
    words = {**dialects.JSON, "COO": dialects.JSON["COOR"]}
    spelling: Spelling = _known(words, described.get("format"), "metadata.format")
    shape: Any = described.get("shape")
    valid = isinstance(shape, list) and all(type(size) is int and 0 <= size <= INT64_MAX for size in shape)
    if not valid or len(shape) != spelling.format.rank:
        what = f"expected {spelling.format.rank} integers in 0 … 2**63 - 1, got {shape!r:.60}"
        raise ContainerError(Problem("metadata.shape", what))
    types = described.get("data_types")
    if not isinstance(types, dict):
        raise ContainerError(Problem("metadata.data_types", f"expected an object, got {types!r:.60}"))
    dtype = _known(dialects.JSON_TYPES, types.get("values"), "metadata.data_types.values")
    comment = described.get("comment", "")
    if not isinstance(comment, str):
        raise ContainerError(Problem("metadata.comment", f"expected a string, got {comment!r:.60}"))
    if spelling.format.alias in ("COOR", "COOC") and source.reader.array("indices_0") is None:
        spelling = dialects.NATIVE[spelling.format.alias.lower()]  # as in the specification, not in its program
    for name in spelling.arrays.values():
        if name in types:
            path = f"metadata.data_types.{name}"
            source.expect(name, _known(dialects.INTEGER_TYPES, types[name], path), types[name])
    iso = None
    if "iso_value" in described:
        value = described["iso_value"]
        if type(value) not in ((bool,) if dtype.kind == "b" else (int, float)):
            raise ContainerError(Problem("metadata.iso_value", f"expected a value of {dtype}, got {value!r:.60}"))
        try:
            iso = np.asarray(checked_fill(value, dtype))
        except (ArrayError, OverflowError):
            raise ContainerError(Problem("metadata.iso_value", f"{value!r:.60} is no {dtype}")) from None
    return _compared(source, spelling, tuple(shape), dtype, types["values"], iso, comment)


def _compared(
    source: _Source,
    spelling: Spelling,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    declared: str,
    iso: Array | None,
    comment: str,
) -> FileTensor:
    """The object, after a check of the metadata of all arrays. iso: the only value, if an attribute contains it."""
    format = spelling.format
    dims = tuple(shape[k] for k in format.order)
    # Programs write all that they have allocated: items after the last cell are ignored.
    cells = math.prod(shape)
    by_cell = all(level.gaps or level.padded for level in format.levels)
    most = cells if by_cell else None
    arrays = {}
    for name, role_class in array_classes(format).items():
        dtype_of = np.dtype(bool) if role_class == "bool" else None
        if dtype_of:
            source.expect(spelling.arrays[name], dtype_of, "booleans")
        arrays[name] = source.first(spelling.arrays[name], most, dtype_of)
    values: Any = iso
    if iso is None:
        source.expect("values", dtype, declared)
        if source.array("values").shape == ():
            values = source.scalar("values").astype(dtype)
        else:
            values = source.first("values", most, dtype)
    count = len(values) if isinstance(values, LazyArray) else None
    with named(spelling.arrays):
        raise_if(ArrayError, length_problems(format.levels, dims, arrays, count)[0])
    return FileTensor(format, shape, arrays, values, _attributes(comment), spelling.arrays)


def _attributes(comment: str) -> dict[str, Any]:
    return {"comment": comment} if comment else {}
