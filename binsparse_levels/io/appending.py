"""Tensors one behind the other: append and concatenate."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arrays import Pieces
from ..containers.base import DEFAULT_STORAGE
from ..containers.checksums import sealed, summed
from ..containers.replacing import hold_lock
from ..engine.blocks import read_block
from ..engine.joining import Part, joined
from ..engine.tree import Tree, shared_dtype
from ..errors import (
    ArrayError,
    FormatError,
    OptionError,
    Problem,
    raise_if,
    within_memory,
)
from ..formats.format import Format
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.encoding import Metadata, encode_pieces
from ..tensors.tensor import Tensor
from . import reading
from .decoding import Lazy, Loading
from .kinds import KINDS, Place, in_place, kind_at, kind_to_write, module_of, split_place
from .writing import write_pieces

Array: TypeAlias = npt.NDArray[Any]
Progress: TypeAlias = Callable[[str, int, int], None]  # what is being done, how much of it is, and of how much

_AT_ONCE = 2**20  # items that are checked at once


@within_memory
def concatenate(
    sources: Sequence[Place],
    target: Place,
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
    with locked(target):
        tensors = [_apart(reading.open(source, limits=limits), source, target) for source in sources]
        if not tensors:
            raise OptionError(Problem("sources", "there is nothing to concatenate"))
        joint = _join(tensors, list(map(name_of, sources)), values=in_place(target))
        found = kept_at(target, sources, options, limits)
        write_joint(
            target,
            *described_joint(joint, found.wrappers),
            progress,
            overwrite=overwrite,
            limits=limits,
            **found.options,
        )


@within_memory
def append(path: Place, tensor: Tensor, *, limits: Limits = DEFAULT_LIMITS, **options: Any) -> None:
    """Add a tensor behind the one at `path`, along the outermost stored dimension, in its format.

    In a local folder of Zarr 3 only what is new is written, and the last chunk or shard of each array; elsewhere, and
    of what is bit-packed, what is there is copied piece by piece. Either way it is checked in full first, and replaced
    in one step: a crash leaves it as it was. It stays sealed, bit-packed, compressed and chunked, as far as `write`
    can: compression that it does not write becomes its own. options: as for `write`, in place of what is kept.

    Of several that append to a local path at the same time each waits for the others, for a minute at most; then it is
    a ContainerError. Nobody waits for others where there are no locks: in a mapping, another store, or on a file system
    without them. Raises what `concatenate` raises, OptionError for files of other systems.
    """
    refuse_files(path)
    with locked(path):
        there = _apart(reading.open(path, limits=limits), path, path)
        found = kept(path, limits=limits)
        joint = _join([there, tensor.convert(there.format, limits=limits)], [name_of(path), "tensor"])
        header, pieces = described_joint(joint, found.wrappers)
        # What is bit-packed, or has one value for no entries, does not begin as it was.
        grows = not options and not found.wrappers and len(there._source.values) > 0
        if grows:
            _check_values(there._source)
        if not grows or not extend(path, header, pieces, checksum=found.options.get("checksum"), limits=limits):
            write_joint(path, header, pieces, None, overwrite=True, limits=limits, **{**found.options, **options})


def name_of(source: Place) -> str:
    """What errors call a place: its path, or what it is."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else f"the {type(source).__name__}"


def _apart(tensor: Tensor, source: Place, target: Place) -> Tensor:
    """The tensor, in memory where the store that it lies in is overwritten in place, and not replaced."""
    return tensor.load() if in_place(target) and same_store(source, target) else tensor


def check_source(tree: Tree, name: str, order: Sequence[int]) -> None:
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


class Joint(NamedTuple):
    """What is written: a tensor that it is like, and what is different; the one value, where it is iso."""

    metadata: Metadata
    format: Format
    shape: tuple[int, ...]
    arrays: Mapping[str, Pieces]
    one: Array | None


def one_value(tensors: Sequence[Tensor]) -> Array | None:
    """The one value of all entries, where each tensor that has some is iso with the same one."""
    filled = [tensor for tensor in tensors if len(tensor._source.values)]
    if not filled or not all(tensor.iso for tensor in filled):
        return None
    ones = [np.asarray(tensor._source.values[:1]) for tensor in filled]
    return ones[0] if len({one.tobytes() for one in ones}) == 1 else None


def _join(tensors: Sequence[Tensor], names: Sequence[str], *, values: bool = False) -> Joint:
    """Tensors one behind the other along the outermost stored dimension, checked; `values`: their values as well, which
    are else checked when they are copied.
    """
    first = tensors[0]
    if not first.format.order or first.structure is not None:
        raise FormatError(Problem(names[0], "a scalar, or a matrix with a structure, is not concatenated"))
    for tensor, name in zip(tensors, names, strict=True):
        if tensor.map is not None:
            raise FormatError(
                Problem(name, "is stored through a map, and is not concatenated; convert it without_map()")
            )
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
        check_source(tree, name, tensor.format.order)
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
    return Joint(first._metadata, first.format, shape, arrays, one_value(tensors))


