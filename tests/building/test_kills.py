"""kill -9 at any moment: a build that is called again ends as if nothing had been, a stream is written or is not."""

import contextlib
import gc
import json
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from attacks import crashes
from helpers.blocks import alike
from hypothesis import event, given
from hypothesis import strategies as st

from binsparse_levels import build, convert, pack, read, write, write_from
from binsparse_levels.building import partitions, running
from binsparse_levels.thresholds import THRESHOLDS

STAGES = ["plan", "rows", *running.STAGES]
SHARES = st.floats(0, 1)  # of the moments of a stage
SAMPLED = partitions.sampled


@pytest.fixture(autouse=True, scope="module")
def small():
    """Steps of a few entries, and a sample that tells little, so that a partition exceeds the memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(THRESHOLDS, "step_entries", 20)
        patch.setattr(partitions, "sampled", lambda work: SAMPLED(work)[:1])
        patch.setattr(THRESHOLDS, "step_bytes", 64)
        yield


class Moments:
    """The moments of a call: each call and each return of a function in it, of Python or C, in any thread.

    kill: the stage, and the number of the moment in it, at which the process is killed.
    """

    def __init__(self, kill=None):
        self.kill, self.passed, self.stage = kill, Counter(), ""

    def __call__(self, stage, done, total):
        """The progress of a build."""
        self.stage = stage

    def _pass(self, *_):
        self.passed[self.stage] += 1
        if (self.stage, self.passed[self.stage]) == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    def of(self, call):
        """Make call(progress) in a process of its own; how many moments have passed by stage, None if it is killed."""
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            with contextlib.suppress(BaseException):
                gc.disable()  # what other tests have left would make moments of its own
                self.stage = "plan"
                threading.setprofile(self._pass)
                sys.setprofile(self._pass)
                call(self)
                sys.setprofile(None)
                os.write(writing, json.dumps(self.passed).encode())
            os._exit(0)
        os.close(writing)
        with open(reading) as pipe:
            told = pipe.read()
        status = os.waitpid(child, 0)[1]
        assert told or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL), "the call has failed"
        return json.loads(told) if told else None


def killed(moments, stage, share, call):
    """Kill a call when a share of the moments of a stage has passed. Returns whether it was killed."""
    return Moments((stage, 1 + int(share * (moments[stage] - 1)))).of(call) is None


# Builds


class Case(NamedTuple):
    """Parquet files of texts and numbers; what a build makes of them: the tensor, its labels, the files that it leaves.

    moments: of each stage.
    """

    files: Path
    expected: Any
    users: list[str]
    left: list[str]
    moments: dict[str, int]


def built(files, folder, progress):
    build(
        files, folder / "a.zarr", (None, 50), "sparse, sparse", columns=["user", "item", "v"], duplicates="sum",
        work=folder / "work", chunks=16, shards=32, progress=progress,
    )  # fmt: skip


def names_in(folder):
    """The names below a folder, without parts and locks of what was killed, which a later write removes."""
    found = [path.relative_to(folder) for path in folder.rglob("*")]
    return sorted(str(path) for path in found if not any(name.endswith((".part", ".lock")) for name in path.parts))


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    files, folder = (tmp_path_factory.mktemp(name) for name in ("files", "unkilled"))
    rng = np.random.default_rng(0)
    users, items, values = rng.integers(0, 30, 90), rng.integers(0, 50, 90), rng.integers(1, 9, 90)
    users[::2] = 7
    table = pyarrow.table({"user": [f"user {k:02}" for k in users], "item": items, "v": values})
    for k in range(3):
        pyarrow.parquet.write_table(table[30 * k : 30 * (k + 1)], files / f"{k}.parquet")
    known, at = np.unique(users, return_inverse=True)
    expected = pack([at, items], values, (len(known), 50), "sparse, sparse", duplicates="sum")
    built(files, folder, None)  # here, so that the other processes find all modules and kernels loaded
    moments = Moments().of(lambda progress: built(files, tmp_path_factory.mktemp("counted"), progress))
    assert set(moments) == set(STAGES)
    return Case(files, expected, [f"user {k:02}" for k in known], names_in(folder), moments)


def kept(work):
    """The steps of a work that are done: their objects, each a file of its own."""
    return {path: path.stat().st_ino for path in work.glob("*/*") if path.parent.name in running.STAGES}


def ends_as_unkilled(folder, case, stage, share):
    """Kill a build and call it again. Returns whether it was killed."""
    cut = killed(case.moments, stage, share, lambda progress: built(case.files, folder, progress))
    before, during = kept(folder / "work"), {}

    def progress(name, done, total):
        if name == "commit" and not done:
            during.update(kept(folder / "work"))

    built(case.files, folder, progress)
    assert before.items() <= during.items() or folder / "work/commit/0" in before  # nothing is done twice
    alike(read(folder / "a.zarr"), case.expected)
    assert read(folder / "a.zarr").labels("user").tolist() == case.users
    assert names_in(folder) == case.left
    return cut


@given(stage=st.sampled_from(STAGES), share=SHARES)
def test_a_build_that_is_killed(tmp_path_factory, case, stage, share):
    ends_as_unkilled(tmp_path_factory.mktemp("killed"), case, stage, share)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_builds_that_are_killed_in_a_stage(tmp_path_factory, case, stage):
    rng, most, cut = np.random.default_rng(), 1.0, 0
    for _ in range(10):
        if ends_as_unkilled(tmp_path_factory.mktemp("killed"), case, stage, most * rng.random()):
            cut += 1
        else:
            most /= 2  # a stage has fewer moments where threads wait less than when they were counted
    assert cut >= 3


# Streams

PLACES = ["a.h5", "a.h5:g", "a.zarr", "a.zarr:g", "a.nc", "a.npz", "a.bspnpy", "a.bspra"]


def streamed(path, number, progress=None):
    """Version `number`, in chunks that are not in order."""
    coords, values = crashes.version(number).unpack()
    order = np.random.default_rng(number).permutation(len(values))
    shape = (crashes.SIZE + 1,) * 2
    chunks = [([x[some] for x in coords], values[some]) for some in np.array_split(order, 9)]
    write_from(chunks, path, shape, "CSR", overwrite=True, progress=progress)


def converted(sources):
    """`streamed`, by a conversion in blocks of a file with the version."""

    def call(path, number, progress=None):
        source = f"{sources}/{number}.h5"
        convert(source, path, "CSC", memory=2**34, overwrite=True, progress=progress)

    for number in (1, 2):
        write(f"{sources}/{number}.h5", crashes.version(number))
    return call


@contextlib.contextmanager
def larger():
    """Steps that hold more entries, for this test alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(THRESHOLDS, "step_entries", 200)
        yield


@pytest.mark.slow
@given(name=st.sampled_from(PLACES), old=st.booleans(), share=SHARES, data=st.data())
def test_a_stream_or_a_conversion_that_is_killed(tmp_path_factory, name, old, share, data):
    make = converted(tmp_path_factory.mktemp("sources")) if data.draw(st.booleans()) else streamed
    with larger():
        ends = f"{tmp_path_factory.mktemp('stream')}/{name}"
        make(ends, 2)
        moments = Moments().of(lambda progress: make(ends, 2, progress))
        stage = data.draw(st.sampled_from(sorted(moments)))
        place = f"{tmp_path_factory.mktemp('stream')}/{name}"
        if old:
            make(place, 1)
        cut = killed(moments, stage, share, lambda progress: make(place, 2, progress))
        event(f"{stage}: {'killed' if cut else 'not killed'}")
        crashes._check(place, {1 if old else None, 2}, f"{name}, killed in {stage}")
        make(place, 2)
        assert crashes.version_at(place) == 2
