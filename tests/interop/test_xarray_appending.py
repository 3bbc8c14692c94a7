"""append_dataset, held to xarray's own concat."""

import contextlib
import errno
import itertools
import os
import shutil
import threading

import numpy as np
import pytest
from attacks import crashes
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import ArrayError, BinsparseError, FormatError, OptionError

xr = pytest.importorskip("xarray")
pd = pytest.importorskip("pandas")
sparse = pytest.importorskip("sparse")

# zarr warns of fixed-length text, which xarray takes for coordinates.
pytestmark = pytest.mark.filterwarnings("ignore:The data type .FixedLengthUTF32:Warning")
SITES, USERS = 4, 3


def days(first, count):
    """Variables that grow, sparse and dense, along any of their dimensions, and others that do not."""
    rng = np.random.default_rng(first)

    def cells(*shape):
        return sparse.random(shape, density=0.3, random_state=rng)

    dates = pd.date_range("2026-01-01", periods=first + count)[first:]
    return xr.Dataset(
        {
            "rain": (("day", "site"), cells(count, SITES), {"units": "mm"}),
            "snow": (("site", "day", "user"), cells(SITES, count, USERS)),
            "mean": ("day", rng.random(count)),
            "level": (("site", "day"), rng.integers(0, 9, (SITES, count))),
            "graph": (("site", "to"), sparse.COO([[0, 1], [1, 2]], [1.0, 2.0], shape=(SITES, SITES))),
            "height": ("site", np.arange(SITES) * 10.0),
        },
        {
            "day": dates,
            "site": [f"site {k}" for k in range(SITES)],
            "week": ("day", np.arange(first, first + count) // 7),
        },
    )


def concatenated(*datasets):
    return xr.concat(datasets, "day", data_vars="minimal", coords="minimal", compat="override")


def opened(path):
    return xr.open_dataset(path, engine="binsparse")


def bytes_of(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@given(data=st.data())
def test_appended_days_are_what_xarray_concatenates(tmp_path_factory, data):
    """Any number of days at a time, opened ones too; with names of variables left out, and turned dimensions."""
    draw, path = data.draw, tmp_path_factory.mktemp("days") / "a.zarr"
    counts = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    kept = draw(st.lists(st.sampled_from(["rain", "snow", "mean", "level"]), unique=True, min_size=1))
    expected, first = None, 0
    for count in counts:
        new = days(first, count)[[*kept, "graph", "height"]]
        if expected is None:
            bl.write_dataset(path, new, {"rain": "CSR"} if "rain" in kept else None)
            expected = new
        else:
            given_ = new.drop_vars(draw(st.sampled_from([[], ["graph"], ["height", "site"]])))
            if draw(st.booleans()):
                given_ = given_.transpose(..., "day")
            bl.append_dataset(path, given_, "day")
            expected = concatenated(expected, new)
        first += count
    with opened(path) as found:
        assert found.load().identical(expected)
    assert os.listdir(path.parent) == ["a.zarr"]
    assert (
        xr.open_zarr(path)
        .drop_attrs()
        .identical(expected.drop_vars([*{*kept} & {"rain", "snow"}, "graph"]).drop_attrs())
    )


def test_an_opened_dataset_is_appended(tmp_path):
    bl.write_dataset(tmp_path / "a.zarr", days(0, 2))
    bl.write_dataset(tmp_path / "b.zarr", days(2, 3))
    with opened(tmp_path / "b.zarr") as more:
        bl.append_dataset(tmp_path / "a.zarr", more, "day")
    with opened(tmp_path / "a.zarr") as found:
        assert found.load().identical(concatenated(days(0, 2), days(2, 3)))
        assert len(bl.open(f"{tmp_path}/a.zarr:rain").parts) == 2


def test_the_stored_files_are_shared_and_not_changed(tmp_path):
    """A copy by hard links of the folder before keeps its bytes."""
    bl.write_dataset(tmp_path / "a.zarr", days(0, 3))
    shutil.copytree(tmp_path / "a.zarr", tmp_path / "b.zarr", copy_function=os.link)
    before = bytes_of(tmp_path / "b.zarr")
    bl.append_dataset(tmp_path / "a.zarr", days(3, 1), "day")
    assert bytes_of(tmp_path / "b.zarr") == before
    values = "rain/values/c/0"
    assert os.path.samefile(tmp_path / "a.zarr" / values, tmp_path / "b.zarr" / values)


def test_attributes_and_coordinates_stay(tmp_path):
    """Those of the Dataset, which nothing but its root lists."""
    first, more = (days(k, 2)[["rain"]].assign_coords(run=5, north=("site", np.ones(SITES))) for k in (0, 2))
    bl.write_dataset(path := tmp_path / "a.zarr", first.assign_attrs(title="rain", numbers=[1, 2]))
    bl.append_dataset(path, more, "day")
    with opened(path) as found:
        assert found.attrs == {"title": "rain", "numbers": [1, 2]}
        assert {*found.coords} == {"day", "site", "week", "run", "north"}


@pytest.mark.parametrize("dtype", ["U", "O", "T"])
def test_texts_of_another_length(tmp_path, dtype):
    def named(*names):
        return xr.Dataset({"a": ("name", np.ones(len(names)))}, {"name": np.array(names, dtype)})

    bl.write_dataset(path := tmp_path / "a.zarr", named("one", "three"))
    bl.append_dataset(path, named("two"), "name")
    with opened(path) as found:
        assert found.name.values.tolist() == ["one", "three", "two"]
    if dtype == "U":
        with pytest.raises(ArrayError, match="does not represent"):
            bl.append_dataset(path, named("seventeen"), "name")


def test_blocks_of_dask_that_are_not_those_of_the_file(tmp_path):
    pytest.importorskip("dask")
    wide = xr.Dataset({"a": (("t", "x"), np.arange(20.0).reshape(5, 4))}, {"t": np.arange(5)})
    bl.write_dataset(path := tmp_path / "a.zarr", wide.isel(t=slice(2)).chunk({"t": 2}))
    bl.append_dataset(path, wide.isel(t=slice(2, None)).chunk({"t": 1, "x": 2}), "t")
    with opened(path) as found:
        assert found.load().identical(wide)


def test_labels_of_the_tensor_itself_grow_too(tmp_path):
    bl.write_dataset(path := tmp_path / "a.zarr", days(0, 2)[["rain"]])
    bl.write(f"{path}:rain", bl.read(f"{path}:rain"), overwrite=True)  # with the coordinates as its own labels
    bl.append_dataset(path, days(2, 1)[["rain"]].drop_indexes("day"), "day")
    with opened(path) as found:
        assert found.load().identical(days(0, 3)[["rain"]].assign(rain=concatenated(days(0, 2), days(2, 1)).rain))
    assert len(bl.open(f"{path}:rain").labels("day")) == 3


REFUSED = {
    "again": (lambda: days(1, 2), ArrayError, "2026-01-02.*drop_sel"),
    "twice": (lambda: concatenated(days(3, 1), days(3, 1)), ArrayError, "2026-01-04.*drop_sel"),
    "missing": (lambda: days(3, 1).drop_vars("rain"), FormatError, "rain would not grow"),
    "missing label": (lambda: days(3, 1).drop_vars("day"), FormatError, "day would not grow"),
    "another": (lambda: days(3, 1).assign(more=("day", [1])), FormatError, "more are not stored"),
    "size": (lambda: days(3, 1).isel(site=slice(2)).drop_vars(["graph", "height", "site"]), FormatError, "sizes"),
    "type": (lambda: days(3, 1).assign(mean=("day", np.ones(1, "f4"))), FormatError, "mean has the type float32"),
    "differs": (lambda: days(3, 1).assign(height=("site", np.ones(SITES))), FormatError, "height does not"),
    "sparse differs": (lambda: days(3, 1).assign(graph=2 * days(3, 1).graph), FormatError, "graph does not"),
    "other sites": (lambda: days(3, 1).assign_coords(site=list("abcd")), FormatError, "site does not"),
    "one day": (lambda: days(3, 1).isel(day=0), FormatError, "expand_dims"),
    "half a day": (
        lambda: days(3, 1).assign_coords(day=[pd.Timestamp("2026-01-09 12:30")]), ArrayError, "does not represent",
    ),
    "sparse": (
        lambda: days(3, 1).assign(mean=("day", sparse.COO([[0]], [1.0], shape=(1,)))), FormatError, "as_numpy",
    ),
    "no Dataset": (lambda: days(3, 1).rain, OptionError, "to_dataset"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_changes_nothing(tmp_path, case):
    make, error, told = REFUSED[case]
    bl.write_dataset(path := tmp_path / "a.zarr", days(0, 3))
    before = bytes_of(path)
    with pytest.raises(error, match=told):
        bl.append_dataset(path, make(), "day")
    assert bytes_of(path) == before
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_a_dimension_that_is_not_there_is_named(tmp_path):
    bl.write_dataset(path := tmp_path / "a.zarr", days(0, 3))
    with pytest.raises(FormatError, match=r"no dimension 'date', only .*; pass one"):
        bl.append_dataset(path, days(3, 1), "date")


@pytest.mark.parametrize("name", ["a.nc", "a.zarr:rain", "memory"])
def test_other_places_are_refused_with_a_remedy(tmp_path, name):
    zarr = pytest.importorskip("zarr")
    place = zarr.storage.MemoryStore() if name == "memory" else f"{tmp_path}/{name}"
    bl.write_dataset(place if name != "a.zarr:rain" else tmp_path / "a.zarr", days(0, 3))
    with pytest.raises(OptionError, match="write_dataset"):
        bl.append_dataset(place, days(3, 1), "day")


def test_a_version_without_parts_is_refused(tmp_path):
    bl.write_dataset(path := tmp_path / "a.zarr", days(0, 3), kind="zarr2")
    before = bytes_of(path)
    with pytest.raises(BinsparseError, match="Zarr 2"):
        bl.append_dataset(path, days(3, 1), "day")
    assert bytes_of(path) == before


@pytest.mark.slow
@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()], ids=["full", "interrupt"])
def test_a_fault_at_any_step_leaves_the_old_or_the_new(tmp_path, fault):
    """At every eleventh change of the disk."""
    folder = tmp_path / "attack-folder"  # where changes are counted
    folder.mkdir()
    bl.write_dataset(folder / "old.zarr", days(0, 3))
    old, new = bytes_of(folder / "old.zarr"), concatenated(days(0, 3), days(3, 1))
    for at in itertools.count(1, 11):
        shutil.rmtree(path := folder / "a.zarr", ignore_errors=True)
        shutil.copytree(folder / "old.zarr", path)
        steps, raised = itertools.count(1), []

        def step(event, at=at, steps=steps, raised=raised):
            if isinstance(fault, KeyboardInterrupt) and threading.current_thread() is not threading.main_thread():
                return  # Python interrupts its main thread alone
            if event not in ("os.remove", "os.rmdir") and next(steps) == at:
                raised.append(at)
                raise fault

        with contextlib.suppress(OSError, BinsparseError, KeyboardInterrupt), crashes.stepping(step):
            bl.append_dataset(path, days(3, 1), "day")
        if bytes_of(path) != old:  # a library may try again after a fault
            with opened(path) as found:
                assert found.load().identical(new)
        if not raised:
            break
    assert at > 50
