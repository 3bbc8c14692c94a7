"""Views: whatever the format and the index, the same as numpy's on the dense array, and lazy like it."""

import tracemalloc

import numpy as np
import pytest
from helpers import kinds  # noqa: F401 (registers kinds that only tests have)
from helpers.strategies import any_tensors, keys
from hypothesis import assume, given
from hypothesis import strategies as st

import binsparse_levels
from binsparse_levels import BinsparseError, LimitError, Tensor, pack, pack_dense, read, testing, write
from binsparse_levels.engine import selection
from binsparse_levels.thresholds import THRESHOLDS, using_thresholds

pytestmark = pytest.mark.usefixtures("numpy_and_kernels")


@st.composite
def wrong_keys(draw, shape):
    """An index with one thing in it that no tensor takes: numpy refuses it too, or would add a dimension."""
    items = list(draw(keys(shape)))
    wrong = [True, np.True_, np.array(False), 1.5, "0", np.array(0.0), np.empty(0), b"a"]
    kind = draw(st.sampled_from(["thing", "range", "more"] if shape else ["thing", "more"]))
    if kind == "thing":
        items.insert(draw(st.integers(0, len(items))), draw(st.sampled_from(wrong)))
    elif kind == "range":
        at = draw(st.integers(0, len(shape) - 1))
        size = shape[at]
        far = st.sampled_from(
            [size, -size - 1, np.uint64(2**63), np.array([size]), [-size - 1], np.ones(size + 1, bool)]
        )
        items = [slice(None)] * at + [draw(far)]
    else:
        items = [*items, ..., ...] if draw(st.booleans()) else [*[0] * (len(shape) + 1), ...]
    return tuple(items)


def alike(found, expected):
    assert type(found) is not Tensor or found.shape == expected.shape
    dense = found.to_dense() if isinstance(found, Tensor) else found
    assert np.shape(dense) == expected.shape
    assert np.asarray(dense).dtype == expected.dtype
    np.testing.assert_array_equal(dense, expected)


def pattern(tensor):
    """Where entries are stored."""
    marks = np.zeros(tensor.shape, bool)
    marks[tensor.unpack()[0]] = True
    return marks if tensor.structure is None else marks | marks.T


@given(st.data())
def test_a_view_is_numpys_on_the_dense_array(data):
    tensor = data.draw(any_tensors())
    dense = tensor.to_dense()
    for _ in range(2):  # a view of a view
        key = data.draw(keys(dense.shape))
        before, expected = tensor, dense[key]
        tensor = tensor[key]
        alike(tensor, np.asarray(expected))
        if not isinstance(tensor, Tensor):
            assert np.ndim(tensor) or isinstance(tensor, np.generic)
            return
        if before.ndim:
            assert tensor.number_of_stored_values == np.count_nonzero(pattern(before)[key])
        dense = expected
        axes = data.draw(st.permutations(range(dense.ndim)))
        tensor, dense = tensor.permute(axes), dense.transpose(axes)
        alike(tensor, dense)
        alike(tensor.T, dense.T)
    format = data.draw(testing.formats(min_rank=tensor.ndim, max_rank=tensor.ndim))
    alike(tensor.load(format), dense)
    loaded = tensor.load()
    loaded.check()
    assert loaded.equals(tensor)
    assert loaded.format == tensor.format


@given(st.data())
def test_what_is_stored_is_selected_or_refused(data):
    """Also of a file with damage: what a window shows is what it shows of the whole, or an error."""
    stored = {}
    write(stored, data.draw(any_tensors().filter(lambda tensor: tensor.ndim)))
    for changed in [stored, *testing.damaged(stored, most=3)]:
        try:
            opened = binsparse_levels.open(changed)
            key = data.draw(keys(opened.shape))
            found = opened[key]
            found = found.load() if isinstance(found, Tensor) else found
        except BinsparseError:
            continue
        if isinstance(found, Tensor):
            found.check()
            found = found.to_dense()
        try:
            whole = read(changed)
        except BinsparseError:
            continue
        np.testing.assert_array_equal(found, whole.to_dense()[key])


