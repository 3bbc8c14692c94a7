"""Append to a tensor in a Zarr store as a further part: in the time of what is new, while others read and write it.

The part is written first, without a lock. Then the header is replaced, which decides where the part begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from ..containers.base import Storage
from ..containers.checksums import sealed, unsealed
from ..containers.interface import Container, Growth, part_name
from ..errors import ContainerError, FormatError, OptionError, Problem, warn
from ..formats.descriptor import Descriptor, parse_descriptor
from ..formats.extensions import PARTS
from ..limits import Limits
from ..tensors.encoding import check_header_size, encode_tensor
from ..tensors.inside import Metadata
from ..tensors.tensor import Tensor, inside, tensor_of
from ..tensors.views import Joined
from .kinds import Location
from .parts import Parts, entry_of, parse_parts
from .writing import write_arrays

GRACE_SECONDS = 24 * 60 * 60.0  # after which no program reads a part that was removed from the list
_MANY_PARTS = 100


def check_can_grow(tensor: Tensor, kind: str, wrappers: Mapping[str, str], name: str) -> None:
    """Raise FormatError for a tensor that cannot have parts. kind: of the file. wrappers: of its bit-packed arrays."""
    backing = inside(tensor).backing
    found = {
        "a map": tensor.map is not None,
        "a structure": tensor.structure is not None,
        "other orders": not isinstance(backing, Joined) and bool(backing.stored.orders),
        "bit-packed arrays": bool(wrappers),
        "no dimension": not tensor.ndim,
        "metadata of Zarr 2": kind == "zarr2",
    }
    for what in [x for x, there in found.items() if there]:
        raise FormatError(Problem(name, f"a tensor with {what} has no parts; write it again without"))


# The parts and the shape of a tensor after a change.
Change: TypeAlias = Callable[[Parts, tuple[int, ...]], tuple[Parts, tuple[int, ...]]]


def growth_of(location: Location, name: str) -> Growth:
    """The functions for parts of the container at a location. Raises OptionError."""
    functions = location.kind.functions
    growth = functions.growth if isinstance(functions, Container) else None
    if growth is None or name.lower().endswith(".zip"):
        what = "has no parts, as folders and object stores of Zarr have; leave out part, or convert it to a .zarr"
        raise OptionError(Problem(name, f"this kind of file {what}"))
    return growth


def write_part(
    location: Location,
    there: Tensor,
    new: Tensor,
    axis: int,
    storage: Callable[[Collection[str]], Storage],
    limits: Limits,
) -> tuple[Tensor, str]:
    """Write a tensor as a part of the one at a location, which does not list it yet. Returns it, and its group.

    storage: a function of the names of its arrays.
    """
    name, labels = part_name(), inside(new).metadata.labels
    if labels is not None:
        columns = {dim: x.loaded() for dim, x in labels.columns.items() if dim == labels.dims[axis]}
        labels = replace(labels, columns=columns)
    part = tensor_of(
        inside(new.without_map(there.format, limits=limits)).backing, Metadata(there.fill_value, labels=labels)
    )
    header, arrays = encode_tensor(part)
    check_header_size(header, limits)
    inner = replace(location, group="/".join(filter(None, (location.group, name))))
    write_arrays(inner, header, arrays, storage=storage(arrays), limits=limits)
    return part, name


def commit(
    location: Location,
    there: Tensor,
    header: Mapping[str, Any],
    change: Change,
    limits: Limits,
    *,
    like: Descriptor | None = None,
    grace: float = GRACE_SECONDS,
) -> None:
    """Change the parts of the tensor at a location, and remove groups that are read no longer.

    there, header: the tensor and its header, as they were opened. change: called again if another program was faster.
    like: a descriptor with the new format of the tensor. grace: seconds in which removed parts can be read.
    Raises ContainerError if another tensor is there, and the errors of `change`.
    """
    growth, place, base = growth_of(location, str(location.path)), (location.path, location.group), ""
    descriptor = _parsed(header, limits)
    if PARTS not in descriptor.extra:  # the arrays of the tensor become the first part, where they are
        base = part_name()
        growth.refer(*place, base, header)
    kept: dict[str, None] = {}
    expired: list[str] = []

    def changed(now: Any) -> Mapping[str, Any]:
        new = _parsed(now, limits)
        if PARTS in new.extra:
            parts = parse_parts(new)
        elif now == header:
            parts = Parts((entry_of(there, base, [0] * there.ndim),), {}, there.fill_value)
        else:
            raise ContainerError(Problem(str(location.path), "another program has replaced the tensor; try again"))
        parts, shape = change(parts, new.shape)
        expired[:] = [name for name, at in parts.removed.items() if time.time() - at >= grace]
        parts = replace(parts, removed={x: at for x, at in parts.removed.items() if x not in expired})
        kept.clear()
        kept.update(dict.fromkeys([*parts.removed, *(entry.group for entry in parts.entries)]))
        after = parts.header(replace(new, **_layout(like)) if like is not None else new, shape)
        check_header_size(after, limits)
        if len(parts.entries) > _MANY_PARTS and len(parts.entries) % _MANY_PARTS == 1:
            warn(f"{location.path}: has {len(parts.entries)} parts; compact it, which makes reading faster")
        return sealed(after, {}) if unsealed(now)[0] is not now else after

    growth.commit(*place, changed, limits)
    growth.sweep(*place, kept, expired, time.time() - GRACE_SECONDS)


def _layout(descriptor: Descriptor) -> dict[str, Any]:
    """The fields of a descriptor that belong to its format."""
    return {name: getattr(descriptor, name) for name in ("format", "name", "data_types")}


def _parsed(header: Any, limits: Limits) -> Descriptor:
    return parse_descriptor(unsealed(header)[0], limits)
