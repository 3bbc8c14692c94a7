"""Sparse matrices in MATLAB files of versions 4 and 5, by themselves and in structs, read only, by scipy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ...containers.base import touching
from ...engine.emission import Duplicates
from ...errors import ContainerError, Problem, needing
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.packing import sorted_tensor
from ...tensors.tensor import Tensor
from .matlab import the_only

__all__ = ["list_groups", "read"]


def list_groups(path: str, limits: Limits) -> list[str]:
    """The names of the sparse matrices in a file; of one in a struct, as STRUCT/FIELD."""
    return list(_matrices(path, limits))


def read(
    path: str, *, group: str | None = None, duplicates: Duplicates = "error", limits: Limits = DEFAULT_LIMITS
) -> Tensor:
    """The sparse matrix of a name, by default the only one, as CSC. Raises ContainerError, ArrayError, LimitError."""
    matrices = _matrices(path, limits)
    group = the_only(list(matrices)) if group is None else group
    if group not in matrices:
        there = f"{', '.join(matrices):.200}; open PATH:NAME" if matrices else "none; save one as sparse"
        raise ContainerError(Problem("sparse matrices", f"expected {group}, got {there}"))
    matrix = matrices[group].tocsc()
    arrays = {"pointers_to_1": matrix.indptr, "indices_1": matrix.indices}
    return sorted_tensor("CSC", matrix.shape, arrays, matrix.data, duplicates=duplicates, limits=limits)


def _matrices(path: str, limits: Limits) -> dict[str, Any]:
    """The sparse matrices in a file, as those of scipy. Raises ContainerError, LimitError."""
    with needing("scipy"):
        import scipy.io
    limits.hold("array_bytes", os.path.getsize(path), path, "the size in bytes of the file")
    with touching(path):
        classes = {name: kind for name, _, kind in scipy.io.whosmat(path)}
        found = dict(_sparse_in(scipy.io.loadmat(path, simplify_cells=True), ""))
    return {name: x.astype(bool) if classes.get(name) == "logical" else x for name, x in found.items()}


def _sparse_in(members: dict[str, Any], within: str) -> Iterator[tuple[str, Any]]:
    for name, member in members.items():
        if isinstance(member, dict):
            yield from _sparse_in(member, f"{within}{name}/")
        elif hasattr(member, "tocsc"):
            yield f"{within}{name}", member
