"""Matrices of AnnData in HDF5 (.h5ad, .h5mu) and Zarr, read and written; of 10x Genomics in HDF5, read only.

AnnData: a group with `data`, `indices`, `indptr`, and attributes for csr or csc and the shape; or one dense array. The
names of rows and columns are the indices of the tables `obs` and `var`. 10x: a group `matrix`, or with the name of a
genome, compressed by columns, with a dataset for the shape. Its rows are features, or genes in older files, its columns
barcodes. TENxMatrix of HDF5Array may lack these names.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import h5py
import numpy as np

from ...arrays import Array, one_piece
from ...containers import hdf5
from ...containers.base import DEFAULT_STORAGE, Storage, Writer, wrap_errors
from ...containers.interface import Container
from ...containers.replacing import Overwrite
from ...errors import (
    ArrayError,
    BinsparseError,
    ContainerError,
    FormatError,
    PathExistsError,
    PathMissingError,
    Problem,
    check_choice,
)
from ...limits import DEFAULT_LIMITS, Limits
from ...tensors.foreign import check_representable
from ...tensors.labels import Column, Labels
from ...tensors.tensor import Tensor
from ..file_tensors import Compression, FileTensor, compressed
from ..interface import Foreign
from ..kinds import is_store
from .names import Names, column, labelled, to_write
from .sources import Group, open_group

Opener: TypeAlias = Callable[[str], Group]
Axes: TypeAlias = tuple[str | None, str | None]
_Matrix: TypeAlias = tuple[Compression, tuple[int, int], Labels | None]  # its format, shape and names

_FORMATS: dict[str, Compression] = {"csr_matrix": "CSR", "csc_matrix": "CSC", "csr": "CSR", "csc": "CSC"}
_AXES: dict[str, Axes] = {
    "X": ("obs", "var"),
    "layers": ("obs", "var"),
    "obsp": ("obs", "obs"),
    "varp": ("var", "var"),
    "obsm": ("obs", None),
    "varm": ("var", None),
    "obs": ("obs", None),
    "var": ("var", None),
}

_FOLDERS = ("layers", "obsp", "varp", "obsm", "varm", "uns")
_NAME = r"(?!\.|zarr\.json(/|$))[^/]+"
_COLUMNS = re.compile(f"(obs|var)/{_NAME}")
_MATRICES = re.compile(f"X|(layers|obsp|varp|obsm|varm)/{_NAME}|uns(/{_NAME})+")
_DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}
_ROOT = {"encoding-type": "anndata", "encoding-version": "0.1.0"}
_CELLS = {"encoding-type": "array", "encoding-version": "0.2.0"}
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
        labels, stored = _names(at, parts, shape, names), {"values": parts[-1]}
        return FileTensor(", ".join(["dense"] * len(shape)), shape, {}, values, {}, stored, labels)
    source = at("/".join(parts) or None)
    tenx = source.has("shape")
    format, shape, labels = (_tenx if tenx else _anndata)(source, at, parts, names)
    return compressed(format, shape, source.compressed(), labels)


def claims(group: Any) -> list[str]:
    """The group itself, of HDF5 or Zarr, if it is marked as such a matrix."""
    if hasattr(group, "attrs") and not hasattr(group, "id"):  # of Zarr
        encoding = group.attrs.get("encoding-type")
        return [""] * (isinstance(encoding, str) and encoding in _FORMATS)
    if {"indptr", "shape"} <= {*group.keys()}:
        return [""]
    with contextlib.suppress(BinsparseError):
        return [""] * (_encoding(Group(hdf5.HDF5Reader(group, DEFAULT_LIMITS), DEFAULT_LIMITS)) in _FORMATS)
    return []


def _encoding(source: Group) -> str:
    """The declared compression of a group."""
    older = source.attribute("h5sparse_format")
    return source.attribute_text("encoding-type" if older is None else "h5sparse_format")


def _anndata(source: Group, at: Opener, parts: Sequence[str], names: str | None) -> _Matrix:
    if (word := _encoding(source)) not in _FORMATS:
        what = f"expected csr_matrix or csc_matrix, got {word!r:.60}; list_tensors names them"
        raise ContainerError(Problem("encoding-type", what))
    name = "shape" if source.attribute("h5sparse_shape") is None else "h5sparse_shape"
    shape = _sizes(source.attribute(name), name)
    return _FORMATS[word], shape, _names(at, parts, shape, names)


def _names(at: Opener, parts: Sequence[str], shape: Sequence[int], names: str | None) -> Labels | None:
    """The names of rows and columns, or of the rows only. Tables of another size belong to another matrix.

    names: the column of `var` with the names, which must exist; by default its index.
    """
    base = _base(at, parts)
    axes = [axis and "/".join([*parts[:base], axis]) for axis in axes_of(parts[base:])]
    dims = [(axis or other).rpartition("/")[2] for axis, other in zip(axes, ("row", "column"), strict=True)]
    columns: list[Column | None] = []
    for axis, size in zip(axes, shape, strict=False):
        columns.append(None)
        asked = names if axis is not None and axis.endswith("var") else None
        with contextlib.suppress(*[ContainerError, ArrayError] if asked is None else []):
            if axis is not None and len(found := index_of(at, axis, asked)) == size:
                columns[-1] = found
    return labelled([*dims, *(f"dim_{k}" for k in range(2, len(shape)))][: len(shape)], columns)


def _tenx(source: Group, at: Opener, parts: Sequence[str], names: str | None) -> _Matrix:
    check_choice("names", names, Names)
    rows, columns = shape = _sizes(source.integers("shape")[:].tolist(), "shape")
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


def _sizes(shape: Any, name: str) -> tuple[int, int]:
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(size) is int and size >= 0 for size in shape):
        raise ContainerError(Problem(name, f"expected 2 integers of at least 0, got {shape!r:.60}"))
    return shape[0], shape[1]


# Tables, whose indices name rows and columns


def _base(at: Opener, parts: Sequence[str]) -> int:
    """The number of names in a path that lead to the AnnData of a matrix, which may be in any group of a file.

    The modalities of MuData are AnnData. Before anndata 0.8, AnnData had no mark, but tables.
    """
    for count in range(len(parts) - 1, 0, -1):
        group = at("/".join(parts[:count]))
        encoding = group.attribute("encoding-type")
        if encoding == "anndata" or (encoding is None and group.has("obs") and group.has("var")):
            return count
    return 0


def axes_of(parts: Sequence[str]) -> Axes:
    """The paths of the tables with the names of rows and columns of a matrix at a path in AnnData; None if unknown.

    `raw` has its own columns, and shares the rows.
    """
    raw = parts[:1] == ["raw"]
    tables = {"obs": "obs", "var": "raw/var" if raw else "var"}
    rows, columns = _AXES.get("".join(parts[raw : raw + 1]), (None, None))
    return rows and tables[rows], columns and tables[columns]


def index_of(at: Opener, path: str, name: str | None = None) -> Column:
    """The names of the rows of a table: its index of texts, numbers or categories. Raises ContainerError, ArrayError.

    name: of a column instead. Before anndata 0.7, a table was one array of records.
    """
    folder, _, last = path.rpartition("/")
    above = at(folder)
    if above.is_array(last):
        records = above.one_dimension(last)
        known = [field for field in ([name] if name else ["_index", "index"]) if field in (records.dtype.names or ())]
        if not known:
            raise ContainerError(Problem(path, f"is no table with {name or 'an index'}; name a column that it has"))
        field = known[0]
        return column(len(records), lambda key: records[key][field].tolist(), path, above.limits)
    table = at(path)
    index = name or table.attribute_text("_index")
    if table.is_array(index):
        return table.names(index)
    if not table.has(index):
        raise PathMissingError(Problem(f"{path}/{index}", "the table has no such column, or index; name another"))
    group = at(f"{path}/{index}")
    if not group.has("categories"):  # an array of nullable texts, none of which is missing in an index
        return group.names("values")
    codes, categories = group.integers("codes"), group.one_dimension("categories")

    def read(key: object) -> list[Any]:
        known = np.array([*categories[:].tolist(), "nan"], object)
        picks = codes[key]  # type: ignore[call-overload]
        return list(known[np.where((picks < 0) | (picks >= len(categories)), len(categories), picks)])

    return column(len(codes), read, path, table.limits)


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
    """Write a matrix into a file of AnnData, or a vector as a column of one of its tables.

    A folder, a URL, and a path that ends with .zarr or .zarr.zip are Zarr. Other paths are HDF5. Without a group, the
    matrix becomes the X of a new file. The groups X, layers/NAME, obsp/NAME, varp/NAME, obsm/NAME, varm/NAME and
    uns/NAME are written into an existing file, which keeps everything else, or into a new file. Vectors are dense
    columns of its tables, obs/NAME and var/NAME.

    A format that is stored by columns (CSC, DCSC …) becomes a csc_matrix, any other format a csr_matrix. All stored
    entries are kept. The names of rows and columns of a new file are labels of the dimensions, else the attributes
    `row_names` and `column_names`, else numbers. Shape and names must match those of an existing file.

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
    axes, shape = axes_of(parts), tensor.shape
    if tensor.ndim not in (1, 2):
        what = f"AnnData stores sparse matrices, got {tensor.ndim} dimensions; see register_anndata for tensors in uns"
        raise FormatError(Problem(place, what))
    type_fits = tensor.dtype.kind in "biu" or tensor.dtype in (np.float32, np.float64)  # the types of scipy
    check_representable(tensor, "AnnData", place, type_fits=type_fits)
    if len(shape) == 2 and axes[0] == axes[1] is not None and shape[0] != shape[1]:
        raise FormatError(Problem("shape", f"expected a square matrix, got {shape}"))
    names: dict[str, list[str]] = {}
    for k, axis in enumerate(axes[: tensor.ndim]):
        if axis is not None and (texts := to_write(tensor, k)) != names.setdefault(axis, texts) and texts:
            if names[axis]:
                what = f"rows and columns are both of {axis}, and have other names; bring both into one order by sel"
                raise FormatError(Problem(place, what))
            names[axis] = texts
    arrays, attributes = ({}, _CELLS) if is_column else _matrix(tensor)
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
            writer_of(parent).write(name, one_piece(tensor.to_dense(0)))
            order = [x for x in parent.attrs["column-order"] if x != name]
            parent.attrs["column-order"] = [*order, name]
        else:
            writer = writer_of(parent.create_group(name))
            for key, array in arrays.items():
                writer.write(key, one_piece(array))
        parent[name].attrs.update(attributes)


