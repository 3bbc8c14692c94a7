"""`check_kind`: kinds that obey, and what it tells of kinds that do not."""

import ast
import inspect
import os
import resource
from itertools import pairwise

import numba
import numpy as np
import pytest
from composition.kinds import OF_GALLERY, PLUGINS
from helpers import kinds
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import Sparse, einsum, open, pack_dense, reduce, testing, write
from binsparse_levels.levels import LEVELS, Level, register
from binsparse_levels.levels.pointers import Pointed
from binsparse_levels.levels.positions import as_array
from binsparse_levels.testing.cases import MOST
from binsparse_levels.testing.kinds import _LAWS

OTHERS = [kind for kind in PLUGINS if kind not in OF_GALLERY]  # test_gallery checks these


def variant(base, **members):
    return type(base.__name__, (base,), {"package": "tests", **members})


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*LEVELS.values(), *OTHERS], ids=lambda kind: kind.kind)
def test_every_kind_obeys(kind, capsys):
    assert all(law.holds for law in testing.check_kind(kind, examples=5))
    assert capsys.readouterr().out.count("\n") == len(_LAWS)


def doubled(self, arrays, dims, positions, window):
    counts, coords, child = kinds.Columns.expand(self, arrays, dims, positions, window)
    return counts * 2, [np.repeat(x, 2) for x in coords], np.repeat(child, 2)


def loop(text):
    return lambda self, root: text


FAULTS = {
    "set monotone = False": variant(kinds.Columns, monotone=True),
    "set gaps = True": variant(kinds.Columns, gaps=False),
    "set ordered = False": variant(kinds.Backwards, ordered=True),
    "lists a coordinate of a fiber twice": variant(kinds.Columns, expand=doubled),
    "check refuses the arrays of build: 1": variant(kinds.Columns, check=lambda *_, **__: iter([1])),
    "lengths refuses the arrays of build: at": variant(kinds.Columns, lengths=lambda *_: (None, ["at"])),
    "nbytes returns 7": variant(kinds.Columns, nbytes=lambda *_, **__: 7),
    "makes no array for the role 'at0'": variant(kinds.Backwards, build=lambda *_: ({}, np.zeros(0, int))),
    "uses 'len', which is not defined": variant(kinds.Columns, loop=loop("q = len(slots)\ni0 = 0\nyield")),
    "uses 'np', which": variant(kinds.Columns, loop=loop("q = np.uint64(0)\ni0 = 0\nyield")),
    "never sets i0": variant(kinds.Columns, loop=loop("for q in range(n):\n    yield")),
    "has no yield statement": variant(kinds.Columns, loop=loop("q = 0\ni0 = 0")),
    "is not valid Python": variant(kinds.Columns, loop=loop("for q in")),
    "loop differs from expand": variant(kinds.Columns, loop=loop("for q in range(0):\n    i0 = 0\n    yield")),
    "'f' is not compiled": variant(
        kinds.Columns, loop=loop("q = f(p)\ni0 = 0\nyield"), helpers=lambda self: {"f": lambda x: x}
    ),
}


def of_many(base, old, new, **members):
    """A kind whose loop is wrong only for long fibers, large coordinates or long runs."""
    text = base.samples()[0].loop(False)
    assert old in text
    return variant(base, loop=lambda self, root: base.loop(self, root).replace(old, new), **members)


class List(Sparse):
    """A plug-in with the layout of sparse, whose parameters are its own to get wrong."""

    kind = "list"
    package = "tests"
    specified = False
    max_rank = 1

    def fused(self):
        return None


class ShortChunk(List):
    """Coordinates have 16 bits where they are listed."""

    def expand(self, arrays, dims, positions, window):
        counts, coords, child = super().expand(arrays, dims, positions, window)
        return counts, [x % 2**16 for x in coords], child


class ShortSearch(List):
    """A look-up finds the first 100 children of a level."""

    def locate(self, arrays, dims, positions, coords):
        found = super().locate(arrays, dims, positions, coords)
        return np.where(found < 100, found, -1)


class ShortPart(List):
    """A part of a file has the first 100 children of each fiber."""

    def part(self, arrays, dims, positions, window):
        part, child = super().part(arrays, dims, positions, window)
        kept = np.concatenate([np.arange(a, b) - a < 100 for a, b in pairwise(part["ptr"].tolist())] or [[]]).astype(
            bool
        )
        pointers = np.append(0, np.cumsum(kept))[part["ptr"]]
        return {"ptr": pointers, "idx0": part["idx0"][kept]}, as_array(child)[kept]


@numba.njit
def least(a, b):
    return min(a, b)


@numba.njit
def after(items, q):
    return items[q + 1]


