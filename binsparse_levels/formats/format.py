"""Formats: a chain of levels and a transpose; their canonical form, names, and text notation.

A format is written as its levels from the outermost in, with an optional transpose behind an @:

    CSR        dense, sparse(2) @ 2, 0, 1        sparse        element        CSF @ 1, 2, 0

`element` alone is the format of a scalar; everywhere else the element level goes without saying. Functions that store a
tensor through an index map take it in the same text:

    dense, sparse, dense(2) through 0/4, 1/4, 0%4, 1%4

The notations of other systems, such as `(i, j) -> (i : dense, j : compressed)`, are taken too; see `notations`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from ..errors import BinsparseError, FormatError, OptionError, Problem, did_you_mean, raise_if
from ..levels import LEVELS, Dense, Level, Sparse, canonical, listing
from ..levels.base import OWN, described, package_of
from ..levels.registry import kind_named, kind_stored
from ..limits import as_integer, as_integers
from .names import Aliases, Synonyms
from .notations import WRITERS, split, translated
from .shapes import permutation_problems


def coordinates(rank: int) -> Format:
    """The format that lists all coordinates of every entry, in the order of the dimensions."""
    return Format(listing(rank))


def in_order(levels: tuple[Level, ...], order: Sequence[int]) -> Format:
    """The format of these levels where stored dimension k is dimension order[k]."""
    return Format(levels, None if list(order) == list(range(len(order))) else tuple(order))


@dataclass(frozen=True)
class Format:
    """A storage format: levels over the stored dimensions, and a transpose.

    Parameters
    ----------
    levels : tuple of Level
        The levels from the root down; their ranks add up to the rank of the tensor.
    transpose : tuple of int, optional
        Stored dimension k is dimension transpose[k] of the tensor. None: the identity.

    See Also
    --------
    parse_format : Parse the notation of a format.
    IndexMap : A map from the coordinates of a tensor to those of the stored tensor.

    Notes
    -----
    Two formats store the same bytes if their `canonical()` formats are equal. A format equals a notation of the same
    bytes. `str` is the notation, and `parse_format` reads it. Raises FormatError for a transpose that is no permutation
    of the dimensions.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> print(bl.Format((bl.Dense(), bl.Sparse())), bl.Format((bl.Sparse(2), bl.Dense()), (2, 0, 1)), sep="; ")
    CSR; sparse(2), dense @ 2, 0, 1
    >>> bl.Format((bl.Dense(), bl.Sparse())) == "CSR"
    True
    """

    levels: tuple[Level, ...]
    transpose: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        # A frozen dataclass parses its lists here, so that formats hash however they were spelled.
        if not isinstance(self.levels, Iterable):
            raise OptionError(f"levels are a sequence of Level, got {self.levels!r:.40}; see parse_format")
        object.__setattr__(self, "levels", tuple(self.levels))
        for level in self.levels:
            if not isinstance(level, Level):
                raise OptionError(f"levels are of class Level, got {level!r:.40}; see parse_format")
        if self.transpose is not None:
            if not isinstance(self.transpose, Iterable):
                raise OptionError(f"a transpose is a permutation, got {self.transpose!r:.40}; list the dimensions")
            object.__setattr__(self, "transpose", as_integers(self.transpose))
            raise_if(FormatError, permutation_problems(self.transpose, self.rank))

    def __eq__(self, other: Any) -> bool:
        if other.__class__ is Format:
            same: bool = self is other or (self.levels == other.levels and self.transpose == other.transpose)
            return same
        if isinstance(other, str):
            with contextlib.suppress(BinsparseError):
                return self._canonical == parse_format(other, self.rank)._canonical
            return False
        return NotImplemented

    @cached_property
    def rank(self) -> int:
        """The number of dimensions of a tensor of this format."""
        return sum(level.rank for level in self.levels)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The tensor's dimension at each stored dimension: the transpose, or else the identity."""
        return tuple(range(self.rank)) if self.transpose is None else self.transpose

    @property
    def padded(self) -> bool:
        """True if the last level stores coordinates that were not entries."""
        return bool(self.levels) and self.levels[-1].padded

    @property
    def alias(self) -> str | None:
        """The predefined name of a format that stores the same bytes, or None."""
        return _NAMES.get(self.canonical()) if self.rank <= 2 else None

    def canonical(self) -> Format:
        """The simplest format that stores the same bytes: dense levels split, no identity transpose.

        Returns
        -------
        Format
            Format with split dense levels and no identity transpose.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> print(bl.Format((bl.Dense(2),)).canonical())
        DMATR
        """
        return self._canonical

    @cached_property
    def _canonical(self) -> Format:
        levels = canonical(self.levels)
        identity = self.order == tuple(range(self.rank))
        return Format(levels, None if identity else self.transpose)

    def custom(self) -> dict[str, Any]:
        """The `custom` object of a descriptor, spelled as the format is.

        Returns
        -------
        dict
            JSON object with the key `level`, and `transpose` if the format has one.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.Format((bl.Sparse(),)).custom()
        {'level': {'level_desc': 'sparse', 'rank': 1, 'level': {'level_desc': 'element'}}}
        """
        tree: dict[str, Any] = {"level_desc": "element"}
        for level in reversed(self.levels):
            tree = {**described(level), "level": tree}
        return {"level": tree} if self.transpose is None else {"level": tree, "transpose": list(self.transpose)}

    def to_notation(self, system: str, map: Any = None) -> str:
        """The format in the notation of another system, which `parse_format` reads.

        Parameters
        ----------
        system : str
            "mlir", "taco" or "finch" (Finch.jl).
        map : str or IndexMap, optional
            What the tensor is stored through.

        Returns
        -------
        str
            Text that the system reads.

        Raises
        ------
        FormatError
            The system has no notation for the format or the map.
        OptionError
            There is no such system.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> for system in ("mlir", "taco", "finch"):
        ...     print(bl.parse_format("CSC").to_notation(system))
        #sparse_tensor.encoding<{ map = (d0, d1) -> (d1 : dense, d0 : compressed) }>
        {Dense, Compressed}, {1, 0}
        Dense(SparseList(Element(0.0)))
        """
        if system not in WRITERS:
            raise OptionError(Problem("system", f"expected one of {', '.join(WRITERS)}, got {system!r:.40}"))
        digits = [str(k) for k in range(self.rank)] if map is None else [x.strip() for x in str(map).split(",")]
        rank = len(set(re.findall(r"(?<![/%0-9])[0-9]+", " ".join(digits))))
        return WRITERS[system](self.levels, [digits[k] for k in self.order], rank)

    def __str__(self) -> str:
        name = _NAMES.get(self)
        if name is not None:
            return name
        text = ", ".join(map(str, self.levels)) or "element"
        if self.transpose is not None:
            text += " @ " + ", ".join(map(str, self.transpose)) if self.transpose else " @"
        return text


