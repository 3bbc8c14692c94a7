"""Zarr, versions 3 and 2, in any Zarr store: a group with a Zarr array for each array; the header is an attribute.

The header is nested twice, as other programs expect it: attributes["binsparse"] = {"binsparse": {…}, the user's JSON}.
A new store, or a new group of a local folder, is written next to the store and replaces the old one. In other stores,
a group is written in place, the header last.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore, MemoryStore, StorePath

from ..arrays import Array, Pieces
from ..errors import ContainerError, OptionError, PathExistsError, Problem
from ..limits import Limits
from ..thresholds import THRESHOLDS
from .base import CHUNKED, Storage, is_url, names_in, parts_in, wrap_errors
from .checksums import of_header
from .direct import open_zip
from .filters import begun, sample
from .interface import Container, in_folder, is_part
from .objects.chunks import chunks_in
from .objects.chunks import write as write_array
from .objects.codecs import COMPRESSIONS, metadata_of
from .replacing import Others, Overwrite, hold_lock, keeps, real_path, remove, replacing, replacing_folder
from .zarr_internals import awaiting_writes, default_buffer_prototype, sync
from .zarr_parts import grow
from .zarr_reading import (
    ARRAYS,
    AT,
    ATTRIBUTE,
    COMPLETE,
    CONVENTION,
    CONVENTIONS,
    OURS,
    ROOT,
    ZarrReader,
    arrays_above,
    list_groups,
    mark,
    neighbours,
    node_at,
    others,
    prefix_in,
    reading,
    stored_size,
    usual_chunk,
    with_header,
)
from .zarr_stores import (
    NAMES,
    LinklessStore,
    check_store,
    edit,
    folder_of,
    objects_in,
    opened,
    place_of,
    refresh,
    stored,
    zip_folder,
)

__all__ = ["AT", "ROOT", "opened", "others"]


class ZarrWriter:
    """A group to be filled. Chunks of zeros are stored too, so that a missing chunk is detected.

    ours: no other program will change the arrays. Only such arrays get a mark and a fill value, which a change by
    another program would invalidate.
    """

    def __init__(self, group: zarr.Group, storage: Storage, *, ours: bool = True) -> None:
        #: The group, for modules that write another layout.
        self.group = group
        self._storage = storage
        self._ours = ours
        self.made: dict[str, dict[str, Any]] = {}  # the metadata of the arrays
        self.groups: list[str] = []
        self.header: dict[str, Any] | None = None

    def create(self, name: str, length: int, dtype: np.dtype[Any], first: Array) -> dict[str, Any]:
        """Make an array without chunks, and return its metadata. first: the items that are known, for its filter."""
        place, taken = self.group.store_path / name, "already exists, and is no array of a tensor"
        if name in self.group:
            raise PathExistsError(Problem(place.path, taken))
        version, (chunk, shard) = self.group.metadata.zarr_format, self._lengths(name, length)
        compression, settings = (self._storage.of(option, name) for option in ("compression", "settings"))
        chain = metadata_of(compression or "blosc", settings, dtype, version, sample(first, chunk))
        layout: dict[str, Any] = {"chunks": (chunk,), "compressors": chain[0] if chain else None}
        if version == 3:
            chain += [{"name": "crc32c"}] * (self._storage.chunk_checksum is not False)
            layout["compressors"] = chain or None
            layout["dimension_names"] = [f"dim_{name}"]  # xarray refuses a group with unnamed dimensions
            layout |= {} if shard is None else {"shards": (shard,)}
        with wrap_errors(name):
            made = zarr.create_array(
                MemoryStore(),
                zarr_format=version,
                shape=(length,),
                dtype=np.dtype(dtype.newbyteorder("<").str),  # zarr accepts only one of the C names of a type
                fill_value=_sentinel(name, dtype) if self._ours else 0,
                config={"write_empty_chunks": True},
                attributes={COMPLETE: True} if self._ours else {},
                **layout,
            )
        stored = made.metadata.to_buffer_dict(default_buffer_prototype())
        texts = {key: text.to_bytes() for key, text in stored.items()}
        kept = {key: json.loads(text) for key, text in texts.items()}
        for key, text in texts.items():  # of two writers, one creates the array
            if not objects_in(place.store).create((place / key).path, text):
                raise PathExistsError(Problem(place.path, f"{taken}, or another program has begun to write it"))
            self.made[name] = kept[ROOT] if ROOT in kept else {**kept[".zarray"], "attributes": kept[".zattrs"]}
        return self.made[name]

    def write(self, name: str, pieces: Pieces) -> None:
        place, (chunk, shard) = self.group.store_path / name, self._lengths(name, pieces.length)
        first, every = begun(pieces, shard or chunk)
        chunks = chunks_in(self.create(name, pieces.length, pieces.dtype, first), place.path)
        del first  # one piece at a time is in memory
        write_array(objects_in(place.store), chunks, every)

    def within(self, name: str) -> ZarrWriter:
        if name in self.group:
            raise PathExistsError(Problem(f"{self.group.path}/{name}", "already exists, and is no order of a tensor"))
        self.groups.append(name)
        with wrap_errors(name):
            return ZarrWriter(self.group.create_group(name), self._storage, ours=self._ours)

    def write_header(self, header: Mapping[str, Any]) -> None:
        with wrap_errors(str(self.group.store_path)):
            json.dumps(header)  # raises for what is not JSON, before anything is changed
        self.header = dict(header)
        self.commit(self.header)

    def commit(self, header: Mapping[str, Any], *, sizes: bool = True) -> None:
        """Write the header, the metadata of its arrays, and their sizes if they are stored already."""
        place = self.group.store_path
        sizes = sizes and place.store.supports_listing
        with wrap_errors(str(place)):
            unconsolidate(place)
            taken = {name: stored_size(place / name) for name in self.made} if sizes else {}
            listed = {"header": of_header(header), "arrays": self.made, "bytes": taken}
            new = {ATTRIBUTE: dict(header), ARRAYS: listed, CONVENTIONS: [CONVENTION] * bool(self._storage.convention)}
            _replace_header(place, self.group.metadata.zarr_format, None, new)

    def _lengths(self, name: str, length: int) -> tuple[int, int | None]:
        """The number of items of a chunk, and of a shard, if there are shards."""
        given = self._storage.of("chunks", name)
        if self.group.metadata.zarr_format == 2:
            return min(given or THRESHOLDS.zarr_shard, max(length, 1)), None
        chunk = min(given or usual_chunk(self.group.store), max(length, 1))
        shard = self._storage.of("shards", name)
        if not shard and length <= chunk:
            return chunk, None
        return chunk, -(-min(shard or THRESHOLDS.zarr_shard, max(length, 1)) // chunk) * chunk


def _sentinel(name: str, dtype: np.dtype[Any]) -> Any:
    """The fill value of a Zarr array: for indices and pointers, a number out of range."""
    return 0 if name in ("values", "fill_value") or dtype.kind not in "iu" else np.iinfo(dtype).max


def _replace_header(place: StorePath, version: int, old: Any, new: Mapping[str, Any]) -> None:
    """Replace a header, None if there is none, by attributes of another. The other attributes are kept as they are now.

    Raises PathExistsError if another program has changed the header.
    """

    def changed(text: bytes | None) -> bytes | None:
        node = json.loads(text or b"{}")
        known = node if version == 2 else node.get("attributes", {})
        if (text is None and version == 3) or json.dumps(known.get(ATTRIBUTE)) != json.dumps(old):
            return None
        known = with_header(known, new)
        return json.dumps(known if version == 2 else {**node, "attributes": known}, indent=2).encode()

    if not edit(place, ROOT if version == 3 else ".zattrs", changed):
        raise PathExistsError(Problem(str(place), "another program has written or removed its tensor; it is kept so"))


@contextlib.contextmanager
def writing(
    path: Any,
    group: str | None,
    overwrite: Overwrite,
    limits: Limits,
    storage: Storage,
    *,
    zarr_format: int = 3,
    list_others: Others | None = None,
) -> Iterator[ZarrWriter]:
    """A group of a new store, or a new group of an old one. It replaces the old one if the block succeeds.

    Of a local folder, only the folder of the group is replaced; of a zip file, the whole file. Other stores are written
    in place, the header last. If that fails, the old tensor is restored. In these, and with a group, everything but the
    tensor is kept.
    list_others: lists the members of a folder that are not part of the tensor. Raises PathExistsError, OptionError.
    """
    if isinstance(path, zarr.Group):
        check_store(path.store)
        its = path.metadata.zarr_format
        with writing(path.store_path, group, overwrite, limits, storage, zarr_format=its) as writer:
            yield writer
        refresh(path)
        return
    if NAMES & set((group or "").split("/")):
        raise ContainerError(Problem(str(group), "no group has the name of a metadata file of Zarr"))
    more = ("shards",) if zarr_format == 3 else ()
    storage.refuse(f"Zarr {zarr_format}", but=(*CHUNKED, "convention", *more), compressions=COMPRESSIONS)
    if isinstance(path, StorePath) and type(path.store) is LocalStore:
        path, group = path.store, f"{path.path}/{group or ''}".strip("/")
    if type(path) is LocalStore and not path.read_only:
        path = str(path.root)
    filling = partial(_filling, f"{path}:{group or '/'}", bool(overwrite), limits, storage)
    if not isinstance(path, str) or is_url(path):
        with _restoring(place_of(path), str(path), group or "", limits, partial(filling, zarr_format)) as writer:
            yield writer
        return
    list_others = list_others or others
    alone = is_part(group)
    keep = not alone and keeps(path, group, overwrite, list_others)
    if not path.lower().endswith(".zip"):
        store = real_path(path)
        with hold_lock(store) if group and not alone else contextlib.nullcontext():
            target, inner, version = _replaced_by(path, group or "", zarr_format)
            with replacing_folder(target, overwrite, keep=keep, others=list_others, within=store) as part:
                with filling(version, StorePath(LinklessStore(part)), inner, []) as writer:
                    yield writer
                _unconsolidate_above(target)
        return
    # Attributes are written twice, but a key of a zip file only once: a folder is filled, and zipped at the end.
    with replacing(path, overwrite, keep=keep, others=list_others) as part:
        folder, inner = f"{part}.d", ""
        try:
            os.mkdir(folder)
            if keep and os.path.getsize(part):
                with open_zip(part) as archive:
                    inner = folder_of(archive.namelist())
                    archive.extractall(folder)
            place = StorePath(LinklessStore(os.path.join(folder, inner)))
            with filling(zarr_format, place, group or "", []) as writer:
                yield writer
            zip_folder(folder, part)
        finally:
            remove(folder)


def _replaced_by(path: str, group: str, zarr_format: int) -> tuple[str, str, int]:
    """The folder that a write into a group replaces, the rest of the group below it, and the version of Zarr.

    It is the folder of the group, or the first one above it that is no group yet. Raises PathExistsError for an array.
    """
    root = StorePath(LinklessStore(path))
    with wrap_errors(path):
        place = root / group
        first = next((at for at in _down_to(place) if not _is_group(at)), place).path
        if not first:
            return path, place.path, zarr_format
        return f"{path}/{first}", place.path[len(first) + 1 :], _version(root, path, zarr_format)


def _version(place: StorePath, called: str, zarr_format: int) -> int:
    """The version of the group at a place, or of a new one. Raises OptionError if it is not the requested version 2."""
    found: int = (node_at(place) or {"zarr_format": zarr_format})["zarr_format"]
    if zarr_format == 2 != found:
        raise OptionError(Problem("kind", f"{called} is of version {found} already"))
    return found


@contextlib.contextmanager
def _filling(
    called: str,
    overwrite: bool,
    limits: Limits,
    storage: Storage,
    zarr_format: int,
    place: StorePath,
    group: str,
    made: list[StorePath],
) -> Iterator[ZarrWriter]:
    """A group below a place, after its old tensor was removed. made: receives the groups that are new."""
    with awaiting_writes():
        with wrap_errors(called):
            target = place / group
            version = _version(place, called, zarr_format)
            made.extend(at for at in _down_to(target) if new_group(at, version))
            node = node_at(target) or {}
            if ATTRIBUTE in node.get("attributes", {}):
                if not overwrite:
                    raise PathExistsError(Problem(called, "has a tensor; pass overwrite=True"))
                _clear(target, node, limits)
            filled = zarr.open_group(target, mode="r+", use_consolidated=False)
        yield ZarrWriter(filled, storage)


def _names(place: StorePath, node: Mapping[str, Any] | None, limits: Limits) -> list[str]:
    """The names of the arrays and orders of the tensor in a group, if it has one, and of the prefix of its arrays."""
    if node is None or ATTRIBUTE not in node.get("attributes", {}):
        return []
    header = ZarrReader(place, node, limits).read_header()
    return sorted({*names_in(header), *arrays_above(place, parts_in(header)), prefix_in(node["attributes"])} - {""})


def _clear(place: StorePath, node: Mapping[str, Any], limits: Limits) -> None:
    """Delete the tensor in a group: its header first, then its arrays and orders."""
    names = _names(place, node, limits)
    _replace_header(place, node["zarr_format"], node["attributes"][ATTRIBUTE], {})
    for name in names:
        member = node_at(place / name) or {}
        if member.get("node_type") == "array" or ATTRIBUTE in member.get("attributes", {}):
            sync((place / name).delete_dir())


@contextlib.contextmanager
def _restoring(
    place: StorePath, called: str, group: str, limits: Limits, filling: Callable[..., Any]
) -> Iterator[ZarrWriter]:
    """A group that is filled in place. If that fails, its new arrays are removed, and the old tensor is restored. Its
    bytes are kept in memory during the block.

    What another program has written in the meantime is kept: only missing keys are put back, and only groups without
    members are removed.
    """
    store, target, made, writers = place.store, place / group, list[StorePath](), list[ZarrWriter]()
    check_store(store)

    async def listed(at: StorePath) -> list[str]:
        return [key async for key in store.list_prefix(f"{at.path}/".lstrip("/"))]

    with wrap_errors(called):
        node = node_at(target)
        keys = [key for name in _names(target, node, limits) for key in sync(listed(target / name))]
        before = {key: value for key in keys if (value := stored(StorePath(store), key)) is not None}
        old = {key: x for key, x in (node or {}).get("attributes", {}).items() if key in OURS}

    def restore() -> None:
        for writer in writers:  # the header first: without its arrays, it would be a damaged tensor
            with contextlib.suppress(PathExistsError):
                if writer.header is not None:
                    _replace_header(target, writer.group.metadata.zarr_format, writer.header, {})
            for name in (*writer.made, *writer.groups):
                sync((target / name).delete_dir())
        now = node_at(target)
        untouched = all(stored(StorePath(store), key) in (None, value) for key, value in before.items())
        if ATTRIBUTE in old and now is not None and ATTRIBUTE not in now.get("attributes", {}) and untouched:
            for key, value in before.items():
                objects_in(store).create(key, value)
            _replace_header(target, now["zarr_format"], None, old)
        for at in reversed(made):
            keys = sync(listed(at))
            if {key.rpartition("/")[0] for key in keys} == {at.path} and not (node_at(at) or {}).get("attributes"):
                for key in keys:
                    sync(store.delete(key))

    try:
        with filling(place, group, made) as writer:
            writers.append(writer)
            yield writer
    except BaseException as error:
        try:
            restore()
        except Exception as failure:
            what = f"the old tensor could not be restored: {failure!s:.200}; write it to another place"
            raise ContainerError(Problem(called, what)) from error
        raise


def _down_to(place: StorePath) -> list[StorePath]:
    """The groups above a place, from the root of its store, and the place."""
    names = place.path.split("/") if place.path else []
    return [StorePath(place.store, "/".join(names[:k])) for k in range(len(names) + 1)]


def unconsolidate(place: StorePath) -> None:
    """Remove consolidated metadata at a group or above it: they are out of date."""

    def changed(text: bytes | None) -> bytes | None:
        node = json.loads(text or b"{}")
        return json.dumps(node).encode() if node.pop("consolidated_metadata", None) else None

    for at in _down_to(place):
        if (text := stored(at, ROOT)) is None:
            sync((at / ".zmetadata").delete())
        elif b"consolidated_metadata" in text:
            edit(at, ROOT, changed)


def _unconsolidate_above(path: str) -> None:
    """Do the same for the folders above a store, which may be groups of a larger one."""
    folder = os.path.dirname(real_path(path))
    while any(os.path.isfile(os.path.join(folder, key)) for key in (ROOT, ".zgroup")):
        unconsolidate(StorePath(LocalStore(folder)))
        folder = os.path.dirname(folder)


def new_group(place: StorePath, zarr_format: int) -> bool:
    """Make an empty group. Returns False if there is one already. Raises PathExistsError for an array."""
    key = ROOT if zarr_format == 3 else ".zgroup"
    node = {"zarr_format": zarr_format} | ({"node_type": "group", "attributes": {}} if zarr_format == 3 else {})
    check_store(place.store)
    return not _is_group(place) and objects_in(place.store).create((place / key).path, json.dumps(node).encode())


def _is_group(place: StorePath) -> bool:
    """Return True for a group, False if there is nothing. Raises PathExistsError for an array."""
    node = node_at(place)
    if node is not None and node["node_type"] == "array":
        raise PathExistsError(Problem(place.path, "is an array; choose another place"))
    return node is not None


def new_metadata(
    arrays: Mapping[str, Pieces], header: Mapping[str, Any], storage: Storage, *, remote: bool
) -> dict[str, bytes]:
    """The metadata of a group of Zarr 3 with these arrays, by key. The first piece of each is made. remote: for an
    object store.
    """
    if remote and storage.chunks is None:
        storage = replace(storage, chunks=THRESHOLDS.bucket_chunk)
    kept: dict[str, Any] = {}
    group = zarr.create_group(MemoryStore(kept), zarr_format=3)
    writer = ZarrWriter(group, storage)
    for name, x in arrays.items():
        writer.create(name, x.length, x.dtype, begun(x, 1)[0])
    writer.commit(header, sizes=False)
    return {key: buffer.to_bytes() for key, buffer in kept.items()}


FUNCTIONS = Container(
    reading=in_folder(reading),
    writing=writing,
    opened=opened,
    list_groups=list_groups,
    mark=mark,
    others=others,
    neighbours=neighbours,
    grow=grow,
)
