"""Packing, unpacking and converting against the oracle, and the cases that bite."""

import itertools
import warnings

import naive
import numpy as np
import pytest
from helpers import kinds
from helpers.strategies import VALUE_TYPES, cases
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import (
    ArrayError,
    Bitmap,
    Dense,
    Format,
    LimitError,
    Limits,
    OptionError,
    Sparse,
    Tensor,
    pack,
    parallel,
    parse_format,
    testing,
)
from binsparse_levels.engine import emission, packing, sorting
from binsparse_levels.thresholds import THRESHOLDS, using_thresholds

pytestmark = pytest.mark.usefixtures("kernels_and_numpy")

ALL_KINDS = (Dense, Sparse, kinds.Backwards, Bitmap)


def entries_of(tensor):
    coords, values = tensor.unpack()
    rows = list(zip(*(x.tolist() for x in coords), strict=True)) if coords else [()] * len(values)
    assert len(set(rows)) == len(rows)
    return dict(zip(rows, values.tolist(), strict=True))


def pairs(coords, values):
    rows = list(zip(*coords, strict=True)) if coords else [()] * len(values)
    return dict(zip(rows, values, strict=True))


def assert_arrays(tensor, expected_arrays, expected_values):
    assert {name: array.tolist() for name, array in tensor.arrays.items()} == expected_arrays
    assert np.array_equal(tensor.values, np.array(expected_values, tensor.dtype))
    assert len({array.dtype for array in tensor.arrays.values()}) <= 1


@given(cases())
def test_pack_makes_the_arrays_of_the_oracle(case):
    tensor = pack(case.coords, case.values, case.shape, case.format)
    coords, values = case.rows
    pad = np.zeros((), case.values.dtype)[()]
    assert_arrays(tensor, *naive.build(case.format, case.shape, pairs(coords, values), pad))
    assert tensor.dtype == case.values.dtype
    tensor.check()


@given(cases(unique=False), st.sampled_from(["sum", "first", "last"]))
def test_duplicates(case, duplicates):
    merged, dtype = naive.merge(*case.rows, duplicates), case.values.dtype
    exact = naive.merge(case.rows[0], case.values.tolist(), duplicates)  # in integers of Python
    if (
        dtype.kind in "iu"
        and dtype.itemsize < 8
        and any(not np.iinfo(dtype).min <= x <= np.iinfo(dtype).max for x in exact.values())
    ):
        with pytest.raises(OptionError, match=f"exceeds {dtype}"):
            pack(case.coords, case.values, case.shape, case.format, duplicates=duplicates)
        return
    tensor = pack(case.coords, case.values, case.shape, case.format, duplicates=duplicates)
    pad = np.zeros((), case.values.dtype)[()]
    assert_arrays(tensor, *naive.build(case.format, case.shape, merged, pad))


@pytest.mark.parametrize(("duplicates", "result"), [("sum", 6), ("first", 1), ("last", 3)])
def test_a_scalar_given_many_times(duplicates, result):
    assert pack((), [1, 2, 3], (), "element", duplicates=duplicates).to_dense() == result


@given(cases(kinds=ALL_KINDS))
def test_unpack_gives_the_entries_back(case):
    tensor = pack(case.coords, case.values, case.shape, case.format, fill_value=case.values.dtype.type(0))
    given_entries = pairs(*[[*part] for part in (case.rows[0], case.values.tolist())])
    found = entries_of(tensor)
    assert given_entries.items() <= found.items()
    if not any(level.padded for level in case.format.levels) and case.shape:
        assert found == given_entries
    assert np.array_equal(tensor.to_dense(), naive.dense(case.shape, given_entries, 0, tensor.dtype))
    tensor.check()


@given(cases(kinds=ALL_KINDS), st.data())
def test_convert_is_packing_anew(case, data):
    target = data.draw(testing.formats(min_rank=case.format.rank, max_rank=case.format.rank, kinds=ALL_KINDS))
    source = pack(case.coords, case.values, case.shape, case.format)
    converted = source.convert(target)
    coords, values = source.unpack()
    again = pack(coords, values, case.shape, target)
    assert converted.format == target
    assert {name: x.tolist() for name, x in converted.arrays.items()} == {
        n: x.tolist() for n, x in again.arrays.items()
    }
    assert np.array_equal(converted.values, again.values)
    converted.check()


