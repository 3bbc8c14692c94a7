"""Sparse arrays of scipy (csr, csc, coo, bsr, dia) and pydata/sparse (COO, GCXS) in an NPZ file, read only.

Scripts store data, indices, indptr and shape of matrices by `np.savez`, as adj_data … for several. The number of
pointers shows whether rows or columns are compressed. In a square matrix they are rows, as most scripts read them.

Uncompressed members are read on demand, deflated ones and dia whole.
"""

from __future__ import annotations

import contextlib
import functools
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays import LazyArray, cut
from ...containers.npz import NPZReader, opened, text_in
from ...errors import ArrayError, ContainerError, Problem, warn
from ...formats.format import coordinates
from ...formats.index_map import IndexMap, parse_map
from ...limits import Limits, as_integers
from ..file_tensors import Compression, FileTensor, compressed
from ..interface import Foreign
from .names import chosen
from .sources import Group


def look(
    path: str | zipfile.ZipFile, closing: contextlib.ExitStack, *, group: str | None = None, limits: Limits
) -> FileTensor:
    """The tensor, with lazy arrays. group: by default, the only one. Raises ContainerError, ArrayError."""
    archive = closing.enter_context(opened(path))
    prefixes = _prefixes(archive)
    prefix = prefixes[chosen([*prefixes], group)]
    members = _Members(NPZReader(archive, limits), limits, archive, prefix)
    shape = tuple(as_integers(members.integers("shape")[:].tolist()))
    format = text_in(members.scalar("format")) if members.has("format") else members.format_of(shape)
    format = format.decode("latin1") if isinstance(format, bytes) else format
    layouts: dict[str, Callable[[Any], FileTensor]] = {
        "csr": members.listed if len(shape) == 1 else functools.partial(members.matrix, "CSR"),
        "csc": functools.partial(members.matrix, "CSC"),
        "bsr": members.blocks, "dia": members.diagonals, "coo": members.coordinates, "gcxs": members.grouped,
    }  # fmt: skip
    fits = len(shape) == 2 or format in ("coo", "gcxs") or (format == "csr" and len(shape) == 1)
    if format not in layouts or not fits or min(shape, default=0) < 0:
        what = f"expected one of {', '.join(layouts)}, got {format!r:.40} of shape {shape!r:.60}"
        raise ContainerError(Problem("format", f"{what}; save it as one of them"))
    tensor = layouts[format](shape)
    fill = members.scalar("fill_value")[()] if members.has("fill_value") and format in ("coo", "gcxs") else None
    return tensor._replace(fill_value=fill)


def list_groups(archive: zipfile.ZipFile, limits: Limits) -> list[str]:
    """The name of each matrix, which is that of its arrays without _indptr, _data …; empty without such names."""
    return sorted(_prefixes(archive))


def _prefixes(archive: zipfile.ZipFile) -> dict[str, str]:
    """The beginning of the names of the arrays of each matrix, by its name."""
    found = [name.removesuffix("indptr.npy") for name in archive.namelist() if name.endswith("indptr.npy")]
    return {prefix.rstrip("_."): prefix for prefix in found or [""]}