ALIASES: Aliases[Format] = Aliases(
    {
        "DVEC": Format((Dense(),)),
        "DMATR": Format((Dense(), Dense())),
        "DMATC": Format((Dense(), Dense()), (1, 0)),
        "CVEC": Format((Sparse(),)),
        "CSR": Format((Dense(), Sparse())),
        "CSC": Format((Dense(), Sparse()), (1, 0)),
        "DCSR": Format((Sparse(), Sparse())),
        "DCSC": Format((Sparse(), Sparse()), (1, 0)),
        "COOR": Format((Sparse(2),)),
        "COOC": Format((Sparse(2),), (1, 0)),
    }
)
# Of these the text forbids fibers without an entry, which a tree of the same levels may have (section 3.5.1).
NO_EMPTY_FIBERS = ("DCSR", "DCSC")
SYNONYMS = Synonyms(DMAT="DMATR", COO="COOR")
_NAMES = {format: name for name, format in ALIASES.items()}
# Families of formats: their names stand for a format of every rank.
FAMILIES: dict[str, Callable[[int], Format]] = {
    "COO": coordinates,
    "CSF": lambda rank: Format(listing(1) * rank),
}

FormatLike: TypeAlias = Format | str | Mapping[str, Any]


def parse_format(format: FormatLike, rank: int | None = None) -> Format:
    """A Format from its notation, from a Binsparse `custom` object, or from a Format.

    Parameters
    ----------
    format : str, Format or mapping
        Names of formats and of level kinds may be in any case. The notation may be that of another system; see
        `Format.to_notation`.
    rank : int, optional
        The number of dimensions, which `CSF` (sparse levels) and `COO` (a list of coordinates) follow. Without a rank,
        `COO` is that of a matrix, as in Binsparse, and `CSF` is refused. The rank of other formats is their own.

    Returns
    -------
    Format
        Format.

    Raises
    ------
    FormatError
        The notation is not valid.
    OptionError
        An argument has another type.

    See Also
    --------
    parse_map : Parse the notation of a map.
    Format : A storage format, as levels and a transpose.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.parse_format("dense, sparse").alias
    'CSR'
    >>> print(bl.parse_format("csf", rank=3), bl.parse_format("coo", rank=3), sep="; ")
    sparse, sparse, sparse; sparse(3)
    """
    if rank is not None and as_integer(rank) is None:
        raise OptionError(Problem("rank", f"expected the number of dimensions, got {rank!r:.40}"))
    if isinstance(format, Format):
        return format
    if isinstance(format, str):
        return _parse_notation(format, rank, tuple(LEVELS.values()))
    if isinstance(format, Mapping):
        return parse_custom(format)
    raise OptionError(f"a format is a Format, its notation, or a custom object, got {type(format).__name__}")


