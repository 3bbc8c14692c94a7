"""What level kinds share: fan out, number changes, count into pointers, search a fiber."""

from .jit import kernel, u8


@kernel
def fan_out(items, ends, out):
    """Repeat items[k] up to place ends[k] of `out`.

    Sixteen are stored at once, and the next item overwrites what is too many: a loop as short as most fibers are
    costs a misprediction for each (10 a fiber: 8.7 ms for 10 M against 3).
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
    """How many entries agree with the one before in every column."""
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
    """child[i] = how often the columns changed up to entry i, from 0. Precondition: at least one entry."""
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
    """out[q] = column of an entry with child q. Precondition: `column` depends on `child` alone."""
    i, n = u8(0), u8(child.size)
    while i < n:
        out[u8(child[i])] = column[i]
        i += u8(1)


@kernel
def count_into_pointers(owners, pointers):
    """pointers[p + 1] = how many of the owners are fibers up to p.

    Precondition: owners never decrease; pointers is zero.
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
    """Write starts[k], starts[k] + 1 … (counts[k] of them) for every k, one behind the other."""
    i = u8(0)
    for k in range(starts.size):
        q = starts[k]
        for _ in range(counts[k]):
            out[i] = q
            q += 1
            i += u8(1)


@kernel
def search(starts, ends, columns, wanted, out):
    """out[k] = place in starts[k] … ends[k] of the coordinates wanted[·][k], or -1, by bisection.

    Precondition: the columns ascend lexicographically between each start and end.
    """
    for k in range(starts.size):
        low, high = starts[k], ends[k]
        while low < high:
            middle = (low + high) >> 1
            before, equal = False, True
            for d in range(len(columns)):
                x = columns[d][middle]
                before |= equal and x < wanted[d][k]
                equal &= x == wanted[d][k]
            if before:
                low = middle + 1
            else:
                high = middle
        found = low < ends[k]
        if found:
            for d in range(len(columns)):
                found &= columns[d][low] == wanted[d][k]
        out[k] = low if found else -1
