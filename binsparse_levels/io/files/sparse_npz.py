"""Sparse arrays that scipy (csr, csc, coo) and pydata/sparse (COO) keep in an NPZ file, read only.

Members that are stored plainly are read where they are sliced, deflated ones whole.
"""

from __future__ import annotations

import contextlib
import functools
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...arrays import LazyArray
from ...containers.base import touching
from ...containers.npz import NPZReader, opened, text_in
from ...errors import ArrayError, ContainerError, PathMissingError, Problem
from ...formats.format import coordinates
from ...limits import DEFAULT_LIMITS, Limits, as_integers
from ..decoding import FileTensor
from .compressed_matrix import Compression, compressed, read_matrix

__all__ = ["looking", "opened", "read"]

_COMPRESSED: dict[str, Compression] = {"csr": "CSR", "csc": "CSC"}
_ARRAYS = ("indptr", "indices", "data")
_SCALAR = 2**12  # bytes of a member that holds one item, at most


@contextlib.contextmanager
def looking(
    path: str | zipfile.ZipFile, group: str | None = None, *, limits: Limits = DEFAULT_LIMITS
) -> Iterator[FileTensor]:
    """The tensor, with lazy arrays, which can be read within the block. Raises ContainerError, ArrayError."""
    with opened(path) as archive:
        members = _Members(archive, limits)
        older = "format.npy" not in archive.namelist()  # pydata/sparse before 0.17
        said = "coo" if older else text_in(members.scalar("format"))
        said = said.decode("latin1") if isinstance(said, bytes) else said
        shape = as_integers(members.numbers("shape", "iu")[:].tolist())
        if said in _COMPRESSED and len(shape) == 2 and min(shape) >= 0:
            pointers, indices, data = (members.numbers(name, "iu" if name != "data" else "biufc") for name in _ARRAYS)
            yield compressed(
                _COMPRESSED[said], (shape[0], shape[1]), pointers, _ARRAYS, None, lambda _: (indices, data)
            )
        elif said == "coo":
            yield members.listed(shape)
        else:
            raise ContainerError(
                Problem("format", f"expected csr, csc or coo, got {said!r:.40}; save it as one of them")
            )


read = functools.partial(read_matrix, looking)


class _Members:
    """The arrays in a zip file."""

    def __init__(self, archive: zipfile.ZipFile, limits: Limits) -> None:
        self._archive = archive
        self._reader = NPZReader(archive, limits)

    def numbers(self, name: str, kinds: str) -> LazyArray:
        """An array of one dimension. Raises PathMissingError, ArrayError."""
        found = self._array(name)
        if len(found.shape) != 1 or found.dtype.kind not in kinds:
            raise ArrayError(Problem(name, f"expected numbers of one dimension, got {found.dtype} of {found.shape}"))
        return found

    def scalar(self, name: str) -> Any:
        """An array without dimensions. Raises PathMissingError, ArrayError."""
        found = self._array(name)
        member = self._archive.getinfo(f"{name}.npy")
        if found.shape or member.file_size > _SCALAR:
            raise ArrayError(Problem(name, f"expected one item, got {found.dtype} of shape {found.shape}"))
        with touching(name), self._archive.open(member) as file:
            return np.lib.format.read_array(file, allow_pickle=False)

    def listed(self, shape: tuple[int, ...]) -> FileTensor:
        """A list of coordinates: scipy has an array for each dimension, pydata/sparse one for all."""
        names = {f"indices_{k}": name for k, name in enumerate(("row", "col"))}
        values, fill = self.numbers("data", "biufc"), None
        if "coords.npy" in self._archive.namelist():
            coords = self._array("coords")
            if len(coords.shape) != 2 or coords.shape[0] != len(shape) or coords.dtype.kind not in "iu":
                raise ArrayError(Problem("coords", f"expected {len(shape)} rows of integers, got {coords.shape}"))
            arrays: dict[str, Any] = {f"indices_{k}": x for k, x in enumerate(coords[:])}
            names, fill = dict.fromkeys(arrays, "coords"), self.scalar("fill_value")[()]
        else:
            arrays = {key: self.numbers(name, "iu") for key, name in names.items()}
        return FileTensor(
            coordinates(len(shape)), shape, arrays, values, {}, {**names, "values": "data"}, fill_value=fill
        )

    def _array(self, name: str) -> LazyArray:
        found = self._reader.array(name)
        if found is None:
            raise PathMissingError(Problem(name, "no such member; save the array again"))
        return found
