"""Checks that tensors can follow each other along a dimension, and their labels in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ..errors import ArrayError, FormatError, Problem
from ..tensors.contents import labels_of
from ..tensors.labels import Column, Labels, same_labels
from ..tensors.tensor import Tensor, inside


def check_alike(first: Tensor, tensor: Tensor, names: tuple[str, str], axis: int) -> None:
    """Raise FormatError or ArrayError if a tensor cannot follow the first one along an axis. names: for errors."""
    name, other = names
    for what in ("dtype", "structure", "fill value"):
        known, its = (str(inside(x).pad if what == "fill value" else getattr(x, what)) for x in (first, tensor))
        if its != known:
            raise ArrayError(Problem(other, f"has the {what} {its}, and {name} has {known}; make them equal"))
    if first.ndim != tensor.ndim:
        raise FormatError(Problem(other, f"has {tensor.ndim} dimensions, and {name} has {first.ndim}; slice one"))
    for k, (known_size, size) in enumerate(zip(first.shape, tensor.shape, strict=True)):
        if k != axis and known_size != size:
            remedy = "slice one, or make both of one shape"
            if labels_of(first, k) and labels_of(tensor, k):
                remedy = "use write_from([one, other], path, None, format, dims=one.dims)"
                remedy += "  # or make both by the same labels= of from_table"
            raise FormatError(Problem(other, f"has size {size} in dimension {k}, and {name} {known_size}; {remedy}"))


def joined_labels(tensors: Iterable[Tensor], names: Sequence[str], outer: int) -> Labels | None:
    """The labels of these tensors, concatenated along dimension `outer`, and equal along the others.

    tensors: only the labels of the outer dimension are kept while they are iterated over. names: of the tensors, for
    errors. Raises ArrayError for labels that differ, and if only some tensors have labels of a dimension.
    """
    whole: Labels | None = None  # the first names of dimensions, and the columns of the first tensor
    its, known, along, sizes = "", dict[str, Column](), list[Column](), list[int]()
    for tensor, name in zip(tensors, names, strict=True):
        labels = inside(tensor).metadata.labels
        columns = {} if labels is None else {dim: column.loaded() for dim, column in labels.columns.items()}
        known = known if sizes else columns
        if labels is not None and whole is None:
            whole, its = labels, name
        elif labels is not None and whole is not None and labels.dims != whole.dims:
            what = f"has the dimensions {labels.dims}, and {its} has {whole.dims}"
            raise ArrayError(Problem(name, f"{what}; use the same names in the same order"))
        for k, dim in enumerate(whole.dims if whole is not None else ()):
            _check_column(known.get(dim), columns.get(dim), (names[0], name), dim, same=k != outer)
            if k == outer and dim in columns:
                along.append(columns[dim])
        sizes.append(tensor.shape[outer] if tensor.ndim else 0)
    if whole is None or not along:
        return whole if whole is None else replace(whole, columns=known)
    _check_gaps(along, sizes, names, whole.dims[outer])
    return replace(whole, columns={**known, whole.dims[outer]: _concatenated(along)})


def _check_column(first: Column | None, column: Column | None, names: tuple[str, str], dim: str, *, same: bool) -> None:
    """Raise ArrayError for labels of a dimension that cannot follow those of the first tensor, or be the `same`."""
    if first is None or column is None:
        if first is not column:
            has, lacks = names if column is None else names[::-1]
            what = f"has no labels of dimension {dim!r}, but {has} has; make both by from_table, or both by pack"
            raise ArrayError(Problem(lacks, what))
        return
    if column.type != first.type:
        what = f"has labels of type {column.type} in dimension {dim!r}, and {names[0]} of {first.type}"
        raise ArrayError(Problem(names[1], f"{what}; cast one in its table"))
    if same and not same_labels(column, first):
        what = f"has other labels of dimension {dim!r} than {names[0]}; select the same by sel"
        raise ArrayError(Problem(names[1], what))


def _check_gaps(columns: Sequence[Column], sizes: Sequence[int], names: Sequence[str], dim: str) -> None:
    """Raise ArrayError for coordinates without labels, except at the end of the last tensor."""
    counts = list(map(len, columns))
    for k, (count, size, name) in enumerate(zip(counts, sizes, names, strict=True)):
        if count < size and any(counts[k + 1 :]):
            what = f"has {count} labels for {size} coordinates of dimension {dim!r}, and others follow; label all"
            raise ArrayError(Problem(name, what))


def _concatenated(columns: Sequence[Column]) -> Column:
    items = np.concatenate([column.items[:] for column in columns])
    if columns[0].offsets is None:
        return Column(columns[0].type, items)
    lengths = [np.diff(column.offsets[:]) for column in columns if column.offsets is not None]
    return Column(columns[0].type, items, np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths])))
