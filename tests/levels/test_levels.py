"""The laws of every registered level kind, and of one that lives in the tests."""

import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import ArrayError, FormatError, Level, Problem, Sparse, Tensor, pack_dense, testing
from binsparse_levels.kernels import check, fibers, readable
from binsparse_levels.levels import LEVELS
from binsparse_levels.levels.positions import as_array, count_owners, in_ranges, match, places_in

SIZES = st.sampled_from([4, 4, 4, 300, 70_000])


@pytest.mark.parametrize("level", [level for kind in LEVELS.values() for level in kind.samples()], ids=str)
@given(data=st.data())
def test_laws(level, data):
    case = data.draw(testing.level_cases(level, max_size=data.draw(SIZES)))
    testing.check_level(case)
    testing.check_selection(case, *data.draw(testing.selections(case)))
    start = data.draw(st.integers(0, 12))
    children = range(start, data.draw(st.integers(start, 30)))
    testing.check_parts(case, *data.draw(testing.selections(case)), children)


@pytest.mark.parametrize("kind", testing.OURS, ids=lambda kind: kind.kind)
def test_the_tree_that_a_module_draws_is_that_of_its_matrix(kind):
    text = sys.modules[kind.__module__].__doc__
    rows = [row.replace(".", "0").split() for row in re.findall(r"^    ((?:[.0-9] ?){4}) ", text, re.M)]
    tensor = pack_dense(np.array(rows, float), f"dense, {kind.kind}")
    drawn = {name: list(map(int, items.split(","))) for name, items in re.findall(r"(\w+) \[(.*)\]", text)}
    assert tensor.shape == (3, 4)
    assert drawn == {name: array.tolist() for name, array in {**tensor.arrays, "values": tensor.values}.items()}


LENGTHS = st.lists(st.sampled_from([0, 1, 2, 9, 5000]), max_size=9)


@given(LENGTHS, st.sampled_from(["u4", "u8"]), st.data())
def test_items_are_repeated_whatever_the_lengths_of_fibers(lengths, dtype, data):
    items = data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=len(lengths), max_size=len(lengths)))
    given = readable(np.array(items, dtype)), readable(np.append(0, np.cumsum(lengths)), dtype)
    out = np.empty(sum(lengths), dtype)
    fibers.fan_out(*given, out)
    assert out.tolist() == np.repeat(given[0], lengths).tolist()


@given(LENGTHS, st.integers(0, 400))
def test_the_items_of_owners_are_counted_however_many_there_are(lengths, more):
    counts = [n + more for n in lengths]
    owners = np.repeat(np.arange(len(lengths)), counts)
    pointers = count_owners(owners, len(lengths), np.dtype(np.int32))
    assert pointers.tolist() == np.append(0, np.cumsum(counts)).tolist()


@given(LENGTHS, st.data())
def test_ranges_are_concatenated_in_any_order(lengths, data):
    starts = data.draw(st.lists(st.integers(0, 2**62), min_size=len(lengths), max_size=len(lengths)))
    given = readable(np.array(starts, np.int64)), readable(np.array(lengths, np.int64))
    out = np.empty(sum(lengths), np.int64)
    fibers.fan_ranges(*given, out)
    expected = [x for start, n in zip(starts, lengths, strict=True) for x in range(start, start + n)]
    assert out.tolist() == list(in_ranges(*given)) == expected


@st.composite
def some_fibers(draw, most):
    """Pointers to fibers, the number of each entry in its fiber, and positions of some fibers in any order."""
    lengths = draw(LENGTHS.filter(any))
    positions = draw(st.lists(st.integers(0, len(lengths) - 1), max_size=most))
    numbers = np.concatenate([np.arange(n, dtype=np.int32) for n in lengths])
    return np.append(0, np.cumsum(lengths)), numbers, np.array(positions, np.int64)


@st.composite
def long_lists(draw, few):
    """Lists that fill more than a word of bits, and end inside of one."""
    return [x for part in draw(st.lists(few, max_size=4)) for x in part * draw(st.sampled_from([1, 1, 70]))]


