"""Conversion of objects of other libraries, and checks of what other libraries can represent."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import Array
from ..errors import FormatError, OptionError, Problem, raise_if, within_memory
from ..formats.format import FormatLike
from .changing import reformatted
from .contents import Dimension
from .late_imports import late_import
from .tensor import Tensor, inside

# Module of the types of a library: (function that converts them, True if it can share arrays).
_CONVERTERS = {
    "numpy": ("from_numpy", False),
    "scipy.sparse": ("from_scipy", True),
    "sparse": ("from_sparse", True),
    "torch": ("from_torch", True),
    "graphblas": ("from_graphblas", False),
}
_TABLE = "call from_table(table, dims=[…], values=…)"
# Advice for objects that are not tensors but may contain one.
_HINTS = {
    "anndata": "pass one of its matrices, such as adata.X",
    "builtins": "pass entries to pack, or cells to from_numpy",
    "dask": "call from_dask, or compute it",
    "h5py": "call open or read with the file or group",
    "pandas": f"{_TABLE}, or pass its to_numpy()",
    "xarray": "call write_dataset, or pass the data of a variable, such as array.data",
    "zarr": "call open or read with the group",
}


@within_memory
def as_tensor(
    thing: Any,
    format: FormatLike | None = None,
    *,
    copy: bool = True,
    attributes: Mapping[str, Any] | None = None,
    dims: Sequence[str] | None = None,
    labels: Mapping[Dimension, npt.ArrayLike | None] | None = None,
) -> Tensor:
    """Convert an object of another library to a Tensor. `write`, `append` and `advise` do the same.

    Parameters
    ----------
    thing : object
        A sparse array or matrix of scipy, an array of pydata/sparse, a dense array of numpy, a sparse tensor of torch,
        a matrix, vector or scalar of GraphBLAS, or an object with the Binsparse protocol. A Tensor is unchanged.
    format : str, Format or mapping, optional
        Format of the tensor; by default the closest to that of `thing`, as chosen by `from_scipy`, `from_sparse` and so
        on.
    copy : bool, default True
        See `from_scipy`.
    attributes : mapping, optional
        The user's own JSON. By default, a Tensor keeps its own.
    dims : sequence of str, optional
        Names of the dimensions.
    labels : mapping of int or str to array_like, optional
        Labels of the coordinates, by dimension; see `Tensor.with_labels`.

    Returns
    -------
    Tensor
        Tensor of the shape of `thing`.

    Raises
    ------
    OptionError
        `thing` is another object. The message names its type and the function to call.

    See Also
    --------
    pack : Pack entries in any order into a Tensor.
    pack_dense : Pack the cells of a dense array that differ from the fill value into a Tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import scipy.sparse
    >>> str(bl.as_tensor(scipy.sparse.eye_array(3, format="csc")).format)
    'CSC'
    >>> bl.as_tensor([1, 2])
    Traceback (most recent call last):
    binsparse_levels.errors.OptionError: expected a Tensor or an array of another library, got list;
    pass entries to pack, or cells to from_numpy
    """
    tensor: Tensor = thing if isinstance(thing, Tensor) else _converted(thing, copy)
    if attributes is not None:
        tensor = tensor.with_attributes(attributes)
    if format is not None:
        tensor = tensor.convert(format) if isinstance(thing, Tensor) else reformatted(tensor, format)
    return tensor.with_labels(labels, dims=dims)


def as_operand(thing: Any) -> Any:
    """A sparse array of another library as a tensor; anything else as it is."""
    if isinstance(thing, Tensor | np.ndarray):
        return thing
    converter = _converter(thing)
    is_sparse = hasattr(thing, "__binsparse__") if converter is None else converter[0] != "from_numpy"
    return as_tensor(thing, copy=False) if is_sparse else thing


def _converter(thing: Any) -> tuple[str, bool] | None:
    """The function that converts objects of a type, and True if it can share arrays."""
    return next((row for kind in type(thing).__mro__ if (row := _row(_CONVERTERS, kind)) is not None), None)


def _converted(thing: Any, copy: bool) -> Any:
    if (converter := _converter(thing)) is not None:
        function, shares = converter
        return late_import(function)(thing, **({"copy": copy} if shares else {}))
    if hasattr(thing, "__binsparse__"):
        return late_import("from_binsparse")(thing, copy=copy)
    if hasattr(thing, "__dlpack__"):
        return late_import("from_numpy")(thing)
    name = type(thing).__qualname__ if type(thing).__module__ == "builtins" else qualified(thing)
    if isinstance(thing, str | os.PathLike):
        raise OptionError(f"expected a Tensor or an array of another library, got the path {str(thing)!r:.80}; open it")
    default = _TABLE if hasattr(thing, "__arrow_c_stream__") else _HINTS["builtins"]
    hint = _row(_HINTS, type(thing)) or default
    raise OptionError(f"expected a Tensor or an array of another library, got {name}; {hint}")


def check_representable(
    tensor: Tensor,
    target: str,
    path: str | None = None,
    *,
    ranks: Collection[int] | None = None,
    type_fits: bool = True,
    structures: bool = False,
) -> None:
    """Raise FormatError if a target cannot represent the tensor. Every target requires the fill value zero.

    path: of a file, for errors; by default errors name the attribute. ranks: the supported numbers of dimensions.
    type_fits: True if the type of the values is supported. structures: True if structures are supported.
    """
    faults = {}
    if ranks is not None and tensor.ndim not in ranks:
        faults["shape"] = f"tensors of {tensor.ndim} dimensions; slice it"
    if tensor.structure is not None and not structures:
        faults["structure"] = f"{tensor.structure}; call expand_structure() first"
    if tensor.fill_value is not None and tensor.fill_value != np.zeros((), tensor.dtype)[()]:
        remedy = "store the difference, with_values(values - fill_value, fill_value=0), or call to_dense()"
        faults["fill_value"] = f"the fill value {tensor.fill_value}, only 0; {remedy}"
    if not type_fits:
        faults["values"] = f"{tensor.dtype} values; call astype() first"
    raise_if(FormatError, [Problem(path or where, f"{target} cannot represent {x}") for where, x in faults.items()])


def qualified(thing: Any) -> str:
    """The name of the type of an object, with its module."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def owned(array: Array, tensor: Tensor, copy: bool) -> Array:
    """An array of a conversion of `tensor`, for another library. It is writable unless the tensor shares it.

    copy: copy an array that the tensor shares, or that repeats one value.
    """
    tree = inside(tensor).source
    stored = [x for x in (*tree.arrays.values(), tree.values) if isinstance(x, np.ndarray)]
    repeats = len(array) > 1 and not array.strides[0]
    if repeats or any(np.may_share_memory(array, x) for x in stored):
        return np.array(array) if copy else array
    own = array.view()
    try:
        own.flags.writeable = True
    except ValueError:  # its memory belongs to another object, which does not allow it
        return np.array(array) if copy else array
    return own


def _row(rows: Mapping[str, Any], kind: type) -> Any:
    """The row for the module of a type, or None."""
    return next((row for module, row in rows.items() if f"{kind.__module__}.".startswith(f"{module}.")), None)
