"""Reductions along dimensions: sums, extremes, means and variances of what is stored and of the fill value.

What is kept of the entries of each cell of a result is a row of numbers. Cells that are not stored, the parts of a tree
and the blocks of a file are all the same: numbers of other cells, which are joined.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import ArrayError, LimitError, OptionError, Problem, within_memory
from ..levels.positions import Array
from ..limits import INT64_MAX, Limits
from ..tensors.foreign import as_tensor
from ..tensors.late_imports import late_import
from ..tensors.naming import Dimension, dimension_of
from ..tensors.tensor import Tensor
from .nest import Leaf
from .seeing import walks
from .types import checked_result, common_type, number_type, sum_type
from .walk import checked_memory, run

Axis: TypeAlias = Dimension | Sequence[Dimension] | None
Cells: TypeAlias = Literal["all", "stored"]


class Reduction(NamedTuple):
    """How values are reduced to a number.

    step: the statement that takes a `value` into the `total`, from the kind of the values' type. join: makes one total
    of two. repeat: the total of so many cells with the fill value. neutral: the total of no cells, from the type of the
    totals. dtype: that type, from those of the values and of the result. end: makes the result, of the totals and the
    number of cells. chosen: the result is one of the values; of no cells there is none. stored: cells that are not
    stored never take part. spread: the totals are those of a mean, and `end` gets the squared distances from it.
    """

    step: Callable[[str], str]
    join: Callable[..., Array]
    repeat: Callable[[Any, Array], Any]
    neutral: Callable[[np.dtype[Any]], Any] = lambda dtype: 0
    dtype: Callable[[np.dtype[Any], np.dtype[Any]], Any] = lambda values, result: common_type(
        sum_type(values), sum_type(result)
    )
    end: Callable[[Any, Any], Any] = lambda total, number: total
    chosen: bool = False
    stored: bool = False
    spread: bool = False


def _extreme(sign: str, join: Callable[..., Array], end: float) -> Reduction:
    """NaN wins, as in numpy. Complex numbers are compared by real part, then imaginary part."""

    def step(kind: str) -> str:
        if kind != "c":
            return f"total = value if value {sign} total or value != value else total"
        equal = f"value.real == total.real and value.imag {sign} total.imag"
        behind = f"total == total and (value.real {sign} total.real or ({equal}))"
        return f"if {behind} or value != value:\n    total = value"

    def neutral(dtype: np.dtype[Any]) -> Any:
        if dtype.kind in "iu":
            return np.iinfo(dtype).max if end > 0 else np.iinfo(dtype).min
        return complex(end, end) if dtype.kind == "c" else end

    def kept(values: np.dtype[Any], result: np.dtype[Any]) -> np.dtype[Any]:
        return {"b": np.dtype(np.uint8), "f": np.promote_types(values, np.float32)}.get(values.kind, values)

    return Reduction(step, join, lambda fill, number: fill, neutral, kept, chosen=True)


def _times(fill: Any, number: Array) -> Array:
    """Part by part: a product of complex numbers makes NaN of an infinite part."""
    if not np.iscomplexobj(fill):
        return np.asarray(fill * number)
    product = np.empty(number.shape, np.complex128)
    product.real, product.imag = fill.real * number, fill.imag * number
    return product


def _squared(x: Any) -> Any:
    return x.real**2 + x.imag**2


_SUM = Reduction(lambda kind: "total += value", np.add, _times)
_MEAN = _SUM._replace(
    dtype=lambda values, result: "c16" if values.kind == "c" else "f8", end=lambda total, number: total / number
)
REDUCTIONS = {
    "sum": _SUM,
    "prod": Reduction(
        lambda kind: "total *= value", np.multiply, lambda fill, number: fill**number, lambda dtype: 1
    ),
    "count": Reduction(
        lambda kind: "total += 1", np.add, lambda fill, number: number, dtype=lambda *types: "i8", stored=True
    ),
    "min": _extreme("<", np.minimum, np.inf),
    "max": _extreme(">", np.maximum, -np.inf),
    "any": Reduction(
        lambda kind: "total |= value != 0", np.logical_or, lambda fill, number: fill != 0, dtype=lambda *types: "?"
    ),
    "all": Reduction(
        lambda kind: "total &= value != 0", np.logical_and, lambda fill, number: fill != 0, lambda dtype: 1,
        lambda *types: "?",
    ),
    "mean": _MEAN,
    "var": _MEAN._replace(spread=True),
    "std": _MEAN._replace(spread=True, end=lambda total, number: np.sqrt(total / number)),
    "norm": Reduction(
        lambda kind: "total += value.real ** 2 + value.imag ** 2" if kind == "c" else "total += value ** 2", np.add,
        lambda fill, number: _squared(fill) * number, dtype=lambda *types: "f8",
        end=lambda total, number: np.sqrt(total),
    ),
}  # fmt: skip
_CASTING = ("sum", "prod", "mean")  # reductions that cast each value to the type of the result, as numpy's


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
    labelled: bool = False,
    memory: int | None = None,
    limits: Limits | None = None,
) -> Any:
    """Reduce dimensions, as numpy's functions of the same names reduce the dense array.

    Cells that are not stored have the fill value, or zero if there is none. `count` is the number of stored entries.
    Both triangles of a structure take part. The entries of a tensor in a file are read in blocks.

    Sums of integers and booleans have 64 bits, those of floats at least the precision of float64. Results do not depend
    on the number of threads.

    Parameters
    ----------
    axis : the dimensions that are reduced, by number or by name: one, several, or None for all.
    how : "sum", "prod", "count", "min", "max", "any", "all", "mean", "var", "std" or "norm". A variance divides by the
        number of cells; a norm is the root of the sum of squares.
    cells : "all", or "stored" for the stored entries alone, whatever the fill value is. Of no entries, a mean, a
        variance and an extreme of floats are NaN.
    dtype : of the result, which is computed at least in this type. As in numpy, a sum, a product and a mean cast each
        value first: of fractions as integers, they take the integer parts.
    labelled : give an xarray.DataArray with the names and labels of the dimensions that are left.
    memory : bytes for the result and the blocks that are read from a file; by default 2**28.
    limits : `dense_bytes` is the most that the result takes; by default the limits of the tensor.

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
    if not isinstance(how, str) or how not in REDUCTIONS:
        raise OptionError(Problem("how", f"{how!r:.40} is no reduction; choose one of {', '.join(REDUCTIONS)}"))
    tensor = as_tensor(tensor, copy=False)
    made = _reduced(tensor, axis, (how,), cells, dtype, memory, limits)[0]
    if not labelled:
        return made
    reduced = _checked_axes(axis, tensor)
    return late_import("data_array")(tensor, made, [k for k in range(tensor.ndim) if k not in reduced])


