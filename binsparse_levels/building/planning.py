"""What is built from what: the plan, which every step reads from the folder of the work."""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array
from ..containers.base import Storage
from ..engine.emission import Duplicates
from ..engine.joining import levels_of_parts
from ..engine.tree import index_dtype
from ..errors import BinsparseError, ContainerError, LimitError, OptionError, Problem, UnsafeError, refuse_memory
from ..formats.format import Format, parse_format
from ..formats.index_map import IndexMap, parse_map
from ..formats.json import load_json
from ..levels import Level, places
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from ..tensors.encoding import Metadata
from ..tensors.validation import check_duplicates, check_value_type, checked_format, checked_json, checked_sizes, pad_of
from .sources import SOURCES, Source
from .store import Store, store_at

_VERSION = 1
_ALLOWANCE = 3 * 2**25  # bytes of libraries that are still to be loaded, and pieces of arrays on their way
_LEAST = 2**14  # entries
_MORE = 2**30  # bytes that a process may use beyond those that it has, by default


@dataclass(frozen=True)
class Plan:
    """The parameters of every step.

    shape: of the tensor. format, map: of the stored tensor. dtype: of the values. rows: entries that a step holds in
    memory. sorted: the chunks of the source follow each other in the order of the target, so that each is a partition.
    target: a Zarr store that the steps write, or None where the caller joins the parts. threads: of a step, where steps
    run side by side. fill: the bytes of the fill value.
    """

    source: dict[str, Any]
    shape: tuple[int, ...]
    format: str
    dtype: str
    rows: int
    duplicates: Duplicates = "error"
    map: str | None = None
    fill: str | None = None
    structure: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    descriptor_attributes: Mapping[str, Any] = field(default_factory=dict)
    sorted: bool = False
    target: str | None = None
    overwrite: bool = False
    storage: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=lambda: asdict(DEFAULT_LIMITS))
    threads: int | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)  # of this build; the same again has another
    version: int = _VERSION

    @cached_property
    def parsed(self) -> Format:
        return parse_format(self.format)

    @cached_property
    def through(self) -> IndexMap | None:
        return None if self.map is None else parse_map(self.map, self.shape)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        return self.shape if self.through is None else self.through.stored_shape

    @property
    def dims(self) -> tuple[int, ...]:
        """The sizes of the stored dimensions."""
        return tuple(self.stored_shape[k] for k in self.parsed.order)

    @cached_property
    def column_types(self) -> list[np.dtype[Any]]:
        """The types of the columns of an entry: the coordinates by stored dimension, and the value."""
        return [np.dtype(index_dtype(self.dims, 0))] * len(self.dims) + [np.dtype(self.dtype)]

    @property
    def part_levels(self) -> tuple[Level, ...]:
        """The levels of the trees that steps leave."""
        return levels_of_parts(self.parsed.levels)

    @property
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

    @classmethod
    def of(
        cls,
        source: dict[str, Any],
        shape: tuple[int, ...],
        format: Format,
        dtype: np.dtype[Any],
        fill: Any,
        limits: Limits,
        *,
        through: IndexMap | None = None,
        attributes: Mapping[str, Any] | None = None,
        **rest: Any,
    ) -> Plan:
        """A plan of objects that are parsed and checked. rest: the other fields."""
        return cls(
            source,
            shape,
            str(format),
            dtype.str,
            map=None if through is None else str(through),
            fill=None if fill is None else np.asarray(fill, dtype).tobytes().hex(),
            attributes=checked_json(attributes, limits),
            limits=asdict(limits),
            **rest,
        )

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1)


class Work(NamedTuple):
    """The folder of a build, and what tells its plan from another one in the same folder."""

    address: str
    digest: str

    @property
    def store(self) -> Store:
        return store_at(self.address)

    @property
    def plan(self) -> Plan:
        return self._known()[0]

    @property
    def source(self) -> Source:
        return self._known()[1]

    def _known(self) -> tuple[Plan, Source]:
        """The plan and the source, read once in every process."""
        return _BEGUN[self] if self in _BEGUN else _loaded(self)

    def done(self, stage: str) -> set[int]:
        """The numbers of the steps of a stage that are done."""
        return {int(name) for name in self.store.names(stage) if name.isdecimal()}

    def save(self, key: str, **arrays: Any) -> None:
        """Leave an object of arrays by name."""
        file = io.BytesIO()
        np.savez(file, **arrays)
        self.store.put(key, [file.getvalue()])

    def load(self, key: str) -> dict[str, Array]:
        """The arrays of an object. Raises ContainerError."""
        raw = self.store.get(key)
        try:
            with np.load(io.BytesIO(raw), allow_pickle=False) as found:
                return dict(found)
        except Exception as error:
            refuse_memory(error, key)
            raise self.damaged(key) from error

    def damaged(self, key: str) -> ContainerError:
        """The error for an object that is not as a step has left it."""
        return ContainerError(Problem(f"{self.address}/{key}", "is damaged; start the build again in another folder"))

    def forget(self) -> None:
        """Close the source in this process."""
        _BEGUN.pop(self, None)


