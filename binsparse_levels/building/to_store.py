"""Build a tensor that is larger than memory, or than one machine, in a sharded Zarr store."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy.typing as npt

from ..containers.base import Storage, is_url
from ..containers.objects.bucket import side_by_side
from ..containers.objects.codecs import CODECS
from ..containers.replacing import Overwrite
from ..engine.emission import Duplicates
from ..errors import ArrayError, FormatError, OptionError, PathExistsError, Problem, raise_if, within_memory
from ..formats.format import FormatLike
from ..formats.index_map import MapLike
from ..io.kinds import KINDS, name_of, target_at
from ..io.writing import Progress
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from ..system import resident
from ..tensors.validation import mirror_problems
from . import running, streams
from .columns import Nulls, check_nulls, names_in
from .parquet import Parquet, parquet_files
from .plan import LOADED, check_joined, planned
from .sources import Chunks, Numbered, Tensors, absolute, dask_chunks, state_of
from .tables import LEAST, Table, is_relation, needs_sql, table_of
from .work import Work, begin, begun, open_work, scratch

_SHARE = 0.45  # of a Dask worker's limit: it is paused at 0.8, and the data of its libraries count too
_WORKER = 6 * 2**25  # bytes of a worker before it does anything
_MORE = 2**30  # bytes that a process may use beyond those that it has, by default


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
    """Build a tensor from entries in any order, of any number, in a sharded Zarr store, by many processes.

    Parameters
    ----------
    source : Parquet files (a path, a pattern, a folder, a URL, or several of these), a relation of duckdb or a Dask
        dataframe, each with `columns`; tensors at one or more places, of one structure, fill value and labels, which
        the target keeps with the attributes of the first; or a function with `count`.
    target : a folder, or the URL of a prefix of an object store.
    shape, format, map : as for `pack`. None in place of a size, or of all, is the number of labels, or one more than
        the greatest coordinate in Parquet files or a relation. Levels that are not joined array by array, such as those
        of plug-ins, need the entries in memory at once.
    client : a Dask client, or an executor of `concurrent.futures`. By default the steps run in turn, in this process.
    work : a folder or URL for the objects between the steps, about three times as large as the entries. Every worker
        has to reach it. The call can then be repeated after a failure, and goes on where it was; a function and a
        relation are told from others by their names alone. By default it is a temporary folder beside a target that is
        a folder.
    columns : the names of the coordinates by dimension, and of the values last. None in place of the values counts
        rows: pass `duplicates="sum"`. Columns of Parquet files and relations that contain texts, booleans, dates, times
        or decimals are labels: their order is that of the coordinates, and they are stored beside the tensor. This
        process numbers them with duckdb. Folders such as `year=2026` are columns too.
    count : the number of chunks that the function makes: function(k) gives the coordinates and the values of chunk k.
    duplicates : as for `pack`; the order is that of the source, of rows with labels any order.
    nulls : "drop" leaves out rows with a null in one of the columns.
    dtype : the type of the values. By default it is the common type of all files or tensors, or that of the first chunk
        of a function; a value that it does not represent is an error.
    fill_value, attributes, limits : as for `pack`.
    memory : bytes that each process may use; by default 45 % of the limit of a Dask worker's thread, or else 1 GiB
        more than the process has.
    progress : called with the name of a stage, how many of its steps are done, and of how many. True draws a bar on
        standard error, where that is a terminal.
    overwrite, compression, chunks, shards : as for `write`. By default, shards grow with the array.

    Nothing has to be consolidated later: each shard is written once, by one step. The target changes at once, when all
    is written. In a bucket its header points to the prefix that the arrays are below; to other programs, that prefix is
    the tensor.

    Raises
    ------
    ArrayError : a coordinate is out of range or repeated, a column has nulls or no numbers.
    ContainerError : the work folder has the work of another build; the source has changed; an object of the work is
        damaged; a worker has died.
    FormatError, LimitError, OptionError, PathExistsError : as `write` raises them.

    An error that a function of the caller raises comes as it is, with a note that names the chunk.

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

    place, report = _target(target), running.reporter(progress)
    if work is None and is_url(place):
        raise OptionError(Problem("work", "a target in an object store needs the URL of a work folder; pass work="))
    check_nulls(nulls)
    storage = Storage(compression, chunks, shards)
    storage.refuse("a build", but=("compression", "chunks", "shards"), compressions=CODECS)
    given = _given(source, columns, count, shape, nulls)
    options: dict[str, Any] = {"format": format, "map": map, "duplicates": duplicates, "dtype": dtype}
    options |= {"attributes": attributes, "limits": limits, "storage": storage}
    call = {**options, "source": given.told, "target": place, "shape": shape, "columns": columns, "nulls": nulls}
    call |= {"overwrite": overwrite}
    call |= {"fill_value": fill_value, "count": count, "format": str(format)}
    with contextlib.ExitStack() as ending:
        folder = ending.enter_context(scratch(place)) if work is None else _folder(work)
        kept = None if work is None else begun(folder, call)
        if kept is not None and (left := targets.left_by(folder)) is not None:
            targets.check_left(place, left, folder)
            targets.end(Work(folder), running.STAGES)
            return
        if kept is None:
            targets.refuse_present(place, overwrite)
        running.refuse_fork(client, [folder, place, *given.places])
        threads, bounds = _bounds(memory, client)
        id = uuid.uuid4().hex[:16] if kept is None else kept.id
        options |= {"target": place, "overwrite": overwrite, "threads": threads, "id": id}
        options["staging"] = targets.staging_of(place, folder, id, kept=work is not None)
        options |= bounds if kept is None else {"rows": kept.rows}
        made = (_numbered if given.sql else _read)(given, folder, call, options, fill_value, client, report)
        running.run(ending.enter_context(contextlib.closing(made)), client, report)
        targets.end(made, running.STAGES)