@within_memory
def statistics(
    tensor: Tensor,
    axis: Axis = None,
    *,
    cells: Cells = "all",
    memory: int | None = None,
    limits: Limits | None = None,
) -> Statistics:
    """Count, sum, mean, variance, standard deviation, extremes and norm along dimensions; a file is read once.

    Parameters
    ----------
    axis : the dimensions that are reduced, by number or by name: one, several, or None for all.
    cells : "all", or "stored" for the stored entries alone; see `reduce`. `count` is that of the stored entries.
    memory : bytes for the results and the blocks that are read from a file; by default 2**28.
    limits : `dense_bytes` is the most that the results take; by default the limits of the tensor.

    Raises
    ------
    IndexError, ArrayError, LimitError : as `reduce` raises them.

    >>> by_row = statistics(pack([[0, 1, 1], [2, 0, 1]], [3.0, 4.0, 6.0], (2, 3), "CSR"), 1)
    >>> by_row.max.tolist(), by_row.count.tolist()
    ([3.0, 6.0], [1, 2])
    """
    return Statistics(*_reduced(as_tensor(tensor, copy=False), axis, Statistics._fields, cells, None, memory, limits))


class _Total(NamedTuple):
    """A number that is kept for each cell of a result. Reductions that need the same number share it."""

    step: str
    dtype: np.dtype[Any]
    of: Reduction

    def empty(self, shape: Any = ()) -> Array:
        return np.full(shape, self.of.neutral(self.dtype), self.dtype)

    def repeated(self, fill: Any, number: Array) -> Array:
        """The total of so many cells with the fill value."""
        times = number.astype(self.dtype if self.dtype.kind in "iu" else np.float64)
        made = np.asarray(self.of.repeat(fill.astype(common_type(fill.dtype, self.dtype)), times))
        return np.where(number == 0, self.empty(), made.astype(self.dtype))


_Types: TypeAlias = "tuple[np.dtype[Any], np.dtype[Any]]"
Totals: TypeAlias = dict[str, Array]  # by the names of `_Kept`
_SPREAD = "spread"


