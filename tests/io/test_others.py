"""Files of other programs: what they wrote is opened in place, and damage is told."""

import gzip
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from helpers import layouts
from hypothesis import assume, given
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
        key = (slice(1, None), slice(None, None, 2))[: dense.ndim]
        assert np.array_equal(tensor[key].to_dense(), dense[key])
        bl.write(again := {}, tensor)
    assert np.array_equal(bl.read(again).to_dense(), dense)
    told = describe(place).descriptor
    assert (told.map or told).shape == dense.shape


@given(
    st.integers(0, 99), st.sampled_from([(1, 1), (3, 4), (7, 2), (2, 9)]), st.sampled_from(DTYPES),
    st.sampled_from(["csr", "csc", "coo", "bsr", "dia"]), st.booleans(),
)  # fmt: skip
def test_matrices_of_scipy(tmp_path_factory, seed, shape, dtype, format, deflated):
    path = tmp_path_factory.getbasetemp() / "scipy.npz"
    dense = drawn(seed, shape, dtype)
    divisors = [next(k for k in (3, 2, 1) if size % k == 0) for size in shape]
    options = {"blocksize": tuple(divisors)} if format == "bsr" else {}
    matrix = getattr(sp.csr_array(dense), f"to{format}")(**options)
    if format == "bsr":
        matrix.sort_indices()
    sp.save_npz(path, matrix, compressed=deflated)
    agrees(path, dense)


