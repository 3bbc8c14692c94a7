"""Functions and products of several stored tensors equal numpy's on the dense arrays."""

import itertools

import numpy as np
import pytest
from helpers.strategies import VALUE_TYPES
from hypothesis import assume, given
from hypothesis import strategies as st
from test_compute import dense_and_stored, drawn, expanded, mapped, nests, opened, plain_nests, seen  # noqa: F401 (a fixture)

import binsparse_levels as bl
from binsparse_levels import (
    ArrayError,
    Band,
    Dense,
    FormatError,
    LabelError,
    OptionError,
    Sparse,
    Tensor,
    einsum,
    pack,
    pack_dense,
    testing,
)  # fmt: skip
from binsparse_levels.compute.cursors import is_walked
from binsparse_levels.levels import LEVELS
from binsparse_levels.parallel import using_threads
from binsparse_levels.tensors.tensor import inside
from binsparse_levels.thresholds import using_thresholds

FUNCTIONS = [
    np.add, np.subtract, np.multiply, np.true_divide, np.maximum, np.minimum, np.greater, np.equal, np.logical_and,
    np.hypot, np.floor_divide,
]  # fmt: skip
# Functions whose result is 0 where the first operand, or either of both, is 0 and not stored.
ZEROS = {np.multiply: 2, np.true_divide: 1, np.floor_divide: 1, np.logical_and: 2}
KINDS = tuple(LEVELS.values())


def with_zeros(function, expected, tensors):
    """The function of two tensors, with 0 in the cells that an operand does not store."""
    expected = expected.copy()
    for tensor in tensors[: ZEROS.get(function, 0)]:
        if isinstance(tensor, Tensor) and not inside(tensor).pad:
            expected[~np.broadcast_to(dense_and_stored(tensor)[1], expected.shape)] = 0
    return expected


def computed(array):
    assume(array.dtype.kind in "biufc")
    return array


def any_tensor(data, **options):
    """A tensor of any kinds, map and structure, in memory or opened, or a view of it, and its cells."""
    tensor = data.draw(mapped()) if data.draw(st.booleans()) else drawn(data, dtypes=VALUE_TYPES, **options)
    return seen(data, tensor, computed(expanded(tensor).to_dense()))


def beside(data, shape):
    """Another tensor of a shape, and its cells."""
    size = int(np.prod(shape))
    items = data.draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 3]), min_size=size, max_size=size))
    array = np.array(items).reshape(shape).astype(data.draw(st.sampled_from(["float64", "float32", "int8", "bool"])))
    format = data.draw(testing.formats(kinds=KINDS, min_rank=len(shape), max_rank=len(shape)))
    fill = data.draw(st.sampled_from([None, 0, 1]))
    try:
        tensor = pack_dense(array, format, fill_value=fill)
    except FormatError:  # a kind may refuse a tensor
        assume(False)
    return tensor, tensor.to_dense()


def same(found, expected):
    assert isinstance(found, Tensor)
    np.testing.assert_array_equal(found.to_dense(), expected)
    assert found.dtype == expected.dtype
    found.check()


@given(data=st.data())
def test_functions_of_two_tensors_are_those_of_numpy(data):
    a, array = any_tensor(data, max_size=4, max_rank=3)
    b, other = beside(data, a.shape)
    function = data.draw(st.sampled_from(FUNCTIONS))
    if data.draw(st.booleans()):
        a, array, b, other = b, other, a, array
    with np.errstate(all="ignore"), nests():
        try:
            expected = np.asarray(function(array, other))
        except TypeError:  # numpy has no loop for the types
            assume(False)
        found = function(a, b)
        fill = function(np.full(1, inside(a).pad), np.full(1, inside(b).pad))[0]
        stays = any(not inside(x).pad for x in (a, b)[: ZEROS.get(function, 0)])
        fill, expected = 0 if stays else fill, with_zeros(function, expected, (a, b))
    same(found, expected)
    none = a.fill_value is None and b.fill_value is None and fill == 0
    assert found.fill_value is None if none else np.array_equal(found.fill_value, fill, equal_nan=True)


@given(data=st.data())
def test_functions_of_one_tensor_are_those_of_numpy(data):
    tensor, array = any_tensor(data, max_size=4, max_rank=3)
    dtype = data.draw(st.sampled_from(["float64", "int8"]))
    shape = tuple(n if data.draw(st.booleans()) else 1 for n in array.shape[data.draw(st.integers(0, array.ndim)) :])
    dense = 1 + np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    call = data.draw(
        st.sampled_from(
            [
                lambda x: 2 * x, lambda x: x / 3, lambda x: x + 1, lambda x: x > 1, np.isnan, lambda x: 3 - x,
                lambda x: x * dense, lambda x: dense * x, lambda x: x / dense, np.sign, abs, np.exp, np.square,
                lambda x: x * np.float32(2), lambda x: x * (1 + 2j),
            ]
        )
    )  # fmt: skip
    assume(array.ndim or call is not np.isnan)
    with np.errstate(all="ignore"), nests():
        try:
            expected = np.asarray(call(array))
        except TypeError:
            assume(False)
        try:
            found = call(tensor)
        except OptionError:  # cells that are not stored would have several values
            assert inside(tensor).pad != 0
            return
    same(found, expected)
    assert found.map == tensor.map or found.map is None


