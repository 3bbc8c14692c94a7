"""Parquet files as a source: their row groups, or parts of these, in numbered chunks."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from glob import escape, glob
from typing import Any, NamedTuple

import numpy as np

from ..containers.base import is_url, touching
from ..containers.objects.bucket import asked, bucket_at, obstore_module, side_by_side
from ..errors import PathMissingError, Problem, needing
from .columns import Nulls, arrow, check_names, entries_of, names_in, type_of
from .entries import Chunk
from .sources import Chunks, changed, common_type, state_of

_BATCH = 2**16  # rows of a Parquet file that are decoded at once
_WORTH = 2**20  # rows: a chunk of fewer goes on in the next file


class Parquet(Chunks):
    """The rows of Parquet files with integer coordinates, at most `rows` in a chunk: row groups, or a part of one.

    columns: the names of the coordinates in order, and of the values, or None where rows are counted. table: what SQL
    selects from, for messages.
    """

    def __init__(
        self, files: Sequence[str], columns: Sequence[str | None], rows: int, nulls: Nulls, table: str = "table"
    ) -> None:
        self._files, self._columns, self._nulls, self._table = list(files), list(columns), nulls, table
        self._names, counted = names_in(columns), columns[-1] is None
        self._states = list(side_by_side(state_of, self._files))
        self._held: tuple[_Piece, Iterator[Any]] | None = None  # what is read of a part of row groups, and its rest
        self._pieces: list[list[_Piece]] = []  # by chunk
        types: list[np.dtype[Any]] = []
        room = 0
        for which, (schema, groups) in enumerate(side_by_side(described_parquet, self._files)):
            check_names(schema.names, self._names)
            if not counted:
                types.append(type_of(schema.field(self._names[-1]).type, self._names[-1]))
            for piece in _cut(which, groups, rows):
                if piece.rows > room:
                    self._pieces.append([])
                    room = min(rows, _WORTH)
                self._pieces[-1].append(piece)
                room -= piece.rows
        self._type = np.dtype(np.int64) if counted else common_type(types, f"columns.{self._names[-1]}")

    def __len__(self) -> int:
        return len(self._pieces)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_held": None}

    def name(self, number: int) -> str:
        piece, *more = self._pieces[number]
        place = f"{self._files[piece.file]}, row groups {piece.first} to {piece.stop - 1}"
        return f"{place}, and {len(more)} more" if more else f"{place}, rows {piece.skip} on"

    def read(self, number: int) -> Chunk:
        found = []
        for piece in self._pieces[number]:
            path = self._files[piece.file]
            with touching(path):
                found += list(self._batches(piece))
            if state_of(path) != self._states[piece.file]:
                raise changed(path)
        return entries_of(arrow().Table.from_batches(found), self._columns, self._nulls, self._nulls_of, self._table)

    def _batches(self, piece: _Piece) -> Iterator[Any]:
        """The rows of a piece, in batches. What follows in the same row groups is read on."""
        held, self._held = self._held, None
        if held is not None and held[0].before(piece):
            rest, at = held[1], piece.skip
        else:
            file = opened_parquet(self._files[piece.file])
            rest, at = file.iter_batches(_BATCH, range(piece.first, piece.stop), self._names, use_threads=False), 0
        stop = piece.skip + piece.rows
        while at < stop:
            batch = next(rest)
            begin, end = max(piece.skip - at, 0), min(stop - at, len(batch))
            at += len(batch)
            if begin < end:
                yield batch.slice(begin, end - begin)
            if at > stop:
                rest = itertools.chain([batch.slice(end)], rest)
        self._held = piece, rest

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
    if path.endswith(".parquet") and is_url(path):
        return [path]
    if is_url(path):
        root = path.rstrip("/")
        with touching(path):
            pages = asked(lambda: list(obstore_module().list(bucket_at(root))))
        names = sorted(entry["path"] for page in pages for entry in page)
        files = [f"{root}/{name}" for name in names if name.endswith(".parquet")]
    elif os.path.isdir(path):
        files = sorted(glob(os.path.join(escape(os.path.abspath(path)), "**", "*.parquet"), recursive=True))
    else:
        there = sorted(glob(os.path.abspath(path))) if not os.path.exists(path) else [os.path.abspath(path)]
        files = [file for place in there for file in ([place] if os.path.isfile(place) else parquet_files(place))]
    if not files:
        raise PathMissingError(Problem(path, "no Parquet files here; they end with .parquet"))
    return files


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


class _Piece(NamedTuple):
    """Rows of a Parquet file: a range of its row groups, the first row in these, and how many."""

    file: int
    first: int
    stop: int
    skip: int
    rows: int

    def before(self, other: _Piece) -> bool:
        """Whether another piece follows in the same row groups."""
        return self[:3] == other[:3] and self.skip + self.rows == other.skip


def _cut(file: int, groups: Sequence[int], rows: int) -> Iterator[_Piece]:
    """A file in pieces of row groups with at most `rows` rows; row groups that are larger are cut."""
    first = held = 0
    for k, size in enumerate([*groups, rows + 1]):  # the last ends what is held
        if held + size > rows:
            for skip in range(0, held, rows):
                yield _Piece(file, first, k, skip, min(rows, held - skip))
            first, held = k, 0
        held += size
