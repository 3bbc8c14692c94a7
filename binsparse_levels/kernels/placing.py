"""Put entries straight at the places of their fibers, which are the coordinates of the first dimension.

The entries of a fiber keep the order that they have, so that all other dimensions must be in order already. Fibers are
counted, then each entry goes to the pointer of its fiber, which moves on.
"""

import numpy as np

from .fibers import lower_bound
from .jit import inlined, kernel, prefetch, prefetch_for_write, u8
from .sorting import BEHIND, ROOM

AHEAD = u8(32)  # entries behind the one that is written, whose place is asked for (1 M entries: 2.6 ms, without 3.0)
LINE = u8(16)  # items behind a cursor that are asked for


@inlined
def to_starts(pointers, first, last, begin):
    """Turn the counts of the fibers first … last, which stand one item behind, into where each begins."""
    x = first
    while x < last:
        x += u8(1)
        count = u8(pointers[x])
        pointers[x] = begin
        begin += count


@kernel
def count(column, begin, end, counts):
    """Count the entries begin … end by their coordinates."""
    one, i, n = u8(1), u8(begin), u8(end)
    while i < n:
        counts[u8(column[i])] += one
        i += one


@kernel
def to_cursors(counts, last):
    """Turn the counts of shares into where each share begins in each fiber: counts[share, fiber], those of the last
    share apart.
    """
    one, at, x = u8(1), u8(0), u8(0)
    while x < u8(last.size):
        for k in range(counts.shape[0]):
            size = u8(counts[k, x])
            counts[k, x] = at
            at += size
        size = u8(last[x])
        last[x] = at
        at += size
        x += one


@kernel
def place(column, other, runs, payload, begin, end, cursors, indices, values):
    """Write the entries begin … end of a matrix to their places, in whatever order: for outputs that stay in the last
    cache.

    column: the first coordinates; other: the second ones. runs: None, or pointers: then `other` has one for each run.
    payload: None, or an item for each entry. cursors: the next place in each fiber, which moves on. With keys, as
    `place_records` has them, it takes a fifth more.
    """
    one, i, n, k = u8(1), u8(begin), u8(end), u8(0)
    if runs is not None:
        block = np.zeros(ROOM, other.dtype)
        k = lower_bound(runs, i, k, u8(other.size))
        item = other[max(k, one) - one] + other.dtype.type(1)
    while i < n:
        first, stop = i, min(i + u8(ROOM), n)
        if runs is not None:  # items are marked where runs begin, as their successors, for 0 is no mark
            while k < u8(other.size) and u8(runs[k]) < stop:
                block[u8(runs[k]) - first] = u8(other[k]) + one
                k += one
        ahead = AHEAD if stop + AHEAD + AHEAD <= n else u8(0)
        while i < stop:
            prefetch_for_write(cursors, u8(column[i + ahead + ahead]))
            q = u8(cursors[u8(column[i + ahead])])
            prefetch_for_write(indices, q)
            if payload is not None:
                prefetch_for_write(values, q)
            x = u8(column[i])
            q = u8(cursors[x])
            cursors[x] = q + one
            if runs is not None:
                new = block[i - first]
                item = new if new != 0 else item
                block[i - first] = 0
                indices[q] = u8(item) - one
            else:
                indices[q] = other[i]
            if payload is not None:
                values[q] = payload[i]
            i += one


@kernel
def place_records(records, starts, begin, top, low, fields, pointers, indices, values):
    """Write the records of the buckets starts[b] … starts[b + 1] to their places, a bucket at a time in the cache.

    The keys have one word. begin: how many entries all former buckets have. top: no bit at or above it varies inside a
    bucket. low: the first bit of the first dimension. fields: those of the other dimensions. values: None, or a word
    for each entry.
    Precondition: `pointers` is zero in the fibers of these buckets.
    """
    one, two, size = u8(1), u8(2), u8(pointers.size - 1)
    right, _, mask = fields
    for b in range(starts.size - 1):
        start, end = two * u8(starts[b]), two * u8(starts[b + 1])
        if start == end:
            continue
        i = start
        while i < end:
            prefetch(records, i + BEHIND)
            pointers[(records[i] >> low) + one] += one
            i += two
        first = (records[start] >> top) << (top - low)
        to_starts(pointers, first, min(first + (one << (top - low)), size), u8(begin) + u8(starts[b] - starts[0]))
        i = start
        while i < end:
            key = records[i]
            x = (key >> low) + one
            q = u8(pointers[x])
            pointers[x] = q + one
            for d in range(len(indices)):
                prefetch_for_write(indices[d], q + LINE)
                indices[d][q] = (key >> right[0][d]) & mask[0][d]
            if values is not None:
                prefetch_for_write(values, q + LINE)
                values[q] = records[i + one]
            i += two
