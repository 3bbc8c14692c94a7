"""Entries in any order → records in the order of their keys, one run at a time, to be emitted from the cache.

`kernels.sorting` describes the words of a key and the passes. This module lays out the bits of the keys and chooses the
buckets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, zip_longest
from typing import Any, TypeAlias

import numpy as np

from .. import kernels, parallel
from ..levels.base import Array
from ..limits import INT32_MAX

Words: TypeAlias = tuple[tuple[np.uint64, ...], ...]  # for each word, a number for each dimension
# The records of a run; how many they are; whether keys repeat.
SortedRun: TypeAlias = tuple[Array, int, bool]
# Records, where the buckets of a run start among them, and below which bit their keys may differ.
UnsortedRun: TypeAlias = tuple[Array, Array, int]

_ALL = 2**64 - 1
# How many streams a pass writes to, and how much it works on: small enough for an L2 of 1 MiB.
_SPLITS = 10, 11  # bits that a partition splits by, at most: 10 unless buckets are large (10 M, Zen 4: 5 % less time)
_BUCKET = 3_000  # records that a bucket should have, or half as many
_LARGE = 2**14  # records of a large bucket
_RUN = 2**15  # records that are sorted and emitted together: 512 KiB, which stay in the L2 cache
_HEAVY = 2**17  # records of a bucket that is partitioned once more, since it would leave the cache
_HEAD = 64  # first entries, which show that most others are in no order
MOVED = 64  # bytes that a record moves: a coordinate of each dimension, a line of a bucket
_TWO_DIGITS = 20  # bits that two passes sort as fast as passes and a repair do; of 21 and 22 it takes 5 % more
_COUNTED = 2**30  # records of a bucket that offsets of 32 bits reach
_SCRATCH = threading.local()  # 1.6 MB at most, which each thread keeps
MAX_FUSED_RANK = 8  # the kernels are unrolled over the dimensions, and compile for longer with each


class OutOfRange(Exception):
    """A coordinate lies outside its dimension. The caller finds out which coordinate."""


class Repeated(Exception):
    """Several entries have the same key. The argument is its coordinates, by stored dimension."""


@dataclass(eq=False)  # as trees are
class Entries:
    """Entries by stored dimension. `values` has an item for each entry, or one item for all if iso.

    order: the tensor's dimension at each stored dimension, for messages. ordered_dims: entries that agree in the
    dimensions before the last `ordered_dims` are in order. trusted: coordinates are known to be unique and in range.
    runs: for each column None, or pointers: coords[k] has an item for each run of entries. The fused pass alone takes
    such columns.
    """

    dims: tuple[int, ...]
    coords: tuple[Array, ...]
    values: Array
    iso: bool
    order: tuple[int, ...]
    ordered_dims: int = 0
    trusted: bool = False
    runs: tuple[Array | None, ...] = ()

    @property
    def count(self) -> int:
        if not self.runs:
            return len(self.coords[0] if self.coords else self.values)
        full = [x for x, pointers in zip_longest(self.coords, self.runs) if pointers is None]
        return len(full[0]) if full else len(self.values)

    @cached_property
    def columns(self) -> tuple[Array, ...]:
        """The coordinates as kernels take them."""
        return unsigned(self.coords, self.dims)

    def expanded(self) -> Entries:
        """The same entries with a value for each."""
        return replace(self, values=np.repeat(self.values, self.count), iso=False) if self.iso else self


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each dimension lies in the words of a key; see `kernels.keys`."""

    bits: int
    ends: tuple[int, ...]  # the lowest bit of each dimension, counted from the end of the key
    fields: tuple[Words, Words, Words]
    sizes: tuple[np.uint64, ...]

    @property
    def words(self) -> int:
        return len(self.fields[0])

    @property
    def tag(self) -> tuple[np.uint64, ...]:
        """A tuple as long as there are words, which tells kernels their number as a constant."""
        return (np.uint64(0),) * self.words

    def low_bits(self, dims: int) -> int:
        """How many bits the last `dims` dimensions have."""
        return self.ends[-dims - 1] if dims else 0

    @property
    def spill(self) -> int:
        """How many bits the last of two words holds."""
        return self.bits - 64 if self.words == 2 else 0

    def coords(self, key: Sequence[int]) -> tuple[int, ...]:
        """The coordinates in the words of a key."""
        rows = zip(*(zip(*field, strict=True) for field in self.fields), strict=True)
        return tuple(
            sum(int(w) >> int(r) << int(f) & int(m) for w, r, f, m in zip(key, *row, strict=True)) for row in rows
        )

    def key(self, coords: Sequence[int]) -> list[int]:
        """The words of the key of these coordinates."""
        words = []
        for rows in zip(*self.fields, strict=True):
            bits = zip(coords, *rows, strict=True)
            words.append(sum((x & int(m) if self.words == 2 else x) >> int(f) << int(r) for x, r, f, m in bits))
        return words

    def from_bit(self, end: int) -> tuple[np.uint64, ...]:
        """For each word a mask of the bits of the key from `end` up."""
        starts = (self.spill, 0)[: self.words]
        return tuple(np.uint64(_ALL >> k << k & _ALL if (k := max(end - start, 0)) < 64 else 0) for start in starts)


