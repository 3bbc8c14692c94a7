"""What a tensor holds: views and maps keep entries and metadata, and a tensor that was opened travels by its place."""

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import dask.array as da
import numpy as np
import pytest
from dask.base import tokenize
from helpers.strategies import any_tensors, keys
from hypothesis import assume, given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import ArrayError, ContainerError, FormatError, LimitError, Limits, Tensor, pack, testing
from binsparse_levels.formats.structure import STRUCTURES, in_triangle
from binsparse_levels.levels import LEVELS
from binsparse_levels.tensors.tensor import inside

LEFT = {"unit": "m"}
UNREFUSING = [kind for kind in LEVELS.values() if not kind.refuses]


@st.composite
def mapped_tensors(draw):
    """A tensor of any kinds, through a map or not, with attributes."""
    tensor = draw(any_tensors())
    if tensor.structure is None and draw(st.booleans()):
        map = draw(testing.maps(tensor.shape, max_digits=2))
        rank = len(map.stored_shape)
        tensor = tensor.convert(draw(testing.formats(min_rank=rank, max_rank=rank, kinds=UNREFUSING)), map=map)
    return tensor.with_attributes(LEFT)


def count(tensor):
    return len(tensor.unpack()[1])


@given(mapped_tensors(), st.data())
def test_no_way_from_a_view_adds_entries_or_loses_metadata(tensor, data):
    view = tensor[data.draw(keys(tensor.shape, arrays=False))] if tensor.shape else tensor.T
    assume(isinstance(view, Tensor))
    expected = count(view)
    for made in (view.load(), view.without_map(), view.astype(view.dtype), pickle.loads(pickle.dumps(view)), view.T):
        assert count(made) == made.nnz == made.number_of_stored_values == expected
        assert dict(made.attributes) == LEFT
        assert str(made.fill_value) == str(tensor.fill_value)
    np.testing.assert_array_equal(view.load().to_dense(), view.to_dense())
    np.testing.assert_array_equal(view.stored.attributes["unit"], "m")


@given(testing.formats(min_rank=2, max_rank=2, kinds=UNREFUSING), st.sampled_from(sorted(STRUCTURES)), st.data())
def test_with_structure_is_the_inverse_of_expand_structure(format, structure, data):
    size = data.draw(st.integers(0, 5))
    cells = [cell for cell in np.ndindex(size, size) if in_triangle(structure, [np.array(x) for x in cell])]
    if not structure.startswith("symmetric"):  # a diagonal has to be its own mirror image
        cells = [cell for cell in cells if cell[0] != cell[1]]
    places = data.draw(st.lists(st.sampled_from(cells), unique=True)) if cells else []
    columns, values = np.array(places, int).reshape(-1, 2).T, np.arange(1, len(places) + 1) * (1 + 2j)
    fill = data.draw(st.sampled_from([None, 0]))
    half = pack(columns, values, (size, size), format, structure=structure, fill_value=fill)
    again = half.expand_structure().with_structure(structure)
    assert again.structure == structure
    np.testing.assert_array_equal(again.to_dense(), half.to_dense())
    assert half.format.padded or again.equals(half)  # padding within both triangles counts as entries


def test_a_cast_that_would_change_mirror_images_is_refused():
    half = pack([[1], [0]], np.array([5], np.uint8), (2, 2), "CSR", structure="skew_symmetric_lower")
    with pytest.raises(FormatError, match="expand_structure"):
        half.astype("int64")
    assert half.expand_structure().astype("int64").to_dense().tolist() == [[0, 251], [5, 0]]


# Limits


