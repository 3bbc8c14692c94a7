"""Tensors that stay in their file: what is read of them, that it is checked, and that it is the same."""

import contextlib
import functools
import gc
import json
import os
import signal
import sys
import threading
import zipfile

import h5py
import numpy as np
import pytest
import scipy.sparse
from helpers.strategies import any_tensors, keys
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels
from binsparse_levels import (
    BinsparseError,
    ContainerError,
    Tensor,
    from_table,
    list_tensors,
    pack,
    read,
    read_all,
    testing,
    write,
)
from binsparse_levels.arrays import LazyArray
from binsparse_levels.io import describe, kinds
from binsparse_levels.io.reading import streamed
from binsparse_levels.tensors.tensor import inside

SUFFIXES = [".h5", ".zarr", ".npz", ".bspnpy"]
STORED = [*((suffix, {}) for suffix in SUFFIXES), (".h5", {"compression": "gzip", "chunks": 7}),
    (".npz", {"compression": "gzip"}), (".zarr", {"compression": "none", "chunks": 3, "shards": 6}),
    (".zarr", {"compression": "gzip", "chunks": 5, "kind": "zarr2"})]  # fmt: skip


def sample(format="dense, sparse, sparse"):
    rng = np.random.default_rng(0)
    shape = (30, 40, 50)
    coords = [rng.integers(0, size, 2000) for size in shape]
    return pack(coords, rng.random(2000), shape, format, duplicates="sum")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("suffix", "options"), STORED, ids=str)
@given(data=st.data())
def test_what_is_opened_is_what_was_written(tmp_path_factory, suffix, options, data):
    tensor = data.draw(any_tensors())
    path = tmp_path_factory.mktemp("opened") / f"a{suffix}"
    write(path, tensor, **options)
    again = binsparse_levels.open(path)
    assert (again.shape, again.dtype, again.format.canonical()) == (
        tensor.shape,
        tensor.dtype,
        tensor.format.canonical(),
    )
    assert again.structure == tensor.structure
    assert "Tensor" in repr(again)
    dense = tensor.to_dense()
    for _ in range(2):
        key = data.draw(keys(dense.shape))
        found = again[key]
        np.testing.assert_array_equal(found.to_dense() if isinstance(found, Tensor) else found, dense[key])
    testing.check_same(again.load(), read(path))
    assert again.T.equals(tensor.T)


def test_a_file_is_opened_once(tmp_path, monkeypatch):
    """A file is opened once by h5py, and once more for the first bytes, by which its kind is known."""
    path = tmp_path / "a.h5"
    opened = []

    def count(name):
        return lambda call, *args, **options: (opened.append(name), call(*args, **options))[1]

    write(path, sample())
    write(f"{path}:g", sample())
    monkeypatch.setattr(h5py, "File", functools.partial(count("h5py"), h5py.File))
    monkeypatch.setattr(kinds, "open_file", functools.partial(count("head"), kinds.open_file))
    for place in (path, f"{path}:g"):
        for call in (read, binsparse_levels.open, describe, list_tensors, read_all):
            opened.clear()
            call(place)
            assert sorted(opened) == ["h5py", "head"], (place, call)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@given(data=st.data())
