"""Tables: labels in their order, nulls, relations of DuckDB, and tensors that are merged with tables."""

import datetime
import gzip
import os

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.blocks import alike
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels.building.tables import file_tables
from binsparse_levels.thresholds import THRESHOLDS


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(THRESHOLDS, "step_entries", 500)


def rows(count=3000, seed=0):
    rng = np.random.default_rng(seed)
    users = [f"user {k} ü" for k in rng.integers(0, 400, count)]
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(int(k)) for k in rng.integers(0, 90, count)]
    return pa.table({"user": users, "day": days, "n": rng.integers(0, 50, count), "v": rng.integers(1, 9, count) * 1.0})


def parts(folder, table, files=3, **options):
    folder.mkdir()
    size = -(-len(table) // files)
    for k in range(files):
        pq.write_table(table[k * size : (k + 1) * size], folder / f"{k}.parquet", row_group_size=200, **options)
    return folder


def expected(table, dims, format="CSF", **options):
    """What from_table makes, whose labels are in the order of the coordinates."""
    labels = {x: sorted(set(table[x].to_pylist())) for x in dims if not pa.types.is_integer(table[x].type)}
    given = {name: pa.array(x, table[name].type) for name, x in labels.items()}
    return bl.from_table(table, dims, "v", format, labels=given, fill_value=None, duplicates="sum", **options)


DIMS = ["user", "day", "n"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["parquet", "relation", "work", "pool"])
def test_labels_are_in_their_order(tmp_path, kind):
    table = rows()
    options = {"columns": [*DIMS, "v"], "duplicates": "sum"}
    source = duckdb.from_arrow(table) if kind == "relation" else parts(tmp_path / "in", table)
    options |= {"work": tmp_path / "work"} if kind == "work" else {}
    if kind == "pool":
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(2) as client:
            bl.build(source, tmp_path / "a.zarr", None, "CSF", client=client, **options)
    else:
        bl.build(source, tmp_path / "a.zarr", None, "CSF", **options)
    built, whole = bl.read(tmp_path / "a.zarr"), expected(table, DIMS, shape=None)
    alike(built, whole)
    assert built.dims == tuple(DIMS)
    for name in ("user", "day"):
        assert built.labels(name).tolist() == whole.labels(name).tolist()
    bl.build(source, tmp_path / "b.zarr", (500, None, 60), "CSF", **{**options, "work": tmp_path / "other"})
    assert bl.read(tmp_path / "b.zarr").shape == (500, whole.shape[1], 60)


def test_files_of_several_types_are_one_source(tmp_path):
    columns = {"i": ["uint64", "int64"], "v": ["int32", "float64"]}
    for k in range(2):
        types = {name: pa.array(np.arange(2, dtype=kinds[k]) + 2 * k) for name, kinds in columns.items()}
        pq.write_table(pa.table(types), tmp_path / f"{k}.parquet")
    bl.build(str(tmp_path), tmp_path / "a.zarr", (5,), "CVEC", columns=["i", "v"])
    built = bl.read(tmp_path / "a.zarr")
    assert (built.dtype, built.to_dense().tolist()) == (np.dtype(float), [0, 1, 2, 3, 0])
    pq.write_table(pa.table({"i": [4], "v": [4]}), tmp_path / "2.parquet")
    with pytest.raises(bl.ArrayError, match="no type represents all values"):
        bl.build(str(tmp_path), tmp_path / "b.zarr", (5,), "CVEC", columns=["i", "v"])
    bl.build(str(tmp_path), tmp_path / "b.zarr", (5,), "CVEC", columns=["i", "v"], dtype=float)
    assert bl.read(tmp_path / "b.zarr").to_dense().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", [None, (None, 500, None)])
@pytest.mark.parametrize("size", [500, 10**6])
@pytest.mark.parametrize("format", ["CSF", "sparse, dense, sparse @ 2, 0, 1"])
def test_an_iterator_of_tables_tells_the_sizes(tmp_path, monkeypatch, shape, size, format):
    monkeypatch.setattr(THRESHOLDS, "step_entries", size)
    table, options = rows(), {"dims": DIMS, "values": "v", "duplicates": "sum", "dtype": "f4", "fill_value": 0}
    parts = (table[k * 300 : (k + 1) * 300] for k in range(10))
    bl.write_from(parts, tmp_path / "a.h5", shape, format, **options)
    found, whole = bl.read(tmp_path / "a.h5"), expected(table, DIMS, format)
    assert found.shape == (whole.shape[0], shape[1] if shape else whole.shape[1], whole.shape[2])
    assert (found.dtype, found.fill_value) == (np.float32, 0)
    assert found.labels("user").tolist() == whole.labels("user").tolist()
    for one, other in zip(found.unpack()[0], whole.unpack()[0], strict=True):
        assert one.tolist() == other.tolist()
    assert found.values.tolist() == whole.values.tolist()


def test_a_table_goes_on_where_it_was_stopped(tmp_path):
    source = parts(tmp_path / "in", rows())
    options = {"columns": [*DIMS, "v"], "duplicates": "sum", "work": tmp_path / "work"}

    def stopped(stage, done, total):
        if stage == "partition" and done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bl.build(source, tmp_path / "a.zarr", None, "CSF", progress=stopped, **options)
    stages = []
    bl.build(source, tmp_path / "a.zarr", None, "CSF", progress=lambda *told: stages.append(told), **options)
    assert "rows" not in [name for name, *_ in stages]
    alike(bl.read(tmp_path / "a.zarr"), expected(rows(), DIMS))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "labels",
    [
        pa.array(["b", "a", None, "b"]),
        pa.array([True, False, None, True]),
        pa.array([1.5, 0.25, None, 1.5], pa.float64()).cast(pa.decimal128(6, 2)),
        pa.array([3, 1, None, 3], pa.timestamp("us")),
        pa.array(["b", "a", None, "b"]).dictionary_encode(),
        pa.array([5, 0, None, 5], pa.int32()),
    ],
    ids=lambda x: str(x.type),
)
def test_types_of_labels_and_nulls(tmp_path, labels):
    table = pa.table({"u": labels, "i": [0, 1, 2, 1], "v": [1.0, 2.0, 4.0, 8.0]})
    pq.write_table(table, tmp_path / "t.parquet")
    options = {"columns": ["u", "i", "v"], "duplicates": "sum"}
    shown = r', which SELECT \* FROM .* WHERE "u" IS NULL shows'
    for source, query in ((tmp_path / "t.parquet", shown), (duckdb.from_arrow(table), "")):
        with pytest.raises(bl.ArrayError, match=rf"columns\.u: contains nulls{query}; fill them"):
            bl.build(source, tmp_path / "a.zarr", None, "CSR", overwrite=True, **options)
        bl.build(source, tmp_path / "a.zarr", None, "CSR", overwrite=True, nulls="drop", **options)
        built = bl.read(tmp_path / "a.zarr")
        assert built.number_of_stored_values == 3
        assert float(built.values.sum()) == 11
    with pytest.raises(bl.ArrayError, match=r"columns\.u: contains nulls"):
        bl.write_from(table, {}, (9, 3), "CSR", dims=["u", "i"], values="v")
    stored = {}
    bl.write_from(table, stored, (9, 3), "CSR", dims=["u", "i"], values="v", nulls="drop")
    assert sorted(bl.read(stored).values.tolist()) == [1.0, 2.0, 8.0]


