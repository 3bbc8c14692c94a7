"""n_of_m: each fiber stores at most n of every m neighbouring coordinates.

    . 5 . 7     dense   rows 0, 1, 2
    . . . .     `- n_of_m   slots_1 [1, 3, 4, 4, 0, 1]
    1 2 . .        `- element   values [5, 7, 0, 0, 1, 2]

At most two of every four columns: row 0 has its entries in columns 1 and 3; 4 marks an empty slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import ArrayError, FormatError, Problem
from .base import Arrays, ArraySpec, Built, Counted, Expanded, Level, Owners, wrong_lengths
from .cells import Marked, owners_of_cells
from .positions import Array, Positions, Window, as_array, firsts, inside, items_at
from .registry import register


@register
@dataclass(frozen=True)
class NOfM(Marked):
    """Each block of m neighbouring coordinates stores the offsets of at most n entries, such as 2 of 4.

    A fiber has n slots for each block of m coordinates. A slot contains the offset of its coordinate in the block,
    or m if it is empty. q = (p · blocks + i // m) · n + slot. Raises FormatError for a fiber with more than n
    coordinates in a block.

    Parameters
    ----------
    rank : int, default 1
        The number of dimensions, 1.
    n : int, default 2
        The number of slots for each block.
    m : int, default 4
        The number of coordinates of a block.

    See Also
    --------
    Sparse : Store the coordinates of each fiber.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> bl.pack_dense(np.eye(2), "dense, n_of_m(1, n=1, m=2)").arrays["slots_1"].tolist()
    [0, 1]
    """

    n: int = 2
    m: int = 4

    kind: ClassVar[str] = "n_of_m"
    max_rank: ClassVar[int] = 1
    refuses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least, most in (("m", 1, 255), ("n", 1, self.m)):
            number = getattr(self, name)
            if type(number) is not int or not least <= number <= most:
                raise FormatError(Problem(name, f"expected an integer of {least} … {most}, got {number!r:.40}"))

    @classmethod
    def samples(cls) -> tuple[Level, ...]:
        return cls(), cls(n=1, m=3), cls(n=3, m=3)

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        return {"slot": ArraySpec(f"slots_{depth}", "byte")}

    def lengths(self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None) -> Counted:
        return lengths["slot"], wrong_lengths(lengths, {"slot": None if n is None else n * self.width(dims)}, "slot")

    def build(self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int) -> Built:
        parent, x = as_array(parents).astype(np.int64, copy=False), coords[0].astype(np.int64, copy=False)
        block = parent * -(-dims[0] // self.m) + x // self.m
        number = np.cumsum(firsts([block, x])) - 1  # of the distinct coordinates
        begin = np.searchsorted(block, block)  # the first entry of the block
        rank = number - number[begin]
        (full,) = (rank >= self.n).nonzero()
        if len(full):
            what = f"fiber {parent[full[0]]} has more than {self.n} of the {self.m} coordinates around {x[full[0]]}"
            raise FormatError(Problem(str(self), f"{what}; choose a larger n, or another kind"))
        slots = np.full(n * self.width(dims), self.m, np.uint8)
        child = block * self.n + rank
        slots[child] = x % self.m
        return {"slot": slots}, child

    def expand(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Expanded:
        at, blocks = as_array(positions), self._blocks(window[0])
        slots = (blocks[:, np.newaxis] * self.n + np.arange(self.n)).ravel()  # of a fiber, in blocks of the window
        child = (at[:, np.newaxis] * self.width(dims) + slots).ravel()
        offset = items_at(arrays["slot"], child).astype(np.int64)
        x = np.tile(np.repeat(blocks * self.m, self.n), len(at)) + offset
        kept = (offset < self.m) & inside(window, [x])
        counts = kept.reshape(len(at), len(slots)).sum(axis=1, dtype=np.int64)
        return counts, [x[kept]], child[kept]

    def _blocks(self, window: Positions) -> Array:
        """The blocks that have a coordinate in the window."""
        if isinstance(window, range) and window.step <= self.m:
            return np.arange(window[0] // self.m, window[-1] // self.m + 1) if window else np.empty(0, np.int64)
        return np.unique(as_array(window) // self.m)

    def loop(self, root: bool) -> str:
        blocks = f"((size0 + {self.m - 1}) // {self.m})"
        return (
            f"for block in range({blocks}):\n"
            f"    for offset in range({self.n}):\n"
            f"        q = (p * {blocks} + block) * {self.n} + offset\n"
            f"        if slot[q] < {self.m}:\n"
            f"            i0 = block * {self.m} + slot[q]\n"
            f"            yield"
        )

    def is_set(self, arrays: Arrays, numbers: Positions) -> Array:
        return items_at(arrays["slot"], numbers) < self.m

    def above(self, arrays: Arrays, dims: Sequence[int], n: int, children: range) -> Owners:
        fibers, counts, (slot,) = owners_of_cells([self.width(dims)], children)
        offset = items_at(arrays["slot"], children).astype(np.int64)
        taken = offset < self.m
        x = slot // self.n * self.m + offset
        if (x[taken] >= dims[0]).any():
            raise ArrayError(Problem("slot", f"a coordinate is outside its dimension of size {dims[0]}"))
        return Owners(fibers, counts, [np.where(taken, x, 0)], taken.astype(np.int64))

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        slots = arrays["slot"].astype(np.int64).reshape(-1, self.n)
        block = np.arange(len(slots)) % max(-(-dims[0] // self.m), 1)
        size = np.minimum(self.m, dims[0] - self.m * block)[:, np.newaxis]
        wrong = (slots < 0) | ((slots >= size) & (slots != self.m))
        # Slots are filled from the first, in order.
        wrong[:, 1:] |= (slots[:, 1:] <= slots[:, :-1]) & ~((slots[:, 1:] == self.m) & (slots[:, :-1] == self.m))
        for k in np.flatnonzero(wrong)[:1].tolist():
            what = f"{slots.ravel()[k]} is neither a later offset in a block of {self.m}, nor {self.m} for empty"
            yield Problem(f"slot[{k}]", what)

    def locate(self, arrays: Arrays, dims: Sequence[int], positions: Array, coords: Sequence[Array]) -> Array:
        x = coords[0].astype(np.int64)
        first = (positions * -(-dims[0] // self.m) + x // self.m) * self.n
        child = np.full(len(x), -1)
        for k in range(self.n) if len(arrays["slot"]) else ():
            child = np.where(arrays["slot"][first + k] == x % self.m, first + k, child)
        return child

    def width(self, dims: Sequence[int]) -> int:
        """The number of slots of a fiber, which are its cells.

        Parameters
        ----------
        dims : sequence of int
            Size of the dimension.

        Returns
        -------
        int
            Number of slots.
        """
        return -(-dims[0] // self.m) * self.n
