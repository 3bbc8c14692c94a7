"""Measurement: the settings of the process, and alternating calls."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numba  # noqa: F401 (as peers do: an earlier package asked whether it was loaded)
import numpy as np

from binsparse_levels.thresholds import THRESHOLDS

from .row import OURS, Call, Row

THRESHOLDS.first_entries = 0  # rows measure kernels, as in a program that runs for long

# The first touch of a page takes longer than most calls, in a virtual machine up to seconds per GiB. Touched memory is
# therefore not returned to the system, and has huge pages.
KEEPING = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**46),
    "MALLOC_TOP_PAD_": str(2**26),
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
# All libraries use one thread.
_THREAD_COUNTS = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS", "ZARR_THREADING__MAX_WORKERS"
THREADS = dict.fromkeys(_THREAD_COUNTS, "1")

_BYTES_PER_ENTRY = 240  # of memory that the largest row touches
_SLOW_RATIO = 3.0  # calls that are slower than ours by this factor are timed once
_ROUND_SECONDS, _MAX_TIMINGS = 0.02, 4  # limits of the timings of a call in a round


def restart(settings: Mapping[str, str]) -> None:
    """Restart this program with these environment variables, unless they are set. malloc reads them at the start."""
    if sys.platform == "linux" and any(os.environ.get(name) != value for name, value in settings.items()):
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **settings})


def environment() -> dict[str, str]:
    """The environment without the settings of the benchmarks, as in a program of a user."""
    return {name: value for name, value in os.environ.items() if name not in {**KEEPING, **THREADS}}


def touch(entries: int) -> None:
    """Touch and free the memory that rows of this number of entries need, at most half of the free memory."""
    if sys.platform == "linux":
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        np.empty(min(_BYTES_PER_ENTRY * entries, free // 2), np.uint8)[::4096] = 1


def timed(call: Call, row: Row) -> float:
    """Seconds of a call, without garbage collection.

    The result is the smaller of wall time and processor time, because other programs may use the processor. For rows
    that include waiting, it is the wall time.
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
    """The smallest time of every call in seconds, alternating in rounds. elsewhere: calls timed by other processes."""
    warm = {}
    for name, call in calls.items():
        timed(call, row)  # loads kernels
        warm[name] = timed(call, row)
    found = {name: [seconds] for name, seconds in warm.items()} | {name: [] for name in elsewhere}
    for _ in range(rounds):
        for name, call in calls.items():
            if warm[name] <= _SLOW_RATIO * warm[OURS]:
                found[name] += [timed(call, row) for _ in range(_timings(warm[name] * row.calls))]
        for name, time_it in elsewhere.items():
            found[name] += [time_it() for _ in range(_timings(warm[OURS] * row.calls))]
    return {name: min(seconds) for name, seconds in found.items()}


def _timings(seconds: float) -> int:
    """The number of timings in a round. Short calls have several, because the first starts with cold caches."""
    return min(max(int(_ROUND_SECONDS / max(seconds, 1e-9)), 1), _MAX_TIMINGS)
