"""Sparse matrices in MATLAB files of versions 4 and 5, by themselves and in structs, read only, by scipy."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import numpy as np

from ...arrays import Array
from ...engine.emission import Duplicates
from ...errors import ContainerError, Problem, needing
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.packing import sorted_tensor
from ...tensors.tensor import Tensor
from . import matlab_program
from .matlab import the_only

__all__ = ["list_groups", "read"]


def list_groups(path: str, limits: Limits) -> list[str]:
    """The names of the sparse matrices in a file; of one in a struct, as STRUCT/FIELD."""
    names: list[str] = _arrays(path, limits)["names"].tolist()
    return names


def read(
    path: str, *, group: str | None = None, duplicates: Duplicates = "error", limits: Limits = DEFAULT_LIMITS
) -> Tensor:
    """The sparse matrix of a name, by default the only one, as CSC. Raises ContainerError, ArrayError, LimitError."""
    found = _arrays(path, limits)
    names = found["names"].tolist()
    group = the_only(names) if group is None else group
    if group not in names:
        there = f"{', '.join(names):.200}; open PATH:NAME" if names else "none; save one as sparse"
        raise ContainerError(Problem("sparse matrices", f"expected {group}, got {there}"))
    parts = ("shape", "indptr", "indices", "data")
    shape, pointers, indices, values = (found[f"{part}{names.index(group)}"] for part in parts)
    arrays = {"pointers_to_1": pointers, "indices_1": indices}
    return sorted_tensor("CSC", shape.tolist(), arrays, values, duplicates=duplicates, limits=limits)


def _arrays(path: str, limits: Limits) -> dict[str, Array]:
    """The names of all sparse matrices, and their arrays by number. Raises ContainerError, LimitError."""
    with needing("scipy"):
        import scipy  # noqa: F401
    limits.hold("array_bytes", os.path.getsize(path), path, "the size in bytes of the file")
    done = subprocess.run([sys.executable, matlab_program.__file__, os.path.abspath(path)], capture_output=True)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "scipy ended"
        raise ContainerError(Problem(path, f"is no whole file of MATLAB: {said:.200}; fetch it again"))
    with np.load(io.BytesIO(done.stdout), allow_pickle=False) as archive:
        return dict(archive)
