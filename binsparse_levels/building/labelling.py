"""Labels of a build: texts, dates and decimals in columns become coordinates, in their order, and are kept beside.

No step has the labels of all chunks. A chunk leaves its own, sorted, in blocks. The first label of each block, its
fence, tells where to cut, so that each merge has a range of labels of every chunk. It numbers these. How many labels
other merges have before them is added where a chunk is read.

| stage | a step reads | and leaves |
|---|---|---|
| labels | a column of a chunk | its different labels in blocks, and for each row which one it has |
| fences | the fences of all chunks | the ranges of the merges, and the blocks of each |
| merge | a range of labels of all chunks | these labels as they are stored, and the number of each label of a chunk |
| number | the counts of all merges | the sizes of the dimensions |
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from ..arrays import Array, LazyArray, Sliceable
from ..engine.joining import of_segments
from ..errors import ArrayError, Problem
from ..tensors.labels import TEXT, Column, Labels, stored_type
from .bad_rows import ELSEWHERE, NULL, as_nulls, find, keep
from .chunks import Chunk, Labelled
from .label_types import labels_of, stored_kind
from .onto import Onto
from .planning import Plan
from .stored_tensors import Tensors
from .texts import Numbered, gathered, numbered
from .work import Seal, Work

_PAGE = 2**16  # labels or rows that stand in a piece
_LONGEST = 2**20  # bytes of a label
_SHARE = 16  # bytes of labels that a merge has for each entry that fits
_BLOCKS = 2**10, 2**18  # bytes of a block, at least and at most


def columns(plan: Plan) -> list[int]:
    """The dimensions that have labels."""
    return [k for k, kind in enumerate(plan.labels) if kind is not None]


def _source(work: Work) -> Labelled:
    """The source of a build with labels."""
    return cast(Labelled, work.source)


def share(rows: int) -> int:
    """Bytes of labels that one merge has, where so many entries fit."""
    return max(_SHARE * rows, _BLOCKS[0])


def block(rows: int, chunks: int) -> int:
    """Bytes of a block: those of every chunk are a quarter of a merge at most."""
    least, most = _BLOCKS
    return int(np.clip(share(rows) // (4 * max(chunks, 1)), least, most))


def _ends(lengths: Array) -> Array:
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return ends


def labels(work: Work, number: int) -> None:
    plan = work.begun
    chunk, which = divmod(number, len(columns(plan)))
    dimension = columns(plan)[which]
    codes, (octets, begins) = _source(work).labels(chunk, dimension)
    there = _source(work).held_labels(chunk, dimension)
    bad = _bad_rows(work, chunk, which, codes) if there is None else np.empty(0, np.int64)
    fine = codes[bad] >= 0
    codes[bad] = 0  # until they are written
    if len(begins) > 1 and (longest := int(np.diff(begins).max())) > _LONGEST:
        what = f"a label of {longest} bytes; labels have at most {_LONGEST}; drop such rows"
        raise ArrayError(Problem(f"columns.{plan.column_names[dimension]}", what))
    used = np.zeros(len(begins) - 1, bool)  # a dictionary may have labels that no row has, or the same twice
    used[codes if not len(bad) else np.delete(codes, bad)] = True
    numbers, firsts = numbered(octets, begins, used)
    count = len(firsts)
    if there is not None and count < len(there):
        raise _twice(work, dimension)
    lengths = np.diff(begins)[firsts]
    ends, size = _ends(lengths + 4), block(plan.rows, len(work.source))
    cuts = np.unique(np.append(np.searchsorted(ends[:-1], np.arange(0, ends[-1], size)), count))
    codes[bad] = len(numbers) + fine  # two more: for a null, and for rows that are bad elsewhere
    numbers = np.append(numbers, np.array([count, count + 1], np.uint32))
    wide = _wide(count)

    def pieces() -> Iterator[Any]:
        fences = []
        for a, b in itertools.pairwise(cuts.tolist()):
            block = gathered(octets, begins, firsts[a:b], int(lengths[a:b].sum()))
            fences.append(block[: lengths[a]])
            held = [] if there is None else [(firsts[a:b] + there.start).astype(np.int64).data]
            yield [np.array([b - a], np.uint32).data, lengths[a:b].astype(np.uint32).data, block.data, *held]
        for at in range(0, len(codes), _PAGE):
            yield numbers[codes[at : at + _PAGE]].astype(wide).data
        told = [count, len(codes), len(fences), *map(len, fences)]
        yield [np.array(told, np.int64).data, *(x.data for x in fences)]

    work.put(f"labels/{number}", pieces())


def _wide(count: int) -> np.dtype[Any]:
    """The type of the codes of so many labels, and of two more for bad rows."""
    return np.dtype(np.uint16 if count < 2**16 - 1 else np.uint32)


def _bad_rows(work: Work, chunk: int, which: int, codes: Array) -> Array:
    """The bad rows of a chunk, whose labels do not count. codes: of one column of labels. Raises ArrayError."""
    plan, source, dims = work.begun, _source(work), columns(work.begun)
    if plan.bad == "raise" and (codes >= 0).all():
        return np.empty(0, np.int64)
    coords: list[Array | None] = [None] * len(plan.shape)
    if plan.bad == "skip":
        coords = list(source.read(chunk)[0])
        for k in dims:
            coords[k] = as_nulls(source.labels(chunk, k)[0])
    coords[dims[which]] = as_nulls(codes)
    if (found := find(coords, plan.shape)) is None:
        return np.empty(0, np.int64)
    if plan.bad == "raise":
        keep(work, chunk, found)
    return found.rows


class _Fences(NamedTuple):
    """The first labels of all blocks of a column, chunk by chunk, and the bytes and the checksum of each block.

    chunks: where those of each chunk begin, and where the last end.
    """

    octets: Array
    begins: Array
    sizes: Array
    sums: Array
    chunks: Array

    def text(self, k: int) -> bytes:
        found: bytes = self.octets[self.begins[k] : self.begins[k + 1]].tobytes()
        return found


def _fences_of(work: Work, keys: Sequence[str]) -> _Fences:
    texts, lengths, sizes, sums, counts = [], [], [], [], []
    for seal, tail in work.last_pieces(keys):
        count = int(tail[16:24].view(np.int64)[0])
        lengths.append(tail[24 : 24 + 8 * count].view(np.int64))
        texts.append(tail[24 + 8 * count :])
        sizes.append(np.diff(seal.ends[:count], prepend=0))
        sums.append(seal.sums[:count])
        counts.append(count)
    none = [np.empty(0, np.int64)]
    octets = np.concatenate([np.empty(0, np.uint8), *texts])
    begins, chunks = _ends(np.concatenate(none + lengths)), _ends(np.array(counts, np.int64))
    return _Fences(octets, begins, np.concatenate(none + sizes), np.concatenate(none + sums), chunks)


def fences(work: Work, number: int) -> None:
    plan, chunks, coded = work.begun, len(work.source), len(columns(work.begun))
    dims: list[int] = []
    edges: list[bytes] = []  # where each merge begins and ends
    ended: list[bool] = []  # the last merge of a column has no end

    def spans() -> Iterator[Any]:
        for which in range(coded):
            found = _fences_of(work, [f"labels/{k * coded + which}" for k in range(chunks)])
            numbers, firsts = numbered(found.octets, found.begins)
            total = np.cumsum(np.bincount(numbers, found.sizes, len(firsts)))
            parts = -(-int(total[-1]) // share(plan.rows)) if len(total) else 1
            cuts = np.searchsorted(total, total[-1] * np.arange(1, parts) / parts) if parts > 1 else []
            cuts = np.unique(np.append(0, cuts)).astype(np.int64)
            texts = [b"", *(found.text(k) for k in firsts[cuts[1:]].tolist()), b""]
            for pair in itertools.pairwise(texts):
                dims.append(which)
                edges.extend(pair)
                ended.append(True)
            ended[-1] = False
            yield from (x.data for x in _spans(found, numbers, cuts))

    work.put("spans", spans())
    made = {
        "dims": np.array(dims, np.int64),
        "ended": np.array(ended, bool),
        "ends": _ends(np.array(list(map(len, edges)), np.int64)),
        "octets": np.frombuffer(b"".join(edges), np.uint8),
    }
    work.save(f"fences/{number}", **made)


def _spans(found: _Fences, numbers: Array, cuts: Array) -> Iterator[Array]:
    """For each merge, which blocks of each chunk may have its labels: where they begin and how many, then the bytes and
    the checksum of each. numbers: of the fences in their order. cuts: the numbers at which merges begin.
    """
    parts = [numbers[a:b] for a, b in itertools.pairwise(found.chunks.tolist())]
    first = np.array([np.searchsorted(x, cuts, "right") for x in parts], np.int64).reshape(-1, len(cuts))
    first = np.maximum(first - 1, 0)
    stop = np.array([np.append(np.searchsorted(x, cuts[1:]), len(x)) for x in parts], np.int64).reshape(first.shape)
    counts, ends = np.maximum(stop - first, 0), _ends(found.sizes)
    first += found.chunks[:-1, None]
    begins = ends[first] - ends[found.chunks[:-1, None]]
    for mine, at, count in zip(begins.T, first.T, counts.T, strict=True):
        rows = np.arange(count.sum()) + np.repeat(at - _ends(count)[:-1], count)
        yield np.concatenate([np.stack([mine, count], 1).reshape(-1), found.sizes[rows], found.sums[rows]])


def merge(work: Work, number: int) -> None:
    plan, chunks, known = work.begun, len(work.source), _fences(work)
    which = int(known["dims"][number])
    low, high = (
        known["octets"][known["ends"][k] : known["ends"][k + 1]].tobytes() for k in (2 * number, 2 * number + 1)
    )
    dimension = columns(plan)[which]
    lengths, texts, starts = [np.empty(0, np.uint32)], [np.empty(0, np.uint8)], [0]
    held = [np.empty(0, np.int64)]  # coordinates of the labels of a tensor, which come first
    for k, blocks in enumerate(_blocks(work, number, which, len(columns(plan)))):
        here, tensor = 0, _source(work).held_labels(k, dimension) is not None
        for at, block in enumerate(blocks):
            n = int(block[:4].view(np.uint32)[0])
            sizes = block[4 : 4 + 4 * n].view(np.uint32)
            ends = _ends(sizes)
            text, rest = np.split(block[4 + 4 * n :], ends[-1:])
            if len(text) != ends[-1] or len(rest) != (8 * n if tensor else 0):
                raise work.damaged(f"labels/{k}")
            first = _before(text, ends, low) if at == 0 else 0  # as the fences of the others tell
            last = _before(text, ends, high) if at == len(blocks) - 1 and known["ended"][number] else n
            held.append(rest[8 * first : 8 * last].view(np.int64))
            lengths.append(sizes[first:last])
            texts.append(text[ends[first] : ends[last]])
            here += last - first
        starts.append(starts[-1] + here)
    octets, begins = np.concatenate(texts), _ends(np.concatenate(lengths))
    del texts, lengths
    numbers, firsts = numbered(octets, begins)
    if _held(plan, dimension) is not None:
        coords = np.concatenate(held)
        numbers, firsts = _behind(numbers, firsts, coords)
        if len(np.unique(numbers[: len(coords)])) < len(coords):
            raise _twice(work, dimension)
    count, kind = len(firsts), str(plan.labels[dimension])

    def pieces() -> Iterator[Any]:
        end, ends = 0, []
        for at in range(0, count, _PAGE):
            rows = firsts[at : at + _PAGE]
            lengths = begins[rows + 1] - begins[rows]
            items, sizes = labels_of(gathered(octets, begins, rows, int(lengths.sum())), lengths, kind)
            yield np.ascontiguousarray(items).view(np.uint8).data
            if stored_kind(kind) == TEXT:
                ends.append(_ends(sizes)[1:] + end)
            end += items.nbytes
        yield from (x.data for x in ends)
        yield from (numbers[at : at + _PAGE].data for at in range(0, len(numbers), _PAGE))
        yield np.array([count, end, *starts], np.int64).data

    assert len(starts) == chunks + 1
    work.put(f"merge/{number}", pieces())


def _held(plan: Plan, dimension: int) -> int | None:
    """How many labels the tensor has onto which is built; None without such a tensor."""
    return plan.source["onto"]["labelled"][0][dimension] if "onto" in plan.source else None


def _behind(numbers: Array, firsts: Array, coords: Array) -> Numbered:
    """Number texts anew. The first ones are labels that have coordinates already, and their numbers become those. What
    else is different gets -1, -2 …, in order.
    """
    known = np.full(len(firsts), -1)
    known[numbers[: len(coords)]] = coords
    (new,) = np.nonzero(known < 0)
    known[new] = -1 - np.arange(len(new))
    return Numbered(known[numbers], firsts[new])


def _twice(work: Work, dimension: int) -> ArrayError:
    name = work.begun.source["onto"]["names"][dimension]
    return ArrayError(Problem(f"labels.{name}", "a label of the tensor stands at two coordinates; make them different"))


def _before(text: Array, ends: Array, edge: bytes) -> int:
    """How many texts of a block come before `edge`."""
    if not edge:
        return 0
    return bisect_left(range(len(ends) - 1), edge, key=lambda k: text[ends[k] : ends[k + 1]].tobytes())


def _blocks(work: Work, number: int, which: int, count: int) -> Iterator[list[Array]]:
    """For each chunk, the blocks of one merge, which lie behind each other."""
    seal = _seal_of_spans(work)
    (raw,) = work.ranges([(seal.range("spans", number, number + 1), int(seal.sums[number]))])
    chunks, span = len(work.source), raw.view(np.int64)
    places = span[: 2 * chunks].reshape(chunks, 2)
    sizes, sums = span[2 * chunks :].reshape(2, -1)
    behind, ends = _ends(places[:, 1]), _ends(sizes)
    bounds = ends[behind].tolist()
    wanted = [
        (f"labels/{k * count + which}", begin, b - a)
        for k, (begin, a, b) in enumerate(zip(places[:, 0].tolist(), bounds[:-1], bounds[1:], strict=True))
    ]
    for k, octets in enumerate(work.store.ranges(wanted)):
        mine = slice(behind[k], behind[k + 1])
        yield work.pieces_in(wanted[k][0], octets, ends[mine.start + 1 : mine.stop + 1] - bounds[k], sums[mine])


@lru_cache(2)
def _seal_of_spans(work: Work) -> Seal:
    return work.seal("spans")


@lru_cache(2)
def _fences(work: Work) -> dict[str, Array]:
    return work.load("fences/0")


def merges(work: Work) -> int:
    """The number of the steps of `merge`."""
    return len(_fences(work)["dims"])


def number(work: Work, number: int) -> None:
    plan, count = work.begun, merges(work)
    heads = [tail.view(np.int64) for _, tail in work.last_pieces([f"merge/{k}" for k in range(count)])]
    table = np.array(heads, np.int64).reshape(count, len(work.source) + 3)
    sizes, dims = list(plan.shape), _fences(work)["dims"]
    for which, k in enumerate(columns(plan)):
        there = int(table[dims == which, 0].sum()) + (_held(plan, k) or 0)
        if k not in plan.open and there > plan.shape[k]:
            what = f"{there} labels for a size of {plan.shape[k]}; pass None, and the size is their number"
            raise ArrayError(Problem(f"shape[{k}]", what))
        if k in plan.open:
            sizes[k] = there
    work.save(f"number/{number}", table=table, dims=dims, shape=np.array(sizes, np.int64))


@lru_cache(2)
def _numbered(work: Work) -> dict[str, Array]:
    return work.load("number/0")


def chunk_of(work: Work, number: int) -> Chunk:
    """A chunk of the source, with coordinates for labels."""
    return _coded(work, number, work.source.read(number))


def _coded(work: Work, number: int, chunk: Chunk) -> Chunk:
    coded = columns(work.begun)
    for which, k in enumerate(coded):
        if _source(work).held_labels(number, k) is None:
            chunk[0][k] = _codes(work, number, which)
        elif len(chunk[0][k]) and (most := int(chunk[0][k].max())) >= (_held(work.begun, k) or 0):
            what = f"coordinate {most} has no label, and other labels come behind; label all coordinates"
            raise ArrayError(Problem(f"labels.{work.begun.source['onto']['names'][k]}", what))
    return chunk


def sampled_of(work: Work, number: int, count: int) -> tuple[int, list[Array]]:
    """How many entries a chunk has, and the coordinates of about `count` of them."""
    coded = columns(work.begun)
    if not coded or _source(work).held_labels(number, coded[0]) is not None:
        return work.source.sample(number, count)
    rows = _head(work, f"labels/{number * len(coded)}").rows
    at = np.random.default_rng(number).choice(rows, min(count, rows), replace=False)
    coords = _source(work).coordinates(number)
    return rows, [_codes(work, number, coded.index(k), at) if x is None else x[at] for k, x in enumerate(coords)]


class _Head(NamedTuple):
    """What the labels of a chunk say: how many there are, the rows, and where the codes of the rows begin."""

    labels: int
    rows: int
    codes: int


def _head(work: Work, key: str) -> _Head:
    ((seal, tail),) = work.last_pieces([key])
    there, rows, blocks = tail[:24].view(np.int64).tolist()
    return _Head(there, rows, int(seal.ends[blocks - 1]) if blocks else 0)


def _codes(work: Work, chunk: int, which: int, at: Any = slice(None)) -> Array:
    """The coordinates of a column of labels in a chunk, or in some of its rows."""
    table, count = _numbered(work), len(columns(work.begun))
    mine = np.flatnonzero(table["dims"] == which)
    heads, key = table["table"][mine], f"labels/{chunk * count + which}"
    dimension = columns(work.begun)[which]
    kind, before = stored_kind(str(work.begun.labels[dimension])), _held(work.begun, dimension)
    dtype = np.dtype(np.uint32 if before is None else np.int64)
    wanted = []
    for p, head in zip(mine.tolist(), heads.tolist(), strict=True):
        ranks = head[1] + (8 * head[0] if kind == TEXT else 0)
        a, b = head[2 + chunk : 4 + chunk]
        wanted.append((f"merge/{p}", ranks + dtype.itemsize * a, ranks + dtype.itemsize * b))
    parts = [np.empty(0, np.int64)]
    for x, first in zip(work.slices(wanted), _ends(heads[:, 0]).tolist(), strict=False):
        ranks = x.view(dtype).astype(np.int64)
        parts.append(ranks + first if before is None else np.where(ranks < 0, before + first - 1 - ranks, ranks))
    of = np.concatenate([*parts, [NULL, ELSEWHERE]])
    there, rows, begin = _head(work, key)
    wide = _wide(there)
    codes = work.slice(key, begin, begin + rows * wide.itemsize).view(wide)
    if len(of) != there + 2 or (rows and int(codes.max()) > there + 1):
        raise work.damaged(key)
    found: Array = of[codes[at]]
    return found


def kept(work: Work) -> Labels | None:
    """The labels of all dimensions, read where they are sliced."""
    if isinstance(work.source, Tensors):
        return work.source.first_labels()
    plan, onto = work.begun, "onto" in work.begun.source
    names: Any = (plan.source["onto"]["names"] if onto else None) or plan.source.get("columns")
    if not columns(plan):
        return Labels(tuple(names[:-1]), {}, names[-1]) if onto and names else None
    table = _numbered(work)
    found = {}
    for which, k in enumerate(columns(plan)):
        mine, kind = np.flatnonzero(table["dims"] == which), stored_kind(str(plan.labels[k]))
        counts, sizes = table["table"][mine, 0], table["table"][mine, 1]
        keys, dtype = [f"merge/{p}" for p in mine.tolist()], stored_type(kind)
        items = _behind_each_other(work, keys, sizes // dtype.itemsize, dtype, np.zeros_like(sizes))
        offsets = None
        if kind == TEXT:
            ends = _behind_each_other(work, keys, counts, np.dtype(np.int64), sizes, _ends(sizes))
            parts: list[Sliceable] = [np.zeros(1, np.int64), ends]
            offsets = _all_of(parts)
        found[names[k]] = Column(kind, items, offsets)
        if onto:
            found[names[k]] = _both(cast(Onto, work.source).held_column(k), found[names[k]])
    return Labels(tuple(names[: len(plan.shape)]), found, names[-1] or "count")


def _all_of(parts: Sequence[Sliceable]) -> LazyArray:
    """Several arrays as one, read where it is sliced."""
    return of_segments(np.array(list(map(len, parts))), lambda k, a, b: parts[k][a:b], parts[0].dtype)


def _both(first: Column, more: Column) -> Column:
    """The labels of two columns behind each other."""
    offsets = None
    if first.offsets is not None and more.offsets is not None:
        begin, ends = len(first.items), more.offsets
        moved = of_segments(np.array([len(more)]), lambda _, a, b: ends[a + 1 : b + 1] + begin, np.int64)
        offsets = _all_of([first.offsets, moved])
    return Column(first.type, _all_of([first.items, more.items]), offsets)


def _behind_each_other(
    work: Work, keys: Sequence[str], counts: Array, dtype: np.dtype[Any], begins: Array, more: Array | None = None
) -> LazyArray:
    """Items of several objects as one array. begins: where they begin in each object. more: what is added to those of
    each.
    """

    def segment(k: int, a: int, b: int) -> Array:
        begin = int(begins[k])
        block = work.slice(keys[k], begin + a * dtype.itemsize, begin + b * dtype.itemsize).view(dtype)
        return block if more is None else block + more[k]

    return of_segments(counts, segment, dtype)
