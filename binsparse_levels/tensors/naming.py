"""Dimensions by name, and coordinates by label."""

from __future__ import annotations

import bisect
import datetime
import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from ..errors import ArrayError, LabelError, OptionError, Problem
from ..levels.positions import Array
from ..limits import as_integer
from .contents import Contents, column_of
from .contents import Dimension as Dimension
from .contents import dimension_of as dimension_of
from .labels import Column
from .selecting import select, view

_LIKENED = 2**14  # labels that are compared by their spelling
_SHOWN = 3  # labels in an error
_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)
_Side: TypeAlias = Literal["left", "right"]
_BISECT = {"left": bisect.bisect_left, "right": bisect.bisect_right}


def numbered(tensor: Contents, asked: Iterable[Any]) -> list[Any]:
    """Names of dimensions as numbers; what is no name stays. Raises IndexError."""
    return [dimension_of(tensor, x) if isinstance(x, str) else x for x in asked]


def sel(tensor: Contents, asked: Mapping[Any, Any]) -> Any:
    """`Tensor.sel`."""
    at = {dimension_of(tensor, key): (key, label) for key, label in asked.items()}
    if len(at) < len(asked):
        raise OptionError(Problem("sel", f"{list(asked)!r:.60} has a dimension twice; name each once"))
    if not at:
        return select(tensor, ...)
    for k in sorted(at, reverse=True):  # from the last, as an integer removes its dimension
        name, label = at[k]
        index = _index(column_of(tensor, k), tensor.shape[k], label, str(name))
        whole = [slice(None)] * (tensor.ndim - 1)
        alone = isinstance(index, int) and not whole
        tensor = select(tensor, index) if alone else view(tensor, [*whole[:k], index, *whole[k:]])
    return tensor


def _index(column: Column | None, size: int, label: Any, name: str) -> int | slice | Array:
    """The coordinates of a label, of a list of labels, or of a slice with both its ends."""
    if isinstance(label, slice):
        return _range(column, size, label, name)
    several = isinstance(label, list | tuple | np.ndarray) and np.ndim(label) > 0
    wanted = list(label) if several else [label]
    places = _places(column, size, wanted)
    for one, there in zip(wanted, places, strict=True):
        if not len(there):
            raise LabelError(Problem(name, f"no label {_told(one)}{_near(column, size, one)}"))
    if several:
        return np.concatenate([np.empty(0, np.int64), *places])
    return int(places[0][0]) if len(places[0]) == 1 else places[0]


def _places(column: Column | None, size: int, wanted: Sequence[Any]) -> list[Array]:
    """The coordinates that have each label."""
    if column is None:
        numbers = map(as_integer, wanted)
        return [np.array([] if x is None or not 0 <= x < size else [x], np.int64) for x in numbers]
    known = column.array()
    ascending = bool((known[:-1] <= known[1:]).all())
    order = np.arange(len(known)) if ascending else np.argsort(known, kind="stable")
    keys = [_as_label(x, known.dtype) for x in wanted]
    sides: tuple[_Side, _Side] = ("left", "right")
    ends = [(0, 0) if x is None else [_search(known, x, side, order) for side in sides] for x in keys]
    return [order[a:b] for a, b in ends]


def _search(known: Array, key: Any, side: _Side, order: Array) -> int:
    """`numpy.searchsorted`, which does not search among texts that are long."""
    if known.dtype.kind == "T":
        return _BISECT[side](order, key, key=known.__getitem__)
    return int(np.searchsorted(known, key, side, order))


def _range(column: Column | None, size: int, asked: slice, name: str) -> slice:
    """The coordinates from one label to another, both included; of a text for times, all of its period."""
    if asked.step is not None:
        raise OptionError(Problem(name, "a slice of labels has no step; slice the result"))
    known: Any = range(size) if column is None else column.array()  # coordinates without labels are their own
    dtype = np.dtype(np.int64) if column is None else known.dtype
    if column is not None and not (known[:-1] <= known[1:]).all():
        raise ArrayError(Problem(name, "its labels do not ascend, so that they have no slices; pass a list"))
    bounds = [0, len(known)]
    for k, label in enumerate((asked.start, asked.stop)):
        if label is None:
            continue
        bound = _bound(label, dtype, upper=bool(k))
        if bound is None:
            raise LabelError(Problem(name, f"{_told(label)} is not of the type of its labels, {dtype}"))
        key, side = bound
        bounds[k] = _BISECT[side](range(len(known)), key, key=known.__getitem__)
    return slice(bounds[0], max(bounds))


