"""How the board measures: the settings of its process, and calls in turn."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numba  # noqa: F401 (as peers do: an earlier package asked whether it was loaded)
import numpy as np

from .row import OURS, Call, Row

# The first touch of a page costs more than most calls, in a virtual machine up to seconds for each GiB: memory that was
# touched once is kept, in huge pages.
KEEPING = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**46),
    "MALLOC_TOP_PAD_": str(2**26),
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
# One thread against one thread: peers that start threads by themselves have none.
_COUNTS = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS", "ZARR_THREADING__MAX_WORKERS"
THREADS = dict.fromkeys(_COUNTS, "1")

_BYTES = 240  # that the largest row touches for each of its entries
_SLOW = 3.0  # a call that takes so many times as long as ours is timed once
_ROUND, _MOST = 0.02, 4  # a round has up to so many timings of a call, while they take less seconds


def restart(settings: Mapping[str, str]) -> None:
    """Run this program again with these environment variables, unless they are set: malloc reads them at its start."""
    if sys.platform == "linux" and any(os.environ.get(name) != value for name, value in settings.items()):
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **settings})


def environment() -> dict[str, str]:
    """The environment without the settings of the board, as a user's program has it."""
    return {name: value for name, value in os.environ.items() if name not in {**KEEPING, **THREADS}}


def touch(entries: int) -> None:
    """Touch as much memory as rows of so many entries need and free it, at most half of what is free."""
    if sys.platform == "linux":
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        np.empty(min(_BYTES * entries, free // 2), np.uint8)[::4096] = 1


def timed(call: Call, row: Row) -> float:
    """Seconds of a call, without the collector.

    A busy machine takes the processor away: then its time says more than the clock, and the lesser of both is used,
    unless waiting is a part of the row.
    """
    gc.disable()
    try:
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(row.calls):
            call()
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        return (wall if row.waits else min(wall, processor)) / row.calls
    finally:
        gc.enable()


def measured(
    row: Row,
    calls: Mapping[str, Call],
    rounds: int,
    elsewhere: Mapping[str, Callable[[], float]] = MappingProxyType({}),
) -> dict[str, float]:
    """The least seconds of every call, in turn, round after round. elsewhere: calls that other processes time."""
    warm = {}
    for name, call in calls.items():
        timed(call, row)  # loads kernels
        warm[name] = timed(call, row)
    found = {name: [seconds] for name, seconds in warm.items()} | {name: [] for name in elsewhere}
    for _ in range(rounds):
        for name, call in calls.items():
            if warm[name] <= _SLOW * warm[OURS]:
                found[name] += [timed(call, row) for _ in range(_in_a_row(warm[name] * row.calls))]
        for name, time_it in elsewhere.items():
            found[name] += [time_it() for _ in range(_in_a_row(warm[OURS] * row.calls))]
    return {name: min(seconds) for name, seconds in found.items()}


def _in_a_row(seconds: float) -> int:
    """How many timings a round has. Of short calls several: the first finds the caches full of other data."""
    return min(max(int(_ROUND / max(seconds, 1e-9)), 1), _MOST)