@given(st.data())
def test_what_is_no_index(data):
    tensor = data.draw(any_tensors())
    key = data.draw(wrong_keys(tensor.shape))
    with pytest.raises(IndexError):
        tensor[key]


@given(st.data())
def test_none_adds_a_dimension(data):
    tensor = data.draw(any_tensors())
    key = list(data.draw(keys(tensor.shape)))
    for _ in range(data.draw(st.integers(1, 2))):
        key.insert(data.draw(st.integers(0, len(key))), None)
    if any(isinstance(item, list) or (isinstance(item, np.ndarray) and item.ndim) for item in key):
        with pytest.raises(IndexError, match="use tensor"):
            tensor[tuple(key)]
    else:
        alike(tensor[tuple(key)], tensor.to_dense()[tuple(key)])


@pytest.mark.parametrize("key", [(slice(None), 0, ..., [0, 2]), (0, ..., slice(None), [1]), ([0, 1], ..., 1)], ids=str)
def test_an_ellipsis_of_no_dimension_stands_between(key):
    dense = np.arange(24).reshape(2, 3, 4)
    tensor = pack_dense(dense, "dense, sparse(2) @ 2, 0, 1")
    alike(tensor[key], dense[key])
    alike(tensor[::-1][key], dense[::-1][key])


def test_a_mask_of_any_bytes():
    dense = np.arange(4.0)
    mask = np.array([0, 2, 1, 255], np.uint8).view(bool)
    assert pack_dense(dense, "CVEC")[mask].tolist() == [1, 2, 3]
    assert pack_dense(dense[:, None], "CSR")[mask].to_dense().tolist() == [[1], [2], [3]]
    masked = np.ma.array([0, 1], mask=[True, False])
    with pytest.raises(IndexError, match="masked"):
        pack_dense(dense, "CVEC")[masked]


@given(st.data())
def test_single_values(data):
    tensor = data.draw(any_tensors())
    dense = tensor.to_dense()
    assume(dense.size)
    place = tuple(data.draw(st.integers(-size, size - 1)) for size in dense.shape)
    value = tensor[place]
    assert isinstance(value, np.generic)
    np.testing.assert_array_equal(value, dense[place])
    count = data.draw(st.integers(1, 5))
    if dense.ndim:
        rows = [
            np.array(data.draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count))) for n in dense.shape
        ]
        np.testing.assert_array_equal(tensor[tuple(rows)], dense[tuple(rows)])
        if tensor.structure is None:
            positions = tensor.locate([x % n for x, n in zip(rows, dense.shape, strict=True)])
            found = positions >= 0
            np.testing.assert_array_equal(tensor.values[positions[found]], dense[tuple(rows)][found])


# Cases that hostile use found


def narrow_file(path, coords, shape, format):
    tensor = pack(coords, np.arange(1.0, len(coords[0]) + 1), shape, format)
    write(path, tensor, narrow=True)
    return tensor.to_dense(), (read(path), binsparse_levels.open(path))


NARROW_KEYS = [
    (slice(None), slice(300, 900)), (slice(2, 5), slice(None, None, 3)), slice(None, None, 400), [3, 9],
    (slice(None), slice(300, None, 7)), (slice(3, 150),), (slice(None), [299, 300, 301, 811]),
]  # fmt: skip


@pytest.mark.sampled(11)
@pytest.mark.parametrize("key", NARROW_KEYS, ids=str)
@pytest.mark.parametrize("format", ["CSR", "sparse(2)", "sparse, sparse"])
def test_views_of_indices_of_one_byte(tmp_path, format, key):
    few = np.arange(0, 1000, 5)
    for k, coords in enumerate([(few % 20, few), (np.repeat(np.arange(20), 20), np.tile(np.arange(20), 20))]):
        dense, tensors = narrow_file(tmp_path / f"{k}.h5", coords, (900, 1000), format)
        for tensor in tensors:
            np.testing.assert_array_equal(tensor[key].to_dense(), dense[key])


