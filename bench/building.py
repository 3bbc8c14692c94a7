"""python -m bench.building: build a tensor from Parquet files on a Dask cluster, by stages, and project the costs.

The dataset is made where there is none yet: coordinates of rank 3 in random order, half of them skewed, so that many
repeat. Values of equal coordinates are summed, and at the end the sums of source and target are compared.

--ids takes other rows: two columns are ids, of which the first has so many, as texts and as numbers. The texts are made
labels, with --numbers the numbers are coordinates. At the end, the labels are those that polars finds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from dask.utils import parse_bytes
from distributed import Client, LocalCluster

import binsparse_levels as bl
from binsparse_levels.building import labelling, planning
from binsparse_levels.containers.objects import stores

from .data import csf, zipf
from .measure import resident

_COLUMNS = ("i", "j", "k", "v")
_TEXTS = ("user", "item", "k", "v")  # in place of i and j
_SIDE = 10_000
_GROUP = 2**20  # rows of a row group
_FILE = 8 * _GROUP  # rows of a file
_SPAWN = multiprocessing.get_context("spawn")  # a forked process would count the memory of this one
_FIGURES = ("cpu", "puts", "put", "gets", "got")

# What is projected: entries, workers, bytes of memory of each.
_PROJECTED = ((1e10, 10, 4e9), (1e11, 100, 16e9), (1e12, 1000, 64e9))
_GIGABIT = 1e9 / 8
_REQUEST, _AT_ONCE = 0.03, 16  # seconds of a request to an object store, and requests that a worker has under way
_SHARE = 0.45  # of a worker's memory, which a step may use
_REQUESTS = (
    4  # for each merge of labels of a chunk: one of `merge`; for the size, the seal and the ranks where it is read
)
_PLACE, _FENCE = 24, 90  # bytes that a process has for a place of a run, and for a fence, which it sorts


class Measured(NamedTuple):
    """Of a stage. figures: processor time, puts and gets and their bytes, of all workers."""

    name: str
    steps: int
    seconds: float
    figures: Counter[str]


def main() -> None:
    options = _parsed()
    with contextlib.ExitStack() as stack:
        folder = options.folder or stack.enter_context(tempfile.TemporaryDirectory())
        source = options.source or f"{folder}/source"
        with ProcessPoolExecutor(options.workers, _SPAWN) as pool:
            if not options.source or not any(Path(source).glob("*.parquet")):
                list(pool.map(partial(_make, source, options.ids), *_files(options.rows)))
            files = sorted(map(str, Path(source).glob("*.parquet")))
            counted = list(pool.map(_counted, files))
        rows, total = sum(rows for rows, _ in counted), sum(total for _, total in counted)
        address = options.client or stack.enter_context(_cluster(options.workers, options.memory))
        client = stack.enter_context(Client(address))
        watch = Watch(client, options.kill)
        target, work = f"{folder}/building-{os.getpid()}.zarr", f"{folder}/building-{os.getpid()}.work"
        labelled = options.ids and not options.numbers
        shape = (None, None, _SIDE) if labelled else (options.ids or _SIDE, _SIDE, _SIDE)
        columns = _TEXTS if labelled else _COLUMNS
        begin = time.perf_counter()
        bl.build(
            source, target, shape, options.format, client=client, work=work, columns=columns, duplicates="sum",
            progress=watch,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
        watch.ended()
        caller = resident("VmHWM")
        tensor = bl.open(target)
        values = tensor.stored._source.values
        found = sum(values[k : k + _GROUP].sum() for k in range(0, len(values), _GROUP))
        if found != total:
            raise AssertionError(f"the values of the target sum up to {found}, those of the source to {total}")
        if labelled:
            _compare_labels(tensor, files)
        read = sum(os.path.getsize(file) for file in files)
        told = {
            "rows": rows,
            "entries": len(values),
            "format": str(tensor.format),
            "workers": len(client.scheduler_info(n_workers=-1)["workers"]),
            "seconds": seconds,
            "peaks": watch.peaks,
            "caller": caller,
            "source": read,
            "stages": [{**stage._asdict(), "figures": dict(stage.figures)} for stage in watch.stages],
        }
        print(json.dumps(told, indent=1) if options.json else _report(told, watch.stages))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.building", description=__doc__)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=8 * 10**6, help="of the dataset (8e6)")
    parser.add_argument("--format", default=csf(3), help="of the target, of rank 3 ('%(default)s')")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread (2)")
    parser.add_argument("--memory", type=parse_bytes, default=parse_bytes("1.5GB"), help="of each worker (1.5GB)")
    parser.add_argument("--client", metavar="ADDRESS", help="a Dask scheduler, in place of workers on this machine")
    parser.add_argument("--source", metavar="DIR", help="a folder with the dataset; it is made there if it is empty")
    parser.add_argument("--folder", metavar="DIR", help="for target and work, a folder or a URL; a temporary one")
    parser.add_argument("--ids", type=lambda text: int(float(text)), help="rows with so many different texts")
    parser.add_argument("--numbers", action="store_true", help="the numbers of these in place of the texts")
    parser.add_argument("--kill", action="store_true", help="kill a worker when half of the partitions are packed")
    parser.add_argument("--json", action="store_true", help="what was measured, in place of the tables")
    options = parser.parse_args()
    if options.kill and options.client:
        parser.error("--kill ends a worker of this machine; leave out --client")
    if "://" in (options.folder or "") and not options.source:
        parser.error("the dataset is in a local folder; pass --source")
    return options


# The dataset


def _files(rows: int) -> tuple[range, list[int]]:
    """The numbers of the files, and the rows of each."""
    numbers = range(-(-rows // _FILE))
    return numbers, [min(_FILE, rows - k * _FILE) for k in numbers]


def _make(folder: str, ids: int | None, number: int, rows: int) -> None:
    """Write a file of the dataset, a row group at a time."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    os.makedirs(folder, exist_ok=True)
    generator = np.random.default_rng(number)
    texts = [(name, pyarrow.string()) for name in _TEXTS[:2]] if ids else []
    schema = pyarrow.schema([*((name, pyarrow.int32()) for name in _COLUMNS[:-1]), ("v", pyarrow.float64()), *texts])
    with ParquetWriter(f"{folder}/{number:06}.parquet", schema) as file:
        for start in range(0, rows, _GROUP):
            count = min(_GROUP, rows - start)
            columns = []
            for name in _COLUMNS[:-1]:
                x = generator.integers(0, ids if ids and name == "i" else _SIDE, count, np.int32)
                if not ids:
                    x[::2] = zipf(generator, _SIDE, len(x[::2]))
                columns.append(x)
            columns.append(generator.integers(1, 100, count).astype(np.float64))
            columns += [_text_of(x) for x in columns[: len(texts)]]
            file.write_table(pyarrow.table(columns, schema=schema), row_group_size=_GROUP)


