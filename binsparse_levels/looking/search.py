"""The cheapest formats, found subset by subset of the dimensions, from the leaves up.

The cost of a level depends only on the set of dimensions above it, and on its positions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

from ..formats.format import Format, in_order
from ..levels import Level
from .sizes import Sizes, bits

Blocks: TypeAlias = Callable[[int], Iterable[tuple[int, ...]]]  # below these dimensions, those a level may cover
# By rank: levels, and whether a level equals several of rank 1, so that two of its kind are never neighbours.
Choices: TypeAlias = dict[int, list[tuple[Level, bool]]]
Cost: TypeAlias = tuple[int, int, int]  # the key of the ranking, bytes, levels


class Chain(NamedTuple):
    """A cheapest chain of levels from some level down: a linked list, so that chains share tails."""

    cost: Cost
    level: Level | None = None
    covered: tuple[int, ...] = ()
    below: Any = None

    def format(self) -> Format:
        levels: list[Level] = []
        order: list[int] = []
        at = self
        while at.level is not None:
            levels.append(at.level)
            order += at.covered
            at = at.below
        return in_order(tuple(levels), order).canonical()


def subsets(rank: int, first: int | None) -> Blocks:
    """The blocks of dimensions that a level may cover. The dimension of slices comes first in its level."""

    @cache
    def blocks(above: int) -> list[tuple[int, ...]]:
        left = [k for k in range(rank) if not above >> k & 1]
        parts = [part for r in range(1, len(left) + 1) for part in combinations(left, r)]
        return [tuple(sorted(part, key=lambda k: (k != first, k))) for part in parts]

    return blocks


def prefixes(order: tuple[int, ...]) -> Blocks:
    def blocks(above: int) -> list[tuple[int, ...]]:
        depth = above.bit_count()
        return [order[depth:end] for end in range(depth + 1, len(order) + 1)]

    return blocks


def cheapest(sizes: Sizes, choices: Choices, blocks: Blocks, by: int | None, count: int) -> list[Chain]:
    """The cheapest chains, by bytes or by the bytes that slices along a dimension read."""
    everything = (1 << len(sizes.shape)) - 1

    @cache
    def below(above: int, n: int, behind: str | None, padded: bool) -> list[Chain]:
        if above == everything:
            return [Chain((*sizes.values(n, padded, by), 0))]
        chains = []
        for covered in blocks(above):
            reached = above | bits(covered)
            for level, whole in choices[len(covered)]:
                if (whole and level.kind == behind) or (reached == everything and level.padded and not sizes.may_pad):
                    continue
                told = sizes.step(level, covered, above, n, by)
                if told is None or not sizes.fits(told[2]):
                    continue
                read, size, children = told
                pads = sizes.iso and (padded or level.padded)  # which is all the same to other values
                for chain in below(reached, children, level.kind if whole else None, pads):
                    first, second, depth = chain.cost
                    chains.append(Chain((first + read, second + size, depth + 1), level, covered, chain))
        return heapq.nsmallest(count, chains, key=lambda chain: chain.cost)

    return below(0, 1, None, False)
