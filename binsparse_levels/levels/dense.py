"""dense: every coordinate has a child, so nothing is stored; the child's position is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import Problem
from .base import Array, Arrays, Level, Positions, as_array, cells, is_everything, register


@register
@dataclass(frozen=True)
class Dense(Level):
    """`rank` dimensions stored in full, row-major: q = p·∏dims + ravel(i). Binsparse 0.1, section 3.5.2.2."""

    kind: ClassVar[str] = "dense"
    specified: ClassVar[bool] = True
    padded: ClassVar[bool] = True

    def canonical(self) -> tuple[Level, ...]:
        return (Dense(1),) * self.rank

    def fused(self) -> tuple[int, ...]:
        return (0,) * self.rank

    def roles(self) -> dict[str, str]:
        return {}

    def names(self, depth: int, root: bool) -> dict[str, str]:
        return {}

    def lengths(
        self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None
    ) -> tuple[int | None, list[Problem]]:
        return (None if n is None else n * cells(dims)), []

    def size(self, arrays: Arrays, dims: Sequence[int], n: int) -> int:
        return n * cells(dims)

    def build(
        self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int
    ) -> tuple[dict[str, Array], Positions]:
        if n == self.rank == 1:
            return {}, coords[0] if coords[0].dtype.kind == "i" else coords[0].astype(np.int64)
        return {}, self.locate({}, dims, as_array(parents), coords)

    def expand(
        self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Sequence[Positions]
    ) -> tuple[int | Array, list[Array], Positions]:
        shape = [len(w) for w in window]
        count = cells(shape) if len(positions) else 0
        if not count:
            return 0, [np.empty(0, np.int64) for _ in dims], range(0)
        coords = []
        for k, w in enumerate(window):
            x = as_array(w)
            if len(window) > 1:
                x = np.tile(np.repeat(x, cells(shape[k + 1 :])), cells(shape[:k]))
            coords.append(x)
        child: Positions | None = self._run(dims, positions, window)
        if child is None:
            offset = self.build(dims, range(1), coords, 1)[1]
            child = (as_array(positions)[:, np.newaxis] * np.int64(cells(dims)) + as_array(offset)).ravel()
        return count, [np.tile(x, len(positions)) if len(positions) > 1 else x for x in coords], child

    def reach(self, dims: Sequence[int], positions: Positions, window: Sequence[Positions]) -> Positions:
        run = self._run(dims, positions, window)
        return self.expand({}, dims, positions, window)[2] if run is None else run

    def _run(self, dims: Sequence[int], positions: Positions, window: Sequence[Positions]) -> range | None:
        """The child positions, where they are a run."""
        outer, inner = window[0], cells(dims[1:])
        if not isinstance(outer, range) or not is_everything(window[1:], dims[1:]):
            return None
        if isinstance(positions, range) and positions.step == 1 and outer == range(dims[0]):
            return range(positions.start * dims[0] * inner, positions.stop * dims[0] * inner)
        if len(positions) == 1 and outer.step == 1:
            first = int(positions[0]) * dims[0]
            return range((first + outer.start) * inner, (first + outer.stop) * inner)
        return None

    def part(
        self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Sequence[Positions]
    ) -> tuple[dict[str, Array], Positions]:
        return {}, self.reach(dims, positions, [range(size) for size in dims])

    def above(
        self, arrays: Arrays, dims: Sequence[int], n: int, children: range
    ) -> tuple[range, int | Array, list[Array]]:
        inside = cells(dims)
        fibers = range(children.start // inside, -(-children.stop // inside))
        ends = np.arange(fibers.start + 1, fibers.stop + 1) * inside
        ends[-1] = children.stop
        cell = np.arange(children.start, children.stop) % inside
        return fibers, np.diff(ends, prepend=children.start), list(np.unravel_index(cell, tuple(dims)))

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        return iter(())

    def locate(self, arrays: Arrays, dims: Sequence[int], positions: Array, coords: Sequence[Array]) -> Array:
        child = positions.astype(np.int64, copy=False)
        for size, x in zip(dims, coords, strict=True):
            child = child * np.int64(size) + x.astype(np.int64, copy=False)
        return child

    def finder(self, arrays: Arrays, dims: Sequence[int]) -> Callable[..., int]:
        if self.rank == 1:
            (size,) = dims
            return lambda position, x: position * size + x

        def find(position: int, *coords: int) -> int:
            for size, x in zip(dims, coords, strict=True):
                position = position * size + x
            return position

        return find

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return 0
