"""The commands that build a tensor by many processes, and that read tables."""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, get_args

import numpy as np

from ..building import BadRows, Stage, build, commit, estimate, plan, progress, skipped, step, write_from
from ..building.bad_rows import Bad
from ..building.tables import FILES, Rows, file_tables
from ..containers.base import Storage
from ..engine.emission import Duplicates
from ..errors import FormatError, PackageMissingError, PathExistsError, needing
from ..formats.format import coordinates
from .arguments import (
    BEST,
    LIMIT,
    OVERWRITE,
    OVERWRITE_FILE,
    STORAGE,
    argument,
    byte_count,
    format_of,
    integers,
    limits_of,
    names,
    written_options,
)
from .slurm import slurm_script
from .terminal import OK, WrongCall, print_json, progress_bars, say, table, tell, wrong_call_if

_SECONDS = 10  # to wait for a scheduler


def is_table(path: str) -> bool:
    """Whether a path has the suffix of a table."""
    return os.path.splitext(path)[1].lower() in FILES


def convert_table(options: argparse.Namespace, out: str) -> None:
    """Write the entries in a table."""
    if options.format == BEST or options.lenient or options.narrow or options.bitpacked:
        raise WrongCall("a table has no --format best, --lenient, --narrow, --bitpacked; leave them out")
    if options.columns is None:
        raise WrongCall("a table needs --columns: the names of the coordinates by dimension, and of the values last")
    *dims, values = options.columns
    format = options.format or coordinates(len(dims))
    chosen: dict[str, Any] = {"map": options.map, "overwrite": options.overwrite, "limits": limits_of(options)}
    chosen |= {
        "bad": options.bad or "raise",
        "duplicates": options.duplicates or "error",
        "dims": dims,
        "values": values,
        **written_options(options),
    }
    with progress_bars() as bars, wrong_call_if(FormatError, PathExistsError):
        shape = options.shape or _least_shape(options.path, dims, options.bad)
        tables = file_tables(options.path, options.columns)
        bad = write_from(tables, out, shape, format, memory=options.memory, progress=bars, **chosen)
    if bad.counts:
        say(f"{out}{_lines(bad)}")


def _least_shape(path: str, dims: Sequence[str], bad: Bad | None) -> list[int]:
    """The shape that holds the coordinates and the labels in these columns of a table."""
    shape, rows = [0] * len(dims), Rows(dims, None, shape=[2**63 - 1] * len(dims) if bad == "skip" else None)
    for part in file_tables(path, dims):
        for coords, _ in rows.chunks(part):
            shape = [max(size, int(x.max(initial=-1)) + 1) for size, x in zip(shape, coords, strict=True)]
    return shape


def _build(options: argparse.Namespace) -> int:
    storage = {"compression": options.compression, "chunks": options.chunks, "shards": options.shards}
    with _client(options) as client, progress_bars() as bars, wrong_call_if(FormatError, PathExistsError):
        bad = build(client=client, work=options.work, progress=bars, **_arguments(options), **storage)
    tell(options, {"path": options.target, "skipped": bad._asdict()}, f"built {options.target}{_lines(bad)}")
    return OK


def _lines(bad: BadRows) -> str:
    """The rows that were left out, in lines of text."""
    if not bad.counts:
        return ""
    told = ", ".join(f"{count} where {reason}" for reason, count in bad.counts.items())
    return "\n".join([f"; {sum(bad.counts.values())} rows left out: {told}", *bad.places])


def _arguments(options: argparse.Namespace) -> dict[str, Any]:
    """What is built, and how."""
    wanted = (
        "target",
        "shape",
        "onto",
        "columns",
        "filters",
        "duplicates",
        "bad",
        "dtype",
        "fill_value",
        "map",
        "memory",
        "overwrite",
    )
    arguments = {name: getattr(options, name) for name in wanted if getattr(options, name) is not None}
    arguments |= {"shape": options.shape, "format": options.format}
    if options.format is None and options.onto is None:
        raise WrongCall("pass --format, or --onto, whose tensor has a format")
    if options.columns is not None:
        arguments["columns"] = [name or None for name in options.columns]
    arguments["limits"] = limits_of(options)
    return {"source": options.source if len(options.source) > 1 else options.source[0], **arguments}


