"""Where a tensor was opened, so that another process can open it again instead of getting its numbers."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import ContainerError, Problem
from ..limits import Limits
from .above import above

if TYPE_CHECKING:
    from .encoding import Metadata
    from .held import Held
    from .tensor import Tensor


@dataclass(frozen=True)
class Origin:
    """Where a tensor was opened, and a token that tells whether the file is still the same."""

    place: str
    token: str


def reopened(origin: Origin, limits: Limits) -> Tensor:
    """The tensor at a place. Raises ContainerError where the file is another by now."""
    tensor: Tensor = above("io", "open")(origin.place, limits=limits)
    if tensor._held.stored.origin != origin:
        raise ContainerError(Problem(origin.place, "the file has changed since the tensor was opened; open it again"))
    return tensor


def reduced(tensor: Tensor) -> tuple[Any, ...]:
    """What a tensor is pickled as."""
    labels = tensor._metadata.labels
    if labels is not None:
        labels = labels.loaded() if tensor._held.stored.origin is None else labels.detached()
    return _unpickled, (type(tensor), tensor._held, replace(tensor._metadata, labels=labels))


def _unpickled(kind: type[Tensor], held: Held, metadata: Metadata) -> Tensor:
    labels, stored = metadata.labels, held.stored
    if labels is not None and stored.origin is not None:
        there = reopened(stored.origin, stored.limits)._metadata.labels
        assert there is not None  # of the same file
        metadata = replace(metadata, labels=labels.attached(there))
    return kind._of(held, metadata)


def digest_of(tensor: Tensor) -> str:
    """A checksum of what a tensor is pickled as."""
    buffers: list[pickle.PickleBuffer] = []
    digest = hashlib.blake2b(pickle.dumps(tensor, 5, buffer_callback=buffers.append), digest_size=16)
    for buffer in buffers:
        digest.update(buffer.raw())
    return digest.hexdigest()
