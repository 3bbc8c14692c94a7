"""The encodings of .ra files: raw LZ4 blocks, LEB128 integers. Expansion is bounded."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numcodecs import lz4

Bytes: TypeAlias = npt.NDArray[np.uint8]

_MOST_LZ4 = 0x7E000000  # bytes that the library compresses at once
_MOST_EXPANDED = 2**31 - 1


def lz4_may_hold(stored: int, size: int) -> bool:
    """Whether a block of so many bytes may expand to `size` bytes: one byte gives at most 255."""
    return size <= min(255 * stored + 64, _MOST_EXPANDED)


def expand_lz4(block: Bytes, size: int) -> Bytes | None:
    """The `size` bytes of a block, or None for an invalid block or another size."""
    if not size:  # the library knows no empty block, which is one token without literals
        return np.empty(0, np.uint8) if block.tobytes() == b"\0" else None
    if not lz4_may_hold(block.size, size):
        return None
    out = np.empty(size, np.uint8)
    try:
        lz4.decompress(size.to_bytes(4, "little") + block.tobytes(), out)
    except RuntimeError:
        return None
    return out


def compress_lz4(raw: Bytes) -> bytes:
    """The bytes as one block. Raises ValueError for too many bytes."""
    if raw.size > _MOST_LZ4:
        raise ValueError(f"an LZ4 block holds {_MOST_LZ4} bytes, not {raw.size}")
    return bytes(lz4.compress(raw)[4:])  # without the length, which the library puts before it


def most_leb128(width: int) -> int:
    """The most bytes that an integer of so many bytes takes: seven bits in each."""
    return -(-8 * width // 7)


def expand_leb128(payload: Bytes, count: int, width: int, signed: bool) -> tuple[Bytes, int]:
    """The first `count` integers as little-endian bytes, `width` each, and the length of their encoding.

    Bits above the width are dropped. Raises ValueError for a payload that is too short, or an integer with more bytes
    than its width can need.
    """
    ends = np.flatnonzero(payload < 128)[:count] + 1
    if len(ends) < count:
        raise ValueError(f"the data ends after {len(ends)} of {count} integers")
    starts = np.concatenate([[0], ends[:-1]]) if count else ends
    lengths = ends - starts
    longest = int(lengths.max(initial=0))
    if longest > most_leb128(width):
        at = int(np.argmax(lengths))
        raise ValueError(f"integer {at} takes {longest} bytes, more than {8 * width} bits can need")
    words = np.zeros((count, 3), "<u8")  # 19 bytes have 133 bits
    for k in range(longest):
        has = np.flatnonzero(lengths > k)
        bits = (payload[starts[has] + k] & 127).astype("<u8")
        word, shift = divmod(7 * k, 64)
        words[has, word] |= bits << np.uint64(shift)
        if shift > 57:
            words[has, word + 1] |= bits >> np.uint64(64 - shift)
    if signed:
        negative = words[:, :1] & np.uint64(1)
        carried = words[:, 1:] << np.uint64(63)
        words >>= np.uint64(1)
        words[:, :-1] |= carried
        words ^= np.uint64(0) - negative
    used = int(ends[-1]) if count else 0
    return np.ascontiguousarray(words.view(np.uint8)[:, :width]).reshape(-1), used


def compress_leb128(raw: Bytes, width: int, signed: bool) -> bytes:
    """The inverse of `expand_leb128`, of a width of up to 16 bytes."""
    count = raw.size // width
    words = np.zeros((count, 2), "<u8")
    words.view(np.uint8)[:, :width] = raw.reshape(count, width)
    if signed:
        negative = np.uint64(0) - (words.view(np.uint8)[:, width - 1 : width] >> 7).astype("<u8")
        carried = words[:, :1] >> np.uint64(63)
        words <<= np.uint64(1)
        words[:, 1:] |= carried
        words ^= negative
        words.view(np.uint8)[:, width:] = 0
    parts = np.empty((count, most_leb128(width)), np.uint8)
    for k in range(parts.shape[1]):
        word, shift = divmod(7 * k, 64)
        bits = words[:, word] >> np.uint64(shift)
        if shift > 57 and word == 0:
            bits |= words[:, 1] << np.uint64(64 - shift)
        parts[:, k] = bits & np.uint64(127)
    places = np.arange(parts.shape[1])
    last = np.where(parts != 0, places, 0).max(axis=1, keepdims=True) if count else np.empty((0, 1), np.int64)
    parts |= np.where(places < last, np.uint8(128), np.uint8(0))
    return parts[places <= last].tobytes()
