"""Arguments of wrong types: whatever is public answers in the package's own words."""

import dataclasses
import inspect
import itertools
import shutil
import traceback

import dask.array
import numpy as np
import pyarrow
import pytest
import scipy.sparse

import binsparse_levels as bl
from binsparse_levels import BinsparseError, Tensor

WRONG = [None, 5, -1, 1.5, True, "x", b"ab", [], (), {}, object()]
TENSOR = bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR")
CHUNK = [[0], [0]], [1.0]
TABLE = pyarrow.table({"i": [0, 1], "j": [1, 0], "v": [1.0, 2.0]})
CALLS = {
    "Format": ((bl.Dense(), bl.Sparse()), (1, 0)),
    "Tensor": ("CSR", (1, 1), {"pointers_to_1": [0, 1], "indices_1": [0]}, [1.0]),
    "advise": (TENSOR,),
    "append": ("a.h5", TENSOR),
    "batches": (TENSOR, 2),
    "build": (lambda k: CHUNK, "built.zarr", (3, 4), "CSR"),
    "concatenate": (["a.h5", "b.h5"], "both.h5"),
    "convert": ("b.h5", "c.h5", "CSR"),
    "einsum": ("ij->i", TENSOR),
    "from_dask": (dask.array.zeros((3, 4)), "dask.h5", "CSR"),
    "from_numpy": (np.eye(3),),
    "from_scipy": (scipy.sparse.eye_array(3, format="csr"),),
    "from_table": (TABLE, ["i", "j"], "v", "CSR"),
    "levels_of": (TENSOR,),
    "list_tensors": ("a.h5",),
    "open": ("a.h5",),
    "pack": ([[0], [0]], [1.0], (3, 4), "CSR"),
    "pack_dense": (np.eye(3), "CSR"),
    "load_plugins": ("apple",),
    "parse_format": ("CSR", 2),
    "parse_map": ("0/2, 0%2", (4,)),
    "read": ("a.h5",),
    "read_all": ("a.h5",),
    "reduce": (TENSOR, 0, "sum"),
    "repair": ("b.h5", "repaired.h5"),
    "statistics": (TENSOR, 0),
    "sweep": ([TENSOR], ["CSR"]),
    "to_dask": ("a.h5",),
    "to_numpy": (TENSOR,),
    "to_scipy": (TENSOR,),
    "to_table": (TENSOR,),
    "write": ("w.h5", TENSOR),
    "write_from": ([CHUNK], "from.h5", (3, 4), "CSR"),
}
METHODS = {"astype": ("f4",), "convert": ("COO",), "permute": ((1, 0),), "with_map": (bl.parse_map("0, 1", (3, 4)),),
           "locate": ([[0], [1]],), "to_dense": (), "draw": (), "with_attributes": ({},), "load": (),
           "with_structure": (None,)}  # fmt: skip
CASES = [(f"bl.{name}", getattr(bl, name), args) for name, args in CALLS.items()]
CASES += [(f"Tensor.{name}", getattr(Tensor, name), (TENSOR, *args)) for name, args in METHODS.items()]
SLOW = {"bl.build", "bl.statistics"}  # of the arguments of write_from and reduce


def in_our_words(error):
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = "binsparse_levels" in last.filename and last.line.startswith("raise")
    return (isinstance(error, BinsparseError) or ours) and "has no attribute" not in str(error)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bl.write("a.h5", TENSOR)
    bl.write("b.h5", TENSOR)
    return {"a.h5", "b.h5"}


@pytest.mark.parametrize(
    ("name", "public", "args"),
    [pytest.param(*case, id=case[0], marks=pytest.mark.slow if case[0] in SLOW else ()) for case in CASES],
)
def test_a_wrong_type_is_named(files, tmp_path, name, public, args):
    needed = {"count": 1} if name == "bl.build" else {}
    asked = [
        p for p in inspect.signature(public).parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    given = dict(zip([p.name for p in asked], args, strict=False)) | needed
    bare = []
    for parameter, wrong in itertools.product([p.name for p in asked if p.name != "self"], WRONG):
        for left in set(tmp_path.iterdir()) - {tmp_path / file for file in files}:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        called = given | {parameter: wrong}
        first = [called.pop(p.name) for p in asked if p.kind == p.POSITIONAL_ONLY or p.name == "self"]
        try:
            public(*first, **called)
        except Exception as error:
            if not in_our_words(error) or len(str(error).splitlines()) > 10:
                bare.append((parameter, wrong, error))
    assert not bare


@pytest.mark.parametrize("field", dataclasses.fields(bl.Limits), ids=lambda field: field.name)
def test_a_misspelled_limit_is_named(field):
    for k in range(len(field.name)):
        typo = field.name[:k] + field.name[k + 1 :]
        with pytest.raises(bl.OptionError, match=f"^{typo}: is no argument; did you mean {field.name}\\? see help"):
            bl.Limits(**{typo: 3})


def test_errors_that_no_argument_explains_stay_as_they_are():
    def chunk(k):
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        bl.build(chunk, "never.zarr", (3, 4), "CSR", count=1)
    with pytest.raises(TypeError, match="missing 1 required"):
        bl.reduce()
