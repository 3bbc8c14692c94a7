"""The entries of a tensor, some at a time, and the labels of their coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..engine.blocks import Block, blocks_of, read_block
from ..engine.tree import Tree
from ..levels.positions import Array
from ..tensors.mapping import Through
from ..tensors.tensor import Tensor

_AT_ONCE = 2**16  # entries that are read for the first ones


def blocks(tensor: Tensor, size: int, most: int | None = None) -> Iterator[tuple[Sequence[Array], Array]]:
    """The entries of a tensor, about `size` at a time: coordinates by dimension, and values.

    most: of a tensor that is read in parts and has more entries, parts of so many together.
    """
    held = tensor._held
    if isinstance(held, Through) and held.view is None:
        for coords, values in blocks(held.stored, size, most):
            yield held._seen(coords, values)
        return
    if isinstance(held, Tree) and not (tensor.structure is not None and tensor._padded):
        stored_at = np.argsort(tensor.format.order)
        for block in blocks_of(held, size, most) if len(held.values) else [Block(range(0))]:
            columns, values = read_block(held, block)
            yield [columns[k] for k in stored_at], values
        return
    coords, values = tensor.unpack()
    for start in range(0, max(len(values), 1), size):
        yield [x[start : start + size] for x in coords], values[start : start + size]


def first_entries(tensor: Tensor, count: int) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The first stored entries: coordinates, and the value. They are read as they are asked for."""
    at_once = (
        (tuple(int(x[k]) for x in coords), values[k])
        for coords, values in blocks(tensor, min(count, _AT_ONCE))
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
