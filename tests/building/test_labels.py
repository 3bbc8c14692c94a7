"""Labels in columns of Parquet files become coordinates in their order, whatever the chunks and the merges."""

import datetime
import decimal
import os
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import (
    ArrayError,
    ContainerError,
    OptionError,
    build,
    commit,
    from_table,
    plan,
    progress,
    read,
    reduce,
    step,
)
from binsparse_levels.building import labelling, parquet, planning, running, target
from binsparse_levels.building import texts as texts_in_order
from binsparse_levels.building import work as works
from binsparse_levels.building.steps import _work_at as works_at
from binsparse_levels.engine import sorting

TEXTS = st.one_of(
    st.text(max_size=6),
    st.text("ab\0", max_size=12),  # many that begin alike, or end with zeros
    st.integers(0, 40).map(lambda k: f"https://example.org/user/{k:08}"),
)
KINDS = {
    "text": (TEXTS, pyarrow.string()),
    "large text": (TEXTS, pyarrow.large_string()),
    "dictionary": (TEXTS, pyarrow.dictionary(pyarrow.int16(), pyarrow.string())),
    "date": (st.dates(), pyarrow.date32()),
    "time": (st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)), pyarrow.timestamp("us")),
    "zone": (
        st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)),
        pyarrow.timestamp("us", "Europe/Berlin"),
    ),
    "truth": (st.booleans(), pyarrow.bool_()),
    "decimal": (st.decimals(-(10**20), 10**20, places=3), pyarrow.decimal128(38, 3)),
}


def files(folder, table, sizes, group):
    """The rows of a table in files of these sizes."""
    folder.mkdir()
    at = 0
    for k, size in enumerate([*sizes, len(table)]):
        part = table[at : at + size]
        pyarrow.parquet.write_table(part, folder / f"{k:03}.parquet", row_group_size=group)
        at += len(part)
    return folder


def expected(table, names):
    """The sorted labels of each column, and the sums of the values by cell."""
    columns = [table[name].to_pylist() for name in names[:-1]]
    labels = [sorted(set(x), key=lambda y: y.encode() if isinstance(y, str) else y) for x in columns]
    numbers = [{label: k for k, label in enumerate(x)} for x in labels]
    values = [1] * len(table) if names[-1] is None else table[names[-1]].to_pylist()
    sums = {}
    for *cell, value in zip(*columns, values, strict=True):
        at = tuple(known[x] for known, x in zip(numbers, cell, strict=True))
        sums[at] = sums.get(at, 0) + value
    return labels, sums


def as_stored(label):
    if isinstance(label, decimal.Decimal):
        return f"{label:.3f}"
    if isinstance(label, datetime.datetime):
        return label if label.tzinfo is None else label.astimezone(datetime.UTC).replace(tzinfo=None)
    return label


