"""A loop nest for each chain of levels, composed from the statements with which each kind lists a fiber.

The text of a nest consists of `Level.loop` of registered classes and of names that this package chooses. No content of
a file becomes text. The nest of CSR and a leaf that sums rows is

    for x0 in range(begin, end):
        c0 = x0
        total = out[c0]
        q0 = u8(0) * size0 + x0
        for q1 in range(u8(ptr_1[q0]), u8(ptr_1[q0 + u8(1)])):
            x1 = u8(idx0_1[q1])
            c1 = x1
            q = q1
            value = values[q1]
            total += value
        out[c0] = total

Index maps, padding and views add statements in between; see `seeing`. All integers are unsigned with 64 bits, because
a signed index costs a test at every access.

Threads run parts of a nest: ranges of the outermost loop, or ranges of entries. Such a range goes from one path, the
counters of the loops at an entry, to another: at the first path, a loop inside begins at its counter of that path.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..engine.tree import Form
from ..errors import FormatError, Problem, raise_if
from ..kernels import jit
from ..levels import Level, Place, places
from ..levels.checksums import marks


class Wrap(NamedTuple):
    """Statements around the rest of a nest, inserted once the first `known` coordinates of the tree are known.

    text: the statements, with a `yield` in place of the rest.
    """

    known: int
    text: str


class Seen(NamedTuple):
    """The mapping of the coordinates `x0`, `x1` … of a tree to those of a tensor, `c0`, `c1` …

    wraps: statements that assign the coordinates of the tensor, and skip entries outside it. known: for each dimension
    of the tensor, the number of leading coordinates of the tree that determine its coordinate. first: the dimensions of
    the tensor that determine the first coordinate of the tree, or None. stored: the dimension of the tree whose
    coordinate equals that of each dimension of the tensor; None if wraps do anything else. names: the arguments of the
    wraps. fixed: dimensions of the tree with a size that is a constant in the text. mirrored: the value of a mirror
    image, for which the wraps set `is_mirror`, if it differs.
    """

    wraps: tuple[Wrap, ...]
    known: tuple[int, ...]
    first: frozenset[int] | None
    stored: tuple[int, ...] | None = None
    names: tuple[str, ...] = ()
    fixed: tuple[tuple[int, int], ...] = ()
    mirrored: str = ""


class Leaf(NamedTuple):
    """The innermost statements of a nest, which run for each entry.

    names: its arguments. entry: statements that use `c0`, `c1` … (the coordinates in the tensor), `value`, `q` (the
    position of the value) and the names. kept: the dimensions that determine where the statements write. used: those
    whose coordinates they use. around: statements with a `yield` in place of consecutive entries with the same
    coordinates in the dimensions `fixed`, by default `kept`. totals: the variables of `around`, if the statements
    change nothing else. rows: the dimension of the first axis of the arrays that the statements change; -1 for another
    index. before: statements before the loops.
    """

    names: tuple[str, ...]
    entry: str
    kept: frozenset[int]
    used: frozenset[int]
    around: str = "yield"
    totals: tuple[str, ...] = ()
    rows: int = -1
    fixed: frozenset[int] | None = None
    before: str = ""


@functools.lru_cache(1024)
def have_loops(levels: tuple[Level, ...]) -> bool:
    """Return True if every level has a loop."""
    return all(place.level.loop(not place.depth) is not None for place in places(levels, [1] * _rank(levels)))


@functools.lru_cache(1024)
def counters(levels: tuple[Level, ...]) -> tuple[tuple[str, ...], ...]:
    """The counters of the loops of the first levels, as far as the position of an entry determines them.

    A counter is a position `q0`, `q1` …, or a coordinate `x0`, `x1` … of the tree.
    """
    found: list[tuple[str, ...]] = []
    for d, place in enumerate(places(levels, [1] * _rank(levels))):
        loops = [x for piece in _pieces(place, d) if isinstance(x := piece.text[0], ast.For) and _has_ends(x)]
        own = tuple(ast.unparse(x.target) for x in loops)
        own = own[:1] if own[:1] == (f"q{d}",) else own
        coords = tuple(f"x{place.depth + k}" for k in range(place.level.rank))
        if not own or own not in ((f"q{d}",), coords) or not place.level.ascending:
            break
        if levels[d - 1].shares if d else not _is_cut(loops[0], place.level):
            break
        found.append(own)
    return tuple(found)


def nest_text(levels: Sequence[Level], seen: Seen, leaf: Leaf, form: Form, split: bool = False) -> str:
    """The text of Python functions over a tree of these levels: `nest`, `extent` and, if needed, `first`.

    nest(begin, end, numbers, arrays…, values, names…) runs the leaf on a part of the outermost loop. extent(numbers,
    arrays…) returns both ends of that loop. first(at, numbers, arrays…) returns the first coordinate of an iteration,
    if several iterations can have the same. numbers: the sizes of the dimensions, then the number of child positions of
    each level. names: those of `seen`, then those of the leaf.

    split: the part is a range of entries; the numbers end with the `counters` of its first and of its last entry.
    """
    chain = places(levels, [1] * _rank(levels))
    last = f"q{len(chain) - 1}" if chain else "0"
    fixed = leaf.kept if leaf.fixed is None else leaf.fixed
    around = Wrap(max((seen.known[k] for k in fixed), default=0), leaf.around)
    left = sorted([Wrap(0, f"{leaf.before}\nyield"), *seen.wraps, around], key=lambda wrap: wrap.known)
    loops = [piece for d, place in enumerate(chain) for piece in _pieces(place, d)]
    path = [name for names in counters(tuple(levels)) for name in names] if split else []
    outermost = loops[0].text[0] if loops else None
    begin, end, first = "u8(0)", "u8(1)", None
    if isinstance(outermost, ast.For) and _is_cut(outermost, chain[0].level):
        bounds = [ast.unparse(bound) for bound in outermost.iter.args]  # type: ignore[attr-defined]
        begin, end = bounds if len(bounds) == 2 else ("u8(0)", *bounds)
        first = _first_coordinate(outermost) if chain[0].level.rank > 1 else None
        outermost.iter = ast.parse("range(begin, end)", mode="eval").body
    for piece in loops:
        if isinstance(loop := piece.text[0], ast.For) and (name := ast.unparse(loop.target)) in path[1:]:
            piece.text[:1] = _from_path_to_path(loop, path, path.index(name))

    value = value_text(form, last)
    turned = f"\nif is_mirror:\n    value = {seen.mirrored}" if seen.mirrored else ""
    body = ast.parse(f"q = {last}\nvalue = {value}{turned}\n{leaf.entry}").body

    nested: list[list[ast.stmt]] = []  # from outermost to innermost, each with a yield for the next
    for piece in [_Piece([_YIELD], 0), *loops]:
        inside = [wrap for wrap in left if wrap.known < piece.known]
        nested.append(_placed(piece.text, inside) if inside else piece.text)
        del left[: len(inside)]
        while left and left[0].known <= piece.known:
            nested.append(ast.parse(left.pop(0).text).body)
    for text in reversed(nested):
        body = _filled(text, body)

    names = [f"{role}_{d}" for d, place in enumerate(chain) for role in place.arrays]
    names += ["codes"] if form == "codes" else []
    sizes = [f"size{k}" for k in range(_rank(levels))] + [f"n{d}" for d in range(len(chain))]
    sizes += [f"{end}{j}" for end in ("from", "upto") for j in range(len(path))]
    constants = {f"size{k}": f"u8({size})" for k, size in seen.fixed}
    taken = "\n".join(f"    {name} = {constants.get(name, f'numbers[{k}]')}" for k, name in enumerate(sizes))
    stored = "".join(f", {name}" for name in names)
    more = "".join(f", {name}" for name in (*seen.names, *leaf.names))
    nest = ast.unparse(_module(body))
    texts = [
        f"def nest(begin, end, numbers{stored}, values{more}):\n{taken}\n{_indented(nest)}",
        f"def extent(numbers{stored}):\n{taken}\n    return {begin}, {end}",
    ]
    if first is not None:
        texts.append(f"def first(at, numbers{stored}):\n{taken}\n    return {first}")
    return "\n\n\n".join(texts) + "\n" + marks(helpers_of(levels))


def value_text(form: Form, position: str, prefix: str = "") -> str:
    """The expression of the value at a position. prefix: of the names of the arrays."""
    place = {"one": "0", "codes": f"{prefix}codes[{position}]", "each": position}[form]
    return f"{prefix}values[{place}]"


def helpers_of(levels: Sequence[Level]) -> dict[str, Callable[..., Any]]:
    """The functions that the loops of these levels call, by their names in `nest_text`."""
    return {f"{name}_{d}": x for d, level in enumerate(levels) for name, x in level.helpers().items()}


def loop_problems(level: Level, root: bool) -> Iterator[Problem]:
    """Yield every fault of the loop and the helpers of a level. Precondition: the level has a loop."""
    text, roles, helpers = str(level.loop(root)), level.arrays(0 if root else 1, root), level.helpers()
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError as error:
        yield Problem("loop", f"is not valid Python: {error}; correct the text")
        return
    used = {x.id for x in nodes if isinstance(x, ast.Name)}
    made = {x.id for x in nodes if isinstance(x, ast.Name) and type(x.ctx) is ast.Store}
    known = {"p", "n", "children", "range", *roles, *(f"size{k}" for k in range(level.rank)), *helpers, *made}
    for name in sorted(used - known):
        yield Problem("loop", f"uses {name!r}, which is not defined; set it, or add a numba function to helpers()")
    for name in sorted({"q", *(f"i{k}" for k in range(level.rank))} - made):
        yield Problem("loop", f"never sets {name}; set it before each yield")
    if not any(isinstance(x, ast.Expr) and isinstance(x.value, ast.Yield) for x in nodes):
        yield Problem("loop", "has no yield statement; write one in place of the next level")
    for name, function in helpers.items():
        if not jit.is_compiled(function):  # type: ignore[no-untyped-call]
            yield Problem("helpers", f"{name!r} is not compiled; decorate it with numba.njit")


def _rank(levels: Sequence[Level]) -> int:
    return sum(level.rank for level in levels)


def _module(statements: list[ast.stmt]) -> ast.Module:
    return ast.fix_missing_locations(ast.Module(statements, []))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


class _Piece(NamedTuple):
    """Statements with a yield. known: the number of coordinates that are known at the yield."""

    text: list[ast.stmt]
    known: int


_YIELD = ast.Expr(ast.Yield())


def _pieces(place: Place, d: int) -> Iterator[_Piece]:
    """The statements of level d, cut after the head of each loop whose counter is a coordinate."""
    text, known = renamed(place, d), place.depth
    while True:
        loop = next((x for x in text if isinstance(x, ast.For) and _counts(x, f"x{known}")), None)
        if loop is None or not sum(map(yields, ast.walk(loop))) == 1 == sum(
            map(yields, ast.walk(ast.Module(text, [])))
        ):
            break
        inside, loop.body = loop.body, [_YIELD]
        known += 1
        yield _Piece(text, known)
        text = inside
    yield _Piece(text, place.depth + place.level.rank)


def yields(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield)


def _filled(text: list[ast.stmt], inside: list[ast.stmt]) -> list[ast.stmt]:
    """Statements with the statements `inside` in place of their yield."""

    class Fill(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> Any:
            return inside if yields(node) else node

    statements: list[ast.stmt] = Fill().visit(ast.Module(text, [])).body
    return statements


def _placed(text: list[ast.stmt], wraps: Sequence[Wrap]) -> list[ast.stmt]:
    """Statements with wraps around each yield, or around the outermost loop that does not change what is known there.

    A wrap that may skip the rest stands at the yield, since the loop may count what it passes.
    """
    skips = any("    yield" in wrap.text for wrap in wraps)
    placed: list[ast.stmt] = []
    for node in text:
        inside: list[ast.stmt] = [node]
        if any(map(yields, ast.walk(node))):
            names = {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and type(x.ctx) is ast.Store}
            changed = min((k for k in range(wraps[-1].known) if f"x{k}" in names), default=wraps[-1].known)
            movable = isinstance(node, ast.For | ast.While) and not skips
            here = [x for x in wraps if yields(node) or (movable and x.known <= changed)]
            if rest := wraps[len(here) :]:
                for name in {"body", "orelse"} & set(node._fields):
                    setattr(node, name, _placed(getattr(node, name), rest))
            for wrap in reversed(here):
                inside = _filled(ast.parse(wrap.text).body, inside)
        placed += inside
    return placed


def renamed(place: Place, d: int) -> list[ast.stmt]:
    """The statements of level d, with names that differ from those of other levels. Raises FormatError."""

    class Rename(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> Any:
            letter, number = node.id[0], node.id[1:]
            if node.id == "range":
                return node
            if node.id == "p":
                return ast.Name(f"q{d - 1}", node.ctx) if d else _unsigned(ast.Constant(0))
            if node.id == "n" and not own & {"n"}:
                return ast.Name(f"n{d - 1}", node.ctx) if d else _unsigned(ast.Constant(1))
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

    faults = loop_problems(place.level, not place.depth)
    raise_if(FormatError, [Problem(f"{place.level}: {x.path}", x.message) for x in faults])
    read = ast.parse(str(place.level.loop(not place.depth)))
    own = {x.id for x in ast.walk(read) if isinstance(x, ast.Name) and type(x.ctx) is ast.Store} | set(place.arrays)
    statements: list[ast.stmt] = Rename().visit(read).body
    return statements


def _unsigned(node: ast.AST) -> ast.Call:
    return ast.Call(ast.Name("u8", ast.Load()), [node], [])  # type: ignore[list-item]


def _counts(loop: ast.For, name: str) -> bool:
    """Return True if the counter of the loop has this name."""
    return isinstance(loop.target, ast.Name) and loop.target.id == name


def _has_ends(loop: ast.For) -> bool:
    """Return True if a part of the loop has other ends; a part of a stepped range may begin between items."""
    return len(loop.iter.args) < 3  # type: ignore[attr-defined]


def _from_path_to_path(loop: ast.For, path: Sequence[str], j: int) -> list[ast.stmt]:
    """Loop j of a path, which begins and ends there if the loops around it are at their first or last counter."""
    *begin, end = map(ast.unparse, loop.iter.args)  # type: ignore[attr-defined]
    around = (f"first{j - 1} and ", f"last{j - 1} and ") if j > 1 else ("", "")
    lines = [
        f"first{j} = {around[0]}{path[j - 1]} == from{j - 1}",
        f"last{j} = {around[1]}{path[j - 1]} == upto{j - 1}",
    ]
    ends = f"from{j} if first{j} else {begin[0] if begin else 'u8(0)'}, upto{j} + u8(1) if last{j} else {end}"
    loop.iter = ast.parse(f"range({ends})", mode="eval").body
    return [*ast.parse("\n".join(lines)).body, loop]


def _is_cut(loop: ast.For, level: Level) -> bool:
    """Return True if the outermost loop can be cut between different first coordinates.

    A level of rank 1 lists no coordinate twice. A level of a higher rank must count the first coordinate, or assign it
    in ascending order.
    """
    if not _has_ends(loop):
        return False
    if level.rank < 2 or _counts(loop, "x0"):
        return True
    return level.ordered and _first_coordinate(loop) is not None


def _first_coordinate(loop: ast.For) -> str | None:
    """The first coordinate of iteration `at` of the outermost loop; None if it does not follow from the counter."""
    counter = ast.unparse(loop.target)
    assigned = [x.value for x in loop.body if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) == "x0"]
    made = {x.id for node in loop.body for x in ast.walk(node) if isinstance(x, ast.Name) and type(x.ctx) is ast.Store}
    if not assigned or made & {x.id for x in ast.walk(assigned[0]) if isinstance(x, ast.Name)} or counter == "x0":
        return None
    return re.sub(rf"\b{counter}\b", "u8(at)", ast.unparse(assigned[0]))
