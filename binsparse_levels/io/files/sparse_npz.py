"""Sparse arrays that scipy (csr, csc, coo, bsr, dia) and pydata/sparse (COO, GCXS) keep in an NPZ file.

Members that are stored plainly are read where they are sliced, deflated ones whole; dia is read whole. Matrices are
written as scipy writes csr, or csc where that is their format.
"""

from __future__ import annotations

import contextlib
import functools
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays import LazyArray, cut
from ...containers.base import touching
from ...containers.npz import NPZReader, opened, text_in
from ...containers.replacing import replacing
from ...errors import ArrayError, ContainerError, PathMissingError, Problem
from ...formats.format import coordinates
from ...formats.index_map import IndexMap, parse_map
from ...limits import Limits, as_integers
from ...tensors.targets import check_representable
from ...tensors.tensor import Tensor
from ..file_tensors import FileTensor
from .compressed_matrix import Compression, compressed

__all__ = ["look", "opened", "write"]

_COMPRESSED: dict[str, Compression] = {"csr": "CSR", "csc": "CSC"}
_ARRAYS = ("indptr", "indices", "data")
_SCALAR = 2**12  # bytes of a member that holds one item, at most


def look(path: str | zipfile.ZipFile, closing: contextlib.ExitStack, *, limits: Limits) -> FileTensor:
    """The tensor, with lazy arrays. Raises ContainerError, ArrayError."""
    members = _Members(closing.enter_context(opened(path)), limits)
    older = "gcxs" if members.has("compressed_axes") else "coo"  # pydata/sparse before 0.17 does not say
    said = text_in(members.scalar("format")) if members.has("format") else older
    said = said.decode("latin1") if isinstance(said, bytes) else said
    shape = tuple(as_integers(members.numbers("shape", "iu")[:].tolist()))
    layouts: dict[str, Callable[[Any], FileTensor]] = {
        "csr": members.listed if len(shape) == 1 else functools.partial(members.compressed, "CSR"),
        "csc": functools.partial(members.compressed, "CSC"),
        "bsr": members.blocks, "dia": members.diagonals, "coo": members.coordinates, "gcxs": members.grouped,
    }  # fmt: skip
    fits = len(shape) == 2 or said in ("coo", "gcxs") or (said == "csr" and len(shape) == 1)
    if said not in layouts or not fits or min(shape, default=0) < 0:
        what = f"expected one of {', '.join(layouts)}, got {said!r:.40} of shape {shape!r:.60}"
        raise ContainerError(Problem("format", f"{what}; save it as one of them"))
    return layouts[said](shape)


def write(path: str, tensor: Tensor, *, overwrite: bool = False) -> None:
    """Write a matrix that `scipy.sparse.load_npz` reads. Raises FormatError for a tensor that scipy has not."""
    type_fits = tensor.dtype.kind in "biufc" and tensor.dtype != np.float16
    check_representable(tensor, "a .npz file of scipy", path, ranks=(2,), type_fits=type_fits)
    name = "csc" if tensor.format.alias == "CSC" and tensor.map is None else "csr"
    made = tensor.without_map(_COMPRESSED[name])
    arrays: dict[str, Any] = {
        "format": np.array(name.encode()),
        "shape": np.array(made.shape, np.int64),
        "indptr": made.arrays["pointers_to_1"],
        "indices": made.arrays["indices_1"],
        "data": made.values,
        "_is_array": np.array(True),
    }
    with replacing(path, overwrite) as part, open(part, "wb") as file:
        np.savez(file, **arrays)


