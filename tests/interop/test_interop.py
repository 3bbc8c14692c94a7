"""Tensors to and from other libraries, and the draft protocol."""

import contextlib

import numpy as np
import pytest
import scipy.sparse
import sparse
from helpers.places import vector
from hypothesis import assume, given
from hypothesis import strategies as st
from numba.core.errors import NumbaError

import binsparse_levels as bl
from binsparse_levels import (
    ArrayError,
    BinsparseError,
    FormatError,
    Tensor,
    from_binsparse,
    from_numpy,
    from_scipy,
    from_sparse,
    pack,
    pack_dense,
    read,
    testing,
    to_gcxs,
    to_numpy,
    to_scipy,
    to_sparse,
    write,
)

SCIPY_FORMATS = ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]
MATRIX = np.array([[0, 1.5, 0, 2], [0, 0, 0, 0], [3, 0, 4, 0]])


def same_dense(a, b):
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


@given(testing.tensors(max_rank=2))
def test_scipy_and_back(tensor):
    if tensor.ndim == 0 or (tensor.fill_value is not None and tensor.fill_value != 0):
        with pytest.raises(FormatError):
            to_scipy(tensor)
        return
    array = to_scipy(tensor)
    assert same_dense(array.toarray(), tensor.to_dense())
    assert array.dtype == tensor.dtype
    again = from_scipy(array)
    assert again.fill_value == 0
    assert same_dense(again.to_dense(), tensor.to_dense())
    again.check()


@pytest.mark.parametrize("format", SCIPY_FORMATS)
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_every_format_of_scipy(format, kind):
    made = getattr(scipy.sparse, f"{format}_{kind}")(MATRIX)
    for target in (None, "CSR", "CSC", "COO", "DCSR", "dense(2)"):
        tensor = from_scipy(made, target)
        assert same_dense(tensor.to_dense(), MATRIX)
        tensor.check()
    for source in ("CSR", "CSC", "COO", "COOC", "DMATR"):
        back = to_scipy(pack_dense(MATRIX, source), format)
        assert back.format == format
        assert same_dense(back.toarray(), MATRIX)
        if hasattr(back, "check_format"):
            back.check_format(full_check=True)


@pytest.mark.parametrize("name", ["csr", "csc"])
def test_arrays_are_shared_with_scipy(name):
    array = getattr(scipy.sparse, f"{name}_array")(MATRIX)
    tensor = from_scipy(array)
    assert str(tensor.format) == name.upper()
    back = to_scipy(tensor)
    assert np.shares_memory(back.data, tensor.values)
    assert np.shares_memory(back.indices, tensor.arrays["indices_1"])
    assert np.shares_memory(back.indptr, tensor.arrays["pointers_to_1"])


def test_what_scipy_lets_pass():
    duplicates = scipy.sparse.csr_array((np.array([1.0, 2.0, 3.0]), [1, 0, 1], [0, 3]), shape=(1, 2))
    duplicates.has_canonical_format = True  # as if nobody had looked
    assert from_scipy(duplicates).unpack()[1].tolist() == [2, 4]
    longer = scipy.sparse.csr_array((np.array([1.0, 2.0, 9.0]), [0, 1, 5], [0, 2]), shape=(1, 2))
    assert from_scipy(longer).unpack()[1].tolist() == [1, 2]
    outside = scipy.sparse.csr_array((np.array([1.0]), [0], [0, 1]), shape=(1, 2))
    outside.indices[0] = 10**6
    with pytest.raises(ArrayError):
        from_scipy(outside)
    with pytest.raises(TypeError):
        from_scipy(MATRIX)


@given(data=st.data())
def test_blocks_of_scipy(data):
    """bsr and back with the same blocks: out of order, repeated, views and other types."""
    block = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    grid = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    shape = tuple(n * size for n, size in zip(grid, block, strict=True))
    each = data.draw(st.lists(st.lists(st.integers(0, grid[1] - 1), max_size=5), min_size=grid[0], max_size=grid[0]))
    indices = np.array([x for row in each for x in row], int)
    values = np.random.default_rng(0).integers(0, 3, (len(indices), *block)).astype(data.draw(st.sampled_from("fdbD")))
    matrix = scipy.sparse.bsr_array((values, indices, np.cumsum([0, *map(len, each)])), shape=shape)
    tensor = from_scipy(matrix)
    again = to_scipy(tensor)
    assert (again.format, again.blocksize) == ("bsr", block)
    np.testing.assert_array_equal(again.toarray(), matrix.toarray())
    np.testing.assert_array_equal(tensor.to_dense(), matrix.toarray())
    np.testing.assert_array_equal(to_scipy(tensor, "csr").toarray(), matrix.toarray())
    np.testing.assert_array_equal(from_scipy(matrix, "CSC").to_dense(), matrix.toarray())
    if shape[0] > 1:
        np.testing.assert_array_equal(to_scipy(tensor[1:]).toarray(), matrix.toarray()[1:])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CSR", "CSC"])