def _bound(label: Any, dtype: np.dtype[Any], *, upper: bool) -> tuple[Any, _Side] | None:
    """What labels are compared with at an end of a slice, and the side of its equals that is the end."""
    side: _Side = "right" if upper else "left"
    if dtype.kind == "M" and upper and isinstance(label, str) and (begin := _as_time(label)) is not None:
        label, side = begin + 1, "left"  # the period that a text names has ended there
    if (nearest := _nearest(label, dtype)) is None:
        return None
    item, order = nearest
    return item, side if not order else "left" if order > 0 else "right"


def _as_label(label: Any, dtype: np.dtype[Any]) -> Any:
    """A label as an item of a type; None where no item equals it."""
    nearest = _nearest(label, dtype)
    return None if nearest is None or nearest[1] else nearest[0]


def _nearest(label: Any, dtype: np.dtype[Any]) -> tuple[Any, int] | None:
    """An item of a type such that no other lies between it and a label; None for a label of another type.

    The number says whether the item is less (-1), equal (0) or greater (1).
    """
    if dtype.kind == "T":
        return (label, 0) if isinstance(label, str) else None
    if dtype.kind == "M":
        return None if (time := _as_time(label)) is None else _nearest_time(time, dtype)
    if not isinstance(label, _NUMBERS) or label != label:
        return None
    number: Any = label.item() if isinstance(label, np.generic) else label
    if dtype.kind != "f" or abs(number) != math.inf:
        least, greatest = _ends(dtype)
        item = dtype.type(min(max(number, least), greatest))
    else:
        item = dtype.type(number)
    return item, (item.item() > number) - (item.item() < number)


def _ends(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The least and the greatest finite number of a type."""
    if dtype.kind == "b":
        return 0, 1
    ends: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return (float(ends.min), float(ends.max)) if dtype.kind == "f" else (ends.min, ends.max)


def _nearest_time(time: Any, dtype: np.dtype[Any]) -> tuple[Any, int]:
    item = time.astype(dtype)
    if item.astype(time.dtype) == time:
        return item, 0
    if np.promote_types(time.dtype, dtype) != dtype:
        return item, -1  # the beginning of its day, of its second …
    later = time.astype(np.int64) > 0  # than all times of the type
    return np.int64(2**63 - 1 if later else 1 - 2**63).view(dtype), -1 if later else 1


def _as_time(label: Any) -> Any:
    """A text, a date or a time as numpy's, in UTC where it has a zone; None for anything else."""
    if hasattr(label, "to_datetime64"):  # pandas has nanoseconds
        label = label.to_datetime64()
    elif isinstance(label, datetime.datetime) and label.tzinfo is not None:
        label = label.astimezone(datetime.UTC).replace(tzinfo=None)
    try:
        time = np.datetime64(label)
    except (TypeError, ValueError):
        return None
    return time if time == time else None


def _near(column: Column | None, size: int, label: Any) -> str:
    """The labels that are spelled like it, or the first and the last."""
    known: Any = range(size) if column is None else column.array()
    if not len(known):
        return "; there are none"
    if column is not None and isinstance(label, str) and known.dtype.kind == "T":  # a slip leaves one half as it is
        folded, half = np.strings.lower(known), len(label) // 2
        first, last = label[: len(label) - half].lower(), label[len(label) - half :].lower()
        alike = known[np.strings.startswith(folded, first) | np.strings.endswith(folded, last or first)]
        if near := difflib.get_close_matches(label, alike[:_LIKENED].tolist(), _SHOWN):
            return f"; did you mean {' or '.join(map(_told, near))}?"
    return f"; there are {len(known):,}, from {_told(known[0])} to {_told(known[-1])}"


def _told(label: Any) -> str:
    return f"{(label.item() if isinstance(label, np.generic) else label)!r:.60}"
