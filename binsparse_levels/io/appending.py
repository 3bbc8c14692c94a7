"""Append to a tensor, and concatenate tensors, along the outermost stored dimension."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

from ..arrays import Array, Pieces, in_pieces, one_piece
from ..containers.base import is_url
from ..containers.interface import Container, part_name
from ..containers.replacing import Overwrite, hold_lock, real_path
from ..engine.joining import joined_trees
from ..engine.parts import check_lazy
from ..engine.tree import Tree, shared_dtype
from ..errors import ArrayError, FormatError, OptionError, Problem, check_choice, within_memory
from ..formats.dictionary import CODES
from ..formats.dictionary import encode as encode_dictionary
from ..formats.extensions import PARTS
from ..formats.index_map import IndexMap, parse_map
from ..limits import DEFAULT_LIMITS, Limits
from ..progress import Progress, reporter
from ..tensors.backing import packed
from ..tensors.contents import Dimension, dimension_of
from ..tensors.encoding import encode_pieces, encode_tensor
from ..tensors.foreign import as_tensor
from ..tensors.inside import Metadata
from ..tensors.labels import repeated
from ..tensors.tensor import Tensor, inside, tensor_of
from ..thresholds import THRESHOLDS
from . import reading
from .coordinates import without_coordinates
from .file_tensors import Loading
from .fitting import check_alike, joined_labels
from .growing import check_can_grow, commit
from .kinds import Location, StoreLike, in_place, name_of, resolved, split_place, target_at
from .orders import within
from .parts import Parts, part_of
from .reading import read
from .storages import Stored, storage_of
from .writing import write, write_pieces

Existing: TypeAlias = Literal["skip", "repeat"]


@within_memory
def concatenate(
    sources: Sequence[StoreLike],
    target: StoreLike,
    *,
    progress: Progress | bool | None = None,
    overwrite: Overwrite = False,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Write the tensors at `sources` to `target`, concatenated along the outermost stored dimension.

    All sources must have the same format, data type, fill value and sizes in the other dimensions. Labels of the
    outermost dimension are concatenated too: all sources must have some, or none. Labels of other dimensions must be
    equal. Arrays are checked in full before anything is written; they are read and written in pieces.

    Through an index map, the dimension is that of the outermost stored digit, and the target has the notation of the
    first source's map. If the outermost digit is the most significant one, as for blocks, and all sizes but the last
    are multiples of its stride, trees are joined as without a map. Otherwise all entries are packed in memory.

    Parameters
    ----------
    sources : sequence of paths
        As the path of `read` and `write`.
    target : str, PathLike, group, store or mapping
        As the path of `read` and `write`.
    progress : bool or callable, optional
        Called with "writing", the number of items written, and the total. True draws a bar on standard error, if that
        is a terminal or a notebook.
    overwrite : bool or 'file', default False
        True replaces an existing tensor; see `write`.
    limits : Limits, optional
        Bounds on the resources of this call.
    **options
        Options of `write`, without `narrow` and `bitpacked`. By default, the target has checksums if one of the sources
        has them, and it packs the same arrays into bits as the first source. It has the first source's compression,
        chunks and shards if both are the same kind of file.

    Raises
    ------
    FormatError, ArrayError
        The tensors do not fit together.
    BinsparseError
        See `read` and `write`.

    See Also
    --------
    append : Append a tensor to a stored one.
    write_from : Write a stream of entries.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> first, second, both = {}, {}, {}
    >>> bl.write(first, bl.pack([[0]], [1.0], (2,), "sparse"))
    >>> bl.write(second, bl.pack([[1]], [2.0], (3,), "sparse"))
    >>> bl.concatenate([first, second], both)
    >>> bl.read(both).to_dense().tolist()
    [1.0, 0.0, 0.0, 2.0, 0.0]
    """
    with contextlib.ExitStack() as stack:
        if isinstance(sources, str | os.PathLike):
            raise OptionError(Problem("sources", f"expected a list of paths, got {sources!r:.40}; the target follows"))
        stack.enter_context(_locked(target))
        locations = [stack.enter_context(resolved(source)) for source in sources]
        if not locations:
            raise OptionError(Problem("sources", "expected at least one tensor, got none"))
        opened = [reading.opened(location, limits) for location in locations]
        first, *others = [storage_of(x, location) for (_, x), location in zip(opened, locations, strict=True)]
        tensors = [_independent(tensor, x, target) for (tensor, _), x in zip(opened, locations, strict=True)]
        inherited = first.options if first.options.get("kind") == target_at(target, options.get("kind")).name else {}
        if any(stored.options.get("checksum") for stored in (first, *others)):
            inherited = {**inherited, "checksum": True}
        header, pieces = _joined(tensors, list(map(name_of, sources)), first, limits)
        options = _replaced({option: _of_names(x, pieces) for option, x in inherited.items()}, options)
        write_pieces(target, header, pieces, progress=reporter(progress), overwrite=overwrite, limits=limits, **options)


