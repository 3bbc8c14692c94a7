"""The size of every format to the byte, from counts alone: distinct coordinates by subset of the dimensions.

A count tells how many children a level has in any chain; dense levels above multiply it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from ..engine import packing
from ..engine.tree import index_dtype
from ..formats.format import Format, in_order
from ..levels import Level, full, listing
from ..limits import INT64_MAX, Limits
from ..tensors.tensor import Tensor
from ..tensors.validation import mirror_problems


@dataclass(frozen=True, eq=False)
class Sizes:
    """The numbers that all sizes follow from.

    counts: distinct coordinates by subset of the dimensions, a bit for each. value_size: bytes of a value. alike:
    whether the padding of an iso tensor equals its value.
    """

    shape: tuple[int, ...]
    entries: int
    counts: Mapping[int, int]
    value_size: int
    iso: bool
    alike: bool
    may_pad: bool
    limits: Limits

    @cached_property
    def itemsize(self) -> int:
        return index_dtype(self.shape, self.entries).itemsize

    def fits(self, n: int) -> bool:
        """Whether `n` positions are within the limits. Packing has the same rule."""
        return n <= self.entries + 1 or 8 * n <= min(self.limits.dense_bytes, INT64_MAX)

    def dims(self, covered: Sequence[int]) -> list[int]:
        return [self.shape[k] for k in covered]

    def step(
        self, level: Level, covered: Sequence[int], above: int, n: int, by: int | None
    ) -> tuple[int, int, int] | None:
        """The bytes of a level of `n` positions that all slices along dimension `by` read together, all its bytes, and
        its children; None if counts do not tell.
        """
        dims, root = self.dims(covered), not above
        distinct = self.counts.get(above | bits(covered))
        children = None if distinct is None else level.children(dims, n, distinct)
        size = None if children is None else level.nbytes(dims, n, children, root=root, itemsize=self.itemsize)
        if children is None or size is None:
            return None
        read: int | None = size
        if by in covered:
            at = covered.index(by)
            read = level.sliced(dims, n, children, at, root=root, itemsize=self.itemsize)
        elif by is not None and not above >> by & 1:
            read = self.shape[by] * size
        return None if read is None else (read, size, children)

    def values(self, n: int, padded: bool, by: int | None) -> tuple[int, int]:
        """The same for the values at `n` positions, which have no children. padded: some may be padding."""
        stays_iso = self.iso and (n == self.entries or self.alike or not padded)
        size = self.value_size * (1 if stays_iso else n)
        times = self.shape[by] if by is not None and self.iso and size == self.value_size else 1
        return times * size, size


def sizes_of(tensor: Tensor, has_values: bool, orders: Sequence[tuple[int, ...]] | None, limits: Limits) -> Sizes:
    own = tensor.format.order
    listed = tensor.convert(in_order(listing(tensor.ndim), own), limits=limits)
    tree = listed._tree
    columns, positions = packing.unpack_tree(tree, index_dtype(tree.dims, len(tree.values)))
    entries = len(positions) if tensor.ndim else tensor.nnz  # a list without coordinates would always have an entry
    counts = {0: min(entries, 1)}
    for order in (
        orders if orders is not None else [tuple(own[k] for k in part) for part in covering_orders(tensor.ndim)]
    ):
        relative = [own.index(k) for k in order]
        prefixes = packing.count_prefixes([tree.dims[k] for k in relative], [columns[k] for k in relative], relative)
        for depth in range(tensor.ndim):
            counts[bits(order[: depth + 1])] = prefixes[depth]
    pad = tensor._pad()
    dense = Format(full(tensor.ndim))
    held = tensor._tree.values  # where no entry is left, an iso tensor may know its value all the same
    value = held[0] if len(held) else np.zeros((), tensor.dtype)[()]
    return Sizes(
        shape=tensor.shape,
        entries=entries,
        counts=counts,
        value_size=tensor.dtype.itemsize,
        iso=has_values and tensor.iso,
        alike=packing.alike(pad, value),
        may_pad=tensor.structure is None or not mirror_problems(tensor.structure, dense, pad),
        limits=limits,
    )


def covering_orders(rank: int) -> Iterator[tuple[int, ...]]:
    """The fewest orders, C(rank, rank // 2), such that each subset of the dimensions begins one of them.

    Each order is a symmetric chain: dimensions out of and in a subset match like brackets. Matched dimensions stay, and
    the others enter from left to right.
    """
    for taken in product((False, True), repeat=rank):
        opening: list[int] = []
        first: list[int] = []
        last: list[int] = []
        for k, is_taken in enumerate(taken):
            if not is_taken:
                opening.append(k)
            elif opening:
                first.append(k)
                last.append(opening.pop())
            else:  # not the smallest subset of its chain
                break
        else:
            yield (*first, *opening, *sorted(last))


def bits(dimensions: Iterable[int]) -> int:
    return sum(1 << k for k in dimensions)
