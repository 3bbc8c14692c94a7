"""A stored tensor, and the rows that are merged into it, as one source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import ArrayError, OptionError, Problem
from ..tensors.labels import Column
from .chunks import Chunk, Source, Texts, Volume
from .label_types import stored_kind
from .stored_tensors import Tensors
from .values import common_type


class Onto:
    """The chunks of a tensor, and behind them those of another source.

    Coordinates and labels of the tensor stay as they are. Labels that only the other source has come behind, in their
    order.
    """

    def __init__(self, old: Tensors, more: Source) -> None:
        self.old, self._more = old, more
        self.kinds = _joined_kinds(old, more)
        old.kinds = self.kinds  # a decimal is stored as text, and sorted as a number

    def _of(self, number: int) -> tuple[Any, int]:
        """The source of a chunk, and its number there."""
        return (self.old, number) if number < len(self.old) else (self._more, number - len(self.old))

    def __len__(self) -> int:
        return len(self.old) + len(self._more)

    @property
    def volume(self) -> Volume:
        old: Volume = self.old.volume
        more: Volume = self._more.volume  # type: ignore[attr-defined]
        files = old.files + more.files
        return Volume(old.rows + more.rows, old.size + more.size, files, max(old.most, more.most), more.cut)

    def read(self, number: int) -> Chunk:
        source, at = self._of(number)
        found: Chunk = source.read(at)
        return found

    def coordinates(self, number: int) -> list[Array]:
        source, at = self._of(number)
        found: list[Array] = source.coordinates(at)
        return found

    def sample(self, number: int, count: int) -> tuple[int, list[Array]]:
        source, at = self._of(number)
        found: tuple[int, list[Array]] = source.sample(at, count)
        return found

    def name(self, number: int) -> str:
        source, at = self._of(number)
        return str(source.name(at))

    def places(self, number: int, rows: Array) -> list[str]:
        source, at = self._of(number)
        return list(source.places(at, rows))

    def labels(self, number: int, dimension: int) -> tuple[Array, Texts]:
        source, at = self._of(number)
        found: tuple[Array, Texts] = source.labels(at, dimension)
        return found

    def held_labels(self, number: int, dimension: int) -> range | None:
        return self.old.held_labels(number, dimension) if number < len(self.old) else None

    def held_column(self, dimension: int) -> Column:
        """The labels of a dimension of the tensor, read where they are sliced."""
        return self.old.column(dimension)

    def least(self, dimension: int) -> int:
        if not hasattr(self._more, "least"):
            raise OptionError(Problem("shape", "expected the sizes of the dimensions; only files tell them"))
        sizes = self.old.least(dimension), self._more.least(dimension)
        return max(sizes) if self.kinds[dimension] is None else sum(sizes)

    def agreed(self, shape: tuple[int, ...]) -> tuple[Any, str | None]:
        """The fill value, and no structure: both triangles are given. Raises FormatError, ArrayError as tensors do."""
        fill, _ = self.old.agreed(shape)
        if isinstance(self._more, Tensors):
            theirs, _ = self._more.agreed(shape)
            if len({str(complex(0 if x is None else x)) for x in (fill, theirs)}) > 1:
                raise ArrayError(
                    Problem("source", f"has the fill value {theirs}, and the tensor {fill}; make them equal")
                )
        return fill, None

    def value_type(self) -> np.dtype[Any]:
        types = [self.old.value_type(), self._more.value_type()]
        if (found := common_type(types)) is None:
            what = f"no type has the values of the tensor, {types[0]}, and of the rows, {types[1]}; pass dtype="
            raise ArrayError(Problem("values", what))
        return found

    def described(self) -> dict[str, Any]:
        return {**self._more.described(), "onto": self.old.described(), "labels": self.kinds}


def _joined_kinds(old: Tensors, more: Any) -> list[str | None]:
    """The kind of the labels by dimension. Raises ArrayError where one of the two has labels, or of another type."""
    theirs: Sequence[str | None] = getattr(more, "kinds", [None] * len(old.kinds))
    columns = more.described().get("columns") or old.names or range(len(theirs))
    if len(theirs) != len(old.kinds):
        what = (
            f"{len(theirs)} dimensions, and the tensor to merge them into has {len(old.kinds)}; name a column for each"
        )
        raise ArrayError(Problem("columns", what))
    for mine, kind, name in zip(old.kinds, theirs, columns, strict=False):
        place = f"columns.{name}"
        if (mine or kind) and isinstance(more, Tensors):
            what = "a tensor is not merged by labels; write its rows to Parquet files by to_table, and name the columns"
            raise ArrayError(Problem(place, what))
        if (mine and stored_kind(mine)) == (kind and stored_kind(kind)):
            continue
        if kind is None:
            what = f"has integers, and the tensor has labels of type {mine} there"
            what += f"; name a column of labels in Parquet files, or cast it to labels, dtype={{{name!r}: 'str'}}"
        elif mine is None:
            what = f"has labels of type {kind}, and the tensor has none there; pass dtype={{{name!r}: 'int64'}}"
        else:
            what = f"has labels of type {kind}, and the tensor has {mine} there; cast the column, dtype={{{name!r}: …}}"
        raise ArrayError(Problem(place, what))
    return list(theirs)
