"""Write Zarr: a new store beside the old store, or in place with the header last."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.storage import LocalStore, MemoryStore, StorePath

from ..arrays import Pieces
from ..errors import (
    ContainerError,
    OptionError,
    PathExistsError,
    Problem,
)
from ..limits import Limits
from .base import Storage, is_url, names_in, touching
from .checksums import of_header
from .direct import open_zip
from .objects.chunks import chunks_of
from .objects.codecs import CODECS
from .objects.writing import extend as extend_array
from .objects.writing import write as write_array
from .replacing import Others, Overwrite, keeps, remove, replacing, replacing_folder
from .zarr_internals import default_buffer_prototype, sync
from .zarr_reading import (
    ARRAYS,
    ATTRIBUTE,
    COMPLETE,
    NAMES,
    SHARD,
    SMALL_CHUNK,
    ZarrReader,
    check_place,
    objects_in,
    others,
    stored_sizes,
    usual_chunk,
)
from .zarr_stores import Folder, check_store, opened, undone

_MOST_FILES = 2**10  # of one array that grows, as long as they are small


class ZarrWriter:
    """A group that is being filled. Chunks of zeros are stored too, so that a missing chunk is detected.

    ours: no other program will change the arrays. Only such arrays have a mark and a fill value, which a change would
    make wrong.
    """

    def __init__(self, group: zarr.Group, storage: Storage, *, ours: bool = True) -> None:
        self._group = group
        self._storage = storage
        self._ours = ours
        self._made: dict[str, zarr.Array[Any]] = {}
        self.written: list[str] = []

    @property
    def group(self) -> zarr.Group:
        """The group, for modules that write another layout."""
        return self._group

    def create(self, name: str, length: int, dtype: np.dtype[Any]) -> zarr.Array[Any]:
        """An array without chunks."""
        if name in self._group:
            raise PathExistsError(Problem(f"{self._group.path}/{name}", "already exists, and is no array of a tensor"))
        compression = self._storage.of("compression", name) or "blosc"
        self.written.append(name)
        layout = self._version_2 if self._group.metadata.zarr_format == 2 else self._version_3
        with touching(name):
            self._made[name] = self._group.create_array(
                name,
                shape=(length,),
                dtype=np.dtype(dtype.newbyteorder("<").str),  # zarr knows one of two C names of a type
                fill_value=_sentinel(name, dtype) if self._ours else 0,
                config={"write_empty_chunks": True},
                attributes={COMPLETE: True} if self._ours else {},
                **layout(name, length, compression, dtype),
            )
        return self._made[name]

    def write(self, name: str, pieces: Pieces) -> None:
        created = self.create(name, pieces.length, pieces.dtype)
        if (chunks := chunks_of(created)) is not None:
            write_array(objects_in(created.store), chunks, pieces)
            return
        at = 0
        for piece in pieces.regrouped(math.prod(created.shards or created.chunks)):
            if len(piece):
                created[at : at + len(piece)] = piece
            at += len(piece)

    def write_header(self, header: Mapping[str, Any]) -> None:
        _commit(self._group, header, self._made)

    def _version_2(self, name: str, length: int, compression: str, dtype: np.dtype[Any]) -> dict[str, Any]:
        chunk = self._storage.of("chunks", name) or SHARD
        codec = None if compression == "none" else {"id": compression, **CODECS[compression].settings(dtype, 2)}
        return {"chunks": (min(chunk, max(length, 1)),), "compressors": codec}

    def _version_3(self, name: str, length: int, compression: str, dtype: np.dtype[Any]) -> dict[str, Any]:
        chunk = min(self._storage.of("chunks", name) or usual_chunk(self._group.store), max(length, 1))
        shard = self._storage.of("shards", name)
        codecs: list[dict[str, Any]] = []
        if compression != "none":
            codecs.append({"name": compression, "configuration": dict(CODECS[compression].settings(dtype, 3))})
        if self._storage.checksum is not False:
            codecs.append({"name": "crc32c"})
        options: dict[str, Any] = {"chunks": (chunk,), "compressors": codecs or None}
        options["dimension_names"] = [f"dim_{name}"]  # without a name xarray refuses the group
        if shard or length > chunk:
            options["shards"] = (-(-min(shard or SHARD, max(length, 1)) // chunk) * chunk,)
        return options


def _commit(
    group: zarr.Group, header: Mapping[str, Any], arrays: Mapping[str, zarr.Array[Any]], *, stored: bool = True
) -> None:
    """Write the header, and beside it the metadata of its arrays, and their sizes where they are stored already."""
    listed = {
        "header": of_header(header),
        "arrays": {name: _metadata_of(array) for name, array in arrays.items()},
        "bytes": dict(zip(arrays, stored_sizes(arrays.values()), strict=True)) if stored else {},
    }
    group.update_attributes({ATTRIBUTE: dict(header), ARRAYS: listed})


def _metadata_of(array: Any) -> dict[str, Any]:
    """The metadata of an array, as JSON."""
    kept = {
        key: json.loads(text.to_bytes())
        for key, text in array.metadata.to_buffer_dict(default_buffer_prototype()).items()
    }
    return dict(kept["zarr.json"] if "zarr.json" in kept else {**kept[".zarray"], "attributes": kept[".zattrs"]})


def _sentinel(name: str, dtype: np.dtype[Any]) -> Any:
    """The fill value of a Zarr array: for indices and pointers, a number out of range."""
    return 0 if name in ("values", "fill_value") or dtype.kind not in "iu" else np.iinfo(dtype).max


@contextlib.contextmanager
def writing(
    path: Any,
    group: str | None,
    overwrite: Overwrite,
    limits: Limits,
    storage: Storage,
    *,
    zarr_format: int = 3,
    beside: Others | None = None,
) -> Iterator[ZarrWriter]:
    """A group of a new store, or of a copy of the store. It replaces the old store when the block ends well.

    Other stores than local folders and zip files are written in place, the header last. Where that fails, the store
    is restored. There, and with a group, everything but the tensor is kept.
    beside: lists what a folder holds beside what is written. Raises PathExistsError, OptionError.
    """
    check_place(path)
    if isinstance(path, zarr.Group):
        check_store(path.store)
        store, inner = _within(path)
        with writing(store, inner, overwrite, limits, storage, zarr_format=path.metadata.zarr_format) as writer:
            yield writer
        fresh = zarr.open_group(path.store_path, mode="r", use_consolidated=False).attrs.asdict()
        path.metadata.attributes.clear()  # else what is set next through this group would take the header away
        path.metadata.attributes.update(fresh)
        return
    if NAMES & set((group or "").split("/")):
        raise ContainerError(Problem(str(group), "no group has the name of what Zarr keeps"))
    more = ("shards",) if zarr_format == 3 else ()
    storage.refuse(f"Zarr {zarr_format}", but=("compression", "chunks", "checksum", *more), compressions=CODECS)
    if type(path) is LocalStore and not path.read_only:
        path = str(path.root)
    if not isinstance(path, str) or is_url(path):
        with undone(path) as store, _filling(path, store, group, overwrite, limits, storage, zarr_format) as writer:
            yield writer
        return
    beside = beside or others
    keep = keeps(path, group, overwrite, beside)
    if path.lower().endswith(".zip"):
        # A key of a zip file cannot be written twice, and attributes are: a folder is filled, and zipped at the end.
        with replacing(path, overwrite, keep=keep, others=beside) as part:
            folder = f"{part}.d"
            try:
                os.mkdir(folder)
                if keep and os.path.getsize(part):
                    with open_zip(part) as archive:
                        archive.extractall(folder)
                with _filling(path, folder, group, bool(overwrite), limits, storage, zarr_format) as writer:
                    yield writer
                _zip(folder, part)
            finally:
                remove(folder)
        return
    with (
        replacing_folder(path, overwrite, keep=keep, others=beside) as part,
        _filling(path, part, group, bool(overwrite), limits, storage, zarr_format) as writer,
    ):
        yield writer


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
    _commit(group, header, made, stored=False)
    return {key: buffer.to_bytes() for key, buffer in kept.items()}


def extend(
    path: Any, group: str | None, header: Callable[[], Mapping[str, Any]], pieces: Mapping[str, Pieces], limits: Limits
) -> bool:
    """Extend the arrays of a group in a local folder to longer arrays with the same beginning. False where it cannot.

    header: is called after the arrays are written. Files of whole chunks or shards are not written again: hard links
    to them are put into a new folder, which replaces the old folder atomically.
    """
    if not isinstance(path, str) or not os.path.isdir(path):
        return False
    with opened(path) as store, touching(path):
        place = zarr.open_group(store, path=group or "", mode="r", use_consolidated=False)
        if place.metadata.zarr_format != 3:
            return False
        for name, grown in pieces.items():
            array = place.get(name)
            if not isinstance(array, zarr.Array) or array.dtype != grown.dtype or not array.attrs.get(COMPLETE):
                return False
            chunks = chunks_of(array)
            if chunks is None or array.size > grown.length:
                return False
            if chunks.per_file < SHARD and grown.length > _MOST_FILES * chunks.per_file:
                return False  # chunks as small as the first tensor was: as many files, if it goes on
    with replacing_folder(path, True, keep=True) as part, _settled(), touching(path):
        root = zarr.open_group(Folder(part), mode="r+", use_consolidated=False)
        place = root.require_group(group) if group else root
        arrays: dict[str, Any] = {name: place[name] for name in pieces}
        for name, array in arrays.items():
            old, grown = array.size, pieces[name]
            if old == grown.length:  # the fill value, or the value that stands for all
                continue
            array.resize((grown.length,))
            chunks = chunks_of(array)
            assert chunks is not None
            extend_array(objects_in(array.store), chunks, old, grown)
        _commit(place, header(), arrays)
    return True


def _zip(folder: str, target: str) -> None:
    """Store the files of a folder in a zip file, sorted and without times: equal folders give equal bytes."""
    files = sorted(os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)
    with zipfile.ZipFile(target, "w") as archive:
        for file in files:
            member = zipfile.ZipInfo(os.path.relpath(file, folder).replace(os.sep, "/"))
            with open(file, "rb") as source, archive.open(member, "w", force_zip64=True) as out:
                shutil.copyfileobj(source, out)


@contextlib.contextmanager
def _filling(
    place: Any,
    store: str | Store | StorePath,
    group: str | None,
    overwrite: Overwrite,
    limits: Limits,
    storage: Storage,
    zarr_format: int,
) -> Iterator[ZarrWriter]:
    if isinstance(store, str):
        store = Folder(store)
    with _settled(), touching(str(store)):
        try:
            root = zarr.open_group(store, mode="r+", use_consolidated=False)
            there = True
        except FileNotFoundError:
            root = zarr.create_group(store, zarr_format=zarr_format)  # type: ignore[arg-type]
            there = False
        if zarr_format == 2 != root.metadata.zarr_format:
            raise OptionError(Problem("kind", f"{place} is of version {root.metadata.zarr_format} already"))
        target = root.require_group(group) if group else root
        if ATTRIBUTE in target.attrs:
            if not overwrite:
                raise PathExistsError(Problem(f"{place}:{group or '/'}", "has a tensor; pass overwrite=True"))
            _clear(target, limits)
        # Consolidated metadata would no longer be true: of version 2 they are a key, of version 3 a part of the root's.
        if there and root.metadata.zarr_format == 2:
            sync(root.store.delete(".zmetadata"))
        elif there:
            root.update_attributes({})
    writer = ZarrWriter(target, storage)
    try:
        with _settled():
            yield writer
    except BaseException:
        for name in writer.written:  # so that a second try finds nothing in its way
            with contextlib.suppress(Exception):
                del target[name]
        raise


def _within(group: zarr.Group) -> tuple[Any, str]:
    """The store of an open group, and the path in it. If the root of the store is no group, the group is it."""
    store, path = group.store, group.path
    try:
        zarr.open_group(store, mode="r", use_consolidated=False)
    except FileNotFoundError:
        return os.path.join(store.root, path) if type(store) is LocalStore else group.store_path, ""
    return str(store.root) if type(store) is LocalStore else store, path


@contextlib.contextmanager
def _settled() -> Iterator[None]:
    """After a fault, wait for pending writes of zarr: they would write into a folder that is being removed."""
    try:
        yield
    except BaseException:
        sync(_settle())
        raise


async def _settle() -> None:
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)


def _clear(group: zarr.Group, limits: Limits) -> None:
    """Delete the tensor in a group: its header first, then the arrays that the header names."""
    names = names_in(ZarrReader(group, limits).read_header())
    for key in (ATTRIBUTE, ARRAYS):
        group.attrs.pop(key, None)
    for name in sorted(names):
        if isinstance(group.get(name), zarr.Array):
            del group[name]
