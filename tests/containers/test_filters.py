"""The filters of arrays in files: chosen by content, kept when an array grows, undone by every reader."""

import itertools
import zlib
from contextlib import nullcontext

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels.containers import filters
from binsparse_levels.containers.objects import codecs
from binsparse_levels.thresholds import using_thresholds

ITEMS = 6000
RANDOM = np.random.default_rng(0)
REPEATED = RANDOM.choice(RANDOM.random(9), ITEMS)  # the same bytes again and again: no filter
CLOSE = (RANDOM.integers(0, 256, ITEMS) + (1023 << 52)).view(np.float64)  # all but a byte is alike: grouped bytes
VALUES = {"repeated": REPEATED, "close": CLOSE, "signs": np.where(RANDOM.random(ITEMS) < 0.5, 1, -1).astype(np.int8)}
counter = itertools.count()


def matrix(values, rows=60):
    """A CSR matrix with these values, in order of the entries."""
    places = np.sort(np.random.default_rng(1).choice(rows * 1000, len(values), replace=False))
    return bl.pack([places // 1000, places % 1000], values, (rows, 1000), "CSR")


def filters_in(path):
    """The filter of each array of a file, as the library of the container reports it."""
    if str(path).endswith(".h5"):
        with h5py.File(path) as file:
            return {name: x.shuffle for name, x in file.items()}
    found = {}
    for name, x in zarr.open_group(path, mode="r").arrays():
        codec = x.compressors[0]
        told = codec.to_dict()["configuration"] if hasattr(codec, "to_dict") else codec.get_config()
        found[name] = (str(told["cname"]), told["shuffle"])
    return found


def numbers(draw, length):
    """An array of few or many distinct items, of any type."""
    dtype = np.dtype(draw(st.sampled_from(["i1", "u2", "i4", "i8", "f4", "f8"])))
    random = np.random.default_rng(draw(st.integers(0, 9)))
    few = (
        random.integers(0, 256, (draw(st.sampled_from([1, 3, 300])), dtype.itemsize), np.uint8).view(dtype).reshape(-1)
    )
    items = random.choice(few, length)
    return np.cumsum(items, dtype=dtype) if dtype.kind != "f" and draw(st.booleans()) else items


@given(st.data(), st.integers(0, 300), st.sampled_from(["blosc", "small"]), st.sampled_from([2, 3]))
def test_no_filter_is_much_smaller(data, length, compression, version):
    """The chosen settings take at most 1.05 times the bytes of any others, over the three chunks."""
    array, chunk = numbers(data.draw, length), data.draw(st.sampled_from([1, 7, 64]))
    chunks, (_, settings) = filters.sample(array, chunk), codecs.COMPRESSIONS[compression]
    assert len(chunks) == min(-(-length // chunk) if length < chunk else length // chunk, 3)
    assert all(len(x) == min(chunk, length) for x in chunks)

    def size(how):
        return sum(len(codecs.CODECS["blosc"].encode(x, how)) for x in chunks)

    every = settings(array.dtype, version)
    assert len({str(x["shuffle"]) for x in every}) == 3
    (found,) = codecs.metadata_of(compression, None, array.dtype, version, chunks)
    assert size(found if version == 2 else found["configuration"]) <= 1.05 * min(map(size, every))


@given(st.data(), st.integers(1, 200))
def test_bytes_are_grouped_as_hdf5_does(data, length):
    array, name = numbers(data.draw, length), str(next(counter))
    with h5py.File(name, "w", driver="core", backing_store=False) as file:
        stored = file.create_dataset("a", data=array, chunks=(length,), shuffle=True)
        grouped = stored.id.read_direct_chunk((0,))[1]
    assert zlib.decompress(filters.deflated(array, True)) == grouped
    assert zlib.decompress(filters.deflated(array, False)) == array.tobytes()


@pytest.mark.parametrize(("kind", "wanted"), [("repeated", "noshuffle"), ("close", "shuffle"), ("signs", "bitshuffle")])
@pytest.mark.parametrize("compression", [None, "small"])
def test_content_decides_in_zarr(tmp_path, kind, wanted, compression):
    tensor = matrix(VALUES[kind])
    bl.write(tmp_path / "a.zarr", tensor, compression=compression)
    assert filters_in(tmp_path / "a.zarr")["values"] == ("lz4" if compression is None else "zstd", wanted)
    bl.write(tmp_path / "b.zarr", tensor, compression=compression, kind="zarr2")
    number = ["noshuffle", "shuffle", "bitshuffle"].index(wanted)
    assert filters_in(tmp_path / "b.zarr")["values"] == ("lz4" if compression is None else "zstd", number)
    assert bl.read(tmp_path / "a.zarr").equals(tensor)
    assert bl.read(tmp_path / "b.zarr").equals(tensor)


@pytest.mark.parametrize("compression", ["gzip", "small"])
def test_content_decides_in_hdf5(tmp_path, compression):
    for kind, shuffle in (("repeated", False), ("close", True)):
        bl.write(tmp_path / f"{kind}.h5", matrix(VALUES[kind]), compression=compression)
        assert filters_in(tmp_path / f"{kind}.h5")["values"] is shuffle
    bl.write(tmp_path / "plain.h5", matrix(REPEATED), chunks=100)
    with h5py.File(tmp_path / "plain.h5") as file:
        assert (file["values"].shuffle, file["values"].compression) == (False, None)


def test_the_first_piece_decides_for_a_stream(tmp_path):
    """It is made once, although its chunks are encoded several times."""
    with using_thresholds(piece_items=2048):
        bl.write(tmp_path / "plain.h5", matrix(np.concatenate([REPEATED, RANDOM.random(ITEMS)]), 120))
        sealed = {"checksum": True, "compression": "small", "chunks": 512, "shards": 1024}
        bl.concatenate([tmp_path / "plain.h5"] * 2, tmp_path / "a.zarr", **sealed)
    assert filters_in(tmp_path / "a.zarr")["values"] == ("zstd", "noshuffle")
    assert bl.read(tmp_path / "a.zarr").shape == (240, 1000)  # which compares the checksums


@pytest.mark.parametrize("kind", ["repeated", "close"])
def test_builds_choose_by_content(tmp_path, kind):
    tensor = matrix(VALUES[kind])
    coords, values = tensor.unpack()

    def chunk(k):
        return [x[k::2] for x in coords], values[k::2]

    bl.build(chunk, tmp_path / "a.zarr", tensor.shape, "CSR", count=2, dtype=values.dtype, compression="small")
    assert filters_in(tmp_path / "a.zarr")["values"][1] == ("noshuffle" if kind == "repeated" else "shuffle")
    assert bl.read(tmp_path / "a.zarr").equals(tensor)


@pytest.mark.parametrize("name", ["a.zarr", "a.h5"])
def test_an_array_that_grows_keeps_its_filter(tmp_path, name):
    path, more = tmp_path / name, matrix(REPEATED)
    bl.write(path, matrix(CLOSE), compression="small")
    before = filters_in(path)
    assert before["values"] in (True, ("zstd", "shuffle"))
    bl.append(path, more)
    assert filters_in(path) == before
    bl.append(path, more, compression="gzip" if name == "a.h5" else "blosc")
    assert filters_in(path)["values"] in (False, ("lz4", "shuffle")), "another compression chooses"
    assert bl.read(path).shape == (180, 1000)


def test_parts_and_orders_keep_the_compression(tmp_path):
    bl.write(tmp_path / "a.zarr", matrix(REPEATED), compression="small")
    bl.append(tmp_path / "a.zarr", matrix(CLOSE), part=True)
    part = bl.open(tmp_path / "a.zarr").parts[1].group
    assert filters_in(tmp_path / "a.zarr" / part)["values"] == ("zstd", "noshuffle")
    bl.write(tmp_path / "b.zarr", matrix(REPEATED), compression="small", orders=["CSC"])
    bl.append(tmp_path / "b.zarr", matrix(CLOSE))
    assert filters_in(tmp_path / "b.zarr" / "order_1_0")["values"][0] == "zstd"


@pytest.mark.parametrize("name", ["a.zarr", "a.h5"])
def test_an_array_that_was_empty_chooses_when_it_grows(tmp_path, name):
    path = tmp_path / name
    bl.write(path, bl.pack([[], []], np.zeros(0), (0, 1000), "CSR"), compression="small")
    bl.append(path, matrix(REPEATED))
    assert filters_in(path)["values"] in (False, ("zstd", "noshuffle"))


ALIKE = {
    "ones": (np.ones(9), True), "NaN": (np.full(9, np.nan), True), "signed zeros": (np.array([0.0, -0.0]), False),
    "another NaN": (np.array([0x7FF8 << 48, (0x7FF8 << 48) + 1]).view("f8"), False), "complex": (np.full(9, 2j), True),
    "other real parts": (np.array([1j, 2 + 1j]), False), "bytes": (np.full(9, 3, "i1"), True),
    "none": (np.ones(0), False), "a late one": (np.array([True] * 8 + [False]), False),
}  # fmt: skip


@pytest.mark.parametrize("case", ALIKE)
@pytest.mark.parametrize("name", ["a.zarr", "a.h5"])
def test_small_stores_equal_bits_as_one_value(tmp_path, case, name):
    values, iso = ALIKE[case]
    tensor = bl.pack([np.arange(len(values))], values, 20, "CVEC", fill_value=0)
    with using_thresholds(checked_items=4):
        bl.write(tmp_path / name, tensor, compression="small")
    found = bl.read(tmp_path / name)
    assert found.iso is iso
    assert found.values.tobytes() == values.tobytes()
    assert (found.dtype, found.fill_value) == (tensor.dtype, 0)
    bl.write(tmp_path / name, tensor, overwrite=True, compression={"values": "gzip"})
    assert not bl.read(tmp_path / name).iso


def test_small_is_refused_where_there_is_none(tmp_path):
    for name in ("a.npz", "a.bspnpy", "a.mtx"):
        with pytest.raises(bl.OptionError):
            bl.write(tmp_path / name, matrix(REPEATED), compression="small")


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", ["default.zarr", "small.zarr", "gzip.h5", "small.h5"])
def test_other_programs_read_the_files(tmp_path, kind, name):
    """h5py and zarr read the arrays, and the package binsparse the matrix."""
    tensor, path = matrix(VALUES[kind]), str(tmp_path / name)
    compression = name.partition(".")[0]
    bl.write(path, tensor, compression=None if compression == "default" else compression)
    with h5py.File(path) if name.endswith(".h5") else nullcontext(zarr.open_group(path, mode="r")) as file:
        for array, items in {**tensor.arrays, "values": tensor.values}.items():
            np.testing.assert_array_equal(file[array][:], items)
    binsparse = pytest.importorskip("binsparse")
    found = binsparse.load_binsparse(path)
    np.testing.assert_array_equal(found.values, tensor.values)
    np.testing.assert_array_equal(found.indices_1, tensor.arrays["indices_1"])


@pytest.mark.filterwarnings("ignore:The '.*' option is deprecated")
@pytest.mark.parametrize("compression", ["gzip", "small"])
def test_anndata_reads_the_files(tmp_path, compression):
    anndata = pytest.importorskip("anndata")
    tensor = matrix(REPEATED)
    bl.write(tmp_path / "a.h5ad", tensor, compression=compression)
    with h5py.File(tmp_path / "a.h5ad") as file:
        assert (file["X/data"].compression, file["X/data"].shuffle) == ("gzip", False)
    np.testing.assert_array_equal(anndata.read_h5ad(tmp_path / "a.h5ad").X.toarray(), tensor.to_dense())
