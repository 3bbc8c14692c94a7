"""The size of every format to the byte, from counts alone, and the formats that take the fewest bytes.

Sizes follow from one number per subset of the dimensions: its count of distinct coordinates. The count is the number of
children of a level in any chain; dense levels above multiply it. So the cost of a level depends only on the set of
dimensions above it, and on its positions. The cheapest formats are found subset by subset, from the leaves up.

Through an index map, the dimensions are those of the stored tensor, and one order is tried.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..engine import packing, sorting
from ..engine.tree import Tree, index_dtype, shared_dtype
from ..errors import FormatError, Problem, did_you_mean
from ..formats.format import Format, FormatLike, coordinates, in_order, parse_format
from ..formats.index_map import IndexMap, parse_map
from ..levels import LEVELS, Level, full, listing
from ..levels.positions import Array
from ..limits import INT64_MAX, Limits
from ..tensors.changing import expanded
from ..tensors.tensor import Tensor, inside
from ..tensors.validation import mirror_problems

MAX_RANK = sorting.MAX_FUSED_RANK  # above this rank one order is tried, and no map; 2^8 counts take 128 sorts
BLOCK_SIZES = (2, 4, 8)  # of the blocks that are tried
Choices: TypeAlias = dict[int, list[Level]]  # by rank


@dataclass(frozen=True, eq=False)
class Sizes:
    """The numbers that determine all sizes.

    counts: distinct coordinates by subset of the dimensions, a bit for each. by: the dimension of slices, or None.
    order: the only order that is tried, or None. itemsize, value_size: bytes of an index and of a value. alike: the
    padding of an iso tensor equals its value. map: the notation of the map to the stored tensor, whose sizes these are.
    """

    shape: tuple[int, ...]
    entries: int
    counts: Mapping[int, int]
    by: int | None
    order: tuple[int, ...] | None
    itemsize: int
    value_size: int
    iso: bool
    alike: bool
    may_pad: bool
    limits: Limits
    map: str | None = None

    def fits(self, n: int) -> bool:
        """True if `n` positions are within the limits. Packing has the same rule."""
        return n <= self.entries + 1 or 8 * n <= min(self.limits.dense_bytes, INT64_MAX)

    def step(self, level: Level, covered: Sequence[int], above: int, n: int) -> tuple[int, int, int] | None:
        """The bytes that all slices together read of a level of `n` positions, all its bytes, and its children; None if
        they depend on more than counts.
        """
        dims, root, by = [self.shape[k] for k in covered], not above, self.by
        distinct = self.counts.get(above | bits(covered))
        if distinct is None:  # the children may be the same for no entries as for all
            children, most = (level.children(dims, n, x) for x in (0, n * math.prod(dims)))
            children = children if children == most else None
        else:
            children = level.children(dims, n, distinct)
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

    def values(self, n: int, padded: bool) -> tuple[int, int]:
        """The bytes that slices read of `n` values, and all their bytes. padded: some values may be padding."""
        stays_iso = self.iso and (n == self.entries or self.alike or not padded)
        size = self.value_size * (1 if stays_iso else n)
        times = self.shape[self.by] if self.by is not None and self.iso and size == self.value_size else 1
        return times * size, size

    def blocks(self, above: int) -> list[tuple[int, ...]]:
        """The dimensions that the next level may cover. The dimension of the slices comes first in its level."""
        if self.order is not None:
            left = self.order[above.bit_count() :]
            return [left[:end] for end in range(1, len(left) + 1)]
        every = [k for k in range(len(self.shape)) if not above >> k & 1]
        parts = [part for r in range(1, len(every) + 1) for part in combinations(every, r)]
        return [tuple(sorted(part, key=lambda k: (k != self.by, k))) for part in parts]


def sizes_of(tensor: Tensor, has_values: bool, by: int | None, limits: Limits) -> Sizes:
    """Count the distinct coordinates of a tensor."""
    tree, columns, entries = _listed(tensor, limits)
    counts = {0: min(entries, 1)}
    every = tensor.ndim <= MAX_RANK
    own = tensor.format.order
    ranks = range(tensor.ndim, 0, -1) if every else [tensor.ndim]
    for part in (part for r in ranks for part in combinations(range(tensor.ndim), r)):
        if bits(own[k] for k in part) not in counts:  # a subset that begins a larger one is counted with it
            prefixes = packing.count_prefixes([tree.dims[k] for k in part], [columns[k] for k in part])
            counts |= {bits(own[k] for k in part[:depth]): n for depth, n in enumerate(prefixes, 1)}
    pad = inside(tensor).pad
    dense = Format(full(tensor.ndim))
    values = inside(tensor).tree.values  # an iso tensor may have a value without an entry
    value = values[0] if len(values) else np.zeros((), tensor.dtype)[()]
    return Sizes(
        shape=tensor.shape,
        entries=entries,
        counts=counts,
        by=by,
        order=None if every else own,
        itemsize=shared_dtype(tree.arrays, tree.dims, entries).itemsize,
        value_size=tensor.dtype.itemsize,
        iso=has_values and tensor.iso,
        alike=packing.alike(pad, value),
        may_pad=tensor.structure is None or not mirror_problems(tensor.structure, dense, pad),
        limits=limits,
    )


def mapped_sizes(tensor: Tensor, sizes: Sizes) -> Iterator[Sizes]:
    """The sizes through blocks, in the order of ALTO, and of the diagonals of a matrix.

    sizes: those of the tensor, which this expands if it has a structure, as maps do. The outer stored dimensions are
    counted: they do not determine the sizes of formats that divide a block among several levels.
    """
    if not 2 <= tensor.ndim <= MAX_RANK:
        return
    if tensor.structure is not None:
        tensor = expanded(tensor)
        sizes = sizes_of(tensor, True, None, sizes.limits)
    _, stored, entries = _listed(tensor, sizes.limits)
    columns = [stored[tensor.format.order.index(k)] for k in range(tensor.ndim)]
    if not entries:  # a map drops the value of an iso tensor without entries
        sizes = replace(sizes, alike=packing.alike(inside(tensor).pad, np.zeros((), tensor.dtype)[()]))
    for tried in (*BLOCK_SIZES, "alto", "1-0, 0"):
        block = [max(min(tried, n), 1) for n in tensor.shape] if isinstance(tried, int) else []
        try:
            text = str(IndexMap.blocks(tensor.shape, block) if block else tried)
            through = parse_map(text, tensor.shape)
        except FormatError:  # beyond 2**63 - 1, or no matrix
            continue
        shape = through.stored_shape
        if len(shape) > sizes.limits.rank:
            continue
        order, outer = tuple(range(len(shape))), min(tensor.ndim, len(shape) - 1)
        above: Sequence[Array] = []
        if block:  # the coordinates in a block, which `forward` makes too, take more memory than all else
            above = [x // n for x, n in zip(columns, block, strict=True)]
        elif outer:
            above = through.forward(columns)[:outer]
        prefixes = packing.count_prefixes(shape[:outer], above)
        counts = {(1 << depth) - 1: n for depth, n in enumerate([min(entries, 1), *prefixes])}
        itemsize = index_dtype(shape, entries).itemsize
        counts[(1 << len(shape)) - 1] = entries
        made = replace(sizes, shape=shape, counts=counts, order=order, itemsize=itemsize)
        yield replace(made, map=text, by=None, may_pad=True)


def _listed(tensor: Tensor, limits: Limits) -> tuple[Tree, list[Array], int]:
    """The entries of a tensor as a list in its order: a tree, coordinates by stored dimension, and their number."""
    tree = inside(tensor.convert(in_order(listing(tensor.ndim), tensor.format.order), limits=limits)).tree
    columns, positions = packing.unpack_tree(tree, index_dtype(tree.dims, len(tree.values)))
    entries = len(positions) if tensor.ndim else tensor.nnz  # a list without coordinates would always have an entry
    return tree, columns, entries


def entries_of(tensor: Tensor) -> tuple[list[Array], Array]:
    """The stored coordinates of a tensor by dimension, in the smallest sufficient type, and the values."""
    tree, columns, entries = _listed(tensor, tensor.limits)
    return [columns[tensor.format.order.index(k)] for k in range(tensor.ndim)], tree.values[:entries]


def bits(dimensions: Iterable[int]) -> int:
    return sum(1 << k for k in dimensions)


def usual_formats(tensor: Tensor) -> list[Format]:
    """The usual formats: the tensor's own, coordinates, all sparse, dense above sparse, all dense."""
    rank = tensor.ndim
    usual = [tensor.format, coordinates(rank)]
    dense, sparse = *full(1), *listing(1)
    for outer, inner in ((sparse, sparse), (dense, sparse), (dense, dense)):
        usual.append(Format((outer,) * (rank - 1) + (inner,) * min(rank, 1)))
    return list(dict.fromkeys(usual))