@contextlib.contextmanager
def _client(options: argparse.Namespace) -> Iterator[Any]:
    """What runs the steps."""
    if options.client is not None and options.processes is not None:
        raise WrongCall("steps run on a cluster or in processes; leave out --client or --processes")
    if options.client is not None:
        with wrong_call_if(PackageMissingError), needing("dask"):
            from distributed import Client
        with Client(options.client, timeout=_SECONDS) as client:  # type: ignore[no-untyped-call]
            yield client
    elif options.processes is not None:
        with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
            yield pool
    else:
        yield None


def _plan(options: argparse.Namespace) -> int:
    storage = Storage(options.compression, options.chunks, options.shards)
    with wrong_call_if(FormatError, PathExistsError):
        if options.work is None:
            told = estimate(storage=storage, **_arguments(options))
            if options.json:
                print_json({**told._asdict(), "stages": [stage._asdict() for stage in told.stages]})
            else:
                print(told)
            return OK
        plan(work=options.work, storage=storage, **_arguments(options))
    tell(options, {"work": options.work}, f"planned; run the steps that `progress {options.work}` lists")
    return OK


def _step(options: argparse.Namespace) -> int:
    logged: list[dict[str, Any]] = []

    def log(told: dict[str, Any]) -> None:
        logged.append(told)
        if not options.json:
            print(json.dumps(told), flush=True)

    for number in options.numbers:
        step(options.work, options.stage, number, of=options.of, log=log)
    if options.json:
        print_json({"work": options.work, "stage": options.stage, "steps": logged})
    return OK


def _script(options: argparse.Namespace) -> int:
    if options.tasks < 1:
        raise WrongCall("a stage has one task at least; pass --tasks 1 or more")
    text = slurm_script(options.work, progress(options.work), options.tasks)
    if options.json:
        print_json({"work": options.work, "script": text})
    else:
        print(text, end="")
    return OK


def _progress(options: argparse.Namespace) -> int:
    stages = progress(options.work)
    if options.json:
        bad = skipped(options.work)._asdict()
        print_json({"work": options.work, "stages": [stage._asdict() for stage in stages], "skipped": bad})
    else:
        head = ["stage", "done", "steps", "MB", "s", "steps / s", "MB / s", "s left"]
        table(options.work, head, [_row(stage) for stage in stages])
    return OK


def _row(stage: Stage) -> list[str]:
    """A line of progress. Rates are those between the ends of the first step and of the last."""
    row = [stage.name, str(stage.done), "?" if stage.total is None else str(stage.total)]
    row += [f"{stage.size / 1e6:.1f}", f"{stage.seconds:.1f}"] if stage.done else []
    if stage.done > 1 and stage.seconds:
        rate, share = (stage.done - 1) / stage.seconds, (stage.done - 1) / stage.done
        row += [f"{rate:.2f}", f"{share * stage.size / stage.seconds / 1e6:.1f}"]
        row += [] if stage.total is None else [f"{(stage.total - stage.done) / rate:.0f}"]
    return row + [""] * (8 - len(row))


def _commit(options: argparse.Namespace) -> int:
    bad = commit(options.work)
    tell(options, {"work": options.work, "skipped": bad._asdict()}, f"committed{_lines(bad)}")
    return OK


def _sizes(text: str) -> tuple[int | None, ...]:
    return tuple(None if size.strip() == "?" else integers(size)[0] for size in text.split(","))


