"""Reductions along dimensions: sums, extremes, means and variances of what is stored and of the fill value."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..engine.tree import Tree
from ..errors import ArrayError, LimitError, OptionError, Problem, within_memory
from ..levels.base import Level
from ..levels.positions import Array
from ..limits import DEFAULT_LIMITS, INT64_MAX, Limits
from ..tensors.foreign import as_tensor
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_dimension
from .nest import Leaf, known_before
from .store import compiled
from .types import check_numeric, checked_result, common_type, sum_type
from .walk import blocks, checked_memory, run, run_in_parts, walkable

Axis: TypeAlias = int | Sequence[int] | None
Cells: TypeAlias = Literal["all", "stored"]
Sums: TypeAlias = dict[str, Array]

# What is kept of the entries of each cell of a result, for each reduction. A total is a sum in floating point.
_KEPT = {
    "sum": ("sum",),
    "count": ("count",),
    "min": ("min",),
    "max": ("max",),
    "any": ("nonzero",),
    "all": ("nonzero",),
    "mean": ("total",),
    "var": ("count", "total"),
    "std": ("count", "total"),
    "norm": ("squares",),
}


class Statistics(NamedTuple):
    """What `statistics` returns: an array for each reduction.

    >>> statistics(pack_dense(np.eye(2), "CSR"), 0).mean.tolist()
    [0.5, 0.5]
    """

    count: Any
    sum: Any
    mean: Any
    var: Any
    std: Any
    min: Any
    max: Any
    norm: Any


@within_memory
def reduce(
    tensor: Tensor,
    axis: Axis = None,
    how: str = "sum",
    *,
    cells: Cells = "all",
    dtype: npt.DTypeLike | None = None,
    memory: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Any:
    """Reduce dimensions, as numpy's functions of the same names reduce the dense array.

    Cells that are not stored have the fill value, or zero if there is none. `count` is the number of stored entries.
    Both triangles of a structure take part. The entries of a tensor in a file are read in blocks.

    Sums of integers and booleans have 64 bits, those of floats at least the precision of float64. Results do not depend
    on the number of threads.

    Parameters
    ----------
    axis : the dimensions that are reduced: one, several, or None for all.
    how : "sum", "count", "min", "max", "any", "all", "mean", "var", "std" or "norm". A variance divides by the number
        of cells; a norm is the root of the sum of squares.
    cells : "all", or "stored" for the stored entries alone, whatever the fill value is. Of no entries, a mean, a
        variance and an extreme of floats are NaN.
    dtype : of the result, which is computed at least in this type.
    memory : bytes for the result and the blocks that are read from a file; by default 2**28.
    limits : `dense_bytes` is the most that the result takes.

    Raises
    ------
    OptionError, IndexError : the reduction or the dimension is unknown, or the type drops imaginary parts.
    ArrayError : the type is not computed with, or a cell has no minimum or maximum.
    LimitError : the result is larger than the limit, or than the memory.

    >>> tensor = pack([[0, 1, 1], [2, 0, 1]], [3.0, 4.0, 6.0], (2, 3), "CSR")
    >>> reduce(tensor, 0, "sum").tolist(), float(reduce(tensor, None, "mean"))
    ([4.0, 6.0, 3.0], 2.1666666666666665)
    >>> reduce(tensor, 1, "min").tolist(), reduce(tensor, 1, "min", cells="stored").tolist()
    ([0.0, 0.0], [3.0, 4.0])
    """
    if not isinstance(how, str) or how not in _KEPT:
        raise OptionError(Problem("how", f"{how!r:.40} is no reduction; choose one of {', '.join(_KEPT)}"))
    return _reduced(as_tensor(tensor, copy=False), axis, (how,), cells, dtype, memory, limits)[0]


@within_memory
def statistics(
    tensor: Tensor,
    axis: Axis = None,
    *,
    cells: Cells = "all",
    memory: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Statistics:
    """Count, sum, mean, variance, standard deviation, extremes and norm along dimensions; a file is read once.

    Parameters
    ----------
    axis : the dimensions that are reduced: one, several, or None for all.
    cells : "all", or "stored" for the stored entries alone; see `reduce`. `count` is that of the stored entries.
    memory : bytes for the results and the blocks that are read from a file; by default 2**28.
    limits : `dense_bytes` is the most that the results take.

    Raises
    ------
    IndexError, ArrayError, LimitError : as `reduce` raises them.

    >>> found = statistics(pack([[0, 1, 1], [2, 0, 1]], [3.0, 4.0, 6.0], (2, 3), "CSR"), 1)
    >>> found.max.tolist(), found.count.tolist()
    ([3.0, 6.0], [1, 2])
    """
    return Statistics(*_reduced(as_tensor(tensor, copy=False), axis, Statistics._fields, cells, None, memory, limits))


def _reduced(
    tensor: Tensor, axis: Axis, wanted: Sequence[str], cells: Cells, dtype: Any, memory: int | None, limits: Limits
) -> list[Any]:
    if cells not in ("all", "stored"):
        raise OptionError(Problem("cells", f"{cells!r:.40} is no choice of cells; pass 'all' or 'stored'"))
    check_numeric(tensor.dtype, "values")
    reduced = _checked_axes(axis, tensor.ndim)
    kept = tuple(k for k in range(tensor.ndim) if k not in reduced)
    shape = tuple(tensor.shape[k] for k in kept)
    number = math.prod(tensor.shape[k] for k in reduced)
    result = checked_result(dtype, tensor.dtype)
    zero = tensor.dtype.type(0) if tensor.fill_value is None else tensor.fill_value
    fill = zero if cells == "all" else None
    needed = {name for how in wanted for name in _KEPT[how]}
    if tensor.dtype.kind in "fc" and "total" in needed:  # the sum is one
        needed = needed - {"total"} | {"sum"}
    if fill is None or fill != 0 or not needed <= {"sum", "total", "squares"}:
        needed.add("count")
    names = tuple(sorted(needed))
    spread = bool({"var", "std"} & set(wanted))
    limits.hold("dense_bytes", 8 * math.prod(shape) * (len(names) + spread), "axis", "the size in bytes of the result")
    sums = _summed(tensor, kept, shape, names, spread, result, checked_memory(memory))
    return [_finished(how, sums, tensor.dtype, fill, number, shape, dtype, result) for how in wanted]


def _checked_axes(axis: Axis, ndim: int) -> set[int]:
    if axis is None:
        return set(range(ndim))
    given: list[Any] = list(axis) if isinstance(axis, Sequence | np.ndarray) else [axis]
    found = [checked_dimension(k, ndim) for k in given]
    if len(set(found)) != len(found):
        raise OptionError(Problem("axis", f"{given!r:.60} names a dimension twice; name each once"))
    return set(found)


def _summed(
    tensor: Tensor, kept: tuple[int, ...], shape: tuple[int, ...], names: tuple[str, ...], spread: bool,
    result: np.dtype[Any], memory: int,
) -> Sums:  # fmt: skip
    """What is kept of the entries of each cell. spread: also the sum of squared distances from the mean."""
    kinds = {name: _type_of(name, tensor.dtype, result) for name in names}
    used = sum(kind.itemsize for kind in kinds.values()) * math.prod(shape) * (3 if spread else 1)
    read = blocks(tensor, memory, used)
    if read is None:
        whole = walkable(tensor)
        return _of_tree(whole._tree, whole.format.order, kept, shape, kinds, spread, None)
    found: Sums | None = None
    every = tuple(range(tensor.ndim))
    for block in read:
        found = _of_tree(block, every, kept, shape, kinds, spread, found)
    return _empty(shape, kinds, spread) if found is None else found


def _of_tree(
    tree: Tree, order: tuple[int, ...], kept: tuple[int, ...], shape: tuple[int, ...], kinds: dict[str, np.dtype[Any]],
    spread: bool, before: Sums | None,
) -> Sums:  # fmt: skip
    """The sums of a tree, and of those before it, which change."""
    names = tuple(kinds)
    places = tuple(order.index(k) for k in kept)
    sums = _empty(shape, kinds, spread) if before is None or spread else before
    outs = tuple(sums[name] for name in names)
    leaf = _leaf(tree.levels, places, tuple((name, kinds[name].name, tree.values.dtype.kind) for name in names))
    shared = 0 in places
    size = len(names) * math.prod(shape)
    nest = compiled(tree.levels, leaf, tree.iso)
    if before is None:
        outs = run_in_parts(tree, nest, (), outs, size, None if shared else functools.partial(_merged, names))
    else:
        run(tree, nest, outs)
    sums = dict(zip(names, outs, strict=True))
    if not spread:
        return sums
    with np.errstate(all="ignore"):
        mean = np.asarray(_total(sums) / sums["count"])
    leaf = _deviations(tree.levels, places, mean.dtype.kind)
    out = (np.zeros(shape or 1),)
    nest = compiled(tree.levels, leaf, tree.iso)
    (sums["spread"],) = run_in_parts(
        tree, nest, (mean,), out, out[0].size, None if shared else functools.partial(_merged, ("sum",))
    )
    return sums if before is None else _joined(before, sums, names)


def _type_of(name: str, dtype: np.dtype[Any], result: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which one number is kept."""
    if name in ("count", "nonzero"):
        return np.dtype(np.int64)
    if name in ("squares", "total"):
        return np.dtype(np.float64)
    if name == "sum":
        return common_type(sum_type(dtype), sum_type(result))
    return {"b": np.dtype(np.uint8), "f": np.promote_types(dtype, np.float32)}.get(dtype.kind, dtype)


