"""The parts of a tensor: disjoint boxes of cells, each with the tensor that contains its entries.

Cells in no box are not stored. The tensor of a box is opened when it is needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import File
from ..engine.tree import Tree
from ..engine.views import Item
from ..errors import ContainerError
from ..formats.format import Format
from ..levels.positions import Array
from ..limits import Limits
from .backing import TreeBacking
from .late_imports import Origin

_MAX_OPEN = 256  # tensors of boxes, whose files stay open


@dataclass(frozen=True)
class Box:
    """A part of a tensor.

    origin: the coordinates of its first cell. notation: of its format. count: of its entries, if it is known. open:
    returns its tensor, which has the data type and the fill value of the whole, and no structure. group: in a store
    that grew. labels: the numbers of labels and of their items, by dimension.
    """

    origin: tuple[int, ...]
    shape: tuple[int, ...]
    notation: str
    count: int | None
    open: Callable[[], Any] = field(repr=False, compare=False)
    group: str = ""
    labels: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)


class Whole:
    """All boxes of a tensor. Those that were used last stay open.

    format: of the tensor after it is loaded. pad: the value of cells that are not stored. origin: the file with the
    list of boxes.
    """

    def __init__(
        self,
        boxes: Sequence[Box],
        shape: tuple[int, ...],
        format: Format,
        pad: Any,
        limits: Limits,
        origin: Origin | None = None,
    ) -> None:
        self.boxes = boxes = tuple(boxes)
        self.shape = shape
        self.pad = pad
        dims = tuple(shape[k] for k in format.order)
        #: An empty tree of the format, which plans views, and has the limits and the origin.
        self.plans = TreeBacking(
            format, Tree(format.levels, dims, {}, np.empty(0, pad.dtype), lazy=True), limits, origin=origin
        )
        self._starts = np.array([box.origin for box in boxes], np.int64).reshape(-1, len(shape))
        self._stops = self._starts + np.array([box.shape for box in boxes], np.int64).reshape(-1, len(shape))
        self.file: File | None = None  # the store of the boxes
        self._closed = False
        self._opened = functools.lru_cache(_MAX_OPEN)(lambda number: boxes[number].open())

    def __reduce__(self) -> tuple[Any, ...]:
        plans = self.plans
        return Whole, (self.boxes, self.shape, plans.format, self.pad, plans.limits, plans.origin)

    def tensor(self, number: int) -> Any:
        """The tensor of a box. Raises ContainerError after `close`."""
        if self._closed:
            raise ContainerError("the file is closed; open it again, or load() the tensor before")
        return self._opened(number)

    def close(self) -> None:
        """Close the files of all boxes, except those that a view reads."""
        self._closed = True
        self._opened.cache_clear()
        if self.file is not None:
            self.file.close()

    def touched(self, items: Sequence[Item]) -> list[int]:
        """The numbers of the boxes that may have a cell at the index of each dimension."""
        there = np.ones(len(self.boxes), bool)
        for k, item in enumerate(items):
            if isinstance(item, int):
                least = most = item
            elif not len(item):
                return []
            elif isinstance(item, range):
                least, most = sorted((item[0], item[-1]))
            else:
                least, most = int(item.min()), int(item.max())
            there &= (self._starts[:, k] <= most) & (self._stops[:, k] > least)
        found: list[int] = np.flatnonzero(there).tolist()
        return found


def within(item: Item, start: int, size: int) -> tuple[range | Array, range | Array]:
    """The part of the index of a dimension within a box from coordinate `start` on.

    The first result is in coordinates of the box. The second is where these are in the index: ascending numbers.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> within(range(8, 0, -2), 3, 4)
    (range(3, -1, -2), range(1, 3))
    """
    if isinstance(item, int):
        item = range(item, item + 1)
    if isinstance(item, np.ndarray):
        places = np.flatnonzero((item >= start) & (item < start + size))
        return item[places] - start, places
    nearest, farthest = (start, start + size) if item.step > 0 else (start + size - 1, start - 1)
    first, last = (min(max((x - item.start) // -item.step * -1, 0), len(item)) for x in (nearest, farthest))
    here = item[first:last]
    return range(here.start - start, here.stop - start, here.step), range(first, max(first, last))
