"""Convert a tensor that is larger than memory, and write a stream of entries, into any kind of file."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arrays import Array
from ..containers.replacing import Overwrite
from ..engine.blocks import blocks_of
from ..engine.emission import Duplicates
from ..engine.packing import ordered_dims
from ..engine.tree import Tree
from ..errors import ArrayError, FormatError, OptionError, Problem, check_choice, raise_if, within_memory
from ..formats.format import Format, FormatLike, coordinates, with_map
from ..formats.index_map import IndexMap, MapLike, parse_map
from ..formats.structure import diagonal_problems, structure_problems
from ..io import reading
from ..io.files.text_tables import Stream
from ..io.kinds import StoreLike, in_memory, is_foreign, name_of
from ..io.writing import check_absent, check_target, write, write_pieces
from ..limits import DEFAULT_LIMITS, INT64_MAX, Limits
from ..progress import Progress, reporter
from ..system import release
from ..tensors.changing import is_dense
from ..tensors.foreign import qualified
from ..tensors.labels import Labels
from ..tensors.late_imports import Origin
from ..tensors.tensor import Tensor
from ..tensors.validation import fitting_format, mirror_problems
from . import packing, running
from .columns import Nulls, TableReader, is_table
from .plan import NUMBERED, Chunk, Plan, Source, check_told, fits_whole, planned, refuse_scalar
from .sources import Tensors, blocks, checked_columns, entries_in_parts, pair_of, ranked, spilled, unchanged
from .work import open_work, scratch

# Known after the last chunk: the final plan, the labels, and the new coordinates by dimension
_Finished: TypeAlias = tuple[Plan, Labels | None, Mapping[int, Array]]


@within_memory
def convert(
    source: StoreLike,
    target: StoreLike,
    format: FormatLike | None = None,
    *,
    map: MapLike | None = None,
    memory: int | None = None,
    client: Any = None,
    progress: Progress | bool | None = None,
    overwrite: Overwrite = False,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Write the tensor at `source` to `target`, in another format or its own.

    Parameters
    ----------
    source, target : as the path of `read` and `write`.
    format : the format of the target; by default, that of the source. From a dense array in a file of another system,
        a sparse target stores the cells that differ from zero.
    map : an index map, or its notation, through which the target is stored; by default, that of the source. With a
        map and no format, the target is a list of coordinates. The identity, such as "0, 1", removes a map.
    memory : bytes that the whole process may use, such as 2**30. Scratch files next to the target need 20 to 40 bytes
        for each entry. With it, text of Matrix Market, FROSTT, svmlight and 10x folders is read in blocks; their labels
        stay in memory. By default, the memory is not bounded.
    client : a Dask client, or an executor of `concurrent.futures`, which sorts and packs in other processes. `memory`
        bounds each process. Text is read by this process alone. To write in other processes too, see `build`.
    progress : called with the name of a stage, the number of finished steps, and their total. True draws a bar on
        standard error, if that is a terminal.
    overwrite, limits, options : as for `write`. Tensors that exceed the memory accept neither `narrow` nor `bitpacked`.

    Raises
    ------
    LimitError : the memory is too small. Levels other than dense and sparse need all entries in memory.
    BinsparseError : as for `read`, `Tensor.convert` and `write`.

    >>> import binsparse_levels as bl
    >>> source, target = {}, {}
    >>> bl.write(source, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    >>> bl.convert(source, target, "CSC")
    >>> str(bl.read(target).format)
    'CSC'
    """
    kind = check_absent(target, overwrite, options.get("kind")).kind
    for name in options.keys() - {*inspect.signature(write).parameters, *kind.writes}:
        what = "is no option of convert; pass options of `read` to read(…), and write its tensor"
        raise OptionError(Problem(name, what))
    format, map = (None, map) if format is None else with_map(format, map)
    rest = {"progress": reporter(progress), "overwrite": overwrite, "limits": limits, **options}
    with contextlib.nullcontext() if memory is None else reading.streamed(source, limits=limits) as stream:
        if stream is not None:
            _convert_text(stream, target, format, map, memory, rest)
            return
    opened = reading.open(source, limits=limits)
    reading.warn_of_others(source)
    tensor = opened.stored
    through = opened.map if map is None else _through(map, opened.shape)
    shape = opened.shape if through is None else through.stored_shape
    own = tensor.format if map is None else coordinates(len(shape))
    parsed = fitting_format(own if format is None else format, shape, limits, mapped=through is not None)
    tree, order, origins = tensor._source, tensor.format.order, [opened._backing.stored.origin]
    blank = drops_zeros(source, opened, parsed)
    plan = None
    if memory is not None:
        pointers = _pointers(tree)
        given: dict[str, Any] = {"dtype": tensor.dtype, "limits": limits, "memory": memory, "pointers": pointers}
        plan = planned(opened.shape, parsed, map=through, **given)
    if plan is None or not tree.lazy or in_memory(source) or _entries(tree, plan.rows) <= plan.rows:
        known = opened if map is None or through is not None else opened.without_map()
        made = known.convert(parsed, map=None if map is None else through, limits=limits)
        made = made.drop_fill() if blank else made
        with unchanged(target, origins, limits):
            write(target, made, overwrite=overwrite, limits=limits, **options)
        return
    if blank:
        filled = replace(plan, fill_value=opened.fill_value).typed(opened.dtype)
        cells = entries_in_parts(opened, plan.rows)
        _write_chunks(filled.raw, cells, target, rest, lambda: (filled, opened._metadata.labels, {}), origins)
        return
    check_target(target, overwrite=overwrite, **options)
    kept = map is None and ordered_dims(tuple(order.index(k) for k in parsed.order)) == len(order)
    ordered = kept and not tree.shares and all(level.ascending for level in tree.levels)
    one = np.asarray(tree.values[:1]) if tensor.iso and not parsed.padded else None
    plan = replace(plan, sorted=ordered, one=one).like(opened)
    with scratch(target) as folder:
        _write_parts(folder, plan, Tensors([(name_of(source), opened)], plan.rows), target, rest, client, origins)