def check(path, table, names):
    labels, sums = expected(table, names)
    tensor = read(path)
    assert tensor.shape == tuple(map(len, labels))
    assert tensor.dims == tuple(names[:-1])
    for name, mine in zip(names[:-1], labels, strict=True):
        assert tensor.labels(name).tolist() == [as_stored(x) for x in mine]
    coords, values = tensor.unpack()
    assert dict(zip(zip(*(x.tolist() for x in coords), strict=True), values.tolist(), strict=True)) == sums


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Chunks, blocks, merges and runs of a few entries."""
    monkeypatch.setattr(sorting, "_BUCKET", 4)
    monkeypatch.setattr(sorting, "_RUN", 8)
    monkeypatch.setattr(parquet, "_TRIED", 4)
    monkeypatch.setattr(labelling, "_SHARE", 8)
    monkeypatch.setattr(labelling, "_BLOCKS", (16, 64))
    monkeypatch.setattr(labelling, "_PAGE", 9)
    monkeypatch.setattr(planning, "rows_within", lambda *_, **__: 20)
    monkeypatch.setattr(target, "_WRITTEN", 256)


@given(data=st.data())
def test_labels_are_sorted_and_different(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("labels")
    kinds = [data.draw(st.sampled_from(sorted(KINDS))) for _ in range(2)]
    count = data.draw(st.integers(0, 40))
    columns = {}
    for name, kind in zip("ab", kinds, strict=True):
        labels, type = KINDS[kind]
        pool = data.draw(st.lists(labels, min_size=1, max_size=12))
        at = data.draw(st.lists(st.integers(0, len(pool) - 1), min_size=count, max_size=count))
        columns[name] = pyarrow.array([pool[k] for k in at], type)
    columns["v"] = pyarrow.array(range(count), pyarrow.int64())
    table = pyarrow.table(columns)
    sizes = data.draw(st.lists(st.integers(0, 30), max_size=2))
    files(folder / "in", table, sizes, data.draw(st.sampled_from([3, 7, 50])))
    names = ["a", "b", data.draw(st.sampled_from(["v", None]))]
    build(folder / "in", folder / "a.zarr", None, "CSR", columns=names, duplicates="sum", chunks=16, shards=64)
    check(folder / "a.zarr", table, names)


def check_numbers(texts, used):
    octets, begins = np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)])
    numbers, firsts = texts_in_order.numbered(octets, begins, used)
    rows = np.arange(len(texts)) if used is None else np.flatnonzero(used)
    known = sorted({texts[k] for k in rows.tolist()})
    assert [texts[k] for k in firsts.tolist()] == known
    assert [known[k] for k in numbers[rows].tolist()] == [texts[k] for k in rows.tolist()]
    assert all(texts.index(x) == k for x, k in zip(known, firsts.tolist(), strict=True) if used is None)


@given(
    stems=st.lists(st.binary(max_size=40), min_size=1, max_size=4),
    ends=st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=6)), max_size=60),
    seed=st.none() | st.integers(0, 9),
)
def test_texts_are_numbered_in_order(stems, ends, seed):
    texts = [stems[k % len(stems)] + end for k, end in ends]
    check_numbers(texts, None if seed is None else np.random.default_rng(seed).random(len(texts)) < 0.5)


NAMES = ["a", "b", "v"]


def texts(count=200):
    random = np.random.default_rng(0)
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=int(k)) for k in random.integers(0, 30, count)]
    users = [f"user-{k:05}" for k in random.zipf(1.5, count) % 1000]
    return pyarrow.table({"a": users, "b": days, "v": random.integers(1, 9, count)})


def objects(folder):
    """The objects of a work by name."""
    paths = [Path(place) / name for place, _, names in os.walk(folder) for name in names]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def run(work, order):
    """Run all steps, those of a stage in any order and some twice; the objects of each stage when it is done."""
    left = {}
    while (todo := next((x for x in progress(work) if x.done != x.total), None)).name != "commit":
        for number in order.permutation([*range(todo.total), 0][: todo.total + 1]).tolist():
            step(work, todo.name, number)
        left |= objects(work)
    return left


def test_steps_in_any_order_leave_the_same(tmp_path):
    table = texts(80)
    files(tmp_path / "in", table, [30], 20)
    found = []
    for seed in range(2):
        work = tmp_path / f"work{seed}"
        plan(tmp_path / "in", tmp_path / f"{seed}.zarr", None, "CSR", work=work, columns=NAMES, duplicates="sum")
        found.append(run(work, np.random.default_rng(seed)))
        commit(work)
        check(tmp_path / f"{seed}.zarr", table, NAMES)
    first, second = ({key: x for key, x in some.items() if key.split("/")[0] in running.LABELS} for some in found)
    assert first == second
    assert len(first) > 10


def fresh():
    for cached in (labelling._fences, labelling._numbered, labelling._seal_of_spans, works._seal_of, works._numbered):
        cached.cache_clear()


def test_an_object_of_labels_that_is_damaged_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(labelling, "_SHARE", 4)
    table, random = texts(30), np.random.default_rng(0)
    files(tmp_path / "in", table, [], 20)
    plan(tmp_path / "in", tmp_path / "a.zarr", None, "CSR", work=tmp_path / "w", columns=NAMES, duplicates="sum")
    while (todo := next(x for x in progress(tmp_path / "w") if x.done != x.total)).name not in ("sample", "pack"):
        for number in range(todo.total):
            step(tmp_path / "w", todo.name, number)
    work, whole, told = works_at(tmp_path / "w"), objects(tmp_path / "w"), 0

    def found():
        for number in range(labelling.merges(work)):
            labelling.merge(work, number)
        labelling.number(work, 0)
        return [x.tolist() for x in labelling.chunk_of(work, 0)[0]]

    known = found()
    assert objects(tmp_path / "w") == whole
    for key in ("labels/0", "labels/1", "spans", "fences/0", "merge/0", "number/0"):
        for at in random.integers(len(whole[key]), size=4).tolist():
            (tmp_path / "w" / key).write_bytes(whole[key][:at] + bytes([whole[key][at] ^ 64]) + whole[key][at + 1 :])
            fresh()
            try:
                assert found() == known
            except ContainerError:
                told += 1
            (tmp_path / "w" / key).write_bytes(whole[key])
    assert told >= 12


def test_columns_of_folders_and_filters(tmp_path):
    table = texts()
    for year in (2024, 2025):
        for kind in ("x y", "z"):
            folder = tmp_path / "in" / f"year={year}" / f"kind={kind.replace(' ', '%20')}"
            folder.mkdir(parents=True)
            pyarrow.parquet.write_table(table, folder / "a.parquet", row_group_size=70)
    names = ["year", "kind", "a", None]
    wanted = [("year", ">", 2024), ("v", "<=", 4)]
    build(tmp_path / "in", tmp_path / "a.zarr", None, "CSF", columns=names, duplicates="sum", filters=wanted)
    tensor = read(tmp_path / "a.zarr")
    kept = table.filter(pyarrow.compute.field("v") <= 4)
    users = sorted(set(kept["a"].to_pylist()))
    assert tensor.shape == (2026, 2, len(users))
    found = build(str(tmp_path / "in" / "year=*"), tmp_path / "c.zarr", None, "CSF", columns=names, duplicates="sum")
    assert found.counts == {}
    assert int(reduce(read(tmp_path / "c.zarr"), None, "sum")) == 4 * len(table)
    assert tensor.labels("kind").tolist() == ["x y", "z"]
    assert tensor.labels("a").tolist() == users
    assert [int(reduce(tensor[2025, k], None, "sum")) for k in range(2)] == [len(kept)] * 2
    with pytest.raises(OptionError, match=r"columns\.color"):
        build(tmp_path / "in", tmp_path / "b.zarr", None, "CSF", columns=names, filters=[("color", "=", 1)])
    with pytest.raises(OptionError, match="filters"):
        build(lambda k: None, tmp_path / "b.zarr", 3, "CVEC", count=1, filters=wanted)


@pytest.mark.parametrize(
    "filters",
    [
        [],
        [[]],
        [()],
        "v>1",
        ("v", ">", 1),
        {"v": 1},
        [("v", "~", 1)],
        [("a", ">", 3)],
        [("v", "=", "x")],
        [("a", "in", 3)],
    ],
    ids=str,
)
def test_filters_that_are_none_are_told_before_anything_is_read(tmp_path, filters):
    table = texts()
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(OptionError, match=r"^filters: "):
        build(tmp_path / "a.parquet", tmp_path / "a.zarr", None, "COO", columns=["a", "v"], filters=filters)
    assert not (tmp_path / "a.zarr").exists()


def test_columns_of_one_name_are_refused(tmp_path):
    columns = [pyarrow.array([0, 1]), pyarrow.array([1, 0]), pyarrow.array([1.0, 2.0])]
    pyarrow.parquet.write_table(pyarrow.table(columns, names=["i", "i", "v"]), tmp_path / "a.parquet")
    with pytest.raises(OptionError, match=r"^columns\.i: several columns have this name; rename them"):
        build(tmp_path / "a.parquet", tmp_path / "a.zarr", 2, "CVEC", columns=["i", "v"])


def test_sizes_that_are_given(tmp_path):
    table = texts()
    files(tmp_path / "in", table, [], 50)
    options = {"columns": NAMES, "duplicates": "sum"}
    build(tmp_path / "in", tmp_path / "a.zarr", (2000, None), "CSR", **options)
    tensor = read(tmp_path / "a.zarr")
    assert (tensor.shape[0], len(tensor.labels("a"))) == (2000, len(set(table["a"].to_pylist())))
    with pytest.raises(ArrayError, match="labels for a size of 3; pass None"):
        build(tmp_path / "in", tmp_path / "b.zarr", (3, None), "CSR", **options)
    assert not (tmp_path / "b.zarr").exists()
    with pytest.raises(OptionError, match="only Parquet files"):
        build(lambda k: None, tmp_path / "b.zarr", None, "CVEC", count=1)


def test_columns_that_are_no_labels(tmp_path):
    table = texts(20).append_column("x", pyarrow.array(np.arange(20.0)))
    table = table.append_column("n", pyarrow.array(["a", None] * 10))
    files(tmp_path / "in", table, [10], 5)
    for name, what in (("x", "holds double"), ("n", "row group 0, row 1: columns.n: is null")):
        with pytest.raises(ArrayError, match=what):
            build(tmp_path / "in", tmp_path / "b.zarr", None, "CSR", columns=[name, "b", "v"])
    pyarrow.parquet.write_table(table.set_column(0, "a", table["v"]), tmp_path / "in" / "z.parquet")
    with pytest.raises(ArrayError, match=r"z\.parquet: columns\.a: has integers, and .* has text"):
        build(tmp_path / "in", tmp_path / "b.zarr", None, "CSR", columns=NAMES)


@pytest.mark.parametrize(
    "type",
    [
        "int8", "uint64", "float32", "float64", "bool", "string", "large_string", "string_view", "date32",
        pyarrow.timestamp("us", "UTC"), pyarrow.duration("s"), pyarrow.decimal128(21, 2), "binary", "time32[s]", "null",
        pyarrow.list_(pyarrow.int8()), *(pyarrow.dictionary("int8", x) for x in ("int64", "float64", "string")),
    ],
    ids=str,
)  # fmt: skip
def test_a_table_is_as_its_file(tmp_path, type):
    """Each column of either is coordinates, labels or values, or is refused."""
    if type == "string_view" and int(pyarrow.__version__.partition(".")[0]) < 21:
        pytest.skip("this pyarrow writes no such column")
    type = pyarrow.type_for_alias(type) if isinstance(type, str) else type
    plain = type.value_type if pyarrow.types.is_dictionary(type) else type
    numbers = [0, 2, 1, 2]
    if plain == "null":
        column = pyarrow.nulls(4)
    elif pyarrow.types.is_list(plain):
        column = pyarrow.array([[x] for x in numbers], plain)
    elif plain in ("string", "large_string", "string_view", "binary"):
        column = pyarrow.array(map(str, numbers), plain)
    else:
        number = pyarrow.array(numbers, "int32" if plain in ("date32", "time32[s]") else "int64")
        column = number.cast(plain)
    column = column.dictionary_encode().cast(type) if plain != type else column
    other = pyarrow.array([1, 0, 3, 2])
    tables = [[pyarrow.array(numbers), other, column]]
    if plain == type or plain == "string":  # a dictionary of numbers is labels in a table; Parquet has no such type
        tables.append([column, other, other])
    for columns in tables:
        table = pyarrow.table(columns, NAMES_OF_COLUMNS)
        assert described(from_table, table, NAMES_OF_COLUMNS[:2], "v", "COO") == described(built, tmp_path, table)


NAMES_OF_COLUMNS = ["i", "j", "v"]


def built(folder, table):
    pyarrow.parquet.write_table(table, folder / "a.parquet")
    build(folder / "a.parquet", folder / "a.zarr", None, "COO", columns=NAMES_OF_COLUMNS, overwrite=True)
    return read(folder / "a.zarr")


def described(make, *args):
    """The entries by label and whether there are labels; None for a column that is refused."""
    try:
        tensor = make(*args)
    except ArrayError:
        return None
    labels = None if tensor.dims is None else tensor.labels("i")
    (i, j), values = tensor.unpack()
    entries = sorted(zip(map(str, i if labels is None else labels[i]), j.tolist(), values.tolist(), strict=True))
    return entries, labels is not None
