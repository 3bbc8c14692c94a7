"""Integers of 32 bits in chunks of 128, each chunk with as many bits a value as its largest needs: BP-128.

A chunk of width B is 4·B words: B rows of four lanes. Value i lies in lane i mod 4, whose words, one a row, are one
string of bits; the field of position k = i div 4 begins at its bit k·B. By codec a field holds

    PLAIN     the value                     LESS_ONE  the value less one
    DELTA     the step from the value before, of the first value 0
    ZIGZAG    the same step, with its sign in the lowest bit: 0, -1, 1, -2 … become 0, 1, 2, 3 …

all modulo 2**32. A chunk that would need 32 bits a value holds the values themselves. A codec travels as the length of
a tuple, so that it is a constant to the compiler.
"""

import numpy as np
from numba import config

from .codecs import CHUNK, DELTA, LESS_ONE, PLAIN, ZIGZAG
from .jit import kernel, part, u4, u8

_MASK = u8(0xFFFFFFFF)


@part
def plain_unpack_chunk(codec, words, o, width, start, out, at):
    """As `lanes.unpack_chunk`, a value at a time."""
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


@part
def plain_field(codec, values, first, i):
    """The field of value i, of a chunk that begins at `first`."""
    value = u8(values[i])
    if len(codec) == LESS_ONE:
        value -= u8(1)
    elif len(codec) >= DELTA:
        value -= u8(values[max(i - 1, first)])
        if len(codec) == ZIGZAG:
            negative = u8(0) - ((value >> u8(31)) & u8(1))
            value = (value << u8(1)) ^ negative
    return value & _MASK


@part
def plain_pack_chunk(codec, values, i, words, at):
    """As `lanes.pack_chunk`, a value at a time."""
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
    except ImportError:  # a numba or llvmlite that has its parts elsewhere
        pack_chunk, unpack_chunk = plain_pack_chunk, plain_unpack_chunk


@kernel
def unpack(codec, words, offsets, starts, first, last, out):
    """Decode the chunks first … last - 1 to their places in `out`.

    Precondition: words, starts and out are uint32; chunk c is words[offsets[c] : offsets[c + 1]], of 0 … 32 times four
    words; `starts` has what is before the steps of each chunk, where the codec has steps; `out` has whole chunks.
    """
    for c in range(first, last):
        o = offsets[c]
        start = starts[c] if len(codec) >= DELTA else u4(0)
        unpack_chunk(codec, words, o, u4((offsets[c + 1] - o) >> 2), start, out, c * CHUNK)


@kernel
def pack(codec, values, first, last, widths, words):
    """Encode the chunks first … last - 1, one behind the other from words[CHUNK·first] on; gives the end of the last.

    Precondition: values and words are uint32 and have whole chunks.
    """
    at = np.int64(first) * CHUNK
    for c in range(first, last):
        width = np.int64(pack_chunk(codec, values, c * CHUNK, words, at))
        widths[c] = width
        at += 4 * width
    return at
