"""The reductions, and the totals of stored entries and of the fill value from which they are computed.

Each cell of a result has a few totals, such as a sum and a count. The totals of the parts of a tree, of the blocks of a
file, and of the cells that are not stored are all joined in the same way.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ..errors import ArrayError, LimitError, Problem
from ..levels.positions import Array
from ..limits import INT64_MAX
from ..tensors.tensor import Tensor
from .nest import Leaf
from .seeing import walks
from .types import common_type, sum_type
from .walk import run

Cells: TypeAlias = Literal["all", "stored"]


class Reduction(NamedTuple):
    """The reduction of values to a number.

    step: the statement that adds a `value` to the `total`, for a kind of dtype of the values. join: one total from two.
    repeat: the total of a number of cells with the fill value. neutral: the total of no cells, for the dtype of totals.
    dtype: that dtype, for those of the values and of the result. end: the result, from the total and the number of
    cells. chosen: the result is one of the values, and undefined for no cells. stored: only stored cells take part.
    spread: the total is that of a mean, and `end` takes the sum of squared distances from it.
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
    """A minimum or maximum. NaN takes precedence. Complex numbers are ordered by real, then imaginary part."""

    def step(kind: str) -> str:
        if kind != "c":
            return f"total = value if value {sign} total or value != value else total"
        equal = f"value.real == total.real and value.imag {sign} total.imag"
        better = f"total == total and (value.real {sign} total.real or ({equal}))"
        return f"if {better} or value != value:\n    total = value"

    def neutral(dtype: np.dtype[Any]) -> Any:
        if dtype.kind in "iu":
            return np.iinfo(dtype).max if end > 0 else np.iinfo(dtype).min
        return complex(end, end) if dtype.kind == "c" else end

    def type_of(values: np.dtype[Any], result: np.dtype[Any]) -> np.dtype[Any]:
        return {"b": np.dtype(np.uint8), "f": np.promote_types(values, np.float32)}.get(values.kind, values)

    return Reduction(step, join, lambda fill, number: fill, neutral, type_of, chosen=True)


def _times(fill: Any, number: Array) -> Array:
    """fill * number. Complex parts are multiplied separately: a complex product turns infinite parts into NaN."""
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
CASTING = ("sum", "prod", "mean")  # as in numpy, these cast each value to the type of the result


class _Total(NamedTuple):
    """A number for each cell of a result. Reductions that need the same number share it."""

    step: str
    dtype: np.dtype[Any]
    reduction: Reduction

    def empty(self, shape: Any = ()) -> Array:
        return np.full(shape, self.reduction.neutral(self.dtype), self.dtype)

    def repeated(self, fill: Any, number: Array) -> Array:
        """The total of `number` cells with the fill value."""
        times = number.astype(self.dtype if self.dtype.kind in "iu" else np.float64)
        made = np.asarray(self.reduction.repeat(fill.astype(common_type(fill.dtype, self.dtype)), times))
        return np.where(number == 0, self.empty(), made.astype(self.dtype))


_Types: TypeAlias = "tuple[np.dtype[Any], np.dtype[Any]]"
Totals: TypeAlias = dict[str, Array]  # by the names of `_Plan`
SPREAD = "spread"


