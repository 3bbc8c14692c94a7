"""COO, GCXS and DOK arrays of pydata/sparse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import copy_if_writable
from ..errors import BinsparseError, FormatError, OptionError, Problem, needing, within_memory
from ..formats.format import FormatLike, coordinates
from ..formats.index_map import IndexMap
from ..tensors.changing import expanded
from ..tensors.foreign import owned, qualified
from ..tensors.packing import pack, sorted_tensor
from ..tensors.tensor import Tensor, inside

if TYPE_CHECKING:
    import sparse


@within_memory
def to_sparse(tensor: Tensor, *, copy: bool = False) -> sparse.COO:
    """Convert a tensor to a sparse.COO with its fill value, or zero. The structure is expanded, and a map is removed.

    Parameters
    ----------
    tensor : Tensor
        Tensor of any format.
    copy : bool, default False
        True copies the values, so that the result can be changed in place. The coordinates are always copied.

    Returns
    -------
    sparse.COO
        Sparse.COO of the same shape.

    Raises
    ------
    ArrayError, LimitError
        See `Tensor.load`.

    See Also
    --------
    from_sparse : Convert a COO, GCXS or DOK to a Tensor with its fill value.
    to_gcxs : Convert a tensor to a sparse.GCXS.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.to_sparse(bl.pack([[0, 1], [2, 0]], [1, 2], (2, 3), "CSR")).todense().tolist()
    [[0, 0, 1], [2, 0, 0]]
    """
    with needing("sparse"):
        import sparse

    whole = expanded(tensor.without_map()).convert(coordinates(tensor.ndim))
    coords, values = whole.unpack()
    table = np.array(coords, np.int64).reshape(whole.ndim, len(values))
    values = owned(values, tensor, copy)
    return sparse.COO(table, values, shape=whole.shape, has_duplicates=False, sorted=True, fill_value=inside(whole).pad)


@within_memory
def to_gcxs(tensor: Tensor, compressed_axes: Sequence[int] | None = None, *, copy: bool = False) -> sparse.GCXS:
    """Convert a tensor to a sparse.GCXS.

    The arrays are shared for CSR and CSC, and for CSR through a map that groups dimensions in ascending order, such as
    the result of `from_gcxs`.

    Parameters
    ----------
    tensor : Tensor
        Tensor of any format; the structure is expanded.
    compressed_axes : sequence of int, optional
        The dimensions of the rows. By default those of the tensor, or a choice of the library.
    copy : bool, default False
        See `to_scipy`.

    Returns
    -------
    sparse.GCXS
        Sparse.GCXS of the same shape.

    Raises
    ------
    FormatError
        GCXS does not support the type of the values, the shape, or the axes.

    See Also
    --------
    from_gcxs : Convert a GCXS of any rank to a Tensor.
    to_sparse : Convert a tensor to a sparse.COO with its fill value.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.to_gcxs(bl.pack([[0, 1], [2, 0]], [1, 2], (2, 3), "CSR")).compressed_axes
    (0,)
    """
    with needing("sparse"):
        import sparse
        from numba.core.errors import NumbaError  # which the library imports

    grouped = _grouped(tensor) if tensor.structure is None else None
    try:
        if grouped is None or (compressed_axes is not None and tuple(compressed_axes) != grouped[0]):
            return sparse.GCXS.from_coo(to_sparse(tensor, copy=copy), compressed_axes=compressed_axes)
        rows, stored = grouped
        # The library slices with signed index arrays, and compiles for each type.
        numbers = stored.arrays["indices_1"], stored.arrays["pointers_to_1"]
        signed = (x if x.dtype in (np.int32, np.int64) else x.astype(np.int64) for x in numbers)
        arrays = tuple(owned(x, tensor, copy) for x in (stored.values, *signed))
        return sparse.GCXS(arrays, shape=tensor.shape, compressed_axes=rows, fill_value=inside(stored).pad)
    except (NotImplementedError, NumbaError):  # the library compiles its checks for the type
        what = f"GCXS does not support the type {tensor.dtype}; call to_sparse, or astype() first"
        raise FormatError(Problem("values", what)) from None
    except BinsparseError:
        raise
    except ValueError as error:  # the library numbers all cells
        what = f"GCXS does not support {compressed_axes} for this shape: {error}; choose others, or call to_sparse"
        raise FormatError(Problem("compressed_axes", what)) from None


@within_memory
def from_sparse(
    array: sparse.SparseArray,
    format: FormatLike | None = None,
    *,
    copy: bool = True,
    attributes: Mapping[str, Any] | None = None,
) -> Tensor:
    """Convert a COO, GCXS or DOK to a Tensor with its fill value.

    Parameters
    ----------
    array : sparse.SparseArray
        Array of any class. Duplicates are summed.
    format : str, Format or mapping, optional
        Format of the tensor. By default a GCXS of rank 2 becomes CSR or CSC, and others a list of coordinates.
    copy : bool, default True
        False shares the values of a GCXS of rank 2, so that the tensor changes with them.
    attributes : mapping, optional
        JSON object that is stored with the tensor.

    Returns
    -------
    Tensor
        Tensor of the shape of `array`.

    Raises
    ------
    OptionError
        `array` is another object.
    ArrayError
        The arrays contradict each other.

    See Also
    --------
    to_sparse : Convert a tensor to a sparse.COO with its fill value.
    from_gcxs : Convert a GCXS of any rank to a Tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import sparse
    >>> bl.from_sparse(sparse.COO([[0, 1], [2, 0]], [1, 2], shape=(2, 3))).values.tolist()
    [1, 2]
    """
    with needing("sparse"):
        import sparse

    if not isinstance(array, sparse.SparseArray):
        raise OptionError(f"expected an array of pydata/sparse, got {qualified(array)}; call as_tensor")
    if isinstance(array, sparse.GCXS) and array.ndim == 2 and array.compressed_axes in ((0,), (1,)):
        made = _sorted(array, "CSR" if array.compressed_axes == (0,) else "CSC", array.shape, copy, attributes)
        return made if format is None else made.convert(format)
    listed = array if isinstance(array, sparse.COO) else array.asformat("coo")
    target = coordinates(listed.ndim) if format is None else format
    options = {"fill_value": listed.fill_value, "attributes": attributes}
    return pack(listed.coords, listed.data, listed.shape, target, duplicates="sum", **options)


@within_memory
def from_gcxs(array: sparse.GCXS, *, copy: bool = True, attributes: Mapping[str, Any] | None = None) -> Tensor:
    """Convert a GCXS of any rank to a Tensor: CSR through a map that groups the dimensions.

    Rank 0 and 1, which the library does not compress, become a list of entries. Unsorted entries are sorted, and
    duplicates are summed.

    Parameters
    ----------
    array : sparse.GCXS
        A sparse.GCXS.
    copy : bool, default True
        See `from_scipy`.
    attributes : mapping, optional
        JSON object that is stored with the tensor.

    Returns
    -------
    Tensor
        Tensor of the shape of `array`.

    Raises
    ------
    OptionError
        `array` is another object.
    ArrayError
        The arrays contradict each other.

    See Also
    --------
    to_gcxs : Convert a tensor to a sparse.GCXS.
    from_sparse : Convert a COO, GCXS or DOK to a Tensor with its fill value.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import numpy, sparse
    >>> str(bl.from_gcxs(sparse.GCXS.from_numpy(numpy.eye(6).reshape(2, 3, 6), compressed_axes=[2])).map)
    '2, (0 1)'
    """
    with needing("sparse"):
        import sparse

    if not isinstance(array, sparse.GCXS):
        raise OptionError(f"expected a GCXS of pydata/sparse, got {qualified(array)}; call from_sparse")
    rows = tuple(array.compressed_axes or ())
    if not rows:
        return from_sparse(array, copy=copy, attributes=attributes)
    rest = [k for k in range(array.ndim) if k not in rows]
    map = IndexMap.grouping(array.shape, [*rows, *rest], [len(rows)])
    return _sorted(array, "CSR", map.stored_shape, copy, attributes).with_map(map)


def _sorted(
    array: sparse.GCXS, format: str, shape: Sequence[int], copy: bool, attributes: Mapping[str, Any] | None
) -> Tensor:
    """A Tensor of the arrays of a GCXS. Unsorted entries are sorted, and duplicates summed."""
    arrays = {"pointers_to_1": copy_if_writable(array.indptr), "indices_1": copy_if_writable(array.indices)}
    options = {"fill_value": array.fill_value, "attributes": attributes}
    return sorted_tensor(format, shape, arrays, copy_if_writable(array.data, copy), duplicates="sum", **options)


def _grouped(tensor: Tensor) -> tuple[tuple[int, ...], Tensor] | None:
    """The dimensions of the rows, and the stored tensor; None if a GCXS has other arrays."""
    map = tensor.map
    if map is None:
        rows = {"CSR": (0,), "CSC": (1,)}.get(tensor.format.alias or "")
        return None if rows is None else (rows, tensor)
    if tensor.format.alias != "CSR" or any(digit.radix != map.shape[digit.dimension] for digit in sum(map.groups, ())):
        return None
    parts = [tuple(digit.dimension for digit in group) for group in map.groups]
    return (parts[0], tensor.stored) if parts == [tuple(sorted(part)) for part in parts] else None
