"""Arrays in chunks of a store, read as parts of its objects, with one bounded cache for the process."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection

import numpy as np

from ...arrays import Array, LazyArray, Size
from ...errors import IncompleteError, LimitError, Problem
from ...limits import Limits
from ...parallel import Lock
from ...thresholds import THRESHOLDS
from ..base import bounded_chunk, wrap_errors
from .chunks import ABSENT, Chunks
from .codecs import Bytes
from .stores import ArrayStore, Part, Use

_MAX_SMALL_CHUNKS = 2**16  # of an array whose chunks are smaller than
_MIN_CHUNK_BYTES = 64  # the overhead of a chunk is that of many items


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


class Objects:
    """The store of a tensor, and the owner of what its arrays have in the cache."""

    def __init__(self, store: ArrayStore, limits: Limits) -> None:
        self.store = store
        self.limits = limits
        self.owner = next(_owners)
        weakref.finalize(self, CACHE.drop, self.owner)


class ObjectArray(LazyArray):
    """An array in a store. Objects are neither listed nor probed: a missing chunk is detected when it is read.

    The chunks of a small read are cached.

    complete: a missing chunk is an error, else it contains fill values.
    """

    def __init__(self, name: str, objects: Objects, chunks: Chunks, nbytes: Size | None, *, complete: bool) -> None:
        super().__init__(chunks.length, chunks.dtype, nbytes)
        self.chunk = chunks.chunk
        self._name = name
        self._objects = objects
        self._chunks = chunks
        self._complete = complete
        self._checked = False

    def _check(self) -> None:
        """Raise LimitError for chunks that are too large, or too many."""
        if self._checked:
            return
        chunks, limits = self._chunks, self._objects.limits
        bounded_chunk(self._name, chunks.per_file, chunks.length, chunks.dtype.itemsize, limits)
        if chunks.indexed:
            limits.hold("array_bytes", chunks.index_bytes, self._name, "the size in bytes of the index of a shard")
        count = -(-chunks.length // chunks.chunk)
        if count > _MAX_SMALL_CHUNKS and chunks.chunk_bytes < _MIN_CHUNK_BYTES:
            what = f"has {count} chunks of {chunks.chunk_bytes} bytes; write it again with larger chunks"
            raise LimitError(Problem(self._name, what))
        self._checked = True

    def part(self, start: int, stop: int) -> Array:
        self._objects.limits.hold("array_bytes", (stop - start) * self.dtype.itemsize, self._name, "the size in bytes")
        items, chunk = np.empty(stop - start, self.dtype), self.chunk

        def use(number: int, decoded: Array) -> None:
            begin = number * chunk - start
            out = items[max(begin, 0) : begin + chunk]
            out[:] = decoded[max(-begin, 0) :][: len(out)]

        self._each(range(start // chunk, -(-stop // chunk)), use)
        return items

    def at(self, positions: Array) -> Array:
        items, chunk = np.empty(len(positions), self.dtype), self.chunk
        numbers, which = np.unique(positions // chunk, return_inverse=True)
        order = np.argsort(which, kind="stable")
        ends = np.cumsum(np.bincount(which, minlength=len(numbers)))
        by_chunk = dict(zip(numbers.tolist(), np.split(order, ends[:-1]), strict=True)) if len(numbers) else {}

        def use(number: int, decoded: Array) -> None:
            here = by_chunk[number]
            items[here] = decoded[positions[here] - number * chunk]

        self._each(by_chunk, use)
        return items

    def _each(self, numbers: Collection[int], use: Callable[[int, Array], None]) -> None:
        """Call `use` with the number and the items of each of these chunks, in any order and in any thread."""
        self._check()
        chunks, objects, missing = self._chunks, self._objects, []
        for number in numbers:
            known = CACHE.get((objects.owner, self._name, number))
            if known is None:
                missing.append(number)
            else:
                use(number, known)
        size, most = len(numbers) * chunks.chunk_bytes, objects.limits.cache_bytes
        kept = size * THRESHOLDS.cached_reads <= most or (len(numbers) <= THRESHOLDS.cached_chunks and size <= most)

        def decode(number: int, raw: Bytes | None) -> None:
            decoded = np.empty(chunks.chunk, self.dtype)
            with wrap_errors(self._name):
                if raw is not None:
                    chunks.decode(raw, decoded.view(np.uint8))
                elif self._complete:
                    raise IncompleteError(Problem(self._name, "chunks are missing"))
                else:
                    decoded[:] = chunks.fill
            if kept:
                CACHE.put((objects.owner, self._name, number), decoded, most)
            use(number, decoded)

        if missing:
            self._fetch(missing, decode)

    def _fetch(self, numbers: list[int], use: Use) -> None:
        """Call `use` with the number and the stored bytes of each of these chunks; None for a missing chunk."""
        chunks, parts, numbered = self._chunks, [], []
        with wrap_errors(self._name):
            indexes = self._indexes(numbers) if chunks.indexed else {}
            for number in numbers:
                file, k = divmod(number, chunks.per_index)
                if not chunks.indexed:
                    parts.append(Part(f"{chunks.folder}/{file}", 0, None, chunks.most))
                elif (index := indexes[file]) is None or (index[k] == ABSENT).all():
                    use(number, None)
                    continue
                else:
                    start, length = index[k].tolist()
                    if length > chunks.most:
                        what = f"a chunk of {chunks.chunk_bytes} bytes is stored in {length}, at {start} of its shard"
                        raise ValueError(what)
                    parts.append(Part(f"{chunks.folder}/{file}", start, length, chunks.most))
                numbered.append(number)
            self._objects.store.each(parts, lambda k, raw: use(numbered[k], raw))

    def _indexes(self, numbers: list[int]) -> dict[int, Array | None]:
        """The indexes of the shards of these chunks, by number; None for a missing shard."""
        chunks = self._chunks
        files = dict.fromkeys(number // chunks.per_index for number in numbers)
        owner, most = self._objects.owner, self._objects.limits.cache_bytes
        indexes = {file: CACHE.get((owner, self._name, -1 - file)) for file in files}
        todo = [file for file, index in indexes.items() if index is None]

        def use(k: int, raw: Bytes | None) -> None:
            if raw is not None:
                indexes[todo[k]] = index = chunks.parse_index(raw)
                CACHE.put((owner, self._name, -1 - todo[k]), index, most)

        size = chunks.index_bytes
        self._objects.store.each([Part(f"{chunks.folder}/{file}", -size, size, size) for file in todo], use)
        return indexes
