"""Zarr, versions 3 and 2, in any Zarr store: a group with a Zarr array for each array; the header is an attribute.

The header is nested twice, as other programs expect it: attributes["binsparse"] = {"binsparse": {…}, the user's JSON}.
A new store is written next to the old one, or in place with the header last.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore, MemoryStore, StorePath

from ..arrays import Pieces
from ..errors import ContainerError, OptionError, PathExistsError, Problem
from ..limits import Limits
from ..thresholds import THRESHOLDS
from .base import CHUNKED, Storage, is_url, names_in, wrap_errors
from .checksums import of_header, sealed
from .direct import folders_below, open_zip
from .interface import Container, in_folder
from .objects.chunks import chunks_in
from .objects.chunks import write as write_array
from .objects.codecs import CODECS
from .replacing import Others, Overwrite, keeps, real_path, remove, replacing, replacing_folder
from .zarr_internals import default_buffer_prototype, sync
from .zarr_reading import (
    ARRAYS,
    AT,
    ATTRIBUTE,
    COMPLETE,
    ROOT,
    ZarrReader,
    list_groups,
    mark,
    neighbours,
    node_at,
    others,
    reading,
    stored_size,
    usual_chunk,
)
from .zarr_stores import NAMES, LinklessStore, check_store, folder_of, objects_in, opened, place_of, stored

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

    def create(self, name: str, length: int, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Make an array without chunks, and return its metadata."""
        place, taken = self.group.store_path / name, "already exists, and is no array of a tensor"
        if name in self.group:
            raise PathExistsError(Problem(place.path, taken))
        compression = self._storage.of("compression", name) or "blosc"
        layout = self._version_2 if self.group.metadata.zarr_format == 2 else self._version_3
        with wrap_errors(name):
            made = zarr.create_array(
                MemoryStore(),
                zarr_format=self.group.metadata.zarr_format,
                shape=(length,),
                dtype=np.dtype(dtype.newbyteorder("<").str),  # zarr accepts only one of the C names of a type
                fill_value=_sentinel(name, dtype) if self._ours else 0,
                config={"write_empty_chunks": True},
                attributes={COMPLETE: True} if self._ours else {},
                **layout(name, length, compression, dtype),
            )
        stored = made.metadata.to_buffer_dict(default_buffer_prototype())
        texts = {key: text.to_bytes() for key, text in stored.items()}
        for key, text in texts.items():  # of two writers, one creates the array
            if not objects_in(place.store).create((place / key).path, text):
                raise PathExistsError(Problem(place.path, f"{taken}, or another program has begun to write it"))
        kept = {key: json.loads(text) for key, text in texts.items()}
        self.made[name] = kept[ROOT] if ROOT in kept else {**kept[".zarray"], "attributes": kept[".zattrs"]}
        return self.made[name]

    def write(self, name: str, pieces: Pieces) -> None:
        place = self.group.store_path / name
        chunks = chunks_in(self.create(name, pieces.length, pieces.dtype), place.path)
        write_array(objects_in(place.store), chunks, pieces)

    def within(self, name: str) -> ZarrWriter:
        if name in self.group:
            raise PathExistsError(Problem(f"{self.group.path}/{name}", "already exists, and is no order of a tensor"))
        self.groups.append(name)
        with wrap_errors(name):
            return ZarrWriter(self.group.create_group(name), self._storage, ours=self._ours)

    def write_header(self, header: Mapping[str, Any]) -> None:
        place, version = self.group.store_path, self.group.metadata.zarr_format
        unconsolidate(place)
        with wrap_errors(str(place)):
            group = zarr.open_group(place, mode="a", zarr_format=version, use_consolidated=False)  # as it is now
        _commit(group, header, self.made)

    def _version_2(self, name: str, length: int, compression: str, dtype: np.dtype[Any]) -> dict[str, Any]:
        chunk = self._storage.of("chunks", name) or THRESHOLDS.zarr_shard
        codec = None if compression == "none" else {"id": compression, **CODECS[compression].settings(dtype, 2)}
        return {"chunks": (min(chunk, max(length, 1)),), "compressors": codec}

    def _version_3(self, name: str, length: int, compression: str, dtype: np.dtype[Any]) -> dict[str, Any]:
        chunk = min(self._storage.of("chunks", name) or usual_chunk(self.group.store), max(length, 1))
        shard = self._storage.of("shards", name)
        codecs: list[dict[str, Any]] = []
        if compression != "none":
            codecs.append({"name": compression, "configuration": dict(CODECS[compression].settings(dtype, 3))})
        if self._storage.chunk_checksum is not False:
            codecs.append({"name": "crc32c"})
        options: dict[str, Any] = {"chunks": (chunk,), "compressors": codecs or None}
        options["dimension_names"] = [f"dim_{name}"]  # xarray refuses a group with unnamed dimensions
        if shard or length > chunk:
            options["shards"] = (-(-min(shard or THRESHOLDS.zarr_shard, max(length, 1)) // chunk) * chunk,)
        return options


def _sentinel(name: str, dtype: np.dtype[Any]) -> Any:
    """The fill value of a Zarr array: for indices and pointers, a number out of range."""
    return 0 if name in ("values", "fill_value") or dtype.kind not in "iu" else np.iinfo(dtype).max


def _commit(
    group: zarr.Group, header: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]], *, sizes: bool = True
) -> None:
    """Write the header, the metadata of its arrays, and their sizes if they are stored already."""
    sizes = sizes and group.store.supports_listing
    taken = {name: stored_size(group.store_path / name) for name in nodes} if sizes else {}
    listed = {"header": of_header(header), "arrays": dict(nodes), "bytes": taken}
    with wrap_errors(str(group.store_path)):
        group.update_attributes({ATTRIBUTE: dict(header), ARRAYS: listed})


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
    """A group of a new store, or of a copy of the store. It replaces the old store if the block succeeds.

    Local folders and zip files are replaced. Other stores are written in place, the header last. If that fails, the old
    tensor is restored. In these, and with a group, everything but the tensor is kept.
    list_others: lists the members of a folder that are not part of the tensor. Raises PathExistsError, OptionError.
    """
    if isinstance(path, zarr.Group):
        check_store(path.store)
        place: Any = os.path.join(path.store.root, path.path) if type(path.store) is LocalStore else path.store_path
        with writing(place, "", overwrite, limits, storage, zarr_format=path.metadata.zarr_format) as writer:
            yield writer
        fresh = zarr.open_group(path.store_path, mode="r", use_consolidated=False).attrs.asdict()
        path.metadata.attributes.clear()  # else the next attribute set through this group would remove the header
        path.metadata.attributes.update(fresh)
        object.__setattr__(path.metadata, "consolidated_metadata", None)
        return
    if NAMES & set((group or "").split("/")):
        raise ContainerError(Problem(str(group), "no group has the name of a metadata file of Zarr"))
    more = ("shards",) if zarr_format == 3 else ()
    storage.refuse(f"Zarr {zarr_format}", but=(*CHUNKED, *more), compressions=CODECS)
    if isinstance(path, StorePath) and type(path.store) is LocalStore:
        path, group = path.store, f"{path.path}/{group or ''}".strip("/")
    if type(path) is LocalStore and not path.read_only:
        path = str(path.root)

    def filling(place: StorePath, made: list[StorePath]) -> contextlib.AbstractContextManager[ZarrWriter]:
        return _filling(place, str(path), group or "", bool(overwrite), limits, storage, zarr_format, made)

    if not isinstance(path, str) or is_url(path):
        place = place_of(path)
        with _restoring(place, str(path), group or "", limits) as made, filling(place, made) as writer:
            yield writer
        return
    list_others = list_others or others
    keep = keeps(path, group, overwrite, list_others)
    if not path.lower().endswith(".zip"):
        with replacing_folder(path, overwrite, keep=keep, others=list_others) as part:
            with filling(StorePath(LinklessStore(part)), []) as writer:
                yield writer
            _unconsolidate_above(path)
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
            with filling(StorePath(LinklessStore(os.path.join(folder, inner))), []) as writer:
                yield writer
            _zip(folder, part)
        finally:
            remove(folder)


