"""AnnData in HDF5 and Zarr, held to anndata itself, both ways."""

import contextlib
import logging
import os
import shutil
import tracemalloc
import warnings

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import zarr
from helpers.golden import names_of
from helpers.strategies import keys
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from binsparse_levels import (
    ArrayError,
    BinsparseError,
    ContainerError,
    DialectWarning,
    FormatError,
    LimitError,
    Limits,
    OptionError,
    Tensor,
    UnsafeError,
    append,
    convert,
    from_numpy,
    from_scipy,
    list_tensors,
    pack,
    read,
    read_all,
    reduce,
    register_anndata,
    to_scipy,
    write,
)
from binsparse_levels import open as open_tensor
from binsparse_levels.containers import hdf5, zarr_reading
from binsparse_levels.containers import zarr as zarr_container
from binsparse_levels.io import describe

# Of anndata 0.13 with pandas 3.
pytestmark = pytest.mark.filterwarnings("ignore:The '.*' option is deprecated")

FILES = {"hdf5": "a.h5ad", "zarr2": "2.zarr", "zarr3": "3.zarr"}
EACH = ["hdf5", pytest.param("zarr2", marks=pytest.mark.slow), "zarr3"]
CELLS, GENES = [f"cell {k}" for k in range(30)], [f"gene é{k}" for k in range(20)]


def matrix(shape=(30, 20), format="csr", seed=0):
    return scipy.sparse.random_array(shape, density=0.2, format=format, rng=seed)


@pytest.mark.parametrize("place", ["a.h5ad", "a.zarr"])
@pytest.mark.parametrize("group", ["X", "layers/a", "obsm/a", "obs/a"])
def test_an_element_that_is_overwritten_leaves_everything_else(tmp_path, place, group):
    """Also in a file that has nothing but X and names."""
    path = tmp_path / place
    named = from_scipy(matrix()).with_labels({"obs": CELLS, "var": GENES}, dims=["obs", "var"])
    write(path, named, kind="anndata")
    tensor = pack([np.arange(30)], np.ones(30), 30, "CVEC") if group == "obs/a" else from_scipy(2 * matrix())
    for _ in range(2):
        write(f"{path}:{group}", tensor, overwrite=True, kind="anndata")
    found = (anndata.read_zarr if place == "a.zarr" else anndata.read_h5ad)(path)
    assert [*found.obs_names] == CELLS
    assert [*found.var_names] == GENES
    assert equal(found.X, 2 * matrix() if group == "X" else matrix())


def equal(found, expected):
    return found.shape == expected.shape and abs(found - expected).nnz == 0


def made():
    """An AnnData with a matrix in every place."""
    data = anndata.AnnData(
        matrix(), obs=pd.DataFrame({"kind": ["a", "b"] * 15}, index=CELLS), var=pd.DataFrame(index=GENES)
    )
    data.layers["counts"] = matrix(format="csc", seed=1)
    data.raw = data.copy()
    data.obsp["graph"] = matrix((30, 30), seed=2)
    data.varp["graph"] = matrix((20, 20), seed=3)
    data.obsm["few"], data.obsm["dense"] = matrix((30, 5), seed=4), np.ones((30, 2))
    data.varm["few"] = matrix((20, 3), "csc", seed=5)
    data.uns["tree"] = {"matrix": matrix((7, 9), seed=6), "text": "é", "number": 3}
    return data


def stored(folder, kind, data=None, **options):
    """The path of that AnnData, as anndata writes it."""
    data = made() if data is None else data
    path = str(folder / FILES[kind])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what will be the default
        if kind == "hdf5":
            data.write_h5ad(path, **options)
        else:
            with anndata.settings.override(zarr_write_format=int(kind[-1])):
                data.write_zarr(path)
    return path


def loaded(path):
    return anndata.read_h5ad(path) if path.endswith(".h5ad") else anndata.read_zarr(path)


def content(path):
    """Every key with its bytes, of a folder or a file."""
    inner = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
    contents = {}
    for file in inner or [path]:
        with open(file, "rb") as opened:
            contents[file] = opened.read()
    return contents


@pytest.fixture(scope="module", params=EACH)
def theirs(request, tmp_path_factory):
    return stored(tmp_path_factory.mktemp("theirs"), request.param)


@pytest.fixture
def copied(theirs, tmp_path):
    path = str(tmp_path / os.path.basename(theirs))
    (shutil.copytree if os.path.isdir(theirs) else shutil.copy)(theirs, path)
    return path


PLACES = {
    "X": lambda data: data.X,
    "layers/counts": lambda data: data.layers["counts"],
    "obsm/few": lambda data: data.obsm["few"],
    "obsp/graph": lambda data: data.obsp["graph"],
    "raw/X": lambda data: data.raw.X,
    "uns/tree/matrix": lambda data: data.uns["tree"]["matrix"],
    "varm/few": lambda data: data.varm["few"],
    "varp/graph": lambda data: data.varp["graph"],
}
LISTED = sorted([*PLACES, "obsm/dense"])
NAMES = {
    "obsm/few": (["obs", "column"], [CELLS, []]),
    "obsp/graph": (["obs", "obs_2"], [CELLS, CELLS]),
    "uns/tree/matrix": ([], [[], []]),
    "varm/few": (["var", "column"], [GENES, []]),
    "varp/graph": (["var", "var_2"], [GENES, GENES]),
}