@given(data=st.data())
def test_products_of_tensors_are_those_of_numpy(data):
    letters = "abcd"
    sizes = dict(zip(letters, data.draw(st.lists(st.integers(0, 4), min_size=4, max_size=4)), strict=True))
    operands, arrays, texts = [], [], []
    for k in range(data.draw(st.integers(2, 3))):
        text = data.draw(st.text(alphabet=letters, min_size=1, max_size=3))
        stored = k < 2 or data.draw(st.booleans())
        shape = tuple(sizes[x] for x in text)
        tensor, array = beside(data, shape)
        assume(not tensor.fill_value)
        if stored and data.draw(st.booleans()):
            tensor = opened(tensor)
        texts.append(text)
        operands.append(tensor if stored else array)
        arrays.append(array)
    known = sorted(set("".join(texts)))
    out = "".join(data.draw(st.lists(st.sampled_from(known), unique=True)))
    spec = f"{','.join(texts)}->{out}"
    natural = np.result_type(*arrays)
    work = np.dtype({"b": "i8", "i": "i8", "f": "f8"}[natural.kind])
    expected = np.einsum(spec, *(x.astype(work) for x in arrays))
    with nests(), np.errstate(all="ignore"):
        found = einsum(spec, *operands)
    if isinstance(found, Tensor):
        found.check()
        found = found.to_dense()
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == (natural if set(known) <= set(out) else work)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    "form", ["CSR", "CSC", "COO", "dense, elias_fano", "dense, bitmap", "dense, run", "dense, mask"]
)
def test_compiled_products_are_those_of_numpy(form):
    """Rows of several parts, wide rows, and a matrix of the columns that have entries."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (40, 50)) * (rng.random((40, 50)) < 0.3) for _ in range(2))
    one, two = pack_dense(a, form), pack_dense(b, "CSR")
    for threads in (1, 2):
        with using_threads(threads), using_thresholds(row_entries=8):
            assert (one @ two.T).to_dense().tolist() == (a @ b.T).tolist()
            with using_thresholds(sizes_per_entry=0, extra_sizes=1):
                assert (one @ two.T).to_dense().tolist() == (a @ b.T).tolist()
                assert einsum("ij,ij->", one, two) == (a * b).sum()
        with using_thresholds(row_entries=8, sizes_per_entry=0, extra_sizes=1):
            assert (one + two).to_dense().tolist() == (a + b).tolist()
            assert (one * two).to_dense().tolist() == (a * b).tolist()


@pytest.mark.usefixtures("plain_nests")
@pytest.mark.parametrize(
    ("a", "b", "format"),
    [
        ("CSR", "CSR", "CSR"), ("COO", "COO", "COOR"), ("CSC", "CSC", "CSC"), ("DCSR", "DCSR", "DCSR"),
        ("CSR", "COO", "CSR"), ("dense, bitmap", "dense, bitmap", "CSR"), ("DCSR", "dense, mask", "CSR"),
    ],
)  # fmt: skip
def test_the_format_of_a_sum(a, b, format):
    one, two = pack_dense(np.eye(3), a), pack_dense(np.ones((3, 3)) - np.eye(3), b)
    assert str((one + two).format) == format
    assert str(einsum("ij,ij->ij", one, two, format="CSC").format) == "CSC"


def test_a_tensor_does_not_change_in_place():
    tensor = pack_dense(np.eye(2), "CSR")
    with pytest.raises(OptionError, match="assign the result"):
        tensor += 1


def test_operators():
    dense = np.array([[0, 2.0], [-3, 0]])
    tensor = pack_dense(dense, "CSR")
    for call in (
        lambda x: 2 * x, lambda x: x / 2, lambda x: -x, abs, lambda x: x - x, lambda x: x**2, lambda x: x // 2,
        lambda x: x % 3, lambda x: +x, lambda x: np.float32(2) * x, lambda x: x > 1, lambda x: x <= 0,
        lambda x: np.maximum(x, -1),
    ):  # fmt: skip
        same(call(tensor), call(dense))
    same(np.array([1, 10]) * tensor, np.array([1, 10]) * dense)
    assert (tensor + 1).fill_value == 1
    assert (tensor * 2).fill_value == 0
    assert (pack([[0]], [1.0], 2, "CVEC") * 2).fill_value is None
    assert (tensor.convert("sparse", map="(0 1)") * 2).map is not None
    assert (pack_dense([[1, 2], [2, 0]], "CSR").with_structure("symmetric_lower") * 2).structure == "symmetric_lower"


@pytest.mark.usefixtures("plain_nests")
def test_structures_stay_where_a_function_keeps_them():
    skew = pack_dense([[0, 2.0], [-2, 0]], "CSR").with_structure("skew_symmetric_lower")
    assert (3 * skew).structure == (-skew).structure == "skew_symmetric_lower"
    assert abs(skew).structure is None
    assert abs(skew).to_dense().tolist() == [[0, 2], [2, 0]]
    hermitian = pack_dense([[0, 2j], [-2j, 0]], "CSR").with_structure("hermitian_lower")
    assert (1j * hermitian).to_dense().tolist() == (1j * hermitian.to_dense()).tolist()
    assert (hermitian + hermitian).to_dense().tolist() == (2 * hermitian.to_dense()).tolist()


@pytest.mark.usefixtures("plain_nests")
def test_labels_and_attributes_that_agree_are_kept():
    named = pack_dense(np.eye(2), "CSR").with_labels({"gene": ["a", "b"]}, dims=["cell", "gene"])
    named = named.with_attributes({"unit": "m", "by": "x"})
    other = pack_dense(np.ones((2, 2)), "COO").with_attributes({"unit": "m", "by": "y"})
    for made in (named + other, other * named, np.log1p(named), named * np.arange(2)):
        assert made.dims == ("cell", "gene")
        assert made.labels("gene").tolist() == ["a", "b"]
        assert made.attributes["unit"] == "m"
    assert dict((named + other).attributes) == {"unit": "m"}
    product = named.T @ named
    assert product.labels(0).tolist() == product.labels(1).tolist() == ["a", "b"]
    assert einsum("ij,ij->j", named, other).dims == ("gene",)
    with pytest.raises(LabelError, match="gene"):
        named + named.with_labels({"gene": ["b", "a"]})


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: x + x[:, :2], ArrayError, "einsum"),
        (lambda x: x * np.ones(5), ArrayError, "broadcast"),
        (lambda x: x + np.arange(3), OptionError, "several values"),
        (lambda x: np.add.accumulate(x), OptionError, "use numpy.add.accumulate"),
        (lambda x: np.modf(x, where=True), OptionError, "use numpy.modf"),
        (lambda x: np.add(x, 1, out=np.empty((2, 3))), OptionError, "assign the result"),
        (lambda x: x @ pack_dense(np.ones((3, 2, 2)), "sparse(3)"), ArrayError, "einsum"),
        (lambda x: x @ x, ArrayError, "dimension 0 has size 2, and dimension 1 of operands"),
        (lambda x: einsum("ij,jk->ik", x + 1, x.T), FormatError, "to_dense"),
        (lambda x: einsum("ij,j->i", x, np.ones(3), format="CSR"), OptionError, "dense array"),
        (lambda x: np.nan_to_num(x, nan=np.ones(3)), OptionError, "use numpy.nan_to_num"),
        (lambda x: np.median(x), TypeError, "to_dense"),
        (lambda x: x == x, TypeError, "equals"),
        (lambda x: x + "a", OptionError, "open it"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, match):
    with pytest.raises(error, match=match):
        call(pack_dense([[0, 2.0, 1], [3, 0, 0]], "CSR"))


def test_a_scalar_tensor():
    one, two = pack((), [2.0], (), "element"), pack((), [3], (), "element")
    assert (one * two).to_dense() == 6
    assert (one + 1).to_dense() == 3
    assert isinstance(einsum("->", one), np.float64)
    with pytest.raises(TypeError, match="no length"):
        list(one)


@pytest.mark.parametrize("name", ["longdouble", "clongdouble"])
def test_values_that_loops_do_not_have_are_refused(name):
    tensor = pack([[0, 2]], np.ones(2, name), 4, "CVEC")
    assert (tensor + tensor).dtype == name
    for call in (lambda: tensor - tensor[::-1], lambda: tensor * np.ones(4)):
        with pytest.raises(ArrayError, match=r"arithmetic does not support .*; convert it by astype"):
            call()


def test_arrays_that_two_tensors_share_stay_shared():
    tensor = pack_dense(np.eye(4), "CSR")
    made = tensor / (tensor * 4)
    assert np.shares_memory(made.arrays["indices_1"], tensor.arrays["indices_1"])
    assert made.values.tolist() == [0.25] * 4


@pytest.mark.usefixtures("plain_nests")
def test_operands_of_other_libraries():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    tensor, matrix = pack_dense(np.eye(3), "CSR"), scipy_sparse.csr_array(np.ones((3, 3)))
    assert (tensor + matrix).to_dense().tolist() == (np.eye(3) + 1).tolist()
    assert (tensor @ matrix).to_dense().tolist() == np.ones((3, 3)).tolist()


def test_a_product_counts_no_entries(monkeypatch):
    """To count those of a view or a file reads it."""
    bl.write(stored := {}, pack_dense(np.eye(3), "CSR"))
    tensor = bl.open(stored)[::2]
    monkeypatch.setattr(Tensor, "nnz", property(lambda _: pytest.fail("the entries were counted")))
    assert (tensor @ np.ones(3)).tolist() == [1, 1]


def test_a_chain_of_many_dimensions():
    rng = np.random.default_rng(1)
    a, b = rng.random((3, 2, 2, 2, 3)) < 0.3, rng.random((3, 2, 2, 2, 3)) < 0.3
    with nests():
        for x, y in itertools.product(["sparse(5)", "dense, sparse, band, dense, sparse", "bitmap(5)"], repeat=2):
            assert (pack_dense(a, x) * pack_dense(b, y)).to_dense().tolist() == (a & b).tolist()
            assert (pack_dense(a, x) | pack_dense(b, y)).to_dense().tolist() == (a | b).tolist()


def test_loops_that_no_cursor_runs_are_converted():
    class Jumping(Sparse):
        def loop(self, root):
            return "for q in range(ptr[p], ptr[p + 1]):\n    i0 = idx0[q]\n    if i0 == 1:\n        continue\n    yield"

    assert all(is_walked(level, False) for level in (Sparse(1), Dense(1), Band(1)))
    assert not is_walked(Jumping(1), False)
    assert not is_walked(Sparse(2), False)
    assert not is_walked(LEVELS["hashed"](1), False)


@given(data=st.data())
def test_operands_in_files_are_read_in_parts(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=3)))
    (a, array), (b, other) = beside(data, shape), beside(data, shape)
    assume(not a.fill_value and not b.fill_value)
    letters, memory = "ijk"[: a.ndim], data.draw(st.sampled_from([3000, 2**28]))
    size = int(np.prod(shape[1:]))
    with nests():
        both = np.multiply(array, other)
        found = einsum(f"{letters},{letters}->{letters}", opened(a), b, memory=memory)
        np.testing.assert_array_equal(found.to_dense(), both)
        spec = f"{letters},{'lmn'[: a.ndim - 1]}{letters[-1]}->{letters[:-1]}{'lmn'[: a.ndim - 1]}"
        work = np.result_type(array, other)
        work = np.dtype({"b": "i8", "i": "i8", "f": "f8"}[work.kind])
        expected = np.einsum(spec, array.astype(work), other.astype(work))
        found = einsum(spec, opened(a), b, memory=memory)
        np.testing.assert_array_equal(found.to_dense(), expected)
    assert size >= 1


def test_a_file_without_cells_is_not_read_in_parts(tmp_path):
    bl.write(tmp_path / "a.h5", pack([[], []], [], (1000, 0), "CSR"))
    other = pack([[1], [0]], [1.0], (1000, 4), "CSR")
    assert einsum("ij,ik->jk", bl.open(tmp_path / "a.h5"), other, memory=300).shape == (0, 4)


@pytest.mark.slow
def test_a_product_of_a_file_that_is_larger_than_memory(tmp_path):
    rng = np.random.default_rng(0)
    coords = [rng.integers(0, 2000, 60_000) for _ in range(2)]
    large = pack(coords, rng.integers(1, 9, 60_000).astype(float), (2000, 2000), "CSR", duplicates="first")
    large = large.with_labels({0: [f"r{k}" for k in range(2000)]})
    bl.write(tmp_path / "a.h5", large)
    small = pack_dense(np.eye(2000)[:, :30], "CSR")
    with bl.open(tmp_path / "a.h5") as source:
        made = einsum("ij,jk->ik", source, small, memory=2**20)
        assert inside(source).source.lazy
        assert made.equals(large @ small)
        assert made.labels(0).tolist()[:2] == ["r0", "r1"]
        both = einsum("ij,ij->ij", source, large, memory=2**20)
        assert inside(source).source.lazy
        assert both.equals(large * large)
        assert einsum("ij,jk->ik", small.T, source, memory=2**20).equals(small.T @ large)
        assert inside(source).source.lazy
        rank = pack([*coords, coords[0] % 3], np.ones(60_000), (2000, 2000, 3), "CSF", duplicates="first")
        assert einsum("ij,ij->", source, large, memory=2**20) == (large.values**2).sum()
        assert einsum("ij,ijk->k", source, rank, memory=2**20).equals(einsum("ij,ijk->k", large, rank))
        assert inside(source).source.lazy
        with pytest.raises(bl.LimitError, match="memory="):
            einsum("ij,jk->ik", source.T, source, memory=2**18)
