"""Zarr in object stores: what is asked of the server, what is kept, and what a missing or changed object gives."""

import concurrent.futures
import functools
import http.server
import itertools
import json
import threading

import numpy as np
import pytest
import zarr
from helpers import servers
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import FsspecStore, ObjectStore

import binsparse_levels as bl
from binsparse_levels import ContainerError, IncompleteError, Limits, UnsafeError
from binsparse_levels.containers import zarr as zarr_container
from binsparse_levels.containers.base import Storage
from binsparse_levels.containers.objects.reading import Cache

obstore = pytest.importorskip("obstore")
LISTED = "binsparse_levels:arrays"


def rows(count=500, each=1000, width=20_000):
    """A matrix of so many entries in each row."""
    rng = np.random.default_rng(0)
    columns = np.sort(rng.permuted(np.tile(np.arange(width), (count, 1)), axis=1)[:, :each], axis=1).ravel()
    return bl.pack((np.repeat(np.arange(count), each), columns), rng.random(count * each), (count, width), "CSR")


def place_of(library, url):
    if library == "obstore":
        return url
    pytest.importorskip("s3fs")
    return FsspecStore.from_url(url)


def store_of(place):
    return ObjectStore(obstore.store.from_url(place)) if isinstance(place, str) else place


def memory():
    return ObjectStore(obstore.store.MemoryStore())


def asked(seen, name=""):
    assert not [request for request in seen if "list-type" in request.path], "the server had to list"
    return [request for request in seen if f"/{name}" in request.path]


@pytest.mark.parametrize("what", ["a tensor", "a Dataset"])
def test_of_two_writers_to_a_bucket_one_fails(s3, what):
    def attempt(value, url, ready):
        tensor = bl.pack_dense(np.full((3, 4), value), "CSR")
        ready.wait()
        try:
            if what == "a tensor":
                bl.write(url, tensor)
            else:
                bl.write_dataset(url, bl.to_xarray(tensor).to_dataset(name="a"))
        except ContainerError:
            return 0
        return value

    for n in range(3):
        url, ready = f"{s3}/{n}.zarr", threading.Barrier(2)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            *_, last = done = sorted(pool.map(attempt, (3.0, 9.0), [url] * 2, [ready] * 2))
        assert done == [0, last]
        assert bl.read(url if what == "a tensor" else f"{url}:a").values[0] == last > 0


@pytest.mark.slow
@pytest.mark.parametrize("library", ["obstore", "s3fs"])
def test_what_is_asked_of_a_server(counted_s3, library):
    proxy, url = counted_s3
    place, tensor = place_of(library, f"{url}/a.zarr"), rows()
    bl.write(place, tensor)
    with proxy.counting() as seen:
        opened = bl.open(place)
    assert len(asked(seen)) <= 3
    with proxy.counting() as seen:
        found = opened[77].load()
    assert found.equals(tensor[77])
    for name in ("pointers_to_1", "indices_1", "values"):
        assert 1 <= len(asked(seen, name)) <= 2, name
    assert len(asked(seen)) <= 6
    with proxy.counting() as seen:
        assert opened[77].load().equals(found)
    assert seen == []
    rng = np.random.default_rng(1)
    at = rng.integers(0, tensor.number_of_stored_values, 50)
    coords = tuple(x[at] for x in tensor.unpack()[0])
    opened = bl.open(place)
    with proxy.counting() as seen:
        np.testing.assert_array_equal(opened[coords], tensor.values[at])
    assert sum(request.down for request in asked(seen)) < 2e6 < tensor.nbytes / 2
    with proxy.counting() as seen:
        taken = {name: info.nbytes for name, info in bl.io.describe(place).arrays.items()}
    assert len(asked(seen)) <= 3
    with proxy.counting() as seen:
        sizes = {name: array.nbytes_stored() for name, array in zarr.open_group(store_of(place), mode="r").arrays()}
    assert taken == sizes
    with proxy.counting() as seen:
        assert bl.read(place).equals(tensor)
    assert len({request.path for request in asked(seen)}) <= 1 + 3  # objects


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.parametrize("kind", ["zarr", "zarr2"])
def test_what_is_asked_of_a_web_server(tmp_path, kind):
    tensor = rows(20)
    bl.write(tmp_path / "a.zarr", tensor, kind=kind)
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with servers.Proxy(f"http://127.0.0.1:{server.server_port}") as proxy:
            with proxy.counting() as seen:
                opened = bl.open(f"{proxy.endpoint}/a.zarr")
            assert len(seen) == (1 if kind == "zarr" else 3)
            with proxy.counting() as seen:
                assert opened[7].load().equals(tensor[7])
            assert len(seen) <= 6
            with proxy.counting() as seen:
                assert opened[7].load().equals(tensor[7])
            assert seen == []
        server.shutdown()


