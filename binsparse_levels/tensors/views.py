"""The backings that refer to another one: a map and a view."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engine.selection import load
from ..engine.tree import Tree
from ..engine.views import Selection, narrowed
from ..errors import FormatError, Problem
from ..formats.format import Format, coordinates
from ..formats.index_map import DimensionMap, IndexMap
from ..levels import listing
from ..levels.positions import Array, narrowest
from .backing import Backing, Listed, TreeBacking, packed


class Mapped(Backing):
    """A map over another backing: the entries of a stored tensor at other coordinates."""

    __slots__ = ("base", "format", "map", "shape", "stored", "viewed")
    map: IndexMap

    def __init__(self, base: Backing, map: IndexMap) -> None:
        if base.structure is not None:
            raise FormatError(Problem("structure", "a tensor with a map has none; call expand_structure() first"))
        self.base = base
        self.map = map
        self.shape = map.shape
        self.format = base.format
        self.stored = base.stored
        self.viewed = base.viewed

    def __reduce__(self) -> tuple[Any, ...]:
        return Mapped, (self.base, self.map)

    def beneath(self, pad: Any) -> Backing:
        return self.base

    def own(self, pad: Any) -> Mapped:
        own = self.base.own(pad)
        return self if own is self.base else Mapped(own, self.map)

    def perhaps_lazy(self, pad: Any) -> Tree:
        return self.base.perhaps_lazy(pad)

    def dm(self) -> DimensionMap:
        return self.map.dm()

    def entries(self, pad: Any, dtype: npt.DTypeLike | None = np.int64) -> Listed:
        coords, values = self.without_padding(*self.base.entries(pad))
        return (coords if dtype else tuple(narrowest(coords, self.map.shape))), values

    def without_padding(self, stored: Sequence[Array], values: Array) -> Listed:
        """The entries of the tensor at stored coordinates, without those at padding."""
        coords = self.map.backward(stored)
        if self.map.padded:
            kept = np.ones(len(values), bool)
            for x, size in zip(coords, self.map.shape, strict=True):
                kept &= x < size
            if not kept.all():
                return tuple(x[kept] for x in coords), values[kept]
        return coords, values

    def blocks(self, pad: Any, size: int) -> Iterator[Listed]:
        for coords, values in self.base.blocks(pad, size):
            yield self.without_padding(coords, values)

    def count(self, pad: Any) -> int:
        return super().count(pad) if self.map.padded else self.base.count(pad)

    def value_at(self, cell: Sequence[Any], pad: Any) -> Any:
        return self.base.value_at([x[0] for x in self.map.forward([[x] for x in cell])], pad)

    def values_at(self, coords: Sequence[Array], pad: Any) -> Array:
        return self.base.values_at(self.map.forward(coords), pad)

    def locate(self, coords: Sequence[Array], pad: Any) -> Array:
        return self.base.locate(self.map.forward(coords), pad)

    def permuted(self, order: Sequence[int]) -> Mapped:
        return Mapped(self.base, self.map.permuted(order))


class Viewed(Backing):
    """A view: the entries of another backing in a selection of its cells. It has no structure."""

    __slots__ = ("_own", "base", "selection", "shape", "stored")
    viewed = True

    def __init__(self, base: Backing, selection: Selection) -> None:
        self.base = base
        self.selection = selection
        self.shape = selection.shape
        self.stored = base.stored
        self._own: Backing | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Viewed, (self.base, self.selection)

    @property
    def map(self) -> IndexMap | None:  # type: ignore[override]
        return self._restricted(self.base)[0] if isinstance(self.base, Mapped) else None

    @property
    def format(self) -> Format:  # type: ignore[override]
        if type(self.base) is Mapped:  # isinstance of an abstract class is slower
            return self._restricted(self.base)[1]
        return self.stored.view(self.selection).format

    def _restricted(self, base: Mapped) -> tuple[IndexMap, Format]:
        """The map and the levels restricted to the dimensions of the view.

        A last level that would store padding becomes a list of coordinates.
        """
        map, left = base.map.restricted(self.selection.dimensions, self.shape)
        whole, cells = base.base.cells()
        format = whole.stored.view(cells._replace(dimensions=tuple(cells.dimensions[k] for k in left))).format
        if format.padded and self.selection.cut:
            format = replace(format, levels=format.levels[:-1] + listing(format.levels[-1].rank))
        return map, format

    def beneath(self, pad: Any) -> Backing:
        return self if self.base.map is None else self.own(pad).beneath(pad)

    def own(self, pad: Any) -> Backing:
        if self._own is None:
            stored = self.stored
            if type(self.base) is Mapped:
                map, format = self._restricted(self.base)
                coords, values = self.entries(pad)
                self._own = Mapped(self._packed(format, map.stored_shape, map.forward(coords), values, pad), map)
            else:
                if stored.shared:
                    stored.own(pad)  # checks its arrays
                view = stored.view(self.selection)
                tree = load(view, self.selection.items, pad, stored.limits)
                self._own = TreeBacking(view.format, tree, stored.limits, shared=stored.shared)
        return self._own

    def dm(self) -> DimensionMap:
        if not isinstance(self.base, Mapped):
            return super().dm()
        return self.base.map.dm(self.selection.items, self.selection.dimensions)

    def _packed(
        self, format: Format, shape: Sequence[int], coords: Sequence[Array], values: Array, pad: Any
    ) -> TreeBacking:
        return packed(format, shape, coords, values, self.stored.tree.iso, pad, self.stored.limits)

    def entries(self, pad: Any, dtype: npt.DTypeLike | None = np.int64) -> Listed:
        if isinstance(self.base, Mapped):
            return self._of_mapped(self.base, pad).entries(pad, dtype)
        return self.own(pad).entries(pad, dtype)

    def _of_mapped(self, base: Mapped, pad: Any) -> Viewed:
        """The same view of a list of coordinates. Only a window of the stored tensor is read."""
        windows = base.map.windows(self.selection.items)
        part = Viewed(*windowed(base.base, windows).cells())  # a lazy tree stays lazy
        coords, values = part.entries(pad)
        stored = [x * w.step + w.start if isinstance(w, range) else w[x] for x, w in zip(coords, windows, strict=True)]
        listed = self._packed(coordinates(len(base.shape)), base.shape, *base.without_padding(stored, values), pad)
        return Viewed(listed, self.selection)

    def count(self, pad: Any) -> int:
        if isinstance(self.base, Mapped):
            return len(self.entries(pad)[1])
        distinct, times = self.selection.distinct()
        if not times:
            return self.own(pad).count(pad)
        coords, values = Viewed(self.base, distinct).entries(pad)
        return int(
            math.prod((counts[coords[k]] for k, counts in times.items()), start=np.ones(len(values), np.int64)).sum()
        )

    def value_at(self, cell: Sequence[Any], pad: Any) -> Any:
        return self.base.value_at(self.selection.places(cell), pad)

    def values_at(self, coords: Sequence[Array], pad: Any) -> Array:
        whole = np.broadcast_arrays(*self.selection.places(coords))
        return self.base.values_at(whole, pad)

    def permuted(self, order: Sequence[int]) -> Viewed:
        return Viewed(self.base, self.selection.permuted(order))

    def cells(self) -> tuple[Backing, Selection]:
        return (self.base, self.selection) if self._own is None else self._own.cells()


def around(backing: Backing, stored: TreeBacking) -> Backing:
    """Another tree below the same map."""
    return stored if backing.map is None else Mapped(stored, backing.map)


def selected(backing: Backing, indices: Sequence[Any], array_first: bool) -> Viewed:
    """A view. Precondition: the arguments are results of `parse_key`, with one array at most."""
    whole, selection = backing.cells()
    narrower = narrowed(selection, indices, separated=array_first)
    return Viewed(whole.best_order(narrower.items), narrower)


def windowed(backing: Backing, windows: Sequence[range | Array]) -> Backing:
    """The cells in a window of each dimension. Whole dimensions are not cut."""
    for k, (window, size) in enumerate(zip(windows, backing.shape, strict=True)):
        if not (isinstance(window, range) and window == range(size)):
            key: list[Any] = [slice(None)] * len(windows)
            key[k] = slice(window.start, window.stop, window.step) if isinstance(window, range) else window
            backing = selected(backing, key, False)  # an index has one array at most
    return backing
