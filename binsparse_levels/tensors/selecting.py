"""Selection of parts of a tensor: by index, and by name and label."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ..engine.views import broadcast, parse_key, pick
from ..errors import BinsparseError, LabelError, LimitError, OptionError, Problem
from ..formats.format import coordinates
from ..formats.shapes import checked_axes
from ..levels.positions import Array, match
from ..limits import as_integer
from .changing import in_order, with_entries
from .contents import Contents, Dimension, dimension_of, labels_of, remade
from .dense import to_dense
from .lookup import FAILURES, plain
from .views import selected

Self = TypeVar("Self", bound=Contents)

_MAX_COMPARED = 2**14  # labels whose spelling is compared with an unknown label
_MAX_SUGGESTED = 3  # labels in an error
_OPTIONS = {  # of xarray's sel
    "method": "find the nearest label in tensor.labels(dimension), such as by numpy.searchsorted, and pass it",
    "tolerance": "find the nearest label in tensor.labels(dimension), and pass it",
    "drop": "omit it, as the result has no label of a dimension that is selected by one label",
}


def select(self: Contents, key: Any) -> Any:
    """Select by integers, slices, an ellipsis, arrays of integers and masks, with numpy's rules.

    An integer for every dimension returns a numpy scalar. Integers and arrays of one dimension for all dimensions
    return an array of values, and so does a mask that is a Tensor of the same shape, as `tensor[tensor > 1]`. Several
    arrays together with a slice, or an array of several dimensions, return a list of coordinates in memory. Every other
    key, also `numpy.ix_`, returns a view, which reads nothing until it is used. A view has no structure. It keeps the
    attributes, and the names and labels of its dimensions. None adds a dimension of size 1, next to integers and
    slices; the result is in memory.

    Raises
    ------
    IndexError
        numpy would refuse the key, or None is next to an array.
    LimitError
        Arrays that are no mesh select more than `dense_bytes`.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> tensor = bl.pack_dense([[0, 2, 0], [3, 0, 4]], "CSR")
    >>> int(tensor[1, 2]), tensor[:, ::2].to_dense().tolist()
    (4, [[0, 0], [3, 4]])
    """
    shape = self._inside.backing.shape
    if type(key) is tuple and len(key) == len(shape) and list(map(type, key)) == [int] * len(key):
        return _cell(self, key)
    if isinstance(key, Contents):
        return _masked(self, key)
    if key is None or (type(key) is tuple and any(item is None for item in key)):
        return _with_new(self, key if type(key) is tuple else (key,))
    indices, array_first = parse_key(key, shape)
    kinds = list(map(type, indices))
    arrays = [index for index in indices if isinstance(index, np.ndarray)]
    if arrays and slice not in kinds and max(x.ndim for x in arrays) == 1:
        points = broadcast(indices, shape)
        _hold(self, points[0].size * self.dtype.itemsize)
        flat = [x.ravel() for x in points]
        return self._inside.backing.values_at(flat, self._inside.pad).reshape(points[0].shape)
    if len(arrays) > 1 or (arrays and arrays[0].ndim > 1):
        return _gather(self, indices, array_first)
    if slice in kinds or (not indices and key != ()):
        return view(self, indices, array_first)
    return _cell(self, indices)


def _cell(tensor: Contents, indices: Sequence[int]) -> Any:
    """The value at integers, which may count from the end."""
    backing = tensor._inside.backing
    cell = [pick(range(size), x, k) for k, (x, size) in enumerate(zip(indices, backing.shape, strict=True))]
    return backing.value_at(cell, tensor._inside.pad)


def view(tensor: Self, indices: Sequence[Any], array_first: bool = False) -> Self:
    """A view of the cells at an index for each dimension.

    Precondition: the arguments are results of `parse_key`, with one array at most.
    """
    backing, labels = tensor._inside.backing, tensor._inside.metadata.labels
    kept = {} if labels is None else {"labels": labels.selected(indices, array_first, backing.shape)}
    return remade(tensor, selected(backing, indices, array_first), **kept)


def _with_new(tensor: Self, items: Sequence[Any]) -> Any:
    """The cells at integers and slices, in memory, with a dimension of size 1 for each None."""
    own = tuple(item for item in items if item is not None)
    if not all(item is Ellipsis or isinstance(item, slice) or as_integer(item) is not None for item in own):
        raise IndexError("None stands next to an array; use tensor[rows][:, None]")
    part = select(tensor, own)
    is_new: list[bool] = []
    for item in items if Ellipsis in own else (*items, Ellipsis):
        if item is Ellipsis:
            is_new += [False] * (tensor.ndim - sum(x is not Ellipsis for x in own))
        elif item is None or isinstance(item, slice):
            is_new.append(item is None)
    if not isinstance(part, Contents):  # a cell
        return np.reshape(part, [1] * len(is_new))
    places, sizes = [k for k, new in enumerate(is_new) if not new], [1] * len(is_new)
    coords, values = in_order(part)
    columns = [np.zeros(len(values), np.int64)] * len(is_new)
    for k, x, size in zip(places, coords, part.shape, strict=True):
        columns[k], sizes[k] = x, size
    labels = part._inside.metadata.labels
    placed = labels if labels is None else labels.placed(places, len(is_new))
    return with_entries(part, columns, values, coordinates(len(is_new)), shape=sizes, labels=placed)


def _masked(tensor: Contents, mask: Contents) -> Array:
    """The values of the cells at which a tensor of booleans is true, in row-major order."""
    if mask.dtype.kind != "b" or mask.shape != tensor.shape or not mask.ndim:
        what = f"a Tensor as a mask has booleans and the shape {tensor.shape}, got {mask.dtype} and {mask.shape}"
        raise IndexError(f"{what}; pass arrays of coordinates for other selections")
    if mask._inside.pad:
        cells: Sequence[Array] = np.nonzero(to_dense(mask, limits=tensor.limits))
    else:
        coords, values = in_order(mask)
        cells = [x[values] for x in coords]
    _hold(tensor, len(cells[0]) * tensor.dtype.itemsize)
    return tensor._inside.backing.values_at(cells, tensor._inside.pad)


def _hold(tensor: Contents, size: int) -> None:
    """Raise LimitError if a selection by index arrays takes more than the limit `dense_bytes`."""
    if size > (most := tensor.limits.dense_bytes):
        what = f"index arrays of {size} bytes for all cells, more than the limit dense_bytes={most}"
        raise LimitError(Problem("key", f"{what}; select in parts, or one dimension after the other: t[rows][:, cols]"))


def _gather(tensor: Self, indices: Sequence[Any], array_first: bool) -> Self:
    """The entries at index arrays and slices: a view for an open mesh, else a list of coordinates."""
    named = [k for k, index in enumerate(indices) if not isinstance(index, slice)]
    points = broadcast([indices[k] for k in named], [tensor.shape[k] for k in named])
    shape, first = points[0].shape, 0 if array_first else named[0]
    if (axes := _mesh(indices, len(shape))) is not None:
        return _outer(tensor, indices, axes, first)
    _hold(tensor, points[0].size * 8 * len(named))
    part = view(tensor, [index if isinstance(index, slice) else slice(None) for index in indices])
    there, whole = [], [slice(None)] * part.ndim
    for k, point in zip(named, points, strict=True):  # each dimension alone first, which reads less
        coordinates_there, number = np.unique(point.ravel(), return_inverse=True)
        there.append(number)
        part = view(part, [*whole[:k], coordinates_there, *whole[k + 1 :]])
    coords, values = part._inside.backing.entries(part._inside.pad)
    entries, at = match([coords[k] for k in named], there)
    columns = [coords[k][entries] for k in range(len(indices)) if k not in named]
    sizes = [part.shape[k] for k in range(len(indices)) if k not in named]
    columns[first:first] = np.unravel_index(at, shape) if at.size else [at] * len(shape)
    sizes[first:first] = shape
    return with_entries(part, columns, values[entries], coordinates(len(sizes)), shape=sizes, labels=None)


def _mesh(indices: Sequence[Any], rank: int) -> list[int] | None:
    """The dimension that is selected by each axis of an open mesh of this rank, such as that of `numpy.ix_`.

    None if arrays share an axis, or if there are more axes than arrays: then the arrays list cells.
    """
    axes: list[int | None] = [None] * rank
    single = []
    for k, index in enumerate(indices):
        if isinstance(index, np.ndarray):
            varying = [rank - index.ndim + axis for axis, size in enumerate(index.shape) if size != 1]
            if len(varying) > 1 or (varying and axes[varying[0]] is not None):
                return None
            if varying:
                axes[varying[0]] = k
            else:
                single.append(k)
    if len(single) != axes.count(None):
        return None
    return [single.pop(0) if k is None else k for k in axes]


def _outer(tensor: Self, indices: Sequence[Any], axes: Sequence[int], first: int) -> Self:
    """A view of the cells at the coordinates of each dimension, with the axes of a mesh from dimension `first` on."""
    left = [k for k, index in enumerate(indices) if not isinstance(index, int)]
    tensor = _each(tensor, {k: x.ravel() if isinstance(x, np.ndarray) else x for k, x in enumerate(indices)})
    rest = [k for k in left if k not in axes]
    return permute(tensor, [left.index(k) for k in (*rest[:first], *axes, *rest[first:])])


def permute(self: Self, axes: Sequence[Dimension]) -> Self:
    """The same entries with the dimensions in another order. The arrays are shared.

    Parameters
    ----------
    axes : sequence of int or str
        Dimension k of the result is dimension axes[k] of this tensor, by number or name.

    Returns
    -------
    Tensor
        Tensor with `shape[axes[k]]` as the size of dimension k.

    Raises
    ------
    FormatError
        `axes` is not a permutation.

    See Also
    --------
    Tensor.transpose : Permute the dimensions.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.pack([[0], [1], [2]], [1], (2, 3, 5), "sparse(3)").permute((2, 0, 1)).shape
    (5, 2, 3)
    """
    order = checked_axes([dimension_of(self, x) if isinstance(x, str) else x for x in axes], self.ndim)
    labels = self._inside.metadata.labels
    kept = {} if labels is None else {"labels": labels.permuted(order)}
    return remade(self, self._inside.backing.permuted(order), **kept)


# Dimensions by name, and coordinates by label


def sel(self: Contents, labels: Mapping[Any, Any] | None = None, /, **named: Any) -> Any:
    """Select by label, as `xarray.DataArray.sel` does; otherwise like indexing.

    A label removes its dimension, unless several coordinates have it. Several labels keep their order. A slice goes
    from the coordinate of its first label to that of its last, inclusive; labels that are not there can be ends if
    the labels ascend or descend. A string for times is a period: "2026-03" is the whole month. Along a dimension
    without labels, `sel` is `isel`.

    Texts and integers are found without pandas; ranges and other labels need it.

    Parameters
    ----------
    labels, **named : mapping, optional
        The labels by name of the dimension; `labels` also accepts its number. An array of booleans is a mask of the
        coordinates.

    Returns
    -------
    Tensor
        Tensor, or a numpy scalar if every dimension has one label.

    Raises
    ------
    LabelError
        No coordinate has the label, or xarray also refuses the key. It is also a KeyError.
    OptionError
        An option of xarray that is not supported here, such as `method`; or pandas is missing.
    IndexError
        No dimension has this name.
    ArrayError
        The labels are damaged.

    See Also
    --------
    Tensor.isel : Select by position.
    Tensor.labels : Return the labels of a dimension.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import pyarrow
    >>> table = pyarrow.table({"user": [7, 9], "item": ["pen", "ink"], "value": [1.5, 2.5]})
    >>> tensor = bl.from_table(table, ["user", "item"], "value", "CSR")
    >>> float(tensor.sel(user=9, item="ink")), tensor.sel(item=["ink", "pen"]).labels("item").tolist()
    (2.5, ['ink', 'pen'])
    """
    keys = {**(labels or {}), **named}
    for option in _OPTIONS.keys() & keys.keys() - {*(self.dims or ())}:
        raise OptionError(Problem(option, f"sel has no such option; {_OPTIONS[option]}"))

    def index(k: int, key: Any, name: str) -> int | slice | Array:
        column = labels_of(self, k)
        lookup = None if column is None else column.lookup
        try:
            return _index(key if lookup is None else lookup.find(key), self.shape[k])
        except BinsparseError:
            raise
        except FAILURES as error:
            known = range(self.shape[k]) if lookup is None else lookup.labels
            raise LabelError(Problem(name, _failure(known, key, error))) from error

    return _along(self, keys, index)


def isel(self: Contents, indices: Mapping[Any, Any] | None = None, /, **named: Any) -> Any:
    """Select by coordinate along dimensions given by name, as `xarray.DataArray.isel` does.

    Each array selects along its own dimension. Other dimensions are not cut.

    Parameters
    ----------
    indices, **named : mapping, optional
        Integers, slices and arrays by the name or the number of the dimension.

    Returns
    -------
    Tensor
        Tensor, or a numpy scalar if every dimension has an integer.

    Raises
    ------
    IndexError
        See indexing.

    See Also
    --------
    Tensor.sel : Select by label, as `xarray.DataArray.sel` does.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> tensor = bl.pack_dense([[0, 2], [3, 0]], "CSR", dims=["user", "day"])
    >>> tensor.isel(day=0).to_dense().tolist()
    [0, 3]
    """

    def index(k: int, key: Any, name: str) -> int | slice | Array:
        try:
            return _index(key, self.shape[k])
        except (TypeError, ValueError) as error:
            raise IndexError(f"{name}: {error}") from error

    return _along(self, {**(indices or {}), **named}, index)


def _along(tensor: Contents, keys: Mapping[Any, Any], index: Callable[[int, Any, str], Any]) -> Any:
    """`_each` for keys by dimension. index: the index of a dimension, from its number, its key and its name."""
    at = {dimension_of(tensor, name): (key, str(name)) for name, key in keys.items()}
    if len(at) < len(keys):
        raise OptionError(Problem("sel", f"{list(keys)!r:.60} has a dimension twice; name each once"))
    if not at:
        return select(tensor, ...)
    for key, name in at.values():
        if getattr(key, "dims", ()) not in ((), (name,)):
            raise OptionError(Problem(name, f"does not take the dimensions {key.dims} of a DataArray; pass its values"))
    return _each(tensor, {k: index(k, key, name) for k, (key, name) in at.items()})


def _each(tensor: Any, indices: Mapping[int, Any]) -> Any:
    """The cells at an index for some dimensions, each of which selects alone."""
    for k in sorted(indices, reverse=True):  # from the last, as an integer removes its dimension
        whole = [slice(None)] * (tensor.ndim - 1)
        alone = isinstance(indices[k], int) and not whole
        tensor = select(tensor, indices[k]) if alone else view(tensor, [*whole[:k], indices[k], *whole[k:]])
    return tensor


def _index(key: Any, size: int) -> int | slice | Array:
    """The coordinates at an index along a dimension. Raises IndexError, TypeError, ValueError."""
    if not isinstance(key, slice):
        key = plain(key)
        if isinstance(key, np.ndarray):
            empty = not key.size and key.dtype.kind in "fO"  # an empty list has no type
            (coords,), _ = parse_key((key.astype(np.int64) if empty else key,), (size,))
            return coords  # type: ignore[no-any-return]
        if (key := as_integer(key)) is None:
            raise TypeError("expected an integer, a slice, a list of integers or a mask")
    chosen = range(size)[key]
    if isinstance(chosen, int):
        return chosen
    return slice(chosen.start, chosen.stop if chosen.stop >= 0 else None, chosen.step) if chosen else slice(0, 0)


def _failure(known: Any, key: Any, error: Exception) -> str:
    if isinstance(key, slice):
        what = f"no range from {_shown(key.start)} to {_shown(key.stop)}"
        remedy = "unless labels ascend or descend, each end must be a label of one coordinate, or of adjacent ones"
        return f"{what}: {remedy}" if isinstance(error, KeyError) else f"{what}: {error}"
    if isinstance(error, KeyError) and not isinstance(key, str) and np.ndim(key):
        key = error.args[0]
    return f"no label {_shown(key)}" + (_suggestion(known, key) if isinstance(error, KeyError) else f": {error}")


def _suggestion(known: Any, label: Any) -> str:
    """The labels that are spelled similarly, or the first and the last label."""
    if not len(known):
        return "; there are none"
    texts = isinstance(known, np.ndarray) and known.dtype.kind == "T" and isinstance(label, str)
    if texts and label.encode(errors="ignore").decode() == label:  # a typo changes one half only
        folded, half = np.strings.lower(known), len(label) // 2
        first, last = label[: len(label) - half].lower(), label[len(label) - half :].lower()
        alike = known[np.strings.startswith(folded, first) | np.strings.endswith(folded, last or first)]
        if near := difflib.get_close_matches(label, alike[:_MAX_COMPARED].tolist(), _MAX_SUGGESTED):
            return f"; did you mean {' or '.join(map(_shown, near))}?"
    return f"; there are {len(known):,}, from {_shown(known[0])} to {_shown(known[-1])}"


def _shown(label: Any) -> str:
    text = isinstance(label, np.datetime64)  # the item of which may be a number
    return f"{(str(label) if text else label.item() if isinstance(label, np.generic) else label)!r:.60}"
