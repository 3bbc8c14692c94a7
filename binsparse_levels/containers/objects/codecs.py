"""The compressions of chunks: encoding, and expansion into a buffer of known size."""

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

    encode: returns the stored bytes of the items of a chunk, with the settings from the metadata of its array.
    expand: fills a buffer with the bytes of a chunk, and expands no more. Raises any error for damaged bytes.
    most: the maximum stored size for a number of bytes. A larger chunk is not read.
    settings: those of a new array of a type, in the metadata of a version of Zarr.
    """

    encode: Callable[[npt.NDArray[Any], Settings], Any]
    expand: Callable[[Bytes, Bytes], None]
    most: Callable[[int], int]
    settings: Callable[[np.dtype[Any], int], Settings]


# Blosc: bytes, or bits, of items are grouped by their position in an item, then compressed in blocks. For counts as
# float64, LZ4 of grouped bits takes the same space as zstd of plain bytes, expands three times as fast, and compresses
# five times as fast.

_SHUFFLES = ["noshuffle", "shuffle", "bitshuffle"]  # version 3 of Zarr has these names, version 2 their numbers
# A block and the buffer that groups its bits fit L2: 222 µs → 124 … 205 µs to expand 64 Ki float64, compared with one
# block. The default of the library is eight times as large.
_BLOCK_BYTES = 2**14
_SIZES = slice(4, 16)  # of the head: three words, for the sizes of the expanded bytes, a block and the stored bytes


def _to_blosc(items: npt.NDArray[Any], settings: Settings) -> Any:
    from numcodecs import blosc

    shuffle, name = settings["shuffle"], settings["cname"].encode()
    number = shuffle if isinstance(shuffle, int) else _SHUFFLES.index(shuffle)
    return blosc.compress(items, name, settings["clevel"], number, settings["blocksize"])


def _from_blosc(raw: Bytes, out: Bytes) -> None:
    """Expand a chunk. The library trusts the sizes in the head, so they are compared with the buffers."""
    from numcodecs import blosc

    sizes = np.frombuffer(raw[_SIZES].tobytes(), "<u4").tolist()
    if len(sizes) != 3 or (sizes[0], sizes[2]) != (out.size, raw.size):
        raise ValueError(f"a chunk of {out.size} bytes is stored as {sizes}, in {raw.size}")
    blosc.decompress(raw, out)


def _blosc_settings(dtype: np.dtype[Any], version: int) -> Settings:
    """The settings for a type: neighbouring integers share bytes, other numbers only some bits."""
    number = 1 if dtype.kind in "iu" and dtype.itemsize > 1 else 2
    settings = {"cname": "lz4", "clevel": 5, "blocksize": _BLOCK_BYTES if number == 2 else 0}
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
    # Several frames, or a frame without its size. The decoder refuses to write more than fits, but does not report that
    # it wrote less. Bytes that it did not write keep their old value: 0 in this buffer, 255 in the other.
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
    """The declared expanded size of the first zstd frame (RFC 8878, section 3.1.1), or None."""
    head = raw[:18].tobytes().ljust(18, b"\0")
    single, width = head[4] >> 5 & 1, (0, 2, 4, 8)[head[4] >> 6]
    at = 6 - single + (0, 1, 2, 4)[head[4] & 3]
    if head[:4] != b"\x28\xb5\x2f\xfd" or not width | single:
        return None
    return int.from_bytes(head[at : at + max(width, 1)], "little") + 256 * (width == 2)


# gzip, and plain bytes

_GZIP = 31  # zlib's number


def _to_gzip(items: Any, settings: Settings) -> bytes:
    packer = zlib.compressobj(settings["level"], wbits=_GZIP)
    return packer.compress(items.data) + packer.flush()


def _from_gzip(raw: Bytes, out: Bytes) -> None:
    """Expand one or more gzip members."""
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
    """A bound on the compressed size of a number of bytes. A larger chunk is not read."""
    return 2 * size + 2**16


def _from_plain(raw: Bytes, out: Bytes) -> None:
    if raw.size != out.size:
        raise ValueError(f"a chunk of {out.size} bytes is stored in {raw.size}")
    out[:] = raw


CODECS: dict[str, Codec] = {  # by their names in Zarr
    "blosc": Codec(_to_blosc, _from_blosc, lambda size: size + 16, _blosc_settings),
    "zstd": Codec(_to_zstd, _from_zstd, _most_packed, lambda *_: {"level": 1}),
    "gzip": Codec(_to_gzip, _from_gzip, _most_packed, lambda *_: {"level": 5}),
    "none": Codec(lambda items, _: items.view(np.uint8), _from_plain, lambda size: size, lambda *_: {}),
}