def _neutral(name: str, dtype: np.dtype[Any]) -> Any:
    if name not in ("min", "max"):
        return 0
    if dtype.kind in "iu":
        return np.iinfo(dtype).max if name == "min" else np.iinfo(dtype).min
    end = np.inf if name == "min" else -np.inf
    return complex(end, end) if dtype.kind == "c" else end


def _empty(shape: tuple[int, ...], kinds: dict[str, np.dtype[Any]], spread: bool) -> Sums:
    found = {name: np.full(shape or 1, _neutral(name, dtype), dtype) for name, dtype in kinds.items()}
    return found | ({"spread": np.zeros(shape or 1)} if spread else {})


_MERGES: dict[str, Callable[..., Any]] = {"min": np.minimum, "max": np.maximum}


def _merged(names: Sequence[str], a: Sequence[Array], b: Sequence[Array]) -> tuple[Array, ...]:
    with np.errstate(invalid="ignore", over="ignore"):
        return tuple(_MERGES.get(name, np.add)(x, y, out=x) for name, x, y in zip(names, a, b, strict=True))


def _squared(x: Any) -> Any:
    return x.real**2 + x.imag**2


def _total(sums: Sums) -> Array:
    return sums["total"] if "total" in sums else sums["sum"]


def _joined(a: Sums, b: Sums, names: Sequence[str]) -> Sums:
    """The sums of two lists of entries. Their spreads are joined by the formula of Chan, Golub and LeVeque."""
    with np.errstate(all="ignore"):
        apart = _total(b) / b["count"] - _total(a) / a["count"]
        share = a["count"] * (b["count"] / (a["count"] + b["count"]))
        between = np.where((a["count"] > 0) & (b["count"] > 0), _squared(apart) * share, 0)
    joined = _merged(names, [a[name] for name in names], [b[name] for name in names])
    return dict(zip(names, joined, strict=True)) | {"spread": a["spread"] + b["spread"] + between}


