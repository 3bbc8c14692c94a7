"""Tables of BIOM 2 (QIIME) in HDF5, read only: observations × samples, with their ids.

`observation/matrix` stores the table by rows, and `sample/matrix` stores the same table by columns.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ...limits import Limits
from ...tensors.labels import Column
from ..file_tensors import Compression, FileTensor, compressed
from ..interface import Foreign
from .names import labelled
from .sources import Group, matrix_shape, open_group

_FORMATS: dict[str, Compression] = {"observation/matrix": "CSR", "sample/matrix": "CSC"}


def claims(group: Any) -> list[str]:
    """The table in both orders, if the group has the version of the format."""
    return [*_FORMATS] * ("format-version" in group.attrs and "sample" in group)


def look(file: Any, closing: contextlib.ExitStack, *, group: str | None = None, limits: Limits) -> FileTensor:
    """The table in one order, by default by rows, with lazy arrays. Raises ContainerError, ArrayError."""

    def inside(name: str) -> Group:
        return open_group(file, f"{base}/{name}", limits, closing)

    path = group or ""
    order = next((name for name in _FORMATS if f"/{path}".endswith(f"/{name}")), None)
    base = path if order is None else path.removesuffix(order)
    order = order or "observation/matrix"
    shape = matrix_shape(inside("").attribute("shape"), "shape")

    def ids(axis: str, size: int) -> Column | None:
        return inside(axis).labels("ids", size) if size else None  # no texts in an empty table

    labels = labelled(("observation", "sample"), [ids("observation", shape[0]), ids("sample", shape[1])])
    return compressed(_FORMATS[order], shape, inside(order).compressed(), labels)


FUNCTIONS = Foreign(look=look, claims=claims)