def _filter(text: str) -> tuple[str, str, Any]:
    """A row of a filter, such as year>=2024."""
    told = re.fullmatch(r"([^<>=!]+?)\s*(==?|!=|<=?|>=?)\s*(.*)", text)
    if told is None:
        raise argparse.ArgumentTypeError(f"expected a column, a comparison and a value, got {text!r}")
    with contextlib.suppress(ValueError):
        return told[1], told[2], json.loads(told[3])
    return told[1], told[2], told[3]


def _types(text: str) -> Any:
    """A type, or types by column such as user=int64,price=float64."""
    if "=" not in text:
        return np.dtype(text)
    return dict(part.split("=", 1) for part in text.split(","))


def _number(text: str) -> complex:
    for kind in (int, float, complex):
        with contextlib.suppress(ValueError):
            return kind(text)
    raise argparse.ArgumentTypeError(f"expected a number, got {text!r}")


COLUMNS = argument(
    "--columns", "names of the coordinates by dimension, and of the values last, such as i,j,v", type=names
)
BAD = argument("--bad", "rows without a coordinate: skip leaves them out; error by default", choices=get_args(Bad))
_WORK = argument("work", "folder or URL of the work", metavar="WORK")
_BUILT: tuple[Any, ...] = (
    argument("source", "Parquet files, with --columns: paths, patterns, folders, URLs; or tensors", nargs="+"),
    argument("target", "a Zarr store: a folder or a URL"),
    argument("--shape", "such as 125,?,112765; ? or no --shape is told by Parquet files", type=_sizes),
    argument("--format", "such as CSR, or 'sparse, sparse, sparse'; with --onto that of the tensor", type=format_of),
    argument("--onto", "a tensor into which the entries are merged; the target may be the same", metavar="PLACE"),
    COLUMNS,
    argument(
        "--filter",
        "rows of Parquet files, such as year>=2024; may be repeated",
        metavar="COMPARISON",
        dest="filters",
        action="append",
        type=_filter,
    ),
    argument("--duplicates", "how to merge duplicates; error by default", choices=get_args(Duplicates)),
    BAD,
    argument("--dtype", "type of the values, or of columns, such as user=int64,price=float64", type=_types),
    argument("--fill-value", "value of what is not stored", type=_number),
    argument("--map", "an index map, such as '0/2, 1/4, 0%%2, 1%%4' for blocks of 2 × 4"),
    argument("--memory", "bytes that a process may use, such as 1500M", type=byte_count),
    *STORAGE,
    OVERWRITE,
    OVERWRITE_FILE,
    LIMIT,
)

COMMANDS: dict[str, tuple[Any, ...]] = {
    "build": (
        _build, "build a tensor that is larger than memory, in a sharded Zarr store, by many processes", *_BUILT,
        argument("--work", "folder or URL between the steps; with it, a build that was stopped can go on"),
        argument("--client", "a Dask scheduler that runs the steps, such as tcp://10.0.0.1:8786", metavar="ADDRESS"),
        argument("--processes", "so many processes of this machine run the steps", type=int, metavar="N"),
    ),
    "plan": (
        _plan, "begin a build whose steps a batch system runs; without --work, print what it would take", *_BUILT,
        argument("--work", "folder or URL between the steps, which every process reaches; where the build begins"),
    ),
    "progress": (_progress, "list the stages of a build, how many of their steps are done, and how fast", _WORK),
    "step": (
        _step, "run steps of a stage of a build, in any order and side by side; print a line of JSON for each", _WORK,
        argument("stage", "as progress lists it", metavar="STAGE"),
        argument("numbers", "of steps, or with --of of tasks, counted from 0", metavar="NUMBER", nargs="*", type=int),
        argument("--of", "so many tasks share the steps that are not done", metavar="TASKS", type=int),
    ),
    "script": (
        _script, "print a script that submits the stages of a build to Slurm, one behind the other", _WORK,
        argument("--tasks", "of an array job, at most (%(default)s)", metavar="N", type=int, default=100),
    ),
    "commit": (_commit, "end a build whose steps are done: write the header, and remove the work", _WORK),
}  # fmt: skip
