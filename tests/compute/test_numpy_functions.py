"""Functions of numpy, applied to a tensor, equal those of the dense array; what they cannot do is refused."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse.linalg
from hypothesis import assume, given
from hypothesis import strategies as st
from test_compute import nests

import binsparse_levels as bl
from binsparse_levels import ArrayError, BinsparseError, OptionError, Tensor, testing
from binsparse_levels.levels import LEVELS


def first(x):
    return x[0] if x.ndim > 1 else x


# Each call is made with a tensor, and with its array.
CALLS = {
    "keepdims": lambda x: np.sum(x, axis=0, keepdims=True),
    "keepdims of all": lambda x: x.max(axis=None, keepdims=True),
    "ddof": lambda x: np.std(x, axis=-1, ddof=1),
    "ddof beyond": lambda x: x.var(axis=0, ddof=9),
    "argmax": lambda x: x.argmax(),
    "argmax of rows": lambda x: np.argmax(x, axis=-1),
    "argmin, keepdims": lambda x: np.argmin(x, axis=0, keepdims=True),
    "mask": lambda x: x[x > 0],
    "mask of the fill value": lambda x: x[np.less(x, 2)],
    "round": lambda x: np.round(x / 3, 1),
    "clip": lambda x: x.clip(-1, 2),
    "real": np.real,
    "nan_to_num": np.nan_to_num,
    "where": lambda x: np.where(np.greater(x, 0), x, 0),
    "where, number first": lambda x: np.where(np.greater(x, 0), -1, x),
    "where, three of a shape": lambda x: np.where(np.greater(x, 0), x * 2, x / 3),
    "clip by itself": lambda x: np.clip(x, x / 2, None),
    "where, two numbers": lambda x: np.where(np.greater(x, 0), 3, 5),
    "isclose": lambda x: np.isclose(x, x * (1 + 1e-9)),
    "allclose": lambda x: np.allclose(x, x * (1 + 1e-9)),
    "array_equal": lambda x: np.array_equal(x, x * 1),
    "count_nonzero": np.count_nonzero,
    "count_nonzero of columns": lambda x: np.count_nonzero(x, axis=0),
    "norm": np.linalg.norm,
    "norm 1": lambda x: np.linalg.norm(x, 1, axis=0),
    "norm inf": lambda x: np.linalg.norm(x, np.inf, axis=-1),
    "norm of a matrix": lambda x: np.linalg.norm(x, 1) if x.ndim == 2 else 0,
    "transpose": np.transpose,
    "transpose, axes": lambda x: x.transpose(*range(x.ndim)[::-1]),
    "swapaxes": lambda x: np.swapaxes(x, 0, -1),
    "moveaxis": lambda x: np.moveaxis(x, 0, -1),
    "squeeze": lambda x: np.squeeze(x[:1]),
    "flip": np.flip,
    "flip, axis": lambda x: np.flip(x, -1),
    "roll": lambda x: np.roll(x, 2, axis=0),
    "take": lambda x: np.take(x, [-1, 0, 0], axis=-1),
    "diff": np.diff,
    "diff twice": lambda x: np.diff(x, 2, axis=0),
    "tril": np.tril,
    "triu": lambda x: np.triu(x, 1),
    "concatenate": lambda x: np.concatenate([x, x / 2, x[:0]]),
    "concatenate, axis": lambda x: np.concatenate([x, x], axis=-1),
    "vstack": lambda x: np.vstack([x, x]),
    "hstack": lambda x: np.hstack([x, x]),
    "stack": lambda x: np.stack([x, x / 2]),
    "stack, axis": lambda x: np.stack([x, x], axis=-1),
    "column_stack": lambda x: np.column_stack([x, x]),
    "expand_dims": lambda x: np.expand_dims(x, (0, -1)),
    "newaxis": lambda x: x[None],
    "newaxis, column": lambda x: x[..., None, -1],
    "newaxis of a cell": lambda x: x[(*[0] * x.ndim, None)],
    "repeat": lambda x: np.repeat(x, 2, axis=0),
    "repeat, each": lambda x: np.repeat(x, np.arange(x.shape[-1]), axis=-1),
    "tile": lambda x: np.tile(x, 2),
    "tile, new dimension": lambda x: np.tile(x, (2, *[1] * x.ndim)),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, *x.shape)),
    "delete": lambda x: np.delete(x, [0, -1], axis=-1),
    "split": lambda x: np.split(x, [1], axis=0)[1],
    "cells removed": lambda x: np.where(np.greater(x, 1), x, 0),
    "nonzero": lambda x: np.stack(np.nonzero(x)),
    "where, condition alone": lambda x: np.stack(np.where(x)),
    "argwhere": np.argwhere,
    "flatnonzero": np.flatnonzero,
    "isin": lambda x: np.isin(x, [0, 2]),
    "unique": np.unique,
    "ptp": lambda x: np.ptp(x, axis=0) if x.size else 0,
    "full_like": lambda x: np.full_like(x, 3),
    "ones_like": lambda x: np.ones_like(x, dtype="f4"),
    "zeros_like": np.zeros_like,
    "result_type": lambda x: np.zeros(1, np.result_type(x, np.float32)),
    "iscomplexobj": np.iscomplexobj,
    "divmod, quotient": lambda x: divmod(x, 2)[0],
    "modf": lambda x: np.modf(x / 3)[1],
    "angle": np.angle,
    "add.reduce": lambda x: np.add.reduce(x),
    "maximum.reduce": lambda x: np.maximum.reduce(x, axis=-1, keepdims=True) if x.size else 0,
    "cov": lambda x: np.cov(x) if x.ndim < 3 else 0,
    "cov of columns": lambda x: np.cov(x, rowvar=False, ddof=0) if x.ndim == 2 and len(x) > 1 else 0,
    "corrcoef": lambda x: np.corrcoef(x / 3) if x.ndim < 3 else 0,
    "einsum, ellipsis": lambda x: np.einsum("...i->...", x),
    "einsum, implicit": lambda x: np.einsum("".join("cab"[: x.ndim]), x),
    "dot": lambda x: np.dot(x, np.ones(x.shape[-1])),
    "vdot": lambda x: np.vdot(x, x),
    "inner": lambda x: np.inner(x, np.ones((2, x.shape[-1]))),
    "outer": lambda x: np.outer(x, x) if x.ndim == 1 else 0,
    "tensordot": lambda x: np.tensordot(x, x, axes=(0, 0)),
    "tensordot of one axis": lambda x: np.tensordot(x, np.ones((x.shape[-1], 2)), 1),
    "trace": lambda x: np.trace(x) if x.ndim > 1 else 0,
    "trace, other dimensions": lambda x: np.trace(x, 1, -1, 0) if x.ndim > 1 else 0,
    "diagonal": lambda x: np.diagonal(x, -1) if x.ndim > 1 else 0,
    "diagonal, other dimensions": lambda x: np.diagonal(x, 1, 0, -1) if x.ndim > 1 else 0,
    "a row": lambda x: x * first(x),
    "a row, sum": lambda x: first(x) + x,
    "a part of size 1": lambda x: x - x[..., :1],
}


def dense(result):
    return result.to_dense() if isinstance(result, Tensor) else result


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", CALLS)
@given(data=st.data())
def test_a_call_is_that_of_numpy(name, data):
    """Kinds, structures, fill values and opened tensors; a refusal is an error of ours, or one of numpy's own."""
    kinds = tuple(LEVELS.values())
    types = [np.dtype(x) for x in ("int16", "float64", "complex128")]
    tensor = data.draw(testing.tensors(kinds=kinds, max_rank=3, dtypes=types))
    array = tensor.to_dense()
    assume(tensor.ndim and np.isfinite(array).all() and (abs(array.astype(complex)) < 100).all())
    if data.draw(st.booleans()):
        bl.write(stored := {}, tensor)
        tensor = bl.open(stored)
    with nests(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            expected = CALLS[name](array)
        except (ValueError, IndexError, TypeError, ArithmeticError):
            with pytest.raises((BinsparseError, ValueError, IndexError, TypeError, ArithmeticError)):
                CALLS[name](tensor)
            return
        try:
            found = dense(CALLS[name](tensor))
        except (BinsparseError, IndexError):  # numbers without an order, sums of fill values, coordinates of no cells
            makes_matrices = array.ndim == 1 and name in ("tril", "triu")
            assert tensor.fill_value or array.dtype.kind == "c" or 0 in array.shape or makes_matrices
            return
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_what_is_refused_says_what_to_call():
    tensor = bl.pack_dense(np.eye(3), "CSR")
    for call, remedy in [
        (lambda: np.linalg.norm(tensor, 2), "svds"),
        (lambda: np.stack([tensor[0], tensor]), "concatenate"),
        (lambda: np.expand_dims(tensor, 3), "out of bounds"),
        (lambda: np.broadcast_to(tensor, (2, 2)), "reduce"),
        (lambda: tensor[[0, 1], None], r"\[rows\]"),
        (lambda: np.cov(bl.pack_dense(np.ones((2, 2, 2)), "CSF")), "slice"),
        (lambda: np.nanargmax(np.full_like(tensor, np.nan), axis=0), "select others"),
        (lambda: np.diagonal(tensor, 0, 1, 1), "another"),
        (lambda: np.tril(tensor + 1), "to_dense"),
        (lambda: np.median(tensor), "to_dense"),
        (lambda: tensor[bl.pack_dense(np.eye(2) > 0, "CSR")], "coordinates"),
        (lambda: tensor.sum(0, ddof=1), "var"),
        (lambda: tensor.mean(0, format="CVEC"), "format"),
        (lambda: tensor.sum(axis=0, dim=1), "dim"),
        (lambda: bl.reduce(tensor, 0, limits=bl.Limits(dense_bytes=8)), "format="),
        (lambda: tensor + tensor[:2], "einsum"),
        (lambda: bl.groupby(tensor, 0, [1, 2]), "one for each"),
        (lambda: bl.groupby(tensor + 1, 0, [1, 2, 2]).sum(), "to_dense"),
        (lambda: bl.resample(tensor, 0, "MS"), "groupby"),
    ]:
        with pytest.raises((BinsparseError, TypeError, IndexError), match=remedy):
            call()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["sum", "prod", "mean", "var", "min", "max", "argmin", "argmax"])
