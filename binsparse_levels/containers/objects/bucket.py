"""Objects of a bucket, whose requests are sent again where an answer is lost, with a lease for who writes there."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import ContainerError, PathMissingError, Problem
from ..base import touching
from .asking import asked, asked_for, bucket_at, get_bytes, obstore_module, side_by_side
from .codecs import Bytes
from .stores import Kept, Range, count, shorter, touching_object

_LEASE = 60.0  # seconds after which the holder of an object store's lease counts as dead


class Bucket:
    """A prefix of an object store. The environment has the credentials and the endpoint, as the store's programs
    expect them.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._calls = obstore_module()
        with touching(url):
            self._store = bucket_at(self._url)

    def _touching(self, key: str) -> contextlib.AbstractContextManager[None]:
        return touching_object(f"{self._url}/{key}")

    def put(self, key: str, pieces: Iterable[Any], flush: bool = True) -> None:
        data = b"".join(pieces)
        with self._touching(key):
            asked(self._calls.put, self._store, key, data)
        count("put", len(data))

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
            octets = bytes(asked_for(get_bytes, self._store, key)[1])
        count("get", len(octets))
        return octets

    def ranges(self, wanted: Sequence[Range]) -> Iterator[Bytes]:
        def read(place: Range) -> Bytes:
            key, start, size = place
            if not size:
                return np.empty(0, np.uint8)
            with self._touching(key):
                octets = asked_for(self._calls.get_range, self._store, key, start=start, length=size)
            if len(octets) != size:
                raise shorter(f"{self._url}/{key}")
            count("get", size)
            return np.frombuffer(octets, np.uint8)

        return side_by_side(read, wanted)

    def size(self, key: str) -> int:
        with self._touching(key):
            return int(asked_for(self._calls.head, self._store, key)["size"])

    def names(self, prefix: str) -> set[str]:
        return set(self.listed(prefix))

    def listed(self, prefix: str) -> dict[str, Kept]:
        with self._touching(prefix):
            return {
                entry["path"].removeprefix(f"{prefix}/"): Kept(entry["size"], entry["last_modified"].timestamp())
                for page in self._pages(prefix)
                for entry in page
            }

    def _pages(self, prefix: str) -> Iterator[Sequence[Any]]:
        """A listing, which goes on behind its last page where a request for the next fails."""
        pages: Any = None
        last = None

        def following() -> Any:
            nonlocal pages
            try:
                pages = pages or iter(self._calls.list(self._store, prefix=prefix, offset=last))
                return next(pages, [])
            except Exception:
                pages = None
                raise

        while page := asked(following):
            last = page[-1]["path"]
            yield page

    def delete(self, prefix: str) -> None:
        with self._touching(prefix):
            with contextlib.suppress(FileNotFoundError):
                asked(self._calls.delete, self._store, prefix)
            if keys := [f"{prefix}/{name}" for name in self.names(prefix)]:
                asked(self._calls.delete, self._store, keys)

    def sweep(self) -> None:
        """A PUT leaves a whole object or nothing."""

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
                what = f"another process writes here, or died less than {_LEASE:.0f} seconds ago; try again later"
                raise ContainerError(Problem(self._url, what))
            if not self._leased(holder, then):
                raise ContainerError(Problem(self._url, "another process has begun to write here; wait for it"))
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
            return asked_for(self._calls.head, self._store, key)

    def _holds(self, holder: str) -> bool:
        """Whether the lease is that of this holder."""
        with contextlib.suppress(PathMissingError):
            return self.get("lease").startswith(holder.encode())
        return False

    def _leased(self, holder: str, then: Any) -> bool:
        """Write the lease where there is none, or over a lease that is as it was `then`; whether the holder has it.

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
