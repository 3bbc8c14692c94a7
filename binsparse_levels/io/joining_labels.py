"""The labels of tensors that are joined: behind each other along one dimension, equal along the others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import Array
from ..engine.joining import of_segments
from ..errors import ArrayError, Problem
from ..tensors.labels import AT_ONCE, Column, Labels
from ..tensors.tensor import Tensor


def joined_labels(tensors: Sequence[Tensor], names: Sequence[str], outer: int) -> Labels | None:
    """The labels of these tensors behind each other along dimension `outer`, read where they are sliced.

    names: of the tensors, for errors. Raises ArrayError for labels that differ in another dimension, and where one
    tensor has labels of a dimension and another has none.
    """
    held = [tensor._metadata.labels for tensor in tensors]
    known = [(labels, name) for labels, name in zip(held, names, strict=True) if labels is not None]
    if not known:
        return None
    first, its = known[0]
    for labels, name in known:
        if labels.dims != first.dims:
            what = f"has the dimensions {labels.dims}, and {its} has {first.dims}; name and order them alike"
            raise ArrayError(Problem(name, what))
    columns = {}
    for k, dim in enumerate(first.dims):
        some = [None if labels is None else labels.columns.get(dim) for labels in held]
        there = [column.unviewed() for column in some if column is not None]
        if not there:
            continue
        _check_types(some, names, dim)
        if k == outer:
            _check_gaps(there, [tensor.shape[k] for tensor in tensors], names, dim)
            columns[dim] = _behind_each_other(there)
        else:
            for column, name in zip(there[1:], names[1:], strict=True):
                _check_equal(column, name, there[0], names[0], dim)
            columns[dim] = there[0]
    return replace(first, columns=columns)


def _check_types(columns: Sequence[Column | None], names: Sequence[str], dim: str) -> None:
    types = [None if column is None else column.type for column in columns]
    for type, name in zip(types, names, strict=True):
        if type == types[0]:
            continue
        if None in (type, types[0]):
            (has, lacks) = (name, names[0]) if types[0] is None else (names[0], name)
            what = f"has no labels of dimension {dim!r}, and {has} has; make both by from_table, or both by pack"
            raise ArrayError(Problem(lacks, what))
        what = f"has labels of type {type} in dimension {dim!r}, and {names[0]} of {types[0]}; cast one in its table"
        raise ArrayError(Problem(name, what))


def _check_gaps(columns: Sequence[Column], sizes: Sequence[int], names: Sequence[str], dim: str) -> None:
    """The last coordinates may have no labels, but none between others."""
    counts = list(map(len, columns))
    for k, (count, size, name) in enumerate(zip(counts, sizes, names, strict=True)):
        if count < size and any(counts[k + 1 :]):
            what = f"has {count} labels for {size} coordinates of dimension {dim!r}, and others follow; label all"
            raise ArrayError(Problem(name, what))


def _check_equal(column: Column, name: str, known: Column, its: str, dim: str) -> None:
    """Raise ArrayError with the first label in which two columns differ."""
    for start in range(0, max(len(column), len(known)), AT_ONCE):
        mine, others = (x.part(start, start + AT_ONCE) for x in (column, known))
        if _same(mine.items, others.items) and _same(mine.offsets, others.offsets):
            continue
        for k, (a, b) in enumerate(itertools.zip_longest(mine.array(), others.array()), start):
            if a != b and (a == a or b == b):
                told = ["no label" if x is None else f"the label {str(x)!r:.40}" for x in (a, b)]
                what = f"has {told[0]} at coordinate {k} of dimension {dim!r}, and {its} {told[1]}; select alike by sel"
                raise ArrayError(Problem(name, what))


def _same(one: Any, other: Any) -> bool:
    return one is other is None or np.array_equal(one, other)


def _behind_each_other(columns: Sequence[Column]) -> Column:
    sizes = np.array([len(column.items) for column in columns])
    begins = np.cumsum(sizes) - sizes
    items = of_segments(sizes, lambda k, a, b: columns[k].items[a:b], columns[0].items.dtype)

    def ends(k: int, a: int, b: int) -> Array:
        """Those of part k - 1, counted from the first part on; part 0 is the beginning of all."""
        offsets = columns[k - 1].offsets
        return np.zeros(1, np.int64) if not k or offsets is None else offsets[a + 1 : b + 1] + begins[k - 1]

    texts = columns[0].offsets is not None
    return Column(
        columns[0].type, items, of_segments(np.array([1, *map(len, columns)]), ends, np.int64) if texts else None
    )
