"""python -m bench: every operation beside what a user would pick instead, in one process, in turn, as ratios.

Machines are shared and noisy: believe ratios of minima.
"""

from __future__ import annotations

import argparse
import datetime
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

from . import (
    bitpacking,
    compute,
    convert,
    files,
    growth,
    labels,
    machine,
    pack,
    process,
    results,
    select,
    stores,
    table,
)
from .against import Other
from .measure import KEEPING, RELEASING, THREADS, environment, give_back, measured, peak, restart, touch
from .moved import moved
from .picture import growth_picture, picture
from .row import BEFORE, OURS, Call, Row, summary, verdict

_LIBRARIES = (
    "numpy", "numba", "h5py", "zarr", "scipy", "sparse", "python-graphblas", "torch", "polars", "pyarrow", "binsparse",
    "duckdb", "tiledb", "anndata",
)  # fmt: skip
_BYTES = 240  # that the largest row touches for each of its entries
_FEW = 10**6  # entries, up to which a call before that of the peak takes no time


def main() -> None:
    warnings.simplefilter("ignore", UserWarning)  # of peers, on what they are given
    options = _parsed(sys.argv[1:])
    if options.results:
        print(*results.page(results.kept(Path(options.results)), options.rows), sep="\n")
        return
    rows = chosen(sys.argv[1:])
    if options.memory:
        json.dump(_peaks(rows), sys.stdout)
        return
    restart(KEEPING | THREADS)
    load = os.getloadavg()
    touch(_BYTES * max((row.entries for row in rows), default=0))
    head = {
        "processor": machine.processor(),
        "speeds": machine.speeds(),
        "date": datetime.date.today().isoformat(),
        "commit": results.commit(),
        "rounds": options.rounds,
        "load": load,
        "versions": _versions(),
    }
    absent: set[str] = set()
    other = Other(options.against, sys.argv[1:]) if options.against else None
    copy = head["speeds"]["copy"]
    found = [_timed(row, options.rounds, absent, copy, other, number) for number, row in enumerate(rows)]
    if other is not None:
        other.close()
    give_back()
    for row, peaks in zip(found, [{}] * len(found) if options.quick else _peaks_elsewhere(), strict=True):
        row["peaks"] = peaks
    _print(options, head, found, absent)


def _print(options: argparse.Namespace, head: dict[str, Any], found: list[dict[str, Any]], absent: set[str]) -> None:
    tabulate = table.growth if options.growth else table.board
    lines = [_introduction(head, growing=options.growth), *tabulate(found)]
    if absent:
        lines.append(f"\nNot installed, and left out: {', '.join(sorted(absent))}.")
    if not options.growth:
        lines += ["", *summary(found)]
    drawn = growth_picture(found) if options.growth else picture([results.condensed(row) for row in found])
    if options.picture:
        Path(options.picture).write_text(drawn, encoding="utf-8")
    if options.keep and options.growth:
        place = Path(options.keep, f"growth-{machine.slug(head['processor'])}")
        place.with_suffix(".svg").write_text(drawn, encoding="utf-8")
        place.with_suffix(".md").write_text("\n".join([f"![Growth]({place.name}.svg)", "", *lines]), encoding="utf-8")
    elif options.keep:
        print(f"kept in {results.keep(head, found, Path(options.keep))}", file=sys.stderr)
    if options.json:
        json.dump({**head, "absent": sorted(absent), "rows": found}, sys.stdout, indent=1)
    else:
        print(*lines, sep="\n", flush=True)


