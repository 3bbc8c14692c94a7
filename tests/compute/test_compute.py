"""Reductions and products equal numpy's on the dense array, in memory and from a file, on any number of threads."""

import contextlib
import tracemalloc
from unittest import mock

import h5py
import numpy as np
import pytest
from helpers.asserted import asserted
from helpers.strategies import VALUE_TYPES
from hypothesis import assume, given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import (
    ArrayError,
    BinsparseError,
    FormatError,
    LimitError,
    Limits,
    OptionError,
    Tensor,
    einsum,
    foreach,
    pack,
    pack_dense,
    reduce,
    statistics,
    testing,
)  # fmt: skip
from binsparse_levels.compute import store, walk
from binsparse_levels.compute.reductions import REDUCTIONS
from binsparse_levels.formats.structure import STRUCTURES
from binsparse_levels.levels import LEVELS
from binsparse_levels.parallel import using_threads
from binsparse_levels.tensors.tensor import inside
from binsparse_levels.thresholds import THRESHOLDS, using_thresholds

HOWS = list(REDUCTIONS)
CELLS = st.sampled_from(["all", "stored"])
CHAINS = [
    "CSR", "CSC", "DCSR", "COO", "DMATC", "sparse(3)", "sparse, sparse, sparse", "dense, sparse(2)", "dense, band",
    "dense, run", "run, run", "band, sparse", "dense, hashed", "hashed, dense", "dense, n_of_m", "n_of_m", "bitmap(2)",
    "dense, bitmap(1)", "bits(2), sparse", "bitmap(0), dense", "dense, backwards", "dense(2), bits, run",
]  # fmt: skip


def forget():
    store.compiled.cache_clear()
    store.function_of.cache_clear()


@contextlib.contextmanager
def nests(interpreted=True, grain=None, block=None, factored=False):
    """Nests as plain Python, trees cut into parts of few entries, files read in blocks of few entries.

    factored: factors are applied once even to short fibers.

    Parts change disjoint items.
    """

    def plain(function, *_):
        def called(*given):
            with np.errstate(all="ignore"):
                return function(*given)

        return called

    sizes = {"part_entries": grain, "copy_cost": 0} if grain else {}
    sizes |= {"block_entries": block} if block else {}
    sizes |= {"long_fiber": 0} if factored else {}
    fast = plain if interpreted else store._fast
    with asserted(), using_thresholds(**sizes), mock.patch.object(store, "_fast", fast):
        forget()
        yield
    forget()


@pytest.fixture
def plain_nests():
    with nests():
        yield


def expanded(tensor):
    """The entries of both triangles; some kinds refuse them."""
    return tensor if tensor.structure is None else tensor.convert("COO").expand_structure()


def dense_and_stored(tensor):
    """The cells of a tensor, and which of them are stored."""
    whole = expanded(tensor)
    stored = np.zeros(tensor.shape, bool)
    if len(whole.unpack()[1]):
        stored[whole.unpack()[0]] = True
    return whole.to_dense(), stored


def cells(both, axes, which):
    """For each cell of the result, the values that take part, and which cells are stored."""
    kept = [k for k in range(both[0].ndim) if k not in axes]
    shape = tuple(both[0].shape[k] for k in kept)
    size = int(np.prod([both[0].shape[k] for k in axes], dtype=int))
    rows = [x.transpose([*kept, *axes]).reshape(int(np.prod(shape, dtype=int)), size) for x in both]
    return shape, [row if which == "all" else row[there] for row, there in zip(*rows, strict=True)], rows[1]


def naive(how, values, stored):
    kind = values.dtype.kind
    if how == "count":
        return stored.sum()
    if how == "sum":
        return values.sum(dtype={"b": "i8", "i": "i8", "u": "u8", "f": "f8", "c": "c16"}[kind])
    if how == "prod":
        return values.prod(dtype={"b": "i8", "i": "i8", "u": "u8", "f": "f8", "c": "c16"}[kind])
    if how == "norm":
        return np.linalg.norm(values.astype("c16" if kind == "c" else "f8"))
    if how in ("mean", "var", "std"):
        return getattr(np, how)(values.astype("c16" if kind == "c" else "f8")) if len(values) else np.nan
    if how in ("min", "max") and not len(values):
        return np.nan
    return getattr(np, how)(values)


def check_reduction(tensor, axes, how, which="all", both=None):
    """both: what `dense_and_stored` returns."""
    with np.errstate(all="ignore"):
        shape, rows, stored = cells(dense_and_stored(tensor) if both is None else both, axes, which)
        known = tensor.dtype.kind in "fc" and which == "stored"  # no value is NaN
        if how in ("min", "max") and any(not len(row) for row in rows) and not known:
            with pytest.raises(ArrayError, match="no cells take part"):
                reduce(tensor, axes, how, cells=which)
            return
        expected = np.array([naive(how, row, there) for row, there in zip(rows, stored, strict=True)]).reshape(shape)
        found = reduce(tensor, axes, how, cells=which)
    assert np.shape(found) == shape
    if how in ("min", "max"):
        assert found.dtype == tensor.dtype
    if expected.size:
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6, err_msg=f"{how} {axes} {which} {tensor!r}")


