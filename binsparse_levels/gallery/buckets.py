"""buckets: the rows of a matrix by their length, in buckets of 1, 2, 4 … 2**k slots a row.

Rows that are longer than 2**k are cut into pieces. A bucket is an ELLPACK matrix: its loops have a fixed length.

    . 5 . 7     ptr   [0, 1, 2, 3]        which pieces the buckets of 1, 2 and 4 slots have (k = 2), in order
    1 . . .     begin [0, 1, 3, 7]        which slots they have
    1 2 3 .     row   [1, 0, 2]           the row of each piece
                slot  [0, 1, 3, 0, 1, 2, 4]     4, the size, stands for no entry

Slots are children, so some children have no entry (`gaps`). A level of rank 2: one fiber is a matrix.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import FormatError, Problem
from ..levels import ArraySpec, Level, register
from ..levels.base import wrong_lengths
from ..levels.pointers import pointer_problems
from ..levels.positions import as_array, children_of, firsts, inside, items_at, ranges


@register
@dataclass(frozen=True)
class Buckets(Level):
    """Bucket b of fiber p is number p * (k + 1) + b: the pieces ptr[…] …, of 2**b slots each, from slot begin[…] on.

    References
    ----------
    Ye et al., SparseTIR: composable abstractions for sparse compilation in deep learning, ASPLOS 2023 (`hyb`).
    """

    rank: int = 2
    k: int = 5
    kind: ClassVar[str] = "buckets"
    package: ClassVar[str] = "binsparse_levels.gallery"
    min_rank: ClassVar[int] = 2
    max_rank: ClassVar[int] = 2
    ordered: ClassVar[bool] = False
    gaps: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if type(self.k) is not int or not 0 <= self.k <= 16:
            raise FormatError(Problem("k", f"expected an integer of 0 … 16, got {self.k!r:.40}"))

    def arrays(self, depth, root):
        return {role: ArraySpec(f"buckets_{role}_{depth}", "integer") for role in ("ptr", "begin", "row", "slot")}

    def lengths(self, lengths, dims, n):
        expected = None if n is None else n * (self.k + 1) + 1
        return lengths["slot"], wrong_lengths(lengths, {"ptr": expected, "begin": expected})

    def build(self, dims, parents, coords, n):
        p, (i, j) = as_array(parents).astype(np.int64), (x.astype(np.int64) for x in coords)
        new = firsts([p, i, j])
        child, p, i, j = np.cumsum(new) - 1, p[new], i[new], j[new]
        head = firsts([p, i])
        within = np.arange(len(p)) - np.maximum.accumulate(np.arange(len(p)) * head)
        starts = np.flatnonzero(within % (1 << self.k) == 0)  # of the pieces
        length = np.diff(starts, append=len(p))
        width = np.searchsorted(1 << np.arange(self.k + 1), length)
        bucket = p[starts] * (self.k + 1) + width
        order = np.argsort(bucket, kind="stable")
        ptr = np.searchsorted(bucket[order], np.arange(n * (self.k + 1) + 1))
        begin = np.append(0, np.cumsum(np.diff(ptr) << np.tile(np.arange(self.k + 1), n)))
        first = np.empty(len(starts), np.int64)
        first[order] = np.cumsum(1 << width[order]) - (1 << width[order])
        to = np.repeat(first - starts, length) + np.arange(len(p))
        slot = np.full(begin[-1], dims[1], np.int64)
        slot[to] = j
        return {"ptr": ptr, "begin": begin, "row": i[starts][order], "slot": slot}, to[child]

    def expand(self, arrays, dims, positions, window):
        each = (as_array(positions)[:, np.newaxis] * (self.k + 1) + np.arange(self.k + 1)).ravel()
        counts, pieces = children_of(arrays["ptr"], each)
        bucket, width = np.repeat(each, counts), np.repeat(np.tile(np.arange(self.k + 1), len(positions)), counts)
        at = items_at(arrays["begin"], bucket).astype(np.int64)
        at += (as_array(pieces) - items_at(arrays["ptr"], bucket).astype(np.int64)) << width
        child = as_array(ranges(at, 1 << width))
        i = np.repeat(items_at(arrays["row"], pieces).astype(np.int64), 1 << width)
        j = items_at(arrays["slot"], child).astype(np.int64)
        fiber = np.repeat(np.repeat(np.arange(len(positions)), self.k + 1), counts)
        kept = (j < dims[1]) & inside(window, [i, j])
        counts = np.bincount(np.repeat(fiber, 1 << width)[kept], minlength=len(positions))
        return counts, [i[kept], j[kept]], child[kept]

    def check(self, arrays, dims, n, *, order=True):
        ptr, begin, row, slot = (arrays[role].astype(np.int64) for role in ("ptr", "begin", "row", "slot"))
        yield from (problems := [*pointer_problems(ptr, len(row)), *pointer_problems(begin, len(slot))])
        if problems:
            return
        if (np.diff(begin) != np.diff(ptr) << np.tile(np.arange(self.k + 1), n)).any():
            yield Problem("begin", "buckets do not have the slots of their pieces")
        elif ((row < 0) | (row >= dims[0])).any() or ((slot < 0) | (slot > dims[1])).any():
            yield Problem("slot", f"a coordinate is outside the shape {tuple(dims)}")
        elif order:
            counts, (i, j), _ = self.expand(arrays, dims, range(n), [range(size) for size in dims])
            p = np.repeat(np.arange(n), counts)
            at = np.lexsort((j, i, p))
            again, _ = self.build(dims, p[at], [i[at], j[at]], n)
            if any(not np.array_equal(arrays[role], again[role]) for role in again):
                yield Problem("slot", "the buckets are not those of these rows")

    def nbytes(self, dims, n, children, *, root, itemsize):
        return None  # counts do not show how long rows are

    def children(self, dims, n, distinct):
        return None

    def loop(self, root):
        return "".join(
            f"""
for piece in range(ptr[p * {self.k + 1} + {b}], ptr[p * {self.k + 1} + {b + 1}]):
    i0 = row[piece]
    for s in range({1 << b}):
        q = begin[p * {self.k + 1} + {b}] + ((piece - ptr[p * {self.k + 1} + {b}]) << {b}) + s
        i1 = slot[q]
        if i1 < size1:
            yield"""
            for b in range(self.k + 1)
        )
