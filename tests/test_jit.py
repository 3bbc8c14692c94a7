"""Numba's cache where nothing can be written. A file stands where a folder would be, which stops root, too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import binsparse_levels

PACK = """
import numpy as np, binsparse_levels as bl
from binsparse_levels import kernels
from binsparse_levels.thresholds import THRESHOLDS
THRESHOLDS.numpy_entries = THRESHOLDS.first_entries = -1
tensor = bl.pack([np.arange(9), np.arange(9)], np.ones(9), (9, 9), "CSR")
assert tensor.to_dense().trace() == 9
kernels.hashing, kernels.check
print(bl.__file__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("writable", [False, True])
def test_says_once_that_there_is_no_folder_for_the_cache(tmp_path, writable):
    package = tmp_path / "binsparse_levels"
    shutil.copytree(Path(binsparse_levels.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "kernels" / "__pycache__").touch()
    nowhere = os.fspath(tmp_path / "file")
    Path(nowhere).touch()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "XDG_", "PYTHON"))}
    environment = kept | {"HOME": nowhere, "PYTHONPATH": os.fspath(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    if writable:
        environment["NUMBA_CACHE_DIR"] = os.fspath(tmp_path / "numba")
    command = [sys.executable, "-W", "always", "-c", PACK]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).parent == package
    assert run.stderr.count("set NUMBA_CACHE_DIR to a writable folder") == (0 if writable else 1)
    assert (tmp_path / "numba").exists() == writable


@pytest.mark.slow
def test_a_full_disk_stops_no_kernel(tmp_path):
    pytest.importorskip("resource")
    full = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n{PACK}"
    environment = os.environ | {"NUMBA_CACHE_DIR": os.fspath(tmp_path)}
    run = subprocess.run([sys.executable, "-W", "always", "-c", full], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("make room, or set NUMBA_CACHE_DIR to a writable folder") == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


WAIT = """
import sys
import numpy as np, binsparse_levels as bl
from binsparse_levels import kernels
from binsparse_levels.thresholds import THRESHOLDS
THRESHOLDS.numpy_entries = THRESHOLDS.first_entries = -1
import numba
exec("def of_no_module(x): return x", names := {"__builtins__": {}})
assert numba.njit(names["of_no_module"])(1) == 1
bl.pack([np.arange(9), np.arange(9)], np.ones(9), (9, 9), "CSR")
"""


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [False, True])
def test_a_terminal_says_once_that_kernels_are_compiled(tmp_path, terminal):
    pty = pytest.importorskip("pty")
    environment = os.environ | {"NUMBA_CACHE_DIR": os.fspath(tmp_path)}
    ours, theirs = pty.openpty() if terminal else os.pipe()
    for times in (1, 0):  # the second process finds them on disk
        subprocess.run([sys.executable, "-c", WAIT], stderr=theirs, env=environment, check=True)
        os.write(theirs, b"end\n")
        said = ""
        while "end" not in said:
            said += os.read(ours, 10_000).decode()
        assert said.count("binsparse_levels: compiling kernels, once on this machine") == (times if terminal else 0)
        assert len(said.split("\n")) == 2 + (times if terminal else 0)
    os.close(ours)
    os.close(theirs)


SLOW = """
import importlib.abc, os, sys, threading, time
import numpy as np, binsparse_levels as bl
from binsparse_levels import kernels
from binsparse_levels.thresholds import THRESHOLDS
THRESHOLDS.numpy_entries, THRESHOLDS.first_entries = 90, 2000
may_load = threading.Event()
class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numba":
            may_load.wait()
sys.meta_path.insert(0, Slow())
def call(count):
    order = np.random.default_rng(0).permutation(count)
    bl.pack([order], np.ones(count), (count,), "CVEC").check()
for _ in range(30):
    call(THRESHOLDS.numpy_entries)
assert threading.active_count() == 1
for _ in range(60):
    call(100)
assert threading.active_count() == 2
assert not kernels.pays_off(100)
threading.Timer(0.1, may_load.set).start()
"""
CASES = {
    "numpy is used until the kernels are there": """
while not kernels.pays_off(100):
    time.sleep(0.01)
call(100)
assert "numba" in sys.modules
""",
    "a large call waits for them": """
call(3000)
assert "numba" in sys.modules
""",
    "a fork waits for them": """
child = os.fork()
assert kernels.pays_off(100)
call(100)
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
    "a program may end before": "",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("then", CASES, ids=lambda name: name.replace(" ", "_"))
def test_a_thread_loads_kernels(then):
    if "fork" in then and not hasattr(os, "fork"):
        pytest.skip("needs fork")
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", SLOW + CASES[then]]
    run = subprocess.run(command, env=environment, timeout=120, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
