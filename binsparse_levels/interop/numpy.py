"""numpy: dense arrays."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from ..errors import within_memory
from ..formats.format import FormatLike
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.mapped import AnyTensor
from ..tensors.tensor import Tensor, pack_dense


@within_memory
def to_numpy(tensor: AnyTensor, *, limits: Limits = DEFAULT_LIMITS) -> npt.NDArray[Any]:
    """A dense array: `tensor.to_dense()`."""
    return tensor.to_dense(limits=limits)


@within_memory
def from_numpy(array: npt.ArrayLike, format: FormatLike, *, fill_value: Any = 0) -> Tensor:
    """What differs from the fill value in a dense array: `pack_dense`."""
    return pack_dense(array, format, fill_value=fill_value)
