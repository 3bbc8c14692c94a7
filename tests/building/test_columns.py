"""Any table, by any door, is what a plain group-by makes of its rows, or an error of ours."""

import ast
import collections
import datetime
import decimal

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyarrow import feather

import binsparse_levels as bl
from binsparse_levels.cli import main

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
CATEGORIES = [pa.dictionary(pa.int8(), text) for text in (pa.string(), pa.string_view())]
DAY, TIME = datetime.date(2024, 2, 28), datetime.datetime(2024, 2, 28, 23, 59)
LABELS = {
    **{kind: ["", "b", "a ü", "007"] for kind in [*TEXTS, *CATEGORIES]},
    pa.bool_(): [True, False],
    pa.date32(): [DAY, DAY.replace(year=1969)],
    pa.timestamp("us"): [TIME, TIME.replace(year=1969)],
    pa.decimal128(5, 2): [decimal.Decimal("1.50"), decimal.Decimal("-2.25")],
}
REFUSED = {
    pa.list_(pa.int8()): [[1], []],
    pa.float64(): [1.0, 2.5],
    pa.binary(): [b"x"],
    pa.time64("us"): [TIME.time()],
}
REFUSED |= {pa.null(): [None], pa.decimal128(38, 0): [decimal.Decimal(10) ** 37]}
VALUES = [*INTEGERS, pa.float32(), pa.float64(), pa.bool_()]  # duckdb has no float16


def extremes(kind):
    info = np.iinfo(kind.to_pandas_dtype())
    return st.sampled_from([0, 1, info.max - 1, info.max])


@st.composite
def columns(draw, count):
    """The type of a column of coordinates, and its items."""
    kind = draw(st.sampled_from([*INTEGERS, *LABELS, *REFUSED]))
    one = extremes(kind) if pa.types.is_integer(kind) else st.sampled_from({**LABELS, **REFUSED}[kind])
    with_nulls = st.none() | one if draw(st.booleans()) else one
    return kind, draw(st.lists(with_nulls, min_size=count, max_size=count))


@st.composite
def tables(draw):
    """A table of Arrow, in chunks, some of them empty: columns a, b and the values v."""
    count = draw(st.integers(0, 6))
    drawn = [draw(columns(count)) for _ in "ab"]
    kind = draw(st.sampled_from(VALUES))
    values = st.booleans() if kind == pa.bool_() else extremes(kind) if pa.types.is_integer(kind) else st.just(0.5)
    drawn.append(
        (kind, draw(st.lists(st.none() | values if draw(st.booleans()) else values, min_size=count, max_size=count)))
    )
    cuts = sorted(draw(st.lists(st.integers(0, count), max_size=2)))
    made = {}
    for name, (kind, items) in zip("abv", drawn, strict=True):
        parts = [items[x:y] for x, y in zip([0, *cuts], [*cuts, count], strict=True)]
        is_view = kind in (pa.string_view(), CATEGORIES[-1])  # of which pyarrow makes no categories
        plain = pa.large_string() if is_view else kind
        arrays = [pa.array(part, plain) for part in parts]
        if kind == CATEGORIES[-1]:
            coded = [array.dictionary_encode() for array in arrays]
            arrays = [pa.DictionaryArray.from_arrays(x.indices, x.dictionary.cast(pa.string_view())) for x in coded]
        elif is_view:
            arrays = [array.cast(kind) for array in arrays]
        made[name] = pa.chunked_array(arrays)
    return pa.table(made)


def plain(item):
    """An item, as it comes back: decimals become text."""
    return str(item) if isinstance(item, decimal.Decimal | list) else item


def grouped(table, nulls):
    """The value of each cell by plain loops; None if a null is an error, or a cell has several values."""
    found = collections.defaultdict(list)
    for *cell, value in zip(*(column.to_pylist() for column in table.columns), strict=True):
        if None not in (*cell, value):
            found[tuple(map(plain, cell))].append(value)
        elif nulls == "error":
            return None
    return {cell: values[0] for cell, values in found.items()} if all(len(x) == 1 for x in found.values()) else None