@functools.lru_cache(1024)
def _leaf(levels: tuple[Level, ...], kept: tuple[int, ...], kinds: tuple[tuple[str, str, str], ...]) -> Leaf:
    """The leaf that keeps some numbers. kept: the stored dimensions of the results. kinds: names, their types, and the
    kind of the values.
    """
    known = known_before(levels, frozenset(kept))
    at = f"[{', '.join(f'x{k}' for k in kept) or '0'}]"
    local = known is not None
    lines = []
    for name, dtype, kind in kinds:
        total = f"s_{name}" if local else f"out_{name}{at}"
        lines.append(_STEPS[name](total, f"np.{dtype}(value)", kind))
    names = tuple(f"out_{name}" for name, *_ in kinds)
    if known is None:
        return Leaf(names, "\n".join(lines))
    before = "\n".join(f"s_{name} = out_{name}{at}" for name, *_ in kinds)
    after = "\n".join(f"out_{name}{at} = s_{name}" for name, *_ in kinds)
    return Leaf(names, "\n".join(lines), known, before, after)


def _extreme(sign: str, total: str, value: str, kind: str) -> str:
    """NaN wins, as in numpy. Complex numbers are compared by real part, then imaginary part."""
    behind = f"{value} {sign} {total}"
    if kind == "c":
        real, imaginary = ((f"({value}).{part}", f"{total}.{part}") for part in ("real", "imag"))
        equal = f"{real[0]} == {real[1]} and {imaginary[0]} {sign} {imaginary[1]}"
        behind = f"{total} == {total} and ({real[0]} {sign} {real[1]} or ({equal}))"
    nan = f" or {value} != {value}" if kind in "fc" else ""
    return f"if {behind}{nan}:\n    {total} = {value}"


def _square(value: str, kind: str) -> str:
    return f"({value}).real ** 2 + ({value}).imag ** 2" if kind == "c" else f"np.float64({value}) ** 2"


