"""The tables `obs` and `var` of AnnData, whose indices name the rows and columns of its matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ...errors import ArrayError, ContainerError, PathMissingError
from ...tensors.labels import Column
from .sources import Group

Opener: TypeAlias = Callable[[str], Group]
Axes: TypeAlias = tuple[str | None, str | None]

# The tables that name the rows and the columns of a matrix, by the group it is in. Other matrices are of obs and var.
AXES: dict[str, Axes] = {
    "obsp": ("obs", "obs"),
    "varp": ("var", "var"),
    "obsm": ("obs", None),
    "varm": ("var", None),
    "raw": ("obs", "raw/var"),
}


def names_of(at: Opener, axis: str) -> list[str]:
    """The names along an axis. Raises ContainerError, ArrayError where they are not stored as texts."""
    table, index = _index(at, axis)
    return table.texts(index)


def labels_of(at: Opener, axis: str | None, size: int) -> Column | None:
    """The names along an axis of that size; None where they are no texts, or those of another matrix."""
    if axis is None:
        return None
    try:
        table, index = _index(at, axis)
        return table.labels(index, size)
    except (ContainerError, ArrayError):
        return None


def _index(at: Opener, axis: str) -> tuple[Group, str]:
    """The group and the name of the array of texts that name the rows of a table."""
    table = at(axis)
    index = table.attribute_text("_index")
    try:
        table.one_dimension(index)
    except PathMissingError:
        raise
    except ContainerError:  # a group: texts that may be missing, of which an index has none
        return at(f"{axis}/{index}"), "values"
    return table, index
