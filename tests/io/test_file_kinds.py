"""The laws of kinds of files, for files that the programs of the kinds have written."""

import os

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
import zarr

import binsparse_levels as bl
from binsparse_levels import testing
from binsparse_levels.io import KINDS, FileTensor, Foreign, Kind
from binsparse_levels.io.files.names import labelled as labelled_by
from binsparse_levels.io.files.sources import open_group

CSR = scipy.sparse.csr_array(np.array([[0, 1.5, 0, 0, 2], [0] * 5, [-3, 0, 0, 0, 0], [0, 0, 4, 0, 0]]))
ROWS, COLUMNS = [*"abcd"], [*"vwxyz"]


def of_ours(suffix, **options):
    def make(folder):
        tensor = bl.from_scipy(CSR, dims=("r", "c"), labels={"r": ROWS})
        bl.write(f"{folder}/a{suffix}", tensor, **options)
        return f"{folder}/a{suffix}", {"/": tensor}

    return make


def of_sscdf(folder, **options):
    vector = bl.pack([[0, 2]], [1.0, 3.0], 4, "CVEC")
    bl.write_all(f"{folder}/a.sscdf", {None: bl.from_scipy(CSR), "v": vector}, **options)
    return f"{folder}/a.sscdf", {"/": CSR, "v": vector}


def in_memory(folder):
    store = {}
    bl.write(store, CSR)
    return store, {"/": CSR}


def of_scipy(folder):
    scipy.sparse.save_npz(f"{folder}/a.npz", CSR)
    return f"{folder}/a.npz", {"/": CSR}


def of_scripts(folder):
    """Several matrices by np.savez, as graph data sets have them."""
    arrays = {}
    for name, matrix in (("adj", CSR), ("attr", CSR.tocsc())):
        parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
        arrays |= {f"{name}_{part}": array for part, array in parts.items()}
    np.savez(f"{folder}/a.npz", **arrays)
    return f"{folder}/a.npz", {"adj": CSR, "attr": CSR}


def of_harwell_boeing(folder, letter="U"):
    matrix = scipy.sparse.csc_array(np.array([[2, 0, 0], [1, 0, 0], [0, 3, 4.5]]))
    path = f"{folder}/a.r{letter.lower()}a"
    scipy.io.hb_write(path, matrix)
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace("RUA", f"R{letter}A"))
    return path, {"/": matrix + scipy.sparse.tril(matrix, -1).T if letter == "S" else matrix}


def of_metis(folder):
    with open(f"{folder}/a.graph", "w") as file:
        file.write("% a triangle and a vertex\n4 3 001\n2 5 3 -1\n1 5 3 7\n% between\n2 7 1 -1\n\n")
    return f"{folder}/a.graph", {"/": np.array([[0, 5, -1, 0], [5, 0, 7, 0], [-1, 7, 0, 0], [0, 0, 0, 0]])}


def of_matlab(folder):
    with h5py.File(f"{folder}/a.mat", "w", userblock_size=512) as file:
        group, csc = file.create_group("s/A"), CSR.tocsc()
        group.attrs["MATLAB_sparse"] = np.uint64(4)
        group["jc"], group["ir"], group["data"] = csc.indptr.astype("u8"), csc.indices.astype("u8"), csc.data
    with open(f"{folder}/a.mat", "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file")
    return f"{folder}/a.mat", {"s/A": CSR}


def of_matlab_5(folder):
    scipy.io.savemat(f"{folder}/a.mat", {"A": scipy.sparse.csc_matrix(CSR)})
    return f"{folder}/a.mat", {"A": CSR}


