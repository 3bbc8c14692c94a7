"""The backing of a tensor: a tree, a view of another backing, or a map over another backing.

The tree is here, the other two are in `views`.

Coordinates are those of the tensor. `pad` is the value of cells that are not stored. The limits of the tree apply to
everything that is read and made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arrays import repeat_one
from ..engine import packing
from ..engine.blocks import Block, blocks_of, read_block
from ..engine.packing import Entries
from ..engine.selection import View, locate_in
from ..engine.tree import Tree, index_dtype
from ..engine.views import Item, Selection, all_of
from ..errors import ArrayError, FormatError, Problem, check_choice, raise_if
from ..formats.format import Format, in_order
from ..formats.index_map import DimensionMap, IndexMap
from ..formats.structure import (
    STRUCTURES,
    diagonal_problems,
    in_triangle,
    read_problems,
    structure_problems,
    transposed,
    triangle_problems,
)
from ..levels.positions import Array, items_at
from ..limits import Limits
from ..log import LOG
from .late_imports import Origin, reopened

Check: TypeAlias = Literal["full", "trusted", "none"]  # every invariant; all but the order of entries; nothing
Listed: TypeAlias = tuple[tuple[Array, ...], Array]  # an array of coordinates for each dimension, and the values

_VALUES_PER_LOOKUP = 2**12  # values that are read from a file in the time of one lookup


class Backing(ABC):
    """The entries of a tensor, and how they are stored."""

    __slots__ = ()

    shape: tuple[int, ...]  # the sizes of the dimensions
    format: Format  # the levels and the transpose of the stored tensor
    stored: TreeBacking  # the tree that contains the arrays, which may be those of a larger tensor
    structure: str | None = None  # for a matrix that stores one triangle
    map: IndexMap | None = None  # from the tensor to the stored tensor; None if there is only a transpose
    viewed = False  # True if the arrays are those of a larger tensor

    @property
    def plan(self) -> TreeBacking:
        """The stored tree, or an empty one with its data type, limits and origin. Nothing is read."""
        return self.stored

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of the values."""
        return self.plan.tree.values.dtype

    @property
    def lazy(self) -> bool:
        """True if entries are in a file. For a view, those of the whole tensor."""
        return self.stored.tree.lazy

    def iso(self, pad: Any) -> bool:
        """True if one value is stored for all entries."""
        return self.plan.tree.iso and self.perhaps_lazy(pad).iso

    def nbytes(self, pad: Any) -> int:
        """The number of bytes of all arrays and values in memory."""
        tree = self.perhaps_lazy(pad)
        sizes = [len(array) * array.dtype.itemsize for array in tree.arrays.values()]
        if tree.dictionary is not None:
            return sum(sizes) + tree.dictionary.nbytes
        return sum(sizes) + (1 if tree.iso else len(tree.values)) * tree.values.dtype.itemsize

    def positions(self) -> int:
        """The number of entries, or of positions in memory; for a view, that of the whole tensor. Nothing is read."""
        return len(self.stored.tree.values)

    @abstractmethod
    def own(self, pad: Any) -> Backing:
        """The same entries in memory, checked, in arrays without other entries. The result is cached.

        Raises ArrayError, FormatError, LimitError.
        """

    def perhaps_lazy(self, pad: Any) -> Tree:
        """The tree of the same entries. It stays lazy if possible."""
        return self.own(pad).stored.tree

    @abstractmethod
    def entries(self, pad: Any, dtype: npt.DTypeLike | None = np.int64) -> Listed:
        """The stored entries in stored order, without padding.

        dtype: of the coordinates; None for the narrowest. A map returns 64 bits for every type but None.
        """

    def blocks(self, pad: Any, size: int) -> Iterator[Listed]:
        """`entries`, about `size` at a time. A lazy tree is read one block at a time."""
        coords, values = self.entries(pad)
        for start in range(0, max(len(values), 1), size):
            yield tuple([x[start : start + size] for x in coords]), values[start : start + size]

    def count(self, pad: Any) -> int:
        """The number of stored entries."""
        return len(self.entries(pad)[1])

    @abstractmethod
    def value_at(self, cell: Sequence[Any], pad: Any) -> Any:
        """The value at coordinates in range."""

    @abstractmethod
    def values_at(self, coords: Sequence[Array], pad: Any) -> Array:
        """The values at coordinates in range, given as arrays of equal length."""

    def locate(self, coords: Sequence[Array], pad: Any) -> Array:
        """The positions of entries among the values of `own`, -1 where nothing is stored.

        See Also
        --------
        Tensor.unpack : Return the stored entries.
        """
        return self.own(pad).locate(coords, pad)

    @abstractmethod
    def permuted(self, order: Sequence[int]) -> Backing:
        """The same entries, where dimension k is dimension order[k] of these."""

    def beneath(self, pad: Any) -> Backing:
        """The backing below the map; itself if there is no map."""
        return self

    def dm(self) -> DimensionMap:
        """`Tensor.dm`.

        See Also
        --------
        Tensor.with_map : See this tensor through a map.
        """
        raise FormatError(Problem("map", "the tensor has none; give it one by convert(format, map=…)"))

    def cells(self) -> tuple[Backing, Selection]:
        """The backing that a view of this one refers to, and the selection of its cells."""
        return self, all_of(self.shape)

    def best_order(self, items: Sequence[Item]) -> Backing:
        """The stored order of which a selection reads the least. items: the index of each dimension."""
        return self


