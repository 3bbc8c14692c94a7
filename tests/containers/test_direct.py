"""Reading and writing containers past their libraries: the same arrays, the same refusals."""

import importlib
import itertools
import json
import os
import shutil
import tracemalloc
import zlib
from importlib.util import find_spec
from unittest import mock

import google_crc32c
import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import blosc
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.storage import LocalStore

from binsparse_levels import (
    ContainerError,
    IncompleteError,
    LimitError,
    Limits,
    UnsafeError,
    pack,
    read,
    testing,
    write,
)
from binsparse_levels import parallel as threads_module
from binsparse_levels.arrays import one_piece
from binsparse_levels.containers import direct, hdf5, hdf5_chunks, zarr_reading
from binsparse_levels.containers import zarr as zarr_container
from binsparse_levels.containers.base import Storage
from binsparse_levels.io import describe
from binsparse_levels.tensors.tensor import inside

LIMITS = Limits()
TYPES = ("bool", "int8", "uint8", "int16", "uint32", "int64", "uint64", "float32", "float64")
counter = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("direct")


@pytest.fixture(autouse=True, params=[1, 2])
def threads(request):
    before = threads_module.get_threads()
    threads_module.set_threads(request.param)
    yield
    threads_module.set_threads(before)


def numbers(length, dtype):
    return np.random.default_rng(length).integers(0, 100, length).astype(dtype)


def stored(place, module, array, **options):
    with module.writing(str(place), None, "file", LIMITS, Storage(**options)) as writer:
        writer.write("values", one_piece(array))
        writer.write_header({})


def loaded(place, module, limits=LIMITS):
    with module.reading(str(place), None, limits) as reader:
        return reader.array("values")[:]


def forbid(monkeypatch, *methods):
    def refuse(*args, **kwargs):
        raise AssertionError("the library was asked")

    for kind, name in methods:
        monkeypatch.setattr(kind, name, refuse)


def same(found, array):
    assert found.dtype.newbyteorder("<") == array.dtype.newbyteorder("<")
    assert found.shape == array.shape
    assert found.astype(array.dtype).tobytes() == array.tobytes()


lengths = st.sampled_from([0, 1, 2, 6, 7, 8, 13, 14, 15, 20, 21, 22, 27, 28, 29, 35, 100])


# Zarr


def unread(metadata, path):
    raise NotImplementedError("nothing is read without zarr")


@given(
    lengths,
    st.sampled_from(TYPES),
    st.sampled_from(["none", "blosc", "zstd", "gzip"]),
    st.sampled_from([None, 7, 14, 21, 2**20]),
    st.booleans(),
)
def test_zarr_as_zarr_reads_and_writes_it(folder, length, dtype, compression, shards, checksum):
    array = numbers(length, dtype)
    place = folder / f"{next(counter)}.zarr"
    stored(place, zarr_container, array, compression=compression, chunks=7, shards=shards, checksum=checksum)
    group = zarr.open_group(place, mode="r")
    same(np.asarray(group["values"][...]), array)
    same(loaded(place, zarr_container), array)
    # The same store as zarr writes it: the same files, the same bytes but for the time in a gzip member.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zarr_reading, "chunks_in", unread)
        storage = Storage(compression, 7, shards, checksum)
        with zarr_container.writing(str(folder / "theirs.zarr"), None, "file", LIMITS, storage) as writer:
            writer.create("values", length, array.dtype, array)
            writer.group["values"][...] = array
            writer.write_header({})
        same(loaded(place, zarr_container), array)
    same(loaded(folder / "theirs.zarr", zarr_container), array)
    ours, theirs = ({p.relative_to(top): p.read_bytes() for p in top.rglob("*") if p.is_file()} for top in
                    (place, folder / "theirs.zarr"))  # fmt: skip
    assert set(ours) == set(theirs)
    if compression != "gzip":
        assert ours == theirs
    shutil.rmtree(place)


