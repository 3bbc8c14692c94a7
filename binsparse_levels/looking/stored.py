"""The bytes of index and pointer arrays in memory and in files."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

from ..io import write
from ..tensors.tensor import Tensor

Stored: TypeAlias = Literal["memory", "narrow", "bitpacked"]  # as they are, or by the option of `write` of that name


def index_bytes(tensor: Tensor, how: Stored) -> int:
    """The bytes of all arrays but the values."""
    if how == "memory":
        return sum(x.nbytes for x in tensor.stored.arrays.values())
    store: dict[str, Any] = {}
    write(store, tensor, narrow=how == "narrow", bitpacked=how == "bitpacked")
    arrays = {name: x for name, x in store.items() if isinstance(x, np.ndarray)}
    return sum(x.nbytes for name, x in arrays.items() if name in tensor.stored.arrays)