def test_places_in_a_file_are_those_in_memory(tmp_path_factory, suffix, data):
    tensor = data.draw(any_tensors().filter(lambda tensor: tensor.ndim and 0 not in tensor.shape))
    path = tmp_path_factory.mktemp("opened") / f"a{suffix}"
    write(path, tensor)
    count = data.draw(st.integers(0, 9))
    places = tuple(
        np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=count, max_size=count)), np.int64)
        for n in tensor.shape
    )
    again = binsparse_levels.open(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("binsparse_levels.tensors.backing.TreeBacking._tree_for", lambda self, _: self.tree)
        found, positions = again[places], again.locate(places)
    np.testing.assert_array_equal(found, tensor[places])
    np.testing.assert_array_equal(positions, tensor.locate(places))


@given(data=st.data())
def test_consecutive_outermost_coordinates_are_read_like_any_selection(tmp_path_factory, data):
    tensor = data.draw(any_tensors().filter(lambda tensor: tensor.ndim))
    path = tmp_path_factory.mktemp("opened") / "a.h5"
    write(path, tensor)
    opened = binsparse_levels.open(path)
    outer = opened.format.order[0] if opened.map is None else 0
    for _ in range(2):
        start, stop = (data.draw(st.integers(-1, opened.shape[outer] + 1)) for _ in range(2))
        key = (*[slice(None)] * outer, slice(start, stop))
        for held in (opened, tensor):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("binsparse_levels.engine.selection._load_fibers", lambda *_: None)
                expected = held[key].load()
            found = held[key].load()
            assert (found.shape, found.format, found.iso) == (expected.shape, expected.format, expected.iso)
            assert found.equals(expected)
            for name, array in {**expected.arrays, "values": expected.values}.items():
                again = {**found.arrays, "values": found.values}[name]
                assert (again.dtype, again.tobytes(), again.flags.writeable) == (array.dtype, array.tobytes(), False)
            np.testing.assert_array_equal(found.to_dense(), tensor.to_dense()[key])


def test_what_a_view_knows_of_a_tree_is_kept(tmp_path):
    tensor = pack(np.divmod(np.arange(60), 10), np.arange(60.0), (6, 10), "CSR")
    write(tmp_path / "a.h5", tensor)
    opened = binsparse_levels.open(tmp_path / "a.h5")
    for held in (opened, tensor):
        for key in (slice(1, 3), (slice(None), slice(4)), slice(2, 5), (3, slice(None)), [5, 1]):
            np.testing.assert_array_equal(held[key].to_dense(), tensor.to_dense()[key])
        assert set(inside(held).backing._views) == {((0, 1), (0,)), ((0, 1), (1,)), ((1,), (0,))}
    opened.load()
    assert not inside(opened).backing._views
    np.testing.assert_array_equal(opened[1:3].to_dense(), tensor.to_dense()[1:3])


def test_a_tensor_is_read_whole_once_that_costs_less_than_its_places(tmp_path):
    tensor = pack(np.divmod(np.arange(100_000), 1000), np.arange(100_000.0), (100, 1000), "CSR")
    write(tmp_path / "a.h5", tensor)
    write(tmp_path / "a.zarr", tensor)
    opened = binsparse_levels.open(tmp_path / "a.h5")
    for k in range(10):
        places = np.array([3 * k, 99]), np.array([k, 7])
        assert opened[places].tolist() == [3001 * k, 99007]
        whole = opened.locate([[1], [1]]).tolist() == [1001] and not inside(opened).source.lazy
        assert whole == ((k + 1) * 3 * 2**12 > 100_000)
    opened = binsparse_levels.open(tmp_path / "a.zarr")  # each place takes a chunk of two
    assert opened[places].tolist() == [27009, 99007]
    assert not inside(opened).source.lazy


@pytest.mark.parametrize("suffix", [".npz", ".zarr.zip"])
def test_a_zip_file_is_opened_once(tmp_path, monkeypatch, suffix):
    path, opened = tmp_path / f"a{suffix}", []
    write(path, sample())
    start = zipfile.ZipFile.__init__
    monkeypatch.setattr(
        zipfile.ZipFile, "__init__", lambda *given, **more: opened.append(given[1]) or start(*given, **more)
    )
    for call in (read, binsparse_levels.open, describe, list_tensors, read_all):
        opened.clear()
        call(path)
        assert [file.name for file in opened] == [str(path)], call


def test_a_mapping_is_opened():
    tensor = sample()
    stored = {}
    write(stored, tensor)
    assert binsparse_levels.open(stored)[3].equals(tensor[3])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_opening_reads_no_array(tmp_path, suffix, monkeypatch):
    path = tmp_path / f"a{suffix}"
    write(path, sample())
    asked = []
    loading = binsparse_levels.io.file_tensors.Loading

    class Noting(LazyArray):
        def __init__(self, name, array):
            super().__init__(array.shape, array.dtype, array.nbytes)
            self.name, self.array = name, array

        def part(self, start, stop):
            asked.append(self.name)
            return self.array[start:stop]

    class Reader:
        def __init__(self, reader):
            self.read_header, self._reader = reader.read_header, reader

        def array(self, name):
            return Noting(name, self._reader.array(name))

    start = loading.__init__
    monkeypatch.setattr(loading, "__init__", lambda self, reader, *more: start(self, Reader(reader), *more))
    tensor = binsparse_levels.open(path)
    view = tensor.T[3:9, ::2].T[4]
    assert (view.shape, view.ndim, tensor.number_of_stored_values > 0) == ((20, 6), 2, True)
    assert "a view" in repr(view)
    assert asked == []
    view.to_dense()
    assert set(asked) == {"pointers_to_1", "pointers_to_2", "indices_1", "indices_2", "values"}


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="counts what the system was asked to read")
@pytest.mark.parametrize(
    "format", ["dense, dense, sparse", "dense, sparse, sparse", "sparse, sparse, sparse", "sparse(3)"]
)
def test_bytes_read_are_proportional_to_what_is_selected(tmp_path, format):
    tensor = pack(
        np.unravel_index(np.arange(300_000), (300, 100, 10)), 1.5 * np.arange(300_000), (300, 100, 10), format
    )
    write(tmp_path / "a.h5", tensor)
    opened = binsparse_levels.open(tmp_path / "a.h5")
    opened[7].load()

    def read_for(view):
        with open("/proc/self/io") as file:
            before = int(file.readline().split()[1])
        view.load()
        with open("/proc/self/io") as file:
            return int(file.readline().split()[1]) - before

    assert read_for(opened[3]) < 2.5 * tensor.nbytes / 300 + 2**16
    assert read_for(opened[100:200]) < 1.2 * tensor.nbytes / 3 + 2**16
    assert read_for(opened[100:104, 5, 3]) < 2**17


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_container_that_was_replaced_is_told_or_stays_as_it_was(tmp_path, suffix):
    path, tensor = tmp_path / f"a{suffix}", sample()
    write(path, tensor)
    opened = binsparse_levels.open(path)
    write(path, sample("sparse(3)"), overwrite=True)
    try:
        found = opened[3].to_dense()
    except ContainerError as error:
        found = str(error)
    assert "replaced" in found if isinstance(found, str) else (found == tensor[3].to_dense()).all()


