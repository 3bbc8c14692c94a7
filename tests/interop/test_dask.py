"""Dask arrays of tensors in files, computed by Dask itself."""

import itertools
import pickle

import numpy as np
import pytest

import binsparse_levels as bl
from binsparse_levels import BinsparseError, ContainerError, FormatError, LimitError
from binsparse_levels.interop.dask import _unpickled as kept_open

dask = pytest.importorskip("dask")
sparse = pytest.importorskip("sparse")
da = pytest.importorskip("dask.array")
scipy = pytest.importorskip("scipy")
pandas = pytest.importorskip("pandas")

SHAPE = (61, 43)


@pytest.fixture(scope="module")
def cells():
    rng = np.random.default_rng(0)
    return np.where(rng.random(SHAPE) < 0.1, rng.integers(1, 9, SHAPE), 0).astype(float)


@pytest.fixture(params=["a.h5", "a.zarr", "a.h5:group/of/it"])
def place(request, tmp_path, cells):
    bl.write(tmp_path / request.param, bl.pack_dense(cells, "CSR"))
    return tmp_path / request.param


def dense(array, **options):
    found = array.compute(**options)
    return found.todense() if isinstance(found, sparse.SparseArray) else found


def test_blocks_are_sparse_and_equal_the_tensor(place, cells):
    array = bl.to_dask(place, chunks=(10, 20))
    assert (array.shape, array.dtype, array.chunksize) == (SHAPE, cells.dtype, (10, 20))
    assert isinstance(array._meta, sparse.COO)
    assert isinstance(array.blocks[0, 1].compute(), sparse.COO)
    assert (dense(array) == cells).all()


@pytest.mark.slow
def test_sum_matvec_and_slices_of_slices(place, cells):
    array = bl.to_dask(place, chunks=(16, 43))
    assert dense(array.sum()) == cells.sum()
    assert (dense(array.max(0)) == cells.max(0)).all()
    np.testing.assert_allclose(dense(array.mean(1)), cells.mean(1))
    np.testing.assert_allclose(dense(array @ np.arange(43.0)), cells @ np.arange(43.0))
    np.testing.assert_allclose(dense(array.T @ array), cells.T @ cells)
    assert (dense(array[3:50, ::3][5:20, 1:]) == cells[3:50, ::3][5:20, 1:]).all()
    assert (dense(array[::-2][4]) == cells[::-2][4]).all()
    assert (dense(array[[7, 3, 60]][:, 5:9]) == cells[[7, 3, 60]][:, 5:9]).all()
    assert dense(array[4, 5]) == cells[4, 5]


def test_svd_compressed(tmp_path):
    rng = np.random.default_rng(1)
    left, right = (np.where(rng.random(shape) < 0.3, rng.random(shape), 0) for shape in ((60, 3), (3, 40)))
    bl.write(tmp_path / "a.h5", bl.pack_dense(left @ right, "CSR"))
    array = bl.to_dask(tmp_path / "a.h5", chunks=(20, 40))
    found = da.linalg.svd_compressed(array, 3, seed=0)[1].compute()
    np.testing.assert_allclose(found, np.linalg.svd(left @ right)[1][:3])


def test_any_rank_format_and_fill_value(tmp_path):
    rng = np.random.default_rng(2)
    for k, (format, fill) in enumerate(itertools.product(["sparse, dense, sparse @ 2, 0, 1", "sparse(3)"], [None, 7])):
        cells = rng.integers(0, 3, (4, 5, 6))
        bl.write(tmp_path / f"{k}.h5", bl.pack_dense(cells, format, fill_value=fill or 0))
        array = bl.to_dask(tmp_path / f"{k}.h5", chunks=(3, 2, 4))
        assert array._meta.fill_value == (fill or 0)
        assert (dense(array) == cells).all()
    bl.write(tmp_path / "map.h5", bl.pack_dense(cells, "sparse(2)", map="(0 1), 2"))
    assert (dense(bl.to_dask(tmp_path / "map.h5")[1:, 2]) == cells[1:, 2]).all()
    bl.write(tmp_path / "scalar.h5", bl.pack([], [3.5], (), "element"))
    array = bl.to_dask(tmp_path / "scalar.h5")
    assert array.compute() == 3.5
    bl.from_dask(array * 2, tmp_path / "twice.h5", "element", memory=2**33)
    assert bl.read(tmp_path / "twice.h5").to_dense() == 7


