"""Levels at the root of a tree that change the meaning of everything below. Programs that do not know them refuse it.

    binsparse_levels:parts      the tensor has several parts in groups, which the header lists
    binsparse_levels:packed     arrays contain words, in which integers are packed, or values are a table
    binsparse_levels:map        the levels below store another tensor, whose cells an index map finds in this tensor

They come before the first level that stores dimensions: `parts` alone, `packed` before `map`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..errors import DescriptorError, FormatError, Problem, raise_if
from .format import Format, parse_custom
from .index_map import IndexMap, parse_map
from .json import RESERVED

PARTS = f"{RESERVED}parts"  # also the key of the list, next to the descriptor
PACKED = f"{RESERVED}packed"
MAP = f"{RESERVED}map"  # also a key next to the descriptor of the stored tensor in older files
_DIGITS = re.compile(r"[0-9/%(), -]*")  # and no other white space


def rooted(custom: Mapping[str, Any], packed: bool, map: IndexMap | None, parts: bool = False) -> dict[str, Any]:
    """A `custom` object with the required levels at its root.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> from binsparse_levels.formats.extensions import rooted
    >>> rooted(bl.parse_format("sparse").custom(), False, bl.IndexMap.grouping((2, 3), (0, 1), ()))["level"]["digits"]
    '(0 1)'
    """
    level, transpose = custom["level"], {key: value for key, value in custom.items() if key == "transpose"}
    if map is not None:
        level = {"level_desc": MAP, "rank": len(map.shape), "digits": str(map), **transpose, "level": level}
        transpose = {}
    if packed or parts:
        level = {"level_desc": PARTS if parts else PACKED, "rank": 0, "level": level}
    return {"level": level, **transpose}


def parse_rooted(
    custom: Mapping[str, Any], shape: Sequence[int] | None, path: str
) -> tuple[Format, IndexMap | None, str | None]:
    """The format below the levels at the root of a `custom` object, the map, and the name of the first such level.

    shape: of the tensor, or None if it is unknown; then no map is parsed. path: of the object. Raises
    DescriptorError or FormatError with the path of every problem.
    """
    rest: dict[str, Any] = dict(custom)
    parent, at, map = path, f"{path}.level", None
    if (root := next((desc for desc in (PARTS, PACKED) if _is(rest.get("level"), desc)), None)) is not None:
        raise_if(DescriptorError, _problems(rest["level"], at, 0))
        rest["level"], at = rest["level"].get("level"), f"{at}.level"
    if root != PARTS and _is(rest.get("level"), MAP):
        level = rest["level"]
        rank = None if shape is None else len(shape)
        problems = list(_problems(level, at, rank, ("digits", "transpose")))
        if "transpose" in rest:
            problems.append(Problem(f"{path}.transpose", "with a map, it belongs to the map's level; move it there"))
        raise_if(DescriptorError, problems)
        map = None if shape is None else _parse_digits(level.get("digits"), shape, at)
        rest |= {key: level[key] for key in ("transpose",) if key in level}
        rest["level"], parent, at, root = level.get("level"), at, f"{at}.level", root or MAP
    return parse_custom(rest, parent, at), map, root


def _is(level: Any, desc: str) -> bool:
    return isinstance(level, Mapping) and level.get("level_desc") == desc


def _problems(level: Mapping[str, Any], at: str, rank: int | None, further: Collection[str] = ()) -> Iterator[Problem]:
    if rank is not None and (type(level.get("rank")) is not int or level["rank"] != rank):
        yield Problem(f"{at}.rank", f"expected {rank}, got {level.get('rank')!r:.40}")
    for key in level:
        if key not in ("level_desc", "rank", "level", *further):
            yield Problem(f"{at}.{key!s:.60}", "this level has no such key")


def _parse_digits(digits: Any, shape: Sequence[int], path: str) -> IndexMap:
    if not isinstance(digits, str) or not _DIGITS.fullmatch(digits):
        raise DescriptorError(Problem(f"{path}.digits", f"expected digits such as 0/2, 0%2, got {digits!r:.60}"))
    try:
        return parse_map(digits, shape)
    except FormatError as error:
        raise DescriptorError([Problem(f"{path}.digits", str(problem)) for problem in error.problems]) from None


def parse_older_map(value: Any, stored_shape: Sequence[int]) -> IndexMap:
    """The map next to the descriptor of the stored tensor in older files. Raises DescriptorError, LimitError."""
    if not isinstance(value, Mapping):
        raise DescriptorError(Problem(MAP, f"expected an object, got {value!r:.60}"))
    problems = [Problem(f"{MAP}.{key!s:.60}", "no such key") for key in value if key not in ("shape", "digits")]
    shape = value.get("shape")
    if not isinstance(shape, list) or not all(type(size) is int for size in shape):
        problems.append(Problem(f"{MAP}.shape", f"expected a list of integers, got {shape!r:.60}"))
    raise_if(DescriptorError, problems)
    assert isinstance(shape, list)
    try:
        map = _parse_digits(value.get("digits"), shape, MAP)
    except FormatError as error:
        raise DescriptorError([Problem(MAP, str(problem)) for problem in error.problems]) from None
    if map.stored_shape != tuple(stored_shape):
        what = f"is for a stored tensor of shape {map.stored_shape}, and this one has {tuple(stored_shape)}"
        raise DescriptorError(Problem(MAP, what))
    return map
