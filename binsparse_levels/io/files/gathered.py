"""Variables of NetCDF that are compressed by gathering (CF conventions, 8.2), read only.

The attribute `compress` of a list of flat indices names the dimensions that they index. A variable along the dimension
of the list has these dimensions instead.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays import Array, LazyArray, lazy
from ...errors import ArrayError, ContainerError, Problem
from ...formats.index_map import IndexMap
from ...limits import Limits
from ...tensors.labels import Column, Labels, column_of
from ..interface import FileTensor, Foreign
from .variables import UNNAMED, Variables, opened


def claims(group: Any) -> list[str]:
    """The names of the gathered variables in a group."""
    source = Variables(group)
    names = [name for name in group.keys() if source.is_array(name)]  # noqa: SIM118 (`in group` follows links)
    lists = {name for name in names if _gathers(source, name)}
    return [name for name in names if len(lists.intersection(source.dims(name))) == 1 and name not in lists]


def list_groups(file: Any, limits: Limits) -> list[str]:
    return claims(file)


def _gathers(source: Variables, name: str) -> list[str]:
    """The names of the dimensions that a list of indices stands for, or an empty list."""
    names = source.attribute_of(name, "compress")
    return names.split() if isinstance(names, str) else []


def look(file: Any, closing: contextlib.ExitStack, *, group: str | None = None, limits: Limits) -> FileTensor:
    """A gathered variable, by default the only one. Raises ContainerError, ArrayError."""
    names = claims(file)
    if group not in names and (group is not None or len(names) != 1):
        what = f"expected one of {', '.join(names):.200}" if names else "no attribute 'binsparse', no gathered variable"
        raise ContainerError(Problem(group or str(file.name), f"{what}; list_tensors names the tensors of the file"))
    source, name = Variables(file, limits), group or names[0]
    own = source.dims(name)
    at = next(k for k, dim in enumerate(own) if dim and _gathers(source, dim))
    inner = _gathers(source, own[at])
    values, stored = source.cells(name)
    dims = [dim or f"dim_{k}" for k, dim in enumerate([*own[:at], *inner, *own[at + 1 :]])]
    shape = [*stored[:at], *(source.size(dim) for dim in inner), *stored[at + 1 :]]
    cuts = [k for k in range(1, len(shape)) if not at < k < at + len(inner)]
    map = IndexMap.grouping(shape, range(len(shape)), cuts)
    arrays = _places(source.integers(own[at])[:], stored, at)
    levels = ["dense"] * at + ["sparse"] + ["dense"] * (len(stored) - at - 1)
    labels = Labels(tuple(dims), _labels(source, dims), name)
    known = {f"indices_{at}": own[at], "values": name}
    values = _present(source, name, values)
    return FileTensor(", ".join(levels), map.stored_shape, arrays, values, {}, known, labels, map=map)


def _places(indices: Array, stored: Sequence[int], at: int) -> dict[str, Any]:
    """The arrays of the sparse level: the list, once for each fiber of the dimensions before it."""
    fibers, count = math.prod(stored[:at]), stored[at]
    if len(indices) != count:
        raise ArrayError(Problem(f"indices_{at}", f"expected {count} indices, got {len(indices)}"))
    if not at:
        return {"indices_0": indices}
    every = lazy(fibers * count, indices.dtype, lambda start, stop: indices[np.arange(start, stop) % count])
    return {f"pointers_to_{at}": np.arange(fibers + 1) * count, f"indices_{at}": every}


def _present(source: Variables, name: str, values: LazyArray) -> LazyArray:
    """The values, with NaN for those that are missing, as in xarray. Raises ArrayError for packed values."""
    if any(source.attribute_of(name, x) is not None for x in ("scale_factor", "add_offset")):
        what = "is packed by scale_factor and add_offset; open the file by xarray, and write the variable again"
        raise ArrayError(Problem(name, what))
    marks = [source.attribute_of(name, x) for x in ("_FillValue", "missing_value")]
    missing = [x for x in marks if isinstance(x, int | float)]
    dtype = np.result_type(values.dtype, np.float32)
    return values.mapped(lambda x: np.where(np.isin(x, missing), np.nan, x).astype(dtype), dtype) if missing else values


def _labels(source: Variables, dims: Sequence[str]) -> dict[str, Column]:
    """The numbers of coordinate variables. Times since a date are left out."""
    columns = {}
    for dim in dims:
        if not source.is_array(dim) or str(source.attribute_of(dim, "NAME")).startswith(UNNAMED):
            continue
        if source.dims(dim) == [dim] and " since " not in str(source.attribute_of(dim, "units")):
            with contextlib.suppress(ArrayError):  # for texts
                columns[dim] = column_of(source.numbers(dim, "iuf")[:], dim, source.size(dim))
    return columns


FUNCTIONS = Foreign(look=look, list_groups=list_groups, claims=claims, opened=opened)
