"""Writes that are cut short: by a fault at every step, by an interrupt, by kill −9, by a full disk. What is there
afterwards is the old tensor or the new one, whole, and what else is left has a name that tells.

python -m tests.attacks.crashes --times 25 is the long run.
"""

import argparse
import contextlib
import ctypes
import errno
import functools
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np

from binsparse_levels import BinsparseError, Tensor, pack, read, write
from binsparse_levels.errors import PathMissingError

from .supervise import MEMORY, watch, work

CONTAINERS: dict[str, dict[str, Any]] = {
    "a.h5": {}, "b.h5": {"compression": "gzip", "chunks": 100}, "a.h5:g": {}, "a.nc": {}, "a.nc:g": {}, "a.npz": {},
    "a.zarr": {}, "b.zarr": {"kind": "zarr2", "chunks": 100}, "a.zarr:g": {"chunks": 100, "shards": 200},
    "beside.zarr:g/h": {}, "a.zarr.zip": {}, "a.bspnpy": {}, "a.bspra": {}, "a.mtx": {}, "a.mtx.gz": {}, "a.tns": {},
}  # fmt: skip
LEFTOVER = re.compile(r"\..+(\.[0-9]+-[0-9a-f]{8}\.part(\.d|\.old)?|\.binsparse_levels\.lock)")
SIZE = 500

Step = Callable[[str], None]
_step: Step | None = None


def version(k: int) -> Tensor:
    """Tensors that can be told apart, and any mixture of two of them."""
    rows = np.arange(SIZE)
    coords = [np.append(rows, SIZE), np.append((rows + k) % SIZE, SIZE)]
    return pack(coords, np.append(np.full(SIZE, k, np.int64), k), (SIZE + 1, SIZE + 1), "CSR")


def odd_version(dtype: str) -> Tensor:
    """A tensor of values that are no numbers, or numbers of an odd type."""
    rows = np.arange(3)
    return pack([rows, rows], np.zeros(3, dtype), (3, 3), "CSR")


def version_at(place: str) -> int | None:
    """Which version lies there, None where nothing does; an error where it is none, or a mixture."""
    if not os.path.exists(place.rpartition(":")[0] or place):
        return None
    try:
        found = read(place)
    except PathMissingError:
        return None
    k = int(found.values[0])
    assert found.equals(version(k)), "a mixture"
    return k


BESIDE = "other"  # the group of a tensor in a store that begins with `beside`, which nothing may change


def prepare(place: str, k: int | None, options: dict[str, Any]) -> None:
    """What lies there before the attack: a version, or none."""
    path = place.rpartition(":")[0]
    if os.path.basename(path).startswith("beside"):
        write(f"{path}:{BESIDE}", version(SIZE))
    if k is not None:
        write(place, version(k), **options)


def _check_beside(path: str, what: str) -> None:
    """Assert that the tensor beside is there, and that no reader of the store meets anything temporary."""
    assert read(f"{path}:{BESIDE}").equals(version(SIZE)), f"{what}: the tensor beside is another"
    there = {*os.listdir(path)}
    assert there - {"g"} == {"zarr.json", BESIDE}, f"{what}: left {there} in the store"
    assert "g" not in there or {*os.listdir(f"{path}/g")} == {"zarr.json", "h"}, f"{what}: an unfinished group"


# Steps: whatever changes the file system below a folder, as far as Python sees it, and the calls of C libraries.

