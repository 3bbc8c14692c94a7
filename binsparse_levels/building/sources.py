"""The sources of a build: stored tensors, functions, chunks that are read once; their entries as columns."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ..arrays import Array
from ..containers.base import is_url, wrap_errors
from ..containers.interface import is_part
from ..containers.objects.bucket import Bucket
from ..containers.replacing import hold_lock
from ..engine.blocks import Block, blocks_of
from ..engine.parts import check_lazy
from ..errors import ArrayError, BinsparseError, ContainerError, FormatError, OptionError, Problem
from ..formats.structure import expand
from ..io.appending import local_path
from ..io.fitting import joined_labels
from ..io.kinds import StoreLike, split_place
from ..limits import Limits
from ..progress import Progress
from ..tensors.foreign import qualified
from ..tensors.labels import TEXT, Column, Labels, stored_type
from ..tensors.late_imports import Origin, reopened
from ..tensors.tensor import Tensor, inside, remade, tensor_of
from ..tensors.validation import checked_entries, differ
from ..tensors.views import Joined, Mapped
from .plan import Chunk, Plan, Source
from .work import Work, open_work, pages_of

Item = TypeVar("Item")

_KEY_BITS = 63


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


@contextlib.contextmanager
def unchanged(target: StoreLike, origins: Iterable[Origin | None], limits: Limits) -> Iterator[None]:
    """Replace a target that may be one of the sources, within the block.

    Then the lock of the target is held. Raises ContainerError if it has changed since it was opened. A new part changes
    none of its sources.
    """
    place = None if is_part(split_place(target)[1]) else local_path(target)
    own = {origin for origin in origins if origin is not None and place and local_path(origin.place) == place}
    with hold_lock(str(place)) if own else contextlib.nullcontext():
        for origin in own:
            reopened(origin, limits)
        yield


def changed(place: str) -> ContainerError:
    return ContainerError(Problem(place, "has changed since the build began; pass another work="))


# Stored tensors


class Tensors(Source):
    """The entries of opened tensors, about `rows` at a time. named: the name of each, for messages, and the tensor.

    They include the padding of levels, and only one triangle of a structure. Processes open the tensors again.
    """

    def __init__(self, named: Sequence[tuple[str, Tensor]], rows: int) -> None:
        self.tensors = [tensor for _, tensor in named]
        self.states = [inside(tensor).backing.plan.origin for tensor in self.tensors]
        self._names = [name for name, _ in named]
        self._blocks: list[tuple[int, Block]] = []  # the number of a tensor, and a block of it
        for which, (name, tensor) in enumerate(named):
            check_lazy(inside(tensor).source, name, tensor.format.order)
            self._blocks += [(which, block) for block in blocks_of(inside(tensor).source, rows)]

    def __getstate__(self) -> dict[str, Any]:
        named = zip(self.tensors, self.states, strict=True)
        return self.__dict__ | {"tensors": [x if origin is None else remade(x, labels=None) for x, origin in named]}

    def __len__(self) -> int:
        return len(self._blocks)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise FormatError for another shape, ArrayError if fill values, structures or labels differ."""
        first = self.tensors[0]
        for tensor, name in zip(self.tensors, self._names, strict=True):
            if tensor.shape != shape:
                raise FormatError(Problem(name, f"has the shape {tensor.shape}, and {shape} is to be built"))
            if repr((inside(tensor).pad, tensor.structure)) != repr((inside(first).pad, first.structure)):
                what = "has another fill value or structure than the first tensor; make them equal"
                raise ArrayError(Problem(name, what))
        joined_labels(self.tensors, self._names, -1)

    def labels(self, plan: Plan) -> Labels | None:
        if not self.tensors:
            return None
        first, origin = self.tensors[0], self.states[0]
        labelled: Tensor = first if origin is None else reopened(origin, first.limits)
        return inside(labelled).metadata.labels

    def name(self, number: int) -> str:
        which, block = self._blocks[number]
        return f"{self._names[which]}, from position {block.positions.start}"

    def read(self, number: int) -> Chunk:
        which, block = self._blocks[number]
        backing = inside(self.tensors[which]).backing
        listed = backing.stored.read(block)
        return backing.without_padding(*listed) if isinstance(backing, Mapped) else listed

    def value_type(self) -> np.dtype[Any]:
        return common_type([tensor.dtype for tensor in self.tensors], "values")


