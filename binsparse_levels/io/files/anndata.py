"""Matrices of AnnData in HDF5 (.h5ad, .h5mu) and Zarr, read and written; of 10x Genomics in HDF5, read only.

AnnData: a group with `data`, `indices`, `indptr`, and attributes for csr or csc and the shape; or one dense array. The
names of rows and columns are the indices of the tables `obs` and `var`. A sparse tensor of more dimensions is a
Binsparse tensor in a group, which is marked as a COO of pydata/sparse. 10x: a group `matrix`, or with the name of a
genome, compressed by columns, with a dataset for the shape. Its rows are features, or genes in older
files, its columns barcodes. TENxMatrix of HDF5Array may lack these names.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias

import h5py
import numpy as np

from ...arrays import Array, Pieces, in_pieces, one_piece
from ...containers import hdf5
from ...containers.base import DEFAULT_STORAGE, Storage, Writer, wrap_errors
from ...containers.interface import Container
from ...containers.replacing import Overwrite
from ...engine.parts import check_lazy
from ...errors import (
    ArrayError,
    BinsparseError,
    ContainerError,
    FormatError,
    PathExistsError,
    Problem,
    check_choice,
    warn,
)
from ...formats.descriptor import VERSION
from ...formats.json import RESERVED
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.changing import is_dense
from ...tensors.encoding import encode_tensor
from ...tensors.foreign import check_representable
from ...tensors.labels import Labels
from ...tensors.tensor import Tensor, inside
from ...thresholds import THRESHOLDS
from ..file_tensors import Compression, FileTensor, compressed
from ..interface import Foreign
from ..kinds import is_store
from .anndata_tables import Axes, Opener, axes_of, index_of, names_of
from .names import MAX_TEXTS, Names, labelled, to_write
from .sources import Group, matrix_shape, open_group

_Matrix: TypeAlias = tuple[Compression, tuple[int, int], Labels | None]  # its format, shape and names

_FORMATS: dict[str, Compression] = {"csr_matrix": "CSR", "csc_matrix": "CSC", "csr": "CSR", "csc": "CSC"}
_FOLDERS = ("layers", "obsp", "varp", "obsm", "varm", "uns")
_NAME = r"(?!\.|zarr\.json(/|$))[^/]+"
_COLUMNS = re.compile(f"(obs|var)/{_NAME}")
_MATRICES = re.compile(f"X|(layers|obsp|varp|obsm|varm)/{_NAME}|uns(/{_NAME})+")
_DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}
_ROOT = {"encoding-type": "anndata", "encoding-version": "0.1.0"}
_CELLS = {"encoding-type": "array", "encoding-version": "0.2.0"}
_CELLS_LAST = (("gene", "barcode"), ("feature", "barcode"), ("gene", "cell"), ("observation", "sample"))  # in others
# A tensor of more dimensions, which `register_anndata` reads as a COO of pydata/sparse.
OBJECT = f"{RESERVED}object"
ELEMENT = {"encoding-type": "binsparse", "encoding-version": "0.1.0", OBJECT: "sparse.COO"}
_TEXTS = {"encoding-type": "string-array", "encoding-version": "0.2.0"}
_TABLE = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index", "column-order": []}


def look(
    path: Any, closing: contextlib.ExitStack, *, group: str | None = None, names: str | None = None, limits: Limits
) -> FileTensor:
    """The matrix in a group, or the array of any rank, with lazy arrays.

    path: an open group of HDF5, or an open place of Zarr. group: by default `X` of AnnData, or `matrix` of 10x. names:
    the column of `var` with the labels, by default its index; "symbol" for those of 10x, by default identifiers.
    Raises ContainerError for a file of neither, ArrayError for arrays that do not fit each other.
    """

    def at(name: str | None) -> Group:
        return open_group(path, name, limits, closing)

    parts = (group or "").split("/") if group else []
    above = at("/".join(parts[:-1]) or None)
    if not parts:
        parts = [name for name in ("matrix", "X") if above.has(name)][:1]
    if parts and above.is_array(parts[-1]):
        values, shape = above.cells(parts[-1])
        labels, stored = names_of(at, parts, shape, names), {"values": parts[-1]}
        return FileTensor(", ".join(["dense"] * len(shape)), shape, {}, values, {}, stored, labels)
    source = at("/".join(parts) or None)
    tenx = source.has("shape")
    format, shape, labels = (_tenx if tenx else _anndata)(source, at, parts, names)
    return compressed(format, shape, source.compressed(), labels)


def claims(group: Any) -> list[str]:
    """The group itself, of HDF5 or Zarr, if it is marked as such a matrix; else the dense arrays of AnnData in it."""
    source, encoding = Group(SimpleNamespace(group=group), DEFAULT_LIMITS), None
    if source.of_hdf5 and {"indptr", "shape"} <= {*group.keys()}:
        return [""]
    with contextlib.suppress(BinsparseError):
        encoding = _encoding(source)
    if encoding in _FORMATS:
        return [""]
    older = encoding is None and source.has("obs") and source.has("var")
    return _dense_arrays(source) if encoding in ("anndata", "raw") or older else []


def _dense_arrays(source: Group) -> list[str]:
    """The paths of the dense arrays of AnnData in a group."""

    def found(inner: Group, names: Iterable[str]) -> list[str]:
        arrays = {name: inner.reader.group[name] for name in names if inner.is_array(name)}
        return [name for name, x in arrays.items() if len(x.shape) > 1 and x.dtype.kind in "biuf"]

    if not source.of_hdf5 and not source.reader.group.store.supports_listing:
        return []
    paths = found(source, ["X"])
    for folder in _FOLDERS[:-1]:
        with contextlib.suppress(BinsparseError), contextlib.ExitStack() as closing:  # a missing group, or a link
            inner = open_group(source.reader.group, folder, DEFAULT_LIMITS, closing)
            paths += [f"{folder}/{name}" for name in found(inner, inner.reader.group.keys())]
    return paths


def _encoding(source: Group) -> str:
    """The declared compression of a group."""
    older = source.attribute("h5sparse_format")
    return source.attribute_text("encoding-type" if older is None else "h5sparse_format")


def _anndata(source: Group, at: Opener, parts: Sequence[str], names: str | None) -> _Matrix:
    if (word := _encoding(source)) not in _FORMATS:
        what = f"expected csr_matrix or csc_matrix, got {word!r:.60}; list_tensors names them"
        raise ContainerError(Problem("encoding-type", what))
    name = "shape" if source.attribute("h5sparse_shape") is None else "h5sparse_shape"
    shape = matrix_shape(source.attribute(name), name)
    return _FORMATS[word], shape, names_of(at, parts, shape, names)


def _tenx(source: Group, at: Opener, parts: Sequence[str], names: str | None) -> _Matrix:
    check_choice("names", names, Names)
    rows, columns = shape = matrix_shape(source.integers("shape")[:].tolist(), "shape")
    newer = source.has("features")
    features = at("/".join([*parts, "features"])).labels("name" if names else "id", rows) if newer else None
    genes = source.labels("gene_names" if names else "genes", rows) if source.has("genes") else features
    barcodes = source.labels("barcodes", columns) if source.has("barcodes") else None
    format: Compression = "CSC"
    if genes is None and barcodes is None:  # HiCExplorer compresses rows
        if rows == columns > 0:
            what = "is ambiguous: nothing says whether rows or columns are compressed; read its arrays by h5py"
            raise ContainerError(Problem(str(source.reader.group.name), f"{what}, and pass them to Tensor"))
        format = "CSR" if len(source.integers("indptr")) == rows + 1 else "CSC"
    return format, shape, labelled(("feature" if newer else "gene", "barcode"), [genes, barcodes])


# Writing: a new file, or into a file that keeps everything else


def write(
    path: str,
    tensor: Tensor,
    *,
    overwrite: Overwrite = False,
    group: str | None = None,
    storage: Storage = DEFAULT_STORAGE,
    limits: Limits = DEFAULT_LIMITS,
) -> None:
    """Write a tensor into a file of AnnData, or a vector as a column of one of its tables.

    A folder, a URL, and a path that ends with .zarr or .zarr.zip are Zarr. Other paths are HDF5. Without a group, the
    matrix becomes the X of a new file. The groups X, layers/NAME, obsp/NAME, varp/NAME, obsm/NAME, varm/NAME and
    uns/NAME are written into an existing file, which keeps everything else, or into a new file. Vectors are dense
    columns of its tables, obs/NAME and var/NAME. Tensors of more dimensions belong to layers, obsm, varm or uns.

    A tensor of dense levels becomes a dense array. Of sparse matrices, a format that is stored by columns (CSC, DCSC …)
    becomes a csc_matrix, any other format a csr_matrix. Sparse tensors of more dimensions keep their format, for
    readers that call `register_anndata`. All stored entries are kept. The rows of X and of layers are cells: a matrix
    whose dimensions have names such as `gene` and `barcode` is transposed, with a warning. The names of rows and
    columns of a new file are labels of the dimensions, else the attributes `row_names` and `column_names`, else
    numbers. Shape and names must match those of an existing file.

    Raises FormatError for a tensor that AnnData cannot represent, or that does not fit the file; ContainerError,
    PathExistsError.
    """
    place = f"{path}:{group or 'X'}"
    *folders, name = parts = (group or "X").split("/")
    is_column = tensor.ndim == 1  # of a table
    if is_column and not _COLUMNS.fullmatch(group or "X"):
        raise FormatError(Problem(place, "AnnData stores vectors in obs/NAME and var/NAME; write to one of these"))
    if not is_column and not _MATRICES.fullmatch(group or "X"):
        places = ", ".join(["X", *(f"{folder}/NAME" for folder in _FOLDERS)])
        raise ContainerError(Problem(place, f"AnnData stores matrices in {places}; write to one of these"))
    axes = axes_of(parts)
    if axes == ("obs", "var") and tensor.dims is not None and tensor.dims in _CELLS_LAST:
        warn(f"{place}: rows of AnnData are cells, so the dimensions {' × '.join(tensor.dims)} are transposed")
        tensor = tensor.T
    shape = tensor.shape
    if tensor.ndim == 0 or (tensor.ndim > 2 and folders[:1] not in (["layers"], ["obsm"], ["varm"], ["uns"])):
        what = f"AnnData has no {tensor.ndim} dimensions here; write to layers/NAME, obsm/NAME, varm/NAME or uns/NAME"
        raise FormatError(Problem(place, what))
    type_fits = tensor.dtype.kind in "biu" or tensor.dtype in (np.float32, np.float64)  # the types of scipy
    check_representable(tensor, "AnnData", place, type_fits=type_fits)
    if axes[0] == axes[1] is not None and shape[0] != shape[1]:
        raise FormatError(Problem("shape", f"expected a square matrix, got {shape}"))
    names: dict[str, list[str]] = {}
    for k, axis in enumerate(axes[: tensor.ndim]):
        if axis is not None and (texts := to_write(tensor, k)) != names.setdefault(axis, texts) and texts:
            if names[axis]:
                what = f"rows and columns are both of {axis}, and have other names; bring both into one order by sel"
                raise FormatError(Problem(place, what))
            names[axis] = texts
    header, arrays, attributes = _element(tensor, name)
    storage.check_names(arrays)
    with wrap_errors(path), _root(path, group is not None, overwrite, limits, storage) as (root, writer_of):
        if len(root) or len(root.attrs):
            _check_file(root, place, shape, axes, names, limits)
        else:
            _make_file(root, shape, axes, names)
        parent = root
        for folder in folders:
            parent = _folder(parent, folder, "dataframe" if is_column else "dict")
        if name == parent.attrs.get("_index"):
            raise ContainerError(Problem(place, "is the index of the table; choose another name"))
        if name in parent.keys():  # noqa: SIM118 (`in parent` follows links)
            if not overwrite:
                raise PathExistsError(Problem(place, "already exists; pass overwrite=True"))
            del parent[name]
        if is_column:
            order = [x for x in parent.attrs["column-order"] if x != name]
            parent.attrs["column-order"] = [*order, name]
        inner = parent if attributes is _CELLS else parent.create_group(name)
        writer = writer_of(inner)
        for key, array in arrays.items():
            if isinstance(array, Pieces):
                writer.write(key, array)
            else:
                _write_cells(inner, key, array, storage)
        if header is not None:
            writer.write_header(header)
        parent[name].attrs.update(attributes)


def _element(tensor: Tensor, name: str) -> tuple[Any, Mapping[str, Any], Mapping[str, Any]]:
    """The header, arrays and attributes of an element; one array of this name if it is dense or a column of a table."""
    if tensor.ndim == 1:
        return None, {name: one_piece(tensor.to_dense(0))}, _CELLS
    if is_dense(tensor):
        return None, {name: tensor.to_dense(0)}, _CELLS
    if tensor.ndim > 2:
        header, arrays = encode_tensor(tensor, VERSION)
        return header, {key: one_piece(x) for key, x in arrays.items()}, ELEMENT
    return None, *_matrix(tensor)


def _write_cells(place: Any, name: str, cells: Array, storage: Storage) -> None:
    """Write an array of several dimensions, with the defaults of h5py and zarr but for gzip in HDF5."""
    if isinstance(place, h5py.Group):
        storage.refuse("a dense array in HDF5", but=("compression",), compressions=hdf5.COMPRESSIONS)
        gzip = storage.of("compression", name) in ("gzip", "small")
        place.create_dataset(name, data=cells, compression="gzip" if gzip and cells.size else None)
    else:
        storage.refuse("a dense array in Zarr")
        place.create_array(name, data=cells)


def _matrix(tensor: Tensor) -> tuple[dict[str, Pieces], dict[str, Any]]:
    """The arrays and attributes of the matrix as CSR, or as CSC if it is stored by columns.

    Arrays in a file are checked, and read piece by piece, if that file has this format.
    """
    format = "CSC" if tensor.format.order == (1, 0) else "CSR"
    matrix = tensor if tensor.format.alias == format else tensor.convert(format)
    tree = inside(matrix).backing.perhaps_lazy(inside(matrix).pad)
    check_lazy(tree, "the tensor", matrix.format.order)
    small = max(*matrix.shape, len(tree.values)) <= np.iinfo(np.int32).max
    dtype = np.dtype(np.int32 if small else np.int64)  # of both index arrays, as in scipy
    arrays = {"data": tree.values, "indices": tree.arrays["indices_1"], "indptr": tree.arrays["pointers_to_1"]}
    pieces = {name: in_pieces(x, THRESHOLDS.piece_items) for name, x in arrays.items()}
    for name in ("indices", "indptr"):
        pieces[name] = pieces[name].mapped(partial(np.asarray, dtype=dtype), 1, dtype)
    return pieces, {
        "encoding-type": f"{format.lower()}_matrix",
        "encoding-version": "0.1.0",
        "shape": list(matrix.shape),
    }


@contextlib.contextmanager
def _root(
    path: str, keep: bool, overwrite: Overwrite, limits: Limits, storage: Storage
) -> Iterator[tuple[Any, Callable[[Any], Writer]]]:
    """The root of a new file, or with `keep` of a copy of the file, and a function that returns the writer of a group.

    The new file replaces the old one if the block succeeds.
    """
    group = "" if keep else None
    if keep and overwrite is True:  # an element is overwritten, and everything else is kept
        overwrite = False
    if not is_store(path):
        others = partial(_others, hdf5.FUNCTIONS)
        with hdf5.writing(path, group, overwrite, limits, storage, list_others=others) as file:
            yield file.group, lambda place: hdf5.HDF5Writer(place, storage)
        return
    import zarr

    from ...containers.zarr import FUNCTIONS, ZarrWriter, unconsolidate, writing  # not needed for HDF5

    with writing(path, group, overwrite, limits, storage, list_others=partial(_others, FUNCTIONS)) as store:
        root = store.group
        yield root, lambda place: ZarrWriter(place, storage, ours=False)
        unconsolidate(root.store_path)  # above it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr warns that it is not part of the specification of version 3
            zarr.consolidate_metadata(root.store, path=root.path)


def _check_file(
    root: Any, place: str, shape: Sequence[int], axes: Axes, names: Mapping[str, list[str]], limits: Limits
) -> None:
    """Raise ContainerError for a file that is not AnnData's, FormatError for a matrix that does not fit it."""
    with contextlib.ExitStack() as closing:
        try:
            there = {x: index_of(lambda name: open_group(root, name, limits, closing), x) for x in ("obs", "var")}
        except (ContainerError, ArrayError) as error:
            what = f"the file has no tables obs and var with an index ({error}); write to one of AnnData, or a new one"
            raise ContainerError(Problem(place, what)) from None
        for dimension, axis in enumerate(axes[: len(shape)]):
            if axis is None:
                continue
            if len(there[axis]) != shape[dimension]:
                what = f"{axis} has {len(there[axis])} names, and dimension {dimension} size {shape[dimension]}"
                raise FormatError(Problem(place, f"{what}; write a matrix that fits"))
            if names[axis] and names[axis] != there[axis].array().tolist():
                what = f"the names of {axis} in the file differ; bring the matrix into the order of the file"
                raise FormatError(Problem(place, what))


