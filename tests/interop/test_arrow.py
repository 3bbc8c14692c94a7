"""Long tables with labels: of pandas, polars, pyarrow and duckdb, in memory, in every container, and in streams."""

import datetime
import pickle

import numpy as np
import pytest
from helpers.blocks import rows_at_once
from helpers.places import vector

import binsparse_levels as bl

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")
dataset = pytest.importorskip("pyarrow.dataset")

DIMS = ["user", "country", "item", "day"]
FORMAT = "dense, sparse, sparse, sparse"


def columns(n=3000):
    rng = np.random.default_rng(0)
    return {
        "value": rng.integers(1, 9, n).astype(float),
        "user": rng.integers(0, 50, n),
        "country": [f"Länd {k}" for k in rng.integers(0, 5, n)],
        "item": [f"i{k}" * (k % 3) for k in rng.integers(0, 40, n)],
        "day": [datetime.date(2026, 1, 1) + datetime.timedelta(int(k)) for k in rng.integers(0, 9, n)],
    }


def of_pandas():
    return pytest.importorskip("pandas").DataFrame(columns()).astype({"country": "category"})


def of_duckdb():
    rows = pa.table(columns())  # noqa: F841, the query names it
    return pytest.importorskip("duckdb").sql("select * from rows")


TABLES = {
    "pandas": of_pandas,
    "polars": lambda: pl.DataFrame(columns()).with_columns(pl.col("country").cast(pl.Categorical)),
    "pyarrow": lambda: pa.table(columns()),
    "reader": lambda: pa.table(columns()).to_reader(max_chunksize=100),
    "duckdb": of_duckdb,
    "lazy frame": lambda: pl.LazyFrame(columns()),
    "dataset": lambda: dataset.dataset(pa.table(columns())),
    "scanner": lambda: dataset.dataset(pa.table(columns())).scanner(),
}


def sums():
    return pl.DataFrame(columns()).group_by(DIMS).agg(pl.col("value").sum()).select([*DIMS, "value"]).sort(DIMS)


def plain(table):
    """The rows of `to_table` as polars has them, without categories."""
    types = {"user": pl.Int64, "country": pl.String, "item": pl.String, "day": pl.Date}
    return pl.from_arrow(table).with_columns(pl.col(k).cast(v) for k, v in types.items()).sort(DIMS)


@pytest.mark.parametrize("name", TABLES)
def test_every_library_there_and_back(name):
    tensor = bl.from_table(TABLES[name](), DIMS, "value", FORMAT, duplicates="sum")
    tensor.check()
    assert tensor.shape == (50, 5, 40 if "" not in columns()["item"] else len(set(columns()["item"])), 9)
    assert tensor.dims == tuple(DIMS)
    table = bl.to_table(tensor)
    assert plain(table).equals(sums())
    assert [pa.types.is_dictionary(table.schema.field(name).type) for name in DIMS] == [False, True, True, False]
    assert pytest.importorskip("pandas").api.types.is_string_dtype(table.to_pandas()["country"].cat.categories)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("suffix", [".h5", ".zarr", ".npz", ".bspnpy", ".bspra", ".nc", ".zarr.zip"])
def test_labels_lie_beside_the_tensor_in_every_container(tmp_path, suffix):
    tensor = bl.from_table(TABLES["polars"](), DIMS, "value", FORMAT, duplicates="sum", attributes={"unit": "m"})
    path = tmp_path / f"a{suffix}"
    bl.write(path, tensor)
    for again in (
        bl.read(path),
        bl.open(path),
        pickle.loads(pickle.dumps(bl.open(path))),
        bl.read(path).convert("COO"),
    ):
        assert plain(bl.to_table(again)).equals(sums())
        assert dict(again.attributes) == {"unit": "m"}
    small = bl.from_table(pa.table({"a": ["x"], "value": [1.0]}), ["a"], "value")
    bl.write(path, small, overwrite=True)
    assert bl.read(path).labels("a").tolist() == ["x"]
    bl.write(path, vector(), overwrite=True)
    assert bl.read(path).dims is None
    with bl.open(path) as opened:
        assert opened.dims is None


