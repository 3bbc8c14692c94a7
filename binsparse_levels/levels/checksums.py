"""A checksum of the source of functions, as a version of code without a version number."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Mapping
from types import CodeType
from typing import Any


def checksum(*functions: Any) -> str:
    """A checksum of the source of functions, plain or compiled."""
    text = "".join(_text(getattr(function, "py_func", function)) for function in functions)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def marks(functions: Mapping[str, Any]) -> str:
    """A comment with the module and the checksum of each function that a text calls.

    The machine code of the text contains the functions, and is loaded only if their modules can be imported.
    """
    return "".join(f"# {name} of {x.__module__}: {checksum(x)}\n" for name, x in functions.items())


def _text(function: Any) -> str:
    """The syntax tree of a function, without comments and layout, or its byte code if the source is unknown."""
    try:
        return ast.dump(ast.parse(textwrap.dedent(inspect.getsource(function))))
    except (OSError, TypeError, SyntaxError):
        code = function.__code__
        return repr((code.co_code, code.co_names, [x for x in code.co_consts if not isinstance(x, CodeType)]))
