"""Views: whatever the format and the index, the same as numpy's on the dense array, and lazy like it."""

import kinds  # noqa: F401 (registers kinds that only tests have)
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import any_tensors, keys

from binsparse_levels import Tensor, pack_dense, testing

pytestmark = pytest.mark.usefixtures("both_ways")


@st.composite
def wrong_keys(draw, shape):
    """An index with one thing in it that no view has: numpy refuses it too, or would add a dimension."""
    items = list(draw(keys(shape)))
    wrong = [
        None,
        True,
        np.True_,
        np.array(False),
        1.5,
        "0",
        np.array(0.0),
        np.empty(0),
        b"a",
    ]
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
    return marks


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
        if before.structure is None and before.ndim:
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
def test_what_is_no_index(data):
    tensor = data.draw(any_tensors())
    key = data.draw(wrong_keys(tensor.shape))
    with pytest.raises(IndexError):
        tensor[key]


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
    if not dense.size:
        return
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