def test_unsigned_indices_beyond_what_floats_count():
    indices = {"indices_0": np.array([2**60, 2**60 + 1], np.uint64), "indices_1": np.zeros(2, np.uint64)}
    tensor = Tensor("sparse(2)", (2**62, 1), indices, [1.0, 2.0])
    assert tensor[[2**60 + 1, 2**60 + 3], :].values.tolist() == [2]


@pytest.mark.parametrize("format", ["CSR", "CSC", "sparse(2)", "dense(2)"])
def test_steps_that_numpy_cannot_count(format):
    dense = np.arange(1.0, 13).reshape(3, 4)
    tensor = pack_dense(dense, format)
    for key in (slice(None, None, 2**100), (slice(None), slice(3, None, -(2**64))), ([2, 0], slice(1, None, 2**63))):
        np.testing.assert_array_equal(tensor[key].to_dense(), dense[key])


def test_an_empty_view_of_damaged_pointers_reads_no_fiber():
    file = {}
    write(file, pack(np.zeros((3, 0), int), [], (1, 1, 1), "dense, sparse, sparse"))
    file["pointers_to_1"] = np.array([1, 0], np.int32)
    assert binsparse_levels.open(file)[:0].to_dense().shape == (0, 1, 1)


def test_an_empty_view_of_a_negative_step_has_no_negative_coordinate():
    assert pack_dense(np.ones((1, 20)), "CSC")[:, -21 :: -(2**66)].load().shape == (1, 0)


def test_many_values_by_indices_of_several_types():
    indices = {"indices_0": np.arange(200, dtype=np.uint8), "indices_1": np.arange(200, dtype=">u8")}
    tensor = Tensor("sparse(2)", (200, 300), indices, np.arange(200.0))
    rows = np.tile(np.arange(200), 3)
    assert tensor[rows, rows].tolist() == rows.tolist()


def test_an_index_of_lists_of_different_lengths():
    with pytest.raises(IndexError):
        pack_dense(np.eye(3), "CSR")[[0, [1, 2]]]


def test_a_view_without_a_band_stores_no_cell_that_the_band_lacked():
    tensor = pack([[0, 2], [0, 0]], [1.0, 2.0], (3, 2), "band, band")
    for key, count in ((np.s_[:, 0], 2), (np.s_[:, 1], 0)):
        assert tensor[key].number_of_stored_values == count
        np.testing.assert_array_equal(tensor[key].to_dense(), tensor.to_dense()[key])


def test_a_row_of_a_dense_matrix_is_turned_round():
    cells = np.arange(1.0, 13).reshape(3, 4)
    for key in (np.s_[:1, ::-1], np.s_[:1, ::-2], np.s_[::-1, :1]):
        for name in ("DMATR", "DMATC"):
            assert np.array_equal(pack_dense(cells, name)[key].to_dense(), cells[key])


@pytest.mark.parametrize(("format", "fast"), [("CSR", True), ("CSC", True), ("dense(2), sparse", True),
    ("dense, dense, dense", True), ("dense, sparse, dense", True), ("dense, sparse, sparse", True),
    ("sparse(3)", True), ("dense, hashed", False),
    ("sparse, dense, sparse", True), ("dense, bitmap(2)", False)])  # fmt: skip
def test_which_formats_are_read_by_fibers(tmp_path, format, fast, monkeypatch):
    shape = (6, 10) if format in ("CSR", "CSC", "dense, hashed") else (3, 4, 5)
    tensor = pack(np.unravel_index(np.arange(60), shape), np.arange(60.0), shape, format)
    write(tmp_path / "a.h5", tensor)
    asked, listed = [], selection._selected
    monkeypatch.setattr(selection, "_selected", lambda *given: asked.append(given) or listed(*given))
    key = (slice(None), slice(1, 3)) if format == "CSC" else slice(1, 3)
    for held in (binsparse_levels.open(tmp_path / "a.h5"), tensor):
        for _ in range(2):
            np.testing.assert_array_equal(held[key].load().to_dense(), tensor.to_dense()[key])
    assert len(asked) == (0 if fast else 4)


