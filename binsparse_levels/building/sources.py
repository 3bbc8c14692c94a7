"""Where the entries of a build come from, in numbered chunks: stored tensors, row groups of Parquet files, functions,
Dask dataframes. A number gives the same chunk again, in any process.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from glob import escape, glob
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array
from ..containers.base import is_url, split_path, touching
from ..containers.objects.bucket import asked, bucket_at, bucket_of, obstore_module, side_by_side
from ..engine.blocks import Block, blocks_of, read_block
from ..engine.tree import Tree, index_dtype
from ..errors import (
    ArrayError,
    BinsparseError,
    ContainerError,
    FormatError,
    OptionError,
    PathMissingError,
    Problem,
    needing,
    raise_if,
)
from ..formats.structure import expand, in_triangle, read_problems
from ..io import reading
from ..io.joining_labels import joined_labels
from ..io.kinds import Place, name_of
from ..io.reading import check_lazy
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.labels import Labels
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_entries
from ..tensors.views import Mapped
from .columns import Nulls, arrow, check_names, entries_of, type_of
from .entries import Chunk, checked_columns, concatenated, represents
from .plan import Plan

_NEIGHBOURS = 64  # entries of a tensor that are sampled at once
_BATCH = 2**16  # rows of a Parquet file that are decoded at once
_WORTH = 2**20  # rows: a chunk of fewer goes on in the next file


class Source(ABC):
    """Entries in numbered chunks."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of chunks."""

    @abstractmethod
    def name(self, number: int) -> str:
        """The place of a chunk, for messages."""

    @abstractmethod
    def columns(self, plan: Plan, number: int) -> list[Array]:
        """The columns of a chunk, checked."""

    def sample(self, plan: Plan, number: int, count: int) -> tuple[int, list[Array]]:
        """How many entries a chunk has, and the columns of coordinates of about `count` of them, taken at random."""
        *coords, values = self.columns(plan, number)
        at = np.random.default_rng(number).choice(len(values), min(count, len(values)), replace=False)
        return len(values), [x[at] for x in coords]


class Chunks(Source):
    """A source that is read as coordinates and values."""

    @abstractmethod
    def read(self, number: int) -> Chunk:
        """A chunk."""

    @abstractmethod
    def value_type(self) -> np.dtype[Any]:
        """The type that has all values, told by what is cheap to read. Raises ArrayError, OptionError."""

    def columns(self, plan: Plan, number: int) -> list[Array]:
        name = self.name(number)
        try:
            return checked_columns(plan, self.read(number))
        except ArrayError as error:
            raise ArrayError([Problem(f"{name}: {x.path}", x.message) for x in error.problems]) from None
        except Exception as error:
            if not isinstance(error, BinsparseError):
                error.add_note(name)
            raise


def common_type(types: Sequence[np.dtype[Any]], path: str) -> np.dtype[Any]:
    """The smallest type that has every value of these types. Raises ArrayError, OptionError where there is none."""
    if not types:
        raise OptionError(Problem("dtype", "there are no chunks to tell the type of the values; pass dtype="))
    with contextlib.suppress(TypeError):
        found: np.dtype[Any] = np.result_type(*types)
        if all(represents(found, x) for x in types):
            return found
    what = f"no type has the values of {', '.join(sorted(set(map(str, types))))}; pass dtype="
    raise ArrayError(Problem(path, what))


def state_of(path: str) -> Any:
    """What changes where a file or an object changes: its size, and its time or tag."""
    with touching(path):
        if is_url(path):
            told = asked(obstore_module().head, *bucket_of(path))
            return told["size"], told["e_tag"] or str(told["last_modified"])
        status = os.stat(path)
        return status.st_size, status.st_mtime_ns


def _changed(place: str) -> ContainerError:
    return ContainerError(Problem(place, "has changed since the build began; pass another work="))


# Stored tensors


class _Opened(NamedTuple):
    """A tensor, what it stores, and the blocks of its entries."""

    tensor: Tensor
    stored: Tensor
    blocks: list[Block]


