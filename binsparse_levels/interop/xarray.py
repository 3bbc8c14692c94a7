"""xarray: Datasets with sparse variables, by `write_dataset` and the engine "binsparse".

xarray itself writes dense variables, coordinates and attributes at the root of a Zarr store or a NetCDF-4 file. Each
sparse variable is a Binsparse tensor in a separate group. Its header names its dimensions.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from zarr import consolidate_metadata
from zarr.storage import LocalStore

from ..containers.base import is_url
from ..containers.hdf5_files import unused
from ..containers.replacing import replacing, replacing_folder
from ..containers.zarr import new_group
from ..containers.zarr_stores import opened, place_of
from ..errors import ArrayError, OptionError, PathExistsError, Problem, needing, within_memory
from ..formats.format import FormatLike, coordinates
from ..io import list_tensors, write
from ..io.kinds import Location, StoreLike, resolved, split_place, target_at
from ..io.reading import opened as opened_tensor
from ..limits import DEFAULT_LIMITS
from ..tensors.contents import labels_of
from ..tensors.foreign import qualified
from ..tensors.labels import Labels
from ..tensors.packing import pack_dense
from ..tensors.tensor import Tensor, inside, tensor_of
from ..tensors.validation import checked_json
from .dask import Blocks, checked_path, dask_of, from_dask
from .pydata_sparse import from_sparse, to_sparse

with needing("xarray"):
    import xarray as xr
    from xarray.backends import BackendEntrypoint
    from xarray.core import indexing

_DECODING = (
    "mask_and_scale", "decode_times", "concat_characters", "decode_coords", "use_cftime", "decode_timedelta",
)  # fmt: skip


class LazySparse(Blocks, indexing.ExplicitlyIndexedNDArrayMixin):
    """A tensor in a file, as an array that xarray can index. An index makes a view, and reading returns a COO.

    `xarray.core.indexing` is not public. `xarray.backends.BackendArray` is, but it reads everything for a transpose.
    """

    __slots__ = ()

    def get_duck_array(self) -> Any:
        return self.read(...)

    async def async_get_duck_array(self) -> Any:
        return await asyncio.to_thread(self.get_duck_array)  # reading and kernels release the GIL

    def __getitem__(self, indexer: indexing.ExplicitIndexer) -> Any:
        return self._oindex_get(indexer)

    def _oindex_get(self, indexer: indexing.ExplicitIndexer) -> Any:
        tensor, axis = self.tensor, 0
        for item in indexer.tuple:
            tensor = tensor[(*[slice(None)] * axis, item)]
            axis += isinstance(item, slice | np.ndarray)
        return LazySparse(tensor) if isinstance(tensor, Tensor) else np.asarray(tensor)

    def _vindex_get(self, indexer: indexing.ExplicitIndexer) -> Any:
        """A COO of points, read immediately. The dimensions of the points come first."""
        key = indexer.tuple
        arrays = [k for k, item in enumerate(key) if isinstance(item, np.ndarray)]
        points, first = self.read(key), arrays[0]
        if len(arrays) == len(key):
            return to_sparse(pack_dense(points, coordinates(points.ndim), fill_value=inside(self.tensor).pad))
        if arrays[-1] - first < len(arrays):  # numpy puts the points at the place of the first array
            ndim = np.broadcast(*(key[k] for k in arrays)).ndim
            points = points.transpose([*range(first, first + ndim), *range(first), *range(first + ndim, points.ndim)])
        return points

    def transpose(self, order: Sequence[int]) -> LazySparse:
        return LazySparse(self.tensor.permute(tuple(order)))


class _NoChunks(dict[str, Any]):
    """Preferred chunks of a lazy variable. xarray reads them if `chunks=` is given, which is an error."""

    def get(self, *_: Any) -> Any:
        what = "makes dense blocks of a sparse variable; pass tensor_chunks= for blocks of COO, or engine='zarr' "
        raise OptionError(Problem("chunks", f"{what}or 'netcdf4' for the dense variables only"))


class _Chunked(xr.Variable):
    """A variable of a Dask array. When xarray wraps the array, which would hide its blocks, the wrapper is removed.

    Afterwards it is a plain variable.
    """

    __slots__ = ()

    @property
    def data(self) -> Any:
        return self._data

    @data.setter
    def data(self, wrapped: Any) -> None:
        self._data = array_of(wrapped)
        self.__class__ = xr.Variable  # type: ignore[assignment]


class BinsparseBackend(BackendEntrypoint):
    """The engine "binsparse": a Dataset whose sparse variables are lazy, or Dask arrays of blocks of COO.

    It adds an option to `xr.open_dataset`:

    tensor_chunks: "auto", or sizes of blocks by dimension, such as {"time": 10}; other dimensions are not cut.

    Examples
    --------
    >>> import binsparse_levels as bl, sparse, xarray as xr
    >>> dataset = xr.Dataset({"a": (("x", "y"), sparse.COO([[0, 1], [2, 0]], [1.5, 2.5], shape=(2, 3)))})
    >>> bl.write_dataset("a.zarr", dataset)
    >>> opened = xr.open_dataset("a.zarr", engine="binsparse")
    >>> opened.identical(dataset), opened.a.sel(x=1).values.tolist()
    """

    description = "Sparse variables in the Binsparse format and dense variables, in Zarr and NetCDF-4"
    open_dataset_parameters = ("filename_or_obj", "drop_variables", "tensor_chunks", *_DECODING)

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: Any = None,
        tensor_chunks: Mapping[str, Any] | str | None = None,
        **decoding: Any,
    ) -> xr.Dataset:
        dropped = [drop_variables] if isinstance(drop_variables, str) else list(drop_variables or ())
        path = _path_of(filename_or_obj)
        groups = [name for name in list_tensors(path) if name == "/" or "/" not in name]  # the root and its children
        dataset = xr.Dataset() if "/" in groups else open_dense(path, drop_variables=drop_variables, **decoding)
        tensors = {name: tensor for name, tensor in _tensors(path, groups) if name not in dropped}
        variables = {name: _variable(name, tensor, tensor_chunks) for name, tensor in tensors.items()}
        if isinstance(tensor_chunks, Mapping):
            known = dict.fromkeys(dim for variable in variables.values() for dim in variable.dims)
            for dim in tensor_chunks.keys() - known.keys():
                what = f"no tensor has a dimension {dim!r}; there are {', '.join(map(str, known))}"
                raise OptionError(Problem("tensor_chunks", what))
        whole = dataset.assign(variables)
        for name, tensor in tensors.items():
            own = dict(_labels(tensor))
            for dim in own.keys() & whole.coords.keys():
                if not np.array_equal(whole.coords[dim].values, own.pop(dim).values):
                    what = f"has other labels of {dim} than the Dataset; write the Dataset again by write_dataset"
                    raise ArrayError(Problem(name, what))
            whole = whole.assign_coords(own)
        whole.set_close(dataset._close)
        return whole

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return True if a child of the root of a local Zarr store is a tensor, which the Zarr engine ignores."""
        if not isinstance(filename_or_obj, str | os.PathLike) or not os.path.isdir(filename_or_obj):
            return False
        below = (folder / key for folder in Path(filename_or_obj).iterdir() for key in ("zarr.json", ".zattrs"))
        return any(b'"binsparse"' in file.read_bytes() for file in below if file.exists())


