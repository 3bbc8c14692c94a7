"""Views: whatever the format and the index, the same as numpy's on the dense array, and lazy like it."""

import kinds  # noqa: F401 (registers kinds that only tests have)
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import Tensor, testing
from binsparse_levels.levels import LEVELS

pytestmark = pytest.mark.usefixtures("both_ways")


@st.composite
def keys(draw, shape, *, arrays=True):
    """An index that numpy takes for an array of that shape."""
    with_array = draw(st.sampled_from([None, *range(len(shape))])) if arrays else None
    items = []
    for k, size in enumerate(shape):
        if k == with_array:
            if draw(st.booleans()):
                items.append(np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool))
            else:
                index = st.integers(-size, size - 1) if size else st.nothing()
                items.append(np.array(draw(st.lists(index, max_size=6)) if size else [], np.int64))
            continue
        ends = st.none() | st.integers(-size - 2, size + 2)
        step = st.sampled_from([None, 1, 2, 3, -1, -2])
        sliced = st.builds(slice, ends, ends, step)
        items.append(draw(sliced | st.integers(-size, size - 1) if size and draw(st.booleans()) else sliced))
    if draw(st.booleans()):
        while items and isinstance(items[-1], slice) and items[-1] == slice(None, None, None):
            items.pop()
        if len(items) < len(shape) or draw(st.booleans()):
            items.append(Ellipsis)
    return tuple(items)


@st.composite
def any_tensors(draw, **options):
    return draw(
        testing.tensors(kinds=tuple(LEVELS.values()), dtypes=("bool", "int16", "float64", "complex64"), **options)
    )


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
