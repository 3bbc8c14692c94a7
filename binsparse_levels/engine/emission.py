"""The fused pass: entries in any order → all arrays of a chain of dense and sparse levels, a sorted run at a time.

A chain is a code for each dimension: DENSE, SPARSE for the first dimension of a sparse level, CONTINUED for the others.
`engine.packing` builds small trees level by level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .. import kernels, parallel
from ..errors import ArrayError, OptionError, Problem
from ..formats.dtypes import is_of_ml_dtypes
from ..levels.base import CONTINUED, DENSE, SPARSE, Array
from ..limits import Limits
from ..thresholds import THRESHOLDS
from . import sorting
from .sorting import Entries
from .tree import Duplicates, check_dense, index_dtype

_NOTHING = 2**64 - 1  # the position before position 0, and the payload of a cell without an entry
_WORD_BYTES = 1, 2, 4, 8  # of values that are moved as words; of others their numbers are moved
_BUCKET_BITS = 7  # of the number of buckets of fibers, which are brought together first
# Values of these types are summed in the records. numpy sums others.
_SUMMED = {np.dtype(code) for code in "?lqLQd"}
_SUMS = {"b": np.int64, "i": np.int64, "u": np.uint64, "f": np.float64, "c": np.complex128}


@dataclass
class Chain:
    """The arrays of a chain, by stored dimension; an array that a dimension does not have is empty.

    positions: the number of positions of the last level. entries: the number of emitted entries.
    """

    pointers: list[Array]
    indices: list[Array]
    positions: int
    entries: int = 0
    values: Array | None = None


@dataclass(frozen=True)
class _Plan:
    """The arguments of the kernels for a chain; see `kernels.emission`.

    dense_below: True if a dense level is below a sparse level. lists: as for the kernel `emit`. first: the initial
    position in each level: the one before 0, or 0 if keys have no bits for the level, which then has a single entry.
    """

    codes: tuple[int, ...]
    dims: tuple[int, ...]
    layout: sorting.Layout
    keep: sorting.Words
    lists: tuple[()] | None
    chain: Array
    dense_below: bool
    first: tuple[int, ...]


@lru_cache(256)
def _plan(codes: tuple[int, ...], dims: tuple[int, ...]) -> _Plan:
    layout = sorting.layout(dims)
    assert layout is not None
    ends = list(layout.ends)
    for d in reversed(range(len(codes) - 1)):  # the dimensions of a level end together
        if codes[d + 1] == CONTINUED:
            ends[d] = ends[d + 1]
    keep = tuple(zip(*(layout.from_bit(end) for end in ends), strict=True))
    sparse = [int(code != DENSE) for code in codes]
    has_pointers = [_NOTHING if code == SPARSE and d > 0 else 0 for d, code in enumerate(codes)]
    low = layout.words - 1
    fields = [field[word] for word in (0, low) for field in layout.fields]
    chain = np.array([*fields, keep[0], keep[low], sparse, has_pointers, (0, *dims[1:])], np.uint64).T.copy()
    dense_below = SPARSE in codes and DENSE in codes[codes.index(SPARSE) :]
    first = tuple(_NOTHING if any(word[d] for word in keep) else 0 for d in range(len(codes)))
    shared = any(is_sparse and min(word[d] for word in keep) != _NOTHING for d, is_sparse in enumerate(sparse))
    return _Plan(codes, dims, layout, keep, () if shared else None, chain, dense_below, first)


def emit(codes: tuple[int, ...], entries: Entries, pad: Any, duplicates: Duplicates, limits: Limits) -> Chain:
    """All arrays of a chain for these entries; no values for iso entries. Precondition: there is at least one entry.

    pad: the value of cells without an entry. Raises OutOfRange, Repeated, ArrayError, LimitError.
    """
    plan, values = _plan(codes, entries.dims), None if entries.iso else entries.values
    layout, low_bits = plan.layout, plan.layout.low_bits(entries.ordered_dims)
    in_order_below = entries.trusted and layout.words == 1 and low_bits == layout.ends[0]
    if in_order_below and codes == (DENSE, SPARSE):
        return _emit_placed(plan, entries, limits)
    summed = duplicates == "sum"
    payload = None if values is None else _Payload(values)
    words = payload.words() if payload else None
    partition = sorting.Sorting(entries.columns, words, layout, low_bits, entries.trusted, plan.dense_below)

    def prepared(run: sorting.UnsortedRun) -> sorting.SortedRun:
        records, count, repeats = partition.sort(run)
        if repeats and duplicates != "error":
            typed = records.view(values.dtype) if summed and values is not None else None
            arguments = typed, duplicates == "last", layout.tag
            count, repeats = int(kernels.sorting.join_equal(records, *arguments, count)), False
        return records, count, repeats

    runs: list[sorting.SortedRun] | None = None
    counts = [entries.count] * len(codes)
    if plan.dense_below:  # its arrays can only be allocated after the fibers above are counted
        runs = parallel.each(prepared, partition.runs)
        counts = _count_fibers(plan, runs)
    writing = _Writing(plan, _allocate(plan, counts, limits), payload, pad, refuse=duplicates == "error")
    if runs is None:
        parallel.finish_in_order(prepared, writing.write, partition.runs)
    for run in runs or ():
        writing.write(run)
    return writing.finish()


def _emit_placed(plan: _Plan, entries: Entries, limits: Limits) -> Chain:
    """`emit` for a matrix in which the entries of each fiber are in order already, so that no fiber is sorted."""
    count, columns, values = entries.count, entries.columns, entries.values
    chain = _allocate(plan, [count] * 2, limits)
    chain.entries = count
    word = np.dtype(f"u{chain.pointers[0].dtype.itemsize}")
    pointers, indices = chain.pointers[1].view(word), chain.indices[1].view(word)
    by_number = values.dtype.itemsize not in _WORD_BYTES
    payload = None
    if not entries.iso:
        bits = np.arange(count) if by_number else np.ascontiguousarray(values)
        payload = kernels.readable(bits.view(f"u{bits.dtype.itemsize}"))
    if pointers.nbytes + indices.nbytes + (0 if payload is None else payload.nbytes) > THRESHOLDS.cached_bytes:
        # First bring entries of near fibers together: 80 ms → 45 ms (5 M entries, 10 in a fiber).
        shift = max((plan.dims[0] - 1).bit_length() - _BUCKET_BITS, 0)
        near, near_payload = tuple(map(np.empty_like, columns)), None if payload is None else np.empty_like(payload)
        buckets = np.zeros(((plan.dims[0] - 1) >> shift) + 1, word)
        _place(columns[0], shift, columns, payload, buckets, near, near_payload)
        columns = tuple(map(kernels.readable, near))
        payload = None if near_payload is None else kernels.readable(near_payload)
    out = None if payload is None else np.empty_like(payload)
    _place(columns[0], 0, columns[1:], payload, pointers[1:], (indices,), out)
    if out is not None:
        chain.values = values[out] if by_number else out.view(values.dtype)
    return chain


def _place(
    column: Array,
    shift: int,
    columns: tuple[Array, ...],
    payload: Array | None,
    cursors: Array,
    outs: tuple[Array, ...],
    out: Array | None,
) -> None:
    """Write `columns` and `payload` in the order of `column` >> `shift`, stably. cursors: becomes the end of each."""
    parts = parallel.shares(len(column), sorting.RECORD_BYTES, len(cursors))  # each part counts all fibers
    others = np.zeros((len(parts) - 1, len(cursors)), cursors.dtype)
    counts, bits = [*others, cursors], np.uint64(shift)
    parallel.each(lambda k: kernels.placing.count(column, bits, *parts[k], counts[k]), range(len(parts)))
    kernels.placing.to_cursors(others, cursors)
    given = column, bits, columns, payload
    parallel.each(lambda k: kernels.placing.place(*given, *parts[k], counts[k], outs, out), range(len(parts)))


def sums(values: Array) -> bool:
    """Return True if the fused pass sums values of this type in its records."""
    return values.dtype in _SUMMED


def sum_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of sums of values of a type.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> str(sum_type(np.dtype("int8"))), str(sum_type(np.dtype("float32")))
    ('int64', 'float64')
    """
    return np.dtype(_SUMS.get(dtype.kind, np.float64))  # ml_dtypes have other kinds