@given(data=st.data())
def test_reductions_without_nan(how, data):
    """As numpy's, and as methods with `skipna`. numpy has no extreme of cells that are NaN alone."""
    tensor = data.draw(testing.tensors(kinds=tuple(LEVELS.values()), max_rank=3, dtypes=[np.dtype("float64")]))
    array = tensor.to_dense()
    assume(array.size and tensor.ndim and not np.isinf(array).any() and not (np.nan_to_num(abs(array)) > 100).any())
    holes = data.draw(st.sampled_from([0.0, np.nan, 1.0]))
    tensor, array = (np.where(np.equal(x, holes), np.nan, x) for x in (tensor, array))
    axis, function = data.draw(st.integers(0, array.ndim - 1)), getattr(np, f"nan{how}")
    with nests(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            expected = function(array, axis=axis)
        except ValueError:
            with pytest.raises(BinsparseError, match="select others"):
                function(tensor, axis=axis)
            return
        np.testing.assert_allclose(function(tensor, axis=axis), expected, rtol=1e-9, atol=1e-12)
        if how[:3] != "arg":
            np.testing.assert_allclose(getattr(tensor, how)(axis, skipna=True), expected, rtol=1e-9, atol=1e-12)
            found = getattr(tensor, how)(axis, skipna=False)
            np.testing.assert_allclose(found, getattr(array, how)(axis), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("function", [np.nanvar, np.nanstd])
@given(data=st.data())
def test_spreads_without_nan(function, data):
    """As numpy's, for every format, fill value and ddof, through views and from files."""
    kinds = tuple(LEVELS.values())
    tensor = data.draw(testing.tensors(kinds=kinds, max_rank=3, dtypes=["int8", "float32", "float64", "complex128"]))
    if data.draw(st.booleans()):
        bl.write(stored := {}, tensor)
        tensor = bl.open(stored)
    if tensor.ndim and data.draw(st.booleans()):
        tensor = tensor[data.draw(st.sampled_from([np.s_[::-1], np.s_[1:], np.s_[..., ::2]]))]
    array = tensor.to_dense()
    assume(not (np.isfinite(array) & (np.abs(array) > 1e3)).any())
    axis = data.draw(st.sampled_from([None, *range(array.ndim)]))
    options = {"ddof": data.draw(st.sampled_from([0, 1, 2])), "keepdims": data.draw(st.booleans())}
    with nests(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = function(array.astype(np.result_type(array, np.float64)), axis=axis, **options)
        found = function(tensor, axis=axis, **options)
    assert np.shape(found) == np.shape(expected)
    if tensor.dtype.kind in "fc" or np.isfinite(expected).all():
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    else:
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))


@given(data=st.data())
def test_sums_are_tensors_where_a_format_is_given(data):
    tensor = data.draw(testing.tensors(kinds=tuple(LEVELS.values()), max_rank=3, dtypes=[np.dtype("int16")]))
    assume(tensor.ndim > 1 and not tensor.fill_value)
    axis = data.draw(st.integers(0, tensor.ndim - 1))
    made = tensor.sum(axis, format="sparse" if tensor.ndim == 2 else "DCSR")
    expected = tensor.to_dense().sum(axis)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made.to_dense(), expected)
    kept = "abc"[: tensor.ndim].replace("abc"[axis], "")[::-1]
    spec = f"{'abc'[: tensor.ndim]}->{kept}"
    np.testing.assert_array_equal(bl.einsum(spec, tensor, format=made.format).to_dense(), expected.T)


