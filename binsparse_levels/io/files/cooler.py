"""Contact matrices of cooler in HDF5 (.cool, .mcool:resolutions/N), read only.

`pixels/bin2_id` and `pixels/count` are sorted, and `indexes/bin1_offset` has the offset of each bin: compressed rows.
`storage-mode` marks the upper triangle of a symmetric matrix. The table `bins` has the names of the bins.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ...errors import ArrayError, ContainerError, Problem
from ...limits import Limits
from ..file_tensors import FileTensor, compressed
from ..interface import Foreign
from .names import column, labelled
from .sources import Group, open_group

_ARRAYS = ("indexes/bin1_offset", "pixels/bin2_id", "pixels/count")
_STRUCTURES = {"symmetric-upper": "symmetric_upper", "square": None}


def claims(group: Any) -> list[str]:
    """The group itself, if it is marked as such a matrix."""
    return [""] * ("bin-type" in group.attrs)


def look(path: Any, closing: contextlib.ExitStack, *, group: str | None = None, limits: Limits) -> FileTensor:
    """The matrix in a group, with lazy arrays and names such as `chr1:0-10000`. Raises ContainerError, ArrayError."""

    def inside(name: str) -> Group:
        return open_group(path, f"{group or ''}/{name}", limits, closing)

    mode = inside("").attribute("storage-mode") or "symmetric-upper"  # the only mode before version 3
    if not isinstance(mode, str) or mode not in _STRUCTURES:
        raise ContainerError(Problem("storage-mode", f"expected one of {', '.join(_STRUCTURES)}, got {mode!r:.40}"))
    indexes, pixels, table, chroms = map(inside, ("indexes", "pixels", "bins", "chroms"))
    pointers = indexes.integers("bin1_offset")
    bins = max(len(pointers) - 1, 0)

    def texts(key: Any) -> list[str]:
        """The names at these bins, made from their numbers."""
        chromosomes, parts = chroms.texts("name"), [table.integers(name) for name in ("chrom", "start", "end")]
        if {len(x) for x in parts} != {bins}:
            raise ArrayError(Problem("bins", f"expected {bins} bins, got {', '.join(str(len(x)) for x in parts)}"))
        which, starts, ends = (x[key] for x in parts)
        if len(which) and not 0 <= which.min() <= which.max() < len(chromosomes):
            raise ArrayError(Problem("bins/chrom", f"a bin has none of the {len(chromosomes)} chromosomes"))
        rows = zip(which.tolist(), starts.tolist(), ends.tolist(), strict=True)
        return [f"{chromosomes[k]}:{start}-{end}" for k, start, end in rows]

    names = column(bins, texts, "bins", limits)
    arrays = dict(zip(_ARRAYS, (pointers, pixels.integers("bin2_id"), pixels.numbers("count")), strict=True))
    labels = labelled(("bin", "bin"), [names, names])
    return compressed("CSR", (bins, bins), arrays, labels, structure=_STRUCTURES[mode])


FUNCTIONS = Foreign(look=look, claims=claims)
