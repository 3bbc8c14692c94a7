"""elias_fano: the coordinates of all fibers as one ascending sequence of numbers, in the form of Elias and Fano.

    . 5 . 7     dense   rows 0, 1, 2
    . . . .     `- elias_fano   pointers_to_1 [0, 2, 2, 5]
    1 2 3 .        |            elias_fano_low_1 [11, 0]
                   |            elias_fano_high_1 [709]
                   `- element   values [5, 7, 1, 2, 3]

Column i of row p is the number 4 * p + i: 1, 3, 8, 9, 10. Their lowest bits, 1, 1, 0, 1, 0, make 11. The rest, 0, 1, 4,
4 and 5, sets the bits 0 + 0, 1 + 1, 4 + 2, 4 + 3 and 5 + 4, which make 709.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from .. import kernels
from ..errors import ArrayError, LimitError, Problem, raise_if
from ..limits import INT64_MAX
from ..thresholds import THRESHOLDS
from .base import Arrays, ArraySpec, Built, Counted, Expanded, wrong_lengths
from .pointers import Pointed, pointers_in_parts, pointers_to
from .positions import Array, Positions, Window, as_array, count_owners, firsts, in_ranges, in_window, is_everything
from .registry import register


@register
class EliasFano(Pointed):
    """The coordinates of the level form one ascending sequence of numbers, stored in a few bits each.

    It is the code of Elias and Fano [1]_, [2]_. Child q of fiber p with coordinate i is the number p · size + i. Its
    `low` lower bits are at bit q · low of the array `low`; bit (number >> low) + q of the array `high` is set. Words
    have 64 bits, the lowest first.

    low is floor(log2(n · size / children)), from 0 to 57; a word of 0 follows the lower bits. A child takes about two
    bits more than the information limit, and each fiber a pointer; read, sliced and multiplied in place.

    Parameters
    ----------
    rank : int
        The number of dimensions, 1.

    See Also
    --------
    Sparse : Store the coordinates of each fiber.

    References
    ----------
    .. [1] P. Elias, "Efficient storage and retrieval by content and address of static files", Journal of the ACM,
       1974.
    .. [2] S. Vigna, "Quasi-succinct indices", WSDM, 2013.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> bl.pack_dense(np.eye(2), "dense, elias_fano").arrays["elias_fano_high_1"].tolist()
    [5]
    """

    kind: ClassVar[str] = "elias_fano"
    max_rank: ClassVar[int] = 1

    def arrays(self, depth: int, root: bool) -> dict[str, ArraySpec]:
        words = {role: ArraySpec(f"elias_fano_{role}_{depth}", "word") for role in ("low", "high")}
        return {"ptr": ArraySpec.pointers(depth)} | words

    def lengths(self, lengths: Mapping[str, int], dims: Sequence[int], n: int | None) -> Counted:
        return None, wrong_lengths(lengths, {"ptr": None if n is None else n + 1})

    def build(self, dims: Sequence[int], parents: Positions, coords: Sequence[Array], n: int) -> Built:
        parent, x = as_array(parents), coords[0].astype(np.int64, copy=False)
        new = firsts([parent, x])
        pointers = count_owners(parent[new], n, np.dtype(np.int64))
        return self._encoded(pointers, parent[new], x[new], dims[0]), np.cumsum(new) - 1

    def _encoded(self, pointers: Array, parents: Array, x: Array, size: int) -> dict[str, Array]:
        """The arrays of distinct entries."""
        n = len(pointers) - 1
        if n * size > INT64_MAX:
            what = f"numbers up to {n} · {size} do not fit in 64 bits; use a sparse level"
            raise LimitError(Problem(str(self), what))
        low, lows, highs = _shape(n, size, len(x))
        made = {"ptr": pointers, "low": np.zeros(lows, np.uint64), "high": np.zeros(highs, np.uint64)}
        numbers = parents.astype(np.int64, copy=False) * np.int64(size) + x
        kernels.words.put_numbers(kernels.readable(numbers), low, made["low"], made["high"])
        return made

    def expand(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Expanded:
        at, pointers = as_array(positions), arrays["ptr"]
        first = pointers[at].astype(np.int64)
        counts = pointers[at + 1].astype(np.int64) - first
        x, child = np.empty(int(counts.sum()), np.int64), in_ranges(first, counts)
        kernels.words.list_fibers(*self._words(arrays, dims), kernels.readable(at, np.int64), x)
        return (counts, [x], child) if is_everything(window, dims) else in_window(counts, [x], child, window)

    @staticmethod
    def _words(arrays: Arrays, dims: Sequence[int]) -> tuple[Any, ...]:
        """The arguments of kernels: pointers, upper bits, lower bits, the number of lower bits, the size."""
        n = len(arrays["ptr"]) - 1
        low, _, _ = _shape(n, dims[0], int(arrays["ptr"][-1]))
        return *(kernels.readable(arrays[role]) for role in ("ptr", "high", "low")), low, dims[0]

    def loop(self, root: bool) -> str:
        return (
            "width = lower_width(n, size0, children)\n"
            "base = p * size0\n"
            "bit = (base >> width) + ptr[p]\n"
            "at = bit >> 6\n"
            "word = (high[at] >> (bit & 63)) << (bit & 63)\n"
            "for q in range(ptr[p], ptr[p + 1]):\n"
            "    while word == 0:\n"
            "        at = at + 1\n"
            "        word = high[at]\n"
            "    upper = (at << 6) + trailing_zeros(word) - q\n"
            "    word = word & (word - 1)\n"
            "    i0 = ((upper << width) | lower_bits(low, q, width)) - base\n"
            "    yield\n"
        )

    def helpers(self) -> Mapping[str, Callable[..., Any]]:
        words = kernels.words
        return {x.__name__: x for x in (words.trailing_zeros, words.lower_width, words.lower_bits)}

    def part(self, arrays: Arrays, dims: Sequence[int], positions: Positions, window: Window) -> Built:
        at, pointers = as_array(positions), arrays["ptr"]
        first, ends = self.bounds(arrays, positions, int(pointers[-1:][0]))
        counts = ends - first
        x = self._read(arrays, dims[0], at, first, ends)
        local = pointers_to(counts, pointers.dtype)
        return self._encoded(local, np.repeat(np.arange(len(at)), counts), x, dims[0]), in_ranges(first, counts)

    def _read(self, arrays: Arrays, size: int, at: Array, first: Array, ends: Array) -> Array:
        """The coordinates of the children first … ends - 1 of these fibers, checked.

        From a file, only the words of these fibers are read.
        """
        n, total = len(arrays["ptr"]) - 1, int(arrays["ptr"][-1:][0])
        raise_if(ArrayError, _wrong_shape(arrays, n, size, total))
        low, _, _ = _shape(n, size, total)
        x = np.empty(int((ends - first).sum()), np.int64)
        cuts, done = [0, *(np.flatnonzero(np.diff(at) != 1) + 1).tolist(), len(at)] if len(at) else [], 0
        for start, stop in itertools.pairwise(cuts):  # ranges of neighbouring fibers
            q, end = int(first[start]), int(ends[stop - 1])
            if (first[start + 1 : stop] != ends[start : stop - 1]).any():
                raise ArrayError(Problem("ptr", f"does not ascend in fibers {at[start]} … {at[stop - 1]}"))
            here, done = x[done : done + end - q], done + end - q
            bits = range((int(at[start]) * size >> low) + q, ((int(at[stop - 1]) + 1) * size - 1 >> low) + end + 1)
            if _numbers(arrays, low, q, bits, len(bits) or 1, here) < len(here):
                raise ArrayError(Problem("high", f"has too few bits in fibers {at[start]} … {at[stop - 1]}"))
        if not _are_valid(x, at, ends - first, size):
            raise ArrayError(_DISORDER)
        return x

    def _coords_of(self, arrays: Arrays, dims: Sequence[int], fibers: range, bounds: Array) -> Sequence[Array]:
        return [self._read(arrays, dims[0], as_array(fibers), bounds[:-1], bounds[1:])]

    def check(self, arrays: Arrays, dims: Sequence[int], n: int, *, order: bool = True) -> Iterator[Problem]:
        return self.check_in_parts(arrays, dims, n, THRESHOLDS.checked_numbers)

    def check_in_parts(self, arrays: Arrays, dims: Sequence[int], n: int, size: int) -> Iterator[Problem]:
        count = self.size(arrays, dims, n)
        problems = [*pointers_in_parts(arrays["ptr"], count, n, size)]
        problems = problems or _wrong_shape(arrays, n, dims[0], count)
        yield from problems
        if problems:
            return
        low, _, highs = _shape(n, dims[0], count)
        bit, last = 0, -1
        for first in range(0, max(n, 1), size):
            bounds = arrays["ptr"][first : min(first + size, n) + 1].astype(np.int64)
            fibers = np.arange(first, first + len(bounds) - 1)
            for q in range(int(bounds[0]), int(bounds[-1]), size):
                stop = min(q + size, int(bounds[-1]))
                x = np.empty(stop - q, np.int64)
                if _numbers(arrays, low, q, range(bit, 64 * highs), size, x) < len(x):
                    yield Problem("high", f"fewer bits are set than the {count} of the sequence")
                    return
                ascends, last = x[0] > last, int(x[-1])
                bit = (last >> low) + stop
                if not ascends or not _are_valid(x, fibers, np.diff(np.clip(bounds, q, stop)), dims[0]):
                    yield _DISORDER
                    return
        for role, end in (("high", bit), ("low", count * low)):
            words, at = arrays[role], end >> 6
            pieces = (words[k : k + size] for k in range(at + 1, len(words), size))
            if any(map(np.any, itertools.chain([words[at : at + 1] >> np.uint64(end & 63)], pieces))):
                yield Problem(f"{role}[{len(words) - 1}]", f"bits after those of the last of {count} numbers are set")

    def locate(self, arrays: Arrays, dims: Sequence[int], positions: Array, coords: Sequence[Array]) -> Array:
        child = np.empty(len(positions), np.int64)
        targets = kernels.readable(positions, np.int64), kernels.readable(coords[0], np.int64)
        kernels.words.find_numbers(*self._words(arrays, dims), *targets, child)
        return child

    def nbytes(self, dims: Sequence[int], n: int, children: int, *, root: bool, itemsize: int) -> int:
        return (n + 1) * itemsize + 8 * sum(_shape(n, dims[0], children)[1:])


_DISORDER = Problem("high", "numbers do not ascend in their fibers")


def _shape(n: int, size: int, count: int) -> tuple[int, int, int]:
    """The number of lower bits of each of `count` numbers below n · size; the words of all lower and all upper bits."""
    low = min(max((n * size // count).bit_length() - 1, 0), 57) if count else 0
    upper = count + (max(n * size - 1, 0) >> low) + 1 if count else 1
    return low, count * low // 64 + 2, -(-upper // 64)


def _wrong_shape(arrays: Arrays, n: int, size: int, count: int) -> list[Problem]:
    """The problem of words that do not encode `count` numbers below n · size."""
    if 0 <= count <= n * size <= INT64_MAX:
        _, lows, highs = _shape(n, size, count)
        return wrong_lengths({role: len(arrays[role]) for role in ("low", "high")}, {"low": lows, "high": highs})
    return [Problem("ptr", f"{count} numbers below {n} · {size} are no sequence")]


def _numbers(arrays: Arrays, low: int, q: int, bits: range, step: int, out: Array) -> int:
    """Fill `out` with the numbers q, q + 1 … whose bits are in a range. Returns their number.

    step: the number of words to read from a file at a time.
    """
    skipped, done = q * low & 63, 0
    lower = kernels.readable(np.asarray(arrays["low"][q * low >> 6 : ((q + len(out)) * low >> 6) + 2]))
    end = -(-bits.stop // 64)
    for at in range(bits.start >> 6, end, step):
        high, before = np.asarray(arrays["high"][at : min(at + step, end)]), 64 * at
        here = before, max(bits.start - before, 0), lower, skipped + done * low, low, q + done
        done += kernels.words.get_numbers(kernels.readable(high), *here, out[done:])
        if done == len(out):
            break
    return done


def _are_valid(x: Array, fibers: Array, counts: Array, size: int) -> bool:
    """Convert numbers to coordinates in place. Returns True if they ascend in each fiber and are in range.

    counts: the number of numbers of each fiber.
    """
    owners = np.repeat(np.arange(len(fibers)), counts)
    x -= (fibers.astype(np.int64, copy=False) * size)[owners]
    inside = not len(x) or 0 <= x.min() <= x.max() < size
    return bool(inside and ((x[1:] > x[:-1]) | (owners[1:] > owners[:-1])).all())
