"""Sort texts: octets behind each other, where each begins, and where the last ends."""

from . import jit
from .jit import i8, inlined, kernel, prefetch, prefetch_for_write, u8

AHEAD = u8(16)  # texts that are asked for before they are read


@kernel
def compared(octets, begins, i, j, skip):
    """Minus one, zero or one, as text i comes before text j, equals it, or comes behind it. The first `skip` octets are
    alike, or all where both have fewer. Eight octets are compared at once.
    """
    a, b, eight = u8(begins[i]), u8(begins[j]), u8(8)
    n, m = u8(begins[i + 1]) - a, u8(begins[j + 1]) - b
    size = min(n, m)
    c = min(u8(skip), size)
    while c + eight <= size and jit.eight_bytes(octets, a + c) == jit.eight_bytes(octets, b + c):
        c += eight
    while c < size:
        if octets[a + c] != octets[b + c]:
            return -1 if octets[a + c] < octets[b + c] else 1
        c += u8(1)
    return int(n > m) - int(n < m)


@kernel
def in_common(octets, begins):
    """How many octets all texts begin with. Precondition: there is a text."""
    skip = begins[1] - begins[0]
    for i in range(1, begins.size - 1):
        n = min(skip, begins[i + 1] - begins[i])
        skip = 0
        while skip < n and octets[begins[i] + skip] == octets[begins[0] + skip]:
            skip += 1
    return i8(skip)


@kernel
def mark(octets, begins, skip, there):
    """there[k, x + 1] = 1 for an octet x at place k behind the first `skip`, and there[k, 0] = 1 where a text ends.

    Precondition: no text ends before.
    """
    one, i, wide = u8(1), u8(0), u8(there.shape[1])
    flat = there.reshape(there.size)
    while i < u8(begins.size - 1):
        p, end, row = u8(begins[i]) + u8(skip), u8(begins[i + one]), u8(0)
        while p < end and row < u8(flat.size):
            flat[row + u8(octets[p]) + one] = 1
            row += wide
            p += one
        if row < u8(flat.size):
            flat[row] = 1
        i += one


@kernel
def words(octets, begins, rows, skip, ranks, out):
    """For each of these texts the sum of what `ranks` has, as in `mark`, for its octets."""
    one, k, wide = u8(1), u8(0), u8(ranks.shape[1])
    flat = ranks.reshape(ranks.size)
    while k < u8(rows.size):
        i, word, row = u8(rows[k]), u8(0), u8(0)
        p, end = u8(begins[i]) + u8(skip), u8(begins[i + one])
        while p < end and row < u8(flat.size):
            word += flat[row + u8(octets[p]) + one]
            row += wide
            p += one
        out[k] = word
        k += one


@inlined
def settle(octets, begins, records, a, b, skip, spare):
    """Sort records a … b - 1, whose keys are equal, by their texts, stably."""
    width = 1
    while width < b - a:
        for left in range(a, b, 2 * width):
            middle, end = min(left + width, b), min(left + 2 * width, b)
            i, j = left, middle
            for out in range(left, end):
                takes = j >= end
                if i < middle and not takes:
                    takes = compared(octets, begins, records[2 * i + 1], records[2 * j + 1], skip) <= 0
                if i < middle and takes:
                    spare[out - a] = records[2 * i + 1]
                    i += 1
                else:
                    spare[out - a] = records[2 * j + 1]
                    j += 1
        for k in range(a, b):
            records[2 * k + 1] = spare[k - a]
        width *= 2


@kernel
def number(octets, begins, records, size, skip, whole, numbers, firsts, count):
    """The number of each text among the different ones, and where each of these stands first; returns their count.

    records: a key and the number of a text each, in order of the keys; `size` of them. Texts of equal keys are alike
    in the first `skip` octets, or, where they are `whole`, in all. count: of the texts before.
    Precondition: `firsts` has room for all records behind the count.
    """
    one, two, a, n = u8(1), u8(2), u8(0), u8(size)
    while a < n:
        b, alike, first = a + one, True, records[two * a]
        while b < n and records[two * b] == first:
            before, i = records[two * b - one], records[two * b + one]
            alike = alike and (whole or compared(octets, begins, before, i, skip) == 0)
            b += one
        if not alike:
            settle(octets, begins, records, i8(a), i8(b), skip, firsts[count:])
        k = a
        while k < b:
            i = records[two * k + one]
            prefetch_for_write(numbers, records[min(two * (k + AHEAD), two * n - two) + one])
            if k == a or (not alike and compared(octets, begins, records[two * k - one], i, skip) != 0):
                firsts[count] = i
                count += 1
            numbers[i] = count - 1
            k += one
        a = b
    return i8(count)


@kernel
def gather(octets, begins, rows, out):
    """The texts of these rows behind each other.

    Unsigned numbers let the loop run in vectors, and texts are asked for ahead (2 M texts of 24 octets: 63 ms, else
    193).
    """
    at, one, k, n = u8(0), u8(1), u8(0), u8(rows.size)
    while k < n:
        if k + AHEAD + AHEAD < n:
            prefetch(begins, u8(rows[k + AHEAD + AHEAD]))
            prefetch(octets, u8(begins[u8(rows[k + AHEAD])]))
        i = u8(rows[k])
        p, end = u8(begins[i]), u8(begins[i + one])
        while p < end:
            out[at] = octets[p]
            at += one
            p += one
        k += one