def test_names_and_labels():
    days, places = np.arange("2026-01-30", "2026-02-03", dtype="M8[D]"), ["a", "b", "c"]
    tensor = bl.pack_dense(np.arange(12.0).reshape(4, 3), "CSR", dims=["day", "place"])
    tensor = tensor.with_labels({"day": days, "place": places})
    assert dict(tensor.sizes) == {"day": 4, "place": 3}
    assert tensor.sum("day", format="CVEC").labels("place").tolist() == places
    assert (tensor * tensor[0]).labels("place").tolist() == places
    assert tensor.sum(dim="day").tolist() == tensor.sum(0).tolist()
    both = np.concatenate([tensor[:3], tensor[3:]])
    assert both.equals(tensor)
    assert (both.labels("day") == days).all()
    wider = np.hstack([np.ones((4, 1)), tensor])
    assert (wider.labels("day") == days).all()
    assert wider.labels("place") is None
    assert np.stack([tensor, tensor], -1).dims == ("day", "place", "dim_2")
    assert tensor[:, None].labels("place").tolist() == places
    assert tensor.astype("f4", copy=False).labels("place").tolist() == places
    monthly = bl.resample(tensor, "day", "MS")
    series = pd.DataFrame(tensor.to_dense(), days).resample("MS")
    np.testing.assert_array_equal(monthly.sum("CSR").to_dense(), series.sum())
    np.testing.assert_array_equal(monthly.mean().to_dense(), series.mean())
    assert (
        monthly.sum().sel(day="2026-02").to_dense().ravel().tolist()
        == series.sum().loc["2026-02"].to_numpy().ravel().tolist()
    )