@within_memory
def append(
    path: StoreLike,
    tensor: Any,
    *,
    axis: Dimension = 0,
    part: bool | None = None,
    existing: Existing | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Append a tensor to the one at `path` along a dimension.

    The result has the format of the file, and the labels of both, as in `concatenate`.

    The stored tensor is checked in full, then replaced atomically: the stored items are copied in pieces. A tensor with
    other orders is loaded, and all orders are written again. Checksums, bit-packing, compression and chunks are kept. A
    compression that `write` does not offer becomes gzip in HDF5.

    To merge entries at given coordinates into a tensor, use `write_from([tensor, table], …)`.

    Appends and other writes to the same local path wait for each other, for at most a minute; then they raise
    ContainerError. Mappings, other stores and file systems without locks are not protected.

    Parameters
    ----------
    path : str, PathLike, group, store or mapping
        See `write`.
    tensor : Tensor or array
        Tensor in any format, or an array that `as_tensor` accepts.
    axis : int or str, default 0
        The dimension, by number or name. A format can only grow along its outermost stored dimension: CSC along 1.
        With a map, it is the dimension of the outermost stored digit.
    part : bool, optional
        True adds a part to a tensor in a folder or an object store of Zarr, along any dimension, in the time and space
        of what is new. `open` joins the parts; other programs refuse such a tensor until `compact` has made one tree
        of it. By default, a tensor that has parts gets another one.
    existing : {'skip', 'repeat'}, optional
        For coordinates whose label is in the file already, or occurs twice in the tensor. By default, these raise
        ArrayError, so that a job that runs again appends nothing twice. "skip" leaves the later ones out; "repeat"
        appends them.
    limits : Limits, optional
        Bounds on the resources of this call.
    **options
        Options of `write`, which replace the stored ones.

    Raises
    ------
    FormatError
        The file cannot grow along this axis; or the tensor is a variable of an xarray Dataset that has other variables
        over this dimension.
    ArrayError
        A label is in the file already.
    OptionError
        The file is one of another system.
    BinsparseError
        See `concatenate`.

    See Also
    --------
    concatenate : Write several tensors as one.
    compact : Make one tree of the parts of a tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0]], [1.0], (2,), "sparse"))
    >>> bl.append(store, bl.pack([[1]], [2.0], (3,), "sparse"))
    >>> bl.read(store).shape
    (5,)
    """
    tensor, name = as_tensor(tensor, copy=False), name_of(path)
    if existing is not None:
        check_choice("existing", existing, Existing)
    with resolved(path) as location:
        if location.kind.foreign:
            raise OptionError(Problem(name, "this kind of file cannot be appended to; convert it first"))
        there, loading = reading.opened(location, limits)
        assert loading is not None
        tensor = without_coordinates(tensor, there, location)
        if part is None:
            part = PARTS in loading.descriptor.extra
        if part:
            _refuse_dataset(location, there, dimension_of(there, axis), name)
            append_part(location, there, loading, tensor, axis, existing, limits, options)
            return
        if PARTS in loading.descriptor.extra:
            raise OptionError(Problem("part", "the tensor has parts, and goes on with parts; leave part out"))
    with _locked(path), resolved(path) as location:
        there, loading = reading.opened(location, limits)
        stored = storage_of(loading, location)
        there = _independent(there, path, path)
        outer = _grows_along(there) if there.format.order else 0
        if there.format.order and there.ndim == tensor.ndim and dimension_of(there, axis) != outer:
            what = f"its format {there.notation} grows along dimension {outer} alone"
            raise FormatError(Problem(name, f"{what}; pass axis={outer}, or convert it, or part=True (.zarr)"))
        _refuse_dataset(location, there, outer, name)
        tensor = _unrepeated(there, tensor, outer, existing, name)
        if existing == "skip" and there.ndim == tensor.ndim and not tensor.shape[outer]:
            return
        if there.map is None:
            more = tensor.without_map(there.format, limits=limits)
        else:
            more = tensor.convert(there.format, map=str(there.map), limits=limits)
        header, pieces = _joined([there, more], [name, "tensor"], stored, limits)
        kept = _replaced({option: _of_names(x, pieces) for option, x in stored.options.items()}, options)
        target = replace(target_at(path, kept.pop("kind", None)), group=location.group or "")
        if orders := [order.format for order in inside(there).backing.stored.orders]:
            joined: dict[str, Any] = {}
            write_pieces(joined, header, pieces, limits=limits)
            whole, kept["dictionary"] = read(joined, limits=limits), CODES in joined
            kept["bitpacked"] = stored.wrappers.keys() & joined.keys()
            kept.pop("settings", None)  # all arrays are new
            write(target, whole, orders=orders, overwrite=True, limits=limits, **kept)
        else:
            write_pieces(target, header, pieces, overwrite=True, limits=limits, **kept)


def append_part(
    location: Location,
    there: Tensor,
    loading: Loading,
    tensor: Tensor,
    axis: Dimension,
    existing: Existing | None,
    limits: Limits,
    options: Mapping[str, Any],
) -> None:
    """`append` as a further part, which is written before the lock of the file is requested."""
    name, known, group = name_of(location), {box.group for box in there.parts}, part_name()
    first = reading.opened(within(location, there.parts[0].group), limits)[1] if known else loading
    assert first is not None
    check_can_grow(location, there, first)
    k = dimension_of(there, axis)
    check_alike(there, tensor, (name, "tensor"), k)
    tensor = _unrepeated(there, tensor, k, existing, name)
    if existing == "skip" and not tensor.shape[k]:
        return
    if (labels := joined_labels([there, tensor], (name, "tensor"), k)) is not None:
        its = inside(tensor).metadata.labels
        columns = {} if its is None else {dim: x.loaded() for dim, x in its.columns.items() if dim == labels.dims[k]}
        labels = replace(labels, columns=columns)
    plain = inside(tensor.without_map(there.format, limits=limits)).backing
    part = tensor_of(plain, Metadata(there.fill_value, labels=labels))
    header, arrays = encode_tensor(part)
    kept = {option: _of_names(x, arrays) for option, x in storage_of(first, location).options.items()}
    kept = _replaced({**kept, "kind": None}, options)
    pieces = {array: one_piece(x) for array, x in arrays.items()}
    write_pieces(within(location, group), header, pieces, limits=limits, **kept)

    def change(parts: Parts, shape: tuple[int, ...]) -> tuple[Parts, tuple[int, ...]]:
        if [*shape[:k], *shape[k + 1 :]] != [*part.shape[:k], *part.shape[k + 1 :]]:
            raise FormatError(Problem(name, f"has the shape {shape} now, as another program appended; append again"))
        for box in parts.boxes if known else parts.boxes[1:]:
            if box.group not in known and str(k) in box.labels:  # another program was faster
                later = reading.opened(within(location, box.group), limits)[0]
                _unrepeated(later, part, k, existing and "skip", name)
        new = part_of(part, group, [size if d == k else 0 for d, size in enumerate(shape)])
        grown = tuple(size + part.shape[d] * (d == k) for d, size in enumerate(shape))
        return parts._replace(boxes=(*parts.boxes, new)), grown

    commit(location, there, loading.reader.read_header(), group, change, limits)


def _replaced(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The stored options with those that are given in their place. Another compression has its own settings."""
    kept = {name: x for name, x in stored.items() if name != "settings" or "compression" not in given}
    return {**kept, **given}


