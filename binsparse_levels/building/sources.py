"""Where the entries of a build come from, in numbered chunks: stored tensors, functions, Dask dataframes.

A number gives the same chunk again, in any process.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array
from ..containers.base import is_url, split_path, touching
from ..containers.objects.bucket import asked, bucket_of, obstore_module
from ..engine.blocks import Block, blocks_of, read_block
from ..engine.tree import Tree, index_dtype
from ..errors import (
    ArrayError,
    BinsparseError,
    ContainerError,
    FormatError,
    OptionError,
    Problem,
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
from .columns import Nulls, arrow, check_names, entries_of, names_in
from .entries import Chunk, checked_columns, concatenated, represents
from .plan import Plan

_NEIGHBOURS = 64  # entries of a tensor that are sampled at once


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


def changed(place: str) -> ContainerError:
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
                raise changed(name_of(place))
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
