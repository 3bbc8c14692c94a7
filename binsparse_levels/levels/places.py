"""The levels of a chain, with the dimensions and the stored names of the arrays of each."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from .base import Level, Place


def places(levels: Sequence[Level], dims: Sequence[int]) -> tuple[Place, ...]:
    """The levels from the root down. Precondition: their ranks add up to len(dims).

    A level of rank 0 and the level below it have the same depth. A repeated stored name gets the prefix `below_`.
    """
    return _places(tuple(levels), tuple(dims))


@functools.lru_cache(256)  # called several times by every operation
def _places(levels: tuple[Level, ...], dims: tuple[int, ...]) -> tuple[Place, ...]:
    places: list[Place] = []
    depth = 0
    taken: set[str] = set()
    for level in levels:
        arrays = level.arrays(depth, depth == 0)
        if taken and taken & {spec.name for spec in arrays.values()}:
            below = "below_" * len(taken)
            arrays = {role: spec._replace(name=below + spec.name) for role, spec in arrays.items()}
        taken = set() if level.rank else taken | {spec.name for spec in arrays.values()}
        places.append(Place(level, dims[depth : depth + level.rank], depth, arrays))
        depth += level.rank
    return tuple(places)
