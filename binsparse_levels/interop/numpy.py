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
    tensor : Tensor
        Tensor of any format.
    limits : Limits, optional
        `dense_bytes` is the largest size of the array.

    Returns
    -------
    ndarray
        Array of the shape and type of the tensor.

    Raises
    ------
    LimitError
        The array is larger.

    See Also
    --------
    from_numpy : Pack a dense array.
    Tensor.to_dense : Return a dense array.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.to_numpy(bl.from_numpy([[0, 2], [3, 0]], "CSR")).tolist()
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
    array : array_like
        See `pack_dense`.
    format : str, Format or mapping, optional
        Format of the tensor; by default a list of coordinates.
    fill_value : scalar, default 0
        Value of the cells that are not stored.
    attributes : mapping, optional
        JSON object that is stored with the tensor.
    dims : sequence of str, optional
        Names of the dimensions.
    labels : mapping of int or str to array_like, optional
        Labels of the coordinates, by dimension; see `Tensor.with_labels`.

    Returns
    -------
    Tensor
        Tensor of the shape of `array`.

    Raises
    ------
    ArrayError, FormatError, LimitError
        See `pack_dense`.

    See Also
    --------
    to_numpy : Convert a tensor to a dense array.
    pack_dense : Pack the cells of a dense array that differ from the fill value into a Tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.from_numpy([[0, 2], [3, 0]], "CSR").values.tolist()
    [2, 3]
    """
    options: dict[str, Any] = {"fill_value": fill_value, "attributes": attributes, "dims": dims, "labels": labels}
    return pack_dense(array, "COO" if format is None else format, **options)
