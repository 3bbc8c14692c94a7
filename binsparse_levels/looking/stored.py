"""The bytes of a tensor in a format, in memory and in files: converted, or estimated from a sample."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ..errors import FormatError, LimitError, raise_if
from ..formats.format import Format, coordinates
from ..formats.index_map import parse_map
from ..io import write
from ..tensors.changing import with_tree
from ..tensors.packing import pack
from ..tensors.tensor import Tensor
from ..tensors.validation import mirror_problems

Stored: TypeAlias = Literal["memory", "narrow", "bitpacked"]  # as they are, or by the option of `write` of that name

_EXACT = 2**20  # entries of a tensor that is converted whole
_SAMPLE = 2**18  # entries of a sample, about
_NEIGHBOURS = 16  # coordinates that are sampled together, since blocks and runs hold neighbours


class Bytes(NamedTuple):
    """The bytes of all index and pointer arrays, those of the values, and whether they are estimated from a sample."""

    indices: int
    values: int
    estimated: bool = False


def bytes_in(tensor: Tensor, format: Format, map: str | None, stored: Stored) -> Bytes:
    """The bytes of a tensor in a format. Raises FormatError and LimitError for a tensor that it does not hold.

    Of more than 2**20 entries a sample is converted: fibers of the outermost dimension, each whole. What fibers without
    entries take grows with the number of fibers, the rest with the entries. A kind that may refuse fibers sees all, in
    slabs of some 2**20 entries; it is converted whole where it stores the outermost dimension itself.
    """
    refuses = [level.refuses for level in format.levels]
    if tensor.number_of_stored_values > _EXACT and not refuses[0]:
        entries = tensor if tensor.structure is None or map is not None else _triangle(tensor, format)
        sample = _sample(entries, format, map)
        if sample is not None:
            for slab in _slabs(entries, _outermost(entries, format, map)) if any(refuses) else ():
                slab.convert(format, map=map)
            with contextlib.suppress(FormatError, LimitError):  # of the sample, whose dimensions are smaller
                return _estimate(entries, format, map, stored, *sample)
    held = tensor.convert(format, map=map).stored
    return Bytes(index_bytes(held, stored), _values(held))


def _triangle(tensor: Tensor, format: Format) -> Tensor:
    """The stored entries of a tensor with a structure, without what its padding has outside the triangle."""
    raise_if(FormatError, mirror_problems(tensor.structure, format, tensor._pad()))
    listed = tensor.convert(coordinates(tensor.ndim))
    return with_tree(listed, listed.format, listed._tree, structure=None)


def _values(held: Tensor) -> int:
    return held.nbytes - index_bytes(held, "memory")


def _estimate(tensor: Tensor, format: Format, map: str | None, stored: Stored, part: Tensor, share: float) -> Bytes:
    entries = tensor.number_of_stored_values / part.number_of_stored_values
    empty = pack([[]] * part.ndim, np.empty(0, part.dtype), part.shape, coordinates(part.ndim))
    held, nothing = (x.convert(format, map=map).stored for x in (part, empty))

    def scaled(full: int, fixed: int) -> int:
        return round(fixed / share + (full - fixed) * entries)

    indices = scaled(index_bytes(held, stored), index_bytes(nothing, stored))
    values = _values(held) if held.iso else scaled(_values(held), _values(nothing))
    return Bytes(indices, values, True)


def _sample(tensor: Tensor, format: Format, map: str | None) -> tuple[Tensor, float] | None:
    """Some fibers of the outermost dimension, and their share. None: few entries, or few fibers."""
    entries = tensor.number_of_stored_values
    if tensor.structure is not None:
        return None
    outermost = _outermost(tensor, format, map)
    size = tensor.shape[outermost]
    groups, wanted = size // _NEIGHBOURS, size // _NEIGHBOURS * _SAMPLE // entries
    if wanted < 8:
        return None
    chosen = np.sort(np.random.default_rng(0).choice(groups, wanted, replace=False))
    rows = (chosen[:, None] * _NEIGHBOURS + np.arange(_NEIGHBOURS)).ravel()
    part = tensor[(slice(None),) * outermost + (rows,)].load()
    return (part, len(rows) / size) if part.number_of_stored_values else None


def _outermost(tensor: Tensor, format: Format, map: str | None) -> int:
    """The dimension of the tensor that the first level stores, or the first digit of."""
    first = format.order[0]
    return first if map is None else parse_map(map, tensor.shape).groups[first][0].dimension


def _slabs(tensor: Tensor, dimension: int) -> Iterator[Tensor]:
    """Neighbouring coordinates of a dimension, with some 2**20 entries if these lie evenly."""
    size = tensor.shape[dimension]
    step = max(size * _EXACT // tensor.number_of_stored_values // _NEIGHBOURS, 1) * _NEIGHBOURS
    for start in range(0, size, step):
        yield tensor[(slice(None),) * dimension + (slice(start, start + step),)].load()


def index_bytes(tensor: Tensor, how: Stored) -> int:
    """The bytes of all arrays but the values."""
    if how == "memory":
        return sum(x.nbytes for x in tensor.stored.arrays.values())
    store: dict[str, Any] = {}
    write(store, tensor, narrow=how == "narrow", bitpacked=how == "bitpacked")
    arrays = {name: x for name, x in store.items() if isinstance(x, np.ndarray)}
    return sum(x.nbytes for name, x in arrays.items() if name in tensor.stored.arrays)
