"""Integers of few bytes: those of `convert(narrow=True)`, and of levels that declare a type."""

import numpy as np
import pytest
from composition.kinds import registered
from helpers.kinds import Short
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import FormatError, IndexMap, Tensor, pack, testing
from binsparse_levels.levels import LEVELS

KINDS = (*LEVELS.values(), Short)
CUBE = testing.power_law((1000, 900, 800), 3000, seed=1)


@pytest.fixture(autouse=True, scope="module")
def _kinds_of_others():
    with registered():
        yield


def bits(tensor):
    return 8 * sum(x.nbytes for x in tensor.stored.arrays.values()) / CUBE.number_of_stored_values


@given(testing.tensors(kinds=KINDS))
def test_a_narrow_tensor_is_the_same_tensor(tensor):
    narrow = tensor.convert(tensor.format, narrow=True)
    narrow.check()
    assert narrow.equals(tensor)
    assert narrow.values is tensor.values or np.shares_memory(narrow.values, tensor.values) or not len(tensor.values)
    for name, wide in tensor.arrays.items():
        np.testing.assert_array_equal(narrow.arrays[name], wide)
        kept = wide.dtype.kind == "b" or wide.dtype.str == "<u8"  # words of bits
        assert kept or narrow.arrays[name].dtype.itemsize == np.min_scalar_type(wide.max(initial=0)).itemsize


@given(st.data())
def test_files_hold_the_integers_of_a_narrow_tensor(data):
    tensor = data.draw(testing.tensors(kinds=KINDS))
    of_memory, of_files = {}, {}
    bl.write(of_memory, tensor.convert(tensor.format, narrow=True))
    bl.write(of_files, tensor, narrow=True)
    assert {k: x.dtype for k, x in of_memory.items() if k in tensor.arrays} == {
        k: x.dtype for k, x in of_files.items() if k in tensor.arrays
    }


def test_blocks_of_hicoo_take_a_byte_for_each_dimension():
    blocks = IndexMap.hicoo(CUBE.shape, 128)
    wide, narrow = (CUBE.convert("sparse, sparse(3)", map=blocks, narrow=x) for x in (False, True))
    own = [x.nbytes for name, x in narrow.stored.arrays.items() if name in ("indices_1", "indices_2", "indices_3")]
    assert 8 * sum(own) == 24 * CUBE.number_of_stored_values
    assert 3 * bits(narrow) < bits(wide)
    with_types = CUBE.convert("sparse, short(3)", map=blocks)
    assert bits(narrow) < bits(with_types) < bits(wide) / 2
    factors = np.ones((900, 2)), np.ones((800, 2))
    expected = bl.einsum("ijk,jr,kr->ir", CUBE, *factors)
    for tensor in (wide, narrow, with_types):
        np.testing.assert_allclose(bl.einsum("ijk,jr,kr->ir", tensor, *factors), expected)


def test_later_conversions_store_wide_integers_again():
    narrow = CUBE.convert("COO", narrow=True)
    assert {x.dtype for x in narrow.arrays.values()} == {np.dtype(np.uint16)}
    assert {x.dtype for x in narrow.convert("CSF").arrays.values()} == {np.dtype(np.int32)}


# Levels that declare a type


def test_a_declared_type_is_that_of_memory_and_of_files():
    tensor = pack([[0, 2, 2], [255, 0, 9]], 1.0, (3, 256), "dense, short")
    file = {}
    bl.write(file, tensor, narrow=True)
    for made, pointers in ((tensor, "int32"), (tensor[1:].convert("dense, short"), "int32"), (bl.read(file), "uint8")):
        assert made.arrays["short_indices_1"].dtype.name == "uint8"
        assert made.arrays["short_pointers_to_1"].dtype.name == pointers
    file["short_indices_1"] = file["short_indices_1"].astype(np.int32)
    arrays = {name: file[name] for name in tensor.arrays}
    with pytest.raises(bl.ArrayError, match="short_indices_1: expected uint8, got int32"):
        Tensor("dense, short", (3, 256), arrays, file["values"])
    file["binsparse"]["binsparse"]["data_types"]["short_indices_1"] = "int32"
    with pytest.raises(bl.BinsparseError, match="short_indices_1: expected uint8, got int32"):
        bl.read(file)


def test_coordinates_that_do_not_fit_are_refused_with_the_name_of_the_level():
    for make in (
        lambda: pack([[0, 2], [255, 256]], 1.0, (3, 257), "dense, short"),
        lambda: pack([[0, 2], [255, 256]], 1.0, (3, 257), "CSR").convert("dense, short"),
    ):
        with pytest.raises(FormatError, match=r"short: short_indices_1 has 256, which uint8 cannot store"):
            make()
    assert pack([[0, 2], [255, 0]], 1.0, (3, 257), "dense, short").arrays["short_indices_1"].tolist() == [255, 0]


@pytest.mark.slow
def test_the_laws_of_a_kind_with_a_type():
    assert all(law.holds for law in testing.check_kind(Short, examples=10))


def test_the_laws_report_types_that_are_not_as_declared():
    class Fused(Short):
        kind = "fused"

        def fused(self):
            return LEVELS["sparse"]().fused()

    class Cut(Short):
        kind = "cut"

        def part(self, *given):
            made, children = super().part(*given)
            return {role: x.astype(np.int64) for role, x in made.items()}, children

    for kind, problem in ((Fused, "return None from fused"), (Cut, "part returns int64 for the role 'idx0'")):
        with pytest.raises(AssertionError, match=problem):
            testing.check_kind(kind, examples=5, sizes=(4,))
