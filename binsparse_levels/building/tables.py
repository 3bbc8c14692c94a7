"""Tables of many rows: Parquet files and Dask frames in chunks; labels numbered by DuckDB; tables in other files."""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from glob import has_magic
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array
from ..containers.base import is_url, wrap_errors
from ..containers.direct import folders_below
from ..containers.objects.bucket import Bucket, map_concurrently
from ..errors import ContainerError, OptionError, PathMissingError, Problem, needing
from ..io.files import text_tables
from ..io.texts import SEPARATORS, suffix_of
from ..limits import DEFAULT_LIMITS
from ..parallel import get_threads
from ..tensors.labels import TEXT, Column
from ..thresholds import THRESHOLDS
from .columns import (
    Nulls,
    arrow,
    check_largest,
    check_names,
    column_of,
    entries_of,
    has_nulls,
    label_type,
    names_in,
    no_label,
    plain_type,
    quoted,
    type_of,
    wrap_tables,
)
from .plan import Chunk, Source
from .sources import Function, changed, common_type, concatenated, grouped, state_of
from .work import Work

TEXTS = (".csv", ".tsv")  # may be followed by .gz
FILES = (".parquet", ".arrow", ".feather", *TEXTS)  # suffixes of tables in files
_COORDINATE, _VALUE = "^(0|-?[1-9][0-9]{0,17})$", "^-?[0-9]+$"  # integers in a CSV file
MIN_DUCKDB_BYTES = 2**26  # the least memory that DuckDB is given


class _RowRange(NamedTuple):
    """Rows of a row group of a file."""

    file: int
    group: int
    first: int
    rows: int


class Parquet(Source):
    """The rows of Parquet files with integer coordinates, at most `rows` in a chunk: row groups, or a part of one.

    columns: the names of the coordinates in order, and of the values, or None if rows are counted.
    """

    def __init__(self, files: Sequence[str], columns: Sequence[str | None], rows: int, nulls: Nulls) -> None:
        self._files, self._columns, self._nulls = list(files), list(columns), nulls
        self._states = list(map_concurrently(state_of, self._files))
        self._types, pieces = list[np.dtype[Any]](), list[_RowRange]()
        for which, (schema, groups) in enumerate(map_concurrently(described_parquet, self._files)):
            check_names(schema.names, names_in(columns))
            if (values := columns[-1]) is not None:
                self._types.append(type_of(schema.field(values).type, values))
            for group, size in enumerate(groups):
                pieces += [_RowRange(which, group, k, min(rows, size - k)) for k in range(0, size, rows)]
        self._chunks = grouped(pieces, lambda piece: piece.rows, min(rows, THRESHOLDS.chunk_rows))

    def __len__(self) -> int:
        return len(self._chunks)

    def name(self, number: int) -> str:
        piece = self._chunks[number][0]
        return f"{self._files[piece.file]}, row group {piece.group}, from row {piece.first}"

    def read(self, number: int) -> Chunk:
        found: list[list[Array]] = []
        for which, pieces in itertools.groupby(self._chunks[number], lambda piece: piece.file):
            path = self._files[which]
            with wrap_errors(path):
                file = opened_parquet(path)
                batches = [batch for piece in pieces for batch in self._batches(file, piece)]
            if state_of(path) != self._states[which]:
                raise changed(path)
            with wrap_tables(path):
                table = arrow().Table.from_batches(batches)
                coords, values = entries_of(table, self._columns, self._nulls, table_of(self._files))
            found.append([*coords, values])
        columns = concatenated(found)
        return columns[:-1], columns[-1]

    def _batches(self, file: Any, piece: _RowRange) -> Iterator[Any]:
        stop, at = piece.first + piece.rows, 0
        columns = names_in(self._columns)
        for batch in file.iter_batches(THRESHOLDS.decoded_rows, [piece.group], columns, use_threads=False):
            yield batch[max(piece.first - at, 0) : max(stop - at, 0)]
            at += len(batch)
            if at >= stop:
                return

    def value_type(self) -> np.dtype[Any]:
        values = self._columns[-1]
        return np.dtype(np.int64) if values is None else common_type(self._types, f"columns.{values}")


