"""Loops that level kinds share: fan out, split fibers, count into pointers, search a fiber."""

import numpy as np

from .jit import bit_count, i8, inlined, kernel, lowest_bit, not_unrolled, prefetch, stream, u8


@kernel
def fan_out(width, items, pointers, out):
    """Repeat items[k] from index pointers[k] to pointers[k + 1] of `out`, for fibers of few entries.

    2**len(width) items at a time, also for a shorter fiber: the next one overwrites what is too much, and the processor
    can foresee the branch behind them (1 M entries in fibers of 10 or so, 16 at a time: 0.24 ms, np.repeat 1.06).
    Precondition: `pointers` never decrease, begin at 0, and end at the length of `out`.
    """
    one, room, i, k, n = u8(1), u8(2 ** len(width)), u8(0), u8(0), u8(items.size)
    while k < n and u8(pointers[k + one]) + room <= u8(out.size):
        item, end = items[k], u8(pointers[k + one])
        for j in range(room):
            out[i + j] = item
        i += room
        while i < end:
            for j in range(room):
                out[i + j] = item
            i += room
        i = end
        k += one
    while k < n:
        item, end = items[k], u8(pointers[k + one])
        while i < end:
            out[i] = item
            i += one
        k += one


@kernel
def fan_out_long(items, pointers, out):
    """`fan_out` for fibers of many entries (1 M entries in fibers of 1,000: 36 µs, 16 at a time 142, np.repeat 93)."""
    i, k, one = u8(0), u8(0), u8(1)
    while k < u8(items.size):
        item, end = items[k], u8(pointers[k + one])
        while i < end:
            out[i] = item
            i += one
        k += one


@kernel
def widen(items, out):
    """Copy to a wider type, past the caches (10 M items to int64: 10.5 ms against 18)."""
    i, n = u8(0), u8(items.size)
    while i < n:
        stream(out, i, items[i])
        i += u8(1)


@inlined
def same_at(columns, a, b):
    same = True
    for d in range(len(columns)):
        same &= columns[d][a] == columns[d][b]
    return same


@kernel
def split(entries, columns, pointers, firsts, below):
    """Split the entries of each fiber into children, wherever a column changes. The result is the number of children.

    entries[p]: where the entries of fiber p begin. pointers[p]: where its children begin. firsts[d][q]: coordinate d of
    child q. below[q]: where its entries begin. All pointers have one item more, for the end.
    A word has a bit for each of 64 entries that begins a child: a loop over its bits runs once for each child, not for
    each entry (1 M entries in children of 10: 0.17 ms, one by one without a branch 0.57).
    Precondition: the outputs have room for a child of each entry.
    """
    zero, one, width, every = u8(0), u8(1), u8(64), ~u8(0)
    i, end, p, q, fibers, children = u8(entries[0]), u8(entries[entries.size - 1]), zero, zero, u8(pointers.size), zero
    while i < end:
        size, begins, k = min(width, end - i), zero, u8(i == zero)
        if k == zero and size == width:
            for k in range(64):
                begins |= u8(not same_at(columns, i + u8(k), i + u8(k) - one)) << u8(k)
        else:
            while k < size:
                begins |= u8(not same_at(columns, i + k, i + k - one)) << k
                k = not_unrolled(k) + one
        while q < fibers and u8(entries[q]) < i + size:
            begins |= one << (u8(entries[q]) - i)
            q += one
        while p < q:
            pointers[p] = children + u8(bit_count(begins & ((one << (u8(entries[p]) - i)) - one)))
            p += one
        if begins == every:  # in vectors
            for k in range(64):
                for d in range(len(columns)):
                    firsts[d][children + u8(k)] = columns[d][i + u8(k)]
                below[children + u8(k)] = i + u8(k)
            children += width
            begins = zero
        while begins != zero:
            at = i + u8(lowest_bit(begins))
            for d in range(len(columns)):
                firsts[d][children] = columns[d][at]
            below[children] = at
            children += one
            begins &= begins - one
        i += width
    pointers[p:] = children
    below[children] = end
    return children


