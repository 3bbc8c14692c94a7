"""BP-128: chunks of 128 integers of 32 bits; the largest value of a chunk gives its number of bits per value.

A chunk of width B is 4·B words: B rows of four lanes. Value i lies in lane i mod 4. The words of a lane form one string
of bits, and the field of value i begins at bit (i div 4)·B of its lane. The codec says what a field holds:

    PLAIN     the value                     LESS_ONE  the value less one
    DELTA     the difference from the previous value; 0 for the first value
    ZIGZAG    the same difference, with its sign in the lowest bit: 0, -1, 1, -2 … become 0, 1, 2, 3 …

All arithmetic is modulo 2**32. A chunk that needs 32 bits per value holds the values themselves. A codec is passed as
the length of a tuple, so that it is a constant to the compiler.
"""

import numpy as np
from numba import config

from .codecs import CHUNK, DELTA, LESS_ONE, PLAIN, ZIGZAG
from .jit import inlined, kernel, u4, u8

_MASK = u8(0xFFFFFFFF)


@inlined
def plain_unpack_chunk(codec, words, o, width, start, out, at):
    """Like `lanes.unpack_chunk`, one value at a time."""
    width, value = np.int64(width), u8(start)
    for i in range(CHUNK):
        q, s = divmod((i >> 2) * width, 32)
        word = o + 4 * q + (i & 3)
        field = u8(0)
        if width > 0:
            field = u8(words[word]) >> u8(s)
        if s + width > 32:
            field |= u8(words[word + 4]) << u8(32 - s)
        field &= (u8(1) << u8(width)) - u8(1)
        if len(codec) == PLAIN or width == 32:
            value = field
        elif len(codec) == LESS_ONE:
            value = field + u8(1)
        elif len(codec) == DELTA:
            value += field
        else:
            value += (field >> u8(1)) ^ (u8(0) - (field & u8(1)))
        value &= _MASK
        out[at + i] = u4(value)


@inlined
def plain_field(codec, values, first, i):
    """The field of value i in the chunk that begins at word `first`."""
    value = u8(values[i])
    if len(codec) == LESS_ONE:
        value -= u8(1)
    elif len(codec) >= DELTA:
        value -= u8(values[max(i - 1, first)])
        if len(codec) == ZIGZAG:
            negative = u8(0) - ((value >> u8(31)) & u8(1))
            value = (value << u8(1)) ^ negative
    return value & _MASK


@inlined
def plain_pack_chunk(codec, values, i, words, at):
    """Like `lanes.pack_chunk`, one value at a time."""
    bits = u8(0)
    for k in range(CHUNK):
        bits |= plain_field(codec, values, i, i + k)
    width = 0
    while bits > u8(0):
        bits >>= u8(1)
        width += 1
    for k in range(4 * width):
        words[at + k] = u4(0)
    for k in range(CHUNK if width > 0 else 0):
        field = u8(values[i + k]) if width == 32 else plain_field(codec, values, i, i + k)
        q, s = divmod((k >> 2) * width, 32)
        word = at + 4 * q + (k & 3)
        words[word] |= u4((field << u8(s)) & _MASK)
        if s + width > 32:
            words[word + 4] |= u4(field >> u8(32 - s))
    return width


if config.DISABLE_JIT:
    pack_chunk, unpack_chunk = plain_pack_chunk, plain_unpack_chunk
else:
    try:
        from .lanes import pack_chunk, unpack_chunk
    except ImportError:  # another version of numba or llvmlite, with other internals
        pack_chunk, unpack_chunk = plain_pack_chunk, plain_unpack_chunk


@kernel
def unpack(codec, words, offsets, starts, first, last, out):
    """Decode the chunks first … last - 1 into `out`.

    Precondition: words, starts and out are uint32. Chunk c is words[offsets[c] : offsets[c + 1]], 4·B words for a width
    B of 0 … 32. For a codec of differences, starts[c] is the value before chunk c. `out` holds whole chunks.
    """
    for c in range(first, last):
        o = offsets[c]
        start = starts[c] if len(codec) >= DELTA else u4(0)
        unpack_chunk(codec, words, o, u4((offsets[c + 1] - o) >> 2), start, out, c * CHUNK)


@kernel
def pack(codec, values, first, last, widths, words):
    """Encode the chunks first … last - 1 without gaps from words[CHUNK·first] on; return the end of the last chunk.

    Precondition: `values` and `words` are uint32 and hold whole chunks.
    """
    at = np.int64(first) * CHUNK
    for c in range(first, last):
        width = np.int64(pack_chunk(codec, values, c * CHUNK, words, at))
        widths[c] = width
        at += 4 * width
    return at
