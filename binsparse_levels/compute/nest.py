"""One loop nest for each chain of levels, made of the statements in which each kind says how it lists a fiber.

The text of a nest is made of `Level.loop` of registered classes and of names and letters that this package chooses.
Nothing of a file's content becomes text. CSR and the leaf `out[x0] += values[q1]` give

    for x0 in range(begin, end):
        q0 = u8(0) * size0 + x0
        for q1 in range(u8(ptr_1[q0]), u8(ptr_1[q0 + u8(1)])):
            x1 = u8(idx0_1[q1])
            out[x0] += values[q1]

All integers are unsigned with 64 bits: a signed index costs a test at every access. Only the outermost loop is cut into
parts, so that threads share it.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import FormatError, Problem
from ..levels import Level, Place, places
from ..levels.positions import Array


class Leaf(NamedTuple):
    """What a nest does with each entry.

    names: the arguments of the nest behind the values. entry: statements that know `x0`, `x1` … (the coordinates by
    stored dimension), `value`, the names, and `q` (the position of the value). before, after: statements around the
    loops that follow when the first `known` coordinates are known; see `known_before`.
    """

    names: tuple[str, ...]
    entry: str
    known: int = 0
    before: str = ""
    after: str = ""


@functools.lru_cache(1024)
def is_told(levels: tuple[Level, ...]) -> bool:
    """Whether every level says how it lists a fiber."""
    return all(place.level.loop(not place.depth) is not None for place in places(levels, [1] * _rank(levels)))


@functools.lru_cache(1024)
def known_before(levels: tuple[Level, ...], dimensions: frozenset[int]) -> int | None:
    """The number of coordinates that have to be known for those in the stored dimensions, if loops follow then."""
    known = max(dimensions, default=-1) + 1
    for place in places(levels, [1] * _rank(levels)):
        if place.depth >= known:
            return known
        if place.depth < known < place.depth + place.level.rank:
            loop = f"for i{known - place.depth - 1} in range("
            return known if loop in str(place.level.loop(not place.depth)) else None
    return None


def nest_text(levels: Sequence[Level], leaf: Leaf, iso: bool) -> str:
    """Python functions over a tree of these levels: `nest`, `extent` and, where it is needed, `first`.

    nest(begin, end, numbers, arrays…, values, names…) runs the leaf on a part of the outermost loop. extent(numbers,
    arrays…) returns both ends of that loop. first(at, numbers, arrays…) returns the first coordinate of an iteration,
    where several have the same. numbers: the sizes of the dimensions, and the number of child positions of each level.
    """
    chain = places(levels, [1] * _rank(levels))
    last = f"q{len(chain) - 1}" if chain else "0"
    value = "values[0]" if iso else f"values[{last}]"
    entry = re.sub(r"\bq\b", last, re.sub(r"\bvalue\b", value, leaf.entry))

    before, after = (ast.parse(text).body for text in (leaf.before, leaf.after))
    outermost: ast.For | None = None

    def around(d: int, done: bool) -> list[ast.stmt]:
        nonlocal outermost
        if d == len(chain):
            return ast.parse(entry).body
        place = chain[d]
        here = not done and bool(before) and place.depth >= leaf.known
        found = _spliced(place, d, around(d + 1, done or here or place.depth + place.level.rank > leaf.known))
        if d == 0 and isinstance(found[0], ast.For) and _is_cut(found[0], place.level):
            outermost = found[0]
        if place.depth < leaf.known < place.depth + place.level.rank and before:
            loop = next(x for x in ast.walk(found[0]) if isinstance(x, ast.For) and _counts(x, f"x{leaf.known - 1}"))
            loop.body = [*before, *loop.body, *after]
        return [*before, *found, *after] if here else found

    body = around(0, False)
    begin, end, first = "u8(0)", "u8(1)", None
    if outermost is not None:
        given = [ast.unparse(bound) for bound in outermost.iter.args]  # type: ignore[attr-defined]
        begin, end = given if len(given) == 2 else ("u8(0)", *given)
        first = _first_coordinate(outermost) if chain[0].level.rank > 1 else None
        outermost.iter = ast.parse("range(begin, end)", mode="eval").body
    names = [f"{role}_{d}" for d, place in enumerate(chain) for role in place.arrays]
    sizes = [f"size{k}" for k in range(_rank(levels))] + [f"n{d}" for d in range(len(chain))]
    taken = "\n".join(f"    {name} = numbers[{k}]" for k, name in enumerate(sizes))
    stored = "".join(f", {name}" for name in names)
    given_names = "".join(f", {name}" for name in leaf.names)
    nest = ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))
    texts = [
        f"def nest(begin, end, numbers{stored}, values{given_names}):\n{taken}\n{_indented(nest)}",
        f"def extent(numbers{stored}):\n{taken}\n    return {begin}, {end}",
    ]
    if first is not None:
        texts.append(f"def first(at, numbers{stored}):\n{taken}\n    return {first}")
    return "\n\n\n".join(texts) + "\n"


def list_fiber(level: Level, arrays: Mapping[str, Array], dims: Sequence[int], p: int, **more: Any) -> Iterator[Any]:
    """The coordinates and the child of each item that `loop` lists for a fiber, as plain Python runs the text.

    more: `root`, and `children`, the number of child positions.

    >>> from binsparse_levels import Sparse
    >>> arrays = {"ptr": np.array([0, 2, 3]), "idx0": np.array([1, 3, 0])}
    >>> list(list_fiber(Sparse(), arrays, [4], 0, root=False, children=3))
    [((1,), 0), ((3,), 1)]
    """
    text = level.loop(more.pop("root"))
    if text is None:
        raise FormatError(Problem("loop", f"the kind {level.kind} has none; write it, or leave this law out"))
    found = "".join(f"i{k}, " for k in range(level.rank))
    space: dict[str, Any] = {}
    numbers = {role: x.tolist() for role, x in arrays.items()} | {f"size{k}": size for k, size in enumerate(dims)}
    exec("def listed(p):\n" + _indented(re.sub(r"\byield\b", f"yield ({found}), q", text)), numbers | more, space)
    listed: Iterator[Any] = space["listed"](p)
    return listed


def _rank(levels: Sequence[Level]) -> int:
    return sum(level.rank for level in levels)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _spliced(place: Place, d: int, inside: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of level d around those of the level below."""

    class Splice(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> Any:
            return inside if isinstance(node.value, ast.Yield) else self.generic_visit(node)

        def visit_Name(self, node: ast.Name) -> Any:
            letter, number = node.id[0], node.id[1:]
            if node.id == "range":
                return node
            if node.id == "p":
                return ast.Name(f"q{d - 1}", node.ctx) if d else _unsigned(ast.Constant(0))
            if node.id == "children":
                return ast.Name(f"n{d}", node.ctx)
            if node.id == "q":
                return ast.Name(f"q{d}", node.ctx)
            if letter == "i" and number.isdecimal():
                return ast.Name(f"x{place.depth + int(number)}", node.ctx)
            if node.id.startswith("size") and node.id[4:].isdecimal():
                return ast.Name(f"size{place.depth + int(node.id[4:])}", node.ctx)
            return ast.Name(f"{node.id}_{d}", node.ctx)

        def visit_Constant(self, node: ast.Constant) -> Any:
            return _unsigned(node)

        def visit_Subscript(self, node: ast.Subscript) -> Any:
            return _unsigned(self.generic_visit(node))

    text = place.level.loop(not place.depth)
    assert text is not None
    found: list[ast.stmt] = Splice().visit(ast.parse(text)).body
    return found


def _unsigned(node: ast.AST) -> ast.Call:
    return ast.Call(ast.Name("u8", ast.Load()), [node], [])  # type: ignore[list-item]


def _counts(loop: ast.For, name: str) -> bool:
    """Whether it is the loop over a name."""
    return isinstance(loop.target, ast.Name) and loop.target.id == name


def _is_cut(loop: ast.For, level: Level) -> bool:
    """Whether the outermost loop can be cut between different first coordinates.

    A level of rank 1 lists none twice. A level of a higher rank counts the first coordinate, or says it in order.
    """
    if level.rank < 2 or _counts(loop, "x0"):
        return True
    return level.ordered and _first_coordinate(loop) is not None


def _first_coordinate(loop: ast.For) -> str | None:
    """The first coordinate of an iteration `at` of the outermost loop, where the loop assigns it from its counter."""
    counter = ast.unparse(loop.target)
    told = [x.value for x in loop.body if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) == "x0"]
    made = {x.id for node in loop.body for x in ast.walk(node) if isinstance(x, ast.Name) and type(x.ctx) is ast.Store}
    if not told or made & {x.id for x in ast.walk(told[0]) if isinstance(x, ast.Name)} or counter == "x0":
        return None
    return re.sub(rf"\b{counter}\b", "u8(at)", ast.unparse(told[0]))
