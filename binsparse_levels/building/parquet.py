"""Rows of Parquet files in numbered chunks, and the columns of Arrow's tables as numpy arrays."""

from __future__ import annotations

import difflib
import glob
import io
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..arrays import Array
from ..containers.base import is_url, touching
from ..errors import ArrayError, BinsparseError, OptionError, PathMissingError, Problem, needing
from .states import bucket_of, obstore_module, state_of, unchanged
from .store import AT_ONCE
from .values import common_type

_BATCH = 2**16  # rows of a row group that is larger than a chunk, read at once
_BUFFER = 2**20  # bytes of a column that are read at once there
_WORTH = 2**20  # rows: a chunk of fewer goes on in the next file


class Parquet:
    """The rows of Parquet files, at most `rows` in a chunk: row groups of one file or more, or a part of a row group.

    columns: the names of the coordinates in order, and of the values. pieces: the number of a file, the first row
    group, the group behind the last, the first row of a part of a row group or -1, the rows. ends: of the pieces of
    each chunk.
    """

    def __init__(
        self,
        files: Sequence[str],
        columns: Sequence[str],
        rows: int,
        pieces: Sequence[Sequence[int]] | None = None,
        ends: Sequence[int] | None = None,
        states: Any = None,
    ) -> None:
        self._files, self._columns, self._rows = list(files), list(columns), rows
        self._states = _at_once(state_of, self._files) if states is None else states
        self._type: np.dtype[Any] | None = None
        self._held: dict[tuple[int, int], _Reader] = {}  # the row group of which a part was read last
        if pieces is None or ends is None:
            pieces, ends = self._planned()
        self._pieces, self._ends = [list(map(int, piece)) for piece in pieces], [0, *map(int, ends)]
        sound = all(
            0 <= file < len(self._files) and 0 <= first < stop and skip >= -1 and count >= 0
            for file, first, stop, skip, count in self._pieces
        )
        if not sound or self._ends != sorted(self._ends) or self._ends[-1] != len(self._pieces):
            raise ValueError("pieces and ends")
        texts = [*files, *columns]
        if len(self._states) != len(files) or not columns or not all(isinstance(x, str) for x in texts):
            raise ValueError("files, columns and states")

    def _planned(self) -> tuple[list[list[int]], list[int]]:
        """The pieces and the ends of all chunks, from the footers of all files. Raises ArrayError, OptionError."""
        pieces: list[list[int]] = []
        ends: list[int] = []
        types, room = [], 0  # the rows that the last chunk may still take
        for number, (found, sizes) in enumerate(_at_once(self._footer, self._files)):
            types.append(found)
            for group, size in enumerate(sizes):
                if not size:
                    continue
                if size > self._rows:
                    parts = range(0, size, self._rows)
                    pieces += [[number, group, group + 1, skip, min(self._rows, size - skip)] for skip in parts]
                    ends += range(len(pieces) - len(parts) + 1, len(pieces) + 1)
                    room = 0
                    continue
                if size > room or (pieces[-1][0] != number and self._rows - room + size > _WORTH):
                    ends.append(len(pieces))
                    room = self._rows
                if pieces and ends[-1] < len(pieces) and pieces[-1][0] == number:
                    pieces[-1][2], pieces[-1][4] = group + 1, pieces[-1][4] + size
                else:
                    pieces.append([number, group, group + 1, -1, size])
                ends[-1] = len(pieces)
                room -= size
        self._type = common_type(types) if types else None
        if types and self._type is None:
            at = next(k for k, x in enumerate(types) if x != types[0])
            what = f"values of type {types[at]}, and {types[0]} in {self._files[0]}; no type has both; pass dtype="
            raise ArrayError(Problem(self._files[at], what))
        return pieces, ends

    def _footer(self, path: str) -> tuple[np.dtype[Any], list[int]]:
        """The type of the values, and the rows of each row group."""
        with touching(path), _opened(path) as file:
            schema, told = file.schema_arrow, file.metadata
            check_names(schema.names, self._columns)
            try:
                for name in self._columns[:-1]:
                    if type_of(schema.field(name).type, name).kind not in "iu":
                        what = f"holds {schema.field(name).type}; coordinates are integers"
                        raise ArrayError(Problem(f"columns.{name}", what))
                dtype = type_of(schema.field(self._columns[-1]).type, self._columns[-1])
            except BinsparseError as error:
                raise within(path, error) from None
            return dtype, [told.row_group(k).num_rows for k in range(told.num_row_groups)]

    def __len__(self) -> int:
        return len(self._ends) - 1

    def name(self, number: int) -> str:
        """The place of a chunk, for messages."""
        first, last = (self._pieces[at] for at in (self._ends[number], self._ends[number + 1] - 1))
        return self._place([*first[:2], last[2], *first[3:]] if first[0] == last[0] else first)

    def _place(self, piece: Sequence[int]) -> str:
        file, first, stop, skip, count = piece
        groups = f"row group {first}" if stop == first + 1 else f"row groups {first} to {stop - 1}"
        return f"{self._files[file]}, {groups}" + (f", rows {skip} to {skip + count - 1}" if skip >= 0 else "")

    def read(self, number: int) -> tuple[list[Array], Array]:
        found = [self._piece(piece) for piece in self._pieces[self._ends[number] : self._ends[number + 1]]]
        *coords, values = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
        return coords, values

    def _piece(self, piece: Sequence[int]) -> list[Array]:
        which, first, stop, skip, count = piece
        path, columns = self._files[which], self._columns
        try:
            with unchanged(path, self._states[which], state_of), touching(path):
                if skip < 0:
                    with _opened(path) as file:
                        table = file.read_row_groups(range(first, stop), columns=columns, use_threads=False)
                    return columns_of(table, columns)
                reader = self._held.pop((which, first), None)
                if reader is None or reader.at > skip:
                    reader = _Reader(path, first, columns)
                found = reader.rows(skip, count)
                self._held = {(which, first): reader}
                return found
        except ArrayError as error:
            raise within(self._place(piece), error) from None

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        pieces = self._pieces[self._ends[number] : self._ends[number + 1]]
        random = np.random.default_rng(number)
        which, first, stop, skip, rows = pieces[int(random.integers(len(pieces)))]
        group = int(random.integers(first, stop))  # the first row groups of all files may be alike
        *coords, values = self._piece([which, group, group + 1, skip, rows])
        at = random.choice(len(values), min(count, len(values)), replace=False)
        return sum(piece[4] for piece in pieces), [x[at] for x in coords]

    def value_type(self) -> np.dtype[Any]:
        if self._type is None:
            raise OptionError(Problem("dtype", "there are no files to tell the type of the values; pass dtype="))
        return self._type

    def described(self) -> dict[str, Any]:
        return {
            "kind": "parquet",
            "files": self._files,
            "columns": self._columns,
            "rows": self._rows,
            "pieces": self._pieces,
            "ends": self._ends[1:],
            "states": self._states,
        }


