"""Bits in words: the set bits of fibers of bytes, and sequences of ascending numbers in the form of Elias and Fano.

Such a sequence splits each number into `low` lower bits, which lie side by side in `lows`, and the rest: for number q,
bit (number >> low) + q of `highs` is set. Words have 64 bits, the lowest first.
"""

from . import jit
from .jit import i8, inlined, kernel, u8


@inlined
def trailing_zeros(word):
    """The place of the lowest bit that is set. Precondition: there is one."""
    return jit.lowest_bit(word)


@inlined
def bytes_at(octets, at, count):
    """The bytes from `at` on as a word, the lowest first: eight of them, or as many as `count` says."""
    word = u8(0)
    if u8(count) >= u8(8):  # a processor loads them at once
        for b in range(8):
            word |= u8(octets[u8(at) + u8(b)]) << (u8(b) << u8(3))
        return word
    for b in range(u8(count)):
        word |= u8(octets[u8(at) + b]) << (b << u8(3))
    return word


@inlined
def lower_bits(lows, q, low, skipped=0):
    """The lower bits of number q, where the first number begins behind `skipped` bits."""
    at = u8(q) * u8(low) + u8(skipped)
    k, shift = at >> u8(6), at & u8(63)
    word = (u8(lows[k]) >> shift) | ((u8(lows[k + u8(1)]) << u8(1)) << (u8(63) - shift))
    return word & ((u8(1) << u8(low)) - u8(1))


@inlined
def lower_width(n, size, count):
    """How many lower bits each of `count` numbers below n * size has: the last power of two up to their quotient.

    57 at most, so that they lie in the eight bytes from that of the first one on.
    """
    if not u8(count):
        return u8(0)
    bound = u8(n) * u8(size)
    width = u8(jit.bit_length(bound)) - u8(jit.bit_length(u8(count)))
    return min(width - u8(1) if (u8(count) << width) > bound else width, u8(57))


@inlined
def behind_zeros(highs, bit, zeros):
    """The place behind so many bits of 0, which are counted from `bit` on. Precondition: there are as many."""
    if not zeros:
        return bit
    at = bit >> u8(6)
    word = (~u8(highs[at]) >> (bit & u8(63))) << (bit & u8(63))
    count = u8(jit.bit_count(word))
    while count < zeros:
        zeros -= count
        at += u8(1)
        while zeros > u8(512):  # eight words, which are counted in a vector, have no more
            for k in range(u8(8)):
                zeros -= u8(jit.bit_count(~u8(highs[at + k])))
            at += u8(8)
        word = ~u8(highs[at])
        count = u8(jit.bit_count(word))
    for _ in range(zeros - u8(1)):
        word &= word - u8(1)
    return (at << u8(6)) + u8(trailing_zeros(word)) + u8(1)


@inlined
def ones_from(highs, bit, most):
    """How many bits of 1 follow each other from `bit` on, `most` at most. Precondition: a bit of 0 follows them."""
    count = u8(0)
    while count < most:
        word = ~u8(highs[(bit + count) >> u8(6)]) >> ((bit + count) & u8(63))
        if word:
            return min(count + u8(trailing_zeros(word)), most)
        count += u8(64) - ((bit + count) & u8(63))
    return most


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
def find_number(pointers, highs, lows, low, size, p, x):
    """The place in the sequence of the number of a coordinate x in fiber p, or -1. Precondition: sound arrays.

    Numbers with the same upper bits lie between two bits of 0, which are counted word by word.
    """
    base, first, end = u8(p) * u8(size), u8(pointers[p]), u8(pointers[p + 1])
    if first == end:
        return i8(-1)
    begin, upper = base >> u8(low), (base + u8(x)) >> u8(low)
    bit = behind_zeros(highs, begin + first, upper - begin)
    lower, q = (base + u8(x)) & ((u8(1) << u8(low)) - u8(1)), bit - upper
    behind = q + ones_from(highs, bit, end - q)
    while q < behind:
        middle = (q + behind) >> u8(1)
        found = lower_bits(lows, middle, low)
        if found == lower:
            return i8(middle)
        if found < lower:
            q = middle + u8(1)
        else:
            behind = middle
    return i8(-1)


@kernel
def find_numbers(pointers, highs, lows, low, size, at, wanted, found):
    """`find_number` for each fiber and coordinate."""
    for f in range(len(at)):
        found[f] = find_number(pointers, highs, lows, low, size, at[f], wanted[f])


@kernel
def list_bits(octets, width, out):
    """The numbers, in their fibers of `width` bytes, of all bits that are set."""
    k = u8(0)
    for f in range(u8(len(octets)) // u8(max(width, 1))):
        for b in range(u8(0), u8(width), u8(8)):
            word = u8(bytes_at(octets, f * u8(width) + b, u8(width) - b))
            while word != u8(0):
                out[k] = i8((b << u8(3)) + u8(trailing_zeros(word)))
                word &= word - u8(1)
                k += u8(1)


@kernel
def rank_bit(octets, width, pointers, p, cell):
    """The place of the bit of a cell of fiber p among the set bits of all fibers, or -1."""
    start, last, bit = u8(p) * u8(width), u8(cell) >> u8(3), u8(cell) & u8(7)
    octet = u8(octets[start + last])
    if not (octet >> bit) & u8(1):
        return i8(-1)
    count = u8(pointers[p]) + u8(jit.bit_count(octet & ((u8(1) << bit) - u8(1))))
    for b in range(last):
        count += u8(jit.bit_count(octets[start + u8(b)]))
    return i8(count)


@kernel
def rank_bits(octets, width, pointers, at, cells, found):
    """`rank_bit` for each fiber and cell."""
    for f in range(len(at)):
        found[f] = rank_bit(octets, width, pointers, at[f], cells[f])
