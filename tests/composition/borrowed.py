"""Ways through functions and methods that have the names of numpy and pandas."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import binsparse_levels as bl
from composition.functions import same_numbers
from composition.ways import way

NUMBERS = [np.dtype(x) for x in ("int8", "int16", "int32", "int64", "uint8", "float32", "float64")]
METHODS = {
    "argmax": lambda x: x.argmax(axis=-1),
    "argmin": lambda x: x.argmin(),
    "count_nonzero": lambda x: np.count_nonzero(x, axis=0),
    "take": lambda x: x.take([0, -1], axis=0),
    "transpose": lambda x: x.transpose(),
    "swapaxes": lambda x: x.swapaxes(0, -1),
    "squeeze": lambda x: x[:1].squeeze(),
    "clip": lambda x: x.clip(0, 1),
    "round": lambda x: x.round(1),
}
PRODUCTS = {
    "dot": lambda x: x.dot(np.ones(x.shape[-1])),
    "trace": lambda x: x.trace() if x.ndim == 2 else 0,
    "diagonal": lambda x: x.diagonal(1) if x.ndim == 2 else 0,
    "matvec": lambda x: (x.matvec if isinstance(x, bl.Tensor) else x.dot)(np.ones(x.shape[-1])) if x.ndim == 2 else 0,
    "rmatvec": lambda x: (
        (x.rmatvec if isinstance(x, bl.Tensor) else x.T.dot)(np.ones(x.shape[0])) if x.ndim == 2 else 0
    ),
}


def plain(model):
    """Whether all cells are finite numbers, of which there is one at least."""
    return model.dtype in NUMBERS and model.shape and 0 not in model.shape and np.isfinite(model.dense).all()


@way("Tensor.sizes", *(f"Tensor.{name}" for name in {**METHODS, **PRODUCTS}))
def borrowed(tensor, model, draw, folder):
    assert tuple(tensor.sizes.values()) == tensor.shape
    if plain(model):
        known = METHODS if model.fill else {**METHODS, **PRODUCTS}
        call = known[draw(st.sampled_from(sorted(known)))]
        got, expected = call(tensor), call(model.dense)
        same_numbers(got.to_dense() if isinstance(got, bl.Tensor) else got, expected, np.asarray(expected).dtype)


@way("groupby", "resample", "Groups")
def grouped(tensor, model, draw, folder):
    if not plain(model):
        return
    k = draw(st.sampled_from(range(len(model.shape))))
    size = model.shape[k]
    if draw(st.booleans()):
        groups = np.arange(size) % 3
        made = bl.groupby(tensor, k, groups)
    else:
        days = np.arange(size).astype("M8[D]")
        groups = days.astype("M8[M]").astype(int)
        made = bl.resample(tensor.with_labels({k: days}), k, "MS")
    extremes = [model.dense.compress(groups == g, k).max(k) for g in range(groups.max() + 1)]
    same_numbers(made.max().to_dense(), np.stack(extremes, k), model.dtype)
    if model.fill:
        return
    expected = np.zeros([groups.max() + 1 if d == k else n for d, n in enumerate(model.shape)], made.sum().dtype)
    np.add.at(np.moveaxis(expected, k, 0), groups, np.moveaxis(model.dense, k, 0))
    same_numbers(made.sum().to_dense(), expected, model.dtype)
