"""Where the entries of a build come from, in numbered chunks: tensors, Parquet files, Dask dataframes, functions."""

from __future__ import annotations

import contextlib
import glob
import io
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..arrays import Array
from ..containers.base import is_url, split_path, touching
from ..engine.blocks import Block, blocks_of, read_block
from ..engine.tree import index_dtype
from ..errors import ArrayError, ContainerError, FormatError, OptionError, PathMissingError, Problem, raise_if
from ..formats.structure import in_triangle, read_problems
from ..io import reading
from ..io.kinds import Place, name_of
from ..io.reading import check_lazy
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_entries
from . import tables
from .store import AT_ONCE

Chunk: TypeAlias = tuple[list[Array], Array]  # a coordinate array for each dimension, and the values

_NEIGHBOURS = 64  # entries of a tensor that are sampled at once


class Source(Protocol):
    """Entries in numbered chunks. A number gives the same chunk again, in any process."""

    def __len__(self) -> int:
        """The number of chunks."""

    def read(self, number: int) -> Chunk:
        """A chunk."""

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        """How many entries a chunk has, and the coordinates of about `count` of them, taken at random."""

    def value_type(self) -> np.dtype[Any]:
        """The type of the values of the first chunk. Precondition: there is one."""

    def described(self) -> dict[str, Any]:
        """JSON that differs where the entries may differ. `kind` names the class in SOURCES if it suffices to make the
        source again.
        """


def picked(chunk: Chunk, seed: int, count: int) -> list[Array]:
    """The coordinates of random entries of a chunk."""
    coords, values = chunk
    at = np.random.default_rng(seed).choice(len(values), min(count, len(values)), replace=False)
    return [x[at] for x in coords]


class Tensors:
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
        self._states = [_state_of_tensor(place) for place in places] if states is None else states
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
            _hold_state(name_of(place), self._states[which], _state_of_tensor(place))
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

    def _block(self, number: int) -> tuple[Tensor, Block]:
        which = int(np.searchsorted(self._starts, number, side="right")) - 1
        tensor, blocks = self._tensor(which)
        return tensor, blocks[number - self._starts[which]]

    def read(self, number: int) -> Chunk:
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
        return self._tensor(0)[0].dtype

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


def _state_of_tensor(place: Place) -> Any:
    """The state of the file, or of the header in a folder; None where there is no such thing."""
    if not isinstance(place, str | os.PathLike):
        return None
    path, group = split_path(place)
    if not is_url(path) and not os.path.isdir(path):
        return state_of(path)
    inside = f"{path}/{group}" if group else path
    for name in ("zarr.json", ".zattrs", "binsparse.json", "values.ra"):
        if is_url(path) or os.path.exists(f"{inside}/{name}"):
            with contextlib.suppress(ContainerError):  # a store that only another library knows
                return state_of(f"{inside}/{name}")
    return None


def state_of(path: str) -> list[Any]:
    """What changes where a file or an object changes: its size, and its time or tag."""
    if is_url(path):
        with touching(path):
            import obstore

            told = obstore.head(*_in_store(path))
        return [told["size"], told["e_tag"] or str(told["last_modified"])]
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise PathMissingError(Problem(path, "no such file")) from None
    return [status.st_size, status.st_mtime_ns]


def _hold_state(path: str, known: Any, state: Any) -> None:
    """Raise ContainerError for a file that has changed since a build began."""
    if state != known:
        raise ContainerError(Problem(path, "has changed since the build began; pass another work="))


def _in_store(url: str) -> tuple[Any, str]:
    """The store that has an object, and its key."""
    from obstore.store import from_url

    folder, _, name = url.rpartition("/")
    return from_url(folder), name


class Parquet:
    """Row groups of Parquet files, as many in a chunk as have at most `rows` rows together, and one at least.

    columns: the names of the coordinates in order, and of the values.
    """

    def __init__(
        self, files: Sequence[str], columns: Sequence[str], rows: int, groups: Any = None, states: Any = None
    ) -> None:
        self._files, self._columns, self._rows = list(files), list(columns), rows
        self._states = [state_of(file) for file in files] if states is None else states
        # The number of a file, the first row group, the group behind the last, the rows.
        self._groups: list[list[int]] = self._chunked() if groups is None else groups
        for which, first, stop, rows in self._groups:
            if not (0 <= which < len(self._files) and 0 <= first < stop and rows >= 0):
                raise ValueError("groups")
        if len(self._states) != len(self._files) or not all(isinstance(x, str) for x in (*files, *columns)):
            raise ValueError("files, columns and states")

    def _chunked(self) -> list[list[int]]:
        def rows_of(file: str) -> list[int]:
            with touching(file):
                opened = _parquet(file)
                tables.check_names(opened.schema_arrow.names, self._columns)
                return [opened.metadata.row_group(k).num_rows for k in range(opened.metadata.num_row_groups)]

        found: list[list[int]] = []
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for number, sizes in enumerate(pool.map(rows_of, self._files)):
                for k, size in enumerate(sizes):
                    if k and found[-1][3] + size <= self._rows:
                        found[-1][2:] = [k + 1, found[-1][3] + size]
                    else:
                        found.append([number, k, k + 1, size])
        return found

    def __len__(self) -> int:
        return len(self._groups)

    def _read(self, which: int, groups: Sequence[int]) -> Chunk:
        file = self._files[which]
        _hold_state(file, self._states[which], state_of(file))
        with touching(file):
            table = _parquet(file).read_row_groups(groups, columns=self._columns, use_threads=False)
            *coords, values = tables.columns_of(table, self._columns)
            return coords, values

    def read(self, number: int) -> Chunk:
        file, first, stop, _ = self._groups[number]
        return self._read(file, range(first, stop))

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        file, first, stop, rows = self._groups[number]
        group = int(np.random.default_rng(number).integers(first, stop))  # the first of all files may be alike
        return rows, picked(self._read(file, [group]), number, count)

    def value_type(self) -> np.dtype[Any]:
        with touching(self._files[0]):
            schema, name = _parquet(self._files[0]).schema_arrow, self._columns[-1]
            return tables.type_of(schema.field(name).type, name)

    def described(self) -> dict[str, Any]:
        return {
            "kind": "parquet",
            "files": self._files,
            "columns": self._columns,
            "rows": self._rows,
            "groups": self._groups,
            "states": self._states,
        }