@pytest.mark.slow
def test_auto_cuts_the_outermost_stored_dimension_by_stored_bytes(tmp_path):
    coords = [np.repeat(np.arange(1000), 10), np.tile(np.arange(10) * 10**9, 1000)]
    for format, chunks in (("CSR", (250, 10**10)), ("sparse, sparse @ 1, 0", (1000, 2_500_000_000))):
        bl.write(tmp_path / "a.h5", bl.pack(coords, np.ones(10_000), (1000, 10**10), format), overwrite=True)
        with dask.config.set({"array.chunk-size": 60_000}):
            array = bl.to_dask(tmp_path / "a.h5")
        assert array.chunksize == chunks
        assert dense(array.sum()) == 10_000


@pytest.mark.slow
def test_nothing_is_read_before_a_block_is_computed(counted_s3, cells):
    proxy, url = counted_s3
    bl.write(f"{url}/a.zarr", bl.pack_dense(np.kron(cells, np.ones((40, 40))), "CSR"))
    proxy.requests.clear()
    array = bl.to_dask(f"{url}/a.zarr", chunks=(200, 1720))
    opening = proxy.down
    assert (dense(array[205:207, :80]) == np.kron(cells, np.ones((40, 40)))[205:207, :80]).all()
    selecting = proxy.down - opening
    bl.read(f"{url}/a.zarr")
    reading = proxy.down - opening - selecting
    assert opening < 10_000
    assert selecting < reading / 5
    assert dense(array.sum(), scheduler="processes", num_workers=2) == cells.sum() * 1600


def _openings(block):
    return np.full((1, 1), kept_open.cache_info().misses)


@pytest.mark.slow
def test_a_process_opens_the_file_once_and_gets_the_path_alone(place, cells):
    array = bl.to_dask(place, chunks=(5, 43))
    assert len(pickle.dumps(array)) < 3000
    assert len(dict(array.dask)) == 14
    opened = array.map_blocks(_openings, chunks=((1,) * 13, (1,)), dtype=int, meta=np.empty((0, 0), int))
    assert opened.compute(scheduler="processes", num_workers=1, chunksize=1).max() == 1
    assert (dense(array, scheduler="processes", num_workers=2) == cells).all()
    assert dask.base.tokenize(array) == dask.base.tokenize(bl.to_dask(place, chunks=(5, 43)))
    assert bl.to_dask(place).name != array.name


