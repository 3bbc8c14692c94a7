"""band: each fiber stores one interval of coordinates in full.

    . 5 . 7     dense   rows 0, 1, 2
    . . . .     `- band   pointers_to_1 [0, 3, 3, 6]
    1 2 3 .        |      band_starts_1 [1, 0, 0]
                   `- element   values [5, 0, 7, 1, 2, 3]

Row 0 stores the columns 1, 2 and 3, including a zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from ..errors import ArrayError, Problem, raise_if
from .base import Arrays, ArraySpec, Built, Counted, Expanded, Owners, moved, wrong_lengths
from .pointers import Pointed, pointer_problems, pointers_to
from .positions import (
    Array,
    Positions,
    Window,
    as_array,
    coordinates_at,
    count_owners,
    covered,
    in_ranges,
    items_at,
    ranges,
)
from .registry import register


@register
class Band(Pointed):
    """Each fiber stores one interval of coordinates, by its start and length. Every cell of it has a value.

    Fiber p stores the coordinates start[p] … start[p] + ptr[p+1] - ptr[p] - 1: q = ptr[p] + i - start[p]. For
    banded and skyline matrices, and ragged arrays. Every coordinate of the interval is stored, entry or not.

    Parameters
    ----------
    rank : int
        The number of dimensions, 1.

    See Also
    --------
    Dense : Store every coordinate.
    Run : Store runs of consecutive coordinates with equal values.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> bl.pack_dense(np.eye(2), "dense, band").arrays["band_starts_1"].tolist()
    [0, 1]
    """

    kind: ClassVar[str] = "band"
    max_rank: ClassVar[int] = 1
    padded: ClassVar[bool] = True

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        return {"ptr": ArraySpec.pointers(depth), "start": ArraySpec(f"band_starts_{depth}", "index", 0)}

    def lengths(self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None) -> Counted:
        fibers = lengths["start"] if n is None else n
        return None, wrong_lengths(lengths, {"ptr": fibers + 1, "start": fibers})

    def build(self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int) -> Built:
        parent, x = as_array(parents), coords[0].astype(np.int64, copy=False)
        ends = count_owners(parent, n, np.dtype(np.int64))
        first, stop = ends[:-1], ends[1:]
        there = first < stop
        starts, counts = np.zeros((2, n), np.int64)
        starts[there] = x[first[there]]
        counts[there] = x[stop[there] - 1] + 1 - starts[there]
        pointers = np.append(0, np.cumsum(counts))
        return {"ptr": pointers, "start": starts}, pointers[parent] + x - starts[parent]

    def expand(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Expanded:
        origins, begins, counts = self._covered(arrays, positions, window[0])
        x = coordinates_at(window[0], ranges(begins, counts))
        return counts, [x], x + np.repeat(origins, counts)

    def _covered(self, arrays: Arrays, positions: Positions, selected: Positions) -> tuple[Array, Array, Array]:
        """The child that coordinate 0 of each fiber would have; the band's first index and its count in the window."""
        first, stop = self.bounds(arrays, positions)
        starts = items_at(arrays["start"], positions).astype(np.int64)
        return first - starts, *covered(selected, starts, starts + stop - first)

    def cut(self, arrays: Arrays, dims: Sequence[int], window: Window) -> Built:
        (selected,), fibers = window, range(len(arrays["start"]))
        origins, begins, counts = self._covered(arrays, fibers, selected)
        starts = np.where(counts, begins, 0).astype(arrays["start"].dtype)
        made = {"ptr": pointers_to(counts, arrays["ptr"].dtype), "start": starts}
        if len(counts) == 1 and counts[0] and isinstance(selected, range):  # which may be long
            child = selected.start + int(begins[0]) * selected.step + int(origins[0])
            return made, range(child, child + int(counts[0]) * selected.step, selected.step)
        return made, coordinates_at(selected, ranges(begins, counts)) + np.repeat(origins, counts)

    def part(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Built:
        pointers = arrays["ptr"]
        first, stop = self.bounds(arrays, positions, int(pointers[-1:][0]))
        counts = stop - first
        local = {"ptr": pointers_to(counts, pointers.dtype), "start": items_at(arrays["start"], positions)}
        return local, in_ranges(first, counts)

    def above(self, arrays: Arrays, dims: Sequence[int], n: int, children: range) -> Owners:
        fibers, bounds, counts = self._fibers_above(arrays, dims, n, children)
        starts = arrays["start"][fibers.start : fibers.stop].astype(np.int64)
        in_memory = isinstance(arrays["start"], np.ndarray)
        if not in_memory:
            problems = self.check({"ptr": bounds - bounds[0], "start": starts}, dims, len(starts))
            raise_if(ArrayError, (moved(problem, fibers.start) for problem in problems))
        return Owners(fibers, counts, [as_array(children) + np.repeat(starts - bounds[:-1], counts)])

    def loop(self, root: bool) -> str:
        return "for q in range(ptr[p], ptr[p + 1]):\n    i0 = start[p] + q - ptr[p]\n    yield"

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        pointers, starts = arrays["ptr"], arrays["start"].astype(np.int64)
        problems = list(pointer_problems(pointers, int(pointers[-1])))
        yield from problems
        if problems:
            return
        lengths = np.diff(pointers.astype(np.int64))
        (bad,) = ((starts < 0) | (lengths > dims[0]) | (starts > dims[0] - lengths)).nonzero()
        for p in bad[:1].tolist():
            what = f"{lengths[p]} coordinates from {starts[p]} on are outside its dimension of size {dims[0]}"
            yield Problem(f"start[{p}]", what)

    def locate(self, arrays: Arrays, dims: Sequence[int], positions: Array, coords: Sequence[Array]) -> Array:
        first, stop = (arrays["ptr"][x].astype(np.int64) for x in (positions, positions + 1))
        offset = coords[0].astype(np.int64) - arrays["start"][positions].astype(np.int64)
        return np.where((offset >= 0) & (offset < stop - first), first + offset, -1)

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return (2 * n + 1) * itemsize
