"""Pack entries, and the cells of dense arrays, into tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engine.dense import gather_tree
from ..engine.packing import RepeatedError, pack_entries, repeated
from ..engine.tree import Duplicates
from ..errors import ArrayError, FormatError, Problem, check_choice, raise_if, within_memory
from ..formats.dtypes import sound_booleans
from ..formats.format import FormatLike, with_map
from ..formats.index_map import MapLike, parse_map
from ..formats.structure import structure_problems, triangle_problems
from ..limits import DEFAULT_LIMITS, Limits
from .backing import TreeBacking, entries_of, one_value
from .changing import with_tree
from .contents import Dimension, remade
from .inside import Metadata
from .tensor import Tensor, inside, owning, tensor_of
from .validation import (
    check_value_type,
    checked_array,
    checked_entries,
    checked_fill,
    checked_format,
    checked_json,
    checked_sizes,
    differ,
    mirror_problems,
    pad_of,
    split_mask,
)
from .views import Mapped


@within_memory
def pack(
    coords: Sequence[npt.ArrayLike] | npt.ArrayLike,
    values: npt.ArrayLike,
    shape: int | Sequence[int],
    format: FormatLike,
    *,
    duplicates: Duplicates = "error",
    fill_value: Any = None,
    structure: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    map: MapLike | None = None,
    dims: Sequence[str] | None = None,
    labels: Mapping[Dimension, npt.ArrayLike | None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Tensor:
    """Pack entries in any order into a Tensor.

    Parameters
    ----------
    coords : sequence of array_like
        An integer array for each dimension, or one array of shape (ndim, n).
    values : array_like
        An array of length n, or a scalar for all entries (an iso tensor). Masked values are not stored.
    shape : int or sequence of int
        The sizes of the dimensions.
    format : str, Format or mapping
        Format of the stored tensor. `LEVELS through MAP` includes its map.
    duplicates : {'error', 'sum', 'first', 'last'}, default 'error'
        Treatment of repeated coordinates: raise an "error", store the "sum", the "first" or the "last" in input order.
        The sum of booleans is True if any of them is. Other sums have 64 bits, as in numpy; an integer that the type
        of the values cannot hold raises OptionError.
    fill_value : scalar, optional
        Value of the cells that are not stored.
    structure : str, optional
        Structure of a matrix, such as "symmetric"; see `Tensor`.
    attributes : mapping, optional
        JSON object that is stored with the tensor.
    map : str or IndexMap, optional
        An index map or its notation, through which the tensor is stored.
    dims : sequence of str, optional
        Names of the dimensions.
    labels : mapping of int or str to array_like, optional
        Labels of the coordinates, by dimension; see `Tensor.with_labels`.
    limits : Limits, optional
        Bounds on the resources of this call.

    Returns
    -------
    Tensor
        Tensor of shape `shape`.

    Raises
    ------
    ArrayError
        Coordinates are out of range or repeated, or arrays have a wrong type or length.
    FormatError
        The format cannot represent the tensor.
    LimitError
        The arrays would be too large.
    OptionError
        An option is unknown, or a sum of duplicates needs a larger type.

    See Also
    --------
    pack_dense : Pack the cells of a dense array that differ from the fill value into a Tensor.
    from_table : Pack the rows of a table into a Tensor.
    Tensor.unpack : Return the stored entries.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.pack([[1, 0], [0, 2]], [1.5, 2.5], (2, 3), "CSR", fill_value=0).to_dense().tolist()
    [[0.0, 0.0, 2.5], [1.5, 0.0, 0.0]]
    """
    check_choice("duplicates", duplicates, Duplicates)
    format, map = with_map(format, map)
    if map is not None:
        through = parse_map(map, checked_sizes(shape))
        columns, stored = checked_entries(coords, values, len(through.shape))
        options: dict[str, Any] = {"duplicates": duplicates, "fill_value": fill_value, "structure": structure}
        options |= {"attributes": attributes, "limits": limits}
        try:
            made = pack(through.forward(columns), stored, through.stored_shape, format, **options)
        except RepeatedError as error:
            raise repeated([int(x[0]) for x in through.backward([[x] for x in error.coords])]) from None
        return remade(made, Mapped(inside(made).backing, through)).with_labels(labels, dims=dims)
    parsed, sizes = checked_format(format, shape, limits)
    columns, stored = checked_entries(coords, values, len(sizes))
    raise_if(FormatError, structure_problems(structure, sizes, stored.dtype) if structure is not None else ())
    iso = stored.ndim == 0
    entries = entries_of(parsed, sizes, columns, stored.reshape(-1), iso)
    fill = checked_fill(fill_value, stored.dtype)
    pad = pad_of(fill, stored.dtype)
    metadata = Metadata(fill, checked_json(attributes, limits))
    if structure is not None:
        raise_if(FormatError, mirror_problems(structure, parsed, pad))
        raise_if(ArrayError, triangle_problems(structure, columns))
    tree = pack_entries(parsed.levels, entries, pad, duplicates, limits)
    return tensor_of(TreeBacking(parsed, tree, limits, structure), metadata).with_labels(labels, dims=dims)


def sorted_tensor(
    format: FormatLike,
    shape: int | Sequence[int],
    arrays: Mapping[str, npt.ArrayLike],
    values: npt.ArrayLike,
    *,
    duplicates: Duplicates = "error",
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> Tensor:
    """A Tensor of arrays whose entries may be unsorted. Sorted arrays are shared, others are sorted.

    duplicates: as for `pack`. options: as for Tensor. Raises ArrayError for faults that sorting does not repair.
    """
    try:
        return owning(format, shape, arrays, values, limits=limits, **options)
    except ArrayError as fault:
        loose = owning(format, shape, arrays, values, check="trusted", limits=limits, **options)
        return in_order(loose, fault, duplicates, limits)


def in_order(loose: Tensor, fault: ArrayError, duplicates: Duplicates, limits: Limits) -> Tensor:
    """The tensor with sorted entries. fault: the error to raise if sorting does not repair the tensor."""
    stored = inside(loose).backing.stored
    coords, values = stored.entries(None)
    listed = one_value(values) if stored.tree.iso and len(values) else values
    fill = loose.fill_value
    made = pack(coords, listed, stored.shape, stored.format, duplicates=duplicates, fill_value=fill, limits=limits)
    if duplicates == "error" and any(len(made.arrays[name]) != len(x) for name, x in stored.tree.arrays.items()):
        raise fault  # a fiber was stored twice
    return with_tree(loose, made.format, inside(made).tree)


@within_memory
def pack_dense(
    array: npt.ArrayLike,
    format: FormatLike,
    *,
    fill_value: Any = 0,
    pattern: npt.ArrayLike | None = None,
    attributes: Mapping[str, Any] | None = None,
    map: MapLike | None = None,
    dims: Sequence[str] | None = None,
    labels: Mapping[Dimension, npt.ArrayLike | None] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Tensor:
    """Pack the cells of a dense array that differ from the fill value into a Tensor. NaN equals NaN.

    Parameters
    ----------
    array : array_like
        Masked cells are not stored.
    format : str, Format or mapping
        Format of the stored tensor.
    fill_value : scalar, default 0
        0 by default. With None, all cells that differ from zero are stored.
    pattern : array_like, optional
        Booleans of the same shape, which mark the cells to store.
    attributes : mapping, optional
        JSON object that is stored with the tensor.
    map : str or IndexMap, optional
        Index map through which the tensor is stored.
    dims : sequence of str, optional
        Names of the dimensions.
    labels : mapping of int or str to array_like, optional
        Labels of the coordinates, by dimension; see `Tensor.with_labels`.
    limits : Limits, optional
        Bounds on the resources of this call.

    Returns
    -------
    Tensor
        Tensor of the shape of `array`.

    Raises
    ------
    ArrayError
        The pattern has another shape, or the type cannot represent the fill value.
    FormatError
        The format cannot represent the tensor.
    LimitError
        The arrays would be too large.

    See Also
    --------
    pack : Pack entries in any order into a Tensor.
    Tensor.to_dense : Return a dense array.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.pack_dense([[0, 2], [3, 0]], "CSR").values.tolist()
    [2, 3]
    """
    format, map = with_map(format, map)
    dense, masked = split_mask(array, "array")
    dense = sound_booleans(dense)
    check_value_type(dense.dtype)
    fill = checked_fill(fill_value, dense.dtype)
    pad = pad_of(fill, dense.dtype)
    if pattern is None:
        mask = differ(dense, pad)
    else:
        mask = sound_booleans(checked_array(pattern, "pattern"))
        if mask.dtype != bool or mask.shape != dense.shape:
            raise ArrayError(
                Problem("pattern", f"expected booleans of shape {dense.shape}, got {mask.dtype} of shape {mask.shape}")
            )
    if masked is not None:
        mask = mask & ~masked
    if not mask.size or not dense.ndim or map is not None:
        entries = (np.nonzero(mask), dense[mask]) if dense.ndim else ((), dense[mask])
        options: dict[str, Any] = {"attributes": attributes, "map": map, "limits": limits}
        return pack(*entries, dense.shape, format, fill_value=fill_value, dims=dims, labels=labels, **options)
    parsed, _ = checked_format(format, dense.shape, limits)
    native = dense.astype(dense.dtype.newbyteorder("="), copy=False)
    tree = gather_tree(native, mask, parsed.levels, parsed.order, pad, limits)
    metadata = Metadata(fill, checked_json(attributes, limits))
    return tensor_of(TreeBacking(parsed, tree, limits), metadata).with_labels(labels, dims=dims)
