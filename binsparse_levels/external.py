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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from . import io, kernels, threads
from .arguments import checked_format, mirror_problems
from .blocks import Coords, Part, joined, read_block
from .containers.base import Pieces, is_url, part_of, remove, split_path
from .errors import ArrayError, ContainerError, FormatError, LimitError, OptionError, Problem, raise_if, within_memory
from .formats import Format, FormatLike
from .levels import Level
from .limits import DEFAULT_LIMITS, Limits, as_integer
from .loading import Lazy
from .mapped import AnyTensor, as_stored, as_written
from .maps import KEY
from .packing import Entries, ordered_dims, pack_entries
from .stored import stored_pieces
from .structure import in_triangle, read_problems
from .system import resident
from .tensor import Tensor
from .tree import Tree, index_dtype, shared_dtype

Array: TypeAlias = npt.NDArray[Any]
Progress: TypeAlias = Callable[[str, int, int], None]  # what is being done, how much of it is, and of how much


class Executor(Protocol):
    """What runs the steps of a stage: those of concurrent.futures, or a cluster's with the same interface."""

    def map(self, function: Callable[..., Any], /, *items: Iterable[Any]) -> Iterable[Any]: ...


class _InTurn:
    """Runs one step at a time, so that one block is in memory at a time; the kernels use all threads."""

    def map(self, function: Callable[..., Any], /, *items: Iterable[Any]) -> Iterable[Any]:
        return map(function, *items)


