"""loom, BIOM, and NetCDF of other programs; and messages for what cannot be read."""

import gzip

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from test_others import agrees, drawn

import binsparse_levels as bl


def replaced(file, name, array):
    del file[name]
    file[name] = array


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file["row_attrs"].move("Gene", "Symbol"), None),
        (lambda file: file["col_attrs"].__delitem__("CellID"), None),
        (
            lambda file: file["row_attrs"].__delitem__("Gene") or file["row_attrs"].__setitem__("Gene", [b"a"]),
            "2 names",
        ),
        (
            lambda file: file.__delitem__("matrix") or file.__setitem__("matrix", np.ones(3)),
            "matrix: expected a matrix",
        ),
        (lambda file: file.__delitem__("matrix") or file.create_group("matrix"), "matrix"),
    ],
)
def test_names_and_damage_of_loom(tmp_path, change, message):
    with h5py.File(tmp_path / "a.loom", "w") as file:
        file["matrix"], file["row_attrs/Gene"], file["col_attrs/CellID"] = np.eye(2, 3), [b"a", b"b"], np.arange(3)
        change(file)
    if message is None:
        found = bl.read(tmp_path / "a.loom")
        names = [None if (labels := found.labels(dim)) is None else labels.tolist() for dim in found.dims]
        assert names in ([None, ["0", "1", "2"]], [["a", "b"], None])
        return
    with pytest.raises(bl.BinsparseError, match=message):
        bl.read(tmp_path / "a.loom")


def biom(path, matrix, ids=("observation", "sample")):
    """Write a table of BIOM 2."""
    with h5py.File(path, "w") as file:
        file.attrs.update({"format-version": (2, 1), "shape": matrix.shape})
        for axis, size, name in zip(ids, matrix.shape, ("csr", "csc"), strict=True):
            made = sp.coo_array(matrix).asformat(name)
            file[f"{axis}/ids"] = np.array([f"{axis} {k}" for k in range(size)], object) if size else np.empty(0)
            for part in ("data", "indices", "indptr"):
                file[f"{axis}/matrix/{part}"] = getattr(made, part)
    return path


@given(st.integers(0, 99), st.sampled_from([(3, 4), (1, 1), (0, 0), (2, 0)]))
def test_tables_of_biom(tmp_path_factory, seed, shape):
    dense = drawn(seed, shape, "float64")
    path = biom(tmp_path_factory.getbasetemp() / "a.biom", dense)
    assert bl.list_tensors(path) == ["observation/matrix", "sample/matrix"]
    for place, format in ((path, "CSR"), (f"{path}:observation/matrix", "CSR"), (f"{path}:sample/matrix", "CSC")):
        agrees(place, dense)
        with bl.open(place) as tensor:
            assert str(tensor.format) == format
            assert shape[1] == 0 or tensor.labels("sample").tolist() == [f"sample {k}" for k in range(shape[1])]


def test_tables_are_those_of_biom_itself(tmp_path):
    theirs, dense = pytest.importorskip("biom"), drawn(5, (3, 4), "float64")
    table = theirs.Table(dense, [*"abc"], [*"wxyz"])
    with h5py.File(tmp_path / "a.biom", "w") as file:
        table.to_hdf5(file, "a test")
    agrees(tmp_path / "a.biom", dense)
    with theirs.util.biom_open(str(biom(tmp_path / "b.biom", dense))) as file:
        assert np.array_equal(theirs.Table.from_hdf5(file).matrix_data.toarray(), dense)
    (tmp_path / "c.biom").write_text(table.to_json("a test"))
    with pytest.raises(bl.ContainerError, match="biom convert --to-hdf5"):
        bl.read(tmp_path / "c.biom")


def test_a_biom_of_version_1_and_files_in_gzip_name_the_remedy(tmp_path):
    (tmp_path / "a.biom").write_text('\n {"id": null, "format": "1.0.0"}')
    with pytest.raises(bl.ContainerError, match=r"JSON, as of BIOM 1.*biom convert --to-hdf5"):
        bl.read(tmp_path / "a.biom")
    for name in ("a.h5ad", "a.npz", "a.zarr.zip"):
        bl.write(tmp_path / name, np.eye(3))
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        with pytest.raises(bl.ContainerError, match="compressed by gzip as a whole; decompress it first, by gunzip"):
            bl.read(tmp_path / f"{name}.gz")


