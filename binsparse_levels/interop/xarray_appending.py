"""Append an xarray Dataset to one in a Zarr store: dense variables by xarray, sparse ones as parts, in one step."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore

from ..containers.base import is_url
from ..containers.replacing import replacing_folder
from ..errors import ArrayError, FormatError, OptionError, Problem, needing, within_memory
from ..io.appending import append_part
from ..io.kinds import Location, StoreLike, name_of, target_at
from ..io.reading import opened
from ..limits import DEFAULT_LIMITS
from ..tensors.labels import TIMES, Labels, column_of
from ..tensors.tensor import Tensor, inside, remade
from .xarray import BinsparseBackend, LazySparse, array_of, check_dataset, consolidate, is_sparse, tensor_of_variable

with needing("xarray"):
    import xarray as xr


@within_memory
def append_dataset(path: StoreLike, dataset: xr.Dataset, dim: str) -> None:
    """Append an xarray Dataset to the one at `path` along a dimension.

    xarray appends the dense variables, and each sparse one gets a part, as by `append(part=True)`. So the time and the
    space are those of what is new.

    The folder is replaced in one step by one that shares its files. What was opened before refuses to read from then
    on: open it again.

    Parameters
    ----------
    path : str or PathLike
        A local .zarr folder that `write_dataset` has written.
    dataset : xarray.Dataset
        Every variable of the stored Dataset that has the dimension. Variables without it may be left out; otherwise
        they have to equal the stored ones.
    dim : str
        Name of the dimension that grows.

    Raises
    ------
    ArrayError
        A label of the dimension is stored already, or a stored type cannot represent what is appended.
    FormatError
        The variables, their dimensions, sizes or types differ from the stored ones.
    OptionError
        The path is another kind of file or store, which does not grow in one step.
    BinsparseError
        See `append`.

    See Also
    --------
    write_dataset : Write an xarray Dataset.
    append : Append a tensor to a stored one.

    Examples
    --------
    >>> import binsparse_levels as bl, sparse, xarray as xr
    >>> def day(number):
    ...     return xr.Dataset({"rain": (("day", "x"), sparse.COO([[0], [1]], [2.5], shape=(1, 3)))}, {"day": [number]})
    >>> bl.write_dataset("rain.zarr", day(1))
    >>> bl.append_dataset("rain.zarr", day(2), "day")
    >>> xr.open_dataset("rain.zarr", engine="binsparse").rain.sum("x").load().data.todense().tolist()
    [2.5, 2.5]
    """
    check_dataset(dataset)
    folder, name = _folder(path), name_of(path)
    with replacing_folder(folder, True, keep=True) as place:
        there = BinsparseBackend().open_dataset(place)
        more, new = _growing(there, dataset, dim, name), {dim: slice(there.sizes[dim], None)}
        sparse = [x for x in map(str, more.variables) if isinstance(array_of(there.variables[x]._data), LazySparse)]
        root = zarr.open_group(place, mode="r+", use_consolidated=False)
        arrays = {*root.array_keys()}
        dense = more[[x for x in more.variables if str(x) in arrays]].reset_coords().drop_encoding().compute()
        if dense.variables:
            attributes = root.attrs.asdict()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Times can't be serialized faithfully")  # then an error follows
                with _as_array_error(name):
                    dense.to_zarr(place, append_dim=dim, consolidated=False)
            root.attrs.put(attributes)  # xarray replaces them
        for x in sparse:
            location = Location(f"{place}/{x}", None, "zarr", f"{place}/{x}")
            tensor, loading = opened(location, DEFAULT_LIMITS)
            assert loading is not None
            part = remade(tensor_of_variable(more.variables[x], None), labels=_labels(tensor, more, dim))
            append_part(location, tensor, loading, part, there[x].dims.index(dim), None, DEFAULT_LIMITS, {})
        consolidate(place)
        after = BinsparseBackend().open_dataset(place)
        for x in map(str, dense.variables):
            if not _equal(after.variables[x].isel(new), more.variables[x]):
                what = f"the stored type of {x} does not represent what is appended"
                raise ArrayError(Problem(name, f"{what}; write the whole by write_dataset, with another encoding"))


@contextlib.contextmanager
def _as_array_error(name: str) -> Iterator[None]:
    """Raise errors of xarray about values that it cannot append as ArrayError."""
    try:
        yield
    except (ValueError, TypeError) as error:
        what = f"xarray cannot append to a dense variable: {error}; write the whole by write_dataset"
        raise ArrayError(Problem(name, what)) from error


def _labels(tensor: Tensor, more: xr.Dataset, dim: str) -> Labels | None:
    """The labels of a part of a tensor that has labels of its own: they are coordinates of the Dataset too."""
    labels = inside(tensor).metadata.labels
    if labels is None or dim not in labels.columns:
        return labels
    values, stored = more.variables[dim].values, labels.columns[dim].type
    unit = TIMES.fullmatch(stored)
    if values.dtype.kind == "M" and unit and not unit[2] and (values.astype(stored) == values).all():
        values = values.astype(stored)  # the unit of xarray depends on its version and that of pandas
    column = column_of(values, f"labels of {dim}", more.sizes[dim])
    return replace(labels, columns={**labels.columns, dim: column})


def _folder(path: StoreLike) -> str:
    """The folder of a Dataset that can grow. Raises OptionError."""
    target = target_at(path, None)
    place = str(target.path.root) if isinstance(target.path, LocalStore) else target.path
    local = isinstance(place, str) and not is_url(place) and not place.endswith(".zip")
    if target.group is not None or target.name != "zarr" or not local:
        what = "a Dataset grows in a local .zarr folder alone; concatenate by xarray, and replace it by write_dataset"
        raise OptionError(Problem(name_of(path), what))
    return str(place)


def _growing(there: xr.Dataset, dataset: xr.Dataset, dim: str, name: str) -> xr.Dataset:
    """The variables that grow, with their dimensions in the stored order. Raises FormatError, ArrayError."""

    def refuse(what: str) -> None:
        raise FormatError(Problem(name, what))

    for each, which in ((there, "the stored Dataset"), (dataset, "the appended Dataset")):
        if dim not in each.dims:
            remedy = f"call expand_dims({dim!r})" if dim in each.variables else "pass one that both have"
            refuse(f"{which} has no dimension {dim!r}, only {', '.join(map(str, each.dims)):.200}; {remedy}")
    growing = [str(x) for x, variable in there.variables.items() if dim in variable.dims]
    if missing := [x for x in growing if x not in dataset.variables]:
        refuse(f"{', '.join(missing):.200} would not grow; append these variables too")
    if others := [x for x in map(str, dataset.variables) if x not in there.variables]:
        refuse(f"{', '.join(others):.200} are not stored; leave them out by drop_vars")
    for x in map(str, dataset.variables):
        known, its = there.variables[x], dataset.variables[x]
        if is_sparse(array_of(its._data)) and not isinstance(array_of(known._data), LazySparse):
            refuse(f"{x} is sparse, and stored as a dense array; call as_numpy")
        if x not in growing:
            if not _equal(known, its):
                refuse(f"{x} does not have the dimension {dim!r}, and differs from what is stored; leave it out")
            continue
        sizes = [{k: n for k, n in variable.sizes.items() if k != dim} for variable in (known, its)]
        if sizes[0] != sizes[1] or dim not in its.dims:
            refuse(f"{x} has the sizes {dict(its.sizes)}, and stored {dict(known.sizes)}; append equal sizes")
        if its.dtype != known.dtype and known.dtype.kind in "biufc":
            refuse(f"{x} has the type {its.dtype}, and stored {known.dtype}; call astype")
    if dim in there.indexes:
        listed = there.indexes[dim].append(its := dataset.variables[dim].to_index())
        again = its[listed.duplicated()[-len(its) or len(listed) :]]
        if len(again):
            what = f"the label {again[0]!s:.60} of dimension {dim!r} would be there twice; leave it out by drop_sel"
            raise ArrayError(Problem(name, what))
    turned = {x: _as_stored(x, dataset.variables[x], there.variables[x], name) for x in growing}
    return xr.Dataset(turned).set_coords([x for x in growing if x in there.coords])


def _as_stored(x: str, variable: xr.Variable, known: xr.Variable, name: str) -> xr.Variable:
    """The variable with dimensions in the stored order, and texts of the stored type. Raises ArrayError."""
    turned = variable.transpose(*known.dims)
    if known.dtype == turned.dtype or known.dtype.kind not in "OUST":
        return turned
    values = turned.values.astype(known.dtype)
    if not np.array_equal(values.astype(object), turned.values.astype(object)):
        what = f"the stored type of {x}, {known.dtype}, does not represent what is appended"
        raise ArrayError(Problem(name, f"{what}; write the whole by write_dataset"))
    return xr.Variable(known.dims, values, turned.attrs)


def _equal(known: Any, variable: Any) -> bool:
    """Return True if a variable equals a stored one."""
    if isinstance(array_of(known._data), LazySparse):
        return tensor_of_variable(known, None).equals(tensor_of_variable(variable, None))
    return bool(known.equals(variable))