def entries_in_parts(tensor: Tensor, rows: int) -> Iterator[Chunk]:
    """The entries of a tensor as the user sees it: both triangles, without the padding of levels.

    A view is loaded whole. Any other tensor in a file is read in blocks.
    """
    held = inside(tensor).backing
    if isinstance(held, Joined) and held.lazy:
        for part in held.parts():
            for coords, values in entries_in_parts(tensor_of(part.backing, inside(tensor).metadata), rows):
                yield part.placed(coords), values
        return
    tensor = tensor.load() if held.viewed else tensor
    tree, pad = inside(tensor).source, inside(tensor).pad
    check_lazy(tree, "the tensor", tensor.format.order)
    for coords, values in inside(tensor).backing.blocks(pad, max(rows // 2, 1)):
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
    if isinstance(chunk[1], Tensor) or (getattr(chunk[1], "ndim", 0) > 1 and not isinstance(chunk[1], np.ndarray)):
        what = f"a slab is a pair of a range and a Tensor, got {qualified(chunk[0])} and {qualified(chunk[1])}"
        raise OptionError(Problem("chunks", f"{what}; pass those of Tensor.slabs, or a Tensor of from_scipy"))
    coords, values = checked_entries(chunk[0], chunk[1], ndim)
    count = len(coords[0]) if coords else values.size
    return coords, values if values.ndim else np.broadcast_to(values, (count,))


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


# Entries as columns: coordinates by stored dimension, and values, checked and in the types of the plan


def columns_of(source: Source, plan: Plan, number: int) -> list[Array]:
    """The columns of a chunk, checked."""
    name = source.name(number)
    try:
        return checked_columns(plan, source.read(number))
    except ArrayError as error:
        raise named(error, name) from None
    except Exception as error:
        if not isinstance(error, BinsparseError):
            error.add_note(name)
        raise


def checked_columns(plan: Plan, chunk: Chunk) -> list[Array]:
    """The columns of a chunk. Raises ArrayError for coordinates out of range, and values that do not fit."""
    coords, values = chunk
    *types, value_type = plan.column_types
    for k, x in enumerate(coords):
        if len(x) and (int(x.min()) < 0 or int(x.max()) >= plan.shape[k]):
            row = int(np.argmax((x < 0) | (x >= plan.shape[k])))
            what = f"{x[row]} is outside dimension {k} of size {plan.shape[k]}, in row {row}"
            remedy = "leave such rows out" if x[row] < 0 else "pass a larger shape, or leave such rows out"
            name = f"coords[{k}]" if plan.names is None else f"columns.{plan.names[k]}"
            raise ArrayError(Problem(name, f"{what}; {remedy}"))
    values = _cast(values, value_type, exact=plan.exact)
    if plan.through is not None:
        coords = list(plan.through.forward(coords))
    stored = [np.ascontiguousarray(coords[k], dtype) for k, dtype in zip(plan.parsed.order, types, strict=True)]
    return [*stored, np.ascontiguousarray(values)]


def represents(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Return True if a type represents every value of another exactly.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> represents(np.dtype(float), np.dtype("int32")), represents(np.dtype(float), np.dtype("int64"))
    (True, False)
    """
    if not np.can_cast(narrow, wide, "safe"):
        return False
    if narrow.kind not in "iu" or wide.kind not in "fc":
        return True
    return 8 * narrow.itemsize - (narrow.kind == "i") <= np.finfo(wide).nmant + 1


def _cast(values: Array, dtype: np.dtype[Any], *, exact: bool) -> Array:
    """Cast values to the type of the tensor. Raises ArrayError if one of them does not fit.

    exact: True if the caller has not chosen the type. Floats that would be rounded are then an error too.
    """
    if not values.size or represents(dtype, values.dtype):
        return values.astype(dtype, copy=False)
    if not np.can_cast(values.dtype, dtype, "same_kind"):
        what = f"values of type {values.dtype}, but the first were {dtype}; pass dtype="
        raise ArrayError(Problem("values", what))
    with np.errstate(over="ignore", invalid="ignore"):
        made = values.astype(dtype)
    if dtype.kind in "iu":
        fits = values.min() >= np.iinfo(dtype).min and values.max() <= np.iinfo(dtype).max
    elif exact:
        back = (made if values.dtype.kind == "c" else made.real).astype(values.dtype)
        fits = np.array_equal(back, values, equal_nan=values.dtype.kind in "fc")
    else:
        fits = bool((np.isfinite(made) | ~np.isfinite(values)).all())
    if not fits:
        raise ArrayError(Problem("values", f"exceed the type {dtype}; pass dtype={values.dtype.name!r}"))
    return made


def keys_of(columns: Sequence[Array], dims: Sequence[int]) -> Array:
    """A sort key for each entry: the first 63 bits of its coordinates. Entries in order have ascending keys."""
    keys, left = np.zeros(len(columns[0]) if columns else 0, np.int64), _KEY_BITS
    for x, size in zip(columns, dims, strict=True):
        width = max(size - 1, 0).bit_length()
        bits = min(width, left)
        left -= bits
        if bits:
            keys <<= bits
            keys |= x >> (width - bits)
    return keys


def follow(first: Sequence[Array], last: Sequence[Array]) -> Array:
    """A mask of the entries of `first` that come after those of `last` in lexicographic order."""
    later = np.zeros(len(first[0]), bool)
    for a, b in zip(first[::-1], last[::-1], strict=True):
        later = (a > b) | ((a == b) & later)
    return later


def columns_in(types: Sequence[np.dtype[Any]], block: Array) -> list[Array]:
    """The columns of entries, as views of the bytes in which they are concatenated. types: of the columns."""
    count, begin, found = len(block) // sum(dtype.itemsize for dtype in types), 0, []
    for dtype in types:
        end = begin + count * dtype.itemsize
        found.append(block[begin:end].view(dtype))
        begin = end
    return found


def grouped(items: Iterable[Item], size: Callable[[Item], int], most: int) -> list[list[Item]]:
    """Consecutive items in groups of at most `most` in total size, unless an item alone is larger."""
    groups: list[list[Item]] = []
    room = 0
    for item in items:
        if not groups or size(item) > room:
            groups.append([])
            room = most
        groups[-1].append(item)
        room -= size(item)
    return groups


def concatenated(blocks: list[list[Array]]) -> list[Array]:
    """The concatenated columns of blocks. The list of blocks is emptied."""
    columns = blocks[0] if len(blocks) == 1 else [np.concatenate(x) for x in zip(*blocks, strict=True)]
    blocks.clear()
    return columns


def blocks(plan: Plan, chunks: Iterable[Chunk]) -> Iterator[list[Array]]:
    """The columns of entries, in blocks of half the entries that fit: a block is made while another is written."""
    pending: list[list[Array]] = []
    most = room = max(plan.rows // 2, 1)
    for number, chunk in enumerate(chunks):
        try:
            columns = checked_columns(plan, chunk)
        except ArrayError as error:
            raise named(error, f"chunk {number}") from None
        while len(columns[-1]):
            pending.append([x[:room] for x in columns])
            columns = [x[room:] for x in columns]
            room -= len(pending[-1][-1])
            if not room:
                yield concatenated(pending)
                room = most
    if pending:
        yield concatenated(pending)


def named(error: ArrayError, chunk: str) -> ArrayError:
    """The same problems, prefixed by the name of the chunk."""
    return ArrayError([Problem(f"{chunk}: {x.path}", x.message) for x in error.problems])
