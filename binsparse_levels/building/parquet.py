"""Parquet files as a source: their row groups, or parts of these, in numbered chunks."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from glob import escape, glob
from typing import Any, NamedTuple

import numpy as np

from ..containers.base import is_url, touching
from ..containers.objects.bucket import Bucket, side_by_side
from ..errors import PathMissingError, Problem, needing
from .columns import Nulls, arrow, check_names, entries_of, names_in, type_of
from .entries import Chunk
from .sources import Source, changed, common_type, state_of

_BATCH = 2**16  # rows of a Parquet file that are decoded at once
_MOST = 2**21  # rows of a chunk, so that there is work for many processes


class _Piece(NamedTuple):
    """Rows of a row group of a file."""

    file: int
    group: int
    first: int
    rows: int


class Parquet(Source):
    """The rows of Parquet files with integer coordinates, at most `rows` in a chunk: row groups, or a part of one.

    columns: the names of the coordinates in order, and of the values, or None where rows are counted. table: what SQL
    selects from, for messages.
    """

    def __init__(
        self, files: Sequence[str], columns: Sequence[str | None], rows: int, nulls: Nulls, table: str
    ) -> None:
        self._files, self._columns, self._nulls, self._table = list(files), list(columns), nulls, table
        self._states = list(side_by_side(state_of, self._files))
        self._chunks: list[list[_Piece]] = []
        types, most = [], min(rows, _MOST)
        room = 0
        for which, (schema, groups) in enumerate(side_by_side(described_parquet, self._files)):
            check_names(schema.names, names_in(columns))
            types += [] if columns[-1] is None else [type_of(schema.field(columns[-1]).type, columns[-1])]
            for group, size in enumerate(groups):
                for first in range(0, size, rows):
                    piece = _Piece(which, group, first, min(rows, size - first))
                    if piece.rows > room:
                        self._chunks.append([])
                        room = most
                    self._chunks[-1].append(piece)
                    room -= piece.rows
        self._type = np.dtype(np.int64) if columns[-1] is None else common_type(types, f"columns.{columns[-1]}")

    def __len__(self) -> int:
        return len(self._chunks)

    def name(self, number: int) -> str:
        piece = self._chunks[number][0]
        return f"{self._files[piece.file]}, row group {piece.group}, row {piece.first} on"

    def read(self, number: int) -> Chunk:
        found: list[Any] = []
        for which, pieces in itertools.groupby(self._chunks[number], lambda piece: piece.file):
            path = self._files[which]
            with touching(path):
                file = opened_parquet(path)
                for piece in pieces:
                    found += self._batches(file, piece)
            if state_of(path) != self._states[which]:
                raise changed(path)
        return entries_of(arrow().Table.from_batches(found), self._columns, self._nulls, self._nulls_of, self._table)

    def _batches(self, file: Any, piece: _Piece) -> Iterator[Any]:
        stop, at = piece.first + piece.rows, 0
        for batch in file.iter_batches(_BATCH, [piece.group], names_in(self._columns), use_threads=False):
            yield batch[max(piece.first - at, 0) : max(stop - at, 0)]
            at += len(batch)
            if at >= stop:
                return

    def _nulls_of(self, name: str) -> int:
        """The number of nulls in a column of all files."""
        batches = (x for file in self._files for x in opened_parquet(file).iter_batches(columns=[name]))
        return sum(batch.column(0).null_count for batch in batches)

    def value_type(self) -> np.dtype[Any]:
        return self._type


def parquet_files(places: str | Sequence[str]) -> list[str]:
    """The Parquet files at a path, a pattern, a folder, or a URL of a file or of a prefix; or at several of these."""
    if not isinstance(places, str | os.PathLike):
        return [file for place in places for file in parquet_files(place)]
    path = os.path.expanduser(places)
    if not is_url(path):
        path = os.path.abspath(path)
        there = [path] if os.path.exists(path) else sorted(glob(path))
        files = [x for place in there for x in (_files_below(place) if os.path.isdir(place) else [place])]
    elif path.endswith(".parquet"):
        return [path]
    else:
        root = path.rstrip("/")
        files = [f"{root}/{name}" for name in sorted(Bucket(root).names("")) if name.endswith(".parquet")]
    if not files:
        raise PathMissingError(Problem(path, "no Parquet files here; they end with .parquet"))
    return files


def _files_below(folder: str) -> list[str]:
    return sorted(glob(os.path.join(escape(folder), "**", "*.parquet"), recursive=True))


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
    """The schema of a Parquet file, and the rows of its row groups."""
    with touching(path):
        file = opened_parquet(path)
        told = file.metadata
        return file.schema_arrow, [told.row_group(k).num_rows for k in range(told.num_row_groups)]
