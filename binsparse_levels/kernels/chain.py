"""The fused pass over chains of dense and sparse levels: from sorted records to the arrays of every level at once.

Everything that differs by dimension is a tuple, so that the compiler unrolls the loop over the levels. `kinds` says
what a dimension is: 0 dense, 1 the first of a sparse level, 2 a further one of the same sparse level.
"""

from .jit import kernel, put_in_tuple, u8


@kernel
def count_fibers(records, begin, end, keep, counts):
    """Add to counts[d] how often the key changes in the bits keep[·][d].

    Precondition: sorted; counts[-2:] holds the words of the key before the first record.
    """
    words = len(keep)
    stride = u8(words + 1)
    dims = len(keep[0])
    high, low = counts[dims], counts[dims + 1]
    i, stop = stride * u8(begin), stride * u8(end)
    while i < stop:
        a, b = records[i], records[i + u8(words - 1)]
        for d in range(dims):
            new = (a ^ high) & keep[0][d]
            if words == 2:
                new |= (b ^ low) & keep[words - 1][d]
            counts[d] += u8(new != u8(0))
        high, low = a, b
        i += stride
    counts[dims] = high
    counts[dims + 1] = low


@kernel
def emit(records, begin, end, fields, keep, kinds, sizes, state, pointers, indices, values):
    """Write the arrays of all levels for the records begin … end, and carry `state` on to the next call.

    An index and its pointer are always stored; the cursor of a level moves only where the key changes in the bits
    `keep` of that level, so an entry of the same fiber writes the same place again, and nothing branches. Pointers
    below a dense level have gaps, which `fill_gaps` closes at the end.

    state: the cursor of each dimension, then the words of the last key. `values` is None or takes the payloads.
    Precondition: sorted; every output is long enough; `values` is filled where a dense level leaves cells empty.
    """
    right, left, mask = fields
    words = len(right)
    dims = len(sizes)
    one, stride = u8(1), u8(words + 1)
    high, low = state[dims], state[dims + 1]
    at = sizes
    for d in range(dims):
        at = put_in_tuple(at, d, state[d])
    i, stop = stride * u8(begin), stride * u8(end)
    while i < stop:
        a = records[i]
        b = records[i + one] if words == 2 else a
        new_high, new_low = a ^ high, b ^ low
        high, low = a, b
        p = u8(0)
        for d in range(dims):
            new = new_high & keep[0][d]
            if words == 1:
                x = (a >> right[0][d]) & mask[0][d]
            else:
                x = (a >> right[0][d]) << left[0][d] & mask[0][d]
                x |= (b >> right[words - 1][d]) << left[words - 1][d] & mask[words - 1][d]
                new |= new_low & keep[words - 1][d]
            if kinds[d] == 0:
                p = p * sizes[d] + x
            elif kinds[d] == 1:
                q = at[d] + u8(new != u8(0))
                at = put_in_tuple(at, d, q)
                indices[d][q] = x
                pointers[d][p + one] = q + one
                p = q
            else:
                indices[d][p] = x
        if values is not None:
            values[p] = records[i + u8(words)]
        i += stride
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