def of_cooler(folder):
    square = scipy.sparse.csr_array(np.triu(np.arange(16).reshape(4, 4) % 5))
    with h5py.File(f"{folder}/a.mcool", "w") as file:
        group = file.create_group("resolutions/10")
        group.attrs.update({"bin-type": "fixed", "storage-mode": "symmetric-upper"})
        rows = np.repeat(np.arange(4), np.diff(square.indptr))
        tables = {
            "chroms": {"name": np.array([b"chr1"])},
            "bins": {"chrom": np.zeros(4, "i4"), "start": np.arange(4) * 10, "end": np.arange(1, 5) * 10},
            "pixels": {"bin1_id": rows, "bin2_id": square.indices, "count": square.data, "oe": square.data / 4},
            "indexes": {"bin1_offset": square.indptr},
        }
        for table, columns in tables.items():
            for name, column in columns.items():
                group[f"{table}/{name}"] = column
    dense = square.toarray()
    bins = [f"chr1:{10 * k}-{10 * k + 10}" for k in range(4)]
    whole = bl.from_numpy(dense + np.triu(dense, 1).T, dims=("bin", "bin_2"), labels={"bin": bins, "bin_2": bins})
    return f"{folder}/a.mcool", {"resolutions/10": whole, "resolutions/10/pixels/oe": whole / 4}


def of_loom(folder, base=""):
    """A file of loompy, at its root or below a group."""
    with h5py.File(f"{folder}/a.loom", "w") as file:
        group = file.require_group(base or "/")
        group["matrix"], group["layers/spliced"] = CSR.toarray(), 2 * CSR.toarray()
        group["row_attrs/Gene"], group["col_attrs/CellID"] = np.array(ROWS, object), np.array(COLUMNS, object)
        group["row_attrs/Accession"] = np.array(ROWS[::-1], object)
        for name in ("attrs", "row_graphs", "col_graphs"):
            group.create_group(name)
    labels = {"dims": ("gene", "cell"), "labels": {"gene": ROWS, "cell": COLUMNS}}
    made = {"matrix": CSR.toarray(), "layers/spliced": 2 * CSR.toarray()}
    return f"{folder}/a.loom", {f"{base}/{k}".lstrip("/"): bl.from_numpy(x, **labels) for k, x in made.items()}


def of_biom(folder, base=""):
    """A file of biom-format, at its root or below a group."""
    with h5py.File(f"{folder}/a.biom", "w") as file:
        group = file.require_group(base or "/")
        group.attrs.update({"format-version": (2, 1), "shape": CSR.shape, "nnz": CSR.nnz, "type": "OTU table"})
        for axis, ids, matrix in (("observation", ROWS, CSR), ("sample", COLUMNS, CSR.tocsc())):
            group[f"{axis}/ids"] = np.array(ids, object)
            for name in ("data", "indices", "indptr"):
                group[f"{axis}/matrix/{name}"] = getattr(matrix, name)
    labels = {"observation": ROWS, "sample": COLUMNS}
    table = bl.from_scipy(CSR, dims=("observation", "sample"), labels=labels)
    return f"{folder}/a.biom", {f"{base}/{axis}/matrix".lstrip("/"): table for axis in labels}


def netcdf(path, version, sizes, variables):
    """A file of the NetCDF library. variables: by name, their dimensions, values and attributes."""
    with pytest.importorskip("netCDF4").Dataset(path, "w", format=version) as file:
        for name, size in sizes.items():
            file.createDimension(name, size)
        for name, (dims, values, attributes) in variables.items():
            values, attributes = np.asarray(values), dict(attributes)
            variable = file.createVariable(name, values.dtype, dims, fill_value=attributes.pop("_FillValue", None))
            variable[:] = values
            variable.setncatts(attributes)
    return path


def of_esmf(folder, version="NETCDF4"):
    weights, order = CSR.tocoo(), np.array([2, 0, 3, 1])  # unsorted
    numbers = {"row": weights.coords[0] + 1, "col": weights.coords[1] + 1, "S": weights.data}
    variables = {name: (("n_s",), x[order].astype("f8" if name == "S" else "i4"), {}) for name, x in numbers.items()}
    return netcdf(f"{folder}/a.nc", version, {"n_s": 4, "n_a": 5, "n_b": 4}, variables), {"/": CSR}


