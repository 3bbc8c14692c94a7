"""What a row of the board is, and the verdict on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

Call = Callable[[], Any]
Maker = Callable[[Any], Call]  # takes the data and makes what is timed, or raises ImportError
# Against the best peer, a peer or a limit of that name, or a time in seconds: what is required, and the aim if any.
Targets = Mapping[str, tuple[float, float | None]]

OURS, OURS_2, BEFORE = "ours", "ours, 2 threads", "before"
BEST, TIME = "best", "time"
BELOW, OK, AHEAD, ALONE = "below gate", "ok", "ahead of aim", "no peer"
_EVEN = 0.97  # of the time of a peer: what differs by less is no difference


@dataclass(frozen=True)
class Row:
    """One operation on so many entries. make: the data, in a folder that lasts as long as they; ours: the operation on
    them. limits: what a machine cannot do faster, such as a copy; no peers.

    waits: whether waiting, for a disk or a process, is a part of it. threaded: whether our threads can matter.
    calls: in each timing. rounds: at most. bytes: whether the calls return sizes, which are judged in place of times.
    """

    name: str
    entries: int
    make: Callable[[Path], Any]
    ours: Callable[[Any], Any]
    peers: Mapping[str, Maker]
    targets: Targets
    limits: Mapping[str, Maker] = field(default_factory=dict)
    waits: bool = False
    threaded: bool = True
    calls: int = 1
    rounds: int = 100
    bytes: bool = False


class Verdict(NamedTuple):
    """The ratio to what decides: of all targets the one that is furthest from its gate.

    behind: the fastest peer, where it is faster than ours.
    """

    against: str = ""
    ratio: float | None = None
    gate: float | None = None
    aim: float | None = None
    word: str = ALONE
    behind: str = ""


def verdict(row: Row, measured: Mapping[str, float]) -> Verdict:
    """measured: seconds, or bytes, of each call by name."""
    peers = [name for name in measured if name not in (OURS, OURS_2, BEFORE, *row.limits)]
    best = min(peers, key=measured.__getitem__, default="")
    ours = measured[OURS]
    judged = []
    for name, (gate, aim) in row.targets.items():
        if name == TIME:
            against, ratio = f"{1e3 * gate:g} ms", gate / ours
            gate, aim = 1.0, aim and gate / aim
        else:
            against = best if name == BEST else name
            if against not in measured:
                continue
            ratio = measured[against] / ours
        word = BELOW if ratio < gate else AHEAD if aim and ratio >= aim else OK
        judged.append((ratio / gate, Verdict(against, ratio, gate, aim, word)))
    decisive = min(judged)[1] if judged else Verdict()
    return decisive._replace(behind=best if best and measured[best] < _EVEN * ours else "")


def summary(rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """The last lines of a board: how many rows have which verdict, what two threads do, and each row that is behind."""
    verdicts = [row["verdict"] for row in rows]
    words = Counter(verdict["word"] for verdict in verdicts)
    behind = [row for row in rows if row["verdict"]["behind"]]
    gains = [row["times"][OURS]["minimum"] / row["times"][OURS_2]["minimum"] for row in rows if OURS_2 in row["times"]]
    faster, slower = sum(gain >= 1.5 for gain in gains), sum(gain < _EVEN for gain in gains)
    for row in behind:
        other = row["times"][row["verdict"]["behind"]]["minimum"] / row["times"][OURS]["minimum"]
        yield f"behind {row['verdict']['behind']}, {other:.2f}: {row['row']}, {row['entries']:,}"
    yield f"Two threads: {len(gains)} rows, {faster} at least 1.5 times as fast as with one, {slower} slower."
    yield (
        f"{len(rows)} rows: {words[AHEAD]} ahead of their aim, {words[OK]} ok, {words[BELOW]} below their gate, "
        f"{words[ALONE]} without a peer; {len(behind)} behind a peer."
    )
