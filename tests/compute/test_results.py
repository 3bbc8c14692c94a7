"""The metadata and the type of a result of several operands, whatever computes it."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_compute import nests, opened, plain_nests  # noqa: F401 (a fixture)

import binsparse_levels as bl
from binsparse_levels import ArrayError, LabelError, OptionError, Tensor, einsum, pack, pack_dense
from binsparse_levels.tensors.tensor import inside

LABELS = {
    "texts": ["a", "bé", "c"], "turned": ["c", "bé", "a"], "numbers": np.array([1.5, np.nan, 3]),
    "times": np.array(["2026-01-01", "NaT", "2026-01-02"], "M8[D]"),
}  # fmt: skip
DIMS = st.sampled_from([None, ("x", "y", "z"), ("y", "x", "z"), ("u", "v", "w"), ("dim_1", "dim_0", "dim_2")])


def named(data, tensor):
    """The tensor with names and labels, and both by dimension; None for a dimension without."""
    rank = tensor.ndim
    dims = data.draw(DIMS)
    texts = [data.draw(st.sampled_from([None, None, "texts", *LABELS])) for _ in range(rank)]
    if dims is None and not any(texts):
        return tensor, [None] * rank, texts
    labels = {k: LABELS[x][:n] for k, (x, n) in enumerate(zip(texts, tensor.shape, strict=True)) if x}
    names = [None] * rank if dims is None or "dim_1" in dims else list(dims[:rank])
    return tensor.with_labels(labels, dims=dims and dims[:rank]), names, texts


@given(data=st.data())
def test_a_result_has_the_names_of_its_first_operand_and_labels_on_which_all_agree(data):
    """Products of any specification, functions of cells, of files, in parts, with arrays."""
    sizes, operands, texts = dict(zip("abc", data.draw(st.tuples(*[st.integers(1, 3)] * 3)), strict=True)), [], []
    names, labels = {x: [] for x in "abc"}, {x: set() for x in "abc"}
    cells = data.draw(st.booleans())
    for _ in range(2 if cells else data.draw(st.integers(2, 3))):
        text = texts[0] if cells and texts else data.draw(st.text(alphabet="abc", min_size=1, max_size=3))
        text = "".join(dict.fromkeys(text)) if cells else text
        array = np.ones([sizes[x] for x in text])
        tensor, own, given = named(data, pack_dense(array, f"sparse({len(text)})"))
        for letter, name, known in zip(text, own, given, strict=True):
            names[letter] += [name] if name else []
            labels[letter] |= {tuple(map(str, LABELS[known][: sizes[letter]]))} if known else set()
        texts.append(text)
        operands.append(opened(tensor) if data.draw(st.booleans()) else tensor)
    kept = (
        texts[0] if cells else "".join(data.draw(st.lists(st.sampled_from(sorted(set("".join(texts)))), unique=True)))
    )
    if not cells and data.draw(st.booleans()):
        texts.append(kept[:1])
        operands.append(np.ones([sizes[x] for x in kept[:1]]))

    def call():
        memory = data.draw(st.sampled_from([None, 3000]))
        return np.add(*operands) if cells else einsum(f"{','.join(texts)}->{kept}", *operands, memory=memory)

    with nests():
        if any(len(labels[x]) > 1 for x in set("".join(texts))):
            with pytest.raises(LabelError, match=r"different labels here; .* by with_labels\({'.*': None}\)"):
                call()
            return
        made = call()
    stored = [x for x in operands if isinstance(x, Tensor)]
    if not isinstance(made, Tensor) or all(inside(x).metadata.labels is None for x in stored):
        return
    first = [names[x][0] if names[x] else None for x in kept]
    assert made.dims == tuple(x if x and x not in first[:k] else f"dim_{k}" for k, x in enumerate(first))
    for k, x in enumerate(kept):
        assert made.labels(k) is None if not labels[x] else (tuple(map(str, made.labels(k))),) == tuple(labels[x])
    bl.write(store := {}, made)
    again = bl.read(store)
    assert again.equals(made)
    assert again.dims == made.dims == bl.to_xarray(again).dims


def test_names_that_are_lost_are_in_the_log(caplog):
    tensor = pack_dense(np.eye(2), "CSR", dims=["src", "dst"])
    with caplog.at_level("DEBUG", "binsparse_levels"):
        assert (tensor + tensor.T).dims == (tensor @ tensor).dims == ("src", "dst")
        assert "dimension 1 of the result is dst, not src as in an operand" in caplog.text
        assert (tensor @ tensor.T).dims == ("src", "dim_1")
        assert "is dim_1, not src" in caplog.text


def test_edges_with_other_labels_of_both_dimensions():
    labels = {"src": ["a", "b"], "dst": ["b", "c"]}
    tensor = pack_dense(np.eye(2), "CSR", dims=["src", "dst"], labels=labels)
    with pytest.raises(LabelError, match="one list for both"):
        tensor + tensor.T
    tensor = pack_dense(np.ones((2, 3)), "CSR")
    with pytest.raises(ArrayError, match="the same labels for both dimensions"):
        tensor + tensor.T


def test_labels_that_differ_are_those_of_other_things():
    tensor = pack_dense(np.eye(2), "CSR")

    def differ(a, b):
        one, two = (tensor.with_labels({0: x}) for x in (a, b))
        with pytest.raises(LabelError, match="dim_0"):
            one + two
        assert (one + two.with_labels({"dim_0": None})).labels(0).size == len(a)

    differ(["1", "2"], [1, 2])
    differ([1, 2], [1, 3])
    differ([True, False], [1, 0])
    differ(np.array([1.0, np.nan]), np.array([np.nan, 1.0]))
    for spec, *operands in (
        ("ii->", tensor),
        ("ii->i", tensor),
        ("ii,i->", tensor, np.ones(2)),
        ("ii,ij->j", tensor, tensor),
    ):
        with pytest.raises(LabelError, match="dim_1"):
            einsum(spec, operands[0].with_labels({0: ["a", "b"], 1: ["b", "a"]}), *operands[1:])
    same = tensor.with_labels({0: np.array([1, 2], "i8")}) + tensor.with_labels({0: np.array([1, 2], "f4")})
    assert same.labels(0).tolist() == [1, 2]


@pytest.mark.usefixtures("plain_nests")
@pytest.mark.parametrize("fill", [None, 0])
def test_the_fill_value_of_a_product_has_the_type_of_the_product(fill):
    one = pack_dense(np.eye(2, dtype="i1"), "CSR", fill_value=fill).with_attributes({"unit": "m"})
    for made in (
        one @ one,
        einsum("ij,ij->ij", one, one),
        einsum("ij,jk,k->ik", one, one, np.ones(2, "i1")),
        one * one,
    ):
        assert made.fill_value == fill
        assert fill is None or made.fill_value.dtype == made.dtype
        assert dict(made.attributes) == {"unit": "m"}


@pytest.mark.usefixtures("plain_nests")
@pytest.mark.parametrize(
    ("function", "number", "zero"),
    [
        (np.multiply, np.nan, True), (np.multiply, np.inf, True), (np.true_divide, 0.0, True),
        (np.floor_divide, 0.0, True), (np.mod, 0.0, False), (np.power, 0.0, False), (np.add, 1.0, False),
    ],
)  # fmt: skip
def test_a_number_an_array_and_a_tensor_of_equal_numbers_are_the_same_operand(function, number, zero):
    """A product with a cell that is not stored is 0, and so is such a cell divided by anything."""
    dense = np.array([[1.0, 0], [0, 2.0]])
    tensor = pack_dense(dense, "CSR")
    with np.errstate(all="ignore"):
        expected = function(dense, number)
        expected[dense == 0] = 0 if zero else expected[dense == 0]
        full, empty = np.full((2, 2), number), pack([[], []], np.empty(0), (2, 2), "COO", fill_value=number)
        stored = pack_dense(full, "COO", fill_value=7)
        for other in (number, np.float64(number), np.array(number), full[0], full, empty, stored):
            np.testing.assert_array_equal(function(tensor, other).to_dense(), expected)
            if function is np.multiply:
                np.testing.assert_array_equal(function(other, tensor).to_dense(), expected)
        assert function(tensor, number).fill_value == expected[0, 1] or not zero


@pytest.mark.usefixtures("plain_nests")
def test_a_sum_of_no_entries_stays_zero_in_a_product():
    empty, nan = pack([[]], np.empty(0), (3,), "CVEC"), pack((), [np.nan], (), "element")
    for spec, *operands in (
        ("i,->", empty, nan), ("i,->", empty, np.array(np.nan)),
        ("i,i,->", empty, empty, nan), ("i,j,->", empty, empty, nan),
    ):  # fmt: skip
        assert einsum(spec, *operands) == 0
    assert einsum("i,j->j", empty, pack([[1]], [np.inf], (2,), "CVEC")).to_dense().tolist() == [0, 0]


@pytest.mark.usefixtures("plain_nests")
@pytest.mark.parametrize("stored", [1, 2])
def test_the_type_of_a_product_is_that_of_numpy(stored):
    def numbers(value, dtype):
        tensor = pack([[0], [0]], np.array([value], dtype), (1, 1), "CSR")
        return tensor, tensor if stored == 2 else tensor.to_dense(), tensor.to_dense()

    for value, dtype_of_values, dtype in (
        (2**40, "i8", "f8"), (100, "i1", "i8"), (100, "i1", "f2"), (200, "u1", "u2"), (1.5, "f8", "f4"), (3, "?", "i4"),
        (1 + 2j, "c8", "c16"), (2**62, "u8", "f8"), (2, "f2", "f2"),
    ):  # fmt: skip
        one, other, array = numbers(value, dtype_of_values)
        for spec in ("ij,ij->ij", "ij,jk->ik", "ij,ij->"):
            found = einsum(spec, one, other, dtype=dtype)
            found = found.to_dense() if isinstance(found, Tensor) else found
            np.testing.assert_array_equal(found, np.einsum(spec, array, array, dtype=dtype, casting="same_kind"))
            assert found.dtype == dtype
    for value, dtype_of_values, dtype in ((1j, "c8", "f8"), (1.5, "f8", "i8"), (2, "i1", "?")):
        one, other, _ = numbers(value, dtype_of_values)
        with pytest.raises(OptionError, match=f"which is not cast to {np.dtype(dtype)}; leave it out"):
            einsum("ij,ij->ij", one, other, dtype=dtype)


@pytest.mark.usefixtures("plain_nests")
def test_a_structure_stays_beside_a_real_0d_array_only():
    tensor = pack([[1], [0]], [2 + 1j], (2, 2), "CSR", structure="hermitian_lower")
    for function, factor in itertools.product((np.multiply, np.true_divide), (2.0, 1j)):
        for number in (factor, np.array(factor), np.array(factor)[()]):
            made = function(tensor, number)
            np.testing.assert_array_equal(made.to_dense(), function(tensor.to_dense(), factor))
            assert made.structure == (None if factor == 1j else "hermitian_lower")


TYPES = "?", "i1", "u1", "i8", "u8", "f2", "f4", "c8", "c16", "bfloat16", "float8_e5m2"


def type_of(name):
    return np.dtype(name if len(name) < 4 else getattr(pytest.importorskip("ml_dtypes"), name))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        pytest.param(*pair, marks=[] if pair == ("f2", "f2") else pytest.mark.slow)
        for pair in [(x, x) for x in TYPES] + [("i8", "u8"), ("u1", "f2"), ("f2", "bfloat16"), ("c8", "float8_e5m2")]
    ],
)
def test_operands_of_any_type_are_compiled(one, two):
    """Interpreted loops hide the types that numba does not have."""
    dense, other = (
        np.array([[0, 2, 0], [3, 0, 1]]).astype(type_of(one)),
        np.array([[1, 3, 0], [2, 1, 1]]).astype(type_of(two)),
    )
    tensor, stored, number = pack_dense(dense, "CSR"), pack_dense(other, "CSR"), other[0, 1]

    def equal(found, expected, *, typed=True):
        found = np.asarray(found.to_dense() if isinstance(found, Tensor) else found)
        assert found.dtype == expected.dtype or not typed
        np.testing.assert_array_equal(found.astype("c16"), expected.astype("c16"))

    for call in (np.multiply, np.add, np.maximum):
        try:
            expected, scalar = call(dense, other), call(dense, number)
        except TypeError:  # numpy has no common type
            continue
        equal(call(tensor, stored), expected)
        equal(call(tensor, np.array(number)), scalar)
        if call is np.multiply:
            equal(tensor * other, expected)
            equal(other * tensor, expected)
    wide = [x.astype("c16") for x in (dense, other)]
    for spec in ("ij,ij->ij", "ij,kj->ik", "ij,kj->"):
        for operand in (other, stored):
            equal(einsum(spec, tensor, operand), np.einsum(spec, *wide), typed=False)
    equal(einsum("ij,->ij", tensor, np.array(number)), np.einsum("ij,->ij", wide[0], number), typed=False)
    equal(tensor @ other.T, wide[0] @ wide[1].T, typed=False)
    equal(other.T @ tensor, wide[1].T @ wide[0], typed=False)


@pytest.mark.usefixtures("plain_nests")
@pytest.mark.parametrize("name", TYPES)
def test_a_minimum_has_the_type_of_the_values(name):
    dense = np.array([[0, 2, 0], [3, 1, 1]]).astype(type_of(name))
    tensor = pack_dense(dense, "CSR")
    for how in ("min", "max"):
        found = bl.reduce(tensor, 1, how)
        assert found.dtype == dense.dtype
        np.testing.assert_array_equal(found, getattr(dense, how)(1))
        if name[0] not in "?iu":  # without entries, it is NaN
            stored = bl.reduce(tensor[:, :1], 1, how, cells="stored")
            assert stored.dtype == dense.dtype
            assert (stored != stored).tolist() == [True, False]


@pytest.mark.usefixtures("plain_nests")
@pytest.mark.parametrize("spec", ["ii,i->i", "ii,k->k", "ii,k->ik", "ij,k->jk", "ij,k->k", "ij,k->"])
def test_sums_of_an_index_of_one_operand_are_read_in_parts(spec):
    square = pack_dense(np.arange(400.0).reshape(20, 20), "CSC")
    vector = pack([[0, 3]], [1.0, 2.0], 20, "CVEC")
    lower = np.tril_indices(20, -1)
    hermitian = pack(lower, np.arange(190) + 1j, (20, 20), "CSR", structure="hermitian_lower")
    mapped = square.convert("sparse", map="(0 1)")
    for tensor, turn in itertools.product((square, square.T, hermitian, mapped), (False, True)):
        bl.write(store := {}, tensor)
        source = bl.open(store)
        tensor, source = (x[::-1, ::-1] if turn else x for x in (tensor, source))
        expected = np.einsum(spec, tensor.to_dense(), vector.to_dense())
        found = einsum(spec, source, vector, memory=6000)
        np.testing.assert_array_equal(found.to_dense() if isinstance(found, Tensor) else found, expected)
        assert inside(source).source.lazy or (turn and tensor.structure is not None)