@given(cases())
def test_the_fused_pass_and_build_make_the_same(case):
    levels, order = case.format.levels, case.format.order
    dims = tuple(case.shape[k] for k in order)
    given_entries = packing.Entries(dims, tuple(case.coords[k] for k in order), case.values, False, order)
    pad = np.zeros((), case.values.dtype)[()]
    tree = packing.pack_entries(levels, given_entries, pad, "error", Limits())
    by_levels = packing.build(levels, packing._sort_in_numpy(given_entries, "error"), pad, Limits())
    assert tree.arrays.keys() == by_levels.arrays.keys()
    for name, array in tree.arrays.items():
        assert array.dtype == by_levels.arrays[name].dtype
        assert np.array_equal(array, by_levels.arrays[name])
    assert np.array_equal(tree.values, by_levels.values)


# Keys


def random_entries(dims, n, seed=0, top=None):
    generator = np.random.default_rng(seed)
    return [generator.integers(0, min(size, top or size), n) for size in dims]


@pytest.mark.sampled(17)
@pytest.mark.parametrize(
    "dims",
    [
        (1, 2**63 - 1, 2),  # 64 bits exactly, below a dimension that takes none: a shift by 64
        (1, 1, 2**32, 2**32),
        (2**32, 1, 2**32, 1),
        (1, 1, 1),  # no bits at all
        (1,),
        (2, 2),  # fewer bits than buckets
        (2**40, 2**40),  # two words, a dimension across the border
        (2**63 - 1, 2**63 - 1),
        (1, 2**62, 1, 2**62, 4, 1),  # 126 bits
        (2**63 - 1, 2**63 - 1, 2**63 - 1),  # three words
        (2**31,) * 9,  # more dimensions than the kernels unroll
        (3,) * 64,
        (5,) * 7,
        (2**30, 7, 2**20, 11),
    ],
)
@pytest.mark.parametrize("n", [1, 2, 30, 20_000])
@pytest.mark.parametrize("top", [None, 3])
def test_keys_of_any_width(dims, n, top):
    coords = random_entries(dims, n, top=top)
    values = np.arange(n, dtype=float)
    format = Format((Sparse(1),) * len(dims))
    tensor = pack(coords, values, dims, format, duplicates="last")
    order = np.lexsort(coords[::-1])
    rows = np.stack(coords)[:, order]
    last = np.append((rows[:, 1:] != rows[:, :-1]).any(axis=0), True)
    found, found_values = tensor.unpack()
    assert np.array_equal(np.stack(found), rows[:, last])
    assert np.array_equal(found_values, values[order][last])
    tensor.check()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("n", [25, 3000, 13_000, 300_000])
