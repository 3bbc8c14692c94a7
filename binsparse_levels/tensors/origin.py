"""Where a tensor was opened, so that another process can open it again instead of getting its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import ContainerError, Problem
from ..limits import Limits
from .above import above


@dataclass(frozen=True)
class Origin:
    """Where a tensor was opened, and a token that tells whether the file is still the same."""

    place: str
    token: str


def reopened(origin: Origin, limits: Limits) -> Any:
    """The tensor at a place. Raises ContainerError where the file is another by now."""
    tensor = above("open")(origin.place, limits=limits)
    if tensor._held.stored.origin != origin:
        raise ContainerError(Problem(origin.place, "the file has changed since the tensor was opened; open it again"))
    return tensor
