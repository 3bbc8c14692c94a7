"""A library that is missing is an error that names the extra to install. Libraries are hidden in a new process."""

import ast
import functools
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from binsparse_levels.problems import EXTRAS as INSTALLED

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIRED = {"filelock", "google_crc32c", "h5py", "llvmlite", "numba", "numcodecs", "numpy", "zarr"}

# These stand behind an import that has named the extra.
BEHIND = {
    ("building/columns.py", "pyarrow"),  # of columns that are its own
    ("building/tables.py", "pyarrow"),
    ("containers/objects/bucket.py", "obstore"),
    ("containers/objects/requests.py", "obstore"),  # of stores that are its own
    ("containers/zarr_stores.py", "obstore"),  # of stores that are its own
    ("containers/remote.py", "fsspec"),  # whose callers guard them
    ("containers/remote.py", "obstore"),
    ("interop/anndata.py", "sparse"),  # where it is installed
    ("interop/dask.py", "dask"),
    ("interop/dask.py", "distributed"),  # where it is installed
    ("interop/dask.py", "sparse"),
    ("interop/batches.py", "scipy"),
    ("interop/batches.py", "torch"),
    ("interop/torch.py", "torch"),
    ("io/files/matlab_program.py", "scipy"),  # who starts it has imported scipy
}

HIDING = """
import json, sys

class Hider:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in sys.argv[1].split(",") else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Hider, sys.meta_path)
import numpy as np
import binsparse_levels as bl

tensor = bl.pack([[0, 1], [2, 0]], [1.5, 2.5], (2, 3), "CSR")
bl.write("a.h5", tensor)
open("a.parquet", "wb").close()
calls = json.loads(sys.argv[2])
told = {}
for call in calls:
    try:
        exec(call)
    except bl.OptionError as error:
        told[call] = [str(error), isinstance(error, ImportError)]
print(json.dumps(told))
"""

BUILD = "bl.build('{0}/a.parquet', '{0}/b.zarr', (2, 3), 'CSR', columns=['i', 'j', 'v'], work='{0}/w')"
DATASET = "import xarray; bl.write_dataset('b.zarr', xarray.Dataset({'a': ('x', [1.0])}))"

MATLAB = "open('five.mat', 'wb').write(b'MATLAB 5.0 MAT-file'); bl.read('five.mat')"
HARWELL = "open('a.hb', 'w').write('a\\nb\\nRUA' + ' ' * 24 + '1'); bl.read('a.hb')"
COMPLETION = "from binsparse_levels import cli; cli._completion(cli.argparse.Namespace(shell='bash'))"
SCIPY_BATCHES = "bl.batches(tensor, 2, format='scipy')"
SAMPLES = "open('a.svmlight', 'w').write('1 1:2'); bl.read('a.svmlight')"

# By the libraries that are hidden: the extras, and calls that each of them would make possible.
HIDDEN = {
    ("scipy",): {"scipy": ["bl.to_scipy(tensor)", "bl.from_scipy(None)", SCIPY_BATCHES, MATLAB, HARWELL]},
    ("sklearn",): {"svmlight": [SAMPLES]},
    ("shtab",): {"cli": [COMPLETION]},
    ("torch",): {"torch": ["bl.to_torch(tensor)", "bl.from_torch(None)", "bl.batches(tensor, 2)"]},
    ("graphblas",): {"graphblas": ["bl.to_graphblas(tensor)", "bl.from_graphblas(None)"]},
    ("pandas",): {"pandas": ["bl.sweep({'a': tensor}, ['CSR'], measure=['bits']).to_pandas()"]},
    ("matplotlib",): {"plot": ["bl.sweep({'a': tensor}, ['CSR'], ['bits', 'limit']).pareto('bits', 'limit')"]},
    ("anndata",): {"anndata": ["bl.register_anndata()"]},
    ("pyarrow",): {"tables": ["bl.to_table(tensor)", BUILD.format(".")]},
    ("dask", "distributed"): {"dask": ["bl.to_dask('a.h5')", "bl.from_dask(None, 'b.h5', 'CSR')"]},
    ("xarray",): {"xarray": ["bl.write_dataset"]},
    ("hypothesis",): {"test": ["import binsparse_levels.testing"]},
    ("obstore",): {"remote": ["bl.read('http://localhost:1/a.zarr')", BUILD.format("s3://a")]},
    ("fsspec", "obstore"): {"remote": ["bl.read('s3://a/b.zarr')", "bl.write('memory://b.zarr', tensor)"]},
    ("sparse",): {
        "sparse": [
            "bl.to_sparse(tensor)", "bl.from_sparse(None)", "bl.to_gcxs(tensor)", "bl.from_gcxs(None)",
            "bl.to_dask('a.h5')",
        ],
        "xarray": [DATASET],
    },
}  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("hidden", HIDDEN, ids=lambda names: "-".join(names))
def test_a_missing_library_names_its_extra(hidden, tmp_path):
    calls = [call for each in HIDDEN[hidden].values() for call in each]
    command = [sys.executable, "-c", HIDING, ",".join(hidden), json.dumps(calls)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    for extra, each in HIDDEN[hidden].items():
        for call in each:
            message, is_import_error = told[call]
            assert is_import_error
            assert message.endswith(f"; pip install {INSTALLED[extra]}")


def imports(node, guarded=False):
    """The libraries that a module imports, and whether each stands in `with needing(…)`, or in `try`."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        yield node.module.partition(".")[0], guarded
    elif isinstance(node, ast.Import):
        yield from ((alias.name.partition(".")[0], guarded) for alias in node.names)
    if isinstance(node, ast.With):
        guarded |= any(ast.unparse(item).startswith("needing(") for item in node.items)
    elif isinstance(node, ast.Try):
        guarded |= any(handler.type and ast.unparse(handler.type) == "ImportError" for handler in node.handlers)
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        guarded = False
    for child in ast.iter_child_nodes(node):
        yield from imports(child, guarded)


@functools.cache
def parsed():
    """The modules of the package, by their paths in it."""
    package = ROOT / "binsparse_levels"
    return {path.relative_to(package).as_posix(): ast.parse(path.read_text()) for path in package.rglob("*.py")}


def test_every_import_of_a_library_that_may_be_missing_is_guarded():
    plain = {
        (path, name)
        for path, module in parsed().items()
        for name, guarded in imports(module)
        if not guarded and name not in {*REQUIRED, *sys.stdlib_module_names, "binsparse_levels"}
    }
    assert plain == BEHIND


def test_every_extra_that_a_message_names_exists():
    named = {
        node.args[0].value
        for module in parsed().values()
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "needing"
    }
    assert len(named) >= 9
    assert named == INSTALLED.keys()
    assert named == {extra for each in HIDDEN.values() for extra in each}


def test_messages_install_the_libraries_of_an_extra():
    """They name libraries, not this package, which no index has to know."""
    for extra, words in INSTALLED.items():
        libraries = [re.match(r"[\w.-]+(\[[\w,]+\])?", each)[0] for each in EXTRAS[extra]]
        given = [word.strip("'") for word in words.split()]
        assert set(given) == set(libraries) if extra != "test" else set(given) < set(libraries), extra
        assert all(("[" in word) == word.startswith("'") for word in words.split())
