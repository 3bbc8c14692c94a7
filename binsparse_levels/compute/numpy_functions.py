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
from ..errors import ArrayError, OptionError, Problem, within_memory
from ..formats.format import coordinates
from ..levels.positions import Array
from ..tensors.changing import expanded, in_order
from ..tensors.contents import dimension_of
from ..tensors.names import dense_call
from ..tensors.packing import pack
from ..tensors.tensor import Tensor, inside, remade
from .arithmetic import of_cells
from .numpy_shapes import SHAPES, along
from .products import LETTERS, einsum
from .reducing import reduce

_OUT = "a tensor is immutable; assign the result, such as a = numpy.round(a)"

# Each cell alone


def _by_cell(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """A function of numpy of each cell, whose other arguments are numbers."""

    @functools.wraps(function)
    def called(a: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if kwargs.pop("out", None) is not None:
            raise OptionError(Problem("out", _OUT))
        for given in (*args, *kwargs.values()):
            if np.ndim(given):
                use = dense_call(f"numpy.{function.__name__}", (a, *args), kwargs)
                raise OptionError(Problem("operands", f"arguments next to a Tensor are numbers here; use {use}"))
        return of_cells(_named(lambda x: function(x, *args, **kwargs), function.__name__), a)

    return called


def _named(function: Callable[..., Any], name: str) -> Any:
    function.__name__ = name
    return function


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """`numpy.where`; each operand that is no tensor is a number, or an array next to one tensor."""
    if x is None and y is None:
        return nonzero(condition)
    operands = condition, x, y
    stored = [k for k, operand in enumerate(operands) if isinstance(operand, Tensor)]
    if len(stored) > 2:
        zero = np.zeros((), np.result_type(x.dtype, y.dtype))[()]
        return of_cells(np.add, where(condition, x, zero), where(condition, zero, y))

    def chosen(*cells: Any) -> Any:
        parts = iter(cells)
        return np.where(*[next(parts) if np.ndim(x) or isinstance(x, Tensor) else x for x in operands])

    given = [x for x in operands if np.ndim(x) or isinstance(x, Tensor)]
    return of_cells(_named(chosen, "where"), *given)


def clip(
    a: Tensor, a_min: Any = None, a_max: Any = None, out: None = None, *, min: Any = None, max: Any = None
) -> Tensor:
    """`numpy.clip`."""
    if out is not None:
        raise OptionError(Problem("out", _OUT))
    low, high = min if a_min is None else a_min, max if a_max is None else a_max
    made = a if low is None else np.maximum(a, low)
    return made if high is None else np.minimum(made, high)


def isin(element: Tensor, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """`numpy.isin`."""
    return of_cells(_named(lambda x: np.isin(x, test_elements, assume_unique, invert), "isin"), element)


def full_like(a: Tensor, fill_value: Any, dtype: Any = None) -> Tensor:
    """`numpy.full_like`: the fill value alone, with the names and labels of the tensor."""
    fill = np.full(1, fill_value, a.dtype if dtype is None else dtype)
    empty = pack([np.empty(0, np.int64)] * a.ndim, fill[:0], a.shape, coordinates(a.ndim), fill_value=fill[0])
    return remade(a, inside(empty).backing, fill_value=empty.fill_value)


def _of_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numpy of the types of its arguments."""

    def called(*args: Any) -> Any:
        return function(*[np.empty(0, x.dtype) if isinstance(x, Tensor) else x for x in args])

    return called


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


# Cells that differ from zero, and different values


def nonzero(a: Tensor) -> tuple[Array, ...]:
    """`numpy.nonzero`: coordinates in row-major order, without those of stored zeros."""
    if inside(a).pad:
        return np.nonzero(a.to_dense())
    coords, values = in_order(a)
    there = values != 0
    return tuple(x[there] for x in coords)


def argwhere(a: Tensor) -> Array:
    """`numpy.argwhere`."""
    return np.transpose(nonzero(a))


def flatnonzero(a: Tensor) -> Array:
    """`numpy.flatnonzero`."""
    return np.ravel_multi_index(nonzero(a), a.shape)


def unique(ar: Tensor) -> Array:
    """`numpy.unique` of all cells, without its options."""
    _, values = expanded(ar.load()).unpack()
    return np.unique(np.append(values, np.full(int(len(values) < ar.size), inside(ar).pad, values.dtype)))


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


def ptp(a: Tensor, axis: Any = None, *, keepdims: bool = False) -> Any:
    """`numpy.ptp`."""
    return reduce(a, axis, "max", keepdims=keepdims) - reduce(a, axis, "min", keepdims=keepdims)


# For reductions without NaN: what replaces it.
_NEUTRAL = {"sum": 0, "mean": 0, "prod": 1, "min": math.inf, "argmin": math.inf, "max": -math.inf, "argmax": -math.inf}


def _without_nan(how: str) -> Callable[..., Any]:
    """`numpy.nansum` and so on, with the options of `reduce`."""
    whole = _extreme_at(how[3:]) if how[:3] == "arg" else functools.partial(reduce, how=how)

    def reduced(a: Tensor, axis: Any = None, *, keepdims: bool = False, **options: Any) -> Any:
        if a.dtype.kind not in "fc":
            return whole(a, axis, keepdims=keepdims, **options)
        there = reduce(of_cells(lambda x: ~np.isnan(x), a), axis, "sum", keepdims=keepdims)
        filled = of_cells(lambda x: np.where(np.isnan(x), _NEUTRAL[how], x), a)
        if how == "mean":
            with np.errstate(invalid="ignore"):
                return reduce(filled, axis, keepdims=keepdims, **options) / there
        made = whole(filled, axis, keepdims=keepdims, **options)
        if how in ("sum", "prod") or np.all(there):
            return made
        if how[:3] == "arg":
            raise ArrayError(Problem("a", f"all cells along the axis are NaN, without a nan{how}; select others"))
        return made + np.where(there, 0, math.nan).astype(a.dtype)

    return reduced


def _spread_without_nan(how: str) -> Callable[..., Any]:
    """`numpy.nanvar` or `numpy.nanstd`: the squared distances of stored entries and of the fill value from the mean."""

    def reduced(a: Tensor, axis: Any = None, *, keepdims: bool = False, ddof: float = 0, **options: Any) -> Any:
        if a.dtype.kind not in "fc" or options.get("format") is not None:
            return reduce(a, axis, how, keepdims=keepdims, ddof=ddof, **options)
        dtype, pad, whole = options.pop("dtype", None), inside(a).pad, expanded(a.load())
        there = reduce(of_cells(lambda x: ~np.isnan(x), whole), axis, "sum", keepdims=keepdims, **options)
        mean = _without_nan("mean")(whole, axis, keepdims=True)
        stored = remade(whole, fill_value=a.dtype.type(math.nan))
        squares = of_cells(_named(lambda x, m: np.where(np.isnan(x), 0, np.abs(x - m) ** 2), how), stored, mean)
        others = a.size // max(np.size(mean), 1) - reduce(whole, axis, "count", keepdims=True)
        with np.errstate(all="ignore"):
            rest = np.where((others > 0) & ~np.isnan(pad), others * np.abs(pad - mean) ** 2, 0)
            total = reduce(squares, axis, "sum", keepdims=True) + rest
            made = total.reshape(np.shape(there)) / (there - ddof) + 0 / (there > ddof)  # NaN for too few cells
            made = np.sqrt(made) if how == "std" else made
        return made if dtype is None else made.astype(dtype)

    return reduced


def cov(m: Tensor, *, rowvar: bool = True, bias: bool = False, ddof: int | None = None) -> Any:
    """`numpy.cov` without weights. Covariances that are far smaller than products of the means lose digits."""
    if m.ndim > 2:
        raise ArrayError(Problem("m", f"numpy.cov takes two dimensions at most, got {m.ndim}; slice it"))
    whole = m[None] if m.ndim < 2 else m if rowvar else m.T
    shifted = of_cells(np.subtract, whole.astype(np.result_type(m.dtype, np.float64)), inside(m).pad)
    size, means = whole.shape[1], shifted.mean(1)
    made = (shifted @ of_cells(np.conjugate, shifted.T)).to_dense() - size * np.outer(means, means.conj())
    spread = shifted.var(1)  # this is 0 for a row of equal cells, where the difference of products is a rounding error
    np.fill_diagonal(made, spread * size)
    constant = (spread == 0)[:, None] | (spread == 0)
    made[constant & np.isfinite(made)] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        made = made * np.true_divide(1, max(size - (ddof if ddof is not None else not bias), 0))
    return np.squeeze(made)


def corrcoef(x: Tensor, *, rowvar: bool = True) -> Any:
    """`numpy.corrcoef`."""
    made = cov(x, rowvar=rowvar)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(np.diagonal(made).real) if made.ndim else np.sqrt(made.real)
        made = made / np.multiply.outer(spread, spread)
    if made.dtype.kind == "c":
        return np.clip(made.real, -1, 1) + 1j * np.clip(made.imag, -1, 1)
    return np.clip(made, -1, 1)


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
    use = f"{dense_call('numpy.linalg.norm', (x, ord), {})}  # or scipy.sparse.linalg.svds(tensor)"
    raise OptionError(Problem("ord", f"no norm of this order along {len(axes)} dimensions; use {use}"))


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


def diagonal(a: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """`numpy.diagonal`, as an array."""
    one, two = dimension_of(a, axis1), dimension_of(a, axis2)
    if one == two:
        raise ArrayError(Problem("axis1", "is the dimension axis2; pass another one"))
    rows, columns = max(-offset, 0), max(offset, 0)
    n = max(min(a.shape[one] - rows, a.shape[two] - columns), 0)
    if a.ndim == 2:
        at = np.arange(n) + rows, np.arange(n) + columns
        return a[at if one == 0 else at[::-1]]
    part = along(along(a, one, slice(rows, rows + n)), two, slice(columns, columns + n))
    letters = list(LETTERS[: a.ndim])
    letters[two] = letters[one]
    rest = "".join(x for k, x in enumerate(letters) if k not in (one, two))
    made = einsum(f"{''.join(letters)}->{rest}{letters[one]}", part.with_labels({one: None, two: None}))
    return made.to_dense() if isinstance(made, Tensor) else made


def trace(a: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """`numpy.trace`."""
    return diagonal(a, offset, axis1, axis2).sum(-1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **SHAPES,
    **{name: _by_cell(getattr(np, name)) for name in ("round", "around", "real", "imag", "angle", "nan_to_num")},
    **{
        made.__name__: made
        for made in (where, clip, isin, isclose, allclose, array_equal, nonzero, argwhere, flatnonzero)
    },
    **{made.__name__: made for made in (unique, full_like, count_nonzero, ptp, norm, cov, corrcoef)},
    **{made.__name__: made for made in (vdot, inner, outer, tensordot, diagonal, trace)},
    **{f"nan{how}": _without_nan(how) for how in _NEUTRAL},
    **{f"nan{how}": _spread_without_nan(how) for how in ("var", "std")},
    **{name: _of_types(getattr(np, name)) for name in ("result_type", "can_cast", "iscomplexobj", "isrealobj")},
    "zeros_like": lambda a, dtype=None: full_like(a, 0, dtype),
    "ones_like": lambda a, dtype=None: full_like(a, 1, dtype),
    "argmax": _extreme_at("max"),
    "argmin": _extreme_at("min"),
    "einsum": product_of,
    "dot": _dot,
}


@within_memory
def numpy_function(name: str, args: Sequence[Any], kwargs: Any) -> Any:
    """A function of numpy by its name, for arguments with a Tensor; NotImplemented if it is not in FUNCTIONS."""
    return FUNCTIONS[name](*args, **kwargs) if name in FUNCTIONS else NotImplemented
