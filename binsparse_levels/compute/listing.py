"""A nest that lists the entries of a tree, as Python or compiled with bounds checks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from ..kernels import jit
from ..levels import Level
from .nest import Leaf, Seen, Wrap, helpers_of, nest_text


@functools.lru_cache(256)
def nest_that_lists(levels: tuple[Level, ...], compiled: bool) -> tuple[Callable[..., None], Callable[..., Any]]:
    """`nest` and `extent` of `nest_text`; `nest` lists coordinates and positions in a table, and counts them."""
    rank = sum(level.rank for level in levels)
    rows = "".join(f"rows[at, {k}] = {name}\n" for k, name in enumerate([*(f"c{k}" for k in range(rank)), "q"]))
    leaf = Leaf(("rows", "count"), f"at = count[0]\ncount[0] = at + 1\n{rows}", frozenset(), frozenset(range(rank)))
    valid = "assert x{0} < size{0}, 'a coordinate is outside its dimension, or is so before a loop'\nc{0} = x{0}\nyield"
    seen = Seen(tuple(Wrap(k + 1, valid.format(k)) for k in range(rank)), tuple(range(1, rank + 1)), None)
    helpers = {name: made_again(x, compiled=compiled) for name, x in helpers_of(levels).items()}
    space: dict[str, Any] = {"u8": np.uint64, **helpers}
    exec(nest_text(levels, seen, leaf, "each"), space)
    options: Any = {"cache": False, "boundscheck": True, "error_model": "numpy"}
    nest = jit.kernel(space["nest"], **options) if compiled else space["nest"]  # type: ignore[no-untyped-call]
    return nest, space["extent"]


@functools.lru_cache(256)
def made_again(function: Any, *, compiled: bool) -> Any:
    """A numba function, and those that it calls by name, with bounds checks or as plain Python."""
    python = getattr(function, "py_func", function)
    if not isinstance(python, FunctionType):
        return function
    called = {name: python.__globals__.get(name) for name in python.__code__.co_names}
    again = {k: made_again(x, compiled=compiled) for k, x in called.items() if hasattr(x, "py_func") and x != function}
    space = python.__globals__ | again
    made = FunctionType(python.__code__, space, None, python.__defaults__, python.__closure__)
    own = getattr(function, "targetoptions", {})
    options = {name: x for name, x in own.items() if name != "nopython"} | {"cache": False, "boundscheck": True}
    return jit.kernel(made, **options) if compiled else made  # type: ignore[no-untyped-call]
