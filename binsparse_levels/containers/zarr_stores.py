"""The Zarr stores of groups: folders, zip files, web servers, clouds."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore, StorePath, WrapperStore, ZipStore

from ..errors import ContainerError, OptionError, Problem, needing
from ..log import LOG
from ..parallel import Lock
from . import remote
from .base import in_turn, is_url, wrap_errors
from .direct import folders_below, open_zip, refuse_links
from .objects.folder import Folder
from .objects.requests import Requests
from .objects.stores import ArrayStore
from .zarr_internals import default_buffer_prototype, range_in, sync

NAMES = {"zarr.json", ".zgroup", ".zattrs", ".zarray", ".zmetadata"}


@contextlib.contextmanager
def opened(path: Any) -> Iterator[StorePath]:
    """The place in a Zarr store for a path, for reading.

    The block closes a zip file, unless it was open before. The store of a folder follows no links.
    """
    if isinstance(path, str) and os.path.isfile(path):
        with open_zip(path) as archive:
            yield _in_zip(archive)
    elif isinstance(path, zipfile.ZipFile):
        yield _in_zip(path)
    else:
        place = place_of(path)
        if type(place.store) is LocalStore:
            yield StorePath(LinklessStore(os.path.abspath(place.store.root), read_only=True), place.path)
        else:
            known = isinstance(place.store, RemoteStore) or is_local(place.store)
            yield place if known else StorePath(RemoteStore(place.store, path if is_url(path) else ""), place.path)


def place_of(path: Any) -> StorePath:
    """The place in a Zarr store for a path, a URL, a store or a group, as zarr opens it."""
    if isinstance(path, zarr.Group):
        return path.store_path
    if isinstance(path, Store | StorePath):
        return path if isinstance(path, StorePath) else StorePath(path)
    if not isinstance(path, str):
        raise OptionError(f"expected a path such as 'a.h5', a store or a group of zarr, got {type(path).__name__}")
    return StorePath(_store_at(path) if is_url(path) else LocalStore(os.path.abspath(path)))


def _store_at(url: str) -> Store:
    """The store at a URL: obstore's for web servers, and for clouds if obstore is installed, else fsspec's."""
    with wrap_errors(url), needing("remote"):
        store = remote.store_at(url)
        if store is None:
            return FsspecStore.from_url(url)
        return ObjectStore(store, read_only=remote.is_web(url))


class RemoteStore(WrapperStore[Store]):
    """A store with slow requests, for reading. Each key of metadata is fetched once.

    url: its name in errors. consolidated: all metadata by key, if they are consolidated and not out of date.
    """

    def __init__(self, store: Store, url: str = "") -> None:
        super().__init__(store)
        self._url = url
        self._known: dict[str, Any] = {}
        self.consolidated: dict[str, Any] | None = None

    def __str__(self) -> str:
        return self._url or str(self._store)

    async def stored_metadata(self, key: str) -> Any:
        """The stored metadata of a key, not the consolidated ones."""
        if key not in self._known:
            self._known[key] = await self._fetched(key, default_buffer_prototype())
        return self._known[key]

    async def _fetched(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        buffer = await self._store.get(key, prototype, byte_range)
        LOG.debug("GET %s %s: %s bytes", key, byte_range or "whole", "no" if buffer is None else len(buffer))
        return buffer

    @property
    def supports_listing(self) -> bool:
        return self._store.supports_listing and not remote.is_web(self._url)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        if key.rpartition("/")[2] not in NAMES:
            try:
                return await self._fetched(key, prototype, byte_range)
            except Exception as error:
                if byte_range is None or type(error).__name__ != "NotSupportedError":
                    raise
            whole = await self._fetched(key, prototype)  # from a web server that sends no ranges
            return None if whole is None else whole[slice(*range_in(whole, byte_range))]
        if key in self._known or not self.consolidated:
            return await self.stored_metadata(key)
        node = self.consolidated.get(key)
        return None if node is None else prototype.buffer.from_bytes(json.dumps(node).encode())

    async def getsize_prefix(self, prefix: str) -> int:
        return await self._store.getsize_prefix(prefix)  # zarr's own wrapper reads every object


class LinklessStore(LocalStore):
    """A local folder in which zarr does not follow symbolic links."""

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        refuse_links(str(self.root), key)
        return await super().get(key, *args, **kwargs)

    def get_sync(self, key: str, *args: Any, **kwargs: Any) -> Any:
        refuse_links(str(self.root), key)
        return super().get_sync(key, *args, **kwargs)

    async def getsize_prefix(self, prefix: str) -> int:
        places = folders_below(str(self.root / prefix))
        return sum(os.lstat(os.path.join(place, name)).st_size for place, names in places for name in names)


class _Zip(ZipStore):
    """A zip file that is open for reading."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        super().__init__(archive.filename or "", mode="r")
        self._lock: Any = Lock()
        self._zf = archive
        self._is_open = True