class Counting(ObjectStore):
    """A store that counts what is asked of it."""

    asked = ()

    async def get(self, key, *given, **more):
        self.asked.append(key)
        return await super().get(key, *given, **more)

    def list_prefix(self, prefix):
        raise AssertionError("no object is listed")

    list = list_dir = list_prefix


@pytest.mark.slow
def test_opening_does_not_grow_with_the_number_of_shards(tmp_path):
    for shards in (10, 1000):
        path = tmp_path / f"{shards}.zarr"
        tensor = bl.pack([np.arange(2 * shards)], np.full(2 * shards, 1.5), 2 * shards, "CVEC")
        bl.write(path, tensor, chunks=1, shards=2, compression="none")
        store = Counting(obstore.store.LocalStore(str(path)))
        store.asked = []
        opened = bl.open(store)
        assert store.asked == ["zarr.json"]
        assert opened[7:9].to_dense().tolist() == [1.5, 1.5]


def test_opening_lists_nothing_where_the_sizes_are_not_told():
    store = memory()
    bl.write(store, rows(3))
    sizes = {name: info.nbytes for name, info in bl.io.describe(store).arrays.items()}
    group = zarr.open_group(store)
    group.attrs[LISTED] = {**group.attrs[LISTED], "bytes": {}}
    counting = Counting(store.store)
    counting.asked = []
    assert bl.open(counting)[1].load().equals(rows(3)[1])
    assert {name: info.nbytes for name, info in bl.io.describe(store).arrays.items()} == sizes


