"""Rows of Parquet files in numbered chunks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ..arrays import Array
from ..containers.base import touching
from ..containers.objects.asking import side_by_side
from ..errors import ArrayError, OptionError, Problem
from ..tensors.labels import TEXT
from .chunks import Chunk, Texts, Volume
from .columns import arrow, cast_to, coordinates_of, flags_of, numbers_of, refuse_nulls, within, without_nulls
from .filters import kept, terms
from .footers import Footer, Greatest, footer_of, told_by
from .label_types import keys_of
from .parquet_files import TURN, Reader, hive_of, known_file
from .states import state_of, unchanged

_TRIED = 2**16  # rows of a column that tell whether most rows differ
_NUMBER = "\0number"  # a column that no file has


class Parquet:
    """The rows of Parquet files, at most `rows` in a chunk: row groups of one file or more, or a part of a row group.

    columns: the names of the coordinates in order, and of the values, or None where rows are counted. filters: which
    rows, as `checked_filters` makes them. casts: types of columns by name. pieces, ends: as in
    `footers.Told`. labels: the kind of the labels in a column of coordinates, or None.
    """

    def __init__(
        self,
        files: Sequence[str],
        columns: Sequence[str | None],
        rows: int,
        filters: Any = None,
        casts: Mapping[str, str] | None = None,
        pieces: Sequence[Sequence[int]] | None = None,
        ends: Sequence[int] | None = None,
        states: Any = None,
        labels: Sequence[str | None] | None = None,
    ) -> None:
        self._files, self._columns, self._rows = list(files), list(columns), rows
        self._states = list(side_by_side(state_of, self._files, turn=TURN)) if states is None else states
        self._casts = dict(casts or {})
        self._type: np.dtype[Any] | None = None
        self._greatest: list[Greatest] = []
        self._held: dict[Any, Reader] = {}  # the row group of which a part was read last
        self._filters = filters
        self._hive = hive_of(self._files)
        texts = [*files, *(x for x in columns if x is not None), *self._casts, *self._casts.values()]
        if len(self._states) != len(files) or len(columns) < 2 or not all(isinstance(x, str) for x in texts):
            raise ValueError("files, columns and states")
        if not all(isinstance(x, list) and x and isinstance(x[0], int) for x in self._states):
            raise ValueError("states")
        if pieces is None or ends is None:
            told = told_by(self._files, self._columns, rows, self._footers())
            pieces, ends, labels = told.pieces, told.ends, told.kinds
            self._type, self._greatest = told.dtype, told.greatest
        self._pieces, self._ends = [list(map(int, piece)) for piece in pieces], [0, *map(int, ends)]
        self.kinds = list(labels or [None] * (len(columns) - 1))
        sound = all(
            0 <= file < len(self._files) and 0 <= first < stop and skip >= -1 and count >= 0
            for file, first, stop, skip, count in self._pieces
        )
        if not sound or self._ends != sorted(self._ends) or self._ends[-1] != len(self._pieces):
            raise ValueError("pieces and ends")
        if len(self.kinds) != len(columns) - 1 or None in self._columns[:-1]:
            raise ValueError("labels and columns")

    def _footers(self) -> Iterator[Footer]:
        def of(number: int) -> Footer:
            hive = {name: x[number] for name, x in self._hive.items()}
            return footer_of(self._files[number], self._states[number], self._columns, self._filters, hive, self._casts)

        return side_by_side(of, range(len(self._files)), turn=TURN)

    def _needed(self, columns: Sequence[str]) -> list[str]:
        """The columns that are read for these: those of the filters too."""
        return list(dict.fromkeys([*columns, *(x[0] for x in terms(self._filters))]))

    def least(self, dimension: int) -> int:
        """A size that holds all coordinates of a dimension, as the statistics of the row groups tell, or all labels,
        which are no more than the rows. Raises OptionError where files do not tell it.
        """
        if self.kinds[dimension] is not None:
            return max(self.rows, 1)
        greatest = self._greatest[dimension]
        if isinstance(greatest, str):
            what = f"{greatest} has no statistics of {self._columns[dimension]}; pass the size of the dimension"
            raise OptionError(Problem("shape", what))
        return int(greatest) + 1

    @property
    def rows(self) -> int:
        """The rows of all files, whatever filters keep."""
        return sum(piece[4] for piece in self._pieces)

    @property
    def volume(self) -> Volume:
        most = max((sum(piece[4] for piece in self._of(k)) for k in range(len(self))), default=0)
        size = sum(state[0] for state in self._states)
        return Volume(self.rows, size, len(self._files), most, sum(piece[3] == 0 for piece in self._pieces))

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

    def places(self, number: int, rows: Array) -> list[str]:
        """The places of rows of a chunk: file, row group, and row in it."""
        found, before = [], 0
        for piece in self._of(number):
            kept = self._kept_rows(piece)
            mine = rows[(rows >= before) & (rows < before + len(kept))] - before
            before += len(kept)
            if len(mine):
                path, first = self._files[piece[0]], piece[1]
                with known_file(path, self._states[piece[0]]) as opened:
                    told = opened().metadata
                    sizes = [told.row_group(k).num_rows for k in range(first, piece[2])]
                begins = np.append(0, np.cumsum(sizes))
                for row in (kept[mine] + max(piece[3], 0)).tolist():
                    group = int(np.searchsorted(begins, row, side="right")) - 1
                    found.append(f"{path}, row group {first + group}, row {row - begins[group]}")
        return found

    def _kept_rows(self, piece: Sequence[int]) -> Array:
        """The rows of a piece that the filters keep, counted from its first."""
        if self._filters is None:
            return np.arange(piece[4])
        found = [np.asarray(part.column(_NUMBER)) for part in self._parts(piece, [], numbered=True)]
        return np.concatenate([np.empty(0, np.int64), *found])

    def _of(self, number: int) -> list[list[int]]:
        """The pieces of a chunk."""
        return self._pieces[self._ends[number] : self._ends[number + 1]]

    def read(self, number: int) -> Chunk:
        ndim, counted = len(self.kinds), self._columns[-1] is None
        wanted = [k for k, kind in enumerate(self.kinds) if kind is None] + ([] if counted else [ndim, ndim + 1])
        found = self._read(self._of(number), wanted)
        values = np.ones(self._count(number), np.int64) if counted else found[ndim]
        coords: list[Any] = [found.get(k) for k in range(ndim)]
        return coords + ([] if counted else [found[ndim + 1]]), values

    def coordinates(self, number: int) -> list[Any]:
        """The coordinates of a chunk, without those that are labels."""
        found = self._read(self._of(number), [k for k, kind in enumerate(self.kinds) if kind is None])
        return [found.get(k) for k in range(len(self.kinds))]

    def _count(self, number: int) -> int:
        """The rows of a chunk."""
        pieces = self._of(number)
        if self._filters is None:
            return sum(piece[4] for piece in pieces)
        return sum(len(part) for piece in pieces for part in self._parts(piece, []))

    def _read(self, pieces: Sequence[Sequence[int]], wanted: Sequence[int]) -> dict[int, Any]:
        """Arrays of the rows of these pieces: coordinates by dimension; behind these the values, and their flags."""
        if not wanted:
            return {}
        found = list(side_by_side(lambda piece: self._piece(piece, wanted), pieces, turn=TURN))
        columns = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
        return dict(zip(wanted, columns, strict=True))

    def held_labels(self, number: int, dimension: int) -> None:
        """Each row says its label."""

    def labels(self, number: int, dimension: int) -> tuple[Array, Texts]:
        """Which label each row of a chunk has, below zero for a null, and the labels: one for each at least."""
        pa, name = arrow(), str(self._columns[dimension])

        def of(piece: Sequence[int]) -> list[Any]:
            found = []
            for part in self._parts(piece, [name]):
                with self._naming(piece):
                    texts = cast_to(part.column(name), self._casts.get(name), name)
                chunks = texts.chunks if hasattr(texts, "chunks") else [texts]
                found += [x if pa.types.is_dictionary(x.type) else _encoded(x) for x in chunks]
            return found

        parts = [x for found in side_by_side(of, self._of(number), turn=TURN) for x in found]
        if not parts:
            return np.empty(0, np.int64), keys_of(pa.array([], pa.large_string()))
        plain = parts[0].type.value_type
        parts = [x.cast(pa.dictionary(pa.int32(), plain)) for x in parts]
        if 2 * sum(len(x.dictionary) for x in parts) <= sum(map(len, parts)):  # else they have little in common
            parts = pa.chunked_array(parts).unify_dictionaries().chunks
            known, firsts = [parts[0].dictionary], [0] * len(parts)
        else:
            known = [x.dictionary for x in parts]
            firsts = [0, *accumulate(map(len, known[:-1]))]
        codes, texts, begins, behind = [], [], [np.zeros(1, np.int64)], 0
        for first, x in zip(firsts, parts, strict=True):
            codes.append(x.indices.fill_null(-1).to_numpy(zero_copy_only=False) + np.int64(first))
            if x.null_count:
                codes[-1][codes[-1] < first] = -1
        for labels in known:
            refuse_nulls(labels, f"columns.{name}")
            octets, ends = keys_of(labels)
            texts.append(octets)
            begins.append(ends[1:] + behind)
            behind += len(octets)
        return np.concatenate(codes), (np.concatenate(texts), np.concatenate(begins))

    def _parts(self, piece: Sequence[int], columns: Sequence[str], *, numbered: bool = False) -> Iterator[Any]:
        """The rows of a piece that the filters keep, as tables or batches of Arrow's, one or more. numbered: with their
        numbers.
        """
        which, first, stop, skip, count = piece
        path, state, done = self._files[which], self._states[which], 0
        constant = {name: x[which] for name, x in self._hive.items()}
        needed = self._needed(columns)
        with contextlib.ExitStack() as around:
            if skip < 0:
                opened = around.enter_context(known_file(path, state))
                file = opened()
                there = file.schema_arrow.names
                if few := self._few(file, range(first, stop), columns):
                    file = opened(few)
                names = [x for x in needed if x in there]
                parts: Any = [file.read_row_groups(range(first, stop), columns=names, use_threads=False)]
            else:
                around.enter_context(unchanged(path, state, state_of))
                around.enter_context(touching(path))
                key = which, first, tuple(needed)
                reader = self._held.pop(key, None)
                if reader is None or reader.at > skip:
                    reader = Reader(path, first, needed)
                parts, there = reader.rows(skip, count), reader.there
                self._held = {key: reader}
            constant = {name: x for name, x in constant.items() if name in needed and name not in there}
            for part in parts:
                numbers = np.arange(done, done + (len(part) if part.num_columns else count)) if numbered else None
                done += len(part)
                yield self._kept(part, constant, count, numbers)

    def _few(self, file: Any, groups: range, columns: Sequence[str]) -> list[str]:
        """The columns of labels that Parquet keeps as dictionaries, as they are many rows of few labels."""
        texts = [x for x, kind in zip(self._columns, self.kinds, strict=False) if kind == TEXT and x in columns]
        if not texts:
            return []
        told, found = file.metadata, []
        leaves = [told.schema.column(k).path for k in range(told.num_columns)]
        for name in texts:
            if name in leaves:
                at = leaves.index(name)
                of = [told.row_group(k).column(at) for k in groups]
                if all(x.total_uncompressed_size < 4 * x.num_values + 2**20 for x in of):
                    found.append(str(name))
        return found

    def _kept(self, part: Any, constant: Mapping[str, Any], count: int, numbers: Array | None) -> Any:
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
        return kept(table if numbers is None else table.append_column(_NUMBER, pa.array(numbers)), self._filters)

    def _piece(self, piece: Sequence[int], wanted: Sequence[int]) -> list[Array]:
        made: list[Array] = []
        done, names = 0, [str(self._columns[min(k, len(self.kinds))]) for k in wanted]
        for part in self._parts(piece, names):
            with self._naming(piece):
                found = [self._array(part.column(name), k) for name, k in zip(names, wanted, strict=True)]
            if piece[3] < 0:
                return found
            made = made or [np.empty(piece[4], x.dtype) for x in found]
            for at, x in enumerate(found):
                if x.dtype != made[at].dtype:  # the first null of a column of coordinates
                    made[at] = made[at].astype(np.int64)
                made[at][done : done + len(part)] = x
            done += len(part)
        return [x[:done] for x in made]

    def _array(self, column: Any, k: int) -> Array:
        """A column as coordinates of dimension k; behind these the values, and the flags."""
        ndim, name = len(self.kinds), str(self._columns[min(k, len(self.kinds))])
        if k < ndim:
            return coordinates_of(column, name, cast=name in self._casts)
        return (
            flags_of(column)
            if k > ndim
            else numbers_of(cast_to(without_nulls(column), self._casts.get(name), name), name)
        )

    @contextlib.contextmanager
    def _naming(self, piece: Sequence[int]) -> Iterator[None]:
        try:
            yield
        except ArrayError as error:
            raise within(self._place(piece), error) from None

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        pieces = self._of(number)
        random = np.random.default_rng(number)
        which, first, stop, skip, rows = pieces[int(random.integers(len(pieces)))]
        group = int(random.integers(first, stop))  # the first row groups of all files may be alike
        coords = self._read([[which, group, group + 1, skip, rows]], range(len(self.kinds)))
        at = random.choice(len(coords[0]), min(count, len(coords[0])), replace=False)
        return sum(piece[4] for piece in pieces), [x[at] for x in coords.values()]

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
            "casts": self._casts,
            "pieces": self._pieces,
            "ends": self._ends[1:],
            "states": self._states,
            "labels": self.kinds,
        }


def _encoded(column: Any) -> Any:
    """A column of Arrow's as codes and labels.

    Where most rows differ, each has a label of its own: to sort equal labels takes less time than to hash all.
    """
    pa = arrow()
    some = column[:_TRIED].dictionary_encode()
    if len(some) == len(column):
        return some
    if column.null_count or 2 * len(some.dictionary) < _TRIED:
        return column.dictionary_encode()
    return pa.DictionaryArray.from_arrays(pa.array(np.arange(len(column), dtype=np.int32)), column)
