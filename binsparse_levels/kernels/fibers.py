"""Loops that level kinds share: fan out, number changes, count into pointers, search a fiber."""

import numpy as np

from .jit import i8, inlined, kernel, u8


@kernel
def fan_out(items, ends, out):
    """Repeat items[k] up to index ends[k] of `out`.

    Sixteen copies are stored at once, and the next item overwrites the excess. A loop as short as most fibers costs a
    misprediction for each fiber (10 M entries in fibers of 10: 8.7 ms against 3).
    Precondition: `ends` never decreases and ends at the length of `out`.
    """
    i, k, n, size = u8(0), u8(0), u8(ends.size), u8(out.size)
    while k < n:
        item, end = items[k], u8(ends[k])
        if i + u8(16) <= size:
            for j in range(16):
                out[i + u8(j)] = item
            i += u8(16)
        while i < end:
            out[i] = item
            i += u8(1)
        i = end
        k += u8(1)


@kernel
def count_repeats(columns):
    """How many entries equal the previous entry in every column."""
    one, i, n, repeats = u8(1), u8(1), u8(columns[0].size), u8(0)
    while i < n:
        same = True
        for d in range(len(columns)):
            same &= columns[d][i] == columns[d][i - one]
        repeats += u8(same)
        i += one
    return repeats


@kernel
def number_changes(columns, child):
    """child[i] = how many times the columns change up to entry i. Precondition: at least one entry."""
    one, i, n, q = u8(1), u8(1), u8(columns[0].size), u8(0)
    child[0] = q
    while i < n:
        new = False
        for d in range(len(columns)):
            new |= columns[d][i] != columns[d][i - one]
        q += u8(new)
        child[i] = q
        i += one


@kernel
def take_firsts(column, child, out):
    """out[q] = column[i] for an entry i with child[i] = q. Precondition: `column` depends on `child` alone."""
    i, n = u8(0), u8(child.size)
    while i < n:
        out[u8(child[i])] = column[i]
        i += u8(1)


@kernel
def count_into_pointers(owners, pointers):
    """pointers[p + 1] = how many owners are at most p.

    Precondition: `owners` never decreases, and `pointers` is zero.
    """
    one, i, n = u8(1), u8(0), u8(owners.size)
    while i < n:
        pointers[u8(owners[i]) + one] = i + one
        i += one
    last = pointers[0]
    p, end = one, u8(pointers.size)
    while p < end:
        last = max(last, pointers[p])
        pointers[p] = last
        p += one


@kernel
def fan_ranges(starts, counts, out):
    """Concatenate the ranges starts[k] … starts[k] + counts[k] - 1."""
    i = u8(0)
    for k in range(starts.size):
        q = starts[k]
        for _ in range(counts[k]):
            out[i] = q
            q += 1
            i += u8(1)


@inlined
def lower_bound(column, wanted, first, last):
    """The first index in first … last whose item is at least `wanted`."""
    while first < last:
        middle = (first + last) >> u8(1)
        if u8(column[middle]) < wanted:
            first = middle + u8(1)
        else:
            last = middle
    return first


@kernel
def list_within(starts, ends, column, low, high, counts, places):
    """List the indices in each starts[k] … ends[k] where the ascending column lies in low … high - 1.

    counts[k] is their number for fiber k; the result is their total. Short fibers store every index, and the next
    index overwrites one that is outside. Long fibers are searched by bisection.
    Precondition: `places` has room for all indices and one more.
    """
    one, q, first, last = u8(1), u8(0), u8(low), u8(high)
    for k in range(starts.size):
        i, end, before = u8(starts[k]), u8(ends[k]), q
        if end - i > u8(64):
            i = lower_bound(column, first, i, end)
            end = lower_bound(column, last, i, end)
            while i < end:
                places[q] = i
                q += one
                i += one
        while i < end:
            x = u8(column[i])
            places[q] = i
            q += u8(x - first < last - first)
            i += one
        counts[k] = q - before
    return q


@kernel
def narrow(starts, ends, column, low, high, out):
    """out[0, k] … out[1, k] = the part of starts[k] … ends[k] where the ascending column lies in low … high - 1."""
    for k in range(starts.size):
        first = lower_bound(column, u8(low), u8(starts[k]), u8(ends[k]))
        out[0, k] = first
        out[1, k] = lower_bound(column, u8(high), first, u8(ends[k]))


@kernel
def search(pointers, columns, positions, wanted, begin, end, out):
    """out[k] = the index of the coordinates wanted[·][k] in the fiber positions[k], or -1, for k in begin … end.

    Blocks of 64 overlap the cache misses: first of the pointers, then of the middles of the fibers.
    Precondition: the columns ascend lexicographically in every fiber.
    """
    zero, one = u8(0), u8(1)
    lows, highs = np.empty(64, np.uint64), np.empty(64, np.uint64)
    i, stop = u8(begin), u8(end)
    touched = zero
    while i < stop:
        size = min(u8(64), stop - i)
        k = zero
        while k < size:
            p = u8(positions[i + k])
            lows[k], highs[k] = u8(pointers[p]), u8(pointers[p + one])
            k += one
        k = zero
        while k < size:
            if lows[k] < highs[k]:
                touched ^= u8(columns[0][(lows[k] + highs[k]) >> one])
            k += one
        k = zero
        while k < size:
            low, last = lows[k], highs[k]
            high = last
            while high - low > u8(32):
                middle = (low + high) >> one
                before, equal = False, True
                for d in range(len(columns)):
                    x, y = u8(columns[d][middle]), u8(wanted[d][i + k])
                    before |= equal and x < y
                    equal &= x == y
                if before:
                    low = middle + one
                else:
                    high = middle
            first = low
            while first < high:
                before, equal = False, True
                for d in range(len(columns)):
                    x, y = u8(columns[d][first]), u8(wanted[d][i + k])
                    before |= equal and x < y
                    equal &= x == y
                low += u8(before)
                first += one
            found = low < last
            if found:
                for d in range(len(columns)):
                    found &= u8(columns[d][low]) == u8(wanted[d][i + k])
            out[i + k] = i8(low) if found else -1
            k += one
        i += size
    return touched
