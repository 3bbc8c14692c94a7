"""Names and labels; selection by label against xarray: types, duplicates, order, kinds of keys."""

import datetime
import sys

import dateutil.tz
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import binsparse_levels as bl
from binsparse_levels.tensors.contents import labels_of, remade
from binsparse_levels.tensors.tensor import inside

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
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


def pack_of(size):
    return bl.pack([range(size)], range(1, size + 1), (size,), "CVEC")


def labelled(labels, kind=None, size=None):
    """A vector that counts its cells from 1, with these labels."""
    size = len(labels) if size is None else size
    given = pa.array(labels, kind)
    table = pa.table({"x": given[:0], "value": pa.array([], pa.int64())})
    named = bl.from_table(table, ["x"], "value", "CVEC", shape=(size,), labels={"x": given})
    return remade(pack_of(size), labels=inside(named).metadata.labels)


@pytest.mark.parametrize("name", TYPES)
def test_labels_of_arrays(name, tmp_path):
    """They are those that a table gives, in memory and in a file, and stay with other values."""
    kind, values = TYPES[name]
    expected, given = labelled(values, kind), labelled(values, kind).labels("x")
    for array in (given, given.tolist() if name not in ("date", "time", "uint8") else given):
        tensor = pack_of(len(values)).with_labels({"x": array}, dims=["x"])
        bl.write(tmp_path / "a.h5", tensor, overwrite=True)
        read, opened = bl.read(tmp_path / "a.h5"), bl.open(tmp_path / "a.h5")
        for one in (tensor, read, opened, tensor.with_values(tensor.values * 2)):
            assert one.dims == ("x",)
            assert one.labels("x").tolist() == given.tolist()
            assert one.labels("x").dtype == given.dtype
        assert tensor.equals(expected)
        assert tensor.equals(pack_of(len(values)))
        assert tensor.with_labels(dims=["y"]).labels("y") is not None
        assert tensor.with_labels({0: None}).labels("x") is None


def test_equal_labels():
    none, first, second = (pack_of(2).with_labels({0: x}) for x in (None, [np.nan, 1.0], [np.nan, 2.0]))
    assert none.equals(first)
    assert first.equals(first.with_labels(dims=["x"]))
    assert not first.equals(second)
    assert not first.equals(first.with_labels({0: ["a", "b"]}))


