"""What somebody else writes into the arrays that a tensor was made of never makes the tensor invalid."""

import warnings

import numpy as np
import pytest
import scipy.sparse
import sparse
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import as_tensor, from_binsparse, from_gcxs, from_scipy, from_sparse, pack, read, write


class Binsparse:
    """An object of another library, with arrays that its owner changes."""

    def __init__(self, tensor):
        store = {}
        write(store, tensor)
        self.header = store.pop("binsparse")
        self.held = {name: np.array(x) for name, x in store.items()}

    def __binsparse_descriptor__(self):
        return self.header

    def __binsparse__(self):
        return self.held


def matrix(kind, dense):
    if kind == "binsparse":
        return Binsparse(pack(np.nonzero(dense), dense[np.nonzero(dense)], dense.shape, "CSR"))
    if kind == "gcxs":
        return sparse.GCXS.from_numpy(dense, compressed_axes=[0])
    if kind == "torch":
        torch = pytest.importorskip("torch")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that its CSR is young
            return torch.from_numpy(dense).to_sparse_csr()
    return getattr(scipy.sparse, f"{kind}_array")(dense)


def arrays_of(kind, thing):
    if kind == "binsparse":
        return list(thing.held.values())
    if kind == "torch":
        return [thing.crow_indices().numpy(), thing.col_indices().numpy(), thing.values().numpy()]
    if kind == "coo":
        return [*thing.coords, thing.data]
    return [thing.indptr, thing.indices, thing.data]


CALLS = {
    "eliminate_zeros": lambda x: x.eliminate_zeros(),
    "sum_duplicates": lambda x: x.sum_duplicates(),
    "sort_indices": lambda x: x.sort_indices(),
    "prune": lambda x: x.prune(),
    "scale": lambda x: x.__imul__(3),
    "zero": lambda x: x.data.__setitem__(slice(None, 2), 0),
}


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "gcxs", "torch", "binsparse"])
@given(
    cells=st.lists(st.integers(0, 3), min_size=12, max_size=12),
    calls=st.lists(st.sampled_from([*CALLS]), max_size=4),
    nonsense=st.booleans(),
    copy=st.booleans(),
)
def test_others_change_their_arrays(kind, cells, calls, nonsense, copy):
    dense = np.array(cells, float).reshape(3, 4)
    thing = matrix(kind, dense)
    doors = {"gcxs": from_gcxs if len(calls) % 2 else from_sparse, "binsparse": from_binsparse}
    door = as_tensor if kind == "torch" or len(cells) % 3 == 0 else doors.get(kind, from_scipy)
    tensor = door(thing, copy=copy)
    for call in calls:
        if kind != "torch" and hasattr(thing, call if call not in ("scale", "zero") else "has_canonical_format"):
            CALLS[call](thing)
    if nonsense:  # last: the library itself would crash
        for array in arrays_of(kind, thing):
            if array.flags.writeable:
                array[...] = np.iinfo(np.int32).max
    tensor.check()
    found = tensor.to_dense()
    if copy:
        assert found.tolist() == dense.tolist()
    store = {}
    write(store, tensor)
    assert read(store).to_dense().tolist() == found.tolist()


def test_a_mapping_may_change():
    store = {}
    write(store, pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    own = {name: np.array(x) if isinstance(x, np.ndarray) else x for name, x in store.items()}
    tensor = read(own)
    for name in ("pointers_to_1", "indices_1", "values"):
        own[name][:] = 99
    assert tensor.to_dense().tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [2, 0, 0, 0]]


@pytest.mark.parametrize("door", [from_scipy, as_tensor])
def test_values_are_shared_when_asked(door):
    held = scipy.sparse.csr_array(np.eye(3))
    assert np.shares_memory(door(held, copy=False).values, held.data)
    assert not np.shares_memory(door(held).values, held.data)
