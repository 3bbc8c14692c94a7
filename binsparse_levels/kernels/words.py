"""Bits in words: the set bits of fibers of bytes, and sequences of ascending numbers in the form of Elias and Fano.

Such a sequence splits each number into `low` lower bits, which are concatenated in `lows`, and the rest: for number q,
bit (number >> low) + q of `highs` is set. Words have 64 bits, the lowest first.
"""

from . import jit
from .jit import i8, inlined, kernel, u8


@inlined
def trailing_zeros(word):
    """The number of the lowest set bit. Precondition: a bit is set."""
    return jit.lowest_bit(word)


@inlined
def bytes_at(raw, at, count):
    """The bytes from `at` on as a word, the lowest first: `count` bytes, at most eight."""
    word = u8(0)
    if u8(count) >= u8(8):  # compiled to a single load
        for b in range(8):
            word |= u8(raw[u8(at) + u8(b)]) << (u8(b) << u8(3))
        return word
    for b in range(u8(count)):
        word |= u8(raw[u8(at) + b]) << (b << u8(3))
    return word


@inlined
def lower_bits(lows, q, low, skipped=0):
    """The lower bits of number q. skipped: the number of bits before the first number."""
    at = u8(q) * u8(low) + u8(skipped)
    k, shift = at >> u8(6), at & u8(63)
    word = (u8(lows[k]) >> shift) | ((u8(lows[k + u8(1)]) << u8(1)) << (u8(63) - shift))
    return word & ((u8(1) << u8(low)) - u8(1))


@inlined
def lower_width(n, size, count):
    """The number of lower bits of each of `count` numbers below n * size: the binary logarithm of their quotient.

    At most 57, so that they are in eight bytes from the byte of the first bit on.
    """
    if not u8(count):
        return u8(0)
    bound = u8(n) * u8(size)
    width = u8(jit.bit_length(bound)) - u8(jit.bit_length(u8(count)))
    return min(width - u8(1) if (u8(count) << width) > bound else width, u8(57))


@inlined
def after_zeros(highs, bit, zeros):
    """The number of the bit after `zeros` bits of 0 from `bit` on. Precondition: there are enough."""
    if not zeros:
        return bit
    at = bit >> u8(6)
    word = (~u8(highs[at]) >> (bit & u8(63))) << (bit & u8(63))
    count = u8(jit.bit_count(word))
    while count < zeros:
        zeros -= count
        at += u8(1)
        while zeros > u8(512):  # more than in eight words, whose count is vectorized
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
    """The number of consecutive bits of 1 from `bit` on, at most `most`. Precondition: a bit of 0 follows them."""
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
    """Fill `out` with the numbers first, first + 1 … of a sequence. Returns their number.

    highs: some words of it, after `before` bits. bit: of `highs`, the first that may belong to number `first`. lows:
    the lower bits of these numbers, after `skipped` bits.
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
    """List the coordinates of the fibers `at` of a level with the numbers p * size + x. Precondition: valid arrays."""
    k = u8(0)
    for f in range(len(at)):
        base, q = u8(at[f]) * u8(size), u8(pointers[u8(at[f])])
        here = out[k : k + (u8(pointers[u8(at[f]) + u8(1)]) - q)]
        get_numbers(highs, 0, (base >> u8(low)) + q, lows, q * u8(low), low, q, here)
        for i in range(len(here)):
            here[i] -= i8(base)
        k += u8(len(here))


@kernel
def find_number(pointers, highs, lows, low, size, p, x):
    """The index in the sequence of the number of a coordinate x in fiber p, or -1. Precondition: valid arrays.

    Numbers with the same upper bits are between two bits of 0, which are counted word by word.
    """
    base, first, end = u8(p) * u8(size), u8(pointers[p]), u8(pointers[p + 1])
    if first == end:
        return i8(-1)
    begin, upper = base >> u8(low), (base + u8(x)) >> u8(low)
    bit = after_zeros(highs, begin + first, upper - begin)
    lower, q = (base + u8(x)) & ((u8(1) << u8(low)) - u8(1)), bit - upper
    end = q + ones_from(highs, bit, end - q)
    while q < end:
        middle = (q + end) >> u8(1)
        found = lower_bits(lows, middle, low)
        if found == lower:
            return i8(middle)
        if found < lower:
            q = middle + u8(1)
        else:
            end = middle
    return i8(-1)


@kernel
def find_numbers(pointers, highs, lows, low, size, at, coords, found):
    """`find_number` for each fiber and coordinate."""
    for f in range(len(at)):
        found[f] = find_number(pointers, highs, lows, low, size, at[f], coords[f])


@kernel
def list_bits(raw, width, out):
    """List the numbers of all set bits, relative to their fibers of `width` bytes."""
    k = u8(0)
    for f in range(u8(len(raw)) // u8(max(width, 1))):
        for b in range(u8(0), u8(width), u8(8)):
            word = u8(bytes_at(raw, f * u8(width) + b, u8(width) - b))
            while word != u8(0):
                out[k] = i8((b << u8(3)) + u8(trailing_zeros(word)))
                word &= word - u8(1)
                k += u8(1)


@kernel
def rank_bit(raw, width, pointers, p, cell):
    """The rank of the bit of a cell of fiber p among the set bits of all fibers, or -1."""
    start, last, bit = u8(p) * u8(width), u8(cell) >> u8(3), u8(cell) & u8(7)
    byte = u8(raw[start + last])
    if not (byte >> bit) & u8(1):
        return i8(-1)
    count = u8(pointers[p]) + u8(jit.bit_count(byte & ((u8(1) << bit) - u8(1))))
    for b in range(last):
        count += u8(jit.bit_count(raw[start + u8(b)]))
    return i8(count)


@kernel
def rank_bits(raw, width, pointers, at, cells, found):
    """`rank_bit` for each fiber and cell."""
    for f in range(len(at)):
        found[f] = rank_bit(raw, width, pointers, at[f], cells[f])
