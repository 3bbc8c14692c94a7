"""Selection by label, for what the law of composition does not draw: types, duplicates, order, many labels."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl

DAYS = [datetime.date(2026, 1, 5), datetime.date(2026, 2, 1), datetime.date(2026, 2, 28), datetime.date(2026, 3, 30)]
TYPES = {
    "text": (pa.string(), ["", "a", "aé", "b", "日本", "日本語", "𝄞" * 9, "x" * 300]),
    "uint8": (pa.uint8(), [0, 1, 7, 255]),
    "int64": (pa.int64(), [-(2**63), -1, 0, 2**53, 2**53 + 1]),
    "float64": (pa.float64(), [-np.inf, -0.5, 1.5, 3.0]),
    "bool": (pa.bool_(), [False, True]),
    "date": (pa.date32(), DAYS),
    "time": (pa.timestamp("ms"), [datetime.datetime(2026, 1, 1, h) for h in range(4)]),
}
OTHERS = ["nobody", None, -5, 256, 0.25, np.nan, 2**70, b"a", datetime.date(1999, 1, 1), (1, 2)]


def pack_of(size):
    return bl.pack([range(size)], range(1, size + 1), (size,), "CVEC")


def labelled(labels, kind=None, size=None):
    """A vector that counts its cells from 1, with these labels."""
    size = len(labels) if size is None else size
    given = pa.array(labels, kind)
    table = pa.table({"x": given[:0], "value": pa.array([], pa.int64())})
    named = bl.from_table(table, ["x"], "value", "CVEC", shape=(size,), labels={"x": given})
    return pack_of(size)._labelled(named._metadata.labels)


@given(st.data(), st.sampled_from(sorted(TYPES)))
def test_labels_of_every_type(data, name):
    """The oracle is a loop over Python's values."""
    kind, values = TYPES[name]
    labels = data.draw(st.lists(st.sampled_from(values), unique=True, min_size=1))
    tensor = labelled(labels, kind, len(labels) + data.draw(st.integers(0, 1)))
    for label in labels:
        assert tensor.sel(x=label) == labels.index(label) + 1
    some = data.draw(st.lists(st.sampled_from(labels), max_size=4))
    assert tensor.sel(x=some).to_dense().tolist() == [labels.index(x) + 1 for x in some]
    for kind_of_several in (tuple, iter, dict.fromkeys, lambda x: np.array(x, object), lambda x: pa.array(x, kind)):
        assert tensor.sel(x=kind_of_several(labels)).to_dense().tolist() == list(range(1, len(labels) + 1))
    for other in OTHERS:
        if other not in labels:
            with pytest.raises(KeyError, match="no label"):
                tensor.sel(x=other)
    first, last = data.draw(st.sampled_from(values)), data.draw(st.sampled_from(values))
    got = labelled(labels, kind).sel(x=slice(first, last))
    assert got.to_dense().tolist() == [k + 1 for k, x in enumerate(labels) if first <= x <= last]
    if got.shape[0] != len(labels):
        assert got.labels("x").astype(object).tolist() == [x for x in labels if first <= x <= last]


@pytest.mark.parametrize("name", TYPES)
def test_labels_of_arrays(name, tmp_path):
    """They are those that a table gives, in memory and in a file, and stay with other values."""
    kind, values = TYPES[name]
    expected, given = labelled(values, kind), labelled(values, kind).labels("x")
    for array in (given, given.tolist() if name not in ("date", "time", "uint8") else given, given[:-1]):
        tensor = pack_of(len(values)).with_labels({"x": array}, dims=["x"])
        bl.write(tmp_path / "a.h5", tensor, overwrite=True)
        read, opened = bl.read(tmp_path / "a.h5"), bl.open(tmp_path / "a.h5")
        for one in (tensor, read, opened, tensor.with_values(tensor.values * 2)):
            assert one.dims == ("x",)
            assert one.labels("x").tolist() == given[: len(array)].tolist()
            assert one.labels("x").dtype == given.dtype
        assert tensor.equals(expected) == (len(array) == len(given))
        assert tensor.equals(pack_of(len(values)))
        assert tensor.with_labels(dims=["y"]).labels("y") is not None
        assert tensor.with_labels({0: None}).labels("x") is None


