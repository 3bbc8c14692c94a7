"""Columns of tables as numpy arrays, by Arrow's C stream: of pandas, polars, pyarrow, duckdb and others.

Labels become coordinates in order of appearance, and are kept as `tensors/labels` stores them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import parallel
from ..arrays import Array
from ..containers.base import touching
from ..errors import ArrayError, OptionError, Problem
from ..io.files.text_tables import warn_of_end
from ..tensors.labels import TEXT, TIMES, Column, Labels
from .bad_rows import as_nulls, find
from .columns import arrow, arrow_type, cast_to, check_names, coordinates_of, flags_of, numbers_of, refuse_nulls

_AT_ONCE = 2**20  # rows whose labels are numbered at once


def is_table(given: Any) -> bool:
    """Whether an object gives its columns by Arrow's C stream, or is asked for what does, as `_stream` asks."""
    return any(hasattr(given, name) for name in ("__arrow_c_stream__", "collect_schema", "scanner", "to_reader"))


def _stream(table: Any, names: Sequence[str]) -> Any:
    """What has Arrow's C stream: of a LazyFrame of polars its result, of a dataset of pyarrow its batches."""
    if hasattr(table, "__arrow_c_stream__"):
        return table
    if hasattr(table, "collect_schema"):
        check_names(table.collect_schema().names(), names)
        return table.select(list(names)).collect()
    if hasattr(table, "scanner"):
        check_names(table.schema.names, names)
        table = table.scanner(columns=list(names))
    return table.to_reader()


class Rows:
    """Reads tables as coordinates and values, and numbers the labels of dimensions in order of appearance.

    A dimension has labels if its first column holds no integers, or if labels are given, which no others join.

    casts: types that columns are cast to, by name. shape: where bad rows are left out later, the sizes that tell which
    they are, so that their labels do not count; None where nulls are an error.
    """

    def __init__(
        self,
        dims: Sequence[str],
        values: str | None,
        labels: Mapping[str, Any] | None = None,
        *,
        casts: Mapping[str, str] | None = None,
        shape: Sequence[int] | None = None,
    ) -> None:
        given = labels or {}
        names = [*dims, *([] if values is None else [values])]
        if isinstance(dims, str) or len(set(names)) != len(names):
            raise OptionError(Problem("dims", f"expected the names of different columns, got {names!s:.60}"))
        for name in given:
            if name not in dims:
                raise OptionError(Problem("labels", f"{name!r:.40} is none of the dimensions {', '.join(dims):.200}"))
        self.dims, self.values = tuple(dims), values
        self._casts, self._shape = dict(casts or {}), shape
        self._numbers = [_Numbers(name, given.get(name), self._casts.get(name)) for name in dims]

    def chunks(self, table: Any) -> Iterator[tuple[list[Array], Array]]:
        """The coordinates and the values of a table, many rows at a time. Raises ArrayError, OptionError."""
        names = [*self.dims, *([] if self.values is None else [self.values])]
        for part in _parts(table, names):
            if self._shape is None:
                yield parallel.each(partial(_coordinates, part), self._numbers), self._values_in(part)
                continue
            coords: list[Array] = parallel.each(partial(_or_null, part), self._numbers)
            coords += [] if self.values is None else [flags_of(part.column(self.values))]
            good = np.ones(len(part), bool)
            if (found := find(coords, self._shape)) is not None:
                good[found.rows] = False
                part = part.filter(arrow().array(good))
            for x, mine in zip(coords, parallel.each(partial(_coordinates, part), self._numbers), strict=False):
                x[good] = mine
            values = np.zeros(len(good), self._values_in(part).dtype)
            values[good] = self._values_in(part)
            yield coords, values

    def _values_in(self, part: Any) -> Array:
        if self.values is None:
            return np.ones(len(part), np.int64)  # so that the sum of duplicates counts rows
        return numbers_of(cast_to(part.column(self.values), self._casts.get(self.values), self.values), self.values)

    def labels(self) -> Labels:
        """The labels that have appeared."""
        columns = {one.name: column_of(one.known) for one in self._numbers if one.known is not None}
        return Labels(self.dims, columns, self.values or "value")