def with_map(format: FormatLike, map: Any = None) -> tuple[FormatLike, Any]:
    """The levels and the map of the notation `LEVELS through MAP`; what else is passed is returned.

    Raises FormatError where `map` is passed too.

    >>> with_map("(i) -> (i floordiv 8 : compressed, i mod 8 : dense)")
    ('sparse, dense', '0/8, 0%8')
    """
    if not isinstance(format, str):
        return format, map
    parts = _THROUGH.split(_own(format), maxsplit=1)
    if not parts[1:]:
        return format, map
    if map is not None:
        raise FormatError(Problem(repr(format), "has a map; leave out map="))
    return parts[0].strip(), parts[1].strip()


def notation(format: Format, map: Any = None) -> str:
    """A format as text, with its map if there is one; `with_map` takes it apart."""
    return str(format) if map is None else f"{format} through {map}"


def named(name: str) -> Format | None:
    """The predefined format of that name or synonym, or None."""
    return ALIASES.get(SYNONYMS.get(name, name))


_THROUGH = re.compile(r"\bthrough\b")
_LEVEL = re.compile(r"\s*([A-Za-z_][\w.:-]*)\s*(?:\(([^()]*)\))?\s*")


@lru_cache(256)  # every call with a notation asks
def _parse_notation(text: str, rank: int | None, kinds: tuple[type[Level], ...]) -> Format:
    text = _own(text)
    if _THROUGH.search(text):
        raise FormatError(Problem(repr(text), "no map is taken here; pass the levels alone"))
    chain, at, order = text.partition("@")
    name = chain.strip().upper()
    transpose: tuple[int, ...] | None = None
    if at:
        items = [item.strip() for item in order.split(",")] if order.strip() else []
        if not all(re.fullmatch(r"[0-9]{1,9}", item) for item in items):
            raise FormatError(Problem(repr(text), f"expected integers after the @, got {order.strip()!r}"))
        transpose = tuple(map(int, items))
    if rank is None and at and name in FAMILIES:
        rank = len(items)
    format = FAMILIES[name](rank) if name in FAMILIES and rank is not None else named(name)
    if format is None and name in FAMILIES:
        what = f"{name} follows the number of dimensions; pass rank=, or write its levels, such as {FAMILIES[name](3)}"
        raise FormatError(Problem(repr(text), what))
    if format is not None:
        if not at:
            return format
        if format.transpose is not None:
            spelled = ", ".join(map(str, format.levels))
            raise FormatError(Problem(repr(text), f"{name} has a transpose of its own; write its levels, {spelled}"))
    try:
        if format is not None:
            return Format(format.levels, transpose)
        levels = () if chain.strip() == "element" else tuple(_parse_level(item) for item in split(chain) or [chain])
        return Format(levels, transpose)
    except BinsparseError as error:
        raise FormatError(
            [Problem(f"{text!r}: {p.path}" if p.path else repr(text), p.message) for p in error.problems]
        ) from None


