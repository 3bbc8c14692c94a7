"""Build a tensor that is larger than memory, by any number of processes, in a sharded Zarr store."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..containers.base import Storage, is_url
from ..containers.objects.bucket import map_concurrently
from ..containers.objects.codecs import CODECS
from ..containers.replacing import Overwrite
from ..engine.emission import Duplicates
from ..errors import ArrayError, OptionError, PathExistsError, Problem, check_choice, within_memory
from ..formats.format import FormatLike
from ..formats.index_map import MapLike
from ..io import reading
from ..io.kinds import KINDS, name_of, target_at
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from ..progress import Progress, reporter
from ..system import resident
from . import running
from .columns import Nulls, names_in, wrap_tables
from .plan import DEFAULT_BYTES, LOADED_BYTES, Plan, Source, check_told, planned, refuse_scalar
from .sources import Blocks, Function, Tensors, blocks, spilled, state_of
from .tables import MIN_DUCKDB_BYTES, Parquet, Table, dask_chunks, is_relation, needs_sql, parquet_files
from .work import Work, begin, begun, open_work, scratch

_ARROW_BYTES = 3 * 2**24  # of pyarrow, and of a row group that it reads


@within_memory
def build(
    source: Any,
    target: str | os.PathLike[str],
    shape: int | Sequence[int | None] | None,
    format: FormatLike,
    *,
    client: Any = None,
    work: str | os.PathLike[str] | None = None,
    columns: Sequence[str | None] | None = None,
    count: int | None = None,
    duplicates: Duplicates = "error",
    nulls: Nulls = "error",
    dtype: npt.DTypeLike | None = None,
    fill_value: Any = None,
    attributes: Mapping[str, Any] | None = None,
    map: MapLike | None = None,
    memory: int | None = None,
    progress: Progress | bool | None = None,
    overwrite: Overwrite = False,
    compression: str | Mapping[str, str] | None = None,
    chunks: int | Mapping[str, int] | None = None,
    shards: int | Mapping[str, int] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Build a tensor in a sharded Zarr store, by many processes, from any number of entries in any order.

    Parameters
    ----------
    source : Parquet files (a path, a pattern, a folder, a URL, or several of these), a relation of duckdb or a Dask
        dataframe, each with `columns`; a function with `count`; or tensors at one or more places. Tensors need the same
        structure, fill value and labels. The target keeps these, and the attributes of the first tensor.
    target : a folder, or the URL of a prefix of an object store.
    shape, format, map : as for `pack`. For Parquet files or a relation, a size or the shape may be None. The size is
        then the number of labels, or one more than the largest coordinate. Levels other than dense and sparse need all
        entries in memory.
    client : a Dask client, or an executor of `concurrent.futures`. By default this process runs one step after another.
    work : a folder or URL for the objects between the steps, about three times as large as the entries. Every worker
        needs access to it. If the call fails, it can be repeated and continues where it stopped; functions and
        relations are identified by their names alone. By default it is a temporary folder next to a target that is a
        folder.
    columns : the column of the coordinates of each dimension, and last that of the values. With None as the last, each
        value is 1: pass `duplicates="sum"` to count rows. Columns of texts, booleans, dates, times or decimals are
        labels, in Parquet files and relations. This process sorts and numbers them with duckdb. They are stored in the
        target. Folders such as `year=2026` are columns too.
    count : the number of chunks of the function: function(k) returns the coordinates and the values of chunk k.
    duplicates : as for `pack`, in the order of the source. Rows with labels come in any order.
    nulls : "drop" leaves out rows with a null in one of the columns.
    dtype : the type of the values. By default it is the common type of all files or tensors, or that of the first chunk
        of a function with entries; a value that it does not represent is an error.
    fill_value, attributes, limits : as for `pack`.
    memory : bytes that each process may use; by default 45 % of the limit of a Dask worker, divided by its
        threads, or else 1 GiB more than the process uses.
    progress : called with the name of a stage, the number of finished steps, and their total. True draws a bar on
        standard error, if that is a terminal.
    overwrite, compression, chunks, shards : as for `write`. By default, shards grow with the array.

    Each shard is written once, by one step. The target is replaced in a single step after all shards are written. In a
    bucket, its header points to the prefix of the arrays; other programs read the tensor at that prefix.

    Raises
    ------
    ArrayError : a coordinate is out of range or repeated, a column has nulls or no numbers.
    ContainerError : the work folder has the work of another build; the source has changed; an object of the work is
        damaged; a worker has died.
    FormatError, LimitError, OptionError, PathExistsError : as `write` raises them.

    An error of the caller's function is raised unchanged, with a note that names the chunk.

    >>> import tempfile
    >>> import binsparse_levels as bl
    >>> def chunk(k):
    ...     return [[k, 3 - k], [0, 1]], [1.0, 2.0]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.build(chunk, f"{folder}/a.zarr", (4, 2), "CSR", count=2)
    ...     bl.read(f"{folder}/a.zarr").to_dense().tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 2.0]]
    """
    from . import target as targets  # which loads zarr

    place, report = _target(target), reporter(progress)
    if work is None and is_url(place):
        raise OptionError(Problem("work", "a target in an object store needs the URL of a work folder; pass work="))
    check_choice("nulls", nulls, Nulls)
    storage = Storage(compression, chunks, shards)
    storage.refuse("a build", but=("compression", "chunks", "shards"), compressions=CODECS)
    sizes = shape if shape is None or isinstance(shape, Sequence) else [shape]
    given = _given(source, columns, count, sizes, nulls)
    options: dict[str, Any] = {"format": format, "map": map, "duplicates": duplicates, "dtype": dtype}
    options |= {"fill_value": fill_value, "attributes": attributes, "limits": limits}
    options |= {"storage": storage, "target": place, "overwrite": overwrite}
    call = {**options, "format": str(format), "source": given.identity, "shape": shape, "columns": columns}
    call |= {"count": count, "nulls": nulls}
    with contextlib.ExitStack() as ending:
        folder = ending.enter_context(scratch(place)) if work is None else _address(work)
        there = None if work is None else begun(folder, call)
        id = uuid.uuid4().hex[:16] if there is None else there["id"]
        staging = targets.staging_of(place, folder, id, kept=work is not None)
        if there is not None and targets.finished(place, folder):
            targets.end(Work(folder), running.STAGES, staging)
            return
        if there is None:
            targets.refuse_present(place, overwrite)
        running.refuse_fork(client, [folder, place, *given.places])
        options |= {"id": id, "staging": staging}
        options |= running.bounds(memory, client) | ({} if there is None else {"rows": there["rows"]})
        options["names"] = None if columns is None else (*names_in(columns[:-1]), columns[-1] or "count")
        kept: dict[str, Any] = {} if there is None else there
        if given.make is not None:
            plan, entries = _read(given.make, sizes, options)
        elif "table" in kept:
            plan, entries = _again(folder, kept["table"], options)
        else:
            table = partial(Table, given.places or source, columns or (), nulls)
            plan, entries, kept["table"] = _numbered(table, sizes, options, folder, report)
        if work is not None:
            call["the state of the source"] = getattr(entries, "states", None)
            begin(folder, call, {**kept, "id": id, "rows": plan.rows})
        sent = not running.in_this_process(client)
        made = ending.enter_context(open_work(folder, plan, entries, sent=sent))
        running.run(made, client, report)
        targets.end(made, running.STAGES, staging)


