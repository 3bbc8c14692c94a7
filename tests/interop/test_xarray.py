"""Datasets with sparse variables, opened and computed by xarray itself."""

import asyncio
import importlib
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
import zarr

import binsparse_levels as bl
from binsparse_levels import BinsparseError, FormatError, OptionError

xr = pytest.importorskip("xarray")
pd = pytest.importorskip("pandas")
sparse = pytest.importorskip("sparse")
dask = pytest.importorskip("dask")
pytest.importorskip("netCDF4")
engine = pytest.importorskip("binsparse_levels.interop.xarray").BinsparseBackend

# zarr warns of fixed-length text, which xarray takes for coordinates.
pytestmark = pytest.mark.filterwarnings("ignore:The data type .FixedLengthUTF32:Warning")
IO = Path("/proc/self/io")


def coo(rng, shape, count, dtype=float):
    cells = np.unique(rng.integers(0, np.prod(shape), count))
    values = rng.integers(1, 9, len(cells)).astype(dtype)
    return sparse.COO(np.array(np.unravel_index(cells, shape)), values, shape=shape)


def made():
    rng = np.random.default_rng(0)
    time, user, x, y = 12, 9, 5, 7
    return xr.Dataset(
        {
            "a": (("time", "user"), coo(rng, (time, user), 30), {"units": "m", "n": np.int64(3), "v": np.arange(3)}),
            "b": (("time", "x", "y", "user"), coo(rng, (time, x, y, user), 400, np.int32)),
            "dense": (("x", "y"), rng.random((x, y)), {"units": "K"}),
        },
        coords={
            "time": pd.date_range("2020-01-01", periods=time),
            "user": [f"u{k}" for k in range(user)],
            "x": np.arange(x) * 10.0,
            "height": (("x", "y"), rng.random((x, y))),
        },
        attrs={"title": "test"},
    )


@pytest.fixture(scope="module", params=["a.zarr", "a.nc", "zarr2"])
def path(request, tmp_path_factory):
    """A Dataset on the disk, which no test changes."""
    kind = request.param if request.param == "zarr2" else None
    found = tmp_path_factory.mktemp("xarray") / ("a.zarr" if kind else request.param)
    bl.write_dataset(found, made(), {"b": "dense, sparse, sparse, sparse"}, kind=kind)
    return found


@pytest.mark.skipif(not hasattr(xr.Variable, "load_async"), reason="this xarray has no asynchronous reads")
def test_asynchronous_reads_leave_the_event_loop_free(path, monkeypatch):
    lazy = importlib.import_module(engine.__module__).LazySparse
    threads, read = [], lazy.get_duck_array

    def noted(array):
        threads.append(threading.get_ident())
        return read(array)

    monkeypatch.setattr(lazy, "get_duck_array", noted)
    with opened(path) as dataset:
        variable = asyncio.run(dataset.b.variable.load_async())
    assert threads
    assert threading.get_ident() not in threads
    assert (variable.data != made().b.data).nnz == 0


def opened(path, **options):
    return xr.open_dataset(path, engine=engine, **options)


def todense(found):
    if isinstance(found, xr.Dataset):
        return found.map(todense, keep_attrs=True)
    return found.copy(data=found.data.todense()) if isinstance(found.data, sparse.SparseArray) else found


def test_what_is_written_is_opened_identical(path):
    found = opened(path)
    assert not found.a._in_memory
    assert not found.b._in_memory
    assert found.load().identical(made())
    assert isinstance(found.a.data, sparse.COO)
    assert str(bl.open(f"{path}:b").format) == "dense, sparse, sparse, sparse"
    assert opened(path, drop_variables=["a", "time"]).load().identical(made().drop_vars(["a", "time"]))
    assert opened(path, decode_times=False).time.dtype.kind == "i"


