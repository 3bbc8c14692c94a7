"""The fused pass over chains of dense and sparse levels: from sorted keys to the arrays of all levels.

The arrays of the levels are in tuples, so that the compiler unrolls the loop over the levels. A row of `chain`
describes a dimension: its fields in both words of a key, for `coordinate`; the bits of both words that distinguish the
entries of its level; 0 for a dense level; all bits if it is the first of a level with pointers, else 0; its size, or 0
for the first. Numba compiles faster for an array than for tuples of tuples.
"""

from .jit import kernel, u8
from .keys import coordinate

BLOCK_ENTRIES = 1024  # whose positions stay in L1


@kernel
def count_fibers(records, count, keep, counts):
    """Add to counts[d] the number of changes of the key in the bits keep[·][d].

    Precondition: the keys are sorted; counts[-2:] are the words of the previous key.
    """
    words = len(keep)
    stride = u8(words + 1)
    dims = len(keep[0])
    high, low = counts[dims], counts[dims + 1]
    i, stop = u8(0), u8(count)
    while i < stop:
        a, b = records[i * stride], records[i * stride + u8(words - 1)]
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
def emit(records, count, tag, lists, chain, above, state, pointers, indices, values):
    """Write the arrays of all levels for the first `count` keys, and update `state` for the next call.

    A block of entries is processed level by level, so the state of a level stays in registers: 5.6 ms → 4.1 ms compared
    with entry by entry (1 M entries of CSF). Every entry stores an index and a pointer at its position, which advances
    only if the key changes in the level's bits: an entry of the same fiber overwrites the same slot, without a branch.
    If the level has all bits, every key changes, and each entry has its own slot: 14.5 ms → 11 ms (two words). A
    further dimension of a sparse level has the same bits, and its pointers all go to slot 0. Pointers below a dense
    level have gaps.

    tag: has an item for each word of a key. lists: None if each level is dense or has a slot for each entry, else ():
    the unused branch would take a fifth of the compilation. above: scratch for the positions of BLOCK_ENTRIES entries
    in the level above. state: the last position of each dimension, then the words of the last key. values: None, or
    the output for payloads.
    Precondition: the keys ascend; every output is long enough; `values` is filled if cells may stay empty.
    """
    words, dims = len(tag), len(pointers)
    zero, one, stride, tail = u8(0), u8(1), u8(words + 1), u8(words - 1)
    i, stop = zero, u8(count)
    while i < stop:
        size = min(stop - i, u8(BLOCK_ENTRIES))
        block = records[i * stride : (i + size) * stride]
        for d in range(dims):
            row, starts, items, q = chain[d], pointers[d], indices[d], state[d]
            bits = row[0], row[1], row[2], row[3], row[4], row[5]
            kept, kept_low, sparse, has_pointers, width = row[6], row[7], row[8], row[9], row[10]
            if sparse == zero:
                for k in range(size):
                    above[k] = above[k] * width + coordinate(block[k * stride], block[k * stride + tail], words, bits)
            elif kept & kept_low == ~zero:
                q += one
                for k in range(size):
                    items[q + k] = coordinate(block[k * stride], block[k * stride + tail], words, bits)
                for k in range(size):
                    starts[(above[k] + one) & has_pointers] = q + k + one
                    above[k] = q + k
                q += size - one
            elif lists is not None:
                high, low = state[dims], state[dims + 1]
                for k in range(size):
                    a, b = block[k * stride], block[k * stride + tail]
                    new = (a ^ high) & kept
                    if words == 2:
                        new |= (b ^ low) & kept_low
                    high, low = a, b
                    q += u8(new != zero)
                    items[q] = coordinate(a, b, words, bits)
                    starts[(above[k] + one) & has_pointers] = q + one
                    above[k] = q
            state[d] = q
        if values is not None:
            for k in range(size):
                values[above[k]] = block[k * stride + u8(words)]
        state[dims], state[dims + 1] = block[(size - one) * stride], block[(size - one) * stride + tail]
        i += size
