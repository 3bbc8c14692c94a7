"""What was measured, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .growth import OPERATIONS, RANKS
from .measure import PEERS_WITH_THREADS
from .row import OURS, OURS_2

_HEAD = (
    "operation", "entries", "ours", "median", "2 threads", "peers", "against", "ratio", "2 threads", "gate", "aim",
    "verdict", "of the limit", "peak, MB", "its peak", "faults",
)  # fmt: skip


def board(found: Sequence[dict[str, Any]]) -> Iterable[str]:
    """A line for each row: times in milliseconds, the minimum of all rounds."""
    yield from _head(_HEAD)
    for row in found:
        yield _line(_cells(row))


def _cells(row: dict[str, Any]) -> Iterable[str]:
    times, verdict, peaks = row["times"], row["verdict"], row["peaks"]
    ours = times[OURS]["minimum"]
    peers = sorted((times[name]["minimum"], name) for name in times if name not in (OURS, OURS_2, *row["limits"]))
    yield row["row"]
    yield f"{row['entries']:,}"
    yield _ms(ours)
    yield _ms(times[OURS]["median"])
    yield _ms(times[OURS_2]["minimum"]) if OURS_2 in times else ""
    yield ", ".join(f"{_named(name)} {_ms(seconds)}" for seconds, name in peers)
    yield _named(verdict["against"])
    yield from (_number(verdict[key]) for key in ("ratio", "ratio_2", "gate", "aim"))
    yield f"**{verdict['word']}**" if verdict["word"] == "below gate" else verdict["word"]
    yield ", ".join(f"{ours / times[name]['minimum']:.1f} × {name}" for name in row["limits"])
    yield _megabytes(peaks.get(OURS))
    yield _megabytes(peaks.get(verdict["against"]))
    yield str(times[OURS]["faults"])


def growth(found: Sequence[dict[str, Any]]) -> Iterable[str]:
    """For each operation a table of entries by rank: milliseconds, and megabytes at the peak."""
    by_name = {(row["row"], row["entries"]): row for row in found}
    for operation in OPERATIONS:
        yield from _head([f"{operation}: ms / MB", *(f"rank {rank}" for rank in RANKS)])
        for n in dict.fromkeys(n for _, n in by_name):
            rows = [by_name.get((f"{operation}, rank {rank}", n)) for rank in RANKS]
            cells = [
                f"{_ms(row['times'][OURS]['minimum'])} / {_megabytes(row['peaks'].get(OURS))}" if row else ""
                for row in rows
            ]
            yield _line([f"{n:,}", *cells])
        yield ""


def _head(names: Sequence[str]) -> Iterable[str]:
    yield _line(names)
    yield _line(["---"] + ["---:"] * (len(names) - 1))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _named(peer: str) -> str:
    return f"{peer}²" if peer in PEERS_WITH_THREADS else peer


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.0f}" if seconds >= 0.1 else f"{1e3 * seconds:.3g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.0f}"