def test_columns_of_folders_counts_and_sql(tmp_path):
    table = rows()
    for year in (2023, 2024):
        os.makedirs(tmp_path / "in" / f"year={year}")
        pq.write_table(table, tmp_path / "in" / f"year={year}" / "a.parquet")
    bl.build(tmp_path / "in", tmp_path / "a.zarr", None, "CSF", columns=["year", "n", None], duplicates="sum")
    built = bl.read(tmp_path / "a.zarr")
    assert built.shape[0] == 2025
    assert int(built.values.sum()) == 6000
    listed = duckdb.from_arrow(table)  # noqa: F841 (found by its name)
    relation = duckdb.sql("SELECT n, day, v FROM listed WHERE n < 10")
    bl.build(relation, tmp_path / "b.zarr", None, "CSR", columns=["n", "day", "v"], duplicates="sum")
    few = table.filter(pa.compute.less(table["n"], 10))
    alike(bl.read(tmp_path / "b.zarr"), expected(few, ["n", "day"], "CSR"))
    bl.write_from(
        duckdb.sql("SELECT n, v FROM listed WHERE n < 10"), tmp_path / "c.h5", (10,), "sparse",
        dims=["n"], values="v", duplicates="sum",
    )  # fmt: skip
    assert float(bl.read(tmp_path / "c.h5").values.sum()) == float(np.sum(few["v"]))


