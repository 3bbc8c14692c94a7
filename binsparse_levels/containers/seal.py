"""A seal: checksums of the header and of every array, kept in the header, so that no change goes unnoticed.

It stands beside the descriptor, where other programs leave it alone: {"header": crc32c, "arrays": {name: crc32c}}.
The checksum of the header is that of its JSON without the seal, keys sorted, without white space.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from ..errors import ContainerError, Problem
from ..threads import each

RESERVED = "binsparse_levels:"  # how names of ours begin
SEAL = f"{RESERVED}crc32c"
_MARK = f"{RESERVED}sealed"  # so that a seal whose own name was changed is missed


def sealed(header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """The header with a seal."""
    sums = dict(zip(arrays, each(_of_array, arrays.values()), strict=True))
    return {**header, _MARK: True, SEAL: {"header": _of_header(header), "arrays": sums}}


def opened(header: Any) -> tuple[Any, dict[str, int]]:
    """The header without its seal, and the checksums of the arrays. Raises ContainerError where it was changed."""
    if not isinstance(header, dict) or not {SEAL, _MARK} & set(header):
        return header, {}
    rest = {key: value for key, value in header.items() if key not in (SEAL, _MARK)}
    seal = header.get(SEAL) if header.get(_MARK) is True else None
    if not isinstance(seal, dict) or not isinstance(seal.get("arrays"), dict) or seal.get("header") != _of_header(rest):
        raise ContainerError(Problem("header", "is not what its checksum says"))
    return rest, seal["arrays"]


def check_array(name: str, array: npt.NDArray[Any], sums: Mapping[str, int]) -> None:
    """Raise ContainerError for an array that is not what its checksum says, if it has one."""
    if sums and sums.get(name) != _of_array(array):
        raise ContainerError(Problem(name, "is not what its checksum says"))


def check_pieces(name: str, pieces: Iterable[npt.NDArray[Any]], sums: Mapping[str, int]) -> None:
    """`check_array` for an array that comes in pieces, one at least."""
    if sums and sums.get(name) != _of_pieces(pieces):
        raise ContainerError(Problem(name, "is not what its checksum says"))


def _of_array(array: npt.NDArray[Any]) -> int:
    return _of_pieces([array])


def _of_pieces(pieces: Iterable[npt.NDArray[Any]]) -> int:
    total, size, kind = 0, 0, ""
    for piece in pieces:
        little = np.ascontiguousarray(piece, piece.dtype.newbyteorder("<"))
        total = google_crc32c.extend(total, little.reshape(-1).view(np.uint8))
        size, kind = size + little.size, little.dtype.str
    return int(google_crc32c.extend(total, f"{kind} {size}".encode()))  # other types may have the same bytes


def _of_header(header: Mapping[str, Any]) -> int:
    return int(google_crc32c.value(json.dumps(header, sort_keys=True, separators=(",", ":")).encode()))
