"""Sparse matrices in MATLAB files of version 7.3, which are HDF5 behind 512 bytes, read and written.

A matrix is a group with the attribute MATLAB_sparse, the number of rows: `jc` are the pointers of the columns, `ir` the
rows, `data` the values. A matrix without entries lacks `ir` and `data`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np

from ...arrays import Sliceable
from ...containers import hdf5
from ...containers.base import touching
from ...containers.hdf5 import opened, reading
from ...containers.replacing import Overwrite, keeps
from ...errors import ArrayError, BinsparseError, ContainerError, PathExistsError, Problem
from ...limits import DEFAULT_LIMITS, INT64_MAX, Limits
from ...tensors.targets import check_representable
from ...tensors.tensor import Tensor
from ..file_tensors import FileTensor
from .compressed_matrix import compressed
from .sources import Group, items

__all__ = ["claims", "list_groups", "look", "opened", "others", "write"]

MARK = "MATLAB_sparse"
_CLASS = "MATLAB_class"
_NAME = "A"  # of a matrix that is written without a name
_HEAD = (b"MATLAB 7.3 MAT-file, Platform: any, HDF5 schema 1.00 .".ljust(124) + b"\0\2IM").ljust(512, b"\0")
_ARRAYS = ("jc", "ir", "data")


def claims(group: h5py.Group) -> bool:
    """Whether a group is marked as such a matrix."""
    return MARK in group.attrs


def list_groups(path: Any, limits: Limits) -> list[str]:
    """The names of the sparse matrices in a file."""
    return hdf5.list_groups(path, limits, [claims])


def look(path: Any, closing: contextlib.ExitStack, *, group: str | None = None, limits: Limits) -> FileTensor:
    """The matrix in a group, by default the only one, with lazy arrays.

    Raises ContainerError for another group, ArrayError for arrays that do not fit each other.
    """
    group = the_only(list_groups(path, limits)) if group is None else group
    source = Group(closing.enter_context(reading(path, group, limits)), limits)
    with touching(MARK):
        rows = source.attributes.get(MARK)
    if not isinstance(rows, np.integer) or not 0 <= rows <= INT64_MAX:
        raise ContainerError(Problem(MARK, f"expected the number of rows, got {rows!r:.40}; choose a sparse matrix"))
    pointers = source.integers("jc")

    def entries(count: int) -> tuple[Sliceable, Sliceable]:
        if not count and not source.has("ir"):
            return np.empty(0, np.uint64), np.empty(0, np.float64)
        return source.integers("ir"), _values(source)

    return compressed("CSC", (int(rows), max(len(pointers) - 1, 0)), pointers, _ARRAYS, None, entries)


def the_only(names: Sequence[str]) -> str:
    """The name of the one matrix of a file. Raises ContainerError for a file with more, or with none."""
    if len(names) != 1:
        there = f"{', '.join(names):.200}; open PATH:NAME" if names else "none; save one as sparse"
        raise ContainerError(Problem("sparse matrices", f"expected one, got {there}"))
    return names[0]


def write(path: str, tensor: Tensor, *, group: str | None = None, overwrite: Overwrite = False) -> None:
    """Write a matrix under a name, beside everything else in the file; without a name, a new file with the matrix A.

    Raises FormatError for a tensor that MATLAB has not, ContainerError, PathExistsError.
    """
    check_representable(tensor, "MATLAB", path, ranks=(2,), type_fits=tensor.dtype in (bool, float, complex))
    name = group or _NAME
    if not re.fullmatch(r"[A-Za-z]\w{0,62}", name, re.ASCII):
        raise ContainerError(Problem(path, f"{name!r:.80} names no variable of MATLAB; begin with a letter"))
    made = tensor.without_map("CSC").convert("CSC")
    values = made.values
    if values.dtype.kind == "c":
        values = np.ascontiguousarray(values).view([("real", "f8"), ("imag", "f8")])
    arrays = {"jc": made.arrays["pointers_to_1"], "ir": made.arrays["indices_1"]}
    with (
        hdf5.changing(path, overwrite, others, keep=keeps(path, group, overwrite, others), head=_HEAD) as file,
        touching(path),
    ):
        if file.userblock_size != len(_HEAD):
            raise ContainerError(Problem(path, "is no file of MATLAB; choose another path"))
        if name in file.keys():  # noqa: SIM118 (`in file` follows links)
            if not overwrite:
                raise PathExistsError(Problem(f"{path}:{name}", "already exists; pass overwrite=True"))
            del file[name]
        place = file.create_group(name)
        place.attrs.update({_CLASS: np.bytes_("logical" if values.dtype == bool else "double")})
        place.attrs[MARK] = np.uint64(made.shape[0])
        for key, array in arrays.items() if len(values) else [("jc", arrays["jc"])]:
            place[key] = array.astype(np.uint64)
        if len(values):
            place["data"] = values.view(np.uint8) if values.dtype == bool else values


def others(path: str) -> set[str]:
    """The names in a file beside the matrix that is written without a name."""
    with opened(path) as file, touching(path):
        return {*file.keys()} - ({_NAME} & {*list_groups(file, DEFAULT_LIMITS)})


def _values(source: Group) -> Sliceable:
    """The values: numbers, pairs of a real and an imaginary part, or for a logical matrix bytes of 0 and 1."""
    info = source.one_dimension("data")
    if info.dtype.names == ("real", "imag"):
        part = info.dtype["real"]
        if info.dtype != np.dtype([("real", part), ("imag", part)]) or part.newbyteorder("=") not in ("f4", "f8"):
            raise ArrayError(Problem("data", f"expected pairs of floating-point numbers, got {info.dtype}"))
        return items(info, len(info), np.dtype(f"c{2 * part.itemsize}"), view=True)
    with contextlib.suppress(BinsparseError):
        if source.attribute_text(_CLASS) == "logical" and info.dtype.kind in "iu":
            return items(info, len(info), np.dtype(bool))
    return source.numbers("data")