@pytest.mark.parametrize("pattern", ["", "/*", "/*/*.parquet"])
def test_rows_of_a_folder_that_cannot_be_listed_are_not_left_out(tmp_path, monkeypatch, pattern):
    for k in range(2):
        (tmp_path / f"rows/{k}").mkdir(parents=True)
        pq.write_table(pa.table({"i": [k], "j": [0], "v": [1.0]}), tmp_path / f"rows/{k}/a.parquet")
    given = {"columns": ["i", "j", "v"]}
    bl.build(f"{tmp_path}/rows{pattern}", tmp_path / "a.zarr", (2, 1), "CSR", **given)
    assert bl.read(tmp_path / "a.zarr").number_of_stored_values == 2

    def failing(real):
        def listed(path="."):
            if str(path).rstrip("/").endswith("rows/1"):
                raise OSError(5, "Input/output error", str(path))
            return real(path)

        return listed

    monkeypatch.setattr(os, "scandir", failing(os.scandir))
    monkeypatch.setattr(os, "listdir", failing(os.listdir))
    with pytest.raises(bl.ContainerError, match="Input/output"):
        bl.build(f"{tmp_path}/rows{pattern}", tmp_path / "b.zarr", (2, 1), "CSR", **given)


@pytest.mark.parametrize("target", ["nothing", "."])
def test_rows_behind_a_link_that_leads_nowhere_are_not_left_out(tmp_path, target):
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({"i": [0], "j": [0], "v": [1.0]}), tmp_path / "rows/a.parquet")
    os.symlink(target, tmp_path / "rows/link")  # or in a circle
    with pytest.raises(bl.ContainerError, match=r"No such file|Too many levels"):
        bl.build(f"{tmp_path}/rows", tmp_path / "b.zarr", (2, 1), "CSR", columns=["i", "j", "v"])


def test_columns_that_are_refused(tmp_path):
    table = pa.table({"f": [0.0, 1.0], "i": [0, 1], "l": [[1], [2]], "v": ["a", "b"]})
    pq.write_table(table, tmp_path / "t.parquet")
    for columns, told in (
        (["f", "i", "i"], r"columns\.f: contains double; cast"),
        (["l", "i", "i"], r"columns\.l: labels of type list"),
        (["i", "f", "v"], r"columns"),
        (["i", "i", "v"], r"columns\.v: contains string"),
    ):
        with pytest.raises(bl.ArrayError, match=told):
            bl.build(tmp_path / "t.parquet", tmp_path / "a.zarr", (2, 2), "CSR", columns=columns)
    with pytest.raises(bl.OptionError, match="did you mean"):
        bl.build(tmp_path / "t.parquet", tmp_path / "a.zarr", None, "CSR", columns=["ii", "f", "v"])
    assert os.listdir(tmp_path) == ["t.parquet"]


