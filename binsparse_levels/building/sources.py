"""The sources of a build: stored tensors, functions, and chunks that are read once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import Array
from ..containers.base import is_url, split_path, wrap_errors
from ..containers.objects.bucket import Bucket
from ..engine.blocks import Block, blocks_of
from ..errors import ArrayError, ContainerError, FormatError, OptionError, Problem
from ..formats.structure import expand
from ..io import reading
from ..io.appending import joined_labels
from ..io.kinds import StoreLike, name_of
from ..io.reading import check_lazy
from ..limits import DEFAULT_LIMITS, Limits
from ..progress import Progress
from ..tensors.labels import TEXT, Column, Labels, stored_type
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_entries, differ
from ..tensors.views import Mapped
from .entries import Chunk, Source, columns_in, follow, represents
from .plan import Plan
from .work import Work, open_work, pages_of


def common_type(types: Sequence[np.dtype[Any]], path: str) -> np.dtype[Any]:
    """The smallest type that represents every value of these types. Raises ArrayError, OptionError if there is none."""
    if not types:
        raise OptionError(Problem("dtype", "the type of the values is unknown without chunks; pass dtype="))
    with contextlib.suppress(TypeError):
        found: np.dtype[Any] = np.result_type(*types)
        if all(represents(found, x) for x in types):
            return found
    what = f"no type represents all values of {', '.join(sorted(set(map(str, types))))}; pass dtype="
    raise ArrayError(Problem(path, what))


def state_of(path: str) -> Any:
    """The size of a file or an object, and its modification time or tag. Any change of its content changes these."""
    if is_url(path):
        folder, _, name = path.rpartition("/")
        return Bucket(folder).state(name)
    with wrap_errors(path):
        status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def changed(place: str) -> ContainerError:
    return ContainerError(Problem(place, "has changed since the build began; pass another work="))


# Stored tensors


class Tensors(Source):
    """The entries of the tensors at some places, about `rows` at a time.

    They include the padding of levels, and only one triangle of a structure.
    """

    def __init__(self, places: Sequence[StoreLike], rows: int, limits: Limits = DEFAULT_LIMITS) -> None:
        self._places, self._rows, self._limits = list(places), rows, limits
        self._tensors: dict[int, tuple[Tensor, list[Block]]] = {}
        self.states: list[Any] = [None] * len(places)  # tokens of the places when they were first opened
        self._ends = np.cumsum([len(self._opened(which)[1]) for which in range(len(places))], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tensors": {}}

    def _opened(self, which: int) -> tuple[Tensor, list[Block]]:
        """A tensor, and the blocks of its entries."""
        if which not in self._tensors:
            place = self._places[which]
            tensor = reading.open(place, limits=self._limits)
            stored = tensor.stored
            origin = stored._backing.stored.origin
            token = None if origin is None else origin.token
            if self.states[which] not in (None, token):
                raise changed(name_of(place))
            self.states[which] = token
            check_lazy(stored._source, name_of(place), stored.format.order)
            self._tensors[which] = tensor, list(blocks_of(stored._source, self._rows))
        return self._tensors[which]

    def tensors(self) -> list[Tensor]:
        return [self._opened(which)[0] for which in range(len(self._places))]

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise FormatError for another shape, ArrayError if fill values, structures or labels differ."""
        tensors, names = self.tensors(), list(map(name_of, self._places))
        for tensor, name in zip(tensors, names, strict=True):
            if tensor.shape != shape:
                raise FormatError(Problem(name, f"has the shape {tensor.shape}, and {shape} is to be built"))
            if repr((tensor._pad(), tensor.structure)) != repr((tensors[0]._pad(), tensors[0].structure)):
                what = "has another fill value or structure than the first tensor; make them equal"
                raise ArrayError(Problem(name, what))
        joined_labels(tensors, names, -1)

    def labels(self, plan: Plan) -> Labels | None:
        return self._opened(0)[0]._metadata.labels if self._places else None

    def _block_of(self, number: int) -> tuple[int, int]:
        """The number of a tensor, and of a block in it."""
        which = int(np.searchsorted(self._ends, number, side="right"))
        return which, number - (int(self._ends[which - 1]) if which else 0)

    def name(self, number: int) -> str:
        which, block = self._block_of(number)
        return f"{name_of(self._places[which])}, block {block}"

    def read(self, number: int) -> Chunk:
        which, at = self._block_of(number)
        tensor, blocks = self._opened(which)
        listed = tensor._backing.stored.read(blocks[at])
        return tensor._backing.without_padding(*listed) if isinstance(tensor._backing, Mapped) else listed

    def value_type(self) -> np.dtype[Any]:
        return common_type([tensor.dtype for tensor in self.tensors()], "values")