def must_work(table):
    """True if a table has only types that are coordinates or labels, and coordinates that sizes can count."""
    for column in table.columns[:-1]:
        if column.type in REFUSED:
            return False
        if pa.types.is_integer(column.type) and any(x is not None and x >= 2**63 - 1 for x in column.to_pylist()):
            return False
    return True


def frame_of(table):
    return pl.DataFrame({name: pl.from_arrow(table[name]) for name in table.column_names})


def from_table(table, nulls, folder):
    return bl.from_table(table, ["a", "b"], "v", "COO", nulls=nulls)


def from_polars(table, nulls, folder):
    return bl.from_table(frame_of(table), ["a", "b"], "v", "COO", nulls=nulls)


def write_from(table, nulls, folder):
    some = (table[:2], table[2:])
    bl.write_from(some, stored := {}, None, "COO", dims=["a", "b"], values="v", nulls=nulls)
    return bl.read(stored)


def build(table, nulls, folder):
    texts = [x.value_type for x in table.schema.types if pa.types.is_dictionary(x)]
    assume(pa.string_view() not in texts)  # of which pyarrow writes no categories
    pq.write_table(table, folder / "t.parquet", row_group_size=2)
    bl.build(folder / "t.parquet", folder / "t.zarr", None, "COO", columns=["a", "b", "v"], nulls=nulls, overwrite=True)
    return bl.read(folder / "t.zarr")


def relation(table, nulls, folder):
    given = duckdb.from_arrow(table)
    bl.build(given, folder / "t.zarr", None, "COO", columns=["a", "b", "v"], nulls=nulls, overwrite=True)
    return bl.read(folder / "t.zarr")


def convert(table, nulls, folder):
    feather.write_feather(table, folder / "t.arrow", compression="uncompressed")
    command = ["convert", str(folder / "t.arrow"), str(folder / "t.h5"), "--columns", "a,b,v", "--overwrite"]
    if main([*command, "--nulls", nulls]):  # an error of others is raised
        raise bl.BinsparseError("printed")
    return bl.read(folder / "t.h5")


DOORS = [from_table, from_polars, write_from, relation, convert, pytest.param(build, marks=pytest.mark.slow)]


@pytest.mark.parametrize("door", DOORS)
@given(table=tables(), nulls=st.sampled_from(["error", "drop"]))
def test_any_table_is_a_group_by(tmp_path_factory, door, table, nulls):
    expected = grouped(table, nulls)
    try:
        made = door(table, nulls, tmp_path_factory.mktemp("tables"))
    except bl.BinsparseError:
        assert expected is None or not must_work(table)
        return
    assert expected is not None
    rows = zip(*(column.to_pylist() for column in bl.to_table(made).columns), strict=True)
    found = {tuple(map(plain, cell)): value for *cell, value in rows}
    assert found == expected
    assert made.dtype == (table["v"].type.to_pandas_dtype() if len(expected) else made.dtype)


def test_columns_of_polars_that_arrow_does_not_know():
    frame = pl.DataFrame({"i": [0, 1], "v": [1.0, 2.0], "s": pl.Series([3, 4], dtype=pl.Int128)})
    for table in (frame, frame.lazy()):
        assert bl.from_table(table, ["i"], "v", "CVEC").to_dense().tolist() == [1.0, 2.0]
        with pytest.raises(bl.ArrayError, match=r"_pli128.*cast the column"):
            bl.write_from(table, {}, None, "CVEC", dims=["i"], values="s")


def test_categories_with_a_null(tmp_path):
    coded = pa.array(["x", None, "y"]).dictionary_encode(null_encoding="encode")
    table = pa.table({"a": coded, "v": [1.0, 2.0, 3.0]})
    with pytest.raises(bl.ArrayError, match=r"columns\.a: contains nulls.*nulls='drop'"):
        bl.from_table(table, ["a"], "v", "CVEC")
    assert bl.from_table(table, ["a"], "v", "CVEC", nulls="drop").labels("a").tolist() == ["x", "y"]


@pytest.mark.parametrize("kind", ["int8", "int64", "uint64"])
def test_labels_of_integers_of_another_type(kind):
    table = pa.table({"a": pa.array([100, 7], kind), "v": [1.0, 2.0]})
    assert bl.from_table(table, ["a"], "v", "CVEC", labels={"a": [7, 100]}).to_dense().tolist() == [2.0, 1.0]


