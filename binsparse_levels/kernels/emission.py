"""The fused pass over chains of dense and sparse levels: from sorted keys to the arrays of every level at once.

Values that differ by dimension travel in tuples, so that the compiler unrolls the loop over the levels.

    chain = keep, sparse, holds, sizes

keep[·][d]: the bits of the key that distinguish the entries of the level of dimension d. sparse[d]: 0 for a dense
level. holds[d]: all bits if dimension d is the first of a level with pointers, else 0. sizes[d]: the dimension's size.
"""

import numpy as np

from .jit import kernel, stream, u8
from .keys import coordinate, fields_of, key_at

ROOM = 1024  # entries of a block, whose positions stay in L1


@kernel
def count_fibers(records, coords, count, fields, keep, counts):
    """Add to counts[d] the number of changes of the key in the bits keep[·][d].

    Keys come from `records`, or from `coords` if the entries are in order already; the other argument is None.
    Precondition: the keys are sorted; counts[-2:] holds the words of the previous key.
    """
    words = len(keep)
    stride = u8(words + 1)
    dims = len(keep[0])
    high, low = counts[dims], counts[dims + 1]
    i, stop = u8(0), u8(count)
    while i < stop:
        a, b = high, low
        if records is not None:
            a, b = records[i * stride], records[i * stride + u8(words - 1)]
        if coords is not None:
            a, b = key_at(coords, i, fields)
        for d in range(dims):
            new = (a ^ high) & keep[0][d]
            if words == 2:
                new |= (b ^ low) & keep[words - 1][d]
            counts[d] += u8(new != u8(0))
        high, low = a, b
        i += u8(1)
    counts[dims] = high
    counts[dims + 1] = low


@kernel
def emit(records, typed, count, distinct, fields, chain, state, pointers, indices, values):
    """Write the arrays of all levels for the first `count` keys, and update `state` for the next call.

    A block of entries takes the levels in turn, so that what a level needs stays in registers (1 M entries of CSF: 4.1
    ms, all levels of an entry in turn 5.6). Every entry stores an index and a pointer at its position, which moves only
    where the key changes in the level's bits `keep`: an entry of the same fiber writes the same slot again, without a
    branch. Where all entries differ in these bits, each has a slot of its own, and vectors write the indices. A further
    dimension of a sparse level has the same bits. Its pointers all go to slot 0, by `holds`. `fibers.fill_gaps` closes
    gaps of pointers below a dense level.

    distinct: whether all keys differ. state: the last position of each dimension, then the words of the last key.
    values: None, or the output for payloads; the last of equal keys stays. typed: None, or a view of the records in the
    data type of the values, whose size divides a word. `values` is then such a view too, and the values of equal keys
    are added.
    Precondition: the keys are sorted; every output is long enough; `values` is filled where cells may stay empty.
    """
    keep, sparse, holds, sizes = chain
    words, dims = len(keep), len(sizes)
    zero, one, stride, tail = u8(0), u8(1), u8(words + 1), u8(words - 1)
    above = np.empty(ROOM, np.uint64)  # the positions of the entries in the level above
    before, before_low = state[dims], state[dims + 1]
    i, stop = zero, u8(count)
    if typed is not None:
        per_word = u8(typed.size // records.size)
        total = typed[u8(words) * per_word]
    while i < stop:
        size = min(stop - i, u8(ROOM))
        block = records[i * stride : (i + size) * stride]
        for d in range(dims):
            starts, items, bits, hold = pointers[d], indices[d], fields_of(fields, d), holds[d]
            width = sizes[d] if d else zero
            kept, kept_low, q = keep[0][d], keep[words - 1][d], state[d]
            if sparse[d] == zero:
                for k in range(size):
                    above[k] = above[k] * width + coordinate(block[k * stride], block[k * stride + tail], words, bits)
            elif distinct and kept & kept_low == ~zero:
                q += one
                for k in range(size):
                    items[q + k] = coordinate(block[k * stride], block[k * stride + tail], words, bits)
                for k in range(size):
                    starts[(above[k] + one) & hold] = q + k + one
                    above[k] = q + k
                q += size - one
            else:
                high, low = before, before_low
                for k in range(size):
                    a, b = block[k * stride], block[k * stride + tail]
                    new = (a ^ high) & kept
                    if words == 2:
                        new |= (b ^ low) & kept_low
                    high, low = a, b
                    q += u8(new != zero)
                    items[q] = coordinate(a, b, words, bits)
                    starts[(above[k] + one) & hold] = q + one
                    above[k] = q
            state[d] = q
        if values is not None:
            if typed is not None:
                high, low = before, before_low
                for k in range(size):
                    a, b = block[k * stride], block[k * stride + tail]
                    value = typed[((i + k) * stride + u8(words)) * per_word]
                    total = value if (a ^ high) | (b ^ low) != zero else total + value
                    high, low = a, b
                    stream(values, above[k] * per_word, total)
            else:
                for k in range(size):
                    stream(values, above[k], block[k * stride + u8(words)])
        before, before_low = block[(size - one) * stride], block[(size - one) * stride + tail]
        i += size
    state[dims], state[dims + 1] = before, before_low
