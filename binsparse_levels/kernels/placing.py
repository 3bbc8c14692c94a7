"""Write entries directly into their fibers, which are the coordinates of the first dimension, or their upper bits.

The entries of a fiber keep their order, so all other dimensions must be in order already. The entries of fibers are
counted; then each entry is written at the cursor of its fiber, which advances.
"""

from .jit import kernel, prefetch_for_write, u8

AHEAD_ENTRIES = u8(32)  # distance of the prefetched entry: 3.0 ms → 2.6 ms (1 M entries)
AHEAD_ITEMS = u8(8)  # of few fibers, whose next item is cached: distance of the prefetched item from the cursor


@kernel
def count(column, shift, begin, end, counts):
    """Count the entries begin … end by their coordinates, without the lowest `shift` bits."""
    one, i, n = u8(1), u8(begin), u8(end)
    while i < n:
        counts[u8(column[i]) >> shift] += one
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
def place(column, shift, columns, payload, begin, end, cursors, outs, values):
    """Write the entries begin … end to their fibers, in any order. A fiber has the coordinates `column` >> shift.

    columns: written to `outs`, such as the other coordinates. payload: None, or an item for each entry. cursors: the
    next free position in each fiber, which advances.
    """
    one, zero, i, n = u8(1), u8(0), u8(begin), u8(end)
    beyond = AHEAD_ITEMS if shift else zero
    while i < n:
        ahead = zero if shift or i + AHEAD_ENTRIES + AHEAD_ENTRIES >= n else AHEAD_ENTRIES
        prefetch_for_write(cursors, u8(column[i + ahead + ahead]) >> shift)
        q = u8(cursors[u8(column[i + ahead]) >> shift]) + beyond
        for d in range(len(outs)):
            prefetch_for_write(outs[d], q)
        if payload is not None:
            prefetch_for_write(values, q)
        x = u8(column[i]) >> shift
        q = u8(cursors[x])
        cursors[x] = q + one
        for d in range(len(outs)):
            outs[d][q] = columns[d][i]
        if payload is not None:
            values[q] = payload[i]
        i += one