DENSE = {
    "X": np.asfortranarray(matrix().toarray().astype("f4")),
    "layers/whole": np.arange(600, dtype="i8").reshape(30, 20),
    "layers/truth": matrix(seed=7).toarray() > 0.5,
    "obsm/embedding": np.random.default_rng(8).random((30, 2)),
    "varm/empty": np.empty((20, 0)),
}


@pytest.fixture(scope="module", params=EACH)
def dense(request, tmp_path_factory):
    """The path of an AnnData with dense elements, as anndata writes it."""
    data = anndata.AnnData(DENSE["X"], obs=pd.DataFrame(index=CELLS), var=pd.DataFrame(index=GENES))
    for place, array in DENSE.items():
        folder, _, name = place.partition("/")
        if name:
            getattr(data, folder)[name] = array
    return stored(tmp_path_factory.mktemp("dense"), request.param, data, compression="gzip")


# Reading


@given(place=st.sampled_from(list(DENSE)), data=st.data())
def test_dense_elements_are_what_anndata_has(dense, place, data):
    array = DENSE[place]
    for tensor in (read(f"{dense}:{place}"), open_tensor(f"{dense}:{place}")):
        assert tensor.dtype == array.dtype
        assert np.array_equal(tensor.to_dense(), array)
        assert names_of(tensor)[0] == (GENES if place.startswith("varm") else CELLS)
        key = data.draw(keys(array.shape))
        part = tensor[key]
        assert np.array_equal(part.to_dense() if isinstance(part, Tensor) else part, array[key])
        assert np.allclose(reduce(tensor, 0, "mean"), array.mean(axis=0))


@pytest.mark.parametrize("cells", [10**5, pytest.param(2 * 10**6, marks=pytest.mark.slow)])
def test_any_number_of_names_is_read_when_it_is_asked_for(tmp_path, cells):
    x = scipy.sparse.csr_array(([1.0], ([cells - 1], [0])), shape=(cells, 2))
    names = pd.Index([f"AAACCTGAGAAACCAT-{k}" for k in range(cells)])
    anndata.AnnData(x, obs=pd.DataFrame(index=names)).write_h5ad(tmp_path / "a.h5ad")
    read(f"{tmp_path}/a.h5ad:X")[:1]  # what is made once
    tracemalloc.start()
    try:
        opened = open_tensor(tmp_path / "a.h5ad")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    write(tmp_path / "b.h5", opened)  # whose header stays below the limit
    for tensor in (opened, open_tensor(tmp_path / "b.h5")):
        assert tensor.labels("obs")[[0, -1]].tolist() == [names[0], names[-1]]
        assert len(tensor.labels("obs")) == cells


def test_every_matrix_is_listed_and_read(theirs):
    assert list_tensors(theirs) == LISTED
    data = made()
    assert read(theirs).equals(read(f"{theirs}:X"))
    every = read_all(theirs)
    assert (every.pop("obsm/dense").to_dense() == 1).all()
    for place, found in every.items():
        matrix = PLACES[place](data)
        assert equal(to_scipy(found), matrix)
        assert str(found.format) == matrix.format.upper()
        for tensor in (found, open_tensor(f"{theirs}:{place}")):
            expected = NAMES.get(place, (["obs", "var"], [CELLS, GENES]))
            assert (list(tensor.dims or ()), names_of(tensor)) == expected
            assert not tensor.attributes
        described = describe(f"{theirs}:{place}").descriptor
        assert (described.shape, described.number_of_stored_values) == (matrix.shape, matrix.nnz)


def test_it_is_opened_lazily(theirs, monkeypatch):
    tensor, csr = open_tensor(f"{theirs}:X"), matrix()
    assert tensor.load().equals(read(theirs))
    row = open_tensor(f"{theirs}:X")[3:5]
    with monkeypatch.context() as context:
        context.setattr(h5py.Dataset, "__getitem__", None)
        assert row.shape == (2, 20)
    assert equal(to_scipy(row.load()), csr[3:5])
    assert tensor[7, 3] == csr[7, 3]


@pytest.mark.parametrize("version", [2, 3])
def test_a_row_of_a_store_reads_its_chunks_alone(version, monkeypatch):
    csr = scipy.sparse.random_array((2000, 500), density=0.1, format="csr", rng=0)
    store = MemoryStore()
    root = zarr.create_group(store, zarr_format=version, attributes={"encoding-type": "anndata"})
    group = root.create_group("X", attributes={"encoding-type": "csr_matrix", "shape": [2000, 500]})
    for name, array in (("data", csr.data), ("indices", csr.indices), ("indptr", csr.indptr)):
        group.create_array(name, data=array, chunks=(1000,))
    monkeypatch.setattr(zarr_reading, "stored_size", None)  # no size is counted
    tensor, seen, get = open_tensor(store), [], MemoryStore.get
    monkeypatch.setattr(
        MemoryStore, "get", lambda self, key, *given, **more: seen.append(key) or get(self, key, *given, **more)
    )
    assert equal(to_scipy(tensor[100:110].load()), csr[100:110])
    assert 2 <= len(seen) < 12  # of 203


def test_zarr_in_a_zip_file_in_memory_and_as_an_open_group(tmp_path):
    path = stored(tmp_path, "zarr3")
    shutil.make_archive(str(tmp_path / "zipped"), "zip", path)
    os.rename(tmp_path / "zipped.zip", tmp_path / "a.zarr.zip")
    assert list_tensors(tmp_path / "a.zarr.zip") == LISTED
    assert read(f"{tmp_path}/a.zarr.zip:layers/counts").equals(read(f"{path}:layers/counts"))
    group = zarr.open_group(path, mode="r")
    assert read(group["layers/counts"]).format.alias == "CSC"
    assert read(group["layers/counts"]).attributes == {}
    assert open_tensor(group["X"])[2].load().equals(read(path)[2].load())


