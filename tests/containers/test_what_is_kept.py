"""Nothing that was not asked to go is lost, in every container; nothing that appeared meanwhile is replaced."""

import concurrent.futures
import itertools
import os
import signal
import subprocess
import sys
import threading
import warnings
import zipfile

import h5py
import numpy as np
import obstore
import pytest
import zarr
from helpers.disks import full_disk
from helpers.places import CONTAINERS
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import LocalStore, MemoryStore, ObjectStore, StorePath

from binsparse_levels import (
    BinsparseError,
    ContainerError,
    append,
    build,
    concatenate,
    list_tensors,
    pack,
    read,
    write,
)
from binsparse_levels import open as open_tensor

NAMES = {
    "hdf5": "a.h5",
    "netcdf": "a.nc",
    "zarr": "a.zarr",
    "zarr, version 2": "b.zarr",
    "zarr, zip": "a.zarr.zip",
    "npz": "a.npz",
    "directory": "a.bspnpy",
    "rawarray_directory": "a.bspra",
}
GROUPS = ("hdf5", "netcdf", "zarr", "zarr, version 2", "zarr, zip")
counter = itertools.count()
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="limits of sizes of files are Linux's")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


def small(value=1.0, labels=False):
    tensor = pack([[0, 2], [1, 0]], [value, 2.0], (3, 4), "CSR")
    return tensor.with_labels({"row": ["a", "b", "c"]}) if labels and hasattr(tensor, "with_labels") else tensor


def add(name, place, what):
    """Add something that is no tensor of ours to a file."""
    if name in ("hdf5", "netcdf"):
        with h5py.File(place, "r+") as file:
            if what == "attribute":
                file.attrs["title"] = "mine"
            else:
                file[what] = [1, 2, 3]
    elif name in ("npz", "zarr, zip"):
        with zipfile.ZipFile(place, "a") as archive:
            archive.writestr(what, b"mine")
    elif what == "attribute" and name.startswith("zarr"):
        zarr.open_group(place, mode="r+").attrs["title"] = "mine"
    else:
        with open(os.path.join(place, what), "wb") as file:
            file.write(b"mine")


def has(name, place, what):
    if name in ("hdf5", "netcdf"):
        with h5py.File(place) as file:
            return file.attrs["title"] == "mine" if what == "attribute" else file[what][:].tolist() == [1, 2, 3]
    if name in ("npz", "zarr, zip"):
        with zipfile.ZipFile(place) as archive:
            return archive.read(what) == b"mine"
    if what == "attribute" and name.startswith("zarr"):
        return zarr.open_group(place, mode="r").attrs["title"] == "mine"
    with open(os.path.join(place, what), "rb") as file:
        return file.read() == b"mine"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
@given(
    added=st.sets(st.sampled_from(["notes.txt", "attribute"])),
    groups=st.sets(st.sampled_from(["x", "deep/er/y"])),
    first=st.sampled_from([{}, {"bitpacked": True}, {"narrow": True}, {"checksum": True}]),
    way=st.sampled_from(["append", "append with options", "append to the root", "root", "whole", "file"]),
)
def test_a_write_changes_the_tensor_that_it_names(folder, name, added, groups, first, way):
    place = str(folder / f"{next(counter)}{NAMES[name]}")
    _, how = CONTAINERS[name]
    write(place, small(), **how, **first)
    groups = groups if name in GROUPS else set()
    for group in groups:
        write(f"{place}:{group}", small(3.0), **how)
    for what in added:
        add(name, place, what)
    if way == "whole":
        if added or groups:
            with pytest.raises(FileExistsError, match="contains more than a tensor"):
                write(place, small(5.0), overwrite=True, **how)
        else:
            write(place, small(5.0), overwrite=True, **how)
    elif added and way != "file" and name not in GROUPS:  # containers without groups hold one tensor alone
        with pytest.raises(FileExistsError, match="contains more than a tensor"):
            write(f"{place}:/", small(5.0), overwrite=True, **how)
        with pytest.raises(FileExistsError, match="contains more than a tensor"):
            append(place, small(7.0))
        assert read(place).equals(small())
    elif way == "file":
        write(place, small(5.0), overwrite="file", **how)
        assert read(place).values[0] == 5
        assert list_tensors(place) == ["/"]
        write(place, small(6.0), overwrite=True, **how)  # nothing else is left
        return
    elif way == "root":
        write(f"{place}:/", small(5.0).convert("COO"), overwrite=True, **how)
        assert read(place).values[0] == 5
    else:
        more = {"checksum": True} if way.endswith("options") else {}
        append(f"{place}:/" if way.endswith("root") else place, small(7.0), **more)
        assert read(place).shape == (6, 4)
        assert read(place).values.tolist() == [1, 2, 7, 2]
    assert all(has(name, place, what) for what in added)
    assert sorted(list_tensors(place)) == sorted(["/", *groups])
    assert all(read(f"{place}:{group}").values[0] == 3 for group in groups)
    assert not [entry for entry in os.listdir(folder) if ".part" in entry]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("group", ["", ":/"])