@pytest.mark.parametrize("compression", ["none", "blosc", "zstd", "gzip"])
@pytest.mark.parametrize("shards", [None, 40, 1000])
def test_zarr_is_not_asked(tmp_path, monkeypatch, compression, shards):
    array = numbers(999, "float64")
    forbid(monkeypatch, (zarr.Array, "__getitem__"), (zarr.Array, "__setitem__"))
    stored(tmp_path / "a.zarr", zarr_container, array, compression=compression, chunks=20, shards=shards)
    same(loaded(tmp_path / "a.zarr", zarr_container), array)
    with zarr_container.reading(LocalStore(tmp_path / "a.zarr"), None, LIMITS) as reader:
        same(reader.array("values")[:], array)


FOREIGN = {
    "plain": {},
    "without compression": {"compressors": None},
    "a large chunk": {"chunks": (1000,), "compressors": None},
    "zstd with a checksum of its own": {"compressors": ZstdCodec(level=3, checksum=True)},
    "two checksums": {"compressors": [Crc32cCodec(), Crc32cCodec()]},
    "blosc": {"compressors": BloscCodec()},
    "gzip": {"compressors": [GzipCodec(level=1)]},
    "big-endian": {"serializer": BytesCodec(endian="big")},
    "keys with dots": {"chunk_key_encoding": {"name": "default", "separator": "."}},
    "keys of version 2": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
    "chunks that are left out": {"fill_value": 5, "chunks": (10,)},
    "shards with blosc": {"chunks": (10,), "shards": (50,), "compressors": BloscCodec()},
    "chunks of shards that are left out": {"chunks": (10,), "shards": (50,), "fill_value": 5},
    "version 2": {"zarr_format": 2},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        (case, dtype)
        for case in FOREIGN
        for dtype in ("uint8", "int32", "float64")
        if (case, dtype) != ("big-endian", "uint8")  # a byte has no order
    ],
)
def test_zarr_arrays_of_others(tmp_path, case, dtype):
    options = dict(FOREIGN[case])
    array = numbers(123, dtype)
    array[20:60] = 5
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=options.pop("zarr_format", 3))
    created = group.create_array("values", shape=array.shape, dtype=dtype, **{"chunks": (20,)} | options)
    created[...] = array
    same(loaded(tmp_path / "a.zarr", zarr_container), array)


def chunk_files(place):
    return sorted(p for p in (place / "values" / "c").iterdir())


# Ways to read: the direct ones, and zarr's own.
PATHS = ("shards", "one file a chunk", "zarr")
MARK = "binsparse_levels:all_chunks_stored"
CODECS = {"none": [], "blosc": [BloscCodec()], "zstd": [ZstdCodec(level=1)], "gzip": [GzipCodec()]}


def vector_store(place, path, compression="zstd", checksum=True):
    """A tensor whose 30 values lie in chunks of 4, in files 0, 1 …"""
    tensor = pack([np.arange(30)], np.arange(30.0), 100, "CVEC")
    write(place, tensor)
    codecs = CODECS[compression]
    options = {"shards": {"shards": (8,)}, "zarr": {"serializer": BytesCodec(endian="big")}}.get(path, {})
    group = zarr.open_group(place, mode="r+")
    del group["values"]
    created = group.create_array(
        "values",
        shape=(30,),
        dtype="f8",
        chunks=(4,),
        compressors=[*codecs, *[Crc32cCodec()] * checksum] or None,
        config={"write_empty_chunks": True},
        attributes={MARK: True},
        **options,
    )
    created[...] = tensor.values
    return tensor


@pytest.mark.sampled(7)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("what", ["values/c/1", "values/c", "values/zarr.json", "values", "zarr.json"])
@pytest.mark.parametrize("given", [str, LocalStore])
def test_links_in_a_zarr_folder_are_not_followed(tmp_path, path, what, given):
    place = tmp_path / "a.zarr"
    tensor = vector_store(place, path)
    assert read(given(place)).equals(tensor)
    os.symlink(place, tmp_path / "linked.zarr")  # whoever asks for a link means it
    assert read(tmp_path / "linked.zarr").equals(tensor)
    shutil.move(place / what, tmp_path / "outside")
    os.symlink(tmp_path / "outside", place / what)
    with pytest.raises(UnsafeError, match="symbolic link"):
        read(given(place))


