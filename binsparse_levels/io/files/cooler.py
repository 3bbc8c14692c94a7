"""Contact matrices of cooler in HDF5 (.cool, .mcool:resolutions/N), read only.

`pixels/bin2_id` and `pixels/count` are sorted, and `indexes/bin1_offset` says where those of each bin begin: compressed
rows. `storage-mode` says whether they are the upper triangle of a symmetric matrix. The table `bins` names the bins.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from ...containers.hdf5 import reading
from ...errors import ArrayError, ContainerError, Problem
from ...limits import Limits
from ..file_tensors import FileTensor
from .compressed_matrix import compressed
from .names import Texts, column, in_bytes, labelled
from .sources import Group

__all__ = ["claims", "look"]

_ARRAYS = ("indexes/bin1_offset", "pixels/bin2_id", "pixels/count")
_STRUCTURES = {"symmetric-upper": "symmetric_upper", "square": None}
_AT_ONCE = 2**16  # bins that are named at once


def claims(group: h5py.Group) -> bool:
    """Whether a group is marked as such a matrix."""
    return "bin-type" in group.attrs and "pixels" in group.keys()  # noqa: SIM118 (`in group` follows links)


def look(path: Any, closing: contextlib.ExitStack, *, group: str | None = None, limits: Limits) -> FileTensor:
    """The matrix in a group, with lazy arrays. Raises ContainerError, ArrayError."""

    def inside(name: str) -> Group:
        place = f"{group or ''}/{name}" if name else group
        return Group(closing.enter_context(reading(path, place, limits)), limits)

    whole, mode = inside(""), "symmetric-upper"  # of versions before 3
    if "storage-mode" in whole.attributes:
        mode = whole.attribute_text("storage-mode")
    if mode not in _STRUCTURES:
        raise ContainerError(Problem("storage-mode", f"expected one of {', '.join(_STRUCTURES)}, got {mode!r:.40}"))
    indexes, pixels, table, chroms = map(inside, ("indexes", "pixels", "bins", "chroms"))
    pointers = indexes.integers("bin1_offset")
    bins = max(len(pointers) - 1, 0)
    names = column(bins, functools.partial(_names, chroms, table, bins, limits))
    return compressed(
        "CSR",
        (bins, bins),
        pointers,
        _ARRAYS,
        labelled(("bin", "bin"), [names, names]),
        lambda _: (pixels.integers("bin2_id"), pixels.numbers("count")),
        structure=_STRUCTURES[mode],
    )


def _names(chroms: Group, bins: Group, count: int, limits: Limits) -> Texts:
    """Of each bin, as `chr1:0-10000`. Raises ArrayError."""
    chromosomes = np.array(chroms.texts("name"), object)
    numbers, starts, ends = (bins.integers(name) for name in ("chrom", "start", "end"))
    if not len(numbers) == len(starts) == len(ends) == count:
        raise ArrayError(Problem("bins", f"expected {count} bins, got {len(numbers)}, {len(starts)} and {len(ends)}"))

    def pieces() -> Iterator[list[str]]:
        for k in range(0, count, _AT_ONCE):
            which = numbers[k : k + _AT_ONCE].astype(np.int64)
            if len(which) and not 0 <= which.min() <= which.max() < len(chromosomes):
                raise ArrayError(Problem("bins/chrom", f"a bin has none of the {len(chromosomes)} chromosomes"))
            parts = zip(chromosomes[which], starts[k : k + _AT_ONCE], ends[k : k + _AT_ONCE], strict=True)
            yield [f"{name}:{start}-{end}" for name, start, end in parts]

    return in_bytes(pieces(), "bins", limits)
