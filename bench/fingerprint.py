"""A number that tells whether two libraries have the same entries, in whatever order they list them."""

from __future__ import annotations

from typing import Any

import numpy as np

from binsparse_levels import Tensor

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def fingerprint(result: Any) -> tuple[int, int] | None:
    """Of a sparse or dense array of any library, or of coordinates and values in a tuple; None of anything else."""
    listed = _listed(result)
    if listed is None:
        return None
    columns, values = listed
    mixed = np.asarray(values).astype(np.float64).view(np.uint64)
    for column in columns:
        mixed ^= np.asarray(column).astype(np.uint64)
        mixed *= _MULTIPLIER
        mixed ^= mixed >> np.uint64(29)
    return len(mixed), int(mixed.sum())


def _listed(result: Any) -> tuple[Any, Any] | None:
    """Coordinates by stored dimension, and values."""
    if isinstance(result, Tensor):
        coords, values = result.unpack()
        return [coords[k] for k in result.format.order], values
    if isinstance(result, np.ndarray):
        return [np.arange(result.size)], result.ravel()
    if isinstance(result, tuple):  # the coordinates are one item or several
        *coords, values = result
        return coords if isinstance(coords[0], np.ndarray) else coords[0], values
    library = type(result).__module__.partition(".")[0]
    if library == "scipy":
        listed = result.tocoo()
        return listed.coords[:: -1 if result.format == "csc" else 1], listed.data
    if library == "graphblas":
        *coords, values = result.to_coo()
        return coords, values
    if library == "sparse":
        by_column = getattr(result, "compressed_axes", None) == (1,)
        listed = result.asformat("coo")
        return listed.coords[:: -1 if by_column else 1], listed.data
    if library == "torch":
        by_column = str(result.layout) == "torch.sparse_csc"
        if str(result.layout) == "torch.strided":
            return _listed(result.numpy())
        listed = result.to_sparse_coo().coalesce()
        return listed.indices().numpy()[:: -1 if by_column else 1], listed.values().numpy()
    return None
