"""Where the entries of a build come from, in numbered chunks: tensors, Parquet files, Dask dataframes, functions."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np

from ..arrays import Array
from ..containers.base import is_url, split_path
from ..engine.blocks import Block, blocks_of, read_block
from ..engine.tree import index_dtype
from ..errors import ArrayError, FormatError, OptionError, Problem, raise_if
from ..formats.structure import in_triangle, read_problems
from ..io import reading
from ..io.kinds import Place, name_of
from ..io.reading import check_lazy
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_entries
from .columns import arrow, check_names, entries_of, type_of
from .identity import identity_of
from .parquet import Chunk, Parquet
from .parquet_files import parquet_files
from .states import state_of_tensor, unchanged
from .values import common_type

_NEIGHBOURS = 64  # entries of a tensor that are sampled at once


class Source(Protocol):
    """Entries in numbered chunks. A number gives the same chunk again, in any process."""

    def __len__(self) -> int:
        """The number of chunks."""

    def read(self, number: int) -> Chunk:
        """A chunk."""

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        """How many entries a chunk has, and the coordinates of about `count` of them, taken at random."""

    def name(self, number: int) -> str:
        """The place of a chunk, for messages."""

    def places(self, number: int, rows: Array) -> list[str]:
        """The places of rows of a chunk, for messages."""

    def value_type(self) -> np.dtype[Any]:
        """The type that has all values, told by what is cheap to read. Raises ArrayError, OptionError."""

    def described(self) -> dict[str, Any]:
        """JSON that differs where the entries may differ. `kind` names the class in SOURCES if it suffices to make the
        source again.
        """


def picked(chunk: Chunk, seed: int, count: int) -> list[Array]:
    """The coordinates of random entries of a chunk."""
    coords, values = chunk
    at = np.random.default_rng(seed).choice(len(values), min(count, len(values)), replace=False)
    return [x[at] for x in coords]


class _Rows:
    """Rows that have no place but their number in a chunk."""

    def places(self: Source, number: int, rows: Array) -> list[str]:
        return [f"{self.name(number)}, row {row}" for row in rows.tolist()]


class Tensors(_Rows):
    """The entries of the stored tensors at some places, of one shape, `rows` at a time. A tensor with a structure
    gives those of its triangle.
    """

    def __init__(
        self,
        places: Sequence[Place],
        rows: int,
        starts: Sequence[int] = (),
        states: Any = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self._places, self._rows = list(places), rows
        self._limits = asdict(DEFAULT_LIMITS) if limits is None else limits
        self._opened: dict[int, tuple[Tensor, list[Block]]] = {}
        self._starts = list(starts)  # the number of the first chunk of each tensor
        self._states = [state_of_tensor(place) for place in places] if states is None else states
        if len(self._states) != len(self._places) or (starts and not _ascend(self._starts, len(places))):
            raise ValueError("states and starts")
        if not starts:
            sizes = [len(self._tensor(k)[1]) for k in range(len(places))]
            self._starts = [0, *np.cumsum(sizes, dtype=np.int64).tolist()]

    def __len__(self) -> int:
        return self._starts[-1]

    def _tensor(self, which: int) -> tuple[Tensor, list[Block]]:
        if which not in self._opened:
            place = self._places[which]
            tensor = reading.open(place, limits=Limits(**self._limits)).stored
            check_lazy(tensor._source, name_of(place), tensor.format.order)
            self._opened[which] = tensor, list(blocks_of(tensor._source, self._rows))
        return self._opened[which]

    def agreed(self, shape: tuple[int, ...]) -> tuple[Any, str | None]:
        """The fill value and the structure of all tensors. Raises FormatError for another shape, and for a map, whose
        stored coordinates mean others; ArrayError where tensors differ.
        """
        found: list[tuple[Any, str | None]] = []
        for place in self._places:
            tensor = reading.open(place, limits=Limits(**self._limits))
            if tensor.map is not None:
                raise FormatError(Problem(name_of(place), "is stored through a map; convert it without_map() first"))
            if tensor.shape != shape:
                raise FormatError(Problem(name_of(place), f"has the shape {tensor.shape}, and {shape} is to be built"))
            found.append((tensor.fill_value, tensor.structure))
            if str(found[-1]) != str(found[0]):
                what = "has another fill value or structure than the first tensor; make them equal"
                raise ArrayError(Problem(name_of(place), what))
        return found[0] if found else (None, None)

    def _block_of(self, number: int) -> tuple[int, int]:
        """The number of a tensor, and of a block in it."""
        which = int(np.searchsorted(self._starts, number, side="right")) - 1
        return which, number - self._starts[which]

    def _block(self, number: int) -> tuple[Tensor, Block]:
        which, block = self._block_of(number)
        tensor, blocks = self._tensor(which)
        return tensor, blocks[block]

    def name(self, number: int) -> str:
        which, block = self._block_of(number)
        return f"{name_of(self._places[which])}, block {block}"

    def read(self, number: int) -> Chunk:
        place = self._places[which := self._block_of(number)[0]]
        with unchanged(place, self._states[which], state_of_tensor):
            tensor, block = self._block(number)
            tree = tensor._source
            coords, values = _entries(tensor, block)
        if tensor.structure is None:
            return coords, values
        raise_if(ArrayError, read_problems(tensor.structure, coords, values, padded=tree.padded))
        inside = in_triangle(tensor.structure, coords)
        return [x[inside] for x in coords], values[inside]

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        tensor, block = self._block(number)
        if block.entries is not None:
            return block.size, picked(self.read(number), number, count)
        first, behind = block.positions.start, block.positions.stop
        starts = np.linspace(first, max(behind - _NEIGHBOURS, first), max(count // _NEIGHBOURS, 1))
        found = [
            _entries(tensor, Block(range(start, min(start + _NEIGHBOURS, behind))))[0]
            for start in np.unique(starts.astype(np.int64)).tolist()
        ]
        return block.size, [np.concatenate(x) for x in zip(*found, strict=True)]

    def value_type(self) -> np.dtype[Any]:
        types = [reading.open(place, limits=Limits(**self._limits)).dtype for place in self._places]
        if not types:
            raise OptionError(Problem("dtype", "there are no chunks to tell the type of the values; pass dtype="))
        if (found := common_type(types)) is None:
            what = f"no type has the values of {', '.join(sorted(set(map(str, types))))}; pass dtype="
            raise ArrayError(Problem("values", what))
        return found

    def described(self) -> dict[str, Any]:
        places = [place if isinstance(place, str) else name_of(place) for place in self._places]
        return {
            "kind": "tensors",
            "places": places,
            "rows": self._rows,
            "starts": self._starts,
            "states": self._states,
            "limits": self._limits,
        }


def _ascend(starts: Sequence[int], count: int) -> bool:
    return len(starts) == count + 1 and starts[0] == 0 and all(a <= b for a, b in itertools.pairwise(starts))


def _entries(tensor: Tensor, block: Block) -> Chunk:
    tree = tensor._source
    columns, values = read_block(tree, block, index_dtype(tree.dims, 0))
    return [columns[tensor.format.order.index(k)] for k in range(tensor.ndim)], values


class Numbered(_Rows):
    """Chunks that a function makes: function(k) gives the coordinates and the values of chunk k.

    key: what tells the function from others. None: no other function counts as the same.
    """

    def __init__(self, function: Callable[[int], tuple[Any, Any]], count: int, ndim: int, key: str | None) -> None:
        self._function, self._count, self._ndim = function, count, ndim
        self._key = uuid.uuid4().hex if key is None else key

    def __len__(self) -> int:
        return self._count

    def name(self, number: int) -> str:
        return f"chunk {number} of {getattr(self._function, '__qualname__', type(self._function).__qualname__)}"

    def read(self, number: int) -> Chunk:
        return pair_of(self._function(number), self._ndim)

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        chunk = self.read(number)
        return len(chunk[1]), picked(chunk, number, count)

    def value_type(self) -> np.dtype[Any]:
        if not self._count:
            raise OptionError(Problem("dtype", "there are no chunks to tell the type of the values; pass dtype="))
        return self.read(0)[1].dtype

    def described(self) -> dict[str, Any]:
        return {"function": self._key, "count": self._count}


def pair_of(chunk: Any, ndim: int) -> Chunk:
    """Coordinates and values that a caller gives, as arrays. Raises ArrayError, OptionError."""
    if not isinstance(chunk, Sequence) or isinstance(chunk, str | bytes) or len(chunk) != 2:
        what = f"a chunk is a pair of coordinates and values, got {chunk!r:.40}; see pack"
        raise OptionError(Problem("chunks", what))
    coords, values = checked_entries(chunk[0], chunk[1], ndim)
    count = len(coords[0]) if coords else values.size
    return coords, values if values.ndim else np.broadcast_to(values, (count,))


class DaskFrame(_Rows):
    """The partitions of a Dask dataframe; each is computed where it is read."""

    def __init__(self, frame: Any, columns: Sequence[str]) -> None:
        check_names(list(frame.columns), columns)
        self._columns = list(columns)
        self._name = frame._name
        self._none = frame._meta[list(columns)]  # the columns, without rows
        self._parts = frame[list(columns)].to_delayed()

    def __len__(self) -> int:
        return len(self._parts)

    def name(self, number: int) -> str:
        return f"partition {number} of {self._name}"

    def read(self, number: int) -> Chunk:
        part = self._parts[number].compute(scheduler="synchronous")
        return entries_of(arrow().Table.from_pandas(part, preserve_index=False), self._columns)

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        chunk = self.read(number)
        return len(chunk[1]), picked(chunk, number, count)

    def value_type(self) -> np.dtype[Any]:
        name = self._columns[-1]
        return type_of(arrow().Schema.from_pandas(self._none).field(name).type, name)

    def described(self) -> dict[str, Any]:
        return {"dask": self._name, "columns": self._columns, "count": len(self)}


# Sources that are made again from their description.
SOURCES: dict[str, Callable[..., Source]] = {"tensors": Tensors, "parquet": Parquet}


def source_of(
    given: Any,
    ndim: int,
    rows: int,
    columns: Sequence[str | None] | None,
    count: int | None,
    key: str | None,
    again: bool,
    filters: Any = None,
    casts: Mapping[str, str] | None = None,
) -> Source:
    """The source that an argument of `build` names. again: another call may go on with the build.

    Raises OptionError for options that do not fit.
    """
    if key is not None and not (callable(given) and isinstance(key, str)):
        raise OptionError(Problem("key", f"a text that tells a function from others, got {key!r:.40}; leave it out"))
    if filters is not None and (columns is None or callable(given) or hasattr(given, "to_delayed")):
        raise OptionError(Problem("filters", "only Parquet files have rows to choose from; leave it out"))
    if casts and (columns is None or callable(given) or hasattr(given, "to_delayed")):
        raise OptionError(Problem("dtype", "only columns of Parquet files have types each; pass one type"))
    if callable(given) or hasattr(given, "to_delayed"):
        if callable(given):
            number = as_integer(count)
            if number is None or number < 0 or columns is not None:
                raise OptionError(Problem("count", f"a function makes a number of chunks, got count={count!r:.40}"))
            if again and key is None:
                key = identity_of(given)
            return Numbered(given, number, ndim, key)
        if columns is None or None in columns:
            raise OptionError(Problem("columns", "name the columns of the coordinates, and of the values last"))
        return DaskFrame(given, [str(x) for x in columns])
    if count is not None:
        raise OptionError(Problem("count", "only a function makes a number of chunks; leave it out"))
    if columns is not None:
        if not 2 <= len(columns) == ndim + 1:
            what = f"{len(columns)} names for {ndim} dimensions; name their columns, and that of the values last"
            raise ArrayError(Problem("columns", what))
        return Parquet(parquet_files(given), columns, rows, filters, casts)
    places = list(given) if isinstance(given, list | tuple) else [given]
    places = [os.fspath(x) if isinstance(x, os.PathLike) else x for x in places]
    return Tensors([x if not isinstance(x, str) or is_url(x) else _absolute(x) for x in places], rows)


def _absolute(place: str) -> str:
    path, group = split_path(place)
    return os.path.abspath(path) + (f":{group}" if group is not None else "")