def of_gathered(folder, version="NETCDF4"):
    """Soil at the land points of a grid, as in the examples of the CF conventions."""
    sizes, points = {"lat": 3, "lon": 4, "depth": 2, "point": 5}, np.array([1, 2, 5, 10, 11], "i4")
    lat, soil = np.array([10.0, 20, 30]), np.arange(1.0, 11).reshape(2, 5)
    soil[1, 2], cells = np.nan, np.zeros((2, 12))
    cells[:, points] = soil
    variables = {
        "lat": (("lat",), lat, {"units": "degrees_north"}),
        "point": (("point",), points, {"compress": "lat lon"}),
        "soil": (("depth", "point"), np.nan_to_num(soil, nan=-9), {"_FillValue": -9.0}),
        "deep": (("point", "depth"), soil.T.astype("f4"), {}),
        "area": (("point",), np.arange(1, 6, dtype="i4"), {}),
        "other": (("lat", "lon"), np.ones((3, 4)), {}),
    }
    path = netcdf(f"{folder}/a.nc", version, sizes, variables)
    dims, labels = ("depth", "lat", "lon"), {"labels": {"lat": lat}}
    soil = np.stack([cells[0].reshape(3, 4), cells[1].reshape(3, 4)])
    area = np.zeros(12, "i4")
    area[points] = np.arange(1, 6)
    return path, {
        "soil": bl.from_numpy(soil, dims=dims, **labels),
        "deep": bl.from_numpy(soil.transpose(1, 2, 0).astype("f4"), dims=(*dims[1:], dims[0]), **labels),
        "area": bl.from_numpy(area.reshape(3, 4), dims=dims[1:], **labels),
    }


def of_petsc(folder):
    heads = np.array([1211216, *CSR.shape, CSR.nnz, *np.diff(CSR.indptr), *CSR.indices], ">i4")
    with open(f"{folder}/a.petsc", "wb") as file:
        file.write(heads.tobytes() + CSR.data.astype(">f8").tobytes())
    return f"{folder}/a.petsc", {"/": CSR}


def of_matrix_market(folder):
    scipy.io.mmwrite(f"{folder}/a.mtx", CSR)
    return f"{folder}/a.mtx", {"/": CSR}


def of_10x(folder, matrix="matrix.mtx", rows=("feature", "features.tsv"), columns=("barcode", "barcodes.tsv")):
    os.mkdir(f"{folder}/a")
    scipy.io.mmwrite(f"{folder}/a/{matrix}", CSR)
    for (_, name), texts in ((rows, ROWS), (columns, COLUMNS)):
        pd.DataFrame({0: texts, 1: texts}).to_csv(f"{folder}/a/{name}", sep="\t", header=False, index=False)
    return f"{folder}/a", {
        "/": bl.from_scipy(CSR, dims=(rows[0], columns[0]), labels={rows[0]: ROWS, columns[0]: COLUMNS})
    }


def of_geo(folder):
    return of_10x(folder, "GSM1_matrix.mtx", ("gene", "GSM1_genes.tsv.gz"), ("barcode", "GSM1_barcodes.tsv.gz"))


def of_kallisto(folder):
    rows, columns = ("barcode", "cells_x_genes.barcodes.txt"), ("gene", "cells_x_genes.genes.txt")
    return of_10x(folder, "cells_x_genes.mtx", rows, columns)


def of_scikit_learn(folder):
    datasets = pytest.importorskip("sklearn.datasets")
    datasets.dump_svmlight_file(CSR, np.arange(4.0), f"{folder}/a.svmlight", zero_based=False)
    return f"{folder}/a.svmlight", {
        "/": bl.from_scipy(CSR, dims=("sample", "feature"), labels={"sample": np.arange(4.0)})
    }


def of_frostt(folder):
    coo = CSR.tocoo()
    rows = [f"{i + 1} {j + 1} {x}\n" for i, j, x in zip(*coo.coords, coo.data, strict=True)]
    with open(f"{folder}/a.tns", "w") as file:
        file.write("".join(["2\n4 5\n", *rows]))
    return f"{folder}/a.tns", {"/": CSR}


