"""Bits in words: the set bits of fibers of bytes, and sequences of ascending numbers in the form of Elias and Fano.

Such a sequence splits each number into `low` lower bits, which lie side by side in `lows`, and the rest: for number q,
bit (number >> low) + q of `highs` is set. Words have 64 bits, the lowest first.
"""

import numpy as np

from . import jit
from .jit import i8, inlined, kernel, u8

_COUNTS = np.array([x.bit_count() for x in range(256)], np.uint8)


@inlined
def trailing_zeros(word):
    """The place of the lowest bit that is set. Precondition: there is one."""
    return jit.lowest_bit(word)


@inlined
def lower_bits(lows, q, low, skipped=0):
    """The lower bits of number q, where the first number begins behind `skipped` bits."""
    if low == u8(0):
        return u8(0)
    at = u8(q) * u8(low) + u8(skipped)
    word, shift = at >> u8(6), at & u8(63)
    found = u8(lows[word]) >> shift
    if shift + u8(low) > u8(64):
        found |= u8(lows[word + u8(1)]) << (u8(64) - shift)
    return found & ((u8(1) << u8(low)) - u8(1))


@inlined
def lower_width(n, size, count):
    """How many lower bits each of `count` numbers below n * size has."""
    width, rest = u8(0), u8(n) * u8(size) // u8(max(count, 1)) if count else u8(1)
    while rest > u8(1):
        rest >>= u8(1)
        width += u8(1)
    return width


@kernel
def put_numbers(numbers, low, lows, highs):
    """Write ascending numbers into words of zero."""
    one, low_ = u8(1), u8(low)
    mask = (one << low_) - one
    for q in range(u8(len(numbers))):
        number = u8(numbers[q])
        high = (number >> low_) + q
        highs[high >> u8(6)] |= one << (high & u8(63))
        if low_:
            at = q * low_
            word, shift, lower = at >> u8(6), at & u8(63), number & mask
            lows[word] |= lower << shift
            if shift + low_ > u8(64):
                lows[word + one] |= lower >> (u8(64) - shift)


@kernel
def get_numbers(highs, before, bit, lows, skipped, low, first, out):
    """Fill `out` with the numbers first, first + 1 … of a sequence. Returns how many there are.

    highs: some words of it, behind `before` bits. bit: of `highs`, where number `first` may be. lows: the lower bits of
    these numbers, from `skipped` bits on.
    """
    q, count = u8(0), u8(len(out))
    words = u8(len(highs))
    at = u8(bit) >> u8(6)
    word = (u8(highs[at]) >> (u8(bit) & u8(63))) << (u8(bit) & u8(63)) if at < words else u8(0)
    while q < count:
        while word == u8(0):
            at += u8(1)
            if at >= words:
                return i8(q)
            word = u8(highs[at])
        high = u8(before) + (at << u8(6)) + u8(trailing_zeros(word)) - (u8(first) + q)
        word &= word - u8(1)
        out[q] = i8((high << u8(low)) | lower_bits(lows, q, low, skipped))
        q += u8(1)
    return i8(q)


@kernel
def list_fibers(pointers, highs, lows, low, size, at, out):
    """The coordinates in the fibers `at` of a level whose numbers are p * size + x. Precondition: sound arrays."""
    k = u8(0)
    for f in range(len(at)):
        p = u8(at[f])
        base, q, end = p * u8(size), u8(pointers[p]), u8(pointers[p + u8(1)])
        if q == end:
            continue
        bit = (base >> u8(low)) + q
        place = bit >> u8(6)
        word = (u8(highs[place]) >> (bit & u8(63))) << (bit & u8(63))
        while q < end:
            while word == u8(0):
                place += u8(1)
                word = u8(highs[place])
            high = (place << u8(6)) + u8(trailing_zeros(word)) - q
            word &= word - u8(1)
            out[k] = i8(((high << u8(low)) | lower_bits(lows, q, low)) - base)
            k += u8(1)
            q += u8(1)


@kernel
def find_numbers(pointers, highs, lows, low, size, at, wanted, found):
    """For each (fiber, coordinate) the place of its number in the sequence, or -1. Precondition: sound arrays."""
    for f in range(len(at)):
        p, x = u8(at[f]), u8(wanted[f])
        base, q, end = p * u8(size), u8(pointers[p]), u8(pointers[p + u8(1)])
        found[f] = -1
        bit = (base >> u8(low)) + q
        place = bit >> u8(6)
        word = (u8(highs[place]) >> (bit & u8(63))) << (bit & u8(63)) if q < end else u8(0)
        while q < end:
            while word == u8(0):
                place += u8(1)
                word = u8(highs[place])
            high = (place << u8(6)) + u8(trailing_zeros(word)) - q
            word &= word - u8(1)
            number = ((high << u8(low)) | lower_bits(lows, q, low)) - base
            if number >= x:
                if number == x:
                    found[f] = i8(q)
                break
            q += u8(1)


@kernel
def list_bits(octets, width, out):
    """The numbers, in their fibers of `width` bytes, of all bits that are set."""
    k = u8(0)
    for f in range(u8(len(octets)) // u8(max(width, 1))):
        for b in range(u8(width)):
            word = u8(octets[f * u8(width) + b])
            while word != u8(0):
                out[k] = i8((b << u8(3)) + u8(trailing_zeros(word)))
                word &= word - u8(1)
                k += u8(1)


@kernel
def rank_bits(octets, width, pointers, at, cells, found):
    """For each (fiber, cell) the place of its bit among the set bits of all fibers, or -1."""
    for f in range(len(at)):
        start, cell = u8(at[f]) * u8(width), u8(cells[f])
        octet = u8(octets[start + (cell >> u8(3))])
        found[f] = -1
        if octet >> (cell & u8(7)) & u8(1):
            count = u8(pointers[u8(at[f])])
            for b in range(cell >> u8(3)):
                count += u8(_COUNTS[octets[start + b]])
            rest = octet & ((u8(1) << (cell & u8(7))) - u8(1))
            found[f] = i8(count + u8(_COUNTS[rest]))
