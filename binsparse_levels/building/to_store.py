"""Build a tensor that is larger than memory, or than one machine, in a sharded Zarr store."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

import numpy.typing as npt

from ..containers.base import Storage, is_url, split_path
from ..containers.objects.codecs import CODECS
from ..containers.replacing import Overwrite, refuse_losing
from ..engine.emission import Duplicates
from ..errors import (
    ContainerError,
    FormatError,
    OptionError,
    PathExistsError,
    PathMissingError,
    Problem,
    raise_if,
    within_memory,
)
from ..formats.format import FormatLike
from ..formats.index_map import MapLike
from ..io import reading
from ..io.kinds import KINDS, Place, target_at
from ..io.writing import Progress, write
from ..limits import DEFAULT_LIMITS, Limits
from ..system import resident
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_sizes, checked_type, mirror_problems
from . import planning, running
from .bad_rows import Bad, BadRows, keep_all
from .chunks import Source, sized
from .columns import cast_types
from .onto import Onto
from .parquet import Parquet
from .planning import Plan, check_joined, planned
from .sources import absolute, remade_tensors, source_of
from .stored_tensors import Tensors, pointers_of
from .work import Work, begin, scratch, store_at, stored_plan

_SHARE = 0.45  # of a Dask worker's limit: it is paused at 0.8, and the data of its libraries count too
_WORKER = 5 * 2**25  # bytes of a worker before it does anything


@within_memory
def build(
    source: Any,
    target: str | os.PathLike[str],
    shape: int | Sequence[int | None] | None,
    format: FormatLike | None,
    *,
    onto: Place | None = None,
    client: Any = None,
    work: str | os.PathLike[str] | None = None,
    columns: Sequence[str | None] | None = None,
    count: int | None = None,
    key: str | None = None,
    filters: Sequence[Any] | None = None,
    duplicates: Duplicates = "error",
    bad: Bad = "raise",
    dtype: npt.DTypeLike | Mapping[str, npt.DTypeLike] | None = None,
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
) -> BadRows:
    """Build a tensor from entries in any order, of any number, in a sharded Zarr store, by many processes.

    Parameters
    ----------
    source : Parquet files (a path, a pattern, a folder, a URL, or several of these) or a Dask dataframe, each with
        `columns`; tensors at one or more places, of one structure, fill value and labels, which the target keeps with
        the attributes of the first; or a function with `count`.
    target : a folder, or the URL of a prefix of an object store.
    shape, format, map : as for `pack`. None in place of a size, or of all, is the number of labels, or one more than
        the greatest coordinate that the statistics of Parquet files tell. Levels that are not joined array by array,
        such as those of plug-ins, need the entries in memory at once.
    onto : the place of a tensor, in any kind of file, into which the entries are merged. `duplicates` says what becomes
        of entries at the same coordinates, of which the tensor's come first. The tensor's coordinates and labels stay;
        labels that only the files have come behind, in their order. Where the shape is None, the tensor grows. Its
        names, attributes and fill value are kept; None in place of `format` is its format and map. A structure is
        expanded. A cell of a padded level that has the fill value is no entry.
        The target may be the same place, in a local folder: it is replaced at once, when the new tensor is complete.
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
    bad : "skip" leaves out rows whose coordinate is null, negative, out of range or no whole number, or whose value is
        null. The call returns how many for each reason, and the places of the first hundred.
        With `work`, a build that goes on returns the same.
    dtype : the type of the values. By default it is the common type of all files or tensors, or that of the first chunk
        of a function; a value that it does not hold is an error. Of Parquet files also the types that columns are cast
        to, such as {"user": "int64", "price": "float64"}: coordinates may be whole numbers in floats, decimals or
        texts, and `str` makes labels of numbers.
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
    ...     left_out = bl.build(chunk, f"{folder}/a.zarr", (4, 2), "CSR", count=2)
    ...     bl.read(f"{folder}/a.zarr").to_dense().tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 2.0]]
    """
    place = _target(target)
    if work is None and is_url(place):
        raise OptionError(Problem("work", "a target in an object store needs the URL of a work folder; pass work="))
    options: dict[str, Any] = {
        "duplicates": duplicates,
        "bad": bad,
        "dtype": dtype,
        "attributes": attributes,
        "map": map,
        "onto": onto,
    }
    options |= {"fill_value": fill_value, "overwrite": overwrite, "limits": limits, "memory": memory}
    named = {"columns": columns, "count": count, "key": key, "filters": filters, "again": work is not None}
    storage = Storage(compression, chunks, shards)
    options["replaces"] = replaces = replaced(place, onto, overwrite)
    with contextlib.ExitStack() as ending:
        if work is None:
            if replaces is not None:
                folder = ending.enter_context(scratch(place))
                place = f"{folder}/target"
            _refuse_present(place, overwrite)
            made = _planned(None, (source, named), place, shape, format, storage, client, **options)
            if client is None and (found := running.at_once(*made)) is not None:
                tensor, skipped = found
                if progress is not None:
                    progress("write", 0, 1)
                rest: dict[str, Any] = asdict(storage) | {"overwrite": overwrite, "limits": limits}
                write(place, tensor, kind="zarr", **rest)
                if progress is not None:
                    progress("write", 1, 1)
                return skipped
            if replaces is None:
                folder = ending.enter_context(scratch(place))
            ending.enter_context(store_at(folder).held())
            _clear(place, overwrite)
        else:
            folder = _folder(work)
            place = place if replaces is None else beside(place, folder)
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
        return _end(begun)


def _folder(work: str | os.PathLike[str]) -> str:
    """The address of a work, as other processes understand it."""
    place = os.fspath(work)
    return place if is_url(place) else os.path.abspath(place)


def _here(client: Any) -> bool:
    """Whether the steps run in this process."""
    return isinstance(client, ThreadPoolExecutor | None)


def _planned(
    kept: Plan | None,
    given: tuple[Any, Mapping[str, Any]],
    target: str,
    shape: int | Sequence[int | None] | None,
    format: FormatLike | None,
    storage: Storage,
    client: Any,
    *,
    onto: Place | None = None,
    known: Mapping[str, Any] | None = None,
    memory: int | None = None,
    fill_value: Any = None,
    **options: Any,
) -> tuple[Plan, Source]:
    """The plan of a build, and its source. kept: the plan that a folder has. given: the source, and what names its
    chunks. known: what describes the tensor at `onto`, where the target has taken its place.
    """
    storage.refuse("a build", but=("compression", "chunks", "shards"), compressions=CODECS)
    threads, limit = running.workers(client) if running.is_dask(client) else (None, None)
    share = memory if memory is not None or limit is None else int(limit * _SHARE) // (threads or 1)
    source, named = given
    dtype, casts = cast_types(options.pop("dtype", None), named["columns"])
    named = {**named, "casts": casts}
    options["dtype"] = dtype
    used = None if client is None else _WORKER // (threads or 1)
    rest = {"target": target, "storage": asdict(storage), "threads": None if _here(client) else 1, **options}
    limits = options.get("limits", DEFAULT_LIMITS)
    old = None if onto is None else reading.open(absolute(onto), limits=limits)
    if old is not None:
        rest["descriptor_attributes"] = dict(old.descriptor_attributes)
        rest["attributes"] = options.get("attributes") or dict(old.attributes)
        if format is None:
            format, map = old.format, options.get("map")
            rest["map"] = str(old.map) if map is None and old.map is not None else map
    if format is None:
        raise OptionError(Problem("format", "expected levels, such as 'CSR'; only with onto= is it known"))
    sizes = _sizes(shape, old, named["columns"])
    entries: Source
    if None in sizes or old is not None:
        value = 8 if dtype is None else checked_type(dtype).itemsize
        free = resident() if used is None else used
        pointers = 0.0 if old is None else pointers_of(old.stored._source)
        if kept is not None:
            rows = kept.rows
        else:
            rows = planning.rows_within(share, len(sizes), 8, value, used=free, pointers=pointers)
        entries = source_of(source, len(sizes), rows, **named, merged=old is not None)
        if onto is not None:
            if known is None:
                first = Tensors([absolute(onto)], rows, limits=asdict(limits), merged=True)
            else:
                first = remade_tensors(known)
            entries = Onto(first, entries)
        known_sizes, open = sized(entries, sizes)
        wanted = planned(known_sizes, format, rows=rows, open=open, **rest)
    else:
        assert shape is not None
        within = {"rows": kept.rows} if kept is not None else {"memory": share}
        wanted = planned(shape, format, used=used, **within, **rest)  # type: ignore[arg-type]
        entries = source_of(source, len(wanted.shape), wanted.rows, **named)
    _refuse_own(entries, target)
    structure = None
    if isinstance(entries, Tensors | Onto):
        its_fill, structure = entries.agreed(wanted.shape)
        fill_value = its_fill if fill_value is None else fill_value
    if isinstance(entries, Tensors) and (leading := entries.first) is not None:
        attributes = wanted.attributes or dict(leading.attributes)
        wanted = replace(wanted, attributes=attributes, descriptor_attributes=dict(leading.descriptor_attributes))
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


def _sizes(
    shape: int | Sequence[int | None] | None, old: Tensor | None, columns: Sequence[str | None] | None
) -> list[int | None]:
    """The sizes of the dimensions, None where files tell them. Raises OptionError where nothing tells their number."""
    if shape is not None:
        return list(shape if isinstance(shape, Sequence) else checked_sizes(shape))
    if old is None and columns is None:
        raise OptionError(Problem("shape", "expected the sizes of the dimensions; only Parquet files tell them"))
    return [None] * (old.ndim if old is not None else len(columns or ()) - 1)


def _refuse_own(source: Source, target: str) -> None:
    """Raise OptionError where the target is a store that the build reads."""
    told = source.described()
    places = [*(told["places"] if told.get("kind") == "tensors" else ()), *told.get("onto", {}).get("places", ())]
    if target in [store_of(place) for place in places]:
        raise OptionError(Problem(target, "is read by the build; build to another target"))


def _resumed(
    folder: str, given: tuple[Any, Mapping[str, Any]], target: str, *options: Any, **more: Any
) -> tuple[Plan, Source]:
    """The plan of the build in a folder, begun or gone on with, and its source. Precondition: the folder is held."""
    kept, known = None, None
    with contextlib.suppress(PathMissingError):
        kept, digest = stored_plan(folder)
        if kept.replaces is not None and Work(folder, digest).done("commit"):
            known = kept.source.get("onto")
    made = _planned(kept, given, target, *options, known=known, **more)
    if kept is None:
        _clear(target, made[0].overwrite if made[0].replaces is None else "file")
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


def store_of(place: str) -> str:
    """The URL or real path of the store of a tensor."""
    path, _ = split_path(place)
    return path.rstrip("/") if is_url(path) else os.path.realpath(path)


def replaced(target: str, onto: Place | None, overwrite: Overwrite) -> str | None:
    """The target, where it takes the place of the tensor onto which is built. Raises OptionError, PathExistsError."""
    place = absolute(onto) if onto is not None else None
    if not isinstance(place, str) or store_of(place) != target.rstrip("/"):
        return None
    if is_url(target):
        what = "a tensor in an object store is not exchanged at once; build to another URL, then remove this one"
        raise OptionError(Problem(target, what))
    if split_path(place)[1] is not None:
        raise OptionError(Problem(place, "is a group of the target, which is built whole; build to another target"))
    _refuse_present(target, overwrite or True)
    return target


def beside(target: str, folder: str) -> str:
    """Where a build with this work folder writes what is to take the place of a target."""
    head, name = os.path.split(target)
    return os.path.join(head, f".{name}.{hashlib.sha256(folder.encode()).hexdigest()[:8]}.grown")


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


def _end(work: Work) -> BadRows:
    """Remove what a build that is done needs no longer. The plan stays, so that another call finds it done.

    Returns the rows that were left out. Raises ContainerError where the target is another one by now.
    """
    from .target import hold_done, take_place

    take_place(work)
    hold_done(work)
    for stage in (*running.LABELS, *running.STAGES, "index", "spans", "source"):
        if stage != "commit":
            work.store.delete(stage)
    work.store.sweep()
    return keep_all(work)
