"""The public face: what a Tensor is around one's own arrays, and what it does."""

import pickle

import numpy as np
import pytest
from helpers.strategies import any_tensors, cases
from hypothesis import assume, given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import (
    ArrayError,
    BinsparseError,
    FormatError,
    LimitError,
    Limits,
    Tensor,
    pack,
    pack_dense,
    testing,
)
from binsparse_levels.thresholds import THRESHOLDS

pytestmark = pytest.mark.usefixtures("numpy_and_kernels")

ARRAYS = {"pointers_to_1": np.array([0, 1, 1, 3]), "indices_1": np.array([2, 0, 4])}


def csr(**options):
    return Tensor("CSR", (3, 5), ARRAYS, np.array([1.0, 2.0, 3.0]), **options)


def test_around_ones_own_arrays_without_a_copy():
    values = np.array([1.0, 2.0, 3.0])
    tensor = Tensor("CSR", (3, 5), ARRAYS, values)
    assert np.shares_memory(tensor.arrays["indices_1"], ARRAYS["indices_1"])
    assert np.shares_memory(tensor.values, values)
    assert (tensor.shape, tensor.ndim, tensor.size, tensor.dtype) == ((3, 5), 2, 15, np.float64)
    assert (tensor.number_of_stored_values, tensor.fill_value, tensor.iso) == (3, None, False)
    assert tensor.nbytes == 3 * 8 + 7 * 8
    assert values.flags.writeable
    for array in (*tensor.arrays.values(), tensor.values):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9
    with pytest.raises(TypeError):
        tensor.arrays["indices_1"] = values
    coords, stored = tensor.unpack()
    assert [x.tolist() for x in coords] == [[0, 2, 2], [2, 0, 4]]
    assert all(x.dtype == np.int64 for x in coords)
    assert stored.tolist() == [1, 2, 3]


@given(st.data())
def test_blocks_of_rows_and_back(data):
    """All cells of the blocks with entries are stored; without the map they are entries."""
    height, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    shape = height * data.draw(st.integers(0, 5)), width * data.draw(st.integers(0, 5))
    dtype = data.draw(st.sampled_from(["bool", "int16", "float32", "float64", "complex128", "float16"]))
    cells = np.random.default_rng(data.draw(st.integers(0, 99))).random(shape) < data.draw(st.floats(0, 1))
    cells = cells.astype(dtype)
    fill = data.draw(st.sampled_from([None, 0, 1]))
    rows = pack(cells.nonzero(), cells[cells != 0], shape, "CSR", fill_value=fill, dims=("a", "b"))
    map = bl.IndexMap.blocks(shape, (height, width))
    made = rows.convert("dense, sparse, dense(2)", map=map)
    back = made.without_map("CSR")
    made.check()
    back.check()
    some = set(zip(*(x.tolist() for x in map.forward(cells.nonzero())[:2]), strict=True))
    assert made.stored.number_of_stored_values == back.nnz == len(some) * height * width
    assert made.dims == back.dims == ("a", "b")
    for tensor in (made, back):
        np.testing.assert_array_equal(tensor.to_dense(), rows.to_dense())
        assert tensor.fill_value == rows.fill_value


def test_kernels_make_blocks_and_list_their_cells(monkeypatch):
    dense = np.arange(48.0).reshape(6, 8) % 5 // 2
    rows = pack_dense(dense, "CSR", fill_value=0)
    monkeypatch.setattr(THRESHOLDS, "numpy_entries", -1)
    made = rows.convert("dense, sparse, dense(2)", map=bl.IndexMap.blocks((6, 8), (2, 4)))
    back = made.without_map("CSR")
    monkeypatch.undo()
    assert made.stored.shape == (3, 2, 2, 4)
    for tensor in (made, back):
        np.testing.assert_array_equal(tensor.to_dense(), dense)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64", ">i4"])
def test_index_types_are_kept(dtype):
    tensor = Tensor("CSR", (3, 5), {name: x.astype(dtype) for name, x in ARRAYS.items()}, [1.0, 2.0, 3.0])
    assert {x.dtype for x in tensor.arrays.values()} == {np.dtype(dtype)}
    assert tensor.equals(csr())
    for format in ("CSC", "COO", "DCSR", "dense(2)"):
        assert tensor.convert(format).equals(csr().convert(format))


