"""Slabs: every slab fits into `max_bytes`, and together they are the tensor."""

import tracemalloc

import numpy as np
import pytest
from helpers import kinds  # noqa: F401 (further kinds)
from hypothesis import assume, event, given
from hypothesis import strategies as st

import binsparse_levels
from binsparse_levels import LimitError, Tensor, pack, read, testing, write
from binsparse_levels.arrays import lazy
from binsparse_levels.engine.blocks import blocks_of, read_block, read_blocks
from binsparse_levels.engine.parts import check_in_parts
from binsparse_levels.engine.tree import Tree
from binsparse_levels.levels.base import Level
from binsparse_levels.tensors.tensor import inside


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


CHAINS = [
    *(
        "dense, sparse",
        "sparse(2)",
        "dense, band",
        "dense, run",
        "run, sparse",
        "run, run",
        "bitmap(2)",
        "bitmap, bits",
    ),
    *("dense, bits", "dense, hashed", "hashed, hashed", "dense, n_of_m(1, n=4)", "n_of_m(1, n=4), sparse"),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("format", CHAINS)
@pytest.mark.parametrize("shape", [(1000, 400), (2, 200_000), (200_000, 2)])
def test_a_block_reads_and_takes_little(format, shape):
    dense = np.repeat(np.random.default_rng(0).integers(0, 2, shape[0] * shape[1] // 4), 4).reshape(shape)
    stored, most = {}, 1000
    write(stored, binsparse_levels.pack_dense(dense, format))
    tree = inside(binsparse_levels.open(stored)).source
    reads = []

    def watched(array):
        def read(start, stop):
            reads.append(stop - start)
            return array[start:stop]

        return lazy(len(array), array.dtype, read)

    arrays = {name: watched(array) for name, array in tree.arrays.items()}
    tree = Tree(tree.levels, tree.dims, arrays, watched(tree.values), tree.iso, True)
    assert list(check_in_parts(tree, most, range(2))) == []
    in_parts = all(
        type(level).check_in_parts is not Level.check_in_parts for level in tree.levels if level.arrays(0, True)
    )
    assert not in_parts or max(reads) <= 4 * most  # the default check reads the arrays of a level whole
    total = 0
    for k, block in enumerate(blocks_of(tree, most)):
        if k % 37 == 0:
            reads.clear()
            tracemalloc.start()
            columns, values = read_block(tree, block)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert k == 0 or sum(reads) <= 40 * most  # before the first, pointers are seen to ascend
            assert peak < 1_000_000
            np.testing.assert_array_equal(dense[tuple(columns)], values)
            assert len(values) <= most
        total += block.size
    assert total >= np.count_nonzero(dense)


def test_a_constant_is_read_in_parts():
    stored = {}
    write(stored, binsparse_levels.pack_dense(np.ones((300, 2000), np.int8), "run, run"))
    tree = inside(binsparse_levels.open(stored)).source
    blocks = list(blocks_of(tree, 10_000))
    assert (len(tree.values), len(blocks), sum(block.size for block in blocks)) == (1, 60, 600_000)
    columns, values = read_block(tree, blocks[30])
    assert (columns[0][0], columns[1][0], len(values)) == (150, 0, 10_000)


def test_runs_of_more_entries_than_an_integer_counts():
    arrays = {"run_starts_0": [0], "run_ends_0": [2**40], "pointers_to_1": [0, 1], "run_starts_1": [0]}
    arrays = {name: np.array(x) for name, x in (arrays | {"run_ends_1": [2**40]}).items()}
    stored = {}
    write(stored, Tensor("run, run", (2**40, 2**40), arrays, np.ones(1)))
    with pytest.raises(LimitError, match="64-bit integer"):
        list(blocks_of(inside(binsparse_levels.open(stored)).source, 10))


@given(data=st.data())
def test_blocks_have_the_entries_of_any_kind(data):
    """Children that do not ascend, children without an entry, several entries of one child."""
    tensor = data.draw(testing.tensors(kinds=tuple(testing.LEVELS.values()), structures=False))
    assume(tensor.ndim)
    coords, values = tensor.unpack()
    whole = sorted(zip(*(x.tolist() for x in coords), map(repr, values), strict=True))
    stored = {}
    write(stored, tensor)
    tree, found = inside(binsparse_levels.open(stored)).source, []
    for columns, values in read_blocks(tree, data.draw(st.integers(1, 5))):
        mine = [columns[tensor.format.order.index(k)].tolist() for k in range(tensor.ndim)]
        found += zip(*mine, map(repr, values), strict=True)
    assert sorted(found) == whole
    assert list(check_in_parts(tree, 2, range(tensor.ndim))) == []


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


@given(data=st.data())
def test_how_levels_are_written_does_not_decide_how_slabs_are_cut(data):
    """No fast path says what can be done: levels that the fused pass does not write have the same slabs."""
    tensor = data.draw(testing.tensors(kinds=testing.PLAIN))
    assume(tensor.ndim)
    dimension = data.draw(st.integers(0, tensor.ndim - 1))
    max_bytes = data.draw(st.sampled_from([60, 100, 300, 10**6]))

    def cut():
        try:
            return [part for part, _ in tensor.slabs(dimension, max_bytes=max_bytes)]
        except LimitError as error:
            return str(error)

    expected = cut()
    with pytest.MonkeyPatch.context() as patch:
        for kind in testing.PLAIN:
            patch.setattr(kind, "fused", lambda self: None)
        assert cut() == expected
