"""Change the parts of a tensor in a Zarr store, while others read and write it.

A new part is written first, without a lock. Then the header is replaced, which decides where the part begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from ..containers.checksums import sealed, unsealed
from ..containers.interface import LONGEST_SECONDS, Container, begun_at
from ..errors import ContainerError, FormatError, OptionError, Problem, warn
from ..formats.descriptor import Descriptor, parse_descriptor
from ..formats.extensions import PARTS
from ..limits import Limits
from ..tensors.encoding import check_header_size
from ..tensors.labels import KEY
from ..tensors.tensor import Tensor, inside
from ..tensors.views import Joined
from .file_tensors import Loading
from .kinds import Location, name_of
from .parts import Parts, parse_parts, part_of

GRACE_SECONDS = 24 * 60 * 60.0  # after which no program reads a part that was removed from the list
_MANY_PARTS = 100

# The parts and the shape of a tensor after a change.
Change: TypeAlias = Callable[[Parts, tuple[int, ...]], tuple[Parts, tuple[int, ...]]]


def check_can_grow(location: Location, tensor: Tensor, first: Loading) -> None:
    """Raise FormatError or OptionError for a tensor that cannot have parts. first: the header of its first part."""
    name, functions, backing = name_of(location), location.kind.functions, inside(tensor).backing
    if not isinstance(functions, Container) or functions.grow is None or name.lower().endswith(".zip"):
        what = "has no parts that change, as folders and object stores of Zarr have; convert it to a .zarr"
        raise OptionError(Problem(name, f"this kind of file {what}"))
    found = {
        "a map": tensor.map is not None,
        "a structure": tensor.structure is not None,
        "other orders": not isinstance(backing, Joined) and bool(backing.stored.orders),
        "packed arrays": any(x.wrapper or x.dictionary for x in first.descriptor.data_types.values()),
        "no dimension": not tensor.ndim,
        "metadata of Zarr 2": getattr(first.reader, "kind", "") == "zarr2",
    }
    for what in [x for x, there in found.items() if there]:
        raise FormatError(Problem(name, f"a tensor with {what} has no parts; write it again without"))


def commit(
    location: Location,
    there: Tensor,
    header: Mapping[str, Any],
    part: str,
    change: Change,
    limits: Limits,
    *,
    like: Descriptor | None = None,
    grace: float = GRACE_SECONDS,
) -> None:
    """Change the parts of the tensor at a location, and remove groups that are read no longer.

    there, header: the tensor and its header, as they were opened. part: the group of the new part, which is removed if
    the change fails. change: called again if another program was faster. like: a descriptor with the new format of the
    tensor. grace: seconds in which removed parts can be read. Raises ContainerError if another tensor is there, and the
    errors of `change`.
    """
    name, known = name_of(location), _metadata(parse_descriptor(unsealed(header)[0], limits))

    def changed(now: Any, first: str) -> Mapping[str, Any]:
        plain, _ = unsealed(now)
        new = parse_descriptor(plain, limits)
        if PARTS in new.extra:
            parts = parse_parts(new, lambda *_: there.load)
        else:  # the arrays of the tensor become the first part, where they are
            parts = Parts((part_of(there, first, [0] * there.ndim),), {}, there.fill_value)
        if (PARTS not in new.extra and now != header) or _metadata(new) != known:
            raise ContainerError(Problem(name, "another program has replaced the tensor; try again"))
        if time.time() - (begun_at(part) or 0) > LONGEST_SECONDS:  # another program may be removing it
            raise ContainerError(Problem(name, "the new part was written for more than a week; try again"))
        parts, shape = change(parts, new.shape)
        at = time.time() - grace
        parts = parts._replace(removed={group: removed for group, removed in parts.removed.items() if removed > at})
        if like is not None:
            new = replace(new, format=like.format, name=like.name, data_types=like.data_types)
        after = parts.header(new, shape)
        check_header_size(after, limits)
        parse_parts(parse_descriptor(after, limits), lambda *_: there.load)
        if len(parts.boxes) > _MANY_PARTS and len(parts.boxes) % _MANY_PARTS == 1:
            warn(f"{name}: has {len(parts.boxes)} parts; compact it, which makes reading faster")
        return after if plain is now else sealed(after, {})

    functions = location.kind.functions
    assert isinstance(functions, Container)
    assert functions.grow is not None
    functions.grow(location.path, location.group, part, changed, limits)


def _metadata(known: Descriptor) -> tuple[Any, ...]:
    """The facts of a tensor that are the same whatever parts it has."""
    return len(known.shape), known.data_types["values"].dtype, known.fill, known.extra.get(KEY)