OPERATIONS = {
    "sel": lambda ds: ds.sel(time="2020-01-03"),
    "sel of text": lambda ds: ds.sel(user=["u3", "u1"]),
    "isel": lambda ds: ds.isel(time=slice(2, 8, 2), user=[1, 0, 5]),
    "isel again": lambda ds: ds.isel(time=slice(2, 8)).isel(time=-1, user=slice(None, None, -1)).isel(x=[3, 1]),
    "one value": lambda ds: ds.a.isel(time=2, user=3),
    "head": lambda ds: ds.head(2),
    "transpose": lambda ds: ds.b.transpose("user", "y", "x", "time"),
    "selection of a transpose": lambda ds: ds.b.transpose("user", "y", "x", "time").isel(user=3, x=slice(1, 3)),
    "sortby": lambda ds: ds.sortby("user", ascending=False),
    "drop_sel": lambda ds: ds.drop_sel(user="u3"),
    "expand and squeeze": lambda ds: ds.a.isel(time=[0]).expand_dims("k").squeeze(),
    "rename": lambda ds: ds.rename(a="c", x="z"),
    "stack": lambda ds: ds.a.stack(z=("time", "user")),
    "merge": lambda ds: xr.merge([ds[["a"]], ds[["b"]]]),
    "sum": lambda ds: ds.sum(),
    "sum over time": lambda ds: ds.sum("time"),
    "mean": lambda ds: ds.mean("user"),
    "groupby": lambda ds: ds.a.groupby("time.dayofweek").sum(),
    "resample": lambda ds: ds.a.resample(time="3D").sum(),
    "coarsen": lambda ds: ds.a.coarsen(time=3).sum(),
    "dot": lambda ds: ds.a.dot(ds.b, dim="user"),
    "arithmetic": lambda ds: ds.a * 2 + ds.a.isel(time=0),
    "where": lambda ds: ds.a.where(ds.time > pd.Timestamp("2020-01-04"), 0),
    "shift": lambda ds: ds.a.shift(time=1, fill_value=0),
    "concat of what is loaded": lambda ds: xr.concat([ds.a.load(), ds.a], "time"),
    "reindex of what is loaded": lambda ds: ds.a.load().reindex(user=["u1", "u3", "new"], fill_value=0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_lazy_dataset_computes_as_one_in_memory(path, name):
    expected = todense(OPERATIONS[name](made()))
    xr.testing.assert_identical(todense(OPERATIONS[name](opened(path)).load()), expected)


POINTS = {
    "all dimensions": ("a", {"time": ("p", [1, 2, -1]), "user": ("p", [0, 1, 8])}),
    "neighbours": ("b", {"x": (("p", "q"), [[1, 2], [3, 4]]), "y": (("p", "q"), [[1, 2], [3, 4]])}),
    "apart": ("b", {"time": ("p", [5, 2]), "y": ("p", [3, 4])}),
    "the first": ("b", {"time": (("p", "q"), [[5], [2]])}),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", POINTS)
def test_points(path, name):
    """xarray itself refuses points of a COO, so the expected ones are of dense arrays."""
    variable, given = POINTS[name]
    points = {dim: xr.DataArray(where, dims=dims) for dim, (dims, where) in given.items()}
    found = opened(path)[variable].isel(points)
    assert isinstance(found.data, sparse.COO)
    xr.testing.assert_identical(todense(found.load()), todense(made()[variable]).isel(points))


def counted(work):
    """The result of a function, and the bytes that this process read meanwhile."""
    before = int(IO.read_text().split()[1])
    found = work()
    return found, int(IO.read_text().split()[1]) - before


# The NetCDF library reads the first 4 MiB of every file.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "most"), [("a.zarr", {"chunks": 2**10}, 120_000), ("a.nc", {}, 2**22 + 100_000)]
)
def test_selecting_reads_nothing_and_loading_in_proportion(tmp_path, name, options, most):
    """The mixin of xarray's that makes this so is internal: views of views, and transposes, read nothing."""
    if not IO.exists():
        pytest.skip("the system counts no bytes of a process")
    rng = np.random.default_rng(1)
    shape = (1000, 40, 50)
    cells = np.unique(rng.integers(0, np.prod(shape), 600_000))
    data = sparse.COO(np.array(np.unravel_index(cells, shape)), rng.random(len(cells)), shape=shape)
    dataset = xr.Dataset({"a": (("time", "x", "y"), data)}, {"time": np.arange(1000)})

    bl.write_dataset(tmp_path / name, dataset, {"a": "dense, sparse(2)"}, **options)

    def selected(found):
        return found.a.transpose("y", "time", "x").sel(time=slice(100, 199))

    # Modules and compiled kernels are read. The chunks of other times are kept, for the store stays open.
    opened(tmp_path / name).a.transpose("y", "time", "x").sel(time=slice(800, 899)).load()
    found, opening = counted(lambda: opened(tmp_path / name))
    part, selecting = counted(lambda: selected(found))
    tenth, loading = counted(part.load)
    one, again = counted(lambda: opened(tmp_path / name).a.sel(time=500).load())
    whole, everything = counted(found.a.load)
    stored = [x.stat().st_size for x in (tmp_path / name, *(tmp_path / name).rglob("*")) if x.is_file()]
    assert everything > sum(stored) / 2 > 2_000_000
    assert opening < most
    assert selecting < 1000
    assert everything / 30 < loading < everything / 6
    assert again - opening < everything / 100
    assert (whole.data == data).all()
    assert (tenth.data == data[100:200].transpose((2, 0, 1))).all()
    assert (one.data == data[500]).all()


@pytest.mark.slow
def test_bytes_of_an_object_store(counted_s3):
    proxy, url = counted_s3
    rng = np.random.default_rng(1)
    dataset = xr.Dataset({"a": (("time", "x"), coo(rng, (1000, 2000), 200_000)), "t": ("time", np.arange(1000.0))})
    bl.write_dataset(f"{url}/a.zarr", dataset, {"a": "CSR"})
    with proxy.counting() as opening:
        found = opened(f"{url}/a.zarr")
    with proxy.counting() as selecting:
        part = found.a.isel(time=slice(10, 20))
    with proxy.counting() as loading:
        part.load()
    with proxy.counting() as everything:
        found.load()
    sizes = [sum(request.down for request in seen) for seen in (opening, selecting, loading, everything)]
    assert sizes[1] == 0
    assert sizes[0] < 70_000 < sizes[3] / 5
    assert sizes[2] < sizes[3] / 10
    assert found.identical(dataset)
    chunked = opened(f"{url}/a.zarr", tensor_chunks={"time": 300})
    assert chunked.sum("time").compute().equals(dataset.sum("time"))
    with pytest.raises(FileExistsError):
        bl.write_dataset(f"{url}/a.zarr", dataset)
    bl.write_dataset(f"{url}/a.zarr", dataset.isel(time=slice(10)), overwrite=True)
    assert opened(f"{url}/a.zarr").load().identical(dataset.isel(time=slice(10)))


def test_chunks_are_refused_with_the_remedy(path):
    for chunks in ({}, "auto", {"time": 5}):
        with pytest.raises(OptionError, match="tensor_chunks="):
            opened(path, chunks=chunks)
    with pytest.raises(OptionError, match="tensor_chunks: no tensor has a dimension 'tim'"):
        opened(path, tensor_chunks={"tim": 5})


def test_tensor_chunks_make_blocks_of_coo(path):
    found = opened(path, tensor_chunks={"time": 5})
    assert found.a.chunks == ((5, 5, 2), (9,))
    assert isinstance(found.b.data._meta, sparse.COO)
    assert isinstance(found.b.isel(x=1).data, dask.array.Array)
    xr.testing.assert_identical(todense(found.sum("time").compute()), todense(made().sum("time")))
    xr.testing.assert_identical(
        todense(xr.concat([found.a, found.a], "time").compute()), todense(xr.concat([made().a] * 2, "time"))
    )
    assert found.compute().identical(made())
    assert opened(path, tensor_chunks="auto", chunks={}).dense.chunks == ((5,), (7,))
    assert len(pickle.dumps(found.b)) < 10_000


@pytest.mark.slow
def test_chunked_variables_are_written_block_by_block(path, tmp_path):
    found = opened(path, tensor_chunks={"time": 5}).drop_encoding()  # xarray keeps codecs of the other version of Zarr
    for name, memory in (("a.zarr", 2**33), ("a.nc", 2**33), ("b.zarr", None)):
        bl.write_dataset(tmp_path / name, found, {"b": "sparse(3), dense @ 1, 2, 3, 0"}, memory=memory)
        assert opened(tmp_path / name).load().identical(made())
        assert str(bl.open(f"{tmp_path / name}:b").format) == "sparse(3), dense @ 1, 2, 3, 0"


def test_other_engines_open_the_dense_part(path):
    dense = made().drop_vars(["a", "b"])
    there = {name: made()[name] for name in dense.coords}
    if path.suffix == ".nc":
        plain = xr.open_dataset(path)
        trees = [xr.open_datatree(path, engine=name) for name in ("netcdf4", "h5netcdf")]
    else:
        plain = xr.open_zarr(path)
        trees = [xr.open_datatree(path, engine="zarr")] if "zarr.json" in {x.name for x in path.iterdir()} else []
    assert plain.load().identical(dense.assign_coords(there))
    plain.close()
    for tree in trees:
        assert set(tree.children) == {"a", "b"}
        assert tree["b"].to_dataset()["values"].sum() == made().b.data.data.sum()
        tree.close()


def test_without_an_engine_a_zarr_store_keeps_its_sparse_variables(path, tmp_path):
    guess = engine().guess_can_open
    assert guess(path) == (path.suffix == ".zarr")
    made()[["dense"]].to_zarr(tmp_path / "plain.zarr", consolidated=False)
    assert not guess(tmp_path / "plain.zarr")
    assert not guess(tmp_path / "nothing.zarr")
    assert not guess(3)


def test_pickled_it_is_the_path(path):
    found = opened(path).isel(time=slice(3, 9)).transpose()
    data = pickle.dumps(found.b)
    assert len(data) < 8000
    assert pickle.loads(data).load().identical(made().isel(time=slice(3, 9)).transpose().b)


def test_what_is_opened_can_be_written_again_in_its_place(tmp_path):
    for name in ("a.zarr", "a.nc"):
        bl.write_dataset(tmp_path / name, made(), {"b": "dense, sparse(3)"})
        bl.write_dataset(tmp_path / name, opened(tmp_path / name), overwrite=True)
        assert opened(tmp_path / name).load().identical(made())
        assert str(bl.open(f"{tmp_path / name}:b").format) == "dense, sparse(3)"
        part = opened(tmp_path / name).isel(time=slice(4))
        bl.write_dataset(tmp_path / f"part-{name}", part, {"a": "CSC", "dense": "sparse(2)"}, checksum=True)
        found = opened(tmp_path / f"part-{name}").load()
        assert isinstance(found.dense.data, sparse.COO)
        assert todense(found).identical(todense(made().isel(time=slice(4))))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["a.zarr", "a.nc"])
def test_a_write_that_fails_leaves_what_was_there(tmp_path, name):
    bl.write_dataset(tmp_path / name, made())
    broken = made().assign(c=("x", sparse.COO([[0]], [np.datetime64("2020-01-01")], shape=5)))
    with pytest.raises(BinsparseError):
        bl.write_dataset(tmp_path / name, broken, overwrite=True)
    with pytest.raises(FormatError):
        bl.write_dataset(tmp_path / "new", made(), {"b": "CSR"}, kind="zarr")
    assert [x.name for x in tmp_path.iterdir()] == [name]
    assert opened(tmp_path / name).load().identical(made())


@pytest.mark.parametrize("name", ["a.zarr", "a.nc"])
def test_any_rank_type_and_fill_value(tmp_path, name):
    dataset = xr.Dataset(
        {
            "scalar": ((), sparse.COO(np.empty((0, 1), int), np.array([2.5]), shape=())),
            "fill": ("x", sparse.COO([[0, 2]], [1.0, 2.0], shape=(4,), fill_value=np.nan)),
            "bool": ("x", sparse.COO([[1]], [True], shape=4)),
            "complex": (("x", "y"), sparse.COO([[1], [2]], [1 + 2j], shape=(4, 5))),
            "empty": (("x", "z"), sparse.COO(np.empty((2, 0), int), np.empty(0), shape=(4, 0))),
        }
    )
    bl.write_dataset(tmp_path / name, dataset)
    assert opened(tmp_path / name).load().identical(dataset)
    chunked = opened(tmp_path / name, tensor_chunks={"x": 3})
    bl.write_dataset(tmp_path / f"b-{name}", chunked[["fill", "bool", "complex"]], memory=2**33)
    assert opened(tmp_path / f"b-{name}").load().identical(dataset[["fill", "bool", "complex"]])


def test_tensors_without_names_of_dimensions(tmp_path):
    made()[["dense"]].to_zarr(tmp_path / "a.zarr", consolidated=False)
    tensor = bl.pack([[0], [1]], [3.0], (2, 4), "CSR", attributes={"units": "m"})
    bl.write(f"{tmp_path}/a.zarr:t", tensor)
    found = opened(tmp_path / "a.zarr")
    assert (found.t.dims, found.t.attrs) == (("t_0", "t_1"), {"units": "m"})
    assert found.dense.load().identical(made().dense)
    bl.write(tmp_path / "a.h5", tensor)
    assert opened(tmp_path / "a.h5").value.dims == ("value_0", "value_1")


@pytest.mark.parametrize("name", ["a.zarr", "a.h5", "a.npz", "a.zarr:group"])
def test_a_table_with_labels_is_a_dataset(tmp_path, name):
    pytest.importorskip("pyarrow")
    time = pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-01"])
    table = pd.DataFrame({"user": ["b", "a", "b"], "time": time, "item": [3, 1, 0], "score": [1.5, 2.5, 3.5]})
    bl.write(tmp_path / name, bl.from_table(table, ["user", "time", "item"], "score", "CSF"))
    found = opened(tmp_path / name.partition(":")[0])
    score = found["group" if ":" in name else "score"]
    assert score.dims == ("user", "time", "item")
    assert score.sel(user="b", time="2020-01-01").load().data.todense().tolist() == [3.5, 0, 0, 1.5]
    assert "item" not in found.coords


def test_what_cannot_be_written_is_told(tmp_path):
    dataset, path = made(), tmp_path / "a.zarr"
    for wrong, error, message in (
        (dataset.a, TypeError, "to_dataset"),
        (dataset.set_coords("a"), OptionError, "reset_coords"),
        (dataset.rename(a="a/b"), OptionError, "rename"),
        (dataset.drop_vars("user").rename(user=3), OptionError, "rename"),
        (dataset.assign(a=dataset.a.assign_attrs(f=print)), TypeError, "JSON"),
    ):
        with pytest.raises(error, match=message):
            bl.write_dataset(path, wrong)
    for formats in ({"c": "CSR"}, {"x": "sparse"}):
        with pytest.raises(OptionError, match="no data variable"):
            bl.write_dataset(path, dataset, formats)
    for place in (tmp_path / "a.h5", tmp_path / "a.zarr.zip", f"{path}:group", {}):
        with pytest.raises(OptionError):
            bl.write_dataset(place, dataset)
    with pytest.raises(OptionError, match="omit the group"):
        opened(f"{path}:group")
    with pytest.raises(TypeError, match="path"):
        opened({})
    assert not list(tmp_path.iterdir())
    path.mkdir()
    (path / "important").touch()
    with pytest.raises(BinsparseError):
        bl.write_dataset(path, dataset, overwrite=True)
    assert (path / "important").exists()


WAYS = {
    "group": lambda path: f"{path}:r",
    "folder": lambda path: path / "r",
    "open group": lambda path: zarr.open_group(path, mode="r+")["r"],
    "place": lambda path: zarr.storage.StorePath(zarr.storage.LocalStore(path), "r"),
    "store": lambda path: zarr.storage.LocalStore(path / "r"),
}


@pytest.mark.parametrize("coordinates", [True, False])
@pytest.mark.parametrize(("name", "way"), [("a.nc", "group"), ("zarr2", "group"), *(("a.zarr", way) for way in WAYS)])
def test_a_variable_does_not_outgrow_its_dataset(tmp_path, name, way, coordinates):
    rng, path = np.random.default_rng(0), tmp_path / ("a.zarr" if name == "zarr2" else name)

    def days(first, count):
        time = {"time": pd.date_range("2024-01-01", periods=first + count)[first:]} if coordinates else {}
        return xr.Dataset({x: (("time", "x"), coo(rng, (count, 6), 5)) for x in "rs"}, time)

    before, more, kind = days(0, 3), days(3, 2), "zarr2" if name == "zarr2" else None
    wide = before.assign(alone=(("k", "x"), coo(rng, (2, 6), 5)))
    bl.write_dataset(path, wide, {"r": "CSR", "s": "CSC", "alone": "CSR"}, kind=kind)
    with pytest.raises(
        FormatError,
        match=r"is a variable of a Dataset with .*'time' too; use append_dataset",
    ):
        bl.append(WAYS[way](path), more.r.data)
    with opened(path) as dataset:
        assert dataset.identical(wide)
    bl.append(f"{path}:alone", bl.from_sparse(coo(rng, (1, 6), 5)).convert("CSR"))
    with opened(path) as dataset:
        assert dataset.sizes["k"] == 3
        there = dataset.drop_vars("alone").load()
    bl.write_dataset(path, xr.concat([there, more], "time"), {"r": "CSR"}, overwrite=True, kind=kind)
    with opened(path) as dataset:
        assert dataset.identical(xr.concat([before, more], "time"))


def test_tensors_that_grow_each_for_itself_are_no_dataset(tmp_path):
    for name, size in (("2024", 3), ("2025", 2)):
        bl.write(f"{tmp_path}/a.zarr:{name}", pack_days(size))
    bl.append(f"{tmp_path}/a.zarr:2025", pack_days(1))
    assert bl.read(f"{tmp_path}/a.zarr:2025").shape == (3, 4)


def pack_days(size):
    return bl.pack_dense(np.ones((size, 4)), "CSR").with_labels({}, dims=["day", "item"])


def test_a_dataset_does_not_replace_a_file_that_is_open_for_writing(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.nc"
    bl.write_dataset(path, made())
    with h5py.File(path, "r+") as file:
        with pytest.raises(BinsparseError, match="open for writing"):
            bl.write_dataset(path, made(), overwrite=True)
        file["results"] = [1, 2, 3]
    with h5py.File(path) as file:
        assert file["results"][:].tolist() == [1, 2, 3]


def test_times_with_a_zone(tmp_path):
    """They are an index of xarray, which cannot write them."""
    hours = pd.date_range("2026-03-28", periods=8, freq="6h", tz="Europe/Zurich")
    array = bl.to_xarray(bl.pack_dense(range(8), "CVEC", dims=["t"], labels={"t": hours}))
    assert array.indexes["t"].equals(hours)
    assert array.sel(t="2026-03-29").shape == (4,)
    with pytest.raises(
        bl.OptionError, match=r"t: xarray writes no times with a zone; convert them by tz_convert\(None\)"
    ):
        bl.write_dataset(tmp_path / "a.nc", array.to_dataset(name="a"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum("a"), lambda x: x.mean(), lambda x: x.std("a"), lambda x: x.max("b"), lambda x: x.count("a"),
        lambda x: (x > 1).any("b"), lambda x: x.argmax("b"), lambda x: x.expand_dims("z").sum("z"),
        lambda x: xr.concat([x, x], "a").sum("b"), lambda x: x.where(x > 1, 0).sum("a"), lambda x: (x * 2)[:, 1].sum(),
    ],
)  # fmt: skip
def test_a_tensor_within_a_data_array_is_reduced(call):
    dense = np.array([[0, 1.5, 0, 2], [0, 0, 0, 0], [3, 0, 4, 0]])
    found = call(xr.DataArray(bl.pack_dense(dense, "CSR", dims=["a", "b"])))
    xr.testing.assert_allclose(found, call(xr.DataArray(dense, dims=["a", "b"])))
