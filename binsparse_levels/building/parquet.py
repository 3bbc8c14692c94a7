"""Rows of Parquet files in numbered chunks, and the columns of Arrow's tables as numpy arrays."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias
from urllib.parse import unquote

import numpy as np

from ..arrays import Array
from ..containers.base import is_url, touching
from ..containers.remote import Ranges
from ..errors import ArrayError, BinsparseError, OptionError, PathMissingError, Problem
from ..tensors.labels import TEXT
from .asking import asked, bucket_at, bucket_of, obstore_module
from .columns import arrow, check_names, columns_of, refuse_nulls, type_of, within
from .states import state_of, unchanged
from .store import AT_ONCE
from .values import common_type

Chunk: TypeAlias = tuple[list[Array], Array]  # a coordinate array for each dimension, and the values

_BATCH = 2**16  # rows of a row group that is larger than a chunk, read at once
_BUFFER = 2**20  # bytes of a column that are read at once there
_WORTH = 2**20  # rows: a chunk of fewer goes on in the next file
_TEXT = 32  # bytes of labels that a row may have; rows with more count for several
_HIVE = re.compile(r"([^/\\=]+)=([^/\\]*)")


class Parquet:
    """The rows of Parquet files, at most `rows` in a chunk: row groups of one file or more, or a part of a row group.

    columns: the names of the coordinates in order, and of the values, or None where rows are counted. filters: which
    rows, as `pyarrow.parquet.filters_to_expression` takes them. pieces: the number of a file, the first row group, the
    group behind the last, the first row of a part of a row group or -1, the rows. ends: of the pieces of each chunk.
    labels: the kind of the labels in a column of coordinates, or None.
    """

    def __init__(
        self,
        files: Sequence[str],
        columns: Sequence[str | None],
        rows: int,
        filters: Any = None,
        pieces: Sequence[Sequence[int]] | None = None,
        ends: Sequence[int] | None = None,
        states: Any = None,
        labels: Sequence[str | None] | None = None,
    ) -> None:
        self._files, self._columns, self._rows = list(files), list(columns), rows
        self._states = _at_once(state_of, self._files) if states is None else states
        self._type: np.dtype[Any] | None = None
        self._held: dict[Any, _Reader] = {}  # the row group of which a part was read last
        self._filters = [list(x) for x in filters] if filters is not None else None
        self._hive = _hive_of(self._files)
        if pieces is None or ends is None:
            pieces, ends, labels = self._planned()
        self._pieces, self._ends = [list(map(int, piece)) for piece in pieces], [0, *map(int, ends)]
        self.kinds = list(labels or [None] * (len(columns) - 1))
        sound = all(
            0 <= file < len(self._files) and 0 <= first < stop and skip >= -1 and count >= 0
            for file, first, stop, skip, count in self._pieces
        )
        if not sound or self._ends != sorted(self._ends) or self._ends[-1] != len(self._pieces):
            raise ValueError("pieces and ends")
        texts = [*files, *(x for x in columns if x is not None)]
        if len(self._states) != len(files) or len(columns) < 2 or not all(isinstance(x, str) for x in texts):
            raise ValueError("files, columns and states")
        if len(self.kinds) != len(columns) - 1 or None in self._columns[:-1]:
            raise ValueError("labels and columns")

    def _planned(self) -> tuple[list[list[int]], list[int], list[str | None]]:
        """The pieces and the ends of all chunks, and kinds of labels, from the footers of all files.

        Raises ArrayError, OptionError.
        """
        pieces: list[list[int]] = []
        ends: list[int] = []
        types, kinds, room = [], [], 0  # the rows that the last chunk may still take
        for number, (found, mine, sizes) in enumerate(_at_once(self._footer, list(enumerate(self._files)))):
            types.append(found)
            kinds.append(mine)
            for group, (size, weight) in enumerate(sizes):
                if not size:
                    continue
                if weight > self._rows:
                    step = max(self._rows * size // weight, 1)
                    parts = range(0, size, step)
                    pieces += [[number, group, group + 1, skip, min(step, size - skip)] for skip in parts]
                    ends += range(len(pieces) - len(parts) + 1, len(pieces) + 1)
                    room = 0
                    continue
                if weight > room or (pieces[-1][0] != number and self._rows - room + weight > _WORTH):
                    ends.append(len(pieces))
                    room = self._rows
                if pieces and ends[-1] < len(pieces) and pieces[-1][0] == number:
                    pieces[-1][2], pieces[-1][4] = group + 1, pieces[-1][4] + size
                else:
                    pieces.append([number, group, group + 1, -1, size])
                ends[-1] = len(pieces)
                room -= weight
        self._type = common_type(types) if types else None
        if types and self._type is None:
            at = next(k for k, x in enumerate(types) if x != types[0])
            what = f"values of type {types[at]}, and {types[0]} in {self._files[0]}; no type has both; pass dtype="
            raise ArrayError(Problem(self._files[at], what))
        for at, mine in enumerate(kinds):
            for name, kind, first in zip(self._columns, mine, kinds[0], strict=False):
                if kind != first:
                    what = f"has {kind or 'integers'}, and {self._files[0]} has {first or 'integers'}; cast one of them"
                    raise ArrayError(Problem(f"{self._files[at]}: columns.{name}", what))
        return pieces, ends, kinds[0] if kinds else [None] * (len(self._columns) - 1)

    def _footer(self, numbered: tuple[int, str]) -> tuple[np.dtype[Any], list[str | None], list[tuple[int, int]]]:
        """The type of the values, the kinds of labels, and of each row group the rows, and how many they count for:
        more, where their texts are long.
        """
        from .label_types import kind_of

        number, path = numbered
        with touching(path), _opened(path) as file:
            schema, told = file.schema_arrow, file.metadata
            hive = {name: arrow().scalar(x[number]).type for name, x in self._hive.items() if name not in schema.names}
            check_names([*schema.names, *hive], self._needed(self._columns))
            types = {**{field.name: field.type for field in schema}, **hive}
            value = self._columns[-1]
            try:
                kinds = [kind_of(types[name], name) for name in map(str, self._columns[:-1])]
                dtype = np.dtype(np.int64) if value is None else type_of(types[value], value)
            except BinsparseError as error:
                raise within(path, error) from None
            leaves = [told.schema.column(k).path for k in range(told.num_columns)]
            texts = [leaves.index(x) for x, kind in zip(self._columns, kinds, strict=False) if kind and x in leaves]
            sizes = []
            for k in range(told.num_row_groups):
                group = told.row_group(k)
                longest = max((group.column(c).total_uncompressed_size for c in texts), default=0)
                sizes.append((group.num_rows, max(group.num_rows, longest // _TEXT)))
            return dtype, kinds, sizes

    def _needed(self, columns: Sequence[str | None]) -> list[str]:
        """The columns that are read for these: those of the filters too."""
        return list(dict.fromkeys([*(x for x in columns if x is not None), *(x[0] for x in self._terms())]))

    def _terms(self) -> list[Any]:
        nested = self._filters and isinstance(self._filters[0][0], list | tuple)
        return [term for some in self._filters for term in some] if self._filters and nested else self._filters or []

    def sized(self, shape: Sequence[int | None]) -> tuple[tuple[int, ...], list[int]]:
        """The shape, where None stands for sizes that are not known, and the dimensions whose labels are to be counted.

        Coordinates are bounded by the statistics of the row groups, labels by the number of rows.
        """
        sizes, open = [], []
        rows = sum(piece[4] for piece in self._pieces)
        for k, size in enumerate(shape):
            if size is None and self.kinds[k] is not None:
                open.append(k)
                size = max(rows, 1)
            sizes.append(self._greatest(str(self._columns[k])) + 1 if size is None else size)
        return tuple(sizes), open

    def _greatest(self, name: str) -> int:
        """The greatest number in a column, -1 without rows. Raises OptionError where files do not tell it."""

        def of(number: int) -> int:
            path, found = self._files[number], -1
            with touching(path), _opened(path) as file:
                if name not in file.schema_arrow.names:
                    return int(self._hive[name][number])
                told = file.metadata
                at = [told.schema.column(k).path for k in range(told.num_columns)].index(name)
                for k in range(told.num_row_groups):
                    known = told.row_group(k).column(at).statistics
                    if not told.row_group(k).num_rows:
                        continue
                    if known is None or not known.has_min_max:
                        what = f"{path}, row group {k} has no statistics of {name}; pass the size of the dimension"
                        raise OptionError(Problem("shape", what))
                    found = max(found, int(known.max))
            return found

        return max(_at_once(of, range(len(self._files))), default=-1)

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

    def read(self, number: int) -> Chunk:
        names = [None if kind else name for name, kind in zip(self._columns, [*self.kinds, None], strict=True)]
        *coords, values = self._read(number, names)
        if self._columns[-1] is None:
            count = max([len(x) for x in coords if x is not None], default=None)
            values = np.ones(self._count(number) if count is None else count, np.int64)
        return coords, values

    def coordinates(self, number: int) -> Chunk:
        """The coordinates of a chunk, and no values."""
        names = [None if kind else name for name, kind in zip(self._columns[:-1], self.kinds, strict=True)]
        return self._read(number, names), np.empty(0)

    def _count(self, number: int) -> int:
        """The rows of a chunk."""
        pieces = self._pieces[self._ends[number] : self._ends[number + 1]]
        if self._filters is None:
            return sum(piece[4] for piece in pieces)
        return sum(len(part) for piece in pieces for part in self._parts(piece, []))

    def _read(self, number: int, names: Sequence[str | None]) -> list[Any]:
        """The columns of these names of a chunk as arrays, None where there is no name."""
        read = [name for name in names if name is not None]
        pieces = self._pieces[self._ends[number] : self._ends[number + 1]]
        found = [self._piece(piece, read) for piece in pieces] if read else []
        columns = iter(found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True)))
        return [None if name is None else next(columns) for name in names]

    def labels(self, number: int, column: int) -> tuple[Array, Any]:
        """Which label each row of a chunk has, and the labels, an array of Arrow's with one for each at least."""
        pa, name, parts = arrow(), str(self._columns[column]), []
        for piece in self._pieces[self._ends[number] : self._ends[number + 1]]:
            for part in self._parts(piece, [name]):
                found = part.column(name)
                for chunk in found.chunks if hasattr(found, "chunks") else [found]:
                    try:
                        refuse_nulls(chunk, f"columns.{name}")
                    except ArrayError as error:
                        raise within(self._place(piece), error) from None
                    parts.append(chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode())
        if not parts:
            return np.empty(0, np.int64), pa.array([], pa.large_string())
        plain = parts[0].type.value_type
        parts = [x.cast(pa.dictionary(pa.int32(), plain)) for x in parts]
        joined = pa.chunked_array(parts).unify_dictionaries()
        codes = np.concatenate([x.indices.to_numpy(zero_copy_only=False) for x in joined.chunks])
        known = joined.chunk(0).dictionary
        refuse_nulls(known, f"columns.{name}")
        return codes, known

    def _parts(self, piece: Sequence[int], columns: Sequence[str]) -> Iterator[Any]:
        """The rows of a piece that the filters keep, as tables or batches of Arrow's, one or more."""
        which, first, stop, skip, count = piece
        path = self._files[which]
        constant = {name: x[which] for name, x in self._hive.items()}
        with unchanged(path, self._states[which], state_of), touching(path):
            needed = self._needed(columns)
            if skip < 0:
                with _opened(path) as file:
                    constant = {k: x for k, x in constant.items() if k not in file.schema_arrow.names}
                    names, few = [x for x in needed if x not in constant], self._few(file, range(first, stop), columns)
                with _opened(path, few=few) as file:
                    parts: Any = [file.read_row_groups(range(first, stop), columns=names, use_threads=False)]
            else:
                key = which, first, tuple(needed)
                reader = self._held.pop(key, None)
                if reader is None or reader.at > skip:
                    reader = _Reader(path, first, needed)
                parts = reader.rows(skip, count)
                constant = {k: x for k, x in constant.items() if k not in reader.there}
                self._held = {key: reader}
            for part in parts:
                yield self._kept(part, {k: x for k, x in constant.items() if k in needed}, count)

    def _few(self, file: Any, groups: range, columns: Sequence[str]) -> list[str]:
        """The columns of labels that Parquet keeps as dictionaries, as they are many rows of few labels."""
        told = file.metadata
        leaves = [told.schema.column(k).path for k in range(told.num_columns)]
        texts = [x for x, kind in zip(self._columns, self.kinds, strict=False) if kind == TEXT and x in columns]
        found = []
        for name in texts:
            if name in leaves:
                at = leaves.index(name)
                of = [told.row_group(k).column(at) for k in groups]
                if all(x.total_uncompressed_size < 4 * x.num_values + 2**20 for x in of):
                    found.append(str(name))
        return found

    def _kept(self, part: Any, constant: Mapping[str, Any], count: int) -> Any:
        if not constant and self._filters is None:
            return part
        pa = arrow()
        table = pa.Table.from_batches([part]) if isinstance(part, pa.RecordBatch) else part
        rows = len(table) or (count if not table.num_columns else 0)
        for name, x in constant.items():
            codes = pa.array(np.zeros(rows, np.int32))
            column = (
                pa.DictionaryArray.from_arrays(codes, pa.array([x])) if isinstance(x, str) else pa.array([x] * rows)
            )
            table = table.append_column(name, column)
        if self._filters is None:
            return table
        from pyarrow.parquet import filters_to_expression

        return table.filter(filters_to_expression([tuple(x) for x in self._filters]))

    def _piece(self, piece: Sequence[int], columns: Sequence[str]) -> list[Array]:
        made: list[Array] = []
        done = 0
        for part in self._parts(piece, columns):
            try:
                found = columns_of(part, columns)
            except ArrayError as error:
                raise within(self._place(piece), error) from None
            if piece[3] < 0:
                made, done = found, len(part)
                continue
            made = made or [np.empty(piece[4], x.dtype) for x in found]
            for out, x in zip(made, found, strict=True):
                out[done : done + len(part)] = x
            done += len(part)
        return [x[:done] for x in made]

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        pieces = self._pieces[self._ends[number] : self._ends[number + 1]]
        random = np.random.default_rng(number)
        which, first, stop, skip, rows = pieces[int(random.integers(len(pieces)))]
        group = int(random.integers(first, stop))  # the first row groups of all files may be alike
        coords = self._piece([which, group, group + 1, skip, rows], [str(x) for x in self._columns[:-1]])
        at = random.choice(len(coords[0]), min(count, len(coords[0])), replace=False)
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
            "filters": self._filters,
            "pieces": self._pieces,
            "ends": self._ends[1:],
            "states": self._states,
            "labels": self.kinds,
        }


