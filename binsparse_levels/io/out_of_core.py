"""Convert a tensor that is larger than memory, by external sorting.

1. The source is read block by block. The entries of a block are written to scratch files by partition, where a
   partition is a range of the target's order.
2. Each partition is read, sorted and packed as a tree of its own.
3. All sizes are then known. Each array is written once, from its beginning to its end; the header follows.

If the target keeps the order of the source, the blocks are the partitions. A step is a function of the plan and a
number. It writes files and returns what later steps need, so an executor may run the steps of a stage in parallel, also
in other processes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from .. import kernels, parallel
from ..arrays import Array, LazyArray, lazy
from ..containers.base import is_url, split_path
from ..containers.replacing import part_of, remove
from ..engine.blocks import read_block
from ..engine.joining import Coords, Part, joined
from ..engine.packing import Entries, ordered_dims, pack_entries
from ..engine.tree import Tree, index_dtype
from ..errors import ArrayError, ContainerError, FormatError, LimitError, OptionError, Problem, raise_if, within_memory
from ..formats.format import FormatLike, coordinates
from ..formats.index_map import MapLike, parse_map
from ..formats.structure import in_triangle, read_problems
from ..levels import Level
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from ..system import resident
from ..tensors.encoding import encode_pieces
from ..tensors.validation import checked_format, mirror_problems
from . import reading
from .kinds import Place, in_memory, name_of
from .reading import check_lazy
from .writing import Progress, check_target, write, write_pieces


class Executor(Protocol):
    """Runs the steps of a stage: an executor of concurrent.futures, or of a cluster with the same interface."""

    def map(self, function: Callable[..., Any], /, *items: Iterable[Any]) -> Iterable[Any]: ...


class _InTurn:
    """Runs one step at a time, so that one block is in memory. The kernels use all threads."""

    def map(self, function: Callable[..., Any], /, *items: Iterable[Any]) -> Iterable[Any]:
        return map(function, *items)


@within_memory
def convert(
    source: Place,
    target: Place,
    format: FormatLike | None = None,
    *,
    map: MapLike | None = None,
    memory: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Write the tensor at `source` to `target`, in another format or its own.

    Parameters
    ----------
    source, target: as the path of `read` and `write`.
    format: the format of the target; by default, that of the source.
    map: an index map, or its notation, through which the target is stored; by default, that of the source. With a
        map and no format, the target lists coordinates.
    memory: bytes that the whole process may use, such as 2**30. Scratch files beside the target need 20 to 40 bytes for
        each entry. By default, the memory is not bounded.
    executor: runs the steps, possibly in other processes. Each process uses so much memory.
    progress: called with the name of a stage, the number of finished steps, and their total.
    overwrite, limits, options: as for `write`.

    Raises the errors of `read`, `Tensor.convert` and `write`; LimitError for too little memory; FormatError if the
    tensor exceeds the memory and a level kind cannot be read or written in parts.

    >>> import binsparse_levels as bl
    >>> source, target = {}, {}
    >>> bl.write(source, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    >>> bl.convert(source, target, "CSC")
    >>> str(bl.read(target).format)
    'CSC'
    """
    opened = reading.open(source, limits=limits)
    if map is not None:
        if memory is not None:
            raise OptionError(
                Problem("memory", "another map needs the whole tensor in memory; leave out map or memory")
            )
        through = parse_map(map, opened.shape)
        listed = coordinates(len(through.groups)) if format is None else format
        write(target, opened.convert(listed, map=through, limits=limits), overwrite=overwrite, limits=limits, **options)
        return
    tensor = opened.stored
    parsed, _ = checked_format(format if format is not None else tensor.format, tensor.shape, limits)
    if tensor.structure is not None:
        raise_if(FormatError, mirror_problems(tensor.structure, parsed, tensor._pad()))
    tree, order = tensor._source, tensor.format.order
    if memory is None or not tree.lazy or in_memory(source) or len(tree.values) <= (size := _block_size(memory, tree)):
        write(target, opened.convert(parsed, limits=limits), overwrite=overwrite, limits=limits, **options)
        return
    stored_at = [order.index(k) for k in parsed.order]
    check_target(target, overwrite=overwrite, kind=options.get("kind"))
    check_lazy(tree, name_of(source), tensor.format.order)
    with scratch(target) as folder:
        plan = _Plan(
            source=source,
            folder=folder,
            levels=parsed.levels,
            order=tuple(stored_at),
            size=size,
            pad=tensor._pad(),
            structure=tensor.structure,
            dimensions=parsed.order,
            limits=limits,
        )
        parts = _ordered(plan, tree, executor or _InTurn(), progress or (lambda *_: None))
        arrays = joined(
            parsed.levels, plan.dims(tree), parts, plan.pad, index_dtype(tree.dims, len(tree.values)), tensor.dtype
        )
        one = np.asarray(tree.values[:1]) if tensor.iso and not parsed.padded else None
        header, pieces = encode_pieces(arrays, parsed, tensor.shape, opened._metadata, one=one, wrappers={})
        write_pieces(target, header, pieces, progress=progress, overwrite=overwrite, limits=limits, **options)


