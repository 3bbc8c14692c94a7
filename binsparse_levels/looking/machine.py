"""The record of a measurement: the machine, its load, versions, and checksums of the code of others."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from ..levels import LEVELS
from ..levels.base import OWN, package_of
from ..system import own_cores, processor_name, reported_sizes
from ..version import __version__

_LEAST_BUFFER = 2**26  # bytes that fill the caches of a system that does not report their sizes


def machine() -> dict[str, Any]:
    """The processor, the memory, the system, versions, the command, and the level kinds of other packages."""
    import h5py
    import llvmlite  # type: ignore[import-untyped]
    import numba
    from llvmlite import binding

    reported = reported_sizes()
    return {
        "processor": processor_name(), "target": binding.get_host_cpu_name(), "cores": os.cpu_count(),
        "affinity": own_cores(),
        "caches": {name: size for name, size in reported.items() if "CACHE" in name},
        "memory": reported.get("SC_PHYS_PAGES", 0) * reported.get("SC_PAGE_SIZE", 0), "system": platform.platform(),
        "python": platform.python_version(), **{x.__name__: x.__version__ for x in (np, numba, llvmlite, h5py)},
        "binsparse_levels": __version__, "commands": [sys.orig_argv],
        "kinds": {name: origin(kind) for name, kind in LEVELS.items() if package_of(kind) != OWN},
    }  # fmt: skip


def origin(thing: Callable[..., Any]) -> dict[str, Any]:
    """The name of a function or class, its module, the version of its package, and a checksum of its source text.

    The text of a class is that of its file, if it has one.
    """
    place = str(getattr(thing, "__module__", None))
    module = sys.modules.get(place)
    found = {"name": getattr(thing, "__qualname__", type(thing).__qualname__), "module": place}
    with contextlib.suppress(PackageNotFoundError, ValueError):
        found["version"] = version(place.partition(".")[0])
    with contextlib.suppress(OSError, TypeError):  # compiled code, or typed into an interpreter
        source: Any = module if inspect.isclass(thing) and hasattr(module, "__file__") else thing
        text = inspect.getsource(source)
        found["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    return found


@functools.cache
def _buffer() -> Any:
    """Twice as many bytes as the largest cache."""
    largest = max((size for name, size in reported_sizes().items() if "CACHE" in name), default=0)
    return np.ones(max(2 * largest, _LEAST_BUFFER) // 8)


def evict() -> None:
    """Read more memory than the caches keep, twice, so that they have no other data."""
    for _ in range(2):
        _buffer().max()


@functools.cache
def bandwidth() -> float:
    """Bytes per second that one processor reads and writes when it copies more memory than the caches keep."""
    source, times = _buffer(), []
    target = source.copy()
    for _ in range(5):
        begin = time.process_time()
        np.copyto(target, source)
        times.append(time.process_time() - begin)
    return float(2 * source.nbytes / max(min(times), 1e-9))
