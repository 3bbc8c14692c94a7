"""Slabs: every slab fits into `max_bytes`, and together they are the tensor."""

import numpy as np
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

import binsparse_levels
from binsparse_levels import LimitError, pack, read, testing, write


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


@given(data=st.data())
def test_slabs_are_the_tensor(tmp_path_factory, data):
    tensor = data.draw(testing.tensors(kinds=tuple(testing.LEVELS.values())))
    assume(tensor.ndim)
    if data.draw(st.booleans()) and all(level in testing.PLAIN for level in map(type, tensor.format.levels)):
        path = tmp_path_factory.mktemp("slabs") / "a.npz"
        write(path, tensor)
        tensor = binsparse_levels.open(path)
    dimension = data.draw(st.integers(-tensor.ndim, tensor.ndim - 1))
    max_bytes = data.draw(st.sampled_from([60, 100, 300, 10**6]))
    dense = tensor.to_dense()
    try:
        slabs = list(tensor.slabs(dimension, max_bytes=max_bytes))
    except LimitError:
        event("one coordinate is too much")
        assert max_bytes < 10**6
        return
    assert [x for part, _ in slabs for x in part] == list(range(dense.shape[dimension]))
    for part, slab in slabs:
        np.testing.assert_array_equal(slab.to_dense(), dense.take(part, dimension))
        assert slab.format == tensor.format or any(level.refuses for level in tensor.format.levels)
        if all(type(level) in testing.PLAIN for level in tensor.format.levels):
            assert slab.nbytes <= max_bytes