def axes_of(data, tensor):
    return tuple(data.draw(st.lists(st.sampled_from(range(tensor.ndim)), unique=True))) if tensor.ndim else ()


def drawn(data, **options):
    return data.draw(testing.tensors(kinds=tuple(LEVELS.values()), **options))


@st.composite
def mapped(draw):
    """A tensor of any kinds, through any map."""
    tensor = draw(testing.tensors(kinds=tuple(LEVELS.values()), max_rank=3, structures=False, dtypes=VALUE_TYPES))
    map = draw(testing.maps(tensor.shape))
    rank = len(map.groups)
    try:
        return tensor.convert(
            draw(testing.formats(kinds=tuple(LEVELS.values()), min_rank=rank, max_rank=rank)), map=map
        )
    except FormatError:  # a kind may refuse a tensor
        assume(False)


@st.composite
def keys(draw, shape):
    """An index of a view: numbers, slices of any step, an array with repetitions."""
    key, arrays = [], 0
    for size in shape:
        kind = draw(st.sampled_from(["all", "slice", "slice", "number", "array"]))
        if kind == "number" and size:
            key.append(draw(st.integers(0, size - 1)))
        elif kind == "array" and size and not arrays:
            key.append(np.array(draw(st.lists(st.integers(0, size - 1), max_size=5)), np.int64))
            arrays = 1
        else:
            key.append(draw(st.slices(size)) if kind != "all" else slice(None))
    return tuple(key)


def opened(tensor):
    stored = {}
    with contextlib.suppress(BinsparseError):
        bl.write(stored, tensor)
    assume(stored)
    return bl.open(stored)


def seen(data, tensor, *arrays):
    """The tensor and its cells as they are, from a file, or a view of them."""
    if data.draw(st.booleans()):
        tensor = opened(tensor)
    if data.draw(st.booleans()):
        key = data.draw(keys(tensor.shape))
        tensor, *arrays = (x[key] for x in (tensor, *arrays))
        assume(isinstance(tensor, Tensor))
    return tensor, *arrays


@given(data=st.data())
def test_reductions_are_those_of_numpy(data):
    """Every kind, map, structure, view, type and fill value, in memory, from files and in blocks."""
    tensor = data.draw(mapped()) if data.draw(st.booleans()) else drawn(data, max_size=4, dtypes=VALUE_TYPES)
    tensor, *both = seen(data, tensor, *dense_and_stored(tensor))
    with nests(block=data.draw(st.integers(1, 5))):
        check_reduction(tensor, axes_of(data, tensor), data.draw(st.sampled_from(HOWS)), data.draw(CELLS), both)


@st.composite
def products(draw, tensor):
    """A specification for the tensor, and dense arrays."""
    letters = "".join("abcde"[k] for k in range(tensor.ndim))
    for k, size in enumerate(tensor.shape):  # a diagonal
        if k and size == tensor.shape[0] and draw(st.sampled_from([False, False, True])):
            letters = letters[:k] + "a" + letters[k + 1 :]
    sizes = dict(zip(letters, tensor.shape, strict=True)) | {"x": 2, "y": 3}
    dense, texts = [], []
    for _ in range(draw(st.integers(0, 2))):
        text = "".join(draw(st.lists(st.sampled_from(sorted(sizes)), max_size=3)))
        count = int(np.prod([sizes[c] for c in text], dtype=int))
        dtype = draw(st.sampled_from(["int8", "float16", "float32", "float64", "complex64", "bool", "uint64"]))
        dense.append(np.arange(count).reshape([sizes[c] for c in text]).astype(dtype))
        texts.append(text)
    at = draw(st.integers(0, len(dense)))
    texts.insert(at, letters)
    dense.insert(at, tensor)
    known = sorted(set("".join(texts)))
    out = draw(st.permutations(sorted(set(letters))) | st.lists(st.sampled_from(known), unique=True)) if known else []
    return ",".join(texts) + "->" + "".join(out), dense


