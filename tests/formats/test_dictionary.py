"""Dictionaries of values: the table and the codes held to counting in plain Python, in files and in memory, and every
call held to the same tensor without one.
"""

import collections
import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import testing
from binsparse_levels.arrays import in_pieces, lazy, one_piece
from binsparse_levels.formats import dictionary
from binsparse_levels.formats.dictionary import Dictionary
from binsparse_levels.io import describe
from binsparse_levels.levels import LEVELS
from binsparse_levels.system import resident
from binsparse_levels.tensors.tensor import inside

TYPES = ["int16", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64", "complex128"]
PLACES = ["a.h5", "a.zarr", "a.npz", "a.bspnpy", "a.nc", "memory"]


def place_in(folder, name):
    return {} if name == "memory" else folder / name


@st.composite
def repeated(draw, types=TYPES, max_size=40):
    """Values with few bit patterns, NaN of several payloads and both zeros among them."""
    dtype = np.dtype(draw(st.sampled_from(types)))
    patterns = draw(st.lists(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize), max_size=3))
    few = np.frombuffer(b"".join(patterns), dtype)
    if dtype.kind in "fc":
        few = np.concatenate([few, np.array([np.nan, -np.nan, 0.0, -0.0, np.inf], dtype)])
    few = np.concatenate([few, np.arange(3).astype(dtype)])
    return few[np.array(draw(st.lists(st.integers(0, len(few) - 1), max_size=max_size)), int)]


def bits(values):
    """The bits of each value, as Python's integers; two of them for a complex number of 16 bytes."""
    words = values.view(f"u{min(values.dtype.itemsize, 8)}").tolist()
    step = max(values.dtype.itemsize // 8, 1)
    return [tuple(words[k : k + step]) for k in range(0, len(words), step)]


def table_of(tensor):
    """The dictionary of a tensor in memory or in a file; None if it has none."""
    return inside(tensor).source.dictionary


@st.composite
def coded(draw, types=TYPES):
    """A tensor, and the same tensor with a dictionary."""
    format = draw(testing.formats(min_rank=1, max_rank=3, kinds=tuple(LEVELS.values())))
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=format.rank, max_size=format.rank)))
    values = draw(repeated(types))
    cells = list(np.ndindex(*shape))
    places = draw(st.permutations(cells))[: len(values)]
    chosen = np.array(places, np.int64).reshape(len(places), len(shape))
    try:
        tensor = bl.pack(chosen.T, values[: len(chosen)], shape, format, fill_value=0)
        made = tensor.convert(format, dictionary=True)
    except (bl.FormatError, bl.OptionError):
        assume(False)
    assume(table_of(made) is not None)
    return tensor, made


def same(a, b):
    """Assert that two tensors are the same bit by bit, in the order of their entries."""
    assert (a.shape, a.dtype, a.format.canonical()) == (b.shape, b.dtype, b.format.canonical())
    (coords, values), (others, more) = a.unpack(), b.unpack()
    assert all(np.array_equal(x, y) for x, y in zip(coords, others, strict=True))
    assert values.tobytes() == more.tobytes()
    assert a.to_dense().tobytes() == b.to_dense().tobytes()


# The table and the codes


@given(repeated(), st.integers(1, 50))
def test_the_most_frequent_entries_are_first(values, size):
    counts = collections.Counter(bits(values))
    expected = sorted(counts, key=lambda x: (-counts[x], x))
    try:
        table, codes = dictionary.encode(in_pieces(values, size))
    except bl.OptionError:
        assert len(expected) > 1
        assert len(expected) * values.dtype.itemsize + len(values) >= values.nbytes
        return
    assert bits(table) == expected
    found = codes.whole()
    assert found.dtype == np.uint8
    assert [expected[code] for code in found] == bits(values)
    assert len(expected) < 2 or table.nbytes + found.nbytes < values.nbytes


