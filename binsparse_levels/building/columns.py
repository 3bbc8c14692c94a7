"""Columns of tables (pandas, polars, pyarrow, duckdb and others) as numpy arrays, read by Arrow's C stream.

Labels become coordinates in order of appearance. `tensors/labels` stores them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np

from .. import parallel
from ..arrays import Array
from ..errors import ArrayError, ContainerError, LimitError, OptionError, Problem, check_choice, did_you_mean, needing
from ..limits import INT64_MAX
from ..tensors.labels import TEXT, TIMES, Column, Labels, in_stored_unit, stored_type
from ..thresholds import THRESHOLDS

Nulls: TypeAlias = Literal["error", "drop"]

_LABEL_FACTOR = 3  # memory of labels while they are looked up and written, relative to their bytes


@cache
def arrow() -> Any:
    """The module pyarrow. Raises PackageMissingError if it is not installed."""
    with needing("tables"):
        import pyarrow
    return pyarrow


@contextlib.contextmanager
def wrap_tables(place: str = "table") -> Iterator[None]:
    """A block that raises errors of Arrow and DuckDB as ArrayError, LimitError or ContainerError."""
    try:
        yield
    except Exception as error:
        library, name = type(error).__module__.partition(".")[0], type(error).__name__
        streamed = isinstance(error, OSError) and error.errno is None  # a failed query of a relation, read by Arrow
        if isinstance(error, MemoryError) or not (streamed or library in ("pyarrow", "duckdb", "_duckdb")):
            raise
        if name == "OutOfMemoryException":
            raise LimitError(Problem("memory", f"duckdb has too little: {error:.300}; pass more")) from error
        said = str(error).partition("\n\n")[0]
        if name in ("IOException", "HTTPException"):
            raise ContainerError(Problem(place, f"cannot be read or written: {said:.600}")) from error
        remedy = "cast the column, such as to int64, float64 or text, or correct the row"
        raise ArrayError(Problem(place, f"{said:.600}; {remedy}")) from error


def check_names(there: Sequence[str], names: Sequence[str]) -> None:
    """Raise OptionError for a column that a table does not have, or has twice."""
    for name in names:
        if list(there).count(name) > 1:
            raise OptionError(Problem(f"columns.{name}", "several columns have this name; rename them"))
        if name not in there:
            known = f"{did_you_mean(name, there)}the table has {', '.join(map(str, there)):.200}"
            raise OptionError(Problem(f"columns.{name}", f"no such column; {known}"))


def type_of(kind: Any, name: str) -> np.dtype[Any]:
    """The numpy type for an Arrow type of numbers. Raises ArrayError for any other type."""
    types = arrow().types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        what = f"contains {kind}, but numbers are expected; cast it in the table, such as by SQL"
        raise ArrayError(Problem(f"columns.{name}", what))
    found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return found


def numbers_of(column: Any, name: str) -> Array:
    """An Arrow column of numbers without nulls as an array. Raises ArrayError for other types."""
    if not len(column) and arrow().types.is_null(column.type):  # the type of pandas columns without rows
        return np.empty(0)
    if arrow().types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if type_of(column.type, name).kind == "b":
        return np.asarray(column.to_numpy())
    return np.from_dlpack(column.combine_chunks())  # without pandas, which to_numpy imports


def coordinates_of(column: Any, name: str) -> Array:
    """An Arrow column of integers without nulls as coordinates. Raises ArrayError for other types."""
    if not len(column):
        return np.empty(0, np.int64)
    found = numbers_of(column, name)
    if found.dtype.kind not in "iu":
        what = f"contains {column.type}, but coordinates are integers; cast it in the table, such as by SQL"
        raise ArrayError(Problem(f"columns.{name}", what))
    if found.dtype.itemsize == 8:
        check_largest(int(found.max()), name)
        found = found.view(np.int64)  # numpy has no integers for those of int64 and uint64 together
    return found


def check_largest(coordinate: int, name: str) -> None:
    """Raise ArrayError if the largest integer in a column is too large for a coordinate."""
    if coordinate >= INT64_MAX:
        what = f"contains {coordinate}, and coordinates are less than {INT64_MAX}; cast it to text, for labels"
        raise ArrayError(Problem(f"columns.{name}", what))


def has_nulls(name: str, table: str) -> ArrayError:
    """The error for a column with nulls. table: the name of a file in SQL, for a query that shows them; or empty."""
    shown = f", which SELECT * FROM {table} WHERE {quoted(name)} IS NULL shows" if table else ""
    what = f"contains nulls{shown}; fill them, or pass nulls='drop'"
    return ArrayError(Problem(f"columns.{name}", what))


def entries_of(
    table: Any,
    columns: Sequence[str | None],
    nulls: Nulls,
    place: str = "",
    *,
    coordinates: Callable[[Any, str], Array] = coordinates_of,
) -> tuple[list[Array], Array]:
    """The coordinates and the values in an Arrow table. If the last of `columns` is None, each value is 1.

    place: the name of a file in SQL, for messages. coordinates: returns those of a column. Raises ArrayError for
    columns without numbers, and for nulls.
    """
    *dims, values = columns
    if nulls == "drop":
        table = table.drop_null()
    for name in names_in(columns):
        if table.column(name).null_count:
            raise has_nulls(name, place)
    coords = parallel.each(lambda name: coordinates(table.column(name), str(name)), dims)
    return coords, np.ones(len(table), np.int64) if values is None else numbers_of(table.column(values), values)


def names_in(columns: Sequence[str | None]) -> list[str]:
    """The names of the columns that are read."""
    return [x for x in columns if x is not None]


def quoted(name: str) -> str:
    """A name as SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def is_table(given: Any) -> bool:
    """Return True if `_stream` can read the columns of an object."""
    return any(hasattr(given, name) for name in ("__arrow_c_stream__", "collect_schema", "scanner", "to_reader"))


