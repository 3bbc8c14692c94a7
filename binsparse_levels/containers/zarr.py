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
from .base import CHUNKED, Storage, is_url, names_in, wrap_errors
from .checksums import of_header, sealed
from .direct import open_zip
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
    SHARD,
    SMALL_CHUNK,
    ZarrReader,
    list_groups,
    mark,
    node_at,
    others,
    reading,
    stored_size,
    usual_chunk,
)
from .zarr_stores import NAMES, Folder, check_store, folder_of, objects_in, opened, place_of, stored

__all__ = [
    "AT", "ROOT", "ZarrWriter", "list_groups", "mark", "new_metadata", "opened", "others", "reading", "sealed_root",
    "writing",
]  # fmt: skip


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
        self.made: dict[str, zarr.Array[Any]] = {}
        self.groups: list[str] = []

    def create(self, name: str, length: int, dtype: np.dtype[Any]) -> zarr.Array[Any]:
        """An array without chunks."""
        if name in self.group:
            raise PathExistsError(Problem(f"{self.group.path}/{name}", "already exists, and is no array of a tensor"))
        compression = self._storage.of("compression", name) or "blosc"
        layout = self._version_2 if self.group.metadata.zarr_format == 2 else self._version_3
        with wrap_errors(name):
            self.made[name] = self.group.create_array(
                name,
                shape=(length,),
                dtype=np.dtype(dtype.newbyteorder("<").str),  # zarr accepts only one of the C names of a type
                fill_value=_sentinel(name, dtype) if self._ours else 0,
                config={"write_empty_chunks": True},
                attributes={COMPLETE: True} if self._ours else {},
                **layout(name, length, compression, dtype),
            )
        return self.made[name]

    def write(self, name: str, pieces: Pieces) -> None:
        created = self.create(name, pieces.length, pieces.dtype)
        chunks = chunks_in(_metadata_of(created), created.path)
        assert chunks is not None  # our own metadata is always supported
        write_array(objects_in(created.store), chunks, pieces)

    def within(self, name: str) -> ZarrWriter:
        if name in self.group:
            raise PathExistsError(Problem(f"{self.group.path}/{name}", "already exists, and is no order of a tensor"))
        self.groups.append(name)
        with wrap_errors(name):
            return ZarrWriter(self.group.create_group(name), self._storage, ours=self._ours)

    def write_header(self, header: Mapping[str, Any]) -> None:
        _commit(self.group, header, self.made)

    def _version_2(self, name: str, length: int, compression: str, dtype: np.dtype[Any]) -> dict[str, Any]:
        chunk = self._storage.of("chunks", name) or SHARD
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
            options["shards"] = (-(-min(shard or SHARD, max(length, 1)) // chunk) * chunk,)
        return options


def _sentinel(name: str, dtype: np.dtype[Any]) -> Any:
    """The fill value of a Zarr array: for indices and pointers, a number out of range."""
    return 0 if name in ("values", "fill_value") or dtype.kind not in "iu" else np.iinfo(dtype).max


def _commit(
    group: zarr.Group, header: Mapping[str, Any], arrays: Mapping[str, zarr.Array[Any]], *, sizes: bool = True
) -> None:
    """Write the header, the metadata of its arrays, and their sizes if they are stored already."""
    nodes = {name: _metadata_of(array) for name, array in arrays.items()}
    sizes = sizes and group.store.supports_listing
    taken = {name: stored_size(array.store_path) for name, array in arrays.items()} if sizes else {}
    listed = {"header": of_header(header), "arrays": nodes, "bytes": taken}
    with wrap_errors(str(group.store_path)):
        group.update_attributes({ATTRIBUTE: dict(header), ARRAYS: listed})


def _metadata_of(array: Any) -> dict[str, Any]:
    """The metadata of an array, as JSON."""
    texts = array.metadata.to_buffer_dict(default_buffer_prototype())
    kept = {key: json.loads(text.to_bytes()) for key, text in texts.items()}
    return dict(kept[ROOT] if ROOT in kept else {**kept[".zarray"], "attributes": kept[".zattrs"]})


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

    Local folders and zip files are replaced. Other stores are written in place, the header last, and restored if that
    fails. In these, and with a group, everything but the tensor is kept.
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
    if type(path) is LocalStore and not path.read_only:
        path = str(path.root)

    def filling(place: StorePath) -> contextlib.AbstractContextManager[ZarrWriter]:
        return _filling(place, str(path), group or "", bool(overwrite), limits, storage, zarr_format)

    if not isinstance(path, str) or is_url(path):
        place = place_of(path)
        with _restoring(place, str(path), group or "", limits), filling(place) as writer:
            yield writer
        return
    list_others = list_others or others
    keep = keeps(path, group, overwrite, list_others)
    if not path.lower().endswith(".zip"):
        with replacing_folder(path, overwrite, keep=keep, others=list_others) as part:
            with filling(StorePath(Folder(part))) as writer:
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
            with filling(StorePath(Folder(os.path.join(folder, inner)))) as writer:
                yield writer
            _zip(folder, part)
        finally:
            remove(folder)


@contextlib.contextmanager
def _filling(
    place: StorePath, called: str, group: str, overwrite: bool, limits: Limits, storage: Storage, zarr_format: int
) -> Iterator[ZarrWriter]:
    """A group below a place, after its old tensor was removed. called: the path of the store."""
    with _awaiting_writes(), wrap_errors(called):
        _unconsolidate(place / group)
        if node_at(place) is None:
            zarr.create_group(place, zarr_format=zarr_format)  # type: ignore[arg-type]
        root = zarr.open_group(place, mode="r+", use_consolidated=False)
        if zarr_format == 2 != root.metadata.zarr_format:
            raise OptionError(Problem("kind", f"{called} is of version {root.metadata.zarr_format} already"))
        target = root.require_group(group) if group else root
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
def _restoring(place: StorePath, called: str, group: str, limits: Limits) -> Iterator[None]:
    """Restore the tensor in a group of a store if the block fails. Its bytes are kept in memory during the block."""
    store, target = place.store, place / group
    check_store(store)
    above = target.path.split("/") if target.path else []
    keys = [f"{'/'.join(above[:k])}/{name}".lstrip("/") for k in range(len(above) + 1) for name in NAMES]

    async def kept(names: set[str]) -> dict[str, Any]:
        arrays = [key for name in names async for key in store.list_prefix(f"{(target / name).path}/")]
        return {key: await store.get(key, default_buffer_prototype()) for key in [*arrays, *keys]}

    async def restore() -> list[str]:
        lost = []
        for key, value in before.items():
            try:
                await (store.delete(key) if value is None else store.set(key, value))
            except Exception:
                lost.append(key)
        return lost

    with wrap_errors(called):
        before = sync(kept(_names(target, limits)))
    try:
        yield
    except BaseException as error:
        if lost := sync(restore()):
            what = f"{len(lost)} keys could not be restored, such as {lost[0]}; write it to another place"
            raise ContainerError(Problem(called, what)) from error
        raise


def _unconsolidate(place: StorePath) -> None:
    """Remove consolidated metadata at a group or above it: they are out of date."""
    path = ""
    for part in ["", *place.path.split("/")]:
        path = f"{path}/{part}".strip("/")
        at = StorePath(place.store, path)
        if (text := stored(at, ROOT)) is None:
            sync((at / ".zmetadata").delete())
        elif (node := json.loads(text)).pop("consolidated_metadata", None):
            objects_in(place.store).put_all([((at / ROOT).path, lambda node=node: [json.dumps(node).encode()])])  # type: ignore[misc]


def _unconsolidate_above(path: str) -> None:
    """Do the same for the folders above a store, which may be groups of a larger one."""
    folder = os.path.dirname(real_path(path))
    while any(os.path.isfile(os.path.join(folder, key)) for key in (ROOT, ".zgroup")):
        _unconsolidate(StorePath(LocalStore(folder)))
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
    files = sorted(os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)
    with zipfile.ZipFile(target, "w") as archive:
        for file in files:
            member = zipfile.ZipInfo(os.path.relpath(file, folder).replace(os.sep, "/"))
            with open(file, "rb") as source, archive.open(member, "w", force_zip64=True) as out:
                shutil.copyfileobj(source, out)


def new_metadata(
    arrays: Mapping[str, tuple[int, np.dtype[Any]]], header: Mapping[str, Any], storage: Storage, *, remote: bool
) -> dict[str, bytes]:
    """The metadata of a group of Zarr 3 with these arrays, by key. arrays: a length and a type by name. remote: for an
    object store.
    """
    if remote and storage.chunks is None:
        storage = replace(storage, chunks=SMALL_CHUNK)
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
