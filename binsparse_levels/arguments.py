"""What callers give, checked and brought into one form: formats and shapes, coordinates, values, fill values, JSON."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .containers.base import load_json
from .containers.seal import RESERVED
from .descriptor import NAMESPACE
from .errors import ArrayError, DescriptorError, FormatError, Problem, raise_if
from .formats import Format, FormatLike, parse_format
from .limits import INT64_MAX, Limits
from .structure import STRUCTURES
from .tree import same

Array: TypeAlias = npt.NDArray[Any]


def checked_format(format: FormatLike, shape: int | Sequence[int], limits: Limits) -> tuple[Format, tuple[int, ...]]:
    parsed = parse_format(format)
    try:
        sizes = tuple(
            operator.index(size) for size in (shape if isinstance(shape, Sequence | np.ndarray) else (shape,))
        )
    except TypeError:
        raise TypeError(f"a shape is a sequence of integers, got {shape!r}") from None
    limits.hold("rank", len(sizes), "shape", "the number of dimensions")
    bad = [
        Problem(f"shape[{k}]", f"{size} is not in 0 … 2**63 - 1")
        for k, size in enumerate(sizes)
        if not 0 <= size <= INT64_MAX
    ]
    raise_if(FormatError, bad)
    if parsed.rank != len(sizes):
        raise FormatError(Problem("format", f"{parsed} has {parsed.rank} dimensions, but the shape is {sizes}"))
    return parsed, sizes


def checked_values(values: npt.ArrayLike) -> Array:
    array = checked_array(values, "values")
    if array.ndim > 1:
        raise ArrayError(Problem("values", f"expected one dimension or a scalar, got shape {array.shape}"))
    check_fixed_size(array.dtype)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def checked_array(given: npt.ArrayLike, path: str) -> Array:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise ArrayError(Problem(path, f"no array: {error}")) from None


def check_fixed_size(dtype: np.dtype[Any]) -> None:
    if dtype.hasobject or not dtype.itemsize:
        raise ArrayError(Problem("values", f"expected a type of fixed size, got {dtype}"))


def checked_json(attributes: Mapping[str, Any] | None, limits: Limits) -> dict[str, Any]:
    """A copy of the attributes as a container will give them back. Raises TypeError, DescriptorError, LimitError."""
    if attributes is None:
        return {}
    if not isinstance(attributes, Mapping) or not all(isinstance(key, str) for key in attributes):
        raise TypeError(f"attributes are a mapping from names, got {attributes!r:.60}")
    if NAMESPACE in attributes:
        raise DescriptorError(Problem(f"attributes.{NAMESPACE}", "this name is the descriptor's"))
    if any(key.startswith(RESERVED) for key in attributes):
        raise DescriptorError(Problem("attributes", f"names that begin with {RESERVED} are the package's"))
    try:
        text = json.dumps(dict(attributes), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise DescriptorError(Problem("attributes", f"no JSON: {error}")) from None
    loaded: dict[str, Any] = load_json(text, limits)
    return loaded


def checked_coords(coords: Any, ndim: int, values: Array) -> list[Array]:
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
            problems.append(Problem(f"coords[{k}]", f"expected integers, got {x.dtype}"))
    if values.ndim and columns and len(values) != count:
        problems.append(Problem("values", f"expected a length of {count} like the coordinates, got {len(values)}"))
    raise_if(ArrayError, problems)
    return [x if x.dtype.kind in "iu" else x.astype(np.int64) for x in columns]


def checked_fill(fill_value: Any, dtype: np.dtype[Any]) -> Any:
    """The fill value as a scalar of that type; raises ArrayError where it would become another value."""
    if fill_value is None:
        return None
    given = np.asarray(fill_value)
    if given.ndim:
        raise ArrayError(Problem("fill_value", f"expected a scalar, got shape {given.shape}"))
    exact = given if given.dtype.kind != "c" or dtype.kind == "c" else given.real
    try:
        with np.errstate(all="ignore"):
            cast = exact.astype(dtype)[()]
    except (TypeError, ValueError, OverflowError):
        raise ArrayError(Problem("fill_value", f"{fill_value!r} is no {dtype}")) from None
    # A floating-point type may round a number, but makes none of a text, and no infinity of a finite one.
    rounded = dtype.kind in "fc" and exact is given and given.dtype.kind in "biufc"
    if not (rounded and np.isfinite(cast) == np.isfinite(exact)) and not same(cast, given[()]):
        raise ArrayError(Problem("fill_value", f"{fill_value!r} is no {dtype}: it would become {cast!r}"))
    return cast


def mirror_problems(structure: str, format: Format, pad: Any) -> list[Problem]:
    """Cells that a padded level fills have to be worth the same in both triangles."""
    mirrored = STRUCTURES[structure].mirrored(pad)
    if not format.padded or same(mirrored, pad):
        return []
    return [
        Problem("fill_value", f"{pad} would be {mirrored} in the other triangle of {structure}, stored as {format}")
    ]