class TreeBacking(Backing):
    """A tree, in memory or lazy: stored dimension k is dimension format.order[k].

    limits: those of the call that made or opened it. origin: the file that it was opened from. shared: True if other
    code can write to the arrays, which are then checked at each use, before a kernel indexes with them. orders: the
    same entries, opened in other orders.
    """

    __slots__ = ("_lookups", "_views", "format", "limits", "orders", "origin", "shape", "shared", "structure", "tree")
    limits: Limits
    origin: Origin | None

    def __init__(
        self,
        format: Format,
        tree: Tree,
        limits: Limits,
        structure: str | None = None,
        origin: Origin | None = None,
        shared: bool = False,
    ) -> None:
        order = format.order
        self.shape = tuple([tree.dims[k] for k in sorted(range(len(order)), key=order.__getitem__)])
        self._lookups = 0  # in the lazy tree
        self._views: dict[tuple[tuple[int, ...], ...], View] = {}
        self.format = format
        self.limits = limits
        self.tree = tree if tree.lazy else _frozen(format, tree)
        self.structure = structure
        self.origin = origin
        self.shared = shared
        self.orders: Sequence[TreeBacking] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.origin is not None:
            return _opened, (self.origin, self.limits, self.format.order, self.structure)  # no class of a level kind
        tree = self.own(None).tree
        values, count = (tree.values[:1], len(tree.values)) if tree.iso else (tree.values, None)
        return _unpickled, (self.format, self.limits, self.structure, tree.dims, dict(tree.arrays), values, count)

    @property
    def stored(self) -> TreeBacking:  # type: ignore[override]
        return self

    def own(self, pad: Any) -> TreeBacking:
        if self.tree.lazy:
            self.load("full")
        elif self.shared:
            self.check("trusted")
        return self

    def load(self, check: Check) -> None:
        """Read a lazy tree into memory, and keep it if it is sound. Raises ArrayError, FormatError.

        See Also
        --------
        Tensor.convert : The same entries in another format.
        """
        whole = TreeBacking(self.format, self.tree.loaded(), self.limits, self.structure)
        whole.check(check)
        if check == "full" and self.structure is not None:
            raise_if(ArrayError, whole.diagonal_problems())
        self.tree, self._views = whole.tree, {}

    def sound(self) -> Tree:
        """The checked tree, or the lazy tree."""
        return self.tree if self.tree.lazy else self.own(None).tree

    def view(self, selection: Selection) -> View:
        """The view for this selection, which is cached."""
        views, key = self._views, selection[1:]
        if key not in views:
            views[key] = View(self.tree, self.format, self.structure, selection)
        return views[key]

    def perhaps_lazy(self, pad: Any) -> Tree:
        return self.tree

    def check(self, check: Check) -> None:
        """Check a tree in memory and its structure. Raises ArrayError, FormatError, OptionError.

        See Also
        --------
        Tensor.equals : Return True if both have the same shape, entries and fill value.
        """
        check_choice("check", check, Check)
        if check == "none":
            return
        problems = list(self.tree.check(self.format.order, order=check == "full"))
        if self.structure is not None:
            wrong = list(structure_problems(self.structure, self.shape, self.tree.values.dtype))
            raise_if(ArrayError if problems else FormatError, [*problems, *wrong] if wrong else ())
            if not problems and not self.format.padded:
                problems += triangle_problems(self.structure, self._listed(np.int64)[0])
        raise_if(ArrayError, problems)

    def diagonal_problems(self) -> list[Problem]:
        """Faults of the diagonal of a padded matrix with a structure. It must equal its mirror image."""
        if self.structure is None or not self.format.padded:
            return []
        return list(diagonal_problems(self.structure, *self._listed(np.int64)))

    def entries(self, pad: Any, dtype: npt.DTypeLike | None = np.int64) -> Listed:
        return self.own(pad)._listed(dtype)

    def _listed(self, dtype: npt.DTypeLike | None) -> Listed:
        columns, positions = packing.unpack_tree(self.tree, dtype)
        coords = list(columns)
        for column, dimension in zip(columns, self.format.order, strict=True):
            coords[dimension] = column
        values = items_at(self.tree.values, positions)
        if self.structure is not None and self.format.padded:
            kept = in_triangle(self.structure, coords)
            return tuple(x[kept] for x in coords), values[kept]
        return tuple(coords), values

    def blocks(self, pad: Any, size: int) -> Iterator[Listed]:
        tree = self.sound()
        for block in blocks_of(tree, size) if len(tree.values) else [Block(range(0))]:
            yield self.read(block)

    def read(self, block: Block) -> Listed:
        """The stored entries in a block; one triangle of a structure. Raises ArrayError."""
        columns, values = read_block(self.tree, block, index_dtype(self.tree.dims, 0))
        coords = [columns[k] for k in np.argsort(self.format.order)]
        if self.structure is not None:
            raise_if(ArrayError, read_problems(self.structure, coords, values, padded=self.tree.padded))
            inside = in_triangle(self.structure, coords)
            coords, values = [x[inside] for x in coords], values[inside]
        return tuple(coords), values

    def count(self, pad: Any) -> int:
        if self.structure is not None and self.format.padded:
            return super().count(pad)
        if not self.tree.gaps and not self.tree.shares:
            return len(self.tree.values)
        return self.own(pad).tree.count()

    def best_order(self, items: Sequence[Item]) -> TreeBacking:
        if not self.orders or not self.tree.lazy:
            return self
        sizes = [1 if isinstance(item, int) else len(item) for item in items]
        part = [size / max(whole, 1) for size, whole in zip(sizes, self.shape, strict=True)]
        best = min((self, *self.orders), key=lambda other: [part[k] for k in other.format.order])
        LOG.debug("orders: %s, because the smallest part of its outermost dimension is needed", best.format)
        return best

    def value_at(self, cell: Sequence[Any], pad: Any) -> Any:
        if self.structure is not None:
            return self.values_at([np.array([x]) for x in cell], pad)[0]
        tree = self.sound()
        (position,) = locate_in(tree, [np.array([cell[k]], np.int64) for k in self.format.order])
        return pad if position < 0 else tree.values[position : position + 1][0]

    def values_at(self, coords: Sequence[Array], pad: Any) -> Array:
        count = len(coords[0])
        tree, mirrored = self._tree_for(count), np.zeros(count, bool)
        if self.structure is not None:
            mirrored = ~in_triangle(self.structure, coords)
            coords = [np.where(mirrored, x, y) for x, y in zip(coords[::-1], coords, strict=True)]
        if not len(tree.values):
            return np.full(count, pad, tree.values.dtype)
        positions = locate_in(tree, [coords[k] for k in self.format.order])
        values = np.array(items_at(tree.values, np.maximum(positions, 0)))
        if self.structure is not None:
            values[mirrored] = STRUCTURES[self.structure].mirrored(values[mirrored])
        np.copyto(values, pad, where=positions < 0)
        return values

    def locate(self, coords: Sequence[Array], pad: Any) -> Array:
        positions = locate_in(self._tree_for(len(coords[0]) if coords else 1), [coords[k] for k in self.format.order])
        if self.structure is None or not self.format.padded:
            return positions
        return np.where(in_triangle(self.structure, coords), positions, -1)  # the other triangle may be padding

    def _tree_for(self, lookups: int) -> Tree:
        """The tree for a number of lookups: the lazy tree as long as they cost less than reading all of it."""
        if self.tree.lazy and not (self.structure and self.format.padded):
            self._lookups += lookups
            chunk = max(getattr(array, "chunk", 1) for array in (*self.tree.arrays.values(), self.tree.values))
            if self._lookups * max(2 * chunk, _VALUES_PER_LOOKUP) <= len(self.tree.values):
                return self.tree
            LOG.debug("lookups: the whole tensor is read, because %d lookups cost more", self._lookups)
        return self.own(None).tree

    def permuted(self, order: Sequence[int]) -> TreeBacking:
        format = in_order(self.format.levels, [order.index(k) for k in self.format.order])
        turned = self.structure if self.structure is None or list(order) == [0, 1] else transposed(self.structure)
        return TreeBacking(format, self.tree, self.limits, turned, self.origin, self.shared)


