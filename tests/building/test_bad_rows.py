"""Rows that are no entries: an error names the first, and what is left out is counted, whatever the chunks."""

import decimal
from collections import Counter

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import ArrayError, OptionError, build, commit, plan, progress, read, skipped, step, write_from
from binsparse_levels.building import labelling, planning

NAMES = ["a", "b", "v"]
NUMBERS = st.one_of(st.integers(0, 4), st.sampled_from([None, -1, 5, 2**40]))
FLOATS = st.one_of(st.integers(0, 4).map(float), st.sampled_from([None, -1.0, 5.0, 0.5, float("nan"), float("inf")]))
DECIMALS = st.one_of(st.integers(0, 4), st.sampled_from([None, -1, 5, 0.5, 2**70])).map(
    lambda x: x if x is None else decimal.Decimal(x)
)
WRITTEN = st.sampled_from([None, "0", " 3 ", "4.0", "-1", "5", "0.5", "x", "", "+2"])
TEXTS = st.one_of(st.sampled_from("pqr"), st.none())
COLUMNS = {
    "int64": (NUMBERS, pyarrow.int64(), None),
    "uint64": (st.one_of(st.integers(0, 4), st.sampled_from([None, 5, 2**63])), pyarrow.uint64(), None),
    "float": (FLOATS, pyarrow.float64(), "int64"),
    "decimal": (DECIMALS, pyarrow.decimal128(38, 2), "int64"),
    "written": (WRITTEN, pyarrow.string(), "int32"),
    "text": (TEXTS, pyarrow.string(), None),
}
VALUES = st.one_of(st.integers(-9, 9), st.none())


def reason(x, size):
    """Why this is no coordinate, by the words of Python alone; None if it is one."""
    if x is None:
        return "null"
    try:
        number = float(x)
    except ValueError:
        return "no whole number"
    if not number.is_integer():
        return "no whole number"
    return "negative" if number < 0 else "out of range" if number >= size else None


def expected(rows, kinds, sizes):
    """The entries, and the reason of each bad row by its number."""
    bad, cells = {}, Counter()
    for at, (*coords, value) in enumerate(rows):
        for name, x, kind, size in zip(NAMES, coords, kinds, sizes, strict=False):
            told = ("null" if x is None else None) if kind == "text" else reason(x, size)
            if told:
                bad.setdefault(at, f"{name} is {told}")
        if value is None:
            bad.setdefault(at, "v is null")
        if at not in bad:
            key = tuple(x if kind == "text" else int(float(x)) for x, kind in zip(coords, kinds, strict=True))
            cells[key] += value
    return cells, bad


def found(tensor):
    coords, values = tensor.unpack()
    labelled = {} if tensor._metadata.labels is None else tensor._metadata.labels.columns
    columns = [
        tensor.labels(name)[x].tolist() if name in labelled else x.tolist()
        for name, x in zip(NAMES, coords, strict=False)
    ]
    return dict(zip(zip(*columns, strict=True), values.tolist(), strict=True))


def drawn(data):
    kinds = [data.draw(st.sampled_from(sorted(COLUMNS))) for _ in range(2)]
    columns = [COLUMNS[kind][0] for kind in kinds]
    rows = data.draw(st.lists(st.tuples(*columns, VALUES), max_size=40))
    arrays = [pyarrow.array([row[k] for row in rows], COLUMNS[kind][1]) for k, kind in enumerate(kinds)]
    arrays.append(pyarrow.array([row[2] for row in rows], pyarrow.int64()))
    casts = {name: COLUMNS[kind][2] for name, kind in zip(NAMES, kinds, strict=False) if COLUMNS[kind][2]}
    return kinds, rows, pyarrow.table(arrays, NAMES), {"dtype": {**casts, "v": "int64"}}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(labelling, "_SHARE", 8)
    monkeypatch.setattr(labelling, "_BLOCKS", (16, 64))
    monkeypatch.setattr(planning, "rows_within", lambda *_, **__: 12)


