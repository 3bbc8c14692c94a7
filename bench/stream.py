"""python -m bench.stream: write a stream of random entries by `write_from`, larger than memory, to any kind of file.

Chunks are made when they are asked for. At the end, the number of entries, the sum of the values and a thousand entries
of the target are compared with those of the stream.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from typing import Any

import numpy as np
from dask.utils import parse_bytes

import binsparse_levels as bl

from .data import csf
from .measure import resident

_SIDE = 2**21  # so that no two of a billion entries of rank 3 are likely to meet
_SAMPLED = 1000


def main() -> None:
    options = _parsed()
    sizes = [min(options.chunk, options.rows - start) for start in range(0, options.rows, options.chunk)]
    stages: dict[str, str] = {}
    begin, processor = time.perf_counter(), time.process_time()

    def used() -> str:
        seconds, mine = time.perf_counter() - begin, time.process_time() - processor
        return f"{seconds:.1f} s, {mine:.1f} s of the processor, VmHWM {resident('VmHWM') / 2**20:,.0f} MiB"

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in stages:
            stages[stage] = used()
            print(f"before {stage}: {stages[stage]}", file=sys.stderr)

    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        target = f"{folder}/a{options.suffix}"
        chunks = (_chunk(k, size, options.dtype) for k, size in enumerate(sizes))
        bl.write_from(chunks, target, (_SIDE,) * 3, options.format, memory=options.memory, progress=progress)
        print(f"{options.rows:,} entries in {len(sizes):,} chunks to {options.suffix}: {used()}")
        _check(target, sizes, options.dtype)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.stream", description=__doc__)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=8 * 10**6, help="of the stream (8e6)")
    parser.add_argument("--chunk", type=lambda text: int(float(text)), default=10**6, help="rows of a chunk (1e6)")
    parser.add_argument("--dtype", default="float64", help="of the values (%(default)s)")
    parser.add_argument("--format", default=csf(3), help="of the target, of rank 3 ('%(default)s')")
    parser.add_argument("--memory", type=parse_bytes, default=2**30, help="that the process may use (1GiB)")
    parser.add_argument("--suffix", default=".h5", help="of the target, such as .zarr (%(default)s)")
    parser.add_argument("--folder", metavar="DIR", help="for the target and scratch files; a temporary one")
    return parser.parse_args()


def _chunk(number: int, count: int, dtype: str) -> tuple[list[Any], Any]:
    """A chunk of the stream. Its values are whole numbers, so that sums are exact."""
    generator = np.random.default_rng(number)
    coords = [generator.integers(0, _SIDE, count, np.int32) for _ in range(3)]
    return coords, generator.integers(1, 100, count).astype(dtype)


def _check(target: str, sizes: list[int], dtype: str) -> None:
    """Raise AssertionError where the target is not the stream."""
    tensor = bl.open(target)
    total = 0.0
    for k, size in enumerate(sizes):
        coords, values = _chunk(k, size, dtype)
        total += float(values.sum(dtype=float))
    found = tensor.number_of_stored_values, float(bl.reduce(tensor))
    if found != (sum(sizes), total):
        raise AssertionError(f"the target has {found} entries and sum; the stream has {sum(sizes)}, {total}")
    some = slice(0, _SAMPLED)
    if not np.array_equal(tensor[tuple(x[some] for x in coords)], values[some]):
        raise AssertionError("entries of the last chunk are not in the target")


if __name__ == "__main__":
    main()
