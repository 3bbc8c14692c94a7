"""Read only the required fibers of a level in a file.

They form a separate level. Its numbers are checked before they are used as indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..arrays import LazyArray
from ..errors import ArrayError, Problem, raise_if
from ..levels import Place
from ..levels.positions import Array, Positions, Window, as_array, as_pointers, items_at
from ..thresholds import THRESHOLDS
from .tree import Tree, at_name, known_children, unreached_problems

_Step: TypeAlias = tuple[Place, dict[str, Array], int]  # a level, its arrays, its number of positions


def listed(
    tree: Tree, place: Place, arrays: dict[str, Array], n: int, positions: Positions, window: Window
) -> tuple[Array, list[Array], Positions]:
    """`expand` of a level, with pointers to the entries of each fiber. Arrays in a file are read and checked first."""
    if not tree.lazy:
        counts, coords, below = place.level.expand(arrays, place.dims, positions, window)
        return as_pointers(counts, len(positions)), coords, below
    local, children, fibers = part_of(tree, place, arrays, n, positions, window)
    counts, coords, below = place.level.expand(local, place.dims, fibers, window)
    return as_pointers(counts, len(fibers)), coords, through(children, below)


def part_of(
    tree: Tree, place: Place, arrays: dict[str, Array], n: int, positions: Positions, window: Window
) -> tuple[dict[str, Array], Positions | None, Positions]:
    """Read and check the part of a level with these fibers. A level in memory, or without arrays, is returned whole.

    Returns its arrays; its children, as positions of the whole level (None: the part is the whole level); and the
    positions of the fibers in the part.
    """
    level, dims = place.level, place.dims
    if not tree.lazy or not arrays:
        return arrays, None, positions
    try:
        part = level.part(arrays, dims, positions, window)
        if part is not None:
            raise_if(ArrayError, level.check(part[0], dims, len(positions)))
            return *part, range(len(positions))
    except ArrayError as error:
        raise ArrayError([_in_part(problem, place, positions) for problem in error.problems]) from None
    whole = {role: x[:] for role, x in arrays.items()}
    raise_if(ArrayError, [at_name(problem, place) for problem in level.check(whole, dims, n)])
    return whole, None, positions


def _in_part(problem: Problem, place: Place, positions: Positions) -> Problem:
    """The problem of a part, which names the fibers. An item's number is relative to the part, and is left out."""
    named = at_name(problem, place)
    path, bracket, _ = named.path.partition("[")
    if not bracket or not len(positions):
        return Problem(path, named.message)
    fibers = f"fibers {positions[0]} … {positions[-1]}" if len(positions) > 1 else f"fiber {positions[0]}"
    return Problem(path, f"{named.message} in {fibers}")


def through(children: Positions | None, below: Positions) -> Positions:
    """Positions of a part as positions of the whole level."""
    if children is None:
        return below
    if isinstance(children, range) and isinstance(below, range):
        return children[below.start : below.stop : below.step]
    if isinstance(children, range):
        return as_array(below) + children.start
    return items_at(as_array(children), below)


def check_in_parts(tree: Tree, size: int, dimensions: Sequence[int]) -> Iterator[Problem]:
    """`Tree.check` for a tree in a file, with about `size` items of each array in memory at a time.

    Values are not checked. Some kinds are read whole; see `Level.check_in_parts` and `Level.above`.
    """
    above: list[_Step] = []
    valid = True
    try:
        for place, arrays, n in tree.walk():
            problems = list(place.level.check_in_parts(arrays, place.dims, n, size))
            if valid and not problems and not place.level.padded and any(upper.level.gaps for upper, _, _ in above):
                problems = _unreached_in_parts(tree, above, (place, arrays, n), size)
            yield from (at_name(problem, place, dimensions) for problem in problems)
            valid = valid and not problems
            if not valid and known_children(place, arrays, n) is None:  # the sizes below are unknown
                return
            above.append((place, arrays, n))
    except ArrayError as error:
        yield from error.problems


def _unreached_in_parts(tree: Tree, above: list[_Step], step: _Step, size: int) -> list[Problem]:
    """A problem for the first fiber that has entries although no entry of the levels above reaches it."""
    place, arrays, n = step
    each = max(size * n // max(place.level.size(arrays, place.dims, n), 1), 1)
    for first in range(0, n, each):
        rest = first + np.flatnonzero(~_reached(above, range(first, min(first + each, n))))
        if len(rest):
            local, _, at = part_of(tree, place, arrays, n, rest, [range(size) for size in place.dims])
            if problems := unreached_problems(place, local, rest, at):
                return problems
    return []


def _reached(above: list[_Step], children: range) -> Array:
    """A mask of these positions below the levels `above`, true where an entry of these levels reaches the position."""
    if not above or not children:
        return np.ones(len(children), bool)
    *upper, (place, arrays, n) = above
    owners = place.level.above(arrays, place.dims, n, children)
    filled: Array = np.broadcast_to(owners.spans, len(children)).astype(bool)
    return filled & _reached(upper, owners.fibers)[owners.parents]


def check_lazy(tree: Tree, name: str, order: Sequence[int]) -> None:
    """Check the checksums of arrays in a file, and their levels, before they are read in parts.

    name: for errors. order: the tensor's dimension at each stored one. Raises ArrayError, ContainerError.
    """
    if not tree.lazy:
        return
    arrays: list[Any] = [*tree.arrays.values(), tree.values]
    for array in arrays:
        if isinstance(array, LazyArray):
            array.verify()
    problems = check_in_parts(tree, THRESHOLDS.verified_items, order)
    raise_if(ArrayError, [Problem(f"{name}: {problem.path}", problem.message) for problem in problems])