@pytest.mark.parametrize("place", ["group", "mapping"])
def test_labels_of_an_overwritten_tensor_go_with_it(tmp_path, place):
    path = {} if place == "mapping" else f"{tmp_path / 'a.h5'}:group"
    bl.write(path, bl.from_table(pa.table({"a": ["x", "y"], "value": [1.0, 2.0]}), ["a"], "value"))
    bl.write(path, vector(), overwrite=True)
    assert bl.read(path).equals(vector())
    if place == "mapping":
        assert not [name for name in path if name.startswith("labels")]


def test_labels_are_read_when_they_are_asked_for(tmp_path):
    path = tmp_path / "a.h5"
    bl.write(path, bl.from_table(pa.table({"a": ["x", "y"], "value": [1.0, 2.0]}), ["a"], "value"))
    with bl.open(path) as opened:
        assert opened.dims == ("a",)
        assert opened.labels("a").tolist() == ["x", "y"]
    with pytest.raises(bl.ContainerError, match="closed"):
        opened.labels("a")


def test_many_large_labels(tmp_path):
    """More than the header may hold."""
    names = [f"label number {k} of many" for k in range(100_000)]
    tensor = bl.from_table(pa.table({"a": names, "value": np.arange(100_000.0)}), ["a"], "value")
    bl.write(tmp_path / "a.zarr", tensor)
    again = bl.read(tmp_path / "a.zarr")
    assert again.labels("a").tolist() == sorted(names)
    assert bl.to_table(again)["a"].to_pylist() == sorted(names)


LABELS = {
    "text": (["b", "", "ä\0", "🙂"], None),
    "view": (["b", "a"], pa.string_view()),
    "bool": ([True, False], None),
    "int": ([7, -3], pa.dictionary(pa.int8(), pa.int64())),
    "float": ([0.5, -1.5], pa.dictionary(pa.int8(), pa.float64())),
    "date": ([datetime.date(2026, 1, 1), datetime.date(1900, 1, 1)], None),
    "time": ([datetime.datetime(2026, 1, 1, 3), datetime.datetime(1900, 1, 1)], pa.timestamp("us")),
    "zone": ([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)], pa.timestamp("ms", "Europe/Berlin")),
}


@pytest.mark.parametrize("kind", LABELS)
def test_types_of_labels(tmp_path, kind):
    values, type = LABELS[kind]
    column = pa.array(values, type.value_type if isinstance(type, pa.DictionaryType) else type)
    column = column.dictionary_encode() if isinstance(type, pa.DictionaryType) else column
    tensor = bl.from_table(pa.table({"a": column, "value": np.ones(len(values))}), ["a"], "value")
    bl.write(tmp_path / "a.npz", tensor)
    table = bl.to_table(bl.read(tmp_path / "a.npz"))
    ordered = values if isinstance(type, pa.DictionaryType) else sorted(values)  # categories have their own order
    assert table["a"].to_pylist() == pa.array(ordered, column.type).to_pylist()
    assert len(tensor.labels("a")) == len(values)
    if kind in ("text", "bool", "float", "date"):
        assert tensor.labels("a").tolist() == ordered


def test_equal_categories_are_one_label():
    repeated = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["b", "b", "a"]))
    before = pa.DictionaryArray.from_arrays(pa.array([0], pa.int64()), pa.array(["c"]))
    for column, labels in ((repeated, ["b", "a"]), (pa.chunked_array([before, repeated]), ["c", "b", "a"])):
        table = pa.table({"x": column, "value": np.ones(len(column))})
        tensor = bl.from_table(table, ["x"], "value", "CVEC", duplicates="sum")
        assert tensor.labels("x").tolist() == labels
        assert tensor.sel(x="b") == 2
        assert bl.to_pandas(tensor).x.tolist() == labels


def test_coordinates_with_equal_labels_are_one_category():
    tensor = bl.pack_dense(np.eye(3), "CSR").with_labels({0: ["b", "a", "b"]}, dims=["x", "y"])
    assert bl.to_table(tensor)["x"].to_pylist() == ["b", "a", "b"]
    assert bl.to_pandas(tensor).x.tolist() == ["b", "a", "b"]