_CHANGES = {
    "os.rename",
    "os.mkdir",
    "os.remove",
    "os.rmdir",
    "os.chmod",
    "os.truncate",
    "shutil.copyfile",
    "shutil.copytree",
}


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _step is None or not (
        event in _CHANGES or (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    ):
        return
    if isinstance(args[0], str | bytes | os.PathLike) and "attack-" in os.fsdecode(args[0]):
        _step(event)


@functools.cache
def _hook() -> None:
    sys.addaudithook(_audit)


def _stepped(real: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a step before it and a step behind."""

    def call(*args: Any, **options: Any) -> Any:
        if _step is not None:
            _step("")
        result = real(*args, **options)
        if _step is not None:
            _step("")
        return result

    return call


@contextlib.contextmanager
def stepping(step: Step) -> Iterator[None]:
    """Call `step` before and behind everything that changes the disk."""
    global _step
    _hook()
    places = [(h5py.Group, "create_dataset"), (h5py.AttributeManager, "create"), (os, "fsync")]
    with contextlib.ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(mock.patch.object(owner, name, _stepped(getattr(owner, name))))
        _step = step
        try:
            yield
        finally:
            _step = None


def cut(place: Any, n: int, action: str, options: dict[str, Any]) -> tuple[int, BaseException | None]:
    """Write version 2 with a fault at the n-th step: the number of steps, and what was raised."""
    steps = itertools.count(1)
    reached = 0

    def step(event: str) -> None:
        nonlocal reached
        if action == "interrupt" and threading.current_thread() is not threading.main_thread():
            return  # Python interrupts its main thread alone
        if action == "fail" and event in ("os.remove", "os.rmdir"):
            return  # a full disk does not keep anyone from removing
        reached = next(steps)
        if reached != n:
            return
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise KeyboardInterrupt if action == "interrupt" else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    try:
        with stepping(step):
            write(place, version(2), overwrite=True, **options)
    except (OSError, BinsparseError, KeyboardInterrupt) as error:
        return reached, error
    return reached, None


def cut_everywhere(name: str, parent: Path, action: str, *, steps: int = 1) -> int:
    """A fault at every n-th step (of `steps`) of a write, onto nothing and onto an old tensor; returns how many."""
    done = 0
    for old in (None, 1):
        for n in itertools.count(1 + len(name) % steps, steps):  # not the same steps everywhere
            with tempfile.TemporaryDirectory(prefix="attack-", dir=parent) as folder:
                finished = _one_cut(f"{folder}/{name}", old, n, action, CONTAINERS[name])
            if finished:
                break
            done += 1
    return done


def _one_cut(place: str, old: int | None, n: int, action: str, options: dict[str, Any]) -> bool:
    """Returns whether the write was finished before the n-th step; a library may try again after a fault."""
    prepare(place, old, options)
    if action == "kill":
        error: Any = _in_child(lambda: cut(place, n, action, options))
        finished = not error
    else:
        reached, error = cut(place, n, action, options)
        finished = reached < n
    what = f"{place.rpartition('/')[2]} over {old}, {action} at step {n}"
    _check(place, {old, 2} if error else {2}, what, leftovers=not error or action == "kill")
    return finished


def _in_child(call: Callable[[], Any]) -> bool:
    """Call in a process of its own; whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            call()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def _check(place: str, allowed: set[int | None], what: str, *, leftovers: bool = True) -> list[str]:
    """Assert that one of the versions is there, and nothing beside it but leftovers under their names."""
    path = place.rpartition(":")[0] or place
    if os.path.basename(path).startswith("beside"):
        _check_beside(path, what)
    try:
        found = version_at(place)
    except Exception as error:
        raise AssertionError(f"{what}: unreadable, {error!r}") from error
    assert found in allowed, f"{what}: found version {found}"
    beside = sorted(set(os.listdir(os.path.dirname(path))) - {os.path.basename(path)})
    kept = [name for name in beside if not name.endswith(".lock")]  # an empty file that the next writer removes
    assert leftovers or not kept, f"{what}: left {beside}"
    assert all(LEFTOVER.fullmatch(name) for name in beside), f"{what}: left {beside}"
    return beside


def full_disk(name: str, parent: Path, sizes: int = 12) -> int:
    """No file may grow beyond a size, for several sizes; returns how many writes failed.

    For the HDF5 libraries in a process of its own, which has to end well: what they could not write they try again
    at its end. (Not for text: polars does not survive a fork.)
    """
    if ".h5" not in name and ".nc" not in name:
        return _full_disk(name, parent, sizes)
    told = parent / "told"
    child = os.fork()
    if child == 0:
        try:
            told.write_text(json.dumps([_full_disk(name, parent, sizes), ""]))
        except BaseException as error:
            told.write_text(json.dumps([0, repr(error)]))
        ctypes.CDLL(None).exit(0)  # not `os._exit`: libraries have the last word
    status = os.waitpid(child, 0)[1]
    failed, wrong = json.loads(told.read_text()) if told.exists() else (0, "")
    assert not wrong, wrong
    assert status == 0, f"{name}: the process ended with status {status} after {failed} failed writes"
    return int(failed)


def _full_disk(name: str, parent: Path, sizes: int) -> int:
    failed = 0
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    with tempfile.TemporaryDirectory(prefix="attack-", dir=parent) as folder:
        place = f"{folder}/{name}"
        prepare(place, 1, CONTAINERS[name])
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        largest = max(path.stat().st_size for path in files)
        for size in np.linspace(0, largest, sizes).astype(int).tolist():
            error = None
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
            try:
                write(place, version(2), overwrite=True, **CONTAINERS[name])
            except (OSError, BinsparseError) as caught:
                error = caught
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            _check(place, {1, 2} if error else {2}, f"{name}, at most {size} bytes a file", leftovers=False)
            failed += error is not None
            write(place, version(1), overwrite=True, **CONTAINERS[name])
    return failed


def kill_loop(name: str, parent: Path, times: int) -> dict[str, int]:
    """Kill a process that overwrites without end, at random; how many different versions and leftovers were seen."""
    chance = random.Random(name)
    seen, left = set(), 0
    with tempfile.TemporaryDirectory(prefix="attack-", dir=parent) as folder:
        place = f"{folder}/{name}"
        prepare(place, 0, CONTAINERS[name])
        begin = time.perf_counter()
        write(place, version(0), overwrite=True, **CONTAINERS[name])
        span = 4 * (time.perf_counter() - begin)
        for _ in range(times):
            first = version_at(place) or 0
            child = os.fork()
            if child == 0:
                for k in itertools.count(first + 1):
                    write(place, version(k), overwrite=True, **CONTAINERS[name])
            time.sleep(chance.uniform(0, span))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            beside = _check(place, set(range(first, first + 10_000)), f"{name}, killed")
            seen.add(version_at(place))
            left += len(beside)
            for leftover in beside:
                path = os.path.join(folder, leftover)
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    return {"kills": times, "versions": len(seen), "leftovers": left}


def read_meanwhile(name: str, parent: Path, seconds: float = 1.0) -> dict[str, int]:
    """Read while two processes overwrite: whole versions, refusals, and never a mixture."""
    counts = {"whole": 0, "refused": 0}
    with tempfile.TemporaryDirectory(prefix="attack-", dir=parent) as folder:
        place = f"{folder}/{name}"
        prepare(place, 0, CONTAINERS[name])
        children = []
        for first in (1, 2):
            children.append(os.fork())
            if children[-1] == 0:
                for k in itertools.count(first, 2):
                    with contextlib.suppress(BinsparseError, OSError):
                        write(place, version(k % SIZE), overwrite=True, **CONTAINERS[name])
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                try:
                    assert version_at(place) is not None, f"{name}: nothing is there"
                    counts["whole"] += 1
                except BinsparseError:
                    counts["refused"] += 1
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        _check(place, set(range(SIZE)), f"{name}, two writers")
    return counts


CUTS = ("disk", "fail", "interrupt", "kill", "loop", "meanwhile")


def jobs(what: Sequence[str]) -> list[tuple[str, str]]:
    return [(each, name) for each in what for name in CONTAINERS]


def run(job: tuple[str, str], times: int) -> dict[str, Any]:
    """One kind of cut in one container: counts, and what is wrong."""
    what, name = job
    steps = 1 if times > 10 else 13 if "zarr" in name else 1 if what == "fail" else 3
    calls: dict[str, Callable[[Path], Any]] = {
        "disk": lambda folder: full_disk(name, folder),
        "loop": lambda folder: kill_loop(name, folder, times),
        "meanwhile": lambda folder: read_meanwhile(name, folder, times / 20),
    }
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        try:
            count = calls.get(what, lambda folder: cut_everywhere(name, folder, what, steps=steps))(Path(folder))
        except Exception as error:
            return {"what": what, "name": name, "count": 0, "wrong": repr(error)}
    return {"what": what, "name": name, "count": count, "wrong": ""}


def results(times: int, what: Sequence[str] = CUTS) -> Iterator[dict[str, Any]]:
    """Every job of these kinds, in a process that is watched."""
    todo = jobs(what)
    for k, found in watch("crashes", ["--work", "--times", str(times), *what]):
        kind, name = todo[k]
        yield found if isinstance(found, dict) else {"what": kind, "name": name, "count": 0, "wrong": found}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.crashes", description=__doc__)
    parser.add_argument("what", nargs="*", default=CUTS, help=f"of {', '.join(CUTS)}")
    parser.add_argument("--times", type=int, default=25, help="kills for each container")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        warnings.simplefilter("ignore")
        work(jobs(options.what), lambda job: run(job, options.times), options.first)
    for result in results(options.times, options.what):
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
