"""Zarr arrays of one dimension in any store: by ranges of its objects, many requests at once, with a bounded cache."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np
import numpy.typing as npt
from zarr.abc.store import RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from ..arrays import Array, LazyArray, Pieces, Size
from ..errors import IncompleteError, Problem
from ..limits import Limits
from ..parallel import each
from .base import touching
from .zarr_direct import ABSENT, Bytes, Chunks

_GAP = 2**15  # bytes between two chunks that one request fetches, rather than two
_AT_ONCE = 2**6  # requests
_BATCH = 2**26  # bytes of items that are fetched before they are decoded, or encoded before they are sent
_SMALL_READ = 4  # chunks: of so few, the arrays of the same length are fetched too
_KEPT = 8  # a read of more than this part of the cache is not kept: it would push everything else out


class Cache:
    """The shard indexes and decoded chunks that were used last, up to a number of bytes. Threads may share it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: OrderedDict[tuple[str, int], Array] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int]) -> Array | None:
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: tuple[str, int], item: Array) -> None:
        with self._lock:
            if key not in self._held and item.nbytes <= self.most:
                self._held[key] = item
                self._size += item.nbytes
            while self._size > self.most:
                self._size -= self._held.popitem(last=False)[1].nbytes


class Objects:
    """The store of a tensor, and what its arrays share: the cache, and each other by name."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self.store = store
        self.limits = limits
        self.cache = Cache(limits.cache_bytes)
        self.arrays: dict[str, ObjectArray] = {}


class ObjectArray(LazyArray):
    """An array in a store. Neither objects are listed nor probed: a chunk that is missing shows when it is read.

    Arrays of a level, and those below it, are as long as each other, and are read at the same positions. So a small
    read of one array fetches the chunks of all of them at once.

    complete: a missing chunk is an error, else it holds fill values.
    """

    def __init__(self, name: str, objects: Objects, chunks: Chunks, nbytes: Size, *, complete: bool) -> None:
        super().__init__(chunks.length, chunks.dtype, nbytes)
        self.chunk = chunks.chunk
        self._name = name
        self._objects = objects
        self._cache = objects.cache
        self._chunks = chunks
        self._complete = complete
        objects.arrays[name] = self

    def _read(self, start: int, stop: int) -> Array:
        self._objects.limits.hold("array_bytes", (stop - start) * self.dtype.itemsize, self._name, "the size in bytes")
        items, chunk = np.empty(stop - start, self.dtype), self._chunks.chunk

        def use(number: int, decoded: Array) -> None:
            begin = number * chunk - start
            out = items[max(begin, 0) : begin + chunk]
            out[:] = decoded[max(-begin, 0) :][: len(out)]

        self._each(range(start // chunk, -(-stop // chunk)), use)
        return items

    def _gather(self, positions: Array) -> Array:
        items, chunk = np.empty(len(positions), self.dtype), self._chunks.chunk
        numbers, which = np.unique(positions // chunk, return_inverse=True)
        order = np.argsort(which, kind="stable")
        ends = np.cumsum(np.bincount(which, minlength=len(numbers)))
        wanted = dict(zip(numbers.tolist(), np.split(order, ends[:-1]), strict=True)) if len(numbers) else {}

        def use(number: int, decoded: Array) -> None:
            here = wanted[number]
            items[here] = decoded[positions[here] - number * chunk]

        self._each(wanted, use)
        return items

    def _each(self, numbers: Collection[int], use: Callable[[int, Array], None]) -> None:
        """Call `use` with the number and the items of each of these chunks, in any order and in any thread."""
        chunks, missing = self._chunks, []
        for number in numbers:
            known = self._cache.get((self._name, number))
            if known is None:
                missing.append(number)
            else:
                use(number, known)
        kept = len(numbers) * chunks.chunk * self.dtype.itemsize * _KEPT <= self._cache.most

        def decode(fetched: tuple[int, Bytes | None]) -> None:
            use(fetched[0], self._decode(*fetched, kept))

        batch = max(_BATCH // (chunks.per_file * self.dtype.itemsize), 1) * chunks.per_index
        for at in range(0, len(missing), batch):
            part = missing[at : at + batch]
            with touching(self._name):
                fetched = sync(self._with_family(part) if kept and len(part) <= _SMALL_READ else self._fetched(part))
            each(decode, fetched)

    def _decode(self, number: int, stored: Bytes | None, kept: bool) -> Array:
        """The items of a chunk, from its bytes. Raises IncompleteError, ContainerError."""
        with touching(self._name):
            if stored is None and self._complete:
                raise IncompleteError(Problem(self._name, "chunks are missing"))
            fill = self._chunks.fill
            if stored is None:
                decoded = np.full(self._chunks.chunk, 0 if fill is None else fill, self.dtype)
            else:
                decoded = self._chunks.decode(stored)
        if kept:
            self._cache.put((self._name, number), decoded)
        return decoded

    async def _with_family(self, numbers: list[int]) -> list[tuple[int, Bytes | None]]:
        """`_fetched`, while the arrays of the same length fetch these chunks into the cache."""
        others = (
            other._fetch_ahead(numbers)
            for other in self._objects.arrays.values()
            if other is not self and other._chunks.chunk == self._chunks.chunk and abs(len(other) - len(self)) < 2
        )
        fetched, _ = await asyncio.gather(self._fetched(numbers), asyncio.gather(*others))
        return fetched

    async def _fetch_ahead(self, numbers: list[int]) -> None:
        there = range(-(-len(self) // self._chunks.chunk))
        missing = [k for k in numbers if k in there and self._cache.get((self._name, k)) is None]
        with contextlib.suppress(Exception):  # whoever reads them is told
            for number, stored in await self._fetched(missing):
                self._decode(number, stored, True)

    async def _fetched(self, numbers: Iterable[int]) -> list[tuple[int, Bytes | None]]:
        """The stored bytes of chunks, or None for a missing one. numbers: ascending."""
        turn = asyncio.Semaphore(_AT_ONCE)
        by_file = itertools.groupby(numbers, lambda number: number // self._chunks.per_index)
        found = await asyncio.gather(*(self._in_file(file, list(group), turn) for file, group in by_file))
        return list(itertools.chain.from_iterable(found))

    async def _in_file(self, file: int, numbers: list[int], turn: asyncio.Semaphore) -> list[tuple[int, Bytes | None]]:
        chunks, first = self._chunks, file * self._chunks.per_index
        there = -(-min(chunks.length - file * chunks.per_file, chunks.per_file) // chunks.chunk)
        index = self._cache.get((self._name, -1 - file)) if chunks.indexed else None
        if index is None and (not chunks.indexed or 2 * len(numbers) >= there):  # most of it: one request for all
            whole = await self._get(file, None, turn)
            if whole is None or not chunks.indexed:
                return [(number, whole) for number in numbers]
            index = chunks.parse_index(whole[-chunks.index_bytes :].copy())
            self._cache.put((self._name, -1 - file), index)
            return [(number, _within(whole, self._place(index, number - first), 0)) for number in numbers]
        if index is None:
            raw = await self._get(file, SuffixByteRequest(chunks.index_bytes), turn)
            if raw is None:
                return [(number, None) for number in numbers]
            index = chunks.parse_index(raw)
            self._cache.put((self._name, -1 - file), index)
        places = {number: self._place(index, number - first) for number in numbers}
        runs = _runs(places)
        parts = await asyncio.gather(*(self._get(file, RangeByteRequest(*run), turn) for run, _ in runs))
        found: list[tuple[int, Bytes | None]] = [(number, None) for number in numbers if places[number] is None]
        for ((start, _), members), part in zip(runs, parts, strict=True):
            found += [(number, None if part is None else _within(part, places[number], start)) for number in members]
        return found

    def _place(self, index: npt.NDArray[np.uint64], k: int) -> tuple[int, int] | None:
        """Offset and length of a chunk in its shard, or None for a missing one. Raises ValueError."""
        offset, stored = map(int, index[k])
        if offset == stored == ABSENT:
            return None
        self._chunks.check_sizes(offset, stored, offset + stored)
        return offset, stored

    async def _get(
        self, file: int, part: RangeByteRequest | SuffixByteRequest | None, turn: asyncio.Semaphore
    ) -> Bytes | None:
        async with turn:
            found = await self._objects.store.get(f"{self._chunks.folder}/{file}", default_buffer_prototype(), part)
        return None if found is None else np.asarray(found.as_numpy_array()).view(np.uint8)


def _within(raw: Bytes, place: tuple[int, int] | None, start: int) -> Bytes | None:
    """A chunk in bytes that begin at an offset of its shard. Raises EOFError."""
    if place is None:
        return None
    begin = place[0] - start
    if begin + place[1] > raw.size:
        raise EOFError("a shard ends before its chunks do")
    return raw[begin : begin + place[1]]


def _runs(places: Mapping[int, tuple[int, int] | None]) -> list[tuple[tuple[int, int], list[int]]]:
    """The ranges of bytes to fetch, and the chunks that lie in each. Chunks that are close to each other share one."""
    runs: list[tuple[tuple[int, int], list[int]]] = []
    for number, place in sorted(((n, p) for n, p in places.items() if p is not None), key=lambda item: item[1]):
        offset, end = place[0], place[0] + place[1]
        if runs and offset - runs[-1][0][1] <= _GAP:
            (start, stop), members = runs[-1]
            runs[-1] = ((start, max(stop, end)), [*members, number])
        else:
            runs.append(((offset, end), [number]))
    return runs


def write(store: Store, chunks: Chunks, pieces: Pieces) -> None:
    """Write all files of a new array: threads encode them, and many are sent at once."""
    step = max(_BATCH // (chunks.per_file * chunks.dtype.itemsize), 1)
    first = 0
    for piece in pieces.regrouped(chunks.per_file):
        parts = [piece[start : start + chunks.per_file] for start in range(0, len(piece), chunks.per_file)]
        for at in range(0, len(parts), step):
            files = each(functools.partial(_encoded, chunks), parts[at : at + step])
            sync(_put(store, chunks.folder, first + at, files))
        first += len(parts)


def _encoded(chunks: Chunks, items: Array) -> bytes:
    return b"".join(chunks.encoded(np.ascontiguousarray(items, chunks.dtype)))


async def _put(store: Store, folder: str, first: int, files: list[bytes]) -> None:
    make = default_buffer_prototype().buffer.from_bytes
    turn = asyncio.Semaphore(_AT_ONCE)

    async def put(number: int, data: bytes) -> None:
        async with turn:
            await store.set(f"{folder}/{number}", make(data))

    await asyncio.gather(*(put(first + k, data) for k, data in enumerate(files)))