@within_memory
def convert(
    source: io.Place,
    target: io.Place,
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
    tensor = as_stored(io.open(source, limits=limits))
    parsed, _ = checked_format(format if format is not None else tensor.format, tensor.shape, limits)
    if tensor.structure is not None:
        raise_if(FormatError, mirror_problems(tensor.structure, parsed, tensor._pad()))
    tree, order = tensor._source, tensor.format.order
    if (
        memory is None
        or not tree.lazy
        or io.is_mapping(source)
        or len(tree.values) <= (size := _block_size(memory, tree))
    ):
        io.write(
            target, as_written(tensor.convert(parsed, limits=limits)), overwrite=overwrite, limits=limits, **options
        )
        return
    stored_at = [order.index(k) for k in parsed.order]
    io.check_target(target, overwrite=overwrite, kind=options.get("kind"))
    _check(tree, _name(source), tensor.format.order)
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
        joint = _Joint(tensor, parsed, tensor.shape, arrays, _one_value([tensor]))
        _write(target, *_described(joint, {}), progress, overwrite=overwrite, limits=limits, **options)


@within_memory
def concatenate(
    sources: Sequence[io.Place],
    target: io.Place,
    *,
    progress: Progress | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Write to `target` one tensor of those at `sources`, one behind the other along the outermost stored dimension.

    All have the format, the type of the values and the fill value of the first, and its sizes in the other dimensions.
    Arrays are checked in full before anything is written, and read and written in pieces, whatever their size. What is
    written is sealed if one of them is; the same arrays are bit-packed as in the first; and its compression, chunks and
    shards are kept where the target is the same kind of container. options: as for `write`, in place of what is kept.
    Raises FormatError, ArrayError for what does not fit together, and what `read` and `write` raise.
    """
    with io.locked(target):
        tensors = [_apart(as_stored(io.open(source, limits=limits)), source, target) for source in sources]
        if not tensors:
            raise OptionError(Problem("sources", "there is nothing to concatenate"))
        joint = _join(tensors, list(map(_name, sources)), values=io.in_place(target))
        kept = io.kept_at(target, sources, options, limits)
        _write(target, *_described(joint, kept.wrappers), progress, overwrite=overwrite, limits=limits, **kept.options)


@within_memory
def append(path: io.Place, tensor: AnyTensor, *, limits: Limits = DEFAULT_LIMITS, **options: Any) -> None:
    """Add a tensor behind the one at `path`, along the outermost stored dimension, in its format.

    In a local folder of Zarr 3 only what is new is written, and the last chunk or shard of each array; elsewhere, and
    of what is bit-packed, what is there is copied piece by piece. Either way it is checked in full first, and replaced
    in one step: a crash leaves it as it was. It stays sealed, bit-packed, compressed and chunked, as far as `write`
    can: compression that it does not write becomes its own. options: as for `write`, in place of what is kept.

    Of several that append to a local path at the same time each waits for the others, for a minute at most; then it is
    a ContainerError. Nobody waits for others where there are no locks: in a mapping, another store, or on a file system
    without them. Raises what `concatenate` raises, OptionError for files of other systems.
    """
    io.refuse_files(path)
    with io.locked(path):
        there = _apart(as_stored(io.open(path, limits=limits)), path, path)
        kept = io.kept(path, limits=limits)
        joint = _join([there, as_stored(tensor).convert(there.format, limits=limits)], [_name(path), "tensor"])
        header, pieces = _described(joint, kept.wrappers)
        # What is bit-packed, or has one value for no entries, does not begin as it was.
        grows = not options and not kept.wrappers and len(there._source.values) > 0
        if grows:
            _check_values(there._source)
        if not grows or not io.extend(path, header, pieces, checksum=kept.options.get("checksum"), limits=limits):
            _write(path, header, pieces, None, overwrite=True, limits=limits, **{**kept.options, **options})


def _name(source: io.Place) -> str:
    """What errors call a place: its path, or what it is."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else f"the {type(source).__name__}"


def _apart(tensor: Tensor, source: io.Place, target: io.Place) -> Tensor:
    """The tensor, in memory where the store that it lies in is overwritten in place, and not replaced."""
    return tensor.load() if io.in_place(target) and io.same_store(source, target) else tensor


def _check(tree: Tree, name: str, order: Sequence[int]) -> None:
    """Check arrays in a file as `read` does, which are then read in parts: compare them with its seal, and the levels
    with each other. order: the tensor's dimension at each of the stored ones. Raises ArrayError, ContainerError.
    """
    if not tree.lazy:
        return
    held: list[Any] = [*tree.arrays.values(), tree.values]
    for array in held:
        if isinstance(array, Lazy):
            array.verify()
    problems = tree.check_in_parts(_AT_ONCE, order)
    raise_if(ArrayError, [Problem(f"{name}: {problem.path}", problem.message) for problem in problems])


def _check_values(tree: Tree) -> None:
    """Read all values, of which some would not be copied, or be found faulty when the target is no longer whole."""
    for start in range(0, 1 if tree.iso else len(tree.values), _AT_ONCE):
        tree.values[start : start + _AT_ONCE]


class _Joint(NamedTuple):
    """What is written: a tensor that it is like, and what is different; the one value, where it is iso."""

    like: Tensor
    format: Format
    shape: tuple[int, ...]
    arrays: Mapping[str, Pieces]
    one: Array | None


def _one_value(tensors: Sequence[Tensor]) -> Array | None:
    """The one value of all entries, where each tensor that has some is iso with the same one."""
    filled = [tensor for tensor in tensors if len(tensor._source.values)]
    if not filled or not all(tensor.iso for tensor in filled):
        return None
    ones = [np.asarray(tensor._source.values[:1]) for tensor in filled]
    return ones[0] if len({one.tobytes() for one in ones}) == 1 else None


def _join(tensors: Sequence[Tensor], names: Sequence[str], *, values: bool = False) -> _Joint:
    """Tensors one behind the other along the outermost stored dimension, checked; `values`: their values as well, which
    are else checked when they are copied.
    """
    first = tensors[0]
    if not first.format.order or first.structure is not None:
        raise FormatError(Problem(names[0], "a scalar, or a matrix with a structure, is not concatenated"))
    for tensor, name in zip(tensors, names, strict=True):
        if KEY in tensor.attributes:
            raise FormatError(Problem(name, "is stored through a map, and a mapped tensor is not concatenated"))
    outer = first.format.order[0]
    for tensor, name in zip(tensors, names, strict=True):
        for what in ("dtype", "structure"):
            mine, other = getattr(first, what), getattr(tensor, what)
            if mine != other:
                raise ArrayError(Problem(name, f"has the {what} {other}, where {names[0]} has {mine}"))
        if tensor.format.canonical() != first.format.canonical():
            raise FormatError(Problem(name, f"has the format {tensor.format}, where {names[0]} has {first.format}"))
        if str(tensor.fill_value) != str(first.fill_value):
            raise ArrayError(Problem(name, f"has another fill value than {names[0]}"))
        for k, (size, other) in enumerate(zip(first.shape, tensor.shape, strict=True)):
            if k != outer and size != other:
                raise FormatError(Problem(name, f"has size {other} in dimension {k}, where {names[0]} has {size}"))
    parts, at, count = [], 0, 0
    for tensor, name in zip(tensors, names, strict=True):
        tree = tensor._source
        _check(tree, name, tensor.format.order)
        if values:
            _check_values(tree)
        if len(tree.values):
            origin = (at, *[0] * (tensor.ndim - 1))
            ends = [read_block(tree, range(k, k + 1))[0] for k in (0, len(tree.values) - 1)]
            first_entry, last_entry = (tuple(int(x[0]) + o for x, o in zip(end, origin, strict=True)) for end in ends)
            parts.append(Part(tree, origin, first_entry, last_entry))
        at += tensor.shape[outer]
        count += len(tree.values)
    shape = tuple(at if k == outer else size for k, size in enumerate(first.shape))
    dims = tuple(shape[k] for k in first.format.order)
    arrays = joined(
        first.format.levels, dims, parts, first._pad(), shared_dtype(first._source.arrays, dims, count), first.dtype
    )
    return _Joint(first, first.format, shape, arrays, _one_value(tensors))


def _described(joint: _Joint, wrappers: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Pieces]]:
    """The header, and the arrays as a container holds them. wrappers: of those that are bit-packed."""
    like = joint.like
    one = None if joint.format.padded else joint.one
    rest = like.fill_value, like.structure, like.descriptor_attributes, like.attributes
    return stored_pieces(joint.arrays, joint.format, joint.shape, one, *rest, wrappers)


def _write(
    target: io.Place,
    header: Mapping[str, Any],
    pieces: Mapping[str, Pieces],
    progress: Progress | None,
    **options: Any,
) -> None:
    total = sum(x.length for x in pieces.values())
    done = 0

    def told(piece: Array) -> Array:
        nonlocal done
        done += len(piece)
        if progress:
            progress("writing", done, total)
        return piece

    pieces = {name: x.mapped(told, 1, x.dtype) for name, x in pieces.items()}
    io.write_pieces(target, header, pieces, **options)


# The plan, and its steps


@dataclass(frozen=True)
class _Plan:
    """What every step is told. order: the source's stored dimension at each of the target's. size: entries of a block.
    dimensions: the tensor's at each of the target's stored ones; structure: the triangle that is taken.
    """

    source: io.Place
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
        tree = as_stored(io.open(plan.source, limits=plan.limits))._source
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
    kernels.entries.number_partitions(keys, splitters, numbers, counts)
    ends = np.cumsum(counts, dtype=np.uint64)
    numbers = kernels.readable(numbers)

    def spill(k: int) -> None:
        x = kernels.readable(values if k == len(columns) else columns[k])
        if x.dtype.itemsize in (1, 2, 4, 8):
            out = np.empty_like(x)
            word = f"u{x.dtype.itemsize}"
            kernels.entries.scatter_to_partitions(numbers, x.view(word), ends - counts, out.view(word))
        else:
            out = x[np.argsort(numbers, kind="stable")]
        _save(plan.file(f"run{number}.{k}"), out)

    threads.each(spill, range(len(columns) + 1))
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
    each += 72 * sum(n for place, _, n in tree.walk() if "ptr" in place.names) // max(len(tree.values), 1)
    if free < max(least, each):
        least = memory - free + max(least, each)
        raise LimitError(Problem("memory", f"{memory} bytes are too few: the process alone needs about {least}"))
    return free // each


_ALLOWANCE = 2**26  # bytes of libraries that are still to be loaded, and pieces of arrays on their way
_LEAST = 2**14  # entries
_AT_ONCE = 2**20  # items that are checked at once
