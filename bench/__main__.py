"""python -m bench: every row, ours and the peer's alternating in one process, minimum, median and ratio.

Machines are shared and noisy: believe ratios of minima. Both sides use one thread.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse

from binsparse_levels import Tensor, pack, read, write

Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """One operation: our call, the best of the peers', and its name."""

    name: str
    ours: Call
    peer_name: str
    peer: Call


def timed(call: Call) -> float:
    """Seconds of one call, without the collector."""
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        result = call()
        elapsed = time.perf_counter() - begin
        del result
    finally:
        gc.enable()
    return elapsed


def measured(row: Row, rounds: int) -> dict[str, Any]:
    """Both calls alternately, after one call of each to warm up."""
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    timed(row.ours)
    timed(row.peer)
    for _ in range(rounds):
        times["ours"].append(timed(row.ours))
        times["peer"].append(timed(row.peer))
    found: dict[str, Any] = {"row": row.name, "peer_name": row.peer_name}
    for side, seconds in times.items():
        found[side] = {"minimum": min(seconds), "median": statistics.median(seconds)}
    found["ratio"] = found["peer"]["minimum"] / found["ours"]["minimum"]
    return found


def rows(n: int, folder: Path) -> Iterator[Row]:
    """The rows for n entries. Matrices have n / 10 rows and columns."""
    generator = np.random.default_rng(0)
    size = max(n // 10, 10)
    shape = (size, size)
    i, j = (generator.integers(0, size, n, dtype=np.int32) for _ in range(2))
    values = generator.random(n)
    skewed = [(generator.zipf(1.5, n) % size).astype(np.int32) for _ in range(2)]

    def theirs(coords: Any) -> Any:
        return scipy.sparse.coo_array((values, tuple(coords)), shape=shape)

    csr = pack([i, j], values, shape, "CSR", duplicates="sum")
    their_csr = theirs([i, j]).tocsr()
    assert np.array_equal(csr.arrays["indices_1"], their_csr.indices)
    coo, their_coo = csr.convert("COO"), their_csr.tocoo()
    cube = (max(n // 1000, 4), 1000, 1000)
    places = [generator.integers(0, side, n) for side in cube]
    linear = np.ravel_multi_index(places, cube)
    csf = "sparse, sparse, sparse"

    def gather(order: Any) -> Any:
        return [x[order] for x in places], values[order]

    yield Row(
        "pack, uniform → CSR",
        lambda: pack([i, j], values, shape, "CSR", duplicates="sum"),
        "scipy coo_array.tocsr",
        lambda: theirs([i, j]).tocsr(),
    )
    yield Row(
        "pack, skewed → CSR, duplicates summed",
        lambda: pack(skewed, values, shape, "CSR", duplicates="sum"),
        "scipy coo_array.tocsr",
        lambda: theirs(skewed).tocsr(),
    )
    yield Row(
        "pack, sorted → CSR",
        lambda: pack([coo.arrays["indices_0"], coo.arrays["indices_1"]], coo.values, shape, "CSR"),
        "scipy coo_array.tocsr",
        their_coo.tocsr,
    )
    yield Row(
        "pack, rank 3 → sparse, sparse, sparse",
        lambda: pack(places, values, cube, csf, duplicates="sum"),
        "numpy argsort of a linear key, gather",
        lambda: gather(np.argsort(linear)),
    )
    yield Row("convert, CSR → CSC", lambda: csr.convert("CSC"), "scipy tocsc", their_csr.tocsc)
    yield Row("convert, CSR → COO", lambda: csr.convert("COO"), "scipy tocoo", lambda: their_csr.tocoo(copy=False))
    yield Row("convert, COO → CSR", lambda: coo.convert("CSR"), "scipy tocsr", their_coo.tocsr)
    yield Row("unpack, CSR", csr.unpack, "scipy tocoo, int64", lambda: scipy_unpack(their_csr))
    yield Row("check, CSR", csr.check, "scipy check_format and has_canonical_format", lambda: scipy_check(their_csr))
    yield Row(
        "write, HDF5, CSR",
        lambda: write(folder / "ours.h5", csr, overwrite=True),
        "h5py create_dataset, fsync",
        lambda: h5py_write(folder / "peer.h5", csr),
    )
    yield Row(
        "read and check, HDF5, CSR",
        lambda: read(folder / "ours.h5"),
        "h5py, no check",
        lambda: h5py_read(folder / "ours.h5"),
    )


def scipy_unpack(matrix: Any) -> Any:
    coo = matrix.tocoo(copy=False)
    return [x.astype(np.int64) for x in coo.coords], coo.data


def scipy_check(matrix: Any) -> None:
    copy = type(matrix)((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape, copy=False)
    copy.check_format(full_check=True)
    assert copy.has_canonical_format


def h5py_write(path: Path, tensor: Tensor) -> None:
    with h5py.File(path, "w") as file:
        for name, array in {**tensor.arrays, "values": tensor.values}.items():
            file.create_dataset(name, data=array)
    with open(path, "rb") as raw:
        os.fsync(raw.fileno())


def h5py_read(path: Path) -> Any:
    with h5py.File(path) as file:
        return [file[name][...] for name in file]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000_000, help="of each tensor (10 million)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", default="", help="only rows whose name has this text")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = []
    if not options.json:
        print(f"{'':40} {'ours, ms':>10} {'peer, ms':>10} {'ratio':>6}   {'peer'}")
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(options.entries, Path(folder)):
            if options.rows not in row.name:
                continue
            found.append(measured(row, options.rounds))
            if not options.json:
                ours, peer = (1e3 * found[-1][side]["minimum"] for side in ("ours", "peer"))
                print(
                    f"{row.name:40} {ours:10.1f} {peer:10.1f} {found[-1]['ratio']:6.2f}   {row.peer_name}", flush=True
                )
    if options.json:
        json.dump({"entries": options.entries, "load": os.getloadavg(), "rows": found}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
