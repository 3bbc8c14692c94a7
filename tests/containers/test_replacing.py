"""Atomic replacement of files and folders, and the removal of leftovers."""

import ctypes
import errno
import itertools
import os
import warnings

import pytest
from helpers.places import vector

import binsparse_levels as bl
from binsparse_levels import BinsparseError, ContainerError, pack, read, write
from binsparse_levels.containers import replacing


@pytest.mark.parametrize("name", ["a.zarr", "a.bspnpy"])
def test_what_is_not_on_the_disk_is_not_written(tmp_path, monkeypatch, name):
    write(tmp_path / name, vector(1))

    def failing(*args):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(ContainerError, match="Input/output"):
            write(tmp_path / name, vector(2), overwrite=True)
    assert read(tmp_path / name).values[0] == 1
    assert os.listdir(tmp_path) == [name]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="does not tell the path of a descriptor")
def test_all_of_a_folder_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    flushed, real, exchange = [], os.fsync, replacing.exchange_folders

    def fsync(handle):
        real(handle)
        flushed.append(os.readlink(f"/proc/self/fd/{handle}"))

    def exchanged(part, target):
        there = [os.path.join(place, name) for place, _, names in os.walk(part) for name in ("", *names)]
        assert sorted(flushed) == sorted(path.rstrip("/") for path in there)
        exchange(part, target)

    write(tmp_path / "a.zarr", vector(1))
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(replacing, "exchange_folders", exchanged)
    write(tmp_path / "a.zarr", vector(2), overwrite=True)
    assert read(tmp_path / "a.zarr").values[0] == 2
    assert flushed[-1] == str(tmp_path)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("group", ["", ":g"])
def test_folders_are_exchanged_without_the_call_for_it(tmp_path, monkeypatch, n, group):
    place, folder = f"{tmp_path}/a.zarr{group}", tmp_path / "a.zarr" if group else tmp_path
    write(place, vector(1))
    there = {*os.listdir(folder)}
    calls, real = [], os.rename

    def rename(a, b):
        if ".part" in f"{a}{b}" and "zarr.json" not in f"{a}{b}" and a.count("/") <= str(folder).count("/") + 1:
            calls.append(a)
            if len(calls) == n:
                raise OSError(5, "Input/output error")
        return real(a, b)

    monkeypatch.setattr(ctypes, "CDLL", lambda *args, **kwargs: object())
    monkeypatch.setattr(os, "rename", rename)
    if n > 2:  # of three, the last only renames the old folder
        write(place, vector(2), overwrite=True)
    else:
        with pytest.raises(ContainerError, match="Input/output"):
            write(place, vector(2), overwrite=True)
    assert read(place).values[0] == (2 if n > 2 else 1)
    for left in {*os.listdir(folder)} - there:  # it may be restored, so it is whole
        assert n == 3
        assert read(folder / left).values[0] == 1


@pytest.mark.parametrize("group", ["", ":g"])
def test_a_folder_that_a_killed_writer_moved_away_is_restored(tmp_path, monkeypatch, group):
    """Without the call that exchanges folders, a kill between two renames leaves the old folder under another name."""
    place, real = f"{tmp_path}/a.zarr{group}", os.rename
    write(place, vector(1))

    def killed(a, b):
        real(a, b)
        if b.endswith(".old"):
            os._exit(0)

    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(ctypes, "CDLL", lambda *args, **kwargs: object())
            monkeypatch.setattr(os, "rename", killed)
            write(place, vector(2), overwrite=True)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(ContainerError):
        read(place)
    with pytest.raises(FileExistsError):
        write(place, vector(3))
    assert read(place).values[0] == 1


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["a.zarr.zip", "a.zarr", "a.zarr:g", "a.zarr.zip:g", "a.bspnpy"])
def test_whichever_folder_cannot_be_listed_the_old_or_the_new_tensor_is_there(tmp_path, monkeypatch, name):
    place, real = f"{tmp_path}/{name}", os.scandir
    write(place, vector(1))
    for n in itertools.count():
        calls, written = itertools.count(), True

        def scandir(path=".", n=n, calls=calls):
            if next(calls) == n:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
            return real(path)

        with monkeypatch.context() as patch, warnings.catch_warnings():
            patch.setattr(os, "scandir", scandir)
            warnings.simplefilter("ignore")  # of what cannot be removed
            try:
                write(place, vector(2 + n), overwrite=True)
            except ContainerError:
                written = False
        assert read(place).values[0] == (2 + n if written else 1)
        if next(calls) <= n:  # so many folders are not listed
            break
        write(place, vector(1), overwrite=True)
    assert n > 1


