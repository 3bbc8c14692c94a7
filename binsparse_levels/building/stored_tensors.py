"""Stored tensors as the source of a build: their entries in blocks, and their labels in ranges."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array, LazyArray, Sliceable
from ..engine.blocks import Block, blocks_of, read_block
from ..engine.joining import of_segments
from ..engine.tree import Tree, index_dtype
from ..errors import ArrayError, FormatError, OptionError, Problem, raise_if
from ..formats.structure import expand, in_triangle, read_problems
from ..io import reading
from ..io.joining_labels import joined_labels
from ..io.kinds import Place, name_of
from ..io.reading import check_lazy
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.labels import TEXT, Column, Labels
from ..tensors.tensor import Tensor
from ..tensors.views import Mapped
from .chunks import Chunk, Rows, Texts, Volume, picked
from .label_types import keys_of_column
from .states import state_of_tensor, unchanged
from .values import common_type

_NEIGHBOURS = 64  # entries of a tensor that are sampled at once
_TEXT = 32  # bytes of a label; longer labels count for several


class _Opened(NamedTuple):
    """A tensor, what it stores, and the blocks of its entries."""

    tensor: Tensor
    stored: Tensor
    blocks: list[Block]


class Tensors(Rows):
    """The entries of the stored tensors at some places, about `rows` at a time.

    By default these are the entries that are stored: below a map, and of one triangle of a structure. merged: they are
    those of the tensor, to be merged with others. Both triangles are given, and the padding of levels is not. A chunk
    then has a range of the labels of each dimension beside its block of entries; the one or the other may be empty.

    starts: the number of the first chunk of each tensor. shapes, labelled, steps: of each tensor the sizes, and by
    dimension how many labels there are, and how many of them a chunk has.
    """

    def __init__(
        self,
        places: Sequence[Place],
        rows: int,
        starts: Sequence[int] = (),
        states: Any = None,
        limits: Mapping[str, int] | None = None,
        *,
        merged: bool = False,
        labels: Sequence[str | None] | None = None,
        names: Sequence[str] | None = None,
        shapes: Sequence[Sequence[int]] = (),
        labelled: Sequence[Sequence[int]] = (),
        steps: Sequence[Sequence[int]] = (),
    ) -> None:
        self._places, self._rows, self._merged = list(places), rows, merged
        self._limits = asdict(DEFAULT_LIMITS) if limits is None else limits
        self._states = [state_of_tensor(place) for place in places] if states is None else states
        self._tensors: dict[int, _Opened] = {}
        self._starts, self.kinds = list(starts), list(labels or ())
        self.names = None if names is None else list(names)
        self._shapes, self._labelled, self._steps = list(shapes), list(labelled), list(steps)
        if not starts:
            self._outline()
        lengths = {len(x) for x in (*self._shapes, *self._labelled, *self._steps, self.kinds)}
        told = all(len(x) == len(places) for x in (self._states, self._shapes, self._labelled, self._steps))
        if not told or len(lengths) > 1 or not _ascend(self._starts, len(places)):
            raise ValueError("states, starts and labels")

    def _outline(self) -> None:
        """Read what all processes have to know of the tensors. Raises ArrayError where their labels differ."""
        self._starts = [0]
        for which, place in enumerate(self._places):
            tensor, _, blocks = self._opened(which)
            labels = tensor._metadata.labels if self._merged else None
            names = () if labels is None else labels.dims
            columns = [None if labels is None else labels.columns.get(name) for name in names] or [None] * tensor.ndim
            kinds = [None if column is None else column.type for column in columns]
            if which and kinds != self.kinds:
                what = f"has labels of {_listed(kinds)}, and {name_of(self._places[0])} of {_listed(self.kinds)}"
                raise ArrayError(Problem(name_of(place), f"{what}; label both alike"))
            self.kinds = kinds
            if labels is not None and self.names is None:
                self.names = [*labels.dims, labels.values]
            counts = [0 if column is None else len(column) for column in columns]
            steps = [1 if column is None else _step(column, self._rows) for column in columns]
            chunks = max(len(blocks), *(-(-n // step) for n, step in zip(counts, steps, strict=True)), 0)
            self._starts.append(self._starts[-1] + chunks)
            self._shapes.append(list(tensor.shape if self._merged else tensor.stored.shape))
            self._labelled.append(counts)
            self._steps.append(steps)

    @property
    def volume(self) -> Volume:
        stored = [self._opened(k).stored for k in range(len(self._places))]
        rows = sum(x.number_of_stored_values for x in stored)
        size = sum(x.number_of_stored_values * (8 * x.ndim + x.dtype.itemsize) for x in stored)
        return Volume(rows, size, len(stored), min(self._rows, rows))

    def __len__(self) -> int:
        return self._starts[-1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tensors": {}}

    def _opened(self, which: int) -> _Opened:
        if which not in self._tensors:
            place = self._places[which]
            tensor = reading.open(place, limits=Limits(**self._limits))
            stored = tensor.stored
            check_lazy(stored._source, name_of(place), stored.format.order)
            size = max(self._rows // 2, 1) if self._merged and tensor.structure is not None else self._rows
            self._tensors[which] = _Opened(tensor, stored, list(blocks_of(stored._source, size)))
        return self._tensors[which]

    def agreed(self, shape: tuple[int, ...]) -> tuple[Any, str | None]:
        """The fill value and the structure of all tensors. Raises FormatError for another shape, or where tensors are
        merged for one that does not hold them, and for a map, below which other coordinates are stored; ArrayError
        where tensors or their labels differ.
        """
        found: list[tuple[Any, str | None]] = []
        fill: Any = None
        for which, place in enumerate(self._places):
            tensor, there = self._opened(which).tensor, self._shapes[which]
            if tensor.map is not None and not self._merged:
                raise FormatError(Problem(name_of(place), "is stored through a map; convert it without_map() first"))
            if len(there) != len(shape) or not all(map(self._fits, range(len(shape)), there, shape)):
                what = f"has the shape {tuple(there)}, and {shape} is to be built; pass a shape that holds it"
                raise FormatError(Problem(name_of(place), what))
            found.append((tensor._pad(), None if self._merged else tensor.structure))
            if str(found[-1]) != str(found[0]):
                what = "has another fill value or structure than the first tensor; make them equal"
                raise ArrayError(Problem(name_of(place), what))
            fill = fill if which else tensor.fill_value
        if not self._merged:
            joined_labels([self._opened(k).tensor for k in range(len(found))], list(map(name_of, self._places)), -1)
        return fill, found[0][1] if found else None

    def _fits(self, dimension: int, size: int, wanted: int) -> bool:
        return size <= wanted or self.kinds[dimension] is not None if self._merged else size == wanted

    def least(self, dimension: int) -> int:
        sizes = self._shapes if self.kinds[dimension] is None else self._labelled
        return (max if sizes is self._shapes else sum)(x[dimension] for x in sizes)

    def _block_of(self, number: int) -> tuple[int, int]:
        """The number of a tensor, and of a block in it."""
        which = int(np.searchsorted(self._starts, number, side="right")) - 1
        return which, number - self._starts[which]

    def name(self, number: int) -> str:
        which, block = self._block_of(number)
        return f"{name_of(self._places[which])}, block {block}"

    def read(self, number: int) -> Chunk:
        which, at = self._block_of(number)
        with unchanged(self._places[which], self._states[which], state_of_tensor):
            opened = self._opened(which)
            return self._entries(opened, opened.blocks[at] if at < len(opened.blocks) else Block(range(0)))

    def coordinates(self, number: int) -> list[Array]:
        return self.read(number)[0]

    def _entries(self, opened: _Opened, block: Block) -> Chunk:
        tensor, stored, tree = opened.tensor, opened.stored, opened.stored._source
        columns, values = read_block(tree, block, index_dtype(tree.dims, 0))
        coords = [columns[stored.format.order.index(k)] for k in range(stored.ndim)]
        if (structure := stored.structure) is not None:
            raise_if(ArrayError, read_problems(structure, coords, values, padded=tree.padded))
            inside = in_triangle(structure, coords)
            coords, values = [x[inside] for x in coords], values[inside]
        if tree.padded and self._merged:
            pad = tensor._pad()
            with np.errstate(invalid="ignore"):
                kept = ~((values == pad) | ((values != values) & bool(pad != pad)))
            coords, values = [x[kept] for x in coords], values[kept]
        if structure is not None and self._merged:
            both, values = expand(structure, coords, values)
            coords = list(both)
        if self._merged and isinstance(held := tensor._held, Mapped):
            there, values = held.seen(coords, values)
            coords = list(there)
        return coords, values

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        which, at = self._block_of(number)
        opened = self._opened(which)
        block = opened.blocks[at] if at < len(opened.blocks) else Block(range(0))
        if block.entries is not None or not block.size:
            return block.size, picked(self.read(number), number, count)
        first, behind = block.positions.start, block.positions.stop
        starts = np.linspace(first, max(behind - _NEIGHBOURS, first), max(count // _NEIGHBOURS, 1))
        found = [
            self._entries(opened, Block(range(start, min(start + _NEIGHBOURS, behind))))[0]
            for start in np.unique(starts.astype(np.int64)).tolist()
        ]
        return block.size, [np.concatenate(x) for x in zip(*found, strict=True)]

    def labels(self, number: int, dimension: int) -> tuple[Array, Texts]:
        which, _ = self._block_of(number)
        there = self.held_labels(number, dimension)
        with unchanged(self._places[which], self._states[which], state_of_tensor):
            part = self._column(which, dimension).part(there.start, there.stop)
            return np.arange(len(there)), keys_of_column(part, str(self.kinds[dimension]))

    def _column(self, which: int, dimension: int) -> Column:
        labels = self._opened(which).tensor._metadata.labels
        assert labels is not None
        return labels.columns[labels.dims[dimension]].unviewed()

    def column(self, dimension: int) -> Column:
        """The labels of a dimension of the first tensor, read where they are sliced."""
        labels = self.first_labels()
        assert labels is not None
        return labels.columns[labels.dims[dimension]].unviewed()

    def first_labels(self) -> Labels | None:
        """The labels of the first tensor, read where they are sliced."""

        def watched(array: Sliceable) -> LazyArray:
            def segment(_: int, start: int, stop: int) -> Array:
                with unchanged(self._places[0], self._states[0], state_of_tensor):
                    return np.asarray(array[start:stop])

            return of_segments(np.array([len(array)]), segment, array.dtype)

        labels = None if self.first is None else self.first._metadata.labels
        return None if labels is None else labels.around(watched)

    @property
    def first(self) -> Tensor | None:
        """The first tensor, whose attributes are kept."""
        return self._opened(0).tensor if self._places else None

    def held_labels(self, number: int, dimension: int) -> range:
        which, at = self._block_of(number)
        step, count = self._steps[which][dimension], self._labelled[which][dimension]
        return range(min(at * step, count), min((at + 1) * step, count))

    def value_type(self) -> np.dtype[Any]:
        types = [self._opened(which).tensor.dtype for which in range(len(self._places))]
        if not types:
            raise OptionError(Problem("dtype", "there are no chunks to tell the type of the values; pass dtype="))
        if (found := common_type(types)) is None:
            what = f"no type has the values of {', '.join(sorted(set(map(str, types))))}; pass dtype="
            raise ArrayError(Problem("values", what))
        return found

    def described(self) -> dict[str, Any]:
        places = [place if isinstance(place, str) else name_of(place) for place in self._places]
        return {
            "kind": "tensors",
            "places": places,
            "rows": self._rows,
            "starts": self._starts,
            "states": self._states,
            "limits": self._limits,
            "merged": self._merged,
            "labels": self.kinds,
            "names": self.names,
            "shapes": self._shapes,
            "labelled": self._labelled,
            "steps": self._steps,
        }


def _ascend(starts: Sequence[int], count: int) -> bool:
    return len(starts) == count + 1 and starts[0] == 0 and all(a <= b for a, b in itertools.pairwise(starts))


def _listed(kinds: Sequence[str | None]) -> str:
    return ", ".join(kind or "none" for kind in kinds)


def _step(column: Column, rows: int) -> int:
    """How many labels a chunk has, where it may have so many rows."""
    each = len(column.items) // max(len(column), 1) if column.type == TEXT else 0
    return max(rows // 4 * _TEXT // max(each, _TEXT), 1)


def pointers_of(tree: Tree) -> float:
    """How many pointers a tree has for each entry."""
    return sum(n for place, _, n in tree.walk() if place.pointer) / max(len(tree.values), 1)
