"""Tables with labels, numbered by DuckDB: labels in their order, sizes of dimensions, rows as integers.

Each column of labels becomes a table of its distinct values and their numbers, and the rows are joined with these. What
exceeds the memory lies in a folder meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..arrays import Array
from ..containers.base import is_url
from ..errors import ArrayError, Problem, needing
from ..parallel import get_threads
from ..tensors.labels import TEXT, Column, Labels, stored_type
from .columns import (
    Nulls,
    arrow,
    check_names,
    column_of,
    entries_of,
    label_type,
    names_in,
    plain_type,
    quoted,
    type_of,
)
from .entries import Chunk
from .parquet import described_parquet, opened_parquet
from .work import Work

_AT_ONCE = 2**17  # rows that DuckDB gives at once
LEAST = 2**26  # bytes with which DuckDB works


def is_relation(given: Any) -> bool:
    """Whether this is a relation of DuckDB."""
    return type(given).__name__ == "DuckDBPyRelation"


def needs_sql(files: Sequence[str], columns: Sequence[str | None]) -> bool:
    """Whether the rows of Parquet files need to be numbered: a column has labels, or is in the names of folders."""
    *coords, _ = columns
    if not files:
        return False
    schema, _ = described_parquet(files[0])
    integer = arrow().types.is_integer
    return any(x not in schema.names or not integer(schema.field(x).type) for x in coords)


def table_of(files: Sequence[str]) -> str:
    """What SQL selects from for these Parquet files."""
    names = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    return f"read_parquet([{names}], hive_partitioning = true, union_by_name = true)"


class Table:
    """The rows of a relation or of Parquet files, numbered.

    columns: the names of the coordinates in order, and of the values, or None where rows are counted. memory: bytes
    that DuckDB may use. folder: for what is more.
    """

    def __init__(self, source: Any, columns: Sequence[str | None], nulls: Nulls, *, memory: int, folder: str) -> None:
        with needing("tables"):
            import duckdb
        arrow()
        settings: dict[str, Any] = {
            "memory_limit": f"{max(memory, LEAST)}B",
            "temp_directory": folder,
            "threads": get_threads(),
        }
        self._db = duckdb.connect(config={**settings, "preserve_insertion_order": False})
        self._db.execute("SET enable_progress_bar = false; SET autoinstall_known_extensions = false")
        self._names, self._counted, self._nulls = names_in(columns), columns[-1] is None, nulls
        self._table = "table" if is_relation(source) else table_of(source)
        listed = ", ".join(map(quoted, self._names))
        good = " AND ".join(f"{quoted(x)} IS NOT NULL" for x in self._names) if nulls == "drop" else "true"
        if is_relation(source):
            check_names(source.columns, self._names)
            self._db.register("given", source.to_arrow_reader(_AT_ONCE))
        elif is_url(source[0]):
            self._db.register("given", _reader(source, self._names))
        else:
            self._db.execute(f"CREATE VIEW given AS SELECT * FROM {table_of(source)}")
            check_names([x[0] for x in self._db.execute("DESCRIBE given").fetchall()], self._names)
        kept = "VIEW" if not is_relation(source) and not is_url(source[0]) else "TABLE"
        self._db.execute(f"CREATE {kept} rows AS SELECT {listed} FROM given WHERE {good}")
        schema = self._reader("SELECT * FROM rows LIMIT 0").schema
        types = {name: schema.field(name).type for name in self._names}
        self.dtype = np.dtype(np.int64) if self._counted else type_of(types[self._names[-1]], self._names[-1])
        self._dims = self._names if self._counted else self._names[:-1]
        integer, floating = arrow().types.is_integer, arrow().types.is_floating
        for name in self._dims:
            if floating(types[name]):
                what = f"contains {types[name]}; cast it to integers, or to text for labels, by SQL"
                raise ArrayError(Problem(f"columns.{name}", what))
        self._plain = [None if integer(types[x]) else plain_type(types[x], f"columns.{x}") for x in self._dims]
        self.labels = tuple(None if x is None else label_type(x) for x in self._plain)

    def _reader(self, query: str) -> Any:
        return self._db.sql(query).to_arrow_reader(_AT_ONCE)

    def close(self) -> None:
        self._db.close()

    def sizes(self) -> list[int]:
        """The number of labels, or one more than the greatest coordinate, by dimension. The labels are numbered."""
        found = []
        for k, (name, label) in enumerate(zip(map(quoted, self._dims), self.labels, strict=True)):
            if label is None:
                greatest = self._db.execute(f"SELECT max({name}) FROM rows").fetchall()[0][0]
                found.append(0 if greatest is None else int(greatest) + 1)
                continue
            distinct = f"SELECT DISTINCT {name} AS label FROM rows WHERE {name} IS NOT NULL"
            numbered = f"SELECT label, row_number() OVER (ORDER BY label) - 1 AS code FROM ({distinct})"
            self._db.execute(f"CREATE TABLE labels_{k} AS {numbered}")
            found.append(int(self._db.execute(f"SELECT count(*) FROM labels_{k}").fetchall()[0][0]))
        return found

    def keep_labels(self, work: Work) -> None:
        """Leave the labels in the work. Precondition: they are numbered."""
        for k, label in enumerate(self.labels):
            if label is None:
                continue
            work.put_array(f"labels/{k}", (np.asarray(x.items[:]) for x in self._columns(k)))
            if label == TEXT:
                work.put_array(f"labels/{k}-offsets", self._offsets(k))

    def _columns(self, dimension: int) -> Iterator[Column]:
        """The labels of a dimension in their order, in parts."""
        found = self._reader(f"SELECT label FROM labels_{dimension} ORDER BY code")
        for batch in found:
            yield column_of(batch.column(0).cast(self._plain[dimension]))

    def _offsets(self, dimension: int) -> Iterator[Array]:
        last = 0
        yield np.zeros(1, np.int64)
        for column in self._columns(dimension):
            assert column.offsets is not None
            ends = np.asarray(column.offsets[1:]) + last
            last = int(ends[-1]) if len(ends) else last
            yield ends

    def chunks(self) -> Iterator[Chunk]:
        """The rows as coordinates and values. Precondition: the labels are numbered."""
        wanted, joins = [], []
        for k, (name, label) in enumerate(zip(map(quoted, self._dims), self.labels, strict=True)):
            wanted.append(f"rows.{name} AS c{k}" if label is None else f"labels_{k}.code AS c{k}")
            if label is not None:
                joins.append(f"LEFT JOIN labels_{k} ON rows.{name} = labels_{k}.label")
        wanted += [] if self._counted else [f"rows.{quoted(self._names[-1])} AS v"]
        columns = [*self._dims, None if self._counted else self._names[-1]]
        for batch in self._reader(f"SELECT {', '.join(wanted)} FROM rows {' '.join(joins)}"):
            table = arrow().Table.from_batches([batch]).rename_columns(self._names)
            yield entries_of(table, columns, self._nulls, self._nulls_of, self._table)

    def _nulls_of(self, name: str) -> int:
        return int(
            self._db.cursor().execute(f"SELECT count(*) FROM rows WHERE {quoted(name)} IS NULL").fetchall()[0][0]
        )


def _reader(files: Sequence[str], names: Sequence[str]) -> Any:
    """The rows of remote Parquet files as a stream of Arrow's."""
    schema = arrow().schema([opened_parquet(files[0]).schema_arrow.field(name) for name in names])
    batches = (x.cast(schema) for file in files for x in opened_parquet(file).iter_batches(columns=list(names)))
    return arrow().RecordBatchReader.from_batches(schema, batches)


def kept_labels(work: Work) -> Labels | None:
    """The labels that a work keeps, read where they are sliced; without labels, the names of the dimensions."""
    plan = work.plan
    if plan.names is None:
        return None
    *dims, values = plan.names
    columns = {}
    for k, label in enumerate(plan.labels):
        if label is not None:
            offsets = work.array(f"labels/{k}-offsets", np.dtype(np.int64)) if label == TEXT else None
            columns[dims[k]] = Column(label, work.array(f"labels/{k}", stored_type(label)), offsets)
    return Labels(tuple(dims), columns, values) if columns else None
