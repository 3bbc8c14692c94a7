"""Tables of AnnData, whose indices name the rows and columns of its matrices."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...errors import ArrayError, ContainerError, PathMissingError, Problem
from ...tensors.labels import Column, Labels
from .names import column, labelled
from .sources import Group

Opener: TypeAlias = Callable[[str], Group]
Axes: TypeAlias = tuple[str | None, str | None]

_AXES: dict[str, Axes] = {
    "X": ("obs", "var"),
    "layers": ("obs", "var"),
    "obsp": ("obs", "obs"),
    "varp": ("var", "var"),
    "obsm": ("obs", None),
    "varm": ("var", None),
    "obs": ("obs", None),
    "var": ("var", None),
}


def names_of(at: Opener, parts: Sequence[str], shape: Sequence[int], names: str | None) -> Labels | None:
    """The names of rows and columns, or of the rows only. Tables of another size belong to another matrix.

    names: the column of `var` with the names, which must exist; by default its index.
    """
    base = _base(at, parts)
    axes = [axis and "/".join([*parts[:base], axis]) for axis in axes_of(parts[base:])]
    dims = [(axis or other).rpartition("/")[2] for axis, other in zip(axes, ("row", "column"), strict=True)]
    columns: list[Column | None] = []
    for axis, size in zip(axes, shape, strict=False):
        columns.append(None)
        asked = names if axis is not None and axis.endswith("var") else None
        with contextlib.suppress(*[ContainerError, ArrayError] if asked is None else []):
            if axis is not None and len(found := index_of(at, axis, asked)) == size:
                columns[-1] = found
    return labelled([*dims, *(f"dim_{k}" for k in range(2, len(shape)))][: len(shape)], columns)


def _base(at: Opener, parts: Sequence[str]) -> int:
    """The number of names in a path that lead to the AnnData of a matrix, which may be in any group of a file.

    The modalities of MuData are AnnData. Before anndata 0.8, AnnData had no mark, but tables.
    """
    for count in range(len(parts) - 1, 0, -1):
        group = at("/".join(parts[:count]))
        encoding = group.attribute("encoding-type")
        if encoding == "anndata" or (encoding is None and group.has("obs") and group.has("var")):
            return count
    return 0


def axes_of(parts: Sequence[str]) -> Axes:
    """The paths of the tables with the names of rows and columns of a matrix at a path in AnnData; None if unknown.

    `raw` has its own columns, and shares the rows.
    """
    raw = parts[:1] == ["raw"]
    tables = {"obs": "obs", "var": "raw/var" if raw else "var"}
    rows, columns = _AXES.get("".join(parts[raw : raw + 1]), (None, None))
    return rows and tables[rows], columns and tables[columns]


def index_of(at: Opener, path: str, name: str | None = None) -> Column:
    """The names of the rows of a table: its index of texts, numbers or categories. Raises ContainerError, ArrayError.

    name: of a column instead. Before anndata 0.7, a table was one array of records.
    """
    folder, _, last = path.rpartition("/")
    above = at(folder)
    if above.is_array(last):
        records = above.one_dimension(last)
        known = [field for field in ([name] if name else ["_index", "index"]) if field in (records.dtype.names or ())]
        if not known:
            raise ContainerError(Problem(path, f"is no table with {name or 'an index'}; name a column that it has"))
        field = known[0]
        return column(len(records), lambda key: records[key][field].tolist(), path, above.limits)
    table = at(path)
    index = name or table.attribute_text("_index")
    if table.is_array(index):
        return table.names(index)
    if not table.has(index):
        raise PathMissingError(Problem(f"{path}/{index}", "the table has no such column, or index; name another"))
    group = at(f"{path}/{index}")
    if not group.has("categories"):  # an array of nullable texts, none of which is missing in an index
        return group.names("values")
    codes, categories = group.integers("codes"), group.one_dimension("categories")

    def read(key: object) -> list[Any]:
        known = np.array([*categories[:].tolist(), "nan"], object)
        picks = codes[key]  # type: ignore[call-overload]
        return list(known[np.where((picks < 0) | (picks >= len(categories)), len(categories), picks)])

    return column(len(codes), read, path, table.limits)
