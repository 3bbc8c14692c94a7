"""The bitmap kind, where the laws of all kinds do not say it: bytes, gaps, rank 0, its name in files."""

import json

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import (
    ArrayError,
    BinsparseError,
    Bitmap,
    DescriptorError,
    DialectWarning,
    Format,
    LimitError,
    Tensor,
    pack,
    pack_dense,
    read,
    testing,
    write,
)
from binsparse_levels.io import describe
from binsparse_levels.levels import places

binsparse = pytest.importorskip("binsparse")
pytestmark = pytest.mark.usefixtures("kernels_and_numpy")
BITS = [True, False, False, True, True, False]
GARBAGE = np.array([1.5, np.nan, -7, 2.5, 3.5, np.inf])


def small(bits=BITS, values=GARBAGE, format="bitmap(2)", **options):
    return Tensor(format, (2, 3), {"bitmap_0": bits}, values, **options)


# Its array


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8"])
def test_booleans_and_bytes_are_used_as_they_are(dtype):
    bits = np.array(BITS, dtype)
    tensor = small(bits)
    assert tensor.arrays["bitmap_0"].dtype == bool
    assert np.shares_memory(tensor.arrays["bitmap_0"], bits)
    assert tensor.to_dense().tolist() == [[1.5, 0, 0], [2.5, 3.5, 0]]


@pytest.mark.parametrize(
    ("bits", "place"),
    [
        (np.array(BITS, np.int32), "bitmap_0: expected booleans, got int32"),
        (np.array(BITS, float), "bitmap_0: expected booleans, got float64"),
        (BITS[:5], "bitmap_0: expected a length of 6, one for each cell, got 5"),
        (np.array([1, 0, 2, 0, 255, 0], np.uint8), r"bitmap_0\[2\]: expected 0 or 1, got 2 \(2 such in all\)"),
        (np.array([1, 0, 0, 0, 0, -1], np.int8), r"bitmap_0\[5\]: expected 0 or 1, got 255"),
    ],
)
def test_faults_of_the_array(bits, place):
    with pytest.raises(ArrayError, match=place):
        small(bits)


def test_the_values_have_one_for_each_cell():
    with pytest.raises(ArrayError, match="values: expected a length of 6"):
        small(values=[1.0, 2, 3])


def test_no_more_cells_than_the_limit_are_made():
    with pytest.raises(LimitError, match="dense_bytes"):
        pack([[0], [0]], [1.0], (2**20, 2**20), "bitmap(2)")
    with pytest.raises(LimitError, match="dense_bytes"):
        pack([[0], [0]], [1.0], (2**40, 2**40), "sparse, bitmap")


@pytest.mark.parametrize("shape", [(300, 1000), (300_000,), (7, 50, 900), (0, 2**40), (2**40, 0), (3, 0, 5)])
@pytest.mark.parametrize("density", [0.001, 0.5])
def test_large_ones_are_listed_as_numpy_lists_them(shape, density):
    if 0 in shape:
        assert pack([[]] * len(shape), [], shape, f"bitmap({len(shape)})").number_of_stored_values == 0
        return
    dense = np.random.default_rng(0).random(shape) < density
    for format in (f"bitmap({len(shape)})", ", ".join(["bitmap"] * len(shape)), f"dense, bitmap({len(shape) - 1})"):
        tensor = pack_dense(dense, format)
        assert [x.tolist() for x in tensor.unpack()[0]] == [x.tolist() for x in dense.nonzero()]
        assert np.array_equal(tensor.to_dense(), dense)


# Gaps


def test_values_that_no_entry_has_are_never_looked_at(tmp_path):
    tensor = small()
    assert tensor.number_of_stored_values == 3
    assert tensor.unpack()[1].tolist() == [1.5, 2.5, 3.5]
    assert tensor.equals(small(values=[1.5, 0, 0, 2.5, 3.5, 0]))
    assert tensor.astype(int).unpack()[1].tolist() == [1, 2, 3]  # no warning of NaN
    assert tensor.fill_value is None
    assert len(tensor.drop_fill().values) == 6
    write(tmp_path / "a.h5", tensor)
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["values"][:].tolist() == [1.5, 0, 0, 2.5, 3.5, 0]
        assert file["bitmap_0"][:].tolist() == [1, 0, 0, 1, 1, 0]
        inner = json.loads(file.attrs["binsparse"])["binsparse"]
    assert inner["format"] == "custom"
    assert inner["custom"]["level"] == {
        "level_desc": "binsparse_levels:bitmap",
        "rank": 2,
        "level": {"level_desc": "element"},
    }
    assert inner["number_of_stored_values"] == 6
    assert inner["data_types"] == {"bitmap_0": "bint8", "values": "float64"}
    assert describe(tmp_path / "a.h5").descriptor.number_of_stored_values == 6
    assert read(tmp_path / "a.h5").number_of_stored_values == 3
    write(tmp_path / "a.h5", tensor, overwrite=True)
    with pytest.raises(binsparse.BinsparseParseError, match="binsparse_levels:bitmap"):
        binsparse.load_binsparse(tmp_path / "a.h5")