@pytest.mark.parametrize(
    ("labels", "dims", "error", "message"),
    [
        ({"x": ["a", "b", "c"]}, ["x"], bl.ArrayError, r"x: expected 2 labels, .* got shape \(3,\)"),
        ({"x": ["a"]}, ["x"], bl.ArrayError, r"x: expected 2 labels, .* got shape \(1,\)"),
        ({"x": ["a", 1.5, None]}, ["x"], bl.ArrayError, "x: expected 2 labels"),
        ({"x": pd.array(["a", None], "string")}, ["x"], bl.ArrayError, "pass labels of one type"),
        ({"x": np.array(["a", None])}, ["x"], bl.ArrayError, "pass labels of one type"),
        ({"x": ["\ud800", "a"]}, ["x"], bl.ArrayError, "pass labels of one type"),
        ({"x": ["a", 1]}, ["x"], bl.ArrayError, "pass labels of one type"),
        ({"x": DAYS[:2]}, ["x"], bl.ArrayError, "datetime64; pass labels of one type"),
        ({"x": np.ma.array([1, 2], mask=[0, 1])}, ["x"], bl.ArrayError, "x: 1 item is masked"),
        ({"x": [["a"], ["b", "c"]]}, ["x"], bl.ArrayError, "x: numpy cannot make an array of it"),
        ({0: [1j, 2]}, None, bl.ArrayError, "dim_0: labels cannot have the type complex128"),
        ({0: [["a"]]}, None, bl.ArrayError, r"got shape \(1, 1\)"),
        (
            {0: pd.DatetimeIndex(["2026", "2027"], tz=dateutil.tz.gettz("Asia/Tokyo"))},
            None,
            bl.ArrayError,
            "has no name",
        ),
        ({0: [NOON, NOON.replace(tzinfo=None)]}, None, bl.ArrayError, "convert them to one zone"),
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


# Labels by type, as Arrow and xarray have them. Summer time begins in Zurich on the 29th of March 2026.
HOURS = st.integers(0, 200) | st.integers(0, 60).map(lambda day: 24 * day)
DRAWN = {
    "text": st.text(st.sampled_from("abB\0é日"), max_size=3),
    "bool": st.booleans(),
    "uint8": st.integers(0, 6) | st.just(255),
    "int64": st.integers(-3, 4) | st.sampled_from([2**53 + 1, -(2**63), 2**63 - 1]),
    "uint64": st.integers(0, 3) | st.sampled_from([2**63, 2**64 - 1]),
    "float32": st.sampled_from([-1.5, 0.0, 0.1, 0.25, 2.0, 3e38, -np.inf, np.nan]),
    "float64": st.sampled_from([-1.5, 0.0, 0.1, 0.25, 2.0, 1e300, np.inf, np.nan]),
    "time": HOURS,
    "zone": HOURS,
}
OTHERS = st.sampled_from([
    "nobody", "", "1", "0.1", "2026", "2026-03-29T02:30", "2026-03-29T03", "2026-04", None, -1, 3, 2.5,
    2**70, True, False, np.float32(0.1), np.nan, b"a", (1, 2), {1: 2}, {1}, DAYS[3], datetime.time(0), pd.NaT,
    datetime.timedelta(1), np.datetime64("2026-03-29"), np.datetime64("NaT"), pd.Timestamp("2026-03-29"),
    pd.Timestamp("2026-03-29", tz="UTC"), np.float16(2),
])  # fmt: skip


@st.composite
def coordinates(draw, kind):
    """Labels in any order, perhaps repeated, as `with_labels` and as xarray takes them."""
    labels = draw(st.lists(DRAWN[kind], min_size=1, max_size=7, unique=draw(st.booleans())))
    if order := draw(st.sampled_from([0, 1, -1])):
        labels = sorted(labels)[::order]
    if kind == "text":
        return labels, np.array(labels, object)
    if kind in ("time", "zone"):
        unit = draw(st.sampled_from(["D", "s", "ms", "us", "ns"]))
        labels = (np.datetime64("2026-03-25") + np.array(labels, "m8[h]")).astype(f"M8[{unit}]")
        if kind == "time" and draw(st.integers(0, 5)) == 5:
            labels[0] = "NaT"
        if kind == "zone":
            zone = draw(st.sampled_from(["UTC", "Europe/Zurich", "Asia/Tokyo", "+02:00"]))
            labels = pd.DatetimeIndex(labels).tz_localize("UTC").tz_convert(zone)
        return labels, labels
    return np.array(labels, kind), np.array(labels, kind)


def forms(time):
    """A time as people write it, and times near it."""
    time = pd.Timestamp(time)
    if time is pd.NaT:
        return st.just(time)
    text, naive = str(time), time.tz_localize(None)
    zoned = time.tz_convert("Asia/Tokyo") if time.tz else time.tz_localize("UTC")
    texts = [text, *(naive.isoformat()[:k] for k in (4, 7, 10, 13, 16, 19))]
    numpys = [naive.to_numpy(), naive.to_numpy().astype("M8[D]"), naive.to_numpy().astype("M8[M]")]
    times = [time, naive, zoned, time + pd.Timedelta(5, "h"), time.to_pydatetime(), time.date(), time.time()]
    return st.sampled_from([*texts, *numpys, *times])


@st.composite
def label_keys(draw, kind, labels):
    """Labels that are there, that could be, and that cannot; alone, in lists and arrays, as ends of slices; masks."""
    there = st.sampled_from(list(labels))
    one = there.flatmap(forms) if kind in ("time", "zone") else there | DRAWN[kind]
    one = draw(st.sampled_from([one, one, one | OTHERS]))
    how = draw(st.sampled_from(["one", "list", "own", "array", "slice", "slice", "mask"]))
    if how == "slice":
        end = st.none() | one
        return slice(draw(end), draw(end), draw(st.sampled_from([None, None, None, 2, -1])))
    if how == "mask":
        return draw(arrays(bool, len(labels) - draw(st.sampled_from([0, 0, 0, 1]))))
    if how == "array":
        some = draw(st.lists(there, max_size=3))
        return np.array(some, object if kind in ("text", "zone") else draw(st.sampled_from([object, labels.dtype])))
    return draw(one if how == "one" else st.lists(one if how == "list" else there, max_size=4))


@st.composite
def of_pandas(draw, keys):
    """Some of the keys with several labels as an Index or a Series of pandas, which xarray does not take everywhere."""
    key = draw(keys)
    made = draw(st.sampled_from([None, None, pd.Index, pd.Series]))
    if made is None or not isinstance(key, list | np.ndarray) or getattr(key, "ndim", 1) != 1:
        return key
    return made(key, dtype=None if len(key) else object)


def exact(key):
    """A key of which xarray drops no null character."""
    texts = isinstance(key, str) or (isinstance(key, list) and key and all(isinstance(x, str) for x in key))
    return np.array(key, object) if texts else key


@pytest.mark.parametrize("kind", [*DRAWN, "none"])
@pytest.mark.filterwarnings("ignore")
@given(data=st.data())
def test_sel_selects_what_xarray_selects(kind, data):
    labels, theirs = (range(5), None) if kind == "none" else data.draw(coordinates(kind))
    size = len(labels)
    tensor = bl.pack([range(size), [0] * size], range(1, size + 1), (size, 1), "CSR", dims=["x", "y"])
    peer = xr.DataArray(np.arange(1, size + 1), dims=["x"])
    if theirs is not None:
        tensor, peer = tensor.with_labels({"x": labels}), peer.assign_coords(x=theirs)
    if data.draw(st.booleans()):
        bl.write(files := {}, tensor)
        tensor = bl.open(files)
    view = data.draw(
        st.sampled_from([slice(None), slice(1, None), slice(None, None, -1), slice(None, None, 2), [0, -1]])
    )
    tensor, peer = tensor[view, :], peer.isel(x=view)
    if theirs is None:
        end = st.none() | st.integers(-7, 7)
        some = st.integers(-7, 7) | st.lists(st.integers(-4, 4), max_size=3) | st.builds(slice, end, end, end)
        some |= st.sampled_from(["a", 1.0, slice("a", None), [0.5], [[1]], (0, 1), np.array(1)])
        key = data.draw(of_pandas(some))
    elif peer.size:
        key = data.draw(of_pandas(label_keys(kind, peer.indexes["x"] if kind == "zone" else peer.x.values)))
    else:
        key = "nobody"
    try:
        expected = peer.sel(x=exact(key)).values.tolist()
    except Exception:  # xarray lets errors of pandas and numpy pass
        with pytest.raises(bl.LabelError):
            tensor.sel(x=key)
    else:
        assert tensor.sel(x=key).to_dense()[..., 0].tolist() == expected


INDICES = (
    st.integers(-3, 2)
    | st.lists(st.integers(-3, 2), max_size=3)
    | st.builds(slice, *[st.none() | st.integers(-5, 5)] * 2, st.sampled_from([None, 1, 2, -1]))
    | arrays(bool, 3)
    | st.sampled_from(["a", 1.5, [0.5], [[1]], (0, 1), None, slice("a", None), np.array(1), np.uint8([1]), {1: 2}])
)


@given(st.dictionaries(st.sampled_from("xyz"), of_pandas(INDICES)))
def test_isel_selects_what_xarray_selects(indices):
    """Each array selects along its own dimension."""
    cells = np.arange(1, 28).reshape(3, 3, 3)
    tensor, peer = bl.pack_dense(cells, "CSF", dims=["x", "y", "z"]), xr.DataArray(cells, dims=["x", "y", "z"])
    try:
        expected = peer.isel(indices).values
    except Exception:
        with pytest.raises(IndexError):
            tensor.isel(indices)
    else:
        got = tensor.isel(indices)
        assert (got.to_dense() if isinstance(got, bl.Tensor) else got).tolist() == expected.tolist()


def test_sel_finds_categories_in_their_order():
    sizes = pd.Categorical(["high", "low", "mid"], ["low", "mid", "high"])
    tensor = bl.from_table(pd.DataFrame({"size": sizes, "n": [3, 1, 2]}), ["size"], "n", "CVEC")
    assert tensor.sel(size=slice("low", "mid")).to_dense().tolist() == [1, 2]
    assert tensor.sel(size=slice("mid", None)).to_dense().tolist() == [2, 3]
    with pytest.raises(bl.LabelError, match="no range from 'mid' to 'n': unless labels ascend or descend"):
        tensor.sel(size=slice("mid", "n"))


@pytest.mark.parametrize("name", ["a.h5", "a.zarr", "a.npz", "a.nc", "a.bspnpy"])
@pytest.mark.parametrize("zone", ["Europe/Zurich", "+02:00", "UTC"])
def test_a_zone_stays_with_its_times(tmp_path, name, zone):
    hours = pd.date_range("2026-03-28", periods=8, freq="6h", tz="UTC").tz_convert(zone)
    tensor = bl.from_table(pd.DataFrame({"t": hours, "i": 0, "n": range(8)}), ["t", "i"], "n", "CSR")
    bl.write(tmp_path / name, tensor)
    opened = bl.open(tmp_path / name)
    table = bl.from_table(bl.to_table(opened), ["t", "i"], "n", "CSR")
    given = [hours, list(hours), hours.to_pydatetime().tolist(), pa.array(hours), opened.labels("t")]
    named = [bl.pack_dense(np.ones((8, 1)), "CSR", dims=["t", "i"], labels={"t": x}) for x in given]
    for one in (tensor, opened, bl.read(tmp_path / name), opened[::-1][::-1], table, *named):
        assert one.labels("t").tolist() == list(hours)
        assert one.labels("t")[0].utcoffset() == hours[0].utcoffset()
        assert one.sel(t="2026-03-29").shape == (hours.strftime("%d").tolist().count("29"), 1)
    assert bl.to_xarray(opened).indexes["t"].tz.utcoffset(None) == hours.tz.utcoffset(None)


@pytest.mark.parametrize("shape", [2, (3,), (4,)])
def test_tables_have_no_more_labels_than_coordinates(shape):
    """They may have fewer: the dimension of a stream grows."""
    table, labels = pa.table({"x": ["a"], "n": [1]}), {"x": ["a", "b", "c"]}
    calls = [
        lambda: bl.from_table(table, ["x"], "n", "CVEC", shape=shape, labels=labels),
        lambda: bl.write_from([table], {}, shape, "CVEC", dims=["x"], values="n", labels=labels),
    ]
    for call in calls:
        if shape == 2:
            with pytest.raises(bl.ArrayError, match=r"labels.x: 3 labels for 2 coordinates; pass a larger shape"):
                call()
        else:
            call()


def test_texts_and_integers_need_no_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    tensor = pack_of(3).with_labels({0: ["b", "a", "c"]})
    assert (tensor.sel({0: "a"}), tensor.sel({0: ["c", "b"]}).to_dense().tolist()) == (2, [3, 1])
    assert pack_of(2).with_labels({0: [7, 5]}).sel({0: 5}) == 2
    with pytest.raises(bl.OptionError, match="pip install jinja2 pandas"):
        tensor.sel({0: slice("a", "b")})


def test_labels_are_read_and_sorted_once(tmp_path):
    bl.write(tmp_path / "a.h5", pack_of(3).with_labels({"x": ["b", "a", "c"]}, dims=["x"]))
    opened = bl.open(tmp_path / "a.h5")
    assert opened.sel(x="a") == 2
    assert labels_of(opened[:], 0).lookup is labels_of(opened, 0).lookup


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"x": "pens"}, bl.LabelError, "x: no label 'pens'; did you mean 'pen'"),
        ({"x": "IN"}, bl.LabelError, "did you mean 'ink'|from 'pen' to 'ink'"),
        ({"x": 3}, bl.LabelError, "no label 3; there are 2, from 'pen' to 'ink'"),
        ({"x": "\ud800"}, bl.LabelError, "no label"),
        ({"x": ["ink", ["pen"]]}, bl.LabelError, "no label"),
        ({"x": {"pen"}}, bl.LabelError, "no label"),
        ({"x": slice(3, None)}, bl.LabelError, "no range from 3 to None: the labels are texts"),
        ({"x": xr.DataArray(["pen"], dims=["point"])}, bl.OptionError, "pass its values"),
        ({"x": "pen", "method": "nearest"}, bl.OptionError, r"method: sel has no such option; .* tensor.labels"),
        ({"y": 3}, IndexError, "no dimension has the name 'y'; they are x"),
        ({0: "pen", "x": "ink"}, bl.OptionError, "has a dimension twice"),
    ],
)
def test_what_is_not_selected(given, error, message):
    with pytest.raises(error, match=message):
        labelled(["pen", "ink"]).sel(given)


