"""The fused pass over chains of dense and sparse levels: from sorted keys to the arrays of every level at once.

Values that differ by dimension travel in tuples, so that the compiler unrolls the loop over the levels.

    chain = keep, sparse, holds, sizes

keep[·][d]: the bits of the key that distinguish the entries of the level of dimension d. sparse[d]: 0 for a dense
level. holds[d]: all bits if dimension d is the first of a level with pointers, else 0. sizes[d]: the dimension's size.
"""

from .jit import kernel, put_in_tuple, stream, u8
from .keys import key_at


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
def emit(records, typed, count, fields, chain, state, pointers, indices, values):
    """Write the arrays of all levels for the first `count` keys, and update `state` for the next call.

    Every entry stores an index and a pointer at the cursor of each level. A cursor moves only where the key changes in
    the level's bits `keep`, so an entry of the same fiber writes the same slot again, without a branch. A further
    dimension of a sparse level has the same bits and cursor. Its pointers all go to slot 0, by `holds`: a third case
    in the loop cost a quarter of the speed for CSR and half for COO. `fibers.fill_gaps` closes gaps of pointers below
    a dense level.

    state: the cursor of each dimension, then the words of the last key. values: None, or the output for payloads; the
    last of equal keys stays. typed: None, or a view of the records in the data type of the values, whose size divides a
    word. `values` is then such a view too, and the values of equal keys are added.
    Precondition: the keys are sorted; every output is long enough; `values` is filled where cells may stay empty.
    """
    right, left, mask = fields
    keep, sparse, holds, sizes = chain
    words = len(right)
    dims = len(sizes)
    zero, one, stride = u8(0), u8(1), u8(words + 1)
    high, low = state[dims], state[dims + 1]
    at = sizes
    for d in range(dims):
        at = put_in_tuple(at, d, state[d])
    i, stop = u8(0), u8(count)
    if typed is not None:
        per_word = u8(typed.size // records.size)
        total = typed[(i * stride + u8(words)) * per_word]
    while i < stop:
        a, b = records[i * stride], records[i * stride + u8(words - 1)]
        new_high, new_low = a ^ high, b ^ low
        high, low = a, b
        p = zero
        for d in range(dims):
            new = new_high & keep[0][d]
            if words == 1:
                x = (a >> right[0][d]) & mask[0][d]
            else:
                x = (a >> right[0][d]) << left[0][d] & mask[0][d]
                x |= (b >> right[words - 1][d]) << left[words - 1][d] & mask[words - 1][d]
                new |= new_low & keep[words - 1][d]
            if sparse[d] == zero:
                p = p * sizes[d] + x
            else:
                q = at[d] + u8(new != zero)
                at = put_in_tuple(at, d, q)
                indices[d][q] = x
                pointers[d][(p + one) & holds[d]] = q + one
                p = q
        if values is not None:
            if typed is not None:
                value = typed[(i * stride + u8(words)) * per_word]
                total = value if new_high | new_low != zero else total + value
                stream(values, p * per_word, total)
            else:
                stream(values, p, records[i * stride + u8(words)])
        i += one
    for d in range(dims):
        state[d] = at[d]
    state[dims] = high
    state[dims + 1] = low