# The statement that adds a value, given the text of a total and of the value, and the kind of the value's type.
_STEPS: dict[str, Callable[[str, str, str], str]] = {
    "count": lambda total, value, kind: f"{total} += 1",
    "sum": lambda total, value, kind: f"{total} += {value}",
    "total": lambda total, value, kind: f"{total} += {value}",
    "squares": lambda total, value, kind: f"{total} += {_square('value', kind)}",
    "nonzero": lambda total, value, kind: f"{total} += value != 0",
    "min": functools.partial(_extreme, "<"),
    "max": functools.partial(_extreme, ">"),
}


@functools.lru_cache(1024)
def _deviations(levels: tuple[Level, ...], kept: tuple[int, ...], kind: str) -> Leaf:
    """The leaf that adds squared distances from the mean of each cell."""
    at = f"[{', '.join(f'x{k}' for k in kept) or '0'}]"
    step = "apart = value - m\n{} += " + _square("apart", kind)
    known = known_before(levels, frozenset(kept))
    if known is None:
        return Leaf(("mean", "out"), f"m = mean{at}\n{step.format('out' + at)}")
    return Leaf(("mean", "out"), step.format("s"), known, f"m = mean{at}\ns = out{at}", f"out{at} = s")


def _finished(
    how: str, sums: Sums, values: np.dtype[Any], fill: Any, cells: int, shape: tuple[int, ...], dtype: Any,
    result: np.dtype[Any],
) -> Any:  # fmt: skip
    """A reduction of all cells, of which the sums know the stored ones. fill: of the others; None leaves them out."""
    count = sums.get("count")
    if fill is not None and count is not None and how != "count" and cells > INT64_MAX:
        raise LimitError(Problem("axis", f"{cells} cells are more than an integer counts; reduce fewer dimensions"))
    rest: Any = 0 if fill is None or count is None or how == "count" else cells - count
    number: Any = count if fill is None else cells
    with np.errstate(all="ignore"):
        if how == "count":
            found: Any = count
        elif how in ("sum", "mean"):
            found = _with_fill(sums["sum"] if how == "sum" else _total(sums), fill, rest)
            found = found / number if how == "mean" else found
        elif how == "norm":
            square = None if fill is None else _squared(fill.astype(np.result_type(fill, np.float64)))
            found = np.sqrt(_with_fill(sums["squares"], square, rest))
        elif how in ("any", "all"):
            nonzero = sums["nonzero"] + (rest if fill is not None and fill != 0 else 0)
            found = nonzero > 0 if how == "any" else nonzero == number
        elif how in ("min", "max"):
            found = _extreme_of(how, sums, fill, rest, number, values)
        else:
            found = _variance(sums, fill, rest, number)
            found = np.sqrt(found) if how == "std" else found
    if dtype is not None and found.dtype.kind == "c" != result.kind:
        raise OptionError(Problem("dtype", f"the {how} is complex, and {result} is not; take a complex type"))
    kept = result if dtype is not None else found.dtype
    found = found.reshape(shape).astype(kept, copy=False)
    return found if shape else found[()]


def _with_fill(total: Array, fill: Any, rest: Any) -> Array:
    """The total and so many fill values. None of an infinite one is 0, not NaN."""
    if fill is None or (fill == 0 and not np.ndim(rest)):
        return total
    added: Array = np.zeros(np.broadcast_shapes(total.shape, np.shape(rest)), total.dtype)
    if total.dtype.kind == "c":  # part by part: a product of complex numbers makes NaN of an infinite part
        added.real, added.imag = fill.real * rest, fill.imag * rest
    else:
        added[...] = np.asarray(fill).astype(total.dtype) * np.asarray(rest).astype(total.dtype)
    return total + np.where(rest == 0, total.dtype.type(0), added)


def _extreme_of(how: str, sums: Sums, fill: Any, rest: Any, number: Any, dtype: np.dtype[Any]) -> Array:
    found: Array = sums[how].astype(dtype)
    if fill is not None:
        found = np.where(rest > 0, _MERGES[how](found, fill), found)
    (empty,) = np.nonzero(np.broadcast_to(number == 0, found.shape).ravel())
    if len(empty):
        if dtype.kind not in "fc" or fill is not None:
            what = f"cell {empty[0]} of the result has no {how}, since no cells take part; leave it out"
            raise ArrayError(Problem("axis", what))
        found.ravel()[empty] = np.nan
    return found


def _variance(sums: Sums, fill: Any, rest: Any, number: Any) -> Any:
    spread = sums["spread"]
    if fill is not None:
        count = sums["count"]
        mean = np.where(count > 0, _total(sums) / count, fill)
        between = _squared(mean - fill) * (count * (rest / number))
        spread = spread + np.where(rest > 0, between if np.isfinite(fill) else np.nan, 0)  # inf - inf is NaN
    return spread / number
