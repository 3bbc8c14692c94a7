"""Objects of any store of zarr's, by requests that fetch what is near together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.abc.store import Store as ZarrStore

from ...parallel import each
from ..base import touching
from ..zarr_internals import default_buffer_prototype, sync
from .codecs import Bytes
from .stores import Object, Part, Use

_GAP = 2**15  # bytes between two parts that one request fetches, rather than two
_AT_ONCE = 2**6  # requests
_BATCH = 2**26  # bytes that are fetched before they are used


class Requests:
    """Any store of zarr's. Parts that are close to each other are fetched by one request."""

    def __init__(self, store: ZarrStore) -> None:
        self._store = store

    def each(self, parts: Sequence[Part], use: Use) -> None:
        batch: list[list[int]] = []
        size = 0
        for run in _runs(parts):
            batch.append(run)
            size += sum(parts[k].bound for k in run)
            if size >= _BATCH:
                self._use(batch, parts, use)
                batch, size = [], 0
        if batch:
            self._use(batch, parts, use)

    def put_all(self, objects: Sequence[Object]) -> None:
        bytes_of = default_buffer_prototype().buffer.from_bytes
        made = each(lambda item: (item[0], bytes_of(b"".join(item[1]()))), objects)
        with touching(str(self._store)):
            for error in sync(_together(self._store.set(key, data) for key, data in made)):
                if error is not None:
                    raise error

    def _use(self, runs: list[list[int]], parts: Sequence[Part], use: Use) -> None:
        """Fetch runs of parts, and use each part."""

        def give(k: int, first: Part, raw: Any) -> None:
            part = parts[k]
            if isinstance(raw, np.ndarray):
                if part.length is not None and part.start >= 0:
                    raw = raw[part.start - first.start :][: part.length]
                if raw.size > part.most or raw.size != (part.length or raw.size):
                    raw = EOFError(f"got {raw.size} bytes of {part.key}, expected {part.bound}")
            use(k, raw)

        fetched = sync(_together(self._get([parts[k] for k in run]) for run in runs))
        given = [(k, parts[run[0]], raw) for run, raw in zip(runs, fetched, strict=True) for k in run]
        each(lambda one: give(*one), given)

    async def _get(self, run: list[Part]) -> Bytes | None:
        """The bytes of a run of parts; None for a missing object."""
        first = run[0]
        asked: Any = None
        if first.start < 0:
            asked = SuffixByteRequest(-first.start)
        elif first.length is not None:
            asked = RangeByteRequest(first.start, max(part.start + part.bound for part in run))
        buffer = await self._store.get(first.key, default_buffer_prototype(), asked)
        return None if buffer is None else np.asarray(buffer.as_numpy_array()).view(np.uint8)


async def _together(calls: Iterable[Any]) -> list[Any]:
    """The result of each call, or its error: none of them is left behind."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def waited(call: Any) -> Any:
        async with turn:
            return await call

    return await asyncio.gather(*map(waited, calls), return_exceptions=True)


def _runs(parts: Sequence[Part]) -> list[list[int]]:
    """The numbers of the parts that one request fetches each: those of an object that are close to each other."""
    runs: list[list[int]] = []
    open_key, end = None, 0  # the object and the last byte of the last run, if it may grow
    for k in sorted(range(len(parts)), key=lambda k: (parts[k].key, parts[k].start)):
        key, start, length, _ = parts[k]
        if key == open_key and length is not None and start - end <= _GAP:
            runs[-1].append(k)
        else:
            runs.append([k])
            open_key, end = (key, 0) if length is not None and start >= 0 else (None, 0)
        end = max(end, start + (length or 0))
    return runs