def check_product(spec, operands, array=None):
    tensor = next(x for x in operands if isinstance(x, Tensor))
    if tensor.fill_value is not None and tensor.fill_value != 0:
        with pytest.raises(FormatError, match="to_dense"):
            einsum(spec, *operands)
        return
    array = tensor.to_dense() if array is None else array
    arrays = [array if x is tensor else x for x in operands]
    natural = np.result_type(*arrays)
    work = np.dtype({"b": "i8", "i": "i8", "u": "u8", "f": "f8", "c": "c16"}[natural.kind])
    with np.errstate(all="ignore"):
        expected = np.einsum(spec, *(x.astype(work) for x in arrays))
        found = einsum(spec, *operands)
        if set("".join(spec.partition("->")[0].split(","))) <= set(spec.partition("->")[2]):
            assert found.dtype == natural
            expected = expected.astype(natural)
        else:
            assert found.dtype == work
    if isinstance(found, Tensor):
        assert found.number_of_stored_values == expanded(tensor).number_of_stored_values
        found = found.to_dense()
    np.testing.assert_allclose(found, expected, rtol=2e-3 if natural == np.float16 else 1e-6)


@given(data=st.data())
def test_products_are_those_of_numpy(data):
    tensor = data.draw(mapped()) if data.draw(st.booleans()) else drawn(data, max_size=3, max_rank=3)
    assume(tensor.dtype.kind not in "fc" or np.isfinite(tensor.unpack()[1]).all())
    tensor, array = seen(data, tensor, tensor.to_dense())
    with nests(block=2, factored=data.draw(st.booleans())):
        check_product(*data.draw(products(tensor)), array)


@given(data=st.data())
def test_results_do_not_depend_on_threads(data):
    tensor = drawn(data, dtypes=("float32", "int64", "complex64"), max_size=5)
    axes, how = axes_of(data, tensor), data.draw(st.sampled_from(sorted({*HOWS} - {"min", "max"})))
    before = bl.get_threads()
    found = []
    with nests(grain=data.draw(st.sampled_from([1, 2]))):
        for threads in (1, 2):
            bl.set_threads(threads)
            found.append(np.asarray(reduce(tensor, axes, how)).tobytes())
    bl.set_threads(before)
    assert found[0] == found[1]