def parquet_files(places: str | Sequence[str]) -> list[str]:
    """The Parquet files at one or more paths, patterns, folders, or URLs of a file or a prefix."""
    if not isinstance(places, str | os.PathLike):
        return [file for place in places for file in parquet_files(place)]
    path = os.path.expanduser(places)
    if not is_url(path):
        path = os.path.abspath(path)
        with wrap_errors(path):
            there = [path] if os.path.exists(path) else _matching(path)
            files = [x for place in there for x in (_files_below(place) if os.path.isdir(place) else [place])]
        if others := [x for x in files if suffix_of(x) in (".csv", ".tsv", ".txt", ".arrow", ".feather")]:
            remedy = "pass tables in memory to write_from, or use the command `binsparse-levels convert --columns`"
            raise ContainerError(Problem(others[0], f"build reads Parquet files; {remedy}"))
    elif path.endswith(".parquet"):
        return [path]
    else:
        root = path.rstrip("/")
        files = [f"{root}/{name}" for name in sorted(Bucket(root).names("")) if name.endswith(".parquet")]
    if not files:
        raise PathMissingError(Problem(path, "no Parquet files here; they end with .parquet"))
    return files


def _files_below(folder: str) -> list[str]:
    found = (os.path.join(place, name) for place, names in folders_below(folder, links=True) for name in names)
    hidden = f"{os.sep}."
    return sorted(file for file in found if file.endswith(".parquet") and hidden not in file[len(folder) :])


def _matching(pattern: str) -> list[str]:
    """The paths that match a pattern. Unlike `glob`, it raises the error of a folder that cannot be listed."""
    above, last = os.path.split(pattern)
    folders = _matching(above) if has_magic(above) else [above]
    there = ((folder, name) for folder in folders if os.path.isdir(folder) for name in sorted(os.listdir(folder)))
    return [os.path.join(*x) for x in there if fnmatchcase(x[1], last) and (x[1][0] != "." or last[0] == ".")]


def opened_parquet(path: str) -> Any:
    """A Parquet file at a path or a URL."""
    arrow()
    from pyarrow.fs import FileSystem
    from pyarrow.parquet import ParquetFile

    if not is_url(path):
        return ParquetFile(path)
    if path.startswith("http"):
        with needing("remote"):
            import fsspec
        return ParquetFile(fsspec.open(path).open(), pre_buffer=True)
    files, key = FileSystem.from_uri(path)
    return ParquetFile(files.open_input_file(key), pre_buffer=True)


def described_parquet(path: str) -> tuple[Any, list[int]]:
    """The schema of a Parquet file, and the number of rows of each row group."""
    with wrap_errors(path):
        file = opened_parquet(path)
        footer = file.metadata
        return file.schema_arrow, [footer.row_group(k).num_rows for k in range(footer.num_row_groups)]


def dask_chunks(frame: Any, columns: Sequence[str | None], nulls: Nulls) -> Function:
    """The partitions of a Dask dataframe, each computed when it is read."""
    check_names(list(frame.columns), names_in(columns))
    parts = frame[names_in(columns)].to_delayed()

    def read(number: int) -> Chunk:
        part = parts[number].compute(scheduler="synchronous")
        with wrap_tables("frame"):
            table = arrow().Table.from_pandas(part, preserve_index=False)
            return entries_of(table, columns, nulls)

    return Function(read, len(parts), len(columns) - 1)


# Rows with labels


def is_relation(given: Any) -> bool:
    """Return True for a relation of DuckDB."""
    return type(given).__name__ == "DuckDBPyRelation"


def needs_sql(files: Sequence[str], columns: Sequence[str | None]) -> bool:
    """Return True if DuckDB must read Parquet files: a column has labels, or is in the names of folders."""
    schema, _ = described_parquet(files[0])
    integer = arrow().types.is_integer
    return any(x not in schema.names or not integer(schema.field(x).type) for x in columns[:-1])


def table_of(files: Sequence[str]) -> str:
    """The SQL table expression of these Parquet files."""
    names = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    return f"read_parquet([{names}], hive_partitioning = true, union_by_name = true)"


