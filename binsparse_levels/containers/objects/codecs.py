"""The compressions of chunks: encoding, and expansion into a buffer of known size."""

from __future__ import annotations

import gzip
import io
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
    for mark in (165, 90):  # the decoder refuses to write more than fits. If it writes less, the last byte stays
        out[-1] = mark
        decode(raw, out)
        if out[-1] != mark:
            return
    raise ValueError(f"a chunk does not expand to its {out.size} bytes")


def _zstd(settings: Settings) -> Any:
    from numcodecs.zstd import Zstd  # takes 0.2 s, which the command line does without

    return Zstd(**settings)


# gzip, and plain bytes


def _from_gzip(raw: Bytes, out: Bytes) -> None:
    """Expand one or more gzip members."""
    _from_plain(np.frombuffer(gzip.GzipFile(fileobj=io.BytesIO(raw.data)).read(out.size + 1), np.uint8), out)


def _most_packed(size: int) -> int:
    """A bound on the compressed size of a number of bytes. A larger chunk is not read."""
    return 2 * size + 2**16


def _from_plain(raw: Bytes, out: Bytes) -> None:
    if raw.size != out.size:
        raise ValueError(f"expected {out.size} bytes in a chunk, got {raw.size}")
    out[:] = raw


CODECS: dict[str, Codec] = {  # by their names in Zarr
    "blosc": Codec(_to_blosc, _from_blosc, lambda size: size + 16, _blosc_settings),
    "zstd": Codec(_to_zstd, _from_zstd, _most_packed, lambda *_: {"level": 1}),
    "gzip": Codec(
        lambda items, how: gzip.compress(items.data, how["level"], mtime=0),
        _from_gzip,
        _most_packed,
        lambda *_: {"level": 5},
    ),
    "none": Codec(lambda items, _: items.view(np.uint8), _from_plain, lambda size: size, lambda *_: {}),
}
