"""Texts in order: octets behind each other are sorted by keys that are as short as the texts let them be."""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import NamedTuple

import numpy as np

from .. import kernels
from ..arrays import Array
from ..engine import sorting

_PLACES = 32  # octets of a text that a key has at most, behind those that all begin with


class Numbered(NamedTuple):
    """Texts in order. numbers: of each among the different ones. firsts: where each of these stands first."""

    numbers: Array
    firsts: Array


def numbered(octets: Array, begins: Array, used: Array | None = None) -> Numbered:
    """Sort texts and number them. used: which of them count; the others have any number.

    A key counts the octets that texts have at each place, and no others, so that it holds many places (2 M texts of 24
    hexadecimal digits: 107 ms; with eight octets as the key, sorted by numpy, 469).
    """
    octets, begins, count = kernels.readable(octets), kernels.readable(begins), len(begins) - 1
    rows = kernels.readable(np.arange(count) if used is None else np.flatnonzero(used))
    skip = int(kernels.texts.in_common(octets, begins)) if count else 0
    there = np.zeros((_PLACES, 257), np.uint8)
    kernels.texts.mark(octets, begins, skip, there)
    ranks, size = _ranks(there)
    keys = np.empty(len(rows), np.uint64)
    kernels.texts.words(octets, begins, rows, skip, kernels.readable(ranks), keys)
    layout = sorting.layout((max(size, 2),))
    assert layout is not None  # a key has one word
    payload = rows.view(np.uint64)
    ordered = sorting.Sorting((kernels.readable(keys),), payload, layout, 0, trusted=False, keep=False)
    del keys
    skip, whole = skip + len(ranks), len(ranks) < _PLACES and not there[len(ranks), 1:].any()
    numbers, firsts, different = np.zeros(count, np.uint32), np.empty(len(rows), np.int64), 0
    for run in ordered.runs:
        records, held, _ = ordered.sort(run)
        different = int(kernels.texts.number(octets, begins, records, held, skip, whole, numbers, firsts, different))
    return Numbered(numbers, firsts[:different])


def _ranks(there: Array) -> tuple[Array, int]:
    """What each octet adds to a key, at as many places as fit into it, and how many keys there may be.

    there: as `kernels.texts.mark` leaves it.
    """
    ranks, size = np.zeros(there.shape, np.uint64), 1
    counts = there.sum(1).tolist()
    places = next((k for k, most in enumerate(accumulate(counts, mul)) if not 0 < most < 2**63), len(counts))
    for k in reversed(range(places)):
        ranks[k] = (np.cumsum(there[k], dtype=np.uint64) - 1) * there[k] * np.uint64(size)
        size *= counts[k]
    return ranks[:places], size


def gathered(octets: Array, begins: Array, rows: Array, size: int) -> Array:
    """The texts of these rows behind each other, of so many octets."""
    out = np.empty(size, np.uint8)
    kernels.texts.gather(kernels.readable(octets), kernels.readable(begins), kernels.readable(rows), out)
    return out
