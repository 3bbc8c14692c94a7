"""What rooms above this one do for tensors. The package registers how to find it, so that nothing here names them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from ..errors import ContainerError, Problem
from ..limits import Limits

_registered: list[tuple[Callable[[str], Any], Collection[str]]] = []


def register(find: Callable[[str], Any], public: Collection[str]) -> None:
    """Find functions of rooms above by their names with this function, which may import them only then.

    public: the names of the package.
    """
    _registered[:] = [(find, public)]


@functools.cache
def above(name: str) -> Any:
    """A function of a room above."""
    return _registered[0][0](name)


def functions() -> list[str]:
    """The names of the public functions. None is imported."""
    return [name for name in _registered[0][1] if name.islower()]


@dataclass(frozen=True)
class Origin:
    """Where a tensor was opened, so that another process can open it again, and whether the file is still the same."""

    place: str
    token: str


def reopened(origin: Origin, limits: Limits) -> Any:
    """The tensor at a place. Raises ContainerError where the file is another by now."""
    tensor = above("open")(origin.place, limits=limits)
    if tensor._held.stored.origin != origin:
        raise ContainerError(Problem(origin.place, "the file has changed since the tensor was opened; open it again"))
    return tensor
