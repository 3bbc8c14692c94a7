"""Check and normalize arguments: formats and shapes, coordinates, values, fill values, JSON, arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import repeat_one
from ..engine.tree import Tree, count_positions, same
from ..errors import ArrayError, DescriptorError, FormatError, OptionError, Problem, raise_if
from ..formats.descriptor import NAMESPACE, array_classes
from ..formats.dtypes import is_masked_array, sound_booleans
from ..formats.format import Format, FormatLike, parse_format
from ..formats.json import RESERVED, load_json
from ..formats.shapes import checked_shape, range_problems
from ..formats.structure import STRUCTURES
from ..levels.base import Array, ArraySpec, wrong_type
from ..limits import Limits, as_integer


def checked_format(format: FormatLike, shape: int | Sequence[int], limits: Limits) -> tuple[Format, tuple[int, ...]]:
    """The format and the sizes of the dimensions. Raises FormatError if their ranks differ, LimitError."""
    sizes = checked_sizes(shape)
    return fitting_format(format, sizes, limits), sizes


def fitting_format(format: FormatLike, sizes: tuple[int, ...], limits: Limits, *, mapped: bool = False) -> Format:
    """The format of a tensor of these sizes. mapped: they are the sizes of the stored tensor of an index map.

    Raises FormatError if their ranks differ, LimitError.
    """
    limits.hold("rank", len(sizes), "shape", "the number of dimensions")
    parsed = parse_format(format, len(sizes))
    if parsed.rank != len(sizes):
        what = "the stored shape of the map is" if mapped else "the shape"
        remedy = "call without_map() of the tensor first, or pass map=" if mapped else "change one"
        raise FormatError(Problem("format", f"{parsed} has {parsed.rank} dimensions, {what} {sizes}; {remedy}"))
    return parsed


def pad_of(fill: Any, dtype: np.dtype[Any]) -> Any:
    """The value of cells that are not stored: the fill value, or zero if it is None."""
    return np.zeros((), dtype)[()] if fill is None else fill


def differ(values: Array, pad: Any) -> Array:
    """A mask of the values that differ from the padding. NaN equals NaN."""
    with np.errstate(invalid="ignore"):
        return values != pad if pad == pad else values == values  # type: ignore[no-any-return]


def checked_sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    """The sizes of the dimensions; a number is the size of one dimension. Raises FormatError, TypeError."""
    several = type(shape) is tuple or (as_integer(shape) is None and isinstance(shape, Sequence | np.ndarray))
    return checked_shape(shape if several else (shape,))


def checked_type(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """A numpy dtype. Raises OptionError."""
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError):
        raise OptionError(Problem("dtype", f"{dtype!r:.40} is not a numpy dtype; pass one like 'float32'")) from None


def checked_dimension(dimension: int, ndim: int) -> int:
    """A dimension, counted from the end where it is negative. Raises OptionError, IndexError."""
    number = as_integer(dimension)
    if number is None:
        raise OptionError(f"a dimension is an integer, got {dimension!r:.40}")
    if not -ndim <= number < ndim:
        raise IndexError(f"there is no dimension {number} of {ndim}; count from 0, or from -1 backwards")
    return number % ndim


def checked_values(values: npt.ArrayLike) -> Array:
    """Values as an array or a scalar, of a type that tensors support. Raises ArrayError."""
    return _as_values(checked_array(values, "values"))


def checked_entries(coords: Any, values: npt.ArrayLike, ndim: int) -> tuple[list[Array], Array]:
    """Coordinates by dimension, and values as an array or a scalar. Masked values are dropped. Raises ArrayError."""
    array, masked = split_mask(values, "values")
    if masked is not None and not array.ndim:
        raise _masked_error(masked, "values")
    stored = _as_values(array)
    columns = checked_coords(coords, ndim, stored)
    return (columns, stored) if masked is None else ([x[~masked] for x in columns], stored[~masked])


def _as_values(array: Array) -> Array:
    if array.ndim > 1:
        raise ArrayError(Problem("values", f"expected one dimension or a scalar, got shape {array.shape}"))
    check_value_type(array.dtype)
    return sound_booleans(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")))


def checked_array(items: npt.ArrayLike, path: str) -> Array:
    """An array. Raises ArrayError if numpy cannot make one, and for masked items."""
    array, masked = split_mask(items, path)
    if masked is not None:
        raise _masked_error(masked, path)
    return array


def split_mask(items: npt.ArrayLike, path: str) -> tuple[Array, Array | None]:
    """An array and its mask, None if no item is masked. Raises ArrayError if numpy cannot make an array."""
    if isinstance(items, list | tuple) and _contains_mask(items):
        raise ArrayError(Problem(path, "numpy drops the masks of masked items in a list; pass one masked array"))
    try:
        array = np.asarray(with_memory(items))
    except ValueError as error:
        raise ArrayError(Problem(path, f"numpy cannot make an array of it: {error}; pass an array")) from None
    if not is_masked_array(items):
        return array, None
    mask = np.ma.getmaskarray(items)
    flags = np.ascontiguousarray(mask).view(np.uint8).reshape(*mask.shape, mask.dtype.itemsize)  # one per field
    masked: Array = flags.max(axis=-1) != 0
    return array, masked if masked.any() else None


def with_memory(items: Any) -> Any:
    """The object, or an array that shares its memory if it supports DLPack but not `__array__`."""
    if not hasattr(items, "__dlpack__") or hasattr(items, "__array__"):
        return items
    try:
        return np.from_dlpack(items)
    except (RuntimeError, BufferError, TypeError, ValueError) as error:
        what = f"numpy.from_dlpack does not accept {type(items).__name__}: {error}; copy it to CPU memory"
        raise ArrayError(Problem("", what)) from None


def _contains_mask(items: Any) -> bool:
    if isinstance(items, list | tuple):
        return any(map(_contains_mask, items))
    return is_masked_array(items)


def _masked_error(masked: Array, path: str) -> ArrayError:
    count = np.count_nonzero(masked)
    what = f"{count} item{'s are' if count > 1 else ' is'} masked; drop them, or replace them with filled()"
    return ArrayError(Problem(path, what))


def check_value_type(dtype: np.dtype[Any]) -> None:
    """Raise ArrayError for types that tensors do not support: objects, strings, and types of size zero."""
    no_unit = dtype.kind == "M" and np.datetime_data(dtype)[0] == "generic"
    if dtype.hasobject or dtype.kind in "SU" or not dtype.itemsize or no_unit:
        what = f"expected numbers or another type of fixed size except strings, got {dtype}; store codes instead"
        raise ArrayError(Problem("values", what))


def checked_json(attributes: Mapping[str, Any] | None, limits: Limits) -> dict[str, Any]:
    """A copy of the attributes as a container returns them. Raises OptionError, DescriptorError, LimitError."""
    if attributes is None:
        return {}
    if not isinstance(attributes, Mapping) or not all(isinstance(key, str) for key in attributes):
        raise OptionError(f"attributes are a mapping with string keys, got {attributes!r:.60}")
    if NAMESPACE in attributes:
        raise DescriptorError(Problem(f"attributes.{NAMESPACE}", "reserved for the descriptor; choose another name"))
    if any(key.startswith(RESERVED) for key in attributes):
        what = f"names that begin with {RESERVED} are reserved; choose others"
        raise DescriptorError(Problem("attributes", what))
    try:
        text = json.dumps(dict(attributes), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        kind = OptionError if isinstance(error, TypeError) else DescriptorError
        raise kind(Problem("attributes", f"not JSON: {error}; pass plain JSON data")) from None
    loaded: dict[str, Any] = load_json(text, limits)
    return loaded


def checked_coords(coords: Any, ndim: int, values: Array) -> list[Array]:
    """An array of integers for each dimension, of the length of the values. Raises ArrayError."""
    coords = with_memory(coords)
    shape = getattr(coords, "shape", None)
    if shape is not None and len(shape) == 2 and shape[0] != ndim == shape[1]:
        what = f"expected a row for each of {ndim} dimensions, got shape {shape}; pass coords.T"
        raise ArrayError(Problem("coords", what))
    columns = [checked_array(x, f"coords[{k}]") for k, x in enumerate(coords)]
    if len(columns) != ndim:
        raise ArrayError(Problem("coords", f"expected an array for each of {ndim} dimensions, got {len(columns)}"))
    count = len(columns[0]) if columns and columns[0].ndim == 1 else values.size
    problems = []
    for k, x in enumerate(columns):
        if x.ndim != 1:
            problems.append(Problem(f"coords[{k}]", f"expected one dimension, got shape {x.shape}"))
        elif len(x) != count:
            problems.append(Problem(f"coords[{k}]", f"expected a length of {count} like coords[0], got {len(x)}"))
        elif x.dtype.kind not in "iu" and x.size:
            hint = "; from_table numbers labels" if x.dtype.kind in "OSUTMm" else ""
            problems.append(Problem(f"coords[{k}]", f"expected integers, got {x.dtype}{hint}"))
    if values.ndim and columns and len(values) != count:
        problems.append(Problem("values", f"expected a length of {count} like the coordinates, got {len(values)}"))
    raise_if(ArrayError, problems)
    return [x if x.dtype.kind in "iu" else x.astype(np.int64) for x in columns]


def checked_places(coords: Any, shape: Sequence[int]) -> list[Array]:
    """An array of integers for each dimension, of one length and in range. Raises ArrayError, IndexError."""
    columns = checked_coords(coords, len(shape), np.empty(()))
    for k, (x, size) in enumerate(zip(columns, shape, strict=True)):
        for problem in range_problems(x, k, size):
            raise IndexError(str(problem))
    return columns


def checked_fill(fill_value: Any, dtype: np.dtype[Any]) -> Any:
    """The fill value as a scalar of the type. Raises ArrayError if the cast would change it."""
    if fill_value is None:
        return None
    return (_integer_as if type(fill_value) is int else _cast_fill)(fill_value, dtype)


def _cast_fill(fill_value: Any, dtype: np.dtype[Any]) -> Any:
    scalar = sound_booleans(checked_array(fill_value, "fill_value"))
    if scalar.ndim:
        raise ArrayError(Problem("fill_value", f"expected a scalar, got shape {scalar.shape}"))
    exact = scalar if scalar.dtype.kind != "c" or dtype.kind == "c" else scalar.real
    try:
        with np.errstate(all="ignore"):
            cast = exact.astype(dtype)[()]
        is_same = same(cast, scalar[()])
    except (TypeError, ValueError, OverflowError):
        raise ArrayError(
            Problem("fill_value", f"{fill_value!r} is not of type {dtype}; pass a value of this type")
        ) from None
    # A cast to a floating-point type may round, but must not parse a string or make a finite number infinite.
    rounded = dtype.kind in "fc" and exact is scalar and scalar.dtype.kind in "biufc"
    if not (rounded and np.isfinite(cast) == np.isfinite(exact)) and not is_same:
        what = f"{fill_value!r} is not of type {dtype}: it would become {cast!r}; pass a value of this type"
        raise ArrayError(Problem("fill_value", what))
    return cast


_integer_as = lru_cache(256)(_cast_fill)  # most fill values are 0


def mirror_problems(structure: str, format: Format, pad: Any) -> list[Problem]:
    """Faults of a padded format: its padding must have the same value in both triangles."""
    mirrored = STRUCTURES[structure].mirrored(pad)
    if not format.padded or same(mirrored, pad):
        return []
    what = f"{pad} would be {mirrored} in the other triangle of {structure}; choose a format without padding"
    return [Problem("fill_value", what)]


# Arrays of the caller


def tree_of(format: Format, shape: Sequence[int], arrays: Mapping[str, npt.ArrayLike], values: npt.ArrayLike) -> Tree:
    """The tree of the caller's arrays. A scalar as `values` is the value of all entries.

    Only lengths and types are checked. Raises ArrayError.
    """
    dims = tuple(shape[k] for k in format.order)
    classes = array_classes(format)
    raise_if(
        ArrayError,
        [Problem(str(name), f"the format {format} has no such array") for name in arrays if name not in classes],
    )
    named = {name: checked_array(arrays[name], name) for name in classes if name in arrays}
    for name, x in named.items():
        if classes[name] == "bool" and wrong_type(ArraySpec(name, "bool"), x.dtype) is None:
            named[name] = x.view(bool)
    checked = checked_values(values)
    iso = checked.ndim == 0
    count = count_positions(format.levels, dims, named, None if iso else len(checked))
    return Tree(format.levels, dims, named, repeat_one(checked.reshape(1), count) if iso else checked, iso)


def writable(array: Array) -> bool:
    """Return True if the memory of an array may be writable, directly or through a base."""
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    return base is not None and not isinstance(base, bytes)
