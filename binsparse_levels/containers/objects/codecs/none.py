"""Bytes as they are. They are read where they belong, so that mostly nothing is left to copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Bytes, Codec


def _encode(raw: Bytes, _: Mapping[str, Any]) -> Bytes:
    return raw


def _expand(raw: Bytes, out: Bytes) -> None:
    if raw is not out:
        out[:] = raw


CODEC = Codec(_encode, _expand, lambda size: size, {})
