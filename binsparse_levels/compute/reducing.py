"""Reductions along dimensions: sums, extremes, means and variances, as numpy's of the dense array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import OptionError, Problem, check_choice, did_you_mean, within_memory
from ..formats.format import FormatLike
from ..limits import Limits
from ..tensors.contents import Dimension, dimension_of
from ..tensors.foreign import as_tensor
from ..tensors.late_imports import late_import
from ..tensors.tensor import Tensor
from .products import LETTERS, einsum
from .reductions import (
    CASTING,
    REDUCTIONS,
    SPREAD,
    Cells,
    checked_chosen,
    planned,
    totals_of_stored,
    totals_of_unstored,
)
from .types import checked_result, number_type
from .walk import checked_memory

Axis: TypeAlias = Dimension | Sequence[Dimension] | None


class Statistics(NamedTuple):
    """The result of `statistics`: an array, or a scalar, for each reduction.

    Parameters
    ----------
    count : ndarray or int
        Numbers of stored entries.
    sum, mean, var, std, min, max, norm : ndarray or scalar
        The other reductions.

    See Also
    --------
    statistics : Compute sums, means, variances and extremes along dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> bl.statistics(bl.pack_dense(np.eye(2), "CSR"), 0).mean.tolist()
    [0.5, 0.5]
    """

    count: Any
    sum: Any
    mean: Any
    var: Any
    std: Any
    min: Any
    max: Any
    norm: Any


@within_memory
def reduce(
    tensor: Tensor,
    axis: Axis = None,
    how: str = "sum",
    *,
    cells: Cells = "all",
    dtype: npt.DTypeLike | None = None,
    keepdims: bool = False,
    ddof: float = 0,
    format: FormatLike | None = None,
    labelled: bool = False,
    memory: int | None = None,
    limits: Limits | None = None,
) -> Any:
    """Reduce dimensions, as numpy's functions of the same names reduce the dense array.

    Cells that are not stored have the fill value, or zero if there is none. Both triangles of a structure take part. A
    tensor in a file is read in blocks.

    Sums of integers and booleans have 64 bits. Sums of floats have at least the precision of float64. Results do not
    depend on the number of threads.

    Parameters
    ----------
    tensor : Tensor
        Tensor, or any object that `as_tensor` accepts.
    axis : int, str or sequence of these, optional
        Dimensions to reduce, by number or by name: one, several, or None for all.
    how : str, default 'sum'
        "sum", "prod", "count" (of stored entries), "min", "max", "any", "all", "mean", "var", "std" or "norm". The
        norm is the root of the sum of squares.
    cells : {'all', 'stored'}, default 'all'
        "all", or "stored" for the stored entries only, without the fill value. The mean and variance of no entries are
        NaN, and so are the minimum and maximum of floats.
    dtype : dtype_like, optional
        Type of the result, and the least precise type of the computation. As in numpy, "sum", "prod" and "mean" cast
        each value first: a cast of floats to integers drops fractions.
    keepdims : bool, default False
        Keep the reduced dimensions, with size 1.
    ddof : float, default 0
        The variance and the standard deviation divide by the number of cells less `ddof`.
    format : str, Format or mapping, optional
        Return the sum as a Tensor in this format, for results that are sparse themselves.
    labelled : bool, default False
        Return an xarray.DataArray with the names and labels of the remaining dimensions.
    memory : int, optional
        Bytes for the result and the blocks that are read from a file; by default 2**28.
    limits : Limits, optional
        `dense_bytes` bounds the size of the result; by default the limits of the tensor.

    Returns
    -------
    scalar, ndarray or Tensor
        Array of the remaining dimensions, numpy scalar if none remain, xarray.DataArray if `labelled`, or
        Tensor if there is a `format`.

    Raises
    ------
    OptionError, IndexError
        The reduction or the dimension is unknown, options do not go together, or the type drops imaginary parts.
    ArrayError
        Arithmetic does not support the type of the values, or a cell has no minimum or maximum.
    FormatError
        The sum has a `format`, and cells that are not stored are not 0.
    LimitError
        The result exceeds `limits` or `memory`.

    See Also
    --------
    einsum : Sum products of tensors and dense arrays.
    groupby : Group the coordinates of a dimension, for sums, means and extremes.
    statistics : Compute sums, means, variances and extremes along dimensions.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> tensor = bl.pack([[0, 1, 1], [2, 0, 1]], [3.0, 4.0, 6.0], (2, 3), "CSR")
    >>> bl.reduce(tensor, 0, "sum").tolist(), float(bl.reduce(tensor, None, "mean"))
    ([4.0, 6.0, 3.0], 2.1666666666666665)
    >>> bl.reduce(tensor, 1, "min").tolist(), bl.reduce(tensor, 1, "min", cells="stored").tolist()
    ([0.0, 0.0], [3.0, 4.0])
    >>> bl.reduce(tensor, 0, "sum", format="CVEC").to_dense().tolist()
    [4.0, 6.0, 3.0]
    """
    if not isinstance(how, str) or how not in REDUCTIONS:
        known = f"{did_you_mean(how, REDUCTIONS)}choose one of {', '.join(REDUCTIONS)}"
        raise OptionError(Problem("how", f"unknown reduction {how!r:.40}; {known}"))
    tensor = as_tensor(tensor, copy=False)
    reduced = _checked_axes(axis, tensor)
    if ddof and not REDUCTIONS[how].spread:
        raise OptionError(Problem("ddof", f"{how} does not divide by a number of cells; use it with var or std"))
    if keepdims and (labelled or format is not None):
        raise OptionError(Problem("keepdims", "the result is an array; leave out labelled and format"))
    rest = [k for k in range(tensor.ndim) if k not in reduced]
    if format is not None:
        if how != "sum" or labelled or not rest or tensor.ndim > len(LETTERS):
            raise OptionError(Problem("format", "only a sum that keeps a dimension is a Tensor; leave format out"))
        spec = f"{LETTERS[: tensor.ndim]}->{''.join(LETTERS[k] for k in rest)}"
        return einsum(spec, tensor, dtype=dtype, format=format, memory=memory, limits=limits)
    made = _reduced(tensor, reduced, (how,), cells, dtype, memory, limits, ddof)[0]
    if keepdims:
        return np.reshape(made, [1 if k in reduced else n for k, n in enumerate(tensor.shape)])
    return late_import("data_array")(tensor, made, rest) if labelled else made


@within_memory
def statistics(
    tensor: Tensor,
    axis: Axis = None,
    *,
    cells: Cells = "all",
    memory: int | None = None,
    limits: Limits | None = None,
) -> Statistics:
    """Count, sum, mean, variance, standard deviation, extremes and norm along dimensions. A file is read once.

    Parameters
    ----------
    tensor : Tensor
        Tensor, in memory or opened.
    axis : int, str or sequence of these, optional
        Dimensions to reduce, by number or by name. All by default.
    cells : {'all', 'stored'}, default 'all'
        "stored" leaves out cells that are not stored. `count` is always the number of stored entries.
    memory : int, optional
        Bytes that the call may take.
    limits : Limits, optional
        `dense_bytes` bounds the size of all results together; by default the limits of the tensor.

    Returns
    -------
    Statistics
        Statistics with an array, or a scalar, for each reduction.

    Raises
    ------
    OptionError, IndexError, ArrayError, LimitError
        See `reduce`.

    See Also
    --------
    levels_of : Compute statistics of the levels of the stored tensor.
    reduce : Reduce dimensions.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> by_row = bl.statistics(bl.pack([[0, 1, 1], [2, 0, 1]], [3.0, 4.0, 6.0], (2, 3), "CSR"), 1)
    >>> by_row.max.tolist(), by_row.count.tolist()
    ([3.0, 6.0], [1, 2])
    """
    tensor = as_tensor(tensor, copy=False)
    return Statistics(*_reduced(tensor, _checked_axes(axis, tensor), Statistics._fields, cells, None, memory, limits))


def _reduced(
    tensor: Tensor,
    reduced: set[int],
    hows: tuple[str, ...],
    cells: Cells,
    dtype: Any,
    memory: int | None,
    limits: Limits | None,
    ddof: float = 0,
) -> list[Any]:
    check_choice("cells", cells, Cells)
    own, stored_type = tensor.shape, number_type(tensor.dtype, "values")
    axes = tuple([k for k in range(len(own)) if k not in reduced])
    shape = tuple([own[k] for k in axes])
    size = math.prod([own[k] for k in reduced])
    result = stored_type if dtype is None else checked_result(dtype)
    values = np.dtype(np.float32) if stored_type == np.float16 else stored_type
    fill = values.type(0 if tensor.fill_value is None else tensor.fill_value) if cells == "all" else None
    casts = dtype is not None and hows[0] in CASTING and values.kind + result.kind in ("fi", "fu", "fb", "ib", "ub")
    taken = result if casts else values
    plan, names = planned(hows, taken, result, fill if fill is None else fill.astype(taken))
    limits = tensor.limits if limits is None else limits
    sparse = ", which is sparse with format=" if hows == ("sum",) else ""
    what = f"the size in bytes of the result{sparse}"
    limits.hold("dense_bytes", 8 * math.prod(shape) * plan.number, "axis", what)
    stored = everything = totals_of_stored(tensor, plan, axes, shape, (values, taken), checked_memory(memory))
    if fill is not None and plan.counts is not None:
        everything = plan.joined(stored, totals_of_unstored(plan, fill.astype(taken), size, stored[plan.counts]))
    results = []
    for how in hows:
        record = REDUCTIONS[how]
        totals = stored if record.stored else everything
        number = size if plan.counts is None else totals[plan.counts]
        with np.errstate(all="ignore"):
            divided = np.maximum(number - ddof, 0) if ddof else number
            made = record.end(totals[SPREAD if record.spread else names[how]], divided)
            if record.chosen:
                made = checked_chosen(how, made.astype(stored_type), number, cells).astype(tensor.dtype, copy=False)
            if dtype is not None and made.dtype.kind == "c" != result.kind:
                raise OptionError(Problem("dtype", f"the {how} is complex, but {result} is not; pass a complex type"))
            made = made.reshape(shape).astype(made.dtype if dtype is None else result, copy=False)
        results.append(made if shape else made[()])
    return results


def _checked_axes(axis: Axis, tensor: Tensor) -> set[int]:
    if axis is None:
        return set(range(tensor.ndim))
    given: list[Any] = list(axis) if isinstance(axis, tuple | list) or np.ndim(axis) else [axis]  # type: ignore[arg-type]
    axes = [dimension_of(tensor, k) for k in given]
    if len(set(axes)) != len(axes):
        raise OptionError(Problem("axis", f"{given!r:.60} has a dimension twice; name each once"))
    return set(axes)
