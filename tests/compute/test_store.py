"""Texts of nests lie in a private folder. A text that was changed there is never used."""

import os
import stat
import subprocess
import sys

import numpy as np
import pytest

from binsparse_levels import Dense, Sparse, einsum, pack, pack_dense
from binsparse_levels.compute import nest, store
from binsparse_levels.compute.nest import Leaf, Seen, Wrap, nest_text


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_folders", lambda: [tmp_path / "nests"])
    store.compiled.cache_clear()
    yield tmp_path / "nests"
    store.compiled.cache_clear()


def test_a_text_is_kept_and_found_again(folder):
    path = store.place_text("a = 1\n")
    assert path == store.place_text("a = 1\n")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 or sys.platform == "win32"
    assert [file.name for file in folder.iterdir()] == [os.path.basename(path)]


EVIL = "raise SystemExit('run')\n"


def test_a_text_that_was_changed_is_replaced(folder):
    tensor = pack_dense(np.eye(3), "CSR")
    assert einsum("ij->i", tensor).tolist() == [1, 1, 1]
    paths = list(folder.glob("*.py"))
    assert len(paths) == 1
    before = paths[0].read_bytes()
    paths[0].write_text(EVIL)
    store.compiled.cache_clear()
    assert einsum("ij->i", tensor).tolist() == [1, 1, 1]
    assert paths[0].read_bytes() == before


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege")
def test_a_link_is_not_followed(folder, tmp_path):
    path = store.place_text("a = 1\n")
    (tmp_path / "other").write_text("a = 1\n")
    os.unlink(path)
    os.symlink(tmp_path / "other", path)
    assert store.place_text("a = 1\n") == path
    assert not os.path.islink(path)
    assert (tmp_path / "other").read_text() == "a = 1\n"


@pytest.mark.skipif(sys.platform == "win32", reason="modes are those of POSIX")
@pytest.mark.parametrize("make", [lambda f, t: (f.mkdir(), f.chmod(0o777)), lambda f, t: f.symlink_to(t)])
def test_a_folder_that_others_may_write_is_not_used(folder, tmp_path, make):
    make(folder, tmp_path)
    assert store.place_text("a = 1\n") is None
    assert not list(folder.glob("*.py"))
    assert einsum("ij->j", pack_dense(np.eye(2), "CSR")).tolist() == [1, 1]


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(store, "_folders", lambda: [tmp_path / "file" / "nests"])
    assert store.place_text("a = 1\n") is None


def test_nothing_of_a_tensor_becomes_text(folder):
    bad = "'); import os; os._exit(1) #"
    tensor = pack([[0]], [1.0], 3, "CVEC", attributes={bad: bad}).astype(">f8")
    einsum("a->", tensor)
    (path,) = folder.glob("*.py")
    assert bad not in path.read_text()
    assert set(path.read_text()) <= set(map(chr, range(32, 127))) | {"\n"}


@pytest.mark.slow
def test_machine_code_is_kept_for_the_next_process(tmp_path):
    code = (
        "import numpy as np, binsparse_levels as bl\n"
        "from binsparse_levels.compute import store\n"
        "from numba.core import event\n"
        "with event.install_recorder('numba:compile') as recorder:\n"
        "    print(bl.einsum('ij->i', bl.pack_dense(np.eye(3), 'CSR')).tolist(), len(recorder.buffer))\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    environment.pop("NUMBA_DISABLE_JIT", None)
    printed = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment).stdout
        for _ in range(2)
    ]
    assert all(text.startswith("[1.0, 1.0, 1.0]") for text in printed)
    assert not printed[0].endswith(" 0\n")
    assert printed[1].endswith(" 0\n")


HELPED = """
from {module} import Helped
from binsparse_levels import pack
from binsparse_levels.levels import register
register(Helped)
tensor = pack([[0, 0, 1], [0, 2, 1]], [1.0, 2.0, 3.0], (2, 3), "dense, helped")
print((tensor @ [1.0, 1.0, 1.0]).tolist())
"""
KIND = """
from dataclasses import dataclass
from typing import ClassVar
import numba
from binsparse_levels import Sparse

@numba.njit
def same(x):
    return x

@dataclass(frozen=True)
class Helped(Sparse):
    kind: ClassVar[str] = "helped"
    specified: ClassVar[bool] = False
    max_rank: ClassVar[int] = 1

    def fused(self):
        return None

    def helpers(self):
        return {"same": same}

    def loop(self, root):
        return "for q in range(ptr[p], ptr[p + 1]):\\n    i0 = same(idx0[q])\\n    yield"
"""


@pytest.mark.slow
def test_a_helper_may_move_to_another_module(tmp_path):
    """Machine code of a helper is loaded by the name of its module, so that of another module is not taken."""
    for module in ("first", "second"):
        (tmp_path / f"{module}.py").write_text(KIND)
        found = os.pathsep.join([str(tmp_path), *sys.path])
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": found}
        code = HELPED.format(module=module)
        ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert ran.stdout.startswith("[3.0, 3.0]"), ran.stderr
        (tmp_path / f"{module}.py").unlink()


def test_the_text_of_csr_is_the_one_of_the_documentation():
    rows = Leaf(("out",), "total += value", frozenset((0,)), frozenset((0,)), "total = out[c0]\nyield\nout[c0] = total")
    text = nest_text(
        (Dense(), Sparse()), Seen((Wrap(1, "c0 = x0\nyield"), Wrap(2, "c1 = x1\nyield")), (1, 2), None), rows, "each"
    )
    drawn = nest.__doc__[nest.__doc__.index("    for x0") :]
    drawn = drawn[: drawn.index("\n\n")]
    assert drawn in text
    space = {"u8": int, "not_unrolled": int}
    exec(text, space)
    arrays = (np.array([0, 2, 2, 3]), np.array([1, 3, 0]))
    out = np.zeros(3)
    assert space["extent"]([3, 4, 3, 3], *arrays) == (0, 3)
    space["nest"](0, 3, [3, 4, 3, 3], *arrays, np.array([5.0, 7, 1]), out)
    assert out.tolist() == [12, 0, 1]
