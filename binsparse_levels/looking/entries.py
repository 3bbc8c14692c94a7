"""The entries of a tensor, some at a time, and the labels of their coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..tensors.tensor import Tensor

_AT_ONCE = 2**16  # entries that are read for the first ones


def first_entries(tensor: Tensor, count: int) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The first stored entries: coordinates, and the value. They are read as they are asked for."""
    at_once = (
        (tuple(int(x[k]) for x in coords), values[k])
        for coords, values in tensor._held.blocks(tensor._pad(), min(count, _AT_ONCE))
        for k in range(len(values))
    )
    for number, entry in enumerate(at_once, 1):
        yield entry
        if number == count:
            return


def labels_of(tensor: Tensor) -> list[Any]:
    """The labels of each dimension, or None."""
    return [tensor.labels(name) for name in tensor.dims] if tensor.dims else [None] * tensor.ndim


def labelled(coords: Sequence[int], known: Sequence[Any]) -> list[str]:
    """The label of each coordinate, or else the coordinate."""
    pairs = zip(coords, known, strict=True)
    return [str(x if labels is None or x >= len(labels) else labels[x]) for x, labels in pairs]