def test_categories_keep_their_order_and_those_without_rows():
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0]), ["low", "middle", "high"])
    tensor = bl.from_table(pa.table({"a": column, "value": [1.0, 2.0]}), ["a"], "value")
    assert tensor.to_dense().tolist() == [2, 0, 1]
    assert tensor.labels("a").tolist() == ["low", "middle", "high"]


def test_labels_that_are_given():
    table = pa.table({"a": ["y", "x"], "b": [30, 10], "value": [1.0, 2.0]})
    given = {"a": ["x", "y", "z"], "b": [10, 20, 30]}
    tensor = bl.from_table(table, ["a", "b"], "value", "CSR", labels=given)
    assert tensor.to_dense().tolist() == [[2, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert bl.to_table(tensor).to_pydict() == {"a": ["x", "y"], "b": [10, 30], "value": [2.0, 1.0]}
    with pytest.raises(bl.ArrayError, match="'y' is not one of the given labels"):
        bl.from_table(table, ["a", "b"], "value", labels={"a": ["x"]})
    with pytest.raises(bl.ArrayError, match="expected different labels"):
        bl.from_table(table, ["a", "b"], "value", labels={"a": ["x", "x", "y"]})
    with pytest.raises(bl.OptionError, match="none of the dimensions"):
        bl.from_table(table, ["a", "b"], "value", labels={"c": ["x"]})


def test_rows_are_counted_without_values():
    tensor = bl.from_table(pa.table({"a": ["x", "y", "x"]}), ["a"], duplicates="sum")
    assert tensor.to_dense().tolist() == [2, 1]
    assert bl.to_table(tensor, dims=["name"], values="count").to_pydict() == {"name": ["x", "y"], "count": [2, 1]}


def test_empty_tables():
    empty = pa.table(
        {"a": pa.array([], pa.string()), "b": pa.array([], pa.int64()), "value": pa.array([], pa.float64())}
    )
    tensor = bl.from_table(empty, ["a", "b"], "value")
    assert tensor.number_of_stored_values == 0
    assert bl.to_table(tensor).num_rows == 0
    assert bl.from_table(empty, ["a", "b"], "value", shape=(3, 4)).shape == (3, 4)


@pytest.mark.parametrize(
    ("table", "dims", "error", "message"),
    [
        (
            {"a": ["x", None], "value": [1, 2]},
            ["a"],
            bl.ArrayError,
            r"columns\.a: contains nulls; fill them, or pass nulls='drop'",
        ),
        ({"a": [1, None], "value": [1, 2]}, ["a"], bl.ArrayError, r"columns\.a: contains nulls"),
        ({"a": [1, 2], "value": [1, None]}, ["a"], bl.ArrayError, r"columns\.value: contains nulls"),
        ({"a": [1, 2], "value": ["p", "q"]}, ["a"], bl.ArrayError, r"columns\.value: contains string, but numbers"),
        ({"a": ["x", "x"], "value": [1, 2]}, ["a"], bl.ArrayError, "duplicate"),
        ({"a": [[1], [2]], "value": [1, 2]}, ["a"], bl.ArrayError, "cast them to text"),
        ({"a": [1.0, 2.0], "value": [1, 2]}, ["a"], bl.ArrayError, r"columns\.a: contains double; cast it to integers"),
        ({"a": [1, -2], "value": [1, 2]}, ["a"], bl.ArrayError, "contains -2, which is no coordinate"),
        ({"a": [1, 2], "value": [1, 2]}, ["b"], bl.OptionError, r"columns\.b: no such column; the table has a, value"),
        ({"a": [1, 2], "value": [1, 2]}, ["a", "a"], bl.OptionError, "different columns"),
        ({"a": [1, 2], "value": [1, 2]}, "a", bl.OptionError, "a list of names"),
    ],
)
def test_faulty_tables(table, dims, error, message):
    with pytest.raises(error, match=message):
        bl.from_table(pa.table(table), dims, "value")


def test_what_is_no_table():
    for table in (pl.LazyFrame({"abc": [1]}), dataset.dataset(pa.table({"abc": [1]}))):
        with pytest.raises(bl.OptionError, match=r"columns\.abd: no such column; did you mean abc\?"):
            bl.from_table(table, ["abd"])
    with pytest.raises(TypeError, match=r"got builtins\.list; pass a table"):
        bl.from_table([1], ["a"])


def test_tensors_without_names():
    tensor = bl.pack([[0, 1], [1, 0]], 2.0, (2, 2), "CSR")
    assert bl.to_table(tensor).to_pydict() == {"dim_0": [0, 1], "dim_1": [1, 0], "value": [2.0, 2.0]}
    blocks = bl.pack_dense(np.eye(4), "CSR").convert("dense, sparse, dense(2)", map="0/2, 1/2, 0%2, 1%2")
    assert bl.to_table(blocks.convert("COO", map="0, 1").drop_fill()).num_rows == 4
    with pytest.raises(bl.FormatError, match="Arrow does not support complex128"):
        bl.to_table(tensor.astype(complex))
    with pytest.raises(bl.OptionError, match="expected 3 different names"):
        bl.to_table(tensor, dims=["a"])
    named = tensor.with_labels(dims=["value", "j"])
    with pytest.raises(bl.OptionError, match=r"got .'value', 'j', 'value'.; pass dims= or values="):
        bl.to_table(named)
    assert bl.to_table(named, values="v").column_names == ["value", "j", "v"]
    with pytest.raises(IndexError, match="none has one"):
        tensor.labels("a")


def test_dimensions_take_their_names_along():
    tensor = bl.from_table(pa.table(columns()), DIMS, "value", FORMAT, duplicates="sum")
    turned = tensor.permute((2, 0, 3, 1))
    assert turned.dims == ("item", "user", "day", "country")
    assert plain(bl.to_table(turned).select([*DIMS, "value"])).equals(sums())
    assert tensor.astype(np.float32).drop_fill().with_attributes({"a": 1}).convert("CSF").dims == tensor.dims
    with pytest.raises(IndexError, match="they are user, country, item, day"):
        tensor.labels("nothing")


@pytest.mark.parametrize("opened", [False, True])
def test_views_have_the_labels_of_what_they_select(tmp_path, opened):
    tensor = bl.from_table(pa.table(columns()), DIMS, "value", FORMAT, duplicates="sum")
    if opened:
        bl.write(tmp_path / "a.h5", tensor)
        tensor = bl.open(tmp_path / "a.h5")
    countries, items = tensor.labels("country").tolist(), tensor.labels("item").tolist()
    part = tensor[:, ::-2, 3][:, :, 1:]
    assert part.dims == ("user", "country", "day")
    assert part.labels("country").tolist() == countries[::-2]
    wanted = sums().filter(pl.col("country").is_in(countries[::-2]), item=items[3])
    wanted = wanted.filter(pl.col("day") != tensor.labels("day").tolist()[0]).drop("item")
    for view in (part, part.T.T, part.load("COO"), pickle.loads(pickle.dumps(part))):
        rows = pl.from_arrow(bl.to_table(view)).cast({"user": pl.Int64, "country": pl.String, "day": pl.Date})
        assert rows.sort("user", "country", "day").equals(wanted)
    assert tensor[2, :, [5, 0, 5]].dims == ("item", "country", "day")
    assert tensor[2, :, [5, 0, 5]].labels("item").tolist() == [items[5], items[0], items[5]]
    assert tensor[:, :, np.array([5, 1])][..., [1, 0], :].labels("item").tolist() == [items[1], items[5]]
    bl.write(store := {}, part)
    assert bl.read(store).labels("country").tolist() == countries[::-2]
    mapped = tensor.convert("COO", map="1, 0, (2 3)")
    assert mapped[:, 1:].labels("country").tolist() == mapped.load()[:, 1:].labels("country").tolist() == countries[1:]
    assert mapped[:, 1:].without_map().T.dims == tuple(DIMS[::-1])


def test_views_of_coordinates_without_labels():
    tensor = bl.from_table(pa.table({"a": ["x", "y"], "value": [1.0, 2.0]}), ["a"], "value", shape=(4,))
    assert tensor[1:].labels("a").tolist() == ["y"]
    assert tensor[3:].labels("a").tolist() == []
    with pytest.raises(bl.ArrayError, match="without labels come before others"):
        tensor[::-1].labels("a")


def chunks():
    """Tables of several libraries, each with a part of the rows."""
    table = pa.table(columns())
    yield table[:1000]
    yield pl.from_arrow(table[1000:1100])
    yield pytest.importorskip("pandas").DataFrame(columns())[1100:]


@pytest.mark.parametrize("rows", [10**6, 500])
def test_streams_of_labels(tmp_path, rows):
    given = {"dims": DIMS, "values": "value", "duplicates": "sum", "memory": 2**34}
    with rows_at_once(rows):
        bl.write_from(chunks(), tmp_path / "a.h5", (50, 5, 100, 10), FORMAT, **given)
    tensor = bl.read(tmp_path / "a.h5")
    assert tensor.shape == (50, 5, 100, 10)
    assert plain(bl.to_table(tensor)).equals(sums())
    bl.convert(tmp_path / "a.h5", tmp_path / "b.zarr", "CSF", memory=2**34)
    assert plain(bl.to_table(bl.open(tmp_path / "b.zarr"))).equals(sums())
    with pytest.raises(bl.ArrayError, match="outside dimension 2 of size 7"):
        bl.write_from(chunks(), tmp_path / "c.h5", (50, 5, 7, 10), FORMAT, **given)
    with pytest.raises(bl.OptionError, match="dims="):
        bl.write_from(chunks(), tmp_path / "c.h5", (50, 5, 7, 10), FORMAT, labels={}, memory=2**34)


def test_columns_that_change():
    tables = [pa.table({"a": [1], "value": [1.0]}), pa.table({"a": ["x"], "value": [1.0]})]
    given = {"dims": ["a"], "values": "value", "memory": 2**34}
    with pytest.raises(bl.ArrayError, match="contains string where integers were before"):
        bl.write_from(tables, {}, 5, "sparse", **given)
    with pytest.raises(bl.ArrayError, match="contains int64, but its labels are large_string"):
        bl.write_from(tables[::-1], {}, 5, "sparse", **given)


def damaged(change):
    store = {}
    table = pa.table({"a": ["äö", "x", ""], "b": [3, 1, 2], "value": [1.0, 2.0, 3.0]})
    bl.write(store, bl.from_table(table, ["a", "b"], "value", labels={"a": ["äö", "x", ""], "b": [1, 2, 3]}))
    key = next(key for key in store["binsparse"] if key.endswith("labels"))
    header = {**store["binsparse"], key: dict(store["binsparse"][key])}
    store = {**store, "binsparse": header}
    change(store, header[key])
    return store


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda store, header: store.update(labels_0_offsets=np.array([0, 3, 2, 5])), bl.ArrayError, "ascend"),
        (lambda store, header: store.update(labels_0_offsets=np.array([0, 4, 5, 9])), bl.ArrayError, "ascend"),
        (lambda store, header: store.update(labels_0_offsets=np.array([-1, 4, 5, 5])), bl.ArrayError, "ascend"),
        (lambda store, header: store.update(labels_0_offsets=np.array([0, 1, 5, 5])), bl.ArrayError, "character"),
        (
            lambda store, header: store.update(labels_0_offsets=np.array([], np.int64)),
            bl.ArrayError,
            "the end of the last",
        ),
        (lambda store, header: store.update(labels_0_offsets=np.zeros(9, np.int64)), bl.ArrayError, "at most 3 labels"),
        (lambda store, header: store.update(labels_0=np.full(5, 255, np.uint8)), bl.ArrayError, "UTF-8"),
        (lambda store, header: store.update(labels_0=np.zeros(5)), bl.ArrayError, "expected uint8"),
        (lambda store, header: store.update(labels_1=np.zeros((2, 2), np.int64)), bl.ArrayError, "one dimension"),
        (
            lambda store, header: store.pop("labels_1"),
            bl.ArrayError,
            "labels_1: expected int64 of one dimension, got nothing",
        ),
        (lambda store, header: header.update(labels=["text", "object"]), bl.DescriptorError, "unknown type"),
        (lambda store, header: header.update(labels=["text", 3]), bl.DescriptorError, "unknown type"),
        (lambda store, header: header.update(labels=["text"]), bl.DescriptorError, "for each of 2 dimensions"),
        (lambda store, header: header.update(dims=["a", "a"]), bl.DescriptorError, "for each of 2 dimensions"),
        (lambda store, header: header.update(dims=["a", 3]), bl.DescriptorError, "for each of 2 dimensions"),
        (lambda store, header: header.update(values=None), bl.DescriptorError, "for each of 2 dimensions"),
    ],
)
def test_damaged_labels(change, error, message):
    store = damaged(change)
    with pytest.raises(error, match=message):
        bl.read(store)
    with pytest.raises(error, match=message):
        bl.to_table(bl.open(store))
    assert bl.to_table(bl.read(damaged(lambda *_: None))).num_rows == 3