@dataclass(frozen=True)
class _Plan:
    """The parameters of every step.

    order: the source's stored dimension at each of the target's. size: entries of a block. dimensions: the tensor's
    dimension at each of the target's stored ones. structure: the triangle that is taken. splitters: keys at which
    partitions begin.
    """

    source: Place
    folder: str
    levels: tuple[Level, ...]
    order: tuple[int, ...]
    size: int
    pad: Any
    structure: str | None
    dimensions: tuple[int, ...]
    limits: Limits
    splitters: tuple[int, ...] = ()

    def dims(self, tree: Tree) -> Coords:
        return tuple(tree.dims[k] for k in self.order)

    def file(self, name: str) -> str:
        return os.path.join(self.folder, name)


_sources: dict[str, Tree] = {}


def _tree(plan: _Plan) -> Tree:
    """The tree of the source, opened once in every process for every plan."""
    tree = _sources.get(plan.folder)
    if tree is None:
        tree = reading.open(plan.source, limits=plan.limits)._source
        _sources.clear()
        _sources[plan.folder] = tree
    return tree


def _entries(plan: _Plan, number: int) -> tuple[list[Array], Array]:
    """The coordinates, in the target's stored order, and the values of a block of the source."""
    tree = _tree(plan)
    block = range(number * plan.size, min((number + 1) * plan.size, len(tree.values)))
    columns, values = read_block(tree, block, index_dtype(tree.dims, 0))
    columns = [columns[k] for k in plan.order]
    if plan.structure is not None:
        coords = [columns[plan.dimensions.index(k)] for k in range(2)]
        raise_if(ArrayError, read_problems(plan.structure, coords, values, padded=tree.padded))
        inside = in_triangle(plan.structure, coords)
        return [x[inside] for x in columns], values[inside]
    return columns, values


