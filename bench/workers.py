"""Memory of workers that get an opened tensor and read slices of it, beyond what their imports take.

    python -m bench.workers --entries 85000000

Every way sums all slices of one HDF5 file, in two spawned processes; 85 million entries are 1 GB.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.array
import numpy as np
import sparse
import torch.utils.data

import binsparse_levels as bl

_WORKERS, _SLICES, _EACH = 2, 1000, 100  # entries of a row


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


_IMPORTED = peak()


def told(tensor: Any) -> Any:
    """The sum of a slice, the process that made it, and its memory beyond its imports."""
    part = tensor.load() if hasattr(tensor, "load") else tensor
    values = part.values if hasattr(part, "values") else part.data
    return np.array([[values.sum(), os.getpid(), peak() - _IMPORTED]])


class Slices(torch.utils.data.Dataset[Any]):
    """A slice of rows for each number."""

    def __init__(self, tensor: bl.Tensor) -> None:
        self.tensor = tensor

    def __len__(self) -> int:
        return _SLICES

    def __getitem__(self, k: int) -> Any:
        rows = len(self.tensor) // _SLICES
        return told(self.tensor[k * rows : (k + 1) * rows])


def by_torch(tensor: bl.Tensor) -> Iterator[Any]:
    options: Any = {"num_workers": _WORKERS, "multiprocessing_context": "spawn", "batch_size": None}
    for batch in torch.utils.data.DataLoader(Slices(tensor), **options):
        yield np.asarray(batch)


def by_pool(tensor: bl.Tensor) -> Iterator[Any]:
    with ProcessPoolExecutor(_WORKERS, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(Slices(tensor).__getitem__, range(_SLICES), chunksize=10)


def by_dask(tensor: bl.Tensor) -> Iterator[Any]:
    rows = len(tensor) // _SLICES
    array = dask.array.from_array(tensor, chunks=(rows, -1), meta=sparse.COO.from_numpy(np.zeros((0, 0))))
    blocks = [dask.delayed(told)(block) for block in array.to_delayed().ravel()]
    with ProcessPoolExecutor(_WORKERS, multiprocessing.get_context("spawn")) as pool:
        yield from dask.compute(*blocks, scheduler="processes", pool=pool)


WAYS: dict[str, Callable[[bl.Tensor], Iterator[Any]]] = {
    "DataLoader of PyTorch": by_torch,
    "ProcessPoolExecutor": by_pool,
    "Dask, `from_array`": by_dask,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--entries", type=int, default=85_000_000)
    options = parser.parse_args()
    rows = max(options.entries // _EACH // _SLICES, 1) * _SLICES
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.h5"
        pointers = np.arange(rows + 1) * _EACH
        columns = np.tile(np.arange(_EACH, dtype=np.int32) * 7, rows)
        values = np.arange(len(columns)) % 1024 / 1024
        bl.write(path, bl.Tensor("CSR", (rows, 1000), {"pointers_to_1": pointers, "indices_1": columns}, values))
        total = values.sum()
        del columns, values
        print(f"{len(pointers) - 1:,} rows, {path.stat().st_size / 1e6:,.0f} MB, {_SLICES} slices\n")
        print("| way | MB of the pickled tensor | processes | MB beyond imports, at most |\n|---|---|---|---|")
        with bl.open(path) as tensor:
            size = len(pickle.dumps(tensor)) / 1e6
            for name, way in WAYS.items():
                found = np.concatenate(list(way(tensor)))
                assert np.isclose(found[:, 0].sum(), total), name
                processes = len(set(found[:, 1].tolist()))
                print(f"| {name} | {size:.4f} | {processes} | {found[:, 2].max() / 1e6:.0f} |", flush=True)


if __name__ == "__main__":
    main()