@pytest.mark.parametrize("interpreted", [True, False])
@pytest.mark.parametrize("mean", [0.3, 1, 2, 8, 100])
def test_fibers_of_any_length(mean, interpreted):
    generator = np.random.default_rng(int(10 * mean))
    coords = [generator.integers(0, 300 // mean, 300), generator.integers(0, 90, 300)]
    tensor = pack(coords, generator.integers(1, 9, 300), (int(300 / mean) + 3, 90), "CSR", duplicates="sum")
    tensor = tensor.astype("float64")
    vector = generator.integers(0, 9, 90).astype(float)
    dense = tensor.to_dense()
    with nests(interpreted):
        np.testing.assert_array_equal(tensor @ vector, dense @ vector)
        np.testing.assert_array_equal(reduce(tensor, 1), dense.sum(1))
        np.testing.assert_array_equal(reduce(tensor, 1, "max"), dense.max(1))
        np.testing.assert_array_equal(reduce(tensor, 1, "count"), (dense != 0).sum(1))
        np.testing.assert_array_equal(reduce(tensor, 0), dense.sum(0))
        np.testing.assert_array_equal(np.ones(len(dense)) @ tensor, dense.sum(0))
        assert (pack([[], []], [], (5, 90), "CSR") @ vector).tolist() == [0] * 5


@pytest.mark.slow
@pytest.mark.parametrize("interpreted", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "complex128"])
@pytest.mark.parametrize("format", ["sparse, sparse, sparse", "dense, dense, sparse"])
def test_short_fibers_that_share_a_total(format, dtype, interpreted):
    generator = np.random.default_rng(5)
    for there in (0.04, 0.1, 0.2):
        dense = (generator.integers(-9, 9, (6, 8, 12)) * (generator.random((6, 8, 12)) < there)).astype(dtype)
        tensor = pack_dense(dense, format, fill_value=0)
        with nests(interpreted):
            for how in ("sum", "max", "count") if dtype != "complex128" else ("sum", "count"):
                expected = getattr(np, how if how != "count" else "count_nonzero")(dense, (1, 2))
                np.testing.assert_array_equal(reduce(tensor, (1, 2), how), expected)


@pytest.mark.slow
@pytest.mark.parametrize("interpreted", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128"])
@pytest.mark.parametrize("format", ["dense, bitmap", "bitmap(2)", "dense, run"])
def test_long_fibers_of_cells_and_runs(format, dtype, interpreted):
    generator = np.random.default_rng(3)
    dense = np.repeat(generator.integers(0, 3, (5, 7)), 29, axis=1).astype(dtype)
    dense[:, :100] *= generator.integers(0, 2, (5, 100)).astype(dtype)
    tensor = pack_dense(dense, format, fill_value=0)
    levels, blank = inside(tensor).tree, inside(tensor).tree.values.copy()
    if levels.gaps and dense.dtype.kind in "fc":  # nobody reads what has no entry
        reached = np.zeros(len(blank), bool)
        reached[np.asarray(levels.reached())] = True
        blank[~reached] = np.nan
    tensor = Tensor(tensor.format, tensor.shape, levels.arrays, blank, fill_value=tensor.fill_value)
    vector = generator.integers(0, 9, 203)
    with nests(interpreted):
        np.testing.assert_allclose(tensor @ vector, dense @ vector)
        np.testing.assert_allclose(reduce(tensor, 1, "sum"), dense.sum(1))
        np.testing.assert_allclose(reduce(tensor, 1, "count"), (dense != 0).sum(1))
        for axis in (None, 0, 1):
            squares = np.abs(dense.astype(complex)) ** 2
            np.testing.assert_allclose(statistics(tensor, axis).norm, np.sqrt(squares.sum(axis)))


@pytest.mark.slow
@pytest.mark.parametrize("format", ["CSR", "CSC", "COO", "dense, hashed"])
def test_results_of_many_entries_do_not_depend_on_threads(format):
    generator = np.random.default_rng(0)
    coords = [generator.integers(0, 3000, 2_500_000) for _ in range(2)]
    tensor = pack(coords, generator.random(2_500_000), (3000, 3000), format, duplicates="first", fill_value=0.5)
    vector = generator.random(3000)
    before, found = bl.get_threads(), []
    bare = pack(*tensor.unpack(), tensor.shape, format)
    for threads in (1, 2, 3):
        bl.set_threads(threads)
        results = [*statistics(tensor, 0), *statistics(tensor, None), bare @ vector, bare.T @ vector]
        found.append([np.asarray(x).tobytes() for x in results])
    bl.set_threads(before)
    assert found[0] == found[1] == found[2]
    np.testing.assert_allclose(bare.T @ vector, vector @ bare.to_dense())


@pytest.mark.usefixtures("plain_nests")
def test_lists_are_cut_by_the_time_of_their_entries(monkeypatch):
    """Products of a list through ALTO are cut where sums of as many entries are not; threads change no bit."""
    monkeypatch.setattr(THRESHOLDS, "part_entries", 1000)
    tensor = testing.uniform((6, 7, 80), 1500).convert("sparse through alto")
    factors = [np.random.default_rng(k).random((size, 3)) for k, size in enumerate((7, 80))]
    cut, found, parts = walk.of_loop, [], []
    monkeypatch.setattr(walk, "of_loop", lambda *args, **options: parts.append(cut(*args, **options)) or parts[-1])
    for threads in (1, 2):
        with using_threads(threads):
            found.append(einsum("ijk,jr,kr->ir", tensor, *factors))
    assert [len(x) for x in parts] == [tensor.nnz * 4 // 1000] * 2
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], np.einsum("ijk,jr,kr->ir", tensor.to_dense(), *factors))
    parts.clear()
    tensor.sum()
    assert [len(x) for x in parts] == [1]


def listed(state, *entry):
    state.append(tuple(entry))


listed.py_func = listed  # as numba's functions have it


@given(data=st.data())
def test_foreach_visits_every_entry(data):
    tensor = data.draw(mapped()) if data.draw(st.booleans()) else drawn(data, max_rank=5, max_size=3)
    if data.draw(st.booleans()):
        tensor = tensor[data.draw(keys(tensor.shape))]
        assume(isinstance(tensor, Tensor))
    coords, values = expanded(tensor).unpack()
    expected = sorted(zip(*(x.tolist() for x in coords), values.tolist(), strict=True), key=repr)
    with nests(block=2, grain=1):
        for seen in (tensor, opened(tensor)):
            state = []
            foreach(seen, listed, state)
            assert repr(sorted([(*map(int, x[:-1]), x[-1].item()) for x in state], key=repr)) == repr(expected)


@given(data=st.data())
def test_coordinates_that_a_body_does_not_name_change_nothing(data):
    """The levels that tell them may be left out."""
    tensor = data.draw(mapped()) if data.draw(st.booleans()) else drawn(data, max_rank=4, max_size=3)
    named = sorted(axes_of(data, tensor))
    arguments = ", ".join(f"i{k}" for k in range(tensor.ndim))
    body = eval(
        f"lambda state, {arguments}{', ' * bool(arguments)}value: state.append([{'i%s, ' * len(named)}value])"
        % tuple(named)
    )
    body.py_func = body
    coords, values = expanded(tensor).unpack()
    expected = sorted(zip(*(coords[k].tolist() for k in named), values.tolist(), strict=True), key=repr)
    with nests(block=2, grain=1):
        for seen in (tensor, opened(tensor)):
            state = []
            foreach(seen, body, state)
            assert repr(sorted([(*map(int, x[:-1]), x[-1].item()) for x in state], key=repr)) == repr(expected)


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS)
def test_compiled_nests_are_those_of_numpy(chain):
    format = bl.parse_format(chain)
    generator = np.random.default_rng(0)
    shape = (3, 5, 4, 6)[: format.rank]
    array = np.where(generator.random(shape) < 0.3, generator.integers(1, 9, shape), 0)
    array[..., 2:] *= "n_of_m" not in chain
    tensor = pack_dense(array.astype(np.float32), chain, fill_value=0)
    letters = "abcd"[: format.rank]
    first, last = letters[0], letters[-1]
    for how in ("sum", "max", "var"):
        check_reduction(tensor, (format.rank - 1,), how)
    check_reduction(tensor, (), "count")
    vector = np.arange(tensor.shape[-1]) + 0.5
    check_product(f"{letters},{last}x->{first}x", [tensor, np.stack([vector, vector], 1)])
    check_product(f"{letters},{last}->{letters}", [tensor, vector])
    np.testing.assert_allclose(tensor @ vector, array @ vector)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_compiled_extremes_are_those_of_numpy(dtype):
    random = np.random.default_rng(0)
    array = random.integers(-99, 99, (40, 70)).astype(dtype)
    if array.dtype.kind == "f":
        array[random.random(array.shape) < 0.01] = np.nan
        array[:9, :9], array[7, 8] = -np.inf, np.nan
    tensor = pack_dense(array, "dense, bitmap")
    for how in ("min", "max"):
        expected = getattr(np, how)(array, axis=1)
        np.testing.assert_array_equal(reduce(tensor, 1, how), expected)


