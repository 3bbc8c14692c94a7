"""Targets of all kinds of containers, and a small tensor."""

import itertools

import obstore.store
from zarr.storage import LocalStore, MemoryStore, ObjectStore

from binsparse_levels import pack

counter = itertools.count()


CONTAINERS = {
    "hdf5": (lambda folder: folder / "a.h5", {}),
    "hdf5, gzip": (lambda folder: folder / "b.h5", {"compression": "gzip", "chunks": 3}),
    "zarr": (lambda folder: folder / "a.zarr", {}),
    "zarr, version 2": (lambda folder: folder / "b.zarr", {"kind": "zarr2"}),
    "zarr, gzip": (lambda folder: folder / "c.zarr", {"compression": "gzip", "chunks": 2, "shards": 4}),
    "zarr, plain": (lambda folder: folder / "d.zarr", {"compression": "none", "checksum": False}),
    "zarr, zip": (lambda folder: folder / "a.zarr.zip", {}),
    "zarr, store": (lambda folder: LocalStore(folder / "e.zarr"), {}),
    "zarr, memory": (lambda folder: MemoryStore(), {}),
    "zarr, obstore": (lambda folder: ObjectStore(obstore.store.MemoryStore()), {}),
    "zarr, URL": (lambda folder: f"memory://{folder.name}{next(counter)}/a.zarr", {}),
    "npz": (lambda folder: folder / "a.npz", {}),
    "npz, deflate": (lambda folder: folder / "b.npz", {"compression": {"values": "gzip"}}),
    "directory": (lambda folder: folder / "a.bspnpy", {}),
    "rawarray_directory": (lambda folder: folder / "a.bspra", {}),
    "netcdf": (lambda folder: folder / "a.nc", {}),
    "netcdf, gzip": (lambda folder: folder / "b.nc", {"compression": "gzip"}),
    "memory": (lambda folder: {}, {}),
}


def vector(value=1.0):
    return pack([[0, 2]], [value, 2.0], 4, "CVEC")
