"""Source text for the levels of one operand, from which a walk over two operands is composed.

The text of `Level.loop` is a generator with one `yield`. A cursor is that generator as a state machine: `enter` runs it
to its first yield, and `advance` runs it from one yield to the next. A level whose loop runs over all coordinates has
random access: `locate` runs the body for one coordinate. `walk` is the unchanged loop.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence

from ..engine.tree import Form
from ..levels import Level, places
from .nest import helpers_of, renamed, value_text, yields

Lines = list[str]


@functools.lru_cache(256)
def is_walked(level: Level, root: bool) -> bool:
    """Return True if a loop can become a cursor: one yield, no break or continue, and no assigned counter."""
    if level.rank != 1 or not level.ordered or (text := level.loop(root)) is None:
        return False
    nodes = list(ast.walk(ast.parse(text)))
    around = [node for node in nodes if not isinstance(node, ast.Module) and any(map(yields, ast.walk(node)))]
    counters = [(ast.unparse(node.target), node.body) for node in around if isinstance(node, ast.For)]
    changed = [
        name
        for name, body in counters
        for statement in body
        for x in ast.walk(statement)
        if isinstance(x, ast.Name) and x.id == name and isinstance(x.ctx, ast.Store)
    ]
    return (
        sum(map(yields, nodes)) == 1
        and not changed
        and not any(getattr(node, "orelse", None) for node in around)
        and not any(isinstance(node, ast.Break | ast.Continue) for node in nodes)
    )


def indented(lines: Sequence[str]) -> Lines:
    return [f"    {line}" for line in lines]


class Operand:
    """The levels of an operand. All its names begin with its letter. Precondition: levels of rank 1 with a loop.

    names: the names of its arrays, in the order of the arguments of a nest. sizes: the names of the numbers before
    them. fill, value: expressions for the fill value and the current value.
    """

    def __init__(self, levels: Sequence[Level], letter: str, form: Form) -> None:
        chain = places(levels, [1] * len(levels))
        self._levels = levels
        self._letter, self._texts = letter, [_prefixed(renamed(place, d), letter) for d, place in enumerate(chain)]
        self.names = [f"{letter}_{role}_{d}" for d, place in enumerate(chain) for role in place.arrays]
        self.sizes = [f"{letter}_{name}{d}" for name in ("size", "n") for d in range(len(chain))]
        self.helpers = {f"{letter}_{name}": function for name, function in helpers_of(levels).items()}
        self.fill = f"{letter}_fill"
        self.names += [f"{letter}_codes"] if form == "codes" else []
        self.value = value_text(form, f"{letter}_q{len(chain) - 1}", f"{letter}_")

    def found(self, d: int) -> str:
        """The variable that is True if the cursor of level d is at an item, or if a look-up found one."""
        return f"{self._letter}_found{d}"

    def at(self, d: int) -> str:
        """The variable of the coordinate of the item."""
        return f"{self._letter}_x{d}"

    def size(self, d: int) -> str:
        return f"{self._letter}_size{d}"

    def has_access(self, d: int) -> bool:
        """Return True if the level has random access."""
        return self._body(d) is not None

    def is_full(self, d: int) -> bool:
        """Return True if every fiber of the level has every coordinate."""
        body = self._body(d)
        return body is not None and yields(body[-1])

    def has_cells(self, d: int) -> bool:
        """Return True if a look-up sets a position even if the level has no item at the coordinate."""
        return self.is_full(d) or (self._levels[d].gaps and self.has_access(d))

    def locate(self, d: int) -> Lines:
        """The lines that look up a coordinate in the level."""
        body = self._body(d)
        assert body is not None
        return [f"{self.found(d)} = False", *self._run(body, d, resumed=False)]

    def enter(self, d: int) -> Lines:
        return [f"{self.found(d)} = False", *self._run(self._texts[d], d, resumed=False)]

    def advance(self, d: int) -> Lines:
        return [f"{self.found(d)} = False", *self._run(self._texts[d], d, resumed=True)]

    def walk(self, d: int, inside: Sequence[str]) -> Lines:
        """The loop of the level with the lines `inside` in place of its yield."""
        lines = []
        for line in _lines(self._texts[d]):
            margin = line[: len(line) - len(line.lstrip())]
            lines += [margin + x for x in inside] if line.strip() in ("yield", "(yield)") else [line]
        return lines

    def _body(self, d: int) -> list[ast.stmt] | None:
        """The body of a level's loop over all coordinates; None if the level has another loop or more statements."""
        loop, *more = self._texts[d]
        if more or not isinstance(loop, ast.For) or ast.unparse(loop.target) != self.at(d):
            return None
        plain = ast.unparse(loop.iter) == f"range({self.size(d)})"
        inner = any(isinstance(x, ast.For | ast.While) for statement in loop.body for x in ast.walk(statement))
        return loop.body if plain and not inner else None

    def _run(self, block: Sequence[ast.stmt], d: int, *, resumed: bool) -> Lines:
        """The lines that run statements to their next yield. resumed: continue after the previous yield."""
        found = self.found(d)
        k = next(k for k, statement in enumerate(block) if any(map(yields, ast.walk(statement))))
        node, out, rest = block[k], [] if resumed else _lines(block[:k]), _lines(block[k + 1 :])
        if yields(node):
            return rest if resumed else [*out, f"{found} = True"]
        if isinstance(node, ast.If):
            inner = self._run(node.body, d, resumed=resumed)
            out += inner if resumed else [f"if {ast.unparse(node.test)}:", *indented(inner)]
        else:
            assert isinstance(node, ast.For | ast.While)
            before, test, step = _as_while(node)
            once = any(map(yields, node.body))  # each iteration yields
            if step and not once:
                step = [f"if not {found}:", *indented(step)]
            out += [*self._run(node.body, d, resumed=True), *step] if resumed else before
            body = [*self._run(node.body, d, resumed=False), *([] if once else step)]
            out += [f"if {test}:" if once else f"while not {found} and {test}:", *indented(body)]
        return out + ([f"if not {found}:", *indented(rest)] if rest else [])


def _as_while(loop: ast.For | ast.While) -> tuple[Lines, str, Lines]:
    """A loop as a while loop: the lines before it, its condition, and the lines that increment its counter."""
    if isinstance(loop, ast.While):
        return [], ast.unparse(loop.test), []
    assert isinstance(loop.iter, ast.Call)
    name, bounds = ast.unparse(loop.target), [ast.unparse(bound) for bound in loop.iter.args]
    begin, end, by = [*([] if len(bounds) > 1 else ["u8(0)"]), *bounds, "u8(1)"][:3]
    return [f"{name} = {begin}", f"{name}_stop = {end}"], f"{name} < {name}_stop", [f"{name} = {name} + {by}"]


def _lines(statements: Sequence[ast.stmt]) -> Lines:
    text = ast.unparse(ast.fix_missing_locations(ast.Module(list(statements), [])))
    return text.splitlines()


def _prefixed(statements: list[ast.stmt], letter: str) -> list[ast.stmt]:
    """Statements whose names begin with the letter of an operand."""

    class Prefix(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return node if node.id in ("u8", "range") else ast.Name(f"{letter}_{node.id}", node.ctx)

    made: list[ast.stmt] = Prefix().visit(ast.Module(statements, [])).body
    return made
