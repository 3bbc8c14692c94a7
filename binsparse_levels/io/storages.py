"""The storage of an opened tensor, as options of a write that keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..containers.base import DEFAULT_STORAGE
from .file_tensors import Loading
from .kinds import Location


class Stored(NamedTuple):
    """The storage of a tensor: options of `write_pieces`, the wrappers of bit-packed arrays by name, and whether values
    are a dictionary.
    """

    options: Mapping[str, Any] = {}
    wrappers: Mapping[str, str] = {}
    dictionary: bool = False


def storage_of(loading: Loading | None, location: Location) -> Stored:
    """The storage of an opened tensor; empty for a file of another system, which has no header."""
    if loading is None:
        return Stored()
    reader: Any = loading.reader
    arrays: dict[str, Any] = {**loading.infos, **(loading.labels.arrays() if loading.labels else {})}
    storages = {name: reader.storage(name) for name in arrays} if hasattr(reader, "storage") else {}
    kind = getattr(reader, "kind", location.name)
    usual = next((x for x in storages.values() if x != DEFAULT_STORAGE), DEFAULT_STORAGE)
    for name, storage in storages.items():
        if storage == DEFAULT_STORAGE and 0 in arrays[name].shape:  # an empty array has no chunks to continue
            storages[name] = replace(usual, settings=None)
    options: dict[str, Any] = {"kind": kind}
    for option in ("compression", "chunks", "shards"):
        by_name = {name: getattr(x, option) for name, x in storages.items() if getattr(x, option) is not None}
        options[option] = by_name or None
    settings = {name: x for storage in storages.values() for name, x in (storage.settings or {}).items()}
    options["settings"] = settings or None
    options["checksum"] = loading.sealed or None
    options["convention"] = getattr(reader, "convention", False) or None
    options["chunk_checksum"] = False if False in (x.chunk_checksum for x in storages.values()) else None
    types = loading.descriptor.data_types
    return Stored(options, {name: x.wrapper for name, x in types.items() if x.wrapper}, types["values"].dictionary)
