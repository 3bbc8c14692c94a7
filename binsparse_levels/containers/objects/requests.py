"""Objects of any Zarr store. One request fetches parts that are close to each other."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.abc.store import Store as ZarrStore
from zarr.storage import ObjectStore

from ...parallel import each
from ...thresholds import THRESHOLDS
from ..base import in_turn, wrap_errors
from ..zarr_internals import default_buffer_prototype, sync
from .codecs import Bytes
from .stores import Object, Part, Use

_MAX_OPEN_REQUESTS = 2**6


class Requests:
    """Any Zarr store. One request fetches parts that are close to each other."""

    def __init__(self, store: ZarrStore) -> None:
        self._store = store

    def each(self, parts: Sequence[Part], use: Use) -> None:
        runs = _runs(parts)
        ends = itertools.accumulate(sum(parts[k].bound for k in run) for run in runs)
        for _, batch in itertools.groupby(zip(ends, runs, strict=True), lambda one: one[0] // THRESHOLDS.fetched_bytes):
            together = [run for _, run in batch]
            fetched = _gathered(self._get([parts[k] for k in run]) for run in together)
            given = [(k, parts[run[0]].start, raw) for run, raw in zip(together, fetched, strict=True) for k in run]
            each(lambda one: use(one[0], _cut(parts[one[0]], *one[1:])), given)

    def put_all(self, objects: Sequence[Object]) -> None:
        bytes_of = default_buffer_prototype().buffer.from_bytes
        made = each(lambda item: (item[0], bytes_of(b"".join(item[1]()))), objects)
        with wrap_errors(str(self._store)):
            _gathered(self._store.set(key, data) for key, data in made)

    def create(self, key: str, data: bytes) -> bool:
        """Write a new object. Returns False, without any change, if it exists.

        In a store without such a request, only threads of this process are kept from doing the same.
        """
        with wrap_errors(str(self._store)):
            if isinstance(self._store, ObjectStore):
                from obstore import put
                from obstore.exceptions import AlreadyExistsError

                try:
                    put(self._store.store, key, data, mode="create")
                except AlreadyExistsError:
                    return False
                return True
            with in_turn:
                new = not sync(self._store.exists(key))
                if new:
                    sync(self._store.set(key, default_buffer_prototype().buffer.from_bytes(data)))
                return new

    async def _get(self, run: list[Part]) -> Bytes | None:
        """The bytes of a run of parts; None for a missing object."""
        first = run[0]
        byte_range: Any = None
        if first.start < 0:
            byte_range = SuffixByteRequest(-first.start)
        elif first.length is not None:
            byte_range = RangeByteRequest(first.start, max(part.start + part.bound for part in run))
        buffer = await self._store.get(first.key, default_buffer_prototype(), byte_range)
        return None if buffer is None else np.asarray(buffer.as_numpy_array()).view(np.uint8)


def _cut(part: Part, begin: int, raw: Bytes | None) -> Bytes | None:
    """The bytes of a part, from those of its run, which begin at byte `begin` of the object."""
    if raw is None:
        return None
    if part.length is not None and part.start >= 0:
        raw = raw[part.start - begin :][: part.length]
    if raw.size > part.most or raw.size != (part.length or raw.size):
        raise EOFError(f"got {raw.size} bytes of {part.key}, expected {part.bound}")
    return raw


def _gathered(calls: Iterable[Any]) -> list[Any]:
    """The results of calls. An error is raised after all calls have ended."""

    async def gather() -> list[Any]:
        slots = asyncio.Semaphore(_MAX_OPEN_REQUESTS)

        async def run(call: Any) -> Any:
            async with slots:
                return await call

        return await asyncio.gather(*map(run, calls), return_exceptions=True)

    results = sync(gather())
    for error in results:
        if isinstance(error, BaseException):
            raise error
    return results


def _runs(parts: Sequence[Part]) -> list[list[int]]:
    """The parts of each request, by number: those of an object that are close to each other."""
    runs: list[list[int]] = []
    open_key, end = None, 0  # the object and the last byte of the last run, if it may grow
    for k in sorted(range(len(parts)), key=lambda k: (parts[k].key, parts[k].start)):
        key, start, length, _ = parts[k]
        if key == open_key and length is not None and start - end <= THRESHOLDS.gap_bytes:
            runs[-1].append(k)
        else:
            runs.append([k])
            open_key, end = (key, 0) if length is not None and start >= 0 else (None, 0)
        end = max(end, start + (length or 0))
    return runs
