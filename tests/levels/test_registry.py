"""Kinds of other packages: names in the notation and in files, versions, and other processes."""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from helpers import kinds

from binsparse_levels import BinsparseError, FormatError, build, pack, parse_format, read, write
from binsparse_levels.levels import LEVELS, Sparse, register
from binsparse_levels.levels.registry import SentKind, layout, register_sent, sent_kinds


def kind(package, name="tangle", **more):
    return type(name.title(), (kinds.Backwards,), {"kind": name, "package": package, "__module__": package, **more})


def stored_by(level):
    """A file of a tensor in this kind."""
    register(level)
    stored = {}
    write(stored, pack([[0, 1], [2, 0]], [1.0, 2.0], (2, 3), f"dense, {level.kind}"))
    LEVELS.pop(level.kind)
    return stored


def test_two_packages_have_a_kind_of_one_name():
    first, second = kind("east"), kind("west", ordered=True)
    stored = stored_by(first)
    register(second)
    with pytest.raises(BinsparseError, match="unknown level kind 'east:tangle'; the package 'east' provides it"):
        read(stored)
    assert str(parse_format("dense, tangle")) == "dense, tangle(1, base=0)"
    register(first)
    assert type(read(stored).format.levels[1]) is first
    with pytest.raises(FormatError, match="east:tangle and west:tangle; write one of these"):
        parse_format("dense, tangle")
    for each in (first, second):
        format = parse_format(f"dense, {each.package}:tangle(1, base=2)")
        assert type(format.levels[1]) is each
        assert str(format) == f"dense, {each.package}:tangle(1, base=2)"
        assert parse_format(str(format)) == format == parse_format(format.custom())
    assert register(first) is first


@pytest.mark.parametrize("name", ["tangle", "sparse", "bitmap"])
def test_a_name_of_a_package_is_taken_once(name):
    register(kind("east"))
    with pytest.raises(FormatError, match="registered already"):
        register(kind("east", name, __qualname__="Other"))


def test_a_class_that_is_defined_again_takes_its_place():
    register(kind("east"))
    again = register(kind("east", ordered=True))
    assert LEVELS["tangle"] is again


def test_files_of_before_kinds_had_packages():
    stored = stored_by(kind("east"))
    (key,) = [key for key, x in stored.items() if "east:tangle" in str(x)]
    text = json.dumps(stored[key])
    assert '"version": 0' in text
    old = json.loads(text.replace(', "version": 0', "").replace("east:", "binsparse_levels:"))
    with pytest.raises(BinsparseError, match=r"load_plugins\('tangle'\)"):
        read({**stored, key: old})
    register(kind("east"))
    assert read({**stored, key: old}).equals(read(stored))
    register(kind("west"))
    with pytest.raises(BinsparseError, match="may be east:tangle and west:tangle"):
        read({**stored, key: old})


def test_another_version_of_the_layout_is_refused():
    stored = stored_by(kind("east", version=2))
    register(kind("east", version=3))
    with pytest.raises(BinsparseError, match="has the layout 2, and the loaded kind has 3; install"):
        read(stored)


def test_the_layout_of_a_class_of_a_program_is_its_code():
    first = kind("__main__", build=lambda self: 1)
    second = kind("__main__", build=lambda self: 2)
    assert layout(first) != layout(second)
    stored = stored_by(kind("__main__"))
    with pytest.raises(BinsparseError, match="program or notebook that wrote it defines it"):
        read(stored)
    register(kind("__main__", expand=lambda self: 3))
    with pytest.raises(BinsparseError, match="run the definition that wrote it"):
        read(stored)