def named_formats(formats: Any) -> list[tuple[str, FormatLike]]:
    """List one format, several, or those of a mapping, each with its name, or else with its notation."""
    described = isinstance(formats, Mapping) and isinstance(formats.get("level"), Mapping)  # "level" may be a name
    if described or isinstance(formats, str | Format) or callable(formats):
        formats = [formats]
    if isinstance(formats, Mapping):
        return list(formats.items())
    return [(name_of(format), format) for format in formats]


def name_of(thing: Any) -> str:
    """A text itself, the name of a function, or the notation of a format."""
    if isinstance(thing, str):
        return thing
    return getattr(thing, "__name__", type(thing).__name__) if callable(thing) else str(parse_format(thing))


def choices_of(rank: int, kinds: Iterable[str], omitted: dict[str, str] | None = None) -> Choices:
    """The levels of each rank, for every kind without further parameters. omitted: gets reasons of kinds without."""
    names = sorted(set(kinds))  # formats of equal cost are in the same order, whatever the order of the kinds
    for name in (name for name in names if name not in LEVELS):
        known = f"{did_you_mean(name, LEVELS)}known are {', '.join(LEVELS)}"
        raise FormatError(Problem("kinds", f"{name!r} is no level kind; {known}"))
    choices: Choices = {r: [] for r in range(1, rank + 1)}
    for name in names:
        reasons = [f"has no level of at most {rank} dimensions"]
        for r in choices:
            try:
                level = LEVELS[name](r)
                choices[level.rank].append(level)
            except (FormatError, TypeError) as error:
                reasons.append(str(error))
        if omitted is not None and len(reasons) > len(choices):
            omitted[name] = reasons[-1]
    return choices


