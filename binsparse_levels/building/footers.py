"""What the footers of Parquet files tell: types of columns, sizes of dimensions, and how rows are cut into chunks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..errors import ArrayError, BinsparseError, Problem
from .columns import arrow, arrow_type, check_names, type_of, within
from .filters import kept, terms
from .label_types import kind_of
from .parquet_files import known_file
from .values import common_type

Greatest: TypeAlias = int | str  # the greatest coordinate, -1 without rows, or where the statistics are missing
_WORTH = 2**20  # rows: a chunk of fewer goes on in the next file
_TEXT = 32  # bytes of labels that a row may have; rows with more count for several


class Footer(NamedTuple):
    """What a file tells.

    dtype: of the values. kinds: of labels by dimension, or None. groups: of each row group the rows, and how many they
    count for: more, where their texts are long. greatest: of the coordinates by dimension.
    """

    dtype: np.dtype[Any]
    kinds: list[str | None]
    groups: list[tuple[int, int]]
    greatest: list[Greatest]


class Told(NamedTuple):
    """What all files tell.

    pieces: the number of a file, the first row group, the group behind the last, the first row of a part of a row group
    or -1, the rows. ends: of the pieces of each chunk. The rest is as in `Footer`.
    """

    pieces: list[list[int]]
    ends: list[int]
    dtype: np.dtype[Any] | None
    kinds: list[str | None]
    greatest: list[Greatest]


def footer_of(
    path: str,
    state: Any,
    columns: Sequence[str | None],
    filters: Sequence[Any] | None,
    hive: Mapping[str, Any],
    casts: Mapping[str, str],
) -> Footer:
    """What a file in a known state tells. filters: which rows count. hive: what its folders say.

    Raises ArrayError, OptionError.
    """
    with known_file(path, state) as opened:
        file = opened()
        schema, told = file.schema_arrow, file.metadata
        here = {name: x for name, x in hive.items() if name not in schema.names}
        named = [x for x in columns if x is not None]
        check_names([*schema.names, *here], [*named, *(x[0] for x in terms(filters))])
        if filters is not None:
            table = schema.empty_table()
            for name, x in here.items():
                table = table.append_column(name, arrow().array([x])[:0])
            kept(table, filters)
        value, dims = columns[-1], [str(x) for x in columns[:-1]]

        def type_in(name: str) -> Any:
            if name in casts:
                return arrow_type(casts[name])
            return arrow().scalar(here[name]).type if name in here else schema.field(name).type

        try:
            kinds = [kind_of(type_in(name), name) for name in dims]
            dtype = np.dtype(np.int64) if value is None else type_of(type_in(value), value)
        except BinsparseError as error:
            raise within(path, error) from None
        leaves = {told.schema.column(k).path: k for k in range(told.num_columns)}
        texts = [leaves[x] for x, kind in zip(dims, kinds, strict=True) if kind and x in leaves]
        coords = [None if kind else leaves.get(x, -1) for x, kind in zip(dims, kinds, strict=True)]
        greatest: list[Greatest] = [int(here[x]) if leaf == -1 else -1 for x, leaf in zip(dims, coords, strict=True)]
        groups = []
        for k in range(told.num_row_groups):
            group = told.row_group(k)
            longest = max((group.column(c).total_uncompressed_size for c in texts), default=0)
            groups.append((group.num_rows, max(group.num_rows, longest // _TEXT)))
            for at, leaf in enumerate(coords):
                if leaf is not None and leaf >= 0 and group.num_rows:
                    greatest[at] = _greater(greatest[at], _greatest(group.column(leaf), f"{path}, row group {k}"))
        return Footer(dtype, kinds, groups, greatest)


def _greatest(column: Any, place: str) -> Greatest:
    """The greatest number in a column of a row group."""
    known = column.statistics
    if known is None or not known.has_min_max:
        return -1 if known is not None and known.null_count == column.num_values else place
    try:
        greatest: int = math.floor(known.max)
        return greatest
    except (TypeError, ValueError, OverflowError):  # a text, a NaN, an infinity
        return place


def _greater(a: Greatest, b: Greatest) -> Greatest:
    return a if isinstance(a, str) else b if isinstance(b, str) else max(a, b)


def told_by(files: Sequence[str], columns: Sequence[str | None], rows: int, footers: Iterable[Footer]) -> Told:
    """Chunks of at most `rows` rows, and what all files have in common. Raises ArrayError where they differ."""
    pieces: list[list[int]] = []
    ends: list[int] = []
    room = 0  # the rows that the last chunk may still take
    types: list[np.dtype[Any]] = []  # the different ones
    kinds: list[str | None] = [None] * (len(columns) - 1)
    greatest: list[Greatest] = [-1] * (len(columns) - 1)
    for number, footer in enumerate(footers):
        if footer.dtype not in types:
            types.append(footer.dtype)
            if common_type(types) is None:
                what = f"values of type {types[-1]}, and {types[0]} in {files[0]}; no type has both; pass dtype="
                raise ArrayError(Problem(files[number], what))
        kinds = kinds if number else footer.kinds
        for name, kind, first in zip(columns, footer.kinds, kinds, strict=False):
            if kind != first:
                what = f"has {kind or 'integers'}, and {files[0]} has {first or 'integers'}; cast one of them"
                raise ArrayError(Problem(f"{files[number]}: columns.{name}", what))
        greatest = list(map(_greater, greatest, footer.greatest))
        for group, (size, weight) in enumerate(footer.groups):
            if not size:
                continue
            if weight > rows:
                step = max(rows * size // weight, 1)
                parts = range(0, size, step)
                pieces += [[number, group, group + 1, skip, min(step, size - skip)] for skip in parts]
                ends += range(len(pieces) - len(parts) + 1, len(pieces) + 1)
                room = 0
                continue
            if weight > room or (pieces[-1][0] != number and rows - room + weight > _WORTH):
                ends.append(len(pieces))
                room = rows
            if pieces and ends[-1] < len(pieces) and pieces[-1][0] == number:
                pieces[-1][2], pieces[-1][4] = group + 1, pieces[-1][4] + size
            else:
                pieces.append([number, group, group + 1, -1, size])
            ends[-1] = len(pieces)
            room -= weight
    return Told(pieces, ends, common_type(types) if types else None, kinds, greatest)
