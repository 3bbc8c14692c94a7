"""Sparse arrays that scipy (csr, csc, coo, bsr, dia) and pydata/sparse (COO, GCXS) keep in an NPZ file.

Members that are stored plainly are read where they are sliced, deflated ones whole; dia is read whole. Matrices are
written as scipy writes csr, or csc where that is their format.
"""

from __future__ import annotations

import contextlib
import functools
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...arrays import LazyArray, cut
from ...containers.base import touching
from ...containers.npz import NPZReader, opened, text_in
from ...containers.replacing import replacing
from ...errors import ArrayError, ContainerError, PathMissingError, Problem
from ...formats.format import coordinates
from ...formats.index_map import IndexMap, parse_map
from ...limits import DEFAULT_LIMITS, Limits, as_integers
from ...tensors.targets import check_representable
from ...tensors.tensor import Tensor
from ..decoding import FileTensor
from .compressed_matrix import Compression, compressed, read_matrix

__all__ = ["looking", "opened", "read", "write"]

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
        names = archive.namelist()
        older = "gcxs" if "compressed_axes.npy" in names else "coo"  # pydata/sparse before 0.17 does not say
        said = text_in(members.scalar("format")) if "format.npy" in names else older
        said = said.decode("latin1") if isinstance(said, bytes) else said
        shape = as_integers(members.numbers("shape", "iu")[:].tolist())
        known = members.layouts if said in ("coo", "gcxs") or len(shape) == 2 else {}
        if said not in known or min(shape, default=0) < 0:
            what = f"expected one of {', '.join(members.layouts)}, got {said!r:.40} of shape {shape!r:.60}"
            raise ContainerError(Problem("format", f"{what}; save it as one of them"))
        yield known[said](shape)


