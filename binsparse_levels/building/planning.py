"""What is built from what: the plan, which every step reads from the folder of the work."""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..containers.base import Storage
from ..containers.replacing import Overwrite
from ..engine.emission import Duplicates, hold_dense
from ..engine.joining import by_arrays, levels_of_parts
from ..engine.tree import index_dtype
from ..errors import FormatError, LimitError, OptionError, Problem
from ..formats.format import Format, FormatLike, parse_format, with_map
from ..formats.index_map import IndexMap, MapLike, parse_map
from ..levels import Level, places
from ..levels.base import Place
from ..levels.positions import cells
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from ..system import resident
from ..tensors.encoding import Metadata
from ..tensors.validation import (
    check_duplicates,
    check_value_type,
    checked_fill,
    checked_format,
    checked_json,
    checked_sizes,
    checked_type,
    pad_of,
)
from .bad_rows import Bad, check_bad

if TYPE_CHECKING:
    from .chunks import Source

VERSION = 5
_ALLOWANCE = 3 * 2**25  # bytes of libraries that are still to be loaded, and pieces of arrays on their way
_LEAST = 2**14  # entries
_POSITIONS = 4  # so many entries may have a position more in a tree, where many positions have none
_POSITION = 64  # bytes of a position, on its way from a tree to a file
FEW = 2**20  # positions that any process has memory for
_GROWN = re.compile(r"\.[0-9a-f]{8}\.grown$|\.part\.d/target$")  # what `to_store` calls a target before it is complete
_JOINED = 1.5  # so many times the memory of an entry in a step, where trees are joined through their entries
_MORE = 2**30  # bytes that a process may use beyond those that it has, by default


@dataclass(frozen=True)
class Plan:
    """The parameters of every step.

    shape: of the tensor. format, map: of the stored tensor. dtype: of the values. rows: entries that a step holds in
    memory. sorted: the chunks of the source follow each other in the order of the target, or there is one chunk, so
    that each is a partition. target: a Zarr store that the steps write, or None where the caller joins the parts.
    threads: of a step, where steps run side by side. fill: the bytes of the fill value. replaces: the store whose place
    the target takes when it is complete.
    """

    source: dict[str, Any]
    shape: tuple[int, ...]
    format: str
    dtype: str
    rows: int
    duplicates: Duplicates = "error"
    bad: Bad = "raise"
    map: str | None = None
    fill: str | None = None
    structure: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    descriptor_attributes: Mapping[str, Any] = field(default_factory=dict)
    sorted: bool = False
    target: str | None = None
    replaces: str | None = None
    overwrite: Overwrite = False
    storage: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=lambda: asdict(DEFAULT_LIMITS))
    threads: int | None = None
    exact: bool = True  # the type of the values was not asked for, so that no value is rounded
    open: Sequence[int] = ()  # the dimensions whose sizes are the numbers of their labels; until then, of the rows
    mark: str | None = None  # the identity of the plan before these were known
    id: str = field(default_factory=lambda: uuid.uuid4().hex)  # of this build; the same again has another
    version: int = VERSION

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

    @property
    def labels(self) -> list[str | None]:
        """The kind of the labels by dimension, None for coordinates."""
        return list(self.source.get("labels", ()))

    @property
    def column_names(self) -> list[str]:
        """The names of the coordinates by dimension, and of the values last."""
        known = self.source.get("columns")
        return (
            [*(f"coords[{k}]" for k in range(len(self.shape))), "values"] if known is None else [str(x) for x in known]
        )

    @cached_property
    def column_types(self) -> list[np.dtype[Any]]:
        """The types of the columns of an entry: the coordinates by stored dimension, and the value."""
        return [np.dtype(index_dtype(self.dims, 0))] * len(self.dims) + [np.dtype(self.dtype)]

    @cached_property
    def part_levels(self) -> tuple[Level, ...]:
        """The levels of the trees that steps leave."""
        return levels_of_parts(self.parsed.levels)

    @cached_property
    def names(self) -> list[str]:
        """The stored names of the arrays of a part, `values` last."""
        levels = places(self.part_levels, self.dims)
        return [spec.name for place in levels for spec in place.arrays.values()] + ["values"]

    @property
    def fill_value(self) -> Any:
        return None if self.fill is None else np.frombuffer(bytes.fromhex(self.fill), self.dtype)[0]

    @property
    def pad(self) -> Any:
        return pad_of(self.fill_value, np.dtype(self.dtype))

    @property
    def metadata(self) -> Metadata:
        return Metadata(self.fill_value, self.attributes, self.descriptor_attributes)

    @property
    def bounds(self) -> Limits:
        return Limits(**self.limits)

    @property
    def positions(self) -> int:
        """How many positions without entries a tree may have at least."""
        return max(self.rows // _POSITIONS, 1)

    @cached_property
    def identity(self) -> str:
        """What the target is marked with. Builds with the same mark write the same bytes."""
        told = {name: x for name, x in self._told().items() if name not in ("id", "threads", "mark")}
        return self.mark or hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]

    def reading(self, source: Source, *, fill: Any = None, **rest: Any) -> Plan:
        """The plan with its source, which tells the type of the values where the plan does not. rest: other fields.

        Raises ArrayError, OptionError.
        """
        dtype = np.dtype(self.dtype) if self.dtype else source.value_type()
        check_value_type(dtype)
        held = checked_fill(fill, dtype)
        told = None if held is None else np.asarray(held, dtype).tobytes().hex()
        return replace(self, source=source.described(), dtype=dtype.str, fill=told, **rest)

    def text(self) -> str:
        return json.dumps(self._told())

    def _told(self) -> dict[str, Any]:
        """The parameters by name. `asdict` would copy each file of the source."""
        return {x.name: getattr(self, x.name) for x in fields(self)}