@pytest.mark.parametrize("spread", ["uniform", "few", "heavy", "sorted", "sorted twice", "one"])
def test_sorting_any_distribution(n, spread):
    dims = (2**20, 2**20)
    i, j = random_entries(dims, n)
    if spread == "few":
        i, j = i % 7, j % 5
    elif spread == "heavy":
        i[: n // 2], j[: n // 2] = 5, np.arange(n // 2) % 11
    elif spread.startswith("sorted"):
        i, j = np.sort(i), np.arange(n)
        if spread == "sorted twice":
            i, j = np.repeat(i, 2)[:n], np.repeat(j, 2)[:n]
    elif spread == "one":
        i[:], j[:] = 9, 9
    values = np.random.default_rng(1).integers(0, 100, n)
    tensor = pack([i, j], values, dims, "DCSR", duplicates="sum")
    linear = i * dims[1] + j
    places, inverse = np.unique(linear, return_inverse=True)
    found, found_values = tensor.unpack()
    assert np.array_equal(found[0] * dims[1] + found[1], places)
    assert np.array_equal(found_values, np.bincount(inverse, values).astype(int))


@pytest.mark.parametrize("bits", [(1, 5), (4, 7), (6, 6), (10, 10), (9, 13)])
@pytest.mark.parametrize("n", [1100, 7000, 150_000])
def test_keys_of_few_bits_are_sorted_by_one_or_two_digits(bits, n):
    dims = tuple(2**width for width in bits)
    i, j = random_entries(dims, n)
    tensor = pack([i, j], np.arange(n), dims, "CSR", duplicates="sum")
    places, inverse = np.unique(i * dims[1] + j, return_inverse=True)
    (rows, columns), values = tensor.unpack()
    assert np.array_equal(rows * dims[1] + columns, places)
    assert np.array_equal(values, np.bincount(inverse, np.arange(n)).astype(int))
    turned, turned_values = tensor.convert("CSC").unpack()
    order = np.lexsort((rows, columns))
    assert np.array_equal(turned, (rows[order], columns[order]))
    assert np.array_equal(turned_values, values[order])


def test_sums_are_in_input_order():
    values = np.array([1e100, 1.0, -1e100, 1.0])
    assert pack([[3] * 4], values, (5,), "CVEC", duplicates="sum").values.tolist() == [1.0]


@pytest.mark.parametrize("numpys", [-1, 10])
def test_parts_of_complex_sums_have_64_bits(numpys):
    values = np.array([1e8, 1 + 2j, -1e8], "c8")
    with using_thresholds(numpy_entries=numpys, first_entries=numpys):
        assert pack([[3] * 3], values, (5,), "CVEC", duplicates="sum").values.tolist() == [1 + 2j]


@pytest.mark.parametrize("n", [4, 4000])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint64", "float16", "bfloat16", "float32"])
def test_sums_have_64_bits_as_numpys(dtype, n):
    """A sum that the type of the values cannot hold is an error; partial sums may exceed it."""
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    dtype = np.dtype(dtype)
    high = np.iinfo(dtype).max if dtype.kind in "iu" else 2**24 if dtype == np.float32 else 2048
    values = np.array([high, *[1] * (n - 1)], "f8" if dtype.kind not in "iu" else dtype).astype(dtype)
    coords = [np.zeros(n, int)]
    exact = int(values.astype(object).sum())
    if dtype.kind in "iu" and dtype.itemsize < 8:
        with pytest.raises(OptionError, match=f"{exact} exceeds {dtype}.*dtype='int64'"):
            pack(coords, values, 1, "CVEC", duplicates="sum")
        if dtype.kind == "i":
            coords, values, exact = [np.tile(coords[0], 2)], np.concatenate([values, -values]), 0
        else:
            coords, values, exact = [np.arange(n)], values, high
    found = pack(coords, values, n, "CVEC", duplicates="sum").values
    assert found.dtype == dtype
    expected = (
        np.sum(values, dtype=dtype) if dtype.kind in "iu" and dtype.itemsize == 8 else np.array(exact).astype(dtype)
    )
    assert found[0] == expected


@pytest.mark.parametrize("n", [2, 2**17])
def test_sums_of_few_and_of_many_do_not_warn(n):
    with warnings.catch_warnings(action="error"):
        made = pack([np.zeros(n, int)], np.tile([np.inf, -np.inf], n // 2), 1, "CVEC", duplicates="sum")
    assert np.isnan(made.values).all()


def test_the_sum_of_booleans_is_or():
    tensor = pack([[0, 0, 1, 1]], np.array([True, True, False, False]), (2,), "CVEC", duplicates="sum")
    assert tensor.values.tolist() == [True, False]


@pytest.mark.parametrize("dtype", ["V5", "M8[s]", "i4,f8"])
def test_other_types_are_moved_but_not_summed(dtype):
    values = np.zeros(3, dtype)
    tensor = pack([[2, 0, 1]], values, (4,), "CVEC")
    assert tensor.dtype == np.dtype(dtype)
    with pytest.raises(ArrayError, match="cannot be summed"):
        pack([[2, 0, 2]], values, (4,), "CVEC", duplicates="sum")
    assert pack([[2, 0, 2]], values, (4,), "CVEC", duplicates="last").number_of_stored_values == 2


def test_nan_payloads_and_negative_zero_keep_their_bits():
    values = np.array([0x7FF8_0000_DEAD_BEEF, 0x8000_0000_0000_0000, 1], np.uint64).view(np.float64)
    assert np.array_equal(
        pack([[2, 0, 1]], values, (3,), "CVEC").values.view(np.uint64), values.view(np.uint64)[[1, 2, 0]]
    )


# What is refused


@pytest.mark.parametrize("format", ["CSR", "CSC", "COO", "DCSC", "sparse(2) @ 1, 0", "dense(2)"])
@pytest.mark.parametrize("bad", [3, -1, 2**40])
@pytest.mark.parametrize("n", [1, 100])
def test_coordinates_out_of_range_are_named(format, bad, n):
    i, j = np.zeros(n, np.int64), np.arange(n) % 5
    i[n // 2] = bad
    with pytest.raises(ArrayError, match=rf"coords\[0\]\[{n // 2}\]: {bad} is outside dimension 0 of size 3"):
        pack([i, j], np.ones(n), (3, 5), format)


def test_uint64_coordinates_above_the_signed_range():
    with pytest.raises(ArrayError, match="18446744073709551615 is outside dimension 1"):
        pack([[0], np.array([2**64 - 1], np.uint64)], [1.0], (2, 2**63 - 1), "COO")


@pytest.mark.parametrize("dims", [(3, 5), (2**62, 2**62, 2**62)])
def test_duplicates_are_named_by_their_coordinates(dims):
    format = Format((Sparse(len(dims)),), tuple(range(len(dims)))[::-1])
    coords = [[1, 0, 1], [4, 2, 4], [0, 0, 0]][: len(dims)]
    with pytest.raises(ArrayError, match=r"\(1, 4(, 0)?\) is given more than once; pass duplicates="):
        pack(coords, [1, 2, 3], dims, format)


@pytest.mark.parametrize(
    ("coords", "values"),
    [
        ([[0, 1]], [1, 2]),
        ([[0, 1], [0]], [1, 2]),
        ([[0, 1], [0, 1]], [1]),
        ([[0, 1], [0.5, 1]], [1, 2]),
        ([[True, False], [0, 1]], [1, 2]),
        ([[[0, 1]], [[0, 1]]], [1, 2]),
        ([[0, 1], [0, 1]], [[1, 2]]),
        ([[0, 1], [0, 1]], [1, None]),
    ],
)
def test_what_is_no_coordinates_and_values(coords, values):
    with pytest.raises(ArrayError):
        pack(coords, values, (2, 2), "COO")


def test_dense_parts_are_limited():
    for format, shape in [("CSR", (2**62, 5)), ("dense(3)", (2**30, 2**30, 2**30)), ("sparse, dense", (5, 2**50))]:
        with pytest.raises(LimitError, match="dense_bytes"):
            pack([[1]] * len(shape), [1.0], shape, format)
    with pytest.raises(LimitError, match="dense_bytes"):
        pack([[], []], [], (2**62, 5), "CSR")
    with pytest.raises(LimitError, match="rank=64"):
        pack([[0]] * 65, [1.0], (2,) * 65, "sparse(65)")
    assert pack([[1]] * 65, [1.0], (2,) * 65, "sparse(65)", limits=Limits(rank=100)).ndim == 65


# Memory


def test_inputs_are_left_alone_and_not_kept():
    i, j, values = np.array([1, 0, 2]), np.array([0, 1, 2]), np.array([1.0, 2.0, 3.0])
    for x in (i, j, values):
        x.flags.writeable = False
    tensor = pack([i, j], values, (3, 3), "COO")
    assert tensor.values.tolist() == [2.0, 1.0, 3.0]


@given(cases(), st.sampled_from([np.int8, np.int32, np.int64]))
def test_sorted_inputs_are_not_kept(case, dtype):
    order = case.format.order
    rows = sorted(zip(*case.rows[0], strict=True), key=lambda row: [row[k] for k in order])
    coords = list(np.array(rows, dtype).reshape(len(rows), len(case.shape)).T.copy())
    values = case.values.copy()
    tensor = pack(coords, values, case.shape, case.format)
    for made in (tensor.values, *tensor.arrays.values()):
        assert not any(np.shares_memory(made, x) for x in (*coords, values))


def test_inputs_of_any_stride():
    table = np.arange(12).reshape(6, 2)[::-1]
    tensor = pack(table.T, np.arange(18.0)[::3], (12, 12), "CSR")
    assert tensor.equals(pack(np.ascontiguousarray(table.T), np.arange(18.0)[::3].copy(), (12, 12), "CSR"))


def test_one_array_of_coordinates():
    table = np.array([[0, 1, 2], [2, 1, 0]])
    assert pack(table, 1, (3, 3), "CSR").equals(pack(list(table), 1, (3, 3), "CSR"))


def test_equal_orders_share_arrays():
    generator = np.random.default_rng(0)
    coords = [np.unique(generator.integers(0, 1000, 500)), None]
    coords[1] = generator.integers(0, 1000, len(coords[0]))
    coo = pack(coords, np.arange(len(coords[0]), dtype=float), (1000, 1000), "COO")
    for format in ("CSR", "DCSR"):
        other = coo.convert(format)
        assert np.shares_memory(other.arrays["indices_1"], coo.arrays["indices_1"])
        assert np.shares_memory(other.values, coo.values)
        back = other.convert("COO")
        assert np.shares_memory(back.arrays["indices_1"], coo.arrays["indices_1"])
    same = coo.convert(parse_format("sparse(2) @ 0, 1"))
    assert all(np.shares_memory(same.arrays[name], coo.arrays[name]) for name in coo.arrays)


def test_the_index_type_is_the_narrowest_of_two():
    assert pack([[1]], [1.0], (2**31 - 1,), "CVEC").arrays["indices_0"].dtype == np.int32
    assert pack([[1]], [1.0], (2**31,), "CVEC").arrays["indices_0"].dtype == np.int64


# Threads, and every size at which the passes change


UPPER = ["dense(2)", "dense, sparse", "sparse, sparse", "sparse, dense", "sparse(2)"]


@pytest.mark.parametrize("target", UPPER)
@pytest.mark.parametrize("source", UPPER)
def test_levels_below_those_that_change_are_shared(source, target):
    coords = np.array([[1, 1, 1, 4, 4], [0, 0, 2, 2, 2], [0, 6, 3, 1, 2]])
    tensor = pack(coords, np.arange(5.0), (6, 3, 7), f"{source}, sparse")
    turned, expected = tensor.convert(f"{target}, sparse"), pack(coords, np.arange(5.0), (6, 3, 7), f"{target}, sparse")
    assert turned.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert turned.arrays[name].tolist() == array.tolist()
        assert turned.arrays[name].dtype == array.dtype
    assert np.shares_memory(turned.arrays["indices_2"], tensor.arrays["indices_2"])
    assert np.shares_memory(turned.values, tensor.values)


def test_empty_fibers_are_left_out_of_sparse_levels():
    arrays = {"indices_0": [0, 2, 3, 5], "pointers_to_1": [0, 0, 1, 1, 3], "indices_1": [4, 0, 3]}
    tensor = Tensor("DCSR", (6, 5), {name: np.array(x) for name, x in arrays.items()}, np.arange(3.0))
    rows = tensor.convert("CSR")
    assert rows.arrays["pointers_to_1"].tolist() == [0, 0, 0, 1, 1, 1, 3]
    split = rows.convert("DCSR")
    assert split.arrays["indices_0"].tolist() == [2, 5]
    assert split.arrays["pointers_to_1"].tolist() == [0, 1, 3]


@pytest.fixture
def small_steps():
    """Three threads even for few entries; short runs."""
    with using_thresholds(thread_bytes=50, bucket_records=20, run_records=64), parallel.using_threads(3):
        yield


@pytest.mark.sampled(25)
@pytest.mark.parametrize("duplicates", ["error", "sum", "last"])
@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.bool_, np.complex128])
@pytest.mark.parametrize("format", ["dense, sparse", "sparse, sparse", "sparse(2) @ 1, 0", "sparse, dense"])
@pytest.mark.parametrize(
    "dims",
    [(3, 4000), (4000, 3), (2**10, 2**10), (2**20, 2**20), (2**12, 2**60), (2**50, 2**50)],
    ids=lambda dims: f"{dims[0]:.0e}",
)
def test_threads_and_heavy_buckets_change_nothing(small_steps, dims, format, dtype, duplicates):
    if ("dense" in format and max(dims) > 2**20) or (format == "sparse, dense" and dims[1] > 4000):
        dims = dims[0] % 1000 + 1, 50
    generator = np.random.default_rng(1)
    coords = [np.minimum(generator.zipf(1.3, 3000), size) - 1 for size in dims]
    values = generator.integers(-100, 100, 3000).astype(dtype)
    if dtype == np.int8:  # its sums are errors beyond 127
        values = values % 2 * 2 - 1
    if duplicates == "error":
        flat = np.unique(np.stack(coords), axis=1, return_index=True)[1]
        flat = generator.permutation(flat)
        coords, values = [x[flat] for x in coords], values[flat]
    packed = pack(coords, values, dims, format, duplicates=duplicates)
    expected = packing._sort_in_numpy(packing.Entries(dims, tuple(coords), values, False, (0, 1)), duplicates)
    assert_same_entries(packed, expected, packed.format.padded)
    for target in ("dense, sparse", "sparse, sparse @ 1, 0"):
        if "dense" not in target or max(dims) <= 2**20:
            assert_same_entries(packed.convert(target), expected, packed.format.padded)


def assert_same_entries(tensor, expected, padded):
    """The entries of the tensor, without the zeros of padding, are the expected ones."""
    coords, values = tensor.convert("sparse(2)").unpack()
    there, wanted = (values != 0, expected.values != 0) if padded else (slice(None), slice(None))
    for found, column in zip(coords, expected.coords, strict=True):
        np.testing.assert_array_equal(found[there], column[wanted])
    np.testing.assert_array_equal(values[there], expected.values[wanted])


@pytest.mark.parametrize("values", [np.float64, np.int8, np.complex128, None], ids=str)
@pytest.mark.parametrize("target", ["dense, sparse @ 1, 0", "dense, sparse(2) @ 2, 0, 1"])
@pytest.mark.parametrize(("threads", "cached"), [(1, 2**24), (3, 2**24), (3, 0)])
def test_entries_are_placed_as_they_are_sorted(target, values, threads, cached, monkeypatch):
    """Of few columns: they need no sorting. cached: larger outputs are written in buckets of fibers."""
    monkeypatch.setattr(THRESHOLDS, "thread_bytes", 1)
    monkeypatch.setattr(THRESHOLDS, "cached_bytes", cached)
    dims = (3000, 700, 70)[: 1 + target.count(",", 0, target.index("@")) + target.count("(2)")]
    generator = np.random.default_rng(2)
    flat = np.unique(generator.zipf(1.2, 5000) % np.prod(dims))
    numbers = generator.integers(1, 100, len(flat)).astype(values) if values else np.ones(len(flat))
    coords = np.unravel_index(flat, dims)
    tensor = pack(coords, numbers, dims, "sparse" + ", sparse" * (len(dims) - 1))
    with parallel.using_threads(threads):
        turned = tensor.convert(target)
    turned.check()
    assert entries_of(turned) == pairs([x.tolist() for x in coords], numbers.tolist())


def test_errors_of_threads_come_in_the_order_of_the_entries(small_steps):
    i = np.repeat(np.random.default_rng(0).permutation(1000), 2)
    for _ in range(5):
        with pytest.raises(ArrayError, match=r"^coords: \(0, 0\) is given more than once"):
            pack([i, np.zeros(2000, np.int64)], np.ones(2000), (1000, 5), "CSR")
    with pytest.raises(ArrayError, match="2000 is outside dimension 1"):
        pack([i, np.full(2000, 2000)], np.ones(2000), (1000, 5), "CSR")


@pytest.mark.parametrize("count", [0, -1, 1.0, None, True])
def test_the_number_of_threads_is_positive(count):
    before = parallel.get_threads()
    with pytest.raises(OptionError, match="threads"):
        parallel.set_threads(count)
    assert parallel.get_threads() == before


# The order of dimensions that conversion keeps


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_dimensions_that_need_no_sorting(order):
    kept = packing.ordered_dims(order)
    places = sorted(itertools.product(range(3), repeat=4))
    turned = [tuple(place[k] for k in order) for place in places]
    stable = sorted(turned, key=lambda place: place[: 4 - kept])
    assert stable == sorted(turned)
    if kept < 4:
        assert sorted(turned, key=lambda place: place[: 4 - kept - 1]) != sorted(turned)


def test_a_layout_gives_its_coordinates_back():
    for dims in [(5, 7), (1, 2**63 - 1, 2), (2**40, 2**40), (2**62, 1, 2**60)]:
        layout = sorting.layout(dims)
        assert layout.words == (2 if layout.bits > 64 else 1)
        coords = [size - 1 for size in dims]
        key = [0] * layout.words
        for word in range(layout.words):
            for d, x in enumerate(coords):
                right, left, mask = (int(field[word][d]) for field in layout.fields)
                key[word] |= (x & mask) >> left << right
        assert layout.coords(key) == tuple(coords)
    assert sorting.layout((2**63 - 1,) * 3) is None
    assert sorting.layout((2,) * (sorting.MAX_FUSED_RANK + 1)) is None


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", VALUE_TYPES)
def test_every_value_type_is_summed_somewhere(name):
    values = np.array([1, 1, 0]).astype(name)
    assert pack([[0, 0, 1]], values, (2,), "CVEC", duplicates="sum").values[0] == values[0] + values[1]


def test_groups_of_values_are_added():
    assert emission.add_groups(np.array([1.0, 2.0]), np.array([True, False])).tolist() == [3.0]
    assert isinstance(pack([[0]], [1], (1,), "CVEC"), Tensor)


# Cases that hostile use found


@pytest.mark.parametrize("duplicates", ["first", "last"])
def test_iso_with_duplicates_that_are_as_many_as_the_padding(duplicates):
    tensor = pack([[0, 0, 1]], 5, 3, "DVEC", duplicates=duplicates)
    assert tensor.to_dense().tolist() == [5, 5, 0]
    assert not tensor.iso


def test_iso_values_keep_their_width():
    tensor = pack([[0]], np.array(b"a", "V3"), 3, "CVEC", fill_value=np.void(b"xyz"))
    assert tensor.dtype == np.dtype("V3")
    assert tensor.to_dense().tobytes() == b"a\0\0xyzxyz"
    assert tensor.convert("dense").dtype == np.dtype("V3")


@pytest.mark.parametrize(
    ("shape", "format"), [((0, 2**40), "DMATR"), ((5, 2**40), "sparse, dense"), ((5, 2**62, 2**62), "sparse, dense(2)")]
)
def test_nothing_under_a_huge_dense_dimension(shape, format):
    tensor = pack([[]] * len(shape), [], shape, format)
    assert len(tensor.unpack()[1]) == 0
    listed = tensor.convert(Format((Sparse(len(shape)),)))
    assert listed.equals(tensor)


@pytest.mark.parametrize("count", [1, 2])
def test_one_value_for_all_and_the_last_of_duplicates(monkeypatch, count):
    monkeypatch.setattr(THRESHOLDS, "numpy_entries", -1)
    tensor = pack([[0] * count + [0]], 5, (count + 1,), "dense", duplicates="last")
    assert tensor.to_dense().tolist() == [5] + [0] * count


def test_pointers_of_uint64_into_dense_dimensions():
    tensor = pack([[0, 1], [1, 2]], [1.0, 2.0], (2, 3), "DCSR")
    other = Tensor("DCSR", (2, 3), {k: x.astype(np.uint64) for k, x in tensor.arrays.items()}, tensor.values)
    assert other.convert("DMATR").values.tolist() == [0, 1, 0, 0, 0, 2]


@pytest.mark.parametrize("rows", [[], [0], [8], [1, 2, 7], list(range(9))])
@pytest.mark.parametrize(
    ("old", "new"), [("dense, sparse(2)", "sparse, sparse(2)"), ("dense, dense, sparse", "sparse(2), sparse")]
)
@pytest.mark.parametrize("dtype", ["i4", "u8"])
def test_fibers_without_an_entry_are_left_out(rows, old, new, dtype):
    coords = np.array([[row, k, 5 - k] for row in rows for k in (0, 3)], int).reshape(-1, 3).T
    given = pack(list(coords), np.arange(coords.shape[1]), (9, 4, 6), old)
    typed = Tensor(old, given.shape, {name: x.astype(dtype) for name, x in given.arrays.items()}, given.values)
    found, expected = typed.convert(new), pack(list(coords), np.arange(coords.shape[1]), (9, 4, 6), new)
    assert_arrays(found, {name: x.tolist() for name, x in expected.arrays.items()}, expected.values)
    assert {x.dtype for x in found.arrays.values()} == {np.dtype(dtype)}


def test_zero_keeps_its_sign():
    values = pack([[0]], -0.0, (3,), "dense").values
    assert np.signbit(values).tolist() == [True, False, False]


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", ">i4"])
@pytest.mark.parametrize("format", ["CSR", "sparse, hashed", "sparse, run"])
def test_a_negative_coordinate_of_any_type_is_refused_in_any_dimension(kind, format):
    coords = np.array([1, 0], kind), np.array([-1, 0], kind)
    with pytest.raises(ArrayError, match=r"coords\[1\]\[0\]: -1 is outside"):
        pack(coords, [1.0, 2.0], (4, 2**33), format)


def test_an_unsigned_coordinate_may_have_the_first_bit():
    tensor = pack([np.array([1, 0], "u4"), np.array([2**32 - 1, 0], "u4")], [1.0, 2.0], (4, 2**33), "CSR")
    assert tensor.unpack()[0][1].tolist() == [0, 2**32 - 1]