@contextlib.contextmanager
def _filling(
    place: StorePath,
    called: str,
    group: str,
    overwrite: bool,
    limits: Limits,
    storage: Storage,
    zarr_format: int,
    made: list[StorePath],
) -> Iterator[ZarrWriter]:
    """A group below a place, after its old tensor was removed. called: the path of the store. made: new groups."""
    with _awaiting_writes(), wrap_errors(called):
        version = (node_at(place) or {"zarr_format": zarr_format})["zarr_format"]
        if zarr_format == 2 != version:
            raise OptionError(Problem("kind", f"{called} is of version {version} already"))
        made.extend(at for at in _down_to(place / group) if new_group(at, version))
        target = zarr.open_group(place / group, mode="r+", use_consolidated=False)
        if ATTRIBUTE in target.attrs:
            if not overwrite:
                raise PathExistsError(Problem(f"{called}:{group or '/'}", "has a tensor; pass overwrite=True"))
            _clear(target, _names(target.store_path, limits))
    writer = ZarrWriter(target, storage)
    try:
        with _awaiting_writes():
            yield writer
    except BaseException:
        for name in (*writer.made, *writer.groups):  # so that a second attempt can succeed
            with contextlib.suppress(Exception):
                del target[name]
        raise


def _names(place: StorePath, limits: Limits) -> set[str]:
    """The names of the arrays and orders of the tensor in a group, if it has one."""
    node = node_at(place)
    if node is None or ATTRIBUTE not in node.get("attributes", {}):
        return set()
    return names_in(ZarrReader(place, node, limits).read_header())


