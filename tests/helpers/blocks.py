"""Small blocks of entries, and a large tensor."""

import contextlib

import numpy as np

from binsparse_levels import pack
from binsparse_levels.thresholds import using_thresholds

SUFFIXES = [".h5", ".zarr", ".npz", ".bspnpy", ".nc", ".bspra"]


@contextlib.contextmanager
def blocks_of(size):
    """Check and join arrays and labels a few items at a time."""
    with using_thresholds(piece_items=size - 1, verified_items=size - 1, checked_labels=size - 1):
        yield


def large(count=20_000, shape=(50, 60, 70), format="sparse, dense, sparse"):
    rng = np.random.default_rng(0)
    cells = rng.choice(np.prod(shape), count, replace=False)
    return pack(np.unravel_index(cells, shape), rng.random(count), shape, format, attributes={"of": "mine"})


def alike(found, expected):
    """Assert that two tensors have the same arrays, of the same types, and the same metadata."""
    assert found.format.canonical() == expected.format.canonical()
    assert found.shape == expected.shape
    assert set(found.stored.arrays) == set(expected.stored.arrays)
    for name, array in expected.stored.arrays.items():
        assert found.stored.arrays[name].dtype == array.dtype, name
        np.testing.assert_array_equal(found.stored.arrays[name], array, name)
    assert found.values.dtype == expected.values.dtype
    np.testing.assert_array_equal(found.values, expected.values)
    assert (found.fill_value is None) == (expected.fill_value is None)
    assert found.fill_value is None or found.fill_value == expected.fill_value
    assert found.map == expected.map
    assert found.structure == expected.structure
    assert found.attributes == expected.attributes


@contextlib.contextmanager
def rows_at_once(number):
    """Let steps of builds and conversions have this number of entries in memory."""
    with using_thresholds(step_entries=number):
        yield