class Tensors(Chunks):
    """The entries of the stored tensors at some places, about `rows` at a time.

    These are those that are stored: of a structure one triangle, and the padding of levels.
    """

    def __init__(self, places: Sequence[Place], rows: int, limits: Limits = DEFAULT_LIMITS) -> None:
        self._places, self._rows, self._limits = list(places), rows, limits
        self._tensors: dict[int, _Opened] = {}
        self.states: list[Any] = [None] * len(places)  # what the places were as they were opened first
        counts = [len(self._opened(which).blocks) for which in range(len(places))]
        self._ends = np.cumsum(counts, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tensors": {}}

    def _opened(self, which: int) -> _Opened:
        if which not in self._tensors:
            place = self._places[which]
            tensor = reading.open(place, limits=self._limits)
            stored = tensor.stored
            origin = stored._held.stored.origin
            token = None if origin is None else origin.token
            if self.states[which] not in (None, token):
                raise _changed(name_of(place))
            self.states[which] = token
            check_lazy(stored._source, name_of(place), stored.format.order)
            self._tensors[which] = _Opened(tensor, stored, list(blocks_of(stored._source, self._rows)))
        return self._tensors[which]

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise FormatError for another shape, and for a map, below which other coordinates are stored; ArrayError
        where fill values, structures or labels differ.
        """
        tensors, names = [self._opened(k).tensor for k in range(len(self._places))], list(map(name_of, self._places))
        for tensor, name in zip(tensors, names, strict=True):
            if tensor.map is not None:
                raise FormatError(Problem(name, "is stored through a map; convert it without_map() first"))
            if tensor.shape != shape:
                raise FormatError(Problem(name, f"has the shape {tensor.shape}, and {shape} is to be built"))
            if repr((tensor._pad(), tensor.structure)) != repr((tensors[0]._pad(), tensors[0].structure)):
                what = "has another fill value or structure than the first tensor; make them equal"
                raise ArrayError(Problem(name, what))
        joined_labels(tensors, names, -1)

    def _block_of(self, number: int) -> tuple[int, int]:
        """The number of a tensor, and of a block in it."""
        which = int(np.searchsorted(self._ends, number, side="right"))
        return which, number - (int(self._ends[which - 1]) if which else 0)

    def name(self, number: int) -> str:
        which, block = self._block_of(number)
        return f"{name_of(self._places[which])}, block {block}"

    def read(self, number: int) -> Chunk:
        which, at = self._block_of(number)
        opened = self._opened(which)
        return stored_entries(opened.stored, opened.blocks[at])

    def sample(self, plan: Plan, number: int, count: int) -> tuple[int, list[Array]]:
        which, at = self._block_of(number)
        opened = self._opened(which)
        block = opened.blocks[at]
        if block.entries is not None or not block.size:
            return super().sample(plan, number, count)
        first, stop = block.positions.start, block.positions.stop
        starts = np.linspace(first, max(stop - _NEIGHBOURS, first), max(count // _NEIGHBOURS, 1))
        found = [
            checked_columns(plan, stored_entries(opened.stored, Block(range(k, min(k + _NEIGHBOURS, stop)))))[:-1]
            for k in np.unique(starts.astype(np.int64)).tolist()
        ]
        return block.size, concatenated(found)

    @property
    def first(self) -> Tensor | None:
        """The first tensor, whose labels and attributes are kept."""
        return self._opened(0).tensor if self._places else None

    @property
    def labels(self) -> Labels | None:
        """The labels of the first tensor, read where they are sliced."""
        return None if self.first is None else self.first._metadata.labels

    def value_type(self) -> np.dtype[Any]:
        return common_type([self._opened(which).tensor.dtype for which in range(len(self._places))], "values")


def stored_entries(stored: Tensor, block: Block) -> Chunk:
    """The entries in a block of a tensor without a map; of a structure one triangle."""
    tree = stored._source
    columns, values = read_block(tree, block, index_dtype(tree.dims, 0))
    coords = [columns[stored.format.order.index(k)] for k in range(stored.ndim)]
    if stored.structure is not None:
        raise_if(ArrayError, read_problems(stored.structure, coords, values, padded=tree.padded))
        inside = in_triangle(stored.structure, coords)
        coords, values = [x[inside] for x in coords], values[inside]
    return coords, values


def entries_in_parts(tensor: Tensor, rows: int) -> Iterator[Chunk]:
    """The entries of a tensor as the user sees it: of both triangles, and without the padding of levels."""
    stored = tensor.stored
    tree, pad = stored._source, tensor._pad()
    check_lazy(tree, "the tensor", stored.format.order)
    for block in blocks_of(tree, max(rows // 2, 1)):
        coords, values = stored_entries(stored, block)
        if tree.padded:
            with np.errstate(invalid="ignore"):
                kept = ~((values == pad) | ((values != values) & bool(pad != pad)))
            coords, values = [x[kept] for x in coords], values[kept]
        if stored.structure is not None:
            both, values = expand(stored.structure, coords, values)
            coords = list(both)
        if isinstance(mapped := tensor._held, Mapped):
            there, values = mapped.seen(coords, values)
            coords = list(there)
        yield coords, values


def pointers_of(tree: Tree) -> float:
    """How many pointers a tree has for each entry."""
    return sum(n for place, _, n in tree.walk() if place.pointer) / max(len(tree.values), 1)


# Parquet files


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
                raise _changed(path)
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


def names_in(columns: Sequence[str | None]) -> list[str]:
    """The names of the columns that are read."""
    return [x for x in columns if x is not None]


# Functions and Dask dataframes


class Numbered(Chunks):
    """Chunks that a function makes: function(k) gives the coordinates and the values of chunk k."""

    def __init__(self, function: Callable[[int], tuple[Any, Any]], count: int, ndim: int) -> None:
        self._function, self._count, self._ndim = function, count, ndim

    def __len__(self) -> int:
        return self._count

    def name(self, number: int) -> str:
        return f"chunk {number} of {getattr(self._function, '__qualname__', type(self._function).__qualname__)}"

    def read(self, number: int) -> Chunk:
        return pair_of(self._function(number), self._ndim)

    def value_type(self) -> np.dtype[Any]:
        return common_type([self.read(0)[1].dtype] if self._count else [], "values")


def pair_of(chunk: Any, ndim: int) -> Chunk:
    """Coordinates and values that a caller gives, as arrays. Raises ArrayError, OptionError."""
    if not isinstance(chunk, Sequence) or isinstance(chunk, str | bytes) or len(chunk) != 2:
        what = f"a chunk is a pair of coordinates and values, got {chunk!r:.40}; see pack"
        raise OptionError(Problem("chunks", what))
    coords, values = checked_entries(chunk[0], chunk[1], ndim)
    count = len(coords[0]) if coords else values.size
    return coords, values if values.ndim else np.broadcast_to(values, (count,))


def dask_chunks(frame: Any, columns: Sequence[str | None], nulls: Nulls) -> Numbered:
    """The partitions of a Dask dataframe; each is computed where it is read."""
    check_names(list(frame.columns), names_in(columns))
    parts = frame[names_in(columns)].to_delayed()

    def read(number: int) -> Chunk:
        part = parts[number].compute(scheduler="synchronous")
        table = arrow().Table.from_pandas(part, preserve_index=False)
        return entries_of(table, columns, nulls, lambda name: table.column(name).null_count, "frame")

    return Numbered(read, len(parts), len(columns) - 1)


def absolute(place: Place) -> Place:
    """A place as other processes understand it."""
    place = os.fspath(place) if isinstance(place, os.PathLike) else place
    if not isinstance(place, str) or is_url(place):
        return place
    path, group = split_path(place)
    return os.path.abspath(path) + (f":{group}" if group is not None else "")