def test_a_compiled_body_runs_in_parts():
    numba = pytest.importorskip("numba")

    @numba.njit
    def add(state, i, j, value):
        state[0][i] += value
        state[1][j] += 1

    tensor = pack_dense(np.arange(1, 10001.0).reshape(100, 100), "CSR")
    found = []
    for options in ({}, {"merge": lambda a, b: (a[0] + b[0], a[1] + b[1]), "threads": 2}):
        with nests(interpreted=False, grain=500):
            found.append(foreach(tensor, add, (np.zeros(100), np.zeros(100, np.int64)), **options))
    for sums, counts in found:
        np.testing.assert_array_equal(sums, tensor.to_dense().sum(1))
        assert (counts == 100).all()


def test_statistics_are_the_reductions():
    tensor = pack([[0, 1, 1], [2, 0, 1]], [3, 4, -6], (2, 3), "CSR", fill_value=1)
    stored = {}
    bl.write(stored, tensor)
    with nests(block=1):
        for seen in (tensor, bl.open(stored)):
            for axis in (None, 0, -1, (0, 1), ()):
                for which in ("all", "stored") if axis != () else ("all",):
                    for how, found in statistics(seen, axis, cells=which)._asdict().items():
                        np.testing.assert_allclose(found, reduce(tensor, axis, how, cells=which), rtol=1e-12)
    assert reduce(tensor, 0, dtype="float32").dtype == np.float32


@pytest.mark.usefixtures("plain_nests")
def test_a_view_is_reduced():
    tensor = pack_dense(np.arange(12.0).reshape(3, 4), "CSR")
    assert reduce(tensor[1:, ::2], 0).tolist() == [12.0, 16.0]
    assert (tensor[1:].T @ [1, 2]).tolist() == (tensor.to_dense()[1:].T @ [1, 2]).tolist()


@given(data=st.data())
def test_a_view_that_repeats_coordinates_is_reduced(data):
    tensor = drawn(data, max_size=4, dtypes=["float64", "int8", "complex64"])
    assume(tensor.ndim > 1)
    both = dense_and_stored(tensor)
    for _ in range(2):
        k = data.draw(st.integers(0, tensor.ndim - 1))
        some = st.lists(st.integers(0, tensor.shape[k] - 1), max_size=20) if tensor.shape[k] else st.just([])
        key = (slice(None),) * k + (np.array(data.draw(some), int),)
        tensor, both = tensor[key], tuple(x[key] for x in both)
    assert tensor.number_of_stored_values == len(tensor.unpack()[1])
    with nests(), using_thresholds(table_size=data.draw(st.sampled_from([0, 2, 2**20]))):
        check_reduction(tensor, axes_of(data, tensor), data.draw(st.sampled_from(HOWS)), data.draw(CELLS), both)


@pytest.mark.slow
def test_a_view_of_more_entries_than_memory_is_reduced():
    def check(n, hows):
        row = np.arange(n) % 7 + 1.5
        view = pack([np.zeros(n, int), np.arange(n)], row, (1, n), "CSR")[np.zeros(n, int)]
        expected = {"count": n * n, "min": 1.5, "max": 7.5, "mean": row.mean(), "std": row.std()}
        tracemalloc.start()
        for kept in (view, view.T):
            assert kept.number_of_stored_values == n * n
            for how in hows:
                np.testing.assert_allclose(reduce(kept, None, how), expected[how], rtol=1e-7 * (how in ("mean", "std")))
        assert reduce(view, 1, "count").tolist() == [n] * n
        assert tracemalloc.get_traced_memory()[1] < 2**26
        tracemalloc.stop()

    check(2**16, ["count", "mean", "std"])  # 4.3e9 entries
    check(2**13, ["count", "min", "max", "mean", "std"])  # as entries 1.6 GB; extremes visit each


