"""The folder of a build, local or in a bucket. Steps write whole objects into it, each with checksums."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import pickle
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from ..arrays import Array, LazyArray, lazy
from ..containers.base import is_url
from ..containers.objects.bucket import Bucket, map_concurrently
from ..containers.objects.folder import Folder
from ..containers.objects.stores import Range
from ..containers.replacing import part_of, real_path, remove
from ..errors import ContainerError, OptionError, PathMissingError, Problem, refuse_memory
from ..io.kinds import StoreLike, split_place
from .plan import Plan, Source

_TAIL_BYTES = 2**14  # at the end of an object, which are read first
_REMOVE_ATTEMPTS = 50  # to remove a folder, one every 0.1 s
_PAGE_BYTES = 2**18  # of an array that share a checksum


@lru_cache(8)
def store_at(address: str) -> Bucket | Folder:
    """The store at a URL, or at the path of a folder, which is created."""
    return Bucket(address) if is_url(address) else Folder(real_path(os.path.expanduser(address)))


@contextlib.contextmanager
def scratch(target: StoreLike) -> Iterator[str]:
    """A folder next to the target, or a temporary one for a URL or an open object. It is removed at the end."""
    path, _ = split_place(target)
    try:
        if isinstance(path, str) and not is_url(path):
            os.mkdir(folder := f"{part_of(os.path.realpath(path))}.d")
        else:
            folder = tempfile.mkdtemp()
    except OSError as error:
        what = f"no folder for scratch files can be created here: {error.strerror}"
        raise ContainerError(Problem(path, what)) from error
    try:
        yield folder
    finally:
        for _ in range(_REMOVE_ATTEMPTS):  # a step that Dask has cancelled may still write
            remove(folder)
            if not os.path.lexists(folder):
                break
            time.sleep(0.1)


def begun(address: str, call: Mapping[str, Any]) -> dict[str, Any] | None:
    """The record that `begin` has stored in the folder for the same call; None if no build has begun.

    Raises ContainerError for the work of another call.
    """
    try:
        record = json.loads(bytes(Work(address).get("begun")))
    except PathMissingError:
        return None
    differing = [name for name, x in _digests(call).items() if record["call"].get(name) != x]
    if differing:
        what = f"has the work of another build, which differs in {', '.join(differing)}; pass another work="
        raise ContainerError(Problem(address, what))
    return dict(record)


def begin(address: str, call: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Store a record in the folder: digests of the call, and the values that a repeated call needs to continue."""
    if begun(address, call) is None:
        Work(address).put("begun", [json.dumps({**kept, "call": _digests(call)}).encode()])


def _digests(call: Mapping[str, Any]) -> dict[str, str]:
    return {name: hashlib.sha256(repr(x).encode()).hexdigest()[:16] for name, x in call.items()}


class Seal(NamedTuple):
    """The end and the checksum (CRC-32C) of each piece of an object, stored after the pieces."""

    ends: Array
    sums: Array

    def range(self, key: str, first: int, stop: int) -> Range:
        """The bytes of the pieces first … stop - 1."""
        begin = int(self.ends[first - 1]) if first else 0
        return key, begin, int(self.ends[stop - 1]) - begin


