"""The processor that the board runs on: its name, its caches, how fast one thread copies and sums memory."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Virtual machines hide the number of the product, and tell the family and the model. Models in order, None for all.
_GENERATIONS = {
    ("AuthenticAMD", 26): {None: "Zen 5"},
    ("AuthenticAMD", 25): {17: "Zen 4", 1: "Zen 3"},
    ("GenuineIntel", 6): {207: "Emerald Rapids", 173: "Granite Rapids", 143: "Sapphire Rapids", 106: "Ice Lake"},
}
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_ITEMS, _ROUNDS = 2 * 10**7, 7  # float64 items: 160 MB, more than the caches of one core


def processor() -> dict[str, Any]:
    """Model, generation, cores, caches and memory in bytes; what the system does not tell is left out."""
    told = _cpuinfo()
    family, model = (int(told.get(name, "-1")) for name in ("cpu family", "model"))
    known = _GENERATIONS.get((told.get("vendor_id", ""), family), {})
    found = {
        "model": told.get("model name") or platform.processor() or platform.machine(),
        "generation": known.get(model, known.get(None)),
        "family": None if family < 0 else f"{family}/{model}",
        "cores": os.cpu_count(),
        "caches": _caches(),
    }
    return {key: value for key, value in found.items() if value}


def slug(found: dict[str, Any]) -> str:
    """The name of a processor's file of results.

    >>> slug({"model": "Intel(R) Xeon(R) Processor", "generation": "Emerald Rapids"})
    'intel-xeon-emerald-rapids'
    """
    bare = re.sub(r"\((R|TM)\)|\bCPU\b|\bProcessor\b|@.*", " ", found["model"], flags=re.IGNORECASE)
    if "generation" in found:
        bare = " ".join([*re.findall(r"[A-Za-z]+", bare)[:2], found["generation"]])
    return re.sub(r"[^a-z0-9]+", "-", bare.lower()).strip("-")


def described(found: dict[str, Any], speeds: dict[str, float]) -> str:
    """One line for people."""
    caches = ", ".join(f"{name} {size / 2**10:,.0f} KiB" for name, size in found.get("caches", {}).items())
    generation = f" ({found['generation']})" if "generation" in found else ""
    fast = ", ".join(f"{name} {speed / 1e9:.1f} GB/s" for name, speed in speeds.items())
    return f"{found['model']}{generation}, {found['cores']} cores, {caches}; one thread: {fast}"


def speeds() -> dict[str, float]:
    """Bytes in a second of one thread: copied from array to array, and summed. The fastest of some rounds."""
    source, target = np.ones(_ITEMS), np.ones(_ITEMS)
    return {"copy": _speed(lambda: np.copyto(target, source)), "sum": _speed(source.sum)}


def _speed(call: Callable[[], Any]) -> float:
    taken = []
    for _ in range(_ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        taken.append(min(time.perf_counter() - wall, time.process_time() - cpu))
    return 8 * _ITEMS / min(taken)


def _cpuinfo() -> dict[str, str]:
    """What Linux tells of the first processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _caches() -> dict[str, int]:
    """The sizes of the caches that hold data, by level."""
    found = {}
    for folder in sorted(_CACHES.glob("index*")):
        level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level}"] = int(size[:-1]) * {"K": 2**10, "M": 2**20}[size[-1]]
    return found
