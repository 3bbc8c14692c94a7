"""zstd frames, expanded to a bounded size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...direct import most_stored
from .base import Bytes, Codec


def _encode(items: Any, settings: Mapping[str, Any]) -> Any:
    return _zstd(settings).encode(items)


def _expand(raw: Bytes, out: Bytes) -> None:
    """Fill `out` from the frames in `raw`, and expand no more. Raises ValueError, and the errors of the decoder."""
    decode = _zstd({}).decode
    if _frame_size(raw) == out.size:
        decode(raw, out)
        return
    # Several frames, or a frame that does not tell its size. The decoder refuses to write more than fits, but does not
    # tell that it wrote less. Bytes that it did not write keep what a buffer held before: 0 here, 255 in the other.
    other = np.full(out.size, 255, np.uint8)
    out[:] = 0
    decode(raw, out)
    decode(raw, other)
    if not np.array_equal(out, other):
        raise ValueError(f"a chunk does not expand to its {out.size} bytes")


def _zstd(settings: Mapping[str, Any]) -> Any:
    from numcodecs.zstd import Zstd  # takes 0.2 s, which the command line does without

    return Zstd(**settings)


def _frame_size(raw: Bytes) -> int | None:
    """The declared size of the first zstd frame when expanded (RFC 8878, section 3.1.1), or None."""
    head = raw[:18].tobytes().ljust(18, b"\0")
    single, width = head[4] >> 5 & 1, (0, 2, 4, 8)[head[4] >> 6]
    at = 6 - single + (0, 1, 2, 4)[head[4] & 3]
    if head[:4] != b"\x28\xb5\x2f\xfd" or not width | single:
        return None
    return int.from_bytes(head[at : at + max(width, 1)], "little") + 256 * (width == 2)


CODEC = Codec(_encode, _expand, most_stored, lambda *_: {"level": 1})
