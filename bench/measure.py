"""How the board measures: the settings of its process, calls in turn, the memory that a call takes."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from binsparse_levels import set_threads

from .fingerprint import fingerprint
from .row import BELOW, OURS, OURS_2, Call, Row, verdict

# The first touch of a page costs more than most calls, in a virtual machine up to seconds for each GiB: memory that was
# touched once is kept, in huge pages.
KEEPING = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**46),
    "MALLOC_TOP_PAD_": str(2**26),
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
# What is freed goes back at once, so that the resident memory is what is in use.
RELEASING = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "0",
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0",  # the allocator of polars
}
# One thread against one thread: peers that start threads by themselves have none.
_COUNTS = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS", "ZARR_THREADING__MAX_WORKERS"
THREADS = dict.fromkeys(_COUNTS, "1")

_SLOW, _FAR = 0.05, 3.0  # a peer that takes more seconds than that, and times the best peer, is timed once
_AGAIN, _MORE = 3, 0.5  # what is below or behind has up to so many times the rounds, while they took less seconds
_LOADED = 1.0  # seconds of a first call, up to which a second one tells how long a call takes
_ROUND, _MOST = 0.02, 4  # a round has up to so many timings of a call, while they take less seconds
_COMPARED = 2_000_000  # entries, up to which results are compared: of more it would take longer than the calls


def restart(settings: Mapping[str, str]) -> None:
    """Run this program again with these environment variables, unless they are set: malloc reads them at its start."""
    if sys.platform == "linux" and any(os.environ.get(name) != value for name, value in settings.items()):
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **settings})


def environment() -> dict[str, str]:
    """The environment without the settings of the board, as a user's program has it."""
    return {name: value for name, value in os.environ.items() if name not in {**KEEPING, **THREADS}}


def available() -> int:
    """Bytes of memory that are free, or that the system frees when they are asked for; 8 GiB where it does not tell."""
    try:
        with open("/proc/meminfo") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 2**33


def touch(size: int) -> None:
    """Touch so many bytes and free them, at most half of what is free."""
    if sys.platform == "linux":
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        np.empty(min(size, free // 2), np.uint8)[::4096] = 1


def give_back() -> None:
    """Give all free memory back to the system, for the next process."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # a C library without it
            ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True)
class Timing:
    """Of one call: seconds by the clock and of the processor, pages that were touched for the first time."""

    wall: float
    cpu: float
    faults: int


def timed(call: Call, calls: int = 1) -> tuple[Timing, Any]:
    """One timing, without the collector, and the last result."""
    gc.disable()
    try:
        faults, cpu, wall = _faults(), _processor(), time.perf_counter()
        for _ in range(calls):
            result = call()
        wall, cpu = time.perf_counter() - wall, _processor() - cpu
        return Timing(wall / calls, cpu / calls, _faults() - faults), result
    finally:
        gc.enable()


def measured(
    row: Row, calls: dict[str, Call], rounds: int, elsewhere: Mapping[str, Callable[[], Timing]] = MappingProxyType({})
) -> dict[str, dict[str, Any]]:
    """Every call in turn, round after round. elsewhere: calls that other processes time.

    A busy machine takes the processor away: then its time tells more than the clock, and the lesser of both is used.
    """
    if row.bytes:
        return {name: _sized(call()) for name, call in calls.items()}
    calls = {OURS: calls[OURS], OURS_2: calls[OURS], **calls} if row.threaded else calls
    first = _warmed_up(row, calls) if row.threaded else {}  # what starts a process is never warm
    best = min((timing.wall for name, timing in first.items() if name in row.peers), default=0.0)
    slow = {name for name in row.peers if name in first and first[name].wall > max(_SLOW, _FAR * best)}
    timings: dict[str, list[Timing]] = {name: [] for name in (*calls, *elsewhere)}
    spent = 0.0
    for k in range(_AGAIN * rounds):
        if k >= rounds and (spent > _MORE or not _doubtful(row, timings)):
            break
        for name in [name for name in calls if k == 0 or name not in slow]:
            set_threads(2 if name == OURS_2 else 1)
            for _ in range(_in_a_row(first.get(name))):
                timings[name].append(timed(calls[name], row.calls)[0])
                spent += row.calls * timings[name][-1].wall
        for name, time_it in elsewhere.items():
            timings[name].append(time_it())
    return {name: _summary(found, row.waits) for name, found in timings.items()}


def _in_a_row(first: Timing | None) -> int:
    """How many timings a round has. Of short calls several: the first finds the caches full of other data."""
    return 1 if first is None else min(max(int(_ROUND / first.wall), 1), _MOST)


def _doubtful(row: Row, timings: Mapping[str, list[Timing]]) -> bool:
    """Whether more rounds may change the verdict for the better. Both sides get them."""
    judged = verdict(row, {name: _summary(found, row.waits)["minimum"] for name, found in timings.items()})
    return judged.word == BELOW or bool(judged.behind)


def _warmed_up(row: Row, calls: Mapping[str, Call]) -> dict[str, Timing]:
    """How long a warm call takes, of each; their results are compared."""
    timings, fingerprints = {}, {}
    for name, call in calls.items():
        set_threads(2 if name == OURS_2 else 1)
        timings[name], result = timed(call)
        if timings[name].wall < _LOADED:  # the first call loads its kernels
            timings[name] = min(timings[name], timed(call)[0], key=lambda timing: timing.wall)
        fingerprints[name] = fingerprint(result) if row.entries <= _COMPARED else None
        del result
        if None not in (fingerprints[OURS], fingerprints[name]) and fingerprints[name] != fingerprints[OURS]:
            raise AssertionError(f"{row.name}: the result of {name} differs from ours")
    return timings


def _summary(timings: list[Timing], waits: bool) -> dict[str, Any]:
    seconds = [timing.wall if waits else min(timing.wall, timing.cpu) for timing in timings]
    fastest = timings[seconds.index(min(seconds))]
    return {"minimum": min(seconds), "median": statistics.median(seconds), **asdict(fastest), "rounds": len(timings)}


def _processor() -> float:
    """Seconds of the processor that this process and those that it started and awaited have used."""
    return time.process_time() + _used("RUSAGE_CHILDREN", "ru_utime") + _used("RUSAGE_CHILDREN", "ru_stime")


def _sized(size: int) -> dict[str, Any]:
    """A size in GB, where a time in seconds is expected: what is shown as ms are MB."""
    return {"minimum": size / 1e9, "median": size / 1e9, **asdict(Timing(0, 0, 0)), "rounds": 1}


def _faults() -> int:
    return int(_used("RUSAGE_SELF", "ru_minflt"))


def _used(whose: str, field: str) -> float:
    try:
        import resource
    except ImportError:  # a system without it
        return 0
    return float(getattr(resource.getrusage(getattr(resource, whose)), field))


def peak(call: Call) -> int | None:
    """The most bytes that a call adds to the resident memory, its result among them; None where the system cannot tell.

    Precondition: the process has the settings RELEASING.
    """
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the high-water mark starts anew
        before = resident("VmRSS")
        result = call()
        most = resident("VmHWM") - before
        del result
    except OSError:
        return None
    return max(most, 0)


def resident(field: str) -> int:
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(field))