def _stream(table: Any, names: Sequence[str]) -> Any:
    """An object with Arrow's C stream: the table itself, columns of a polars frame, or a pyarrow reader."""
    if hasattr(table, "collect_schema"):  # of polars, whose other columns may have types that Arrow does not know
        check_names(table.collect_schema().names(), names)
        return table.lazy().select(list(names)).collect()
    if hasattr(table, "__arrow_c_stream__"):
        return table
    if hasattr(table, "scanner"):
        check_names(table.schema.names, names)
        table = table.scanner(columns=list(names))
    return table.to_reader()


class TableReader:
    """Reads tables as coordinates and values, and numbers the labels of dimensions in order of appearance.

    A dimension has labels if all are given in `labels`, or if its column in the first table contains no integers.

    values: None gives each row the value 1.
    """

    def __init__(
        self,
        dims: Sequence[str],
        values: str | None,
        labels: Mapping[str, Any] | None = None,
        nulls: Nulls = "error",
    ) -> None:
        check_choice("nulls", nulls, Nulls)
        if isinstance(dims, str):
            raise OptionError(Problem("dims", f"expected a list of names, got {dims!r:.40}; pass [{dims!r:.40}]"))
        given = labels or {}
        self._columns, self._names = [*dims, values], names_in([*dims, values])
        if len(set(self._names)) != len(self._names):
            raise OptionError(Problem("dims", f"expected the names of different columns, got {self._names!s:.60}"))
        for name in given:
            if name not in dims:
                raise OptionError(Problem("labels", f"{name!r:.40} is none of the dimensions {', '.join(dims):.200}"))
        self.dims, self.values, self._nulls = tuple(dims), values, nulls
        known = {name: _different(labels, name) for name, labels in given.items()}
        self._numbers = {name: _Coordinates(name, known.get(name)) for name in dims}

    @property
    def nbytes(self) -> int:
        """The bytes for labels that are given: they, their index, and a copy that is written."""
        return sum(_LABEL_FACTOR * one.known.nbytes for one in self._numbers.values() if one.known is not None)

    def chunks(self, table: Any) -> Iterator[tuple[list[Array], Array]]:
        """The coordinates and the values of a table, many rows at a time. Raises ArrayError, OptionError."""
        with wrap_tables():
            for part in _parts(table, self._names):
                yield entries_of(
                    part, self._columns, self._nulls, coordinates=lambda x, name: self._numbers[name].of(x)
                )

    def renumbered(self, coords: Sequence[Array], labels: Labels | None) -> list[Array]:
        """The coordinates of entries of a tensor with these labels. Raises ArrayError."""
        there = zip(self._numbers.values(), labelled(coords, labels), strict=True)
        return [numbers.of(arrow().chunked_array([column])) for numbers, column in there]

    def ascend(self) -> dict[int, Array]:
        """Number the labels that have appeared in ascending order. Returns the new numbers of changed dimensions."""
        ranks = ((k, one.ascend()) for k, one in enumerate(self._numbers.values()))
        return {k: rank for k, rank in ranks if rank is not None}

    def sizes(self, ends: Sequence[int]) -> list[int]:
        """The size of each dimension: the number of its labels, or its item of `ends` if it has no labels."""
        known = [one.labels() for one in self._numbers.values()]
        return [end if labels is None else len(labels) for labels, end in zip(known, ends, strict=True)]

    def labels(self, sizes: Sequence[int]) -> Labels:
        """The labels that have appeared. Raises ArrayError if a dimension has more than its size."""
        found = {name: one.labels() for name, one in self._numbers.items()}
        for (name, column), size in zip(found.items(), sizes, strict=True):
            if column is not None and len(column) > size:
                what = f"{len(column)} labels for {size} coordinates; pass a larger shape, or fewer labels"
                raise ArrayError(Problem(f"labels.{name}", what))
        return Labels(self.dims, {k: x for k, x in found.items() if x is not None}, self.values or "value")


