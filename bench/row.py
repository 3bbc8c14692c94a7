"""What a row of the board is, and the verdict on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

Call = Callable[[], Any]
Maker = Callable[[Any], Call]  # takes the data and makes what is timed, or raises ImportError
# Against the best peer, a peer or a limit of that name, or a time in seconds: what is required, and the aim if any.
Targets = Mapping[str, tuple[float, float | None]]

OURS, OURS_2, BEFORE = "ours", "ours, 2 threads", "before"
BEST, TIME = "best", "time"


@dataclass(frozen=True)
class Row:
    """One operation on so many entries. make: the data, in a folder that lasts as long as they; ours: the operation on
    them. limits: what a machine cannot do faster, such as a copy; no peers.

    threads: of ours, on which the gate is judged. waits: whether waiting, for a disk or a process, is a part of it.
    threaded: whether our threads can matter. calls: in each timing. rounds: at most.
    """

    name: str
    entries: int
    make: Callable[[Path], Any]
    ours: Callable[[Any], Any]
    peers: Mapping[str, Maker]
    targets: Targets
    limits: Mapping[str, Maker] = field(default_factory=dict)
    threads: int = 1
    waits: bool = False
    threaded: bool = True
    calls: int = 1
    rounds: int = 100


class Verdict(NamedTuple):
    """Ratios to what decides: of all targets the one that is furthest from its gate."""

    against: str = ""
    ratio: float | None = None
    ratio_2: float | None = None
    gate: float | None = None
    aim: float | None = None
    word: str = "no peer"


def verdict(row: Row, seconds: Mapping[str, float]) -> Verdict:
    """seconds: of each call by name."""
    peers = [name for name in seconds if name not in (OURS, OURS_2, BEFORE, *row.limits)]
    found = []
    for name, (gate, aim) in row.targets.items():
        if name == TIME:
            against, time = f"{1e3 * gate:g} ms", gate
            gate, aim = 1.0, aim and gate / aim
        else:
            against = min(peers, key=seconds.__getitem__, default="") if name == BEST else name
            if against not in seconds:
                continue
            time = seconds[against]
        ratios = [time / seconds[side] if side in seconds else None for side in (OURS, OURS_2)]
        judged = ratios[row.threads - 1] or ratios[0]
        assert judged is not None
        word = "below gate" if judged < gate else "ahead of aim" if aim and judged >= aim else "ok"
        found.append((judged / gate, Verdict(against, *ratios, gate, aim, word)))
    return min(found)[1] if found else Verdict()