def test_pandas_has_no_index_of_float16():
    tensor = pack_of(3).with_labels({0: [7, 5, 6]})
    assert tensor.sel({0: np.array([5, 7], "f2")}).to_dense().tolist() == [2, 1]
    with pytest.raises(bl.LabelError, match=r"no label 5.5"):
        tensor.sel({0: np.array([5.5], "f2")})


def test_an_hour_that_clocks_show_twice_is_no_label():
    hours = pd.date_range("2026-10-24", periods=8, freq="6h", tz="Europe/Zurich")
    with pytest.raises(bl.LabelError, match="no label '2026-10-25T02:30'"):
        pack_of(8).with_labels({0: hours}).sel({0: "2026-10-25T02:30"})


def test_an_error_shows_times_as_text():
    with pytest.raises(bl.LabelError, match="no label 'noon'; there are 1, from '2026-01-01T00:00:00"):
        labelled(TYPES["time"][1][:1], pa.timestamp("ns")).sel(x="noon")


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
        with pytest.raises(
            IndexError, match=r"no dimension has the name 'users'; did you mean user\? they are user, item"
        ):
            call(["users", "item"])


@pytest.mark.parametrize(("unit", "stored"), [("Y", "D"), ("M", "D"), ("W", "D"), ("h", "s"), ("m", "s")])
def test_times_in_other_units_are_those_of_pandas(unit, stored):
    times = np.array(["2026-03", "2028-05"], f"M8[{unit}]")
    table = pd.DataFrame({"x": pd.Series(times)[[1, 0]], "value": [2, 1]})
    for made in (
        pack_of(2).with_labels({"x": times}, dims=["x"]),
        bl.from_table(table, ["x"], "value", labels={"x": times}),
    ):
        assert made.labels("x").dtype == f"M8[{stored}]"
        assert (pd.Index(made.labels("x")) == pd.Index(times)).all()
        assert made.sel(x=times[1]) == made.sel(x=pd.Index(times)[1]) == 2