def test_links_to_groups_are_not_followed(tmp_path):
    place = tmp_path / "a.zarr"
    write(f"{place}:g/h", pack([[0]], [1.0], 3, "CVEC"))
    shutil.move(place / "g", tmp_path / "outside")
    os.symlink(tmp_path / "outside", place / "g")
    with pytest.raises(UnsafeError):
        read(f"{place}:g/h")
    before = sorted(tmp_path.rglob("*"))
    for group in ("g/h", "g/i", "g"):
        with pytest.raises(UnsafeError):
            write(f"{place}:{group}", pack([[0]], [2.0], 3, "CVEC"), overwrite=True)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_not_opened(tmp_path, path, kind):
    vector_store(tmp_path / "a.zarr", path)
    file = chunk_files(tmp_path / "a.zarr")[1]
    file.unlink()
    os.mkfifo(file) if kind == "pipe" else file.mkdir()
    with pytest.raises((ContainerError, IncompleteError)):
        read(tmp_path / "a.zarr")


@pytest.mark.parametrize("path", ["shards", "one file a chunk"])
def test_missing_chunks(tmp_path, path):
    vector_store(tmp_path / "a.zarr", path)
    values = zarr.open_group(tmp_path / "a.zarr", mode="r+")["values"]
    chunk_files(tmp_path / "a.zarr")[1].unlink()
    for other in ("02", "٢", "²", "-1", "99", "2.partial", "x"):  # none of these is a chunk
        shutil.copy(chunk_files(tmp_path / "a.zarr")[0], tmp_path / "a.zarr" / "values" / "c" / other)
    with pytest.raises(IncompleteError):
        read(tmp_path / "a.zarr")
    values.update_attributes({MARK: False})
    expected = np.asarray(values[...])
    assert 0 in expected[4:12]
    assert np.array_equal(read(tmp_path / "a.zarr").values, expected)


def test_a_chunk_that_is_missing_in_its_shard(tmp_path):
    vector_store(tmp_path / "a.zarr", "shards", compression="none", checksum=False)
    file = chunk_files(tmp_path / "a.zarr")[1]
    index = np.frombuffer(file.read_bytes()[-36:-4], "<u8").reshape(-1, 2).copy()
    index[1] = 2**64 - 1
    file.write_bytes(file.read_bytes()[:-36] + with_checksum(index.tobytes()))
    with pytest.raises(IncompleteError):
        read(tmp_path / "a.zarr")


def with_checksum(raw):
    return raw + google_crc32c.value(raw).to_bytes(4, "little")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("index", [(0, 2**63), (2**63, 32), (2**64 - 1, 32), (0, 0), (0, 31), (0, 33)], ids=str)
@pytest.mark.parametrize("compression", ["none", "blosc", "zstd", "gzip"])
def test_the_index_of_a_shard_lies(tmp_path, index, compression):
    vector_store(tmp_path / "a.zarr", "shards", compression=compression, checksum=False)
    file = chunk_files(tmp_path / "a.zarr")[1]
    places = np.frombuffer(file.read_bytes()[-36:-4], "<u8").reshape(-1, 2).copy()
    places[1] = index
    file.write_bytes(file.read_bytes()[:-36] + with_checksum(places.tobytes()))
    with pytest.raises(ContainerError):
        read(tmp_path / "a.zarr")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("path", ["shards", "one file a chunk"])
@pytest.mark.parametrize("compression", ["none", "blosc", "zstd", "gzip"])
@pytest.mark.parametrize("checksum", [True, False])
def test_damaged_chunks_are_an_error(tmp_path, path, compression, checksum):
    """Cut anywhere, or with a byte changed: an error, or, without a checksum, other numbers where nothing can tell."""
    tensor = vector_store(tmp_path / "a.zarr", path, compression=compression, checksum=checksum)
    file = chunk_files(tmp_path / "a.zarr")[1]
    whole = file.read_bytes()
    for cut in range(0, len(whole), 5):
        file.write_bytes(whole[:cut])
        with pytest.raises(ContainerError):
            read(tmp_path / "a.zarr")
    for at in range(0, len(whole), 3):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        try:
            again = read(tmp_path / "a.zarr")
        except ContainerError:
            continue
        assert not checksum
        assert compression != "gzip" or again.equals(tensor)  # a bit that gzip does not use


