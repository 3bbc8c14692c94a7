"""The tables `obs` and `var` of AnnData, whose indices name the rows and columns of its matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ...errors import ContainerError, PathMissingError
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


def index_of(at: Opener, axis: str) -> tuple[Group, str]:
    """The group and the name of the array of texts that name the rows of a table. Raises ContainerError, ArrayError."""
    table = at(axis)
    index = table.attribute_text("_index")
    try:
        table.one_dimension(index)
        return table, index
    except PathMissingError:
        raise
    except ContainerError:  # a group: texts that may be missing, of which an index has none
        pass  # what is opened in here would keep the error, and with it the file
    return at(f"{axis}/{index}"), "values"