@given(repeated(), st.data())
def test_slices_and_positions(values, data):
    known, codes = np.unique(dictionary.as_bits(values), return_inverse=True)
    made = Dictionary(known.view(values.dtype), codes.astype(np.uint16))
    far = lazy(len(codes), np.dtype(np.uint16), lambda a, b: made.codes[a:b].copy(), chunk=4)
    window = slice(*data.draw(st.tuples(st.integers(-50, 50), st.integers(-50, 50), st.sampled_from([1, 2, -1]))))
    at = np.array(data.draw(st.lists(st.integers(0, len(values) - 1))) if len(values) else [], int)
    for array in (made, Dictionary(made.table, far)):
        assert array[window].tobytes() == values[window].tobytes()
        assert array[at].tobytes() == values[at].tobytes()
        assert array.loaded()[:].tobytes() == values.tobytes()
    assert pickle.loads(pickle.dumps(made))[:].tobytes() == values.tobytes()
    with pytest.raises(bl.ArrayError, match="codes: expected less than 0, the number of entries of the table, got"):
        Dictionary(made.table[:0], np.zeros(1, np.uint8)).loaded()


@pytest.mark.parametrize(("entries", "size"), [(2, 1), (256, 1), (257, 2), (2**16, 2)])
def test_codes_are_as_small_as_they_can_be(entries, size):
    table, codes = dictionary.encode(one_piece(np.arange(10 * entries) % entries * 0.5))
    assert len(table) == entries
    assert codes.dtype.itemsize == size


def test_a_dictionary_has_at_most_65536_entries():
    values = np.repeat(np.arange(2**16 + 1.0), 10)
    with pytest.raises(bl.OptionError, match="dictionary: there are more than 65536 distinct values"):
        bl.pack_dense(values + 1, "DVEC").convert("DVEC", dictionary=True)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float64"])
def test_a_dictionary_is_smaller(dtype):
    tensor = bl.pack_dense(np.arange(2).astype(dtype), "DVEC")
    for call in (lambda: tensor.convert("DVEC", dictionary=True), lambda: bl.write({}, tensor, dictionary=True)):
        with pytest.raises(bl.OptionError, match="dictionary: 2 entries and 2 codes are not smaller than the values"):
            call()


def test_values_that_are_all_the_same_are_one():
    tensor = bl.pack([[1, 2]], [np.nan, np.nan], 4, "CVEC")
    assert tensor.convert("CVEC", dictionary=True).iso
    bl.write(store := {}, tensor, dictionary=True)
    assert str(describe(store).descriptor.data_types["values"]) == "iso[float64]"
    assert not bl.pack([[1, 2]], [0.0, -0.0], 4, "CVEC").convert("COO").iso
    bl.write(store := {}, bl.pack([[]], [], 4, "CVEC"), dictionary=True)
    assert str(describe(store).descriptor.data_types["values"]) == "float64"


@given(st.data())
def test_one_more_entry_where_a_format_pads(data):
    """A table of 256 entries has no code left for the padding, so that the values are looked up."""
    entries = data.draw(st.sampled_from([255, 256]))
    values = np.arange(600) % entries + 1.0
    tensor = bl.pack([np.arange(600)], values, 700, "CVEC")
    dense = tensor.convert("CVEC", dictionary=True).convert("DVEC")
    assert (table_of(dense) is None) == (entries == 256)
    same(dense, tensor.convert("DVEC"))


# Files