def of_rawarray(folder):
    bl.write(f"{folder}/a.ra", CSR.toarray())
    return f"{folder}/a.ra", {"/": CSR.toarray()}


def of_bpcells(folder):
    tensor = bl.from_scipy(CSR, dims=("row", "column"), labels={"row": ROWS, "column": COLUMNS})
    bl.write(f"{folder}/a.h5:g", tensor, kind="bpcells")
    return f"{folder}/a.h5", {"g": tensor}


def anndata_of(anndata):
    data = anndata.AnnData(CSR, obs=pd.DataFrame(index=ROWS), var=pd.DataFrame(index=COLUMNS))
    data.layers["counts"], data.obsp["near"] = CSR.tocsc(), scipy.sparse.csr_array(np.eye(4))
    data.layers["dense"], data.obsm["X_pca"] = CSR.toarray(), np.arange(8.0).reshape(4, 2)
    return data


def labelled(*axes):
    dims = [axis if axis not in axes[:k] else f"{axis}_2" for k, axis in enumerate(axes)]
    return {"dims": dims, "labels": {dim: ROWS if dim.startswith("obs") else COLUMNS for dim in dims}}


def of_anndata(folder, base="", suffix=".h5ad"):
    """AnnData at the root of a file, or below a group."""
    anndata, path = pytest.importorskip("anndata"), f"{folder}/a{suffix}"
    file = h5py.File(path, "w") if suffix == ".h5ad" else zarr.open_group(path, mode="w")
    above, _, name = base.rpartition("/")
    anndata.io.write_elem(file.require_group(above) if above else file, name or "/", anndata_of(anndata))
    if suffix == ".h5ad":
        file.close()
    cells = bl.from_scipy(CSR, **labelled("obs", "var"))
    near = bl.from_scipy(scipy.sparse.csr_array(np.eye(4)), **labelled("obs", "obs"))
    pca = bl.from_numpy(np.arange(8.0).reshape(4, 2), dims=("obs", "column"), labels={"obs": ROWS})
    places = {"X": cells, "layers/counts": cells, "layers/dense": cells, "obsp/near": near, "obsm/X_pca": pca}
    return path, {f"{base}/{name}".lstrip("/"): tensor for name, tensor in places.items()}


MADE = {
    "sscdf": [of_sscdf],
    "sscdf_json": [lambda folder: of_sscdf(folder, kind="sscdf_json")],
    "hdf5": [of_ours(".h5")],
    "zarr": [of_ours(".zarr"), of_ours(".zarr.zip")],
    "zarr2": [of_ours(".zarr", kind="zarr2")],
    "npz": [of_ours(".npz")],
    "sparse_npz": [of_scipy, of_scripts],
    "matlab": [pytest.param(make, marks=pytest.mark.slow) for make in (of_matlab, of_matlab_5)],
    "cooler": [of_cooler],
    "petsc": [of_petsc],
    "mex": [of_10x, of_geo, of_kallisto],
    "svmlight": [pytest.param(of_scikit_learn, marks=pytest.mark.slow)],
    "metis": [of_metis],
    "harwell_boeing": [of_harwell_boeing, lambda folder: of_harwell_boeing(folder, "S")],
    "rawarray_directory": [of_ours(".bspra")],
    "directory": [of_ours(".bspnpy")],
    "netcdf": [of_ours(".nc")],
    "memory": [in_memory],
    "matrix_market": [of_matrix_market],
    "frostt": [of_frostt],
    "rawarray": [of_rawarray],
    "bpcells": [of_bpcells],
    "anndata": [
        of_anndata,
        lambda folder: of_anndata(folder, "tables/obs/cells"),
        pytest.param(lambda folder: of_anndata(folder, "tables/cells", ".zarr"), marks=pytest.mark.slow),
    ],
    "loom": [of_loom, lambda folder: of_loom(folder, "some/layers")],
    "biom": [of_biom, lambda folder: of_biom(folder, "some/sample")],
    "esmf": [of_esmf, lambda folder: of_esmf(folder, "NETCDF3_64BIT_OFFSET")],
    "gathered": [of_gathered, lambda folder: of_gathered(folder, "NETCDF3_CLASSIC")],
}
EACH = [
    pytest.param(kind, *getattr(make, "values", [make]), marks=getattr(make, "marks", ()), id=f"{kind}-{k}")
    for kind, made in MADE.items()
    for k, make in enumerate(made)
]


