"""Writes that fail or are cut leave the old tensor or the new one, and nothing else that has no telling name."""

import errno
import os
import stat

import numpy as np
import pytest
from attacks import crashes
from zarr.storage import LocalStore

from binsparse_levels import ArrayError, BinsparseError, ContainerError, FormatError, read, write

FAST = 4  # kills for each container


@pytest.mark.slow
@pytest.mark.parametrize("what", [("fail", "interrupt"), ("kill",), ("disk", "loop", "meanwhile")], ids=str)
def test_cut_short(what):
    results = list(crashes.results(FAST, what))
    assert len(results) == len(what) * len(crashes.CONTAINERS)
    assert not [f"{each['what']}, {each['name']}: {each['wrong']}" for each in results if each["wrong"]]
    assert all(each["count"] for each in results)


@pytest.mark.parametrize("name", crashes.CONTAINERS)
@pytest.mark.parametrize("old", [None, 1])
def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, name, old):
    """Also for whoever may write everywhere."""
    place = f"{tmp_path}/{name}"
    if old is not None:
        write(place, crashes.version(old), **crashes.CONTAINERS[name])
    before = sorted(os.listdir(tmp_path))

    def refused(*args, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        for call in ("open", "mkdir"):
            patch.setattr(os, call, refused)
        with pytest.raises((ContainerError, PermissionError)):
            write(place, crashes.version(2), overwrite=True, **crashes.CONTAINERS[name])
    assert sorted(os.listdir(tmp_path)) == before
    assert crashes.version_at(place) == old


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in crashes.CONTAINERS for dtype in ("g", "V3", "M8[s]", "i4,f8")],
)
def test_types_that_cannot_be_stored(tmp_path, name, dtype):
    place = f"{tmp_path}/{name}"
    write(place, crashes.version(1), **crashes.CONTAINERS[name])
    bad = crashes.version(2).astype(np.longdouble) if dtype == "g" else crashes.odd_version(dtype)
    with pytest.raises((ArrayError, FormatError)):
        write(place, bad, overwrite=True, **crashes.CONTAINERS[name])
    assert crashes.version_at(place) == 1
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [name for name in crashes.CONTAINERS if ":" not in name])
@pytest.mark.parametrize("what", ["pipe", "other", "link", "dead link"])
def test_targets_that_are_something_else(tmp_path, name, what):
    """A pipe, a file or folder of others, links: refused, or written through."""
    place, real = tmp_path / name, tmp_path / "real" / name
    real.parent.mkdir()
    if what == "pipe":
        os.mkfifo(place)
    elif what == "other" and name.endswith(("zarr", "npy")):
        place.write_text("all I have")
    elif what == "other":
        place.mkdir()
        (place / "thesis.txt").write_text("all I have")
    else:
        os.symlink(real, place)
        if what == "link":
            write(real, crashes.version(1), **crashes.CONTAINERS[name])
    if what.endswith("link"):
        write(place, crashes.version(2), overwrite=True, **crashes.CONTAINERS[name])
        assert place.is_symlink()
        assert crashes.version_at(str(real)) == 2
        return
    before = os.lstat(place)
    with pytest.raises(BinsparseError):
        write(place, crashes.version(2), overwrite=True, **crashes.CONTAINERS[name])
    assert stat.S_IFMT(os.lstat(place).st_mode) == stat.S_IFMT(before.st_mode)
    assert sorted(os.listdir(tmp_path)) == sorted([name, "real"])


def test_a_store_that_is_written_in_place(tmp_path):
    """A new one is not there until its header is, and what has no header is told to be unfinished."""
    tried = 0
    for n in range(1, 200, 5):
        store = LocalStore(tmp_path / f"attack-{n}.zarr")
        reached, error = crashes.cut(store, n, "fail", {})
        if reached < n:
            break
        tried += 1
        if error is not None:
            with pytest.raises(BinsparseError):
                read(store)
    assert tried > 5
