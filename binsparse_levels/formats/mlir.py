"""The notation of formats in MLIR's dialect sparse_tensor and in UST, as text for text.

(d0, d1) -> (d0 : dense, d1 : compressed)                               dense, sparse
(i, j) -> (j : compressed(nonunique), i : singleton)                    sparse(2) @ 1, 0
(i, j) -> (i floordiv 2 : dense, j : compressed, i mod 2 : dense)       dense, sparse, dense through 0/2, 1, 0%2
(i, j) -> (j - i : compressed, i : dense)                               sparse, dense through 1-0, 0
(i, j) -> (i : dense, j floordiv 4 : dense, j mod 4 : structured[2, 4])     dense, n_of_m(1, n=2, m=4)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..errors import FormatError
from ..levels import Level
from ..levels.base import described

_MAPPING = re.compile(r"\s*\(([^()]*)\)\s*->\s*\((.*)\)\s*", re.DOTALL)
_COMMA = re.compile(r",(?![^(\[]*[)\]])")  # outside of parentheses and brackets
_TYPE = re.compile(r"(\w+)\s*(?:\[\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\])?\s*(?:\(([^()]*)\))?")
_STEP = re.compile(r"(floordiv|mod)\s+(\d{1,19})")
_STEPS = rf"(?:[)\s]*\b{_STEP.pattern.replace('(', '(?:')})*"
_EXPRESSION = re.compile(rf"[(\s]*(\w+)(?:\s*-\s*(\w+)(?=\s*\)|\s*$))?({_STEPS})[)\s]*")  # ( stands first
_DIGIT = re.compile(r"(\d+)(?:-(\d+))?(?:/(\d+))?(?:%(\d+))?")


def from_mlir(text: str) -> str:
    """The notation of this package. Raises FormatError for what its levels cannot be.

    >>> from_mlir("(i, j) -> (j : dense, i : compressed)")
    'dense, sparse @ 1, 0'
    """
    match = _MAPPING.fullmatch(text)
    if match is None:
        raise FormatError("expected dimensions and levels, such as (d0, d1) -> (d0 : dense, d1 : compressed)")
    names = [name.strip() for name in match[1].split(",")] if match[1].strip() else []
    if len(set(names)) < len(names) or not all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in names):
        raise FormatError(f"expected names of dimensions, each once, got ({match[1]:.60})")
    levels: list[str] = []
    digits: list[str] = []
    listed = 0  # how many levels of a list of coordinates stand before this one
    for item in _COMMA.split(match[2]) if match[2].strip() else []:
        expression, colon, kind = item.rpartition(":")
        found = _TYPE.fullmatch(kind.strip())
        if not colon or found is None:
            raise FormatError(f"expected a level such as d0 : dense, got {item.strip()!r:.60}")
        name, n, m = found[1], found[2], found[3]
        properties = {word.strip() for word in (found[4] or "").split(",")} - {"", "soa"}
        digits.append(_to_digit(expression, names))
        if name not in ("dense", "compressed", "singleton", "structured") or (name == "structured") != (n is not None):
            raise FormatError(f"no level of this package is {kind.strip()!r:.60}")
        if more := properties - ({"nonunique"} if name in ("compressed", "singleton") else set()):
            raise FormatError(f"{kind.strip()!r:.60} cannot be stored: no level is {min(more)}")
        if (name == "singleton") != (listed > 0):
            raise FormatError("a level that is nonunique, and no other, has a singleton below it")
        if listed:
            levels[-1] = f"sparse({listed + 1})"
        elif name == "structured":
            if not digits[-1].endswith(f"%{m}"):
                raise FormatError(f"{item.strip()!r:.60} has to be a dimension mod {m}")
            base = digits[-1].removesuffix(f"%{m}")
            if levels and levels[-1] == "dense" and digits[-2] == f"{base}/{m}":
                levels.pop()
                digits[-2:] = [base]
            levels.append(f"n_of_m(1, n={n}, m={m})")
        else:
            levels.append("dense" if name == "dense" else "sparse")
        listed = listed + 1 if "nonunique" in properties else 0
    if listed:
        raise FormatError("the last level is nonunique, and duplicates are not stored")
    chain, places = ", ".join(levels) or "element", [str(k) for k in range(len(names))]
    if sorted(digits) != sorted(places):
        return f"{chain} through {', '.join(digits)}"
    return chain if digits == places else f"{chain} @ {', '.join(digits)}"


def _to_digit(text: str, names: Sequence[str]) -> str:
    """The digit of a level. A dimension is divided, and divided again, from the inside out."""
    match = _EXPRESSION.fullmatch(text)
    if match is None or text.count("(") != text.count(")") or not {match[1], match[2] or match[1]} <= {*names}:
        what = "expected a dimension or (j - i), and floordiv or mod of it by numbers"
        raise FormatError(f"{what}, got {text.strip()!r:.60}")
    digit, stride, radix = str(names.index(match[1])), 1, 0
    digit += f"-{names.index(match[2])}" if match[2] else ""
    for step, number in ((step, int(number)) for step, number in _STEP.findall(match[3] or "")):
        if not number or radix % number:
            raise FormatError(f"{text.strip()!r:.60} is no digit: {number} does not divide what stands before it")
        stride, radix = (stride * number, radix // number) if step == "floordiv" else (stride, number)
    return digit + (f"/{stride}" if stride > 1 else "") + (f"%{radix}" if radix else "")


def to_mlir(levels: Sequence[Level], digits: Sequence[str], rank: int) -> str:
    """The notation of MLIR. digits: of the stored dimensions. rank: of the tensor. Raises FormatError.

    >>> from binsparse_levels import Dense, Sparse
    >>> to_mlir((Dense(), Sparse()), ["1", "0"], 2)
    '(d0, d1) -> (d1 : dense, d0 : compressed)'
    """
    left = iter(digits)
    items = [item for level in levels for item in _items(level, [_from_digit(next(left)) for _ in range(level.rank)])]
    return f"({', '.join(f'd{k}' for k in range(rank))}) -> ({', '.join(items)})"


def _items(level: Level, expressions: Sequence[str]) -> Iterator[str]:
    match described(level):
        case {"level_desc": "dense"}:
            yield from (f"{x} : dense" for x in expressions)
        case {"level_desc": "sparse", "rank": 1}:
            yield f"{expressions[0]} : compressed"
        case {"level_desc": "sparse"}:
            yield f"{expressions[0]} : compressed(nonunique)"
            yield from (f"{x} : singleton(nonunique)" for x in expressions[1:-1])
            yield f"{expressions[-1]} : singleton"
        case {"level_desc": "binsparse_levels:n_of_m", "n": n, "m": m}:
            (x,) = expressions
            if not x.endswith(f" mod {m}"):
                x = f"({x})" if " " in x else x
                yield f"{x} floordiv {m} : dense"
                x += f" mod {m}"
            yield f"{x} : structured[{n}, {m}]"
        case _:
            raise FormatError(f"{level} has no name in MLIR")


def _from_digit(digit: str) -> str:
    match = _DIGIT.fullmatch(digit)
    if match is None:
        raise FormatError(f"the map merges {digit} in one dimension, which has no notation in MLIR")
    text = f"d{match[1]}" + (f" - d{match[2]}" if match[2] else "")
    for word, number in (("floordiv", match[3]), ("mod", match[4])):
        if number:
            text = f"({text}) {word} {number}" if " " in text else f"{text} {word} {number}"
    return text