@within_memory
def write_dataset(
    path: StoreLike,
    dataset: xr.Dataset,
    formats: Mapping[str, FormatLike] | None = None,
    *,
    overwrite: bool = False,
    kind: str | None = None,
    memory: int | None = None,
    **options: Any,
) -> None:
    """Write an xarray Dataset. `xr.open_dataset(path, engine="binsparse")` opens it.

    A local path is replaced atomically. In other stores, dense variables are written first, and remain after a failure.

    Parameters
    ----------
    path : str, PathLike, group, store or mapping
        A .zarr or .nc path, the URL of a Zarr store, or a store of the zarr package.
    dataset : xarray.Dataset
        Variables with sparse data are written as tensors, all others by xarray itself.
    formats : mapping of str to str or Format, optional
        Formats by name of the variable. Others keep the format of their file, or become lists of coordinates. Dense
        variables that are named become sparse.
    overwrite : bool, default False
        Replace an existing Dataset.
    kind : str, optional
        One of "zarr", "zarr2" and "netcdf". By default, the suffix of the path decides.
    memory : int, optional
        Largest number of bytes of the process. Dask arrays are then written block by block. By default, each array is
        computed as a whole.
    **options
        Options of `write`, for every tensor.

    Raises
    ------
    FileExistsError
        The path exists, and `overwrite` is False.
    OptionError
        The path is of another kind of file, or `formats` has an unknown variable.
    BinsparseError
        See `write`.

    See Also
    --------
    to_xarray : Convert a tensor to an xarray.DataArray of a sparse.COO.
    open : Open a tensor without reading its arrays.

    Examples
    --------
    >>> import binsparse_levels as bl, sparse, xarray as xr
    >>> dataset = xr.Dataset({"a": (("x", "y"), sparse.COO([[0, 1], [2, 0]], [1.5, 2.5], shape=(2, 3)))})
    >>> bl.write_dataset("a.nc", dataset, {"a": "CSR"})
    >>> xr.open_dataset("a.nc", engine="binsparse").identical(dataset)
    True
    """
    check_dataset(dataset)
    formats = dict(formats or {})
    names = _sparse_names(dataset, formats)
    attributes = {name: _attributes(dataset[name]) for name in names}
    target = target_at(path, kind)
    if target.group is not None:
        raise OptionError(Problem(str(path), "a Dataset is written to a whole store or file; omit the group"))
    with _open_target(target, dataset.drop_vars(names), overwrite) as place:
        for name in names:
            variable, format = dataset.variables[name], formats.get(name)
            data, dims = array_of(variable._data), tuple(map(str, variable.dims))
            if memory is not None and _is_dask(data):
                arguments = {"dims": dims, "values": name, "attributes": attributes[name], **options}
                from_dask(data, place(name), format or coordinates(variable.ndim), memory=memory, **arguments)
            else:
                tensor = tensor_of_variable(variable, format)
                metadata = replace(inside(tensor).metadata, labels=Labels(dims, {}, name), attributes=attributes[name])
                write(place(name), tensor_of(inside(tensor).backing, metadata), **options)


