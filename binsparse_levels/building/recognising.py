"""Sources as callers pass them: numbered chunks, a table that DuckDB reads, or a stream that is read once."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from ..arrays import Array
from ..containers.base import is_url
from ..containers.objects.bucket import map_concurrently
from ..errors import ArrayError, OptionError, Problem
from ..formats.format import coordinates
from ..io import reading
from ..io.fitting import joined_labels
from ..io.kinds import name_of
from ..limits import INT64_MAX, as_integer
from ..progress import Progress
from ..tensors.foreign import qualified
from ..tensors.labels import Labels
from ..tensors.late_imports import Origin
from ..tensors.packing import pack
from ..tensors.tensor import Tensor, inside, remade
from .columns import TableReader, is_table, wrap_tables
from .plan import Chunk, Plan, Source, check_proportion, refuse_scalar
from .request import Request
from .sources import Blocks, Function, Tensors, blocks, entries_in_parts, pair_of, spilled, state_of
from .tables import MIN_DUCKDB_BYTES, Parquet, Table, dask_chunks, is_relation, needs_sql, parquet_files
from .work import scratch

_ARROW_BYTES = 3 * 2**24  # of pyarrow, and of a row group that it reads


Record: TypeAlias = Mapping[str, Any]
_Found: TypeAlias = tuple[Plan, Source, Record]

# Sources of `build`


@dataclass(frozen=True)
class Numbered:
    """A source in numbered chunks. source: differs for any other one. places: paths that workers read.

    open: returns the source for a plan.
    """

    source: Any
    open: Callable[[Plan], Source] = field(compare=False)
    places: Sequence[str] = field(default=(), compare=False)

    def entries(self, request: Request, folder: str, kept: Record, report: Progress | None) -> _Found:
        """The plan, the entries, and the record that a repeated call needs besides the rows of the plan.

        folder: of the work. kept: the record of an earlier call; empty if there is none.
        """
        if request.open_ended:
            raise OptionError(Problem("shape", "expected the sizes of the dimensions; only tables contain them"))
        plan = request.plan(request.shape, rows=kept.get("rows"), extra=0 if request.dims is None else _ARROW_BYTES)
        refuse_scalar(plan)
        entries = self.open(plan)
        single = isinstance(entries, Tensors | Parquet) and len(entries) < 2  # other chunks may exceed the memory
        plan = replace(plan.typed(plan.dtype or entries.value_type()), sorted=single)
        if isinstance(entries, Tensors) and entries.tensors:
            entries.check(plan.shape)
            plan = plan.like(entries.tensors[0])
        return plan, entries, {}


@dataclass(frozen=True)
class Rows:
    """A table whose labels this process numbers by DuckDB. It writes rows and labels into the work folder."""

    source: Any
    rows: Any = field(compare=False)
    places: Sequence[str] = field(default=(), compare=False)

    def entries(self, request: Request, folder: str, kept: Record, report: Progress | None) -> _Found:
        if kept:
            plan = request.plan(kept["shape"], rows=kept["rows"]).typed(np.dtype(kept["dtype"]))
            plan = replace(plan, labels=tuple(kept["labels"]), sorted=kept["sorted"])
            return plan, Blocks(folder, plan.raw, kept["blocks"]), kept
        share = max((request.available - request.used) // 2, MIN_DUCKDB_BYTES)
        with wrap_tables(), contextlib.ExitStack() as ending:
            spare = ending.enter_context(scratch(folder)) if is_url(folder) else os.path.join(folder, "spare")
            table = Table(self.places or self.rows, request.columns, request.nulls, memory=share, folder=spare)
            ending.enter_context(contextlib.closing(table))
            sizes = request.sizes(table.sizes())
            plan = replace(request.plan(sizes, here=share), labels=table.labels)
            if request.open_ended:
                check_proportion(plan, table.rows)
            plan = plan.typed(table.dtype)
            table.keep_labels(folder)
            entries, in_order = spilled(folder, plan.raw, blocks(plan.raw, table.chunks()), report)
        plan = replace(plan, sorted=in_order and plan.map is None)
        record = {"shape": plan.shape, "labels": plan.labels, "sorted": plan.sorted, "blocks": len(entries)}
        return plan, entries, {**record, "dtype": plan.column_types[-1].str}


def source_of(source: Any, request: Request, count: int | None) -> Numbered | Rows:
    """Recognise the source of a build. Raises OptionError for unsuitable options, ArrayError for a wrong number of
    columns.
    """
    if callable(source):
        number = as_integer(count)
        if number is None or number < 0 or request.dims is not None:
            raise OptionError(Problem("count", f"a function needs a number of chunks, got count={count!r:.40}"))
        name = getattr(source, "__qualname__", type(source).__name__)
        return Numbered((name, number), lambda plan: Function(source, number, len(plan.shape)))
    if count is not None:
        raise OptionError(Problem("count", "only a function needs a number of chunks; leave it out"))
    in_memory = is_relation(source) or hasattr(source, "to_delayed")
    columns = request.columns
    if request.dims is None:
        if in_memory:
            raise OptionError(Problem("columns", "name the columns of the coordinates, and of the values last"))
        places = source if isinstance(source, list | tuple) else [source]
        named = [name_of(x) for x in places]

        def opened(plan: Plan) -> Tensors:
            tensors = [reading.opened(place, plan.limits)[0] for place in places]
            return Tensors(list(zip(named, tensors, strict=True)), plan.rows)

        return Numbered(named, opened, named)
    ndim = len(columns) - 1 if request.shape is None else len(request.shape)
    if None in columns[:-1] or not 2 <= len(columns) == ndim + 1:
        what = f"{len(columns)} names for {ndim} dimensions; name their columns, and that of the values last"
        raise ArrayError(Problem("columns", what))
    if is_relation(source):
        return Rows(source.columns, source)
    if in_memory:
        identity = list(source.columns), source.npartitions
        return Numbered(identity, lambda plan: dask_chunks(source, columns, request.nulls))
    several = isinstance(source, Iterable) and not isinstance(source, str) and not is_table(source)
    places = list(source) if several else [source]
    if strange := [x for x in places if not isinstance(x, str | os.PathLike)]:
        what = f"expected Parquet files, a relation of duckdb or a Dask dataframe, got {qualified(strange[0])}"
        raise OptionError(Problem("source", f"{what}; pass tables in memory to write_from"))
    files = parquet_files(places)
    states = list(zip(files, map_concurrently(state_of, files), strict=True))
    if request.open_ended or needs_sql(files, columns):
        return Rows(states, source, files)
    return Numbered(states, lambda plan: Parquet(files, columns, plan.rows, request.nulls), files)


# Streams of `write_from` and `convert`


@dataclass
class Entries:
    """A stream of entries, read once, of a known plan. origins: the files of opened tensors among them."""

    plan: Plan
    given: Any
    labels: Labels | None = None
    origins: set[Origin | None] = field(default_factory=set)

    def chunks(self) -> Iterator[Chunk]:
        """The chunks. Then the plan has the type of the values."""
        return iter(self.given)

    def finished(self) -> tuple[Plan, Labels | None, Mapping[int, Array]]:
        """The final plan, the labels, and the new coordinates by dimension. Precondition: all chunks are read."""
        return self.plan, self.labels, {}


class Stream(Entries):
    """Pairs of coordinates and values, tables and tensors, as the caller gives them."""

    def __init__(self, given: Any, request: Request) -> None:
        dims = request.dims
        if request.shape is None and dims is None:
            raise OptionError(Problem("shape", "None needs names of the dimensions; pass dims=, or a size for each"))
        self._request = request
        self._rows: TableReader | None = None
        self._first: Tensor | None = None
        self._slabs: list[tuple[range, Tensor]] = []  # those that a range places: their shapes and labels, no entries
        self._axis: int | None = None  # along which
        self._count = extra = 0
        if dims is None and (request.values is not None or request.labels is not None):
            what = "name the columns of the coordinates and of the values: dims= and values="
            raise OptionError(Problem("dims", what))
        if dims is not None:
            self._rows = TableReader(dims, request.values, request.labels, request.nulls)
            extra = self._rows.nbytes
            if request.shape is not None and len(dims) != len(request.shape):
                raise OptionError(Problem("dims", f"{len(dims)} names for {len(request.shape)} dimensions"))
        sizes = request.shape
        if request.open_ended:  # keep the coordinates unchanged until all sizes are known
            sizes = request.sizes([INT64_MAX] * len(sizes if dims is None else dims))
            request = replace(request, format=coordinates(len(sizes)), map=None)
        plan = request.plan(sizes, extra=extra)
        super().__init__(plan, given)
        self._ends = [0] * len(plan.shape)

    def chunks(self) -> Iterator[Chunk]:
        """The chunks. The first that has entries determines the type of the values."""
        stream, first = self._counted(), list[Chunk]()
        while not (first and len(first[-1][1])) and (chunk := next(stream, None)) is not None:
            first.append(chunk)
        if not first and self.plan.dtype is None:
            raise OptionError(Problem("dtype", "the type of the values is unknown without chunks; pass dtype="))
        self.plan = self.plan.typed(first[-1][1].dtype if first else np.dtype(float))
        return itertools.chain(first, stream)

    def finished(self) -> tuple[Plan, Labels | None, Mapping[int, Array]]:
        """Labels become ascending, so that ranges of them can be selected."""
        plan, rows, first = self.plan, self._rows, self._first
        own = None if first is None else inside(first).metadata.labels  # names alone: labels need the names of columns
        own = self._joined_labels() if self._slabs else own
        if self._request.open_ended:
            sizes = self._request.sizes(self._ends if rows is None else rows.sizes(self._ends))
            plan = self._request.plan(sizes, rows=plan.rows).typed(plan.column_types[-1])
            check_proportion(plan, self._count)
        ranks, known = ({}, own) if rows is None else (rows.ascend(), rows.labels(plan.shape))
        return plan if first is None else plan.described(first), known, ranks

    def _counted(self) -> Iterator[Chunk]:
        for coords, values in self._arrays():
            if len(values):
                self._ends = [max(end, int(x.max()) + 1) for end, x in zip(self._ends, coords, strict=True)]
                self._count += len(values)
            yield coords, values

    def _arrays(self) -> Iterator[Chunk]:
        """The chunks as arrays. Raises OptionError, ArrayError."""
        given, rows = self.given, self._rows
        whole = is_table(given) or isinstance(given, Tensor)
        if not whole and (isinstance(given, str | bytes) or not isinstance(given, Iterable)):
            what = f"expected an iterable of pairs of coordinates and values, or a table, got {qualified(given)}"
            raise OptionError(Problem("chunks", what))
        for chunk in [given] if whole else given:
            part, tensor = chunk if _is_slab(chunk) else (None, chunk)
            if isinstance(tensor, Tensor):
                self._first = tensor if self._first is None else self._first
                self.origins.add(inside(tensor).backing.plan.origin)
                yield from self._of_tensor(tensor, part)
            elif is_table(chunk):
                if rows is None:
                    raise OptionError(Problem("dims", "a table needs the names of its columns; pass dims= and values="))
                yield from rows.chunks(chunk)
            else:
                yield pair_of(chunk, len(self.plan.shape))

    def _of_tensor(self, tensor: Tensor, part: range | None) -> Iterator[Chunk]:
        """The entries of a tensor that is merged with others. part: its coordinates, for a slab. Raises ArrayError."""
        plan, rows, known = self.plan, self._rows, inside(tensor)
        if tensor.ndim != len(plan.shape):
            what = f"a tensor has {tensor.ndim} dimensions, and {len(plan.shape)} are written"
            raise ArrayError(Problem("chunks", what))
        fill = np.zeros((), tensor.dtype) if plan.fill_value is None else plan.fill_value
        if not np.array_equal(known.pad, fill, equal_nan=tensor.dtype.kind in "fcmM"):
            what = f"a tensor has the fill value {known.pad}, and another is written; pass fill_value= as it has"
            raise ArrayError(Problem("fill_value", what))
        labels = known.metadata.labels
        if rows is None and part is None and labels is not None and labels.columns:
            what = "a tensor has labels; name its dimensions and values by dims= and values="
            raise OptionError(Problem("dims", what))
        axis = 0
        if part is not None:
            axis = self._placed(tensor, part)
            if rows is not None and labels is not None and labels.dims[axis] in labels.columns:
                part = None  # its labels place it
        empty = [np.empty(0, np.int64)] * tensor.ndim, np.empty(0, tensor.dtype)  # adds the labels without entries too
        for coords, values in itertools.chain([empty], entries_in_parts(tensor, plan.rows)):
            if part is not None:
                coords = [*coords]
                coords[axis] = part.start + part.step * coords[axis].astype(np.int64)
            yield coords if rows is None else rows.renumbered(coords, labels), values

    def _placed(self, slab: Tensor, part: range) -> int:
        """Keep the shape and the labels of a slab, and return its dimension: the one in which it is smaller.

        Raises ArrayError if it is none, or one along another dimension than those before.
        """
        smaller = [k for k, (size, whole) in enumerate(zip(slab.shape, self.plan.shape, strict=True)) if size != whole]
        fitting = smaller or [k for k, size in enumerate(slab.shape) if size == len(part)]
        axis = fitting[0] if fitting else 0
        if len(smaller) > 1 or slab.shape[axis] != len(part) or (smaller and self._axis not in (None, axis)):
            what = f"{part} and a tensor of the shape {slab.shape} are no slab of the shape that is written"
            raise ArrayError(Problem("chunks", f"{what}; pass the sizes of all other dimensions, and pairs of `slabs`"))
        self._axis = axis if smaller else self._axis
        self._ends[axis] = max(self._ends[axis], part.stop)
        labels = inside(slab).metadata.labels
        blank = pack([()] * slab.ndim, (), slab.shape, coordinates(slab.ndim))
        self._slabs.append((part, remade(blank, labels=labels)))
        return axis

    def _joined_labels(self) -> Labels | None:
        """The labels of all slabs. Raises ArrayError for labels of slabs that do not follow each other."""
        axis, placed = self._axis or 0, sorted(self._slabs, key=lambda slab: (slab[0].start, slab[0].stop))
        parts, slabs = [part for part, _ in placed], [slab for _, slab in placed]
        gaps = [b for a, b in itertools.pairwise([range(0), *parts]) if b.start != a.stop or b.step != 1]
        if gaps and any(slab.labels(axis) is not None for slab in slabs):
            what = f"the slab {gaps[0]} does not follow another, so coordinates lack labels; pass dims= and labels="
            raise ArrayError(Problem("chunks", what))
        return joined_labels(slabs, [str(part) for part in parts], axis)


def _is_slab(chunk: Any) -> bool:
    """Return True for coordinates along a dimension, and a tensor of these, as `Tensor.slabs` yields them."""
    return isinstance(chunk, tuple) and len(chunk) == 2 and isinstance(chunk[0], range) and isinstance(chunk[1], Tensor)
