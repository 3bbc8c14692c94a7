"""Dense numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from ..errors import within_memory
from ..formats.format import FormatLike
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.contents import Dimension
from ..tensors.packing import pack_dense
from ..tensors.tensor import Tensor


@within_memory
def to_numpy(tensor: Tensor, *, limits: Limits = DEFAULT_LIMITS) -> npt.NDArray[Any]:
    """Convert a tensor to a dense array, as `Tensor.to_dense` does.

    Parameters
    ----------
    tensor : of any format.
    limits : `dense_bytes` is the largest size of the array.

    Returns
    -------
    numpy.ndarray of the shape and type of the tensor.

    Raises
    ------
    LimitError : the array is larger.

    >>> from binsparse_levels import from_numpy, to_numpy
    >>> to_numpy(from_numpy([[0, 2], [3, 0]], "CSR")).tolist()
    [[0, 2], [3, 0]]
    """
    return tensor.to_dense(limits=limits)


@within_memory
def from_numpy(
    array: npt.ArrayLike,
    format: FormatLike | None = None,
    *,
    fill_value: Any = 0,
    attributes: Mapping[str, Any] | None = None,
    dims: Sequence[str] | None = None,
    labels: Mapping[Dimension, npt.ArrayLike | None] | None = None,
) -> Tensor:
    """Pack the cells of a dense array that differ from the fill value, as `pack_dense` does.

    Parameters
    ----------
    format : by default a list of coordinates.
    array, fill_value, attributes, dims, labels : as for `pack_dense`.

    Returns
    -------
    Tensor of the shape of `array`.

    Raises
    ------
    ArrayError, FormatError, LimitError : as for `pack_dense`.

    >>> from binsparse_levels import from_numpy
    >>> from_numpy([[0, 2], [3, 0]], "CSR").values.tolist()
    [2, 3]
    """
    options: dict[str, Any] = {"fill_value": fill_value, "attributes": attributes, "dims": dims, "labels": labels}
    return pack_dense(array, "COO" if format is None else format, **options)
