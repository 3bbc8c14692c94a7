"""Tensors of several parts in one store: the header that lists the parts.

A part is an ordinary tensor in a group that never changes. Labels of a dimension are in the parts that were appended
along it, and in the first. `removed` lists groups whose entries are in another part now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..arrays import Array, LazyArray, Sliceable, chained
from ..containers.interface import begun_at
from ..errors import ArrayError, DescriptorError, Problem
from ..formats.descriptor import Descriptor
from ..formats.dtypes import DataType
from ..formats.extensions import PARTS
from ..limits import Limits
from ..tensors.boxes import Box, Whole
from ..tensors.inside import Metadata
from ..tensors.labels import KEY, Column, parse_labels
from ..tensors.late_imports import Origin
from ..tensors.tensor import Tensor, inside, tensor_of
from ..tensors.validation import checked_fill, pad_of
from ..tensors.views import Joined


@dataclass(frozen=True)
class Entry:
    """A part in a header. labels: how many there are, and their bytes, by dimension."""

    group: str
    origin: tuple[int, ...]
    shape: tuple[int, ...]
    count: int
    format: str
    labels: Mapping[str, tuple[int, int]]

    def json(self) -> dict[str, Any]:
        """The JSON object of the part."""
        return {
            "group": self.group,
            "origin": list(self.origin),
            "shape": list(self.shape),
            "number_of_stored_values": self.count,
            "format": self.format,
            "labels": {dim: list(sizes) for dim, sizes in self.labels.items()},
        }

    def problems(self, shape: Sequence[int]) -> Iterator[str]:
        """Yield each fault of the part of a tensor of this shape."""
        numbers = [*self.origin, *self.shape, self.count, *(x for sizes in self.labels.values() for x in sizes)]
        if not isinstance(self.group, str) or begun_at(self.group) is None:
            yield f"{self.group!r:.60} is not the name of a part"
        elif len(self.origin) != len(shape) or len(self.shape) != len(shape):
            yield f"expected {len(shape)} dimensions"
        elif not all(type(x) is int and 0 <= x < 2**63 for x in numbers):
            yield "expected integers within 0 … 2**63 - 1"
        elif any(a + b > size for a, b, size in zip(self.origin, self.shape, shape, strict=True)):
            yield f"is not within the shape {tuple(shape)}"


@dataclass(frozen=True)
class Parts:
    """The parts that a header lists. removed: the times at which groups were removed. fill_value: of the tensor."""

    entries: tuple[Entry, ...]
    removed: Mapping[str, float]
    fill_value: Any

    def header(self, descriptor: Descriptor, shape: tuple[int, ...]) -> dict[str, Any]:
        """The header of a tensor with these parts. descriptor: of the tensor before."""
        types = {name: DataType(x.dtype) for name, x in descriptor.data_types.items()}
        removed = [{"group": group, "time": time} for group, time in self.removed.items()]
        listed: dict[str, Any] = {"parts": [entry.json() for entry in self.entries], "removed": removed}
        if self.fill_value is not None:
            fill = np.asarray(self.fill_value, types["values"].dtype.newbyteorder("<"))
            listed |= {"fill_value": fill.tobytes().hex()}
        extra = {**descriptor.extra, PARTS: listed}
        count = sum(entry.count for entry in self.entries)
        new = replace(descriptor, shape=shape, number_of_stored_values=count, data_types=types, extra=extra)
        return new.header()


def parse_parts(descriptor: Descriptor) -> Parts:
    """The parts in a header. Raises DescriptorError for parts that overlap, or do not fit into the tensor."""
    listed: Any = descriptor.extra[PARTS]
    entries, problems = [], []
    try:
        for k, part in enumerate(listed["parts"]):
            labels = {dim: (count, size) for dim, (count, size) in part["labels"].items()}
            place = part["group"], tuple(part["origin"]), tuple(part["shape"])
            entries.append(Entry(*place, part["number_of_stored_values"], part["format"], labels))
            problems += [Problem(f"{PARTS}.parts[{k}]", x) for x in entries[-1].problems(descriptor.shape)]
        removed = {str(part["group"]): float(part["time"]) for part in listed["removed"]}
        fill, dtype = None, descriptor.data_types["values"].dtype
        if descriptor.fill:
            raw = np.frombuffer(bytes.fromhex(listed["fill_value"]), dtype.newbyteorder("<"))
            fill = checked_fill(raw.astype(dtype).reshape(()), dtype)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DescriptorError(Problem(PARTS, f"is no list of parts: {error!r:.80}")) from None
    if not problems and _overlap(entries):
        problems.append(Problem(PARTS, "parts overlap"))
    if not problems and sum(entry.count for entry in entries) != descriptor.number_of_stored_values:
        problems.append(Problem(PARTS, f"not {descriptor.number_of_stored_values} values in all, as stated"))
    if problems:
        raise DescriptorError(problems)
    return Parts(tuple(entries), removed, fill)


def _overlap(entries: Sequence[Entry]) -> bool:
    """Return True if two parts have a cell in common."""
    boxes = [(entry.origin, entry.shape) for entry in entries if 0 not in entry.shape]
    if len(boxes) < 2 or not boxes[0][0]:
        return len(boxes) > 1
    starts = np.array([origin for origin, _ in boxes])
    stops = starts + np.array([shape for _, shape in boxes])
    for k in range(starts.shape[1]):  # parts that are appended along one dimension
        order = np.argsort(starts[:, k])
        if (stops[order[:-1], k] <= starts[order[1:], k]).all():
            return False
    later = ((starts[k] < stops[k + 1 :]) & (starts[k + 1 :] < stops[k]) for k in range(len(starts) - 1))
    return any(both.all(axis=1).any() for both in later)


def joined_tensor(
    descriptor: Descriptor, opener: Callable[[str], Callable[[], Tensor]], limits: Limits, origin: Origin | None
) -> Tensor:
    """The tensor of all parts, none of which is opened yet. opener: of a function that opens a part, by its group.

    Raises DescriptorError.
    """
    parts, shape = parse_parts(descriptor), descriptor.shape
    dtype = descriptor.data_types["values"].dtype
    expected = str(dtype), str(parts.fill_value)
    boxes = [
        Box(x.origin, x.shape, x.format, x.count, Opening(opener(x.group), x.group, (str(x.shape), *expected)))
        for x in parts.entries
    ]
    whole = Whole(boxes, shape, descriptor.format, pad_of(parts.fill_value, dtype), limits, origin)
    labels = None
    if KEY in descriptor.extra:
        labels = parse_labels(descriptor.extra[KEY], shape, _Labels(parts.entries, whole).stored)
    metadata = Metadata(parts.fill_value, dict(descriptor.user), dict(descriptor.attributes), labels)
    tensor: Tensor = tensor_of(Joined(whole), metadata)
    inside(tensor).file = whole.close
    return tensor


@dataclass(frozen=True)
class Opening:
    """A function that opens a part, and compares it with the header. expected: its shape, data type and fill value."""

    open: Callable[[], Tensor]
    group: str
    expected: tuple[str, ...]

    def __call__(self) -> Tensor:
        tensor = self.open()
        there = str(tensor.shape), str(tensor.dtype), str(tensor.fill_value)  # NaN does not equal NaN
        if there != self.expected or tensor.structure is not None:
            what = f"expected a part with {', '.join(self.expected)}, got {', '.join(there)}; read it alone"
            raise ArrayError(Problem(self.group, what))
        return tensor


class _Labels:
    """The labels of a tensor in several parts."""

    def __init__(self, entries: Sequence[Entry], whole: Whole) -> None:
        self._entries, self._whole = entries, whole

    def stored(self, name: str, dtype: np.dtype[Any]) -> LazyArray:
        """An array of labels, by the name that it would have in one tree."""
        _, dim, *offsets = name.split("_")
        pieces: list[tuple[int, Callable[[], Sliceable]]] = []
        bytes_before = 0
        for number, (count, size) in self._along(dim):
            if offsets:
                first = not pieces
                pieces.append((count + first, partial(self._offsets, number, int(dim), bytes_before, first)))
                bytes_before += size
            else:
                pieces.append((size, partial(self._items, number, int(dim))))
        return chained(pieces, dtype)

    def _along(self, dim: str) -> Iterator[tuple[int, tuple[int, int]]]:
        """The parts with the labels of a dimension, in order, with their numbers of labels and of items."""
        found: dict[int, tuple[int, tuple[int, int]]] = {}
        for number, entry in enumerate(self._entries):
            sizes, origin = entry.labels.get(dim), entry.origin[int(dim)]
            if sizes is not None and (origin not in found or found[origin][1] == (0, 0)):  # of a part without cells
                found[origin] = number, sizes
        return (found[origin] for origin in sorted(found))

    def _column(self, number: int, dim: int) -> Column:
        labels = inside(self._whole.tensor(number)).metadata.labels
        if labels is None or labels.dims[dim] not in labels.columns:
            raise ArrayError(Problem(self._entries[number].group, f"has no labels of dimension {dim}, as stated"))
        return labels.columns[labels.dims[dim]]

    def _items(self, number: int, dim: int) -> Sliceable:
        return self._column(number, dim).items

    def _offsets(self, number: int, dim: int, before: int, first: bool) -> Array:
        offsets = self._column(number, dim).offsets
        assert offsets is not None
        return offsets[0 if first else 1 :] + before


def entry_of(tensor: Tensor, group: str, origin: Sequence[int]) -> Entry:
    """A part in a header, for a tensor in memory or in a file."""
    labels = inside(tensor).metadata.labels
    columns = [] if labels is None else [(str(k), labels.columns.get(dim)) for k, dim in enumerate(labels.dims)]
    sizes = {k: (len(column), len(column.items)) for k, column in columns if column is not None}
    count = tensor.number_of_stored_values
    return Entry(group, tuple(origin), tensor.shape, count, tensor.notation, sizes)
