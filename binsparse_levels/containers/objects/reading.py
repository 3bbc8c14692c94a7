"""Arrays whose chunks lie in a store, read by parts of its objects, with one bounded cache for the process."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection

import numpy as np

from ...arrays import Array, LazyArray, Size
from ...errors import IncompleteError, LimitError, Problem
from ...limits import Limits
from ..base import bounded_chunk, touching
from .chunks import ABSENT, Chunks
from .codecs import Bytes
from .stores import Part, PartStore, Use

_KEPT = 16  # a read of more than this part of the cache is not kept: it would push everything else out
_ALWAYS_KEPT = 2  # chunks, where they fit
_MANY_CHUNKS = 2**16  # of one array; more of them
_LEAST_CHUNK = 64  # have so many bytes each on average, since each costs as much time as many items


class Cache:
    """The indexes of shards and the decoded chunks that were used last. Threads share it.

    A key begins with the number of its owner. Nothing of an owner is left when the owner is gone.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[int, str, int], Array] = OrderedDict()
        self._size = 0
        self._lock = threading.RLock()  # an owner may go while this thread holds it

    def get(self, key: tuple[int, str, int]) -> Array | None:
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
            return held

    def put(self, key: tuple[int, str, int], item: Array, most: int) -> None:
        """Keep an item, and then no more than `most` bytes in all."""
        with self._lock:
            if key not in self._held and item.nbytes <= most:
                self._held[key] = item
                self._size += item.nbytes
                while self._size > most:
                    self._size -= self._held.popitem(last=False)[1].nbytes

    def drop(self, owner: int) -> None:
        with self._lock:
            for key in [key for key in self._held if key[0] == owner]:
                self._size -= self._held.pop(key).nbytes


CACHE = Cache()
_owners = itertools.count()


class Objects:
    """The store of a tensor, and the part of the cache that its arrays share."""

    def __init__(self, store: PartStore, limits: Limits) -> None:
        self.store = store
        self.limits = limits
        self._owner = next(_owners)
        weakref.finalize(self, CACHE.drop, self._owner)

    def known(self, name: str, number: int) -> Array | None:
        """A decoded chunk of an array; of a negative number, the index of a shard."""
        return CACHE.get((self._owner, name, number))

    def keep(self, name: str, number: int, item: Array) -> None:
        CACHE.put((self._owner, name, number), item, self.limits.cache_bytes)


class ObjectArray(LazyArray):
    """An array in a store. Neither objects are listed nor probed: a chunk that is missing shows when it is read.

    A large read is decoded where its items belong. Of a small read, the chunks are kept.

    complete: a missing chunk is an error, else it holds fill values.
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
        if count > _MANY_CHUNKS and chunks.chunk_bytes < _LEAST_CHUNK:
            what = f"has {count} chunks of {chunks.chunk_bytes} bytes; write it again with larger chunks"
            raise LimitError(Problem(self._name, what))
        self._checked = True

    def part(self, start: int, stop: int) -> Array:
        self._objects.limits.hold("array_bytes", (stop - start) * self.dtype.itemsize, self._name, "the size in bytes")
        items, chunk = np.empty(stop - start, self.dtype), self.chunk

        def place(number: int) -> Array:
            begin = number * chunk - start
            return items[max(begin, 0) : begin + chunk]

        def use(number: int, decoded: Array) -> None:
            out = place(number)
            out[:] = decoded[max(start - number * chunk, 0) :][: len(out)]

        self._each(range(start // chunk, -(-stop // chunk)), use, place)
        return items

    def at(self, positions: Array) -> Array:
        items, chunk = np.empty(len(positions), self.dtype), self.chunk
        numbers, which = np.unique(positions // chunk, return_inverse=True)
        order = np.argsort(which, kind="stable")
        ends = np.cumsum(np.bincount(which, minlength=len(numbers)))
        asked = dict(zip(numbers.tolist(), np.split(order, ends[:-1]), strict=True)) if len(numbers) else {}

        def use(number: int, decoded: Array) -> None:
            here = asked[number]
            items[here] = decoded[positions[here] - number * chunk]

        self._each(asked, use)
        return items

    def _each(
        self,
        numbers: Collection[int],
        use: Callable[[int, Array], None],
        place: Callable[[int], Array] | None = None,
    ) -> None:
        """Call `use` with the number and the items of each of these chunks, in any order and in any thread.

        place: where the items of a chunk belong. A chunk that belongs there whole, and is not kept, is decoded there.
        """
        self._check()
        chunks, objects, missing = self._chunks, self._objects, []
        for number in numbers:
            known = objects.known(self._name, number)
            if known is None:
                missing.append(number)
            else:
                use(number, known)
        size, most = len(numbers) * chunks.chunk_bytes, objects.limits.cache_bytes
        kept = size * _KEPT <= most or (len(numbers) <= _ALWAYS_KEPT and size <= most)

        def decode(number: int, raw: Bytes | None) -> None:
            out = place(number) if place is not None and not kept else None
            whole = out is not None and len(out) == chunks.chunk
            decoded = out if out is not None and whole else np.empty(chunks.chunk, self.dtype)
            with touching(self._name):
                if raw is not None:
                    chunks.decode(raw, decoded.view(np.uint8))
                elif self._complete:
                    raise IncompleteError(Problem(self._name, "chunks are missing"))
                else:
                    decoded[:] = chunks.fill
            if kept:
                objects.keep(self._name, number, decoded)
            if not whole:
                use(number, decoded)

        if missing:
            self._fetch(missing, decode)

    def _fetch(self, numbers: list[int], use: Use) -> None:
        """Call `use` with the number and the stored bytes of each of these chunks; None for a missing chunk."""
        chunks, parts, asked = self._chunks, [], []
        with touching(self._name):
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
                asked.append(number)
            self._objects.store.each(parts, lambda k, raw: use(asked[k], raw))

    def _indexes(self, numbers: list[int]) -> dict[int, Array | None]:
        """The indexes of the shards of these chunks, by number; None for a missing shard."""
        chunks = self._chunks
        files = dict.fromkeys(number // chunks.per_index for number in numbers)
        indexes = {file: self._objects.known(self._name, -1 - file) for file in files}
        todo = [file for file, index in indexes.items() if index is None]

        def use(k: int, raw: Bytes | None) -> None:
            if raw is not None:
                indexes[todo[k]] = index = chunks.parse_index(raw)
                self._objects.keep(self._name, -1 - todo[k], index)

        size = chunks.index_bytes
        self._objects.store.each([Part(f"{chunks.folder}/{file}", -size, size, size) for file in todo], use)
        return indexes
