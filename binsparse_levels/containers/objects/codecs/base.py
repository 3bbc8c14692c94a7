"""What a codec is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]

# What is wanted of a chunk: the ascending numbers of its blocks of so many bytes in which something is.
Wanted: TypeAlias = Callable[[int], Sequence[int]]


class Codec(NamedTuple):
    """A compression.

    encode: the stored bytes of the items of a chunk, with the settings that the metadata of its array name.
    expand: fills a buffer with the bytes of a chunk, and expands no more. Raises any error for damaged bytes.
    most: the bytes that so many take at most where they are stored. A larger chunk is not read.
    settings: those of a new array of a type, in the words of a version of Zarr.
    expand_some: as `expand`, of the blocks that are wanted at least; None where all of a chunk has to be expanded.
    """

    encode: Callable[[npt.NDArray[Any], Mapping[str, Any]], Any]
    expand: Callable[[Bytes, Bytes], None]
    most: Callable[[int], int]
    settings: Callable[[np.dtype[Any], int], Mapping[str, Any]]
    expand_some: Callable[[Bytes, Bytes, Wanted], None] | None = None