def _clear(group: zarr.Group, names: set[str]) -> None:
    """Delete the tensor in a group: its header first, then its arrays and orders."""
    for key in (ATTRIBUTE, ARRAYS):
        group.attrs.pop(key, None)
    for name in sorted(names):
        member = group.get(name)
        if isinstance(member, zarr.Array) or (isinstance(member, zarr.Group) and ATTRIBUTE in member.attrs):
            del group[name]


@contextlib.contextmanager
def _restoring(place: StorePath, called: str, group: str, limits: Limits) -> Iterator[list[StorePath]]:
    """Restore the tensor in a group of a store if the block fails. Its bytes are kept in memory during the block.

    The block adds the groups that it makes to the list. What another program has written in the meantime is kept: only
    missing keys are put back, and only groups without members are removed.
    """
    store, target = place.store, place / group
    made: list[StorePath] = []
    check_store(store)

    async def listed(at: StorePath) -> list[str]:
        return [key async for key in store.list_prefix(f"{at.path}/".lstrip("/"))]

    with wrap_errors(called):
        node = node_at(target)
        at_header = ROOT if node is None or node["zarr_format"] == 3 else ".zattrs"
        text = stored(target, at_header)
        keys = [key for name in _names(target, limits) for key in sync(listed(target / name))]
        before = {key: value for key in keys if (value := stored(StorePath(store), key)) is not None}

    def restore() -> None:
        now, old = node_at(target), {} if node is None else node.get("attributes", {})
        untouched = all(stored(StorePath(store), key) in (None, value) for key, value in before.items())
        if ATTRIBUTE in old and now is not None and ATTRIBUTE not in now.get("attributes", {}) and untouched:
            for key, value in before.items():
                objects_in(store).create(key, value)
            header = {key: old[key] for key in (ATTRIBUTE, ARRAYS, AT) if key in old}
            if {**now, "attributes": {**now.get("attributes", {}), **header}} == node:  # the same bytes as before
                objects_in(store).put_all([((target / at_header).path, lambda: [text])])
            else:
                zarr.open_group(target, mode="r+", use_consolidated=False).update_attributes(header)
        for at in reversed(made):
            keys = sync(listed(at))
            if {key.rpartition("/")[0] for key in keys} == {at.path} and not (node_at(at) or {}).get("attributes"):
                for key in keys:
                    sync(store.delete(key))

    try:
        yield made
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
    for at in _down_to(place):
        if (text := stored(at, ROOT)) is None:
            sync((at / ".zmetadata").delete())
        elif (node := json.loads(text)).pop("consolidated_metadata", None):
            objects_in(place.store).put_all([((at / ROOT).path, lambda node=node: [json.dumps(node).encode()])])  # type: ignore[misc]