def test_a_checksum_covers_labels(tmp_path):
    path = tmp_path / "a.bspnpy"
    bl.write(path, bl.from_table(pa.table({"a": ["x", "y"], "value": [1.0, 2.0]}), ["a"], "value"))
    store = {}
    bl.write(store, bl.read(path), checksum=True)
    store["labels_0"] = np.frombuffer(b"xz", np.uint8)
    for reading in (bl.read, lambda place: bl.to_table(bl.open(place))):
        with pytest.raises(bl.ContainerError, match="labels_0: checksum mismatch"):
            reading(store)


def test_coordinates_without_labels(tmp_path):
    table = pa.table({"a": ["x"], "value": [1.0]})
    bl.write(store := {}, bl.from_table(table, ["a"], "value", shape=(5,)))
    store["indices_0"] = np.array([3], np.int32)
    with pytest.raises(bl.ArrayError, match="coordinate 3 has none of the 1 labels"):
        bl.to_table(bl.read(store))


def test_coordinates_of_the_types_that_are_stored():
    tensor = bl.pack([[0, 1], [2, 299]], [1.5, 2.5], (2, 300), "CSR")
    narrow = bl.to_table(tensor, dtype="stored")
    assert narrow.to_pydict() == bl.to_table(tensor).to_pydict()
    assert [str(x) for x in narrow.schema.types][2] == "double"
    with pytest.raises(bl.OptionError, match="pass 'stored' or None"):
        bl.to_table(tensor, dtype="int8")


