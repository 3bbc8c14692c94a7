"""Functions of numpy for tensors, with numpy's parameters, made of reductions, products and selections.

A function that is not in FUNCTIONS is refused: see `Tensor.__array_function__`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..engine.tree import alike
from ..errors import ArrayError, FormatError, OptionError, Problem, within_memory
from ..formats.format import coordinates
from ..levels.positions import Array
from ..tensors.changing import expanded, with_entries
from ..tensors.contents import dimension_of
from ..tensors.foreign import as_tensor
from ..tensors.late_imports import late_import
from ..tensors.tensor import Tensor, inside
from .arithmetic import of_cells
from .products import LETTERS, einsum
from .reducing import reduce

# Each cell alone


def _by_cell(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """A function of numpy of each cell, whose other arguments are numbers."""

    @functools.wraps(function)
    def called(a: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if kwargs.pop("out", None) is not None:
            raise OptionError(Problem("out", "a tensor is immutable; assign the result, such as a = numpy.round(a)"))
        for given in (*args, *kwargs.values()):
            if np.ndim(given):
                what = f"numpy.{function.__name__} of a Tensor takes numbers here, got {type(given).__name__}"
                raise OptionError(Problem("operands", f"{what}; call numpy.minimum and numpy.maximum, or to_dense()"))
        return of_cells(_named(lambda x: function(x, *args, **kwargs), function.__name__), a)

    return called


def _named(function: Callable[..., Any], name: str) -> Any:
    function.__name__ = name
    return function


def where(condition: Any, x: Any, y: Any) -> Tensor:
    """`numpy.where` of one or two tensors; every other operand is a number, or an array next to one tensor."""
    operands = condition, x, y
    stored = [k for k, operand in enumerate(operands) if isinstance(operand, Tensor)]
    if len(stored) > 2:
        what = "numpy.where takes two Tensors; add numpy.where(c, x, 0) and numpy.where(c, 0, y)"
        raise OptionError(Problem("operands", what))

    def chosen(*cells: Any) -> Any:
        parts = iter(cells)
        return np.where(*[next(parts) if np.ndim(x) or isinstance(x, Tensor) else x for x in operands])

    given = [x for x in operands if np.ndim(x) or isinstance(x, Tensor)]
    return of_cells(_named(chosen, "where"), *given)


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """`numpy.isclose`."""

    def close(x: Any, y: Any) -> Any:
        return np.isclose(x, y, rtol, atol, equal_nan)

    return of_cells(_named(close, "isclose"), a, b)


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """`numpy.allclose`."""
    return bool(reduce(isclose(a, b, rtol, atol, equal_nan), None, "all"))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """`numpy.array_equal`."""
    if np.shape(a1) != np.shape(a2):
        return False
    return bool(reduce(isclose(a1, a2, 0, 0, True) if equal_nan else of_cells(np.equal, a1, a2), None, "all"))


# Reductions


def _extreme_at(how: str) -> Callable[..., Any]:
    """`numpy.argmax` or `numpy.argmin`: the first cell with the extreme, or the first NaN."""

    def found(a: Tensor, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Any:
        if out is not None:
            raise OptionError(Problem("out", "is not supported; assign the result"))
        extreme = reduce(a, axis, how)
        coords, values = expanded(a.load()).unpack()
        k = 0 if axis is None else dimension_of(a, axis)
        rest = [] if axis is None else [d for d in range(a.ndim) if d != k]
        size = a.size if axis is None else a.shape[k]
        if not size:
            raise ArrayError(Problem("axis", f"no cells, and so no {how}; leave out dimensions of size 0"))
        shape = [a.shape[d] for d in rest]
        own = np.ravel_multi_index(coords, a.shape) if axis is None and a.ndim else coords[k] if a.ndim else values * 0
        cells = np.ravel_multi_index([coords[d] for d in rest], shape) if rest else np.zeros(len(values), np.int64)
        at = _first(np.asarray(extreme).reshape(-1), cells, own.astype(np.int64), values, inside(a).pad, size)
        kept = [1] * a.ndim if axis is None else [1 if d == k else n for d, n in enumerate(a.shape)]
        return at.reshape(kept) if keepdims else at.reshape(shape) if rest else at[0]

    return found


def _first(extreme: Array, cells: Array, at: Array, values: Array, pad: Any, size: int) -> Array:
    """For each cell of a result, the first coordinate with the extreme. cells, at: of each stored value."""
    order = np.lexsort((at, cells))
    cells, at, values = cells[order], at[order], values[order]
    found = np.full(len(extreme), size)
    best = alike(values, extreme[cells])
    np.minimum.at(found, cells[best], at[best])
    unstored = np.bincount(cells, minlength=len(extreme))  # the first coordinate that is not stored
    rank = np.arange(len(cells)) - (np.cumsum(unstored) - unstored)[cells]
    np.minimum.at(unstored, cells[at != rank], rank[at != rank])
    pads = alike(np.full(len(extreme), pad), extreme) & (unstored < size)
    return np.where(pads, np.minimum(found, unstored), found)


def count_nonzero(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Any:
    """`numpy.count_nonzero`."""
    return reduce(of_cells(np.not_equal, a, 0), axis, "sum", keepdims=keepdims)


def norm(x: Tensor, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """`numpy.linalg.norm` for vectors, and for matrices without those of singular values."""
    x = x if x.dtype.kind in "fc" else x.astype(np.float64)
    axes = list(range(x.ndim)) if axis is None else list(axis) if np.ndim(axis) else [axis]
    if ord is None or (ord == 2 and len(axes) == 1) or (ord == "fro" and len(axes) == 2):
        return reduce(x, axis, "norm", keepdims=keepdims)
    extreme = {math.inf: "max", -math.inf: "min"}.get(ord)
    if len(axes) == 1 and (extreme or ord in (0, 1)):
        if not ord:
            return count_nonzero(x, axes[0], keepdims=keepdims).astype(np.float64)
        return reduce(of_cells(np.absolute, x), axes[0], extreme or "sum", keepdims=keepdims)
    if x.ndim == 2 and axis is None and ord in (1, -1, math.inf, -math.inf) and not keepdims:
        sums = reduce(of_cells(np.absolute, x), 0 if abs(ord) == 1 else 1, "sum")
        return sums.max(initial=0) if ord > 0 else sums.min()
    what = f"no norm of the order {ord!r:.20} along {len(axes)} dimensions; call scipy.sparse.linalg.svds(tensor)"
    raise OptionError(Problem("ord", f"{what} for singular values"))


# Selections


def transpose(a: Tensor, axes: Any = None) -> Tensor:
    """`numpy.transpose`."""
    return a.permute(range(a.ndim)[::-1] if axes is None else list(axes))


def swapaxes(a: Tensor, axis1: int, axis2: int) -> Tensor:
    """`numpy.swapaxes`."""
    order = list(range(a.ndim))
    k, other = dimension_of(a, axis1), dimension_of(a, axis2)
    order[k], order[other] = other, k
    return a.permute(order)


def moveaxis(a: Tensor, source: Any, destination: Any) -> Tensor:
    """`numpy.moveaxis`."""
    moved, places = ([dimension_of(a, x) for x in np.atleast_1d(given).tolist()] for given in (source, destination))
    order = [k for k in range(a.ndim) if k not in moved]
    for place, k in sorted(zip(places, moved, strict=True)):
        order.insert(place, k)
    return a.permute(order)


def _along(a: Tensor, k: int, index: Any) -> Tensor:
    part: Tensor = a[(slice(None),) * k + (index,)]
    return part


def squeeze(a: Tensor, axis: Any = None) -> Any:
    """`numpy.squeeze`."""
    given = [k for k, n in enumerate(a.shape) if n == 1] if axis is None else np.atleast_1d(axis).tolist()
    axes = {dimension_of(a, k) for k in given}
    for k in axes:
        if a.shape[k] != 1:
            raise ArrayError(Problem("axis", f"dimension {k} has the size {a.shape[k]}, not 1; leave it out"))
    return a[tuple(0 if k in axes else slice(None) for k in range(a.ndim))] if axes else a


def flip(m: Tensor, axis: Any = None) -> Tensor:
    """`numpy.flip`."""
    axes = {dimension_of(m, k) for k in (range(m.ndim) if axis is None else np.atleast_1d(axis).tolist())}
    return m[tuple(slice(None, None, -1 if k in axes else 1) for k in range(m.ndim))] if axes else m


def roll(a: Tensor, shift: int, axis: int) -> Tensor:
    """`numpy.roll` along one dimension. Labels move with their cells."""
    k = dimension_of(a, axis)
    return _along(a, k, (np.arange(a.shape[k]) - shift) % max(a.shape[k], 1))


def take(a: Tensor, indices: Any, axis: int) -> Any:
    """`numpy.take` along a dimension."""
    return _along(a, dimension_of(a, axis), indices)


def diff(a: Tensor, n: int = 1, axis: int = -1) -> Tensor:
    """`numpy.diff`. The dimension has no labels afterwards."""
    k = dimension_of(a, axis)
    made = a if a.dims is None else a.with_labels({k: None})
    for _ in range(n):
        made = of_cells(np.subtract, _along(made, k, slice(1, None)), _along(made, k, slice(None, -1)))
    return made


def _triangle(below: bool) -> Callable[..., Tensor]:
    """`numpy.tril` or `numpy.triu`. Cells of the other triangle are not stored."""

    def kept(m: Tensor, k: int = 0) -> Tensor:
        if inside(m).pad or m.ndim < 2:
            what = "needs two dimensions at least, and 0 in the cells that are not stored; call to_dense() first"
            raise FormatError(Problem("m", f"numpy.{'tril' if below else 'triu'} {what}"))
        whole = expanded(m.load())
        coords, values = whole.unpack()
        offsets = coords[-1] - coords[-2]
        there = offsets <= k if below else offsets >= k
        format = coordinates(m.ndim) if m.map is not None or whole.format.padded else whole.format
        return with_entries(whole, [x[there] for x in coords], values[there], format)

    return kept


def concatenate(arrays: Sequence[Any], axis: int | None = 0, *, dtype: Any = None) -> Tensor:
    """`numpy.concatenate` in memory. Labels along the axis are concatenated, others must be equal."""
    tensors = [as_tensor(x, copy=False) for x in arrays]
    if not tensors or axis is None:
        raise OptionError(Problem("axis", "expected tensors and a dimension along which they are concatenated"))
    common = np.result_type(*[x.dtype for x in tensors]) if dtype is None else np.dtype(dtype)
    stores: list[dict[str, Any]] = [{} for _ in tensors]
    for store, tensor in zip(stores, tensors, strict=True):
        late_import("write")(store, expanded(tensor if tensor.dtype == common else tensor.astype(common)))
    made: Tensor = late_import("open")(stores, axis=dimension_of(tensors[0], axis)).load()
    return made


def vstack(tup: Sequence[Any], *, dtype: Any = None) -> Tensor:
    """`numpy.vstack` of tensors with two dimensions at least."""
    if any(np.ndim(x) < 2 for x in tup):
        what = "numpy.vstack of a Tensor takes two dimensions at least; call numpy.concatenate"
        raise ArrayError(Problem("operands", what))
    return concatenate(tup, 0, dtype=dtype)


def hstack(tup: Sequence[Any], *, dtype: Any = None) -> Tensor:
    """`numpy.hstack`."""
    tensors = list(tup)
    return concatenate(tensors, 0 if all(np.ndim(x) == 1 for x in tensors) else 1, dtype=dtype)


# Products


def product_of(spec: str, *operands: Any, out: None = None, optimize: Any = False, dtype: Any = None) -> Any:
    """`numpy.einsum`, also without the letters of the result, and with an ellipsis. The order is from the left."""
    if out is not None or not isinstance(spec, str):
        raise OptionError(Problem("spec", "numpy.einsum of a Tensor takes a string, and no out; assign the result"))
    left, arrow, result = spec.replace(" ", "").partition("->")
    terms, free = left.split(","), [x for x in LETTERS if x not in spec]
    ranks = [np.ndim(x) - len(term.replace("...", "")) for term, x in zip(terms, operands, strict=False)]
    most = "".join(free[: max([rank for rank, term in zip(ranks, terms, strict=False) if "..." in term], default=0)])
    shared = [term.replace("...", most[len(most) - rank :]) for term, rank in zip(terms, ranks, strict=False)]
    once = [x for x in sorted(set("".join(shared)) - set(most)) if "".join(shared).count(x) == 1]
    result = result.replace("...", most) if arrow else most + "".join(once)
    return einsum(f"{','.join(shared)}->{result}", *operands, dtype=dtype)


def _dot(a: Any, b: Any) -> Any:
    """`numpy.dot` for numbers, vectors and matrices."""
    return a * b if 0 in (np.ndim(a), np.ndim(b)) else a @ b


def vdot(a: Any, b: Any) -> Any:
    """`numpy.vdot` of two operands of one shape."""
    letters = LETTERS[: np.ndim(a)]
    return einsum(f"{letters},{letters}->", np.conjugate(a), b)


def inner(a: Any, b: Any) -> Any:
    """`numpy.inner`."""
    own, others = LETTERS[: np.ndim(a) - 1], LETTERS[26 : 25 + np.ndim(b)]
    return _dot(a, b) if 0 in (np.ndim(a), np.ndim(b)) else einsum(f"{own}z,{others}z->{own}{others}", a, b)


def outer(a: Any, b: Any) -> Any:
    """`numpy.outer` of two vectors."""
    return einsum("i,j->ij", a, b)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """`numpy.tensordot`."""
    if isinstance(axes, int):
        axes = range(np.ndim(a) - axes, np.ndim(a)), range(axes)
    pairs = [
        [x % np.ndim(t) for x in np.atleast_1d(list(k) if np.iterable(k) else k).tolist()]
        for t, k in zip((a, b), axes, strict=True)
    ]
    own, others = list(LETTERS[: np.ndim(a)]), list(LETTERS[26 : 26 + np.ndim(b)])
    for k, other in zip(*pairs, strict=True):
        others[other] = own[k]
    kept = [x for k, x in enumerate(own) if k not in pairs[0]] + [x for k, x in enumerate(others) if k not in pairs[1]]
    return einsum(f"{''.join(own)},{''.join(others)}->{''.join(kept)}", a, b)


def diagonal(a: Tensor, offset: int = 0) -> Any:
    """`numpy.diagonal` of a matrix, as an array."""
    if a.ndim != 2:
        raise ArrayError(Problem("a", "numpy.diagonal takes a matrix; call einsum, such as 'iij->ij'"))
    rows, columns = max(-offset, 0), max(offset, 0)
    n = max(min(a.shape[0] - rows, a.shape[1] - columns), 0)
    at = np.arange(n)
    return a[at + rows, at + columns]


def trace(a: Tensor, offset: int = 0) -> Any:
    """`numpy.trace` of a matrix."""
    return diagonal(a, offset).sum()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _by_cell(getattr(np, name)) for name in ("round", "around", "clip", "real", "imag", "nan_to_num")},
    **{made.__name__: made for made in (where, isclose, allclose, array_equal, count_nonzero, norm, transpose)},
    **{made.__name__: made for made in (swapaxes, moveaxis, squeeze, flip, roll, take, diff, concatenate)},
    **{made.__name__: made for made in (vstack, hstack, vdot, inner, outer, tensordot, diagonal, trace)},
    "argmax": _extreme_at("max"),
    "argmin": _extreme_at("min"),
    "tril": _triangle(True),
    "triu": _triangle(False),
    "einsum": product_of,
    "dot": _dot,
}


@within_memory
def numpy_function(name: str, args: Sequence[Any], kwargs: Any) -> Any:
    """A function of numpy by its name, for arguments with a Tensor; NotImplemented if it is not in FUNCTIONS."""
    return FUNCTIONS[name](*args, **kwargs) if name in FUNCTIONS else NotImplemented
