"""Plug-ins of another distribution: loaded when they are asked for, and never because a file names them."""

import subprocess
import sys
import textwrap

import pytest

KIND = '''
from dataclasses import dataclass
from typing import ClassVar

from binsparse_levels.io import Kind
from binsparse_levels.levels import Sparse

@dataclass(frozen=True)
class Banana(Sparse):
    """A sparse level by another name."""

    kind: ClassVar[str] = "banana"
    specified: ClassVar[bool] = False

    def fused(self):
        return None

    def arrays(self, depth, root):
        return {role: x._replace(name=f"banana_{x.name}") for role, x in super().arrays(depth, root).items()}

FILE = Kind("fruit_file", (".fruit",), signature=b"FRUIT")
TREE = Kind("fruit_tree", reads=("group",), folder=("tree.json",), group=("tree",))
BAD = 7
'''
FILE = """
import json
import os
from binsparse_levels import ContainerError, pack
from binsparse_levels.errors import PathExistsError
from binsparse_levels.io import Foreign

def read(path, *, limits):
    with open(path, "rb") as file:
        content = file.read()
    try:
        coords, values, shape = json.loads(content[5:])
    except ValueError as error:
        raise ContainerError(f"{path}: is cut, or is no fruit: {error}; copy the file again") from error
    return pack(coords, values, shape, "sparse(2)", limits=limits)

def write(path, tensor, *, overwrite):
    coords, values = tensor.unpack()
    if not overwrite and os.path.lexists(path):
        raise PathExistsError(f"{path}: already exists; pass overwrite=True")
    with open(path, "wb") as file:
        file.write(b"FRUIT" + json.dumps([[x.tolist() for x in coords], values.tolist(), tensor.shape]).encode())

FUNCTIONS = Foreign(read=read, write=write)
"""
TREE = """
import os
import h5py
import numpy as np
from binsparse_levels import pack
from binsparse_levels.io import Foreign

def claims(group):
    return [""] if "tree" in group.attrs else []

def read(path, *, group=None, limits):
    if isinstance(path, h5py.Group):
        return pack([[0]], [path[group or "/"].attrs["tree"]], 1, "sparse")
    return pack([[0]], [float(len(os.listdir(path)))], 1, "sparse")

FUNCTIONS = Foreign(read=read, claims=claims)
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "fruit.py").write_text(KIND)
    (tmp_path / "fruit_file.py").write_text(FILE)
    (tmp_path / "fruit_tree.py").write_text(TREE)
    info = tmp_path / "fruit-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fruit\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[binsparse_levels.levels]\nbanana = fruit:Banana\n"
        "[binsparse_levels.kinds]\nfruit = fruit:FILE\ntree = fruit:TREE\n"
        "[binsparse_levels.other]\nnone = fruit:BAD\n"
    )

    def run(text):
        head = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport numpy as np, binsparse_levels as bl\n"
        run = subprocess.run(
            [sys.executable, "-c", head + textwrap.dedent(text)], capture_output=True, text=True, cwd=tmp_path
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    return run


@pytest.mark.slow
def test_a_kind_and_a_file_of_another_package(program):
    told = program(
        """
        assert bl.list_plugins() == ["banana", "fruit", "tree"]
        assert "fruit" not in sys.modules
        assert bl.load_plugins("banana") == ["banana"]
        tensor = bl.pack([[0, 2, 2], [1, 0, 3]], [1.0, 2.0, 3.0], (3, 4), "dense, banana")
        bl.write("a.h5", tensor)
        assert bl.read("a.h5").equals(tensor) and bl.open("a.h5")[2].to_dense().tolist() == [2, 0, 0, 3]
        assert bl.load_plugins() == ["banana", "fruit", "tree"] == bl.load_plugins("banana", "fruit", "tree")
        bl.write("a.fruit", tensor)
        bl.write("b", tensor, kind="fruit")
        assert bl.read("a.fruit").equals(tensor) and bl.read("b").equals(tensor)
        from binsparse_levels.testing import check_file_kind
        check_file_kind("fruit", "a.fruit", {"/": tensor})
        print("fine")
        """
    )
    assert told.splitlines()[-1] == "fine"
    told = program(
        """
        for path, told in (("a.h5", "fruit:banana"), ("a.fruit", "neither its content nor its suffix")):
            try:
                bl.read(path)
            except bl.BinsparseError as error:
                assert told in str(error), error
        assert "fruit" not in sys.modules
        from binsparse_levels.cli import main
        assert main(["check", "a.fruit"]) == 1 and main(["--plugin", "fruit", "check", "a.fruit"]) == 0
        assert main(["--plugin", "apple", "check", "a.fruit"]) == 2
        """
    )
    assert "sound" in told


@pytest.mark.slow
def test_a_plugin_marks_folders_and_groups(program):
    told = program(
        """
        import os, h5py
        os.mkdir("wood")
        open("wood/tree.json", "w").close()
        bl.write("a.h5", bl.pack([[0]], [1.0], 1, "sparse"))
        with h5py.File("a.h5", "r+") as file:
            file.create_group("x/y").attrs["tree"] = 5.0
        assert bl.list_tensors("a.h5") == ["/"]
        bl.load_plugins("tree")
        assert bl.read("wood").to_dense().tolist() == [1.0]
        assert bl.list_tensors("a.h5") == ["/", "x/y"]
        assert bl.read("a.h5:x/y").to_dense().tolist() == [5.0]
        assert {None: [1.0], "x/y": [5.0]} == {k: x.to_dense().tolist() for k, x in bl.read_all("a.h5").items()}
        from binsparse_levels.io import Kind, register_kind
        for kind in (Kind("x", folder=("tree.json",)), Kind("x", group=("tree",)), Kind("x", zip=("binsparse.npy",)),
                     Kind("x", (".h5",)), Kind("x", signature=(b"1", b"rawarray"))):
            try:
                register_kind("other", kind)
            except bl.OptionError as error:
                print(error)
        """
    )
    assert len(told.splitlines()) == 5


def test_a_file_is_a_plugin(program, tmp_path):
    own = KIND.replace("@dataclass", "from binsparse_levels.levels import register\n@register\n@dataclass")
    (tmp_path / "my_kinds.py").write_text(own)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "fruit.py").write_text("")
    (tmp_path / "empty.py").write_text("")
    program(
        """
        import my_kinds
        bl.write("a.h5", bl.pack([[0, 2, 2], [1, 0, 3]], [1.0, 2.0, 3.0], (3, 4), "dense, banana"))
        """
    )
    told = program(
        """
        import fruit, os
        from binsparse_levels.cli import main
        sys.path.pop(0)
        assert main(["check", "a.h5"]) == 1
        os.mkdir("away")
        os.chdir("away")
        assert main(["--plugin", "../my_kinds.py", "check", "../a.h5"]) == 0
        assert bl.load_plugins("../my_kinds.py") == ["../my_kinds.py"]
        for name in ("../none.py", "../other/fruit.py", "../empty.py"):
            try:
                bl.load_plugins(name)
            except bl.OptionError as error:
                print(error)
        """
    )
    assert [line.partition("; ")[2] for line in told.splitlines()[-3:]] == [
        "correct the file",
        "rename the file",
        "decorate it with binsparse_levels.levels.register",
    ]


def test_what_is_no_plugin(program, tmp_path):
    points = tmp_path / "fruit-1.0.dist-info" / "entry_points.txt"
    points.write_text(
        "[binsparse_levels.levels]\nsparse = fruit:BAD\nlost = fruit:Lost\n"
        "[binsparse_levels.kinds]\nhdf5 = fruit:FILE\n"
    )
    told = program(
        """
        for name in ("sparse", "lost", "hdf5", "apple"):
            try:
                bl.load_plugins(name)
            except bl.OptionError as error:
                print(error)
        """
    )
    assert len(told.splitlines()) == 4
