"""scipy.sparse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FormatError, Problem, within_memory
from ..formats.format import FormatLike, coordinates
from ..tensors.mapped import AnyTensor, without_map
from ..tensors.tensor import Tensor, pack

if TYPE_CHECKING:
    import scipy.sparse


@within_memory
def to_scipy(tensor: AnyTensor, format: str | None = None) -> scipy.sparse.sparray:
    """A sparse array of scipy, of the format that the tensor has, if scipy has it (csr, csc, coo), else coo.

    format: another one of scipy's (csr, csc, coo, bsr, dia, dok, lil). The structure is expanded, a map undone.
    The arrays are shared where scipy takes them as they are: read-only ones. Raises FormatError for a fill value other
    than zero, which scipy cannot say, and for rank 0.
    """
    import scipy.sparse

    whole = without_map(tensor).expand_structure()
    if whole.fill_value is not None and whole.fill_value != 0:
        raise FormatError(Problem("fill_value", f"scipy has no fill value other than 0, got {whole.fill_value}"))
    if whole.ndim == 0:
        raise FormatError(Problem("shape", "scipy has no sparse scalars"))
    if whole.dtype.kind not in "biufc" or whole.dtype == np.float16:
        raise FormatError(Problem("values", f"scipy has no sparse arrays of {whole.dtype}"))
    own = {"CSR": "csr", "CSC": "csc"}.get(whole.format.alias or "")
    if format in ("csr", "csc") and whole.ndim == 2:
        own, whole = format, whole.convert(format.upper())
    if own:
        made = getattr(scipy.sparse, f"{own}_array")
        pointers, indices = whole.arrays["pointers_to_1"], whole.arrays["indices_1"]
        result = made((whole.values, indices, pointers), shape=whole.shape)
    else:
        listed = whole if whole.format.alias in ("COOC", "CVEC") else whole.convert(coordinates(whole.ndim))
        columns: list[Any] = [None] * listed.ndim
        for k, dimension in enumerate(listed.format.order):
            columns[dimension] = listed.arrays[f"indices_{k}"]
        result = scipy.sparse.coo_array((listed.values, tuple(columns)), shape=listed.shape)
    try:
        return result if format in (None, result.format) else result.asformat(format)
    except (ValueError, TypeError) as error:
        raise FormatError(Problem("format", f"scipy has no {format!r:.40} of this: {error}")) from None


@within_memory
def from_scipy(matrix: scipy.sparse.sparray | scipy.sparse.spmatrix, format: FormatLike | None = None) -> Tensor:
    """A Tensor of any sparse array or matrix of scipy; of its own format (CSR, CSC, else all coordinates) if `format`
    is None. Arrays that are canonical are shared; what scipy leaves out of order is sorted, duplicates are summed.

    Raises ArrayError for what is not sound.
    """
    import scipy.sparse

    if not scipy.sparse.issparse(matrix):
        raise TypeError(f"expected a sparse array of scipy, got {type(matrix).__name__}")
    if matrix.format in ("csr", "csc") and matrix.ndim == 2:
        name = matrix.format.upper()
        arrays = {"pointers_to_1": matrix.indptr, "indices_1": matrix.indices}
        # scipy lets the arrays be longer than the last pointer, and its own flag of canonical form be wrong.
        sound = np.ndim(matrix.indptr) == 1 and len(matrix.indptr) and matrix.indptr.dtype.kind in "iu"
        stored = int(matrix.indptr[-1]) if sound else len(matrix.data)
        arrays["indices_1"] = arrays["indices_1"][:stored]
        loose = Tensor(name, matrix.shape, arrays, matrix.data[:stored], check="trusted", fill_value=0)
        if _is_canonical(loose):
            return loose if format is None else loose.convert(format)
        coords, values = loose.unpack()
        return pack(coords, values, matrix.shape, format or name, duplicates="sum", fill_value=0)
    listed = matrix.tocoo(copy=False)
    coords = listed.coords if hasattr(listed, "coords") else (listed.row, listed.col)
    target = coordinates(len(listed.shape)) if format is None else format
    return pack(coords, listed.data, listed.shape, target, duplicates="sum", fill_value=0)


def _is_canonical(tensor: Tensor) -> bool:
    return not any(True for _ in tensor._tree.check())
