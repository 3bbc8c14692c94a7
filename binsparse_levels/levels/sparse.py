"""sparse: each fiber lists its coordinates in lexicographic order.

    . 5 . 7     dense   rows 0, 1, 2
    . . . .     `- sparse   pointers_to_1 [0, 2, 2, 5]
    1 2 3 .        |        indices_1 [1, 3, 0, 1, 2]
                   `- element   values [5, 7, 1, 2, 3]

Row 2 owns the children 2, 3 and 4, whose columns are 0, 1 and 2.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from .. import kernels, parallel
from ..errors import Problem
from ..limits import INT32_MAX
from ..thresholds import THRESHOLDS
from .base import CONTINUED, SPARSE, Arrays, ArraySpec, Built, Expanded, Level, Owners, Split
from .pointers import REMEDY, SHOWN, Lists, bisect, in_fiber, is_short, pointer_problems, pointers_to, refuse_outside
from .positions import (
    Array,
    Positions,
    Window,
    as_array,
    count_owners,
    fitted,
    in_ranges,
    in_window,
    is_everything,
    items_at,
    repeat_to,
    signed,
    slots,
    words,
)
from .registry import register

_MERGING = "repeated; pack, read and repair merge such entries by duplicates='sum'"
_FIND_COST = 30  # of Python, as for `pays_off`
_SEARCH_BYTES = 256  # that a search moves: some lines of the cache


@register
class Sparse(Lists):
    """Each fiber stores a sorted list of its coordinates, and a pointer to the beginning of the list.

    Fiber p owns the children ptr[p] … ptr[p+1], whose coordinates are idx0, idx1 …. Binsparse 0.1, section 3.5.2.3.
    The root level is one fiber, and has no pointers.

    Parameters
    ----------
    rank : int
        The number of dimensions, 1 or more.

    See Also
    --------
    Dense : Store every coordinate.
    Hashed : Store the coordinates of each fiber in a hash table.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> bl.pack_dense(np.eye(2), "sparse(2)").arrays["indices_1"].tolist()
    [0, 1]
    """

    kind: ClassVar[str] = "sparse"
    specified: ClassVar[bool] = True

    def fused(self) -> tuple[int, ...]:
        return (SPARSE,) + (CONTINUED,) * (self.rank - 1)

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        specs = {} if root else {"ptr": ArraySpec.pointers(depth)}
        for k in range(self.rank):
            specs[f"idx{k}"] = ArraySpec(f"indices_{depth + k}", "index", k)
        return specs

    def build(self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int) -> Built:
        dtype = coords[0].dtype
        entries = np.array([0, len(coords[0])], dtype) if n == 1 else count_owners(as_array(parents), n, dtype)
        columns = [x.astype(dtype, copy=False) for x in coords]
        made, below = self.split(dims, entries, columns, distinct=False)
        assert below is not None
        children = len(below) - 1
        if children == len(coords[0]):
            return _named(made["ptr"], columns), range(children)
        return made, repeat_to(np.arange(children), below, len(coords[0]))

    def split(self, dims: Sequence[int], begins: Array, coords: Sequence[Array], *, distinct: bool) -> Split:
        count = len(coords[0])
        if distinct:  # the coordinates are the indices, without a copy
            return _named(begins, coords), None
        if not kernels.pays_off(count):
            new = np.zeros(count, bool)
            new[signed(begins[:-1][begins[1:] > begins[:-1]])] = True
            for x in coords:
                new[1:] |= x[1:] != x[:-1]
            (starts,) = new.nonzero()
            below = np.append(starts, count).astype(begins.dtype)
            pointers = np.append(0, new.cumsum())[signed(begins)].astype(begins.dtype)
            return _named(pointers, [x[starts] for x in coords]), below
        pointers, below = np.empty(len(begins), begins.dtype), np.empty(count + 1, begins.dtype)
        firsts = [np.empty(count, x.dtype) for x in coords]
        arguments = words(begins), tuple(map(words, coords)), slots(pointers), tuple(map(slots, firsts)), slots(below)
        children = int(kernels.fibers.split(*arguments))
        del arguments  # so that the arrays can be resized
        below.resize(children + 1, refcheck=False)
        for x in firsts:
            x.resize(children, refcheck=False)
        return _named(pointers, firsts), below

    def expand(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Expanded:
        if isinstance(positions, range) and positions.step == 1 and is_everything(window, dims):
            pointers = signed(self.pointers(arrays)[positions.start : positions.stop + 1])
            whole = range(int(pointers[0]), int(pointers[-1]))
            pointers = pointers - pointers[0] if whole.start else pointers
            return pointers, [x[whole.start : whole.stop] for x in self._columns(arrays)], whole
        starts, ends = self.bounds(arrays, positions)
        child, counts, kept = self._children(arrays, dims, starts, ends, positions, window)
        coords = [items_at(x, child) for x in self._columns(arrays)]
        if is_everything(window[kept:], dims[kept:]):
            return counts, coords, child
        return in_window(counts, coords, child, window)

    def loop(self, root: bool) -> str:
        columns = "".join(f"    i{k} = idx{k}[q]\n" for k in range(self.rank))
        return f"for q in range({'children' if root else 'ptr[p], ptr[p + 1]'}):\n{columns}    yield"

    def part(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Built:
        column = arrays["idx0"]
        whole = "ptr" in arrays and is_everything(window, dims)
        if whole and isinstance(positions, range) and positions and positions.step == 1:
            bounds = arrays["ptr"][positions.start : positions.stop + 1]
            first, last, total = int(bounds[0]), int(bounds[-1]), column.shape[0]
            least = total if positions.stop == len(arrays["ptr"]) - 1 else first
            if not 0 <= first <= last <= total or last < least or (first and not positions.start):
                refuse_outside(positions, len(arrays["ptr"]) - 1, bounds[:-1], bounds[1:], total)
            part = {"ptr": bounds - bounds[0]}
            for role, x in arrays.items():
                if role != "ptr":
                    part[role] = x[first:last]
            return part, range(first, last)
        starts, ends = self.bounds(arrays, positions, len(column))
        child, counts, _ = self._children(arrays, dims, starts, ends, positions, window)
        pointers = pointers_to(counts, arrays["ptr" if "ptr" in arrays else "idx0"].dtype)
        return _named(pointers, [items_at(x, child) for x in self._columns(arrays)]), child

    def _children(
        self, arrays: Arrays, dims: Sequence[int], starts: Array, ends: Array, positions: Positions, window: Window
    ) -> tuple[Positions, Array, int]:
        """The children of the fibers that may be in the window, their number in each fiber, and the number of leading
        dimensions in which all of them are inside.
        """
        column, selected, kept = arrays["idx0"], window[0], 0
        everything = is_everything(window[:1], dims[:1])
        in_memory, few = isinstance(column, np.ndarray), len(starts) <= THRESHOLDS.searched_fibers
        if not everything and len(starts) and (few or (in_memory and kernels.pays_off(len(column)))):
            if not len(selected):
                return range(0), np.zeros(len(starts), np.int64), 0
            reach = _reach(selected)
            kept = int(isinstance(selected, range) and selected.step == 1 and in_memory)
            if not few:
                child = np.empty(int((ends - starts).sum()) + 1, np.int64)
                counts = np.empty(len(starts), np.int64)
                of_fibers = map(kernels.readable, (starts, ends, column))
                total = kernels.fibers.list_within(*of_fibers, reach.start, reach.stop, counts, child)
                return child[: int(total)], counts, kept
            fibers = zip(starts.tolist(), ends.tolist(), strict=True)
            starts, ends = np.array([_searched_in(column, reach, *fiber) for fiber in fibers]).T
        counts = ends - starts
        if len(starts) < 2 or (everything and isinstance(positions, range) and positions.step == 1):
            return (range(int(starts[0]), int(ends[-1])) if len(starts) else range(0)), counts, kept
        return in_ranges(starts, counts), counts, kept

    def above(self, arrays: Arrays, dims: Sequence[int], n: int, children: range) -> Owners:
        return Owners(*self._items_above(arrays, dims, n, children))

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        # Kernels count faults; numpy locates them. Valid arrays need only the kernels, few entries only numpy.
        pointers, columns = self.pointers(arrays), self._columns(arrays)
        n_entries = len(columns[0])
        if kernels.pays_off(n_entries) and not _faults(arrays, pointers, columns, dims, order=order):
            return
        valid = True
        if "ptr" in arrays:
            for problem in pointer_problems(pointers, n_entries):
                valid = False
                yield problem
        for k, x in enumerate(columns):
            for problem in _range_problems(f"idx{k}", x, dims[k], pointers):
                order = False
                yield problem
        if order and valid and n_entries:
            yield from _order_problems(pointers, columns)

    def locate(self, arrays: Arrays, dims: Sequence[int], positions: Array, coords: Sequence[Array]) -> Array:
        if not kernels.pays_off(len(positions), _FIND_COST):
            listed = [kernels.readable(x).data for x in (self.pointers(arrays), *self._columns(arrays))]
            rows = zip(positions.tolist(), *(x.tolist() for x in coords), strict=True)
            return np.array([_find(*listed, place=row) for row in rows], np.int64)
        columns = kernels.common_type(self._columns(arrays))
        targets = tuple(kernels.readable(x, np.int64) for x in coords)
        child = np.empty(len(positions), np.int64)
        pointers, at = kernels.readable(self.pointers(arrays)), kernels.readable(positions, np.int64)
        parallel.each(
            lambda share: kernels.fibers.search(pointers, columns, at, targets, *share, child),
            parallel.shares(len(child), _SEARCH_BYTES),
        )
        return child

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return ((0 if root else n + 1) + self.rank * children) * itemsize

    def sliced(self, dims: Sequence[int], n: int, children: int, k: int, *, root: bool, itemsize: int) -> int:
        """A selection in the first dimension reads all pointers, searches each fiber, and reads the found indices."""
        whole = dims[k] * self.nbytes(dims, n, children, root=root, itemsize=itemsize)
        searched = n * (children // n).bit_length() if n else 0
        items_read = dims[k] * ((0 if root else n + 1) + searched) + self.rank * children
        return min(items_read * itemsize, whole) if k == 0 else whole

    def _columns(self, arrays: Arrays) -> list[Array]:
        return [arrays[f"idx{k}"] for k in range(self.rank)]


def _find(pointers: memoryview, *columns: memoryview, place: Sequence[int]) -> int:
    """The child of a fiber at some coordinates, or -1. Buffers are used because their items become integers quickly."""
    low, high = pointers[place[0]], pointers[place[0] + 1]
    for column, x in zip(columns, place[1:], strict=True):
        low = bisect_left(column, x, low, high)
        high = bisect_right(column, x, low, high)
    return low if low < high else -1


def _searched_in(column: Any, reach: range, low: int, high: int) -> tuple[int, int]:
    """The bounds of the children in a window of a fiber, by a search; those of a short fiber in a file unchanged."""
    if not isinstance(column, np.ndarray) and is_short(low, high):
        return low, high
    disorder = Problem("idx0", f"the coordinates of a fiber are not in ascending order ({REMEDY})")
    return bisect(column, reach.start, low, high, disorder), bisect(column, reach.stop, low, high, disorder)


def _reach(selected: Positions) -> range:
    """The range from the first selected coordinate to the last."""
    return range(int(selected[0]), int(selected[-1]) + 1) if len(selected) else range(0)


def _named(pointers: Array, columns: Sequence[Array]) -> dict[str, Array]:
    """The arrays of a level by role."""
    return {"ptr": pointers} | {f"idx{k}": x for k, x in enumerate(columns)}


def listing(rank: int) -> tuple[Level, ...]:
    """Levels that list the coordinates of entries and store nothing else; none for a scalar."""
    return (Sparse(rank),) if rank else ()


def filled(pointers: Array) -> tuple[Array, Array]:
    """The fibers that have children, and pointers to the children of these fibers.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> [x.tolist() for x in filled(np.array([0, 0, 2, 2, 5]))]
    [[1, 3], [0, 2, 5]]
    """
    ends = fitted(np.array([0, len(pointers)]), pointers.dtype)
    made, begins = Sparse().split((), ends, [pointers], distinct=False)  # each distinct pointer is a child
    assert begins is not None
    begins -= begins.dtype.type(1)
    return begins[1:-1], made["idx0"]


def _unsigned(array: Array, narrow: bool) -> Array:
    size = 4 if narrow else 8
    return kernels.readable(array, f"{array.dtype.kind}{size}").view(f"u{size}")


def _faults(arrays: Arrays, pointers: Array, columns: Sequence[Array], dims: Sequence[int], *, order: bool) -> bool:
    """Return True if kernels count any fault in the arrays of a level."""
    # Negative numbers are too large in an unsigned view, if no valid number needs the upper half.
    entries = len(columns[0])
    narrow = max([*dims, entries]) <= INT32_MAX and all(a.dtype.itemsize <= 4 for a in arrays.values())
    pointers = _unsigned(pointers, narrow)
    if kernels.check.count_bad_pointers(pointers, entries):
        return True
    listed = tuple(_unsigned(x, narrow) for x in columns)
    sizes = tuple(map(listed[0].dtype.type, dims))
    fibers = len(pointers) - 1

    def entry(x: int) -> int:
        """The entry with x entries and fibers before it. Empty fibers count, because they cost the time of an entry."""
        return x - bisect_left(range(fibers), x, key=lambda p: p + int(pointers[p]))

    shares = parallel.shares(entries + fibers, len(listed) * listed[0].itemsize // 2)  # half: nothing is written
    cuts = [0, *[entry(stop) for _, stop in shares[:-1]], entries]

    def count(share: tuple[int, int]) -> tuple[bool, int]:
        begins = np.zeros(kernels.check.BLOCK_ENTRIES, np.uint8)
        found: tuple[bool, int] = kernels.check.count_bad_entries(pointers, listed, sizes, *share, begins)
        return found

    found = parallel.each(count, itertools.pairwise(cuts))
    return any(outside or (order and descents) for outside, descents in found)


def _unordered(pointers: Array, columns: Sequence[Array]) -> Array:
    """A mask of the entries that do not come after the one before in their fiber. Precondition: valid pointers."""
    wrong = np.empty(len(columns[0]) + 1, bool)
    np.less_equal(columns[-1][1:], columns[-1][:-1], out=wrong[1:-1])
    for x in columns[-2::-1]:
        wrong[1:-1] &= x[1:] == x[:-1]
        wrong[1:-1] |= x[1:] < x[:-1]
    # The first entry of each fiber is in order. numpy takes 0.8 µs more to index with another type.
    wrong[pointers.astype(np.intp, copy=False)] = False
    return wrong


def _range_problems(role: str, indices: Array, size: int, pointers: Array) -> Iterator[Problem]:
    (bad,) = ((indices < 0) | (indices >= size)).nonzero()
    if not len(bad):
        return
    for q in bad[:SHOWN].tolist():
        yield Problem(f"{role}[{q}]", f"{indices[q]} is outside its dimension of size {size}{in_fiber(pointers, q)}")
    if len(bad) > SHOWN:
        yield Problem(role, f"{len(bad)} in all are out of range")


def _order_problems(pointers: Array, columns: Sequence[Array]) -> Iterator[Problem]:
    (bad,) = _unordered(pointers, columns).nonzero()
    if not len(bad):
        return
    for q in bad[:SHOWN].tolist():
        place = ", ".join(str(x[q]) for x in columns)
        equal = all(x[q] == x[q - 1] for x in columns)
        fault = "repeats the coordinate before it" if equal else "does not come after the coordinate before it"
        remedy = f" ({_MERGING if equal else REMEDY})" if q == bad[0] else ""
        yield Problem(f"idx0[{q}]", f"{place} {fault}{remedy}{in_fiber(pointers, q)}")
    if len(bad) > SHOWN:
        yield Problem("idx0", f"{len(bad)} in all are out of order or repeated")
