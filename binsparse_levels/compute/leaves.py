"""The leaves of products of a stored tensor and dense arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from .cursors import indented
from .nest import Leaf
from .semirings import NAMES, PLUS_TIMES, Semiring, cast


class Spec(NamedTuple):
    """The letters of each operand and of the result. at: the index of the stored tensor among the operands.

    is_masked: only some items of the result are computed.
    """

    operands: tuple[str, ...]
    at: int
    out: str
    semiring: Semiring = PLUS_TIMES
    is_masked: bool = False

    @property
    def stored(self) -> str:
        return self.operands[self.at]

    @property
    def dense(self) -> list[str]:
        return [letters for k, letters in enumerate(self.operands) if k != self.at]

    @property
    def lanes(self) -> tuple[str, ...]:
        """The indices that the stored tensor does not have: first those of the result, in its order."""
        dense = "".join(self.dense)
        order = [*self.out, *sorted(set(dense) - set(self.out))]
        return tuple(letter for letter in order if letter in dense and letter not in self.stored)


def leaf_of(parsed: Spec, work: str, at_positions: bool) -> Leaf:
    """The leaf of a product. at_positions: the result has an item for each stored value."""
    stored, lanes = parsed.stored, parsed.lanes
    place = {letter: f"r{k}" for k, letter in enumerate(lanes)}
    place |= {letter: f"c{stored.index(letter)}" for letter in stored}
    factors = []
    for k, letters in enumerate(parsed.dense):
        at = ", ".join(place[letter] for letter in letters) or "()"
        factors.append((cast(f"f{k}[{at}]", work), set(letters) & set(lanes)))
    semiring = parsed.semiring
    inner = [k for k, letter in enumerate(lanes) if letter not in parsed.out]
    outer = [k for k, letter in enumerate(lanes) if letter in parsed.out]
    cell = "q" if at_positions else ", ".join(place[letter] for letter in parsed.out) or "0"
    local = not at_positions and not outer  # a local variable sums consecutive entries of the same item
    target = "total" if local else f"out[{cell}]"
    lines, pad = [f"v = {cast('value', work)}"], ""
    for k in outer:
        lines.append(f"{pad}for r{k} in range(e{k}):")
        pad += "    "
    if parsed.is_masked and outer and not at_positions:
        lines.append(f"{pad}if mask[{cell}]:")
        pad += "    "
    loops = [f"{pad}{'    ' * i}for r{k} in range(e{k}):" for i, k in enumerate(inner)]
    deeper = pad + "    " * len(inner)
    if semiring is PLUS_TIMES:  # factors are multiplied once for all items that they do not change
        lines[0] += "".join(f" * {text}" for text, used in factors if not used)
        term = " * ".join(text for text, used in factors if used)
        if inner:
            lines += [f"{pad}t = np.{work}(0)", *loops, f"{deeper}t += {term}"]
            term = "t"
        lines.append(f"{pad}{target} {'' if at_positions else '+'}= v{' * ' + term if term else ''}")
    else:
        terms = [text for text, _ in factors]
        terms.insert(parsed.at, "v")
        lines = lines[1:] if "{" not in semiring.multiply and factors else lines  # complex numbers are no integers
        term = semiring.multiply.format(*terms) if len(terms) > 1 else "v"
        term = term if at_positions and not inner else semiring.add.format(target, term)
        lines += [*loops, f"{deeper}{target} = {term}"]
    twice = [(place[a], f"c{k}") for k, a in enumerate(stored) if stored.index(a) != k]
    if twice:
        lines = [f"if {' and '.join(f'{a} == {b}' for a, b in twice)}:", *(f"    {line}" for line in lines)]
    names = [*(f"f{k}" for k in range(len(parsed.dense))), *(f"e{k}" for k in range(len(lanes)))]
    names += [*NAMES[: len(semiring.functions)], *(["mask"] if parsed.is_masked and not at_positions else []), "out"]
    kept = frozenset(stored.index(letter) for letter in stored if at_positions or letter in parsed.out)
    used = {stored.index(x) for letters in parsed.dense for x in letters if x in stored}
    used |= set() if at_positions else kept
    used |= set(range(len(stored))) if twice else set()
    around = f"total = out[{cell}]\nyield\nout[{cell}] = total" if local else "yield"
    if parsed.is_masked and local:
        around = "\n".join([f"if mask[{cell}]:", *indented(around.splitlines())])
    totals = ("total",) if local and not inner else ()
    return Leaf(tuple(names), "\n".join(lines), kept, frozenset(used), around, totals, stored.find(parsed.out[:1]))


@functools.lru_cache(1024)
def factored(parsed: Spec, work: str, last: frozenset[int]) -> Leaf | None:
    """The leaf that applies factors once for each fiber of the last level, if the fiber does not change them.

    If the fiber adds to the same items, it is summed first: `out += (v + v) * factors`, and else the factors are
    multiplied first: `out += v * (factors)`. last: the dimensions that change within a fiber. None if it gains nothing.
    """
    stored, lanes = parsed.stored, parsed.lanes
    changed = {stored[k] for k in last}
    outer = [k for k, letters in enumerate(parsed.dense) if not changed & set(letters)]
    inner = [k for k in range(len(parsed.dense)) if k not in outer]
    sums = not changed & set(parsed.out)
    lanes_of = {k: set(lanes) & set(letters) for k, letters in enumerate(parsed.dense)}
    gains = any(lanes_of[k] for k in outer) and len(outer) > (0 if sums else 1)
    if not gains or not set(lanes) <= set(parsed.out) or len(set(stored)) < len(stored):
        return None
    place = {x: f"r{k}" for k, x in enumerate(lanes)} | {x: f"c{k}" for k, x in enumerate(stored)}
    used = [x for x in lanes if any(x in lanes_of[k] for k in (inner if sums else outer))]

    def product(first: str, operands: Sequence[int]) -> str:
        at = [", ".join(place[x] for x in parsed.dense[k]) or "()" for k in operands]
        return " * ".join([first, *(f"np.{work}(f{k}[{x}])" for k, x in zip(operands, at, strict=True))])

    def each(letters: Sequence[str], statement: str) -> list[str]:
        for x in reversed(letters):
            statement = "\n".join([f"for {place[x]} in range(e{place[x][1:]}):", *indented(statement.splitlines())])
        return statement.splitlines()

    part = f"part[{', '.join(place[x] for x in used)}]" if used else "part"
    target = f"out[{', '.join(place[x] for x in parsed.out)}]"
    if sums:  # nothing is added for no entries: 0 * inf is NaN
        entry = ["is_empty = False", *each(used, f"{part} += {product('v', inner)}")]
        around = ["is_empty = True", *each(used, f"{part} = np.{work}(0)"), "yield", "if not is_empty:"]
        around += indented(each(lanes, f"{target} += {product(part, outer)}"))
    else:
        entry = each(lanes, f"{target} += {product(f'v * {part}', inner)}")
        around = [*each(used, f"{part} = {product(f'np.{work}(1)', outer)}"), "yield"]
    letters = {x for k in outer for x in parsed.dense[k]} | set(parsed.out if sums else "")
    return leaf_of(parsed, work, False)._replace(
        entry="\n".join([f"v = np.{work}(value)", *entry]),
        around="\n".join(around),
        fixed=frozenset([k for k, x in enumerate(stored) if x in letters]),
        before=f"part = np.empty(({', '.join(f'e{place[x][1:]}' for x in used)},), np.{work})" if used else "",
    )
