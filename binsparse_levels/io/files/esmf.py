"""Weights of ESMF, xESMF and others, which regrid from a source to a destination, in NetCDF, read only.

`row` and `col` are the cells of the destination and of the source, from 1, and `S` the weights. The sizes are those of
the dimensions `n_b` and `n_a`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from ...containers import hdf5
from ...errors import ContainerError, OptionError, Problem
from ...formats.shapes import checked_shape
from ...limits import Limits
from ..interface import FileTensor, Foreign
from .variables import Variables, opened

_SIZES = ("n_b", "n_a")
_NAMES = {"indices_0": "row", "indices_1": "col", "values": "S"}


def claims(group: Any) -> list[str]:
    """The group itself, if it has all arrays of such a matrix."""
    return [""] * ({*_NAMES.values()} <= {*group.keys()})


def look(
    file: Any,
    closing: contextlib.ExitStack,
    *,
    group: str | None = None,
    shape: int | Sequence[int] | None = None,
    limits: Limits,
) -> FileTensor:
    """The matrix in a group as a list of coordinates in memory.

    shape: if the file does not have it, such as those of xESMF. Raises ContainerError, ArrayError, OptionError.
    """
    source = Variables(hdf5.walk(file, group), limits)
    sizes = tuple(source.size(name) for name in _SIZES if source.has(name))
    if len(sizes) == 2 and shape is not None:
        raise OptionError(Problem("shape", f"the file says {sizes[0]} × {sizes[1]}; leave it out"))
    if len(sizes) != 2 and shape is None:
        what = f"the file has no dimensions {' and '.join(_SIZES)}, the shape; pass shape= to read"
        raise ContainerError(Problem(str(source.reader.group.name), what))
    dims = sizes if shape is None else checked_shape([shape] if isinstance(shape, int) else shape)
    # They are read whole, and sorted: ESMF lists the four corners of a cell around it.
    arrays = {role: source.integers(_NAMES[role])[:] - 1 for role in ("indices_0", "indices_1")}
    return FileTensor("COOR", dims, arrays, source.numbers("S")[:], {}, _NAMES)


FUNCTIONS = Foreign(look=look, claims=claims, opened=opened)