# Reading


@within_memory
def to_xarray(tensor: Tensor) -> xr.DataArray:
    """Convert a tensor to an xarray.DataArray of a sparse.COO, with names, labels and attributes.

    Dimensions without names are named `dim_0` and so on.

    Parameters
    ----------
    tensor : Tensor
        Tensor of any format. A dimension with fewer labels than coordinates has none in xarray.

    Returns
    -------
    xarray.DataArray
        Xarray.DataArray of the same shape.

    Raises
    ------
    FormatError, ArrayError
        See `to_sparse`.

    See Also
    --------
    to_pandas : Convert the stored entries to a pandas DataFrame with a row for each.
    write_dataset : Write an xarray Dataset.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> named = bl.pack_dense([[0, 2], [3, 0]], "CSR").with_labels({"item": ["pen", "ink"]}, dims=["user", "item"])
    >>> array = bl.to_xarray(named)
    >>> array.dims, array["item"].values.tolist()
    (('user', 'item'), ['pen', 'ink'])
    """
    made = data_array(tensor, to_sparse(tensor), range(tensor.ndim))
    return made.assign_attrs(tensor.attributes)


def data_array(tensor: Tensor, values: Any, dimensions: Sequence[int]) -> xr.DataArray:
    """Values over some dimensions of a tensor, with the names and labels of these."""
    names = tensor.dims or tuple(f"dim_{k}" for k in range(tensor.ndim))
    kept = {names[k]: tensor.shape[k] for k in dimensions}
    coords = {name: x for name, x in _labels(tensor) if len(x) == kept.get(name)}
    return xr.DataArray(values, coords, list(kept))


def _path_of(source: Any) -> str:
    path, group = split_place(os.path.expanduser(checked_path(source)))
    if group is not None:
        raise OptionError(Problem(str(source), "a Dataset is a whole store or file; omit the group"))
    return str(path) if is_url(path) else os.path.abspath(path)