class _Given(NamedTuple):
    """The source of a build, as the call names it.

    identity: differs for any other source. make: returns the entries; None for a table with labels. places: paths that
    workers read.
    """

    identity: Any
    make: Callable[[Plan], Source] | None = None
    places: Sequence[str] = ()


def _given(source: Any, columns: Sequence[str | None] | None, count: int | None, sizes: Any, nulls: Nulls) -> _Given:
    """Recognise the source. Raises OptionError for unsuitable options, ArrayError for a wrong number of columns."""
    if callable(source):
        number = as_integer(count)
        if number is None or number < 0 or columns is not None:
            raise OptionError(Problem("count", f"a function needs a number of chunks, got count={count!r:.40}"))
        name = getattr(source, "__qualname__", type(source).__name__)
        return _Given(name, lambda plan: Function(source, number, len(plan.shape)))
    if count is not None:
        raise OptionError(Problem("count", "only a function needs a number of chunks; leave it out"))
    in_memory = is_relation(source) or hasattr(source, "to_delayed")
    if columns is None:
        if in_memory:
            raise OptionError(Problem("columns", "name the columns of the coordinates, and of the values last"))
        places = source if isinstance(source, list | tuple) else [source]
        named = [name_of(x) for x in places]

        def opened(plan: Plan) -> Tensors:
            tensors = [reading.open(place, limits=plan.limits) for place in places]
            return Tensors(list(zip(named, tensors, strict=True)), plan.rows)

        return _Given(named, opened, named)
    ndim = len(columns) - 1 if sizes is None else len(sizes)
    if None in columns[:-1] or not 2 <= len(columns) == ndim + 1:
        what = f"{len(columns)} names for {ndim} dimensions; name their columns, and that of the values last"
        raise ArrayError(Problem("columns", what))
    if is_relation(source):
        return _Given(source.columns)
    if in_memory:
        identity = list(source.columns), source.npartitions
        return _Given(identity, lambda plan: dask_chunks(source, columns, nulls))
    files = parquet_files(source)
    states = list(zip(files, map_concurrently(state_of, files), strict=True))
    if sizes is None or None in sizes or needs_sql(files, columns):
        return _Given(states, None, files)
    return _Given(states, lambda plan: Parquet(files, columns, plan.rows, nulls), files)


