"""One body of tests for all containers."""

import json
import os
import shutil
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import zarr
from helpers.places import CONTAINERS, counter
from hypothesis import given

from binsparse_levels import (
    ArrayError,
    BinsparseError,
    ContainerError,
    Tensor,
    UnsafeError,
    list_tensors,
    pack,
    read,
    testing,
    write,
)
from binsparse_levels.io import KINDS, describe

# The name of a container, what makes a place for it, and what `write` is to be told.
LOCAL = [name for name, (make, _) in CONTAINERS.items() if isinstance(make(Path("x")), Path)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("containers")


def small(value=1.0, **options):
    return pack([[0, 2], [1, 0]], [value, 2.0], (3, 4), "CSR", **options)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CONTAINERS)
@given(tensor=testing.tensors(max_rank=6, max_size=3))
def test_what_is_written_is_read(folder, name, tensor):
    make, options = CONTAINERS[name]
    place = make(folder)
    write(place, tensor, overwrite=True, **options)
    testing.check_same(read(place), tensor)
    found = describe(place)
    assert found.descriptor.number_of_stored_values == len(tensor.values)
    assert found.descriptor.version == "0.1.0"


@pytest.mark.parametrize("name", CONTAINERS)
def test_attributes_survive(folder, name):
    make, options = CONTAINERS[name]
    place = make(folder)
    csr = small()
    attributes = {"who": ["me", {"a": None, "b": "ü\ud800\x00"}], "n": 1}
    inner = {"source": {"year": 2026}}
    tensor = Tensor(
        csr.format, csr.shape, csr.arrays, csr.values, attributes=attributes, descriptor_attributes=inner, fill_value=0
    )
    write(place, tensor, overwrite=True, spec_version="0.1", **options)
    testing.check_same(read(place), tensor)
    assert describe(place).descriptor.version == "0.1"
    assert list_tensors(place) == ["/"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CONTAINERS)
def test_nothing_is_overwritten_unasked(tmp_path, name):
    make, options = CONTAINERS[name]
    place = make(tmp_path)
    write(place, small(1), **options)
    with pytest.raises(FileExistsError):
        write(place, small(2), **options)
    assert read(place).values[0] == 1
    write(place, small(2).convert("COO"), overwrite=True, **options)
    assert read(place).values[0] == 2
    assert str(read(place).format) == "COOR"
    assert not [entry for entry in os.listdir(tmp_path) if entry.endswith(".part")]


@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("exists", [True, False])
def test_a_write_that_fails_changes_nothing(tmp_path, monkeypatch, name, exists):
    make, options = CONTAINERS[name]
    place = make(tmp_path)
    if exists:
        write(place, small(1), **options)

    def failing(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", failing)
    before = sorted(os.listdir(tmp_path))
    if (
        name.partition(",")[0] in ("hdf5", "npz", "netcdf") or name == "zarr, zip"
    ):  # of a folder nothing is owed to disk
        with pytest.raises(ContainerError, match="No space"):
            write(place, small(2), overwrite=True, **options)
        monkeypatch.undo()
        assert sorted(os.listdir(tmp_path)) == before
        if exists:
            assert read(place).values[0] == 1
    with pytest.raises(ArrayError):
        write(place, small(2).astype(np.longdouble), overwrite=True, **options)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("name", ["hdf5", "netcdf", "zarr", "zarr, version 2"])
def test_groups(tmp_path, name):
    make, options = CONTAINERS[name]
    place = make(tmp_path)
    write(f"{place}:x", small(1), **options)
    write(f"{place}:deep/er/y", small(2), **options)
    write(f"{place}:/", small(3), **options)
    for group, value in [("x", 1), ("deep/er/y", 2), ("/", 3)]:
        assert read(f"{place}:{group}").values[0] == value
    assert sorted(list_tensors(place)) == ["/", "deep/er/y", "x"]
    with pytest.raises(FileExistsError):
        write(f"{place}:x", small(4), **options)
    write(f"{place}:x", small(4).convert("COO"), overwrite=True, **options)
    assert read(f"{place}:x").values[0] == 4
    assert read(f"{place}:deep/er/y").values[0] == 2
    for missing in ("z", "x/y", "values/a"):
        with pytest.raises(BinsparseError):
            read(f"{place}:{missing}")


@pytest.mark.parametrize("name", ["zarr, store", "zarr, memory"])
def test_a_store_is_its_root_group(tmp_path, name):
    store = CONTAINERS[name][0](tmp_path)
    write(store, small(3))
    assert list_tensors(store) == ["/"]
    assert read(zarr.open_group(store, mode="r")).values[0] == 3


def test_the_content_says_what_a_place_is(tmp_path):
    for name in LOCAL:
        make, options = CONTAINERS[name]
        place = make(tmp_path)
        if name == "zarr, zip":
            continue  # a zip store is opened by its suffix
        write(place, small(), **options)
        moved = tmp_path / f"moved{next(counter)}"
        os.rename(place, moved)
        assert read(moved).equals(small()), name
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path):
        with pytest.raises(ContainerError, match="contains no tensor"):
            read(place)