@kernel
def split_long(entries, columns, pointers, firsts, below):
    """`split` of entries in order. A search of doubling steps finds the end of a child: 40 times as fast for
    children of 1,000 entries, and as fast for those of 40.
    """
    one, i, p, n, children = u8(1), u8(entries[0]), u8(0), u8(pointers.size - 1), u8(0)
    below[0] = i
    while p < n:
        pointers[p] = children
        end = u8(entries[p + one])
        while i < end:
            for d in range(len(columns)):
                firsts[d][children] = columns[d][i]
            behind, other, step = i + one, end, one  # the child has i … behind - 1, and neither `other` nor later
            while behind + step <= other and same_at(columns, i, behind + step - one):
                behind += step
                step <<= one
            other = min(other, behind + step - one)
            while behind < other:
                middle = (behind + other) >> one
                if same_at(columns, i, middle):
                    behind = middle + one
                else:
                    other = middle
            i = behind
            children += one
            below[children] = i
        p += one
    pointers[n] = children
    return children


@kernel
def keep_filled(pointers, columns, kept, firsts):
    """Leave out fibers without an entry. The result is the number of the others.

    columns[d][p]: coordinate d of fiber p, or None for the number of the fiber. kept, firsts: the same of the fibers
    that stay. A word has a bit for each of 64 fibers that does, as in `split`.
    """
    zero, one, width, p, q, n = u8(0), u8(1), u8(64), u8(0), u8(0), u8(pointers.size - 1)
    while p < n:
        size, filled, k = min(width, n - p), zero, zero
        if size == width:
            for k in range(64):
                filled |= u8(pointers[p + u8(k) + one] != pointers[p + u8(k)]) << u8(k)
        else:
            while k < size:
                filled |= u8(pointers[p + k + one] != pointers[p + k]) << k
                k = not_unrolled(k) + one
        if filled == ~zero:  # in vectors
            for k in range(64):
                for d in range(len(firsts)):
                    firsts[d][q + u8(k)] = p + u8(k) if columns is None else columns[d][p + u8(k)]
                kept[q + u8(k)] = pointers[p + u8(k)]
            q += width
            filled = zero
        while filled != zero:
            at = p + u8(lowest_bit(filled))
            for d in range(len(firsts)):
                firsts[d][q] = at if columns is None else columns[d][at]
            kept[q] = pointers[at]
            q += one
            filled &= filled - one
        p += width
    kept[q] = pointers[n]
    return q


@kernel
def join_halves(lower, upper, drop_lower, pointers, indices, values):
    """Join the fibers of two triangles of a matrix, each of pointers, indices and values. The result is their number.

    An entry of the diagonal in both is dropped from one of them.
    """
    one, fiber, n, q = u8(1), u8(0), u8(pointers.size - 1), u8(0)
    i, j = u8(0), u8(0)
    while fiber < n:
        pointers[fiber] = q
        last, end = u8(lower[0][fiber + one]), u8(upper[0][fiber + one])
        both = i < last and j < end and u8(lower[1][last - one]) == u8(upper[1][j])
        j += u8(both and not drop_lower)
        stop = last - u8(both and drop_lower)
        while i < stop:
            stream(indices, q, lower[1][i])
            stream(values, q, lower[2][i])
            i = not_unrolled(i) + one
            q += one
        i = last
        while j < end:
            stream(indices, q, upper[1][j])
            stream(values, q, upper[2][j])
            j = not_unrolled(j) + one
            q += one
        fiber += one
    pointers[n] = q
    return q


@kernel
def fill_gaps(pointers):
    """Replace each pointer that is still 0 by the previous pointer: a running maximum, without a branch."""
    m, zero, one = u8(0), u8(0), u8(1)
    p, n = zero, u8(pointers.size)
    while p < n:
        x = u8(pointers[p])
        m = (m & (zero - u8(x == zero))) | x
        pointers[p] = m
        p += one


@kernel
def count_into_pointers(owners, pointers):
    """pointers[p + 1] = how many owners are at most p.

    Precondition: `owners` never decreases, and `pointers` is zero.
    """
    one, i, n = u8(1), u8(0), u8(owners.size)
    while i < n:
        pointers[u8(owners[i]) + one] = i + one
        i += one
    fill_gaps(pointers)


@kernel
def spread_pointers(owners, below, pointers):
    """pointers[p + 1] = where the last of the owners that are at most p ends: owner k ends at below[k + 1].

    Precondition: `owners` never decreases, and `pointers` is zero.
    """
    one, i, n = u8(1), u8(0), u8(owners.size)
    while i < n:
        pointers[u8(owners[i]) + one] = below[i + one]
        i += one
    fill_gaps(pointers)


