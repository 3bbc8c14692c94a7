"""The fused pass: entries in any order → all arrays of a chain of dense and sparse levels, run by run in the cache.

A chain is a code for each dimension: 0 dense, 1 the first of a sparse level, 2 a further one of the same level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from . import kernels, keys, threads
from .errors import ArrayError, Problem
from .limits import Limits
from .tree import index_dtype

Array: TypeAlias = npt.NDArray[Any]
Duplicates: TypeAlias = Literal["error", "sum", "first", "last"]

_NOTHING = 2**64 - 1  # a cursor before the first entry, and the payload of a cell without one
# Values of these types are summed inside the records; others are gathered first.
_SUMMED_IN_PLACE = {np.dtype(code) for code in "?bhilqBHILQfdF"}


@dataclass
class Chain:
    """Arrays by stored dimension (empty ones where a dimension has none); values; positions at the end of the chain,
    and how many of them are of an entry.
    """

    pointers: list[Array]
    indices: list[Array]
    positions: int
    entries: int = 0
    values: Array | None = None


@dataclass(frozen=True)
class _Plan:
    """What the kernels are told of a chain: see `kernels.chain`. dense_below: a dense level lies below a sparse one.
    still: dimensions whose level has one entry at most, since no bit of the key tells two apart.
    """

    codes: tuple[int, ...]
    dims: tuple[int, ...]
    layout: keys.Layout
    keep: keys.Words
    chain: tuple[Any, ...]
    dense_below: bool
    still: tuple[int, ...]


@lru_cache(256)
def _plan(codes: tuple[int, ...], dims: tuple[int, ...]) -> _Plan:
    layout = keys.layout(dims)
    assert layout is not None
    ends = [layout.ends[_last(codes, d)] for d in range(len(codes))]
    keep = tuple(zip(*(layout.from_bit(end) for end in ends), strict=True))
    sparse = tuple(np.uint64(code != 0) for code in codes)
    holds = tuple(np.uint64(_NOTHING if code == 1 and d > 0 else 0) for d, code in enumerate(codes))
    dense_below = 1 in codes and 0 in codes[codes.index(1) :]
    still = tuple(d for d in range(len(codes)) if not any(word[d] for word in keep))
    return _Plan(codes, dims, layout, keep, (keep, sparse, holds, layout.sizes), dense_below, still)


def _last(codes: tuple[int, ...], d: int) -> int:
    """The last dimension of the level that dimension d belongs to."""
    while d + 1 < len(codes) and codes[d + 1] == 2:
        d += 1
    return d


def emit(
    codes: tuple[int, ...],
    dims: tuple[int, ...],
    coords: Sequence[Array],
    values: Array | None,
    pad: Any,
    duplicates: Duplicates,
    limits: Limits,
    *,
    ordered_bits: int = 0,
    trusted: bool = False,
) -> Chain:
    """All arrays for at least one entry. `values` is None where there is no payload to move; `pad` fills cells without
    an entry. ordered_bits, trusted: see keys.Sorting. Raises keys.OutOfRange, keys.Repeated, ArrayError, LimitError.
    """
    plan = _plan(codes, dims)
    columns = keys.unsigned(coords, dims)
    in_order = not ordered_bits and keys.in_order(columns, plan.layout)
    stays = in_order and codes[-1] != 0  # an entry a position, in the order that they have
    # A value travels as one word of the record; one that does not fit, as the number of its entry.
    summed = duplicates == "sum" and not in_order
    by_number = values is not None and not (
        values.dtype.itemsize in (1, 2, 4, 8) and (not summed or values.dtype in _SUMMED_IN_PLACE)
    )
    payload = None
    if values is not None and not stays:
        payload = kernels.readable(np.arange(len(values), dtype=np.uint64) if by_number else _to_words(values))

    def prepared(run: keys.SortingRun) -> keys.Run:
        records, begin, end, repeats = sorting.sort(run)
        if repeats and duplicates == "first":
            end = kernels.entries.keep_first(records, plan.layout.tag, begin, end)
        return records, begin, int(end), repeats

    counts = [len(coords[0])] * len(codes)
    kept: list[keys.Run] | None = None
    if in_order:
        kept = [(None, 0, len(coords[0]), False)]
    else:
        keep = plan.dense_below or (by_number and summed)
        sorting = keys.Sorting(columns, payload, plan.layout, ordered_bits=ordered_bits, trusted=trusted, keep=keep)
        if keep:
            kept = threads.each(prepared, sorting.runs)
    if kept and values is not None and by_number and summed:
        kept, values = _sum_by_number(kept, values, plan.layout)
    if kept and plan.dense_below:  # what lies there can only be allocated when the fibers above it are counted
        counts = _count(kept, columns, plan)
    chain = _allocate(codes, dims, counts, limits)
    out = None
    if payload is not None and values is not None:
        out = np.empty(chain.positions, np.uint64)
        if codes[-1] == 0:
            out[:] = _NOTHING if by_number else _to_words(np.full(1, pad, values.dtype))[0]
    add_as = values.dtype if summed and not by_number and values is not None else None
    writing = _Writing(plan, chain, columns, payload, out, add_as, duplicates == "error")
    if kept is None:
        threads.in_turn(prepared, writing.write, sorting.runs)
    for run in kept or ():
        writing.write(run)
    writing.finish()
    if out is not None and values is not None:
        out.resize(chain.positions, refcheck=False)
        chain.values = _take(values, out, pad) if by_number else _from_words(out, values.dtype)
    elif stays and values is not None:
        chain.values = values.copy()
    return chain


def hold_dense(n: int, entries: int, limits: Limits) -> None:
    """Positions that no entry asks for cost at least a word each; raises LimitError."""
    if n > entries + 1:
        limits.hold("dense_bytes", 8 * n, "", "the size in bytes of what the dense levels make")


def add_groups(values: Array, new: Array) -> Array:
    """The sums of values from each new one up to the next; of booleans, whether any is true; integers wrap."""
    if values.dtype.kind not in "biufc":
        raise ArrayError(Problem("values", f"values of type {values.dtype} cannot be summed"))
    total = values[new]
    rest = ~new
    add = np.logical_or if values.dtype.kind == "b" else np.add
    # One by one, as the kernels do: reduceat adds in pairs, and rounds otherwise.
    add.at(total, (new.cumsum() - 1)[rest], values[rest])
    return total


def _to_words(values: Array) -> Array:
    """The bits of values of 1, 2, 4 or 8 bytes, each in a word."""
    bits = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    return bits.astype(np.uint64, copy=False)


def _from_words(words: Array, dtype: np.dtype[Any]) -> Array:
    return words.astype(f"u{dtype.itemsize}", copy=False).view(dtype)


def _take(values: Array, numbers: Array, pad: Any) -> Array:
    taken = np.full(len(numbers), pad, values.dtype)
    there = np.flatnonzero(numbers != _NOTHING)
    taken[there] = values[numbers[there]]
    return taken


def _sum_by_number(runs: list[keys.Run], values: Array, layout: keys.Layout) -> tuple[list[keys.Run], Array]:
    if not any(repeats for *_, repeats in runs):
        return runs, values
    width = layout.words + 1
    records = np.concatenate([run[begin * width : end * width] for run, begin, end, _ in runs if run is not None])
    order = np.empty(len(values), np.uint64)
    starts = np.empty(len(values), np.int64)
    kept = int(kernels.entries.number_runs(records, layout.tag, order, starts))
    new = np.zeros(len(values), bool)
    new[starts[:kept]] = True
    return [(records, 0, kept, False)], add_groups(values[order], new)


def _first_repeat(records: Array, begin: int, end: int, layout: keys.Layout) -> tuple[int, ...]:
    found = records[: end * (layout.words + 1)].reshape(-1, layout.words + 1)[begin:, : layout.words]
    at = int(np.argmax((found[1:] == found[:-1]).all(axis=1)))
    return layout.coords(found[at].tolist())


def _count(runs: list[keys.Run], columns: tuple[Array, ...], plan: _Plan) -> list[int]:
    """For each dimension, how many entries its level has."""
    rank = len(plan.codes)
    counts = np.zeros(rank + 2, np.uint64)
    counts[rank:] = _before_first(runs[0], columns, plan.layout)
    for records, begin, end, _ in runs:
        given = columns if records is None else None
        kernels.chain.count_fibers(records, given, begin, end, plan.layout.fields, plan.keep, counts)
    return [max(int(c), 1) for c in counts[:rank]]


def _before_first(run: keys.Run, columns: tuple[Array, ...], layout: keys.Layout) -> Array:
    """The words of a key that differs from the first one in every bit: high and low, the same where there is one."""
    records, begin, *_ = run
    if records is None:
        first = layout.key([int(x[begin]) for x in columns])
    else:
        first = records[begin * (layout.words + 1) :][: layout.words].tolist()
    return ~np.array([first[0], first[-1]], np.uint64)


def _allocate(codes: tuple[int, ...], dims: Sequence[int], counts: Sequence[int], limits: Limits) -> Chain:
    """Arrays for so many entries of each level. Those of no use take one store of the kernel."""
    dtype = index_dtype(dims, max(counts))
    pointers: list[Array] = []
    indices: list[Array] = []
    n = 1
    for d, code in enumerate(codes):
        is_level = code == 1 and d > 0
        pointers.append(np.zeros(n + 1 if is_level else 2, dtype))
        if code == 0:
            n *= dims[d]
            hold_dense(n, counts[d], limits)
        elif code == 1:
            n = counts[d]
        indices.append(np.empty(0 if code == 0 else n, dtype))
    return Chain(pointers, indices, n)


class _Writing:
    """The arrays of a chain while runs are written to them, in order.

    add_as: the type as which payloads of equal keys add up, else the last one stays. refuse: keys that repeat.
    """

    def __init__(
        self,
        plan: _Plan,
        chain: Chain,
        columns: tuple[Array, ...],
        payload: Array | None,
        out: Array | None,
        add_as: np.dtype[Any] | None,
        refuse: bool,
    ) -> None:
        self._plan = plan
        self._chain = chain
        self._columns = columns
        self._payload = payload
        self._out = out
        self._add_as = add_as
        self._refuse = refuse
        word = np.dtype(f"u{chain.pointers[0].dtype.itemsize}")
        self._pointers = tuple(x.view(word) for x in chain.pointers)
        self._indices = tuple(x.view(word) for x in chain.indices)
        self._state: Array | None = None

    def write(self, run: keys.Run) -> None:
        plan, rank = self._plan, len(self._plan.codes)
        records, begin, end, repeats = run
        if repeats and records is not None and self._refuse:
            raise keys.Repeated(_first_repeat(records, begin, end, plan.layout))
        if self._state is None:
            self._state = np.full(rank + 2, _NOTHING, np.uint64)
            self._state[list(plan.still)] = 0
            self._state[rank:] = _before_first(run, self._columns, plan.layout)
        columns, payload = (self._columns, self._payload) if records is None else (None, None)
        typed, out = None, self._out
        if repeats and self._add_as is not None and records is not None and out is not None:
            typed, out = records.view(self._add_as), out.view(self._add_as)
        place = (self._state, self._pointers, self._indices, out)
        kernels.chain.emit(records, columns, payload, typed, begin, end, plan.layout.fields, plan.chain, *place)
        self._chain.entries += end - begin

    def finish(self) -> None:
        """Close the gaps of the pointers, and cut every array to what was written."""
        codes, chain = self._plan.codes, self._chain
        assert self._state is not None
        reached = [int(at) + 1 if code else 0 for at, code in zip(self._state.tolist(), codes, strict=False)]
        for d in range(1, len(codes)):
            if codes[d] == 1 and codes[d - 1] == 0:
                kernels.chain.fill_gaps(self._pointers[d])
        self._pointers = self._indices = ()  # so that the arrays may change their size
        n = 0  # entries of the sparse level above, where it is the next one
        for d, code in enumerate(codes):
            if code == 1:
                if d > 0 and codes[d - 1] != 0:
                    chain.pointers[d].resize(n + 1, refcheck=False)
                n = reached[d]
            if code:
                chain.indices[d].resize(n, refcheck=False)
        if codes[-1]:
            chain.positions = n