class _Reader:
    """A row group, read from its beginning a batch at a time."""

    def __init__(self, path: str, group: int, columns: Sequence[str]) -> None:
        self.at = 0  # the first row that has not been given
        self._file, self._columns, self._rest = _opened(path, buffered=True), columns, None
        self._batches: Iterator[Any] = self._file.iter_batches(
            _BATCH, row_groups=[group], columns=list(columns), use_threads=False
        )

    def rows(self, skip: int, count: int) -> list[Array]:
        """Rows from `skip` on. Precondition: they are not behind `at`."""
        made: list[Array] = []
        done = 0
        while done < count:
            batch = next(self._batches) if self._rest is None else self._rest
            over = min(skip - self.at, len(batch))
            part = batch[over : over + count - done]
            behind = over + len(part)
            self._rest = batch[behind:] if behind < len(batch) else None
            self.at, skip = self.at + behind, skip + len(part)
            found = columns_of(part, self._columns)
            made = made or [np.empty(count, x.dtype) for x in found]
            for out, x in zip(made, found, strict=True):
                out[done : done + len(part)] = x
            done += len(part)
        return made


def _at_once(call: Any, files: Sequence[str]) -> list[Any]:
    if len(files) < 2:
        return [call(file) for file in files]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(call, files))


def within(place: str, error: ArrayError | BinsparseError) -> BinsparseError:
    """The same error with its place in front."""
    return type(error)([Problem(f"{place}: {x.path}" if x.path else place, x.message) for x in error.problems])


