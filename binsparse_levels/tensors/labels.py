"""Names of the dimensions of a tensor, and labels of their coordinates, stored with its arrays in any container.

The labels of a dimension are one array by coordinate, such as `labels_1`. Text is stored as UTF-8 bytes, and the array
`labels_1_offsets` contains the start of each label. The JSON next to the descriptor contains the names and the types.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..arrays import Array, LazyArray, Sliceable
from ..errors import ArrayError, DescriptorError, Problem, raise_if
from ..formats.dtypes import INTEGERS
from ..formats.json import RESERVED
from ..thresholds import THRESHOLDS
from .lookup import Lookup, index_of, pandas_module
from .validation import checked_array

KEY = f"{RESERVED}labels"
TEXT = "text"
_PLAIN = {*INTEGERS, "float32", "float64"}
DEFAULT_NAME = re.compile(r"dim_\d+")  # of a dimension without a name
TIMES = re.compile(r"datetime64\[(D|s|ms|us|ns)(?:, ([\w/+:-]{1,40}))?\]")  # unit, then zone


@dataclass(frozen=True, eq=False)
class Column:
    """The labels of one dimension by coordinate. If there are fewer than its size, the last coordinates have none.

    type: `text`, `bool`, a numpy dtype, or a datetime64 with a zone. items: the bytes of all texts, or the labels as
    stored. offsets: the start of each text, and the end of the last. at: the coordinates that a view selects.
    """

    type: str
    items: Sliceable
    offsets: Sliceable | None = None
    at: range | Array | None = None

    def __len__(self) -> int:
        """The number of labels; for a view, that of the whole dimension."""
        return len(self.items) if self.offsets is None else len(self.offsets) - 1

    def picked(self, index: slice | Array, size: int) -> Column:
        """The labels at these coordinates of a dimension of this size. Nothing is read."""
        at: Any = range(size) if self.at is None else self.at
        if isinstance(index, slice) and range(len(at))[index] == range(len(at)):
            return self  # with its look-up
        picks = isinstance(index, np.ndarray) and isinstance(at, range)
        return replace(self, at=at.start + at.step * index if picks else at[index])

    def part(self, start: int, stop: int) -> Column:
        """The labels start … stop - 1 of the whole, in memory, checked. Raises ArrayError."""
        if self.offsets is None:
            return Column(self.type, self.items[start:stop])
        offsets, size = self.offsets[start : stop + 1], len(self.items)
        first, last = int(offsets[0]), int(offsets[-1])
        ends = (start > 0 or first == 0) and (stop < len(self) or last == size)
        if not ends or not 0 <= first <= last <= size or (offsets[1:] < offsets[:-1]).any():
            raise ArrayError(Problem("labels", f"the offsets do not ascend from 0 to {size}"))
        text, offsets = self.items[first:last], offsets - first if first else offsets
        raise_if(ArrayError, list(_faults(text, offsets)))
        return Column(self.type, text, offsets)

    def loaded(self) -> Column:
        """The same labels in memory, checked. Raises ArrayError."""
        whole = self.part(0, len(self))
        if self.at is None:
            return whole
        items, offsets = whole.items[:], None if whole.offsets is None else whole.offsets[:]
        at = np.asarray(self.at, np.int64)
        at, _ = np.split(at, [np.count_nonzero(at < len(self))])
        if (at >= len(self)).any():
            raise ArrayError(Problem("labels", "coordinates without labels come before others; select without them"))
        if offsets is None:
            return Column(self.type, items[at])
        lengths = np.diff(offsets)[at]
        ends = np.append(0, np.cumsum(lengths))
        text = items[np.arange(ends[-1]) + np.repeat(offsets[at] - ends[:-1], lengths)]
        return Column(self.type, text, ends)

    def array(self) -> Array:
        """The labels as a numpy array; text has numpy's StringDType, and times with a zone are in UTC."""
        loaded = self.loaded()
        if loaded.offsets is None:
            time = TIMES.fullmatch(self.type)
            return loaded.items[:].view(f"M8[{time[1]}]") if time else loaded.items[:].astype(self.type, copy=False)
        array = np.empty(len(loaded), np.dtypes.StringDType())
        for start in range(0, len(array), THRESHOLDS.checked_labels):  # few Python texts at a time
            ends = loaded.offsets[start : start + THRESHOLDS.checked_labels + 1].tolist()
            text, first = loaded.items[ends[0] : ends[-1]].tobytes(), ends[0]
            texts = [text[a - first : b - first].decode() for a, b in itertools.pairwise(ends)]
            array[start : start + len(texts)] = texts
        return array

    @property
    def zone(self) -> str | None:
        """The zone of times."""
        time = TIMES.fullmatch(self.type)
        return time[2] if time else None

    def index(self) -> Any:
        """The labels as a pandas.Index. Raises ArrayError, PackageMissingError."""
        return index_of(self.array(), self.zone)

    @functools.cached_property
    def lookup(self) -> Lookup:
        """The labels, read once, to find some."""
        loaded = self.loaded()
        array = loaded.array()
        if self.type == TEXT and not np.all(loaded.items[:]):  # numpy ignores what follows a null character
            array = array.astype(object)
        return Lookup(array, self.zone)