class Work(NamedTuple):
    """The folder of a build. digest: of the plan and its source, as this call has stored them there."""

    address: str
    digest: str = ""

    @property
    def store(self) -> Bucket | Folder:
        return store_at(self.address)

    @property
    def plan(self) -> Plan:
        return _loaded(self)[0]

    @property
    def source(self) -> Source:
        return _loaded(self)[1]

    def done(self, stage: str) -> set[int]:
        """The numbers of the finished steps of a stage."""
        return {int(name) for name in self.store.names(stage) if name.isdecimal()}

    def put(self, key: str, pieces: Iterable[Any]) -> None:
        """Write an object: pieces, each one or more buffers, and their seal.

        It is flushed to the disk before it gets its name, unless the folder is removed at the end of this process.
        """
        self.store.put(key, _sealed(pieces), flush=not self.digest or self.plan.target is not None)

    def get(self, key: str) -> Array:
        """The bytes of an object. Raises PathMissingError, ContainerError."""
        seal = self.seal(key)
        return self.slice(key, 0, int(seal.ends[-1]), seal)

    def seal(self, key: str) -> Seal:
        """The seal at the end of an object. Raises PathMissingError, ContainerError."""
        whole = self.store.size(key)
        size = min(whole, _TAIL_BYTES)
        while True:
            (tail,) = self.store.ranges([(key, whole - size, size)])
            words = tail[size % 8 :].view(np.int64)
            count = int(words[-2]) if len(words) > 3 else 0
            needed = 16 * count + 16
            if not count > 0 or needed > whole:
                raise self.damaged(key)
            if needed <= size:
                break
            size = needed
        seal = words[-2 * count - 2 :]
        ends, sums = seal[:-2].reshape(2, count)
        ascend = (np.diff(ends, prepend=0) >= 0).all() and ends[-1] == whole - needed
        if seal[-1] != _sum_of([seal[:-1]]) or not ascend:
            raise self.damaged(key)
        return Seal(ends, sums)

    def piece(self, key: str, number: int) -> tuple[Range, int]:
        """The range of a piece of an object, and its checksum."""
        seal = _seal_of(self, key)
        if number >= len(seal.ends):
            raise self.damaged(key)
        return seal.range(key, number, number + 1), int(seal.sums[number])

    def last_pieces(self, keys: Sequence[str]) -> Iterator[Array]:
        """The last piece of each object, read concurrently."""
        return map_concurrently(
            lambda key: next(self.ranges([self.piece(key, len(_seal_of(self, key).ends) - 1)])), keys
        )

    def ranges(self, pieces: Sequence[tuple[Range, int]]) -> Iterator[Array]:
        """The bytes of pieces, given by range and checksum. Raises ContainerError for damaged ones."""
        found = self.store.ranges([place for place, _ in pieces])
        for block, (place, known) in zip(found, pieces, strict=True):
            if _sum_of([block]) != known:
                raise self.damaged(place[0])
            yield block

    def slice(self, key: str, start: int, stop: int, seal: Seal | None = None) -> Array:
        """The bytes start … stop - 1 of an object. The pieces that contain them are checked."""
        if start == stop:
            return np.empty(0, np.uint8)
        seal = seal or _seal_of(self, key)
        first, last = np.searchsorted(seal.ends, (start, stop - 1), side="right").tolist()
        if not 0 <= start < stop or last >= len(seal.ends):
            raise self.damaged(key)
        place = seal.range(key, first, last + 1)
        (block,) = self.store.ranges([place])
        ends = (seal.ends[first : last + 1] - place[1]).tolist()
        sums = [_sum_of([block[a:b]]) for a, b in itertools.pairwise([0, *ends])]
        if sums != seal.sums[first : last + 1].tolist():
            raise self.damaged(key)
        return block[start - place[1] : stop - place[1]]

    def save(self, key: str, **arrays: Any) -> None:
        """Write an object of arrays by name."""
        file = io.BytesIO()
        np.savez(file, **arrays)
        self.put(key, [file.getvalue()])

    def load(self, key: str) -> dict[str, Array]:
        """The arrays of an object. Raises ContainerError."""
        raw = self.get(key)
        try:
            with np.load(io.BytesIO(raw.data), allow_pickle=False) as found:
                return dict(found)
        except Exception as error:
            refuse_memory(error, key)
            raise self.damaged(key) from error

    def put_array(self, key: str, parts: Iterable[Array]) -> None:
        """Write an object of one array, given in parts."""
        self.put(key, itertools.chain.from_iterable(map(pages_of, parts)))

    def array(self, key: str, dtype: np.dtype[Any]) -> LazyArray:
        """An array that `put_array` has written, read on demand."""
        size = dtype.itemsize
        count = int(_seal_of(self, key).ends[-1]) // size
        return lazy(count, dtype, lambda a, b: self.slice(key, a * size, b * size).view(dtype))

    def damaged(self, key: str) -> ContainerError:
        """The error for a damaged object."""
        return ContainerError(Problem(f"{self.address}/{key}", "is damaged; start the build again in another folder"))


def pages_of(array: Array) -> Iterator[Any]:
    """The bytes of an array in pieces of bounded size, at least one."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return (raw[at : at + _PAGE_BYTES].data for at in range(0, max(len(raw), 1), _PAGE_BYTES))


def _sealed(pieces: Iterable[Any]) -> Iterator[Any]:
    """The buffers of pieces, and then their seal: ends, checksums, the number of pieces, a checksum of all these."""
    ends, sums, end = [], [], 0
    for piece in pieces:
        buffers = piece if isinstance(piece, list) else [piece]
        end += sum(memoryview(x).nbytes for x in buffers)
        ends.append(end)
        sums.append(_sum_of(buffers))
        yield from buffers
    seal = np.array([*ends, *sums, len(ends)], np.int64)
    yield np.append(seal, _sum_of([seal])).data


@lru_cache(2**14)
def _seal_of(work: Work, key: str) -> Seal:
    return work.seal(key)


def _sum_of(buffers: Iterable[Any]) -> int:
    total = 0
    for x in buffers:
        total = google_crc32c.extend(total, np.frombuffer(x, np.uint8) if memoryview(x).nbytes else b"")
    return int(total)


# The plan and its source

_KNOWN: dict[Work, tuple[Plan, Source]] = {}


@contextlib.contextmanager
def open_work(address: str, plan: Plan, source: Source, *, sent: bool = False) -> Iterator[Work]:
    """The work of a plan. sent: other processes run steps, and read the plan and the source from the folder."""
    raw = _pickled((plan, source)) if sent else b""
    work = Work(address, hashlib.sha256(raw).hexdigest() if sent else plan.id)
    _KNOWN[work] = plan, source
    try:
        if sent:
            work.put("plan", [raw])
        yield work
    finally:
        _KNOWN.pop(work, None)


def _loaded(work: Work) -> tuple[Plan, Source]:
    """The plan and the source, read once in every process.

    The calling process sends the digest with each step, so a process loads only the pickle of that caller.
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
        raise OptionError(Problem("source", f"cannot be sent to other processes: {error}; pass a path")) from error