@kernel
def fan_ranges(starts, counts, out):
    """Concatenate the ranges starts[k] … starts[k] + counts[k] - 1, eight items at a time, as `fan_out` does."""
    one, room, q, k, n = u8(1), u8(8), u8(0), u8(0), u8(starts.size)
    while k < n and q + u8(counts[k]) + room <= u8(out.size):
        item, end = starts[k], q + u8(counts[k])
        for j in range(8):
            out[q + u8(j)] = item + j
        q += room
        while q < end:
            item += i8(8)
            for j in range(8):
                out[q + u8(j)] = item + j
            q += room
        q = end
        k += one
    while k < n:
        item, end = starts[k], q + u8(counts[k])
        while q < end:
            out[q] = item
            item += i8(1)
            q += one
        k += one


@kernel
def bounds_at(pointers, positions, children, starts, ends):
    """Where the children of the fibers at some positions begin and end. The result counts bounds that fall or exceed.

    Both pointers of a fiber are read at once, mostly of one line (100,000 fibers of 1 M: 94 µs, numpy's two takes 163).
    """
    one, most, bad = u8(1), u8(children), u8(0)
    for k in range(positions.size):
        p = u8(positions[k])
        start, end = u8(pointers[p]), u8(pointers[p + one])
        bad += u8((end < start) | (end > most))
        starts[k] = start
        ends[k] = end
    return bad


