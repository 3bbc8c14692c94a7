"""A tree: a chain of levels over the stored dimensions, their arrays by stored name, and the values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from ..errors import ArrayError, Problem, raise_if
from ..formats.dictionary import Dictionary, in_memory
from ..levels import Level, Place, places
from ..levels.base import INTEGERS, Counted, wrong_type
from ..levels.positions import Array, Positions, as_array, as_pointers
from ..limits import INT32_MAX, Limits
from ..thresholds import THRESHOLDS

Form: TypeAlias = Literal["each", "one", "codes"]  # a value for each position, one for all, a table and codes
Duplicates: TypeAlias = Literal["error", "sum", "first", "last"]  # what becomes of entries at the same coordinates


class ArrayMetadata(Protocol):
    """The shape and the type of an array, which are known before it is read."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...


@dataclass(eq=False)  # creating a frozen one takes a microsecond longer, twice in each slice
class Tree:
    """Levels over `dims`, the sizes of the stored dimensions. `values` has an item for each position of the last level.

    The arrays of every level pass its `check` for the positions of the level above.

    iso: all positions have the same value, and `values` is a read-only broadcast of it. `values` may be a Dictionary,
    which stands in for an array; `plain` has an array in memory. lazy: the arrays are in a file,
    unchecked, and read on demand. ascends: whether first coordinates ascend in a list of entries in any order, which
    nests alone visit.
    """

    levels: tuple[Level, ...]
    dims: tuple[int, ...]
    arrays: Mapping[str, Array]
    values: Array
    iso: bool = False
    lazy: bool = False
    ascends: bool | None = None

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The levels from the root down, with the dimensions and the names of the arrays of each."""
        return places(self.levels, self.dims)

    @cached_property
    def regular(self) -> bool:
        """True if every level lists its fibers in order, and every position has exactly one entry."""
        return all(level.ascending and not level.gaps and not level.shares for level in self.levels)

    @cached_property
    def outermost_problems(self) -> list[Problem]:
        """The faults of the levels from the root to the first with a dimension. They are read once, in parts."""
        problems: list[Problem] = []
        for place, arrays, n in self.walk():
            found = place.level.check_in_parts(arrays, place.dims, n, THRESHOLDS.checked_items)
            problems += [at_name(problem, place) for problem in found]
            if place.dims or problems:
                break
        return problems

    def walk(self) -> Iterator[tuple[Place, dict[str, Array], int]]:
        """Each level with its arrays by role and its number of positions.

        Raises ArrayError if the length of an array does not match the number of positions.
        """
        return iter(self._steps)

    @cached_property
    def _steps(self) -> tuple[tuple[Place, dict[str, Array], int], ...]:
        return tuple(walk(self.places, self.arrays, len(self.values)))

    def reached(self) -> Positions:
        """The distinct positions of the last level that have an entry. Precondition: the levels are valid."""
        positions: Positions = range(1)
        for place, arrays, _ in self.walk():
            positions = place.level.reached(arrays, place.dims, positions, list(map(range, place.dims)))
        return positions

    def count(self) -> int:
        """The number of entries, without listing them. Precondition: the levels are valid."""
        if not self.gaps and not self.shares:
            return len(self.values)
        below: int | Array = 1
        for place, arrays, n in reversed(list(self.walk())):
            below = place.level.count(arrays, place.dims, n, below)
        return below if isinstance(below, int) else int(below[0])

    @property
    def padded(self) -> bool:
        """True if the last level stores coordinates that were not entries."""
        return bool(self.levels) and self.levels[-1].padded

    @property
    def shares(self) -> bool:
        """True if several entries may share a position."""
        return any(level.shares for level in self.levels)

    @property
    def gaps(self) -> bool:
        """True if there may be positions without an entry."""
        return any(level.gaps for level in self.levels)

    @property
    def dictionary(self) -> Dictionary | None:
        """The values, if they are a dictionary."""
        values: Any = self.values
        return values if isinstance(values, Dictionary) else None

    @property
    def plain(self) -> Tree:
        """The same tree with an array of values."""
        if self.dictionary is None:
            return self
        values = self.values[:]
        values.setflags(write=False)
        return self.with_values(values, False)

    @property
    def of_codes(self) -> Tree:
        """The same tree, with the codes of a dictionary as its values, so that these move."""
        return self if self.dictionary is None else self._of_codes

    @cached_property
    def _of_codes(self) -> Tree:
        assert self.dictionary is not None
        return replace(self, values=self.dictionary.codes)

    @property
    def form(self) -> Form:
        """The form in which the values are stored."""
        return "one" if self.iso else "each" if self.dictionary is None else "codes"

    def blanked(self) -> Tree:
        """The same tree, with zero at the positions without an entry, whose values are unspecified.

        A dictionary is unchanged, because there every position has the value of an entry.
        """
        if not self.gaps or self.form != "each":
            return self
        reached = np.zeros(len(self.values), bool)
        reached[as_array(self.reached())] = True
        if reached.all():
            return self
        return self.with_values(np.where(reached, self.values, np.zeros(1, self.values.dtype)), False)

    def with_values(self, values: Array, iso: bool) -> Tree:
        """The same levels and arrays, with other values."""
        return Tree(self.levels, self.dims, self.arrays, values, iso)

    def narrowed(self) -> Tree:
        """The same tree with integers in the smallest unsigned types, but for those of a type that a level declares."""
        specs = [spec for place in self.places for spec in place.arrays.values()]
        narrow = {x.name: smallest(self.arrays[x.name]) for x in specs if x.holds in INTEGERS and x.dtype is None}
        return replace(self, arrays={**self.arrays, **narrow})

    def loaded(self) -> Tree:
        """The same tree in memory."""
        arrays = {name: array[:] for name, array in self.arrays.items()}
        return Tree(self.levels, self.dims, arrays, in_memory(self.values), self.iso)

    def check(self, dimensions: Sequence[int] | None = None, *, order: bool = True) -> Iterator[Problem]:
        """Yield every broken invariant. Without `order`, only faults that would index memory wrongly.

        dimensions: the names of the stored dimensions in messages; by default their numbers.
        Precondition: `length_problems` finds nothing.
        """
        called = dimensions if dimensions is not None else range(len(self.dims))
        has_gaps = True in [level.gaps for level in self.levels[:-1]]
        reached: Positions = range(1)
        n, valid = 1, True
        try:
            for place in self.places:
                arrays = {role: self.arrays[spec.name] for role, spec in place.arrays.items()}
                known = known_children(place, arrays, n)
                problems = list(place.level.check(arrays, place.dims, n, order=order))
                if has_gaps and valid and not problems:
                    if not place.level.padded and len(reached) < n:
                        rest = np.delete(np.arange(n), as_array(reached))
                        problems = unreached_problems(place, arrays, rest, rest)
                    if place is not self.places[-1]:
                        reached = place.level.reached(arrays, place.dims, reached, list(map(range, place.dims)))
                for problem in problems:
                    yield at_name(problem, place, called)
                valid = valid and not problems
                if not valid and known is None:  # the sizes below this level are unknown
                    return
                n = _size(place, arrays, n) if known is None else known
            yield from value_problems(n, len(self.values))
        except ArrayError as error:
            yield from error.problems


def walk(
    places: Iterable[Place], arrays: Mapping[str, Array], values: int | None = None
) -> Iterator[tuple[Place, dict[str, Array], int]]:
    """`Tree.walk` for places and arrays. values: their number, if known.

    Precondition: `length_problems` finds nothing.
    """
    n = 1
    for place in places:
        here = {role: arrays[spec.name] for role, spec in place.arrays.items()}
        children = known_children(place, here, n)
        yield place, here, n
        n = _size(place, here, n) if children is None else children
    if values is not None:
        raise_if(ArrayError, value_problems(n, values))


def known_children(place: Place, arrays: Mapping[str, ArrayMetadata], n: int) -> int | None:
    """The number of child positions, if the lengths of the arrays determine it. Raises ArrayError for wrong lengths.

    `length_problems` compares them too, but does not know n below a level whose size depends on its data.
    """
    children, problems = _by_lengths(place.level, place.dims, n, *[(role, x.shape[0]) for role, x in arrays.items()])
    if problems:
        raise ArrayError([at_name(problem, place) for problem in problems])
    return children


@lru_cache(256)  # called by reading, checking and each walk
def _by_lengths(level: Level, dims: Sequence[int], n: int | None, *lengths: tuple[str, int]) -> Counted:
    """`Level.lengths` for the lengths of arrays by role."""
    return level.lengths(dict(lengths), dims, n)


def count_positions(
    levels: Sequence[Level], dims: Sequence[int], arrays: Mapping[str, Array], values: int | None
) -> int:
    """The number of positions of the last level. Raises ArrayError for the faults of `length_problems`."""
    problems, n = length_problems(levels, dims, arrays, values)
    raise_if(ArrayError, problems)
    if n is None:  # it depends on the data
        *_, (place, here, above) = walk(places(levels, dims), arrays)
        n = _size(place, here, above)
        raise_if(ArrayError, value_problems(n, n if values is None else values))
    return n


def _size(place: Place, arrays: dict[str, Array], n: int) -> int:
    children = place.level.size(arrays, place.dims, n)
    if children < 0:
        raise ArrayError(
            Problem(next(iter(place.arrays.values())).name, f"counts {children} positions below its level")
        )
    return children


def value_problems(n: int, values: int) -> list[Problem]:
    """A problem if the number of values is not n, the number of positions of the last level."""
    what = f"expected a length of {n}, one for each position of the last level, got {values}"
    return [Problem("values", what)] if n != values else []


def length_problems(
    levels: Sequence[Level], dims: Sequence[int], arrays: Mapping[str, ArrayMetadata], values: int | None
) -> tuple[list[Problem], int | None]:
    """The faults of metadata: arrays that are missing, not one-dimensional, or of a wrong type or length.

    values: the number of values, or None if it is unknown. Also returns the number of positions of the last level, or
    None if it depends on the data.
    """
    n: int | None = 1
    for place in places(levels, dims):
        problems, lengths = [], []
        for role, spec in place.arrays.items():
            name = spec.name
            if name not in arrays:
                problems.append(Problem(name, f"missing, but the level {place.level} needs it"))
                continue
            array = arrays[name]
            if len(array.shape) != 1:
                problems.append(Problem(name, f"expected one dimension, got shape {array.shape}"))
            elif expected := wrong_type(spec, array.dtype):
                problems.append(Problem(name, f"expected {expected}, got {array.dtype}"))
            else:
                lengths.append((role, array.shape[0]))
        if not problems:
            n, wrong = _by_lengths(place.level, place.dims, n, *lengths)
            problems = [at_name(problem, place) for problem in wrong]
        if problems:
            return problems, None
    return value_problems(n, values) if n is not None and values is not None else [], n


def unreached_problems(place: Place, arrays: Mapping[str, Array], rest: Array, at: Positions) -> list[Problem]:
    """A problem for the first fiber with entries in `rest`, the fibers that no entry of the levels above reaches.

    at: the positions of these fibers in `arrays`.
    """
    counts, _, _ = place.level.expand(arrays, place.dims, at, list(map(range, place.dims)))
    stored = np.diff(as_pointers(counts, len(rest))) != 0
    if not stored.any():
        return []
    fiber = rest[np.argmax(stored)]
    return [Problem(next(iter(place.arrays)), f"fiber {fiber} has entries, but belongs to none in the level above")]


def at_name(problem: Problem, place: Place, dimensions: Sequence[int] = ()) -> Problem:
    """Replace the array's role in a problem by its stored name, and "its dimension" by the number of the dimension.

    dimensions: the number that messages use for each stored dimension of the whole tree.
    """
    role, bracket, rest = problem.path.partition("[")
    spec, message = place.arrays.get(role), problem.message
    if spec is None:
        return problem
    if dimensions and spec.dimension is not None:
        message = message.replace("its dimension", f"dimension {dimensions[place.depth + spec.dimension]}")
    return Problem(spec.name + bracket + rest, message)


def same(a: Any, b: Any) -> bool:
    """Return True if two scalars are equal; NaN equals NaN."""
    return bool(a == b or (a != a and b != b))


def alike(a: Array, b: Array) -> Any:
    """For each item of two arrays, True if they are equal; NaN equals NaN."""
    return (a == b) | ((a != a) & (b != b))


def smallest(array: Array) -> Array:
    """The same integers in the smallest unsigned type that fits. Negative ones keep their type."""
    if array.size and array.min() < 0:
        return array
    return array.astype(np.min_scalar_type(array.max(initial=0)).str, copy=False)


def index_dtype(dims: Sequence[int], count: int) -> np.dtype[Any]:
    """The integer type of the arrays that the package makes: int32 if every dimension and count fits, else int64.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> str(index_dtype((3, 2**40), 5))
    'int64'
    """
    return np.dtype(np.int32 if max([*dims, count, 0]) <= INT32_MAX else np.int64)


def shared_dtype(arrays: Mapping[str, ArrayMetadata], dims: Sequence[int], count: int) -> np.dtype[Any]:
    """The integer type of the arrays, if they share a type that is wide enough, else that of `index_dtype`."""
    types = {array.dtype for array in arrays.values() if array.dtype.kind != "b"}
    usual = index_dtype(dims, count)
    if len(types) == 1:
        dtype = types.pop()
        if dtype.kind in "iu" and dtype.isnative and dtype.itemsize >= usual.itemsize:
            return dtype
    return usual


def check_dense(n: int, entries: int, limits: Limits, *, memory: bool = True) -> None:
    """Raise LimitError if dense levels have too many positions. Each position takes at least one word.

    memory: False if they are written in pieces.
    """
    if n > entries + 1:
        limits.hold("dense_bytes", 8 * n, "", "the size in bytes of the dense levels", memory=memory)