def test_a_header_of_ours_in_a_group_wins(tmp_path):
    tensor = pack([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), "CSR")
    write(f"{tmp_path}/a.zarr:b", tensor)
    zarr.open_group(tmp_path / "a.zarr")["b"].attrs["encoding-type"] = "csr_matrix"
    assert read(f"{tmp_path}/a.zarr:b").equals(tensor)
    zarr.open_group(tmp_path / "a.zarr").attrs["version"] = "packed-uint-matrix-v2"  # a mark in HDF5 alone
    with pytest.raises(ContainerError, match="no attribute 'binsparse'"):
        read(tmp_path / "a.zarr")


def test_a_store_that_was_replaced_is_told(tmp_path):
    path = stored(tmp_path, "zarr3")
    tensor = open_tensor(path)
    write(f"{path}:layers/more", read(path))
    with pytest.raises(ContainerError, match="was replaced"):
        tensor.load()
    assert open_tensor(path).load().equals(read(f"{path}:layers/more"))


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_faults_in_zarr(tmp_path, version):
    path = stored(tmp_path, f"zarr{version}")

    def broken(change, message, error=BinsparseError, **options):
        copy = shutil.copytree(path, tmp_path / "copy.zarr")
        change(zarr.open_group(copy, mode="r+", use_consolidated=False))
        with pytest.raises(error, match=message):
            read(copy, **options)
        shutil.rmtree(copy)

    def replaced(name, array, **options):
        def change(root):
            del root[name]
            root.create_array(name, data=array, **options)

        return change

    def put(name, key, value):
        return lambda root: root[name].attrs.__setitem__(key, value)

    broken(lambda root: root["X/indptr"].__setitem__(3, 99), r"indptr\[")
    broken(lambda root: root["X/indices"].__setitem__(3, -1), r"indices\[3\]")
    broken(lambda root: root["X/indices"].__setitem__(3, 20), r"indices\[3\]: 20 is outside dimension 1")
    broken(lambda root: root.__delitem__("X/data"), "data: /X has no such array")
    broken(replaced("X/data", np.ones((3, 3))), "data: expected one dimension")
    broken(replaced("X/data", np.ones(3)), "data: expected a length of 120, got 3")
    broken(replaced("X/indices", np.ones(120)), "indices: expected integers, got float64", ArrayError)
    broken(replaced("X/data", np.array(["a"] * 120, object).astype("T")), "data: expected numbers", ArrayError)
    broken(put("X", "shape", [30]), "shape: expected 2 integers", ContainerError)
    broken(put("X", "shape", [30.0, 20.0]), "shape: expected 2 integers", ContainerError)
    broken(put("X", "shape", "30"), "shape: expected 2 integers", ContainerError)
    broken(put("X", "shape", [-30, 20]), "shape: expected 2 integers", ContainerError)
    broken(put("X", "shape", [31, 20]), "indptr: expected a length of 32", ArrayError)
    broken(put("X", "encoding-type", "array"), "expected csr_matrix or csc_matrix", ContainerError)
    broken(put("X", "encoding-type", ["csr_matrix", "array"]), "encoding-type: expected a string", ContainerError)
    broken(lambda root: root["X"].attrs.__delitem__("shape"), "shape", ContainerError)
    broken(lambda root: root.__delitem__("X"), "expected csr_matrix or csc_matrix, got 'anndata'", ContainerError)
    broken(lambda root: None, "array_bytes=100", LimitError, limits=Limits(array_bytes=100))

    def other_codec(root):
        filters = {"filters": [zarr.codecs.numcodecs.Delta(dtype="<f8")]} if version == 3 else {}
        if version == 2:
            import numcodecs

            filters = {"filters": [numcodecs.Delta(dtype="<f8")]}
        replaced("X/data", np.ones(120), **filters)(root)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of codecs beyond the specification
        broken(other_codec, "the codec .* is not allowed; write the array with zstd", UnsafeError)

    def without_texts(root):
        del root["obs/_index"]
        root.create_array("obs/_index", data=np.arange(30))

    def with_missing_texts(root):  # as anndata stores texts of pandas that may be missing
        del root["obs/_index"]
        group = root.create_group("obs/_index", attributes={"encoding-type": "nullable-string-array"})
        group.create_array("values", shape=(30,), dtype=str)[...] = np.array(CELLS, object)
        group.create_array("mask", data=np.zeros(30, bool))

    with_missing_texts(zarr.open_group(path, mode="r+", use_consolidated=False))
    assert names_of(read(path))[0] == CELLS
    write(f"{path}:layers/more", named(row_names=CELLS), kind="anndata")
    without_texts(zarr.open_group(path, mode="r+", use_consolidated=False))
    assert names_of(read(path)) == [list(map(str, range(30))), GENES]  # as anndata makes them texts
    del zarr.open_group(path, mode="r+", use_consolidated=False)["obs/_index"]
    assert names_of(read(path)) == [[], GENES]
    with pytest.raises(ContainerError, match="no tables obs and var with an index"):
        write(f"{path}:layers/other", CSR, kind="anndata")


