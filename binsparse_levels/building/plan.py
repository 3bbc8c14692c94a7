"""The build plan, a frozen record that every step reads; its source; the number of entries that fit into memory."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from ..arrays import Array
from ..containers.base import DEFAULT_STORAGE, Storage
from ..containers.replacing import Overwrite
from ..engine.joining import by_arrays, levels_of_parts
from ..engine.tree import Duplicates, check_dense, index_dtype
from ..errors import FormatError, LimitError, OptionError, Problem, raise_if
from ..formats.format import Format, coordinates, in_order, parse_format
from ..formats.index_map import IndexMap, parse_map
from ..levels import Level, places
from ..levels.positions import cells
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from ..tensors.inside import Metadata
from ..tensors.labels import Labels
from ..tensors.late_imports import Origin
from ..tensors.tensor import Tensor
from ..tensors.validation import check_value_type, checked_fill, mirror_problems, pad_of
from ..thresholds import THRESHOLDS

LOADED_BYTES = 188 * 2**20  # of a process that has loaded all libraries and kernels of a build
_BUFFER_BYTES = 2**25 + 2**23  # pieces of arrays in transit, and chunks by which a filter is chosen
_MIN_ENTRIES = 2**14
_ENTRIES_PER_POSITION = 4  # a tree may have one empty position for this number of entries
_POSITION_BYTES = 64  # while a tree is written to a file
_JOIN_FACTOR = 1.5  # memory of an entry if trees are joined from their entries, relative to that in a step
_DENSE_BYTES = 2**28  # of dense levels whose sizes follow from the coordinates
_DENSE_BYTES_PER_ENTRY = 2**9
DEFAULT_BYTES = 2**30  # that a process may use beyond those in use, by default


Chunk: TypeAlias = tuple[Sequence[Array], Array]  # a coordinate array for each dimension, and the values


@dataclass(frozen=True)
class Plan:
    """The parameters of every step."""

    shape: tuple[int, ...]  # of the tensor
    format: str  # of the stored tensor, as text, so that levels of plug-ins can be sent
    rows: int  # entries that a step keeps in memory
    dtype: np.dtype[Any] | None = None  # of the values; None until the source is known
    exact: bool = True  # True if the caller has not chosen that type: no value is rounded
    duplicates: Duplicates = "error"
    map: str | None = None
    fill_value: Any = None
    one: Array | None = None  # the value that all entries share
    structure: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    descriptor_attributes: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] | None = None  # of the dimensions and of the values
    labels: tuple[str | None, ...] = ()  # their types by dimension
    sorted: bool = False  # each chunk is a partition: chunks are in the order of the target, or there is only one
    target: str | None = None  # a Zarr store that the steps write; None if the caller joins the trees
    staging: str | None = None  # the folder or prefix in which they write it
    overwrite: Overwrite = False
    storage: Storage = DEFAULT_STORAGE
    limits: Limits = DEFAULT_LIMITS
    threads: int | None = None  # of a step, if steps run concurrently
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:16])  # of this build; a call that continues it keeps it

    def __getstate__(self) -> dict[str, Any]:
        """The fields without cached formats: a worker parses the format, and so loads only the kinds that it may."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def parsed(self) -> Format:
        return parse_format(self.format)

    @cached_property
    def through(self) -> IndexMap | None:
        return None if self.map is None else parse_map(self.map, self.shape)

    @cached_property
    def stored_shape(self) -> tuple[int, ...]:
        return self.shape if self.through is None else self.through.stored_shape

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """The sizes of the stored dimensions."""
        return tuple(self.stored_shape[k] for k in self.parsed.order)

    @cached_property
    def column_types(self) -> list[np.dtype[Any]]:
        """The types of the columns of an entry: the coordinates by stored dimension, and the value."""
        assert self.dtype is not None
        return [np.dtype(index_dtype(self.dims, 0))] * len(self.dims) + [self.dtype]

    @property
    def raw(self) -> Plan:
        """The plan of a list of the entries without the map, in stored order if there is no map."""
        listed = coordinates(len(self.shape))
        return replace(self, format=str(in_order(listed.levels, self.order or listed.order)), map=None)

    @property
    def order(self) -> tuple[int, ...] | None:
        """The dimensions in stored order; None with a map."""
        return self.parsed.order if self.map is None else None

    @property
    def row_bytes(self) -> int:
        """The bytes of an entry."""
        return sum(dtype.itemsize for dtype in self.column_types)

    @cached_property
    def part_levels(self) -> tuple[Level, ...]:
        """The levels of the trees of the step pack."""
        return levels_of_parts(self.parsed.levels)

    @cached_property
    def array_names(self) -> list[str]:
        """The stored names of the arrays of a tree of the step pack, `values` last."""
        levels = places(self.part_levels, self.dims)
        return [spec.name for place in levels for spec in place.arrays.values()] + ["values"]

    @cached_property
    def array_types(self) -> list[np.dtype[Any]]:
        """The types of the arrays of `array_names`. A tree has a bounded number of positions, so its pointers fit."""
        index = np.dtype(index_dtype(self.dims, 2 * (self.rows + self.positions)))
        return [index] * (len(self.array_names) - 1) + [self.column_types[-1]]

    @property
    def pad(self) -> Any:
        assert self.dtype is not None
        return pad_of(self.fill_value, self.dtype)

    @property
    def metadata(self) -> Metadata:
        return Metadata(self.fill_value, self.attributes, self.descriptor_attributes)

    @property
    def positions(self) -> int:
        """The number of empty positions that any tree may have."""
        return max(self.rows // _ENTRIES_PER_POSITION, 1)

    def typed(self, dtype: np.dtype[Any]) -> Plan:
        """The plan with a type of values, unless it has one, and the fill value in that type. Raises ArrayError."""
        dtype = (self.dtype or dtype).newbyteorder("=")
        check_value_type(dtype)
        fill = checked_fill(self.fill_value, dtype)
        return replace(self, dtype=dtype, fill_value=None if fill is None else np.asarray(fill, dtype)[()])

    def described(self, tensor: Tensor) -> Plan:
        """The plan with the attributes of a tensor, unless the call gives others."""
        attributes, of_descriptor = self.attributes or dict(tensor.attributes), dict(tensor.descriptor_attributes)
        return replace(self, attributes=attributes, descriptor_attributes=of_descriptor)

    def like(self, tensor: Tensor) -> Plan:
        """The plan with the structure, the attributes and the fill value of a tensor, unless the call gives others.

        Raises FormatError for a format or a map that the structure does not allow.
        """
        fill = tensor.fill_value if self.fill_value is None else self.fill_value
        made = replace(self.described(tensor), fill_value=fill).typed(tensor.dtype)
        made = replace(made, structure=tensor.structure)
        if made.structure is not None:
            if made.map is not None:
                what = f"does not go with the structure {made.structure} of the source; leave it out"
                raise FormatError(Problem("map", what))
            raise_if(FormatError, mirror_problems(made.structure, made.parsed, made.pad))
        return made


@dataclass(eq=False)
class Source(ABC):
    """Entries in numbered chunks. states: the files of opened tensors, which must not change."""

    states: Sequence[Origin | None] = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def name(self, number: int) -> str:
        """The name of a chunk, for messages."""

    @abstractmethod
    def read(self, number: int) -> Chunk:
        """The coordinates and the values of a chunk."""

    @abstractmethod
    def value_type(self) -> np.dtype[Any]:
        """The type of all values, from metadata or a few values. Raises ArrayError, OptionError."""

    def labels(self, plan: Plan) -> Labels | None:
        """The labels of all coordinates, read on demand."""
        return None


def rows_within(memory: int | None, ndim: int, coordinate: int, value: int, *, used: int, pointers: float = 0) -> int:
    """The number of entries that a step may keep in memory.

    Each entry needs at most twice its coordinates and its value, three words for sorting, and its share of the
    positions of a tree.

    memory: bytes of the whole process; by default, 1 GiB more than `used`. coordinate, value: bytes of each. used:
    bytes that the process uses already. pointers: the number of pointers of the source for each entry. Raises
    OptionError, LimitError.
    """
    given = used + DEFAULT_BYTES if memory is None else as_integer(memory)
    if given is None or given < 1:
        raise OptionError(Problem("memory", f"expected a number of bytes, got {memory!r:.40}"))
    if THRESHOLDS.step_entries:
        return THRESHOLDS.step_entries
    each = (2 * coordinate + 2) * ndim + 3 * value + 48 + _POSITION_BYTES // _ENTRIES_PER_POSITION
    free, least = given - used - _BUFFER_BYTES, _MIN_ENTRIES * each
    each += int(72 * pointers)
    if free < max(least, each):
        least = given - free + max(least, each)
        raise LimitError(Problem("memory", f"{given} bytes are too few; pass at least {least}"))
    return free // each


def refuse_scalar(plan: Plan) -> None:
    if not plan.dims:
        raise FormatError(Problem("format", "a scalar cannot be built in parts; pack it"))


def most_positions(plan: Plan, entries: int) -> int:
    """The greatest number of positions of a level, for a number of entries."""
    most, n = 1, 1
    for place in places(plan.parsed.levels, plan.dims):
        distinct = min(n * cells(place.dims), entries)
        children = place.level.children(place.dims, n, distinct)
        n = distinct if children is None else children
        most = max(most, n)
    return most


def check_proportion(plan: Plan, entries: int) -> None:
    """Raise LimitError if dense levels, whose shape follows from the coordinates, are out of proportion to them."""
    size = 8 * most_positions(plan, entries)
    if size > max(_DENSE_BYTES, _DENSE_BYTES_PER_ENTRY * entries):
        what = (
            f"the largest coordinates of {entries} entries give {plan.shape}, of which {plan.parsed} takes {size} bytes"
        )
        remedy = "number them by labels=, or as text, choose a format like DCSR or COO, or pass this shape"
        raise LimitError(Problem("shape", f"{what}; {remedy}"))


def fits_whole(plan: Plan) -> bool:
    """Return True if every process has memory for the positions of a tree without entries."""
    return most_positions(plan, 0) <= max(plan.positions, THRESHOLDS.position_entries)


def check_joined(plan: Plan, entries: int) -> None:
    """Raise LimitError if dense levels have more positions than `limits` allows for the entries, or if trees that are
    joined from their entries exceed the memory.
    """
    most = most_positions(plan, entries)
    check_dense(most, entries, plan.limits, memory=False)
    fit = _JOIN_FACTOR * entries <= plan.rows and most <= plan.rows + THRESHOLDS.position_entries
    if not by_arrays(plan.parsed.levels) and not fit:
        what = f"{entries} entries in {most} positions of {plan.parsed} are joined all at once, and do not fit"
        raise LimitError(Problem("memory", f"{what}; pass more, or use the levels of CSF or CSR"))
