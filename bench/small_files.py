"""python -m bench.small_files [FILE …]: sizes and loads of ten made data sets, or of these files.

A cell has the bits of a file for each entry, and the processor time of a load divided by that of Zarr by default:
minima of alternating rounds, with one thread each. The last columns have the format that
`advise(compression="small")` ranks first, and the size of its file divided by that of the best candidate.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from binsparse_levels import Tensor, advise, pack, read, set_threads, write

from .peers import scipy_csr

_BASE = "Zarr"
_FILES: dict[str, tuple[str, dict[str, Any]]] = {
    _BASE: (".zarr", {}),
    "Zarr, small": (".zarr", {"compression": "small"}),
    "HDF5": (".h5", {}),
    "HDF5, gzip": (".h5", {"compression": "gzip"}),
    "HDF5, small": (".h5", {"compression": "small"}),
}
_GENES = 2000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.small_files", description=__doc__)
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="any file that `read` takes; by default, ten sets are made"
    )
    parser.add_argument("--entries", type=int, default=10**6, help="of a set that is made, about (1 million)")
    parser.add_argument("--rounds", type=int, default=5, help="of loads")
    options = parser.parse_args()
    set_threads(1)
    named = ((os.path.basename(x), read(x)) for x in options.files) if options.files else made(options.entries)
    heads = ["set", "entries", *_FILES, "npz of scipy", "Parquet", "advised", "advised / best"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, tensor in named:
        with tempfile.TemporaryDirectory() as folder:
            cells = [name, f"{tensor.number_of_stored_values:,}", *_measured(tensor, Path(folder), options.rounds)]
            print(f"| {' | '.join([*cells, *_advised(tensor, Path(folder))])} |", flush=True)


def _measured(tensor: Tensor, folder: Path, rounds: int) -> list[str]:
    """The size of each kind of file, and the relative time of its load; empty for a kind that is not possible."""
    loads: dict[str, Callable[[], Any]] = {}
    sizes: dict[str, float] = {}
    for name, (suffix, storage) in _FILES.items():
        path = folder / f"{name}{suffix}"
        write(path, tensor, **storage)
        loads[name], sizes[name] = _reader(path), size(path)
    for name, save in (("npz", _npz), ("Parquet", _parquet)):
        if name == "Parquet" or (tensor.ndim == 2 and str(tensor.format) == "CSR"):
            loads[name] = save(tensor, folder / name)
            sizes[name] = size(folder / name)
    seconds = dict.fromkeys(loads, float("inf"))
    for _ in range(rounds):
        for name, load in loads.items():
            begin = time.process_time()
            load()
            seconds[name] = min(seconds[name], time.process_time() - begin)
    bits = 8 / max(tensor.number_of_stored_values, 1)
    cells = {name: f"{bits * sizes[name]:.1f} / {seconds[name] / seconds[_BASE]:.2f}" for name in loads}
    return [cells.get(name, "") for name in (*_FILES, "npz", "Parquet")]


def _reader(path: Path) -> Callable[[], Any]:
    return lambda: read(path)


def size(path: Path) -> int:
    """The bytes of a file, or of all files of a folder."""
    return sum(x.stat().st_size for x in (path.rglob("*") if path.is_dir() else [path]) if x.is_file())


def _npz(tensor: Tensor, path: Path) -> Callable[[], Any]:
    import scipy.sparse

    with open(path, "wb") as file:
        scipy.sparse.save_npz(file, scipy_csr(tensor))
    return lambda: scipy.sparse.load_npz(path)


def _parquet(tensor: Tensor, path: Path) -> Callable[[], Any]:
    """Columns of coordinates as differences, and of values as a dictionary or as grouped bytes, with zstd."""
    import pyarrow
    import pyarrow.parquet as parquet

    coords, values = tensor.unpack()
    names = [f"i{k}" for k in range(len(coords))]
    encoding = dict.fromkeys(names, "DELTA_BINARY_PACKED")
    few = len(np.unique(values)) <= 2**16
    if not few and values.dtype.kind == "f":
        encoding["value"] = "BYTE_STREAM_SPLIT"
    table = pyarrow.table({**{x: c.astype(np.int32) for x, c in zip(names, coords, strict=True)}, "value": values})
    options = {"use_dictionary": ["value"] if few else False, "column_encoding": encoding, "row_group_size": 2**17}
    parquet.write_table(table, path, compression="zstd", compression_level=3, **options)
    return lambda: parquet.read_table(path)


def _advised(tensor: Tensor, folder: Path) -> list[str]:
    """The format that is advised for small files, and the size of its file relative to that of the best candidate."""
    advice, sizes = advise(tensor, compression="small"), []
    for candidate in advice.candidates:
        if candidate.nbytes <= 4 * min(x.nbytes for x in advice.candidates):  # others are dense
            path = folder / f"{len(sizes)}.zarr"
            write(path, tensor.convert(candidate.format), compression="small")
            sizes.append(size(path))
    return [str(advice.best), f"{sizes[0] / min(sizes):.3f}"]


def made(n: int) -> Iterator[tuple[str, Tensor]]:
    """Ten data sets of about n entries, by name."""
    random = np.random.default_rng(0)

    def matrix(rows: Any, columns: Any, values: Any, shape: tuple[int, ...]) -> Tensor:
        return pack([rows, columns], values, shape, "CSR", duplicates="first")

    cells = max(n // 300, 1)
    means = random.lognormal(-3.2, 1.9, _GENES) * random.lognormal(0, 0.4, (cells, 1))
    counts = random.poisson(random.gamma(2.0, means / 2))
    rows, columns = np.nonzero(counts)
    found = counts[rows, columns]
    yield "counts of genes", matrix(rows, columns, found, counts.shape)
    logarithms = np.log1p(found / counts.sum(1)[rows] * 1e4).astype(np.float32)
    yield "their logarithms", matrix(rows, columns, logarithms, counts.shape)

    users, items = max(n // 45, 1), 10_000
    chosen = _popular(random, items, n, 0.8)
    stars = random.choice(np.arange(1.0, 6), n, p=[0.06, 0.11, 0.26, 0.35, 0.22])
    yield "ratings", matrix(random.integers(0, users, n), chosen, stars, (users, items))

    documents, words = max(n // 160, 1), 50_000
    inside = np.sort(random.integers(0, documents, n))
    places, frequency = np.unique(inside * words + _popular(random, words, n, 1.05), return_counts=True)
    rows, columns = np.divmod(places, words)
    weights = frequency * (1 + np.log((1 + documents) / (1 + np.bincount(columns, minlength=words)[columns])))
    norms = np.sqrt(np.bincount(rows, weights**2, documents))
    yield "tf-idf", matrix(rows, columns, weights / norms[rows], (documents, words))

    rows = np.repeat(np.arange(n // 3), 3)
    kinds = [
        random.integers(0, 12, n // 3),
        12 + random.zipf(1.3, n // 3) % 200,
        212 + random.integers(0, 1000, n // 3),
    ]
    yield "one-hot", matrix(rows, np.stack(kinds, 1).reshape(-1), np.ones(len(rows)), (n // 3, 1212))

    scale = max(int(np.log2(n / 13)), 1)
    quadrants = random.choice(4, (scale, n), p=[0.57, 0.19, 0.19, 0.05])
    powers = 2 ** np.arange(scale)[:, None]
    rows, columns = ((powers * part).sum(0) for part in (quadrants // 2, quadrants % 2))
    yield "R-MAT", matrix(rows, columns, np.ones(n), (2**scale, 2**scale))

    yield "stencil of ten materials", _stencil(random, max(round((n / 7) ** (1 / 3)), 2))
    yield "weather", _weather(random, n)

    moments = np.sort(random.integers(0, 10**7, n))
    across = (moments * 1e-7 * 346 * 3 + random.normal(0, 12, n)).astype(np.int64) % 346
    down = np.clip(random.normal(130, 50, n), 0, 259).astype(np.int64)
    signs = random.choice(np.array([-1, 1], np.int8), n)
    shape = (10**7, 346, 260)
    yield "events of a camera", pack([moments, across, down], signs, shape, "CSF", duplicates="first")
    side = max(round(n**0.5) * 58, 1)
    yield "random", matrix(random.integers(0, side, n), random.integers(0, side, n), random.random(n), (side, side))


def _popular(random: np.random.Generator, size: int, n: int, exponent: float) -> Any:
    """Coordinates by a power law, whose popular ones lie anywhere."""
    shares = 1 / np.arange(5, size + 5) ** exponent
    return random.choice(random.permutation(size), n, p=shares / shares.sum())


def _stencil(random: np.random.Generator, side: int) -> Tensor:
    """The matrix of seven points on a cubic grid, in blocks of ten materials."""
    conductivity = random.choice([1, 1.7, 2.3, 3.1, 10.5, 11.2, 50.3, 52.7, 1e3, 1.3e3], (side // 13 + 1,) * 3)
    whole = conductivity.repeat(13, 0).repeat(13, 1).repeat(13, 2)[:side, :side, :side]
    numbers = np.arange(side**3).reshape(whole.shape)
    rows, columns, values, diagonal = [numbers.reshape(-1)], [numbers.reshape(-1)], [], np.zeros(side**3)
    for axis in range(3):
        low, high = (np.delete(numbers, k, axis).reshape(-1) for k in (-1, 0))
        between = 2 / (1 / whole.reshape(-1)[low] + 1 / whole.reshape(-1)[high])
        for a, b in ((low, high), (high, low)):
            rows, columns, values = [*rows, a], [*columns, b], [*values, -between]
            diagonal += np.bincount(a, between, side**3)
    listed = [np.concatenate(rows), np.concatenate(columns)]
    return pack(listed, np.concatenate([diagonal, *values]), (side**3,) * 2, "CSR")


def _weather(random: np.random.Generator, n: int) -> Tensor:
    """Smooth fields of three significant digits above a threshold: time, height, latitude, longitude."""
    shape = (max(n // 140_000, 1), 10, 181, 360)
    field = np.zeros(shape)
    axes = [np.linspace(0, 2 * np.pi, size) for size in shape]
    for _ in range(40):
        waves = [np.cos(random.integers(0, 9) * x + random.uniform(0, 7)) for x in axes]
        field += reduce(np.multiply.outer, waves)
    places = np.nonzero(field > field.std())
    exact = np.exp(field[places] / field.std() + 0.05 * random.standard_normal(len(places[0])))
    step = 10.0 ** (np.floor(np.log10(exact)) - 2)
    rounded = np.round(exact / step) * step
    return pack(places, np.round(rounded, 6), shape, "dense, dense, dense, sparse")


if __name__ == "__main__":
    main()
