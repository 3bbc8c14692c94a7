"""Names of other libraries that a tensor does not have, and what to use instead."""

from __future__ import annotations

# The call in this package, and its names in other libraries.
_NAMES = {
    "T, and numpy.conj(tensor)": "H getH adjoint",
    "append(path, tensor), or numpy.concatenate": "concat extend insert column_stack dstack row_stack",
    "arrays['indices_1'], arrays['pointers_to_1'], and so on for each level": "indices indptr row col",
    "attributes": "attrs",
    "binsparse_levels.einsum": "einsum tensordot vdot inner outer",
    "convert(format)": "asformat",
    "draw(ax=ax), or to_scipy(tensor) for matplotlib": "plot hist imshow spy",
    "drop_fill()": "eliminate_zeros prune dropna",
    "equals(other)": "array_equal allclose identical broadcast_equals",
    "isel({dimension: number}), or tensor[number]": "iloc iat getrow getcol",
    "labels(dimension)": "index columns get_index indexes axes keys get_level_values",
    "load()": "compute persist",
    "number_of_stored_values": "nse getnnz",
    "numpy.concatenate": "concatenate vstack hstack",
    "numpy.maximum and numpy.minimum": "maximum minimum fmax fmin",
    "numpy.nan_to_num(tensor)": "fillna",
    "numpy.sqrt(tensor), and so on for each function of one number": (
        "sqrt trunc ceil floor sin tan arcsin arctan sinh tanh arcsinh arctanh expm1 log1p rint sign exp log conj "
        "conjugate isnull notnull isna notna deg2rad rad2deg angle modf"
    ),
    "numpy.diff, numpy.roll, numpy.flip and numpy.tril of the tensor": "diff roll shift flip fliplr flipud tril triu",
    "numpy.where(condition, tensor, 0)": "where mask isin",
    "permute(axes)": "moveaxis rollaxis",
    "reduce(tensor, axis, 'norm')": "norm",
    "reduce(tensor, axis, cells='stored') for stored values, or numpy.nan_to_num(tensor) before": (
        "nansum nanmean nanmax nanmin nanstd nanvar"
    ),
    "scipy.sparse.kron of to_scipy(tensor)": "kron",
    "scipy.sparse.linalg.svds(tensor), or to_dense()": "svd",
    "sel({dimension: label})": "loc at reindex xs drop_sel",
    "statistics(tensor, axis)": "describe agg aggregate ptp",
    "the function itself, with the tensor as its argument": "pipe apply map_blocks applymap transform",
    "the tensor itself, which is immutable": "copy",
    "the tensor itself, whose entries are sorted and unique": (
        "sort_indices sum_duplicates has_sorted_indices has_canonical_format sorted_indices"
    ),
    "the tensor of open() in a with block": "close",
    "to_dense()": "toarray todense numpy tolist item argwhere flatnonzero",
    "to_dense() and numpy, since the result is dense": (
        "cumsum cumprod median quantile percentile sort argsort rolling rank sortby unique histogram searchsorted "
        "apply_along_axis pad tile repeat delete cov corr corrcoef average"
    ),
    "to_pandas(tensor)": "to_series to_dataframe melt unstack value_counts reset_index iterrows items",
    "to_scipy(tensor), then its method": "setdiag resize diag block_diag expand_dims broadcast_to stack split",
    "to_scipy(tensor, format)": "tocoo tocsc tocsr tobsr todok tolil todia",
    "to_sparse(tensor).reshape(shape), or convert(format, map=…)": "reshape ravel flatten",
    "to_table(tensor), which polars takes": "to_polars to_frame",
    "to_xarray(tensor)": "to_dataset to_dataarray chunk weighted coarsen interp broadcast_like",
    "tensor * other": "multiply",
    "tensor ** exponent": "power pow",
    "tensor / other": "divide div truediv",
    "tensor @ other, or einsum": "matmul",
    "tensor[:5]": "head thin",
    "unpack() for coordinates, or labels(dimension)": "coords nonzero",
    "values": "data",
    "with_attributes(attributes)": "assign_attrs",
    "with_labels({dimension: None})": "drop_vars reset_coords drop_indexes",
    "with_labels({dimension: labels})": "assign_coords set_index set_xindex",
    "with_labels(dims=names)": "rename set_axis rename_axis swap_dims name",
    "write(path, tensor)": "save savez savez_compressed savetxt to_netcdf to_csv to_hdf to_zarr to_parquet to_pickle",
}
REPLACEMENTS = {name: use for use, names in _NAMES.items() for name in names.split()}


def replacement(name: str, other: str) -> str:
    """Return what to use for a name of another library; `other` if the name is unknown."""
    return REPLACEMENTS.get(name, other)