class _Kept(NamedTuple):
    """What is kept of the entries: totals by name, which of them counts, and around which a spread is."""

    totals: dict[str, _Total]
    counts: str | None
    mean: str | None

    @property
    def number(self) -> int:
        """How many numbers are kept for each cell of a result."""
        return len(self.totals) + (self.mean is not None)

    def empty(self, shape: tuple[int, ...]) -> Totals:
        totals = {name: total.empty(shape or 1) for name, total in self.totals.items()}
        return totals | ({} if self.mean is None else {_SPREAD: np.zeros(shape or 1)})

    def merged(self, a: Sequence[Array], b: Sequence[Array]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return tuple(total.of.join(x, y) for total, x, y in zip(self.totals.values(), a, b, strict=True))

    def joined(self, a: Totals, b: Totals) -> Totals:
        """The totals of the cells of both. Spreads are joined by the formula of Chan, Golub and LeVeque."""
        totals = dict(
            zip(self.totals, self.merged([a[x] for x in self.totals], [b[x] for x in self.totals]), strict=True)
        )
        if self.mean is None or self.counts is None:
            return totals
        ours, theirs = a[self.counts], b[self.counts]
        with np.errstate(all="ignore"):
            apart = b[self.mean] / theirs - a[self.mean] / ours
            between = _squared(apart) * (ours * (theirs / (ours + theirs)))
        between = np.where((ours > 0) & (theirs > 0), between, 0)
        return totals | {_SPREAD: a[_SPREAD] + b[_SPREAD] + between}


def _reduced(
    tensor: Tensor,
    axis: Axis,
    hows: tuple[str, ...],
    cells: Cells,
    dtype: Any,
    memory: int | None,
    limits: Limits | None,
) -> list[Any]:
    if cells not in ("all", "stored"):
        raise OptionError(Problem("cells", f"{cells!r:.40} is no choice of cells; pass 'all' or 'stored'"))
    reduced = _checked_axes(axis, tensor)
    own, stored_type = tensor.shape, number_type(tensor.dtype, "values")
    axes = tuple([k for k in range(len(own)) if k not in reduced])
    shape = tuple([own[k] for k in axes])
    size = math.prod([own[k] for k in reduced])
    result = stored_type if dtype is None else checked_result(dtype)
    values = np.dtype(np.float32) if stored_type == np.float16 else stored_type
    fill = values.type(0 if tensor.fill_value is None else tensor.fill_value) if cells == "all" else None
    casts = dtype is not None and hows[0] in _CASTING and values.kind + result.kind in ("fi", "fu", "fb", "ib", "ub")
    taken = result if casts else values
    kept, names = _kept(hows, taken, result, fill if fill is None else fill.astype(taken))
    limits = tensor.limits if limits is None else limits
    limits.hold("dense_bytes", 8 * math.prod(shape) * kept.number, "axis", "the size in bytes of the result")
    stored = everything = _summed(tensor, kept, axes, shape, (values, taken), checked_memory(memory))
    if fill is not None and kept.counts is not None:
        everything = kept.joined(stored, _rest(kept, fill.astype(taken), size, stored[kept.counts]))
    results = []
    for how in hows:
        record = REDUCTIONS[how]
        totals = stored if record.stored else everything
        number = size if kept.counts is None else totals[kept.counts]
        with np.errstate(all="ignore"):
            made = record.end(totals[_SPREAD if record.spread else names[how]], number)
            if record.chosen:
                made = _checked_chosen(how, made.astype(stored_type), number, cells)
            if dtype is not None and made.dtype.kind == "c" != result.kind:
                raise OptionError(Problem("dtype", f"the {how} is complex, and {result} is not; take a complex type"))
            made = made.reshape(shape).astype(made.dtype if dtype is None else result, copy=False)
        results.append(made if shape else made[()])
    return results


def _checked_axes(axis: Axis, tensor: Tensor) -> set[int]:
    if axis is None:
        return set(range(tensor.ndim))
    asked: list[Any] = list(axis) if isinstance(axis, tuple | list) or np.ndim(axis) else [axis]  # type: ignore[arg-type]
    axes = [dimension_of(tensor, k) for k in asked]
    if len(set(axes)) != len(axes):
        raise OptionError(Problem("axis", f"{asked!r:.60} has a dimension twice; name each once"))
    return set(axes)


@functools.lru_cache(1024)
def _kept(
    hows: tuple[str, ...], values: np.dtype[Any], result: np.dtype[Any], fill: Any
) -> tuple[_Kept, dict[str, str]]:
    """What is kept for some reductions, and the name of the total of each. fill: None where stored cells are all."""
    totals: dict[str, _Total] = {}

    def name_of(how: str) -> str:
        record = REDUCTIONS[how]
        total = _Total(record.step(values.kind), np.dtype(record.dtype(values, result)), record)
        name = f"{total.dtype.name}: {total.step}"
        totals.setdefault(name, total)
        return name

    names = {how: name_of(how) for how in hows}
    spread = any(REDUCTIONS[how].spread for how in hows)
    counted = fill is None or spread
    for total in totals.values():
        if fill is not None and not total.of.stored:  # it need not be counted what changes nothing
            with np.errstate(all="ignore"):
                once = total.of.join(total.empty(), total.repeated(fill, np.array(1)))
            counted |= not bool(once == total.empty())
    count = name_of("count") if counted else None
    return _Kept(totals, count, name_of("mean") if spread else None), names


def _rest(kept: _Kept, fill: Any, size: int, count: Array) -> Totals:
    """The totals of the cells that are not stored, of `size` for each of the result."""
    wide = size > INT64_MAX
    added = [total for total in kept.totals.values() if not (total.of.chosen or total.of.stored)]
    if wide and fill != 0 and any(total.dtype.kind in "iu" for total in added):
        raise LimitError(Problem("axis", f"{size} cells are more than an integer counts; reduce fewer dimensions"))
    number = float(size) - count if wide else size - count
    with np.errstate(all="ignore"):
        rest = {name: total.repeated(fill, number) for name, total in kept.totals.items()}
    if kept.counts is not None:
        rest[kept.counts] = number
    if kept.mean is not None:
        rest[_SPREAD] = np.where((number > 0) & ~np.isfinite(fill), np.nan, 0.0)  # infinities are no distance apart
    return rest


def _summed(
    tensor: Tensor, kept: _Kept, axes: tuple[int, ...], shape: tuple[int, ...], types: _Types, memory: int
) -> Totals:
    """The totals of the stored entries. types: of the values, and that in which they are taken."""
    leaf = _leaf(tuple((total.step, total.dtype) for total in kept.totals.values()), axes, types)
    used = math.prod(shape) * sum(total.dtype.itemsize for total in kept.totals.values())
    trees = walks(tensor, memory, used * (1 if kept.mean is None else 3))
    summed = kept.empty(shape)
    for walk in trees:
        here = summed if kept.mean is None else kept.empty(shape)
        outs = run(walk, leaf, (), tuple(here[name] for name in kept.totals), kept.merged)
        made = dict(zip(kept.totals, outs, strict=True))
        if kept.mean is not None and kept.counts is not None:
            with np.errstate(all="ignore"):
                mean = made[kept.mean] / made[kept.counts]
            (made[_SPREAD],) = run(walk, _distances(axes, mean.dtype.kind), (mean,), (here[_SPREAD],), _added)
            made = made if walk.whole else kept.joined(summed, made)
        summed = made
    return summed


def _added(a: tuple[Array], b: tuple[Array]) -> tuple[Array]:
    return (a[0] + b[0],)


def _cell(axes: tuple[int, ...]) -> str:
    return f"[{', '.join(f'c{k}' for k in axes) or '0'}]"


@functools.lru_cache(1024)
def _leaf(steps: tuple[tuple[str, np.dtype[Any]], ...], axes: tuple[int, ...], types: _Types) -> Leaf:
    """The leaf that takes values into totals. axes: the dimensions of the result."""
    lines = []
    values, taken = types
    for k, (step, dtype) in enumerate(steps):
        wide = common_type(taken, dtype)
        cast = "value" if taken == values else "(value != 0)" if taken.kind == "b" else f"np.{taken.name}(value)"
        cast = cast if wide == taken else f"np.{wide.name}({cast})"
        lines.append(re.sub(r"\btotal\b", f"s{k}", re.sub(r"\bvalue\b", cast, step)))
    before = [f"s{k} = out{k}{_cell(axes)}" for k in range(len(steps))]
    after = [f"out{k}{_cell(axes)} = s{k}" for k in range(len(steps))]
    names = tuple(f"out{k}" for k in range(len(steps)))
    totals = tuple(f"s{k}" for k in range(len(steps)))
    return Leaf(names, "\n".join(lines), frozenset(axes), "\n".join([*before, "yield", *after]), totals)


@functools.lru_cache(1024)
def _distances(axes: tuple[int, ...], kind: str) -> Leaf:
    """The leaf that adds squared distances from the mean of each cell."""
    square = "apart.real ** 2 + apart.imag ** 2" if kind == "c" else "apart ** 2"
    at = _cell(axes)
    around = f"m = mean{at}\ns = out{at}\nyield\nout{at} = s"
    return Leaf(("mean", "out"), f"apart = value - m\ns += {square}", frozenset(axes), around)


def _checked_chosen(how: str, extremes: Array, number: Any, cells: Cells) -> Array:
    """An extreme of no cells is NaN where entries alone take part, and an error where all cells do, as in numpy."""
    (empty,) = np.nonzero(np.broadcast_to(number == 0, extremes.shape).ravel())
    if len(empty):
        if extremes.dtype.kind not in "fc" or cells == "all":
            what = f"cell {empty[0]} of the result has no {how}, since no cells take part; leave it out"
            raise ArrayError(Problem("axis", what))
        extremes.ravel()[empty] = np.nan
    return extremes