def test_any_damage_to_metadata_is_told(tmp_path):
    path = stored(tmp_path, "zarr3")
    generator, refused = np.random.default_rng(0), 0
    files = [os.path.join(path, *parts, "zarr.json") for parts in (["X"], ["X", "data"], ["X", "indptr"], ["obs"], [])]
    for _ in range(60):
        file = files[generator.integers(len(files))]
        with open(file, "rb") as opened:
            before = opened.read()
        data = bytearray(before)
        data[generator.integers(len(data))] = generator.integers(256)
        with open(file, "wb") as opened:
            opened.write(data)
        try:
            read(f"{path}:X")
        except BinsparseError:
            refused += 1
        with open(file, "wb") as opened:
            opened.write(before)
    assert refused > 12


# Writing


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["new.h5ad", "new.zarr"])
@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "chunks": 50}])
def test_a_new_file(tmp_path, name, options):
    path = str(tmp_path / name)
    tensor = from_scipy(matrix()).with_attributes({"row_names": CELLS, "column_names": GENES})
    write(path, tensor, kind="anndata", **options)
    data = loaded(path)
    assert equal(data.X, matrix())
    assert data.X.format == "csr"
    assert data.X.indices.dtype == data.X.indptr.dtype == np.int32
    assert (data.obs_names.tolist(), data.var_names.tolist()) == (CELLS, GENES)
    found = read(path)
    assert equal(to_scipy(found), matrix())
    assert names_of(found) == [CELLS, GENES]
    for again in (str(tmp_path / "again.h5ad"), str(tmp_path / "again.zarr")):
        write(again, found, kind="anndata")  # with the names that were read
        assert loaded(again).obs_names.tolist() == CELLS
        assert loaded(again).var_names.tolist() == GENES
    (data.write_h5ad if path.endswith("ad") else lambda to: data.write_h5ad(to))(tmp_path / "theirs.h5ad")
    assert read(tmp_path / "theirs.h5ad").equals(found)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["new.h5ad", "new.zarr"])
def test_a_new_file_may_begin_anywhere(tmp_path, name):
    for number, (place, shape) in enumerate(
        {"layers/a": (30, 20), "obsp/a": (30, 30), "varp/a": (20, 20), "obsm/a": (30, 4), "varm/a": (20, 4)}.items()
    ):
        path = str(tmp_path / f"{number}{name}")
        write(f"{path}:{place}", from_scipy(matrix(shape)), kind="anndata")
        data, (folder, key) = loaded(path), place.split("/")
        assert equal(getattr(data, folder)[key], matrix(shape))
        assert data.X is None
        names = data.var_names if folder.startswith("var") else data.obs_names
        assert names.tolist() == [str(k) for k in range(shape[0])]
    write(f"{tmp_path}/uns{name}:uns/a/b", from_scipy(matrix()), kind="anndata")
    data = loaded(str(tmp_path / f"uns{name}"))
    assert equal(data.uns["a"]["b"], matrix())
    assert (data.n_obs, data.n_vars) == (0, 0)


def test_into_a_file_of_theirs(copied):
    before, added = loaded(copied), {}
    for place, shape, format in [
        ("layers/more", (30, 20), "csc"), ("obsp/more", (30, 30), "csr"), ("varp/more", (20, 20), "csc"),
        ("obsm/more", (30, 7), "csr"), ("varm/more", (20, 1), "csc"), ("uns/tree/more", (5, 6), "csr"),
    ]:  # fmt: skip
        added[place] = matrix(shape, format, seed=len(added))
        write(f"{copied}:{place}", from_scipy(added[place]), kind="anndata")
    write(f"{copied}:X", from_scipy(matrix(format="csc", seed=9)), kind="anndata", overwrite=True)
    data = loaded(copied)
    assert equal(data.X, matrix(seed=9))
    assert data.X.format == "csc"
    for place, expected in added.items():
        folder, *rest = place.split("/")
        found = getattr(data, folder)
        for key in rest:
            found = found[key]
        assert equal(found, expected)
        assert found.format == expected.format
    for place in set(PLACES) - {"X"}:
        assert equal(PLACES[place](data), PLACES[place](before))
    assert data.obs.equals(before.obs)
    assert data.var.equals(before.var)
    assert (data.obsm["dense"] == 1).all()
    assert data.uns["tree"]["text"] == "é"
    assert list_tensors(copied) == sorted({*LISTED, *added})


def test_vectors_are_columns_of_tables(copied):
    before = loaded(copied)
    index = before.obs.index.name or "_index"
    vector = pack([[3, 7]], [1.5, 2.5], 30, "CVEC")
    write(f"{copied}:obs/depth", vector, kind="anndata")
    write(f"{copied}:obs/depth", 2 * vector, kind="anndata", overwrite=True)
    write(f"{copied}:var/mean", from_numpy(np.arange(20)), kind="anndata")
    with pytest.raises(BinsparseError, match="is the index of the table"):
        write(f"{copied}:obs/{index}", vector, kind="anndata", overwrite=True)
    after = loaded(copied)
    assert after.obs["depth"].tolist() == (2 * vector).to_dense().tolist()
    assert after.var["mean"].tolist() == list(range(20))
    assert after.obs.drop(columns="depth").equals(before.obs)
    assert after.var.drop(columns="mean").equals(before.var)
    assert open_tensor(f"{copied}:obs/depth").labels(0).tolist() == CELLS


