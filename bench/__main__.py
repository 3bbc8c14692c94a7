"""python -m bench: the operations that users wait for, compared with the fastest other library.

Machines are shared and noisy, so only ratios of minima within one run are meaningful.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from binsparse_levels import set_threads

from . import compute, files, operands, process, results, select, tables, trees
from .against import Other
from .measure import KEEPING, THREADS, measured, restart, touch
from .row import BEFORE, OURS, Call, Row

_COLUMNS = ("operation", "ours, ms", "peers, ms", "ratio", "earlier ratio")


def main() -> None:
    warnings.simplefilter("ignore", UserWarning)  # warnings of peers about the data
    options = _parsed(sys.argv[1:])
    rows = chosen(sys.argv[1:])
    restart(KEEPING | THREADS)
    set_threads(1)
    touch(options.entries)
    other = Other(options.against, sys.argv[1:], options.entries) if options.against else None
    absent: set[str] = set()
    times = {row.name: _timed(row, number, options.rounds, absent, other) for number, row in enumerate(rows)}
    if other is not None:
        other.close()
    found = {**results.head(options.entries), "rows": {name: _summary(seconds) for name, seconds in times.items()}}
    headlines = {row.name for row in rows if row.headline}
    lines = _table(times, found["rows"], results.earlier(), headlines)
    if options.keep:
        print(f"stored in {results.keep(found, Path(options.keep))}", file=sys.stderr)
    if options.json:
        json.dump({**found, "absent": sorted(absent), "seconds": times}, sys.stdout, indent=1)
        return
    print(f"{found['processor']}, commit {found['commit']}, {options.entries:,} entries", "", *lines, sep="\n")
    if absent:
        print(f"\nNot installed, and skipped: {', '.join(sorted(absent))}.")


def chosen(arguments: list[str]) -> list[Row]:
    """The rows that a command line selects."""
    options = _parsed(arguments)
    n = options.entries
    rows = [row for part in (trees, select, compute, operands, files, tables) for row in part.rows(n)] + process.rows()
    return [row for row in rows if options.rows in row.name]


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--entries", type=int, default=10**6, help="number of entries of each tensor (1 million)")
    parser.add_argument("--quick", action="store_true", help="2 rounds")
    parser.add_argument("--rounds", type=int, help="rounds of timing, after a warm-up (5)")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows whose name contains this text")
    parser.add_argument("--against", metavar="PATH", help="also time each row with the package of another checkout")
    parser.add_argument(
        "--keep", nargs="?", const=str(results.FOLDER), metavar="FOLDER", help="store the results (bench/results)"
    )
    parser.add_argument("--json", action="store_true", help="print all times instead of the table")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (2 if options.quick else 5)
    return options


def _timed(row: Row, number: int, rounds: int, absent: set[str], other: Other | None) -> dict[str, float]:
    """The seconds of this package, of each installed peer, and of the other checkout."""
    with tempfile.TemporaryDirectory() as folder:
        data = row.make(Path(folder))
        calls: dict[str, Call] = {OURS: lambda: row.ours(data)}
        for name, make in row.peers.items():
            try:
                calls[name] = make(data)
            except ImportError:
                absent.add(name)
        elsewhere = {BEFORE: other.seconds} if other is not None and other.begin(number) else {}
        seconds = measured(row, calls, rounds, elsewhere)
    print(f"{row.name}: {_line(_summary(seconds))}", file=sys.stderr)
    return seconds


def _summary(seconds: Mapping[str, float]) -> dict[str, Any]:
    """The stored results of a row: our time, and the fastest peer with its time / ours."""
    ours = seconds[OURS]
    peers = {name: taken for name, taken in seconds.items() if name not in (OURS, BEFORE)}
    best = min(peers, key=peers.__getitem__, default="")
    ratio = round(peers[best] / ours, 3) if best else None
    return {"ms": float(f"{1e3 * ours:.3g}"), "peer": best, "ratio": ratio}


def _line(row: Mapping[str, Any]) -> str:
    return f"{row['ms']:g} ms" + (f", {row['ratio']:.2f} × {row['peer']}" if row["peer"] else "")


def _table(
    times: Mapping[str, Mapping[str, float]],
    rows: Mapping[str, Mapping[str, Any]],
    earlier: Mapping[str, Mapping[str, Any]],
    headlines: set[str],
) -> Iterable[str]:
    """A Markdown table. Headline rows are bold. Ratio: time of the fastest peer / ours."""
    compared = any(BEFORE in seconds for seconds in times.values())
    columns = (*_COLUMNS, *(("before, ms", "before / ours") if compared else ()))
    yield f"| {' | '.join(columns)} |"
    yield f"|---|{'---:|' * (len(columns) - 1)}"
    for name, row in rows.items():
        seconds = times[name]
        peers = sorted((taken, peer) for peer, taken in seconds.items() if peer not in (OURS, BEFORE))
        cells = [
            f"**{name}**" if name in headlines else name,
            f"{row['ms']:g}",
            ", ".join(f"{peer} {1e3 * taken:.3g}" for taken, peer in peers),
            _ratio(row),
            _ratio(earlier.get(name)),
        ]
        if compared:
            before = seconds.get(BEFORE)
            cells += ["", ""] if before is None else [f"{1e3 * before:.3g}", f"{before / seconds[OURS]:.2f}"]
        yield f"| {' | '.join(cells)} |"


def _ratio(row: Mapping[str, Any] | None) -> str:
    return f"{row['ratio']:.2f}" if row and row["peer"] else ""


if __name__ == "__main__":
    main()