def _unconsolidate_above(path: str) -> None:
    """Do the same for the folders above a store, which may be groups of a larger one."""
    folder = os.path.dirname(real_path(path))
    while any(os.path.isfile(os.path.join(folder, key)) for key in (ROOT, ".zgroup")):
        unconsolidate(StorePath(LocalStore(folder)))
        folder = os.path.dirname(folder)


@contextlib.contextmanager
def _awaiting_writes() -> Iterator[None]:
    """After an error, wait for pending writes of zarr: they would write into a folder that is being removed."""

    async def settle() -> None:
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)

    try:
        yield
    except BaseException:
        sync(settle())
        raise


def _zip(folder: str, target: str) -> None:
    """Store the files of a folder in a zip file, sorted and without times, so equal folders give equal bytes."""
    files = sorted(os.path.join(place, name) for place, names in folders_below(folder) for name in names)
    with zipfile.ZipFile(target, "w") as archive:
        for file in files:
            member = zipfile.ZipInfo(os.path.relpath(file, folder).replace(os.sep, "/"))
            with open(file, "rb") as source, archive.open(member, "w", force_zip64=True) as out:
                shutil.copyfileobj(source, out)


def new_group(place: StorePath, zarr_format: int) -> bool:
    """Make an empty group. Returns False if there is one already. Raises PathExistsError for an array."""
    key = ROOT if zarr_format == 3 else ".zgroup"
    node = {"zarr_format": zarr_format} | ({"node_type": "group", "attributes": {}} if zarr_format == 3 else {})
    check_store(place.store)
    if (there := node_at(place)) is not None:
        if there["node_type"] == "array":
            raise PathExistsError(Problem(place.path, "is an array; choose another place"))
        return False
    return objects_in(place.store).create((place / key).path, json.dumps(node).encode())


def new_metadata(
    arrays: Mapping[str, tuple[int, np.dtype[Any]]], header: Mapping[str, Any], storage: Storage, *, remote: bool
) -> dict[str, bytes]:
    """The metadata of a group of Zarr 3 with these arrays, by key. arrays: a length and a type by name. remote: for an
    object store.
    """
    if remote and storage.chunks is None:
        storage = replace(storage, chunks=THRESHOLDS.bucket_chunk)
    kept: dict[str, Any] = {}
    group = zarr.create_group(MemoryStore(kept), zarr_format=3)
    writer = ZarrWriter(group, storage)
    made = {name: writer.create(name, length, dtype) for name, (length, dtype) in arrays.items()}
    _commit(group, header, made, sizes=False)
    return {key: buffer.to_bytes() for key, buffer in kept.items()}


def sealed_root(text: bytes, sums: Mapping[str, int]) -> bytes:
    """The metadata of a group with a seal. sums: the checksums of all arrays; empty for no seal."""
    if not sums:
        return text
    root = json.loads(text)
    known = root["attributes"]
    known[ATTRIBUTE] = sealed(known[ATTRIBUTE], sums)
    known[ARRAYS]["header"] = of_header(known[ATTRIBUTE])
    return json.dumps(root).encode()


FUNCTIONS = Container(
    reading=in_folder(reading),
    writing=writing,
    opened=opened,
    list_groups=list_groups,
    mark=mark,
    others=others,
    neighbours=neighbours,
)