class Table:
    """The rows of a relation or of Parquet files, whose labels DuckDB sorts and numbers.

    Each column of labels becomes a table of its distinct values and their numbers, with which the rows are joined.

    columns: the names of the coordinates in order, and of the values, or None if rows are counted. memory: bytes
    that DuckDB may use. folder: for its temporary files.
    """

    def __init__(self, source: Any, columns: Sequence[str | None], nulls: Nulls, *, memory: int, folder: str) -> None:
        with needing("tables"):
            import duckdb
        settings: dict[str, Any] = {"memory_limit": f"{max(memory, MIN_DUCKDB_BYTES)}B", "temp_directory": folder}
        settings |= {"threads": get_threads(), "preserve_insertion_order": False}
        self._db = duckdb.connect(config=settings)
        self._db.execute("SET enable_progress_bar = false; SET autoinstall_known_extensions = false")
        self._columns, values = list(columns), columns[-1]
        self._dims = names_in(columns[:-1])
        self._table = "" if is_relation(source) else table_of(source)
        names = names_in(columns)
        streamed = is_relation(source) or is_url(source[0])
        if is_relation(source):
            self._db.register("given", source.to_arrow_reader(THRESHOLDS.streamed_rows))
        elif streamed:
            self._db.register("given", _reader(source, names))
        else:
            self._db.execute(f"CREATE VIEW given AS SELECT * FROM {self._table}")
        check_names([x[0] for x in self._db.execute("DESCRIBE given").fetchall()], names)
        good = " AND ".join(f"{quoted(x)} IS NOT NULL" for x in names) if nulls == "drop" else "true"
        kept = f"{'TABLE' if streamed else 'VIEW'} rows AS SELECT {', '.join(map(quoted, names))}"
        self._db.execute(f"CREATE {kept} FROM given WHERE {good}")
        schema = self._read("SELECT * FROM rows LIMIT 0").schema
        types = {name: schema.field(name).type for name in names}
        self.dtype = np.dtype(np.int64) if values is None else type_of(types[values], values)
        labels: list[str | None] = []  # the types of labels, None for coordinates
        for name in self._dims:
            if arrow().types.is_floating(types[name]):
                raise no_label(types[name], f"columns.{name}")
            integer = arrow().types.is_integer(types[name])
            labels.append(None if integer else label_type(types[name], f"columns.{name}"))
        self.labels = tuple(labels)
        counts = self._db.execute(f"SELECT count(*), {', '.join(f'count({quoted(x)})' for x in names)} FROM rows")
        self.rows, *there = counts.fetchall()[0]
        for name, count in zip(names, there, strict=True):
            if count < self.rows:
                raise has_nulls(name, self._table)

    def _read(self, query: str) -> Any:
        return self._db.sql(query).to_arrow_reader(THRESHOLDS.streamed_rows)

    def close(self) -> None:
        self._db.close()

    def sizes(self) -> list[int]:
        """Number the labels. Returns the size of each dimension: its number of labels, or largest coordinate + 1."""
        found = []
        for k, (name, label) in enumerate(zip(map(quoted, self._dims), self.labels, strict=True)):
            size = f"SELECT coalesce(max({name}), -1) FROM rows"
            if label is not None:
                numbered = "SELECT label, row_number() OVER (ORDER BY label) - 1 AS code"
                distinct = f"SELECT DISTINCT {name} AS label FROM rows"
                self._db.execute(f"CREATE TABLE labels_{k} AS {numbered} FROM ({distinct})")
                size = f"SELECT count(*) - 1 FROM labels_{k}"
            largest = int(self._db.execute(size).fetchall()[0][0])
            check_largest(largest, self._dims[k])
            found.append(largest + 1)
        return found

    def keep_labels(self, address: str) -> None:
        """Write the labels into the folder of a work. Precondition: they are numbered."""
        work = Work(address)
        for k, label in enumerate(self.labels):
            if label is not None:
                work.put_array(f"labels/{k}", (np.asarray(x.items[:]) for x in self._labels(k)))
            if label == TEXT:
                work.put_array(f"labels/{k}-offsets", self._offsets(k))

    def _labels(self, dimension: int) -> Iterator[Column]:
        """The labels of a dimension in their order, in parts."""
        for batch in self._read(f"SELECT label FROM labels_{dimension} ORDER BY code"):
            yield column_of(batch.column(0).cast(plain_type(batch.schema[0].type, "labels")))

    def _offsets(self, dimension: int) -> Iterator[Array]:
        last = np.zeros(1, np.int64)
        yield last
        for column in self._labels(dimension):
            assert column.offsets is not None
            ends = np.asarray(column.offsets[:]) + last
            last = ends[-1:]
            yield ends[1:]

    def chunks(self) -> Iterator[Chunk]:
        """The rows as coordinates and values. Precondition: the labels are numbered."""
        selected, joins = [], []
        for k, (name, label) in enumerate(zip(map(quoted, self._dims), self.labels, strict=True)):
            selected.append(f"rows.{name} AS c{k}" if label is None else f"labels_{k}.code AS c{k}")
            if label is not None:
                joins.append(f"JOIN labels_{k} ON rows.{name} = labels_{k}.label")
        selected += [f"rows.{quoted(x)} AS v" for x in self._columns[-1:] if x is not None]
        for batch in self._read(f"SELECT {', '.join(selected)} FROM rows {' '.join(joins)}"):
            table = arrow().Table.from_batches([batch]).rename_columns(names_in(self._columns))
            yield entries_of(table, self._columns, "error")


