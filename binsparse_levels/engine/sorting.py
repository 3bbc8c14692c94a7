"""Sort entries, as records in the order of their keys, in runs that fit into the cache.

`kernels.sorting` defines records. This module assigns bits of the keys to dimensions, and chooses the buckets.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from .. import kernels, parallel
from ..levels.base import Array
from ..limits import INT32_MAX
from ..thresholds import THRESHOLDS

Words: TypeAlias = tuple[tuple[np.uint64, ...], ...]  # for each word, a number for each dimension
# The records of a run; their number; True if keys repeat.
SortedRun: TypeAlias = tuple[Array, int, bool]
# Records, the starts of the buckets of a run, and the number of low bits in which the keys of a bucket may differ.
UnsortedRun: TypeAlias = tuple[Array, Array, int]

_ALL = 2**64 - 1
# The output streams and the data of a pass are small enough for an L2 cache of 1 MiB.
RECORD_BYTES = 64  # moved for each record: its coordinates, and a cache line of its bucket
_SCRATCH = threading.local()  # at most 1.6 MB for each thread
MAX_FUSED_RANK = 8  # the kernels are unrolled over the dimensions, so compilation takes longer with each


class OutOfRange(Exception):
    """A coordinate is outside its dimension. The caller determines which one."""


class Repeated(Exception):
    """Several entries have the same key. The argument is its coordinates, by stored dimension."""


@dataclass(eq=False)  # compared by identity, as trees are
class Entries:
    """Entries by stored dimension. `values` has an item for each entry, or one item for all if iso.

    order: the tensor's dimension at each stored dimension, for messages. ordered_dims: the number of last dimensions in
    which entries that agree in the others are in order. trusted: coordinates are known to be unique and in range.
    """

    dims: tuple[int, ...]
    coords: tuple[Array, ...]
    values: Array
    iso: bool
    order: tuple[int, ...]
    ordered_dims: int = 0
    trusted: bool = False

    @property
    def count(self) -> int:
        return len(self.coords[0] if self.coords else self.values)

    @cached_property
    def columns(self) -> tuple[Array, ...]:
        """The coordinates as arguments of kernels."""
        return unsigned(self.coords, self.dims)

    def expanded(self) -> Entries:
        """The same entries, with one value for each."""
        return replace(self, values=np.repeat(self.values, self.count), iso=False) if self.iso else self


@dataclass(frozen=True, eq=False)
class Layout:
    """The bits of each dimension in the words of a key; see `kernels.keys`."""

    bits: int
    ends: tuple[int, ...]  # the lowest bit of each dimension, counted from the end of the key
    fields: tuple[Words, Words, Words]
    sizes: tuple[np.uint64, ...]

    @property
    def words(self) -> int:
        return len(self.fields[0])

    @property
    def tag(self) -> tuple[np.uint64, ...]:
        """A tuple with an item for each word. Numba compiles its length, the number of words, as a constant."""
        return (np.uint64(0),) * self.words

    def low_bits(self, dims: int) -> int:
        """The number of bits of the last `dims` dimensions."""
        return self.ends[-dims - 1] if dims else 0

    @property
    def spill(self) -> int:
        """The number of bits in the last of two words."""
        return self.bits - 64 if self.words == 2 else 0

    def coords(self, key: Sequence[int]) -> tuple[int, ...]:
        """The coordinates in the words of a key."""
        rows = zip(*(zip(*field, strict=True) for field in self.fields), strict=True)
        return tuple(
            sum(int(w) >> int(r) << int(f) & int(m) for w, r, f, m in zip(key, *row, strict=True)) for row in rows
        )

    def from_bit(self, end: int) -> tuple[np.uint64, ...]:
        """For each word, a mask of the bits of the key from `end` up."""
        starts = (self.spill, 0)[: self.words]
        return tuple(np.uint64(_ALL >> k << k & _ALL if (k := max(end - start, 0)) < 64 else 0) for start in starts)


@lru_cache(256)
def layout(dims: tuple[int, ...]) -> Layout | None:
    """The layout of the keys; None if they need more than two words, or have too many dimensions for the kernels."""
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
            # A dimension of size 1 has no bits: any valid shift will do.
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
    """The coordinates as arguments of kernels, all of one unsigned type, in which negative numbers are out of range."""
    narrow = max(dims, default=0) <= INT32_MAX and all(x.dtype.kind in "iu" and x.dtype.itemsize == 4 for x in coords)
    types = {"i": np.int32, "u": np.uint32} if narrow else {"i": np.int64, "u": np.uint64}
    return tuple(kernels.readable(x, types[x.dtype.kind]).view(types["u"]) for x in coords)


def in_order(entries: Entries) -> bool:
    """Return True if the entries are sorted and unique. Raises OutOfRange if they are sorted, but not in range.

    Precondition: there is a layout of their keys.
    """
    keys = layout(entries.dims)
    assert keys is not None
    head = entries.columns[0][: THRESHOLDS.head_entries]
    if (head[1:] < head[:-1]).any():  # the usual case, without the 0.5 s to compile the kernel
        return False
    descents, repeats, out_of_range = kernels.sorting.scan(entries.columns, keys.fields, keys.sizes)
    if out_of_range and not descents:
        raise OutOfRange
    return not descents and not repeats


class Sorting:
    """Entries as records, partitioned into buckets by the first bits of their keys. `runs` of buckets are sorted one
    after the other, each small enough to stay in the cache until it is emitted. Equal keys are in the same run.

    low_bits: the number of lowest bits that are in order already, among entries that agree in the others. trusted:
    coordinates are known to be unique and in range. keep: the sorted records remain valid after the thread sorts its
    next run. Raises OutOfRange.
    """

    def __init__(
        self, coords: tuple[Array, ...], payload: Array | None, keys: Layout, low_bits: int, trusted: bool, keep: bool
    ) -> None:
        self._tag = keys.tag
        self._low = min(low_bits, 63)
        self._unique = trusted
        self._keep = keep
        n = len(coords[0])
        upper = keys.bits - keys.spill  # bits of the first word
        varying = keys.bits - low_bits
        splits = max(min(_split_bits(n, varying), varying, upper), upper - 63)
        top = np.uint64(upper - splits)
        records = np.empty(n * (keys.words + 1), np.uint64)
        # Only the first dimensions have bits in the number of a bucket.
        leading = max(sum(end > upper - splits for end in (keys.bits, *keys.ends[:-1])), 1)
        heads, (fields, _) = coords[:leading], part(keys, tuple(range(leading)))
        shares = parallel.shares(n, RECORD_BYTES)
        counts = np.zeros((len(shares), 1 << splits), np.uint64)

        def count(k: int) -> None:
            kernels.sorting.histogram(heads, fields, *shares[k], top, counts[k])

        def move(k: int) -> None:
            arguments = coords, payload, keys.fields, keys.sizes
            if kernels.sorting.partition(*arguments, *shares[k], top, cursors[k], records):
                raise OutOfRange

        if splits:
            parallel.each(count, range(len(shares)))
        else:
            counts[:, 0] = [end - begin for begin, end in shares]
        numbers = counts.T.ravel()
        begins = (numbers.cumsum() - numbers).reshape(counts.T.shape)
        cursors = np.ascontiguousarray(begins.T) * np.uint64(keys.words + 1)
        parallel.each(move, range(len(shares)))
        starts = np.append(begins[:, 0], np.uint64(n)).astype(np.int64)
        self.runs = list(self._runs(records, starts, upper - splits))
        # Scratch is kept: allocating it again takes longer than sorting (2 ms and 0.9 ms for 50,000 records).
        usual = all(starts[-1] - starts[0] <= THRESHOLDS.run_records for _, starts, _ in self.runs)
        self._scratch = _SCRATCH if usual else threading.local()

    def _runs(self, records: Array, starts: Array, top: int) -> Iterator[UnsortedRun]:
        first = 0
        while first < len(starts) - 1:
            end = starts[first] + THRESHOLDS.run_records
            last = max(int(np.searchsorted(starts, end, side="right")) - 1, first + 1)
            if starts[first] < starts[last]:
                yield records, starts[first : last + 1], top
            first = last

    def sort(self, run: UnsortedRun) -> SortedRun:
        """The records of a run in order, in an array that may be longer; their number; True if keys repeat."""
        records, starts, top = run
        width = len(self._tag) + 1
        begin, end = int(starts[0]), int(starts[-1])
        here = records[begin * width : end * width]
        if width == 2 and top <= self._low:  # a bucket for each key
            target, exact = here, True
        else:
            spare, target, offsets = self._room(_largest(starts) * width, len(here), self._keep)
            exact = kernels.sorting.sort_buckets(records, self._tag, starts, top, self._low, spare, target, offsets)
        repeats = False
        if exact and not self._unique and width == 2:
            keys = target[: len(here) : width]
            repeats = bool((keys[1:] == keys[:-1]).any())
        elif not (exact and self._unique):
            repeats = bool(kernels.sorting.repair(target[: len(here)], self._tag))
        return target, end - begin, repeats

    def _room(self, words: int, more: int, new: bool) -> tuple[Array, Array, Array]:
        """Scratch of this thread, which its next run reuses. new: the caller keeps it, so it is not reused."""
        arrays: tuple[Array, Array, Array] | None = None if new else getattr(self._scratch, "arrays", None)
        if arrays is None or len(arrays[0]) < words or len(arrays[1]) < more:
            sizes = (words, more) if arrays is None else (max(words, len(arrays[0])), max(more, len(arrays[1])))
            offsets = np.empty(2 << kernels.sorting.DIGIT, np.uint32 if words < 2**32 else np.uint64)
            arrays = (np.empty(sizes[0], np.uint64), np.empty(sizes[1], np.uint64), offsets)
            if not new:
                self._scratch.arrays = arrays
        return arrays


def _split_bits(n: int, bits: int) -> int:
    """The number of bits by which to partition n records with keys of `bits` bits; one more if it saves a pass."""
    pieces = n // THRESHOLDS.bucket_records
    if pieces < 2:
        return 0
    splits = min(pieces.bit_length(), THRESHOLDS.split_bits)
    return splits + int(bits - splits == kernels.sorting.DIGIT + 1)


def _largest(starts: Array) -> int:
    """The number of records of the largest bucket."""
    return int((starts[1:] - starts[:-1]).max())