def test_equal_labels():
    none, first, second = (pack_of(2).with_labels({0: x}) for x in (None, [np.nan, 1.0], [np.nan, 2.0]))
    assert none.equals(first)
    assert first.equals(first.with_labels(dims=["x"]))
    assert not first.equals(second)
    assert not first.equals(first.with_labels({0: ["a", "b"]}))
    assert not first.equals(first.with_labels({0: [np.nan]}))


@pytest.mark.parametrize(
    ("labels", "dims", "error", "message"),
    [
        ({"x": ["a", "b", "c"]}, ["x"], bl.ArrayError, "x: expected at most 2 labels"),
        ({"x": ["a", 1.5, None]}, ["x"], bl.ArrayError, "x: expected at most 2 labels"),
        ({"x": np.array(["a", None])}, ["x"], bl.ArrayError, "pass labels of one type"),
        ({"x": ["\ud800"]}, ["x"], bl.ArrayError, "pass labels of one type"),
        ({"x": ["a", 1]}, ["x"], bl.ArrayError, "pass labels of one type"),
        ({"x": DAYS[:2]}, ["x"], bl.ArrayError, "datetime64; pass labels of one type"),
        ({"x": np.ma.array([1, 2], mask=[0, 1])}, ["x"], bl.ArrayError, "x: 1 item is masked"),
        ({"x": [["a"], ["b", "c"]]}, ["x"], bl.ArrayError, "x: numpy cannot make an array of it"),
        ({0: [1j]}, None, bl.ArrayError, "dim_0: labels cannot have the type complex128"),
        ({0: [["a"]]}, None, bl.ArrayError, "in one dimension"),
        ({"y": ["a"]}, ["x"], IndexError, "no dimension has the name 'y'; they are x"),
        (None, ["x", "y"], bl.OptionError, "expected 1 different names"),
        (None, [3], bl.OptionError, "expected 1 different names"),
    ],
)
def test_labels_that_do_not_fit(labels, dims, error, message):
    with pytest.raises(error, match=message):
        pack_of(2).with_labels(labels, dims=dims)


def test_text_may_end_with_nul():
    tensor = pack_of(2).with_labels({"x": ["a\0", "a"]}, dims=["x"])
    assert (tensor.sel(x="a\0"), tensor.sel(x="a")) == (1, 2)


@pytest.mark.parametrize("name", TYPES)
def test_an_array_without_dimensions_is_a_label(name):
    kind, values = TYPES[name]
    tensor = labelled(values, kind)
    for k, label in enumerate(tensor.labels("x")):
        assert tensor.sel(x=np.array(label, tensor.labels("x").dtype)) == k + 1


@pytest.mark.parametrize(
    ("given", "cells"),
    [
        (slice("2026-02", "2026-03"), [2, 3, 4]), (slice(None, "2026-01"), [1]), (slice("2026-02-02", None), [3, 4]),
        (slice("2026", "2026"), [1, 2, 3, 4]), (slice("2027", None), []), (slice(DAYS[1], DAYS[2]), [2, 3]),
        (slice(np.datetime64("2026-02-01"), np.datetime64("2026-02-01")), [2]), (slice(DAYS[2], DAYS[1]), []),
        (slice("2026-02-01T01", "2026-03-30T05"), [3, 4]), (slice("1000", "9999-12-31"), [1, 2, 3, 4]),
    ],
)  # fmt: skip
def test_a_text_in_a_slice_is_a_period(given, cells):
    assert labelled(DAYS).sel(x=given).to_dense().tolist() == cells


