"""Where the entries of a build come from, in numbered chunks: tensors, Parquet files, Dask dataframes, functions."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import Array
from ..containers.base import is_url, split_path
from ..errors import ArrayError, OptionError, Problem
from ..io.kinds import Place
from ..limits import as_integer
from ..tensors.validation import checked_entries
from .chunks import Chunk, Rows, Source, picked
from .columns import arrow, check_names, entries_of, type_of
from .filters import checked_filters
from .identity import identity_of
from .onto import Onto
from .parquet import Parquet
from .parquet_files import parquet_files
from .stored_tensors import Tensors


class Numbered(Rows):
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


class DaskFrame(Rows):
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


def remade(described: Mapping[str, Any]) -> Source:
    """The source of a description whose kind is in SOURCES.

    Raises TypeError, ValueError, AttributeError, IndexError, KeyError for one that is damaged.
    """
    told = dict(described)
    onto = told.pop("onto", None)
    source = SOURCES[told.pop("kind")](**told)
    return source if onto is None else Onto(remade_tensors(onto), source)


def remade_tensors(described: Mapping[str, Any]) -> Tensors:
    return Tensors(**{name: x for name, x in described.items() if name != "kind"})


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
    merged: bool = False,
) -> Source:
    """The source that an argument of `build` names. again: another call may go on with the build. merged: it is merged
    into a tensor.

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
        return Parquet(parquet_files(given), columns, rows, checked_filters(filters), casts)
    places = list(given) if isinstance(given, list | tuple) else [given]
    return Tensors(list(map(absolute, places)), rows, merged=merged)


def absolute(place: Place) -> Place:
    """A place as other processes understand it."""
    place = os.fspath(place) if isinstance(place, os.PathLike) else place
    if not isinstance(place, str) or is_url(place):
        return place
    path, group = split_path(place)
    return os.path.abspath(path) + (f":{group}" if group is not None else "")
