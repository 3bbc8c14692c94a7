"""Convert a tensor that is larger than memory, and write a stream of entries, into any kind of file."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..containers.replacing import Overwrite
from ..engine.blocks import blocks_of
from ..engine.packing import ordered_dims
from ..engine.tree import Duplicates, Tree
from ..errors import ArrayError, FormatError, OptionError, Problem, raise_if, within_memory
from ..formats.format import Format, FormatLike, coordinates, parse_format, with_map
from ..formats.index_map import IndexMap, MapLike, parse_map
from ..formats.structure import diagonal_problems, structure_problems
from ..io import reading
from ..io.files.text_tables import Stream as Text
from ..io.kinds import StoreLike, in_memory, is_foreign, name_of, target_at
from ..io.writing import check_target, formats_in_pieces, free_location, write, write_pieces
from ..limits import DEFAULT_LIMITS, Limits
from ..progress import Progress, reporter
from ..system import release
from ..tensors.changing import is_dense
from ..tensors.late_imports import Origin
from ..tensors.tensor import Tensor, inside, remade
from ..tensors.validation import fitting_format, mirror_problems
from . import packing, running
from .columns import Nulls
from .plan import Chunk, Plan, Source, fits_whole, refuse_scalar
from .recognising import Entries, Stream
from .request import Request
from .sources import Tensors, blocks, checked_columns, entries_in_parts, pair_of, ranked, spilled, unchanged
from .work import open_work, scratch


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
    source, target : str, PathLike, group, store or mapping
        As the path of `read` and `write`.
    format : str, Format or mapping, optional
        The format of the target; by default, that of the source. From a dense array in a file of another system, a
        sparse target stores the cells that differ from zero.
    map : str or IndexMap, optional
        An index map, or its notation, through which the target is stored; by default, that of the source. With a map
        and no format, the target is a list of coordinates. The identity, such as "0, 1", removes a map.
    memory : int, optional
        Bytes that the whole process may use, such as 2**30. Scratch files next to the target need 20 to 40 bytes for
        each entry. With it, text of Matrix Market, FROSTT, svmlight, METIS and 10x folders is read in blocks; their
        labels stay in memory. By default, the memory is not bounded.
    client : dask.distributed.Client or concurrent.futures.Executor, optional
        A Dask client, or an executor of `concurrent.futures`, which sorts and packs in other processes. `memory`
        bounds each process. Text is read by this process alone. To write in other processes too, see `build`.
    progress : bool or callable, optional
        Called with the name of a stage, the number of finished steps, and their total. True draws a bar on standard
        error, if that is a terminal.
    overwrite : bool or 'file', default False
        True replaces an existing tensor; see `write`.
    limits : Limits, optional
        Bounds on the resources of this call.
    **options
        Options of `write`. Tensors that exceed the memory accept neither `narrow` nor `bitpacked`.

    Raises
    ------
    LimitError
        The memory is too small. Levels other than dense and sparse need all entries in memory.
    BinsparseError
        See `read`, `Tensor.convert` and `write`.

    See Also
    --------
    write_from : Write a stream of entries.
    Tensor.convert : The same entries in another format.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> source, target = {}, {}
    >>> bl.write(source, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    >>> bl.convert(source, target, "CSC")
    >>> str(bl.read(target).format)
    'CSC'
    """
    kind = free_location(target, overwrite, options.get("kind")).kind
    for name in options.keys() - {*inspect.signature(write).parameters, *kind.writes}:
        what = "is no option of convert; pass options of `read` to read(…), and write its tensor"
        raise OptionError(Problem(name, what))
    format, map = (None, map) if format is None else with_map(format, map)
    written = FileTarget(target, overwrite, limits, options, reporter(progress))
    with contextlib.nullcontext() if memory is None else reading.streamed(source, limits=limits) as text:
        if text is not None:
            written.take(_of_text(text, format, map, memory, limits))
            return
    opened, header = reading.opened(source, limits, coordinates=True)
    reading.warn_of_others(source)
    tensor = opened.stored
    through = opened.map if map is None else _through(map, opened.shape)
    shape = opened.shape if through is None else through.stored_shape
    own = tensor.format if map is None else coordinates(len(shape))
    parsed = fitting_format(own if format is None else format, shape, limits, mapped=through is not None)
    origins, labels = {inside(opened).backing.plan.origin}, inside(opened).metadata.labels
    request = None
    if memory is not None:
        request = Request(parsed, through, dtype=opened.dtype, limits=limits, memory=memory)
    if opened.parts and request is not None:
        joined = request.plan(opened.shape).like(opened)
        written.take(Entries(joined, entries_in_parts(opened, joined.rows), labels, origins))
        return
    tree, order = inside(tensor).source, tensor.format.order
    blank = drops_zeros(source, opened, parsed)
    plan = None if request is None else request.plan(opened.shape, pointers=_pointers(tree))
    if plan is None or not tree.lazy or in_memory(source) or _entries(tree, plan.rows) <= plan.rows:
        if header is None and tree.lazy:  # `read` sorts a file of another system
            opened = reading.read(source, limits=limits)
        known = opened if map is None or through is not None else opened.without_map()
        made = known.convert(parsed, map=None if map is None else through, limits=limits)
        written.write(made.drop_fill() if blank else made, origins)
        return
    if blank:
        filled = replace(plan, fill_value=opened.fill_value).typed(opened.dtype)
        written.take(Entries(filled, entries_in_parts(opened, plan.rows), labels, origins))
        return
    kept = map is None and ordered_dims(tuple(order.index(k) for k in parsed.order)) == len(order)
    ordered = kept and not tree.shares and all(level.ascending for level in tree.levels)
    one = np.asarray(tree.values[:1]) if tensor.iso and not parsed.padded else None
    plan = written.fitted(replace(plan, sorted=ordered, one=one).like(opened))
    written.begin(plan)
    with scratch(target) as folder:
        written.finish(folder, plan, Tensors([(name_of(source), opened)], plan.rows), origins, client)


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
    chunks : iterable
        An iterable, which is read once. An item is a pair of coordinates and values, such as those of `pack`; a
        tensor, in memory or opened; or a range and a tensor of these coordinates along one dimension, as
        `Tensor.slabs` yields them. With `dims`, an item may also be a table with Arrow's C stream, such as those of
        pandas, polars, pyarrow, and relations of duckdb. A tensor or a table can also be passed alone.
    path : str, PathLike, group, store or mapping
        Target; see `write`.
    shape : int or sequence of int
        Sizes of the dimensions. If a size or the shape is None, the chunks determine it: a size is the number of
        labels, or one more than the largest coordinate.
    format : str, Format or mapping
        Format of the stored tensor. Entries that exceed the memory need levels that are joined array by array, such as
        those of CSF.
    memory : int, optional
        Bytes that the whole process may use, such as 2**30; by default, 1 GiB more than it uses. A chunk has to fit
        too. Entries that exceed the memory need scratch files next to the target, of about three times their size, or
        twice if chunks are in the order of the format.
    duplicates : {'error', 'sum', 'first', 'last'}, default 'error'
        Treatment of repeated coordinates in all chunks, in their order; see `pack`.
    dims : sequence of str, optional
        Names of the dimensions.
    values : str, optional
        Name of the column with the values; `dims` are those with the coordinates. By default, each row of a table has
        the value 1. Labels in a column, such as texts, stay in memory until the last chunk. Then they are numbered in
        ascending order, and stored.
    labels : mapping, optional
        All labels of a dimension by its name, in the order of their coordinates.
    nulls : {'error', 'drop'}, default 'error'
        "drop" leaves out rows with a null in one of the columns.
    dtype : dtype_like, optional
        The type of the values; by default, that of the first chunk with entries.
    fill_value : scalar, optional
        Value of the cells that are not stored.
    attributes : mapping, optional
        JSON object that is stored with the tensor. By default, that of the first tensor of the chunks.
    map : str or IndexMap, optional
        Index map through which the tensor is stored.
    progress : bool or callable, optional
        Called with the name of a stage, the number of finished steps or entries, and their total. True draws a bar on
        standard error, if that is a terminal.
    overwrite : bool or 'file', default False
        True replaces an existing tensor; see `write`.
    limits : Limits, optional
        Bounds on the resources of this call.
    **options
        Options of `write`, without `narrow` and `bitpacked`.

    Raises
    ------
    ArrayError
        A column contains nulls; the message names it.
    LimitError
        The memory is too small.
    ContainerError
        A tensor of the chunks is that at `path`, and another program has changed it since it was opened.
    BinsparseError
        See `pack` and `write`. A failure leaves no files.

    See Also
    --------
    build : Build a tensor in a sharded Zarr store by many processes.
    convert : Write a tensor in another format to another path.
    append : Append a tensor to a stored one.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> store = {}
    >>> chunks = (([[3 * k, k], [k, k]], [1.0, 2.0]) for k in range(2))
    >>> bl.write_from(chunks, store, (4, 2), "CSR", duplicates="sum")
    >>> bl.read(store).to_dense().tolist()
    [[3.0, 0.0], [0.0, 2.0], [0.0, 0.0], [0.0, 1.0]]
    """
    request = Request(
        format, map, duplicates, nulls, dtype, fill_value, attributes, limits, shape, dims, values, labels, memory
    )
    target = FileTarget(path, overwrite, limits, options, reporter(progress))
    target.begin()
    target.take(Stream(chunks, request))


@dataclass(frozen=True)
class FileTarget:
    """Any kind of file, written by this process. options: the others of `write`."""

    path: StoreLike
    overwrite: Overwrite
    limits: Limits
    options: Mapping[str, Any]
    progress: Progress | None

    @cached_property
    def formats(self) -> list[Format]:
        """The formats in which another system's file is written in pieces; none for a container, which takes any."""
        return [*map(parse_format, formats_in_pieces(target_at(self.path, self.options.get("kind"))))]

    def fitted(self, plan: Plan) -> Plan:
        """The plan of what another system's file stores: without a map, in one of its formats with the same order."""
        order = plan.order or coordinates(len(plan.shape)).order
        format = next((x for x in self.formats if x.order == order), None)
        if format is None or (plan.parsed == format and plan.map is None):
            return plan
        return replace(plan, format=str(format), map=None, sorted=plan.sorted and plan.map is None)

    def begin(self, plan: Plan | None = None) -> None:
        """Raise the errors that are known before there are entries. plan: of those that exceed the memory."""
        check_target(self.path, overwrite=self.overwrite, **self.options)
        if plan is not None and self.formats and plan.parsed not in self.formats:
            names = " or ".join(map(str, self.formats))
            what = f"entries that exceed the memory are stored here as {names}; pass one of these formats"
            raise FormatError(Problem(name_of(self.path), what))

    def write(self, tensor: Tensor, origins: Collection[Origin | None]) -> None:
        """Write a tensor that fits into memory. origins: the files of its sources."""
        with unchanged(self.path, origins, self.limits):
            write(self.path, tensor, overwrite=self.overwrite, limits=self.limits, **self.options)

    def take(self, entries: Entries) -> None:
        """Write a stream: packed at once if it fits into memory, else in parts."""
        chunks = entries.chunks()
        raw = self.fitted(entries.plan).raw
        found = blocks(raw, chunks)
        begun = [x for x in (next(found, None), next(found, None)) if x is not None]
        finished = entries.finished() if len(begun) < 2 else None
        if finished is not None and fits_whole(finished[0]):
            plan, labels, ranks = self.fitted(finished[0]), *finished[1:]
            (columns,) = begun or [[np.empty(0, dtype) for dtype in raw.column_types]]
            made = packing.whole(plan, checked_columns(plan, ranked(raw, columns, ranks)))
            self.write(remade(made, labels=labels), entries.origins)
            return
        self.begin(self.fitted(entries.plan))
        refuse_scalar(raw)
        with scratch(self.path) as folder:
            every = itertools.chain((begun.pop(0) for _ in range(len(begun))), found)  # frees each block after use
            kept, in_order = spilled(folder, raw, every, self.progress)
            plan, kept.known, kept.ranks = finished or entries.finished()
            plan = self.fitted(plan)
            plan = replace(plan, sorted=in_order and plan.order == raw.order and not kept.ranks)
            self.finish(folder, plan, kept, entries.origins)

    def finish(
        self, folder: str, plan: Plan, entries: Source, origins: Collection[Origin | None], client: Any = None
    ) -> None:
        """Sort and pack the entries in the folder, in parts, and write all trees as one tensor, in pieces."""
        with open_work(folder, plan, entries, sent=not running.in_this_process(client)) as work:
            running.run(work, client, self.progress)
            heads = packing.join_heads(work)
            if self.formats:
                self.write(packing.lazily(work, heads), origins)
                return
            header, encoded = packing.encoded(work, heads)
            with unchanged(self.path, origins, self.limits):
                write_pieces(
                    self.path, header, encoded, progress=self.progress,
                    overwrite=self.overwrite, limits=self.limits, **self.options,
                )  # fmt: skip


