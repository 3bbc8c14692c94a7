"""The command build, which uses many processes, and the conversion of tables."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, get_args

import numpy as np

from ..building import build, write_from
from ..building.columns import Nulls
from ..building.tables import FILES, file_tables
from ..engine.tree import Duplicates
from ..errors import FormatError, PackageMissingError, PathExistsError, about_file, needing
from ..formats.format import coordinates
from ..io.texts import suffix_of
from .arguments import (
    BEST,
    LIMIT,
    OVERWRITE,
    OVERWRITE_FILE,
    STORAGE,
    argument,
    byte_count,
    integers,
    limits_of,
    names,
    written_options,
)
from .terminal import OK, WrongCall, print_json, wrong_call_if

_MAX_SECONDS = 10  # of waiting for a scheduler


def is_table(options: argparse.Namespace) -> bool:
    """Return True if the suffix of the path is that of a table, or an option of text tables is given."""
    return suffix_of(options.path) in FILES or len(_of_text(options)) > 0


def _of_text(options: argparse.Namespace) -> dict[str, Any]:
    """The options of text tables that are given."""
    given = {"separator": options.separator, "comment": options.comment, "header": options.header}
    return {name: value for name, value in given.items() if value is not None}


def convert_table(options: argparse.Namespace, out: str) -> str:
    """Write the entries in a table, and return the format."""
    if options.format == BEST or options.lenient or options.narrow or options.bitpacked or options.dictionary:
        wrong = "--format best, --lenient, --narrow, --bitpacked or --dictionary"
        raise WrongCall(f"a table cannot be read with {wrong}; omit them")
    if options.columns is None:
        what = "the names of the coordinates by dimension, and of the values last, or --values 1"
        raise WrongCall(f"{options.path}: is a table; pass --columns, {what}, such as i,j,v")
    *dims, values = columns = [*options.columns, *[None] * (options.values is not None)]
    format = options.format or coordinates(len(dims))
    chosen: dict[str, Any] = {"map": options.map, "overwrite": options.overwrite, "limits": limits_of(options)}
    chosen |= {
        "nulls": options.nulls or "error",
        "duplicates": options.duplicates or "error",
        "dims": dims,
        "values": values,
        **written_options(options),
    }
    with wrong_call_if(FormatError, PathExistsError), about_file(options.path):
        rows = file_tables(options.path, columns, **_of_text(options))
        write_from(rows, out, options.shape, format, memory=options.memory, progress=not options.quiet, **chosen)
    return str(format)


def _build(options: argparse.Namespace) -> int:
    storage = {name: getattr(options, name) for name in ("compression", "chunks", "shards", "checksum")}
    with _client(options) as client, wrong_call_if(FormatError, PathExistsError):
        build(client=client, progress=not options.quiet, **_arguments(options), **storage)
    if options.json:
        print_json({"path": options.target})
    return OK


def _arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `build`."""
    keys = "source target shape format duplicates nulls dtype fill_value map memory overwrite work"
    given = {key: getattr(options, key) for key in keys.split()}
    given["columns"] = options.columns and [name or None for name in options.columns]
    given = {"shape": None, **{name: value for name, value in given.items() if value is not None}}
    return {**given, "limits": limits_of(options)}


@contextlib.contextmanager
def _client(options: argparse.Namespace) -> Iterator[Any]:
    """The Dask client or the pool that runs the steps; None for this process."""
    if options.client is not None and options.processes is not None:
        raise WrongCall("steps run on a cluster or in processes; omit --client or --processes")
    if options.client is not None:
        with wrong_call_if(PackageMissingError), needing("dask"):
            from distributed import Client
        with Client(options.client, timeout=_MAX_SECONDS) as client:  # type: ignore[no-untyped-call]
            yield client
    elif options.processes is not None:
        with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
            yield pool
    else:
        yield None


def _sizes(text: str) -> tuple[int | None, ...]:
    return tuple(None if size.strip() == "?" else integers(size)[0] for size in text.split(","))


def _number(text: str) -> complex:
    for kind in (int, float, complex):
        with contextlib.suppress(ValueError):
            return kind(text)
    raise argparse.ArgumentTypeError(f"expected a number, got {text!r}")


COLUMNS = argument(
    "--columns", "names of the coordinates by dimension, and of the values last, such as i,j,v", type=names
)
TEXT: tuple[Any, ...] = (
    argument(
        "--separator", "of a text table, such as ';' or '::'; by default one that separates --columns",
        type=lambda text: text.replace("\\t", "\t"),
    ),
    argument("--comment", "the beginning of lines to skip before the rows of a text table, such as '#'"),
    argument(
        "--no-header", "a text table without names, whose columns are 0, 1 …",
        dest="header", action="store_const", const=False,
    ),
    argument("--values", "1: each row of a table has this value, and --columns names coordinates only",
             type=int, choices=[1]),
)  # fmt: skip
NULLS = argument("--nulls", "rows with a null: drop removes them; error by default", choices=get_args(Nulls))

COMMANDS: dict[str, tuple[Any, ...]] = {
    "build": (
        _build, "build a tensor larger than memory in a sharded Zarr store, with many processes",
        ["rows.parquet tensor.zarr --columns i,j,value --format CSR",
         "'*.parquet' tensor.zarr --columns i,j,value --format CSR --work work --processes 4"],
        argument("source", "Parquet files, with --columns: paths, patterns, folders, URLs; or tensors", nargs="+"),
        argument("target", "a Zarr store: a folder or a URL"),
        argument("--shape", "such as 125,?,112765; ? or no --shape is read from Parquet files", type=_sizes),
        argument("--format", "such as CSR, or 'sparse, sparse, sparse'", required=True),
        COLUMNS,
        argument("--duplicates", "how to merge duplicates; error by default", choices=get_args(Duplicates)),
        NULLS,
        argument("--dtype", "type of the values", type=np.dtype),
        argument("--fill-value", "value of cells that are not stored", type=_number),
        argument("--map", "an index map, such as '0/2, 1/4, 0%%2, 1%%4' for blocks of 2 × 4"),
        argument("--memory", "maximum bytes of a process, such as 1500M", type=byte_count),
        *STORAGE, OVERWRITE, OVERWRITE_FILE, LIMIT,
        argument("--work", "folder or URL for intermediate results; with it, a stopped build can be resumed"),
        argument("--client", "a Dask scheduler that runs the steps, such as tcp://10.0.0.1:8786", metavar="ADDRESS"),
        argument("--processes", "number of local processes that run the steps", type=int, metavar="N"),
    ),
}  # fmt: skip
