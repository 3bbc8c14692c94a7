"""What gives the entries of a build: chunks by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import numpy as np

from ..arrays import Array
from ..errors import OptionError, Problem

Chunk: TypeAlias = tuple[list[Array], Array]  # a coordinate array for each dimension, and the values
Texts: TypeAlias = tuple[Array, Array]  # octets behind each other; where each text begins, and where the last ends


class Volume(NamedTuple):
    """How much a source holds. size: in bytes. most: the rows of the largest chunk. cut: row groups that are larger."""

    rows: int
    size: int
    files: int
    most: int
    cut: int = 0


class Source(Protocol):
    """Entries in numbered chunks. A number gives the same chunk again, in any process."""

    def __len__(self) -> int:
        """The number of chunks."""

    def read(self, number: int) -> Chunk:
        """A chunk."""

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        """How many entries a chunk has, and the coordinates of about `count` of them, taken at random."""

    def name(self, number: int) -> str:
        """The place of a chunk, for messages."""

    def places(self, number: int, rows: Array) -> list[str]:
        """The places of rows of a chunk, for messages."""

    def value_type(self) -> np.dtype[Any]:
        """The type that has all values, told by what is cheap to read. Raises ArrayError, OptionError."""

    def described(self) -> dict[str, Any]:
        """JSON that differs where the entries may differ. `kind` names the class in SOURCES if it suffices to make the
        source again.
        """


class Labelled(Source, Protocol):
    """A source that tells sizes, and whose dimensions may have labels. kinds: of the labels by dimension, or None."""

    kinds: list[str | None]

    def least(self, dimension: int) -> int:
        """A size that holds all coordinates, or labels, of a dimension. Raises OptionError where nothing tells it."""

    def coordinates(self, number: int) -> list[Array]:
        """The coordinates of a chunk, without those that are labels."""

    def labels(self, number: int, dimension: int) -> tuple[Array, Texts]:
        """Which label each row of a chunk has, below zero for a null, and the labels: one for each at least. Of a
        tensor, a range of its labels, each in a row of its own.
        """

    def held_labels(self, number: int, dimension: int) -> range | None:
        """The coordinates whose labels a chunk of a stored tensor has; None for a chunk whose rows say their labels."""


def sized(source: Source, shape: Sequence[int | None]) -> tuple[tuple[int, ...], list[int]]:
    """The shape, where None stands for sizes that are not known, and the dimensions whose labels are to be counted.

    Raises OptionError where the source does not tell a size.
    """
    if not hasattr(source, "least"):
        raise OptionError(Problem("shape", "expected the sizes of the dimensions; only files tell them"))
    told = cast(Labelled, source)
    open = [k for k, size in enumerate(shape) if size is None and told.kinds[k] is not None]
    return tuple(told.least(k) if size is None else size for k, size in enumerate(shape)), open


def picked(chunk: Chunk, seed: int, count: int) -> list[Array]:
    """The coordinates of random entries of a chunk."""
    coords, values = chunk
    at = np.random.default_rng(seed).choice(len(values), min(count, len(values)), replace=False)
    return [x[at] for x in coords]


class Rows:
    """Rows that have no place but their number in a chunk."""

    def places(self: Source, number: int, rows: Array) -> list[str]:
        return [f"{self.name(number)}, row {row}" for row in rows.tolist()]
