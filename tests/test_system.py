"""What operating systems do differently, by putting what they do in the place of what this one does."""

import contextlib
import ctypes
import errno
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import filelock
import numpy as np
import pytest
from helpers.opened import open_files
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels
from binsparse_levels import ContainerError, UnsafeError, append, concatenate, convert, pack_dense, read, system, write
from binsparse_levels.containers import direct, hdf5, npz, replacing
from binsparse_levels.containers.replacing import part_of
from binsparse_levels.limits import DEFAULT_LIMITS

PLACES = ["a.h5", "a.zarr", "a.zarr.zip", "a.npz", "a.bspnpy", "a.bspra", "a.nc", "a.mtx", "a.tns", "a.sscdf"]
FOREIGN = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "preadv")


def held(path):
    """Whether this process has that file, or one in that folder, open or mapped."""
    mapped = {line[line.find("/") :] for line in Path("/proc/self/maps").read_text().splitlines()}
    return any(place == path or place.startswith(f"{path}/") for place in open_files() | mapped)


@pytest.fixture
def windows(monkeypatch, tmp_path):
    """The calls of the system as Windows has them; what it has not is not there."""
    for name in FOREIGN:
        monkeypatch.delattr(os, name, raising=False)
    for module in (hdf5, npz):
        monkeypatch.setattr(module, "DIRECT", False)
    monkeypatch.setattr(system, "sys", SimpleNamespace(platform="win32"))
    monkeypatch.setattr(replacing, "FileLock", filelock.SoftFileLock)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    real = {name: getattr(os, name) for name in ("open", "fsync", "rename", "replace", "unlink")}
    real["CDLL"] = ctypes.CDLL
    writable, inside = set(), os.path.realpath(tmp_path)

    def opened(path, flags, *mode, **options):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        handle = real["open"](path, flags, *mode, **options)
        (writable.add if flags & (os.O_RDWR | os.O_WRONLY) else writable.discard)(handle)
        return handle

    def fsync(handle):
        if handle not in writable:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real["fsync"](handle)

    def free(*paths):
        for path in map(os.fspath, paths):
            whole = os.path.realpath(path)
            if whole.startswith(inside) and held(whole):  # elsewhere numba writes its cache
                raise PermissionError(errno.EACCES, "The process cannot access the file", path)

    def rename(a, b, **options):
        free(a, b)
        if os.path.lexists(b):
            raise FileExistsError(errno.EEXIST, "Cannot create a file when that file already exists", b)
        real["rename"](a, b, **options)

    def replace(a, b, **options):
        free(a, b)
        real["replace"](a, b, **options)

    def unlink(path, **options):
        if not options:
            free(path)
        real["unlink"](path, **options)

    monkeypatch.setattr(shutil, "_use_fd_functions", False, raising=False)
    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "unlink", unlink)

    def library(name, *options, **more):
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        return real["CDLL"](name, *options, **more)

    monkeypatch.setattr(ctypes, "CDLL", library)


def small(value=1.0):
    array = np.zeros((6, 5))
    array[[0, 2, 5], [1, 0, 4]] = value, 2, 3
    return pack_dense(array, "COOR")


# Law: every way to write and to read is the same on a system that has other calls


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks which files are open")
@pytest.mark.parametrize("name", PLACES)
def test_all_is_written_and_read_as_on_windows(tmp_path, windows, name):
    place, tensor = tmp_path / name, small()
    write(place, small(7))
    write(place, tensor, overwrite=True)
    assert np.array_equal(read(place).to_dense(), tensor.to_dense())
    found = binsparse_levels.open(place)
    assert found[2].to_dense().tolist() == [2, 0, 0, 0, 0]
    assert np.array_equal(found.load().to_dense(), tensor.to_dense())
    del found  # what is open is not replaced there
    convert(place, tmp_path / "b.h5", "CSR", memory=2**32)
    assert np.array_equal(read(tmp_path / "b.h5").to_dense(), tensor.to_dense())
    if place.is_dir():
        append(place, tensor)
        concatenate([place, place], tmp_path / f"c{name[1:]}")
        assert read(tmp_path / f"c{name[1:]}").shape == (24, 5)
    assert not [other for other in os.listdir(tmp_path) if ".part" in other]


# Processes


def test_the_processors_of_a_process(monkeypatch):
    assert 1 <= system.processors() <= (os.cpu_count() or 1)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    for count, processors in [(6, 6), (None, 1)]:
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        assert system.processors() == processors


# Memory


def test_the_memory_of_a_process_where_nothing_tells(monkeypatch):
    def nothing(path):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

    monkeypatch.setattr(system, "open", nothing, raising=False)
    assert system.resident() == 2**27


