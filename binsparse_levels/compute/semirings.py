"""Sums and products other than those of numbers: a text for each, in place of `+` and `*` in the leaves of products."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..errors import ArrayError, OptionError, Problem
from ..levels.positions import Array
from .types import product_types


class Semiring(NamedTuple):
    """A sum and a product.

    add, multiply: expressions of two operands. join: the sum of two arrays. end: the identity of the sum, or a number
    beyond all of a type. type: the type of products for those of the operands. functions: of the caller, which the
    expressions call by NAMES.
    """

    add: str
    multiply: str
    join: Callable[..., Array] = np.add
    end: float = 0
    type: Callable[..., Any] = np.result_type
    functions: tuple[Callable[..., Any], ...] = ()

    def identity(self, dtype: np.dtype[Any]) -> Any:
        """The sum of nothing in a type."""
        if dtype.kind in "iu":
            return dtype.type(min(max(self.end, np.iinfo(dtype).min), np.iinfo(dtype).max))
        return dtype.type(self.end)

    def types(
        self, operands: Sequence[np.dtype[Any]], dtype: np.dtype[Any] | None, *, sums: bool
    ) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """The types of the computation and of the result, as `product_types`. Raises ArrayError, OptionError."""
        is_logical = self.join is np.logical_or
        natural = np.dtype(self.type(*operands)) if is_logical or len(operands) > 1 else operands[0]
        if is_logical:
            return natural, natural if dtype is None else dtype
        if natural.kind == "c" and self.end:
            raise ArrayError(Problem("semiring", "complex numbers have no order; pass real operands"))
        return product_types((natural,), dtype, sums=sums or self is not PLUS_TIMES)


NAMES = "add", "multiply"


def cast(text: str, dtype: str) -> str:
    """The expression of a number in another type."""
    return f"({text} != 0)" if dtype == "bool" else f"np.{dtype}({text})"


PLUS_TIMES = Semiring("{0} + {1}", "{0} * {1}")
_MIN = Semiring("np.minimum({0}, {1})", "{0} + {1}", np.minimum, np.inf)
_MAX = Semiring("np.maximum({0}, {1})", "{0} + {1}", np.maximum, -np.inf)
_OR = Semiring("{0} | {1}", "{0} & {1}", np.logical_or, type=lambda *operands: np.bool_)
FIRST = Semiring("{0}", "{0}", type=lambda first, *_: first)
SEMIRINGS = {
    "plus_times": PLUS_TIMES,
    "min_plus": _MIN,
    "max_plus": _MAX,
    "max_times": _MAX._replace(multiply="{0} * {1}"),
    "min_first": _MIN._replace(multiply="{0}", type=lambda first, *_: first),
    "plus_pair": Semiring("{0} + {1}", "True", type=lambda *operands: np.int64),
    "any_pair": _OR._replace(multiply="True"),  # any of equal values
    "lor_land": _OR,
}


def semiring_of(given: Any) -> Semiring:
    """The semiring of a name, or of two compiled functions and the identity of the first. Raises OptionError."""
    match given:
        case str() if given in SEMIRINGS:
            return SEMIRINGS[given]
        case (add, multiply, Real()) if all(map(kernels.jit.is_compiled, (add, multiply))):
            return _of_functions(*given)
    what = f"expected one of {', '.join(SEMIRINGS)}, or two functions compiled by numba and the identity of the first"
    raise OptionError(Problem("semiring", f"{what}, got {given!r:.60}"))


@functools.lru_cache(64)
def _of_functions(add: Callable[..., Any], multiply: Callable[..., Any], end: float) -> Semiring:
    def join(a: Array, b: Array, out: Array | None = None) -> Array:
        made: Array = np.frompyfunc(add, 2, 1)(a, b, out=np.empty_like(a) if out is None else out, casting="unsafe")
        return made

    return Semiring("add({0}, {1})", "multiply({0}, {1})", join, end, functions=(add, multiply))