CHILDREN = st.lists(st.sampled_from([0, 1, 1, 2, 9, 500]), min_size=1, max_size=3)


@given(some_fibers(20), st.integers(0, 6000), st.integers(0, 6000))
def test_what_is_inside_a_window_is_listed_whatever_the_lengths_of_fibers(case, low, size):
    pointers, column, at = case
    starts, ends = pointers[at], pointers[at + 1]
    counts, places = np.empty(len(at), np.int64), np.empty(int((ends - starts).sum()) + 1, np.int64)
    total = fibers.list_within(*map(readable, (starts, ends, column)), low, low + size, counts, places)
    inside = [
        np.arange(min(start + low, end), min(start + low + size, end)) for start, end in zip(starts, ends, strict=True)
    ]
    assert counts.tolist() == list(map(len, inside))
    assert places[:total].tolist() == np.concatenate([*inside, []]).tolist()


@given(LENGTHS.filter(any), st.sampled_from([1, 200]), st.sampled_from([np.uint32, np.uint64]), st.data())
def test_entries_out_of_order_are_counted_whatever_the_lengths_of_fibers(lengths, times, dtype, data):
    lengths = lengths if times == 1 else [min(n, 9) for n in lengths] * times  # so many begin in a block
    column = np.concatenate([np.arange(n, dtype=dtype) for n in lengths])
    places = st.integers(0, len(column) - 1)
    for k in data.draw(st.lists(places, max_size=3)):
        column[k] = data.draw(st.sampled_from([0, 4999, 5000]))
    begin, end = sorted(data.draw(st.tuples(places, st.just(len(column)))))
    pointers = np.append(0, np.cumsum(lengths)).astype(dtype)
    inside = ~np.isin(np.arange(1, len(column)), pointers)
    falls = (column[1:] <= column[:-1]) & inside
    begins = np.zeros(check.BLOCK_ENTRIES, np.uint8)
    given = readable(pointers), (readable(column),), (dtype(5000),)
    outside, descents = check.count_bad_entries(*given, begin, end, begins)
    assert outside == (column[begin:end] >= 5000).any()
    assert descents == np.count_nonzero(falls[max(begin - 1, 0) : end - 1])


@given(some_fibers(150), st.sampled_from([1, 3, 10**4]), st.integers(0, 2**32))
def test_entries_are_found_whatever_the_lengths_of_fibers(case, width, far):
    pointers, numbers, at = case
    columns = numbers // width, 2 * (numbers % width)
    wanted = tuple((np.arange(len(at)) * far) % (int(x.max()) + 2) for x in columns)
    out = np.empty(len(at), np.int64)
    given = readable(pointers), tuple(map(readable, columns)), readable(at), tuple(map(readable, wanted))
    fibers.search(*given, 0, len(at), out)
    found = wanted[0] * width + wanted[1] // 2  # the number in its fiber
    there = (wanted[1] % 2 == 0) & (wanted[1] < 2 * width) & (found < np.diff(pointers)[at])
    assert out.tolist() == np.where(there, pointers[at] + found, -1).tolist()


