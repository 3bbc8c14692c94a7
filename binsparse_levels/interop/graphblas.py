"""Matrices, vectors and scalars of python-graphblas. Formats and arrays have the same names as in sscdf files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FormatError, OptionError, Problem, needing, within_memory
from ..formats.dtypes import INTEGERS
from ..formats.format import FormatLike
from ..io.files.sscdf import NATIVE, SIZES
from ..tensors.changing import expanded
from ..tensors.foreign import check_representable, qualified
from ..tensors.packing import pack
from ..tensors.tensor import Tensor, owning

if TYPE_CHECKING:
    import graphblas

_GRAPHBLAS_TYPES = ("bool", *INTEGERS, "float32", "float64", "complex64", "complex128")


@within_memory
def to_graphblas(tensor: Tensor) -> graphblas.Matrix | graphblas.Vector | graphblas.Scalar:
    """Convert a tensor to a Matrix, Vector or Scalar. GraphBLAS owns its memory, so every array is copied once.

    Parameters
    ----------
    tensor : Tensor
        Tensor of at most two dimensions, with the fill value 0 or none. It keeps its format if GraphBLAS supports it,
        else it becomes hypersparse. The structure is expanded, and a map is removed.

    Returns
    -------
    graphblas.Matrix, Vector or Scalar
        Graphblas.Matrix, Vector or Scalar, by the number of dimensions.

    Raises
    ------
    FormatError
        GraphBLAS cannot represent the tensor.

    See Also
    --------
    from_graphblas : Convert a Matrix, Vector or Scalar to a Tensor, checked in full.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.to_graphblas(bl.pack([[0, 1], [2, 0]], [1, 2], (2, 3), "CSR")).nvals
    2
    """
    with needing("graphblas"):
        import graphblas

    whole = expanded(tensor.without_map())
    check_representable(whole, "GraphBLAS", ranks=(0, 1, 2), type_fits=whole.dtype.name in _GRAPHBLAS_TYPES)
    if max(whole.shape, default=0) > 2**60:
        raise FormatError(Problem("shape", "GraphBLAS has at most 2**60 rows and columns; slice it"))
    if not whole.ndim:
        _, values = whole.unpack()
        dtype = graphblas.dtypes.lookup_dtype(whole.dtype)
        return graphblas.Scalar.from_value(values[0], dtype) if len(values) else graphblas.Scalar(dtype)
    made = graphblas.Matrix if whole.ndim == 2 else graphblas.Vector
    if not whole.number_of_stored_values:  # the library refuses empty arrays in some formats
        return made(graphblas.dtypes.lookup_dtype(whole.dtype), *whole.shape)
    known = {spelling.format.canonical(): word for word, spelling in NATIVE.items() if not word.startswith("coo")}
    if whole.format.canonical() not in known:
        whole = whole.convert("CVEC" if whole.ndim == 1 else "DCSC" if whole.format.alias == "COOC" else "DCSR")
    word = known[whole.format.canonical()]
    pieces: dict[str, Any] = {native: whole.arrays[name] for name, native in NATIVE[word].arrays.items()}
    pieces |= zip(SIZES[whole.ndim], whole.shape, strict=True)
    iso = whole.iso and len(whole.values) > 0
    if "col_indices" in pieces or "row_indices" in pieces:
        pieces["sorted_cols" if "col_indices" in pieces else "sorted_rows"] = True
    elif "indices" in pieces:
        pieces["sorted_index"] = True
    return made.ss.import_any(format=word, values=whole.values[:1] if iso else whole.values, is_iso=iso, **pieces)


@within_memory
def from_graphblas(
    thing: graphblas.Matrix | graphblas.Vector | graphblas.Scalar,
    format: FormatLike | None = None,
    *,
    move: bool = False,
    attributes: Mapping[str, Any] | None = None,
) -> Tensor:
    """Convert a Matrix, Vector or Scalar to a Tensor, checked in full.

    Parameters
    ----------
    thing : graphblas.Matrix, Vector or Scalar
        An empty Scalar becomes `bitmap(0)`.
    format : str, Format or mapping, optional
        Format of the tensor; by default that of `thing`.
    move : bool, default False
        Take the memory without a copy; `thing` must not be used afterwards.
    attributes : mapping, optional
        JSON object that is stored with the tensor.

    Returns
    -------
    Tensor
        Tensor of 2, 1 or 0 dimensions.

    Raises
    ------
    OptionError
        `thing` is another object.
    FormatError
        The type of its values is user-defined.

    See Also
    --------
    to_graphblas : Convert a tensor to a Matrix, Vector or Scalar.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import graphblas
    >>> bl.from_graphblas(graphblas.Vector.from_coo([0, 2], [1, 2], size=4)).shape
    (4,)
    """
    with needing("graphblas"):
        import graphblas

    if type(thing) not in (graphblas.Matrix, graphblas.Vector, graphblas.Scalar):
        what = f"expected a Matrix, Vector or Scalar of python-graphblas, got {qualified(thing)}; call as_tensor"
        raise OptionError(what)
    if thing.dtype not in {graphblas.dtypes.lookup_dtype(name) for name in _GRAPHBLAS_TYPES}:
        raise FormatError(Problem("values", f"{thing.dtype} is user-defined; cast it to a built-in type"))
    if type(thing) is graphblas.Scalar:
        values = np.array([] if thing.is_empty else [thing.value], thing.dtype.np_type)
        target = format or ("bitmap(0)" if thing.is_empty else "element")
        return pack((), values, (), target, attributes=attributes)
    shape, count = tuple(thing.shape), int(thing.nvals)
    pieces = thing.ss.export(sort=True, give_ownership=move)  # dense arrays of a matrix have its shape
    spelling = NATIVE[pieces["format"]]
    arrays = {name: pieces[native].ravel("K") for name, native in spelling.arrays.items()}
    values = pieces["values"].reshape(()) if pieces["is_iso"] and count else pieces["values"].ravel("K")
    tensor = owning(spelling.format, shape, arrays, values, attributes=attributes)
    return tensor if format is None else tensor.convert(format)
