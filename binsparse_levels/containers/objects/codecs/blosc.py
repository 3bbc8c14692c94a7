"""Blosc buffers: bytes, or bits, of items are grouped by their place in an item, then compressed in blocks.

Of counts as float64, LZ4 takes as many bytes behind grouped bits as zstd takes without. It expands them three times as
fast, and makes them five times as fast.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from .base import Bytes, Codec, Wanted

_SHUFFLES = ["noshuffle", "shuffle", "bitshuffle"]  # version 3 of Zarr has these names, version 2 their numbers
# A block and the buffer that groups its bits fit L2: 64 Ki float64 are expanded in 124 … 205 µs, as one block in
# 222, and some of them sooner. The library takes eight times as many bytes.
_BLOCK = 2**14
_FLAGS, _PLAIN = 2, 2  # of the head: the octet of flags, and the one of a buffer that is not compressed
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


def _expand_some(raw: Bytes, out: Bytes, wanted: Wanted) -> None:
    """Fill the blocks of `out` that are wanted, from buffers that begin with the places of these blocks alone."""
    head, first = raw[:16].copy(), 16  # where the places of the blocks begin
    sizes = head[_SIZES].view("<u4")
    block = int(sizes[1]) if len(sizes) == 3 else 0
    count = -(-out.size // block) if block else 0
    blocks = wanted(block) if count > 1 and not head[_FLAGS] & _PLAIN else ()
    if not 0 < len(blocks) < count or len(raw) < first + 4 * count or sizes[0] != out.size or sizes[2] != raw.size:
        _expand(raw, out)
        return
    places, rest = raw[first : first + 4 * count].view("<u4").astype(np.int64), raw[first + 4 * count :]
    if places.min() < first + 4 * count or places.max() >= raw.size:
        raise ValueError("a block lies outside its chunk")
    cuts = [0, *(k for k in range(1, len(blocks)) if blocks[k] != blocks[k - 1] + 1), len(blocks)]
    for a, b in itertools.pairwise(cuts):
        begin, end = blocks[a], blocks[b - 1] + 1
        if end == count:  # the last block may be short, and the library refuses a buffer that is shorter than a block
            begin = min(begin, count - 2)
        into, gone = out[begin * block : end * block], 4 * (count - (end - begin))
        sizes[0], sizes[2] = into.size, raw.size - gone
        _expand(np.concatenate([head, (places[begin:end] - gone).astype("<u4").view(np.uint8), rest]), into)


def _settings(dtype: np.dtype[Any], version: int) -> Mapping[str, Any]:
    """Whole numbers near each other differ in their low bytes; of others, some bits are alike."""
    number = 1 if dtype.kind in "iu" and dtype.itemsize > 1 else 2
    settings = {"cname": "lz4", "clevel": 5, "blocksize": _BLOCK if number == 2 else 0}
    if version == 2:
        return {**settings, "shuffle": number}
    return {**settings, "shuffle": _SHUFFLES[number], "typesize": dtype.itemsize}


CODEC = Codec(_encode, _expand, lambda size: size + 16, _settings, _expand_some)