@pytest.mark.parametrize("size", [1, 500])
def test_a_tensor_is_merged_with_a_table(tmp_path, monkeypatch, size):
    monkeypatch.setattr(THRESHOLDS, "step_entries", size)
    table = pl.DataFrame({"u": ["b", "a"], "i": [0, 1], "v": [1.0, 2.0]})
    old = bl.from_table(table, ["u", "i"], "v", "CSR", fill_value=0)
    bl.write(tmp_path / "old.h5", old)
    more = pl.DataFrame({"u": ["c", "b"], "i": [2, 0], "v": [5.0, 7.0]})
    options = {"dims": ["u", "i"], "values": "v", "duplicates": "sum", "fill_value": 0}
    with bl.open(tmp_path / "old.h5") as opened:
        labels = ["a", "b", "c"]
        for given in ([opened, more], [more, opened]):
            bl.write_from(given, tmp_path / "new.h5", (3, 3), "CSR", overwrite=True, **options)
            merged = bl.read(tmp_path / "new.h5")
            assert merged.labels("u").tolist() == labels
            dense = dict(zip(labels, merged.to_dense().tolist(), strict=True))
            assert dense == {"a": [0, 2, 0], "b": [8, 0, 0], "c": [0, 0, 5]}


@pytest.mark.parametrize("structure", [None, "symmetric_lower"])
@pytest.mark.parametrize("format", ["CSR", "dense(2)", "band, sparse"])
def test_tensors_are_merged_as_the_user_sees_them(format, structure):
    one = bl.pack([[1, 2, 2], [0, 1, 2]], [1.0, 2.0, 3.0], (3, 3), "COO", structure=structure)
    stored = {}
    if structure is None:
        one = one.convert(format)
    bl.write_from([one, one], stored, (3, 3), "CSR", duplicates="sum")
    assert bl.read(stored).to_dense().tolist() == (2 * one.to_dense()).tolist()
    with pytest.raises(bl.ArrayError, match="fill_value"):
        bl.write_from([one], {}, (3, 3), "CSR", fill_value=1.0)


@pytest.mark.parametrize("map", [None, "(0 1)"])
def test_a_view_is_merged_as_the_user_sees_it(map):
    whole = bl.pack([[0, 1, 2], [2, 0, 1]], [1.0, 2.0, 3.0], (3, 3), "sparse" if map else "CSR", map=map)
    stored = {}
    bl.write_from([whole[::-1], whole[:]], stored, (3, 3), "CSR", duplicates="sum")
    assert bl.read(stored).to_dense().tolist() == (whole.to_dense()[::-1] + whole.to_dense()).tolist()


@pytest.mark.parametrize("dtype", ["f8", "?", "u1"])
def test_a_tensor_without_entries_keeps_its_labels_when_it_is_merged(dtype):
    empty = bl.pack([[], []], np.empty(0, dtype), (2, 3), "CSR").with_labels({0: ["a", "b"]})
    stored, names = {}, list(empty.dims)
    bl.write_from([empty, empty], stored, (2, 3), "CSR", dims=names, values="value")
    assert bl.read(stored).labels(0).tolist() == ["a", "b"]


# Files of texts, and batches without rows