def _of_names(option: Any, names: Collection[str]) -> Any:
    """An option of storage, for arrays with these names alone."""
    return {name: x for name, x in option.items() if name in names} if isinstance(option, Mapping) else option


def _refuse_dataset(location: Location, there: Tensor, axis: int, name: str) -> None:
    """Raise FormatError for a variable of a Dataset, if others have the dimension that would grow."""
    functions = location.kind.functions
    neighbours = functions.neighbours if isinstance(functions, Container) else None
    if neighbours is None or there.dims is None or not there.format.order:
        return
    dim, size = there.dims[axis], there.shape[axis]
    sizes = {x: known[dim] for x, known in neighbours(location.path, location.group).items() if dim in known}
    if {*sizes.values()} == {size}:
        what = f"is a variable of a Dataset with {', '.join(sorted(sizes)):.80}, which have its dimension {dim!r} too"
        whole = f"xarray.concat([xarray.load_dataset(path, engine='binsparse'), more], {dim!r})"
        remedy = f"append_dataset(path, more, {dim!r}) if it is a .zarr folder, else"
        raise FormatError(Problem(name, f"{what}; use {remedy} write_dataset(path, {whole}, overwrite=True)"))


def _unrepeated(there: Tensor, tensor: Tensor, axis: int, existing: Existing | None, name: str) -> Tensor:
    """The tensor to append, without the coordinates whose labels are there already. Raises ArrayError for these unless
    `existing`.
    """
    mine, its = inside(there).metadata.labels, inside(tensor).metadata.labels
    if existing == "repeat" or mine is None or its is None or mine.dims != its.dims or not tensor.ndim:
        return tensor
    dim = mine.dims[axis]
    column, known = its.columns.get(dim), mine.columns.get(dim)
    again = [] if column is None or known is None else repeated(column, known)
    if column is None or not again:
        return tensor
    if existing is None:
        what = f"the label {column.array()[again[0]]!s:.60} of dimension {dim!r} would be there twice"
        raise ArrayError(Problem(name, f"{what}; pass existing='skip' to leave such coordinates out, or 'repeat'"))
    kept = np.setdiff1d(np.arange(tensor.shape[axis]), again)
    selected: Tensor = tensor[(*[slice(None)] * axis, kept)]
    return selected


