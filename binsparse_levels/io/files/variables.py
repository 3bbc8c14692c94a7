"""Variables of NetCDF files of other programs: version 4, which is HDF5, in place; version 3 by scipy, in memory."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np

from ...containers import hdf5
from ...containers.base import wrap_errors
from ...errors import ContainerError, Problem, needing
from ...limits import DEFAULT_LIMITS, Limits
from .sources import Group

UNNAMED = "This is a netCDF dimension but not a netCDF variable"  # the name of a scale without coordinates
_ATTRIBUTES = ("compress", "units", "_FillValue", "missing_value", "scale_factor", "add_offset")


@contextlib.contextmanager
def opened(path: Any) -> Iterator[h5py.File]:
    """The variables of a file of version 3 in a file of HDF5 in memory, as version 4 has them.

    path: or a stream. Raises ContainerError, LimitError, PackageMissingError.
    """
    with needing("scipy"):
        from scipy.io import netcdf_file
    with open(path, "rb") if isinstance(path, str) else contextlib.nullcontext(path) as stream:
        DEFAULT_LIMITS.hold("array_bytes", stream.seek(0, os.SEEK_END), str(path), "the size in bytes of the file")
        stream.seek(0)
        data = io.BytesIO(stream.read())
    with h5py.File(secrets.token_hex(8), "w", driver="core", backing_store=False) as file:
        try:
            _copy(netcdf_file(data, mmap=False), file)
        except Exception as error:  # of many classes, for a damaged file
            what = f"is no whole NetCDF file of version 1 or 2: {error!r:.80}"
            raise ContainerError(Problem(str(path), f"{what}; fetch it again, or run nccopy -k nc4")) from None
        yield file


def _copy(source: Any, file: h5py.File) -> None:
    for name, variable in source.variables.items():
        stored = file.create_dataset(name, data=np.array(variable.data, variable.data.dtype.newbyteorder("=")))
        stored.attrs.update({key: x for key, x in variable._attributes.items() if key in _ATTRIBUTES})
    for name, size in source.dimensions.items():
        if name not in file:
            used = [v.shape[v.dimensions.index(name)] for v in source.variables.values() if name in v.dimensions]
            file.create_dataset(name, (next(iter(used), 0) if size is None else size,), "f4")  # of no bytes
            file[name].make_scale(UNNAMED)
        else:
            file[name].make_scale(name)
    for name, variable in source.variables.items():
        for k, dimension in enumerate(variable.dimensions):
            if dimension != name:
                file[name].dims[k].attach_scale(file[dimension])


class Variables(Group):
    """The variables in a group of HDF5, whose dimensions are dimension scales."""

    def __init__(self, group: h5py.Group, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(hdf5.HDF5Reader(group, limits), limits)

    def dims(self, name: str) -> list[str]:
        """The names of the dimensions of a variable, each an empty text if it has none. Raises ContainerError."""
        with wrap_errors(name):
            array = self.reader.group[name]
            scales = [next(iter(dimension.values()), None) for dimension in array.dims]
            if scales == [None] and array.is_scale:
                return [name]
            return ["" if scale is None else scale.name.rpartition("/")[2] for scale in scales]

    def size(self, dimension: str) -> int:
        """The size of a dimension. Raises PathMissingError, ArrayError."""
        return len(self.one_dimension(dimension))

    def attribute_of(self, variable: str, name: str) -> Any:
        """An attribute of a variable, a list of one item as this item; None if it is missing. Raises ContainerError."""
        value = Group(SimpleNamespace(group=self.reader.group[variable]), self.limits).attribute(name)
        return value[0] if isinstance(value, list) and len(value) == 1 else value
