"""A level kind of the tests alone, which lists its fibers out of order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from binsparse_levels.errors import Problem
from binsparse_levels.levels import ArraySpec, Level, register
from binsparse_levels.levels.base import Arrays, Built, Expanded
from binsparse_levels.levels.positions import Array, Positions, Window, as_array, inside


@register
@dataclass(frozen=True)
class Backwards(Level):
    """Lists every fiber in descending order, and counts coordinates from `base`."""

    base: int = 0

    kind: ClassVar[str] = "backwards"
    ordered: ClassVar[bool] = False

    @classmethod
    def samples(cls) -> tuple[Level, ...]:
        return cls(1), cls(2, base=1)

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        at = {f"at{k}": ArraySpec(f"backwards_{depth}_at{k}", "index", k) for k in range(self.rank)}
        return {"ends": ArraySpec(f"backwards_{depth}_ends", "integer")} | at

    def lengths(self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None) -> tuple[int, list[Problem]]:
        wrong = [role for role in lengths if role != "ends" and lengths[role] != lengths["at0"]]
        if n is not None and lengths["ends"] != n:
            wrong.append("ends")
        return lengths["at0"], [Problem(role, "wrong length") for role in wrong]

    def build(self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int) -> Built:
        rows = np.stack([as_array(parents), *coords], axis=1)
        unique, inverse = np.unique(rows, axis=0, return_inverse=True)
        ends = np.searchsorted(unique[:, 0], np.arange(n), side="right")
        starts = np.concatenate(([0], ends))[:-1]
        # The k-th of a fiber becomes the k-th from its end.
        place = (starts + ends - 1)[unique[:, 0]] - np.arange(len(unique))
        turned = np.empty_like(unique)
        turned[place] = unique
        columns = {f"at{k}": turned[:, k + 1] + self.base for k in range(self.rank)}
        return {"ends": ends} | columns, place[inverse.ravel()]

    def expand(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Expanded:
        ends = arrays["ends"]
        child = [np.arange(ends[p - 1] if p else 0, ends[p]) for p in as_array(positions)]
        flat = np.concatenate([np.empty(0, np.int64), *child]).astype(np.int64)
        coords = [arrays[f"at{k}"][flat] - self.base for k in range(self.rank)]
        kept = inside(window, coords)
        fiber = np.repeat(np.arange(len(child)), [len(c) for c in child])
        counts = np.bincount(fiber[kept], minlength=len(child))
        return counts, [x[kept] for x in coords], flat[kept]

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        ends = arrays["ends"]
        if n and (ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] != len(arrays["at0"])):
            yield Problem("ends", "do not fit")
        for k, size in enumerate(dims):
            x = arrays[f"at{k}"] - self.base
            if ((x < 0) | (x >= size)).any():
                yield Problem(f"at{k}", "out of range")

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return (n + self.rank * children) * itemsize