def test_what_cannot_be_removed_is_named(tmp_path, monkeypatch):
    write(tmp_path / "a.zarr", vector(1))

    def rmtree(path, ignore_errors=False):
        if not ignore_errors:
            raise OSError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(replacing.shutil, "rmtree", rmtree)
    with pytest.warns(RuntimeWarning, match=r"\.part: cannot be removed: Permission denied"):
        write(tmp_path / "a.zarr", vector(2), overwrite=True)
    assert read(tmp_path / "a.zarr").values[0] == 2


def test_a_folder_of_others_is_not_replaced_however_it_is_spelled(tmp_path):
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / "precious").touch()
    for kind in ("zarr", "directory"):
        with pytest.raises(FileExistsError):
            write(f"{tmp_path}/x/../a.zarr", pack([[0]], [1.0], (2,), "CVEC"), kind=kind, overwrite=True)
    assert os.listdir(tmp_path / "a.zarr") == ["precious"]


@pytest.mark.parametrize("name", ["a.h5", "a.zarr", "a.bspnpy", "a.npz", "a.tns"])
def test_what_a_killed_writer_left_is_removed_by_the_next_once_it_is_old(tmp_path, monkeypatch, name):
    write(tmp_path / name, vector(1))
    left = [f".{name}.1-01234567.part{end}" for end in ("", ".d", ".old")]
    other = [".notes.part", f".b{name}.1-01234567.part", f".{name}.1-01234567.part.x"]
    for folder in (left[1], left[2]):
        (tmp_path / folder / "x").mkdir(parents=True)
    for file in (left[0], *other):
        (tmp_path / file).touch()
    write(tmp_path / name, vector(1), overwrite=True)
    assert {*left, *other} < {*os.listdir(tmp_path)}
    monkeypatch.setattr(replacing, "_STALE_SECONDS", -1)
    write(tmp_path / name, vector(2), overwrite=True)
    assert {*os.listdir(tmp_path)} == {name, *other}
    assert read(tmp_path / name).values[0] == 2


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.h5ad", "a.zarr.zip"])
def test_an_error_names_the_path_and_not_its_copy(tmp_path, name):
    (tmp_path / name).write_bytes(b"hello")
    with pytest.raises(ContainerError) as told:
        write(f"{tmp_path / name}:layers/x", pack([[0], [0]], [1.0], (1, 1), "CSR"))
    assert [fault.path for fault in told.value.problems] == [str(tmp_path / name)]
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_bytes() == b"hello"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["a\0b", "a\ud800", "a\0b/c.h5", "\0"])
def test_what_cannot_be_a_path_is_refused_everywhere(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    tensor = pack([[0, 1], [1, 0]], [1.0, 2.0], (3, 4), "CSR")
    write("a.h5", tensor)
    calls = (
        lambda: read(path),
        lambda: bl.open(path),
        lambda: bl.list_tensors(path),
        lambda: write(path, tensor),
        lambda: write(path, tensor, kind="zarr"),
        lambda: bl.convert("a.h5", path, "CSC"),
        lambda: bl.convert(path, "b.h5", "CSC"),
        lambda: bl.append(path, tensor),
        lambda: bl.concatenate(["a.h5", path], "b.h5"),
        lambda: bl.build(["a.h5"], "b.zarr", (3, 4), "CSC", work=path),
        lambda: bl.repair("a.h5", path),
        lambda: tensor.report().write(path),
    )
    for call in calls:
        with pytest.raises(BinsparseError):
            call()
    assert os.listdir(tmp_path) == ["a.h5"]