def packed(
    format: Format,
    shape: Sequence[int],
    coords: Sequence[Array],
    values: Array,
    iso: bool,
    pad: Any,
    limits: Limits,
    structure: str | None = None,
) -> TreeBacking:
    """Unique entries in any order as a tree. iso: all values are equal, and one is stored."""
    iso = iso and bool(coords or len(values))
    entries = entries_of(format, shape, coords, values, iso)
    tree = packing.pack_entries(format.levels, entries, pad, "error", limits)
    return TreeBacking(format, tree, limits, structure)


# Helpers for entries and trees


def entries_of(format: Format, shape: Sequence[int], coords: Sequence[Array], values: Array, iso: bool) -> Entries:
    """Entries by stored dimension, for the engine."""
    order, stored = format.order, one_value(values).reshape(1) if iso else values
    return Entries(tuple([shape[k] for k in order]), tuple([coords[k] for k in order]), stored, iso, order)


def one_value(values: Array) -> Array:
    """The value of an iso tensor, as an array without dimensions."""
    return values[0:1].reshape(()) if len(values) else np.zeros((), values.dtype)


def _frozen(format: Format, tree: Tree) -> Tree:
    """The tree with read-only arrays, and the levels as the caller spelled them."""
    every = *tree.arrays.values(), tree.of_codes.values
    if tree.levels is format.levels and True not in [x.flags.writeable for x in every]:
        return tree
    arrays = {name: _read_only(x) for name, x in tree.arrays.items()}
    values = _read_only(tree.values) if tree.dictionary is None else tree.values
    return Tree(format.levels, tree.dims, arrays, values, tree.iso)


def _read_only(array: Array) -> Array:
    if array.flags.writeable:
        array = array.view()
        array.setflags(write=False)
    return array


# Unpickling


def _unpickled(
    format: Format,
    limits: Limits,
    structure: str | None,
    dims: tuple[int, ...],
    arrays: Mapping[str, Array],
    values: Array,
    count: int | None,
) -> TreeBacking:
    iso = count is not None
    whole = values if count is None else repeat_one(values, count)
    return TreeBacking(format, Tree(format.levels, dims, arrays, whole, iso), limits, structure)


def _opened(origin: Origin, limits: Limits, order: tuple[int, ...], structure: str | None) -> TreeBacking:
    stored: TreeBacking = reopened(origin, limits)._inside.backing.stored
    format = stored.format if order == stored.format.order else in_order(stored.format.levels, order)
    return TreeBacking(format, stored.tree, limits, structure, origin)
