"""Slabs: every slab fits into `max_bytes`, and together they are the tensor."""

import numpy as np
import pytest

import binsparse_levels
from binsparse_levels import pack, read, write


def test_slabs_of_an_empty_file(tmp_path):
    write(tmp_path / "a.h5", pack([[], []], [], (5, 6), "CSR"))
    assert [part for part, _ in binsparse_levels.open(tmp_path / "a.h5").slabs(1, max_bytes=1000)] == [range(6)]


@pytest.mark.parametrize("format", ["sparse(2)", "sparse, sparse", "CSC"])
def test_slabs_are_as_small_as_was_asked_for(tmp_path, format):
    coords = np.unravel_index(np.arange(0, 10_000, 7), (100, 100))
    tensor = pack(coords, np.ones(len(coords[0]), np.int8) * np.arange(len(coords[0])) % 7, (100, 100), format)
    write(tmp_path / "a.h5", tensor, narrow=True)
    for opened in (read(tmp_path / "a.h5"), binsparse_levels.open(tmp_path / "a.h5")):
        for dimension in (0, 1):
            slabs = list(opened.slabs(dimension, max_bytes=1000))
            assert max(slab.nbytes for _, slab in slabs) <= 1000
            whole = np.concatenate([slab.to_dense() for _, slab in slabs], dimension)
            np.testing.assert_array_equal(whole, tensor.to_dense())


def test_slabs_count_the_pointers_below_sparse_fibers():
    tensor = pack([np.arange(100)] * 3, np.ones(100) * np.arange(100), (100, 1000, 100), "sparse, dense, sparse")
    for dimension in range(3):
        assert max(slab.nbytes for _, slab in tensor.slabs(dimension, max_bytes=500_000)) <= 500_000


def test_slabs_along_a_dimension_that_no_memory_counts():
    tensor = pack([np.arange(100), np.arange(100) << 40], np.ones(100) * np.arange(100), (100, 2**50), "sparse(2)")
    slabs = list(tensor.slabs(1, max_bytes=1000))
    assert len(slabs) < 10
    assert sum(slab.number_of_stored_values for _, slab in slabs) == 100