def _ordered(plan: _Plan, tree: Tree, executor: Executor, progress: Progress) -> list[Part]:
    """Sort and pack all entries into trees that follow each other in the target's order."""
    blocks = -(-len(tree.values) // plan.size)

    def stage(name: str, step: Callable[[int], Any], count: int) -> Iterator[Any]:
        progress(name, 0, count)
        for done, made in enumerate(executor.map(step, range(count))):
            progress(name, done + 1, count)
            yield made

    if ordered_dims(plan.order) == len(plan.order) and all(level.ordered for level in tree.levels):
        made = list(stage("packing", partial(_pack_block, plan), blocks))
    else:
        plan = _with_splitters(plan, tree)
        runs = tuple(stage("partitioning", partial(_partition, plan), blocks))
        made = list(stage("packing", partial(_pack_partition, plan, runs), len(plan.splitters) + 1))
        for number in range(blocks):
            _remove(plan, f"run{number}")
    parts = [part for part in made if part is not None]
    for before, after in itertools.pairwise(parts):
        if before.last >= after.first:
            raise ArrayError(Problem("coordinates", f"{after.first} is given more than once, or out of order"))
    return parts


def _keys(columns: Sequence[Array], dims: Sequence[int]) -> Array:
    """A number for each entry, from the first 63 bits of its coordinates; it ascends with the order of the entries."""
    keys = np.zeros(len(columns[0]), np.int64)
    left = 63
    for x, size in zip(columns, dims, strict=True):
        width = max(size - 1, 0).bit_length()
        bits = min(width, left)
        keys <<= bits
        keys |= x >> (width - bits)
        left -= bits
    return keys


_SAMPLES, _SAMPLED = 512, 64  # how many places of the source are looked at, and how many entries at each


def _with_splitters(plan: _Plan, tree: Tree) -> _Plan:
    """Add the keys at which partitions of about equal size begin, estimated from a sample."""
    count = len(tree.values)
    starts = np.unique(np.linspace(0, max(count - _SAMPLED, 0), _SAMPLES).astype(np.int64)).tolist()
    dims = plan.dims(tree)
    found = []
    for start in starts:
        columns, _ = read_block(tree, range(start, min(start + _SAMPLED, count)))
        found.append(_keys([columns[k] for k in plan.order], dims))
    keys = np.sort(np.concatenate(found))
    partitions = -(-4 * count // (3 * plan.size)) + 1  # so that one that is a third larger still fits
    at = np.linspace(0, len(keys), partitions + 1).astype(np.int64)[1:-1]
    return _Plan(**{**plan.__dict__, "splitters": tuple(np.unique(keys[at]).tolist())})


def _partition(plan: _Plan, number: int) -> tuple[int, ...]:
    """Write the entries of a block by partition: a file for each dimension, and one for the values. Returns the offsets
    at which the partitions begin.
    """
    columns, values = _entries(plan, number)
    dims = plan.dims(_tree(plan))
    numbers, counts = np.empty(len(values), np.uint16), np.zeros(len(plan.splitters) + 1, np.uint64)
    keys, splitters = kernels.readable(_keys(columns, dims)), kernels.readable(np.array(plan.splitters, np.int64))
    kernels.sorting.number_partitions(keys, splitters, numbers, counts)
    ends = np.cumsum(counts, dtype=np.uint64)
    numbers = kernels.readable(numbers)

    def spill(k: int) -> None:
        x = kernels.readable(values if k == len(columns) else columns[k])
        if x.dtype.itemsize in (1, 2, 4, 8):
            out = np.empty_like(x)
            word = f"u{x.dtype.itemsize}"
            kernels.sorting.scatter_to_partitions(numbers, x.view(word), ends - counts, out.view(word))
        else:
            out = x[np.argsort(numbers, kind="stable")]
        _save(plan.file(f"run{number}.{k}"), out)

    parallel.each(spill, range(len(columns) + 1))
    return (0, *ends.tolist())


def _pack_partition(plan: _Plan, runs: Sequence[Sequence[int]], number: int) -> Part | None:
    """Sort and pack a partition."""
    tree = _tree(plan)
    coordinate = index_dtype(tree.dims, 0)
    gathered = []
    for k in range(len(plan.order) + 1):
        dtype = coordinate if k < len(plan.order) else tree.values.dtype
        pieces = [
            _saved(plan.file(f"run{run}.{k}"), dtype, starts[-1])[starts[number] : starts[number + 1]]
            for run, starts in enumerate(runs)
        ]
        gathered.append(np.concatenate(pieces))
    *columns, values = gathered
    return _packed(plan, number, columns, values)


def _pack_block(plan: _Plan, number: int) -> Part | None:
    """Pack a block that is in order."""
    return _packed(plan, number, *_entries(plan, number))


def _packed(plan: _Plan, number: int, columns: list[Array], values: Array) -> Part | None:
    """Pack these entries as a tree in scratch files. Only leading dimensions are cropped to the range of the
    coordinates.
    """
    if not len(values):
        return None
    dims = list(plan.dims(_tree(plan)))
    origin = [0] * len(dims)
    for k, x in enumerate(columns):
        low, high = int(x.min()), int(x.max())
        origin[k], dims[k] = low, high - low + 1
        if low:
            columns[k] = x - np.asarray(low, x.dtype)
        if low != high:
            break
    entries = Entries(tuple(dims), tuple(columns), values, False, plan.dimensions)
    tree = pack_entries(plan.levels, entries, plan.pad, "error", plan.limits)
    arrays: dict[str, Any] = {}
    for name, array in {**tree.arrays, "values": tree.values}.items():
        _save(plan.file(f"part{number}.{name}"), array)
        arrays[name] = _saved(plan.file(f"part{number}.{name}"), array.dtype, len(array))
    stored: Any = arrays.pop("values")
    first, last = _ends(columns, origin)
    return Part(Tree(plan.levels, tuple(dims), arrays, stored), tuple(origin), first, last)


def _ends(columns: Sequence[Array], origin: Sequence[int]) -> tuple[Coords, Coords]:
    """The least and the greatest coordinates, in lexicographic order."""
    found = []
    for extreme in (np.min, np.max):
        at: Any = slice(None)
        coords = []
        for x, o in zip(columns, origin, strict=True):
            here = x[at]
            value = extreme(here)
            (same,) = np.nonzero(here == value)
            at = same if isinstance(at, slice) else at[same]
            coords.append(int(value) + o)
        found.append(tuple(coords))
    return found[0], found[1]


def _saved(path: str, dtype: np.dtype[Any], length: int) -> LazyArray:
    """An array in a file of its own. It can be pickled."""
    return lazy(length, dtype, partial(_read_saved, path, dtype))


def _read_saved(path: str, dtype: np.dtype[Any], start: int, stop: int) -> Array:
    found = np.fromfile(path, dtype, stop - start, offset=start * dtype.itemsize)
    if len(found) != stop - start:
        raise ContainerError(Problem(path, "is shorter than it was"))
    return found


def _save(path: str, array: Array) -> None:
    try:
        with open(path, "wb") as file:
            file.write(np.ascontiguousarray(array).view(np.uint8).data)
    except OSError as error:
        raise ContainerError(Problem(path, f"cannot be written: {error.strerror}")) from error


def _remove(plan: _Plan, run: str) -> None:
    for k in range(len(plan.order) + 1):
        os.unlink(plan.file(f"{run}.{k}"))


@contextlib.contextmanager
def scratch(target: Any) -> Iterator[str]:
    """A folder beside the target, or for a URL or an open object a temporary one; removed at the end."""
    path = split_path(target)[0] if isinstance(target, str | os.PathLike) else ""
    try:
        if not path or is_url(path):
            folder = tempfile.mkdtemp()
        else:
            folder = f"{part_of(os.path.realpath(path))}.d"
            os.mkdir(folder)
    except OSError as error:
        raise ContainerError(
            Problem(path, f"no folder for scratch files can be made here: {error.strerror}")
        ) from error
    try:
        yield folder
    finally:
        _sources.pop(folder, None)
        remove(folder)


def _block_size(memory: int, tree: Tree) -> int:
    """The number of entries that may be in memory at a time.

    Each entry needs at most twice its coordinates and its value, three words for sorting, and its share of the fibers'
    pointers. Many fibers may be empty, so pointers can outnumber the entries.
    """
    given, memory = memory, as_integer(memory) or 0
    if memory < 1:
        raise OptionError(Problem("memory", f"expected a number of bytes, got {given!r:.40}"))
    each = 10 * len(tree.dims) + 3 * tree.values.dtype.itemsize + 48
    free = memory - resident() - _ALLOWANCE
    least = _LEAST * each
    each += 72 * sum(n for place, _, n in tree.walk() if place.pointer) // max(len(tree.values), 1)
    if free < max(least, each):
        least = memory - free + max(least, each)
        raise LimitError(Problem("memory", f"{memory} bytes are too few; pass at least {least}"))
    return free // each


_ALLOWANCE = 2**26  # bytes of libraries that are still to be loaded, and pieces of arrays on their way


_LEAST = 2**14  # entries
