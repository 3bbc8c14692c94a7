"""What is larger than memory: converted by external ordering, joined, appended to.

Ordering goes by partitions. The source is read block by block; the entries of each are written to scratch files, those
of a partition, which is a range of the target's order, one behind the other; each partition is read, sorted and packed
as a tree of its own. Then every size is known, and each array is written once, from its beginning to its end, and the
header last. Where the target keeps the order of the source its blocks are the partitions.

A step is a function of the plan and a number, which leaves files and returns what there is to know of them: any
executor may run the steps of a stage side by side, in other processes too.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import kernels, parallel
from ..containers.base import is_url, split_path
from ..containers.replacing import part_of, remove
from ..engine.blocks import read_block
from ..engine.joining import Coords, Part, joined
from ..engine.packing import Entries, ordered_dims, pack_entries
from ..engine.tree import Tree, index_dtype
from ..errors import ArrayError, ContainerError, FormatError, LimitError, OptionError, Problem, raise_if, within_memory
from ..formats.format import FormatLike
from ..formats.structure import in_triangle, read_problems
from ..levels import Level
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from ..system import resident
from ..tensors.mapped import as_stored, as_written
from ..tensors.validation import checked_format, mirror_problems
from . import reading
from .appending import Joint, Progress, check_source, described_joint, name_of, one_value, write_joint
from .kinds import Place, is_mapping
from .writing import check_target, write

Array: TypeAlias = npt.NDArray[Any]


class Executor(Protocol):
    """What runs the steps of a stage: those of concurrent.futures, or a cluster's with the same interface."""

    def map(self, function: Callable[..., Any], /, *items: Iterable[Any]) -> Iterable[Any]: ...


class _InTurn:
    """Runs one step at a time, so that one block is in memory at a time; the kernels use all threads."""

    def map(self, function: Callable[..., Any], /, *items: Iterable[Any]) -> Iterable[Any]:
        return map(function, *items)


