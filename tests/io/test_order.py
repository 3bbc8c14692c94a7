"""Files whose lists are in no order, as other systems write them: a slice is right, or refused with a remedy."""

import itertools
import warnings

import h5py
import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels.thresholds import THRESHOLDS

FORMATS = [
    *("sparse", "COO", "sparse(3)", "CSR", "CSC", "dense, sparse(2)", "DCSR", "sparse, sparse, sparse"),
    *("bitmap, sparse", "dense, run", "run", "hashed, sparse", "bits, dense, sparse"),
]
RANKS = {"sparse": 1, "run": 1, "sparse(3)": 3, "dense, sparse(2)": 3, "sparse, sparse, sparse": 3} | {
    "bits, dense, sparse": 3
}


def shuffle(arrays, permutation):
    """Permute the children of each fiber of the last level in place, with their values.

    permutation: gives one of so many numbers.
    """
    depths = [int(name.removeprefix("pointers_to_")) for name in arrays if name.startswith("pointers_to_")]
    last = max(depths, default=0)
    count = len(arrays["values"])
    ends = arrays[f"pointers_to_{last}"][:].tolist() if depths else [0, count]
    lists = [n for n in arrays if n.startswith(("indices_", "run_")) and int(n.rsplit("_", 1)[1]) >= last]
    order = [first + x for first, end in itertools.pairwise(ends) for x in permutation(end - first)]
    for name in (*lists, "values"):
        arrays[name][:] = arrays[name][:][order]


def dense_of(part):
    return part.to_dense() if isinstance(part, bl.Tensor) else part


def right_or_refused(call, expected):
    """Whether the call gives what is expected; a refusal names the remedy, if other systems have such files."""
    try:
        came = call()
    except bl.BinsparseError as error:
        if "read and convert sort" not in str(error) and not str(error).startswith("run_"):
            raise
        return False
    np.testing.assert_array_equal(came, expected)
    return True


@pytest.mark.sampled(5)
@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
def test_slices_of_lists_out_of_order(format, data):
    shape = tuple(data.draw(st.integers(1, 6)) for _ in range(RANKS.get(format, 2)))
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    dense = (rng.random(shape) < 0.6) * rng.integers(1, 99, shape)
    stored = {}
    bl.write(stored, bl.pack_dense(dense, format, fill_value=0))
    assume(len(stored["values"]) >= len(dense[dense != 0]))  # not one value for all
    stored |= {name: np.array(x) for name, x in stored.items() if isinstance(x, np.ndarray)}
    shuffle(stored, rng.permutation)
    tensor = bl.open(stored)
    for _ in range(3):
        key = tuple(
            int(rng.integers(n)) if rng.random() < 0.4 else slice(*sorted(rng.integers(0, n + 1, 2))) for n in shape
        )
        right_or_refused(lambda key=key: dense_of(tensor[key]), dense[key])
    for axis in range(len(shape)):
        right_or_refused(lambda axis=axis: bl.reduce(tensor, axis, "sum"), dense.sum(axis))


@pytest.mark.parametrize("format", ["COO", "CSR", "DCSR"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_long_lists(tmp_path, format, shuffled):
    """A fiber of more entries than are read at once is searched only where it is seen to be in order."""
    rng = np.random.default_rng(0)
    dense = (rng.random((3, 100_000)) < 0.6) * rng.integers(1, 99, (3, 100_000))
    bl.write(tmp_path / "a.h5", bl.pack_dense(dense, format))
    if shuffled:
        with h5py.File(tmp_path / "a.h5", "r+") as file:
            shuffle(file, rng.permutation)
    tensor = bl.open(tmp_path / "a.h5")
    keys = [(k, slice(first, first + 9)) for k in range(3) for first in (0, 5000, 99_991)]
    cells = [right_or_refused(lambda key=key: tensor[key].to_dense(), dense[key]) for key in keys]
    assert all(cells) is not shuffled
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bl.DialectWarning)
        np.testing.assert_array_equal(bl.read(tmp_path / "a.h5", lenient=True).to_dense(), dense)


@pytest.mark.parametrize("format", ["COO", "CSR", "DCSR"])
@pytest.mark.parametrize("first", [0, 20, 90])
def test_blocks_of_a_view(format, first, monkeypatch):
    """A search for the blocks that a view needs."""
    monkeypatch.setattr(THRESHOLDS, "block_entries", 16)
    rng = np.random.default_rng(first)
    dense = (rng.random((100, 30)) < 0.3) * rng.integers(1, 99, (100, 30))
    stored = {}
    bl.write(stored, bl.pack_dense(dense, format))
    stored |= {name: np.array(x) for name, x in stored.items() if isinstance(x, np.ndarray)}
    for shuffled in (False, True):
        if shuffled:
            shuffle(stored, rng.permutation)
        part, slabs = bl.open(stored)[first : first + 7], bl.open(stored)
        found = right_or_refused(lambda part=part: bl.reduce(part, 0), dense[first : first + 7].sum(0))
        cut = right_or_refused(
            lambda slabs=slabs: np.vstack([x.to_dense() for _, x in slabs.slabs(0, max_bytes=900)]), dense
        )
        assert shuffled or (found and cut)


def test_entries_of_scipy_in_no_order(tmp_path):
    rng = np.random.default_rng(0)
    matrix = scipy.sparse.random_array((50, 60), density=0.3, rng=rng).tocoo()
    order = rng.permutation(matrix.nnz)
    matrix.coords = tuple(x[order] for x in matrix.coords)
    matrix.data = matrix.data[order]
    scipy.sparse.save_npz(tmp_path / "a.npz", matrix)
    tensor, dense = bl.open(tmp_path / "a.npz"), matrix.toarray()
    for k in range(50):
        right_or_refused(lambda k=k: dense_of(tensor[k]), dense[k])
        right_or_refused(lambda k=k: dense_of(tensor[:, k]), dense[:, k])
    np.testing.assert_array_equal(bl.read(tmp_path / "a.npz").to_dense(), dense)