def test_a_file_is_let_go(tmp_path):
    write(tmp_path / "a.h5", sample())
    view = binsparse_levels.open(tmp_path / "a.h5")[3]
    files = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 1
    view = view.load()
    gc.collect()
    assert not os.path.exists("/proc/self/fd") or len(os.listdir("/proc/self/fd")) < files


FAULTS = [
    ("pointers_to_1", 4, 10**6, "pointers_to_1"),
    ("pointers_to_1", 4, -1, "pointers_to_1"),
    ("pointers_to_2", 30, 2**31 - 1, "pointers_to_2"),
    ("pointers_to_2", 30, -(2**31), "pointers_to_2"),
    ("indices_1", 100, 40, "indices_1"),
    ("indices_2", 100, -1, "indices_2"),
]


@pytest.mark.parametrize(("name", "place", "number", "told"), FAULTS)
@pytest.mark.parametrize("key", [3, slice(2, 6), (slice(None), 7), (slice(None), slice(None), 3), np.array([5, 3, 3])])
def test_what_is_read_is_checked(tmp_path, name, place, number, told, key):
    tensor = sample()
    write(tmp_path / "a.bspnpy", tensor)
    file = tmp_path / "a.bspnpy" / f"{name}.npy"
    array = np.load(file)
    array[place] = number
    np.save(file, array)
    view = binsparse_levels.open(tmp_path / "a.bspnpy")[key]
    try:
        found = view.load().to_dense()
    except BinsparseError as error:
        found = str(error)
    assert told in found if isinstance(found, str) else (found == tensor.to_dense()[key]).all()
    with pytest.raises(BinsparseError, match=told):
        binsparse_levels.open(tmp_path / "a.bspnpy").load()


def test_a_file_that_is_cut_while_it_is_open(tmp_path):
    write(tmp_path / "a.h5", sample())
    opened = binsparse_levels.open(tmp_path / "a.h5")
    os.truncate(tmp_path / "a.h5", 5000)
    with pytest.raises(ContainerError):
        opened.load()


def test_metadata_are_compared_when_it_is_opened(tmp_path):
    write(tmp_path / "a.bspnpy", sample())
    header = tmp_path / "a.bspnpy" / "binsparse.json"
    changed = json.loads(header.read_text())
    changed["binsparse"]["shape"] = [31, 40, 50]
    header.write_text(json.dumps(changed))
    with pytest.raises(BinsparseError, match="pointers_to_1"):
        binsparse_levels.open(tmp_path / "a.bspnpy")


OTHERS = [
    ("a.sscdf", {}, "CSR"),
    ("a.sscdf", {"kind": "sscdf_json"}, "sparse(2)"),
    ("a.ra", {}, "dense, dense"),
    ("a", {"kind": "bpcells"}, "CSC"),
    ("a.h5", {"kind": "bpcells", "packed": False}, "CSR"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "format"), OTHERS, ids=str)
