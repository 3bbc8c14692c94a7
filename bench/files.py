"""Reading and writing a CSR matrix. All write through to the disk and replace a file atomically, as ours does, and read
from the page cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import zarr

import binsparse_levels as bl
from binsparse_levels import Tensor, read, write

from .data import tree
from .row import Call, Maker, Row, Targets

_SMALL, _SMALL_CALLS = 1000, 20  # entries of a small file, and calls in each timing of what takes a millisecond


class Ours(NamedTuple):
    """A tensor, and where we have written it."""

    path: Path
    tensor: Tensor

    @property
    def arrays(self) -> dict[str, Any]:
        return {**self.tensor.arrays, "values": self.tensor.values}


class Store(NamedTuple):
    """How a peer stores the same."""

    path: Path
    save: Call
    load: Call

    def write(self) -> None:
        """Save and synchronize. A file then takes the place of the file before, since ours does so, too: whoever writes
        into the old file loses both when the machine stops. A folder is written where the old one was.
        """
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


@dataclass(frozen=True)
class Layout:
    """A way to store n entries. options: of our `write`."""

    n: int
    name: str
    suffix: str
    stores: Mapping[str, Callable[[Ours], Store]]
    options: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, writing: Targets, reading: Targets) -> list[Row]:
        peers: dict[str, Maker] = {name: lambda ours, make=make: make(ours).write for name, make in self.stores.items()}
        limits: dict[str, Maker] = {"raw files": lambda ours: _raw(ours).write}
        row = Row(f"write, {self.name}", self.n, self._made, self._write, peers, writing, limits, waits=True)
        return [row, self.read("read", "none", reading)]

    def open(self, targets: Targets) -> Row:
        """Our tensor is opened, its arrays stay in the file; a peer reads them."""
        peers: dict[str, Maker] = {
            name: lambda ours, make=make: make(ours).saved() for name, make in self.stores.items()
        }
        ours = lambda made: bl.open(made.path)  # noqa: E731
        return Row(f"open, {self.name}", self.n, self._made, ours, peers, targets, calls=_SMALL_CALLS)

    def read(self, how: str, check: Any, targets: Targets, calls: int = 1) -> Row:
        peers: dict[str, Maker] = {
            name: lambda ours, make=make: make(ours).saved() for name, make in self.stores.items()
        }
        limits: dict[str, Maker] = {"raw files": lambda ours: _raw(ours).saved()}
        name = f"{how}, {self.name}"
        ours = lambda made: read(made.path, check=check)  # noqa: E731
        return Row(name, self.n, self._made, ours, peers, targets, limits, calls=calls)

    def _made(self, folder: Path) -> Ours:
        ours = Ours(folder / f"ours{self.suffix}", tree("10 a fiber", self.n, "CSR"))
        self._write(ours)
        return ours

    def _write(self, ours: Ours) -> None:
        write(ours.path, ours.tensor, overwrite=True, **self.options)


def rows(n: int) -> list[Row]:
    plain = {"compression": "none", "checksum": False}
    zarr_plain: tuple[Targets, Targets] = {"zarr": (1.5, None)}, {"zarr": (2, None)}
    contiguous = Layout(n, "HDF5, contiguous", ".h5", {"h5py": _h5py, "binsparse": _binsparse})
    sealed = Layout(n, "HDF5, sealed", ".h5", {"h5py": _h5py}, {"checksum": True})
    chunked = Layout(n, "HDF5, chunked", ".h5", {"h5py": _h5py}, {"chunks": 2**17})
    gzip = Layout(n, "HDF5, gzip", ".h5", {"h5py": _h5py}, {"compression": "gzip"})
    whole = Layout(n, "Zarr, plain, one chunk", ".zarr", {"zarr": _zarr}, plain | {"chunks": 2**40})
    sharded = Layout(n, "Zarr, plain, sharded", ".zarr", {"zarr": _zarr}, plain)
    zstd = Layout(n, "Zarr, zstd, sharded", ".zarr", {"zarr": _zarr, "binsparse": _binsparse}, {"compression": "zstd"})
    usual = Layout(n, "Zarr, as usual", ".zarr", {"zarr": _zarr, "binsparse": _binsparse})
    return [
        *contiguous.rows({"h5py": (0.95, 1.25)}, {"raw files": (0.9, None)}),
        contiguous.read("read and check", "full", {"raw files": (0.7, 0.8)}),
        sealed.rows({"h5py": (0.8, None)}, {})[0],
        sealed.read("read and check", "full", {"raw files": (1 / 2.5, 1 / 1.5)}),
        *chunked.rows({"h5py": (1, None)}, {"h5py": (1, None)}),
        *gzip.rows({"h5py": (1, None)}, {"h5py": (1, None)}),
        *whole.rows(*zarr_plain),
        *sharded.rows(*zarr_plain),
        *zstd.rows({"binsparse": (0.95, 1.1)}, {"binsparse": (1.3, 1.5)}),
        *usual.rows({"binsparse": (0.95, 1.1)}, {"binsparse": (1.3, 1.5)}),
    ]


def small_rows() -> list[Row]:
    """What a call takes where there is little to read."""
    small, targets = Layout(_SMALL, "HDF5, small", ".h5", {"h5py": _h5py}), {"h5py": (1 / 1.5, 1.0)}
    return [small.open(targets), small.read("read and check", "full", targets, _SMALL_CALLS)]


def _raw(ours: Ours) -> Store:
    """The bytes of each array in a file."""
    folder = ours.path.with_name("raw")
    folder.mkdir()
    return Store(
        folder,
        lambda: [array.tofile(folder / name) for name, array in ours.arrays.items()],
        lambda: [np.fromfile(folder / name, array.dtype) for name, array in ours.arrays.items()],
    )


def _h5py(ours: Ours) -> Store:
    """In the layout of the file that we wrote."""
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
    """In the layout of the store that we wrote."""
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


def _binsparse(ours: Ours) -> Store:
    """In its only layout; it checks nothing."""
    import binsparse

    path = ours.path.with_stem("binsparse")
    matrix = binsparse.CSRMatrix(ours.tensor.shape, len(ours.tensor.values), **ours.arrays)
    return Store(path, lambda: binsparse.save_binsparse(matrix, path), lambda: binsparse.load_binsparse(path))
