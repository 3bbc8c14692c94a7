"""Whole objects by key, in a local folder or in an object store: the work of a build, and the shards of its target.

An object is there whole or not at all, and to put it again replaces it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ..containers.base import is_url, touching
from ..containers.replacing import hold_lock, part_of, remove
from ..errors import ContainerError, PathMissingError, Problem
from ..io.kinds import Place, split_place
from ..system import to_disk
from .asking import asked, bucket_at, obstore_module

Bytes: TypeAlias = npt.NDArray[np.uint8]
Range: TypeAlias = tuple[str, int, int]  # a key, the first byte, and how many

_LEASE = 60.0  # seconds after which the holder of an object store's lease counts as dead
AT_ONCE = 16  # requests to an object store at a time: one alone takes 10 to 50 ms

moved: Counter[str] = Counter()  # what this process has put and got: `puts` and `gets`, and the bytes, `put` and `got`
_counting = threading.Lock()


def _count(kind: str, size: int) -> None:
    with _counting:
        moved.update({f"{kind}s": 1, "put" if kind == "put" else "got": size})


class Kept(NamedTuple):
    """What a store tells of an object. time: when it was written, in seconds."""

    size: int
    time: float


class Store(Protocol):
    """Objects by key. Every method raises ContainerError where the disk or the server fails."""

    def put(self, key: str, pieces: Iterable[Any], flush: bool = True) -> None:
        """Write an object whole, from buffers of bytes. flush: to the disk, before the object gets its name."""

    def create(self, key: str, data: bytes) -> bool:
        """Write an object unless there is one; whether it is this one."""

    def get(self, key: str) -> bytes:
        """An object. Raises PathMissingError."""

    def ranges(self, wanted: Sequence[Range]) -> Iterator[Bytes]:
        """Ranges of objects, in order. Raises ContainerError for a range that is not there."""

    def size(self, key: str) -> int:
        """The bytes of an object. Raises PathMissingError."""

    def names(self, prefix: str) -> set[str]:
        """The keys below `prefix/`, without it."""

    def listed(self, prefix: str) -> list[Kept]:
        """What the objects below `prefix/` are."""

    def delete(self, prefix: str) -> None:
        """Remove all objects below `prefix/`."""

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Hold the store alone within the block. Raises ContainerError where another process holds it."""


@contextlib.contextmanager
def _touching(place: str) -> Iterator[None]:
    """`touching` of an object; PathMissingError where it is not there."""
    try:
        with touching(place):
            yield
    except ContainerError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise PathMissingError(Problem(place, "is not there; start the build again")) from None
        raise


@lru_cache(8)
def store_at(address: str) -> Store:
    """The store at the path of a folder, which is made, or at a URL."""
    return _Bucket(address) if is_url(address) else _Folder(address)


