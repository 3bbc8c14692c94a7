"""Late imports of functions in higher layers. The package registers how to find them; no module here names them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from ..errors import ContainerError, Problem
from ..limits import Limits

_registered: list[tuple[Callable[[str], Any], Collection[str]]] = []


def register(find: Callable[[str], Any], public: Collection[str]) -> None:
    """Register a function that imports functions of higher layers by name. public: the names of the package."""
    _registered[:] = [(find, public)]


@functools.cache
def late_import(name: str) -> Any:
    """A function of a higher layer."""
    return _registered[0][0](name)


def functions() -> list[str]:
    """The names of the public functions. No function is imported."""
    return [name for name in _registered[0][1] if name.islower()]


@dataclass(frozen=True)
class Origin:
    """The file of an opened tensor. Another process opens it again and compares the token."""

    place: str
    token: str


def reopened(origin: Origin, limits: Limits) -> Any:
    """The tensor, opened again. Raises ContainerError if the file has changed."""
    tensor = late_import("open")(origin.place, limits=limits)
    if tensor._backing.stored.origin != origin:
        raise ContainerError(Problem(origin.place, "the file has changed since the tensor was opened; open it again"))
    return tensor
