"""The time that a kernel takes in several formats, measured."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import FormatError, LimitError, Problem
from ..formats.format import Format, coordinates
from ..tensors.changing import expanded, with_entries
from ..tensors.tensor import Tensor
from .products import einsum

SAMPLE = 2**20  # entries that are enough
_WIDTH = 16  # the size of dimensions that the tensor has not
_ROUNDS = 3


def kernel_seconds(tensor: Tensor, kernel: str, formats: Iterable[Format]) -> dict[Format, float]:
    """The seconds of an einsum in each format that holds the tensor, on one thread or several as they are set.

    kernel: its first operand is the tensor; the others are dense. A large tensor is cut along its first dimension, and
    the time is scaled by the number of entries.
    """
    sample, share = _sample(tensor)
    sizes = dict(zip(kernel.replace(" ", "").partition(",")[0].partition("->")[0], sample.shape, strict=False))
    others = kernel.replace(" ", "").partition("->")[0].split(",")[1:]
    dense = [np.ones([sizes.get(letter, _WIDTH) for letter in letters]) for letters in others]
    seconds = {}
    for format in formats:
        try:
            converted = sample.convert(format)
        except (FormatError, LimitError):  # the part, not the whole, may need more than a limit
            continue
        seconds[format] = min(_seconds(kernel, converted, dense) for _ in range(_ROUNDS + 1)) / share
    return seconds


def _sample(tensor: Tensor) -> tuple[Tensor, float]:
    """The entries of some first coordinates, and which share of all they are."""
    if not tensor.ndim:
        raise FormatError(Problem("kernel", "a scalar has no dimension; leave the kernel out"))
    coords, values = expanded(tensor).unpack()
    shape = tensor.shape
    if len(values) > SAMPLE:
        end = max(int(np.partition(coords[0], SAMPLE)[SAMPLE]), 1)
        kept = coords[0] < end
        share, shape = float(kept.mean()), (end, *shape[1:])
        coords, values = tuple(x[kept] for x in coords), values[kept]
    else:
        share = 1.0
    changes: dict[str, Any] = {"fill_value": None, "labels": None}
    return with_entries(tensor, coords, values, coordinates(tensor.ndim), shape=shape, **changes), share


def _seconds(kernel: str, tensor: Tensor, dense: list[Any]) -> float:
    begin = time.perf_counter()
    einsum(kernel, tensor, *dense)
    return time.perf_counter() - begin
