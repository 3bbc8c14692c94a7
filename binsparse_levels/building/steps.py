"""The steps of a build. Each is a function of the work and a number, and leaves one whole object, STAGE/NUMBER.

A step that is repeated, or run twice at once, leaves the same object, so that a build goes on wherever it was stopped.

| stage | a step reads | and leaves |
|---|---|---|
| sample | a part of a chunk of the source | keys of some entries |
| split | all samples | the keys at which partitions begin |
| partition | a chunk of the source | its entries by partition |
| table | where the partitions begin in each chunk | a table of that, and cuts of partitions that are too large |
| again | such a partition of some chunks | its entries by these cuts |
| pack | a partition of all chunks | a tree |
| join | the heads of all trees | a table of them; empty arrays in the target |
| write | parts of trees | whole shards of the target |
| commit | which shards are written | the header of the target |
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import kernels, parallel
from ..arrays import Array, LazyArray, in_pieces
from ..containers.base import Storage, is_url
from ..engine.joining import AT_ONCE, Parts, joined
from ..engine.packing import Entries, RepeatedError, pack_entries, repeated
from ..engine.tree import Tree, index_dtype
from ..errors import ArrayError, IncompleteError, Problem, raise_if
from ..formats.dtypes import data_type_of, encode
from ..formats.format import coordinates, range_problems
from ..levels import Level, places
from ..tensors.encoding import encode_pieces, hold_header
from .planning import Plan, Work
from .sources import Chunk
from .store import Range, store_at

if TYPE_CHECKING:
    from ..containers.zarr_direct import Chunks

_SAMPLED = 64  # chunks
_KEYS = 4096  # of each
_LOOKED = 64, 4, 256  # runs in which a large partition is sampled, places in each, entries at each place
_WORD = 63  # bits of a key
_SHARD = 2**20  # items, at least
_MOST_SHARDS = 2**12  # of an array
_WRITTEN = 2**25  # bytes that one step writes, before they are compressed


def sampled(work: Work) -> list[int]:
    """The numbers of the chunks that are sampled."""
    chunks = len(work.source)
    return np.unique(np.linspace(0, chunks - 1, min(chunks, _SAMPLED)).astype(np.int64)).tolist() if chunks else []


def columns_of(plan: Plan, chunk: Chunk) -> list[Array]:
    """The columns of entries: their coordinates by stored dimension, and the values, checked."""
    coords, values = chunk
    *types, value_type = plan.column_types
    if len(coords) != len(plan.shape):
        what = f"{len(coords)} arrays of coordinates for {len(plan.shape)} dimensions"
        raise ArrayError(Problem("coords", what))
    values = np.asarray(values)
    count = len(coords[0]) if coords else values.size
    if values.ndim == 0:
        values = np.broadcast_to(values, (count,))
    for k, (x, size) in enumerate(zip(coords, plan.shape, strict=True)):
        if x.dtype.kind not in "iu" or x.shape != values.shape:
            what = f"expected integers of shape {values.shape}, got {x.dtype} of shape {x.shape}"
            raise ArrayError(Problem(f"coords[{k}]", what))
        raise_if(ArrayError, range_problems(x, k, size))
    if not np.can_cast(values.dtype, value_type, "same_kind"):
        what = f"values of type {values.dtype}, where the first were {value_type}; pass dtype="
        raise ArrayError(Problem("values", what))
    if plan.through is not None:
        coords = list(plan.through.forward(coords))
    stored = [np.ascontiguousarray(coords[k], dtype) for k, dtype in zip(plan.parsed.order, types, strict=True)]
    return [*stored, np.ascontiguousarray(values, value_type)]


def keys_of(columns: Sequence[Array], dims: Sequence[int], skip: int = 0) -> Array:
    """A number for each entry, from 63 bits of its coordinates behind the first `skip`; it ascends with their order."""
    keys = np.zeros(len(columns[0]) if columns else 0, np.int64)
    left = _WORD
    for x, size in zip(columns, dims, strict=True):
        width = max(size - 1, 0).bit_length()
        hidden = min(skip, width)
        skip -= hidden
        bits = min(width - hidden, left)
        left -= bits
        if bits:
            keys <<= bits
            part = x >> (width - hidden - bits)
            keys |= part & ((1 << bits) - 1) if hidden else part
    return keys


def _bits(dims: Sequence[int]) -> int:
    return sum(max(size - 1, 0).bit_length() for size in dims)


def _cuts(keys: Array, weights: Array, pieces: int) -> Array:
    """Keys at which pieces of about equal weight begin. A key that fills a piece has a piece of its own."""
    if not len(keys) or pieces < 2:
        return np.empty(0, np.int64)
    order = np.argsort(keys, kind="stable")
    keys, ends = keys[order], np.cumsum(weights[order])
    at = np.searchsorted(ends, ends[-1] * np.arange(1, pieces) / pieces)
    wanted = keys[np.minimum(at, len(keys) - 1)]
    heavy = wanted[1:][wanted[1:] == wanted[:-1]]
    return np.unique(np.concatenate([wanted, heavy + 1]))


def done(work: Work, stage: str) -> set[int]:
    """The numbers of the steps of a stage that are done."""
    return {int(name) for name in work.store.names(stage) if name.isdecimal()}


# Small objects, of arrays by name


def _bundle(**arrays: Any) -> list[bytes]:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return [file.getvalue()]


def unbundled(work: Work, key: str) -> dict[str, Array]:
    with np.load(io.BytesIO(work.store.get(key)), allow_pickle=False) as found:
        return dict(found)


# From the source to partitions


def sample(work: Work, number: int) -> None:
    plan, chunk = work.plan, sampled(work)[number]
    rows, coords = work.source.sample(chunk, _KEYS)
    count = len(coords[0]) if coords else 0
    *columns, _ = columns_of(plan, (coords, np.zeros(count, plan.dtype)))
    work.store.put(f"sample/{number}", _bundle(keys=keys_of(columns, plan.dims), rows=rows))


def split(work: Work, number: int) -> None:
    plan, samples = work.plan, [unbundled(work, f"sample/{k}") for k in range(len(sampled(work)))]
    total = sum(int(x["rows"]) for x in samples) * len(work.source) // max(len(samples), 1)
    keys = np.concatenate([np.empty(0, np.int64), *(x["keys"] for x in samples)])
    weights = [np.full(len(x["keys"]), int(x["rows"]) / max(len(x["keys"]), 1)) for x in samples]
    cuts = _cuts(keys, np.concatenate([np.empty(0), *weights]), _pieces(plan, total))
    work.store.put(f"split/{number}", _bundle(cuts=cuts))


def _pieces(plan: Plan, rows: int) -> int:
    """How many partitions of so many entries: one that is twice as large still fits."""
    return -(-2 * rows // plan.rows) if rows > plan.rows else 1


def partition(work: Work, number: int) -> None:
    columns = columns_of(work.plan, work.source.read(number))
    keys = keys_of(columns[:-1], work.plan.dims)
    work.store.put(f"partition/{number}", _scattered(columns, keys, unbundled(work, "split/0")["cuts"]))


def _scattered(columns: Sequence[Array], keys: Array, cuts: Array) -> Iterator[Any]:
    """The bytes of a run: for each partition its columns, one behind the other; then where the partitions begin."""
    numbers = np.empty(len(keys), np.uint16 if len(cuts) < 2**16 else np.uint32)
    counts = np.zeros(len(cuts) + 1, np.uint64)
    kernels.sorting.number_partitions(kernels.readable(keys), kernels.readable(cuts), numbers, counts)
    del keys
    ends = np.cumsum(counts, dtype=np.uint64)
    shared = kernels.readable(numbers)

    def moved(x: Array) -> Array:
        if x.dtype.itemsize not in (1, 2, 4, 8):
            return x[np.argsort(numbers, kind="stable")]
        out, word = np.empty_like(x), f"u{x.dtype.itemsize}"
        kernels.sorting.scatter_to_partitions(shared, kernels.readable(x).view(word), ends - counts, out.view(word))
        return out

    scattered = parallel.each(moved, columns)
    starts = np.concatenate(([0], ends)).astype(np.int64)
    for begin, end in itertools.pairwise(starts.tolist()):
        for x in scattered if end > begin else ():
            yield x[begin:end].view(np.uint8).data
    yield starts.data


def _starts(work: Work, key: str, partitions: int) -> Array:
    """Where the partitions of a run begin, among its entries."""
    count = 8 * (partitions + 1)
    (found,) = work.store.ranges([(key, work.store.size(key) - count, count)])
    return found.view(np.int64)


def _row(plan: Plan) -> int:
    """The bytes of an entry."""
    return sum(dtype.itemsize for dtype in plan.column_types)


def table(work: Work, number: int) -> None:
    plan, runs = work.plan, len(work.source)
    begins = unbundled(work, "split/0")["cuts"]
    partitions = len(begins) + 1
    index = np.empty((partitions + 1, runs), np.int64)
    for k in range(runs):
        index[:, k] = _starts(work, f"partition/{k}", partitions)
    work.store.put("index", [np.ascontiguousarray(index).data])
    sizes = np.diff(index, axis=0).sum(axis=1)
    packs: list[tuple[int, int]] = []  # a partition, and one of its cuts or -1
    tasks: list[tuple[int, int, int]] = []  # a partition, and a range of runs
    cuts: list[Array] = []  # of the partitions that are cut, and the bits that their keys skip
    cut_of: list[tuple[int, int]] = []
    for b in range(partitions):
        one_key = 0 < b < len(begins) and begins[b] == begins[b - 1] + 1
        found = _cut_again(work, index, b, int(sizes[b]), one_key) if sizes[b] > plan.rows else None
        if found is None:
            packs += [(b, -1)] if sizes[b] else []
            continue
        packs += [(b, piece) for piece in range(len(found[1]) + 1)]
        cut_of.append((b, found[0]))
        cuts.append(found[1])
        ends = np.cumsum(index[b + 1] - index[b])
        first = 0
        while first < runs:
            before = int(ends[first - 1]) if first else 0
            stop = max(int(np.searchsorted(ends, before + plan.rows, side="right")), first + 1)
            tasks.append((b, first, stop))
            first = stop
    made = {
        "packs": np.array(packs, np.int64).reshape(-1, 2),
        "tasks": np.array(tasks, np.int64).reshape(-1, 3),
        "cut_of": np.array(cut_of, np.int64).reshape(-1, 2),
        "cuts": np.concatenate([np.empty(0, np.int64), *cuts]),
        "cut_ends": np.cumsum([0, *map(len, cuts)], dtype=np.int64),
    }
    work.store.put(f"table/{number}", _bundle(**made))


def _cut_again(work: Work, index: Array, b: int, size: int, one_key: bool) -> tuple[int, Array] | None:
    """How many bits to skip, and the keys at which to cut a partition that is too large; None if it is one cell.

    one_key: all its entries have one key, so that only later bits tell them apart.
    """
    plan, random = work.plan, np.random.default_rng(b)
    skip = _WORD if one_key else 0
    if _bits(plan.dims) <= skip:
        return None
    runs, spots, width = _LOOKED
    there = np.flatnonzero(index[b + 1] > index[b])
    there = np.sort(random.choice(there, min(runs, len(there)), replace=False))
    wanted: list[Range] = []
    for k in there.tolist():
        begin, end = int(index[b, k]), int(index[b + 1, k])
        for start in random.integers(0, max(end - begin - width, 0) + 1, spots).tolist():
            at = begin * _row(plan)
            for dtype in plan.column_types[:-1]:
                item = dtype.itemsize
                wanted.append((f"partition/{k}", at + start * item, min(width, end - begin) * item))
                at += (end - begin) * item
    found = [x.view(dtype) for x, dtype in zip(work.store.ranges(wanted), itertools.cycle(plan.column_types[:-1]))]
    columns = [np.concatenate(found[k :: len(plan.dims)]) for k in range(len(plan.dims))]
    keys = keys_of(columns, plan.dims, skip)
    return skip, _cuts(keys, np.ones(len(keys)), _pieces(plan, size))


def _index(work: Work, b: int) -> Array:
    """Where a partition begins and ends, in each run."""
    runs = len(work.source)
    (found,) = work.store.ranges([("index", 8 * b * runs, 16 * runs)])
    return found.view(np.int64).reshape(2, runs)


def again(work: Work, number: int) -> None:
    plan, found = work.plan, unbundled(work, "table/0")
    b, first, stop = found["tasks"][number].tolist()
    which = int(np.flatnonzero(found["cut_of"][:, 0] == b)[0])
    cuts = found["cuts"][found["cut_ends"][which] : found["cut_ends"][which + 1]]
    begin, end = _index(work, b)[:, first:stop]
    row = _row(plan)
    wanted = [
        (f"partition/{first + k}", int(begin[k]) * row, int(end[k] - begin[k]) * row) for k in range(stop - first)
    ]
    columns = gathered(work, wanted)
    keys = keys_of(columns[:-1], plan.dims, int(found["cut_of"][which, 1]))
    work.store.put(f"again/{number}", _scattered(columns, keys, cuts))


def gathered(work: Work, wanted: Sequence[Range]) -> list[Array]:
    """The columns of ranges of runs. A range has its columns one behind the other."""
    plan, row = work.plan, _row(work.plan)
    made = [np.empty(sum(count for *_, count in wanted) // row, dtype) for dtype in plan.column_types]
    at = 0
    for block in work.store.ranges(wanted):
        count, begin = len(block) // row, 0
        for x in made:
            end = begin + count * x.itemsize
            x[at : at + count].view(np.uint8)[:] = block[begin:end]
            begin = end
        at += count
    return made


# From partitions to trees


def pack(work: Work, number: int) -> None:
    plan = work.plan
    if plan.sorted:
        pack_columns(work, f"pack/{number}", columns_of(plan, work.source.read(number)))
        return
    found = unbundled(work, "table/0")
    b, piece = found["packs"][number].tolist()
    row = _row(plan)
    if piece < 0:
        begin, end = _index(work, b)
        names = [f"partition/{k}" for k in range(len(begin))]
    else:
        tasks = np.flatnonzero(found["tasks"][:, 0] == b)
        which = int(np.flatnonzero(found["cut_of"][:, 0] == b)[0])
        pieces = int(found["cut_ends"][which + 1] - found["cut_ends"][which]) + 1
        names = [f"again/{k}" for k in tasks]
        begin, end = np.array([_starts(work, name, pieces)[piece : piece + 2] for name in names]).T
    wanted = [
        (name, a * row, (z - a) * row) for name, a, z in zip(names, begin.tolist(), end.tolist(), strict=True) if z > a
    ]
    pack_columns(work, f"pack/{number}", _within_memory(work, wanted))


def _within_memory(work: Work, wanted: Sequence[Range]) -> list[Array]:
    """The columns of these ranges of runs. Where they are more than fit, repeated entries are merged as they come, in
    the order of the source.
    """
    plan, columns = work.plan, [np.empty(0, dtype) for dtype in work.plan.column_types]
    size, fits = sum(count for *_, count in wanted), plan.rows * _row(plan)
    most, room = fits if size <= fits else fits // 2, 0
    groups: list[list[Range]] = [[]]
    for one in wanted:
        if groups[-1] and one[2] > room:
            groups.append([])
        room = most if not groups[-1] else room
        groups[-1].append(one)
        room -= one[2]
    for group in groups:
        more = gathered(work, group)
        columns = more if group is groups[0] else [np.concatenate(x) for x in zip(columns, more, strict=True)]
        if len(groups) > 1:
            listed = coordinates(len(plan.dims)).levels
            tree = packed(plan, listed, columns, plan.dims, [0] * len(plan.dims))
            found = [tree.arrays[spec.name] for place in places(listed, plan.dims) for spec in place.arrays.values()]
            columns = [x.astype(t, copy=False) for x, t in zip([*found, tree.values], plan.column_types, strict=True)]
    return columns


def packed(plan: Plan, levels: tuple[Level, ...], columns: list[Array], dims: Sequence[int], origin: Any) -> Tree:
    """A tree of entries whose coordinates count from `origin`."""
    order = plan.parsed.order
    entries = Entries(tuple(dims), tuple(columns[:-1]), columns[-1], False, order)
    try:
        return pack_entries(levels, entries, plan.pad, plan.duplicates, plan.bounds)
    except RepeatedError as error:
        coords = [error.coords[k] + origin[order.index(k)] for k in range(len(order))]
        if plan.through is not None:
            coords = [int(x[0]) for x in plan.through.backward([[x] for x in coords])]
        raise repeated(coords) from None


def pack_columns(work: Work, key: str, columns: list[Array]) -> None:
    """Pack these entries, and leave the tree at `key`: its head, as in `_heads`, and the arrays behind each other.

    Only leading dimensions are cropped, to the range of the coordinates.
    """
    plan = work.plan
    head = np.zeros(_head_length(plan), np.int64)
    if not len(columns[-1]):
        work.store.put(key, [head.data])
        return
    dims, origin = list(plan.dims), [0] * len(plan.dims)
    for k, x in enumerate(columns[:-1]):
        low, high = int(x.min()), int(x.max())
        origin[k], dims[k] = low, high - low + 1
        if low:
            columns[k] = x - np.asarray(low, x.dtype)
        if low != high:
            break
    ends = _ends(columns[:-1], origin)
    tree = packed(plan, plan.parsed.levels, columns, dims, origin)
    arrays = [*(tree.arrays[name] for name in plan.names[:-1]), tree.values]
    item = arrays[0].dtype.itemsize if tree.arrays else 8
    head[:] = [len(columns[-1]), item, *dims, *origin, *ends[0], *ends[1], *map(len, arrays)]
    work.store.put(key, [head.data, *(np.ascontiguousarray(x).view(np.uint8).data for x in arrays)])


def _ends(columns: Sequence[Array], origin: Sequence[int]) -> list[list[int]]:
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
        found.append(coords)
    return found


# From trees to the target


def _head_length(plan: Plan) -> int:
    return 2 + 4 * len(plan.dims) + len(plan.names)


def join_heads(work: Work, stage: str = "pack", numbers: Sequence[int] | None = None) -> Array:
    """The heads of the trees of a stage that have entries, a row for each: its number, how many entries it was made of,
    the bytes of an index, then by dimension the sizes, the origin, the first and the last coordinates, then the lengths
    of the arrays.

    Raises ArrayError for trees that do not follow each other.
    """
    size, ndim = 8 * _head_length(work.plan), len(work.plan.dims)
    numbers = sorted(done(work, stage)) if numbers is None else numbers
    heads = [x.view(np.int64) for x in work.store.ranges([(f"{stage}/{k}", 0, size) for k in numbers])]
    table = np.array([[k, *head] for k, head in zip(numbers, heads, strict=True)], np.int64)
    table = table.reshape(len(numbers), 1 + _head_length(work.plan))
    table = table[table[:, 1] > 0]
    first, last = (table[:, 3 + k * ndim :][:, :ndim] for k in (2, 3))
    late = behind(first[1:], last[:-1])
    if late.any():
        at = tuple(first[1:][np.argmax(late)].tolist())
        raise ArrayError(Problem("coordinates", f"{at} is given more than once, or out of order; pack the entries"))
    return table


def behind(first: Array, last: Array, *, strictly: bool = False) -> Array:
    """Whether each row of `first` comes before that of `last` in lexicographic order, or (not `strictly`) equals it."""
    late = np.full(len(first), not strictly)
    for k in range(first.shape[1])[::-1]:
        late = (first[:, k] < last[:, k]) | ((first[:, k] == last[:, k]) & late)
    return late


def joint(work: Work, heads: Array, stage: str = "pack") -> dict[str, LazyArray]:
    """The arrays of the whole tree, which are read from the trees where they are sliced."""
    plan, ndim, names = work.plan, len(work.plan.dims), work.plan.names
    tables = [heads[:, 3 + k * ndim :][:, :ndim] for k in range(4)]
    lengths = heads[:, 3 + 4 * ndim :]
    values = np.dtype(plan.dtype)
    items = np.repeat(heads[:, 2:3], len(names), axis=1)
    items[:, -1] = values.itemsize
    begins = np.cumsum(lengths * items, axis=1) - lengths * items + 8 * _head_length(plan)

    def read(k: int, name: str, start: int, stop: int) -> Array:
        which = names.index(name)
        item, begin = int(items[k, which]), int(begins[k, which])
        (found,) = work.store.ranges([(f"{stage}/{heads[k, 0]}", begin + start * item, (stop - start) * item)])
        return found.view(values if name == "values" else f"i{item}")

    sizes, origin, first, last = tables
    parts = Parts(sizes, origin, first, last, {name: lengths[:, k] for k, name in enumerate(names)}, read)
    total = int(lengths[:, -1].sum())
    return joined(plan.parsed.levels, plan.dims, parts, plan.pad, index_dtype(plan.dims, total), values)


def join(work: Work, number: int) -> None:
    from ..containers import zarr  # imported late: the library takes longer than all of this package

    plan, heads = work.plan, join_heads(work)
    arrays = _encodable(plan, joint(work, heads))
    pieces = {name: in_pieces(array, AT_ONCE) for name, array in arrays.items() if name != "fill_value"}
    header, encoded = encode_pieces(pieces, plan.parsed, plan.stored_shape, plan.metadata, packed=True)
    hold_header(header, plan.bounds)
    storage = Storage(**plan.storage)
    if plan.storage.get("shards") is None:  # few files, however large the arrays
        wanted = {name: -(-x.length // _MOST_SHARDS) for name, x in encoded.items()}
        shards = {name: max(2 ** (most - 1).bit_length(), _SHARD) for name, most in wanted.items()}
        storage = replace(storage, shards=shards)
    metadata = zarr.new_metadata(
        {name: (x.length, x.dtype) for name, x in encoded.items()}, header, storage, remote=is_url(plan.target)
    )
    tasks = []
    for k, (name, x) in enumerate(encoded.items()):
        per_file = _chunks(metadata[f"{name}/zarr.json"]).per_file
        at_once = max(_WRITTEN // (per_file * x.dtype.itemsize), 1)
        files = -(-x.length // per_file)
        tasks += [(k, first, min(first + at_once, files)) for first in range(0, files, at_once)]
    target = store_at(str(plan.target))
    for key, text in metadata.items():
        if key != zarr.ROOT:  # with the header, which is the commit
            target.put(key, [text])
    table = {"heads": heads, "names": np.array(list(encoded)), "tasks": np.array(tasks, np.int64).reshape(-1, 3)}
    texts = {f"text:{key}": np.frombuffer(text, np.uint8) for key, text in metadata.items()}
    work.store.put(f"join/{number}", _bundle(**table, **texts))


def _encodable(plan: Plan, arrays: Mapping[str, LazyArray]) -> dict[str, LazyArray | Array]:
    """The arrays that are written, by name, before they are encoded."""
    fill = {} if plan.fill is None else {"fill_value": np.full(1, plan.fill_value, plan.dtype)}
    return {**arrays, **fill}


def _chunks(text: bytes) -> Chunks:
    """How the array with this metadata is stored."""
    from ..containers.zarr_direct import described

    metadata = json.loads(text)
    found = described(metadata, np.dtype(metadata["data_type"]), metadata["fill_value"])
    assert found is not None  # what is written is of the plainest kind
    return found


@lru_cache(2)
def _joined(work: Work) -> tuple[dict[str, LazyArray | Array], dict[str, Array]]:
    """The arrays to write, and the table of the step that joined them."""
    found = unbundled(work, "join/0")
    return _encodable(work.plan, joint(work, found["heads"])), found


def write(work: Work, number: int) -> None:
    arrays, found = _joined(work)
    which, first, stop = found["tasks"][number].tolist()
    name = str(found["names"][which])
    array, chunks = arrays[name], _chunks(found[f"text:{name}/zarr.json"].tobytes())
    data_type = data_type_of(array.dtype, name)
    target, parts = store_at(str(work.plan.target)), data_type.parts
    for k in range(first, stop):
        begin, end = k * chunks.per_file, min((k + 1) * chunks.per_file, chunks.length)
        items = encode(array[begin // parts : -(-end // parts)], data_type)[begin % parts :][: end - begin]
        items = np.ascontiguousarray(items, chunks.dtype)
        target.put(f"{name}/c/{k}", chunks.encoded(items))
    work.store.put(f"write/{number}", [b""])


def commit(work: Work, number: int) -> None:
    from ..containers import zarr

    target, found = store_at(str(work.plan.target)), unbundled(work, "join/0")
    missing = [f"step {k} of write" for k in sorted(set(range(len(found["tasks"]))) - done(work, "write"))]
    for which, name in enumerate(found["names"].tolist()):
        files = int(found["tasks"][found["tasks"][:, 0] == which, 2].max(initial=0))
        there = target.names(f"{name}/c")
        missing += [f"{name}/c/{k}" for k in range(files) if str(k) not in there]
    if missing:
        raise IncompleteError(
            Problem("write", f"{len(missing)} things are missing, such as {missing[0]}; run the steps")
        )
    target.put(zarr.ROOT, [found[f"text:{zarr.ROOT}"].tobytes()])
    work.store.put(f"commit/{number}", [b""])