def entries_in_parts(tensor: Tensor, rows: int) -> Iterator[Chunk]:
    """The entries of a tensor as the user sees it: both triangles, without the padding of levels.

    A view is loaded whole. Any other tensor in a file is read in blocks.
    """
    tensor = tensor.load() if tensor._backing.viewed else tensor
    tree, pad = tensor._source, tensor._pad()
    check_lazy(tree, "the tensor", tensor.format.order)
    for coords, values in tensor._backing.blocks(pad, max(rows // 2, 1)):
        if tree.padded:
            kept = differ(values, pad)
            coords, values = tuple(x[kept] for x in coords), values[kept]
        yield (coords, values) if tensor.structure is None else expand(tensor.structure, coords, values)


# Functions


class Function(Source):
    """Chunks of a function: function(k) returns the coordinates and the values of chunk k."""

    def __init__(self, function: Callable[[int], tuple[Any, Any]], count: int, ndim: int) -> None:
        self._function, self._count, self._ndim = function, count, ndim

    def __len__(self) -> int:
        return self._count

    def name(self, number: int) -> str:
        return f"chunk {number} of {getattr(self._function, '__qualname__', type(self._function).__qualname__)}"

    def read(self, number: int) -> Chunk:
        return pair_of(self._function(number), self._ndim)

    def value_type(self) -> np.dtype[Any]:
        types = []
        for number in range(self._count):
            values = self.read(number)[1]
            types.append(values.dtype)
            if len(values):
                break
        return common_type(types[-1:], "values")


def pair_of(chunk: Any, ndim: int) -> Chunk:
    """The coordinates and values of a chunk from the caller, as arrays. Raises ArrayError, OptionError."""
    if not isinstance(chunk, Sequence) or isinstance(chunk, str | bytes) or len(chunk) != 2:
        what = f"a chunk is a pair of coordinates and values, got {chunk!r:.40}; see pack"
        raise OptionError(Problem("chunks", what))
    coords, values = checked_entries(chunk[0], chunk[1], ndim)
    count = len(coords[0]) if coords else values.size
    return coords, values if values.ndim else np.broadcast_to(values, (count,))


def absolute(place: StoreLike) -> StoreLike:
    """A place as an absolute path, which is valid in other processes."""
    place = os.fspath(place) if isinstance(place, os.PathLike) else place
    if not isinstance(place, str) or is_url(place):
        return place
    path, group = split_path(place)
    return os.path.abspath(path) + (f":{group}" if group is not None else "")


# Chunks that are read once


class Blocks(Source):
    """Blocks of entries in a work folder, as they came.

    raw: the plan with which they were written. count: the number of blocks. known: labels that are not in the folder.
    ranks: new coordinates, by dimension.
    """

    def __init__(self, address: str, raw: Plan, count: int = 0) -> None:
        self._address, self._raw, self.count = address, raw, count
        self.known: Labels | None = None
        self.ranks: Mapping[int, Array] = {}

    def __len__(self) -> int:
        return self.count

    def name(self, number: int) -> str:
        return f"block {number} of the chunks"

    def read(self, number: int) -> Chunk:
        columns = columns_in(self._raw.column_types, Work(self._address).get(f"rows/{number}"))
        return ranked(self._raw, columns, self.ranks)

    def value_type(self) -> np.dtype[Any]:
        return self._raw.column_types[-1]

    def labels(self, plan: Plan) -> Labels | None:
        if self.known is not None or plan.names is None:
            return self.known
        (*dims, values), work, columns = plan.names, Work(self._address, plan.id), {}
        for k, type in enumerate(plan.labels):
            if type is not None:
                offsets = work.array(f"labels/{k}-offsets", np.dtype(np.int64)) if type == TEXT else None
                columns[dims[k]] = Column(type, work.array(f"labels/{k}", stored_type(type)), offsets)
        return Labels(tuple(dims), columns, values) if columns else None


def ranked(raw: Plan, columns: Sequence[Array], ranks: Mapping[int, Array]) -> Chunk:
    """The columns of a raw plan as a chunk. ranks: new coordinates, by dimension."""
    coords = [columns[raw.parsed.order.index(k)] for k in range(len(raw.shape))]
    return [ranks[k][x] if k in ranks else x for k, x in enumerate(coords)], columns[-1]


def spilled(folder: str, plan: Plan, blocks: Iterable[list[Array]], progress: Progress | None) -> tuple[Blocks, bool]:
    """Write blocks of a raw plan into the work folder. Returns a source, and True if all their entries ascend."""
    kept, entries = Blocks(folder, plan), 0
    in_order = True
    last: list[Array] = []  # the last coordinates of the block before
    with open_work(folder, plan, kept) as work:
        for columns in blocks:
            if in_order:
                coords = [np.append(*x) for x in zip(last, columns, strict=False)] if last else columns[:-1]
                in_order = bool(follow([x[1:] for x in coords], [x[:-1] for x in coords]).all())
                last = [x[-1:] for x in coords]
            work.put(f"rows/{kept.count}", [list(pages_of(x)) for x in columns])
            kept.count += 1
            entries += len(columns[-1])
            if progress is not None:
                progress("rows", entries, entries)
    return kept, in_order