class _Plan(NamedTuple):
    """The totals of some reductions by name. counts, mean: the names of the count and of the sum for a spread."""

    totals: dict[str, _Total]
    counts: str | None
    mean: str | None

    @property
    def number(self) -> int:
        """The number of items for each cell of a result."""
        return len(self.totals) + (self.mean is not None)

    def empty(self, shape: tuple[int, ...]) -> Totals:
        totals = {name: total.empty(shape or 1) for name, total in self.totals.items()}
        return totals | ({} if self.mean is None else {SPREAD: np.zeros(shape or 1)})

    def merged(self, a: Sequence[Array], b: Sequence[Array]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return tuple(total.reduction.join(x, y) for total, x, y in zip(self.totals.values(), a, b, strict=True))

    def joined(self, a: Totals, b: Totals) -> Totals:
        """The totals of the cells of both. Spreads are joined by the formula of Chan, Golub and LeVeque."""
        totals = dict(
            zip(self.totals, self.merged([a[x] for x in self.totals], [b[x] for x in self.totals]), strict=True)
        )
        if self.mean is None or self.counts is None:
            return totals
        ours, theirs = a[self.counts], b[self.counts]
        with np.errstate(all="ignore"):
            difference = b[self.mean] / theirs - a[self.mean] / ours
            between = _squared(difference) * (ours * (theirs / (ours + theirs)))
        between = np.where((ours > 0) & (theirs > 0), between, 0)
        return totals | {SPREAD: a[SPREAD] + b[SPREAD] + between}


@functools.lru_cache(1024)
def planned(
    hows: tuple[str, ...], values: np.dtype[Any], result: np.dtype[Any], fill: Any
) -> tuple[_Plan, dict[str, str]]:
    """The plan of some reductions, and the name of the total of each. fill: None if only stored cells take part."""
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
        if fill is not None and not total.reduction.stored:  # a neutral fill value needs no count
            with np.errstate(all="ignore"):
                once = total.reduction.join(total.empty(), total.repeated(fill, np.array(1)))
            counted |= not bool(once == total.empty())
    count = name_of("count") if counted else None
    return _Plan(totals, count, name_of("mean") if spread else None), names


def totals_of_unstored(plan: _Plan, fill: Any, size: int, count: Array) -> Totals:
    """The totals of the cells that are not stored. size, count: the number of cells and of stored cells of a total."""
    wide = size > INT64_MAX
    added = [total for total in plan.totals.values() if not (total.reduction.chosen or total.reduction.stored)]
    if wide and fill != 0 and any(total.dtype.kind in "iu" for total in added):
        raise LimitError(Problem("axis", f"{size} cells exceed the range of int64; reduce fewer dimensions"))
    number = float(size) - count if wide else size - count
    with np.errstate(all="ignore"):
        rest = {name: total.repeated(fill, number) for name, total in plan.totals.items()}
    if plan.counts is not None:
        rest[plan.counts] = number
    if plan.mean is not None:
        rest[SPREAD] = np.where((number > 0) & ~np.isfinite(fill), np.nan, 0.0)  # the distance of infinities is NaN
    return rest


def totals_of_stored(
    tensor: Tensor, plan: _Plan, axes: tuple[int, ...], shape: tuple[int, ...], types: _Types, memory: int
) -> Totals:
    """The totals of the stored entries. types: of the values, and the type to which they are cast."""
    leaf = _leaf(tuple((total.step, total.dtype) for total in plan.totals.values()), axes, types)
    used = math.prod(shape) * sum(total.dtype.itemsize for total in plan.totals.values())
    trees = walks(tensor, memory, used * (1 if plan.mean is None else 3))
    summed = plan.empty(shape)
    for walk in trees:
        here = summed if plan.mean is None else plan.empty(shape)
        outs = run(walk, leaf, (), tuple(here[name] for name in plan.totals), plan.merged)
        made = dict(zip(plan.totals, outs, strict=True))
        if plan.mean is not None and plan.counts is not None:
            with np.errstate(all="ignore"):
                mean = made[plan.mean] / made[plan.counts]
            (made[SPREAD],) = run(walk, _distances(axes, mean.dtype.kind), (mean,), (here[SPREAD],), _added)
            made = made if walk.whole else plan.joined(summed, made)
        summed = made
    return summed


def _added(a: tuple[Array], b: tuple[Array]) -> tuple[Array]:
    return (a[0] + b[0],)


def _cell(axes: tuple[int, ...]) -> str:
    return f"[{', '.join(f'c{k}' for k in axes) or '0'}]"


@functools.lru_cache(1024)
def _leaf(steps: tuple[tuple[str, np.dtype[Any]], ...], axes: tuple[int, ...], types: _Types) -> Leaf:
    """The leaf that adds values to totals. axes: the dimensions of the result."""
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
    around = "\n".join([*before, "yield", *after])
    kept = frozenset(axes)
    return Leaf(names, "\n".join(lines), kept, kept, around, totals, min(axes, default=-1))


@functools.lru_cache(1024)
def _distances(axes: tuple[int, ...], kind: str) -> Leaf:
    """The leaf that adds squared distances from the mean of each cell."""
    square = "distance.real ** 2 + distance.imag ** 2" if kind == "c" else "distance ** 2"
    at = _cell(axes)
    around = f"m = mean{at}\ns = out{at}\nyield\nout{at} = s"
    entry = f"distance = value - m\ns += {square}"
    kept = frozenset(axes)
    return Leaf(("mean", "out"), entry, kept, kept, around, rows=min(axes, default=-1))


def checked_chosen(how: str, extremes: Array, number: Any, cells: Cells) -> Array:
    """Set the extremes of no stored floats to NaN. Raises ArrayError for other types, and if all cells take part."""
    (empty,) = np.nonzero(np.broadcast_to(number == 0, extremes.shape).ravel())
    if len(empty):
        if extremes.dtype.kind not in "fc" or cells == "all":
            what = f"cell {empty[0]} of the result has no {how}, since no cells take part; leave it out"
            raise ArrayError(Problem("axis", what))
        extremes.ravel()[empty] = np.nan
    return extremes