def _independent(tensor: Tensor, source: StoreLike, target: StoreLike) -> Tensor:
    """Load the tensor into memory if the write would overwrite its own arrays in place."""
    one, other = (getattr(place, "store", place) for place, _ in map(split_place, (source, target)))
    return tensor.load() if in_place(target) and one == other else tensor


def _one_value(tensors: Sequence[Tensor]) -> Array | None:
    """The value that all entries share, if each tensor with entries is iso with the same value."""
    filled = [tensor for tensor in tensors if len(inside(tensor).source.values)]
    if not filled or not all(tensor.iso for tensor in filled):
        return None
    ones = [np.asarray(inside(tensor).source.values[:1]) for tensor in filled]
    return ones[0] if len({one.tobytes() for one in ones}) == 1 else None


def _check_formats(tensors: Sequence[Tensor], names: Sequence[str]) -> None:
    """Raise FormatError or ArrayError for tensors whose trees cannot be joined. names: for errors."""
    first = tensors[0]
    if not first.format.order or first.structure is not None:
        what = "a scalar, or a matrix with a structure, cannot be concatenated; expand it first"
        raise FormatError(Problem(names[0], what))
    for tensor, name in zip(tensors, names, strict=True):
        formats = [(x.format.canonical(), x.ndim, x.map is None) for x in (first, tensor)]
        if formats[0] != formats[1]:
            what = f"has the format {tensor.notation}, and {names[0]} has {first.notation}; convert one"
            raise FormatError(Problem(name, what))
        check_alike(first, tensor, (names[0], name), _grows_along(first))