@pytest.mark.parametrize("packs", [False, True, ["codes"]])
@pytest.mark.parametrize("name", PLACES)
def test_written_read_and_opened(tmp_path, name, packs):
    values = np.array([1.5, -0.0, 0.0, np.nan, -np.nan])[np.random.default_rng(0).integers(0, 5, 3000)]
    tensor = bl.pack([np.arange(3000) // 60, np.arange(3000) % 60], values, (50, 60), "CSR", fill_value=0)
    bl.write(place := place_in(tmp_path, name), tensor, dictionary=True, bitpacked=packs, checksum=True)
    types = describe(place).descriptor.data_types
    assert str(types["values"]) == "dictionary[float64]"
    assert str(types["codes"]) == ("bitpacked[uint8]" if packs else "uint8")
    assert describe(place).arrays["values"].shape == (5,)
    for again in (bl.read(place), bl.open(place), bl.open(place).load(), bl.open(place)[...].load()):
        same(again, tensor)
        again.check()
    assert len(table_of(bl.read(place)).table) == 5
    opened = bl.open(place)
    assert opened.nbytes == bl.read(place).nbytes < tensor.nbytes - 6 * 3000
    same(part := opened[10:30, ::2].load(), tensor[10:30, ::2].load())
    assert table_of(part).table is table_of(opened).table
    assert table_of(opened[3:4].load()) is not None
    assert table_of(opened[3:4, :5].load()) is None  # a dictionary would not be smaller


@given(coded(), st.data())
def test_every_format_is_read_as_it_was(pair, data):
    tensor, made = pair
    options = {"bitpacked": data.draw(st.booleans()), "narrow": data.draw(st.booleans())}
    stores = [{} for _ in pair]
    for store, one in zip(stores, pair, strict=True):
        try:
            bl.write(store, one, dictionary=True, **options)
        except bl.OptionError:  # of positions without an entry, the values are written as zero
            assume(False)
        same(bl.read(store), tensor)
        same(bl.open(store), tensor)
    assert all(
        np.array_equal(stores[0][name], stores[1][name], equal_nan=False) for name in ("codes",) if "codes" in stores[0]
    )
    same(bl.read(stores[0]), tensor)
    bl.write(plain := {}, made)
    assert "codes" not in plain
    same(bl.read(plain), tensor)


def test_orders_have_a_dictionary_each(tmp_path):
    tensor = bl.pack_dense(np.arange(600).reshape(20, 30) % 4, "CSR")
    bl.write(tmp_path / "a.h5", tensor, orders=["CSC"], dictionary=True, bitpacked=["codes"])
    opened = bl.open(tmp_path / "a.h5")
    (other,) = inside(opened).backing.stored.orders
    assert other.tree.dictionary is not None
    same(opened[:, 3:20].load("CSR"), tensor[:, 3:20].load("CSR"))
    bl.append(tmp_path / "a.h5", tensor)
    assert {str(describe(f"{tmp_path}/a.h5{x}").descriptor.data_types["codes"]) for x in ("", ":order_1_0")} == {
        "bitpacked[uint8]"
    }
    same(bl.read(tmp_path / "a.h5")[20:].load(), tensor)


@pytest.mark.parametrize("name", PLACES)
def test_what_is_appended_is_coded_again(tmp_path, name):
    """The codes grow with the table, and a dictionary that is no longer smaller becomes values."""
    few = bl.pack_dense(np.arange(4000).reshape(20, 200) % 200 + 1.5, "CSR")
    many = bl.pack_dense(np.arange(4000).reshape(20, 200) % 300 + 1.5, "CSR")
    other = bl.pack_dense(np.arange(28000).reshape(140, 200) + 0.25, "CSR")
    bl.write(place := place_in(tmp_path, name), few, dictionary=True, bitpacked=["codes"], checksum=True)
    compressed = {"compression": {"codes": "gzip"}} if name.endswith((".h5", ".zarr")) else {}
    bl.append(place, many, **compressed)
    types = describe(place).descriptor.data_types
    assert (str(types["values"]), str(types["codes"])) == ("dictionary[float64]", "bitpacked_zigzag[uint16]")
    same(bl.read(place), bl.pack_dense(np.concatenate([few.to_dense(), many.to_dense()]), "CSR"))
    bl.append(place, other)
    assert str(describe(place).descriptor.data_types["values"]) == "float64"
    same(bl.read(place)[40:].load(), other)
    same(bl.read(place)[:20].load(), few)


def test_one_value_and_other_sources(tmp_path):
    tensor = bl.pack_dense(np.arange(600).reshape(20, 30) % 4 + 1.5, "CSR")
    bl.write(one := {}, tensor, dictionary=True)
    bl.write(other := {}, tensor)
    bl.concatenate([one, other, one], both := {})
    assert "codes" in both
    bl.concatenate([other, one], plain := {})
    assert "codes" not in plain
    same(bl.read(both)[20:].load(), bl.read(plain))
    bl.convert(one, tmp_path / "a.mtx")
    assert bl.read(tmp_path / "a.mtx").equals(tensor)
    bl.convert(one, built := {}, "CSC", memory=resident() + 2**29)
    same(bl.read(built), tensor.convert("CSC"))
    bl.write(tmp_path / "a.zarr", tensor, dictionary=True)
    with pytest.raises(bl.FormatError, match="a tensor with packed arrays has no parts; write it again without"):
        bl.append(tmp_path / "a.zarr", tensor, part=True)
    with pytest.raises(bl.OptionError, match="dictionary does not apply to a tensor written in pieces"):
        bl.concatenate([one, one], {}, dictionary=True)
    with pytest.raises(bl.OptionError, match="dictionary"):
        bl.write(tmp_path / "b.mtx", tensor, dictionary=True)


# Attacks


def stored():
    """The header and the arrays of a vector with a dictionary."""
    bl.write(store := {}, bl.pack([np.arange(20)], np.arange(20) % 3 + 0.5, 30, "CVEC"), dictionary=True)
    return {name: pickle.loads(pickle.dumps(x)) for name, x in store.items()}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"codes": np.full(20, 3, np.uint8)}, "codes: expected less than 3, the number of entries of the table, got 3"),
        ({"values": np.zeros(0)}, "codes: expected less than 0"),
        (
            {"values": np.array([0.5, 1.5, 0.5])},
            r"values\[2\]: the entries of a dictionary differ, and 0.5 occurs twice",
        ),
        ({"values": np.array([np.nan] * 3)}, r"values\[1\]: the entries of a dictionary differ, and nan occurs twice"),
        ({"values": np.arange(2.0**16 + 1)}, "values: a dictionary has at most 65536 entries, got 65537"),
        ({"values": np.zeros(3, np.float32)}, r"values: declared dictionary\[float64\], stored as float32"),
        ({"values": np.zeros((3, 1))}, "values: expected one dimension"),
        ({"codes": np.zeros(19, np.uint8)}, "codes: expected a length of 20 for uint8, got 19"),
        ({"codes": np.zeros(20, np.uint16)}, "codes: declared uint8, stored as uint16"),
        ({"codes": None}, "codes: missing"),
    ],
)
def test_arrays_that_are_refused(changed, message):
    store = {name: x for name, x in {**stored(), **changed}.items() if x is not None}
    for call in (bl.read, lambda x: bl.open(x).load(), lambda x: bl.open(x)[3:].load(), lambda x: bl.open(x).sum()):
        with pytest.raises(bl.ArrayError, match=message):
            call(store)
    with pytest.raises(bl.ArrayError, match=message):
        bl.read(store, check="none")


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"codes": None}, "data_types.codes: missing"),
        ({"codes": "int8"}, "data_types.codes: expected uint8 or uint16, perhaps bit-packed, got int8"),
        ({"codes": "uint32"}, "data_types.codes: expected uint8 or uint16, perhaps bit-packed, got uint32"),
        ({"codes": "iso[uint8]"}, "data_types.codes: expected uint8 or uint16"),
        ({"codes": "dictionary[uint8]"}, "data_types.codes: expected uint8 or uint16"),
        (
            {"indices_0": "dictionary[int32]"},
            r"data_types.indices_0: expected an integer type, got dictionary\[int32\]",
        ),
        ({"values": "dictionary[iso[float64]]"}, "unknown data type"),
        ({"values": "iso[dictionary[float64]]"}, "unknown data type"),
        ({"values": "dictionary[bitpacked[int64]]"}, "unknown data type"),
        ({"values": "dictionary[float64"}, "unknown data type"),
    ],
)
def test_types_that_are_refused(types, message):
    store = stored()
    known = (
        store["binsparse"]["binsparse"]["data_types"]
        if "binsparse" in store["binsparse"]
        else store["binsparse"]["data_types"]
    )
    known |= types
    for name in [name for name, x in types.items() if x is None]:
        del known[name]
    with pytest.raises(bl.DescriptorError, match=message):
        bl.read(store)


