"""Parts of trees: every entry once, and the same results on any number of threads, even if one coordinate has most."""

import math

import numpy as np
import pytest
from helpers.asserted import asserted
from hypothesis import assume, given
from hypothesis import strategies as st
from test_compute import HOWS, axes_of, check_product, check_reduction, mapped, nests, opened, products, seen

import binsparse_levels as bl
from binsparse_levels import BinsparseError, einsum, foreach, pack, pack_dense, parse_format, reduce, testing
from binsparse_levels.compute import walk
from binsparse_levels.formats.structure import STRUCTURES
from binsparse_levels.levels import LEVELS
from binsparse_levels.parallel import using_threads

# Chains, with the number of loops of a path: a level whose loop has no such counter, and those below it, have none.
CHAINS = {
    "CSR": 2, "CSC": 2, "DCSR": 2, "COO": 1, "sparse, sparse, sparse": 3, "dense, dense, sparse": 3,
    "dense(2), sparse": 3, "dense, sparse(2)": 2, "sparse, dense, sparse": 3, "dense, band": 2, "dense, run": 2,
    "sparse, bitmap, sparse": 3, "bitmap, sparse": 2, "sparse, sparse, hashed": 2, "dense, sparse, mask": 2,
    "sparse, sparse, elias_fano": 2,
}  # fmt: skip