@pytest.mark.parametrize(
    ("arrays", "values", "place"),
    [
        ({"indices_1": [0]}, [1.0], "pointers_to_1"),
        ({**ARRAYS, "indices_0": [0]}, [1.0], "indices_0"),
        ({**ARRAYS, "pointers_to_1": [0, 1, 3]}, [1, 2, 3], "pointers_to_1"),
        ({**ARRAYS, "pointers_to_1": []}, [1, 2, 3], "pointers_to_1"),
        ({**ARRAYS, "pointers_to_1": [0, 1, 1, 2]}, [1, 2, 3], r"pointers_to_1\[3\]"),
        ({**ARRAYS, "pointers_to_1": [0, 2**62, 1, 3]}, [1, 2, 3], r"pointers_to_1\[2\]"),
        ({**ARRAYS, "pointers_to_1": [0.0, 1.0, 1.0, 3.0]}, [1, 2, 3], "pointers_to_1"),
        ({**ARRAYS, "pointers_to_1": 3}, [1, 2, 3], "pointers_to_1"),
        ({**ARRAYS, "indices_1": [[2, 0, 4]]}, [1, 2, 3], "indices_1"),
        ({**ARRAYS, "indices_1": [2, 0, 5]}, [1, 2, 3], r"indices_1\[2\]: 5 is outside"),
        ({**ARRAYS, "indices_1": [2, 4, 0]}, [1, 2, 3], r"indices_1\[2\].*in fiber 2"),
        (ARRAYS, [1, 2], "values"),
        (ARRAYS, [[1, 2, 3]], "values"),
        (ARRAYS, [1, 2, None], "values"),
    ],
)
def test_faults_of_arrays_name_the_place(arrays, values, place):
    with pytest.raises(ArrayError, match=place):
        Tensor("CSR", (3, 5), arrays, values)


def test_checks_can_be_left_out_by_name():
    unsorted = {**ARRAYS, "indices_1": [2, 4, 0]}
    assert Tensor("CSR", (3, 5), unsorted, [1, 2, 3], check="trusted").to_dense()[2].tolist() == [3, 0, 0, 0, 2]
    with pytest.raises(ArrayError):
        Tensor("CSR", (3, 5), {**ARRAYS, "indices_1": [2, 0, 9]}, [1, 2, 3], check="trusted")
    with pytest.raises(ArrayError):
        Tensor("CSR", (3, 5), unsorted, [1, 2, 3], check="none").check()
    with pytest.raises(ValueError, match="check: expected"):
        csr(check="some")


@pytest.mark.parametrize("shape", [(3,), (3, 5, 1), (-1, 5), (3, 2**63)])
def test_shapes_that_do_not_fit(shape):
    with pytest.raises(FormatError):
        Tensor("CSR", shape, ARRAYS, [1, 2, 3])
    with pytest.raises(FormatError):
        csr().convert("CVEC")


@pytest.mark.parametrize("shape", ["35", (3, 5.0), (3, None)])
def test_what_is_no_shape(shape):
    with pytest.raises(TypeError):
        Tensor("CSR", shape, ARRAYS, [1, 2, 3])


def test_an_integer_is_a_shape_of_one_dimension():
    assert pack([[1]], [5], 3, "CVEC").shape == (3,)
    assert pack([[1]], [5], np.array([3]), "CVEC").shape == (3,)


@given(cases(), st.booleans())
def test_pickling(case, scalar):
    tensor = pack(
        case.coords, 3.5 if scalar else case.values, case.shape, case.format, fill_value=1, attributes={"a": [1]}
    )
    again = pickle.loads(pickle.dumps(tensor))
    assert again.equals(tensor)
    assert (again.format, again.dtype, again.iso) == (tensor.format, tensor.dtype, tensor.iso)
    assert again.attributes == tensor.attributes
    assert len(pickle.dumps(pack([np.arange(10**5)], 1, 10**5, "CVEC"))) < 10**6


# pack_dense and to_dense


@given(cases(), st.data())
def test_dense_and_back(case, data):
    dense = pack(case.coords, case.values, case.shape, case.format).to_dense()
    tensor = pack_dense(dense, case.format)
    assert np.array_equal(tensor.to_dense(), dense)
    assert tensor.dtype == dense.dtype
    assert tensor.fill_value == 0
    if case.shape and not any(level.padded for level in case.format.levels):
        assert tensor.number_of_stored_values == np.count_nonzero(dense)
    pattern = np.array(data.draw(st.lists(st.booleans(), min_size=dense.size, max_size=dense.size)), bool)
    marked = pack_dense(dense, case.format, fill_value=None, pattern=pattern.reshape(dense.shape))
    assert marked.fill_value is None
    assert np.array_equal(marked.to_dense(), np.where(pattern.reshape(dense.shape), dense, np.zeros((), dense.dtype)))