def _others(container: Container, path: str) -> list[str]:
    """The members of a file of AnnData, except X and the names of rows and columns."""
    reader: Any
    with container.reading(path, None, DEFAULT_LIMITS) as reader, wrap_errors(path):
        root = reader.group
        there = {name: root[name] for name in root.keys()}  # noqa: SIM118 (zarr's groups are no mappings)
        inner = {name: set(x.keys()) if hasattr(x, "keys") else {""} for name, x in there.items()}
        tables = {name: inner[name] - {there[name].attrs.get("_index")} for name in ("obs", "var") if name in inner}
        others = [name for name, members in inner.items() if members and name not in ("X", *tables)]
        return others + [f"{table}/{name}" for table, names in tables.items() for name in names]


def _make_file(root: Any, shape: Sequence[int], axes: Axes, names: Mapping[str, list[str]]) -> None:
    """Create an AnnData without matrices."""
    root.attrs.update(_ROOT)
    for name in (*_FOLDERS, "obs", "var"):
        root.create_group(name).attrs.update(_DICT)
    sizes = {axis: size for axis, size in zip(axes, shape, strict=False) if axis is not None}
    for axis in ("obs", "var"):
        texts: Sequence[Any] = names.get(axis) or range(sizes.get(axis, 0))
        root[axis].attrs.update(_TABLE)
        if isinstance(root, h5py.Group):
            array = root[axis].create_dataset("_index", (len(texts),), h5py.string_dtype())
        else:
            chunk = min(max(len(texts), 1), MAX_TEXTS)
            array = root[axis].create_array("_index", shape=(len(texts),), dtype=str, chunks=(chunk,))
        for at in range(0, len(texts), MAX_TEXTS):
            array[at : at + MAX_TEXTS] = np.array([*map(str, texts[at : at + MAX_TEXTS])], object)
        array.attrs.update(_TEXTS)


def _folder(parent: Any, name: str, kind: str) -> Any:
    """The group of that name and kind, created if it is missing."""
    there = name in parent.keys()  # noqa: SIM118 (`in parent` follows links)
    with wrap_errors(f"{parent.name}/{name}"):
        place = hdf5.walk(parent, name, make=True) if isinstance(parent, h5py.Group) else parent.require_group(name)
    encoding = place.attrs.get("encoding-type", kind)
    if not there:
        place.attrs.update(_DICT)
    elif encoding != kind:
        raise ContainerError(Problem(place.name, f"is a {encoding!s:.40}, not a {kind}; choose another name"))
    return place


FUNCTIONS = Foreign(look=look, claims=claims, write=write, in_pieces=("CSR", "CSC"))
