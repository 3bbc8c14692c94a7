"""Keys: the bits of all coordinates of an entry in stored order, in one or two 64-bit words.

Numeric order of keys is lexicographic order of coordinates, and a prefix of a key names a fiber. The first of two words
holds the upper 64 bits. `fields` is a tuple `right, left, mask` that gives the bits of each dimension. Each member is a
tuple by word of tuples by dimension, and

    key[word] |= ((x & mask) >> left) << right        x |= (key[word] >> right) << left & mask

The number of words is the length of a tuple, and therefore a constant to the compiler.
"""

from .jit import called, inlined, u8


@called
def key_at(coords, i, fields):
    """The two words of the key of entry i; a key of one word is repeated."""
    right, left, mask = fields
    a, b = u8(0), u8(0)
    for d in range(len(coords)):
        x = u8(coords[d][i])
        if len(right) == 1:
            a |= x << right[0][d]
        else:
            a |= ((x & mask[0][d]) >> left[0][d]) << right[0][d]
            b |= ((x & mask[1 % len(mask)][d]) >> left[1 % len(left)][d]) << right[1 % len(right)][d]
    return a, a if len(right) == 1 else b


@called
def coordinate(high, low, words, bits):
    """The coordinate in the words of a key. bits: its fields in both words."""
    x = (high >> bits[0]) << bits[1] & bits[2]
    if words == 2:
        x |= (low >> bits[3]) << bits[4] & bits[5]
    return x


@inlined
def mark_runs(runs, at, before, first, stop, block):
    """Add to block[w, i - first] by how much word w of the key rises at entry i in columns in runs, modulo 2**64.

    Item k of column d is that of the entries pointers[d][k] … pointers[d][k + 1]. A sum over the block then gives the
    keys of all these columns, and no branch depends on the lengths of runs.

    at: the number of the next run of each column. before: its words of the key at the run before, 0 at the start.
    """
    items, pointers, (right, left, mask) = runs
    one = u8(1)
    for d in range(len(items)):
        k, n, a, b = u8(at[d]), u8(items[d].size), u8(before[0, d]), u8(before[1, d])
        while k < n and u8(pointers[d][k]) < stop:
            q = max(u8(pointers[d][k]), first) - first
            x = u8(items[d][k])
            if len(right) == 1:
                high, low = x << right[0][d], b
            else:
                high = ((x & mask[0][d]) >> left[0][d]) << right[0][d]
                low = ((x & mask[1 % len(mask)][d]) >> left[1 % len(left)][d]) << right[1 % len(right)][d]
                block[1 % len(right), q] += low - b
            block[0, q] += high - a
            a, b = high, low
            k += one
        at[d], before[0, d], before[1, d] = k, a, b


@called
def out_of_range(coords, i, sizes):
    """A word whose bit 63 is set if a coordinate of entry i is negative or not below its size."""
    bad = u8(0)
    for d in range(len(coords)):
        x = u8(coords[d][i])
        bad |= ((sizes[d] - u8(1)) - x) | x
    return bad