def test_backed_and_lazy_readers_agree(copied):
    write(f"{copied}:layers/more", from_scipy(matrix(format="csc", seed=8)), kind="anndata")
    write(f"{copied}:X", from_scipy(matrix(seed=9)), kind="anndata", overwrite=True)
    lazy = anndata.experimental.read_lazy(copied)
    assert equal(lazy.X.compute(), matrix(seed=9))
    assert equal(lazy.layers["more"].compute(), matrix(seed=8))
    assert equal(lazy[5:9].layers["more"].compute(), matrix(seed=8)[5:9])
    if copied.endswith(".h5ad"):
        backed = anndata.read_h5ad(copied, backed="r")
        assert equal(backed.X[3:7], matrix(seed=9)[3:7])
        assert equal(backed[2:4].to_memory().layers["more"], matrix(seed=8)[2:4])
        backed.file.close()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("version", [2, 3])
def test_consolidated_metadata_stay_true(tmp_path, version):
    path = stored(tmp_path, f"zarr{version}")
    write(f"{path}:layers/more", from_scipy(matrix()), kind="anndata")
    root = zarr.open_consolidated(path)
    assert root.metadata.zarr_format == version
    assert "more" in root["layers"]
    assert dict(root["layers/more/data"].attrs) == {}
    assert root["layers/more/indices"].fill_value == 0


TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["a.h5ad", "a.zarr"])
@pytest.mark.parametrize("dtype", TYPES)
def test_types(tmp_path, name, dtype):
    values = np.arange(1, 4).astype(dtype)
    tensor = pack([[0, 1, 1], [1, 0, 3]], values, (3, 4), "DCSR")
    write(tmp_path / name, tensor, kind="anndata")
    found = loaded(str(tmp_path / name)).X
    assert found.dtype == dtype
    assert (found.toarray() == tensor.to_dense()).all()
    assert read(tmp_path / name).values.tolist() == values.tolist()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["a.h5ad", "a.zarr"])
def test_formats_and_empty_matrices(tmp_path, name):
    coords, values = [[0, 1, 1], [1, 0, 3]], [1.0, 2.0, 3.0]
    rows, columns = ["CSR", "COO", "bitmap(2)"], ["CSC", "DCSC", "COOC"]
    for number, format in enumerate(rows + columns):
        write(tmp_path / f"{number}{name}", tensor := pack(coords, values, (3, 4), format), kind="anndata")
        found = loaded(str(tmp_path / f"{number}{name}")).X
        assert found.format == ("csc" if format in columns else "csr")
        assert (found.toarray() == tensor.to_dense()).all()
    for number, shape in enumerate([(0, 0), (0, 4), (3, 0), (3, 4)]):
        write(tmp_path / f"empty{number}{name}", pack([[], []], np.empty(0), shape, "CSR"), kind="anndata")
        assert loaded(str(tmp_path / f"empty{number}{name}")).shape == shape
    write(tmp_path / f"iso{name}", pack(coords, 7, (3, 4), "CSR"), kind="anndata")
    assert loaded(str(tmp_path / f"iso{name}")).X.data.tolist() == [7, 7, 7]


@pytest.mark.parametrize("kind", ["hdf5", "zarr3"])
def test_a_column_of_var_may_be_the_labels(tmp_path, kind):
    data = made()
    symbols = [f"symbol {k % 7}" for k in range(20)]
    data.var["plain"], data.var["category"] = symbols, pd.Categorical(symbols)
    data.var["length"] = np.arange(20)
    path = stored(tmp_path, kind, data)
    for place in ("X", "layers/counts", "varp/graph", "varm/few"):
        for column in ("plain", "category", "length"):
            tensor = read(f"{path}:{place}", names=column)
            dims = [dim for dim in tensor.dims if dim.startswith("var")]
            for dim in dims:
                assert [*map(str, tensor.labels(dim))] == [*map(str, data.var[column])]
            assert len(dims) == 1 + (place == "varp/graph")
    assert read(f"{path}:X", names="plain").labels("obs").tolist() == CELLS
    with pytest.raises(ContainerError, match="var/symbols: the table has no such column, or index; name another"):
        read(f"{path}:X", names="symbols")


def named(**attributes):
    return pack([[0], [0]], [1.0], (30, 20), "CSR", attributes=attributes)


