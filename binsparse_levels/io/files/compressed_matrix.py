"""Matrices of compressed rows or columns in files: their lazy arrays, and the tensor made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...arrays import Sliceable, cut
from ...engine.emission import Duplicates
from ...errors import ArrayError, Problem, raise_if
from ...limits import DEFAULT_LIMITS, INT64_MAX, Limits
from ...tensors.packing import sorted_tensor
from ...tensors.tensor import Tensor
from .sources import named

Axis: TypeAlias = Literal["row", "col"]  # by which a matrix is compressed


@dataclass(frozen=True, eq=False)
class Compressed:
    """A matrix in a file, before it is read. names: of its pointers, indices and values in the file, for errors.

    Only the ends of the pointers have been looked at.
    """

    format: Literal["CSR", "CSC"]
    shape: tuple[int, int]
    pointers: Sliceable
    indices: Sliceable
    values: Sliceable
    names: tuple[str, str, str]
    attributes: Mapping[str, list[str]]

    @property
    def arrays(self) -> dict[str, Sliceable]:
        """The index and pointer arrays by the names that they have in a tensor."""
        return {"pointers_to_1": self.pointers, "indices_1": self.indices}

    def tensor(self, duplicates: Duplicates, limits: Limits) -> Tensor:
        """The matrix in memory, checked in full. Entries of a row or column that are out of order are sorted.

        Raises ArrayError, LimitError.
        """
        loaded = []
        for name, stored in zip(self.names, (self.pointers, self.indices, self.values), strict=True):
            limits.hold("array_bytes", len(stored) * stored.dtype.itemsize, name, "the size in bytes")
            loaded.append(stored[:])
        pointers, indices, values = loaded
        arrays = {"pointers_to_1": pointers, "indices_1": indices}
        with named(dict(zip((*self.arrays, "values"), self.names, strict=True))):
            made = sorted_tensor(self.format, self.shape, arrays, values, duplicates=duplicates, limits=limits)
        return made._with(made.format, made._tree, attributes=dict(self.attributes))


def compressed(
    by: Axis,
    shape: tuple[int, int],
    pointers: Sliceable,
    names: tuple[str, str, str],
    attributes: Mapping[str, list[str]],
    entries: Callable[[int], tuple[Sliceable, Sliceable]],
) -> Compressed:
    """A matrix, compressed by rows or columns, whose pointers have the right length and ends. entries(n): the n indices
    and values. Raises ArrayError.
    """
    fibers = shape[0 if by == "row" else 1]
    if fibers == 0 and len(pointers) == 2 and not pointers[:].any():  # so BPCells writes no rows or columns
        pointers = cut(pointers, 0, 1)
    if len(pointers) != fibers + 1:
        what = f"expected a length of {fibers + 1} for shape {shape[0]} × {shape[1]}, got {len(pointers)}"
        raise ArrayError(Problem(names[0], what))
    first, last = (int(pointers[at : at + 1][0]) for at in (0, fibers))
    if first != 0 or not 0 <= last <= INT64_MAX:
        raise ArrayError(Problem(names[0], f"goes from {first} to {last}"))
    wrong = [
        Problem(name, f"expected none or {size} for shape {shape[0]} × {shape[1]}, got {len(attributes[name])}")
        for name, size in zip(("row_names", "column_names"), shape, strict=True)
        if name in attributes and len(attributes[name]) not in (0, size)
    ]
    raise_if(ArrayError, wrong)
    indices, values = entries(last)
    given = {name: found for name, found in attributes.items() if found}
    return Compressed("CSR" if by == "row" else "CSC", shape, pointers, indices, values, names, given)


def first_items(stored: Sliceable, count: int, name: str) -> Sliceable:
    """The first `count` items of an array. Raises ArrayError for a shorter array."""
    if len(stored) < count:
        raise ArrayError(Problem(name, f"expected a length of {count}, got {len(stored)}"))
    return stored if len(stored) == count else cut(stored, 0, count)


def read_matrix(
    looking: Callable[..., AbstractContextManager[Compressed]],
    path: str,
    *,
    group: str | None = None,
    duplicates: Duplicates = "error",
    limits: Limits = DEFAULT_LIMITS,
) -> Tensor:
    """The matrix that `looking` finds at a place, CSR or CSC as it is stored, decoded and checked in full.

    Entries out of order are sorted. Raises ContainerError, ArrayError, LimitError.
    """
    with looking(path, group, limits=limits) as matrix:
        return matrix.tensor(duplicates, limits)