def _coordinates(table: Any, numbers: _Numbers) -> Array:
    return numbers.of(table.column(numbers.name))


def _or_null(table: Any, numbers: _Numbers) -> Array:
    """The coordinates of a column, or of labels 0; NULL for a null."""
    column = table.column(numbers.name)
    if not numbers.labelled(column.type):
        return np.array(numbers.listed(column), np.int64)
    return as_nulls(flags_of(column))


class _Numbers:
    """The coordinates of one dimension. cast: the type that its column is cast to."""

    def __init__(self, name: str, given: Any, cast: str | None) -> None:
        self.name, self._cast = name, cast
        self.known: Any = None  # the labels, an array of Arrow's; None where the column holds coordinates
        self._path = f"columns.{name}"
        self._given = given is not None
        self._seen = False
        if self._given:
            listed = arrow().chunked_array([arrow().array(given)])
            self.known = listed.cast(self._plain(listed.type)).combine_chunks()
            if self.known.null_count or len(self.known.unique()) != len(self.known):
                raise ArrayError(Problem(f"labels.{name}", "expected different labels, and no nulls"))

    def of(self, column: Any) -> Array:
        """The coordinates of a column. Raises ArrayError."""
        pa = arrow()
        refuse_nulls(column, self._path)
        if pa.types.is_null(column.type):  # all of its rows were bad
            return np.empty(0, np.int64)
        first, self._seen = not self._seen, True
        if not self.labelled(column.type):
            return self.listed(column)
        column = cast_to(column, self._cast, self.name)
        if self.known is None and pa.types.is_floating(column.type):  # as pandas has integers with nulls
            what = f"holds {column.type}; cast it to integers, or to text for labels"
            raise ArrayError(Problem(self._path, what))
        if self.known is None and not first:
            raise ArrayError(Problem(self._path, f"holds {column.type} where integers were before; cast one"))
        plain = self._plain(column.type)
        if not len(column):
            self._join(pa.array([], plain))
            return np.empty(0, np.int64)
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        coded = coded.unify_dictionaries()
        numbers = self._join(coded.chunk(0).dictionary.cast(plain))
        codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in coded.chunks])
        return codes if numbers is None else numbers[codes]

    def labelled(self, kind: Any) -> bool:
        """Whether a column of this type of Arrow's has labels."""
        plain = arrow_type(self._cast) if self._cast else kind
        return self.known is not None or not arrow().types.is_integer(plain)

    def listed(self, column: Any) -> Array:
        """A column without labels."""
        return coordinates_of(column, self.name, cast=self._cast is not None)

    def _join(self, there: Any) -> Array | None:
        """Add labels to those that are known. Returns their coordinates; None where these are 0, 1, 2 …"""
        from pyarrow import compute

        refuse_nulls(there, self._path)
        if self.known is None:
            self.known = there
            return None
        if self.known.type != there.type:
            raise ArrayError(Problem(self._path, f"holds {there.type}, and its labels are {self.known.type}; cast one"))
        new = there.filter(compute.invert(compute.is_in(there, value_set=self.known)))
        if len(new) and self._given:
            what = f"{str(new[0])!r:.40} is none of the given labels; add it to labels="
            raise ArrayError(Problem(self._path, what))
        self.known = arrow().concat_arrays([self.known, new])
        numbers: Array = compute.index_in(there, value_set=self.known).to_numpy(zero_copy_only=False)
        return numbers

    def _plain(self, kind: Any) -> Any:
        """The type of Arrow's in which labels of a type are stored. Raises ArrayError for types that are not."""
        pa = arrow()
        types = pa.types
        if types.is_dictionary(kind):
            return self._plain(kind.value_type)
        if types.is_string(kind) or types.is_string_view(kind) or types.is_large_string(kind) or types.is_decimal(kind):
            return pa.large_string()
        if types.is_date(kind):
            return pa.date32()
        plain = types.is_integer, types.is_boolean, types.is_timestamp, types.is_float32, types.is_float64
        if not any(fits(kind) for fits in plain):
            raise ArrayError(Problem(self._path, f"labels of type {kind} are not stored; cast them to text"))
        return kind