WAYS = {
    "to_dense": lambda t: t.to_dense(),
    "load": lambda t: t.load("dense(2)"),
    "convert": lambda t: t.convert("dense(2)"),
    "view": lambda t: t[:500].to_dense(),
    "view of a view": lambda t: t[:500][1:].T.load("dense(2)"),
    "astype": lambda t: t.astype("float32").to_dense(),
    "attributes": lambda t: t.with_attributes(LEFT).to_dense(),
    "permuted": lambda t: t.T.convert("dense(2)"),
    "without fill": lambda t: t.drop_fill().to_dense(),
    "map": lambda t: t.convert("sparse", map="(0 1)").to_dense(),
    "map of a view": lambda t: t[1:].convert("dense", map="(0 1)"),
    "pickled": lambda t: pickle.loads(pickle.dumps(t)).to_dense(),
    "expanded": lambda t: t.expand_structure().to_dense(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("opened", [True, False])
def test_limits_travel(tmp_path, way, opened):
    rows = np.arange(1000)
    tensor = pack([rows, 0 * rows], np.ones(1000), (1000, 1000), "CSR")
    bl.write(tmp_path / "a.h5", tensor)
    limited = (bl.open if opened else bl.read)(tmp_path / "a.h5", limits=Limits(dense_bytes=20_000))
    with pytest.raises(LimitError, match="dense_bytes"):
        WAYS[way](limited)


# Another process


def stored_in(folder, suffix=".h5"):
    rng = np.random.default_rng(0)
    tensor = pack(rng.permuted(np.arange(20_000)).reshape(1, -1), rng.random(20_000), 20_000, "CVEC", attributes=LEFT)
    tensor = tensor.convert("CSR", map="0/100, 0%100")
    bl.write(folder / f"a{suffix}", tensor, overwrite=True)
    return bl.open(folder / f"a{suffix}")


def sum_of(tensor):
    return tensor.to_dense().sum(), inside(tensor).source.lazy, dict(tensor.attributes)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".h5", ".zarr", ".npz"])
def test_an_opened_tensor_travels_by_its_place(tmp_path, suffix):
    whole = stored_in(tmp_path, suffix)
    assert inside(pickle.loads(pickle.dumps(whole))).source.lazy
    assert inside(whole).source.lazy
    views = [whole, whole[5000:], whole[::-3], whole[5000:][::2], whole.stored, whole.stored[3:].T]
    for view in views:
        sent = pickle.dumps(view)
        assert len(sent) < 3000
        np.testing.assert_array_equal(pickle.loads(sent).to_dense(), view.to_dense())
    whole = bl.open(tmp_path / f"a{suffix}")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        (total, lazy, attributes), expected = pool.submit(sum_of, whole[5000:]).result(), whole[5000:].to_dense().sum()
    assert (total, lazy, attributes) == (expected, True, LEFT)


@pytest.mark.parametrize("suffix", [".h5", ".zarr", ".npz"])
def test_a_file_that_has_changed_is_an_error_there(tmp_path, suffix):
    sent = pickle.dumps(stored_in(tmp_path, suffix)[3:])
    stored_in(tmp_path, suffix)
    with pytest.raises(ContainerError, match="has changed"):
        pickle.loads(sent)


def test_tokens_of_dask_tell_tensors_apart(tmp_path):
    whole, again = stored_in(tmp_path), bl.open(tmp_path / "a.h5")
    assert tokenize(whole[5:]) == tokenize(again[5:]) != tokenize(again[6:])
    assert inside(whole).source.lazy
    assert tokenize(whole.load()) == tokenize(again.load())
    small = pack([[0, 2]], [1.0, 2.0], 3, "CVEC")
    assert tokenize(small) == tokenize(pack([[0, 2]], [1.0, 2.0], 3, "CVEC")) != tokenize(small.with_attributes(LEFT))
    assert tokenize(small) != tokenize(pack([[0, 2]], [1.0, 3.0], 3, "CVEC"))


def test_dask_takes_an_opened_tensor(tmp_path):
    whole = stored_in(tmp_path)
    blocks = da.from_array(whole, chunks=5000)
    part = blocks[:3].compute()
    np.testing.assert_array_equal(part.to_dense(), whole[:3].to_dense())
    dense = blocks.map_blocks(Tensor.to_dense, dtype=whole.dtype, meta=np.empty(0))
    np.testing.assert_array_equal(dense.compute(scheduler="threads"), whole.to_dense())
    assert inside(bl.open(tmp_path / "a.h5")).source.lazy


