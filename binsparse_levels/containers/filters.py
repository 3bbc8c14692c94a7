"""The filter of an array, chosen on three of its chunks.

A filter groups the bytes, or the bits, of neighbouring items by their place in an item. No filter is always best: three
significant digits as float64 take 16 bits with zstd alone and 40 with grouped bytes, random floats 60 and 56.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import TypeVar

import numpy as np

from ..arrays import Array, Pieces

Way = TypeVar("Way")
GZIP_LEVEL = 4  # in HDF5, as in h5py
_SLACK = 1.05  # times the bytes, for a faster way: counts with zstd expand twice as fast from grouped bytes


def begun(pieces: Pieces, size: int) -> tuple[Array, Iterator[Array]]:
    """The first piece of multiples of `size` items, and all of them. Each is made once."""
    rest = pieces.regrouped(size)
    first = next(rest, np.empty(0, pieces.dtype))
    return first, itertools.chain([first], rest)


def sample(items: Array, chunk: int) -> list[Array]:
    """The first, the middle and the last whole chunk of an array. A shorter array is its only chunk."""
    last = max(len(items) // chunk - 1, 0)
    places = sorted({0, (last + 1) // 2, last}) if len(items) else []
    return [np.ascontiguousarray(items[k * chunk : (k + 1) * chunk]) for k in places]


def chosen(ways: Sequence[Way], chunks: Sequence[Array], encode: Callable[[Array, Way], Sized]) -> Way:
    """The first way that encodes the chunks in about the fewest bytes. ways: those that are undone faster first."""
    sizes = [sum(len(encode(chunk, way)) for chunk in chunks) for way in ways]
    return next(way for way, size in zip(ways, sizes, strict=True) if size <= _SLACK * min(sizes))


def deflated(items: Array, shuffle: bool) -> bytes:
    """The bytes of a chunk as HDF5 stores them with gzip. shuffle: group the bytes of items by their place."""
    plain = items.view(np.uint8)
    return zlib.compress((plain.reshape(-1, items.itemsize).T.copy() if shuffle else plain).data, GZIP_LEVEL)
