"""run: each fiber lists runs of neighbouring coordinates. The coordinates of a run share one child.

    5 5 . 7     dense   rows 0, 1, 2
    . . . .     `- run   pointers_to_1 [0, 2, 2, 3]
    . 7 7 7        |     run_starts_1 [0, 3, 1]
                   |     run_ends_1 [2, 4, 4]
                   `- element   values [5, 7, 7]

Row 0 has two runs: columns 0 and 1 share the value 5, column 3 has 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from ..errors import Problem
from .base import Arrays, ArraySpec, Built, Expanded, Owners
from .pointers import Lists, bisect, is_short, pointer_problems, pointers_to
from .positions import (
    Array,
    Positions,
    Window,
    as_array,
    as_pointers,
    below_fibers,
    children_of,
    coordinates_at,
    covered,
    in_ranges,
    is_everything,
    items_at,
    ranges,
    times,
)
from .registry import register


@register
class Run(Lists):
    """Each run of coordinates with the same content stores its start and its end, and the content once.

    Fiber p owns the runs ptr[p] … ptr[p+1]; run q covers the coordinates start[q] … end[q] - 1, which share child
    q. Run-length encoding, which includes the levels below: consecutive equal rows of a matrix are stored once.

    Parameters
    ----------
    rank : int
        The number of dimensions, 1.

    See Also
    --------
    Sparse : Store the coordinates of each fiber.
    Dense : Store every coordinate.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.pack_dense([5, 5, 0, 7], "run").arrays["run_ends_0"].tolist()
    [2, 4]
    """

    kind: ClassVar[str] = "run"
    max_rank: ClassVar[int] = 1
    shares: ClassVar[bool] = True

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        specs = {} if root else {"ptr": ArraySpec.pointers(depth)}
        return specs | {role: ArraySpec(f"run_{role}s_{depth}", "index", 0) for role in ("start", "end")}

    def build(
        self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int, same: Array | None = None
    ) -> Built:
        assert same is not None
        parent, (x,) = as_array(parents), coords
        new = np.ones(len(x), bool)
        new[1:] = (parent[1:] != parent[:-1]) | (x[1:] > x[:-1] + 1) | (same[1:] != same[:-1])
        (starts,) = new.nonzero()
        last = np.append(starts[1:], len(x)) - 1 if len(x) else starts
        pointers = np.searchsorted(parent[starts], np.arange(n + 1))
        return {"ptr": pointers, "start": x[starts], "end": x[last] + 1}, np.cumsum(new) - 1

    def expand(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Expanded:
        counts, runs = children_of(self.pointers(arrays), as_array(positions))
        begins, lengths = self._covered(arrays, runs, window[0])
        x = coordinates_at(window[0], ranges(begins, lengths))
        return below_fibers(as_pointers(counts, len(counts)), lengths), [x], np.repeat(runs, lengths)

    @staticmethod
    def _covered(arrays: Arrays, runs: Positions, window: Positions) -> tuple[Array, Array]:
        """The index in the window at which each run begins, and its number of coordinates there."""
        starts, ends = (items_at(arrays[role], runs).astype(np.int64) for role in ("start", "end"))
        return covered(window, starts, ends)

    def part(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Built:
        starts, ends = self.bounds(arrays, positions, len(arrays["start"]))
        (selected,) = window
        if len(starts) == 1 and len(selected) and not is_short(low := int(starts[0]), high := int(ends[0])):
            disorder = Problem("start", "the runs of a fiber are not in ascending order")
            starts = np.array([bisect(arrays["end"], int(selected[0]) + 1, low, high, disorder)])
            ends = np.array([bisect(arrays["start"], int(selected[-1]) + 1, low, high, disorder)])
        child = in_ranges(starts, ends - starts)
        read = {role: items_at(arrays[role], child) for role in ("start", "end")}
        return {"ptr": pointers_to(ends - starts, arrays["start"].dtype)} | read, child

    def above(self, arrays: Arrays, dims: Sequence[int], n: int, children: range) -> Owners:
        fibers, counts, bounds = self._items_above(arrays, dims, n, children)
        starts, ends = (x.astype(np.int64) for x in bounds)
        return Owners(fibers, counts, [starts], ends - starts)

    def cut(self, arrays: Arrays, dims: Sequence[int], window: Window) -> Built:
        begins, lengths = self._covered(arrays, range(len(arrays["start"])), window[0])
        kept = lengths > 0
        dtype = arrays["start"].dtype
        pointers = pointers_to(below_fibers(self.pointers(arrays), kept.astype(np.int64)), dtype)
        places = {"start": begins[kept], "end": (begins + lengths)[kept]}
        return {"ptr": pointers} | {role: x.astype(dtype) for role, x in places.items()}, np.flatnonzero(kept)

    def reached(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Positions:
        runs = children_of(self.pointers(arrays), as_array(positions))[1]
        return runs if is_everything(window, dims) else runs[self._covered(arrays, runs, window[0])[1] > 0]

    def loop(self, root: bool) -> str:
        runs = "children" if root else "ptr[p], ptr[p + 1]"
        return f"for q in range({runs}):\n    for i0 in range(start[q], end[q]):\n        yield"

    def count(self, arrays: Arrays, dims: Sequence[int], n: int, below: int | Array) -> Array:
        lengths = arrays["end"].astype(np.int64) - arrays["start"].astype(np.int64)
        return below_fibers(self.pointers(arrays), times(lengths, below))

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        starts, ends = arrays["start"].astype(np.int64), arrays["end"].astype(np.int64)
        pointers = self.pointers(arrays)
        valid = True
        for problem in pointer_problems(pointers, len(starts)) if "ptr" in arrays else ():
            valid = False
            yield problem
        (bad,) = ((starts < 0) | (starts >= ends) | (ends > dims[0])).nonzero()
        for q in bad[:1].tolist():
            valid = False
            yield Problem(
                f"start[{q}]", f"a run from {starts[q]} to {ends[q]} is outside its dimension of size {dims[0]}"
            )
        if valid and order:
            disjoint = starts[1:] >= ends[:-1]
            disjoint[pointers[(pointers > 0) & (pointers < len(starts))].astype(np.int64) - 1] = True
            for q in (np.flatnonzero(~disjoint) + 1)[:1].tolist():
                yield Problem(
                    f"start[{q}]", f"{starts[q]} does not come after the run before it, which ends at {ends[q - 1]}"
                )

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return ((0 if root else n + 1) + 2 * children) * itemsize
