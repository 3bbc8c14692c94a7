"""Names of other libraries that a tensor does not have, and the code to use instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .contents import Contents
from .late_imports import functions

# The code, and the names that it replaces. {name} is the name itself. Other variables are arguments of the call: axis
# is the number or name of a dimension, n a number. A test runs each code, and compares its result with the library.
_NAMES = {
    "einsum(spec, tensor, other)": "einsum",
    "function(tensor)": "pipe apply map_blocks applymap transform",
    "numpy.{name}(tensor)": (
        "sqrt trunc ceil floor sin tan arcsin arctan sinh tanh arcsinh arctanh expm1 log1p rint sign exp log conj "
        "conjugate isnan deg2rad rad2deg angle modf real imag nonzero argwhere flatnonzero unique flip tril triu"
    ),
    "numpy.{name}(tensor, axis)": (
        "nansum nanprod nanmean nanvar nanstd nanmax nanmin nanargmax nanargmin ptp expand_dims"
    ),
    "numpy.{name}(tensor, n)": "tile",
    "numpy.{name}(tensor, n, axis)": "repeat split roll delete",
    "numpy.{name}(tensor, other)": "maximum minimum fmax fmin vdot inner outer tensordot allclose isin",
    "numpy.{name}(tensor, shape)": "broadcast_to",
    "numpy.{name}(tensor.to_dense(), axis)": "cumsum cumprod sort argsort median nanmedian",
    "numpy.{name}(tensor.to_dense(), n)": "pad searchsorted",
    "numpy.{name}(tensor.to_dense(), n, axis)": "quantile percentile",
    "numpy.average(tensor.to_dense(), axis, weights)": "average",
    "numpy.apply_along_axis(function, axis, tensor.to_dense())": "apply_along_axis",
    "numpy.concatenate([tensor, other], axis)": "append concat concatenate extend hstack vstack row_stack",
    "numpy.corrcoef(tensor.T)": "corr",
    "numpy.cov(tensor.T)": "cov",
    "numpy.corrcoef(tensor)": "corrcoef",
    "numpy.diagonal(tensor)": "diag",
    "numpy.diff(tensor, n, axis)": "diff",
    "numpy.histogram(tensor.to_dense(), n)": "histogram hist",
    "numpy.insert(tensor.to_dense(), n, other, axis)": "insert",
    "numpy.isnan(tensor)": "isnull isna",
    "~numpy.isnan(tensor)": "notnull notna",
    "numpy.linalg.norm(tensor)": "norm",
    "numpy.linalg.svd(tensor.to_dense())  # or scipy.sparse.linalg.svds(tensor)": "svd",
    "numpy.moveaxis(tensor, axis, n)": "moveaxis rollaxis",
    "numpy.savetxt(path, tensor.to_dense())": "savetxt",
    "numpy.where(mask, tensor, other)": "where",
    "numpy.where(mask, other, tensor)": "mask",
    "numpy.where(numpy.isnan(tensor), other, tensor)": "fillna",
    "pack(*tensor.unpack(), shape, tensor.format)  # a larger shape": "resize",
    "pathlib.Path(path).write_bytes(pickle.dumps(tensor))": "to_pickle",
    "scipy.sparse.block_diag([to_scipy(tensor), to_scipy(other)])": "block_diag",
    "scipy.sparse.kron(to_scipy(tensor), other)": "kron",
    "groupby(tensor, axis, labels)": "groupby",
    "resample(tensor, axis, frequency)": "resample",
    "statistics(tensor, axis)": "describe agg aggregate",
    "tensor  # it is immutable": "copy",
    "tensor  # its entries are sorted and unique": "sort_indices sum_duplicates sorted_indices",
    "True  # its entries are sorted and unique": "has_sorted_indices has_canonical_format",
    "tensor * other": "multiply mul",
    "tensor / other": "divide div truediv",
    "tensor ** other": "power pow",
    "tensor @ other": "matmul",
    "numpy.conj(tensor.T)": "H getH adjoint",
    "tensor.__exit__()  # of a with block": "close",
    "tensor.arrays['indices_1']": "indices",
    "tensor.arrays['pointers_to_1']": "indptr",
    "tensor.unpack()[0]  # of labels: tensor.labels(axis)": "coords",
    "tensor.unpack()[0][0]": "row",
    "tensor.unpack()[0][1]": "col",
    "tensor.attributes": "attrs",
    "tensor.convert(format)": "asformat",
    "tensor.dims": "axes",
    "tensor.draw()": "plot",
    "tensor.drop_fill()": "eliminate_zeros prune",
    "tensor.dtype": "dtypes",
    "tensor.equals(other)": "array_equal identical broadcast_equals",
    "tensor.isel({axis: ~numpy.isnan(tensor).any(others)})  # others: all other dimensions": "dropna",
    "tensor.isel({axis: tensor.labels(axis) != label})": "drop drop_sel",
    "tensor.labels(0)": "index",
    "tensor.labels(1)": "columns",
    "tensor.labels(axis)": "get_index get_level_values",
    "{name: tensor.labels(name) for name in tensor.dims}": "indexes",
    "tensor.labels(axis)[numpy.nanargmax(tensor, axis)]": "idxmax",
    "tensor.labels(axis)[numpy.nanargmin(tensor, axis)]": "idxmin",
    "tensor.load()": "compute persist",
    "tensor.nbytes": "memory_usage",
    "tensor.count(axis)  # of all: tensor.nnz": "getnnz",
    "tensor.nnz": "nse",
    "tensor.sel({axis: label})": "loc at xs",
    "tensor.shape": "get_shape",
    "tensor.size == 0": "empty",
    "tensor.to_dense()": "toarray todense numpy",
    "tensor.to_dense().{name}()": "tolist item",
    "tensor.values": "data",
    "tensor.with_attributes({**tensor.attributes, **attributes})": "assign_attrs",
    "tensor.with_labels({axis: None})": "drop_vars reset_coords drop_indexes",
    "tensor.with_labels({axis: labels})": "assign_coords set_index set_xindex",
    "tensor.with_labels(dims=names)": "rename set_axis rename_axis swap_dims",
    "tensor[-n:]": "tail",
    "tensor[::-1]": "flipud",
    "tensor[::n]": "thin",
    "tensor[:, ::-1]": "fliplr",
    "tensor[:, n:n + 1]": "getcol",
    "tensor[:n]": "head",
    "tensor[n:n + 1]": "getrow",
    "tensor[n]": "iloc iat",
    "to_pandas(tensor)": "to_frame",
    "to_pandas(tensor).{name}": (
        "to_csv to_parquet to_excel to_json to_dict melt merge join query sample nlargest nsmallest sort_values "
        "value_counts nunique reset_index pivot_table iterrows itertuples items info"
    ),
    "to_scipy(tensor).{name}()": "tocoo tocsc tocsr tobsr todok tolil todia",
    "to_sparse(tensor).reshape(-1)": "ravel flatten",
    "to_sparse(tensor).reshape(shape)": "reshape",
    "to_table(tensor)": "to_polars",
    "to_xarray(tensor)": "to_dataarray",
    "to_xarray(tensor).{name}": "chunk to_dataset",
    "to_xarray(tensor).as_numpy().{name}": (
        "broadcast_like coarsen interp rank reindex rolling shift sortby stack to_dataframe to_masked_array to_series "
        "unstack weighted"
    ),
    "write(path, tensor)": "save savez savez_compressed to_netcdf to_hdf to_zarr",
    "tensor.draw(ax=matplotlib.pyplot.gca())": "spy",
    "matplotlib.pyplot.imshow(tensor.to_dense())": "imshow",
    "numpy.where(from_scipy(scipy.sparse.eye_array(*tensor.shape, dtype=bool)), other, tensor)": "setdiag",
}
REPLACEMENTS = {name: use.replace("{name}", name) for use, names in _NAMES.items() for name in names.split()}
_OUTER_JOIN = "write_from([tensor, other], path, None, format, dims=tensor.dims, duplicates='sum')"  # by labels
_OF_PACKAGE = {  # for names that the package lacks itself
    "advise(tensor)  # or sweep([tensor], formats)": "bench benchmark",
    "from_numpy(array)  # or pack_dense(array, format)": "array asarray from_array from_dense",
    "from_scipy(scipy.sparse.{name}(array))": "coo_array csc_array csr_array coo_matrix csc_matrix csr_matrix",
    "from_table(pandas.read_csv(path), dims, values)": "from_csv",
    "from_table(pandas.read_parquet(path), dims, values)": "from_parquet",
    "from_table(pandas.{name}(path), dims, values)": "read_csv read_feather read_parquet",
    "from_table(table, dims, values)": "from_arrow from_dataframe from_frame from_pandas from_polars",
    "binsparse_levels.open(f'{path}:X')  # or read; or :layers/NAME": "read_h5ad",
    "binsparse_levels.open(path)  # or read(path)": "load loadtxt load_npz open_zarr open_dataset",
    "pack(coords, values, shape, format)": "from_coo",
    "read(path)  # it checks all, as does the command binsparse-levels check": "check validate",
    "tensor.sel({axis: numpy.intersect1d(tensor.labels(axis), other.labels(axis))})  # or " + _OUTER_JOIN: "align",
    "tensor.sel({axis: other.labels(axis)})": "reindex_like",
    "to_table(tensor)": "to_arrow",
    "write(path, tensor)": "save_npz",
    _OUTER_JOIN: "merge",
}
OF_PACKAGE = {name: use.replace("{name}", name) for use, names in _OF_PACKAGE.items() for name in names.split()}


class Refusals:
    """Operations of other libraries that a tensor refuses. The errors name the code to use instead."""

    __slots__ = ()

    def __bool__(self) -> bool:
        raise TypeError("a tensor has no truth value; use tensor.any()  # or tensor.all(), tensor.nnz")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        remedy = "tensor.to_dense()  # or to_scipy(tensor) for scipy, or as_tensor of the other operand"
        raise TypeError(f"a Tensor is not made dense implicitly; use {remedy}")

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("a Tensor is not made dense implicitly; use tensor.to_dense()  # or to_torch(tensor)")

    def __dlpack_device__(self) -> Any:
        return self.__dlpack__()

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("a tensor is immutable; use numpy.where(mask, value, tensor)  # mask: a Tensor of booleans")

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError. For names of other libraries, the message says what to call."""
        call = f"{name}(tensor)" if name.startswith("to_") else f"binsparse_levels.{name}"
        use = REPLACEMENTS.get(name, call if name in functions() else "")
        if name in ("indices", "indptr"):  # of the last level of CSR, CSF or CVEC, which has no pointers
            use = use.replace("_1", f"_{self.ndim - 1}") if self.ndim > (name == "indptr") else ""
        hint = f"; use {use}" if use else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def __eq__(self, other: object) -> bool:
        """Raise TypeError: call `equals`. Sets and dictionaries compare tensors by identity."""
        use = "tensor is None" if other is None else "numpy.equal(tensor, other)  # or tensor.equals(other)"
        raise TypeError(f"tensors are not compared by ==; use {use}")

    def __ne__(self, other: object) -> bool:
        use = "tensor is not None" if other is None else "numpy.not_equal(tensor, other)"
        raise TypeError(f"tensors are not compared by !=; use {use}")

    __hash__ = object.__hash__


