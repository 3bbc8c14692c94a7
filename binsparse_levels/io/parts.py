"""Tensors of several parts in one store: the header that lists the parts.

A part is an ordinary tensor in a group that never changes. Labels of a dimension are in the parts that were appended
along it, and in the first. `removed` lists groups whose entries are in another part now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

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
from ..tensors.labels import KEY, parse_labels
from ..tensors.late_imports import Origin
from ..tensors.tensor import Tensor, inside, tensor_of
from ..tensors.validation import checked_fill, pad_of
from ..tensors.views import Joined

# Returns a function that opens the part in a group, and compares it with the shape, type, fill value and count as text.
Opener: TypeAlias = Callable[[str, tuple[str, ...]], Callable[[], Tensor]]


class Parts(NamedTuple):
    """The parts that a header lists. removed: the times at which groups were removed. fill_value: of the tensor."""

    boxes: tuple[Box, ...]
    removed: Mapping[str, float]
    fill_value: Any

    def header(self, descriptor: Descriptor, shape: tuple[int, ...]) -> dict[str, Any]:
        """The header of a tensor with these parts. descriptor: of the tensor before."""
        types = {name: DataType(x.dtype) for name, x in descriptor.data_types.items()}
        removed = [{"group": group, "time": time} for group, time in self.removed.items()]
        listed: dict[str, Any] = {"parts": list(map(_json, self.boxes)), "removed": removed}
        if self.fill_value is not None:
            fill = np.asarray(self.fill_value, types["values"].dtype.newbyteorder("<"))
            listed |= {"fill_value": fill.tobytes().hex()}
        extra = {**descriptor.extra, PARTS: listed}
        count = sum(box.count or 0 for box in self.boxes)
        new = replace(descriptor, shape=shape, number_of_stored_values=count, data_types=types, extra=extra)
        return new.header()


def _json(box: Box) -> dict[str, Any]:
    """The JSON object of a part."""
    place = {"group": box.group, "origin": list(box.origin), "shape": list(box.shape)}
    labels = {dim: list(sizes) for dim, sizes in box.labels.items()}
    return {**place, "number_of_stored_values": box.count, "format": box.notation, "labels": labels}


def parse_parts(descriptor: Descriptor, opener: Opener) -> Parts:
    """The parts in a header. Raises DescriptorError for parts that overlap, or do not fit into the tensor."""
    listed: Any = descriptor.extra[PARTS]
    boxes, problems, fill, dtype = [], list[Problem](), None, descriptor.data_types["values"].dtype
    try:
        if descriptor.fill:
            raw = np.frombuffer(bytes.fromhex(listed["fill_value"]), dtype.newbyteorder("<"))
            fill = checked_fill(raw.astype(dtype).reshape(()), dtype)
        for part in listed["parts"]:
            group, shape = part["group"], tuple(part["shape"])
            labels = {dim: (number, size) for dim, (number, size) in part["labels"].items()}
            count, expected = part["number_of_stored_values"], (shape, dtype, fill, part["number_of_stored_values"])
            place = tuple(part["origin"]), shape, str(part["format"]), count
            boxes.append(Box(*place, opener(group, tuple(map(str, expected))), group, labels))
        removed = {str(part["group"]): float(part["time"]) for part in listed["removed"]}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DescriptorError(Problem(PARTS, f"is no list of parts: {error!r:.80}")) from None
    for k, box in enumerate(boxes):
        problems += [Problem(f"{PARTS}.parts[{k}]", x) for x in _problems(box, descriptor.shape)]
    if descriptor.structure is not None:
        problems.append(Problem("structure", "a tensor with parts has none; store both triangles"))
    if len({str(box.group) for box in boxes}) < len(boxes):
        problems.append(Problem(PARTS, "a group occurs twice"))
    if not problems and _overlap(boxes):
        problems.append(Problem(PARTS, "parts overlap"))
    if not problems and sum(box.count or 0 for box in boxes) != descriptor.number_of_stored_values:
        problems.append(Problem(PARTS, f"not {descriptor.number_of_stored_values} values in all, as stated"))
    if problems:
        raise DescriptorError(problems)
    return Parts(tuple(boxes), removed, fill)


def _problems(box: Box, shape: Sequence[int]) -> Iterator[str]:
    """Yield each fault of a part of a tensor of this shape."""
    numbers = [*box.origin, *box.shape, box.count, *(x for sizes in box.labels.values() for x in sizes)]
    if not isinstance(box.group, str) or begun_at(box.group) is None:
        yield f"{box.group!r:.60} is not the name of a part"
    elif len(box.origin) != len(shape) or len(box.shape) != len(shape):
        yield f"expected {len(shape)} dimensions"
    elif not all(type(x) is int and 0 <= x < 2**63 for x in numbers):
        yield "expected integers within 0 … 2**63 - 1"
    elif any(a + b > size for a, b, size in zip(box.origin, box.shape, shape, strict=True)):
        yield f"is not within the shape {tuple(shape)}"


def _overlap(boxes: Sequence[Box]) -> bool:
    """Return True if two parts have a cell in common."""
    boxes = [box for box in boxes if 0 not in box.shape]
    if len(boxes) < 2 or not boxes[0].shape:
        return len(boxes) > 1
    starts = np.array([box.origin for box in boxes])
    stops = starts + np.array([box.shape for box in boxes])
    for k in range(starts.shape[1]):  # parts that are appended along one dimension
        order = np.argsort(starts[:, k])
        if (stops[order[:-1], k] <= starts[order[1:], k]).all():
            return False
    later = ((starts[k] < stops[k + 1 :]) & (starts[k + 1 :] < stops[k]) for k in range(len(starts) - 1))
    return any(both.all(axis=1).any() for both in later)


def joined_tensor(descriptor: Descriptor, opener: Opener, limits: Limits, origin: Origin | None) -> Tensor:
    """The tensor of all parts, none of which is opened yet. Raises DescriptorError."""
    parts, shape = parse_parts(descriptor, opener), descriptor.shape
    pad = pad_of(parts.fill_value, descriptor.data_types["values"].dtype)
    whole, labels = Whole(parts.boxes, shape, descriptor.format, pad, limits, origin), None
    if KEY in descriptor.extra:
        labels = parse_labels(descriptor.extra[KEY], shape, partial(_stored_labels, whole))
    metadata = Metadata(parts.fill_value, dict(descriptor.user), dict(descriptor.attributes), labels)
    tensor: Tensor = tensor_of(Joined(whole), metadata)
    inside(tensor).file = whole.close
    return tensor


def _stored_labels(whole: Whole, name: str, dtype: np.dtype[Any]) -> LazyArray:
    """An array of labels, by the name that it would have in one tree."""
    _, dim, *offsets = name.split("_")
    numbers: dict[int, int] = {}  # of the parts with the labels from a coordinate on
    for number, box in enumerate(whole.boxes):
        origin = box.origin[int(dim)]
        empty = origin in numbers and whole.boxes[numbers[origin]].labels[dim] == (0, 0)  # a part without cells
        if dim in box.labels and (empty or origin not in numbers):
            numbers[origin] = number
    pieces: list[tuple[int, Callable[[], Sliceable]]] = []
    before = 0
    for _, number in sorted(numbers.items()):
        count, size = whole.boxes[number].labels[dim]
        first = not pieces
        length = count + first if offsets else size
        pieces.append((length, partial(_labels_of_part, whole, number, dim, before if offsets else None, first)))
        before += size
    return chained(pieces, dtype)


def _labels_of_part(whole: Whole, number: int, dim: str, before: int | None, first: bool) -> Sliceable:
    """The items of labels of a part, or their offsets after a number of items `before`."""
    box, labels = whole.boxes[number], inside(whole.tensor(number)).metadata.labels
    column = None if labels is None else labels.columns.get(labels.dims[int(dim)])
    if column is None or (len(column), len(column.items)) != box.labels[dim]:
        raise ArrayError(Problem(box.group, f"has other labels of dimension {dim} than the header states"))
    if before is None or column.offsets is None:
        return column.items
    offsets: Array = column.offsets[0 if first else 1 :] + before
    return offsets


def part_of(tensor: Tensor, group: str, origin: Sequence[int]) -> Box:
    """A part in a header, for a tensor in memory or in a file."""
    labels = inside(tensor).metadata.labels
    columns = [] if labels is None else [(str(k), labels.columns.get(dim)) for k, dim in enumerate(labels.dims)]
    sizes = {k: (len(column), len(column.items)) for k, column in columns if column is not None}
    place = tuple(origin), tensor.shape, tensor.notation, tensor.number_of_stored_values
    return Box(*place, lambda: tensor, group, sizes)
