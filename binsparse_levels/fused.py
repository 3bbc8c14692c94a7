"""The fused pass: entries in any order → all arrays of a chain of dense and sparse levels, run by run in the cache.

A chain is a code for each dimension: 0 dense, 1 the first of a sparse level, 2 a further one of the same level.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from . import kernels, keys
from .errors import ArrayError, Problem
from .limits import Limits
from .tree import index_dtype

Array: TypeAlias = npt.NDArray[Any]
Duplicates: TypeAlias = Literal["error", "sum", "first", "last"]
Part: TypeAlias = tuple[Array, int, int]  # records from … to, sorted and unique

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


def emit(
    codes: tuple[int, ...],
    dims: Sequence[int],
    coords: Sequence[Array],
    values: Array | None,
    pad: Any,
    duplicates: Duplicates,
    layout: keys.Layout,
    limits: Limits,
    *,
    ordered_bits: int = 0,
) -> Chain:
    """All arrays for at least one entry. `values` is None where there is no payload to move; `pad` fills cells without
    an entry. Raises keys.OutOfRange, keys.Repeated, ArrayError, LimitError.
    """
    below_sparse = 1 in codes and 0 in codes[codes.index(1) :]
    # A value travels as one word of the record; one that does not fit, as the number of its entry.
    by_number = values is not None and not (
        values.dtype.itemsize in (1, 2, 4, 8) and (duplicates != "sum" or values.dtype in _SUMMED_IN_PLACE)
    )
    sum_by_number = by_number and duplicates == "sum"
    payload = None
    if values is not None:
        payload = kernels.readable(np.arange(len(values), dtype=np.uint64) if by_number else _to_words(values))
    sorted_runs: Iterable[keys.Run] = keys.sorted_runs(
        keys.unsigned(coords, dims), payload, layout, ordered_bits=ordered_bits, at_once=below_sparse or sum_by_number
    )
    if values is not None and sum_by_number:
        sorted_runs, values = _sum_by_number(list(sorted_runs), values, layout)
    parts: Iterable[Part] = _merged(sorted_runs, layout, duplicates, None if values is None else values.dtype)
    keep = _keep(codes, layout)
    counts = [len(coords[0])] * len(codes)
    if below_sparse:  # what lies there can only be allocated when the fibers above it are counted
        parts = list(parts)
        counts = _count(parts, keep)
    chain = _allocate(codes, dims, counts, limits)
    if values is None:
        _write(codes, dims, layout, parts, keep, chain, None)
        return chain
    out = np.empty(chain.positions, np.uint64)
    if codes[-1] == 0:
        out[:] = _NOTHING if by_number else _to_words(np.full(1, pad, values.dtype))[0]
    _write(codes, dims, layout, parts, keep, chain, out)
    out.resize(chain.positions, refcheck=False)
    chain.values = _take(values, out, pad) if by_number else _from_words(out, values.dtype)
    return chain


def add_groups(values: Array, starts: Array) -> Array:
    """The sums of values[starts[k]] up to the next start; of booleans, whether any is true; integers wrap."""
    if values.dtype.kind not in "biufc":
        raise ArrayError(Problem("values", f"values of type {values.dtype} cannot be summed"))
    if values.dtype.kind == "b":
        return np.logical_or.reduceat(values, starts)
    return np.asarray(np.add.reduceat(values, starts, dtype=values.dtype))


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
    records = runs[0][0]
    order = np.empty(len(values), np.uint64)
    starts = np.empty(len(values), np.int64)
    kept = int(kernels.entries.number_runs(records, layout.tag, order, starts))
    return [(records, 0, kept, False)], add_groups(values[order], starts[:kept])


def _merged(
    runs: Iterable[keys.Run], layout: keys.Layout, duplicates: Duplicates, dtype: np.dtype[Any] | None
) -> Iterator[Part]:
    """The runs with one record for each key."""
    for records, begin, end, repeats in runs:
        if repeats:
            if duplicates == "error":
                raise keys.Repeated(_first_repeat(records, begin, end, layout))
            if duplicates == "sum" and dtype is not None:
                end = kernels.entries.add_up(records, layout.tag, begin, end, records.view(dtype))
            else:
                end = kernels.entries.keep_one(records, layout.tag, begin, end, duplicates == "last")
        yield records, begin, int(end)


def _first_repeat(records: Array, begin: int, end: int, layout: keys.Layout) -> tuple[int, ...]:
    found = records.reshape(-1, layout.words + 1)[begin:end, : layout.words]
    at = int(np.argmax((found[1:] == found[:-1]).all(axis=1)))
    return layout.coords(found[at].tolist())


def _keep(codes: tuple[int, ...], layout: keys.Layout) -> tuple[tuple[np.uint64, ...], ...]:
    """For each word and dimension the bits that tell the entries of its level apart, with the dimensions above."""
    ends = [layout.ends[_last(codes, d)] for d in range(len(codes))]
    return tuple(zip(*(layout.from_bit(end) for end in ends), strict=True))


def _last(codes: tuple[int, ...], d: int) -> int:
    """The last dimension of the level that dimension d belongs to."""
    while d + 1 < len(codes) and codes[d + 1] == 2:
        d += 1
    return d


def _count(parts: list[Part], keep: Any) -> list[int]:
    """For each dimension, how many entries its level has."""
    words, rank = len(keep), len(keep[0])
    counts = np.zeros(rank + 2, np.uint64)
    counts[rank:] = _before_first(parts[0], words)
    for records, begin, end in parts:
        kernels.chain.count_fibers(records, begin, end, keep, counts)
    return [max(int(c), 1) for c in counts[:rank]]


def _before_first(part: Part, words: int) -> Array:
    """The words of a key that differs from the first one in every bit: high and low, the same where there is one."""
    records, begin, _ = part
    first = records[begin * (words + 1) :]
    return ~np.array([first[0], first[words - 1]], np.uint64)


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


def hold_dense(n: int, entries: int, limits: Limits) -> None:
    """Positions that no entry asks for cost at least a word each; raises LimitError."""
    if n > entries + 1:
        limits.hold("dense_bytes", 8 * n, "", "the size in bytes of what the dense levels make")


def _write(
    codes: tuple[int, ...],
    dims: Sequence[int],
    layout: keys.Layout,
    parts: Iterable[Part],
    keep: Any,
    chain: Chain,
    out: Array | None,
) -> None:
    """Fill the arrays of the chain and cut them to what was written."""
    rank = len(codes)
    state = np.full(rank + 2, _NOTHING, np.uint64)
    for d in range(rank):
        if not any(word[d] for word in keep):  # no bit of the key tells its entries apart: there is one
            state[d] = 0
    word = np.dtype(f"u{chain.pointers[0].dtype.itemsize}")
    pointers = tuple(x.view(word) for x in chain.pointers)
    indices = tuple(x.view(word) for x in chain.indices)
    started = False
    for part in parts:
        if not started:
            state[rank:] = _before_first(part, layout.words)
            started = True
        chain.entries += part[2] - part[1]
        kernels.chain.emit(*part, layout.fields, keep, codes, layout.sizes, state, pointers, indices, out)
    for d in range(1, rank):
        if codes[d] == 1 and codes[d - 1] == 0:
            kernels.chain.fill_gaps(pointers[d])
    del pointers, indices
    reached = [int(state[d]) + 1 if code else 0 for d, code in enumerate(codes)]
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