def _own(text: str) -> str:
    """The notation of this package for that of another system."""
    try:
        return translated(text)
    except FormatError as error:
        raise FormatError([Problem(repr(text), problem.message) for problem in error.problems]) from None


def _parse_level(text: str) -> Level:
    match = _LEVEL.fullmatch(text)
    if not match:
        raise FormatError(f"expected a level such as sparse or sparse(2), got {text.strip()!r}")
    kind, inner = match.groups()
    if (known_kind := kind_named(kind)) is None:
        meant = did_you_mean(kind, [*LEVELS, *ALIASES, *SYNONYMS, *FAMILIES])
        meant = "advise(tensor).best in Python finds the best; " if kind == "best" else meant
        known = f"level kinds are {', '.join(LEVELS)}, formats {', '.join(ALIASES)}"
        what = f"{kind!r:.60} is no level kind, and no format alone; {meant}{known}"
        raise FormatError(f"{what}; a kind of a plug-in needs the package that has it")
    settings: dict[str, Any] = {}
    for place, item in enumerate(inner.split(",") if inner is not None and inner.strip() else []):
        name, equals, value = item.rpartition("=")
        name = name.strip() if equals else "rank"
        if not equals and place:
            raise FormatError(f"expected name=value, got {item.strip()!r}")
        if name in settings:
            raise FormatError(f"{name} is given twice")
        settings[name] = _parse_value(value.strip())
    return make_level(known_kind, settings)


def _parse_value(text: str) -> int | float | bool | str:
    if text in ("True", "False"):
        return text == "True"
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def make_level(kind: type[Level], settings: Mapping[str, Any]) -> Level:
    """A level of this kind with these parameters. Raises FormatError for parameters that the kind does not have."""
    known = {field.name for field in fields(kind)}
    raise_if(
        FormatError,
        [Problem(str(name), f"a {kind.kind} level has no such key") for name in settings if name not in known],
    )
    return kind(**settings)


def parse_custom(custom: Mapping[str, Any], path: str = "custom", at: str = "") -> Format:
    """The format of a `custom` object. Raises FormatError with the path of every problem, such as custom.level.rank.

    path: of the object. at: of its first level, by default `level` of the object. Parses the levels in a loop, so that
    the stack does not limit their depth.
    """
    problems = [Problem(f"{path}.{key}", "no such key") for key in custom if key not in ("level", "transpose")]
    levels: list[Level] = []
    complete = True
    tree: Any = custom.get("level")
    at = at or f"{path}.level"
    while True:
        if not isinstance(tree, Mapping):
            problems.append(Problem(at, "missing" if tree is None else f"expected an object, got {tree!r:.60}"))
            complete = False
            break
        desc = tree.get("level_desc")
        if desc == "element":
            problems += [
                Problem(f"{at}.{key}", "an element level has no such key") for key in tree if key != "level_desc"
            ]
            break
        settings = {key: value for key, value in tree.items() if key not in ("level_desc", "level", "version")}
        faults = [Problem(key, "missing") for key in ("level_desc", "rank") if key not in tree]
        try:
            raise_if(FormatError, faults)
            kind = kind_stored(str(desc), tree.get("version", 0))
            if "version" in tree and package_of(kind) == OWN:
                settings["version"] = tree["version"]
            levels.append(make_level(kind, settings))
        except BinsparseError as error:
            problems += [Problem(f"{at}.{p.path or 'level_desc'}", p.message) for p in error.problems]
            complete = False
        if "level" not in tree:
            problems.append(Problem(f"{at}.level", "missing"))
            complete = False
            break
        tree, at = tree["level"], f"{at}.level"
    transpose = custom.get("transpose")
    if "transpose" in custom:
        wrong = permutation_problems(transpose, sum(level.rank for level in levels) if complete else None)
        problems += [Problem(f"{path}.{p.path}", p.message) for p in wrong]
    raise_if(FormatError, problems)
    return Format(tuple(levels), None if transpose is None else tuple(transpose))
