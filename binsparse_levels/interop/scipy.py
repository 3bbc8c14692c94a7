"""Sparse arrays and matrices of scipy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import apart
from ..errors import FormatError, OptionError, Problem, needing, within_memory
from ..formats.format import FormatLike, coordinates
from ..formats.index_map import IndexMap
from ..tensors.changing import expanded
from ..tensors.foreign import owned, qualified
from ..tensors.packing import pack, sorted_tensor
from ..tensors.targets import check_representable
from ..tensors.tensor import Tensor

if TYPE_CHECKING:
    import scipy.sparse

_BLOCKS = "dense, sparse, dense(2)"  # through a map of blocks


@within_memory
def to_scipy(tensor: Tensor, format: str | None = None, *, copy: bool = False) -> scipy.sparse.sparray:
    """Convert a tensor to a sparse array of scipy. The structure is expanded, and a map is removed.

    Parameters
    ----------
    tensor : of one dimension or more, with the fill value 0 or none.
    format : csr, csc, coo, bsr, dia, dok or lil. By default CSR and CSC tensors keep their format, `dense, sparse,
        dense(2)` over the blocks of a matrix becomes bsr, and all others become coo.
    copy : with True, all arrays of the result are its own, so that it can be changed in place. By default the arrays
        that the tensor holds are shared, and read-only; those that the conversion makes are the result's own.

    Raises
    ------
    FormatError : scipy cannot represent the tensor.

    >>> from binsparse_levels import pack, to_scipy
    >>> to_scipy(pack([[0, 1], [2, 0]], [1.0, 2.0], (2, 3), "CSR")).toarray().tolist()
    [[0.0, 0.0, 1.0], [2.0, 0.0, 0.0]]
    """
    with needing("scipy"):
        import scipy.sparse

    if format in (None, "bsr") and (block := _block_of(tensor)):
        check_representable(tensor, "scipy.sparse", type_fits=_fits(tensor.dtype))
        stored = tensor.stored
        values = owned(stored.values, tensor, copy).reshape(-1, *block)
        arrays = [owned(stored.arrays[name], tensor, copy) for name in ("indices_1", "pointers_to_1")]
        return scipy.sparse.bsr_array((values, *arrays), shape=tensor.shape)
    whole = expanded(tensor.without_map())
    check_representable(whole, "scipy.sparse", ranks=range(1, whole.ndim + 1), type_fits=_fits(whole.dtype))
    own = {"CSR": "csr", "CSC": "csc"}.get(whole.format.alias or "")
    if format in ("csr", "csc") and whole.ndim == 2:
        own, whole = format, whole.convert(format.upper())
    if own:
        made = getattr(scipy.sparse, f"{own}_array")
        pointers, indices = whole.arrays["pointers_to_1"], whole.arrays["indices_1"]
        arrays = [owned(x, tensor, copy) for x in (whole.values, indices, pointers)]
        result = made(tuple(arrays), shape=whole.shape)
    else:
        listed = whole if whole.format.alias in ("COOC", "CVEC") else whole.convert(coordinates(whole.ndim))
        columns: list[Any] = [None] * listed.ndim
        for k, dimension in enumerate(listed.format.order):
            columns[dimension] = owned(listed.arrays[f"indices_{k}"], tensor, copy)
        result = scipy.sparse.coo_array((owned(listed.values, tensor, copy), tuple(columns)), shape=listed.shape)
    try:
        return result if format in (None, result.format) else result.asformat(format)
    except (ValueError, TypeError) as error:
        raise FormatError(Problem("format", f"scipy has no {format!r:.40}: {error}; choose another")) from None


@within_memory
def from_scipy(
    matrix: scipy.sparse.sparray | scipy.sparse.spmatrix,
    format: FormatLike | None = None,
    *,
    copy: bool = True,
    attributes: Mapping[str, Any] | None = None,
) -> Tensor:
    """Convert a sparse array or matrix of scipy to a Tensor.

    Parameters
    ----------
    matrix : of any format. Entries that are not in order are sorted, and duplicates are summed.
    format : by default csr becomes CSR, csc becomes CSC, bsr becomes `dense, sparse, dense(2)` over its blocks, and
        others a list of coordinates.
    copy : with False the values of csr, csc and bsr are shared, so that the tensor changes with them. Index and
        pointer arrays are always copied, because kernels index memory with them.
    attributes : as for Tensor.

    Raises
    ------
    ArrayError : the arrays contradict each other.

    >>> import scipy.sparse
    >>> from binsparse_levels import from_scipy
    >>> from_scipy(scipy.sparse.eye_array(3, format="csr")).number_of_stored_values
    3
    """
    with needing("scipy"):
        import scipy.sparse

    if not scipy.sparse.issparse(matrix):
        raise OptionError(f"expected a sparse array of scipy, got {qualified(matrix)}; call as_tensor")
    options: dict[str, Any] = {"duplicates": "sum", "fill_value": 0, "attributes": attributes}
    if (matrix.format in ("csr", "csc") and matrix.ndim == 2) or (matrix.format == "bsr" and format is None):
        map = IndexMap.blocks(matrix.shape, matrix.blocksize) if matrix.format == "bsr" else None
        name, shape = (matrix.format.upper(), matrix.shape) if map is None else (_BLOCKS, map.stored_shape)
        # In scipy the arrays may be longer than the last pointer, and the flag for canonical form may be wrong.
        sound = np.ndim(matrix.indptr) == 1 and len(matrix.indptr) and matrix.indptr.dtype.kind in "iu"
        stored = int(matrix.indptr[-1]) if sound else len(matrix.data)
        arrays = {"pointers_to_1": apart(matrix.indptr), "indices_1": apart(matrix.indices[:stored])}
        made = sorted_tensor(name, shape, arrays, apart(matrix.data[:stored], copy).reshape(-1), **options)
        made = made if map is None else made.with_map(map)
        return made if format is None else made.convert(format)
    listed = matrix.tocoo(copy=False)
    coords = listed.coords if hasattr(listed, "coords") else (listed.row, listed.col)
    target = coordinates(len(listed.shape)) if format is None else format
    return pack(coords, listed.data, listed.shape, target, **options)


def _fits(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of scipy have this type."""
    return dtype.kind in "biufc" and dtype != np.float16


def _block_of(tensor: Tensor) -> tuple[int, ...] | None:
    """The size of the blocks of a matrix that is stored as bsr stores it, else None."""
    if (map := tensor.map) is None or tensor.ndim != 2 or map.padded or str(tensor.format) != _BLOCKS:
        return None
    block = map.stored_shape[2:]
    return block if all(block) and map == IndexMap.blocks(tensor.shape, block) else None
