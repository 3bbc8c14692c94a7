"""The laws of every registered level kind, and of one that lives in the tests."""

import kinds
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import (
    ArrayError,
    Band,
    Bitmap,
    Bits,
    Dense,
    FormatError,
    Hashed,
    NOfM,
    Problem,
    Run,
    Sparse,
    Tensor,
    testing,
)
from binsparse_levels.levels import LEVELS, register

SAMPLES = [
    Dense(1), Dense(2), Dense(3), Sparse(1), Sparse(2), Sparse(3),
    kinds.Backwards(1), kinds.Backwards(2, base=1), Bitmap(0), Bitmap(1), Bitmap(2), Bitmap(3),
    Bits(0), Bits(1), Bits(2), Band(), Run(), Hashed(), NOfM(), NOfM(n=1, m=3), NOfM(n=3, m=3),
]  # fmt: skip


def test_every_registered_kind_is_sampled():
    assert {type(level) for level in SAMPLES} == set(LEVELS.values())


@pytest.mark.parametrize("level", SAMPLES, ids=str)
@given(data=st.data())
def test_laws(level, data):
    case = data.draw(testing.level_cases(level))
    testing.check_level(case)
    testing.check_selection(case, *data.draw(testing.selections(case)))


@given(testing.formats(max_rank=6))
def test_stored_names_are_distinct(format):
    testing.check_names(format)


def test_a_name_is_registered_once():
    class Other(kinds.Backwards):
        pass

    with pytest.raises(FormatError, match="registered already"):
        register(Other)
    register(kinds.Backwards)
    assert LEVELS["backwards"] is kinds.Backwards


@pytest.mark.parametrize("rank", [0, -1, True, 1.0, "1", None])
def test_ranks_are_positive_integers(rank):
    with pytest.raises(FormatError, match="needs an integer >= 1"):
        Sparse(rank)


def sparse_problems(level, dims, n, **arrays):
    return list(level.check({role: np.asarray(x) for role, x in arrays.items()}, dims, n))


FAULTS = [
    ({"ptr": [1, 1, 2], "idx0": [0, 1]}, "ptr[0]"),
    ({"ptr": [0, 2, 1], "idx0": [0]}, "ptr[2]"),
    ({"ptr": [0, 1, 1], "idx0": [0, 1]}, "ptr[2]"),
    ({"ptr": [0, 1, 2], "idx0": [0, 5]}, "idx0[1]"),
    ({"ptr": [0, 1, 2], "idx0": [-1, 0]}, "idx0[0]"),
    ({"ptr": [0, 2, 2], "idx0": [1, 0]}, "idx0[1]"),
    ({"ptr": [0, 0, 2], "idx0": [3, 3]}, "idx0[1]"),
]
UNSIGNED_FAULTS = [
    ({"ptr": np.array([0, 2**63, 2], np.uint64), "idx0": [0, 1]}, "ptr[2]"),
    ({"ptr": [0, 1, 2], "idx0": np.array([0, 2**63 + 5], np.uint64)}, "idx0[1]"),
]


@pytest.mark.parametrize(
    ("arrays", "place", "dtype"),
    [(*fault, dtype) for fault in FAULTS for dtype in (np.int8, np.int32, np.int64, ">i8")]
    + [(*fault, None) for fault in UNSIGNED_FAULTS],
)
def test_sparse_names_the_place_of_a_fault(arrays, place, dtype):
    given_arrays = {role: np.asarray(x, dtype) for role, x in arrays.items()}
    problems = sparse_problems(Sparse(1), (5,), 2, **given_arrays)
    assert place in [problem.path for problem in problems]


def test_sparse_sees_negative_numbers_in_types_as_wide_as_the_dimension():
    assert sparse_problems(Sparse(1), (2**40,), 1, ptr=[0, 1], idx0=np.array([-1], np.int32))
    assert sparse_problems(Sparse(1), (2**63 - 1,), 1, ptr=[0, 1], idx0=np.array([-1]))
    assert not sparse_problems(Sparse(1), (2**63 - 1,), 1, ptr=[0, 1], idx0=np.array([2**63 - 2], np.uint64))


def test_sparse_finds_tuples_that_ascend_in_the_first_column_alone():
    problems = sparse_problems(Sparse(2), (9, 9), 1, idx0=[1, 1, 2], idx1=[4, 3, 0])
    assert [problem.path for problem in problems] == ["idx0[1]"]


def test_the_first_faults_are_listed_and_the_rest_counted():
    problems = sparse_problems(Sparse(1), (3,), 1, idx0=np.full(100, 7))
    assert problems[-1] == Problem("idx0", "100 in all are out of range")
    assert len(problems) == 6


# Cases that hostile use found


def test_faults_behind_pointers_of_few_bits():
    indices = np.arange(300)
    indices[200] = 999
    arrays = {"pointers_to_1": np.array([0, 100, 120], np.int8), "indices_1": indices}
    with pytest.raises(ArrayError, match=r"(?s)pointers_to_1\[2\].*indices_1\[200\]: 999 is outside"):
        Tensor("dense, sparse", (2, 300), arrays, 1.0)