@pytest.mark.parametrize("dtype", ["u1", "u4", "i2"])
def test_gcxs_is_sliced_whatever_the_index_type(name, dtype):
    dense = np.array([[0.0, 1.5, 0], [2.5, 0, 4]])
    tensor = pack_dense(dense, name)
    arrays = {role: x.astype(dtype) for role, x in tensor.arrays.items()}
    gcxs = to_gcxs(Tensor(name, dense.shape, arrays, tensor.values))
    for key in (0, slice(0, 1), (slice(None), slice(1, None))):
        np.testing.assert_array_equal(gcxs[key].todense(), dense[key])


def test_coordinates_of_any_rank():
    listed = scipy.sparse.coo_array((np.array([1, 2]), ([0, 1], [2, 0], [3, 3])), shape=(2, 3, 4))
    tensor = from_scipy(listed, "sparse, dense, sparse @ 1, 0, 2")
    assert same_dense(tensor.to_dense(), listed.toarray())
    back = to_scipy(tensor)
    assert back.format == "coo"
    assert same_dense(back.toarray(), listed.toarray())
    assert to_scipy(pack([[1]], [5], (3,), "CVEC")).toarray().tolist() == [0, 5, 0]


@given(testing.tensors(max_rank=4))
def test_sparse_and_back(tensor):
    array = to_sparse(tensor)
    assert same_dense(array.todense(), tensor.to_dense())
    assert array.fill_value.dtype == tensor.dtype
    again = from_sparse(array)
    assert same_dense(again.to_dense(), tensor.to_dense())
    assert again.fill_value is not None


@pytest.mark.sampled(9)  # the library compiles its checks for each type
@pytest.mark.parametrize("dtype", ["float64", "bool", "int8", "uint32", "int64", "float32", "complex64", "complex128"])
@given(data=st.data())
def test_gcxs_and_back(dtype, data):
    tensor = data.draw(testing.tensors(max_rank=4, dtypes=[dtype]))
    assume(tensor.ndim >= 2)
    folded = to_gcxs(tensor)
    assert same_dense(folded.todense(), tensor.to_dense())
    assert same_dense(from_sparse(folded).to_dense(), tensor.to_dense())


def test_unsorted_entries_are_told_by_their_own_error(tmp_path):
    """Not by that of the library, whose remedy does not help."""
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.coo_array(([1.0, 2.0], ([0, 0], [1, 0])), shape=(1, 2)))
    with pytest.raises(ArrayError, match="does not come after"):
        to_gcxs(bl.open(tmp_path / "a.npz"))


@pytest.mark.parametrize("format", ["CSR", "CSC"])
def test_arrays_are_shared_with_gcxs(format):
    tensor = pack_dense(MATRIX, format)
    folded = to_gcxs(tensor)
    assert np.shares_memory(folded.data, tensor.values)
    back = from_sparse(folded)
    assert back.format == tensor.format
    assert np.shares_memory(back.values, tensor.values)
    assert from_sparse(sparse.DOK.from_numpy(MATRIX)).number_of_stored_values == 4


def test_numpy():
    assert same_dense(to_numpy(from_numpy(MATRIX, "CSR")), MATRIX)
    assert from_numpy(MATRIX, "CSR", fill_value=1.5).number_of_stored_values == 11


@given(testing.tensors(max_rank=4), st.booleans())
def test_the_protocol(tensor, wrapped):
    class Other:
        def __binsparse_descriptor__(self):
            descriptor = tensor.__binsparse_descriptor__()
            return descriptor if wrapped else descriptor["binsparse"]

        __binsparse__ = tensor.__binsparse__

    testing.check_same(from_binsparse(Other()), tensor)


