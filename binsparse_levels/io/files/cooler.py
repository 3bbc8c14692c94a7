"""Contact matrices of cooler in HDF5 (.cool, .mcool:resolutions/N), read only.

`pixels/bin2_id` and `pixels/count` are sorted, and `indexes/bin1_offset` has the offset of each bin: compressed rows.
`storage-mode` marks the upper triangle of a symmetric matrix. The table `bins` has the names of the bins. Other columns
of the pixels are matrices, too, such as `pixels/oe`.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ...errors import ArrayError, ContainerError, Problem
from ...limits import DEFAULT_LIMITS, Limits
from ..file_tensors import FileTensor, compressed
from ..interface import Foreign
from .names import column, labelled
from .sources import Group, open_group

_STRUCTURES = {"symmetric-upper": "symmetric_upper", "square": None}


def claims(group: Any) -> list[str]:
    """The group itself, if it is marked as such a matrix, and other columns of values."""
    if "bin-type" not in group.attrs:
        return []
    with contextlib.ExitStack() as closing:
        columns = _columns(open_group(group, "pixels", DEFAULT_LIMITS, closing))
    return [""] * ("count" in columns) + [f"pixels/{name}" for name in columns if name != "count"]


def _columns(pixels: Group) -> list[str]:
    """The columns of numbers, except the numbers of bins."""
    group = pixels.reader.group
    names = [name for name in group if name not in ("bin1_id", "bin2_id") and pixels.is_array(name)]
    return [name for name in names if group[name].dtype.kind in "biuf"]


def look(path: Any, closing: contextlib.ExitStack, *, group: str | None = None, limits: Limits) -> FileTensor:
    """The matrix in a group, with lazy arrays and names such as `chr1:0-10000`. Raises ContainerError, ArrayError."""
    above, _, picked = f"/{group or ''}".rpartition("/pixels/")
    base, values = (above, picked) if "/pixels/" in f"/{group}" else (group or "", "count")

    def inside(name: str) -> Group:
        return open_group(path, f"{base}/{name}", limits, closing)

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

    if not pixels.has(values):
        there = ", ".join(f"pixels/{name}" for name in _columns(pixels))
        raise ContainerError(Problem(f"pixels/{values}", f"the file has no such column; read PATH:NAME of {there}"))
    names = column(bins, texts, "bins", limits)
    arrays = {"indexes/bin1_offset": pointers, "pixels/bin2_id": pixels.integers("bin2_id")}
    arrays[f"pixels/{values}"] = pixels.numbers(values)
    labels = labelled(("bin", "bin"), [names, names])
    return compressed("CSR", (bins, bins), arrays, labels, structure=_STRUCTURES[mode])


FUNCTIONS = Foreign(look=look, claims=claims)
