"""Tensors of several parts in a Zarr store: groups that never change, and a header above them that lists them.

The header is one object. A commit replaces it atomically, and never over the change of another program.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

import zarr
from zarr.storage import LocalStore, StorePath

from ..errors import ContainerError, Problem
from ..formats.json import load_json
from ..limits import Limits
from .base import names_in, wrap_errors
from .interface import Growth, begun_at
from .replacing import hold_lock
from .zarr_internals import sync
from .zarr_reading import ABOVE, ARRAYS, AT, ATTRIBUTE, METADATA_LIMITS, ROOT, ZarrReader, names_at, node_at
from .zarr_stores import check_store, edit, objects_in, place_of, refresh


def commit(path: Any, group: str | None, change: Callable[[Any], Mapping[str, Any]], limits: Limits) -> None:
    """Replace the header of a tensor by change(header), which is called again if another program was faster.

    A local folder is locked. Raises ContainerError, and the errors of `change`.
    """
    place = _writable(path, group)

    def changed(text: bytes | None) -> bytes:
        if text is None:
            raise ContainerError(Problem(f"{path}:{group or '/'}", "another program has removed it; write it again"))
        node: Any = load_json(text, METADATA_LIMITS, constants=True)
        node["attributes"] |= {ATTRIBUTE: dict(change(ZarrReader(place, node, limits).read_header()))}
        node["attributes"].pop(ARRAYS, None)  # the metadata of the arrays of the former header
        node.pop("consolidated_metadata", None)
        return json.dumps(node).encode()

    local = isinstance(place.store, LocalStore)
    with hold_lock(str(place.store.root)) if local else contextlib.nullcontext():  # type: ignore[attr-defined]
        edit(place, ROOT, changed)
    if isinstance(path, zarr.Group):
        refresh(path)


def _writable(path: Any, group: str | None) -> StorePath:
    """The place of a tensor in a store that can be changed. Raises ContainerError."""
    place = place_of(path) / (group or "")
    check_store(place.store)
    return place


def refer(path: Any, group: str | None, name: str, header: Mapping[str, Any]) -> None:
    """Make a group in that of a tensor, with a header whose arrays are those of the tensor."""
    place = _writable(path, group)
    node = node_at(place) or {}
    prefix = node.get("attributes", {}).get(AT)
    at = f"{ABOVE}/{prefix}" if isinstance(prefix, str) else ABOVE
    attributes = {ATTRIBUTE: dict(header), AT: at}
    if (listed := node.get("attributes", {}).get(ARRAYS)) is not None:
        attributes[ARRAYS] = listed
    made = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    objects_in(place.store).create((place / name / ROOT).path, json.dumps(made).encode())


def sweep(path: Any, group: str | None, kept: Collection[str], removed: Collection[str], before: float) -> None:
    """Remove parts: those in `removed`, and those not in `kept` whose write began before a time."""
    place = _writable(path, group)
    with wrap_errors(str(place)):
        if not place.store.supports_listing:
            return
        for name in names_at(place):
            begun = begun_at(name)
            if begun is None or name in kept or not (name in removed or begun < before):
                continue
            node = node_at(place / name) or {}
            attributes = node.get("attributes", {})
            if str(attributes.get(AT, "")).startswith(ABOVE):  # its arrays are those of the first tensor
                for array in names_in(attributes.get(ATTRIBUTE)):
                    sync(place.store.delete_dir((place / attributes[AT].removeprefix(ABOVE) / array).path))
            sync(place.store.delete_dir((place / name).path))


GROWTH = Growth(commit=commit, refer=refer, sweep=sweep)
