"""Single files on web servers and in object stores, read by ranges through a cache of blocks.

The HDF5 library asks for a few bytes at many places. A block that holds them is fetched once, and one request fetches
blocks beside each other.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from ..errors import ContainerError, PathMissingError, Problem, needing
from .base import touching

CLOUDS = {"s3", "s3a", "gs", "az", "abfs", "abfss"}  # whose credentials obstore takes from the environment

_BLOCK = 2**16  # bytes
_AHEAD = 24  # blocks that a request asks for at least: an .h5ad of 0.8 GB is opened by 5 requests, 100 rows take 4 to 6
_GAP = 4  # blocks
_HELD = 2**10  # blocks in memory
RETRY: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=60)}
_PATIENCE = timedelta(minutes=5)  # for an answer of a web server and all its bytes, as fsspec has it

Fetch = Callable[[int, int], bytes]  # the bytes start … stop - 1


class Ranges(io.RawIOBase):
    """A file of so many bytes, of which any range can be read."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at


class RemoteFile(Ranges):
    """A file that is read by ranges. size: in bytes. version: what its place says of it, which changes with the file.
    first: the bytes at its beginning, of any number.
    """

    def __init__(self, name: str, size: int, version: str, fetch: Fetch, first: bytes = b"") -> None:
        super().__init__(size)
        self.name = name
        self.version = version
        self._fetch = fetch
        self._lock = threading.RLock()
        whole = len(first) if len(first) == size else len(first) // _BLOCK * _BLOCK
        self._whole = first if whole == size else None
        self._blocks: OrderedDict[int, bytes] = OrderedDict(
            (k, first[k * _BLOCK : (k + 1) * _BLOCK]) for k in range(whole // _BLOCK)
        )

    def readinto(self, buffer: Any) -> int:
        into = memoryview(buffer).cast("B")
        octets = self.read_at(self._at, self._at + len(into))
        into[: len(octets)] = octets
        self._at += len(octets)
        return len(octets)

    def read_at(self, start: int, stop: int) -> bytes:
        """The bytes start … stop - 1, or those up to the end of the file. Raises ContainerError."""
        stop = min(stop, self._size)
        if start >= stop:
            return b""
        if self._whole is not None:
            return self._whole[start:stop]
        with self._lock:
            return self._joined(start, stop)

    def _joined(self, start: int, stop: int) -> bytes:
        wanted = range(start // _BLOCK, (stop - 1) // _BLOCK + 1)
        blocks = {k: self._blocks[k] for k in wanted if k in self._blocks}
        while left := {k for k in wanted if k not in blocks}:
            blocks |= self._fetched(*self._around(left))
        for k in [*blocks][-_HELD:]:
            self._blocks[k] = blocks[k]
            self._blocks.move_to_end(k)
        while len(self._blocks) > _HELD:
            self._blocks.popitem(last=False)
        joined = b"".join(blocks[k] for k in wanted)
        return joined[start - wanted[0] * _BLOCK : stop - wanted[0] * _BLOCK]

    def _around(self, left: set[int]) -> tuple[int, int]:
        """The first block to ask for, which is wanted first, and where to stop: at a block that is there, too.

        Trees are walked forwards and backwards. What would be left between two answers is asked for at once.
        """
        first = min(left)
        behind, end = first + 1, -(-self._size // _BLOCK)
        while behind in left or (behind - first < _AHEAD and behind < end and behind not in self._blocks):
            behind += 1
        while behind - first < _AHEAD and first and first - 1 not in self._blocks:
            first -= 1
        gap = next((k for k in range(_GAP + 1) if first - 1 - k in self._blocks), 0)
        return first - gap, behind

    def _fetched(self, first: int, behind: int) -> dict[int, bytes]:
        """The blocks first … behind - 1. Raises ContainerError."""
        start, stop = first * _BLOCK, min(behind * _BLOCK, self._size)
        with touching(self.name):
            octets = self._fetch(start, stop)
        if len(octets) != stop - start:
            what = f"sent {len(octets)} bytes of the {stop - start} from byte {start} on; try again"
            raise ContainerError(Problem(self.name, what))
        return {first + k // _BLOCK: octets[k : k + _BLOCK] for k in range(0, len(octets), _BLOCK)}


def file_at(url: str) -> Any:
    """The file at a URL: through obstore of web servers and clouds, else through fsspec.

    A server that sends no ranges is asked for the whole file. Raises ContainerError, PathMissingError.
    """
    with touching(url), needing("remote"):
        scheme = urlsplit(url).scheme
        if scheme in ("http", "https") or (scheme in CLOUDS and importlib.util.find_spec("obstore")):
            return _by_ranges(url, *_store_of(url))
        from fsspec.core import url_to_fs

        try:
            system, path = url_to_fs(url)
            size = system.info(path)["size"]
        except FileNotFoundError:
            raise PathMissingError(Problem(url, "no such file; check the address")) from None
        version = system.ukey(path)

        def fetch(start: int, stop: int) -> bytes:
            _same(url, version, system.ukey(path))
            octets: bytes = system.cat_file(path, start, stop)
            return octets

        return RemoteFile(url, size, version, fetch)


def _same(url: str, known: str, version: str) -> None:
    if version != known:
        raise ContainerError(Problem(url, "the file has changed since it was opened; open it again"))


def _store_of(url: str) -> tuple[Any, str]:
    """The store of obstore's, and the path in it."""
    parts = urlsplit(url)
    if parts.scheme in CLOUDS:
        with needing("remote"):
            from obstore.store import from_url
        return from_url(f"{parts.scheme}://{parts.netloc}", retry_config=RETRY), parts.path.lstrip("/")
    return web_store(url), ""


def web_store(url: str) -> Any:
    """The store of obstore's at the URL of a web server, whose user is in the URL."""
    with needing("remote"):
        from obstore.store import HTTPStore
    parts = urlsplit(url)
    options: Any = {"allow_http": True, "timeout": _PATIENCE}
    user, at, host = parts.netloc.rpartition("@")
    if at:
        word = base64.b64encode(unquote(user).encode()).decode()
        options["default_headers"] = {"Authorization": f"Basic {word}"}
    return HTTPStore.from_url(parts._replace(netloc=host).geturl(), client_options=options, retry_config=RETRY)


def _by_ranges(url: str, store: Any, path: str) -> RemoteFile:
    with needing("remote"):
        import obstore
        from obstore.exceptions import GenericError, NotSupportedError

    def got(options: Any, left: int = RETRY["max_retries"]) -> tuple[Any, bytes]:
        """What a server says of the file, and bytes. obstore repeats what is refused, but not what is cut."""
        answer = obstore.get(store, path, options=options)
        try:
            return answer.meta, bytes(answer.bytes())
        except GenericError:
            if not left:
                raise
        return got(options, left - 1)

    def fetch(start: int, stop: int) -> bytes:
        meta, octets = got({"range": (start, stop)})
        _same(url, version, _version(meta))
        return octets

    try:
        try:
            meta, first = got({"range": (0, _AHEAD * _BLOCK)})
        except NotSupportedError:
            meta, first = got(None)
    except FileNotFoundError:
        raise PathMissingError(Problem(url, "no such file; check the address")) from None
    version = _version(meta)
    return RemoteFile(url, meta["size"], version, fetch, first)


def _version(meta: Any) -> str:
    """What a server says of a file. Some say nothing but its size."""
    return f"{meta['size']} {meta['e_tag'] or meta['last_modified']}"
