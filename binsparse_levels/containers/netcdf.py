"""NetCDF-4: one variable on a dimension of its own for each array; the header is the global attribute `binsparse`.

A NetCDF-4 file is an HDF5 file and is read as one. It is written by netCDF4, with a fill value that is none of the
numbers in it, so that its readers take none for a missing one.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from ..arrays import Pieces
from ..errors import PathExistsError, PathMissingError, Problem
from ..limits import Limits
from .base import Storage, touching
from .hdf5 import ATTRIBUTE, CHUNK, arrays_in, list_groups, reading, walk
from .replacing import refuse_existing, replacing

__all__ = ["list_groups", "reading", "writing"]

_ONE_AT_A_TIME = threading.RLock()  # the library crashes where two threads write, even to two files


class NetCDFWriter:
    """A group of a file that is open for writing."""

    def __init__(self, file: Any, storage: Storage) -> None:
        self._file = file
        self._storage = storage

    def write(self, name: str, pieces: Pieces) -> None:
        if name in self._file.variables:
            raise PathExistsError(Problem(f"{self._file.path}/{name}", "is there already, and is no array of a tensor"))
        array = pieces.whole()  # whose fill value depends on all items
        compression = self._storage.of("compression", name)
        chunks = self._storage.of("chunks", name)
        options: dict[str, Any] = {"contiguous": True}
        if array.size and (compression == "gzip" or chunks):
            options = {
                "fletcher32": self._storage.checksum is not False,
                "chunksizes": (min(chunks or CHUNK, array.size),),
            }
        if "chunksizes" in options and compression == "gzip":
            options |= {"compression": "zlib", "shuffle": True}
        dimension = f"dim_{name}"
        while dimension in self._file.dimensions:  # of a variable that is not ours
            dimension += "_"
        self._file.createDimension(dimension, array.size or None)  # the library has no fixed dimension of length 0
        if not array.size:
            options = {}
        kind = array.dtype.newbyteorder("<").str
        variable = self._file.createVariable(name, kind, (dimension,), fill_value=_fill_value(array), **options)
        variable.set_auto_maskandscale(False)
        variable[:] = array

    def write_header(self, header: Mapping[str, Any]) -> None:
        self._file.setncattr(ATTRIBUTE, json.dumps(header))


def _fill_value(array: npt.NDArray[Any]) -> Any:
    """False where the library's own fill value is no item of the array, else a number that is none.

    Its readers take an item that equals the fill value of a variable for a missing one, whatever mode it was written
    in; of bytes they take none.
    """
    import netCDF4

    default = array.dtype.type(netCDF4.default_fillvals[array.dtype.str[1:]])
    if array.dtype.itemsize == 1 or not (array == default).any():
        return False
    for bits in range(2**16):  # one of them is none of the items, or all of a 16-bit type are
        other = np.array([default]).view(f"u{array.dtype.itemsize}") - np.array(bits).astype(f"u{array.dtype.itemsize}")
        candidate = other.view(array.dtype)[0]
        if not (array == candidate).any():
            return candidate
    return False


@contextlib.contextmanager
def writing(path: str, group: str | None, overwrite: bool, limits: Limits, storage: Storage) -> Iterator[NetCDFWriter]:
    """A new file, or a group of a copy of it, which takes its place when the block ends well.

    Raises PathExistsError, OptionError, and ImportError where netCDF4 is not installed.
    """
    import netCDF4

    storage.refuse("NetCDF", but=("compression", "chunks", "checksum"), compressions=("gzip", "none"))
    refuse_existing(path, overwrite or group is not None)
    with replacing(path, keep=group is not None) as part, _ONE_AT_A_TIME:
        adding = group is not None and os.path.getsize(part) > 0
        if adding:
            _make_room(part, f"{path}:{group}", group or "", overwrite, limits)
        with touching(path):
            file = netCDF4.Dataset(part, "a" if adding else "w")
        with file:
            with touching(f"{path}:{group or ''}"):
                place = file.createGroup(group) if group else file
            yield NetCDFWriter(place, storage)


def _make_room(part: str, place: str, group: str, overwrite: bool, limits: Limits) -> None:
    """Take a tensor out of its group, by h5py, because the netCDF library deletes nothing; what else is there stays."""
    with touching(place), h5py.File(part, "r+") as file:
        try:
            there = walk(file, group)
        except PathMissingError:
            return
        if ATTRIBUTE not in there.attrs:
            return
        if not overwrite:
            raise PathExistsError(Problem(place, "has a tensor; nobody asked to overwrite it"))
        for name in arrays_in(there, limits):
            lies_on = there[name].dims[0]
            for dimension in lies_on.values():
                lies_on.detach_scale(dimension)
                if "REFERENCE_LIST" not in dimension.attrs:  # no other variable lies on it
                    del there[dimension.name]
            del there[name]
        del there.attrs[ATTRIBUTE]
