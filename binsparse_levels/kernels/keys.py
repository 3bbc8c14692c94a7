"""Keys: the bits of all coordinates of an entry in stored order, in one or two 64-bit words.

Numeric order of keys is lexicographic order of coordinates, and a prefix of a key names a fiber. The first of two words
holds the upper 64 bits. `fields` is a tuple `right, left, mask` that gives the bits of each dimension. Each member is a
tuple by word of tuples by dimension, and

    key[word] |= ((x & mask) >> left) << right        x |= (key[word] >> right) << left & mask

The number of words is the length of a tuple, and therefore a constant to the compiler.
"""

from .jit import kernel, put_in_tuple, u8


@kernel
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


@kernel
def key_in_runs(runs, at, i):
    """`key_at` of columns in runs, and the number of the run of each: at[d] for entry i - 1, or for entry i itself.

    Column d is items[d][k] up to entry ends[d][k], which is not one of the run. No run is empty.
    """
    items, ends, (right, left, mask) = runs
    a, b = u8(0), u8(0)
    for d in range(len(items)):
        k = at[d] + u8(ends[d][at[d]] <= i)
        at = put_in_tuple(at, d, k)
        x = u8(items[d][k])  # as in `key_at`: with a function for both, the compiler unrolls fewer dimensions
        if len(right) == 1:
            a |= x << right[0][d]
        else:
            a |= ((x & mask[0][d]) >> left[0][d]) << right[0][d]
            b |= ((x & mask[1 % len(mask)][d]) >> left[1 % len(left)][d]) << right[1 % len(right)][d]
    return a, a if len(right) == 1 else b, at


@kernel
def out_of_range(coords, i, sizes):
    """A word whose bit 63 is set if a coordinate of entry i is negative or not below its size."""
    bad = u8(0)
    for d in range(len(coords)):
        x = u8(coords[d][i])
        bad |= ((sizes[d] - u8(1)) - x) | x
    return bad