def _reader(files: Sequence[str], names: Sequence[str]) -> Any:
    """The rows of remote Parquet files as an Arrow stream."""
    there = opened_parquet(files[0]).schema_arrow
    check_names(there.names, names)
    schema = arrow().schema([there.field(name) for name in names])
    batches = (x.cast(schema) for file in files for x in opened_parquet(file).iter_batches(columns=list(names)))
    return arrow().RecordBatchReader.from_batches(schema, batches)


# Tables in files


def file_tables(path: str, columns: Sequence[str | None], **text: Any) -> Any:
    """The table in a file, as an object that `_stream` reads in bounded memory. Raises ContainerError, OptionError.

    columns: the names of the columns of coordinates, and of the values last, or None. text: options of a text, whose
    suffix may be any: `separator`, by default one that separates these names; `comment`, with which lines before the
    first row begin; `header`, if False, names are the positions of columns, from 0.
    """
    arrow()
    from pyarrow import dataset, ipc

    suffix = suffix_of(path)
    with wrap_errors(path):
        with open(path, "rb") as raw:
            begin = raw.read(6)
            raw.seek(-1, os.SEEK_END)
            if text or suffix in TEXTS:
                if begin[:2] != b"\x1f\x8b":  # gzip
                    text_tables.warn_of_end(raw.read(), path)
                return _text(path, columns, *_layout(path, names_in(columns), **text))
        if suffix in (".arrow", ".feather") and begin != b"ARROW1":
            return ipc.open_stream(path)
        return dataset.dataset(path, format="parquet" if suffix == ".parquet" else "ipc")


def _layout(
    path: str, columns: Sequence[str], separator: str = "", comment: str = "", header: bool = True
) -> tuple[list[str], int, str]:
    """The names of all columns of a text, the number of lines before its rows, and the character between columns.

    Arrow splits at one character. At `::`, this leaves empty columns between the others.
    """
    with text_tables.reading(path) as stream:
        lines = list(itertools.takewhile(lambda line: comment and line.startswith(comment.encode()), stream))
        stream.seek(sum(map(len, lines)))
        first = stream.readline(DEFAULT_LIMITS.header_bytes).decode("utf-8-sig", "replace").rstrip("\r\n")
    found = dict[str, list[str]]()
    for mark in [separator] if separator else SEPARATORS:
        fields = first.split(mark) if len(mark) > 1 else next(csv.reader([first], delimiter=mark), [])
        found[mark] = fields if header else [str(k) for k in range(len(fields))]
    mark, names = max(found.items(), key=lambda item: ({*columns} <= {*item[1]}, len(item[1])))
    check_names(names, columns)
    if len({*mark}) > 1:
        raise OptionError(Problem("separator", f"expected a character, perhaps repeated, got {mark!r:.40}"))
    blank = [f"{k} " for k in range(len(names) * len(mark) - len(mark) + 1)]
    blank[:: len(mark)] = names
    return blank, len(lines) + header, mark[0]


def _text(path: str, columns: Sequence[str | None], names: list[str], skipped: int, separator: str) -> Any:
    """A text as a dataset, whose types are those of all rows: Arrow looks at the first ones alone.

    Integers of a dimension are read as text if one has an unusual form: 007 is not 7. Values are floats if one is.
    """
    pa = arrow()
    from pyarrow import compute, csv, dataset

    known = {
        "read_options": csv.ReadOptions(column_names=names, skip_rows=skipped),
        "parse_options": csv.ParseOptions(delimiter=separator),
    }

    def opened(types: Mapping[str, Any]) -> Any:
        options = csv.ConvertOptions(column_types=types)
        return dataset.dataset(path, format=dataset.CsvFileFormat(convert_options=options, **known))

    there = opened({}).schema
    values = columns[-1]
    kinds = {x: there.field(x).type for x in names_in(columns)}
    unsure = {x: pa.string() for x, kind in kinds.items() if pa.types.is_integer(kind) or pa.types.is_null(kind)}
    missing, odd, some = pa.array(csv.ConvertOptions().null_values), set[str](), set[str]()
    for batch in opened(unsure).scanner(columns=list(unsure)).to_batches():
        for name in unsure.keys() - odd:
            plain = compute.match_substring_regex(batch[name], _VALUE if name == values else _COORDINATE)
            absent = compute.is_in(batch[name], missing)
            if not compute.all(compute.or_(plain, absent)).as_py():
                odd.add(name)
            if compute.any(plain).as_py():
                some.add(name)
    types = dict.fromkeys(some, pa.int64()) | {x: pa.float64() if x == values else pa.string() for x in odd}
    return opened(types)
