"""Arrays of integers, bit-packed in chunks of 128. A slice decodes only the chunks that it needs.

A `Stream` decodes any layout of such chunks: words, and the offset of each chunk. `BitPacked` is the layout of the data
types `bitpacked[…]`, one array of uint32:

    count of the numbers (2 words, the lower first), number of planes
    for each plane: the number of four-word rows before each chunk and in total, then the first number of each chunk,
                    if the codec stores differences
    for each plane: the words of its chunks

A plane is 32 bits of every number. Integers of up to 32 bits, sign-extended, have one plane. Integers of 64 bits have a
plane of the lower bits, and one of the higher bits unless these are all zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import kernels, parallel
from ..arrays import Array, LazyArray, Parts, Pieces, Sliceable, cut, one_piece
from ..errors import ArrayError, Problem
from ..kernels.codecs import CHUNK, DELTA, PLAIN, STEPPING, ZIGZAG

# The wrappers of the data-type grammar.
CODECS = {"bitpacked": PLAIN, "bitpacked_delta": DELTA, "bitpacked_zigzag": ZIGZAG}
_HEAD_WORDS = 3
_BYTES_MOVED = 4  # for each number
_MIN_CHUNK = 2**14  # items, decoded in about the time of a call
_MAX_CHUNK = 2**17  # items, which fit in the cache and in a decoded chunk of the store


class Encoded(NamedTuple):
    """Packed numbers. words: of all chunks; offsets: int64, the number of words before each chunk and in total; starts:
    the first number of each chunk.
    """

    words: Array
    offsets: Array
    starts: Array


def encode(values: Array, codec: int) -> Encoded:
    """Pack one-dimensional uint32 numbers. The last chunk is padded with the last number."""
    chunks = -(-len(values) // CHUNK)
    numbers = np.empty(chunks * CHUNK, np.uint32)
    numbers[: len(values)], numbers[len(values) :] = values, values[-1:]
    widths = np.zeros(chunks, np.int64)
    words = np.empty(chunks * CHUNK, np.uint32)  # untouched pages take no memory
    end = int(kernels.bitpacking.pack((0,) * codec, kernels.readable(numbers), widths, words))
    offsets = np.zeros(chunks + 1, np.int64)
    np.cumsum(4 * widths, out=offsets[1:])
    return Encoded(words[:end], offsets, numbers[::CHUNK].copy())  # a copy, so that `values` can be freed


class Stream(LazyArray):
    """Packed uint32 numbers. A slice checks and decodes only its chunks.

    path: the name in errors. offsets(c, d): int64, the number of words before the chunks c … d - 1, as stored. starts:
    the first number of each chunk, if the codec stores differences. `nbytes` is the size of the words. Slices raise
    ArrayError.
    """

    def __init__(
        self, path: str, codec: int, count: int, words: Sliceable, offsets: Parts, starts: Sliceable | None = None
    ) -> None:
        super().__init__(count, np.dtype(np.uint32), 4 * len(words))
        self._path = path
        self._codec = codec
        self._words = words
        self._offsets = offsets
        self._starts = starts

    def part(self, start: int, stop: int) -> Array:
        first, last = start // CHUNK, -(-stop // CHUNK)
        offsets = self._checked(first, last)
        words = self._items(self._words, int(offsets[0]), int(offsets[-1]), "words")
        starts = kernels.readable(np.empty(0, np.uint32))
        if self._codec in STEPPING:
            assert self._starts is not None
            starts = self._items(self._starts, first, last, "first numbers of chunks")
        out = np.empty((last - first) * CHUNK, np.uint32)
        unpack, codec = kernels.bitpacking.unpack, (0,) * self._codec
        arguments = codec, words, kernels.readable(offsets - offsets[0]), starts
        parallel.each(lambda x: unpack(*arguments, x[0] // CHUNK, x[1] // CHUNK, out), shares_of_chunks(len(out)))
        return out[start - first * CHUNK : stop - first * CHUNK]

    def _items(self, stored: Sliceable, begin: int, end: int, what: str) -> Array:
        """The stored items from `begin` to `end`, in the form that kernels require."""
        items = stored[begin:end] if begin < end else np.empty(0, np.uint32)
        if len(items) != end - begin:
            raise ArrayError(Problem(self._path, f"its {what} end at {begin + len(items)}, before {end}"))
        return kernels.readable(items, np.uint32)

    def _checked(self, first: int, last: int) -> Array:
        """The offsets of these chunks and of the end of the last."""
        offsets = self._offsets(first, last + 1)
        if len(offsets) != last + 1 - first:
            raise ArrayError(
                Problem(self._path, f"has {first + len(offsets)} offsets of chunks, fewer than {last + 1}")
            )
        steps = np.diff(offsets)
        if steps.view(np.uint64).max(initial=0) > CHUNK or np.bitwise_or.reduce(steps) % 4:  # also if negative
            at = int(np.argmax((steps < 0) | (steps > CHUNK) | (steps % 4 != 0)))
            what = f"expected 0 … 32 times four words, got {int(steps[at])}"
            raise ArrayError(Problem(f"{self._path}: chunk {first + at}", what))
        if offsets[0] < 0 or offsets[-1] > len(self._words) or (first == 0 and offsets[0] != 0):
            what = f"are at words {int(offsets[0])} … {int(offsets[-1])} of {len(self._words)}"
            raise ArrayError(Problem(self._path, f"the chunks {first} … {last - 1} {what}"))
        return offsets


def shares_of_chunks(count: int) -> Sequence[tuple[int, int]]:
    """`shares`, rounded to chunks."""
    return [(a // CHUNK * CHUNK, b // CHUNK * CHUNK) for a, b in parallel.shares(count, _BYTES_MOVED)]


class BitPacked(LazyArray):
    """The numbers of an array of a `bitpacked[…]` type. A slice decodes only its chunks.

    stored: uint32 in the layout above, in memory or lazy. wrapper: one of CODECS. dtype: of the numbers. path: the name
    of the array. The constructor and slices raise ArrayError.
    """

    def __init__(self, stored: Sliceable, wrapper: str, dtype: np.dtype[Any], path: str) -> None:
        self._path, self._wrapper, self._stored = path, wrapper, stored
        codec = CODECS[wrapper]
        head = stored[:_HEAD_WORDS]
        if len(head) < _HEAD_WORDS:
            raise self._wrong(f"expected at least {_HEAD_WORDS} words, got {len(head)}")
        low, high, planes = map(int, head)
        count = low | high << 32
        chunks = -(-count // CHUNK)
        if planes not in ((1, 2) if dtype.itemsize == 8 else (1,)):
            raise self._wrong(f"{dtype} cannot have {planes} planes")
        each_plane = chunks + 1 + (chunks if codec in STEPPING else 0)
        begin = _HEAD_WORDS + planes * each_plane  # of the words
        if begin > len(stored):
            raise self._wrong(f"{count} numbers take at least {begin} words, got {len(stored)}")
        super().__init__(count, dtype, 4 * len(stored))
        together = getattr(stored, "chunk", 1) * count // len(stored)
        self.chunk = min(max(together, _MIN_CHUNK), _MAX_CHUNK)
        self._planes = []
        for plane in range(planes):
            at = _HEAD_WORDS + plane * each_plane
            rows = cut(stored, at, chunks + 1)
            length = 4 * int(rows[chunks:][0])
            words = cut(stored, begin, length)
            starts = cut(stored, at + chunks + 1, chunks) if codec in STEPPING else None
            self._planes.append(Stream(path, codec, count, words, _in_words(rows), starts))
            begin += length
        if begin != len(stored) or (count == 0 and begin != _HEAD_WORDS + planes):
            raise self._wrong(f"{count} numbers take {begin} words, got {len(stored)}")

    def _wrong(self, what: str) -> ArrayError:
        return ArrayError(Problem(self._path, f"is not bit-packed: {what}"))

    def verify(self) -> None:
        if isinstance(self._stored, LazyArray):
            self._stored.verify()

    def part(self, start: int, stop: int) -> Array:
        if isinstance(self._stored, LazyArray) and stop - start == len(self):  # reads all, and checks the checksum
            return BitPacked(self._stored[:], self._wrapper, self.dtype, self._path).part(start, stop)
        low, *high = [plane[start:stop] for plane in self._planes]
        if self.dtype.itemsize == 4:
            return low.view(self.dtype)
        if self.dtype.itemsize == 8:
            numbers = low.astype(np.uint64)
            if high:
                numbers |= high[0].astype(np.uint64) << np.uint64(32)
            return numbers.view(self.dtype)
        wide = low.view(np.int32) if self.dtype.kind == "i" else low
        narrow = wide.astype(self.dtype)
        wrong = narrow != wide
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ArrayError(Problem(f"{self._path}[{start + at}]", f"{wide[at]} is out of the range of {self.dtype}"))
        return narrow


def _in_words(rows: Sliceable) -> Parts:
    return lambda first, last: 4 * rows[first:last].astype(np.int64)


def bitpack(values: Array, wrapper: str) -> Array:
    """An array of integers in the layout above. wrapper: one of CODECS. Raises ArrayError if there are too many."""
    return bitpack_pieces(one_piece(values), wrapper)


def bitpack_pieces(values: Pieces, wrapper: str) -> Array:
    """`bitpack` of an array in pieces. Memory contains one piece and the packed array."""
    codec, both = CODECS[wrapper], values.dtype.itemsize == 8
    planes: list[list[Encoded]] = [[], []]
    higher = False  # True if a number has more than 32 bits
    for piece in values.regrouped(CHUNK):
        for k, plane in enumerate(_planes(piece, both=both)):
            planes[k].append(encode(plane, codec))
            higher |= k == 1 and bool(plane.any())
    packed = planes[: 1 + higher]
    head = [np.array([values.length & 0xFFFFFFFF, values.length >> 32, len(packed)], np.uint32)]
    for parts in packed:
        offsets = np.cumsum(np.concatenate([np.zeros(1, np.int64), *(np.diff(x.offsets) for x in parts)]))
        if offsets[-1] > 4 * 0xFFFFFFFF:
            raise ArrayError(Problem("", "bit-packed arrays have at most 64 GiB; store the array unpacked"))
        head.append((offsets // 4).astype(np.uint32))
        head += [x.starts for x in parts] if codec in STEPPING else []
    return np.concatenate([*head, *(x.words for parts in packed for x in parts)])


def best_wrapper(values: Array) -> str:
    """The wrapper with the smallest result for an array."""
    planes = _planes(values)

    def size(wrapper: str) -> int:
        encoded = [encode(plane, CODECS[wrapper]) for plane in planes]
        return sum(len(packed.words) + len(packed.starts) * (CODECS[wrapper] in STEPPING) for packed in encoded)

    return min(CODECS, key=size)


def _planes(values: Array, *, both: bool = False) -> list[Array]:
    """The lower 32 bits of integers, and the higher 32 bits if they are not all zero, or with `both`."""
    if values.dtype.itemsize < 8:
        return [values.astype(np.int32 if values.dtype.kind == "i" else np.uint32, copy=False).view(np.uint32)]
    halves = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).view("<u4").reshape(-1, 2)
    low, high = halves[:, 0], halves[:, 1]
    return [half.astype(np.uint32) for half in ([low, high] if both or high.any() else [low])]
