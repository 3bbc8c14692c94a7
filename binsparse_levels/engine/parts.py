"""Parts of a level in a file: only the fibers that are needed are read.

They are checked, as a level of their own, before anything is indexed with them.
"""

from __future__ import annotations

from ..errors import ArrayError, Problem, raise_if
from ..levels import Place
from ..levels.base import Array, Listed
from ..levels.positions import Positions, Window, as_array, items_at
from .tree import Tree, at_name


def listed(tree: Tree, place: Place, arrays: dict[str, Array], n: int, positions: Positions, window: Window) -> Listed:
    """`listed` of a level. Arrays in a file are read and checked first."""
    local, children, fibers = part_of(tree, place, arrays, n, positions, window)
    pointers, coords, below = place.level.listed(local, place.dims, fibers, window)
    return pointers, coords, through(children, below)


def part_of(
    tree: Tree, place: Place, arrays: dict[str, Array], n: int, positions: Positions, window: Window
) -> tuple[dict[str, Array], Positions | None, Positions]:
    """The part of a level in a file that these fibers need, read and checked; of a tree in memory, the level.

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
    """A problem of a part, with the fibers in place of the number of the item, which counts from the part's start."""
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
    return as_array(below) + children.start if isinstance(children, range) else items_at(children, below)
