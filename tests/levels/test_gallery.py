"""The kinds of notebooks/gallery obey all laws, and are what their docstrings say."""

import ast
import re

import numpy as np
import pytest
from composition.kinds import GALLERY, OF_GALLERY, registered

from binsparse_levels import Limits, einsum, open, pack, pack_dense, testing, traffic, write
from binsparse_levels.compute import walk
from binsparse_levels.levels import register
from binsparse_levels.tensors.tensor import inside
from binsparse_levels.thresholds import THRESHOLDS

PARAMETERS = {"sell": "(1, c=2, sigma=4)"}  # of the pictures


@pytest.fixture(autouse=True)
def known():
    with registered():
        yield


def levels_of(kind):
    """A chain of the kind, alone or below rows."""
    level = f"{kind.kind}{PARAMETERS.get(kind.kind, '')}"
    return f"{level}(2)" if (kind.max_rank > 1) else f"dense, {level}"


def test_the_gallery_has_the_kinds_of_the_literature():
    assert {kind.kind for kind in OF_GALLERY} == {path.stem for path in GALLERY}
    assert len(OF_GALLERY) >= 7
    assert max(len(path.read_text().splitlines()) for path in GALLERY) <= 120


@pytest.mark.slow
@pytest.mark.parametrize("kind", OF_GALLERY, ids=lambda kind: kind.kind)
def test_all_laws(kind):
    assert all(law.holds for law in testing.check_kind(kind, examples=10))


@pytest.mark.parametrize("kind", OF_GALLERY, ids=lambda kind: kind.kind)
def test_the_picture(kind):
    """The matrix and the arrays of the docstring are those of a packed tensor."""
    text = ast.get_docstring(ast.parse((GALLERY[0].parent / f"{kind.kind}.py").read_text()), clean=False)
    lines = re.findall(r"^    ((?:[.\d] )+[.\d])(?:   +(\w+) +(\[.*?\])|$)", text, re.MULTILINE)
    dense = np.array([[float(x) if x != "." else 0 for x in row.split()] for row, *_ in lines])
    tensor = pack_dense(dense, levels_of(kind))
    place = inside(tensor).tree.places[-1]
    arrays = {role: tensor.arrays[spec.name].tolist() for role, spec in place.arrays.items()}
    shown = {role: ast.literal_eval(items.replace("-", "0")) for _, role, items in lines if role}
    assert shown == arrays


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", OF_GALLERY, ids=lambda kind: kind.kind)
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


LOOSE = next(kind for kind in OF_GALLERY if kind.kind == "loose_compressed")
UNTOLD = {"kind": "untold", "nbytes": lambda *_, **__: None, "children": lambda *_: None}  # its arrays tell its size


@pytest.mark.parametrize("kind", [*OF_GALLERY, type("Untold", (LOOSE,), UNTOLD)])
def test_a_large_shape_is_no_reason_to_refuse(kind):
    """A kind with gaps is judged by its children, not by its cells."""
    register(kind)
    at, limits = np.arange(0, 64_000, 8), Limits(dense_bytes=2**24)
    assert pack([at, at], 1.0, (64_000, 64_000), levels_of(kind), limits=limits).nbytes < 2**21


@pytest.mark.slow
def test_csr_du_has_a_pointer_for_64_rows(monkeypatch):
    """What this saves, and where threads cut it."""
    cuts, of_loop = [], walk.of_loop
    monkeypatch.setattr(THRESHOLDS, "part_entries", 1)
    monkeypatch.setattr(walk.parallel, "get_threads", lambda: 3)
    monkeypatch.setattr(walk, "of_loop", lambda *args, **more: cuts.append(of_loop(*args, **more)) or cuts[-1])
    matrix = testing.rmat(12, 20_000, seed=0)
    tensor, dense = matrix.convert("csr_du(2)"), matrix.to_dense()
    assert sum(x.nbytes for x in tensor.arrays.values()) < 0.5 * sum(x.nbytes for x in matrix.arrays.values())
    x = np.random.default_rng(0).random(dense.shape[1])
    np.testing.assert_allclose(einsum("ij,j->i", tensor, x), dense @ x)
    assert len(cuts[-1]) == 12  # four parts for each of three threads
    np.testing.assert_array_equal(tensor[[3, 700, 690], [5, 0, 9]], dense[[3, 700, 690], [5, 0, 9]])
    np.testing.assert_array_equal(tensor[60:130].to_dense(), dense[60:130])
