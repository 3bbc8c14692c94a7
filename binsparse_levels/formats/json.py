"""Strict JSON, limited in length and depth."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from ..errors import DescriptorError, LimitError, Problem
from ..limits import Limits

RESERVED = "binsparse_levels:"  # the prefix of names of this package
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)


def load_json(text: str | bytes, limits: Limits, *, constants: bool = False) -> Any:
    """Parse strict JSON: UTF-8, no duplicate keys, no NaN or infinity. Length and depth are limited before parsing.

    constants: accept the bare words NaN and Infinity. Raises DescriptorError or LimitError.
    """
    text = checked_text(text, limits)
    try:
        return (_WITH_CONSTANTS if constants else _STRICT).decode(text)
    except json.JSONDecodeError as error:
        raise DescriptorError(Problem("binsparse", f"not JSON: {error}")) from None
    except RecursionError:
        raise LimitError(Problem("binsparse", "nested deeper than this Python can parse")) from None


def checked_text(text: str | bytes, limits: Limits) -> str:
    """The text of a JSON header, within the limits of length and depth. Raises DescriptorError, LimitError."""
    limits.hold("header_bytes", len(text), "binsparse", "the length of the JSON header")
    try:
        text = text.decode() if isinstance(text, bytes) else text
        text.encode()  # bytes that a library could not decode are lone surrogates
    except UnicodeError as error:
        raise DescriptorError(Problem("binsparse", f"not UTF-8: {error}")) from None
    if text.count("[") + text.count("{") > limits.nesting:  # otherwise the depth is within the limit
        limits.hold("nesting", _depth(text), "binsparse", "the depth of the JSON header")
    return text


def _depth(text: str) -> int:
    """The deepest nesting of brackets outside of strings."""
    brackets = re.findall(r"[][{}]", _STRING.sub("", text))
    return max(accumulate(map(_STEPS.__getitem__, brackets), initial=0))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise DescriptorError(Problem(name[:60], "this key occurs twice; remove one"))
    return members


def _no_constant(name: str) -> Any:
    raise DescriptorError(Problem("binsparse", f"{name} is not JSON"))


def _integer(digits: str) -> int:
    if len(digits) > 40:
        raise DescriptorError(Problem("binsparse", f"an integer of {len(digits)} digits"))
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise DescriptorError(Problem("binsparse", f"{digits[:40]} is out of range"))
    return number


def _decoder(constant: Callable[[str], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_object, parse_constant=constant, parse_int=_integer, parse_float=_float)


_STRICT, _WITH_CONSTANTS = _decoder(_no_constant), _decoder(float)  # making a decoder takes as long as parsing a header
