"""Sparse arrays and matrices of scipy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..arrays import copy_if_writable
from ..errors import FormatError, OptionError, Problem, did_you_mean, needing, within_memory
from ..formats.format import FormatLike, coordinates
from ..formats.index_map import IndexMap
from ..tensors.blocks import BLOCKS, block_of
from ..tensors.changing import expanded, reformatted
from ..tensors.contents import Dimension
from ..tensors.foreign import check_representable, owned, qualified
from ..tensors.packing import pack, sorted_tensor
from ..tensors.tensor import Tensor

if TYPE_CHECKING:
    import scipy.sparse

_MANY_ROWS = 2**20


@within_memory
def to_scipy(tensor: Tensor, format: str | None = None, *, copy: bool = False) -> scipy.sparse.sparray:
    """Convert a tensor to a sparse array of scipy. The structure is expanded, and a map is removed.

    Parameters
    ----------
    tensor : Tensor
        Tensor of one dimension or more, with the fill value 0 or none.
    format : str, optional
        One of csr, csc, coo, bsr, dia, dok and lil. By default CSC, BSR and lists of coordinates keep their format.
        Other matrices that are stored by rows become csr, and all others coo; also those with more than 2**20 rows,
        unless they have an entry for each fourth row.
    copy : bool, default False
        True copies all arrays, so that the result can be changed in place. By default the result shares the arrays of
        the tensor, which are read-only; arrays made by the conversion are writable.

    Returns
    -------
    scipy.sparse.sparray
        Sparse array of the same shape.

    Raises
    ------
    FormatError
        scipy cannot represent the tensor.

    See Also
    --------
    from_scipy : Convert a sparse array or matrix of scipy to a Tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.to_scipy(bl.pack([[0, 1], [2, 0]], [1.0, 2.0], (2, 3), "CSR")).toarray().tolist()
    [[0.0, 0.0, 1.0], [2.0, 0.0, 0.0]]
    """
    with needing("scipy"):
        import scipy.sparse

    block = block_of(tensor.format, tensor.map) if format in (None, "bsr") else None
    whole = expanded(tensor.without_map() if block is None else tensor)
    type_fits = whole.dtype.kind in "biufc" and whole.dtype != np.float16
    check_representable(whole, "scipy.sparse", ranks=range(1, whole.ndim + 1), type_fits=type_fits)
    own = {"CSR": "csr", "CSC": "csc"}.get(whole.format.alias or "")
    if format is None and block is None and not own and _by_rows(whole):
        own, whole = "csr", whole.convert("CSR")
    if format in ("csr", "csc") and whole.ndim == 2:
        own, whole = format, whole.convert(format.upper())
    if block is not None:
        arrays = [owned(whole.stored.arrays[name], tensor, copy) for name in ("indices_1", "pointers_to_1")]
        values = owned(whole.stored.values, tensor, copy).reshape(-1, *block)
        result = scipy.sparse.bsr_array((values, *arrays), shape=whole.shape)
    elif own:
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
        known = "coo", "csr", "csc", "bsr", "dia", "dok", "lil"
        said = f": {error}" if format in known else ""
        what = f"scipy does not support {format!r:.40}{said}; {did_you_mean(format, known)}choose {', '.join(known)}"
        raise FormatError(Problem("format", what)) from None


def _by_rows(matrix: Tensor) -> bool:
    """Return True for a matrix that is stored by rows, not as a list, with few rows or with entries in many."""
    is_list = matrix.format.alias is not None and matrix.format.alias.startswith("COO")
    sized = matrix.ndim == 2 and matrix.shape[0] <= max(_MANY_ROWS, 4 * matrix.nnz)
    return sized and matrix.format.order == (0, 1) and not is_list


@within_memory
def from_scipy(
    matrix: scipy.sparse.sparray | scipy.sparse.spmatrix,
    format: FormatLike | None = None,
    *,
    copy: bool = True,
    attributes: Mapping[str, Any] | None = None,
    dims: Sequence[str] | None = None,
    labels: Mapping[Dimension, npt.ArrayLike | None] | None = None,
) -> Tensor:
    """Convert a sparse array or matrix of scipy to a Tensor.

    Parameters
    ----------
    matrix : scipy.sparse.sparray or spmatrix
        Matrix or array of any format. Unsorted entries are sorted, and duplicates are summed.
    format : str, Format or mapping, optional
        Format of the tensor. By default csr becomes CSR, csc becomes CSC, bsr becomes blocks through a map, and others
        a list of coordinates.
    copy : bool, default True
        False shares the values of csr and csc, so that the tensor changes with them. Index and pointer arrays are
        always copied, because kernels index memory with them.
    attributes : mapping, optional
        JSON object that is stored with the tensor.
    dims : sequence of str, optional
        Names of the dimensions.
    labels : mapping of int or str to array_like, optional
        Labels of the coordinates, by dimension; see `Tensor.with_labels`.

    Returns
    -------
    Tensor
        Tensor of the shape of `matrix`.

    Raises
    ------
    ArrayError
        The arrays contradict each other.

    See Also
    --------
    to_scipy : Convert a tensor to a sparse array of scipy.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import scipy.sparse
    >>> bl.from_scipy(scipy.sparse.eye_array(3, format="csr")).number_of_stored_values
    3
    """
    with needing("scipy"):
        import scipy.sparse

    if not scipy.sparse.issparse(matrix):
        raise OptionError(f"expected a sparse array of scipy, got {qualified(matrix)}; call as_tensor")
    options: dict[str, Any] = {"duplicates": "sum", "fill_value": 0, "attributes": attributes}
    if matrix.format in ("csr", "csc", "bsr") and matrix.ndim == 2:
        map = IndexMap.blocks(matrix.shape, matrix.blocksize) if matrix.format == "bsr" else None
        name, shape = (matrix.format.upper(), matrix.shape) if map is None else (BLOCKS, map.stored_shape)
        # In scipy, the arrays may be longer than the last pointer, and the flag for canonical form may be wrong.
        sound = np.ndim(matrix.indptr) == 1 and len(matrix.indptr) and matrix.indptr.dtype.kind in "iu"
        stored = int(matrix.indptr[-1]) if sound else len(matrix.data)
        arrays = {
            "pointers_to_1": copy_if_writable(matrix.indptr),
            "indices_1": copy_if_writable(matrix.indices[:stored]),
        }
        made = sorted_tensor(name, shape, arrays, copy_if_writable(matrix.data[:stored], copy).reshape(-1), **options)
        made = made if map is None else made.with_map(map)
        return (made if format is None else reformatted(made, format)).with_labels(labels, dims=dims)
    listed = matrix.tocoo(copy=False)
    coords = listed.coords if hasattr(listed, "coords") else (listed.row, listed.col)
    target = coordinates(len(listed.shape)) if format is None else format
    return pack(coords, listed.data, listed.shape, target, dims=dims, labels=labels, **options)