def described_joint(joint: Joint, wrappers: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Pieces]]:
    """The header, and the arrays as a container holds them. wrappers: of those that are bit-packed."""
    one = None if joint.format.padded else joint.one
    return encode_pieces(joint.arrays, joint.format, joint.shape, joint.metadata, one=one, wrappers=wrappers)


def write_joint(
    target: Place,
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
    write_pieces(target, header, pieces, **options)


def same_store(a: Place, b: Place) -> bool:
    """Whether two paths are of the same store, whatever the groups."""
    one, other = (getattr(place, "store", place) for place, _ in map(split_place, (a, b)))
    return bool(one == other)


def refuse_files(path: Place) -> None:
    """Raise OptionError for a file of another system, to which nothing is appended."""
    place, group = split_place(path)
    if KINDS[kind_at(place, group)].holds_tensors:
        raise OptionError(Problem(str(path), "this kind of file is not appended to; convert it first"))


def locked(path: Place) -> contextlib.AbstractContextManager[None]:
    """Nobody else reads and writes again what is at a path within the block; of a mapping, or of a store that is no
    local folder or file, there is no lock. Raises ContainerError where another does so for long.
    """
    place, _ = split_place(path)
    place = os.fspath(root) if isinstance(root := getattr(place, "root", None), os.PathLike) else place
    return hold_lock(place) if isinstance(place, str) and "://" not in place else contextlib.nullcontext()


class Kept(NamedTuple):
    """How a tensor is stored in a container: as options of `write_pieces`, and the wrappers of bit-packed arrays."""

    options: Mapping[str, Any] = {}
    wrappers: Mapping[str, str] = {}


def kept(path: Place, *, limits: Limits = DEFAULT_LIMITS) -> Kept:
    """How the tensor in PATH[:GROUP] is stored; of a file of another system nothing."""
    place, group = split_place(path)
    kind = kind_at(place, group)
    if KINDS[kind].holds_tensors:
        return Kept()
    with module_of(KINDS[kind]).reading(place, group, limits) as reader:
        loading = Loading(reader, limits, False)
        stored = {}
        if hasattr(reader, "storage"):
            stored = {name: reader.storage(name) for name in loading.infos}
            of_others = next((x for x in stored.values() if x != DEFAULT_STORAGE), DEFAULT_STORAGE)
            empty = [name for name, info in loading.infos.items() if 0 in info.shape]
            stored |= {name: of_others for name in empty if stored[name] == DEFAULT_STORAGE}
        options: dict[str, Any] = {"kind": getattr(reader, "kind", kind)}
        for option in ("compression", "chunks", "shards"):
            by_name = {name: getattr(x, option) for name, x in stored.items() if getattr(x, option) is not None}
            options[option] = by_name or None
        plain = False in (x.checksum for x in stored.values())
        options["checksum"] = True if loading.sealed else False if plain else None
        types = loading.descriptor.data_types
        return Kept(options, {name: x.wrapper for name, x in types.items() if x.wrapper})


def kept_at(path: Place, sources: Iterable[Place], options: Mapping[str, Any], limits: Limits) -> Kept:
    """How tensors that are joined at a path are stored: sealed if one of them is, else as the first, as far as the kind
    of container is the same; and as the options say.
    """
    first, *others = (kept(source, limits=limits) for source in sources)
    place, _ = split_place(path)
    kind = kind_to_write(place, options.get("kind"))
    sealed = any(each.options.get("checksum") for each in (first, *others))
    same = first.options if first.options.get("kind") == kind else {}
    return Kept({**same, **({"checksum": True} if sealed else {}), **options}, first.wrappers)


def extend(
    path: Place, header: Mapping[str, Any], pieces: Mapping[str, Pieces], *, checksum: bool | None, limits: Limits
) -> bool:
    """Let the arrays at PATH[:GROUP] become these, which begin as they are, without writing again what is there; False,
    and nothing done, where the container cannot. checksum: True if it is sealed.
    """
    place, group = split_place(path)
    module = module_of(KINDS[kind_at(place, group)])

    def now_sealed() -> Mapping[str, Any]:
        sums: dict[str, int] = {}
        for name, x in pieces.items():
            deque(summed(name, x, sums).each(), 0)
        return sealed(header, sums)

    return hasattr(module, "extend") and bool(
        module.extend(place, group, now_sealed if checksum else lambda: header, pieces, limits)
    )
