"""Sparse matrices in MATLAB files of version 5, read by scipy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...containers.base import touching
from ...engine.emission import Duplicates
from ...errors import ContainerError, Problem, needing
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.packing import sorted_tensor
from ...tensors.tensor import Tensor

__all__ = ["list_groups", "read"]

_LOGICAL = "logical"


def list_groups(path: str, limits: Limits) -> list[str]:
    """The names of the sparse matrices in a file."""
    return list(_matrices(path))


def read(
    path: str, *, group: str | None = None, duplicates: Duplicates = "error", limits: Limits = DEFAULT_LIMITS
) -> Tensor:
    """The sparse matrix of a name, by default the only one, as CSC. Raises ContainerError, ArrayError."""
    kinds = _matrices(path)
    if group is None and len(kinds) == 1:
        (group,) = kinds
    if group not in kinds:
        there = f"{', '.join(kinds):.200}; open PATH:NAME" if kinds else "none; save one"
        raise ContainerError(Problem("sparse matrices", f"expected {group or 'one'}, got {there}"))
    found = _loaded(path, [group])[group].tocsc()
    values = found.data.astype(bool) if kinds[group] == _LOGICAL else found.data
    arrays = {"pointers_to_1": found.indptr, "indices_1": found.indices}
    return sorted_tensor("CSC", found.shape, arrays, values, duplicates=duplicates, limits=limits)


def _matrices(path: str) -> dict[str, str]:
    """What scipy calls the kind of each sparse matrix. Logical ones share theirs with full ones."""
    with needing("scipy"):
        from scipy.io import whosmat
        from scipy.sparse import issparse
    with touching(path):
        kinds = {name: kind for name, _, kind in whosmat(path)}
    maybe = _loaded(path, [name for name, kind in kinds.items() if kind == _LOGICAL])
    return {name: kind for name, kind in kinds.items() if kind == "sparse" or issparse(maybe.get(name))}


def _loaded(path: str, names: Sequence[str]) -> Mapping[str, Any]:
    with needing("scipy"):
        from scipy.io import loadmat
    with touching(path):
        found: Mapping[str, Any] = loadmat(path, variable_names=names, spmatrix=False) if names else {}
    return found
