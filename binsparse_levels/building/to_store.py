"""Build a tensor that is larger than memory, or than one machine, in a sharded Zarr store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy.typing as npt

from ..containers.base import DEFAULT_STORAGE, Storage, is_url
from ..containers.replacing import Overwrite, refuse_losing
from ..engine.emission import Duplicates
from ..errors import (
    ContainerError,
    FormatError,
    IncompleteError,
    OptionError,
    PathExistsError,
    PathMissingError,
    Problem,
    UnsafeError,
    raise_if,
    within_memory,
)
from ..formats.format import FormatLike
from ..formats.index_map import MapLike
from ..io.kinds import KINDS, target_at
from ..io.writing import Progress, write
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from ..parallel import get_threads, set_threads
from ..system import resident
from ..tensors.validation import checked_type, mirror_problems
from . import planning, running
from .parquet import Parquet
from .planning import Plan, check_joined, planned
from .sources import SOURCES, Source, Tensors, source_of
from .store import scratch, store_at
from .work import Work, begin, stored_plan

_SHARE = 0.45  # of a Dask worker's limit: it is paused at 0.8, and the data of its libraries count too
_WORKER = 5 * 2**25  # bytes of a worker before it does anything


class Stage(NamedTuple):
    """How far a stage of a build is. total: None while the stages before are not done."""

    name: str
    done: int
    total: int | None


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
    key: str | None = None,
    filters: Sequence[Any] | None = None,
    duplicates: Duplicates = "error",
    dtype: npt.DTypeLike | None = None,
    fill_value: Any = None,
    attributes: Mapping[str, Any] | None = None,
    map: MapLike | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
    overwrite: Overwrite = False,
    compression: str | Mapping[str, str] | None = None,
    chunks: int | Mapping[str, int] | None = None,
    shards: int | Mapping[str, int] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Build a tensor from entries in any order, of any number, in a sharded Zarr store, by many processes.

    Parameters
    ----------
    source : Parquet files (a path, a pattern, a folder, a URL, or several of these) or a Dask dataframe, each with
        `columns`; tensors at one or more places, of one structure and fill value, which the target keeps; or a function
        with `count`.
    target : a folder, or the URL of a prefix of an object store.
    shape, format, map : as for `pack`. None in place of a size, or of all, is the number of labels, or one more than
        the greatest coordinate that the statistics of Parquet files tell. Levels that are not joined array by array,
        such as those of plug-ins, need the entries in memory at once.
    client : a Dask client, or an executor of `concurrent.futures`. By default the steps run in turn, in this process.
    work : a folder or URL for the objects between the steps, about three times as large as the entries. Every worker
        has to reach it. The call can then be repeated after a failure, and goes on where it was. By default it is a
        temporary folder beside a target that is a folder.
    columns : the names of the coordinates by dimension, and of the values last. None in place of the values counts
        rows: pass `duplicates="sum"`. Columns of Parquet files that hold texts, booleans, dates, times or decimals are
        labels: their order is that of the coordinates, and they are stored beside the tensor. Folders such as
        `year=2026` are columns too.
    filters : which rows of Parquet files, such as [("year", ">=", 2024)], as pyarrow's `read_table` takes them.
    count : the number of chunks that the function makes: function(k) gives the coordinates and the values of chunk k.
    key : a text that tells the function from others, such as its version. By default, its code and what it holds do.
    duplicates : as for `pack`; the order is that of the source.
    dtype : the type of the values. By default it is the common type of all files or tensors, or that of the first chunk
        of a function; a value that it does not hold is an error.
    fill_value, attributes, limits : as for `pack`.
    memory : bytes that each process may use; by default 45 % of the limit of a Dask worker's thread, or else 1 GiB
        more than the process has.
    progress : called with the name of a stage, how many of its steps are done, and of how many.
    overwrite, compression, chunks, shards : as for `write`. By default, shards grow with the array.

    Nothing has to be consolidated later: each shard is written once, by one step, and the header comes last. Until then
    `open` raises IncompleteError.

    Raises
    ------
    ArrayError : a coordinate is out of range or repeated, a column has nulls or no numbers.
    ContainerError : the work folder is held by another process, or has the work of another build; the target belongs to
        another build or program by now; the source has changed; an object of the work is damaged; a worker has died.
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
    place = _target(target)
    if work is None and is_url(place):
        raise OptionError(Problem("work", "a target in an object store needs the URL of a work folder; pass work="))
    options: dict[str, Any] = {"duplicates": duplicates, "dtype": dtype, "attributes": attributes, "map": map}
    options |= {"fill_value": fill_value, "overwrite": overwrite, "limits": limits, "memory": memory}
    named = {"columns": columns, "count": count, "key": key, "filters": filters, "again": work is not None}
    storage = Storage(compression, chunks, shards)
    with contextlib.ExitStack() as ending:
        ending.callback(set_threads, get_threads())
        if work is None:
            _refuse_present(place, overwrite)
            made = _planned(None, (source, named), place, shape, format, storage, client, **options)
            if client is None and (tensor := running.at_once(*made)) is not None:
                if progress is not None:
                    progress("write", 0, 1)
                rest: dict[str, Any] = asdict(storage) | {"overwrite": overwrite, "limits": limits}
                write(place, tensor, kind="zarr", **rest)
                if progress is not None:
                    progress("write", 1, 1)
                return
            folder = ending.enter_context(scratch(place))
            ending.enter_context(store_at(folder).held())
            _clear(place, overwrite)
        else:
            folder = _folder(work)
            ending.enter_context(store_at(folder).held())
            made = _resumed(folder, (source, named), place, shape, format, storage, client, **options)
        begun = _begun(folder, *made, sent=not _here(client))
        ending.callback(begun.forget)
        try:
            if not begun.done("commit"):
                running.run(begun, client, progress)
        except BaseException:
            if work is None:  # nobody can go on
                _withdraw(begun)
            raise
        _end(begun)


@within_memory
def plan(
    source: Any,
    target: str | os.PathLike[str],
    shape: int | Sequence[int | None] | None,
    format: FormatLike,
    *,
    work: str | os.PathLike[str],
    columns: Sequence[str | None] | None = None,
    filters: Sequence[Any] | None = None,
    memory: int | None = None,
    storage: Storage = DEFAULT_STORAGE,
    **options: Any,
) -> list[Stage]:
    """Begin a build whose steps a batch system runs, or find it begun; its stages.

    Run every step of a stage by `step(work, stage, number)`, in any order and side by side. When they are done,
    `progress(work)` tells the number of steps of the next stage. `commit(work)` ends the build.

    Parameters
    ----------
    source, target, shape, format, columns : as for `build`; Parquet files, or tensors.
    work : the folder or URL of the work. Every process has to reach it.
    memory : bytes that each process may use, as for `build`.
    storage : compression, chunks and shards.
    options : `duplicates`, `dtype`, `fill_value`, `attributes`, `map`, `overwrite`, `limits`, as for `build`.

    Raises the errors of `build`.

    >>> import os, tempfile
    >>> import binsparse_levels as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.write(f"{folder}/a.h5", bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    ...     work = f"{folder}/work"
    ...     stages = bl.plan(f"{folder}/a.h5", f"{folder}/b.zarr", (3, 4), "CSC", work=work)
    ...     while (todo := next((x for x in stages if x.done != x.total), None)) is not None:
    ...         for number in range(todo.total):
    ...             bl.step(work, todo.name, number)
    ...         stages = bl.progress(work)
    ...     bl.commit(work)
    ...     str(bl.open(f"{folder}/b.zarr").format)
    'CSC'
    """
    if callable(source) or hasattr(source, "to_delayed"):
        raise OptionError(Problem("source", "a batch system needs files; pass paths, or call build()"))
    place, folder = _target(target), _folder(work)
    named = {"columns": columns, "count": None, "key": None, "filters": filters, "again": True}
    with store_at(folder).held():
        made = _resumed(folder, (source, named), place, shape, format, storage, None, memory=memory, **options)
        begun = _begun(folder, *made)
    return _stages(begun)


@within_memory
def progress(work: str | os.PathLike[str]) -> list[Stage]:
    """How far the build in a work folder is, stage by stage, told by the names of the objects there.

    Parameters
    ----------
    work : the folder or URL that `plan` was given.

    Raises PathMissingError, ContainerError for a folder without a plan.

    >>> import tempfile
    >>> import binsparse_levels as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.write(f"{folder}/a.h5", bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    ...     work = f"{folder}/work"
    ...     stages = bl.plan(f"{folder}/a.h5", f"{folder}/b.zarr", (3, 4), "CSC", work=work)
    ...     bl.progress(work) == stages, stages[0].name, stages[0].done
    (True, 'pack', 0)
    """
    return _stages(_work_at(work))


@within_memory
def step(work: str | os.PathLike[str], stage: str, number: int) -> None:
    """Run one step of the build in a work folder.

    A step may be run again, and by two processes at once: it leaves the same object.

    Parameters
    ----------
    work : the folder or URL that `plan` was given.
    stage : the name of a stage, as `progress` gives it.
    number : of the step in its stage, from 0.

    Raises OptionError for a stage or a number that the build does not have, IncompleteError where a stage before is not
    done, and the errors of `build`.

    >>> import tempfile
    >>> import binsparse_levels as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.write(f"{folder}/a.h5", bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    ...     work = f"{folder}/work"
    ...     stages = bl.plan(f"{folder}/a.h5", f"{folder}/b.zarr", (3, 4), "CSC", work=work)
    ...     bl.step(work, "pack", 0)
    ...     bl.progress(work)[0].done
    1
    """
    begun, asked = _work_at(work), as_integer(number)
    if stage not in (names := running.stages(begun)):
        raise OptionError(Problem("stage", f"no stage {stage!r:.40}; the stages are {', '.join(names)}"))
    for known in _stages(begun):
        if known.name == stage:
            if known.total is None or asked is None or not 0 <= asked < known.total:
                raise OptionError(Problem(f"{stage}.{number}", f"there are {known.total} steps; count from 0"))
            running.run_step(begun, stage, asked)
            return
        if known.done != known.total:
            what = f"{known.done} of {known.total} steps are done; run the others before those of {stage}"
            raise IncompleteError(Problem(known.name, what))


@within_memory
def commit(work: str | os.PathLike[str]) -> None:
    """End the build in a work folder: write the header, by which the target is complete, and remove the work.

    `plan` has an example of a whole build.

    Parameters
    ----------
    work : the folder or URL that `plan` was given.

    Raises IncompleteError where a step is not done.

    >>> import tempfile
    >>> import binsparse_levels as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.write(f"{folder}/a.h5", bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    ...     work = f"{folder}/work"
    ...     stages = bl.plan(f"{folder}/a.h5", f"{folder}/b.zarr", (3, 4), "CSC", work=work)
    ...     try:
    ...         bl.commit(work)
    ...     except bl.IncompleteError:
    ...         print("steps are missing")
    steps are missing
    """
    begun = _work_at(work)
    with begun.store.held():
        if not begun.done("commit"):
            step(work, "commit", 0)
        _end(begun)


def _folder(work: str | os.PathLike[str]) -> str:
    """The address of a work, as other processes understand it."""
    place = os.fspath(work)
    return place if is_url(place) else os.path.abspath(place)


def _work_at(address: str | os.PathLike[str]) -> Work:
    """The work in a folder, whose plan is not trusted: its source is made from its description alone."""
    folder = _folder(address)
    found, digest = stored_plan(folder)
    if found.source.get("kind") not in SOURCES:
        raise UnsafeError(Problem("source", "was given as an object of a program; call build() there"))
    return Work(folder, digest)


def _stages(work: Work) -> list[Stage]:
    """The stages of a build. Those behind the first that is not done have no total yet."""
    found = []
    finished = bool(work.done("commit"))
    known = True
    for name in running.stages(work):
        if finished:
            found.append(Stage(name, 1, 1))
            continue
        total = running.stage_of(name).count(work) if known else None
        found.append(Stage(name, sum(total is None or k < total for k in work.done(name)), total))
        known = known and found[-1].done == total
    return found


def _here(client: Any) -> bool:
    """Whether the steps run in this process."""
    return isinstance(client, ThreadPoolExecutor | None)


def _planned(
    kept: Plan | None,
    given: tuple[Any, Mapping[str, Any]],
    target: str,
    shape: int | Sequence[int | None] | None,
    format: FormatLike,
    storage: Storage,
    client: Any,
    *,
    memory: int | None = None,
    fill_value: Any = None,
    **options: Any,
) -> tuple[Plan, Source]:
    """The plan of a build, and its source. kept: the plan that a folder has. given: the source, and what names its
    chunks.
    """
    storage.refuse("a build", but=("compression", "chunks", "shards"), compressions=("zstd", "gzip", "none"))
    threads, limit = running.workers(client) if running.is_dask(client) else (None, None)
    share = memory if memory is not None or limit is None else int(limit * _SHARE) // (threads or 1)
    source, named = given
    used = None if client is None else _WORKER // (threads or 1)
    rest = {"target": target, "storage": asdict(storage), "threads": None if _here(client) else 1, **options}
    sizes: list[int | None] = [None] if shape is None else list(shape) if isinstance(shape, Sequence) else [0]
    entries: Source
    if None in sizes:
        columns, dtype = named["columns"], options.get("dtype")
        if columns is None or callable(source) or hasattr(source, "to_delayed"):
            raise OptionError(Problem("shape", "expected the sizes of the dimensions; only Parquet files tell them"))
        sizes = [None] * (len(columns) - 1) if shape is None else sizes
        value = 8 if dtype is None else checked_type(dtype).itemsize
        free = resident() if used is None else used
        rows = kept.rows if kept is not None else planning.rows_within(share, len(sizes), 8, value, used=free)
        entries = source_of(source, len(sizes), rows, **named)
        assert isinstance(entries, Parquet)
        known_sizes, open = entries.sized(sizes)
        wanted = planned(known_sizes, format, rows=rows, open=open, **rest)
    else:
        assert shape is not None
        bound = {"rows": kept.rows} if kept is not None else {"memory": share}
        wanted = planned(shape, format, used=used, **bound, **rest)  # type: ignore[arg-type]
        entries = source_of(source, len(wanted.shape), wanted.rows, **named)
    structure = None
    if isinstance(entries, Tensors):
        known, structure = entries.agreed(wanted.shape)
        fill_value = known if fill_value is None else fill_value
    if kept is not None and not wanted.dtype:
        wanted = replace(wanted, dtype=kept.dtype)
    single = isinstance(entries, Tensors | Parquet) and len(entries) < 2  # other chunks may exceed the memory
    plan = wanted.reading(entries, fill=fill_value, structure=structure, sorted=single)
    if not plan.open:
        check_joined(plan)
    if structure is not None:
        if plan.map is not None:
            raise FormatError(Problem("map", f"does not go with the structure {structure} of the source; leave it out"))
        raise_if(FormatError, mirror_problems(structure, plan.parsed, plan.pad))
    return plan, entries


def _resumed(
    folder: str, given: tuple[Any, Mapping[str, Any]], target: str, *options: Any, **more: Any
) -> tuple[Plan, Source]:
    """The plan of the build in a folder, begun or gone on with, and its source. Precondition: the folder is held."""
    try:
        kept: Plan | None = stored_plan(folder)[0]
    except PathMissingError:
        kept = None
    made = _planned(kept, given, target, *options, **more)
    if kept is None:
        _clear(target, made[0].overwrite)
    return made


def _begun(folder: str, plan: Plan, source: Source, *, sent: bool = False) -> Work:
    """The work in a folder. sent: other processes need the source. Precondition: the folder is held."""
    from .target import claim  # which loads zarr

    work = begin(folder, plan, source, sent=sent)
    if work.done("commit"):
        _end(work)
    else:
        claim(work)
    return work


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


def _refuse_present(target: str, overwrite: Overwrite) -> None:
    """Raise PathExistsError for a target that is there, or that holds more than the tensor to overwrite."""
    from ..containers.zarr import ROOT, others

    there = store_at(target).names("")
    if there and not overwrite:
        raise PathExistsError(Problem(target, "already exists; pass overwrite=True"))
    if there and ROOT not in there and ".zgroup" not in there:
        raise PathExistsError(Problem(target, "is a folder without a Zarr group; remove it first, or pass another"))
    if there and overwrite != "file":
        refuse_losing(target, sorted(others(target, {name.partition("/")[0] for name in there})))


def _clear(target: str, overwrite: Overwrite) -> None:
    """Make room for a new store. Raises PathExistsError."""
    from ..containers.zarr import ROOT

    _refuse_present(target, overwrite)
    store = store_at(target)
    store.delete(ROOT)
    store.delete("")


def _withdraw(work: Work) -> None:
    """Remove a target of which nothing but the mark of this build is written."""
    from .target import hold

    store = store_at(str(work.begun.target))
    with contextlib.suppress(ContainerError):
        hold(work)
        if not work.done("join"):
            store.delete("")


def _end(work: Work) -> None:
    """Remove what a build that is done needs no longer. The plan stays, so that another call finds it done.

    Raises ContainerError where the target is another one by now.
    """
    from .target import hold_done

    hold_done(work)
    for stage in (*running.LABELS, *running.STAGES, "index", "spans", "source"):
        if stage != "commit":
            work.store.delete(stage)
