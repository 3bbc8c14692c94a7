"""Build a tensor that is larger than memory, by any number of processes, in a sharded Zarr store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from ..containers.base import Storage
from ..containers.replacing import Overwrite
from ..engine.tree import Duplicates
from ..errors import within_memory
from ..formats.format import FormatLike
from ..formats.index_map import MapLike
from ..limits import DEFAULT_LIMITS, Limits
from ..progress import Progress, reporter
from . import running
from .columns import Nulls
from .recognising import source_of
from .request import Request
from .work import open_work


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
    checksum: bool | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Build a tensor in a sharded Zarr store, by many processes, from any number of entries in any order.

    Parameters
    ----------
    source : object
        Parquet files (a path, a pattern, a folder, a URL, or several of these), a relation of duckdb or a Dask
        dataframe, each with `columns`; a function with `count`; or tensors at one or more places. Tensors need the
        same structure, fill value and labels. The target keeps these, and the attributes of the first tensor.
    target : str or PathLike
        A folder, or the URL of a prefix of an object store.
    shape : int or sequence of int
        Sizes of the dimensions. For Parquet files or a relation, a size or the shape may be None. The size is then the
        number of labels, or one more than the largest coordinate.
    format : str, Format or mapping
        Format of the stored tensor. Levels other than dense and sparse need all entries in memory.
    client : dask.distributed.Client or concurrent.futures.Executor, optional
        A Dask client, or an executor of `concurrent.futures`. By default this process runs one step after another.
    work : str or PathLike, optional
        A folder or URL for the objects between the steps, about three times as large as the entries. Every worker
        needs access to it. If the call fails, it can be repeated and continues where it stopped; functions and
        relations are identified by their names alone. By default it is a temporary folder next to a target that is a
        folder.
    columns : sequence of str or None, optional
        The column of the coordinates of each dimension, and last that of the values. With None as the last, each value
        is 1: pass `duplicates="sum"` to count rows. Columns of texts, booleans, dates, times or decimals are labels,
        in Parquet files and relations. This process sorts and numbers them with duckdb. They are stored in the target.
        Folders such as `year=2026` are columns too.
    count : int, optional
        The number of chunks of the function: function(k) returns the coordinates and the values of chunk k.
    duplicates : {'error', 'sum', 'first', 'last'}, default 'error'
        Treatment of repeated coordinates, in the order of the source; see `pack`. Rows with labels come in any order.
    nulls : {'error', 'drop'}, default 'error'
        "drop" leaves out rows with a null in one of the columns.
    dtype : dtype_like, optional
        The type of the values. By default it is the common type of all files or tensors, or that of the first chunk of
        a function with entries; a value that it does not represent raises ArrayError.
    fill_value : scalar, optional
        Value of the cells that are not stored.
    attributes : mapping, optional
        JSON object that is stored with the tensor.
    map : str or IndexMap, optional
        Index map through which the tensor is stored.
    memory : int, optional
        Bytes that each process may use; by default 45 % of the limit of a Dask worker, divided by its threads, or else
        1 GiB more than the process uses.
    progress : bool or callable, optional
        Called with the name of a stage, the number of finished steps, and their total. True draws a bar on standard
        error, if that is a terminal.
    overwrite : bool or 'file', default False
        True replaces an existing tensor; see `write`.
    compression : str or mapping of str to str, optional
        Compression of all arrays, or by name; see `write`.
    chunks : int or mapping of str to int, optional
        Length of chunks in items, for all arrays or by name.
    shards : int or mapping of str to int, optional
        Length of shards in items, for all arrays or by name. By default, shards grow with the array.
    checksum : bool, optional
        True also stores checksums; see `write`.
    limits : Limits, optional
        Bounds on the resources of this call.

    Raises
    ------
    ArrayError
        A coordinate is out of range or repeated, a column has nulls or no numbers.
    ContainerError
        The work folder has the work of another build; the source has changed; an object of the work is damaged; a
        worker has died.
    FormatError, LimitError, OptionError, PathExistsError
        As `write` raises them.

    See Also
    --------
    write_from : Write a stream of entries.
    from_table : Pack the rows of a table into a Tensor.

    Notes
    -----
    Each shard is written once, by one step. The target is replaced in a single step after all shards are written. In a
    bucket, its header points to the prefix of the arrays; other programs read the tensor at that prefix.

    An error of the caller's function is raised unchanged, with a note that names the chunk.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import tempfile
    >>> def chunk(k):
    ...     return [[k, 3 - k], [0, 1]], [1.0, 2.0]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bl.build(chunk, f"{folder}/a.zarr", (4, 2), "CSR", count=2)
    ...     bl.read(f"{folder}/a.zarr").to_dense().tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 2.0]]
    """
    from .target import StoreTarget  # which loads zarr

    report = reporter(progress)
    built = StoreTarget(target, overwrite, Storage(compression, chunks, shards, checksum), work)
    dims, values = (None, None) if columns is None else (columns[:-1], columns[-1] if columns else None)
    request = Request(
        format, map, duplicates, nulls, dtype, fill_value, attributes, limits, shape, dims, values, None,
        memory, running.workers_of(client),
    )  # fmt: skip
    given = source_of(source, request, count)
    with contextlib.closing(built) as written:
        kept = written.begin(request, given)
        if kept is None:
            return
        running.refuse_fork(client, [written.folder, written.target, *given.places])
        plan, entries, record = given.entries(request, written.folder, kept, report)
        plan = written.planned(plan)
        written.keep({**record, "rows": plan.rows}, request, given, entries)
        with open_work(written.folder, plan, entries, sent=not running.in_this_process(client)) as made:
            running.run(made, client, report)
            written.finish(made)
