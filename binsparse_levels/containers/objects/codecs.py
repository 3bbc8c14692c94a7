"""The compressions of chunks: how bytes are encoded, and expanded into a buffer of their known size."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Settings: TypeAlias = Mapping[str, Any]


class Codec(NamedTuple):
    """A compression.

    encode: the stored bytes of the items of a chunk, with the settings that the metadata of its array name.
    expand: fills a buffer with the bytes of a chunk, and expands no more. Raises any error for damaged bytes.
    most: the bytes that so many take at most where they are stored. A larger chunk is not read.
    settings: those of a new array of a type, in the words of a version of Zarr.
    """

    encode: Callable[[npt.NDArray[Any], Settings], Any]
    expand: Callable[[Bytes, Bytes], None]
    most: Callable[[int], int]
    settings: Callable[[np.dtype[Any], int], Settings]


# Blosc: bytes, or bits, of items are grouped by their place in an item, then compressed in blocks. Of counts as
# float64, LZ4 takes as many bytes behind grouped bits as zstd takes without. It expands them three times as fast, and
# makes them five times as fast.

_SHUFFLES = ["noshuffle", "shuffle", "bitshuffle"]  # version 3 of Zarr has these names, version 2 their numbers
# A block and the buffer that groups its bits fit L2: 64 Ki float64 are expanded in 124 … 205 µs, as one block in 222.
# The library takes eight times as many bytes.
_BLOCK = 2**14
_SIZES = slice(4, 16)  # of the head: three words, for the sizes of the expanded bytes, a block and the buffer


def _to_blosc(items: npt.NDArray[Any], settings: Settings) -> Any:
    from numcodecs import blosc

    shuffle, name = settings["shuffle"], settings["cname"].encode()
    number = shuffle if isinstance(shuffle, int) else _SHUFFLES.index(shuffle)
    return blosc.compress(items, name, settings["clevel"], number, settings["blocksize"])


def _from_blosc(raw: Bytes, out: Bytes) -> None:
    """The library believes the sizes in the head, so they are compared with the buffers."""
    from numcodecs import blosc

    sizes = np.frombuffer(raw[_SIZES].tobytes(), "<u4").tolist()
    if len(sizes) != 3 or (sizes[0], sizes[2]) != (out.size, raw.size):
        raise ValueError(f"a chunk of {out.size} bytes is stored as {sizes}, in {raw.size}")
    blosc.decompress(raw, out)


def _blosc_settings(dtype: np.dtype[Any], version: int) -> Settings:
    """Whole numbers near each other differ in their low bytes; of others, some bits are alike."""
    number = 1 if dtype.kind in "iu" and dtype.itemsize > 1 else 2
    settings = {"cname": "lz4", "clevel": 5, "blocksize": _BLOCK if number == 2 else 0}
    if version == 2:
        return {**settings, "shuffle": number}
    return {**settings, "shuffle": _SHUFFLES[number], "typesize": dtype.itemsize}


# zstd


def _to_zstd(items: npt.NDArray[Any], settings: Settings) -> Any:
    return _zstd(settings).encode(items)


def _from_zstd(raw: Bytes, out: Bytes) -> None:
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


def _zstd(settings: Settings) -> Any:
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


# gzip, and bytes as they are

_GZIP = 31  # zlib's number


def _to_gzip(items: Any, settings: Settings) -> bytes:
    packer = zlib.compressobj(settings["level"], wbits=_GZIP)
    return packer.compress(items.data) + packer.flush()


def _from_gzip(raw: Bytes, out: Bytes) -> None:
    """The bytes of one or more gzip members."""
    data = b""
    rest: bytes | memoryview = raw.data
    while len(rest):
        stream = zlib.decompressobj(_GZIP)
        data += stream.decompress(rest, out.size + 1 - len(data))
        if len(data) > out.size or not stream.eof:
            break
        rest = stream.unused_data.lstrip(b"\0")
    if len(data) != out.size or len(rest):
        raise ValueError(f"a chunk does not expand to its {out.size} bytes")
    out[:] = np.frombuffer(data, np.uint8)


def _most_packed(size: int) -> int:
    """A bound on the compressed size of so many bytes. A larger chunk is not read."""
    return 2 * size + 2**16


def _from_plain(raw: Bytes, out: Bytes) -> None:
    if raw.size != out.size:
        raise ValueError(f"a chunk of {out.size} bytes is stored in {raw.size}")
    out[:] = raw


CODECS: dict[str, Codec] = {  # by the name that Zarr has
    "blosc": Codec(_to_blosc, _from_blosc, lambda size: size + 16, _blosc_settings),
    "zstd": Codec(_to_zstd, _from_zstd, _most_packed, lambda *_: {"level": 1}),
    "gzip": Codec(_to_gzip, _from_gzip, _most_packed, lambda *_: {"level": 5}),
    "none": Codec(lambda items, _: items.view(np.uint8), _from_plain, lambda size: size, lambda *_: {}),
}