def _joined(
    tensors: Sequence[Tensor], names: Sequence[str], stored: Stored, limits: Limits
) -> tuple[dict[str, Any], dict[str, Pieces]]:
    """The header and the arrays of the tensors concatenated along the outermost stored dimension, checked.

    names: for errors. stored: the arrays to bit-pack; and whether to store a dictionary, if it is smaller than values.
    The values are checked when they are copied.
    """
    _check_formats(tensors, names)
    first, axis = tensors[0], _grows_along(tensors[0])
    metadata = replace(inside(first).metadata, labels=joined_labels(tensors, names, axis))
    ends = list(itertools.accumulate((x.shape[axis] for x in tensors), initial=0))
    for tensor, name in zip(tensors, names, strict=True):
        check_lazy(inside(tensor).source, name, tensor.format.order)
    shape = tuple(ends[-1] if k == axis else size for k, size in enumerate(first.shape))
    map = None if first.map is None else parse_map(str(first.map), shape)
    trees, starts = [inside(tensor).source for tensor in tensors], ends[:-1]
    if map is not None:
        shape = map.stored_shape
        trees, starts = _through(map, tensors, trees, axis, starts, limits)
    dims = tuple(shape[k] for k in first.format.order)
    dtype = shared_dtype(inside(first).source.arrays, dims, sum(len(tree.values) for tree in trees))
    arrays = joined_trees(first.format.levels, dims, trees, starts, inside(first).pad, dtype, first.dtype, limits)
    pieces = {name: in_pieces(array, THRESHOLDS.piece_items) for name, array in arrays.items()}
    one = None if first.format.padded else _one_value(tensors)
    more: dict[str, Any] = {"map": map, "iso_value": one, "wrappers": stored.wrappers}
    if stored.dictionary and one is None:
        with contextlib.suppress(OptionError):
            more["table"], codes = encode_dictionary(pieces["values"])
            pieces |= {CODES: codes} if len(more["table"]) > 1 else {}
    return encode_pieces(pieces, first.format, shape, metadata, **more)


def _grows_along(tensor: Tensor) -> int:
    """The dimension of the outermost stored dimension; through a map, that of its most significant digit."""
    outer = tensor.format.order[0]
    return outer if tensor.map is None else tensor.map.groups[outer][0].dimension


def _through(
    map: IndexMap, tensors: Sequence[Tensor], trees: list[Tree], axis: int, starts: Sequence[int], limits: Limits
) -> tuple[list[Tree], list[int]]:
    """The stored trees to be joined, and where each starts along the outermost stored dimension.

    It is one tree of all entries, unless appending changes the most significant digit of that dimension alone. map: of
    the whole. starts: of the tensors along the dimension `axis`.
    """
    outer = tensors[0].format.order[0]
    digit = map.leads(outer)
    alike = all(tensor.map == parse_map(str(map), tensor.shape) for tensor in tensors)
    if digit is not None and alike and not any(start % digit.stride for start in starts):
        weight = math.prod(lower.radix for lower in map.groups[outer][1:])
        return trees, [start // digit.stride * weight for start in starts]
    listed = [tensor.unpack() for tensor in tensors]
    coords = [np.concatenate(x) for x in zip(*(coords for coords, _ in listed), strict=True)]
    coords[axis] += np.repeat(starts, [len(values) for _, values in listed])
    values, pad = np.concatenate([values for _, values in listed]), inside(tensors[0]).pad
    whole = packed(tensors[0].format, map.stored_shape, map.forward(coords), values, False, pad, limits)
    return [whole.tree], [0]


# The file


def _locked(path: StoreLike) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of a local file or folder within the block; mappings and other stores have no lock. Raises
    ContainerError if another process or thread does not release it in time.
    """
    root = local_path(path)
    return contextlib.nullcontext() if root is None else hold_lock(root)


def local_path(path: StoreLike) -> str | None:
    """The real path of a local file or folder, without the group; None for another store."""
    store, _ = split_place(path)
    root = store if isinstance(store, str) and not is_url(store) else getattr(store, "root", None)
    return real_path(os.fspath(root)) if isinstance(root, str | os.PathLike) else None