def test_nan_is_a_fill_value_like_another():
    array = np.array([[np.nan, 1.0], [0.0, np.nan]])
    tensor = pack_dense(array, "CSR", fill_value=np.nan)
    assert tensor.number_of_stored_values == 2
    assert np.array_equal(tensor.to_dense(), array, equal_nan=True)
    assert tensor.equals(tensor.convert("COO"))
    assert np.array_equal(tensor.convert("dense(2)").drop_fill().to_dense(), array, equal_nan=True)
    assert pack_dense(array, "dense(2)", fill_value=0).convert("CSR").drop_fill().number_of_stored_values == 3


def test_to_dense_fills_with_what_it_is_told():
    assert csr().to_dense(fill=7)[1].tolist() == [7] * 5
    assert csr(fill_value=3).to_dense()[1].tolist() == [3] * 5
    with pytest.raises(LimitError, match="dense_bytes"):
        pack([[0], [0]], [1.0], (2**40, 2**40), "COO").to_dense()
    with pytest.raises(LimitError):
        csr().to_dense(limits=Limits(dense_bytes=10))
    with pytest.raises(TypeError, match="to_dense"):
        np.asarray(csr())


@pytest.mark.parametrize(
    ("dtype", "fill"), [("int8", 300), ("int8", 0.5), ("bool", 2), ("float64", 1j), ("int8", [1]), ("uint8", -1)]
)
def test_fill_values_that_the_type_cannot_hold(dtype, fill):
    with pytest.raises(ArrayError, match="fill_value"):
        pack([[0]], np.zeros(1, dtype), 3, "CVEC", fill_value=fill)


def test_no_fill_value_is_zero_where_a_number_is_needed():
    assert csr().fill_value is None
    assert csr().equals(csr(fill_value=0))
    assert not csr().equals(csr(fill_value=1))
    assert csr(fill_value=0).equals(csr(fill_value=0))
    assert csr(fill_value=np.nan).equals(csr(fill_value=np.nan))
    assert not csr().equals(3)


# Padding, iso


def test_conversion_pads_and_drop_fill_takes_away():
    tensor = csr(fill_value=9)
    padded = tensor.convert("sparse, dense")
    assert padded.number_of_stored_values == 10
    assert np.array_equal(padded.to_dense(), tensor.to_dense())
    assert padded.convert("CSR").drop_fill().equals(tensor)
    assert tensor.drop_fill() is tensor


def test_iso():
    tensor = pack([[0, 2], [1, 1]], 7, (3, 3), "CSR")
    assert tensor.iso
    assert tensor.values.tolist() == [7, 7]
    assert tensor.unpack()[1].tolist() == [7, 7]
    assert tensor.nbytes < 8 * 8
    for format in ("CSC", "COO", "DCSR"):
        assert tensor.convert(format).iso
    assert not tensor.convert("dense(2)").iso
    assert pack([[0, 2], [1, 1]], 7, (3, 3), "dense(2)", fill_value=7).iso
    assert tensor.astype(float).iso
    assert Tensor("CSR", (3, 5), ARRAYS, 5).iso
    assert not pack([[0, 0]], 7, 3, "CVEC", duplicates="sum").iso
    assert pack([[0, 0]], 7, 3, "CVEC", duplicates="sum").values.tolist() == [14]
    assert pack([[0, 1]], 7, 3, "CVEC", duplicates="sum").iso
    assert pack([[0, 0]], 7, 3, "CVEC", duplicates="first").iso
    assert pack([[0, 1, 2]], 7, 3, "DVEC").iso
    assert not pack([[0, 1]], [7, 7], 3, "CVEC").iso
    assert pack([[], []], 7, (3, 3), "CSR").iso
    assert pack((), 7, (), "element").to_dense() == 7


@given(cases())
def test_astype_casts_values_alone(case):
    tensor = pack(case.coords, case.values, case.shape, case.format, fill_value=1)
    cast = tensor.astype(np.complex128)
    assert cast.dtype == cast.fill_value.dtype == np.complex128
    assert np.array_equal(cast.to_dense(), tensor.to_dense().astype(np.complex128))
    assert all(np.shares_memory(cast.arrays[name], x) for name, x in tensor.arrays.items() if x.size)


