"""Sums and products of dictionaries of values: those of the values, and no array of values is made for them."""

import numba
import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from test_compute import nests

import binsparse_levels as bl
from binsparse_levels import testing
from binsparse_levels.compute.walk import NESTS
from binsparse_levels.levels import LEVELS
from binsparse_levels.tensors.tensor import inside

TENSOR = bl.pack_dense(np.arange(6000).reshape(60, 100) % 5 + 0.5, "CSR").convert("CSR", dictionary=True)
X = np.arange(100.0)
CALLS = {
    "sum": lambda t, x: t.sum(0),
    "max": lambda t, x: t.max(1),
    "mean": lambda t, x: t.mean(),
    "product": lambda t, x: bl.einsum("ij,j->i", t, x),
    "stored product": lambda t, x: bl.einsum("ij,kj->ik", t, t).to_dense(),
    "both": lambda t, x: (t + t).to_dense(),
    "one": lambda t, x: np.maximum(t * x, t.convert("COO")).to_dense(),
    "view": lambda t, x: (t[::2] * 2).sum(1),
    "map": lambda t, x: t.convert("sparse(4)", map="0/2, 1/2, 0%2, 1%2").sum(0),
}


@given(
    testing.formats(min_rank=2, max_rank=2, kinds=tuple(LEVELS.values())),
    st.lists(st.integers(-2, 2), min_size=20, max_size=20),
    st.sampled_from(["int64", "float32", "float64", "complex64"]),
    st.sampled_from([*CALLS]),
    st.sampled_from([None, 3]),
    st.booleans(),
)
def test_results_are_those_of_the_values(format, numbers, dtype, call, grain, opened):
    dense = np.array(numbers, dtype).reshape(4, 5)
    assume(call != "max" or dtype != "complex64")
    try:
        tensor = bl.pack_dense(dense, format)
        made = tensor.convert(format, dictionary=True)
        bl.write(store := {}, tensor, dictionary=True)
    except (bl.FormatError, bl.OptionError):
        assume(False)
    with nests(grain=grain, block=grain), np.errstate(all="ignore"):
        expected, found = (CALLS[call](t, X[:5].astype(dtype)) for t in (tensor, bl.open(store) if opened else made))
    assert expected.dtype == found.dtype
    assert np.allclose(expected, found, equal_nan=True) if opened else np.array_equal(expected, found)


def test_loops_look_up_the_entries():
    token = NESTS.set(found := {})
    try:
        bl.einsum("ij,j->i", TENSOR, X)
        bl.reduce(TENSOR, 0, "sum")
    finally:
        NESTS.reset(token)
    assert len(found) == 2
    codes = inside(TENSOR).source.dictionary.codes
    for arguments in found.values():
        arrays = [x for x in arguments if isinstance(x, np.ndarray)]
        assert max(x.nbytes for x in arrays if x.dtype == np.float64) <= 800
        assert any(np.shares_memory(x, codes) for x in arrays)
    assert "values[codes[q1]]" in bl.explain(TENSOR, "ij,j->i").text


def test_compiled_bodies_and_counted_arrays():
    @numba.njit
    def add(state, i, j, value):
        state[0] += value

    assert bl.foreach(TENSOR, add, np.zeros(1))[0] == TENSOR.values.sum()
    counted = bl.traffic(TENSOR, "ij,j->i", X)
    assert counted["codes"].items == counted["values"].items == 6000
    assert counted["codes"].bytes < 6100
    assert counted["values"].lines == 1