def _different(labels: Any, name: str) -> Any:
    """The labels of a caller, in their plain type. Raises ArrayError if some are equal or null."""
    with wrap_tables(f"labels.{name}"):
        listed = arrow().chunked_array([arrow().array(in_stored_unit(labels))])
        made = listed.cast(plain_type(listed.type, f"labels.{name}")).combine_chunks()
    if made.null_count or len(made.unique()) != len(made):
        raise ArrayError(Problem(f"labels.{name}", "expected different labels, and no nulls"))
    return made


class _Coordinates:
    """The coordinates of one dimension. known: the labels, an Arrow array; None for a dimension without labels."""

    def __init__(self, name: str, known: Any) -> None:
        self.name, self.known = name, known
        self._path, self._given, self._seen = f"columns.{name}", known is not None, False
        self._categories = False  # True if the column had categories, whose order is kept
        self._empty: Any = None  # labels of the type of a column without rows, which count if no column has rows

    def labels(self) -> Column | None:
        """The labels that have appeared; None for a dimension without labels."""
        found = self.known if self.known is not None or self._seen else self._empty
        return None if found is None else column_of(found)

    def ascend(self) -> Array | None:
        """Number labels in ascending order, unless they are given or categories. Returns new numbers if any differ."""
        from pyarrow import compute

        if self.known is None or self._given or self._categories:
            return None
        order: Array = compute.sort_indices(self.known).to_numpy().astype(np.int64)
        if (order[1:] > order[:-1]).all():
            return None
        self.known = self.known.take(order)
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        return ranks

    def of(self, column: Any) -> Array:
        """The coordinates of a column without nulls. Raises ArrayError."""
        types = arrow().types
        is_coded = types.is_dictionary(column.type) and column.num_chunks  # Arrow cannot combine zero dictionaries
        if not len(column) and not is_coded:
            plain = any(known(column.type) for known in (types.is_integer, types.is_floating, types.is_null))
            self._empty = None if plain else arrow().array([], plain_type(column.type, self._path))
            return np.empty(0, np.int64)
        first, self._seen = not self._seen, True
        if self.known is None:
            if types.is_integer(column.type):
                return coordinates_of(column, self.name)
            if types.is_floating(column.type):  # the type of pandas integers with nulls
                raise no_label(column.type, self._path)
            if not first:
                raise ArrayError(Problem(self._path, f"contains {column.type} where integers were before; cast one"))
        plain = plain_type(column.type, self._path)
        whole = (column if is_coded else column.cast(plain)).combine_chunks()
        coded = whole if is_coded else whole.dictionary_encode()
        there, codes = coded.dictionary.cast(plain), coded.indices.cast(arrow().int32())
        if self.known is None:
            self._categories, self.known = types.is_dictionary(column.type), there[:0]
        there = _in_unit(there, self.known.type)
        if self.known.type != there.type:
            what = f"contains {there.type}, but its labels are {self.known.type}; cast one"
            raise ArrayError(Problem(self._path, what))
        join = arrow().DictionaryArray.from_arrays
        parts = arrow().chunked_array([join(codes[:0], self.known), join(codes, there)])
        numbered, before = parts.unify_dictionaries().chunk(1), len(self.known)  # the known labels are the first
        if self._given and len(numbered.dictionary) > before:
            what = f"{str(numbered.dictionary[before])!r:.40} is not one of the given labels; add it to labels="
            raise ArrayError(Problem(self._path, what))
        self.known = numbered.dictionary
        found: Array = numbered.indices.to_numpy(zero_copy_only=False)
        return found


def no_label(kind: Any, path: str) -> ArrayError:
    """The error for a column of floats, which are neither coordinates nor labels."""
    return ArrayError(
        Problem(path, f"contains {kind}; cast it to integers, or to text for labels, such as by SQL, or pass labels=")
    )


def _in_unit(labels: Any, kind: Any) -> Any:
    """Times cast to another type of times, and integers to another type of integers, if that loses nothing."""
    pa, types = arrow(), (labels.type, kind)
    times = all(map(pa.types.is_temporal, types)) and len({getattr(type, "tz", None) for type in types}) == 1
    if times or all(map(pa.types.is_integer, types)):
        with contextlib.suppress(pa.ArrowInvalid):
            if (cast := labels.cast(kind)).cast(labels.type).equals(labels):
                return cast
    return labels


