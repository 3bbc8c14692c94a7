"""Structures: matrices that store one triangle. Binsparse 0.1, section 3.8.

A lower structure stores entries with i >= j. An entry (i, j, v) off the diagonal implies (j, i, f(v)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import Problem
from ..levels.base import Array


class Structure(NamedTuple):
    """lower: True if the lower triangle is stored. mirrored: the value at (j, i), from the value at (i, j)."""

    lower: bool
    mirrored: Callable[[Array], Array]


_MIRRORS: dict[str, Callable[[Array], Array]] = {
    "symmetric": lambda values: values,
    "hermitian": np.conjugate,
    "skew_symmetric": np.negative,
}
STRUCTURES = {
    f"{kind}_{triangle}": Structure(triangle == "lower", mirrored)
    for kind, mirrored in _MIRRORS.items()
    for triangle in ("lower", "upper")
}


def transposed(name: str) -> str:
    """The structure of the transposed matrix, which stores the same entries."""
    kind, _, triangle = name.rpartition("_")
    return f"{kind}_{'upper' if triangle == 'lower' else 'lower'}"


def structure_problems(name: Any, shape: Sequence[int], dtype: np.dtype[Any] | None = None) -> Iterator[Problem]:
    """Problems of a tensor of this shape and type that cannot have the structure."""
    if not isinstance(name, str) or name not in STRUCTURES:
        yield Problem("structure", f"unknown structure {name!r:.60}; known are {', '.join(STRUCTURES)}")
        return
    if len(shape) != 2 or shape[0] != shape[1]:
        yield Problem("structure", f"{name} needs a square matrix, got shape {tuple(shape)}")
    if dtype is not None and name.startswith("hermitian") and dtype.kind != "c":
        yield Problem("structure", f"{name} needs complex values, got {dtype}")
    if dtype is not None and name.startswith("skew") and dtype.kind in "bM":
        yield Problem("structure", f"{name} needs numbers, got {dtype}")


def in_triangle(name: str, coords: Sequence[Array]) -> npt.NDArray[np.bool_]:
    """A mask of the entries in the stored triangle."""
    i, j = coords
    return i >= j if STRUCTURES[name].lower else i <= j


def triangle_problems(name: str, coords: Sequence[Array]) -> Iterator[Problem]:
    """A problem if entries are outside the stored triangle. It names the first."""
    wrong = np.flatnonzero(~in_triangle(name, coords))
    if len(wrong):
        place = tuple(int(x[wrong[0]]) for x in coords)
        more = f" ({len(wrong)} such in all)" if len(wrong) > 1 else ""
        yield Problem("structure", f"the entry {place} is outside the triangle of {name}{more}")


def diagonal_problems(name: str, coords: Sequence[Array], values: Array) -> Iterator[Problem]:
    """Entries of the diagonal that differ from their mirror image, which strict readers refuse in dense matrices."""
    i, j = coords
    on = i == j
    yield from symmetry_problems(name, (i[on], j[on]), values[on])


def read_problems(name: str, coords: Sequence[Array], values: Array, *, padded: bool) -> Iterator[Problem]:
    """Problems of stored entries that strict readers refuse.

    padded: the other triangle also has values, which are ignored.
    """
    yield from diagonal_problems(name, coords, values) if padded else triangle_problems(name, coords)


def expand(name: str, coords: Sequence[Array], values: Array) -> tuple[tuple[Array, ...], Array]:
    """All entries of the matrix: the entries of the stored triangle and, in the same order, their mirror images.

    Entries outside the triangle are dropped.
    """
    kept = in_triangle(name, coords)
    if not kept.all():
        coords, values = [x[kept] for x in coords], values[kept]
    i, j = coords
    off = np.flatnonzero(i != j)
    mirrored = STRUCTURES[name].mirrored(values[off])
    i, j, values = map(np.concatenate, ((i, j[off]), (j, i[off]), (values, mirrored)))
    return (i, j), values


def symmetry_problems(name: str, coords: Sequence[Array], values: Array) -> Iterator[Problem]:
    """A problem if an entry has no mirror image, or one that contradicts the structure. It names the first.

    Precondition: entries are unique.
    """
    order = np.lexsort(coords[::-1])
    i, j, values = coords[0][order], coords[1][order], values[order]
    turned = np.lexsort((i, j))  # the entries of the transposed matrix, in their lexicographic order
    differ = np.flatnonzero((j[turned] != i) | (i[turned] != j))
    if len(differ):
        here = (int(i[differ[0]]), int(j[differ[0]]))
        there = (int(j[turned][differ[0]]), int(i[turned][differ[0]]))
        alone = here if here < there else there[::-1]
        what = f"the entry {alone} has no mirror image, which {name} requires"
        yield Problem("structure", f"{what}; add it, or pass one triangle's arrays to Tensor(…, structure=…)")
        return
    expected = STRUCTURES[name].mirrored(values[turned])
    wrong = np.flatnonzero((values != expected) & ~((values != values) & (expected != expected)))
    if len(wrong):
        k = int(wrong[0])
        more = f" ({len(wrong)} such in all)" if len(wrong) > 1 else ""
        what = f"the entry {(int(i[k]), int(j[k]))} is {values[k]}, its mirror image makes it {expected[k]}{more}"
        yield Problem("structure", f"{what}: not {name}")
