"""The notations of formats in other systems, as text for text. UST, TACO and MLIR name the same levels.

MLIR     #sparse_tensor.encoding<{ map = (d0, d1) -> (d1 : dense, d0 : compressed) }>      dense, sparse @ 1, 0
         (i, j) -> (j : compressed(nonunique), i : singleton)                              sparse(2) @ 1, 0
         (i, j) -> (i : dense, j floordiv 4 : dense, j mod 4 : structured[2, 4])           dense, n_of_m(1, n=2, m=4)
UST      [i, j] -> ((j - i): <LevelFormat.COMPRESSED>, i: <LevelFormat.RANGE>)             … through 1-0, 0
TACO     {Dense, Compressed}, {1, 0}                                                       dense, sparse @ 1, 0
Finch    Dense(SparseList(Element(0.0)))                                                   dense, sparse @ 1, 0
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from ..errors import FormatError
from ..levels import Level, canonical
from ..levels.base import described

_ENCODING = re.compile(r"\s*(?:#\w+\s*=\s*)?#sparse_tensor\.encoding<\{(.*)\}>\s*", re.DOTALL)
_MAPPING = re.compile(r"\s*\(([^()]*)\)\s*->\s*\((.*)\)\s*", re.DOTALL)
_TYPE = re.compile(r"(\w+)\s*(?:\[\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\])?\s*(?:\(([^()]*)\))?")
_NAMES = ("dense", "range", "compressed", "singleton", "structured")  # a range is stored as a dense level is
_STEP = re.compile(r"(floordiv|mod)\s+(\d{1,19})")
_STEPS = rf"(?:[)\s]*\b{_STEP.pattern.replace('(', '(?:')})*"
_EXPRESSION = re.compile(rf"[(\s]*(\w+)(?:\s*-\s*(\w+)(?=\s*\)|\s*$))?({_STEPS})[)\s]*")  # ( stands first
_DIGIT = re.compile(r"(\d+)(?:-(\d+))?(?:/(\d+))?(?:%(\d+))?")
_UST: Sequence[tuple[str, Any]] = (  # a pattern of UST, and the text of MLIR
    (r"^\s*\[(.*?)\]\s*->", r"(\1) ->"),
    (r"% (\d+)\): \(<LevelFormat\.STRUCTURED>, (\d+)\)", r"mod \1) : structured[\2, \1]"),
    (r"\(<LevelFormat\.(\w+)>, (?:\(([^()]*)\)|([^()]*))\)", r"\1(\2\3)"),
    (r"<Level(?:Format|Property)\.(\w+)>", r"\1"),
    (r"SINGLETON(?=, \w+: SINGLETON)", "SINGLETON(NONUNIQUE)"),
    (r"\b[A-Z]+\b", lambda word: word[0].lower()),
    ("//", "floordiv"),
    ("%", "mod"),
)
_TACO = {"sparse": "compressed", "not_unique": "nonunique", "not_ordered": "nonordered"}
_MODES = re.compile(r"(?:Format(?:\s+\w+)?)?\s*(\()?\s*\{(.*?)\}\s*(?:,\s*\{([\d,\s]*)\}\s*)?(?(1)\))", re.DOTALL)
_FINCH = {
    "Dense": "dense", "SparseList": "sparse", "SparseCOO{}": "sparse{}", "SparseByteMap": "bitmap",
    "SparseRunList": "run", "SparseBand": "band", "SparseDict": "hashed",
}  # fmt: skip
_LEVEL = re.compile(r"(?!Element|Pattern)(\w+)(?:\{(\d{1,5})\})?\((.*)\)", re.DOTALL)
_SWIZZLED = re.compile(r"\s*swizzle\((.*?)((?:,\s*\d{1,5}\s*)+)\)\s*", re.DOTALL)
_LAST = re.compile(r"Element\(\s*(?:-?0+(?:\.0*)?|false)\s*\)|Pattern\(\s*\)")


def split(text: str) -> list[str]:
    """Split at the commas outside of parentheses and brackets; no text has no items."""
    items, depth = [""], 0
    for c in text:
        depth += (c in "([") - (c in ")]")
        if c == "," and depth <= 0:
            items.append("")
        else:
            items[-1] += c
    return items if text.strip() else []


def from_mlir(text: str) -> str:
    """The notation of this package. Raises FormatError for what its levels cannot be.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> from_mlir("(i, j) -> (j : dense, i : compressed)")
    'dense, sparse @ 1, 0'
    """
    if encoding := _ENCODING.fullmatch(text):
        parts = dict(re.split(r"\s*=\s*", item.strip(), maxsplit=1) for item in split(encoding[1]) if "=" in item)
        if unknown := parts.keys() - {"map", "posWidth", "crdWidth"}:  # widths follow from the tensor here
            raise FormatError(f"no format has {min(unknown)}; leave it out")
        text = parts.get("map", "")
    if (match := _MAPPING.fullmatch(text)) is None:
        raise FormatError("expected dimensions and levels, such as (d0, d1) -> (d0 : dense, d1 : compressed)")
    names = [name.strip() for name in match[1].split(",")] if match[1].strip() else []
    if len(set(names)) < len(names) or not all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in names):
        raise FormatError(f"expected names of dimensions, each once, got ({match[1]:.60})")
    levels: list[str] = []
    digits: list[str] = []
    listed = 0  # how many levels of a list of coordinates stand before this one
    for item in split(match[2]):
        expression, colon, kind = item.rpartition(":")
        found = _TYPE.fullmatch(kind.strip())
        if not colon or found is None:
            raise FormatError(f"expected a level such as d0 : dense, got {item.strip()!r:.60}")
        name, n, m = found[1], found[2], found[3]
        properties = {word.strip() for word in (found[4] or "").split(",")} - {"", "soa", "unique", "ordered"}
        digits.append(_to_digit(expression, names))
        if name not in _NAMES or (name == "structured") != (n is not None):
            raise FormatError(f"no level of this package is {kind.strip()!r:.60}")
        if name == "range" and not any(digit.endswith(f"-{digits[-1]}") for digit in digits):
            raise FormatError(f"{item.strip()!r:.60} has to be the dimension that a level above subtracts")
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
            levels.append("sparse" if name == "compressed" else "dense")
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

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> to_mlir((bl.Dense(), bl.Sparse()), ["1", "0"], 2)
    '#sparse_tensor.encoding<{ map = (d0, d1) -> (d1 : dense, d0 : compressed) }>'
    """
    left = iter(digits)
    items = [item for level in levels for item in _items(level, [_from_digit(next(left)) for _ in range(level.rank)])]
    map = f"({', '.join(f'd{k}' for k in range(rank))}) -> ({', '.join(items)})"
    return f"#sparse_tensor.encoding<{{ map = {map} }}>"


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
            raise FormatError(f"{level} has no name there")