def test_gaps_are_no_padding():
    tensor = pack([[0], [1]], [5], (2, 3), "bitmap(2)", fill_value=7)
    assert tensor.values.tolist() == [0, 5, 0, 0, 0, 0]
    assert tensor.to_dense().tolist() == [[7, 5, 7], [7, 7, 7]]
    mixed = pack([[0], [1]], [5], (2, 3), "bitmap, dense", fill_value=7)
    assert mixed.values.tolist() == [7, 5, 7, 0, 0, 0]
    assert mixed.number_of_stored_values == 3
    assert pack([[0], [1]], 5, (2, 3), "bitmap, sparse").iso
    assert pack([[0], [1]], 5, (2, 3), "bitmap(2)").convert("CSR").iso


@pytest.mark.parametrize(
    ("format", "arrays", "count"),
    [
        ("bitmap, sparse", {"bitmap_0": [True, False], "pointers_to_1": [0, 1, 2], "indices_1": [0, 0]}, 2),
        ("bitmap, bitmap", {"bitmap_0": [True, False], "bitmap_1": [0, 0, 0, 0, 0, 1]}, 6),
        ("bitmap(0), sparse(2)", {"bitmap_0": [False], "indices_0": [0], "indices_1": [0]}, 1),
    ],
)
def test_nothing_lies_below_a_cell_that_is_not_set(format, arrays, count):
    arrays = {name: np.array(x, np.uint8 if "bitmap" in name else int) for name, x in arrays.items()}
    with pytest.raises(ArrayError, match=r"fiber . has entries, but belongs to none in the level above"):
        Tensor(format, (2, 3), arrays, np.zeros(count))


# Rank 0


def test_the_empty_scalar(tmp_path):
    empty = pack((), np.empty(0), (), "bitmap(0)")
    zero = pack((), [0.0], (), "bitmap(0)")
    assert str(empty.format) == "bitmap(0)"
    assert [x.number_of_stored_values for x in (empty, zero)] == [0, 1]
    assert empty.arrays["bitmap_0"].tolist() == [False]
    assert not empty.equals(zero)
    assert empty.to_dense() == 0
    assert pack((), np.empty(0), (), "bitmap(0)", fill_value=3).to_dense() == 3
    assert "bitmap(0): no dimension, 1 fiber, bitmap_0[1]" in repr(empty)
    assert zero.drop_fill().equals(empty)
    assert pack((), 0.0, (), "bitmap(0)").drop_fill().equals(empty)
    assert Tensor("bitmap(0)", (), {"bitmap_0": [False]}, 5).convert("bitmap(0), bitmap(0)").equals(empty)
    assert zero.convert("element").equals(zero)
    for place in (tmp_path / "a.h5", tmp_path / "a.zarr", tmp_path / "a.npz", {}):
        write(place, empty)
        assert read(place).equals(empty)
        assert describe(place).descriptor.number_of_stored_values == 1


def test_levels_of_rank_0_have_names_of_their_own():
    format = Format((Bitmap(0), Bitmap(0), Bitmap(1), Bitmap(0)))
    names = [spec.name for place in places(format.levels, (3,)) for spec in place.arrays.values()]
    assert names == ["bitmap_0", "below_bitmap_0", "below_below_bitmap_0", "bitmap_1"]


@given(testing.tensors(kinds=[Bitmap], max_rank=3), st.sampled_from(["COO", "dense", "sparse", "bitmap"]))
def test_to_other_kinds_and_back(tensor, kind):
    other = {"COO": f"sparse({tensor.ndim})"}.get(kind, ", ".join([kind] * tensor.ndim)) if tensor.ndim else "bitmap(0)"
    there = tensor.convert(other)
    there.check()
    if kind != "dense":
        assert there.equals(tensor)
        assert there.convert(tensor.format).equals(tensor)
    assert there.to_dense().tobytes() == tensor.to_dense().tobytes()


# In files


@pytest.mark.parametrize("data_type", ["uint8", "int32", "iso[bint8]", "float64"])
def test_the_bitmap_is_declared_as_booleans(data_type):
    store = {}
    write(store, small())
    header = store["binsparse"]
    header = json.loads(header) if isinstance(header, str) else header
    header["binsparse"]["data_types"]["bitmap_0"] = data_type
    store["binsparse"] = header
    with pytest.raises(DescriptorError, match=r"data_types.bitmap_0: expected bint8, got"):
        read(store)


def test_a_byte_that_is_no_boolean_in_a_file():
    store = {}
    write(store, small())
    store["bitmap_0"] = np.array([1, 0, 9, 1, 1, 0], np.uint8)
    with pytest.raises(ArrayError, match=r"bitmap_0\[2\]: a bint8 is 0 or 1, got 9"):
        read(store)
    with pytest.warns(DialectWarning, match="bitmap_0: bint8 other than 0 and 1"):
        assert read(store, lenient=True).number_of_stored_values == 4
    store["bitmap_0"] = np.array([1, 0], np.uint8)
    with pytest.raises(BinsparseError, match="expected a length of 6"):
        read(store)