def _text_of(numbers: Any) -> Any:
    """For each number a text of 24 hexadecimal digits in another order, an array of Arrow's."""
    import pyarrow

    mixed = numbers.astype(np.uint64)
    for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9):
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(factor) + np.uint64(1)
    octets = np.concatenate([mixed[:, None].view(np.uint8), numbers.astype(np.int32)[:, None].view(np.uint8)], 1)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.stack([digits[octets >> 4], digits[octets & 15]], 2)
    ends = np.arange(0, 24 * len(numbers) + 1, 24, dtype=np.int32)
    return pyarrow.StringArray.from_buffers(len(numbers), pyarrow.py_buffer(ends), pyarrow.py_buffer(text))


def _compare_labels(tensor: bl.Tensor, files: Sequence[str]) -> None:
    """Raise AssertionError where the labels are not those that polars finds."""
    import polars

    for name in _TEXTS[:2]:
        known = polars.scan_parquet(files).select(polars.col(name).unique().sort()).collect(engine="streaming")
        if not np.array_equal(tensor.labels(name), known[name].to_numpy()):
            raise AssertionError(f"the labels of {name} are not those that polars finds")


def _counted(file: str) -> tuple[int, float]:
    """The rows of a file, and the sum of its values."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as opened:
        sums = [batch.column(0).to_numpy().sum() for batch in opened.iter_batches(columns=["v"])]
        return opened.metadata.num_rows, float(sum(sums))


# The cluster


@contextlib.contextmanager
def _cluster(workers: int, memory: int) -> Iterator[str]:
    """The address of a cluster whose scheduler has a process of its own."""
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(there, workers, memory))
    process.start()
    there.close()
    try:
        yield here.recv()
    finally:
        here.close()
        process.join()


def _serve(pipe: Any, workers: int, memory: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with LocalCluster(
        n_workers=workers, threads_per_worker=1, memory_limit=memory, dashboard_address="127.0.0.1:0"
    ) as cluster:
        pipe.send(cluster.scheduler_address)
        with contextlib.suppress(EOFError):
            pipe.recv()


def _tell() -> dict[str, float]:
    """What a worker has used."""
    return {"cpu": time.process_time(), "peak": resident("VmHWM"), "process": os.getpid(), **stores.moved}


class Watch:
    """The progress of a build: what the workers use in each stage."""

    def __init__(self, client: Client, kill: bool) -> None:
        self.client, self.kill = client, kill
        self.stages: list[Measured] = []
        self.peaks: dict[str, int] = {}
        self.last = self._told()
        self._begun = time.perf_counter()
        self._stage, self._steps = "plan", 1

    def _told(self) -> dict[str, dict[str, float]]:
        """What each living worker tells; its peak is kept."""
        told: dict[str, dict[str, float]] = self.client.run(_tell, on_error="ignore")
        self.peaks |= {address: int(now["peak"]) for address, now in told.items()}
        return told

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self._end()
            self._stage, self._steps = stage, total
            print(f"{stage}: {total}", file=sys.stderr)
        if self.kill and stage == "pack" and done >= total / 2:
            self.kill = False
            victim = next(iter(self._told().values()))
            os.kill(int(victim["process"]), signal.SIGKILL)

    def _end(self) -> None:
        seconds, told = time.perf_counter() - self._begun, self._told()
        used: Counter[str] = Counter()
        for address, now in told.items():
            before = self.last.get(address, {})
            used.update({name: now.get(name, 0) - before.get(name, 0) for name in _FIGURES})
        self.stages.append(Measured(self._stage, self._steps, seconds, used))
        self.last, self._begun = told, time.perf_counter()

    def ended(self) -> None:
        """The build has returned."""
        self._end()


# The report


def _report(told: Mapping[str, Any], stages: Sequence[Measured]) -> str:
    rows, seconds = told["rows"], told["seconds"]
    lines = [
        f"{rows:,} rows → {told['entries']:,} entries, {told['format']}, {told['workers']} workers: "
        f"{seconds:.1f} s, {rows / seconds / 1e6:.2f} million rows a second.",
        f"Peak resident memory: workers {', '.join(_mega(x) for x in told['peaks'].values())} MB; "
        f"caller {_mega(told['caller'])} MB.",
        "",
        *_table(
            ["stage", "steps", "s", "million rows / s", "CPU, s", "puts", "MB put", "gets", "MB got"],
            [
                [
                    stage.name, str(stage.steps), f"{stage.seconds:.1f}", f"{rows / stage.seconds / 1e6:.2f}",
                    f"{stage.figures['cpu']:.1f}", f"{stage.figures['puts']:,}", _mega(stage.figures["put"]),
                    f"{stage.figures['gets']:,}", _mega(stage.figures["got"]),
                ]
                for stage in stages
            ],
        ),
        "",
        "Projection, from this run: 1 Gbit/s and 16 requests of 30 ms at a time for each worker. Processes that",
        "start count too: take 10 million rows at least, and no --kill. Alone is the step that needs most memory of",
        "those that one process runs for all.",
        "",
        *_projection(told, stages),
    ]  # fmt: skip
    return "\n".join(lines)


def _projection(told: Mapping[str, Any], stages: Sequence[Measured]) -> list[str]:
    rows = told["rows"]
    all_of: Counter[str] = Counter()
    for stage in stages:
        all_of.update(stage.figures)
    (target,) = [stage.figures["put"] for stage in stages if stage.name == "write"]
    lines = []
    for entries, workers, memory in _PROJECTED:
        scale = entries / rows
        held = planning.rows_within(int(memory * _SHARE), 3, 4, 8, used=5 * 2**25)
        runs, partitions = -(-entries // held), -(-2 * entries // held)
        moved = (all_of["put"] + all_of["got"] + told["source"]) * scale
        texts = sum(stage.figures["put"] for stage in stages if stage.name == "labels") * scale
        merges = -(-texts // labelling.share(held))
        requests = runs * partitions + _REQUESTS * runs * merges
        alone = {
            "table": _PLACE * runs * partitions,
            "fences": _FENCE * texts / labelling.block(held, int(runs)),
            "number": _PLACE * runs * merges,
        }
        first = max(alone, key=alone.__getitem__)
        lines.append([
            f"{entries:.0e}".replace("e+", "e"), f"{workers:,}", f"{memory / 1e9:.0f}",
            f"{all_of['cpu'] * scale / workers / 60:.0f}", f"{moved / workers / _GIGABIT / 60:.0f}",
            f"{requests * _REQUEST / _AT_ONCE / workers / 60:.0f}", f"{runs:,.0f} × {partitions:,.0f}",
            f"{runs:,.0f} × {merges:,.0f}", f"{first} {alone[first] / 1e9:.1f}",
            f"{(all_of['put'] - target) * scale / 1e12:.2f}", f"{target * scale / 1e12:.2f}",
        ])  # fmt: skip
    head = [
        "entries", "workers", "GB each", "CPU, min", "network, min", "requests, min", "runs × partitions",
        "runs × merges", "alone, GB", "work, TB", "target, TB",
    ]  # fmt: skip
    return _table(head, lines)


def _mega(size: float) -> str:
    return f"{size / 1e6:,.0f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [" | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    rule = " | ".join("-" * (width - 1) + ":" for width in widths)
    return [f"| {line} |" for line in [lines[0], rule, *lines[1:]]]


if __name__ == "__main__":
    main()
