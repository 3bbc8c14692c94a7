"""The request: the options that all builds share, checked once. It makes plans, and identifies a build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engine.emission import wider
from ..engine.tree import Duplicates, index_dtype
from ..errors import check_choice
from ..formats.format import Format, FormatLike, with_map
from ..formats.index_map import MapLike, parse_map
from ..limits import DEFAULT_LIMITS, Limits
from ..system import resident
from ..tensors.validation import checked_format, checked_json, checked_sizes, checked_type
from . import plan as plans
from .columns import Nulls
from .plan import DEFAULT_BYTES, LOADED_BYTES, Plan


@dataclass(frozen=True)
class Workers:
    """Processes that run steps. memory: bytes that each may use. used: bytes that an idle one uses."""

    memory: int | None
    used: int


@dataclass(frozen=True)
class Request:
    """The options that all builds share. Those that are compared identify a build that is repeated.

    shape: as for `write_from`. dtype: None for the type of the source. dims, values: names of columns; without values,
    each row counts as 1. columns: all these. labels: those that the caller passes, by dimension. memory: bytes of each
    process, as for `rows_within`. workers: other processes that run steps, if any. Raises OptionError, FormatError.
    """

    format: FormatLike
    map: MapLike | None = None
    duplicates: Duplicates = "error"
    nulls: Nulls = "error"
    dtype: npt.DTypeLike | None = None
    fill_value: Any = None
    attributes: Mapping[str, Any] | None = None
    limits: Limits = DEFAULT_LIMITS
    shape: Any = None
    dims: Sequence[Any] | None = field(default=None, compare=False)
    values: str | None = field(default=None, compare=False)
    labels: Mapping[str, Any] | None = field(default=None, compare=False)
    memory: int | None = field(default=None, compare=False)
    workers: Workers | None = field(default=None, compare=False)
    columns: list[str | None] = field(init=False)

    def __post_init__(self) -> None:
        check_choice("duplicates", self.duplicates, Duplicates)
        check_choice("nulls", self.nulls, Nulls)
        format, map = with_map(self.format, self.map)
        dtype = None if self.dtype is None else checked_type(self.dtype).newbyteorder("=")
        format = str(format) if isinstance(format, Format) else format
        known = {"format": format, "map": map, "dtype": dtype, "attributes": checked_json(self.attributes, self.limits)}
        known |= {"columns": [*(self.dims or ()), self.values]}
        if self.shape is not None and not isinstance(self.shape, Sequence):
            known |= {"shape": checked_sizes(self.shape)}
        for name, value in known.items():
            object.__setattr__(self, name, value)

    @property
    def open_ended(self) -> bool:
        """True if the source determines a size."""
        return self.shape is None or None in self.shape

    def sizes(self, found: Sequence[int]) -> list[int]:
        """The size of each dimension. found: those that the source determines."""
        given = [None] * len(found) if self.shape is None else self.shape
        return [there if size is None else size for there, size in zip(found, given, strict=True)]

    def plan(
        self,
        shape: int | Sequence[int],
        *,
        rows: int | None = None,
        extra: int = 0,
        here: int | None = None,
        pointers: float = 0,
    ) -> Plan:
        """A checked plan for a shape, without a source.

        rows: as `rows_within` has returned it, if it is known. extra: bytes that each process uses besides. here: bytes
        that this process uses besides, if it reads the source. Raises the errors of `pack`, LimitError for too little
        memory.
        """
        sizes = checked_sizes(shape)
        through = None if self.map is None else parse_map(self.map, sizes)
        stored_shape = sizes if through is None else through.stored_shape
        parsed, stored = checked_format(self.format, stored_shape, self.limits)
        known: Any = self.dtype
        if rows is None:
            value = 8 if known is None else ((self.duplicates == "sum" and wider(known)) or known).itemsize
            index = np.dtype(index_dtype(stored, 0)).itemsize
            entry = max(len(sizes), len(stored)), index, value
            found = []
            if self.workers is not None:
                memory = self.workers.memory if self.memory is None else self.memory
                found.append(plans.rows_within(memory, *entry, used=self.workers.used + extra, pointers=pointers))
            if self.workers is None or here is not None:
                own = self.used + extra + (here or 0)
                found.append(plans.rows_within(self.available, *entry, used=own, pointers=pointers))
            rows = min(found)
        made = Plan(
            sizes,
            str(parsed),
            rows,
            known,
            exact=known is None,
            duplicates=self.duplicates,
            map=None if through is None else str(through),
            fill_value=self.fill_value,
            attributes=self.attributes or {},
            names=None if self.dims is None else (*self.dims, self.values or "count"),
            limits=self.limits,
            threads=None if self.workers is None else 1,
        )
        return made if known is None else made.typed(known)

    @property
    def used(self) -> int:
        """The bytes that this process uses, at least when all libraries are loaded."""
        return max(resident(), LOADED_BYTES)

    @property
    def available(self) -> int:
        """The bytes that this process may use."""
        return self.used + DEFAULT_BYTES if self.memory is None else self.memory