IDS = {
    "numbers": (["1", "20", "3", "0"], None),
    "zeros before": (["007", "7", "07"], ["007", "7", "07"]),
    "a letter at the end": ([*map(str, range(90_000)), "043902348X"], [*map(str, range(90_000)), "043902348X"]),
    "zeros before at the end": ([*map(str, range(90_000)), "00501"], [*map(str, range(90_000)), "00501"]),
    "texts": (["a", "b"], ["a", "b"]),
    "more digits than an integer has": (["1" * 18, "0" * 18], ["1" * 18, "0" * 18]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("ids", IDS)
def test_ids_of_csv_files_are_integers_or_texts_as_they_are_written(tmp_path, ids):
    written, labels = IDS[ids]
    place = tmp_path / "a.csv"
    place.write_text("u,i,n\n" + "".join(f"{x},{k % 7},1.5\n" for k, x in enumerate(written)))
    shape = (len(written) + 20, 7)
    stored = {}
    bl.write_from(file_tables(str(place), ["u", "i"]), stored, shape, "COO", dims=["u", "i"], values="n")
    for made in (
        bl.read(stored),
        bl.from_table(file_tables(str(place), ["u", "i"]), ["u", "i"], "n", shape=shape),
    ):
        found = made.labels("u")
        assert (None if found is None else found.tolist()) == (None if labels is None else sorted(labels))
        assert made.number_of_stored_values == len(written)
        assert made.labels("i") is None
        if labels is None:
            assert sorted(made.unpack()[0][0].tolist()) == sorted(map(int, written))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["a", "b c", "ü"]), st.integers(-5, 5)), min_size=1),
    st.sampled_from(["\t", ";", ",", "::", "|", " "]), st.sampled_from(["", "#", "%%"]), st.booleans(), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_texts_are_tables(tmp_path_factory, rows, separator, comment, header, packed, ones):
    """A text with any separator, comments before its rows, a header or none, and gzip, is the table of its rows."""
    if separator == " ":
        rows = [(i, name.replace(" ", ""), v) for i, name, v in rows]
    text = "".join(f"{comment} 1 2, 3\n" for _ in range(3) if comment)
    text += separator.join("iuv") + "\n" if header else ""
    text += "".join(separator.join(map(str, row)) + "\n" for row in rows)
    place = tmp_path_factory.getbasetemp() / ("a.tsv.gz" if packed else "a.tsv")
    place.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    i, u, v = "iuv" if header else "012"
    options = {"separator": separator} if not header else {}
    options |= {"comment": comment} if comment else {}
    table = file_tables(str(place), [i, u, None if ones else v], header=header, **options)
    bl.write_from(table, stored := {}, None, "COO", dims=[i, u], values=None if ones else v, duplicates="sum")
    sums = {}
    for row in rows:
        sums[row[:2]] = sums.get(row[:2], 0) + (1 if ones else row[2])
    made = bl.read(stored)
    (first, second), values = made.unpack()
    assert dict(zip(zip(first.tolist(), made.labels(u)[second], strict=True), values.tolist(), strict=True)) == sums


@pytest.mark.parametrize("separator", ["ab", ":;"])
def test_a_separator_is_one_character(tmp_path, separator):
    (tmp_path / "a.txt").write_text(separator.join(["0", "1", "2"]) + "\n")
    with pytest.raises(bl.OptionError, match="separator: expected a character, perhaps repeated"):
        file_tables(str(tmp_path / "a.txt"), ["0", "1", "2"], separator=separator, header=False)


def test_a_csv_file_that_changes_its_types_is_an_error_of_ours(tmp_path):
    place = tmp_path / "a.csv"
    rows = [f"{k},{k % 7},2024-01-01\n" for k in range(100_000)]
    place.write_text("u,i,d\n" + "".join(rows) + "3,3,never\n")
    with pytest.raises(bl.ArrayError, match="never"):
        bl.write_from(file_tables(str(place), ["d", "u"]), {}, (9, 10**6), "COO", dims=["d", "u"], values="i")


@pytest.mark.parametrize("sizes", [(0, 3), (0, 0, 2, 0), (2, 0), (0,), (0, 0)], ids=str)
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
def test_batches_without_rows_change_nothing(sizes, make):
    """Their columns have any type: pandas knows none."""

    def columns(size):
        return {"u": [f"u{k}" for k in range(size)], "i": list(range(size)), "v": [5] * size}

    options = {"dims": ["u", "i"], "values": "v", "duplicates": "sum"}
    stored = {}
    some = max(sizes) > 0
    bl.write_from(
        (make(columns(k)) for k in sizes), stored, (5, 5), "CSR", **options, **({} if some else {"dtype": int})
    )
    made = bl.read(stored)
    assert made.dtype == np.dtype(int)
    assert made.number_of_stored_values == max(sizes)
    assert (made.labels("u").tolist() if some else []) == [f"u{k}" for k in range(max(sizes))]


@pytest.mark.parametrize("door", ["write_from", "build"])
def test_chunks_without_entries_do_not_tell_the_type(tmp_path, door):
    chunks = [([[], []], []), ([[], []], []), ([[1], [2]], [7 + 1j])]
    if door == "build":
        bl.build(lambda k: chunks[k], tmp_path / "a.zarr", (3, 3), "CSR", count=3)
    else:
        bl.write_from(chunks, tmp_path / "a.zarr", (3, 3), "CSR")
    assert bl.read(tmp_path / "a.zarr").values.tolist() == [7 + 1j]
