"""Bit-packed integers: the codecs, held to files by the real writer and to a decoder of obvious Python; the arrays and
the data types that are made of them.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.strategies import cases
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import ArrayError, parallel
from binsparse_levels.arrays import lazy
from binsparse_levels.formats import bitpacked
from binsparse_levels.io import describe
from binsparse_levels.kernels import bitpacking, readable
from binsparse_levels.kernels.codecs import CHUNK, DELTA, LESS_ONE, PLAIN, ZIGZAG
from binsparse_levels.thresholds import THRESHOLDS

GOLDEN = Path(__file__).parents[1] / "data" / "bpcells" / "codecs"
CASES = sorted(path.name for path in GOLDEN.iterdir())
NAMED = {"bp128": PLAIN, "m1": LESS_ONE, "d1": DELTA, "d1z": ZIGZAG}
MASK = 0xFFFFFFFF


def column(path):
    raw = path.read_bytes()
    return np.frombuffer(raw[8:], {b"UINT32v1": "<u4", b"UINT64v1": "<u8"}[raw[:8]])


def stream(encoded, codec, count, **changed):
    parts = {"words": encoded.words, "offsets": encoded.offsets, "starts": encoded.starts} | changed
    offsets = parts["offsets"]
    return bitpacked.Stream("x", codec, count, parts["words"], lambda a, b: offsets[a:b], parts["starts"])


def naive_fields(words, width):
    """The 128 fields of a chunk, bit by bit."""
    lanes = [sum(int(word) << (32 * row) for row, word in enumerate(words[lane::4])) for lane in range(4)]
    return [(lanes[i % 4] >> (i // 4 * width)) & ((1 << width) - 1) for i in range(CHUNK)]


def naive_decode(encoded, codec, count):
    found = []
    for c in range(-(-count // CHUNK)):
        words = encoded.words[encoded.offsets[c] : encoded.offsets[c + 1]]
        width = len(words) // 4
        fields = naive_fields(words, width)
        value = int(encoded.starts[c])
        for field in fields:
            if codec == PLAIN or width == 32:
                value = field
            elif codec == LESS_ONE:
                value = field + 1
            elif codec == DELTA:
                value += field
            else:
                value += -((field + 1) // 2) if field % 2 else field // 2
            found.append(value & MASK)
    return np.array(found[:count], np.uint32)


@st.composite
def numbers(draw):
    """Numbers whose chunks have all kinds of widths."""
    seed, count = draw(st.integers(0, 2**32)), draw(st.sampled_from([0, 1, 2, 127, 128, 129, 256, 700]))
    generator = np.random.default_rng(seed)
    bits = generator.integers(0, 33, -(-count // CHUNK)).repeat(CHUNK)[:count]
    found = generator.integers(0, 2**32, count, dtype=np.uint64) >> (32 - bits).astype(np.uint64)
    if draw(st.booleans()):
        found = np.cumsum(found >> np.uint64(draw(st.integers(0, 32))))
    return (found & np.uint64(MASK)).astype(np.uint32)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES)
def test_the_real_writer_agrees(case):
    codec = NAMED[case.rpartition("_")[2]]
    expected = np.load(GOLDEN / case / "expected.npy").astype(np.uint32)
    words, idx = column(GOLDEN / case / "x_data"), column(GOLDEN / case / "x_idx")
    encoded = bitpacked.encode(expected, codec)
    assert np.array_equal(encoded.words, words)
    assert np.array_equal(encoded.offsets, idx)
    if (GOLDEN / case / "x_starts").exists():
        assert np.array_equal(encoded.starts, column(GOLDEN / case / "x_starts"))
    assert np.array_equal(stream(encoded, codec, len(expected), words=words)[:], expected)


@given(numbers(), st.sampled_from(list(NAMED.values())), st.integers(0, 800), st.integers(0, 800))
def test_round_trip_and_slices(values, codec, a, b):
    encoded = bitpacked.encode(values, codec)
    assert np.array_equal(naive_decode(encoded, codec, len(values)), values)
    packed = stream(encoded, codec, len(values))
    assert np.array_equal(packed[:], values)
    assert np.array_equal(packed[a:b], values[a:b])
    assert np.array_equal(packed[-b:], values[-b:])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("codec", NAMED.values())
def test_nothing_beside_a_chunk_is_written(codec):
    generator = np.random.default_rng(0)
    for width in range(33):
        values = (generator.integers(0, 2**32, 3 * CHUNK, dtype=np.uint64) >> np.uint64(32 - width)).astype(np.uint32)
        words, out = np.full(5 * CHUNK, 7, np.uint32), np.full(5 * CHUNK, 7, np.uint32)
        widths, one = np.zeros(1, np.int64), values[CHUNK : 2 * CHUNK]
        end = CHUNK + bitpacking.pack((0,) * codec, readable(one), widths, words[CHUNK : 2 * CHUNK])
        assert end == CHUNK + 4 * widths[0]
        assert (words[:CHUNK] == 7).all()
        assert (words[end:] == 7).all()
        offsets = np.array([0, CHUNK, end])
        bitpacking.unpack((0,) * codec, *map(readable, (words[:end], offsets, values[::CHUNK])), 1, 2, out)
        assert (out[:CHUNK] == 7).all()
        assert (out[2 * CHUNK :] == 7).all()
        assert np.array_equal(out[CHUNK : 2 * CHUNK], values[CHUNK : 2 * CHUNK])


@pytest.mark.parametrize("codec", NAMED.values())
def test_threads_change_nothing(codec, monkeypatch):
    monkeypatch.setattr(THRESHOLDS, "thread_bytes", 100)
    values = np.random.default_rng(0).integers(0, 2**20, 2000).astype(np.uint32)
    found = []
    for count in (1, 2, 5):
        with parallel.using_threads(count):
            encoded = bitpacked.encode(values, codec)
            assert np.array_equal(stream(encoded, codec, len(values))[3:], values[3:])
        found.append([part.tobytes() for part in encoded])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"words": np.zeros(3, np.uint32)}, "the chunks 0 … 2 are at words 0"),
        ({"offsets": np.array([0, 12, 10, 20])}, "chunk 1: expected 0 … 32 times four words, got -2"),
        ({"offsets": np.array([0, 4, 6, 8])}, "chunk 1: expected 0 … 32 times four words, got 2"),
        ({"offsets": np.array([0, 132, 132, 132])}, "chunk 0: expected 0 … 32 times four words, got 132"),
        ({"offsets": np.array([4, 8, 12, 16])}, "are at words 4"),
        ({"offsets": np.array([-4, 0, 4, 8])}, "are at words -4"),
        ({"offsets": np.array([0, 4])}, "has 2 offsets of chunks, fewer than 4"),
        ({"starts": np.zeros(2, np.uint32)}, "first numbers of chunks end at 2, before 3"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_decoded(changed, message):
    encoded = bitpacked.encode(np.arange(300, dtype=np.uint32), ZIGZAG)
    with pytest.raises(ArrayError, match=message):
        stream(encoded, ZIGZAG, 300, **changed)[:]


# One array in the layout of the data types

WRAPPERS = list(bitpacked.CODECS)
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@given(st.data(), st.sampled_from(INTEGERS), st.sampled_from(WRAPPERS), st.sampled_from([0, 1, 127, 128, 129, 300]))
def test_arrays_of_every_integer_type(data, dtype, wrapper, count):
    limits = np.iinfo(dtype)
    low, high = data.draw(st.sampled_from([(limits.min, limits.max), (0, 100), (limits.max // 2, limits.max)]))
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    values = generator.integers(low, high, count, dtype=dtype, endpoint=True)
    stored = bitpacked.bitpack(values, wrapper)
    assert stored.dtype == np.uint32
    packed = bitpacked.BitPacked(stored, wrapper, np.dtype(dtype), "x")
    a, b = data.draw(st.integers(-400, 400)), data.draw(st.integers(-400, 400))
    for window in (slice(None), slice(a, b)):
        found = packed[window]
        assert found.dtype == values.dtype
        assert np.array_equal(found, values[window])
    assert packed.shape == (len(packed),) == (count,)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_slice_reads_only_its_chunks(wrapper):
    values = np.arange(100_000, dtype=np.int64) * 3
    stored = bitpacked.bitpack(values, wrapper)

    class Counting:
        shape, dtype, read = stored.shape, stored.dtype, 0

        def __len__(self):
            return len(stored)

        def __getitem__(self, window):
            Counting.read += len(stored[window])
            return stored[window]

    packed = bitpacked.BitPacked(Counting(), wrapper, np.dtype(np.int64), "x")
    assert np.array_equal(packed[70_000:70_100], values[70_000:70_100])
    assert Counting.read < 200
    Counting.read = 0
    scattered = np.arange(0, 50_000, 100)
    assert np.array_equal(packed[scattered], values[scattered])
    assert Counting.read < 2 * len(stored)  # what lies between positions that are near is read once
    parts = []
    for chunk in (2**10, 2**16):
        there = lazy(len(stored), stored.dtype, lambda a, b: stored[a:b], chunk=chunk)
        packed = bitpacked.BitPacked(there, wrapper, np.dtype(np.int64), "x")
        packed.part = lambda a, b, real=packed.part: parts.append((a, b)) or real(a, b)
        assert np.array_equal(packed[scattered], values[scattered])
    assert len(parts) == 4 + 1  # a chunk of the store that is read whole is decoded in few calls


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_damaged_arrays_are_refused_or_read_as_numbers(wrapper, dtype):
    generator = np.random.default_rng(1)
    values = np.sort(generator.integers(0, 100, 1000)).astype(dtype)
    stored = bitpacked.bitpack(values, wrapper)
    refused = 0
    for k in range(len(stored) + 300):
        damaged = stored.copy()
        if k < len(stored):
            damaged[k] = generator.integers(0, 2**32, dtype=np.uint32)
        else:
            damaged = damaged[: generator.integers(0, len(stored))]
        try:
            packed = bitpacked.BitPacked(damaged, wrapper, np.dtype(dtype), "x")
            assert packed[:].shape == packed.shape
            packed[500:600]
        except ArrayError:
            refused += 1
    assert refused >= 300


def test_each_fault_of_an_array_is_told():
    stored = bitpacked.bitpack(np.arange(300, dtype=np.int32), "bitpacked_delta")

    def told(array, dtype="int32"):
        with pytest.raises(ArrayError) as caught:
            bitpacked.BitPacked(array, "bitpacked_delta", np.dtype(dtype), "indices_1")[:]
        return str(caught.value)

    def changed(at, word):
        array = stored.copy()
        array[at] = word
        return array

    assert told(stored[:2]) == "indices_1: is not bit-packed: expected at least 3 words, got 2"
    assert told(changed(2, 2)) == "indices_1: is not bit-packed: int32 cannot have 2 planes"
    assert told(changed(2, 0), "int64") == "indices_1: is not bit-packed: int64 cannot have 0 planes"
    assert "4294967596 numbers take" in told(changed(1, 1))
    assert told(stored[:-1]) == "indices_1: is not bit-packed: 300 numbers take 22 words, got 21"
    assert told(changed(3, 1)) == "indices_1: the chunks 0 … 2 are at words 4 … 12 of 12"
    assert told(stored, "int8") == "indices_1[128]: 128 is out of the range of int8"


# Data types of stored arrays

PLACES = ["a.h5", "a.zarr", "a.npz", "a.bspnpy", "a.nc", "memory"]


def place_in(folder, name):
    return {} if name == "memory" else folder / name


def drawn(format="CSR", count=3000, dtype=np.float64):
    generator = np.random.default_rng(0)
    rank = bl.parse_format(format).rank
    coords = [generator.integers(0, 500, count) for _ in range(rank)]
    return bl.pack(coords, generator.integers(0, 100, count).astype(dtype), (500,) * rank, format, duplicates="sum")


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("format", ["CSR", "COOR", "sparse, sparse, sparse", "CVEC", "DVEC"])
def test_stored_packed_and_read_as_it_was(tmp_path, name, format):
    tensor = drawn(format, dtype=np.int16)
    place = place_in(tmp_path, name)
    bl.write(place, tensor, bitpacked=True)
    again = bl.read(place)
    again.check()
    assert again.equals(tensor)
    assert {name: x.dtype for name, x in again.arrays.items()} == {name: x.dtype for name, x in tensor.arrays.items()}
    for array, info in describe(place).arrays.items():
        if array in tensor.arrays:
            assert info.shape == tensor.arrays[array].shape
            assert info.dtype == tensor.arrays[array].dtype
            assert info.nbytes < tensor.arrays[array].nbytes
    types = describe(place).descriptor.data_types
    assert all(types[name].wrapper for name in tensor.arrays)
    assert types["values"].wrapper is None


@given(cases(max_rank=3, dtypes=["bool", "int8", "uint16", "int32", "uint64", "float32"]), st.booleans())
def test_every_format_and_type(case, narrow):
    tensor = bl.pack(case.coords, case.values, case.shape, case.format, fill_value=0)
    place = {}
    names = [*tensor.arrays, *(["values"] if tensor.dtype.kind in "iu" else [])]
    bl.write(place, tensor, bitpacked=names, narrow=narrow)
    again = bl.read(place)
    assert again.equals(tensor)
    assert again.dtype == tensor.dtype
    assert np.array_equal(again.values, tensor.values)


def test_pointers_beyond_32_bits():
    """They have two planes; the tensor of which they would be is too large for a test."""
    pointers = np.cumsum(np.full(1000, 2**26 + 1))
    stored = bitpacked.bitpack(pointers, "bitpacked_delta")
    assert stored[2] == 2
    assert np.array_equal(
        bitpacked.BitPacked(stored, "bitpacked_delta", pointers.dtype, "x")[100:900], pointers[100:900]
    )


def test_the_way_that_takes_the_least():
    tensor = drawn("COOR")
    place = {}
    bl.write(place, tensor, bitpacked=True)
    types = {name: str(found) for name, found in describe(place).descriptor.data_types.items()}
    assert types == {"indices_0": "bitpacked_delta[int32]", "indices_1": "bitpacked[int32]", "values": "float64"}


def test_what_cannot_be_packed():
    tensor = drawn()
    for wrong in (["values"], ["nothing"], "indices_1", ["fill_value"]):
        with pytest.raises(bl.OptionError, match="bitpacked"):
            bl.write({}, tensor, bitpacked=wrong)
    iso = bl.pack([[1], [2]], 3, (4, 4), "CSR")
    with pytest.raises(bl.OptionError, match="values"):
        bl.write({}, iso, bitpacked=["values"])
    place = {}
    bl.write(place, iso, bitpacked=True)
    assert bl.read(place).iso


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bitpacked[float32]", "unknown data type"),
        ("bitpacked[bint8]", "unknown data type"),
        ("iso[bitpacked[int32]]", "unknown data type"),
        ("bitpacked[iso[int32]]", "unknown data type"),
        ("bitpacked[int32", "unknown data type"),
        ("bitpacked_less[int32]", "unknown data type"),
        ("bitpacked[int32]", "declared bitpacked"),
    ],
)
def test_types_that_there_are_not(text, message):
    place = {}
    bl.write(place, drawn())
    place["binsparse"] = json.loads(json.dumps(place["binsparse"]))
    place["binsparse"]["binsparse"]["data_types"]["indices_1"] = text
    for lenient in (False, True):
        with pytest.raises(bl.BinsparseError, match=re.escape(message)):
            bl.read(place, lenient=lenient)


def test_a_fill_value_is_not_packed():
    place = {}
    bl.write(place, bl.pack([[1]], [1], 3, "sparse", fill_value=0), bitpacked=True)
    place["binsparse"]["binsparse"]["data_types"]["fill_value"] = "bitpacked[int64]"
    with pytest.raises(bl.DescriptorError, match="fill_value: expected the type of one value"):
        bl.read(place)


@pytest.mark.parametrize("sealed", [False, True])
def test_damage_in_a_file_is_told(sealed):
    place = {}
    bl.write(place, drawn(), bitpacked=True, checksum=sealed)
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        name = ["indices_1", "pointers_to_1"][generator.integers(2)]
        changed = place[name].copy()
        changed[generator.integers(min(300, len(changed)))] = generator.integers(0, 2**32)
        try:
            bl.read({**place, name: changed}).check()
        except bl.BinsparseError:
            refused += 1
    assert refused > 100
    with pytest.raises(bl.BinsparseError, match="indices_1"):
        bl.read({**place, "indices_1": place["indices_1"][:-1]})


def test_limits_hold_for_what_is_unpacked():
    place = {}
    bl.write(place, bl.pack([np.arange(100_000)], 1.0, 100_000, "sparse"), bitpacked=True)
    stored = place["indices_0"].nbytes
    assert stored < 20_000
    with pytest.raises(bl.LimitError, match="unpacked"):
        bl.read(place, limits=bl.Limits(array_bytes=2 * stored))