# Columns


def arrow() -> Any:
    """The module pyarrow. Raises PackageMissingError where it is not installed."""
    with needing("tables"):
        import pyarrow
    return pyarrow


def check_names(there: Sequence[str], names: Sequence[str]) -> None:
    """Raise OptionError for a column that a table does not have."""
    for name in names:
        if name not in there:
            near = difflib.get_close_matches(name, [str(other) for other in there], 1)
            meant = f"did you mean {near[0]}? " if near else ""
            known = ", ".join(map(str, there))
            raise OptionError(Problem(f"columns.{name}", f"no such column; {meant}the table has {known:.200}"))


def columns_of(table: Any, names: Sequence[str]) -> list[Array]:
    """The columns of a table or batch of Arrow's. Raises ArrayError for nulls, and for columns without numbers."""
    return [numbers_of(table.column(name), name) for name in names]


def numbers_of(column: Any, name: str) -> Array:
    """A column of Arrow's as an array. Raises ArrayError for nulls, and for a column without numbers."""
    dtype = type_of(column.type, name)
    refuse_nulls(column, f"columns.{name}")
    if hasattr(column, "combine_chunks"):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if dtype.kind == "b":
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return np.from_dlpack(column)  # without pandas, which to_numpy imports


def type_of(kind: Any, name: str) -> np.dtype[Any]:
    """The numpy type of a column of this type of Arrow's. Raises ArrayError for columns without numbers."""
    try:
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    except NotImplementedError:
        found = np.dtype(object)
    if found.kind not in "biuf":
        raise ArrayError(Problem(f"columns.{name}", f"holds {kind}; give numbers, and coordinates for labels"))
    return found


def refuse_nulls(column: Any, path: str) -> None:
    """Raise ArrayError for a column of Arrow's with nulls."""
    if column.null_count:
        raise ArrayError(Problem(path, f"{column.null_count} nulls; fill or drop them first"))


# Files


def _opened(path: str, *, buffered: bool = False) -> Any:
    """A Parquet file. buffered: its columns are read piece by piece."""
    arrow()
    from pyarrow.parquet import ParquetFile

    source = _Object(path) if is_url(path) else path
    return ParquetFile(source, buffer_size=_BUFFER if buffered else 0, pre_buffer=is_url(path) and not buffered)


class _Object(io.RawIOBase):
    """An object in a store, as the file that pyarrow reads: each read is one request."""

    def __init__(self, url: str) -> None:
        self._read, self._place = obstore_module().get_range, bucket_of(url)
        self._size, self._at = obstore_module().head(*self._place)["size"], 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        count = self._size - self._at if size < 0 else min(size, self._size - self._at)
        if count < 1:
            return b""
        found = bytes(self._read(*self._place, start=self._at, length=count))
        self._at += len(found)
        return found


def parquet_files(places: str | Sequence[str]) -> list[str]:
    """The Parquet files at a path, a pattern, a folder, or a URL of a file or of a prefix; or at several of these."""
    if not isinstance(places, str | os.PathLike):
        return [file for place in places for file in parquet_files(place)]
    path = os.path.expanduser(places)
    if path.endswith(".parquet") and is_url(path):
        return [path]
    if is_url(path):
        root, library = path.rstrip("/"), obstore_module()
        with touching(path):
            names = sorted(entry["path"] for page in library.list(library.store.from_url(root)) for entry in page)
        files = [f"{root}/{name}" for name in names if name.endswith(".parquet")]
    elif os.path.isdir(path):
        files = sorted(glob.glob(os.path.join(glob.escape(os.path.abspath(path)), "**", "*.parquet"), recursive=True))
    elif os.path.exists(path):
        files = [os.path.abspath(path)]
    else:
        files = sorted(glob.glob(os.path.abspath(path)))
    if not files:
        raise PathMissingError(Problem(path, "no Parquet files here; they end with .parquet"))
    return files
