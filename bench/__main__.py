"""python -m bench: every operation beside what a user would pick instead, in one process, in turn, as ratios.

Machines are shared and noisy: believe ratios of minima.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from . import bitpacking, compute, convert, files, growth, labels, pack, process, select, table
from .measure import KEEPING, RELEASING, THREADS, environment, give_back, measured, peak, restart, touch
from .picture import picture
from .row import OURS, Call, Row, verdict

_LIBRARIES = (
    "numpy", "numba", "h5py", "zarr", "scipy", "sparse", "python-graphblas", "torch", "polars", "pyarrow", "binsparse",
)  # fmt: skip
_BYTES = 240  # that the largest row touches for each of its entries


def main() -> None:
    warnings.simplefilter("ignore", UserWarning)  # of peers, on what they are given
    options = _parsed()
    rows = [row for row in _rows(options) if options.rows in row.name]
    if options.memory:
        json.dump(_peaks(rows), sys.stdout)
        return
    restart(KEEPING | THREADS)
    load = os.getloadavg()
    touch(_BYTES * max((row.entries for row in rows), default=0))
    absent: set[str] = set()
    found = [_timed(row, options.rounds, absent) for row in rows]
    give_back()
    for row, peaks in zip(found, _peaks_elsewhere(), strict=True):
        row["peaks"] = peaks
    head = {"rounds": options.rounds, "load": load, "cores": os.cpu_count(), "versions": _versions()}
    if options.picture:
        Path(options.picture).write_text(picture(found), encoding="utf-8")
    if options.json:
        json.dump({**head, "absent": sorted(absent), "rows": found}, sys.stdout, indent=1)
        return
    print(_introduction(head), *(table.growth if options.growth else table.board)(found), sep="\n")
    if absent:
        print(f"\nNot installed, and left out: {', '.join(sorted(absent))}.")


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1 million entries and 2 rounds")
    parser.add_argument("--entries", type=int, help="of each tensor, in place of 10 million, and some 1 and 40 million")
    parser.add_argument("--rounds", type=int, help="of timing, after one to warm up (5)")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows whose name has this text")
    parser.add_argument("--growth", action="store_true", help="cost as work grows, without peers, by entries and rank")
    parser.add_argument("--json", action="store_true", help="everything that was measured, in place of the table")
    parser.add_argument("--picture", metavar="PATH", help="draw the ratios, as SVG")
    parser.add_argument("--memory", action="store_true", help="only the peak memory of each call, in bytes, as JSON")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 5)
    return options


def _rows(options: argparse.Namespace) -> list[Row]:
    one = options.entries or (10**6 if options.quick else None)
    if options.growth:
        return growth.rows((one,) if one else growth.SIZES)
    n, others = (one, []) if one else (10**7, [10**6, 4 * 10**7])
    return [
        *pack.rows(n, others),
        *convert.rows(n, others),
        *select.rows(n),
        *files.rows(n),
        *bitpacking.rows(n),
        *labels.rows(n),
        *compute.rows(n),
        *process.rows(),
    ]


def _calls(row: Row, folder: str, absent: set[str]) -> dict[str, Call]:
    """Ours, each peer that is installed, and the limits, around data that are made."""
    gc.collect()
    gc.freeze()  # so that the next time it need not look at all that libraries have loaded
    data = row.make(Path(folder))
    calls: dict[str, Call] = {OURS: lambda: row.ours(data)}
    for name, make in {**row.peers, **row.limits}.items():
        try:
            calls[name] = make(data)
        except ImportError:
            absent.add(name)
    return calls


def _timed(row: Row, rounds: int, absent: set[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        times = measured(row, _calls(row, folder, absent), rounds)
    judged = verdict(row, {name: found["minimum"] for name, found in times.items()})
    ratio = "" if judged.ratio is None else f"{judged.ratio:.2f} × {judged.against}, "
    print(f"{row.name}, {row.entries}: {1e3 * times[OURS]['minimum']:.3g} ms, {ratio}{judged.word}", file=sys.stderr)
    limits = [name for name in row.limits if name in times]
    return {"row": row.name, "entries": row.entries, "times": times, "limits": limits, "verdict": judged._asdict()}


def _peaks_elsewhere() -> list[dict[str, int]]:
    """The peaks of the same rows, in a process that gives its memory back."""
    command = [sys.executable, "-m", "bench", "--memory", *sys.argv[1:]]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment() | RELEASING | THREADS)
    found: list[dict[str, int]] = json.loads(run.stdout)
    return found


def _peaks(rows: list[Row]) -> list[dict[str, int]]:
    """Of each row and call. A first row is thrown away, in which the kernels are loaded."""
    found = []
    for row in [*rows[:1], *rows]:
        with tempfile.TemporaryDirectory() as folder:
            calls = _calls(row, folder, set()) if row.threaded else {}
            measured = {name: peak(call) for name, call in calls.items() if name not in row.limits}
            found.append({name: size for name, size in measured.items() if size is not None})
    return found[1:]


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _introduction(head: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    return (
        f"{head['cores']} cores, load {head['load'][0]:.1f}; {versions}. Times in ms, the minimum of {head['rounds']} "
        "rounds. Ratio: time of the other / ours with one thread, on which the gate is judged, in gzip with two. "
        "² runs on two threads. Coordinates are int64, for scipy int32.\n"
    )


if __name__ == "__main__":
    main()