@given(data=st.data())
def test_groups_are_those_of_pandas(data):
    cells = np.array(data.draw(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=1, max_size=6)))
    axis = data.draw(st.integers(0, 1))
    names = st.sampled_from(["b", "a", "c", None])
    groups = data.draw(st.lists(names, min_size=cells.shape[axis], max_size=cells.shape[axis]))
    assume(any(groups))
    tensor = bl.pack_dense(cells, data.draw(st.sampled_from(["CSR", "CSC", "COO", "bitmap(2)"])))
    if data.draw(st.booleans()):
        bl.write(stored := {}, tensor)
        tensor = bl.open(stored)
    table = pd.DataFrame(cells if axis == 0 else cells.T).groupby(np.array(groups, object))
    made = bl.groupby(tensor, axis, groups)
    for how in ("sum", "mean"):
        expected = getattr(table, how)()
        found = getattr(made, how)()
        np.testing.assert_allclose(found.to_dense() if axis == 0 else found.to_dense().T, expected)
        assert found.labels(axis).tolist() == expected.index.tolist()


@given(data=st.data())
def test_extremes_of_groups_are_those_of_their_coordinates(data):
    """For every format, type and fill value, in memory, through views and from files that are read in parts."""
    tensor = data.draw(testing.tensors(kinds=tuple(LEVELS.values()), max_rank=3))
    assume(tensor.ndim)
    k, how = data.draw(st.integers(0, tensor.ndim - 1)), data.draw(st.sampled_from(["min", "max"]))
    array, memory = tensor.to_dense(), None
    if data.draw(st.booleans()):
        bl.write(stored := {}, tensor)
        tensor, memory = bl.open(stored), data.draw(st.sampled_from([None, 600]))
    if data.draw(st.booleans()):
        key = tuple(slice(None, None, data.draw(st.sampled_from([1, -1, 2]))) for _ in array.shape)
        tensor, array = tensor[key], array[key]
    codes = data.draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=array.shape[k], max_size=array.shape[k]))
    labels, codes = np.unique(codes, return_inverse=True) if codes else (np.empty(0, int), np.empty(0, int))
    expected = [getattr(np, how)(array.compress(codes == g, k), axis=k) for g in range(len(labels))]
    format = data.draw(st.sampled_from([None, f"dense({tensor.ndim})"]))
    with nests(), np.errstate(all="ignore"):
        try:
            made = getattr(bl.groupby(tensor, k, labels[codes]), how)(format, memory=memory)
        except bl.LimitError:
            assert memory is not None
            return
    assert (made.dtype, made.labels(k).tolist()) == (tensor.dtype, labels.tolist())
    np.testing.assert_array_equal(made.fill_value, tensor.fill_value)
    shape = [len(labels) if d == k else n for d, n in enumerate(array.shape)]
    np.testing.assert_array_equal(made.to_dense(), np.stack(expected, k) if expected else np.empty(shape))


