"""The trees that nests run over, and the statements that compute coordinates of the tensor from theirs.

A tensor in memory is its stored tree. A tensor in a file is read in blocks, each a list of entries. An index map,
padding and a view are statements, which assign the coordinates of the tensor and skip other cells. A statement is
placed in the outermost loop in which the coordinates that it needs are known. For padded
blocks of 4 × 4, in which x0 … x3 are the coordinates of `0/4, 1/4, 0%4, 1%4`:

    y0d0p0 = x0 * u8(4)                in the loop over x0
    y0d0 = y0d0p0 + x2                 in the loop over x2; the rest is skipped if the sum reaches the size

Only this module depends on what a Tensor contains.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from ..engine.blocks import Block, blocks_of, read_block
from ..engine.selection import ascending, positions_within
from ..engine.tree import Tree, index_dtype
from ..engine.views import Selection, all_of
from ..errors import LimitError, Problem
from ..formats.digits import Item
from ..formats.format import coordinates, in_order
from ..formats.index_map import IndexMap, Part
from ..levels import Level, listing, places
from ..levels.base import SPARSE
from ..levels.positions import Array
from ..tensors.backing import Backing, TreeBacking
from ..tensors.changing import expanded, with_tree
from ..tensors.tensor import Tensor, inside, tensor_of
from ..tensors.views import Joined, Mapped, Viewed, around, windowed
from ..thresholds import THRESHOLDS
from .mapping import sum_of
from .nest import Leaf, Seen, Wrap, have_loops

_LOADED = 3  # times the bytes of a tree: reading, checking and expanding its structure


class Walk(NamedTuple):
    """A tree that a nest runs over. arguments: for the names of `seen`. whole: it has all entries."""

    tree: Tree
    seen: Seen
    arguments: tuple[Any, ...]
    whole: bool


class _Window(NamedTuple):
    """A part of a tensor: the coordinates of each dimension, and the size of the whole dimension."""

    items: tuple[Item, ...]
    sizes: tuple[int, ...]


_Layer: TypeAlias = "IndexMap | Selection | _Window"  # from a tree to a tensor: steps, the first at the tree


def walks(tensor: Tensor, memory: int, used: int, above: tuple[_Layer, ...] = ()) -> Iterator[Walk]:
    """Iterate over the trees of a tensor. Each entry is in one tree. memory: in bytes; the result takes `used` of them.

    above: the layers from this tensor to that of the nest. Raises LimitError, before any tree is read, if the memory
    does not suffice for one entry.
    """
    held = inside(tensor).backing
    if isinstance(held, Joined) and held.lazy:
        return _walks_of_parts(tensor, held, memory, used, above)
    stored, tree = held.stored, held.stored.tree
    if not tree.lazy or not held.shape or (layers := _layers(held)) is None:
        return iter((walk_of(tensor, above),))
    each = 32 * len(tree.dims) + 4 * tree.values.dtype.itemsize
    size = min(THRESHOLDS.block_entries, (memory - used) // each)
    if size < 1:
        what = f"{memory} bytes are too few for a result of {used} and one entry; pass a larger memory="
        raise LimitError(Problem("memory", what))
    if held.viewed and _share(held) * len(tree.values) <= size:
        return iter((walk_of(tensor, above),))
    fits = len(tree.values) <= size and _LOADED * _nbytes(tree) <= memory - used
    if not held.viewed and fits and have_loops(tree.levels):
        anew = around(held, TreeBacking(stored.format, tree, stored.limits, stored.structure))  # the tensor stays lazy
        return iter((walk_of(tensor_of(anew, inside(tensor).metadata), above),))
    return _listed_blocks(stored, (*layers, *above), size)


def _walks_of_parts(tensor: Tensor, held: Joined, memory: int, used: int, above: tuple[_Layer, ...]) -> Iterator[Walk]:
    """The trees of the parts of a tensor, one part after the other. A part may have parts itself."""
    metadata = replace(inside(tensor).metadata, labels=None)
    for part in held.parts():
        window = _Window(part.places, held.shape)
        yield from walks(tensor_of(part.backing, metadata), memory, used, (window, *above))


def _listed_blocks(stored: TreeBacking, layers: Sequence[_Layer], size: int) -> Iterator[Walk]:
    """The entries of a lazy tree, `size` at a time, as lists in the order in which they are stored.

    Those of kinds without an order may be in any order.
    """
    tree = stored.tree
    for block in _blocks(stored, layers, size):
        columns, values = read_block(tree, block, index_dtype(tree.dims, 0))
        ascends = bool(np.all(columns[0][1:] >= columns[0][:-1]))
        arrays = {f"indices_{k}": x for k, x in enumerate(columns)}
        listed = Tree(listing(len(tree.dims)), tree.dims, arrays, values, ascends=ascends)
        yield _walk(listed, stored, layers, whole=False)


def walk_of(tensor: Tensor, above: tuple[_Layer, ...] = ()) -> Walk:
    """The tree of a tensor, read into memory. above: as for `walks`."""
    held, pad = inside(tensor).backing, inside(tensor).pad
    layers: tuple[_Layer, ...] = ()
    if isinstance(held, Viewed) and (isinstance(held.base, Mapped) or held.selection.distinct()[1]):
        base, map = held.base, held.base.map or IndexMap.transpose(held.base.shape)
        windows = map.windows(held.selection.items)
        part = windowed(base.base if isinstance(base, Mapped) else base, windows)
        layers = (_Window(tuple(windows), map.stored_shape), map, held.selection)
        stored = part.own(pad).stored
    else:
        own = held.own(pad)
        layers, stored = (() if own.map is None else (own.map,)), own.stored
    if any(isinstance(layer, IndexMap) and _digits(layer) > THRESHOLDS.map_digits for layer in layers):
        return walk_of(tensor.without_map(), above)
    if not have_loops(stored.tree.levels):
        whole = tensor_of(stored, replace(inside(tensor).metadata, labels=None))
        whole = whole.convert(in_order(coordinates(whole.ndim).levels, whole.format.order))
        stored = inside(whole).backing.own(pad).stored
    return _walk(stored.tree, stored, (*layers, *above), whole=not above)


_lower: WeakKeyDictionary[Tree, dict[int, Tree]] = WeakKeyDictionary()  # trees without their first levels


def without_unused_levels(walk: Walk, leaf: Leaf) -> Walk:
    """The walk without first levels whose coordinates the leaf does not use, if the next level is a list.

    All children of a list are contiguous, whatever their fibers (sums by column, 1 M rows of one entry: 6.2 → 2.4 ms).
    """
    known = min([walk.seen.known[k] for k in leaf.used], default=len(walk.tree.dims))
    if known < 2 or (below := _below(walk.tree.levels, walk.seen, known)) is None:
        return walk
    tree, (d, seen) = walk.tree, below
    kept = _lower.setdefault(tree, {})
    if d not in kept:
        steps = list(tree.walk())
        dims = tree.dims[steps[d][0].depth :]
        new = zip(places(tree.levels[d:], dims), steps[d:], strict=True)
        arrays = {spec.name: here[role] for place, (_, here, _) in new for role, spec in place.arrays.items()}
        kept[d] = Tree(tree.levels[d:], dims, arrays, tree.values, tree.iso, ascends=False)
    return Walk(kept[d], seen, (), walk.whole)


@functools.lru_cache(1024)
def _below(levels: tuple[Level, ...], seen: Seen, known: int) -> tuple[int, Seen] | None:
    """The last level at which a walk can begin, and the statements of the levels from there.

    known: the number of stored coordinates that determine the first coordinate that the leaf uses.
    """
    depths = [sum(level.rank for level in levels[:d]) for d in range(len(levels))]
    shared = next((d for d, level in enumerate(levels) if level.shares), len(levels))
    for d in range(min(len(levels) - 1, shared), 0, -1):
        if depths[d] < known and (levels[d].fused() or ())[:1] == (SPARSE,) and seen.stored is not None:
            left = tuple([max(x - depths[d], 0) for x in seen.known])
            wraps = tuple([Wrap(x, f"c{k} = x{x - 1}\nyield") for k, x in enumerate(left) if x])
            return d, Seen(wraps, left, None)
    return None


def with_values(tensor: Tensor, values: Array, fill: Any) -> Tensor:
    """A tensor in memory around the same index arrays, with other values by position."""
    tree = inside(tensor).in_memory
    return with_tree(tensor, tensor.format, Tree(tree.levels, tree.dims, tree.arrays, values), fill_value=fill)


def in_memory(tensor: Tensor) -> Tensor:
    """The same entries in memory without a structure, each with its own value, in levels that have a loop."""
    whole = expanded(tensor.load())
    if not have_loops(whole.format.levels) or inside(whole).in_memory.shares:
        return whole.without_map(coordinates(whole.ndim))
    return whole


def _nbytes(tree: Tree) -> int:
    return sum(x.shape[0] * x.dtype.itemsize for x in (*tree.arrays.values(), tree.values))


def _layers(held: Backing) -> tuple[_Layer, ...] | None:
    """The layers between the stored tree and a tensor; None if nests do not support one of them."""
    if isinstance(held, TreeBacking):
        return ()
    assert isinstance(held, Mapped | Viewed)
    layer = held.map if isinstance(held, Mapped) else held.selection
    below = _layers(held.base)
    if below is None or (isinstance(layer, IndexMap) and _digits(layer) > THRESHOLDS.map_digits):
        return None
    return (*below, layer)


def _digits(through: IndexMap) -> int:
    return sum(map(len, through.groups))


def _share(held: Backing) -> float:
    """The share of the stored entries in a view, if they are spread evenly."""
    if isinstance(held, TreeBacking):
        return 1.0
    assert isinstance(held, Mapped | Viewed)
    share = _share(held.base)
    for item, size in zip(held.selection.items, held.base.shape, strict=True) if isinstance(held, Viewed) else ():
        share *= (1 if isinstance(item, int) else len(item)) / max(size, 1)
    return share


def _blocks(stored: TreeBacking, layers: Sequence[_Layer], size: int) -> Iterator[Block]:
    """Blocks of all entries in a lazy tree that may be in the tensor."""
    tree = stored.tree
    windows: Sequence[Item] = all_of(stored.shape).items
    if layers and isinstance(layers[0], Selection):
        windows = layers[0].items
    elif len(layers) > 1 and isinstance(layers[0], IndexMap) and isinstance(layers[1], Selection):
        windows = layers[0].windows(layers[1].items)
    selected = ascending(windows[stored.format.order[0]])
    return blocks_of(tree, size, positions_within(tree, selected) if stored.structure is None else None)


def _is_all(item: Item, size: int) -> bool:
    return isinstance(item, range) and item == range(size)


# From layers to statements


def _walk(tree: Tree, stored: TreeBacking, layers: Sequence[_Layer], *, whole: bool) -> Walk:
    """A tree as nests run over it: that of a stored tensor, or a list of its entries."""
    order = stored.format.order  # the dimension of the stored tensor at each of the tree
    sizes: Sequence[int] = [tree.dims[order.index(k)] for k in range(len(order))]
    values: list[Sequence[Any]] = []  # the values of the names of each layer, by dimension
    steps: list[_Step] = []
    for layer in layers:
        if isinstance(layer, IndexMap):
            steps.append(layer)
            sizes = layer.shape
            values.append(sizes)
        elif isinstance(layer, _Window):
            steps.append(_Kinds(tuple(map(_kept, layer.items, layer.sizes)), None))
            values.append(layer.items)
        else:
            steps.append(_Kinds(tuple(map(_wanted, layer.items, sizes)), layer.dimensions))
            values.append(layer.items)
            sizes = layer.shape
    seen = _seen(order, stored.structure, tuple(steps))
    return Walk(tree, seen, tuple(_argument(name, values) for name in seen.names), whole)


class _Kinds(NamedTuple):
    """A layer without its numbers: the statements for each dimension below, the dimensions below at those above."""

    kinds: tuple[str, ...]
    dimensions: tuple[int, ...] | None


_Step: TypeAlias = "IndexMap | _Kinds"

# The letters of `_argument` and the statements by kind. `u` is a coordinate below, `c` that above.
_STATEMENTS = {
    # of a view: they skip cells outside of it, and number those inside
    "at": ("a", "if u == a:\n    yield"),
    "on": ("al", "c = u - a\nif c < l:\n    yield"),  # a difference below 0 is large: integers are unsigned
    "up": ("adl", "c = (u - a) // d\nif c < l and (u - a) % d == u8(0):\n    yield"),
    "down": ("adl", "c = (a - u) // d\nif c < l and (a - u) % d == u8(0):\n    yield"),
    "some": ("op", "if u < u8(p.size - 1):\n    for j in range(p[u], p[u + u8(1)]):\n     c = o[j]\n     yield"),
    "any": ("ov", "for j in range(np.searchsorted(v, u), np.searchsorted(v, u, 'right')):\n    c = o[j]\n    yield"),
    # of a window: from coordinates in the part to those in the whole
    "from": ("ad", "c = u * d + a\nyield"),
    "of": ("g", "c = g[u]\nyield"),
}


def _wanted(item: Item, size: int) -> str:
    """The kind of a dimension of a view."""
    if _is_all(item, size):
        return "all"
    if isinstance(item, range):
        return "on" if item.step == 1 else "up" if item.step > 0 else "down"
    return "at" if isinstance(item, int) else "some" if size <= THRESHOLDS.table_size else "any"


def _kept(item: Item, size: int) -> str:
    """The kind of a dimension of a window."""
    return "of" if not isinstance(item, range) else "all" if item == range(size) else "from"


def _argument(name: str, values: Sequence[Sequence[Any]]) -> Any:
    """The value of a name: a letter, the number of a layer, `d`, a dimension below."""
    letter, numbers = name[0], name[1:].split("d")
    item = values[int(numbers[0])][int(numbers[1])]
    match letter:
        case "w":  # a size
            return np.uint64(item)
        case "a":  # the first coordinate
            return np.uint64(item if isinstance(item, int) else item.start)
        case "d":  # the distance of the coordinates
            return np.uint64(abs(item.step))
        case "l":  # the number of coordinates
            return np.uint64(len(item))
        case "p":  # the number of smaller ones, for each coordinate
            return np.searchsorted(np.sort(item), np.arange(item.max(initial=-1) + 2)).astype(np.uint64)
        case "v":  # the coordinates in order
            return np.sort(item).astype(np.uint64)
        case "o":  # and their places before
            return np.argsort(item, kind="stable").astype(np.uint64)
    return np.asarray(item, np.uint64)


# An entry of one triangle, and its mirror image, whose value is that of `_MIRRORED`. Padded kinds have both triangles.
_WITH_MIRROR = """i, j, is_mirror = {i}, {j}, False
if not i {outside} j:
    yield
    if i != j:
        i, j, is_mirror = {j}, {i}, True
        yield"""
_MIRRORED = {"symmetric": "", "skew_symmetric": "np.negative(value)", "hermitian": "np.conjugate(value)"}


class _Known(NamedTuple):
    """A coordinate: its text, the number of coordinates of the tree that determine it, and the one that it equals."""

    text: str
    by: int
    stored: int | None = None


@functools.lru_cache(1024)
def _seen(order: tuple[int, ...], structure: str | None, steps: tuple[_Step, ...]) -> Seen:
    """The statements of a nest over a tree below layers."""
    wraps: list[Wrap] = []
    named: set[str] = set()  # the arguments of the texts
    known = [_Known(f"x{x}", x + 1, x) for x in map(order.index, range(len(order)))]
    first: set[int] | None = {order[0]} if order else None  # dimensions that determine the first stored coordinate
    mirrored = ""
    if structure is not None:
        kind, _, triangle = structure.rpartition("_")
        (i, j), mirrored = (x.text for x in known), _MIRRORED[kind]
        wraps.append(Wrap(2, _WITH_MIRROR.format(i=i, j=j, outside="<" if triangle == "lower" else ">")))
        known, first = [_Known("i", 2), _Known("j", 2)], None
    for n, step in enumerate(steps):
        if isinstance(step, IndexMap):
            after = steps[n + 1] if n + 1 < len(steps) else None
            kinds: Sequence[str] = ("all",) * len(step.shape)
            if isinstance(after, _Kinds) and after.dimensions is not None:  # a view skips padding itself
                kinds = after.kinds
            differences = dict(step.differences)
            known = [
                _followed(wraps, n, k, summands, known, k not in differences and step.pads(k) and kinds[k] == "all")
                for k, summands in enumerate(step.parts())
            ]
            for k, less in differences.items():
                known[k] = _added(wraps, n, k, known[k], less, known[less])
            named |= {f"w{n}d{k}" for k in range(len(step.shape))}
            first = None if first is None else {k for s in first for digit in step.groups[s] for k in digit.asked}
        else:
            above = [
                _placed(wraps, kind, f"{n}d{k}", x) for k, (kind, x) in enumerate(zip(step.kinds, known, strict=True))
            ]
            named |= {f"{x}{n}d{k}" for k, kind in enumerate(step.kinds) for x in _STATEMENTS.get(kind, ("", ""))[0]}
            if step.dimensions is not None:
                known = [above[k] for k in step.dimensions]
                kept = first is not None and first <= set(step.dimensions)
                first = {step.dimensions.index(k) for k in first or ()} if kept else None
            else:
                known = above
    same = tuple([x.stored for x in known if x.stored is not None])
    stored = None if wraps or len(same) < len(known) else same
    wraps += [Wrap(x.by, f"c{k} = {x.text}\nyield") for k, x in enumerate(known)]
    told_by = None if first is None else frozenset(first)
    names, fixed = tuple(sorted(named)), _fixed(order, steps)
    return Seen(tuple(wraps), tuple(x.by for x in known), told_by, stored, names, fixed, mirrored)


def _fixed(order: tuple[int, ...], steps: Sequence[_Step]) -> tuple[tuple[int, int], ...]:
    """The dimensions of the tree whose size follows from the notation of a map, and these sizes."""
    cut = steps[0].kinds if steps and isinstance(steps[0], _Kinds) and steps[0].dimensions is None else None
    map = next(iter(steps[0 if cut is None else 1 :]), None)
    if not isinstance(map, IndexMap):
        return ()
    fixed = [(x, map.fixed_size(s)) for x, s in enumerate(order) if cut is None or cut[s] == "all"]
    return tuple((x, size) for x, size in fixed if size is not None)


def _placed(wraps: list[Wrap], kind: str, name: str, below: _Known) -> _Known:
    """The coordinate above, computed by further statements."""
    if kind == "all":
        return below
    text = re.sub(r"\b([acdgjlopuv])\b", lambda x: f"{'y' if x[1] == 'c' else x[1]}{name}", _STATEMENTS[kind][1])
    wraps.append(Wrap(below.by, f"u{name} = {below.text}\n{text}"))
    return _Known(f"y{name}", below.by)


def _followed(
    wraps: list[Wrap], n: int, k: int, summands: dict[int, list[Part]], stored: Sequence[_Known], pads: bool
) -> _Known:
    """Coordinate k as a sum of digits of stored coordinates, each added in the loop where it is known.

    pads: the sum may be too large.
    """
    *most, last = sorted(summands, key=lambda s: stored[s].by)
    base = ""
    for s in most:
        text = sum_of(base, stored[s].text, summands[s], n)
        base = f"y{n}d{k}p{s}"
        wraps.append(Wrap(stored[s].by, f"{base} = {text}\nyield"))
    x, name, size = stored[last], f"y{n}d{k}", f"w{n}d{k}"
    whole = sum_of(base, x.text, summands[last], n)
    if not pads:
        return _Known(whole, x.by, x.stored if whole == x.text else None)
    wraps.append(Wrap(x.by, f"{name} = {whole}\nif {name} < {size}:\n    yield"))
    return _Known(name, x.by)


def _added(wraps: list[Wrap], n: int, k: int, difference: _Known, less: int, other: _Known) -> _Known:
    """Coordinate k from its difference to another one. A sum below 0 is large: integers are unsigned."""
    name, by = f"z{n}d{k}", max(difference.by, other.by)
    whole = f"{difference.text} + {other.text} - (w{n}d{less} - u8(1))"
    wraps.append(Wrap(by, f"{name} = {whole}\nif {name} < w{n}d{k}:\n    yield"))
    return _Known(name, by)