def _faults(text: Array, offsets: Array) -> Iterator[Problem]:
    starts = offsets[offsets < len(text)]
    if ((text[starts] & 0xC0) == 0x80).any():
        yield Problem("labels", "an offset is within a character")
        return
    try:
        text.tobytes().decode()
    except UnicodeDecodeError as error:
        yield Problem("labels", f"invalid UTF-8: {error.reason} at byte {error.start}")


@dataclass(frozen=True, eq=False)
class Labels:
    """dims: the names of the dimensions. columns: the labels of some, by name. values: the name of the values."""

    dims: tuple[str, ...]
    columns: Mapping[str, Column] = field(default_factory=dict)
    values: str = "value"

    def permuted(self, order: Sequence[int]) -> Labels:
        return replace(self, dims=tuple(self.dims[k] for k in order))

    def placed(self, places: Sequence[int], ndim: int) -> Labels:
        """The same for a tensor of `ndim` dimensions, where these dimensions are at `places`. Others have no name."""
        dims, columns = [f"dim_{k}" for k in range(ndim)], {}
        for k, name in zip(places, self.dims, strict=True):
            dims[k] = dims[k] if DEFAULT_NAME.fullmatch(name) else name
            if name in self.columns:
                columns[dims[k]] = self.columns[name]
        return Labels(tuple(dims), columns, self.values)

    def selected(self, indices: Sequence[Any], array_first: bool, shape: Sequence[int]) -> Labels:
        """The names and labels of a view. Precondition: the indices are of `parse_key`, with one array at most."""
        kept = [
            (name, index, size)
            for name, index, size in zip(self.dims, indices, shape, strict=True)
            if not isinstance(index, int)
        ]
        if array_first:  # the dimension of the array comes first, as in numpy
            kept.sort(key=lambda dimension: isinstance(dimension[1], slice))
        columns = {name: self.columns[name].picked(index, size) for name, index, size in kept if name in self.columns}
        return Labels(tuple(name for name, _, _ in kept), columns, self.values)

    @property
    def lazy(self) -> bool:
        """True if labels are in a file."""
        return any(isinstance(column.items, LazyArray) for column in self.columns.values())

    def check(self) -> None:
        """Check the labels in a file and their checksums. Raises ArrayError, ContainerError.

        See Also
        --------
        Tensor.equals : Return True if both have the same shape, entries and fill value.
        """
        for column in self.columns.values():
            if not isinstance(column.items, LazyArray):
                continue
            for array in (column.items, column.offsets):
                if isinstance(array, LazyArray):
                    array.verify()
            for start in range(0, max(len(column), 1), THRESHOLDS.checked_labels):
                column.part(start, start + THRESHOLDS.checked_labels)

    def loaded(self) -> Labels:
        """The same in memory, checked. Raises ArrayError."""
        return replace(self, columns={name: column.loaded() for name, column in self.columns.items()})

    def arrays(self) -> dict[str, Sliceable]:
        """The arrays by stored name."""
        arrays: dict[str, Sliceable] = {}
        for k, name in enumerate(self.dims):
            if (column := self.columns.get(name)) is not None:
                column = column if column.at is None else column.loaded()
                arrays[f"labels_{k}"] = column.items
                if column.offsets is not None:
                    arrays[f"labels_{k}_offsets"] = column.offsets
        return arrays

    def header(self) -> dict[str, Any]:
        """The JSON, under KEY."""
        types = [self.columns[name].type if name in self.columns else None for name in self.dims]
        return {"dims": list(self.dims), "values": self.values, "labels": types}


