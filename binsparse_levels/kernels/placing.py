"""Write entries directly into their fibers, which are the coordinates of the first dimension.

The entries of a fiber keep their order, so all other dimensions must be in order already. The entries of fibers are
counted; then each entry is written at the cursor of its fiber, which advances.
"""

from .jit import kernel, prefetch_for_write, u8

AHEAD_ENTRIES = u8(32)  # distance of the prefetched entry: 3.0 ms → 2.6 ms (1 M entries)


@kernel
def count(column, begin, end, counts):
    """Count the entries begin … end by their coordinates."""
    one, i, n = u8(1), u8(begin), u8(end)
    while i < n:
        counts[u8(column[i])] += one
        i += one


@kernel
def to_cursors(counts, last):
    """Turn the counts of shares into the start of each share in each fiber. counts[share, fiber]: of all but the last
    share. last: the counts of the last share.
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
def place(column, other, payload, begin, end, cursors, indices, values):
    """Write the entries begin … end of a matrix into their fibers, in any order.

    column: the first coordinates; other: the second ones. payload: None, or an item for each entry. cursors: the next
    free position in each fiber, which advances.
    """
    one, i, n = u8(1), u8(begin), u8(end)
    while i < n:
        ahead = AHEAD_ENTRIES if i + AHEAD_ENTRIES + AHEAD_ENTRIES < n else u8(0)
        prefetch_for_write(cursors, u8(column[i + ahead + ahead]))
        q = u8(cursors[u8(column[i + ahead])])
        prefetch_for_write(indices, q)
        if payload is not None:
            prefetch_for_write(values, q)
        x = u8(column[i])
        q = u8(cursors[x])
        cursors[x] = q + one
        indices[q] = other[i]
        if payload is not None:
            values[q] = payload[i]
        i += one