def test_labels_travel_by_place_too(tmp_path):
    columns = {"user": ["a", "b", "c"], "t": [0, 1, 2], "value": [1.0, 2.0, 3.0]}
    arrow = pytest.importorskip("pyarrow")
    bl.write(tmp_path / "a.h5", bl.from_table(arrow.table(columns), ["user", "t"], "value", "CSR"))
    view = pickle.loads(pickle.dumps(bl.open(tmp_path / "a.h5")[::-1].T))
    assert (view.dims, view.labels("user").tolist()) == (("t", "user"), ["c", "b", "a"])


def test_length_and_truth():
    tensor = pack([[0, 2], [0, 1]], [1.0, 2.0], (3, 4), "CSR")
    assert (len(tensor), tensor.nnz) == (3, 2)
    with pytest.raises(TypeError, match="no length"):
        len(pack([], 1.0, (), "element"))
    with pytest.raises(TypeError, match="no truth value"):
        bool(tensor)
    with pytest.raises(TypeError, match=r"numpy\.sort does not accept a Tensor"):
        np.sort(tensor)


# Arrays of others


@pytest.mark.parametrize("use", [Tensor.to_dense, Tensor.unpack, lambda t: t[2, 1], lambda t: t[1:].to_dense(),
                                 lambda t: t @ np.ones(3), lambda t: t.T.convert("COO"), lambda t: bl.write({}, t),
                                 lambda t: bl.reduce(t, 0), lambda t: t.locate([[2], [1]])])  # fmt: skip
@pytest.mark.parametrize(("name", "item"), [("pointers_to_1", 2**30), ("indices_1", 2**30), ("indices_1", -5)])
def test_arrays_that_their_owner_changes_are_checked_at_each_use(use, name, item):
    arrays = {"pointers_to_1": np.array([0, 1, 1, 2]), "indices_1": np.array([2, 1])}
    tensor = Tensor("CSR", (3, 3), arrays, [1.0, 2.0])
    cast, permuted = tensor.astype("int64"), tensor.T
    use(tensor)
    arrays[name][1] = item
    for same in (tensor, cast):
        with pytest.raises(ArrayError, match=name):
            use(same)
    with pytest.raises(ArrayError, match=name):
        permuted.to_dense()


def test_what_is_written_is_in_order():
    arrays = {"pointers_to_1": np.array([0, 2]), "indices_1": np.array([1, 2])}
    tensor = Tensor("CSR", (1, 3), arrays, [1.0, 2.0])
    arrays["indices_1"][:] = [2, 1]
    with pytest.raises(ArrayError, match="indices_1"):
        bl.write({}, tensor)


def test_arrays_that_nobody_can_change_are_not_checked_again():
    arrays = {"pointers_to_1": np.array([0, 2]), "indices_1": np.array([1, 2])}
    for x in arrays.values():
        x.flags.writeable = False
    store = {}
    bl.write(store, Tensor("CSR", (1, 3), arrays, [1.0, 2.0]))
    for tensor in (Tensor("CSR", (1, 3), arrays, [1.0, 2.0]), bl.read(store), bl.open(store).load()):
        assert not inside(tensor).backing.stored.shared


@given(mapped_tensors())
def test_coordinates_come_in_the_types_that_are_stored(tensor):
    (wide, values), (narrow, same) = tensor.unpack(), tensor.unpack("stored")
    np.testing.assert_array_equal(values, same)
    for x, y, size in zip(wide, narrow, tensor.shape, strict=True):
        np.testing.assert_array_equal(x, y)
        assert y.itemsize <= 4 or size > 2**32
    with pytest.raises(bl.OptionError, match="pass 'stored' or None"):
        tensor.unpack("narrow")