class _Folder:
    """A local folder. A key is a path in it."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(os.path.expanduser(root))

    def _path(self, key: str) -> str:
        return os.path.join(self._root, *key.split("/"))

    def _part(self, path: str) -> str:
        """Where an object is written before it gets its name."""
        return f"{path}.{uuid.uuid4().hex[:12]}.part"

    def put(self, key: str, pieces: Iterable[Any], flush: bool = True) -> None:
        path = self._path(key)
        part = self._part(path)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(part, "wb") as file:
                file.writelines(pieces)
                _count("put", file.tell())
            if flush:
                to_disk(part)
            os.replace(part, path)
        except OSError as error:
            remove(part)
            raise ContainerError(Problem(path, f"cannot be written: {error.strerror}")) from error

    def create(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        part = self._part(path)
        with touching(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            try:
                with open(part, "wb") as file:
                    file.write(data)
                to_disk(part)
                os.link(part, path)
            except FileExistsError:
                return False
            finally:
                remove(part)
        return True

    def get(self, key: str) -> bytes:
        with _touching(self._path(key)), open(self._path(key), "rb") as file:
            found = file.read()
        _count("get", len(found))
        return found

    def ranges(self, wanted: Sequence[Range]) -> Iterator[Bytes]:
        for key, start, count in wanted:
            found = np.empty(count, np.uint8)
            with _touching(self._path(key)), open(self._path(key), "rb", 0) as file:
                file.seek(start)
                at = 0
                while at < count and (more := file.readinto(found[at:].data)):
                    at += more
            if at != count:
                raise ContainerError(Problem(self._path(key), "is shorter than it was; start the build again"))
            _count("get", count)
            yield found

    def size(self, key: str) -> int:
        with _touching(self._path(key)):
            return os.path.getsize(self._path(key))

    def names(self, prefix: str) -> set[str]:
        path = self._path(prefix)
        with touching(path), contextlib.suppress(FileNotFoundError):
            return {name for name in os.listdir(path) if not name.endswith(".part")}
        return set()

    def listed(self, prefix: str) -> list[Kept]:
        path = self._path(prefix)
        with touching(path), contextlib.suppress(FileNotFoundError), os.scandir(path) as there:
            known = [entry.stat() for entry in there if not entry.name.endswith(".part")]
            return [Kept(status.st_size, status.st_mtime) for status in known]
        return []

    def delete(self, prefix: str) -> None:
        remove(self._path(prefix))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with touching(self._root):
            os.makedirs(self._root, exist_ok=True)
        with contextlib.ExitStack() as holding:
            try:
                holding.enter_context(hold_lock(os.path.join(self._root, "plan"), 0))
            except ContainerError as error:
                what = "another process is building here; wait for it, or pass another work="
                raise ContainerError(Problem(self._root, what)) from error
            yield


class _Bucket:
    """A prefix of an object store. The environment has the credentials and the endpoint, as the store's programs
    expect them.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._calls = obstore_module()
        with touching(url):
            self._store = bucket_at(self._url)

    def _touching(self, key: str) -> contextlib.AbstractContextManager[None]:
        return _touching(f"{self._url}/{key}")

    def put(self, key: str, pieces: Iterable[Any], flush: bool = True) -> None:
        data = b"".join(pieces)
        with self._touching(key):
            asked(self._calls.put, self._store, key, data)
        _count("put", len(data))

    def create(self, key: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError

        with self._touching(key):
            try:
                asked(self._calls.put, self._store, key, data, mode="create")
            except AlreadyExistsError:  # perhaps by this call, whose first answer was lost
                return self.get(key) == data
        return True

    def get(self, key: str) -> bytes:
        with self._touching(key):
            found = bytes(asked(lambda: self._calls.get(self._store, key).bytes()))
        _count("get", len(found))
        return found

    def ranges(self, wanted: Sequence[Range]) -> Iterator[Bytes]:
        def read(one: Range) -> Bytes:
            key, start, count = one
            if not count:
                return np.empty(0, np.uint8)
            with self._touching(key):
                octets = asked(self._calls.get_range, self._store, key, start=start, length=count)
            found = np.frombuffer(octets, np.uint8)
            if len(found) != count:
                raise ContainerError(Problem(f"{self._url}/{key}", "is shorter than it was; start the build again"))
            _count("get", count)
            return found

        if len(wanted) < 2:
            yield from map(read, wanted)
            return
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for at in range(0, len(wanted), AT_ONCE):
                yield from pool.map(read, wanted[at : at + AT_ONCE])

    def size(self, key: str) -> int:
        with self._touching(key):
            return int(asked(self._calls.head, self._store, key)["size"])

    def _entries(self, prefix: str) -> list[Any]:
        with self._touching(prefix):
            pages: Any = asked(lambda: list(self._calls.list(self._store, prefix=prefix)))
            return [entry for page in pages for entry in page]

    def names(self, prefix: str) -> set[str]:
        return {entry["path"].removeprefix(f"{prefix}/") for entry in self._entries(prefix)}

    def listed(self, prefix: str) -> list[Kept]:
        return [Kept(entry["size"], entry["last_modified"].timestamp()) for entry in self._entries(prefix)]

    def delete(self, prefix: str) -> None:
        with self._touching(prefix):
            with contextlib.suppress(FileNotFoundError):
                asked(self._calls.delete, self._store, prefix)
            if keys := [f"{prefix}/{name}" for name in self.names(prefix)]:
                asked(self._calls.delete, self._store, keys)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A lease, which is renewed while the block runs. What is older than a minute is taken over.

        The lease has the name of its holder. Where the answer to a request is lost, the name tells who has it.
        """
        holder = uuid.uuid4().hex
        if not self._leased(holder, None):
            self.put("clock", [b""])  # the server's clock tells how old the lease is
            now, then = self._told("clock"), self._told("lease")
            age = (now["last_modified"] - then["last_modified"]).total_seconds() if now and then else _LEASE
            if age < _LEASE:
                what = f"another process is building here, or died less than {_LEASE:.0f} seconds ago; try again later"
                raise ContainerError(Problem(self._url, what))
            if not self._leased(holder, then):
                raise ContainerError(Problem(self._url, "another process has begun to build here; wait for it"))
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(_LEASE / 4):
                with contextlib.suppress(ContainerError):  # the next time it may work
                    if (there := self._told("lease")) is None or not self._holds(holder):
                        return
                    self._leased(holder, there)

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            with contextlib.suppress(ContainerError):  # the build is done, and a lease ends by itself
                if self._holds(holder):  # else another process has taken it over
                    for key in ("lease", "clock"):
                        self.delete(key)

    def _told(self, key: str) -> Any:
        """Time and tag of an object, or None."""
        with self._touching(key), contextlib.suppress(FileNotFoundError):
            return asked(self._calls.head, self._store, key)

    def _holds(self, holder: str) -> bool:
        """Whether the lease is that of this holder."""
        with contextlib.suppress(PathMissingError):
            return self.get("lease").startswith(holder.encode())
        return False

    def _leased(self, holder: str, then: Any) -> bool:
        """Write the lease where there is none, or over one that is as it was `then`; whether the holder has it.

        The answer to the request may be lost, and the request be sent again, so the object is asked.
        """
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode = "create" if then is None else {"e_tag": then["e_tag"]}
        try:
            asked(self._calls.put, self._store, "lease", f"{holder} {uuid.uuid4().hex}".encode(), mode=mode)
        except Exception as error:
            if self._holds(holder):
                return True
            if isinstance(error, AlreadyExistsError | PreconditionError):
                return False
            raise ContainerError(Problem(f"{self._url}/lease", f"cannot be written: {error}")) from error
        return True


@contextlib.contextmanager
def scratch(target: Place) -> Iterator[str]:
    """A folder beside the target, or for a URL or an open object a temporary one; removed at the end."""
    path, _ = split_place(target)
    try:
        if not isinstance(path, str) or is_url(path):
            folder = tempfile.mkdtemp()
        else:
            folder = f"{part_of(os.path.realpath(path))}.d"
            os.mkdir(folder)
    except OSError as error:
        raise ContainerError(
            Problem(path, f"no folder for scratch files can be made here: {error.strerror}")
        ) from error
    try:
        yield folder
    finally:
        remove(folder)
