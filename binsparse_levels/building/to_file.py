"""Convert a tensor that is larger than memory, and write a stream of entries, into any kind of file."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import Array, in_pieces
from ..containers.replacing import Overwrite
from ..engine import joining
from ..engine.blocks import blocks_of
from ..engine.emission import Duplicates
from ..engine.packing import ordered_dims, unpack_tree
from ..engine.tree import Tree, index_dtype
from ..errors import ArrayError, FormatError, OptionError, Problem, raise_if, within_memory
from ..formats.format import FormatLike, coordinates, with_map
from ..formats.index_map import IndexMap, MapLike, parse_map
from ..formats.structure import diagonal_problems, structure_problems
from ..io import reading
from ..io.files.text_tables import Stream
from ..io.kinds import Place, in_memory, name_of
from ..io.reading import check_lazy
from ..io.writing import Progress, check_absent, check_target, write, write_pieces
from ..limits import DEFAULT_LIMITS, Limits
from ..system import release, resident
from ..tensors.encoding import Metadata, encode_pieces
from ..tensors.foreign import qualified
from ..tensors.labels import Labels
from ..tensors.validation import fitting_format, mirror_problems
from . import partitions, running, tables, trees
from .bad_rows import Bad, BadRows, Told
from .chunks import Chunk, picked
from .columns import cast_types
from .planning import Plan, check_joined, planned, rows_within
from .sources import pair_of
from .stored_tensors import Tensors, pointers_of
from .work import Work, begin, scratch


@within_memory
def convert(
    source: Place,
    target: Place,
    format: FormatLike | None = None,
    *,
    map: MapLike | None = None,
    memory: int | None = None,
    client: Any = None,
    progress: Progress | None = None,
    overwrite: Overwrite = False,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Write the tensor at `source` to `target`, in another format or its own.

    Parameters
    ----------
    source, target : as the path of `read` and `write`.
    format : the format of the target; by default, that of the source.
    map : an index map, or its notation, through which the target is stored; by default, that of the source. With a
        map and no format, the target lists coordinates.
    memory : bytes that the whole process may use, such as 2**30. Scratch files beside the target need 20 to 40 bytes
        for each entry. With it, text of Matrix Market, FROSTT, svmlight and 10x folders is read in blocks; their labels
        stay in memory. By default, the memory is not bounded.
    client : a Dask client, or an executor of `concurrent.futures`, which sorts and packs in other processes. Each
        process uses so much memory. Text is read by this process alone. To write in other processes too, see `build`.
    progress : called with the name of a stage, the number of finished steps, and their total.
    overwrite, limits, options : as for `write`. What exceeds the memory takes neither `narrow` nor `bitpacked`.

    Raises the errors of `read`, `Tensor.convert` and `write`; LimitError for too little memory, also where the
    entries exceed it and the levels of the target are joined through their entries.

    >>> import binsparse_levels as bl
    >>> source, target = {}, {}
    >>> bl.write(source, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    >>> bl.convert(source, target, "CSC")
    >>> str(bl.read(target).format)
    'CSC'
    """
    check_absent(target, overwrite, options.get("kind"))
    format, map = (None, map) if format is None else with_map(format, map)
    if map is not None and memory is not None:
        raise OptionError(Problem("memory", "another map needs the whole tensor in memory; leave out map or memory"))
    rest = {"progress": progress, "overwrite": overwrite, "limits": limits, **options}
    with contextlib.nullcontext() if memory is None else reading.streamed(source, limits=limits) as stream:
        if stream is not None:
            _convert_stream(stream, target, format, memory, rest)
            return
    opened = reading.open(source, limits=limits)
    if map is not None:
        through = parse_map(map, opened.shape)
        listed = coordinates(len(through.groups)) if format is None else format
        write(target, opened.convert(listed, map=through, limits=limits), overwrite=overwrite, limits=limits, **options)
        return
    tensor = opened.stored
    wanted_format = tensor.format if format is None else format
    parsed = fitting_format(wanted_format, tensor.shape, limits, mapped=opened.map is not None)
    if tensor.structure is not None:
        raise_if(FormatError, mirror_problems(tensor.structure, parsed, tensor._pad()))
    tree, order = tensor._source, tensor.format.order
    rows = None if memory is None else _rows_of(memory, tree)
    if rows is None or not tree.lazy or in_memory(source) or _entries(tree, rows) <= rows:
        write(target, opened.convert(parsed, limits=limits), overwrite=overwrite, limits=limits, **options)
        return
    check_target(target, overwrite=overwrite, **options)
    check_lazy(tree, name_of(source), tensor.format.order)
    kept = ordered_dims(tuple(order.index(k) for k in parsed.order)) == len(order)
    entries = Tensors([source], rows, limits=asdict(limits))
    ordered = kept and not tree.shares and all(level.ascending for level in tree.levels)
    wanted = planned(tensor.shape, parsed, dtype=tensor.dtype, limits=limits, rows=rows, sorted=ordered)
    plan = wanted.reading(entries, fill=tensor._pad())
    check_joined(plan, 0 if joining.by_arrays(parsed.levels) else tensor.number_of_stored_values)
    one = np.asarray(tree.values[:1]) if tensor.iso and not parsed.padded else None
    with scratch(target) as folder, _begun(folder, plan, entries) as work:
        running.run(work, client, progress)
        _write_joined(work, "pack", target, opened._metadata, one, rest, tensor.structure, opened.map)


