"""To and from the arrays of other libraries. What is given to them has been checked; nothing is copied where the
layout is the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..containers.memory import reading
from ..errors import FormatError, Problem, within_memory
from ..formats.dtypes import INTEGERS
from ..formats.format import Format, FormatLike, coordinates, in_order
from ..formats.index_map import Digit, IndexMap
from ..io.decoding import Loading
from ..levels import Dense, Level, Sparse
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.mapped import AnyTensor, MappedTensor, as_written, without_map
from ..tensors.tensor import Tensor, pack, pack_dense
from ..tensors.validation import checked_array

if TYPE_CHECKING:
    import graphblas
    import scipy.sparse
    import sparse
    import torch

# numpy


@within_memory
def to_numpy(tensor: AnyTensor, *, limits: Limits = DEFAULT_LIMITS) -> npt.NDArray[Any]:
    """A dense array: `tensor.to_dense()`."""
    return tensor.to_dense(limits=limits)


@within_memory
def from_numpy(array: npt.ArrayLike, format: FormatLike, *, fill_value: Any = 0) -> Tensor:
    """What differs from the fill value in a dense array: `pack_dense`."""
    return pack_dense(array, format, fill_value=fill_value)


# Any library with the draft protocol


@within_memory
def from_binsparse(other: Any) -> AnyTensor:
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
        return as_written(Loading(reader, DEFAULT_LIMITS, False).tensor("full"))


# scipy.sparse


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


# pydata/sparse


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


# python-graphblas, whose names of formats and arrays are those of sscdf


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


# torch

_LAYOUTS = {"coo": "sparse_coo", "csr": "sparse_csr", "csc": "sparse_csc", "bsr": "sparse_bsr", "bsc": "sparse_bsc"}


@within_memory
def from_torch(tensor: torch.Tensor) -> AnyTensor:
    """A sparse tensor of torch in any of its layouts, in memory of the processor, with its arrays where they can be
    shared; the fill value is 0, which is what torch means.

    Batches are dense levels above, dense dimensions (of *hybrid* tensors) dense levels below. Blocked ones are stored
    through a map, since their blocks divide dimensions. COO tensors are coalesced first. Raises TypeError for another
    object, FormatError for a type that numpy does not have, ArrayError for what is not sound.
    """
    import torch

    names = {getattr(torch, layout): name for name, layout in _LAYOUTS.items()}
    layout = names.get(tensor.layout) if isinstance(tensor, torch.Tensor) else None
    if layout is None:
        raise TypeError(f"expected a sparse tensor of torch, got {getattr(tensor, 'layout', type(tensor).__name__)}")
    tensor, shape, dense = tensor.detach(), tuple(tensor.shape), tensor.dense_dim()
    if layout == "coo":
        tensor = tensor.coalesce()
        indices, values = _array(tensor.indices()), _array(tensor.values())
        if not len(indices):  # one block of all dimensions, or none
            cells = np.zeros(shape, values.dtype) if not len(values) else values[0]
            return pack_dense(cells, Format(_dense(dense)), pattern=np.ones(shape, bool))
        listed = {f"indices_{k}": x for k, x in enumerate(indices)}
        return Tensor(Format((Sparse(len(indices)), *_dense(dense))), shape, listed, values.reshape(-1), fill_value=0)
    by_rows = layout in ("csr", "bsr")
    pointers = _array(tensor.crow_indices() if by_rows else tensor.ccol_indices())
    indices = _array(tensor.col_indices() if by_rows else tensor.row_indices())
    values = _array(tensor.values())
    batch = pointers.ndim - 1
    # The pointers of each batch begin anew, and every batch has as many entries.
    firsts = np.arange(math.prod(shape[:batch])).reshape(*shape[:batch], 1) * indices.shape[-1]
    joined = np.append(0, (pointers + firsts)[..., 1:]) if batch else pointers
    arrays = {f"pointers_to_{batch + 1}": joined, f"indices_{batch + 1}": indices.reshape(-1)}
    order = [*range(batch), *((batch, batch + 1) if by_rows else (batch + 1, batch)), *range(batch + 2, len(shape))]
    blocked = layout in ("bsr", "bsc")
    levels: tuple[Level, ...] = (Dense(batch + 1), Sparse(), *_dense(dense + 2 * blocked))
    if not blocked:
        return Tensor(in_order(levels, order), shape, arrays, values.reshape(-1), fill_value=0)
    map = _blocked(shape, order[: batch + 2], values.shape[batch + 1 : batch + 3])
    return MappedTensor(Tensor(Format(levels), map.stored_shape, arrays, values.reshape(-1), fill_value=0), map)


@within_memory
def to_torch(tensor: AnyTensor, layout: str | None = None, *, block: tuple[int, int] | None = None) -> torch.Tensor:
    """A sparse tensor of torch, of the layout that the tensor has, if torch has it, else coo.

    layout: another one of coo, csr, csc, bsr, bsc; the last two with the sizes of a block, which have to divide those
    of the matrix. Arrays are copied, since torch has none that cannot be written to. Raises FormatError for a fill
    value other than zero, and for what torch cannot hold.
    """
    import torch

    whole = tensor if isinstance(tensor, MappedTensor) else tensor.expand_structure()
    if whole.fill_value is not None and whole.fill_value != 0:
        raise FormatError(Problem("fill_value", f"torch has no fill value other than 0, got {whole.fill_value}"))
    if layout is not None and layout not in _LAYOUTS:
        raise FormatError(Problem("layout", f"expected one of {', '.join(_LAYOUTS)}, got {layout!r:.40}"))
    if block is not None and layout not in ("bsr", "bsc"):
        raise FormatError(Problem("block", "only bsr and bsc have blocks"))
    own = _layout_of(whole)
    if layout is not None and (own != layout or block is not None):
        own, whole = layout, _laid_out(whole, layout, block)
    elif own is None:
        own, whole = "coo", _laid_out(whole, "coo", None)
    stored = whole.tensor if isinstance(whole, MappedTensor) else whole
    above, rank, below = _profile(stored.format)
    shape, tail = whole.shape, stored.shape[stored.ndim - below :]
    if own == "coo":
        count = len(stored.arrays["indices_0"]) if rank else len(stored.values)
        table = np.array([stored.arrays[f"indices_{k}"] for k in range(rank)], np.int64).reshape(rank, count)
        values = stored.values.reshape(count, *tail)
        return torch.sparse_coo_tensor(
            torch.from_numpy(table), _copied(values), shape, is_coalesced=True, check_invariants=False
        )
    batch = above - 1
    numbers = math.prod(shape[:batch])
    pointers, indices = stored.arrays[f"pointers_to_{above}"], stored.arrays[f"indices_{above}"]
    each = len(indices) // numbers if numbers else 0
    # The pointers of each batch begin anew.
    lead = stored.shape[stored.format.order[batch]]
    begin = pointers[:-1].reshape(numbers, lead) if lead else np.zeros((numbers, 0), pointers.dtype)
    firsts = np.arange(numbers)[:, None] * each
    local = np.concatenate((begin - firsts, np.full((numbers, 1), each)), axis=1)
    kind = np.int32 if indices.dtype == np.int32 else np.int64
    return torch.sparse_compressed_tensor(
        torch.from_numpy(local.astype(kind).reshape(*shape[:batch], lead + 1)),
        torch.from_numpy(indices.astype(kind).reshape(*shape[:batch], each)),
        _copied(stored.values.reshape(*shape[:batch], each, *tail)),
        shape,
        layout=getattr(torch, _LAYOUTS[own]),
        check_invariants=False,
    )


def _blocked(shape: Sequence[int], outer: Sequence[int], block: Sequence[int]) -> IndexMap:
    """Blocks in the last two dimensions of `outer`: these by blocks, then what is within a block, then the others."""
    first = len(outer) - 2
    sizes = dict(zip((first, first + 1), block, strict=True))
    digits = [Digit(k, sizes.get(k, 1), -(-shape[k] // sizes.get(k, 1))) for k in outer]
    digits += [Digit(k, 1, size) for k, size in sizes.items()]
    digits += [Digit(k, 1, shape[k]) for k in range(len(outer), len(shape))]
    return IndexMap(tuple(shape), tuple((digit,) for digit in digits))


def _profile(format: Format) -> tuple[int, int, int]:
    """How many dense dimensions lie above one sparse level, its rank, and how many below; rank 0 for other chains."""
    levels = format.canonical().levels
    found = [k for k, level in enumerate(levels) if level != Dense()]
    if len(found) != 1 or levels[found[0]] != Sparse(levels[found[0]].rank):
        return 0, 0, len(levels)
    return found[0], levels[found[0]].rank, len(levels) - found[0] - 1


def _layout_of(tensor: AnyTensor) -> str | None:
    """The layout of torch that stores the same arrays."""
    above, rank, _ = _profile(tensor.format)
    order, batch = list(tensor.format.order), above - 1
    straight = list(range(len(order)))
    if isinstance(tensor, MappedTensor):
        if rank != 1 or batch < 0 or order != straight or tensor.ndim < batch + 2 or tensor.map.padded:
            return None
        block = tensor.map.stored_shape[batch + 2 : batch + 4]
        outer = [*range(batch), batch, batch + 1], [*range(batch), batch + 1, batch]
        maps = [_blocked(tensor.shape, order, block) for order in outer] if len(block) == 2 and all(block) else []
        found = next((name for name, map in zip(("bsr", "bsc"), maps, strict=False) if map == tensor.map), None)
    elif batch < 0:
        return "coo" if rank and order == straight else None
    else:
        turned = [*order[:batch], *order[batch : batch + 2][::-1], *order[batch + 2 :]]
        found = None if rank != 1 else "csr" if order == straight else "csc" if turned == straight else None
    if found and batch:
        stored = tensor.tensor if isinstance(tensor, MappedTensor) else tensor
        fibers = stored.shape[order[batch]]  # of each batch
        ends = stored.arrays[f"pointers_to_{above}"][:: fibers or 1]
        if not fibers or len(set(np.diff(ends).tolist())) > 1:
            return None  # every batch of torch has as many entries
    return found


def _laid_out(tensor: AnyTensor, layout: str, block: tuple[int, int] | None) -> AnyTensor:
    """The same entries in a format whose arrays are those of a layout."""
    whole = without_map(tensor)
    if layout == "coo":
        return whole.convert(coordinates(whole.ndim))
    if whole.ndim != 2:
        raise FormatError(Problem("layout", f"a tensor of {whole.ndim} dimensions is not brought into {layout}"))
    if layout in ("csr", "csc"):
        return whole.convert(layout.upper())
    if block is None:
        raise FormatError(Problem("block", f"{layout} needs the sizes of a block"))
    checked = IndexMap.blocks(whole.shape, block).stored_shape[2:]
    map = _blocked(whole.shape, (0, 1) if layout == "bsr" else (1, 0), checked)
    if map.padded:
        raise FormatError(Problem("block", f"{block} does not divide {whole.shape}, as torch demands"))
    return MappedTensor(whole).convert("dense, sparse, dense(2)", map)


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    try:
        found: npt.NDArray[Any] = tensor.resolve_conj().resolve_neg().cpu().numpy()
    except TypeError as error:
        raise FormatError(Problem("values", f"numpy has no such type: {error}")) from None
    return found


def _copied(values: npt.NDArray[Any]) -> torch.Tensor:
    import torch

    try:
        return torch.from_numpy(np.array(values))
    except TypeError as error:
        raise FormatError(Problem("values", f"torch has no such type: {error}")) from None


def _dense(rank: int) -> tuple[Dense, ...]:
    return (Dense(rank),) if rank else ()