@pytest.mark.parametrize("kind", ["zarr", "directory", "rawarray_directory"])
def test_a_folder_that_is_not_ours_is_left_alone(tmp_path, kind):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all I have")
    with pytest.raises(FileExistsError):
        write(tmp_path / "mine", small(), kind=kind, overwrite=True)
    assert os.listdir(tmp_path / "mine") == ["thesis.txt"]
    (tmp_path / "mine" / "thesis.txt").unlink()
    write(tmp_path / "mine", small(), kind=kind, overwrite=True)
    assert read(tmp_path / "mine").equals(small())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.npz", {"chunks": 3}),
        ("a.bspnpy", {"compression": "gzip"}),
        ("a.bspra", {"compression": "gzip"}),
        ("a.h5", {"shards": 3}),
        ("a.h5", {"compression": "zstd"}),
        ("a.zarr", {"compression": "lzma"}),
        ("a.zarr", {"kind": "zarr2", "shards": 3}),
        ("a.mtx", {"compression": "gzip"}),
        ("a.h5", {"kind": "parquet"}),
    ],
)
def test_options_that_a_container_does_not_have(tmp_path, name, options):
    with pytest.raises(TypeError):
        write(tmp_path / name, small(), **options)
    assert not os.listdir(tmp_path)


# What other programs see


def test_a_netcdf_file_by_the_netcdf_library(tmp_path):
    values = np.array([-2147483647, -127, -9223372036854775806, 5])  # what netCDF takes for missing ones
    tensor = pack([[0, 1, 2, 3]], values, (5,), "CVEC", fill_value=0)
    write(tmp_path / "a.nc", tensor)
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        assert json.loads(file.getncattr("binsparse"))["binsparse"]["format"] == "CVEC"
        assert file["values"][:].tolist() == values.tolist()
        assert not np.ma.is_masked(file["values"][:])
        assert file["indices_0"].dimensions == ("dim_indices_0",)
    for dtype, missing in [("i4", -2147483647), ("f8", 9.969209968386869e36), ("u1", 255), ("i2", -32767)]:
        write(tmp_path / "b.nc", pack([[1]], np.array([missing], dtype), (5,), "CVEC"), overwrite=True)
        with netCDF4.Dataset(tmp_path / "b.nc") as file:
            assert not np.ma.is_masked(file["values"][:]), dtype
            assert file["values"][0] == np.array(missing, dtype)


def test_zarr_as_it_is_stored(tmp_path):
    tensor = pack([np.arange(200_000)], np.zeros(200_000), (200_000,), "CVEC")
    write(tmp_path / "a.zarr", tensor)
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert group.attrs["binsparse"]["binsparse"]["format"] == "CVEC"
    array = group["indices_0"]
    assert (array.chunks, array.shards) == ((65536,), (262144,))
    assert array.fill_value == 2**31 - 1
    for array in (group["indices_0"], group["values"]):
        assert array.nchunks_initialized == array.nchunks
    assert read(tmp_path / "a.zarr").equals(tensor)