@pytest.mark.sampled(7)
@pytest.mark.parametrize("asked", ["int64", "int8", "uint16", "bool", "float32"])
@pytest.mark.parametrize("given", ["float64", "int16", "bool"])
@pytest.mark.parametrize("how", ["sum", "prod", "mean"])
def test_each_value_is_cast_before_it_is_added(how, given, asked):
    cells = np.array([[0.6, 0, 2.7], [1.6, 3.2, 0]]).astype(given)
    for fill in (0, cells[0, 0]):
        for axis in (0, 1, None):
            with nests():
                found = reduce(pack_dense(cells, "CSR", fill_value=fill), axis, how, dtype=asked)
            np.testing.assert_allclose(found, getattr(np, how)(cells, axis, dtype=asked), rtol=1e-6)
            assert found.dtype == asked


MATRIX = pack([[0, 1], [2, 0]], [3.0, 4.0], (2, 3), "CSR")
FAULTS = [
    (lambda: einsum("ij,j->i", MATRIX, np.ones(2)), ArrayError, "dimension 0 has size 2, and dimension 1 of"),
    (lambda: einsum("ij->i", np.ones((2, 2))), OptionError, "expected a Tensor"),
    (lambda: einsum("ij,j", MATRIX, np.ones(3)), FormatError, "'ij,j->i'"),
    (lambda: einsum("ij->k", MATRIX), FormatError, "'k', which no operand has"),
    (lambda: einsum("ij->ii", MATRIX), FormatError, "repeats an index"),
    (lambda: einsum("ij,j->i", MATRIX), FormatError, "2 operands, got 1"),
    (lambda: einsum("ijk->i", MATRIX), ArrayError, "has 2 dimensions"),
    (lambda: einsum("ij,k->ijk", MATRIX, np.ones(9), limits=Limits(dense_bytes=100)), LimitError, "dense_bytes=100"),
    (lambda: einsum("ij,j->i", MATRIX, np.ones(3, "M8[s]")), ArrayError, "astype"),
    (lambda: einsum("ij->", MATRIX, dtype="nothing"), OptionError, "is not a numpy dtype"),
    (lambda: MATRIX @ np.ones((3, 1, 1)), ArrayError, "einsum"),
    (lambda: MATRIX @ {1: 2}, OptionError, "expected a dense numpy array"),
    (lambda: {1: 2} @ MATRIX, OptionError, "expected a dense numpy array"),
    (lambda: np.ones(2) @ pack_dense(np.ones((2, 2, 2)), "CSF"), OptionError, "call einsum"),
    (lambda: np.ones(3) @ MATRIX, ArrayError, "has size"),
    (lambda: MATRIX.to_scipy(), AttributeError, r"use to_scipy\(tensor\)"),
    (lambda: reduce(MATRIX, 0, "median"), OptionError, "choose one of sum"),
    (lambda: reduce(MATRIX, (0, 0)), OptionError, "twice"),
    (lambda: reduce(MATRIX, 2), IndexError, "2"),
    (lambda: reduce(MATRIX, 0, memory="1GB"), OptionError, "number of bytes"),
    (lambda: reduce(MATRIX, 0, limits=Limits(dense_bytes=8)), LimitError, "dense_bytes"),
    (lambda: reduce(pack([[0]], np.array([1], "M8[s]"), 3, "CVEC"), 0), ArrayError, "astype"),
    (lambda: reduce(pack([[0]], [1], 3, "CVEC"), (), "max", cells="stored"), ArrayError, "no cells take part"),
    (lambda: reduce(MATRIX, 0, cells="none"), OptionError, "'all' or 'stored'"),
    (lambda: reduce(MATRIX.astype("c16"), 0, dtype=float), OptionError, "pass a complex type"),
    (lambda: foreach(MATRIX, listed, [], threads=0), OptionError, ">= 1"),
    (lambda: foreach(MATRIX, "nothing", []), OptionError, "@numba.njit"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "match"), FAULTS)
def test_errors_say_what_to_do(call, error, match):
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("call", [lambda t: reduce(t, 0), lambda t: statistics(t, 0), lambda t: t @ np.ones(3)])
def test_the_limits_of_open_hold(call):
    stored = {}
    bl.write(stored, MATRIX)
    with pytest.raises(LimitError, match="dense_bytes=8"):
        call(bl.open(stored, limits=Limits(dense_bytes=8)))


