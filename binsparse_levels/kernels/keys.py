"""Keys: the bits of all coordinates of an entry in stored order, in one or two 64-bit words.

Numeric order of keys is lexicographic order of coordinates, and a prefix of the key is a fiber. Of two words, the first
holds the upper 64 bits. `fields` says where the dimensions lie: `right, left, mask = fields`, each a tuple by word of
tuples by dimension, and

    key[word] |= ((x & mask) >> left) << right        x |= (key[word] >> right) << left & mask

The number of words is a constant to the compiler because it is the length of a tuple.
"""

from .jit import kernel, u8


@kernel
def key_at(coords, i, fields):
    """The words of the key of entry i, the last one twice where there is one."""
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


@kernel
def out_of_range(coords, i, sizes):
    """Bit 63 is set where a coordinate of entry i is not below its size, or negative."""
    bad = u8(0)
    for d in range(len(coords)):
        x = u8(coords[d][i])
        bad |= ((sizes[d] - u8(1)) - x) | x
    return bad