@given(
    st.integers(0, 99), st.tuples(st.integers(0, 4), st.integers(0, 4)), st.sampled_from(DTYPES), st.booleans(),
    st.sampled_from(["", "adj_", "train."]),
)  # fmt: skip
def test_arrays_of_scripts(tmp_path_factory, seed, shape, dtype, by_columns, prefix):
    path = tmp_path_factory.getbasetemp() / "script.npz"
    dense = drawn(seed, shape, dtype)
    square = shape[0] == shape[1]
    matrix = (sp.csc_array if by_columns and not square else sp.csr_array)(dense)
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
    np.savez(path, **{prefix + name: array for name, array in parts.items()}, other=np.array(["text"]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        agrees(path, dense)
    assert bool(caught) is square
    assert all("transpose it if csc_matrix wrote it" in str(one.message) for one in caught)
    assert bl.list_tensors(path) == [prefix.rstrip("_.") or "/"]


def test_several_matrices_of_scripts_are_named(tmp_path):
    matrix = sp.csr_array(drawn(1, (3, 4), "int64"))
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
    every = {f"{name}_{part}": array for name in ("adj", "attr") for part, array in parts.items()}
    np.savez(tmp_path / "a.npz", **every)
    assert np.array_equal(bl.read(tmp_path / "a.npz:attr").to_dense(), matrix.toarray())
    with pytest.raises(bl.ContainerError, match="got adj, attr; open PATH:NAME"):
        bl.read(tmp_path / "a.npz")
    del every["adj_shape"], every["attr_indices"]
    np.savez(tmp_path / "b.npz", **every)
    for name, lacking in (("adj", "adj_shape"), ("attr", "attr_indices")):
        with pytest.raises(FileNotFoundError, match=f"{lacking}: .* has no such array"):
            bl.read(f"{tmp_path}/b.npz:{name}")


def test_vectors_of_scipy(tmp_path):
    dense = np.array([0, 3.0, 0, 5])
    for vector in (sp.csr_array(dense), sp.coo_array(dense)):
        sp.save_npz(tmp_path / "a.npz", vector)
        agrees(tmp_path / "a.npz", dense)


@given(
    st.integers(0, 99), st.sampled_from([(3, 4), (2, 3, 4), (5, 1), (4,)]), st.sampled_from(DTYPES), st.booleans(),
    st.sampled_from([None, [0], [1], [0, 2], [0, 1]]),
)  # fmt: skip
def test_arrays_of_pydata_sparse(tmp_path_factory, seed, shape, dtype, deflated, rows):
    sparse = pytest.importorskip("sparse")
    path = tmp_path_factory.getbasetemp() / "pydata.npz"
    dense = drawn(seed, shape, dtype)
    array = sparse.COO.from_numpy(dense, fill_value=dense.dtype.type(1))
    if rows is not None and max(rows) < len(shape) and len(rows) < len(shape):
        array = sparse.GCXS.from_coo(array, compressed_axes=rows)
    sparse.save_npz(path, array, compressed=deflated)
    agrees(path, dense)
    assert bl.read(path).fill_value == bl.open(path).fill_value == 1


@given(st.integers(0, 99), st.sampled_from(["square", "symmetric-upper"]), st.sampled_from(["int32", "float64"]))
def test_matrices_of_cooler(tmp_path_factory, seed, mode, dtype):
    path = tmp_path_factory.getbasetemp() / f"{seed}{mode}{dtype}.mcool"
    path.unlink(missing_ok=True)
    dense = drawn(seed, (5, 5), dtype)
    dense = dense + dense.T if mode != "square" else dense
    layouts.cooler(path, dense, mode, "resolutions/10")
    agrees(f"{path}:resolutions/10", dense)
    assert bl.list_tensors(path) == ["resolutions/10"]
    with pytest.raises(bl.ContainerError, match="no tensor here"):
        bl.open(path)
    with bl.open(f"{path}:resolutions/10") as tensor:
        assert tensor.structure == (None if mode == "square" else "symmetric_upper")
        assert tensor.sel(bin="chr2:10-20", bin_2="chr1:0-10") == dense[3, 0]


def test_matrices_are_those_of_cooler_itself(tmp_path):
    cooler = pytest.importorskip("cooler")
    dense = drawn(3, (6, 6), "int32")
    theirs = cooler.Cooler(str(layouts.cooler(tmp_path / "a.cool", dense + dense.T)))
    assert np.array_equal(bl.read(tmp_path / "a.cool").to_dense(), theirs.matrix(balance=False)[:])
    cooler.create_cooler(f"{tmp_path}/b.cool", theirs.bins()[:], theirs.pixels()[:])
    cooler.zoomify_cooler(f"{tmp_path}/b.cool", f"{tmp_path}/b.mcool", [20], 100)
    cooler.create_scool(f"{tmp_path}/b.scool", theirs.bins()[:], {"cell": theirs.pixels()[:]})
    for name, group in (("b.cool", "/"), ("b.mcool", "resolutions/20"), ("b.scool", "cells/cell")):
        place = f"{tmp_path}/{name}"
        assert group in bl.list_tensors(place)
        assert np.array_equal(
            bl.read(f"{place}:{group}").to_dense(), cooler.Cooler(f"{place}::{group}").matrix(balance=False)[:]
        )
    assert bl.list_tensors(f"{tmp_path}/b.scool") == ["cells/cell"]


def test_metadata_is_no_mark_of_sscdf(tmp_path):
    """cooler and others have an attribute of this name, too."""
    layouts.cooler(tmp_path / "a.cool", np.eye(4))
    (tmp_path / "a.cool").rename(tmp_path / "a.h5")
    assert bl.open(tmp_path / "a.h5").structure == "symmetric_upper"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file["pixels/bin2_id"].__setitem__(1, 0), r"\(0, 0\) is given more than once"),
        (lambda file: file["pixels/bin2_id"].__setitem__(0, 99), "bin2_id"),
        (lambda file: file["indexes/bin1_offset"].__setitem__(0, 3), "bin1_offset: goes from 3"),
        (lambda file: file["indexes/bin1_offset"].__setitem__(-1, 99), "bin2_id: expected a length of 99"),
        (lambda file: file.attrs.__setitem__("storage-mode", "lower"), "storage-mode: expected one of"),
        (lambda file: file["bins/chrom"].__setitem__(0, 9), "bins/chrom: a bin has none of the 2"),
        (lambda file: file.__delitem__("indexes"), "no group .indexes"),
    ],
)
def test_damage_to_a_file_of_cooler_is_told(tmp_path, change, message):
    path = layouts.cooler(tmp_path / "a.cool", np.ones((4, 4), np.int32))
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(bl.BinsparseError, match=message):
        bl.read(path)


