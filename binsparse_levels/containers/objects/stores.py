"""Objects by key: those of a local folder, by threads; those of any store of zarr's, by requests."""

from __future__ import annotations

import asyncio
import itertools
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.abc.store import Store as ZarrStore

from ...parallel import each, get_threads
from ..direct import opened, read_in_steps, read_into, refuse_links
from ..replacing import remove
from ..zarr_internals import default_buffer_prototype, sync
from .codecs import Bytes

_GAP = 2**15  # bytes between two parts that one request fetches, rather than two
_AT_ONCE = 2**6  # requests
_BATCH = 2**26  # bytes that are fetched before they are used, or made before they are sent
_GRAIN = 2**18  # bytes that a thread reads and uses at least
_FEW_OBJECTS = 16  # so many files are opened to see whether they are there; for more, the folder is listed


class Part(NamedTuple):
    """Bytes of an object.

    start: where they begin; a negative number counts from the end. length: None is the rest of the object. most: more
    bytes are an error, before memory is allocated. tail: how many of these bytes go to a buffer of their own. into:
    makes the buffer for the others, where they have a place. whole: the size of the object, where it is known.
    """

    key: str
    start: int
    length: int | None
    most: int
    tail: int = 0
    into: Callable[[], Bytes] | None = None
    whole: int | None = None

    @property
    def bound(self) -> int:
        """Bytes that it takes at most."""
        return self.most if self.length is None else self.length


# What is called with the number of a part, its bytes, and those of its tail. Instead of bytes there is None where the
# object is missing, or the error of reading it. It is called in any order, and in any thread.
Use: TypeAlias = Callable[[int, "Bytes | Exception | None", Bytes], None]

_NOTHING = np.empty(0, np.uint8)


class Store(Protocol):
    """Objects by key. far: whether a request takes time worth counting."""

    far: bool

    def each(self, parts: Sequence[Part], use: Use) -> None:
        """Call `use` for each part. Parts of one object follow each other. Raises what `use` raises."""

    def put(self, objects: Sequence[tuple[str, Callable[[], Iterable[Any]]]]) -> None:
        """Write objects by key, each whole, from a function that makes buffers of bytes."""


class Folder:
    """A local folder, in which no link is followed. Bytes are read into the buffers where they belong."""

    far = False

    def __init__(self, root: str) -> None:
        self._root = root
        self._sound: set[str] = set()  # folders without a link above them

    def each(self, parts: Sequence[Part], use: Use) -> None:
        objects = [list(run) for _, run in itertools.groupby(range(len(parts)), lambda k: parts[k].key)]
        for numbers in objects:
            folder = parts[numbers[0]].key.rpartition("/")[0]
            if folder not in self._sound:
                refuse_links(self._root, folder)
                self._sound.add(folder)
        if len(objects) > _FEW_OBJECTS:
            objects = self._there(objects, parts, use)
        total = sum(part.bound for part in parts)
        shares = list(_shared(objects, parts, max(total // (2 * get_threads()), _GRAIN)))
        alone = len(shares) < get_threads()

        def read(share: list[list[int]]) -> None:
            for run in share:
                self._read([(k, parts[k]) for k in run], use, alone)

        each(read, shares)

    def put(self, objects: Sequence[tuple[str, Callable[[], Iterable[Any]]]]) -> None:
        each(lambda item: self._put(*item), objects)

    def _put(self, key: str, make: Callable[[], Iterable[Any]]) -> None:
        path = os.path.join(self._root, key)
        part = f"{path}.{uuid.uuid4().hex[:12]}.part"
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(part, "xb") as file:
                file.writelines(make())
            os.replace(part, path)
        except BaseException:
            remove(part)
            raise

    def _there(self, objects: list[list[int]], parts: Sequence[Part], use: Use) -> list[list[int]]:
        """The objects that are there. For parts of the others, `use` is called."""
        names: dict[str, set[str]] = {}
        there = []
        for numbers in objects:
            folder, _, name = parts[numbers[0]].key.rpartition("/")
            if folder not in names:
                try:
                    names[folder] = set(os.listdir(os.path.join(self._root, folder)))
                except FileNotFoundError:
                    names[folder] = set()
            if name in names[folder]:
                there.append(numbers)
            else:
                for k in numbers:
                    use(k, None, _NOTHING)
        return there

    def _read(self, run: list[tuple[int, Part]], use: Use, alone: bool) -> None:
        """Read parts of one object. alone: no other thread has work."""
        try:
            with opened(os.path.join(self._root, run[0][1].key)) as (handle, size):
                for k, part in run:
                    use(k, *_read_part(handle, size, part, alone))
        except FileNotFoundError:
            for k, _ in run:
                use(k, None, _NOTHING)


def _read_part(handle: int, size: int, part: Part, alone: bool) -> tuple[Bytes | Exception, Bytes]:
    start = part.start if part.start >= 0 else size + part.start
    count = size - start if part.length is None else part.length
    if part.whole not in (None, size):
        return ValueError(f"expected an object of {part.whole} bytes, got {size}"), _NOTHING
    if start < 0 or start + count > size or not part.tail <= count <= part.most:
        return ValueError(f"{count} bytes at {start} of an object of {size}, at most {part.most}"), _NOTHING
    payload = count - part.tail
    raw = np.empty(payload, np.uint8) if part.into is None else part.into()
    if raw.size != payload:
        return ValueError(f"a chunk of {raw.size} bytes is stored in {payload}"), _NOTHING
    (read_in_steps if alone else read_into)(handle, raw, start)
    tail = np.empty(part.tail, np.uint8) if part.tail else _NOTHING
    if part.tail:
        read_into(handle, tail, start + payload)
    return raw, tail


def _shared(objects: list[list[int]], parts: Sequence[Part], step: int) -> Iterator[list[list[int]]]:
    """Runs of parts of the same object, in shares of about `step` bytes."""
    share: list[list[int]] = []
    held = 0
    for numbers in objects:
        share.append([])
        for k in numbers:
            if held >= step:
                yield [run for run in share if run]
                share, held = [[]], 0
            share[-1].append(k)
            held += parts[k].bound
    yield [run for run in share if run]


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

    def put(self, objects: Sequence[tuple[str, Callable[[], Iterable[Any]]]]) -> None:
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
            found = await self._store.get(first.key, default_buffer_prototype(), asked)
        return None if found is None else np.asarray(found.as_numpy_array()).view(np.uint8)


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