def _hive_of(files: Sequence[str]) -> dict[str, list[Any]]:
    """The columns that the folders of files name, as in `year=2026/a.parquet`: for each file a value, a number where
    all are.
    """
    told = [dict(_HIVE.findall(os.path.dirname(file))) for file in files]
    found: dict[str, list[Any]] = {}
    for name in told[0] if told else ():
        if all(name in mine for mine in told):
            texts = [unquote(mine[name]) for mine in told]
            numbers = all(re.fullmatch(r"-?\d{1,18}", x) for x in texts)
            found[unquote(name)] = [int(x) for x in texts] if numbers else texts
    return found


class _Reader:
    """A row group, read from its beginning a batch at a time."""

    def __init__(self, path: str, group: int, columns: Sequence[str]) -> None:
        self.at = 0  # the first row that has not been given
        self._file, self._rest = _opened(path, buffered=True), None
        self.there = set(self._file.schema_arrow.names)
        self._batches: Iterator[Any] = self._file.iter_batches(
            _BATCH, row_groups=[group], columns=[x for x in columns if x in self.there], use_threads=False
        )

    def rows(self, skip: int, count: int) -> Iterator[Any]:
        """Rows from `skip` on, in batches. Precondition: they are not behind `at`."""
        done = 0
        while done < count:
            batch = next(self._batches) if self._rest is None else self._rest
            over = min(skip - self.at, len(batch))
            part = batch[over : over + count - done]
            behind = over + len(part)
            self._rest = batch[behind:] if behind < len(batch) else None
            self.at, skip = self.at + behind, skip + len(part)
            done += len(part)
            if len(part):
                yield part


