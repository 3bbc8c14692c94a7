"""The tables `obs` and `var` of AnnData, whose indices name the rows and columns of its matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ...errors import ContainerError, PathMissingError, Problem
from ...tensors.labels import Column
from .names import column
from .sources import Group, as_text

Opener: TypeAlias = Callable[[str], Group]
Axes: TypeAlias = tuple[str | None, str | None]

_AXES: dict[str, Axes] = {
    "X": ("obs", "var"),
    "layers": ("obs", "var"),
    "obsp": ("obs", "obs"),
    "varp": ("var", "var"),
    "obsm": ("obs", None),
    "varm": ("var", None),
}


def axes_of(parts: Sequence[str]) -> Axes:
    """The paths of the tables that name the rows and the columns of a matrix at a path; none of an unknown place.

    They lie beside the matrix: in a modality of MuData, and in `raw`, which shares the rows.
    """
    base = parts[:2] if parts[:1] == ["mod"] else []
    inner = parts[len(base) :]
    tables = {"obs": "/".join([*base, "obs"]), "var": "/".join([*base, "var"])}
    if inner[:1] == ["raw"]:
        inner, tables["var"] = inner[1:], "/".join([*base, "raw/var"])
    rows, columns = _AXES.get(inner[0] if inner else "", (None, None))
    return rows and tables[rows], columns and tables[columns]


def index_of(at: Opener, path: str) -> Column:
    """The names of the rows of a table: its index of texts, numbers or categories. Raises ContainerError, ArrayError.

    Before anndata 0.7, a table is one array of records.
    """
    folder, _, name = path.rpartition("/")
    above = at(folder)
    if above.is_array(name):
        records = above.one_dimension(name)
        known = [field for field in ("_index", "index") if field in (records.dtype.names or ())]
        if not known:
            raise ContainerError(Problem(path, "is no table with an index"))
        limits, field = above.limits, known[0]
        return column(len(records), lambda key: _as_texts(records[key][field], path), path, limits)
    table = at(path)
    index = table.attribute_text("_index")
    if table.is_array(index):
        return _column(table, index)
    if not table.has(index):
        raise PathMissingError(Problem(f"{path}/{index}", "the index of the table is missing"))
    group = at(f"{path}/{index}")
    if not group.has("categories"):  # texts that may be missing, of which an index has none
        return _column(group, "values")
    codes, categories = group.integers("codes"), group.one_dimension("categories")

    def read(key: object) -> list[str]:
        known = np.array([*_as_texts(categories[:], f"{path}/categories"), "nan"], object)
        picks = codes[key]  # type: ignore[call-overload]
        return list(known[np.where((picks < 0) | (picks >= len(categories)), len(categories), picks)])

    return column(len(codes), read, path, table.limits)


def _column(group: Group, name: str) -> Column:
    stored = group.one_dimension(name)
    return column(len(stored), lambda key: _as_texts(stored[key], name), name, group.limits)


def _as_texts(items: np.ndarray, path: str) -> list[str]:
    return [as_text(x, path) for x in items.tolist()]