def _of_text(text: Text, format: FormatLike | None, map: MapLike | None, memory: int | None, limits: Limits) -> Entries:
    """The entries of a text file, which is read in blocks, for `convert`."""
    release()  # memory that reading the shape and the labels took
    shape, structure = text.shape, text.structure
    if map is not None:
        map = _through(map, shape)
        if map is not None and structure is not None:
            raise FormatError(Problem("map", f"a matrix that is {structure} has no map; leave it out"))
        format = format or coordinates(len(shape if map is None else map.groups))
    request = Request(format or text.format, map, dtype=text.dtype, limits=limits, memory=memory)
    plan = request.plan(shape)
    plan = replace(plan, one=None if plan.parsed.padded else text.one, structure=structure)
    if structure is not None:
        raise_if(FormatError, list(structure_problems(structure, shape, text.dtype)))
        raise_if(FormatError, mirror_problems(structure, plan.parsed, plan.pad))

    def chunks() -> Iterator[Chunk]:
        for chunk in text.chunks:
            coords, values = pair_of(chunk, len(shape))
            if structure is not None and plan.parsed.padded:
                raise_if(ArrayError, list(diagonal_problems(structure, coords, values)))
            yield coords, values

    return Entries(plan, chunks(), text.labels)


def _entries(tree: Tree, rows: int) -> int:
    """The number of entries of a tree, or of its positions if some are empty."""
    return sum(block.size for block in blocks_of(tree, rows)) if tree.shares else len(tree.values)


def _pointers(tree: Tree) -> float:
    """The number of pointers of a tree for each entry: more than one if many fibers are empty."""
    return sum(n for place, _, n in tree.walk() if place.pointer) / max(len(tree.values), 1)