def _through(map: MapLike, shape: Sequence[int]) -> IndexMap | None:
    """The map, or None for the identity, which removes a map."""
    parsed = parse_map(map, shape)
    return None if parsed == IndexMap.transpose(shape) else parsed


def drops_zeros(source: StoreLike, tensor: Tensor, format: Format) -> bool:
    """Return True if zeros are dropped: `tensor` is a dense array of another system, and the target is sparse."""
    return is_dense(tensor) and not format.padded and is_foreign(source)


@within_memory
def write_from(
    chunks: Iterable[Any] | Any,
    /,
    path: StoreLike,
    shape: int | Sequence[int | None] | None,
    format: FormatLike,
    *,
    memory: int | None = None,
    duplicates: Duplicates = "error",
    dims: Sequence[str] | None = None,
    values: str | None = None,
    labels: Mapping[str, Any] | None = None,
    nulls: Nulls = "error",
    dtype: npt.DTypeLike | None = None,
    fill_value: Any = None,
    attributes: Mapping[str, Any] | None = None,
    map: MapLike | None = None,
    progress: Progress | bool | None = None,
    overwrite: Overwrite = False,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Write a stream of entries, in any order and larger than memory, as one tensor.

    Parameters
    ----------
    chunks : an iterable, which is read once. An item is a pair of coordinates and values as for `pack`, or a tensor,
        in memory or opened. With `dims` and `values`, an item may also be a table with Arrow's C stream, such as those
        of pandas, polars, pyarrow, and relations of duckdb. A tensor or a table can also be passed alone.
    path, overwrite, limits, options : as for `write`, without `narrow` and `bitpacked`.
    shape : as for `pack`. If a size or the shape is None, the chunks determine it: a size is the number of labels, or
        one more than the largest coordinate.
    format, fill_value, attributes, map : as for `pack`. By default, the attributes are those of the first tensor.
        Entries that exceed the memory need levels that are joined array by array, such as those of CSF.
    memory : bytes that the whole process may use, such as 2**30; by default, 1 GiB more than it uses. A chunk has to
        fit too. Entries that exceed the memory need scratch files next to the target, of about three times their size,
        or twice if chunks are in the order of the format.
    duplicates : as for `pack`, over all chunks, in their order.
    dims, values : the names of the columns with the coordinates, in order, and with the values. Labels in a column,
        such as texts, stay in memory until the last chunk. Then they are numbered in ascending order, and stored.
    labels : all labels of a dimension by its name, in the order of their coordinates.
    nulls : "drop" leaves out rows with a null in one of the columns.
    dtype : the type of the values; by default, that of the first chunk with entries.
    progress : called with the name of a stage, the number of finished steps or entries, and their total. True draws a
        bar on standard error, if that is a terminal.

    Raises
    ------
    ArrayError : a column contains nulls; the message names it.
    LimitError : the memory is too small.
    ContainerError : a tensor of the chunks is that at `path`, and another program has changed it since it was opened.
    BinsparseError : as for `pack` and `write`. A failure leaves no files.

    >>> import binsparse_levels as bl
    >>> store = {}
    >>> chunks = (([[3 * k, k], [k, k]], [1.0, 2.0]) for k in range(2))
    >>> bl.write_from(chunks, store, (4, 2), "CSR", duplicates="sum")
    >>> bl.read(store).to_dense().tolist()
    [[3.0, 0.0], [0.0, 2.0], [0.0, 0.0], [0.0, 1.0]]
    """
    if shape is None and dims is None:
        raise OptionError(Problem("shape", "None needs names of the dimensions; pass dims=, or a size for each"))
    sizes: Any = [None] * len(dims or ()) if shape is None else shape
    open_ended = isinstance(sizes, Sequence) and None in sizes
    common: dict[str, Any] = {"duplicates": duplicates, "dtype": dtype, "fill_value": fill_value}
    common |= {"attributes": attributes, "limits": limits}
    if open_ended:  # keep the coordinates unchanged until all sizes are known
        most = [INT64_MAX if size is None else size for size in sizes]
        plan = planned(most, coordinates(len(most)), memory=memory, **common)
    else:
        plan = planned(sizes, format, map=map, memory=memory, **common)
    check_target(path, overwrite=overwrite, **options)
    check_choice("nulls", nulls, Nulls)
    rows, told = _reader(plan, dims, values, labels, nulls), _Told([0] * len(plan.shape))
    stream = _measured(_chunks(chunks, plan, rows, told), told)
    first: list[Chunk] = []
    while not (first and len(first[-1][1])) and (chunk := next(stream, None)) is not None:
        first.append(chunk)  # the type of an empty chunk is not that of the values
    if not first and plan.dtype is None:
        raise OptionError(Problem("dtype", "the type of the values is unknown without chunks; pass dtype="))
    names = None if rows is None else (*rows.dims, str(rows.values))
    plan = replace(plan.typed(first[-1][1].dtype if first else np.dtype(float)), names=names)

    def finished() -> _Finished:
        """The final plan. Labels become ascending, so that ranges of them can be selected."""
        first, sized = told.first, plan
        own = None if first is None else first._metadata.labels  # names alone: labels need `rows`
        ranks, known = ({}, own) if rows is None else (rows.ascend(), rows.labels())
        if open_ended:
            measured = told.ends if rows is None else rows.sizes(told.ends)
            found = [end if size is None else size for size, end in zip(sizes, measured, strict=True)]
            sized = planned(found, format, map=map, rows=plan.rows, names=names, **common)
            check_told(sized, told.entries, NUMBERED)
            sized = sized.typed(plan.column_types[-1])
        return sized if first is None else sized.described(first), known, ranks

    rest = {"progress": reporter(progress), "overwrite": overwrite, "limits": limits, **options}
    _write_chunks(plan.raw, itertools.chain(first, stream), path, rest, finished, told.origins)


@dataclass
class _Told:
    """What a stream tells. ends: the largest coordinate + 1 by dimension. entries: their number. first: the first
    tensor, whose attributes are kept. origins: the files of all tensors.
    """

    ends: list[int]
    entries: int = 0
    first: Tensor | None = None
    origins: set[Origin | None] = field(default_factory=set)


def _measured(chunks: Iterable[Chunk], told: _Told) -> Iterator[Chunk]:
    """Yield the chunks unchanged, and count them."""
    for coords, values in chunks:
        if len(values):
            told.ends = [max(end, int(x.max()) + 1) for end, x in zip(told.ends, coords, strict=True)]
            told.entries += len(values)
        yield coords, values


def _convert_text(
    stream: Stream,
    target: StoreLike,
    format: FormatLike | None,
    map: MapLike | None,
    memory: int | None,
    rest: Mapping[str, Any],
) -> None:
    """`convert` for a text file, which is read in blocks. rest: its other parameters."""
    release()  # memory that reading the shape and the labels took
    limits = rest["limits"]
    if map is not None:
        map = _through(map, stream.shape)
        if map is not None and stream.structure is not None:
            raise FormatError(Problem("map", f"a matrix that is {stream.structure} has no map; leave it out"))
        format = format or coordinates(len(stream.shape if map is None else map.groups))
    plan = planned(stream.shape, format or stream.format, map=map, dtype=stream.dtype, limits=limits, memory=memory)
    plan = replace(plan, one=None if plan.parsed.padded else stream.one, structure=stream.structure)
    if stream.structure is not None:
        raise_if(FormatError, list(structure_problems(stream.structure, stream.shape, stream.dtype)))
        raise_if(FormatError, mirror_problems(stream.structure, plan.parsed, plan.pad))

    def chunks() -> Iterator[Chunk]:
        for chunk in stream.chunks:
            coords, values = pair_of(chunk, len(stream.shape))
            if stream.structure is not None and plan.parsed.padded:
                raise_if(ArrayError, list(diagonal_problems(stream.structure, coords, values)))
            yield coords, values

    _write_chunks(plan.raw, chunks(), target, rest, lambda: (plan, stream.labels, {}))


def _write_chunks(
    raw: Plan,
    chunks: Iterable[Chunk],
    path: StoreLike,
    rest: Mapping[str, Any],
    finish: Callable[[], _Finished],
    origins: Collection[Origin | None] = (),
) -> None:
    """Write the entries of all chunks.

    rest: `progress`, options of `write`. finish: called after the last chunk. origins: the files of opened tensors
    among the chunks, known after the last.
    """
    found = blocks(raw, chunks)
    begun = [x for x in (next(found, None), next(found, None)) if x is not None]
    finished = finish() if len(begun) < 2 else None
    options = {name: x for name, x in rest.items() if name != "progress"}
    if finished is not None and fits_whole(finished[0]):
        plan, labels, ranks = finished
        (columns,) = begun or [[np.empty(0, dtype) for dtype in raw.column_types]]
        made = packing.whole(plan, checked_columns(plan, ranked(raw, columns, ranks)))._labelled(labels)
        with unchanged(path, origins, plan.limits):
            write(path, made, **options)
        return
    options.pop("limits")
    check_target(path, **options)
    refuse_scalar(raw)
    with scratch(path) as folder:
        every = itertools.chain((begun.pop(0) for _ in range(len(begun))), found)  # frees each block after use
        kept, in_order = spilled(folder, raw, every, rest["progress"])
        plan, kept.known, kept.ranks = finished or finish()
        plan = replace(plan, sorted=in_order and plan.order == raw.order and not kept.ranks)
        _write_parts(folder, plan, kept, path, rest, None, origins)


def _write_parts(
    folder: str,
    plan: Plan,
    entries: Source,
    target: StoreLike,
    rest: Mapping[str, Any],
    client: Any,
    origins: Collection[Origin | None],
) -> None:
    """Sort and pack the entries in the folder, in parts, and write all trees as one tensor, in pieces."""
    with open_work(folder, plan, entries, sent=not running.in_this_process(client)) as work:
        running.run(work, client, rest["progress"])
        header, encoded = packing.encoded(work, packing.join_heads(work))
        with unchanged(target, origins, plan.limits):
            write_pieces(target, header, encoded, **rest)


def _reader(
    plan: Plan, dims: Sequence[str] | None, values: str | None, labels: Mapping[str, Any] | None, nulls: Nulls
) -> TableReader | None:
    """The reader of tables, or None if chunks are arrays. Raises OptionError."""
    if dims is None or values is None:
        if (dims, values, labels) != (None, None, None):
            what = "name the columns of the coordinates and of the values: dims= and values="
            raise OptionError(Problem("dims", what))
        return None
    if len(dims) != len(plan.shape):
        raise OptionError(Problem("dims", f"{len(dims)} names for {len(plan.shape)} dimensions"))
    return TableReader(dims, values, labels, nulls)


def _chunks(chunks: Any, plan: Plan, rows: TableReader | None, told: _Told) -> Iterator[Chunk]:
    """The chunks of a stream, as arrays. Raises OptionError, ArrayError."""
    whole = is_table(chunks) or isinstance(chunks, Tensor)
    if not whole and (isinstance(chunks, str | bytes) or not isinstance(chunks, Iterable)):
        what = f"expected an iterable of pairs of coordinates and values, or a table, got {qualified(chunks)}"
        raise OptionError(Problem("chunks", what))
    for chunk in [chunks] if whole else chunks:
        if isinstance(chunk, Tensor):
            told.first = chunk if told.first is None else told.first
            told.origins.add(chunk._backing.stored.origin)
            yield from _entries_of(chunk, plan, rows)
        elif is_table(chunk):
            if rows is None:
                raise OptionError(Problem("dims", "a table needs the names of its columns; pass dims= and values="))
            yield from rows.chunks(chunk)
        else:
            yield pair_of(chunk, len(plan.shape))


def _entries_of(tensor: Tensor, plan: Plan, rows: TableReader | None) -> Iterator[Chunk]:
    """The entries of a tensor that is merged with others. Raises ArrayError."""
    if tensor.ndim != len(plan.shape):
        raise ArrayError(Problem("chunks", f"a tensor has {tensor.ndim} dimensions, and {len(plan.shape)} are written"))
    fill = np.zeros((), tensor.dtype) if plan.fill_value is None else plan.fill_value
    if not np.array_equal(tensor._pad(), fill, equal_nan=tensor.dtype.kind in "fcmM"):
        what = f"a tensor has the fill value {tensor._pad()}, and another one is written; pass fill_value= as it has"
        raise ArrayError(Problem("fill_value", what))
    labels = tensor._metadata.labels
    if rows is None and labels is not None and labels.columns:
        raise OptionError(Problem("dims", "a tensor has labels; name its dimensions and values by dims= and values="))
    empty = [np.empty(0, np.int64)] * tensor.ndim, np.empty(0, tensor.dtype)  # adds the labels even without entries
    for coords, values in itertools.chain([empty], entries_in_parts(tensor, plan.rows)):
        yield coords if rows is None else rows.renumbered(coords, labels), values


def _entries(tree: Tree, rows: int) -> int:
    """The number of entries of a tree, or of its positions if some are empty."""
    return sum(block.size for block in blocks_of(tree, rows)) if tree.shares else len(tree.values)


def _pointers(tree: Tree) -> float:
    """The number of pointers of a tree for each entry: more than one if many fibers are empty."""
    return sum(n for place, _, n in tree.walk() if place.pointer) / max(len(tree.values), 1)