class _Chain(NamedTuple):
    """The inner levels of a format, and the dimensions that they cover."""

    cost: tuple[int, int, int]  # bytes that slices read, all bytes, levels
    levels: tuple[Level, ...]
    order: tuple[int, ...]


def cheapest(sizes: Sizes, choices: Choices, count: int) -> list[Format]:
    """Find the formats with the fewest bytes, or with the fewest bytes that slices read."""
    everything, blocks = (1 << len(sizes.shape)) - 1, cache(sizes.blocks)
    dense = full(1)[0].kind  # neighbours of this kind equal one level

    @cache
    def below(above: int, n: int, below_dense: bool, padded: bool) -> list[_Chain]:
        if above == everything:
            return [_Chain((*sizes.values(n, padded), 0), (), ())]
        longer = []
        for covered in blocks(above):
            reached = above | bits(covered)
            for level in choices[len(covered)]:
                is_dense = level.kind == dense
                if (is_dense and below_dense) or (reached == everything and level.padded and not sizes.may_pad):
                    continue
                step = sizes.step(level, covered, above, n)
                if step is None or not sizes.fits(step[2]):
                    continue
                read, size, children = step
                pads = sizes.iso and (padded or level.padded)  # it makes no difference to other values
                for chain in below(reached, children, is_dense, pads):
                    first, second, depth = chain.cost
                    longer.append(((first + read, second + size, depth + 1), level, covered, chain))
        best = heapq.nsmallest(count, longer, key=lambda x: x[0])
        return [_Chain(cost, (level, *rest.levels), covered + rest.order) for cost, level, covered, rest in best]

    found = [in_order(levels, order) for _, levels, order in below(0, 1, False, False)]
    return found if sizes.map is not None else list(dict.fromkeys(format.canonical() for format in found))