@within_memory
def convert(
    source: Place,
    target: Place,
    format: FormatLike | None = None,
    *,
    memory: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Write the tensor at `source` to `target`, in another format or its own; a map stays beside it.

    memory: bytes that the process may take for it, itself included, such as 2**30; it needs scratch space beside the
    target, of some 20 to 40 bytes for each entry. None: whatever it takes. executor: runs the steps, in other processes
    where it has some; each takes so much memory. progress: is called with the name of a stage, how many of its steps
    are done, and of how many. options: as for `write`.

    Raises what `read`, `Tensor.convert` and `write` raise; LimitError for too little memory; FormatError where a level
    kind is not read or written in parts and the tensor does not fit.
    """
    tensor = as_stored(reading.open(source, limits=limits))
    parsed, _ = checked_format(format if format is not None else tensor.format, tensor.shape, limits)
    if tensor.structure is not None:
        raise_if(FormatError, mirror_problems(tensor.structure, parsed, tensor._pad()))
    tree, order = tensor._source, tensor.format.order
    if memory is None or not tree.lazy or is_mapping(source) or len(tree.values) <= (size := _block_size(memory, tree)):
        write(target, as_written(tensor.convert(parsed, limits=limits)), overwrite=overwrite, limits=limits, **options)
        return
    stored_at = [order.index(k) for k in parsed.order]
    check_target(target, overwrite=overwrite, kind=options.get("kind"))
    check_source(tree, name_of(source), tensor.format.order)
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
        joint = Joint(tensor, parsed, tensor.shape, arrays, one_value([tensor]))
        write_joint(target, *described_joint(joint, {}), progress, overwrite=overwrite, limits=limits, **options)


@dataclass(frozen=True)
class _Plan:
    """What every step is told. order: the source's stored dimension at each of the target's. size: entries of a block.
    dimensions: the tensor's at each of the target's stored ones; structure: the triangle that is taken.
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


_opened: dict[str, Tree] = {}


def _tree(plan: _Plan) -> Tree:
    """The source, opened once in every process and for every plan, which has its own folder."""
    tree = _opened.get(plan.folder)
    if tree is None:
        tree = as_stored(reading.open(plan.source, limits=plan.limits))._source
        _opened.clear()
        _opened[plan.folder] = tree
    return tree


def _entries(plan: _Plan, number: int) -> tuple[list[Array], Array]:
    """A block of the source, by the target's stored dimensions."""
    tree = _tree(plan)
    block = range(number * plan.size, min((number + 1) * plan.size, len(tree.values)))
    columns, values = read_block(tree, block, index_dtype(tree.dims, 0))
    columns = [columns[k] for k in plan.order]
    if plan.structure is not None:
        coords = [columns[plan.dimensions.index(k)] for k in range(2)]
        raise_if(ArrayError, read_problems(plan.structure, coords, values, padded=tree.padded))
        kept = in_triangle(plan.structure, coords)
        return [x[kept] for x in columns], values[kept]
    return columns, values


def _ordered(plan: _Plan, tree: Tree, executor: Executor, progress: Progress) -> list[Part]:
    """The entries as trees that follow each other in the target's order."""
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
    """For each entry a number that ascends with the order of the entries; of the first 63 bits of the coordinates."""
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
    """With the keys at which partitions of equal size begin, by a sample."""
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
    """Write the entries of a block by partitions, one file for each dimension and one for the values; where in them
    each partition begins.
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
            _Scratch(plan.file(f"run{run}.{k}"), dtype, starts[-1])[starts[number] : starts[number + 1]]
            for run, starts in enumerate(runs)
        ]
        gathered.append(np.concatenate(pieces))
    *columns, values = gathered
    return _packed(plan, number, columns, values)


def _pack_block(plan: _Plan, number: int) -> Part | None:
    """Pack a block that is in order."""
    return _packed(plan, number, *_entries(plan, number))


def _packed(plan: _Plan, number: int, columns: list[Array], values: Array) -> Part | None:
    """A tree of these entries, in scratch files; its dimensions are as small as they can be, the first ones."""
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
        arrays[name] = _Scratch(plan.file(f"part{number}.{name}"), array.dtype, len(array))
    kept: Any = arrays.pop("values")
    first, last = _ends(columns, origin)
    return Part(Tree(plan.levels, tuple(dims), arrays, kept), tuple(origin), first, last)


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


class _Scratch:
    """An array in a file of its own, read at a slice."""

    def __init__(self, path: str, dtype: np.dtype[Any], length: int) -> None:
        self._path = path
        self.dtype = dtype
        self.shape = (length,)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: slice) -> Array:
        start, stop, _ = key.indices(len(self))
        count = max(stop - start, 0)
        found = np.fromfile(self._path, self.dtype, count, offset=start * self.dtype.itemsize)
        if len(found) != count:
            raise ContainerError(Problem(self._path, "is shorter than it was"))
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
    """A folder beside the target, which is removed at the end; for what is no local path, where the system has such."""
    path = split_path(target)[0] if isinstance(target, str | os.PathLike) else ""
    try:
        if not path or is_url(path):
            folder = tempfile.mkdtemp()
        else:
            folder = f"{part_of(os.path.realpath(path))}.d"
            os.mkdir(folder)
    except OSError as error:
        raise ContainerError(Problem(path, f"there is no scratch space: {error.strerror}")) from error
    try:
        yield folder
    finally:
        _opened.pop(folder, None)
        remove(folder)


def _block_size(memory: int, tree: Tree) -> int:
    """How many entries may be in memory at a time.

    For each there are, at the most, its coordinates and its value twice, and three words that sort it; and the pointers
    of the fibers that it lies among, of which many may be empty, as words that are counted and added up.
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
        raise LimitError(Problem("memory", f"{memory} bytes are too few: the process alone needs about {least}"))
    return free // each


_ALLOWANCE = 2**26  # bytes of libraries that are still to be loaded, and pieces of arrays on their way


_LEAST = 2**14  # entries