@pytest.mark.usefixtures("plain_nests")
def test_an_axis_has_a_name():
    table = pytest.importorskip("pyarrow").table({"user": [1, 2], "item": [0, 3], "value": [1.0, 2.0]})
    tensor = bl.from_table(table, ["user", "item"], "value", "CSR")
    for seen in (tensor, tensor.T, tensor[:2]):
        assert reduce(seen, "user").tolist() == reduce(seen, seen.dims.index("user")).tolist()
        assert reduce(seen, ["user", "item"]) == reduce(seen)
    with pytest.raises(IndexError, match=r"'usr'; did you mean user\? they are user, item"):
        reduce(tensor, "usr")


def test_a_result_beyond_the_memory():
    """It is refused before memory is taken: these results would have 2**50 bytes and more."""
    stored, long = {}, {}
    bl.write(stored, MATRIX)
    bl.write(long, pack([[0, 1], [2, 0]], [3.0, 4.0], (2, 2**47), "DCSR"))
    limits = Limits(dense_bytes=2**60)
    with pytest.raises(LimitError, match="larger memory="):
        reduce(bl.open(stored), 0, memory=10)
    for call in (
        lambda tensor, **options: reduce(tensor, 0, **options),
        lambda tensor, **options: statistics(tensor, 0, **options),
        lambda tensor, **options: einsum("ij,i->j", tensor, np.ones(2), **options),
    ):
        with pytest.raises(LimitError, match=r"larger memory=|bytes of memory that are free"):
            call(bl.open(long), memory=2**20, limits=limits)


@pytest.mark.usefixtures("plain_nests")
def test_fill_values_at_the_ends_of_their_types():
    most = np.iinfo(np.uint64).max
    assert int(reduce(pack([[0]], np.array([0], "u8"), 2, "CVEC", fill_value=most))) == most
    endless = pack([[0]], np.array([1], "c16"), 3, "CVEC", fill_value=complex(np.inf, 0))
    assert complex(reduce(endless)) == complex(np.inf, 0)
    assert complex(reduce(endless[:1])) == 1


@pytest.mark.parametrize(("format", "name"), [("dense, bitmap, sparse", "bitmap_1"), ("dense, bits, sparse", "bits_1")])
def test_entries_that_no_level_reaches_are_refused(tmp_path, format, name):
    dense = np.zeros((4, 16, 3))
    dense[:, ::3, 1] = np.arange(1, 25).reshape(4, 6)
    bl.write(tmp_path / "a.h5", bl.pack_dense(dense, format))
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file[next(key for key in file if key.startswith(name[:4]))][0] = 0
    for call in (lambda: bl.reduce(bl.open(tmp_path / "a.h5")), lambda: bl.read(tmp_path / "a.h5")):
        with pytest.raises(bl.ArrayError, match="pointers_to_2: fiber 0 has entries, but belongs to none"):
            call()


def test_memory_is_asked_for_before_it_is_taken():
    stored = {}
    bl.write(stored, pack([[0, 1], [5, 2**26 - 1]], [1.0, 2.0], (4, 2**26), "CSR"))
    for call in (lambda t: reduce(t, 0, "var", memory=2**24), lambda t: statistics(t, 0, memory=2**24)):
        tensor = bl.open(stored)
        tracemalloc.start()
        with pytest.raises(LimitError, match="larger memory="):
            call(tensor)
        assert tracemalloc.get_traced_memory()[1] < 2**22
        tracemalloc.stop()


@pytest.mark.usefixtures("plain_nests")
@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32"])
@pytest.mark.parametrize("how", ["sum", "prod"])
@pytest.mark.parametrize("fill", [None, 1.7])
def test_a_sum_of_fractions_as_integers_is_that_of_numpy(how, dtype, fill):
    dense = np.array([[0.6, 0, 2.9], [0.6, 1.2, 0], [0, 1.2, 3.5]])
    dense[dense == 0] = fill or 0
    tensor = pack_dense(dense, "CSR", fill_value=fill)
    for axis in (None, 0, 1):
        found = reduce(tensor, axis, how, dtype=dtype)
        np.testing.assert_array_equal(found, getattr(dense, how)(axis, dtype=dtype))
        assert found.dtype == dtype


@pytest.mark.usefixtures("plain_nests")
def test_what_needs_no_count_of_cells():
    tensor = bl.pack([[1, 2], [3, 4], [5, 6]], [2.0, 4.0], (2**40,) * 3, "sparse, sparse, sparse", fill_value=1.0)
    for how, right in {"min": 1, "max": 4, "any": True, "all": True, "mean": 1, "count": 2}.items():
        assert reduce(tensor, None, how) == right