read = functools.partial(read_matrix, looking)


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
    """The arrays in a zip file."""

    def __init__(self, archive: zipfile.ZipFile, limits: Limits) -> None:
        self._archive = archive
        self._limits = limits
        self._reader = NPZReader(archive, limits)
        self.layouts: dict[str, Callable[[Sequence[int]], FileTensor]] = {
            "csr": functools.partial(self._compressed, "CSR"),
            "csc": functools.partial(self._compressed, "CSC"),
            "bsr": self._blocks,
            "dia": self._diagonals,
            "coo": self._listed,
            "gcxs": self._grouped,
        }

    def numbers(self, name: str, kinds: str) -> LazyArray:
        """An array of one dimension. Raises PathMissingError, ArrayError."""
        array = self._array(name, kinds)
        if len(array.shape) != 1:
            raise ArrayError(Problem(name, f"expected numbers of one dimension, got {array.dtype} of {array.shape}"))
        return array

    def scalar(self, name: str) -> Any:
        """An array without dimensions. Raises PathMissingError, ArrayError."""
        item = self._array(name)
        member = self._archive.getinfo(f"{name}.npy")
        if item.shape or member.file_size > _SCALAR:
            raise ArrayError(Problem(name, f"expected one item, got {item.dtype} of shape {item.shape}"))
        with touching(name), self._archive.open(member) as file:
            return np.lib.format.read_array(file, allow_pickle=False)

    def _compressed(self, format: Compression, shape: Sequence[int], **more: Any) -> FileTensor:
        pointers, indices = (self.numbers(name, "iu") for name in _ARRAYS[:2])
        data = self.numbers("data", "biufc")
        return compressed(format, (shape[0], shape[1]), pointers, _ARRAYS, None, lambda _: (indices, data), **more)

    def _blocks(self, shape: Sequence[int]) -> FileTensor:
        """Compressed rows of dense blocks: a tensor of rank 4 through a map."""
        stored, pointers, indices = self._array("data"), self.numbers("indptr", "iu"), self.numbers("indices", "iu")
        block = stored.shape[1:]
        if len(block) != 2 or min(block) < 1 or shape[0] % block[0] or shape[1] % block[1]:
            raise ArrayError(Problem("data", f"expected blocks that divide {shape}, got shape {stored.shape}"))
        digits = ", ".join(f"{k}/{size}" for k, size in enumerate(block))
        map = parse_map(f"{digits}, {digits.replace('/', '%')}", shape)
        grid = (shape[0] // block[0], shape[1] // block[1])
        cells = self._array("data", "biufc", flat=True)
        matrix = compressed(
            "CSR", grid, pointers, _ARRAYS, None, lambda _: (indices, cells), cells=block[0] * block[1], map=map
        )
        return matrix._replace(format="dense, sparse, dense(2)", shape=map.stored_shape)

    def _diagonals(self, shape: Sequence[int]) -> FileTensor:
        """Diagonals by column, made a list of what is not zero, as scipy does. They are read whole."""
        stored, offsets = self._array("data", "biufc"), self.numbers("offsets", "iu")[:].astype(np.int64)
        if len(stored.shape) != 2 or stored.shape[0] != len(offsets):
            what = f"expected a diagonal for each of {len(offsets)} offsets, got {stored.shape}"
            raise ArrayError(Problem("data", what))
        data = self._array("data", flat=True)[:].reshape(stored.shape)[:, : shape[1]]
        columns = np.broadcast_to(np.arange(data.shape[1]), data.shape)
        rows = columns - offsets[:, None]
        there = (rows >= 0) & (rows < shape[0]) & (data != 0)
        coords = rows[there], columns[there]
        order = np.lexsort(coords[::-1])
        arrays = {f"indices_{k}": x[order] for k, x in enumerate(coords)}
        return FileTensor("COOR", (shape[0], shape[1]), arrays, data[there][order])

    def _listed(self, shape: Sequence[int]) -> FileTensor:
        """A list of coordinates: scipy has an array for each dimension, pydata/sparse one for all."""
        values, roles = self.numbers("data", "biufc"), [f"indices_{k}" for k in range(len(shape))]
        if len(shape) == 2 and "coords.npy" not in self._archive.namelist():
            names = dict(zip(roles, ("row", "col"), strict=True))
            arrays: dict[str, Any] = {role: self.numbers(name, "iu") for role, name in names.items()}
            return FileTensor("COOR", tuple(shape), arrays, values, {}, {**names, "values": "data"})
        coords = self._array("coords", "iu")
        if coords.shape != (len(shape), len(values)):
            what = f"expected {len(shape)} rows of {len(values)} integers, got shape {coords.shape}"
            raise ArrayError(Problem("coords", what))
        whole, count = self._array("coords", flat=True), len(values)
        arrays = {role: cut(whole, k * count, count) for k, role in enumerate(roles)}
        return self._filled(FileTensor(coordinates(len(shape)), tuple(shape), arrays, values, {}, {"values": "data"}))

    def _grouped(self, shape: Sequence[int]) -> FileTensor:
        """Compressed rows, which stand for some dimensions, and columns, which stand for the others."""
        if len(shape) == 1:  # is not compressed
            arrays = {"indices_0": self.numbers("indices", "iu")}
            return self._filled(FileTensor("sparse", tuple(shape), arrays, self.numbers("data", "biufc")))
        rows = as_integers(self.numbers("compressed_axes", "iu")[:].tolist())
        if shape and len(shape) == 2 and tuple(rows) in ((0,), (1,)):
            return self._filled(self._compressed("CSR" if rows[0] == 0 else "CSC", shape))
        rest = [k for k in range(len(shape)) if k not in rows]
        map = IndexMap.grouping(shape, [*rows, *rest], [len(rows)])
        return self._filled(self._compressed("CSR", map.stored_shape, map=map))

    def _filled(self, tensor: FileTensor) -> FileTensor:
        fill = self.scalar("fill_value")[()] if "fill_value.npy" in self._archive.namelist() else None
        return tensor._replace(fill_value=fill)

    def _array(self, name: str, kinds: str | None = None, *, flat: bool = False) -> LazyArray:
        array = self._reader.array(name, flat=flat)
        if array is None:
            raise PathMissingError(Problem(name, "no such member; save the array again"))
        if kinds is not None and array.dtype.kind not in kinds:
            raise ArrayError(Problem(name, f"expected numbers, got {array.dtype} of {array.shape}; save it again"))
        return array