def check(plan: Plan) -> None:
    """Raise an error for parameters with which no step can work."""
    checked_format(plan.parsed, plan.stored_shape, plan.bounds)
    dtype = np.dtype(plan.dtype)
    check_value_type(dtype)
    if plan.fill is not None and len(bytes.fromhex(plan.fill)) != dtype.itemsize:
        raise ValueError("the fill value has another size than the values")
    check_duplicates(plan.duplicates)
    check_bad(plan.bad)
    if as_integer(plan.rows) is None or plan.rows < 1:
        raise ValueError("the number of rows")
    if [k for k in plan.open if not 0 <= k < len(plan.shape) or not plan.labels[k]] or plan.mark is not None:
        raise ValueError("open dimensions")
    places = plan.target, plan.replaces
    if not isinstance(plan.source, dict) or not all(isinstance(place, str | None) for place in places):
        raise TypeError("the source and the target")
    if plan.replaces is not None and not _GROWN.search(str(plan.target)):
        raise ValueError("a target that takes another's place, which is removed behind")
    Storage(**plan.storage)
    checked_json(plan.attributes, plan.bounds)


def planned(
    shape: int | Sequence[int],
    format: FormatLike,
    *,
    map: MapLike | None = None,
    duplicates: Duplicates = "error",
    bad: Bad = "raise",
    dtype: npt.DTypeLike | None = None,
    attributes: Mapping[str, Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    memory: int | None = None,
    used: int | None = None,
    **rest: Any,
) -> Plan:
    """What is to be built, parsed and checked, as yet without a source.

    memory: bytes of each process. used: bytes that a process has already; by default, those of this one. rest: other
    fields of the plan. Raises the errors of `pack`, LimitError for too little memory.
    """
    check_duplicates(duplicates)
    check_bad(bad)
    if shape is None:
        raise OptionError(Problem("shape", "expected the sizes of the dimensions, got None"))
    sizes = checked_sizes(shape)
    format, map = with_map(format, map)
    through = None if map is None else parse_map(map, sizes)
    parsed, stored = checked_format(format, sizes if through is None else through.stored_shape, limits)
    if "rows" not in rest:
        index = np.dtype(index_dtype(stored, 0)).itemsize
        value = 8 if dtype is None else checked_type(dtype).itemsize
        rest["rows"] = rows_within(memory, len(stored), index, value, used=resident() if used is None else used)
    return Plan(
        {},
        sizes,
        str(parsed),
        "" if dtype is None else checked_type(dtype).newbyteorder("=").str,
        duplicates=duplicates,
        bad=bad,
        map=None if through is None else str(through),
        attributes=checked_json(attributes, limits),
        limits=asdict(limits),
        exact=dtype is None,
        **rest,
    )


class Rows(int):
    """A number of entries in the place of `memory`: so many may be in memory at a time."""


def rows_within(memory: int | None, ndim: int, coordinate: int, value: int, *, used: int, pointers: float = 0) -> int:
    """The number of entries that a step may hold in memory.

    Each entry needs at most twice its coordinates and its value, three words for sorting, and its share of the
    positions of a tree. The source may have more pointers than entries, where many fibers are empty.

    memory: bytes of the whole process, or Rows; by default, 1 GiB more than `used`. coordinate, value: bytes of each.
    used: bytes that are taken already. Raises OptionError, LimitError.
    """
    if isinstance(memory, Rows):
        return int(memory)
    given = used + _MORE if memory is None else as_integer(memory)
    if given is None or given < 1:
        raise OptionError(Problem("memory", f"expected a number of bytes, got {memory!r:.40}"))
    each = _bytes_of_entry(ndim, coordinate, value)
    free, least = given - used - _ALLOWANCE, _LEAST * each
    each += int(72 * pointers)
    if free < max(least, each):
        least = given - free + max(least, each)
        raise LimitError(Problem("memory", f"{given} bytes are too few; pass at least {least}"))
    return free // each


def _bytes_of_entry(ndim: int, coordinate: int, value: int) -> int:
    return (2 * coordinate + 2) * ndim + 3 * value + 48 + _POSITION // _POSITIONS


def check_joined(plan: Plan, entries: int = 0) -> None:
    """Raise FormatError for a format whose trees cannot be joined, LimitError where that takes more than the memory.

    Trees that are not joined array by array are joined through their entries, of the whole tensor at once.

    entries: of all trees, or of those that are there already.
    """
    if not plan.dims:
        raise FormatError(Problem("format", "a scalar is not built in parts; pack it"))
    if by_arrays(plan.parsed.levels):
        return
    room = plan.rows - math.ceil(_JOINED * entries)
    more = _most_positions(plan, entries) - entries
    if room < 0 or more > max(room, FEW):
        *coords, value = (dtype.itemsize for dtype in plan.column_types)
        short = (max(more, 0) - room) * _bytes_of_entry(len(coords), coords[0], value)
        what = (
            f"{plan.parsed} is joined through all entries at once; {entries} or more take {short} bytes more than fit"
        )
        raise LimitError(Problem("memory", f"{what}; pass so much more, or take levels that CSF or CSR has"))


def check_size(plan: Plan, entries: int) -> None:
    """Raise LimitError where dense levels make more positions for all entries than `limits` lets them."""
    hold_dense(_most_positions(plan, entries), entries, plan.bounds)


def _most_positions(plan: Plan, entries: int) -> int:
    """The positions of the level that has most, where counts tell."""
    return max((children for _, _, children in positions(plan, entries)), default=1)


def positions(plan: Plan, entries: int) -> Iterator[tuple[Place, int, int]]:
    """Each level of a tree of so many entries, its positions, and those of the level below, as far as counts tell."""
    n = 1
    for place in places(plan.parsed.levels, plan.dims):
        distinct = min(n * cells(place.dims), entries)
        children = place.level.children(place.dims, n, distinct)
        children = distinct if children is None else children
        yield place, n, children
        n = children
