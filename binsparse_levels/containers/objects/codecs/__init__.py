"""The compressions of chunks, a file each: how bytes are encoded, and expanded into a buffer of their known size."""

from __future__ import annotations

from . import blosc, gzip, none, zstd
from .base import Bytes, Codec, Wanted

CODECS: dict[str, Codec] = {  # by the name that Zarr has
    "blosc": blosc.CODEC,
    "zstd": zstd.CODEC,
    "gzip": gzip.CODEC,
    "none": none.CODEC,
}

__all__ = ["CODECS", "Bytes", "Codec", "Wanted"]
