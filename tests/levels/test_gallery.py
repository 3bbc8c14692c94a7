"""The kinds of the gallery obey all laws, and are what their docstrings say."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from composition.kinds import OF_GALLERY, registered

from binsparse_levels import Limits, einsum, gallery, open, pack, pack_dense, testing, traffic, write
from binsparse_levels.compute import walk
from binsparse_levels.levels import register
from binsparse_levels.tensors.tensor import inside
from binsparse_levels.thresholds import THRESHOLDS

GALLERY = [x for x in sorted(Path(gallery.__file__).parent.glob("*.py")) if x.stem != "__init__"]
PARAMETERS = {"sell": "(1, c=2, sigma=4)", "buckets": "(2, k=2)"}  # of the pictures


@pytest.fixture(autouse=True)
def known():
    with registered():
        yield


def levels_of(kind):
    """A chain of the kind, alone or below rows."""
    level = f"{kind.kind}{PARAMETERS.get(kind.kind, '(2)' if kind.max_rank > 1 else '')}"
    return level if kind.max_rank > 1 else f"dense, {level}"


def test_the_gallery_has_the_kinds_of_the_literature():
    assert {kind.kind for kind in OF_GALLERY} == {path.stem for path in GALLERY}
    assert len(OF_GALLERY) >= 10
    assert max(len(path.read_text().splitlines()) for path in GALLERY) <= 170
    for kind in OF_GALLERY:
        assert re.search(r"\n *References\n *-+\n.*(19|20)\d\d", kind.__doc__, re.DOTALL), kind


@pytest.mark.slow
@pytest.mark.parametrize("kind", OF_GALLERY, ids=lambda kind: kind.kind)
def test_all_laws(kind):
    assert all(law.holds for law in testing.check_kind(kind, examples=10))


@pytest.mark.parametrize("kind", OF_GALLERY, ids=lambda kind: kind.kind)
def test_the_picture(kind):
    """The matrix and the arrays of the docstring are those of a packed tensor."""
    text = ast.get_docstring(ast.parse((GALLERY[0].parent / f"{kind.kind}.py").read_text()), clean=False)
    lines = re.findall(r"^    ((?:[.\d] )+[.\d]|       )(?:   +(\w+) +(\[.*?\])|$)", text, re.MULTILINE)
    dense = np.array([[float(x) if x != "." else 0 for x in row.split()] for row, *_ in lines if row.strip()])
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


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [kind for kind in OF_GALLERY if kind.kind != "dia"], ids=lambda kind: kind.kind)
def test_wide_rows_in_runs(kind):
    """Rows of 200,000 columns: half full, in long runs, nearly empty, empty, full around a multiple of 2**16."""
    random, columns = np.random.default_rng(0), 200_000
    filled = [
        random.random(columns) < 0.5,
        random.random(columns // 1000).repeat(1000) < 0.3,
        random.random(columns) < 1e-4,
    ]
    filled += [np.zeros(columns, bool), abs(np.arange(columns) - 2**16) < 5]
    coords = np.nonzero(filled)
    csr, x = pack(coords, random.random(len(coords[0])), (5, columns), "CSR"), random.random(columns)
    tensor = csr.convert(levels_of(kind))
    tensor.check()
    np.testing.assert_allclose(einsum("ij,j->i", tensor, x), einsum("ij,j->i", csr, x))
    assert tensor.convert("CSR").equals(csr)
    assert tensor[1:3, 65_000:66_000].convert("CSR").equals(csr[1:3, 65_000:66_000])
    places = random.integers(0, 5, 300), random.integers(0, columns, 300)
    np.testing.assert_array_equal(tensor[places], csr[places])


def test_containers_and_bytes():
    """Roaring takes the smallest form of each container; byte codes take a byte for a small gap, and two for a run."""

    def items(level, *rows):
        tensor = pack(np.nonzero(np.stack(rows)), 1.0, (len(rows), 65_536), f"dense, {level}")
        return {name: len(array) for name, array in tensor.arrays.items()}

    random = np.random.default_rng(0).random(65_536)
    assert items("roaring", random < 0.001)["roaring_data_1"] == np.count_nonzero(random < 0.001)
    assert items("roaring", random < 0.5)["roaring_data_1"] == 65_536 // 16
    assert items("roaring", np.arange(65_536) < 5000)["roaring_data_1"] == 2
    assert items("byte_code", np.arange(65_536) % 64 == 0)["byte_code_1"] == 1 + 1023
    assert items("byte_code", np.arange(65_536) < 100)["byte_code_1"] == 2


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
