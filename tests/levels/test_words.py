"""Kinds that keep coordinates as bits in words: mask and elias_fano."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels.levels import LEVELS


class Recorded:
    """An array in a file, which keeps the lengths of the slices that were read."""

    def __init__(self, array, read):
        self.array, self.read, self.shape, self.dtype = array, read, array.shape, array.dtype

    def __len__(self):
        return len(self.array)

    def __getitem__(self, key):
        found = self.array[key]
        self.read.append(len(found))
        return found


@given(seed=st.integers(0, 2**32 - 1), run=st.sampled_from([1, 3, 400]), step=st.sampled_from([1, 7, 2**20, 2**50]))
def test_lookups_in_wide_fibers(seed, run, step):
    random = np.random.default_rng(seed)
    starts = np.cumsum(random.integers(1, 2 * step, 4000 // run) + run)  # runs of neighbours and gaps between
    x = (starts[:, None] + np.arange(run)).ravel()
    size = int(x[-1]) + 10
    tensor = bl.pack([x], 1.0, (size,), "elias_fano")
    wanted = np.unique([*x[:: len(x) // 19], *random.integers(0, size, 20), 0, x[0], x[-1], size - 1])
    at = np.searchsorted(x, wanted)
    expected = np.where(x[np.minimum(at, len(x) - 1)] == wanted, at, -1)
    assert tensor.locate([wanted]).tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["mask", "elias_fano"])
@given(seed=st.integers(0, 99), damage=st.booleans(), n=st.sampled_from([1, 5, 200]))
def test_a_check_in_parts_reads_few_items_at_a_time(kind, seed, damage, n):
    random = np.random.default_rng(seed)
    level, size = LEVELS[kind](), 20000 // n
    flat = np.flatnonzero(random.random(n * size) < 0.3)
    arrays, _ = level.build([size], flat // size, [flat % size], n)
    if damage:
        role = str(random.choice([role for role in arrays if role != "ptr"]))
        at = int(random.integers(0, len(arrays[role])))
        arrays[role][at] ^= arrays[role].dtype.type(1 << int(random.integers(0, 8)))
    read: list[int] = []
    parts = list(level.check_in_parts({role: Recorded(x, read) for role, x in arrays.items()}, [size], n, 64))
    assert bool(parts) == bool(list(level.check(arrays, [size], n)))
    assert parts or not damage or kind == "elias_fano"  # another bit may make another sequence
    assert max(read) <= 64 + 2
