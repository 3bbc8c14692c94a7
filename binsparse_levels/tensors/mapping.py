"""What a tensor with an index map does in its own way: it has the stored entries at other coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..engine.tree import Tree
from ..engine.views import View, narrowed, view_of
from ..formats.format import Format, FormatLike, coordinates
from ..formats.index_map import IndexMap, MapLike, parse_map
from ..levels.base import Array
from ..limits import Limits

if TYPE_CHECKING:
    from .tensor import Tensor


class Through(NamedTuple):
    """What a tensor with a map holds: the stored tensor, the map of the whole, and the view, where it is a view."""

    stored: Tensor
    map: IndexMap
    view: View | None = None

    def viewed(self) -> View:
        """The view, or one of all entries, whose tree is made when its entries are listed."""
        if self.view is not None:
            return self.view
        rank = len(self.map.shape)
        no_entries = Tree(coordinates(rank).levels, self.map.shape, {}, np.empty(0, self.stored.dtype))
        return view_of(no_entries, tuple(range(rank)), None)

    def restricted(self) -> tuple[IndexMap, Format]:
        """The map and the stored format, of a view cut to what it has."""
        if self.view is None:
            return self.map, self.stored._format
        map, left = self.map.restricted(self.view.dimensions, self.view.shape)
        stored = self.stored._view()
        return map, stored._replace(dimensions=tuple(stored.dimensions[k] for k in left)).format()

    def places(self, coords: Sequence[Any]) -> tuple[Array, ...]:
        """The stored coordinates of cells. coords: integers or arrays in range, of the view if it is one."""
        view = self.viewed()
        columns: list[Any] = list(view.items)
        for k, x in zip(view.dimensions, coords, strict=True):
            item = view.items[k]
            columns[k] = item.start + item.step * x if isinstance(item, range) else np.asarray(item)[x]
        return self.map.forward([x.ravel() for x in np.broadcast_arrays(*columns)])

    def unpack(self) -> tuple[tuple[Array, ...], Array]:
        """The entries without padding, in stored order."""
        return self._seen(*self.stored.unpack()) if self.view is None else self.selected().unpack()

    def selected(self) -> Tensor:
        """The entries of a view in a tensor without a map. Only a window of the stored tensor is read."""
        assert self.view is not None
        windows = self.map.windows(self.view.items)
        part = self.stored._view()
        for k, window in enumerate(windows):  # one by one, since an index has one array at most
            key: list[Any] = [slice(None)] * len(windows)
            key[k] = slice(window.start, window.stop, window.step) if isinstance(window, range) else window
            part = narrowed(part, key)
        coords, values = self.stored._viewed(part).unpack()
        stored = [x * w.step + w.start if isinstance(w, range) else w[x] for x, w in zip(coords, windows, strict=True)]
        map = self.map
        listed = self.stored._packed(*self._seen(stored, values), coordinates(len(map.shape)), shape=map.shape)
        return listed._viewed(self.view._replace(tree=listed._tree), self.view.format())

    def _seen(self, stored: Sequence[Array], values: Array) -> tuple[tuple[Array, ...], Array]:
        """The entries at stored coordinates, without those at padding."""
        coords = self.map.backward(stored)
        if self.map.padded:
            kept = np.ones(len(values), bool)
            for x, size in zip(coords, self.map.shape, strict=True):
                kept &= x < size
            if not kept.all():
                return tuple(x[kept] for x in coords), values[kept]
        return coords, values


def converted(tensor: Tensor, format: FormatLike, map: MapLike | None, limits: Limits) -> Tensor:
    """The entries in another stored format, through another map where one is given."""
    own = tensor.map or IndexMap.transpose(tensor.shape)
    target = own if map is None else parse_map(map, tensor.shape)
    whole = tensor.expand_structure()
    held = whole._held
    viewed = isinstance(held, Through) and held.view is not None
    if not viewed and sorted(target.groups) == sorted(own.groups):
        order = [own.groups.index(group) for group in target.groups]
        if len(set(order)) == len(order):  # equal groups are of no size but one
            return whole.stored.permute(order).convert(format, limits=limits).with_map(target)
    coords, values = whole.unpack()
    return whole._packed(target.forward(coords), values, format, limits, shape=target.stored_shape, map=target)
