"""The coordinates of a Dataset, for a tensor that is one of its variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .xarray import open_dense


def coordinates_in(path: str, dims: Sequence[str], others: Sequence[str]) -> dict[str, Any]:
    """The coordinates of these dimensions in a store or file of a Dataset, as xarray decodes them.

    others: the names of variables that are not read.
    """
    with open_dense(path, drop_variables=others) as dataset:
        return {dim: dataset.variables[dim].values for dim in dims if dim in dataset.variables}
