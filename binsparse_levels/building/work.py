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
from dataclasses import fields
from functools import lru_cache
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from ..arrays import Array, LazyArray, lazy
from ..containers.base import is_url
from ..containers.objects.bucket import Bucket, map_concurrently
from ..containers.objects.folder import Folder
from ..containers.objects.stores import WorkStore
from ..containers.replacing import part_of, real_path, remove
from ..errors import ContainerError, OptionError, PathMissingError, Problem, refuse_memory
from ..io.kinds import StoreLike, split_place
from .plan import Plan, Source

_TAIL_BYTES = 2**14  # at the end of an object, which are read first
_REMOVE_ATTEMPTS = 50  # to remove a folder, one every 0.1 s
_PAGE_BYTES = 2**18  # of an array that share a checksum


@lru_cache(8)
def store_at(address: str) -> WorkStore:
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


def begun(address: str, *parts: Any) -> dict[str, Any] | None:
    """The record that `begin` has stored in the folder for the same call; None if no build has begun.

    parts: dataclasses that identify the call, by the fields that they compare. Raises ContainerError for the work of
    another call.
    """
    try:
        record = json.loads(bytes(Work(address).get("begun")))
    except PathMissingError:
        return None
    differing = [name for name, x in _digests(parts).items() if record["call"].get(name) != x]
    if differing:
        what = f"has the work of another build, which differs in {', '.join(differing)}; pass another work="
        raise ContainerError(Problem(address, what))
    return dict(record)


def begin(address: str, kept: Mapping[str, Any], *parts: Any) -> None:
    """Store a record in the folder: digests of the call, and the values that a repeated call needs to continue."""
    if begun(address, *parts) is None:
        Work(address).put("begun", [json.dumps({**kept, "call": _digests(parts)}).encode()])


def _digests(parts: Iterable[Any]) -> dict[str, str]:
    there = [(each.name, getattr(part, each.name)) for part in parts for each in fields(part) if each.compare]
    return {name: hashlib.sha256(repr(x).encode()).hexdigest()[:16] for name, x in there}


class Seal(NamedTuple):
    """Where the pieces of an object begin, and where the last ends; the checksum (CRC-32C) of each."""

    starts: Array
    sums: Array


class Work(NamedTuple):
    """The folder of a build. digest: of the plan and its source, as this call has stored them there."""

    address: str
    digest: str = ""

    @property
    def plan(self) -> Plan:
        return (_KNOWN.get(self) or _loaded(self))[0]

    @property
    def source(self) -> Source:
        return (_KNOWN.get(self) or _loaded(self))[1]

    def done(self, stage: str) -> set[int]:
        """The numbers of the finished steps of a stage."""
        return {int(name) for name in store_at(self.address).names(stage) if name.isdecimal()}

    def put(self, key: str, pieces: Iterable[Any]) -> None:
        """Write an object: pieces, each one or more buffers, and their seal.

        It is flushed to the disk before it gets its name, unless the folder is removed at the end of this process.
        """
        store_at(self.address).put(key, _sealed(pieces), flush=not self.digest or self.plan.target is not None)

    def get(self, key: str) -> Array:
        """The bytes of an object. Raises PathMissingError, ContainerError."""
        seal = self.seal(key)
        return next(self._checked([(key, 0, len(seal.sums))], [seal]))

    def seal(self, key: str, size: int = _TAIL_BYTES) -> Seal:
        """The seal in the last `size` bytes of an object, or more. Raises PathMissingError, ContainerError."""
        store = store_at(self.address)
        whole = store.size(key)
        size = min(whole, size)
        (tail,) = store.ranges([(key, whole - size, size)])
        words = tail[size % 8 :].view(np.int64)
        count = int(words[-2]) if len(words) > 1 else -1
        if size < 16 * count + 16 <= whole:
            return self.seal(key, 16 * count + 16)
        seal = words[-2 * count - 2 :]
        if not 0 <= 2 * count <= len(words) - 2 or seal[-1] != _sum_of([seal[:-1]]):
            raise self.damaged(key)
        ends, sums = seal[:-2].reshape(2, count)
        return Seal(np.append(0, ends), sums)

    def size(self, key: str, number: int) -> int:
        """The number of bytes of a piece of an object."""
        starts = _seal_of(self, key).starts
        return int(starts[number + 1] - starts[number])

    def pieces(self, wanted: Sequence[tuple[str, int, int]]) -> Iterator[Array]:
        """The bytes of pieces of objects: a key, the first piece, and the one after the last. Raises ContainerError."""
        return self._checked(wanted, [_seal_of(self, key) for key, _, _ in wanted])

    def _checked(self, wanted: Sequence[tuple[str, int, int]], seals: Sequence[Seal]) -> Iterator[Array]:
        begins = [(int(seal.starts[a]), int(seal.starts[b])) for (_, a, b), seal in zip(wanted, seals, strict=True)]
        places = [(key, begin, end - begin) for (key, _, _), (begin, end) in zip(wanted, begins, strict=True)]
        for block, (key, a, b), seal in zip(store_at(self.address).ranges(places), wanted, seals, strict=True):
            cuts = itertools.pairwise((seal.starts[a : b + 1] - seal.starts[a]).tolist())
            if [_sum_of([block[x:y]]) for x, y in cuts] != seal.sums[a:b].tolist():
                raise self.damaged(key)
            yield block

    def last_pieces(self, keys: Sequence[str]) -> Iterator[Array]:
        """The last piece of each object."""
        counts = map_concurrently(lambda key: len(_seal_of(self, key).sums), keys)
        return self.pieces([(key, n - 1, n) for key, n in zip(keys, counts, strict=True)])

    def slice(self, key: str, start: int, stop: int) -> Array:
        """The bytes start … stop - 1 of an object. The pieces that contain them are checked."""
        if start == stop:
            return np.empty(0, np.uint8)
        starts = _seal_of(self, key).starts
        if not 0 <= start < stop <= starts[-1]:
            raise self.damaged(key)
        first, last = np.searchsorted(starts[1:], (start, stop - 1), side="right").tolist()
        (block,) = self.pieces([(key, first, last + 1)])
        return block[start - int(starts[first]) :][: stop - start]

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
        count = int(_seal_of(self, key).starts[-1]) // size
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
