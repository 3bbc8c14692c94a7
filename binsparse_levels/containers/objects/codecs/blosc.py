"""Blosc buffers: bytes, or bits, of items are grouped by their place in an item, then compressed in blocks.

Of counts as float64, LZ4 takes as many bytes behind grouped bits as zstd takes without. It expands them three times as
fast, and makes them five times as fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .base import Bytes, Codec

_SHUFFLES = ["noshuffle", "shuffle", "bitshuffle"]  # version 3 of Zarr has these names, version 2 their numbers
_SIZES = slice(4, 16)  # of the head: three words, for the sizes of the expanded bytes, a block and the buffer


def _encode(items: np.ndarray[Any, Any], settings: Mapping[str, Any]) -> bytes:
    from numcodecs import blosc

    shuffle, name = settings["shuffle"], settings["cname"].encode()
    number = shuffle if isinstance(shuffle, int) else _SHUFFLES.index(shuffle)
    packed: bytes = blosc.compress(items, name, settings["clevel"], number, settings["blocksize"])
    return packed


def _expand(raw: Bytes, out: Bytes) -> None:
    """Fill `out`. The library believes the sizes in the head, so they are compared with the buffers."""
    from numcodecs import blosc

    sizes = np.frombuffer(raw[_SIZES].tobytes(), "<u4").tolist()
    if len(sizes) != 3 or (sizes[0], sizes[2]) != (out.size, raw.size):
        raise ValueError(f"a chunk of {out.size} bytes is stored as {sizes}, in {raw.size}")
    blosc.decompress(raw, out)


def _settings(dtype: np.dtype[Any], version: int) -> Mapping[str, Any]:
    """Whole numbers near each other differ in their low bytes; of others, some bits are alike."""
    number = 1 if dtype.kind in "iu" and dtype.itemsize > 1 else 2
    settings = {"cname": "lz4", "clevel": 5, "blocksize": 0}
    if version == 2:
        return {**settings, "shuffle": number}
    return {**settings, "shuffle": _SHUFFLES[number], "typesize": dtype.itemsize}


CODEC = Codec(_encode, _expand, lambda size: size + 16, _settings)