def _parquet(file: str) -> Any:
    tables.arrow()
    from pyarrow.parquet import ParquetFile

    return ParquetFile(_Object(file), pre_buffer=True) if is_url(file) else ParquetFile(file)


class _Object(io.RawIOBase):
    """An object in a store, as the file that pyarrow reads: each read is one request."""

    def __init__(self, url: str) -> None:
        import obstore

        self._read, self._place = obstore.get_range, _in_store(url)
        self._size, self._at = obstore.head(*self._place)["size"], 0

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
        import obstore
        from obstore.store import from_url

        root = path.rstrip("/")
        with touching(path):
            names = sorted(entry["path"] for page in obstore.list(from_url(root)) for entry in page)
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


class Numbered:
    """Chunks that a function makes: function(k) gives the coordinates and the values of chunk k."""

    def __init__(self, function: Callable[[int], tuple[Any, Any]], count: int, ndim: int) -> None:
        self._function, self._count, self._ndim = function, count, ndim

    def __len__(self) -> int:
        return self._count

    def read(self, number: int) -> Chunk:
        coords, values = checked_entries(*self._function(number), self._ndim)
        return coords, np.broadcast_to(values, len(coords[0])) if not values.ndim else values

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        chunk = self.read(number)
        return len(chunk[1]), picked(chunk, number, count)

    def value_type(self) -> np.dtype[Any]:
        return self.read(0)[1].dtype

    def described(self) -> dict[str, Any]:
        name = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        return {"function": f"{getattr(self._function, '__module__', '')}.{name}", "count": self._count}


class DaskFrame:
    """The partitions of a Dask dataframe; each is computed where it is read."""

    def __init__(self, frame: Any, columns: Sequence[str]) -> None:
        tables.check_names(list(frame.columns), columns)
        self._columns = list(columns)
        self._name = frame._name
        self._none = frame._meta[list(columns)]  # the columns, without rows
        self._parts = frame[list(columns)].to_delayed()

    def __len__(self) -> int:
        return len(self._parts)

    def read(self, number: int) -> Chunk:
        table = tables.arrow().Table.from_pandas(
            self._parts[number].compute(scheduler="synchronous"), preserve_index=False
        )
        *coords, values = tables.columns_of(table, self._columns)
        return coords, values

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        chunk = self.read(number)
        return len(chunk[1]), picked(chunk, number, count)

    def value_type(self) -> np.dtype[Any]:
        name = self._columns[-1]
        return tables.type_of(tables.arrow().Schema.from_pandas(self._none).field(name).type, name)

    def described(self) -> dict[str, Any]:
        return {"dask": self._name, "columns": self._columns, "count": len(self)}


# Sources that are made again from their description.
SOURCES: dict[str, Callable[..., Source]] = {"tensors": Tensors, "parquet": Parquet}


def source_of(
    given: Any, shape: tuple[int, ...], rows: int, columns: Sequence[str] | None, count: int | None
) -> Source:
    """The source that an argument of `build` names. Raises OptionError for options that do not fit."""
    if callable(given) or hasattr(given, "to_delayed"):
        if callable(given):
            number = as_integer(count)
            if number is None or number < 0 or columns is not None:
                raise OptionError(Problem("count", f"a function makes a number of chunks, got count={count!r:.40}"))
            return Numbered(given, number, len(shape))
        if columns is None:
            raise OptionError(Problem("columns", "name the columns of the coordinates, and of the values last"))
        return DaskFrame(given, columns)
    if count is not None:
        raise OptionError(Problem("count", "only a function makes a number of chunks; leave it out"))
    if columns is not None:
        return Parquet(parquet_files(given), columns, rows)
    places = list(given) if isinstance(given, list | tuple) else [given]
    places = [os.fspath(x) if isinstance(x, os.PathLike) else x for x in places]
    return Tensors([x if not isinstance(x, str) or is_url(x) else _absolute(x) for x in places], rows)


def _absolute(place: str) -> str:
    path, group = split_path(place)
    return os.path.abspath(path) + (f":{group}" if group is not None else "")