class _Members(Group):
    """The arrays in a zip file whose names begin with a prefix, and the tensors in each format."""

    def __init__(self, reader: NPZReader, limits: Limits, archive: zipfile.ZipFile, prefix: str) -> None:
        super().__init__(reader, limits)
        self._names, self._prefix = {*archive.namelist()}, prefix

    def has(self, name: str) -> bool:
        return f"{self._prefix}{name}.npy" in self._names

    def array(self, name: str) -> LazyArray:
        return super().array(self._prefix + name)

    def format_of(self, shape: tuple[int, ...]) -> str:
        """The format of a tensor that does not store it."""
        if self.has("compressed_axes") or not self.has("indptr"):  # pydata/sparse before 0.17
            return "gcxs" if self.has("compressed_axes") else "coo"
        if len(shape) == 2 and shape[0] == shape[1]:
            what = "is square, so rows or columns may be compressed; read as rows: transpose it if csc_matrix wrote it"
            warn(f"{self._prefix}shape: {what}")
        return "csr" if shape and len(self.integers("indptr")) == shape[0] + 1 else "csc"

    def cells_of(self, name: str, kinds: str) -> tuple[LazyArray, tuple[int, ...]]:
        """The items of an array of any rank as one dimension, and its shape. Raises ArrayError for other types."""
        array = self.array(name)
        if array.dtype.kind not in kinds:
            raise ArrayError(Problem(name, f"expected numbers, got {array.dtype} of {array.shape}; save it again"))
        flat: LazyArray = self.reader.array(name, flat=True)
        return flat, array.shape

    def scalar(self, name: str) -> Any:
        """An array without dimensions."""
        item, shape = self.cells_of(name, "biufcSU")
        if shape:
            raise ArrayError(Problem(name, f"expected one item, got {item.dtype} of shape {shape}"))
        return item[:].reshape(())

    def matrix(self, format: Compression, shape: Sequence[int], **more: Any) -> FileTensor:
        return compressed(format, (shape[0], shape[1]), self.compressed("biufc"), **more)

    def listed(self, shape: tuple[int, ...]) -> FileTensor:
        """A list of coordinates of one dimension."""
        arrays, names = {"indices_0": self.integers("indices")}, {"indices_0": "indices", "values": "data"}
        return FileTensor("sparse", shape, arrays, self.numbers("data", "biufc"), {}, names)

    def blocks(self, shape: Sequence[int]) -> FileTensor:
        """Compressed rows of dense blocks: a tensor of rank 4 through a map."""
        data, whole = self.cells_of("data", "biufc")
        block = whole[1:]
        if len(block) != 2 or min(block) < 1 or shape[0] % block[0] or shape[1] % block[1]:
            raise ArrayError(Problem("data", f"expected blocks that divide {shape}, got blocks of shape {block}"))
        digits = ", ".join(f"{k}/{size}" for k, size in enumerate(block))
        map = parse_map(f"{digits}, {digits.replace('/', '%')}", shape)
        grid = (shape[0] // block[0], shape[1] // block[1])
        arrays = {x: self.integers(x) for x in ("indptr", "indices")} | {"data": data}
        matrix = compressed("CSR", grid, arrays, cells=block[0] * block[1], map=map)
        return matrix._replace(format="dense, sparse, dense(2)", shape=map.stored_shape)

    def diagonals(self, shape: tuple[int, ...]) -> FileTensor:
        """Diagonals as a list of their nonzero cells, as in scipy. They are read whole."""
        offsets, (flat, stored) = self.integers("offsets")[:].astype(np.int64), self.cells_of("data", "biufc")
        if len(stored) != 2 or stored[0] != len(offsets):
            raise ArrayError(Problem("data", f"expected a diagonal for each of {len(offsets)} offsets, got {stored}"))
        data = flat[:].reshape(stored)[:, : shape[1]]
        columns = np.broadcast_to(np.arange(data.shape[1]), data.shape)
        rows = columns - offsets[:, None]
        there = (rows >= 0) & (rows < shape[0]) & (data != 0)
        arrays = {"indices_0": rows[there], "indices_1": columns[there]}
        return FileTensor("COOR", shape, arrays, data[there])

    def coordinates(self, shape: tuple[int, ...]) -> FileTensor:
        """A list of coordinates: an array for each dimension (scipy), or one for all (pydata/sparse, newer scipy)."""
        values, roles = self.numbers("data", "biufc"), [f"indices_{k}" for k in range(len(shape))]
        if 1 <= len(shape) <= 2 and not self.has("coords"):  # before scipy 1.16, also for one dimension
            names = dict(zip(roles, ("row", "col")[-len(shape) :], strict=True))
            arrays: dict[str, Any] = {role: self.integers(name) for role, name in names.items()}
            return FileTensor(coordinates(len(shape)), shape, arrays, values, {}, {**names, "values": "data"})
        (whole, stored), count = self.cells_of("coords", "iu"), len(values)
        if stored != (len(shape), count):
            raise ArrayError(Problem("coords", f"expected {len(shape)} rows of {count} integers, got shape {stored}"))
        arrays = {role: cut(whole, k * count, count) for k, role in enumerate(roles)}
        return FileTensor(coordinates(len(shape)), shape, arrays, values, {}, {"values": "data"})

    def grouped(self, shape: tuple[int, ...]) -> FileTensor:
        """A compressed matrix whose rows are some dimensions together, and whose columns are the others."""
        if len(shape) == 1:
            return self.listed(shape)
        rows = as_integers(self.integers("compressed_axes")[:].tolist())
        if len(shape) == 2 and tuple(rows) in ((0,), (1,)):
            return self.matrix("CSR" if rows[0] == 0 else "CSC", shape)
        rest = [k for k in range(len(shape)) if k not in rows]
        map = IndexMap.grouping(shape, [*rows, *rest], [len(rows)])
        return self.matrix("CSR", map.stored_shape, map=map)


FUNCTIONS = Foreign(look=look, list_groups=list_groups, opened=opened)
