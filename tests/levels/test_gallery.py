"""The kinds of notebooks/gallery obey all laws, and are what their docstrings say."""

import ast
import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from binsparse_levels import Level, einsum, open, pack, pack_dense, testing, traffic, write
from binsparse_levels.levels import LEVELS, register

FILES = sorted((Path(__file__).parents[2] / "notebooks/gallery").glob("*.py"))
MATRIX = np.array([[0, 5, 0, 7], [0, 0, 0, 0], [1, 2, 3, 0.0]])
PARAMETERS = {"sell": "(1, c=2, sigma=4)"}  # of the pictures


def kinds():
    """The kind of each file; none stays registered."""
    before = dict(LEVELS)
    sys.path.insert(0, str(FILES[0].parents[1]))
    for path in FILES:
        module = importlib.import_module(f"gallery.{path.stem}")
        yield next(x for x in vars(module).values() if getattr(x, "__module__", "") == module.__name__ and is_kind(x))
    sys.path.pop(0)
    LEVELS.clear()
    LEVELS.update(before)


def is_kind(thing):
    return isinstance(thing, type) and issubclass(thing, Level)


KINDS = list(kinds())


@pytest.fixture(autouse=True)
def known():
    before = dict(LEVELS)
    for kind in KINDS:
        register(kind)
    yield
    LEVELS.clear()
    LEVELS.update(before)


def levels_of(kind):
    """A chain of the kind, alone or below rows."""
    level = f"gallery:{kind.kind}{PARAMETERS.get(kind.kind, '')}"
    return f"{level}(2)" if (kind.max_rank > 1) else f"dense, {level}"


def test_the_gallery_has_the_kinds_of_the_literature():
    assert {kind.kind for kind in KINDS} == {path.stem for path in FILES}
    assert len(KINDS) >= 7
    assert max(len(path.read_text().splitlines()) for path in FILES) <= 120


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_all_laws(kind):
    assert all(law.holds for law in testing.check_kind(kind, examples=20))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_the_picture(kind):
    """The matrix and the arrays of the docstring are those of a packed tensor."""
    text = ast.get_docstring(ast.parse((FILES[0].parent / f"{kind.kind}.py").read_text()), clean=False)
    lines = re.findall(r"^    ((?:[.\d] )+[.\d])(?:   +(\w+) +(\[.*?\])|$)", text, re.MULTILINE)
    dense = np.array([[float(x) if x != "." else 0 for x in row.split()] for row, *_ in lines])
    tensor = pack_dense(dense, levels_of(kind))
    place = tensor._tree.places[-1]
    arrays = {role: tensor.arrays[spec.name].tolist() for role, spec in place.arrays.items()}
    shown = {role: ast.literal_eval(items.replace("-", "0")) for _, role, items in lines if role}
    assert shown == arrays


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_products_and_files(kind, tmp_path):
    random = np.random.default_rng(0)
    dense = np.where(random.random((300, 300)) < 0.05, random.random((300, 300)), 0)
    tensor, x = pack_dense(dense, levels_of(kind)), random.random(300)
    write(tmp_path / "a.h5", tensor)
    for given in (tensor, open(tmp_path / "a.h5")):
        np.testing.assert_allclose(einsum("ij,j->i", given, x), dense @ x)
        np.testing.assert_array_equal(given[20:30].to_dense(), dense[20:30])
    assert traffic(tensor, "ij,j->i", x)["values"].items >= np.count_nonzero(dense)
    places = random.integers(0, 300, (2, 50))
    np.testing.assert_array_equal(tensor[tuple(places)], dense[tuple(places)])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_a_large_shape_is_no_reason_to_refuse(kind):
    """A kind with gaps is judged by its children, not by its cells."""
    at = np.arange(0, 64_000, 8)
    assert pack([at, at], 1.0, (64_000, 64_000), levels_of(kind)).nbytes < 2**21