@pytest.mark.slow
@given(st.lists(long_lists(CHILDREN), min_size=1, max_size=4), st.sampled_from(["u4", "u8"]), st.integers(1, 2))
def test_fibers_are_split_wherever_a_column_changes(children, dtype, rank):
    counts = [x for lengths in children for x in lengths if x]
    firsts = [np.array([k // 2**d for lengths in children for k, x in enumerate(lengths) if x], dtype) for d in (1, 0)]
    firsts = firsts[-rank:]
    columns = tuple(np.repeat(x, counts) for x in firsts)
    pointers = np.append(0, np.cumsum([sum(map(bool, lengths)) for lengths in children]))
    below = np.append(0, np.cumsum(counts, dtype=int))
    made = np.empty(len(pointers), dtype), tuple(map(np.empty_like, columns)), np.empty(below[-1] + 1, dtype)
    assert fibers.split(below[pointers].astype(dtype), columns, *made) == len(counts)
    assert made[0].tolist() == pointers.tolist()
    assert made[2][: len(below)].tolist() == below.tolist()
    for x, first in zip(made[1], firsts, strict=True):
        assert x[: len(counts)].tolist() == first.tolist()


@given(testing.formats(max_rank=6))
def test_stored_names_are_distinct(format):
    testing.check_names(format)


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


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("mean", [0, 0.5, 1, 3, 5, 40, 200])
def test_many_lookups_in_fibers_of_any_length(rank, mean):
    generator = np.random.default_rng(rank)
    rows, width = 60, (400,) if rank == 1 else (20, 20)
    number = np.unique(generator.integers(0, rows * 400, int(rows * mean)))
    counts, inside = np.bincount(number // 400, minlength=rows), np.unravel_index(number % 400, width)
    arrays = {"ptr": np.append(0, np.cumsum(counts))} | {f"idx{k}": x.astype(np.int32) for k, x in enumerate(inside)}
    wanted = np.append(generator.integers(0, rows * 400, 1500), number)
    at = np.minimum(np.searchsorted(number, wanted), max(len(number) - 1, 0))
    there = number[at] == wanted if len(number) else np.zeros(len(wanted), bool)
    found = Sparse(rank).locate(arrays, width, wanted // 400, list(np.unravel_index(wanted % 400, width)))
    assert found.tolist() == np.where(there, at, -1).tolist()


@given(st.lists(st.integers(0, 9) | st.just(2**62), max_size=9), st.data())
def test_the_places_of_coordinates_are_listed(items, data):
    """In a long list by a table, in a short one by a search."""
    x = data.draw(st.lists(st.sampled_from(items), max_size=30) if items else st.just([]))
    place, repeats = places_in(np.array(items, np.int64), np.array(x, np.int64))
    numbers = range(len(place)) if repeats is None else repeats.tolist()
    expected = [(k, place) for k, number in enumerate(x) for place, item in enumerate(items) if item == number]
    assert sorted(zip(numbers, place.tolist(), strict=True)) == expected


PLACES = st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 2**62]))


@given(st.lists(PLACES, max_size=9, unique=True), st.lists(PLACES, max_size=9))
def test_points_are_matched_with_entries(entries, points):
    """Each point in any order and any number of times, with the entry of the same coordinates."""
    columns, wanted = ([np.array([x[k] for x in given], np.int64) for k in (0, 1)] for given in (entries, points))
    found = [x.tolist() for x in match(columns, wanted)]
    assert sorted(zip(*found, strict=True)) == sorted(
        (entries.index(x), k) for k, x in enumerate(points) if x in entries
    )


@pytest.mark.parametrize("level", [level for kind in LEVELS.values() for level in kind.samples()], ids=str)
def test_a_look_up_lists_the_fibers_of_its_points(level, monkeypatch):
    """The default of `locate` lists each of these fibers once, and no other."""
    parents, coords, listed = np.arange(50), [np.zeros(50, np.int64)] * level.rank, []
    arrays, child = level.build([1] * level.rank, parents, coords, 50, *([parents] if level.shares else []))
    expand = type(level).expand
    monkeypatch.setattr(type(level), "expand", lambda *args: listed.append(as_array(args[3]).tolist()) or expand(*args))
    found = Level.locate(level, arrays, [1] * level.rank, np.array([7, 3, 7]), [np.zeros(3, np.int64)] * level.rank)
    assert found.tolist() == as_array(child)[[7, 3, 7]].tolist()
    assert listed == [[3, 7]]


# Cases that hostile use found


def test_faults_behind_pointers_of_few_bits():
    indices = np.arange(300)
    indices[200] = 999
    arrays = {"pointers_to_1": np.array([0, 100, 120], np.int8), "indices_1": indices}
    with pytest.raises(ArrayError, match=r"(?s)pointers_to_1\[2\].*indices_1\[200\]: 999 is outside"):
        Tensor("dense, sparse", (2, 300), arrays, 1.0)