@pytest.mark.parametrize("before", ["east", "__main__"])
def test_a_kind_that_moves_reads_its_files(before):
    """From a package with the same layout, or from a program, whose layout is a checksum; it writes the new name."""
    stored = stored_by(kind(before))
    register(kind("west"))
    with pytest.raises(BinsparseError, match="definition first" if before == "__main__" else "the package 'east'"):
        read(stored)
    LEVELS.pop("tangle")
    moved = register(kind("west", formerly=(before, "north")))
    tensor = read(stored)
    assert type(tensor.format.levels[-1]) is moved
    write(again := {}, tensor)
    assert "west:tangle" in str(again)
    register(kind("south", formerly=(before,)))
    with pytest.raises(BinsparseError, match="may be south:tangle and west:tangle"):
        read(stored)
    if before == "east":  # the kind itself comes before those that had its name
        register(own := kind("east"))
        assert type(read(stored).format.levels[-1]) is own


def test_a_kind_that_moves_refuses_another_layout():
    stored = stored_by(kind("east", version=2))
    register(kind("west", formerly=("east",), version=3))
    with pytest.raises(BinsparseError, match="has the layout 2, and the loaded kind has 3"):
        read(stored)


def test_the_gallery_is_named_where_it_is_missing():
    gallery = __import__("binsparse_levels.gallery").gallery
    register(gallery.Vbl)
    stored = {}
    write(stored, pack([[0, 1], [2, 0]], [1.0, 2.0], (2, 3), "dense, vbl"))
    assert "binsparse_levels.gallery:vbl" in str(stored)
    LEVELS.pop("vbl")
    with pytest.raises(BinsparseError, match=r"gallery:vbl.; import binsparse_levels\.gallery"):
        read(stored)
    register(gallery.Vbl)
    old = {
        name: json.loads(json.dumps(x).replace("binsparse_levels.gallery:", "gallery:")) if "gallery:" in str(x) else x
        for name, x in stored.items()
    }
    assert read(old).equals(read(stored))


def test_what_is_no_kind():
    with pytest.raises(FormatError, match="lists a coordinate of a fiber twice"):
        register(kind("east", unique=False))

    class Version(Sparse):
        version: int = 3
        __annotations__ = {"version": int}

    import dataclasses

    with pytest.raises(FormatError, match="cannot have the name 'version'"):
        register(dataclasses.dataclass(frozen=True)(Version))


PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar
from binsparse_levels.levels import Sparse, register

@register
@dataclass(frozen=True)
class Fig(Sparse):
    kind: ClassVar[str] = "fig"
    specified: ClassVar[bool] = False

    def fused(self):
        return None
"""


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [True, False])
def test_workers_load_the_kinds_that_they_may(tmp_path, monkeypatch, allowed):
    (tmp_path / "fruits.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("BINSPARSE_LEVELS_PLUGINS", "fruits, others" if allowed else "others")
    __import__("fruits")
    tensor = pack([[0, 1], [2, 0]], [1.0, 2.0], (2, 3), "dense, fig")
    write(tmp_path / "a.h5", tensor)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        if allowed:
            build(tmp_path / "a.h5", tmp_path / "b.zarr", (2, 3), "dense, fig", client=pool)
            assert read(tmp_path / "b.zarr").equals(tensor)
        else:
            with pytest.raises(BinsparseError, match="BINSPARSE_LEVELS_PLUGINS"):
                build(tmp_path / "a.h5", tmp_path / "b.zarr", (2, 3), "dense, fig", client=pool)
    sys.modules.pop("fruits")


@pytest.mark.slow
def test_workers_import_the_gallery(tmp_path):
    register(__import__("binsparse_levels.gallery").gallery.Vbl)
    tensor = pack([[0, 1], [2, 0]], [1.0, 2.0], (2, 3), "dense, vbl")
    write(tmp_path / "a.h5", tensor)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        build(tmp_path / "a.h5", tmp_path / "b.zarr", (2, 3), "dense, vbl", client=pool)
    assert read(tmp_path / "b.zarr").equals(tensor)


def test_nothing_travels_but_names():
    register(kind("east", version=4))
    assert SentKind("east", "tangle", 4) in sent_kinds()
    register_sent([SentKind("nowhere", "nothing", 1), SentKind("os", "path", 1)])
    assert "nothing" not in LEVELS
