"""sparse: each fiber lists the coordinates that it has, in lexicographic order.

    . 5 . 7     dense   rows 0, 1, 2
    . . . .     `- sparse   pointers_to_1 [0, 2, 2, 5]
    1 2 3 .        |        indices_1 [1, 3, 0, 1, 2]
                   `- element   values [5, 7, 1, 2, 3]

Row 2 owns the children 2, 3 and 4, whose columns are 0, 1 and 2.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from .. import kernels, parallel
from ..errors import ArrayError, Problem, raise_if
from ..limits import INT32_MAX
from .base import (
    CONTINUED,
    SPARSE,
    Arrays,
    ArraySpec,
    Built,
    Counted,
    Expanded,
    Level,
    Listed,
    Owners,
    Split,
    moved,
    wrong_lengths,
)
from .positions import (
    Array,
    Positions,
    Window,
    as_array,
    below_fibers,
    count_owners,
    inside,
    is_everything,
    items_at,
    ranges,
    repeat_to,
    signed,
    slots,
    words,
)
from .registry import register

_FEW_FIBERS = 16  # up to this number, the ends of a window are searched in each fiber; else fibers are read whole
_AT_ONCE = 512  # items of a file that are read at once, because a search would read more often


@register
@dataclass(frozen=True)
class Sparse(Level):
    """Fiber p owns the children ptr[p] … ptr[p+1], whose coordinates are idx0, idx1 …. Binsparse 0.1, section 3.5.2.3.

    The root level is one fiber, and has no pointers.

    >>> pack_dense(np.eye(2), "sparse(2)").arrays["indices_1"].tolist()
    [0, 1]
    """

    kind: ClassVar[str] = "sparse"
    specified: ClassVar[bool] = True

    def fused(self) -> tuple[int, ...]:
        return (SPARSE,) + (CONTINUED,) * (self.rank - 1)

    def join(self) -> Literal["lists"]:
        return "lists"

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        found = {} if root else {"ptr": ArraySpec.pointers(depth)}
        for k in range(self.rank):
            found[f"idx{k}"] = ArraySpec(f"indices_{depth + k}", "index", k)
        return found

    def lengths(self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None) -> Counted:
        children = lengths["idx0"]
        wanted = {"ptr": None if n is None else n + 1} | {f"idx{k}": children for k in range(self.rank)}
        return children, wrong_lengths(lengths, wanted)

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

    def split(self, dims: Sequence[int], entries: Array, coords: Sequence[Array], *, distinct: bool) -> Split:
        count = len(coords[0])
        if distinct:  # the coordinates are the indices, without a copy
            return _named(entries, coords), None
        if not kernels.worth(count):
            new = np.zeros(count, bool)
            new[signed(entries[:-1][entries[1:] > entries[:-1]])] = True
            for x in coords:
                new[1:] |= x[1:] != x[:-1]
            (starts,) = new.nonzero()
            below = np.append(starts, count).astype(entries.dtype)
            pointers = np.append(0, new.cumsum())[signed(entries)].astype(entries.dtype)
            return _named(pointers, [x[starts] for x in coords]), below
        pointers, below = np.empty(len(entries), entries.dtype), np.empty(count + 1, entries.dtype)
        firsts = [np.empty(count, x.dtype) for x in coords]
        given = words(entries), tuple(map(words, coords)), slots(pointers), tuple(map(slots, firsts)), slots(below)
        children = int(kernels.fibers.split(*given))
        del given  # so that the arrays may change their size
        below.resize(children + 1, refcheck=False)
        for x in firsts:
            x.resize(children, refcheck=False)
        return _named(pointers, firsts), below

    def from_counts(
        self, dims: Sequence[int], counts: int | Array, coords: Sequence[Array], n: int
    ) -> dict[str, Array]:
        pointers = pointers_to(np.broadcast_to(counts, n), coords[0].dtype)
        return _named(pointers, coords)

    def expand(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Expanded:
        starts, ends = self._bounds(arrays, positions)
        child, counts, kept = self._children(arrays, dims, starts, ends, positions, window)
        coords = [items_at(x, child) for x in self._columns(arrays)]
        if is_everything(window[kept:], dims[kept:]):
            return counts, coords, child
        wanted = inside(window, coords)
        total = np.concatenate(([0], np.cumsum(wanted)))
        return np.diff(total[np.cumsum(counts)], prepend=0), [x[wanted] for x in coords], as_array(child)[wanted]

    def listed(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Listed:
        if not (isinstance(positions, range) and positions.step == 1 and is_everything(window, dims)):
            return Level.listed(self, arrays, dims, positions, window)
        pointers = signed(self._pointers(arrays)[positions.start : positions.stop + 1])
        children = range(int(pointers[0]), int(pointers[-1]))
        pointers = pointers - pointers[0] if children.start else pointers
        return pointers, [x[children.start : children.stop] for x in self._columns(arrays)], children

    def loop(self, root: bool) -> str:
        columns = "".join(f"    i{k} = idx{k}[q]\n" for k in range(self.rank))
        return f"for q in range({'children' if root else 'ptr[p], ptr[p + 1]'}):\n{columns}    yield"

    def count(self, arrays: Arrays, dims: Sequence[int], n: int, below: int | Array) -> Array:
        return below_fibers(self._pointers(arrays), below)

    def part(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Built:
        column = arrays["idx0"]
        if isinstance(positions, range) and positions.step == 1 and "ptr" in arrays and is_everything(window, dims):
            bounds = arrays["ptr"][positions.start : positions.stop + 1]
            here = range(int(bounds[0]), int(bounds[-1]))
            if not 0 <= here.start <= here.stop <= len(column):
                refuse_outside(bounds[:1], bounds[-1:], len(column))
            columns = [arrays[f"idx{k}"][here.start : here.stop] for k in range(self.rank)]
            return _named(bounds - bounds[0], columns), here
        starts, ends = self._bounds(arrays, positions)
        refuse_outside(starts, ends, len(column))
        child, counts, _ = self._children(arrays, dims, starts, ends, positions, window)
        pointers = pointers_to(counts, arrays["ptr" if "ptr" in arrays else "idx0"].dtype)
        return _named(pointers, [items_at(x, child) for x in self._columns(arrays)]), child

    def _bounds(self, arrays: Arrays, positions: Positions) -> tuple[Array, Array]:
        """Where the children of each fiber begin and end."""
        if "ptr" not in arrays:
            bounds = np.array([0, len(arrays["idx0"])])[: len(positions) + 1]
        elif isinstance(positions, range) and positions.step == 1:
            bounds = arrays["ptr"][positions.start : positions.stop + 1]
        else:
            at = as_array(positions)
            return arrays["ptr"][at].astype(np.int64), arrays["ptr"][at + 1].astype(np.int64)
        bounds = bounds.astype(np.int64, copy=False)
        return bounds[:-1], bounds[1:]

    def _children(
        self, arrays: Arrays, dims: Sequence[int], starts: Array, ends: Array, positions: Positions, window: Window
    ) -> tuple[Positions, Array, int]:
        """Children of the fibers that may lie in the window, how many each fiber has, and the number of first
        dimensions in which all of them are inside.
        """
        column, wanted, kept = arrays["idx0"], window[0], 0
        everything = is_everything(window[:1], dims[:1])
        in_memory = isinstance(column, np.ndarray)
        searched = kernels.worth(len(column)) if in_memory else len(starts) <= _FEW_FIBERS
        if not everything and len(starts) and searched:
            if not len(wanted):
                return range(0), np.zeros(len(starts), np.int64), 0
            reach = range(int(wanted[0]), int(wanted[-1]) + 1)
            kept = int(isinstance(wanted, range) and wanted.step == 1)
            if in_memory:
                given = *map(kernels.readable, (starts, ends, column)), reach.start, reach.stop
                if len(starts) > _FEW_FIBERS:
                    child, counts = np.empty(int((ends - starts).sum()) + 1, np.int64), np.empty(len(starts), np.int64)
                    total = int(kernels.fibers.list_within(*given, counts, child))
                    return child[:total], counts, kept
                narrowed = np.empty((2, len(starts)), np.int64)
                kernels.fibers.narrow(*given, narrowed)
                starts, ends = narrowed
            else:
                bounds = list(zip(starts.tolist(), ends.tolist(), strict=True))
                starts = np.array([bisect(column, reach.start, *place) for place in bounds])
                ends = np.array([bisect(column, reach.stop, *place) for place in bounds])
        counts = ends - starts
        contiguous = len(starts) < 2 or (
            isinstance(positions, range)
            and positions.step == 1
            and (everything or bool((starts[1:] == ends[:-1]).all()))
        )
        if contiguous:
            return (range(int(starts[0]), int(ends[-1])) if len(starts) else range(0)), counts, kept
        total = int(counts.sum())
        if not kernels.worth(total):
            return ranges(starts, counts), counts, kept
        child = np.empty(total, np.int64)
        kernels.fibers.fan_ranges(kernels.readable(starts), kernels.readable(counts), child)
        return child, counts, kept

    def above(self, arrays: Arrays, dims: Sequence[int], n: int, children: range) -> Owners:
        fibers, counts, columns = listed_above(self, arrays, dims, n, children)
        return Owners(fibers, counts, self._columns(columns))

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        # Kernels count faults; numpy finds their places. Sound arrays need the kernels only, few entries numpy only.
        n_entries = len(arrays["idx0"])
        counted = kernels.worth(n_entries)
        # Negative numbers show as too large in an unsigned view, as long as nothing valid needs the upper half.
        unsigned: dict[str, Array] = {}
        if counted:
            narrow = max([*dims, n_entries]) <= INT32_MAX and all(a.dtype.itemsize <= 4 for a in arrays.values())
            unsigned = {role: _unsigned(array, narrow) for role, array in arrays.items()}
        pointers, columns = self._pointers(arrays), self._columns(arrays)
        sound = in_range = True
        if "ptr" in arrays and (not counted or kernels.check.count_bad_pointers(unsigned["ptr"], n_entries)):
            for problem in pointer_problems(pointers, n_entries):
                sound = False
                yield problem
        outside = descents = 1
        if counted:
            given = tuple(unsigned[f"idx{k}"] for k in range(self.rank))
            outside, descents = _bad_entries(unsigned.get("ptr") if sound else None, given, dims)
        for k in range(self.rank) if outside else ():
            for problem in _range_problems(f"idx{k}", columns[k], dims[k], pointers):
                in_range = False
                yield problem
        if order and sound and in_range and n_entries and descents:
            yield from _order_problems(pointers, columns)

    def check_in_parts(self, arrays: Arrays, dims: Sequence[int], n: int, size: int) -> Iterator[Problem]:
        return check_listed_in_parts(self, arrays, dims, n, size)

    def locate(self, arrays: Arrays, dims: Sequence[int], positions: Array, coords: Sequence[Array]) -> Array:
        if not kernels.worth(len(positions)):
            rows = zip(positions.tolist(), *(x.tolist() for x in coords), strict=True)
            return np.array(list(itertools.starmap(self.finder(arrays, dims), rows)), np.int64)
        columns = kernels.alike(self._columns(arrays))
        wanted = tuple(kernels.readable(x, np.int64) for x in coords)
        child = np.empty(len(positions), np.int64)
        pointers, at = kernels.readable(self._pointers(arrays)), kernels.readable(positions, np.int64)
        parallel.each(
            lambda share: kernels.fibers.search(pointers, columns, at, wanted, *share, child),
            parallel.shares(len(child)),
        )
        return child

    def finder(self, arrays: Arrays, dims: Sequence[int]) -> Callable[..., int]:
        pointers = kernels.readable(self._pointers(arrays)).data  # items of a buffer come as integers, quickly
        columns = [kernels.readable(x).data for x in self._columns(arrays)]
        *above, last = columns

        def find_one(position: int, x: int) -> int:
            high = pointers[position + 1]
            low = bisect_left(last, x, pointers[position], high)
            return low if low < high and last[low] == x else -1

        def find(position: int, *coords: int) -> int:
            low, high = pointers[position], pointers[position + 1]
            for column, x in zip(above, coords, strict=False):
                low = bisect_left(column, x, low, high)
                high = bisect_right(column, x, low, high)
            low = bisect_left(last, coords[-1], low, high)
            return low if low < high and last[low] == coords[-1] else -1

        return find if above else find_one

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return ((0 if root else n + 1) + self.rank * children) * itemsize

    def sliced(self, dims: Sequence[int], n: int, children: int, k: int, *, root: bool, itemsize: int) -> int:
        """Selecting in the first dimension reads all pointers, searches each fiber, and reads the indices it finds."""
        whole = dims[k] * self.nbytes(dims, n, children, root=root, itemsize=itemsize)
        searched = n * (children // n).bit_length() if n else 0
        found = dims[k] * ((0 if root else n + 1) + searched) + self.rank * children
        return min(found * itemsize, whole) if k == 0 else whole

    @staticmethod
    def _pointers(arrays: Arrays) -> Array:
        return arrays["ptr"] if "ptr" in arrays else np.array([0, len(arrays["idx0"])])

    def _columns(self, arrays: Arrays) -> list[Array]:
        return [arrays[f"idx{k}"] for k in range(self.rank)]


def _named(pointers: Array, columns: Sequence[Array]) -> dict[str, Array]:
    """The arrays of a level by role."""
    return {"ptr": pointers} | {f"idx{k}": x for k, x in enumerate(columns)}


def listing(rank: int) -> tuple[Level, ...]:
    """The levels that list the coordinates of their entries and store nothing else: none for a scalar."""
    return (Sparse(rank),) if rank else ()


def pointers_to(counts: Array, dtype: np.dtype[Any]) -> Array:
    """Pointers for fibers with these numbers of children; int64 where `dtype` cannot hold the total."""
    pointers = np.append(0, np.cumsum(counts, dtype=np.int64))
    return pointers.astype(dtype, copy=False) if pointers[-1] <= np.iinfo(dtype).max else pointers


def fibers_of(pointers: Array, n: int, children: range, total: int) -> tuple[range, Array]:
    """The fibers of these children, of `total` in all, and the pointers of these fibers, as int64.

    Reads few pointers of a file. Raises ArrayError for pointers that do not ascend.
    """
    first = bisect(pointers, children.start + 1, 0, n + 1) - 1
    last = bisect(pointers, children.stop, first + 1, n + 1)
    bounds = pointers[max(first, 0) : last + 1].astype(np.int64)
    outer = ([0] if children.start == 0 else []) + ([n] if children.stop == total else [])
    run = np.concatenate((bounds[:1], [children.start], bounds[1:-1], [children.stop], bounds[-1:]))
    if (
        first < 0
        or last > n
        or (np.diff(run) < 0).any()
        or any(pointers[k : k + 1][0] != (total if k else 0) for k in outer)
    ):
        raise ArrayError(Problem("ptr", f"does not ascend to its children {children.start} … {children.stop}"))
    return range(first, last), bounds


def listed_above(
    level: Level, arrays: Arrays, dims: Sequence[int], n: int, children: range
) -> tuple[range, Array, dict[str, Array]]:
    """`above` for a kind whose arrays other than the pointers have an item for each child: the fibers, how many of the
    children each has, and these items by role.
    """
    columns = {role: array for role, array in arrays.items() if role != "ptr"}
    column = next(iter(columns.values()))
    fibers, bounds = range(1), np.array([0, children.stop])
    if "ptr" in arrays:
        fibers, bounds = fibers_of(arrays["ptr"], n, children, len(column))
    ends = np.minimum(bounds[1:], children.stop)
    # The child before them, if of the same fiber, shows whether the order continues.
    in_memory = isinstance(column, np.ndarray)
    start = children.start if in_memory else max(int(bounds[0]), children.start - 1)
    items = {role: x[start : children.stop] for role, x in columns.items()}
    if not in_memory:
        read = {"ptr": np.append(0, ends - start)} | items
        found = level.check(read, dims, len(ends))
        raise_if(ArrayError, [_behind(problem, start, fibers.start) for problem in found])
        items = {role: x[children.start - start :] for role, x in items.items()}
    return fibers, np.diff(ends, prepend=children.start), items


def check_listed_in_parts(level: Level, arrays: Arrays, dims: Sequence[int], n: int, size: int) -> Iterator[Problem]:
    """`check_in_parts` for a kind whose arrays other than the pointers have an item for each child."""
    columns = {role: array for role, array in arrays.items() if role != "ptr"}
    children = len(next(iter(columns.values())))

    def pointers(first: int) -> Array:
        return arrays["ptr"][first : min(first + size, n) + 1] if "ptr" in arrays else np.array([0, children])

    def section(first: int, bounds: Array, start: int) -> Iterator[Problem]:
        stop = min(start + size, int(bounds[-1]))
        before = max(start - 1, int(bounds[0]))  # one child of the same fiber tells whether it goes on in order
        read = {"ptr": np.clip(bounds, before, stop) - before} | {role: x[before:stop] for role, x in columns.items()}
        return (_behind(problem, before, first) for problem in level.check(read, dims, len(bounds) - 1))

    if problems := [*pointers_in_parts(arrays["ptr"], children, n, size)] if "ptr" in arrays else []:
        yield from problems
        return
    for first in range(0, max(n, 1), size):
        bounds = pointers(first).astype(np.int64)
        for start in range(int(bounds[0]), int(bounds[-1]), size):
            problems = list(section(first, bounds, start))
            yield from problems
            if problems:
                return


def bisect(column: Array, wanted: int, low: int, high: int) -> int:
    """The first offset in low … high whose item is not below `wanted`. Reads few items of a file."""
    in_memory = isinstance(column, np.ndarray)
    while high - low > (0 if in_memory else _AT_ONCE):
        middle = (low + high) >> 1
        if column[middle : middle + 1][0] < wanted:
            low = middle + 1
        else:
            high = middle
    if in_memory:
        return low
    return low + bisect_left(column[low:high].tolist(), wanted)


def _behind(problem: Problem, start: int, first: int) -> Problem:
    """A problem of a part, with offsets that count from the start of the level. start, first: the part's first child
    and fiber.
    """
    message, named, fiber = problem.message.rpartition(_IN_FIBER)
    message = f"{message}{named}{first + int(fiber)}" if named else problem.message
    return moved(Problem(problem.path, message), start)


def refuse_outside(starts: Array, ends: Array, children: int) -> None:
    """Raise ArrayError for pointers that fall or exceed the number of children."""
    bad = np.flatnonzero((starts < 0) | (starts > ends) | (ends > children))
    if len(bad):
        what = f"a fiber from {starts[bad[0]]} to {ends[bad[0]]}, where there are {children} children"
        raise ArrayError(Problem("ptr", what))


def _unsigned(array: Array, narrow: bool) -> Array:
    size = 4 if narrow else 8
    return kernels.readable(array, f"{array.dtype.kind}{size}").view(f"u{size}")


def _bad_entries(pointers: Array | None, columns: tuple[Array, ...], dims: Sequence[int]) -> tuple[int, int]:
    """The number of entries out of range, and the number out of order in their fibers."""
    sizes = tuple(map(np.uint64, dims))
    parts = parallel.shares(len(columns[0]))
    found = parallel.each(lambda share: kernels.check.count_bad_entries(pointers, columns, sizes, *share), parts)
    return sum(int(outside) for outside, _ in found), sum(int(descents) for _, descents in found)


def pointer_problems(pointers: Array, children: int, first: int = 0, n: int | None = None) -> Iterator[Problem]:
    """Problems of the pointers of n fibers, or of some of these fibers, from fiber `first` on."""
    last = first + len(pointers) - 1
    if first == 0 and pointers[0] != 0:
        yield Problem("ptr[0]", f"expected 0, got {pointers[0]}")
    falls = np.flatnonzero(pointers[1:] < pointers[:-1])
    for p in falls[:_SHOWN].tolist():
        what = f"{pointers[p + 1]} is less than the pointer before it, {pointers[p]}, in fiber {first + p}"
        yield Problem(f"ptr[{first + p + 1}]", what)
    yield from _rest("ptr", "decrease", len(falls))
    if pointers[-1] > children or (n in (None, last) and pointers[-1] != children):
        yield Problem(f"ptr[{last}]", f"expected {children}, the length of the indices, got {pointers[-1]}")


def pointers_in_parts(pointers: Array, children: int, n: int, size: int) -> Iterator[Problem]:
    """The first problem of the pointers of n fibers, of which `size` are in memory at a time."""
    firsts = range(0, max(n, 1), size)
    parts = (pointer_problems(pointers[x : min(x + size, n) + 1], children, x, n) for x in firsts)
    return itertools.islice(itertools.chain.from_iterable(parts), 1)


def _range_problems(role: str, indices: Array, size: int, pointers: Array) -> Iterator[Problem]:
    bad = np.flatnonzero((indices < 0) | (indices >= size))
    for q in bad[:_SHOWN].tolist():
        yield Problem(f"{role}[{q}]", f"{indices[q]} is outside its dimension of size {size}{_in_fiber(pointers, q)}")
    yield from _rest(role, "are out of range", len(bad))


def _in_fiber(pointers: Array, q: int) -> str:
    """The end of a message: the fiber of child q. Empty where there is one fiber, or the pointers are damaged."""
    if len(pointers) < 3 or (pointers[1:] < pointers[:-1]).any():
        return ""
    fiber = int(np.searchsorted(pointers.astype(np.int64), q, side="right")) - 1
    return f"{_IN_FIBER}{fiber}" if fiber < len(pointers) - 1 else ""


def _order_problems(pointers: Array, columns: Sequence[Array]) -> Iterator[Problem]:
    entries = len(columns[0])
    behind, equal = np.zeros(entries - 1, bool), np.ones(entries - 1, bool)
    for x in columns:
        behind |= equal & (x[1:] > x[:-1])
        equal &= x[1:] == x[:-1]
    wrong = ~behind
    starts = pointers[(pointers > 0) & (pointers < entries)]
    wrong[starts.astype(np.int64) - 1] = False
    bad = np.flatnonzero(wrong) + 1
    for q in bad[:_SHOWN].tolist():
        place = ", ".join(str(x[q]) for x in columns)
        fault = "repeats the coordinate before it" if equal[q - 1] else "does not come after the coordinate before it"
        yield Problem(f"idx0[{q}]", f"{place} {fault}{_in_fiber(pointers, q)}")
    yield from _rest("idx0", "are out of order or repeated", len(bad))


_SHOWN = 5
_IN_FIBER = ", in fiber "  # what stands before the number of a fiber, at the end of a message


def _rest(role: str, what: str, count: int) -> Iterator[Problem]:
    if count > _SHOWN:
        yield Problem(role, f"{count} in all {what}")
