"""Chunks in any store: decoded once, bounded in number and size, the same numbers whatever lies where."""

import gc
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import binsparse_levels as bl
from binsparse_levels import LimitError, Limits, pack
from binsparse_levels.containers.objects import codecs
from binsparse_levels.containers.objects.bucket import map_concurrently
from binsparse_levels.containers.objects.folder import Folder
from binsparse_levels.containers.objects.reading import CACHE
from binsparse_levels.containers.objects.stores import Part


def store_at(kind, folder):
    return str(folder / "a.zarr") if kind == "folder" else MemoryStore()


@pytest.fixture
def decoded(monkeypatch):
    """The sizes of the chunks that were decoded."""
    sizes = []
    for name in ("blosc", "zstd", "gzip"):
        codec = codecs.CODECS[name]

        def expand(raw, out, real=codec.expand):
            sizes.append(out.size)
            real(raw, out)

        monkeypatch.setitem(codecs.CODECS, name, codec._replace(expand=expand))
    return sizes


@pytest.mark.parametrize("kind", ["folder", "memory"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_chunk_is_decoded_once(tmp_path, decoded, kind, packed):
    """Slices of an inner dimension go through all chunks of the level for each fiber above."""
    rng = np.random.default_rng(0)
    coords = [rng.integers(0, size, 5000) for size in (40, 30, 50)]
    tensor = pack(coords, rng.random(5000), (40, 30, 50), "CSF", duplicates="sum")
    place = store_at(kind, tmp_path)
    bl.write(place, tensor, chunks=512, bitpacked=packed)
    opened = bl.open(place)
    for k in range(0, 50, 7):
        assert opened[:, :, k : k + 1].load().equals(tensor[:, :, k : k + 1].load())
    stored = sum(-(-len(x) // 512) for x in (*tensor.arrays.values(), tensor.values))
    assert 0 < len(decoded) <= stored + 3  # bit-packed arrays have a head


def test_the_cache_is_empty_when_the_tensors_are_gone(tmp_path):
    bl.write(tmp_path / "a.zarr", pack([np.arange(9)], np.ones(9), 9, "CVEC"))
    gc.collect()
    before = len(CACHE._items)
    opened = bl.open(tmp_path / "a.zarr")
    assert opened[4] == 1
    assert len(CACHE._items) > before
    del opened
    gc.collect()
    assert len(CACHE._items) == before


@pytest.mark.parametrize("kind", ["folder", "memory"])
@pytest.mark.parametrize("stored", [False, True])
def test_too_many_chunks_are_refused(tmp_path, kind, stored):
    """Half a million chunks of one item, most of them missing: 4 MB that would take a minute."""
    place, count = store_at(kind, tmp_path), 2**19
    bl.write(place, pack([[0]], [1.0], count, "CVEC"))
    group = zarr.open_group(place, mode="r+")
    attributes = group.attrs.asdict()
    header = attributes["binsparse"]["binsparse"]
    header["number_of_stored_values"] = count
    options = {"shards": (count,)} if stored else {}
    for name in ("values", "indices_0"):
        del group[name]
        dtype = header["data_types"][name]
        group.create_array(name, shape=(count,), chunks=(1,), dtype=dtype, compressors=None, **options)
    group.attrs.put({"binsparse": attributes["binsparse"]})
    for use in (lambda: bl.read(place), lambda: bl.open(place)[5], lambda: bl.open(place)[7:9].load()):
        with pytest.raises(LimitError, match="larger chunks"):
            use()


@given(
    shards=st.sampled_from([None, 30, 300]),
    compression=st.sampled_from(["none", "blosc", "zstd", "gzip"]),
    checksum=st.booleans(),
    cache=st.sampled_from([0, 500, 10**8]),
    data=st.data(),
)
def test_any_part_is_the_same_in_any_store(tmp_path_factory, shards, compression, checksum, cache, data):
    values = np.arange(333) * 7.5
    tensor = pack([np.arange(333) * 2], values, 700, "CVEC")
    for kind in ("folder", "memory"):
        place = store_at(kind, tmp_path_factory.mktemp("parts"))
        bl.write(place, tensor, chunks=15, shards=shards, compression=compression, checksum=checksum)
        opened = bl.open(place, limits=Limits(cache_bytes=cache))
        for _ in range(3):
            start = data.draw(st.integers(0, 700))
            stop = data.draw(st.integers(start, 700))
            assert opened[start:stop].load().equals(tensor[start:stop].load())
            assert opened[start:stop:3].load().equals(tensor[start:stop:3].load())
        assert bl.read(place).equals(tensor)


DAMAGED = """
import sys, binsparse_levels as bl
for call in (bl.read, bl.open, bl.list_tensors, lambda path: bl.append(path, bl.pack([[0]], [1.0], 9, "CVEC"))):
    try:
        call(sys.argv[1])
    except bl.BinsparseError:
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, 40, 120])
def test_a_damaged_zip_file_leaves_no_tracebacks_of_tasks(tmp_path, count):
    path = tmp_path / "a.zarr.zip"
    bl.write(path, pack([np.arange(9)], np.ones(9), 9, "CVEC"))
    whole = bytearray(path.read_bytes())
    rng = np.random.default_rng(count)
    for at in rng.integers(0, len(whole) * 2 // 3, count):
        whole[at] ^= 0xFF
    path.write_bytes(whole)
    done = subprocess.run([sys.executable, "-c", DAMAGED, str(path)], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "never retrieved" not in done.stderr


@given(st.lists(st.binary(max_size=40), max_size=30), st.booleans())
def test_whole_objects_and_parts_of_them_are_the_same_bytes(tmp_path_factory, objects, together):
    folder = Folder(str(tmp_path_factory.mktemp("store")))
    if together:
        folder.put_all([(f"a/{k}", lambda raw=raw: [raw[:3], raw[3:]]) for k, raw in enumerate(objects)])
    else:
        for k, raw in enumerate(objects):
            folder.put(f"a/{k}", [raw[:3], raw[3:]], flush=False)
    there, parts = {}, [Part(f"a/{k}", 0, len(raw), 40) for k, raw in enumerate([*objects, b"missing"])]
    folder.each(parts, lambda k, raw: there.update({k: raw}))
    assert there.pop(len(objects)) is None
    assert [there[k].tobytes() for k in range(len(objects))] == objects
    assert [folder.get(f"a/{k}") for k in range(len(objects))] == objects
    assert [x.tobytes() for x in folder.ranges([part[:3] for part in parts[:-1]])] == objects
    assert folder.names("a") == {str(k) for k in range(len(objects))}


def test_calls_go_side_by_side_and_wait_for_who_takes_their_results():
    begun = []
    results = map_concurrently(lambda k: begun.append(k) or k, range(100))
    assert list(itertools.islice(results, 3)) == [0, 1, 2]
    assert len(begun) <= 3 + 16
    assert list(results) == [*range(3, 100)]
    with pytest.raises(ZeroDivisionError):
        list(map_concurrently(lambda k: 1 // k, [2, 1, 0, 1]))