def plain_type(kind: Any, path: str) -> Any:
    """The Arrow type in which labels of a type are stored. Raises ArrayError for types that cannot be stored."""
    pa, type = arrow(), label_type(kind, path)
    if type == TEXT:
        return pa.large_string()
    time = TIMES.fullmatch(type)
    if not time:
        return pa.from_numpy_dtype(type)
    return pa.date32() if time[1] == "D" else pa.timestamp(*time.groups())


def label_type(kind: Any, path: str) -> str:
    """The type of stored labels, such as `text`, for an Arrow type. Raises ArrayError for types that have none."""
    types = arrow().types
    if types.is_dictionary(kind):
        return label_type(kind.value_type, path)
    if types.is_string(kind) or types.is_string_view(kind) or types.is_large_string(kind) or types.is_decimal(kind):
        return TEXT
    if types.is_date(kind):
        return "datetime64[D]"
    if types.is_timestamp(kind):
        return f"datetime64[{kind.unit}{f', {kind.tz}' if kind.tz else ''}]"
    if not any(fits(kind) for fits in (types.is_integer, types.is_boolean, types.is_float32, types.is_float64)):
        raise ArrayError(Problem(path, f"labels of type {kind} cannot be stored; cast them to text"))
    return str(np.dtype(kind.to_pandas_dtype()))


def _parts(table: Any, names: Sequence[str]) -> Iterator[Any]:
    """The columns of these names as Arrow tables of a million rows or more."""
    pa = arrow()
    with pa.RecordBatchReader.from_stream(_stream(table, names)) as reader:
        check_names(reader.schema.names, names)
        schema = pa.schema([reader.schema.field(name) for name in names])
        pending: list[Any] = []
        rows = 0
        for batch in reader:
            rows += len(batch)
            pending.append(batch.select(list(names)))
            if sum(map(len, pending)) >= THRESHOLDS.labelled_rows:
                yield _plain(pa.Table.from_batches(pending))
                pending = []
        if sum(map(len, pending)) or not rows:  # a table without rows has types
            yield _plain(pa.Table.from_batches(pending, schema))


def _plain(table: Any) -> Any:
    """The table with large strings for string views, which Arrow cannot filter, and no nulls among categories."""
    types = arrow().types
    for k, column in enumerate(table.columns):
        if types.is_dictionary(column.type) and any(chunk.dictionary.null_count for chunk in column.chunks):
            column = column.cast(column.type.value_type)
        if types.is_string_view(column.type):
            column = column.cast(arrow().large_string())
        table = table.set_column(k, table.field(k).with_type(column.type), column)
    return table


def column_of(labels: Any) -> Column:
    """The stored form of labels, an Arrow array in its plain type."""
    if (type := label_type(labels.type, "labels")) == TEXT:
        _, ends, raw = labels.buffers()
        every = np.frombuffer(ends, np.int64) if len(labels) else np.zeros(1, np.int64)
        offsets = every[labels.offset : labels.offset + len(labels) + 1]
        items = np.frombuffer(raw or b"", np.uint8)[offsets[0] : offsets[-1]]
        return Column(TEXT, items, offsets - offsets[0])
    return Column(type, labels.to_numpy(zero_copy_only=False).view(stored_type(type)))


def arrow_of(column: Column) -> Any:
    """Stored labels as an Arrow array. Raises ArrayError for damaged ones."""
    pa, loaded = arrow(), column.loaded()
    if loaded.offsets is None:
        time = TIMES.fullmatch(column.type)
        return pa.array(loaded.array(), pa.timestamp(*time.groups()) if time and time[1] != "D" else None)
    items, offsets = (pa.py_buffer(np.ascontiguousarray(x[:])) for x in (loaded.items, loaded.offsets))
    return pa.LargeStringArray.from_buffers(len(loaded), offsets, items)


def labelled(coords: Sequence[Array], labels: Labels | None) -> list[Any]:
    """Coordinates as Arrow columns: categories for a dimension with labels, else integers. Raises ArrayError."""
    pa = arrow()
    columns = [pa.array(x) for x in coords]
    for k, x in enumerate(coords):
        if labels is None or labels.dims[k] not in labels.columns:
            continue
        known = arrow_of(labels.columns[labels.dims[k]])
        if x.max(initial=-1) >= len(known):
            what = f"coordinate {x.max()} has none of the {len(known)} labels; label all"
            raise ArrayError(Problem(f"labels.{labels.dims[k]}", what))
        columns[k] = pa.DictionaryArray.from_arrays(x, known, safe=False)
        if len(known.unique()) < len(known):  # coordinates with equal labels become one category
            columns[k] = columns[k].dictionary_decode().dictionary_encode()
    return columns