def wider(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The type in which values of a smaller type are summed; None for other types, booleans among them."""
    wide = sum_type(dtype) if dtype.kind in "iufc" or is_of_ml_dtypes(dtype) else dtype
    return wide if dtype.itemsize < wide.itemsize else None


def narrowed(sums: Array, dtype: np.dtype[Any]) -> Array:
    """Sums in the type of the summands. Raises OptionError for an integer that it cannot hold."""
    if sums.dtype == dtype:
        return sums
    with np.errstate(all="ignore"):
        made = sums.astype(dtype)
    if dtype.kind in "iu" and (wrong := made != sums).any():
        what = f"the sum {sums[wrong.argmax()]} exceeds {dtype}, the type of the values"
        raise OptionError(Problem("duplicates", f"{what}; give them a larger one, by dtype='int64' or astype('int64')"))
    return made


def add_groups(values: Array, new: Array) -> Array:
    """The sum of each group of values. Each begins where `new` is true. Booleans are combined by or."""
    if values.dtype.kind not in "biufc":
        raise ArrayError(
            Problem("values", f"values of type {values.dtype} cannot be summed; pass duplicates='first' or 'last'")
        )
    total = values[new]
    (rest,) = (~new).nonzero()
    add = np.logical_or if values.dtype.kind == "b" else np.add
    # The kernels add one by one; reduceat adds in pairs, which rounds differently.
    with np.errstate(all="ignore"):  # nor do they warn
        add.at(total, rest - np.arange(1, len(rest) + 1), values[rest])
    return total


class _Payload:
    """The payload of the records: the value as a word, or the number of the entry if the value is larger."""

    def __init__(self, values: Array) -> None:
        self._by_number = values.dtype.itemsize not in _WORD_BYTES
        self._values = values

    def words(self) -> Array:
        """A word for each entry."""
        return kernels.readable(np.arange(len(self._values)).view(np.uint64) if self._by_number else self._bits())

    def _bits(self) -> Array:
        bits = np.ascontiguousarray(self._values).view(f"u{self._values.dtype.itemsize}")
        return bits.astype(np.uint64, copy=False)

    def allocate(self, positions: int, padded: bool, pad: Any) -> Array:
        """Words for a number of positions. padded: some positions have no entry, so all are filled first."""
        out = np.empty(positions, np.uint64)
        if padded:
            out[:] = _NOTHING if self._by_number else _Payload(np.full(1, pad, self._values.dtype))._bits()
        return out

    def values(self, words: Array, pad: Any) -> Array:
        """The values of payload words."""
        dtype = self._values.dtype
        if not self._by_number:
            return words.astype(f"u{dtype.itemsize}", copy=False).view(dtype)
        out = np.full(len(words), pad, dtype)
        there = np.flatnonzero(words != _NOTHING)
        out[there] = self._values[words[there]]
        return out


def _first_repeat(records: Array, count: int, layout: sorting.Layout) -> tuple[int, ...]:
    keys = records[: count * (layout.words + 1)].reshape(-1, layout.words + 1)[:, : layout.words]
    at = int(np.argmax((keys[1:] == keys[:-1]).all(axis=1)))
    return layout.coords(keys[at].tolist())


def _count_fibers(plan: _Plan, runs: Sequence[sorting.SortedRun]) -> list[int]:
    """The number of entries of the level of each dimension."""
    rank, width = len(plan.codes), plan.layout.words
    state = np.zeros(rank + 2, np.uint64)
    state[rank:] = _key_before(runs[0][0][:width])
    for records, count, _ in runs:
        kernels.emission.count_fibers(records, count, plan.keep, state)
    return [max(int(c), 1) for c in state[:rank]]


def _key_before(first: Array) -> Array:
    """A key that differs from the first key in every bit: its high and low word, equal if there is one word."""
    return ~first[[0, -1]]


def _allocate(plan: _Plan, counts: Sequence[int], limits: Limits) -> Chain:
    """Arrays for `counts[d]` entries of each level. The kernel stores one item in unused pointers."""
    dtype = index_dtype(plan.dims, max(counts))
    pointers: list[Array] = []
    indices: list[Array] = []
    n, above = 1, None
    for d, code in enumerate(plan.codes):
        is_level = code == SPARSE and d > 0
        # Each fiber below a sparse level has entries, so all pointers are written; below a dense level there are gaps.
        pointers.append((np.zeros if above == DENSE else np.empty)(n + 1 if is_level else 2, dtype))
        pointers[d][0], above = 0, code
        if code == DENSE:
            n *= plan.dims[d]
            check_dense(n, counts[d], limits)
        elif code == SPARSE:
            n = counts[d]
        indices.append(np.empty(0 if code == DENSE else n, dtype))
    return Chain(pointers, indices, n)


@dataclass
class _Writing:
    """Writes runs to the arrays of a chain, in order. refuse: repeated keys raise Repeated."""

    plan: _Plan
    chain: Chain
    payload: _Payload | None
    pad: Any
    refuse: bool
    state: Array | None = None

    def __post_init__(self) -> None:
        self.above = np.empty(kernels.emission.BLOCK_ENTRIES, np.uint64)
        chain, payload = self.chain, self.payload
        self.out = payload.allocate(chain.positions, self.plan.codes[-1] == DENSE, self.pad) if payload else None
        word = np.dtype(f"u{chain.pointers[0].dtype.itemsize}")
        self.pointers, self.indices = (tuple(x.view(word) for x in group) for group in (chain.pointers, chain.indices))

    def write(self, run: sorting.SortedRun) -> None:
        plan, rank = self.plan, len(self.plan.codes)
        records, count, repeats = run
        if repeats and self.refuse:
            raise sorting.Repeated(_first_repeat(records, count, plan.layout))
        if self.state is None:
            self.state = np.array([*plan.first, 0, 0], np.uint64)
            self.state[rank:] = _key_before(records[: plan.layout.words])
        place = (self.state, self.pointers, self.indices, self.out)
        kernels.emission.emit(records, count, plan.layout.tag, plan.lists, plan.chain, self.above, *place)
        self.chain.entries += count

    def finish(self) -> Chain:
        """Fill the gaps in the pointers, and truncate every array to its written items."""
        codes, chain = self.plan.codes, self.chain
        assert self.state is not None
        reached = [int(at) + 1 if code != DENSE else 0 for at, code in zip(self.state.tolist(), codes, strict=False)]
        for d in range(1, len(codes)):
            if codes[d] == SPARSE and codes[d - 1] == DENSE:
                np.maximum.accumulate(self.pointers[d], out=self.pointers[d])  # pointers that are still 0
        self.pointers = self.indices = ()  # so that the arrays can be resized
        n = 0  # entries of the sparse level directly above
        for d, code in enumerate(codes):
            if code == SPARSE:
                if d > 0 and codes[d - 1] != DENSE:
                    chain.pointers[d].resize(n + 1, refcheck=False)
                n = reached[d]
            if code != DENSE:
                chain.indices[d].resize(n, refcheck=False)
        if codes[-1] != DENSE:
            chain.positions = n
        if self.payload and self.out is not None:
            self.out.resize(chain.positions, refcheck=False)
            chain.values = self.payload.values(self.out, self.pad)
        return chain