@kernel
def copy_runs(items, starts, counts, out):
    """Copy the ranges starts[k] … starts[k] + counts[k] - 1, one after the other.

    Eight items at a time, also of a shorter range: the next range overwrites what is too much, and the processor can
    predict the loop (100,000 items in ranges of 10: 28 µs, one by one 95; in ranges of 1: 130 and 600).
    """
    one, two, three, four = u8(1), u8(2), u8(3), u8(4)
    five, six, seven, eight = u8(5), u8(6), u8(7), u8(8)
    q, read, written = u8(0), u8(items.size), u8(out.size)
    for k in range(starts.size):
        i, count = u8(starts[k]), u8(counts[k])
        end = q + count
        if i + count + eight <= read and end + eight <= written:
            while True:
                a, b, c, d = items[i], items[i + one], items[i + two], items[i + three]
                e, f, g, h = items[i + four], items[i + five], items[i + six], items[i + seven]
                out[q], out[q + one], out[q + two], out[q + three] = a, b, c, d
                out[q + four], out[q + five], out[q + six], out[q + seven] = e, f, g, h
                q += eight
                i += eight
                if q >= end:
                    break
            q = end
        while q < end:
            out[q] = items[i]
            q += one
            i += one


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

    counts[k] is their number for fiber k; the result is their total. Every index is stored, and the next index
    overwrites one that is outside. The steps between fibers are marked, and summed up: no branch depends on their
    lengths (200,000 fibers of 1: 660 µs, with a loop for each 1,560). Long fibers are searched by bisection first.
    Precondition: `places` has room for all indices and one more.
    """
    steps, listed = np.zeros(1025, np.uint64), np.empty(1025, np.uint64)  # before an index: a step, how many are inside
    one, room, first, width, n = u8(1), u8(1024), u8(low), u8(high) - u8(low), u8(starts.size)
    k, q, i, behind, begin, next_at = u8(0), u8(0), ~u8(0), u8(0), u8(0), u8(0)
    while k < n or begin < next_at:
        marked = k
        while k < n and next_at < begin + room:
            start, end = u8(starts[k]), u8(ends[k])
            if end - start > u8(64):
                start = lower_bound(column, first, start, end)
                end = lower_bound(column, u8(high), start, end)
            counts[k] = next_at - begin
            steps[next_at - begin] += start - behind
            behind = end
            next_at += end - start
            k += one
        j, size = u8(0), min(room, next_at - begin)
        while j < size:
            i += one + steps[j]
            listed[j] = q
            places[q] = i
            q += u8(u8(column[i]) - first < width)
            j += one
        listed[size] = q
        while marked < k:
            at = u8(counts[marked])
            steps[at] = 0
            counts[marked] = listed[at]
            marked += one
        begin += size
    k = u8(1)
    while k < n:
        counts[k - one] = counts[k] - counts[k - one]
        k += one
    if n:
        counts[n - one] = i8(q) - counts[n - one]
    return q


@kernel
def list_in_order(begin, ends, column, low, high, counts, places):
    """`list_within` of fibers that follow each other from `begin` on. A word has a bit for each of 64 entries inside,
    as in `split` (200,000 fibers of 1: 350 µs, 20,000 of 10: 81, and 205 by `list_within`).
    """
    zero, one, word, first, width = u8(0), u8(1), u8(64), u8(low), u8(high) - u8(low)
    i, k, q, n = u8(begin), zero, zero, u8(ends.size)
    while k < n:
        size, inside, j = min(word, u8(ends[n - one]) - i), zero, zero
        if size == word:
            for j in range(64):
                inside |= u8(u8(column[i + u8(j)]) - first < width) << u8(j)
        else:
            while j < size:
                inside |= u8(u8(column[i + j]) - first < width) << j
                j = not_unrolled(j) + one
        while k < n and u8(ends[k]) <= i + size:
            upto = u8(ends[k]) - i
            counts[k] = q + u8(bit_count(inside if upto == word else inside & ((one << upto) - one)))
            k += one
        while inside != zero:
            places[q] = i + u8(lowest_bit(inside))
            q += one
            inside &= inside - one
        i += size
    while k > one:
        k -= one
        counts[k] -= counts[k - one]
    return q


@kernel
def narrow(starts, ends, column, low, high, most, out):
    """out[0, k] … out[1, k] = the part of starts[k] … ends[k] where the ascending column lies in low … high - 1.

    As in `search`, the fibers of a block are halved in turn (1,000 of 1,000: 13 µs, one by one 47).
    most: of a fiber, that many lie there, or fewer.
    """
    one, block = u8(1), u8(64)
    places, counts = np.empty(64, np.uint64), np.empty(64, np.uint64)
    i, n, last = u8(0), u8(starts.size), u8(column.size)
    while i < n:
        size = min(block, n - i)
        for side in range(2):
            longest, wanted, k = u8(0), u8(high) if side else u8(low), u8(0)
            while k < size:
                first, end = u8(out[0, i + k]) if side else u8(starts[i + k]), u8(ends[i + k])
                counts[k] = min(end - first, u8(most)) if side else end - first
                places[k] = min(first, last - one)  # the end, where the last fiber is empty
                longest = max(longest, counts[k])
                k += one
            while longest > one:
                k = u8(0)
                while k < size:
                    half = counts[k] >> one
                    middle = places[k] + half
                    places[k] = middle if u8(column[middle]) < wanted else places[k]
                    counts[k] -= half
                    k += one
                longest -= longest >> one
            k = u8(0)
            while k < size:
                first = u8(out[0, i + k]) if side else u8(starts[i + k])
                if counts[k] != u8(0):
                    first = places[k] + u8(u8(column[places[k]]) < wanted)
                out[side, i + k] = first
                k += one
        i += size


@kernel
def search(pointers, columns, positions, wanted, begin, end, out):
    """out[k] = the index of the coordinates wanted[·][k] in the fiber positions[k], or -1, for k in begin … end.

    The searches of a block halve their fibers in turn, without a branch, so that the processor reads for many of them
    at once (100,000 in fibers of 1,000: 1.6 ms, one after the other 6.1; in one of a million: 4.8 and 17).
    Precondition: the columns ascend lexicographically in every fiber.
    """
    one, block = u8(1), u8(64)
    places, counts = np.empty(64, np.uint64), np.empty(64, np.uint64)  # where each entry may be, and one of how many
    i, stop, most = u8(begin), u8(end), u8(len(columns[0]))
    if not most:
        out[begin:end] = -1
        return
    while i < stop:
        size, longest, k = min(block, stop - i), u8(0), u8(0)
        while k < size:
            p = u8(positions[i + k])
            first = u8(pointers[p])
            counts[k] = u8(pointers[p + one]) - first
            places[k] = min(first, most - one)  # the end, where the last fiber is empty
            longest = max(longest, counts[k])
            prefetch(columns[0], first + (counts[k] >> one))
            k += one
        k, ahead = i + size, min(i + size + block, stop)
        while k < ahead:
            prefetch(pointers, u8(positions[k]))
            k += one
        while longest > one:
            k = u8(0)
            while k < size:
                half = counts[k] >> one
                middle = places[k] + half
                before, equal = False, True
                for d in range(len(columns)):
                    x, y = u8(columns[d][middle]), u8(wanted[d][i + k])
                    before |= equal & (x < y)
                    equal &= x == y
                places[k] = middle if before | equal else places[k]
                counts[k] -= half
                k += one
            longest -= longest >> one
        k = u8(0)
        while k < size:
            found = counts[k] != u8(0)
            for d in range(len(columns)):
                found &= u8(columns[d][places[k]]) == u8(wanted[d][i + k])
            out[i + k] = i8(places[k]) if found else -1
            k += one
        i += size
