"""Zarr: missing chunks, consolidated metadata, reserved names, failed writes."""

import glob
import json
import logging
import os
import re
import shutil
import zipfile

import numcodecs
import numpy as np
import obstore
import pytest
import zarr
from helpers.places import vector
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.storage import LocalStore, MemoryStore, ObjectStore, StorePath

import binsparse_levels
from binsparse_levels import (
    BinsparseError,
    ContainerError,
    IncompleteError,
    Limits,
    append,
    list_tensors,
    pack,
    pack_dense,
    read,
    write,
)
from binsparse_levels.containers import zarr_reading
from binsparse_levels.errors import PathExistsError
from binsparse_levels.io import describe


@pytest.mark.parametrize("options", [{"shards": 2**17}, {"kind": "zarr2", "chunks": 2**16}])
def test_a_missing_chunk_is_not_one_of_zeros(tmp_path, options):
    write(tmp_path / "a.zarr", pack([np.arange(200_000)], np.arange(200_000.0), 300_000, "CVEC"), **options)
    chunks = [name for name in glob.glob(f"{tmp_path}/a.zarr/values/**", recursive=True) if os.path.isfile(name)]
    os.remove(max(name for name in chunks if os.path.basename(name).isdigit()))
    with pytest.raises(IncompleteError):
        read(tmp_path / "a.zarr")


PLACES = {
    "the root": ("", lambda path: path),
    "a group": ("g", lambda path: f"{path}:g"),
    "a nested group": ("g/h", lambda path: f"{path}:g/h"),
    "a folder in the store": ("g/h", lambda path: f"{path}/g/h"),
    "a store in the store": ("g/h", lambda path: LocalStore(f"{path}/g/h")),
    "a group that is open": ("g/h", lambda path: zarr.open_group(path, path="g/h", mode="r+")),
    "a place in a store": ("g/h", lambda path: StorePath(LocalStore(path), "g/h")),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["zarr", "zarr2"])
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("way", ["overwrite", "append"])
@pytest.mark.filterwarnings("ignore")
def test_metadata_that_were_consolidated_are_no_longer_there(tmp_path, kind, where, way):
    """At whatever group they were consolidated, zarr reads what was written last."""
    path = f"{tmp_path}/a.zarr"
    group, place_of = PLACES[where]
    write(f"{path}:{group}" if group else path, vector(3), kind=kind)
    for consolidated in ("", "g", "g/h"):
        if group.startswith(consolidated):
            zarr.consolidate_metadata(path, path=consolidated)
    place = place_of(path)
    if way == "append":
        append(place, vector(4))
    else:
        write(place, vector(4), overwrite=True, kind=kind if isinstance(place, str | LocalStore) else None)
    found = read(f"{path}:{group}" if group else path)
    for top in ("", "g", "g/h"):
        if group.startswith(top):
            there = zarr.open_group(path, path=top, mode="r")
            below = group.removeprefix(top).strip("/")
            there = there[below] if below else there
            assert there["values"][...].tolist() == found.values.tolist()
            assert there.attrs["binsparse"]["binsparse"]["shape"] == list(found.shape)
    assert list_tensors(path) == [group or "/"]


@pytest.mark.parametrize("kind", ["zarr", "zarr2"])
@pytest.mark.parametrize("beside", [(), ("__MACOSX/._a.zarr",)])
def test_a_store_that_was_zipped_with_its_folder(tmp_path, kind, beside):
    write(tmp_path / "a.zarr", vector(3), kind=kind)
    write(f"{tmp_path}/a.zarr:g", vector(5))
    path = shutil.make_archive(tmp_path / "a.zarr", "zip", tmp_path, "a.zarr")
    with zipfile.ZipFile(path, "a") as archive:
        for name in beside:
            archive.writestr(name, b"")
    assert read(path).equals(vector(3))
    assert read(f"{path}:g").equals(vector(5))
    assert binsparse_levels.open(path)[1:].load().equals(vector(3)[1:].load())
    assert list_tensors(path) == ["/", "g"]
    append(path, vector(3))
    assert read(path).shape == (2 * vector(3).shape[0], *vector(3).shape[1:])
    assert list_tensors(path) == ["/", "g"]