@pytest.mark.parametrize("known", ["datetime64[ns]", "datetime64[s]", "datetime64[D]"])
@pytest.mark.parametrize("given", ["datetime64[ns]", "datetime64[us]", "datetime64[D]"])
def test_times_come_back_as_times_in_any_unit(known, given):
    """Labels have the unit that they are given in. A time that has none there is no label."""
    pandas = pytest.importorskip("pandas")
    days = np.array(["2026-01-03", "2026-01-01", "2026-01-02"], given)
    table = pa.table({"user": ["ann", "bob", "ann"], "day": days, "value": [1.0, 2, 3]})
    tensor = bl.from_table(table, ["user", "day"], "value", "CSR", labels={"day": np.sort(days).astype(known)})
    assert tensor.labels("day").dtype == known
    assert sorted(tensor.sel(day=slice("2026-01-01", "2026-01-02")).unpack()[1].tolist()) == [2, 3]
    back = bl.to_table(tensor).to_pandas()
    assert sorted(back[pandas.to_datetime(back.day) >= pandas.Timestamp("2026-01-02")].value) == [1, 3]
    if given != "datetime64[D]":
        late = pa.table({"user": ["ann"], "day": days[:1].astype("M8[us]") + np.timedelta64(1, "us"), "value": [1.0]})
        with pytest.raises(bl.ArrayError, match=r"cast one|not one of the given labels"):
            bl.from_table(late, ["user", "day"], "value", "CSR", labels={"day": np.sort(days).astype(known)})