def test_columns_of_cooler_are_matrices(tmp_path):
    path = layouts.cooler(tmp_path / "a.cool", np.ones((4, 4), np.int32))
    with h5py.File(path, "r+") as file:
        file.move("pixels/count", "pixels/oe")
        file["pixels/balanced"], file["pixels/text"] = file["pixels/oe"][:] / 2, [b"a"]
    assert bl.list_tensors(path) == ["pixels/balanced", "pixels/oe"]
    assert np.array_equal(bl.read(f"{path}:pixels/balanced").to_dense(), np.full((4, 4), 0.5))
    with pytest.raises(bl.ContainerError, match="no such column; read PATH:NAME of pixels/balanced, pixels/oe"):
        bl.open(path)


@given(st.integers(0, 99), st.sampled_from(["float32", "float64", "complex128"]), st.sampled_from([">i4", ">i8"]))
def test_matrices_of_petsc(tmp_path_factory, seed, dtype, index):
    dense = drawn(seed, (4, 5), dtype)
    assume(dense.any())
    vector = np.array([1211214, 2], index).tobytes() + bytes(2 * dense.itemsize)
    for more in (b"", vector, 2 * vector):
        agrees(layouts.petsc(tmp_path_factory.getbasetemp() / "petsc", dense, index, more), dense)