def zstd_frame(*blocks, size=None):
    """A frame of blocks (type, length, content): type 0 as they are, 1 repeated."""
    head = b"\x28\xb5\x2f\xfd" + (b"\x00\x58" if size is None else b"\xc0\x58" + size.to_bytes(8, "little"))
    for k, (kind, length, content) in enumerate(blocks):
        head += (length << 3 | kind << 1 | (k == len(blocks) - 1)).to_bytes(3, "little") + content
    return head


def test_zstd_frames_of_others(tmp_path):
    array = np.arange(12.0)
    raw = array.tobytes()
    stored(tmp_path / "a.zarr", zarr_container, array, chunks=12, compression="zstd", chunk_checksum=False)
    file = chunk_files(tmp_path / "a.zarr")[0]
    one, half = zstd_frame((0, 96, raw)), zstd_frame((0, 48, raw[:48]), size=48)
    skipped = b"\x50\x2a\x4d\x18\x02\x00\x00\x00ab"
    for frame in (one, zstd_frame((0, 96, raw), size=96), half + zstd_frame((0, 48, raw[48:])), skipped + one):
        file.write_bytes(frame)
        same(loaded(tmp_path / "a.zarr", zarr_container), array)
    for frame in (
        half,
        zstd_frame((0, 48, raw[:48])),
        half * 3,
        one + one,
        one + b"ab",
        b"",
        b"\x28",
        one[:7],
        skipped,
    ):
        file.write_bytes(frame)
        with pytest.raises(ContainerError):
            loaded(tmp_path / "a.zarr", zarr_container)


def test_blosc_buffers_of_others(tmp_path):
    """Any compressor of Blosc, and any head: what it says is not believed where the buffers are of other sizes."""
    array = np.arange(100.0)
    for version in (2, 3):
        place = tmp_path / f"{version}.zarr"
        storage = Storage("blosc", 100, chunk_checksum=False)
        with zarr_container.writing(str(place), None, "file", LIMITS, storage, zarr_format=version) as writer:
            writer.write("values", one_piece(array))
            writer.write_header({})
        file = place / "values" / ("c/0" if version == 3 else "0")
        for name, shuffle, level in itertools.product([b"lz4", b"zstd", b"zlib", b"blosclz"], range(3), [0, 5]):
            file.write_bytes(blosc.compress(array, name, level, shuffle))
            same(loaded(place, zarr_container), array)
    whole = file.read_bytes()
    longer = blosc.compress(np.arange(101.0), b"lz4", 5)
    for wrong in (b"", whole[:15], whole[:16], whole[:-1], whole + b"a", longer, blosc.compress(array[:-1], b"lz4", 5)):
        file.write_bytes(wrong)
        with pytest.raises(ContainerError):
            loaded(place, zarr_container)


def test_gzip_members_of_others(tmp_path):
    array = np.arange(12.0)
    raw = array.tobytes()
    stored(tmp_path / "a.zarr", zarr_container, array, chunks=12, compression="gzip", chunk_checksum=False)
    file = chunk_files(tmp_path / "a.zarr")[0]

    def member(data):
        return zlib.compress(data, wbits=31)

    for data in (member(raw[:5]) + member(raw[5:]), member(raw) + b"\0\0", member(b"") + member(raw)):
        file.write_bytes(data)
        same(loaded(tmp_path / "a.zarr", zarr_container), array)
    for data in (member(raw[:5]), member(raw) + member(b"a"), member(raw) + b"x", member(raw)[:-1], zlib.compress(raw)):
        file.write_bytes(data)
        with pytest.raises(ContainerError):
            loaded(tmp_path / "a.zarr", zarr_container)


BLOCK = (1, 2**17, b"\0")


