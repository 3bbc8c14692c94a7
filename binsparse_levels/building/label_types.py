"""Labels as octets in the order of the labels, and back as they are stored.

A text is its UTF-8. A number, a time or a decimal is a big-endian integer whose sign is turned round.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import ArrayError, Problem
from ..tensors.labels import TEXT, Column, stored_type
from .chunks import Texts
from .columns import arrow

_SIGN = np.uint64(2**63)
_DECIMAL = re.compile(r"decimal\((-?\d+)\)")


def kind_of(type: Any, name: str) -> str | None:
    """The kind of the labels in a column of this type of Arrow's; None for coordinates. Raises ArrayError.

    It is the type that is stored, or `decimal(SCALE)` for those that are stored as text.
    """
    pa = arrow()
    types = pa.types
    if types.is_integer(type):
        return None
    kind = type.value_type if types.is_dictionary(type) else type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return TEXT
    if types.is_boolean(kind):
        return "bool"
    if types.is_date(kind):
        return "datetime64[D]"
    if types.is_timestamp(kind):
        return f"datetime64[{kind.unit}{f', {kind.tz}' if kind.tz else ''}]"
    if types.is_decimal(kind) and kind.byte_width <= 16:
        return f"decimal({kind.scale})"
    what = f"holds {type}; coordinates are integers, and labels texts, times or decimals; cast it to one of these"
    raise ArrayError(Problem(f"columns.{name}", what))


def stored_kind(kind: str) -> str:
    """The type in which labels of a kind are stored."""
    return TEXT if _DECIMAL.fullmatch(kind) else kind


def keys_of(labels: Any) -> Texts:
    """The octets of labels, an array of Arrow's, behind each other; where each begins, and where the last ends."""
    pa, kind, count = arrow(), labels.type, len(labels)
    if pa.types.is_decimal(kind):
        wide = labels.cast(pa.decimal128(38, kind.scale))
        words = np.frombuffer(wide.buffers()[1] or b"", np.uint64).reshape(-1, 2)[wide.offset : wide.offset + count]
        return _big(np.stack([words[:, 1] ^ _SIGN, words[:, 0]], 1)), 16 * np.arange(count + 1)
    if pa.types.is_boolean(kind):
        labels = labels.cast(pa.uint8())
    elif pa.types.is_date(kind):
        labels = labels.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        labels = labels.cast(pa.int64())
    else:
        text = labels.cast(pa.large_string())
        _, ends, octets = text.buffers()
        held = np.frombuffer(ends, np.int64)[text.offset : text.offset + count + 1] if count else np.zeros(1, np.int64)
        return np.frombuffer(octets or b"", np.uint8)[held[0] : held[-1]], held - held[0]
    items = labels.to_numpy(zero_copy_only=False).astype(np.int64)
    return _big(items.view(np.uint64) ^ _SIGN), 8 * np.arange(count + 1)


def keys_of_column(column: Column, kind: str) -> Texts:
    """`keys_of` for stored labels in memory. Raises ArrayError for texts that are no labels of the kind."""
    items = column.items[:]
    if column.offsets is not None:
        begins = column.offsets[:]
        if (scale := _DECIMAL.fullmatch(kind)) is None:
            return items, begins
        pa = arrow()
        texts = pa.LargeStringArray.from_buffers(len(begins) - 1, pa.py_buffer(begins), pa.py_buffer(items))
        try:
            return keys_of(texts.cast(pa.decimal128(38, int(scale[1]))))
        except pa.ArrowException as error:
            what = f"a stored label is no {kind}: {error!s:.100}; cast the column to texts, dtype={{…: 'str'}}"
            raise ArrayError(Problem("labels", what)) from None
    if items.dtype.kind == "f":
        bits = items.astype(np.float64).view(np.uint64)
        words = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    elif items.dtype.kind == "u" and kind != "bool":
        words = items.astype(np.uint64)
    else:
        words = items.astype(np.int64).view(np.uint64) ^ _SIGN
    return _big(words), 8 * np.arange(len(items) + 1)


def _big(words: Array) -> Array:
    return words.astype(">u8").reshape(-1).view(np.uint8)


def labels_of(octets: Array, lengths: Array, kind: str) -> tuple[Array, Array]:
    """Labels as they are stored, and the length of each, from the octets that `keys_of` makes of them."""
    scale = _DECIMAL.fullmatch(kind)
    if kind == TEXT:
        return octets, lengths
    words = octets.view(">u8").astype(np.uint64)
    if scale is None:
        dtype = stored_type(kind)
        return (words if dtype.kind == "u" and kind != "bool" else (words ^ _SIGN).view(np.int64)).astype(
            dtype
        ), lengths
    pa, pairs = arrow(), words.reshape(-1, 2)
    raw = np.stack([pairs[:, 1], pairs[:, 0] ^ _SIGN], 1)
    made = pa.Array.from_buffers(pa.decimal128(38, int(scale[1])), len(raw), [None, pa.py_buffer(raw)])
    text, begins = keys_of(made.cast(pa.large_string()))
    return text, np.diff(begins)
