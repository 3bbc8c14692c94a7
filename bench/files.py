"""A CSR matrix written and read. All libraries flush to the disk, replace files atomically, and read from the page
cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import zarr

from binsparse_levels import Tensor, read, write

from .data import tree
from .peers import scipy_csr, tensorstore_arrays
from .row import Call, Maker, Row


class Ours(NamedTuple):
    """A tensor, and the path that it is written to."""

    path: Path
    tensor: Tensor

    @property
    def arrays(self) -> dict[str, Any]:
        return {**self.tensor.arrays, "values": self.tensor.values}

    def write(self) -> None:
        write(self.path, self.tensor, overwrite=True)


class Store(NamedTuple):
    """The functions of a peer that save and load the matrix."""

    path: Path
    save: Call
    load: Call

    def write(self) -> None:
        """Save and synchronize. A file replaces the old file by a rename, as in this package; a folder does not."""
        self.save()
        for place in [self.path, *self.path.rglob("*")]:
            _synchronize(place)
        if self.path.is_file():
            self.path.replace(self.path.with_stem("replaced"))
            _synchronize(self.path.parent)

    def saved(self) -> Call:
        self.save()
        return self.load


def _synchronize(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def rows(n: int) -> list[Row]:
    zarrs = {"zarr": _zarr, "tensorstore": _tensorstore, "sporadik": _sporadik, "binsparse": _binsparse}
    return [
        *_both("HDF5", ".h5", n, {"h5py": _h5py, "binsparse": _binsparse}),
        *_both("Zarr", ".zarr", n, zarrs),
        *_both("Matrix Market", ".mtx", n // 10, {"scipy": _matrix_market}),
    ]


def _both(name: str, suffix: str, n: int, stores: Mapping[str, Callable[[Ours], Store]]) -> list[Row]:
    made = partial(_made, suffix, n)
    writing: dict[str, Maker] = {peer: lambda ours, make=make: make(ours).write for peer, make in stores.items()}
    reading: dict[str, Maker] = {peer: lambda ours, make=make: make(ours).saved() for peer, make in stores.items()}
    return [
        Row(f"write {name}", made, Ours.write, writing, waits=True),
        Row(f"read and check {name}", made, lambda ours: read(ours.path), reading),
    ]


def _made(suffix: str, n: int, folder: Path) -> Ours:
    ours = Ours(folder / f"ours{suffix}", tree("CSR", n))
    ours.write()
    return ours


def _h5py(ours: Ours) -> Store:
    """Functions of h5py, with the layout of the file of this package."""
    path = ours.path.with_name("h5py.h5")
    with h5py.File(ours.path) as file:
        keys = "chunks", "compression", "shuffle", "fletcher32"
        layouts = {name: {key: getattr(file[name], key) for key in keys} for name in ours.arrays}

    def save() -> None:
        with h5py.File(path, "w") as file:
            for name, array in ours.arrays.items():
                file.create_dataset(name, data=array, **layouts[name])

    def load() -> Any:
        with h5py.File(path) as file:
            return [file[name][...] for name in layouts]

    return Store(path, save, load)


def _zarr(ours: Ours) -> Store:
    """Functions of zarr, with the layout of the store of this package."""
    path = ours.path.with_name("zarr.zarr")
    keys = "chunks", "shards", "compressors"
    group = zarr.open_group(ours.path, mode="r")
    layouts: dict[str, Any] = {name: {key: getattr(group[name], key) for key in keys} for name in ours.arrays}

    def save() -> None:
        group = zarr.open_group(path, mode="w")
        for name, array in ours.arrays.items():
            group.create_array(name, data=array, **layouts[name])

    def load() -> Any:
        group = zarr.open_group(path, mode="r")
        return [group[name][...] for name in layouts]

    return Store(path, save, load)


def _tensorstore(ours: Ours) -> Store:
    """Functions of tensorstore, with the layout of the store of this package."""
    import tensorstore  # noqa: F401 (without it, the row has no such peer)

    path = ours.path.with_name("tensorstore.zarr")

    def save() -> None:
        made = tensorstore_arrays(path, ours.arrays, like=ours.path)
        for future in [x.write(array) for x, array in zip(made, ours.arrays.values(), strict=True)]:
            future.result()

    def load() -> Any:
        return [future.result() for future in [x.read() for x in tensorstore_arrays(path, ours.arrays)]]

    return Store(path, save, load)


def _sporadik(ours: Ours) -> Store:
    """Functions of sporadik, with its own layout of rows."""
    import sporadik

    path, matrix = ours.path.with_name("sporadik.zarr"), scipy_csr(ours.tensor)
    return Store(path, lambda: sporadik.write_store(path, [matrix]), lambda: sporadik.read_layout(path, 0))


def _binsparse(ours: Ours) -> Store:
    """Functions of binsparse-python, with its only layout and without checks."""
    import binsparse

    path = ours.path.with_stem("binsparse")
    matrix = binsparse.CSRMatrix(ours.tensor.shape, len(ours.tensor.values), **ours.arrays)
    return Store(path, lambda: binsparse.save_binsparse(matrix, path), lambda: binsparse.load_binsparse(path))


def _matrix_market(ours: Ours) -> Store:
    import scipy.io

    path, matrix = ours.path.with_stem("scipy"), scipy_csr(ours.tensor)
    return Store(path, lambda: scipy.io.mmwrite(path, matrix), lambda: scipy.io.mmread(path).tocsr())