@given(data=st.data())
def test_bad_rows_of_files_are_left_out_and_told(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("bad")
    kinds, rows, table, options = drawn(data)
    (folder / "in").mkdir()
    size, at = data.draw(st.sampled_from([7, 25, 50])), 0
    places = []
    for number in range(-(-len(table) // size) or 1):
        part, group = table[at : at + size], data.draw(st.sampled_from([3, 10, 50]))
        path = str(folder / "in" / f"{number}.parquet")
        pyarrow.parquet.write_table(part, path, row_group_size=group)
        places += [f"{path}, row group {k // group}, row {k % group}" for k in range(len(part))]
        at += size
    filters = data.draw(st.sampled_from([None, [("v", ">=", 0)]]))
    keep = [k for k, row in enumerate(rows) if filters is None or (row[2] is not None and row[2] >= 0)]
    sizes = [None if kind == "text" else 5 for kind in kinds]
    cells, bad = expected([rows[k] for k in keep], kinds, sizes)
    given = (folder / "in", folder / "a.zarr", sizes, "CSR")
    options |= {"columns": NAMES, "duplicates": "sum", "filters": filters}
    if bad:
        with pytest.raises(ArrayError) as error:
            build(*given, **options)
        assert any(f"{places[keep[k]]}: columns." in str(error.value) for k in bad)
    if data.draw(st.booleans()):
        told = build(*given, bad="skip", overwrite=True, work=folder / "work", **options)
        assert build(*given, bad="skip", overwrite=True, work=folder / "work", **options) == told
        assert skipped(folder / "work") == told
    else:
        told = build(*given, bad="skip", overwrite=True, **options)
    assert told.counts == Counter(bad.values())
    assert sorted(told.places) == sorted(f"{places[keep[k]]}: {why}" for k, why in bad.items())
    assert found(read(folder / "a.zarr")) == cells


@given(data=st.data())
def test_bad_rows_of_streams_are_left_out_and_told(data):
    kinds, rows, table, options = drawn(data)
    cells, bad = expected(rows, kinds, [9 if kind == "text" else 5 for kind in kinds])
    shape, target = [9 if kind == "text" else 5 for kind in kinds], {}
    options |= {"dims": NAMES[:2], "values": "v", "duplicates": "sum"}
    chunks = [table[at : at + 15] for at in range(0, len(table) or 1, 15)]
    if bad:
        with pytest.raises(ArrayError, match=r"row \d+|nulls"):
            write_from(iter(chunks), {}, shape, "CSR", **options)
    told = write_from(iter(chunks), target, shape, "CSR", bad="skip", **options)
    assert told.counts == Counter(bad.values())
    assert told.places == [f"row {k}: {why}" for k, why in sorted(bad.items())]
    assert found(read(target)) == cells


@pytest.mark.parametrize("known", [["p", "q"], [0, 1]])
@pytest.mark.parametrize("first", [True, False])
def test_a_chunk_of_nulls_has_no_type(known, first):
    some = pyarrow.table({"a": known, "v": [1.0, 2.0]})
    nulls = pyarrow.table({"a": pyarrow.nulls(2), "v": [3.0, 4.0]})
    target = {}
    told = write_from(
        iter([nulls, some][:: 1 if first else -1]), target, (2,), "CVEC", dims=["a"], values="v", bad="skip"
    )
    assert told.counts == {"a is null": 2}
    assert read(target).to_dense().tolist() == [1, 2]
    assert (read(target).labels("a") is None) == (known == [0, 1])


def test_files_that_a_filter_leaves_empty_have_no_labels(tmp_path):
    (tmp_path / "in").mkdir()
    values = [None, None, None, None, 1, None, None, None]
    table = pyarrow.table(
        {"a": [None, "p", "p", "p", "q", None, None, "p"], "v": pyarrow.array(values, pyarrow.int64())}
    )
    for at in (0, 7):
        pyarrow.parquet.write_table(table[at : at + 7], tmp_path / "in" / f"{at}.parquet", row_group_size=3)
    build(tmp_path / "in", tmp_path / "a.zarr", None, "CVEC", columns=["a", "v"], filters=[("v", ">=", 0)])
    tensor = read(tmp_path / "a.zarr")
    assert (tensor.labels("a").tolist(), tensor.to_dense().tolist()) == (["q"], [1])


def test_the_first_hundred_are_listed_and_all_are_counted(tmp_path):
    def chunk(k):
        return [np.arange(-60, 60), np.full(120, k)], np.ones(120)

    target = tmp_path / "a.zarr"
    told = build(chunk, target, (50, 2), "CSR", count=3, bad="skip")
    assert len(told.places) == 100
    assert told.places[0].endswith("chunk, row 0: coords[0] is negative")
    assert read(target).number_of_stored_values == 100
    with pytest.raises(OptionError, match="bad"):
        build(chunk, target, (50, 2), "CSR", count=3, bad="drop", overwrite=True)


def test_steps_tell_what_they_have_left_out(tmp_path):
    table = pyarrow.table({"a": [1, None, 7, 2] * 10, "b": ["x", "y", None, "z"] * 10, "v": range(40)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=8)
    work = tmp_path / "work"
    given = {"columns": NAMES, "duplicates": "sum", "bad": "skip"}
    plan(tmp_path / "a.parquet", tmp_path / "a.zarr", (5, None), "CSR", work=work, **given)
    assert skipped(work) == ({}, [])
    while (todo := next(x for x in progress(work) if x.done != x.total)).name != "commit":
        for number in range(todo.total):
            step(work, todo.name, number)
            step(work, todo.name, number)
    told = skipped(work)
    assert told.counts == {"a is null": 10, "a is out of range": 10}
    assert commit(work) == told == skipped(work) == commit(work)
    assert read(tmp_path / "a.zarr").labels("b").tolist() == ["x", "z"]


def test_numbers_become_labels_and_decimals_values(tmp_path):
    prices = [decimal.Decimal("2.50"), decimal.Decimal("1.25")]
    pyarrow.parquet.write_table(pyarrow.table({"a": [10, 9], "b": [0, 1], "v": prices}), tmp_path / "a.parquet")
    given = (tmp_path / "a.parquet", tmp_path / "a.zarr", None, "COO")
    with pytest.raises(ArrayError, match=r"columns\.v: holds decimal.*by dtype=\{'v': 'float64'\}"):
        build(*given, columns=NAMES)
    build(*given, columns=NAMES, dtype={"a": str, "v": "float64"})
    tensor = read(tmp_path / "a.zarr")
    assert tensor.labels("a").tolist() == ["10", "9"]
    assert tensor.to_dense().tolist() == [[2.5, 0], [0, 1.25]]
    with pytest.raises(OptionError, match="'c' is none of the columns"):
        build(*given, columns=NAMES, dtype={"c": "int64"}, overwrite=True)
    with pytest.raises(OptionError, match=r"dtype\.a"):
        build(*given, columns=NAMES, dtype={"a": "nonsense"}, overwrite=True)
