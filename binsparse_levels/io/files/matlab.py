"""Sparse matrices in MATLAB files, read only: version 7.3, which is HDF5, in place; versions 4 and 5 by scipy.

In HDF5, a matrix is a group with the attribute MATLAB_sparse, the number of rows. `jc` contains the pointers of the
columns, `ir` the rows, `data` the values. A matrix without entries has no `ir` and no `data`.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from ...arrays import Sliceable
from ...containers import hdf5
from ...containers.interface import claim_itself
from ...errors import ArrayError, ContainerError, Problem, needing
from ...limits import DEFAULT_LIMITS, INT64_MAX, Limits
from ..file_tensors import FileTensor, compressed
from ..interface import Foreign
from . import matlab_program
from .names import chosen
from .sources import Group

MARK = "MATLAB_sparse"
_ARRAYS = ("jc", "ir", "data")


@contextlib.contextmanager
def opened(path: Any) -> Iterator[Any]:
    """An open HDF5 file, or the path of an older file."""
    newer = not isinstance(path, str) or h5py.is_hdf5(path)
    with hdf5.opened(path) if newer else contextlib.nullcontext(path) as file:
        yield file


def list_groups(path: Any, limits: Limits) -> list[str]:
    """The names of the sparse matrices in a file; STRUCT/FIELD for a matrix in a struct."""
    if not isinstance(path, str):
        return hdf5.list_groups(path, limits, {MARK: claim_itself})
    names: list[str] = _by_scipy(path, limits)["names"].tolist()
    return names


def look(path: Any, closing: contextlib.ExitStack, *, group: str | None = None, limits: Limits) -> FileTensor:
    """The matrix with a name, by default the only one. Raises ContainerError, ArrayError, LimitError."""
    if isinstance(path, str):
        found = _by_scipy(path, limits)
        k = (names := found["names"].tolist()).index(chosen(names, group))
        rows, columns = found[f"shape{k}"].tolist()
        parts = zip(_ARRAYS, ("indptr", "indices", "data"), strict=True)
        return compressed("CSC", (rows, columns), {name: found[f"{part}{k}"] for name, part in parts})
    group = chosen(list_groups(path, limits)) if group is None else group
    source = Group(closing.enter_context(hdf5.reading(path, group, limits)), limits)
    rows = source.attribute(MARK)
    if type(rows) is not int or not 0 <= rows <= INT64_MAX:
        raise ContainerError(Problem(MARK, f"expected the number of rows, got {rows!r:.40}; choose a sparse matrix"))
    pointers = source.integers("jc")
    arrays: dict[str, Sliceable] = {"jc": pointers, "ir": np.empty(0, np.uint64), "data": np.empty(0)}
    if source.has("ir"):
        arrays |= {"ir": source.integers("ir"), "data": _values(source)}
    return compressed("CSC", (rows, max(len(pointers) - 1, 0)), arrays)


def _values(source: Group) -> Sliceable:
    """The values: numbers, pairs of real and imaginary parts, or bytes of 0 and 1 for a logical matrix."""
    info = source.one_dimension("data")
    if info.dtype.names == ("real", "imag"):
        part = info.dtype["real"]
        if info.dtype != np.dtype([("real", part), ("imag", part)]) or part.newbyteorder("=") not in ("f4", "f8"):
            raise ArrayError(Problem("data", f"expected pairs of floating-point numbers, got {info.dtype}"))
        pair = np.dtype(f"c{2 * part.itemsize}")
        return info.mapped(lambda x: x.view(pair), pair)
    if source.attribute("MATLAB_class") == "logical" and info.dtype.kind in "iu":
        return info.mapped(lambda x: x.astype(bool), np.dtype(bool))
    return source.numbers("data")


def _by_scipy(path: str, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """The names of all sparse matrices, and their arrays by number. Raises ContainerError, LimitError."""
    with needing("scipy"):
        import scipy  # noqa: F401
    limits.hold("array_bytes", os.path.getsize(path), path, "the size in bytes of the file")
    done = subprocess.run([sys.executable, matlab_program.__file__, os.path.abspath(path)], capture_output=True)
    if done.returncode:
        error = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "scipy ended"
        raise ContainerError(Problem(path, f"is no whole file of MATLAB: {error:.200}; fetch it again"))
    with np.load(io.BytesIO(done.stdout), allow_pickle=False) as archive:
        return dict(archive)


FUNCTIONS = Foreign(look=look, list_groups=list_groups, opened=opened)