@pytest.mark.filterwarnings("ignore:The '.*' option is deprecated", "ignore:.* autosharding")
@pytest.mark.parametrize(("kind", "make"), EACH)
def test_a_kind_of_file_keeps_the_laws(tmp_path, kind, make):
    path, expected = make(tmp_path)
    assert all(held.holds for held in testing.check_file_kind(kind, path, expected))
    assert {*bl.list_tensors(path)} == {*expected}


def test_every_kind_of_file_has_a_file():
    assert MADE.keys() == KINDS.keys()


# A plug-in whose tensors are arrays, which have no mark themselves


def claims(group):
    return [f"layers/{name}" for name in group["layers"]]


def look(file, closing, *, group=None, limits):
    above, _, name = f"/{group or ''}".rpartition("/layers/")
    cells, shape = open_group(file, f"{above}/layers", limits, closing).cells(name)
    labels = open_group(file, above, limits, closing).labels("rows", shape[0])
    return FileTensor("dense, dense", shape, {}, cells, labels=labelled_by(("row", "column"), [labels, None]))


def layered(path, base):
    with h5py.File(path, "w") as file:
        group, cells = file.require_group(base), CSR.toarray()
        group.attrs["layered"], group["rows"] = 1, np.array(ROWS, object)
        group["layers/x"], group["layers/deep"] = cells, 2 * cells
    expected = [bl.from_numpy(k * cells, dims=("row", "column"), labels={"row": ROWS}) for k in (2, 1)]
    names = [f"{base}/layers/{name}".lstrip("/") for name in ("deep", "x")]
    return dict(zip(names, expected, strict=True))


@pytest.mark.parametrize("base", ["/", "some/layers"])
def test_a_plug_in_claims_arrays_at_any_depth(tmp_path, monkeypatch, base):
    kind = Kind(Foreign(look=look, claims=claims), reads=("group",), group=("layered",))
    monkeypatch.setitem(KINDS, "layered", kind)
    expected = layered(tmp_path / "a.h5", base)
    testing.check_file_kind("layered", tmp_path / "a.h5", expected)
    assert bl.list_tensors(tmp_path / "a.h5") == [*expected]


def changed(**fields):
    return {"look": lambda *file, **options: look(*file, **options)._replace(**fields)}


BROKEN = {
    "list_tensors names nothing": {"claims": lambda group: []},
    "lacks the keyword limits": {"look": lambda file, closing, *, group=None: None},
    "several readers": {"read": look},
    "the shape is": changed(shape=(5, 4)),
    "the dimensions have the names None": changed(labels=None),
    "raises KeyError": {"claims": lambda group: [name for name in claims(group) if group.file["no such name"]]},
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_kind_of_file_breaks_a_law(tmp_path, monkeypatch, message):
    functions = Foreign(**{"look": look, "claims": claims} | BROKEN[message])
    monkeypatch.setitem(KINDS, "layered", Kind(functions, reads=("group",), group=("layered",)))
    with pytest.raises(AssertionError, match=message):
        testing.check_file_kind("layered", tmp_path / "a.h5", layered(tmp_path / "a.h5", "/"))


def test_only_registered_kinds_of_files_are_checked(tmp_path):
    with pytest.raises(bl.OptionError, match="register_kind"):
        testing.check_file_kind("apple", tmp_path / "a.apple")
