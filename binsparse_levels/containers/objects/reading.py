"""Arrays in chunks of a store, read as parts of its objects, with one bounded cache for the process."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import TypeAlias

import numpy as np

from ...arrays import Array, LazyArray, Size
from ...errors import IncompleteError, LimitError, Problem
from ...limits import Limits
from ...log import DEBUG, LOG
from ...parallel import Lock, each
from ...thresholds import THRESHOLDS
from ..base import bounded_chunk, check_items, wrap_errors
from .chunks import ABSENT, Chunks
from .codecs import Bytes
from .stores import ArrayStore, Part, Use

_MAX_SMALL_CHUNKS = 2**16  # of an array whose chunks are smaller than
_MAX_OPEN_READS = 16  # of zarr, which may wait for a server
_MIN_CHUNK_BYTES = 64  # the overhead of a chunk is that of many items

UseItems: TypeAlias = Callable[[int, Array], None]  # called with the number and the items of a chunk


class Cache:
    """The least recently used cache of indexes of shards and decoded chunks. Threads share it.

    A key is the number of its owner, the name of an array, and the number of a chunk; -1 - k is that of the index of
    shard k. The items of an owner are dropped when the owner is deleted.
    """

    def __init__(self) -> None:
        self._items: OrderedDict[tuple[int, str, int], Array] = OrderedDict()
        self._size = 0
        self._lock = Lock()  # reentrant: an owner may be deleted while this thread holds it

    def get(self, key: tuple[int, str, int]) -> Array | None:
        with self._lock:
            item = self._items.get(key)
            if item is not None:
                self._items.move_to_end(key)
            return item

    def put(self, key: tuple[int, str, int], item: Array, most: int) -> None:
        """Add an item, then drop old ones until at most `most` bytes are left."""
        with self._lock:
            if key not in self._items and item.nbytes <= most:
                self._items[key] = item
                self._size += item.nbytes
                while self._size > most:
                    self._size -= self._items.popitem(last=False)[1].nbytes

    def drop(self, owner: int) -> None:
        with self._lock:
            for key in [key for key in self._items if key[0] == owner]:
                self._size -= self._items.pop(key).nbytes


CACHE = Cache()
_owners = itertools.count()


class Owner:
    """The owner of what the arrays of a tensor have in the cache."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.number = next(_owners)
        weakref.finalize(self, CACHE.drop, self.number)


class Objects(Owner):
    """The store of a tensor."""

    def __init__(self, store: ArrayStore, limits: Limits) -> None:
        super().__init__(limits)
        self.store = store


