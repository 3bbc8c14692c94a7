"""Matrices of loom in HDF5, read only: the dense `matrix`, and `layers`, of genes × cells with their names."""

from __future__ import annotations

import contextlib
from typing import Any

from ...errors import ArrayError, Problem
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.labels import Column
from ..interface import FileTensor, Foreign
from .names import labelled
from .sources import Group, open_group

# The attributes with the names, by preference: those of loompy, of scanpy, and of others.
_NAMES = {"row_attrs": ("Gene", "var_names", "Accession"), "col_attrs": ("CellID", "obs_names", "Cell")}


def claims(group: Any) -> list[str]:
    """The matrices in a group that has attributes of columns, too."""
    if "col_attrs" not in group:
        return []
    with contextlib.ExitStack() as closing:
        source = open_group(group, None, DEFAULT_LIMITS, closing)
        layers = open_group(group, "layers", DEFAULT_LIMITS, closing) if source.has("layers") else None
        names = [] if layers is None else [name for name in layers.reader.group if layers.is_array(name)]
        return ["matrix"] * source.is_array("matrix") + [f"layers/{name}" for name in names]


def look(file: Any, closing: contextlib.ExitStack, *, group: str | None = None, limits: Limits) -> FileTensor:
    """A matrix, by default `matrix`, with lazy cells. Raises ContainerError, ArrayError."""

    def at(path: str) -> Group:
        return open_group(file, path, limits, closing)

    base = group or ""
    above, _, name = base.rpartition("/")
    if name and (outer := at(above)).is_array(name):
        base = above if outer.has("row_attrs") else above.rpartition("/")[0]
    else:
        above, name = base, "matrix"
    cells, shape = at(above).cells(name)
    if len(shape) != 2:
        raise ArrayError(Problem(name, f"expected a matrix, got shape {shape}"))

    def names(axis: str, size: int) -> Column | None:
        attributes = at(f"{base}/{axis}")
        known = next((x for x in _NAMES[axis] if attributes.has(x)), None)
        column = None if known is None else attributes.names(known)
        if column is not None and len(column) != size:
            raise ArrayError(Problem(f"{axis}/{known}", f"expected {size} names, got {len(column)}"))
        return column

    labels = labelled(("gene", "cell"), [names(axis, size) for axis, size in zip(_NAMES, shape, strict=True)])
    return FileTensor("dense, dense", shape, {}, cells, {}, {"values": name}, labels)


FUNCTIONS = Foreign(look=look, claims=claims)