def test_the_first_level_is_required():
    store = stored()
    header = store["binsparse"].get("binsparse", store["binsparse"])
    header["custom"]["level"] = header["custom"]["level"]["level"]
    with pytest.raises(bl.DescriptorError, match="custom: expected binsparse_levels:packed as the first level"):
        bl.read(store)


def test_any_order_of_the_table_is_read_and_entries_may_be_unused():
    store = stored()
    tensor, order = bl.read(store), np.array([2, 0, 1])
    store["values"] = np.array([9.0, *store["values"][order]])
    store["codes"] = (np.argsort(order) + 1)[store["codes"]].astype(np.uint8)
    same(bl.read(store), tensor)
    bl.write(again := {}, bl.read(store), dictionary=True)
    assert again["values"].tolist() == [0.5, 1.5, 2.5]


# Memory


@given(coded(), st.data())
def test_conversions_and_views_are_those_of_the_values(pair, data):
    tensor, made = pair
    format = data.draw(testing.formats(min_rank=tensor.ndim, max_rank=tensor.ndim, kinds=tuple(LEVELS.values())))
    try:
        expected = tensor.convert(format)
    except (bl.FormatError, bl.LimitError):
        assume(False)
    same(got := made.convert(format), expected)
    same(pickle.loads(pickle.dumps(got)), expected)
    if tensor.ndim:
        key = tuple(data.draw(st.slices(size)) for size in tensor.shape)
        same(made[key].load(), tensor[key].load())
        places = [
            np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=3, max_size=3))) for size in tensor.shape
        ]
        assert made[tuple(places)].tobytes() == tensor[tuple(places)].tobytes()
    same(made.drop_fill(), tensor.drop_fill())