@given(st.integers(0, 10**6), st.sampled_from(["c8", "c8 of integers", "f8", "f8 of f4", "f8 of integers"]))
def test_values_of_eight_bytes_of_petsc(tmp_path_factory, seed, kind):
    """Real values of 64 bits and complex ones of 32 are told apart, or refused where they are few."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 9, 2))
    parts = [rng.standard_normal(shape) for _ in range(2)]
    parts = [np.rint(9 * x) if "integers" in kind else x for x in parts]
    dense = (parts[0] + 1j * parts[1] * (rng.random(shape) < 0.5)).astype("c8") if kind[0] == "c" else parts[0]
    dense = dense.astype("f4").astype("f8") if kind == "f8 of f4" else dense
    dense[rng.random(shape) < 0.3] = 0
    assume(kind[0] == "f" or dense.imag.any())  # what has no imaginary part is taken for real
    path = layouts.petsc(tmp_path_factory.getbasetemp() / "petsc", dense)
    try:
        found = bl.read(path).to_dense()
    except bl.ArrayError as error:
        assert "may be real of 64 bits or complex of 32" in str(error)  # noqa: PT017
        assert np.count_nonzero(dense.imag if kind[0] == "c" else dense) < 20
        return
    assert found.dtype == dense.dtype
    np.testing.assert_array_equal(found, dense)


@pytest.mark.parametrize(
    ("at", "number", "message"),
    [
        (1, -1, "expected a sparse matrix"), (3, -1, "a dense matrix"), (3, 9, "expected 9 real or complex"),
        (3, 99, "expected 99 real or complex"),
        (4, 7, "rows have"), (4, -7, "rows have"), (8, 99, "outside"), (9, 0, r"\(0, 0\) is given more than once"),
    ],
)  # fmt: skip
def test_damage_to_a_file_of_petsc_is_told(tmp_path, at, number, message):
    path = layouts.petsc(tmp_path / "petsc", np.ones((4, 4)))
    data = np.frombuffer(path.read_bytes(), ">i4").copy()
    data[at] = number
    path.write_bytes(data.tobytes())
    with pytest.raises(bl.BinsparseError, match=message):
        bl.read(path)
    for cut in range(4, len(data) * 4, 7):
        path.write_bytes(data.tobytes()[:cut])
        with pytest.raises(bl.BinsparseError):
            bl.read(path)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "packed"), [("bool", True), ("float64", False), ("complex128", True)])
def test_matrices_of_matlab_5(tmp_path, dtype, packed):
    dense = drawn(1, (3, 4), dtype)
    others = {"x": np.ones(3), "c": np.array([dense, "a"], object), "s": {"b": dense}, "full": dense}
    scipy.io.savemat(tmp_path / "a.mat", {**others, "A": sp.csc_array(dense)}, do_compression=packed)
    agrees(f"{tmp_path}/a.mat:A", dense)
    assert bl.list_tensors(tmp_path / "a.mat") == ["A"]
    with pytest.raises(bl.ContainerError, match="expected x, got A; open PATH:NAME"):
        bl.read(f"{tmp_path}/a.mat:x")


def test_matrices_in_structs_and_of_matlab_4(tmp_path):
    matrix = sp.csc_array(drawn(1, (3, 4), "float64"))
    scipy.io.savemat(tmp_path / "a.mat", {"P": {"A": matrix, "s": {"B": matrix}}})
    assert bl.list_tensors(tmp_path / "a.mat") == ["P/A", "P/s/B"]
    assert np.array_equal(bl.read(f"{tmp_path}/a.mat:P/s/B").to_dense(), matrix.toarray())
    scipy.io.savemat(tmp_path / "b.mat", {"A": matrix}, format="4")
    assert np.array_equal(bl.read(tmp_path / "b.mat").to_dense(), matrix.toarray())
    with pytest.raises(bl.LimitError, match="array_bytes"):
        bl.read(tmp_path / "a.mat", limits=bl.Limits(array_bytes=64))


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_damage_to_a_file_of_matlab_5_is_told(tmp_path, packed):
    scipy.io.savemat(tmp_path / "a.mat", {"A": sp.csc_array(drawn(1, (3, 4), "float64"))}, do_compression=packed)
    whole, rng, refused = (tmp_path / "a.mat").read_bytes(), np.random.default_rng(0), []
    for at, byte in zip(rng.integers(0, len(whole), 12), rng.integers(0, 256, 12), strict=True):
        data = bytearray(whole)
        data[at] = byte
        (tmp_path / "a.mat").write_bytes(data if byte % 5 else data[:at])
        try:
            found = bl.read(tmp_path / "a.mat")
        except bl.BinsparseError as error:
            refused.append(str(error))
        else:  # a number differs
            found.check()
            assert found.shape == found.to_dense().shape
            assert byte % 5
    assert refused


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("features", ["features.tsv", "genes.tsv"])
def test_folders_of_10x(tmp_path, packed, features):
    dense = drawn(1, (5, 3), "int64")
    path = layouts.mex(tmp_path / "filtered", dense, packed, features)
    agrees(path, dense)
    tensor = bl.read(path)
    assert tensor.dims == (features[:-5], "barcode")
    assert tensor.sel({0: "ENSG2", "barcode": "AAAC-1"}) == dense[2, 1]
    with pytest.raises(bl.OptionError, match="read-only"):
        bl.write(tmp_path / "again", tensor, kind="mex")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("barcodes.tsv", lambda file: file.write_text("A\n"), "expected 3 lines, got 1"),
        ("barcodes.tsv", lambda file: file.unlink(), "has no barcodes.tsv"),
        ("features.tsv", lambda file: file.write_bytes(b"\xff\n" * 5), "not UTF-8"),
        ("features.tsv", lambda file: file.rename(file.with_name("x")) and file.symlink_to("x"), "link"),
        ("matrix.mtx", lambda file: file.write_text("%%MatrixMarket\n"), "expected %%MatrixMarket"),
    ],
)
def test_damage_to_a_folder_of_10x_is_told(tmp_path, name, change, message):
    path = layouts.mex(tmp_path / "a", drawn(1, (5, 3), "int64"), False)
    change(path / name)
    with pytest.raises(bl.BinsparseError, match=message):
        bl.read(path)


@pytest.mark.parametrize("group", ["GRCh38", "matrix"])
@pytest.mark.parametrize("named", [False, True])
def test_matrices_of_10x(tmp_path, group, named):
    dense = drawn(1, (7, 5), "int32")
    path = layouts.tenx(tmp_path / "a.h5", dense, group, named)
    agrees(f"{path}:{group}", dense)
    assert bl.list_tensors(path) == [group]
    tensor = bl.read(f"{path}:{group}" if group == "GRCh38" else path)
    assert str(tensor.format) == "CSC"
    assert tensor.dims == (("feature" if group == "matrix" else "gene", "barcode") if named else None)
    if named:
        assert tensor.sel({0: "ENSG2", "barcode": "AAAC-1"}) == dense[2, 1]
        with h5py.File(path, "r+") as file:
            there = file[group]
            there["features/name" if group == "matrix" else "gene_names"] = [f"symbol {k}" for k in range(7)]
        symbols = bl.read(f"{path}:{group}", names="symbol")
        assert symbols.labels(0).tolist() == [f"symbol {k}" for k in range(7)]
        assert symbols.labels("barcode").tolist() == layouts.barcodes(5)
        with pytest.raises(bl.OptionError, match="expected 'symbol' or None"):
            bl.read(f"{path}:{group}", names="name")


SAMPLES = b"# made by hand\n1 1:0.5 3:-2e3 # one\n\n-1.5 qid:7 2:1\r\n0\n"


def test_samples_of_svmlight(tmp_path):
    (tmp_path / "a.svmlight").write_bytes(SAMPLES)
    (tmp_path / "zero.libsvm").write_bytes(b"3 0:1 2:4\n")
    tensor = bl.read(tmp_path / "a.svmlight")
    assert tensor.to_dense().tolist() == [[0.5, 0, -2000], [0, 1, 0], [0, 0, 0]]
    assert tensor.labels("sample").tolist() == [1, -1.5, 0]
    assert tensor.sel(sample=-1.5).to_dense().tolist() == [0, 1, 0]
    assert bl.read(tmp_path / "zero.libsvm").to_dense().tolist() == [[1, 0, 4]]
    assert bl.read(tmp_path / "a.svmlight", shape=(3, 9)).shape == (3, 9)
    for comment in (b"", b"# Column indices are one-based\n#\n\n" + b"# %b\n" % bytes(range(33, 127)) * 5):
        (tmp_path / "no_suffix").write_bytes(comment + b"+1 1:0.5 3:-2e3\n-1 2:1 \n")
        assert bl.read(tmp_path / "no_suffix").labels("sample").tolist() == [1, -1]
    (tmp_path / "text").write_bytes(b"1 2 3\n")
    with pytest.raises(bl.ContainerError, match="neither its content nor its suffix"):
        bl.read(tmp_path / "text")


@pytest.mark.parametrize(
    ("text", "zero_based", "expected"),
    [
        ("1 1:7 2:9\n", "auto", [[7, 9]]),
        ("1 1:7 2:9\n", False, [[7, 9]]),
        ("1 1:7 2:9\n", True, [[0, 7, 9]]),
        ("1 0:7 2:9\n", "auto", [[7, 0, 9]]),
        ("1 0:7 2:9\n", True, [[7, 0, 9]]),
        ("1\n", True, [[]]),
    ],
)
def test_features_may_count_from_zero(tmp_path, text, zero_based, expected):
    datasets = pytest.importorskip("sklearn.datasets")
    (tmp_path / "a.svmlight").write_text(text)
    assert bl.read(tmp_path / "a.svmlight", zero_based=zero_based).to_dense().tolist() == expected
    if text != "1\n":
        found, _ = datasets.load_svmlight_file(str(tmp_path / "a.svmlight"), zero_based=zero_based)
        assert found.toarray().tolist() == expected


def test_a_feature_0_is_refused_if_features_count_from_1(tmp_path):
    pytest.importorskip("sklearn")
    (tmp_path / "a.svmlight").write_text("1 0:7\n")
    with pytest.raises(bl.ArrayError, match="has a feature 0; pass zero_based=True"):
        bl.read(tmp_path / "a.svmlight", zero_based=False)


def test_samples_are_those_of_scikit_learn(tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    dense = drawn(1, (6, 5), "float64")
    datasets.dump_svmlight_file(dense, np.arange(6), str(tmp_path / "a.svmlight"))
    found, targets = datasets.load_svmlight_file(str(tmp_path / "a.svmlight"))
    assert np.array_equal(bl.read(tmp_path / "a.svmlight").to_dense(), found.toarray())
    assert np.array_equal(bl.read(tmp_path / "a.svmlight").labels("sample"), targets)
    datasets.dump_svmlight_file(dense, np.arange(6), str(tmp_path / "a.svmlight"), zero_based=False)
    assert np.array_equal(bl.read(tmp_path / "a.svmlight").to_dense(), dense)


def test_several_targets_of_a_sample(tmp_path):
    (tmp_path / "a.svmlight").write_text("0,2 1:0.5 3:2\n1 2:1\n")
    tensor = bl.read(tmp_path / "a.svmlight")
    assert tensor.to_dense().tolist() == [[0.5, 0, 2], [0, 1, 0]]
    assert tensor.labels("sample").tolist() == ["0,2", "1"]
    (tmp_path / "long.svmlight").write_text("1 1:2 3:4\n" * 300 + "1 1:2 3\n" + "0 2:1\n" * 10)
    with pytest.raises(bl.ArrayError, match="line 301"):
        bl.read(tmp_path / "long.svmlight")


@pytest.mark.parametrize(
    "line",
    ["1 2", "1 2:", "x 1:2", "1 x:2", "1 1:2:3 4", "1 1:2 3 4:5:6", "1:2", "1 -1:2", "1 1:2,", "1,x 1:2", "1 1: 2 3",
     "1 1:2 1:3", "1 99999999999999999999:1"],
)  # fmt: skip
def test_damage_to_samples_is_told(tmp_path, line):
    (tmp_path / "a.svmlight").write_text(f"1 1:2\n 2 2:3\n{line}\n")
    with pytest.raises(bl.BinsparseError):
        bl.read(tmp_path / "a.svmlight")


@given(
    st.integers(0, 99), st.sampled_from([(1, 1), (3, 4), (7, 2)]), st.sampled_from(["bool", "float64", "complex128"])
)
def test_matrices_of_matlab(tmp_path_factory, seed, shape, dtype):
    dense = drawn(seed, shape, dtype)
    path = layouts.matlab(tmp_path_factory.getbasetemp() / "m.mat", dense)
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
    path = layouts.matlab(tmp_path / "m.mat", np.eye(4))
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(bl.BinsparseError, match=message):
        bl.read(path)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"format": np.array("xyz")}, "expected one of csr, csc"),
        ({"format": np.array(["csr"] * 2)}, "expected one item"),
        ({"indptr": np.array([0, 1, 1, 9])}, "indices: expected a length of 9"),
        ({"indptr": np.array([0, 2, 1, 3])}, "indptr"),
        ({"indices": np.array([0, 1, 7])}, "outside"),
        ({"indices": np.zeros((3, 1), int)}, "one dimension"),
        ({"shape": np.array([3, -4])}, "expected one of csr"),
        ({"shape": np.array([3, 4, 5])}, "expected one of csr"),
        ({"format": np.array("bsr")}, "data: expected blocks"),
        ({"format": np.array("bsr"), "data": np.ones((2, 2, 2))}, "data: expected blocks that divide"),
        ({"format": np.array("bsr"), "data": np.ones((3, 1, 0))}, "data: expected blocks that divide"),
        ({"format": np.array("bsr"), "data": np.ones((2, 1, 1))}, "data: expected a length of 3"),
        ({"format": np.array("dia"), "offsets": np.arange(2)}, "data: expected a diagonal for each of 2"),
        ({"format": np.array("coo")}, "row: the file has no such array"),
        ({"format": np.array("coo"), "coords": np.zeros((2, 4), int)}, "coords: expected 2 rows of 3"),
        ({"format": np.array("gcxs"), "compressed_axes": np.array([5])}, "permutation|dimensions"),
        ({"format": np.array("gcxs"), "compressed_axes": np.array([0, 1])}, "expected"),
        ({"data": np.array(["a"] * 3)}, "data: expected numbers"),
        ({"data": None}, "data: the file has no such array"),
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


@pytest.mark.parametrize("packed", [False, True])
def test_symbols_of_kallisto(tmp_path, packed):
    """They are in a second file, next to that of the identifiers."""
    matrix = sp.csr_array(np.arange(6).reshape(2, 3))
    scipy.io.mmwrite(tmp_path / "cells_x_genes.mtx", matrix)
    tables = {"barcodes": ["AC", "GT"], "genes": ["E1", "E2", "E3"], "genes.names": ["ACTB", "GAPDH", "TP53"]}
    for name, lines in tables.items():
        text = "".join(f"{line}\n" for line in lines).encode()
        path = tmp_path / f"cells_x_genes.{name}.txt"
        if packed:
            Path(f"{path}.gz").write_bytes(gzip.compress(text))
        else:
            path.write_bytes(text)
    found = bl.read(tmp_path, names="symbol")
    assert found.labels("gene").tolist() == tables["genes.names"]
    assert found.labels("barcode").tolist() == tables["barcodes"]
    assert bl.read(tmp_path).labels("gene").tolist() == tables["genes"]
    for file in tmp_path.glob("*.names.*"):
        file.unlink()
    with pytest.raises(bl.ContainerError, match=r"no \.genes\.names\.txt"):
        bl.read(tmp_path, names="symbol")