@pytest.mark.usefixtures("plain_nests")
def test_more_cells_than_an_integer_counts():
    tensor = bl.pack([[0], [0]], [3.0], (2**62, 2), "DCSR", fill_value=0)
    assert bl.reduce(tensor, None, "count") == 1
    assert bl.reduce(tensor) == 3
    assert bl.reduce(tensor, None, "min") == 0
    assert bl.reduce(tensor, None, "mean") == 3 / 2**63
    ones = bl.pack([[0], [0]], [3.0], (2**62, 2), "DCSR", fill_value=1)
    expected = {"min": 1, "max": 3, "any": True, "all": True, "mean": 1, "var": 0, "sum": 2.0**63, "count": 1}
    assert {how: bl.reduce(ones, None, how) for how in expected} == pytest.approx(expected)
    assert bl.reduce(ones.astype("int8"), None, "max") == 3
    with pytest.raises(bl.LimitError, match="reduce fewer dimensions"):
        bl.reduce(bl.pack([[0], [0]], [3], (2**62, 2), "DCSR", fill_value=1))


@pytest.mark.usefixtures("plain_nests")
def test_sums_of_integers_stay_exact_in_the_other_signedness():
    tensor = bl.pack([[0, 1]], np.array([2**53, 1]), (2,), "sparse", fill_value=0)
    assert bl.reduce(tensor, None, dtype="uint64") == 2**53 + 1
    assert bl.einsum("i,i->", tensor, np.ones(2, np.int64), dtype="uint64") == 2**53 + 1


@pytest.mark.usefixtures("plain_nests")
def test_what_cannot_be_computed_names_the_argument():
    tensor = bl.pack_dense(np.eye(3) * 1j, "CSR")
    with pytest.raises(bl.OptionError, match="dtype: the products are complex128, which is not cast to float64"):
        bl.einsum("ij,i->ij", tensor, np.ones(3), dtype="float64")
    with pytest.raises(TypeError, match=r"got the path 'a\.h5'; open it"):
        bl.reduce("a.h5")
    with pytest.raises(bl.OptionError, match="unknown reduction"):
        bl.reduce(tensor, None, ["sum"])
    assert bl.reduce(np.eye(3)) == 3


@pytest.mark.parametrize("structure", sorted(STRUCTURES))
@pytest.mark.parametrize(
    "chain", ["sparse, band", "dense, band", "band, band", "sparse, dense", "dense, dense", "run, band"]
)
def test_padding_between_mirror_images_is_no_stored_cell(tmp_path, plain_nests, chain, structure):
    below = [1, 3, 4, 4], [0, 1, 0, 1]
    coords = below if structure.endswith("lower") else below[::-1]
    values = np.array([1.0, 2.0, 3.0, 4.0]) * (1 if structure.startswith("symmetric") else 1j)
    tensor = pack(coords, values, (5, 5), chain, structure=structure)
    bl.write(tmp_path / "a.h5", tensor)
    listed = tensor.convert("COO").expand_structure()
    stored = listed.unpack()[1]
    for found in (tensor, bl.open(tmp_path / "a.h5"), tensor[:], bl.open(tmp_path / "a.h5")[:, :]):
        assert found.count() == reduce(found, None, "count") == len(stored)
        for how in ("mean", "min", "prod"):
            assert reduce(found, None, how, cells="stored") == reduce(listed, None, how, cells="stored")
        for axis in (0, 1):
            made = statistics(found, axis, cells="stored")
            np.testing.assert_array_equal(made, statistics(listed, axis, cells="stored"))
        assert found[::-1].nnz == found.T[:, 1:].nnz + found[:, 0].nnz == len(stored)
        assert [found[k].nnz for k in range(5)] == reduce(listed, 1, "count").tolist()
        assert sum(slab.nnz for _, slab in found.slabs(0, max_bytes=200)) == len(stored)
        assert found.load("COO").expand_structure().nnz == len(stored)


@pytest.mark.parametrize("structure", sorted(STRUCTURES))
@pytest.mark.parametrize("chain", ["CSR", "CSC", "COO", "DCSR"])
def test_parts_of_a_triangle_and_their_mirror_images(chain, structure):
    generator = np.random.default_rng(0)
    i, j = np.nonzero(np.tril(generator.random((9, 9)) < 0.6, -1))
    coords = (i, j) if structure.endswith("lower") else (j, i)
    values = generator.integers(1, 9, len(i)) * (1 + 2j if structure.startswith("hermitian") else 1)
    tensor, factor = pack(coords, values, (9, 9), chain, structure=structure), generator.integers(0, 9, (9, 2))
    dense = tensor.to_dense()
    with nests(grain=4), using_threads(2):
        np.testing.assert_array_equal(tensor @ factor, dense @ factor)
        np.testing.assert_array_equal(tensor.T @ factor[:, 0], dense.T @ factor[:, 0])
        np.testing.assert_array_equal(tensor[1:8, ::-2].sum(0), dense[1:8, ::-2].sum(0))
        np.testing.assert_array_equal(tensor.sum(1), dense.sum(1))
        assert reduce(tensor, None, "count") == np.count_nonzero(dense)