@pytest.mark.slow
def test_distributed_workers_open_the_path(place, cells):
    distributed = pytest.importorskip("distributed")
    with distributed.Client(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as client:
        client.cluster.scale(1)
        assert (dense(bl.to_dask(place, chunks=(16, 43))[5:30]) == cells[5:30]).all()


@pytest.mark.slow
def test_blocks_between_processes_keep_their_fill_value(tmp_path):
    distributed = pytest.importorskip("distributed")
    tensor = bl.pack([[0, 3], [1, 2]], [1.0, 2.0], (4, 4), "CSR", fill_value=7)
    bl.write(tmp_path / "a.h5", tensor)
    array = bl.to_dask(tmp_path / "a.h5", chunks=(2, 4))
    options = {"n_workers": 1, "processes": True, "dashboard_address": "127.0.0.1:0", "local_directory": str(tmp_path)}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        assert (dense(array) == tensor.to_dense()).all()
        assert dense(array.sum()) == tensor.to_dense().sum()


def test_a_file_that_was_replaced_is_refused(place, cells):
    pickled = pickle.dumps(bl.to_dask(place))
    bl.write(place, bl.pack_dense(cells * 2, "CSR"), overwrite=True)
    assert (dense(bl.to_dask(place)) == cells * 2).all()
    with pytest.raises(ContainerError, match="has changed"):
        pickle.loads(pickled)


def test_other_places_are_refused(tmp_path):
    store = {}
    bl.write(store, bl.pack([[0]], [1.0], 3, "sparse"))
    for wrong in (store, bl.read(store), 3):
        with pytest.raises(TypeError, match="pass the path or the URL"):
            bl.to_dask(wrong)
    with pytest.raises(FileNotFoundError):
        bl.to_dask(tmp_path / "nothing.h5")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("format", ["CSR", "CSC", "sparse(2)", "dense, dense"])
@pytest.mark.parametrize("chunks", [(10, 20), (61, 5), (7, 43)])
def test_from_dask_writes_what_the_array_holds(tmp_path, cells, format, chunks):
    for k, array in enumerate(
        [
            da.from_array(cells, chunks),
            da.from_array(cells, chunks).map_blocks(sparse.COO),
            da.from_array(cells, chunks).map_blocks(sparse.GCXS.from_numpy),
            da.from_array(cells, chunks).map_blocks(scipy.sparse.csc_array),
        ]
    ):
        path = tmp_path / f"{k}.zarr"
        bl.from_dask(array, path, format, memory=2**33, attributes={"a": 1}, dims=["x", "y"], values="z")
        found = bl.read(path)
        assert found.dims == ("x", "y")
        assert found.equals(bl.pack_dense(cells, format))
        assert (found.attributes, found.fill_value) == ({"a": 1}, 0)


@pytest.mark.slow
def test_there_and_back_on_s3(s3, cells):
    bl.write(f"{s3}/a.zarr", bl.pack_dense(cells, "CSR"))
    bl.from_dask(bl.to_dask(f"{s3}/a.zarr", chunks=(20, 20)) * 2, f"{s3}/b.zarr", "CSC", memory=2**33)
    assert (bl.read(f"{s3}/b.zarr").to_dense() == cells * 2).all()


def test_from_dask_keeps_the_fill_value_and_refuses_another(tmp_path, cells):
    array = da.from_array(cells, (10, 20)).map_blocks(sparse.COO) + 3
    bl.from_dask(array, tmp_path / "a.h5", "CSR", memory=2**33)
    found = bl.read(tmp_path / "a.h5")
    assert found.fill_value == 3
    assert (found.to_dense() == cells + 3).all()
    mixed = array.map_blocks(lambda block: block + 1, meta=array._meta)
    with pytest.raises(FormatError, match="fill value"):
        bl.from_dask(mixed, tmp_path / "b.h5", "CSR", memory=2**33)
    assert not (tmp_path / "b.h5").exists()


def test_from_dask_refuses_what_it_cannot_write(tmp_path, cells):
    array = da.from_array(cells, (10, 20))
    with pytest.raises(TypeError, match=r"numpy\.ndarray"):
        bl.from_dask(cells, tmp_path / "a.h5", "CSR", memory=2**33)
    with pytest.raises(BinsparseError, match="compute_chunk_sizes"):
        bl.from_dask(array[array.sum(1) > 3], tmp_path / "a.h5", "CSR", memory=2**33)
    with pytest.raises(TypeError, match=r"pandas.*from_table"):
        bl.from_dask(array.map_blocks(pandas.DataFrame, meta=array._meta), tmp_path / "a.h5", "CSR", memory=2**33)
    with pytest.raises(LimitError, match="memory"):
        bl.from_dask(array, tmp_path / "a.h5", "CSR", memory=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "call",
    [lambda x: x.sum(), lambda x: x.sum(axis=0, keepdims=True), lambda x: x.mean(axis=1),
     lambda x: (x * 2)[:, :5].max(axis=1), lambda x: da.concatenate([x, x]).sum(axis=1)],
)  # fmt: skip
def test_blocks_that_are_tensors_are_reduced(cells, call):
    tensor = bl.pack_dense(cells, "CSR")
    found = call(da.from_array(tensor, chunks=20)).compute()
    np.testing.assert_allclose(found, call(da.from_array(cells, chunks=20)).compute())