NUMBERS = {
    "bool": (pa.bool_(), st.booleans()),
    "uint8": (pa.uint8(), st.integers(0, 255)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "float64": (pa.float64(), st.floats(allow_nan=False)),
}


@given(st.data(), st.sampled_from(sorted(NUMBERS)))
def test_slices_of_numbers_end_anywhere(data, name):
    """Python compares its numbers exactly."""
    kind, some = NUMBERS[name]
    labels = data.draw(st.lists(some, unique=True, min_size=1))
    between = st.sampled_from(labels).flatmap(lambda x: st.sampled_from([x, np.nextafter(x, np.inf), -x, x / 2]))
    end = between | st.sampled_from([0.1, np.inf, -np.inf, 10**400, -(10**400), np.float32(0.1)]) | st.integers()
    first, last = data.draw(st.none() | end), data.draw(st.none() | end)
    got = labelled(labels, kind).sel(x=slice(first, last)).to_dense().tolist()
    below, above = (x.item() if isinstance(x, np.generic) else x for x in (first, last))
    expected = [k + 1 for k, x in enumerate(labels) if (below is None or below <= x) and (above is None or x <= above)]
    assert got == expected


UNITS = {"D": 86_400 * 10**9, "h": 3_600 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}  # in nanoseconds


@given(st.data(), st.sampled_from(["D", "s", "ms", "us", "ns"]))
def test_slices_of_times_end_anywhere(data, unit):
    """Between two days, and beyond the three centuries that have nanoseconds."""
    some = st.integers(-(2**31), 2**31 - 1)
    labels = data.draw(st.lists(some, unique=True, min_size=1))
    ends = []
    for _ in range(2):
        its = data.draw(st.sampled_from(sorted(UNITS)))
        near = data.draw(st.sampled_from(labels)) * UNITS[unit] // UNITS[its] + data.draw(st.integers(-1, 1))
        number = near if -(2**63) < near < 2**63 and data.draw(st.booleans()) else data.draw(some)
        ends.append((number * UNITS[its], np.datetime64(number, its)))
    (least, first), (greatest, last) = ends
    kind = pa.date32() if unit == "D" else pa.timestamp(unit)
    got = labelled(labels, kind).sel(x=slice(first, last)).to_dense().tolist()
    assert got == [k + 1 for k, x in enumerate(labels) if least <= x * UNITS[unit] <= greatest]
    if least in [x * UNITS[unit] for x in labels]:
        assert labelled(labels, kind).sel(x=first) == [x * UNITS[unit] for x in labels].index(least) + 1
    else:
        with pytest.raises(KeyError, match="no label"):
            labelled(labels, kind).sel(x=first)


def test_times_of_datetime_and_pandas():
    pandas = pytest.importorskip("pandas")
    zone, west = (datetime.timezone(datetime.timedelta(hours=h)) for h in (2, -2))
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    tensor = labelled([noon, noon + datetime.timedelta(hours=1)], pa.timestamp("ns", "Europe/Zurich"))
    assert tensor.sel(x=noon.astimezone(zone)) == 1
    assert tensor.sel(x=pandas.Timestamp(noon).tz_convert(zone)) == 1
    hours = pandas.date_range(noon, periods=2, freq="h")
    for several in (hours, hours.to_series(), hours.tz_convert(None).to_numpy()):
        assert tensor.sel(x=several).to_dense().tolist() == [1, 2]
    for never in (datetime.datetime.min.replace(tzinfo=zone), datetime.datetime.max.replace(tzinfo=west)):
        with pytest.raises(bl.LabelError, match="no label"):
            tensor.sel(x=never)
    after = pandas.Timestamp(noon) + pandas.Timedelta(1, "ns")
    assert tensor.sel(x=slice(after, None)).to_dense().tolist() == [2]


def test_a_label_of_several_coordinates_selects_them_all(tmp_path):
    """from_table refuses them, but files of others have them."""
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(np.eye(3), var={"gene": [1, 2, 3]})
    cells.var.index = ["A", "B", "A"]
    cells.write_h5ad(tmp_path / "a.h5ad")
    for tensor in (bl.open(tmp_path / "a.h5ad"), bl.read(tmp_path / "a.h5ad")):
        assert tensor.sel(var="A").to_dense().tolist() == [[1, 0], [0, 0], [0, 1]]
        assert tensor.sel(var=["B", "A"], obs="0").to_dense().tolist() == [0, 1, 0]
        assert tensor.sel({1: "B"}).shape == (3,)


@pytest.mark.parametrize("missing", [np.nan, np.datetime64("NaT")])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_label_does_not_select_coordinates_without_a_value(missing, before):
    some = np.arange(before).astype("M8[D]" if isinstance(missing, np.datetime64) else float)
    labels = np.insert(some, [0, before], missing)
    tensor = pack_of(len(labels)).with_labels({0: labels})
    for k, label in enumerate(labels[1:-1], 2):
        assert tensor.sel({0: label}) == k
        assert tensor.sel({0: [label]}).to_dense().tolist() == [k]
        assert tensor.sel({0: slice(label, label)}).to_dense().tolist() == [k]
    for other in (missing, np.datetime64("2030-01-01"), 7.5):
        with pytest.raises(bl.LabelError, match="no label"):
            tensor.sel({0: other})


def test_texts_keep_null_characters():
    tensor = pack_of(3).with_labels({0: ["a\0", "a", "\0"]})
    assert tensor.labels(0).tolist() == ["a\0", "a", "\0"]
    assert [tensor.sel({0: x}) for x in ("a\0", "a", "\0")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"x": "pens"}, bl.LabelError, "x: no label 'pens'; did you mean 'pen'"),
        ({"x": "IN"}, bl.LabelError, "did you mean 'ink'|from 'pen' to 'ink'"),
        ({"x": 3}, bl.LabelError, "no label 3; there are 2, from 'pen' to 'ink'"),
        ({"x": "\ud800"}, bl.LabelError, "no label"),
        ({"x": ["ink", ["pen"]]}, bl.LabelError, "no label"),
        ({"x": slice(None, None, 2)}, bl.OptionError, "no step"),
        ({"y": 3}, IndexError, "no dimension has the name 'y'; they are x"),
        ({0: "pen", "x": "ink"}, bl.OptionError, "has a dimension twice"),
    ],
)
def test_what_is_not_selected(given, error, message):
    with pytest.raises(error, match=message):
        labelled(["pen", "ink"]).sel(given)