@lru_cache(256)
def layout(dims: tuple[int, ...]) -> Layout | None:
    """The layout of the keys, or None where they need more than two words or the kernels would be unrolled too far."""
    widths = [max(size - 1, 0).bit_length() for size in dims]
    bits = sum(widths)
    if bits > 128 or len(dims) > MAX_FUSED_RANK or not dims:
        return None
    ends = tuple(bits - used for used in accumulate(widths))
    spill = max(bits - 64, 0)
    fields: list[list[tuple[np.uint64, ...]]] = [[], [], []]
    for start, stop in [(spill, bits), (0, spill)] if spill else [(0, bits)]:
        rows: list[tuple[int, int, int]] = []
        for end, width in zip(ends, widths, strict=True):
            low, high = max(end, start), min(end + width, stop)
            # A dimension of size 1 has no bits: any shift that is allowed will do.
            rows.append((low - start, low - end, (1 << high - end) - (1 << low - end)) if high > low else (0, 0, 0))
        for field, column in zip(fields, zip(*rows, strict=True), strict=True):
            field.append(tuple(map(np.uint64, column)))
    right, left, mask = map(tuple, fields)
    return Layout(bits, ends, (right, left, mask), tuple(map(np.uint64, dims)))


@lru_cache(256)
def part(keys: Layout, dims: tuple[int, ...]) -> tuple[tuple[Words, ...], tuple[np.uint64, ...]]:
    """The fields and the sizes of some dimensions."""
    fields = tuple(tuple(tuple(word[d] for d in dims) for word in field) for field in keys.fields)
    return fields, tuple(keys.sizes[d] for d in dims)


def unsigned(coords: Sequence[Array], dims: Sequence[int]) -> tuple[Array, ...]:
    """The coordinates as kernels take them, all of one unsigned type, in which negative numbers are out of range."""
    narrow = max(dims, default=0) <= INT32_MAX and all(x.dtype.kind in "iu" and x.dtype.itemsize == 4 for x in coords)
    types = {"i": np.int32, "u": np.uint32} if narrow else {"i": np.int64, "u": np.uint64}
    return tuple(kernels.readable(x, types[x.dtype.kind]).view(types["u"]) for x in coords)


def in_order(entries: Entries) -> bool:
    """Whether the entries are sorted and unique. Raises OutOfRange where they are, and a coordinate is out of range.

    Precondition: there is a layout of their keys.
    """
    keys = layout(entries.dims)
    assert keys is not None
    head = entries.columns[0][:_HEAD]
    if (head[1:] < head[:-1]).any():  # mostly; then the kernel need not be compiled, which takes half a second
        return False
    descents, repeats, out_of_range = kernels.sorting.scan(entries.columns, keys.fields, keys.sizes)
    if out_of_range and not descents:
        raise OutOfRange
    return not descents and not repeats


def are_placed(entries: Entries, keys: Layout) -> bool:
    """Whether entries of a list in each fiber need no sorting: they are in order but for the first dimension."""
    in_runs = bool(entries.runs) and entries.runs[0] is not None
    return entries.trusted and keys.words == 1 and keys.low_bits(entries.ordered_dims) == keys.ends[0] and not in_runs


class Columns:
    """The first columns as kernels take them, full columns and columns in runs, with the fields of the key."""

    def __init__(self, coords: Sequence[Array], runs: Sequence[Array | None], keys: Layout) -> None:
        full = tuple([d for d in range(len(coords)) if not runs or runs[d] is None])
        self.full = tuple([coords[d] for d in full])
        self.fields, self.sizes = part(keys, full)
        self.runs: tuple[Any, ...] | None = None
        self._pointers: tuple[Array, ...] = ()
        if len(full) < len(coords):
            others = tuple([d for d in range(len(coords)) if d not in full])
            pointers = [x for x in runs[: len(coords)] if x is not None]
            word = np.result_type(np.uint32, *pointers)
            self._pointers = tuple(kernels.readable(x, word) for x in pointers)
            self.runs = (tuple(coords[d] for d in others), self._pointers, part(keys, others)[0])

    def runs_at(self, entry: int) -> Array | None:
        """In each column that is in runs, the number of the run of an entry."""
        at = [x.searchsorted(x.dtype.type(entry), "right") - 1 for x in self._pointers]
        return np.array(at, np.uint64) if at else None


