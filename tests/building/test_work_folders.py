"""Work folders: steps as batch systems run them, damaged and hostile ones, stores and who holds them."""

import concurrent.futures
import contextlib
import dataclasses
import io
import itertools
import json
import multiprocessing
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import time

import cloudpickle
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from helpers.blocks import alike
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels
import binsparse_levels.cli
from binsparse_levels import (
    ArrayError,
    BinsparseError,
    ContainerError,
    IncompleteError,
    OptionError,
    UnsafeError,
    build,
    commit,
    estimate,
    pack,
    plan,
    progress,
    read,
    step,
    write,
)
from binsparse_levels.building import partitions, planning, running, steps, target
from binsparse_levels.building.work import _sealed
from binsparse_levels.containers.base import Storage
from binsparse_levels.containers.objects import asking, bucket
from binsparse_levels.containers.objects.bucket import Bucket
from binsparse_levels.containers.objects.folder import Folder
from binsparse_levels.engine import joining
from binsparse_levels.formats.format import parse_format
from binsparse_levels.limits import DEFAULT_LIMITS

ROOT = pathlib.Path(__file__).parents[2]
SHAPE = (50, 60, 70)
SAMPLED = partitions.sampled_among
STORAGE = Storage(chunks=16, shards=64)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks of a few entries, and steps that write a few items; one partition is cut again."""
    monkeypatch.setattr(planning, "rows_within", lambda *_, **__: 500)
    monkeypatch.setattr(asking, "_PAUSES", (0.0,) * 5)
    monkeypatch.setattr(target, "_WRITTEN", 4096)
    monkeypatch.setattr(partitions, "sampled_among", lambda chunks: SAMPLED(chunks)[:1])


def entries(count=3000):
    rng = np.random.default_rng(0)
    coords = [rng.integers(0, n, count) for n in SHAPE]
    for x in coords[:2]:
        x[500:][rng.random(count - 500) < 0.6] = 7
    return coords, rng.integers(-99, 99, count).astype(float)


def parquet(folder):
    if folder.exists():
        return folder
    folder.mkdir()
    coords, values = entries()
    table = pyarrow.table(dict(zip("ijkv", (*coords, values), strict=True)))
    for k in range(3):
        pyarrow.parquet.write_table(table[k * 1000 : (k + 1) * 1000], folder / f"{k}.parquet", row_group_size=250)
    return folder


def begun(folder, place=None, work=None):
    """Begin a build in a folder, or at other places."""
    options = {"columns": list("ijkv"), "duplicates": "sum", "storage": STORAGE}
    return plan(
        parquet(folder / "in"), place or folder / "a.zarr", SHAPE, "dense, sparse(2)", work=work or folder / "work",
        **options,
    )  # fmt: skip


def whole():
    return pack(*entries(), SHAPE, "dense, sparse(2)", duplicates="sum")


def run_to(work, last):
    """Run all stages before `last`."""
    for stage in running.STAGES:
        if stage == last:
            return
        for number in range(total(work, stage)):
            step(work, stage, number)


def total(work, stage):
    return next(x.total for x in progress(work) if x.name == stage)


# As batch systems do


STEPS = "import sys, binsparse_levels as bl; [bl.step(sys.argv[1], sys.argv[2], int(k)) for k in sys.argv[3:]]"


@pytest.mark.slow
def test_steps_in_any_order_by_processes_that_know_the_folder_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(partitions, "sampled_among", SAMPLED)  # as in those processes
    rng, work = np.random.default_rng(0), tmp_path / "work"
    stages = begun(tmp_path)
    assert [x.name for x in stages] == list(running.STAGES)
    while (todo := next((x for x in progress(work) if x.done != x.total), None)).name != "commit":
        assert todo.done == 0
        numbers = rng.permutation(todo.total).astype(str).tolist()
        halves = [x for x in (numbers[::2], numbers[1::2] + numbers[:1]) if x]  # one of them twice
        runs = [subprocess.Popen([sys.executable, "-c", STEPS, work, todo.name, *x]) for x in halves]
        assert [run.wait() for run in runs] == [0] * len(runs)
    commit(work)
    alike(read(tmp_path / "a.zarr"), whole())
    assert {x.done for x in progress(work)} == {x.total for x in progress(work)} == {1}
    commit(work)
    assert sorted(os.listdir(work)) == ["commit", "plan"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the script is for bash")
def test_the_script_for_slurm_builds_though_tasks_die(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(partitions, "sampled_among", SAMPLED)  # as in the processes
    work, jobs = tmp_path / "a work", tmp_path / "jobs"
    begun(tmp_path, work=work)
    assert binsparse_levels.cli.main(["script", str(work), "--tasks", "2"]) == 0
    script, python = capsys.readouterr().out, f'#!/bin/sh\nexec "{sys.executable}"'
    for name, called in {
        "sbatch": f"{ROOT}/tests/helpers/sbatch.py",
        "binsparse-levels": "-m binsparse_levels",
    }.items():
        (tmp_path / name).write_text(f'{python} {called} "$@"\n')
        (tmp_path / name).chmod(0o700)
    jobs.mkdir()
    killed = "sample:0 partition:1 pack:0 pack:1 write:0"
    given = {"SBATCH_FOLDER": str(jobs), "SBATCH_KILLED": killed, "SBATCH_LOST": "partition:0", "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **given, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    for _ in range(2):
        subprocess.run(["bash", "-s", "--", "--mem=4G"], input=script, text=True, env=environment, check=True)
    ends = [(jobs / f"{k + 1}").read_text() for k in range(18)]
    assert ends == ["done"] * 2 + ["failed"] + ["cancelled"] * 6 + ["done"] * 9
    logged = [json.loads(line) for log in jobs.glob("*.log") for line in log.read_text().splitlines()]
    assert len(logged) == len({(told["stage"], told["step"]) for told in logged}) > 20  # nothing is done twice
    alike(read(tmp_path / "a.zarr"), whole())


def test_tasks_share_the_steps_that_are_not_done(tmp_path):
    work, logged = tmp_path / "work", []
    begun(tmp_path)
    for stage in list(running.STAGES)[:-1]:
        count = total(work, stage)
        if count > 1:
            step(work, stage, count - 1)
        for task in range(4):
            step(work, stage, task, of=4, log=logged.append)
        mine = sorted(told["step"] for told in logged if told["stage"] == stage)
        assert mine == list(range(count - (count > 1)))
        there = next(x for x in progress(work) if x.name == stage)
        assert (there.done, there.size > 0, there.seconds > 0) == (count, count > 0, count > 1)
    assert all(told["written"] > 0 for told in logged)
    assert sum(told["written"] for told in logged if told["stage"] == "pack") <= total_size(work / "pack")
    for task, of in ((4, 4), (-1, 4), (0, 0), (0, -1), (0, "a"), ("a", 4)):
        with pytest.raises(OptionError, match="tasks; count from 0"):
            step(work, "write", task, of=of)
    commit(work)
    step(work, "pack", 3, of=4)
    alike(read(tmp_path / "a.zarr"), whole())


def test_a_step_that_fails_says_so_in_its_log(tmp_path):
    begun(tmp_path)
    (tmp_path / "in" / "0.parquet").unlink()
    logged = []
    with pytest.raises(FileNotFoundError):
        step(tmp_path / "work", "sample", 0, of=1, log=logged.append)
    assert "no such file" in logged[-1]["error"]


def total_size(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


def test_stages_come_one_after_the_other(tmp_path):
    work = tmp_path / "work"
    with pytest.raises(FileNotFoundError):
        progress(work)
    begun(tmp_path)
    for later in list(running.STAGES)[1:]:
        with pytest.raises(IncompleteError, match="0 of 1 steps are done; run the others before"):
            step(work, later, 0)
    with pytest.raises(IncompleteError):
        commit(work)
    for stage, number in (("nothing", 0), ("", 0), ("../plan", 0), (None, 0), ("sample/0", 0)):
        with pytest.raises(OptionError, match="stage"):
            step(work, stage, number)
    for number in (1, -1, 10**20, 0.0, "0", None, True):
        with pytest.raises(OptionError, match="count from 0"):
            step(work, "sample", number)
    run_to(work, "write")
    step(work, "write", 1)
    with pytest.raises(IncompleteError, match="1 of"):
        commit(work)
    with pytest.raises(IncompleteError):
        binsparse_levels.open(tmp_path / "a.zarr")
    for number in range(total(work, "write")):
        step(work, "write", number)
    for number in range(total(work, "write")):
        step(work, "write", number)
    for name in ("c/3", "zarr.json"):
        os.rename(tmp_path / "a.zarr" / "values" / name, tmp_path / "aside")
        with pytest.raises(IncompleteError, match=f"values/{name}"):
            commit(work)
        os.rename(tmp_path / "aside", tmp_path / "a.zarr" / "values" / name)
    with pytest.raises(IncompleteError):
        binsparse_levels.open(tmp_path / "a.zarr")
    commit(work)
    alike(read(tmp_path / "a.zarr"), whole())


def test_what_a_batch_system_cannot_run(tmp_path):
    for source in (lambda k: None, type("Frame", (), {"to_delayed": 1})()):
        with pytest.raises(OptionError, match="needs files"):
            plan(source, tmp_path / "a.zarr", SHAPE, "sparse(3)", work=tmp_path / "work")
    with pytest.raises(FileNotFoundError):
        plan(tmp_path / "none", tmp_path / "a.zarr", SHAPE, "sparse(3)", work=tmp_path / "work", columns=list("ijkv"))


@pytest.mark.parametrize("kind", ["files", "labels", "tensors"])
@given(
    count=st.integers(1, 3000), group=st.integers(100, 900), format=st.sampled_from(["sparse, sparse", "dense, sparse"])
)
def test_a_build_takes_what_the_estimate_tells(tmp_path_factory, kind, count, group, format):
    """Steps that read the source are exact, the bytes of the target within twice. Nothing is written."""
    folder = tmp_path_factory.mktemp("estimated")
    rng = np.random.default_rng(count)
    cells = rng.choice(200 * 300, count, replace=False)
    coords, values, shape, options = (
        [cells // 300, cells % 300],
        rng.random(count),
        (200, 300),
        {"columns": list("ijv")},
    )
    source = str(folder / "a.parquet")
    if kind == "tensors":
        source, options = str(folder / "a.h5"), {}
        write(source, pack(coords, values, shape, "COO"))
    else:
        first = pyarrow.array(coords[0]).cast(pyarrow.string()) if kind == "labels" else coords[0]
        table = pyarrow.table({"i": first, "j": coords[1], "v": values})
        pyarrow.parquet.write_table(table, source, row_group_size=group)
    before = sorted(folder.iterdir())
    told = estimate(source, folder / "b.zarr", shape, format, **options)
    assert sorted(folder.iterdir()) == before
    known = {x.name: x.total for x in plan(source, folder / "b.zarr", shape, format, work=folder / "work", **options)}
    if "partition" in known:
        known["partition"] = len(steps._work_at(folder / "work").source)
    assert [x.name for x in told.stages] == [*known]
    assert {x.name: x.steps for x in told.stages if known[x.name] is not None} == {k: x for k, x in known.items() if x}
    expected = pack(coords, values, shape, format)
    size = sum(x.nbytes for x in (*expected.arrays.values(), expected.values))
    assert told.rows == count
    assert size <= told.target <= 2 * size


@pytest.mark.parametrize("labels", [False, True])
def test_the_work_takes_what_the_estimate_tells(tmp_path, labels):
    coords, values = entries()
    columns = [pyarrow.array(x).cast(pyarrow.string()) if labels else x for x in coords]
    pyarrow.parquet.write_table(pyarrow.table([*columns, values], names=list("ijkv")), tmp_path / "a.parquet")
    given = tmp_path / "a.parquet", tmp_path / "a.zarr", SHAPE, "sparse, sparse, sparse"
    options = {"columns": list("ijkv"), "duplicates": "sum"}
    told = {x.name: x for x in estimate(*given, **options).stages}
    stages = plan(*given, work=tmp_path / "work", **options)
    for name in told:
        if name == "commit":
            break
        found = next(x for x in stages if x.name == name)
        for number in range(found.total):
            step(tmp_path / "work", name, number)
        stages = progress(tmp_path / "work")
        if name in ("partition", "pack"):
            found = next(x for x in stages if x.name == name)
            assert found.size / 2 <= told[name].written <= 2 * found.size
    commit(tmp_path / "work")


def test_an_estimate_warns(tmp_path):
    """Of labels, row groups that are cut, uneven chunks, and levels that are joined through all entries."""
    table = pyarrow.table({"i": [str(k % 9) for k in range(3000)], "v": np.ones(3000)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    given = tmp_path / "a.parquet", tmp_path / "a.zarr", None
    text = str(estimate(*given, "sparse", columns=["i", "v"], duplicates="sum"))
    assert "labels in i" in text
    assert "1 row groups have more than the 500 rows" in text
    for k in range(120):
        pyarrow.parquet.write_table(table[k : k + 1], tmp_path / f"few{k}.parquet")
    told = estimate(str(tmp_path / "few*"), tmp_path / "a.zarr", None, "sparse", columns=["i", "v"])
    assert any("120 files of 1 rows" in x for x in told.warnings)
    build(str(tmp_path / "few*"), tmp_path / "old.zarr", None, "sparse", columns=["i", "v"], duplicates="sum")
    options = {"columns": ["i", "v"], "onto": tmp_path / "old.zarr", "duplicates": "sum"}
    told = estimate(str(tmp_path / "few*"), tmp_path / "old.zarr", None, None, **options)
    assert told.rows == 120 + 9
    with pytest.raises(FileExistsError):
        estimate(str(tmp_path / "few*"), tmp_path / "old.zarr", None, "sparse", columns=["i", "v"])
    with pytest.raises(OptionError, match="only files tell"):
        estimate(lambda k: None, tmp_path / "a.zarr", (3,), "sparse")


def test_planned_twice_and_built_on(tmp_path):
    begun(tmp_path)
    run_to(tmp_path / "work", "pack")
    before = progress(tmp_path / "work")
    assert begun(tmp_path) == before
    options = {"columns": list("ijkv"), "duplicates": "sum", "chunks": 16, "shards": 64}
    build(tmp_path / "in", tmp_path / "a.zarr", SHAPE, "dense, sparse(2)", work=tmp_path / "work", **options)
    alike(read(tmp_path / "a.zarr"), whole())


def contents(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and "plan" not in path.name}


def test_steps_that_run_twice_at_once_leave_the_same_bytes(tmp_path):
    work = tmp_path / "work"
    begun(tmp_path)
    for stage in running.STAGES:
        if stage == "commit":
            break
        numbers = range(total(work, stage))
        for number in numbers:
            step(work, stage, number)
        if stage == "join":
            continue
        before = contents(tmp_path)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            again = [pool.submit(step, work, stage, number) for number in [*numbers, *numbers]]
        assert [x.result() for x in again] == [None] * len(again)
        assert contents(tmp_path) == before
    commit(work)
    done = contents(tmp_path / "a.zarr")
    alike(read(tmp_path / "a.zarr"), whole())
    shutil.rmtree(tmp_path / "work")
    shutil.move(tmp_path / "a.zarr", tmp_path / "b.zarr")
    begun(tmp_path)
    run_to(work, "commit")
    commit(work)
    assert contents(tmp_path / "a.zarr") == done


def test_who_is_thought_dead_and_goes_on_harms_nothing(tmp_path):
    work = tmp_path / "work"
    begun(tmp_path)
    run_to(work, "commit")
    shutil.copytree(work, tmp_path / "other")
    commit(work)
    for stage, number in (("join", 0), ("write", 0), ("write", 1)):
        step(tmp_path / "other", stage, number)
    alike(read(tmp_path / "a.zarr"), whole())


# Hostile folders


def plan_in(path):
    return json.loads(path.read_bytes()[:-32])  # without its checksum


def rewrite(path, plan):
    """A plan with a checksum that is right."""
    path.write_bytes(b"".join(_sealed([json.dumps(plan).encode()])))


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


SOURCES = [{}, {"kind": "stream"}, {"kind": "evil"}, {"kind": ""}, {"kind": None}, {"function": "a.b"}]


@pytest.mark.parametrize("source", SOURCES)
def test_nothing_is_unpickled(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    begun(tmp_path)
    path = tmp_path / "work" / "plan"
    rewrite(path, {**plan_in(path), "source": source})
    evil = pickle.dumps(Evil())
    for name in ("source", "sample/0", "split/0", "table/0", "join/0"):
        (tmp_path / "work" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "work" / name).write_bytes(evil)
    for call in (progress, commit, lambda work: step(work, "partition", 0), lambda work: step(work, "sample", 0)):
        with pytest.raises(UnsafeError):
            call(tmp_path / "work")
    assert not (tmp_path / "evil").exists()


def test_objects_that_are_pickles(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evil = np.array([Evil()], object)
    file = io.BytesIO()
    np.savez(file, cuts=evil, keys=evil, rows=evil, tasks=evil, packs=evil)
    for stage, key in (("split", "sample/0"), ("partition", "split/0"), ("again", "table/0"), ("write", "join/0")):
        work = tmp_path / "work"
        begun(tmp_path)
        run_to(work, stage)
        for content in (file.getvalue(), pickle.dumps(Evil())):
            (work / key).write_bytes(content)
            with pytest.raises(ContainerError, match="damaged"):
                step(work, stage, 0)
        shutil.rmtree(work)
        shutil.rmtree(tmp_path / "a.zarr", ignore_errors=True)
    assert not (tmp_path / "evil").exists()


WRONG = [None, -1, 0, 10**30, 1.5, "x", [], {}, [1], {"a": 1}, True, "V1000000000000", [2**70] * 3, [[1]]]


@pytest.mark.parametrize("name", sorted(x.name for x in dataclasses.fields(planning.Plan)))
def test_plans_with_anything_in_them(tmp_path, name):
    begun(tmp_path)
    path = tmp_path / "work" / "plan"
    given = plan_in(path)
    for wrong in WRONG:
        rewrite(path, {**given, name: wrong})
        for call in (progress, lambda work: step(work, "sample", 0), lambda _: begun(tmp_path)):
            try:
                call(tmp_path / "work")
            except BinsparseError:
                continue
    rewrite(path, {key: x for key, x in given.items() if key != name})
    with pytest.raises(ContainerError, match="plan"):
        progress(tmp_path / "work")


CONTENTS = [b"", b"{", b"[]", b"null", b"\xff", b"1" * 10**6, b"[" * 10**6, b'{"version": 1}']


@pytest.mark.parametrize("content", CONTENTS, ids=range(len(CONTENTS)))
def test_plans_that_are_none(tmp_path, content):
    begun(tmp_path)
    (tmp_path / "work" / "plan").write_bytes(content)
    for call in (progress, commit, lambda work: step(work, "sample", 0), lambda _: begun(tmp_path)):
        with pytest.raises(BinsparseError):
            call(tmp_path / "work")


def test_sources_with_anything_in_them(tmp_path):
    begun(tmp_path)
    path = tmp_path / "work" / "plan"
    given = plan_in(path)
    keys = "files", "columns", "rows", "pieces", "ends", "states", "more"
    wrongs = [[[0, 0, 10**9, 5]], [[0, 0]], [["a"] * 4], [[99, 0, 1, 5]], [[0, -1, 5, 5]]]
    for key, wrong in itertools.product(keys, [*WRONG, *wrongs]):
        rewrite(path, {**given, "source": {**given["source"], key: wrong}})
        for call in (progress, lambda work: step(work, "sample", 0)):
            try:
                call(tmp_path / "work")
            except BinsparseError:
                continue


# Stores


@pytest.fixture(params=["folder", "s3"])
def any_store(request, tmp_path):
    if request.param == "folder":
        return Folder(str(tmp_path / "work"))
    pytest.importorskip("obstore")
    return Bucket(f"{request.getfixturevalue('s3')}/some/work")


def test_objects_of_a_store(any_store):
    assert any_store.names("") == any_store.names("a") == set()
    any_store.put("a/1", [b"0123", np.arange(3, dtype=np.uint8).data])
    any_store.put("a/10", [])
    any_store.put("ab", [b"x"])
    assert any_store.get("a/1") == b"0123\0\1\2"
    assert any_store.names("a") == {"1", "10"}
    assert any_store.size("a/1") == 7
    assert any_store.size("a/10") == 0
    wanted = [("a/1", k % 7, 1) for k in range(50)] + [("a/1", 2, 5), ("a/1", 7, 0), ("a/1", 0, 7)]
    found = [x.tobytes() for x in any_store.ranges(wanted)]
    assert found == [b"0123\0\1\2"[start : start + count] for _, start, count in wanted]
    for start, count in ((0, 8), (6, 2), (7, 1), (100, 1)):
        with pytest.raises(ContainerError):
            list(any_store.ranges([("a/1", start, count)]))
    assert any_store.create("c", b"first")
    assert not any_store.create("c", b"second")
    any_store.put("c", [b"third"])
    assert any_store.get("c") == b"third"
    for call in (any_store.get, any_store.size, lambda key: list(any_store.ranges([(key, 0, 1)]))):
        with pytest.raises(FileNotFoundError):
            call("a/2")
    any_store.delete("a")
    any_store.delete("nothing")
    assert any_store.names("a") == set()
    assert any_store.get("ab") == b"x"
    any_store.delete("ab")
    with pytest.raises(FileNotFoundError):
        any_store.get("ab")


def test_a_store_is_held_by_one(any_store):
    def held():
        with any_store.held():
            return True

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with any_store.held(), pytest.raises(ContainerError, match="another process writes here"):
            pool.submit(held).result()
        assert pool.submit(held).result()
        with pytest.raises(ZeroDivisionError), any_store.held():
            raise ZeroDivisionError
        assert pool.submit(held).result()


@pytest.mark.slow
def test_a_lease_of_the_dead_is_taken_over_once(s3, monkeypatch):
    monkeypatch.setattr(bucket, "_LEASE", 3.0)
    one, taken = Bucket(f"{s3}/work"), []
    one.put("lease", [b"dead"])
    with pytest.raises(ContainerError, match="died less than 3 seconds ago"), one.held():
        pass
    time.sleep(4.1)

    def take(number):
        try:
            with Bucket(f"{s3}/work").held():
                taken.append(number)
                time.sleep(5)
        except ContainerError:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        first = list(pool.map(take, range(6)))
    assert sum(first) == len(taken) == 1  # and it was renewed
    assert one.names("") == set()


def test_who_has_lost_a_lease_leaves_it(s3, monkeypatch):
    monkeypatch.setattr(bucket, "_LEASE", 1.0)
    one = Bucket(f"{s3}/work")
    with one.held():
        one.put("lease", [b"another"])
        time.sleep(0.6)
    assert one.get("lease") == b"another"


# Object stores


@pytest.mark.parametrize("places", ["target", "work", "both", "all"])
def test_builds_in_object_stores(tmp_path, s3, places):
    folder = parquet(tmp_path / "in")
    place = f"{s3}/a.zarr" if places != "work" else tmp_path / "a.zarr"
    work = f"{s3}/work" if places != "target" else tmp_path / "work"
    source = folder
    if places == "all":
        inside = Bucket(f"{s3}/in")
        for path in sorted(folder.iterdir()):
            inside.put(path.name, [path.read_bytes()])
        source = f"{s3}/in"
    options = {"columns": list("ijkv"), "duplicates": "sum", "work": work, "chunks": 64, "shards": 1024}
    build(source, place, SHAPE, "dense, sparse(2)", **options)
    alike(read(place), whole())
    if places != "target":
        assert Bucket(f"{s3}/work").names("") == {"plan", "commit/0"}
    build(source, place, SHAPE, "dense, sparse(2)", **options)
    if places == "all":
        Bucket(f"{s3}/in").put("1.parquet", [(folder / "0.parquet").read_bytes()])
        with pytest.raises(ContainerError, match="differs in source"):
            build(source, place, SHAPE, "dense, sparse(2)", **options)
        with pytest.raises(FileExistsError):
            build(source, place, SHAPE, "dense, sparse(2)", **{**options, "work": f"{s3}/other"})
        more = {**options, "work": f"{s3}/another", "overwrite": True, "chunks": 100, "shards": 100}
        build(source, place, SHAPE, "sparse(3)", **more)
        assert read(place).format == parse_format("sparse(3)")
        assert not [name for name in Bucket(place).names("") if "pointers" in name]


@pytest.mark.slow
def test_processes_build_in_object_stores(tmp_path, s3):
    """A process that is forked from one with the threads of a store crashes."""
    folder = parquet(tmp_path / "in")
    options = {"columns": list("ijkv"), "duplicates": "sum", "work": f"{s3}/work", "chunks": 64, "shards": 1024}
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        refused = pytest.raises(OptionError, match="forks") if method == "fork" else contextlib.nullcontext()
        with concurrent.futures.ProcessPoolExecutor(2, context) as pool, refused:
            build(folder, f"{s3}/a.zarr", SHAPE, "dense, sparse(2)", client=pool, **options)
    alike(read(f"{s3}/a.zarr"), whole())


def test_an_unfinished_target_in_an_object_store(tmp_path, s3):
    begun(tmp_path, f"{s3}/a.zarr", f"{s3}/work")
    run_to(f"{s3}/work", "commit")
    with pytest.raises(IncompleteError):
        binsparse_levels.open(f"{s3}/a.zarr")
    commit(f"{s3}/work")
    alike(read(f"{s3}/a.zarr"), whole())


def test_requests_to_plan_and_to_look(counted_s3):
    """A file takes two requests, a plan that is not there two, and the list of a stage one."""
    proxy, bucket = counted_s3
    inside, files = Bucket(f"{bucket}/in"), 20
    for k in range(files):
        raw = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table({"i": [k], "v": [1.0]}), raw)
        inside.put(f"{k}.parquet", [raw.getvalue()])
    options = {"columns": ["i", "v"], "work": f"{bucket}/work"}
    with proxy.counting() as planned:
        stages = plan(f"{bucket}/in", f"{bucket}/a.zarr", (files,), "sparse", **options)
    with proxy.counting() as looked:
        assert progress(f"{bucket}/work") == stages
    with proxy.counting() as done:
        step(f"{bucket}/work", "pack", 0)
    assert sum(f"{bucket[4:]}/in/" in x.path for x in planned) == 2 * files
    assert [x.status for x in planned if x.path.endswith("/work/plan")] == [404, 200, 200]
    assert len(looked) == len(stages) + 2
    assert sum("/in/" in x.path for x in done) == files


def faulty_build(tmp_path, counted_s3, work):
    """Build with source, work and target behind a proxy; the URL of the target."""
    _, bucket = counted_s3
    inside = Bucket(f"{bucket}/in")
    for path in sorted(parquet(tmp_path / "in").iterdir()):
        asking.asked(inside.put, path.name, [path.read_bytes()])
    options = {"columns": list("ijkv"), "duplicates": "sum", "chunks": 256, "shards": 4096, "work": f"{bucket}/{work}"}
    build(f"{bucket}/in", f"{bucket}/{work}.zarr", SHAPE, "dense, sparse(2)", **options)
    return f"{bucket}/{work}.zarr"


@pytest.mark.parametrize("what", ["lost", "reset", "cut", 403, 404, pytest.param("any", marks=pytest.mark.slow)])
def test_a_build_ends_though_a_server_fails_now_and_then(tmp_path, counted_s3, what):
    proxy, _ = counted_s3
    random, faults = np.random.default_rng(0), []
    kinds = ["lost", "reset", "cut", 403, 404] if what == "any" else [what]

    def fault():
        if random.random() < 0.08:
            faults.append(kinds[random.integers(len(kinds))])
            return faults[-1]
        return None

    for k in range(4 if what == "any" else 1):
        proxy.fault = fault
        target = faulty_build(tmp_path, counted_s3, f"work{k}")
        proxy.fault = lambda: None
        alike(read(target), whole())
        assert Bucket(target.replace(".zarr", "")).names("") == {"plan", "commit/0"}
    assert len(faults) > 5


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("behind", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_a_server_that_denies_for_good_is_named(tmp_path, counted_s3, status, behind):
    proxy, bucket = counted_s3
    proxy.fault = lambda: status if len(proxy.requests) >= behind else None
    with pytest.raises(ContainerError, match=rf"{bucket}/.*(check the address|run again|start the build again)"):
        faulty_build(tmp_path, counted_s3, "work")


@pytest.mark.slow
def test_a_long_listing_goes_on_behind_its_last_page(counted_s3):
    """Each second request fails: as many as a listing from the start could never take."""
    proxy, url = counted_s3
    bucket, names = Bucket(f"{url}/in"), {f"{k:05}" for k in range(2005)}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: bucket.put(name, [b""]), names))
    proxy.fault = lambda: "lost" if len(proxy.requests) % 2 else None
    assert bucket.names("") == names


# Many


def test_a_hundred_thousand_parts_are_joined(capsys):
    count, size = 100_000, 10
    start = time.perf_counter()
    first = np.arange(count)[:, None] * size
    levels = parse_format("sparse").levels
    parts = joining.Parts(
        levels, np.full((count, 1), size), first, first, first + size - 1,
        {"indices_0": np.full(count, size), "values": np.full(count, size)},
        lambda k, name, a, b: np.arange(a, b) if name == "indices_0" else np.arange(a, b) + 10.0 * k,
    )  # fmt: skip
    types = np.dtype(np.int64), np.dtype(float)
    arrays = joining.joined(levels, (count * size,), parts, 0.0, *types, DEFAULT_LIMITS)
    made = time.perf_counter()
    last = {name: x[count * size - 1000 :] for name, x in arrays.items()}
    read_last = time.perf_counter()
    assert last["indices_0"].tolist() == list(range(count * size - 1000, count * size))
    assert last["values"].tolist() == [float(x) for x in range(count * size - 1000, count * size)]
    with capsys.disabled():
        print(f"\n100,000 parts: joined in {made - start:.3f} s, the last shard in {1000 * (read_last - made):.1f} ms")


def test_seventy_thousand_partitions(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    cuts = np.arange(1, 70_000) * 3
    columns = [rng.integers(0, 210_000, 5000).astype(np.int32), rng.random(5000)]
    keys = partitions.keys_of(columns[:1], (210_000,))
    pieces = [b"".join(x) for x in partitions._scattered(columns, keys, cuts)]
    run, starts = b"".join(pieces), np.cumsum([0, *map(len, pieces)]) // 12
    order = np.argsort(keys // 3, kind="stable")
    for b in (0, 1, 2**16 - 1, 2**16, 69_999, *np.unique(keys // 3)[-5:].tolist()):
        there = order[np.searchsorted(keys[order] // 3, b) : np.searchsorted(keys[order] // 3, b, "right")]
        begin, end = starts[b : b + 2]
        assert end - begin == len(there)
        piece = run[begin * 12 : end * 12]
        np.testing.assert_array_equal(np.frombuffer(piece[: 4 * len(there)], np.int32), columns[0][there])
        np.testing.assert_array_equal(np.frombuffer(piece[4 * len(there) :], float), columns[1][there])


def test_tasks_are_small(tmp_path):
    """Whatever the plan, a task carries the address of the work and a number."""
    coords = [[0], [0], [0]]
    names = [f"{tmp_path}/{k}.h5" for k in range(40)]
    for name in names:
        write(name, pack(coords, [1.0], SHAPE, "sparse(3)"))
    plan(names, tmp_path / "a.zarr", SHAPE, "sparse(3)", work=tmp_path / "work", attributes={"long": "x" * 10**5})
    work = steps._work_at(tmp_path / "work")
    assert len(cloudpickle.dumps((running.partial(running.run_step, work, "sample"), 0))) <= 1000
    assert running.run_step(work, "sample", 0) is None
    with pytest.raises(ArrayError):
        run_to(tmp_path / "work", None)
