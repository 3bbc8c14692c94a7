"""write_from: any stream, into any file, is what pack makes of all its entries."""

import contextlib
import itertools
import os

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from helpers.blocks import alike, rows_at_once
from helpers.places import CONTAINERS
from helpers.strategies import cases
from hypothesis import event, given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

import binsparse_levels
from binsparse_levels import (
    ArrayError,
    FormatError,
    LimitError,
    OptionError,
    build,
    from_table,
    pack,
    parse_map,
    read,
    testing,
    write,
    write_from,
)
from binsparse_levels.building import packing, partitions
from binsparse_levels.containers.objects.folder import Folder
from binsparse_levels.engine import joining
from binsparse_levels.thresholds import THRESHOLDS, using_thresholds

NUMBERS = ["bool", "int8", "int64", "uint8", "uint64", "float32", "float64", "complex64", "complex128"]
POLICIES = ["error", "sum", "first", "last"]


@contextlib.contextmanager
def rows(number):
    """So many entries fit into memory."""
    with using_thresholds(step_entries=number, piece_items=max(number - 1, 1)):
        yield


@pytest.fixture
def kept(monkeypatch):
    """The keys of all objects that a local store was given."""
    keys, put = [], Folder.put

    def noted(self, key, pieces, **options):
        keys.append(key)
        put(self, key, pieces, **options)

    monkeypatch.setattr(Folder, "put", noted)
    return keys


@pytest.fixture
def packed_at_once(monkeypatch):
    """The numbers of entries that were packed at once."""
    counts, packed = [], packing._packed

    def counted(plan, levels, columns, *rest):
        counts.append(len(columns[-1]))
        return packed(plan, levels, columns, *rest)

    monkeypatch.setattr(packing, "_packed", counted)
    return counts


def chunked(coords, values, sizes):
    """Chunks of these sizes, and one of the rest."""
    at = 0
    for size in (*sizes, len(values)):
        stop = min(at + size, len(values))
        yield [x[at:stop] for x in coords], values[at:stop]
        at = stop


def outcome(call):
    """What a call gives, or the error that it raises."""
    try:
        return call()
    except (ArrayError, FormatError, LimitError) as error:
        return error


@given(data=st.data())
def test_any_stream_is_what_pack_makes_of_all(tmp_path_factory, data):
    case = data.draw(cases(unique=False, dtypes=NUMBERS))
    policy = data.draw(st.sampled_from(POLICIES))
    fill = data.draw(st.sampled_from([None, 0, 1]))
    options = {"duplicates": policy, "fill_value": fill, "attributes": {"a": 1}}
    sizes = data.draw(st.lists(st.integers(0, 5), max_size=5))
    size = data.draw(st.sampled_from([1, 2, 3, 5, 1000]))
    expected = outcome(lambda: pack(case.coords, case.values, case.shape, case.format, **options))
    name = data.draw(st.sampled_from(["a.h5", "a.zarr", "a.npz", "a.h5:g"]))
    folder = tmp_path_factory.mktemp("stream")
    place = f"{folder}/{name}"
    if not case.shape:
        chunks = [((), x) for x in case.values]
    else:
        chunks = chunked(case.coords, case.values, sizes)

    def written():
        with rows(size):
            write_from(chunks, place, case.shape, case.format, memory=1, dtype=case.values.dtype, **options)
        return read(place)

    found = outcome(written)
    if not case.shape and len(case.values) > max(size // 2, 1):
        assert isinstance(found, FormatError)
        return
    if isinstance(expected, Exception):
        event("refused")
        assert type(found) is type(expected)
        assert os.listdir(folder) == []
        return
    event("in parts" if len(case.values) > size else "whole")
    if isinstance(found, Exception):
        raise found
    alike(found, expected)
    assert os.listdir(folder) == [name.partition(":")[0]]


MAPS = ["0/2, 1/2, 0%2, 1%2", "(0 1)", "1, 0/3, 0%3", "(0%2 1%2), 0/2, 1/2", "1, 0"]


@given(data=st.data())
def test_any_stream_through_any_map(data):
    shape, through = data.draw(st.sampled_from([(4, 6), (7, 5), (8, 2)])), data.draw(st.sampled_from(MAPS))
    levels = ["sparse", "dense"][: data.draw(st.integers(1, 2))]
    rank = len(parse_map(through, shape).groups)
    format = ", ".join(data.draw(st.sampled_from(levels)) for _ in range(rank))
    count = data.draw(st.integers(0, 20))
    coords = [np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=count, max_size=count)), int) for n in shape]
    values = np.arange(1.0, count + 1)
    policy = data.draw(st.sampled_from(POLICIES))
    expected = outcome(lambda: pack(coords, values, shape, format, map=through, duplicates=policy))
    target = {}

    def written():
        with rows(3):
            chunks = chunked(coords, values, [2, 3, 4])
            write_from(chunks, target, shape, format, memory=1, map=through, duplicates=policy)
        return read(target)

    found = outcome(written)
    if isinstance(expected, Exception):
        event("refused")
        assert type(found) is type(expected)
        places = list(zip(*(x.tolist() for x in coords), strict=True))
        assert any(str(at) in str(found) for at in places if places.count(at) > 1)
        assert not target
        return
    if isinstance(found, Exception):
        raise found
    alike(found, expected)


