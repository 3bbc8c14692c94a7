"""The folder of a build: its plan, and the objects that the steps leave, each with a checksum over all of it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from ..arrays import Array
from ..containers.base import is_url
from ..containers.objects.asking import side_by_side
from ..containers.objects.bucket import Bucket
from ..containers.objects.folder import Folder
from ..containers.objects.stores import Range, Store
from ..containers.replacing import part_of, remove
from ..errors import BinsparseError, ContainerError, OptionError, Problem, UnsafeError, refuse_memory
from ..formats.json import load_json
from ..io.kinds import Place, split_place
from ..limits import DEFAULT_LIMITS
from ..tensors.validation import checked_format, checked_sizes
from .chunks import Source
from .planning import VERSION, Plan, check
from .sources import SOURCES, remade

_TAIL = 2**14  # bytes at the end of an object that are read first


@lru_cache(8)
def store_at(address: str) -> Store:
    """The store at the path of a folder, which is made, or at a URL."""
    return Bucket(address) if is_url(address) else Folder(os.path.realpath(os.path.expanduser(address)))


@contextlib.contextmanager
def scratch(target: Place) -> Iterator[str]:
    """A folder beside the target, or for a URL or an open object a temporary one; removed at the end."""
    path, _ = split_place(target)
    try:
        if not isinstance(path, str) or is_url(path):
            folder = tempfile.mkdtemp()
        else:
            folder = f"{part_of(os.path.realpath(path))}.d"
            os.mkdir(folder)
    except OSError as error:
        raise ContainerError(
            Problem(path, f"no folder for scratch files can be made here: {error.strerror}")
        ) from error
    try:
        yield folder
    finally:
        remove(folder)


class Seal(NamedTuple):
    """What stands behind the pieces of an object: where each ends, and its crc32c. The seal has a checksum too."""

    ends: Array
    sums: Array

    def range(self, key: str, first: int, stop: int) -> Range:
        """The bytes of the pieces first … stop - 1."""
        begin = int(self.ends[first - 1]) if first else 0
        return key, begin, int(self.ends[stop - 1]) - begin


class Work(NamedTuple):
    """The folder of a build, and what tells its plan from another one in the same folder."""

    address: str
    digest: str

    @property
    def store(self) -> Store:
        return store_at(self.address)

    @property
    def begun(self) -> Plan:
        """The plan as it is stored: dimensions with labels may be larger there."""
        return self._known()[0]

    @property
    def plan(self) -> Plan:
        """The plan with the sizes of all dimensions. Precondition: the labels are numbered."""
        return self.begun if not self.begun.open else _numbered(self)

    @property
    def source(self) -> Source:
        return self._known()[1]

    def _known(self) -> tuple[Plan, Source]:
        """The plan and the source, read once in every process."""
        return _BEGUN[self] if self in _BEGUN else _loaded(self)

    def done(self, stage: str) -> set[int]:
        """The numbers of the steps of a stage that are done."""
        return {int(name) for name in self.store.names(stage) if name.isdecimal()}

    def put(self, key: str, pieces: Iterable[Any]) -> None:
        """Leave an object of pieces, each a buffer or several, and its seal.

        It is flushed to the disk before it gets its name, unless the folder goes with this process.
        """
        self.store.put(key, _sealed(pieces), flush=self.begun.target is not None)

    def get(self, key: str) -> memoryview:
        """The pieces of an object, behind each other. Raises PathMissingError, ContainerError."""
        raw = self.store.get(key)
        return self._checked(key, raw)

    def last_pieces(self, keys: Sequence[str]) -> Iterator[tuple[Seal, Array]]:
        """The seal and the last piece of each object; so many at once as an object store serves."""

        def last(key: str) -> tuple[Seal, Array]:
            seal = self.seal(key)
            wanted = seal.range(key, len(seal.ends) - 1, len(seal.ends)), int(seal.sums[-1])
            return seal, next(iter(self.ranges([wanted])))

        return side_by_side(last, keys)

    def _checked(self, key: str, raw: bytes) -> memoryview:
        seal = _unsealed(raw, len(raw))
        if seal is None:
            raise self.damaged(key)
        body = memoryview(raw)[: int(seal.ends[-1]) if len(seal.ends) else 0]
        self.pieces_in(key, body, seal.ends, seal.sums)
        return body

    def seal(self, key: str) -> Seal:
        """Where the pieces of an object end, and their checksums."""
        size = self.store.size(key)
        (tail,) = self.store.ranges([(key, max(size - _TAIL, 0), min(size, _TAIL))])
        count = _pieces_of(tail)
        if count is not None and len(tail) < (needed := _seal_bytes(count)) <= size:
            (tail,) = self.store.ranges([(key, size - needed, needed)])
        seal = _unsealed(tail, size)
        if seal is None or not len(seal.ends):
            raise self.damaged(key)
        return seal

    def ranges(self, wanted: Sequence[tuple[Range, int]]) -> Iterator[Array]:
        """Pieces of objects, each with its checksum. Raises ContainerError for damaged ones."""
        found = self.store.ranges([place for place, _ in wanted])
        for block, (place, known) in zip(found, wanted, strict=True):
            if _sum_of([block]) != known:
                raise self.damaged(place[0])
            yield block

    def slice(self, key: str, start: int, stop: int) -> Array:
        """The bytes start … stop - 1 of an object, from its pieces, which are checked."""
        if start == stop:
            return np.empty(0, np.uint8)
        seal = _seal_of(self, key)
        first, last = np.searchsorted(seal.ends, (start, stop - 1), side="right").tolist()
        if not 0 <= start < stop or last >= len(seal.ends):
            raise self.damaged(key)
        (block,) = self.store.ranges([seal.range(key, first, last + 1)])
        origin = int(seal.ends[first - 1]) if first else 0
        self.pieces_in(key, block, seal.ends[first : last + 1] - origin, seal.sums[first : last + 1])
        return block[start - origin : stop - origin]

    def pieces_in(self, key: str, block: Any, ends: Array, sums: Array) -> list[Any]:
        """Pieces of an object that lie behind each other in a block of its bytes. Raises ContainerError."""
        found = [block[a:b] for a, b in itertools.pairwise([0, *ends.tolist()])]
        if any(_sum_of([piece]) != known for piece, known in zip(found, sums.tolist(), strict=True)):
            raise self.damaged(key)
        return found

    def slices(self, wanted: Sequence[tuple[str, int, int]]) -> list[Array]:
        """`slice` of each of these, side by side."""
        if len(wanted) < 2 or not is_url(self.address):
            return [self.slice(*place) for place in wanted]
        return list(side_by_side(lambda place: self.slice(*place), wanted))

    def save(self, key: str, **arrays: Any) -> None:
        """Leave an object of arrays by name."""
        file = io.BytesIO()
        np.savez(file, **arrays)
        self.put(key, [file.getvalue()])

    def load(self, key: str) -> dict[str, Array]:
        """The arrays of an object. Raises ContainerError."""
        raw = self.get(key)
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


@lru_cache(4)
def _numbered(work: Work) -> Plan:
    sizes = work.load("number/0")["shape"].tolist()
    plan = replace(work.begun, shape=checked_sizes(sizes), mark=work.begun.identity)
    checked_format(plan.parsed, plan.stored_shape, plan.bounds)
    return plan


@lru_cache(1024)
def _seal_of(work: Work, key: str) -> Seal:
    return work.seal(key)


def _sealed(pieces: Iterable[Any]) -> Iterator[Any]:
    """The buffers of pieces, and then their seal: ends and checksums, their number, a checksum of these."""
    table, end = [], 0
    for piece in pieces:
        buffers = piece if isinstance(piece, list) else [piece]
        end += sum(memoryview(x).nbytes for x in buffers)
        table.append((end, _sum_of(buffers)))
        yield from buffers
    seal = np.array([*zip(*table, strict=True)] or [(), ()], np.int64)
    told = np.append(seal.reshape(-1), len(table))
    yield np.append(told, _sum_of([told])).data


def _sum_of(buffers: Iterable[Any]) -> int:
    total = 0
    for x in buffers:
        total = google_crc32c.extend(total, np.frombuffer(x, np.uint8) if memoryview(x).nbytes else b"")
    return int(total)


def _seal_bytes(pieces: int) -> int:
    return 16 * pieces + 16


def _pieces_of(tail: Any) -> int | None:
    """How many pieces an object says that it has; None where it cannot be."""
    if len(tail) < 16:
        return None
    count = int.from_bytes(bytes(tail[-16:-8]), "little")
    return count if count < 2**40 else None


def _unsealed(tail: Any, size: int) -> Seal | None:
    """The seal at the end of an object of `size` bytes; None where it is damaged."""
    count = _pieces_of(tail)
    if count is None or len(tail) < _seal_bytes(count):
        return None
    told = np.frombuffer(bytes(tail[-_seal_bytes(count) :]), np.int64)
    ends, sums = told[: 2 * count].reshape(2, count)
    whole = told[-1] == _sum_of([told[:-1]]) and size == (int(ends[-1]) if count else 0) + _seal_bytes(count)
    return Seal(ends, sums) if whole and (np.diff(ends, prepend=0) >= 0).all() else None


_BEGUN: dict[Work, tuple[Plan, Source]] = {}


@lru_cache(2)
def _loaded(work: Work) -> tuple[Plan, Source]:
    plan, digest = stored_plan(work.address)
    if digest != work.digest:
        raise ContainerError(Problem(work.address, "has another plan now; begin again in another folder"))
    if "kind" not in plan.source:
        import pickle

        sent: Source = pickle.loads(work.get("source"))
        return plan, sent
    if plan.source["kind"] not in SOURCES:
        raise UnsafeError(Problem("plan.source", "is no source that a file can name; call build() in its program"))
    try:
        return plan, remade(plan.source)
    except (TypeError, ValueError, AttributeError, IndexError, KeyError) as error:
        refuse_memory(error)
        if isinstance(error, BinsparseError):
            raise
        raise work.damaged("plan") from error


def begin(address: str, plan: Plan, source: Source, *, sent: bool = False) -> Work:
    """Write a plan into the folder of a work, or read the same plan there. sent: other processes need the source.

    Raises ContainerError for another plan.
    """
    text = plan.text()
    store_at(address).create("plan", b"".join(_sealed([text.encode()])))
    there, digest = stored_plan(address)
    mine, others = (json.loads(x) for x in (text, there.text()))
    if differing := [name for name in mine if mine[name] != others[name] and name not in ("threads", "id")]:
        what = f"has the work of another build, which differs in {', '.join(differing)}; pass another work="
        raise ContainerError(Problem(address, what))
    work = Work(address, digest)
    _BEGUN[work] = there, source
    if sent and "kind" not in plan.source:
        work.put("source", [_pickled(source)])
    return work


def stored_plan(address: str) -> tuple[Plan, str]:
    """The plan in a folder, and its digest. Raises PathMissingError, ContainerError."""
    raw = store_at(address).get("plan")
    text = bytes(Work(address, "")._checked("plan", raw))
    given = load_json(text, replace(DEFAULT_LIMITS, header_bytes=2**28))
    if not isinstance(given, dict) or given.get("version") != VERSION or set(given) != {x.name for x in fields(Plan)}:
        raise ContainerError(Problem("plan", "is of another version of this program; begin again in another folder"))
    try:
        plan = Plan(**{**given, "shape": checked_sizes(given["shape"])})
        check(plan)
    except (BinsparseError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"is damaged: {error!s:.200}; start the build again in another folder"
        raise ContainerError(Problem("plan", what)) from error
    return plan, hashlib.sha256(text).hexdigest()[:16]


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
