"""The folder of a build, local or in a bucket: whole objects that the steps leave, each with checksums."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from ..arrays import Array, LazyArray
from ..containers.base import is_url
from ..containers.objects.bucket import Bucket, side_by_side
from ..containers.objects.folder import Folder
from ..containers.objects.stores import Range, Store
from ..containers.replacing import part_of, real_path, remove
from ..engine.joining import of_segments
from ..errors import ContainerError, OptionError, PathMissingError, Problem, refuse_memory
from ..io.kinds import Place, split_place
from .plan import Plan
from .sources import Source

_TAIL = 2**14  # bytes at the end of an object that are read first
_PIECE = 2**18  # bytes of an array that have a checksum of their own


@lru_cache(8)
def store_at(address: str) -> Store:
    """The store at the path of a folder, which is made, or at a URL."""
    return Bucket(address) if is_url(address) else Folder(real_path(os.path.expanduser(address)))


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
        what = f"no folder for scratch files can be made here: {error.strerror}"
        raise ContainerError(Problem(path, what)) from error
    try:
        yield folder
    finally:
        remove(folder)


class Begun(NamedTuple):
    """What a folder of a work keeps of its build: its id, and the entries that a step holds in memory."""

    id: str
    rows: int


def begun(address: str, call: Mapping[str, Any]) -> Begun | None:
    """What the folder has of a build by the same call, or None where nothing is begun.

    Raises ContainerError for the work of another call.
    """
    work = Work(address)
    try:
        told = json.loads(bytes(work.get("begun")))
    except PathMissingError:
        return None
    differing = [name for name, x in _digests(call).items() if told["call"].get(name) != x]
    if differing:
        what = f"has the work of another build, which differs in {', '.join(differing)}; pass another work="
        raise ContainerError(Problem(address, what))
    return Begun(told["id"], told["rows"])


def begin(address: str, call: Mapping[str, Any], plan: Plan) -> None:
    """Keep in the folder which call has begun a build, unless it is known there, and what it takes to go on with it."""
    if begun(address, call) is not None:
        return
    told = {"id": plan.id, "rows": plan.rows, "call": _digests(call)}
    Work(address).put("begun", [json.dumps(told).encode()])


def _digests(call: Mapping[str, Any]) -> dict[str, str]:
    return {name: hashlib.sha256(repr(x).encode()).hexdigest()[:16] for name, x in call.items()}


class Seal(NamedTuple):
    """What follows the pieces of an object: where each ends, and its crc32c. The seal has a checksum too."""

    ends: Array
    sums: Array

    def range(self, key: str, first: int, stop: int) -> Range:
        """The bytes of the pieces first … stop - 1."""
        begin = int(self.ends[first - 1]) if first else 0
        return key, begin, int(self.ends[stop - 1]) - begin


class Work(NamedTuple):
    """The folder of a build. digest: of the plan and its source, as this call has left them there."""

    address: str
    digest: str = ""

    @property
    def store(self) -> Store:
        return store_at(self.address)

    @property
    def plan(self) -> Plan:
        return _loaded(self)[0]

    @property
    def source(self) -> Source:
        return _loaded(self)[1]

    def done(self, stage: str) -> set[int]:
        """The numbers of the steps of a stage that are done."""
        return {int(name) for name in self.store.names(stage) if name.isdecimal()}

    def put(self, key: str, pieces: Iterable[Any]) -> None:
        """Leave an object of pieces, each a buffer or several, and its seal.

        It is flushed to the disk before it gets its name, unless the folder goes with this process.
        """
        self.store.put(key, _sealed(pieces), flush=not self.digest or self.plan.target is not None)

    def get(self, key: str) -> memoryview:
        """The concatenated pieces of an object. Raises PathMissingError, ContainerError."""
        raw = self.store.get(key)
        seal = _unsealed(raw, len(raw))
        if seal is None:
            raise self.damaged(key)
        body = memoryview(raw)[: int(seal.ends[-1]) if len(seal.ends) else 0]
        self._check_pieces(key, body, seal.ends, seal.sums)
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

    def piece(self, key: str, number: int) -> tuple[Range, int]:
        """Where a piece of an object is, and its checksum."""
        seal = _seal_of(self, key)
        if number >= len(seal.ends):
            raise self.damaged(key)
        return seal.range(key, number, number + 1), int(seal.sums[number])

    def last_pieces(self, keys: Sequence[str]) -> Iterator[Array]:
        """The last piece of each object; so many at once as an object store serves."""

        return side_by_side(lambda key: next(self.ranges([self.piece(key, len(_seal_of(self, key).ends) - 1)])), keys)

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
        self._check_pieces(key, block, seal.ends[first : last + 1] - origin, seal.sums[first : last + 1])
        return block[start - origin : stop - origin]

    def _check_pieces(self, key: str, block: Any, ends: Array, sums: Array) -> None:
        for begin, end, known in zip([0, *ends.tolist()], ends.tolist(), sums.tolist(), strict=False):
            if _sum_of([block[begin:end]]) != known:
                raise self.damaged(key)

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

    def put_array(self, key: str, parts: Iterable[Array]) -> None:
        """Leave one array, given in parts."""
        self.put(key, itertools.chain.from_iterable(map(pieces_of, parts)))

    def array(self, key: str, dtype: np.dtype[Any]) -> LazyArray:
        """Such an array, read where it is sliced."""
        ends = _seal_of(self, key).ends
        size = dtype.itemsize
        return of_segments(
            np.array([int(ends[-1]) // size]), lambda _, a, b: self.slice(key, a * size, b * size).view(dtype), dtype
        )

    def damaged(self, key: str) -> ContainerError:
        """The error for an object that is not as a step has left it."""
        return ContainerError(Problem(f"{self.address}/{key}", "is damaged; start the build again in another folder"))

    def close(self) -> None:
        """Close the source in this process."""
        _KNOWN.pop(self, None)


def pieces_of(array: Array) -> Iterator[Any]:
    """The bytes of an array in pieces of bounded size, one at least."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return (raw[at : at + _PIECE].data for at in range(0, max(len(raw), 1), _PIECE))


@lru_cache(2**14)
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


# The plan and its source

_KNOWN: dict[Work, tuple[Plan, Source]] = {}


def open_work(address: str, plan: Plan, source: Source, *, sent: bool) -> Work:
    """The work of a plan. sent: other processes run steps, and find the plan and the source in the folder."""
    work = Work(address, plan.id)
    if sent:
        raw = _pickled((plan, source))
        work = Work(address, hashlib.sha256(raw).hexdigest())
    _KNOWN[work] = plan, source
    if sent:
        work.put("plan", [raw])
    return work


def _loaded(work: Work) -> tuple[Plan, Source]:
    """The plan and the source, read once in every process.

    The digest comes with the step from the process that has called, so that nothing else is unpickled.
    """
    if work not in _KNOWN:
        raw = bytes(work.get("plan"))
        if hashlib.sha256(raw).hexdigest() != work.digest:
            raise ContainerError(Problem(work.address, "has another plan now; begin again in another folder"))
        _KNOWN.clear()
        _KNOWN[work] = pickle.loads(raw)
    return _KNOWN[work]


def _pickled(source: Any) -> bytes:
    try:
        import cloudpickle as pickler
    except ImportError:
        import pickle as pickler
    try:
        return bytes(pickler.dumps(source))
    except Exception as error:
        raise OptionError(Problem("source", f"cannot be sent to other processes: {error}; give a path")) from error