def test_zarr_headers_in_other_places(tmp_path):
    write(tmp_path / "a.zarr", small())
    group = zarr.open_group(tmp_path / "a.zarr", mode="r+")
    double = group.attrs["binsparse"]
    for header in (double["binsparse"], json.dumps(double), json.dumps(double["binsparse"])):
        group.attrs["binsparse"] = header
        assert read(tmp_path / "a.zarr").equals(small())


def test_a_codec_that_is_not_on_the_list(tmp_path):
    write(tmp_path / "a.zarr", small(), kind="zarr2")
    path = tmp_path / "a.zarr" / "values" / ".zarray"
    metadata = json.loads(path.read_text())
    metadata["filters"] = [{"id": "fixedscaleoffset", "offset": 0, "scale": 1, "dtype": "<f8"}]
    path.write_text(json.dumps(metadata))
    with pytest.raises((UnsafeError, ContainerError)):
        read(tmp_path / "a.zarr")


def test_npz_is_bounded_and_runs_no_code(tmp_path):
    header = json.dumps(small().__binsparse_descriptor__())
    arrays = dict(small().__binsparse__())
    for change in (
        {"values": np.array([object(), None])},
        {"binsparse": np.array(["a", "b"])},
        {"indices_1": np.zeros((2, 2), np.int32)},
        {"indices_1": np.zeros(10**6, np.int32)},
    ):
        np.savez_compressed(
            tmp_path / "a.npz", **{"binsparse": np.array(header), **arrays, **change}, allow_pickle=True
        )
        with pytest.raises(BinsparseError):
            read(tmp_path / "a.npz")
    for text in (np.array(header), np.frombuffer(header.encode(), np.uint8), np.array(header.encode())):
        np.savez(tmp_path / "b.npz", binsparse=text, **arrays)
        assert read(tmp_path / "b.npz").equals(small())


def test_links_in_a_directory_are_not_followed(tmp_path):
    write(tmp_path / "a.bspnpy", small())
    shutil.move(tmp_path / "a.bspnpy" / "values.npy", tmp_path / "values.npy")
    os.symlink(tmp_path / "values.npy", tmp_path / "a.bspnpy" / "values.npy")
    with pytest.raises(UnsafeError):
        read(tmp_path / "a.bspnpy")


@pytest.mark.parametrize("name", ["a.npz", "a.zarr.zip", "a.nc", "a.h5"])
def test_files_that_are_cut(tmp_path, name):
    write(tmp_path / name, small())
    whole = (tmp_path / name).read_bytes()
    for cut in range(0, len(whole) - 30, max(len(whole) // 40, 1)):
        (tmp_path / name).write_bytes(whole[:cut])
        with pytest.raises(BinsparseError):
            read(tmp_path / name)


def test_a_mapping_is_given_back_as_it_is():
    tensor = small()
    mapping = {}
    write(mapping, tensor)
    assert np.shares_memory(mapping["values"], tensor.values)
    assert np.shares_memory(read(mapping).values, tensor.values)
    for spoil in ({"values": [1, 2]}, {"binsparse": 5}, {"binsparse": {"binsparse": {1, 2}}}):
        with pytest.raises(BinsparseError):
            read({**mapping, **spoil})
    with pytest.raises(BinsparseError):
        read({})


def test_list_tensors_follows_no_links(tmp_path):
    write(f"{tmp_path}/a.h5:x/y", small())
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["soft"] = h5py.SoftLink("/x")
        file["x/up"] = file["/"]
    assert list_tensors(tmp_path / "a.h5") == ["x/y"]


def test_every_kind_has_its_test():
    tested = {options.get("kind", name.split(",")[0]) for name, (_, options) in CONTAINERS.items()}
    assert tested == {kind for kind, known in KINDS.items() if ".containers." in known.module}


# Cases that hostile use found


@pytest.mark.parametrize("name", ["n.zarr", "n.zarr.zip", "n.h5"])
@pytest.mark.parametrize("dtype", [np.longlong, np.ulonglong, np.int64])
def test_types_with_two_names_in_c(tmp_path, name, dtype):
    tensor = pack([[2**33], [3]], np.array([1], dtype), (2**62, 2**62), "COO")
    write(tmp_path / name, tensor, narrow=True)
    assert read(tmp_path / name).equals(tensor)