def uneven(random, shape, k, share):
    """Cells of which those with one coordinate in dimension k are all stored, and this share of the others."""
    cells = np.where(random.random(shape) < share, random.normal(size=shape), 0)
    np.moveaxis(cells, k, 0)[shape[k] // 2] = random.normal(size=np.delete(shape, k))
    return cells


@st.composite
def of_one_coordinate(draw):
    """A tensor of any kinds, in which one outermost coordinate has most entries."""
    format = draw(testing.formats(kinds=tuple(LEVELS.values()), min_rank=1, max_rank=4))
    shape = draw(st.lists(st.integers(1, 5), min_size=format.rank, max_size=format.rank))
    assume(math.prod(shape) < 64)  # in plain Python, a helper of masks takes words below 2**63
    random = np.random.default_rng(draw(st.integers(0, 99)))
    array = uneven(random, shape, format.order[0], draw(st.sampled_from([0, 0.1, 0.5])))
    try:
        return pack_dense(array, format, fill_value=0)
    except BinsparseError:  # a kind may refuse a tensor
        assume(False)


def on_threads(call):
    """The result of a call, which is the same on any number of threads."""
    found = []
    for threads in (1, 2, 3):
        with using_threads(threads):
            found.append(call())
    arrays = [x.to_dense() if hasattr(x, "to_dense") else np.asarray(x) for x in found]
    assert arrays[0].tobytes() == arrays[1].tobytes() == arrays[2].tobytes()
    return found[0]


@given(data=st.data())
def test_parts_have_every_entry_once(data):
    tensor = data.draw(of_one_coordinate() if data.draw(st.booleans()) else mapped())
    array = tensor.to_dense()
    tensor, array = seen(data, tensor, array)
    axes, how = axes_of(data, tensor), data.draw(st.sampled_from(HOWS))
    spec, operands = data.draw(products(tensor))
    with nests(grain=data.draw(st.integers(1, 4)), block=data.draw(st.integers(1, 50))), np.errstate(all="ignore"):
        with using_threads(2):
            check_reduction(tensor, axes, how, "stored")
        try:
            on_threads(lambda: reduce(tensor, axes, how, cells="stored"))
            on_threads(lambda: einsum(spec, *operands))
        except BinsparseError:  # no cells take part, or cells have a fill value
            return
        if np.isfinite(array).all():
            with using_threads(2):
                check_product(spec, operands, array)


STRUCTURED = sorted(name for name in STRUCTURES if not name.startswith("hermitian"))


@st.composite
def of_many_blocks(draw):
    """An opened tensor of any kinds and order, a structure or a map, with more entries than several blocks have."""
    structure = draw(st.sampled_from([None, None, *STRUCTURED]))
    shape = (8, 8) if structure else draw(st.sampled_from([(9, 7), (5, 4, 3)]))
    array = np.random.default_rng(draw(st.integers(0, 99))).integers(-4, 5, shape) * 1.0
    if structure:
        half = np.tril(array, -1 if structure.startswith("skew") else 0)
        array = half + np.tril(half, -1).T * (-1 if structure.startswith("skew") else 1)
    rank = len(shape)
    try:
        tensor = pack_dense(array, draw(testing.formats(kinds=tuple(LEVELS.values()), min_rank=rank, max_rank=rank)))
        if structure:
            tensor = tensor.with_structure(structure)
        elif draw(st.booleans()):
            tensor = tensor.convert("COO" if rank == 2 else "CSF", map=draw(testing.maps(shape, max_digits=1)))
        return opened(tensor), array
    except BinsparseError:  # a kind may refuse a tensor
        assume(False)


@given(data=st.data())
def test_blocks_of_a_file_are_cut_between_first_coordinates(data):
    """In any stored order, threads that share a result change different items of it."""
    tensor, array = data.draw(of_many_blocks())
    letters = "ijk"[: array.ndim]
    kept = "".join(data.draw(st.permutations(letters)))[: data.draw(st.integers(1, array.ndim))]
    axes = tuple(k for k, x in enumerate(letters) if x not in kept)
    vectors = [np.arange(size) + 1.0 for size in array.shape]
    spec = f"{letters},{','.join(letters)}->{kept}"
    with nests(grain=1, block=data.draw(st.integers(5, 12))):
        found = on_threads(lambda: einsum(spec, tensor, *vectors))
        found = found.to_dense() if hasattr(found, "to_dense") else found
        np.testing.assert_array_equal(found, np.einsum(spec, array, *vectors))
        np.testing.assert_array_equal(on_threads(lambda: tensor.sum(axes)), array.sum(axes))
        np.testing.assert_array_equal(on_threads(lambda: tensor.max(axes)), array.max(axes))


def add(state, *entry):
    state[0] += entry[-1]
    state[1] += 1


add.py_func = add  # as numba's functions have it


def check_parts(chain, monkeypatch):
    format = parse_format(chain)
    random, shape = np.random.default_rng(1), [0] * format.rank
    for k, size in zip(format.order, (4, 150) if format.rank == 2 else (4, 30, 11), strict=True):
        shape[k] = size
    array = uneven(random, shape, format.order[0], 0.1)
    tensor = pack_dense(array, format, fill_value=0)
    cut, parts = walk.of_entries, []
    monkeypatch.setattr(walk, "of_entries", lambda *given, **more: parts.append(cut(*given, **more)) or parts[-1])
    letters = "ijk"[: format.rank]
    inputs = ",".join(letters)
    vectors = [random.normal(size=size) for size in shape]
    for out in (*(letters[k] for k in format.order), letters, "", letters[format.order[0]] + "x"):
        spec, dense = f"{letters},{inputs},x->{out}", [*vectors, np.ones(2)]
        found = on_threads(lambda spec=spec, dense=dense: einsum(spec, tensor, *dense))
        found = found.to_dense() if out == letters else found
        np.testing.assert_allclose(found, np.einsum(spec, array, *dense), atol=1e-12)
    for axes in (0, 1, tuple(range(1, format.rank)), None):
        on_threads(lambda axes=axes: reduce(tensor, axes, "var"))
        np.testing.assert_allclose(reduce(tensor, axes, "var"), array.var(axes))
    return tensor, array, parts


@pytest.mark.sampled(4)
@pytest.mark.parametrize("chain", CHAINS)
def test_a_coordinate_with_most_entries_is_cut(chain, monkeypatch):
    with nests(grain=1):
        tensor, array, parts = check_parts(chain, monkeypatch)
        state = on_threads(lambda: foreach(tensor, add, np.zeros(2), np.add))
        np.testing.assert_allclose(state, [array.sum(), len(tensor.unpack()[1])])
    assert len(parts[0]) == 16
    assert all(len(x.path) == 2 * CHAINS[chain] for x in parts[0])
    assert sum(x.own > x.begin for x in parts[0]) > 8


@pytest.mark.slow
@pytest.mark.parametrize("chain", ["CSR", "COO", "dense, dense, sparse"])
def test_compiled_parts(chain, monkeypatch):
    with nests(interpreted=False, grain=1):
        check_parts(chain, monkeypatch)


def test_parts_of_even_trees_end_between_coordinates(monkeypatch):
    """The outermost loop is cut in equal parts, or by entries if some coordinates have more, but none has most."""
    random = np.random.default_rng(0)
    array = random.random((200, 30))
    vector = random.random(30)
    monkeypatch.setattr(walk, "of_entries", lambda *given, **more: pytest.fail("even rows are cut by entries"))
    with nests(grain=1), using_threads(2):
        np.testing.assert_allclose(pack_dense(array, "CSR") @ vector, array @ vector)
    monkeypatch.undo()
    array[50:] *= random.random((150, 30)) < 0.1
    cut, parts = walk.of_entries, []
    monkeypatch.setattr(walk, "of_entries", lambda *given, **more: parts.append(cut(*given, **more)) or parts[-1])
    with nests(grain=1), using_threads(2):
        np.testing.assert_allclose(pack_dense(array, "CSR", fill_value=0) @ vector, array @ vector)
    assert len(parts[0]) == 16
    assert all(x.begin == x.own and x.last == x.end for x in parts[0])


@pytest.mark.slow
@pytest.mark.parametrize("format", ["COO", "CSF", "dense, dense, sparse"])
def test_many_entries_of_one_coordinate(format, monkeypatch):
    random = np.random.default_rng(0)
    rows = np.where(random.random(3_000_000) < 0.9, 3, random.integers(0, 50, 3_000_000))
    coords = [rows, *random.integers(0, 3000, (2, 3_000_000))]
    tensor = pack(coords, np.ones(3_000_000), (50, 3000, 3000), format, duplicates="first")
    cut, parts = walk.of_entries, []
    monkeypatch.setattr(walk, "of_entries", lambda *given, **more: parts.append(cut(*given, **more)) or parts[-1])
    found = on_threads(lambda: einsum("ijk,j->i", tensor, np.arange(3000.0)))
    assert len(parts[-1]) > 4
    assert sum(x.row == 3 for x in parts[-1]) >= 0.8 * len(parts[-1])
    (i, j, _), _ = tensor.unpack()
    np.testing.assert_array_equal(found, np.bincount(i, j, 50))


@pytest.mark.slow
def test_files_of_many_blocks(tmp_path):
    """With the thresholds of users, on two threads: what the laws above draw small."""
    random = np.random.default_rng(0)
    coords = [random.integers(0, size, 2_300_000) for size in (300, 400, 500)]
    tensor = pack(coords, np.ones(2_300_000), (300, 400, 500), "sparse, sparse, sparse @ 2, 0, 1", duplicates="last")
    (i, j, k), ones = tensor.unpack()
    bl.write(tmp_path / "a.zarr", tensor)
    opened = bl.open(tmp_path / "a.zarr")
    one, two = random.integers(0, 9, 400) * 1.0, random.integers(0, 9, 500) * 1.0
    with asserted():
        found = on_threads(lambda: einsum("ijk,j,k->i", opened, one, two))
        np.testing.assert_array_equal(found, np.bincount(i, one[j] * two[k], 300))
        np.testing.assert_array_equal(on_threads(lambda: opened.sum((0, 2))), np.bincount(j, ones, 400))
        np.testing.assert_array_equal(on_threads(lambda: opened.max((1, 2))), np.ones(300))
