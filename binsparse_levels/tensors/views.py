"""The backings that refer to others: a map, a view, and parts that are joined."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..engine.selection import load
from ..engine.tree import Tree
from ..engine.views import Selection, all_of, narrowed
from ..errors import FormatError, Problem
from ..formats.format import Format, coordinates
from ..formats.index_map import DimensionMap, IndexMap
from ..levels import listing
from ..levels.positions import Array, narrowest
from .backing import Backing, Listed, TreeBacking, packed
from .boxes import Whole, within


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


class Part(NamedTuple):
    """The selected cells of a box. places: their coordinates in the selection, which ascend."""

    backing: Backing
    places: tuple[range | Array, ...]

    def placed(self, coords: Sequence[Array]) -> tuple[Array, ...]:
        """Coordinates of the part as those of the selection."""
        placed = []
        for x, places in zip(coords, self.places, strict=True):
            placed.append(places[x] if isinstance(places, np.ndarray) else x + places.start if places.start else x)
        return tuple(placed)


class Joined(Backing):
    """The entries of all boxes in a selection of cells. It has no structure and no map."""

    __slots__ = ("_own", "boxes", "selection", "shape")
    viewed = True

    def __init__(self, boxes: Whole, selection: Selection | None = None) -> None:
        self.boxes = boxes
        self.selection = all_of(boxes.shape) if selection is None else selection
        self.shape = self.selection.shape
        self._own: TreeBacking | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Joined, (self.boxes, self.selection)

    @property
    def stored(self) -> TreeBacking:  # type: ignore[override]
        return self.own(self.boxes.pad)

    @property
    def format(self) -> Format:  # type: ignore[override]
        return self.boxes.plans.view(self.selection).format

    @property
    def whole(self) -> bool:
        """True if no cell was left out, and no dimension moved."""
        return self.selection[1:] == all_of(self.boxes.shape)[1:]

    @property
    def plan(self) -> TreeBacking:
        return self.boxes.plans

    @property
    def lazy(self) -> bool:
        return self._own is None

    def positions(self) -> int:
        return self.count(self.boxes.pad)

    def nbytes(self, pad: Any) -> int:
        return sum(part.backing.nbytes(pad) for part in self.parts())

    def parts(self) -> Iterator[Part]:
        """The parts with a selected cell. Each is opened when it is reached."""
        items, dimensions, _ = self.selection
        single = [0 if isinstance(item, int) else slice(None) for item in items]
        order = [sorted(dimensions).index(k) for k in dimensions]
        for number in self.boxes.touched(items):
            box = self.boxes.boxes[number]
            windows, places = zip(*map(within, items, box.origin, box.shape), strict=True)
            if all(map(len, places)):
                backing = windowed(self.boxes.tensor(number)._inside.backing, windows)
                backing = selected(backing, single, False) if 0 in single else backing
                backing = backing if order == sorted(order) else backing.permuted(order)
                yield Part(backing, tuple([places[k] for k in dimensions]))

    def own(self, pad: Any) -> TreeBacking:
        if self._own is None:
            coords: list[Sequence[Array]] = [[np.empty(0, np.int64)] * len(self.shape)]
            values = [np.empty(0, self.dtype)]
            for part in self.parts():
                columns, more = part.backing.entries(pad)
                coords.append(part.placed(columns))
                values.append(more)
            every = [np.concatenate(x) for x in zip(*coords, strict=True)]
            self._own = packed(self.format, self.shape, every, np.concatenate(values), False, pad, self.plan.limits)
        return self._own

    def entries(self, pad: Any, dtype: npt.DTypeLike | None = np.int64) -> Listed:
        return self.own(pad).entries(pad, dtype)

    def blocks(self, pad: Any, size: int) -> Iterator[Listed]:
        if self._own is not None:
            yield from self._own.blocks(pad, size)
            return
        for part in self.parts():
            for coords, values in part.backing.blocks(pad, size):
                yield part.placed(coords), values

    def count(self, pad: Any) -> int:
        if self._own is not None:  # which may store padding
            return self._own.count(pad)
        counts = [box.count for box in self.boxes.boxes]
        if self.selection.cut or None in counts:
            return sum(part.backing.count(pad) for part in self.parts())
        return sum(map(int, counts))  # type: ignore[arg-type]

    def value_at(self, cell: Sequence[Any], pad: Any) -> Any:
        return self.values_at([np.array([x]) for x in cell], pad)[0]

    def values_at(self, coords: Sequence[Array], pad: Any) -> Array:
        if self._own is not None:
            return self._own.values_at(coords, pad)
        values = np.full(len(coords[0]), pad, self.dtype)
        whole = np.broadcast_arrays(*self.selection.places(coords))
        for number in self.boxes.touched(whole):
            box = self.boxes.boxes[number]
            local = [x - start for x, start in zip(whole, box.origin, strict=True)]
            here = np.all([(x >= 0) & (x < size) for x, size in zip(local, box.shape, strict=True)], axis=0)
            if here.any():
                backing = self.boxes.tensor(number)._inside.backing
                values[here] = backing.values_at([x[here] for x in local], pad)
        return values

    def permuted(self, order: Sequence[int]) -> Joined:
        return Joined(self.boxes, self.selection.permuted(order))

    def cells(self) -> tuple[Backing, Selection]:
        return (self, self.selection) if self._own is None else self._own.cells()


def around(backing: Backing, stored: TreeBacking) -> Backing:
    """Another tree below the same map."""
    return stored if backing.map is None else Mapped(stored, backing.map)


def selected(backing: Backing, indices: Sequence[Any], array_first: bool) -> Backing:
    """A view. Precondition: the arguments are results of `parse_key`, with one array at most."""
    whole, selection = backing.cells()
    narrower = narrowed(selection, indices, separated=array_first)
    if type(whole) is Joined:
        return Joined(whole.boxes, narrower)
    return Viewed(whole.best_order(narrower.items), narrower)


def windowed(backing: Backing, windows: Sequence[range | Array]) -> Backing:
    """The cells in a window of each dimension. Whole dimensions are not cut."""
    for k, (window, size) in enumerate(zip(windows, backing.shape, strict=True)):
        if not (isinstance(window, range) and window == range(size)):
            key: list[Any] = [slice(None)] * len(windows)
            if isinstance(window, range):
                key[k] = slice(window.start, window.stop if window.stop >= 0 else None, window.step)
            else:
                key[k] = window
            backing = selected(backing, key, False)  # an index has one array at most
    return backing