@given(coded(types=["int64", "float64", "complex128"]))
def test_functions_of_one_tensor(pair):
    tensor, made = pair
    for function in (
        np.negative,
        np.square,
        np.isfinite,
        lambda x: x * 2,
        lambda x: 1 + x,
        lambda x: x.astype("complex64"),
    ):
        with np.errstate(all="ignore"):
            same(function(made), function(tensor))


def test_a_function_is_computed_once_for_each_entry_in_use():
    values = np.array([1.0, -1.0, 4.0, 0.0])[np.arange(4000) % 4]
    made = bl.pack([np.arange(4000)], values, 5000, "CVEC").convert("CVEC", dictionary=True)
    assert len(table_of(np.abs(made)).table) == 3
    seen = []
    inside(made).source.dictionary.applied(lambda x: seen.append(len(x)) or x)
    assert seen == [4]
    whole = table_of(made)
    unused = Dictionary(whole.table, np.full(100, whole.table.tolist().index(4.0), np.uint8))
    with np.errstate(divide="raise", invalid="raise"):  # of the other entries, there is no logarithm
        assert unused.applied(np.log)[:].tolist() == [np.log(4)] * 100
    assert made.astype("float32").dtype == np.float32
    assert table_of(made.astype("float32")) is not None
    assert table_of(made.astype("int8")) is None


def test_what_it_takes(tmp_path):
    """In memory, 96 bits an entry of CSR become 40."""
    tensor = bl.pack_dense(np.arange(10**5).reshape(100, 1000) % 7 + 0.5, "CSR")
    made = tensor.convert("CSR", dictionary=True)
    assert round(8 * tensor.nbytes / 10**5) == 96
    assert round(8 * made.nbytes / 10**5) == 40
    assert len(pickle.dumps(made)) < made.nbytes + 2000
    assert "dictionary of 7" in repr(made)
    (row,) = bl.sweep(tensor, ["CSR"], ["dictionary"]).rows
    assert row.measures["dictionary"] == 8 + 64 * 7 / 10**5
