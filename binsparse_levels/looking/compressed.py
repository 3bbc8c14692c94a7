"""The compressed size of a tensor in any format, estimated from sixteen slabs of its entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from ..containers.base import Storage
from ..containers.filters import deflated
from ..containers.objects.codecs import CODECS, COMPRESSIONS
from ..errors import BinsparseError
from ..formats.format import Format, with_map
from ..levels.positions import Array
from ..limits import INT64_MAX
from ..tensors.encoding import encode_tensor
from ..tensors.packing import pack
from ..tensors.tensor import Tensor
from ..thresholds import THRESHOLDS
from .sizes import BLOCK_SIZES, entries_of

_SLABS, _SHARE = 16, 0.01  # of the tensor that all slabs cover
_ENTRIES = 2**15  # of the slabs at least: a smaller tensor is compressed whole
_MAX_BYTES = 2**27  # of the slabs in a format; a larger one is not compressed


class Slabs:
    """Slabs of a tensor, which are packed and compressed in its place.

    compression: as of `write`, gzip as in HDF5; None and "none" are "small", by which nothing is ranked.
    """

    def __init__(self, tensor: Tensor, compression: str | None) -> None:
        Storage(compression).refuse("advise", but=("compression",), compressions=COMPRESSIONS)
        self.ranks = compression not in (None, "none")
        self.compression = compression if compression is not None and self.ranks else "small"
        self._tensor, self._entries = tensor, cache(lambda: entries_of(tensor))
        self._slabs, self.nbytes = cache(self._cut), cache(self._estimate)

    def _estimate(self, notation: str, format: Format, nbytes: int) -> int | None:
        """The bytes of all arrays in a file, or None if the slabs are too large. nbytes: those in memory."""
        map, scale = with_map(notation)[1], 1.0
        if self._tensor.number_of_stored_values <= _ENTRIES:
            make: Callable[[], Tensor] = partial(self._tensor.convert, format, map=map)
        else:
            lead = self._leading(format.order if map is None else ())
            coords, values, shape = self._slabs(lead, 1 if map is None else max(BLOCK_SIZES))
            scale, one = len(self._entries()[1]) / len(values), values[0] if self._tensor.iso else values
            make = partial(pack, coords, one, shape, format, map=map, fill_value=self._tensor.fill_value)
        if nbytes > scale * _MAX_BYTES:
            return None
        try:
            packed = make()
            stored = encode_tensor(packed)[1]
        except BinsparseError:
            return None
        return round(scale * sum(_compressed(stored[name], self.compression) for name in (*packed.arrays, "values")))

    def _leading(self, order: Sequence[int]) -> tuple[int, ...]:
        """The dimensions of the slabs: the first ones that have enough coordinates together; or the longest one."""
        sizes = self._tensor.shape
        if not order:
            return tuple(sorted(range(len(sizes)), key=sizes.__getitem__)[-1:])
        products = [math.prod(sizes[k] for k in order[:count]) for count in range(1, len(order) + 1)]
        enough = sum(x * _SHARE < _SLABS for x in products) + 1
        return tuple(order[: min(enough, sum(x <= INT64_MAX for x in products))])

    def _cut(self, lead: Sequence[int], unit: int) -> tuple[list[Array], Array, list[int]]:
        """The entries in slabs that are moved together, and the sizes of the dimensions.

        lead: dimensions that are numbered as one. unit: of the widths. If slabs have few entries, wider ones are cut.
        """
        (coords, values), sizes = self._entries(), list(self._tensor.shape)
        share = max(_SHARE, _ENTRIES / max(len(values), 1))
        least, number = share * len(values) / 4, np.zeros(len(values), np.int64)
        for k in lead if share < 1 else ():
            number = number * sizes[k] + coords[k]
        while share < 1:
            first = int(number.min()) // unit * unit
            every = int(number.max()) + 1 - first
            count = max(min(int(every * share) // unit, _SLABS), 1)
            width = max(-(-int(every * share) // (count * unit)), 1) * unit
            middles = [(every - width) * (2 * k + 1) // (2 * count * unit) * unit for k in range(count)]
            slab = np.searchsorted(middles, number - first, "right") - 1
            place = number - first - np.take(middles, slab)
            kept = np.flatnonzero((slab >= 0) & (place < width))
            if len(kept) >= least:
                found = [x[kept] for x in coords]
                for k in lead:
                    found[k], sizes[k] = np.zeros(len(kept), np.int64), 1
                found[lead[-1]], sizes[lead[-1]] = (place + slab * width)[kept], count * width
                return found, values[kept], sizes
            share *= 4
        return coords, values, sizes


def _compressed(items: Array, compression: str) -> int:
    """The bytes of an array in compressed chunks, with the best filter."""
    items, step = np.ascontiguousarray(items), THRESHOLDS.zarr_chunk
    chunks = [items[at : at + step] for at in range(0, len(items), step)]
    if compression == "gzip":
        return min(sum(len(deflated(x, shuffle)) for x in chunks) for shuffle in (True, False))
    codec, settings = COMPRESSIONS[compression]
    return min(sum(len(CODECS[codec].encode(x, how)) for x in chunks) for how in settings(items.dtype, 3))