CSR = pack([[0, 1], [1, 0]], [1.0, 2.0], (30, 20), "CSR")


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("tensor", "place", "options", "message"),
    [
        (pack([[0]], [1.0], 30, "sparse"), "layers/a", {}, "AnnData stores vectors in obs/NAME and var/NAME"),
        (pack([[0]], [1.0], 30, "sparse"), "X", {}, "AnnData stores vectors in obs/NAME and var/NAME"),
        (pack([[0]], [1.0], 30, "sparse"), "var/a", {}, "var has 20 names, and dimension 0 size 30"),
        (pack([[0]] * 3, [1.0], (30, 20, 2), "sparse(3)"), "obsp/a", {}, "AnnData has no 3 dimensions here"),
        (pack([[0], [0]], [1j], (30, 20), "CSR"), "layers/a", {}, "cannot represent complex128 values"),
        (pack([[0], [0]], np.ones(1, np.float16), (30, 20), "CSR"), "layers/a", {}, "cannot represent float16 values"),
        (pack([[0], [0]], [1.0], (30, 20), "CSR", fill_value=2), "layers/a", {}, "the fill value 2"),
        (pack([[0], [0]], [1.0], (30, 30), "CSR", structure="symmetric_lower"), "obsp/a", {}, "expand_structure"),
        (CSR[:7].load(), "layers/a", {}, "obs has 30 names, and dimension 0 size 7"),
        (CSR[:, :7].load(), "layers/a", {}, "var has 20 names, and dimension 1 size 7"),
        (CSR, "obsp/a", {}, "expected a square matrix"),
        (CSR, "varm/a", {}, "var has 20 names, and dimension 0 size 30"),
        (named(row_names=CELLS[::-1]), "layers/a", {}, "the names of obs in the file differ; bring"),
        (named(column_names=[*GENES[:19], "x"]), "layers/a", {}, "the names of var in the file differ"),
        (named(row_names=["a"]), "layers/a", {}, "expected none or 30 texts"),
        (CSR, "layers/a", {"colour": "red"}, "colour"),
        (np.eye(30, 20), "layers/a", {"chunks": 3}, "does not apply to a dense array in (HDF5|Zarr)"),
        (CSR, "layers/a", {"chunks": {"values": 3}}, "no array of the name 'values'"),
        (CSR, "layers/a", {"narrow": True}, "narrow"),
        (CSR, "layers/counts", {}, "already exists; pass overwrite=True"),
        (CSR, "X", {}, "already exists; pass overwrite=True"),
        (CSR, "layers", {}, "AnnData stores matrices in X, layers/NAME"),
        (CSR, "layers/a/b", {}, "AnnData stores matrices in"),
        (CSR, "raw/X", {}, "AnnData stores matrices in"),
        (CSR, "obs/a", {}, "AnnData stores matrices in"),
        (CSR, "layers/..", {}, "AnnData stores matrices in"),
        (CSR, "layers/zarr.json", {}, "AnnData stores matrices in"),
        (CSR, "uns/tree/matrix/a", {}, "is a csr_matrix, not a dict"),
        (CSR, "uns/tree/text/a", {}, "tree/text"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_the_file_stays(copied, tensor, place, options, message):
    before = content(copied)
    with pytest.raises(BinsparseError, match=message):
        write(f"{copied}:{place}", tensor, kind="anndata", **options)
    assert content(copied) == before
    assert os.listdir(os.path.dirname(copied)) == [os.path.basename(copied)]


@pytest.mark.parametrize("place", ["obsp/e", "varp/e"])
@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("how", ["labels", "attributes"])
def test_rows_and_columns_of_pairs_are_in_the_order_of_the_file(copied, tmp_path, place, dimension, how):
    names = CELLS if place.startswith("obsp") else GENES
    both = [names, names]
    both[dimension] = names[::-1]
    square = pack([[0], [1]], [5.0], (len(names),) * 2, "CSR")
    named = square.with_labels(dict(zip("ab", both, strict=True)), dims=["a", "b"])
    if how == "attributes":
        named = square.with_attributes({"row_names": both[0], "column_names": both[1]})
    for target in (copied, tmp_path / "new.h5ad"):
        with pytest.raises(FormatError, match=f"rows and columns are both of {place[:3]}, and have other names"):
            write(f"{target}:{place}", named, kind="anndata")
    alone = square.with_labels({"ab"[dimension]: names[::-1]}, dims=["a", "b"])
    with pytest.raises(FormatError, match=f"the names of {place[:3]} in the file differ"):
        write(f"{copied}:{place}", alone, kind="anndata")
    if how == "labels":
        write(f"{copied}:{place}", named.sel(a=names, b=names), kind="anndata")
        found = getattr(loaded(copied), place[:4])["e"]
        at = [0, 1]
        at[dimension] = len(names) - 1 - at[dimension]
        assert found[tuple(at)] == 5


CUBE = np.where(np.arange(1200).reshape(30, 20, 2) % 7, 0, np.arange(1200.0).reshape(30, 20, 2))


@pytest.mark.parametrize("place", ["layers/a", "obsm/a", "uns/a"])
def test_dense_arrays_stay_dense_and_tensors_of_more_dimensions_are_theirs(copied, place):
    for k, array in enumerate((np.eye(30, 20, dtype="i4"), CUBE)):
        write(f"{copied}:{place}{k}", array, kind="anndata")
        write(f"{copied}:{place}{k}c", from_numpy(np.asfortranarray(array), ", ".join(["dense"] * array.ndim)))
        write(f"{copied}:{place}{k}s", from_numpy(array))
        for suffix in "", "c", "s":
            found = read(f"{copied}:{place}{k}{suffix}")
            assert (found.dtype, found.format.padded) == (array.dtype, suffix != "s")
            assert np.array_equal(found.to_dense(), array)
            assert np.array_equal(open_tensor(f"{copied}:{place}{k}{suffix}")[5:9].to_dense(), array[5:9])
        register_anndata()
        with h5py.File(copied) if copied.endswith(".h5ad") else contextlib.nullcontext(zarr.open_group(copied)) as root:
            assert np.array_equal(anndata.io.read_elem(root[f"{place}{k}"]), array)
            again = anndata.io.read_elem(root[f"{place}{k}s"])  # of scipy or pydata/sparse
            assert np.array_equal(again.toarray() if array.ndim == 2 else again.todense(), array)


def test_genes_of_other_systems_become_columns(tmp_path):
    counts = np.arange(6.0).reshape(2, 3)
    for k, dims in enumerate(
        (("gene", "barcode"), ("feature", "barcode"), ("gene", "cell"), ("observation", "sample"))
    ):
        tensor = from_numpy(counts, "CSC", dims=dims, labels={dims[0]: [*"xy"], dims[1]: [*"abc"]})
        with pytest.warns(DialectWarning, match=f"rows of AnnData are cells.*{dims[0]} × {dims[1]} are transposed"):
            write(tmp_path / f"{k}.h5ad", tensor)
        found = loaded(str(tmp_path / f"{k}.h5ad"))
        assert (found.obs_names.tolist(), found.var_names.tolist()) == (["a", "b", "c"], ["x", "y"])
        assert found.X.format == "csr"
        assert (found.X.toarray() == counts.T).all()
        write(tmp_path / f"{k}.h5", tensor)
        with pytest.warns(DialectWarning, match="are transposed"):
            convert(tmp_path / f"{k}.h5", f"{tmp_path}/{k}.h5ad:layers/again")
        assert (loaded(str(tmp_path / f"{k}.h5ad")).layers["again"].toarray() == counts.T).all()
        write(f"{tmp_path}/{k}.h5ad:varm/kept", tensor)  # whose rows are genes
        assert loaded(str(tmp_path / f"{k}.h5ad")).varm["kept"].shape == (2, 3)


def test_dense_arrays_behind_links_are_not_listed(tmp_path):
    path = stored(tmp_path, "hdf5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.ones((30, 2))
    with h5py.File(path, "r+") as file:
        file["obsm/external"] = h5py.ExternalLink("other.h5", "/x")
        file["obsm/soft"] = h5py.SoftLink("/obsm/dense")
        del file["varm"]
        file["varm"] = h5py.ExternalLink("other.h5", "/")
    assert list_tensors(path) == [place for place in LISTED if not place.startswith("varm")]


def test_a_failing_write_leaves_the_file(copied, monkeypatch):
    before = content(copied)
    for writer in (hdf5.HDF5Writer, zarr_container.ZarrWriter):

        def fail(self, name, pieces, real=writer.write):
            if name == "indptr":
                raise OSError("the disk is full")
            real(self, name, pieces)

        monkeypatch.setattr(writer, "write", fail)
    with pytest.raises(ContainerError, match="the disk is full"):
        write(f"{copied}:layers/counts", CSR, kind="anndata", overwrite=True)
    assert content(copied) == before
    with pytest.raises(ContainerError, match="the disk is full"):
        write(copied, CSR, kind="anndata", overwrite="file")
    assert content(copied) == before
    assert os.listdir(os.path.dirname(copied)) == [os.path.basename(copied)]


def test_a_whole_file_is_replaced_when_asked(copied):
    with pytest.raises(FileExistsError):
        write(copied, CSR, kind="anndata")
    with pytest.raises(FileExistsError, match=r"layers.*overwrite='file'"):
        write(copied, CSR, kind="anndata", overwrite=True)
    write(copied, CSR, kind="anndata", overwrite="file")
    assert list_tensors(copied) == ["X"]
    assert loaded(copied).obs_names[2] == "2"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["a.h5", "a.zarr"])
def test_other_files_are_not_written_into(tmp_path, name):
    write(f"{tmp_path}/{name}:b", CSR)
    before = content(str(tmp_path / name))
    with pytest.raises(ContainerError, match="the file has no tables obs and var with an index"):
        write(f"{tmp_path}/{name}:layers/a", CSR, kind="anndata")
    with pytest.raises(OptionError, match="cannot be appended to"):
        append(f"{stored(tmp_path, 'zarr3')}:X", CSR)
    assert content(str(tmp_path / name)) == before


def test_suffixes_zip_files_and_urls(tmp_path):
    write(f"{tmp_path}/a.h5ad:layers/a", CSR)
    assert loaded(f"{tmp_path}/a.h5ad").layers["a"].shape == (30, 20)
    write(tmp_path / "a.zarr.zip", CSR, kind="anndata")
    assert read(tmp_path / "a.zarr.zip").equals(CSR)
    write(f"{tmp_path}/a.zarr.zip:layers/a", CSR, kind="anndata")
    assert list_tensors(tmp_path / "a.zarr.zip") == ["X", "layers/a"]
    url = f"memory://{tmp_path.name}/a.zarr"
    write(url, CSR, kind="anndata")
    write(f"{url}:layers/a", CSR.convert("CSC"), kind="anndata")
    assert list_tensors(url) == ["X", "layers/a"]
    assert open_tensor(f"{url}:layers/a")[0].load().equals(CSR[0].load())
    with pytest.raises(FormatError, match="dimension 0 size 7"):
        write(f"{url}:layers/b", CSR[:7].load(), kind="anndata")
    assert list_tensors(url) == ["X", "layers/a"]


@pytest.mark.parametrize("name", ["a.zarr", "a.h5"])
def test_a_write_into_a_store_of_anndata_is_anndatas_own(tmp_path, name):
    matrix = scipy.sparse.random_array((5, 4), density=0.5, format="csr", rng=0)
    made = anndata.AnnData(matrix.copy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.write_zarr(tmp_path / name) if name.endswith("zarr") else made.write_h5ad(tmp_path / name)
    write(f"{tmp_path / name}:layers/q", matrix)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = anndata.read_zarr(tmp_path / name) if name.endswith("zarr") else anndata.read_h5ad(tmp_path / name)
    assert (found.layers["q"] != matrix).nnz == 0


# Names of the tables beside a matrix, and marks that are not enough


@pytest.mark.sampled(3)
@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
@pytest.mark.parametrize(
    "index",
    [
        pd.CategoricalIndex(["a", "b", "c", "d"]), pd.CategoricalIndex(["b", "a", "b", "c"]), pd.Index([7, 5, 6, 9]),
        pd.CategoricalIndex([3, 1, 3, 2]),
    ],
)  # fmt: skip
def test_names_of_any_index(tmp_path, index, suffix):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that repeat
        data = anndata.AnnData(matrix((4, 3)), obs=pd.DataFrame({"k": range(4)}, index=index))
        data.var.index = pd.CategoricalIndex(["g", "h", "i"])
        path = tmp_path / f"a.{suffix}"
        data.write_h5ad(path) if suffix == "h5ad" else data.write_zarr(path)
    with open_tensor(path) as opened:
        assert opened.labels("obs").tolist() == data.obs_names.tolist()
        assert opened[1:3].load().labels("obs").tolist() == data.obs_names.tolist()[1:3]
        assert opened[:, [2, 0]].load().labels("var").tolist() == ["i", "g"]
    assert read(path).labels("var").tolist() == ["g", "h", "i"]


@pytest.mark.filterwarnings("ignore:zarr v3 autosharding")
@pytest.mark.parametrize("base", ["", "mod/prot/"])
@pytest.mark.parametrize("suffix", ["h5mu", "zarr"])
def test_names_are_those_of_the_tables_beside(tmp_path, base, suffix):
    """All tables have the same size, and other names."""
    square, path = np.arange(9.0).reshape(3, 3), str(tmp_path / f"a.{suffix}")
    root = h5py.File(path, "w", userblock_size=512) if suffix == "h5mu" else zarr.open_group(path, mode="w")
    tables = {"obs": "obs", "var": "var", "mod/prot/obs": "o", "mod/prot/var": "v", f"{base}raw/var": "r"}
    for name, letter in tables.items():
        table = root.create_group(name)
        table.attrs["_index"] = "_index"
        anndata.io.write_elem(table, "_index", np.array([f"{letter}{k}" for k in range(3)], object))
    obs, var = (tables[f"{base}{name}"] for name in ("obs", "var"))
    expected = {
        "X": (obs, var), "layers/a": (obs, var), "obsp/a": (obs, obs), "varp/a": (var, var), "obsm/a": (obs, None),
        "varm/a": (var, None), "raw/X": (obs, "r"), "raw/varm/a": ("r", None), "uns/a/b": (None, None),
    }  # fmt: skip
    for place in expected:
        above, _, name = f"{base}{place}".rpartition("/")
        group = root.require_group(above) if above else root
        anndata.io.write_elem(group, name, scipy.sparse.csr_matrix(square))
    if suffix == "h5mu":
        root.close()
        with open(path, "r+b") as file:
            file.write(b"MuData (format-version=0.1.0;)")
    assert list_tensors(path) == sorted(f"{base}{place}" for place in expected)
    for place, letters in expected.items():
        found = read(f"{path}:{base}{place}")
        assert np.array_equal(found.to_dense(), square)
        names = [None if found.dims is None else found.labels(k) for k in range(2)]
        assert [None if x is None else x[0][:-1] for x in names] == list(letters), place


def test_tables_of_records_and_dense_cells_of_older_files(tmp_path):
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["X"] = np.arange(6.0).reshape(2, 3)
        file["obs"] = np.array([(b"a", 1), (b"b", 2)], [("index", "S3"), ("n", "i4")])
        file["var"] = np.array([(b"x",), (b"y",), (b"z",)], [("index", "S3")])
    for place in ("a.h5ad", "a.h5ad:X"):
        found = read(tmp_path / place)
        assert found.to_dense().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert names_of(found) == [["a", "b"], ["x", "y", "z"]]


def test_an_array_without_attributes_is_of_the_system_that_its_group_is_of(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    group.attrs["encoding-type"] = "anndata"
    group["X"] = np.arange(6.0).reshape(2, 3)
    assert read(f"{tmp_path}/a.zarr:X").to_dense().tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2), (0, 0)])
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_a_group_without_names_is_no_10x_by_its_members_alone(tmp_path, shape, form):
    dense = np.arange(float(shape[0] * shape[1])).reshape(shape)
    made = scipy.sparse.csr_array(dense).asformat(form)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["version"] = np.int64(2)  # which BPCells has as a text
        group = file.create_group("matrix")
        group["data"], group["indices"], group["indptr"], group["shape"] = made.data, made.indices, made.indptr, shape
    for place in ("a.h5", "a.h5:matrix"):
        if shape == (3, 3):
            with pytest.raises(ContainerError, match="ambiguous"):
                read(tmp_path / place)
        else:
            assert np.array_equal(read(tmp_path / place).to_dense(), dense)


@pytest.mark.parametrize("side", ["row_names", "column_names"])
def test_names_of_either_side_of_a_square_are_those_of_its_table(tmp_path, side):
    names = [f"cell {k}" for k in range(3)]
    tensor = from_scipy(matrix((3, 3))).with_attributes({side: names})
    write(f"{tmp_path}/a.h5ad:obsp/a", tensor, kind="anndata")
    assert loaded(str(tmp_path / "a.h5ad")).obs_names.tolist() == names


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_chunks_of_a_dense_matrix_in_zarr_are_cached(tmp_path, caplog):
    dense = np.arange(2000.0).reshape(50, 40)
    anndata.AnnData(dense).write_zarr(tmp_path / "a.zarr", chunks=(10, 40))
    opened = open_tensor(tmp_path / "a.zarr")
    with caplog.at_level(logging.DEBUG, "binsparse_levels"):
        assert [opened[k : k + 2].to_dense().tolist() for k in (12, 15, 9)] == [
            dense[k : k + 2].tolist() for k in (12, 15, 9)
        ]
    cached = [line for line in caplog.messages if line.startswith("X: ")]
    assert cached == [f"X: {there} chunks are in the cache" for there in ("0 of 1", "1 of 1", "1 of 2")]