def column_of(labels: Any, name: str, size: int) -> Column:
    """The stored form of labels, an array of strings, numbers, booleans or times. Raises ArrayError."""
    array, zone = in_stored_unit(np.array(checked_array(labels, name))), None
    if array.shape != (size,):
        raise ArrayError(Problem(name, f"expected {size} labels, one of each coordinate, got shape {array.shape}"))
    if _has_zone(labels, array):
        array, zone = _in_utc(labels, array, name)
    type = TEXT if array.dtype.kind in "UTO" else array.dtype.name
    if type == TEXT:
        try:
            # Texts in the array have lost the null characters at their ends.
            texts = [text.encode() for text in (labels if isinstance(labels, list | tuple) else array.tolist())]
        except (AttributeError, UnicodeEncodeError):
            what = "expected strings, numbers, booleans or numpy.datetime64; pass labels of one type of these"
            raise ArrayError(Problem(name, what)) from None
        return Column(TEXT, np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)]))
    if not (type in _PLAIN or type == "bool" or TIMES.fullmatch(type)):
        raise ArrayError(Problem(name, f"labels cannot have the type {type}; cast them"))
    stored = array.astype(array.dtype.newbyteorder("=")).view(stored_type(type))
    return Column(type if zone is None else f"{type[:-1]}, {zone}]", stored)


def in_stored_unit(labels: Any) -> Any:
    """Times of numpy in a unit that can be stored, as pandas converts them: months as days, hours as seconds."""
    unit = np.datetime_data(labels.dtype)[0] if isinstance(labels, np.ndarray) and labels.dtype.kind == "M" else ""
    stored = {"Y": "M8[D]", "M": "M8[D]", "W": "M8[D]", "h": "M8[s]", "m": "M8[s]"}.get(unit)
    return labels if stored is None else labels.astype(stored)


def _has_zone(labels: Any, array: Array) -> bool:
    """True for times with a zone, of pandas, Arrow, polars or Python."""
    type = getattr(labels, "dtype", getattr(labels, "type", None))
    objects = array if array.dtype.kind == "O" else ()
    zones = [(type, "tz"), (type, "time_zone"), *((x, "tzinfo") for x in objects)]
    return any(getattr(x, name, None) is not None for x, name in zones)


def _in_utc(labels: Any, array: Array, name: str) -> tuple[Array, str]:
    """Times in UTC, and their zone. Raises ArrayError, PackageMissingError."""
    pandas = pandas_module()
    if array.dtype.kind == "M":  # numpy loses the zone of Arrow and polars
        labels = labels.to_pandas()
    try:
        index = pandas.DatetimeIndex(labels if isinstance(labels, pandas.Index | pandas.Series) else array)
    except (TypeError, ValueError) as error:
        raise ArrayError(Problem(name, f"pandas has no index of them: {error}; convert them to one zone")) from error
    offset = None if index.tz is None else index.tz.utcoffset(None)  # of a fixed zone
    zone = (str(index.tz) if offset is None else str(datetime.timezone(offset))).removeprefix("UTC") or "UTC"
    if index.tz is None or not TIMES.fullmatch(f"datetime64[s, {zone}]"):
        raise ArrayError(Problem(name, "the zone of its times has no name; convert them by pandas to a named zone"))
    return index.tz_convert(None).to_numpy(), zone


