"""The coordinates of an xarray Dataset as labels of one of its sparse variables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from ..containers.interface import Container
from ..errors import BinsparseError
from ..log import LOG
from ..tensors.labels import column_of, same_labels
from ..tensors.late_imports import late_import
from ..tensors.tensor import Tensor, inside, remade
from .kinds import Location

_MAX_LABELS = 2**22  # of a coordinate that is read when a tensor is opened
Neighbours: TypeAlias = Callable[[Any, str | None], Mapping[str, Mapping[str, int]]]


def add_coordinates(tensor: Tensor, location: Location) -> None:
    """Label dimensions that are coordinates of a Dataset above the tensor, and have no labels of their own.

    xarray decodes the coordinates, which are read whole unless they are large. Without xarray, nothing is added.
    """
    labels, functions = inside(tensor).metadata.labels, location.kind.functions
    direct = isinstance(location.path, str) and location.group and "/" not in location.group
    if labels is None or not direct or not isinstance(functions, Container) or functions.neighbours is None:
        return
    sizes = zip(labels.dims, tensor.shape, strict=True)
    unlabelled = {dim: size for dim, size in sizes if dim not in labels.columns}
    if not unlabelled:
        return
    for dim, values in _coordinates(location, functions.neighbours, unlabelled).items():
        with contextlib.suppress(BinsparseError):  # of types that no label has
            column = column_of(values, f"labels of {dim}", unlabelled[dim])
            labels = replace(labels, columns={**labels.columns, dim: column})
            LOG.debug("%s: labels of %s: the coordinate of the Dataset", location.path, dim)
    inside(tensor).metadata = replace(inside(tensor).metadata, labels=labels)


def _coordinates(location: Location, neighbours: Neighbours, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The coordinates of the dimensions with these sizes. The tensor is sound without them, whatever is wrong there."""
    try:
        there = neighbours(location.path, location.group)
        wanted = [dim for dim, size in sizes.items() if there.get(dim) == {dim: size} and size <= _MAX_LABELS]
        others = sorted(there.keys() - {*wanted})
        return dict(late_import("coordinates_in")(location.path, wanted, others)) if wanted else {}
    except Exception as error:  # of xarray, of codecs, of calendars
        LOG.debug("%s: no labels from the coordinates of the Dataset: %r", location.path, error)
        return {}


def without_coordinates(tensor: Tensor, there: Tensor, location: Location) -> Tensor:
    """The tensor to append without labels that are coordinates of the Dataset, which the one there does not store."""
    mine, its = inside(there).metadata.labels, inside(tensor).metadata.labels
    if mine is None or its is None or mine.dims != its.dims or its.columns.keys() <= mine.columns.keys():
        return tensor
    add_coordinates(known := remade(there, labels=mine), location)
    labels = inside(known).metadata.labels
    added = {} if labels is None else {dim: x for dim, x in labels.columns.items() if dim not in mine.columns}
    kept = {dim: x for dim, x in its.columns.items() if dim not in added or not same_labels(x, added[dim])}
    return remade(tensor, labels=replace(its, columns=kept))
