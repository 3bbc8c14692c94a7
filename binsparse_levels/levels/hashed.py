"""hashed: each fiber is a hash table of its coordinates.

    . 5 . 7     dense   rows 0, 1, 2
    . . . .     `- hashed   pointers_to_1 [0, 4, 4, 12]
    1 2 3 .        |        hash_keys_1 [0, 0, 2, 4, 1, 3, 0, 0, 2, 0, 0, 0]
                   |        hash_ranks_1 [0, 0, 0, 1, 2, 3, 4, 4, 4, 5, 5, 5]
                   `- element   values [5, 7, 1, 3, 2]

Row 0 has the slots 0 to 3: slot 2 contains column 1 (key 2), slot 3 column 3 (key 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from .. import kernels
from ..errors import ArrayError, Problem
from .base import Arrays, ArraySpec, Built, Counted, Expanded, Owners, wrong_lengths
from .pointers import Pointed, bisect, fibers_of, pointer_problems, pointers_to
from .positions import Array, Positions, Window, as_array, below_fibers, children_of, in_ranges, inside, items_at
from .registry import register


@register
class Hashed(Pointed):
    """Each fiber stores a hash table of its coordinates, in which an entry is found in constant time.

    Fiber p has the slots ptr[p] … ptr[p+1]. Their number is a power of two, and at least half of them are empty.
    Probing for coordinate i is linear, from slot (i · 0x9E3779B97F4A7C15 mod 2**64) >> (64 - log2(slots)) on, and
    wraps around at the end. key: i + 1, or 0 for an empty slot. before: the number of taken slots before the slot,
    which is the child position.

    A fiber may have any length, and is not listed in order.

    Parameters
    ----------
    rank : int
        The number of dimensions, 1.

    See Also
    --------
    Sparse : Store the coordinates of each fiber.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> bl.pack_dense(np.eye(2), "dense, hashed").arrays["hash_keys_1"].tolist()
    [1, 0, 0, 2]
    """

    kind: ClassVar[str] = "hashed"
    max_rank: ClassVar[int] = 1
    ordered: ClassVar[bool] = False

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        return {
            "ptr": ArraySpec.pointers(depth),
            "key": ArraySpec(f"hash_keys_{depth}", "integer"),
            "before": ArraySpec(f"hash_ranks_{depth}", "integer"),
        }

    def lengths(self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None) -> Counted:
        return None, wrong_lengths(lengths, {"ptr": None if n is None else n + 1, "before": lengths["key"]})

    def size(self, arrays: Arrays, dims: Sequence[int], n: int) -> int:
        return sum(
            int(rank) + int(key != 0) for rank, key in zip(arrays["before"][-1:], arrays["key"][-1:], strict=True)
        )

    def build(self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int) -> Built:
        parent, x = as_array(parents), coords[0].astype(np.int64, copy=False)
        new = np.ones(len(x), bool)
        new[1:] = (x[1:] != x[:-1]) | (parent[1:] != parent[:-1])
        counts = np.bincount(parent[new], minlength=n)
        bits = np.ceil(np.log2(np.maximum(2 * counts, 1))).astype(np.int64)
        pointers = np.zeros(n + 1, np.int64)
        np.cumsum(np.where(counts > 0, 1 << bits, 0), out=pointers[1:])
        keys, slots = np.zeros(pointers[-1], np.int64), np.empty(int(new.sum()), np.int64)
        entries = kernels.readable(pointers), kernels.readable(parent[new]), kernels.readable(x[new])
        kernels.hashing.insert(*entries, keys, slots)
        before = _before(keys != 0)
        return {"ptr": pointers, "key": keys, "before": before}, before[slots][np.cumsum(new) - 1]

    def expand(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Expanded:
        at = as_array(positions)
        counts, slots = children_of(arrays["ptr"], at)
        keys = arrays["key"][slots].astype(np.int64)
        kept = (keys != 0) & inside(window, [keys - 1])
        fibers = np.repeat(np.arange(len(at)), counts)
        child = arrays["before"][slots[kept]].astype(np.int64)
        return np.bincount(fibers[kept], minlength=len(at)), [keys[kept] - 1], child

    def loop(self, root: bool) -> str:
        return (
            "for slot in range(ptr[p], ptr[p + 1]):\n"
            "    if key[slot] != 0:\n"
            "        i0 = key[slot] - 1\n"
            "        q = before[slot]\n"
            "        yield"
        )

    def count(self, arrays: Arrays, dims: Sequence[int], n: int, below: int | Array) -> Array:
        bounds = np.append(arrays["before"], self.size(arrays, dims, n))  # of the children by slot
        return below_fibers(bounds[arrays["ptr"].astype(np.int64)], below)

    def part(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Built:
        pointers, before = arrays["ptr"], arrays["before"]
        first, stop = self.bounds(arrays, positions, len(before))
        slots = in_ranges(first, stop - first)
        keys, ranks = items_at(arrays["key"], slots), items_at(before, slots).astype(np.int64)
        taken = keys != 0
        child = ranks[taken]
        if len(child) and not 0 <= child.min() <= child.max() < self.size(arrays, dims, len(pointers) - 1):
            raise ArrayError(Problem("before", "is not the number of taken slots before it"))
        return {"ptr": pointers_to(stop - first, pointers.dtype), "key": keys, "before": _before(taken)}, child

    def above(self, arrays: Arrays, dims: Sequence[int], n: int, children: range) -> Owners:
        keys, before = arrays["key"], arrays["before"]
        # Slots with equal numbers end with the taken one.
        falls = Problem("before", "the numbers of slots decrease")
        lo = bisect(before, children.start, 0, len(before), falls)
        hi = bisect(before, children.stop, 0, len(before), falls)
        stored = keys[lo:hi].astype(np.int64)
        (taken,) = stored.nonzero()
        if not np.array_equal(before[lo:hi][taken], as_array(children)):
            raise ArrayError(Problem("before", f"does not ascend to its children {children.start} … {children.stop}"))
        x = stored[taken] - 1
        if ((x < 0) | (x >= dims[0])).any():
            raise ArrayError(Problem("key", f"a coordinate is outside its dimension of size {dims[0]}"))
        slots = range(lo + int(taken[0]), lo + int(taken[-1]) + 1)
        fibers, bounds = fibers_of(arrays["ptr"], n, slots, len(keys))
        ends = np.searchsorted(taken + lo, bounds[1:])
        return Owners(fibers, np.diff(ends, prepend=0), [x])

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        pointers, keys = arrays["ptr"], arrays["key"].astype(np.int64)
        problems = list(pointer_problems(pointers, len(keys)))
        yield from problems
        if problems:
            return
        (bad,) = ((keys < 0) | (keys > dims[0])).nonzero()
        for k in bad[:1].tolist():
            yield Problem(f"key[{k}]", f"{keys[k] - 1} is outside its dimension of size {dims[0]}")
        taken = keys != 0
        (wrong,) = (arrays["before"] != np.cumsum(taken) - taken).nonzero()
        for k in wrong[:1].tolist():
            yield Problem(f"before[{k}]", f"{arrays['before'][k]} is not the number of taken slots before it")
        slots: Array = np.diff(pointers.astype(np.int64))
        used = np.bincount(np.repeat(np.arange(n), slots)[taken], minlength=n)
        (full,) = ((slots & (slots - 1) != 0) | (2 * used > slots)).nonzero()
        for p in full[:1].tolist():
            yield Problem(f"ptr[{p}]", f"a table of {slots[p]} slots, of which {used[p]} are taken")
        if len(bad) or len(wrong) or len(full):
            return
        owners = np.repeat(np.arange(n), slots)[taken]
        located = self.locate(arrays, dims, owners, [keys[taken] - 1])
        (lost,) = (located != np.arange(len(located))).nonzero()
        for k in np.flatnonzero(taken)[lost][:1].tolist():
            yield Problem(f"key[{k}]", f"{keys[k] - 1} is in a wrong slot, or repeated")

    def locate(self, arrays: Arrays, dims: Sequence[int], positions: Array, coords: Sequence[Array]) -> Array:
        child = np.empty(len(positions), np.int64)
        table = kernels.common_type([arrays[role] for role in ("ptr", "key", "before")])
        targets = kernels.readable(positions, np.int64), kernels.readable(coords[0], np.int64)
        kernels.hashing.find(*table, *targets, child)
        return child

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> None:
        return None


def _before(taken: Array) -> Array:
    """The number of taken slots before every slot."""
    before: Array = np.cumsum(taken) - taken
    return before