def _from_digit(digit: str) -> str:
    match = _DIGIT.fullmatch(digit)
    if match is None:
        raise FormatError(f"the map merges {digit} in one dimension, which has no notation there")
    text = f"d{match[1]}" + (f" - d{match[2]}" if match[2] else "")
    for word, number in (("floordiv", match[3]), ("mod", match[4])):
        if number:
            text = f"({text}) {word} {number}" if " " in text else f"{text} {word} {number}"
    return text


def _from_ust(text: str) -> str:
    for pattern, replacement in _UST:
        text = re.sub(pattern, replacement, text)
    return from_mlir(text)


def _from_taco(text: str) -> str:
    found = _MODES.fullmatch(re.sub(r"\(\{([A-Z_][A-Z_,\s]*)\}\)", r"(\1)", text.replace("ModeFormat::", "")).strip())
    modes = split(found[2]) if found else []
    order = [f"d{k}" for k in range(len(modes))]
    levels = order if found is None or found[3] is None else [f"d{k.strip()}" for k in split(found[3])]
    if found is None or len(levels) != len(modes):
        raise FormatError("expected modes and their order, such as {Dense, Compressed}, {1, 0}")
    modes = [re.sub(r"\w+", lambda word: _TACO.get(word[0].lower(), word[0].lower()), mode) for mode in modes]
    return from_mlir(f"({', '.join(order)}) -> ({', '.join(map(' : '.join, zip(levels, modes, strict=True)))})")