def test_the_protocol_is_checked():
    class Other:
        def __binsparse_descriptor__(self):
            return pack([[1]], [5], (3,), "CVEC").__binsparse_descriptor__()

        def __binsparse__(self):
            return {"indices_0": np.array([7], np.int32), "values": np.array([5])}

    with pytest.raises(BinsparseError):
        from_binsparse(Other())
    with pytest.raises(TypeError):
        from_binsparse(MATRIX)
    assert isinstance(from_binsparse(pack([[1]], [5], (3,), "CVEC")), Tensor)


# Structures, which other libraries do not have


@given(testing.tensors(max_rank=2))
def test_structures_are_expanded_and_taken_apart(tensor):
    whole = tensor.expand_structure()
    assert whole.structure is None
    assert same_dense(whole.to_dense(), tensor.to_dense())
    if tensor.structure is None:
        assert whole is tensor
        return
    again = whole.with_structure(tensor.structure)
    assert again.structure == tensor.structure
    assert same_dense(again.to_dense(), tensor.to_dense())
    if not tensor.format.padded:
        assert again.number_of_stored_values == tensor.number_of_stored_values


@pytest.mark.parametrize(
    ("array", "structure", "message"),
    [
        ([[1, 2], [3, 4]], "symmetric_lower", r"\(0, 1\) is 2, its mirror image makes it 3"),
        ([[1, 0], [3, 4]], "symmetric_upper", r"\(1, 0\) has no mirror image"),
        ([[1, 5], [0, 4]], "symmetric_upper", r"\(0, 1\) has no mirror image"),
        ([[0, 2], [2, 0]], "skew_symmetric_lower", "mirror image makes it -2"),
    ],
)
def test_matrices_that_are_not_what_they_should_be(array, structure, message):
    with pytest.raises(ArrayError, match=message):
        pack_dense(np.array(array), "CSR").with_structure(structure)


def test_structures_that_a_matrix_cannot_have():
    with pytest.raises(FormatError):
        pack_dense(MATRIX, "CSR").with_structure("symmetric_lower")
    with pytest.raises(FormatError):
        pack_dense(np.eye(3), "CSR").with_structure("hermitian_lower")


def test_the_diagonal_of_a_dense_matrix_is_its_own_mirror_image():
    for structure, dtype, bad in [("skew_symmetric_lower", float, 1.0), ("hermitian_upper", complex, 1j)]:
        for value, sound in [(0, True), (bad, False)]:
            place = {}
            write(place, Tensor("DMATR", (2, 2), {}, np.array([0, 5, 5, value], dtype)))
            place["binsparse"]["binsparse"]["structure"] = structure
            tensor = read(place, lenient=True)
            if sound:
                assert read(place).equals(tensor)
                write({}, tensor)
                continue
            for call in (lambda place=place: read(place), lambda tensor=tensor: write({}, tensor)):
                with pytest.raises(ArrayError, match=r"\(1, 1\)"):
                    call()


def test_diagonals_are_counted_in_the_header():
    tensor = pack_dense(np.array([[1, 2], [2, 0]]), "CSR").with_structure("symmetric_lower")
    header = tensor.__binsparse_descriptor__()["binsparse"]
    assert header["attributes"] == {"number_of_diagonal_elements": 1}
    assert from_binsparse(tensor).expand_structure().structure is None


# Cases that hostile use found


def test_what_other_libraries_do_not_have():
    for wrong in (np.eye(3), None, vector()):
        for call in (from_sparse, from_scipy):
            with pytest.raises(TypeError):
                call(wrong)
    for format in ("nope", "CSR", ""):
        with pytest.raises(FormatError):
            to_scipy(pack([[0], [0]], [1.0], (2, 2), "CSR"), format)
    with pytest.raises(FormatError):
        to_scipy(vector().astype(np.float16))


@pytest.mark.parametrize("case", ["text", "deep", "circular", "ragged", "masked", "letters"])
def test_the_protocol_with_hostile_objects(case):
    deep: dict = {}
    for _ in range(5000):
        deep = {"a": deep}
    circular: dict = {}
    circular["a"] = circular
    good = vector()
    arrays = dict(good.__binsparse__())

    class Other:
        def __binsparse_descriptor__(self):
            return {"text": "{}", "deep": deep, "circular": circular}.get(case, good.__binsparse_descriptor__())

        def __binsparse__(self):
            if case == "letters":
                return "ab"
            odd = {"ragged": [[1, 2], [3]], "masked": np.ma.masked_array([1.0, 2.0], [True, False])}
            return arrays | ({"values": odd[case]} if case in odd else {})

    with pytest.raises((BinsparseError, TypeError)):
        from_binsparse(Other())


