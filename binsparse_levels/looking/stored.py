"""The bytes of a tensor in a format, in memory and in files, from the tensor itself."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

from ..formats.format import Format
from ..io import write
from ..tensors.tensor import Tensor

Stored: TypeAlias = Literal["memory", "narrow", "bitpacked"]  # as they are, or by the option of `write` of that name


def bytes_in(tensor: Tensor, format: Format, map: str | None, stored: Stored) -> tuple[int, int]:
    """The bytes of all index and pointer arrays, and those of the values, of a tensor that is converted.

    Raises FormatError and LimitError for a tensor that the format does not hold.
    """
    held = tensor.convert(format, map=map).stored
    return index_bytes(held, stored), held.nbytes - index_bytes(held, "memory")


def index_bytes(tensor: Tensor, how: Stored) -> int:
    """The bytes of all arrays but the values."""
    if how == "memory":
        return sum(x.nbytes for x in tensor.stored.arrays.values())
    store: dict[str, Any] = {}
    write(store, tensor, narrow=how == "narrow", bitpacked=how == "bitpacked")
    arrays = {name: x for name, x in store.items() if isinstance(x, np.ndarray)}
    return sum(x.nbytes for name, x in arrays.items() if name in tensor.stored.arrays)