@pytest.mark.parametrize("fill", [0.0, 3.0, np.nan])
@pytest.mark.parametrize("axis", [0, 1])
def test_extremes_of_groups_in_parts_of_a_file(axis, fill):
    rng = np.random.default_rng(0)
    cells = np.where(rng.random((60, 50)) < 0.2, rng.integers(-9, 9, (60, 50)), fill)
    bl.write(stored := {}, bl.pack_dense(cells, "CSR", fill_value=fill))
    groups = np.arange(cells.shape[axis]) % 3
    made = bl.groupby(bl.open(stored), axis, groups).max(memory=4000)
    expected = np.stack([cells.compress(groups == g, axis).max(axis) for g in range(3)], axis)
    np.testing.assert_array_equal(made.to_dense(), expected)


def test_an_empty_group_has_no_extreme():
    days = np.array(["2026-01-30", "2026-03-01"], "M8[D]")
    tensor = bl.pack_dense(np.eye(2), "CSR", dims=["day", "place"], labels={"day": days})
    monthly = bl.resample(tensor, "day", "MS")
    with pytest.raises(ArrayError, match=r"2026-02-01.* has no coordinates, so no max; groupby makes"):
        monthly.max()
    found = bl.groupby(tensor, "day", days.astype("M8[M]").astype("M8[s]")).max()
    assert found.to_dense().tolist() == [[1, 0], [0, 1]]


def test_linear_operators_of_scipy():
    rng = np.random.default_rng(0)
    cells = rng.random((6, 5)) + 1j * (rng.random((6, 5)) < 0.5)
    tensor = bl.pack_dense(cells, "CSR")
    operator = scipy.sparse.linalg.aslinearoperator(tensor)
    np.testing.assert_allclose(operator @ np.arange(5), cells @ np.arange(5))
    np.testing.assert_allclose(operator.H @ np.arange(6), cells.conj().T @ np.arange(6))
    found = scipy.sparse.linalg.svds(tensor, k=2, random_state=0)[1]
    np.testing.assert_allclose(sorted(found), np.linalg.svd(cells)[1][1::-1])


def test_equality_within_a_tolerance():
    tensor = bl.pack_dense(np.eye(3), "CSR")
    near = tensor * (1 + 1e-9)
    assert not tensor.equals(near)
    assert tensor.equals(near, rtol=1e-6)
    assert tensor.equals(near.convert("COO"), atol=1e-6)
    assert not tensor.equals(tensor[:2], rtol=1)
    assert not tensor.equals(tensor * 2, rtol=1e-3)
    with pytest.raises(OptionError):
        np.round(tensor, out=tensor)