def gcxs_refuses(dtype) -> bool:
    """Older versions of the library have these types."""
    try:
        sparse.GCXS.from_numpy(np.ones((2, 3), dtype))
    except (NotImplementedError, NumbaError):
        return True
    return False


@pytest.mark.parametrize("format", ["CSR", "sparse(2)", "dense, band"])
@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
def test_a_type_that_gcxs_lacks_is_told(format, dtype):
    tensor = pack([[1], [2]], np.ones(1).astype(dtype), (2, 3), format)
    refused = pytest.raises(FormatError, match=r"GCXS does not support the type float\d+; call to_sparse")
    with refused if gcxs_refuses(dtype) else contextlib.nullcontext():
        assert same_dense(to_gcxs(tensor).todense(), tensor.to_dense())
    assert same_dense(from_sparse(to_sparse(tensor)).to_dense(), tensor.to_dense())


@pytest.mark.parametrize(("shape", "axes"), [((1,) * 64, None), ((2**62, 2**62), None), ((2, 3), (5,))])
def test_a_shape_or_axes_that_gcxs_lacks_are_told(shape, axes):
    with pytest.raises(FormatError, match=r"compressed_axes: GCXS does not support .*; choose others, or call to_sp"):
        to_gcxs(pack([[0]] * len(shape), [1.0], shape, "COO"), axes)


def test_a_structure_whose_mirror_the_kind_refuses():
    """The stored triangle fits two of four; both triangles together do not."""
    places = [[0, 0, 1], [0, 2, 2]]
    tensor = pack(places, [1.0, 2.0, 3.0], (3, 3), "n_of_m(1, n=2, m=4), dense", structure="symmetric_upper")
    whole = tensor.to_dense()
    assert same_dense(to_scipy(tensor).toarray(), whole)
    assert same_dense(to_sparse(tensor).todense(), whole)
    assert same_dense(to_gcxs(tensor).todense(), whole)
    assert [part.shape for _, part in tensor.slabs(0, max_bytes=1 << 20)] == [(3, 3)]


@given(st.data())
def test_blocks_of_scipy_and_back(data):
    """Blocks stay blocks, whatever their order and how often they are there; another format has no blocks."""
    sparse = pytest.importorskip("scipy.sparse")
    block = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    grid = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    cells = list(np.ndindex(grid))
    chosen = sorted(data.draw(st.lists(st.sampled_from(cells), max_size=5)), key=lambda cell: cell[0])
    pointers = np.searchsorted([row for row, _ in chosen], range(grid[0] + 1)) if chosen else np.zeros(grid[0] + 1, int)
    values = np.arange(1.0, 1 + len(chosen) * block[0] * block[1]).reshape(-1, *block)
    shape = grid[0] * block[0], grid[1] * block[1]
    given = sparse.bsr_array((values, [column for _, column in chosen], pointers), shape=shape)
    tensor = bl.from_scipy(given)
    tensor.check()
    np.testing.assert_array_equal(tensor.to_dense(), given.toarray())
    assert str(tensor.map) == str(bl.IndexMap.blocks(shape, block))
    back = bl.to_scipy(tensor)
    assert (back.format, back.blocksize) == ("bsr", block)
    np.testing.assert_array_equal(back.toarray(), given.toarray())
    for made in (bl.from_scipy(given, "CSC"), bl.as_tensor(given, "CSC"), bl.as_tensor(given, "CSC", attributes={})):
        assert (made.notation, made.to_dense().tolist()) == ("CSC", given.toarray().tolist())
    named = "CSR through 1, 0"
    assert bl.from_scipy(given, named).notation == bl.as_tensor(given, named).notation == named
    for other in ("csr", "coo"):
        assert bl.to_scipy(tensor, other).format == other
    file = {}
    bl.write(file, bl.from_scipy(given, "CSR"))
    bl.append(file, given)
    assert bl.read(file).to_dense().tolist() == [*given.toarray().tolist()] * 2
