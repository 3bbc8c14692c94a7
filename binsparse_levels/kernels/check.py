"""Count faults in pointers and indices in one pass. Slower code then finds their places."""

import numpy as np

from .fibers import lower_bound
from .jit import inlined, kernel, u8


@kernel
def count_bad_pointers(pointers, total):
    """How many pointers break a rule: the first is 0, none decreases, the last is `total`."""
    one, i, n, bad = u8(1), u8(1), u8(pointers.size), u8(0)
    bad += u8(pointers[0] != 0) + u8(u8(pointers[n - one]) != u8(total))
    while i < n:
        bad += u8(pointers[i] < pointers[i - one])
        i += one
    return bad


@inlined
def is_behind(columns, i):
    """Whether entry i is lexicographically greater than entry i - 1."""
    behind, equal = False, True
    for d in range(len(columns)):
        x, before = columns[d][i], columns[d][i - u8(1)]
        behind |= equal & (x > before)
        equal &= x == before
    return behind


@kernel
def count_bad_entries(pointers, columns, sizes, begin, end):
    """Count the entries begin … end that are out of range, and those out of order within their fiber.

    The fibers that begin in a block are marked, without a branch for each. Then the block is compared in vectors (1 M
    entries in fibers of 1: 0.4 ms, with a comparison for each fiber 1.3).
    Precondition: the pointers are sound, or None for a single fiber.
    """
    one, zero, room = u8(1), u8(0), u8(4096)
    i, n, outside, descents = u8(begin), u8(end), zero, zero
    if i == zero and i < n:  # no entry is before it
        for d in range(len(columns)):
            outside += u8(u8(columns[d][i]) >= sizes[d])
        i += one
    begins = np.zeros(4096, np.uint8)
    p, last = zero, zero
    if pointers is not None:
        last = u8(pointers.size) - one
        p = lower_bound(pointers, i, zero, last)
    while i < n:
        first, stop = i, min(i + room, n)
        if pointers is not None:
            step = room
            while p + step < last and u8(pointers[p + step]) < stop:
                step += step
            behind = lower_bound(pointers, stop, p, min(p + step, last))
            while p < behind:
                begins[u8(pointers[p]) - first] = 1
                p += one
        while i < stop:
            for d in range(len(columns)):
                outside += u8(u8(columns[d][i]) >= sizes[d])
            descents += u8(not is_behind(columns, i)) & u8(begins[i - first] == 0)
            begins[i - first] = 0
            i += one
    return outside, descents