def test_what_appeared_meanwhile_is_kept(tmp_path, name, group):
    """Another program has written the path while this one was writing it."""
    source, place = f"{tmp_path}/source.h5", f"{tmp_path}/{NAMES[name]}"
    _, how = CONTAINERS[name]
    write(source, small())
    other = []

    def progress(*_):
        if not other:
            other.append(write(place, small(9.0), **how))

    with pytest.raises(ContainerError, match=NAMES[name]):
        concatenate([source, source], f"{place}{group}", progress=progress, **how)
    assert read(place).values[0] == 9
    assert sorted(os.listdir(tmp_path)) == sorted(["source.h5", NAMES[name]])


OPEN = {
    "a mapping": lambda folder: {},
    "a store": lambda folder: MemoryStore(),
    "a place in a store": lambda folder: StorePath(MemoryStore(), "p/q"),
    "a bucket": lambda folder: ObjectStore(obstore.store.MemoryStore()),
    "a local store": lambda folder: LocalStore(folder / "s.zarr"),
    "a place in a folder": lambda folder: StorePath(LocalStore(folder / "s.zarr"), "p/q"),
    "a group of Zarr": lambda folder: zarr.create_group(MemoryStore()),
    "a group of Zarr 2": lambda folder: zarr.create_group(MemoryStore(), zarr_format=2),
    "a group of HDF5": lambda folder: h5py.File(folder / "f.h5", "w").create_group("g"),
}


@pytest.mark.parametrize("name", OPEN)
def test_of_two_writers_to_an_open_place_one_fails(tmp_path, name):
    source, place, done = f"{tmp_path}/source.h5", OPEN[name](tmp_path), []
    write(source, small())

    def attempt(call):
        try:
            call()
            done.append(True)
        except ContainerError:
            done.append(False)

    def progress(*_):
        if not done:
            attempt(lambda: write(place, small(9.0)))

    attempt(lambda: concatenate([source, source], place, progress=progress))
    assert sorted(done) == [False, True]
    assert read(place).values.tolist() == ([9, 2] if done[0] else [1, 2, 1, 2])


@pytest.mark.parametrize("name", [*OPEN, "b.h5:g", "b.zarr:g", "b.zarr", "b.h5ad:layers/x", "b.mtx"])
def test_of_two_threads_that_write_one_new_place_one_fails(tmp_path, name):
    for n in range(3):
        folder = tmp_path / str(n)
        folder.mkdir()
        place, ready = OPEN[name](folder) if name in OPEN else f"{folder}/{name}", threading.Barrier(2)

        def attempt(value, place=place, ready=ready):
            ready.wait()
            try:
                write(place, small(value))
            except ContainerError:
                return 0
            return value

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            *_, last = done = sorted(pool.map(attempt, (3.0, 9.0)))
        assert done == [0, last]
        assert read(place).values[0] == last > 0


def an_attribute(store):
    zarr.open_group(store, mode="r+").attrs["title"] = "mine"
    return lambda: zarr.open_group(store, mode="r").attrs["title"] == "mine"


def a_tensor_beside(store):
    write(StorePath(store, "other/x"), small(7.0))
    return lambda: read(StorePath(store, "other/x")).equals(small(7.0))


def consolidated_metadata(store):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are not part of version 3
        zarr.consolidate_metadata(store)
    return lambda: zarr.open_group(store, use_consolidated=True) is not None


def an_attribute_of_the_group(store):
    zarr.open_group(store, path="p/q", mode="a").attrs["title"] = "mine"
    return lambda: zarr.open_group(store, path="p/q", mode="r").attrs["title"] == "mine"


def a_tensor_within(store):
    write(StorePath(store, "p/q/r"), small(7.0))
    return lambda: read(StorePath(store, "p/q/r")).equals(small(7.0))


def another_header(store):
    zarr.open_group(store, path="p/q", mode="a").attrs["binsparse"] = "of another program"
    return lambda: zarr.open_group(store, path="p/q", mode="r").attrs["binsparse"] == "of another program"


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    "commit",
    [an_attribute, a_tensor_beside, consolidated_metadata, an_attribute_of_the_group, a_tensor_within, another_header],
)
def test_a_write_that_fails_undoes_nothing_of_another_program(tmp_path, commit, old):
    source, store, kept = f"{tmp_path}/source.h5", MemoryStore(), []
    write(source, small())
    zarr.create_group(store)
    if old:
        write(StorePath(store, "p/q"), small(5.0))

    def progress(*_):
        if not kept:
            kept.append(commit(store))
            raise OSError(28, "No space left on device")

    with pytest.raises((OSError, ContainerError)):
        concatenate([source, source], StorePath(store, "p/q"), progress=progress, overwrite=old)
    assert kept[0]()
    if commit is not another_header:
        if not old:
            write(StorePath(store, "p/q"), small(5.0))
        assert read(StorePath(store, "p/q")).equals(small(5.0))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [*NAMES.values(), "a.mtx", "a.mtx.gz", "a.tns", "a.h5ad"])