class _Members:
    """The arrays in a zip file, and the tensors that they make."""

    def __init__(self, archive: zipfile.ZipFile, limits: Limits) -> None:
        self._archive = archive
        self._reader = NPZReader(archive, limits)

    def has(self, name: str) -> bool:
        return f"{name}.npy" in self._archive.namelist()

    def array(self, name: str, kinds: str | None = None, *, flat: bool = False) -> LazyArray:
        """An array of any rank. Raises PathMissingError, ArrayError for one of other types."""
        array = self._reader.array(name, flat=flat)
        if array is None:
            raise PathMissingError(Problem(name, "no such member; save the array again"))
        if kinds is not None and array.dtype.kind not in kinds:
            raise ArrayError(Problem(name, f"expected numbers, got {array.dtype} of {array.shape}; save it again"))
        return array

    def numbers(self, name: str, kinds: str = "biufc") -> LazyArray:
        """An array of one dimension."""
        array = self.array(name, kinds)
        if len(array.shape) != 1:
            raise ArrayError(Problem(name, f"expected numbers of one dimension, got {array.dtype} of {array.shape}"))
        return array

    def scalar(self, name: str) -> Any:
        """An array without dimensions."""
        item = self.array(name)
        member = self._archive.getinfo(f"{name}.npy")
        if item.shape or member.file_size > _SCALAR:
            raise ArrayError(Problem(name, f"expected one item, got {item.dtype} of shape {item.shape}"))
        with touching(name), self._archive.open(member) as file:
            return np.lib.format.read_array(file, allow_pickle=False)

    def compressed(self, format: Compression, shape: Sequence[int], **more: Any) -> FileTensor:
        pointers, indices = (self.numbers(name, "iu") for name in _ARRAYS[:2])
        data = self.numbers("data")
        return compressed(format, (shape[0], shape[1]), pointers, _ARRAYS, None, lambda _: (indices, data), **more)

    def listed(self, shape: tuple[int, ...]) -> FileTensor:
        """A list of coordinates, which is not compressed."""
        arrays = {"indices_0": self.numbers("indices", "iu")}
        return FileTensor("sparse", shape, arrays, self.numbers("data"), {}, {"indices_0": "indices", "values": "data"})

    def blocks(self, shape: Sequence[int]) -> FileTensor:
        """Compressed rows of dense blocks: a tensor of rank 4 through a map."""
        stored, pointers, indices = self.array("data"), self.numbers("indptr", "iu"), self.numbers("indices", "iu")
        block = stored.shape[1:]
        if len(block) != 2 or min(block) < 1 or shape[0] % block[0] or shape[1] % block[1]:
            raise ArrayError(Problem("data", f"expected blocks that divide {shape}, got shape {stored.shape}"))
        digits = ", ".join(f"{k}/{size}" for k, size in enumerate(block))
        map = parse_map(f"{digits}, {digits.replace('/', '%')}", shape)
        grid = (shape[0] // block[0], shape[1] // block[1])
        arrays = indices, self.array("data", "biufc", flat=True)
        cells = block[0] * block[1]
        matrix = compressed("CSR", grid, pointers, _ARRAYS, None, lambda _: arrays, cells=cells, map=map)
        return matrix._replace(format="dense, sparse, dense(2)", shape=map.stored_shape)

    def diagonals(self, shape: tuple[int, ...]) -> FileTensor:
        """Diagonals by column, made a list of what is not zero, as scipy does. They are read whole."""
        stored, offsets = self.array("data", "biufc"), self.numbers("offsets", "iu")[:].astype(np.int64)
        if len(stored.shape) != 2 or stored.shape[0] != len(offsets):
            what = f"expected a diagonal for each of {len(offsets)} offsets, got {stored.shape}"
            raise ArrayError(Problem("data", what))
        data = self.array("data", flat=True)[:].reshape(stored.shape)[:, : shape[1]]
        columns = np.broadcast_to(np.arange(data.shape[1]), data.shape)
        rows = columns - offsets[:, None]
        there = (rows >= 0) & (rows < shape[0]) & (data != 0)
        coords = rows[there], columns[there]
        order = np.lexsort(coords[::-1])
        arrays = {f"indices_{k}": x[order] for k, x in enumerate(coords)}
        return FileTensor("COOR", shape, arrays, data[there][order])

    def coordinates(self, shape: tuple[int, ...]) -> FileTensor:
        """A list of coordinates: scipy has an array for each dimension, pydata/sparse one for all."""
        values, roles = self.numbers("data"), [f"indices_{k}" for k in range(len(shape))]
        if 1 <= len(shape) <= 2 and not self.has("coords"):  # before scipy 1.16, also of one dimension
            names = dict(zip(roles, ("row", "col")[-len(shape) :], strict=True))
            arrays: dict[str, Any] = {role: self.numbers(name, "iu") for role, name in names.items()}
            return FileTensor(coordinates(len(shape)), shape, arrays, values, {}, {**names, "values": "data"})
        coords, count = self.array("coords", "iu"), len(values)
        if coords.shape != (len(shape), count):
            what = f"expected {len(shape)} rows of {count} integers, got shape {coords.shape}"
            raise ArrayError(Problem("coords", what))
        whole = self.array("coords", flat=True)
        arrays = {role: cut(whole, k * count, count) for k, role in enumerate(roles)}
        return self._filled(FileTensor(coordinates(len(shape)), shape, arrays, values, {}, {"values": "data"}))

    def grouped(self, shape: tuple[int, ...]) -> FileTensor:
        """Compressed rows, which stand for some dimensions, and columns, which stand for the others."""
        if len(shape) == 1:
            return self._filled(self.listed(shape))
        rows = as_integers(self.numbers("compressed_axes", "iu")[:].tolist())
        if len(shape) == 2 and tuple(rows) in ((0,), (1,)):
            return self._filled(self.compressed("CSR" if rows[0] == 0 else "CSC", shape))
        rest = [k for k in range(len(shape)) if k not in rows]
        map = IndexMap.grouping(shape, [*rows, *rest], [len(rows)])
        return self._filled(self.compressed("CSR", map.stored_shape, map=map))

    def _filled(self, tensor: FileTensor) -> FileTensor:
        return tensor._replace(fill_value=self.scalar("fill_value")[()] if self.has("fill_value") else None)