def test_files_of_other_systems_are_opened(tmp_path, name, options, format):
    rng = np.random.default_rng(0)
    tensor = pack(
        [rng.integers(0, 300, 3000), rng.integers(0, 400, 3000)],
        np.arange(3000.0),
        (300, 400),
        format,
        duplicates="sum",
    )
    write(tmp_path / name, tensor, **options)
    opened = binsparse_levels.open(tmp_path / name)
    assert inside(opened).source.lazy
    for key in (7, slice(20, 30), (slice(None), 5), (7, 5), (np.array([9, 3]), slice(1, 90, 4))):
        found = opened[key]
        np.testing.assert_array_equal(found.to_dense() if isinstance(found, Tensor) else found, tensor.to_dense()[key])
    assert opened.equals(tensor)
    assert opened.attributes == read(tmp_path / name).attributes


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_bit_packed_arrays_are_decoded_where_they_are_asked_for(tmp_path, suffix):
    tensor = pack(
        np.unravel_index(np.arange(0, 300_000, 3), (300, 100, 10)), 1.5, (300, 100, 10), "dense, dense, sparse"
    )
    write(tmp_path / f"a{suffix}", tensor, bitpacked=True)
    opened = binsparse_levels.open(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(opened[7, 3:60].to_dense(), tensor[7, 3:60].to_dense())
    testing.check_same(opened.load(), tensor)


@pytest.mark.parametrize(
    "values", [1.5 * np.arange(300), np.arange(300) * 1j, np.arange(300)], ids=["real", "complex", "packed"]
)
def test_seals_of_whole_arrays_are_compared(tmp_path, values):
    tensor = pack([np.arange(300) // 7, np.arange(300)], values, (50, 300), "COOR")
    packed = ["indices_0", "indices_1"] + ["values"] * (values.dtype.kind == "i")
    write(tmp_path / "a.bspnpy", tensor, checksum=True, bitpacked=packed)
    assert binsparse_levels.open(tmp_path / "a.bspnpy").load().equals(tensor)
    for name in ("indices_1", "values"):
        path = tmp_path / "a.bspnpy" / f"{name}.npy"
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        for load in (read, lambda path: binsparse_levels.open(path).load()):
            with pytest.raises(BinsparseError, match="checksum"):
                load(tmp_path / "a.bspnpy")
        path.write_bytes(whole)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("suffix", "options"), STORED, ids=str)
def test_a_block_closes_the_file(tmp_path, suffix, options):
    tensor = sample()
    path = tmp_path / f"a{suffix}"
    write(path, tensor, **options)
    with binsparse_levels.open(path) as opened:
        view = opened[3:, ::2]
        kept = opened[5].load()
    for reading in (opened.load, view.load, lambda: opened[0, 0, 0], lambda: opened.T.to_dense()):
        with pytest.raises(ContainerError, match="is closed; open it again"):
            reading()
    assert kept.equals(tensor[5])
    with binsparse_levels.open(path) as opened:
        opened.load()
    assert opened.equals(tensor)
    with tensor as same:
        assert same is tensor


def test_a_block_closes_files_of_other_systems(tmp_path):
    path = tmp_path / "a.h5"
    write(path, pack([[0, 1], [1, 0]], [1.0, 2.0], (2, 3), "CSR"), kind="bpcells")
    with binsparse_levels.open(path) as opened:
        assert opened[1, 0] == 2
    with pytest.raises(ContainerError, match="is closed"):
        opened.load()


@pytest.mark.filterwarnings("ignore:The '.*' option is deprecated")  # of anndata 0.13 with pandas 3
def test_a_file_with_names_is_let_go(tmp_path):
    anndata = pytest.importorskip("anndata")
    scipy_sparse = pytest.importorskip("scipy.sparse")
    anndata.AnnData(scipy_sparse.eye_array(3, format="csr")).write_h5ad(tmp_path / "a.h5ad")
    for use in (lambda t: t.dims, lambda t: t.labels("obs"), lambda t: t[1:].labels("obs"), lambda t: t.to_dense()):
        tensor = binsparse_levels.open(tmp_path / "a.h5ad")
        use(tensor)
        del tensor
        with h5py.File(tmp_path / "a.h5ad", "r+"):  # which the library refuses while the file is open
            pass
    for use in (lambda t: write({}, t), lambda t: t.load(), lambda t: write(tmp_path / "a.mtx", t)):
        kept = binsparse_levels.open(tmp_path / "a.h5ad")
        use(kept)
        with h5py.File(tmp_path / "a.h5ad", "r+"):
            assert kept.labels("obs").tolist() == ["0", "1", "2"]
    loaded = binsparse_levels.open(tmp_path / "a.h5ad")[1:].load()
    with h5py.File(tmp_path / "a.h5ad", "r+"):
        assert loaded.labels("obs").tolist() == ["1", "2"]
    with binsparse_levels.open(tmp_path / "a.h5ad") as tensor:
        pass
    with pytest.raises(ContainerError, match="closed"):
        tensor.labels("obs")


def calls(function):
    """How many calls of functions of the package a call makes, the fewest of three, without those of a collection."""
    root, counts = os.path.dirname(binsparse_levels.__file__), []

    def counted(frame, event, _):
        counts[-1] += event == "call" and frame.f_code.co_filename.startswith(root)

    function()
    gc.disable()
    try:
        for _ in range(3):
            counts.append(0)
            sys.setprofile(counted)
            function()
            sys.setprofile(None)
    finally:
        sys.setprofile(None)
        gc.enable()
    return min(counts)


def test_reading_passes_through_few_functions(tmp_path):
    path = tmp_path / "a.h5"
    write(path, pack(np.divmod(np.arange(1000), 10), np.arange(1000.0), (100, 10), "CSR", fill_value=0))
    with binsparse_levels.open(path) as opened:
        assert calls(lambda: opened[20:30].load()) <= 80
    assert calls(lambda: read(path)) <= 270
    assert calls(lambda: binsparse_levels.open(path)) <= 230


def test_labels_are_read_without_checks_too(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"user": [7, 9], "item": ["pen", "ink"], "value": [1.5, 2.5]})
    write(tmp_path / "a.h5", from_table(table, ["user", "item"], "value", "CSR"))
    assert read(tmp_path / "a.h5", check="none").labels("item").tolist() == ["ink", "pen"]


def offsets(path):
    """The offset of each open descriptor of a file, or of the files in a folder, on Linux."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}").startswith(str(path)):
                found[number] = os.lseek(int(number), 0, os.SEEK_CUR)
    return found


FORKED = [*STORED, (".nc", {}), (".zarr.zip", {}), (".zarr.zip", {"compression": "gzip"}), (".bspra", {})]
FORKED += [(".csr.npz", {"compressed": False}), (".csr.npz", {"compressed": True})]


@pytest.fixture(params=FORKED, ids=str)
def forked(request, tmp_path):
    """A file, and a tensor that is open in it."""
    suffix, options = request.param
    path, tensor = tmp_path / f"a{suffix}", matrix()
    if suffix == ".csr.npz":
        scipy.sparse.save_npz(path, binsparse_levels.to_scipy(tensor), **options)
    else:
        write(path, tensor, **options)
    return path, binsparse_levels.open(path)


def matrix():
    rng = np.random.default_rng(0)
    return pack(rng.integers(0, 400, (2, 5000)), rng.random(5000), (400, 400), "CSR", duplicates="sum")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_reading_moves_no_offset_that_forked_processes_share(forked):
    path, tensor = forked
    before = offsets(path)
    for _ in range(2):
        tensor[3:200, ::2].load()
        tensor[7, 8]
        tensor[1:].load()
        assert offsets(path) == before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz", ".tns"])
def test_a_text_moves_no_offset(tmp_path, suffix):
    write(path := tmp_path / f"a{suffix}", matrix())
    with streamed(path) as stream:
        assert offsets(path) == dict.fromkeys(offsets(path), 0)
        assert sum(len(values) for _, values in stream.chunks) == matrix().nnz
        assert offsets(path) == dict.fromkeys(offsets(path), 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_processes_forked_while_threads_read_do_not_wait_for_them(forked):
    _, tensor = forked
    expected, over = tensor.load().values.sum(), threading.Event()

    def read_on():
        while not over.is_set():
            tensor[3:200].load()

    def child():
        if (number := os.fork()) == 0:
            signal.alarm(20)
            os._exit(0 if tensor.load().values.sum() == expected else 1)
        return number

    threads = [threading.Thread(target=read_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    codes = [os.waitstatus_to_exitcode(os.waitpid(child(), 0)[1]) for _ in range(3)]
    over.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 3
