"""Kernels count faults of entries exactly where numpy, which names them, finds some."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels.levels import sparse
from binsparse_levels.levels.pointers import pointer_problems


@given(
    st.data(),
    st.sampled_from(["i1", "u1", ">i2", "i4", "u4", "i8", "u8"]),
    st.integers(1, 2),
    st.integers(1, 5),
    st.booleans(),
)
def test_faults_are_counted_where_they_are_named(data, dtype, rank, count, order):
    numbers = st.integers(-2 if "i" in dtype else 0, 6)
    columns = [np.array(data.draw(st.lists(numbers, min_size=count, max_size=count)), dtype) for _ in range(rank)]
    inner = data.draw(st.lists(st.integers(-1, count + 1), max_size=3))
    pointers = np.array([0, *(sorted(inner) if data.draw(st.booleans()) else inner), count])
    dims = [data.draw(st.sampled_from([3, 5, 2**20, 2**40, 2**63 - 1])) for _ in range(rank)]
    problems = list(pointer_problems(pointers, count))
    for k, x in enumerate(columns):
        problems += sparse._range_problems(f"idx{k}", x, dims[k], pointers)
    if order and not problems:
        problems += sparse._order_problems(pointers, columns)
    arrays = {"ptr": pointers} | {f"idx{k}": x for k, x in enumerate(columns)}
    assert sparse._faults(arrays, pointers, columns, dims, order=order) == bool(problems)
