"""Keys: the bits of all coordinates of an entry in stored order, in one or two 64-bit words.

Numeric order of keys is lexicographic order of coordinates, and a prefix of a key identifies a fiber. The first of two
words contains the upper 64 bits. `fields` is a tuple `right, left, mask` with the bits of each dimension. Each member
is a tuple by word of tuples by dimension, and

    key[word] |= ((x & mask) >> left) << right        x |= (key[word] >> right) << left & mask

The number of words is the length of a tuple, which is a constant for the compiler.
"""

from .jit import called, u8


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


@called
def out_of_range(coords, i, sizes):
    """A word whose bit 63 is set if a coordinate of entry i is negative or not below its size."""
    bad = u8(0)
    for d in range(len(coords)):
        x = u8(coords[d][i])
        bad |= ((sizes[d] - u8(1)) - x) | x
    return bad
