"""NetCDF-4: for each array one variable with its own dimension; the header is the global attribute `binsparse`.

A NetCDF-4 file is an HDF5 file with dimension scales. h5py reads and writes it such that the NetCDF library can open
and extend it.
"""

from __future__ import annotations

import functools
from typing import Any

import h5py
import numpy as np

from ..arrays import Array, Pieces
from ..limits import Limits
from . import hdf5
from .base import Storage
from .hdf5 import HDF5Writer, has_attribute, list_groups, members_in, neighbours, others, reading
from .interface import Container

# The NetCDF library extends only files that track the order in which objects were created.
OPTIONS: dict[str, Any] = {"track_order": True, "libver": ("v108", "v108")}

# The library reads items of these values as missing. Types of one byte have no such value.
DEFAULT_FILLS = {
    "i2": -(2**15) + 1, "i4": -(2**31) + 1, "i8": -(2**63) + 2, "u2": 2**16 - 1, "u4": 2**32 - 1, "u8": 2**64 - 2,
    "f4": np.float32(9.969209968386869e36), "f8": 9.969209968386869e36,
}  # fmt: skip
_CANDIDATES = 2**16  # fill values, of which an array rarely contains all


def next_dimension(file: h5py.File) -> int:
    """The identifier of the next dimension of a file."""
    used = [-1]
    file.visititems(lambda _, item: used.append(int(item.attrs.get("_Netcdf4Dimid", -1))))
    return max(used) + 1


class NetCDFWriter(HDF5Writer):
    """A group of a file that is open for writing."""

    def __init__(self, group: h5py.Group, storage: Storage) -> None:
        super().__init__(group, storage)
        self._dimension, file = next_dimension(group.file), group.file
        if file.id.get_create_plist().get_link_creation_order() and not has_attribute(file, "_NCProperties"):
            versions = f"version=2,h5py={h5py.version.version},hdf5={h5py.version.hdf5_version}"
            file.attrs["_NCProperties"] = np.bytes_(versions)

    def write(self, name: str, pieces: Pieces) -> None:
        default, width = DEFAULT_FILLS.get(pieces.dtype.str[1:]), pieces.dtype.itemsize
        taken = np.zeros(_CANDIDATES, bool)  # by the difference of the default fill value and an item, as integers
        first = np.array([default or 0], pieces.dtype).view(f"u{width}")

        def note(piece: Array) -> Array:
            below = first - np.ascontiguousarray(piece, pieces.dtype).view(first.dtype)
            taken[below[below < _CANDIDATES]] = True
            return piece

        super().write(name, pieces if default is None else pieces.mapped(note, 1, pieces.dtype))
        dataset = self.group[name]
        if taken[0] and not taken.all():
            fill = first - np.array(np.argmin(taken)).astype(first.dtype)
            dataset.attrs["_FillValue"] = fill.view(pieces.dtype)
        self._lay_on_dimension(dataset, f"dim_{name}")

    def _lay_on_dimension(self, dataset: h5py.Dataset, name: str) -> None:
        """Create a dimension for an array, without coordinates and of no bytes."""
        while name in self.group.keys():  # noqa: SIM118 (`in group` follows links)
            name += "_"  # the other dimension has a variable that is not ours
        scale = self.group.create_dataset(name, dataset.shape, ">f4")
        scale.make_scale(f"This is a netCDF dimension but not a netCDF variable.{dataset.size:10}")
        scale.attrs["_Netcdf4Dimid"] = np.int32(self._dimension)
        dataset.attrs["_Netcdf4Coordinates"] = np.array([self._dimension], np.int32)
        dataset.dims[0].attach_scale(scale)
        self._dimension += 1

    def clear(self, limits: Limits) -> None:
        """Delete the tensor in the group: its header, its arrays and orders, and the dimensions of these alone."""
        members = [self.group[name] for name in members_in(self.group, limits)]
        for lies_on in [member.dims[0] for member in members if isinstance(member, h5py.Dataset)]:
            for dimension in lies_on.values():
                lies_on.detach_scale(dimension)
                if "REFERENCE_LIST" not in dimension.attrs:  # no other variable has it
                    del self.group[dimension.name]
        super().clear(limits)


writing = functools.partial(hdf5.writing, by=NetCDFWriter, **OPTIONS)
FUNCTIONS = Container(reading=reading, writing=writing, list_groups=list_groups, others=others, neighbours=neighbours)
