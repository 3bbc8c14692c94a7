"""sscdf (.sscdf): matrices, vectors and scalars of GraphBLAS in NetCDF-4 files, several in one by name.

There are two dialects, which both call themselves 1.0: in the *native* one attributes name the format and the type of
an object, in the *JSON* one a text describes it. The primary object lies in the root, every other one in a group of its
name. Files are read as HDF5, and written so that the NetCDF library opens and extends them.
"""

from __future__ import annotations

import contextlib

import h5py

from ....containers.hdf5 import has_attribute, opened, read_text
from ....limits import DEFAULT_LIMITS, Limits
from ...file_tensors import FileTensor
from . import reading
from .dialects import VERSION, groups_of, is_object, names_of
from .writing import write, write_all

__all__ = ["claims", "list_groups", "look", "write", "write_all"]


def claims(path: str | h5py.Group) -> bool:
    """Whether an HDF5 file is of this kind, by its suffix, or the attributes of its root or first object.

    A file with a Binsparse tensor is not.
    """
    with contextlib.suppress(Exception), opened(path) as file:  # who reads a damaged file tells its faults
        if has_attribute(file, "binsparse") or file.name != "/":
            return False
        if file.file.filename.lower().endswith(".sscdf"):
            return True
        for group in (file, *groups_of(file).values()):
            if "binsparse" in group.attrs:
                return False
            if is_object(group):
                native = read_text(file, "version", DEFAULT_LIMITS) == VERSION.encode()
                json = "data_types" in str(read_text(group, "metadata", DEFAULT_LIMITS))  # others have metadata, too
                return json or ("datatype" in group.attrs and native)
    return False


def list_groups(path: str, limits: Limits) -> list[str]:
    """The names of the objects, in the order of the file; the primary one as an empty string."""
    with opened(path) as file:
        return [name or "" for name in names_of(file)]


def look(
    path: str | h5py.Group, closing: contextlib.ExitStack, *, group: str | None = None, limits: Limits
) -> FileTensor:
    """The primary object, or the one of that name, with lazy arrays. A comment becomes the attribute `comment`.

    Raises ContainerError, UnsafeError, ArrayError, FormatError, LimitError for an invalid object.
    """
    return reading.look(closing.enter_context(opened(path)), group, limits)
