"""Appends and compactions of tensors in several parts: kills, other writers, and buckets."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import pickle
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from attacks import crashes
from helpers.growth import ROWS, appended, grown, numbered, row
from zarr.storage import MemoryStore

import binsparse_levels as bl
from binsparse_levels.building import compacting, to_file
from binsparse_levels.containers import zarr_parts
from binsparse_levels.io import appending


def _aged(place, name, days):
    """A part of a tensor as one that was begun days ago and never listed."""
    old = f"part_{int(time.time()) - days * 86400:08x}00000000"
    shutil.copytree(f"{place}/{name}", f"{place}/{old}")
    return old


def test_what_killed_writers_left_is_removed_alone(tmp_path):
    """Also a second group with the arrays of the first part, which another first append has left."""
    place = str(tmp_path / "a.zarr")
    grown(place, 1)
    old = [_aged(place, part.group, 15) for part in bl.open(place).parts[:1]]
    recent = _aged(place, bl.open(place).parts[1].group, 10)
    bl.append(place, numbered(2))
    there = os.listdir(place)
    assert recent in there
    assert not {*old} & {*there}
    assert appended(place) == [0.0, 1.0, 2.0]
    bl.compact(place, grace=0)
    assert sorted(os.listdir(place)) == sorted([recent, bl.open(place).parts[0].group, "zarr.json"])


@pytest.mark.parametrize(
    "change", [lambda place: bl.append(place, numbered(2)), lambda place: bl.compact(place, grace=0)]
)
def test_a_change_that_removes_nothing_is_made(tmp_path, monkeypatch, change):
    place = str(tmp_path / "a.zarr")
    grown(place, 1)
    before = appended(place)

    def fail(*arguments):
        raise bl.ContainerError("no rights")

    monkeypatch.setattr("binsparse_levels.containers.zarr_parts.names_at", fail)
    with pytest.warns(UserWarning, match="could not be removed: no rights"):
        change(place)
    assert appended(place) in (before, [*before, 2.0])
    assert len(bl.open(place).parts) in (1, 3)


def test_a_part_that_a_lost_answer_may_have_added_is_kept(tmp_path, monkeypatch):
    place = str(tmp_path / "a.zarr")
    grown(place, 1)
    edit = zarr_parts.edit

    def lost(*arguments):
        edit(*arguments)
        raise bl.ContainerError("the connection broke")

    monkeypatch.setattr("binsparse_levels.containers.zarr_parts.edit", lost)
    with pytest.raises(bl.ContainerError, match="broke"):
        bl.append(place, numbered(2))
    assert appended(place) == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("make", [lambda folder: str(folder / "a.zarr"), lambda folder: MemoryStore()])
def test_a_compacted_tensor_is_replaced_with_the_arrays_of_its_first_part(tmp_path, make):
    place = make(tmp_path)
    grown(place, 1)
    bl.compact(place, "COO")
    bl.write(place, ROWS, overwrite=True)
    assert bl.read(place).equals(ROWS)
    names = os.listdir(place) if isinstance(place, str) else {key.partition("/")[0] for key in place._store_dict}
    assert not [name for name in names if name.startswith("part_")]


@pytest.mark.parametrize(
    ("meanwhile", "why"),
    [
        (lambda place: bl.write(place, bl.pack_dense([[1, 2, 3]], "CSR"), overwrite=True), "has replaced the tensor"),
        (lambda place: _replaced(place, np.int64), "has replaced the tensor"),
        (lambda place: bl.append(place, bl.pack_dense([[1.0], [2.0]], "CSR"), axis=1), "has the shape"),
        (shutil.rmtree, "no such|removed"),
    ],
)
def test_a_part_of_another_tensor_is_not_added(tmp_path, monkeypatch, meanwhile, why):
    place = str(tmp_path / "a.zarr")
    grown(place, 1)
    write = appending.write_pieces

    def written(*arguments, **options):
        monkeypatch.undo()
        write(*arguments, **options)
        meanwhile(place)

    monkeypatch.setattr("binsparse_levels.io.appending.write_pieces", written)
    with pytest.raises(bl.BinsparseError, match=why):
        bl.append(place, numbered(2))
    if os.path.exists(place):
        bl.read(place)
        assert len([x for x in os.listdir(place) if x.startswith("part_")]) == len(bl.open(place).parts)


def _replaced(place, dtype):
    bl.write(place, bl.pack_dense(np.ones((2, 3), dtype), "CSR"), overwrite=True)
    bl.append(place, bl.pack_dense(np.ones((1, 3), dtype), "CSR"), part=True)


def test_a_part_that_took_too_long_is_not_added(tmp_path, monkeypatch):
    place = str(tmp_path / "a.zarr")
    grown(place, 1)
    begun = f"part_{int(time.time()) - 8 * 86400:08x}00000000"
    monkeypatch.setattr("binsparse_levels.io.appending.part_name", lambda: begun)
    with pytest.raises(bl.ContainerError, match="more than a week"):
        bl.append(place, numbered(2))
    assert appended(place) == [0.0, 1.0]


@pytest.mark.parametrize("memory", [None, 2**31])
def test_others_append_while_it_becomes_dense(tmp_path, monkeypatch, memory):
    """Before it is opened again, while it is packed, and before it is listed."""
    place = str(tmp_path / "a.zarr")
    grown(place, 1)
    convert, unchanged = compacting.convert, to_file.unchanged

    def converted(*arguments, **options):
        bl.append(place, numbered(2))
        convert(*arguments, **options)
        bl.append(place, numbered(4))

    def packed(*arguments):
        bl.append(place, numbered(3))
        return unchanged(*arguments)

    monkeypatch.setattr("binsparse_levels.building.compacting.convert", converted)
    monkeypatch.setattr("binsparse_levels.building.to_file.unchanged", packed)
    bl.compact(place, "dense, dense", memory=memory)
    assert [x.shape for x in bl.open(place).parts] == [(3, 3), (1, 3), (1, 3)]
    assert bl.read(place).to_dense().tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 2], [3, 0, 0], [0, 4, 0]]


def test_checksums_are_kept(tmp_path):
    place = tmp_path / "a.zarr"
    bl.write(place, ROWS, checksum=True)
    bl.append(place, row("w"), part=True)
    bl.compact(place)
    bl.append(place, row("x"))
    for part in bl.open(place).parts:
        assert "binsparse_levels:sealed" in (place / part.group / "zarr.json").read_text()


def test_a_relative_path_is_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grown("a.zarr", 1)
    opened, sent = bl.open("a.zarr"), pickle.dumps(bl.open("a.zarr"))
    monkeypatch.chdir("/")
    assert opened[1].to_dense().tolist() == pickle.loads(sent)[1].to_dense().tolist() == [0, 1, 0]


def _cut(place, change, n, action):
    """`change` with a fault at step n: whether it came so far."""
    steps, reached = itertools.count(1), [0]

    def step(event):
        if action == "fail" and event in ("os.remove", "os.rmdir"):
            return
        reached[0] = next(steps)
        if reached[0] == n:
            if action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    try:
        with crashes.stepping(step):
            change(place)
    except (OSError, bl.BinsparseError):
        pass
    return reached[0] >= n


@pytest.mark.slow
@pytest.mark.parametrize("action", ["kill", "fail"])
@pytest.mark.parametrize("change", ["append", "first", "compact", "removing"])
def test_a_change_that_is_cut_short_loses_nothing(tmp_path, action, change):
    """At every third step, what is there is the tensor before or after, and the next change works."""
    call = {
        "append": lambda place: bl.append(place, numbered(7)),
        "first": lambda place: bl.append(place, numbered(7), part=True),
        "compact": bl.compact,
        "removing": lambda place: bl.compact(place, grace=0),
    }[change]
    before = [0.0] if change == "first" else [0.0, 1.0, 2.0]
    after = [*before, 7.0] if change in ("append", "first") else before
    grown(tmp_path / "a.zarr", len(before) - 1)
    for n in itertools.count(1 + len(change) % 3, 3):  # not the same steps for each change
        folder = tmp_path / f"attack-{n}"
        folder.mkdir()
        place = str(folder / "a.zarr")
        shutil.copytree(tmp_path / "a.zarr", place)
        if action == "kill":
            child = os.fork()
            if not child:
                try:
                    _cut(place, call, n, action)
                finally:
                    os._exit(0)
            cut = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        else:
            cut = _cut(place, call, n, action)
        found = appended(place)
        assert found in ([before, after] if cut else [after]), f"step {n}"
        bl.append(place, numbered(8), part=True)
        assert appended(place) == [*found, 8.0]
        shutil.rmtree(folder)
        if not cut:
            break
    assert n > 10


def _append_some(place, first, count):
    for k in range(first, first + count):
        bl.append(place, numbered(k), part=True)


@pytest.mark.slow
def test_many_programs_append_at_a_time(tmp_path):
    place = str(tmp_path / "a.zarr")
    bl.write(place, bl.pack_dense([[0.0, 0, 0]], "CSR"))
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_some, args=(place, 10 * k + 1, 10)) for k in range(4)]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        found = appended(place)
        assert len(found) >= seen
        seen = len(found)
        if seen > 20:
            bl.compact(place)
            break
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert appended(place) == [float(k) for k in range(41)]


@pytest.mark.slow
def test_many_threads_append_to_a_bucket(s3):
    place = f"{s3}/a.zarr"
    bl.write(place, bl.pack_dense([[0.0, 0, 0]], "CSR"))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: _append_some(place, 4 * k + 1, 4), range(4)))
    assert appended(place) == [float(k) for k in range(17)]
    bl.compact(place, grace=0)
    assert appended(place) == [float(k) for k in range(17)]
    assert len(bl.open(place).parts) == 1


@pytest.mark.slow
def test_a_bucket_is_opened_in_one_request(counted_s3):
    proxy, url = counted_s3
    place = f"{url}/a.zarr"
    grown(place, 5)
    with proxy.counting() as requests:
        opened = bl.open(place)
    assert len(requests) <= 2, requests
    with proxy.counting() as requests:
        assert opened[3].to_dense().tolist() == [3, 0, 0]
    assert len(requests) <= 8, requests
