"""python -m bench.loaders [FILE]: rows a second of loaders of shuffled batches, by the time of the processor.

Without a file, counts of genes are made: --rows rows of 20,000 genes, 100 entries in a row. Each loader runs in a
process of its own, on one thread, in turn; the best of --rounds is shown. annbatch, scDataset and anndata take part
where they are installed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import binsparse_levels as bl

_SIZE = 256  # rows of a batch
_GENES = 20_000
_FOR = {"HDF5": "a.h5", "Zarr": "a.zarr", "Zarr, chunks of 2**14": "b.zarr"}


def _ours(name: str, block: int) -> Callable[[Path], Iterable[Any]]:
    return lambda folder: bl.batches(folder / _FOR[name], _SIZE, block=block, format="scipy")


def _anndata(folder: Path) -> Iterator[Any]:
    """Backed reading of sorted random rows, which a loop over AnnData does."""
    import anndata

    cells = anndata.read_h5ad(folder / "a.h5ad", backed="r").X
    order = np.random.default_rng(0).permutation(cells.shape[0])
    for begin in range(0, len(order), _SIZE):
        yield cells[np.sort(order[begin : begin + _SIZE])]


def _scdataset(folder: Path) -> Iterable[Any]:
    import anndata
    import scdataset

    cells = anndata.read_h5ad(folder / "a.h5ad", backed="r").X
    return scdataset.scDataset(cells, scdataset.BlockShuffling(16), batch_size=_SIZE, fetch_factor=64)


def _annbatch(folder: Path) -> Iterable[Any]:
    import annbatch
    import zarr

    loader = annbatch.Loader(batch_size=_SIZE, chunk_size=16, preload_nchunks=64 * _SIZE // 16, to_torch=False)
    return loader.add_anndatas([zarr.open(folder / "h5ad.zarr", mode="r")])


LOADERS: dict[str, Callable[[Path], Iterable[Any]]] = {
    **{f"batches, {name}, block {k}": _ours(name, k) for name in _FOR for k in (1, 16, 64)},
    "anndata, backed": _anndata,
    "scDataset, block 16": _scdataset,
    "annbatch, block 16": _annbatch,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.loaders", description=__doc__)
    parser.add_argument("file", nargs="?", metavar="FILE", help="any matrix that `read` takes")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", nargs=2, metavar=("LOADER", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(_seconds(LOADERS[options.run[0]], Path(options.run[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = _write(bl.read(options.file) if options.file else _made(options.rows), Path(folder))
        best = dict.fromkeys(LOADERS, float("inf"))
        for _ in range(options.rounds):
            for name in LOADERS:
                command = [sys.executable, "-m", "bench.loaders", "--run", name, folder]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                best[name] = min(best[name], float(done.stdout) if done.returncode == 0 else float("inf"))
    print("| loader | rows a second | µs a row |\n|---|---:|---:|")
    for name, seconds in best.items():
        known = f"{rows / seconds:,.0f} | {1e6 * seconds / rows:.1f}" if seconds < float("inf") else "not installed |"
        print(f"| {name} | {known} |")


def _seconds(loader: Callable[[Path], Iterable[Any]], folder: Path) -> float:
    """The time of the processor for one pass over all rows. The first batches, which load kernels, are not counted."""
    bl.set_threads(1)
    for _ in zip(range(5), loader(folder), strict=False):
        pass
    begin = time.process_time()
    for _ in loader(folder):
        pass
    return time.process_time() - begin


def _made(rows: int) -> bl.Tensor:
    random = np.random.default_rng(0)
    per_row = 100
    places = np.sort(random.integers(0, _GENES, (rows, per_row)), axis=1).ravel()
    counts = random.geometric(0.6, rows * per_row)
    shape = rows, _GENES
    return bl.pack([np.repeat(np.arange(rows), per_row), places], counts, shape, "CSR", duplicates="first")


def _write(tensor: bl.Tensor, folder: Path) -> int:
    """The files of all loaders; returns the number of rows."""
    bl.write(folder / "a.h5", tensor, narrow=True)
    bl.write(folder / "a.zarr", tensor)
    bl.write(folder / "b.zarr", tensor, narrow=True, chunks=2**14)
    try:
        import anndata
    except ImportError:
        return tensor.shape[0]
    cells = anndata.AnnData(bl.to_scipy(tensor, "csr", copy=True).astype(np.float32))
    cells.write_h5ad(os.fspath(folder / "a.h5ad"))
    cells.write_zarr(folder / "h5ad.zarr")
    return tensor.shape[0]


if __name__ == "__main__":
    main()