@pytest.mark.parametrize(("exists", "size"), [(False, 20_000), (True, 20_000), (True, 100)])
def test_a_full_disk(tmp_path, tmp_path_factory, name, exists, size):
    place = f"{tmp_path}/{name}"
    count = 30_000
    large = pack([np.arange(count)] * 2, np.random.default_rng(0).random(count), (count, count), "CSR")
    write(tmp_path_factory.mktemp("before") / name, large)  # so that no kernel is compiled while files may not grow
    if exists:
        write(place, small())
    with (
        full_disk(size),
        pytest.raises(ContainerError, match=f"{name}: cannot be written: File too large; .*make room"),
    ):
        write(place, large, overwrite=True)
    assert os.listdir(tmp_path) == [name] * exists
    if exists:
        assert read(place).values.tolist() == [1, 2]


def test_pages_on_a_full_disk(tmp_path):
    page = tmp_path / "a.html"
    made = small().report()
    page.write_text("old")
    with full_disk(10), pytest.raises(ContainerError, match=r"a.html: cannot be written: File too large"):
        made.write(page, overwrite=True)
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        made.write(page)
    assert page.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.html"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [100, 20_000, 150_000])
def test_a_full_disk_under_an_append_and_a_build(tmp_path, size):
    count = 30_000
    large = pack([np.arange(count)] * 2, np.random.default_rng(0).random(count), (count, count), "CSR")

    def calls(folder):
        folder.mkdir()
        place = f"{folder}/a.zarr"
        write(place, large)
        given = {"count": 1, "overwrite": True, "duplicates": "first"}
        return (
            lambda: build(lambda _: large.unpack(), place, large.shape, "CSR", **given),
            lambda: concatenate([place, place], f"{folder}/b.zarr"),
            lambda: append(place, large),
        )

    for call in calls(tmp_path / "before"):
        call()  # so that no kernel is compiled while files may not grow
    for call in calls(tmp_path / "here"):
        with full_disk(size), pytest.raises(ContainerError, match=r"cannot be written: File too large; .*make room"):
            call()
    assert read(tmp_path / "here/a.zarr").equals(large)
    assert os.listdir(tmp_path / "here") == ["a.zarr"]


FULL_ANYWHERE = """
import os, resource, signal, sys
import numpy as np
from binsparse_levels import ContainerError, pack, write

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
count = 3000
large = pack([np.arange(count)] * 2, np.arange(1.0, count + 1), (count, count), "CSR")
for size in range(100, 130_000, 1000):
    for name in ("a.h5", "a.h5ad", "a.nc"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        try:
            write(name, large, overwrite=True)
        except ContainerError:
            pass
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert {name, *os.listdir()} <= {"a.h5", "a.h5ad", "a.nc"}
"""


@pytest.mark.slow
def test_hdf5_meets_a_full_disk_in_any_place(tmp_path):
    run = subprocess.run([sys.executable, "-c", FULL_ANYWHERE], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_working_folder_may_change(tmp_path, monkeypatch, name):
    _, how = CONTAINERS[name]
    monkeypatch.chdir(tmp_path)
    write(NAMES[name], small(), **how)
    opened = open_tensor(NAMES[name])
    os.chdir("/")
    assert opened[2].to_dense().tolist() == [2, 0, 0, 0]
    assert opened.load().equals(small())


@pytest.mark.parametrize("name", NAMES)
def test_links_in_a_circle_and_folders_that_are_gone(tmp_path, monkeypatch, name):
    place = tmp_path / NAMES[name]
    os.symlink(place, place)
    for call in (
        lambda: read(place),
        lambda: write(place, small()),
        lambda: write(place, small(), overwrite=True),
        lambda: append(place, small()),
        lambda: list_tensors(place),
    ):
        with pytest.raises(BinsparseError, match=NAMES[name]):
            call()
    assert os.listdir(tmp_path) == [NAMES[name]]
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for call in (
        lambda: read(NAMES[name]),
        lambda: write(NAMES[name], small()),
        lambda: append(NAMES[name], small()),
        lambda: write(gone / NAMES[name], small()),
    ):
        with pytest.raises(BinsparseError, match=r"gone|working folder|no such"):
            call()