def test_an_error_shows_times_as_text():
    with pytest.raises(bl.LabelError, match="no label 'noon'; there are 1, from '2026-01-01T00:00:00"):
        labelled(TYPES["time"][1][:1], pa.timestamp("ns")).sel(x="noon")


def test_slices_of_other_types_are_refused():
    with pytest.raises(bl.LabelError, match="'x' is not of the type of its labels, datetime64"):
        labelled(DAYS).sel(x=slice("x", None))


def test_dimensions_have_names_wherever_they_are_asked_for():
    table = pa.table({"user": [0, 1], "item": ["pen", "ink"], "value": [1.5, 2.5]})
    tensor = bl.from_table(table, ["user", "item"], "value", "CSR")
    assert tensor.permute(["item", "user"]).dims == ("item", "user")
    assert [len(part) for part, _ in tensor.slabs("item", max_bytes=1000)] == [2]
    assert tensor.draw(["item"]) == tensor.draw([1])
    assert bl.reduce(tensor, "user").tolist() == [2.5, 1.5]
    assert bl.advise(tensor, slices_by="item").slices_by == 1
    assert tensor.labels(1).tolist() == ["ink", "pen"]
    for call in (tensor.permute, tensor.draw, lambda names: list(tensor.slabs(names[0], max_bytes=1000))):
        with pytest.raises(IndexError, match="no dimension has the name 'users'; they are user, item"):
            call(["users", "item"])
