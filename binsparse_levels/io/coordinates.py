"""The coordinates of an xarray Dataset as labels of one of its sparse variables."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from ..containers.interface import Container
from ..errors import BinsparseError
from ..log import LOG
from ..tensors.labels import column_of
from ..tensors.late_imports import late_import
from ..tensors.tensor import Tensor, inside
from .kinds import Location


def add_coordinates(tensor: Tensor, location: Location) -> None:
    """Label dimensions that are coordinates of a Dataset above the tensor, and have no labels of their own.

    xarray decodes the coordinates, which are read whole. Without xarray, nothing is added.
    """
    labels, functions = inside(tensor).metadata.labels, location.kind.functions
    unlabelled = {} if labels is None else dict(zip(labels.dims, tensor.shape, strict=True))
    for dim in () if labels is None else labels.columns:
        unlabelled.pop(dim)
    direct = isinstance(location.path, str) and location.group and "/" not in location.group
    if not (unlabelled and direct and isinstance(functions, Container) and functions.neighbours is not None):
        return
    with contextlib.suppress(BinsparseError):  # of the neighbours; the tensor itself is sound
        there = functions.neighbours(location.path, location.group)
        wanted = [dim for dim, size in unlabelled.items() if there.get(dim) == {dim: size}]
        if not wanted:
            return
        for dim, values in late_import("coordinates_in")(location.path, wanted).items():
            with contextlib.suppress(BinsparseError):  # of types that no label has
                assert labels is not None
                column = column_of(values, f"labels of {dim}", unlabelled[dim])
                labels = replace(labels, columns={**labels.columns, dim: column})
                LOG.debug("%s: labels of %s: the coordinate of the Dataset", location.path, dim)
        inside(tensor).metadata = replace(inside(tensor).metadata, labels=labels)