def test_values_of_another_byte_order():
    tensor = pack([[2, 0]], np.array([1.5, 2.5], ">f8"), 3, "CVEC")
    assert tensor.values.tolist() == [2.5, 1.5]
    assert tensor.dtype.isnative


# Structures

FULL = {
    "symmetric": np.array([[1, 2, 0], [2, 0, 5], [0, 5, 3]]),
    "hermitian": np.array([[1, 2 + 1j, 0], [2 - 1j, 0, 5j], [0, -5j, 3]]),
    "skew_symmetric": np.array([[0, 2, 0], [-2, 0, 5], [0, -5, 0]]),
}


@pytest.mark.parametrize("triangle", ["lower", "upper"])
@pytest.mark.parametrize("kind", FULL)
@pytest.mark.parametrize("format", ["CSR", "CSC", "DCSR", "COOC", "sparse, dense", "dense(2)"])
def test_structures(kind, triangle, format):
    full = FULL[kind]
    half = np.tril(full) if triangle == "lower" else np.triu(full)
    coords = np.nonzero(half)
    tensor = pack(coords, half[coords], (3, 3), "COO", structure=f"{kind}_{triangle}").convert(format)
    assert np.array_equal(tensor.to_dense(), full)
    assert tensor.structure == f"{kind}_{triangle}"
    tensor.check()
    back = tensor.convert("CSR")
    assert np.array_equal(back.to_dense(), full)
    assert back.equals(pack_dense(full, "CSR", fill_value=None)) == (format not in ("sparse, dense", "dense(2)"))
    assert pickle.loads(pickle.dumps(tensor)).structure == tensor.structure
    assert "symmetric" in repr(tensor) or "hermitian" in repr(tensor)


def test_structures_that_cannot_be():
    with pytest.raises(FormatError, match="square"):
        csr(structure="symmetric_lower")
    with pytest.raises(FormatError, match="unknown structure"):
        csr(structure="round")
    with pytest.raises(FormatError, match="complex"):
        pack([[0], [0]], [1.0], (2, 2), "CSR", structure="hermitian_lower")
    with pytest.raises(FormatError, match="needs numbers"):
        pack([[1], [0]], np.array([1], "M8[s]"), (2, 2), "CSR", structure="skew_symmetric_lower")
    with pytest.raises(ArrayError, match=r"\(0, 1\) is outside the triangle"):
        pack([[0], [1]], [1.0], (2, 2), "CSR", structure="symmetric_lower")
    with pytest.raises(BinsparseError):
        pack([[1], [0]], [1j], (2, 2), "CSR", structure="hermitian_lower").astype(np.int8)


def test_repr_shows_the_level_tree():
    text = repr(pack([[0, 1], [2, 3], [0, 4]], 1, (2, 4, 5), "dense, sparse(2) @ 2, 0, 1"))
    assert "2 × 4 × 5 int64, iso, 2 stored values, dense, sparse(2) @ 2, 0, 1" in text
    assert "dense: dimension 2 (size 5), 1 fiber" in text
    assert "pointers_to_1[6], indices_1[2], indices_2[2]" in text
    assert "1 stored value," in repr(pack((), 7, (), "element"))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint64])
@pytest.mark.parametrize("values", [np.float32, np.complex128])
def test_index_arrays_of_any_integer_type(dtype, values):
    coords = [[0, 2, 2, 2], [1, 0, 3, 3], [4, 4, 0, 1]]
    tensor = pack(coords, np.arange(1, 5).astype(values), (3, 4, 5), "dense, sparse, sparse")
    other = Tensor(tensor.format, tensor.shape, {k: x.astype(dtype) for k, x in tensor.arrays.items()}, tensor.values)
    np.testing.assert_array_equal(other.to_dense(), tensor.to_dense())
    assert other.equals(tensor)
    assert other.convert("sparse(3) @ 2, 1, 0").equals(tensor)


# Cases that hostile use found


def test_empty_arrays_that_numpy_does_not_have():
    with pytest.raises(LimitError):
        pack([[]] * 3, [], (0, 2**63 - 1, 2**63 - 1), "sparse(3)").to_dense()


def test_dense_arrays_of_rank_64():
    tensor = pack([[0]] * 64, [1.0], (1,) * 63 + (2,), "sparse(64)")
    assert tensor.to_dense().ravel().tolist() == [1, 0]
    assert len(pack([[0]] * 70, [1.0], (1,) * 70, "dense(70)", limits=Limits(rank=100)).unpack()[0]) == 70


