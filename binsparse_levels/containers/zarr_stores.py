"""The stores of zarr's that groups lie in: folders, zip files, web servers, clouds; a store that can be undone."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import threading
import zipfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore, StorePath, WrapperStore, ZipStore

from ..errors import ContainerError, Problem, needing
from .base import is_url, touching
from .direct import open_zip, refuse_links
from .remote import CLOUDS, RETRY, web_store
from .zarr_internals import default_buffer_prototype, sync


@contextlib.contextmanager
def opened(path: Any) -> Iterator[Any]:
    """The argument for zarr at a path: the path, a store of a zip file, or a store of a folder.

    The block closes a zip file, unless it was open before. The store of a folder follows no links.
    """
    if isinstance(path, zipfile.ZipFile):
        yield _Zip(path)
        return
    if isinstance(path, zarr.Group):
        path = path.store_path
    if isinstance(path, StorePath) and type(path.store) is LocalStore:
        yield StorePath(Folder(path.store.root, read_only=True), path.path)
        return
    if type(path) is LocalStore or (isinstance(path, str) and os.path.isdir(path)):
        root = path if isinstance(path, str) else path.root
        yield Folder(os.path.abspath(root), read_only=True)  # the working folder may change
        return
    if is_url(path):
        path = _at_url(path)
    if isinstance(path, Store | StorePath) and not isinstance(path, Far):
        place = path if isinstance(path, StorePath) else StorePath(path)
        path = path if is_near(place.store) else Far(place.store, place.path)
    if not isinstance(path, str) or not os.path.isfile(path):
        yield path
        return
    with open_zip(path) as archive:
        yield _Zip(archive)


class Far(StorePath):
    """A place in an object store. heads: the metadata of groups, by path, so that each is asked for once."""

    def __init__(self, store: Store, path: str = "") -> None:
        super().__init__(store, path)
        self.heads: dict[str | None, tuple[bytes, int] | None] = {}


class Folder(LocalStore):
    """A local folder in which zarr follows no symbolic link."""

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        refuse_links(str(self.root), key)
        return await super().get(key, *args, **kwargs)

    def get_sync(self, key: str, *args: Any, **kwargs: Any) -> Any:
        refuse_links(str(self.root), key)
        return super().get_sync(key, *args, **kwargs)

    async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
        asked = list(key_ranges)
        for key, _ in asked:
            refuse_links(str(self.root), key)
        return await super().get_partial_values(prototype, asked)

    async def getsize_prefix(self, prefix: str) -> int:
        places = os.walk(self.root / prefix)
        return sum(os.lstat(os.path.join(place, name)).st_size for place, _, names in places for name in names)


class _Zip(ZipStore):
    """A zip file that is open for reading."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        super().__init__(archive.filename or "", mode="r")
        self._lock = threading.RLock()
        self._zf = archive
        self._is_open = True


class _Called:
    """What errors call a store: its URL."""

    url = ""

    def __str__(self) -> str:
        return self.url or super().__str__()


class _Cloud(_Called, ObjectStore[Any]):
    """A bucket of a cloud."""


class _System(_Called, FsspecStore):
    """A place in a file system of fsspec's."""


class _Web(_Called, ObjectStore[Any]):
    """A store on a web server: read-only, without a listing. A server that cannot send a range sends the whole file."""

    supports_listing = False

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        from obstore.exceptions import NotSupportedError

        try:
            return await super().get(key, prototype, byte_range)
        except NotSupportedError:
            whole = await super().get(key, prototype)
        match byte_range:
            case RangeByteRequest(start, stop):
                return None if whole is None else whole[start:stop]
            case OffsetByteRequest(start):
                return None if whole is None else whole[start:]
            case SuffixByteRequest(count):
                return None if whole is None else whole[max(len(whole) - count, 0) :]
        return whole

    async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]


def _at_url(url: str) -> Any:
    """The store at a URL: obstore's for web servers and for clouds where obstore is installed, else fsspec's."""
    with touching(url), needing("remote"):
        parts = urlsplit(url)
        if parts.scheme in CLOUDS and importlib.util.find_spec("obstore"):
            from obstore.store import from_url

            store: Any = _Cloud(from_url(url, retry_config=RETRY))
        elif parts.scheme in ("http", "https"):
            store = _Web(web_store(url), read_only=True)
        else:
            store = _System.from_url(url)
        store.url = url
        return store


def is_near(store: Store) -> bool:
    """Whether a request takes no time worth counting."""
    store = store._store if isinstance(store, _Undoable) else store
    return isinstance(store, LocalStore | MemoryStore | ZipStore)


def check_store(store: Store) -> None:
    """Raise ContainerError for a store that cannot be written, or whose changes cannot be undone."""
    if store.read_only:
        raise ContainerError(
            Problem(str(store), "is open for reading only; open it for writing, or give another place")
        )
    if not store.supports_deletes:
        raise ContainerError(Problem(str(store), "cannot take back what is written; give the path of the file"))


@contextlib.contextmanager
def undone(place: Any) -> Iterator[Store | StorePath]:
    """The store at a place, open for writing. Where the block fails, its changes are undone."""
    with touching(str(place)):
        if isinstance(place, str):
            place = _at_url(place)
    path = place if isinstance(place, StorePath) else StorePath(place)
    check_store(path.store)
    store = _Undoable(path.store)
    try:
        yield StorePath(store, path.path)
    except BaseException as error:
        if lost := sync(store.undo()):
            what = (
                f"{len(lost)} keys could neither be written nor put back, such as {lost[0]}; write it to another place"
            )
            raise ContainerError(Problem(str(place), what)) from error
        raise


class _Undoable(WrapperStore[Store]):
    """A store whose changes can be undone: the old value of a key is kept before it changes."""

    _supports_sync_io = False  # else newer versions of zarr write past `set` and `delete`

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._kept: dict[str, Any] = {}

    async def _keep(self, key: str) -> None:
        if key not in self._kept:
            self._kept[key] = await self._store.get(key, default_buffer_prototype())

    async def set(self, key: str, value: Any) -> None:
        with touching(f"{self._store}/{key}"):
            await self._keep(key)
            await self._store.set(key, value)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        with touching(f"{self._store}/{key}"):
            await self._keep(key)
            await self._store.set_if_not_exists(key, value)

    async def _set_many(self, values: Any) -> None:
        for key, value in values:
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        with touching(f"{self._store}/{key}"):
            await self._keep(key)
            await self._store.delete(key)

    async def delete_dir(self, prefix: str) -> None:
        for key in [key async for key in self._store.list_prefix(f"{prefix}/".lstrip("/"))]:
            await self.delete(key)

    async def getsize_prefix(self, prefix: str) -> int:
        return await self._store.getsize_prefix(prefix)  # zarr's own wrapper reads every object

    async def undo(self) -> list[str]:
        """Restore every key. Returns the keys where that failed."""
        lost = []
        for key, value in reversed(self._kept.items()):
            try:
                await (self._store.delete(key) if value is None else self._store.set(key, value))
            except Exception:
                lost.append(key)
        return lost
