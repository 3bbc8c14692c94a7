"""Coordinates of a Dataset are labels of its sparse variables, held to xarray's own sel."""

import subprocess
import sys

import numpy as np
import pytest

import binsparse_levels as bl

xr = pytest.importorskip("xarray")
pd = pytest.importorskip("pandas")
sparse = pytest.importorskip("sparse")
pytest.importorskip("netCDF4")

# zarr warns of fixed-length text, which xarray takes for coordinates.
pytestmark = pytest.mark.filterwarnings("ignore:The data type .FixedLengthUTF32:Warning")
PLACES = {"a.zarr": None, "b.zarr": "zarr2", "a.nc": None}


def dataset(days=3):
    counts = sparse.random((days, 4, 5, 2), density=0.4, random_state=0)
    return xr.Dataset(
        {"rain": (("day", "site", "height", "run"), counts), "dense": ("site", np.arange(4.0))},
        {
            "day": pd.date_range("2026-01-01 06:00", periods=days, freq="12h"),
            "site": ["Bern", "Köln", "Oslo", "Rom"],
            "height": [0.5, 1.5, 2.5, 3.5, 4.5],
            "place": ("site", list("abcd")),  # is no coordinate of a dimension
        },
    )


@pytest.fixture(params=PLACES)
def path(request, tmp_path):
    bl.write_dataset(tmp_path / request.param, dataset(), {"rain": "CSF"}, kind=PLACES[request.param])
    return tmp_path / request.param


@pytest.mark.parametrize("opened", [bl.open, bl.read])
def test_labels_are_the_coordinates(path, opened):
    expected, found = dataset(), opened(f"{path}:rain")
    for dim in ("day", "site", "height"):
        np.testing.assert_array_equal(found.labels(dim).astype(expected[dim].dtype), expected[dim].values)
    assert found.labels("run") is None
    for key in (
        {"day": "2026-01-01T18:00", "height": 2.5},
        {"day": slice("2026-01-01T12:00", None), "site": ["Rom", "Bern"]},
    ):
        np.testing.assert_array_equal(found.sel(key).to_dense(), expected.rain.sel(key).data.todense())


def test_they_are_stored_with_a_copy(path, tmp_path):
    bl.convert(f"{path}:rain", tmp_path / "copy.h5")
    bl.write(tmp_path / "other.h5", bl.open(f"{path}:rain"))
    for name in ("copy.h5", "other.h5"):
        assert bl.open(tmp_path / name).labels("site").tolist() == ["Bern", "Köln", "Oslo", "Rom"]


def test_the_dataset_is_as_before(path):
    with xr.open_dataset(path, engine="binsparse") as found:
        assert found.load().identical(dataset())


def test_labels_of_the_tensor_itself_are_kept(tmp_path):
    bl.write_dataset(tmp_path / "a.zarr", dataset())
    tensor = bl.read(f"{tmp_path}/a.zarr:rain").with_labels({"site": list("wxyz")})
    bl.write(f"{tmp_path}/a.zarr:rain", tensor, overwrite=True)
    assert bl.open(f"{tmp_path}/a.zarr:rain").labels("site").tolist() == list("wxyz")


def test_parts_have_the_coordinates_of_the_whole(tmp_path):
    bl.write_dataset(tmp_path / "a.zarr", dataset(3).isel(day=slice(2)))
    bl.append_dataset(tmp_path / "a.zarr", dataset(3).isel(day=slice(2, None)), "day")
    found = bl.open(f"{tmp_path}/a.zarr:rain")
    np.testing.assert_array_equal(found.labels("day"), dataset(3).day.values)
    np.testing.assert_array_equal(found.to_dense(), dataset(3).rain.data.todense())


def test_a_size_that_differs_is_no_coordinate(tmp_path):
    bl.write_dataset(tmp_path / "a.zarr", dataset())
    bl.write(f"{tmp_path}/a.zarr:few", bl.pack_dense(np.ones((2, 4)), "CSR", dims=["day", "site"]))
    found = bl.open(f"{tmp_path}/a.zarr:few")
    assert found.labels("day") is None
    assert found.labels("site").tolist() == ["Bern", "Köln", "Oslo", "Rom"]


@pytest.mark.parametrize("units", ["months since 2000-01-01", "hours since start"])
def test_coordinates_that_xarray_cannot_decode_are_no_labels(tmp_path, units):
    """Nor do they matter for other coordinates, and the tensor itself is read."""
    whole = dataset().assign(when=("k", [1, 2], {"units": units}))
    whole["height"] = ("height", np.arange(5), {"units": units})
    bl.write_dataset(tmp_path / "a.zarr", whole)
    for found in (bl.open(f"{tmp_path}/a.zarr:rain"), bl.read(f"{tmp_path}/a.zarr:rain")):
        assert found.labels("height") is None
        np.testing.assert_array_equal(found.to_dense(), whole.rain.data.todense())


def test_damaged_coordinates_are_no_labels(tmp_path):
    bl.write_dataset(tmp_path / "a.zarr", dataset())
    (tmp_path / "a.zarr" / "day" / "c" / "0").write_bytes(b"damaged")
    np.testing.assert_array_equal(bl.read(f"{tmp_path}/a.zarr:rain").to_dense(), dataset().rain.data.todense())


def test_labels_that_contradict_the_dataset_are_refused_by_the_engine(tmp_path):
    bl.write_dataset(path := tmp_path / "a.zarr", dataset())
    bl.write(f"{path}:rain", bl.read(f"{path}:rain").sel(site=["Rom", "Oslo", "Köln", "Bern"]), overwrite=True)
    with pytest.raises(bl.ArrayError, match="other labels of site"):
        xr.open_dataset(path, engine="binsparse")


@pytest.mark.parametrize("part", [None, True])
def test_a_tensor_with_these_labels_is_appended(tmp_path, part):
    """As one without labels; other labels are refused."""
    whole = dataset().drop_vars("day")[["rain"]].transpose("day", ...)
    bl.write_dataset(path := tmp_path / "a.zarr", whole, {"rain": "CSF"})
    opened = bl.read(f"{path}:rain")
    bl.append(f"{path}:rain", opened[:1], axis="day", part=part)
    assert bl.open(f"{path}:rain").shape[0] == 4
    with pytest.raises(bl.ArrayError, match="has no labels of dimension 'site'"):
        bl.append(f"{path}:rain", opened[:1].with_labels({"site": list("abcd")}), axis="day", part=part)


def test_other_tensors_do_not_import_xarray(tmp_path):
    bl.write(f"{tmp_path}/a.zarr:g", bl.pack_dense(np.eye(2), "CSR", dims=["a", "b"]))
    code = f"import sys, binsparse_levels as bl; bl.open('{tmp_path}/a.zarr:g'); print('xarray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