def _tensors(path: str, groups: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    """The tensors in these groups, by name of the variable. A tensor at the root has the name of its values."""
    for group in groups:
        tensor = opened_tensor(path if group == "/" else f"{path}:{group}", DEFAULT_LIMITS)[0]
        labels = inside(tensor).metadata.labels
        yield group if group != "/" else labels.values if labels else "value", tensor


def open_dense(path: str, **options: Any) -> xr.Dataset:
    """The dense variables, which xarray reads from the root of a store or file."""
    with resolved(path, whole=True) as location:
        zarr = "zarr" in location.name
    if not zarr:
        return xr.open_dataset(path, cache=False, **options)
    with opened(path) as store:
        return xr.open_dataset(store, engine="zarr", consolidated=False, cache=False, **options)  # type: ignore[arg-type]


def _variable(name: str, tensor: Tensor, chunks: Mapping[str, Any] | str | None) -> xr.Variable:
    """The variable of a tensor. By default its dimensions are named after the variable with a number."""
    dims, attributes = tensor.dims or [f"{name}_{k}" for k in range(tensor.ndim)], dict(tensor.attributes)
    if chunks is None:
        return xr.Variable(dims, LazySparse(tensor), attributes, {"preferred_chunks": _NoChunks()})
    sizes = tuple(chunks.get(dim, -1) for dim in dims) if isinstance(chunks, Mapping) else chunks
    return _Chunked(dims, dask_of(Blocks(tensor), sizes), attributes)


def _labels(tensor: Tensor) -> Iterator[tuple[str, xr.Variable]]:
    """The labels of dimensions whose coordinates all have one."""
    for k, (dim, size) in enumerate(zip(tensor.dims or (), tensor.shape, strict=False)):
        if (column := labels_of(tensor, k)) is not None and len(index := column.index()) == size:
            yield dim, xr.Variable(dim, index)


# Writing


def check_dataset(dataset: Any) -> None:
    if not isinstance(dataset, xr.Dataset):
        remedy = "; call to_dataset() first" if isinstance(dataset, xr.DataArray) else ""
        raise OptionError(f"expected an xarray.Dataset, got {qualified(dataset)}{remedy}")


def _sparse_names(dataset: xr.Dataset, formats: Mapping[str, FormatLike]) -> list[str]:
    """The variables to write as tensors. Raises OptionError."""
    if zoned := [str(name) for name, x in dataset.variables.items() if getattr(x.dtype, "tz", None) is not None]:
        what = "xarray writes no times with a zone; convert them by tz_convert(None), or write one tensor with labels"
        raise OptionError(Problem(zoned[0], what))
    unknown = [str(name) for name in formats if name not in dataset.data_vars]
    if unknown:
        known = ", ".join(map(str, dataset.data_vars))
        raise OptionError(Problem("formats", f"no data variable has the name {unknown[0]!r}; there are {known}"))
    names = [
        name for name in dataset.variables if name in formats or is_sparse(array_of(dataset.variables[name]._data))
    ]
    for name in names:
        if name in dataset.coords:
            raise OptionError(Problem(str(name), f"a coordinate is dense; call reset_coords({name!r})"))
        if not isinstance(name, str) or not name or {"/", ":"} & set(name) or name.startswith("."):
            raise OptionError(Problem(str(name), "is not a name of a group; call rename() first"))
    return [str(name) for name in names]


def array_of(data: Any) -> Any:
    """The array of a variable, without the wrappers of xarray."""
    while isinstance(data, indexing.ExplicitlyIndexed) and not isinstance(data, LazySparse) and hasattr(data, "array"):
        data = data.array
    return data


def _is_dask(data: Any) -> bool:
    return hasattr(data, "__dask_graph__")


def is_sparse(data: Any) -> bool:
    with needing("xarray"):
        import sparse

    return isinstance(data._meta if _is_dask(data) else data, LazySparse | sparse.SparseArray)


def _attributes(array: xr.DataArray) -> dict[str, Any]:
    """The attributes of a variable as JSON. Raises OptionError, DescriptorError."""
    if not all(isinstance(dim, str) for dim in array.dims):
        raise OptionError(Problem(str(array.name), "has a dimension whose name is not a string; call rename() first"))
    plain = {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in array.attrs.items()
    }
    return checked_json(plain, DEFAULT_LIMITS)


def tensor_of_variable(variable: xr.Variable, format: FormatLike | None) -> Tensor:
    data = array_of(variable._data)
    if isinstance(data, LazySparse):
        return data.tensor if format is None else data.tensor.load(format)
    listed = format or coordinates(variable.ndim)
    if not is_sparse(data):
        return pack_dense(variable.values, listed)
    return from_sparse(data.compute() if _is_dask(data) else data, listed)


@contextlib.contextmanager
def _open_target(target: Location, dense: xr.Dataset, overwrite: bool) -> Iterator[Callable[[str], Location]]:
    """Write the dense variables. The context is a function that returns the target of the tensor of a variable."""
    path = target.path
    if isinstance(path, LocalStore):
        path = str(path.root)
    local = isinstance(path, str) and not is_url(path)
    if target.name not in ("zarr", "zarr2", "netcdf") or (local and path.endswith(".zip")):
        raise OptionError(Problem(str(path), "a Dataset is written to a .zarr folder or a .nc file; choose one"))
    zarr: dict[str, Any] = {"consolidated": False, "zarr_format": 2 if target.name == "zarr2" else 3}
    if target.name == "netcdf":
        with replacing(path, overwrite) as part, unused(path):
            dense.to_netcdf(part, format="NETCDF4")
            yield lambda name: Location(part, name, target.name, part)
    elif local:
        if os.path.isdir(path) and os.listdir(path):
            with resolved(path, whole=True) as there:
                if "zarr" not in there.name:
                    raise PathExistsError(Problem(path, "is a folder without a Zarr store, and is not overwritten"))
        with replacing_folder(path, overwrite) as part:
            dense.to_zarr(part, mode="w", **zarr)
            yield lambda name: Location(os.path.join(part, name), None, target.name, None)
            consolidate(part)
    else:
        store = place_of(path)
        if not (overwrite or new_group(store, zarr["zarr_format"])):
            raise PathExistsError(Problem(str(path), "already exists; pass overwrite=True"))
        dense.to_zarr(store, mode="w" if overwrite else "a", **zarr)
        yield lambda name: Location(store / name, None, target.name, None)
        consolidate(store)


def consolidate(store: Any) -> None:
    """List all metadata at the root, as xarray does. Without the list, xarray warns when it opens the store."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the list is not specified for version 3
        consolidate_metadata(store)
