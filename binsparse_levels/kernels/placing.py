"""Put entries straight at the places of their fibers, which are the coordinates of the first dimension.

The entries of a fiber keep the order that they have, so that all other dimensions must be in order already.
"""

from .jit import kernel, u8
from .keys import key_at, key_in_runs


@kernel
def place(coords, payload, source, runs, at, low, fields, pointers, indices, values):
    """Count the entries of each fiber, then write each entry at the pointer of its fiber, which moves on.

    coords: columns, the first of which is the first dimension, with the fields `source`; runs, at: other columns, as
    `key_in_runs` takes them, or None. low: the first bit of the first dimension in a key of one word. fields: those of
    the other dimensions. payload: None, or a word for each entry.
    Precondition: `pointers` is zero.
    """
    one, i, n = u8(1), u8(0), u8(len(coords[0]))
    right, _, mask = fields
    while i < n:
        pointers[u8(coords[0][i]) + one] += one
        i += one
    x, begin = one, u8(0)  # pointers[x + 1] moves from the start of fiber x to its end
    while x < u8(pointers.size):
        count = u8(pointers[x])
        pointers[x] = begin
        begin += count
        x += one
    i = u8(0)
    while i < n:
        key, _ = key_at(coords, i, source)
        if runs is not None:
            more, _, at = key_in_runs(runs, at, i)
            key |= more
        x = (key >> low) + one
        q = u8(pointers[x])
        pointers[x] = q + one
        for d in range(len(indices)):
            indices[d][q] = (key >> right[0][d]) & mask[0][d]
        if payload is not None:
            values[q] = payload[i]
        i += one
