"""Objects of any store of zarr's, by requests that fetch what is near together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.abc.store import Store as ZarrStore

from ...parallel import each
from ..zarr_internals import default_buffer_prototype, sync
from .codecs import Bytes
from .stores import Part, Use

_GAP = 2**15  # bytes between two parts that one request fetches, rather than two
_AT_ONCE = 2**6  # requests
_BATCH = 2**26  # bytes that are fetched before they are used, or made before they are sent
_NOTHING = np.empty(0, np.uint8)


class Requests:
    """Any store of zarr's. Parts that are close to each other are fetched by one request."""

    far = True

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

    def put_all(self, objects: Sequence[tuple[str, Callable[[], Iterable[Any]]]]) -> None:
        bytes_of = default_buffer_prototype().buffer.from_bytes
        made = each(lambda item: (item[0], bytes_of(b"".join(item[1]()))), objects)
        turn = asyncio.Semaphore(_AT_ONCE)

        async def put(key: str, data: Any) -> None:
            async with turn:
                await self._store.set(key, data)

        async def put_all() -> None:
            await _all(put(key, data) for key, data in made)

        sync(put_all())

    def _use(self, runs: list[list[int]], parts: Sequence[Part], use: Use) -> None:
        """Fetch runs of parts, and use each part."""

        async def fetch() -> list[Any]:
            turn = asyncio.Semaphore(_AT_ONCE)
            return await asyncio.gather(*(self._get(run, parts, turn) for run in runs), return_exceptions=True)

        def give(k: int, run: list[int], raw: Any) -> None:
            part = parts[k]
            if not isinstance(raw, np.ndarray):
                use(k, raw, _NOTHING)
                return
            begin = part.start - parts[run[0]].start
            mine = raw if part.length is None or part.start < 0 else raw[begin : begin + part.length]
            wanted = mine.size if part.length is None else part.length
            if mine.size != wanted or not part.tail <= mine.size <= part.most:
                use(k, EOFError(f"got {mine.size} bytes of {part.key}, expected {wanted}"), _NOTHING)
                return
            use(k, mine[: mine.size - part.tail], mine[mine.size - part.tail :])

        fetched = sync(fetch())
        each(lambda one: give(*one), [(k, run, raw) for run, raw in zip(runs, fetched, strict=True) for k in run])

    async def _get(self, run: list[int], parts: Sequence[Part], turn: asyncio.Semaphore) -> Bytes | None:
        """The bytes of a run of parts; None for a missing object."""
        first = parts[run[0]]
        asked: Any = None
        if first.start < 0:
            asked = SuffixByteRequest(-first.start)
        elif first.length is not None:
            asked = RangeByteRequest(first.start, max(parts[k].start + (parts[k].length or 0) for k in run))
        async with turn:
            buffer = await self._store.get(first.key, default_buffer_prototype(), asked)
        return None if buffer is None else np.asarray(buffer.as_numpy_array()).view(np.uint8)


async def _all(calls: Iterable[Any]) -> None:
    """Wait for all calls, then raise the first error: none of them is left behind."""
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def _runs(parts: Sequence[Part]) -> Iterator[list[int]]:
    """The parts that one request fetches each: those of an object that are close to each other."""
    run: list[int] = []
    end = 0
    for k in sorted(range(len(parts)), key=lambda k: (parts[k].key, parts[k].start)):
        part = parts[k]
        first = parts[run[0]] if run else None
        joins = (
            first is not None and first.key == part.key and first.start >= 0 and None not in (first.length, part.length)
        )
        if joins and part.start - end <= _GAP:
            run.append(k)
        else:
            if run:
                yield run
            run, end = [k], 0
        end = max(end, part.start + (part.length or 0))
    if run:
        yield run