def _to_taco(levels: Sequence[Level], digits: Sequence[str], rank: int) -> str:
    order, text = _order(digits, rank), to_mlir(levels, digits, rank)
    modes = re.findall(r" : ([a-z]+)(\(nonunique\))?", text)
    if "structured" in text:
        raise FormatError("n_of_m has no name there")
    listed = ", ".join(kind.capitalize() + "(ModeFormat::NOT_UNIQUE)" * bool(more) for kind, more in modes)
    return f"{{{listed}}}" + (f", {{{', '.join(digits)}}}" if order != sorted(order) else "")


def _from_finch(text: str) -> str:
    swizzled, levels, rank = _SWIZZLED.fullmatch(text), [], 0
    left = re.sub(r"^\s*Tensor\((.*)\)\s*$", r"\1", swizzled[1] if swizzled else text, flags=re.DOTALL).strip()
    while found := _LEVEL.fullmatch(left):
        name, listed, left = found[1], found[2], found[3].strip()
        if (own := _FINCH.get(name + "{}" * (listed is not None))) is None:
            raise FormatError(f"no level of this package is {name:.60}")
        levels.append(own.replace("{}", f"({listed})"))
        rank += int(listed or 1)
    dims = [int(k) - 1 for k in swizzled[2].split(",")[1:]] if swizzled else [*range(rank)]
    if not _LAST.fullmatch(left) or sorted(dims) != [*range(rank)]:
        raise FormatError(f"expected levels around Element(0.0), and all dimensions in swizzle, got {left:.60}")
    chain, order = ", ".join(levels) or "element", [dims.index(k) for k in range(rank)[::-1]]  # the last is outermost
    return chain if order == sorted(order) else f"{chain} @ {', '.join(map(str, order))}"


def _to_finch(levels: Sequence[Level], digits: Sequence[str], rank: int) -> str:
    order, text, names = _order(digits, rank), "Element(0.0)", {own: name for name, own in _FINCH.items()}
    for level in reversed(canonical(tuple(levels))):
        if (name := names.get(re.sub(r"\(\d+\)$", "{}", str(level)))) is None:
            raise FormatError(f"{level} has no name there")
        text = f"{name.replace('{}', f'{{{level.rank}}}')}({text})"
    dims = [rank - order.index(k) for k in range(rank)]
    return text if dims == sorted(dims) else f"swizzle({text}, {', '.join(map(str, dims))})"


def _order(digits: Sequence[str], rank: int) -> list[int]:
    if sorted(digits) != sorted(map(str, range(rank))):
        raise FormatError(f"the map {', '.join(digits):.60} has no notation there")
    return [int(digit) for digit in digits]


# For each system a pattern that its texts contain, its text in the notation of this package, and the way back.
_SYSTEMS: dict[str, tuple[str, Callable[[str], str], Callable[..., str] | None]] = {
    "ust": (r"LevelFormat|^\s*\[.*\]\s*->", _from_ust, None),  # which reads no text
    "mlir": ("->|#", from_mlir, to_mlir),
    "finch": (r"\b(?:Element|Pattern)\(", _from_finch, _to_finch),
    "taco": (r"\{", _from_taco, _to_taco),
}
WRITERS = {system: write for system, (_, _, write) in _SYSTEMS.items() if write}


@lru_cache(256)  # every call with a notation asks
def translated(text: str) -> str:
    """A notation of another system in that of this package, and any other text as it is. Raises FormatError.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> translated("{Dense, Compressed}, {1, 0}")
    'dense, sparse @ 1, 0'
    """
    return next((read(text) for mark, read, _ in _SYSTEMS.values() if re.search(mark, text)), text)
