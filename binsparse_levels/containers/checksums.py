"""A seal: checksums (CRC-32C) of the header and of every array, stored in the header.

The seal is next to the descriptor, and other programs ignore it: {"header": crc32c, "arrays": {name: crc32c}}.
The checksum of the header is that of its JSON without the seal, keys sorted, without white space.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from ..arrays import Pieces
from ..errors import ContainerError, Problem
from ..formats.json import RESERVED

SEAL = f"{RESERVED}crc32c"
_ZEROS = np.zeros(2**20, np.uint8)
_MARK = f"{RESERVED}sealed"  # a second key, so that renaming the seal is detected


def sealed(header: Mapping[str, Any], sums: Mapping[str, int]) -> dict[str, Any]:
    """The header with a seal: the checksums of the arrays, and its own."""
    return {**header, _MARK: True, SEAL: {"header": of_header(header), "arrays": dict(sums)}}


class Sum:
    """The checksum of an array in pieces. It covers type and length too: different arrays may have the same bytes."""

    def __init__(self) -> None:
        self.bytes = self.size = 0

    def add(self, piece: npt.NDArray[Any]) -> npt.NDArray[Any]:
        plain = np.ascontiguousarray(piece, piece.dtype.newbyteorder("<"))
        self.bytes = google_crc32c.extend(self.bytes, plain.reshape(-1).view(np.uint8))
        self.size += piece.size
        return piece

    def join(self, bytes: int, size: int, itemsize: int) -> None:
        """Add a later part, of which another sum has been made. CRC is linear, so zeros stand for the items."""
        zeros = 0
        for begin in range(0, size * itemsize, len(_ZEROS)):
            some = _ZEROS[: size * itemsize - begin]
            self.bytes, zeros = google_crc32c.extend(self.bytes, some), google_crc32c.extend(zeros, some)
        self.bytes ^= zeros ^ bytes
        self.size += size

    def of(self, dtype: np.dtype[Any]) -> int:
        return int(google_crc32c.extend(self.bytes, f"{dtype.newbyteorder('<').str} {self.size}".encode()))


def summed(name: str, pieces: Pieces, sums: dict[str, int]) -> Pieces:
    """The same pieces. After the last piece, the checksum of the array is in `sums`."""

    def plan() -> Iterator[tuple[int, Callable[[], npt.NDArray[Any]]]]:
        total = Sum()
        for length, make in pieces.plan():
            yield length, lambda make=make: total.add(make())  # type: ignore[misc]
        sums[name] = total.of(pieces.dtype)

    return pieces._replace(plan=plan)


def unsealed(header: Any) -> tuple[Any, dict[str, int]]:
    """The header without its seal, and the checksums of the arrays. Raises ContainerError for a changed header."""
    if not isinstance(header, dict) or not {SEAL, _MARK} & set(header):
        return header, {}
    rest = {key: value for key, value in header.items() if key not in (SEAL, _MARK)}
    seal = header.get(SEAL) if header.get(_MARK) is True else None
    if not isinstance(seal, dict) or not isinstance(seal.get("arrays"), dict) or seal.get("header") != of_header(rest):
        raise ContainerError(Problem("header", "checksum mismatch"))
    return rest, seal["arrays"]


def check_array(name: str, pieces: Iterable[npt.NDArray[Any]], sums: Mapping[str, int]) -> None:
    """Raise ContainerError for an array, in pieces, that does not match its checksum, if it has one."""
    if not sums:
        return
    total, dtype = Sum(), np.dtype(np.uint8)
    for piece in pieces:
        dtype = total.add(piece).dtype
    if sums.get(name) != total.of(dtype):
        raise ContainerError(Problem(name, "checksum mismatch"))


def of_header(header: Mapping[str, Any]) -> int:
    """The checksum of a header."""
    return int(google_crc32c.value(json.dumps(header, sort_keys=True, separators=(",", ":")).encode()))
