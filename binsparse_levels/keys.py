"""Entries in any order → records in the order of their keys, run by run, so that a run is emitted while in cache.

The words of a key and what the passes do is told in `kernels.entries`; here are the layout of the bits, the choice of
buckets, and what happens to entries that repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from . import kernels
from .limits import INT32_MAX

Array: TypeAlias = npt.NDArray[Any]
Words: TypeAlias = tuple[tuple[np.uint64, ...], ...]  # for each word, one number for each dimension
Run: TypeAlias = tuple[Array, int, int, bool]  # records, begin, end, whether keys repeat

_ALL = 2**64 - 1
_RUN = 2**18  # records that are sorted and emitted together: 4 MiB, which stay in the cache
_BLOCK = 2**16  # sorted entries that become records at a time
_BUCKET = 12_000  # records that a bucket should have at least
MAX_FUSED_RANK = 8  # the kernels are unrolled over the dimensions, and compile for longer with each


class OutOfRange(Exception):
    """A coordinate lies outside its dimension; which one is for the caller to find."""


class Repeated(Exception):
    """A key is there more than once; the argument is its coordinates, by stored dimension."""


@dataclass(frozen=True)
class Layout:
    """Where each dimension lies in the words of a key; see `kernels.entries`."""

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

    def from_bit(self, end: int) -> tuple[np.uint64, ...]:
        """For each word a mask of the bits of the key from `end` up."""
        starts = (self.spill, 0)[: self.words]
        return tuple(np.uint64(_ALL >> k << k & _ALL if (k := max(end - start, 0)) < 64 else 0) for start in starts)


def layout(dims: Sequence[int]) -> Layout | None:
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


def unsigned(coords: Sequence[Array], dims: Sequence[int]) -> tuple[Array, ...]:
    """The coordinates as kernels take them, all of one unsigned type in which a negative one is out of range."""
    narrow = max(dims, default=0) <= INT32_MAX and all(x.dtype.kind in "iu" and x.dtype.itemsize == 4 for x in coords)
    types = {"i": np.int32, "u": np.uint32} if narrow else {"i": np.int64, "u": np.uint64}
    return tuple(kernels.readable(x, types[x.dtype.kind]).view(types["u"]) for x in coords)


def sorted_runs(
    coords: tuple[Array, ...], payload: Array | None, keys: Layout, *, ordered_bits: int, at_once: bool
) -> Iterator[Run]:
    """The entries as records sorted by key, in consecutive runs; equal keys never lie in two runs.

    ordered_bits: among entries that agree above so many lowest bits, these are in order already. at_once: the records
    must outlive the iteration. Raises OutOfRange.
    """
    n = len(coords[0])
    width = keys.words + 1
    found = np.zeros(3, np.uint64)
    kernels.entries.scan(coords, keys.fields, keys.sizes, found)
    descents, repeats, out_of_range = found.tolist()
    if out_of_range:
        raise OutOfRange
    if not descents:
        step = n if at_once or repeats else _BLOCK
        block = np.empty(min(step, n) * width, np.uint64)
        for begin in range(0, n, step):
            end = min(begin + step, n)
            cursor = np.zeros(1, np.uint64)
            kernels.entries.partition(
                coords, payload, keys.fields, begin, end, np.uint64(0), np.uint64(0), cursor, block
            )
            yield block, 0, end - begin, bool(repeats)
        return

    upper = keys.bits - keys.spill  # bits of the first word
    splits = min(10 if n > 25_000_000 else 9, (n // _BUCKET).bit_length(), keys.bits - ordered_bits, upper)
    top = np.uint64(min(upper - splits, 63))
    count = np.zeros(1 << splits, np.uint64)
    if kernels.entries.histogram(coords, keys.fields, keys.sizes, top, count):
        raise OutOfRange
    starts = np.concatenate(([0], np.cumsum(count))).astype(np.int64)
    cursor = starts[:-1].astype(np.uint64)
    records = np.empty(n * width, np.uint64)
    kernels.entries.partition(coords, payload, keys.fields, 0, n, top, np.uint64((1 << splits) - 1), cursor, records)
    largest = int(count.max())
    spare = np.empty(largest * width, np.uint64)
    ties = np.empty(largest + 1, np.uint32)
    digits = np.empty((2, 1 << 11), np.uint32)
    low = min(ordered_bits, 63)
    first = 0
    while first < len(starts) - 1:
        last = max(int(np.searchsorted(starts, starts[first] + _RUN, side="right")) - 1, first + 1)
        repeats = kernels.entries.sort_buckets(
            records, keys.tag, starts[first : last + 1], upper - splits, low, spare, ties, digits
        )
        yield records, int(starts[first]), int(starts[last]), bool(repeats)
        first = last
