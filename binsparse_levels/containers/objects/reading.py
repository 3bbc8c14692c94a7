"""Arrays whose chunks lie in a store, read by parts of its objects, with one bounded cache for the process."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ...arrays import Array, LazyArray, Size
from ...errors import IncompleteError, LimitError, Problem
from ...limits import Limits
from ...parallel import each
from ..base import bounded_chunk, touching
from .chunks import Chunks
from .codecs import Bytes
from .stores import Part, PartStore

_SMALL_READ = 4  # chunks: of so few, the arrays of the same length are fetched too
_KEPT = 8  # a read of more than this part of the cache is not kept: it would push everything else out
_KEPT_RANGE = 64  # the same of a range in a near store, where a second read costs less than a copy of all that is read
_NEAR_CHUNK = 2**13  # items: so many in a near store cost little more to read than one of them
_SCATTERED = 64  # positions in a chunk: of more, all blocks are decoded
_ALWAYS_KEPT = 2  # chunks, where they fit
_MANY_CHUNKS = 2**16  # of one array; more of them
_LEAST_CHUNK = 64  # have so many bytes each on average, since each costs as much time as many items

Index: TypeAlias = npt.NDArray[np.uint64]
_Wanted: TypeAlias = "tuple[ObjectArray, int]"  # an array, and the number of a chunk or of an object


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
    """The store of a tensor, and what its arrays share: their part of the cache, and each other by name."""

    def __init__(self, store: PartStore, limits: Limits) -> None:
        self.store = store
        self.limits = limits
        self.arrays: weakref.WeakValueDictionary[str, ObjectArray] = weakref.WeakValueDictionary()
        self._owner = next(_owners)
        weakref.finalize(self, CACHE.drop, self._owner)

    def known(self, name: str, number: int) -> Array | None:
        """A decoded chunk of an array; of a negative number, the index of a shard."""
        return CACHE.get((self._owner, name, number))

    def keep(self, name: str, number: int, item: Array) -> None:
        CACHE.put((self._owner, name, number), item, self.limits.cache_bytes)


class ObjectArray(LazyArray):
    """An array in a store. Neither objects are listed nor probed: a chunk that is missing shows when it is read.

    Arrays of a level, and those below it, are as long as each other, and are read at the same positions. So a small
    read of one array in a far store fetches the chunks of all of them at once.

    A large read is decoded where its items belong. Of a small read, the chunks are kept. Items that lie in a near store
    as they are, are read alone.

    complete: a missing chunk is an error, else it holds fill values.
    """

    def __init__(self, name: str, objects: Objects, chunks: Chunks, nbytes: Size, *, complete: bool) -> None:
        super().__init__(chunks.length, chunks.dtype, nbytes)
        self._direct = chunks.plain and not objects.store.far
        self.chunk = min(chunks.chunk, _NEAR_CHUNK) if self._direct else chunks.chunk
        self._name = name
        self._objects = objects
        self._chunks = chunks
        self._complete = complete
        self._checked = False
        objects.arrays[name] = self

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
        self._check()
        items, chunk = np.empty(stop - start, self.dtype), self._chunks.chunk

        def place(number: int) -> Array:
            begin = number * chunk - start
            return items[max(begin, 0) : begin + chunk]

        def use(number: int, decoded: Array) -> None:
            out = place(number)
            out[:] = decoded[max(start - number * chunk, 0) :][: len(out)]

        def wanted(number: int, block: int) -> range:
            begin = number * chunk
            first, last = max(start - begin, 0) * item, (min(stop - begin, chunk)) * item
            return range(first // block, -(-last // block))

        numbers, item = range(start // chunk, -(-stop // chunk)), self.dtype.itemsize
        if self._direct:
            self._fill({number: place(number) for number in numbers}, start)
        else:
            self._each(numbers, use, wanted, place)
        return items

    def at(self, positions: Array) -> Array:
        if self._direct:
            return super().at(positions)
        self._check()
        items, chunk = np.empty(len(positions), self.dtype), self._chunks.chunk
        numbers, which = np.unique(positions // chunk, return_inverse=True)
        order = np.argsort(which, kind="stable")
        ends = np.cumsum(np.bincount(which, minlength=len(numbers)))
        asked = dict(zip(numbers.tolist(), np.split(order, ends[:-1]), strict=True)) if len(numbers) else {}
        item = self.dtype.itemsize

        def use(number: int, decoded: Array) -> None:
            here = asked[number]
            items[here] = decoded[positions[here] - number * chunk]

        def wanted(number: int, block: int) -> Sequence[int]:
            here = asked[number]
            if len(here) > _SCATTERED:
                return range(-(-chunk * item // block))
            first = (positions[here] - number * chunk) * item
            return sorted({*(first // block).tolist(), *((first + item - 1) // block).tolist()})

        self._each(asked, use, wanted)
        return items

    def _each(
        self,
        numbers: Collection[int],
        use: Callable[[int, Array], None],
        wanted: Callable[[int, int], Sequence[int]],
        place: Callable[[int], Array] | None = None,
    ) -> None:
        """Call `use` with the number and the items of each of these chunks, in any order and in any thread.

        wanted: the blocks of a chunk, of so many bytes, that `use` looks at. place: where the items of a chunk belong.
        A chunk that belongs there whole, and is not kept, is decoded there.
        """
        chunks, objects, missing = self._chunks, self._objects, []
        for number in numbers:
            known = objects.known(self._name, number)
            if known is None:
                missing.append(number)
            else:
                use(number, known)
        size, most = len(numbers) * chunks.chunk_bytes, objects.limits.cache_bytes
        share = _KEPT if place is None or objects.store.far else _KEPT_RANGE
        kept = size * share <= most or (len(numbers) <= _ALWAYS_KEPT and size <= most)

        def make(array: ObjectArray, number: int) -> Array:
            if not kept and place is not None and len(out := place(number)) == chunks.chunk:
                return out
            return np.empty(array._chunks.chunk, array.dtype)

        def done(array: ObjectArray, number: int, decoded: Array) -> None:
            if kept:
                objects.keep(array._name, number, decoded)
            if array is self and (kept or decoded.base is None):
                use(number, decoded)

        fetched: list[_Wanted] = [(self, number) for number in missing]
        if kept and len(missing) <= _SMALL_READ and objects.store.far:
            fetched += self._family(missing)
        if fetched:
            _Fetch(self, make, done, None if kept else wanted).run(fetched)

    def _family(self, numbers: list[int]) -> list[_Wanted]:
        """The chunks of arrays of the same length that are not in the cache."""
        others = [x for x in self._objects.arrays.values() if x is not self and abs(len(x) - len(self)) < 2]
        return [
            (other, k)
            for other in others
            if other._chunks.chunk == self._chunks.chunk
            for k in numbers
            if k * other._chunks.chunk < len(other) and self._objects.known(other._name, k) is None
        ]

    def _fill(self, places: dict[int, Array], start: int) -> None:
        """Fill these parts of chunks, whose items lie in the store as they are, from item `start` on."""
        chunks, size = self._chunks, self.dtype.itemsize
        parts: list[Part] = []
        numbers: list[int] = []
        whole = None if chunks.indexed else chunks.chunk_bytes

        def use(k: int, raw: Bytes | Exception | None, _: Bytes) -> None:
            with touching(self._name):
                if raw is None:
                    self._miss(places[numbers[k]])
                elif isinstance(raw, Exception):
                    raise raw

        with touching(self._name):
            indexes = _indexes(self._objects, [(self, number) for number in places])
            for number, out in places.items():
                there: tuple[int, int] | None = (0, chunks.chunk_bytes)
                if chunks.indexed:
                    there = _place(chunks, indexes[self._name, number // chunks.per_index], number)
                if there is None:
                    self._miss(out)
                    continue
                view = out.view(np.uint8)
                at = there[0] + max(start - number * chunks.chunk, 0) * size
                parts.append(Part(chunks.key(number), at, view.size, view.size, 0, lambda view=view: view, whole))  # type: ignore[misc]
                numbers.append(number)
            self._objects.store.each(parts, use)

    def _miss(self, out: Array) -> None:
        """Fill the place of a missing chunk. Raises IncompleteError."""
        if self._complete:
            raise IncompleteError(Problem(self._name, "chunks are missing"))
        self._chunks.fill_into(out)


def _place(chunks: Chunks, index: Index | Exception | None, number: int) -> tuple[int, int] | None:
    """Offset and length of a chunk in its shard, or None for a missing chunk. Raises what reading the index raised."""
    if isinstance(index, Exception):
        raise index
    return None if index is None else chunks.place(index, number % chunks.per_index)


class _Fetch:
    """Fetches and decodes chunks of one array, and of others of its family, whose faults are for those who read them.

    make: the buffer for the items of a chunk. done: is called with it when it is full. wanted: the blocks of a chunk
    that are decoded at least; None for all.
    """

    def __init__(
        self,
        asking: ObjectArray,
        make: Callable[[ObjectArray, int], Array],
        done: Callable[[ObjectArray, int, Array], None],
        wanted: Callable[[int, int], Sequence[int]] | None,
    ) -> None:
        self._asking = asking
        self._make = make
        self._done = done
        self._wanted = wanted

    def run(self, wanted: Sequence[_Wanted]) -> None:
        objects = self._asking._objects
        wholes = self._wholes(wanted) if objects.store.far else {}
        singles = [x for x in wanted if (x[0]._name, x[1] // x[0]._chunks.per_index) not in wholes]
        parts: list[Part] = []
        uses: list[Callable[[Bytes | Exception | None, Bytes], None]] = []
        with touching(self._asking._name):
            indexes = _indexes(objects, singles)
            for array, number in singles:
                self._plan(array, number, indexes, parts, uses)
            for members in wholes.values():
                chunks = members[0][0]._chunks
                most = chunks.per_index * chunks.most + chunks.index_bytes
                parts.append(Part(chunks.key(members[0][1]), 0, None, most))
                uses.append(lambda raw, _, members=members: self._use_shard(members, raw))  # type: ignore[misc]
            objects.store.each(parts, lambda k, raw, tail: uses[k](raw, tail))

    def _wholes(self, wanted: Sequence[_Wanted]) -> dict[tuple[str, int], list[_Wanted]]:
        """The shards that are fetched whole, by one request: their indexes are unknown, and most of them is wanted."""
        shards: dict[tuple[str, int], list[_Wanted]] = {}
        for array, number in wanted:
            if array._chunks.indexed:
                shards.setdefault((array._name, number // array._chunks.per_index), []).append((array, number))
        wholes = {}
        for (name, file), members in shards.items():
            chunks = members[0][0]._chunks
            there = -(-min(chunks.length - file * chunks.per_file, chunks.per_file) // chunks.chunk)
            if 2 * len(members) >= there and self._asking._objects.known(name, -1 - file) is None:
                wholes[name, file] = members
        return wholes

    def _plan(
        self,
        array: ObjectArray,
        number: int,
        indexes: dict[tuple[str, int], Index | Exception | None],
        parts: list[Part],
        uses: list[Callable[[Bytes | Exception | None, Bytes], None]],
    ) -> None:
        """Add the part of a chunk, and what is done with its bytes."""
        chunks = array._chunks
        place: tuple[int, int | None] | None = (0, None)
        if chunks.indexed:
            try:
                place = _place(chunks, indexes[array._name, number // chunks.per_index], number)
            except Exception as error:
                self._use(array, number, error, _NOTHING, None)
                return
        if place is None:
            self._use(array, number, None, _NOTHING, None)
            return
        made: list[Array] = []

        def into() -> Bytes:
            made.append(self._make(array, number))
            return made[0].view(np.uint8)

        where = into if chunks.compression == "none" else None
        parts.append(Part(chunks.key(number), *place, chunks.most, chunks.tail, where))
        uses.append(lambda raw, tail: self._use(array, number, raw, tail, made[0] if made else None))

    def _use_shard(self, members: list[_Wanted], raw: Bytes | Exception | None) -> None:
        """Decode chunks out of the bytes of their shard."""
        array, first = members[0]
        chunks = array._chunks
        index: Index | Exception | None = raw if isinstance(raw, Exception) else None
        if isinstance(raw, np.ndarray):
            index = _parsed(array, first // chunks.per_index, raw[-chunks.index_bytes :].copy())

        def use(member: _Wanted) -> None:
            try:
                place = _place(chunks, index, member[1])
                if place is None or not isinstance(raw, np.ndarray):
                    self._use(*member, None, _NOTHING, None)
                    return
                stored = raw[place[0] : sum(place)]
                if stored.size < place[1]:
                    raise EOFError("a shard ends before its chunks do")
            except Exception as error:
                self._use(*member, error, _NOTHING, None)
                return
            end = stored.size - chunks.tail
            self._use(*member, stored[:end], stored[end:], None)

        each(use, members)

    def _use(
        self, array: ObjectArray, number: int, raw: Bytes | Exception | None, tail: Bytes, made: Array | None
    ) -> None:
        """Decode a chunk. made: the buffer that was made for its bytes, if they were read there."""
        try:
            with touching(array._name):
                decoded = self._make(array, number) if made is None else made
                if raw is None:
                    array._miss(decoded)
                elif isinstance(raw, Exception):
                    raise raw
                else:
                    wanted = None if self._wanted is None else partial(self._wanted, number)
                    array._chunks.decode(raw, tail, decoded.view(np.uint8), wanted)
            self._done(array, number, decoded)
        except Exception:
            if array is self._asking:
                raise


_NOTHING = np.empty(0, np.uint8)


def _indexes(objects: Objects, wanted: Sequence[_Wanted]) -> dict[tuple[str, int], Index | Exception | None]:
    """The indexes of the shards of these chunks, by name of the array and number of the object."""
    indexes: dict[tuple[str, int], Index | Exception | None] = {}
    todo: list[_Wanted] = []
    for array, number in wanted:
        file = number // array._chunks.per_index
        if array._chunks.indexed and (array._name, file) not in indexes:
            indexes[array._name, file] = known = objects.known(array._name, -1 - file)
            if known is None:
                todo.append((array, file))

    def use(k: int, raw: Bytes | Exception | None, _: Bytes) -> None:
        array, file = todo[k]
        indexes[array._name, file] = _parsed(array, file, raw) if isinstance(raw, np.ndarray) else raw

    if todo:
        sizes = [array._chunks.index_bytes for array, _ in todo]
        keys = [array._chunks.key(file * array._chunks.per_index) for array, file in todo]
        objects.store.each([Part(key, -size, size, size) for key, size in zip(keys, sizes, strict=True)], use)
    return indexes


def _parsed(array: ObjectArray, file: int, raw: Bytes) -> Index | Exception:
    """The index of a shard, which is kept; or what is wrong with it."""
    try:
        index = array._chunks.parse_index(raw)
    except Exception as error:
        return error
    array._objects.keep(array._name, -1 - file, index)
    return index
