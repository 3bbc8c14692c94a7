"""The state of a tensor: a backing and metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..engine.tree import Tree
from .backing import Backing
from .labels import Labels
from .validation import pad_of


@dataclass(frozen=True, eq=False)
class Metadata:
    """The metadata of a tensor, in the coordinates of the tensor.

    attributes: the user's JSON. descriptor_attributes: the same inside the descriptor (section 3.9). labels: the names
    of the dimensions, and labels of coordinates.
    """

    fill_value: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    descriptor_attributes: Mapping[str, Any] = field(default_factory=dict)
    labels: Labels | None = None


@dataclass(eq=False, slots=True)
class Inside:
    """The state of one tensor, which `inside` of `tensor.py` returns. file: closes the file of `open`."""

    backing: Backing
    metadata: Metadata
    file: Callable[[], Any] | None = None

    @property
    def pad(self) -> Any:
        """The value of cells that are not stored: the fill value, or zero."""
        return pad_of(self.metadata.fill_value, self.backing.dtype)

    @property
    def own(self) -> Backing:
        """The backing in memory. The first access reads and checks a lazy tree, and packs the tree of a view."""
        return self.backing.own(self.pad)

    @property
    def tree(self) -> Tree:
        """The stored tree in memory, as that of `own`, with an array of values."""
        return self.in_memory.plain

    @property
    def in_memory(self) -> Tree:
        """The stored tree in memory. Its values may be a dictionary."""
        return self.own.stored.tree

    @property
    def source(self) -> Tree:
        """The tree of the backing, perhaps lazy; for a view, that of the whole tensor. Nothing is read."""
        return self.backing.stored.tree
