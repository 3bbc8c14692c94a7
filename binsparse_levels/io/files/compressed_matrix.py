"""Matrices of compressed rows or columns in files: what their arrays make together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from ...arrays import Sliceable, cut
from ...errors import ArrayError, Problem
from ...limits import INT64_MAX
from ...tensors.labels import Labels
from ..file_tensors import FileTensor

Compression: TypeAlias = Literal["CSR", "CSC"]


def compressed(
    format: Compression,
    shape: tuple[int, int],
    pointers: Sliceable,
    names: tuple[str, str, str],
    labels: Labels | None,
    entries: Callable[[int], tuple[Sliceable, Sliceable]],
    *,
    cells: int = 1,
    **more: Any,
) -> FileTensor:
    """A matrix in a file, of which only the number and the ends of the pointers are checked.

    names: of its pointers, indices and values in the file. labels: the names of its rows and columns. entries(n): the
    indices and values, of which the first n count. cells: the number of values for each index. more: of FileTensor.
    Raises ArrayError.
    """
    fibers = shape[format == "CSC"]
    if fibers == 0 and len(pointers) == 2 and not pointers[:].any():  # so BPCells writes no rows or columns
        pointers = cut(pointers, 0, 1)
    if len(pointers) != fibers + 1:
        what = f"expected a length of {fibers + 1} for shape {shape[0]} × {shape[1]}, got {len(pointers)}"
        raise ArrayError(Problem(names[0], what))
    first, last = (int(pointers[at : at + 1][0]) for at in (0, fibers))
    if first != 0 or not 0 <= last <= INT64_MAX:
        raise ArrayError(Problem(names[0], f"goes from {first} to {last}, expected 0 and more"))
    stored = dict(zip(("indices_1", "values"), entries(last), strict=True))
    for role, name, count in zip(stored, names[1:], (last, last * cells), strict=False):
        if len(stored[role]) < count:
            raise ArrayError(Problem(name, f"expected a length of {count}, got {len(stored[role])}"))
        stored[role] = stored[role] if len(stored[role]) == count else cut(stored[role], 0, count)
    named = dict(zip(("pointers_to_1", "indices_1", "values"), names, strict=True))
    arrays = {"pointers_to_1": pointers, "indices_1": stored["indices_1"]}
    return FileTensor(format, shape, arrays, stored["values"], {}, named, labels, **more)
