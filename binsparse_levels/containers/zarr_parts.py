"""Tensors of several parts in a Zarr store: groups that never change, and a header above them that lists them.

The header is one object. A commit replaces it atomically, and never over the change of another program.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import zarr
from zarr.storage import LocalStore, StorePath

from ..errors import ContainerError, Problem, warn
from ..formats.json import load_json
from ..limits import Limits
from .base import parts_in
from .interface import LONGEST_SECONDS, begun_at, part_name
from .replacing import hold_lock
from .zarr_internals import sync
from .zarr_reading import (
    ABOVE,
    ARRAYS,
    AT,
    ATTRIBUTE,
    METADATA_LIMITS,
    ROOT,
    ZarrReader,
    arrays_above,
    arrays_at,
    names_at,
    node_at,
)
from .zarr_stores import check_store, edit, objects_in, place_of, refresh


def grow(
    path: Any, group: str | None, new: str, change: Callable[[Any, str], Mapping[str, Any]], limits: Limits
) -> None:
    """`Container.grow`. A local folder is locked. `change` is called again if another program was faster.

    Raises ContainerError, and the errors of `change`.
    """
    place = place_of(path) / (group or "")
    check_store(place.store)
    first, replaced, before, after = "", False, set[str](), set[str]()

    def changed(text: bytes | None) -> bytes:
        nonlocal replaced, before, after
        replaced = False
        if text is None:
            raise ContainerError(Problem(f"{path}:{group or '/'}", "another program has removed it; write it again"))
        node: Any = load_json(text, METADATA_LIMITS, constants=True)
        old = ZarrReader(place, node, limits).read_header()
        header = dict(change(old, first))
        before, after = parts_in(old), parts_in(header)
        node["attributes"][ATTRIBUTE] = header
        node["attributes"].pop(ARRAYS, None)  # the metadata of the arrays of the former header
        node.pop("consolidated_metadata", None)
        replaced = True  # or unknown, after an error of the store
        return json.dumps(node).encode()

    local = isinstance(place.store, LocalStore)
    with hold_lock(str(place.store.root)) if local else contextlib.nullcontext():  # type: ignore[attr-defined]
        try:
            first = _first(place, limits)
            edit(place, ROOT, changed)
        except BaseException:
            if not replaced:
                for name in filter(None, (new, first)):
                    sync((place / name).delete_dir())
            raise
        if isinstance(path, zarr.Group):
            refresh(path)
        try:
            _sweep(place, after, {*before, first})
        except Exception as error:  # the tensor is sound
            warn(f"{path}: old parts could not be removed: {error}")


def _first(place: StorePath, limits: Limits) -> str:
    """Make a group in that of a tensor whose arrays are those of the tensor. Returns "" if the tensor has parts."""
    node = node_at(place)
    if node is None or parts_in(ZarrReader(place, node, limits).read_header()):
        return ""
    name, known = part_name(), node["attributes"]
    kept = {key: known[key] for key in (ATTRIBUTE, ARRAYS) if key in known}
    kept[AT] = f"{ABOVE}/{known.get(AT, '')}".rstrip("/")
    made = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": kept})
    objects_in(place.store).create((place / name / ROOT).path, made.encode())
    return name


def _sweep(place: StorePath, kept: Collection[str], removed: Collection[str]) -> None:
    """Remove parts that are not in `kept`: those in `removed`, and those of killed writers."""
    for name in names_at(place) if place.store.supports_listing else ():
        begun = begun_at(name)
        if begun is None or name in kept or (name not in removed and time.time() - begun < 2 * LONGEST_SECONDS):
            continue
        above = arrays_above(place, [name])
        if above and not arrays_above(place, kept):  # else a later program has made a part of the same arrays
            arrays = arrays_at(place, (node_at(place) or {}).get("attributes", {}))
            for array in above:
                sync((arrays / array).delete_dir())
        sync((place / name).delete_dir())