class _Given(NamedTuple):
    """The source of a build, as the call names it. told: what differs where it is another one."""

    source: Any
    columns: Sequence[str | None] | None
    nulls: Nulls
    shape: Any
    chunks: int = 0
    sql: bool = False
    places: Sequence[str] = ()
    told: Any = None


def _given(source: Any, columns: Sequence[str | None] | None, count: int | None, shape: Any, nulls: Nulls) -> _Given:
    """Raises OptionError for options that do not fit, ArrayError for another number of columns."""
    if count is not None and not callable(source):
        raise OptionError(Problem("count", "only a function makes a number of chunks; leave it out"))
    if callable(source):
        number = as_integer(count)
        if number is None or number < 0 or columns is not None:
            raise OptionError(Problem("count", f"a function makes a number of chunks, got count={count!r:.40}"))
        return _Given(source, None, nulls, shape, number, told=getattr(source, "__qualname__", type(source).__name__))
    tables = is_relation(source) or hasattr(source, "to_delayed")
    if columns is None:
        if tables:
            raise OptionError(Problem("columns", "name the columns of the coordinates, and of the values last"))
        places = [absolute(x) for x in (source if isinstance(source, list | tuple) else [source])]
        named = [x if isinstance(x, str) else name_of(x) for x in places]
        return _Given(places, None, nulls, shape, places=named, told=named)
    ndim = len(columns) - 1 if shape is None else len(shape) if isinstance(shape, Sequence) else 1
    if None in columns[:-1] or not 2 <= len(columns) == ndim + 1:
        what = f"{len(columns)} names for {ndim} dimensions; name their columns, and that of the values last"
        raise ArrayError(Problem("columns", what))
    open = shape is None or (isinstance(shape, Sequence) and None in shape)
    if is_relation(source):
        return _Given(source, columns, nulls, shape, sql=True, told=source.columns)
    if tables:
        return _Given(source, columns, nulls, shape, told=(list(source.columns), source.npartitions))
    files = parquet_files(source)
    told = list(zip(files, side_by_side(state_of, files), strict=True))
    return _Given(files, columns, nulls, shape, sql=open or needs_sql(files, columns), places=files, told=told)