def _parts(table: Any, names: Sequence[str]) -> Iterator[Any]:
    """The columns of these names as tables of Arrow's, of a million rows or more."""
    pa = arrow()
    with pa.RecordBatchReader.from_stream(_stream(table, names)) as reader:
        check_names(reader.schema.names, names)
        schema = pa.schema([reader.schema.field(name) for name in names])
        held: list[Any] = []
        rows = 0
        for batch in reader:
            rows += len(batch)
            held.append(batch.select(list(names)))
            if sum(map(len, held)) >= _AT_ONCE:
                yield pa.Table.from_batches(held)
                held = []
        if sum(map(len, held)) or not rows:  # a table without rows has types
            yield pa.Table.from_batches(held, schema)


def column_of(labels: Any) -> Column:
    """Labels, an array of Arrow's, as they are stored."""
    pa = arrow()
    if pa.types.is_large_string(labels.type):
        _, ends, octets = labels.buffers()
        held = np.frombuffer(ends, np.int64) if len(labels) else np.zeros(1, np.int64)
        offsets = held[labels.offset : labels.offset + len(labels) + 1]
        items = np.frombuffer(octets or b"", np.uint8)[offsets[0] : offsets[-1]]
        return Column(TEXT, items, offsets - offsets[0])
    if pa.types.is_boolean(labels.type):
        return Column("bool", labels.cast(pa.uint8()).to_numpy())
    if pa.types.is_date(labels.type):
        return Column("datetime64[D]", labels.cast(pa.int32()).to_numpy().astype(np.int64))
    if pa.types.is_timestamp(labels.type):
        zone = f", {labels.type.tz}" if labels.type.tz else ""
        return Column(f"datetime64[{labels.type.unit}{zone}]", labels.cast(pa.int64()).to_numpy())
    items = labels.to_numpy()
    return Column(str(items.dtype), items)


def arrow_of(column: Column) -> Any:
    """Stored labels as an array of Arrow's. Raises ArrayError for damaged ones."""
    pa, held = arrow(), column.loaded()
    items = np.ascontiguousarray(held.items[:])
    if held.offsets is not None:
        offsets = np.ascontiguousarray(held.offsets[:])
        return pa.LargeStringArray.from_buffers(len(held), pa.py_buffer(offsets), pa.py_buffer(items))
    made = pa.array(items)
    if column.type == "bool":
        return made.cast(pa.bool_())
    time = TIMES.fullmatch(column.type)
    if not time:
        return made
    unit, zone = time.groups()
    return made.cast(pa.int32()).cast(pa.date32()) if unit == "D" else made.cast(pa.timestamp(unit, zone))


FILES = (".parquet", ".arrow", ".feather", ".csv")  # suffixes of tables in files


def file_tables(path: str, names: Sequence[str]) -> Iterator[Any]:
    """The columns of these names of a table in a file as tables of Arrow's, a batch of rows each, in bounded memory.

    Raises ContainerError, ArrayError, OptionError.
    """
    arrow()
    with touching(path):
        yield from _tables_of(path, names)


def _tables_of(path: str, names: Sequence[str]) -> Iterator[Any]:
    from pyarrow import csv, ipc, parquet

    suffix = os.path.splitext(path)[1].lower()
    with contextlib.ExitStack() as stack:
        if suffix == ".parquet":
            file = stack.enter_context(parquet.ParquetFile(path))
            schema, made = file.schema_arrow, partial(file.iter_batches, columns=list(names))
        elif suffix == ".csv":
            file = stack.enter_context(csv.open_csv(path))
            with open(path, "rb") as raw:
                raw.seek(-1, os.SEEK_END)
                warn_of_end(raw.read(), path)
            schema, made = file.schema, partial(iter, file)
        elif suffix in FILES:
            with open(path, "rb") as raw:
                whole = raw.read(6) == b"ARROW1"
            file = stack.enter_context((ipc.open_file if whole else ipc.open_stream)(path))
            schema = file.schema
            made = partial(map, file.get_batch, range(file.num_record_batches)) if whole else partial(iter, file)
        else:
            raise OptionError(Problem(path, f"is no table; tables end with {', '.join(FILES)}"))
        check_names(schema.names, names)
        for batch in made():
            yield arrow().Table.from_batches([batch]).select(list(names))
