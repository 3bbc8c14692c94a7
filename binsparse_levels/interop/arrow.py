"""Long tables of pandas, polars, pyarrow, duckdb and others: a row for each entry, by Arrow's C stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..arrays import Array
from ..building import columns as tables
from ..building.columns import arrow as arrow_module
from ..building.plan import check_proportion
from ..building.request import Request
from ..engine.packing import RepeatedError, repeated
from ..engine.tree import Duplicates, index_dtype
from ..errors import ArrayError, FormatError, OptionError, Problem, within_memory
from ..formats.format import FormatLike
from ..formats.index_map import MapLike
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.changing import entries, expanded
from ..tensors.foreign import qualified
from ..tensors.lookup import pandas_module
from ..tensors.packing import pack
from ..tensors.tensor import Tensor, inside, remade

if TYPE_CHECKING:
    import pyarrow


@within_memory
def from_table(
    table: Any,
    dims: Sequence[str],
    values: str | None = None,
    format: FormatLike = "COO",
    *,
    shape: Sequence[int] | None = None,
    labels: Mapping[str, Any] | None = None,
    duplicates: Duplicates = "error",
    nulls: tables.Nulls = "error",
    fill_value: Any = None,
    attributes: Mapping[str, Any] | None = None,
    map: MapLike | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Tensor:
    """Pack the rows of a table into a Tensor. For tables larger than memory, use `write_from`.

    Integers in a dimension are coordinates. Other columns contain labels: strings, dates, times or categories. Labels
    are numbered in ascending order, and categories in the order of their type. Names and labels are stored with the
    tensor, in every container of this package; `Tensor.dims` and `Tensor.labels` return them.

    Parameters
    ----------
    table : object
        An object with the method `__arrow_c_stream__`: a DataFrame of pandas or polars, a table of pyarrow, a relation
        of duckdb; or a polars LazyFrame or pyarrow dataset. Only the named columns of the latter are read.
    dims : sequence of str
        The names of the columns with coordinates or labels, in the order of the dimensions.
    values : str, optional
        The name of the column with the values. By default each row has the value 1, so that the "sum" of duplicates
        counts rows.
    format : str, Format or mapping, default 'COO'
        See `pack`.
    shape : sequence of int, optional
        Sizes of the dimensions; by default the numbers of labels, or the largest coordinate plus 1.
    labels : mapping, optional
        All labels of a dimension by its name, in the order of their coordinates. A table of edges has the same labels
        for both dimensions.
    duplicates : {'error', 'sum', 'first', 'last'}, default 'error'
        Treatment of repeated coordinates; see `pack`.
    nulls : {'error', 'drop'}, default 'error'
        "drop" leaves out rows with a null in one of the columns.
    fill_value : scalar, optional
        Value of the cells that are not stored.
    attributes : mapping, optional
        JSON object that is stored with the tensor.
    map : str or IndexMap, optional
        Index map through which the tensor is stored.
    limits : Limits, optional
        Bounds on the resources of this call.

    Returns
    -------
    Tensor
        Tensor with a dimension for each name in `dims`.

    Raises
    ------
    ArrayError
        A column contains a null, a label that is not in `labels`, or a type that labels do not support; or `pack`
        refuses the entries.
    OptionError
        A column is missing, or `table` is another object.

    See Also
    --------
    to_table : Convert the stored entries to an Arrow table, for pandas, polars and duckdb.
    build : Build a tensor in a sharded Zarr store by many processes.
    pack : Pack entries in any order into a Tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import pyarrow
    >>> table = pyarrow.table({"user": ["ann", "bob", "ann"], "day": [3, 1, 3], "value": [1.0, 2.0, 4.0]})
    >>> bl.from_table(table, ["user", "day"], "value", "CSR", duplicates="sum").to_dense().tolist()
    [[0.0, 0.0, 0.0, 5.0], [0.0, 2.0, 0.0, 0.0]]
    >>> edges, nodes = pyarrow.table({"src": ["a", "b"], "dst": ["b", "c"]}), ["a", "b", "c"]
    >>> graph = bl.from_table(edges, ["src", "dst"], format="CSR", labels={"src": nodes, "dst": nodes})
    >>> (graph + graph.T).dims, (graph @ graph).to_dense().tolist()
    (('src', 'dst'), [[0, 0, 1], [0, 0, 0], [0, 0, 0]])
    """
    if not tables.is_table(table):
        hint = "pass a table of pandas, polars, pyarrow or duckdb"
        raise OptionError(f"expected a table with Arrow's C stream, got {qualified(table)}; {hint}")
    rows = tables.TableReader(dims, values, labels, nulls)
    chunks = list(rows.chunks(table))
    coords = [_joined(x) for x in zip(*(coords for coords, _ in chunks), strict=True)]
    stored = _joined([x for _, x in chunks])
    for k, ranks in rows.ascend().items():
        coords[k] = ranks[coords[k]]
    for name, x in zip(dims, coords, strict=True):
        if x.min(initial=0) < 0:
            what = f"contains {x.min()}, which is no coordinate; pass labels={{{name!r}: numpy.unique(column)}}"
            raise ArrayError(Problem(f"columns.{name}", what))
    if shape is None:
        shape = rows.sizes([int(x.max()) + 1 if len(x) else 0 for x in coords])
        check_proportion(Request(format, map, limits=limits).plan(shape, rows=1), len(stored))
    options: dict[str, Any] = {"duplicates": duplicates, "fill_value": fill_value, "attributes": attributes}
    try:
        made = pack(coords, stored, shape, format, map=map, limits=limits, **options)
    except RepeatedError as error:
        cell: dict[str, Any] = dict(zip(dims, error.coords, strict=True))
        known = rows.labels(rows.sizes(error.coords)).columns.items()
        raise repeated([*(cell | {dim: str(column.array()[cell[dim]]) for dim, column in known}).values()]) from None
    return remade(made, labels=rows.labels(made.shape))


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@within_memory
def to_table(
    tensor: Tensor,
    *,
    dims: Sequence[str] | None = None,
    values: str | None = None,
    dtype: Literal["stored"] | None = None,
) -> pyarrow.Table:
    """Convert the stored entries to an Arrow table, for pandas, polars and duckdb.

    Parameters
    ----------
    tensor : Tensor
        A dimension whose labels are text becomes a column of categories, one with other labels a column of their type,
        and one without labels a column of integers. The structure is expanded.
    dims : sequence of str, optional
        Names of the dimensions.
    values : str, optional
        The names of the columns. By default those of the tensor, or `dim_0` and so on, and `value`.
    dtype : {'stored'}, optional
        "stored" returns the coordinate types of `Tensor.unpack`; by default coordinates have 32 bits, or 64 if a
        dimension requires it.

    Returns
    -------
    pyarrow.Table
        Pyarrow.Table with ndim + 1 columns and a row for each entry.

    Raises
    ------
    FormatError
        Arrow does not support the values.
    ArrayError
        A coordinate has no label.
    OptionError
        The names do not fit.

    See Also
    --------
    from_table : Pack the rows of a table into a Tensor.
    to_pandas : Convert the stored entries to a pandas DataFrame with a row for each.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.to_table(bl.pack([[0, 1], [2, 0]], [1.5, 2.5], (2, 3), "CSR")).to_pydict()
    {'dim_0': [0, 1], 'dim_1': [2, 0], 'value': [1.5, 2.5]}
    """
    arrow, known = arrow_module(), inside(tensor).metadata.labels
    own = [f"dim_{k}" for k in range(tensor.ndim)] if known is None else known.dims
    names = [*(own if dims is None else dims), values or (known.values if known else "value")]
    if len(names) != tensor.ndim + 1 or len(set(names)) != len(names):
        what = f"expected {tensor.ndim + 1} different names with that of the values, got {names!s:.60}"
        raise OptionError(Problem("dims", f"{what}; pass dims= or values="))
    whole = expanded(tensor)
    coords, stored = entries(whole, dtype, index_dtype(whole.shape, 0))
    columns = tables.labelled(coords, known)
    for k, name in enumerate(own):
        if known is not None and name in known.columns and known.columns[name].offsets is None:
            columns[k] = columns[k].dictionary_decode()
    try:
        columns.append(arrow.array(np.ascontiguousarray(stored)))
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError) as error:
        what = f"Arrow does not support {stored.dtype}: {error}; call astype() first"
        raise FormatError(Problem("values", what)) from None
    return arrow.table(columns, names=names)


@within_memory
def to_pandas(tensor: Tensor, *, dims: Sequence[str] | None = None, values: str | None = None) -> Any:
    """Convert the stored entries to a pandas DataFrame with a row for each.

    Labels have the types of the original table, except that dates are `datetime64` days and text is categories.

    Parameters
    ----------
    tensor : Tensor
        See `to_table`.
    dims : sequence of str, optional
        Names of the dimensions.
    values : str, optional
        See `to_table`.

    Returns
    -------
    scalar, ndarray or Tensor
        Pandas.DataFrame with ndim + 1 columns and a row for each entry.

    Raises
    ------
    ArrayError, FormatError, OptionError
        See `to_table`.

    See Also
    --------
    to_table : Convert the stored entries to an Arrow table, for pandas, polars and duckdb.
    to_xarray : Convert a tensor to an xarray.DataArray of a sparse.COO.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.to_pandas(bl.pack([[0, 1], [2, 0]], [1.5, 2.5], (2, 3), "CSR")).value.tolist()
    [1.5, 2.5]
    """
    pandas_module()
    return to_table(tensor, dims=dims, values=values).to_pandas(date_as_object=False)