@within_memory
def write_from(
    chunks: Iterable[Any] | Any,
    /,
    path: Place,
    shape: int | Sequence[int],
    format: FormatLike,
    *,
    memory: int | None = None,
    duplicates: Duplicates = "error",
    bad: Bad = "raise",
    dims: Sequence[str] | None = None,
    values: str | None = None,
    labels: Mapping[str, Any] | None = None,
    dtype: npt.DTypeLike | Mapping[str, npt.DTypeLike] | None = None,
    fill_value: Any = None,
    attributes: Mapping[str, Any] | None = None,
    map: MapLike | None = None,
    progress: Progress | None = None,
    overwrite: Overwrite = False,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> BadRows:
    """Write a stream of entries, in any order and larger than memory, as one tensor.

    Parameters
    ----------
    chunks : an iterable, which is read once, of pairs of coordinates and values as `pack` takes them. With `dims` and
        `values`, a table or an iterable of tables with Arrow's C stream, as those of pandas, polars, pyarrow, duckdb.
    path, overwrite, limits, options : as for `write`, without `narrow` and `bitpacked`.
    shape, format, fill_value, attributes, map : as for `pack`. What exceeds the memory needs levels that are
        joined array by array, such as those of CSF. A dimension with labels may be larger than their number, which is
        known at the end.
    memory : bytes that the whole process may use, such as 2**30; by default, 1 GiB more than it has. A chunk has to
        fit too. Chunks in the order of the format are packed as they come. Others need scratch files beside the target,
        of about three times their size.
    duplicates : as for `pack`, over all chunks, in their order.
    bad : "skip" leaves out rows whose coordinate is null, negative, out of range or no whole number, or whose value is
        null. The call returns how many for each reason, and the places of the first hundred.
    dims, values : the names of the columns with the coordinates, in order, and with the values. Labels in a column,
        such as texts, are numbered in order of appearance, and stored beside the tensor. Meanwhile they stay in memory.
    labels : all labels of a dimension by its name, in the order of their coordinates.
    dtype : the type of the values; by default, that of the first chunk. Of tables also the types that columns are cast
        to, such as {"user": "int64", "price": "float64"}, as for `build`.
    progress : called with the name of a stage, the number of finished steps or entries, and their total.

    Raises the errors of `pack` and `write`; LimitError for too little memory. Nothing is left where it fails.

    >>> import binsparse_levels as bl
    >>> store = {}
    >>> chunks = (([[3 * k, k], [k, k]], [1.0, 2.0]) for k in range(2))
    >>> left_out = bl.write_from(chunks, store, (4, 2), "CSR", duplicates="sum")
    >>> bl.read(store).to_dense().tolist()
    [[3.0, 0.0], [0.0, 2.0], [0.0, 0.0], [0.0, 1.0]]
    """
    value_type, casts = cast_types(dtype, None if values is None else [*(dims or ()), values])
    wanted = planned(
        shape,
        format,
        map=map,
        duplicates=duplicates,
        bad=bad,
        dtype=value_type,
        attributes=attributes,
        limits=limits,
        memory=memory,
    )
    check_target(path, overwrite=overwrite, **options)
    rows = _rows(wanted, dims, values, labels, casts)
    stream = _chunks(chunks, len(wanted.shape), rows)
    first = next(stream, None)
    spilled = Spilled(None if first is None else first[1].dtype, None if rows is None else [*rows.dims, str(values)])
    plan = wanted.reading(spilled, fill=fill_value)
    rest = {"progress": progress, "overwrite": overwrite, "limits": limits, **options}
    found = (chunk for some in ([first] if first else [], stream) for chunk in some)
    return _write_chunks(plan, spilled, found, path, rest, lambda: (None if rows is None else rows.labels(), None))


def _convert_stream(
    stream: Stream, target: Place, format: FormatLike | None, memory: int | None, rest: Mapping[str, Any]
) -> None:
    """`convert` of a text. rest: of its parameters."""
    release()  # what telling its shape and labels took
    wanted = planned(
        stream.shape, format or stream.format, dtype=stream.dtype, attributes={}, limits=rest["limits"], memory=memory
    )
    plan = wanted.reading(spilled := Spilled(stream.dtype))
    if stream.structure is not None:
        raise_if(FormatError, list(structure_problems(stream.structure, stream.shape, stream.dtype)))
        raise_if(FormatError, mirror_problems(stream.structure, plan.parsed, plan.pad))

    def chunks() -> Iterator[Chunk]:
        for chunk in stream.chunks:
            coords, values = pair_of(chunk, len(stream.shape))
            if stream.structure is not None and plan.parsed.padded:
                raise_if(ArrayError, list(diagonal_problems(stream.structure, coords, values)))
            yield coords, values

    one = None if plan.parsed.padded else stream.one
    _write_chunks(plan, spilled, chunks(), target, rest, lambda: (stream.labels, stream.structure), one)


def _write_chunks(
    plan: Plan,
    spilled: Spilled,
    chunks: Iterable[Chunk],
    path: Place,
    rest: Mapping[str, Any],
    told: Callable[[], tuple[Labels | None, str | None]],
    value: Array | None = None,
) -> BadRows:
    """Write the entries of all chunks. Returns the bad rows that were left out.

    told: the labels and the structure, which are known behind the last chunk. value: that all entries share. rest: of
    the parameters of `write_from`.
    """
    bad = Told(plan)
    blocks = _blocks(plan, bad, chunks)
    one, two = next(blocks, None), next(blocks, None)
    options = {name: x for name, x in rest.items() if name != "progress"}
    if two is None and trees.fits_whole(plan):
        labels, structure = told()
        columns = one or [np.empty(0, dtype) for dtype in plan.column_types]
        write(path, trees.whole(replace(plan, structure=structure), columns, value)._labelled(labels), **options)
        return bad.all
    options.pop("limits")
    check_target(path, **options)
    check_joined(plan)
    with scratch(path) as folder, _begun(folder, plan, spilled) as work:
        for columns in itertools.chain((x for x in (one, two) if x is not None), blocks):
            spilled.keep(work, columns)
            if plan.duplicates == "error":  # else they may become fewer
                check_joined(plan, spilled.entries)
            if (progress := rest["progress"]) is not None:
                progress("spill", spilled.entries, spilled.entries)
        if spilled.in_order:
            stage = "packed"
        else:
            stage = "pack"
            running.run(work, None, progress)
        labels, structure = told()
        metadata = replace(plan.metadata, labels=labels)
        _write_joined(work, stage, path, metadata, value, rest, structure, plan.through)
    return bad.all


def _write_joined(
    work: Work,
    stage: str,
    target: Place,
    metadata: Metadata,
    one: Array | None,
    given: Mapping[str, Any],
    structure: str | None,
    map: IndexMap | None,
) -> None:
    """Write the trees that a stage has left as one tensor, in pieces. one: the value of an iso tensor."""
    plan = work.plan
    arrays = trees.joint(work, trees.join_heads(work, stage), stage)
    pieces = {name: in_pieces(array, joining.AT_ONCE) for name, array in arrays.items()}
    header, encoded = encode_pieces(
        pieces, plan.parsed, plan.stored_shape, metadata, structure=structure, map=map, iso_value=one, packed=True
    )
    write_pieces(target, header, encoded, **given)


# Streams


def _rows(
    plan: Plan,
    dims: Sequence[str] | None,
    values: str | None,
    labels: Mapping[str, Any] | None,
    casts: Mapping[str, str],
) -> tables.Rows | None:
    """The reader of tables, or None where chunks are arrays. Raises OptionError."""
    if dims is None or values is None:
        if (dims, values, labels) != (None, None, None):
            what = "name the columns of the coordinates and of the values: dims= and values="
            raise OptionError(Problem("dims", what))
        return None
    if len(dims) != len(plan.shape):
        raise OptionError(Problem("dims", f"{len(dims)} names for {len(plan.shape)} dimensions"))
    return tables.Rows(dims, values, labels, casts=casts, shape=plan.shape if plan.bad == "skip" else None)


def _chunks(chunks: Any, ndim: int, rows: tables.Rows | None) -> Iterator[Chunk]:
    """The chunks of a stream, as arrays. Raises OptionError."""
    whole = tables.is_table(chunks)
    if not whole and (isinstance(chunks, str | bytes) or not isinstance(chunks, Iterable)):
        what = f"expected an iterable of pairs of coordinates and values, or a table, got {qualified(chunks)}"
        raise OptionError(Problem("chunks", what))
    for chunk in [chunks] if whole else chunks:
        if tables.is_table(chunk):
            if rows is None:
                raise OptionError(Problem("dims", "a table needs the names of its columns; pass dims= and values="))
            yield from rows.chunks(chunk)
        else:
            yield pair_of(chunk, ndim)


def _blocks(plan: Plan, bad: Told, chunks: Iterable[Chunk]) -> Iterator[list[Array]]:
    """The columns of entries, checked, in blocks of half as many as fit: the next one is made while one is written."""
    held: list[list[Array]] = []
    most = room = max(plan.rows // 2, 1)
    for chunk in chunks:
        columns = partitions.checked_columns(plan, chunk, bad.tell)
        bad.before += len(chunk[1])
        while len(columns[-1]):
            held.append([x[:room] for x in columns])
            columns = [x[room:] for x in columns]
            room -= len(held[-1][-1])
            if not room:
                yield _behind_each_other(held)
                room = most
    if held:
        yield _behind_each_other(held)


def _behind_each_other(held: list[list[Array]]) -> list[Array]:
    """The columns of several blocks, which are emptied."""
    columns = [np.concatenate(x) for x in zip(*held, strict=True)]
    held.clear()
    return columns


class Spilled:
    """Blocks of a stream. As long as they are in order, each is packed; the others are kept as they are."""

    def __init__(self, dtype: np.dtype[Any] | None, columns: Sequence[str] | None = None) -> None:
        self._type, self._columns = dtype, columns
        self._counts: list[int] = []
        self._packed = 0  # blocks that are packed, the first ones
        self._last: list[int] = []  # the coordinates behind which the next block has to begin
        self._work: Work | None = None

    @property
    def entries(self) -> int:
        return sum(self._counts)

    @property
    def in_order(self) -> bool:
        """Whether all blocks are packed."""
        return self._packed == len(self._counts)

    def keep(self, work: Work, columns: list[Array]) -> None:
        """The next block."""
        self._work, number = work, len(self._counts)
        if self.in_order and not work.plan.parsed.padded and self._follows(work.plan, columns[:-1]):
            self._last = [int(x[-1]) for x in columns[:-1]]
            trees.pack_columns(work, "packed", number, list(columns))
            self._packed += 1
        else:
            work.put(f"spilled/{number}", [np.ascontiguousarray(x).view(np.uint8).data for x in columns])
        self._counts.append(len(columns[-1]))

    def _follows(self, plan: Plan, columns: Sequence[Array]) -> bool:
        """Whether a block ascends, and begins behind the block before."""
        if [int(x[0]) for x in columns] <= self._last:
            return False
        keys = partitions.keys_of(columns, plan.dims)
        (alike,) = np.nonzero(keys[1:] <= keys[:-1])
        if len(alike) > len(keys) // 2:
            return False
        return not trees.behind(*(np.stack([x[alike + k] for x in columns], 1) for k in (1, 0)), strictly=True).any()

    def __len__(self) -> int:
        return len(self._counts)

    def read(self, number: int) -> Chunk:
        assert self._work is not None
        plan = self._work.plan
        if number >= self._packed:
            raw = np.frombuffer(self._work.get(f"spilled/{number}"), np.uint8)
            columns = [np.array(x) for x in partitions.columns_in(plan, raw)]
        else:
            columns = self._unpacked(self._work, number)
        order = plan.parsed.order
        coords = [columns[order.index(k)] for k in range(len(order))]
        if plan.through is not None:
            coords = list(plan.through.backward(coords))
        return coords, columns[-1]

    def _unpacked(self, work: Work, number: int) -> list[Array]:
        plan = work.plan
        heads = trees.join_heads(work, "packed", [number])
        arrays = {name: x[:] for name, x in trees.joint(work, heads, "packed", plan.part_levels).items()}
        values = arrays.pop("values")
        coords, _ = unpack_tree(Tree(plan.part_levels, plan.dims, arrays, values))
        return [*coords, values]

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        return self._counts[number], picked(self.read(number), number, count)

    def places(self, number: int, rows: Array) -> list[str]:
        return [f"{self.name(number)}, row {row}" for row in rows.tolist()]

    def name(self, number: int) -> str:
        return f"block {number} of the chunks"

    def value_type(self) -> np.dtype[Any]:
        if self._type is None:
            raise OptionError(Problem("dtype", "there are no chunks to tell the type of the values; pass dtype="))
        return self._type

    def described(self) -> dict[str, Any]:
        return {"kind": "stream", "columns": self._columns}


# Scratch


@contextlib.contextmanager
def _begun(folder: str, plan: Plan, source: Any) -> Iterator[Work]:
    work = begin(folder, plan, source)
    try:
        yield work
    finally:
        work.forget()


def _entries(tree: Tree, rows: int) -> int:
    """The number of entries of a tree, or of its positions where some have none."""
    return sum(block.size for block in blocks_of(tree, rows)) if tree.shares else len(tree.values)


def _rows_of(memory: int, tree: Tree) -> int:
    """The number of entries of a tree that may be in memory at a time."""
    index = np.dtype(index_dtype(tree.dims, 0)).itemsize
    pointers = pointers_of(tree)
    return rows_within(memory, len(tree.dims), index, tree.values.dtype.itemsize, used=resident(), pointers=pointers)