class ChunkedArray(LazyArray):
    """An array in chunks. The chunks of a small read are cached."""

    _name: str
    _owner: Owner

    def _read(self, numbers: list[int], use: UseItems) -> None:
        """Call `use` with the number and the items of each of these chunks, in any order and in any thread."""
        raise NotImplementedError

    def _keeps(self, count: int) -> bool:
        """Return True if the chunks of a read of so many chunks are cached."""
        size, most = count * self.chunk * self.dtype.itemsize, self._owner.limits.cache_bytes
        return size * THRESHOLDS.cached_reads <= most or (count <= THRESHOLDS.cached_chunks and size <= most)

    def part(self, start: int, stop: int) -> Array:
        check_items(self._name, stop - start, self.dtype.itemsize, self._owner.limits)
        items, chunk = np.empty(stop - start, self.dtype), self.chunk

        def use(number: int, decoded: Array) -> None:
            begin = number * chunk - start
            out = items[max(begin, 0) : begin + chunk]
            out[:] = decoded[max(-begin, 0) :][: len(out)]

        self._each(range(start // chunk, -(-stop // chunk)), use)
        return items

    def at(self, positions: Array) -> Array:
        if (positions[1:] < positions[:-1]).any():
            ascending, inverse = np.unique(positions, return_inverse=True)
            return self.at(ascending)[inverse]
        items, chunk = np.empty(len(positions), self.dtype), self.chunk
        if not len(positions):
            return items
        numbers = positions // chunk
        ends = np.append(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1, len(positions))
        slices = dict(zip(numbers[ends - 1].tolist(), map(slice, [0, *ends.tolist()], ends.tolist()), strict=False))

        def use(number: int, decoded: Array) -> None:
            here = slices[number]
            items[here] = decoded.take(positions[here] - number * chunk)

        self._each(slices, use)
        return items

    def _each(self, numbers: Collection[int], use: UseItems) -> None:
        """Call `use` with the number and the items of each of these chunks, from the cache if they are there."""
        owner, missing = self._owner, []
        for number in numbers:
            known = CACHE.get((owner.number, self._name, number))
            if known is None:
                missing.append(number)
            else:
                use(number, known)
        if LOG.isEnabledFor(DEBUG):
            LOG.debug("%s: %d of %d chunks are in the cache", self._name, len(numbers) - len(missing), len(numbers))
        if not missing:
            return
        kept = self._keeps(len(numbers))

        def keep(number: int, decoded: Array) -> None:
            if kept:
                CACHE.put((owner.number, self._name, number), decoded, owner.limits.cache_bytes)
            use(number, decoded)

        self._read(missing, keep)


class CachedArray(ChunkedArray):
    """An array that other code reads. Texts are not cached, because their size is unknown."""

    def __init__(self, name: str, objects: Objects, array: LazyArray) -> None:
        super().__init__(array.shape, array.dtype, lambda: array.nbytes)
        self.chunk, self._name, self._owner, self._array = array.chunk, name, objects, array

    def _keeps(self, count: int) -> bool:
        small = self.chunk * self.dtype.itemsize < _MIN_CHUNK_BYTES
        return not small and self.dtype.kind not in "OT" and super()._keeps(count)

    def part(self, start: int, stop: int) -> Array:
        few = self._keeps(-(-stop // self.chunk) - start // self.chunk)
        return super().part(start, stop) if few else self._array.part(start, stop)

    def at(self, positions: Array) -> Array:
        few = self._keeps(len(np.unique(positions // self.chunk)))
        return super().at(positions) if few else self._array.at(positions)

    def _read(self, numbers: list[int], use: UseItems) -> None:
        def read(number: int) -> None:
            start = number * self.chunk
            use(number, self._array.part(start, min(start + self.chunk, len(self))))

        each(read, numbers, _MAX_OPEN_READS)


class ObjectArray(ChunkedArray):
    """An array in a store. Objects are neither listed nor probed: a missing chunk is detected when it is read.

    complete: a missing chunk is an error, else it contains fill values.
    """

    def __init__(self, name: str, objects: Objects, chunks: Chunks, nbytes: Size | None, *, complete: bool) -> None:
        super().__init__(chunks.length, chunks.dtype, nbytes)
        self.chunk, self._name, self._owner, self._store = chunks.chunk, name, objects, objects.store
        self._chunks, self._complete, self._checked = chunks, complete, False

    def _each(self, numbers: Collection[int], use: UseItems) -> None:
        if not self._checked:  # before a loop over all chunks
            self._check()
            self._checked = True
        super()._each(numbers, use)

    def _check(self) -> None:
        """Raise LimitError for chunks that are too large, or too many."""
        chunks, limits = self._chunks, self._owner.limits
        bounded_chunk(self._name, chunks.chunk, chunks.length, chunks.dtype.itemsize, limits)
        if chunks.index:
            limits.hold("array_bytes", chunks.index_bytes, self._name, "the size in bytes of the index of a shard")
        count = -(-chunks.length // chunks.chunk)
        if count > _MAX_SMALL_CHUNKS and chunks.chunk_bytes < _MIN_CHUNK_BYTES:
            what = f"has {count} chunks of {chunks.chunk_bytes} bytes; write it again with larger chunks"
            raise LimitError(Problem(self._name, what))

    def _read(self, numbers: list[int], use: UseItems) -> None:
        chunks, sizes = self._chunks, list[int]()

        def decode(number: int, raw: Bytes | None) -> None:
            decoded = np.empty(chunks.chunk, self.dtype)
            with wrap_errors(self._name):
                if raw is not None:
                    sizes.append(raw.size)
                    chunks.decode(raw, decoded.view(np.uint8))
                elif self._complete:
                    raise IncompleteError(Problem(self._name, "chunks are missing"))
                else:
                    decoded[:] = chunks.fill
            use(number, decoded)

        self._fetch(numbers, decode)
        LOG.debug("%s: %d bytes for %d chunks", self._name, sum(sizes), len(numbers))

    def _fetch(self, numbers: list[int], use: Use) -> None:
        """Call `use` with the number and the stored bytes of each of these chunks; None for a missing chunk."""
        chunks, parts, numbered = self._chunks, [], []
        most = chunks.most
        with wrap_errors(self._name):
            indexes = self._indexes(numbers) if chunks.index else {}
            for number in numbers:
                file, k = divmod(number, chunks.per_index)
                if not chunks.index:
                    parts.append(Part(f"{chunks.folder}/{file}", 0, None, most))
                elif (index := indexes[file]) is None or (place := index[k].tolist()) == [ABSENT, ABSENT]:
                    use(number, None)
                    continue
                else:
                    start, length = place
                    if length > most:
                        what = f"a chunk of {chunks.chunk_bytes} bytes is stored in {length}, at {start} of its shard"
                        raise ValueError(what)
                    parts.append(Part(f"{chunks.folder}/{file}", start, length, most))
                numbered.append(number)
            self._store.each(parts, lambda k, raw: use(numbered[k], raw))

    def _indexes(self, numbers: list[int]) -> dict[int, Array | None]:
        """The indexes of the shards of these chunks, by number; None for a missing shard."""
        chunks = self._chunks
        files = dict.fromkeys(number // chunks.per_index for number in numbers)
        owner, most = self._owner.number, self._owner.limits.cache_bytes
        indexes = {file: CACHE.get((owner, self._name, -1 - file)) for file in files}
        todo = [file for file, index in indexes.items() if index is None]

        def use(k: int, raw: Bytes | None) -> None:
            if raw is not None:
                indexes[todo[k]] = index = chunks.parse_index(raw)
                CACHE.put((owner, self._name, -1 - todo[k]), index, most)
                LOG.debug("%s: %d bytes for the index of shard %d", self._name, raw.size, todo[k])

        size = chunks.index_bytes
        start = 0 if chunks.index == "start" else -size
        self._store.each([Part(f"{chunks.folder}/{file}", start, size, size) for file in todo], use)
        return indexes
