"""What was measured, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .growth import OPERATIONS, RANKS
from .row import BEFORE, BELOW, OURS, OURS_2

JUMP = "▲"
JUMPS = 1.5  # times the ns an entry of the next smaller size: more of it is marked

_HEAD = (
    "operation", "entries", "ours", "median", "2 threads", "peers", "against", "ratio", "gate", "aim",
    "verdict", "of the copy", "of the limit", "peak, MB", "its peak", "faults",
)  # fmt: skip


def board(found: Sequence[dict[str, Any]]) -> Iterable[str]:
    """A line for each row: times in milliseconds, the minimum of all rounds."""
    compared = any(BEFORE in row["times"] for row in found)
    yield from _head([*_HEAD, *(("before", "before → ours") if compared else ())])
    for row in found:
        yield _line([*_cells(row), *(_before(row) if compared else ())])


def _before(row: dict[str, Any]) -> Iterable[str]:
    """The time of the other checkout, how much faster ours is, the ratio of the verdict before and now."""
    if BEFORE not in row["times"]:  # the other package lacks the operation
        yield from ("", "")
        return
    before, ours = (row["times"][name]["minimum"] for name in (BEFORE, OURS))
    ratio = row["verdict"]["ratio"]
    judged = "" if ratio is None else f", ratio {_number(ratio * ours / before)} → {_number(ratio)}"
    yield _ms(before)
    yield f"{before / ours:.2f} ×{judged}"


def _cells(row: dict[str, Any]) -> Iterable[str]:
    times, verdict, peaks = row["times"], row["verdict"], row["peaks"]
    ours = times[OURS]["minimum"]
    peers = sorted(
        (times[name]["minimum"], name) for name in times if name not in (OURS, OURS_2, BEFORE, *row["limits"])
    )
    yield row["row"]
    yield f"{row['entries']:,}"
    yield _ms(ours)
    yield _ms(times[OURS]["median"])
    yield _ms(times[OURS_2]["minimum"]) if OURS_2 in times else ""
    yield ", ".join(f"{name} {_ms(seconds)}" for seconds, name in peers)
    yield verdict["against"]
    yield from (_number(verdict[key]) for key in ("ratio", "gate", "aim"))
    behind = f", behind {verdict['behind']}" if verdict["behind"] else ""
    yield (f"**{verdict['word']}**" if verdict["word"] == BELOW else verdict["word"]) + behind
    yield f"{100 * row['of_copy']:.0f} %" if "of_copy" in row else ""
    yield ", ".join(f"{ours / times[name]['minimum']:.1f} × {name}" for name in row["limits"])
    yield _megabytes(peaks.get(OURS))
    yield _megabytes(peaks.get(verdict["against"]))
    yield str(times[OURS]["faults"])


def growth(found: Sequence[dict[str, Any]]) -> Iterable[str]:
    """For each operation a table of entries by rank: ns and bytes an entry, with a mark where the ns jump."""
    by_name = {(row["row"], row["entries"]): row for row in found}
    jumped = {(row["row"], row["entries"]): factor for row, factor in jumps(found)}
    for operation in OPERATIONS:
        yield from _head([operation, *(f"rank {rank}" for rank in RANKS)])
        for n in dict.fromkeys(n for _, n in by_name):
            keys = [(f"{operation}, rank {rank}", n) for rank in RANKS]
            cells = [_growth_cell(by_name[key], jumped.get(key)) if key in by_name else "" for key in keys]
            yield _line([f"{n:,}", *cells])
        yield ""


def jumps(found: Sequence[dict[str, Any]]) -> Iterable[tuple[dict[str, Any], float]]:
    """The rows whose ns an entry, with one thread or two, are much more than those of the next smaller size."""
    before: dict[str, dict[str, Any]] = {}
    for row in sorted(found, key=lambda row: row["entries"]):
        smaller = before.get(row["row"])
        if smaller is not None:
            factors = [ns(row, name) / ns(smaller, name) for name in (OURS, OURS_2)]
            if max(factors) > JUMPS:
                yield row, max(factors)
        before[row["row"]] = row


def ns(row: dict[str, Any], name: str) -> float:
    """Nanoseconds an entry."""
    return float(1e9 * row["times"][name]["minimum"] / row["entries"])


def _growth_cell(row: dict[str, Any], jumped: float | None) -> str:
    peak = row["peaks"].get(OURS)
    size = "" if peak is None else f"{peak / row['entries']:.0f}"
    mark = "" if jumped is None else f" {JUMP} {jumped:.1f}"
    return f"{ns(row, OURS):.3g} / {ns(row, OURS_2):.3g} / {size}{mark}"


def _head(names: Sequence[str]) -> Iterable[str]:
    yield _line(names)
    yield _line(["---"] + ["---:"] * (len(names) - 1))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.0f}" if seconds >= 0.1 else f"{1e3 * seconds:.3g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.0f}"
