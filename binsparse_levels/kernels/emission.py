"""The fused pass over chains of dense and sparse levels: from sorted keys to the arrays of every level at once.

Everything that differs by dimension is a tuple, so that the compiler unrolls the loop over the levels. Keys come from
records, or where the entries are in order already, from the coordinates themselves: the other one is None.

    chain = keep, sparse, holds, sizes

keep[·][d]: the bits of the key that tell the entries of dimension d's level apart; sparse[d]: 0 for a dense level;
holds[d]: all bits where dimension d is the first of a level with pointers, else 0; sizes[d]: of the dimension.
"""

from .jit import kernel, put_in_tuple, u8
from .keys import key_at


@kernel
def count_fibers(records, coords, begin, end, fields, keep, counts):
    """Add to counts[d] how often the key changes in the bits keep[·][d].

    Precondition: sorted; counts[-2:] holds the words of the key before the first one.
    """
    words = len(keep)
    stride = u8(words + 1)
    dims = len(keep[0])
    high, low = counts[dims], counts[dims + 1]
    i, stop = u8(begin), u8(end)
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
def emit(records, coords, payload, typed, begin, end, fields, chain, state, pointers, indices, values):
    """Write the arrays of all levels for the keys begin … end, and carry `state` on to the next call.

    An index and its pointer are always stored; the cursor of a level moves only where the key changes in the bits
    `keep` of that level, so an entry of the same fiber writes the same place again, and nothing branches. A further
    dimension of a sparse level has the same bits, thus the same cursor, and needs no case of its own: its pointers
    all land in place 0, by `holds` (a third case in the loop cost a quarter of CSR, and half of COO). Pointers below a
    dense level have gaps, which `fill_gaps` closes at the end.

    state: the cursor of each dimension, then the words of the last key. payload: with coordinates, a word for each
    entry. `values` is None or takes the payloads; of equal keys the last one stays. typed: None, or the records
    viewed as the values' data type, whose size divides a word: then `values` is such a view too, and equal keys add up.
    Precondition: sorted; every output is long enough; `values` is filled where a dense level leaves cells empty.
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
    i, stop = u8(begin), u8(end)
    if typed is not None:
        per_word = u8(typed.size // records.size)
        total = typed[(i * stride + u8(words)) * per_word]
    while i < stop:
        a, b = high, low
        if records is not None:
            a, b = records[i * stride], records[i * stride + u8(words - 1)]
        if coords is not None:
            a, b = key_at(coords, i, fields)
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
                values[p * per_word] = total
            elif records is not None:
                values[p] = records[i * stride + u8(words)]
            if payload is not None:
                values[p] = payload[i]
        i += one
    for d in range(dims):
        state[d] = at[d]
    state[dims] = high
    state[dims + 1] = low


@kernel
def fill_gaps(pointers):
    """Give every pointer that is still 0 the value before it: a running maximum, without a branch."""
    m, zero, one = u8(0), u8(0), u8(1)
    p, n = zero, u8(pointers.size)
    while p < n:
        x = u8(pointers[p])
        m = (m & (zero - u8(x == zero))) | x
        pointers[p] = m
        p += one