UNKNOWN = {
    "data type": {
        "data_type": {"name": "struct", "configuration": {"fields": [{"name": "f", "data_type": "float32"}]}}
    },
    "codec": {"codecs": [{"name": "unheard_of"}]},
    "chunk grid": {"chunk_grid": {"name": "rectangular", "configuration": {}}},
    "keys": {"chunk_key_encoding": {"name": "unheard_of"}},
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("unknown", UNKNOWN)
@pytest.mark.parametrize("where", ["", "g", "other"])
def test_an_array_that_zarr_does_not_know_stops_nothing(tmp_path, unknown, where):
    path = tmp_path / "a.zarr"
    write(path, vector(1))
    for group in ("g", "other/x"):
        write(f"{path}:{group}", vector(2))
    metadata = json.loads((path / "values" / "zarr.json").read_text())
    (path / where / "table").mkdir()
    (path / where / "table" / "zarr.json").write_text(json.dumps(metadata | UNKNOWN[unknown]))
    assert list_tensors(path) == ["/", "g", "other/x"]
    assert read(f"{path}:g").equals(binsparse_levels.open(f"{path}:g").load())
    with pytest.raises(BinsparseError, match=r"without a header|no tensor here"):
        read(f"{path}:other")


def test_a_write_into_a_store_that_failed_can_be_tried_again(monkeypatch):
    store = MemoryStore()
    with monkeypatch.context() as patch:
        patch.setattr("binsparse_levels.containers.zarr.ZarrWriter.write_header", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write(store, vector(1))
    write(store, vector(1))
    assert read(store).equals(vector(1))


@pytest.mark.parametrize("name", [".zattrs", "zarr.json", "a/.zgroup"])
def test_no_group_takes_the_name_of_what_zarr_keeps(tmp_path, name):
    tensor = pack([[0], [0]], [1.0], (2, 2), "CSR")
    write(tmp_path / "m.zarr", tensor)
    with pytest.raises(ContainerError, match="no group has the name"):
        write(f"{tmp_path}/m.zarr:{name}", tensor)
    assert read(tmp_path / "m.zarr").equals(tensor)


def test_a_missing_chunk_that_only_zarr_reads_is_told_by_a_part_too(tmp_path):
    write(tmp_path / "a.zarr", pack_dense(np.arange(1.0, 13).reshape(3, 4), "CSR"), kind="zarr2", chunks=4)
    os.unlink(tmp_path / "a.zarr" / "values" / "1")
    opened = binsparse_levels.open(tmp_path / "a.zarr")
    for use in (opened.load, opened[1].load, lambda: opened[1, 1]):
        with pytest.raises(IncompleteError):
            use()


@pytest.mark.parametrize("options", [{}, {"chunks": 1}, {"kind": "zarr2"}], ids=str)
def test_names_of_zarr_arrays_that_begin_alike(tmp_path, options):
    tensor = pack([np.array([0, 1])] * 12, [1.0, 2.0], (2,) * 12, "sparse(12)")
    for place in (tmp_path / "a.zarr.zip", zarr.storage.MemoryStore()):
        write(place, tensor, **options)
        assert read(place).equals(tensor)
        sizes = {name: info.nbytes for name, info in describe(place).arrays.items()}
        named = "kind" not in options  # the metadata of version 3 hold the name, which is longer by one
        assert sizes["indices_1"] + named == sizes["indices_11"]


def test_a_tensor_in_the_way_is_named_by_its_path(tmp_path):
    path = tmp_path / "a.zarr"
    write(f"{path}:x", pack([[0]], [1.0], (3,), "sparse"))
    with pytest.raises(PathExistsError, match=re.escape(f"{path}:x: has a tensor")):
        write(f"{path}:x", pack([[0]], [1.0], (3,), "sparse"))


def again(place, name="values", **options):
    """Write an array of a group again with zarr itself. Returns its items."""
    group = zarr.open_group(place, mode="r+")
    items = group[name][...]
    del group[name]
    given = {"chunks": (100,), "dtype": items.dtype} | options
    group.create_array(name, shape=items.shape, **given)[...] = items
    return items


# What zarr-python writes that only zarr reads, by the reason that the log has.
REASONS = {
    "codecs [{'name': 'bytes', 'configuration': {'endian': 'big'}}": {"serializer": BytesCodec(endian="big")},
    "codecs [{'name': 'transpose'": {"filters": [TransposeCodec(order=(0,))]},
    "index of shards": {
        "chunks": (200,), "compressors": None,
        "serializer": ShardingCodec(chunk_shape=(100,), codecs=[BytesCodec()], index_codecs=[BytesCodec()]),
    },
    "keys of chunks": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
    "fill value 'NaN'": {"fill_value": np.nan},
    "type '>f8'": {"kind": "zarr2", "dtype": ">f8"},
    "codecs [{'id': 'shuffle'": {"kind": "zarr2", "filters": [numcodecs.Shuffle(8)]},
    "codecs [{'id': 'zlib'": {"kind": "zarr2", "compressors": numcodecs.Zlib()},
}  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_the_log_has_the_reason_why_zarr_reads_an_array(tmp_path, caplog, reason):
    """Its chunks are cached too: each is read once."""
    options = dict(REASONS[reason])
    tensor = pack([np.arange(1000)], np.arange(1000.0), 2000, "CVEC")
    write(tmp_path / "a.zarr", tensor, kind=options.pop("kind", None))
    again(tmp_path / "a.zarr", **options)
    with caplog.at_level(logging.DEBUG, "binsparse_levels"), binsparse_levels.open(tmp_path / "a.zarr") as opened:
        assert [opened[k] for k in (207, 299, 201, 350)] == [207, 299, 201, 350]
        assert opened[150:281].to_dense().tolist() == list(range(150, 281))
    lines = caplog.messages
    assert [line for line in lines if line.startswith(f"values: read by zarr, because of its {reason}")]
    assert [line for line in lines if line.startswith("indices_0: read without zarr")]
    read_by_zarr = [line for line in lines if re.match("values: items .* by zarr", line)]
    assert read_by_zarr == [f"values: items {k}00 to {k}99 by zarr" for k in (2, 3, 1)]
    assert read(tmp_path / "a.zarr").equals(tensor)


@pytest.mark.parametrize("place", ["start", "end"])
def test_the_index_of_a_shard_may_be_at_its_start(tmp_path, caplog, place):
    tensor = pack([np.arange(1000)], np.arange(1000.0), 2000, "CVEC")
    write(tmp_path / "a.zarr", tensor, checksum=False)
    for name in ("values", "indices_0"):
        again(tmp_path / "a.zarr", name, shards={"shape": (300,), "index_location": place}, compressors=[ZstdCodec()])
    with caplog.at_level(logging.DEBUG, "binsparse_levels"):
        assert read(tmp_path / "a.zarr").equals(tensor)
    assert len([line for line in caplog.messages if "read without zarr, in chunks of 100 items (zstd)" in line]) == 2
    with binsparse_levels.open(tmp_path / "a.zarr") as opened:
        assert opened[777] == 777
        assert opened[200:420].to_dense().tolist() == list(range(200, 420))


@given(
    length=st.integers(1, 60),
    chunk=st.integers(1, 20),
    cache_bytes=st.sampled_from([0, 100, 10_000]),
    dtype=st.sampled_from(["float64", "uint8", "str"]),
    data=st.data(),
)
def test_any_read_of_a_cached_array_is_that_of_numpy(length, chunk, cache_bytes, dtype, data):
    items = np.random.default_rng(length).integers(0, 99, length).astype(dtype)
    store = MemoryStore()
    group = zarr.create_group(store)
    group.create_array("x", shape=length, chunks=chunk, dtype=dtype, filters=[TransposeCodec(order=(0,))])[...] = items
    with zarr_reading.reading(store, None, Limits(cache_bytes=cache_bytes)) as reader:
        array = reader.array("x")
        for _ in range(4):
            if data.draw(st.booleans()):
                start, stop = sorted(data.draw(st.tuples(st.integers(0, length), st.integers(0, length))))
                assert array[start:stop].tolist() == items[start:stop].tolist()
            else:
                at = np.array(data.draw(st.lists(st.integers(0, length - 1))), np.int64)
                assert array[at].tolist() == items[at].tolist()


def statuses(path, group):
    """What tells a file or folder outside of a group from another one, and from one with another link to it."""
    found = {}
    for place, folders, names in os.walk(path):
        folders[:] = [x for x in folders if os.path.join(place, x) != os.path.join(path, group)]
        for name in names:
            status = os.lstat(os.path.join(place, name))
            found[os.path.join(place, name)] = status.st_ino, status.st_ctime_ns
        found[place] = os.lstat(place).st_ino
    return found


@pytest.mark.parametrize("kind", ["zarr", "zarr2"])
@pytest.mark.parametrize("group", ["g", "deep/er/g", "a/g"])
def test_a_write_into_a_group_touches_no_other_file(tmp_path, kind, group):
    path = f"{tmp_path}/a.zarr"
    for other in ("", ":a", ":b/c"):
        write(f"{path}{other}", pack([np.arange(100)], np.arange(100.0), 200, "CVEC"), chunks=7, kind=kind)
    before = statuses(path, group)
    write(f"{path}:{group}", vector(1))
    after = statuses(path, group)
    assert before.items() <= after.items()
    opened = binsparse_levels.open(f"{path}:b/c")
    for how in ({"overwrite": True}, {"overwrite": True, "orders": []}):
        write(f"{path}:{group}", vector(2), **how)
        assert statuses(path, group) == after
    append(f"{path}:{group}", vector(3))
    assert statuses(path, group) == after
    assert opened.load().shape == (200,)
    assert read(f"{path}:{group}").values.tolist() == [2, 2, 3, 2]


def test_an_opened_group_that_was_replaced_is_not_read(tmp_path):
    """Nor are the arrays of its orders, though the store is the same."""
    path = f"{tmp_path}/a.zarr"
    matrix = pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR")
    write(f"{path}:other", matrix)
    write(f"{path}:g", matrix, orders=["CSC"])
    opened = binsparse_levels.open(f"{path}:g")
    write(f"{path}:g/inner", matrix)
    assert opened[1:].load().equals(matrix[1:].load())
    write(f"{path}:g", 2 * matrix, orders=["CSC"], overwrite=True)
    for view in (opened[1:], opened[:, 1:]):
        with pytest.raises(ContainerError, match="was replaced"):
            view.load()
    assert binsparse_levels.open(f"{path}:g")[:, 1:].load().equals((2 * matrix)[:, 1:].load())
    assert list_tensors(path) == ["g", "g/inner", "g/order_1_0", "other"]


class Failing(MemoryStore):
    """A store in memory whose n-th change fails."""

    left = None

    def _step(self):
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise OSError(28, "No space left on device")

    async def set(self, key, value, *args):
        self._step()
        await super().set(key, value, *args)

    async def delete(self, key):
        self._step()
        await super().delete(key)

    async def delete_dir(self, prefix):
        self._step()
        await super().delete_dir(prefix)


@pytest.mark.parametrize("kind", ["zarr", "zarr2"])
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("group", ["", "p/q"])
def test_whichever_change_of_a_store_fails_the_store_is_as_it_was(kind, old, group):
    store = Failing()
    place = StorePath(store, group)
    write(StorePath(store, "other"), vector(7), kind=kind)
    if old:
        write(place, vector(1), kind=kind)
        zarr.open_group(place, mode="r+").attrs["title"] = "mine"
    before = {key: value.to_bytes() for key, value in store._store_dict.items()}
    for n in range(1, 100):
        store.left = n
        try:
            write(place, vector(2).with_labels({0: ["a", "b", "c", "d"]}), overwrite=old, kind=kind)
        except ContainerError:
            assert {key: value.to_bytes() for key, value in store._store_dict.items()} == before
        else:
            break
    assert n > 5
    assert read(place).values[0] == 2
    assert read(StorePath(store, "other")).equals(vector(7))


def test_of_two_programs_that_change_the_metadata_of_a_group_none_undoes_the_other(monkeypatch):
    """An object store refuses to replace what is no longer what was read."""
    bucket = obstore.store.MemoryStore()
    store, real, begun = ObjectStore(bucket), obstore.put, []
    group = zarr.create_group(store)

    def put(target, key, data, **options):
        if key == "zarr.json" and not begun:
            begun.append(key)
            group.attrs["title"] = "mine"
        return real(target, key, data, **options)

    monkeypatch.setattr(obstore, "put", put)
    write(store, vector(1))
    assert begun
    assert read(store).equals(vector(1))
    assert zarr.open_group(store, mode="r").attrs["title"] == "mine"


def test_a_tensor_of_a_build_is_overwritten_in_place():
    """Its arrays are below a prefix, of which the new header must say nothing."""
    store, prefix = MemoryStore(), "0123456789abcdef"
    write(StorePath(store, prefix), vector(1))
    attributes = zarr.open_group(store, path=prefix, mode="r").attrs.asdict()
    zarr.open_group(store, mode="a").attrs.update({**attributes, "binsparse_levels:at": prefix})
    assert read(store).equals(vector(1))
    write(store, vector(2), overwrite=True)
    assert read(store).equals(vector(2))
    assert list_tensors(store) == ["/"]