class Sorting:
    """Entries as records, partitioned into buckets by the first bits of their keys; `runs` of buckets are sorted in
    turn, each as large as stays in the cache until it has been emitted. Equal keys never lie in two runs.

    low_bits: among entries that agree above so many lowest bits, these are in order already. trusted: coordinates
    are known to be unique and in range. keep: the sorted records outlive the sorting of the next run by the same
    thread. run: how many records a run has, or fewer, if it has several buckets. Raises OutOfRange.
    """

    def __init__(
        self,
        coords: tuple[Array, ...],
        runs: Sequence[Array | None],
        payload: Array | None,
        keys: Layout,
        low_bits: int,
        trusted: bool,
        keep: bool,
        run: int = _RUN,
    ) -> None:
        self._tag = keys.tag
        self._low = min(low_bits, 63)
        self._unique = trusted
        self._keep = keep
        self._run = run
        everything = Columns(coords, runs, keys)
        n = len(everything.full[0])
        upper = keys.bits - keys.spill  # bits of the first word
        varying = keys.bits - low_bits
        splits = max(min(_wanted_splits(n, varying), varying, upper), upper - 63)
        top = np.uint64(upper - splits)
        records = np.empty(n * (keys.words + 1), np.uint64)
        # Only the first dimensions have bits in the number of a bucket.
        leading = max(sum(end > upper - splits for end in (keys.bits, *keys.ends[:-1])), 1)
        heads = Columns(coords[:leading], runs, keys)

        def count(begin: int, end: int, counts: Array) -> None:
            arguments = heads.full or None, heads.fields, heads.runs, heads.runs_at(begin)
            kernels.sorting.histogram(*arguments, begin, end, top, counts)

        def move(begin: int, end: int, cursor: Array) -> None:
            arguments = everything.full, payload, everything.fields, everything.sizes, everything.runs
            if kernels.sorting.partition(*arguments, everything.runs_at(begin), begin, end, top, cursor, records):
                raise OutOfRange

        starts = self._moved(n, self._counted(n, 1 << splits, count), move)
        self.runs = list(self._runs(records, starts, upper - splits))
        # What is freed goes back to the system: to touch it again takes as long as to sort (50,000: 2 ms against 0.9).
        usual = all(starts[-1] - starts[0] <= _RUN for _, starts, _ in self.runs)
        self._scratch = _SCRATCH if usual else threading.local()

    def _counted(self, n: int, buckets: int, count: Callable[[int, int, Array], None]) -> Array:
        """How many records of its share each thread has for each bucket."""
        parts = parallel.shares(n, MOVED)
        if buckets == 1:
            return np.array([[end - begin] for begin, end in parts], np.uint64)
        counts = np.zeros((len(parts), buckets), np.uint64)
        parallel.each(lambda k: count(*parts[k], counts[k]), range(len(parts)))
        return counts

    def _moved(self, n: int, counts: Array, move: Callable[[int, int, Array], None]) -> Array:
        """Let each thread move its share; where each bucket starts, in records."""
        parts = parallel.split(n, len(counts))
        numbers = counts.T.ravel()
        begins = (numbers.cumsum() - numbers).reshape(counts.T.shape)
        cursors = np.ascontiguousarray(begins.T) * np.uint64(len(self._tag) + 1)
        parallel.each(lambda k: move(*parts[k], cursors[k]), range(len(parts)))
        starts = np.empty(len(begins) + 1, np.int64)
        starts[:-1], starts[-1] = begins[:, 0], n
        return starts

    def _runs(self, records: Array, starts: Array, top: int) -> Iterator[UnsortedRun]:
        first = 0
        while first < len(starts) - 1:
            size = starts[first + 1] - starts[first]
            if size > _HEAVY and (size > _COUNTED or self._passes(top) != 1):
                width = len(self._tag) + 1
                yield from self._heavy(records[starts[first] * width : starts[first + 1] * width], top)
                first += 1
            else:
                last = max(int(np.searchsorted(starts, starts[first] + self._run, side="right")) - 1, first + 1)
                if starts[first] < starts[last]:
                    yield records, starts[first : last + 1], top
                first = last

    def _heavy(self, records: Array, top: int) -> Iterator[UnsortedRun]:
        """One bucket that would leave the cache, partitioned once more by the first bits in which its keys differ."""
        width = len(self._tag) + 1
        n = len(records) // width
        floor = self._low if width == 2 else 1
        varying: list[int] = []

        def count(begin: int, end: int, counts: Array) -> None:
            vary = kernels.sorting.count_digit(
                records[begin * width : end * width], self._tag, np.uint64(min(low, 63)), counts
            )
            varying.append(int(vary) | int(records[begin * width] ^ records[0]))

        def move(begin: int, end: int, cursor: Array) -> None:
            fields = np.uint64(0), np.uint64(low), np.uint64(digit)
            share = records[begin * width : end * width]
            kernels.sorting.digit_pass(share, target, self._tag, *fields, cursor, np.uint64(0))

        while top > floor:
            digit = min(_SPLITS[1], top - floor)
            low = top - digit
            counts = self._counted(n, 1 << digit, count)
            top = max(max(varying).bit_length(), floor)
            if top > low:  # else the first bits that differ lie lower
                target = np.empty_like(records)
                yield from self._runs(target, self._moved(n, counts, move), low)
                return
        yield records, np.array([0, n]), top

    def _passes(self, top: int) -> int:
        """How many passes, one or two, sort all that differs below bit `top`; 0 where they do not."""
        bits = top - self._low
        return -(-bits // kernels.sorting.DIGIT) if len(self._tag) == 1 and 0 < bits <= _TWO_DIGITS else 0

    def sort(self, run: UnsortedRun) -> SortedRun:
        """The records of a run in order, in an array that may be longer; how many they are; whether keys repeat."""
        records, starts, top = run
        width = len(self._tag) + 1
        begin, end = int(starts[0]), int(starts[-1])
        here = records[begin * width : end * width]
        if width == 2 and top <= self._low:  # a bucket for each key
            target, exact = here, True
        elif passes := self._passes(top):
            most = _largest(starts) * width if passes > 1 else 0
            spare, target, offsets = self._room(most, len(here), self._keep)
            digit = -(-(top - self._low) // passes)
            kernels.sorting.sort_digits(records, starts, self._low, digit, passes, spare, target, offsets)
            exact = True
        else:
            spare, target, offsets = self._room(_largest(starts) * width, len(here), False)
            target = here if self._keep else target
            exact = kernels.sorting.sort_buckets(records, self._tag, starts, top, self._low, spare, target, offsets)
        repeats = False
        if exact and not self._unique and width == 2:
            keys = target[: len(here) : width]
            repeats = bool((keys[1:] == keys[:-1]).any())
        elif not (exact and self._unique):
            repeats = bool(kernels.sorting.repair(target[: len(here)], self._tag))
        return target, end - begin, repeats

    def _room(self, words: int, more: int, new: bool) -> tuple[Array, Array, Array]:
        """Scratch of this thread, which its next run uses again, unless it is new because the caller keeps it."""
        arrays: tuple[Array, Array, Array] | None = None if new else getattr(self._scratch, "arrays", None)
        if arrays is None or len(arrays[0]) < words or len(arrays[1]) < more:
            sizes = (words, more) if arrays is None else (max(words, len(arrays[0])), max(more, len(arrays[1])))
            offsets = np.empty(2 << kernels.sorting.DIGIT, np.uint32)
            arrays = (np.empty(sizes[0], np.uint64), np.empty(sizes[1], np.uint64), offsets)
            if not new:
                self._scratch.arrays = arrays
        return arrays


def _wanted_splits(n: int, bits: int) -> int:
    """How many bits should partition n records whose keys differ in so many bits: one more where that saves a pass.

    None, where all are one run and take two passes all the same: one bucket is not counted (20,000: 316 µs → 288).
    """
    pieces, digit = n // _BUCKET, kernels.sorting.DIGIT
    splits = min(pieces.bit_length(), _SPLITS[n >> _SPLITS[0] > _LARGE])
    splits += bits - splits in (digit + 1, _TWO_DIGITS + 1)
    return 0 if pieces < 2 or (n <= _RUN and digit + splits < bits <= 2 * digit) else splits


def _largest(starts: Array) -> int:
    """The number of records of the largest bucket."""
    return int((starts[1:] - starts[:-1]).max())