def _at_once(call: Any, files: Sequence[Any]) -> list[Any]:
    if len(files) < 2:
        return [call(file) for file in files]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(call, files))


# Files


def _opened(path: str, *, buffered: bool = False, few: Sequence[str] = ()) -> Any:
    """A Parquet file. buffered: its columns are read piece by piece. few: columns that are read as dictionaries."""
    arrow()
    from pyarrow.parquet import ParquetFile

    source = _Object(path) if is_url(path) else path
    return ParquetFile(
        source,
        buffer_size=_BUFFER if buffered else 0,
        pre_buffer=is_url(path) and not buffered,
        read_dictionary=list(few) or None,
    )


class _Object(Ranges):
    """An object in a store, as the file that pyarrow reads: each read is one request."""

    def __init__(self, url: str) -> None:
        self._read, self._place = obstore_module().get_range, bucket_of(url)
        super().__init__(asked(obstore_module().head, *self._place)["size"])

    def read(self, size: int = -1) -> bytes:
        count = self._size - self._at if size < 0 else min(size, self._size - self._at)
        if count < 1:
            return b""
        found = bytes(asked(self._read, *self._place, start=self._at, length=count))
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
        root = path.rstrip("/")
        with touching(path):
            pages = asked(lambda: list(obstore_module().list(bucket_at(root))))
        names = sorted(entry["path"] for page in pages for entry in page)
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
