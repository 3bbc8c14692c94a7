"""python-graphblas, whose names of formats and arrays are those of sscdf."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FormatError, Problem, within_memory
from ..formats.dtypes import INTEGERS
from ..formats.format import FormatLike
from ..tensors.mapped import AnyTensor, without_map
from ..tensors.tensor import Tensor, pack

if TYPE_CHECKING:
    import graphblas


_SIZES = {1: ("size",), 2: ("nrows", "ncols")}


_GRAPHBLAS_TYPES = ("bool", *INTEGERS, "float32", "float64", "complex64", "complex128")


@within_memory
def to_graphblas(tensor: AnyTensor) -> graphblas.Matrix | graphblas.Vector | graphblas.Scalar:
    """A Matrix, Vector or Scalar in the format that the tensor has, if GraphBLAS has it, else hypersparse.

    The structure is expanded, a map undone. GraphBLAS owns its memory, so every array is copied, once. Raises
    FormatError for what it cannot hold: a fill value other than zero, more than two dimensions, other types.
    """
    import graphblas

    from ..io.files.sscdf.dialects import NATIVE

    whole = without_map(tensor).expand_structure()
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
    made = graphblas.Matrix if whole.ndim == 2 else graphblas.Vector
    if not whole.number_of_stored_values:  # the library takes no empty arrays in some of its formats
        return made(graphblas.dtypes.lookup_dtype(whole.dtype), *whole.shape)
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
    try:
        return made.ss.import_any(format=word, values=whole.values[:1] if iso else whole.values, is_iso=iso, **pieces)
    except graphblas.exceptions.GraphblasException as error:
        raise FormatError(Problem("", f"GraphBLAS cannot hold it: {error}")) from None


@within_memory
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

    from ..io.files.sscdf.dialects import NATIVE

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
