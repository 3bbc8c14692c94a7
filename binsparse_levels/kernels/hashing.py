"""Hash tables with open addressing: linear probing from the slot of the hash, with wrap-around."""

from .jit import i8, inlined, kernel, u8


@inlined
def first_slot(x, slots):
    """The first slot to probe for a coordinate: the upper bits of a product. `slots` is a power of two."""
    shift = u8(64)
    while slots > u8(1):
        slots >>= u8(1)
        shift -= u8(1)
    hashed = u8(x) * u8(0x9E3779B97F4A7C15)
    return hashed >> shift if shift < u8(64) else u8(0)


@kernel
def insert(pointers, fibers, coords, keys, places):
    """Insert each coordinate plus one into the table of its fiber; places[k] is the slot of coordinate k.

    Precondition: every table has an empty slot, and no coordinate is repeated.
    """
    for k in range(fibers.size):
        begin = u8(pointers[fibers[k]])
        slots = u8(pointers[fibers[k] + 1]) - begin
        at = first_slot(coords[k], slots)
        while keys[begin + at] != 0:
            at = (at + u8(1)) & (slots - u8(1))
        keys[begin + at] = coords[k] + 1
        places[k] = begin + at


@kernel
def find(pointers, keys, ranks, fibers, coords, found):
    """found[k] = the rank of the slot of coordinate k in its fiber, or -1.

    Precondition: the number of slots of a table is 0 or a power of two, and then at least one is empty.
    """
    for k in range(fibers.size):
        found[k] = -1
        begin = u8(pointers[fibers[k]])
        slots = u8(pointers[fibers[k] + 1]) - begin
        if slots == u8(0):
            continue
        at = first_slot(coords[k], slots)
        while keys[begin + at] != 0:
            if keys[begin + at] == coords[k] + 1:
                found[k] = i8(ranks[begin + at])
                break
            at = (at + u8(1)) & (slots - u8(1))