def _bounds(memory: int | None, client: Any) -> tuple[int | None, dict[str, int | None]]:
    """The threads of a step, where steps run side by side; the memory of each process, and what it has used."""
    if running.in_this_process(client):
        return None, {"memory": memory}
    threads, limit = running.workers(client) if running.is_dask(client) else (1, None)
    share = memory if memory is not None or limit is None else int(limit * _SHARE) // threads
    return 1, {"memory": share, "used": _WORKER // threads}


def _read(
    given: _Given, folder: str, call: Mapping[str, Any], options: Any, fill: Any, client: Any, _: Progress | None
) -> Work:
    """The work of a source that is read in chunks."""
    if given.shape is None or (isinstance(given.shape, Sequence) and None in given.shape):
        raise OptionError(Problem("shape", "expected the sizes of the dimensions; only tables tell them"))
    plan = planned(given.shape, **options)
    entries: Chunks = _chunks_of(given, len(plan.shape), plan.rows, plan.limits)
    single = isinstance(entries, Tensors | Parquet) and len(entries) < 2  # other chunks may exceed the memory
    more: dict[str, Any] = {"names": _names(given), "sorted": single}
    if isinstance(entries, Tensors) and (first := entries.first) is not None:
        entries.check(plan.shape)
        fill = first.fill_value if fill is None else fill
        more["structure"] = first.structure
        more["attributes"] = plan.attributes or dict(first.attributes)
        more["descriptor_attributes"] = dict(first.descriptor_attributes)
    plan = replace(plan, **more, **plan.typed(plan.dtype or entries.value_type(), fill))
    check_joined(plan)
    if plan.structure is not None:
        if plan.map is not None:
            what = f"does not go with the structure {plan.structure} of the source; leave it out"
            raise FormatError(Problem("map", what))
        raise_if(FormatError, mirror_problems(plan.structure, plan.parsed, plan.pad))
    begin(folder, {**call, "the state of the source": entries.states if isinstance(entries, Tensors) else None}, plan)
    return open_work(folder, plan, entries, sent=not running.in_this_process(client))


def _chunks_of(given: _Given, ndim: int, rows: int, limits: Limits) -> Chunks:
    if callable(given.source):
        return Numbered(given.source, given.chunks, ndim)
    if given.columns is None:
        return Tensors(given.source, rows, limits)
    if hasattr(given.source, "to_delayed"):
        return dask_chunks(given.source, given.columns, given.nulls)
    return Parquet(given.source, given.columns, rows, given.nulls, table_of(given.source))


def _names(given: _Given) -> tuple[str, ...] | None:
    return None if given.columns is None else (*names_in(given.columns[:-1]), given.columns[-1] or "count")


def _numbered(
    given: _Given, folder: str, call: Mapping[str, Any], options: Any, fill: Any, client: Any, report: Progress | None
) -> Work:
    """The work of a table, whose rows and labels this process numbers and leaves there, unless they are there."""
    assert given.columns is not None
    sent, names = not running.in_this_process(client), _names(given)
    if (there := streams.left_by(folder)) is not None:
        plan = planned(there.shape, **options)
        plan = replace(plan, names=names, labels=there.labels, sorted=there.in_order, **plan.typed(there.dtype, fill))
        return open_work(folder, plan, streams.Blocks(folder, there.counts), sent=sent)
    used = max(resident(), LOADED)
    memory = used + _MORE if options.get("memory") is None else options["memory"]
    share = max((memory - used) // 2, LEAST)
    with contextlib.ExitStack() as ending:
        spare = ending.enter_context(scratch(folder)) if is_url(folder) else os.path.join(folder, "spare")
        table = Table(given.source, given.columns, given.nulls, memory=share, folder=spare)
        ending.enter_context(contextlib.closing(table))
        sizes = table.sizes()
        if given.shape is not None:
            wanted = given.shape if isinstance(given.shape, Sequence) else [given.shape]
            sizes = [there if size is None else size for there, size in zip(sizes, wanted, strict=True)]
        if "rows" not in options:
            options = {**options, "memory": memory, "used": used + share}
        plan = planned(sizes, **options)
        plan = replace(plan, names=names, labels=table.labels, **plan.typed(table.dtype, fill))
        check_joined(plan)
        begin(folder, call, plan)
        table.keep_labels(open_work(folder, plan, streams.Blocks(folder), sent=False))
        return streams.spilled(folder, plan, streams.blocks(plan, table.chunks()), report, sent=sent)


def _folder(work: str | os.PathLike[str]) -> str:
    """The address of a work, as other processes understand it."""
    place = os.fspath(work)
    return place if is_url(place) else os.path.abspath(place)


def _target(place: str | os.PathLike[str]) -> str:
    """The URL or real path of a place for a store. Raises OptionError, PathMissingError, PathExistsError."""
    location = target_at(place, "zarr")
    if location.group is not None:
        raise OptionError(Problem(str(place), "a store is built whole; leave out the group"))
    others = [suffix for name, kind in KINDS.items() if name != "zarr" for suffix in kind.suffixes] + [".zip"]
    if str(location.path).endswith(tuple(others)):
        raise OptionError(Problem(str(place), "a build makes a Zarr folder; take the suffix .zarr"))
    if is_url(location.path):
        return str(location.path)
    path: str = os.path.realpath(location.path)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise PathExistsError(Problem(path, "is a file, and a store is a folder; remove it first"))
    return path
