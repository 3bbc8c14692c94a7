"""Hash tables by open addressing: coordinates in slots from the one that their hash says on, around the end."""

from .jit import i8, kernel, part, u8


@part
def first_slot(x, slots):
    """Where a coordinate is looked for first, in so many slots, a power of two: the upper bits of a product."""
    shift = u8(64)
    while slots > u8(1):
        slots >>= u8(1)
        shift -= u8(1)
    hashed = u8(x) * u8(0x9E3779B97F4A7C15)
    return hashed >> shift if shift < u8(64) else u8(0)


@kernel
def insert(pointers, fibers, coords, keys, places):
    """Put each coordinate into the table of its fiber, as its number plus one; places[k]: the slot of coordinate k.

    Precondition: every table has an empty slot; coordinates are not repeated.
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
    """found[k] = the rank of the slot of coordinate k in its fiber, or -1. Precondition: every table has an empty slot,
    or none at all, and a power of two of them.
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
