"""The labels of tensors that are joined: concatenated along one dimension, equal along the others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..errors import ArrayError, Problem
from ..tensors.labels import Column, Labels
from ..tensors.tensor import Tensor


def joined_labels(tensors: Sequence[Tensor], names: Sequence[str], outer: int) -> Labels | None:
    """The labels of these tensors, concatenated along dimension `outer`, in memory.

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
        lacking = [labels is None or dim not in labels.columns for labels in held]
        if all(lacking):
            continue
        if any(lacking):
            has, lacks = names[lacking.index(False)], names[lacking.index(True)]
            what = f"has no labels of dimension {dim!r}, and {has} has; make both by from_table, or both by pack"
            raise ArrayError(Problem(lacks, what))
        there = [labels.columns[dim].loaded() for labels in held if labels is not None]
        for column, name in zip(there[1:], names[1:], strict=True):
            if column.type != there[0].type:
                what = f"has labels of type {column.type} in dimension {dim!r}, and {names[0]} of {there[0].type}"
                raise ArrayError(Problem(name, f"{what}; cast one in its table"))
            if k != outer:
                _check_equal(column, name, there[0], names[0], dim)
        if k == outer:
            _check_gaps(there, [tensor.shape[k] for tensor in tensors], names, dim)
        columns[dim] = _concatenated(there) if k == outer else there[0]
    return replace(first, columns=columns)


def _check_gaps(columns: Sequence[Column], sizes: Sequence[int], names: Sequence[str], dim: str) -> None:
    """The last coordinates may have no labels, but none between others."""
    counts = list(map(len, columns))
    for k, (count, size, name) in enumerate(zip(counts, sizes, names, strict=True)):
        if count < size and any(counts[k + 1 :]):
            what = f"has {count} labels for {size} coordinates of dimension {dim!r}, and others follow; label all"
            raise ArrayError(Problem(name, what))


def _check_equal(column: Column, name: str, known: Column, its: str, dim: str) -> None:
    """Raise ArrayError with the first label in which two columns differ."""
    labels, others = column.array(), known.array()
    if np.array_equal(labels, others):
        return
    for k, (a, b) in enumerate(itertools.zip_longest(labels, others)):
        if a != b and (a == a or b == b):
            mine, other = ("no label" if x is None else f"the label {str(x)!r:.40}" for x in (a, b))
            what = f"has {mine} at coordinate {k} of dimension {dim!r}, and {its} {other}; select alike by sel"
            raise ArrayError(Problem(name, what))


def _concatenated(columns: Sequence[Column]) -> Column:
    items = np.concatenate([column.items[:] for column in columns])
    if columns[0].offsets is None:
        return Column(columns[0].type, items)
    lengths = [np.diff(column.offsets[:]) for column in columns if column.offsets is not None]
    return Column(columns[0].type, items, np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths])))