def test_a_filter_that_is_not_installed_is_named(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["matrix/data"], file["matrix/indices"], file["matrix/shape"] = np.ones(2), [0, 1], [2, 3]
        kept = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        kept.set_chunk((3,))
        kept.set_filter(32026, h5py.h5z.FLAG_OPTIONAL, ())
        h5py.h5d.create(file["matrix"].id, b"indptr", h5py.h5t.NATIVE_INT64, h5py.h5s.create_simple((3,)), kept)
    with pytest.raises(bl.ContainerError, match=r"indptr: the HDF5 filter blosc2 \(32026\).*import hdf5plugin"):
        bl.read(f"{tmp_path}/a.h5:matrix")


def test_weights_without_a_shape_need_it(tmp_path):
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file["row"], file["col"], file["S"], file["n_s"] = [1, 2, 2], [3, 1, 1], [0.5, 1, 2], np.zeros(3)
    with pytest.raises(bl.ContainerError, match="no dimensions n_b and n_a, the shape; pass shape= to read"):
        bl.open(tmp_path / "a.nc")
    with pytest.raises(bl.ArrayError, match="more than once"):
        bl.read(tmp_path / "a.nc", shape=(2, 3))
    found = bl.read(tmp_path / "a.nc", shape=(2, 3), duplicates="sum")
    assert found.to_dense().tolist() == [[0, 0, 0.5], [3, 0, 0]]
    with pytest.raises(bl.ArrayError, match="outside"):
        bl.read(tmp_path / "a.nc", shape=(2, 2))
    with h5py.File(tmp_path / "a.nc", "r+") as file:
        file["n_a"], file["n_b"] = np.zeros(3), np.zeros(2)
    with pytest.raises(bl.OptionError, match="the file says 2 × 3; leave it out"):
        bl.read(tmp_path / "a.nc", shape=(2, 3), duplicates="sum")


@given(st.integers(0, 99), st.integers(0, 2), st.sampled_from(["NETCDF4", "NETCDF3_CLASSIC"]), st.booleans())
def test_gathered_variables_are_those_of_xarray(tmp_path_factory, seed, at, version, missing):
    """CF gathering, decoded by xarray's own decoding of values and numpy's unravel_index."""
    xarray, netcdf = pytest.importorskip("xarray"), pytest.importorskip("netCDF4")
    path, generator = tmp_path_factory.getbasetemp() / "gathered.nc", np.random.default_rng(seed)
    points = np.sort(generator.choice(12, generator.integers(1, 12), replace=False)).astype("i4")
    dims = [*"ab"[:at], "point", *"ab"[at:]]
    values = generator.integers(-3, 4, [len(points) if dim == "point" else 2 for dim in dims]).astype("i2")
    with netcdf.Dataset(path, "w", format=version) as file:
        for dim, size in {"x": 3, "y": 4, "point": len(points), "a": None if at else 2, "b": 2}.items():
            file.createDimension(dim, size)
        file.createVariable("point", "i4", ("point",))[:] = points
        file["point"].compress = "x y"
        file.createVariable("y", "f4", ("y",))[:] = np.arange(4) / 2
        variable = file.createVariable("v", "i2", dims, fill_value=3 if missing else None)
        variable.set_auto_mask(False)
        variable[:] = values
    with xarray.open_dataset(path) as data:
        known, dtype = data.v.values, data.v.dtype
    cells = np.zeros([*known.shape[:at], 12, *known.shape[at + 1 :]], dtype)
    cells[(slice(None),) * at + (points,)] = known
    dense = cells.reshape([*known.shape[:at], 3, 4, *known.shape[at + 1 :]])
    for found in (bl.read(path), bl.open(f"{path}:v")):
        assert found.dims == (*dims[:at], "x", "y", *dims[at + 1 :])
        assert found.labels("y").tolist() == [0, 0.5, 1, 1.5]
        assert found.dtype == dense.dtype
        assert np.array_equal(found.to_dense(), dense, equal_nan=dense.dtype.kind == "f")
        assert np.array_equal(found[..., 1:].to_dense(), dense[..., 1:], equal_nan=dense.dtype.kind == "f")


def test_packed_and_other_variables_are_refused(tmp_path):
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file.attrs["_NCProperties"] = np.bytes_("version=2")
        for name, size in {"x": 2, "point": 2}.items():
            file[name] = np.arange(size)
            file[name].make_scale(name)
        file["v"] = np.ones(2)
        file["v"].dims[0].attach_scale(file["point"])
    with pytest.raises(bl.ContainerError, match="no gathered variable; list_tensors names the tensors of the file"):
        bl.read(tmp_path / "a.nc")
    with h5py.File(tmp_path / "a.nc", "r+") as file:
        file["point"].attrs["compress"], file["v"].attrs["scale_factor"] = "x", 0.1
    with pytest.raises(bl.ArrayError, match="v: is packed by scale_factor and add_offset; open the file by xarray"):
        bl.read(tmp_path / "a.nc")
    (tmp_path / "b.nc").write_bytes(b"CDF\x05 of a newer version")
    with pytest.raises(bl.ContainerError, match="nccopy"):
        bl.read(tmp_path / "b.nc")
