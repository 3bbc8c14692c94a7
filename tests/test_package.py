"""The package as a whole: what importing costs, names and docstrings."""

import ast
import doctest
import importlib
import inspect
import io
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import lines

import binsparse_levels

ROOT = Path(__file__).parent.parent
PACKAGE = Path(binsparse_levels.__file__).parent


def modules():
    return [m.name for m in pkgutil.walk_packages([str(PACKAGE)], "binsparse_levels.") if "__main__" not in m.name]


def test_importing_costs_numpy_alone():
    code = "import sys, binsparse_levels; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numba", "h5py", "zarr", "scipy", "hypothesis"} & set(run.stdout.split())


def test_the_first_pack_imports_nothing_that_it_does_not_need():
    code = """if True:
        import sys, numpy
        before = set(sys.modules)
        from binsparse_levels import pack
        pack([numpy.arange(3), [0, 1, 2]], numpy.ones(3), (3, 3), "CSR")[numpy.array([0, 2])].load()
        print(*sys.modules.keys() - before)
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {name.partition(".")[0] for name in run.stdout.split()}
    assert not {"numba", "h5py", "zarr", "scipy", "hypothesis", "email"} & packages
    assert not {"numpy.ma", "importlib.metadata", "binsparse_levels.containers.base"} & set(run.stdout.split())


def test_no_module_has_the_name_of_something_public():
    for name in modules():
        importlib.import_module(name)
    for name in binsparse_levels.__all__:
        assert not isinstance(getattr(binsparse_levels, name), type(os)), name
        assert name in dir(binsparse_levels)
    with pytest.raises(AttributeError):
        binsparse_levels.nothing  # noqa: B018


def test_a_package_in_a_zip_file_has_its_names(tmp_path):
    archive = shutil.make_archive(str(tmp_path / "package"), "zip", ROOT, "binsparse_levels")
    code = "import binsparse_levels; print(binsparse_levels.__file__, binsparse_levels.Limits().rank)"
    where = {"env": os.environ | {"PYTHONPATH": archive}, "cwd": tmp_path}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **where)
    assert run.stdout.split() == [f"{archive}/binsparse_levels/__init__.py", "64"], run.stderr


def public():
    """The public names, and the public members of the public classes."""
    for name in sorted({*binsparse_levels.__all__, "open"}):
        thing = getattr(binsparse_levels, name)
        yield name, thing
        for member in dir(thing) if thing is binsparse_levels.Tensor else vars(thing) if inspect.isclass(thing) else ():
            if not member.startswith("_"):
                yield f"{name}.{member}", inspect.getattr_static(thing, member)


def test_what_is_public_is_documented():
    undocumented = []
    for name, thing in public():
        if inspect.isfunction(thing) or isinstance(thing, property | classmethod | staticmethod):
            written = thing.__doc__
        elif inspect.isclass(thing):
            # Python writes one itself for a dataclass: the name and the fields.
            written = "" if (thing.__doc__ or "").startswith(f"{thing.__name__}(") else thing.__doc__
        else:
            continue
        inherited = "." in name and any(
            name.partition(".")[2] in vars(base)
            for base in getattr(binsparse_levels, name.partition(".")[0]).__mro__[1:]
        )
        if not written and not inherited:
            undocumented.append(name)
    undocumented += [name for name in modules() if not importlib.import_module(name).__doc__]
    assert not undocumented


def test_what_is_public_has_parameters_and_an_example():
    """Every public name, and every method of a Tensor."""
    lacking = []
    for name, thing in public():
        text = inspect.getdoc(thing) or ""
        if "." in name and not (name.startswith("Tensor.") and inspect.isfunction(thing)):
            continue
        if callable(thing) and ">>>" not in text:
            lacking.append(f"{name}: an example")
        if inspect.isfunction(thing) and "Parameters\n---" not in text:
            lacking += [
                f"{name}: {parameter}" for parameter in inspect.signature(thing).parameters if parameter != "self"
            ]
    assert not lacking


@pytest.mark.parametrize("name", [name for name, thing in public() if callable(thing) and "." not in name])
def test_examples_of_public_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    thing = getattr(binsparse_levels, name)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    text = io.StringIO()
    for found in doctest.DocTestFinder().find(thing, name, globs={}):  # as when it is pasted
        runner.run(found, out=text.write)
    assert not runner.failures, text.getvalue()


@pytest.mark.parametrize("room", ["levels", "formats", "engine", "tensors", "kernels", "arrays", "compute"])
def test_examples_of_modules_run(room, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, tried = io.StringIO(), 0
    for name in modules():
        if name.startswith(f"binsparse_levels.{room}"):
            module = importlib.import_module(name)
            names = {n: getattr(binsparse_levels, n) for n in binsparse_levels.__all__} | vars(module) | {"np": np}
            runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
            for found in doctest.DocTestFinder().find(module, name, globs=names):
                tried += runner.run(found, out=text.write).attempted
    assert tried
    assert not text.getvalue()


def test_the_architecture_names_modules_that_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    named = set(re.findall(rf"`((?:{'|'.join(rooms)})/\w[\w/]*)", text))
    missing = [
        name for name in named if not any((PACKAGE / f"{name}{end}").exists() for end in (".py", "/__init__.py"))
    ]
    assert len(named) > 20
    assert not missing
    assert not [room for room in rooms if f"`{room}/`" not in text]


def returns_silently(test):
    """The lines on which a test returns although it has asserted nothing so far."""
    asserting = [
        node.lineno
        for node in ast.walk(test)
        # That an error is the expected one is what a handler asserts.
        if isinstance(node, ast.Assert | ast.ExceptHandler)
        or (isinstance(node, ast.Attribute) and node.attr.startswith(("raises", "warns", "assert_")))
        or (isinstance(node, ast.Name) and node.id.startswith("assert_"))
    ]
    inner = {id(node) for made in ast.walk(test) if isinstance(made, ast.FunctionDef) and made is not test
             for node in ast.walk(made)}  # fmt: skip
    returns = [node.lineno for node in ast.walk(test) if isinstance(node, ast.Return) and id(node) not in inner]
    return [line for line in returns if not any(before < line for before in asserting)]


def test_no_test_returns_before_it_has_asserted_anything():
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found += [f"{path.name}:{line}: {node.name}" for line in returns_silently(node)]
    assert not found, "use assume, or do not collect the case"


def test_no_other_room_uses_private_members_of_a_tensor():
    """They call `inside`. A method that other packages define too, such as `_repr_html_`, ends with an underscore."""
    private = {x for kind in binsparse_levels.Tensor.__mro__[:2] for x in vars(kind) if re.fullmatch(r"_\w*[^_]", x)}
    assert "_inside" in private
    used = re.compile(rf"\.(?:{'|'.join(private)})\b")
    rooms = [x for x in [*PACKAGE.rglob("*.py"), *ROOT.glob("tests/**/*.py")] if x.parent != PACKAGE / "tensors"]
    assert [x for x in rooms if used.search(x.read_text())] == []


def test_no_room_exceeds_its_budget():
    assert [row for row in lines.table() if row[1] > row[2]] == []


def test_no_file_has_more_than_450_lines():
    files = [x for x in lines.PACKAGE.rglob("*.py") if "__pycache__" not in x.parts]
    assert [x for x in files if len(x.read_text().splitlines()) > 450] == []
