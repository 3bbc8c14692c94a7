"""The package as a whole: what importing costs, names, the documents, and the kernels in their other two modes."""

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import binsparse_levels

ROOT = Path(__file__).parent.parent
PACKAGE = Path(binsparse_levels.__file__).parent


def modules():
    return [m.name for m in pkgutil.walk_packages([str(PACKAGE)], "binsparse_levels.") if "__main__" not in m.name]


def test_importing_costs_numpy_alone():
    code = "import sys, binsparse_levels; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {"numba", "h5py", "zarr", "scipy", "hypothesis"} & set(run.stdout.split())


def test_no_module_has_the_name_of_something_public():
    for name in modules():
        importlib.import_module(name)
    for name in binsparse_levels.__all__:
        assert not isinstance(getattr(binsparse_levels, name), type(os)), name
        assert name in dir(binsparse_levels)
    with pytest.raises(AttributeError):
        binsparse_levels.nothing  # noqa: B018


def test_the_static_names_are_the_lazy_ones():
    listed = re.findall(r"^    from \.[\w.]+ import (\w+) as \1$", (PACKAGE / "__init__.py").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted({*binsparse_levels.__all__, "open"})


def test_what_is_public_is_documented():
    for name in binsparse_levels.__all__:
        thing = getattr(binsparse_levels, name)
        if callable(thing):
            assert thing.__doc__, name
    for name in modules():
        assert importlib.import_module(name).__doc__, name


def test_the_readme_tour_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_readme_names_every_kind_and_command():
    text = (ROOT / "README.md").read_text()
    from binsparse_levels.levels import LEVELS

    kinds = [kind for kind, made in LEVELS.items() if made.__module__.startswith("binsparse_levels.")]
    for word in (*kinds, "info", "convert", "check", "formats", *binsparse_levels.ALIASES):
        assert re.search(rf"\b{word}\b", text), word


@pytest.mark.parametrize(
    ("mode", "tests"),
    [
        # Interpreted kernels are slow: not the largest of the tests of size.
        ({"NUMBA_DISABLE_JIT": "1"}, ["-k", "not 20000 and not 13000 and not 300000 and not heavy"]),
        ({"NUMBA_BOUNDSCHECK": "1"}, [str(ROOT / "tests/engine/test_soundness.py")]),
    ],
    ids=["interpreted", "bounds checked"],
)
def test_kernels_in_another_mode(mode, tests, tmp_path):
    environment = {**os.environ, **mode, "HYPOTHESIS_PROFILE": "few", "NUMBA_CACHE_DIR": str(tmp_path)}
    files = [
        str(ROOT / "tests" / name)
        for name in (
            "formats/test_bitpacked.py",
            "levels/test_levels.py",
            "engine/test_packing.py",
            "tensors/test_tensor.py",
        )
    ]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *files, *tests]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, cwd=ROOT)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