@pytest.mark.skipif(sys.platform != "linux", reason="what this system tells is another")
def test_the_memory_of_a_process_on_linux():
    before = system.resident()
    array = np.ones(2**24)
    assert system.resident() - before > array.nbytes / 2


@pytest.mark.skipif(sys.platform != "linux", reason="what this system tells is another")
def test_memory_that_arrow_keeps_is_given_back():
    arrow = pytest.importorskip("pyarrow")
    arrow.array([0]).cast("float64")
    system.release()
    before = system.resident()
    held = [arrow.array(np.arange(100_000)).cast("float64") for _ in range(80)]
    del held
    system.release()
    assert system.resident() - before < 2**24


# Files


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
@pytest.mark.parametrize("call", [True, False])
def test_folders_change_places(tmp_path, monkeypatch, platform, call):
    if not call or platform == "win32":  # there, the library has no default
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: 1 / 0 if platform == "win32" else object())
    monkeypatch.setattr(system, "sys", SimpleNamespace(platform=platform))
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    done = system.exchange(str(tmp_path / "a"), str(tmp_path / "b"))
    assert done in {call and platform == "linux", False}
    assert os.listdir(tmp_path / "a") == (["b"] if done else ["a"])


@pytest.mark.parametrize("has_preadv", [True, False])
def test_a_file_is_read_by_many_at_once(tmp_path, monkeypatch, has_preadv):
    # A read may give less than was asked for.
    monkeypatch.setattr(direct, "read_at", lambda handle, out, at: system.read_at(handle, out[:100], at))
    if not has_preadv:
        monkeypatch.delattr(os, "preadv", raising=False)
    items = np.arange(10_000, dtype=np.int64)
    items.tofile(tmp_path / "a")
    with direct.open_file(str(tmp_path / "a")) as file:
        read = direct.parts_of(file.fileno(), 0, items.dtype, "a", DEFAULT_LIMITS)
        with ThreadPoolExecutor(8) as pool:
            starts = list(range(0, 9_000, 250))
            for start, part in zip(starts, pool.map(lambda k: read(k, k + 1000), starts), strict=True):
                assert np.array_equal(part, items[start : start + 1000])
        with pytest.raises(ContainerError, match="ends before"):
            read(9_500, 10_001)


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1).map(lambda name: name * 9)
)
def test_no_character_of_a_long_name_is_cut_in_two(name):
    """Windows and macOS refuse a name that is not text; the rest of a `.part` still finds room."""
    part = os.path.basename(part_of(os.path.join("folder", name)))
    part.encode()
    assert len(os.fsencode(part)) <= 255
    assert name.startswith(part[1:].rpartition(".part")[0].rpartition(".")[0])


@pytest.mark.parametrize("length", [65, 66, 67, 68, 90])
def test_what_stood_aside_is_put_back_under_its_whole_name_alone(tmp_path, length):
    name = "\N{HIRAGANA LETTER A}" * length  # of three bytes
    aside = f"{part_of(str(tmp_path / name))}.old"
    os.mkdir(aside)
    (tmp_path / os.path.basename(aside) / "old").touch()
    if length <= 66:
        with pytest.raises(FileExistsError):
            write(tmp_path / name, small(), kind="zarr")
        assert os.listdir(tmp_path / name) == ["old"]
    else:
        with contextlib.suppress(ContainerError):  # names of three hundred bytes are refused by the system
            write(tmp_path / name, small(), kind="zarr")
        assert os.path.exists(aside)


def test_a_junction_of_windows_is_not_followed(tmp_path, monkeypatch):
    write(tmp_path / "a.zarr", small())
    real = os.lstat

    def lstat(path, **options):
        status = real(path, **options)
        if os.path.basename(path) != "values":
            return status
        return SimpleNamespace(st_mode=status.st_mode, st_reparse_tag=0xA0000003)

    monkeypatch.setattr(os, "lstat", lstat)
    with pytest.raises(UnsafeError, match=r"values.* is not followed"):
        read(tmp_path / "a.zarr")


# What else there may be


ELSEWHERE = r"\b(ctypes|fcntl|resource|signal|winreg|msvcrt|pwd|grp)\b\.|/proc/|/dev/|sys\.platform|os\.name\b"
ELSEWHERE += r"|os\.(kill|fsync|preadv?|sched_\w+|sysconf|uname|getuid|fork|mkfifo|statvfs|posix_\w+|sendfile|splice)\b"


def test_no_other_module_asks_which_system_this_is():
    root = Path(binsparse_levels.__file__).parent
    found = {
        (path.relative_to(root).as_posix(), match[0])
        for path in root.rglob("*.py")
        for match in re.finditer(ELSEWHERE, path.read_text())
    }
    assert {name for name, _ in found} == {"system.py"}, found
