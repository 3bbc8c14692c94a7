"""Decoders for .ra files: raw LZ4 blocks, LEB128 integers. Expansion is bounded."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numcodecs import lz4

Bytes: TypeAlias = npt.NDArray[np.uint8]

_MAX_EXPANDED_BYTES = 2**31 - 1


def lz4_can_expand(stored: int, size: int) -> bool:
    """Return True if a block of `stored` bytes can expand to `size` bytes: one byte gives at most 255."""
    return size <= min(255 * stored + 64, _MAX_EXPANDED_BYTES)


def expand_lz4(block: Bytes, size: int) -> Bytes | None:
    """The `size` bytes of a block, or None for an invalid block or another size."""
    if not size:  # the library does not support an empty block, which is one token without literals
        return np.empty(0, np.uint8) if block.tobytes() == b"\0" else None
    if not lz4_can_expand(block.size, size):
        return None
    out = np.empty(size, np.uint8)
    try:
        lz4.decompress(size.to_bytes(4, "little") + block.tobytes(), out)
    except RuntimeError:
        return None
    return out


def most_leb128(width: int) -> int:
    """The maximum encoded size of an integer of `width` bytes: seven bits in each byte."""
    return -(-8 * width // 7)


def expand_leb128(payload: Bytes, count: int, width: int, signed: bool) -> Bytes:
    """The first `count` integers as little-endian bytes, `width` each.

    Bits above the width are dropped. Raises ValueError for a payload that is too short, or an integer with more bytes
    than its width can need.
    """
    ends = np.flatnonzero(payload < 128)[:count] + 1
    if len(ends) < count:
        raise ValueError(f"the data ends after {len(ends)} of {count} integers")
    starts = np.append(0, ends)[:count]
    lengths = ends - starts
    longest = int(lengths.max(initial=0))
    if longest > most_leb128(width):
        at = int(np.argmax(lengths))
        raise ValueError(f"integer {at} takes {longest} bytes, more than {8 * width} bits can need")
    numbers = np.zeros((count, width + 1), np.uint8)  # bits of the last byte may be above the width
    for k in range(longest):
        has = np.flatnonzero(lengths > k)
        bits = (payload[starts[has] + k] & 127).astype(np.uint16) << 7 * k % 8
        numbers[has, 7 * k // 8] |= bits.astype(np.uint8)
        numbers[has, 7 * k // 8 + 1] |= (bits >> 8).astype(np.uint8)
    if signed:  # 0, -1, 1, -2, …: the lowest bit is the sign
        sign = -(numbers[:, :1] & 1).astype(np.int8)
        numbers[:, :-1] = numbers[:, :-1] >> 1 | numbers[:, 1:] << 7
        numbers ^= sign.view(np.uint8)
    return np.ascontiguousarray(numbers[:, :width]).reshape(-1)