def instead_of_name(name: str) -> str:
    """The code to use instead of a name that the package lacks, for names of other libraries; else an empty text."""
    return OF_PACKAGE.get(name) or REPLACEMENTS.get(name, "")


def instead_of(function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """The code to use instead of a function of numpy that is refused."""
    use = REPLACEMENTS.get(function.__name__, "")
    if use and ".to_dense()" not in use and f"numpy.{function.__name__}(" not in use:
        return use
    return dense_call(f"{function.__module__}.{function.__name__}", args, options)


def dense_call(name: str, args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """The code of a call with dense arrays instead of tensors. Arguments are `other` if they are not short."""
    given = [*map(_code, args), *(f"{key}={_code(x)}" for key, x in options.items())]
    return f"{name}({', '.join(given)})"


def _code(x: Any) -> str:
    if isinstance(x, Contents):
        return "tensor.to_dense()"
    if isinstance(x, list | tuple) and len(x) < 5:
        return f"[{', '.join(map(_code, x))}]"
    if isinstance(x, list | tuple) and any(isinstance(item, Contents) for item in x):
        return "[x.to_dense() for x in tensors]"
    code = repr(x) if x is None or type(x) in (bool, int, float, complex, str) else getattr(x, "__name__", "other")
    return code if len(code) < 20 else "other"