def same_labels(a: Column, b: Column) -> bool:
    """Return True if all labels are equal, as pandas compares them: NaN and NaT equal themselves, and 1 equals 1.0."""
    if a is b:
        return True
    if _family(a.type) != _family(b.type):
        return False
    if a.type != TEXT:
        return np.array_equal(a.array(), b.array(), equal_nan=True)
    mine, other = a.loaded(), b.loaded()
    assert mine.offsets is not None
    assert other.offsets is not None
    return np.array_equal(mine.offsets[:], other.offsets[:]) and np.array_equal(mine.items[:], other.items[:])


def _family(type: str) -> str:
    """The types whose labels may be equal: times with a zone are no times without one."""
    time = TIMES.fullmatch(type)
    return ("zone" if time[2] else "time") if time else type if type in (TEXT, "bool") else "number"


def stored_type(type: str) -> np.dtype[Any]:
    """The numpy dtype of the items of labels of a type. Raises DescriptorError for an unknown type."""
    if type in (TEXT, "bool"):
        return np.dtype(np.uint8)
    if TIMES.fullmatch(type):
        return np.dtype(np.int64)
    if type not in _PLAIN:
        raise DescriptorError(Problem(KEY, f"unknown type of labels {type!r:.40}"))
    return np.dtype(type)


def parse_labels(header: Any, shape: Sequence[int], stored: Any) -> Labels:
    """The labels that a header describes. stored: a function that returns an array by name and type.

    Raises DescriptorError, ArrayError.
    """
    described = header if isinstance(header, dict) else {}
    dims: Any = described.get("dims")
    types: Any = described.get("labels")
    values: Any = described.get("values")
    listed = isinstance(dims, list) and isinstance(types, list) and len(dims) == len(types) == len(shape)
    if not listed or not all(isinstance(name, str) for name in (*dims, values)) or len(set(dims)) != len(dims):
        raise DescriptorError(Problem(KEY, f"expected a name and a type for each of {len(shape)} dimensions"))
    columns = {}
    for k, (name, type, size) in enumerate(zip(dims, types, shape, strict=True)):
        if type is None:
            continue
        if not isinstance(type, str):
            raise DescriptorError(Problem(KEY, f"unknown type of labels {type!r:.40}"))
        offsets = stored(f"labels_{k}_offsets", np.dtype(np.int64)) if type == TEXT else None
        column = columns[name] = Column(type, stored(f"labels_{k}", stored_type(type)), offsets)
        if offsets is not None and not len(offsets):
            raise ArrayError(Problem(f"labels_{k}_offsets", "expected the end of the last label, got nothing"))
        if len(column) > size:
            raise ArrayError(Problem(f"labels_{k}", f"expected at most {size} labels, got {len(column)}"))
    return Labels(tuple(dims), columns, values)


def repeated(column: Column, known: Column | None = None) -> list[int]:
    """The coordinates whose label an earlier one has, or another column, which is not a view and is read in parts.

    A missing label (NaN or NaT) repeats none. Raises ArrayError.
    """
    labels, seen = column.array(), set()
    listed = labels.tolist()
    if known is not None and known.type == column.type:
        wanted = set(listed)
        for start in range(0, len(known), THRESHOLDS.checked_labels):
            seen |= wanted.intersection(known.part(start, start + THRESHOLDS.checked_labels).array().tolist())
    again = []
    for k in np.flatnonzero(labels == labels).tolist():
        if listed[k] in seen:
            again.append(k)
        seen.add(listed[k])
    return again
