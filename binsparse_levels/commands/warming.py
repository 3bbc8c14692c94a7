"""The command warm-up: compile common kernels, which numba caches on disk, for example in a container image."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from ..looking.advice import advise
from ..tensors.packing import pack, pack_dense
from ..thresholds import THRESHOLDS
from .terminal import OK, print_json

_ENTRIES = 10_000  # enough for several buckets of the sort
_FORMATS = {1: ["CVEC"], 2: ["CSR", "CSC", "DCSR", "COO"], 3: ["CSF", "COO"], 4: ["CSF", "COO"]}


def _warm_up(options: argparse.Namespace) -> int:
    from numba import config

    began = time.monotonic()
    THRESHOLDS.first_entries = 0
    for dtype in ("float64", "float32", "int64"):
        for rank, formats in _FORMATS.items():
            _use(rank, formats, np.ones(_ENTRIES, dtype))
    seconds = round(time.monotonic() - began, 1)
    folder = getattr(config, "CACHE_DIR", "") or "__pycache__ of the package"
    if options.json:
        print_json({"seconds": seconds, "cache": folder})
    else:
        print(f"compiled in {seconds} s; cached in {folder}")
    return OK


def _use(rank: int, formats: list[str], values: Any) -> None:
    """Pack, convert, check, select and advise with values of this type."""
    shape = (_ENTRIES if rank == 1 else 200,) * rank
    coords = [np.random.default_rng(k).integers(0, size, _ENTRIES) for k, size in enumerate(shape)]
    tensor = pack(coords, values, shape, formats[-1], duplicates="sum")
    pack(*tensor.unpack(), shape, formats[-1])  # the path without a sort
    for format in formats:
        made = tensor.convert(format)
        made.check()
        made.permute(range(rank)[::-1]).convert(format)
        made[1:].load()
        made.locate(coords)
        if rank < 4:
            pack_dense(made.to_dense()[:100], "COO")
    advise(tensor)


COMMANDS: dict[str, tuple[Any, ...]] = {
    "warm-up": (_warm_up, "compile common kernels now, so that later calls do not wait for them", [""]),
}
