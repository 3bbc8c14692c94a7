"""A walk over two trees together: TACO's merge lattice for two operands, with a result of sparse levels.

Each level has three cases: both operands have the coordinate, only the first, or only the second. An intersection has
only the first case. The product of two CSR matrices, whose rows are both full, is

    for a_x0 in range(a_size0):
        a_q0 = …
        b_x0 = a_x0; b_q0 = …                   look-up
        enter a and b at level 1
        while a_found1 and b_found1:
            if a_x1 == b_x1: append, advance both
            elif a_x1 < b_x1: advance a
            else: advance b
        op1[a_x0 + 1] = n1

The result is a tree `dense, sparse …` if it has every first coordinate, else `sparse, sparse …`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..engine.tree import Form, Tree, index_dtype
from ..levels import Dense, Level, Sparse
from ..levels.positions import Array
from .cursors import Lines, Operand, indented
from .store import function_of
from .types import as_words
from .walk import arguments

# Operations that the generated text computes. Others are applied afterwards to arrays of the values.
INLINE = {
    "add": "{} + {}", "subtract": "{} - {}", "multiply": "{} * {}",
    "maximum": "np.maximum({}, {})", "minimum": "np.minimum({}, {})",
}  # fmt: skip


class _Merge(NamedTuple):
    """A walk over two trees. outs: the arrays that it fills. dense: the first level of the result is dense."""

    text: str
    helpers: tuple[tuple[str, Callable[..., Any]], ...]
    outs: tuple[str, ...]
    dense: bool


def merged(
    a: Tree, b: Tree, name: str, union: bool, fills: tuple[Array, Array], *, compiled: bool = True
) -> tuple[Tree, Array | None]:
    """Walk two trees of the same dimensions, and return the tree of the cells of both (`union`: of either).

    name: an operation of INLINE, whose results are the values. For another name, the values are those of the first
    operand, and those of the second are also returned. fills: the values of cells that an operand does not have.
    compiled: False runs the text as plain Python. Precondition for INLINE: all values have the same numeric type.
    """
    inline = INLINE.get(name, "")
    made = _merge(a.levels, b.levels, a.form, b.form, union, inline)
    counts = [x.count() if x.shares or x.gaps else len(x.values) for x in (a, b)]
    most, dims = sum(counts) if union else min(counts), a.dims
    dtype = index_dtype(dims, most)
    sides = []
    as_arguments = as_words if not inline else np.asarray  # values that are only copied have any type
    for tree, fill in zip((a, b), fills, strict=True):
        (numbers, *arrays, _), values = arguments(tree)[0], tree.values[:1] if tree.iso else tree.values
        values = values if tree.dictionary is None else tree.dictionary.table
        sides.append((numbers, [*arrays, kernels.readable(as_arguments(values))], as_arguments(fill)[()]))
    (numbers, mine, fill), (others, theirs, other_fill) = sides
    first = dims[0] if made.dense else most
    outs: dict[str, Array] = {}
    for out in made.outs:
        if out.startswith("op"):  # the first pointer stays 0
            outs[out] = np.zeros((first if out == "op1" else most) + 1, dtype)
        else:
            outs[out] = np.empty(most + 1, {"va": mine[-1].dtype, "vb": theirs[-1].dtype}.get(out, dtype))
    walk = function_of("merged", made.text, made.helpers, compiled)
    ends = [int(n) for n in walk(numbers, others, *mine, *theirs, *outs.values(), fill, other_fill)]
    arrays_made: dict[str, Array] = {}
    for d in range(len(dims)):
        if d:
            parents = dims[0] if d == 1 and made.dense else ends[d - 1]
            arrays_made[f"pointers_to_{d}"] = _cut(outs[f"op{d}"], parents + 1)
        if f"oi{d}" in outs:
            arrays_made[f"indices_{d}"] = _cut(outs[f"oi{d}"], ends[d])
    levels: list[Level] = [Dense(1) if made.dense else Sparse(1), *[Sparse(1)] * (len(dims) - 1)]
    values, *more = [_cut(outs[x], ends[-1]).view(tree.values.dtype) for x, tree in (("va", a), ("vb", b)) if x in outs]
    return Tree(tuple(levels), dims, arrays_made, values), more[0] if more else None


def _cut(array: Array, length: int) -> Array:
    """The first items; a copy if less than half of the array is used."""
    return array[:length].copy() if 2 * length < len(array) else array[:length]


@functools.lru_cache(256)
def _merge(
    first: tuple[Level, ...], second: tuple[Level, ...], a_form: Form, b_form: Form, union: bool, inline: str
) -> _Merge:
    a, b = Operand(first, "a", a_form), Operand(second, "b", b_form)
    text, outs, dense = _Text(a, b, len(first), union, inline).whole()
    return _Merge(text, (*a.helpers.items(), *b.helpers.items()), outs, dense)


class _Text:
    """Generates the text of a walk over two operands of n levels. Methods return the lines for level d and below."""

    def __init__(self, a: Operand, b: Operand, n: int, union: bool, inline: str) -> None:
        self.a, self.b, self.n, self.union, self.inline = a, b, n, union, inline
        full = a.is_full(0), b.is_full(0)
        self.dense = n > 1 and (any(full) if union else all(full))

    def whole(self) -> tuple[str, tuple[str, ...], bool]:
        """The text, the names of the results, and True if the first level of the result is dense."""
        a, b, n = self.a, self.b, self.n
        outs = [f"op{d}" for d in range(1, n)] + [f"oi{d}" for d in range(n) if d or not self.dense]
        outs += ["va"] if self.inline else ["va", "vb"]
        arguments = ["a_numbers", "b_numbers", *a.names, "a_values", *b.names, "b_values", *outs, "a_fill", "b_fill"]
        lines = [f"{x} = {s}_numbers[{k}]" for s, side in (("a", a), ("b", b)) for k, x in enumerate(side.sizes)]
        lines += [f"n{d} = u8(0)" for d in range(n)]
        lines += [*self.both(0), f"return {', '.join(f'n{d}' for d in range(n))},"]
        return "\n".join([f"def merged({', '.join(arguments)}):", *indented(lines)]) + "\n", tuple(outs), self.dense

    def put(self, d: int, x: str, body: Lines) -> Lines:
        """Append coordinate x to the result if `body` adds anything below it."""
        if d == self.n - 1:
            return [*body, f"oi{d}[n{d}] = {x}", f"n{d} += u8(1)"]
        if d == 0 and self.dense:
            return [*body, f"op1[{x} + u8(1)] = n1"]
        below = d + 1
        append = [f"oi{d}[n{d}] = {x}", f"n{d} += u8(1)", f"op{below}[n{d}] = n{below}"]
        return [f"begin{d} = n{below}", *body, f"if n{below} > begin{d}:", *indented(append)]

    def values(self, a: str, b: str) -> Lines:
        at = f"[n{self.n - 1}]"
        return [f"va{at} = {self.inline.format(a, b)}"] if self.inline else [f"va{at} = {a}", f"vb{at} = {b}"]

    def only(self, side: Operand, d: int) -> Lines:
        """Levels from d on, below a coordinate that only one operand has."""
        if d == self.n:
            return self.values(*((side.value, self.b.fill) if side is self.a else (self.a.fill, side.value)))
        return side.walk(d, self.put(d, side.at(d), self.only(side, d + 1)))

    def both(self, d: int) -> Lines:
        """Levels from d on, below a coordinate that both operands have."""
        a, b = self.a, self.b
        if d == self.n:
            return self.values(a.value, b.value)
        access = a.has_access(d), b.has_access(d)
        if d == self.n - 1 and all(side.has_cells(d) for side in (a, b)):
            return self._selected(d)
        if not self.union and any(access) and (not all(access) or a.is_full(d) or b.is_full(d)):
            return self._looked_up(d, *((a, b) if b.is_full(d) or not access[0] else (b, a)))
        return self._counted(d, access) if any(access) else self._joined(d)

    def _looked_up(self, d: int, walked: Operand, other: Operand) -> Lines:
        """An intersection: each coordinate of one operand is looked up in the other."""
        here = self.put(d, walked.at(d), self.both(d + 1))
        here = here if other.is_full(d) else [f"if {other.found(d)}:", *indented(here)]
        return walked.walk(d, [f"{other.at(d)} = {walked.at(d)}", *other.locate(d), *here])

    def _selected(self, d: int) -> Lines:
        """A last level with cells: first list the coordinates of a fiber without a branch, then its values."""
        x, n, sides = f"x{d}", f"n{d}", (self.a, self.b)
        there = f" {'or' if self.union else 'and'} ".join(side.found(d) for side in sides)
        look_up = [line for side in sides for line in (f"{side.at(d)} = {x}", *side.locate(d))]
        load: Lines = []
        for name, side in zip(("a", "b"), sides, strict=True):  # loading in a branch is slower
            load += [f"{name}_value = {side.value}"]
            load += [f"{name}_value = {name}_value if {side.found(d)} else {side.fill}"] if self.union else []
        return [
            f"begin_of_{d} = {n}",
            f"for {x} in range({self.a.size(d)}):",
            *indented([*look_up, f"oi{d}[{n}] = {x}", f"{n} += u8({there})"]),
            f"end_of_{d} = {n}",
            f"for {n} in range(begin_of_{d}, end_of_{d}):",
            *indented([f"{x} = u8(oi{d}[{n}])", *look_up, *load, *self.values("a_value", "b_value")]),
            f"{n} = end_of_{d}",
        ]

    def _counted(self, d: int, access: tuple[bool, bool]) -> Lines:
        """A loop over all coordinates, with a look-up in operands with random access and a cursor over another."""
        x, sides = f"x{d}", [("a", self.a, access[0]), ("b", self.b, access[1])]
        lines: Lines = [line for _, side, free in sides if not free for line in side.enter(d)]
        inside: Lines = []
        for name, side, free in sides:
            inside += [f"{side.at(d)} = {x}", *side.locate(d)] if free else []
            there = side.found(d) if free else f"({side.found(d)} and {side.at(d)} == {x})"
            inside.append(f"{name}_has{d} = {there}")
        inside += [f"if a_has{d} and b_has{d}:", *indented(self.put(d, x, self.both(d + 1)))]
        for name, side, _ in sides if self.union else ():
            inside += [f"elif {name}_has{d}:", *indented(self.put(d, x, self.only(side, d + 1)))]
        for name, side, free in sides:
            inside += [] if free else [f"if {name}_has{d}:", *indented(side.advance(d))]
        return [*lines, f"for {x} in range({self.a.size(d)}):", *indented(inside)]

    def _joined(self, d: int) -> Lines:
        """Two cursors that advance together in ascending order."""
        a, b = self.a, self.b
        here = self.put(d, a.at(d), self.both(d + 1))
        inside = [f"if {a.at(d)} == {b.at(d)}:", *indented([*here, *a.advance(d), *b.advance(d)])]
        for head, side in ((f"elif {a.at(d)} < {b.at(d)}:", a), ("else:", b)):
            alone = self.put(d, side.at(d), self.only(side, d + 1)) if self.union else []
            inside += [head, *indented([*alone, *side.advance(d)])]
        lines = [*a.enter(d), *b.enter(d), f"while {a.found(d)} and {b.found(d)}:", *indented(inside)]
        for side in (a, b) if self.union else ():
            alone = self.put(d, side.at(d), self.only(side, d + 1))
            lines += [f"while {side.found(d)}:", *indented([*alone, *side.advance(d)])]
        return lines
