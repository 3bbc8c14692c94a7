"""What a row of the board is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Call = Callable[[], Any]
Maker = Callable[[Any], Call]  # takes the data and makes what is timed, or raises ImportError

OURS, BEFORE = "ours", "before"


@dataclass(frozen=True)
class Row:
    """One operation. make: the data, in a folder that lasts as long as they; ours: the operation on them.

    peers: what a user would pick instead. headline: whether it is one of the six that must stay fast.
    waits: whether waiting, for a disk or a process, is a part of it. calls: in each timing.
    """

    name: str
    make: Callable[[Path], Any]
    ours: Callable[[Any], Any]
    peers: Mapping[str, Maker]
    headline: bool = False
    waits: bool = False
    calls: int = 1
