"""pydata/sparse: COO and GCXS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import within_memory
from ..formats.format import FormatLike, coordinates
from ..formats.index_map import IndexMap
from ..tensors.mapped import AnyTensor, MappedTensor, without_map
from ..tensors.tensor import Tensor, pack
from .scipy import _is_canonical

if TYPE_CHECKING:
    import sparse


@within_memory
def to_sparse(tensor: AnyTensor) -> sparse.COO:
    """A sparse.COO, with the fill value of the tensor, or zero; the structure is expanded, a map undone."""
    import sparse

    whole = without_map(tensor).expand_structure().convert(coordinates(tensor.ndim))
    coords, values = whole.unpack()
    table = np.array(coords, np.int64).reshape(whole.ndim, len(values))
    fill = np.zeros((), whole.dtype)[()] if whole.fill_value is None else whole.fill_value
    return sparse.COO(table, values, shape=whole.shape, has_duplicates=False, sorted=True, fill_value=fill)


@within_memory
def to_gcxs(tensor: AnyTensor, compressed_axes: Sequence[int] | None = None) -> sparse.GCXS:
    """A sparse.GCXS; with the same arrays where they are those of one: a CSR or CSC tensor, or one that `from_gcxs`
    gave, or that is stored as CSR through a grouping of dimensions in ascending order.

    compressed_axes: those of the rows; where they are not given, those that the tensor has, or else the library's own.
    """
    import sparse

    grouped = _grouped(tensor) if tensor.structure is None else None
    if grouped is None or (compressed_axes is not None and tuple(compressed_axes) != grouped[0]):
        return sparse.GCXS.from_coo(to_sparse(tensor), compressed_axes=compressed_axes)
    rows, stored = grouped
    fill = np.zeros((), stored.dtype)[()] if stored.fill_value is None else stored.fill_value
    arrays = (stored.values, stored.arrays["indices_1"], stored.arrays["pointers_to_1"])
    return sparse.GCXS(arrays, shape=tensor.shape, compressed_axes=rows, fill_value=fill)


def _grouped(tensor: AnyTensor) -> tuple[tuple[int, ...], Tensor] | None:
    """The dimensions of the rows and the tensor that is stored, where its arrays are those of a GCXS."""
    if not isinstance(tensor, MappedTensor):
        rows = {"CSR": (0,), "CSC": (1,)}.get(tensor.format.alias or "")
        return None if rows is None else (rows, tensor)
    map = tensor.map
    if tensor.format.alias != "CSR" or any(digit.radix != map.shape[digit.dimension] for digit in sum(map.groups, ())):
        return None
    parts = [tuple(digit.dimension for digit in group) for group in map.groups]
    return (parts[0], tensor.tensor) if parts == [tuple(sorted(part)) for part in parts] else None


@within_memory
def from_gcxs(array: sparse.GCXS) -> MappedTensor:
    """A GCXS of any rank, with its arrays: stored as CSR, through a map that groups the dimensions.

    Of rank 1 and 0, which the library does not compress, a list of entries. What it leaves out of order is sorted,
    duplicates are summed. Raises ArrayError for what is not sound.
    """
    import sparse

    if not isinstance(array, sparse.GCXS):
        raise TypeError(f"expected a GCXS of pydata/sparse, got {type(array).__name__}")
    rows = tuple(array.compressed_axes or ())
    if not rows:
        return MappedTensor(from_sparse(array))
    rest = [k for k in range(array.ndim) if k not in rows]
    map = IndexMap.grouping(array.shape, [*rows, *rest], [len(rows)])
    arrays = {"pointers_to_1": array.indptr, "indices_1": array.indices}
    loose = Tensor("CSR", map.stored_shape, arrays, array.data, check="trusted", fill_value=array.fill_value)
    if not _is_canonical(loose):
        loose = pack(*loose.unpack(), loose.shape, "CSR", duplicates="sum", fill_value=array.fill_value)
    return MappedTensor(loose, map)


@within_memory
def from_sparse(array: sparse.SparseArray, format: FormatLike | None = None) -> Tensor:
    """A Tensor of a COO, GCXS or DOK of pydata/sparse, with its fill value; by all coordinates if `format` is None, or
    of a GCXS of rank 2, as CSR or CSC with the same arrays.
    """
    import sparse

    if not isinstance(array, sparse.SparseArray):
        raise TypeError(f"expected an array of pydata/sparse, got {type(array).__name__}")
    if isinstance(array, sparse.GCXS) and array.ndim == 2 and array.compressed_axes in ((0,), (1,)):
        name = "CSR" if array.compressed_axes == (0,) else "CSC"
        arrays = {"pointers_to_1": array.indptr, "indices_1": array.indices}
        loose = Tensor(name, array.shape, arrays, array.data, check="trusted", fill_value=array.fill_value)
        if _is_canonical(loose):
            return loose if format is None else loose.convert(format)
    listed = array if isinstance(array, sparse.COO) else array.asformat("coo")
    target = coordinates(listed.ndim) if format is None else format
    return pack(listed.coords, listed.data, listed.shape, target, duplicates="sum", fill_value=listed.fill_value)