VBL, CSR_DU, ALTO = ({kind.kind: kind for kind in OF_GALLERY}[name] for name in ("vbl", "csr_du", "alto"))
FAULTS_OF_MANY = {
    "a chunk of 2**16": (of_many(List, "idx0[q]", "idx0[q] & 65535"), "differs"),
    "a bit of 2**31": (of_many(List, "idx0[q]", "idx0[q] & 2147483647"), "differs"),
    "a long row": (
        of_many(List, "ptr[p + 1])", "min(ptr[p + 1], ptr[p] + 257))", helpers=lambda self: {"min": least}),
        "not",
    ),
    "a run one too long": (
        of_many(VBL, "range(ofs[b], ofs[b + 1])", "range(ofs[b], ofs[b + 1] + (ofs[b + 1] > ofs[b] + 15))"),
        "loop",
    ),
    "a second byte": (of_many(CSR_DU, "<< (8 * k)", "<< (7 * k)"), "differs"),
    "a bit of a word": (of_many(ALTO, "masks[0]", "masks[0] & 4294967295"), "differs"),
    "an item after the last": (of_many(List, "    i0 =", "    i0 = idx0[q + 1]\n    i0 ="), "reads outside"),
    "an item after the last, of a helper": (
        of_many(List, "    i0 =", "    i0 = after(idx0, q)\n    i0 =", helpers=lambda self: {"after": after}),
        "reads outside",
    ),
    "an endless loop": (
        variant(List, loop=loop("q = 0\ni0 = 0\nwhile children > 0:\n    yield")),
        "lists more than expand",
    ),
    "expand of large coordinates": (ShortChunk, "expand lacks an entry"),
    "a look-up of many children": (ShortSearch, "locate"),
    "a slice of long fibers": (ShortPart, "part has other entries"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS_OF_MANY)
def test_what_is_wrong_in_large_cases_alone_is_found(fault):
    """The message has a small case."""
    kind, told = FAULTS_OF_MANY[fault]
    with pytest.raises(AssertionError) as error:
        testing.check_kind(kind)
    assert told in str(error.value)
    assert "entries: [" in str(error.value)


def bytes_of_cells(self, dims, n, children, *, root, itemsize):
    return (n * dims[0] + children) * itemsize


@given(data=st.data())
def test_cases_of_a_kind_that_stores_cells_are_small(data):
    """Even if counts do not determine its children."""
    level = variant(List, gaps=True, nbytes=bytes_of_cells)()
    assert level.children((3,), 2, 1) is None
    case = data.draw(testing.level_cases(level, max_size=70_000))
    assert case.n * case.dims[0] <= max(MOST, 4 * case.n)


@pytest.mark.slow
@pytest.mark.parametrize("told", FAULTS)
def test_what_to_change_is_told(told):
    with pytest.raises(AssertionError) as error:
        testing.check_kind(FAULTS[told], examples=30, sizes=(4,))  # wrong in small cases, too
    assert told in str(error.value)
    assert "BROKEN" in str(error.value)


@pytest.mark.parametrize("module", [testing.kinds, testing.files], ids=lambda module: module.__name__)
def test_every_law_says_what_is_wrong(module):
    asserted = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Assert)]
    assert asserted
    assert not [node.lineno for node in asserted if node.msg is None]


def believing(self, arrays, dims, n, *, order=True):
    """A check that sets memory aside as a damaged array asks for."""
    np.ones(2**31)
    return iter(())


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system tells no size of a process")
def test_a_kind_that_believes_what_it_reads_is_told_where(monkeypatch):
    monkeypatch.setattr("binsparse_levels.testing.kinds._LAWS", _LAWS[:1])
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(AssertionError, match=r"MemoryError \(in believing, test_check_kind.py, line \d+\)"):
        testing.check_kind(variant(kinds.Columns, check=believing))
    assert resource.getrlimit(resource.RLIMIT_AS) == before


@numba.njit
def place_of(slots, slot, n, p):
    return slots[slot * n + p]


def test_a_loop_knows_its_positions_and_calls_its_helpers():
    text = "for slot in range(2):\n    q = slot * n + p\n    i0 = place(slots, slot, n, p)\n"
    kind = variant(
        kinds.Columns, loop=loop(text + "    if i0 < size0:\n        yield"), helpers=lambda self: {"place": place_of}
    )
    register(kind)
    dense = np.array([[0, 5, 0, 7], [0, 0, 0, 0], [1, 2, 0, 0.0]])
    tensor, stored = pack_dense(dense, "dense, tests:columns"), {}
    write(stored, tensor)
    for source in (tensor, open(stored)):
        assert reduce(source, 1, "sum").tolist() == dense.sum(1).tolist()
        assert einsum("ij,j->i", source, np.arange(4.0)).tolist() == (dense @ np.arange(4.0)).tolist()


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "kind", [kind for kind in LEVELS.values() if issubclass(kind, Pointed)], ids=lambda kind: kind.kind
)
def test_a_kind_with_pointers_need_not_read_parts(kind):
    """A kind without `part` is read whole."""
    register(whole := variant(kind, kind="whole", part=Level.part))
    dense = (np.random.default_rng(0).random((9, 12)) < 0.4) * np.arange(1, 13)
    stored = {}
    write(stored, pack_dense(dense, f"dense, {whole.kind}"))
    tensor = open(stored)
    np.testing.assert_array_equal(tensor[3:7].to_dense(), dense[3:7])
    np.testing.assert_array_equal(reduce(tensor, 0), dense.sum(0))
    np.testing.assert_array_equal(np.vstack([slab.to_dense() for _, slab in tensor.slabs(0, max_bytes=300)]), dense)