def _in_zip(archive: zipfile.ZipFile) -> StorePath:
    return StorePath(_Zip(archive), folder_of(archive.namelist()))


def folder_of(names: Iterable[str]) -> str:
    """The only folder at the root of a zip file, if a Zarr store was zipped with its folder; else an empty string."""
    tops = {name.partition("/")[0] for name in names} - {"__MACOSX"}  # which the Finder adds
    return tops.pop() if len(tops) == 1 and not tops & NAMES else ""


def zip_folder(folder: str, target: str) -> None:
    """Store the files of a folder in a zip file, sorted and without times, so equal folders give equal bytes."""
    files = sorted(os.path.join(place, name) for place, names in folders_below(folder) for name in names)
    with zipfile.ZipFile(target, "w") as archive:
        for file in files:
            member = zipfile.ZipInfo(os.path.relpath(file, folder).replace(os.sep, "/"))
            with open(file, "rb") as source, archive.open(member, "w", force_zip64=True) as out:
                shutil.copyfileobj(source, out)


def refresh(group: zarr.Group) -> None:
    """Read the attributes of a group again, or the next one that is set through it would remove the header."""
    fresh = zarr.open_group(group.store_path, mode="r", use_consolidated=False).attrs.asdict()
    group.metadata.attributes.clear()
    group.metadata.attributes.update(fresh)
    object.__setattr__(group.metadata, "consolidated_metadata", None)


def is_local(store: Store) -> bool:
    """Return True for stores on this machine, whose requests are fast."""
    return isinstance(store, LocalStore | MemoryStore | ZipStore)


def check_store(store: Store) -> None:
    """Raise ContainerError for a store that cannot be written, or whose changes cannot be undone."""
    if store.read_only:
        what = "is open for reading only; open it for writing, or give another place"
        raise ContainerError(Problem(str(store), what))
    if not store.supports_deletes:
        raise ContainerError(Problem(str(store), "cannot undo writes; pass the path of the file"))


def objects_in(store: Store) -> ArrayStore:
    """The objects of a Zarr store."""
    return Folder(str(store.root)) if isinstance(store, LocalStore) else Requests(store)


def edit(place: StorePath, key: str, change: Callable[[bytes | None], bytes | None]) -> bool:
    """Replace an object by a function of its bytes, which are None for a missing object. Returns False if the function
    returns None.

    The function is called again if another program has changed the object, in stores with conditional requests. In
    others, only threads of this process do not undo the changes of each other.
    """
    store, path = place.store, (place / key).path
    if isinstance(store, ObjectStore):
        return _edit_object(store.store, path, change)
    with in_turn:
        new, objects = change(stored(place, key)), objects_in(store)
        if new is not None and isinstance(objects, Folder):
            objects.put(path, [new], flush=type(store) is LocalStore)  # the others are temporary
        elif new is not None:
            objects.put_all([(path, lambda: [new])])
    return new is not None


def _edit_object(store: Any, key: str, change: Callable[[bytes | None], bytes | None]) -> bool:
    """`edit` for a store of obstore."""
    from obstore import get, put
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    new: bytes | None = None
    while True:
        there: bytes | None = None
        mode: Any = "create"
        with contextlib.suppress(FileNotFoundError):
            found = get(store, key)
            there = bytes(found.bytes())
            mode = {tag: x for tag in ("e_tag", "version") if (x := found.meta[tag])} or "overwrite"
        if new is not None and there == new:  # the answer to the last request was lost
            return True
        new = change(there)
        if new is None:
            return False
        with contextlib.suppress(AlreadyExistsError, PreconditionError):
            try:
                put(store, key, new, mode=mode)
            except NotImplementedError:  # a folder compares no tags
                put(store, key, new)
            return True


def stored(place: StorePath, key: str) -> bytes | None:
    """The value of a key at a place, or None. A folder is read without zarr, which takes 0.3 ms for each key."""
    if not isinstance(place.store, LocalStore):
        buffer = sync((place / key).get())
        return None if buffer is None else buffer.to_bytes()
    root, path = str(place.store.root), f"{place.path}/{key}".lstrip("/")
    refuse_links(root, path)
    try:
        with open(os.path.join(root, path), "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
