"""Rooms above this one, which import it: they are imported when they are called."""

from __future__ import annotations

import functools
import importlib
from typing import Any

_PACKAGE = __package__.rpartition(".")[0]


@functools.cache
def above(module: str, name: str) -> Any:
    """A function of a module of this package."""
    return getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name)
