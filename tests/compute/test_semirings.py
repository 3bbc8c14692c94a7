"""Products over semirings, and those of some cells, equal plain loops over the entries."""

import functools
import itertools

import naive
import numba
import numpy as np
import pytest
from helpers.strategies import masks
from hypothesis import assume, given
from hypothesis import strategies as st
from test_compute import dense_and_stored, nests, seen
from test_operands import beside

import binsparse_levels as bl
from binsparse_levels import ArrayError, FormatError, OptionError, Tensor, einsum, pack, pack_dense
from binsparse_levels.compute.semirings import SEMIRINGS
from binsparse_levels.parallel import using_threads
from binsparse_levels.thresholds import using_thresholds


@numba.njit
def larger(a, b):
    return max(a, b)


@numba.njit
def difference(a, b):
    return 2 * a - b


OWN = (larger, difference, -1000)


def entries_of(array, stored=None):
    stored = np.ones(array.shape, bool) if stored is None else stored
    return {place: array[place].item() for place in np.ndindex(array.shape) if stored[place]}


@given(data=st.data())
def test_products_over_a_semiring_are_those_of_loops(data):
    sizes = dict(zip("abc", data.draw(st.lists(st.integers(0, 3), min_size=3, max_size=3)), strict=True))
    texts, operands, entries = [], [], []
    number = data.draw(st.integers(1, 2))
    at = data.draw(st.sampled_from([{0}, {number - 1}, {0, number - 1}]))  # that are stored
    for k in range(number):
        text = data.draw(st.text(alphabet="abc", min_size=1, max_size=3))
        tensor, array = beside(data, tuple(sizes[x] for x in text))
        assume(not tensor.fill_value)
        stored = dense_and_stored(tensor)[1] if k in at else None
        tensor, array, *stored = seen(data, tensor, array, *([stored] if k in at else []))
        assume(tensor.ndim == len(text) and len(set(zip(text, tensor.shape, strict=True))) == len(set(text)))
        texts.append(text)
        operands.append(tensor if k in at else array)
        entries.append(entries_of(array, *stored))
    shapes = {}
    for text, operand in zip(texts, operands, strict=True):
        for x, size in zip(text, operand.shape, strict=True):
            assume(shapes.setdefault(x, size) == size)
    out = "".join(data.draw(st.lists(st.sampled_from(sorted(shapes)), unique=True)))
    name = data.draw(st.sampled_from([*naive.SEMIRINGS, "own"]))
    add, multiply, end = naive.SEMIRINGS.get(name, (larger.py_func, difference.py_func, OWN[2]))
    mask, allowed = data.draw(masks(tuple(shapes[x] for x in out)))
    if SEMIRINGS.get(name) in (SEMIRINGS["any_pair"], SEMIRINGS["lor_land"]):
        entries = [{place: bool(value) for place, value in x.items()} for x in entries]
    sums = naive.einsum(texts, entries, out, add, multiply)
    grain, block = data.draw(st.sampled_from([None, 1])), data.draw(st.integers(1, 5))
    with nests(grain=grain, block=block), np.errstate(all="ignore"):
        memory = data.draw(st.sampled_from([None, 2**12]))
        found = einsum(
            f"{','.join(texts)}->{out}", *operands, semiring=OWN if name == "own" else name, mask=mask, memory=memory
        )
    expected = np.full(allowed.shape, naive.identity(end, found.dtype), found.dtype)
    for place, value in sums.items():
        if allowed[place]:
            expected[place] = value
    if isinstance(found, Tensor):
        found.check()
        assert found.fill_value == naive.identity(end, found.dtype) or not end
        assert all(place in sums and allowed[place] for place in zip(*found.unpack()[0], strict=True))
        found = found.to_dense()
    np.testing.assert_array_equal(found, expected)


MATRIX = pack([[0, 1, 1], [2, 0, 1]], [3.0, 4.0, -1.0], (3, 3), "CSR")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["min_plus", "lor_land", "own"])
def test_compiled_products_over_a_semiring_are_those_of_loops(name):
    """Several parts, threads, masks, and matrices of the rows and columns that have entries."""
    rng = np.random.default_rng(0)
    add, multiply, end = naive.SEMIRINGS.get(name, (larger.py_func, difference.py_func, OWN[2]))
    a, b, cells = (rng.integers(1, 5, (20, 20)) * (rng.random((20, 20)) < 0.3) for _ in range(3))
    one, two, mask = (pack_dense(x, "CSR") for x in (a, b, cells))
    sums = naive.einsum(["ij", "jk"], [entries_of(x, x != 0) for x in (a, b)], "ik", add, multiply)
    semiring = OWN if name == "own" else name
    for threads, (size, extra) in itertools.product((1, 2), ((8, 2**16), (0, 1))):
        with using_threads(threads), using_thresholds(row_entries=8, sizes_per_entry=size, extra_sizes=extra):
            for allowed, given in ((cells != 0, mask), (cells == 0, np.equal(mask, 0)), (cells >= 0, None)):
                found = einsum("ij,jk->ik", one, two, semiring=semiring, mask=given)
                expected = {place: value for place, value in sums.items() if allowed[place]}
                assert dict(zip(zip(*found.unpack()[0], strict=True), found.values, strict=True)) == expected
    with using_threads(2), using_thresholds(part_entries=8, copy_cost=0):
        found = einsum("ij->j", one, semiring=semiring)
        columns = [[value for value in column if value] for column in a.T.tolist()]
        truth = found.dtype == bool
        assert found.tolist() == [functools.reduce(add, map(bool, x) if truth else x) if x else end for x in columns]


