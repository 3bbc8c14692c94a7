"""The parts of a tensor: disjoint boxes of cells, each with the tensor that contains its entries.

Cells in no box are not stored. The tensor of a box is opened when it is needed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
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
from ..parallel import Lock
from .backing import TreeBacking
from .late_imports import Origin

_MAX_OPEN = 256  # tensors of boxes, whose files stay open


@dataclass(frozen=True)
class Box:
    """A part of a tensor.

    origin: the coordinates of its first cell. notation: of its format. count: of its entries, if it is known. open:
    returns its tensor, which has the data type and the fill value of the whole, and no structure.
    """

    origin: tuple[int, ...]
    shape: tuple[int, ...]
    notation: str
    count: int | None
    open: Callable[[], Any] = field(repr=False)


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
        self.boxes = tuple(boxes)
        self.shape = shape
        self.pad = pad
        self.limits = limits
        self.origin = origin
        dims = tuple(shape[k] for k in format.order)
        #: An empty tree of the format, which plans views.
        self.plans = TreeBacking(format, Tree(format.levels, dims, {}, np.empty(0, pad.dtype), lazy=True), limits)
        self._starts = np.array([box.origin for box in boxes], np.int64).reshape(-1, len(shape))
        self._stops = self._starts + np.array([box.shape for box in boxes], np.int64).reshape(-1, len(shape))
        self.file: File | None = None  # the store of the boxes
        self._opened: OrderedDict[int, Any] | None = OrderedDict()  # None after `close`
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Whole, (self.boxes, self.shape, self.plans.format, self.pad, self.limits, self.origin)

    def tensor(self, number: int) -> Any:
        """The tensor of a box. Raises ContainerError after `close`."""
        with self._lock:
            tensor = self._still_open().get(number)
        if tensor is None:
            tensor = self.boxes[number].open()
        with self._lock:
            opened = self._still_open()
            opened[number] = tensor
            opened.move_to_end(number)
            if len(opened) > _MAX_OPEN:
                opened.popitem(last=False)
        return tensor

    def _still_open(self) -> OrderedDict[int, Any]:
        if self._opened is None:
            raise ContainerError("the file is closed; open it again, or load() the tensor before")
        return self._opened

    def close(self) -> None:
        """Close the files of all boxes."""
        with self._lock:
            opened, self._opened = self._opened or OrderedDict(), None
        for tensor in opened.values():
            with tensor:  # which closes its file
                pass
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


def within(item: Item, start: int, size: int) -> tuple[int | slice | Array | None, range | Array]:
    """The part of the index of a dimension within a box from coordinate `start` on.

    The first result is the index in the box, or None for all of it. The second is where these coordinates are in the
    index: ascending numbers.

    >>> within(range(8, 0, -2), 3, 4)
    (slice(3, None, -2), range(1, 3))
    """
    if isinstance(item, int):
        return item - start, range(start <= item < start + size)
    if isinstance(item, np.ndarray):
        places = np.flatnonzero((item >= start) & (item < start + size))
        return item[places] - start, places
    if item.step > 0:
        before, beyond = start - item.start, start + size - item.start
    else:
        before, beyond = item.start - (start + size - 1), item.start - (start - 1)
    first, last = (min(max(-(-x // abs(item.step)), 0), len(item)) for x in (before, beyond))
    here = item[first:last]
    if len(here) == size and item.step == 1:
        return None, range(first, last)
    stop = here.stop - start
    return slice(here.start - start, stop if stop >= 0 else None, item.step), range(first, max(first, last))