@pytest.mark.parametrize(
    ("compression", "bomb"),
    [
        ("zstd", zstd_frame(*[BLOCK] * 2000)),
        ("zstd", zstd_frame(*[BLOCK] * 2000, size=96)),
        ("zstd", zstd_frame(*[BLOCK] * 2000, size=2**17 * 2000)),
        ("zstd", zstd_frame((0, 96, bytes(96)), size=96) + zstd_frame(*[BLOCK] * 2000)),
        ("gzip", zlib.compress(bytes(2**25), wbits=31)),
        ("gzip", zlib.compress(bytes(50), wbits=31) + zlib.compress(bytes(2**25), wbits=31)),
        ("gzip", bytes(2**25)),
    ],
    ids=range(7),
)
def test_a_chunk_is_not_expanded_beyond_its_size(tmp_path, compression, bomb):
    stored(
        tmp_path / "a.zarr", zarr_container, np.arange(12.0), chunks=12, compression=compression, chunk_checksum=False
    )
    chunk_files(tmp_path / "a.zarr")[0].write_bytes(bomb)
    tracemalloc.start()
    try:
        with pytest.raises(ContainerError):
            loaded(tmp_path / "a.zarr", zarr_container)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("per_file", [10**9, 10**15])
@pytest.mark.parametrize("sharded", [True, False])
def test_huge_chunks_are_not_made(tmp_path, per_file, sharded):
    options = {"compression": "none", "checksum": False, "chunks": 6, "shards": 12 if sharded else None}
    stored(tmp_path / "a.zarr", zarr_container, np.arange(12.0), **options)
    file = tmp_path / "a.zarr" / "values" / "zarr.json"
    metadata = json.loads(file.read_text())
    metadata["chunk_grid"]["configuration"]["chunk_shape"] = [per_file // 6 * 6]
    file.write_text(json.dumps(metadata))
    with pytest.raises((ContainerError, LimitError)):
        loaded(tmp_path / "a.zarr", zarr_container)


def test_chunks_pass_the_limit(tmp_path):
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("values", shape=(11,), dtype="f8", chunks=(12,))[...] = 1
    for size, what in ((87, "size in bytes is 88"), (95, "chunk is 96")):
        with pytest.raises(LimitError, match=what):
            loaded(tmp_path / "a.zarr", zarr_container, Limits(array_bytes=size))
    same(loaded(tmp_path / "a.zarr", zarr_container, Limits(array_bytes=96)), np.ones(11))


@pytest.mark.parametrize("name", ["a.zarr", "a.h5", "b.h5"])
def test_a_file_that_changes_while_it_is_read(tmp_path, name):
    module = hdf5 if name.endswith("h5") else zarr_container
    options = {"chunks": 1000, "compression": "gzip"} if name == "b.h5" else {}
    array = np.random.default_rng(0).random(100_000)
    stored(tmp_path / name, module, array, **options)
    with module.reading(str(tmp_path / name), None, LIMITS) as reader:
        values = reader.array("values")
        files = [tmp_path / name] if module is hdf5 else chunk_files(tmp_path / name)
        for file in files:
            os.truncate(file, file.stat().st_size // 2)
        with pytest.raises(ContainerError):
            values[:]


def test_the_file_ends_while_it_is_read(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(bytes(10))
    with open(tmp_path / "a", "rb") as file, pytest.raises(EOFError, match="ends before"):
        direct.read_into(file.fileno(), np.empty(11, np.uint8), 0)


def test_a_shard_may_be_longer_than_its_array(tmp_path):
    array = np.arange(50)
    shape = {"shape": (50,), "chunks": (2**12,), "shards": (2**24,), "dtype": array.dtype}
    root = zarr.create_group(tmp_path / "a.zarr", attributes={"binsparse": {}})
    root.create_array("values", **shape)[:] = array
    with zarr_container.reading(str(tmp_path / "a.zarr"), None, LIMITS) as reader:
        same(reader.array("values")[:], array)
        same(reader.array("values")[np.array([3, 49, 8])], array[[3, 49, 8]])
    with pytest.raises(LimitError, match="index of a shard"):
        loaded(tmp_path / "a.zarr", zarr_container, Limits(array_bytes=2**15))


# HDF5


@given(
    lengths,
    st.sampled_from(TYPES),
    st.sampled_from([None, "gzip"]),
    st.sampled_from([None, 1, 7, 14, 1000]),
    st.sampled_from([None, True, False]),
)
def test_hdf5_as_h5py_reads_it(folder, length, dtype, compression, chunks, checksum):
    array = numbers(length, dtype)
    stored(folder / "a.h5", hdf5, array, compression=compression, chunks=chunks, chunk_checksum=checksum)
    with h5py.File(folder / "a.h5") as file:
        same(file["values"][...], array)
        found = file["values"]
        assert found.chunks is None or found.fletcher32 == (checksum or (checksum is None and compression is None))
        assert found.compression == (compression if length else None)
    same(loaded(folder / "a.h5", hdf5), array)


@given(
    lengths.filter(bool),
    st.sampled_from([f"{order}{kind}" for order in "<>" for kind in ("i1", "u2", "i4", "u8", "f2", "f8")]),
    st.fixed_dictionaries(
        {},
        optional={
            "chunks": st.sampled_from([(1,), (7,)]),
            "compression": st.sampled_from(["gzip", "lzf"]),
            "shuffle": st.just(True),
            "fletcher32": st.just(True),
            "maxshape": st.just((None,)),
        },
    ),
    st.sampled_from([0, 512]),
)
def test_hdf5_datasets_of_others(folder, length, dtype, options, block):
    array = numbers(length, dtype)
    if "chunks" in options:
        options = options | {"chunks": (min(options["chunks"][0], length),)}
    with h5py.File(folder / "b.h5", "w", userblock_size=block) as file:
        file.create_dataset("values", data=array, **options)
    same(loaded(folder / "b.h5", hdf5), array)


def test_hdf5_datasets_that_are_stored_otherwise(tmp_path):
    array = np.arange(-4, 16, dtype=np.int32)
    with h5py.File(tmp_path / "a.h5", "w", libver=("earliest", "v114")) as file:
        space = h5py.h5s.create_simple((20,))
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        narrow = h5py.h5t.STD_I32LE.copy()
        narrow.set_precision(12)
        narrow.set_offset(3)
        relaxed = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_INT32, space, compact).write(space, space, array)
        try:
            h5py.h5d.create(file.id, b"narrow", narrow, space, relaxed).write(space, space, array)
        except ValueError:  # of newer HDF5 only where it is told to
            file["narrow"] = array
        file.create_dataset("late", (20,), "i4", fillvalue=7)
        holes = file.create_dataset("holes", (20,), "i4", chunks=(5,), compression="gzip", fillvalue=7)
        holes[5:10] = 1
        masked = file.create_dataset("masked", (20,), "i4", chunks=(10,), compression="gzip")
        masked[...] = array
        masked.id.write_direct_chunk((10,), array[10:].tobytes(), filter_mask=1)
        shrunk = file.create_dataset("shrunk", data=array, chunks=(5,), maxshape=(None,), compression="gzip")
        shrunk.resize((12,))
        twice = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        twice.set_chunk((10,))
        for _ in range(2):
            twice.set_deflate(4)
        h5py.h5d.create(file.id, b"twice", h5py.h5t.NATIVE_INT32, space, twice).write(space, space, array)
        file.create_dataset("booleans", data=array > 3)
        file.create_dataset("choices", data=array, dtype=h5py.enum_dtype({"a": 1}, basetype="i4"))
    with h5py.File(tmp_path / "a.h5") as file, hdf5.reading(str(tmp_path / "a.h5"), None, LIMITS) as reader:
        for name in file:
            same(reader.array(name)[:], file[name][...])


def test_damaged_hdf5_chunks_are_an_error(tmp_path):
    array = np.arange(60)
    stored(tmp_path / "a.h5", hdf5, array, compression="gzip", chunks=20)
    with h5py.File(tmp_path / "a.h5") as file:
        info = file["values"].id.get_chunk_info(1)
    whole = (tmp_path / "a.h5").read_bytes()
    for at in range(info.byte_offset, info.byte_offset + info.size):
        (tmp_path / "a.h5").write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        try:
            found = loaded(tmp_path / "a.h5", hdf5)
        except ContainerError:
            continue
        assert found.tobytes() == array.tobytes()  # a bit that zlib does not use


INFLATERS = [zlib, *filter(None, [find_spec("zlib_ng") and importlib.import_module("zlib_ng.zlib_ng")])]


@pytest.mark.parametrize("inflater", INFLATERS, ids=lambda module: module.__name__)
@given(data=st.data())
def test_any_part_of_a_deflated_dataset(folder, inflater, data):
    array = numbers(data.draw(lengths.filter(bool)), data.draw(st.sampled_from(TYPES)))
    chunks, shuffle = data.draw(st.integers(1, len(array) + 3)), data.draw(st.booleans())
    with h5py.File(folder / "c.h5", "w") as file:
        options = {"chunks": (chunks,), "maxshape": (None,), "compression": "gzip", "shuffle": shuffle}
        file.create_dataset("values", data=array, **options)
    with hdf5.reading(str(folder / "c.h5"), None, LIMITS) as reader, mock.patch.object(hdf5_chunks, "zlib", inflater):
        values = reader.array("values")
        assert isinstance(values, hdf5_chunks.DeflatedArray) == (array.dtype.kind in "iuf")
        for _ in range(3):
            start, stop = sorted(data.draw(st.integers(0, len(array))) for _ in range(2))
            same(values[start:stop], array[start:stop])
            at = np.array(data.draw(st.lists(st.integers(0, len(array) - 1), max_size=20)), np.int64)
            same(values[at], array[at])


@pytest.mark.parametrize("inflater", INFLATERS, ids=lambda module: module.__name__)
@pytest.mark.parametrize(
    "chunk",
    [zlib.compress(bytes(2**25)), zlib.compress(bytes(79)), zlib.compress(bytes(80))[:-1], bytes(2**18), b"a"],
    ids=["longer", "shorter", "cut", "large", "other"],
)
def test_what_does_not_expand_to_a_chunk_is_an_error(tmp_path, inflater, chunk):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        values = file.create_dataset("values", (20,), "i4", chunks=(20,), compression="gzip")
        try:
            values.id.write_direct_chunk((0,), chunk)
        except OSError:  # HDF5 2 does not write a chunk that is longer than its items may become
            assert len(chunk) > 2**16
            return
    with hdf5.reading(str(tmp_path / "a.h5"), None, LIMITS) as reader, mock.patch.object(hdf5_chunks, "zlib", inflater):
        values = reader.array("values")
        tracemalloc.start()
        with pytest.raises(ContainerError, match="values: cannot be read or written"):
            values[:]
        assert tracemalloc.get_traced_memory()[1] < 2**22
        tracemalloc.stop()


# Narrow


@given(testing.tensors(max_rank=4, max_size=3))
def test_narrow_arrays_are_read(folder, tensor):
    for place in (folder / "n.h5", folder / "n.zarr", {}):
        write(place, tensor, overwrite=True, narrow=True)
        again = read(place)
        assert again.equals(tensor)
        assert again.values.dtype == tensor.values.dtype
        places = inside(tensor).source.places
        words = {spec.name for place in places for spec in place.arrays.values() if spec.holds == "word"}
        for name, array in again.arrays.items():
            narrow = (bool, "bint8") if "bitmap" in name else (np.uint8, "uint8")
            expected = (np.uint64, "uint64") if name in words else narrow
            assert (array.dtype, str(describe(place).descriptor.data_types[name])) == expected
        assert again.convert(f"sparse({tensor.ndim})" if tensor.ndim else tensor.format).equals(tensor)


@pytest.mark.parametrize(("top", "dtype"), [(255, "u1"), (256, "u2"), (65535, "u2"), (65536, "u4"), (2**40, "u8")])
def test_narrow_arrays_hold_their_largest_number(tmp_path, top, dtype):
    tensor = pack([[0, top]], [1.0, 2.0], 2**50, "CVEC")
    write(tmp_path / "a.h5", tensor, narrow=True)
    assert read(tmp_path / "a.h5").arrays["indices_0"].dtype == dtype
    assert read(tmp_path / "a.h5").equals(tensor)


def test_text_has_nothing_narrow(tmp_path):
    with pytest.raises(TypeError, match="narrow"):
        write(tmp_path / "a.mtx", pack([[0], [0]], [1.0], (3, 3), "COO"), narrow=True)
