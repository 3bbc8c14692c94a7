"""Integers packed and unpacked, beside a plain copy of them; slices out of the middle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from binsparse_levels.formats.bitpacked import BitPacked, Encoded, Stream, bitpack, encode
from binsparse_levels.kernels.codecs import DELTA, LESS_ONE, PLAIN, ZIGZAG

from .row import Call, Maker, Row, Targets

_SLICES, _LENGTH = 1000, 1000


class Numbers(NamedTuple):
    """uint32 numbers, and the same packed."""

    values: Any
    codec: int
    packed: Encoded

    @property
    def stream(self) -> Stream:
        words, offsets, starts = self.packed
        return Stream("", self.codec, len(self.values), words, lambda first, last: offsets[first:last], starts)


def rows(n: int) -> list[Row]:
    writing: Targets = {"copy": (0.3, 1)}
    reading: Targets = {"copy": (0.5, 1)}
    found = []
    for name, (codec, make) in _KINDS.items():
        made = lambda _, codec=codec, make=make: _made(make(n), codec)  # noqa: E731
        found += [
            Row(f"encode, {name}", n, made, _encoded, {}, writing, _LIMITS),
            Row(f"decode, {name}", n, made, lambda data: data.stream[:], {}, reading, _LIMITS),
        ]
    return [
        *found,
        Row("encode, int64 pointers", n, lambda _: _pointers(n), _bitpacked, {}, {"copy": (0.2, None)}, _LIMITS),
        Row("decode, int64 pointers", n, _stored(n), _whole, {}, {"copy": (0.3, None)}, {"copy": _copied}),
        Row(
            f"decode, {_SLICES} slices of {_LENGTH}", n, _stored(n), _sliced, {}, {"copy": (0.01, None)},
            {"copy": _slices},
        ),
    ]  # fmt: skip


def _counts(n: int) -> Any:
    return np.random.default_rng(0).geometric(0.4, n).astype(np.uint32)


def _pointers(n: int) -> Any:
    return np.cumsum(np.random.default_rng(0).geometric(0.1, n)).astype(np.int64)


def _indices(n: int) -> Any:
    """Sorted in fibers of a thousand."""
    generator = np.random.default_rng(0)
    steps = generator.geometric(1 / 30, n).astype(np.uint32)
    sums = np.cumsum(steps, dtype=np.uint32)
    return sums - np.repeat(sums[::1000], 1000)[:n]


_KINDS: Mapping[str, tuple[int, Callable[[int], Any]]] = {
    "plain, counts": (PLAIN, _counts),
    "less one, counts": (LESS_ONE, _counts),
    "delta, pointers": (DELTA, lambda n: _pointers(n).astype(np.uint32)),
    "zigzag, indices": (ZIGZAG, _indices),
}


def _made(values: Any, codec: int) -> Numbers:
    return Numbers(values, codec, encode(values, codec))


def _encoded(data: Numbers) -> None:
    encode(data.values, data.codec)


def _bitpacked(values: Any) -> None:
    bitpack(values, "bitpacked_delta")


class Stored(NamedTuple):
    """Pointers, and the array that a container holds of them."""

    values: Any
    stored: Any

    @property
    def packed(self) -> BitPacked:
        return BitPacked(self.stored, "bitpacked_delta", self.values.dtype, "")

    @property
    def windows(self) -> list[slice]:
        begins = np.random.default_rng(1).integers(0, max(len(self.values) - _LENGTH, 1), _SLICES)
        return [slice(begin, begin + _LENGTH) for begin in begins.tolist()]


def _stored(n: int) -> Callable[[Any], Stored]:
    def make(_: Any) -> Stored:
        values = _pointers(n)
        return Stored(values, bitpack(values, "bitpacked_delta"))

    return make


def _whole(data: Stored) -> Any:
    return data.packed[:]


def _sliced(data: Stored) -> None:
    packed = data.packed
    for window in data.windows:
        packed[window]


def _slices(data: Stored) -> Call:
    def copy() -> None:
        for window in data.windows:
            data.values[window].copy()

    return copy


def _copied(data: Any) -> Call:
    """A plain copy into memory that is there."""
    values = getattr(data, "values", data)
    target = np.empty_like(values)
    return lambda: np.copyto(target, values)


_LIMITS: Mapping[str, Maker] = {"copy": _copied}
