"""BP-128: chunks of 128 integers of 32 bits; the largest value of a chunk gives its number of bits per value.

A chunk of width B is 4·B words: B rows of four lanes. Value i is in lane i mod 4. The words of a lane form one string
of bits, and the field of value i begins at bit (i div 4)·B of its lane. The codec determines the content of a field:

    PLAIN     the value                     LESS_ONE  the value minus one
    DELTA     the difference from the previous value; 0 for the first value
    ZIGZAG    the same difference, with its sign in the lowest bit: 0, -1, 1, -2 … become 0, 1, 2, 3 …

All arithmetic is modulo 2**32. A chunk that needs 32 bits per value contains the values themselves. A codec is passed
as the length of a tuple, which is a constant for the compiler.
"""

import numpy as np

from .codecs import CHUNK, DELTA, LESS_ONE, ZIGZAG
from .jit import bit_length, inlined, kernel, u4, u8

_LOW = u8(0xFFFFFFFF)


@inlined
def read_fields(words, begin, width, out):
    """Read the 128 fields of the chunk that begins at a word. The four lanes are vectorized."""
    one, two, three, four, mask = u8(1), u8(2), u8(3), u8(4), (u8(1) << width) - u8(1)
    k, last = u8(0), begin + ((width - one) << two)
    while k < u8(32):
        bit = k * width
        shift, low = bit & u8(31), begin + ((bit >> u8(5)) << two)
        high, up, i = min(low + four, last), u8(32) - shift, k << two
        out[i] = ((u8(words[low]) >> shift) | (u8(words[high]) << up)) & mask
        out[i + one] = ((u8(words[low + one]) >> shift) | (u8(words[high + one]) << up)) & mask
        out[i + two] = ((u8(words[low + two]) >> shift) | (u8(words[high + two]) << up)) & mask
        out[i + three] = ((u8(words[low + three]) >> shift) | (u8(words[high + three]) << up)) & mask
        k += one


@inlined
def add_up(chunk, before):
    """Replace differences by their sums, starting with the value before the chunk; by fours, for a shorter chain."""
    one, two, three, i, total = u8(1), u8(2), u8(3), u8(0), u8(before)
    while i < u8(CHUNK):
        a, c = u8(chunk[i]), u8(chunk[i + two])
        b, d = a + u8(chunk[i + one]), c + u8(chunk[i + three])
        chunk[i], chunk[i + one] = total + a, total + b
        chunk[i + two], chunk[i + three] = total + b + c, total + b + d
        total += b + d
        i += u8(4)


@kernel
def unpack(codec, words, offsets, starts, first, last, out):
    """Decode the chunks first … last - 1 into `out`.

    Precondition: words, starts and out are uint32. Chunk c is words[offsets[c] : offsets[c + 1]], 4·B words for a width
    B of 0 … 32. For a codec of differences, starts[c] is the value before chunk c. `out` has room for whole chunks.
    """
    for c in range(first, last):
        begin = u8(offsets[c])
        width = (u8(offsets[c + 1]) - begin) >> u8(2)
        chunk = out[c * CHUNK : (c + 1) * CHUNK]
        if width > u8(0):
            read_fields(words, begin, width, chunk)
        else:
            chunk[:] = 0
        if width == u8(32):
            continue
        if len(codec) == LESS_ONE:
            for i in range(CHUNK):
                chunk[i] += u4(1)
        if len(codec) == ZIGZAG:
            for i in range(CHUNK):
                chunk[i] = (u8(chunk[i]) >> u8(1)) ^ (u8(0) - (u8(chunk[i]) & u8(1)))
        if len(codec) >= DELTA:
            add_up(chunk, starts[c])


@inlined
def write_fields(fields, width, words):
    """Write 128 fields of `width` bits as the words of a chunk. Precondition: 0 < width < 32."""
    one, two, three = u8(1), u8(2), u8(3)
    a = b = c = d = k = used = at = u8(0)
    while k < u8(32):
        i = k << two
        a |= fields[i] << used
        b |= fields[i + one] << used
        c |= fields[i + two] << used
        d |= fields[i + three] << used
        used += width
        if used >= u8(32):
            words[at], words[at + one], words[at + two], words[at + three] = a, b, c, d
            a, b, c, d = a >> u8(32), b >> u8(32), c >> u8(32), d >> u8(32)
            used -= u8(32)
            at += u8(4)
        k += one


@kernel
def pack(codec, values, widths, words):
    """Encode all chunks without gaps; return the end of the last chunk in `words`.

    Precondition: `values` and `words` are uint32 and have room for whole chunks.
    """
    fields = np.empty(CHUNK, np.uint64)
    at = u8(0)
    for c in range(len(widths)):
        chunk = values[c * CHUNK : (c + 1) * CHUNK]
        bits, before = u8(0), u8(chunk[0])
        for i in range(CHUNK):
            field = u8(chunk[i])
            if len(codec) == LESS_ONE:
                field -= u8(1)
            if len(codec) >= DELTA:
                field, before = field - before, field
            if len(codec) == ZIGZAG:
                field = (field << u8(1)) ^ (u8(0) - ((field >> u8(31)) & u8(1)))
            fields[i] = field & _LOW
            bits |= fields[i]
        width = u8(bit_length(bits)) if bits != u8(0) else u8(0)
        widths[c] = width
        if width == u8(32):
            for i in range(CHUNK):
                words[at + u8(i)] = chunk[i]
        elif width > u8(0):
            write_fields(fields, width, words[at : at + (width << u8(2))])
        at += width << u8(2)
    return np.int64(at)
