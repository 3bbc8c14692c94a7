"""sscdf (.sscdf): matrices, vectors and scalars of GraphBLAS in NetCDF-4 files, several in one by name.

There are two dialects, which both call themselves 1.0: in the *native* one attributes name the format and the type of
an object, in the *JSON* one a text describes it. The primary object lies in the root, every other one in a group of its
name. Files are read as HDF5, and written so that the NetCDF library opens and extends them.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import h5py

from ....containers.hdf5 import has_attribute, opened, read_text
from ....errors import ContainerError, DialectWarning, Problem
from ....formats.format import has_empty_fibers
from ....limits import DEFAULT_LIMITS, Limits
from ....tensors.held import Check
from ....tensors.tensor import Tensor
from ...decoding import FileTensor
from ..sources import named
from .dialects import VERSION, groups_of, is_object, label_of, names_of
from .reading import look
from .writing import write, write_all

__all__ = ["claims", "list_groups", "looking", "read", "read_all", "write", "write_all"]


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


def read(path: str, *, name: str | None = None, check: Check = "full", limits: Limits = DEFAULT_LIMITS) -> Tensor:
    """The primary object, or the one of that name. A comment becomes the attribute `comment`.

    Raises ContainerError, UnsafeError, ArrayError, FormatError, LimitError for an invalid object.
    """
    with opened(path) as file:
        return _load(file, name, check, limits)


def read_all(path: str, *, check: Check = "full", limits: Limits = DEFAULT_LIMITS) -> dict[str | None, Tensor]:
    """All objects by name, the primary one under None. Raises what `read` raises."""
    with opened(path) as file:
        names = names_of(file)
        if not names:
            raise ContainerError(Problem(file.file.filename, "holds no sscdf object; see list_tensors"))
        return {name: _load(file, name, check, limits) for name in names}


@contextlib.contextmanager
def looking(path: str, *, name: str | None = None, limits: Limits = DEFAULT_LIMITS) -> Iterator[FileTensor]:
    """One object of an open file, with lazy arrays, of which no item is checked. Raises what `read` raises."""
    with opened(path) as file:
        yield look(file, name, limits)


def _load(file: h5py.File, name: str | None, check: Check, limits: Limits) -> Tensor:
    stored, label = look(file, name, limits), label_of(file.file.filename, name)
    with named(stored.names, label):
        arrays = {name: array[:] for name, array in stored.arrays.items()}
        values = stored.values[:] if stored.values.shape else stored.values
        options: dict[str, Any] = {"attributes": stored.attributes, "check": check, "limits": limits}
        tensor = Tensor._owning(stored.format, stored.shape, arrays, values, **options)
    if "indices_0" in arrays and "pointers_to_1" in arrays and has_empty_fibers(arrays["pointers_to_1"]):
        what = f"{label}: {stored.names['pointers_to_1']}: a row or column without an entry is stored"
        warnings.warn(what, DialectWarning, stacklevel=5)
    return tensor