@pytest.mark.parametrize("kind", ["zarr", "zarr2"])
@pytest.mark.parametrize("group", ["", "g/h"])
def test_zarr_itself_opens_the_same(kind, group):
    store = memory()
    zarr.create_group(store, zarr_format=3 if kind == "zarr" else 2)
    place = zarr.open_group(store).require_group(group) if group else store
    bl.write(place, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"), kind=None if group else kind)
    again = zarr.open_group(store, path=group or None, mode="r+")
    again.create_array("other", shape=(3,), dtype="i4", chunks=(3,))[...] = 5
    assert {"other", "values", "indices_1", "pointers_to_1"} == set(
        zarr.open_group(store, path=group or None).array_keys()
    )
    assert zarr.open_group(store)["/".join(filter(None, [group, "values"]))][...].tolist() == [1, 2]
    larger = bl.pack([[0, 2, 2], [1, 0, 3]], [1.0, 2.0, 5.0], (3, 4), "CSR")
    bl.write(zarr.open_group(store, path=group or None), larger, overwrite=True)
    assert bl.read(zarr.open_group(store, path=group or None)).equals(larger)
    group_again = zarr.open_group(store, path=group or None)
    assert group_again["values"].shape == (3,)
    assert "other" in group_again
    assert_listed(group_again)


def assert_listed(group):
    """The metadata beside the header are those of the arrays."""
    listed = group.attrs[LISTED]["arrays"]
    assert set(listed) == set(group.attrs["binsparse"]["binsparse"]["data_types"])
    for name, metadata in listed.items():
        assert zarr.Array.from_dict(group.store_path / name, metadata).metadata == group[name].metadata
        assert group.attrs[LISTED]["bytes"][name] == group[name].nbytes_stored()


def test_metadata_beside_the_header_after_an_append(tmp_path):
    tensor = bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR")
    for place in (str(tmp_path / "a.zarr"), memory()):
        bl.write(place, tensor)
        bl.append(place, tensor)
        assert_listed(zarr.open_group(place))
    uploaded = ObjectStore(obstore.store.LocalStore(str(tmp_path / "a.zarr")))
    assert bl.read(uploaded).equals(bl.read(tmp_path / "a.zarr"))


@pytest.mark.parametrize("kind", ["zarr", "zarr2"])
def test_files_without_the_list_and_files_that_others_changed(kind):
    store, tensor = memory(), bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR")
    bl.write(store, tensor, kind=kind)
    group = zarr.open_group(store)
    listed = group.attrs[LISTED]
    del group.attrs[LISTED]
    assert bl.open(store).equals(tensor)
    group.attrs[LISTED] = {**listed, "arrays": {}}
    assert bl.open(store).equals(tensor)  # a name that is not listed is asked for
    for wrong in (5, {}, {**listed, "header": 0}):
        group.attrs[LISTED] = wrong
        assert bl.open(store).equals(tensor)
    group.attrs[LISTED] = {**listed, "arrays": {**listed["arrays"], "values": {"zarr_format": 3}}}
    with pytest.raises(ContainerError, match="values"):
        bl.open(store)
    # Another program writes another tensor over it, and keeps the attributes that it does not know.
    group.attrs[LISTED] = listed
    del group["values"]
    group.create_array("values", shape=(2,), dtype="i4", chunks=(2,))[...] = [7, 8]
    header = group.attrs["binsparse"]
    header["binsparse"]["data_types"]["values"] = "int32"
    group.attrs["binsparse"] = header
    assert bl.open(store).values.tolist() == [7, 8]


def unread(metadata, path):
    raise NotImplementedError("nothing is read without zarr")


WRONG = [("shape", [-2]), ("shape", [2.0]), ("shape", [True]), ("shape", 2), ("data_type", "float24"),
    ("data_type", "int8"), ("fill_value", "0x00"), ("fill_value", None), ("fill_value", [0]), ("fill_value", True),
    ("attributes", [1]),
    ("dimension_names", ["a", "b"]), ("dimension_names", [5]), ("dimension_names", "a"), ("zarr_format", 4),
    ("node_type", "group"), ("chunk_grid", {"name": "regular", "configuration": {"chunk_shape": [True]}}),
    ("chunk_grid", {"name": "regular", "configuration": {"chunk_shape": [0]}}), ("codecs", []), ("more", {"a": 1}),
    ("storage_transformers", [{"name": "x"}]), ("codecs", [{"name": "bytes"}, {"name": "zstd"}])]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("key", "value"), [*WRONG, *((key, None) for key in ("shape", "codecs", "data_type"))], ids=str
)
def test_metadata_are_checked_as_zarr_checks_them(tmp_path, monkeypatch, key, value):
    """What is known without zarr is what zarr makes of it, or an error where zarr raises one."""
    bl.write(tmp_path / "a.zarr", bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    file = tmp_path / "a.zarr" / "values" / "zarr.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))

    def found():
        try:
            return bl.read(tmp_path / "a.zarr").values.tolist()
        except bl.BinsparseError:
            return None

    ours = found()
    monkeypatch.setattr("binsparse_levels.containers.zarr_reading.chunks_in", unread)
    assert ours == found()


def test_codecs_that_must_not_run_are_refused_in_the_list_too():
    store = memory()
    bl.write(store, bl.pack([[0], [0]], [1.0], (3, 4), "CSR"))
    group = zarr.open_group(store)
    listed = group.attrs[LISTED]
    listed["arrays"]["values"]["codecs"][-1] = {"name": "numcodecs.pickle"}
    group.attrs[LISTED] = listed
    with pytest.raises(UnsafeError):
        bl.open(store)


def test_a_missing_or_damaged_shard_shows_where_it_is_read():
    store, tensor = memory(), rows(20)
    bl.write(store, tensor, chunks=512, shards=1024)
    key = "values/c/3"
    good = bytes(store.store.get(key).bytes())
    for bad in (None, good[:-10], b"", good[:5] + b"\0" * 9 + good[14:], good[:-30] + b"\xff" * 9 + good[-21:]):
        if bad is None:
            store.store.delete(key)
        else:
            store.store.put(key, bad)
        opened = bl.open(store)
        for row in (0, 19):
            assert opened[row].load().equals(tensor[row])
        for use in (opened[3].load, lambda opened=opened: opened.load(), lambda: bl.read(store)):
            with pytest.raises(IncompleteError if bad is None else ContainerError, match="values"):
                use()


def test_the_cache_is_bounded_and_gives_back_what_was_used_last():
    cache = Cache()
    for number in range(20):
        cache.put((1, "a", number), np.full(10, number, np.uint8), 100)
        assert cache.get((1, "a", 0)) is not None
    held = [number for number in range(20) if cache.get((1, "a", number)) is not None]
    assert held == [0, *range(11, 20)]
    cache.put((2, "b", 0), np.zeros(101, np.uint8), 100)
    assert cache.get((2, "b", 0)) is None
    cache.put((2, "b", 0), np.zeros(10, np.uint8), 100)
    cache.drop(1)
    assert cache.get((1, "a", 0)) is None
    assert cache.get((2, "b", 0)) is not None


@pytest.mark.parametrize("size", [0, 10**4, 10**8])
def test_a_tensor_is_the_same_whatever_is_kept(size):
    store, tensor = memory(), rows(30)
    bl.write(store, tensor)
    opened = bl.open(store, limits=Limits(cache_bytes=size))
    for row in (3, 3, 29, 0, 3):
        assert opened[row].load().equals(tensor[row])


@given(data=st.data())
def test_any_part_of_any_array(data):
    length = data.draw(st.integers(0, 200))
    array = (
        np.random.default_rng(length).integers(0, 100, length).astype(data.draw(st.sampled_from(["u1", "i4", "f8"])))
    )
    chunk = data.draw(st.integers(1, 40))
    shard = data.draw(st.none() | st.integers(1, 4))
    newer = data.draw(st.booleans())
    compression = data.draw(st.sampled_from(["none", "blosc", "zstd", "gzip"]))
    storage = Storage(compression, chunk, shard * chunk if shard and newer else None)
    store = memory()
    version = {} if newer else {"zarr_format": 2}
    with zarr_container.writing(store, None, False, Limits(), storage, **version) as writer:
        writer.write("x", bl.arrays.one_piece(array))
        writer.write_header({"binsparse": {}})
    np.testing.assert_array_equal(zarr.open_group(store)["x"][...], array)
    limits = Limits(cache_bytes=data.draw(st.sampled_from([0, 300, 10**6])))
    with zarr_container.reading(store, None, limits) as reader:
        lazy = reader.array("x")
        assert (lazy.shape, lazy.dtype) == (array.shape, array.dtype)
        assert lazy.nbytes > 0 or not length
        for _ in range(4):
            start, stop = sorted(data.draw(st.tuples(st.integers(0, length), st.integers(0, length))))
            np.testing.assert_array_equal(lazy[start:stop], array[start:stop])
            if length:
                positions = np.array(data.draw(st.lists(st.integers(0, length - 1), max_size=20)), np.int64)
                np.testing.assert_array_equal(lazy[positions], array[positions])


@pytest.mark.slow
def test_formats_in_an_object_store():
    rng = np.random.default_rng(0)
    coords = [rng.integers(0, 30, 500) for _ in range(3)]
    for format, values in itertools.product(
        ("dense, sparse, sparse", "sparse(3)", "dense, sparse(2)", "dense, dense, bitmap"),
        (rng.random(500), 1j * rng.random(500)),
    ):
        tensor = bl.pack(coords, values, (30, 30, 30), format, duplicates="first")
        store = memory()
        bl.write(store, tensor, chunks=60, shards=120, bitpacked=True)
        opened = bl.open(store)
        assert opened[3:9, 5].equals(tensor[3:9, 5])
        assert bl.read(store).equals(tensor)
