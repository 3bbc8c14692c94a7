"""Level kinds for tests: unordered, of rank two or more, with children that do not ascend, with bytes for indices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from binsparse_levels.errors import FormatError, Problem
from binsparse_levels.levels import ArraySpec, Level, Sparse, register
from binsparse_levels.levels.base import Arrays, Built, Expanded
from binsparse_levels.levels.positions import Array, Positions, Window, as_array, inside


@register
@dataclass(frozen=True)
class Backwards(Level):
    """List every fiber in descending order, and count coordinates from `base`."""

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
        # The k-th entry of a fiber becomes the k-th from its end.
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
            return
        for k, size in enumerate(dims):
            x = arrays[f"at{k}"] - self.base
            if ((x < 0) | (x >= size)).any():
                yield Problem(f"at{k}", "out of range")
        fibers = np.repeat(np.arange(n), np.diff(ends, prepend=0))
        rows = np.stack([fibers, *(arrays[f"at{k}"] for k in range(self.rank))], axis=1)
        if len(np.unique(rows, axis=0)) < len(rows):
            yield Problem("at0", "a coordinate occurs twice")

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return (n + self.rank * children) * itemsize


@register
@dataclass(frozen=True)
class Pairs(Backwards):
    """Backwards with at least two dimensions."""

    rank: int = 2

    kind: ClassVar[str] = "pairs"
    min_rank: ClassVar[int] = 2

    @classmethod
    def samples(cls) -> tuple[Level, ...]:
        return cls(2), cls(3)

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        return {role: x._replace(name=f"pairs_{x.name}") for role, x in super().arrays(depth, root).items()}


@register
@dataclass(frozen=True)
class Columns(Level):
    """ELLPACK, column-major: fiber p has the children slot * n + p. An empty slot contains the size."""

    width: int = 2

    kind: ClassVar[str] = "columns"
    max_rank: ClassVar[int] = 1
    monotone: ClassVar[bool] = False
    gaps: ClassVar[bool] = True
    refuses: ClassVar[bool] = True

    @classmethod
    def samples(cls) -> tuple[Level, ...]:
        return cls(), cls(width=1), cls(width=5)

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        return {"slots": ArraySpec(f"columns_{depth}", "integer")}

    def lengths(self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None) -> tuple[int, list[Problem]]:
        wrong = n is not None and lengths["slots"] != n * self.width
        return lengths["slots"], [Problem("slots", "wrong length")] if wrong else []

    def build(self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int) -> Built:
        p, x = as_array(parents), coords[0].astype(np.int64)
        new = np.append(True, (p[1:] != p[:-1]) | (x[1:] != x[:-1]))[: len(p)]
        number = np.cumsum(new) - 1
        slot = number - number[np.searchsorted(p, p)]
        if (slot >= self.width).any():
            raise FormatError(Problem(str(self), f"fiber {p[slot.argmax()]} has more than {self.width} coordinates"))
        slots = np.full(n * self.width, dims[0], np.int64)
        slots[slot * n + p] = x
        return {"slots": slots}, slot * n + p

    def expand(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Expanded:
        n, at = len(arrays["slots"]) // self.width, as_array(positions)
        child = (np.arange(self.width) * n + at[:, np.newaxis]).ravel()
        x = arrays["slots"][child].astype(np.int64)
        kept = (x < dims[0]) & inside(window, [x])
        return kept.reshape(len(at), self.width).sum(axis=1), [x[kept]], child[kept]

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        slots = arrays["slots"].astype(np.int64).reshape(self.width, n)
        none = slots == dims[0]
        if ((slots < 0) | (slots > dims[0])).any() or ((slots[1:] <= slots[:-1]) & ~(none[1:] & none[:-1])).any():
            yield Problem("slots", "do not ascend")

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return n * self.width * itemsize

    def loop(self, root: bool) -> str:
        q = f"slot * (children // {self.width}) + p"
        taken = "    if slots[q] < size0:\n        i0 = slots[q]\n        yield"
        return f"for slot in range({self.width}):\n    q = {q}\n{taken}"


@dataclass(frozen=True)
class Short(Sparse):
    """Sparse with coordinates of 8 bits, as inside of the blocks of HiCOO. Not registered: `advise` would find it."""

    kind: ClassVar[str] = "short"
    specified: ClassVar[bool] = False
    refuses: ClassVar[bool] = True

    def fused(self):
        return None

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        own = {"index": "uint8"}
        specs = super().arrays(depth, root)
        return {role: x._replace(name=f"short_{x.name}", dtype=own.get(x.holds)) for role, x in specs.items()}

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return (0 if root else n + 1) * itemsize + self.rank * children

    def sliced(self, dims, n, children, k, *, root, itemsize):
        return Level.sliced(self, dims, n, children, k, root=root, itemsize=itemsize)
