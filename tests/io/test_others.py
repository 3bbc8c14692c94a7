"""Files of scipy, pydata/sparse and MATLAB: what those programs wrote is opened in place, and damage is told."""

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels.io import describe

DTYPES = ["bool", "int8", "uint16", "int64", "float32", "float64", "complex64", "complex128"]


def drawn(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 5, shape) * (rng.random(shape) < 0.4)
    return (values * (1 + 1j if dtype.startswith("complex") else 1)).astype(dtype)


def agrees(place, dense):
    """Assert that reading, opening, slices and conversion of a file give these cells."""
    assert np.array_equal(bl.read(place).to_dense(), dense)
    assert bl.read(place).dtype == dense.dtype
    with bl.open(place) as tensor:
        assert tensor.shape == dense.shape
        assert np.array_equal(tensor[1:, ::2].to_dense(), dense[1:, ::2])
        bl.write(again := {}, tensor)
    assert np.array_equal(bl.read(again).to_dense(), dense)
    assert describe(place).descriptor.shape == dense.shape


@given(
    st.integers(0, 99), st.sampled_from([(1, 1), (3, 4), (7, 2), (2, 9)]), st.sampled_from(DTYPES),
    st.sampled_from(["csr", "csc", "coo"]), st.booleans(),
)  # fmt: skip
def test_matrices_of_scipy(tmp_path_factory, seed, shape, dtype, format, deflated):
    path = tmp_path_factory.getbasetemp() / "scipy.npz"
    dense = drawn(seed, shape, dtype)
    sp.save_npz(path, sp.csr_array(dense).asformat(format), compressed=deflated)
    agrees(path, dense)


@given(st.integers(0, 99), st.sampled_from([(3, 4), (2, 3, 4), (5, 1)]), st.sampled_from(DTYPES), st.booleans())
def test_arrays_of_pydata_sparse(tmp_path_factory, seed, shape, dtype, deflated):
    sparse = pytest.importorskip("sparse")
    path = tmp_path_factory.getbasetemp() / "pydata.npz"
    dense = drawn(seed, shape, dtype)
    array = sparse.COO.from_numpy(dense, fill_value=dense.dtype.type(1))
    sparse.save_npz(path, array, compressed=deflated)
    agrees(path, dense)
    assert bl.read(path).fill_value == bl.open(path).fill_value == 1


def saved(path, dense, name="A"):
    """Write a matrix as MATLAB does with -v7.3."""
    matrix = sp.csc_array(dense)
    with h5py.File(path, "w", userblock_size=512) as file:
        group = file.create_group(name)
        group.attrs["MATLAB_sparse"] = np.uint64(dense.shape[0])
        group.attrs["MATLAB_class"] = np.bytes_("logical" if dense.dtype == bool else "double")
        group["jc"] = matrix.indptr.astype(np.uint64)
        if matrix.nnz:
            values = matrix.data.view(np.uint8) if dense.dtype == bool else matrix.data
            if dense.dtype.kind == "c":
                part = np.dtype(f"f{dense.dtype.itemsize // 2}")
                values = values.view([("real", part), ("imag", part)])
            group["ir"], group["data"] = matrix.indices.astype(np.uint64), values
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64, HDF5 schema 1.00 .".ljust(124) + b"\0\2IM")
    return path


@given(
    st.integers(0, 99), st.sampled_from([(1, 1), (3, 4), (7, 2)]), st.sampled_from(["bool", "float64", "complex128"])
)
def test_matrices_of_matlab(tmp_path_factory, seed, shape, dtype):
    dense = drawn(seed, shape, dtype)
    path = saved(tmp_path_factory.getbasetemp() / "m.mat", dense)
    if dense.any() or dtype == "float64":
        agrees(path, dense)
        agrees(f"{path}:A", dense)
    assert bl.list_tensors(path) == ["A"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file["A/ir"].__setitem__(0, 99), "outside"),
        (lambda file: file["A/jc"].__setitem__(1, 99), r"jc\["),
        (lambda file: file["A/jc"].__setitem__(-1, 2**40), "ir: expected a length"),
        (lambda file: file["A/jc"].__setitem__(0, 1), "goes from 1"),
        (lambda file: file["A"].attrs.__setitem__("MATLAB_sparse", -1), "number of rows"),
        (lambda file: file["A"].attrs.__setitem__("MATLAB_sparse", "x"), "number of rows"),
        (lambda file: file["A"].__delitem__("data"), "data"),
        (lambda file: file.copy("A", "B"), "A, B; open PATH:NAME"),
        (lambda file: file.__delitem__("A"), "expected one, got none"),
    ],
)
def test_damage_to_a_matlab_file_is_told(tmp_path, change, message):
    path = saved(tmp_path / "m.mat", np.eye(4))
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(bl.BinsparseError, match=message):
        bl.read(path)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"format": np.array("bsr")}, "expected csr, csc or coo"),
        ({"format": np.array(["csr"] * 2)}, "expected one item"),
        ({"indptr": np.array([0, 1, 1, 9])}, "indices: expected a length of 9"),
        ({"indptr": np.array([0, 2, 1, 3])}, "indptr"),
        ({"indices": np.array([0, 1, 7])}, "outside"),
        ({"indices": np.zeros((3, 1), int)}, "one dimension"),
        ({"shape": np.array([3, -4])}, "expected csr"),
        ({"data": np.array(["a"] * 3)}, "data: expected numbers"),
        ({"data": None}, "data: no such member"),
    ],
)
def test_damage_to_a_file_of_scipy_is_told(tmp_path, members, message):
    matrix = sp.csr_array(np.eye(3, 4))
    whole = {
        "format": np.array(b"csr"), "shape": np.array([3, 4]), "indptr": matrix.indptr, "indices": matrix.indices,
        "data": matrix.data,
    } | members  # fmt: skip
    np.savez(tmp_path / "a.npz", **{name: x for name, x in whole.items() if x is not None})
    with pytest.raises(bl.BinsparseError, match=message):
        bl.read(tmp_path / "a.npz")
