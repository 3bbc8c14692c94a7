"""Objects of python-graphblas, to and from tensors, and through sscdf files."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import FormatError, Tensor, from_graphblas, pack, read, testing, to_graphblas, write
from binsparse_levels.io.files.sscdf import NATIVE

gb = pytest.importorskip("graphblas")
TYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
    "complex64", "complex128",
]  # fmt: skip
FORMATS = [word for word, layout in NATIVE.items() if layout.format.rank and not word.startswith("coo")]


def entries(thing):
    """The coordinates and values of an object, as GraphBLAS lists them, sorted."""
    *coords, values = thing.to_coo()
    order = np.lexsort(coords[::-1])
    return [x[order].tolist() for x in coords], values[order]


def assert_same(thing, tensor):
    coords, values = tensor.convert(f"sparse({tensor.ndim})").unpack()
    found, held = entries(thing)
    assert found == [x.tolist() for x in coords]
    assert held.dtype == tensor.dtype
    assert np.array_equal(held, values, equal_nan=held.dtype.kind in "fc")
    assert tuple(thing.shape) == tensor.shape


@given(testing.tensors(max_rank=2, structures=False))
def test_there_and_back(tensor):
    if tensor.fill_value is not None and tensor.fill_value != 0:
        with pytest.raises(FormatError, match="fill_value"):
            to_graphblas(tensor)
        return
    thing = to_graphblas(tensor)
    assert thing.dtype.np_type == tensor.dtype
    again = from_graphblas(thing)
    again.check()
    assert again.fill_value is None
    if tensor.ndim:
        assert_same(thing, tensor)
        assert_same(thing, again)
        assert entries(thing)[0] == entries(to_graphblas(again))[0]
    else:
        assert again.number_of_stored_values == tensor.number_of_stored_values
        assert np.array_equal(again.unpack()[1], tensor.unpack()[1], equal_nan=tensor.dtype.kind in "fc")


@pytest.mark.sampled(15)
@pytest.mark.parametrize("word", FORMATS)
@pytest.mark.parametrize("iso", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_format_keeps_its_own(word, iso, dtype, tmp_path):
    layout = NATIVE[word]
    shape = (7, 11)[: layout.format.rank]
    full = word.startswith("full")
    mask = np.random.default_rng(0).random(shape) < (2 if full else 0.4)
    coords = mask.nonzero()
    values = np.dtype(dtype).type(1) if iso else np.arange(1, len(coords[0]) + 1).astype(dtype)
    tensor = pack(coords, values, shape, layout.format)
    thing = to_graphblas(tensor)
    assert_same(thing, tensor)
    assert thing.ss.format == word
    assert thing.ss.is_iso == iso
    for again in (from_graphblas(thing), from_graphblas(thing.dup(), move=True)):
        assert again.format == tensor.format
        assert again.iso == iso
        assert_same(thing, again)
        assert from_graphblas(thing, "COO" if len(shape) == 2 else "CVEC").equals(again)
    if np.dtype(dtype).kind != "c":
        write(tmp_path / "a.sscdf", from_graphblas(thing))
        assert_same(to_graphblas(read(tmp_path / "a.sscdf")), tensor)


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), unique=True, max_size=8),
    st.sampled_from(["COOR", "COOC"]),
)
def test_coordinates_with_empty_rows_and_columns(places, format):
    table = np.array(places, np.int64).reshape(-1, 2).T
    tensor = pack(table, np.arange(1.0, len(places) + 1), (9, 9), format)
    assert_same(to_graphblas(tensor), tensor)


def test_unsorted_and_unfinished_objects_are_sorted():
    thing = gb.Matrix(float, 5, 5)
    for k, (i, j) in enumerate([(4, 1), (0, 3), (4, 0), (2, 2), (0, 1)]):
        thing[i, j] = k
    del thing[2, 2]
    tensor = from_graphblas(thing)
    tensor.check()
    assert_same(thing, tensor)
    product = gb.semiring.plus_times(thing @ thing).new()
    assert_same(product, from_graphblas(product))


def test_the_structure_is_expanded():
    tensor = pack([[1, 2], [0, 2]], [1.5, 2.5], (3, 3), "CSR", structure="symmetric_lower")
    assert entries(to_graphblas(tensor))[0] == [[0, 1, 2], [1, 0, 2]]


def test_scalars():
    assert from_graphblas(gb.Scalar(int)).number_of_stored_values == 0
    assert str(from_graphblas(gb.Scalar(int)).format) == "bitmap(0)"
    assert from_graphblas(gb.Scalar.from_value(5, "INT8")).values.tolist() == [5]
    assert from_graphblas(gb.Scalar.from_value(5, "INT8"), "bitmap(0)").dtype == np.int8
    assert to_graphblas(Tensor("bitmap(0)", (), {"bitmap_0": [False]}, [1.5])).is_empty
    assert to_graphblas(pack((), [2.5], (), "element")).value == 2.5


def test_large_dimensions():
    tensor = pack([[2**59], [5]], [1.5], (2**60, 2**60), "DCSR")
    assert_same(to_graphblas(tensor), tensor)
    assert_same(to_graphblas(tensor), from_graphblas(to_graphblas(tensor)))
    for count in (0, 1):
        with pytest.raises(FormatError, match=r"GraphBLAS has at most 2\*\*60 rows and columns; slice it"):
            to_graphblas(pack([[2**59] * count, [5] * count], [1.5] * count, (2**62, 2**62), "DCSR"))


def test_what_is_refused():
    with pytest.raises(TypeError, match="expected a Matrix"):
        from_graphblas(np.eye(3))
    with pytest.raises(TypeError, match="expected a Matrix"):
        from_graphblas(gb.Matrix(float, 3, 3).T)
    for tensor in (pack([[0]] * 3, [1.5], (3, 3, 3), "sparse(3)"), pack([[0]], np.array([0], "M8[s]"), 3, "CVEC")):
        with pytest.raises(FormatError):
            to_graphblas(tensor)
    pairs = gb.dtypes.register_anonymous(np.dtype([("x", int), ("y", float)]))
    with pytest.raises(FormatError, match="user-defined"):
        from_graphblas(gb.Vector(pairs, 3))
