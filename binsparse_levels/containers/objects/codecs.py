"""The compressions of chunks: encoding, and expansion into a buffer of known size."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..filters import chosen

Bytes: TypeAlias = npt.NDArray[np.uint8]
Settings: TypeAlias = Mapping[str, Any]


class Codec(NamedTuple):
    """A codec of chunks.

    encode: returns the stored bytes of the items of a chunk, with the settings from the metadata of its array.
    expand: fills a buffer with the bytes of a chunk, and expands no more. Raises any error for damaged bytes.
    most: the maximum stored size for a number of bytes. A larger chunk is not read.
    """

    encode: Callable[[npt.NDArray[Any], Settings], Any]
    expand: Callable[[Bytes, Bytes], None]
    most: Callable[[int], int]


# Blosc: bytes, or bits, of items are grouped by their position in an item, then compressed in blocks. For counts as
# float64, LZ4 of grouped bits takes the same space as zstd of plain bytes, expands three times as fast, and compresses
# five times as fast. For logarithms of counts, it takes twice the space of LZ4 of plain bytes.

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


def _blosc_settings(name: str, level: int, dtype: np.dtype[Any], version: int) -> list[Settings]:
    """The settings with each filter. Grouped bytes expand fastest."""
    found: list[Settings] = []
    for number in (1, 2, 0):
        small = number == 2 and name == "lz4"
        settings = {"cname": name, "clevel": level, "blocksize": _BLOCK_BYTES if small else 0}
        named = {"shuffle": _SHUFFLES[number], "typesize": dtype.itemsize}
        found.append({**settings, **({"shuffle": number} if version == 2 else named)})
    return found


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


def most_packed(size: int) -> int:
    """A bound on the compressed size of a number of bytes. A larger chunk is not read."""
    return 2 * size + 2**16


def _from_plain(raw: Bytes, out: Bytes) -> None:
    if raw.size != out.size:
        raise ValueError(f"expected {out.size} bytes in a chunk, got {raw.size}")
    out[:] = raw


CODECS: dict[str, Codec] = {  # by their names in Zarr
    "blosc": Codec(_to_blosc, _from_blosc, lambda size: size + 16),
    "zstd": Codec(_to_zstd, _from_zstd, most_packed),
    "gzip": Codec(lambda items, how: gzip.compress(items.data, how["level"], mtime=0), _from_gzip, most_packed),
    "none": Codec(lambda items, _: items.view(np.uint8), _from_plain, lambda size: size),
}

# By names in `write`: a key of CODECS, and a function that lists settings for a type and a version of Zarr.
COMPRESSIONS: dict[str, tuple[str, Callable[[np.dtype[Any], int], Sequence[Settings]]]] = {
    "blosc": ("blosc", partial(_blosc_settings, "lz4", 5)),
    "small": ("blosc", partial(_blosc_settings, "zstd", 3)),
    "zstd": ("zstd", lambda *_: [{"level": 1}]),
    "gzip": ("gzip", lambda *_: [{"level": 5}]),
    "none": ("none", lambda *_: [{}]),
}


def metadata_of(
    compression: str, settings: Settings | None, dtype: np.dtype[Any], version: int, chunks: Sequence[npt.NDArray[Any]]
) -> list[dict[str, Any]]:
    """The compression in the metadata of an array; an empty list for none.

    settings: those that the array had before; None chooses by the size of these chunks.
    """
    codec, listed = COMPRESSIONS[compression]
    if settings is None:
        every = listed(dtype, version)
        settings = chosen(every, chunks, CODECS[codec].encode) if len(every) > 1 else every[0]
    elif "typesize" in settings:
        settings = {**settings, "typesize": dtype.itemsize}
    found = {"id": codec, **settings} if version == 2 else {"name": codec, "configuration": dict(settings)}
    return [] if codec == "none" else [found]