@given(st.data())
def test_an_open_mesh_selects_each_dimension_as_numpy_and_stays_sparse(data):
    tensor = data.draw(any_tensors().filter(lambda tensor: tensor.ndim > 1 and tensor.size))
    named = data.draw(st.permutations(range(tensor.ndim)).map(lambda x: sorted(x[: max(len(x) // 2, 2)])))
    axes = data.draw(st.permutations(range(len(named))))  # of the mesh
    key = [slice(None, None, data.draw(st.sampled_from([1, -1]))) for _ in tensor.shape]
    for k, axis in zip(named, axes, strict=True):
        at = data.draw(st.lists(st.integers(-tensor.shape[k], tensor.shape[k] - 1), max_size=3))
        key[k] = np.expand_dims(np.array(at, np.int64), [x for x in range(len(named)) if x != axis])
    labels = {k: np.arange(10, 10 + size) for k, size in enumerate(tensor.shape)}
    found = tensor.with_labels(labels)[tuple(key)]
    assert isinstance(found, Tensor)
    alike(found, tensor.to_dense()[tuple(key)])
    for k in named:
        assert found.labels(f"dim_{k}").tolist() == labels[k][key[k].ravel()].tolist()


def test_index_arrays_take_no_more_than_the_limit(tmp_path):
    rng = np.random.default_rng(0)
    entries = rng.integers(0, 1000, (2, 500)), rng.random(500), (1000, 1000)
    tensor = pack(*entries, "CSR", duplicates="sum", limits=binsparse_levels.Limits(dense_bytes=10**5))
    rows, columns = np.arange(0, 900), np.arange(1000)
    assert tensor[np.ix_(rows, columns)].shape == (900, 1000)
    assert tensor[np.ix_(rows % 2 == 0, columns[:900] > 5)].nnz == tensor[:900:2, 6:900].nnz
    for key in (
        (np.tile(rows, (1000, 1)), np.tile(columns[:, None], 900)),
        (np.tile(rows, 1000), np.tile(columns, 900)),
    ):
        with pytest.raises(LimitError, match=r"dense_bytes.*t\[rows\]\[:, cols\]"):
            tensor[key]
    assert tensor[rows][:, columns].shape == (900, 1000)


@given(st.data(), st.integers(1, 5))
def test_a_selection_that_is_read_in_blocks_is_the_same(data, size):
    tensor = data.draw(any_tensors())
    write(stored := {}, tensor)
    opened, dense = binsparse_levels.open(stored), tensor.to_dense()
    with using_thresholds(block_entries=size):
        for _ in range(2):
            key = data.draw(keys(dense.shape))
            opened, dense = opened[key], dense[key]
            alike(opened, np.asarray(dense))
            if not isinstance(opened, Tensor):
                break
            loaded = binsparse_levels.open(stored)[key].load() if _ == 0 else opened.load()
            loaded.check()
            alike(loaded, dense)


@pytest.mark.parametrize(
    ("format", "key"),
    [("CSR", 1), ("CSC", 0), ("COO", 0), ("COO", 1), ("DCSR", 1), ("dense, hashed", 1), ("dense, elias_fano", 1)],
)
def test_a_mask_of_an_inner_dimension_is_read_block_by_block(tmp_path, format, key, monkeypatch):
    monkeypatch.setattr(THRESHOLDS, "block_entries", 2**13)
    monkeypatch.setattr(THRESHOLDS, "checked_items", 2**13)
    rng = np.random.default_rng(0)
    at = np.unique(rng.integers(0, 2000 * 2000, 300_000))
    write(tmp_path / "a.h5", pack(np.divmod(at, 2000), rng.random(len(at)), (2000, 2000), format))
    mask = np.arange(2000) % 50 == 0
    opened = binsparse_levels.open(tmp_path / "a.h5")
    view = opened[mask] if key == 0 else opened[:, mask]
    tracemalloc.start()
    loaded = view.load()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert loaded.nnz == np.count_nonzero(np.divmod(at, 2000)[key] % 50 == 0)
    assert most < (12 * len(at) if format != "dense, hashed" else 40 * len(at)) / 2