def entries(count=3000, shape=(50, 60, 70), seed=0):
    """Entries in any order, some of them repeated."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, n, count) for n in shape], rng.integers(-99, 99, count).astype(float)


FORMATS = [
    "sparse, sparse, sparse",
    "dense, sparse, sparse",
    "dense, sparse(2)",
    "sparse(3) @ 2, 0, 1",
    "sparse, dense, sparse",
    "sparse(2), dense",
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("policy", ["sum", "first", "last"])
def test_many_blocks(tmp_path, format, policy):
    coords, values = entries(shape=(50, 6, 7))
    with rows(400):
        write_from(
            chunked(coords, values, [300] * 8), tmp_path / "a.h5", (50, 6, 7), format, memory=1, duplicates=policy
        )
    alike(read(tmp_path / "a.h5"), pack(coords, values, (50, 6, 7), format, duplicates=policy))
    assert os.listdir(tmp_path) == ["a.h5"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", CONTAINERS)
def test_into_every_container(tmp_path, kind):
    make, options = CONTAINERS[kind]
    target = make(tmp_path)
    coords, values = entries()
    with rows(500):
        write_from(
            chunked(coords, values, [700, 900]),
            target,
            (50, 60, 70),
            "sparse(3)",
            memory=1,
            duplicates="sum",
            **options,
        )
    alike(read(target), pack(coords, values, (50, 60, 70), "sparse(3)", duplicates="sum"))
    if isinstance(target, os.PathLike):
        assert os.listdir(tmp_path) == [target.name]


def test_an_order_that_is_kept_is_not_spilled(tmp_path, kept):
    coords, values = entries()
    tensor = pack(coords, values, (50, 60, 70), "sparse, sparse, sparse @ 1, 2, 0", duplicates="sum")
    coords, values = tensor.unpack()
    with rows(500):
        write_from(chunked(coords, values, [100] * 20), tmp_path / "a.h5", tensor.shape, tensor.format, memory=1)
    assert not [key for key in kept if key.startswith("partition/")]
    assert sum(key.startswith("pack/") for key in kept) == -(-len(values) // 250)
    alike(read(tmp_path / "a.h5"), tensor)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "format", ["sparse, sparse, sparse", "dense, sparse, sparse", "sparse, dense, sparse", "sparse(3)"]
)
@pytest.mark.parametrize("policy", ["sum", "first", "last"])
def test_an_order_that_ends_midway(tmp_path, kept, format, policy):
    coords, values = entries(shape=(50, 6, 7))
    tensor = pack(coords, values, (50, 6, 7), format, duplicates="sum")
    first, numbers = tensor.unpack()
    coords, values = [np.concatenate(x) for x in zip(first, coords, strict=True)], np.concatenate([numbers, values])
    with rows(400):
        write_from(
            chunked(coords, values, [350] * 9), tmp_path / "a.h5", tensor.shape, format, memory=1, duplicates=policy
        )
    assert {key.partition("/")[0] for key in kept} >= {"rows", "partition", "pack"}
    alike(read(tmp_path / "a.h5"), pack(coords, values, tensor.shape, format, duplicates=policy))


def test_blocks_that_begin_with_the_last_entry_of_the_block_before(tmp_path):
    coords = [np.repeat(np.arange(20), 2)]
    values = np.arange(40.0)
    with rows(3):
        write_from([(coords, values)], tmp_path / "a.h5", 100, "sparse", memory=1, duplicates="sum")
        with pytest.raises(ArrayError, match=r"\(0,\)"):
            write_from([(coords, values)], tmp_path / "b.h5", 100, "sparse", memory=1)
    alike(read(tmp_path / "a.h5"), pack(coords, values, 100, "sparse", duplicates="sum"))
    assert os.listdir(tmp_path) == ["a.h5"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("policy", ["sum", "first", "last"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex128"])
def test_one_heavy_coordinate_keeps_the_bound(tmp_path, packed_at_once, policy, dtype):
    rng = np.random.default_rng(1)
    coords, _ = entries(shape=(50, 60))
    heavy = rng.random(3000) < 0.8
    coords = [np.where(heavy, 17, x) for x in coords]
    values = rng.integers(-99, 99, 3000).astype(dtype)
    values = values % 2 * 2 - 1 if dtype == "int8" else values  # a sum beyond 127 is an error
    with rows(300):
        write_from(chunked(coords, values, [170] * 20), tmp_path / "a.h5", (50, 60), "CSR", memory=1, duplicates=policy)
    assert max(packed_at_once) <= 300
    alike(read(tmp_path / "a.h5"), pack(coords, values, (50, 60), "CSR", duplicates=policy))


def test_sums_of_floats_are_those_of_pack(tmp_path):
    coords, _ = entries(shape=(5, 6))
    values = np.random.default_rng(0).random(3000) * 10.0 ** np.random.default_rng(1).integers(-9, 9, 3000)
    with rows(300):
        write_from(chunked(coords, values, [170] * 20), tmp_path / "a.h5", (5, 6), "CSR", memory=1, duplicates="sum")
    alike(read(tmp_path / "a.h5"), pack(coords, values, (5, 6), "CSR", duplicates="sum"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("policy", ["error", "sum"])
def test_keys_that_agree_in_their_first_word(tmp_path, monkeypatch, others, policy):
    """All entries but three are in one row, whose number nearly fills a key. No sample tells of that row, nor of the
    three, which lie beside it.
    """
    monkeypatch.setattr(partitions, "sampled", lambda work: [0])
    monkeypatch.setattr(THRESHOLDS, "sampled_entries", 54)
    rng = np.random.default_rng(0)
    shape, count, row = (2**62, 2**62), 4000, 2**61
    coords, values = [np.full(count, row), rng.integers(0, 2**62, count)], rng.random(count)
    coords[0][:250] = np.arange(0, 2**62, 2**62 // 250)[:250]
    if others:
        for k, at, column in ((1000, row - 1, 2**62 - 1), (2000, row + 1, 0), (3000, row + 1, 2**62 - 1)):
            coords[0][k], coords[1][k] = at, column
    with rows(300):
        chunks = chunked(coords, values, [250, *[170] * 30])
        write_from(chunks, tmp_path / "a.h5", shape, "DCSR", memory=1, duplicates=policy)
    alike(read(tmp_path / "a.h5"), pack(coords, values, shape, "DCSR"))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("share", [1, 0.99, 0.5])
@pytest.mark.parametrize("dims", [2, 3])
def test_large_dimensions_keep_the_bound(tmp_path, packed_at_once, share, dims):
    """Of most entries, the coordinates agree in all but the last dimension, and in the first half of it."""
    rng = np.random.default_rng(0)
    shape, count = (2**62,) * dims, 4000
    coords = [np.where(rng.random(count) < share, 2**61 + 7, rng.integers(0, 2**62, count)) for _ in range(dims - 1)]
    coords += [2**61 + rng.integers(0, 2**30, count)]
    values = rng.random(count)
    with rows(300):
        chunks = chunked(coords, values, [170] * 30)
        write_from(chunks, tmp_path / "a.h5", shape, f"sparse({dims})", memory=1)
    assert max(packed_at_once) <= 300
    alike(read(tmp_path / "a.h5"), pack(coords, values, shape, f"sparse({dims})"))


# Tables

TABLES = {
    "pyarrow": pyarrow.table,
    "batches": lambda columns: pyarrow.RecordBatchReader.from_batches(
        (table := pyarrow.table(columns)).schema, table.to_batches(max_chunksize=7)
    ),
    "polars": polars.DataFrame,
    "pandas": pandas.DataFrame,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("library", TABLES)
@pytest.mark.parametrize("several", [False, True])
def test_tables(tmp_path, library, several):
    (i, j), values = entries(1000, (50, 60))
    tables = [
        TABLES[library]({"v": values[k::3], "j": j[k::3].astype(np.uint8), "x": ["a"] * len(i[k::3]), "i": i[k::3]})
        for k in range(3)
    ]
    order = np.concatenate([np.arange(1000)[k::3] for k in range(3)])
    if not several:
        tables, order = tables[0], order[: len(i[::3])]
    with rows(100):
        write_from(tables, tmp_path / "a.h5", (50, 60), "CSC", memory=1, dims=["i", "j"], values="v", duplicates="last")
    alike(read(tmp_path / "a.h5"), pack([i[order], j[order]], values[order], (50, 60), "CSC", duplicates="last"))


TABLE = {"i": [0, 1], "j": [1, 2], "v": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"v": [1.0, None]}, "columns.v: contains nulls"),
        ({"i": [None, 1]}, "columns.i: contains nulls"),
        ({"v": ["a", "b"]}, "columns.v: contains"),
        ({"j": [1, 3]}, r"columns\.j: 3 is outside dimension 1 of size 3, in row 1"),
        ({"j": [-1, 2]}, r"columns\.j: -1 is outside .* in row 0"),
        ({"i": [0, 0], "j": [1, 1]}, r"\(0, 1\)"),
    ],
)
@pytest.mark.parametrize("size", [1, 100])
def test_tables_that_are_refused(tmp_path, changed, told, size):
    for make in (pyarrow.table, polars.DataFrame):
        with rows(size), pytest.raises(ArrayError, match=told):
            write_from(
                make({**TABLE, **changed}), tmp_path / "a.h5", (2, 3), "CSR", memory=1, dims=["i", "j"], values="v"
            )
    assert os.listdir(tmp_path) == []


def test_columns_that_are_not_named_or_not_there(tmp_path):
    table = pyarrow.table(TABLE)
    for options, told in (
        ({}, "needs the names"),
        ({"values": "v"}, "dims"),
        ({"dims": ["i"], "values": "v"}, "1 names for 2"),
        ({"dims": ["i", "k"], "values": "v"}, "columns.k: no such column; the table has i, j, v"),
    ):
        with pytest.raises(OptionError, match=told):
            write_from(table, tmp_path / "a.h5", (2, 3), "CSR", memory=2**33, **options)
    assert os.listdir(tmp_path) == []


# Chunks


def test_chunks_as_pack_takes_them(tmp_path):
    chunks = [
        ([[], []], []),
        ([[0, 1], [1, 2]], [1, 2]),
        (np.array([[3, 2], [0, 0]]), 5),
        ([np.array([4], np.uint64), [1]], np.ma.masked_array([7], [True])),
        ([[], []], 3.5),
        (np.empty((2, 0), np.uint8), np.empty(0, np.int8)),
        ([[4], [2]], np.array([9], ">i4")),
    ]
    expected = pack([[0, 1, 3, 2, 4], [1, 2, 0, 0, 2]], [1, 2, 5, 5, 9], (5, 3), "CSR")
    for size in (1, 2, 100):
        with rows(size):
            write_from(iter(chunks), tmp_path / "a.h5", (5, 3), "CSR", memory=1, dtype=np.int64, overwrite=True)
        alike(read(tmp_path / "a.h5"), expected)


@pytest.mark.parametrize(
    ("chunk", "told"),
    [
        (([[0]], [1.0]), "coords"),
        (([[0], [0], [0]], [1.0]), "coords"),
        (([[0], [0, 1]], [1.0]), "coords"),
        (([[0, 1], [0, 1]], [1.0]), "coords|values"),
        (([[0.5], [0]], [1.0]), r"coords\[0\]: expected integers"),
        (([[0], [3]], [1.0]), r"chunk \d: coords\[1\]: 3 is outside dimension 1"),
        (([[2**63], [0]], [1.0]), r"coords\[0\]: 9223372036854775808 is outside"),
        (([[2**64 - 1], [0]], [1.0]), r"coords\[0\]: 18446744073709551615 is outside"),
        (([[-1], [0]], [1.0]), "-1 is outside"),
        (([[[0]], [[0]]], [[1.0]]), "one dimension"),
        (([[0], [0]], ["a"]), "values"),
        (([[0], [0]], [1j]), "values"),
        (([[0], [0]], [None]), "values"),
        (([[0, [1]], [0, 1]], [1.0, 2.0]), "coords"),
    ],
)
@pytest.mark.parametrize("place", [0, 3])
def test_chunks_that_are_refused(tmp_path, chunk, told, place):
    chunks = [([[k, k], [0, 1]], [1.0, 2.0]) for k in range(4)]
    chunks.insert(place, chunk)
    with rows(2), pytest.raises(ArrayError, match=told):
        write_from(chunks, tmp_path / "a.h5", (5, 3), "CSR", memory=1, dtype=float)
    assert os.listdir(tmp_path) == []


def test_integers_that_do_not_fit_are_not_cut(tmp_path):
    for values, dtype in (([300], "int8"), ([-1], "uint8"), ([2**63], "int64"), ([2**40], "int32")):
        with pytest.raises(ArrayError, match="values"):
            write_from([([[0], [0]], values)], tmp_path / "a.h5", (5, 3), "CSR", memory=2**33, dtype=dtype)
        chunks = [([[1], [0]], np.ones(1, dtype)), ([[0], [0]], values)]
        with pytest.raises(ArrayError, match="values"):
            write_from(chunks, tmp_path / "a.h5", (5, 3), "CSR", memory=2**33)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("wrong", [5, "text", [5], [(1, 2, 3)], [{"a": 1, "b": 2}], ["ab"], [None]])
def test_what_is_no_stream(tmp_path, wrong):
    with pytest.raises((TypeError, ArrayError)):
        write_from(wrong, tmp_path / "a.h5", (5, 3), "CSR", memory=2**33)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, ValueError, GeneratorExit])
def test_a_generator_that_fails_midway_leaves_nothing(tmp_path, error):
    def chunks():
        for k in range(10):
            yield [[9 - k], [0]], [1.0]
        raise error("mine")

    (tmp_path / "a.h5").write_bytes(b"old")
    with rows(2), pytest.raises(error, match="mine"):
        write_from(chunks(), tmp_path / "a.h5", (10, 3), "CSR", memory=1, overwrite="file")
    assert os.listdir(tmp_path) == ["a.h5"]
    assert (tmp_path / "a.h5").read_bytes() == b"old"


def test_a_target_that_is_there_is_told_before_the_stream_is_read(tmp_path):
    write(tmp_path / "a.h5", pack([[0], [0]], [1.0], (2, 2), "CSR"))

    def never():
        pytest.fail("read in vain")
        yield

    with pytest.raises(FileExistsError):
        write_from(never(), tmp_path / "a.h5", (2, 2), "CSR", memory=2**33)


@pytest.mark.parametrize("chunks", [[], [([[], []], [])] * 3])
def test_an_empty_stream(tmp_path, chunks):
    with pytest.raises(OptionError, match="dtype") if not chunks else contextlib.nullcontext():
        write_from(chunks, tmp_path / "a.h5", (5, 3), "CSR", memory=2**33)
    write_from(chunks, tmp_path / "a.h5", (5, 3), "CSR", memory=2**33, dtype="int16", overwrite=True)
    alike(read(tmp_path / "a.h5"), pack([[], []], np.empty(0, "int16"), (5, 3), "CSR"))


def test_too_little_memory(tmp_path):
    chunk = [([[0], [0]], [1.0])]
    with pytest.raises(LimitError, match="memory"):
        write_from(chunk, tmp_path / "a.h5", (5, 3), "CSR", memory=2**20)
    for wrong in (0, -1, 1.5, "1G", True):
        with pytest.raises(OptionError, match="memory"):
            write_from(chunk, tmp_path / "a.h5", (5, 3), "CSR", memory=wrong)
    assert os.listdir(tmp_path) == []


@given(data=st.data())
def test_every_kind_is_streamed_or_its_memory_is_named(tmp_path_factory, data):
    """Scalars too. Kinds without a join of their own take as many entries as fit at once."""
    case = data.draw(cases(dtypes=NUMBERS))
    rank = len(case.shape)
    format = data.draw(testing.formats(min_rank=rank, max_rank=rank, kinds=tuple(testing.LEVELS.values())))
    count = len(case.values)
    size = data.draw(st.sampled_from([1, 1000, max(count, 1), (3 * count + 1) // 2 or 1]))
    in_parts = joining.by_arrays(format.levels)
    expected = outcome(lambda: pack(case.coords, case.values, case.shape, format))
    place = tmp_path_factory.mktemp("stream") / "a.h5"
    chunks = chunked(case.coords, case.values, [1, 2]) if rank else [((), case.values)]

    def written():
        with rows(size):
            write_from(chunks, place, case.shape, format, memory=1, dtype=case.values.dtype)
        return read(place)

    found = outcome(written)
    if count > max(size // 2, 1) and rank and not in_parts and 3 * count > 2 * size:
        event("too much")
        assert isinstance(found, LimitError)
        assert "memory" in str(found)
        assert not os.listdir(place.parent)
    elif isinstance(expected, Exception):
        assert type(found) is type(expected)
    else:
        event("whole" if count <= max(size // 2, 1) else "in parts" if in_parts else "through the entries")
        if isinstance(found, Exception):
            raise found
        alike(found, expected)


def test_many_small_chunks_and_one_large(tmp_path):
    coords, values = entries(5000)
    sizes = itertools.chain([1] * 300, [0] * 20, [4000])
    with rows(900):
        write_from(
            chunked(coords, values, list(sizes)),
            tmp_path / "a.h5",
            (50, 60, 70),
            "sparse(3)",
            memory=1,
            duplicates="first",
        )
    alike(read(tmp_path / "a.h5"), pack(coords, values, (50, 60, 70), "sparse(3)", duplicates="first"))


def test_progress_tells_every_stage(tmp_path):
    told = []
    coords, values = entries()
    with rows(500):
        write_from(
            chunked(coords, values, [700]), tmp_path / "a.h5", (50, 60, 70), "sparse(3)",
            memory=1, duplicates="sum", progress=lambda *step: told.append(step),
        )  # fmt: skip
    names = list(dict.fromkeys(name for name, *_ in told))
    assert names == ["rows", "sample", "split", "partition", "pack", "writing"]
    assert all(0 <= done <= total for _, done, total in told)


@pytest.mark.parametrize("size", [3, 10**6])
@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_entries_are_merged_into_the_file_as_it_was_opened(tmp_path, suffix, size):
    path = str(tmp_path / f"a{suffix}")
    write(path, pack([[0], [0]], [1.0], (50, 3), "DCSR", attributes={"unit": "m"}))
    one, other = (binsparse_levels.open(path) for _ in range(2))
    more = [([[k, k, k, k], [0, 1, 2, 1]], [1.0, 2.0, 3.0, 4.0]) for k in range(1, 5)]
    with rows_at_once(size):
        write_from([one, *more], path, (50, 3), "DCSR", duplicates="last", overwrite=True)
        for stale in (other, other[:, :]):
            with pytest.raises(
                binsparse_levels.ContainerError, match=r"changed since the tensor was opened|was replaced"
            ):
                write_from([stale, *more], path, (50, 3), "DCSR", duplicates="last", overwrite=True)
    assert read(path).number_of_stored_values == 13
    assert read(path).attributes == {"unit": "m"}


@pytest.mark.parametrize("size", [3, 10**6])
def test_the_first_tensor_gives_the_attributes_and_the_names(tmp_path, size):
    one = pack([[0, 1], [0, 2]], [1.0, 2.0], (5, 3), "CSR", attributes={"unit": "m"}, dims=["a", "b"])
    other = pack([[2, 3, 4], [0, 2, 1]], [1.0, 2.0, 3.0], (5, 3), "CSR", attributes={"unit": "s"})
    with rows_at_once(size):
        write_from([([[4], [0]], [7.0]), one, other], tmp_path / "a.h5", (5, 3), "CSR")
        write_from([one, other], tmp_path / "b.h5", (5, 3), "CSR", attributes={"of": "mine"})
    assert (read(tmp_path / "a.h5").attributes, read(tmp_path / "a.h5").dims) == ({"unit": "m"}, ("a", "b"))
    assert read(tmp_path / "b.h5").attributes == {"of": "mine"}


def test_a_store_without_a_path():
    target, (coords, values) = MemoryStore(), entries()
    with rows(500):
        write_from(chunked(coords, values, [700]), target, (50, 60, 70), "sparse(3)", memory=1, duplicates="sum")
    alike(read(target), pack(coords, values, (50, 60, 70), "sparse(3)", duplicates="sum"))


@pytest.mark.parametrize("format", ["dense, band", "dense, bits", "dense, hashed", "dense, run"])
def test_rows_without_entries_are_counted_where_trees_are_joined_through_entries(tmp_path, format):
    with rows(100), pytest.raises(LimitError, match="memory"):
        write_from([([[5, 10**8 - 1], [0, 1]], [1.0, 2.0])], tmp_path / "a.h5", (10**8, 3), format, memory=1)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", ["a.h5", "a.zarr"])
def test_more_fibers_than_dense_levels_may_make(tmp_path, name):
    for format in ("CSR", "DMATR"):
        with pytest.raises(LimitError, match="dense_bytes"):
            write_from([([[3], [1]], [1.0])], tmp_path / name, (2**62, 4), format)
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("size", [1000, 30])
@pytest.mark.parametrize("format", ["CSR", "CSC"])
def test_sizes_that_an_iterator_tells(tmp_path, size, format):
    coords, values = entries(400, (50, 60))
    with rows(size):
        options = {"memory": 1, "duplicates": "sum"}
        write_from(chunked(coords, values, [20] * 20), tmp_path / "a.h5", (None, 70), format, **options)
    shape = (int(coords[0].max()) + 1, 70)
    alike(read(tmp_path / "a.h5"), pack(coords, values, shape, format, duplicates="sum"))


@pytest.mark.parametrize("size", [1000, 30])
def test_a_sum_that_the_type_cannot_hold(tmp_path, size):
    """It is an error at every door, in one part or many, and leaves nothing; `dtype` widens the sums."""
    coords, values = [np.arange(300) % 60, np.zeros(300, int)], np.full(300, 100, "u1")
    frame = pandas.DataFrame({"i": coords[0], "j": coords[1], "v": values})
    frame.to_parquet(tmp_path / "table.parquet")
    given, more = ((60, 1), "CSR"), {"duplicates": "sum", "memory": 1}
    with rows(size):
        for call in (
            lambda **dtype: write_from(chunked(coords, values, [50] * 6), tmp_path / "a.h5", *given, **more, **dtype),
            lambda **dtype: build(
                tmp_path / "table.parquet", tmp_path / "a.zarr", *given, columns=["i", "j", "v"], **more, **dtype
            ),
        ):
            with pytest.raises(OptionError, match=r"the sum 500 exceeds uint8.*dtype="):
                call()
            assert os.listdir(tmp_path) == ["table.parquet"]
            call(dtype="int64")
            (made,) = set(os.listdir(tmp_path)) - {"table.parquet"}
            assert read(tmp_path / made).to_dense().tolist() == [[500]] * 60
            os.rename(tmp_path / made, tmp_path.parent / f"{size}{made}")
    with pytest.raises(OptionError, match="the sum 500 exceeds uint8"):
        from_table(frame, ["i", "j"], "v", "CSR", duplicates="sum")


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("int8", [127, 1, -1]), ("uint8", [1] * 40), ("float16", [60000, 60000, -60000]), ("float32", [0.1] * 40),
        ("complex64", [1e8, 1j, -1e8]), ("bool", [True] * 3), ("float8_e4m3fn", [0.1] * 40),
    ],
)  # fmt: skip
def test_sums_of_a_cell_that_exceeds_the_memory_are_those_of_pack(dtype, values):
    """The sums of its parts keep 64 bits until all are added."""
    values = np.array(values).astype(getattr(pytest.importorskip("ml_dtypes"), dtype, dtype))
    coords = [np.zeros(len(values), int)] * 2
    expected = pack(coords, values, (2, 2), "CSR", duplicates="sum")
    with rows(1):
        write_from(chunked(coords, values, [1] * len(values)), store := {}, (2, 2), "CSR", memory=1, duplicates="sum")
    alike(read(store), expected)
