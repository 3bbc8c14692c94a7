"""The record of a row of the benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Call = Callable[[], Any]
Maker = Callable[[Any], Call]  # takes the data and returns the timed call, or raises ImportError

OURS, BEFORE = "ours", "before"


@dataclass(frozen=True)
class Row:
    """One operation. make: makes the data, with a folder for files; ours: the operation on the data.

    peers: the same with other libraries. headline: True for the six that must stay fast. waits: True if it includes
    waiting for a disk or a process. calls: the number of calls in each timing.
    """

    name: str
    make: Callable[[Path], Any]
    ours: Callable[[Any], Any]
    peers: Mapping[str, Maker]
    headline: bool = False
    waits: bool = False
    calls: int = 1
