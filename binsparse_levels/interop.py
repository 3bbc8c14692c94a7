"""To and from the arrays of other libraries. What is given to them has been checked; nothing is copied where the
layout is the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .arguments import checked_array
from .containers.memory import reading
from .dtypes import INTEGERS
from .errors import FormatError, Problem
from .formats import FormatLike, coordinates
from .limits import DEFAULT_LIMITS, Limits
from .loading import Loading
from .tensor import Tensor, pack, pack_dense

if TYPE_CHECKING:
    import graphblas
    import scipy.sparse
    import sparse

# numpy


def to_numpy(tensor: Tensor, *, limits: Limits = DEFAULT_LIMITS) -> npt.NDArray[Any]:
    """A dense array: `tensor.to_dense()`."""
    return tensor.to_dense(limits=limits)


def from_numpy(array: npt.ArrayLike, format: FormatLike, *, fill_value: Any = 0) -> Tensor:
    """What differs from the fill value in a dense array: `pack_dense`."""
    return pack_dense(array, format, fill_value=fill_value)


# Any library with the draft protocol


def from_binsparse(other: Any) -> Tensor:
    """The tensor of an object with the methods `__binsparse_descriptor__` and `__binsparse__`, checked in full.

    Provisional: the protocol is a draft. Arrays are shared with the object. Raises TypeError for another object, and
    what `read` raises.
    """
    if not hasattr(other, "__binsparse_descriptor__") or not hasattr(other, "__binsparse__"):
        raise TypeError(f"{type(other).__name__} has no __binsparse_descriptor__ and __binsparse__")
    descriptor, arrays = other.__binsparse_descriptor__(), other.__binsparse__()
    if not isinstance(descriptor, Mapping) or not isinstance(arrays, Mapping):
        raise TypeError(f"{type(other).__name__} gives no dictionaries")
    header = dict(descriptor) if "binsparse" in descriptor else {"binsparse": dict(descriptor)}
    mapping = {
        name: array if isinstance(array, np.ndarray) else checked_array(array, name) for name, array in arrays.items()
    }
    with reading({**mapping, "binsparse": header}, None, DEFAULT_LIMITS) as reader:
        return Loading(reader, DEFAULT_LIMITS, False).tensor("full")


# scipy.sparse


def to_scipy(tensor: Tensor, format: str | None = None) -> scipy.sparse.sparray:
    """A sparse array of scipy, of the format that the tensor has, if scipy has it (csr, csc, coo), else coo.

    format: another one of scipy's (csr, csc, coo, bsr, dia, dok, lil). The structure is expanded. The arrays are
    shared where scipy takes them as they are: read-only ones. Raises FormatError for a fill value other than zero,
    which scipy cannot say, and for rank 0.
    """
    import scipy.sparse

    whole = tensor.expand_structure()
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


# pydata/sparse


def to_sparse(tensor: Tensor) -> sparse.COO:
    """A sparse.COO, with the fill value of the tensor, or zero; the structure is expanded."""
    import sparse

    whole = tensor.expand_structure().convert(coordinates(tensor.ndim))
    coords, values = whole.unpack()
    table = np.array(coords, np.int64).reshape(whole.ndim, len(values))
    fill = np.zeros((), whole.dtype)[()] if whole.fill_value is None else whole.fill_value
    return sparse.COO(table, values, shape=whole.shape, has_duplicates=False, sorted=True, fill_value=fill)


def to_gcxs(tensor: Tensor) -> sparse.GCXS:
    """A sparse.GCXS; of a CSR or CSC tensor with the same arrays."""
    import sparse

    whole = tensor.expand_structure()
    compressed = {"CSR": (0,), "CSC": (1,)}.get(whole.format.alias or "")
    if compressed is None:
        return sparse.GCXS.from_coo(to_sparse(whole))
    fill = np.zeros((), whole.dtype)[()] if whole.fill_value is None else whole.fill_value
    arrays = (whole.values, whole.arrays["indices_1"], whole.arrays["pointers_to_1"])
    return sparse.GCXS(arrays, shape=whole.shape, compressed_axes=compressed, fill_value=fill)


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


# python-graphblas, whose names of formats and arrays are those of sscdf


_SIZES = {1: ("size",), 2: ("nrows", "ncols")}
_GRAPHBLAS_TYPES = ("bool", *INTEGERS, "float32", "float64", "complex64", "complex128")


def to_graphblas(tensor: Tensor) -> graphblas.Matrix | graphblas.Vector | graphblas.Scalar:
    """A Matrix, Vector or Scalar in the format that the tensor has, if GraphBLAS has it, else hypersparse.

    The structure is expanded. GraphBLAS owns its memory, so every array is copied, once. Raises FormatError for what it
    cannot hold: a fill value other than zero, more than two dimensions, other types.
    """
    import graphblas

    from .files.sscdf import NATIVE

    whole = tensor.expand_structure()
    if whole.fill_value is not None and whole.fill_value != 0:
        raise FormatError(Problem("fill_value", f"GraphBLAS has none, got {whole.fill_value}"))
    if whole.ndim > 2:
        raise FormatError(Problem("shape", f"GraphBLAS has no tensors of {whole.ndim} dimensions"))
    if whole.dtype.name not in _GRAPHBLAS_TYPES:
        raise FormatError(Problem("values", f"GraphBLAS has no {whole.dtype}"))
    if not whole.ndim:
        _, values = whole.unpack()
        dtype = graphblas.dtypes.lookup_dtype(whole.dtype)
        return graphblas.Scalar.from_value(values[0], dtype) if len(values) else graphblas.Scalar(dtype)
    known = {layout.format.canonical(): word for word, layout in NATIVE.items() if not word.startswith("coo")}
    if whole.format.canonical() not in known:
        whole = whole.convert("CVEC" if whole.ndim == 1 else "DCSC" if whole.format.alias == "COOC" else "DCSR")
    word = known[whole.format.canonical()]
    pieces: dict[str, Any] = {held: whole.arrays[name] for name, held in NATIVE[word].arrays.items()}
    pieces |= zip(_SIZES[whole.ndim], whole.shape, strict=True)
    iso = whole.iso and len(whole.values) > 0
    if "col_indices" in pieces or "row_indices" in pieces:
        pieces["sorted_cols" if "col_indices" in pieces else "sorted_rows"] = True
    elif "indices" in pieces:
        pieces["sorted_index"] = True
    made = graphblas.Matrix if whole.ndim == 2 else graphblas.Vector
    try:
        return made.ss.import_any(format=word, values=whole.values[:1] if iso else whole.values, is_iso=iso, **pieces)
    except graphblas.exceptions.GraphblasException as error:
        raise FormatError(Problem("", f"GraphBLAS cannot hold it: {error}")) from None


def from_graphblas(
    thing: graphblas.Matrix | graphblas.Vector | graphblas.Scalar,
    format: FormatLike | None = None,
    *,
    move: bool = False,
) -> Tensor:
    """A Tensor of a Matrix, Vector or Scalar, checked in full; of its own format if `format` is None. An empty Scalar
    becomes `bitmap(0)`.

    move: the memory is taken over, without a copy, and the object is not to be used any more. Raises TypeError for
    another object, FormatError for types that users have defined.
    """
    import graphblas

    from .files.sscdf import NATIVE

    if type(thing) not in (graphblas.Matrix, graphblas.Vector, graphblas.Scalar):
        raise TypeError(f"expected a Matrix, Vector or Scalar of python-graphblas, got {type(thing).__name__}")
    if thing.dtype not in {graphblas.dtypes.lookup_dtype(name) for name in _GRAPHBLAS_TYPES}:
        raise FormatError(Problem("values", f"a type that a user has defined: {thing.dtype}"))
    if type(thing) is graphblas.Scalar:
        values = np.array([] if thing.is_empty else [thing.value], thing.dtype.np_type)
        return pack((), values, (), format or ("bitmap(0)" if thing.is_empty else "element"))
    shape, count = tuple(thing.shape), int(thing.nvals)
    pieces = thing.ss.export(sort=True, raw=True, give_ownership=move)
    layout = NATIVE[pieces["format"]]
    # Arrays are as long as what was allocated.
    cells = math.prod(shape)
    per_cell = all(level.gaps or level.padded for level in layout.format.levels)
    lengths = {"bitmap": cells, "values": cells if per_cell else count}
    lengths["indptr"] = pieces.get("nvec", shape[layout.format.order[0]]) + 1
    lengths["rows"] = lengths["cols"] = lengths["indptr"] - 1
    arrays = {name: pieces[held][: lengths.get(held, count)] for name, held in layout.arrays.items()}
    iso = pieces["is_iso"] and count
    values = pieces["values"][:1].reshape(()) if iso else pieces["values"][: lengths["values"]]
    tensor = Tensor(layout.format, shape, arrays, values)
    return tensor if format is None else tensor.convert(format)