def _read(make: Callable[[Plan], Source], sizes: Any, options: Mapping[str, Any]) -> tuple[Plan, Source]:
    """A source that is read in chunks."""
    if sizes is None or None in sizes:
        raise OptionError(Problem("shape", "expected the sizes of the dimensions; only tables contain them"))
    if options["names"] is not None and "rows" not in options:
        options = {**options, "used": (options.get("used") or max(resident(), LOADED_BYTES)) + _ARROW_BYTES}
    plan = planned(sizes, **options)
    refuse_scalar(plan)
    entries = make(plan)
    single = isinstance(entries, Tensors | Parquet) and len(entries) < 2  # other chunks may exceed the memory
    plan = replace(plan.typed(plan.dtype or entries.value_type()), sorted=single)
    if isinstance(entries, Tensors) and entries.tensors:
        entries.check(plan.shape)
        plan = plan.like(entries.tensors[0])
    return plan, entries


def _again(folder: str, kept: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[Plan, Source]:
    """A table whose rows and labels an earlier call has written. kept: what `_numbered` returned."""
    plan = planned(kept["shape"], labels=tuple(kept["labels"]), sorted=kept["sorted"], **options)
    plan = plan.typed(np.dtype(kept["dtype"]))
    return plan, Blocks(folder, plan.raw, kept["blocks"])


def _numbered(
    make: Callable[..., Table], sizes: Any, options: Mapping[str, Any], folder: str, report: Progress | None
) -> tuple[Plan, Source, dict[str, Any]]:
    """A table whose labels this process numbers. It writes rows and labels, and returns what a repeated call needs."""
    used = max(resident(), LOADED_BYTES)
    memory = used + DEFAULT_BYTES if options.get("memory") is None else options["memory"]
    share = max((memory - used) // 2, MIN_DUCKDB_BYTES)
    with wrap_tables(), contextlib.ExitStack() as ending:
        spare = ending.enter_context(scratch(folder)) if is_url(folder) else os.path.join(folder, "spare")
        table = ending.enter_context(contextlib.closing(make(memory=share, folder=spare)))
        found = table.sizes()
        if sizes is not None:
            found = [here if size is None else size for here, size in zip(found, sizes, strict=True)]
        plan = planned(found, labels=table.labels, **{**options, "memory": memory, "used": used + share})
        if sizes is None or None in sizes:
            check_told(plan, table.rows, "cast the coordinates to text, which makes them labels")
        plan = plan.typed(table.dtype)
        table.keep_labels(folder)
        entries, in_order = spilled(folder, plan.raw, blocks(plan.raw, table.chunks()), report)
    plan = replace(plan, sorted=in_order and plan.map is None)
    kept = {"shape": plan.shape, "labels": plan.labels, "sorted": plan.sorted, "dtype": plan.column_types[-1].str}
    return plan, entries, {**kept, "blocks": len(entries)}


def _address(work: str | os.PathLike[str]) -> str:
    """The URL or the absolute path of a work folder, which other processes find too."""
    return str(work) if is_url(str(work)) else os.path.abspath(os.path.expanduser(work))


def _target(place: str | os.PathLike[str]) -> str:
    """The URL or real path of a store. Raises OptionError, PathMissingError, PathExistsError."""
    location = target_at(place, "zarr")
    others = [suffix for name, kind in KINDS.items() if name != "zarr" for suffix in kind.suffixes] + [".zip"]
    if location.group is not None or str(location.path).endswith(tuple(others)):
        raise OptionError(Problem(str(place), "a build makes a whole Zarr folder; pass a .zarr, without a group"))
    if is_url(location.path):
        return str(location.path)
    path: str = os.path.realpath(location.path)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise PathExistsError(Problem(path, "is a file, and a store is a folder; remove it first"))
    return path
