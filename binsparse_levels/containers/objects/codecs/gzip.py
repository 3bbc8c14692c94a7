"""gzip members."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from ...direct import inflate, most_stored
from .base import Bytes, Codec

_GZIP = 31  # zlib's number for gzip


def _encode(items: Any, settings: Mapping[str, Any]) -> bytes:
    packer = zlib.compressobj(settings["level"], wbits=_GZIP)
    return packer.compress(items.data) + packer.flush()


def _expand(raw: Bytes, out: Bytes) -> None:
    out[:] = inflate(raw, out.size, _GZIP)


CODEC = Codec(_encode, _expand, most_stored, lambda *_: {"level": 5})