def _matrix(tensor: Tensor) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and attributes of the matrix as CSR, or as CSC if it is stored by columns."""
    by_columns = tensor.format.order == (1, 0)
    matrix = tensor.convert("CSC" if by_columns else "CSR")
    small = max(*matrix.shape, len(matrix.values)) <= np.iinfo(np.int32).max
    dtype = np.int32 if small else np.int64  # of both index arrays, as in scipy
    arrays: dict[str, Array] = {
        "data": matrix.values,
        "indices": matrix.arrays["indices_1"].astype(dtype, copy=False),
        "indptr": matrix.arrays["pointers_to_1"].astype(dtype, copy=False),
    }
    kind = "csc_matrix" if by_columns else "csr_matrix"
    return arrays, {"encoding-type": kind, "encoding-version": "0.1.0", "shape": list(matrix.shape)}


@contextlib.contextmanager
def _root(
    path: str, keep: bool, overwrite: Overwrite, limits: Limits, storage: Storage
) -> Iterator[tuple[Any, Callable[[Any], Writer]]]:
    """The root of a new file, or with `keep` of a copy of the file, and a function that returns the writer of a group.

    The new file replaces the old one if the block succeeds.
    """
    group = "" if keep else None
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
        texts = names.get(axis) or [str(k) for k in range(sizes.get(axis, 0))]
        root[axis].attrs.update(_TABLE)
        if isinstance(root, h5py.Group):
            array = root[axis].create_dataset("_index", (len(texts),), h5py.string_dtype())
        else:
            array = root[axis].create_array("_index", shape=(len(texts),), dtype=str, chunks=(max(len(texts), 1),))
        if texts:
            array[...] = np.array(texts, object)
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


FUNCTIONS = Foreign(look=look, claims=claims, write=write)