def test_a_mask_of_another_type_is_read_by_its_values():
    cells = np.array([[0, np.nan, 0], [2, 0, 0], [0, 0, 1]])
    stored = pack_dense(cells, "COO", pattern=np.ones((3, 3), bool))  # it stores zeros
    found = einsum("ij->ij", MATRIX, mask=stored)
    assert dict(zip(zip(*found.unpack()[0], strict=True), found.values, strict=True)) == {(1, 0): 4.0}
    assert einsum("ij->ij", MATRIX, mask=np.equal(stored, 0)).nnz == 2
    named = MATRIX.with_labels({1: ["a", "b", "c"]}, dims=["x", "y"])
    assert einsum("ij->ji", named, mask=np.ones((3, 3)).T).labels("y").tolist() == ["a", "b", "c"]
    symmetric = pack([[1], [0]], [1], (3, 3), "CSR", structure="symmetric_lower")
    assert einsum("ij->ij", MATRIX, mask=symmetric).nnz == 1


def test_a_mask_of_a_large_file_is_cut_with_it(tmp_path):
    rng = np.random.default_rng(0)
    array = rng.integers(1, 5, (60, 60)) * (rng.random((60, 60)) < 0.3)
    mask = rng.random((60, 60)) < 0.5
    bl.write(tmp_path / "a.h5", pack_dense(array, "CSR"))
    source, other = bl.open(tmp_path / "a.h5"), pack_dense(array[:, :20], "CSR")
    with nests():
        for cells in (mask[:, :20], pack_dense(mask[:, :20], "CSR")):
            found = einsum("ij,jk->ik", source, other, mask=cells, memory=2**14)
            assert (found.to_dense() == (array @ array[:, :20]) * mask[:, :20]).all()
        found = einsum("ij,jk->k", source, other, semiring="min_plus", memory=2**14)
        sums = np.where(array > 0, array, np.inf)
        assert (found.to_dense() == (sums.min(0)[:, None] + sums[:, :20]).min(0)).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: einsum("ij->i", MATRIX, semiring="max_min"), OptionError, "any_pair"),
        (lambda: einsum("ij->i", MATRIX, semiring=(max, min, 0)), OptionError, "compiled by numba"),
        (lambda: einsum("ij->i", MATRIX, semiring=(larger, difference, "0")), OptionError, "identity"),
        (lambda: einsum("ij,j,i->", MATRIX, np.ones(3), np.ones(3), semiring="min_plus"), OptionError, "two at a time"),
        (lambda: einsum("ij,j,i->i", MATRIX, np.ones(3), np.ones(3), mask=np.ones(3)), OptionError, "two at a time"),
        (lambda: einsum("ij->i", MATRIX, mask=np.ones(2)), ArrayError, r"\(2,\), but the result \(3,\)"),
        (lambda: einsum("ij->i", MATRIX + 1, semiring="min_plus"), FormatError, "have the value 1.0"),
        (lambda: einsum("ij->i", np.equal(MATRIX, 0), semiring="min_plus"), FormatError, "have the value True"),
        (lambda: einsum("ij->i", MATRIX * 1j, semiring="min_plus"), ArrayError, "no order"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_values_that_take_no_part_may_have_any_type():
    complex_, odd = MATRIX * 1j, np.array([1, np.nan, 1j])
    counts = {"ij,j->i": [1, 2, 0], "ij,j->ij": [[0, 0, 1], [1, 1, 0], [0, 0, 0]]}
    with nests():
        for spec, expected in counts.items():
            found = einsum(spec, complex_, odd, semiring="plus_pair")
            assert (found.to_dense() if isinstance(found, Tensor) else found).tolist() == expected
        assert einsum("ij,ij->", complex_, MATRIX * np.nan, semiring="plus_pair") == 3
        skew = pack([[1], [0]], [1], (3, 3), "CSR", structure="skew_symmetric_lower")
        assert einsum("ij,jk->ik", skew, MATRIX, semiring="lor_land").unpack()[0][1].tolist() == [0, 1, 2]
        assert einsum("ij,j->i", MATRIX, odd, semiring="min_first").tolist() == [3, -1, np.inf]


def test_results_are_operands_again():
    two = einsum("ij,jk->ik", MATRIX, MATRIX, semiring="min_plus")
    assert two.fill_value == np.inf
    assert two.to_dense().tolist() == [[np.inf] * 3, [3, -2, 7], [np.inf] * 3]
    three = einsum("ij,jk->ik", two, MATRIX, semiring="min_plus")
    assert three.to_dense().tolist() == [[np.inf] * 3, [2, -3, 6], [np.inf] * 3]
    assert einsum("ij,ij->", MATRIX, pack([[2], [2]], [1.0], (3, 3), "CSR"), semiring="min_plus") == np.inf