def test_structures_without_entries():
    for format in ("sparse, dense", "dense(2)"):
        tensor = pack([[], []], 2.0, (2, 2), format, structure="symmetric_lower")
        assert tensor.convert("CSR").to_dense().tolist() == [[0, 0], [0, 0]]


def test_a_fill_value_that_its_mirror_image_differs_from():
    tensor = pack([[1], [0]], [5.0], (3, 3), "COOR", structure="skew_symmetric_lower", fill_value=1.0)
    assert tensor.to_dense()[0].tolist() == [1, -5, 1]
    with pytest.raises(FormatError, match="other triangle"):
        tensor.convert("DMATR")
    assert tensor.convert("CSR").equals(tensor)


@pytest.mark.parametrize(
    ("dtype", "fill"), [("int64", 2**70), ("float32", 1e300), ("float16", 65536), ("float64", "1"), ("i4,f8", 0)]
)
def test_more_fill_values_that_the_type_cannot_hold(dtype, fill):
    with pytest.raises(ArrayError, match="fill_value"):
        pack([[0]], np.zeros(1, dtype), 3, "CVEC", fill_value=fill)


@pytest.mark.parametrize("dtype", ["M8[s]", "i4,f8"])
def test_pack_dense_of_other_types(dtype):
    array = np.zeros(4, dtype)
    array[1] = np.ones((), dtype) if dtype != "M8[s]" else np.datetime64(5, "s")
    tensor = pack_dense(array, "CVEC", fill_value=None)
    assert tensor.number_of_stored_values == 1
    assert np.array_equal(tensor.to_dense(), array)
    assert not tensor.equals(pack([[1]], [1.0], 4, "CVEC"))


@given(testing.tensors(max_rank=3))
def test_what_is_located_is_what_is_listed(tensor):
    places = list(np.ndindex(tensor.shape))
    columns = np.array(places, np.int64).reshape(len(places), tensor.ndim).T
    listed = set(zip(*(x.tolist() for x in tensor.unpack()[0]), strict=True))
    if tensor.ndim:
        assert [place in listed for place in places] == (tensor.locate(list(columns)) >= 0).tolist()


@given(data=st.data())
def test_arrays_of_either_byte_order(data):
    tensor = data.draw(any_tensors())
    assume(tensor.map is None)
    swapped = {name: x.astype(x.dtype.newbyteorder(">")) for name, x in tensor.arrays.items()}
    again = Tensor(
        tensor.format, tensor.shape, swapped, tensor.values, structure=tensor.structure, fill_value=tensor.fill_value
    )
    np.testing.assert_array_equal(again.to_dense(), tensor.to_dense())
    assert again[...].load().equals(tensor[...].load())


def test_a_kind_with_gaps_is_bounded_by_its_own_children():
    n, limits = 2000, Limits(dense_bytes=2**24)  # 8 bytes for each of all cells are more
    tensor = pack([np.arange(n)] * 2, 1.0, (n, n), "dense, n_of_m(1, n=1, m=250)", limits=limits)
    assert tensor.nbytes < 100 * n


class Foreign:
    """An array of another library, which has DLPack alone."""

    def __init__(self, array):
        self.array = np.asarray(array)

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arrays_with_dlpack_alone_are_taken():
    dense = np.array([[0, 1.5], [2, 0]])
    parts = {"pointers_to_1": Foreign([0, 1, 2]), "indices_1": Foreign([1, 0])}
    tensor = Tensor("CSR", (2, 2), parts, Foreign([1.5, 2.0]))
    packed = pack([Foreign([0, 1]), Foreign([1, 0])], Foreign([1.5, 2.0]), (2, 2), "CSR")
    for made in (tensor, packed, pack_dense(Foreign(dense), "CSR")):
        np.testing.assert_array_equal(made.to_dense(), dense)
    np.testing.assert_array_equal(tensor @ Foreign([1.0, 2.0]), dense @ [1, 2])


@given(any_tensors())
def test_with_values_changes_the_values_alone(tensor):
    assume(tensor.dtype.kind in "iuf" and not (tensor.structure or "").startswith("skew"))
    made = tensor.with_values(tensor.values.astype("complex128"))
    assert made.equals(tensor.astype("complex128"))
    assert (made.format, made.structure, str(made.map)) == (tensor.format, tensor.structure, str(tensor.map))
    assert all(made.arrays[name] is array for name, array in tensor.arrays.items())
    assert tensor.with_values(True, fill_value=0).iso
    with pytest.raises(ArrayError, match="values, got"):
        tensor.with_values(np.zeros(len(tensor.values) + 1))