_BEGUN: dict[Work, tuple[Plan, Source]] = {}


@lru_cache(2)
def _loaded(work: Work) -> tuple[Plan, Source]:
    plan, digest = stored_plan(work.store)
    if digest != work.digest:
        raise ContainerError(Problem(work.address, "has another plan now; begin again in another folder"))
    if "kind" not in plan.source:
        return plan, _unpickled(work.store)
    kind = SOURCES.get(plan.source["kind"])
    if kind is None:
        raise UnsafeError(Problem("plan.source", "is no source that a file can name; call build() in its program"))
    try:
        return plan, kind(**{key: x for key, x in plan.source.items() if key != "kind"})
    except (TypeError, ValueError, AttributeError) as error:
        refuse_memory(error)
        if isinstance(error, BinsparseError):
            raise
        raise work.damaged("plan") from error


def begin(address: str, plan: Plan, source: Source, *, sent: bool = False) -> Work:
    """Write a plan into the folder of a work, or find the same plan there. sent: other processes need the source.

    Raises ContainerError for another plan.
    """
    store, text = store_at(address), plan.text()
    store.create("plan", text.encode())
    there, digest = stored_plan(store)
    mine, others = (json.loads(x) for x in (text, there.text()))
    if differing := [name for name in mine if mine[name] != others[name] and name not in ("threads", "id")]:
        what = f"has the work of another build, which differs in {', '.join(differing)}; pass another work="
        raise ContainerError(Problem(address, what))
    if sent and "kind" not in plan.source:
        store.put("source", [_pickled(source)])
    work = Work(address, digest)
    _BEGUN[work] = there, source
    return work


def stored_plan(store: Store) -> tuple[Plan, str]:
    """The plan in a folder, and its digest. Raises PathMissingError, ContainerError."""
    text = store.get("plan")
    given = load_json(text, replace(DEFAULT_LIMITS, header_bytes=2**28))
    if not isinstance(given, dict) or given.get("version") != _VERSION or set(given) != {x.name for x in fields(Plan)}:
        raise ContainerError(Problem("plan", "is of another version of this program; begin again in another folder"))
    try:
        plan = Plan(**{**given, "shape": checked_sizes(given["shape"])})
        _check(plan)
    except (BinsparseError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"is damaged: {error!s:.200}; start the build again in another folder"
        raise ContainerError(Problem("plan", what)) from error
    return plan, hashlib.sha256(text).hexdigest()[:16]


def _check(plan: Plan) -> None:
    """Raise an error for parameters with which no step can work."""
    checked_format(plan.parsed, plan.stored_shape, plan.bounds)
    dtype = np.dtype(plan.dtype)
    check_value_type(dtype)
    if plan.fill is not None and len(bytes.fromhex(plan.fill)) != dtype.itemsize:
        raise ValueError("the fill value has another size than the values")
    check_duplicates(plan.duplicates)
    if as_integer(plan.rows) is None or plan.rows < 1:
        raise ValueError("the number of rows")
    if not isinstance(plan.source, dict) or not isinstance(plan.target, str | None):
        raise TypeError("the source and the target")
    Storage(**plan.storage)
    checked_json(plan.attributes, plan.bounds)


def _pickled(source: Source) -> bytes:
    """A source that only its own program can make again, such as one around a function."""
    try:
        import cloudpickle as pickler
    except ImportError:
        import pickle as pickler
    try:
        return bytes(pickler.dumps(source))
    except Exception as error:
        raise OptionError(Problem("source", f"cannot be sent to other processes: {error}; give a path")) from error


def _unpickled(store: Store) -> Source:
    import pickle

    source: Source = pickle.loads(store.get("source"))
    return source


def rows_within(memory: int | None, ndim: int, coordinate: int, value: int, *, used: int, pointers: float = 0) -> int:
    """The number of entries that a step may hold in memory.

    Each entry needs at most twice its coordinates and its value, three words for sorting, and its share of the fibers'
    pointers. Many fibers may be empty, so pointers can outnumber the entries.

    memory: bytes of the whole process; by default, 1 GiB more than `used`. coordinate, value: bytes of each. used:
    bytes that are taken already. Raises OptionError, LimitError.
    """
    given = used + _MORE if memory is None else as_integer(memory)
    if given is None or given < 1:
        raise OptionError(Problem("memory", f"expected a number of bytes, got {memory!r:.40}"))
    each = (2 * coordinate + 2) * ndim + 3 * value + 48
    free, least = given - used - _ALLOWANCE, _LEAST * each
    each += int(72 * pointers)
    if free < max(least, each):
        least = given - free + max(least, each)
        raise LimitError(Problem("memory", f"{given} bytes are too few; pass at least {least}"))
    return free // each