def chosen(arguments: list[str]) -> list[Row]:
    """The rows that a command line asks for."""
    options = _parsed(arguments)
    return [row for row in _rows(options) if options.rows in row.name]


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1 million entries, 2 rounds, no memory")
    parser.add_argument("--entries", type=int, help="of each tensor, in place of 10 and of 1 million")
    parser.add_argument("--rounds", type=int, help="of timing, after one to warm up (5)")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows whose name has this text")
    parser.add_argument(
        "--growth",
        action="store_true",
        help="cost as work grows, without peers, by entries and rank, up to --entries (40 million)",
    )
    parser.add_argument("--against", metavar="PATH", help="time each row with the package of another checkout too")
    place: dict[str, Any] = {"nargs": "?", "const": str(results.FOLDER), "metavar": "FOLDER"}
    parser.add_argument("--keep", help="keep what was found as the results of this processor (bench/results)", **place)
    parser.add_argument("--results", help="only show the kept results, of all processors side by side", **place)
    parser.add_argument("--json", action="store_true", help="everything that was measured, in place of the table")
    parser.add_argument("--picture", metavar="PATH", help="draw the ratios, as SVG")
    parser.add_argument("--memory", action="store_true", help="only the peak memory of each call, in bytes, as JSON")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (2 if options.quick else 5)
    return options


def _rows(options: argparse.Namespace) -> list[Row]:
    if options.growth:
        return growth.rows(options.entries or (10**6 if options.quick else growth.MOST))
    sizes = [options.entries] if options.entries else [10**6] if options.quick else [10**7, 10**6]
    parts = pack, convert, select, compute, files, stores, bitpacking, labels
    return [row for n in sizes for part in parts for row in part.rows(n)] + files.small_rows() + process.rows()


def _calls(row: Row, folder: str, absent: set[str]) -> tuple[dict[str, Call], Any]:
    """Ours, each peer that is installed, and the limits, around data that are made; and these data."""
    gc.collect()
    gc.freeze()  # so that the next time it need not look at all that libraries have loaded
    data = row.make(Path(folder))
    calls: dict[str, Call] = {OURS: lambda: row.ours(data)}
    for name, make in {**row.peers, **row.limits}.items():
        try:
            calls[name] = make(data)
        except ImportError:
            absent.add(name)
    return calls, data


def _timed(row: Row, rounds: int, absent: set[str], copy: float, other: Other | None, number: int) -> dict[str, Any]:
    """copy: bytes in a second. number: of the row, for the process of another checkout."""
    with tempfile.TemporaryDirectory() as folder:
        calls, data = _calls(row, folder, absent)
        elsewhere = {BEFORE: other.timing} if other is not None and other.begin(number) else {}
        times = measured(row, calls, min(rounds, row.rounds), elsewhere)
        size = moved(data, row.ours(data)) if row.threaded else None
    judged = verdict(row, {name: found["minimum"] for name, found in times.items()})
    ratio = "" if judged.ratio is None else f"{judged.ratio:.2f} × {judged.against}, "
    behind = f", behind {judged.behind}" if judged.behind else ""
    told = f"{1e3 * times[OURS]['minimum']:.3g} ms, {ratio}{judged.word}{behind}"
    print(f"{row.name}, {row.entries}: {told}", file=sys.stderr)
    limits = [name for name in row.limits if name in times]
    found = {"row": row.name, "entries": row.entries, "times": times, "limits": limits, "verdict": judged._asdict()}
    if size is None:
        return found
    return {**found, "moved": size, "of_copy": size / 2 / copy / times[OURS]["minimum"]}


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
            calls = _calls(row, folder, set())[0] if row.threaded else {}
            called = {name: call for name, call in calls.items() if name not in row.limits}
            if called and row.entries <= _FEW:  # numba and the kernels are loaded from some size on
                called[OURS]()
            measured = {name: peak(call) for name, call in called.items()}
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


def _introduction(head: dict[str, Any], *, growing: bool) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    when = f"{head['date']}, commit {head['commit']}, load {head['load'][0]:.1f}"
    where = f"{machine.described(head['processor'], head['speeds'])}; {when}; {versions}."
    if growing:
        return (
            f"{where} A cell: ns an entry with one thread / with two / bytes of memory an entry at the peak of a call. "
            f"{table.JUMP}: so many times the ns of the size above. The sides of a tensor grow with its entries: one "
            "cell in a thousand is stored.\n"
        )
    return (
        f"{where} Times in ms, the minimum of {head['rounds']} rounds. Ratio: time of the other / ours, both with one "
        "thread. Coordinates are int64, for scipy int32. "
        "Of the copy: the time of a copy that moves as many bytes as the input and the new output have / ours.\n"
    )


if __name__ == "__main__":
    main()
    gc.unfreeze()
    gc.collect()