def test_errors_of_a_query_are_ours(tmp_path):
    given = duckdb.sql("SELECT CASE WHEN range = 9000 THEN 'x' ELSE '1' END::INT AS a, 1 AS v FROM range(10000)")
    for door in (
        lambda: bl.from_table(given, ["a"], "v"),
        lambda: bl.write_from(given, {}, None, "COO", dims=["a"], values="v"),
    ):
        with pytest.raises(bl.ArrayError, match=r"table: .*'x'"):
            door()
    with pytest.raises(bl.ArrayError, match=r"table: .*'x'"):
        bl.build(given, tmp_path / "a.zarr", None, "COO", columns=["a", "v"])


def test_a_shape_that_two_rows_tell_is_no_reason_for_gigabytes(tmp_path):
    table = pa.table({"u": [3 * 10**8, 5], "i": [0, 1], "v": [1.0, 2.0]})
    pq.write_table(table, tmp_path / "t.parquet")
    told = {"dims": ["u", "i"], "values": "v"}
    with pytest.raises(bl.LimitError, match=r"shape: .*labels=.* DCSR"):
        bl.from_table(table, **told, format="CSR")
    with pytest.raises(bl.LimitError, match=r"shape: .*labels=.* DCSR"):
        bl.write_from(table, {}, (None, 2), "CSR", **told)
    with pytest.raises(bl.LimitError, match=r"shape: .*as text.* DCSR"):
        bl.build(tmp_path / "t.parquet", tmp_path / "t.zarr", None, "CSR", columns=["u", "i", "v"])
    assert bl.from_table(table, **told, format="DCSR").shape == (3 * 10**8 + 1, 2)
    assert bl.from_table(table, **told, format="CSR", labels={"u": [5, 3 * 10**8]}).shape == (2, 2)


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        ("1", "0.5", 0.5),
        ("1", "1e3", 1e3),
        ("1", "-7", -7),
        ("", "4", 4),
        ("9007199254740993", "3", 3),
        ("1.5", "2", 2),
    ],
)
def test_values_of_csv_files_have_the_type_of_all_rows(tmp_path, first, last, found):
    place = tmp_path / "a.csv"
    place.write_text("i,v\n" + "".join(f"{k},{first}\n" for k in range(150_000)) + f"150000,{last}\n")
    assert main(["convert", str(place), str(tmp_path / "a.h5"), "--columns", "i,v", "--nulls", "drop"]) == 0
    made = bl.read(tmp_path / "a.h5")
    assert made.dtype == np.dtype(int if "." not in first and isinstance(found, int) else float)
    assert made[150_000] == found
    assert first == "" or made[0] == made.dtype.type(first)


@given(st.lists(st.tuples(st.text("ab'", max_size=2), st.integers(0, 3)), min_size=1, max_size=8))
def test_a_repeated_row_is_named_by_its_labels(rows):
    table = pa.table({"name": [name for name, _ in rows], "number": [number for _, number in rows]})
    repeated = {row for row in rows if rows.count(row) > 1}
    if not repeated:
        assert bl.from_table(table, ["name", "number"]).nnz == len(rows)
        return
    with pytest.raises(bl.ArrayError, match=r"duplicates='sum'") as error:
        bl.from_table(table, ["name", "number"])
    text = str(error.value).partition(" is given more than once")[0]
    assert ast.literal_eval(text.removeprefix("coords: ")) in repeated


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8, unique=True))
def test_negative_integers_need_labels(numbers):
    table = pa.table({"x": numbers})
    if min(numbers) >= 0:
        assert bl.from_table(table, ["x"]).shape == (max(numbers) + 1,)
        return
    with pytest.raises(bl.ArrayError, match=rf"^columns\.x: contains {min(numbers)}, which is no coord") as error:
        bl.from_table(table, ["x"])
    options = eval(f"dict({str(error.value).partition('; pass ')[2]})", {"numpy": np, "column": numbers})
    assert bl.from_table(table, ["x"], **options).labels("x").tolist() == sorted(numbers)
