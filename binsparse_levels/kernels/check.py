"""One pass over pointers and indices that counts what is wrong; saying where is left to slower code."""

from .jit import kernel, u8


@kernel
def count_bad_pointers(pointers, total):
    """How many pointers break: the first is 0, none decreases, the last is `total`."""
    one, i, n, bad = u8(1), u8(1), u8(pointers.size), u8(0)
    bad += u8(pointers[0] != 0) + u8(u8(pointers[n - one]) != u8(total))
    while i < n:
        bad += u8(pointers[i] < pointers[i - one])
        i += one
    return bad


@kernel
def count_bad_entries(columns, sizes, begin, end):
    """Of entries begin … end, how many are out of range, and how many do not come lexicographically behind the one
    before.
    """
    one, i, n, outside, descents = u8(1), u8(begin), u8(end), u8(0), u8(0)
    if i < n and i == u8(0):
        for d in range(len(columns)):
            outside += u8(u8(columns[d][i]) >= sizes[d])
        i += one
    while i < n:
        behind, equal = False, True
        for d in range(len(columns)):
            x, before = columns[d][i], columns[d][i - one]
            outside += u8(u8(x) >= sizes[d])
            behind |= equal & (x > before)
            equal &= x == before
        descents += u8(not behind)
        i += one
    return outside, descents


@kernel
def count_descents_at_starts(pointers, columns):
    """Of those, how many stand where a fiber begins and a descent is allowed.

    Precondition: the pointers are sound.
    """
    one, p, n, allowed = u8(1), u8(1), u8(pointers.size), u8(0)
    entries = u8(columns[0].size)
    while p < n - one:
        q = u8(pointers[p])
        if q != u8(pointers[p - one]) and q < entries:
            behind, equal = False, True
            for d in range(len(columns)):
                x, before = columns[d][q], columns[d][q - one]
                behind |= equal & (x > before)
                equal &= x == before
            allowed += u8(not behind)
        p += one
    return allowed
